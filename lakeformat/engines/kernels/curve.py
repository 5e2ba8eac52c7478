"""Values of several columns as one key, in which each column's bits take turns: the z-order of Iceberg's Java
(core/util/ZOrderByteUtils.java), byte for byte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakeformat.engines.kernels import ranks

_SIGN = np.uint64(1 << 63)
_TRUE = np.uint64(0x81 << 56)
_BYTES = 8  # Of each column.


def interleaved(columns: Sequence[pa.Array]) -> pa.Array:
    """For each row bytes that order rows along the curve: the highest bit of each column, then the next of each, ..."""
    count = len(columns[0])
    bits = [
        np.unpackbits(_ordered(each).astype(">u8").view(np.uint8).reshape(count, _BYTES), axis=1) for each in columns
    ]
    mixed = np.packbits(np.stack(bits, axis=2).reshape(count, 8 * _BYTES * len(columns)), axis=1)
    return pa.Array.from_buffers(pa.binary(_BYTES * len(columns)), count, [None, pa.py_buffer(mixed)])


def _ordered(values: pa.Array) -> np.ndarray:
    """Numbers without sign that order the values: nulls 0, of text and binary the first bytes."""
    t, kind = pa.types, values.type
    if values.null_count == len(values):
        return np.zeros(len(values), np.uint64)
    if t.is_string(kind) or t.is_binary(kind) or t.is_fixed_size_binary(kind):
        found = _first_bytes(values.cast(pa.binary()))
    elif t.is_boolean(kind):
        found = np.where(values.fill_null(False).to_numpy(zero_copy_only=False), _TRUE, np.uint64(0))
    else:
        numbers = values.cast(pa.float64()) if t.is_decimal(kind) else values
        found = ranks.ordinals(numbers).view(np.uint64) ^ _SIGN
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), found, np.uint64(0))


def _first_bytes(values: pa.Array) -> np.ndarray:
    _, offsets, held = values.buffers()
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    content = np.frombuffer(held, np.uint8) if held is not None else np.zeros(0, np.uint8)
    found = np.zeros((len(values), _BYTES), np.uint8)
    for place in range(_BYTES):
        reaching = edges[:-1] + place < edges[1:]
        found[reaching, place] = content[edges[:-1][reaching] + place]
    return found.view(">u8").reshape(-1).astype(np.uint64)
