"""What a table holds, by Dagster's names: the rows, the bytes and the last write that an asset's page shows.

A row that counts is one that a reader sees: rows of a key that compaction has yet to merge count once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dagster.partition_keys import Spec, has_windows, predicate_of
from lakeformat.model import predicate
from lakeformat.model.snapshot import Snapshot

# At most so many rows are read to count others: those of files that may hold a key twice, or by equality deletes.
READ_TO_COUNT = 5_000_000
READ_FOR_HISTORY = 100_000  # The same, of each older snapshot.
FILES_IN_HISTORY = 10_000  # Older snapshots of a table with more files are not counted: their manifests are many.


def measures(table: Any, snapshot: Snapshot | None) -> dict[str, Any]:
    """The rows and bytes of a table at a snapshot, and when that was written. No `dagster/row_count` if more than
    `READ_TO_COUNT` rows would have to be read."""
    if snapshot is None:
        return {}
    rows = table.scan(snapshot_id=snapshot.id).count_if_cheap(READ_TO_COUNT)
    partitions = table.inspect.at(snapshot.id).partitions()
    return {
        **({} if rows is None else {"dagster/row_count": rows}),
        "dagster/size_bytes": pc.sum(partitions["size_bytes"]).as_py() or 0,
        "dagster/last_updated_timestamp": dg.TimestampMetadataValue(snapshot.timestamp_ms / 1000),
    }


def partition_rows(table: Any, snapshot_id: int | None = None) -> pa.Table | None:
    """`Table.inspect.partitions()` if its row counts are those that a reader sees."""
    scan = table.scan(snapshot_id=snapshot_id)
    if scan.snapshot is None:
        return None
    partitions: pa.Table = table.inspect.at(scan.snapshot.id).partitions()
    counts = partitions["row_count"]
    # A file of another engine may have no count. A partition's sum is never less than the rows that merging leaves.
    is_exact = not counts.null_count and scan.count_if_cheap(READ_TO_COUNT) == (pc.sum(counts).as_py() or 0)
    return partitions if is_exact else None


def rows_by_key(
    table: Any, specs: Mapping[str, Sequence[Spec]], columns: Sequence[str], snapshot_id: int | None = None
) -> dict[str, int]:
    """The rows of each Dagster partition; those that would be expensive to count are left out."""
    is_exact = not has_windows(specs) and partition_rows(table, snapshot_id) is not None
    if is_exact and (measured := table.inspect.at(snapshot_id).partition_measures(columns)) is not None:
        counts = {values: row["row_count"] for values, row in measured.items()}
        return {
            key: sum(counts.get(tuple(spec[name] for name in columns), 0) for spec in several)
            for key, several in specs.items()
        }
    limit = READ_TO_COUNT // max(1, len(specs))
    scans = {
        key: table.scan(where=predicate_of({key: several}, columns), snapshot_id=snapshot_id)
        for key, several in specs.items()
    }
    rows = {key: scan.count_if_cheap(limit) for key, scan in scans.items()}
    return {key: count for key, count in rows.items() if count is not None}


def last_partitions(table: Any, most: int) -> tuple[pa.Table, int]:
    """The last partitions, as `Table.inspect.partitions()` has them but for the row counts, which are those that a
    reader sees (null where that would be expensive to know); and the number of all partitions."""
    exact = partition_rows(table)
    partitions = table.inspect.partitions() if exact is None else exact
    shown = partitions.slice(max(0, partitions.num_rows - most))
    if exact is not None:
        return shown, partitions.num_rows
    partitioning = table.schema.partitioning
    counts: list[int | None] = [None] * shown.num_rows
    specs = table.inspect.partition_specs()
    is_current = pc.is_in(shown["spec_id"], value_set=specs.filter(specs["is_current"])["spec_id"].combine_chunks())
    # A partition of another spec may have rows of the same values.
    if partitioning.columns == partitioning.sources and pc.all(is_current).as_py():
        rows = shown["partition"].to_pylist() if partitioning.names else [{}] * shown.num_rows
        values = [tuple(row[name] for name in partitioning.names) for row in rows]
        conditions = (predicate.in_tuples(partitioning.columns, [row]) for row in values)
        counts = [table.scan(where=where).count_if_cheap(READ_TO_COUNT // most) for where in conditions]
    index = shown.column_names.index("row_count")
    return shown.set_column(index, "row_count", pa.array(counts, pa.int64())), partitions.num_rows


def last_snapshots(table: Any, most: int) -> tuple[list[Snapshot], int]:
    """The last snapshots, newest first, whose `total_rows` are those that a reader sees (None where that would be
    expensive to know); and the number of all snapshots."""
    snapshots = table.snapshots()
    files = pc.sum(table.inspect.partitions()["file_count"]).as_py() or 0
    shown = []
    for age, snapshot in enumerate(snapshots[-most:][::-1]):
        limit = READ_FOR_HISTORY if age else READ_TO_COUNT
        is_cheap = not age or files <= FILES_IN_HISTORY
        rows = table.scan(snapshot_id=snapshot.id).count_if_cheap(limit) if is_cheap else None
        shown.append(replace(snapshot, total_rows=rows))
    return shown, len(snapshots)
