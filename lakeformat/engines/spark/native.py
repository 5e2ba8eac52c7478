"""Files that Spark reads itself, since they need nothing that only the worker does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeformat.engines import worker
from lakeformat.engines.files import parquet
from lakeformat.engines.files.formats import opened
from lakeformat.engines.kernels import casts
from lakeformat.engines.spark import session
from lakeformat.engines.spark.frames import quoted
from lakeformat.engines.spark.reachable import Reach, unglobbed
from lakeformat.engines.spark.types import digits_of, kind_of, spark_field, spark_type
from lakeformat.expression.spark_sql import is_plain, to_sql
from lakeformat.model.predicate import ALWAYS
from lakeformat.model.schema import Field, Kind, Row, Scalar, Type, rebuild, scalar, walk
from lakeformat.model.work import BUCKET, FILE, POSITION, FilesTask, MergeTask, ReadTask
from lakeformat.storage.store import Reader

# (columns of a file, (field id, value) of requested columns that it lacks)
_Footer = tuple[tuple[Field, ...], tuple[tuple[int, Any], ...]]

_NEEDS_OF_FILES = ("keys", "deletes", "taken_by", "beside")  # Attributes by which a file needs the worker.
_FEW_FILES = 1_000
_LARGE_FILE_BYTES = 1 << 20
_THREADS = 8  # More where requests take long.

_INTEGERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)


def parted(store: Reader, tasks: Sequence[ReadTask], reach: Reach) -> tuple[list[list[FilesTask]], list[ReadTask]]:
    """(groups of tasks that Spark reads together, tasks for the worker)."""
    groups: dict[Any, list[FilesTask]] = {}
    rest: list[ReadTask] = [task for task in tasks if isinstance(task, MergeTask)]
    divided = list(_divided([task for task in tasks if isinstance(task, FilesTask)]))
    for task, has_footers in _described(store, divided, reach):
        if _clean(task) and _is_reachable(store, task, reach):
            key = (task.file_format, task.file_fields, task.fields, task.predicate, task.constants, has_footers)
            groups.setdefault(key, []).append(task)
        else:
            rest.append(task)
    native = []
    for key, group in groups.items():
        timed = [field for field in key[1] if any(kind_of(part.type) in _INSTANTS for part in walk((field,)))]
        if timed and not key[-1]:  # The types of footers are those of the files.
            paths = [path for task in group for path in task.paths]
            work = partial(_plain_timestamps, store, tuple(timed))
            plain = dict(zip(paths, store.several(work, paths, _THREADS), strict=True))
            rest += [task for task in group if not all(plain[path] for path in task.paths)]
            group = [task for task in group if all(plain[path] for path in task.paths)]
        if group:
            native.append(group)
    return native, rest


def read(spark: SparkSession, store: Reader, group: Sequence[FilesTask], reach: Reach) -> DataFrame:
    """The rows of tasks that differ only in their files."""
    task = group[0]
    assert task.file_fields is not None, task
    file_fields = {file_field.id: file_field for file_field in task.file_fields}
    constants = dict(task.constants)
    wanted = [file_fields[field.id] for field in task.fields if field.id in file_fields and field.id not in constants]
    reader = (
        spark.read.schema(T.StructType([spark_field(field) for field in wanted]))
        .option("recursiveFileLookup", "true")  # No columns from folder names.
        .option("ignoreMissingFiles", "false")
        .option("ignoreCorruptFiles", "false")
        .option("mergeSchema", "false")
    )
    if task.file_format == "parquet":
        reader = reader.option("datetimeRebaseMode", "CORRECTED").option("int96RebaseMode", "CORRECTED")
    locations = (reach.uri(store.location(path), task.file_format) for task in group for path in task.paths)
    paths = [unglobbed(location) for location in locations if location is not None]
    with session.listing(spark, paths):
        frame = reader.format(task.file_format).load(paths)
    columns: list[Column | str] = []  # Names where a name says all: each step of an expression is a call to the JVM.
    for field in task.fields:
        if field.id in constants:
            column = _constant(constants[field.id], field.type)
        elif field.id in file_fields:
            file_field = file_fields[field.id]
            if (file_field.name, file_field.type) == (field.name, field.type):
                columns.append(quoted(field.name))
                continue
            column = F.col(quoted(file_field.name))
            if file_field.type != field.type:
                column = column.cast(spark_type(field.type))
        else:
            column = F.lit(None).cast(spark_type(field.type))
        columns.append(column.alias(field.name))
    frame = frame.select(*columns)
    return frame if task.predicate == ALWAYS else frame.filter(F.expr(to_sql(task.predicate)))


def _constant(value: Any, type: Type) -> Column:
    array = casts.constant(value, type, 1)
    if kind_of(type) in _INSTANTS:
        # As text: a Python datetime would be converted by the driver's zone.
        array = casts.normal(array, scalar(Kind.TIMESTAMP, 6), "").cast(pa.string())
        text = array[0].as_py()
        zone = "Z" if text is not None and kind_of(type) is Kind.TIMESTAMP_TZ else ""
        return F.lit(None if text is None else text + zone).cast(spark_type(type))
    return F.lit(array[0].as_py()).cast(spark_type(type))


def _is_reachable(store: Reader, task: FilesTask, reach: Reach) -> bool:
    return all(reach.uri(store.location(path), task.file_format) is not None for path in task.paths)


def _divided(tasks: Sequence[FilesTask]) -> Iterator[FilesTask]:
    """The tasks; one of which some files need the worker as two, so that Spark may read the others."""
    for task in tasks:
        needs = [values for name in _NEEDS_OF_FILES if (values := getattr(task, name))]
        worked = [index for index in range(len(task.paths)) if any(values[index] for values in needs)]
        if not 0 < len(worked) < len(task.paths):
            yield task
        else:
            yield task.of_files(worked)
            yield task.of_files(sorted(set(range(len(task.paths))) - set(worked)))


def _described(store: Reader, tasks: Sequence[FilesTask], reach: Reach) -> Iterator[tuple[FilesTask, bool]]:
    """The tasks, and whether their `file_fields` come from footers: where files have field ids, those that Spark can
    read by name get them.

    Footers are read where files are few, or large enough that a footer takes little of the time to read them.
    """
    unknown = [
        task
        for task in tasks
        if task.file_fields is None and task.file_format == "parquet" and _is_row_by_row(task)
        if _is_reachable(store, task, reach)
    ]
    count = sum(len(task.paths) for task in unknown)
    if count > _FEW_FILES and sum(task.size_bytes for task in unknown) < count * _LARGE_FILE_BYTES:
        unknown = []
    ids = {id(task) for task in unknown}
    footers = store.several(
        lambda file: _footer(store, *file),
        ((task, index) for task in unknown for index in range(len(task.paths))),
        _THREADS,
    )
    for task in tasks:
        if id(task) in ids:
            yield from _by_footers(task, list(islice(footers, len(task.paths))))
        else:
            yield task, False


def _by_footers(task: FilesTask, footers: Sequence[_Footer | None]) -> Iterator[tuple[FilesTask, bool]]:
    """The task in parts: the files with the same footer together, those without one as they were."""
    alike: dict[_Footer | None, list[int]] = {}
    for index, footer in enumerate(footers):
        alike.setdefault(footer, []).append(index)
    for footer, indexes in alike.items():
        part = task.of_files(indexes)
        if footer is not None:
            file_fields, constants = footer
            part = replace(part, file_fields=file_fields, constants=constants, absent=(), mapping=(), positions=())
        yield part, footer is not None


def _footer(store: Reader, task: FilesTask, index: int) -> _Footer | None:
    """The columns of a file with the table's field ids, and the values of requested columns that it lacks. None if
    Spark would not find them by name, or not read them as the worker does: the worker also raises the errors."""
    try:
        file_fields = worker.fields_of(opened(store, task.paths[index], task.file_format), task)
    except Exception:
        return None
    if _has_twins(file_fields):
        return None
    in_file = {field.id: field for field in file_fields}
    absent = dict(task.absent[index]) if task.absent else {}
    read_fields, constants = [], []
    for field in task.fields:
        if field.id in in_file:
            same = _bare(in_file[field.id].type) == _bare(field.type)
            read_fields.append(replace(in_file[field.id], type=field.type) if same else in_file[field.id])
        elif field.id in absent:
            constants.append((field.id, absent[field.id]))
        elif not field.nullable or any(part.id in absent or part.initial is not None for part in walk((field,))):
            return None
    footer = tuple(read_fields), tuple(constants)
    described = replace(task.of_files([index]), file_fields=footer[0], constants=footer[1])
    return footer if _clean(described) else None


def _bare(type: Type) -> Type:
    """The type with the ids of its fields, and the names of those of rows, alone: elements have a name of their own in
    each writer's files."""
    is_row = isinstance(type, Row)
    return rebuild(type, lambda part: Field(part.id, part.name if is_row else "", _bare(part.type)))


