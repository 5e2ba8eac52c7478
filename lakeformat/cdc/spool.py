"""Temporary files for data that is too large for memory: log bytes, and the rows of one commit.

The files are unnamed, in the folder that `tempfile` chooses (`TMPDIR`), and disappear with the process.
"""

from __future__ import annotations

import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.model.work import ROW_KIND

MEMORY_BYTES = 16 << 20  # Bytes read at a time; a larger run of transactions goes to disk.
_BATCH_ROWS = 1 << 16  # Rows written together.


class Messages:
    """A sequence of byte strings, in memory up to `memory_bytes` (None: no limit), beyond that in a temporary file.

    For many small strings, append to `data` and `lengths` directly and call `spill` once `data` is longer than
    `memory_bytes`.
    """

    __slots__ = ("_ends", "_file", "data", "lengths", "memory_bytes")

    def __init__(self, memory_bytes: int | None = MEMORY_BYTES) -> None:
        self.data, self.lengths = bytearray(), array("q")
        self.memory_bytes = 1 << 62 if memory_bytes is None else memory_bytes
        self._file: Any = None
        self._ends = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def append(self, message: bytes) -> None:
        self.data += message
        self.lengths.append(len(message))
        if len(self.data) > self.memory_bytes:
            self.spill()

    def spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._file.write(self.data)
        self.data = bytearray()

    def finish(self) -> None:
        """End appending."""
        if self._file is not None:
            self.spill()
        self._ends = np.cumsum(np.array(self.lengths, np.int64))

    def ranges(self, count: int) -> list[tuple[int, int]]:
        """Split all messages into ranges (first, end) of at most `count` messages and `memory_bytes`; a larger message
        is its own range."""
        ranges, first = list[tuple[int, int]](), 0
        while first < len(self):
            before = self._start(first)
            end = min(first + count, int(np.searchsorted(self._ends, before + self.memory_bytes, side="right")))
            ranges.append((first, max(end, first + 1)))
            first = ranges[-1][1]
        return ranges

    def read(self, first: int, end: int) -> tuple[bytearray, np.ndarray]:
        """The bytes of messages `first` to `end`, and the offset of each; other bytes may follow."""
        start, stop = self._start(first), self._start(end)
        begins = np.concatenate([[start], self._ends[first : end - 1]]) - start if end > first else self._ends[:0]
        if self._file is not None:
            data = bytearray(stop - start)
            self._file.seek(start)
            self._file.readinto(data)
            return data, begins
        return self.data if start == 0 else self.data[start:stop], begins

    def _start(self, index: int) -> int:
        return int(self._ends[index - 1]) if index else 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@dataclass(slots=True)
class Rows:
    """The rows of one commit in log order, with `rowkind`, in temporary files;
    a new file starts whenever the columns change."""

    counts: Counter[str] = field(default_factory=Counter)  # Rows by kind.
    _files: list[tuple[IO[bytes], pa.Schema]] = field(default_factory=list)
    _sink: Any = None

    @property
    def num_rows(self) -> int:
        return self.counts.total()

    def append(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if self._sink is None or self._files[-1][1] != rows.schema:
            self._end()
            file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
            self._files.append((file, rows.schema))
            self._sink = pa.ipc.new_stream(file, rows.schema)
        self._sink.write_table(rows, max_chunksize=_BATCH_ROWS)
        self.counts.update(kinds(rows))

    def tables(self) -> Iterator[pa.Table]:
        """All rows, a batch at a time."""
        self._end()
        for file, _ in self._files:
            file.seek(0)
            for batch in pa.ipc.open_stream(file):
                yield pa.Table.from_batches([batch])

    def batches(self, fitted: Callable[[pa.Table], pa.Table]) -> Iterator[pa.RecordBatch]:
        """All rows in batches of one schema: the union of the columns, in the types that `fitted` gives them."""
        schema = pa.unify_schemas([fitted(rows.empty_table()).schema for _, rows in self._files])
        for table in self.tables():
            rows = fitted(table)
            arrays = [
                rows[field.name] if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
                for field in schema
            ]
            yield from pa.Table.from_arrays(arrays, schema=schema).to_batches()

    def drop(self, where: Mapping[str, str]) -> None:
        """Drop the rows with these values; all rows if `where` is empty."""
        kept = Rows()
        for table in self.tables() if where else ():
            has_all = np.ones(table.num_rows, bool)
            for name, value in where.items():
                has_all &= pc.equal(table[name], value).to_numpy(zero_copy_only=False)
            kept.append(table.filter(pa.array(~has_all)))
        self.close()
        self.counts, self._files, self._sink = kept.counts, kept._files, kept._sink

    def _end(self) -> None:
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def close(self) -> None:
        self._end()
        for file, _ in self._files:
            file.close()
        self._files = []


def kinds(rows: pa.Table) -> dict[str, int]:
    """Row counts by kind."""
    return {count["values"]: count["counts"] for count in rows[ROW_KIND.name].value_counts().to_pylist()}
