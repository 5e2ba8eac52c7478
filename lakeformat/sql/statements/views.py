"""CREATE, ALTER, DROP and DESCRIBE of views: a catalog's, and the session's temporary views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa

from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.engines.choose import spark_engine
from lakeformat.errors import AlreadyExists, NotFound
from lakeformat.sql import declare, names, query
from lakeformat.sql.result import Result, nothing
from lakeformat.sql.session import Context, Session, Temporary
from lakeformat.sql.text import Cursor, Piece
from lakeformat.warehouse.views import NOT_KEPT, QUERY_COLUMNS, View


def create(context: Context, cursor: Cursor, is_replace: bool) -> Result:
    """`[TEMP] VIEW [IF NOT EXISTS] name [(a COMMENT 'text', b)] [COMMENT] [TBLPROPERTIES] AS query`,
    after CREATE [OR REPLACE]."""
    if cursor.take("GLOBAL"):
        cursor.refuse("GLOBAL TEMPORARY VIEW; a view for every session is kept by a catalog: CREATE VIEW")
    is_temporary = cursor.take("TEMP") or cursor.take("TEMPORARY")
    cursor.expect("VIEW")
    if_exists = "replace" if is_replace else "ignore" if cursor.take("IF NOT EXISTS") else "error"
    offset = cursor.offset
    path = cursor.path()
    columns: list[tuple[str, str | None]] = []
    if cursor.peek("("):
        cursor.listed(lambda: columns.append((cursor.part(), cursor.string() if cursor.take("COMMENT") else None)))
    comment: str | None = None
    properties: dict[str, str] = {}
    while not cursor.take("AS"):
        if cursor.take("COMMENT"):
            comment = cursor.string()
        elif cursor.take("TBLPROPERTIES"):
            properties |= declare.properties(cursor)
        else:
            cursor.fail("expected COMMENT, TBLPROPERTIES or AS")
    rows = cursor.rest()
    if not is_temporary and not context.lake.views.are_kept:
        _refuse(cursor, "CREATE VIEW", offset)
    if is_temporary:
        return _temporary(context, path, offset, rows, tuple(name for name, _ in columns), if_exists)
    name = names.full(context, path)
    if if_exists != "replace" and context.lake.views.is_there(name):
        if if_exists == "ignore":
            return nothing()
        raise AlreadyExists(
            f"SQL at {context.script.position(offset)}: there is a view {name} already; use CREATE OR REPLACE VIEW"
        )
    if context.lake.exists(name):
        raise AlreadyExists(f"SQL at {context.script.position(offset)}: there is a table {name} already")
    location = properties.pop("location", None)
    view = _described(context, name, offset, rows, columns)
    view = replace(view, properties={**view.properties, **properties}, comment=comment, location=location)
    context.lake.views.create(view, if_exists)
    return nothing()


def drop(context: Context, cursor: Cursor) -> Result:
    """`VIEW [IF EXISTS] name`, after DROP."""
    cursor.expect("VIEW")
    if_exists = cursor.take("IF EXISTS")
    offset = cursor.offset
    path = cursor.path()
    cursor.close()
    if len(path) == 1 and context.session.temporary.pop(path[0].casefold(), None) is not None:
        return nothing()
    view = names.view(context, path)
    if view is None:
        if not context.lake.views.are_kept:
            _refuse(cursor, "DROP VIEW", offset)
        name = names.full(context, path)
        if context.lake.exists(name):
            raise context.script.invalid(offset, f"{name} is a table; say DROP TABLE")
        if if_exists:
            return nothing()
        raise _missing(context, path, offset)
    context.lake.views.drop(view.name)
    return nothing()


def alter(context: Context, cursor: Cursor) -> Result:
    """`VIEW name SET | UNSET TBLPROPERTIES`, `RENAME TO name`, `AS query`, after ALTER."""
    cursor.expect("VIEW")
    offset = cursor.offset
    path = cursor.path()
    view = names.view(context, path)
    if view is None:
        raise _missing(context, path, offset)
    if cursor.take("SET TBLPROPERTIES"):
        context.lake.views.alter(view.name, declare.properties(cursor))
    elif cursor.take("UNSET TBLPROPERTIES"):
        if_exists = cursor.take("IF EXISTS")
        keys = frozenset(cursor.listed(cursor.string))
        if not if_exists and (missing := sorted(keys - set(view.properties))):
            raise context.script.invalid(offset, f"view {view.name} has no property {', '.join(missing)}")
        context.lake.views.alter(view.name, {}, keys)
    elif cursor.take("RENAME TO"):
        context.lake.views.rename(view.name, names.full(context, cursor.path()))
    elif cursor.take("AS"):
        described = _described(context, view.name, offset, cursor.rest(), [])
        context.lake.views.create(described, "replace")
    else:
        cursor.refuse(f"ALTER VIEW ... {cursor.word()}; supported: SET and UNSET TBLPROPERTIES, RENAME TO and AS")
    cursor.close()
    return nothing()


def described(view: View) -> list[tuple[str, str]]:
    """The rows of a view's DESCRIBE EXTENDED after its columns."""
    return [
        ("# Detailed View Information", ""),
        ("Name", view.name),
        ("Location", view.location or ""),
        ("Comment", view.comment or ""),
        ("View Text", view.query),
        ("View Catalog and Namespace", view.namespace),
        ("View Query Output Columns", f"[{', '.join(view.query_columns)}]"),
        ("View Properties", f"[{', '.join(f'{k}={v}' for k, v in sorted(view.properties.items()))}]"),
    ]


