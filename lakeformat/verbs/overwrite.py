"""Overwrite: rows give way to others, by partition, by condition or by key."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from lakeformat.commit import discard
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.operation import OperationKind, Overwrite, Rewrite, RowDelta
from lakeformat.model.predicate import (
    ALWAYS,
    Expression,
    bind,
    split,
)
from lakeformat.model.work import (
    RowKind,
    WrittenFile,
)
from lakeformat.verbs import rows
from lakeformat.verbs.change import Change
from lakeformat.verbs.placing import after, looking


def replace_rows(
    change: Change,
    condition: Expression,
    added: tuple[WrittenFile, ...],
    pinned_to: int | None,
) -> Overwrite | Rewrite:
    """The operation by which the rows for which `condition` is true give way to `added`."""
    scope, rest = split(condition, change.view.schema.partitioning.columns)
    if rest == ALWAYS and change.view.chooses_files(scope):
        return Overwrite(request=change.request, added=added, scope=scope, pinned_to=pinned_to)
    touched = rows.touch(change, condition)
    kept = rows.rewrite(change, touched.mixed, delete_where=condition)
    return Rewrite(
        request=change.request,
        removed=touched.paths,
        added=(*added, *kept),
        scope=scope,
        pinned_to=pinned_to,
        kind=OperationKind.OVERWRITE,
        read_at=change.view.snapshot_id,
    )


def replace_by_key(
    change: Change,
    condition: Expression,
    data: Any,
    pinned_to: int | None,
) -> RowDelta:
    """The operation by which the rows for which `condition` is true are deleted and those of `data`, for all of which it is
    true, come after them: on tables that merge rows by key."""
    layout = change.view.layout(from_files=True)
    assert layout.keyed is not None, layout
    if layout.keyed.merge.sequence:
        raise UnsupportedFeature(
            f"{change.store.root}: overwrite(where=...) by more than partition columns on a table with a sequence.field, which could "
            f"take an old row for a newer one: not supported; delete the rows, then upsert"
        )
    deletion = rows.by_key(change, layout, condition, OperationKind.OVERWRITE, RowKind.DELETE)
    gone = deletion.added if deletion else ()
    try:
        write = after(looking(change.view, layout, but=condition), gone)
        added = tuple(change.engine.write(change.store, data, replace(write, required=condition)))
    except BaseException:
        discard(change.store, (each.path for each in gone))  # No commit has been tried: nobody can know of them.
        raise
    return RowDelta(
        request=change.request,
        added=(*gone, *added),
        read_at=change.view.snapshot_id,
        condition=condition,
        kind=OperationKind.REPLACE,
        pinned_to=pinned_to,
    )


def replace_partitions(
    change: Change,
    partitions: Collection[tuple[Any, ...]],
    added: tuple[WrittenFile, ...],
    pinned_to: int | None,
) -> Overwrite | Rewrite:
    """The operation by which these partitions give way to `added`. A file of another partition spec, which metadata
    cannot place inside or outside of them, loses its rows that lie in them."""
    scope = change.view.scope_of(partitions)
    if change.view.chooses_files(scope):
        return Overwrite(request=change.request, added=added, scope=scope, pinned_to=pinned_to, is_dynamic=True)
    condition = bind(change.view.rows_in(partitions), change.view.schema.fields)
    return replace_rows(change, condition, added, pinned_to)
