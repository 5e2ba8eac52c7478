"""Tables as Spark's Python data source, for batches and streams."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession, datasource
from pyspark.sql import types as T

from lakeformat.engines.spark.types import fields_from_spark
from lakeformat.errors import UnsupportedFeature

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


class _Source(datasource.DataSource):
    """Tables as Spark's Python data source, one of which the options name."""

    _sink: Callable[[Mapping[str, str], str | None], Any]

    def schema(self) -> T.StructType:
        raise UnsupportedFeature(
            "a data source of Spark to write to; to read a table, say table.scan().to_spark(spark)"
        )

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
