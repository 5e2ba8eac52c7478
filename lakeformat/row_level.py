"""Changes by row. On tables without keys copy-on-write: whole files go without being read where bounds prove it. On tables
whose rows are merged by key, rows that say what becomes of those there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakeformat.dialects.dialect import Dialect
from lakeformat.engines.engine import Engine
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.operation import Overwrite, Request, Rewrite, RowDelta
from lakeformat.model.predicate import ALWAYS, Expression, split
from lakeformat.model.snapshot import TableState
from lakeformat.model.work import RewriteTask, RowKind, WriteTask, WrittenFile
from lakeformat.storage.store import Store


@dataclass(frozen=True, slots=True)
class Touched:
    """The files that a condition touches: those that go whole, and those with other rows as well."""

    whole: Any
    mixed: Any

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.whole.paths.to_pylist(), *self.mixed.paths.to_pylist())


def delete(
    store: Store, dialect: Dialect, engine: Engine, base: TableState, request: Request, condition: Expression
) -> Overwrite | Rewrite | RowDelta | None:
    """The operation that removes the rows for which `condition` is true; None when there is none."""
    layout = dialect.layout(base, store)
    if layout.keyed is not None:
        return _by_key(store, dialect, engine, base, request, layout, condition, "delete", RowKind.DELETE)
    scope, rest = split(condition, base.schema.partitioning.columns)
    if rest == ALWAYS:
        found = dialect.files(store, base, condition)
        return Overwrite(request=request, added=(), scope=scope, kind="delete") if len(found) else None
    touched = touch(store, dialect, engine, base, condition)
    if not touched.paths:
        return None
    added = rewrite(store, dialect, engine, base, touched.mixed, delete_where=condition)
    return Rewrite(request=request, removed=touched.paths, added=added, scope=scope, kind="delete")


def update(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    base: TableState,
    request: Request,
    assignments: Mapping[str, Expression],
    condition: Expression,
) -> Rewrite | RowDelta | None:
    """The operation that assigns to the rows for which `condition` is true; None when there is none."""
    layout = dialect.layout(base, store)
    if layout.keyed is not None:
        if keys := [name for name in assignments if name in base.schema.primary_key]:
            raise InvalidInput(
                f"{store.root}: update of {keys[0]!r}, which is in the primary key; delete the rows and upsert them instead"
            )
        made = tuple(assignments.items())
        return _by_key(store, dialect, engine, base, request, layout, condition, "update", RowKind.UPDATE_AFTER, made)
    scope, _ = split(condition, base.schema.partitioning.columns)
    touched = touch(store, dialect, engine, base, condition, whole_files=False)
    if not touched.paths:
        return None
    added = rewrite(
        store, dialect, engine, base, touched.mixed, assignments=tuple(assignments.items()), update_where=condition
    )
    return Rewrite(request=request, removed=touched.paths, added=added, scope=scope, kind="update")


def replace_rows(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    base: TableState,
    request: Request,
    condition: Expression,
    added: tuple[WrittenFile, ...],
    pinned_to: int | None,
) -> Overwrite | Rewrite:
    """The operation by which the rows for which `condition` is true give way to `added`."""
    scope, rest = split(condition, base.schema.partitioning.columns)
    if rest == ALWAYS:
        return Overwrite(request=request, added=added, scope=scope, pinned_to=pinned_to)
    if dialect.layout(base).keyed is not None:
        raise UnsupportedFeature(
            f"{store.root}: overwrite(where=...) by more than partition columns on a table with a primary key: not "
            f"supported; delete the rows, then upsert"
        )
    touched = touch(store, dialect, engine, base, condition)
    kept = rewrite(store, dialect, engine, base, touched.mixed, delete_where=condition)
    return Rewrite(
        request=request,
        removed=touched.paths,
        added=(*added, *kept),
        scope=scope,
        pinned_to=pinned_to,
        kind="overwrite",
    )


def touch(
    store: Store, dialect: Dialect, engine: Engine, base: TableState, condition: Expression, whole_files: bool = True
) -> Touched:
    """The files with a row for which `condition` is true. Files that only might have one are looked into."""
    found = dialect.files(store, base, condition)
    whole = dialect.matching_wholly(store, base, found, condition) if whole_files else np.zeros(len(found), bool)
    rest = found.filter(pa.array(~whole))
    tasks = dialect.tasks(store, base, rest, base.schema.fields, condition, alone=True)
    hits = np.array([count > 0 for count in engine.count(store, tasks)], bool)
    return Touched(found.filter(pa.array(whole)), rest.filter(pa.array(hits, pa.bool_())))


def rewrite(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    base: TableState,
    files: Any,
    delete_where: Expression | None = None,
    assignments: tuple[tuple[str, Expression], ...] = (),
    update_where: Expression = ALWAYS,
) -> tuple[WrittenFile, ...]:
    """The files' rows, changed, in new files."""
    layout = dialect.layout(base, store)
    tasks = [
        RewriteTask((task,), layout, delete_where, assignments, update_where)
        for task in dialect.tasks(store, base, files, base.schema.fields)
    ]
    return tuple(file for written in engine.rewrite(store, tasks) for file in written)


def _by_key(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    base: TableState,
    request: Request,
    layout: WriteTask,
    condition: Expression,
    kind: str,
    row_kind: RowKind,
    assignments: tuple[tuple[str, Expression], ...] = (),
) -> RowDelta | None:
    """The rows for which `condition` is true, changed, as rows of `row_kind`."""
    assert layout.keyed is not None, layout
    write = replace(layout, keyed=replace(layout.keyed, kind=row_kind))
    tasks = [RewriteTask((task,), write, None, assignments) for task in dialect.scan(store, base, predicate=condition)]
    added = tuple(file for written in engine.rewrite(store, tasks) for file in written)
    if not added:
        return None
    return RowDelta(request=request, added=added, read_at=base.version, condition=condition, kind=kind)
