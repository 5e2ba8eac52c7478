"""Tags: create one, and keep a snapshot by one for as long as a verb refers to its files.

Where snapshots are files, an expiry that runs at the same time may delete files of the same snapshot. So whoever refers
to an old snapshot's files first creates a pin, a tag that lasts an hour at most, and then looks whether an expiry has
begun with that snapshot. An expiry says which snapshots it removes before it looks what keeps their files. Where
snapshots are part of one document, commits put both in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeformat import clock
from lakeformat.commit import discard
from lakeformat.dialects.dialect import AnyView
from lakeformat.errors import AlreadyExists, CommitUnknown, LakeError
from lakeformat.storage.store import Store

_LASTS_MS = 3_600_000


def create(store: Store, view: AnyView, name: str, path: str, data: bytes) -> None:
    """Create the tag `name` of the view's snapshot: the file `path` with `data`. Raises `AlreadyExists`, and `NotFound`
    if an expiry has begun to remove the snapshot."""
    with kept(store, view):
        if not store.create(path, data) and store.read(path) != data:
            raise AlreadyExists(f"{store.root}: there is a tag {name!r}; delete it first")


@contextmanager
def kept(store: Store, view: AnyView, tag: str | None = None) -> Iterator[None]:
    """Within the block no expiry deletes files of the view's snapshot. Raises `NotFound` if an expiry has begun to
    remove it, or `tag`, the tag that it is the view of.

    The pin stays until it expires if the block raises an error after which its commit may still land.
    """
    pin = view.expiring.pin(clock.now_ms(), _LASTS_MS)
    if pin is None:
        yield
        return
    path, data = pin
    try:
        store.create(path, data)
        view.expiring.require_kept(tag)
        yield
    except CommitUnknown:
        raise
    except LakeError:
        discard(store, [path])
        raise
    discard(store, [path])
