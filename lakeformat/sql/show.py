"""DESCRIBE and SHOW: what there is."""

from __future__ import annotations

import fnmatch
from typing import Any

import pyarrow as pa

from lakeformat.codec.spark_sql import quoted, spark_type
from lakeformat.errors import NotFound
from lakeformat.model.schema import Field, ListOf, MapOf, Row, Scalar, Type
from lakeformat.sql import databases, insert, names, views
from lakeformat.sql.create import transform_text
from lakeformat.sql.result import Result, listing
from lakeformat.sql.session import Context
from lakeformat.sql.text import Cursor
from lakeformat.table import Table
from lakeformat.views import QUERY_COLUMNS, View

_TEXT = pa.string()


def describe(context: Context, cursor: Cursor) -> Result:
    if not cursor.take("DESCRIBE"):
        cursor.expect("DESC")
    if databases.are_next(cursor):
        return databases.describe(context, cursor)
    if cursor.peek("FUNCTION") or cursor.peek("QUERY"):
        cursor.refuse(f"DESCRIBE {cursor.word()}; known is DESCRIBE [EXTENDED] of a table or a database")
    cursor.take("TABLE")
    extended = cursor.take("EXTENDED") or cursor.take("FORMATTED")
    found = _table_or_view(context, cursor)
    fields = found.fields if isinstance(found, View) else found.schema.fields
    rows = [(each.name, shown_type(each), each.comment) for each in fields]
    if not cursor.done:
        at = cursor.offset
        name = cursor.part()
        cursor.close()
        rows = [row for row in rows if row[0].casefold() == name.casefold()]
        if not rows:
            there = ", ".join(each.name for each in fields)
            raise NotFound(f"SQL at {context.script.place(at)}: {found.name} has no column {name!r}; it has {there}")
    if isinstance(found, View):
        rows += [(key, value, None) for key, value in views.described(found)] if extended else []
        return listing({"col_name": _TEXT, "data_type": _TEXT, "comment": _TEXT}, rows)
    table, schema = found, found.schema
    if len(rows) == len(fields) and schema.partitioning:
        rows.append(("# Partitioning", "", None))
        rows += [(f"Part {i}", transform_text(each), None) for i, each in enumerate(schema.partitioning.fields)]
    if extended:
        made = table.current_snapshot()
        rows += [
            ("# Detailed Table Information", "", None),
            ("Name", table.name, None),
            ("Provider", table.format, None),
            ("Location", table.uri, None),
            ("Comment", schema.comment or "", None),
            ("Primary Key", ", ".join(schema.primary_key), None),
            ("Current Snapshot", "" if made is None else str(made.id), None),
            ("Table Properties", _listed(dict(schema.properties)), None),
        ]
    return listing({"col_name": _TEXT, "data_type": _TEXT, "comment": _TEXT}, rows)


def show(context: Context, cursor: Cursor) -> Result:
    cursor.expect("SHOW")
    word = cursor.word()
    shown = _SHOWN.get(word)
    if shown is None:
        cursor.refuse(f"SHOW {word}; known are SHOW {', '.join(sorted(_SHOWN))}")
    cursor.at += 1
    assert shown is not None
    return shown(context, cursor)


def shown_type(field: Field) -> str:
    """A column's type as Spark's DESCRIBE shows it: `struct<a:int,b:array<string>>`."""
    return _shown(field.type)


# --- private ----------------------------------------------------------------------------------------------------------


def _shown(type: Type) -> str:
    match type:
        case Row(fields):
            return f"struct<{','.join(f'{each.name}:{_shown(each.type)}' for each in fields)}>"
        case ListOf(element):
            return f"array<{_shown(element.type)}>"
        case MapOf(key, value):
            return f"map<{_shown(key.type)},{_shown(value.type)}>"
    return spark_type(type).lower()


def _table(context: Context, cursor: Cursor) -> Table:
    at = cursor.offset
    return names.table(context, cursor.path(), f"SQL at {context.script.place(at)}")


def _table_or_view(context: Context, cursor: Cursor) -> Table | View:
    at = cursor.offset
    path = cursor.path()
    try:
        return names.table(context, path, f"SQL at {context.script.place(at)}")
    except NotFound:
        view = names.view(context, path)
        if view is None:
            raise
        return view


def _pattern(cursor: Cursor, found: list[str]) -> list[str]:
    """Those that LIKE names: `*` is anything, `|` parts several, as in Spark."""
    cursor.take("LIKE")
    if cursor.done:
        return found
    patterns = cursor.string().replace("%", "*").split("|")
    cursor.close()
    return [each for each in found if any(fnmatch.fnmatchcase(each.casefold(), p.strip().casefold()) for p in patterns)]


