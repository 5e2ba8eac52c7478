"""USE, SET and RESET: settings for later statements."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakeformat.arguments import epoch_ms
from lakeformat.dialects.paimon.options import check_dynamic, is_documented
from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.sql.result import Result, listing, nothing
from lakeformat.sql.session import MERGE_SCHEMA, OVERWRITE_MODE, WAP_BRANCH, WAP_ID, Context
from lakeformat.sql.text import Cursor, Piece
from lakeformat.table import Table

# The keys and values that SET accepts without a Spark session. `execution.runtime-mode` is Flink's.
_KNOWN = {
    OVERWRITE_MODE: ("static", "dynamic"),
    MERGE_SCHEMA: ("true", "false"),
    "execution.runtime-mode": ("batch",),
}


def use(context: Context, cursor: Cursor) -> Result:
    """USE [DATABASE] name, USE CATALOG name."""
    cursor.expect("USE")
    offset = cursor.offset
    if cursor.take("CATALOG"):
        name = cursor.part()
        cursor.close()
        if name not in context.session.catalogs:
            cursor.refuse(
                f"USE CATALOG {name}: a Lake is one warehouse; open another one, or CREATE CATALOG for this one", offset
            )
        return nothing()
    cursor.take("DATABASE") or cursor.take("NAMESPACE") or cursor.take("SCHEMA")
    path = cursor.path()
    cursor.close()
    if len(path) > 1 and path[0] in context.session.catalogs:
        path = path[1:]
    if path[0] in context.session.catalogs and len(path) == 1:
        return nothing()
    name, databases = ".".join(path), context.databases
    matching = [database for database in databases if database == name] or [
        e for e in databases if e.casefold() == name.casefold()
    ]
    if not matching and name != "default":
        there = ", ".join(databases) or "none"
        raise NotFound(f"SQL at {context.script.position(offset)}: no database {name!r}; there are: {there}")
    context.session.database = matching[0] if matching else name
    return nothing()


def set_(context: Context, cursor: Cursor) -> Result:
    """SET key = value, SET key, SET."""
    cursor.expect("SET")
    if cursor.done:
        return listing({"key": pa.string(), "value": pa.string()}, sorted(context.session.settings.items()))
    offset, whole = cursor.offset, cursor.rest()
    key, equals, value = (part.strip() for part in _original(context, whole).partition("="))
    key, value = _bare(key), _bare(value)
    if not equals:
        return listing({"key": pa.string(), "value": pa.string()}, [(key, context.setting(key))])
    if key in (WAP_BRANCH, WAP_ID):
        context.session.settings[key] = value
        return listing({"key": pa.string(), "value": pa.string()}, [(key, value)])
    if (version := _version_option(key)) is not None:
        _version(version, value, context, offset)
        context.session.settings[key] = value
        return listing({"key": pa.string(), "value": pa.string()}, [(key, value)])
    if key not in _KNOWN and (option := _table_option(key)) is not None:
        try:
            check_dynamic({option: value}, f"SET {key}")
        except (InvalidInput, UnsupportedFeature) as error:
            raise type(error)(f"SQL at {context.script.position(offset)}: {error}") from None
        context.session.settings[key] = value
        return listing({"key": pa.string(), "value": pa.string()}, [(key, value)])
    if key not in _KNOWN:
        if context.spark is not None and key.startswith("spark.") and not key.startswith("spark.paimon."):
            context.spark.conf.set(key, value)
            return listing({"key": pa.string(), "value": pa.string()}, [(key, value)])
        raise context.script.unsupported(
            offset,
            f"SET {key}: the supported keys are {', '.join([*_KNOWN, WAP_BRANCH, WAP_ID])}, and {_PAIMON}<option of "
            "Paimon tables, "
            f"or {' | '.join(_VERSIONS)}>; with spark= also Spark's own",
        )
    if value.lower() not in _KNOWN[key]:
        raise context.script.invalid(offset, f"SET {key}={value}: it may be {' or '.join(_KNOWN[key])}")
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


def version(context: Context, table: str) -> dict[str, Any]:
    """The version at which SET has queries read a Paimon table, as keywords of `Table.scan`; empty for the newest."""
    of_table, of_all = ({o: v for o, v in said.items() if o in _VERSIONS} for said in _set_for(context, table))
    chosen = of_table or of_all
    return _version(*list(chosen.items())[-1], context) if chosen else {}


def with_options(context: Context, table: Table) -> Table:
    """A Paimon table with the options of SET; others as they are."""
    if table.format != "paimon":
        return table
    of_table, of_all = _set_for(context, table.name)
    options = {option: value for option, value in {**of_all, **of_table}.items() if option not in _VERSIONS}
    return table.with_options(options) if options else table


# --- private ----------------------------------------------------------------------------------------------------------


_PAIMON = "spark.paimon."
_VERSIONS = ("scan.snapshot-id", "scan.tag-name", "scan.timestamp-millis", "scan.timestamp")


def _version_option(key: str) -> str | None:
    """The option of Paimon with which a key ends, if it is one of time travel, of all tables or of one."""
    option = next((name for name in _VERSIONS if key.startswith(_PAIMON) and key.endswith(f".{name}")), None)
    scope = None if option is None else key.removeprefix(_PAIMON).removesuffix(option).rstrip(".")
    return option if scope is not None and (not scope or scope.count(".") == 2) else None


def _table_option(key: str) -> str | None:
    """The option of Paimon's tables that a key sets, for all tables or for one; None for other keys."""
    if not key.startswith(_PAIMON):
        return None
    option = key.removeprefix(_PAIMON)
    scoped = option.split(".", 3)
    is_scoped = len(scoped) == 4 and not is_documented(option) and (scoped[0] == "*" or is_documented(scoped[3]))
    return scoped[3] if is_scoped else option


def _set_for(context: Context, table: str) -> tuple[dict[str, str], dict[str, str]]:
    """(the options that SET gave for this table, those for all). A table's come first: their keys are
    `spark.paimon.<catalog>.<database>.<table>.<option>`, each part a name or `*`."""
    database, _, name = table.casefold().partition(".")
    of_table, of_all = dict[str, str](), dict[str, str]()
    for key, value in context.session.settings.items():
        option = None if key in _KNOWN else _version_option(key) or _table_option(key)
        if option is None:
            continue
        scope = key.removeprefix(_PAIMON).removesuffix(option).rstrip(".").casefold().split(".")
        if len(scope) < 3:
            of_all[option] = value
        elif scope[-2] in ("*", database) and scope[-1] in ("*", name):
            of_table[option] = value
    return of_table, of_all


def _version(option: str, value: str, context: Context, offset: int = 0) -> dict[str, Any]:
    if option in ("scan.snapshot-id", "scan.timestamp-millis"):
        if not value.isdecimal():
            raise context.script.invalid(offset, f"SET ...{option}={value}: it is a whole number")
        return {"snapshot_id" if option == "scan.snapshot-id" else "as_of": int(value)}
    return {"tag": value} if option == "scan.tag-name" else {"as_of": epoch_ms(value)}


def _original(context: Context, piece: Piece) -> str:
    start = piece.origin(0)
    return context.script.original[start : start + len(piece.text)]


def _bare(text: str) -> str:
    """A word without its quotes."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"`" else text
