"""Rows of Iceberg tables in simulation: deletes by position and by key, and compactions, beside a set of rows.

Files are only names; the world knows which rows each holds, or tells to be gone. A row is a number of its own.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from lakeformat.dialects.iceberg import metadata, scan
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.iceberg.view import IcebergView
from lakeformat.model.operation import Append, Operation, Overwrite, Request, Rewrite, RowDelta
from lakeformat.model.predicate import in_tuples
from lakeformat.model.work import ColumnStats, Content
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.store import Store
from tests.simulation.iceberg import IcebergWorld, Journal, written
from tests.simulation.paimon import PARTITIONS
from tests.simulation.racing import Report, Told

dialect = Iceberg()
judge = Iceberg()  # Reads what is stored, where a writer's own cache holds what it wrote.


class RowWorld(IcebergWorld):
    """Appends, overwritten partitions, deletes and updates by position (merged with earlier ones of the same file), deletes
    by key, and compactions that apply what they read."""

    def __init__(self) -> None:
        super().__init__(in_catalog=False)
        self.rows: dict[str, frozenset[int]] = {}  # Data file -> its rows.
        self.gone: dict[str, frozenset[int]] = {}  # File of deletes -> rows that it tells of.
        self.means: dict[
            str, tuple[frozenset[int], frozenset[int]]
        ] = {}  # Operation -> (rows that come, rows that go).

    def found(self, seed: int) -> Journal:
        self.rows, self.gone, self.means, self.next = {}, {}, {}, 0
        return super().found(seed)

    def operation(self, store: Store, random: random.Random, id: str) -> Operation | None:
        base = dialect.load(store, dialect.head(store).version())
        request = Request(id=id, absent_until=random.choice([0, base.version]))
        kind = random.choice(
            ["append"] * 3 + ["overwrite"] + ["delete"] * 4 + ["update"] + ["keys"] * 2 + ["compact"] * 4
        )
        partition = random.choice(PARTITIONS)
        scope = in_tuples(["dt"], [(partition,)])
        if kind in ("append", "overwrite"):
            (file,) = written(store, id, [partition])
            new = frozenset(range(self.next, self.next + 3))
            self.next += 3
            self.rows[store.location(file.path)] = new
            self.means[id] = (new, frozenset())
            if kind == "append":
                return Append(request=request, added=(file,))
            return Overwrite(request=request, added=(file,), scope=scope)
        read_at = base.snapshot.id if base.snapshot else 0
        found = base.files(scope)
        visible = self.visible(store, base, scope)
        if kind == "keys":
            chosen = (
                frozenset(random.sample(sorted(set().union(*visible.values())), 1)) if any(visible.values()) else None
            )
            if chosen is None:
                return None
            (file,) = written(store, f"{id}-keys", [partition])
            self.gone[store.location(file.path)] = chosen
            self.means[id] = (frozenset(), chosen)
            file = replace(file, content=Content.EQUALITY_DELETES, spec_id=0, compared=(1,))
            return RowDelta(request=request, added=(file,), kind="append", isolation=None)
        if not any(visible.values()):
            return None
        paths = sorted(path for path, rows in visible.items() if rows)
        if kind == "compact":
            chosen_paths = random.sample(paths, min(len(paths), random.choice([1, 2])))
            left = frozenset().union(*(visible[p] for p in chosen_paths))
            (file,) = written(store, id, [partition], 1)
            self.rows[store.location(file.path)] = left
            self.means[id] = (frozenset(), frozenset())
            return Rewrite(request=request, removed=tuple(chosen_paths), added=(file,), scope=scope, read_at=read_at)
        path = random.choice(paths)
        marked = frozenset(random.sample(sorted(visible[path]), 1))
        place = found.paths.to_pylist().index(path)
        earlier = [
            d for d in scan.delete_files(store, base.state, found)[place] if d.content is Content.POSITION_DELETES
        ]
        (file,) = written(store, f"{id}-gone", [partition])
        self.gone[store.location(file.path)] = marked.union(*(self.gone[d.path] for d in earlier))
        bound = ColumnStats(path, path, 0, 1)
        file = replace(
            file, content=Content.POSITION_DELETES, spec_id=0, refers_to=(path,), replaces=tuple(earlier),
            stats={scan.PATH_ID: bound},
        )  # fmt: skip
        added, new = (file,), frozenset()
        if kind == "update":
            (moved,) = written(store, f"{id}-moved", [partition], 1)
            new = frozenset([self.next])
            self.next += 1
            self.rows[store.location(moved.path)] = new
            added = (moved, file)
        self.means[id] = (new, marked)
        isolation = random.choice(["serializable", "snapshot"])
        return RowDelta(
            request=request,
            added=added,
            referenced=(path,),
            read_at=read_at,
            condition=scope,
            kind=kind,
            isolation=isolation,
        )

    def visible(self, store: Store, base: IcebergView, *scope: object) -> dict[str, frozenset[int]]:
        """Data file -> the rows of it that readers see."""
        found = base.files(*scope)
        deletes = scan.delete_files(store, base.state, found)
        return {
            path: self.rows[path] - frozenset().union(*(self.gone[d.path] for d in gone))
            for path, gone in zip(found.paths.to_pylist(), deletes, strict=True)
        }

    def violations(self, store: MemoryFiles, reports: Sequence[Report]) -> list[str]:
        assert isinstance(store, Journal)
        final = judge.load(store, judge.head(store).version())
        wrong: list[str] = []
        rows: dict[int, str] = {}  # Row -> its partition.
        landed = []
        operations = {r.operation.request.id: r.operation for r in reports}
        for snapshot in metadata.ancestry(final.state, metadata.current_id(final.state))[::-1]:
            id = snapshot["summary"][metadata.OPERATION_ID]
            landed.append(id)
            operation, (new, gone) = operations[id], self.means[id]
            partition = operation.added[0].partition[0]
            if isinstance(operation, Overwrite):
                rows = {row: place for row, place in rows.items() if place != partition}
            rows = {row: place for row, place in rows.items() if row not in gone} | dict.fromkeys(new, partition)
            at = judge.load_snapshot(store, snapshot["snapshot-id"])
            seen = sorted(row for held in self.visible(store, at).values() for row in held)
            if seen != sorted(rows):
                wrong.append(f"after {id} ({operation.__class__.__name__}) there are {seen}, not {sorted(rows)}")
        for report in reports:
            id = report.operation.request.id
            if report.told is Told.DONE and id not in landed:
                wrong.append(f"operation lost: {id}")
            if report.told is Told.REFUSED and id in landed:
                wrong.append(f"operation refused and applied: {id}")
        wrong += [f"operation applied twice: {id}" for id in sorted(set(landed)) if landed.count(id) > 1]
        return wrong
