"""Hidden columns of tables, by the connectors' names and types: where a row lies. A query that names one reads it; `*`
does not list it.

Iceberg: core/MetadataColumns.java. Paimon: paimon-spark, PaimonMetadataColumn.scala.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lakeformat.codec.arrow import arrow_schema, fields_from_arrow
from lakeformat.engines import worker
from lakeformat.errors import CorruptTable, NotFound, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import Expression
from lakeformat.model.schema import NO_ID, Field, Kind, Row, Type, scalar
from lakeformat.model.work import FILE, POSITION
from lakeformat.reading.scan import Scan
from lakeformat.sql.sources import Stream, TableRows
from lakeformat.sql.translation.spark_types import SparkType, of_model
from lakeformat.table import Table

# What a hidden column tells of a row: its file, its position there from 0, the file's partition, spec and bucket, or a
# number that the row keeps when it moves.
_FILE, _POSITION, _PARTITION, _SPEC, _BUCKET, _LINEAGE = "file", "position", "partition", "spec", "bucket", "lineage"
_NAMES: Mapping[str, Mapping[str, str]] = {
    "iceberg": {
        "_file": _FILE,
        "_pos": _POSITION,
        "_spec_id": _SPEC,
        "_partition": _PARTITION,
        "_row_id": _LINEAGE,
        "_last_updated_sequence_number": _LINEAGE,
        "_deleted": "",  # Known, and refused.
    },
    "paimon": {
        "__paimon_file_path": _FILE,
        "__paimon_row_index": _POSITION,
        "__paimon_partition": _PARTITION,
        "__paimon_bucket": _BUCKET,
        "_ROW_ID": _LINEAGE,
        "_SEQUENCE_NUMBER": _LINEAGE,
    },
}
_KINDS = {_FILE: Kind.STRING, _POSITION: Kind.BIGINT, _SPEC: Kind.INT, _BUCKET: Kind.INT, _LINEAGE: Kind.BIGINT}
_PARTITION_OR_SPEC = {_PARTITION, _SPEC}


def mentioned(tree: Any) -> frozenset[str]:
    """The names, in lower case, that a query reads and does not give itself."""
    names = {part.name.casefold() for column in tree.find_all(exp.Column) for part in column.parts}
    named = {node.alias.casefold() for node in tree.find_all(exp.Alias)}
    return frozenset(
        names - named - {c.name.casefold() for node in tree.find_all(exp.TableAlias) for c in node.columns}
    )


def used(table: Table, names: Collection[str], where: str) -> tuple[str, ...]:
    """The hidden columns of a table among `names`. Raises `UnsupportedFeature` for one that the rows do not have."""
    columns = {name.casefold() for name in table.schema.names}
    hidden = tuple(name for name in _NAMES[table.format] if name.casefold() in names and name.casefold() not in columns)
    for name in hidden:
        if (reason := _refusal(table, name)) is not None:
            raise UnsupportedFeature(f"{where}: the hidden column {name} of {table.name}: {reason}")
    return hidden


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows of a table with hidden columns behind their own."""

    rows: TableRows
    table: Table
    hidden: tuple[str, ...]
    columns: tuple[str, ...] | None = None  # The table's own that are read; None: all.

    @property
    def names(self) -> tuple[str, ...]:
        return (*(field.name for field in self._columns_read), *self.hidden)

    @property
    def types(self) -> Mapping[str, Type]:
        columns = {field.name: field.type for field in self._columns_read}
        return columns | {name: self._type(name) for name in self.hidden}

    def typed_columns(self) -> tuple[tuple[str, SparkType], ...]:
        return tuple((name, of_model(type)) for name, type in self.types.items())

    def narrowed(self, columns: Sequence[str] | None, where: Expression | None) -> PlacedRows:
        if columns is None:
            return replace(self, rows=self.rows.narrowed(None, where))
        kept = tuple(name for name in columns if name not in self.hidden)
        hidden = tuple(name for name in self.hidden if name in columns)
        some = kept or self.rows.names[:1]  # A scan has a column.
        return PlacedRows(self.rows.narrowed(some, where), self.table, hidden, kept)

    def stream(self) -> Any:
        return Stream(self)

    def frame(self, spark: Any) -> Any:
        raise UnsupportedFeature(
            f"the hidden columns {', '.join(self.hidden)} of {self.table.name} on Spark; read them without spark="
        )

    @property
    def schema(self) -> pa.Schema:
        placed = (Field(NO_ID, name, self.types[name]) for name in self.hidden)
        return arrow_schema((*self._columns_read, *placed))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        scan, schema = self.rows.scan, self.schema
        is_iceberg = scan.view.format == "iceberg"
        needs_files = is_iceberg and _PARTITION_OR_SPEC & set(self._kinds.values())
        of_files = _data_files(self.table, scan) if needs_files else None
        lineage = tuple(name for name, kind in self._kinds.items() if kind == _LINEAGE)
        read = scan.view.project((*(field.name for field in scan.fields), *lineage))
        for task in scan.view.tasks(
            scan.view.files(scan.predicate), (*read, POSITION, FILE), scan.predicate, alone=True
        ):
            path = scan.store.location(task.paths[0])
            values = {_FILE: path, _BUCKET: task.bucket, **_of_file(of_files, path)}
            if not is_iceberg:
                values[_PARTITION] = dict(zip(self.table.schema.partitioning.columns, task.partition, strict=True))
            for batch in worker.read(scan.store, task):
                columns = [batch.column(field.name) for field in self._columns_read]
                for name, kind in self._kinds.items():
                    if kind in (_POSITION, _LINEAGE):
                        columns.append(batch.column(POSITION.name if kind == _POSITION else name))
                    else:
                        columns.append(pa.repeat(pa.scalar(values[kind], schema.field(name).type), batch.num_rows))
                columns = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    @property
    def _columns_read(self) -> tuple[Field, ...]:
        fields = self.rows.scan.fields
        return fields if self.columns is None else tuple(field for field in fields if field.name in self.columns)

    @property
    def _kinds(self) -> Mapping[str, str]:
        return {name: _NAMES[self.table.format][name] for name in self.hidden}

    def _type(self, name: str) -> Type:
        kind = self._kinds[name]
        if kind != _PARTITION:
            return scalar(_KINDS[kind])
        if self.table.format == "paimon":
            return Row(tuple(self.table.schema.field(column) for column in self.table.schema.partitioning.columns))
        files = _data_files(self.table, self.rows.scan)
        return fields_from_arrow(files.select(["partition"]).schema)[0].type


