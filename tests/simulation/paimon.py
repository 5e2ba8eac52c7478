"""Paimon tables in simulation: the real dialect, over data files that are only names, beside a model of plain dicts."""

import itertools
import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any

from lakeformat.dialects.paimon import metadata
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.dialects.paimon.metadata import RESTORED_FROM
from lakeformat.errors import NoSuchFile, NotFound
from lakeformat.maintenance import expire, sweep
from lakeformat.model import evolution
from lakeformat.model.operation import Append, Create, Evolve, Operation, Overwrite, Request, Restore, Rewrite
from lakeformat.model.partition import identity
from lakeformat.model.predicate import ALWAYS, in_tuples
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.snapshot import Expiry, Retention, Stamp
from lakeformat.model.work import WrittenFile
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.store import Store
from lakeformat.verbs import tag
from tests.row_conditions import value_of as holds
from tests.simulation.racing import Report, Told, commit_module

dialect = Paimon()
judge = Paimon()  # Reads what is stored, where a writer's own cache holds what it wrote.

Live = dict[str, tuple[Any, ...]]  # Path -> (partition, rows)

PARTITIONS = ("a", "b", "c")
SCHEMA = Schema(
    fields=(Field(0, "id", scalar(Kind.BIGINT)), Field(1, "dt", scalar(Kind.STRING))),
    partitioning=identity("dt"),
    properties={"manifest.merge-min-count": "3", "commit.max-retries": "5"},
)
FULL_MERGES = {"manifest.full-compaction-threshold-size": "1 b", "manifest.target-file-size": "1 kb"}

RETENTION = Retention(3, 3)
NEWEST_ONLY = Retention(1, 1)  # Frees the name that a slow writer is about to create.

_roots = itertools.count()


