"""The replication lag of a table, read from the source's log; writes nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

from lakeformat import clock
from lakeformat.cdc import progress
from lakeformat.cdc.filters import filtered
from lakeformat.cdc.shards import Shards
from lakeformat.cdc.source import InUse, Position, Source, SourceTable, Transactions
from lakeformat.lake import Lake

_ROWS = 1000  # Log rows read at a time, until one belongs to the table.
_WAIT_SECONDS, _PAUSE_SECONDS = 20.0, 0.2  # For another process that reads the slot.


def lag_seconds(source: Source, source_table: str | re.Pattern[str], lake: Lake, table: str) -> float | None:
    """Seconds since the commit of the oldest transaction that changed `source_table` (a pattern: any matching table)
    and is not in `table` yet. 0.0 if the table is up to date; None if its snapshot is incomplete or does not have a
    newly matching table yet. Raises `NotFound` if the source no longer has the changes."""
    if not lake.exists(table):
        return None
    target = lake.table(table)
    saved = progress.read(target)
    if saved is None or not saved[1].is_complete:
        return None
    if isinstance(source_table, re.Pattern):
        source = Shards.matching(source, source_table)
        source_table = source_table.pattern
    declared = source.describe(source_table, target.schema.primary_key)
    if not set(declared.parts) <= set(saved[1].parts):
        return None
    if source.retention.kept_apart([declared.name]):
        source = source.apart(declared.name)
    if saved[1].where:
        source = filtered(source, {declared.name: saved[1].where})
        declared = source.describe(declared.name, target.schema.primary_key)
    after, until = source.parse(saved[1].position), source.position()
    if until <= after:
        return 0.0
    for batch in _when_free(source, after, until, {declared.name: declared}):
        changes = batch.tables.get(declared.name)
        times = [] if changes is None else changes.committed_ms[:1].tolist()
        if changes is not None and changes.emptied and batch.committed_ms is not None:
            times.append(batch.committed_ms)
        if times:
            return max(0.0, (clock.now_ms() - min(times)) / 1000)
    return 0.0


def _when_free(
    source: Source, after: Position, until: Position, tables: Mapping[str, SourceTable]
) -> Iterator[Transactions]:
    """The changes, read once no other process reads the slot."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while after < until:
        try:
            for batch in source.changes(after, until, tables, _ROWS):
                yield batch
                after = batch.position if batch.is_last else after
            return
        except InUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