def _temporary(
    context: Context, path: tuple[str, ...], offset: int, rows: Piece, columns: tuple[str, ...], if_exists: str
) -> Result:
    if len(path) > 1:
        raise context.script.invalid(
            offset, f"{'.'.join(path)}: a temporary view is in no database; write its last name only"
        )
    (name,) = path
    if name.casefold() in context.session.temporary and if_exists != "replace":
        if if_exists == "ignore":
            return nothing()
        raise AlreadyExists(f"SQL at {context.script.position(offset)}: there is a temporary view {name} already")
    session = replace(context.session, temporary=dict(context.session.temporary))  # Names resolve as of now.
    inside = replace(context, session=session, spark=None, id=None, properties=None)
    given = list(query.schema(context, rows).names)
    _require_as_many(context, name, offset, columns, given)
    made = Temporary(name, inside, rows, tuple(zip(given, columns or given, strict=True)))
    context.session.temporary[name.casefold()] = made
    return nothing()


def _described(context: Context, name: str, offset: int, rows: Piece, columns: list[tuple[str, str | None]]) -> View:
    """The view of a query. Raises the query's errors, and `InvalidInput` for names that only this session has."""
    named = {".".join(path).casefold() for path in query.named(rows)}
    passing = {
        *map(str.casefold, context.frames),
        *context.session.temporary,
        *map(str.casefold, context.session.views),
    }
    if here := sorted(named & passing):
        raise context.script.invalid(
            offset, f"view {name} names {', '.join(here)}, which only this session has; CREATE TEMP VIEW may"
        )
    if query.has_parameters(rows):
        raise context.script.invalid(
            offset, f"view {name} has parameters, which a view that is kept cannot have; CREATE TEMP VIEW may"
        )
    session = Session(context.session.database, catalogs=context.session.catalogs)
    schema = query.schema(replace(context, session=session, views=(name,)), rows)
    inferred = fields_from_arrow(schema) if isinstance(schema, pa.Schema) else spark_engine.fields_from_spark(schema)
    _require_as_many(context, name, offset, columns, inferred)
    view_columns = columns or [(field.name, None) for field in inferred]
    fields = tuple(
        replace(field, name=name, comment=comment or field.comment)
        for field, (name, comment) in zip(inferred, view_columns, strict=True)
    )
    if len({field.name.casefold() for field in fields}) < len(fields):
        raise context.script.invalid(
            offset, f"view {name} has two columns of one name; give it names: CREATE VIEW {name} (a, b) AS ..."
        )
    properties = {QUERY_COLUMNS: ",".join(field.name for field in inferred)}
    if any("," in field.name for field in inferred):
        properties = {}
    spelt = rows.script.original[rows.origin(0) : rows.origin(0) + len(rows.text)]
    return View(name, spelt, context.session.database, fields, properties)


def _require_as_many(context: Context, name: str, offset: int, columns: Sequence[Any], fields: Sequence[Any]) -> None:
    if columns and len(columns) != len(fields):
        raise context.script.invalid(
            offset, f"view {name} names {len(columns)} columns, and its query gives {len(fields)}"
        )


def _refuse(cursor: Cursor, statement: str, offset: int) -> NoReturn:
    cursor.refuse(
        f"{statement}: {NOT_KEPT}; and so does the session: CREATE TEMP VIEW",
        offset,
    )


def _missing(context: Context, path: tuple[str, ...], offset: int) -> NotFound:
    return NotFound(f"SQL at {context.script.position(offset)}: no view {names.full(context, path)!r}")
