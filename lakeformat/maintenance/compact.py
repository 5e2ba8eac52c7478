"""Compaction: plan -> rewrite -> commit. It loses to whoever changes the files it read, and then starts over."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from lakeformat.commit import commit, newest
from lakeformat.dialects.dialect import Dialect
from lakeformat.engines.engine import Engine
from lakeformat.errors import CommitLost, Conflict, LakeError, StoreError
from lakeformat.maintenance.progress import track
from lakeformat.model.operation import Append, Request, Rewrite, RowDelta
from lakeformat.model.order import Sort
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Schema
from lakeformat.model.snapshot import Snapshot, TableState
from lakeformat.model.work import RewriteTask, Upkeep, WrittenFile
from lakeformat.storage.head import Head
from lakeformat.storage.store import Store

log = logging.getLogger("lakeformat")

_AT_ONCE = 64  # Bins handed to the engine in one go.
_STARTS = 3
_FAILED = "%s: compaction after snapshot %d failed; the next write tries again"
_HIDDEN = (
    "%s: the rows of snapshot %d are written and no reader sees them yet, for their compaction did not work out (%s); the next write to "
    "these partitions makes up for it, and so does compact() at once"
)


def compact(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    request: Request,
    full: bool,
    scope: Expression,
    attempts: int,
    starts: int = _STARTS,
    sort_by: tuple[Sort, ...] = (),
    known: TableState | None = None,
) -> Snapshot | None:
    """Small files become large ones, or with `sort_by` all files sorted ones, in one snapshot; None when there is nothing worth
    it.

    Raises `Conflict` when others were faster `starts` times.
    """
    for start in range(starts):
        head, base, tasks = worth_it(store, dialect, request.branch, full, scope, sort_by, None if start else known)
        if not tasks:
            return None
        try:
            operation = _rewritten(store, engine, base, request, scope, tasks)
            return commit(store, head, dialect, operation, attempts, known=base)
        except Conflict as conflict:
            if start == starts - 1:
                raise
            log.info("%s: compaction starts over: %s", store.root, conflict)
    raise AssertionError("unreachable")


def compact_in_parts(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    request: Request,
    full: bool,
    scope: Expression,
    attempts: int,
    sort_by: tuple[Sort, ...],
    most: int,
    known: TableState | None = None,
) -> Snapshot | None:
    """As `compact`, in at most `most` snapshots, of which the last is returned. A part that fails leaves the others as they
    are, and is left out; raises what was wrong with the last one where all did."""
    head, base, tasks = worth_it(store, dialect, request.branch, full, scope, sort_by, known)
    size = max(-(-len(tasks) // most), 1)
    made: Snapshot | None = None
    failed: LakeError | None = None
    for start in range(0, len(tasks), size):
        asked = replace(request, id=str(uuid.uuid4()))
        try:
            made = commit(
                store,
                head,
                dialect,
                _rewritten(store, engine, base, asked, scope, tasks[start : start + size]),
                attempts,
                known=base,
            )
        except LakeError as error:
            failed = error
            log.warning("%s: a part of the compaction failed, others go on: %s", store.root, error)
    if made is None and failed is not None:
        raise failed
    return made


def worth_it(
    store: Store,
    dialect: Dialect,
    branch: str | None,
    full: bool,
    scope: Expression,
    sort_by: tuple[Sort, ...],
    known: TableState | None = None,
) -> tuple[Head, TableState, list[RewriteTask]]:
    """The table as it is now, or as it was when `known` was loaded, and what of it is written anew."""
    head = dialect.head(store)
    base = dialect.on(store, newest(store, dialect) if known is None else known, branch)
    if sort_by:
        return head, base, dialect.sorting(store, base, scope, sort_by)
    return head, base, dialect.compaction(store, base, full, scope, _now_ms())


def _rewritten(
    store: Store, engine: Engine, base: TableState, request: Request, scope: Expression, tasks: list[RewriteTask]
) -> Rewrite:
    """The tasks' files, written anew, as the operation that puts them in place."""
    written: list[WrittenFile] = []
    removed: list[str] = []
    lifted = [each for task in tasks for each in task.lifted]
    work = [task for task in tasks if task.read]
    for at in track(range(0, len(work), _AT_ONCE), f"{store.root}: compacting", -(-len(work) // _AT_ONCE)):
        some = work[at : at + _AT_ONCE]
        for task, files in zip(some, engine.rewrite(store, some), strict=True):
            written += files
            paths = [path for read in task.read for path in read.paths]
            if task.lifts and not files:
                assert task.write.keyed is not None, task
                lifted += [(path, task.write.keyed.level) for path in paths]
            else:
                removed += paths
    return Rewrite(
        request=_as_of(request, base),
        removed=tuple(removed),
        added=tuple(written),
        scope=scope,
        lifted=tuple(lifted),
        read_at=base.snapshot.id if base.snapshot else 0,
    )


def after(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    upkeep: Upkeep | None,
    schema: Schema,
    request: Request,
    made: Snapshot,
) -> Snapshot | None:
    """The compaction that belongs to the write `made`, in a snapshot of its own; None where nothing is worth it.

    The write has landed and stays, so nothing is raised: a compaction that others were faster than, or that failed, is left
    to the next write. Where no reader sees the rows without it, it is tried again when storage fails.
    """
    if upkeep is None or not made.partitions:
        return None
    asked = _asked(request, made)
    starts = _STARTS if upkeep.waits else 1  # Where readers wait for it too.
    for left in reversed(range(_STARTS if upkeep.hides else 1)):
        try:
            scope = _scope(dialect, upkeep, schema, made)
            return compact(store, dialect, engine, asked, upkeep.full, scope, dialect.attempts(schema), starts)
        except Exception as error:
            if isinstance(error, StoreError) and left:
                continue
            if upkeep.hides:
                log.warning(_HIDDEN, store.root, made.id, error, exc_info=True)
            elif isinstance(error, Conflict | CommitLost):
                log.info("%s: compaction after snapshot %d: %s", store.root, made.id, error)
            else:
                log.warning(_FAILED, store.root, made.id, exc_info=True)
            break
    return None


def again(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    upkeep: Upkeep | None,
    base: TableState,
    request: Request,
    made: Snapshot,
) -> None:
    """What `after` did for a write that is asked for again, where that belongs to it and is not there: whoever wrote may have
    died in between."""
    asked = _asked(request, made)
    if upkeep is None or not upkeep.waits or dialect.find(store, Append(request=asked, added=()), base) is not None:
        return
    after(store, dialect, engine, upkeep, base.schema, request, made)


def is_due(
    store: Store, dialect: Dialect, upkeep: Upkeep | None, schema: Schema, branch: str | None, made: Snapshot
) -> bool:
    """Whether `after` would find anything to do; raises nothing either."""
    if upkeep is None or not made.partitions:
        return False
    try:
        base = dialect.on(store, newest(store, dialect), branch)
        return bool(dialect.compaction(store, base, upkeep.full, _scope(dialect, upkeep, schema, made), _now_ms()))
    except Exception:
        log.warning(_FAILED, store.root, made.id, exc_info=True)
        return False


def _asked(request: Request, made: Snapshot) -> Request:
    return Request(id=f"{request.id}/compact", absent_until=made.id, branch=request.branch)


def _scope(dialect: Dialect, upkeep: Upkeep, schema: Schema, made: Snapshot) -> Expression:
    return ALWAYS if upkeep.everywhere else dialect.scope_of(schema, {each.values for each in made.partitions or ()})


def compact_deletes(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    request: Request,
    full: bool,
    scope: Expression,
    attempts: int,
    known: TableState | None = None,
) -> Snapshot | None:
    """Files of position deletes become fewer, in one snapshot, without what tells of data files that are gone; None when there
    is nothing worth it. Raises `Conflict` when others were faster three times.
    """

    def operation(base: TableState) -> RowDelta | None:
        tasks = dialect.delete_compaction(store, base, full, scope)
        if not tasks:
            return None
        return RowDelta(
            request=_as_of(request, base),
            added=tuple(file for files in engine.rewrite_deletes(store, tasks) for file in files),
            removed=tuple({gone for task in tasks for target in task.targets for gone in target.replaced}),
            referenced=tuple(target.path for task in tasks for target in task.targets),
            read_at=base.snapshot.id if base.snapshot else 0,
            kind="compact",
            isolation=None,
        )

    return _until_done(store, dialect, request.branch, attempts, operation, known)


def convert_deletes(
    store: Store,
    dialect: Dialect,
    engine: Engine,
    request: Request,
    scope: Expression,
    attempts: int,
    known: TableState | None = None,
) -> Snapshot | None:
    """Equality deletes become deletes of the places where their rows are, in one snapshot; None when there are none. Raises
    `Conflict` when others were faster three times."""

    def operation(base: TableState) -> RowDelta | None:
        tasks, gone, files = dialect.conversion(store, base, scope)
        if not gone:
            return None
        return RowDelta(
            request=_as_of(request, base),
            added=tuple(file for written in engine.mark(store, tasks) for file in written),
            removed=gone,
            referenced=files,
            read_at=base.snapshot.id if base.snapshot else 0,
            kind="convert",
            isolation=None,
        )

    return _until_done(store, dialect, request.branch, attempts, operation, known)


def _until_done(
    store: Store,
    dialect: Dialect,
    branch: str | None,
    attempts: int,
    operation: Callable[[TableState], RowDelta | None],
    known: TableState | None,
) -> Snapshot | None:
    """Make the operation, again from the table as it is then where others were faster."""
    for start in range(_STARTS):
        head = dialect.head(store)
        base = dialect.on(store, newest(store, dialect) if start or known is None else known, branch)
        asked = operation(base)
        if asked is None:
            return None
        try:
            return commit(store, head, dialect, asked, attempts, known=base)
        except Conflict as conflict:
            if start == _STARTS - 1:
                raise
            log.info("%s: %s of deletes starts over: %s", store.root, asked.kind, conflict)
    raise AssertionError("unreachable")


def _as_of(request: Request, base: TableState) -> Request:
    return replace(request, schema_id=base.schema.id, partitioning_id=base.schema.partitioning.id)


def _now_ms() -> int:
    return int(time.time() * 1000)
