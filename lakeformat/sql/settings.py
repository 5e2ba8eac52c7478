"""USE, SET and RESET: settings for later statements."""

from __future__ import annotations

import pyarrow as pa

from lakeformat.errors import NotFound
from lakeformat.sql.result import Result, listing, nothing
from lakeformat.sql.session import MERGE_SCHEMA, OVERWRITE_MODE, WAP_BRANCH, WAP_ID, Context
from lakeformat.sql.text import Cursor, Piece

# The keys and values that SET accepts without a Spark session. `execution.runtime-mode` is Flink's.
_KNOWN = {
    OVERWRITE_MODE: ("static", "dynamic"),
    MERGE_SCHEMA: ("true", "false"),
    "execution.runtime-mode": ("batch",),
}


def use(context: Context, cursor: Cursor) -> Result:
    """USE [DATABASE] name, USE CATALOG name."""
    cursor.expect("USE")
    at = cursor.offset
    if cursor.take("CATALOG"):
        name = cursor.part()
        cursor.close()
        if name not in context.session.catalogs:
            cursor.refuse(
                f"USE CATALOG {name}: a Lake is one warehouse; open another one, or CREATE CATALOG for this one", at
            )
        return nothing()
    cursor.take("DATABASE") or cursor.take("NAMESPACE") or cursor.take("SCHEMA")
    path = cursor.path()
    cursor.close()
    if len(path) > 1 and path[0] in context.session.catalogs:
        path = path[1:]
    if path[0] in context.session.catalogs and len(path) == 1:
        return nothing()
    name, known = ".".join(path), context.databases
    matching = [database for database in known if database == name] or [
        e for e in known if e.casefold() == name.casefold()
    ]
    if not matching and name != "default":
        there = ", ".join(known) or "none"
        raise NotFound(f"SQL at {context.script.position(at)}: no database {name!r}; there are: {there}")
    context.session.database = matching[0] if matching else name
    return nothing()


def set_(context: Context, cursor: Cursor) -> Result:
    """SET key = value, SET key, SET."""
    cursor.expect("SET")
    if cursor.done:
        return listing({"key": pa.string(), "value": pa.string()}, sorted(context.session.settings.items()))
    at, whole = cursor.offset, cursor.rest()
    key, equals, value = (part.strip() for part in _original(context, whole).partition("="))
    key, value = _bare(key), _bare(value)
    if not equals:
        return listing({"key": pa.string(), "value": pa.string()}, [(key, context.setting(key))])
    if key in (WAP_BRANCH, WAP_ID):
        context.session.settings[key] = value
        return listing({"key": pa.string(), "value": pa.string()}, [(key, value)])
    if key not in _KNOWN:
        if context.spark is not None and key.startswith("spark.") and not key.startswith("spark.paimon."):
            context.spark.conf.set(key, value)
            return listing({"key": pa.string(), "value": pa.string()}, [(key, value)])
        raise context.script.unsupported(
            at,
            f"SET {key}: known are {', '.join([*_KNOWN, WAP_BRANCH, WAP_ID])}; with spark= also Spark's own; an option of one table is set on it, a version is VERSION AS OF",
        )
    if value.lower() not in _KNOWN[key]:
        raise context.script.invalid(at, f"SET {key}={value}: it may be {' or '.join(_KNOWN[key])}")
    context.session.settings[key] = value.lower()
    return listing({"key": pa.string(), "value": pa.string()}, [(key, value.lower())])


def reset(context: Context, cursor: Cursor) -> Result:
    """RESET [key]."""
    cursor.expect("RESET")
    if cursor.done:
        context.session.settings.clear()
    else:
        context.session.settings.pop(_bare(_original(context, cursor.rest()).strip()), None)
    return nothing()


# --- private ----------------------------------------------------------------------------------------------------------


def _original(context: Context, piece: Piece) -> str:
    start = piece.origin(0)
    return context.script.original[start : start + len(piece.text)]


def _bare(text: str) -> str:
    """A word without its quotes."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"`" else text
