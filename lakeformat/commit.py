"""The one loop by which an operation becomes part of a table."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from lakeformat.dialects.dialect import Dialect
from lakeformat.errors import CommitLost, CommitUnknown, Conflict, InvalidInput, NoSuchFile, StoreError
from lakeformat.model.operation import Operation, new_files
from lakeformat.model.snapshot import Outcome, Snapshot, Stamp
from lakeformat.storage.head import Head
from lakeformat.storage.store import Store

log = logging.getLogger("lakeformat")

# Processes that fork share the state of `random`: they would all wait the same time.
_jitter = random.SystemRandom().random


def commit(
    store: Store,
    head: Head,
    dialect: Dialect,
    operation: Operation,
    attempts: int = 10,
    *,
    stamp: Callable[[int], Stamp] = Stamp.now,
    sleep: Callable[[float], None] = time.sleep,
    jitter: Callable[[], float] = _jitter,
    clock: Callable[[], float] = time.monotonic,
) -> Snapshot:
    """Make `operation` part of the table, once, whoever else is writing; at most `attempts` tries to publish.

    The snapshot returned says how many attempts and milliseconds it took. Asking again with the same id is always
    safe and returns the same snapshot. Raises `Conflict` and `CommitLost`, which mean that nothing landed and that the
    operation's files are gone; `CommitUnknown`, which means that it may have landed: ask again, delete nothing. Any
    other exception leaves all files in place and does not tell either.
    """
    assert attempts > 0, attempts
    id, started = operation.request.id, clock()
    outcome, in_doubt = Outcome.LOST, False

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

    for attempt in range(attempts):
        if attempt:
            sleep(pause(attempt - 1, jitter()))
        version = -1
        try:
            version = head.version()
            base = dialect.load(store, version)
            if found := dialect.find(store, operation, base):
                return landed(found, attempt)  # An attempt whose answer was lost, or a caller who asked twice.
            try:
                dialect.check(store, operation, base)
            except (Conflict, InvalidInput):
                # Every attempt passed this on its own base. The base moved, so that none of them can still land.
                discard(store, new_files(operation))
                raise
            plan = dialect.plan(store, operation, base, stamp(attempt))
            assert plan.root_path not in plan.files, plan
            for path, data in plan.files.items():
                store.write(path, data)
        except StoreError as error:
            if in_doubt:
                outcome = Outcome.UNKNOWN  # An earlier attempt may have landed: this failure is no answer to that.
            elif not isinstance(error, NoSuchFile) or head.version() == version:
                raise
            continue  # The base expired while it was looked at: others were faster.
        outcome = head.advance(base.version, plan)
        match outcome:
            case Outcome.PUBLISHED:
                discard(store, plan.unused)
                return landed(plan.snapshot, attempt)
            case Outcome.LOST:
                discard(store, plan.files)
            case Outcome.UNKNOWN:
                in_doubt = True  # It may have landed, so delete nothing; `find` tells on the next turn.
    if outcome is Outcome.UNKNOWN:
        raise unknown(store, id)
    try:
        base = dialect.load(store, head.version())
        found = dialect.find(store, operation, base)
    except StoreError as error:
        if in_doubt:
            raise unknown(store, id) from error
        raise
    if found:
        return landed(found, attempts - 1)  # The race was lost to an earlier attempt of our own.
    discard(store, new_files(operation))
    raise CommitLost(
        f"{store.root}: operation {id}: other writers were faster in all of {attempts} attempts; nothing was written. "
        "Run it again, or allow more attempts (Paimon: 'commit.max-retries')"
    )


def discard(store: Store, paths: Iterable[str]) -> None:
    """Delete what no reader can see. A failure is left to the sweep: it must not hide the outcome."""
    with suppress(StoreError):
        store.delete(tuple(paths))


def pause(retry: int, share: float) -> float:
    """Seconds before retry 0, 1, ...: 10 ms, doubled each time up to 10 s, and up to a fifth more by `share` of it."""
    return min(0.01 * 2.0 ** min(retry, 60), 10.0) * (1 + 0.2 * share)


def unknown(store: Store, id: str) -> CommitUnknown:
    return CommitUnknown(
        f"{store.root}: operation {id} may or may not have landed: storage did not answer. "
        f"Run it again with id={id!r}, which never applies it twice; delete none of its files"
    )
