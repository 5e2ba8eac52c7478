"""DESCRIBE, SHOW and REFRESH."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakeformat.errors import NotFound
from lakeformat.expression.spark_sql import quoted, spark_type
from lakeformat.model.schema import Field, ListOf, MapOf, Row, Scalar, Type
from lakeformat.reading import partitions
from lakeformat.sql import names, query
from lakeformat.sql.result import Result, listing, nothing
from lakeformat.sql.session import Context
from lakeformat.sql.statements import databases, insert, stored_functions, views
from lakeformat.sql.statements.create import transform_text
from lakeformat.sql.text import Cursor, matching
from lakeformat.table import Table
from lakeformat.warehouse.views import QUERY_COLUMNS, View

_TEXT = pa.string()
_DESCRIBED = {"col_name": _TEXT, "data_type": _TEXT, "comment": _TEXT}


def describe(context: Context, cursor: Cursor) -> Result:
    if not cursor.take("DESCRIBE"):
        cursor.expect("DESC")
    if databases.are_next(cursor):
        return databases.describe(context, cursor)
    if cursor.peek("FUNCTION") and not (cursor.word(1) == "." or len(cursor.tokens) == cursor.at + 1):
        return stored_functions.describe(context, cursor)
    if cursor.take("QUERY") or cursor.word() in ("SELECT", "WITH", "VALUES"):
        fields = insert.fields(query.schema(context, cursor.rest()))
        return listing(_DESCRIBED, [(field.name, shown_type(field), field.comment) for field in fields])
    if cursor.peek("HISTORY") and cursor.word(1) not in ("", "."):
        cursor.refuse("DESCRIBE HISTORY; the snapshots of a table are SELECT * FROM db.t.snapshots")
    cursor.take("TABLE")
    extended = cursor.take("EXTENDED") or cursor.take("FORMATTED")
    relation = _table_or_view(context, cursor)
    fields = relation.fields if isinstance(relation, View) else relation.schema.fields
    rows: list[_Row] = [(field.name, shown_type(field), field.comment) for field in fields]
    partition = None
    if isinstance(relation, Table) and cursor.peek("PARTITION", "("):
        partition = _one_partition(context, cursor, relation)
        cursor.close()
    if not cursor.done:
        rows = _one_column(context, cursor, relation, rows)
    if isinstance(relation, View):
        rows += [(key, value, None) for key, value in views.described(relation)] if extended else []
        return listing(_DESCRIBED, rows)
    if len(rows) == len(fields):
        rows += _partitioning(relation)
    if partition is not None:
        rows += _about_partition(*partition, bool(extended))
    elif extended:
        rows += _about_table(relation)
    return listing(_DESCRIBED, rows)


def show(context: Context, cursor: Cursor) -> Result:
    cursor.expect("SHOW")
    word = cursor.word()
    if word in ("USER", "SYSTEM", "ALL", "FUNCTIONS"):
        return stored_functions.show(context, cursor)
    shown = _SHOWN.get(word)
    if shown is None:
        cursor.refuse(f"SHOW {word}; supported: SHOW {', '.join(sorted(_SHOWN))}")
    cursor.at += 1
    assert shown is not None
    return shown(context, cursor)


def refresh(context: Context, cursor: Cursor) -> Result:
    """REFRESH TABLE t: nothing to do, as each statement reads the table as it is."""
    cursor.expect("REFRESH")
    cursor.expect("TABLE")
    _table_or_view(context, cursor)
    cursor.close()
    return nothing()


def shown_type(field: Field) -> str:
    """A column's type as Spark's DESCRIBE shows it: `struct<a:int,b:array<string>>`."""
    return _shown(field.type)


# --- private ----------------------------------------------------------------------------------------------------------


_Row = tuple[str, str, str | None]


def _one_column(context: Context, cursor: Cursor, relation: Table | View, rows: list[_Row]) -> list[_Row]:
    offset = cursor.offset
    name = cursor.part()
    cursor.close()
    named = [row for row in rows if row[0].casefold() == name.casefold()]
    if not named:
        there = ", ".join(column for column, _, _ in rows)
        raise NotFound(
            f"SQL at {context.script.position(offset)}: {relation.name} has no column {name!r}; it has {there}"
        )
    return named


def _partitioning(table: Table) -> list[_Row]:
    fields = table.schema.partitioning.fields
    parts: list[_Row] = [(f"Part {i}", transform_text(field), None) for i, field in enumerate(fields)]
    return [("# Partitioning", "", None), *parts] if parts else []


def _about_partition(values: Mapping[str, Any], measures: Mapping[str, Any], extended: bool) -> list[_Row]:
    shown = {"Rows": "row_count", "Files": "file_count", "Size In Bytes": "size_bytes"} if extended else {}
    return [
        ("# Partition Information", "", None),
        ("Partition Values", _named(values), None),
        *((name, str(measures[key]), None) for name, key in shown.items()),
    ]


def _about_table(table: Table) -> list[_Row]:
    schema, snapshot = table.schema, table.current_snapshot()
    return [
        ("# Detailed Table Information", "", None),
        ("Name", table.name, None),
        ("Provider", table.format, None),
        ("Location", table.uri, None),
        ("Comment", schema.comment or "", None),
        ("Primary Key", ", ".join(schema.primary_key), None),
        ("Current Snapshot", "" if snapshot is None else str(snapshot.id), None),
        ("Table Properties", _listed(dict(schema.properties)), None),
    ]


def _shown(type: Type) -> str:
    match type:
        case Row(fields):
            return f"struct<{','.join(f'{field.name}:{_shown(field.type)}' for field in fields)}>"
        case ListOf(element):
            return f"array<{_shown(element.type)}>"
        case MapOf(key, value):
            return f"map<{_shown(key.type)},{_shown(value.type)}>"
    return spark_type(type).lower()


def _table(context: Context, cursor: Cursor) -> Table:
    at = cursor.offset
    return names.table(context, cursor.path(), f"SQL at {context.script.position(at)}")


def _table_or_view(context: Context, cursor: Cursor) -> Table | View:
    offset = cursor.offset
    path = cursor.path()
    try:
        return names.table(context, path, f"SQL at {context.script.position(offset)}")
    except NotFound:
        view = names.view(context, path)
        if view is None:
            raise
        return view


def _in_database(context: Context, cursor: Cursor) -> tuple[str, list[str]]:
    """The database of IN or FROM, else the current one, and its tables."""
    offset = cursor.offset
    database = context.session.database
    if cursor.take("IN") or cursor.take("FROM"):
        database = ".".join(cursor.path())
    if database not in context.databases and database != "default":
        there = ", ".join(context.databases) or "none"
        raise NotFound(f"SQL at {context.script.position(offset)}: no database {database!r}; there are: {there}")
    known = context.lake.tables(database) if database in context.lake.namespaces() else []
    return database, [name.rpartition(".")[2] for name in known]


def _tables(context: Context, cursor: Cursor) -> Result:
    database, known = _in_database(context, cursor)
    shown = cursor.like(known)
    columns = {"namespace": _TEXT, "tableName": _TEXT, "isTemporary": pa.bool_()}
    return listing(columns, [(database, name, False) for name in shown])


def _extended(context: Context, cursor: Cursor) -> Result:
    """SHOW TABLE EXTENDED [IN db] LIKE 'pattern' [PARTITION (a = 1)]: DESCRIBE EXTENDED of each as one text."""
    cursor.expect("EXTENDED")
    database, table_names = _in_database(context, cursor)
    cursor.expect("LIKE")
    offset = cursor.offset
    chosen = matching(cursor.string(), table_names)
    tables = [
        names.table(context, (*database.split("."), name), f"SQL at {context.script.position(offset)}")
        for name in chosen
    ]
    if cursor.peek("PARTITION"):
        if len(tables) != 1:
            there = ", ".join(chosen) or "none"
            raise context.script.invalid(offset, f"PARTITION is of one table; the pattern names: {there}")
        values, measures = _one_partition(context, cursor, tables[0])
        texts = [
            f"Partition Values: [{_named(values)}]\nRows: {measures['row_count']}\nSize In Bytes: "
            f"{measures['size_bytes']}\n"
        ]
    else:
        texts = [_information(database, table) for table in tables]
    cursor.close()
    columns = {"namespace": _TEXT, "tableName": _TEXT, "isTemporary": pa.bool_(), "information": _TEXT}
    return listing(columns, [(database, name, False, said) for name, said in zip(chosen, texts, strict=True)])


def _information(database: str, table: Table) -> str:
    schema = table.schema
    lines = {
        "Namespace": database,
        "Table": table.name.rpartition(".")[2],
        "Provider": table.format,
        "Location": table.uri,
        "Comment": schema.comment,
        "Primary Key": ", ".join(schema.primary_key),
        "Table Properties": _listed(dict(schema.properties)),
        "Partitioning": ", ".join(transform_text(field) for field in schema.partitioning.fields),
    }
    columns = [
        f" |-- {field.name}: {shown_type(field)} (nullable = {str(field.nullable).lower()})" for field in schema.fields
    ]
    return "\n".join([*(f"{key}: {value}" for key, value in lines.items() if value), "Schema: root", *columns, ""])


def _databases(context: Context, cursor: Cursor) -> Result:
    return listing({"namespace": _TEXT}, [(name,) for name in cursor.like(context.databases)])


def _columns(context: Context, cursor: Cursor) -> Result:
    if not cursor.take("IN"):
        cursor.expect("FROM")
    offset = cursor.offset
    path = cursor.path()
    if cursor.take("IN") or cursor.take("FROM"):
        path = (*cursor.path(), path[-1])
    table = names.table(context, path, f"SQL at {context.script.position(offset)}")
    cursor.close()
    return listing({"col_name": _TEXT}, [(name,) for name in table.schema.names])


def _partitions(context: Context, cursor: Cursor) -> Result:
    """One row per partition, as `a=1/b=2`."""
    table = _table(context, cursor)
    kept = _kept(context, cursor, table)
    cursor.close()
    return listing({"partition": _TEXT}, [(_named(values),) for values, _ in kept])


def _kept(context: Context, cursor: Cursor, table: Table) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The partitions of PARTITION (...) if it comes next, else all: (values, measures) of each."""
    if not table.schema.partitioning.fields:
        raise context.script.invalid(cursor.tokens[0].start, f"{table.name} has no partitions")
    chosen = insert.partition(context, cursor, table) if cursor.take("PARTITION") else {}
    return [
        (values, measures)
        for values, measures in partitions.named(table.inspect.partitions(), table.inspect.partition_specs())
        if chosen.keys() <= values.keys() and all(values[name] == value for name, value in chosen.items())
    ]


