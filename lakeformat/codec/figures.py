"""The figures of a column that ANALYZE gathers, batch by batch: distinct values, nulls, bounds and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.iceberg.theta import Sketch

_RECORDED = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("of", pa.string()),
        ("column", pa.string()),
        ("distinct_values", pa.int64()),
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
    ]
)


class Figures:
    """The figures of the values given to `add`."""

    def __init__(self) -> None:
        self.sketch = Sketch()
        self.row_count = 0
        self.null_count = 0
        self.bounds: pa.Array | None = None  # The least and the greatest value; None for text and bytes.
        self.has_nan = False  # NaN is in no bounds.
        self.total_length = 0  # Characters of text, bytes of binary values.
        self.max_length = 0

    def add(self, values: pa.Array, distinct: pa.Array) -> None:
        """`distinct` are the distinct values as bytes: equal values have equal bytes."""
        self.sketch.add(distinct)
        self.row_count += len(values)
        self.null_count += values.null_count
        if values.null_count == len(values):
            return
        if has_length(values.type):
            is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
            lengths = pc.utf8_length(values) if is_text else pc.binary_length(values)
            self.total_length += pc.sum(lengths).as_py()
            self.max_length = max(self.max_length, pc.max(lengths).as_py())
            return
        if pa.types.is_floating(values.type):
            nan = pc.is_nan(values)
            self.has_nan |= bool(pc.any(nan).as_py())
            values = values.filter(pc.invert(nan))
        known = values.drop_null() if self.bounds is None else pa.concat_arrays([self.bounds, values.drop_null()])
        if len(known):
            extremes = pc.min_max(known)
            self.bounds = pa.concat_arrays([pa.repeat(extremes["min"], 1), pa.repeat(extremes["max"], 1)])


def has_length(type: pa.DataType) -> bool:
    """Whether values of the type differ in length: text and bytes."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(type) for test in tests) or pa.types.is_fixed_size_binary(type)


def figures_table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows of recorded figures as a table; see `Inspect.statistics`."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_RECORDED)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _RECORDED, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_RECORDED)
