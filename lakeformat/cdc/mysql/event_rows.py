"""The row events of one table in MySQL's binary log, before they become an Arrow table."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.cdc.mysql import row_events
from lakeformat.cdc.mysql.charsets import Charsets
from lakeformat.cdc.mysql.row_events import Images, LogColumn
from lakeformat.cdc.mysql.table_map import TableMap
from lakeformat.cdc.spool import Messages
from lakeformat.model.work import RowKind


@dataclass(slots=True)
class EventRows:
    """The rows of one table in a batch, or in a part of it. Events are decoded many at a time; events not yet decoded
    are in `waiting` (memory) or `spilled` (disk)."""

    waiting: list[tuple[tuple[LogColumn, ...], bytes]] = field(default_factory=list)
    spilled: list[tuple[LogColumn, ...]] = field(default_factory=list)  # The columns of each event on disk.
    first: int = 0  # Index of the first spilled event in `Messages`.
    pieces: list[Images] = field(default_factory=list)
    kinds: list[RowKind] = field(default_factory=list)  # Per event; UPDATE_AFTER stands for both rows of an update.
    places: array[int] = field(default_factory=lambda: array("q"))  # Per event: its number in the batch.
    row_count: int = 0  # Rows in `pieces`.
    waiting_bytes: int = 0
    smallest: int = 1  # Bytes of the shortest row in `pieces`.
    emptied: tuple[int, int] | None = None  # Last TRUNCATE: number of the event after it, and its position.
    described: TableMap | None = None  # Of the last event.
    columns: tuple[LogColumn, ...] = ()

    def decode(self, charsets: Charsets) -> None:
        for columns, events in groupby(self.waiting, lambda entry: entry[0]):
            decoded = row_events.decode([body for _, body in events], columns, charsets)
            self.smallest = decoded.smallest if self.row_count == 0 else min(self.smallest, decoded.smallest)
            self.row_count += int(decoded.counts.sum())
            self.pieces.append(decoded)
        self.waiting, self.waiting_bytes = [], 0

    def spill(self, messages: Messages) -> None:
        self.first, self.spilled = len(messages), [columns for columns, _ in self.waiting]
        for _, body in self.waiting:
            messages.append(body)
        self.waiting, self.waiting_bytes = [], 0

    def load(self, messages: Messages) -> None:
        if self.spilled:
            data, starts = messages.read(self.first, self.first + len(self.spilled))
            ends = starts + messages.lengths[self.first : self.first + len(self.spilled)]
            bodies = (bytes(data[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
            self.waiting, self.spilled = list(zip(self.spilled, bodies, strict=True)), []

    def drop(self, number: int) -> None:
        """Drop the events from this one of the batch on, which are not decoded yet."""
        kept = bisect_left(self.places, number)
        count = len(self.kinds) - kept
        if not count:
            return
        del self.kinds[kept:], self.places[kept:]
        if self.spilled:
            del self.spilled[-count:]
        else:
            self.waiting_bytes -= sum(len(body) for _, body in self.waiting[-count:])
            del self.waiting[-count:]


@dataclass(slots=True)
class TransactionEnds:
    """Where the transactions of a batch that have row events end in the log, and when they were committed."""

    events: array[int] = field(default_factory=lambda: array("q"))  # The number of the row event after each.
    positions: array[int] = field(default_factory=lambda: array("q"))
    times_ms: array[int] = field(default_factory=lambda: array("q"))

    def end(self, event: int, position: int, time_ms: int) -> None:
        """The row events before number `event` that are of no transaction yet are of the one that ends here."""
        if event > (self.events[-1] if self.events else 0):
            self.events.append(event)
            self.positions.append(position)
            self.times_ms.append(time_ms)

    def position(self, event: int) -> int:
        """Where the transaction of a row event ends."""
        return self.positions[bisect_right(self.events, event)]

    def of_events(self, events: array[int]) -> tuple[np.ndarray, np.ndarray]:
        """Where the transaction of each row event ends, and when it was committed."""
        ends, positions, times_ms, numbers = (
            np.array(values, np.int64) for values in (self.events, self.positions, self.times_ms, events)
        )
        indexes = np.searchsorted(ends, numbers, side="right")
        return positions[indexes], times_ms[indexes]


def mark_updates(kinds: np.ndarray, arrays: Mapping[str, pa.Array], key: Sequence[str]) -> None:
    """Set the kinds of the two rows of each update, which both come as UPDATE_AFTER: UPDATE_BEFORE and UPDATE_AFTER, or
    DELETE and INSERT if the update changed the key."""
    both = np.flatnonzero(kinds == RowKind.UPDATE_AFTER)
    old, new = both[::2], both[1::2]
    moved = np.zeros(len(old), bool)
    for values in (arrays[column] for column in key if column in arrays):
        before, now = values.take(pa.array(old)), values.take(pa.array(new))
        same = pc.or_(pc.fill_null(pc.equal(before, now), False), pc.and_(before.is_null(), now.is_null()))
        moved |= ~same.to_numpy(zero_copy_only=False)
    kinds[old] = np.where(moved, RowKind.DELETE, RowKind.UPDATE_BEFORE)
    kinds[new] = np.where(moved, RowKind.INSERT, RowKind.UPDATE_AFTER)
