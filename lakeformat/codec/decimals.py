"""Unscaled values of decimal128 arrays as bytes and words."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def little_endian(array: pa.Array) -> np.ndarray:
    """Two's complement of each value, (rows, 16) uint8, lowest byte first; undefined for nulls."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((len(array), 16), np.uint8)
    return np.frombuffer(buffer, np.uint8)[16 * array.offset : 16 * (array.offset + len(array))].reshape(-1, 16)


def from_little_endian(wide: np.ndarray, type: pa.DataType, mask: np.ndarray | None = None) -> pa.Array:
    """(rows, 16) uint8 as decimals of `type`; null where `mask` is true."""
    valid = None if mask is None or not mask.any() else pa.array(~mask).buffers()[1]
    return pa.Array.from_buffers(type, len(wide), [valid, pa.py_buffer(np.ascontiguousarray(wide))])


def from_int64(unscaled: np.ndarray, type: pa.DataType, mask: np.ndarray | None = None) -> pa.Array:
    """Unscaled values as decimals of `type`; null where `mask` is true."""
    halves = np.empty((len(unscaled), 2), "<i8")
    halves[:, 0], halves[:, 1] = unscaled, unscaled >> 63
    return from_little_endian(halves.view(np.uint8).reshape(-1, 16), type, mask)


def from_big_endian(
    buffer: np.ndarray, begin: np.ndarray, end: np.ndarray, type: pa.DataType, mask: np.ndarray | None = None
) -> pa.Array:
    """Two's complement values, highest byte first, of 1 to 16 bytes each, `begin[i]` to `end[i]` of `buffer`."""
    sizes = end - begin
    fill = np.where(buffer[begin] >= 0x80, 0xFF, 0).astype(np.uint8)
    wide = np.empty((len(sizes), 16), np.uint8)
    for k in range(16):
        there = sizes > k
        wide[:, k] = np.where(there, buffer[np.where(there, end - 1 - k, 0)], fill)
    return from_little_endian(wide, type, mask)


def sizes(wide: np.ndarray) -> np.ndarray:
    """The two's complement size of each value in bytes, 1 to 16, as Java's `BigInteger.toByteArray` counts it."""
    sign = np.where(wide[:, 15] >= 0x80, 0xFF, 0).astype(np.uint8)
    needed = np.full(len(wide), 16)
    idle = np.ones(len(wide), bool)
    for k in range(15, 0, -1):
        idle &= (wide[:, k] == sign) & ((wide[:, k - 1] >= 0x80) == (sign == 0xFF))
        needed[idle] = k
    return needed
