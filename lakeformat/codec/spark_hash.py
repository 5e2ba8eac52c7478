"""Spark's `hash`, `xxhash64` and `crc32` of columns."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from lakeformat.codec import decimals, layouts, spans
from lakeformat.codec.murmur import by_length, murmur3_32

SEED = 42
_LONG_DIGITS = 18  # Decimals of up to so many are hashed as BIGINT.
_ONE_BY_ONE = 2048  # Bytes from which a text has a call of its chosen: its bytes outweigh the call.


def murmur(columns: Sequence[pa.Array]) -> np.ndarray:
    """`hash(columns)`, int32: the hash of each column is the seed of the next, and null leaves it as it is."""
    seeds = np.full(len(columns[0]), SEED, np.int32)
    return _folded(columns, seeds, lambda values, seed: murmur3_32(values, seed.view(np.uint32), bytewise=True))


def xxhash64(columns: Sequence[pa.Array]) -> np.ndarray:
    """`xxhash64(columns)`, int64; see `murmur`."""
    seeds = np.full(len(columns[0]), SEED, np.int64)
    return _folded(columns, seeds, lambda values, seed: _xx(values, seed.view(np.uint64)).view(np.int64))


def crc32(values: pa.Array) -> pa.Array:
    """`crc32(values)`, int64 from 0 on."""
    plain = values.cast(pa.binary()).fill_null(b"")
    data, offsets = spans.padded(plain)
    sizes = np.diff(offsets)
    long = np.flatnonzero(sizes >= _ONE_BY_ONE)
    sizes = np.where(sizes >= _ONE_BY_ONE, 0, sizes)
    order, reach = by_length(sizes)
    begin, state = offsets[:-1][order], np.full(len(order), 0xFFFFFFFF, np.uint32)
    for k, count in enumerate(reach):
        some = state[:count]
        some[:] = _CRC[(some ^ data[begin[:count] + k]) & np.uint32(0xFF)] ^ (some >> np.uint32(8))
    sums = np.empty(len(order), np.int64)
    sums[order] = state ^ np.uint32(0xFFFFFFFF)
    sums[long] = [zlib.crc32(value) for value in plain.take(pa.array(long)).to_pylist()]
    return pa.array(sums, mask=np.asarray(values.is_null()))


# --- private ----------------------------------------------------------------------------------------------------------


def _folded(
    columns: Sequence[pa.Array], seeds: np.ndarray, hashed: Callable[[pa.Array, np.ndarray], np.ndarray]
) -> np.ndarray:
    for column in columns:
        if column.null_count < len(column):
            seeds = np.where(column.is_null().to_numpy(zero_copy_only=False), seeds, hashed(_bytes(column), seeds))
    return seeds


def _bytes(column: pa.Array) -> pa.Array:
    """The bytes of each value that Spark hashes; nulls are empty."""
    type = column.type
    if pa.types.is_boolean(type) or pa.types.is_int8(type) or pa.types.is_int16(type) or pa.types.is_date32(type):
        numbers = column.cast(pa.int8()) if pa.types.is_boolean(type) else column
        return _fixed(numbers.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False))
    if pa.types.is_timestamp(type):
        micros = column.cast(pa.timestamp("us", type.tz)).cast(pa.int64())
        return _fixed(micros.fill_null(0).to_numpy(zero_copy_only=False))
    if pa.types.is_floating(type):
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        values = np.where(values == 0, values.dtype.type(0), values)
        return _fixed(np.where(np.isnan(values), values.dtype.type(np.nan), values))
    if pa.types.is_decimal(type):
        return _unscaled(column)
    if pa.types.is_integer(type):
        return _fixed(column.fill_null(0).to_numpy(zero_copy_only=False))
    return layouts.plain(column).cast(pa.binary()).fill_null(b"")


def _fixed(values: np.ndarray) -> pa.Array:
    width = values.dtype.itemsize
    offsets = np.arange(0, width * len(values) + 1, width, dtype=np.int32)
    return spans.binary(offsets, np.ascontiguousarray(values).view(np.uint8))


def _unscaled(column: pa.Array) -> pa.Array:
    wide = decimals.little_endian(column)
    if column.type.precision <= _LONG_DIGITS:
        return _fixed(np.ascontiguousarray(wide[:, :8]).view(np.int64)[:, 0])
    sizes = decimals.sizes(wide)
    needed = np.arange(15, -1, -1)[None, :] < sizes[:, None]  # Highest byte first.
    return spans.binary(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32), wide[:, ::-1][needed])


def _xx(values: pa.Array, seeds: np.ndarray) -> np.ndarray:
    """XXH64 of byte strings, each with a seed of its chosen, uint64."""
    data, offsets = spans.padded(values)
    words = spans.words(np.concatenate([data, np.zeros(spans.WORD, np.uint8)]))
    begin, size = offsets[:-1], np.diff(offsets)
    order, reach = by_length(size // 32)
    begin, size, seed = begin[order], size[order], seeds[order]
    lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
    for k, count in enumerate(reach):
        for lane, state in enumerate(lanes):
            state[:count] = _round(state[:count], words[begin[:count] + 32 * k + 8 * lane])
    merged = sum((_turned(state, by) for state, by in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint64(0))
    for state in lanes:
        merged = (merged ^ _round(np.uint64(0), state)) * _P1 + _P4
    state = np.where(size >= 32, merged, seed + _P5) + size.astype(np.uint64)
    offset, left = begin + size // 32 * 32, size % 32
    for _ in range(3):
        chosen = np.flatnonzero(left >= 8)
        state[chosen] = _turned(state[chosen] ^ _round(np.uint64(0), words[offset[chosen]]), 27) * _P1 + _P4
        offset[chosen] += 8
        left[chosen] -= 8
    chosen = np.flatnonzero(left >= 4)
    state[chosen] = _turned(state[chosen] ^ (words[offset[chosen]] & np.uint64(0xFFFFFFFF)) * _P1, 23) * _P2 + _P3
    offset[chosen] += 4
    left[chosen] -= 4
    for _ in range(3):
        chosen = np.flatnonzero(left >= 1)
        state[chosen] = _turned(state[chosen] ^ data[offset[chosen]].astype(np.uint64) * _P5, 11) * _P1
        offset[chosen] += 1
        left[chosen] -= 1
    for shift, factor in ((33, _P2), (29, _P3)):
        state = (state ^ (state >> np.uint64(shift))) * factor
    hashed = np.empty(len(order), np.uint64)
    hashed[order] = state ^ (state >> np.uint64(32))
    return hashed


def _round(state: np.ndarray | np.uint64, words: np.ndarray) -> np.ndarray:
    return _turned(state + words * _P2, 31) * _P1


def _turned(values: np.ndarray, by: int) -> np.ndarray:
    return (values << np.uint64(by)) | (values >> np.uint64(64 - by))


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & np.uint32(1), np.uint32(0xEDB88320) ^ (table >> np.uint32(1)), table >> np.uint32(1))
    return table


_P1, _P2, _P3, _P4, _P5 = map(
    np.uint64,
    (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)
_CRC = _crc_table()
