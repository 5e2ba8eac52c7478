"""Tables as Spark's Python data source, for batches and streams."""

from __future__ import annotations

import pickle
import re
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession, datasource
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from lakeformat.engines.spark import executors
from lakeformat.engines.spark.types import fields_from_spark, spark_schema
from lakeformat.errors import AlreadyExists, InvalidInput, UnsupportedFeature
from lakeformat.storage.catalogued import files_of

_PARTITIONS = 256  # At most so many tasks of Spark read a table that is attached.
_NO_TABLE = (
    "a data source of Spark to write to, and CREATE TABLE ... USING lakeformat in Spark's own SQL makes no table: say "
    "lake.sql('CREATE TABLE ... USING paimon'), or iceberg; to read one, lake.attach(spark), or table.scan().to_spark(spark)"
)

_StreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)  # 4.1


def register(spark: SparkSession, name: str, sink: Callable[[Mapping[str, str], str | None], Any]) -> None:
    """Make the `Sink` that `sink` gives for options (and a user, where that is not theirs) known to `spark` as its data source
    `name`. Spark asks for it in processes of its own, for each batch anew, so `sink` can be pickled."""

    class Source(_Source):
        _sink = staticmethod(sink)

        @classmethod
        def name(cls) -> str:
            return name

    spark.dataSource.register(Source)


def attach(spark: SparkSession, name: str, lake: str, scan: Callable[[], Any]) -> None:
    """Make a table of `lake`, a URI, readable as `name` ("namespace.table") in Spark's own catalog. Spark asks for `scan()` in
    processes of its own, anew for each query, so it can be pickled.

    Each table has a data source of its own: Spark forgets the options of a table whose source is in Python. Raises
    `UnsupportedFeature` for a name that Spark refuses, `AlreadyExists` where Spark's catalog has another table of that name.
    """
    if not re.fullmatch(r"\w+\.\w+", name, re.ASCII):
        raise UnsupportedFeature(
            f"{name}: Spark's own catalog has only names 'namespace.table' of ASCII letters, digits and _; attach others by name"
        )
    namespace, _, table = name.partition(".")
    source = f"lakeformat__{namespace}_{table}_{zlib.crc32(f'{lake} {name}'.encode()):08x}".lower()
    if spark.catalog.tableExists(name):
        (row,) = spark.sql(f"SHOW TABLE EXTENDED IN `{namespace}` LIKE '{table}'").collect()
        if f"Provider: {source}" not in row["information"].splitlines():
            raise AlreadyExists(
                f"{name}: Spark's catalog has another table of that name; drop it, or attach other tables"
            )
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{namespace}`")
    where = {row["info_name"]: row["info_value"] for row in spark.sql(f"DESCRIBE DATABASE `{namespace}`").collect()}
    if _path(where["Location"]) == _path(f"{lake}/{namespace}.db"):
        raise InvalidInput(
            f"{name}: Spark keeps its own tables in {where['Location']}, where the lake keeps this one, and Spark's DROP TABLE "
            "deletes what is there; set spark.sql.warehouse.dir to another folder"
        )

    class Attached(_Attached):
        _scan = staticmethod(scan)

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

    _scan: Callable[[], Any]

    def schema(self) -> T.StructType:
        return _nullable(spark_schema(self._scan().fields))

    def reader(self, schema: T.StructType) -> datasource.DataSourceReader:
        scan = self._scan()
        types = {each.name: each.dataType for each in _nullable(spark_schema(scan.fields))}
        for each in schema:
            if types.get(each.name) != each.dataType:
                raise InvalidInput(
                    f"column {each.name!r} was {each.dataType.simpleString()} when the table was attached and is no more; "
                    "say lake.attach(spark) again"
                )
        return _Reader(scan.select(schema.names), schema)

    def writer(self, schema: T.StructType, overwrite: bool) -> datasource.DataSourceWriter:
        raise UnsupportedFeature(
            "an attached table is read only; write it by lake.sql(..., spark=spark), or a verb of the table"
        )


class _Reader(datasource.DataSourceReader):
    def __init__(self, scan: Any, schema: T.StructType) -> None:
        self._store, self._fields, self._tasks = files_of(scan.store), scan.fields, scan.plan()
        self._arrow = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[datasource.InputPartition]:
        count = min(len(self._tasks), _PARTITIONS) or 1
        return [
            datasource.InputPartition([pickle.dumps(t) for t in self._tasks[place::count]]) for place in range(count)
        ]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        blobs = partition.value
        ids = pa.record_batch({"id": pa.array(range(len(blobs)), pa.int64())})
        for batch in executors.read(self._store, blobs, self._fields, iter([ids])):
            yield batch.cast(self._arrow)


def _nullable(type: Any) -> Any:
    """A type of Spark that takes NULL at any depth: a column may lose its NOT NULL after the table was attached."""
    match type:
        case T.StructType():
            return T.StructType([T.StructField(each.name, _nullable(each.dataType)) for each in type])
        case T.ArrayType():
            return T.ArrayType(_nullable(type.elementType))
        case T.MapType():
            return T.MapType(_nullable(type.keyType), _nullable(type.valueType))
    return type


class _Source(datasource.DataSource):
    """Tables as Spark's Python data source, one of which the options name."""

    _sink: Callable[[Mapping[str, str], str | None], Any]

    def schema(self) -> T.StructType:
        raise UnsupportedFeature(_NO_TABLE)

    def reader(self, schema: T.StructType) -> datasource.DataSourceReader:
        raise UnsupportedFeature(_NO_TABLE)

    def writer(self, schema: T.StructType, overwrite: bool) -> datasource.DataSourceWriter:
        return _Writer(self._checked(schema, overwrite, str(uuid.uuid4())))

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> datasource.DataSourceStreamWriter:
        if _StreamArrowWriter is datasource.DataSourceStreamWriter:
            raise UnsupportedFeature("streams into a data source need PySpark 4.1; write the stream by foreachBatch")
        return _StreamWriter(self._checked(schema, overwrite, None))

    def _checked(self, schema: T.StructType, overwrite: bool, user: str | None) -> Any:
        """The sink; raises for rows that could not be written."""
        if overwrite:
            raise UnsupportedFeature(
                "a data source of Spark only appends: mode('append'); to overwrite, say table.overwrite(frame) and its like, to "
                "write whole results of a stream again, foreachBatch"
            )
        sink = self._sink(self.options, user)
        sink.require_writable(fields_from_spark(schema))
        return sink


@dataclass
class _Part(datasource.WriterCommitMessage):
    """What one task wrote."""

    held: Any


class _Writer(datasource.DataSourceArrowWriter):
    """A batch is one commit, under a name of its own."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        return _Part(self._sink.write(iterator))

    def commit(self, messages: list[datasource.WriterCommitMessage | None]) -> None:
        self._sink.commit(_held(messages), 0)

    def abort(self, messages: list[datasource.WriterCommitMessage | None]) -> None:
        self._sink.abort(_held(messages), 0)


class _StreamWriter(_StreamArrowWriter):  # type: ignore[misc, valid-type]
    """Each batch is one commit, under its number."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        return _Part(self._sink.write(iterator))

    def commit(self, messages: list[datasource.WriterCommitMessage | None], batchId: int) -> None:
        self._sink.commit(_held(messages), batchId)

    def abort(self, messages: list[datasource.WriterCommitMessage | None], batchId: int) -> None:
        self._sink.abort(_held(messages), batchId)


def _held(messages: Sequence[Any]) -> list[Any]:
    return [None if each is None else each.held for each in messages]
