"""Computed columns: Spark SQL over a source row, its table name and its commit time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakeformat.cdc.source import SourceTable
from lakeformat.codec.arrow import from_arrow
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.expression import evaluation, sql_text
from lakeformat.model.predicate import Expression, columns_of
from lakeformat.model.schema import NO_ID, Field

SOURCE_TABLE, COMMITTED_AT = "_source_table", "_committed_at"  # Metadata columns that expressions may use.
_INSTANT = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True)
class Computed:
    """Computed columns by name, each with its Spark SQL expression."""

    expressions: Mapping[str, Expression] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> Computed:
        """Parse the SQL of each column. Raises `InvalidInput` if a text is not an expression."""
        return cls({name: sql_text.parse(text) for name, text in texts.items()})

    def fields(self, table: SourceTable) -> tuple[Field, ...]:
        """The computed columns of a table, all nullable.
        Raises `InvalidInput` for a duplicate name or a column without a type."""
        names = {column.name for column in table.fields}
        if same := sorted(names & self.expressions.keys()):
            raise InvalidInput(f"{table.name} has a column {same[0]!r}; give the computed column another name")
        if self.expressions and (same := sorted(names & {SOURCE_TABLE, COMMITTED_AT})):
            raise InvalidInput(
                f"{table.name} has a column {same[0]!r}, as computed columns call another; "
                "leave it out (exclude_columns)"
            )
        empty = pa.Table.from_batches([], table.arrow_schema)
        computed = self.added(empty, table.name, None)
        for name in self.expressions:
            if pa.types.is_null(computed.schema.field(name).type):
                raise InvalidInput(f"computed column {name!r} has no type; give it one: cast(... as ...)")
        return tuple(Field(NO_ID, name, from_arrow(computed.schema.field(name).type)) for name in self.expressions)

    def added(self, rows: pa.Table, table: str, committed_ms: np.ndarray | None) -> pa.Table:
        """`rows` of `table` with the computed columns added. `committed_ms`: the commit time of each row's change, in
        milliseconds since 1970 (None: unknown)."""
        if not self.expressions:
            return rows
        times = pa.nulls(rows.num_rows, _INSTANT) if committed_ms is None else pa.array(committed_ms).cast(_INSTANT)
        seen = rows.append_column(
            SOURCE_TABLE, pa.array([table], pa.string()).take(pa.array(np.zeros(rows.num_rows, int)))
        )
        seen = seen.append_column(COMMITTED_AT, times)
        for name, expression in self.expressions.items():
            try:
                rows = rows.append_column(name, evaluation.evaluate(expression, seen))
            except LakeError as error:
                raise InvalidInput(f"computed column {name!r} of {table}: {error}") from error
        return rows

    def anew(self, rows: pa.Table, table: str, changed: Collection[str]) -> pa.Table:
        """`rows` with the computed columns that depend on `changed` columns computed again."""
        names = [
            name for name, expression in self.expressions.items() if not columns_of(expression).isdisjoint(changed)
        ]
        made = replace(self, expressions={name: self.expressions[name] for name in names})
        return made.added(rows.drop_columns(names), table, None).select(rows.schema.names) if names else rows


NONE = Computed()
