"""The engine that runs the worker on Spark's executors, and leaves clean files to Spark's own reader."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeformat.engines import adopt, worker
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.engine import Source
from lakeformat.engines.kernels import assign
from lakeformat.engines.keyed import key_values, lookup
from lakeformat.engines.row_level import marks
from lakeformat.engines.spark import batches, distribution, executors, few, jobs, native, session
from lakeformat.engines.spark.frames import OURS, assignable, hinted, mapped, quoted, untyped_columns
from lakeformat.engines.spark.merge import FewRows, SparkSource
from lakeformat.engines.spark.reachable import Reach
from lakeformat.engines.spark.types import arrow_of, nullable, require_whole, spark_field, spark_schema, spark_type
from lakeformat.errors import LakeError
from lakeformat.model.predicate import ALWAYS
from lakeformat.model.schema import Field, find_field
from lakeformat.model.work import (
    BUCKET,
    ROW_KIND,
    Adopted,
    AdoptTask,
    DeleteTask,
    KeyPlaces,
    MarkTask,
    MergeEngine,
    ReadTask,
    RewriteTask,
    WriteTask,
    WrittenFile,
    paths_of,
)
from lakeformat.storage.catalogued import files_of
from lakeformat.storage.store import Store


class SparkEngine:
    """Runs on the executors of `spark`. Spark itself reads from where the session has a file system."""

    def __init__(self, spark: SparkSession) -> None:
        session.require_running(spark)
        session.run_here_as_here(spark)
        self.spark = spark
        self._reach = Reach(spark)

    def read(
        self, store: Store, tasks: Sequence[ReadTask], fields: tuple[Field, ...], limit: int | None = None
    ) -> DataFrame:
        """The rows of all tasks, lazily. Parquet and ORC files that need nothing of ours are read by Spark."""
        names = [field.name for field in fields]
        groups, rest = native.parted(store, tasks, self._reach)
        frames = [native.read(self.spark, store, group, self._reach) for group in groups]
        frames = [frame if frame.columns == names else frame.select(*map(quoted, names)) for frame in frames]
        if rest or not frames:
            frames.append(self._worked(store, rest, fields))
        frame = reduce(DataFrame.union, frames)
        return frame if limit is None else frame.limit(limit)

    def write(self, store: Store, data: DataFrame, task: WriteTask) -> list[WrittenFile]:
        """Write rows to files in one job; `data` is evaluated once, but for rows that turn out too large for batches of
        a fixed number, which a second job writes. Files of repeated tasks become orphans; a failed job leaves none.

        Columns are checked before the job starts, values as they are written: both raise `InvalidInput`.
        """
        frame = assignable(data, task.fields)
        assign.check(arrow_of(frame.schema), key_values.input_fields(task), task.partition_by)
        if task.keyed is None or task.keyed.places is None:
            rows = few.rows_without_key(frame) if task.keyed is None else few.rows(frame)
            if rows is not None:
                return ArrowEngine().write(store, rows, task)
        if task.keyed is not None and task.keyed.places is not None and not task.keyed.places.is_settled:
            frame = self._settled(store, frame, task)
            task = replace(task, required=ALWAYS, keyed=replace(task.keyed, places=_settled(task.keyed.places)))
            with session.unbroadcast(self.spark):
                return self._written(store, distribution.distributed(frame, task), task)
        if task.unique:
            frame, task = _last_rows(frame, task.unique), replace(task, unique=())
        distributed, narrow = distribution.distributed(frame, task), None
        if session.counts_bytes(self.spark):
            narrow = batches.narrow(distributed)
            if narrow is None and (before := batches.narrow(frame)) is not None:  # Python computes the shuffle's key.
                narrow = replace(before, frame=distribution.distributed(before.frame, task))
        if narrow is not None:
            try:
                return self._written(store, narrow.frame, task, narrow)
            except executors.WideRows:
                batches.remember(frame)
        return self._written(store, distributed, task)

    def count(self, store: Store, tasks: Sequence[ReadTask]) -> list[int]:
        """For each task, the number of rows that satisfy its predicate; one Spark task each."""
        return jobs.each(self.spark, store, tasks, worker.count)

    def rewrite(self, store: Store, tasks: Sequence[RewriteTask]) -> list[list[WrittenFile]]:
        """The files that each task wrote; one Spark task each, except that rows to be sorted are range-partitioned, and
        that the driver rewrites few rows itself."""
        if few.to_rewrite(tasks):
            return ArrowEngine().rewrite(store, tasks)
        if not any(task.spreads for task in tasks):
            return jobs.each(self.spark, store, tasks, lookup.rewrite)
        written: list[list[WrittenFile]] = []
        try:
            written.extend(self._sorted(store, task) for task in tasks)
        except BaseException:
            with suppress(LakeError):
                store.delete(paths_of(file for files in written for file in files))
            raise
        return written

    def mark(self, store: Store, tasks: Sequence[MarkTask]) -> list[list[WrittenFile]]:
        """The delete files that each task wrote; one Spark task each."""
        return jobs.each(self.spark, store, tasks, marks.mark)

    def rewrite_deletes(self, store: Store, tasks: Sequence[DeleteTask]) -> list[list[WrittenFile]]:
        """The existing deletes of all targets of each task, in new files; one Spark task each."""
        return jobs.each(self.spark, store, tasks, marks.rewrite)

    def adopt(self, store: Store, tasks: Sequence[AdoptTask]) -> list[Adopted]:
        """Existing files as files of the table; one Spark task each."""
        return jobs.each(self.spark, store, tasks, adopt.adopt)

    def stage(self, store: Store, data: Any, layout: WriteTask, hints: tuple[Field, ...]) -> Source:
        """The source of a merge, evaluated once: few rows into the driver's memory, others into temporary files beside
        the table's, which are deleted by `close`."""
        untyped = frozenset[str]()
        if isinstance(data, DataFrame):
            untyped = untyped_columns(data)
            data = hinted(data, hints)
            rows = few.rows(data)
            if rows is not None:
                here = ArrowEngine().stage(store, rows, layout, hints)
                for_tasks = partial(SparkSource, self.spark, self, store, rows, layout, hints, untyped)
                return FewRows(here, for_tasks, untyped)
        return SparkSource(self.spark, self, store, data, layout, hints, untyped)

    def _settled(self, store: Store, frame: DataFrame, task: WriteTask) -> DataFrame:
        """The rows to write for these if keys may change partitions: with delete rows, and with `BUCKET` if it is
        fixed. It is a join with the existing keys; the rows of a key keep the frame's order."""
        assert task.keyed is not None, task
        places = task.keyed.places
        assert places is not None, task
        parts = tuple(find_field(task.fields, name) for name in places.partition)
        for part in parts:
            if part.name not in frame.columns:
                value = F.lit(part.default) if part.default is not None else F.lit(None)
                frame = frame.withColumn(part.name, value.cast(spark_type(part.type)))
        frame_columns = tuple(frame.columns)
        names = tuple(dict.fromkeys((*places.key, *places.partition)))
        existing = self.read(store, places.tasks, (*(find_field(task.fields, name) for name in names), BUCKET))
        existing = existing.select(
            *(F.col(quoted(name)).alias(f"{OURS}key{i}") for i, name in enumerate(places.key)),
            *(F.col(quoted(name)).alias(f"{OURS}home{i}") for i, name in enumerate(places.partition)),
            F.col(BUCKET.name),
        )
        existing = existing.withColumnRenamed(BUCKET.name, f"{OURS}home_bucket")
        same = [F.col(quoted(name)) == F.col(f"{OURS}key{i}") for i, name in enumerate(places.key)]
        rows = frame.withColumn(f"{OURS}row", F.monotonically_increasing_id())
        rows = rows.join(existing, reduce(Column.__and__, same), "left")
        of_key = Window.partitionBy(*(F.col(quoted(name)) for name in places.key)).orderBy(f"{OURS}row")
        is_first, has_home = F.row_number().over(of_key) == 1, F.col(f"{OURS}home_bucket").isNotNull()
        was = []
        for i, name in enumerate(places.partition):
            value, home = F.col(quoted(name)), F.col(f"{OURS}home{i}")
            if task.keyed.merge.engine is MergeEngine.DEDUPLICATE:
                before = F.when(is_first, home).otherwise(F.lag(value).over(of_key))
            else:
                before = F.when(has_home, home).otherwise(F.first(value).over(of_key))
            was.append(before.alias(f"{OURS}was{i}"))
        columns = [
            *(F.col(quoted(name)) for name in frame_columns),
            (~is_first | has_home).alias(f"{OURS}known"),
            *was,
            *(F.col(f"{OURS}home{i}") for i in range(len(parts))),
            F.col(f"{OURS}home_bucket"),
        ]
        fields = (*task.fields, ROW_KIND, BUCKET)
        return mapped(
            rows.select(*columns), partial(executors.settle, task, frame_columns), spark_schema(nullable(fields))
        )

    def _written(
        self, store: Store, frame: DataFrame, task: WriteTask, narrow: batches.Narrow | None = None
    ) -> list[WrittenFile]:
        """The files of rows that are in the tasks that write them."""
        work: executors.Work = partial(executors.write, files_of(store), task)
        batching = session.in_large_batches(self.spark)
        if narrow is not None:
            batching = session.in_batches_of(self.spark, narrow.rows)
            work = partial(executors.only_narrow, work) if narrow.is_flagged else work
        with batching, session.in_tasks_of(self.spark, task.target_size_bytes):
            return [file for files in jobs.collected(self.spark, store, frame, work) for file in files]

    def _sorted(self, store: Store, task: RewriteTask) -> list[WrittenFile]:
        """The rows in the requested order, a range of about a file's size per Spark task."""
        assert task.delete_where is None, task
        assert not task.assignments, task
        fields = task.write.fields
        require_whole(fields)
        size_bytes = sum(part.size_bytes for part in task.read)
        count = max(1, -(-size_bytes // task.write.target_size_bytes))
        frame = distribution.ranged(self.read(store, task.read, fields), task.write, count)
        work = partial(executors.write, files_of(store), task.write)
        return [file for files in jobs.collected(self.spark, store, frame, work) for file in files]

    def _worked(self, store: Store, tasks: Sequence[ReadTask], fields: tuple[Field, ...]) -> DataFrame:
        schema = T.StructType(
            [spark_field(field) for field in fields] or [T.StructField(executors.ROW, T.BooleanType())]
        )
        blobs = tuple(pickle.dumps(task) for task in tasks)
        ids = self.spark.range(0, len(blobs), 1, max(1, len(blobs)))
        frame = ids.mapInArrow(partial(executors.read, files_of(store), blobs, fields), schema)
        return frame if fields else frame.select()


def _settled(places: KeyPlaces) -> KeyPlaces:
    return replace(places, tasks=(), is_settled=True, only_removes=False)


def _last_rows(frame: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """The last of the rows that are equal in these columns, in the frame's order."""
    row = F.struct(*(F.col(quoted(name)) for name in frame.columns)).alias("row")
    numbered = frame.select(row, F.monotonically_increasing_id().alias("number"))
    in_frame = [F.col(f"row.{quoted(name)}") for name in key if name in frame.columns]  # The others have one default.
    by_key = numbered.groupBy(*(in_frame or [F.lit(0)]))
    return by_key.agg(F.max_by("row", "number").alias("row")).select("row.*")