def _one_partition(context: Context, cursor: Cursor, table: Table) -> tuple[dict[str, Any], dict[str, Any]]:
    """The one partition of PARTITION (...), which comes next. Raises `NotFound` if it has no rows."""
    offset = cursor.offset
    kept = _kept(context, cursor, table)
    if len(kept) != 1:
        there = ", ".join(_named(values) for values, _ in kept) or "no partition"
        raise NotFound(f"SQL at {context.script.position(offset)}: {table.name}: expected one partition, found {there}")
    return kept[0]


def _named(values: Mapping[str, Any]) -> str:
    """A partition as `a=1/b=2`."""
    return "/".join(f"{name}={'null' if value is None else value}" for name, value in values.items())


def _properties(context: Context, cursor: Cursor) -> Result:
    of = _table_or_view(context, cursor)
    pairs = sorted(of.properties.items())
    if cursor.take("("):
        key = cursor.string()
        cursor.expect(")")
        kind = "View" if isinstance(of, View) else "Table"
        pairs = [(key, of.properties.get(key, f"{kind} {of.name} does not have property: {key}"))]
    cursor.close()
    return listing({"key": _TEXT, "value": _TEXT}, pairs)


def _create(context: Context, cursor: Cursor) -> Result:
    """SHOW CREATE TABLE: the statement that creates such a table."""
    cursor.expect("TABLE")
    relation = _table_or_view(context, cursor)
    cursor.close()
    return listing(
        {"createtab_stmt": _TEXT}, [(_view_statement(relation) if isinstance(relation, View) else statement(relation),)]
    )


