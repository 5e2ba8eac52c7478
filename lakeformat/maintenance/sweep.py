"""The sweep: files that nothing names, left behind by writers that died, are removed."""

from __future__ import annotations

import logging

from lakeformat.commit import newest
from lakeformat.dialects.dialect import Dialect
from lakeformat.maintenance.expire import remove
from lakeformat.model.snapshot import Expiry
from lakeformat.storage.store import Listed, Store

log = logging.getLogger("lakeformat")


def sweep(store: Store, dialect: Dialect, older_than_ms: int, dry_run: bool) -> list[Listed]:
    """Remove, or with `dry_run` only tell, the orphans older than `older_than_ms` (epoch milliseconds)."""
    base = newest(store, dialect)
    found = dialect.orphans(store, base, older_than_ms)
    log.info(
        "%s: %d orphans, %d bytes%s",
        store.root,
        len(found),
        sum(f.size_bytes for f in found),
        ", kept" if dry_run else "",
    )
    if not dry_run:
        paths = tuple(f.path for f in found)
        remove(store, Expiry((), (paths,)))
    return found