# --- private ----------------------------------------------------------------------------------------------------------


def _refusal(table: Table, name: str) -> str | None:
    """Why the rows of a table do not have a hidden column; None if they do."""
    kind = _NAMES[table.format][name]
    properties = {key: value.lower() for key, value in table.properties.items()}
    if not kind:
        return "deleted rows are not read here; see the metadata table position_deletes"
    if kind == _LINEAGE:
        try:
            table.scan([name])
        except NotFound:
            return "the table does not track rows"
        return None
    if table.format == "paimon":
        if table.schema.primary_key:
            return "the table merges rows by key, which have no place of their own"
        if "scan.fallback-branch" in properties:
            return "the table reads rows of another branch too"
        if properties.get("data-evolution.enabled") == "true" and kind in (_FILE, _POSITION):
            return "the table may keep the columns of a row in several files"
    if kind == _PARTITION and not table.schema.partitioning.sources:
        return "the table has no partitions"
    return None


def _data_files(table: Table, scan: Scan) -> pa.Table:
    inspect = table.inspect if scan.snapshot_id is None else table.inspect.at(snapshot_id=scan.snapshot_id)
    return inspect.connector("data_files")


def _of_file(files: pa.Table | None, path: str) -> dict[str, Any]:
    """The spec and partition of a file, as the connector's table of files has them."""
    if files is None or "spec_id" not in files.column_names:
        return {}
    index = pc.index_in(pa.scalar(path), value_set=files["file_path"].combine_chunks()).as_py()
    if index is None:
        raise CorruptTable(f"{path}: the rows are read from this file, and the table's files do not list it")
    row = files.slice(index, 1)
    values = {_SPEC: row["spec_id"][0].as_py()}
    return values | ({_PARTITION: row["partition"][0].as_py()} if "partition" in row.column_names else {})
