"""Sharded tables: a `Source` that presents several tables of another source as one."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.cdc.misfits import Misfits
from lakeformat.cdc.source import (
    Chunk,
    Failed,
    Position,
    Retention,
    Rewritten,
    Source,
    SourceTable,
    TableChanges,
    Transactions,
    View,
    chosen_key,
)
from lakeformat.cdc.widening import holds
from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.model.schema import NO_ID, Field, Kind, scalar
from lakeformat.model.work import ROW_KIND

DATABASE, TABLE = "database_name", "table_name"  # Columns that name a row's shard; PostgreSQL: schema and table.
NAMES = DATABASE, TABLE
_Event = TypeVar("_Event", Failed, Rewritten)
NOTHING = ""  # A view that shows no transaction.


class Shards:
    """Wraps `source` and merges its shards. `merged`: merged table -> names of its shards. A merged table has the
    columns of all shards, in the widest types, and `database_name` and `table_name`, which identify a row's shard."""

    def __init__(self, source: Source, merged: Mapping[str, Sequence[str]]) -> None:
        if empty := [name for name, parts in merged.items() if not parts]:
            raise NotFound(f"no table matches {empty[0]!r}; there are: {', '.join(source.table_names()[:20])}")
        self._source, self._merged = source, {name: tuple(parts) for name, parts in merged.items()}
        self._parts: dict[str, dict[str, SourceTable]] = {}  # Merged table -> shard -> its current description.

    @classmethod
    def matching(cls, source: Source, pattern: re.Pattern[str]) -> Shards:
        """All tables that match, merged into one that is named by the pattern's text."""
        return cls(source, {pattern.pattern: matching(source, pattern.pattern)})

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def retention(self) -> Retention:
        return self._source.retention

    def table_names(self) -> list[str]:
        return self._source.table_names()

    def describe(self, name: str, key: Sequence[str] | None = None) -> SourceTable:
        """Describe a table, merged or plain. Raises `InvalidInput` if its shards have different keys."""
        if name not in self._merged:
            return self._source.describe(name, key)
        own = None if key is None else [column for column in key if column not in {DATABASE, TABLE}]
        parts = {shard: self._source.describe(shard, own) for shard in self._merged[name]}
        first, *others = parts.values()
        for other in others:
            if other.key != first.key:
                raise InvalidInput(
                    f"{other.name} has the key ({', '.join(other.key)}), and {first.name} ({', '.join(first.key)}): "
                    "they cannot be one table; name the columns that identify rows of both: primary_key=[...]"
                )
        self._parts[name] = parts
        versions = {part.name: part.version for part in parts.values() if part.version}
        table = replace(_union(name, parts.values(), tuple(parts)), version=json.dumps(versions) if versions else "")
        return replace(table, key=chosen_key(name, first.key, key, {field.name for field in table.fields}))

    # --- the snapshot ---

    def begin(self, tables: Sequence[SourceTable], is_anew: bool) -> Position:
        return self._source.begin([part for table in tables for part in self._shards(table)], is_anew)

    def signatures(self, names: Collection[str]) -> Mapping[str, str]:
        return self._source.signatures(names)

    def apart(self, name: str) -> Source:
        other = copy(self)
        other._source = self._source.apart(name)
        return other

    def kept(self, names: Collection[str]) -> Mapping[str, str]:
        return self._source.kept(names)

    @property
    def misfits(self) -> Misfits:
        return self._source.misfits

    def rewritten(self, before: str, table: SourceTable) -> Collection[str]:
        if not table.parts:
            return self._source.rewritten(before, table)
        old = json.loads(before)
        known = [shard for shard in self._shards(table) if shard.name in old]
        return {name for table in known for name in self._source.rewritten(old[table.name], table)}

    def _shards(self, table: SourceTable) -> list[SourceTable]:
        there = self._parts[table.name] if table.parts else {}
        return [there[part] for part in table.parts if part in there] if table.parts else [table]

    @contextmanager
    def view(self, table: SourceTable, *others: SourceTable) -> Iterator[View]:
        shards = self._shards(table)
        with self._source.view(*shards, *(part for other in others for part in self._shards(other))) as view:
            yield _ShardsView(view.text, view.until, view, table, shards) if table.parts else view

    def has_values(self, table: SourceTable, columns: Collection[str]) -> bool:
        for shard in self._shards(table):
            names = [field.name for field in shard.fields if field.name in columns]
            if names and self._source.has_values(shard, names):
                return True
        return False

    def covers(self, view: str, ends: np.ndarray, transactions: np.ndarray) -> np.ndarray:
        return np.zeros(len(ends), bool) if view == NOTHING else self._source.covers(view, ends, transactions)

    def upto(self, table: SourceTable, rows: pa.Table, key: tuple[str, ...]) -> np.ndarray:
        if not table.parts:
            return self._source.upto(table, rows, key)
        shard, *last = key
        at = table.parts.index(shard)
        covered = np.isin(_names(rows), table.parts[: at if last else at + 1])
        if last:
            indexes = np.flatnonzero(_names(rows) == shard)
            inner = self._parts[table.name].get(shard)
            if len(indexes) and inner is not None:
                covered[indexes] = self._source.upto(inner, rows.take(pa.array(indexes)), tuple(last))
        return covered

    # --- changes ---

    def position(self) -> Position:
        return self._source.position()

    def parse(self, text: str) -> Position:
        return self._source.parse(text)

    def changes(
        self, after: Position, until: Position, tables: Mapping[str, SourceTable], limit: int
    ) -> Iterator[Transactions]:
        shards = {part.name: part for table in tables.values() for part in self._shards(table)}
        for batch in self._source.changes(after, until, shards, limit):
            changes_by_table = {}
            for name, table in tables.items():
                own = [shard.name for shard in self._shards(table) if shard.name in batch.tables]
                if own:
                    changes = {name: batch.tables[name] for name in own}
                    changes_by_table[name] = self._together(table, changes) if table.parts else changes[name]
            yield replace(
                batch,
                tables=changes_by_table,
                failed={name: self._of_shards(table, batch.failed) for name, table in tables.items()},
                rewritten={name: self._of_shards(table, batch.rewritten) for name, table in tables.items()},
            )

    def _of_shards(self, table: SourceTable, by_shard: Mapping[str, tuple[_Event, ...]]) -> tuple[_Event, ...]:
        return tuple(event for part in self._shards(table) for event in by_shard.get(part.name, ()))

    def _together(self, table: SourceTable, changes: Mapping[str, TableChanges]) -> TableChanges:
        """Merge the changes of shards, in log order."""
        self._parts[table.name] |= {name: change.table for name, change in changes.items()}
        now = replace(_union(table.name, self._shards(table), table.parts), key=table.key, version=table.version)
        every = list(changes.values())
        places = np.concatenate([part.places for part in every])
        order = np.argsort(places, kind="stable")
        rows = pa.concat_tables([_fitted(change.rows, name, now) for name, change in changes.items()])
        names = {name for part in every for name in part.unknown}
        unknown = {
            name: np.concatenate([part.unknown.get(name, np.zeros(part.rows.num_rows, bool)) for part in every])[order]
            for name in names
        }
        emptied = []
        for name, change in changes.items():
            for one in change.emptied:
                is_last = one.row == change.rows.num_rows
                row = len(places) if is_last else int(np.searchsorted(places[order], change.places[one.row]))
                emptied.append(replace(one, row=row, where=dict(zip((DATABASE, TABLE), _named(name), strict=True))))
        ends, transactions, times = (
            np.concatenate([getattr(part, what) for part in every])[order]
            for what in ("ends", "transactions", "committed_ms")
        )
        has_old_rows, rows = all(part.has_old_rows for part in every), rows.take(pa.array(order))
        places = places[order]
        return TableChanges(now, rows, ends, transactions, times, places, unknown, tuple(emptied), has_old_rows)

    def acknowledge(self, position: Position) -> None:
        self._source.acknowledge(position)

    def close(self) -> None:
        self._source.close()


