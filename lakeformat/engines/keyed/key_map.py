"""The keys of one commit with the positions of their rows; it grows and is looked up by batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.codec.murmur import murmur3_128
from lakeformat.model.dataclass import dataclass

GONE = -1  # The position of a row that was deleted again, or never written.
_MIX = np.uint64(0x9E3779B97F4A7C15)  # An odd number: multiplying by it maps no two numbers to one.
_NULL = np.uint64(0x5851F42D4C957F2D)


@dataclass(frozen=True, slots=True)
class _Part:
    """Distinct keys with the slots from `first` on, and their hashes, sorted."""

    first: int
    columns: tuple[pa.Array, ...]
    hashes: np.ndarray
    order: np.ndarray  # By sorted hash: the place among `columns`.

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.order.nbytes + sum(column.nbytes for column in self.columns)


class KeyMap:
    """Each key has a permanent slot. Null is a value; floats are compared as in Java.

    A key is found by a hash of 64 bits and then compared with the key itself,
    so it takes its own size and about 25 bytes."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []  # Each more than twice as long as the next: few to search, rarely merged.
        self.files = np.zeros(0, np.int32)  # By slot: the number of the file that the row is in,
        self.positions = np.zeros(0, np.int64)  # and where in it.
        self.deleted = np.zeros(0, bool)  # Whether older rows of the key are deleted already.

    def __len__(self) -> int:
        return len(self.files)

    @property
    def nbytes(self) -> int:
        """Its memory in bytes."""
        own = self.files.nbytes + self.positions.nbytes + self.deleted.nbytes
        return own + sum(part.nbytes for part in self._parts)

    def find(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """The slot of each key; -1 for an unknown key."""
        columns = [layouts.comparable(column) for column in columns]
        slots = np.full(len(columns[0]), -1)
        hashes = _hashes(columns)
        for part in self._parts:
            pending, cursor = np.arange(len(hashes)), np.searchsorted(part.hashes, hashes)
            while True:  # Again for keys whose hash other keys have too.
                inside = cursor < len(part.hashes)
                inside[inside] = part.hashes[cursor[inside]] == hashes[pending[inside]]
                pending, cursor = pending[inside], cursor[inside]
                if not len(pending):
                    break
                places = part.order[cursor]
                is_same = np.ones(len(pending), bool)
                for column, key_column in zip(columns, part.columns, strict=True):
                    is_same &= _same(column.take(pa.array(pending)), key_column.take(pa.array(places)))
                slots[pending[is_same]] = part.first + places[is_same]
                pending, cursor = pending[~is_same], cursor[~is_same] + 1
        return slots

    def add(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """Assign slots to unknown keys, each given once."""
        columns = [layouts.comparable(column) for column in columns]
        count, first = len(columns[0]), len(self)
        self.files = np.concatenate([self.files, np.zeros(count, np.int32)])
        self.positions = np.concatenate([self.positions, np.full(count, GONE)])
        self.deleted = np.concatenate([self.deleted, np.zeros(count, bool)])
        if count:
            hashes = _hashes(columns)
            order = np.argsort(hashes).astype(np.int32)
            self._parts.append(_Part(first, tuple(columns), hashes[order], order))
        while len(self._parts) > 1 and len(self._parts[-2].hashes) <= 2 * len(self._parts[-1].hashes):
            self._parts[-2:] = [_joined(*self._parts[-2:])]
        return np.arange(first, first + count)


def _joined(left: _Part, right: _Part) -> _Part:
    columns = tuple(pa.concat_arrays([a, b]) for a, b in zip(left.columns, right.columns, strict=True))
    hashes = np.concatenate([left.hashes, right.hashes])
    order = np.concatenate([left.order, right.order + np.int32(len(left.order))])
    by_hash = np.argsort(hashes, kind="stable")  # Two sorted runs: a merge.
    return _Part(left.first, columns, hashes[by_hash], order[by_hash])


def _hashes(columns: Sequence[pa.Array]) -> np.ndarray:
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ (mixed >> np.uint64(29)) ^ _hash(column)) * _MIX
    return mixed


def _hash(column: pa.Array) -> np.ndarray:
    """A number of each value, the same for equal values."""
    column = layouts.plain(column)
    type = column.type
    if pa.types.is_primitive(type) and not pa.types.is_boolean(type):
        bits = pc.fill_null(column.view(f"int{type.bit_width}"), 0)
        hashes = bits.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    else:
        is_bytes = pa.types.is_fixed_size_binary(type) or pa.types.is_binary(type) or pa.types.is_large_binary(type)
        hashes = murmur3_128((column if is_bytes else column.cast(pa.string())).cast(pa.binary()))
    return hashes if not column.null_count else np.where(np.asarray(column.is_null()), _NULL, hashes)


def _same(left: pa.Array, right: pa.Array) -> np.ndarray:
    same = pc.fill_null(pc.equal(left, right), False)
    if left.null_count and right.null_count:
        same = pc.or_(same, pc.and_(left.is_null(), right.is_null()))
    mask: np.ndarray = same.to_numpy(zero_copy_only=False)
    return mask
