"""Files that Spark reads itself, since they need nothing that only the worker does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeformat.codec.spark_sql import is_plain, to_sql
from lakeformat.engines.files import parquet
from lakeformat.engines.kernels import casts
from lakeformat.engines.spark import session
from lakeformat.engines.spark.frames import quoted
from lakeformat.engines.spark.types import digits_of, kind_of, spark_field, spark_type
from lakeformat.model.predicate import ALWAYS
from lakeformat.model.schema import Field, Kind, Scalar, Type, scalar, walk
from lakeformat.model.work import BUCKET, FILE, POSITION, ReadTask
from lakeformat.storage.store import Reader

_INTEGERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)


def parted(
    store: Reader, tasks: Sequence[ReadTask], schemes: Sequence[str]
) -> tuple[list[list[ReadTask]], list[ReadTask]]:
    """(groups of tasks that Spark reads together, tasks for the worker)."""
    groups: dict[Any, list[ReadTask]] = {}
    rest = []
    for task in tasks:
        if _clean(task) and all(_scheme(store.location(path)) in schemes for path in task.paths):
            key = (task.file_format, task.file_fields, task.fields, task.predicate, task.constants)
            groups.setdefault(key, []).append(task)
        else:
            rest.append(task)
    native = []
    for key, group in groups.items():
        timed = [field for field in key[1] if any(kind_of(part.type) in _INSTANTS for part in walk((field,)))]
        if timed:
            paths = [path for task in group for path in task.paths]
            with ThreadPoolExecutor(8) as pool:
                plain = dict(zip(paths, pool.map(partial(_plain_timestamps, store, tuple(timed)), paths), strict=True))
            rest += [task for task in group if not all(plain[path] for path in task.paths)]
            group = [task for task in group if all(plain[path] for path in task.paths)]
        if group:
            native.append(group)
    return native, rest


def read(spark: SparkSession, store: Reader, group: Sequence[ReadTask]) -> DataFrame:
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
    paths = [_unglobbed(store.location(path)) for task in group for path in task.paths]
    with session.listed_by_driver(spark, paths):
        frame = reader.format(task.file_format).load(paths)
    columns = []
    for field in task.fields:
        if field.id in constants:
            column = _constant(constants[field.id], field.type)
        elif field.id in file_fields:
            column = F.col(quoted(file_fields[field.id].name))
            if file_fields[field.id].type != field.type:
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


def _unglobbed(location: str) -> str:
    """A location in which Spark finds no pattern."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", location)


def _scheme(location: str) -> str:
    return location.partition(":")[0]


def _clean(task: ReadTask) -> bool:
    """Whether Spark's own reader returns the same rows as the worker."""
    if (
        task.merge
        or any(task.keys)
        or any(task.deletes)
        or any(task.beside)
        or task.lineage
        or task.file_fields is None
        or task.file_format not in ("parquet", "orc")
    ):
        return False
    if {FILE, POSITION, BUCKET} & set(task.fields) or not is_plain(task.predicate, task.fields):
        return False
    file_fields = {file_field.id: file_field for file_field in task.file_fields}
    constants = dict(task.constants)
    for field in task.fields:
        if field.id in constants or field.id not in file_fields:
            continue
        if not _widens(file_fields[field.id].type, field.type):
            return False
        kinds = {kind_of(part.type) for part in walk((file_fields[field.id],))}
        if kinds & {Kind.TIME, Kind.TIME_MICROS, Kind.VARIANT, Kind.GEOMETRY, Kind.GEOGRAPHY}:
            return False
        if any(digits_of(part.type) > 6 for part in walk((file_fields[field.id],))):
            return False
        if task.file_format == "orc" and kinds & {*_INSTANTS, Kind.CHAR}:
            return False
    return True


def _widens(stored: Type, wanted: Type) -> bool:
    """Whether Spark's cast from `stored` is exact; nested columns must be unchanged."""
    if stored == wanted:
        return True
    match stored, wanted:
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
