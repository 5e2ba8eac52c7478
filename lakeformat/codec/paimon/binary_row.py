"""Paimon's BinaryRow, the bytes of keys, partitions and statistics: whole columns to rows and back.

A row: null bits (the first byte is the row kind, here always 0 = +I), a slot of 8 bytes per field, then the
variable-length part with the values that do not fit a slot. All little-endian. (paimon-common: BinaryRow,
AbstractBinaryWriter, RowHelper.)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import decimals, spans
from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import CorruptFile, InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type, scalar

ARITY_BYTES = 4  # In manifests, rows are preceded by their arity, big-endian.


def encode(columns: Sequence[pa.Array], types: Sequence[Type]) -> pa.Array:
    """One row per row of `columns`, without the arity.

    Columns are cast to the Arrow types of `codec.arrow` if they have others. Raises `InvalidInput` if the cast loses
    data, and `UnsupportedFeature` for types that Paimon's rows do not hold.
    """
    if len(columns) != len(types) or not columns:
        raise InvalidInput(f"{len(columns)} columns for {len(types)} types; a BinaryRow needs one of each, at least")
    whole = [_column(column, type) for column, type in zip(columns, types, strict=True)]
    few = _few(whole, types) if len(whole[0]) <= _FEW and all(map(_is_packed, types)) else None
    return _rows([_part(column, type, True) for column, type in zip(whole, types, strict=True)]) if few is None else few


def encode_row(values: Sequence[Any], types: Sequence[Type]) -> bytes:
    """One row of Python values, without the arity."""
    if not types and not values:
        return bytes(_null_bytes(0))
    try:
        columns = [pa.array([v], to_arrow(t)) for v, t in zip(values, types, strict=True)]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"values {tuple(values)!r} are not of types {', '.join(map(str, types))}: {error}"
        ) from error
    return bytes(encode(columns, types)[0].as_buffer())


def with_arity(rows: pa.Array, arity: int) -> pa.Array:
    """Rows as manifests store them: preceded by their arity."""
    head = pa.scalar(arity.to_bytes(ARITY_BYTES, "big"), pa.binary())
    return pc.binary_join_element_wise(head, rows, pa.scalar(b"", pa.binary()))


def decode(
    rows: pa.Array | pa.ChunkedArray, types: Sequence[Type], places: Sequence[int] | None = None
) -> list[pa.Array]:
    """The fields of rows as manifests store them, one array per type; all null for a null row. With `places`, only the
    fields with these indexes.

    Raises `CorruptFile` for rows that are not of these types, and `UnsupportedFeature` for values of collections, for
    which Paimon keeps no statistics.
    """
    if isinstance(rows, pa.ChunkedArray):
        return decode(pa.concat_arrays(rows.chunks) if rows.num_chunks else pa.array([], pa.binary()), types, places)
    places = range(len(types)) if places is None else places
    if 0 < len(rows) <= _FEW and all(_is_packed(types[i]) for i in places):
        few = _few_values(rows.to_pylist(), types, places)
        if few is not None:
            return few
    mask = rows.is_null().to_numpy(zero_copy_only=False) if rows.null_count else None
    if mask is not None:
        blank = encode_row([None] * len(types), types)
        rows = rows.fill_null(len(types).to_bytes(ARITY_BYTES, "big") + blank)
    data, offsets = spans.padded(rows)
    begin, end = offsets[:-1], offsets[1:]
    fixed = _null_bytes(len(types)) + 8 * len(types)
    short = (end - begin) < ARITY_BYTES + fixed
    if short.any():
        size = int((end - begin)[short][0])
        raise CorruptFile(f"a BinaryRow of {size} bytes; {len(types)} fields take {ARITY_BYTES + fixed} at least")
    arities = data[begin[:, None] + np.arange(ARITY_BYTES)].astype(np.int64) @ (1 << np.array([24, 16, 8, 0]))
    if (arities != len(types)).any():
        raise CorruptFile(f"a BinaryRow says {arities[arities != len(types)][0]} fields where there are {len(types)}")
    source = _Source(data, spans.words(data), begin + ARITY_BYTES, end, _null_bytes(len(types)))
    return [_values(source, i, types[i]) for i in places]


def _null_bytes(arity: int) -> int:
    return (arity + 63 + 8) // 64 * 8


_TEXT = (Kind.CHAR, Kind.VARCHAR, Kind.STRING)
_BYTES = (Kind.BINARY, Kind.VARBINARY, Kind.BYTES)
_PLAIN: dict[Kind, tuple[int, Any, Any]] = {  # Bytes in a slot, numpy's type of them, and the type of the values.
    Kind.BOOLEAN: (1, np.uint8, np.uint8),
    Kind.TINYINT: (1, np.uint8, np.int8),
    Kind.SMALLINT: (2, np.uint16, np.int16),
    Kind.INT: (4, np.uint32, np.int32),
    Kind.DATE: (4, np.uint32, np.int32),
    Kind.TIME: (4, np.uint32, np.int32),
    Kind.BIGINT: (8, np.uint64, np.int64),
    Kind.FLOAT: (4, np.uint32, np.float32),
    Kind.DOUBLE: (8, np.uint64, np.float64),
}
_PACKED = {
    Kind.BOOLEAN: struct.Struct("<?"),
    Kind.TINYINT: struct.Struct("<b"),
    Kind.SMALLINT: struct.Struct("<h"),
    Kind.INT: struct.Struct("<i"),
    Kind.DATE: struct.Struct("<i"),
    Kind.TIME: struct.Struct("<i"),
    Kind.BIGINT: struct.Struct("<q"),
    Kind.FLOAT: struct.Struct("<f"),
    Kind.DOUBLE: struct.Struct("<d"),
}
_OFFSET = np.uint64(32)
_NANOS = {"ms": 1_000_000, "us": 1_000, "ns": 1}


@dataclass(frozen=True, slots=True)
class _Part:
    """A column being encoded: its slots; those in `refers` refer to `beside` and lack their offsets yet."""

    slots: np.ndarray  # uint64
    nulls: np.ndarray  # bool
    refers: np.ndarray | None = None  # bool
    beside: pa.Array | None = None  # Variable-length parts, padded to 8 bytes; empty if not referred to.


def _column(array: pa.Array, type: Type) -> pa.Array:
    target = to_arrow(type)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    try:
        return array if array.type == target else array.cast(target)
    except pa.ArrowException as error:
        raise InvalidInput(f"a column of {array.type} as {type}: {error}") from error


def _rows(parts: list[_Part]) -> pa.Array:
    count, arity = len(parts[0].slots), len(parts)
    head = _null_bytes(arity)
    table = np.zeros((count, head + 8 * arity), np.uint8)
    slots = np.empty((count, arity), "<u8")
    offset = np.full(count, head + 8 * arity, np.uint64)
    beside = []
    for i, part in enumerate(parts):
        table[:, (i + 8) // 8] |= part.nulls.astype(np.uint8) << np.uint8((i + 8) % 8)
        slots[:, i] = part.slots
        if part.beside is not None:
            assert part.refers is not None, part
            slots[:, i] |= np.where(part.refers, offset << _OFFSET, np.uint64(0))
            offset += np.diff(spans.offsets_of(part.beside)).astype(np.uint64)
            beside.append(part.beside)
    table[:, head:] = slots.view(np.uint8)
    return spans.join([spans.fixed(table.reshape(-1), table.shape[1], count), *beside], count)


_FEW = 16  # Below this many rows, a loop over values costs less than numpy's calls.


def _is_packed(type: Type) -> bool:
    return isinstance(type, Scalar) and (type.kind in _PACKED or type.kind in _TEXT or type.kind in _BYTES)


def _few(columns: list[pa.Array], types: Sequence[Type]) -> pa.Array | None:
    """As `_rows`, value by value; None if columns differ in length or a text is not UTF-8."""
    head = _null_bytes(len(types))
    try:
        packed = [_packed(column, type) for column, type in zip(columns, types, strict=True)]
        rows = list(zip(*packed, strict=True))
    except (UnicodeDecodeError, ValueError):
        return None
    encoded = []
    for row in rows:
        nulls, slots, beside = 0, bytearray(), bytearray()
        for index, value in enumerate(row, 8):
            if value is None:
                nulls |= 1 << index
                slots += bytes(8)
            elif isinstance(value, int):
                slots += value.to_bytes(8, "little")
            elif len(value) <= 7:
                slots += value.ljust(7, b"\0") + bytes([len(value) | 0x80])
            else:
                at = head + 8 * len(row) + len(beside)
                slots += len(value).to_bytes(4, "little") + at.to_bytes(4, "little")
                beside += value + bytes(-len(value) % 8)
        encoded.append(nulls.to_bytes(head, "little") + slots + beside)
    return pa.array(encoded, pa.binary())


def _few_values(rows: list[bytes | None], types: Sequence[Type], places: Sequence[int]) -> list[pa.Array] | None:
    """As `_values`, value by value; None if a row is null or damaged."""
    head, arity = ARITY_BYTES + _null_bytes(len(types)), len(types).to_bytes(ARITY_BYTES, "big")
    size = head + 8 * len(types)
    whole = [row for row in rows if row is not None and len(row) >= size and row.startswith(arity)]
    if len(whole) < len(rows):
        return None
    decoded = []
    for position in places:
        type, bit, offset = types[position], position + 8, head + 8 * position
        assert isinstance(type, Scalar), type
        is_null = [row[ARITY_BYTES + bit // 8] >> bit % 8 & 1 for row in whole]
        values: list[Any]
        if type.kind in _PACKED:
            form = _PACKED[type.kind]
            values = [
                None if null else form.unpack_from(row, offset)[0] for row, null in zip(whole, is_null, strict=True)
            ]
        else:
            values = [None if null else _bytes_at(row, offset) for row, null in zip(whole, is_null, strict=True)]
            if any(value is None and not null for value, null in zip(values, is_null, strict=True)):
                return None
        is_moment = type.kind in (Kind.DATE, Kind.TIME)
        arrow_type = pa.int32() if is_moment else pa.binary() if type.kind in _TEXT else to_arrow(type)
        try:
            decoded.append(pa.array(values, arrow_type).cast(to_arrow(type)))
        except pa.ArrowException:
            return None
    return decoded


def _bytes_at(row: bytes, offset: int) -> bytes | None:
    """The bytes in the slot at `offset`, or those that it refers to; None if they are outside the row."""
    size = row[offset + 7]
    if size & 0x80:
        return row[offset : offset + (size & 0x7F)] if size & 0x7F <= 7 else None
    size = int.from_bytes(row[offset : offset + 4], "little")
    first = ARITY_BYTES + int.from_bytes(row[offset + 4 : offset + 8], "little")
    return row[first : first + size] if first + size <= len(row) and (first < len(row) or not size) else None


def _packed(array: pa.Array, type: Type) -> list[int | bytes | None]:
    """Numbers as slots, text and bytes as bytes."""
    assert isinstance(type, Scalar), type
    if type.kind in _TEXT:
        return [None if text is None else text.encode() for text in array.to_pylist()]
    if type.kind in _BYTES:
        return list(array.to_pylist())
    form = _PACKED[type.kind]
    if type.kind in (Kind.DATE, Kind.TIME):
        array = array.cast(pa.int32())
    values = [math.nan if number != number else number for number in array.to_pylist()]
    return [None if value is None else int.from_bytes(form.pack(value), "little") for value in values]


def _part(array: pa.Array, type: Type, in_row: bool) -> _Part:
    """A column of the type's Arrow type. Not `in_row`: elements of a collection, in which nulls take no space."""
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    match type:
        case Scalar(kind) if kind in _PLAIN:
            return _Part(np.where(nulls, np.uint64(0), _plain(array, kind)), nulls)
        case Scalar(kind) if kind in _TEXT or kind in _BYTES:
            return _strings(array.cast(pa.binary()).fill_null(b""), nulls)
        case Scalar(Kind.DECIMAL, (precision, _)) if precision <= 18:
            unscaled = decimals.little_endian(array)[:, :8].copy().view("<u8").reshape(-1)
            return _Part(np.where(nulls, np.uint64(0), unscaled), nulls)
        case Scalar(Kind.DECIMAL):
            wide = np.where(nulls[:, None], np.uint8(0), decimals.little_endian(array))
            size = decimals.sizes(wide)
            # Highest byte first, left-aligned: byte k of the result is byte size-1-k of the value.
            position = size[:, None] - 1 - np.arange(16)
            moved = np.where(position >= 0, np.take_along_axis(wide, np.maximum(position, 0), 1), np.uint8(0))
            return _reserved(np.where(nulls, 0, size), nulls, moved.reshape(-1), 16, in_row)
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)):
            stamps = _int64(array)
            if digits <= 3:
                return _Part(stamps.view(np.uint64), nulls)
            unit = _NANOS[array.type.unit]
            millis, rest = np.divmod(stamps, 1_000_000 // unit)
            moved = np.where(nulls, 0, millis).astype("<i8").view(np.uint8)
            return _reserved(np.where(nulls, 0, rest * unit), nulls, moved, 8, in_row)
        case Row(fields):
            parts = [_part(pc.struct_field(array, [i]), f.type, True) for i, f in enumerate(fields)]
            return _blobs(_rows(parts), nulls)
        case ListOf(element):
            items, offsets = _items(array)
            return _blobs(_arrays(_part(items, element.type, False), _width(element.type), offsets), nulls)
        case MapOf() | MultisetOf():
            return _blobs(_map(array, type), nulls)
    raise UnsupportedFeature(f"type {type} has no form in Paimon's rows")


def _plain(array: pa.Array, kind: Kind) -> np.ndarray:
    """Values in the lowest bytes of a slot; every NaN becomes Java's canonical NaN."""
    size, unsigned, _ = _PLAIN[kind]
    if kind in (Kind.DATE, Kind.TIME):
        array = array.cast(pa.int32())
    values = array.fill_null(False if kind is Kind.BOOLEAN else 0).to_numpy(zero_copy_only=False)
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    values = values.astype(np.uint8) if kind is Kind.BOOLEAN else np.ascontiguousarray(values)
    assert values.itemsize == size, (kind, values.dtype)
    return values.view(unsigned).astype(np.uint64)


def _int64(array: pa.Array) -> np.ndarray:
    return np.ascontiguousarray(array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))


