"""Row kernels over Arrow: split by keys, filter, apply deletes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.codec.numbers import distinct
from lakeformat.engines.kernels import gather
from lakeformat.model.schema import Field

_SPAN = 1 << 12  # Of integers, up to which their distance to the least is their code.


def split(batch: pa.RecordBatch, keys: Sequence[pa.Array]) -> Iterator[tuple[tuple[pa.Scalar, ...], pa.RecordBatch]]:
    """The rows of each distinct combination of `keys` (one array per key, as long as the batch), in their order.

    Groups are in the order of first appearance. Null is a value.
    """
    if batch.num_rows == 0:
        return
    if not keys:
        yield (), batch
        return
    codes = key_codes(keys)
    changes, order = int(np.count_nonzero(codes[1:] != codes[:-1])), None
    if changes and changes + 1 > _distinct(codes):
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
    edges = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    starts, stops = np.concatenate(([0], edges)), np.append(edges, len(codes))
    firsts = starts if order is None else order[starts]
    for index in np.argsort(firsts, kind="stable"):
        start, stop = int(starts[index]), int(stops[index])
        # A small part is copied: as a slice it would keep the whole batch in memory.
        if order is not None:
            group = batch.take(pa.array(order[start:stop]))
        elif (stop - start) * 8 >= batch.num_rows:
            group = batch.slice(start, stop - start)
        else:
            group = batch.take(pa.array(np.arange(start, stop)))
        first = int(firsts[index])
        yield tuple(key[first] for key in keys), group


def rise(keys: Sequence[pa.Array]) -> bool:
    """Whether each combination of `keys` (one array per key) is greater than the one before; null and NaN are not."""
    rises, same = np.zeros(max(len(keys[0]) - 1, 0), bool), np.ones(max(len(keys[0]) - 1, 0), bool)
    for column in keys:
        before, after = column[:-1], column[1:]
        less, equal = (pc.fill_null(mask, False) for mask in (pc.less(before, after), pc.equal(before, after)))
        rises |= same & less.to_numpy(zero_copy_only=False)
        same &= equal.to_numpy(zero_copy_only=False)
    return bool(rises.all())


def keep(batch: pa.RecordBatch, mask: pa.Array | pa.ChunkedArray) -> pa.RecordBatch:
    """The rows for which `mask` (no nulls) is true; no copy when all are."""
    return batch if pc.all(mask, min_count=0).as_py() else batch.filter(mask)


class KeySet:
    """A set of keys of one or more columns, compared as in Java. Null equals null."""

    def __init__(self, fields: tuple[Field, ...], columns: Sequence[pa.Array]) -> None:
        self.fields = fields
        columns = [layouts.comparable(column) for column in columns]
        self._values = [column.unique() for column in columns]
        # The combined codes of the columns up to the second, the third, ..., sorted.
        self._levels: list[np.ndarray] = []
        codes = _places(columns[0], self._values[0])
        for column, values in zip(columns[1:], self._values[1:], strict=True):
            level, codes = np.unique(codes * len(values) + _places(column, values), return_inverse=True)
            self._levels.append(level)

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in self._values) + sum(level.nbytes for level in self._levels)

    def contains(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """For each row whether its key is in the set."""
        return self.codes(columns) >= 0

    def codes(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """For each row the number of its key, equal for equal keys; -1 if it is not in the set."""
        columns = [layouts.comparable(column) for column in columns]
        codes = _places(columns[0], self._values[0])
        hits = codes >= 0
        for column, values, level in zip(columns[1:], self._values[1:], self._levels, strict=True):
            column_codes = _places(column, values)
            hits &= column_codes >= 0
            if not hits.any():
                break
            wanted = codes * len(values) + column_codes
            codes = np.minimum(np.searchsorted(level, wanted), len(level) - 1)
            hits &= level[codes] == wanted
        return np.where(hits, codes, -1)


# Positions, and sets of keys beside their columns.
Deletes = tuple[np.ndarray, Sequence[tuple[KeySet, Sequence[pa.Array]]]]


def apply_deletes(
    batch: pa.RecordBatch,
    first_position: int,
    positions: np.ndarray,
    keys: Sequence[tuple[KeySet, Sequence[pa.Array]]] = (),
) -> pa.RecordBatch:
    """The rows of `batch`, whose first row is at `first_position` of its file, that are not deleted: neither at one of
    `positions` (ascending) nor, by the given columns, in a set of `keys`."""
    mask = deleted(batch, first_position, positions, keys)
    return batch if mask is None else keep(batch, pa.array(~mask))


def newly_deleted(batch: pa.RecordBatch, first_position: int, before: Deletes, now: Deletes) -> pa.RecordBatch:
    """The rows that `now` deletes and `before` does not."""
    deleted_now, earlier = deleted(batch, first_position, *now), deleted(batch, first_position, *before)
    if deleted_now is None:
        return batch.slice(0, 0)
    return keep(batch, pa.array(deleted_now if earlier is None else deleted_now & ~earlier))


def deleted(
    batch: pa.RecordBatch,
    first_position: int,
    positions: np.ndarray,
    keys: Sequence[tuple[KeySet, Sequence[pa.Array]]] = (),
) -> np.ndarray | None:
    """For each row whether `apply_deletes` would remove it; None if no delete can apply."""
    low, high = np.searchsorted(positions, (first_position, first_position + batch.num_rows))
    if low == high and not keys:
        return None
    mask = np.zeros(batch.num_rows, bool)
    mask[positions[low:high] - first_position] = True
    for known, columns in keys:
        mask |= known.contains(columns)
    return mask


def _places(column: pa.Array, values: pa.Array) -> np.ndarray:
    """The index of each value in `values`, null being one of them; -1 if it is missing."""
    if len(values) == 0:
        return np.full(len(column), -1)
    result = pc.index_in(column, value_set=values)
    return np.asarray(result.fill_null(-1)).astype(np.int64)


def key_codes(keys: Sequence[pa.Array]) -> np.ndarray:
    """One small integer per row, equal where all keys are equal, compared as in Java."""
    codes, size = _codes(layouts.comparable(keys[0]))
    for key in map(layouts.comparable, keys[1:]):
        numbers, count = _codes(key)
        if size * count > 1 << 62:
            _, codes = np.unique(codes, return_inverse=True)
            size = int(codes.max()) + 1
        size *= count
        codes = codes.astype(_dtype(size)) * count + numbers
    return codes.astype(_dtype(size), copy=False)


def last_of_each(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The last of rows that are equal in these columns; the result keeps the order."""
    codes = key_codes([layouts.plain(table[name]) for name in names])
    _, last = np.unique(codes[::-1], return_index=True)
    return table if len(last) == len(codes) else gather.take(table, np.sort(len(codes) - 1 - last))


def _dtype(size: int) -> Any:
    return np.uint16 if size < 1 << 16 else np.int64  # numpy sorts 16 bits by radix.


def _codes(key: pa.Array) -> tuple[np.ndarray, int]:
    """A number for each value, and how many numbers there may be."""
    if (pa.types.is_integer(key.type) or pa.types.is_date32(key.type)) and len(key) and not key.null_count:
        integers = (key.view(pa.int32()) if pa.types.is_date32(key.type) else key).to_numpy()
        least, most = integers.min(), integers.max()
        count = int(most) - int(least) + 1
        if count <= _SPAN:  # Without hashing. The lowest 16 bits are those of the difference.
            return integers.astype(np.uint16) - least.astype(np.uint16), count
    is_encoded = pa.types.is_dictionary(key.type)
    encoded: Any = key if is_encoded else pc.dictionary_encode(key, null_encoding="encode")
    if encoded.indices.null_count:
        encoded = pc.dictionary_encode(encoded.dictionary_decode(), null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False), max(1, len(encoded.dictionary))


def _distinct(codes: np.ndarray) -> int:
    return int(np.count_nonzero(np.bincount(codes))) if codes.dtype == np.uint16 else len(distinct(codes))
