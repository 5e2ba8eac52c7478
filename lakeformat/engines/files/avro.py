"""Avro data files: columns by name or id, and a writer with the schemas of Java Paimon or Java Iceberg."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.codec.avro import fields as avro_fields
from lakeformat.codec.avro import file as avro
from lakeformat.codec.avro import schema as avro_schema
from lakeformat.engines.files import statistics
from lakeformat.engines.files.parquet import present
from lakeformat.engines.kernels import casts
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type, scalar, walk
from lakeformat.model.work import ColumnStats, WriteTask

PIECE_OPTION = None

FIELD_IDS = "avro.field-ids"  # An option: "true" writes field ids into the file, as Iceberg does.

_RECORD = "org.apache.paimon.avro.generated.record"
_PLAIN = {
    Kind.BOOLEAN: "boolean",
    Kind.TINYINT: "int",
    Kind.SMALLINT: "int",
    Kind.INT: "int",
    Kind.BIGINT: "long",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.CHAR: "string",
    Kind.VARCHAR: "string",
    Kind.STRING: "string",
    Kind.BINARY: "bytes",
    Kind.VARBINARY: "bytes",
    Kind.BYTES: "bytes",
}


class File:
    """An Avro file opened for reading."""

    row_count: int | None = None

    def __init__(self, source: Any, path: str) -> None:
        self._data, self._path = source.read(), path
        self._head = avro.read_head(self._data)

    def fields(self, named: tuple[Field, ...] | None) -> tuple[Field, ...]:
        """The columns of the file: those of `named`, matched by name; otherwise with the ids in the file."""
        if named is None:
            return avro_fields.parse(self._head.schema)
        types = {field.name: field.type for field in named}
        stored = self._head.arrow_schema()
        empty = {f.name: _mapped(casts.nulls(0, f.type), types[f.name]) for f in stored if f.name in types}
        return present(named, [pa.field(name, array.type) for name, array in empty.items()])

    def batches(
        self,
        fields: tuple[Field, ...],
        pushed: pc.Expression | None,
        batch_rows: int,
        far_as_null: frozenset[int] = frozenset(),
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(position of the first row, rows) with the columns `fields`; only columns and fields are pruned."""
        names = [field.name for field in fields]
        position = 0
        for block in avro.read(self._data, self._head, list(_paths(fields)), logical=True):
            columns = [_mapped(layouts.plain(block.column(field.name)), field.type) for field in fields]
            whole = pa.RecordBatch.from_arrays(columns, names) if columns else block
            for start in range(0, whole.num_rows, batch_rows):
                batch = whole.slice(start, batch_rows)
                yield position, batch
                position += batch.num_rows


class Output:
    """An Avro file being written to `sink`."""

    def __init__(self, sink: BinaryIO, task: WriteTask) -> None:
        self._sink, self._fields = sink, task.fields
        self._with_ids = task.encoding.options.get(FIELD_IDS) == "true"
        self._schema = avro_fields.emit(task.fields) if self._with_ids else _type(Row(task.fields), _RECORD, False)
        self._codec = {"zstd": "zstandard", "none": "null", "uncompressed": "null", "gzip": "deflate"}.get(
            task.encoding.compression.lower(), task.encoding.compression.lower()
        )
        self._level = task.encoding.compression_level
        self._sync = os.urandom(16)
        # The header is always the same, so that later blocks can be appended to one file.
        self._header = avro.encode(self._empty(), self._schema, self._codec, level=self._level, sync=self._sync)
        self._sink.write(self._header)
        self._stats: list[dict[int, ColumnStats]] = []

    def add(self, table: pa.Table) -> None:
        self._stats.append(statistics.of_rows(table, self._fields))
        if self._with_ids:
            table = _legally_named(table, self._fields)
        encoded = avro.encode(table, self._schema, self._codec, level=self._level, sync=self._sync)
        self._sink.write(memoryview(encoded)[len(self._header) :])

    def give_up(self) -> None:
        """Abandon the file."""

    def size(self) -> int:
        """Bytes written so far."""
        return self._sink.tell()

    def close(self) -> tuple[dict[int, ColumnStats], tuple[int, ...]]:
        """(statistics by field id, no offsets); the sink stays open."""
        return {field.id: statistics.merge(part[field.id] for part in self._stats) for field in self._fields}, ()

    def _empty(self) -> pa.Table:
        return pa.table({field["name"]: pa.nulls(0) for field in self._schema["fields"]})


def _paths(fields: tuple[Field, ...], above: str = "") -> Iterator[str]:
    """The names to read for `fields`, and the paths of fields inside rows."""
    for field in fields:
        if isinstance(field.type, Row):
            yield from _paths(field.type.fields, f"{above}{field.name}.")
        else:
            yield above + field.name


