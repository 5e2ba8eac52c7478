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
from sqlglot.errors import ErrorLevel, UnsupportedError

from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.variant import get as variant_get
from lakeformat.codec.variant import variant
from lakeformat.engines import once
from lakeformat.errors import InvalidInput
from lakeformat.expression.duckdb_sql import quoted, selected, text
from lakeformat.expression.evaluation import cast
from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import TransformKind
from lakeformat.model.type_text import parse_type
from lakeformat.sql import functions, parameters, transforms
from lakeformat.sql.prepared import Query
from lakeformat.sql.session import Context
from lakeformat.sql.sources import LocalFile, Stream, TableRows
from lakeformat.sql.titles import titled

_MOST_OPENED = 4  # Databases that may read files.
_BATCH_ROWS = 122_880  # One row group of DuckDB's.
_HUGE = ("HUGEINT", "UHUGEINT")
_AS_IT_IS = "hive_partitioning = false, union_by_name = false"
_LOADING_NOTHING = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
}


def rows(context: Context, query: Query) -> pa.Table:
    """The query's rows. Raises `InvalidInput` with DuckDB's message for what DuckDB rejects, and `UnsupportedFeature` for
    functions that are not known to match Spark's."""
    return stream(context, query).read_all()


def stream(context: Context, query: Query) -> pa.RecordBatchReader:
    """As `rows`, batch by batch: DuckDB computes the next batch when it is requested."""
    tree = _replaced(query)
    translated = functions.translated(tree, query.piece)
    try:
        sql = translated.sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:  # The generated SQL would mean something else.
        raise query.piece.script.unsupported(query.piece.origin(0), f"in process: {error}; pass spark=") from error
    values = {name: parameters.value(context.params, name) for name in parameters.used(tree)}
    variants = list(functions.variant_gets(translated))
    for function in variants:
        _add_function(os.getpid(), *function)
    has_transforms = any(True for _ in transforms.calls(query.tree))
    if has_transforms:
        _add_transforms(os.getpid())
    files = {} if variants or has_transforms or _stops_early(tree) else _files(query)
    ask = partial(_ask, query, sql, values or None, context.script.position(query.piece.origin(0)))
    if files:
        with suppress(InvalidInput):  # On an error, scans read the rows or report it.
            return ask(files)
    return ask({})


# --- private ----------------------------------------------------------------------------------------------------------


def _ask(
    query: Query, sql: str, values: Any, position: str, files: Mapping[int, tuple[LocalFile, ...]]
) -> pa.RecordBatchReader:
    """The rows of DuckDB's answer. DuckDB itself reads the files of the references in `files`."""
    has_null_safe = query.tree.find(exp.NullSafeEQ, exp.NullSafeNEQ) is not None
    streams = {n: reference.source.stream() for n, reference in enumerate(query.references) if n not in files}
    database = _reading(file.path for local in files.values() for file in local) if files else _database(os.getpid())
    connection = database.cursor()  # Cursors do not share registered rows or temporary views.
    try:
        with _named(list(streams.values()), position):
            if files:
                _open(connection, query, files)
            for number, source in streams.items():
                connection.register(f"{_name(number)}_rows", source)
                _view(connection, _name(number), has_null_safe)
            result = _executed(connection, sql, values)
            kinds = [str(kind) for _, kind, *_ in result.description or ()]
            if "INTERVAL" in kinds:  # Spark has two kinds of intervals, DuckDB one of its own.
                raise query.piece.script.unsupported(
                    query.piece.origin(0),
                    "a result with an interval in process; pass spark=, or select a number of days",
                )
            reader = result.to_arrow_reader(_BATCH_ROWS)
            first = list(islice(reader, 1))
    except BaseException:
        connection.close()
        raise
    schema = pa.schema([pa.field(f.name, _type(f.type, kind)) for f, kind in zip(reader.schema, kinds, strict=True)])

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            with _named(list(streams.values()), position):
                for batch in chain(first, reader):
                    yield _spelt(batch, schema, kinds)
        finally:
            connection.close()

    return pa.RecordBatchReader.from_batches(schema, once.never_without(schema, batches()))


def _executed(connection: Any, sql: str, values: Any) -> Any:
    """The result, computed while it is read: in DuckDB 2 a relation's, of which DuckDB 1 gathers those with parameters."""
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
        _view(connection, _name(number), without_nan=without_nan)


