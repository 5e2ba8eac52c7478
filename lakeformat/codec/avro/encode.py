"""Arrow columns -> Avro records, all records at once.

Each field becomes a column of byte strings, one per record ("pieces"); the concatenated pieces of a record are its
bytes. Nested values work the same way: the items of a list are joined into one byte string each, and the items of one
list are already adjacent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import decimals, spans
from lakeformat.codec.avro.schema import Array, Choice, Leaf, Map, Member, Node, Record
from lakeformat.errors import InvalidInput

_SLICE_BYTES, _SLICE_ROWS = 64 << 20, 1 << 17  # The most bytes and rows that are encoded together.


def blocks(record: Record, null_at: int | None, table: pa.Table, block_bytes: int) -> Iterator[tuple[int, memoryview]]:
    """(number of records, their bytes) of each block; a block ends when it holds `block_bytes`.

    With `null_at` every record is preceded by its branch in a union with null. Raises `InvalidInput` if a column does
    not match its field.
    """
    unknown = set(table.column_names) - {member.name for member in record.members}
    if unknown or len(set(table.column_names)) < table.num_columns:
        raise InvalidInput(f"the Avro schema has no place for {sorted(unknown) or 'columns of one name'}")
    step = max(1, min(_SLICE_ROWS, table.num_rows * _SLICE_BYTES // max(1, table.nbytes)))
    for first in range(0, table.num_rows, step):
        for rows in _rows(record, null_at, table.slice(first, step)):
            yield from _cut(rows, block_bytes)


def varint(value: int) -> bytes:
    """A non-negative number in Avro's encoding."""
    folded = value << 1
    out = bytearray()
    while folded > 0x7F:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


def _rows(record: Record, null_at: int | None, table: pa.Table) -> Iterator[pa.Array]:
    """The bytes of each record; in several arrays if one would exceed Arrow's 32-bit offsets."""
    try:
        pieces = _record(record, {name: _whole(table[name]) for name in table.column_names}, table.num_rows, "")
        if null_at is not None:
            pieces.insert(0, _constant(2 - 2 * null_at, table.num_rows))
        rows = _joined(pieces, table.num_rows)
    except pa.ArrowException as error:
        if table.num_rows == 1:
            raise InvalidInput(f"a record cannot be written as Avro; one takes 2 GiB at most: {error}") from error
    else:
        yield rows
        return
    half = table.num_rows // 2
    yield from _rows(record, null_at, table.slice(0, half))
    yield from _rows(record, null_at, table.slice(half))


def _cut(rows: pa.Array, block_bytes: int) -> Iterator[tuple[int, memoryview]]:
    offsets = spans.offsets_of(rows).astype(np.int64)
    data = memoryview(rows.buffers()[2] or b"")
    first = 0
    while first < len(rows):
        last = int(np.searchsorted(offsets, offsets[first] + block_bytes))
        last = min(max(last, first + 1), len(rows))
        yield last - first, data[offsets[first] : offsets[last]]
        first = last


# One part of every record: byte strings, or (records, size) uint8 if all have the same size.
_Piece: TypeAlias = pa.Array | np.ndarray


