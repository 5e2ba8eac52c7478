"""Paimon's file indexes: which values a data file may hold, by column (FileIndexFormat, BloomFilterFileIndex,
FastHash)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.paimon import bitmap_index
from lakeformat.errors import CorruptFile
from lakeformat.model.schema import Kind, Scalar, Type

BLOOM_FILTER = "bloom-filter"
_MAGIC = 1493475289347502
_VERSION = 1
_EMPTY = -1  # The offset of an empty index, e.g. of a map key whose maps are all null.
_AT_ONCE = 1 << 20  # Bytes that are hashed together.
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_NUMBERS = frozenset(
    {Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ}
)
_BYTES = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.STRING, Kind.BINARY, Kind.VARBINARY, Kind.BYTES})
_FLOATS = frozenset({Kind.FLOAT, Kind.DOUBLE})


def parse(data: bytes, where: str) -> dict[str, dict[str, bytes]]:
    """An index file -> its indexes by column name in the data file and by kind. Raises `CorruptFile`."""
    try:
        magic, version, _, columns = struct.unpack_from(">qiii", data)
        if magic != _MAGIC or version != _VERSION:
            raise CorruptFile(f"{where}: no file index of version {_VERSION}")
        offset, indexes = 20, dict[str, dict[str, bytes]]()
        for _ in range(columns):
            column, offset = _text(data, offset)
            (count,) = struct.unpack_from(">i", data, offset)
            offset += 4
            for _ in range(count):
                kind, offset = _text(data, offset)
                start, length = struct.unpack_from(">ii", data, offset)
                offset += 8
                if start == _EMPTY:
                    continue
                if start < 0 or length < 0 or start + length > len(data):
                    raise CorruptFile(f"{where}: the {kind} index of {column!r} ends beyond the file")
                indexes.setdefault(column, {})[kind] = data[start : start + length]
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptFile(f"{where}: not a file index: {error}") from error
    return indexes


def emit(columns: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """Indexes by column and by kind -> an index file."""
    head = 24 + sum(
        2 + len(c.encode()) + 4 + sum(10 + len(kind.encode()) for kind in by_kind) for c, by_kind in columns.items()
    )
    parts, offset = [struct.pack(">qiii", _MAGIC, _VERSION, head, len(columns))], head
    for column, by_kind in columns.items():
        parts.append(_written(column) + len(by_kind).to_bytes(4, "big"))
        for kind, index in by_kind.items():
            parts.append(_written(kind) + struct.pack(">ii", offset, len(index)))
            offset += len(index)
    parts.append(bytes(4))
    return b"".join([*parts, *(index for by_kind in columns.values() for index in by_kind.values())])


class Lookup:
    """The values, without nulls, that a condition lists for a column of this type (one in `can_hash`)."""

    def __init__(self, values: pa.Array, type: Type) -> None:
        self.values, self.type = values, type
        self.hashed = hashes(values, type)


def may_hold(indexes: Mapping[str, bytes], values: Lookup, where: str) -> bool:
    """Whether a column with these indexes, by kind, may hold one of the values. Raises `CorruptFile`."""
    try:
        for kind, index in indexes.items():
            match kind:
                case "bloom-filter":
                    holds = _in_bloom_filter(index, values.hashed)
                case "bitmap":
                    holds = bitmap_index.in_bitmap(index, values.values, values.type)
                case "bsi":
                    holds = bitmap_index.in_slices(index, values.values, values.type)
                case _:
                    continue
            if not holds:
                return False
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptFile(f"{where}: a damaged index: {error}") from error
    return True


def _in_bloom_filter(index: bytes, hashed: np.ndarray) -> bool:
    if len(index) < 5:
        raise ValueError(f"a bloom filter of {len(index)} bytes")
    functions = int.from_bytes(index[:4], "big")
    bits = np.frombuffer(index, np.uint8, offset=4)
    among = np.ones(len(hashed), bool)
    for position in _positions(hashed, functions, len(bits) * 8):
        among &= (bits[position >> 3] >> (position & 7) & 1).astype(bool)
    return bool(among.any())


class BloomFilter:
    """A bloom filter of the size that Java chooses for this many distinct values (BloomFilter64)."""

    def __init__(self, items: int, share: float) -> None:
        bits = int(-items * math.log(share) / math.log(2) ** 2)
        self._bits = np.zeros(bits + 8 - bits % 8, bool)
        self._functions = max(1, math.floor(len(self._bits) / items * math.log(2) + 0.5))

    def add(self, values: pa.Array, type: Type) -> None:
        """Add values of a type in `can_hash`; a filter records no nulls."""
        for position in _positions(hashes(pc.unique(values).drop_null(), type), self._functions, len(self._bits)):
            self._bits[position] = True

    def __bytes__(self) -> bytes:
        return self._functions.to_bytes(4, "big") + np.packbits(self._bits, bitorder="little").tobytes()


class Index(Protocol):
    """An index of a column of a file being written."""

    def add(self, values: pa.Array, type: Type) -> None: ...
    def __bytes__(self) -> bytes: ...


def fresh(kind: str, settings: Sequence[float]) -> Index:
    """An empty index. `settings`: for a bloom filter the expected number of distinct values and the false-positive
    rate, for bitmaps their version and the bytes of a block."""
    match kind:
        case "bloom-filter":
            return BloomFilter(int(settings[0]), settings[1])
        case "bitmap":
            return bitmap_index.Bitmaps(int(settings[0]), int(settings[1]))
        case _:
            return bitmap_index.BitSlices()


def is_for(kind: str, type: Type) -> bool:
    """Whether a column of this type can have an index of this kind."""
    return {BLOOM_FILTER: can_hash, "bitmap": bitmap_index.has_bitmaps, "bsi": bitmap_index.has_slices}[kind](type)


def can_hash(type: Type) -> bool:
    """Whether a column of this type can have a bloom filter."""
    return isinstance(type, Scalar) and type.kind in _NUMBERS | _BYTES | _FLOATS


def hashes(values: pa.Array, type: Type) -> np.ndarray:
    """The hash of each value (no nulls), unsigned 64 bits, as Java computes it (FastHash)."""
    assert isinstance(type, Scalar), type
    if type.kind in _BYTES:
        return _hash_bytes(values.cast(pa.large_binary()))
    if type.kind in _FLOATS:
        width = np.int32 if type.kind is Kind.FLOAT else np.int64
        floats = np.asarray(values)
        # All NaNs are one value.
        floats = np.where(np.isnan(floats), floats.dtype.type(np.nan), floats)
        return _hash_numbers(floats.view(width).astype(np.int64))
    match type:
        case Scalar(Kind.DATE):
            numbers = values.cast(pa.int32())
        case Scalar(Kind.TIME):
            numbers = values.cast(pa.time32("ms"), safe=False).cast(pa.int32())
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)):
            micros = np.asarray(values.cast(pa.int64()))
            return _hash_numbers(micros if digits <= 6 else np.floor_divide(micros, 1000))
        case _:
            numbers = values
    return _hash_numbers(np.asarray(numbers.cast(pa.int64())))


def _positions(hashed: np.ndarray, functions: int, bits: int) -> Iterator[np.ndarray]:
    """For each hash function, the bits set by values with these hashes."""
    low, high = hashed.astype(np.uint32).view(np.int32), (hashed >> np.uint64(32)).astype(np.uint32).view(np.int32)
    for number in range(1, functions + 1):
        with np.errstate(over="ignore"):
            combined = low + np.int32(number) * high
        yield np.where(combined < 0, ~combined, combined) % bits


def _hash_numbers(values: np.ndarray) -> np.ndarray:
    """Thomas Wang's hash of 64-bit integers."""
    key = values.astype(np.int64)
    with np.errstate(over="ignore"):
        key = ~key + (key << 21)
        key = key ^ (key >> 24)
        key = key + (key << 3) + (key << 8)
        key = key ^ (key >> 14)
        key = key + (key << 2) + (key << 4)
        key = key ^ (key >> 28)
        key = key + (key << 31)
    return key.view(np.uint64)


