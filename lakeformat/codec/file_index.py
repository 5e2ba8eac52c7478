"""Paimon's file indexes: what a data file may hold, by column (FileIndexFormat, BloomFilterFileIndex, FastHash)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from lakeformat.errors import CorruptFile

BLOOM_FILTER = "bloom-filter"
_MAGIC = 1493475289347502
_VERSION = 1
_MASK = (1 << 64) - 1
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def parse(data: bytes, where: str) -> dict[str, dict[str, bytes]]:
    """An index file -> by column, as the data file calls it, its indexes by kind. Raises `CorruptFile`."""
    try:
        magic, version, _, columns = struct.unpack_from(">qiii", data)
        if magic != _MAGIC or version != _VERSION:
            raise CorruptFile(f"{where}: no file index of version {_VERSION}")
        at, found = 20, dict[str, dict[str, bytes]]()
        for _ in range(columns):
            column, at = _text(data, at)
            (count,) = struct.unpack_from(">i", data, at)
            at += 4
            for _ in range(count):
                kind, at = _text(data, at)
                start, length = struct.unpack_from(">ii", data, at)
                at += 8
                if start < 0 or length < 0 or start + length > len(data):
                    raise CorruptFile(f"{where}: the {kind} index of {column!r} ends beyond the file")
                found.setdefault(column, {})[kind] = data[start : start + length]
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptFile(f"{where}: not a file index: {error}") from error
    return found


def may_hold(bloom_filter: bytes, hashes: np.ndarray, where: str) -> bool:
    """Whether a bloom filter may hold one of these hashes (unsigned, 64 bits). Raises `CorruptFile`."""
    if len(bloom_filter) < 5:
        raise CorruptFile(f"{where}: a bloom filter of {len(bloom_filter)} bytes")
    functions = int.from_bytes(bloom_filter[:4], "big")
    bits = np.frombuffer(bloom_filter, np.uint8, offset=4)
    low, high = hashes.astype(np.uint32).view(np.int32), (hashes >> np.uint64(32)).astype(np.uint32).view(np.int32)
    among = np.ones(len(hashes), bool)
    for number in range(1, functions + 1):
        with np.errstate(over="ignore"):
            combined = low + np.int32(number) * high
        position = np.where(combined < 0, ~combined, combined) % (len(bits) * 8)
        among &= (bits[position >> 3] >> (position & 7) & 1).astype(bool)
    return bool(among.any())


def hash_numbers(values: Sequence[int]) -> np.ndarray:
    """Thomas Wang's hash of whole numbers of 64 bits."""
    key = np.array(values, np.int64)
    with np.errstate(over="ignore"):
        key = ~key + (key << 21)
        key = key ^ (key >> 24)
        key = key + (key << 3) + (key << 8)
        key = key ^ (key >> 14)
        key = key + (key << 2) + (key << 4)
        key = key ^ (key >> 28)
        key = key + (key << 31)
    return key.view(np.uint64)


def hash_bytes(values: Sequence[bytes]) -> np.ndarray:
    """xxHash64 with the seed 0."""
    return np.array([_xx(value) for value in values], np.uint64)


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">H", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


def _xx(data: bytes) -> int:
    one, two, three, four, five = _PRIMES
    at, size = 0, len(data)
    if size >= 32:
        lanes = [(one + two) & _MASK, two, 0, -one & _MASK]
        while at + 32 <= size:
            lanes = [_round(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at), strict=True)]
            at += 32
        result = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            result = ((result ^ _round(0, lane)) * one + four) & _MASK
    else:
        result = five
    result = (result + size) & _MASK
    while at + 8 <= size:
        result ^= _round(0, struct.unpack_from("<Q", data, at)[0])
        result = (_turned(result, 27) * one + four) & _MASK
        at += 8
    if at + 4 <= size:
        result ^= struct.unpack_from("<I", data, at)[0] * one & _MASK
        result = (_turned(result, 23) * two + three) & _MASK
        at += 4
    for byte in data[at:]:
        result = _turned(result ^ (byte * five & _MASK), 11) * one & _MASK
    result = (result ^ result >> 33) * two & _MASK
    result = (result ^ result >> 29) * three & _MASK
    return result ^ result >> 32


def _round(lane: int, word: int) -> int:
    return _turned((lane + word * _PRIMES[1]) & _MASK, 31) * _PRIMES[0] & _MASK


def _turned(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK
