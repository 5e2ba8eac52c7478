"""A merge's source in files of its own; Spark does the joins."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeformat.codec.arrow import arrow_schema, fields_from_arrow
from lakeformat.engines import arrow, worker
from lakeformat.engines.engine import Decided, Engine, Source, Spread
from lakeformat.engines.row_level import outcomes
from lakeformat.engines.row_level.arrow_merge import typed, untyped_columns
from lakeformat.engines.row_level.merge_parts import MergeByParts, Staged, read_back
from lakeformat.engines.spark import executors, few, jobs, session
from lakeformat.engines.spark.frames import hinted, mapped, of_arrow, quoted
from lakeformat.engines.spark.types import fields_from_spark, kind_of, require_whole, spark_schema
from lakeformat.errors import InvalidInput, LakeError, UnsupportedFeature
from lakeformat.expression.spark_sql import to_sql
from lakeformat.model.dataclass import dataclass
from lakeformat.model.evolution import number
from lakeformat.model.merge import SOURCE, TARGET, Act, Group, Key, Merge, flat_name
from lakeformat.model.operation import RowCounts
from lakeformat.model.predicate import ALWAYS, Column, columns_of, functions_of
from lakeformat.model.schema import NO_ID, Field, Kind, find_field, scalar
from lakeformat.model.work import (
    FILE,
    POSITION,
    ROW_KIND,
    DeleteTask,
    FilesTask,
    Naming,
    OneFolder,
    ReadTask,
    RowKind,
    WriteTask,
    WrittenFile,
)
from lakeformat.storage.catalogued import files_of
from lakeformat.storage.store import Store

_PART_BYTES = 64 << 20  # Of the source in files, up to which a part of it is merged in a worker's memory.
_PART_ROWS = 10_000_000  # Of a source, up to which each worker holds it whole.
_SOME_WORKERS = 8  # Where the number is unknown.
_SMALL_BYTES = 8 << 20  # Of a merge's source in files, up to which every task is sent it.
_FEW_ROWS = 1_000_000  # Of a source, up to which the driver looks at its keys.
_PLAIN = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.STRING, Kind.VARCHAR, Kind.DATE)
_PLACE = (outcomes.FILE_NAME, outcomes.POSITION_NAME)


class FewRows:
    """A merge's source of few rows: of the driver if the files that it may change are small too, else of Spark's tasks,
    for which `for_tasks` makes it."""

    def __init__(self, here: Source, for_tasks: Callable[[], Source], untyped: frozenset[str]) -> None:
        self.fields, self.untyped = here.fields, untyped
        self._here, self._for_tasks = here, for_tasks
        self._source = here
        self._key: tuple[str, ...] = ()

    def keep_last(self, key: tuple[str, ...]) -> None:
        self._here.keep_last(key)
        self._key = key

    def spread(self, merge: Merge, limit: int) -> list[Spread]:
        return self._here.spread(merge, limit)

    def decide(self, merge: Merge, tasks: Sequence[FilesTask]) -> Decided:
        return self._chosen(tasks).decide(merge, tasks)

    def write(
        self,
        merge: Merge,
        decided: Decided,
        tasks: Sequence[FilesTask],
        layout: WriteTask,
        whole: bool,
        beside: Sequence[WriteTask] = (),
    ) -> list[WrittenFile]:
        return self._source.write(merge, decided, tasks, layout, whole, beside)

    def mark(self, merge: Merge, decided: Decided, layout: DeleteTask, deleted_only: bool = False) -> list[WrittenFile]:
        return self._source.mark(merge, decided, layout, deleted_only)

    def write_by_key(
        self, merge: Merge, tasks: Sequence[ReadTask], layout: WriteTask
    ) -> tuple[list[WrittenFile], RowCounts | None]:
        return self._chosen(tasks).write_by_key(merge, tasks, layout)

    def close(self) -> None:
        self._source.close()
        self._here.close()

    def _chosen(self, tasks: Sequence[ReadTask]) -> Source:
        if not few.to_merge(tasks):
            self._source = self._for_tasks()
            if self._key:
                self._source.keep_last(self._key)
        return self._source


class SparkSource:
    """A merge's source in files of its own, so that every read returns the same rows. Spark does the joins."""

    def __init__(
        self,
        spark: SparkSession,
        engine: Engine,
        store: Store,
        data: Any,
        layout: WriteTask,
        hints: tuple[Field, ...],
        untyped: frozenset[str],
    ) -> None:
        self._spark, self._engine, self._store = spark, engine, store
        self._folder = f"merge-{uuid.uuid4()}/bucket-0"
        self._task = WriteTask((), OneFolder(self._folder), naming=Naming(layout.naming.prefix))
        self._paths: list[str] = []
        self._key: tuple[str, ...] = ()  # Of rows that are equal in these columns only the last counts.
        self.untyped = untyped
        if not isinstance(data, DataFrame):
            pieces = list(arrow.batches(data, hints, layout.partition_by))
            table = pa.Table.from_batches(pieces) if pieces else arrow_schema(hints).empty_table()
            self.untyped, table = untyped_columns(table.schema), typed(table, hints)
            data = of_arrow(spark, table, spark_schema(fields_from_arrow(table.schema)))
        frame = hinted(data, hints)
        self.fields = fields_from_spark(frame.schema)
        fields, last = number(tuple(Field(NO_ID, f"c{i}", field.type) for i, field in enumerate(self.fields)), -1, True)
        row = Field(last + 1, outcomes.ROW, scalar(Kind.BIGINT))
        parted = _parted_as_table(self._task, layout, dict(zip((f.name for f in self.fields), fields, strict=True)))
        self._is_parted = parted is not None
        numbered = frame.toDF(*(field.name for field in fields)).withColumn(row.name, F.monotonically_increasing_id())
        layout = replace(parted or self._task, fields=(*fields, row))
        self._files = self._kept((*fields, row), engine.write(store, numbered, layout))
        self._by_parts: MergeByParts | None = None
        self._columns = {flat_name(SOURCE, f.name): h.name for f, h in zip(self.fields, fields, strict=True)}
        self._settings = ExitStack()
        self._settings.enter_context(session.unbroadcast(spark))

    def keep_last(self, key: tuple[str, ...]) -> None:
        self._key = key

    def spread(self, merge: Merge, limit: int) -> list[Spread]:
        """From the footers if there are many rows, so that the driver does not read them."""
        needed = sorted({name for key in merge.keys for name in columns_of(key.source)})
        if self._row_count > _FEW_ROWS:
            return [Spread(None) for _ in merge.keys]
        fields = tuple(find_field(self._files[0].fields, self._columns[name]) for name in needed) if self._files else ()
        batches = [
            batch.rename_columns(needed)
            for task in self._files
            for batch in worker.read(self._store, replace(task, fields=fields))
        ]
        empty = outcomes.named(SOURCE, arrow_schema(self.fields).empty_table()).select(needed)
        return outcomes.spread(
            merge,
            pa.concat_tables(
                [empty, *(pa.Table.from_batches([batch]) for batch in batches)], promote_options="permissive"
            ),
            limit,
        )

    def decide(self, merge: Merge, tasks: Sequence[FilesTask]) -> Decided:
        if sum(task.size_bytes for task in self._files) <= _PART_BYTES and self._row_count <= _PART_ROWS:
            staged = Staged(self.fields, tuple(self._files), self._key)
            self._by_parts = MergeByParts(self._store, staged, self._task, _Workers(self._spark, self._engine))
            return self._by_parts.decide(merge, tasks)
        self._require_joined(merge)
        source = self._small(self._source(merge.deciding(SOURCE)))
        kind = "left" if merge.clauses_of(Group.NOT_MATCHED_BY_SOURCE) else "inner"
        task = self._with(outcomes.DECISIONS)
        work = partial(executors.decide, files_of(self._store), merge, task)
        with session.evaluating(self._spark):
            rows = self._target(tasks, (*merge.deciding(TARGET), POSITION))
            rows = rows.join(source, F.expr(to_sql(merge.condition)), kind)
            written = [file for files in jobs.collected(self._spark, self._store, rows, work) for file in files]
        made = self._kept(outcomes.DECISIONS, written)
        decided = self._engine.read(self._store, made, outcomes.DECISIONS)
        file, row, position = (F.col(name) for name in (outcomes.FILE_NAME, outcomes.ROW, outcomes.POSITION_NAME))
        clauses = {act: [i for i, clause in enumerate(merge.clauses) if clause.act is act] for act in Act}
        choice = F.col(outcomes.CHOICE)
        per_file = (
            decided.groupBy(file)
            .agg(
                F.count(row).alias("matches"),
                F.countDistinct(F.when(row.isNotNull(), position)).alias("rows"),
                F.max(choice).alias("choice"),
                *(F.countDistinct(F.when(choice.isin(clauses[act]), position)) for act in (Act.UPDATE, Act.DELETE)),
            )
            .collect()
        )
        if merge.wants_one_match:
            for entry in per_file:
                if entry["matches"] > entry["rows"]:
                    again = decided.filter((file == entry[0]) & row.isNotNull()).groupBy(outcomes.POSITION_NAME)
                    twice = again.agg(F.count("*").alias("n"), F.min(row).alias("first")).filter("n > 1")
                    raise self._several(merge, twice.limit(1).collect()[0]["first"])
        touched = frozenset(entry[0] for entry in per_file if entry["choice"] >= 0)
        updated, deleted = (sum(entry[column] for entry in per_file) for column in (4, 5))
        return Decided(touched, decided, updated, deleted)

    def write(
        self,
        merge: Merge,
        decided: Decided,
        tasks: Sequence[FilesTask],
        layout: WriteTask,
        whole: bool,
        beside: Sequence[WriteTask] = (),
    ) -> list[WrittenFile]:
        if self._by_parts is not None:
            return self._by_parts.write(merge, decided, tasks, layout, whole, beside)
        if beside:
            raise UnsupportedFeature(
                f"merge_into that changes rows, of a Spark frame of more than {_PART_BYTES >> 20} MB or {_PART_ROWS} "
                "rows into a table with data evolution: merge it in pieces"
            )
        choices: DataFrame = decided.choices
        schema, frames = spark_schema(merge.target), []
        if tasks:
            chosen = choices.filter(F.col(outcomes.CHOICE) >= 0).dropDuplicates([*_PLACE])
            if assigning := merge.assigning(SOURCE):
                chosen = chosen.join(self._source(assigning), outcomes.ROW, "left")
            rows = (
                self._target(tasks, tasks[0].fields).join(chosen, [*_PLACE], "left" if whole else "inner").drop(*_PLACE)
            )
            frames.append(mapped(rows, partial(executors.results, merge, whole), schema))
        if merge.clauses_of(Group.NOT_MATCHED):
            matched = choices.select(outcomes.ROW).filter(F.col(outcomes.ROW).isNotNull()).distinct()
            rows = self._source(self.fields).join(matched, outcomes.ROW, "left_anti").drop(outcomes.ROW)
            frames.append(mapped(rows, partial(executors.inserted, merge), schema))
        if not frames:
            return []
        if layout.partition_by and layout.distribution in ("auto", "range"):
            # A join has spread each partition; ranges would ask it twice.
            layout = replace(layout, distribution="hash")
        return self._engine.write(self._store, reduce(DataFrame.unionAll, frames), layout)

    def mark(self, merge: Merge, decided: Decided, layout: DeleteTask, deleted_only: bool = False) -> list[WrittenFile]:
        if self._by_parts is not None:
            return self._by_parts.mark(merge, decided, layout, deleted_only)
        assert not deleted_only, merge  # Only with `beside`, which `write` refuses.
        choices: DataFrame = decided.choices
        rows = choices.filter(F.col(outcomes.CHOICE) >= 0).select(*_PLACE).distinct()
        if layout.per_file:
            rows = rows.repartition(F.col(outcomes.FILE_NAME))
        else:
            rows = rows.coalesce(1)
        work = partial(executors.marked, files_of(self._store), layout)
        return [file for files in jobs.collected(self._spark, self._store, rows, work) for file in files]

    def write_by_key(
        self, merge: Merge, tasks: Sequence[ReadTask], layout: WriteTask
    ) -> tuple[list[WrittenFile], RowCounts | None]:
        assert layout.keyed is not None, layout
        units = self._units(merge, tasks, layout)
        if units is not None:
            merged = jobs.each(self._spark, self._store, units, partial(executors.merged_by_key, merge, layout))
            numbers = ((counts.updated, counts.deleted, counts.inserted) for _, counts in merged)
            totals = (sum(column) for column in zip((0, 0, 0), *numbers, strict=True))
            return [file for files, _ in merged for file in files], RowCounts(*totals)
        self._require_joined(merge)
        columns = tuple(Field(i, f"c{i}", field.type) for i, field in enumerate((*merge.target, ROW_KIND)))
        fields = (*columns, Field(len(columns), outcomes.ROW, scalar(Kind.BIGINT)))
        key = (*layout.keyed.merge.key, *(by.source for by in layout.partition_by))
        read = merge.reading(key)
        names = [flat_name(TARGET, field.name) for field in read]
        needed = {f.name: f for f in (*merge.deciding(SOURCE), *merge.assigning(SOURCE))}
        kind = "left" if merge.clauses_of(Group.NOT_MATCHED_BY_SOURCE) else "inner"
        work = partial(executors.decide_by_key, files_of(self._store), merge, self._with(fields))
        with session.evaluating(self._spark):
            rows = self._engine.read(self._store, tasks, read).toDF(*names)
            source = self._small(self._source(tuple(needed.values())))
            rows = rows.join(source, F.expr(to_sql(merge.condition)), kind)
            written = [file for files in jobs.collected(self._spark, self._store, rows, work) for file in files]
        results = self._engine.read(self._store, self._kept(fields, written), fields)
        if merge.wants_one_match:
            same = [f.name for f, t in zip(columns, merge.target, strict=False) if t.name in key]
            twice = (
                results.filter(F.col(outcomes.ROW).isNotNull())
                .groupBy(*same)
                .agg(F.count("*").alias("n"), F.min(outcomes.ROW).alias(outcomes.ROW))
            )
            if several := twice.filter("n > 1").limit(1).collect():
                raise self._several(merge, several[0][outcomes.ROW])
        result_names = [field.name for field in (*merge.target, ROW_KIND)]
        changed = results.filter(F.col(columns[-1].name).isNotNull()).drop(outcomes.ROW).toDF(*result_names)
        if merge.clauses_of(Group.NOT_MATCHED):
            matched = results.select(outcomes.ROW).filter(F.col(outcomes.ROW).isNotNull()).distinct()
            rows = self._source(self.fields).join(matched, outcomes.ROW, "left_anti").drop(outcomes.ROW)
            fresh = mapped(rows, partial(executors.inserted, merge), spark_schema(merge.target))
            changed = changed.unionAll(fresh.withColumn(ROW_KIND.name, F.lit(RowKind.INSERT.short)))
        return self._engine.write(self._store, changed, layout), None

    def close(self) -> None:
        self._settings.close()
        with suppress(LakeError):
            self._store.delete([*self._paths, *(self._by_parts.paths if self._by_parts else ())])
            self._store.remove_empty_folders([self._folder])

    def _units(self, merge: Merge, tasks: Sequence[ReadTask], layout: WriteTask) -> list[executors.Unit] | None:
        """Parts of the source and the table by partition and bucket, or by bucket alone, each with all rows that match
        each other; None if matching or resulting rows may be elsewhere, or if a part may not fit in memory."""
        assert layout.keyed is not None, layout
        in_one = layout.bucket is None  # A partition's keys are known together, or wait for a bucket.
        by_partition = merge.keeps(by.source for by in layout.partition_by)
        if not self._is_parted or layout.keyed.places is not None:
            return None
        if not by_partition and (in_one or merge.clauses_of(Group.NOT_MATCHED)):
            return None
        if layout.bucket is not None and not merge.keeps(layout.bucket.columns):
            return None
        units: dict[Any, executors.Unit] = {}

        def unit(task: ReadTask) -> executors.Unit:
            key = (task.partition if by_partition else (), None if in_one else task.bucket)
            return units.setdefault(key, executors.Unit([], []))

        for file in self._files:
            unit(file).source.append(file)
        if any(sum(task.size_bytes for task in unit.source) > _PART_BYTES for unit in units.values()):
            return None
        for target in tasks:
            unit(target).target.append(target)
        every = bool(merge.clauses_of(Group.NOT_MATCHED_BY_SOURCE))
        return [unit for unit in units.values() if unit.source or every]

    @property
    def _row_count(self) -> int:
        return sum(task.row_count for task in self._files)

    def _require_joined(self, merge: Merge) -> None:
        """Raise `UnsupportedFeature` for what the session's own join cannot do."""
        if merge.rest != ALWAYS or not all(_is_plain(key, merge) for key in merge.keys):
            session.require_sparks_own(
                self._spark,
                f"a match of rows other than by equal columns of whole numbers, texts or dates, of more than "
                f"{_PART_BYTES >> 20} MB or {_PART_ROWS} rows",
                "match by such columns, or merge fewer rows at a time",
            )
        require_whole(merge.target)
        if any("canonical" in functions_of(key.target) for key in merge.keys):
            raise UnsupportedFeature(
                f"a change of rows by arrays or maps, of more than {_PART_BYTES >> 20} MB or {_PART_ROWS} distinct "
                "values on Spark: change them in pieces, by a condition on other columns"
            )

    def _small(self, source: DataFrame) -> DataFrame:
        """The source, broadcast if its files are small."""
        return source.hint("broadcast") if sum(task.size_bytes for task in self._files) <= _SMALL_BYTES else source

    def _source(self, fields: tuple[Field, ...]) -> DataFrame:
        """These columns and `ROW` of the rows that count."""
        frame = self._every(fields)
        if not self._key:
            return frame
        names = [quoted(flat_name(SOURCE, name)) for name in self._key]
        rows = self._every(tuple(find_field(self.fields, name) for name in self._key))
        last = rows.groupBy(*names).agg(F.max(outcomes.ROW).alias(outcomes.ROW)).select(outcomes.ROW)
        return frame.join(last, outcomes.ROW, "left_semi")

    def _every(self, fields: tuple[Field, ...]) -> DataFrame:
        names = [flat_name(SOURCE, field.name) for field in fields]
        source_fields = tuple(
            Field(NO_ID, self._columns[name], field.type) for name, field in zip(names, fields, strict=True)
        )
        row = Field(NO_ID, outcomes.ROW, scalar(Kind.BIGINT))
        tasks = [
            replace(task, fields=tuple(find_field(task.fields, field.name) for field in (*source_fields, row)))
            for task in self._files
        ]
        return self._engine.read(self._store, tasks, (*source_fields, row)).toDF(*names, row.name)

    def _target(self, tasks: Sequence[ReadTask], fields: tuple[Field, ...]) -> DataFrame:
        placed = [replace(task, fields=(*task.fields, FILE)) for task in tasks]
        frame = self._engine.read(self._store, placed, (*fields, FILE))
        names = {POSITION.name: outcomes.POSITION_NAME, FILE.name: outcomes.FILE_NAME}
        return frame.toDF(*(names.get(field.name) or flat_name(TARGET, field.name) for field in (*fields, FILE)))

    def _with(self, fields: tuple[Field, ...]) -> WriteTask:
        return replace(self._task, fields=fields)

    def _kept(self, fields: tuple[Field, ...], files: Sequence[WrittenFile]) -> list[ReadTask]:
        self._paths += [file.path for file in files]
        return [read_back(file, fields) for file in files]

    def _several(self, merge: Merge, row: int) -> InvalidInput:
        names = {name for key in merge.keys for name in columns_of(key.source)}
        keys = tuple(f for f in self.fields if flat_name(SOURCE, f.name) in names)
        example = self._source(keys).filter(F.col(outcomes.ROW) == row).drop(outcomes.ROW).collect()[0]
        return outcomes.several(merge, example.asDict())