def _has_twins(fields: tuple[Field, ...]) -> bool:
    """Whether names in one row differ in case alone: Spark would take one for the other."""
    rows = [fields, *(part.type.fields for part in walk(fields) if isinstance(part.type, Row))]
    return any(len({field.name.casefold() for field in row}) < len(row) for row in rows)


def _is_row_by_row(task: FilesTask) -> bool:
    """Whether rows come from one file each, as they stand there."""
    return not (
        any(any(getattr(task, name)) for name in _NEEDS_OF_FILES)
        or task.lineage
        or {FILE, POSITION, BUCKET} & set(task.fields)
    )


def _clean(task: FilesTask) -> bool:
    """Whether Spark's own reader returns the same rows as the worker."""
    if task.file_fields is None or task.file_format not in ("parquet", "orc"):
        return False
    if not _is_row_by_row(task) or not is_plain(task.predicate, task.fields):
        return False
    file_fields = {file_field.id: file_field for file_field in task.file_fields}
    constants = dict(task.constants)
    for field in task.fields:
        if field.id in constants or field.id not in file_fields:
            continue
        if not _widens(file_fields[field.id].type, field.type):
            return False
        kinds = {kind_of(part.type) for part in walk((file_fields[field.id],))}
        if kinds & {Kind.TIME, Kind.TIME_MICROS, Kind.UUID, Kind.FIXED, Kind.VARIANT, Kind.GEOMETRY, Kind.GEOGRAPHY}:
            return False
        if any(digits_of(part.type) > 6 for part in walk((file_fields[field.id],))):
            return False
        if task.file_format == "orc" and kinds & {*_INSTANTS, Kind.CHAR}:
            return False
    return True


def _widens(stored: Type, read_type: Type) -> bool:
    """Whether Spark's cast from `stored` is exact; nested columns must be unchanged."""
    if stored == read_type:
        return True
    match stored, read_type:
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
    except Exception:  # The worker raises the error for the file.
        return False