def _default(default: str | bytes, type: Type) -> str:
    """A default as SQL text. Bytes are a binary value, or the JSON of a struct, array or map."""
    if isinstance(default, bytes) and isinstance(type, Scalar):
        return f"X'{default.hex().upper()}'"
    return _string(default.decode() if isinstance(default, bytes) else default)


def statement(table: Table) -> str:
    """The CREATE TABLE statement of a table's current declaration."""
    schema = table.schema
    lines = []
    for field in schema.fields:
        line = f"  {quoted(field.name)} {spark_type(field.type)}"
        line += "" if field.nullable else " NOT NULL"
        line += f" DEFAULT {_default(field.default, field.type)}" if field.default is not None else ""
        lines.append(line + (f" COMMENT {_string(field.comment)}" if field.comment else ""))
    parts = [f"CREATE TABLE {'.'.join(quoted(part) for part in table.name.split('.'))} (\n" + ",\n".join(lines) + ")"]
    parts.append(f"USING {table.format}")
    if schema.partitioning:
        parts.append(
            f"PARTITIONED BY ({', '.join(transform_text(field, quote=True) for field in schema.partitioning.fields)})"
        )
    if schema.comment:
        parts.append(f"COMMENT {_string(schema.comment)}")
    properties = dict(schema.properties)
    if schema.primary_key:
        properties = {"primary-key": ",".join(schema.primary_key), **properties}
    if properties:
        parts.append(
            "TBLPROPERTIES (\n  "
            + ",\n  ".join(f"{_string(k)} = {_string(v)}" for k, v in sorted(properties.items()))
            + ")"
        )
    return "\n".join(parts)


