"""What a database is to change data capture: tables, a consistent view of their rows, and the transactions after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.model.schema import Field


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two transactions of a source's log. `order` rises along the log; `text` is how the database writes it."""

    order: int
    text: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the database: its columns as lakeformat types, without ids."""

    name: str  # "public.orders"
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    comment: str | None = None
    is_unique: bool = False  # Whether the database keeps two rows from having one key.
    parts: tuple[str, ...] = ()  # The tables that it is made of, if it is of several (`Shards`).

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns; all nullable, as a row that takes a key away may lack all others."""
        return pa.schema([pa.field(each.name, to_arrow(each.type)) for each in self.fields])


def chosen_key(
    table: str, declared: Sequence[str], asked: Sequence[str] | None, columns: Collection[str]
) -> tuple[str, ...]:
    """The columns that identify rows of `table`: those that were asked for, or its primary key. Raises `InvalidInput`."""
    chosen = tuple(declared if asked is None else asked)
    if not chosen:
        raise InvalidInput(f"{table}: it has no primary key; say which columns identify its rows: primary_key=[...]")
    if missing := [each for each in chosen if each not in columns]:
        raise InvalidInput(
            f"{table}: there is no column {missing[0]!r} for the primary key: it is not in the table, generated, or left out (exclude_columns); say "
            f"which other columns identify its rows: primary_key=[...]"
        )
    return chosen


@dataclass(frozen=True, slots=True)
class Emptied:
    """The last time that a table was truncated; of a table of several, those rows that have the values `where`."""

    row: int  # Of the rows around it: the first one after it.
    end: int
    transaction: int
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The rows that a run of transactions, or a part of it, changed in one table, in the order they happened."""

    table: SourceTable  # As it is after them.
    rows: pa.Table  # Its columns and `rowkind`: "+I", "-U", "+U", "-D".
    ends: np.ndarray  # Of each row: the `order` of the position after its transaction.
    transactions: np.ndarray  # Of each row: its transaction's number, as in views.
    committed_ms: np.ndarray  # Of each row: when its transaction was committed, since 1970.
    places: np.ndarray  # Of each row: its place among the changes of all tables of the batch.
    unknown: Mapping[str, np.ndarray]  # Of columns: the rows in which the log left an unchanged value out.
    emptied: tuple[Emptied, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a table cannot be followed through a place in the log."""

    error: LakeError
    table: str  # Of a table of several: which one.
    # Of each transaction that is lost by it: the `order` of a place in it, at most that of the position after it.
    ends: np.ndarray
    transactions: np.ndarray  # Their numbers, as in views.


@dataclass(frozen=True, slots=True)
class Transactions:
    """A run of whole transactions; or a part of one, where a transaction is larger than a batch. All parts of a run have its position, and belong
    into one commit."""

    position: Position  # After the last transaction of the run.
    committed_ms: int | None  # When the last of them was committed, since 1970.
    tables: Mapping[str, TableChanges]
    failed: Mapping[str, tuple[Failed, ...]] = field(default_factory=dict)  # By table.
    is_last: bool = True  # False: further parts of the run follow.


class Chunk:
    """Rows of a snapshot whose key is above that of the chunk before it, up to `upto`: the last key, as text; None: to the end of the
    table. Rows that are given as a function are made where they are first asked for, beside the reading of the next chunk."""

    __slots__ = ("_rows", "upto")

    def __init__(self, rows: pa.Table | Callable[[], pa.Table], upto: tuple[str, ...] | None) -> None:
        self._rows, self.upto = rows, upto

    @property
    def rows(self) -> pa.Table:
        if not isinstance(self._rows, pa.Table):
            self._rows = self._rows()
        return self._rows


class View(Protocol):
    """The rows of a table as some transactions left them."""

    text: str  # Which transactions those are; `covers` understands it, also later and in another process.
    until: Position  # No later transaction is among them.

    def of(self, table: SourceTable) -> View:
        """Another table, as the same transactions left it."""
        ...

    def chunks(self, after: tuple[str, ...] | None, size: int) -> Iterator[Chunk]:
        """The rows with a key above `after`, about `size` at a time."""
        ...


class Source(Protocol):
    """A database whose changes can be read from a position again and again, until they are acknowledged."""

    @property
    def name(self) -> str:
        """Identifies this log of changes."""
        ...

    def table_names(self) -> list[str]: ...

    def describe(self, name: str, key: Sequence[str] | None = None) -> SourceTable:
        """A table that is there; `key`: columns that identify its rows, where it declares no primary key."""
        ...

    def begin(self, tables: Sequence[SourceTable]) -> Position:
        """Have the changes of these tables kept from a position on, which it returns; asking again is safe. Every transaction that
        a view taken afterwards does not cover comes after it."""
        ...

    def kept(self, names: Collection[str]) -> Mapping[str, str]:
        """Those of the tables whose changes are kept, each with a text that is another one where they were not kept for a while, as where the
        table was made anew."""
        ...

    def view(self, table: SourceTable, *others: SourceTable) -> AbstractContextManager[View]:
        """Of `table`, and by `View.of` of the others."""
        ...

    def has_values(self, table: SourceTable, columns: Collection[str]) -> bool:
        """Whether a row that is there now has one in any of these columns."""
        ...

    def position(self) -> Position:
        """After everything that is committed by now."""
        ...

    def parse(self, text: str) -> Position: ...

    def changes(
        self, after: Position, until: Position, tables: Mapping[str, SourceTable], limit: int
    ) -> Iterator[Transactions]:
        """Transactions that were committed after `after`, up to `until`, in runs of about `limit` rows; a run that is larger, by one transaction,
        comes in parts. The last one's position is at least `until`, whether transactions came or not. Raises `NotFound` where the
        database no longer has them."""
        ...

    def covers(self, view: str, ends: np.ndarray, transactions: np.ndarray) -> np.ndarray:
        """Of each transaction: whether a view shows it."""
        ...

    def upto(self, table: SourceTable, rows: pa.Table, key: tuple[str, ...]) -> np.ndarray:
        """Of each row: whether its key is at most `key`, in the order of `View.chunks`."""
        ...

    def acknowledge(self, position: Position) -> None:
        """Nothing before `position` will be asked for again."""
        ...

    def close(self) -> None: ...
