"""Distribution of rows over Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeformat.codec.arrow import to_arrow
from lakeformat.engines import worker
from lakeformat.engines.spark.frames import OURS, quoted
from lakeformat.engines.spark.session import is_sail, sends_by_number
from lakeformat.engines.spark.types import PLAIN, kind_of, spark_type
from lakeformat.errors import InvalidInput
from lakeformat.model.partition import Curve, PartitionField, Sort, TransformKind
from lakeformat.model.schema import Kind, Type, find_field, find_part, result_type, scalar
from lakeformat.model.work import BucketRule, WriteTask

_HEADED = 56  # Columns of a BinaryRow whose header is eight bytes.
# Bytes of their eight that are used.
_WIDTHS = {
    Kind.TINYINT: 1,
    Kind.SMALLINT: 2,
    Kind.INT: 4,
    Kind.BIGINT: 8,
    Kind.DATE: 4,
}


def distributed(frame: DataFrame, task: WriteTask) -> DataFrame:
    """Rows of a partition and bucket in few tasks, where that is worth a shuffle: for buckets, and if the table asks
    for it.

    Without it, a task writes a file for each partition that it has rows of, like Spark's own writer.
    """
    if task.keyed is not None and (task.keyed.index or task.keyed.places):  # One task knows all keys of a partition.
        partition = [F.col(quoted(by.source)) for by in task.partition_by]
        return frame.repartition(*partition) if partition else frame.repartition(1)
    if task.keyed is not None and task.keyed.waits:  # Rows of a key keep their order.
        return frame.repartition(*(F.col(quoted(name)) for name in task.keyed.merge.key))
    if task.distribution == "none" or (task.distribution == "auto" and task.bucket is None):
        return frame
    if task.distribution == "range":
        return ranged(frame, task)
    frame_columns = set(frame.columns)
    columns = [_partition_key(task, by) for by in task.partition_by if by.source in frame_columns]
    names = [quoted(name) for name in frame.columns]
    if task.bucket is not None and set(task.bucket.columns) <= frame_columns:
        columns.append(_bucket(frame, task, task.bucket))
    keys = {f"_lakeformat_key_{index}": column for index, column in enumerate(columns)}
    if not keys:
        return frame
    if task.bucket is None and all(by.transform.kind is TransformKind.IDENTITY for by in task.partition_by):
        # Without a copy of each key in the shuffled rows.
        is_whole = task.keyed is not None or is_sail(frame.sparkSession)
        return frame.repartition(*columns) if is_whole else frame.hint("rebalance", *columns)
    keyed = frame.withColumns(keys)
    if task.bucket is not None and task.keyed is not None and len(keys) == 1 and sends_by_number(frame):
        # By hash two buckets of two may well meet in one task, and all others wait.
        count = min(task.bucket.count, int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200))
        return keyed.repartitionById(count, F.col(*keys)).select(*names)
    if task.keyed is not None or is_sail(frame.sparkSession):  # All rows of a key to one task, however many they are.
        return keyed.repartition(*(F.col(name) for name in keys)).select(*names)
    return keyed.hint("rebalance", *(F.col(name) for name in keys)).select(*names)


def ranged(frame: DataFrame, task: WriteTask, count: int | None = None) -> DataFrame:
    """Rows in `count` tasks by ranges of the write's sort key: partitions, then its order."""
    names = frame.columns
    order = [by for by in worker.ordering(task) if all(_reaches(frame.schema, path) for path in _paths(by))]
    if not order:
        return frame
    keys = {f"{OURS}key_{index}": _order_key(task, by) for index, by in enumerate(order)}
    directed = [_directed(F.col(name), by) for name, by in zip(keys, order, strict=True)]
    keyed = frame.withColumns(keys)
    keyed = keyed.repartitionByRange(*directed) if count is None else keyed.repartitionByRange(count, *directed)
    return keyed.select(*map(quoted, names))


def _paths(by: Sort) -> tuple[tuple[str, ...], ...]:
    return by.sources if isinstance(by, Curve) else (by.source,)