def _view_statement(view: View) -> str:
    """The CREATE VIEW statement of a view's current version."""
    columns = [
        quoted(field.name) + (f" COMMENT {_string(field.comment)}" if field.comment else "") for field in view.fields
    ]
    parts = [f"CREATE VIEW {'.'.join(map(quoted, view.name.split('.')))} (\n  " + ",\n  ".join(columns) + ")"]
    if view.comment:
        parts.append(f"COMMENT {_string(view.comment)}")
    properties = {key: value for key, value in view.properties.items() if key not in ("comment", QUERY_COLUMNS)}
    if properties:
        shown = ",\n  ".join(f"{_string(key)} = {_string(value)}" for key, value in sorted(properties.items()))
        parts.append(f"TBLPROPERTIES (\n  {shown})")
    return "\n".join([*parts, f"AS\n{view.query}"])


def _views(context: Context, cursor: Cursor) -> Result:
    """The views of a database, or of all databases after a catalog's name, and those of the session."""
    databases = [context.session.database]
    if cursor.take("IN") or cursor.take("FROM"):
        path = cursor.path()
        path = path[1:] if path[0] in context.session.catalogs else path
        databases = [".".join(path)] if path else context.databases
    kept = [
        (database, name.rpartition(".")[2]) for database in databases for name in context.lake.views.names(database)
    ]
    rows = [(*view, False) for view in kept] + [("", view.name, True) for view in context.session.temporary.values()]
    chosen = set(cursor.like([row[1] for row in rows]))
    columns = {"namespace": _TEXT, "viewName": _TEXT, "isTemporary": pa.bool_()}
    return listing(columns, [row for row in rows if row[1] in chosen])


def _inspected(name: str) -> Any:
    def shown(context: Context, cursor: Cursor) -> Result:
        table = _table(context, cursor)
        cursor.close()
        return Result(getattr(table.inspect, name)())

    return shown


def _current(context: Context, cursor: Cursor) -> Result:
    if not cursor.take("DATABASE"):
        cursor.expect("NAMESPACE")
    cursor.close()
    return listing({"catalog": _TEXT, "namespace": _TEXT}, [(context.lake.uri, context.session.database)])


def _string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _listed(properties: dict[str, str]) -> str:
    return "[" + ",".join(f"{key}={value}" for key, value in sorted(properties.items())) + "]"


_SHOWN = {
    "TABLES": _tables,
    "TABLE": _extended,
    "VIEWS": _views,
    "DATABASES": _databases,
    "SCHEMAS": _databases,
    "NAMESPACES": _databases,
    "COLUMNS": _columns,
    "PARTITIONS": _partitions,
    "TBLPROPERTIES": _properties,
    "CREATE": _create,
    "CURRENT": _current,
    "TAGS": _inspected("tags"),
    "BRANCHES": _inspected("branches"),
}
