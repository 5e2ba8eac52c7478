"""Paimon's B-tree global indexes: the distinct values of a column in order, each with the ids of its rows. They are in
blocks; an index block has the last value of each.

Source: Java's and pypaimon's BTreeIndexWriter, SstFileWriter and BlockWriter, version 1.
Compressed blocks are not read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import bitmap, spans, varint
from lakeformat.errors import CorruptFile, UnsupportedFeature
from lakeformat.model.dataclass import dataclass

_FOOTER = np.dtype(
    [("bloom_at", "<u8"), ("bloom_size", "<u4"), ("bloom_count", "<u8"), ("index_at", "<u8"), ("index_size", "<u4"),
     ("nulls_at", "<u8"), ("nulls_size", "<u4"), ("version", "<u4"), ("magic", "<u4")]
)  # fmt: skip
_MAGIC, _VERSION = 0x50425449, 1
_BLOCK_BYTES = 64 << 10
_TRAILER = 5  # After a block: how it is compressed, and the CRC-32 of both.
_PLAIN = 0  # Not compressed, as by default.
_ALIGNED, _UNALIGNED = 0, 1


@dataclass(frozen=True, slots=True)
class Ends:
    """The first and last value in an index, as it stores them; None if all are null."""

    first: bytes | None
    last: bytes | None

    @classmethod
    def parse(cls, data: bytes, where: str) -> Ends:
        """The ends in what an index manifest says of an index. Raises `CorruptFile`."""
        values, offset = [], 0
        for _ in range(2):
            size = int.from_bytes(data[offset : offset + 4], "little")
            values.append(data[offset + 4 : offset + 4 + size])
            offset += 4 + size
        if offset >= len(data):
            raise CorruptFile(f"{where}: the {len(data)} bytes that describe an index are damaged")
        flags = (
            data[offset + 2]
            if len(data) >= offset + 3 and data[offset + 1] == 1
            else 3 * (data[offset] == 1 and offset == 8)
        )
        return cls(None if flags & 1 else values[0], None if flags & 2 else values[1])

    def described(self, has_nulls: bool) -> bytes:
        """What an index manifest says of an index with these ends."""
        flags = (self.first is None) | (self.last is None) << 1
        values = b"".join(len(value or b"").to_bytes(4, "little") + (value or b"") for value in (self.first, self.last))
        return values + bytes((has_nulls, 1, flags))


def emit(keys: pa.Array, counts: np.ndarray, row_ids: np.ndarray, nulls: np.ndarray) -> bytes:
    """An index of distinct `keys` in order, each with `counts` of the `row_ids`, and of the row ids of `nulls`."""
    blocks, lasts, handles, offset = list[bytes](), list[int](), list[bytes](), 0
    for block, last in _blocks(_pairs(keys, _lists(counts, row_ids))):
        blocks.append(_with_trailer(block))
        handles.append(varint.write(offset) + varint.write(len(block)))
        lasts.append(last)
        offset += len(blocks[-1])
    null_bitmap = bitmap.plain(nulls) if len(nulls) else b""
    nulls_at = offset
    if len(nulls):
        blocks.append(null_bitmap + zlib.crc32(null_bitmap).to_bytes(4, "little"))
        offset += len(blocks[-1])
    ends = keys.take(pa.array(lasts, pa.int64()))
    index = _block(_pairs(ends, pa.array(handles, pa.binary())), 0, len(ends))
    footer = np.zeros(1, _FOOTER)
    footer["index_at"], footer["index_size"] = offset, len(index)
    footer["nulls_at"], footer["nulls_size"] = (nulls_at if len(nulls) else 0), len(null_bitmap)
    footer["version"], footer["magic"] = _VERSION, _MAGIC
    return b"".join([*blocks, _with_trailer(index), footer.tobytes()])


def _lists(counts: np.ndarray, row_ids: np.ndarray) -> pa.Array:
    """Lists of row ids as bytes, each behind its length."""
    starts = np.cumsum(counts + 1) - (counts + 1)
    numbers = np.empty(len(row_ids) + len(counts), np.int64)
    is_id = np.ones(len(numbers), bool)
    is_id[starts] = False
    numbers[starts], numbers[is_id] = counts, row_ids
    data, lengths = varint.write_all(numbers)
    return _split(data, np.add.reduceat(lengths, starts) if len(starts) else lengths)


def _pairs(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Keys and values as bytes, each behind its length."""
    sized = [_split(*varint.write_all(np.asarray(pc.binary_length(part)))) for part in (keys, values)]
    return spans.join([sized[0], keys, sized[1], values], len(keys))


def _split(data: np.ndarray, lengths: np.ndarray) -> pa.Array:
    return spans.binary(np.concatenate(([0], np.cumsum(lengths))), data)


def _blocks(pairs: pa.Array) -> Iterator[tuple[bytes, int]]:
    """(a block, the number of its last pair)."""
    weights = spans.offsets_of(pairs).astype(np.int64) + 4 * np.arange(len(pairs) + 1)
    start = 0
    while start < len(pairs):
        end = max(int(np.searchsorted(weights, weights[start] + _BLOCK_BYTES, "right")) - 1, start + 1)
        yield _block(pairs, start, end), end - 1
        start = end


