"""Integers of seven bits per byte, lowest first (LEB128), as in the footers of Parquet and ORC files."""

from __future__ import annotations

import numpy as np

_SLICE = 1 << 16  # Numbers that are encoded together.


def read(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """(the number at `offset`, where it ends). Raises `IndexError` at the end of the data."""
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return value, offset


def write(value: int) -> bytes:
    """The bytes of a non-negative number."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def write_all(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the bytes of non-negative numbers, how many bytes each has)."""
    shifts = np.arange(10, dtype=np.uint64) * np.uint64(7)
    pieces, lengths = [np.zeros(0, np.uint8)], [np.zeros(0, np.int64)]
    for start in range(0, len(numbers), _SLICE):
        encoded, used = _groups(numbers[start : start + _SLICE].astype(np.uint64), shifts)
        pieces.append(encoded[used])
        lengths.append(used.sum(1))
    return np.concatenate(pieces), np.concatenate(lengths)


def read_all(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """(all numbers below 2**64 in `data`, the position of each). Raises `ValueError` if the last one is incomplete or
    one is longer than ten bytes."""
    if not data:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    lengths = ends - starts + 1
    if not len(ends) or ends[-1] != len(raw) - 1 or lengths.max() > 10:
        raise ValueError(f"{len(data)} bytes are not whole numbers of at most ten bytes each")
    shifts = (np.arange(len(raw)) - np.repeat(starts, lengths)) * 7
    return np.bitwise_or.reduceat((raw & 0x7F).astype(np.uint64) << shifts.astype(np.uint64), starts), starts


def read_differences(data: bytes) -> np.ndarray:
    """All int64 numbers in `data`, each stored as its difference from the one before, in zigzag.
    Raises as `read_all`."""
    decoded, _ = read_all(data)
    halves, signs = (decoded >> np.uint64(1)).astype(np.int64), (decoded & np.uint64(1)).astype(np.int64)
    return np.cumsum(halves ^ -signs)


def write_differences(numbers: np.ndarray) -> bytes:
    """The int64 `numbers` as `read_differences` reads them."""
    steps: np.ndarray = np.diff(numbers.astype(np.int64), prepend=0)
    folded = ((steps << 1) ^ (steps >> 63)).view(np.uint64)
    shifts = np.arange(10, dtype=np.uint64) * np.uint64(7)
    pieces = []
    for start in range(0, len(folded), _SLICE):
        encoded, used = _groups(folded[start : start + _SLICE], shifts)
        pieces.append(encoded[used].tobytes())
    return b"".join(pieces)


def _groups(numbers: np.ndarray, shifts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ten bytes of each number, which of them it needs)."""
    groups = numbers[:, None] >> shifts
    used = groups > 0
    used[:, 0] = True
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8)
    encoded[:, :-1] |= used[:, 1:].astype(np.uint8) << 7
    return encoded, used
