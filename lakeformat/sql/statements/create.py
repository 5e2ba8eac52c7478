"""CREATE, REPLACE, DROP and RENAME of tables."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.engines.choose import spark_engine
from lakeformat.errors import AlreadyExists, InvalidInput, NotFound, UnsupportedFeature
from lakeformat.expression.spark_sql import quoted
from lakeformat.model import evolution
from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import PartitionField, Partitioning, TransformKind, parse_field
from lakeformat.model.schema import Field, Schema
from lakeformat.sql import declare, names, query
from lakeformat.sql.result import Result, metrics, nothing
from lakeformat.sql.session import Context
from lakeformat.sql.statements import databases, stored_functions, views
from lakeformat.sql.text import Cursor, Piece
from lakeformat.storage.paths import relative
from lakeformat.table import Table

FORMATS = ("paimon", "iceberg")
_KEY = "primary-key"  # Paimon's option; in Iceberg tables it sets the identifier fields.


@dataclass(slots=True)
class TableDeclaration:
    """A table as CREATE TABLE declares it."""

    name: str
    offset: int
    format: str | None = None
    fields: list[Field] = field(default_factory=list)
    partition_by: list[str] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    location: str | None = None
    like: Table | None = None
    rows: Piece | None = None


def create(context: Context, cursor: Cursor) -> Result:
    start = cursor.offset
    is_replace = must_exist = cursor.take("REPLACE")
    if not is_replace:
        cursor.expect("CREATE")
        is_replace = cursor.take("OR REPLACE")
    if cursor.take("CATALOG"):
        return _catalog(context, cursor, start)
    if databases.are_next(cursor):
        return databases.create(context, cursor)
    if cursor.peek("FUNCTION") or cursor.peek("TEMPORARY FUNCTION") or cursor.peek("TEMP FUNCTION"):
        return stored_functions.create(context, cursor, is_replace)
    if any(cursor.peek(word) for word in ("VIEW", "TEMP", "TEMPORARY", "GLOBAL")):
        return views.create(context, cursor, is_replace)
    cursor.take("EXTERNAL")
    if not cursor.take("TABLE"):
        cursor.refuse(
            f"CREATE {cursor.word()}; supported: CREATE TABLE, CREATE VIEW, CREATE FUNCTION and CREATE DATABASE", start
        )
    if_exists = "ignore" if cursor.take("IF NOT EXISTS") else "error"
    declared = _declared(context, cursor)
    if declared.location is not None and not context.lake.places(declared.format or "paimon"):
        raise context.script.unsupported(
            declared.offset,
            f"LOCATION of a table of {declared.format or 'paimon'} here: the table lies in the warehouse or where its "
            "catalog puts it; a SQL catalog of such tables takes a LOCATION",
        )
    existing = context.lake.table(declared.name) if context.lake.exists(declared.name) else None
    if existing is None and must_exist:
        raise NotFound(
            f"SQL at {context.script.position(declared.offset)}: there is no table {declared.name} to replace; CREATE "
            "OR REPLACE TABLE makes one"
        )
    if existing is not None and not is_replace:
        if if_exists == "ignore":
            return nothing()
        raise AlreadyExists(
            f"SQL at {context.script.position(declared.offset)}: there is a table {declared.name} already; CREATE "
            "TABLE IF NOT EXISTS takes it as it is"
        )
    if existing is None and declared.location is not None and _is_bare(declared):
        context.lake.register_table(declared.name, declared.location)
        return nothing()
    data = None if declared.rows is None else query.rows(context, declared.rows)
    _complete(context, declared, data)
    if declared.like is None:
        declare.require_kept(context, declared.format or "paimon", declared.fields, declared.offset)
    if existing is not None:
        return _replaced(context, existing, declared, data)
    declaration = {
        "schema": Schema(tuple(declared.fields)),
        "format": declared.format or "paimon",
        "partition_by": declared.partition_by,
        "primary_key": declared.key,
        "properties": declared.properties,
        "comment": declared.comment,
        **({} if declared.location is None else {"location": declared.location}),
    }
    if data is None:
        context.lake.create_table(declared.name, **declaration)
        return nothing()
    snapshot = context.lake.create_table_as(
        declared.name, data, **declaration, id=context.id, snapshot_properties=context.properties
    )
    return metrics(snapshot)


def drop(context: Context, cursor: Cursor) -> Result:
    cursor.expect("DROP")
    if databases.are_next(cursor):
        return databases.drop(context, cursor)
    if cursor.peek("VIEW"):
        return views.drop(context, cursor)
    if cursor.peek("FUNCTION") or cursor.peek("TEMPORARY FUNCTION") or cursor.peek("TEMP FUNCTION"):
        return stored_functions.drop(context, cursor)
    if not cursor.take("TABLE"):
        cursor.refuse(f"DROP {cursor.word()}; supported: DROP TABLE, DROP VIEW, DROP FUNCTION and DROP DATABASE")
    if_exists = cursor.take("IF EXISTS")
    offset = cursor.offset
    path = cursor.path()
    purge = cursor.take("PURGE")
    cursor.close()
    try:
        table = names.table(context, path, f"SQL at {context.script.position(offset)}")
    except NotFound:
        if if_exists:
            return nothing()
        raise
    if table.name != names.full(context, path) and table.name.casefold() != names.full(context, path).casefold():
        raise context.script.invalid(offset, f"{'.'.join(path)} is part of {table.name}; DROP TABLE takes a table")
    context.lake.drop_table(table.name, **({"purge": True} if purge else {}))
    return nothing()


def rename(context: Context, cursor: Cursor, table: Table) -> Result:
    """`... RENAME TO name`, also into another database."""
    path = cursor.path()
    cursor.close()
    name = names.full(context, path) if len(path) > 1 else f"{table.name.rpartition('.')[0]}.{path[0]}"
    context.lake.rename_table(table.name, name)
    return nothing()


def transform_text(field: PartitionField, quote: bool = False) -> str:
    """A partition field as PARTITIONED BY spells it."""
    kind, parameter = field.transform.kind, field.transform.parameter
    source = quoted(field.source) if quote else field.source
    if kind is TransformKind.IDENTITY:
        return source
    return f"{kind}({parameter}, {source})" if parameter is not None else f"{kind}({source})"


# --- private ----------------------------------------------------------------------------------------------------------


def _declared(context: Context, cursor: Cursor) -> TableDeclaration:
    offset = cursor.offset
    declared = TableDeclaration(names.full(context, cursor.path()), offset)
    flink = any(token.text.upper() == "WITH" for token in cursor.tokens[cursor.at :]) and not cursor.script.text[
        offset:
    ].upper().count("USING")
    if cursor.peek("(") and cursor.word(1) not in ("SELECT", "WITH"):
        cursor.listed(lambda: _item(context, cursor, declared, flink))
    while not cursor.done:
        if cursor.peek("USING"):
            declared.format = _format(cursor)
        elif cursor.take("PARTITIONED BY"):
            cursor.listed(lambda: _partition(context, cursor, declared, flink))
        elif cursor.take("TBLPROPERTIES") or cursor.take("OPTIONS") or cursor.take("WITH"):
            declared.properties |= declare.properties(cursor)
        elif cursor.take("COMMENT"):
            declared.comment = cursor.string()
        elif cursor.peek("LOCATION"):
            cursor.expect("LOCATION")
            declared.location = cursor.string()
        elif cursor.take("LIKE"):
            where = f"SQL at {context.script.position(cursor.offset)}"
            declared.like = names.table(context, cursor.path(), where)
        elif cursor.peek("AS") or cursor.peek("SELECT") or cursor.peek("WITH"):
            cursor.take("AS")
            declared.rows = cursor.rest()
        elif cursor.peek("CLUSTERED") or cursor.peek("CLUSTER") or cursor.peek("STORED") or cursor.peek("ROW"):
            cursor.refuse(
                f"{cursor.word()} in CREATE TABLE; buckets are said by PARTITIONED BY (bucket(n, c)), "
                "or 'bucket' in TBLPROPERTIES"
            )
        else:
            cursor.fail("expected USING, PARTITIONED BY, TBLPROPERTIES, COMMENT, LIKE or AS")
    return declared


def _format(cursor: Cursor) -> str:
    offset = cursor.offset
    cursor.expect("USING")
    format = cursor.part().lower()
    if format not in FORMATS:
        cursor.refuse(
            f"USING {format}; write USING {' or USING '.join(FORMATS)} here, in lake.sql, not in Spark's own SQL",
            offset,
        )
    return format


def _is_bare(declared: TableDeclaration) -> bool:
    """Whether a Paimon table at the location is taken as it is."""
    declares = (
        declared.fields,
        declared.partition_by,
        declared.key,
        declared.properties,
        declared.like,
        declared.rows,
        declared.comment,
    )
    return (declared.format or "paimon") == "paimon" and not any(declares)


def _item(context: Context, cursor: Cursor, declared: TableDeclaration, flink: bool) -> None:
    """A column, or the primary key."""
    if cursor.take("CONSTRAINT"):
        cursor.part()
    if cursor.take("PRIMARY KEY"):
        declared.key = cursor.listed(cursor.part)
        cursor.take("NOT ENFORCED")
        return
    if cursor.peek("WATERMARK FOR"):
        cursor.refuse("WATERMARK FOR; streams set watermarks with what they commit")
    declared.fields.append(declare.column(context, cursor, flink).field)


def _partition(context: Context, cursor: Cursor, declared: TableDeclaration, flink: bool) -> None:
    """A column, a transform, or a typed column, which is added as the last column."""
    if cursor.word(1) in (",", ")", "(", "."):
        declared.partition_by.append(declare.transform(cursor))
        return
    column = declare.column(context, cursor, flink).field
    declared.fields.append(column)
    declared.partition_by.append(column.name)


def _complete(context: Context, declared: TableDeclaration, data: Any) -> None:
    """Fill in what the query, the LIKE table and the properties declare."""
    if data is not None:
        if declared.fields:
            raise context.script.invalid(declared.offset, "CREATE TABLE ... AS SELECT takes its columns from the query")
        schema = data.schema
        fields = fields_from_arrow(schema) if isinstance(schema, pa.Schema) else spark_engine.fields_from_spark(schema)
        declared.fields = [replace(column, nullable=True) for column in fields]
    if declared.like is not None:
        if declared.fields:
            raise context.script.invalid(
                declared.offset, "CREATE TABLE ... LIKE takes its columns from the other table"
            )
        schema = declared.like.schema
        declared.fields, declared.key = list(schema.fields), declared.key or list(schema.primary_key)
        declared.partition_by = declared.partition_by or [transform_text(by) for by in schema.partitioning.fields]
        declared.format = declared.format or declared.like.format
        declared.properties = (
            {**schema.properties, **declared.properties}
            if declared.format == declared.like.format
            else declared.properties
        )
        declared.comment = declared.comment if declared.comment is not None else schema.comment
    for name in [key for key in declared.properties if key.casefold() == _KEY]:
        declared.key = [part.strip() for part in declared.properties.pop(name).split(",")]
    if not declared.fields:
        raise context.script.invalid(
            declared.offset, f"CREATE TABLE {declared.name} without columns; name them, or AS SELECT"
        )
    by_name = {column.name.casefold(): column.name for column in declared.fields}
    declared.key = [by_name.get(column.casefold(), column) for column in declared.key]
    declared.partition_by = [by_name.get(column.casefold(), column) for column in declared.partition_by]


def _replaced(context: Context, table: Table, declared: TableDeclaration, data: Any) -> Result:
    """OR REPLACE of an existing table: one commit replaces its rows, and its history stays. A commit before it changes
    columns, partition fields and key where they differ."""
    schema = table.schema
    if (declared.format or table.format) != table.format or (
        declared.location is not None and relative(table.uri, declared.location) != ""
    ):
        raise context.script.unsupported(
            declared.offset,
            f"REPLACE of {table.name}, {table.format} at {table.uri}, in another format or place; "
            "DROP TABLE and CREATE TABLE",
        )
    changes = _changes(schema, declared)
    if changes:
        try:
            table.evolve(changes)
        except (InvalidInput, UnsupportedFeature) as error:
            message = (
                f"REPLACE of {table.name}: {error}; DROP TABLE and CREATE TABLE make another table, "
                "without this one's history"
            )
            raise context.script.unsupported(declared.offset, message) from error
    return metrics(table.truncate(**context.verb) if data is None else table.overwrite(data, **context.verb))


def _changes(schema: Schema, declared: TableDeclaration) -> list[evolution.Change]:
    """The changes from a table's declaration to the requested one. Properties that only the old one has stay."""
    required = {
        column.name for column in schema.fields if not column.nullable
    }  # A key's column is NOT NULL though no text says so.
    fields = [
        replace(column, nullable=False) if column.name in required.intersection(declared.key) else column
        for column in declared.fields
    ]
    columns = evolution.towards(schema, fields)
    partition_fields = Partitioning(tuple(parse_field(text) for text in declared.partition_by)).fields
    spelt = {transform_text(by) for by in partition_fields}
    has_other_partitions = [transform_text(by) for by in schema.partitioning.fields] != [
        transform_text(by) for by in partition_fields
    ]
    key_differs = tuple(declared.key) != schema.primary_key
    names = {column.name for column in declared.fields}
    changes: list[evolution.Change] = []
    if has_other_partitions:
        gone = [by for by in schema.partitioning.fields if transform_text(by) not in spelt]
        changes += [evolution.DropPartitionField(by.name) for by in gone]
    if key_differs and schema.primary_key:
        changes.append(evolution.SetKey(()))
    if any(by.source[0] not in names for by in schema.sort_order.fields):
        changes.append(evolution.SetSortOrder(()))
    changes += columns
    if has_other_partitions:
        there = {transform_text(by) for by in schema.partitioning.fields}
        changes += [evolution.AddPartitionField(by) for by in partition_fields if transform_text(by) not in there]
    if key_differs and declared.key:
        changes.append(evolution.SetKey(tuple(declared.key)))
    properties = {key: value for key, value in declared.properties.items() if schema.properties.get(key) != value}
    if properties:
        changes.append(evolution.SetProperties(properties))
    if declared.comment is not None and declared.comment != schema.comment:
        changes.append(evolution.SetTableComment(declared.comment))
    return changes


def _catalog(context: Context, cursor: Cursor, start: int) -> Result:
    """CREATE CATALOG: a name for this warehouse, which may prefix table names. Other warehouses are refused."""
    name = cursor.part()
    properties = declare.properties(cursor) if cursor.take("WITH") else {}
    cursor.close()
    here = context.lake.uri.removeprefix("file://").rstrip("/")
    if (
        properties.get("type") not in FORMATS
        or properties.get("warehouse", "").removeprefix("file://").rstrip("/") != here
    ):
        cursor.refuse(
            f"CREATE CATALOG {name}: this Lake is the warehouse {context.lake.uri}; open another as Lake(...)", start
        )
    context.session.catalogs.add(name)
    return nothing()
