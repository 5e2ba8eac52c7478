"""Theta sketches of distinct values in the format of Apache DataSketches (blob type `apache-datasketches-theta-v1`):
the smallest hashes of a column, from which sketches of files, snapshots and tables are merged and counted."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import murmur, numbers

BLOB = "apache-datasketches-theta-v1"
NOMINAL = 4096  # The hashes that a sketch keeps: the standard error of its estimate is 1.6 %.
_SEED, _SEED_HASH = 9001, b"\xcc\x93"
_ALL = 1 << 63  # Hashes have 63 bits; this is the theta of a sketch that dropped none.
_COMPACT, _EMPTY = 0x1A, 0x04  # Flags: compact, ordered, read-only; and empty.


class Sketch:
    """The distinct values given to `add`. Nulls and empty byte strings do not count, as in Java."""

    def __init__(self, nominal: int = NOMINAL) -> None:
        self._nominal = nominal
        self._hashes = np.zeros(0, np.uint64)  # Ascending, with one more hash than is kept: theta.

    def add(self, values: pa.Array) -> None:
        """Add values as bytes (binary); equal values must have equal bytes."""
        values = values.unique()
        values = values.filter(pc.greater(pc.binary_length(values), 0))
        hashes = murmur.murmur3_128(values, _SEED) >> np.uint64(1)
        if len(self._hashes) > self._nominal:
            hashes = hashes[hashes < self._hashes[-1]]
        hashes = hashes[hashes > 0]
        self._hashes = numbers.distinct(np.concatenate([self._hashes, hashes]))[: self._nominal + 1]

    @property
    def _theta(self) -> int:
        return int(self._hashes[-1]) if len(self._hashes) > self._nominal else _ALL

    @property
    def estimate(self) -> float:
        """The estimated number of distinct values: exact up to the nominal number."""
        kept = min(len(self._hashes), self._nominal)
        return kept if self._theta == _ALL else kept * (_ALL / self._theta)

    def emit(self) -> bytes:
        """The compact, ordered form that every DataSketches library reads."""
        kept, theta = self._hashes[: self._nominal].astype("<u8").tobytes(), self._theta
        count = len(kept) // 8
        longs = 3 if theta != _ALL else 2 if count > 1 else 1
        flags = _COMPACT | (_EMPTY if count == 0 else 0)
        head = bytes([longs, 3, 3, 0, 0, flags]) + _SEED_HASH
        if longs > 1:
            head += struct.pack("<II", count, 0)
        if longs > 2:
            head += struct.pack("<Q", theta)
        return head + kept
