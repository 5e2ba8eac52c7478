"""Rows in one order, however many: what memory does not hold goes to local files by ranges of the key, and is sorted range by
range."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakeformat.engines import rows

BATCH_ROWS = 1 << 17
_SAMPLED = 64  # One row of so many tells where ranges begin.
_RANGES = 200  # Files that are open together.


def in_order(batches: Iterable[pa.RecordBatch], columns: Sequence[str], memory_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows by `columns`, ascending, nulls first; about `memory_bytes` of them are in memory at a time, besides a sample of
    the key. Equal rows stay in their order."""
    with tempfile.TemporaryDirectory(prefix="lakeformat-sort-") as folder:
        yield from _in_order(batches, columns, memory_bytes, Path(folder) / "rows")


def _in_order(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], memory_bytes: int, path: Path
) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    size = 0
    left = iter(batches)
    for batch in left:
        held.append(batch)
        size += batch.nbytes
        if size > memory_bytes:
            break
    else:
        if held:
            yield from rows.sort(pa.Table.from_batches(held), columns).to_batches(BATCH_ROWS)
        return
    sample, size = _spilled(held, left, columns, path)
    edges = _edges(sample, min(2 * size // memory_bytes + 1, _RANGES))
    for number, part in enumerate(_split(path, columns, edges)):
        if part is None:
            continue
        if number % 2:  # All rows have the key of one edge.
            yield from _read(part)
        else:
            yield from _in_order(_read(part), columns, memory_bytes, part.with_name(f"{part.name}-rows"))
        part.unlink()


def _spilled(
    held: list[pa.RecordBatch], left: Iterator[pa.RecordBatch], columns: Sequence[str], path: Path
) -> tuple[pa.Table, int]:
    """All rows in a file; a sample of their keys, and how many bytes they are. What was held is let go."""
    sample, size = [], 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, held[0].schema) as sink:
        while True:
            batch = held.pop(0) if held else next(left, None)
            if batch is None:
                break
            sink.write_batch(batch)
            size += batch.nbytes
            sample.append(batch.select(columns).take(pa.array(np.arange(0, batch.num_rows, _SAMPLED))))
    return pa.Table.from_batches(sample), size


def _edges(sample: pa.Table, ranges: int) -> pa.Table:
    """Keys that cut the sample into ranges of about as many rows each; they may repeat."""
    ordered = rows.sort(sample, sample.column_names)
    return ordered.take(pa.array(np.arange(1, max(ranges, 2)) * len(ordered) // max(ranges, 2)))


def _split(path: Path, columns: Sequence[str], edges: pa.Table) -> list[Path | None]:
    """The rows of a file by ranges: below the first edge, those that have its key, those between it and the next, ..."""
    parts: list[Path | None] = [None] * (2 * len(edges) + 1)
    with ExitStack() as stack:
        sinks: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        for batch in _read(path):
            order, ranges = _ranges(batch.select(columns), edges)
            ordered = batch.take(pa.array(order))
            starts = np.concatenate(([0], np.flatnonzero(np.diff(ranges)) + 1, [len(ranges)]))
            for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
                number = int(ranges[start])
                if number not in sinks:
                    parts[number] = part = path.with_name(f"{path.name}-{number}")
                    file = stack.enter_context(pa.OSFile(str(part), "wb"))
                    sinks[number] = stack.enter_context(pa.ipc.new_stream(file, batch.schema))
                sinks[number].write_batch(ordered.slice(start, end - start))
    path.unlink()
    return parts


def _ranges(keys: pa.RecordBatch, edges: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """(rows in the order of their keys, the range of each): twice the edges below its key, and one more where it is at one."""
    count, marks = keys.num_rows, len(edges)
    own = pa.Table.from_batches([keys])
    both = pa.concat_tables([edges, own, edges])
    flags = np.concatenate([np.zeros(marks, np.int8), np.ones(count, np.int8), np.full(marks, 2, np.int8)])
    names = [str(place) for place in range(both.num_columns)]
    table = both.rename_columns(names).append_column("flag", pa.array(flags))
    table = table.append_column("place", pa.array(np.arange(len(flags)) - marks))
    ordered = rows.sort(table, [*names, "flag"])
    places, kinds = ordered["place"].to_numpy(), ordered["flag"].to_numpy()
    chosen = kinds == 1
    reached, passed = np.cumsum(kinds == 0)[chosen], np.cumsum(kinds == 2)[chosen]
    return places[chosen], 2 * passed + (reached != passed)


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as source:
        yield from source
