"""Sets of integers as ascending arrays, and codes: integers from 0 that number distinct values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, ascending. numpy's `unique` hashes them, which takes ten times as long for a million
    distinct values and grows faster than their number."""
    if (values[1:] > values[:-1]).all():
        return values
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def among(values: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    """Whether each value is in `ascending`."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    return ascending[np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)] == values


def dense(values: np.ndarray) -> np.ndarray:
    """The values as codes, in the order in which they first occur."""
    return pa.array(values).dictionary_encode().indices.to_numpy().astype(np.int64)


def first_of_each(codes: np.ndarray) -> np.ndarray:
    """Where each code first occurs."""
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # Of several, numpy keeps the last.
    return first