def _hash_bytes(values: pa.LargeBinaryArray) -> np.ndarray:
    """xxHash64 with seed 0, one length of values at a time."""
    result = np.zeros(len(values), np.uint64)
    if not len(values):
        return result
    _, offsets, content = values.buffers()
    ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    lengths = np.diff(ends)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        for part in np.array_split(rows, -(-len(rows) * max(length, 1) // _AT_ONCE)):
            result[part] = _xx(data[ends[part][:, None] + np.arange(length)])
    return result


def _text(data: bytes, offset: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">H", data, offset)
    return data[offset + 2 : offset + 2 + length].decode(), offset + 2 + length


def _written(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def _xx(data: np.ndarray) -> np.ndarray:
    """The hash of each row of bytes."""
    one, two, three, four, five = (np.uint64(prime) for prime in _PRIMES)
    count, size = data.shape
    with np.errstate(over="ignore"):
        if size >= 32:
            stripes = _words(data[:, : size // 32 * 32], "<u8")
            lanes = [np.full(count, start, np.uint64) for start in (one + two, two, np.uint64(0), np.uint64(0) - one)]
            for offset in range(0, stripes.shape[1], 4):
                lanes = [_round(lane, stripes[:, offset + i]) for i, lane in enumerate(lanes)]
            result = np.zeros(count, np.uint64)
            for lane, by in zip(lanes, (1, 7, 12, 18), strict=True):
                result = result + _turned(lane, by)
            for lane in lanes:
                result = (result ^ _round(np.zeros(count, np.uint64), lane)) * one + four
        else:
            result = np.full(count, five, np.uint64)
        result = result + np.uint64(size)
        offset = size // 32 * 32
        for word in _words(data[:, offset : size // 8 * 8], "<u8").T:
            result = result ^ _round(np.zeros(count, np.uint64), word)
            result = _turned(result, 27) * one + four
        offset = size // 8 * 8
        if size - offset >= 4:
            result = result ^ _words(data[:, offset : offset + 4], "<u4")[:, 0].astype(np.uint64) * one
            result, offset = _turned(result, 23) * two + three, offset + 4
        for byte in data[:, offset:].T:
            result = _turned(result ^ (byte.astype(np.uint64) * five), 11) * one
        result = (result ^ (result >> np.uint64(33))) * two
        result = (result ^ (result >> np.uint64(29))) * three
        return result ^ (result >> np.uint64(32))


def _words(data: np.ndarray, kind: str) -> np.ndarray:
    return np.ascontiguousarray(data).view(kind)


def _round(lane: np.ndarray, word: np.ndarray) -> np.ndarray:
    return _turned(lane + word * np.uint64(_PRIMES[1]), 31) * np.uint64(_PRIMES[0])


def _turned(value: np.ndarray, by: int) -> np.ndarray:
    return value << np.uint64(by) | value >> np.uint64(64 - by)