def _view(connection: Any, name: str, has_null_safe: bool = False, without_nan: Collection[str] = ()) -> None:
    """Create the view that the query reads by this name. DuckDB itself tests the conditions that Arrow or row-group bounds would
    test differently."""
    relation = connection.table(f"{name}_rows")
    columns = selected(relation.columns, relation.types, has_null_safe, without_nan)
    connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {columns} FROM {name}_rows")


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
            _opened.clear()
            _database.cache_clear()  # DuckDB refuses further statements in that database.
        stopped = next(
            (source.error for source in streams if isinstance(source, Stream) and source.error is not None), None
        )
        if stopped is not None:
            raise stopped from error
        said = str(error).split("\n\n")[0].split("\nLINE")[0]
        raise InvalidInput(f"SQL at {position}: {said} (in process; with spark= Spark answers)") from error


@cache
def _database(process: int) -> Any:
    """An empty in-memory database without external access; one per process, since a database does not survive a fork."""
    database = _duckdb().connect(":memory:", config={"enable_external_access": "false", **_LOADING_NOTHING})
    _shut(database)
    return database


def _reading(paths: Iterable[str]) -> Any:
    """An in-memory database that may read these files, and maybe files of recent queries, and nothing else. It is reused, since
    making one takes as long as reading a million rows."""
    process, wanted = os.getpid(), frozenset(paths)
    current = next((opened for opened in _opened if opened.process == process and wanted <= opened.paths), None)
    if current is None:
        made = _duckdb().connect(":memory:", config={"enable_external_file_cache": "false", **_LOADING_NOTHING})
        made.execute(f"SET allowed_paths=[{', '.join(map(text, wanted))}]")
        made.execute("SET enable_external_access=false")
        _shut(made)
        current = _Opened(process, wanted, made)
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
def _add_transforms(process: int) -> None:
    """Register Iceberg's partition transforms, which take any type."""
    database, how = _database(process), {"type": "arrow", "null_handling": "special"}
    of = {TransformKind.DAY: "DATE", TransformKind.TRUNCATE: "VARCHAR"}
    for kind in dict.fromkeys(transforms.KINDS.values()):
        database.create_function(transforms.name_of(kind), _of(kind), None, of.get(kind, "INTEGER"), **how)


def _of(kind: TransformKind) -> Callable[..., pa.Array]:
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


def _replaced(query: Query) -> Any:
    """The query's tree with the registered rows in place of its tables."""
    for index, reference in enumerate(query.references):
        reference.node.meta["lakeformat"] = index
    tree = query.tree.copy()
    _title(tree)
    for node in list(tree.find_all(exp.Table)):
        index = node.meta.get("lakeformat")
        if index is None:
            continue
        path = query.references[index].path
        node.set("this", exp.to_identifier(_name(index), quoted=True))
        for key in ("db", "catalog", "version"):
            node.set(key, None)
        if not node.args.get("alias"):
            node.set("alias", exp.TableAlias(this=exp.to_identifier(path[-1], quoted=True)))
    _shorten_columns(tree, query)
    return tree


def _title(tree: Any) -> None:
    """Name unnamed columns as Spark does: `count(1)`."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        return
    for expression in list(tree.expressions):
        if (name := titled(expression)) is not None:
            expression.replace(exp.Alias(this=expression.copy(), alias=exp.to_identifier(name, quoted=True)))


def _shorten_columns(tree: Any, query: Query) -> None:
    """`shop.orders.id` -> `orders.id`, the table's alias in this tree."""
    known = {tuple(p.casefold() for p in reference.path) for reference in query.references if len(reference.path) > 1}
    for column in list(tree.find_all(exp.Column)):
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        for count in range(len(parts) - 1, 1, -1):
            if tuple(p.name.casefold() for p in parts[:count]) in known:
                kept = [part.copy() for part in parts[count - 1 :]]
                column.replace(
                    exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(kept), strict=False)))
                )
                break


def _type(type: pa.DataType, kind: str) -> pa.DataType:
    """DuckDB's HUGEINT, its sums of integers, becomes BIGINT as in Spark; columns of untyped NULL become null."""
    return pa.int64() if kind in _HUGE else pa.null() if kind.strip('"') == "NULL" else type


def _spelt(batch: pa.RecordBatch, schema: pa.Schema, kinds: list[str]) -> pa.RecordBatch:
    columns = []
    for field, column, kind in zip(schema, batch.columns, kinds, strict=True):
        if kind in _HUGE:
            try:
                column = column.cast(pa.int64())
            except pa.ArrowInvalid as error:
                raise InvalidInput(f"column {field.name}: a sum beyond BIGINT") from error
        elif pa.types.is_null(field.type):
            column = pa.nulls(len(column))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