def _block(pairs: pa.Array, start: int, end: int) -> bytes:
    """The pairs from `start` to before `end`, and where each begins."""
    offsets = spans.offsets_of(pairs)[start : end + 1].astype(np.int64)
    data = (pairs.buffers()[2] or pa.py_buffer(b"")).to_pybytes()[offsets[0] : offsets[-1]]
    sizes = np.diff(offsets)
    if len(sizes) and (sizes == sizes[0]).all():
        return data + int(sizes[0]).to_bytes(4, "little") + bytes((_ALIGNED,))
    begins = (offsets[:-1] - offsets[0]).astype("<u4").tobytes()
    return data + begins + len(sizes).to_bytes(4, "little") + bytes((_UNALIGNED,))


def _with_trailer(block: bytes) -> bytes:
    data = block + bytes((_PLAIN,))
    return data + zlib.crc32(data).to_bytes(4, "little")


class File:
    """An index opened for reading. Raises `CorruptFile`,
    and `UnsupportedFeature` for other versions and compressions."""

    def __init__(self, source: BinaryIO, path: str) -> None:
        self._source, self.path, self._size = source, path, source.seek(0, 2)
        footer = np.frombuffer(self._read(self._size - _FOOTER.itemsize, _FOOTER.itemsize), _FOOTER)[0]
        if footer["magic"] != _MAGIC:
            raise CorruptFile(f"{path}: no B-tree index")
        if footer["version"] != _VERSION:
            raise UnsupportedFeature(f"{path}: a B-tree index of version {footer['version']}; supported: {_VERSION}")
        block = _Block(self._block(int(footer["index_at"]), int(footer["index_size"])), path)
        self.last_values = block.keys()  # Of each block.
        self._starts, after = _varints(block.raw, block.value_starts, path)
        self.block_bytes, _ = _varints(block.raw, after, path)

    def __len__(self) -> int:
        """The number of blocks."""
        return len(self.last_values)

    def block(self, number: int) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        """(the values in a block; the row ids; for each row id, which of the values the row has)."""
        block = _Block(self._block(int(self._starts[number]), int(self.block_bytes[number])), self.path)
        data = spans.gather(block.raw, block.value_starts, block.value_ends)
        offsets = spans.offsets_of(data).astype(np.int64)
        stored = np.frombuffer(data.buffers()[2] or b"", np.uint8)[: offsets[-1]]
        numbers, begins = varint.read_all(stored.tobytes())
        heads = np.searchsorted(begins, offsets[:-1])  # Each list of ids begins with its length.
        counts = np.diff(np.append(heads, len(numbers))) - 1
        if (numbers[heads] != counts).any():
            raise CorruptFile(f"{self.path}: the row ids in block {number} of the index are damaged")
        return block.keys(), np.delete(numbers, heads), np.repeat(np.arange(len(counts)), counts)

    def _block(self, start: int, size: int) -> bytes:
        data = self._read(start, size + _TRAILER)
        kind, checksum = data[size], int.from_bytes(data[size + 1 :], "little")
        if zlib.crc32(data[: size + 1]) != checksum:
            raise CorruptFile(f"{self.path}: the block at byte {start} of the index is damaged: its checksum is wrong")
        if kind != _PLAIN:
            raise UnsupportedFeature(f"{self.path}: blocks of an index with compression {kind}: not supported")
        return data[:size]

    def _read(self, start: int, size: int) -> bytes:
        if not 0 <= start <= start + size <= self._size:
            raise CorruptFile(f"{self.path}: the index of {self._size} bytes ends before byte {start + size}")
        self._source.seek(start)
        return self._source.read(size)


class _Block:
    """The keys and values in a block."""

    def __init__(self, data: bytes, path: str) -> None:
        kind, number = data[-1] if data else -1, int.from_bytes(data[-_TRAILER:-1], "little")
        if kind == _ALIGNED and number:
            end = len(data) - _TRAILER
            starts = np.arange(0, end, number)
        elif kind == _UNALIGNED and len(data) >= _TRAILER + 4 * number:
            end = len(data) - _TRAILER - 4 * number
            starts = np.frombuffer(data, "<u4", number, end).astype(np.int64)
        else:
            raise CorruptFile(f"{path}: a block of the index is damaged: it ends with {data[-_TRAILER:].hex()}")
        self.raw = np.frombuffer(data, np.uint8, end)
        sizes, self._key_starts = _varints(self.raw, starts, path)
        self._key_ends = self._key_starts + sizes
        sizes, self.value_starts = _varints(self.raw, self._key_ends, path)
        self.value_ends = self.value_starts + sizes
        if (self.value_ends > end).any():
            raise CorruptFile(f"{path}: a block of the index is damaged: a value ends behind it")

    def keys(self) -> pa.Array:
        return spans.gather(self.raw, self._key_starts, self._key_ends)


def _varints(raw: np.ndarray, offsets: np.ndarray, path: str) -> tuple[np.ndarray, np.ndarray]:
    """(the numbers at these positions, where each ends)."""
    offsets, values = offsets.copy(), np.zeros(len(offsets), np.int64)
    open_ones = np.arange(len(offsets))
    for shift in range(0, 63, 7):
        if not len(open_ones):
            return values, offsets
        if offsets[open_ones].max() >= len(raw):
            break
        byte = raw[offsets[open_ones]].astype(np.int64)
        values[open_ones] |= (byte & 0x7F) << shift
        offsets[open_ones] += 1
        open_ones = open_ones[byte >= 0x80]
    if len(open_ones):
        raise CorruptFile(f"{path}: a block of the index is damaged: a number does not end")
    return values, offsets
