"""The bitmap and bit-slice indexes of a column of a data file, two of Paimon's file indexes (BitmapFileIndex,
BitSliceIndexBitmapFileIndex)."""

from __future__ import annotations

import array
import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lakeformat.codec import decimals, murmur
from lakeformat.errors import InvalidInput
from lakeformat.model.schema import Kind, Scalar, Type

_TEXTS = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.STRING})
_WIDTHS = {Kind.TINYINT: 1, Kind.SMALLINT: 2, Kind.INT: 4, Kind.BIGINT: 8, Kind.DATE: 4}  # Bytes of a value.
# Bytes of a value, for types whose indexes are written but not searched.
_STORED = {
    Kind.BOOLEAN: 1,
    Kind.TIME: 4,
    Kind.FLOAT: 4,
    Kind.TIMESTAMP: 8,
    Kind.TIMESTAMP_TZ: 8,
    Kind.DOUBLE: 8,
}
_TIMES = frozenset({Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ})
_LONG_DIGITS = 18  # Decimals of up to this many digits fit 64 bits.
# Least and greatest value, the rows with a value, the rows with each bit set.
_Slices = tuple[int, int, BitMap, list[BitMap]]


def in_bitmap(index: bytes, values: pa.Array, type: Type) -> bool:
    """Whether one of the values, without nulls, may have a bitmap (BitmapFileIndexMeta). In version 2 the values are
    sorted in blocks, and only the blocks that may hold one of the values are searched (BitmapFileIndexMetaV2)."""
    version, _, count, has_null = struct.unpack_from(">bii?", index)
    if version not in (1, 2) or not isinstance(type, Scalar):
        return True
    offset = 10 + (4 * version if has_null else 0)
    if type.kind in _TEXTS:  # Each text follows its length. A false match only means that the file is read.
        texts = values.cast(pa.large_binary()).to_pylist()
        return any(index.find(len(text).to_bytes(4, "big") + text, offset) >= 0 for text in texts)
    if (width := _WIDTHS.get(type.kind)) is None:
        return True
    numbers, entry = _numbers(values, type), [("value", f">i{width}"), ("offset", ">i4")]
    if version == 1:
        return bool(np.isin(numbers, np.frombuffer(index, entry, count, offset)["value"]).any())
    (blocks,) = struct.unpack_from(">i", index, offset)
    first = np.frombuffer(index, entry, blocks, offset + 4)
    start = offset + 4 + first.nbytes + 4
    block_of = np.searchsorted(first["value"], numbers, side="right") - 1
    for block in np.unique(block_of[block_of >= 0]).tolist():
        begin = start + int(first["offset"][block])
        (size,) = struct.unpack_from(">i", index, begin)
        block_values = np.frombuffer(index, [*entry, ("length", ">i4")], size, begin + 4)["value"]
        if np.isin(numbers[block_of == block], block_values).any():
            return True
    return False


def in_slices(index: bytes, values: pa.Array, type: Type) -> bool:
    """Whether a row may have one of the values, without nulls, by the bits. Negative values have slices of their own,
    by absolute value."""
    if not isinstance(type, Scalar) or type.kind not in _WIDTHS or index[0] != 1:
        return True
    at, parts = 5, list[_Slices | None]()
    for _ in range(2):
        part, at = _slices(index, at + 1) if index[at] else (None, at + 1)
        parts.append(part)
    return any(_has(parts[value < 0], abs(value)) for value in _numbers(values, type).tolist())


