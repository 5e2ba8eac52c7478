"""Update: assignments to the rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.commit import discard
from lakeformat.dialects.dialect import ColumnFiles
from lakeformat.errors import InvalidInput, NotFound
from lakeformat.expression import sql_text
from lakeformat.model.operation import OperationKind, Rewrite, RowCounts, RowDelta
from lakeformat.model.predicate import (
    ALWAYS,
    NEVER,
    Column,
    Expression,
    and_,
    bind,
    columns_of,
    eq_null_safe,
    gt,
    is_not_null,
    is_null,
    lt,
    or_,
    path_assigned,
    split,
    whole_columns,
)
from lakeformat.model.schema import Field
from lakeformat.model.work import (
    MergeEngine,
    MergeSpec,
    RewriteTask,
    RowKind,
)
from lakeformat.verbs import rows
from lakeformat.verbs.change import Change


def update(
    change: Change,
    assignments: Mapping[str, Expression],
    condition: Expression,
) -> Rewrite | RowDelta | None:
    """The operation that updates the rows for which `condition` is true; None if there are none."""
    layout = change.view.layout(from_files=True)
    if layout.keyed is not None:
        if keys := [name for name in assignments if name in change.view.schema.primary_key]:
            raise InvalidInput(
                f"{change.store.root}: update of {keys[0]!r}, which is in the primary key; "
                "delete the rows and upsert them instead"
            )
        _require_newest(change, layout.keyed.merge, assignments, condition)
        made = tuple(assignments.items())
        return rows.by_key(change, layout, condition, OperationKind.UPDATE, RowKind.UPDATE_AFTER, made)
    if change.view.column_files is not None:
        return _by_column(change, change.view.column_files, assignments, condition)
    data_files = change.view.files(condition)
    beside = change.view.delete_layout(data_files, OperationKind.UPDATE)
    if beside is not None:
        marked = rows.mark(change, data_files, condition, beside)
        hit = pa.array([path for file in marked for path in file.refers_to], pa.string())
        changing = data_files.filter(pc.is_in(data_files.paths, value_set=hit))
        try:
            changed = rows.rewrite(change, changing, None, tuple(assignments.items()), ALWAYS, condition)
        except BaseException:
            discard(change.store, (file.path for file in marked))  # No commit was tried, so no snapshot can have them.
            raise
        counts = RowCounts(updated=rows.row_count(changed))
        return rows.delta(change, OperationKind.UPDATE, condition, marked, changed, counts) if marked else None
    scope, _ = split(condition, change.view.schema.partitioning.columns)
    touched = rows.touch(change, condition, whole_files=False)
    if not touched.paths:
        return None
    added = rows.rewrite(change, touched.mixed, assignments=tuple(assignments.items()), update_where=condition)
    counts = RowCounts(updated=touched.row_count)
    return rows.replacement(change, OperationKind.UPDATE, scope, condition, touched, added, counts)


def _by_column(
    change: Change, column_files: ColumnFiles, assignments: Mapping[str, Expression], condition: Expression
) -> RowDelta | None:
    """Files with new values of the assigned columns, beside the rows' own files."""
    hit = rows.touch(change, condition, whole_files=False)
    touched, counts = hit.mixed, RowCounts(updated=hit.row_count)
    layouts = column_files.layouts(touched, tuple(assignments))
    fields = change.view.schema.fields
    reads = frozenset().union(columns_of(condition), *(columns_of(value) for value in assignments.values()))
    needed = tuple(f for f in fields if f.name in assignments or f.name in reads)
    read = rows.without_blobs(needed, layouts, reads)
    tasks = [
        # With deleted rows too: each file of a row range has all of its rows.
        RewriteTask((replace(task, fields=needed, deletes=()),), layout, None, tuple(assignments.items()), condition)
        for task, layout in zip(change.view.tasks(touched, read, alone=True), layouts, strict=True)
    ]
    added = tuple(file for files in change.engine.rewrite(change.files, tasks) for file in files)
    if not added:
        return None
    return replace(rows.delta(change, OperationKind.UPDATE, condition, (), added, counts), reads=reads)


def assigned(values: Mapping[str, Any], fields: tuple[Field, ...]) -> dict[str, Expression]:
    """The assignments, by the names of the table's columns. Raises `InvalidInput` and `NotFound`."""
    paths: list[tuple[tuple[str, ...], Expression]] = []
    for name, value in values.items():
        path, expression = path_assigned(name, fields), sql_text.value(value)
        paths.append((path, expression))
        try:
            bind(expression, fields)
        except NotFound as error:
            hint = f"; text is quoted: {{{name!r}: {chr(34)}'...'{chr(34)}}}" if isinstance(value, str) else ""
            raise NotFound(f"update of {'.'.join(path)!r}: {error}{hint}") from error
    try:
        return whole_columns(paths, fields)
    except InvalidInput as error:
        raise InvalidInput(f"update: {error}") from error


def _require_newest(
    change: Change,
    merge: MergeSpec,
    assignments: Mapping[str, Expression],
    condition: Expression,
) -> None:
    """Raise `InvalidInput` if an updated row would count as older than the row it replaces."""
    sequence = [(assignments[name], Column((name,))) for name in merge.sequence if name in assignments]
    if not sequence or merge.engine is not MergeEngine.DEDUPLICATE:
        return
    is_older: Expression = NEVER
    for new, old in reversed(sequence):  # Unchanged columns decide nothing.
        behind = lt(new, old) if merge.is_ascending else gt(new, old)
        nulled = and_(is_null(new), is_not_null(old))
        is_older = or_(nulled, behind, and_(eq_null_safe(new, old), is_older))
    older = and_(condition, bind(is_older, change.view.schema.fields))
    count = sum(change.engine.count(change.files, change.keyed.scan(change.view.schema.names[:1], older)))
    if count:
        raise InvalidInput(
            f"{change.store.root}: update of {', '.join(n for n in merge.sequence if n in assignments)}: by the "
            f"table's sequence.field, {count} rows are older than those that they replace, and would change nothing. "
            "Leave these rows out, or overwrite their partitions"
        )
