"""Values as integers with the sort order of both formats: floats as in Java, text and binary by unsigned bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts

_LIMIT = 1 << 62


def ranks(
    columns: Sequence[pa.ChunkedArray], descending: Sequence[bool] = (), nulls_last: Sequence[bool] = ()
) -> np.ndarray:
    """One int64 per row that orders rows by `columns`, the first counting most; equal if all values are.

    `descending`: for each column whether large values come first. Nulls come first either way, except with
    `nulls_last`.
    """
    codes, size = np.zeros(len(columns[0]), np.int64), 1
    for index, column in enumerate(columns):
        column_codes, column_size = _ranks(
            column, bool(descending) and descending[index], bool(nulls_last) and nulls_last[index]
        )
        if size * column_size > _LIMIT:
            column_codes, column_size = _dense(column_codes)
        if size * column_size > _LIMIT:
            codes, size = _dense(codes)
        codes = column_codes if size == 1 else codes * column_size + column_codes
        size *= column_size
    return codes


def are_numbers(kind: pa.DataType) -> bool:
    """Whether `ordinals` of values of this type are the same in every column."""
    t = pa.types
    is_moment = t.is_date(kind) or t.is_time(kind) or t.is_timestamp(kind)
    return is_moment or t.is_boolean(kind) or t.is_signed_integer(kind) or t.is_floating(kind)


def ordinals(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """One int64 per row that orders the values; undefined for nulls."""
    kind = column.type
    if pa.types.is_floating(kind):
        return layouts.float_ordinals(_numbers(column.cast(pa.float64())))
    if pa.types.is_boolean(kind):
        return _numbers(column.cast(pa.int8())).astype(np.int64)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _numbers(column.cast(pa.int32())).astype(np.int64)
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_date64(kind):
        return _numbers(column.cast(pa.int64()))
    return pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().view(np.int64)


def _ranks(column: pa.ChunkedArray, descending: bool, nulls_last: bool) -> tuple[np.ndarray, int]:
    """(ranks from 0, how many there may be)."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64), 1
    codes = ordinals(column)
    valid = None if column.null_count == 0 else np.asarray(column.is_valid())
    valid_codes = codes if valid is None else codes[valid]
    low, high = int(valid_codes.min()), int(valid_codes.max())
    if high - low >= _LIMIT:
        dense, size = _dense(valid_codes)
        codes = _scattered(dense, valid)
        low, high = 0, size - 1
    codes = high - codes if descending else codes - low
    if valid is not None:
        codes = np.where(valid, codes, high - low + 1) if nulls_last else np.where(valid, codes + 1, 0)
    return codes, high - low + 1 + (valid is not None)


def _dense(codes: np.ndarray) -> tuple[np.ndarray, int]:
    values, inverse = np.unique(codes, return_inverse=True)
    return inverse.astype(np.int64, copy=False), len(values)


def _scattered(values: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
    if valid is None:
        return values
    result = np.zeros(len(valid), np.int64)
    result[valid] = values
    return result


def _numbers(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    filled = column.fill_null(0) if column.null_count else column
    return filled.to_numpy(zero_copy_only=False) if isinstance(filled, pa.Array) else filled.to_numpy()
