"""Row filters: a `Source` that shows, of some tables, the rows that satisfy a condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.cdc import failures
from lakeformat.cdc.source import (
    Chunk,
    Failed,
    Position,
    Source,
    SourceTable,
    TableChanges,
    Transactions,
    View,
)
from lakeformat.codec.plain_values import row_kinds
from lakeformat.errors import InvalidInput, LakeError, UnsupportedFeature
from lakeformat.expression import evaluation, sql_text
from lakeformat.model.predicate import Expression, columns_of
from lakeformat.model.schema import Field
from lakeformat.model.work import ROW_KIND, RowKind


def filtered(source: Source, conditions: Mapping[str, str]) -> Source:
    """`source` with the rows that satisfy the condition of their table, Spark SQL over its columns. An update after
    which a row no longer satisfies it is a delete, one after which it does is an insert."""
    return cast(Source, _Filtered(source, {name: _Condition.parse(name, text) for name, text in conditions.items()}))


class _Filtered:
    """What it does not define is the wrapped source's."""

    def __init__(self, source: Source, conditions: dict[str, _Condition]) -> None:
        self._source, self._conditions = source, conditions
        self._fields = dict[str, tuple[Field, ...]]()  # The columns of tables with a condition.

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_source"], name)  # `self._source` would recur in an instance without it.

    def describe(self, name: str, key: Sequence[str] | None = None) -> SourceTable:
        """Describe a table. Raises `InvalidInput` if its condition does not fit it."""
        table = self._source.describe(name, key)
        condition = self._conditions.get(table.name) or self._conditions.get(name)
        if condition is None:
            return table
        self._conditions[table.name] = condition
        condition.require_fits(table)
        self._fields[table.name] = table.fields
        return replace(table, where=condition.text)

    def apart(self, name: str) -> Source:
        return cast(Source, _Filtered(self._source.apart(name), self._conditions))

    @contextmanager
    def view(self, table: SourceTable, *others: SourceTable) -> Iterator[View]:
        condition = self._conditions.get(table.name)
        if condition is None:
            with self._source.view(table, *others) as view:
                yield view
            return
        fields = self._fields[table.name]
        with self._source.view(condition.widened(table, fields), *others) as view:
            yield _FilteredView(view.text, view.until, view, table, condition, fields)

    def changes(
        self, after: Position, until: Position, tables: Mapping[str, SourceTable], limit: int
    ) -> Iterator[Transactions]:
        fields = {name: table.fields for name, table in tables.items()}
        for batch in self._source.changes(after, until, tables, limit):
            changes, failed = dict(batch.tables), dict(batch.failed)
            for name in changes.keys() & self._conditions.keys():
                table_changes = changes[name]
                try:
                    with failures.of_table(name):
                        if table_changes.rows.num_rows and table_changes.table.fields != fields[name]:
                            # A column of the condition may be gone.
                            self.describe(name, table_changes.table.key)
                            fields[name] = table_changes.table.fields
                        changes[name] = self._conditions[name].changes(table_changes)
                except LakeError as error:
                    del changes[name]
                    failed[name] = (
                        *failed.get(name, ()),
                        Failed(error, name, table_changes.ends, table_changes.transactions),
                    )
            yield replace(batch, tables=changes, failed=failed)


