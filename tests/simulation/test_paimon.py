"""Paimon's dialect under racing writers, failing storage, and callers who ask again."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from lakeformat.dialects.paimon import expire, lineage
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.errors import CommitError, StoreError
from lakeformat.model.operation import Append, Request
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.snapshot import Outcome, Stamp
from lakeformat.model.work import WrittenFile
from lakeformat.storage import head as head_module
from lakeformat.storage.head import Newest
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from lakeformat.verbs import tag
from tests.simulation.paimon import PaimonWorld
from tests.simulation.paimon import dialect as worlds_dialect
from tests.simulation.racing import (
    ENOUGH,
    FREE_NAME_SEEDS,
    SEEDS,
    Instead,
    commit_module,
    lands_late,
    race,
    race_for_free_names,
    without,
)
from tests.simulation.test_loop import OFTEN_NEEDED, RULES
from tests.simulation.turns import FaultyStore, Turns, Watched

dialect = Paimon()

ASIDES = {
    "writers": (),
    "expiry and tags": ("expire", "tag"),
    "restores": ("restore",),
    "restores and expiry": ("expire", "tag", "restore"),
    "schema changes": ("evolve",),
}


@pytest.mark.parametrize("asides", ASIDES)
def test_racing_writers_lose_nothing_and_double_nothing(asides: str):
    world = PaimonWorld(*ASIDES[asides])
    for seed in range(max(SEEDS // 10, 1)):
        assert race(world, seed, attempts=1 + seed % 3, turns_each=5) == [], "replay it with this seed"


@pytest.mark.parametrize("few", [Newest().few, -1])
def test_writers_that_are_stopped_while_names_become_free_lose_nothing(few: int, monkeypatch: pytest.MonkeyPatch):
    """Also where a few reads tell what a listing would."""
    monkeypatch.setattr(worlds_dialect.newest, "few", few)
    world = PaimonWorld("expire", "free names")
    assert race_for_free_names(world, max(FREE_NAME_SEEDS // 2, 1)) == [], "replay it with this seed"


def test_the_head_needs_to_look_again_after_it_has_created():
    """Between the look before and the create, the name can be used by others and freed by expiry."""
    mutant = without("second look", "if is_version and self.version() != version + 1:", "if False:", head_module)
    assert race_for_free_names(PaimonWorld("expire", "free names"), ENOUGH, head=mutant.CreateHead)


@pytest.mark.parametrize("left_out", ["a tag that keeps the snapshot", "a look for expiries"])
def test_a_restore_keeps_its_snapshot_and_looks_for_expiries(left_out: str, monkeypatch: pytest.MonkeyPatch):
    world = PaimonWorld("expire", "restore", "free names")

    def lost(seeds: int) -> bool:
        return any(race(world, seed, 1 + seed % 3, actors=3, turns_each=6) for seed in range(seeds))

    assert not lost(3 * max(SEEDS // 50, 1))
    if left_out == "a look for expiries":
        monkeypatch.setattr(expire.Expiring, "require_kept", lambda self, tag=None: None)
    else:
        monkeypatch.setattr(tag, "kept", lambda store, view: nullcontext())
    assert lost(ENOUGH)


class Expiring(Watched):
    """A store in which snapshots expire right after `path` was read."""

    def __init__(self, store: MemoryFiles, path: str) -> None:
        self._store, self._path = store, path

    def __getattr__(self, name):
        def call(*arguments):
            answer = getattr(self._store, name)(*arguments)
            if (name, arguments) == ("read_many", ([self._path],)):
                self._path = ""
                Table("t", self._store, dialect).expire_snapshots(retain_last=1)
            return answer

        return call


def test_a_snapshot_that_expires_while_it_is_judged_is_not_taken_for_a_stray():
    """Its rows were overwritten since, the gap above it is of expiry, and what its lists held is still in memory."""
    store = MemoryFiles()
    table = Table("t", store, dialect)
    create(table, Schema((Field(0, "id", scalar(Kind.BIGINT)),)))
    before = dialect.load(store, 0)
    operation = Append(request=Request(id="slow"), added=(WrittenFile("bucket-0/data-a-0.parquet", (), 1, 1),))
    plan = before.plan(operation, Stamp(0, "slow", 0))
    for path, data in (*plan.files.items(), (plan.root_path, plan.root)):
        store.write(path, data)
    for id in range(3):
        table.overwrite(pa.table({"id": [id]}))
    newest = dialect.load(store, 4)
    assert newest.settle(operation, plan, 0) is Outcome.PUBLISHED
    expiring = replace(newest, reader=replace(newest.reader, store=Expiring(store, plan.root_path)))
    assert expiring.settle(operation, plan, 0) is Outcome.UNKNOWN


def test_the_dialect_needs_to_distinguish_strays_from_history():
    world = PaimonWorld("expire", "free names")
    mutant = without(
        "strays", "if after is None:", "if True:", lineage
    )  # Every snapshot that is there led to the newest one.
    world.dialect = Instead(
        dialect, settle=lambda view, *asked: mutant.settle(view.reader, asked[0], view.state, *asked[1:])
    )
    assert race_for_free_names(world, ENOUGH)


SHOWN_BY = {"cleaning up never raises": 119}  # The seed that is tried first, for it showed it when last looked for.


@pytest.mark.parametrize("rule", OFTEN_NEEDED)
def test_the_judge_sees_what_each_rule_of_the_loop_is_for(rule: str):
    commit = without(rule, *RULES[rule]).commit
    world, seeds = PaimonWorld(), 200
    tried = (SHOWN_BY.get(rule, 0), *range(seeds))
    assert any(race(world, seed, 1 + seed % 2, commit, turns_each=5) for seed in tried), (
        f"{seeds} seeds do not show what {rule!r} is for"
    )


@pytest.mark.parametrize("rule", [None, "find last"])
def test_a_caller_who_asks_again_may_lose_to_an_attempt_of_its_own(rule: str | None):
    loop = without(rule, *RULES[rule]) if rule else commit_module
    lost, found = lands_late(PaimonWorld(), lambda store: store, loop.commit)
    assert (lost is None) == (rule is None)
    assert found == 1


def test_racing_writers_whose_commits_expire_snapshots_lose_nothing():
    """The history kept is longer than an attempt in doubt."""
    fields = (Field(0, "id", scalar(Kind.BIGINT)),)
    kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "8", "commit.max-retries": "1"}
    for seed in range(max(SEEDS // 30, 2)):
        store, turns = MemoryFiles(), Turns(seed)
        create(Table("t", store, dialect), Schema(fields, properties=kept))
        written: set[int] = set()
        unsure: set[int] = set()

        def write(actor: int, store=store, turns=turns, written=written, unsure=unsure) -> None:
            table = Table("t", FaultyStore(store, turns, str(actor), fault_ratio=0.02, read_fault_ratio=0), dialect)
            for i in range(4):
                id = 10 * actor + i
                for _ in range(20):
                    try:
                        table.append(pa.table({"id": [id]}), id=str(id))
                        written.add(id)
                        break
                    except (StoreError, CommitError):
                        unsure.add(id)

        turns.race({str(actor): partial(write, actor) for actor in range(3)})
        table = Table("t", store, dialect)
        found = Counter(table.scan().to_arrow()["id"].to_pylist())
        assert written <= found.keys() <= written | unsure, seed
        assert set(found.values()) == {1}, seed
        counts = [table.scan(snapshot_id=snapshot.id).count() for snapshot in table.snapshots()]
        assert counts == sorted(counts), seed
        assert counts[-1] == len(found), seed
        assert len(counts) < len(found), "nothing expired"