def _record(record: Record, columns: dict[str, pa.Array], count: int, path: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    for member in record.members:
        column = columns.get(member.name)
        where = f"{path}.{member.name}" if path else member.name
        if column is None:
            pieces += _absent(member, count, where)
        else:
            pieces += _pieces(member.node, column, where)
    return pieces


def _absent(member: Member, count: int, path: str) -> list[_Piece]:
    if member.node == Leaf("null"):
        return []
    if isinstance(member.node, Choice) and member.node.null_at is not None:
        return [_constant(2 * member.node.null_at, count)]
    raise InvalidInput(f"{path}: the Avro schema needs it, and the table has no such column")


def _pieces(node: Node, array: Any, path: str) -> list[_Piece]:
    """The bytes of each value, in parts to be concatenated."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(node, Choice):
        return _choice(node, array, path)
    if node == Leaf("null"):
        if array.null_count < len(array):
            raise InvalidInput(f"{path}: the Avro schema says null, and the column holds values")
        return []
    if array.null_count:
        raise InvalidInput(f"{path}: the Avro schema allows no null, and the column holds {array.null_count}")
    match node:
        case Leaf():
            return _leaf(node, array, path)
        case Record() if pa.types.is_struct(array.type):
            names = [array.type.field(i).name for i in range(array.type.num_fields)]
            unknown = set(names) - {member.name for member in node.members}
            if unknown:
                raise InvalidInput(f"{path}: the Avro schema has no place for {sorted(unknown)}")
            return _record(node, {name: array.field(i) for i, name in enumerate(names)}, len(array), path)
        case Array(item) | Map(item):
            return _items(node, item, array, path)
    raise InvalidInput(f"{path}: a column of {array.type} does not fit the Avro schema")


def _choice(node: Choice, array: pa.Array, path: str) -> list[_Piece]:
    count = len(array)
    if node.null_at is None:
        return [_constant(0, count), *_pieces(node.inner, array, path)]
    null, value = 2 * node.null_at, 2 - 2 * node.null_at
    if not array.null_count:
        return [_constant(value, count), *_pieces(node.inner, array, path)]
    if array.null_count == count:
        return [_constant(null, count)]
    present = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    branch = np.where(present, value, null).astype(np.uint8)
    inside = _arrays(_pieces(node.inner, array.drop_null(), path))
    before = np.concatenate([[0], np.cumsum(present)])
    return [
        _single_bytes(branch),
        *(spans.binary(spans.offsets_of(branch)[before], branch.buffers()[2]) for branch in inside),
    ]


def _items(node: Node, item: Node, array: Any, path: str) -> list[_Piece]:
    if pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        array = _cast(array, pa.list_(array.type.value_field), path)
    first = spans.offsets_of(array)
    begin, length = int(first[0]), int(first[-1] - first[0])
    if pa.types.is_map(array.type):
        pairs = array.values.slice(begin, length)
        values = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], ["key", "value"])
    elif pa.types.is_list(array.type) and isinstance(node, Array):
        values = array.values.slice(begin, length)
    else:
        raise InvalidInput(f"{path}: a column of {array.type} does not fit the Avro schema")
    first = first - begin
    counts = np.diff(first)
    if not counts.any():
        return [_constant(0, len(array))]
    inside = _joined(_pieces(item, values, f"{path}[]"), len(values))
    (heads,) = _arrays([_varints(counts[counts > 0])])
    filled = np.concatenate([[0], np.cumsum(counts > 0)])
    head = spans.binary(spans.offsets_of(heads)[filled], heads.buffers()[2])
    return [head, spans.binary(spans.offsets_of(inside)[first], inside.buffers()[2]), _constant(0, len(array))]


_INTEGERS = {"int": pa.int32(), "long": pa.int64()}


def _leaf(node: Leaf, array: pa.Array, path: str) -> list[_Piece]:
    match node.kind:
        case "boolean":
            values = _cast(array, pa.bool_(), path).to_numpy(zero_copy_only=False)
            return [_single_bytes(values.astype(np.uint8))]
        case "int" | "long":
            return [_varints(_integers(node, array, path))]
        case "float":
            return [_numbers(_cast(array, pa.float32(), path), "<f4").view(np.uint8).reshape(-1, 4)]
        case "double":
            return [_numbers(_cast(array, pa.float64(), path), "<f8").view(np.uint8).reshape(-1, 8)]
        case "enum":
            index = pc.index_in(_cast(array, pa.string(), path), pa.array(node.symbols, pa.string()))
            if index.null_count:
                raise InvalidInput(f"{path}: not all values are among the enum's symbols {', '.join(node.symbols)}")
            return [_varints(index.to_numpy().astype(np.int64))]
        case "fixed":
            if pa.types.is_decimal(array.type):
                return [_unscaled(node, array, path)[:, ::-1][:, -node.size :]]
            data = _cast(array, pa.binary(node.size), path)
            flat = np.frombuffer(data.buffers()[1] or b"", np.uint8)[data.offset * node.size :]
            return [flat[: len(data) * node.size].reshape(len(data), node.size)]
        case "bytes" if pa.types.is_decimal(array.type):
            text = _shortest(_unscaled(node, array, path))
        case _:
            text = _cast(_cast(array, pa.string(), path) if node.kind == "string" else array, pa.binary(), path)
    return [_varints(np.diff(spans.offsets_of(text))), text]


def _integers(node: Leaf, array: pa.Array, path: str) -> np.ndarray:
    """The column as int64: dates, times and timestamps in the schema's unit."""
    if node.arrow is not None and not pa.types.is_integer(array.type):
        target = node.arrow
        if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type):
            target = pa.timestamp(target.unit, array.type.tz)
        array = _cast(array, target, path)
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type) or pa.types.is_boolean(array.type):
        raise InvalidInput(f"{path}: a column of {array.type} does not fit Avro's {node.kind}")
    if pa.types.is_time32(array.type) or pa.types.is_date32(array.type):
        array = _cast(array, pa.int32(), path)
    whole = _cast(_cast(array, _INTEGERS[node.kind], path), pa.int64(), path)
    return _numbers(whole, np.int64)