def _strings(array: pa.Array, nulls: np.ndarray) -> _Part:
    """Up to 7 bytes are stored in the slot, with the length in its last byte; longer values in the variable-length
    part."""
    data, offsets = spans.padded(array)
    size = np.diff(offsets)
    long = size > 7
    kept = np.minimum(size, 7).astype(np.uint64)
    word = (
        np.zeros(len(array), np.uint64)
        if len(data) <= spans.WORD
        else spans.words(data)[offsets[:-1].clip(0, len(data) - spans.WORD - 1)]
    )
    inline = word & ((np.uint64(1) << (kept * np.uint64(8))) - np.uint64(1))
    inline |= (kept | np.uint64(0x80)) << np.uint64(56)
    slots = np.where(long, size.astype(np.uint64), np.where(nulls, np.uint64(0), inline))
    if not long.any():
        return _Part(slots, nulls)
    beside = array if long.all() else pc.if_else(pa.array(long), array, pa.scalar(b"", pa.binary()))
    return _Part(slots, nulls, long, _filled(beside))


def _blobs(array: pa.Array, nulls: np.ndarray) -> _Part:
    """Values of any size in the variable-length part."""
    if nulls.any():
        array = pc.if_else(pa.array(nulls), pa.scalar(b"", pa.binary()), array)
    size = np.diff(spans.offsets_of(array)).astype(np.uint64)
    return _Part(size, nulls, ~nulls, _filled(array))


