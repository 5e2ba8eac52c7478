"""Expiry: what a retention drops is planned and then deleted wave by wave. It also runs with commits, if a table asks
for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from lakeformat.commit import commit, discard, newest
from lakeformat.dialects.dialect import AnyView, Format
from lakeformat.errors import LakeError, NoSuchFile, NotFound, StoreError, UnsupportedFeature
from lakeformat.maintenance import mirror
from lakeformat.maintenance.progress import track
from lakeformat.model.log import log
from lakeformat.model.snapshot import Expiry, Retention
from lakeformat.storage.store import Store

# Files deleted per call. Object storage deletes a thousand per request, several requests at a time.
_AT_ONCE = 10_000
_ROUNDS = 5  # Of planning while others delete.
T = TypeVar("T")


def expire(
    store: Store,
    format: Format,
    retention: Retention | None,
    now_ms: int,
    keep_from: int | None = None,
    loaded: AnyView | None = None,
) -> Expiry:
    """Expire old snapshots and delete the files that only they reached; returns what was removed. Without a retention,
    the table's own.

    Expired tags are deleted first. An interruption leaves only files that a later expiry or the sweep deletes.
    """
    view = newest(store, format) if loaded is None else loaded
    is_mirrored = mirror.of_view(view) is not None
    if is_mirrored:
        mirror.follow(store, format)
    for tag in view.expiring.expired_tags(now_ms):
        release_tag(store, format, view, tag)
        view = newest(store, format, view)
    kept = replace(retention or view.expiring.default_retention(now_ms), keep_from=keep_from)
    view, expiry = planned(store, format, view, lambda view: view.expiring.snapshots(kept, now_ms))
    expired = release(store, format, view, expiry)
    if is_mirrored:
        mirror.follow(store, format)
    return expired


def requested_retention(
    view: AnyView, retain_last: int | None, limit_ms: int | None, snapshot_ids: frozenset[int], now_ms: int
) -> Retention | None:
    """The retention that `expire_snapshots` asks for; None is the table's own. A snapshot expires if it was replaced
    before `limit_ms`."""
    retention = None
    if retain_last is not None or limit_ms is not None:
        retention = Retention(retain_last or 1, None if limit_ms is not None else retain_last, limit_ms)
    if snapshot_ids:
        retention = replace(retention or view.expiring.default_retention(now_ms), snapshot_ids=snapshot_ids)
    return retention


def repair_earliest(store: Store, view: AnyView, snapshot_id: int) -> int:
    """Write the hint by which other engines take `snapshot_id` for the earliest snapshot; returns the one before."""
    if view.hints is None:
        raise UnsupportedFeature(
            f"{store.root}: {view.format.capitalize()} tables have no hint of the earliest snapshot"
        )
    before, hint = view.hints.earliest(snapshot_id)
    store.write_many(hint)
    return before


def planned(
    store: Store, format: Format, view: AnyView, plan: Callable[[AnyView], T], rounds: int = _ROUNDS
) -> tuple[AnyView, T]:
    """(the view, what `plan` makes of it). Planned again on a newer view if a file was listed and then deleted by
    another process, before it was read. Raises `NoSuchFile` if a file is missing in every round."""
    for _ in range(rounds - 1):
        try:
            return view, plan(view)
        except LakeError as error:
            if not is_missing_file(error):
                raise
            log.info("%s: planned again, since another process deletes files: %s", store.root, error)
            view = newest(store, format)
    return view, plan(view)


def is_missing_file(error: BaseException) -> bool:
    """Whether a file was not there that metadata names, which may have been deleted since the metadata was read."""
    return isinstance(error, NoSuchFile) or isinstance(error.__cause__, NoSuchFile)


def release_tag(store: Store, format: Format, view: AnyView, name: str) -> None:
    """Delete a tag and the files that only it kept. A tag that another process deletes meanwhile is no error; nor are
    files that another expiry deletes once the tag is gone."""
    try:
        view, expiry = planned(store, format, view, lambda view: view.expiring.of_tag(name))
    except NotFound:
        return
    try:
        release(store, format, view, expiry)
    except LakeError as error:
        if expiry.then is None or not is_missing_file(error):
            raise
        log.info("%s: another expiry releases the files of tag %s: %s", store.root, name, error)


def release(store: Store, format: Format, view: AnyView, expiry: Expiry) -> Expiry:
    """Take the expiry's first step, if there is one, and delete the files that no snapshot reaches any more; returns
    what was removed. If that cannot be told, nothing was deleted but a tag that was to go."""
    if expiry.operation is not None:
        commit(store, format.head(store), format, expiry.operation, view.attempts(), loaded=view)
        released = _then(store, format, newest(store, format, view), expiry)
    elif expiry.then is not None:
        remove(store, expiry)
        try:
            released = _then(store, format, view, expiry)
        except Exception:
            discard(store, expiry.files)
            raise
    else:
        released = expiry
    remove(store, released)
    return released


def remove(store: Store, expiry: Expiry) -> None:
    """Write the files that replace others and the marks, delete the waves in order, then the notices and empty folders,
    then write the hints, which may fail."""
    store.write_many({**expiry.files, **{path: str(uuid.uuid4()).encode() for path in expiry.marks}})
    for wave in (*expiry.waves, expiry.notices):
        _delete(store, wave)
    store.remove_empty_folders(expiry.folders)
    with suppress(StoreError):
        store.write_hints(expiry.hints)


def _then(store: Store, format: Format, view: AnyView, expiry: Expiry) -> Expiry:
    """What may be deleted after the expiry's first step; the expiry itself if it has one step."""
    then = expiry.then
    return expiry if then is None else planned(store, format, view, lambda now: then(now.state))[1]


def _delete(store: Store, paths: Sequence[str]) -> None:
    starts = range(0, len(paths), _AT_ONCE)
    for at in track(starts, f"{store.root}: deleting", len(starts)):
        store.delete(paths[at : at + _AT_ONCE])
