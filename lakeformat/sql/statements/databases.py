"""CREATE, ALTER, DROP and DESCRIBE of databases."""

from __future__ import annotations

import pyarrow as pa

from lakeformat.errors import AlreadyExists, InvalidInput, LakeError, NotFound
from lakeformat.sql import declare
from lakeformat.sql.result import Result, listing, nothing
from lakeformat.sql.session import Context
from lakeformat.sql.text import Cursor

_COMMENT, _LOCATION = "comment", "location"  # Properties with SQL clauses of their own.


def are_next(cursor: Cursor) -> bool:
    """Take DATABASE or a synonym of it."""
    return cursor.take("DATABASE") or cursor.take("NAMESPACE") or cursor.take("SCHEMA")


def create(context: Context, cursor: Cursor) -> Result:
    """`[IF NOT EXISTS] name [COMMENT] [LOCATION] [WITH DBPROPERTIES]`, after CREATE DATABASE."""
    if_not_exists = cursor.take("IF NOT EXISTS")
    offset = cursor.offset
    name = ".".join(cursor.path())
    start, properties = cursor.offset, {}
    while not cursor.done:
        if cursor.take("COMMENT"):
            properties[_COMMENT] = cursor.string()
        elif cursor.take("LOCATION"):
            properties[_LOCATION] = cursor.string()
        elif cursor.take("WITH"):
            properties |= _properties(cursor)
        else:
            cursor.fail("expected COMMENT, LOCATION or WITH DBPROPERTIES")
    if properties and not context.lake.keeps_properties:
        cursor.refuse(f"{', '.join(properties)} of a database: {_NOT_KEPT}", start)
    if name in context.session.databases or name in _namespaces(context):
        if if_not_exists:
            return nothing()
        raise AlreadyExists(f"SQL at {context.script.position(offset)}: there is a database {name!r} already")
    context.lake.create_namespace(name)
    if properties:
        try:
            context.lake.alter_namespace(name, properties)
        except LakeError:  # Only the catalog knows which properties it refuses.
            context.lake.drop_namespace(name)
            raise
    context.session.databases.add(name)
    return nothing()


def alter(context: Context, cursor: Cursor) -> Result:
    """`name SET | UNSET DBPROPERTIES`, `SET LOCATION`, after ALTER DATABASE."""
    offset = cursor.offset
    name = ".".join(cursor.path())
    start, word = cursor.offset, cursor.word()
    properties: dict[str, str] = {}
    going: list[str] = []
    if cursor.take("SET LOCATION"):
        properties[_LOCATION] = cursor.string()
    elif cursor.take("SET"):
        properties = _properties(cursor)
    elif cursor.take("UNSET"):
        _expect_properties(cursor)
        going = cursor.listed(lambda: declare.key(cursor))
    else:
        cursor.refuse(f"ALTER DATABASE ... {word}; supported: SET and UNSET DBPROPERTIES, and SET LOCATION", start)
    cursor.close()
    if not context.lake.keeps_properties:
        cursor.refuse(f"ALTER DATABASE: {_NOT_KEPT}", start)
    _require(context, name, offset)
    context.lake.alter_namespace(name, properties, going)
    return nothing()


def drop(context: Context, cursor: Cursor) -> Result:
    """`[IF EXISTS] name [CASCADE | RESTRICT]`, after DROP DATABASE."""
    if_exists = cursor.take("IF EXISTS")
    offset = cursor.offset
    name = ".".join(cursor.path())
    cascade = cursor.take("CASCADE")
    if not cascade:
        cursor.take("RESTRICT")
    cursor.close()
    if if_exists and name not in context.databases:
        return nothing()
    _require(context, name, offset)
    is_there = name in _namespaces(context)
    tables = context.lake.tables(name) if is_there else []
    views, functions = context.lake.views.names(name), context.lake.functions.names(name)
    if (tables or views or functions) and not cascade:
        raise InvalidInput(
            f"SQL at {context.script.position(offset)}: database {name!r} holds "
            f"{', '.join([*tables, *views, *functions][:5])}; add CASCADE to drop them too"
        )
    for function in functions:
        context.lake.functions.drop(function)
    for view in views:
        context.lake.views.drop(view)
    for table in tables:
        context.lake.drop_table(table)
    if is_there:
        context.lake.drop_namespace(name)
    context.session.databases.discard(name)
    return nothing()


def describe(context: Context, cursor: Cursor) -> Result:
    """`[EXTENDED] name`, after DESCRIBE DATABASE, in Spark's rows."""
    extended = cursor.take("EXTENDED")
    offset = cursor.offset
    name = ".".join(cursor.path())
    cursor.close()
    _require(context, name, offset)
    properties = context.lake.namespace_properties(name) if name in _namespaces(context) else {}
    rows = [("Namespace Name", name)]
    rows += [
        (shown, properties[key]) for key, shown in ((_COMMENT, "Comment"), (_LOCATION, "Location")) if key in properties
    ]
    if extended:
        others = sorted((key, value) for key, value in properties.items() if key not in (_COMMENT, _LOCATION))
        rows.append(("Properties", f"({', '.join(f'({key},{value})' for key, value in others)})" if others else ""))
    return listing({"info_name": pa.string(), "info_value": pa.string()}, rows)


# --- private ----------------------------------------------------------------------------------------------------------

_NOT_KEPT = (
    "this warehouse is a folder and keeps no properties of databases; one with a catalog does, Lake(..., catalog='sql')"
)


def _properties(cursor: Cursor) -> dict[str, str]:
    _expect_properties(cursor)
    return declare.properties(cursor)


def _expect_properties(cursor: Cursor) -> None:
    if not cursor.take("DBPROPERTIES"):
        cursor.expect("PROPERTIES")


def _require(context: Context, name: str, offset: int) -> None:
    if name not in context.databases:
        known = ", ".join(context.databases) or "none"
        raise NotFound(f"SQL at {context.script.position(offset)}: no database {name!r}; there are: {known}")


def _namespaces(context: Context) -> list[str]:
    try:
        return context.lake.namespaces()
    except NotFound:  # A new warehouse has no folder before its first table.
        return []
