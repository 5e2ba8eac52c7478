"""A table's partitions and history, as Markdown for Dagster."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pyarrow as pa

from lakeformat.model.snapshot import Snapshot

MOST = 30  # The most partitions, or snapshots, in one picture: the last ones.
WIDTH = 20


def pictures(table: Any) -> dict[str, dg.MarkdownMetadataValue]:
    """The rows and files of a table's partitions, and the changes of its snapshots, from metadata alone."""
    return {
        "lake/partitions": dg.MetadataValue.md(partitions_picture(table.inspect.partitions())),
        "lake/history": dg.MetadataValue.md(history_picture(table.snapshots())),
    }


def markdown(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |"
        for line in (header, ["---"] * len(header), *lines)
    )


def partitions_picture(partitions: pa.Table) -> str:
    """The last partitions, from `Table.inspect.partitions()`: rows with a bar, files, and how many are small."""
    names = partitions.column_names[: partitions.column_names.index("file_count")]
    shown = partitions.slice(max(0, partitions.num_rows - MOST)).to_pylist()
    # Files of other engines may have no row counts.
    shown = [{**row, "row_count": row["row_count"] or 0} for row in shown]
    most = max((row["row_count"] for row in shown), default=0)
    lines = [
        [*(row[name] for name in names), _bar(row["row_count"], most), row["row_count"], row["file_count"], row["small_file_count"]]
        for row in shown
    ]  # fmt: skip
    return _shown([*names, "", "rows", "files", "small"], lines, partitions.num_rows)


def history_picture(snapshots: Sequence[Snapshot]) -> str:
    """The last snapshots, newest first: the changes of each, and the row count after it with a bar."""
    shown = list(snapshots)[-MOST:][::-1]
    most = max((snapshot.total_rows or 0 for snapshot in shown), default=0)
    lines = [
        [f"{datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}", snapshot.id, snapshot.kind, _bar(snapshot.total_rows or 0, most), snapshot.total_rows]
        for snapshot in shown
    ]  # fmt: skip
    return _shown(["time (UTC)", "snapshot", "kind", "", "rows"], lines, len(snapshots))


def _bar(value: int, most: int) -> str:
    return "█" * round(WIDTH * value / most) if most > 0 else ""


def _shown(header: Sequence[str], lines: Sequence[Sequence[Any]], count: int) -> str:
    more = f"\n\n{len(lines)} of {count}" if count > len(lines) else ""
    return markdown(header, [["" if cell is None else cell for cell in line] for line in lines]) + more
