"""Statistics of a snapshot that its manifests lack: distinct values of columns, figures of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from lakeformat.codec.figures import Figures
from lakeformat.errors import InvalidInput
from lakeformat.model.operation import Operation
from lakeformat.model.schema import Field, Schema, is_plain
from lakeformat.verbs.change import Change


def columns(change: Change, names: Sequence[str] | None) -> Operation:
    """The operation that records figures of columns, such as the estimated number of distinct values. Reads all rows of
    the snapshot."""
    fields = _countable(change.view.schema, names)
    figures, row_count = {field.id: Figures() for field in fields}, 0
    tasks = change.view.scan([field.name for field in fields])
    for batch in change.engine.read(change.files, tasks, fields):
        row_count += batch.num_rows
        for field in fields:
            values = batch.column(field.name)
            figures[field.id].add(values, change.view.statistics.comparable(values.unique(), field))
    return change.view.statistics.of_columns(change.request, figures, row_count)


def partitions(change: Change) -> Operation:
    """The operation that records statistics per partition. Reads metadata alone."""
    return change.view.statistics.of_partitions(change.request)


def _countable(schema: Schema, names: Sequence[str] | None) -> tuple[Field, ...]:
    """The columns with figures: those requested, or all of plain types. Raises `InvalidInput`."""
    fields = tuple(schema.field(name) for name in (schema.names if names is None else names))
    plain = tuple(f for f in fields if is_plain(f.type))
    if names is not None and len(plain) < len(fields):
        (nested, *_) = [f for f in fields if f not in plain]
        raise InvalidInput(f"column {nested.name!r} is {nested.type}: distinct values are counted of plain values only")
    return plain
