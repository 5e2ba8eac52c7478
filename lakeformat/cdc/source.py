"""The interface of a source database: tables, consistent snapshot views, and the transactions after them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakeformat.cdc.misfits import Misfits
from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import InvalidInput, LakeError, SourceError
from lakeformat.model.schema import Field


class Disconnected(SourceError):
    """The connection to the database dropped, or cannot be made; a later try may succeed."""


class InUse(Disconnected):
    """Another process reads the log by the same name, and one at a time may."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two transactions of a source's log. `order` increases along the log;
    `text` is the database's notation."""

    order: int
    text: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A source table, with its columns as lakeformat types, without field ids."""

    name: str  # "public.orders"
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    comment: str | None = None
    is_unique: bool = False  # Whether the database enforces that keys are unique.
    parts: tuple[str, ...] = ()  # The shards of a merged table (`Shards`).
    version: str = ""  # What `Source.rewritten` compares.
    where: str = ""  # The condition of the rows that are followed (`filtered`).
    logs_old_rows: bool = True  # Whether the log has the whole old rows of updates and deletes.

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns, all nullable, since a delete may have only the key."""
        return pa.schema([pa.field(column.name, to_arrow(column.type)) for column in self.fields])


def chosen_key(
    table: str, declared: Sequence[str], key: Sequence[str] | None, columns: Collection[str]
) -> tuple[str, ...]:
    """The key columns of `table`: `key`, or its primary key. Raises `InvalidInput` if there is none,
    or a column is missing."""
    chosen = tuple(declared if key is None else key)
    if not chosen:
        raise InvalidInput(
            f"{table}: it has no primary key; name the columns that identify its rows: primary_key=[...]"
        )
    if missing := [column for column in chosen if column not in columns]:
        raise InvalidInput(
            f"{table}: there is no column {missing[0]!r} for the primary key: it is not in the table, generated, or "
            "left out (exclude_columns); name other columns that identify its rows: primary_key=[...]"
        )
    return chosen


@dataclass(frozen=True, slots=True)
class Emptied:
    """The last TRUNCATE of a table; in a merged table, of the shard whose rows match `where`."""

    row: int  # Index of the first row after it.
    end: int
    transaction: int
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The row changes of one table in a run of transactions, or in a part of it, in log order."""

    table: SourceTable  # As described after these changes.
    rows: pa.Table  # The columns and `rowkind`: "+I", "-U", "+U", "-D".
    ends: np.ndarray  # Per row: the `order` of the position after its transaction.
    transactions: np.ndarray  # Per row: its transaction id, as views know it.
    committed_ms: np.ndarray  # Per row: commit time of its transaction, milliseconds since 1970.
    places: np.ndarray  # Per row: its place among the changes of all tables in the batch.
    unknown: Mapping[str, np.ndarray]  # Per column: mask of rows whose unchanged value the log omits.
    emptied: tuple[Emptied, ...] = ()
    has_old_rows: bool = True  # Whether all updates come with their old rows, and deletes have more than their keys.


@dataclass(frozen=True, slots=True)
class Failed:
    """Transactions in the log through which a table cannot be followed, and why."""

    error: LakeError
    table: str  # In a merged table: the shard.
    # Per lost transaction: the `order` of a place in it, at most that of the position after it.
    ends: np.ndarray
    transactions: np.ndarray  # Transaction ids, as views know them.


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Statements in the log that may have changed rows which the log lacks, e.g. a changed column type; or rows whose
    values in `columns` the log has under other names."""

    table: str  # In a merged table: the shard.
    ends: np.ndarray  # As in `Failed`.
    transactions: np.ndarray
    columns: frozenset[str] = frozenset()  # If these are all, and are filled anyway, nothing is to be compared.


@dataclass(frozen=True, slots=True)
class Transactions:
    """A run of whole transactions, or a part of a run if a transaction is larger than a batch. All parts of a run have
    the same position and belong in one commit."""

    position: Position  # After the last transaction of the run.
    committed_ms: int | None  # Commit time of the last transaction, milliseconds since 1970.
    tables: Mapping[str, TableChanges]
    failed: Mapping[str, tuple[Failed, ...]] = field(default_factory=dict)  # By table.
    rewritten: Mapping[str, tuple[Rewritten, ...]] = field(default_factory=dict)
    is_last: bool = True  # False: more parts of the run follow.


class Chunk:
    """Snapshot rows with keys above the previous chunk's `upto`, up to `upto`: the last key, as text (None: to the end
    of the table). If `rows` is a function, it is called on first use, while the next chunk is being read."""

    __slots__ = ("_rows", "upto")

    def __init__(self, rows: pa.Table | Callable[[], pa.Table], upto: tuple[str, ...] | None) -> None:
        self._rows, self.upto = rows, upto

    @property
    def rows(self) -> pa.Table:
        if not isinstance(self._rows, pa.Table):
            self._rows = self._rows()
        return self._rows


