"""Compaction: plan -> rewrite -> commit. It loses to every writer that changes the files it read, and is then planned
again."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakeformat import arguments, clock
from lakeformat.commit import commit, newest
from lakeformat.dialects.dialect import AnyView, Format
from lakeformat.errors import CommitLost, Conflict, InvalidInput, LakeError, StoreError
from lakeformat.expression import order
from lakeformat.maintenance.expire import is_missing_file
from lakeformat.maintenance.progress import track
from lakeformat.model.log import log
from lakeformat.model.operation import Append, OperationKind, Request, Rewrite, RewriteManifests, RowDelta
from lakeformat.model.partition import Sort
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.snapshot import Snapshot
from lakeformat.model.work import RewriteTask, Upkeep, WrittenFile
from lakeformat.verbs.change import Change

_AT_ONCE = 64  # Tasks passed to the engine at once.
_STARTS = 3
_FAILED = "%s: compaction after snapshot %d failed; the next write tries again"
_HIDDEN = (
    "%s: the rows of snapshot %d are written and no reader sees them yet, for their compaction did not work out (%s); "
    "the next write to these partitions makes up for it, and so does compact() at once"
)


def compact(
    change: Change,
    format: Format,
    full: bool,
    scope: Expression,
    starts: int = _STARTS,
    sort_by: tuple[Sort, ...] = (),
    min_files: int | None = None,
    buckets: Sequence[int] | None = None,
) -> Snapshot | None:
    """Rewrite small files into larger ones, or with `sort_by` all files into sorted ones, in one snapshot; None if
    nothing is worth rewriting.

    Raises `Conflict` if others were faster `starts` times.
    """

    def operation(now: Change) -> Rewrite | None:
        tasks = worth_it(now.view, full, scope, sort_by, min_files, buckets)
        return rewritten(now, scope, tasks) if tasks else None

    change, placed = _placed(change, format, scope, starts)
    return _until_done(change, format, operation, "compaction", starts) or placed


def compact_in_parts(
    change: Change,
    format: Format,
    full: bool,
    scope: Expression,
    sort_by: tuple[Sort, ...],
    most: int,
    min_files: int | None = None,
    buckets: Sequence[int] | None = None,
) -> Snapshot | None:
    """As `compact`, in at most `most` snapshots; returns the last. A part that fails is left out and does not affect
    the others. If all parts fail, raises the error of the last one."""
    change, snapshot = _placed(change, format, scope)
    store, view = change.store, change.view
    tasks = worth_it(view, full, scope, sort_by, min_files, buckets)
    size = max(-(-len(tasks) // most), 1)
    failed: LakeError | None = None
    for start in range(0, len(tasks), size):
        asked = replace(change, request=replace(change.request, id=str(uuid.uuid4())))
        try:
            operation = rewritten(asked, scope, tasks[start : start + size])
            snapshot = commit(store, format.head(store), format, operation, view.attempts(), loaded=view)
        except LakeError as error:
            failed = error
            log.warning("%s: a part of the compaction failed, others go on: %s", store.root, error)
    if snapshot is None and failed is not None:
        raise failed
    return snapshot


def worth_it(
    view: AnyView,
    full: bool,
    scope: Expression,
    sort_by: tuple[Sort, ...],
    min_files: int | None = None,
    buckets: Sequence[int] | None = None,
) -> list[RewriteTask]:
    """The rewrite tasks: what of the table is worth rewriting."""
    if sort_by:
        return view.compaction.sorting(scope, sort_by)
    return [*_waiting(view, scope), *view.compaction.tasks(full, scope, clock.now_ms(), min_files, buckets)]


def preview(
    view: AnyView, full: bool, scope: Expression, sort_by: tuple[Sort, ...], buckets: Sequence[int] | None = None
) -> pa.Table:
    """What of the table is worth rewriting: one row per unit of work, with `paths`, `row_count` and `size_bytes` of its
    files."""
    reads = [task.read for task in worth_it(view, full, scope, sort_by, buckets=buckets) if task.read]
    columns = {
        "paths": pa.array([[path for read in unit for path in read.paths] for unit in reads], pa.list_(pa.string())),
        "row_count": pa.array([sum(read.row_count for read in unit) for unit in reads], pa.int64()),
        "size_bytes": pa.array([sum(read.size_bytes for read in unit) for unit in reads], pa.int64()),
    }
    return pa.table(columns)


def _waiting(view: AnyView, scope: Expression) -> list[RewriteTask]:
    return [] if view.keyed is None else view.keyed.placement(scope)


def _placed(change: Change, format: Format, scope: Expression, starts: int = _STARTS) -> tuple[Change, Snapshot | None]:
    """Assign buckets to the rows that wait for one (`bucket=-2`), in a snapshot of its own: (the change to the table
    after it, the snapshot)."""

    def operation(now: Change) -> Rewrite | None:
        tasks = _waiting(now.view, scope)
        return rewritten(now, scope, tasks) if tasks else None

    asked = replace(change, request=replace(change.request, id=f"{change.request.id}/place"))
    snapshot = _until_done(asked, format, operation, "giving rows their buckets", starts)
    if snapshot is None:
        return change, None
    return replace(change, view=newest(change.store, format).on(change.request.branch)), snapshot


def order_of_rows(name: str, view: AnyView, sort_by: Sequence[str] | bool | None) -> tuple[Sort, ...]:
    """The sort order that `sort_by` of `compact` asks for: columns, or with True the table's own. Raises
    `InvalidInput`."""
    schema = view.schema
    if sort_by is None or sort_by is False:
        return ()
    if sort_by is True:
        view.layout()  # Raises for an order of the table that it cannot sort by.
        if not schema.sort_order:
            raise InvalidInput(f"sort_by=True: {name} has no sort order; name columns, e.g. ['id']")
        return schema.sort_order.fields
    sorts = order.parse_any(sort_by, schema.fields, "sort_by")
    if not sorts:
        raise InvalidInput(f"sort_by={sort_by!r}: give a list of columns, e.g. ['id']")
    order.check(sorts, schema.fields, name)
    return sorts


def bucket_numbers(buckets: Iterable[int] | None, sort_by: Any) -> tuple[int, ...] | None:
    """The buckets that `buckets` of `compact` asks for. Raises `InvalidInput`."""
    if buckets is None:
        return None
    if sort_by:
        raise InvalidInput("compact(buckets=..., sort_by=...): a table with fixed buckets has an order of its own")
    numbers = {number for bucket in buckets if (number := arguments.whole("buckets", bucket, 0)) is not None}
    if not numbers:
        raise InvalidInput(f"compact(buckets={buckets!r}): give at least one bucket")
    return tuple(sorted(numbers))


def manifest_rewrite(
    name: str, view: AnyView, request: Request, sort_by: Sequence[str] | bool, full: bool, max_bytes: int | None
) -> RewriteManifests:
    """What `rewrite_manifests` is to do. Raises `InvalidInput`."""
    columns, most = view.schema.partitioning.columns, arguments.whole("max_bytes", max_bytes, 1)
    order = columns if sort_by is True else () if sort_by is False else arguments.columns(sort_by)
    if sort_by is not False and (not order or not set(order) <= set(columns)):
        raise InvalidInput(
            f"rewrite_manifests(sort_by={sort_by!r}): {name} has the partition columns {', '.join(columns) or '(none)'}"
        )
    if not order and (full or most is not None):
        raise InvalidInput("rewrite_manifests(full=..., max_bytes=...): only with sort_by")
    return RewriteManifests(request=request, sort_by=order, rewrites_all=full, most_bytes=most)


def rewritten(change: Change, scope: Expression, tasks: Sequence[RewriteTask]) -> Rewrite:
    """The rewritten files of the tasks, as the operation that replaces the old ones."""
    written: list[WrittenFile] = []
    removed: list[str] = []
    upgraded = [file for task in tasks for file in task.upgraded]
    work = [task for task in tasks if task.read]
    for at in track(range(0, len(work), _AT_ONCE), f"{change.store.root}: compacting", -(-len(work) // _AT_ONCE)):
        some = work[at : at + _AT_ONCE]
        for task, files in zip(some, change.engine.rewrite(change.files, some), strict=True):
            written += files
            paths = [path for read in task.read for path in read.paths]
            if task.upgrades and not files:
                assert task.write.keyed is not None, task
                upgraded += [(path, task.write.keyed.level) for path in paths]
            else:
                removed += paths
    return Rewrite(
        request=_as_of(change),
        removed=tuple(removed),
        added=tuple(written),
        scope=scope,
        upgraded=tuple(upgraded),
        read_at=change.view.snapshot_id,
    )


def after(change: Change, format: Format, upkeep: Upkeep, written: Snapshot) -> Snapshot | None:
    """The auto-compaction of the write `written`, in a snapshot of its own; None if nothing is worth rewriting.

    The write has landed, so nothing is raised: a compaction that failed or lost against others is left to the next
    write. If readers cannot see the rows without it, it is retried when storage fails.
    """
    if not written.partitions:
        return None
    store, request = change.store, _compaction_request(change.request, written)
    starts = _STARTS if upkeep.waits else 1  # Readers cannot see the rows without it.
    for left in reversed(range(_STARTS if upkeep.hides else 1)):
        try:
            now = replace(change, view=newest(store, format).on(request.branch), request=request)
            return compact(now, format, upkeep.full, _scope(change.view, upkeep, written), starts)
        except Exception as error:
            if isinstance(error, StoreError) and left:
                continue
            if upkeep.hides:
                log.warning(_HIDDEN, store.root, written.id, error, exc_info=True)
            elif isinstance(error, Conflict | CommitLost):
                log.info("%s: compaction after snapshot %d: %s", store.root, written.id, error)
            else:
                log.warning(_FAILED, store.root, written.id, exc_info=True)
            break
    return None


def again(change: Change, format: Format, upkeep: Upkeep | None, written: Snapshot) -> None:
    """The auto-compaction of a repeated write, if it is missing: the process that wrote may have died before it."""
    asked = _compaction_request(change.request, written)
    if upkeep is None or not upkeep.waits or change.view.find(Append(request=asked, added=())) is not None:
        return
    after(change, format, upkeep, written)


def is_due(change: Change, format: Format, upkeep: Upkeep, written: Snapshot) -> bool:
    """Whether `after` would find anything to do. It raises nothing either."""
    if not written.partitions:
        return False
    try:
        view = newest(change.store, format).on(change.request.branch)
        return bool(view.compaction.tasks(upkeep.full, _scope(change.view, upkeep, written), clock.now_ms()))
    except Exception:
        log.warning(_FAILED, change.store.root, written.id, exc_info=True)
        return False


def upkeep(view: AnyView, number: int | None = None) -> Upkeep | None:
    """The auto-compaction of a write, or of a stream's commit `number`; None if another job compacts."""
    return view.compaction.upkeep(number)


