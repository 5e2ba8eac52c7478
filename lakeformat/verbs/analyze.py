"""Statistics of a snapshot that its manifests lack: distinct values of columns, figures of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from lakeformat.codec.figures import Figures
from lakeformat.dialects.dialect import AnyView, Statistics
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.operation import Operation
from lakeformat.model.schema import Field, Schema, is_plain
from lakeformat.verbs.change import Change


def columns(change: Change, names: Sequence[str] | None) -> Operation:
    """The operation that records figures of columns, such as the estimated number of distinct values. Reads all rows of
    the snapshot."""
    view = supported(change.view)
    fields = _countable(change.view.schema, names)
    figures, row_count = {field.id: Figures() for field in fields}, 0
    tasks = change.view.scan([field.name for field in fields])
    for batch in change.engine.read(change.files, tasks, fields):
        row_count += batch.num_rows
        for field in fields:
            values = batch.column(field.name)
            figures[field.id].add(values, view.comparable(values.unique(), field))
    return view.column_statistics(change.request, figures, row_count)


def partitions(change: Change) -> Operation:
    """The operation that records statistics per partition. Reads metadata alone."""
    return supported(change.view).partition_statistics(change.request)


def supported(view: AnyView) -> Statistics:
    if not isinstance(view, Statistics):
        raise UnsupportedFeature(
            f"{view.reader.root}: statistics of {view.format.capitalize()} tables are not computed"
        )
    return view


def _countable(schema: Schema, names: Sequence[str] | None) -> tuple[Field, ...]:
    """The columns with figures: those requested, or all of plain types. Raises `InvalidInput`."""
    fields = tuple(schema.field(name) for name in (schema.names if names is None else names))
    plain = tuple(f for f in fields if is_plain(f.type))
    if names is not None and len(plain) < len(fields):
        (nested, *_) = [f for f in fields if f not in plain]
        raise InvalidInput(f"column {nested.name!r} is {nested.type}: distinct values are counted of plain values only")
    return plain
