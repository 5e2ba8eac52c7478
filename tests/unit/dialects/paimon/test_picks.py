"""Which sorted runs a compaction takes, beside the rules of UniversalCompaction and EarlyFullCompaction as the Java engine has
them, run by run."""

import random
from dataclasses import replace

import numpy as np
import pytest

from lakeformat.dialects.paimon.compaction import Rules, pick
from lakeformat.model.schema import Schema

RULES = Rules.read(Schema(fields=()))

Run = tuple[int, int]  # Level, bytes.


def by_java(runs: list[Run], rules: Rules) -> tuple[int, int] | None:
    found = universal(runs, rules)
    first = [level for level, _ in runs].count(0)
    if found is None and rules.empties_level_0 and first:
        found = unit(runs, rules, first)  # Java goes on with runs that are not larger, and so writes more.
    is_there = found is not None and found[0] == 1 and runs[0][0] == found[1]
    return None if is_there else found


def universal(runs: list[Run], rules: Rules) -> tuple[int, int] | None:
    everything, below = (len(runs), rules.levels - 1), sum(size for level, size in runs if level != rules.levels - 1)
    if len(runs) > 1 and sum(size for _, size in runs) < rules.full_below_bytes:
        return everything
    if len(runs) > 1 and rules.full_above_bytes is not None and below > rules.full_above_bytes:
        return everything
    if len(runs) >= rules.trigger:
        if sum(size for _, size in runs[:-1]) * 100 > rules.amplification * runs[-1][1]:
            return everything
        if found := by_ratio(runs, rules, 1):
            return found
    return by_ratio(runs, rules, len(runs) - rules.trigger + 1) if len(runs) > rules.trigger else None


def by_ratio(runs: list[Run], rules: Rules, count: int) -> tuple[int, int] | None:
    held, triggered = sum(size for _, size in runs[:count]), count > 1
    for level, size in runs[count:]:
        if held * (100.0 + rules.size_ratio) / 100.0 < size and (not triggered or level > 1):
            break
        held, count, triggered = held + size, count + 1, True
    return unit(runs, rules, count) if triggered else None


def unit(runs: list[Run], rules: Rules, count: int) -> tuple[int, int]:
    level = rules.levels - 1 if count == len(runs) else max(0, runs[count][0] - 1)
    if level == 0:
        for next_level, _ in runs[count:]:
            count += 1
            if next_level:
                level = next_level
                break
    return count, rules.levels - 1 if count == len(runs) else level


@pytest.mark.parametrize("lifts", [False, True], ids=["universal", "level 0 must go"])
def test_any_runs_are_picked_as_java_picks_them(lifts: bool) -> None:
    picked = set()
    for seed in range(2500):
        chance = random.Random(seed)
        count = chance.randint(2, 7)
        levels = [0] * chance.randint(0, 8) + sorted(chance.sample(range(1, count), chance.randint(0, count - 1)))
        runs = [(level, chance.choice([1, 5, 99, 100, 101, 1000, chance.randint(1, 5000)])) for level in levels]
        rules = replace(
            RULES,
            levels=count,
            trigger=chance.randint(1, 6),
            size_ratio=chance.choice([0, 1, 50]),
            amplification=chance.choice([0, 200, 1000]),
            full_below_bytes=chance.choice([0, 0, 500, 3000]),
            full_above_bytes=chance.choice([None, None, 500, 3000]),
            empties_level_0=lifts,
        )
        wanted = by_java(runs, rules) if runs else None
        found = pick(np.array(levels, np.int64), np.array([size for _, size in runs], np.int64), rules)
        assert found == wanted, (seed, runs, rules)
        picked.add(None if found is None else (found[0] == len(runs), found[1] == count - 1))
    assert len(picked) == 3


def test_picks_one_after_the_other_come_to_an_end() -> None:
    """Each leaves fewer runs, or lifts the only one there is."""
    for seed in range(800):
        chance = random.Random(seed)
        rules = replace(
            RULES, levels=chance.randint(2, 7), trigger=chance.randint(1, 6), empties_level_0=chance.random() < 0.5
        )
        runs = [(0, chance.randint(1, 2000)) for _ in range(chance.randint(1, 12))]
        while found := pick(np.array([r[0] for r in runs]), np.array([r[1] for r in runs]), rules):
            taken, level = found
            made = (level, sum(size for _, size in runs[:taken]))
            assert len(runs) - taken + 1 < len(runs) or level > runs[0][0], (seed, runs)
            runs = [made, *runs[taken:]]
            assert [level for level, _ in runs] == sorted({level for level, _ in runs}), seed
        assert len(runs) <= rules.trigger, seed
