"""Sources of a query: rows of tables, metadata and frames, in process or on Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arguments import is_spark
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.engines import worker
from lakeformat.engines.arrow import in_memory
from lakeformat.engines.choose import spark_engine
from lakeformat.errors import InvalidInput, NotFound
from lakeformat.expression import evaluation
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import ALWAYS, Expression, columns_of
from lakeformat.model.schema import Type
from lakeformat.reading.changes import KIND_COLUMN, Changes
from lakeformat.reading.scan import Scan
from lakeformat.sql.names import CHANGES, OWN, READ_OPTIMIZED, ROW_TRACKING, Named, tracked_columns
from lakeformat.sql.statements import changelog
from lakeformat.sql.translation.spark_types import SparkType, of_model
from lakeformat.storage.cache import Cache, cache_of
from lakeformat.table import Table

LEAST_BYTES = 4 << 20  # Of files: below this, a scan is faster than making a database that may read them.
_LOCAL = re.compile(r"file://[^*?\[\]{}]+", re.DOTALL)  # Without glob characters.


class Source(Protocol):
    """Rows with names and types. `columns` and `where` narrow them; a source that cannot narrow returns all."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def types(self) -> Mapping[str, Type]: ...  # of the columns whose types are known without reading
    def typed_columns(self) -> tuple[tuple[str, SparkType], ...]: ...  # in order, with their types in Spark
    def narrowed(self, columns: Sequence[str] | None, where: Expression | None) -> Source: ...
    def stream(self) -> Any: ...  # with `__arrow_c_stream__`, new on each call
    def frame(self, spark: Any) -> Any: ...


class Scanned(Protocol):
    """Rows that can be read several times."""

    @property
    def schema(self) -> pa.Schema: ...
    def to_batches(self) -> Iterable[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A Parquet file: its names of the requested columns, in order, and the columns known to hold no NaN."""

    path: str
    names: tuple[str, ...]
    without_nan: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table at one version."""

    scan: Scan
    whole: Scan  # The scan before narrowing.

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.scan.fields)

    @property
    def types(self) -> Mapping[str, Type]:
        return {field.name: field.type for field in self.scan.fields}

    def typed_columns(self) -> tuple[tuple[str, SparkType], ...]:
        return tuple((field.name, of_model(field.type)) for field in self.scan.fields)

    def narrowed(self, columns: Sequence[str] | None, where: Expression | None) -> TableRows:
        """Narrow the scan at the same snapshot, even after further commits. Raises `InvalidInput` for a condition that
        scans cannot evaluate over the columns' types."""
        scan = self.scan if columns is None else self.scan.select(list(columns))
        known = {field.name.casefold() for field in scan.view.schema.fields}
        if where is None or any(name.casefold() not in known for name in columns_of(where)):  # Row ids prune no files.
            return TableRows(scan, self.whole)
        scan = scan.filter(where)
        evaluation.mask(scan.predicate, pa.Table.from_batches([], self.whole.schema))
        return TableRows(scan, self.whole)

    def stream(self) -> Any:
        return Stream(self.scan)

    def files(self) -> tuple[LocalFile, ...] | None:
        """The local Parquet files, with checked pages, if reading them gives the table's rows. None if the rows need a
        scan, or a scan is faster. The conditions of the scan are not applied to the rows."""
        scan = self.scan
        if self.whole.predicate != ALWAYS or self.whole.limit is not None:
            return None
        tasks = scan.plan()
        located = [scan.store.location(path) for task in tasks for path in task.paths]
        if sum(task.size_bytes for task in tasks) < LEAST_BYTES or not all(map(_LOCAL.fullmatch, located)):
            return None
        paths = [path.removeprefix("file://") for path in located]
        cache = cache_of(scan.view.reader) or Cache()
        local: list[LocalFile] = []
        for task in tasks:
            files = [_identity(path) for path in paths[len(local) : len(local) + len(task.paths)]]
            of_task = worker.plain_columns(
                scan.store, task, scan.fields, [cache.undamaged(identity) for identity in files]
            )
            if of_task is None:
                return None
            for file, (names, without_nan) in zip(files, of_task, strict=True):
                cache.put_undamaged(file, names)
                local.append(LocalFile(str(file[0]), names, without_nan))
        return tuple(local)

    def frame(self, spark: Any) -> Any:
        return self.scan.to_spark(spark)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows added between two snapshots; in a table with a primary key, the last row of each key."""

    changes: Changes
    key: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.changes.fields)

    @property
    def types(self) -> Mapping[str, Type]:
        return {field.name: field.type for field in self.changes.fields}

    def typed_columns(self) -> tuple[tuple[str, SparkType], ...]:
        return tuple((field.name, of_model(field.type)) for field in self.changes.fields)

    def narrowed(self, columns: Sequence[str] | None, where: Expression | None) -> Source:
        return self

    def stream(self) -> Any:
        return self._rows()

    def frame(self, spark: Any) -> Any:
        return spark_engine.of_arrow(spark, self._rows())

    def _rows(self) -> pa.Table:
        rows = self.changes.to_arrow()
        if self.key:
            numbered = rows.append_column("_place", pa.array(range(len(rows)), pa.int64()))
            last = numbered.group_by(list(self.key)).aggregate([("_place", "max")])["_place_max"]
            rows = rows.take(last.combine_chunks().sort())
        came = pc.is_in(rows[KIND_COLUMN], value_set=pa.array(["+I", "+U"]))
        return rows.filter(came).drop_columns([KIND_COLUMN])


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Rows in memory: metadata, or the caller's frame."""

    rows: pa.Table

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.rows.column_names)

    @property
    def types(self) -> Mapping[str, Type]:
        return {field.name: field.type for field in fields_from_arrow(self.rows.schema)}

    def typed_columns(self) -> tuple[tuple[str, SparkType], ...]:
        return tuple((field.name, of_model(field.type)) for field in fields_from_arrow(self.rows.schema))

    def narrowed(self, columns: Sequence[str] | None, where: Expression | None) -> ArrowRows:
        return self if columns is None else ArrowRows(self.rows.select(list(columns)))

    def stream(self) -> Any:
        return self.rows

    def frame(self, spark: Any) -> Any:
        # Without a schema, Spark makes timestamps without a zone those of the session's zone.
        schema = spark_engine.spark_schema(fields_from_arrow(self.rows.schema)) if _has_local_times(self.rows) else None
        return spark_engine.of_arrow(spark, self.rows, schema)


