"""Statistics of a snapshot that its manifests lack: distinct values of columns, figures of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from lakeformat.codec.theta import Sketch
from lakeformat.dialects.dialect import AnyView, Statistics
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.operation import Operation
from lakeformat.verbs.change import Change


def columns(change: Change, names: Sequence[str] | None) -> Operation:
    """The operation that records the estimated number of distinct values of columns. Reads all rows of the snapshot."""
    view = supported(change.view)
    fields = view.countable(names)
    sketches = {field.id: Sketch() for field in fields}
    tasks = change.view.scan([field.name for field in fields])
    for batch in change.engine.read(change.files, tasks, fields):
        for field in fields:
            sketches[field.id].add(view.comparable(batch.column(field.name).unique(), field))
    return view.column_statistics(change.request, sketches)


def partitions(change: Change) -> Operation:
    """The operation that records statistics per partition. Reads metadata alone."""
    return supported(change.view).partition_statistics(change.request)


def supported(view: AnyView) -> Statistics:
    if not isinstance(view, Statistics):
        raise UnsupportedFeature(
            f"{view.reader.root}: statistics of {view.format.capitalize()} tables are not computed; its manifests have bounds and counts"
        )
    return view
