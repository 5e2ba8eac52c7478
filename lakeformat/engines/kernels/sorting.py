"""External sort: rows beyond the memory limit are written to local files by ranges of the key, and sorted range by
range."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.engines.kernels import curve, gather, ranks
from lakeformat.expression import transform
from lakeformat.model.partition import Curve, Sort
from lakeformat.model.schema import Field, find_part

BATCH_ROWS = 1 << 17
_SAMPLED = 64  # One row in so many is sampled for the bounds of ranges.
_RANGES = 200  # Files that are open together.


def in_order(
    batches: Iterable[pa.RecordBatch], order: Sequence[Sort], fields: tuple[Field, ...], memory_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows, with columns `fields`, sorted by `order`; about `memory_bytes` of them are in memory at a time, plus a
    sample of the key. Equal rows keep their order."""
    with tempfile.TemporaryDirectory(prefix="lakeformat-sort-") as folder:
        yield from _in_order(batches, (tuple(order), fields), memory_bytes, Path(folder) / "rows")


def keys(batch: pa.RecordBatch, order: Sequence[Sort], fields: tuple[Field, ...]) -> list[pa.Array]:
    """The sort keys of the rows."""
    columns = []
    for by in order:
        if isinstance(by, Curve):
            along = curve.hilbert if by.kind == "hilbert" else curve.interleaved
            columns.append(along([_values(batch, source) for source in by.sources]))
        else:
            kind = find_part(fields, by.source).type
            columns.append(transform.apply(by.transform, _values(batch, by.source), kind))
    return columns


def _values(batch: pa.RecordBatch, source: tuple[str, ...]) -> pa.Array:
    values = batch.column(source[0])
    return values if len(source) == 1 else pc.struct_field(values, list(source[1:]))


_By = tuple[tuple[Sort, ...], tuple[Field, ...]]  # An order, and the columns that rows have.


def _in_order(batches: Iterable[pa.RecordBatch], by: _By, memory_bytes: int, path: Path) -> Iterator[pa.RecordBatch]:
    in_memory, left = gather.buffered(batches, memory_bytes)
    if left is None:
        if in_memory:
            places = np.argsort(_ranks(pa.concat_tables([_keys(table, by) for table in in_memory]), by), kind="stable")
            yield from pa.Table.from_batches(in_memory).take(pa.array(places)).to_batches(BATCH_ROWS)
        return
    sample, size = _spilled(in_memory, left, by, path)
    edges = _edges(sample, by, min(2 * size // memory_bytes + 1, _RANGES))
    for number, part in enumerate(_split(path, by, edges)):
        if part is None:
            continue
        if number % 2:  # All rows have the same key.
            yield from _read(part)
        else:
            yield from _in_order(_read(part), by, memory_bytes, part.with_name(f"{part.name}-rows"))
        part.unlink()


def _keys(batch: pa.RecordBatch, by: _By) -> pa.Table:
    columns = keys(batch, *by)
    return pa.table(columns, [str(index) for index in range(len(columns))])


def _ranks(table: pa.Table, by: _By, *then: pa.ChunkedArray) -> np.ndarray:
    """One number per row of keys, in sort order; `then` decides between equal ones."""
    order = by[0]
    descending = [*(by.descending for by in order), *(False for _ in then)]
    nulls_last = [*(by.nulls_last for by in order), *(False for _ in then)]
    return ranks.ranks([*table.columns, *then], descending, nulls_last)


def _spilled(
    waiting: list[pa.RecordBatch], left: Iterator[pa.RecordBatch], by: _By, path: Path
) -> tuple[pa.Table, int]:
    """All rows in a file; a sample of their keys; and their size in bytes. The rows in memory are released."""
    sample, size = [], 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, waiting[0].schema) as sink:
        while True:
            batch = waiting.pop(0) if waiting else next(left, None)
            if batch is None:
                break
            sink.write_batch(batch)
            size += batch.nbytes
            sample.append(_keys(batch.take(pa.array(np.arange(0, batch.num_rows, _SAMPLED))), by))
    return pa.concat_tables(sample), size


def _edges(sample: pa.Table, by: _By, ranges: int) -> pa.Table:
    """Keys that split the sample into ranges of about equal numbers of rows; they may repeat."""
    places = np.argsort(_ranks(sample, by), kind="stable")
    return sample.take(pa.array(places[np.arange(1, max(ranges, 2)) * len(places) // max(ranges, 2)]))


def _split(path: Path, by: _By, edges: pa.Table) -> list[Path | None]:
    """The rows of a file by ranges: below the first edge, equal to it, between it and the next, ..."""
    parts: list[Path | None] = [None] * (2 * len(edges) + 1)
    with ExitStack() as stack:
        sinks: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        for batch in _read(path):
            order, values = _ranges(_keys(batch, by), by, edges)
            ordered = batch.take(pa.array(order))
            starts = np.concatenate(([0], np.flatnonzero(np.diff(values)) + 1, [len(values)]))
            for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
                number = int(values[start])
                if number not in sinks:
                    parts[number] = part = path.with_name(f"{path.name}-{number}")
                    file = stack.enter_context(pa.OSFile(str(part), "wb"))
                    sinks[number] = stack.enter_context(pa.ipc.new_stream(file, batch.schema))
                sinks[number].write_batch(ordered.slice(start, end - start))
    path.unlink()
    return parts


def _ranges(row_keys: pa.Table, by: _By, edges: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """(rows in the order of their keys, the range of each): twice the number of edges below its key, plus one if it
    equals an edge."""
    count, marks = len(row_keys), len(edges)
    flags = np.concatenate([np.zeros(marks, np.int8), np.ones(count, np.int8), np.full(marks, 2, np.int8)])
    both = pa.concat_tables([edges, row_keys, edges])
    places = np.argsort(_ranks(both, by, pa.chunked_array([flags])), kind="stable")
    kinds = flags[places]
    chosen = kinds == 1
    reached, passed = np.cumsum(kinds == 0)[chosen], np.cumsum(kinds == 2)[chosen]
    return places[chosen] - marks, 2 * passed + (reached != passed)


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as source:
        yield from source
