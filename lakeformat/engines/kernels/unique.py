"""The last row of each key, of rows that need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from lakeformat.engines.kernels import gather, rows, sorting
from lakeformat.model.partition import SortField
from lakeformat.model.schema import Field


def last_rows(
    batches: Iterable[pa.RecordBatch], key: Sequence[str], fields: tuple[Field, ...], memory_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The last of rows (with columns `fields`) that are equal in the columns `key`: in their order if they have no more
    than `memory_bytes`, else in the order of the key."""
    in_memory, left = gather.buffered(batches, memory_bytes)
    if left is None:
        if in_memory:
            yield from rows.last_of_each(pa.Table.from_batches(in_memory), key).to_batches(sorting.BATCH_ROWS)
        return
    order = [SortField((name,)) for name in key]
    yield from _last_of_runs(sorting.in_order(chain(_released(in_memory), left), order, fields, memory_bytes), key)


def _released(waiting: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while waiting:
        yield waiting.pop(0)


def _last_of_runs(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The last of rows that are equal in these columns and follow each other."""
    last: pa.RecordBatch | None = None  # A row that the next batch may replace.
    for batch in batches:
        if not batch.num_rows:
            continue
        joined = batch if last is None else pa.concat_batches([last, batch])
        codes = rows.key_codes([joined.column(name) for name in key])
        yield rows.keep(joined.slice(0, len(codes) - 1), pa.array(np.diff(codes.astype(np.int64)) != 0))
        last = joined.slice(len(codes) - 1)
    if last is not None:
        yield last
