"""Iceberg tables in simulation: the real dialect, over data files that are only names, with either kind of head."""

import itertools
import json
import random
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from lakeformat.dialects.iceberg import metadata
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.errors import NoSuchFile
from lakeformat.maintenance import sweep
from lakeformat.model import evolution
from lakeformat.model.operation import Append, Create, Evolve, Operation, Overwrite, Request, Rewrite
from lakeformat.model.partition import identity
from lakeformat.model.predicate import ALWAYS, in_tuples
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.snapshot import Stamp
from lakeformat.model.work import WrittenFile
from lakeformat.storage.catalogued import Catalogued
from lakeformat.storage.head import Head, SwapHead
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.store import Store
from tests.simulation.paimon import PARTITIONS, Live, applied
from tests.simulation.racing import Report, Told, commit_module

dialect = Iceberg()
judge = Iceberg()  # Reads what is stored, where a writer's own cache holds what it wrote.

SCHEMA = Schema(
    fields=(Field(0, "id", scalar(Kind.BIGINT)), Field(1, "dt", scalar(Kind.STRING))),
    partitioning=identity("dt"),
    properties={"commit.manifest.min-count-to-merge": "3"},
)
_roots = itertools.count()


class Journal(MemoryFiles):
    """Remembers every root that ever was the newest, in order, and the operations of strays, which took a name that was free again
    below the newest; and is a catalog of one line."""

    def __init__(self) -> None:
        super().__init__(f"memory://iceberg-{next(_roots)}", lambda: 0)
        self.line: str | None = None
        self.published: list[dict[str, Any]] = []
        self.strays: list[str] = []
        self.newest = 0

    def create(self, path: str, data: bytes) -> bool:
        created = super().create(path, data)
        if created and path.startswith("metadata/v"):
            version, document = int(path.removeprefix("metadata/v").split(".")[0]), json.loads(data)
            if version > self.newest:
                self.newest = version
                self.published.append(document)
            else:
                self.strays.append(document[metadata.DOCUMENT_OPERATION])
        return created

    def pointer(self) -> str | None:
        return self.line

    def swap(self, old: str | None, new: str) -> bool:
        with self._lock:
            if self.line != old:
                return False
            self.line = new
        self.published.append(json.loads(self.read(new)))
        return True


@dataclass(frozen=True)
class Line:
    """A line of the catalog, through the store of whoever asks."""

    store: Any

    def head(self, store: Store) -> Head:
        return SwapHead(store, self)

    def sharers(self, reader: Any) -> list[str]:
        return []

    def location(self) -> str | None:
        return self.store.pointer()

    def swap(self, old: str | None, new: str) -> bool:
        return self.store.swap(old, new)


def catalogued(store: Any) -> Store:
    return Catalogued(store, Line(store))


class IcebergWorld:
    """Append, overwrite, compaction, deletes by file and new columns."""

    fault_ratio = 0.05
    read_fault_ratio = 0.004

    def __init__(self, in_catalog: bool, frees_names: bool = False) -> None:
        """With `frees_names` only the newest document but one is kept, and writers are stopped for long between two calls."""
        self.dialect = dialect
        self.seen = catalogued if in_catalog else lambda store: store
        self.properties = SCHEMA.properties
        self.pause_ratio, self.asks_again = (0.02, False) if frees_names else (0.0, True)
        if frees_names:  # Most calls succeed, for the others have to get far while one is stopped.
            self.fault_ratio, self.read_fault_ratio = 0.005, 0.0005
            self.properties |= {
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "1",
            }

    def found(self, seed: int) -> Journal:
        store = Journal()
        create = Create(request=Request(id="create"), schema=replace(SCHEMA, properties=self.properties))
        seen = self.seen(store)
        commit_module.commit(seen, dialect.head(seen), dialect, create, stamp=lambda attempt: Stamp(0, "create", 0))
        return store

    def operation(self, store: Store, random: random.Random, id: str) -> Operation | None:
        base = dialect.load(store, dialect.head(store).version())
        request = Request(id=id, absent_until=random.choice([0, base.version]))
        kind = random.choice(["append"] * 5 + ["overwrite"] * 3 + ["compact"] * 3 + ["delete", "truncate", "evolve"])
        match kind:
            case "append":
                return Append(
                    request=request, added=written(store, id, random.sample(PARTITIONS, random.choice([1, 2])))
                )
            case "overwrite":
                partitions = random.sample(PARTITIONS, random.choice([1, 2]))
                scope = in_tuples(["dt"], [(p,) for p in partitions])
                return Overwrite(request=request, added=written(store, id, partitions[:1]), scope=scope)
            case "truncate":
                return Overwrite(request=request, added=(), scope=ALWAYS, kind="truncate")
            case "evolve":
                return Evolve(request=request, changes=(evolution.AddColumn(f"c_{id.replace('-', '_')}", "int"),))
        partition = random.choice(PARTITIONS)
        scope = in_tuples(["dt"], [(partition,)])
        files = base.files(scope)
        if len(files) < 2:
            return None
        rows = dict(zip(files.paths.to_pylist(), files.entries["record_count"].to_pylist(), strict=True))
        chosen = sorted(random.sample(sorted(rows), random.choice([1, 2])))
        if kind == "delete":
            return Rewrite(
                request=request, removed=tuple(chosen), added=(), scope=scope, kind="delete", isolation="snapshot"
            )
        added = written(store, id, [partition], sum(rows[path] for path in chosen))
        return Rewrite(request=request, removed=tuple(chosen), added=added, scope=scope)

    def around(self, store: Store, operation: Operation) -> AbstractContextManager[None]:
        return nullcontext()

    def aside(self, store: Store, random: random.Random) -> None:
        pass

    def violations(self, store: MemoryFiles, reports: Sequence[Report]) -> list[str]:
        assert isinstance(store, Journal)
        seen = self.seen(store)
        wrong, states, order = replay(store, reports)
        final = judge.load(seen, judge.head(seen).version())
        if wrong:
            return wrong
        ids = [
            document["summary"][metadata.OPERATION_ID]
            for document in metadata.ancestry(final.state, metadata.current_id(final.state))
        ][::-1]
        if ids != order:
            wrong.append(f"history is {ids}, published were {order}")
        wrong += [f"operation applied twice: {id}" for id in sorted(set(order)) if order.count(id) > 1]
        wrong += unlike(seen, final, states)
        asked = [document.get(metadata.DOCUMENT_OPERATION) for document in store.published]
        wrong += [f"published twice: {id}" for id in sorted(set(asked)) if asked.count(id) > 1]
        for report in reports:
            id = report.operation.request.id
            if report.told is Told.DONE and id not in asked:
                wrong.append(f"operation lost: {id}")
            if report.told is Told.REFUSED and id in asked:
                wrong.append(f"operation refused and applied: {id}")
        if wrong:
            return wrong
        sweep.sweep(seen, judge, 1, dry_run=False)
        wrong += [f"after the sweep: {mistake}" for mistake in unlike(seen, final, states)]
        live = {path for state in states.values() for path in state}
        data = {store.location(listed.path) for listed in store.list("data")}
        if data != live:
            wrong.append(f"the sweep left {sorted(data - live)}")
        if len(store.list("metadata")) > 2 * len(store.published) + 30 and self.seen is catalogued:
            wrong.append("the sweep leaves documents that lost their race")
        return wrong


