"""Drop: a table's own files go, and whatever else lies beside them stays."""

from __future__ import annotations

import logging

from lakeformat.dialects.dialect import Dialect
from lakeformat.errors import Conflict
from lakeformat.maintenance.expire import remove
from lakeformat.storage.store import Store

log = logging.getLogger("lakeformat")

_ROUNDS = 5


def drop(store: Store, dialect: Dialect) -> None:
    """Delete all files of the table, also what others commit meanwhile. Cut short, it can be asked for again: what makes it a table
    goes last. Raises `StoreError`, and `Conflict` where others write faster than this deletes."""
    for _ in range(_ROUNDS):
        found = dialect.everything(store)
        log.info("%s: dropped, %d files", store.root, sum(map(len, found.waves)))
        if not found.waves:
            return
        remove(store, found)
    raise Conflict(f"{store.root}: others write to the table while it is dropped; stop them and drop it again")
