"""Tables with a primary key: sections, levels, and which sorted runs are worth merging."""

import random
from dataclasses import replace

import numpy as np
import pytest

from lakeformat.dialects.paimon.compaction import Rules, pick
from lakeformat.model.schema import Schema

RULES = Rules.of(Schema(fields=()))

# (levels of the runs, their sizes, full) -> (runs merged, level of the result): UniversalCompactionTest's rules by hand.
PICKS = [
    (([], [], True), None),
    (([5], [10], True), None),
    (([0], [10], True), (1, 5)),
    (([3], [10], True), (1, 5)),
    (([0, 0, 5], [1, 1, 100], True), (3, 5)),
    (([0] * 4, [1] * 4, False), None),
    (([0] * 5, [1] * 5, False), (5, 5)),  # All others are more than twice the oldest.
    (([0, 0, 0, 0, 5], [1, 1, 1, 1, 100], False), (4, 4)),  # Sizes alike, and the oldest much larger.
    (([0, 0, 0, 3, 5], [1, 1, 1, 50, 1000], False), (3, 2)),
    (([0, 0, 0, 1, 5], [1, 1, 1, 50, 1000], False), (4, 4)),  # Level 1 goes along whatever its size.
    (([0, 0, 0, 0, 0, 5], [1, 10, 100, 1000, 10**4, 10**6], False), (5, 4)),  # Nothing alike, but too many runs.
    (([0, 3, 4, 5], [1, 10, 100, 1000], False), None),
]


@pytest.mark.parametrize(("given", "picked"), PICKS)
def test_sorted_runs_are_picked_as_java_picks_them(given, picked):
    levels, sizes, full = given
    assert pick(np.array(levels, int), np.array(sizes, int), RULES, full) == picked


def test_whatever_is_picked_leaves_the_levels_in_order():
    """The result lies above level 0 and below nothing that is newer: on no level that a run beyond it has."""
    for seed in range(3000):
        chance = random.Random(seed)
        count = chance.randint(1, 9)
        above = sorted(chance.sample(range(1, 6), chance.randint(0, 4)))
        levels = [0] * count + above
        sizes = [chance.choice([1, 5, 20, 1000]) for _ in levels]
        rules = replace(RULES, levels=6, trigger=chance.randint(2, 6))
        found = pick(np.array(levels), np.array(sizes), rules)
        if found is None:
            assert len(levels) <= rules.trigger, seed
            continue
        taken, level = found
        assert 1 <= level <= 5, seed
        assert all(other > level for other in levels[taken:]), seed
        assert taken == len(levels) or level < 5, seed
