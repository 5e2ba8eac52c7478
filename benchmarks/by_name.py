"""Tables by name (`format("lakeformat")`, rows through Python's workers)
against `to_spark` and the verbs, in one session.

Two shapes of 10,000,000 rows. `LAKEFORMAT_BENCH_ROWS` makes them smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import spark_overwrite
from benchmarks.measure import Figure, by_turns, seconds
from benchmarks.spark_overwrite import PARTITIONS, ROWS, SHAPES, Shape
from lakeformat import Lake

RUNS = 5


def run(folder: Path) -> Iterator[Figure]:
    """For each shape: all columns, one column of one partition, and an overwrite of all partitions."""
    spark = spark_overwrite.session()
    try:
        lake = Lake(str(folder / "lake"))
        lake.attach(spark, [])
        for shape in SHAPES:
            yield from _figures(lake, spark, shape, str(folder / shape.name))
    finally:
        spark.stop()


def _figures(lake: Lake, spark: SparkSession, shape: Shape, path: str) -> Iterator[Figure]:
    source, name, parted, number = shape.source(spark, path), f"bench.{shape.name}", shape.partition, shape.number
    table = lake.create_table(name, source.schema, partition_by=[parted])
    table.overwrite_partitions(source)
    (value,) = source.select(F.max(parted).cast("string")).first() or ()

    def by_name() -> DataFrame:
        return spark.read.format("lakeformat").load(name)

    def fast() -> DataFrame:
        return table.scan().to_spark(spark)

    def write() -> None:
        to = source.write.format("lakeformat").mode("overwrite")
        to.option("partitionOverwriteMode", "dynamic").save(name)

    assert shape.totals(by_name()) == shape.totals(fast())
    yield by_turns(
        f"{name}: read all columns of {ROWS:,} rows by name", "scan().to_spark()", 2.0,
        lambda: seconds(lambda: shape.totals(by_name())), lambda: seconds(lambda: shape.totals(fast())), RUNS,
    )  # fmt: skip
    where = f"{parted} = '{value}'" if parted == "dt" else f"{parted} = {value}"
    yield by_turns(
        f"{name}: read a number of one of {PARTITIONS} partitions", "scan(columns, where).to_spark()", 10.0,
        lambda: seconds(by_name().filter(where).agg(F.sum(number)).first),
        lambda: seconds(table.scan([number], where=where).to_spark(spark).agg(F.sum(number)).first),
        RUNS,
    )  # fmt: skip
    yield by_turns(
        f"{name}: overwrite {ROWS:,} rows over {PARTITIONS} partitions by name", "overwrite_partitions()", 1.5,
        lambda: seconds(write), lambda: seconds(lambda: table.overwrite_partitions(source)), RUNS,
    )  # fmt: skip
