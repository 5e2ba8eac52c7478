"""Queries in this process: DuckDB over our scans, shut off from files, the network, extensions and its own settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.variant import get as variant_get
from lakeformat.codec.variant import variant
from lakeformat.engines import once
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.expression import sql_text
from lakeformat.expression.duckdb_sql import quoted, selected, text
from lakeformat.expression.evaluation import cast
from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import TransformKind
from lakeformat.model.type_text import parse_type
from lakeformat.sql import parameters, transforms
from lakeformat.sql import text as text_
from lakeformat.sql.prepared import Query
from lakeformat.sql.session import Context
from lakeformat.sql.sources import LocalFile, Stream, TableRows
from lakeformat.sql.translation import hashes, queries
from lakeformat.sql.translation.scopes import Rows
from lakeformat.sql.translation.spark_types import VOID, SparkType, in_duckdb, is_integral

_MOST_OPENED = 4  # Databases that may read files.
_BATCH_ROWS = 122_880  # One row group of DuckDB's.
_AS_IT_IS = "hive_partitioning = false, union_by_name = false"
_LOADING_NOTHING = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
}


def rows(context: Context, query: Query) -> pa.Table:
    """The query's rows. Raises `InvalidInput` with DuckDB's message for what DuckDB rejects, and `UnsupportedFeature`
    for functions that are not known to match Spark's."""
    return stream(context, query).read_all()


def stream(context: Context, query: Query, limit: int | None = None) -> pa.RecordBatchReader:
    """As `rows`, batch by batch: DuckDB computes the next batch when it is requested. `limit`: at most so many rows."""
    translated = _translated(query)
    for function in translated.variants:
        _add_function(os.getpid(), *function)
    has_transforms = any(True for _ in transforms.calls(query.tree))
    if has_transforms:
        _add_transforms(os.getpid())
    has_hashes = hashes.PREFIX in translated.sql
    if has_hashes:
        _add_hashes(os.getpid())
    files = {} if translated.variants or has_transforms or has_hashes or _stops_early(query.tree) else _files(query)
    ask = partial(_ask, query, translated, limit, context.script.position(query.piece.origin(0)))
    if files:
        with suppress(InvalidInput):  # On an error, scans read the rows or report it.
            return ask(files)
    return ask({})


def columns(query: Query) -> tuple[tuple[str, SparkType], ...]:
    """The names and types of the query's columns."""
    return _translated(query).columns


# --- private ----------------------------------------------------------------------------------------------------------


def _translated(query: Query) -> queries.Translated:
    tree = parameters.listed(parameters.marked(text_.parse(query.piece, dialect=sql_text.plain())), query.params)
    tables = {
        reference.start: Rows(
            reference.path, reference.source.typed_columns(), reference.names, frozenset(reference.hidden)
        )
        for reference in query.references
    }
    return queries.translated(tree, query.piece, tables, query.params)


def _ask(
    query: Query,
    translated: queries.Translated,
    limit: int | None,
    position: str,
    files: Mapping[int, tuple[LocalFile, ...]],
) -> pa.RecordBatchReader:
    """The rows of DuckDB's answer. DuckDB itself reads the files of the references in `files`."""
    has_null_safe = query.tree.find(exp.NullSafeEQ, exp.NullSafeNEQ) is not None
    streams = {n: reference.source.stream() for n, reference in enumerate(query.references) if n not in files}
    database = _reading(file.path for local in files.values() for file in local) if files else _database(os.getpid())
    connection = database.cursor()  # Cursors do not share registered rows or temporary views.
    sql = translated.sql if limit is None else f"SELECT * FROM ({translated.sql}) LIMIT {limit}"
    try:
        with _named(list(streams.values()), position):
            if files:
                _open(connection, query, files)
            for number, source in streams.items():
                connection.register(f"{_name(number)}_rows", source)
                _view(connection, number, query.references[number].source.typed_columns(), has_null_safe)
            reader = _executed(connection, sql, dict(translated.values) or None).to_arrow_reader(_BATCH_ROWS)
            first = list(islice(reader, 1))
    except BaseException:
        connection.close()
        raise
    given = zip(reader.schema, translated.columns, strict=True)
    schema = pa.schema([pa.field(name, pa.null() if type == VOID else own.type) for own, (name, type) in given])

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            with _named(list(streams.values()), position):
                for batch in chain(first, reader):
                    yield _with_nulls(batch, schema)
        finally:
            connection.close()

    return pa.RecordBatchReader.from_batches(schema, once.never_without(schema, batches()))