def _tables(context: Context, cursor: Cursor) -> Result:
    at = cursor.offset
    database = context.session.database
    if cursor.take("IN") or cursor.take("FROM"):
        database = ".".join(cursor.path())
    if database not in context.databases and database != "default":
        there = ", ".join(context.databases) or "none"
        raise NotFound(f"SQL at {context.script.place(at)}: no database {database!r}; there are: {there}")
    known = context.lake.tables(database) if database in context.lake.namespaces() else []
    found = _pattern(cursor, [each.rpartition(".")[2] for each in known])
    columns = {"namespace": _TEXT, "tableName": _TEXT, "isTemporary": pa.bool_()}
    return listing(columns, [(database, each, False) for each in found])


def _databases(context: Context, cursor: Cursor) -> Result:
    return listing({"namespace": _TEXT}, [(each,) for each in _pattern(cursor, context.databases)])


def _columns(context: Context, cursor: Cursor) -> Result:
    if not cursor.take("IN"):
        cursor.expect("FROM")
    table = _table(context, cursor)
    cursor.close()
    return listing({"col_name": _TEXT}, [(name,) for name in table.schema.names])


def _partitions(context: Context, cursor: Cursor) -> Result:
    """One row a partition, as `a=1/b=2`."""
    table = _table(context, cursor)
    chosen = insert.partition(context, cursor, table) if cursor.take("PARTITION") else {}
    cursor.close()
    fields = table.schema.partitioning.fields
    if not fields:
        raise context.script.invalid(cursor.tokens[0].start, f"{table.name} has no partitions")
    rows = table.inspect.partitions().select([each.name for each in fields]).to_pylist()
    kept = [row for row in rows if all(row[name] == value for name, value in chosen.items())]
    return listing(
        {"partition": _TEXT}, [("/".join(f"{k}={'null' if v is None else v}" for k, v in row.items()),) for row in kept]
    )


def _properties(context: Context, cursor: Cursor) -> Result:
    of = _table_or_view(context, cursor)
    found = sorted(of.properties.items())
    if cursor.take("("):
        key = cursor.string()
        cursor.expect(")")
        kind = "View" if isinstance(of, View) else "Table"
        found = [(key, of.properties.get(key, f"{kind} {of.name} does not have property: {key}"))]
    cursor.close()
    return listing({"key": _TEXT, "value": _TEXT}, found)


def _create(context: Context, cursor: Cursor) -> Result:
    """The statement that makes a table like it."""
    cursor.expect("TABLE")
    found = _table_or_view(context, cursor)
    cursor.close()
    return listing(
        {"createtab_stmt": _TEXT}, [(_view_statement(found) if isinstance(found, View) else statement(found),)]
    )


def _default(given: str | bytes, type: Type) -> str:
    """Bytes are a value, or the JSON of a row, list or map."""
    if isinstance(given, bytes) and isinstance(type, Scalar):
        return f"X'{given.hex().upper()}'"
    return _string(given.decode() if isinstance(given, bytes) else given)


def statement(table: Table) -> str:
    """CREATE TABLE of a table as it is now."""
    schema = table.schema
    lines = []
    for each in schema.fields:
        line = f"  {quoted(each.name)} {spark_type(each.type)}"
        line += "" if each.nullable else " NOT NULL"
        line += f" DEFAULT {_default(each.default, each.type)}" if each.default is not None else ""
        lines.append(line + (f" COMMENT {_string(each.comment)}" if each.comment else ""))
    parts = [f"CREATE TABLE {'.'.join(quoted(part) for part in table.name.split('.'))} (\n" + ",\n".join(lines) + ")"]
    parts.append(f"USING {table.format}")
    if schema.partitioning:
        parts.append(
            f"PARTITIONED BY ({', '.join(transform_text(each, quote=True) for each in schema.partitioning.fields)})"
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
    """CREATE VIEW of a view as it is now."""
    columns = [
        quoted(each.name) + (f" COMMENT {_string(each.comment)}" if each.comment else "") for each in view.fields
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
    """Those of a database, or behind the name of a catalog of all databases; and those of the session."""
    databases = [context.session.database]
    if cursor.take("IN") or cursor.take("FROM"):
        path = cursor.path()
        path = path[1:] if path[0] in context.session.catalogs else path
        databases = [".".join(path)] if path else context.databases
    kept = [
        (database, each.rpartition(".")[2]) for database in databases for each in context.lake.views.names(database)
    ]
    rows = [(*each, False) for each in kept] + [("", each.name, True) for each in context.session.temporary.values()]
    chosen = set(_pattern(cursor, [row[1] for row in rows]))
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
