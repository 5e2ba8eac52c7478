"""A changelog -> data files, equality deletes of older rows, and position deletes of rows written by the same
commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.codec.plain_values import row_kinds
from lakeformat.engines import arrow, worker
from lakeformat.engines.kernels import assign, rows
from lakeformat.engines.keyed.key_map import GONE, KeyMap
from lakeformat.engines.row_level import marks
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.model.schema import Field
from lakeformat.model.work import FILE, POSITION, RETRACTS, ROW_KIND, DeltaLayout, RowKind, Target, WrittenFile
from lakeformat.storage.store import Store

MAX_KEYS = 10_000_000
BUFFER_BYTES = 128 << 20
_ROW_BYTES = 100  # What a waiting row takes beside its values once it is processed: codes, orders, slots.


class DeltaFiles:
    """The files of one commit.

    If a key comes again, its earlier row is not written if it still waits, and otherwise deleted by position. A key
    without a row in this commit is deleted by value: always with `upsert`, otherwise if the changelog deletes it. At
    most `max_keys` keys are known at a time; more raise `InvalidInput`.
    """

    def __init__(
        self,
        store: Store,
        layout: DeltaLayout,
        upsert: bool,
        max_keys: int = MAX_KEYS,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._store, self._layout, self._upsert, self._max_keys = store, layout, upsert, max_keys
        self._key = tuple(field.name for field in layout.equality_deletes.fields)
        self._fields = input_fields(layout)
        self._buffer_bytes, self._waiting_bytes = buffer_bytes, 0
        self._waiting: list[tuple[pa.RecordBatch, np.ndarray]] = []  # Rows, and their kinds.
        self.keys = KeyMap()
        self._data: list[WrittenFile] = []
        self._equality_deletes: list[WrittenFile] = []
        self._deleted: list[tuple[np.ndarray, np.ndarray]] = []  # (files, positions) of rows of this commit.

    def write(self, data: Any) -> None:
        """Rows with a column `rowkind` ("+I", "-U", "+U", "-D"; null or no column: "+I"), in the order in which they
        happened."""
        for batch in arrow.batches(data, (*self._layout.data.fields, ROW_KIND), self._layout.data.partition_by):
            kinds = pa.nulls(batch.num_rows, pa.string())
            if ROW_KIND.name in batch.schema.names:
                kinds = layouts.plain(batch.column(ROW_KIND.name)).cast(pa.string())
                batch = batch.drop_columns([ROW_KIND.name])
            assign.check(batch.schema, self._fields, self._layout.data.partition_by)
            for start in range(0, batch.num_rows, worker.BATCH_ROWS):
                piece = assign.assign(batch.slice(start, worker.BATCH_ROWS), self._fields)
                self._waiting.append((piece, _codes(kinds.slice(start, worker.BATCH_ROWS))))
                self._waiting_bytes += piece.nbytes + _ROW_BYTES * piece.num_rows
                if self._waiting_bytes >= self._buffer_bytes:
                    self._flush()

    @property
    def key_count(self) -> int:
        """The number of keys of all rows so far, buffered ones included."""
        if not self._waiting:
            return len(self.keys)
        buffered = pa.Table.from_batches([batch.select(self._key) for batch, _ in self._waiting])
        distinct = buffered.group_by(list(self._key)).aggregate([])
        slots = self.keys.find([column.combine_chunks() for column in distinct.columns])
        return len(self.keys) + int((slots < 0).sum())

    def finish(self) -> list[WrittenFile]:
        """All files; no more rows are accepted."""
        self._flush()
        return [*self._data, *self._equality_deletes, *self._position_deletes()]

    def abandon(self) -> None:
        """Delete the files written so far, as far as possible."""
        with suppress(LakeError):
            self._store.delete([file.path for file in (*self._data, *self._equality_deletes)])

    def write_all(self, changes: Iterable[Any]) -> list[WrittenFile]:
        """The files of all these rows; none is left after an error."""
        try:
            for change in changes:
                self.write(change)
            return self.finish()
        except BaseException:
            self.abandon()
            raise

    def _flush(self) -> None:
        """Process the waiting rows."""
        if not self._waiting:
            return
        unit = pa.concat_batches([batch for batch, _ in self._waiting])
        kinds = np.concatenate([kinds for _, kinds in self._waiting])
        self._waiting, self._waiting_bytes = [], 0
        takes = np.isin(kinds, RETRACTS)
        effective = np.flatnonzero(kinds != RowKind.UPDATE_BEFORE)
        if self._upsert and len(effective) < len(kinds):  # The next row replaces this one.
            unit, takes = unit.take(pa.array(effective)), takes[effective]
        if unit.num_rows:
            self._settle(unit, takes)

    def _settle(self, unit: pa.RecordBatch, takes: np.ndarray) -> None:
        columns = [unit.column(name) for name in self._key]
        codes = rows.key_codes(columns)
        order = np.argsort(codes, kind="stable")
        edges = np.flatnonzero(np.diff(codes[order])) + 1
        starts, ends = np.concatenate([[0], edges]), np.append(edges, len(order)) - 1
        group = np.repeat(np.arange(len(starts)), ends - starts + 1)
        ordered = takes[order]
        again = np.flatnonzero(ordered[1:] & ordered[:-1] & (group[1:] == group[:-1])) + 1

        keys = [column.take(pa.array(order[starts])) for column in columns]
        slots = self.keys.find(keys)
        has_slot = slots >= 0
        live = has_slot.copy()
        live[has_slot] = self.keys.positions[slots[has_slot]] != GONE
        self._deleted.append((self.keys.files[slots[live]], self.keys.positions[slots[live]]))

        older = np.full(len(starts), self._upsert) | (ordered[starts] & ~live)
        older[group[again]] = True
        stays = ~ordered[ends]
        fresh = np.flatnonzero(~has_slot & (older | stays))
        if len(self.keys) + len(fresh) > self._max_keys:
            raise InvalidInput(
                f"more than {self._max_keys} keys in one commit; make checkpoints more often, or raise max_keys (the "
                f"keys take {self.keys.nbytes >> 20} MiB)"
            )
        slots[fresh] = self.keys.add([key.take(pa.array(fresh)) for key in keys])
        self.keys.positions[slots[live]] = GONE

        new = older.copy()
        new[older] = ~self.keys.deleted[slots[older]]
        self.keys.deleted[slots[older]] = True
        self._delete_keys([key.take(pa.array(np.flatnonzero(new))) for key in keys])
        self._write(unit, order[ends[stays]], slots[stays])

    def _delete_keys(self, keys: list[pa.Array]) -> None:
        if not len(keys[0]):
            return
        batch = pa.RecordBatch.from_arrays(keys, names=list(self._key))
        made = worker.write(self._store, [batch], self._layout.equality_deletes)
        ids = tuple(field.id for field in self._layout.equality_deletes.fields)
        self._equality_deletes += [replace(file, compared=ids) for file in made]

    def _write(self, unit: pa.RecordBatch, chosen: np.ndarray, slots: np.ndarray) -> None:
        """Write the rows `chosen` to files, in order; `slots` then have their positions."""
        if not len(chosen):
            return
        order = np.argsort(chosen)
        rows = unit if len(chosen) == unit.num_rows else unit.take(pa.array(chosen[order]))
        name = f"slot {max(rows.schema.names, key=len)}"  # No column has a longer one.
        batch = rows.append_column(name, pa.array(slots[order]))
        for _, _, part in worker.placed(batch, self._layout.data):
            row_slots = np.asarray(part.column(name))
            files = worker.write(self._store, [part.drop_columns([name])], self._layout.data)
            ends = np.cumsum([file.row_count for file in files])
            nth = np.arange(len(row_slots))
            file = np.searchsorted(ends, nth, side="right")
            self.keys.files[row_slots] = len(self._data) + file
            self.keys.positions[row_slots] = nth - np.concatenate([[0], ends])[file]
            self._data += files

    def _position_deletes(self) -> list[WrittenFile]:
        files = np.concatenate([np.zeros(0, np.int32), *(numbers for numbers, _ in self._deleted)])
        positions = np.concatenate([np.zeros(0, np.int64), *(places for _, places in self._deleted)])
        if not len(files):
            return []
        targets = {}
        for number in np.unique(files).tolist():
            file = self._data[number]
            folder = file.path.rpartition("/")[0]
            targets[number] = Target(self._store.location(file.path), file.partition, None, folder)

        def rows() -> Iterator[pa.RecordBatch]:
            for number, target in targets.items():
                own = pa.array(positions[files == number])
                yield pa.record_batch([pa.repeat(target.path, len(own)), own], names=[FILE.name, POSITION.name])

        return marks.write(self._store, rows(), replace(self._layout.position_deletes, targets=tuple(targets.values())))


def input_fields(layout: DeltaLayout) -> tuple[Field, ...]:
    """The columns that rows may have: a row that deletes a key may lack all other values.

    Raises `InvalidInput` if a column of the table has the name of the kinds of rows.
    """
    if any(field.name == ROW_KIND.name for field in layout.data.fields):
        raise InvalidInput(
            f"a column of the table is called {ROW_KIND.name!r}, as the kinds of changed rows are; write by upsert() "
            "or merge_into(), or rename it"
        )
    key = {field.name for field in layout.equality_deletes.fields}
    return tuple(field if field.name in key else replace(field, nullable=True) for field in layout.data.fields)


def _codes(kinds: pa.Array) -> np.ndarray:
    codes = pc.index_in(pc.fill_null(kinds, RowKind.INSERT.short), value_set=row_kinds())
    if codes.null_count:
        wrong = kinds.filter(codes.is_null())[0].as_py()
        raise InvalidInput(
            f"column {ROW_KIND.name!r}: {wrong!r} is not a kind of row; those are {', '.join(row_kinds().to_pylist())}"
        )
    return codes.to_numpy(zero_copy_only=False).astype(np.int8)
