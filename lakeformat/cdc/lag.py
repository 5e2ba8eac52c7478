"""How far a table is behind its source, from the log alone: nothing is written."""

from __future__ import annotations

import re
import time

from lakeformat.cdc import progress
from lakeformat.cdc.shards import Shards
from lakeformat.cdc.source import Source
from lakeformat.lake import Lake

_ROWS = 1000  # Of the log that are read at a time, until one is of the table.


def lag_seconds(source: Source, source_table: str | re.Pattern[str], lake: Lake, table: str) -> float | None:
    """How long ago the oldest transaction was committed that changed `source_table` (all tables that match, if it is a pattern) and is not in `table`; 0.0
    where the table has them all, None where its snapshot is not complete, or lacks a table that has come to match. Raises `NotFound` where the source no longer has the changes."""
    if not lake.exists(table):
        return None
    there = lake.table(table)
    found = progress.read(there)
    if found is None or not found[1].is_complete:
        return None
    if isinstance(source_table, re.Pattern):
        source = Shards.matching(source, source_table)
        source_table = source_table.pattern
    declared = source.describe(source_table, there.schema.primary_key)
    if not set(declared.parts) <= set(found[1].parts):
        return None
    after, until = source.parse(found[1].position), source.position()
    if until <= after:
        return 0.0
    for batch in source.changes(after, until, {declared.name: declared}, _ROWS):
        changes = batch.tables.get(declared.name)
        times = [] if changes is None else changes.committed_ms[:1].tolist()
        if changes is not None and changes.emptied and batch.committed_ms is not None:
            times.append(batch.committed_ms)
        if times:
            return max(0.0, time.time() - min(times) / 1000)
    return 0.0
