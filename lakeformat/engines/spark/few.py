"""Few rows, which the driver writes itself: cheaper than a shuffle, or than starting Python workers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeformat.engines.spark import session
from lakeformat.model.work import MergeTask, ReadTask, RewriteTask

_FEW_BYTES = 64 << 20  # As Spark guesses, up to which the driver writes the rows of a keyed table.
_FEW_ROWS = 1_000_000
_REWRITTEN_BYTES = 64 << 20  # Of files, up to which the driver rewrites them.
_MERGED_BYTES = 256 << 20  # Of files, up to which the driver merges few rows into them.
_VARIANT = re.compile(r'[tT]ype":"variant"')
_GUESSED = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
_IN_MEMORY = 8  # Bytes for one of a file, as Spark counts it.
_BOUNDED = {  # Steps of a plan that make no more rows than they get.
    *("Range", "LocalRelation", "Relation", "LogicalRDD", "Project", "Filter", "Union", "Aggregate", "Window", "Sort"),
    *("GlobalLimit", "LocalLimit", "Repartition", "RepartitionByExpression", "RebalancePartitions"),
}


def rows(frame: DataFrame) -> pa.Table | None:
    """The rows if Spark estimates that they are few and they are; else None."""
    return collected(frame) if guessed_few(frame) else None


def collected(frame: DataFrame) -> pa.Table | None:
    """The rows if they are few, whatever Spark estimates; else None. Also None for variants, which Spark's `toArrow`
    fails to return where they are null."""
    if _VARIANT.search(frame.schema.json()):
        return None
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))  # Its number in its part of the frame.
    numbered = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
    try:
        with session.in_large_batches(frame.sparkSession), session.cancelled_with_caller(frame.sparkSession):
            few = numbered.filter(row <= _FEW_ROWS).toArrow()
    except Exception as error:
        if "spark.driver.maxResultSize" in str(error):  # Few rows, and large ones.
            return None
        raise
    return None if few.num_rows > _FEW_ROWS else few.rename_columns(frame.columns)


def to_rewrite(tasks: Sequence[RewriteTask]) -> bool:
    """Whether the files that the tasks read have few rows, and few bytes:
    fewer if their rows are in memory together."""
    reads = [read for task in tasks for read in chain(task.read, *task.older)]
    together = any(task.write.sort_by for task in tasks) or any(isinstance(read, MergeTask) for read in reads)
    size = sum(read.size_bytes for read in reads) * (_IN_MEMORY if together else 1)
    return size <= _REWRITTEN_BYTES and sum(read.row_count for read in reads) <= _FEW_ROWS


def to_merge(tasks: Sequence[ReadTask]) -> bool:
    """Whether the files of the table that few rows may change are small."""
    return sum(task.size_bytes for task in tasks) <= _MERGED_BYTES


def guessed_few(frame: DataFrame) -> bool:
    """Whether Spark estimates that the rows are few."""
    return guessed_bytes(frame) <= _FEW_BYTES


def guessed_bytes(frame: DataFrame) -> float:
    """Spark's estimate of the rows' size in bytes; infinite without a bound."""
    text = frame.sparkSession.sql("EXPLAIN COST SELECT * FROM {frame}", frame=frame).collect()[0][0]
    plan = text.partition("== Physical Plan ==")[0]
    size = re.search(r"Statistics\(sizeInBytes=([\d.E+]+) (\w+)", plan)
    steps = set(re.findall(r"^[ :+-]*(\w+)", plan, re.M))
    if size is None or size[2] not in _GUESSED or not steps <= _BOUNDED:
        return float("inf")
    return float(size[1]) * _GUESSED[size[2]] * (_IN_MEMORY if "Relation" in steps else 1)