def _executed(connection: Any, sql: str, values: Any) -> Any:
    """The result, computed while it is read: in DuckDB 2 a relation's,
    of which DuckDB 1 gathers those with parameters."""
    is_first = _duckdb().__version__.startswith("1.")
    return connection.execute(sql, values) if is_first else connection.sql(sql, params=values)


def _files(query: Query) -> dict[int, tuple[LocalFile, ...]]:
    """The files that DuckDB may read itself, by the index of the reference."""
    sources = [
        reference.source.files() if isinstance(reference.source, TableRows) else None for reference in query.references
    ]
    return {number: files for number, files in enumerate(sources) if files}


def _stops_early(tree: Any) -> bool:
    """Whether DuckDB may stop a scan early: then checking whole files would not pay."""
    return tree.find(exp.Limit) is not None and tree.find(exp.Order, exp.Group, exp.AggFunc) is None


def _open(connection: Any, query: Query, files: Mapping[int, tuple[LocalFile, ...]]) -> None:
    """Create a view for each reference that is read from files."""
    for number, local in files.items():
        titles, parts = query.references[number].source.names, []
        for names, group in groupby(local, key=attrgetter("names")):
            columns = ", ".join(f"{quoted(n)} AS {quoted(title)}" for n, title in zip(names, titles, strict=True))
            paths = ", ".join(text(file.path) for file in group)
            parts.append(f"SELECT {columns} FROM read_parquet([{paths}], {_AS_IT_IS})")
        connection.execute(f"CREATE TEMP VIEW {_name(number)}_rows AS {' UNION ALL '.join(parts)}")
        without_nan = {
            title for index, title in enumerate(titles) if all(file.names[index] in file.without_nan for file in local)
        }
        _view(connection, number, query.references[number].source.typed_columns(), without_nan=without_nan)


def _view(
    connection: Any,
    number: int,
    columns: Sequence[tuple[str, SparkType]],
    has_null_safe: bool = False,
    without_nan: Collection[str] = (),
) -> None:
    """Create the view that the query reads by this name. DuckDB itself tests the conditions that Arrow or row-group
    bounds would test differently. Unsigned numbers, and others that Spark has not, become the type that Spark reads."""
    relation = connection.table(f"{_name(number)}_rows")
    names = relation.columns
    casts = {
        name: in_duckdb(type)
        for name, own, (_, type) in zip(names, relation.types, columns, strict=True)
        if str(own).startswith("U") and is_integral(type)
    }
    listed = selected(names, relation.types, has_null_safe, without_nan, casts)
    connection.execute(f"CREATE TEMP VIEW {_name(number)} AS SELECT {listed} FROM {_name(number)}_rows")


@contextmanager
def _named(streams: Sequence[Any], position: str) -> Iterator[None]:
    """Raise DuckDB's errors as `InvalidInput` with the place in the text, and a scan's own error as it was."""
    duckdb = _duckdb()
    try:
        yield
    except (duckdb.Error, OSError) as error:  # OSError: Arrow's, when a stream that it reads failed.
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            _add_function.cache_clear()
            _add_transforms.cache_clear()
            _add_hashes.cache_clear()
            _opened.clear()
            _database.cache_clear()  # DuckDB refuses further statements in that database.
        stopped = next(
            (source.error for source in streams if isinstance(source, Stream) and source.error is not None), None
        )
        if stopped is not None:
            raise stopped from error
        message = str(error).split("\n\n")[0].split("\nLINE")[0]
        # From DuckDB 2.0 on, expressions that may raise an error are.
        if "window expressions cannot be volatile" in message:
            raise UnsupportedFeature(
                f"SQL at {position}: in process, a window by an expression that may raise an error: compute it in a "
                "subquery, and name its column in the window; or pass spark="
            ) from error
        raise InvalidInput(f"SQL at {position}: {message} (in process; with spark= Spark answers)") from error


