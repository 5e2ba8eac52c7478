"""Inspect: a table's metadata, as Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakeformat import arguments
from lakeformat.changes import KIND_COLUMN, Changes
from lakeformat.dialects.dialect import Dialect
from lakeformat.model.predicate import Expression
from lakeformat.model.snapshot import TableState
from lakeformat.storage.store import Store


@dataclass(frozen=True, slots=True)
class Inspect:
    """Metadata as Arrow tables; see the dialect's `inspect` for their columns."""

    _store: Store
    _dialect: Dialect
    _base: Callable[[], TableState]
    _told: Callable[..., Changes]

    def snapshots(self) -> pa.Table:
        return self._table("snapshots")

    def files(self) -> pa.Table:
        return self._table("files")

    def manifests(self) -> pa.Table:
        return self._table("manifests")

    def partitions(self, small_file_bytes: int | None = None) -> pa.Table:
        """Files, small files (below `small_file_bytes`; by default what compaction takes for small), rows and bytes."""
        small_file_bytes = arguments.whole("small_file_bytes", small_file_bytes, 0)
        return self._table("partitions", small_file_bytes)

    def tags(self) -> pa.Table:
        return self._table("tags")

    def branches(self) -> pa.Table:
        return self._table("branches")

    def schemas(self) -> pa.Table:
        return self._table("schemas")

    def sort_orders(self) -> pa.Table:
        """What files are, or were, sorted by (Iceberg)."""
        return self._table("sort_orders")

    def options(self) -> pa.Table:
        return self._table("options")

    def consumers(self) -> pa.Table:
        return self._table("consumers")

    def audit_log(
        self,
        from_snapshot: int | None = None,
        to_snapshot: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | Expression | None = None,
    ) -> pa.Table:
        """The rows, each with its kind in the first column, `rowkind`: "+I", "-U", "+U" or "-D" (Paimon's `$audit_log`).

        Without `from_snapshot`, the rows as they are (at `to_snapshot`), and of a table with a primary key also those that
        were taken back, until compaction forgets them. With it, what `changes` gives. In memory: for more rows, use that.
        """
        found = self._told(from_snapshot, to_snapshot, columns, where).to_arrow()
        rows, kinds = found.drop_columns([KIND_COLUMN]), found[KIND_COLUMN]
        return rows.add_column(0, pa.field("rowkind", pa.string(), nullable=False), kinds)

    def _table(self, name: str, *how: Any) -> pa.Table:
        return self._dialect.INSPECTIONS[name](self._store, self._base(), *how)
