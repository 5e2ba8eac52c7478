"""Very many manifests are read and decoded by Spark's tasks, and returned as Arrow's bytes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from lakeformat.engines.spark import executors, session
from lakeformat.model.dataclass import dataclass
from lakeformat.storage.cache import Parse
from lakeformat.storage.catalogued import files_of
from lakeformat.storage.store import Store

_FILES = 32  # Of a task at least: as many as one process reads together.
_TASKS = 512  # At most.


@dataclass(frozen=True, slots=True)
class OnExecutors:
    """See `storage.cache.Elsewhere`."""

    spark: SparkSession
    store: Store
    least: int

    def decoded(self, paths: Sequence[str], parse: Parse) -> list[pa.Table | None]:
        step = max(_FILES, -(-len(paths) // _TASKS))
        groups = [pickle.dumps((paths[at : at + step], parse)) for at in range(0, len(paths), step)]
        ids = self.spark.range(0, len(groups), 1, len(groups))
        work = partial(executors.decode, files_of(self.store), groups)
        frame = ids.mapInArrow(work, "place bigint, rows array<bigint>, content binary")
        with session.cancelled_with_caller(self.spark):
            answers = frame.toArrow().sort_by([("place", "ascending")])
        tables: list[pa.Table | None] = []
        for rows, content in zip(answers["rows"].to_pylist(), answers["content"], strict=True):
            if rows is None:
                raise pickle.loads(content.as_py())
            tables += _unpacked(rows, content.as_buffer())
        return tables


def _unpacked(rows: list[int], content: pa.Buffer) -> list[pa.Table | None]:
    """The tables that were packed together, by their row counts."""
    if rows[0] < 0:
        return [None] * len(rows)
    stream = pa.ipc.open_stream(content)
    tables: list[pa.Table | None] = []
    for count in rows:
        batches: list[pa.RecordBatch] = []
        while count > sum(map(len, batches)):
            batches.append(stream.read_next_batch())
        tables.append(pa.Table.from_batches(batches, stream.schema))
    return tables