class View(Protocol):
    """A consistent view of a table: its rows after a set of transactions."""

    text: str  # Identifies those transactions for `covers`, also in a later process.
    until: Position  # The view shows no transaction after this position.

    def narrowed_to(self, table: SourceTable) -> View:
        """Another table in the same view."""
        ...

    def chunks(self, after: tuple[str, ...] | None, size: int) -> Iterator[Chunk]:
        """The rows with a key above `after`, in chunks of about `size`."""
        ...


class Retention(Protocol):
    """How long a database keeps its log, and for which tables."""

    def served(self) -> Collection[str]:
        """The tables for which the database keeps the log until `acknowledge`; none if it keeps it anyway."""
        ...

    def keep_apart(self, name: str) -> bool:
        """Keep the log for one table apart, from where it is kept now, whatever is acknowledged. False if the database
        cannot, so that `acknowledge` must wait for the table."""
        ...

    def kept_apart(self, names: Collection[str]) -> Collection[str]:
        """Those of these tables for which the log is kept apart."""
        ...

    def rejoin(self, name: str, position: Position) -> bool:
        """End `keep_apart` for a table that has all changes up to `position`. False if other tables are past that."""
        ...

    def kept_bytes(self, name: str) -> int | None:
        """The bytes of the log that the database keeps for this table; None if it keeps it anyway."""
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep other processes from beginning to follow tables, and from acknowledging."""
        ...


class Source(Protocol):
    """A database whose changes can be read repeatedly from a position until they are acknowledged."""

    @property
    def name(self) -> str:
        """Identifies the log."""
        ...

    @property
    def retention(self) -> Retention: ...

    def table_names(self) -> list[str]: ...

    def describe(self, name: str, key: Sequence[str] | None = None) -> SourceTable:
        """Describe an existing table. `key`: key columns in place of its primary key."""
        ...

    def begin(self, tables: Sequence[SourceTable], is_anew: bool) -> Position:
        """Make the database keep the changes of these tables, and return the first position kept; idempotent.
        Transactions that a later view does not cover come after this position. `is_anew`: nothing that was kept before
        is needed, and what lost its log may be replaced. Raises `NotFound` if that is not so, and the database no
        longer keeps anything."""
        ...

    def signatures(self, names: Collection[str]) -> Mapping[str, str]:
        """Of each table that there is, a text that changes if `describe`,
        `kept` or `rewritten` change, by one query."""
        ...

    def apart(self, name: str) -> Source:
        """A source that reads and acknowledges the log kept apart for this table."""
        ...

    def kept(self, names: Collection[str]) -> Mapping[str, str]:
        """The tables whose changes are kept, each with a text that changes if there was a gap, for example because the
        table was dropped and created again."""
        ...

    def rewritten(self, before: str, table: SourceTable) -> Collection[str]:
        """The columns of `table` whose values in existing rows may have changed since its version was `before`, by
        something that the log lacks. This includes new columns."""
        ...

    def view(self, table: SourceTable, *others: SourceTable) -> AbstractContextManager[View]:
        """Open a view of `table`; `View.narrowed_to` gives the same view of the others."""
        ...

    def has_values(self, table: SourceTable, columns: Collection[str]) -> bool:
        """Whether any row now has a non-null value in one of these columns."""
        ...

    def position(self) -> Position:
        """The position after all transactions committed so far."""
        ...

    def parse(self, text: str) -> Position: ...

    def changes(
        self, after: Position, until: Position, tables: Mapping[str, SourceTable], limit: int
    ) -> Iterator[Transactions]:
        """Transactions committed after `after`, up to `until`, in runs of about `limit` rows; a run that one
        transaction makes larger comes in parts. The last run's position is at least `until`, even without transactions.
        Raises `NotFound` if the database no longer has them."""
        ...

    def covers(self, view: str, ends: np.ndarray, transactions: np.ndarray) -> np.ndarray:
        """Per transaction: whether the view shows it."""
        ...

    def upto(self, table: SourceTable, rows: pa.Table, key: tuple[str, ...]) -> np.ndarray:
        """Per row: whether its key is at most `key`, in the order of `View.chunks`."""
        ...

    def acknowledge(self, position: Position) -> None:
        """Release the log before `position`; it is not read again."""
        ...

    @property
    def misfits(self) -> Misfits:
        """What becomes of values that their columns cannot hold, and how many there were since it was opened."""
        ...

    def close(self) -> None: ...
