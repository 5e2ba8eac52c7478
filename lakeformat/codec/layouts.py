"""Arrow's layouts in memory -> the one that the library computes with: no dictionaries, runs, views, 64-bit offsets,
lists of a fixed size or extension types, at any depth.

Facts: Arrow's columnar format, "Physical Memory Layout"; canonical extension types. Other libraries' arrays are taken
apart by their own buffers: pyarrow's casts of list views read past their offsets, and those to 32-bit offsets count
from the start of the buffer, also in a slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lakeformat.codec import spans
from lakeformat.errors import InvalidInput

MOST = 2**31 - 1  # The largest 32-bit offset.
_BOOL8 = "arrow.bool8"  # Bytes of which all but 0 are true.


def plain_type(type: pa.DataType) -> pa.DataType:
    """The type of `plain` of an array of `type`."""
    type = outer_type(type)
    if pa.types.is_map(type):
        return pa.map_(plain_field(type.key_field), plain_field(type.item_field), type.keys_sorted)
    if pa.types.is_struct(type):
        return pa.struct([plain_field(part) for part in type])
    return pa.list_(plain_field(type.value_field)) if pa.types.is_list(type) else type


def outer_type(type: pa.DataType) -> pa.DataType:
    """As `plain_type`, with the parts of nested types as they are."""
    t = pa.types
    if type.id in _PLAIN:
        return type
    if isinstance(type, pa.BaseExtensionType):
        return pa.bool_() if type.extension_name == _BOOL8 else outer_type(type.storage_type)
    if t.is_dictionary(type) or t.is_run_end_encoded(type):
        return outer_type(type.value_type)
    if t.is_large_string(type) or t.is_string_view(type):
        return pa.string()
    if t.is_large_binary(type) or t.is_binary_view(type):
        return pa.binary()
    return pa.list_(type.value_field) if _is_list(type) else type


def plain_field(field: pa.Field) -> pa.Field:
    """The field with its `plain_type`."""
    return field.with_type(plain_type(field.type))


def plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The values in the plain layout; the array itself if it has it. A list that is null, or within a null, is empty,
    and structs begin with their buffers: see `based`.

    Raises `InvalidInput` for lists that reach beyond their elements, and for values that together do not fit 32-bit
    offsets: see `pieces`.
    """
    if isinstance(array, pa.Array):
        return _plain(array, None)
    chunks = [_plain(chunk, None) for chunk in array.chunks]
    if len(chunks) == 1:
        return chunks[0]
    try:
        return pa.concat_arrays(chunks) if chunks else pa.array([], plain_type(array.type))
    except pa.ArrowInvalid as error:  # Offsets overflow.
        raise InvalidInput(f"{len(array)} values are together too large for one array: {error}") from error


def plain_batches(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of another library's batch in the plain layout, in batches of at most `most_bytes`, or of one row.

    Raises `InvalidInput` for arrays whose buffers are not those of their type, and for text that is not UTF-8.
    """
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"the data is not valid Arrow: {error}") from error
    schema: pa.Schema | None = None
    for piece in pieces(batch, most_bytes):
        columns = piece.columns
        plain_columns = [plain(column) for column in columns]
        if all(one is other for one, other in zip(columns, plain_columns, strict=True)):
            yield piece
            continue
        schema = schema or pa.schema([plain_field(field) for field in batch.schema])
        yield pa.RecordBatch.from_arrays(plain_columns, schema=schema)


def pieces(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices that take at most `most_bytes` in the plain layout, or have one row."""
    if all(_is_sized(column.type) for column in batch.columns) and batch.nbytes <= most_bytes:
        yield batch
        return
    ends = np.cumsum(row_bytes(batch))
    start = 0
    while start < batch.num_rows:
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + most_bytes, "right")))
        yield batch.slice(start, end - start)
        start = end


def based(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without slices of structs within its columns, of which DuckDB (1.5) and pyarrow (the keys of maps, in
    26) read the rows from the start of the buffers."""
    columns = batch.columns
    if all(_is_based(column) for column in columns):
        return batch
    return pa.RecordBatch.from_arrays([plain(column) for column in columns], schema=batch.schema)


def row_bytes(batch: pa.RecordBatch) -> np.ndarray:
    """For each row about how many bytes it takes in the plain layout."""
    return sum((_value_bytes(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64))


def map_entries(type: Any, keys: pa.Array, values: pa.Array) -> pa.StructArray:
    """The entries of a map of this type. Raises `InvalidInput` for null keys."""
    if keys.null_count:  # Asked for in any case: Arrow 25 aborts at keys whose nulls nobody has counted.
        raise InvalidInput(f"{type}: {keys.null_count} keys are null; a map has no null key")
    return pa.StructArray.from_arrays([keys, values], fields=[type.key_field, type.item_field])


def float_ordinals(values: np.ndarray) -> np.ndarray:
    """One int64 per float64 that orders the values as Java's Double.compare: -0.0 below 0.0, and one NaN, above all."""
    bits = np.where(np.isnan(values), np.float64("nan"), values).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)