@dataclass(frozen=True, slots=True)
class SparkRows:
    """The caller's Spark DataFrame."""

    given: Any

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.given.columns)

    @property
    def types(self) -> Mapping[str, Type]:
        return {field.name: field.type for field in spark_engine.fields_from_spark(self.given.schema)}

    def typed_columns(self) -> tuple[tuple[str, SparkType], ...]:
        return tuple((field.name, of_model(field.type)) for field in spark_engine.fields_from_spark(self.given.schema))

    def narrowed(self, columns: Sequence[str] | None, where: Expression | None) -> SparkRows:
        return self

    def stream(self) -> Any:
        return self.given.toArrow()

    def frame(self, spark: Any) -> Any:
        return self.given


def of_table(named: Named) -> Source:
    """The rows or metadata of a resolved name."""
    version = dict(named.version) or ({"tag": named.tag} if named.tag else {})
    if named.metadata is not None:
        if named.metadata == CHANGES:
            return _in_memory(changelog.read(named.table, until=version.get("snapshot_id"), carry_over=True))
        if named.metadata == ROW_TRACKING:
            return _scanned(named.table.scan(tracked_columns(named.table), **version))
        if named.metadata == READ_OPTIMIZED:
            scan = named.table.scan(**version)
            return _scanned(replace(scan, view=replace(scan.view, state=scan.view.metadata_tables.compacted)))
        inspect = named.table.inspect.at(**version) if version else named.table.inspect
        if named.metadata in inspect.connector_names:
            return _in_memory(inspect.connector(named.metadata))
        return _in_memory(getattr(inspect, named.metadata.removeprefix(OWN))())
    return _scanned(named.table.scan(**version))


def watermarked(table: Table, watermark: int, where: str) -> int:
    """The first snapshot with at least this watermark (epoch milliseconds; Paimon)."""
    snapshots = table.inspect.snapshots()
    rows = snapshots.to_pylist() if "watermark" in snapshots.column_names else []
    passed = [row["snapshot_id"] for row in rows if row["watermark"] is not None and row["watermark"] >= watermark]
    if not passed:
        raise NotFound(f"{where}: {table.name} has no snapshot with a watermark of {watermark} or later")
    return int(min(passed))


def of_frame(name: str, frame: Any) -> Source:
    """The rows of a frame that the caller passed by name."""
    if is_spark(frame):
        return SparkRows(frame)
    if isinstance(frame, pa.Table):
        return _in_memory(frame)
    if isinstance(frame, Table):
        return _scanned(frame.scan())
    if isinstance(frame, Scan):
        return _scanned(frame)
    if isinstance(frame, pa.RecordBatch):
        return _in_memory(pa.table(frame))
    if type(frame).__module__.partition(".")[0] == "pandas":  # From version 3 on there is no more than that.
        return ArrowRows(in_memory(frame))
    if isinstance(frame, dict) or hasattr(frame, "__arrow_c_stream__"):
        return _in_memory(pa.table(frame))
    raise InvalidInput(f"{name}={frame!r}: give a frame: Arrow, pandas, polars or Spark")


def _in_memory(table: pa.Table) -> ArrowRows:
    """The rows in the plain layout: of others DuckDB reads some that it takes for something else. UUIDs stay such."""
    rows = in_memory(table)
    for index, field in enumerate(table.schema):
        if field.type == pa.uuid():
            chunks = [pa.ExtensionArray.from_storage(pa.uuid(), chunk) for chunk in rows.column(index).chunks]
            rows = rows.set_column(index, field, pa.chunked_array(chunks, pa.uuid()))
    return ArrowRows(rows)


def _has_local_times(rows: pa.Table) -> bool:
    return any("timestamp" in str(field.type) and "tz=" not in str(field.type) for field in rows.schema)


def _identity(path: str) -> tuple[Any, ...]:
    """The file's path, inode, size and times: any write changes them."""
    try:
        status = os.stat(path)
    except OSError:  # Opening the file reports the error.
        return (path,)
    return path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _scanned(scan: Scan) -> TableRows:
    return TableRows(scan, scan)


class Stream:
    """A scan that can be read several times, each time from the start. `error`: the exception that stopped it; the
    reading engine reports only its text."""

    def __init__(self, scan: Scanned) -> None:
        self._scan = scan
        self.error: Exception | None = None

    def __arrow_c_schema__(self) -> Any:
        return self._scan.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._scan.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._scan.to_batches()
        except Exception as error:
            self.error = error
            raise