@dataclass(slots=True)
class _ShardsView:
    """Shards one after the other, in one view. A key is the shard's name and the key in it;
    the name alone is the end of the shard."""

    text: str
    until: Position
    _view: View
    _table: SourceTable
    _shards: Sequence[SourceTable]

    def narrowed_to(self, table: SourceTable) -> View:
        return replace(self, _table=table) if table.parts else self._view.narrowed_to(table)

    def chunks(self, after: tuple[str, ...] | None, size: int) -> Iterator[Chunk]:
        parts, names = self._table.parts, {field.name for field in self._table.fields}
        shard_index = -1 if after is None else parts.index(after[0])
        left = [
            shard
            for shard in self._shards
            if parts.index(shard.name) > shard_index or (after is not None and after[1:] and shard.name == after[0])
        ]
        for shard in left:
            inner = replace(shard, fields=tuple(field for field in shard.fields if field.name in names))
            start = after[1:] if after is not None and shard.name == after[0] else None
            for chunk in self._view.narrowed_to(inner).chunks(start, size):
                is_last = chunk.upto is None and shard is left[-1]
                rows = _fitted(chunk.rows, shard.name, self._table)
                yield Chunk(rows, None if is_last else (shard.name, *(chunk.upto or ())))
        if not left:
            yield Chunk(pa.Table.from_batches([], self._table.arrow_schema), None)


