"""Alteration: schema changes that are collected one by one and committed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakeformat import arguments
from lakeformat.errors import InvalidInput
from lakeformat.expression import order
from lakeformat.model import evolution
from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import parse_field
from lakeformat.model.schema import Schema, Type


@dataclass(frozen=True, slots=True)
class Alteration:
    """Schema changes, applied together by `commit`. Columns inside rows are named by path: `address.city`."""

    _evolve: Callable[[Sequence[Any]], Schema]
    _schema: Callable[[], Schema]
    changes: tuple[Any, ...] = ()

    def add_column(
        self,
        name: str,
        type: str | Type,
        *,
        nullable: bool = True,
        comment: str | None = None,
        default: str | bytes | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> Alteration:
        """Add a column. Existing rows have null in it, or `default` in Iceberg. New rows get the default if the data
        lacks the column. `default` is text, or bytes for binary columns."""
        return self._and(evolution.AddColumn(name, type, nullable, comment, default, first, after))

    def rename_column(self, name: str, to: str) -> Alteration:
        """Rename a column. It keeps its id, so files need not change. Raises `NotFound`, and `AlreadyExists` if the new
        name is taken."""
        return self._and(evolution.RenameColumn(name, to))

    def drop_column(self, name: str) -> Alteration:
        """Drop a column from the schema. Its values stay in existing files. Raises `NotFound`."""
        return self._and(evolution.DropColumn(name))

    def move_column(self, name: str, *, first: bool = False, after: str | None = None) -> Alteration:
        """Move a column to the front, or behind the column `after`. Raises `NotFound`."""
        return self._and(evolution.MoveColumn(name, first, after))

    def change_type(self, name: str, type: str | Type) -> Alteration:
        """Widen a column's type (int to bigint, float to double, a longer decimal). Raises `InvalidInput` if the new
        type does not hold all values."""
        return self._and(evolution.ChangeType(name, type))

    def change_comment(self, name: str, comment: str | None) -> Alteration:
        """Set the column's comment; None removes it. Raises `NotFound`."""
        return self._and(evolution.ChangeComment(name, comment))

    def drop_not_null(self, name: str) -> Alteration:
        """Allow nulls in the column. Raises `NotFound`."""
        return self._and(evolution.ChangeNullability(name, True))

    def change_default(self, name: str, default: str | bytes | None) -> Alteration:
        """Set the value that new rows get if the data lacks the column."""
        return self._and(evolution.ChangeDefault(name, default))

    def add_partition_field(self, text: str, name: str | None = None) -> Alteration:
        """Partition new rows by this field too: "dt", "days(ts)", "bucket(16, id)" (Iceberg)."""
        arguments.text("partition field", text)
        field = parse_field(text)
        return self._and(evolution.AddPartitionField(field if name is None else replace(field, name=name)))

    def drop_partition_field(self, name: str) -> Alteration:
        """Stop partitioning new rows by the partition field `name` (Iceberg)."""
        return self._and(evolution.DropPartitionField(name))

    def set_sort_order(self, sort_by: Sequence[str]) -> Alteration:
        """Sort the rows of each new file by columns or transforms, e.g. "days(ts)", "id DESC NULLS LAST" (Iceberg). The
        default is ascending, with nulls first when ascending and last when descending. An empty list removes the sort
        order."""
        return self._and(evolution.SetSortOrder(order.parse(sort_by, self._schema().fields, "sort order")))

    def set_primary_key(self, columns: Sequence[str]) -> Alteration:
        """Set Iceberg's identifier fields, by which `upsert` matches rows: NOT NULL columns, or [] for none. Paimon's
        primary key cannot change."""
        return self._and(evolution.SetKey(arguments.columns(columns)))

    def set_properties(self, properties: Mapping[str, str]) -> Alteration:
        """Set table options; others stay. Raises `InvalidInput` for a misspelt option, with the correct spelling."""
        return self._and(evolution.SetProperties(properties))

    def remove_properties(self, *keys: str) -> Alteration:
        """Remove table options. An option that is not set is no error."""
        return self._and(evolution.RemoveProperties(keys))

    def set_comment(self, comment: str | None) -> Alteration:
        """Set the table's comment."""
        return self._and(evolution.SetTableComment(comment))

    def commit(self) -> Schema:
        """Commit the changes; returns the new schema. Snapshots use it from the next commit of rows on."""
        if not self.changes:
            raise InvalidInput("alter() without a change; name one before commit()")
        return self._evolve(self.changes)

    def _and(self, change: Any) -> Alteration:
        return replace(self, changes=(*self.changes, change))
