"""The commit loop under racing writers, calls that fail in every way, and callers who ask again."""

import pytest

from lakeformat.storage import head as head_module
from tests.simulation.racing import SEEDS, race, without
from tests.simulation.toy import ToyWorld

# Each rule of the loop, as it stands in the code, and the code without it.
RULES = {
    "find first": (
        "if landed_snapshot := settle(store, operation, view, doubts) or view.find(operation):",
        "if landed_snapshot := None:",
    ),
    "UNKNOWN deletes nothing": ("plan, may_land=True)", "plan, discard(store, plan.files) is None)"),
    "a last UNKNOWN is said as such": (
        "    if doubts:\n        raise unknown(store, id, failure or",
        "    if 0:\n        raise unknown(store, id, failure or",
    ),
    "find last": (
        "        landed_snapshot = settle(store, operation, view, doubts) or view.find(operation)\n",
        "        landed_snapshot = None\n",
    ),
    "cleaning up never raises": (
        "    with suppress(StoreError):\n        store.delete",
        "    if True:\n        store.delete",
    ),
}
# A race shows the other one once in hundreds of seeds of a real format, where it is tried by itself.
OFTEN_NEEDED = [rule for rule in RULES if rule != "find last"]


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_racing_writers_lose_nothing_and_double_nothing(attempts: int):
    world = ToyWorld()
    for seed in range(SEEDS):
        assert race(world, seed, attempts) == [], "replay it with this seed"


def test_without_faults_every_append_lands():
    world = ToyWorld()
    for seed in range(30):
        assert race(world, seed, attempts=20, faults=False) == []


@pytest.mark.parametrize("rule", RULES)
def test_the_loop_needs_each_of_its_rules(rule: str):
    commit = without(rule, *RULES[rule]).commit
    world, seeds = ToyWorld(), 3000
    assert any(race(world, seed, attempts, commit) for seed in range(seeds) for attempts in (2, 1)), (
        f"{seeds} seeds do not show what {rule!r} is for"
    )


def test_the_head_needs_to_look_whether_the_root_that_is_there_is_its_own():
    """A client that repeats a put hears that the file is there: the race was lost to itself."""
    mutant = without(
        "own root", "if not created and self.store.read(plan.root_path) != plan.root:", "if not created:", head_module
    )
    world, seeds = ToyWorld(), 500
    assert any(race(world, seed, 2, head=mutant.CreateHead) for seed in range(seeds)), f"{seeds} seeds do not show it"
