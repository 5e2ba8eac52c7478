"""Streams into a table with a primary key: processes that die at any call of storage and start again, beside a model of dicts."""

import pickle
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from lakeformat import (
    AlreadyExists,
    CommitError,
    CommitUnknown,
    InvalidInput,
    LakeError,
    NotFound,
    StoreError,
)
from lakeformat.dialects.paimon import metadata
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.streaming import Prepared, WriteSession
from lakeformat.table import Table, create
from tests.simulation.paimon import Journal
from tests.simulation.turns import FaultyStore, Turns, Watched

dialect = Paimon()

Row = tuple[int, str, int, int | None, str | None, str]  # id, dt, n, a, b, kind

NAMES = ("id", "dt", "n", "a", "b")
ARROW = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("n", pa.int64()), ("a", pa.int64()), ("b", pa.string())])
STREAMS = ("one", "two")
CHECKPOINTS = 5


class Killed(SystemExit):
    """The process is gone. No handler of errors sees it, and a thread that it ends ends silently."""


class Process(Watched):
    """A store as one process sees it, up to the call at which that is killed: before the call has its effect, after it, or with
    the effect of a `create` still to come. Every other process dies at a `create`, which is what decides a commit."""

    def __init__(self, store: FaultyStore, turns: Turns, dies: bool) -> None:
        chance = turns.random
        self._store, self._turns, self._how = store, turns, chance.random()
        self._counts = "create" if chance.random() < 0.5 else ""  # Calls of this name, or all.
        self._left = chance.randrange(1, 5 if self._counts else 150) if dies else None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self._left is not None:
                if self._left == 0:
                    raise Killed
                self._left -= name == (self._counts or name)
                if self._left == 0:
                    if name == "create" and self._how < 0.3:
                        self._turns.late.append(lambda: self._store.inner.create(*args))
                    elif self._how < 0.65:
                        with suppress(LakeError):
                            getattr(self._store, name)(*args)
                    raise Killed
            return getattr(self._store, name)(*args)

        return call


@dataclass(frozen=True)
class Case:
    """A table, and which keys its writers have."""

    engine: str
    bucket: str
    producer: str
    marked: bool
    overlapping: bool
    write_only: bool

    @classmethod
    def draw(cls, chance: random.Random) -> "Case":
        engine = chance.choice(["deduplicate", "partial-update", "aggregation", "first-row"])
        first = engine == "first-row"
        marked = not first and chance.random() < 0.4
        producers = ["none", "lookup"] if first else ["none", "input", "lookup"] + ["full-compaction"] * (not marked)
        return cls(
            engine=engine,
            bucket=chance.choice(["1", "2", "-1"]),
            producer=chance.choice(producers),
            marked=marked,
            overlapping=not first and chance.random() < 0.5,
            write_only=chance.random() < 0.3,
        )

    @property
    def schema(self) -> Schema:
        kinds = (Kind.BIGINT, Kind.STRING, Kind.BIGINT, Kind.BIGINT, Kind.STRING)
        properties = {
            "bucket": self.bucket,
            "merge-engine": self.engine,
            "changelog-producer": self.producer,
            "write-only": str(self.write_only).lower(),
            "deletion-vectors.enabled": str(self.marked).lower(),
            "commit.max-retries": "2",
            "num-sorted-run.compaction-trigger": "3",
            "num-levels": "4",
            "manifest.merge-min-count": "3",
            "dynamic-bucket.target-row-num": "3",
        }
        if self.overlapping and self.engine == "deduplicate":
            properties["sequence.field"] = "n"
        if self.overlapping and self.engine == "partial-update":
            properties["fields.n.sequence-group"] = "a,b"
        if self.engine == "aggregation":
            properties |= {
                f"fields.{name}.aggregate-function": how for name, how in (("n", "max"), ("a", "sum"), ("b", "max"))
            }
        fields = tuple(
            Field(i, n, scalar(k), n not in ("id", "dt")) for i, (n, k) in enumerate(zip(NAMES, kinds, strict=True))
        )
        return Schema(fields, identity("dt"), ("id", "dt"), properties)

    def rows(self, writer: int, number: int, chance: random.Random) -> list[Row]:
        """What a writer brings with its commit `number`: each key once."""
        first = 0 if self.overlapping else 100 * writer
        deletes = self.engine == "deduplicate" and not self.overlapping
        return [
            (
                id,
                "xy"[id % 2],
                10 * number + writer,
                chance.choice([None, chance.randrange(10)]),
                chance.choice([None, f"{writer}.{number}"]),
                "-D" if deletes and chance.random() < 0.2 else "+I",
            )
            for id in chance.sample(range(first, first + 8), chance.randrange(1, 5))
        ]

    def held(self, rows: list[Row]) -> dict[int, tuple[Any, ...]]:
        """The table that these rows make, in the order in which they were committed."""
        if self.overlapping and self.engine != "aggregation":
            rows = sorted(rows, key=lambda row: row[2])
        held: dict[int, tuple[Any, ...]] = {}
        for id, dt, n, a, b, kind in rows:
            old = held.get(id)
            if kind == "-D":
                held.pop(id, None)
            elif old is None or self.engine == "deduplicate" or (self.overlapping and self.engine == "partial-update"):
                held[id] = dt, n, a, b
            elif self.engine == "partial-update":
                held[id] = dt, n, *(was if now is None else now for was, now in zip(old[2:], (a, b), strict=True))
            elif self.engine == "aggregation":
                total = a if old[2] is None else old[2] + (a or 0)
                held[id] = dt, max(n, old[1]), total, max((b, old[3]), key=lambda text: text or "")
        return held


