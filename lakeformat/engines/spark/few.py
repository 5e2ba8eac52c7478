"""Few rows, which the driver writes itself: cheaper than a shuffle, or than starting Python workers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeformat.engines.spark import session
from lakeformat.model.work import MergeTask, ReadTask, RewriteTask

_FEW_BYTES = 64 << 20  # As Spark guesses, up to which the driver writes the rows of a keyed table.
_FEW_ROWS = 1_000_000
_WRITTEN_BYTES = 16 << 20  # The same, of a table without keys, whose rows need no shuffle.
_MULTIPLIED_BYTES = 32 << 20  # The same, of what is joined by equality or exploded, which may make more rows of few.
_REWRITTEN_BYTES = 64 << 20  # Of files, up to which the driver rewrites them.
_MERGED_BYTES = 256 << 20  # Of files, up to which the driver merges few rows into them.
_VARIANT = re.compile(r'[tT]ype":"variant"')
_GUESSED = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
_IN_MEMORY = 8  # Bytes for one of a file, as Spark counts it.
_MULTIPLYING = {"Join", "Generate"}
_BOUNDED = {  # Steps of a plan that make no more rows than they get, or few more.
    *_MULTIPLYING,
    *("Range", "LocalRelation", "Relation", "LogicalRDD", "Project", "Filter", "Union", "Aggregate", "Window", "Sort"),
    "WindowGroupLimit",
    *("GlobalLimit", "LocalLimit", "Repartition", "RepartitionByExpression", "RebalancePartitions"),
}
_STEP = re.compile(r"[ :+-]*(?P<name>\w+)(?P<detail>.*)")
_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.E+]+) (\w+)")
_EQUALS = re.compile(r"\S (=|<=>) ")


def rows(frame: DataFrame) -> pa.Table | None:
    """The rows if Spark estimates that they are few and they are; else None."""
    return collected(frame) if guessed_few(frame) else None


def rows_without_key(frame: DataFrame) -> pa.Table | None:
    """The same for a table without keys."""
    return collected(frame) if _WRITTEN_BYTES > 0 and guessed_bytes(frame) <= _WRITTEN_BYTES else None


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
    """Spark's estimate of the rows' size in bytes; infinite without a bound. Of a plan with joins, for which Spark
    multiplies sizes, and of one that explodes arrays, which it does not count, it is the size of what is joined and
    exploded, if that is at most `_MULTIPLIED_BYTES`."""
    lines = [_STEP.match(line) for line in _costs(frame).partition("== Physical Plan ==")[0].splitlines()]
    steps = [_Step(step.start("name"), step["name"], step["detail"]) for step in lines if step]
    names = {step.name for step in steps}
    if any(step.name not in _BOUNDED or (step.name == "Join" and not _EQUALS.search(step.detail)) for step in steps):
        return float("inf")
    multiplies = not _MULTIPLYING.isdisjoint(names)
    counted = _multiplied(steps) if multiplies else steps[:1]
    sizes = [size for step in counted if (size := _SIZE.search(step.detail)) and size[2] in _GUESSED]
    if not sizes or len(sizes) < len(counted):
        return float("inf")
    guess = sum(float(size[1]) * _GUESSED[size[2]] for size in sizes) * (_IN_MEMORY if "Relation" in names else 1)
    return guess if not multiplies or guess <= _MULTIPLIED_BYTES else float("inf")


class _Step(NamedTuple):
    """A step of a plan, of which `depth` is the indentation."""

    depth: int
    name: str
    detail: str


def _costs(frame: DataFrame) -> str:
    """What `EXPLAIN COST` says of a frame."""
    if session.is_connect(frame.sparkSession):
        return str(frame.sparkSession.sql("EXPLAIN COST SELECT * FROM {frame}", frame=frame).collect()[0][0])
    return str(frame._jdf.queryExecution().stringWithStats())  # The statement would plan the frame twice.


def _multiplied(steps: Sequence[_Step]) -> list[_Step]:
    """Of a plan's steps, parents first: the topmost of those below which nothing is joined or exploded."""
    topmost, index = [], 0
    while index < len(steps):
        step = steps[index]
        after = range(index + 1, len(steps))
        end = next((n for n in after if steps[n].depth <= step.depth), len(steps))
        if any(below.name in _MULTIPLYING for below in steps[index:end]):
            index += 1
        else:
            topmost.append(step)
            index = end
    return topmost
