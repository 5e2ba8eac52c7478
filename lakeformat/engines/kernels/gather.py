"""Rows by number out of many batches, whose text may together be longer than 32-bit offsets reach.

pyarrow's `take` joins all chunks of a column before it takes from them, whatever it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lakeformat.codec import layouts

WINDOW_BYTES = 128 << 20  # Bytes of rows that are gathered together, unless a single row has more.
JOINED_BYTES = 64 << 20  # Bytes of batches that are made one.
SMALL_BYTES = 1 << 30  # Up to so many bytes, a table's columns may be arrays.


def is_small(table: pa.Table) -> bool:
    """Whether each of the table's columns, and a copy of them, fits into an array."""
    return table.nbytes <= SMALL_BYTES


def compact(table: pa.Table) -> pa.Table:
    """The table with columns in one chunk, if it is small."""
    return table.combine_chunks() if is_small(table) else table


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in fewer batches: small ones of one schema are joined up to `JOINED_BYTES`."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if waiting and (size + batch.nbytes > JOINED_BYTES or batch.schema != waiting[0].schema):
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)


def buffered(
    batches: Iterable[pa.RecordBatch], memory_bytes: int
) -> tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """The first batches, until they have more than so many bytes, and the rest; None if those are all."""
    in_memory: list[pa.RecordBatch] = []
    size, rest = 0, iter(batches)
    for batch in rest:
        in_memory.append(batch)
        size += batch.nbytes
        if size > memory_bytes:
            return in_memory, rest
    return in_memory, None


def take(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """These rows of the table, in this order, and nulls for negative numbers;
    in several chunks if they are many bytes."""
    if is_small(table):
        try:
            return table.take(pa.array(rows, mask=rows < 0 if (rows < 0).any() else None))
        except pa.ArrowInvalid:  # Rows that repeat overflow the offsets.
            if len(rows) < 2:
                raise
            return _halves(table, rows)
    batches = table.to_batches()
    if (rows < 0).any():
        batches.append(
            pa.RecordBatch.from_arrays([pa.nulls(1, type) for type in table.schema.types], schema=table.schema)
        )
        rows = np.where(rows < 0, table.num_rows, rows)
    ends = np.cumsum([batch.num_rows for batch in batches])
    numbers = np.searchsorted(ends, rows, "right")
    order = None if (numbers[1:] >= numbers[:-1]).all() else np.argsort(numbers, kind="stable")
    sorted_numbers, sorted_rows = (numbers, rows) if order is None else (numbers[order], rows[order])
    cuts = [0, *(np.flatnonzero(np.diff(sorted_numbers)) + 1).tolist(), len(rows)]
    pieces = []
    for start, end in pairwise(cuts):
        if start < end:
            batch = batches[int(sorted_numbers[start])]
            first = int(ends[sorted_numbers[start]]) - batch.num_rows
            pieces.append(batch.take(pa.array(sorted_rows[start:end] - first)))
    taken = pa.Table.from_batches(pieces, table.schema)
    if order is None:
        return taken
    if not is_small(taken) and len(rows) > 1:
        return _halves(table, rows)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return taken.take(pa.array(back))


def take_column(column: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    """As `take`, of one column."""
    return take(pa.table({"": column}), rows).column(0)


def by_batches(
    table: pa.Table, work: Callable[[pa.Table | pa.RecordBatch], pa.Array | pa.ChunkedArray]
) -> pa.Array | pa.ChunkedArray:
    """What `work` makes of the rows, a value for each: of all of a small table together,
    and of others batch by batch."""
    if is_small(table):
        return work(table)
    chunks = [layouts.plain(work(batch)) for batch in table.to_batches()]
    return pa.chunked_array(chunks, chunks[0].type)


def windows(sizes: np.ndarray, most_rows: int, most_bytes: int | None = None) -> Iterator[slice]:
    """Consecutive rows, of which each has `sizes` bytes: at most so many rows and bytes (by default `WINDOW_BYTES`)
    together, and at least one row."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        end = min(
            start + most_rows,
            max(start + 1, int(np.searchsorted(ends, before + (most_bytes or WINDOW_BYTES), "right"))),
        )
        yield slice(start, end)
        start = end


class Rows:
    """A table from which rows are taken by number, and how many bytes each has."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._sizes: np.ndarray | None = None
        self._width = _width(table.schema)
        self._selected: dict[tuple[str, ...], Rows] = {}

    def select(self, names: Iterable[str]) -> Rows:
        """The columns that are among `names`."""
        names = set(names)
        columns = tuple(name for name in self.table.column_names if name in names)
        if columns not in self._selected:
            self._selected[columns] = Rows(self.table.select(list(columns)))
        return self._selected[columns]

    def sizes(self, rows: np.ndarray) -> np.ndarray:
        """For each of these rows about how many bytes it takes."""
        if self._width is not None:
            return np.full(len(rows), self._width)
        if self._sizes is None:
            batches = self.table.to_batches()
            self._sizes = np.concatenate([np.zeros(0, np.int64), *map(layouts.row_bytes, batches)])
        return self._sizes[rows]

    def take(self, rows: np.ndarray) -> pa.Table:
        """These rows; see `take`."""
        return take(self.table, rows)

    def windows(self, rows: np.ndarray, most_rows: int) -> Iterator[slice]:
        """`windows` of these rows."""
        return windows(self.sizes(rows), most_rows)


# --- private ----------------------------------------------------------------------------------------------------------


def _halves(table: pa.Table, rows: np.ndarray) -> pa.Table:
    middle = len(rows) // 2
    return pa.concat_tables([take(table, rows[:middle]), take(table, rows[middle:])])


def _width(schema: pa.Schema) -> int | None:
    """The bytes of a row; None if rows differ."""
    try:
        return sum((type.bit_width + 7) // 8 for type in schema.types)
    except ValueError:
        return None
