"""Inspect: the metadata of a table as Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat import arguments
from lakeformat.dialects.dialect import AnyView, Format
from lakeformat.engines.row_level import deletes
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import Expression
from lakeformat.model.work import DeleteFile
from lakeformat.reading import partitions
from lakeformat.reading.changes import KIND_COLUMN, Changes
from lakeformat.storage.store import Reader

_AUDIT_LOG, _BINLOG, _POSITION_DELETES = "audit_log", "binlog", "position_deletes"


@dataclass(frozen=True, slots=True)
class Inspect:
    """Metadata as Arrow tables. The dialects' `inspect` modules define the columns."""

    _format: Format
    _view: Callable[[], AnyView]
    _changes: Callable[..., Changes]
    _version: Callable[..., AnyView]
    _store: Reader

    def at(self, snapshot_id: int | None = None, *, as_of: Any = None, tag: str | None = None) -> Inspect:
        """The metadata at a snapshot: its files, manifests, partitions and entries. Metadata of the whole table
        (snapshots, tags, options ...) is the current one."""
        return replace(self, _view=partial(self._version, snapshot_id, as_of, tag))

    def snapshots(self) -> pa.Table:
        """One row per snapshot, oldest first: `snapshot_id`, `schema_id`, `operation`, `commit_time` (UTC),
        `total_record_count`. Paimon adds manifest lists, record counts, `watermark` and `properties`; Iceberg adds
        `parent_id`, `sequence_number` and `summary`."""
        return self._table("snapshots")

    def files(self) -> pa.Table:
        """One row per live data file: `partition`, `path`, `file_format`, `row_count`, `size_bytes`. Paimon adds
        `bucket`, `level`, sequence numbers and `deleted_row_count`; Iceberg adds `spec_id`, `sequence_number`,
        `snapshot_id`, `sort_order_id` and `readable_metrics` (counts and bounds per column; of geometries corners x, y,
        z, m)."""
        return self._table("files")

    def manifests(self) -> pa.Table:
        """One row per manifest of the current snapshot: its name, `size_bytes`, and how many files it adds and
        deletes."""
        return self._table("manifests")

    def partitions(self, small_file_bytes: int | None = None) -> pa.Table:
        """One row per partition: its columns, `file_count`, `small_file_count` (files below `small_file_bytes`; by
        default compaction's limit), `row_count`, `deleted_row_count`, `size_bytes`, `last_modified_ms` (since 1970),
        `spec_id` and, for partitioned tables, `partition`, a struct of its fields: of those that are called as one of
        these columns, it alone has the values. Iceberg: partitions of all specs, with the fields of all specs; a field
        that a partition's spec (see `partition_specs`) does not have is null."""
        small_file_bytes = arguments.whole("small_file_bytes", small_file_bytes, 0)
        return self._table("partitions", small_file_bytes)

    def partition_specs(self) -> pa.Table:
        """One row per partition spec: `spec_id`, `fields` (name, source column and transform of each, e.g. `identity`
        or `bucket[16]`), `is_current`. A Paimon table has one, 0."""
        return self._table("partition_specs")

    def partition_measures(self, columns: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]] | None:
        """For each combination of values of these columns that partitions have, their measures (see `partitions`)
        together. None if files of some spec are not partitioned by the columns' own values."""
        return partitions.by_columns(self.partitions(), self.partition_specs(), columns)

    def discrepancies(self) -> pa.Table:
        """One row (`text`) per count of the current snapshot's metadata that differs from what it counts, and per gap
        among the snapshots (Paimon)."""
        return self._table("discrepancies")

    def tags(self) -> pa.Table:
        """One row per tag: `tag_name`, `snapshot_id`, `schema_id`, `commit_time`, `record_count`, `retained_ms` (null:
        for ever). Paimon adds `create_time` (null if the tag does not record it)."""
        return self._table("tags")

    def branches(self) -> pa.Table:
        """One row per branch: `branch_name`. Iceberg adds `snapshot_id`, `commit_time`, `record_count` and the
        retention."""
        return self._table("branches")

    def schemas(self) -> pa.Table:
        """One row per schema of the table's history: `schema_id`, `fields` (JSON) and its keys. Paimon adds `options`
        and `comment`."""
        return self._table("schemas")

    def sort_orders(self) -> pa.Table:
        """One row per sort order: `order_id`, `sort_by`, `is_current`. Raises `UnsupportedFeature` for Paimon
        tables."""
        return self._table("sort_orders")

    def statistics(self) -> pa.Table:
        """One row per column or partition statistics file of a snapshot: `snapshot_id`, `of` ("table" or "partition"),
        `column`, `distinct_values` (an estimate), `path`, `size_bytes`. Of a Paimon table, the statistics that its
        newest snapshot names."""
        return self._table("statistics")

    def options(self) -> pa.Table:
        """The table's options: `key`, `value`."""
        return self._table("options")

    def consumers(self) -> pa.Table:
        """One row per consumer: `consumer_id`, `next_snapshot_id`. Raises `UnsupportedFeature` for Iceberg tables."""
        return self._table("consumers")

    def audit_log(
        self,
        from_snapshot: int | None = None,
        to_snapshot: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | Expression | None = None,
    ) -> pa.Table:
        """The rows with their kind in the first column, `rowkind`: "+I", "-U", "+U" or "-D" (Paimon's `$audit_log`).

        Without `from_snapshot`: the rows at `to_snapshot`, and in a table with a primary key also deleted rows that
        compaction has not dropped yet. With `from_snapshot`: the rows of `Table.changes`, which can also stream them;
        here all of them are in memory.
        """
        changes = self._changes(from_snapshot, to_snapshot, columns, where).to_arrow()
        rows, kinds = changes.drop_columns([KIND_COLUMN]), changes[KIND_COLUMN]
        return rows.add_column(0, pa.field("rowkind", pa.string(), nullable=False), kinds)

    def history(self) -> pa.Table:
        """Which snapshot became the current one when (Iceberg)."""
        return self._table("history")

    def refs(self) -> pa.Table:
        """The branches and tags (Iceberg)."""
        return self._table("refs")

    def metadata_log_entries(self) -> pa.Table:
        """The earlier metadata files (Iceberg)."""
        return self._table("metadata_log_entries")

    def data_files(self) -> pa.Table:
        """The live data files; the same as `files` (Iceberg)."""
        return self._table("data_files")

    def delete_files(self) -> pa.Table:
        """The live delete files (Iceberg)."""
        return self._table("delete_files")

    def position_deletes(self) -> pa.Table:
        """One row per position in the live position delete files and deletion vectors, including those of removed data
        files (Iceberg): `file_path`, `pos`, `partition`, `spec_id`, `delete_file_path`."""
        view = self._view()
        if view.delete_files is None:
            return self._table("position_deletes")  # Refused.
        return _positions(view.reader, *view.delete_files.position_deletes())

    def entries(self) -> pa.Table:
        """The manifest entries (Iceberg)."""
        return self._table("entries")

    def all_files(self) -> pa.Table:
        """The data files and delete files of all snapshots (Iceberg)."""
        return self._table("all_files")

    def all_data_files(self) -> pa.Table:
        """The data files of all snapshots (Iceberg)."""
        return self._table("all_data_files")

    def all_delete_files(self) -> pa.Table:
        """The delete files of all snapshots (Iceberg)."""
        return self._table("all_delete_files")

    def all_entries(self) -> pa.Table:
        """The manifest entries of all snapshots (Iceberg)."""
        return self._table("all_entries")

    def all_manifests(self) -> pa.Table:
        """The manifests of all snapshots (Iceberg)."""
        return self._table("all_manifests")

    def connector(self, name: str) -> pa.Table:
        """The metadata table `name` as the format's own Spark connector shows it: with its columns, their types and
        order. This is what SQL reads (`SELECT * FROM t.files`). See `connector_names`."""
        view = self._view()
        tables = view.metadata_tables
        if name == _POSITION_DELETES and tables.position_deletes is not None:
            return _positions(view.reader, *tables.position_deletes)
        if name in (_AUDIT_LOG, _BINLOG) and name in self.connector_names:
            return self.audit_log() if name == _AUDIT_LOG else _listed(self.audit_log())
        if name not in tables.readers:
            names = ", ".join(self.connector_names)
            raise UnsupportedFeature(f"{self._format.name}'s connector has no metadata table {name}; it has {names}")
        return tables.readers[name](tables)

    @property
    def connector_names(self) -> tuple[str, ...]:
        """The names of the metadata tables of the format's own Spark connector."""
        tables = self._view().metadata_tables
        beside = (_AUDIT_LOG, _BINLOG) if _POSITION_DELETES not in self._format.inspections else (_POSITION_DELETES,)
        return tuple(sorted({*tables.readers, *beside}))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of this format's metadata tables."""
        return tuple(sorted({*self._format.inspections, _AUDIT_LOG}))

    def _table(self, name: str, *options: Any) -> pa.Table:
        if name not in self._format.inspections:
            raise UnsupportedFeature(
                f"{self._format.name} tables have no metadata table {name}; they have {', '.join(self.names)}"
            )
        return self._view().inspect(name, *options)


def _positions(reader: Reader, files: Sequence[DeleteFile], shown: pa.Table) -> pa.Table:
    """One row for each position in the delete files; `shown` has the columns of each, of these `file_path` if known."""
    store = deletes.load(reader, files)
    rows = [deletes.listed(store, file) for file in files]
    counts = [len(row) for row in rows]
    shown = shown.take(pa.array(np.repeat(np.arange(len(files)), counts), pa.int64()))
    empty = pa.table({"file_path": pa.array([], pa.string()), "pos": pa.array([], pa.int64())})
    table = pa.concat_tables([empty, *rows])
    paths = pc.coalesce(table["file_path"], shown["file_path"])
    return shown.set_column(0, "file_path", paths).add_column(1, "pos", table["pos"])


def _listed(rows: pa.Table) -> pa.Table:
    """The rows with each value but the kind in an array of its own."""
    offsets = pa.array(np.arange(len(rows) + 1), pa.int32())
    columns = {name: pa.ListArray.from_arrays(offsets, rows[name].combine_chunks()) for name in rows.column_names[1:]}
    return pa.table({rows.column_names[0]: rows.column(0), **columns})
