"""Changes by row. On tables without keys as the table asks for: whole files written again (copy-on-write), or files of
deletes beside them (merge-on-read); whole files go without being read where bounds prove it. On tables whose rows are merged
by key, rows that say what becomes of those there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import sql_text
from lakeformat.commit import discard
from lakeformat.dialects.dialect import Dialect
from lakeformat.engines.engine import Engine
from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.model.operation import Overwrite, Request, Rewrite, RowDelta
from lakeformat.model.predicate import (
    ALWAYS,
    NEVER,
    Column,
    Expression,
    Literal,
    and_,
    bind,
    eq_null_safe,
    gt,
    is_not_null,
    is_null,
    lt,
    or_,
    split,
)
from lakeformat.model.schema import Field, find_field, spelled
from lakeformat.model.snapshot import TableState
from lakeformat.model.work import (
    LAST_UPDATED,
    DeleteTask,
    MarkTask,
    MergeSpec,
    RewriteTask,
    RowKind,
    WriteTask,
    WrittenFile,
)
from lakeformat.placing import after, looking
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
    if rest == ALWAYS and dialect.chooses_files(store, base, scope):
        found = dialect.files(store, base, condition)
        return Overwrite(request=request, added=(), scope=scope, kind="delete") if len(found) else None
    found = dialect.files(store, base, condition)
    beside = dialect.delete_layout(store, base, found, "delete")
    if beside is not None and not dialect.matching_wholly(store, base, found, condition).all():
        marked = mark(store, dialect, engine, base, found, condition, beside)
        return _delta(dialect, base, request, "delete", condition, marked, ()) if marked else None
    touched = touch(store, dialect, engine, base, condition)
    if not touched.paths:
        return None
    added = rewrite(store, dialect, engine, base, touched.mixed, delete_where=condition)
    return _replacement(dialect, base, request, "delete", scope, condition, touched, added)


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
        _require_newest(store, dialect, engine, base, layout.keyed.merge, assignments, condition)
        made = tuple(assignments.items())
        return _by_key(store, dialect, engine, base, request, layout, condition, "update", RowKind.UPDATE_AFTER, made)
    found = dialect.files(store, base, condition)
    beside = dialect.delete_layout(store, base, found, "update")
    if beside is not None:
        marked = mark(store, dialect, engine, base, found, condition, beside)
        hit = pa.array([path for each in marked for path in each.refers_to], pa.string())
        changing = found.filter(pc.is_in(found.paths, value_set=hit))
        try:
            changed = rewrite(
                store, dialect, engine, base, changing, None, tuple(assignments.items()), ALWAYS, condition
            )
        except BaseException:
            discard(store, (each.path for each in marked))  # No commit has been tried: nobody can know of them.
            raise
        return _delta(dialect, base, request, "update", condition, marked, changed) if marked else None
    scope, _ = split(condition, base.schema.partitioning.columns)
    touched = touch(store, dialect, engine, base, condition, whole_files=False)
    if not touched.paths:
        return None
    added = rewrite(
        store, dialect, engine, base, touched.mixed, assignments=tuple(assignments.items()), update_where=condition
    )
    return _replacement(dialect, base, request, "update", scope, condition, touched, added)


def assigned(values: Mapping[str, Any], fields: tuple[Field, ...]) -> dict[str, Expression]:
    """What an update says, by the names of the table's columns. Raises `InvalidInput` and `NotFound`."""
    found: dict[str, Expression] = {}
    for given, value in values.items():
        name = find_field(fields, spelled(fields, given)).name
        if name in found:
            raise InvalidInput(f"update: column {name!r} is assigned twice")
        found[name] = sql_text.value(value)
        try:
            bind(found[name], fields)
        except NotFound as error:
            hint = f"; text is quoted: {{{given!r}: {chr(34)}'...'{chr(34)}}}" if isinstance(value, str) else ""
            raise NotFound(f"update of {name!r}: {error}{hint}") from error
    return found


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
    if rest == ALWAYS and dialect.chooses_files(store, base, scope):
        return Overwrite(request=request, added=added, scope=scope, pinned_to=pinned_to)
    touched = touch(store, dialect, engine, base, condition)
    kept = rewrite(store, dialect, engine, base, touched.mixed, delete_where=condition)
    return Rewrite(
        request=request,
        removed=touched.paths,
        added=(*added, *kept),
        scope=scope,
        pinned_to=pinned_to,
        kind="overwrite",
        read_at=base.snapshot.id if base.snapshot else 0,
    )


def replace_by_key(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    base: TableState,
    request: Request,
    condition: Expression,
    data: Any,
    pinned_to: int | None,
) -> RowDelta:
    """The operation by which the rows for which `condition` is true are deleted and those of `data`, for all of which it is
    true, come after them: on tables that merge rows by key."""
    layout = dialect.layout(base, store)
    assert layout.keyed is not None, layout
    if layout.keyed.merge.sequence:
        raise UnsupportedFeature(
            f"{store.root}: overwrite(where=...) by more than partition columns on a table with a sequence.field, which could "
            f"take an old row for a newer one: not supported; delete the rows, then upsert"
        )
    deletion = _by_key(store, dialect, engine, base, request, layout, condition, "overwrite", RowKind.DELETE)
    gone = deletion.added if deletion else ()
    try:
        write = after(looking(store, dialect, base, layout, but=condition), gone)
        added = tuple(engine.write(store, data, replace(write, required=condition)))
    except BaseException:
        discard(store, (each.path for each in gone))  # No commit has been tried: nobody can know of them.
        raise
    return RowDelta(
        request=request,
        added=(*gone, *added),
        read_at=base.version,
        condition=condition,
        kind="replace",
        pinned_to=pinned_to,
    )


