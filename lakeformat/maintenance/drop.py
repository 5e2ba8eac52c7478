"""Drop: a table's own files are deleted; other files beside them stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lakeformat.dialects.dialect import Format
from lakeformat.errors import Conflict
from lakeformat.maintenance.expire import remove
from lakeformat.model.log import log
from lakeformat.storage.store import Store

_ROUNDS = 5


def purge(store: Store, format: Format) -> None:
    """Delete all files of the table except its root documents, also files that others commit meanwhile. Raises as
    `drop`."""
    for _ in range(_ROUNDS):
        expiry = format.everything(store)
        if len(expiry.waves) < 2:
            return
        log.info("%s: purged, %d files", store.root, sum(map(len, expiry.waves[:-1])))
        remove(store, replace(expiry, waves=expiry.waves[:-1]))
    raise Conflict(f"{store.root}: others write to the table while it is purged; stop them and purge it again")


def drop(store: Store, format: Format, forget: Callable[[], None] | None = None) -> None:
    """Delete all files of the table, also files that others commit meanwhile. An interrupted drop can be repeated: the
    root documents are deleted last, and just before them `forget` removes the table from its catalog, which may need
    the newest metadata file until then. Raises `StoreError`, and `Conflict` if others write faster than this
    deletes."""
    for _ in range(_ROUNDS):
        expiry = format.everything(store)
        log.info("%s: dropped, %d files", store.root, sum(map(len, expiry.waves)))
        if forget is not None and len(expiry.waves) > 1:
            remove(store, replace(expiry, waves=expiry.waves[:-1]))
            continue
        if forget is not None:
            forget()
        remove(store, expiry)
        if forget is not None or not expiry.waves:
            return
    raise Conflict(f"{store.root}: others write to the table while it is dropped; stop them and drop it again")