def table_of(rows: list[Row]) -> pa.Table:
    found = pa.Table.from_pylist([dict(zip(NAMES, row, strict=False)) for row in rows], ARROW)
    return found.append_column("rowkind", pa.array([row[5] for row in rows], pa.string()))


def content(table: Table, **version: Any) -> dict[int, tuple[Any, ...]]:
    found = table.scan(**version).to_arrow().to_pylist()
    held = {row["id"]: (row["dt"], row["n"], row["a"], row["b"]) for row in found}
    assert len(held) == len(found), "a key is there twice"
    return held


def insist(ask: Callable[[], Any]) -> Any:
    """Ask until storage answers; a process that never hears of it gives up."""
    for _ in range(12):
        with suppress(StoreError, CommitUnknown):
            return ask()
    raise Killed


@dataclass
class Writer:
    """A stream, and what outlives its processes: its checkpoint, if it `keeps` what it prepared."""

    user: str
    batches: dict[int, list[Row]]
    keeps: bool
    checkpoint: dict[int, bytes] = field(default_factory=dict)
    aborted: list[Prepared] = field(default_factory=list)

    def live(self, store: Any, chance: random.Random) -> None:
        """One process, until everything is committed or it dies."""
        session = Table("t", store, dialect).stream(self.user)
        try:
            if not self.keeps:
                self.checkpoint.clear()
            found = [pickle.loads(self.checkpoint[n]) for n in sorted(self.checkpoint)]
            (self.abort if chance.random() < 0.3 else partial(self.commit, chance))(session, found)
            while True:
                last = insist(session.last_committed)
                todo = [n for n in self.batches if last is None or n > last]
                if not todo:
                    return
                prepared = []
                for n in todo[: chance.randrange(1, 4)]:
                    prepared.append(insist(partial(session.prepare, n, table_of(self.batches[n]), watermark=1000 + n)))
                    self.checkpoint[n] = pickle.dumps(prepared[-1])
                self.commit(chance, session, prepared)
        finally:
            session.settle()

    def commit(self, chance: random.Random, session: WriteSession, prepared: list[Prepared]) -> None:
        for at, commit in enumerate(prepared):
            try:
                if chance.random() < 0.15:
                    session.commit(commit, empty=True)  # Once, and then the job fails.
                else:
                    insist(partial(session.commit, commit, empty=True))
            except (CommitError, NotFound, StoreError):
                self.abort(session, prepared[at:])
                return
            self.checkpoint.pop(commit.identifier, None)

    def abort(self, session: WriteSession, prepared: list[Prepared]) -> None:
        """Give up what is prepared, the last first; what is there all the same stays."""
        for commit in reversed(prepared):
            with suppress(InvalidInput):
                insist(partial(session.abort, commit))
                self.aborted.append(commit)
            self.checkpoint.pop(commit.identifier, None)


@dataclass
class Reader:
    """Follows the table by its changes, as a consumer: what it knows, and of which snapshot that is, is kept together."""

    until: int = 0
    told: list[tuple[Any, ...]] = field(default_factory=list)

    def look(self, table: Table) -> None:
        changes = table.changes(0, consumer="reader")
        if changes.after != self.until:  # It died before it said how far it came.
            changes = table.changes(self.until, consumer=None)
        rows = [tuple(row.values()) for row in changes.to_arrow().to_pylist()]
        self.until, self.told = changes.until, self.told + rows
        table.changes(to_snapshot=self.until, consumer="reader").acknowledge() if self.until else None


