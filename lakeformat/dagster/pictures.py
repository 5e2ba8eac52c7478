"""A table's partitions and history, as Markdown for Dagster."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dagster.markdown import cell, markdown_table, size_text, time_text
from lakeformat.dagster.measures import last_partitions, last_snapshots
from lakeformat.model.snapshot import Snapshot

MOST = 30  # The most partitions, or snapshots, in one picture: the last ones.
WHOLE = "whole table"  # The one partition of a table without partition columns.


def pictures(table: Any) -> dict[str, dg.MarkdownMetadataValue]:
    """The rows, files and bytes of a table's partitions, and the changes of its snapshots."""
    return {
        "lake/partitions": partitions_picture(*last_partitions(table, MOST)),
        "lake/history": history_picture(*last_snapshots(table, MOST)),
    }


def partitions_picture(partitions: pa.Table, count: int) -> dg.MarkdownMetadataValue:
    """The last of `count` partitions, as `last_partitions` gives them: rows, files, how many are small, and bytes."""
    names: list[str] = []
    if "partition" in partitions.column_names:
        kind = partitions.schema.field("partition").type
        names = [kind.field(index).name for index in range(kind.num_fields)]
    several = len(pc.unique(partitions["spec_id"])) > 1  # Fields that a spec does not have are null.
    rows = [
        [
            *([str(row["spec_id"])] if several else []),
            *([cell(row["partition"][name]) for name in names] or [WHOLE]),
            _number(row["row_count"]), f"{row['file_count']:,}", f"{row['small_file_count']:,}",
            size_text(row["size_bytes"] or 0), time_text(row["last_modified_ms"]),
        ]
        for row in partitions.to_pylist()
    ]  # fmt: skip
    header = [*(["spec"] if several else []), *(names or ["partition"]), "rows", "files", "small files", "size"]
    header.append("last write (UTC)")
    return _with_count(header, rows, count)


def history_picture(snapshots: Sequence[Snapshot], count: int) -> dg.MarkdownMetadataValue:
    """The last of `count` snapshots, newest first: when each was made, how, and the rows after it."""
    rows = [[time_text(s.timestamp_ms), str(s.id), cell(s.kind), _number(s.total_rows)] for s in snapshots]
    return _with_count(["time (UTC)", "snapshot", "kind", "rows"], rows, count)


def _with_count(header: Sequence[str], rows: Sequence[Sequence[str]], count: int) -> dg.MarkdownMetadataValue:
    table = markdown_table(header, rows)
    return dg.MarkdownMetadataValue(f"{table.md_str}\n\n{len(rows)} of {count:,}") if count > len(rows) else table


def _number(count: int | None) -> str:
    return "" if count is None else f"{count:,}"
