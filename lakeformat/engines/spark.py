"""The engine that runs the worker on Spark's executors, and leaves clean files to Spark's own reader.

Public Python API only (DataFrame, `mapInArrow`), so that classic sessions and Spark Connect do the same. Executors need
lakeformat: installed, or sent along by `add_to_session`.
"""

from __future__ import annotations

import pickle
import re
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window, datasource
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeformat import errors
from lakeformat.codec import transform
from lakeformat.codec.arrow import arrow_schema, fields_from_arrow, to_arrow
from lakeformat.engines import (
    adopt,
    arrow,
    assign,
    casts,
    key_places,
    key_values,
    lookup,
    marks,
    outcomes,
    parquet,
    worker,
)
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.arrow_merge import ArrowSource, typed
from lakeformat.engines.engine import Decided, Spread
from lakeformat.engines.merge_parts import Made, MergeByParts, Staged, read_back
from lakeformat.errors import InvalidInput, LakeError, UnsupportedFeature
from lakeformat.model.evolution import number
from lakeformat.model.merge import SOURCE, TARGET, Group, Merge, flat_name
from lakeformat.model.order import Sort, ZOrder
from lakeformat.model.partition import PartitionField, TransformKind
from lakeformat.model.predicate import ALWAYS, columns_of, to_sql
from lakeformat.model.schema import (
    NO_ID,
    Field,
    Kind,
    ListOf,
    MapOf,
    MultisetOf,
    Row,
    Scalar,
    Type,
    find_field,
    find_part,
    scalar,
    walk,
)
from lakeformat.model.work import (
    BUCKET,
    FILE,
    POSITION,
    ROW_KIND,
    Adopted,
    AdoptTask,
    BucketRule,
    DeleteTask,
    KeyPlaces,
    MarkTask,
    ReadTask,
    RewriteTask,
    RowKind,
    WriteTask,
    WrittenFile,
)
from lakeformat.storage.catalogued import files_of
from lakeformat.storage.store import Reader, Store

_StreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)  # 4.1

NATIVE_SCHEMES = ("file",)  # Where Spark reads by itself; more, e.g. "s3a", if the session has the file system for it.

_INTEGERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_RETYPED = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ, Kind.TIME, Kind.TIME_MICROS, Kind.FIXED, Kind.UUID)  # For Spark.
_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)
_PLAIN: dict[Kind, T.DataType] = {
    Kind.BOOLEAN: T.BooleanType(),
    Kind.TINYINT: T.ByteType(),
    Kind.SMALLINT: T.ShortType(),
    Kind.INT: T.IntegerType(),
    Kind.BIGINT: T.LongType(),
    Kind.FLOAT: T.FloatType(),
    Kind.DOUBLE: T.DoubleType(),
    Kind.CHAR: T.StringType(),
    Kind.VARCHAR: T.StringType(),
    Kind.STRING: T.StringType(),
    Kind.BINARY: T.BinaryType(),
    Kind.VARBINARY: T.BinaryType(),
    Kind.BYTES: T.BinaryType(),
    Kind.FIXED: T.BinaryType(),
    Kind.UUID: T.BinaryType(),
    Kind.UNKNOWN: T.NullType(),
    Kind.DATE: T.DateType(),
    Kind.TIMESTAMP: T.TimestampNTZType(),
    Kind.TIMESTAMP_TZ: T.TimestampType(),
}
_LOGICAL: dict[type[T.DataType], Scalar] = {
    T.BooleanType: scalar(Kind.BOOLEAN),
    T.ByteType: scalar(Kind.TINYINT),
    T.ShortType: scalar(Kind.SMALLINT),
    T.IntegerType: scalar(Kind.INT),
    T.LongType: scalar(Kind.BIGINT),
    T.FloatType: scalar(Kind.FLOAT),
    T.DoubleType: scalar(Kind.DOUBLE),
    T.StringType: scalar(Kind.STRING),
    T.BinaryType: scalar(Kind.BYTES),
    T.DateType: scalar(Kind.DATE),
    T.NullType: scalar(Kind.UNKNOWN),
    T.TimestampNTZType: scalar(Kind.TIMESTAMP, 6),
    T.TimestampType: scalar(Kind.TIMESTAMP_TZ, 6),
}


Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SparkEngine:
    """Runs on `spark`'s executors. Spark itself reads from `native_schemes`; from elsewhere the worker does."""

    def __init__(self, spark: SparkSession, native_schemes: Sequence[str] = NATIVE_SCHEMES) -> None:
        self.spark = spark
        self.native_schemes = tuple(native_schemes)

    def read(
        self, store: Store, tasks: Sequence[ReadTask], fields: tuple[Field, ...], limit: int | None = None
    ) -> DataFrame:
        """The rows of all tasks, lazily. Parquet and ORC files that need nothing but Spark are read by Spark."""
        names = [each.name for each in fields]
        native, rest = self._parted(store, tasks)
        frames = [self._native(store, group).select(*map(_quoted, names)) for group in native]
        if rest or not frames:
            frames.append(self._worked(store, rest, fields))
        frame = reduce(DataFrame.union, frames)
        return frame if limit is None else frame.limit(limit)

    def write(self, store: Store, data: DataFrame, task: WriteTask) -> list[WrittenFile]:
        """Rows to files, one job; `data` is evaluated once. Files of tasks that Spark repeated or gave up are orphans.

        Columns are checked before anything runs, values as they are written: both raise `InvalidInput`.
        """
        frame = _assignable(data, task.fields)
        assign.check(_arrow_of(frame.schema), key_values.given(task))
        if task.keyed is not None and task.keyed.places is None:
            rows = self._few(frame)
            if rows is not None:
                return ArrowEngine().write(store, rows, task)
        settings = [_in_large_batches(self.spark)]
        if task.keyed is not None and task.keyed.places is not None and not task.keyed.places.is_settled:
            settings.append(_unbroadcast(self.spark))
            frame = self._settled(store, frame, task)
            task = replace(task, required=ALWAYS, keyed=replace(task.keyed, places=_settled(task.keyed.places)))
        frame = _distributed(frame, task)
        answers = _mapped(frame, partial(_write, files_of(store), task), "answer binary")
        with ExitStack() as stack:
            for each in settings:
                stack.enter_context(each)
            return [file for files in self._collected(store, answers) for file in files]

    def count(self, store: Store, tasks: Sequence[ReadTask]) -> list[int]:
        """For each task, how many rows satisfy its predicate; one Spark task for each."""
        return self._each(store, tasks, worker.count)

    def rewrite(self, store: Store, tasks: Sequence[RewriteTask]) -> list[list[WrittenFile]]:
        """What each task wrote; one Spark task for each, but of rows to be sorted, which are spread by ranges."""
        if not any(task.spreads for task in tasks):
            return self._each(store, tasks, lookup.rewrite)
        written: list[list[WrittenFile]] = []
        try:
            written.extend(self._sorted(store, task) for task in tasks)
        except BaseException:
            with suppress(LakeError):
                store.delete([file.path for files in written for file in files])
            raise
        return written

    def mark(self, store: Store, tasks: Sequence[MarkTask]) -> list[list[WrittenFile]]:
        """The files of deletes that each task wrote; one Spark task for each."""
        return self._each(store, tasks, marks.mark)

    def rewrite_deletes(self, store: Store, tasks: Sequence[DeleteTask]) -> list[list[WrittenFile]]:
        """The earlier deletes of all targets of each task, in new files; one Spark task for each."""
        return self._each(store, tasks, marks.rewrite)

    def adopt(self, store: Store, tasks: Sequence[AdoptTask]) -> list[Adopted]:
        """What files of others are to the table; one Spark task for each."""
        return self._each(store, tasks, adopt.adopt)

    def stage(self, store: Store, data: Any, layout: WriteTask, hints: tuple[Field, ...]) -> SparkSource:
        """The source of a merge, evaluated once into files beside the table's, which are gone when it is closed."""
        return SparkSource(self, store, data, layout, hints)

    def _few(self, frame: DataFrame) -> pa.Table | None:
        """The rows, where Spark takes them for few and they are: to write these here costs less than a shuffle."""
        if _guessed_bytes(frame) > _FEW_BYTES:
            return None
        place = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))  # In its part of the frame.
        numbered = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
        with _in_large_batches(self.spark), _cancelled_with_caller(self.spark):
            rows = numbered.filter(place <= _FEW_ROWS).toArrow()
        return None if rows.num_rows > _FEW_ROWS else rows.rename_columns(frame.columns)

    def _settled(self, store: Store, frame: DataFrame, task: WriteTask) -> DataFrame:
        """The rows that are written for these where keys may change partitions: with those that take others away, and their
        `BUCKET` where it has to be one. A join with the keys that are there; the rows of a key in the order of the frame."""
        assert task.keyed is not None, task
        places = task.keyed.places
        assert places is not None, task
        parts = tuple(find_field(task.fields, name) for name in places.partition)
        for each in parts:
            if each.name not in frame.columns:
                value = F.lit(each.default) if each.default is not None else F.lit(None)
                frame = frame.withColumn(each.name, value.cast(spark_type(each.type)))
        given = tuple(frame.columns)
        held = tuple(dict.fromkeys((*places.key, *places.partition)))
        there = self.read(store, places.tasks, (*(find_field(task.fields, name) for name in held), BUCKET))
        there = there.select(
            *(F.col(_quoted(name)).alias(f"{_OURS}key{i}") for i, name in enumerate(places.key)),
            *(F.col(_quoted(name)).alias(f"{_OURS}home{i}") for i, name in enumerate(places.partition)),
            F.col(BUCKET.name),
        )
        there = there.withColumnRenamed(BUCKET.name, f"{_OURS}home_bucket")
        same = [F.col(_quoted(name)) == F.col(f"{_OURS}key{i}") for i, name in enumerate(places.key)]
        rows = frame.withColumn(f"{_OURS}row", F.monotonically_increasing_id())
        rows = rows.join(there, reduce(Column.__and__, same), "left")
        of_key = Window.partitionBy(*(F.col(_quoted(name)) for name in places.key)).orderBy(f"{_OURS}row")
        is_first, has_home = F.row_number().over(of_key) == 1, F.col(f"{_OURS}home_bucket").isNotNull()
        was = []
        for i, name in enumerate(places.partition):
            own, home = F.col(_quoted(name)), F.col(f"{_OURS}home{i}")
            if task.keyed.merge.engine == "deduplicate":
                before = F.when(is_first, home).otherwise(F.lag(own).over(of_key))
            else:
                before = F.when(has_home, home).otherwise(F.first(own).over(of_key))
            was.append(before.alias(f"{_OURS}was{i}"))
        columns = [
            *(F.col(_quoted(name)) for name in given),
            (~is_first | has_home).alias(f"{_OURS}known"),
            *was,
            *(F.col(f"{_OURS}home{i}") for i in range(len(parts))),
            F.col(f"{_OURS}home_bucket"),
        ]
        fields = (*task.fields, ROW_KIND, BUCKET)
        return _mapped(rows.select(*columns), partial(_settle, task, given), spark_schema(_nullable(fields)))

    def _sorted(self, store: Store, task: RewriteTask) -> list[WrittenFile]:
        """The rows in the order asked for, a range of about a file's size to each Spark task."""
        assert task.delete_where is None, task
        assert not task.assignments, task
        fields = task.write.fields
        _require_whole(fields)
        size_bytes = sum(size for each in task.read for size in each.sizes_bytes)
        count = max(1, -(-size_bytes // task.write.target_size_bytes))
        frame = _ranged(self.read(store, task.read, fields), task.write, count)
        answers = _mapped(frame, partial(_write, files_of(store), task.write), "answer binary")
        return [file for files in self._collected(store, answers) for file in files]

    def _each(self, store: Store, tasks: Sequence[Any], work: Callable[[Store, Any], Any]) -> list[Any]:
        """What `work` makes of each task, in the order of the tasks."""
        if not tasks:
            return []
        blobs = tuple(pickle.dumps(each) for each in tasks)
        ids = self.spark.range(0, len(blobs), 1, len(blobs))
        answers = self._collected(store, ids.mapInArrow(partial(_each, files_of(store), blobs, work), "answer binary"))
        by_place = dict(answers)
        return [by_place[place] for place in range(len(tasks))]

    def _collected(self, store: Store, frame: DataFrame) -> list[Any]:
        """What the tasks answered. An error that a task answered is raised, and what others wrote is deleted."""
        with _cancelled_with_caller(self.spark):
            answers = [pickle.loads(bytes(row[0])) for row in _named(frame.collect)]
        errors = [each for each in answers if isinstance(each, LakeError)]
        if errors:
            with suppress(LakeError):
                store.delete([file.path for each in answers for file in _files(each)])
            raise errors[0]
        return answers

    def _parted(self, store: Reader, tasks: Sequence[ReadTask]) -> tuple[list[list[ReadTask]], list[ReadTask]]:
        """(groups of tasks that Spark reads in one go, tasks for the worker)."""
        groups: dict[Any, list[ReadTask]] = {}
        rest = []
        for each in tasks:
            if _clean(each) and all(_scheme(store.location(path)) in self.native_schemes for path in each.paths):
                key = (each.file_format, each.file_fields, each.fields, each.predicate, each.constants)
                groups.setdefault(key, []).append(each)
            else:
                rest.append(each)
        native = []
        for key, group in groups.items():
            timed = [each for each in key[1] if any(_kind(part.type) in _INSTANTS for part in walk((each,)))]
            if timed:
                paths = [path for each in group for path in each.paths]
                with ThreadPoolExecutor(8) as pool:
                    plain = dict(
                        zip(paths, pool.map(partial(_plain_timestamps, store, tuple(timed)), paths), strict=True)
                    )
                rest += [each for each in group if not all(plain[path] for path in each.paths)]
                group = [each for each in group if all(plain[path] for path in each.paths)]
            if group:
                native.append(group)
        return native, rest

    def _native(self, store: Reader, group: Sequence[ReadTask]) -> DataFrame:
        task = group[0]
        assert task.file_fields is not None, task
        held = {each.id: each for each in task.file_fields}
        constants = dict(task.constants)
        wanted = [held[each.id] for each in task.fields if each.id in held and each.id not in constants]
        reader = (
            self.spark.read.schema(T.StructType([_spark_field(each) for each in wanted]))
            .option("recursiveFileLookup", "true")  # No columns out of folder names.
            .option("ignoreMissingFiles", "false")
            .option("ignoreCorruptFiles", "false")
            .option("mergeSchema", "false")
        )
        if task.file_format == "parquet":
            reader = reader.option("datetimeRebaseMode", "CORRECTED").option("int96RebaseMode", "CORRECTED")
        paths = [_unglobbed(store.location(path)) for each in group for path in each.paths]
        with _listed_by_driver(self.spark, paths):
            frame = reader.format(task.file_format).load(paths)
        columns = []
        for each in task.fields:
            if each.id in constants:
                column = _constant(constants[each.id], each.type)
            elif each.id in held:
                column = F.col(_quoted(held[each.id].name))
                if held[each.id].type != each.type:
                    column = column.cast(spark_type(each.type))
            else:
                column = F.lit(None).cast(spark_type(each.type))
            columns.append(column.alias(each.name))
        frame = frame.select(*columns)
        return frame if task.predicate == ALWAYS else frame.filter(F.expr(to_sql(task.predicate)))

    def _worked(self, store: Store, tasks: Sequence[ReadTask], fields: tuple[Field, ...]) -> DataFrame:
        schema = T.StructType([_spark_field(each) for each in fields])
        blobs = tuple(pickle.dumps(each) for each in tasks)
        ids = self.spark.range(0, len(blobs), 1, max(1, len(blobs)))
        return ids.mapInArrow(partial(_read, files_of(store), blobs, fields), schema)


class SparkSource:
    """A merge's source in files of its own, so that each look at it gives the same rows; joins are Spark's."""

    def __init__(
        self, engine: SparkEngine, store: Store, data: Any, layout: WriteTask, hints: tuple[Field, ...]
    ) -> None:
        self._engine, self._store = engine, store
        self._folder = f"merge-{uuid.uuid4()}/bucket-0"
        self._task = WriteTask(
            (), _Folder(self._folder), file_format="parquet", compression="zstd", name_prefix=layout.name_prefix
        )
        self._paths: list[str] = []
        self._key: tuple[str, ...] = ()  # Of rows that are equal in these columns only the last counts.
        if not isinstance(data, DataFrame):
            found = list(arrow.batches(data, hints))
            table = typed(pa.Table.from_batches(found) if found else arrow_schema(hints).empty_table(), hints)
            data = engine.spark.createDataFrame(table, spark_schema(fields_from_arrow(table.schema)))
        frame = _hinted(data, hints)
        self.fields = fields_from_spark(frame.schema)
        held, last = number(tuple(Field(NO_ID, f"c{i}", each.type) for i, each in enumerate(self.fields)), -1, True)
        row = Field(last + 1, outcomes.ROW, scalar(Kind.BIGINT))
        parted = _parted_as_table(self._task, layout, dict(zip((f.name for f in self.fields), held, strict=True)))
        self._is_parted = parted is not None
        numbered = frame.toDF(*(each.name for each in held)).withColumn(row.name, F.monotonically_increasing_id())
        layout = replace(parted or self._task, fields=(*held, row))
        self._files = self._kept((*held, row), engine.write(store, numbered, layout))
        self._by_parts: MergeByParts | None = None
        self._columns = {flat_name(SOURCE, f.name): h.name for f, h in zip(self.fields, held, strict=True)}
        self._settings = ExitStack()
        self._settings.enter_context(_unbroadcast(engine.spark))

    def keep_last(self, key: tuple[str, ...]) -> None:
        self._key = key

    def spread(self, merge: Merge, limit: int) -> list[Spread]:
        """As the footers say where there are many rows, so that the driver does not read them."""
        needed = sorted({name for key in merge.keys for name in columns_of(key.source)})
        if self._row_count > _FEW_ROWS:
            return [Spread(None) for _ in merge.keys]
        fields = tuple(find_field(self._files[0].fields, self._columns[name]) for name in needed) if self._files else ()
        found = [
            batch.rename_columns(needed)
            for task in self._files
            for batch in worker.read(self._store, replace(task, fields=fields))
        ]
        empty = outcomes.named(SOURCE, arrow_schema(self.fields).empty_table()).select(needed)
        return outcomes.spread(
            merge, pa.concat_tables([empty, *map(_table, found)], promote_options="permissive"), limit
        )

    def decide(self, merge: Merge, tasks: Sequence[ReadTask]) -> Decided:
        if sum(task.size_bytes for task in self._files) <= _PART_BYTES and self._row_count <= _PART_ROWS:
            staged = Staged(self.fields, tuple(self._files), self._key)
            self._by_parts = MergeByParts(self._store, staged, self._task, _Workers(self._engine))
            return self._by_parts.decide(merge, tasks)
        _require_whole(merge.target)
        source = self._small(self._source(merge.deciding(SOURCE)))
        kind = "left" if merge.of(Group.NOT_MATCHED_BY_SOURCE) else "inner"
        joined = self._target(tasks, (*merge.deciding(TARGET), POSITION)).join(
            source, F.expr(to_sql(merge.condition)), kind
        )
        task = self._with(outcomes.DECISIONS)
        answers = _mapped(joined, partial(_decide, files_of(self._store), merge, task), "answer binary")
        written = [file for files in self._engine._collected(self._store, answers) for file in files]
        made = self._kept(outcomes.DECISIONS, written)
        decided = self._engine.read(self._store, made, outcomes.DECISIONS)
        file, row = F.col(outcomes.FILE_NAME), F.col(outcomes.ROW)
        told = (
            decided.groupBy(file)
            .agg(
                F.count(row).alias("matches"),
                F.countDistinct(F.when(row.isNotNull(), F.col(outcomes.POSITION_NAME))).alias("rows"),
                F.max(outcomes.CHOICE).alias("choice"),
            )
            .collect()
        )
        if merge.wants_one_match:
            for each in told:
                if each["matches"] > each["rows"]:
                    again = decided.filter((file == each[0]) & row.isNotNull()).groupBy(outcomes.POSITION_NAME)
                    twice = again.agg(F.count("*").alias("n"), F.min(row).alias("first")).filter("n > 1")
                    raise self._several(merge, twice.limit(1).collect()[0]["first"])
        return Decided(frozenset(each[0] for each in told if each["choice"] >= 0), decided)

    def write(
        self, merge: Merge, decided: Decided, tasks: Sequence[ReadTask], layout: WriteTask, whole: bool
    ) -> list[WrittenFile]:
        if self._by_parts is not None:
            return self._by_parts.write(merge, decided, tasks, layout, whole)
        choices: DataFrame = decided.choices
        schema, frames = spark_schema(merge.target), []
        if tasks:
            chosen = choices.filter(F.col(outcomes.CHOICE) >= 0).dropDuplicates([*_PLACE])
            if assigning := merge.assigning(SOURCE):
                chosen = chosen.join(self._source(assigning), outcomes.ROW, "left")
            rows = (
                self._target(tasks, tasks[0].fields).join(chosen, [*_PLACE], "left" if whole else "inner").drop(*_PLACE)
            )
            frames.append(_mapped(rows, partial(_results, merge, whole), schema))
        if merge.of(Group.NOT_MATCHED):
            matched = choices.select(outcomes.ROW).filter(F.col(outcomes.ROW).isNotNull()).distinct()
            rows = self._source(self.fields).join(matched, outcomes.ROW, "left_anti").drop(outcomes.ROW)
            frames.append(_mapped(rows, partial(_inserted, merge), schema))
        if not frames:
            return []
        if layout.partition_by and layout.distribution in ("auto", "range"):
            layout = replace(
                layout, distribution="hash"
            )  # A join has spread each partition; ranges would ask it twice.
        return self._engine.write(self._store, reduce(DataFrame.unionAll, frames), layout)

    def mark(self, merge: Merge, decided: Decided, layout: DeleteTask) -> list[WrittenFile]:
        if self._by_parts is not None:
            return self._by_parts.mark(merge, decided, layout)
        choices: DataFrame = decided.choices
        rows = choices.filter(F.col(outcomes.CHOICE) >= 0).select(*_PLACE).distinct()
        if layout.per_file:
            rows = rows.repartition(F.col(outcomes.FILE_NAME))
        else:
            rows = rows.coalesce(1)
        answers = rows.mapInArrow(partial(_marked, files_of(self._store), layout), "answer binary")
        return [file for files in self._engine._collected(self._store, answers) for file in files]

    def write_by_key(self, merge: Merge, tasks: Sequence[ReadTask], layout: WriteTask) -> list[WrittenFile]:
        assert layout.keyed is not None, layout
        units = self._units(merge, tasks, layout)
        if units is not None:
            found = self._engine._each(self._store, units, partial(_merged_by_key, merge, layout))
            return [file for files in found for file in files]
        _require_whole(merge.target)
        columns = tuple(Field(i, f"c{i}", each.type) for i, each in enumerate((*merge.target, ROW_KIND)))
        held = (*columns, Field(len(columns), outcomes.ROW, scalar(Kind.BIGINT)))
        key = (*layout.keyed.merge.key, *(each.source for each in layout.partition_by))
        read = merge.reading(key)
        names = [flat_name(TARGET, each.name) for each in read]
        needed = {f.name: f for f in (*merge.deciding(SOURCE), *merge.assigning(SOURCE))}
        kind = "left" if merge.of(Group.NOT_MATCHED_BY_SOURCE) else "inner"
        rows = self._engine.read(self._store, tasks, read).toDF(*names)
        rows = rows.join(self._small(self._source(tuple(needed.values()))), F.expr(to_sql(merge.condition)), kind)
        answers = _mapped(
            rows, partial(_decide_by_key, files_of(self._store), merge, self._with(held)), "answer binary"
        )
        written = [file for files in self._engine._collected(self._store, answers) for file in files]
        made = self._engine.read(self._store, self._kept(held, written), held)
        if merge.wants_one_match:
            same = [f.name for f, t in zip(columns, merge.target, strict=False) if t.name in key]
            twice = (
                made.filter(F.col(outcomes.ROW).isNotNull())
                .groupBy(*same)
                .agg(F.count("*").alias("n"), F.min(outcomes.ROW).alias(outcomes.ROW))
            )
            if found := twice.filter("n > 1").limit(1).collect():
                raise self._several(merge, found[0][outcomes.ROW])
        known = [each.name for each in (*merge.target, ROW_KIND)]
        changed = made.filter(F.col(columns[-1].name).isNotNull()).drop(outcomes.ROW).toDF(*known)
        if merge.of(Group.NOT_MATCHED):
            matched = made.select(outcomes.ROW).filter(F.col(outcomes.ROW).isNotNull()).distinct()
            rows = self._source(self.fields).join(matched, outcomes.ROW, "left_anti").drop(outcomes.ROW)
            fresh = _mapped(rows, partial(_inserted, merge), spark_schema(merge.target))
            changed = changed.unionAll(fresh.withColumn(ROW_KIND.name, F.lit(RowKind.INSERT.short)))
        return self._engine.write(self._store, changed, layout)

    def close(self) -> None:
        self._settings.close()
        with suppress(LakeError):
            self._store.delete([*self._paths, *(self._by_parts.paths if self._by_parts else ())])
            self._store.remove_empty_folders([self._folder])

    def _units(self, merge: Merge, tasks: Sequence[ReadTask], layout: WriteTask) -> list[_Unit] | None:
        """Parts of the source and of the table by partition and bucket, or by bucket alone, each with all rows that match one of
        it; None where rows that match, or that come of a row, may be elsewhere, or a part may not fit in memory."""
        assert layout.keyed is not None, layout
        grows = layout.keyed.index is not None  # A partition's keys are known together.
        by_partition = merge.keeps(each.source for each in layout.partition_by)
        if not self._is_parted or layout.keyed.places is not None:
            return None
        if not by_partition and (grows or merge.of(Group.NOT_MATCHED)):
            return None
        if layout.bucket is not None and not merge.keeps(layout.bucket.columns):
            return None
        units: dict[Any, _Unit] = {}

        def unit(task: ReadTask) -> _Unit:
            place = (task.partition if by_partition else (), None if grows else task.bucket)
            return units.setdefault(place, _Unit([], []))

        for each in self._files:
            unit(each).source.append(each)
        if any(sum(task.size_bytes for task in each.source) > _PART_BYTES for each in units.values()):
            return None
        for each in tasks:
            unit(each).target.append(each)
        every = bool(merge.of(Group.NOT_MATCHED_BY_SOURCE))
        return [each for each in units.values() if each.source or every]

    @property
    def _row_count(self) -> int:
        return sum(task.row_count for task in self._files)

    def _small(self, source: DataFrame) -> DataFrame:
        """The source as every task has it, where it is small: its files tell."""
        return source.hint("broadcast") if sum(task.size_bytes for task in self._files) <= _SMALL_BYTES else source

    def _source(self, fields: tuple[Field, ...]) -> DataFrame:
        """These columns and `ROW` of the rows that count."""
        frame = self._every(fields)
        if not self._key:
            return frame
        names = [_quoted(flat_name(SOURCE, name)) for name in self._key]
        rows = self._every(tuple(find_field(self.fields, name) for name in self._key))
        last = rows.groupBy(*names).agg(F.max(outcomes.ROW).alias(outcomes.ROW)).select(outcomes.ROW)
        return frame.join(last, outcomes.ROW, "left_semi")

    def _every(self, fields: tuple[Field, ...]) -> DataFrame:
        names = [flat_name(SOURCE, each.name) for each in fields]
        wanted = tuple(Field(NO_ID, self._columns[name], each.type) for name, each in zip(names, fields, strict=True))
        row = Field(NO_ID, outcomes.ROW, scalar(Kind.BIGINT))
        tasks = [
            replace(task, fields=tuple(find_field(task.fields, each.name) for each in (*wanted, row)))
            for task in self._files
        ]
        return self._engine.read(self._store, tasks, (*wanted, row)).toDF(*names, row.name)

    def _target(self, tasks: Sequence[ReadTask], fields: tuple[Field, ...]) -> DataFrame:
        placed = [replace(task, fields=(*task.fields, FILE)) for task in tasks]
        frame = self._engine.read(self._store, placed, (*fields, FILE))
        known = {POSITION.name: outcomes.POSITION_NAME, FILE.name: outcomes.FILE_NAME}
        return frame.toDF(*(known.get(each.name) or flat_name(TARGET, each.name) for each in (*fields, FILE)))

    def _with(self, fields: tuple[Field, ...]) -> WriteTask:
        return replace(self._task, fields=fields)

    def _kept(self, fields: tuple[Field, ...], files: Sequence[WrittenFile]) -> list[ReadTask]:
        self._paths += [each.path for each in files]
        return [read_back(each, fields) for each in files]

    def _several(self, merge: Merge, row: int) -> InvalidInput:
        names = {name for key in merge.keys for name in columns_of(key.source)}
        keys = tuple(f for f in self.fields if flat_name(SOURCE, f.name) in names)
        example = self._source(keys).filter(F.col(outcomes.ROW) == row).drop(outcomes.ROW).collect()[0]
        return outcomes.several(merge, example.asDict())


@dataclass(frozen=True, slots=True)
class _Workers:
    """Spark's tasks, for a merge by parts."""

    engine: SparkEngine

    @property
    def count(self) -> int:
        try:
            return int(self.engine.spark.sparkContext.defaultParallelism)
        except Exception:  # Spark Connect does not tell.
            return _SOME_WORKERS

    def each(self, store: Store, tasks: Sequence[Any], work: Callable[[Store, Any], Any]) -> list[Any]:
        return self.engine._each(store, tasks, work)

    def spread(self, store: Store, tasks: Sequence[ReadTask], layout: WriteTask) -> list[WrittenFile] | None:
        try:
            _require_whole(layout.fields)
            frame = self.engine.read(store, tasks, tasks[0].fields)
        except UnsupportedFeature:  # Values that Spark has no form for.
            return None
        if layout.partition_by and layout.distribution in ("auto", "range"):
            layout = replace(layout, distribution="hash")
        return self.engine.write(store, frame, layout)


_OURS = "_lakeformat_"  # What columns begin with that are not the data's.


@dataclass(frozen=True, slots=True)
class _Unit:
    """Rows of a merge's source and of the table that are merged together."""

    source: list[ReadTask]
    target: list[ReadTask]


_PART_BYTES = 64 << 20  # Of the source in files, up to which a part of it is merged in a worker's memory.
_PART_ROWS = 10_000_000  # Of a source, up to which each worker holds it whole.
_SOME_WORKERS = 8  # Where nobody tells how many there are.
_SMALL_BYTES = 8 << 20  # Of a merge's source in files, up to which every task is sent it.
_FEW_ROWS = 1_000_000  # Of a source, up to which the driver looks at its keys.
_PLACE = (outcomes.FILE_NAME, outcomes.POSITION_NAME)


def _require_whole(fields: tuple[Field, ...]) -> None:
    """Refuse a table whose values Spark would cut short on their way through it."""
    for each in walk(fields):
        if _digits(each.type) > 6:
            raise UnsupportedFeature(
                f"column {each.name} is {each.type}, and Spark holds microseconds: its values would lose digits; merge from "
                "data that is not a Spark DataFrame"
            )


@dataclass(frozen=True, slots=True)
class _Folder:
    """One folder for all rows."""

    name: str

    def __call__(self, values: tuple[Any, ...], bucket: int | None) -> str:
        return self.name


def _parted_as_table(task: WriteTask, layout: WriteTask, held: Mapping[str, Field]) -> WriteTask | None:
    """`task`, with rows spread as those of a table that merges rows by key; None where the source lacks what that takes."""
    if layout.keyed is None:
        return None
    wanted = (*(each.source for each in layout.partition_by), *(layout.bucket.columns if layout.bucket else ()))
    for name in wanted:
        type = find_field(layout.fields, name).type
        # Values that are equal lie in the same bucket: not so -0.0 and 0.0, nor numbers of other widths.
        if name not in held or held[name].type != type or _kind(type) in (Kind.FLOAT, Kind.DOUBLE):
            return None
    bucket = layout.bucket and replace(layout.bucket, columns=tuple(held[name].name for name in layout.bucket.columns))
    partition_by = tuple(replace(each, source=held[each.source].name) for each in layout.partition_by)
    return replace(task, partition_by=partition_by, bucket=bucket, default_bucket=layout.default_bucket)


def _hinted(frame: DataFrame, hints: tuple[Field, ...]) -> DataFrame:
    """Columns of nothing, and timestamps with or without a zone, as the table's columns of the same names are."""
    wanted = {each.name.casefold(): each.type for each in hints}
    columns = []
    for each in frame.schema:
        column, hint = F.col(_quoted(each.name)), wanted.get(each.name.casefold(), scalar(Kind.STRING))
        if isinstance(each.dataType, T.NullType):
            column = column.cast(spark_type(hint)).alias(each.name)
        elif (zoned := _zoned(each.dataType, hint)) != each.dataType:
            column = column.cast(zoned).alias(each.name)
        columns.append(column)
    return frame.select(*columns)


def fields_from_spark(schema: T.StructType) -> tuple[Field, ...]:
    """Columns of a Spark schema, with no ids yet; raises `UnsupportedFeature` for a type that tables do not have."""
    return tuple(_field_of(each) for each in schema)


def spark_schema(fields: tuple[Field, ...]) -> T.StructType:
    """Columns as Spark shows them: timestamps in microseconds, CHAR and VARCHAR as strings, multisets as maps."""
    return T.StructType([_spark_field(each) for each in fields])


def spark_type(type: Type) -> T.DataType:
    match type:
        case Scalar(Kind.DECIMAL, (precision, scale)):
            return T.DecimalType(precision, scale)
        case Scalar(Kind.TIME, (digits,)) if hasattr(T, "TimeType"):
            return T.TimeType(min(digits, 3))
        case Scalar(Kind.TIME_MICROS) if hasattr(T, "TimeType"):
            return T.TimeType(6)
        case Scalar(kind) if kind in _PLAIN:
            return _PLAIN[kind]
        case ListOf(element):
            return T.ArrayType(spark_type(element.type), element.nullable)
        case MapOf(key, value):
            return T.MapType(spark_type(key.type), spark_type(value.type), value.nullable)
        case MultisetOf(element):
            return T.MapType(spark_type(element.type), T.IntegerType(), False)
        case Row(parts):
            return T.StructType([_spark_field(each) for each in parts])
    raise UnsupportedFeature(f"type {type} has no Spark form; leave the column out of the read")


def add_to_session(spark: SparkSession) -> None:
    """Send lakeformat's own modules to the executors of `spark`, where it is not installed.

    What lakeformat needs (pyarrow, numpy, cramjam, obstore, sqlglot) must be there.
    """
    package = Path(errors.__file__).parent
    packed = Path(tempfile.mkdtemp(prefix="lakeformat-")) / "lakeformat.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(package.rglob("*.py")):
            archive.write(each, each.relative_to(package.parent).as_posix())
    spark.addArtifacts(str(packed), pyfile=True)


# --- As a data source. ---


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


# --- On the executors. ---


def _write(store: Store, task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _answer(lambda: worker.write(store, batches, task))


def _settle(task: WriteTask, given: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows, whether their key has a row by then, and where: its partition, and its partition and bucket before the write."""
    assert task.keyed is not None, task
    places, fields = task.keyed.places, (*task.fields, ROW_KIND, BUCKET)
    assert places is not None, task
    parts = _nullable(tuple(find_field(task.fields, name) for name in places.partition))
    for batch in batches:
        rows = assign.assign(batch.select(list(range(len(given)))).rename_columns(list(given)), key_values.given(task))
        columns = batch.columns[len(given) :]
        known, was, home = columns[0], columns[1 : 1 + len(parts)], columns[1 + len(parts) : -1]
        was, home = (
            assign.assign(pa.RecordBatch.from_arrays(each, names=[f.name for f in parts]), parts).columns
            for each in (was, home)
        )
        there = key_places.Was(known.to_numpy(zero_copy_only=False), was, home, columns[-1].cast(pa.int32()))
        worker.require(rows, task)
        settled = key_places.settle(key_values.with_kinds(rows, task), there, places, task.keyed.merge)
        found = key_values.with_names(settled)
        yield _for_spark(found.select([each.name for each in fields]), fields)


def _each(
    store: Store, blobs: Sequence[bytes], work: Callable[[Store, Any], Any], ids: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in ids:
        for place in batch.column(0).to_pylist():
            yield _answer(partial(_numbered, store, work, place, blobs[place]))


def _decide(store: Store, merge: Merge, task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _answer(lambda: worker.write(store, outcomes.decisions(merge, batches), task))


def _marked(store: Store, task: DeleteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _answer(lambda: marks.write(store, batches, task))


def _decide_by_key(
    store: Store, merge: Merge, task: WriteTask, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield _answer(lambda: worker.write(store, outcomes.results_by_key(merge, batches), task))


def _merged_by_key(merge: Merge, layout: WriteTask, store: Store, unit: _Unit) -> list[WrittenFile]:
    held = tuple(Field(NO_ID, f"c{place}", each.type) for place, each in enumerate(merge.source))
    given = [replace(task, fields=tuple(find_field(task.fields, each.name) for each in held)) for task in unit.source]
    found = [batch for task in given for batch in worker.read(store, task)]
    source = pa.Table.from_batches(found, arrow_schema(held)).rename_columns([each.name for each in merge.source])
    return ArrowSource(store, source, map).write_by_key(merge, unit.target, layout)


def _results(merge: Merge, whole: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for found in outcomes.results(merge, whole, batches):
        yield _for_spark(found, merge.target)


def _inserted(merge: Merge, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for found in outcomes.inserted(merge, _table(batch)):
            yield _for_spark(found, merge.target)


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _renamed(names: Sequence[str], work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from work(each.rename_columns(names) for each in batches)
    except (InvalidInput, UnsupportedFeature) as error:
        raise type(error)(*error.args) from None  # A short trace: the driver sees only the beginning of a long one.


def _numbered(store: Store, work: Callable[[Store, Any], Any], place: int, blob: bytes) -> tuple[int, Any]:
    return place, work(store, pickle.loads(blob))


def _read(
    store: Store, blobs: Sequence[bytes], fields: tuple[Field, ...], ids: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in ids:
        for place in batch.column(0).to_pylist():
            task = pickle.loads(blobs[place])
            for found in worker.read(store, task):
                yield _for_spark(worker.columns(found, fields, task.fields), fields)


def _answer(work: Callable[[], Any]) -> pa.RecordBatch:
    """What `work` returns, pickled in one row; so too an error that trying again would not mend."""
    try:
        found = work()
    except (InvalidInput, UnsupportedFeature) as error:
        found = type(error)(*error.args)
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(found)], pa.binary())], names=["answer"])


def _for_spark(batch: pa.RecordBatch, fields: tuple[Field, ...]) -> pa.RecordBatch:
    """Timestamps in microseconds and times in nanoseconds, the only units that Spark takes, bytes of any length; at any depth."""
    columns = [_micros(batch.column(i), each.type) for i, each in enumerate(fields)]
    return pa.RecordBatch.from_arrays(columns, names=[each.name for each in fields])


def _micros(array: pa.Array, type: Type) -> pa.Array:
    match type:
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as kind):
            return casts.normal(array, scalar(kind, 6), "")
        case Scalar(Kind.TIME | Kind.TIME_MICROS):
            return array.cast(pa.time64("ns"))
        case Scalar(Kind.FIXED | Kind.UUID):
            return array.cast(pa.binary())
        case _ if not any(_kind(each.type) in _RETYPED for each in walk((Field(NO_ID, "", type),))):
            return array
        case Row(parts):
            children = [_micros(array.field(i), each.type) for i, each in enumerate(parts)]
            held = pa.struct([pa.field(each.name, child.type) for each, child in zip(parts, children, strict=True)])
            return casts.struct(array, children, held)
        case ListOf(element):
            items = _micros(casts.items(array), element.type)
            return casts.relist(array, pa.list_(items.type), items)
        case MapOf(key, value):
            keys, values = casts.entries(array)
            keys, values = _micros(keys, key.type), _micros(values, value.type)
            return casts.remap(array, pa.map_(keys.type, values.type), keys, values)
        case MultisetOf(element):
            keys, values = casts.entries(array)
            keys = _micros(keys, element.type)
            return casts.remap(array, pa.map_(keys.type, values.type), keys, values)
    raise AssertionError(type)


# --- On the driver. ---


@contextmanager
def _cancelled_with_caller(spark: SparkSession) -> Iterator[None]:
    """When the caller is stopped, so are the jobs that it started inside."""
    tag = f"lakeformat-{uuid.uuid4()}"
    spark.addTag(tag)
    try:
        yield
    except BaseException:
        with suppress(Exception):
            spark.interruptTag(tag)
        raise
    finally:
        with suppress(Exception):
            spark.removeTag(tag)


@contextmanager
def _listed_by_driver(spark: SparkSession, paths: Sequence[str]) -> Iterator[None]:
    """Local files are looked at one by one, where Spark would start a job with a task for each."""
    if not all(_scheme(path) == "file" for path in paths):
        yield
        return
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    with _configured(spark, name, str(max(int(spark.conf.get(name) or 0), len(paths)))):
        yield


@contextmanager
def _in_large_batches(spark: SparkSession) -> Iterator[None]:
    """Rows go to Python in batches of up to 64 MB (`maxBytesPerBatch`) instead of 10,000 rows, unless the session has a
    number of its own, or is too old to bound their bytes."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    if spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch", None) is None or spark.conf.get(name) != "10000":
        yield
        return
    with _configured(spark, name, "100000"):
        yield


@contextmanager
def _unbroadcast(spark: SparkSession) -> Iterator[None]:
    """Spark broadcasts nothing by its own guess: rows that come out of Python have no size that it knows, so that it would
    take the largest table for a small one."""
    with _configured(spark, "spark.sql.autoBroadcastJoinThreshold", "-1"):
        yield


@contextmanager
def _configured(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """The session with another setting for a while."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before or "")


def _mapped(frame: DataFrame, work: Work, schema: T.StructType | str) -> DataFrame:
    """`mapInArrow` also where names have dots in them, which it does not take."""
    numbered = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
    return numbered.mapInArrow(partial(_renamed, tuple(frame.columns), work), schema)


def _named(collect: Callable[[], Any]) -> Any:
    """What `collect` gives. A mistake that a task before the last one found is told by its name, not as Spark's error."""
    try:
        return collect()
    except Exception as error:
        found = re.search(r"lakeformat\.errors\.(InvalidInput|OutsideScope|UnsupportedFeature): (.*)", str(error))
        if found is None:
            raise
        raise getattr(errors, found[1])(found[2]) from error


def _files(answer: Any) -> list[WrittenFile]:
    match answer:
        case (int(), made):
            return _files(made)
        case Made(files, beside):
            return [*files, *beside]
        case list(files):
            return files
        case _:
            return []


def _settled(places: KeyPlaces) -> KeyPlaces:
    return replace(places, tasks=(), is_settled=True, only_removes=False)


def _nullable(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(replace(each, nullable=True) for each in fields)


def _distributed(frame: DataFrame, task: WriteTask) -> DataFrame:
    """Rows of one partition and bucket to few tasks, where that is worth a shuffle: for buckets, and where it is asked for.

    Without, a task writes a file for each partition that it has rows of, as Spark's own writer does.
    """
    if task.keyed is not None and (task.keyed.index or task.keyed.places):  # One task knows all keys of a partition.
        partition = [F.col(_quoted(each.source)) for each in task.partition_by]
        return frame.repartition(*partition) if partition else frame.repartition(1)
    if task.distribution == "none" or (task.distribution == "auto" and task.bucket is None):
        return frame
    if task.distribution == "range":
        return _ranged(frame, task)
    there = set(frame.columns)
    columns = [_partition_key(task, each) for each in task.partition_by if each.source in there]
    names = [_quoted(name) for name in frame.columns]
    if task.bucket is not None and set(task.bucket.columns) <= there:
        columns.append(_bucket(frame, task, task.bucket))
    keys = {f"_lakeformat_key_{place}": column for place, column in enumerate(columns)}
    if not keys:
        return frame
    found = frame.withColumns(keys)
    if task.bucket is not None and task.keyed is not None and len(keys) == 1 and hasattr(frame, "repartitionById"):
        # By hash two buckets of two may well meet in one task, and all others wait.
        count = min(task.bucket.count, int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200))
        return found.repartitionById(count, F.col(*keys)).select(*names)
    if task.keyed is not None:  # All rows of a key to one task, however many there are.
        return found.repartition(*(F.col(name) for name in keys)).select(*names)
    return found.hint("rebalance", *(F.col(name) for name in keys)).select(*names)


_FEW_BYTES = 64 << 20  # As Spark guesses, up to which the driver writes the rows of a keyed table.
_GUESSED = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
_BOUNDED = {  # Steps of a plan that make no more rows than they get.
    *("Range", "LocalRelation", "Relation", "LogicalRDD", "Project", "Filter", "Union", "Aggregate", "Window", "Sort"),
    *("GlobalLimit", "LocalLimit", "Repartition", "RepartitionByExpression", "RebalancePartitions"),
}


def _guessed_bytes(frame: DataFrame) -> float:
    """How many bytes Spark's optimizer takes the rows for; infinite where it has no bound."""
    found = frame.sparkSession.sql("EXPLAIN COST SELECT * FROM {frame}", frame=frame).collect()[0][0]
    plan = found.partition("== Physical Plan ==")[0]
    size = re.search(r"Statistics\(sizeInBytes=([\d.E+]+) (\w+)", plan)
    if size is None or size[2] not in _GUESSED or not set(re.findall(r"^[ :+-]*(\w+)", plan, re.M)) <= _BOUNDED:
        return float("inf")
    return float(size[1]) * _GUESSED[size[2]]


def _ranged(frame: DataFrame, task: WriteTask, count: int | None = None) -> DataFrame:
    """Rows to `count` tasks by ranges of what the write sorts by: partitions, then its order."""
    names = frame.columns
    order = [each for each in worker.ordering(task) if all(_reaches(frame.schema, path) for path in _paths(each))]
    if not order:
        return frame
    keys = {f"{_OURS}key_{place}": _order_key(task, each) for place, each in enumerate(order)}
    directed = [_directed(F.col(name), each) for name, each in zip(keys, order, strict=True)]
    found = frame.withColumns(keys)
    found = found.repartitionByRange(*directed) if count is None else found.repartitionByRange(count, *directed)
    return found.select(*map(_quoted, names))


def _paths(by: Sort) -> tuple[tuple[str, ...], ...]:
    return by.sources if isinstance(by, ZOrder) else (by.source,)


def _order_key(task: WriteTask, by: Sort) -> Column:
    """What stands in the order asked for; where Spark cannot have it, what rows of like value are near by."""
    first, *inside = _paths(by)[0]
    column = reduce(lambda held, part: held.getField(part), inside, F.col(_quoted(first)))
    if isinstance(by, ZOrder):
        names = tuple(dict.fromkeys(path[0] for path in by.sources))
        work = partial(worker.order_key, task=task, by=by)
        return _by_rows(work, names, scalar(Kind.BYTES)) if hasattr(F, "arrow_udf") else column
    if by.transform.kind is TransformKind.IDENTITY or not hasattr(F, "arrow_udf"):
        return F.hash(column) if by.transform.kind is TransformKind.BUCKET else column
    kind = transform.result_type(by.transform, find_part(task.fields, by.source).type)
    return _by_rows(partial(worker.order_key, task=task, by=by), by.source[:1], kind)


def _reaches(kind: T.DataType, path: tuple[str, ...]) -> bool:
    """Whether the path leads to a column or a part of one."""
    if not path:
        return True
    return isinstance(kind, T.StructType) and path[0] in kind.names and _reaches(kind[path[0]].dataType, path[1:])


def _directed(column: Column, by: Sort) -> Column:
    if by.descending:
        return column.desc_nulls_last() if by.nulls_last else column.desc_nulls_first()
    return column.asc_nulls_last() if by.nulls_last else column.asc_nulls_first()


def _partition_key(task: WriteTask, by: PartitionField) -> Column:
    """What is the same for rows of the same partition."""
    if by.transform.kind is TransformKind.IDENTITY:
        return F.col(_quoted(by.source))
    return _by_rows(partial(worker.partition_keys, task=task, by=by), (by.source,), scalar(Kind.BYTES))


def _bucket(frame: DataFrame, task: WriteTask, rule: BucketRule) -> Column:
    """The bucket of each row: told by Spark itself where it can hash the key as Paimon does, which spares each row a way to Python
    and back."""
    fields = [find_field(task.fields, name) for name in rule.columns]
    found = [_words(frame.schema[each.name].dataType, F.col(_quoted(each.name)), each.type) for each in fields]
    words = [each for each in found if each is not None]
    if rule.function != "default" or len(fields) > _HEADED or len(words) < len(fields):
        return _by_rows(partial(worker.buckets, task=task), rule.columns, scalar(Kind.INT))
    row = F.unhex(F.concat(F.lit("00" * 8), *words))
    return F.abs(F.hash(row) % F.lit(rule.count))  # Spark's hash of bytes in whole words is Paimon's, with its seed.


_HEADED = 56  # Columns of a BinaryRow whose header is eight bytes.
_WIDTHS = {
    Kind.TINYINT: 1,
    Kind.SMALLINT: 2,
    Kind.INT: 4,
    Kind.BIGINT: 8,
    Kind.DATE: 4,
}  # Bytes of their eight that are used.


def _words(found: T.DataType, column: Column, type: Type) -> Column | None:
    """The eight bytes of a BinaryRow that hold the column, lowest first, in hexadecimal digits; None for a type of which Spark
    does not tell them. A null, which keys do not have, counts as 0."""
    kind = _kind(type)
    if kind not in _WIDTHS or found != _PLAIN[kind]:
        return None
    number = F.coalesce((F.unix_date(column) if kind is Kind.DATE else column).cast("bigint"), F.lit(0).cast("bigint"))
    if _WIDTHS[kind] < 8:
        number = number.bitwiseAND(F.lit((1 << 8 * _WIDTHS[kind]) - 1).cast("bigint"))
    # Backwards, digits are in the order of the bytes wanted once the two of each byte are swapped.
    low = F.lit(0x0F0F0F0F0F0F0F0F)
    swapped = F.shiftleft(number.bitwiseAND(low), 4).bitwiseOR(F.shiftrightunsigned(number, 4).bitwiseAND(low))
    return F.reverse(F.lpad(F.hex(swapped), 16, "0"))


def _by_rows(work: Callable[[pa.RecordBatch], pa.Array], names: tuple[str, ...], type: Type) -> Column:
    """What `work` makes of these columns, where Spark can have it (4.1 and later); else a hash of them, which is the same
    for the same values."""
    columns = [F.col(_quoted(name)) for name in names]
    if not hasattr(F, "arrow_udf"):
        return F.hash(*columns)
    nothing = to_arrow(type)

    def worked(*found: pa.Array) -> pa.Array:
        try:
            return work(pa.RecordBatch.from_arrays(list(found), names=list(names)))
        except InvalidInput:  # The writer says what is wrong with these rows.
            return pa.nulls(len(found[0]), nothing)

    worked.__annotations__ = {"found": pa.Array, "return": pa.Array}  # Spark reads types, not their names.
    return F.arrow_udf(worked, spark_type(type))(*columns)


def _assignable(frame: DataFrame, fields: tuple[Field, ...]) -> DataFrame:
    """Timestamps with and without a zone become each other by the session's zone, as in Spark's own INSERT."""
    wanted = {each.name: each.type for each in fields}
    columns = []
    for each in frame.schema:
        column = F.col(_quoted(each.name))
        if each.name in wanted:
            zoned = _zoned(each.dataType, wanted[each.name])
            column = column if zoned == each.dataType else column.cast(zoned).alias(each.name)
        columns.append(column)
    return frame.select(*columns)


def _zoned(found: T.DataType, wanted: Type) -> T.DataType:
    """`found` with timestamps zoned or not as in `wanted`, at any depth."""
    match found, wanted:
        case ((T.TimestampType() | T.TimestampNTZType()), Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as kind)):
            return _PLAIN[kind]
        case T.ArrayType(), ListOf(element):
            return T.ArrayType(_zoned(found.elementType, element.type), found.containsNull)
        case T.MapType(), MapOf(key, value):
            return T.MapType(
                _zoned(found.keyType, key.type), _zoned(found.valueType, value.type), found.valueContainsNull
            )
        case T.StructType(), Row(parts):
            types = {part.name: part.type for part in parts}
            return T.StructType(
                [
                    T.StructField(each.name, _zoned(each.dataType, types[each.name]), each.nullable, each.metadata)
                    if each.name in types
                    else each
                    for each in found
                ]
            )
    return found


def _arrow_of(schema: T.StructType) -> pa.Schema:
    """A Spark schema as the Arrow schema that `mapInArrow` hands over, but for units and zones."""
    return pa.schema([pa.field(each.name, to_arrow(_logical(each.dataType))) for each in schema])


def _field_of(each: T.StructField) -> Field:
    return Field(NO_ID, each.name, _logical(each.dataType), each.nullable, (each.metadata or {}).get("comment"))


def _logical(type: T.DataType) -> Type:
    match type:
        case T.CharType() | T.VarcharType():
            return scalar(Kind.CHAR if isinstance(type, T.CharType) else Kind.VARCHAR, type.length)
        case T.DecimalType():
            return scalar(Kind.DECIMAL, type.precision, type.scale)
        case T.ArrayType():
            return ListOf(Field(NO_ID, "element", _logical(type.elementType), type.containsNull))
        case T.MapType():
            key = Field(NO_ID, "key", _logical(type.keyType), nullable=False)
            return MapOf(key, Field(NO_ID, "value", _logical(type.valueType), type.valueContainsNull))
        case T.StructType():
            return Row(tuple(_field_of(each) for each in type))
    if hasattr(T, "TimeType") and isinstance(type, T.TimeType):
        return scalar(Kind.TIME, type.precision)
    found = _LOGICAL.get(type.__class__)
    if found is None:
        raise UnsupportedFeature(f"Spark type {type.simpleString()} has no table type; cast the column first")
    return found


def _spark_field(each: Field) -> T.StructField:
    return T.StructField(each.name, spark_type(each.type), each.nullable)


def _constant(value: Any, type: Type) -> Column:
    array = casts.constant(value, type, 1)
    if _kind(type) in _INSTANTS:
        # As text: a Python datetime would go through the driver's own zone.
        array = casts.normal(array, scalar(Kind.TIMESTAMP, 6), "").cast(pa.string())
        text = array[0].as_py()
        zone = "Z" if text is not None and _kind(type) is Kind.TIMESTAMP_TZ else ""
        return F.lit(None if text is None else text + zone).cast(spark_type(type))
    return F.lit(array[0].as_py()).cast(spark_type(type))


def _kind(type: Type) -> Kind | None:
    return type.kind if isinstance(type, Scalar) else None


def _digits(type: Type) -> int:
    match type:
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)):
            return digits
    return 0


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _unglobbed(location: str) -> str:
    """A location in which nothing is a pattern to Spark."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", location)


def _scheme(location: str) -> str:
    return location.partition(":")[0]


def _clean(task: ReadTask) -> bool:
    """Whether Spark's own reader gives the rows that the worker would."""
    if task.merge or any(task.deletes) or task.file_fields is None or task.file_format not in ("parquet", "orc"):
        return False
    if {FILE, POSITION, BUCKET} & set(task.fields):
        return False
    held = {each.id: each for each in task.file_fields}
    constants = dict(task.constants)
    for each in task.fields:
        if each.id in constants or each.id not in held:
            continue
        if not _widens(held[each.id].type, each.type):
            return False
        kinds = {_kind(part.type) for part in walk((held[each.id],))}
        if kinds & {Kind.TIME, Kind.TIME_MICROS, Kind.VARIANT}:
            return False
        if any(_digits(part.type) > 6 for part in walk((held[each.id],))):
            return False
        if task.file_format == "orc" and kinds & {*_INSTANTS, Kind.CHAR}:
            return False
    return True


def _widens(held: Type, wanted: Type) -> bool:
    """Whether Spark's cast from `held` is exact; nested columns only where nothing changed."""
    if held == wanted:
        return True
    match held, wanted:
        case Scalar(have), Scalar(want) if have in _INTEGERS and want in _INTEGERS:
            return _INTEGERS.index(have) <= _INTEGERS.index(want)
        case Scalar(Kind.FLOAT), Scalar(Kind.DOUBLE):
            return True
        case Scalar(Kind.DECIMAL, (precision, scale)), Scalar(Kind.DECIMAL, (wider, finer)):
            return finer >= scale and wider - finer >= precision - scale
        case Scalar(Kind.CHAR | Kind.VARCHAR), Scalar(Kind.STRING):
            return True
    return False


def _plain_timestamps(store: Reader, fields: tuple[Field, ...], path: str) -> bool:
    try:
        with store.open(path) as source:
            return parquet.plain_timestamps(source, fields)
    except Exception:  # The worker says what is wrong with the file.
        return False
