"""Values of several columns as one key: along the z-order of Iceberg's Java (core/util/ZOrderByteUtils.java), byte for
byte, or along a Hilbert curve (J. Skilling, Programming the Hilbert curve, 2004)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakeformat.engines.kernels import ranks

_SIGN = np.uint64(1 << 63)
_TRUE = np.uint64(0x81 << 56)
_BYTES = 8  # Of each column.


def interleaved(columns: Sequence[pa.Array]) -> pa.Array:
    """For each row bytes that order rows along the z-order: the highest bit of each column,
    then the next of each, ..."""
    return _in_turn([_ordered(column) for column in columns])


def hilbert(columns: Sequence[pa.Array]) -> pa.Array:
    """For each row bytes that order rows along a Hilbert curve through all columns, of 64 bits each."""
    axes = [_ordered(column) for column in columns]
    bits = [np.uint64(1 << axis_index) for axis_index in range(8 * _BYTES - 1, 0, -1)]
    # Turn and mirror the cubes of this size, so that the curve enters each where it left the one before.
    for bit in bits:
        below = bit - np.uint64(1)
        for axis_index, axis in enumerate(axes):
            is_set = (axis & bit) != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axis) & below)
            axes[axis_index] = axis ^ swapped
            axes[0] = axes[0] ^ swapped ^ np.where(is_set, below, np.uint64(0))
    for axis_index in range(1, len(axes)):
        axes[axis_index] = axes[axis_index] ^ axes[axis_index - 1]
    mirrored = np.zeros_like(axes[0])
    for bit in bits:
        mirrored ^= np.where((axes[-1] & bit) != 0, bit - np.uint64(1), np.uint64(0))
    return _in_turn([axis ^ mirrored for axis in axes])


def _in_turn(numbers: Sequence[np.ndarray]) -> pa.Array:
    count = len(numbers[0])
    bits = [np.unpackbits(number.astype(">u8").view(np.uint8).reshape(count, _BYTES), axis=1) for number in numbers]
    mixed = np.packbits(np.stack(bits, axis=2).reshape(count, 8 * _BYTES * len(numbers)), axis=1)
    return pa.Array.from_buffers(pa.binary(_BYTES * len(numbers)), count, [None, pa.py_buffer(mixed)])


def _ordered(values: pa.Array) -> np.ndarray:
    """Unsigned numbers in the order of the values: nulls 0; for text and binary by the first bytes."""
    t, kind = pa.types, values.type
    if values.null_count == len(values):
        return np.zeros(len(values), np.uint64)
    if t.is_string(kind) or t.is_binary(kind) or t.is_fixed_size_binary(kind):
        prefix = _first_bytes(values.cast(pa.binary()))
    elif t.is_boolean(kind):
        prefix = np.where(values.fill_null(False).to_numpy(zero_copy_only=False), _TRUE, np.uint64(0))
    else:
        numbers = values.cast(pa.float64()) if t.is_decimal(kind) else values
        prefix = ranks.ordinals(numbers).view(np.uint64) ^ _SIGN
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), prefix, np.uint64(0))


def _first_bytes(values: pa.Array) -> np.ndarray:
    _, offsets, data = values.buffers()
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    prefix = np.zeros((len(values), _BYTES), np.uint8)
    for position in range(_BYTES):
        reaching = edges[:-1] + position < edges[1:]
        prefix[reaching, position] = content[edges[:-1][reaching] + position]
    return prefix.view(">u8").reshape(-1).astype(np.uint64)
