"""Paimon's tables of a whole catalog, in the database `sys`: `all_table_options` and `tables`, of its Paimon tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from lakeformat.errors import UnsupportedFeature
from lakeformat.sql.session import Context
from lakeformat.table import Table

_DATABASE = "sys"
# Columns that a catalog's server knows; as in Paimon's catalogs without one, they are null unless options have them.
_OPTIONS = ("owner", "createdAt", "createdBy", "updatedAt", "updatedBy")
_COUNTS = ("record_count", "file_size_in_bytes", "file_count", "last_file_creation_time")
_TEXTS = ("database_name", "table_name", "key", "value")
_TABLES = pa.schema(
    [
        *((name, pa.string()) for name in ("database_name", "table_name", "table_type")),
        *((name, pa.bool_()) for name in ("partitioned", "primary_key")),
        ("owner", pa.string()),
        ("created_at", pa.int64()),
        ("created_by", pa.string()),
        ("updated_at", pa.int64()),
        ("updated_by", pa.string()),
        *((name, pa.int64()) for name in _COUNTS),
    ]
)


def find(context: Context, path: tuple[str, ...], where: str) -> pa.Table | None:
    """The table of the catalog of this name; None for other names."""
    names = tuple(part.casefold() for part in path)
    if names[-2:-1] != (_DATABASE,) or len(names) > 2 + (names[0] in context.session.catalogs):
        return None
    if names[-1] in _REFUSED:
        raise UnsupportedFeature(f"{where}: sys.{names[-1]}: {_REFUSED[names[-1]]}")
    read = _READ.get(names[-1])
    return None if read is None else read(context)


# --- private ----------------------------------------------------------------------------------------------------------


def _tables_of(context: Context) -> Iterator[tuple[str, str, Table]]:
    for name in context.lake.tables():
        table = context.lake.table(name)
        if table.format == "paimon":
            database, _, short = name.rpartition(".")
            yield database, short, table


def _options(context: Context) -> pa.Table:
    rows = [
        (database, name, key, value)
        for database, name, table in _tables_of(context)
        for key, value in sorted(table.properties.items())
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * len(_TEXTS)
    return pa.table({title: pa.array(column, pa.string()) for title, column in zip(_TEXTS, columns, strict=True)})


def _tables(context: Context) -> pa.Table:
    rows = []
    for database, name, table in _tables_of(context):
        schema, options = table.schema, table.properties
        listed = dict(zip(_TABLES.names[5:10], (options.get(key) for key in _OPTIONS), strict=True))
        times = {key: _number(listed[key]) for key in ("created_at", "updated_at")}
        shape = {"partitioned": bool(schema.partitioning.columns), "primary_key": bool(schema.primary_key)}
        names = {"database_name": database, "table_name": name, "table_type": options.get("type", "table")}
        rows.append({**names, **shape, **listed, **times})
    return pa.Table.from_pylist(rows, _TABLES)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


_READ: Mapping[str, Callable[[Context], pa.Table]] = {"all_table_options": _options, "tables": _tables}
_REFUSED = {
    "catalog_options": "not supported, since options may hold credentials",
    "partitions": "not supported; read `t$partitions` of each table that sys.tables lists",
}
