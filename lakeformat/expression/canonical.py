"""Values of any type, also arrays and maps, as bytes that are equal exactly if no expression tells the values apart.

Null equals null and NaN equals NaN, but 0.0 is not -0.0, at any depth; maps are equal if they have the same entries in
the same order.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts

_NULL = b"-"


def encoded(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One binary value per row, none of them null."""
    array: Any = layouts.plain(values)
    return pc.if_else(array.is_valid(), _present(array), pa.scalar(_NULL))


def apart(table: pa.Table, as_bytes: Collection[str]) -> pa.Table:
    """The distinct rows, with the bytes of the columns `as_bytes` in place of their values."""
    for index, name in enumerate(table.column_names):
        if name in as_bytes:
            table = table.set_column(index, name, encoded(table.column(index)))
    names = [str(index) for index in range(table.num_columns)]
    rows = pa.table([*map(encoded, table.columns), np.arange(len(table))], names=[*names, "row"])
    first = rows.group_by(names, use_threads=False).aggregate([("row", "first")])["row_first"]
    return table.take(first.combine_chunks())


# --- private ----------------------------------------------------------------------------------------------------------


def _present(array: Any) -> pa.Array:
    """The bytes of the values; where the array is null, any or null."""
    kind = array.type
    if pa.types.is_struct(kind):
        parts = [encoded(pc.struct_field(array, [index])) for index in range(kind.num_fields)]
        return _joined(pa.scalar(b"{"), *parts, pa.scalar(b"}"), length=len(array))
    if pa.types.is_map(kind):
        ends = array.offsets
        entries = _joined(*(encoded(side[_span(ends)]) for side in (array.keys, array.items)))
        return _listed(ends, entries)
    if pa.types.is_list(kind):
        return _listed(array.offsets, encoded(array.values[_span(array.offsets)]))
    content = _bytes(array)
    length = pc.cast(pc.cast(pc.binary_length(content), pa.string()), pa.binary())
    return _joined(length, pa.scalar(b":"), content)


def _span(ends: Any) -> slice:
    return slice(ends[0].as_py(), ends[-1].as_py())


def _listed(ends: pa.Array, items: pa.Array) -> pa.Array:
    lists = pa.ListArray.from_arrays(pc.subtract(ends, ends[0]), items)
    return _joined(pa.scalar(b"["), pc.binary_join(lists, b""), pa.scalar(b"]"), length=len(lists))


def _joined(*parts: Any, length: int = 0) -> pa.Array:
    if all(isinstance(part, pa.Scalar) for part in parts):  # A struct without fields.
        return pa.repeat(pa.scalar(b"".join(part.as_py() for part in parts)), length)
    return pc.binary_join_element_wise(*parts, b"")


def _bytes(array: pa.Array) -> pa.Array:
    """A scalar's value, without its length."""
    kind, t = array.type, pa.types
    if t.is_binary(kind) or t.is_string(kind) or t.is_fixed_size_binary(kind):
        return pc.cast(array, pa.binary())
    if t.is_floating(kind):
        return pc.cast(pc.if_else(pc.is_nan(array), "NaN", pc.cast(array, pa.string())), pa.binary())
    if t.is_timestamp(kind):
        return _moment(array)
    if t.is_time(kind):
        array = pc.cast(pc.cast(array, pa.time64("ns")), pa.int64())
    elif t.is_date(kind):
        array = pc.cast(pc.cast(array, pa.date32()), pa.int32())
    return pc.cast(pc.cast(array, pa.string()), pa.binary())


def _moment(array: pa.Array) -> pa.Array:
    """Microseconds since 1970 as text, with the nanoseconds beyond them."""
    if array.type.unit != "ns":
        count = pc.cast(pc.cast(array, pa.timestamp("us", array.type.tz)), pa.int64())
        return pc.cast(pc.cast(count, pa.string()), pa.binary())
    floor = pc.floor_temporal(array, unit="microsecond")
    beyond = pc.cast(pc.subtract(pc.cast(array, pa.int64()), pc.cast(floor, pa.int64())), pa.string())
    count = pc.cast(pc.cast(pc.cast(floor, pa.timestamp("us", array.type.tz)), pa.int64()), pa.string())
    return pc.cast(
        pc.if_else(pc.equal(beyond, "0"), count, pc.binary_join_element_wise(count, beyond, ".")), pa.binary()
    )
