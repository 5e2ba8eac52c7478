"""What is too large for memory, in temporary files: bytes of a source's log, and rows of one commit.

The files are in the folder that `tempfile` chooses (`TMPDIR`), have no name in it, and go with the process.
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

MEMORY_BYTES = 16 << 20  # Of what is read at a time; a run of transactions that is larger goes to disk.
_BATCH_ROWS = 1 << 16  # Of rows that are written together.


class Messages:
    """Byte strings one after the other: in memory up to `memory_bytes` (None: always), beyond that in a temporary file.

    A reader of many small ones appends to `data` and `lengths` itself, and calls `spill` where `data` is longer than `memory_bytes`.
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
        """Nothing more is appended."""
        if self._file is not None:
            self.spill()
        self._ends = np.cumsum(np.array(self.lengths, np.int64))

    def ranges(self, count: int) -> list[tuple[int, int]]:
        """All messages in pieces (first, end) of at most `count` messages and, unless one alone is larger, `memory_bytes`."""
        made, first = list[tuple[int, int]](), 0
        while first < len(self):
            before = self._start(first)
            end = min(first + count, int(np.searchsorted(self._ends, before + self.memory_bytes, side="right")))
            made.append((first, max(end, first + 1)))
            first = made[-1][1]
        return made

    def read(self, first: int, end: int) -> tuple[bytearray, np.ndarray]:
        """The bytes of the messages `first` to `end`, and where each begins in them; behind them may be others."""
        start, stop = self._start(first), self._start(end)
        begins = np.concatenate([[start], self._ends[first : end - 1]]) - start if end > first else self._ends[:0]
        if self._file is not None:
            data = bytearray(stop - start)
            self._file.seek(start)
            self._file.readinto(data)
            return data, begins
        return self.data if start == 0 else self.data[start:stop], begins

    def _start(self, place: int) -> int:
        return int(self._ends[place - 1]) if place else 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@dataclass(slots=True)
class Rows:
    """Rows of one commit in the order that they happened, with `rowkind`, in temporary files: one for each set of columns that follow
    each other."""

    counts: Counter[str] = field(default_factory=Counter)  # By kind.
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
        """All rows, some at a time."""
        self._end()
        for file, _ in self._files:
            file.seek(0)
            for batch in pa.ipc.open_stream(file):
                yield pa.Table.from_batches([batch])

    def batches(self, fitted: Callable[[pa.Table], pa.Table]) -> Iterator[pa.RecordBatch]:
        """All rows as one kind of batch: with the columns of all, of the types that `fitted` gives them."""
        schema = pa.unify_schemas([fitted(each.empty_table()).schema for _, each in self._files])
        for each in self.tables():
            rows = fitted(each)
            arrays = [
                rows[field.name] if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
                for field in schema
            ]
            yield from pa.Table.from_arrays(arrays, schema=schema).to_batches()

    def drop(self, where: Mapping[str, str]) -> None:
        """Leave out the rows that have these values; without any, all."""
        kept = Rows()
        for each in self.tables() if where else ():
            has_all = np.ones(each.num_rows, bool)
            for name, value in where.items():
                has_all &= pc.equal(each[name], value).to_numpy(zero_copy_only=False)
            kept.append(each.filter(pa.array(~has_all)))
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
    """How many rows there are of each kind."""
    return {each["values"]: each["counts"] for each in rows[ROW_KIND.name].value_counts().to_pylist()}