class Journal(MemoryFiles):
    """Remembers every snapshot that ever was the newest, in order, and the strays: those that took a name that was free again,
    below the newest."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        super().__init__(f"memory://paimon-{next(_roots)}", now_ms)
        self.published: list[tuple[int, dict[str, Any]]] = []
        self.strays: list[tuple[int, dict[str, Any]]] = []
        self.doomed: set[int] = set()  # Snapshots that an expiry has begun to remove, snapshot files last.

    def create(self, path: str, data: bytes) -> bool:
        created = super().create(path, data)
        if created and path.startswith("snapshot/snapshot-"):
            document = metadata.parse_snapshot(data, path)
            newest = self.published[-1][0] if self.published else 0
            (self.published if document["id"] > newest else self.strays).append((document["id"], document))
        return created


class PaimonWorld:
    """Append, overwrite, compaction and deletes by file, with `asides`: "expire", "tag", "restore", "evolve"; with "free names"
    expiry keeps the newest snapshot alone, and writers are stopped for long between two calls."""

    fault_ratio = 0.05
    read_fault_ratio = 0.004  # A commit looks often.

    def __init__(self, *asides: str) -> None:
        self.dialect = dialect
        self.asides = asides
        frees = "free names" in asides
        self.retention = NEWEST_ONLY if frees else RETENTION
        self.pause_ratio, self.asks_again = (0.02, False) if frees else (0.0, True)
        if frees:  # Most calls succeed, for the others have to get far while one is stopped.
            self.fault_ratio, self.read_fault_ratio = 0.005, 0.0005

    def found(self, seed: int) -> Journal:
        store = Journal()
        properties = SCHEMA.properties if seed % 2 else {**SCHEMA.properties, **FULL_MERGES}
        create = Create(request=Request(id="create"), schema=Schema(SCHEMA.fields, SCHEMA.partitioning, (), properties))
        commit_module.commit(store, dialect.head(store), dialect, create, stamp=lambda attempt: Stamp(0, "create", 0))
        return store

    def operation(self, store: Store, random: random.Random, id: str) -> Operation | None:
        base = dialect.load(store, dialect.head(store).version())
        known = random.choice([0, base.version])
        request = Request(id=id, absent_until=known)
        kinds = ["append"] * 5 + ["overwrite"] * 3 + ["compact"] * 4 + ["delete"] * 2 + ["truncate", "drop"]
        kinds += ["restore"] * 3 * ("restore" in self.asides) + ["evolve"] * 2 * ("evolve" in self.asides)
        kind = random.choice(kinds)
        match kind:
            case "append":
                partitions = random.sample(PARTITIONS, random.choice([1, 1, 2, 3]))
                return Append(request=request, added=written(store, id, partitions))
            case "overwrite":
                partitions = random.sample(PARTITIONS, random.choice([1, 1, 2]))
                scope = in_tuples(["dt"], [(p,) for p in partitions])
                pinned_to = base.version if base.version and random.random() < 0.3 else None
                some = partitions[: random.choice([1, 2])]
                return Overwrite(request=request, added=written(store, id, some), scope=scope, pinned_to=pinned_to)
            case "truncate":
                return Overwrite(request=request, added=(), scope=ALWAYS, kind="truncate")
            case "drop":
                return Overwrite(request=request, added=(), scope=in_tuples(["dt"], [(random.choice(PARTITIONS),)]))
            case "restore":
                ids = metadata.snapshot_ids(store)
                return Restore(request=request, snapshot_id=random.choice(ids)) if ids else None
            case "evolve":
                changes = (evolution.AddColumn(f"c_{id.replace('-', '_')}", "int"),)
                return Evolve(request=request, changes=changes)
        partition = random.choice(PARTITIONS)
        scope = in_tuples(["dt"], [(partition,)])
        files = base.files(scope)
        if len(files) < 2:
            return None
        rows = dict(zip(files.paths.to_pylist(), files.entries["_ROW_COUNT"].to_pylist(), strict=True))
        chosen = sorted(random.sample(sorted(rows), random.choice([1, 2])))
        if kind == "delete":
            return Rewrite(request=request, removed=tuple(chosen), added=(), scope=scope, kind="delete")
        added = written(store, id, [partition], sum(rows[path] for path in chosen))
        return Rewrite(request=request, removed=tuple(chosen), added=added, scope=scope)

    def around(self, store: Store, operation: Operation) -> AbstractContextManager[None]:
        if not isinstance(operation, Restore):
            return nullcontext()
        return tag.kept(store, dialect.load_snapshot(store, operation.snapshot_id))

    def aside(self, store: Store, random: random.Random) -> None:
        base = dialect.load(store, dialect.head(store).version())
        if base.version == 0:
            return
        if "restore" in self.asides:
            expire.remove(store, base.expiring.of_restore(base.version))
        if "tag" in self.asides and random.random() < 0.3:
            name = f"t{base.version}"
            path, data = base.tag(name, 0, None)
            with suppress(NotFound):
                tag.create(store, base, name, path, data)
        if "expire" in self.asides and random.random() < (0.8 if self.asks_again is False else 0.5):
            first = base.expiring.snapshots(self.retention, 0)

            def then(after: Any) -> Expiry:
                assert first.then is not None
                found = first.then(after)
                store.inner.doomed.update(found.snapshots)  # type: ignore[attr-defined]
                return found

            expire.release(store, dialect, base, replace(first, then=then if first.then else None))

    def violations(self, store: MemoryFiles, reports: Sequence[Report]) -> list[str]:
        assert isinstance(store, Journal)
        wrong, states = replay(store.published, reports)
        wrong += unlike(store, states)
        landed = [(id, document["commitUser"]) for id, document in store.published]
        ids = [id for _, id in landed]
        strays = [(id, document["commitUser"]) for id, document in store.strays]
        # A restore takes what it undid out of the history, so that whoever asks again is not found there: a known limit.
        undone = undone_by_restores(store.published)
        standing = [id for snapshot_id, id in landed if snapshot_id not in undone]
        wrong += [f"operation applied twice: {id}" for id in sorted(set(standing)) if standing.count(id) > 1]
        for report in reports:
            id = report.operation.request.id
            if isinstance(report.operation, Evolve):
                made = metadata.find(store, report.operation, metadata.NOTHING) is not None
                if report.told is not Told.UNKNOWN and made != (report.told is Told.DONE):
                    wrong.append(f"schema change {id}: {report.told}, made: {made}")
                continue
            # A stray that changed nothing is as good as the snapshot whose number it has: both leave the same rows.
            idle = any(user == id and is_idle(states, stray, report.operation) for stray, user in strays)
            if report.told is Told.DONE and id not in ids and not idle:
                wrong.append(f"operation lost: {id}")
            if report.told is Told.REFUSED and id in standing:
                wrong.append(f"operation refused and applied: {id}")
            if report.snapshot and (report.snapshot.id, id) not in landed and not idle:
                wrong.append(f"operation {id} was said to be snapshot {report.snapshot.id}")
        if wrong:
            return wrong
        if "expire" in self.asides:
            expire.expire(store, judge, self.retention, 0)
            if store.doomed & {i for i in metadata.snapshot_ids(store) if not is_stray(store, i)}:
                wrong.append(f"an expiry that was cut short is never finished: {store.doomed}")
        # What nothing names goes, all else stays.
        sweep.sweep(store, judge, 1, dry_run=False)
        wrong += [f"after the sweep: {mistake}" for mistake in unlike(store, states)]
        live = {path for state in states.values() for path in state}
        data = {listed.path for listed in store.list("") if "/bucket-" in listed.path}
        if not self.asides and data != live:
            wrong.append(f"the sweep left {sorted(data - live)}")
        return wrong


def written(store: Store, id: str, partitions: Sequence[str], row_count: int = 0) -> tuple[WrittenFile, ...]:
    """One data file in each partition, with as many rows, or as many as the id's length."""
    files = []
    for partition in partitions:
        path = f"dt={partition}/bucket-0/data-{uuid.uuid5(uuid.NAMESPACE_OID, id + partition)}-0.parquet"
        store.write(path, id.encode())
        files.append(WrittenFile(path, (partition,), row_count or len(id) + ord(partition), len(id)))
    return tuple(files)


