"""Which rows of two columns are equal, at any depth: null equals null, and NaN equals NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def equal(left: Any, right: Any) -> np.ndarray:
    """One truth value for each row. Both have the same type and length."""
    there = np.asarray(left.is_valid())
    same = there == np.asarray(right.is_valid())
    both = there & same
    kind = left.type
    if pa.types.is_struct(kind):
        for one, other in zip(left.flatten(), right.flatten(), strict=True):
            same &= equal(one, other) | ~both
        return same
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        one, other = (_lengths(side) for side in (left, right))
        same &= (one == other) | ~both
        places = np.flatnonzero(both & same)
        inner = equal(*(_items(side.take(pa.array(places))) for side in (left, right)))
        np.logical_and.at(same, np.repeat(places, one[places]), inner)
        return same
    mask = pc.equal(left, right)
    if pa.types.is_floating(kind):
        mask = pc.or_kleene(mask, pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))
    return same & (np.asarray(pc.fill_null(mask, False)) | ~both)


def _lengths(column: Any) -> np.ndarray:
    if pa.types.is_map(column.type):
        return np.where(np.asarray(column.is_valid()), np.diff(np.asarray(column.offsets)), 0)
    return np.asarray(pc.fill_null(pc.list_value_length(column), 0), np.int64)


def _items(column: Any) -> pa.Array:
    """What lists hold, one after the other; of maps their entries, in their order."""
    if not pa.types.is_map(column.type):
        return column.flatten()
    ends = np.asarray(column.offsets)
    span = slice(int(ends[0]), int(ends[-1]))
    return pa.StructArray.from_arrays([column.keys[span], column.items[span]], ["key", "value"])