def comparable(column: pa.Array) -> pa.Array:
    """Values that Arrow orders and compares as Java does those of the column: of floats the ordinals. To Arrow no NaN
    equals another, or, by hash, only one of the same bits."""
    if not pa.types.is_floating(column.type):
        return column
    values = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(float_ordinals(values), mask=np.asarray(column.is_null()))


# --- private ----------------------------------------------------------------------------------------------------------

# Ids of types with a single layout, which is plain.
_PLAIN = frozenset(
    type.id
    for type in (
        *(pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
        *(pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1), pa.string(), pa.binary(), pa.binary(1)),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.duration("us")),
    )
)


def _is_list(type: pa.DataType) -> bool:
    t = pa.types
    return t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type) or _is_list_view(type)


def _is_list_view(type: pa.DataType) -> bool:
    return pa.types.is_list_view(type) or pa.types.is_large_list_view(type)


def _is_sized(type: pa.DataType) -> bool:
    """Whether the bytes of an array of the type, as Arrow counts them, are at least about those of the plain layout."""
    if type.id in _PLAIN:
        return True
    if pa.types.is_struct(type):
        return all(_is_sized(part.type) for part in type)
    if pa.types.is_map(type):
        return _is_sized(type.key_type) and _is_sized(type.item_type)
    if pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type):
        return _is_sized(type.value_type)
    return pa.types.is_large_string(type) or pa.types.is_large_binary(type)


def _is_based(array: Any) -> bool:
    if pa.types.is_struct(array.type):
        return not array.offset and all(_is_based(array.field(index)) for index in range(array.type.num_fields))
    return not (_is_list(array.type) or pa.types.is_map(array.type)) or _is_based(array.values)


def _validity(array: pa.Array) -> pa.Buffer | None:
    return array.is_valid().buffers()[1] if array.null_count else None


def _runs(array: Any) -> np.ndarray:
    """For each value the index of its run."""
    return np.searchsorted(array.run_ends.to_numpy(), np.arange(array.offset, array.offset + len(array)), "right")


def _with_small_offsets(array: pa.Array) -> pa.Array:
    offsets = spans.offsets_of(array)
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first > MOST:
        raise InvalidInput(
            f"values of {last - first} bytes together; an array takes {MOST}, and so does a single value"
        )
    data = array.buffers()[2]
    data = pa.py_buffer(b"") if data is None else data.slice(first, last - first)
    small = pa.py_buffer((offsets - first).astype(np.int32))
    return pa.Array.from_buffers(plain_type(array.type), len(array), [_validity(array), small, data])


def _plain(array: Any, hidden: np.ndarray | None) -> Any:
    """As `plain`. `hidden`: which values are within a null."""
    type, t = array.type, pa.types
    if type.id in _PLAIN:
        return array
    if isinstance(array, pa.ExtensionArray):
        storage = _plain(array.storage, hidden)
        return storage.cast(pa.bool_()) if type.extension_name == _BOOL8 else storage
    if t.is_dictionary(type):
        return _plain(_plain(array.dictionary, None).take(array.indices), hidden)
    if t.is_run_end_encoded(type):
        return _plain(_plain(array.values, None).take(pa.array(_runs(array))), hidden)
    if t.is_large_string(type) or t.is_large_binary(type):
        return _with_small_offsets(array)
    if t.is_string_view(type) or t.is_binary_view(type):
        return array.cast(outer_type(type))
    if t.is_struct(type):
        return _plain_struct(array, hidden)
    return _plain_list(array, hidden) if _is_list(type) or t.is_map(type) else array


def _plain_struct(array: Any, hidden: np.ndarray | None) -> pa.Array:
    if array.null_count:
        nulls = ~np.asarray(array.is_valid())
        hidden = nulls if hidden is None else nulls | hidden
    parts = [array.field(index) for index in range(array.type.num_fields)]
    plain_parts = [_plain(part, hidden) for part in parts]
    if not array.offset and all(one is other for one, other in zip(parts, plain_parts, strict=True)):
        return array
    return pa.Array.from_buffers(plain_type(array.type), len(array), [_validity(array)], children=plain_parts)


