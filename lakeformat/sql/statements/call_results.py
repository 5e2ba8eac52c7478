"""The results of Iceberg's maintenance procedures: its columns, counted from what the snapshots' summaries say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.model.dataclass import dataclass
from lakeformat.model.snapshot import Expiry, Snapshot
from lakeformat.sql.result import Result, listing, metrics
from lakeformat.table import Table

Columns = Mapping[str, tuple[pa.DataType, str | None]]  # Name -> type, and key of the snapshots' summaries.
DATA_FILES: Columns = {
    "rewritten_data_files_count": (pa.int32(), "deleted-data-files"),
    "added_data_files_count": (pa.int32(), "added-data-files"),
    "rewritten_bytes_count": (pa.int64(), "removed-files-size"),
    "failed_data_files_count": (pa.int32(), None),
    "removed_delete_files_count": (pa.int32(), "removed-delete-files"),
}
DELETE_FILES: Columns = {
    "rewritten_delete_files_count": (pa.int32(), "removed-delete-files"),
    "added_delete_files_count": (pa.int32(), "added-delete-files"),
    "rewritten_bytes_count": (pa.int64(), "removed-files-size"),
    "added_bytes_count": (pa.int64(), "added-files-size"),
}
MANIFESTS: Columns = {
    "rewritten_manifests_count": (pa.int32(), "manifests-replaced"),
    "added_manifests_count": (pa.int32(), "manifests-created"),
}
_EXPIRED = (
    "deleted_data_files_count", "deleted_position_delete_files_count", "deleted_equality_delete_files_count",
    "deleted_manifest_files_count", "deleted_manifest_lists_count", "deleted_statistics_files_count",
)  # fmt: skip


def rewritten(table: Table, rewrite: Callable[[], Snapshot | None], columns: Columns) -> Result:
    """Rewrite, and sum up what the new snapshots count; in a Paimon table, show the snapshot's metrics."""
    if table.format != "iceberg":
        return metrics(rewrite())
    before = set(table.inspect.snapshots()["snapshot_id"].to_pylist())
    snapshot = rewrite()
    after = table.inspect.snapshots()
    summaries: list[dict[str, str]] = [
        dict(summary)
        for snapshot_id, summary in zip(after["snapshot_id"].to_pylist(), after["summary"].to_pylist(), strict=True)
        if snapshot_id not in before
    ]
    row: list[Any] = [
        sum(int(summary.get(key, 0)) for summary in summaries) if key is not None else 0 for _, key in columns.values()
    ]
    result = listing({name: kind for name, (kind, _) in columns.items()}, [tuple(row)])
    result.snapshot = snapshot
    return result


def expired(table: Table, expire: Callable[[], Expiry]) -> Result:
    """Expire snapshots, and count the files that went by what they are."""
    files = _Files.of_table(table)
    waves = expire().waves
    paths = pa.array([path if "://" in path else f"{table.uri}/{path}" for wave in waves for path in wave], pa.string())
    counts = [pc.sum(pc.is_in(paths, value_set=known)).as_py() or 0 for known in files.by_kind]
    positions, equality, manifests, lists = counts
    is_metadata = pc.or_(pc.match_substring(paths, "/metadata/"), pc.is_in(paths, value_set=files.statistics))
    statistics = (pc.sum(is_metadata).as_py() or 0) - manifests - lists
    data = len(paths) - sum(counts) - statistics
    return listing(
        dict.fromkeys(_EXPIRED, pa.int64()), [(data, positions, equality, manifests, lists, max(statistics, 0))]
    )


# --- private ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Files:
    """The locations of a table's position delete files, equality delete files, manifests and manifest lists, of all
    snapshots; and those of its statistics files."""

    by_kind: tuple[pa.Array, ...]
    statistics: pa.Array

    @classmethod
    def of_table(cls, table: Table) -> _Files:
        inspect = table.inspect
        deletes = inspect.connector("all_delete_files").select(["content", "file_path"])
        by_content = [deletes.filter(pc.equal(deletes["content"], content))["file_path"] for content in (1, 2)]
        manifests, lists = inspect.connector("all_manifests")["path"], inspect.connector("snapshots")["manifest_list"]
        columns = (*by_content, manifests, lists, inspect.statistics()["path"])
        *by_kind, statistics = (column.combine_chunks().drop_null().unique() for column in columns)
        return cls(tuple(by_kind), statistics)