def _unscaled(node: Leaf, array: pa.Array, path: str) -> np.ndarray:
    """Decimals as (rows, 16) little-endian bytes."""
    if node.arrow is None:
        raise InvalidInput(f"{path}: a column of {array.type}, and the Avro schema says no decimal")
    cast = _cast(array, node.arrow, path)
    wide = decimals.little_endian(cast)
    if node.kind == "fixed":
        if node.size > 16:
            fill = np.where(wide[:, 15:] >= 0x80, 0xFF, 0).astype(np.uint8)
            return np.hstack([wide, np.repeat(fill, node.size - 16, axis=1)])
        if (decimals.sizes(wide) > node.size).any():
            raise InvalidInput(f"{path}: a value of {node.arrow} needs more than the schema's {node.size} bytes")
    return wide


def _shortest(wide: np.ndarray) -> pa.Array:
    """Big-endian two's complement in the fewest bytes."""
    needed = decimals.sizes(wide)
    data = wide[:, ::-1][np.arange(16) >= 16 - needed[:, None]]
    return spans.binary(np.concatenate([[0], np.cumsum(needed)]), data)


def _varints(values: np.ndarray) -> _Piece:
    """Integers as zig-zag varints."""
    signed = values.astype(np.int64)
    folded = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    largest = int(folded.max(initial=0))
    if largest < 0x80:
        return _single_bytes(folded.astype(np.uint8))
    longest = -(-largest.bit_length() // 7)
    sizes = np.ones(len(signed), np.int64)
    for k in range(1, longest):
        sizes += folded >= np.uint64(1 << 7 * k)
    groups = np.empty((len(signed), longest), np.uint8)
    for k in range(longest):
        groups[:, k] = (folded >> np.uint64(7 * k)).astype(np.uint8) | np.uint8(0x80)
    groups[np.arange(len(signed)), sizes - 1] &= np.uint8(0x7F)
    if sizes.min() == longest:
        return groups
    return spans.binary(np.concatenate([[0], np.cumsum(sizes)]), groups[np.arange(longest) < sizes[:, None]])


def _numbers(array: pa.Array, dtype: object) -> np.ndarray:
    return np.ascontiguousarray(array.to_numpy(zero_copy_only=False), dtype=dtype)  # type: ignore[call-overload]  # The type of numpy is chosen at run time.


def _constant(byte: int, count: int) -> _Piece:
    return np.full((count, 1), byte, np.uint8)


def _single_bytes(data: np.ndarray) -> _Piece:
    return data.reshape(-1, 1)


def _arrays(pieces: list[_Piece]) -> list[pa.Array]:
    """The pieces as arrays; adjacent pieces of fixed size become one array."""
    arrays: list[pa.Array] = []
    for flat, group in itertools.groupby(pieces, lambda piece: isinstance(piece, np.ndarray)):
        neighbours: list[Any] = list(group)
        if flat:
            side_by_side: np.ndarray = np.hstack(neighbours)
            arrays.append(spans.fixed(side_by_side.reshape(-1), side_by_side.shape[1], len(side_by_side)))
        else:
            arrays += neighbours
    return arrays


def _joined(pieces: list[_Piece], count: int) -> pa.Array:
    return spans.join(_arrays(pieces), count)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _cast(array: pa.Array, type: pa.DataType, path: str) -> pa.Array:
    try:
        return array if array.type == type else array.cast(type)
    except pa.ArrowException as error:
        raise InvalidInput(f"{path}: {error}") from error