def replace_partitions(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    base: TableState,
    request: Request,
    partitions: Collection[tuple[Any, ...]],
    added: tuple[WrittenFile, ...],
    pinned_to: int | None,
) -> Overwrite | Rewrite:
    """The operation by which these partitions give way to `added`. Files of which metadata does not tell whether they lie
    there, since the table was parted otherwise then, lose the rows that do."""
    scope = dialect.scope_of(base.schema, partitions)
    if dialect.chooses_files(store, base, scope):
        return Overwrite(request=request, added=added, scope=scope, pinned_to=pinned_to, is_dynamic=True)
    condition = bind(dialect.rows_in(base.schema, partitions), base.schema.fields)
    return replace_rows(store, dialect, engine, base, request, condition, added, pinned_to)


def mark(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    base: TableState,
    files: Any,
    condition: Expression,
    layout: DeleteTask,
) -> tuple[WrittenFile, ...]:
    """Files of deletes for the files' rows for which `condition` is true."""
    targets = {each.path: each for each in layout.targets}
    tasks = [
        MarkTask(task, replace(layout, targets=tuple(targets[path] for path in task.paths)))
        for task in dialect.tasks(store, base, files, base.schema.fields, condition)
    ]
    return tuple(file for written in engine.mark(store, tasks) for file in written)


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
    where: Expression = ALWAYS,
) -> tuple[WrittenFile, ...]:
    """The files' rows for which `where` is true, changed, in new files."""
    fields, layout = dialect.rewriting(base, store)
    if assignments and LAST_UPDATED in fields:
        assignments = (*assignments, (LAST_UPDATED.name, Literal(None)))  # Null is: by the snapshot that this becomes.
    tasks = [
        RewriteTask((task,), layout, delete_where, assignments, update_where)
        for task in dialect.tasks(store, base, files, fields, where)
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
    merge = layout.keyed.merge
    if merge.engine != "deduplicate" and not (row_kind == RowKind.DELETE and merge.remove_on_delete):
        may = row_kind == RowKind.DELETE and merge.engine in {"partial-update", "aggregation"}
        raise UnsupportedFeature(
            f"{store.root}: {kind} on a table with merge engine {merge.engine!r}, whose rows would not become what is asked "
            f"for: not supported" + (f"; set '{merge.engine}.remove-record-on-delete' to 'true'" if may else "")
        )
    if row_kind == RowKind.DELETE and merge.ignore_delete:
        raise UnsupportedFeature(
            f"{store.root}: {kind} of rows on a table with 'ignore-delete', where none can go: not supported; drop or overwrite whole "
            f"partitions"
        )
    there = dialect.complete(base)
    places, read = layout.keyed.places, dialect.scan(store, there, predicate=condition)
    if places is not None:  # Rows go where they are, unless they are assigned another partition.
        stays = not {name for name, _ in assignments} & {*places.partition}
        places, read = replace(places, is_settled=True), dialect.located(store, there, predicate=condition)
        places = replace(places, rows={}) if stays else places
    write = replace(layout, keyed=replace(layout.keyed, kind=row_kind, kind_column=None, places=places))
    tasks = [RewriteTask((task,), write, None, assignments) for task in read]
    added = tuple(file for written in engine.rewrite(store, tasks) for file in written)
    if not added:
        return None
    return RowDelta(request=request, added=added, read_at=base.version, condition=condition, kind=kind)


def _require_newest(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    base: TableState,
    merge: MergeSpec,
    assignments: Mapping[str, Expression],
    condition: Expression,
) -> None:
    """Raise `InvalidInput` where an updated row would count as older than the one that it is to replace."""
    sequence = [(assignments[name], Column((name,))) for name in merge.sequence if name in assignments]
    if not sequence or merge.engine != "deduplicate":
        return
    is_older: Expression = NEVER
    for new, old in reversed(sequence):  # Those that stay as they are decide nothing.
        behind = lt(new, old) if merge.is_ascending else gt(new, old)
        nulled = and_(is_null(new), is_not_null(old))
        is_older = or_(nulled, behind, and_(eq_null_safe(new, old), is_older))
    older = and_(condition, bind(is_older, base.schema.fields))
    count = sum(engine.count(store, dialect.scan(store, dialect.complete(base), base.schema.names[:1], older)))
    if count:
        raise InvalidInput(
            f"{store.root}: update of {', '.join(n for n in merge.sequence if n in assignments)}: {count} rows would come before "
            f"what they are to replace by the table's sequence.field, and change nothing. Leave these rows out, or overwrite "
            f"their partitions"
        )


def _delta(
    dialect: Dialect,
    base: TableState,
    request: Request,
    kind: str,
    condition: Expression,
    marked: tuple[WrittenFile, ...],
    rows: tuple[WrittenFile, ...],
) -> RowDelta:
    return RowDelta(
        request=request,
        added=(*rows, *marked),
        referenced=tuple(path for each in marked for path in each.refers_to),
        read_at=base.snapshot.id if base.snapshot else 0,
        condition=condition,
        kind=kind,
        isolation=dialect.isolation(base, kind),
    )


def _replacement(
    dialect: Dialect,
    base: TableState,
    request: Request,
    kind: str,
    scope: Expression,
    condition: Expression,
    touched: Touched,
    added: tuple[WrittenFile, ...],
) -> Rewrite:
    return Rewrite(
        request=request,
        removed=touched.paths,
        added=added,
        scope=scope,
        kind=kind,
        read_at=base.snapshot.id if base.snapshot else 0,
        condition=condition,
        isolation=dialect.isolation(base, kind),
    )