def matching(source: Source, including: str, excluding: str | None = None) -> list[str]:
    """The tables of a source whose full name matches `including` and not `excluding`."""
    names = [name for name in source.table_names() if re.fullmatch(including, name)]
    return [name for name in names if excluding is None or not re.fullmatch(excluding, name)]


def is_of(rows: pa.Table, shards: Collection[str]) -> np.ndarray:
    """Per row of a merged table: whether it is of one of these shards."""
    return np.isin(_names(rows).astype(str), list(shards))


def _union(name: str, parts: Collection[SourceTable], names: tuple[str, ...]) -> SourceTable:
    """The merged description of several tables.
    Raises `UnsupportedFeature` if neither of two types of a column holds the other."""
    fields = {name: Field(NO_ID, name, scalar(Kind.STRING), nullable=False) for name in (DATABASE, TABLE)}
    first, *_ = parts
    for part in parts:
        for field in part.fields:
            old = fields.get(field.name)
            if field.name in {DATABASE, TABLE}:
                raise InvalidInput(
                    f"{part.name} has a column {field.name!r}, as the table of its shards has; "
                    "leave it out (exclude_columns)"
                )
            if old is None:
                fields[field.name] = field
            elif holds(old.type, field.type) or holds(field.type, old.type):
                type = old.type if holds(old.type, field.type) else field.type
                fields[field.name] = replace(old, type=type, nullable=old.nullable or field.nullable)
            else:
                raise UnsupportedFeature(
                    f"column {field.name!r} is {field.type} in {part.name}, and {old.type} in another shard of {name}: "
                    "no type holds both; leave it out (exclude_columns), "
                    "or take all columns as text (type option 'to-string')"
                )
    everywhere = set.intersection(*({field.name for field in part.fields} for part in parts)) | {DATABASE, TABLE}
    made = [replace(field, nullable=field.nullable or field.name not in everywhere) for field in fields.values()]
    old_rows = all(part.logs_old_rows for part in parts)
    return SourceTable(name, (*made[2:], *made[:2]), first.key, first.comment, parts=names, logs_old_rows=old_rows)


def _fitted(rows: pa.Table, shard: str, table: SourceTable) -> pa.Table:
    """Rows of a shard with the columns of the merged table."""
    schema = table.arrow_schema
    constants = dict(zip((DATABASE, TABLE), _named(shard), strict=True))
    columns: list[Any] = []
    for field in schema:
        if field.name in constants:
            columns.append(pa.repeat(pa.scalar(constants[field.name], field.type), rows.num_rows))
        elif field.name in rows.schema.names:
            columns.append(rows[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    made = pa.table(columns, schema=schema)
    return made.append_column(ROW_KIND.name, rows[ROW_KIND.name]) if ROW_KIND.name in rows.schema.names else made


def _named(shard: str) -> tuple[str, str]:
    database, _, table = shard.partition(".")
    return database, table


def _names(rows: pa.Table) -> np.ndarray:
    """The shard of each row."""
    names: np.ndarray = (
        pc.binary_join_element_wise(rows[DATABASE], rows[TABLE], ".").to_numpy(zero_copy_only=False)
        if rows.num_rows
        else np.empty(0, object)
    )
    return names
