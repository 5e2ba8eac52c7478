"""Alteration: changes of a table's schema, said one by one and made together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakeformat import arguments
from lakeformat.codec import order
from lakeformat.errors import InvalidInput
from lakeformat.model import evolution
from lakeformat.model.partition import parse_field
from lakeformat.model.schema import Schema, Type


@dataclass(frozen=True, slots=True)
class Alteration:
    """Schema changes that are made together by `commit`. Columns inside rows are named by path: `address.city`."""

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
        """A new column; old rows have null in it, or in Iceberg `default`, as text (of bytes: bytes). Also new rows have the
        default where the data lacks the column."""
        return self._and(evolution.AddColumn(name, type, nullable, comment, default, first, after))

    def rename_column(self, name: str, to: str) -> Alteration:
        """Another name; the column keeps its id, so files need no change. Raises `NotFound`, and `AlreadyExists` for a name that is taken."""
        return self._and(evolution.RenameColumn(name, to))

    def drop_column(self, name: str) -> Alteration:
        """Remove a column from the schema; its values stay in files that snapshots keep. Raises `NotFound`."""
        return self._and(evolution.DropColumn(name))

    def move_column(self, name: str, *, first: bool = False, after: str | None = None) -> Alteration:
        """Put a column first, or behind the column `after`. Raises `NotFound`."""
        return self._and(evolution.MoveColumn(name, first, after))

    def change_type(self, name: str, type: str | Type) -> Alteration:
        """A wider type (int to bigint, float to double, a longer decimal). Raises `InvalidInput` where the new type does not hold all values."""
        return self._and(evolution.ChangeType(name, type))

    def change_comment(self, name: str, comment: str | None) -> Alteration:
        """The column's comment; None removes it. Raises `NotFound`."""
        return self._and(evolution.ChangeComment(name, comment))

    def drop_not_null(self, name: str) -> Alteration:
        """Allow nulls in the column. Raises `NotFound`."""
        return self._and(evolution.ChangeNullability(name, True))

    def change_default(self, name: str, default: str | bytes | None) -> Alteration:
        """What rows written from now on have where the data lacks the column."""
        return self._and(evolution.ChangeDefault(name, default))

    def add_partition_field(self, text: str, name: str | None = None) -> Alteration:
        """Part rows that are written from now on by this too: "dt", "days(ts)", "bucket(16, id)" (Iceberg)."""
        arguments.text("partition field", text)
        field = parse_field(text)
        return self._and(evolution.AddPartitionField(field if name is None else replace(field, name=name)))

    def drop_partition_field(self, name: str) -> Alteration:
        """Part rows that are written from now on no longer by the partition field `name` (Iceberg)."""
        return self._and(evolution.DropPartitionField(name))

    def set_sort_order(self, sort_by: Sequence[str]) -> Alteration:
        """Sort the rows of each file that is written from now on: by columns and transforms, e.g. "days(ts)",
        "id DESC NULLS LAST" (Iceberg). By default ascending, and nulls first where ascending. []: by nothing."""
        return self._and(evolution.SetSortOrder(order.parse(sort_by, self._schema().fields, "sort order")))

    def set_primary_key(self, columns: Sequence[str]) -> Alteration:
        """Iceberg's identifier fields, by which `upsert` matches rows: columns that are NOT NULL; [] for none. Paimon's keys stay."""
        return self._and(evolution.SetKey(arguments.columns(columns)))

    def set_properties(self, properties: Mapping[str, str]) -> Alteration:
        """Set options of the format; others stay. Raises `InvalidInput` for a misspelt option, with the right spelling."""
        return self._and(evolution.SetProperties(properties))

    def remove_properties(self, *keys: str) -> Alteration:
        """Remove options; those that are not set are no error."""
        return self._and(evolution.RemoveProperties(keys))

    def set_comment(self, comment: str | None) -> Alteration:
        """The table's own comment."""
        return self._and(evolution.SetTableComment(comment))

    def commit(self) -> Schema:
        """Make the changes; returns the new schema. No snapshot uses it until the next commit of rows."""
        if not self.changes:
            raise InvalidInput("alter() without a change; name one before commit()")
        return self._evolve(self.changes)

    def _and(self, change: Any) -> Alteration:
        return replace(self, changes=(*self.changes, change))