def race(seed: int) -> None:
    """Two streams, a batch writer, a compactor, an expirer and a reader; raises `AssertionError` for what is wrong after it."""
    chance = random.Random(seed)
    case, turns, store = Case.draw(chance), Turns(seed), Journal()
    create(Table("t", store, dialect), case.schema)
    writers = [
        Writer(user, {n: case.rows(w, n, chance) for n in range(CHECKPOINTS)}, chance.random() < 0.5)
        for w, user in enumerate(STREAMS)
    ]
    reader = Reader()
    single = {f"batch-{n}": case.rows(2, n, chance) for n in range(3)}

    def process(actor: str, dies: float = 0.7) -> Any:
        return Process(FaultyStore(store, turns, actor, 0.01, 0.001), turns, turns.random.random() < dies)

    def stream(writer: Writer) -> None:
        for life in range(30):
            with suppress(Killed, StoreError):
                writer.live(process(writer.user, 0.8 if life < 20 else 0), chance)
                return

    def batch() -> None:
        for id, rows in single.items():
            for _ in range(30):
                with suppress(CommitError, StoreError, Killed):
                    Table("t", process("batch", 0.3), dialect).append(table_of(rows), id=id)
                    break

    def now_and_then(actor: str, work: Callable[[Table], object], times: int) -> None:
        for _ in range(times):
            with suppress(LakeError, Killed):
                work(Table("t", process(actor, 0.3), dialect))

    def expire(table: Table) -> None:
        newest = {document["commitUser"]: id for id, document in store.published}
        keep_from = min((newest[user] for user in (*STREAMS, *single) if user in newest), default=None)
        if chance.random() < 0.5:
            with suppress(AlreadyExists, NotFound):
                table.create_tag(f"t{len(store.published)}")
        elif chance.random() < 0.2:
            for name in table.inspect.tags()["tag_name"].to_pylist()[:1]:
                table.delete_tag(name)
        table.expire_snapshots(retain_last=1, keep_from=keep_from)

    turns.race(
        {
            **{writer.user: partial(stream, writer) for writer in writers},
            "batch": batch,
            "compactor": lambda: now_and_then("compactor", lambda t: t.compact(full=chance.random() < 0.5), 5),
            "expirer": lambda: now_and_then("expirer", expire, 6),
            "reader": lambda: now_and_then("reader", reader.look, 5),
        }
    )
    judge(case, store, writers, single, reader)


def judge(case: Case, store: Journal, writers: list[Writer], single: dict[str, list[Row]], reader: Reader) -> None:
    table = Table("t", store, Paimon())  # Which has nothing in memory of what writers wrote.
    given = {(w.user, n): rows for w in writers for n, rows in w.batches.items()}
    given |= {(id, metadata.BATCH_IDENTIFIER): rows for id, rows in single.items()}
    came: list[Row] = []  # In the order in which they were committed.
    at: dict[int, dict[int, tuple[Any, ...]]] = {}
    landed: Counter[tuple[str, int]] = Counter()
    watermark: int | None = None
    assert [id for id, _ in store.published] == list(range(1, len(store.published) + 1))
    for id, document in store.published:
        by = document["commitUser"], document["commitIdentifier"]
        if document["commitKind"] == "COMPACT":
            assert (by[1], by in given) == (metadata.BATCH_IDENTIFIER, False), document
        else:
            assert document["commitKind"] == "APPEND", document
            landed[by] += by in given
            came += given.get(by, [])
            if by[0] in STREAMS:
                watermark = max(watermark or 0, 1000 + by[1])
        assert document.get("watermark") == watermark, document
        at[id] = case.held(came)
    assert landed == Counter(given.keys()), "each commit is there once"
    for user in STREAMS:
        numbers = [d["commitIdentifier"] for _, d in store.published if d["commitUser"] == user]
        assert numbers == sorted(numbers)
        assert table.stream(user).last_committed() == numbers[-1]

    hides = case.marked or case.engine == "first-row"

    def hold() -> None:
        for snapshot in table.snapshots():
            if not hides:  # Where rows are seen once they are compacted.
                assert content(table, snapshot_id=snapshot.id) == at[snapshot.id], snapshot
        for tag in table.inspect.tags().to_pylist():
            if not hides:
                assert content(table, tag=tag["tag_name"]) == at[tag["snapshot_id"]], tag

    hold()
    aborted = {file.path for writer in writers for commit in writer.aborted for file in commit.files}
    table.remove_orphan_files(older_than=1)
    hold()
    assert not aborted & set(table.inspect.files()["path"].to_pylist())
    made = table.compact(full=True)
    if made is not None:
        at[made.id] = case.held(came)
    assert content(table) == case.held(came)
    reader.look(table)
    columns = len(NAMES)
    if case.producer in ("none", "input"):
        assert Counter(reader.told) == Counter(row for rows in given.values() for row in rows)
    else:
        followed: dict[int, tuple[Any, ...]] = {}
        for row in reader.told:
            if row[columns] in ("+I", "+U"):
                assert (row[0] in followed) == (row[columns] == "+U"), row
                followed[row[0]] = row[1:columns]
            elif row[columns] == "-D":
                del followed[row[0]]
            else:
                assert followed[row[0]] == row[1:columns], row
        assert followed == case.held(came)
    table.drop_consumer("reader")
    table.expire_snapshots(retain_last=1)
    hold()
    for tag in table.inspect.tags()["tag_name"].to_pylist():
        table.delete_tag(tag)
    assert content(table) == case.held(came)
    live = set(table.inspect.files()["path"].to_pylist())
    table.remove_orphan_files(older_than=1)
    data = {file.path for file in store.list("") if "/bucket-" in file.path and "/changelog-" not in file.path}
    assert data == live