def has_bitmaps(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in _TEXTS | _WIDTHS.keys() | _STORED.keys()


def has_slices(type: Type) -> bool:
    match type:
        case Scalar(Kind.DECIMAL, (precision, _)):
            return precision <= _LONG_DIGITS
        case Scalar(kind):
            return kind in _WIDTHS.keys() | _TIMES
    return False


class Bitmaps:
    """The rows of each value, as Java writes them: a value of a single row has no bitmap, and the other bitmaps are in
    the iteration order of a Java `HashMap`, except for bins of more than eight values, which Java turns into trees."""

    def __init__(self, version: int, block_bytes: int) -> None:
        self._version, self._block_bytes = version, block_bytes
        self._parts: list[pa.Array] = []
        self._type: Type | None = None

    def add(self, values: pa.Array, type: Type) -> None:
        """Add values of a type in `has_bitmaps`."""
        self._parts.append(values.cast(pa.large_binary()) if _is_text(type) else pa.array(*_masked(values, type)))
        self._type = type

    def __bytes__(self) -> bytes:
        encoded = pa.chunked_array(self._parts).combine_chunks().dictionary_encode()
        codes = np.asarray(encoded.indices.fill_null(-1))
        order = np.argsort(codes, kind="stable")
        missing = int((codes < 0).sum())
        rows, nulls = order[missing:], order[:missing]
        counts = np.bincount(codes[rows], minlength=len(encoded.dictionary))
        starts = np.cumsum(counts) - counts
        null_bitmap = _serialized(nulls)
        body = [null_bitmap] if missing > 1 else []
        offsets, lengths, offset = -1 - rows[starts], np.full(len(counts), -1, np.int64), sum(map(len, body))
        in_order = self._in_order(encoded.dictionary, counts, codes)
        for code in in_order[counts[in_order] > 1].tolist():
            body.append(_serialized(rows[starts[code] : starts[code] + counts[code]]))
            offsets[code], lengths[code] = offset, len(body[-1])
            offset += len(body[-1])
        head = struct.pack(">bii?", self._version, len(codes), len(counts), missing > 0)
        if missing:
            head += struct.pack(">i", -1 - int(nulls[0]) if missing == 1 else 0)
            head += struct.pack(">i", len(null_bitmap)) if self._version > 1 else b""
        if self._version == 1:
            return head + self._entries(encoded.dictionary, in_order, offsets[in_order]) + b"".join(body)
        by_value = self._sorted(encoded.dictionary)
        return head + self._blocks(encoded.dictionary, by_value, offsets, lengths) + b"".join(body)

    def _blocks(self, values: pa.Array, order: np.ndarray, offsets: np.ndarray, lengths: np.ndarray) -> bytes:
        """The sorted values in blocks, after the first value of each block."""
        ends = np.cumsum(8 + self._sizes(values)[order])
        cuts = [0]
        while cuts[-1] < len(order):
            before = ends[cuts[-1] - 1] if cuts[-1] else 0
            # A value larger than a block gets a block of its own.
            cuts.append(max(int(np.searchsorted(ends, before + self._block_bytes - 4, side="right")), cuts[-1] + 1))
        blocks = [
            struct.pack(">i", end - start)
            + self._entries(values, part := order[start:end], offsets[part], lengths[part])
            for start, end in pairwise(cuts)
        ]
        first = order[np.array(cuts[:-1], np.int64)]
        begin = np.cumsum([0, *(len(block) for block in blocks)])
        head = struct.pack(">i", len(blocks)) + self._entries(values, first, begin[:-1])
        return head + struct.pack(">i", int(begin[-1])) + b"".join(blocks)

    def _entries(self, values: pa.Array, order: np.ndarray, *numbers: np.ndarray) -> bytes:
        """Values, each followed by its numbers."""
        tail = np.stack(numbers, axis=1).astype(">i4").view(np.uint8).reshape(len(order), 4 * len(numbers))
        if not _is_text(self._type):
            width = self._width()
            chosen = np.asarray(values)[order].astype(f">i{width}")
            return np.concatenate([chosen.view(np.uint8).reshape(len(order), width), tail], axis=1).tobytes()
        texts = values.take(pa.array(order))
        lengths, data = np.asarray(pc.binary_length(texts)).astype(np.int64), b"".join(texts.to_pylist())
        begin = np.cumsum(4 + lengths + tail.shape[1]) - (4 + lengths + tail.shape[1])
        out = np.zeros(int((4 + lengths + tail.shape[1]).sum()), np.uint8)
        out[begin[:, None] + np.arange(4)] = lengths.astype(">i4").view(np.uint8).reshape(-1, 4)
        out[(begin + 4 + lengths)[:, None] + np.arange(tail.shape[1])] = tail
        within = np.arange(len(data)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        out[np.repeat(begin + 4, lengths) + within] = np.frombuffer(data, np.uint8)
        return out.tobytes()

    def _sizes(self, values: pa.Array) -> np.ndarray:
        if _is_text(self._type):
            return 4 + np.asarray(pc.binary_length(values)).astype(np.int64)
        return np.full(len(values), self._width())

    def _width(self) -> int:
        assert isinstance(self._type, Scalar), self._type
        return _WIDTHS.get(self._type.kind) or _STORED[self._type.kind]

    def _sorted(self, values: pa.Array) -> np.ndarray:
        if _is_text(self._type):
            return np.asarray(pc.array_sort_indices(values)).astype(np.int64)
        numbers = np.asarray(values)
        # The bits of negative floats sort in the opposite order.
        if self._type in (
            Scalar(Kind.FLOAT),
            Scalar(Kind.DOUBLE),
        ):
            numbers = np.where(numbers < 0, -1 - (numbers - np.int64(-1 << (8 * self._width() - 1))), numbers)
        return np.argsort(numbers, kind="stable")

    def _in_order(self, values: pa.Array, counts: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The values in the iteration order of a Java `HashMap` filled by `computeIfAbsent`: by bin, the last one
        first."""
        if _is_text(self._type):
            hashed = murmur.murmur3_32(values, murmur.PAIMON_SEED, bytewise=True).view(np.uint32)
        else:
            numbers = np.asarray(values)
            hashed = (
                numbers.astype(np.uint32)
                if self._width() < 8
                else (numbers ^ (numbers.view(np.uint64) >> np.uint64(32)).view(np.int64)).astype(np.uint32)
            )
            if self._type == Scalar(Kind.BOOLEAN):
                hashed = np.where(numbers != 0, np.uint32(1231), np.uint32(1237))
        # The table doubles with the next call after it is full, even if the value is already in it.
        last = codes[codes >= 0][-1:]
        known = len(counts) - int((counts[last] == 1).sum())
        bins = 16
        while known > bins * 3 // 4:
            bins *= 2
        return np.lexsort((-np.arange(len(counts)), (hashed ^ (hashed >> np.uint32(16))) & np.uint32(bins - 1)))


class BitSlices:
    """The rows of each bit of the values."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, values: pa.Array, type: Type) -> None:
        """Add values of a type in `has_slices`. Raises `InvalidInput` for -2^63, which has no absolute value in 64
        bits."""
        numbers, missing = _masked(values, type)[0], np.asarray(values.is_null())
        if len(numbers) and (numbers[~missing] == np.iinfo(np.int64).min).any():
            raise InvalidInput(
                f"{np.iinfo(np.int64).min} has no bit slices: leave the column out of file-index.bsi.columns"
            )
        self._parts.append((numbers, missing))

    def __bytes__(self) -> bytes:
        numbers = np.concatenate([part for part, _ in self._parts])
        there = ~np.concatenate([valid for _, valid in self._parts])
        return struct.pack(">bi", 1, len(numbers)) + b"".join(
            self._part(np.flatnonzero(there & mask), np.abs(numbers)) for mask in (numbers >= 0, numbers < 0)
        )

    def _part(self, rows: np.ndarray, numbers: np.ndarray) -> bytes:
        if not len(rows):
            return b"\0"
        own = numbers[rows]
        greatest = int(own.max())
        slices = [_serialized(rows[own >> bit & 1 == 1]) for bit in range(greatest.bit_length())]
        head = struct.pack(">?bqq", True, 1, 0, greatest)  # Java begins with 0 as the least value, whatever they are.
        return head + _serialized(rows) + struct.pack(">i", len(slices)) + b"".join(slices)


def _is_text(type: Type | None) -> bool:
    return isinstance(type, Scalar) and type.kind in _TEXTS


def _masked(values: pa.Array, type: Type) -> tuple[np.ndarray, pa.DataType, np.ndarray]:
    """(values as 64-bit integers, as in Java's indexes, their Arrow type, where they are null)."""
    missing, plain = np.asarray(values.is_null()), pa.int64()
    match type:
        case Scalar(Kind.FLOAT | Kind.DOUBLE as kind):
            floats = np.asarray(values.fill_null(0))
            # All NaNs are one value.
            floats = np.where(np.isnan(floats), floats.dtype.type(np.nan), floats)
            return floats.view(np.int32 if kind is Kind.FLOAT else np.int64).astype(np.int64), plain, missing
        case Scalar(Kind.DECIMAL):
            unscaled = np.ascontiguousarray(decimals.little_endian(values)[:, :8]).view("<i8")[:, 0]
            return np.where(missing, 0, unscaled), plain, missing
        case Scalar(Kind.DATE):
            numbers = values.cast(pa.int32())
        case Scalar(Kind.TIME):
            numbers = values.cast(pa.time32("ms"), safe=False).cast(pa.int32())
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)) if digits > 6:
            return np.floor_divide(np.asarray(values.cast(plain).fill_null(0)), 1000), plain, missing
        case _:
            numbers = values
    return np.asarray(numbers.cast(plain).fill_null(0)), plain, missing


def _serialized(rows: np.ndarray) -> bytes:
    bits = BitMap(array.array("I", rows.astype(np.uint32).tobytes()))
    bits.run_optimize()
    return bytes(bits.serialize())


def _slices(index: bytes, offset: int) -> tuple[_Slices, int]:
    version, least, greatest = struct.unpack_from(">bqq", index, offset)
    if version != 1:
        raise ValueError(f"bit slices of version {version}")
    rows, offset = _bitmap(index, offset + 17)
    (count,) = struct.unpack_from(">i", index, offset)
    offset, slices = offset + 4, []
    for _ in range(count):
        bitmap, offset = _bitmap(index, offset)
        slices.append(bitmap)
    return (least, greatest, rows, slices), offset


def _bitmap(index: bytes, offset: int) -> tuple[BitMap, int]:
    bits = BitMap.deserialize(index[offset:])
    return bits, offset + len(bits.serialize())


def _has(part: _Slices | None, value: int) -> bool:
    if part is None or not part[0] <= value <= part[1]:
        return False
    least, _, rows, slices = part
    for bit, bitmap in enumerate(slices):
        rows = rows & bitmap if (value - least) >> bit & 1 else rows - bitmap
    return bool(rows)


def _numbers(values: pa.Array, type: Scalar) -> np.ndarray:
    """Integers, or the days of dates."""
    return np.asarray((values.cast(pa.int32()) if type.kind is Kind.DATE else values).cast(pa.int64()))
