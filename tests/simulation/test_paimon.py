"""Paimon's dialect under racing writers, failing storage, and callers who ask again."""

import pytest

from tests.simulation.paimon import PaimonWorld
from tests.simulation.racing import SEEDS, race, without
from tests.simulation.test_loop import RULES

ASIDES = {
    "writers": (),
    "expiry and tags": ("expire", "tag"),
    "restores": ("restore",),
    "schema changes": ("evolve",),
}


@pytest.mark.parametrize("asides", ASIDES)
def test_racing_writers_lose_nothing_and_double_nothing(asides: str):
    world = PaimonWorld(*ASIDES[asides])
    for seed in range(max(SEEDS // 10, 1)):
        assert race(world, seed, attempts=1 + seed % 3, turns_each=5) == [], "replay it with this seed"


@pytest.mark.parametrize("rule", RULES)
def test_the_judge_sees_what_each_rule_of_the_loop_is_for(rule: str):
    commit = without(rule, *RULES[rule]).commit
    world, seeds = PaimonWorld(), 200
    assert any(race(world, seed, 1 + seed % 2, commit, turns_each=5) for seed in range(seeds)), (
        f"{seeds} seeds do not show what {rule!r} is for"
    )