def _order_key(task: WriteTask, by: Sort) -> Column:
    """The sort key, if Spark can compute it; otherwise a key by which similar rows are near each other."""
    first, *inside = _paths(by)[0]
    column = reduce(lambda parent, part: parent.getField(part), inside, F.col(quoted(first)))
    if isinstance(by, Curve):
        names = tuple(dict.fromkeys(path[0] for path in by.sources))
        work = partial(worker.order_key, task=task, by=by)
        return _by_rows(work, names, scalar(Kind.BYTES)) if hasattr(F, "arrow_udf") else column
    if by.transform.kind is TransformKind.IDENTITY or not hasattr(F, "arrow_udf"):
        return F.hash(column) if by.transform.kind is TransformKind.BUCKET else column
    kind = result_type(by.transform, find_part(task.fields, by.source).type)
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
    """A key that is equal for rows of the same partition."""
    if by.transform.kind is TransformKind.IDENTITY:
        return F.col(quoted(by.source))
    return _by_rows(partial(worker.partition_keys, task=task, by=by), (by.source,), scalar(Kind.BYTES))


def _bucket(frame: DataFrame, task: WriteTask, rule: BucketRule) -> Column:
    """The bucket of each row, computed by Spark itself if it can hash the key as Paimon does, which saves the rows a
    way through Python."""
    fields = [find_field(task.fields, name) for name in rule.columns]
    hashed = [_words(frame.schema[field.name].dataType, F.col(quoted(field.name)), field.type) for field in fields]
    words = [column for column in hashed if column is not None]
    is_hashable = rule.function == "default" and len(fields) <= _HEADED and len(words) == len(fields)
    if not is_hashable or is_sail(frame.sparkSession):  # Sail's `abs` knows no lowest number.
        return _by_rows(partial(worker.buckets, task=task), rule.columns, scalar(Kind.INT))
    row = F.unhex(F.concat(F.lit("00" * 8), *words))
    return F.abs(F.hash(row) % F.lit(rule.count))  # Spark's hash of bytes in whole words is Paimon's, with its seed.


def _words(stored: T.DataType, column: Column, type: Type) -> Column | None:
    """The eight bytes of a BinaryRow with the column, lowest first, in hexadecimal; None for a type that Spark cannot
    convert. A null, which keys do not have, counts as 0."""
    kind = kind_of(type)
    if kind not in _WIDTHS or stored != PLAIN[kind]:
        return None
    number = F.coalesce((F.unix_date(column) if kind is Kind.DATE else column).cast("bigint"), F.lit(0).cast("bigint"))
    if _WIDTHS[kind] < 8:
        number = number.bitwiseAND(F.lit((1 << 8 * _WIDTHS[kind]) - 1).cast("bigint"))
    # Backwards, digits are in the order of the bytes wanted once the two of each byte are swapped.
    low = F.lit(0x0F0F0F0F0F0F0F0F)
    swapped = F.shiftleft(number.bitwiseAND(low), 4).bitwiseOR(F.shiftrightunsigned(number, 4).bitwiseAND(low))
    return F.reverse(F.lpad(F.hex(swapped), 16, "0"))


def _by_rows(work: Callable[[pa.RecordBatch], pa.Array], names: tuple[str, ...], type: Type) -> Column:
    """The results of `work` for these columns, if Spark has Arrow UDFs (4.1 and later); otherwise a hash, which is
    equal for equal values."""
    columns = [F.col(quoted(name)) for name in names]
    if not hasattr(F, "arrow_udf"):
        return F.hash(*columns)
    nothing = to_arrow(type)

    def worked(*array: pa.Array) -> pa.Array:
        try:
            return work(pa.RecordBatch.from_arrays(list(array), names=list(names)))
        except InvalidInput:  # The writer raises the error for these rows.
            return pa.nulls(len(array[0]), nothing)

    worked.__annotations__ = {"array": pa.Array, "return": pa.Array}  # Spark reads types, not their names.
    return F.arrow_udf(worked, spark_type(type))(*columns)
