"""Tables as Spark's Python data source, for batches and streams."""

from __future__ import annotations

import datetime
import inspect
import re
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession, datasource
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from lakeformat.engines.files import formats
from lakeformat.engines.spark import executors, session
from lakeformat.engines.spark.types import fields_from_spark, spark_schema
from lakeformat.errors import AlreadyExists, InvalidInput, LakeError, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import Expression, call, column, is_in, is_null, literal, not_
from lakeformat.storage.catalogued import files_of

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ROW_KINDS = "_row_kind"  # The column with a change's kind.
_FEW, _LEAST_BYTES = 16, 16 << 20  # More tasks than these have so many bytes each.
_PARTITIONS = 256  # The most Spark tasks for a read of an attached table.
_NO_TABLE = (
    "a data source of Spark, of which load('namespace.table') or option('table', ...) names a table, and CREATE TABLE "
    "... USING lakeformat in Spark's own SQL makes no table: say lake.sql('CREATE TABLE ... USING paimon'), or "
    "iceberg; to read one, lake.attach(spark), or table.scan().to_spark(spark)"
)

# Before 4.2 timestamps are in UTC without being asked.
_IN_UTC = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
_StreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)  # 4.1


def register(spark: SparkSession, name: str, tables: Any) -> None:
    """Register `tables` with `spark` as the data source `name`: its options select what to read (`reading`), stream
    (`following`) or write to (`sink`). Spark uses it in separate processes, for each batch again, so it must be
    picklable."""

    session.require_sparks_own(
        spark, "reading and writing tables by name", "read table.scan().to_spark(spark), write by table.append(frame)"
    )
    session.run_here_as_here(spark)

    class Source(_Source):
        _tables = tables
        _pushes = pushes(spark)

        @classmethod
        def name(cls) -> str:
            return name

    spark.dataSource.register(Source)


def push_filters(spark: SparkSession) -> None:
    """Have Spark push filters to Python, if it can (4.1); this also affects the session's other Python data sources."""
    if spark.conf.get(PUSHDOWN, None) is not None:
        spark.conf.set(PUSHDOWN, "true")


def pushes(spark: SparkSession) -> bool:
    """Whether the session pushes filters to Python. If it does not, it refuses readers that accept them."""
    return str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"