def written(store: Store, id: str, partitions: Sequence[str], row_count: int = 0) -> tuple[WrittenFile, ...]:
    """One data file in each partition, with as many rows, or as many as the id's length."""
    files = []
    for partition in partitions:
        path = f"data/dt={partition}/00000-0-{uuid.uuid5(uuid.NAMESPACE_OID, id + partition)}-00001.parquet"
        store.write(path, id.encode())
        files.append(WrittenFile(path, (partition,), row_count or len(id) + ord(partition), len(id)))
    return tuple(files)


def replay(store: Journal, reports: Sequence[Report]) -> tuple[list[str], dict[int, Live], list[str]]:
    """(what is wrong, what each snapshot should hold, the operations in the order in which their snapshots came)."""
    operations = {r.operation.request.id: r.operation for r in reports}
    states: dict[int, Live] = {0: {}}
    order: list[str] = []
    place = 0
    for document in store.published:
        current = document["current-snapshot-id"]
        if current == (list(states)[-1] or -1):
            continue
        snapshot = next(s for s in document["snapshots"] if s["snapshot-id"] == current)
        operation = operations.get(snapshot["summary"][metadata.OPERATION_ID])
        if operation is None or snapshot.get("parent-snapshot-id", 0) != place:
            return [f"snapshot {current} of {operation} came after {place}"], states, order
        try:
            live = applied({place: states[place]}, place, absolute(store, operation))
        except KeyError as error:
            return [f"snapshot {current} removes {error}, which is not there"], states, order
        states[current], place = live, current
        order.append(operation.request.id)
    return [], states, order


def absolute(store: Journal, operation: Any) -> Any:
    """The operation with the paths of its new files as manifests have them."""
    added = tuple(replace(f, path=store.location(f.path)) for f in operation.added)
    return replace(operation, added=added)


def unlike(store: Store, final: Any, states: dict[int, Live]) -> list[str]:
    """How the snapshots that are there differ from the model, and which files they name and nobody has."""
    wrong = []
    for snapshot_id in metadata.snapshots(final.state):
        try:
            found = judge.load_snapshot(store, snapshot_id).files()
        except NoSuchFile as error:
            wrong.append(f"dangling metadata: snapshot {snapshot_id}: {error}")
            continue
        partitions = found.entries["p1000"].to_pylist()
        rows = found.entries["record_count"].to_pylist()
        live = dict(zip(found.paths.to_pylist(), zip(partitions, rows, strict=True), strict=True))
        if live != states.get(snapshot_id):
            wrong.append(f"snapshot {snapshot_id} holds {live}, its history says {states.get(snapshot_id)}")
        if gone := [path for path in live if not store.exists(path)]:
            wrong.append(f"dangling data: snapshot {snapshot_id} names {gone}")
    return wrong