@dataclass(frozen=True, slots=True)
class _Condition:
    """The condition of one table."""

    table: str
    text: str
    expression: Expression

    @classmethod
    def parse(cls, table: str, text: str) -> _Condition:
        return cls(table, text.strip(), sql_text.parse(text))

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(columns_of(self.expression))

    def require_fits(self, table: SourceTable) -> None:
        """Raise `InvalidInput` if the condition is none over the columns of `table`, and `UnsupportedFeature` if its
        log does not say whether a row was in the table."""
        names = {column.name for column in table.fields}
        if missing := sorted(self.columns - names):
            raise InvalidInput(
                f"{self.table} has no column {missing[0]!r}, which its row filter ({self.text}) names; it has "
                f"{', '.join(sorted(names))}. Sync it with another filter"
            )
        if not table.logs_old_rows:
            raise UnsupportedFeature(
                f"{self.table}: a row filter ({self.text}) needs the old rows of updates and deletes in the log; "
                "ALTER TABLE ... REPLICA IDENTITY FULL"
            )
        self.mask(pa.Table.from_batches([], table.arrow_schema))

    def widened(self, table: SourceTable, fields: Sequence[Field]) -> SourceTable:
        """`table` with those of `fields` too that the condition names."""
        names = self.columns - {column.name for column in table.fields}
        return replace(table, fields=(*table.fields, *(column for column in fields if column.name in names)))

    def mask(self, rows: pa.Table) -> np.ndarray:
        try:
            mask = evaluation.mask(self.expression, rows)
        except LakeError as error:
            raise InvalidInput(f"the row filter of {self.table} ({self.text}): {error}") from error
        satisfied: np.ndarray = mask.to_numpy(zero_copy_only=False) if isinstance(mask, pa.Array) else mask.to_numpy()
        return satisfied

    def changes(self, changes: TableChanges) -> TableChanges:
        """The changes of the rows that satisfy the condition."""
        table = replace(changes.table, where=self.text)
        if not changes.rows.num_rows:
            return replace(changes, table=table)
        if not changes.has_old_rows:
            raise UnsupportedFeature(
                f"{self.table}: the log has changes without their old rows, which a row filter needs; "
                "ALTER TABLE ... REPLICA IDENTITY FULL, and load the table again (restart=True)"
            )
        if lacking := sorted(self.columns & changes.unknown.keys()):
            raise UnsupportedFeature(
                f"{self.table}: the log leaves out values of column {lacking[0]!r}, which the row filter ({self.text}) "
                "names; ALTER TABLE ... REPLICA IDENTITY FULL, and load the table again (restart=True)"
            )
        rows = changes.rows
        keep = self.mask(rows)
        kinds = pc.index_in(rows[ROW_KIND.name], row_kinds()).to_numpy().copy()
        before = np.flatnonzero(kinds == RowKind.UPDATE_BEFORE)  # The new row follows each.
        has_moved = keep[before] != keep[before + 1]
        kinds[before[has_moved]] = RowKind.DELETE
        kinds[before[has_moved] + 1] = RowKind.INSERT
        index = rows.schema.get_field_index(ROW_KIND.name)
        rows = rows.set_column(index, ROW_KIND.name, row_kinds().take(pa.array(kinds)))
        counts = np.concatenate([[0], np.cumsum(keep)])
        return replace(
            changes,
            table=table,
            rows=rows.filter(pa.array(keep)),
            ends=changes.ends[keep],
            transactions=changes.transactions[keep],
            committed_ms=changes.committed_ms[keep],
            places=changes.places[keep],
            unknown={name: mask[keep] for name, mask in changes.unknown.items()},
            emptied=tuple(replace(truncation, row=int(counts[truncation.row])) for truncation in changes.emptied),
        )


@dataclass(slots=True)
class _FilteredView:
    """The rows of a view that satisfy a condition."""

    text: str
    until: Position
    _view: View
    _table: SourceTable
    _condition: _Condition
    _fields: Sequence[Field]  # Of the whole table.

    def narrowed_to(self, table: SourceTable) -> View:
        view = self._view.narrowed_to(self._condition.widened(table, self._fields))
        return replace(self, _view=view, _table=table)

    def chunks(self, after: tuple[str, ...] | None, size: int) -> Iterator[Chunk]:
        for chunk in self._view.chunks(after, size):
            yield Chunk(partial(self._satisfying, chunk), chunk.upto)

    def _satisfying(self, chunk: Chunk) -> pa.Table:
        rows = chunk.rows.filter(pa.array(self._condition.mask(chunk.rows)))
        return rows.select([column.name for column in self._table.fields])
