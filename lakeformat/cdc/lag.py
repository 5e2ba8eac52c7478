"""How far a table is behind its source, from the log alone: nothing is written."""

from __future__ import annotations

import time

from lakeformat.cdc import progress
from lakeformat.cdc.source import Source
from lakeformat.lake import Lake


def lag_seconds(source: Source, source_table: str, lake: Lake, table: str) -> float | None:
    """How long ago the oldest transaction was committed that changed `source_table` and is not in `table`; 0.0 where the table has
    them all, None where its snapshot is not complete. Raises `NotFound` where the source no longer has the changes."""
    if not lake.exists(table):
        return None
    there = lake.table(table)
    found = progress.read(there)
    if found is None or not found[1].is_complete:
        return None
    after, until = source.parse(found[1].position), source.position()
    if until <= after:
        return 0.0
    declared = source.describe(source_table, there.schema.primary_key)
    for batch in source.changes(after, until, {declared.name: declared}, 1):
        if declared.name in batch.tables and batch.committed_ms is not None:
            return max(0.0, time.time() - batch.committed_ms / 1000)
    return 0.0
