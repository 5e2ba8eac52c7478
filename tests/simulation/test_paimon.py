"""Paimon's dialect under racing writers, failing storage, and callers who ask again."""

import pytest

from lakeformat.dialects.paimon import dialect, lineage
from lakeformat.storage import head as head_module
from tests.simulation.paimon import PaimonWorld
from tests.simulation.racing import SEEDS, race, race_for_free_names, without
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


def test_writers_that_are_stopped_while_names_become_free_lose_nothing():
    assert race_for_free_names(PaimonWorld("expire", "free names")) == [], "replay it with this seed"


def test_the_head_needs_to_look_again_after_it_has_created():
    """Between the look before and the create, the name can be used by others and freed by expiry."""
    mutant = without("second look", "if is_version and self.version() != version + 1:", "if False:", head_module)
    assert race_for_free_names(PaimonWorld("expire", "free names"), head=mutant.CreateHead)


class Credulous:
    """The dialect, to which every snapshot that is there led to the newest one."""

    lineage = without("strays", "if after is None:", "if True:", lineage)

    def settle(self, *arguments):
        return self.lineage.settle(*arguments)

    def __getattr__(self, name):
        return getattr(dialect, name)


def test_the_dialect_needs_to_tell_strays_from_history():
    world = PaimonWorld("expire", "free names")
    world.dialect = Credulous()
    assert race_for_free_names(world)


@pytest.mark.parametrize("rule", RULES)
def test_the_judge_sees_what_each_rule_of_the_loop_is_for(rule: str):
    commit = without(rule, *RULES[rule]).commit
    world, seeds = PaimonWorld(), 200
    assert any(race(world, seed, 1 + seed % 2, commit, turns_each=5) for seed in range(seeds)), (
        f"{seeds} seeds do not show what {rule!r} is for"
    )