def _filled(array: pa.Array) -> pa.Array:
    """Each value padded with zeros to a multiple of 8 bytes."""
    lack = -np.diff(spans.offsets_of(array)).astype(np.int64) % 8
    if not lack.any():
        return array
    offsets = np.concatenate([[0], np.cumsum(lack)])
    return spans.join([array, spans.binary(offsets, np.zeros(int(offsets[-1]), np.uint8))], len(array))


def _reserved(slots: np.ndarray, nulls: np.ndarray, data: np.ndarray, size: int, in_row: bool) -> _Part:
    """Values of `size` bytes in the variable-length part; a null takes this space in a row, but not in a collection."""
    low = slots.astype(np.uint64)
    if in_row or not nulls.any():
        return _Part(low, nulls, np.ones(len(nulls), bool), spans.fixed(data, size, len(nulls)))
    offsets = np.concatenate([[0], np.cumsum(np.where(nulls, 0, size))])
    return _Part(low, nulls, ~nulls, spans.binary(offsets, data.reshape(-1, size)[~nulls]))


def _width(type: Type) -> int:
    """The bytes of an element of a collection."""
    return _PLAIN[type.kind][0] if isinstance(type, Scalar) and type.kind in _PLAIN else 8


def _items(array: Any) -> tuple[pa.Array, np.ndarray]:
    """(items of all lists, the offsets of each list in them); a null list is empty."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    return array.flatten(), np.concatenate([[0], np.cumsum(lengths)])


def _arrays(part: _Part, width: int, offsets: np.ndarray) -> pa.Array:
    """BinaryArrays: number of elements, null bits, elements of `width` bytes, then the variable-length part."""
    counts = np.diff(offsets)
    head = 4 + (counts + 31) // 32 * 4
    sizes = (head + width * counts + 7) // 8 * 8
    ends = np.cumsum(sizes)
    begins = ends - sizes
    position = np.arange(len(part.slots)) - np.repeat(offsets[:-1], counts)  # The index of each element in its array.
    slots = part.slots
    if part.beside is not None:
        assert part.refers is not None, part
        lengths = np.diff(spans.offsets_of(part.beside)).astype(np.int64)
        before = np.concatenate([[0], np.cumsum(lengths)])
        at = np.repeat(sizes - before[offsets[:-1]], counts) + before[:-1]
        slots = slots | np.where(part.refers, at.astype(np.uint64) << _OFFSET, np.uint64(0))
    data = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    data[begins[:, None] + np.arange(4)] = counts.astype("<u4").view(np.uint8).reshape(-1, 4)
    gone = np.flatnonzero(part.nulls)
    bits = np.repeat(begins, counts)[gone] + 4 + position[gone] // 8
    np.bitwise_or.at(data, bits, np.uint8(1) << (position[gone] % 8).astype(np.uint8))
    cells = np.repeat(begins + head, counts) + width * position
    data[cells[:, None] + np.arange(width)] = slots.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    pieces = [spans.binary(np.concatenate([[0], ends]), data)]
    if part.beside is not None:
        pieces.append(spans.binary(spans.offsets_of(part.beside)[offsets], part.beside.buffers()[2]))
    return spans.join(pieces, len(counts))


def _map(array: Any, type: MapOf | MultisetOf) -> pa.Array:
    """BinaryMaps: the byte size of the key array in 4 bytes, the array of keys, the array of values."""
    key = type.key.type if isinstance(type, MapOf) else type.element.type
    value = type.value.type if isinstance(type, MapOf) else scalar(Kind.INT)
    bounds = spans.offsets_of(array).astype(np.int64)
    starts, lengths = bounds[:-1], np.where(array.is_null().to_numpy(zero_copy_only=False), 0, np.diff(bounds))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    index = pa.array(spans.ranges(starts, lengths))
    keys = _arrays(_part(array.values.field(0).take(index), key, False), _width(key), offsets)
    values = _arrays(_part(array.values.field(1).take(index), value, False), _width(value), offsets)
    size = np.diff(spans.offsets_of(keys)).astype("<u4").view(np.uint8)
    return spans.join([spans.fixed(size, 4, len(array)), keys, values], len(array))


@dataclass(frozen=True, slots=True)
class _Source:
    """Rows to decode: `begin` is after the arity, and offsets count from there."""

    data: np.ndarray
    words: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    null_bytes: int

    def beside(
        self, slots: np.ndarray, size: np.ndarray, nulls: np.ndarray, type: Type
    ) -> tuple[np.ndarray, np.ndarray]:
        """The begin and end of what the slots refer to; both the row's begin for a null."""
        first = self.begin + (slots >> _OFFSET).astype(np.int64)
        last = first + size
        if (((last > self.end) | (first >= self.end)) & ~nulls & (size > 0)).any():
            raise CorruptFile(f"a BinaryRow's {type} lies outside of its row")
        return np.where(nulls, self.begin, first), np.where(nulls, self.begin, last)


