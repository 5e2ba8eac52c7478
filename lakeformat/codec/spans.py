"""Byte strings by their offsets in a buffer: gathered into Arrow, padded and joined, by whole columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WORD = 8  # Bytes past the end of a buffer that `words` may read.


def gather(buffer: np.ndarray, begin: np.ndarray, end: np.ndarray, mask: np.ndarray | None = None) -> pa.Array:
    """The bytes `begin[i]` to `end[i]` of `buffer` as binary values; null where `mask` is true.

    The spans must ascend and not overlap: then alternating begins and ends are the offsets of an Arrow array over the
    buffer, in which every other value is a span. The result is a copy.
    """
    count = len(begin)
    if not count:
        return pa.array([], pa.binary())
    small = len(buffer) < 1 << 31
    offsets = np.empty(2 * count, np.int32 if small else np.int64)
    offsets[::2], offsets[1::2] = begin, end
    over = pa.Array.from_buffers(
        pa.binary() if small else pa.large_binary(),
        2 * count - 1,
        [None, pa.py_buffer(offsets), pa.py_buffer(buffer)],
    )
    gathered = over.take(pa.array(np.arange(0, 2 * count, 2), mask=mask))
    return gathered if small else gathered.cast(pa.binary())


def words(buffer: np.ndarray) -> np.ndarray:
    """A little-endian uint64 beginning at each byte of `buffer` except the last `WORD`, without a copy."""
    return np.ndarray((max(0, len(buffer) - WORD),), "<u8", buffer, 0, (1,))


def padded(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(data followed by `WORD` zero bytes, the `len + 1` offsets into it) of a binary array."""
    offsets = offsets_of(array)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + WORD, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(array.buffers()[2], np.uint8)[first:last]
    return data, offsets.astype(np.int64) - first


def offsets_of(array: pa.Array) -> np.ndarray:
    """The `len + 1` offsets of a binary, string, list or map array into its whole data."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, np.int32)
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    return np.frombuffer(buffer, np.int64 if wide else np.int32)[array.offset : array.offset + len(array) + 1]


def binary(offsets: np.ndarray, data: np.ndarray | pa.Buffer | None) -> pa.Array:
    """A binary array over `data`."""
    if isinstance(data, np.ndarray):
        data = pa.py_buffer(np.ascontiguousarray(data))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"") if data is None else data]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def fixed(data: np.ndarray, size: int, count: int) -> pa.Array:
    """`count` byte strings of `size` bytes each, contiguous in `data`."""
    return binary(np.arange(count + 1, dtype=np.int64) * size, data)


def join(pieces: list[pa.Array], count: int) -> pa.Array:
    """One byte string per row: its pieces concatenated."""
    if not pieces:
        return binary(np.zeros(count + 1, np.int32), None)
    return pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """first[0], first[0]+1, ... (counts[0] numbers), first[1], ..."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(first - (ends - counts), counts)
