"""Delete: whole partitions by metadata alone; otherwise delete files, rewritten files, or delete rows by key."""

from __future__ import annotations

from lakeformat.model.operation import OperationKind, Overwrite, Rewrite, RowCounts, RowDelta
from lakeformat.model.predicate import (
    ALWAYS,
    Expression,
    split,
)
from lakeformat.model.work import (
    RowKind,
)
from lakeformat.verbs import rows
from lakeformat.verbs.change import Change


def delete(change: Change, condition: Expression) -> Overwrite | Rewrite | RowDelta | None:
    """The operation that deletes the rows for which `condition` is true; None if there are none."""
    layout = change.view.layout(from_files=True)
    if layout.keyed is not None:
        return rows.by_key(change, layout, condition, OperationKind.DELETE, RowKind.DELETE)
    scope, rest = split(condition, change.view.schema.partitioning.columns)
    if rest == ALWAYS and change.view.partitions.chooses_files(scope):
        data_files = change.view.files(condition)
        return (
            Overwrite(
                request=change.request,
                added=(),
                scope=scope,
                kind=OperationKind.DELETE,
                counts=RowCounts(deleted=rows.row_count_in(change, scope)),
            )
            if len(data_files)
            else None
        )
    data_files = change.view.files(condition)
    beside = change.view.delete_layout(data_files, OperationKind.DELETE)
    if beside is not None and not change.view.pruning.matching_wholly(data_files, condition).all():
        marked = rows.mark(change, data_files, condition, beside)
        counts = RowCounts(deleted=rows.marked_rows(marked, beside))
        return rows.delta(change, OperationKind.DELETE, condition, marked, (), counts) if marked else None
    touched = rows.touch(change, condition)
    if not touched.paths:
        return None
    added = rows.rewrite(change, touched.mixed, delete_where=condition)
    counts = RowCounts(deleted=touched.row_count)
    return rows.replacement(change, OperationKind.DELETE, scope, condition, touched, added, counts)
