"""The commit loop: the only way by which an operation becomes part of a table."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from lakeformat.dialects.dialect import WAITS_MS, AnyView, Format
from lakeformat.errors import (
    CommitLost,
    CommitUnknown,
    Conflict,
    InvalidInput,
    LakeError,
    NoSuchFile,
    StoreError,
    StoreRefused,
)
from lakeformat.model.dataclass import dataclass
from lakeformat.model.log import log
from lakeformat.model.operation import Append, Create, Operation, Overwrite, Rewrite, RowCounts, RowDelta, new_files
from lakeformat.model.snapshot import CHANGED_ROWS, Outcome, Plan, Snapshot, Stamp
from lakeformat.storage.head import Head, load_newest
from lakeformat.storage.store import Store

# Forked processes share the state of `random` and would all wait equally long.
_jitter = random.SystemRandom().random


def commit(  # noqa: C901 - the one loop, whole: its rules depend on each other
    store: Store,
    head: Head,
    format: Format,
    operation: Operation,
    attempts: int = 10,
    *,
    loaded: AnyView | None = None,
    stamp: Callable[[int], Stamp] = Stamp.now,
    sleep: Callable[[float], None] = time.sleep,
    jitter: Callable[[], float] = _jitter,
    clock: Callable[[], float] = time.monotonic,
) -> Snapshot:
    """Commit `operation` exactly once, whoever else is writing, in at most `attempts` attempts.

    `loaded` is a view that the caller has loaded; its version is not read again. The returned snapshot says how many
    attempts and milliseconds the commit took. A repeated call with the same id is always safe and returns the same
    snapshot.

    Raises `Conflict` and `CommitLost`: nothing has landed, and the operation's files are deleted. Raises
    `CommitUnknown`: it may have landed; call again and delete nothing. After any other exception all files stay, and
    the outcome is unknown.
    """
    assert attempts > 0, attempts
    id, started = operation.request.id, clock()
    doubts: list[_Doubt] = []  # Attempts whose outcome is not known yet.
    failure: StoreError | None = None  # Storage's last error of an attempt that may have landed.

    def landed(snapshot: Snapshot, attempt: int) -> Snapshot:
        milliseconds = round((clock() - started) * 1000)
        snapshot = replace(snapshot, attempts=attempt + 1, milliseconds=milliseconds)
        log.info(
            "%s: snapshot %d (%s): %d partitions, files +%s -%s, rows +%s -%s, %d attempts, %d ms, id %s",
            *(store.root, snapshot.id, snapshot.kind, len(snapshot.partitions or ())),
            *(snapshot.files_added, snapshot.files_removed, snapshot.rows_added, snapshot.rows_removed),
            *(snapshot.attempts, milliseconds, id),
        )
        return snapshot

    waits_ms = WAITS_MS
    for attempt in range(attempts):
        if attempt:
            sleep(pause(attempt - 1, jitter(), waits_ms))
        version = -1
        try:
            version = head.version()
            view = format.load(store, version, loaded)
            waits_ms = view.waits_ms()
            # The answer to an attempt was lost, or the caller repeated the call.
            if landed_snapshot := settle(store, operation, view, doubts) or view.find(operation):
                return landed(landed_snapshot, attempt)
            try:
                view.check(operation)
            except (Conflict, InvalidInput) as error:
                if doubts:  # One of them may still land: nobody has taken its version yet.
                    raise unknown(store, id, error) from error
                discard(store, new_files(operation))
                raise
            plan = view.plan(operation, stamp(attempt))
            is_base = loaded is not None and loaded.version == view.version
            plan = replace(plan, snapshot=counted(plan.snapshot, operation, view, is_base))
            assert plan.root_path not in plan.files, plan
            store.write_many(plan.files)
        except StoreError as error:
            if doubts:
                failure = error  # The outcome of an earlier attempt is still unknown.
            elif not isinstance(error, NoSuchFile) or head.version() == version:
                raise
            continue  # The base expired while it was read: others have committed.
        try:
            outcome = head.advance(view.version, plan)
        except StoreRefused as error:
            if doubts:
                raise unknown(store, id, error) from error
            raise
        except StoreError as error:
            doubts.append(_Doubt(view.version, plan, may_land=True))
            failure = error  # It may have landed, so delete nothing; `settle` decides on the next attempt.
            continue
        match outcome:
            case Outcome.PUBLISHED:
                discard(store, plan.unused)
                return landed(plan.snapshot, attempt)
            case Outcome.LOST:
                discard(store, plan.files)
            case Outcome.UNKNOWN:
                doubts.append(_Doubt(view.version, plan, may_land=False))
    try:
        view = load_newest(head, partial(format.load, store))
        landed_snapshot = settle(store, operation, view, doubts) or view.find(operation)
    except StoreError as error:
        if doubts:
            raise unknown(store, id, error) from error
        raise
    if landed_snapshot:
        return landed(landed_snapshot, attempts - 1)  # The race was lost to an earlier attempt of our own.
    if doubts:
        raise unknown(store, id, failure or "storage did not answer") from failure
    discard(store, new_files(operation))
    raise CommitLost(
        f"{store.root}: operation {id}: other writers were faster in all of {attempts} attempts; nothing was written. "
        "Run it again, or allow more attempts (Paimon: 'commit.max-retries')"
    )


@dataclass(frozen=True, slots=True)
class _Doubt:
    """An attempt that may have made its plan the version after `version`. `may_land`: it got no answer, so it may still
    do so."""

    version: int
    plan: Plan
    may_land: bool


def settle(store: Store, operation: Operation, view: AnyView, doubts: list[_Doubt]) -> Snapshot | None:
    """The snapshot that one of the attempts in `doubts` became. An attempt that history proves not to be part of it
    leaves the list, and its files are deleted. Raises `CommitUnknown` if the snapshots that would prove it have
    expired.

    A root created below newer versions, under a name that expiry had freed, is hidden from readers of the newest
    version but not from readers of its number. The files of an attempt without an answer stay: it may still land and be
    read.
    """
    for doubt in doubts[::-1]:
        if view.version == doubt.version:
            continue  # Nobody has taken its version yet.
        match view.settle(operation, doubt.plan, doubt.version):
            case Outcome.PUBLISHED:
                return doubt.plan.snapshot
            case Outcome.UNKNOWN:
                raise CommitUnknown(
                    f"{store.root}: operation {operation.request.id} may or may not have landed: the snapshots that "
                    "would show it have expired. Check whether the table has its rows before you run it again; delete "
                    "none of its files; keep snapshots for longer than a commit may take"
                )
        doubts.remove(doubt)
        with suppress(StoreError):
            if store.read(doubt.plan.root_path) == doubt.plan.root:
                store.delete([doubt.plan.root_path])
            if not doubt.may_land:
                discard(store, doubt.plan.files)
    return None


def counted(snapshot: Snapshot, operation: Operation, view: AnyView, is_base: bool) -> Snapshot:
    """The snapshot with the counts of changed rows that the operation has. What an overwrite deletes are the rows of
    the files that it removes from `view`; where other files delete some of them, the operation counted those of its
    base, which the view may be."""
    match operation:
        case Append(counts=counts) | Overwrite(counts=counts) | Rewrite(counts=counts) | RowDelta(counts=counts):
            if counts is None:
                return snapshot
        case Create(added=added, adopts=False) if added:
            counts = RowCounts(inserted=sum(file.row_count for file in added))
        case _:
            return snapshot
    deleted = counts.deleted
    if isinstance(operation, Overwrite):
        has_whole_files = view.on(operation.request.branch).pruning.has_whole_files()
        deleted = snapshot.rows_removed if has_whole_files else deleted if is_base else None
    values = zip(CHANGED_ROWS, (counts.updated, deleted, counts.inserted), strict=True)
    known = {name: count for name, count in values if count is not None}
    return replace(snapshot, figures={**snapshot.figures, **known})


def newest(store: Store, format: Format, loaded: AnyView | None = None) -> AnyView:
    """The table as it is now. `loaded`: see `commit`."""
    return load_newest(format.head(store), partial(format.load, store, earlier=loaded))


def discard(store: Store, paths: Iterable[str]) -> None:
    """Delete files that no reader can see. A failure is left to the sweep: it must not hide the outcome."""
    with suppress(StoreError):
        store.delete(tuple(paths))


def pause(retry: int, share: float, waits_ms: tuple[int, int] = WAITS_MS) -> float:
    """Seconds to wait before retry 0, 1, ...: the least time, doubled up to the longest, plus `share` of a fifth of
    it. `waits_ms`: these two, in milliseconds; the longest is never below the least."""
    least_ms, most_ms = waits_ms
    return min(least_ms * 2.0 ** min(retry, 60), max(most_ms, least_ms)) / 1000 * (1 + 0.2 * share)


def unknown(store: Store, id: str, reason: LakeError | str) -> CommitUnknown:
    return CommitUnknown(
        f"{store.root}: operation {id} may or may not have landed: {reason}. "
        f"Run it again with id={id!r}, which never applies it twice; delete none of its files"
    )
