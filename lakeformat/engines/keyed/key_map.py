"""The keys of one commit with the positions of their rows; it grows and is looked up by batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeformat.engines.kernels.rows import KeySet
from lakeformat.model.schema import Field

GONE = -1  # The position of a row that was deleted again, or never written.


@dataclass(frozen=True, slots=True)
class _Part:
    """Distinct keys, and the slot of each code."""

    columns: tuple[pa.Array, ...]
    keys: KeySet
    slots: np.ndarray
    by_code: np.ndarray


class KeyMap:
    """Each key has a permanent slot. Null is a value."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self._fields = fields
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
        return own + sum(
            p.keys.nbytes + p.slots.nbytes + p.by_code.nbytes + sum(c.nbytes for c in p.columns) for p in self._parts
        )

    def find(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """The slot of each key; -1 for an unknown key."""
        slots = np.full(len(columns[0]), -1)
        for part in self._parts:
            codes = part.keys.codes(columns)
            hit = codes >= 0
            slots[hit] = part.by_code[codes[hit]]
        return slots

    def add(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """Assign slots to unknown keys, each given once."""
        count = len(columns[0])
        slots = np.arange(len(self), len(self) + count)
        self.files = np.concatenate([self.files, np.zeros(count, np.int32)])
        self.positions = np.concatenate([self.positions, np.full(count, GONE)])
        self.deleted = np.concatenate([self.deleted, np.zeros(count, bool)])
        if count:
            self._parts.append(self._part(tuple(columns), slots))
        while len(self._parts) > 1 and len(self._parts[-2].slots) <= 2 * len(self._parts[-1].slots):
            left, right = self._parts[-2:]
            joined = tuple(pa.concat_arrays([a, b]) for a, b in zip(left.columns, right.columns, strict=True))
            self._parts[-2:] = [self._part(joined, np.concatenate([left.slots, right.slots]))]
        return slots

    def _part(self, columns: tuple[pa.Array, ...], slots: np.ndarray) -> _Part:
        keys = KeySet(self._fields, columns)
        codes = keys.codes(columns)
        by_code = np.zeros(int(codes.max()) + 1, np.int64)
        by_code[codes] = slots
        return _Part(columns, keys, slots, by_code)