def attach(spark: SparkSession, name: str, lake: str, reading: Callable[[], Any]) -> None:
    """Make a table of `lake`, a URI, readable as `name` ("namespace.table") in Spark's own catalog. Spark calls
    `reading()` in separate processes, for each query again, so it must be picklable.

    Each table has a data source of its own: Spark drops the options of tables with Python data sources. Raises
    `UnsupportedFeature` for a name that Spark refuses, `AlreadyExists` if Spark's catalog has another table of that
    name.
    """
    if not re.fullmatch(r"\w+\.\w+", name, re.ASCII):
        raise UnsupportedFeature(
            f"{name}: Spark's own catalog has only names 'namespace.table' of ASCII letters, digits and _; "
            "attach others by name"
        )
    namespace, _, table = name.partition(".")
    source = f"lakeformat__{namespace}_{table}_{zlib.crc32(f'{lake} {name}'.encode()):08x}".lower()
    if spark.catalog.tableExists(name):
        # Views of the session of that name are listed too, whatever the namespace.
        listed = spark.sql(f"SHOW TABLE EXTENDED IN `{namespace}` LIKE '{table}'").collect()
        (row,) = [entry for entry in listed if not entry["isTemporary"]]
        if f"Provider: {source}" not in row["information"].splitlines():
            raise AlreadyExists(
                f"{name}: Spark's catalog has another table of that name; drop it, or attach other tables"
            )
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{namespace}`")
    where = {row["info_name"]: row["info_value"] for row in spark.sql(f"DESCRIBE DATABASE `{namespace}`").collect()}
    if _path(where["Location"]) == _path(f"{lake}/{namespace}.db"):
        raise InvalidInput(
            f"{name}: Spark keeps its own tables in {where['Location']}, where the lake keeps this one, and Spark's "
            "DROP TABLE deletes what is there; set spark.sql.warehouse.dir to another folder"
        )

    class Attached(_Attached):
        _reading = staticmethod(reading)
        _pushes = pushes(spark)

        @classmethod
        def name(cls) -> str:
            return source

    spark.dataSource.register(Attached)
    spark.sql(f"DROP TABLE IF EXISTS `{namespace}`.`{table}`")
    spark.sql(f"CREATE TABLE `{namespace}`.`{table}` USING {source}")


def _path(uri: str) -> str:
    return re.sub(r"^\w+:/+", "/", uri).rstrip("/").lower()


class _Attached(datasource.DataSource):
    """One table, at its newest snapshot each time."""

    _reading: Callable[[], Any]
    _pushes: bool

    def schema(self) -> T.StructType:
        return _nullable(spark_schema(self._reading().fields))

    def reader(self, schema: T.StructType) -> datasource.DataSourceReader:
        return (_PushingReader if self._pushes else _Reader)(
            _checked(self._reading(), schema, "attached", "say lake.attach(spark)"), schema
        )

    def writer(self, schema: T.StructType, overwrite: bool) -> datasource.DataSourceWriter:
        raise UnsupportedFeature(
            "an attached table is read only; write it by lake.sql(..., spark=spark), or a verb of the table"
        )


def _checked(source: Any, schema: T.StructType, verb: str = "named", again: str = "read it") -> Any:
    """A source of rows with these columns. Raises `InvalidInput` for a dropped column or one of another type."""
    types = {field.name: field.dataType for field in _nullable(spark_schema(source.fields))}
    for field in schema:
        if types.get(field.name) != _nullable(field.dataType):
            raise InvalidInput(
                f"column {field.name!r} was {field.dataType.simpleString()} when the table was {verb} and is no more; "
                f"{again} again"
            )
    return source


class _Rows:
    """Reads tasks. In this form readers are sent to executors, without the data they were planned from."""

    def __init__(self, source: Any, schema: T.StructType, is_stream: bool = False) -> None:
        self._store, self._names = files_of(source.store), tuple(schema.names)
        self._fields = tuple(field for field in source.fields if field.name in self._names and field.name != ROW_KINDS)
        self._kind = ROW_KINDS if source.has_kinds and ROW_KINDS in self._names else None
        self._only_inserts = is_stream and self._kind is None
        if not self._fields:  # A task must read a column to count its rows.
            self._fields = source.fields[:1]
        self._arrow = to_arrow_schema(schema, **_IN_UTC)

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in executors.pieces(self._store, partition.value, self._fields, self._kind, self._only_inserts):
            columns = [batch.column(name) for name in self._names]
            yield pa.RecordBatch.from_arrays(columns, names=list(self._names)).cast(self._arrow)


class _Reader(datasource.DataSourceReader):
    """Reads a batch. It is pickled before its partitions are planned, once all filters are known."""

    def __init__(self, source: Any, schema: T.StructType) -> None:
        self._rows, self._source = _Rows(source, schema), source

    def __getstate__(self) -> dict[str, Any]:
        return {"_rows": self._rows}

    def partitions(self) -> Sequence[datasource.InputPartition]:
        return _partitions(self._source.select([field.name for field in self._rows._fields]).pieces())

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


class _PushingReader(_Reader):
    """Skips files by Spark's filters, if the session pushes them to Python (4.1)."""

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        for pushed in filters:
            with suppress(LakeError):  # Spark filters all rows in any case.
                if (condition := _condition(pushed)) is not None:
                    self._source = self._source.filter(condition)
            yield pushed


def _condition(filter: Any) -> Expression | None:
    """A Spark filter as a condition; None if it has no equivalent."""
    match type(filter).__name__:
        case "Not":
            inner = _condition(filter.child)
            return None if inner is None else not_(inner)
        case "IsNull":
            return is_null(column(*filter.attribute))
        case "IsNotNull":
            return not_(is_null(column(*filter.attribute)))
        case "In":
            has_known_values = all(isinstance(value, _VALUES) for value in filter.value)
            return is_in(column(*filter.attribute), filter.value) if has_known_values else None
        case name if name in _CALLS and isinstance(filter.value, _VALUES):
            return call(_CALLS[name], column(*filter.attribute), literal(filter.value))
    return None


_VALUES = (bool, int, float, str, bytes, Decimal, datetime.date)
_CALLS = {
    "EqualTo": "eq",
    "EqualNullSafe": "eq_null_safe",
    "GreaterThan": "gt",
    "GreaterThanOrEqual": "ge",
    "LessThan": "lt",
    "LessThanOrEqual": "le",
    "StringStartsWith": "starts_with",
    "StringEndsWith": "ends_with",
    "StringContains": "contains",
}


def _partitions(pieces: Sequence[Any], in_order: bool = False) -> list[datasource.InputPartition]:
    """Spark's tasks for these; `in_order`: those of one partition and bucket in one task, older ones first."""
    if in_order and any(piece.kind != "+I" for piece in pieces):
        homes = {piece.home for piece in pieces}
        has_home = all(bucket is not None for _, bucket in homes) or all(partition for partition, _ in homes)
        groups: dict[Any, list[Any]] = {}
        for piece in pieces:
            groups.setdefault(piece.home if has_home else None, []).append(piece)
        parts = list(groups.values())
    else:
        parts = [[piece] for piece in pieces]
    size_bytes = sum(piece.size_bytes for piece in pieces)
    count = min(len(parts), max(_FEW, min(size_bytes // _LEAST_BYTES, _PARTITIONS))) or 1
    return [
        datasource.InputPartition([(p.task, p.kind) for part in parts[index::count] for p in part])
        for index in range(count)
    ]


class _StreamReader(datasource.DataSourceStreamReader):
    """Reads a stream in a process that lives as long as the query; `read` runs on executors."""

    def __init__(self, source: Any, schema: T.StructType) -> None:
        self._rows, self._source = _Rows(source, schema, is_stream=True), source
        self._target: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_rows": self._rows}

    def initialOffset(self) -> dict[str, Any]:
        return self._source.initial()

    def latestOffset(self) -> dict[str, Any]:
        return self._source.newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[datasource.InputPartition]:
        pieces = self._source.pieces([field.name for field in self._rows._fields], start, end)
        return _partitions(pieces, in_order=True) if pieces else []

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


if hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit"):  # 4.2
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    class _AdmittingReader(_StreamReader, SupportsTriggerAvailableNow):
        """Reads as much at a time as the options allow, or everything that is available if the trigger asks for
        that."""

        def getDefaultReadLimit(self) -> Any:
            files, rows = self._source.max_files, self._source.max_rows
            return ReadMaxFiles(files) if files else ReadMaxRows(rows) if rows else ReadAllAvailable()

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override]  # A reader with limits takes arguments.
            if isinstance(limit, ReadAllAvailable):
                return self._source.latest(start, self._target, None, None)
            return self._source.latest(start, self._target, self._source.max_files, self._source.max_rows)

        def reportLatestOffset(self) -> dict[str, Any]:
            return self._source.newest()

        def prepareForTriggerAvailableNow(self) -> None:
            self._target = self._source.newest()

    _stream_reader: Callable[..., Any] = _AdmittingReader
    _LIMITED = True
else:
    _stream_reader, _LIMITED = _StreamReader, False


def _nullable(type: Any) -> Any:
    """A type of Spark that takes NULL at any depth: a column may lose its NOT NULL after the table was attached."""
    match type:
        case T.StructType():
            return T.StructType([T.StructField(field.name, _nullable(field.dataType)) for field in type])
        case T.ArrayType():
            return T.ArrayType(_nullable(type.elementType))
        case T.MapType():
            return T.MapType(_nullable(type.keyType), _nullable(type.valueType))
    return type


class _Source(datasource.DataSource):
    """Tables as Spark's Python data source, one of which the options name."""

    _tables: Any
    _pushes: bool

    def schema(self) -> T.StructType:
        if not any(self.options.get(key) for key in ("table", "path")):
            raise UnsupportedFeature(_NO_TABLE)
        return _nullable(spark_schema(self._tables.shown(self.options)))

    def reader(self, schema: T.StructType) -> datasource.DataSourceReader:
        if not any(self.options.get(key) for key in ("table", "path")):
            raise UnsupportedFeature(_NO_TABLE)
        reading = _checked(self._tables.reading(self.options), schema)
        return (_PushingReader if self._pushes else _Reader)(reading, schema)

    def streamReader(self, schema: T.StructType) -> datasource.DataSourceStreamReader:
        following = self._tables.following(self.options)
        if not _LIMITED and (following.max_files or following.max_rows):
            raise UnsupportedFeature("maxFilesPerTrigger and maxRowsPerTrigger need PySpark 4.2; read without them")
        return _stream_reader(_checked(following, schema), schema)

    def writer(self, schema: T.StructType, overwrite: bool) -> datasource.DataSourceWriter:
        return _Writer(self._sink(schema, str(uuid.uuid4()), overwrite))

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> datasource.DataSourceStreamWriter:
        if _StreamArrowWriter is datasource.DataSourceStreamWriter:
            raise UnsupportedFeature("streams into a data source need PySpark 4.1; write the stream by foreachBatch")
        if overwrite:
            raise UnsupportedFeature(
                "a stream into a data source only appends: outputMode('append'); "
                "to write whole results again, foreachBatch"
            )
        return _StreamWriter(self._sink(schema, None, False))

    def _sink(self, schema: T.StructType, user: str | None, overwrite: bool) -> Any:
        """The target of rows. Raises for rows that could not be written."""
        sink = self._tables.sink(self.options, user, overwrite)
        sink.require_writable(fields_from_spark(schema))
        return sink


@dataclass()
class _Part(datasource.WriterCommitMessage):
    """The result of one task's write."""

    result: Any


class _Writer(datasource.DataSourceArrowWriter):
    """Writes a batch as one commit, under a name of its own."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        return _written(self._sink, iterator)

    def commit(self, messages: list[datasource.WriterCommitMessage | None]) -> None:
        self._sink.commit(_results(messages), 0)

    def abort(self, messages: list[datasource.WriterCommitMessage | None]) -> None:
        self._sink.abort(_results(messages), 0)


class _StreamWriter(_StreamArrowWriter):  # type: ignore[misc, valid-type]  # Chosen by the version of PySpark.
    """Writes each batch of a stream as one commit, under its number."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        return _written(self._sink, iterator)

    def commit(self, messages: list[datasource.WriterCommitMessage | None], batchId: int) -> None:
        self._sink.commit(_results(messages), batchId)

    def abort(self, messages: list[datasource.WriterCommitMessage | None], batchId: int) -> None:
        self._sink.abort(_results(messages), batchId)


def _written(sink: Any, batches: Iterator[pa.RecordBatch]) -> _Part:
    with formats.of_task(None, *executors.this_task()):
        return _Part(sink.write(batches))


def _results(messages: Sequence[Any]) -> list[Any]:
    return [None if message is None else message.result for message in messages]
