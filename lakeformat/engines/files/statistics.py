"""Column bounds and counts of a data file: from a Parquet footer, or from the rows as they are written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.codec import wkb
from lakeformat.model.schema import Field, Geo, Kind, MultisetOf, Scalar, Type, children
from lakeformat.model.work import ColumnStats, StatsMode

EPOCH = dt.date(1970, 1, 1)
FOOTER_LIMIT = 4096  # Arrow writes no longer bounds into a footer.

_FLOATS = (Kind.FLOAT, Kind.DOUBLE)
_GEO = (Kind.GEOMETRY, Kind.GEOGRAPHY)
_TEXTS = (Kind.CHAR, Kind.VARCHAR, Kind.STRING)
_BLOBS = (Kind.BINARY, Kind.VARBINARY, Kind.BYTES, Kind.FIXED, Kind.UUID)
_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)


def of_rows(table: pa.Table, fields: tuple[Field, ...]) -> dict[int, ColumnStats]:
    """Statistics of `table`'s columns `fields`, by field id; without bounds for nested columns and columns with a
    NaN."""
    return {field.id: _of_column(table.column(i), field.type, field.name) for i, field in enumerate(fields)}


def beside_footer(table: pa.Table, fields: tuple[Field, ...], int96: bool) -> dict[int, ColumnStats]:
    """Statistics that a footer of `table` lacks, by field id: NaNs, long texts, INT96 timestamps, nested nulls."""
    statistics = {}
    for i, field in enumerate(fields):
        match field.type:
            case Geo():
                statistics[field.id] = _of_column(table.column(i), field.type, field.name)
            case Scalar(kind) if kind in _FLOATS or (int96 and kind in _INSTANTS):
                statistics[field.id] = _of_column(table.column(i), field.type)
            case Scalar(kind) if kind in _TEXTS or kind in _BLOBS:
                column = table.column(i)
                longest = pc.max(pc.binary_length(column)).as_py() if column.nbytes >= FOOTER_LIMIT else None
                if longest is not None and longest >= FOOTER_LIMIT:
                    statistics[field.id] = _of_column(column, field.type)
            case Scalar(kind) if kind is not Kind.VARIANT:
                pass
            case _:
                statistics[field.id] = _of_column(table.column(i), field.type)
    return statistics


def nan_counts(
    fields: tuple[Field, ...], extra: Sequence[Mapping[int, ColumnStats]], widths: Sequence[int]
) -> list[dict[int, int]]:
    """Per row group, by leaf index, the number of NaNs in the float columns of `fields`. `widths`: the number of leaf
    columns of each."""
    places, leaf = {}, 0
    for field, width in zip(fields, widths, strict=True):
        if isinstance(field.type, Scalar) and field.type.kind in _FLOATS:
            places[field.id] = leaf
        leaf += width
    counts = [{leaf: of_group[id].nan_count for id, leaf in places.items() if id in of_group} for of_group in extra]
    return [{leaf: count for leaf, count in group.items() if count is not None} for group in counts]


def lacking(row_group: pq.RowGroupMetaData, fields: tuple[Field, ...], int96: bool) -> tuple[Field, ...]:
    """The columns of `fields` (all of a file's, in order) for which `beside_footer` of an existing row group may add
    statistics."""
    incomplete = []
    leaf = 0
    for field in fields:
        width = _width(field.type)
        stats = row_group.column(leaf).statistics if width == 1 else None
        match field.type:
            case Scalar(kind) if kind in _GEO or kind in _FLOATS or (int96 and kind in _INSTANTS):
                incomplete.append(field)
            case Scalar(kind) if kind is not Kind.VARIANT:
                # For a long text the footer has no bounds, or only one.
                if stats is None or not (stats.has_min_max or stats.null_count == row_group.num_rows):
                    incomplete.append(field)
            case _:
                incomplete.append(field)
        leaf += width
    return tuple(incomplete)


def from_footer(
    metadata: pq.FileMetaData,
    fields: tuple[Field, ...],
    leaves: Sequence[range],
    extra: Sequence[Mapping[int, ColumnStats]] = (),
) -> dict[int, ColumnStats]:
    """Statistics of the columns `fields`, by field id.

    `leaves`: the indexes of the leaf columns of each. `extra` has per row group what the footer lacks (see
    `beside_footer`). Bounds are None if a row group with values has none.
    """
    statistics: dict[int, list[ColumnStats]] = {field.id: [] for field in fields}
    for group in range(metadata.num_row_groups):
        beside = extra[group] if group < len(extra) else {}
        row_group = metadata.row_group(group)
        for field, indexes in zip(fields, leaves, strict=True):
            chunks = [row_group.column(i) for i in indexes]
            size = sum(chunk.total_compressed_size for chunk in chunks)
            if field.id in beside:
                statistics[field.id].append(_sized(beside[field.id], size))
            else:
                statistics[field.id].append(_of_chunk(chunks, field.type, row_group.num_rows, size))
    return {id: merge(parts) for id, parts in statistics.items()}


def merge(parts: Iterable[ColumnStats]) -> ColumnStats:
    """The statistics of all rows of `parts`; with bounds only if every part with values has them."""
    minimum = maximum = None
    nulls: int | None = 0
    nans: int | None = 0
    values = size = 0
    bounded = True
    for part in parts:
        values += part.value_count or 0
        nans = None if nans is None or part.nan_count is None else nans + part.nan_count
        size += part.size_bytes or 0
        nulls = None if nulls is None or part.null_count is None else nulls + part.null_count
        if part.null_count is not None and part.null_count == part.value_count:
            continue
        if part.minimum is None or part.maximum is None:
            bounded = False
        elif bounded and isinstance(part.minimum, tuple):
            box = (part.minimum, part.maximum)
            bounds = box if minimum is None or maximum is None else wkb.joined((minimum, maximum), box)
            minimum, maximum = bounds
        elif bounded:
            minimum = part.minimum if minimum is None else min(minimum, part.minimum)
            maximum = part.maximum if maximum is None else max(maximum, part.maximum)
    if not bounded or nans:
        minimum = maximum = None
    return ColumnStats(minimum, maximum, nulls, values, nans, size)


def trim(
    measured: Mapping[int, ColumnStats], fields: tuple[Field, ...], modes: Sequence[tuple[StatsMode, int]]
) -> dict[int, ColumnStats]:
    """Statistics in the table's modes: none, counts only, or bounds too (truncated by the dialect)."""
    kept = {}
    for field, (mode, _) in zip(fields, modes or [(StatsMode.FULL, 0)] * len(fields), strict=True):
        if mode is StatsMode.NONE or field.id not in measured:
            continue
        stats = measured[field.id]
        if mode is StatsMode.COUNTS:
            stats = ColumnStats(None, None, stats.null_count, stats.value_count, stats.nan_count, stats.size_bytes)
        kept[field.id] = stats
    return kept


def _of_column(column: pa.ChunkedArray | pa.Array, type: Type, name: str = "") -> ColumnStats:
    size = column.nbytes
    if isinstance(type, Geo):
        box = wkb.box(column, name) or (None, None)
        # Edges of a geography are curves, which extend beyond their ends and around the earth.
        low, high = box if type.kind is Kind.GEOMETRY else (None, None)
        return ColumnStats(low, high, column.null_count, len(column), 0, size)
    if not isinstance(type, Scalar) or type.kind is Kind.VARIANT:
        return ColumnStats(None, None, column.null_count, len(column), 0, size)
    nans = 0
    if type.kind in _FLOATS:
        nans = pc.sum(pc.is_nan(column), min_count=0).as_py()
    minimum = maximum = None
    if not nans and column.null_count < len(column):
        bounds = pc.min_max(column)
        minimum, maximum = (_python(bounds[name], type) for name in ("min", "max"))
    return ColumnStats(minimum, maximum, column.null_count, len(column), nans, size)


def _python(value: pa.Scalar, type: Scalar) -> Any:
    """The Python value; None for a date that Python cannot represent."""
    try:
        return value.value if type.kind in _INSTANTS else value.as_py()
    except (OverflowError, ValueError):
        return None


def _of_chunk(chunks: Sequence[pq.ColumnChunkMetaData], type: Type, rows: int, size: int) -> ColumnStats:
    if not isinstance(type, Scalar) or type.kind is Kind.VARIANT:
        # A leaf's definition levels do not distinguish a null list from an empty one; only rows do.
        return ColumnStats(None, None, None, rows, 0, size)
    stats = chunks[0].statistics
    # Writers of footers exclude NaN from bounds, and do not count it.
    nans = None if type.kind in _FLOATS else 0
    if stats is None:
        return ColumnStats(None, None, None, rows, nans, size)
    nulls = stats.null_count if stats.has_null_count else None
    if nulls == rows:
        nans = 0
    minimum = maximum = None
    if stats.has_min_max:
        minimum, maximum = (_logical(raw, type) for raw in (stats.min_raw, stats.max_raw))
    if minimum != minimum or maximum != maximum:  # Some writers write NaN as a bound.
        minimum = maximum = None
    return ColumnStats(minimum, maximum, nulls, rows, nans, size)


def _logical(raw: Any, type: Scalar) -> Any:
    """A footer's number or bytes as the Python value of its logical type."""
    match type:
        case Scalar(Kind.DATE):
            try:
                return EPOCH + dt.timedelta(days=raw)
            except OverflowError:
                return None
        case Scalar(Kind.TIME | Kind.TIME_MICROS as kind):
            seconds, micros = divmod(raw * (1000 if kind is Kind.TIME else 1), 1_000_000)
            return dt.time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)
        case Scalar(Kind.DECIMAL, (_, scale)):
            number = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
            return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))
        case Scalar(kind) if kind in _TEXTS:
            return raw.decode() if isinstance(raw, bytes) else raw
        case Scalar(kind) if kind in _BLOBS:
            return bytes(raw)
    return raw


def _sized(stats: ColumnStats, size: int) -> ColumnStats:
    return ColumnStats(stats.minimum, stats.maximum, stats.null_count, stats.value_count, stats.nan_count, size)


def _width(type: Type) -> int:
    if isinstance(type, Scalar):
        return 2 if type.kind is Kind.VARIANT else 1
    parts = children(type)
    # A multiset stores its counts beside its elements.
    return sum(_width(part.type) for part in parts) + int(isinstance(type, MultisetOf))