def _legally_named(table: pa.Table, fields: tuple[Field, ...]) -> pa.Table:
    """`table` with legal Avro names, at any depth."""
    if all(avro_schema.legal(field.name) == field.name for field in walk(fields)):
        return table
    columns = [
        casts.rebuilt(layouts.plain(column), field.type, lambda leaf, _: leaf, avro_schema.legal)
        for column, field in zip(table.columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(columns, [avro_schema.legal(field.name) for field in fields])


def _mapped(array: pa.Array, type: Type) -> pa.Array:
    """Maps with keys other than strings, which Avro stores as lists of pairs; at any depth."""
    match type:
        case Row(parts) if pa.types.is_struct(array.type):
            types = {part.name: part.type for part in parts}
            names = [array.type.field(i).name for i in range(array.type.num_fields)]
            columns = [
                _mapped(pc.struct_field(array, [i]), types[name]) if name in types else pc.struct_field(array, [i])
                for i, name in enumerate(names)
            ]
            row_type = pa.struct([pa.field(name, column.type) for name, column in zip(names, columns, strict=True)])
            return casts.struct(array, columns, row_type)
        case ListOf(element) if pa.types.is_list(array.type):
            items = _mapped(casts.items(array), element.type)
            return casts.relist(array, pa.list_(items.type), items)
        case MapOf() | MultisetOf():
            key_type, value_type = (
                (type.key.type, type.value.type) if isinstance(type, MapOf) else (type.element.type, scalar(Kind.INT))
            )
            if pa.types.is_map(array.type):
                keys, values = casts.entries(array)
            elif pa.types.is_list(array.type):
                pairs = casts.items(array)
                keys, values = (pc.struct_field(pairs, [i]) for i in (0, 1))
            else:
                return array
            keys, values = _mapped(keys, key_type), _mapped(values, value_type)
            return casts.remap(array, pa.map_(keys.type, values.type), keys, values)
    return array


def _type(type: Type, name: str, nullable: bool) -> Any:
    """The Avro type, as named by Java Paimon's `AvroSchemaConverter`; `["null", type]` if it is nullable."""
    avro_type: Any
    match type:
        case Scalar(kind) if kind in _PLAIN:
            avro_type = _PLAIN[kind]
        case Scalar(Kind.DATE):
            avro_type = {"type": "int", "logicalType": "date"}
        case Scalar(Kind.TIME):
            avro_type = {"type": "int", "logicalType": "time-millis"}
        case Scalar(Kind.DECIMAL, (precision, scale)):
            avro_type = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as kind, (digits,)) if digits <= 6:
            # In Java Paimon `local-` is the instant.
            local = "local-" if kind is Kind.TIMESTAMP_TZ else ""
            avro_type = {"type": "long", "logicalType": f"{local}timestamp-{'millis' if digits <= 3 else 'micros'}"}
        case Row(parts):
            avro_type = {
                "type": "record",
                "name": name.rpartition(".")[2],
                "fields": [_field(part, name) for part in parts],
            }
            if "." in name:
                avro_type["namespace"] = name.rpartition(".")[0]
        case ListOf(element):
            avro_type = {"type": "array", "items": _type(element.type, name, element.nullable)}
        case MapOf(key, value):
            avro_type = _map(key, value, name)
        case MultisetOf(element):
            avro_type = _map(element, Field(-1, "value", scalar(Kind.INT)), name)
        case _:
            raise UnsupportedFeature(f"Paimon's Avro files have no {type}; use Parquet")
    return ["null", avro_type] if nullable else avro_type


def _field(field: Field, name: str) -> dict[str, Any]:
    entry = {"name": field.name, "type": _type(field.type, f"{name}_{field.name}", field.nullable)}
    return {**entry, "default": None} if field.nullable else entry


def _map(key: Field, value: Field, name: str) -> dict[str, Any]:
    if isinstance(key.type, Scalar) and key.type.kind in (Kind.STRING, Kind.VARCHAR, Kind.CHAR):
        return {"type": "map", "values": _type(value.type, name, value.nullable)}
    # Avro's own maps have string keys only.
    pair = {
        "type": "record",
        "name": name.rpartition(".")[2],
        "namespace": name.rpartition(".")[0],
        "fields": [
            {"name": "key", "type": _type(key.type, f"{name}_key", key.nullable)},
            {
                "name": "value",
                "type": _type(value.type, f"{name}_value", value.nullable),
                **({"default": None} if value.nullable else {}),
            },
        ],
    }
    return {"type": "array", "items": pair, "logicalType": "map"}