@dataclass(frozen=True, slots=True)
class _Workers:
    """Spark's tasks, for a merge by parts."""

    spark: SparkSession
    engine: Engine

    @property
    def count(self) -> int:
        try:
            return int(self.spark.sparkContext.defaultParallelism)
        except Exception:  # Spark Connect does not expose it.
            return _SOME_WORKERS

    def each(self, store: Store, tasks: Sequence[Any], work: Callable[[Store, Any], Any]) -> list[Any]:
        return jobs.each(self.spark, store, tasks, work)

    def spread(self, store: Store, tasks: Sequence[ReadTask], layout: WriteTask) -> list[WrittenFile] | None:
        try:
            require_whole(layout.fields)
            frame = self.engine.read(store, tasks, tasks[0].fields)
        except UnsupportedFeature:  # Values that Spark cannot represent.
            return None
        if layout.partition_by and layout.distribution in ("auto", "range"):
            layout = replace(layout, distribution="hash")
        return self.engine.write(store, frame, layout)


def _is_plain(key: Key, merge: Merge) -> bool:
    """Whether the sides are columns of one type whose equality is the same everywhere."""
    sides = ((TARGET, merge.target), (SOURCE, merge.source))
    types = {flat_name(side, field.name): field.type for side, fields in sides for field in fields}
    match key.target, key.source:
        case Column((target,)), Column((source,)):
            return types[target] == types[source] and kind_of(types[target]) in _PLAIN
    return False


def _parted_as_table(task: WriteTask, layout: WriteTask, by_name: Mapping[str, Field]) -> WriteTask | None:
    """`task`, with rows distributed as in a table that merges rows by key; None if the source lacks the columns for
    that."""
    if layout.keyed is None:
        return None
    wanted = (*(by.source for by in layout.partition_by), *(layout.bucket.columns if layout.bucket else ()))
    for name in wanted:
        type = find_field(layout.fields, name).type
        # Equal values must have the same bucket, which -0.0 and 0.0, and numbers of other widths, do not.
        if name not in by_name or by_name[name].type != type or kind_of(type) in (Kind.FLOAT, Kind.DOUBLE):
            return None
    bucket = layout.bucket and replace(
        layout.bucket, columns=tuple(by_name[name].name for name in layout.bucket.columns)
    )
    partition_by = tuple(replace(by, source=by_name[by.source].name) for by in layout.partition_by)
    return replace(task, partition_by=partition_by, bucket=bucket, default_bucket=layout.default_bucket)