def _plain_list(array: Any, hidden: np.ndarray | None) -> pa.Array:
    """A list or map with the elements of its rows alone."""
    type, values = plain_type(array.type), array.values
    starts, counts, stored = _extents(array)
    if hidden is not None:
        counts = np.where(hidden, 0, counts)
    ends, used = starts + counts, np.flatnonzero(counts)
    is_dense = bool((starts[used][1:] == ends[used][:-1]).all())
    first, last = (int(starts[used].min()), int(ends[used].max())) if len(used) else (0, 0)
    span = values.slice(first, last - first)
    inner = _plain(span, None)
    if type == array.type and is_dense and inner is span and bool((stored == counts).all()):
        return array
    if not is_dense:
        inner = inner.take(pa.array(spans.ranges(starts[used] - first, counts[used])))
    if len(inner) > MOST:
        raise InvalidInput(f"{array.type}: {len(inner)} elements; an array takes {MOST}, and so does a single list")
    if pa.types.is_map(type):  # The names of its entries may be others.
        inner = map_entries(type, inner.field(0), inner.field(1))
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.Array.from_buffers(type, len(array), [_validity(array), pa.py_buffer(offsets)], children=[inner])


def _extents(array: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each list (its first element, how many it has, how many are stored for it: also for a null)."""
    length, type = len(array), array.type
    if pa.types.is_fixed_size_list(type):
        starts = (np.arange(length) + array.offset) * type.list_size
        stored = np.full(length, type.list_size)
    elif _is_list_view(type):
        starts, stored = (_integers(array, index, type) for index in (1, 2))
    else:
        offsets = _integers(array, 1, type, 1)
        starts, stored = offsets[:-1], np.diff(offsets)
    counts = np.where(np.asarray(array.is_valid()), stored, 0) if array.null_count else stored
    if length and (
        starts[counts != 0].min(initial=0) < 0
        or counts.min() < 0
        or (starts + counts)[counts != 0].max(initial=0) > len(array.values)
    ):
        raise InvalidInput(f"{array.type}: a list reaches beyond the {len(array.values)} elements of all lists")
    return starts, counts, stored


def _integers(array: Any, index: int, type: pa.DataType, more: int = 0) -> np.ndarray:
    """The offsets or sizes of the lists of an array, and `more` behind them."""
    buffer = array.buffers()[index]
    if buffer is None or not len(array):
        return np.zeros(len(array) + more, np.int64)
    is_large = pa.types.is_large_list(type) or pa.types.is_large_list_view(type)
    numbers = np.frombuffer(buffer, np.int64 if is_large else np.int32)
    return numbers[array.offset : array.offset + len(array) + more].astype(np.int64)


def _value_bytes(array: Any) -> np.ndarray:
    type, t, count = array.type, pa.types, len(array)
    if isinstance(array, pa.ExtensionArray):
        return _value_bytes(array.storage)
    if t.is_dictionary(type):
        indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return _value_bytes(array.dictionary)[indices] if len(array.dictionary) else np.ones(count, np.int64)
    if t.is_run_end_encoded(type):
        return _value_bytes(array.values)[_runs(array)]
    if t.is_string_view(type) or t.is_binary_view(type):
        lengths = np.frombuffer(array.buffers()[1] or b"", np.int32)[::4][array.offset : array.offset + count]
        return np.where(np.asarray(array.is_valid()), lengths, 0) + 4
    if t.is_string(type) or t.is_binary(type) or t.is_large_string(type) or t.is_large_binary(type):
        return np.diff(spans.offsets_of(array)).astype(np.int64) + 4
    if t.is_struct(type):
        return sum((_value_bytes(array.field(i)) for i in range(type.num_fields)), np.ones(count, np.int64))
    if _is_list(type) or t.is_map(type):
        starts, counts, _ = _extents(array)
        ends = np.concatenate([[0], np.cumsum(_value_bytes(array.values))])
        return (
            np.where(
                counts != 0, ends[np.where(counts != 0, starts + counts, 0)] - ends[np.where(counts != 0, starts, 0)], 0
            )
            + 4
        )
    if type.id in _PLAIN and not t.is_null(type):
        return np.full(count, (type.bit_width + 7) // 8)
    return np.full(count, max(1, array.nbytes // max(count, 1)))