def _compaction_request(request: Request, written: Snapshot) -> Request:
    return Request(id=f"{request.id}/compact", absent_until=written.id, branch=request.branch)


def _scope(view: AnyView, upkeep: Upkeep, written: Snapshot) -> Expression:
    return (
        ALWAYS
        if upkeep.everywhere
        else view.partitions.scope_of({partition.values for partition in written.partitions or ()})
    )


def compact_deletes(
    change: Change, format: Format, full: bool, scope: Expression, min_files: int | None = None
) -> Snapshot | None:
    """Rewrite position delete files into fewer, without dangling deletes, in one snapshot; None if nothing is worth
    rewriting.

    Raises `Conflict` if others were faster three times.
    """

    def operation(now: Change) -> RowDelta | None:
        delete_files = now.view.delete_files
        tasks = [] if delete_files is None else delete_files.compaction(full, scope, min_files)
        if not tasks:
            return None
        return RowDelta(
            request=_as_of(now),
            added=tuple(file for files in now.engine.rewrite_deletes(now.files, tasks) for file in files),
            removed=tuple({gone for task in tasks for target in task.targets for gone in target.replaced}),
            referenced=tuple(target.path for task in tasks for target in task.targets),
            read_at=now.view.snapshot_id,
            kind=OperationKind.COMPACT,
            isolation=None,
        )

    return _until_done(change, format, operation, "compact of deletes")


