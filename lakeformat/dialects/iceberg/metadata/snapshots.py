"""What a snapshot says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lakeformat.codec import parsing
from lakeformat.errors import (
    CorruptTable,
)
from lakeformat.model.snapshot import Snapshot

# In a snapshot's summary: the request, and the verb if Iceberg's `operation` is less specific.
OPERATION_ID = "lakeformat.operation-id"
VERB = "lakeformat.verb"
# In the document, for changes without a snapshot. Other readers ignore unknown names.
DOCUMENT_OPERATION = "lakeformat-operation"
OPERATION_PROPERTY = "lakeformat.operation"  # The same if a server writes the document.
FOLLOWS = "lakeformat-follows"  # The operation of the previous document, if it has one: in the Hadoop layout.
_VERBS = {"replace": "compact"}
_OWN_SUMMARY = re.compile(
    r"operation|(added|deleted|removed|total)-.*|changed-partition-count|partitions\..*|partition-summaries-included|"
    r"manifests-.*|entries-processed|replace-partitions|lakeformat\..*"
)


def to_snapshot(document: Mapping[str, Any]) -> Snapshot:
    """A snapshot in the nouns that both formats share."""
    summary = document.get("summary") or {}
    operation = summary.get("operation", "append")
    rows = summary.get("total-records")
    return Snapshot(
        id=document["snapshot-id"],
        kind=summary.get(VERB) or _VERBS.get(operation, operation),
        timestamp_ms=document["timestamp-ms"],
        schema_id=document.get("schema-id", 0),
        operation_id=summary.get(OPERATION_ID),
        parent_id=document.get("parent-snapshot-id"),
        total_rows=None if rows is None else _whole(summary, "total-records"),
        properties={k: v for k, v in summary.items() if not is_own(k)},
        figures=_figures(summary),
    )


def _figures(summary: Mapping[str, str]) -> dict[str, int]:
    """The changes that a snapshot's summary records. Writers leave out zeros (SnapshotSummary.UpdateMetrics), and sizes
    and positions that they do not know."""
    if "changed-partition-count" not in summary and not any(key.startswith("total-") for key in summary):
        return {}

    def sums(*names: str) -> int:
        return sum(_whole(summary, name) for name in names)

    figures = {
        "files_added": sums("added-data-files", "added-delete-files"),
        "files_removed": sums("deleted-data-files", "removed-delete-files"),
        "rows_added": sums("added-records"),
    }
    for verb in ("added", "removed"):
        if f"{verb}-files-size" in summary or not figures[f"files_{verb}"]:
            figures[f"bytes_{verb}"] = sums(f"{verb}-files-size")
    # Rows of removed delete files were removed with data files, or are visible again, or were deleted before.
    if "removed-delete-files" not in summary and ("added-delete-files" not in summary or "bytes_added" in figures):
        figures["rows_removed"] = sums("deleted-records", "added-position-deletes")
    return figures


def _whole(summary: Mapping[str, str], name: str) -> int:
    """A number in a snapshot's summary; 0 if it is missing."""
    with parsing.naming(f"{name} of a snapshot's summary", CorruptTable):
        return int(summary.get(name, 0))


def is_own(key: str) -> bool:
    """Whether a snapshot's summary has this name as a record of lakeformat's, not as a user's property."""
    return _OWN_SUMMARY.fullmatch(key) is not None