def replay(
    published: Sequence[tuple[int, dict[str, Any]]], reports: Sequence[Report]
) -> tuple[list[str], dict[int, Live]]:
    """What each snapshot should hold, by the operations as they were asked and the order in which they landed."""
    operations = {r.operation.request.id: r.operation for r in reports}
    wrong: list[str] = []
    states: dict[int, Live] = {0: {}}
    for id, document in published:
        if id - 1 not in states or id in states:
            wrong.append(f"snapshot {id} was published after {max(states)}")
            continue
        operation = operations.get(document["commitUser"])
        if operation is None:
            wrong.append(f"snapshot {id} is nobody's: {document['commitUser']}")
            continue
        try:
            states[id] = applied(states, id - 1, operation)
        except KeyError as error:
            return [*wrong, f"snapshot {id}: {operation.request.id} removes {error}, which is not there"], states
        rows = sum(count for _, count in states[id].values())
        if document["totalRecordCount"] != rows:
            wrong.append(f"snapshot {id} says {document['totalRecordCount']} rows, its history {rows}")
    return wrong, states


def undone_by_restores(published: Sequence[tuple[int, dict[str, Any]]]) -> set[int]:
    undone: set[int] = set()
    for id, document in published:
        origin = (document.get("properties") or {}).get(RESTORED_FROM)
        undone |= set(range(int(origin) + 1, id)) if origin else set()
    return undone


def applied(states: dict[int, Live], base: int, operation: Operation) -> Live:
    live = dict(states[base])
    match operation:
        case Append(added=added):
            pass
        case Overwrite(added=added, scope=scope):
            live = {p: v for p, v in live.items() if holds(scope, {"dt": v[0]}) is not True}
        case Rewrite(added=added, removed=removed):
            for path in removed:
                del live[path]
        case Restore(snapshot_id=snapshot_id):
            return dict(states[snapshot_id])
        case _:
            raise AssertionError(operation)
    return live | {f.path: (f.partition[0], f.row_count) for f in added}


def is_idle(states: dict[int, Live], version: int, operation: Operation) -> bool:
    try:
        return applied(states, version - 1, operation) == states[version]
    except KeyError:
        return False


def is_stray(store: Journal, id: int) -> bool:
    return (id, metadata.read_snapshot(store, id)) in store.strays


def unlike(store: Journal, states: dict[int, Live]) -> list[str]:
    """How the snapshots and tags that are there differ from the model, and which files they name and nobody has."""
    wrong = []
    ids = [id for id in metadata.snapshot_ids(store) if not is_stray(store, id)]
    bases = [judge.load(store, id) for id in ids if id not in store.doomed]
    bases += [judge.at_tag(store, name) for name in metadata.tags(store)]
    for base in bases:
        try:
            found = base.files()
        except NoSuchFile as error:
            wrong.append(f"dangling metadata: snapshot {base.version}: {error}")
            continue
        live = dict(
            zip(
                found.paths.to_pylist(),
                zip((p[3] for p in found.paths.to_pylist()), found.entries["_ROW_COUNT"].to_pylist(), strict=True),
                strict=True,
            )
        )
        if base.version not in states or live != states[base.version]:
            wrong.append(f"snapshot {base.version} holds {live}, its history says {states.get(base.version)}")
        if gone := [path for path in live if not store.exists(path)]:
            wrong.append(f"dangling data: snapshot {base.version} names {gone}")
    return wrong