@cache
def _database(process: int) -> Any:
    """An empty in-memory database without external access; one per process,
    since a database does not survive a fork."""
    database = _duckdb().connect(":memory:", config={"enable_external_access": "false", **_LOADING_NOTHING})
    _shut(database)
    return database


def _reading(paths: Iterable[str]) -> Any:
    """An in-memory database that may read these files, and maybe files of recent queries, and nothing else. It is
    reused, since making one takes as long as reading a million rows."""
    process, allowed = os.getpid(), frozenset(paths)
    current = next((opened for opened in _opened if opened.process == process and allowed <= opened.paths), None)
    if current is None:
        connection = _duckdb().connect(":memory:", config={"enable_external_file_cache": "false", **_LOADING_NOTHING})
        connection.execute(f"SET allowed_paths=[{', '.join(map(text, allowed))}]")
        connection.execute("SET enable_external_access=false")
        _shut(connection)
        current = _Opened(process, allowed, connection)
    others = [opened for opened in _opened if opened is not current]
    kept, rest = others[: _MOST_OPENED - 1], others[_MOST_OPENED - 1 :]
    # A database inherited by fork has lost its threads and cannot be closed: keep a reference to it.
    _opened[:] = [current, *kept, *(opened for opened in rest if opened.process != process)]
    return current.database


@dataclass(frozen=True, slots=True)
class _Opened:
    process: int
    paths: frozenset[str]
    database: Any


_opened: list[_Opened] = []  # Most recently used first.


def _shut(connection: Any) -> None:
    connection.execute("SET GLOBAL TimeZone='UTC'")
    connection.execute("SET lock_configuration=true")


@cache
def _add_function(process: int, name: str, text: str, spelt: str) -> None:
    """Register the function that reads variants, once per result type."""
    target = to_arrow(parse_type(text))

    def get(variants: pa.ChunkedArray, paths: pa.ChunkedArray) -> pa.ChunkedArray:
        (path,) = paths.unique().to_pylist() or ["$"]
        values = variant.plain(pa.concat_arrays(variants.chunks), "the operand")
        return pa.chunked_array([variant_get.get(values, path, target, cast)], target)

    database, how = _database(process), {"type": "arrow", "null_handling": "special"}
    database.create_function(name, get, [_VARIANT, "VARCHAR"], spelt, **how)


@cache
def _add_hashes(process: int) -> None:
    hashes.add(_database(process))


@cache
def _add_transforms(process: int) -> None:
    """Register Iceberg's partition transforms, which take any type."""
    database, settings = _database(process), {"type": "arrow", "null_handling": "special"}
    of = {TransformKind.DAY: "DATE", TransformKind.TRUNCATE: "VARCHAR"}
    for kind in dict.fromkeys(transforms.KINDS.values()):
        database.create_function(
            transforms.name_of(kind), _function_of(kind), None, of.get(kind, "INTEGER"), **settings
        )


def _function_of(kind: TransformKind) -> Callable[..., pa.Array]:
    def get(*columns: pa.ChunkedArray) -> pa.Array:
        return transforms.spelt(kind, *(pa.concat_arrays(column.chunks) for column in columns))

    return get


_VARIANT = 'STRUCT("value" BLOB, metadata BLOB)'


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise InvalidInput(
            "queries in this process need DuckDB: pip install 'lakeformat[duckdb]', or pass spark="
        ) from error
    return duckdb


def _name(index: int) -> str:
    return f"_lakeformat_{index}"


def _with_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in this schema: columns of untyped NULL become null, and each column has its name in Spark."""
    columns = [
        pa.nulls(len(column)) if pa.types.is_null(field.type) else column
        for field, column in zip(schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
