"""Overwrite: rows replace others, by partition, by condition or by key."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from lakeformat.commit import discard
from lakeformat.dialects.dialect import AnyView
from lakeformat.engines import once
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.log import log
from lakeformat.model.operation import OperationKind, Overwrite, Rewrite, RowCounts, RowDelta
from lakeformat.model.predicate import (
    ALWAYS,
    Expression,
    bind,
    split,
)
from lakeformat.model.work import (
    RowKind,
    WriteTask,
    WrittenFile,
    paths_of,
)
from lakeformat.verbs import rows
from lakeformat.verbs.change import Change
from lakeformat.verbs.placing import after, remove_elsewhere, with_lookup


def overwrite(
    change: Change, data: Any, scope: Expression | None, pinned_to: int | None
) -> Overwrite | Rewrite | RowDelta | None:
    """The operation that replaces the rows for which `scope` is true by those of `data`. Without a scope it replaces
    the partitions that `data` has rows for; None if there are none. Raises `OutsideScope`."""
    view = change.view
    is_by_row = scope is not None and split(scope, view.schema.partitioning.columns)[1] != ALWAYS
    if scope is not None and is_by_row and view.layout().keyed is not None:
        return replace_by_key(change, scope, data, pinned_to)
    task = layout(view)
    if scope is None:
        added = tuple(change.engine.write(change.files, data, task))
    else:
        added = tuple(change.engine.write(change.files, once.required(data), replace(task, required=scope)))
    return None if scope is None and not added else replaced(change, scope, added, pinned_to)


def replaced(
    change: Change, scope: Expression | None, added: tuple[WrittenFile, ...], pinned_to: int | None
) -> Overwrite | Rewrite:
    """The operation that replaces the rows in `scope`, or without one in the partitions of `added`, by `added`. The
    files are deleted if it fails."""
    try:
        if scope is None:
            partitions = {f.partition for f in added}
            operation = replace_partitions(change, partitions, added, pinned_to)
            scope = change.view.partitions.scope_of(partitions)
        else:
            operation = replace_rows(change, scope, added, pinned_to)
        deletes = remove_elsewhere(change, added, scope) if change.view.schema.primary_key else ()
    except BaseException:
        discard(change.store, paths_of(added))  # No commit was tried, so no snapshot can have them.
        raise
    return replace(operation, added=(*operation.added, *deletes))


def layout(view: AnyView) -> WriteTask:
    """How rows become files that will be the only ones in their partitions, with one row per key."""
    task = view.layout(from_files=True)
    if task.keyed is None:
        return replace(task, unique=view.schema.primary_key)
    if task.keyed.changelog_prefix is not None:
        log.warning(
            "%s: an overwrite writes no changelog; changes() computes it from the rows before and after",
            view.reader.root,
        )
    index, places = task.keyed.index, task.keyed.places
    keyed = replace(
        task.keyed,
        changelog_prefix=None,
        index=None if index is None else replace(index, files={}),
        places=None if places is None else replace(places, rows={}),
    )
    return replace(task, keyed=keyed)


def replace_rows(
    change: Change,
    condition: Expression,
    added: tuple[WrittenFile, ...],
    pinned_to: int | None,
) -> Overwrite | Rewrite:
    """The operation that replaces the rows for which `condition` is true by `added`."""
    scope, rest = split(condition, change.view.schema.partitioning.columns)
    if rest == ALWAYS and change.view.partitions.chooses_files(scope):
        return Overwrite(
            request=change.request,
            added=added,
            scope=scope,
            pinned_to=pinned_to,
            counts=_counts(change, added, lambda: rows.row_count_in(change, scope)),
        )
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
        counts=_counts(change, added, lambda: touched.row_count),
    )


def replace_by_key(
    change: Change,
    condition: Expression,
    data: Any,
    pinned_to: int | None,
) -> RowDelta:
    """The operation that deletes the rows for which `condition` is true and then inserts the rows of `data`, which must
    satisfy it; for tables that merge rows by key."""
    task = change.view.layout(from_files=True)
    assert task.keyed is not None, task
    if task.keyed.merge.sequence:
        raise UnsupportedFeature(
            f"{change.store.root}: overwrite(where=...) by more than partition columns on a table with a "
            "sequence.field, which could take an old row for a newer one: not supported; delete the rows, then upsert"
        )
    deletion = rows.by_key(change, task, condition, OperationKind.OVERWRITE, RowKind.DELETE)
    deletes = deletion.added if deletion else ()
    try:
        write = after(with_lookup(change.view, task, but=condition), deletes)
        added = tuple(change.engine.write(change.files, once.required(data), replace(write, required=condition)))
    except BaseException:
        discard(change.store, paths_of(deletes))  # No commit was tried, so no snapshot can have them.
        raise
    return RowDelta(
        request=change.request,
        added=(*deletes, *added),
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
    """The operation that replaces these partitions by `added`. A file of another partition spec, which metadata cannot
    place inside or outside of them, loses its rows in these partitions."""
    scope = change.view.partitions.scope_of(partitions)
    if change.view.partitions.chooses_files(scope):
        return Overwrite(
            request=change.request,
            added=added,
            scope=scope,
            pinned_to=pinned_to,
            is_dynamic=True,
            counts=_counts(change, added, lambda: rows.row_count_in(change, scope)),
        )
    condition = bind(change.view.partitions.rows_in(partitions), change.view.schema.fields)
    return replace_rows(change, condition, added, pinned_to)


def _counts(change: Change, added: tuple[WrittenFile, ...], deleted: Callable[[], int | None]) -> RowCounts | None:
    """None in a table that merges rows by key, where rows that are replaced or written may share a key."""
    if change.view.keyed is not None:
        return None
    return RowCounts(deleted=deleted(), inserted=rows.row_count(added))
