"""Append: rows are added to the existing ones."""

from __future__ import annotations

from typing import Any

from lakeformat.model.operation import Append, RowCounts
from lakeformat.verbs import rows
from lakeformat.verbs.change import Change
from lakeformat.verbs.placing import with_lookup


def append(change: Change, data: Any) -> Append | None:
    """The operation that appends these rows, whose files are written now; None if there are no rows."""
    task = with_lookup(change.view, change.view.layout(from_files=True))
    added = tuple(change.engine.write(change.files, data, task))
    # In a table that merges rows by key, a row may replace another.
    counts = None if task.keyed is not None else RowCounts(inserted=rows.row_count(added))
    return Append(request=change.request, added=added, counts=counts) if added else None
