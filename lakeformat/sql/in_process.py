"""Queries in this process: DuckDB over our scans, shut off from files, the network, extensions and its own settings."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from lakeformat.errors import InvalidInput
from lakeformat.sql import functions, parameters
from lakeformat.sql.session import Context
from lakeformat.sql.sources import Stream

if TYPE_CHECKING:
    from lakeformat.sql.query import Query

_LOCKED = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
}


def rows(context: Context, query: Query) -> pa.Table:
    """The query's rows. Raises `InvalidInput` with DuckDB's words for what it cannot do, and for functions whose meaning
    there is not known to be Spark's."""
    tree = _replaced(query)
    sql = functions.translated(tree, query.piece).sql(dialect="duckdb")
    values = {name: parameters.value(context.params, name) for name in parameters.used(tree)}
    duckdb = _duckdb()
    streams = [each.source.stream() for each in query.references]
    connection = _database(os.getpid()).cursor()  # What is registered with one is seen by no other.
    try:
        for place, stream in enumerate(streams):
            connection.register(_name(place), stream)
        connection.execute(sql, values or None)
        nothing = [description[1] == "NULL" for description in connection.description or ()]
        return _spelt(connection.to_arrow_table(), connection.description, nothing)
    except duckdb.Error as error:
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            _database.cache_clear()  # DuckDB takes no more statements in a database that had one.
        stopped = next((each.error for each in streams if isinstance(each, Stream) and each.error is not None), None)
        if stopped is not None:
            raise stopped from error
        said = str(error).split("\n\n")[0].split("\nLINE")[0]
        raise InvalidInput(
            f"SQL at {context.script.place(query.piece.origin(0))}: {said} (in process; with spark= Spark answers)"
        ) from error
    finally:
        connection.close()


# --- private ----------------------------------------------------------------------------------------------------------


@cache
def _database(process: int) -> Any:
    """An empty database in memory, shut off; one for each process, since none survives a fork."""
    found = _duckdb().connect(":memory:", config=_LOCKED)
    found.execute("SET GLOBAL TimeZone='UTC'")
    found.execute("SET lock_configuration=true")
    return found


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise InvalidInput(
            "queries in this process need DuckDB: pip install 'lakeformat[duckdb]', or pass spark="
        ) from error
    return duckdb


def _name(place: int) -> str:
    return f"_lakeformat_{place}"


def _replaced(query: Query) -> Any:
    """The query's tree with the registered rows in the place of its tables."""
    for place, each in enumerate(query.references):
        each.node.meta["lakeformat"] = place
    tree = query.tree.copy()
    _title(tree)
    for node in list(tree.find_all(exp.Table)):
        place = node.meta.get("lakeformat")
        if place is None:
            continue
        path = query.references[place].path
        node.set("this", exp.to_identifier(_name(place), quoted=True))
        for key in ("db", "catalog", "version"):
            node.set(key, None)
        if not node.args.get("alias"):
            node.set("alias", exp.TableAlias(this=exp.to_identifier(path[-1], quoted=True)))
    _shorten_columns(tree, query)
    return tree


def _title(tree: Any) -> None:
    """Call columns without a name as Spark does: `count(1)`."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        return
    for each in list(tree.expressions):
        if not isinstance(each, exp.Alias | exp.Column | exp.Star | exp.Dot | exp.Aliases):
            name = each.sql(dialect="spark", normalize_functions="lower")
            name = "col" if isinstance(each, exp.Explode) else name.replace("count(*)", "count(1)")
            name = f"({name})" if isinstance(each, exp.Binary) else name
            each.replace(exp.Alias(this=each.copy(), alias=exp.to_identifier(name, quoted=True)))


def _shorten_columns(tree: Any, query: Query) -> None:
    """`shop.orders.id` -> `orders.id`, as the table is called here."""
    known = {tuple(p.casefold() for p in each.path) for each in query.references if len(each.path) > 1}
    for column in list(tree.find_all(exp.Column)):
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        for count in range(len(parts) - 1, 1, -1):
            if tuple(p.name.casefold() for p in parts[:count]) in known:
                kept = [part.copy() for part in parts[count - 1 :]]
                column.replace(
                    exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(kept), strict=False)))
                )
                break


def _spelt(found: pa.Table, description: Any, nothing: list[bool]) -> pa.Table:
    """Sums of whole numbers as Spark's BIGINT, and columns of nothing as such."""
    columns, fields = [], []
    for field, column, (_, kind, *_), is_null in zip(found.schema, found.columns, description, nothing, strict=True):
        kind = str(kind)
        if kind == "HUGEINT" or kind == "UHUGEINT":
            try:
                column = column.cast(pa.int64())
            except pa.ArrowInvalid as error:
                raise InvalidInput(f"column {field.name}: a sum beyond BIGINT") from error
        elif is_null or kind == '"NULL"':
            column = pa.chunked_array([pa.nulls(len(column))])
        columns.append(column)
        fields.append(pa.field(field.name, column.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))