def _values(source: _Source, i: int, type: Type) -> pa.Array:
    bits = source.data[source.begin + (i + 8) // 8]
    nulls = (bits >> np.uint8((i + 8) % 8)) & np.uint8(1) != 0
    offsets = source.begin + source.null_bytes + 8 * i
    slots = source.words[offsets]
    target = to_arrow(type)
    if nulls.all():
        return pa.nulls(len(nulls), target)
    low = (slots & np.uint64(0xFFFFFFFF)).astype(np.int64)
    match type:
        case Scalar(Kind.BOOLEAN):
            return pa.array(slots & np.uint64(0xFF) != 0, mask=nulls)
        case Scalar(kind) if kind in _PLAIN:
            _, unsigned, dtype = _PLAIN[kind]
            values = slots.astype(unsigned).view(dtype)
            return _relabelled(pa.array(values, mask=nulls), target, type)
        case Scalar(kind) if kind in _TEXT or kind in _BYTES:
            inline = slots >> np.uint64(63) != 0
            size = np.where(inline, ((slots >> np.uint64(56)) & np.uint64(0x7F)).astype(np.int64), low)
            if (inline & (size > 7) & ~nulls).any():
                raise CorruptFile(f"a BinaryRow's {type} says more bytes than its slot holds")
            first, last = source.beside(slots, np.where(inline, 0, size), nulls | inline, type)
            first, last = np.where(inline & ~nulls, offsets, first), np.where(inline & ~nulls, offsets + size, last)
            return _relabelled(spans.gather(source.data, first, last, nulls), target, type)
        case Scalar(Kind.DECIMAL, (precision, _)) if precision <= 18:
            return decimals.from_int64(slots.view(np.int64), target, nulls)
        case Scalar(Kind.DECIMAL):
            if ((low > 16) | (low < 1))[~nulls].any():
                raise CorruptFile(f"a BinaryRow's {type} is not of 1 to 16 bytes")
            first, last = source.beside(slots, low, nulls, type)
            return decimals.from_big_endian(source.data, first, last, target, nulls)
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)):
            stamps = slots.view(np.int64)
            if digits > 3:
                first, _ = source.beside(slots, np.full(len(nulls), 8), nulls, type)
                stamps = _stamps(source.words[first].view(np.int64), low, target, nulls, type)
            return pa.array(np.where(nulls, 0, stamps), mask=nulls).cast(target)
    raise UnsupportedFeature(f"values of {type} in a BinaryRow are not read; Paimon keeps no bounds of such columns")


def _stamps(millis: np.ndarray, nanos: np.ndarray, target: pa.DataType, nulls: np.ndarray, type: Type) -> np.ndarray:
    """Milliseconds, and nanoseconds within the millisecond, in the unit of `target`."""
    unit = _NANOS[target.unit]
    per_milli = 1_000_000 // unit
    limit = (1 << 63) // per_milli - 1
    if ((millis > limit) | (millis < -limit))[~nulls].any():
        raise UnsupportedFeature(f"a {type} beyond what 64 bits of {target.unit} can count")
    return np.where(nulls, 0, millis) * per_milli + nanos // unit


def _relabelled(array: pa.Array, target: pa.DataType, type: Type) -> pa.Array:
    try:
        return array if array.type == target else array.cast(target)
    except pa.ArrowException as error:
        raise CorruptFile(f"a BinaryRow's {type}: {error}") from error
