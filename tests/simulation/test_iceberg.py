"""Iceberg's dialect under racing writers, failing storage and catalogs, and callers who ask again."""

import pytest

from lakeformat.dialects.iceberg import plan
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.storage import head as head_module
from tests.simulation.iceberg import IcebergWorld
from tests.simulation.iceberg_rows import RowWorld
from tests.simulation.racing import (
    ENOUGH,
    SEEDS,
    Instead,
    commit_module,
    lands_late,
    race,
    race_for_free_names,
    without,
)
from tests.simulation.test_loop import OFTEN_NEEDED, RULES

dialect = Iceberg()

HEADS = {"numbered files": False, "a catalog's pointer": True}


@pytest.mark.parametrize("head", HEADS)
def test_racing_writers_lose_nothing_and_double_nothing(head: str):
    world = IcebergWorld(HEADS[head])
    for seed in range(max(SEEDS // 10, 1)):
        assert race(world, seed, attempts=1 + seed % 3, turns_each=4, seen=world.seen) == [], "replay it with this seed"


def test_writers_that_are_stopped_while_names_become_free_lose_nothing():
    assert race_for_free_names(IcebergWorld(False, frees_names=True)) == [], "replay it with this seed"


def test_the_head_needs_to_look_again_after_it_has_created():
    """Between the look before and the create, the name can be used by others and freed with a later commit."""
    mutant = without("second look", "if is_version and self.version() != version + 1:", "if False:", head_module)

    def careless(store):
        return mutant.CreateHead(store, "metadata", "v", (".metadata.json",))

    assert race_for_free_names(IcebergWorld(False, frees_names=True), ENOUGH, head=careless)


@pytest.mark.parametrize("rule", OFTEN_NEEDED)
def test_the_judge_sees_what_each_rule_of_the_loop_is_for(rule: str):
    commit = without(rule, *RULES[rule]).commit
    world, seeds = IcebergWorld(True), 400
    assert any(race(world, seed, 1 + seed % 2, commit, turns_each=5, seen=world.seen) for seed in range(seeds)), (
        f"{seeds} seeds do not show what {rule!r} is for"
    )


@pytest.mark.parametrize("rule", [None, "find last"])
def test_a_caller_who_asks_again_may_lose_to_an_attempt_of_its_own(rule: str | None):
    loop = without(rule, *RULES[rule]) if rule else commit_module
    world = IcebergWorld(True)
    lost, found = lands_late(world, world.seen, loop.commit)
    assert (lost is None) == (rule is None)
    assert found == 1


def test_a_pointer_is_swapped_only_where_it_is_the_one_that_was_read():
    """A head that overwrites whatever is there loses others' commits."""
    mutant = without("compare", "self.entry.swap(old, ", "self.entry.swap(self.entry.location(), ", head_module)

    def careless(seen):
        return mutant.SwapHead(seen.store, seen.entry)

    world, seeds = IcebergWorld(True), 100
    assert any(race(world, seed, 2, head=careless, turns_each=4, seen=world.seen) for seed in range(seeds))


def test_rows_that_were_deleted_never_come_back():
    world = RowWorld()
    for seed in range(max(SEEDS // 15, 1)):
        assert race(world, seed, attempts=1 + seed % 3, turns_each=6) == [], "replay it with this seed"


_ANEW = without("starting", "conflict.starting_sequence(base, operation)", "None", plan)
CARELESS = {
    "what others did is checked": Instead(dialect, check=lambda view, operation: None),
    "compactions count as old as what they read": Instead(
        dialect, plan=lambda view, operation, stamp: _ANEW.plan(view.reader, operation, view.state, stamp)
    ),
}


SHOWN_BY = dict(
    zip(CARELESS, (2, 91), strict=True)
)  # The seed that is tried first, for it showed it when last looked for.


@pytest.mark.parametrize("rule", CARELESS)
def test_the_judge_sees_what_keeps_rows_from_coming_back(rule: str):
    world, seeds = RowWorld(), 200
    world.dialect = CARELESS[rule]
    tried = (SHOWN_BY[rule], *range(seeds))
    assert any(race(world, seed, attempts=2, turns_each=6) for seed in tried), f"{seeds} seeds do not show it"