def convert_deletes(change: Change, format: Format, scope: Expression) -> Snapshot | None:
    """Convert equality deletes into position deletes, in one snapshot; None if there are none. Raises `Conflict` if
    others were faster three times."""

    def operation(now: Change) -> RowDelta | None:
        delete_files = now.view.delete_files
        tasks, equality_deletes, files = ([], (), ()) if delete_files is None else delete_files.conversion(scope)
        if not equality_deletes:
            return None
        return RowDelta(
            request=_as_of(now),
            added=tuple(file for written in now.engine.mark(now.files, tasks) for file in written),
            removed=equality_deletes,
            referenced=files,
            read_at=now.view.snapshot_id,
            kind=OperationKind.CONVERT,
            isolation=None,
        )

    return _until_done(change, format, operation, "convert of deletes")


def _until_done(
    change: Change,
    format: Format,
    operation: Callable[[Change], Rewrite | RowDelta | None],
    label: str,
    starts: int = _STARTS,
) -> Snapshot | None:
    """Commit the operation; if others were faster, plan it again from the current table."""
    store = change.store
    for start in range(starts):
        if start:
            change = replace(change, view=newest(store, format).on(change.request.branch))
        try:
            planned = operation(change)
            if planned is None:
                return None
            return commit(store, format.head(store), format, planned, change.view.attempts(), loaded=change.view)
        except LakeError as lost:  # Others replaced files, and an expiry may have deleted them by now.
            is_gone = is_missing_file(lost) and format.head(store).version() != change.view.version
            if start == starts - 1 or not (isinstance(lost, Conflict) or is_gone):
                raise
            log.info("%s: %s starts over: %s", store.root, label, lost)
    raise AssertionError("unreachable")


def _as_of(change: Change) -> Request:
    schema = change.view.schema
    return replace(change.request, schema_id=schema.id, partitioning_id=schema.partitioning.id)
