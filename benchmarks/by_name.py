"""Tables by name (`format("lakeformat")`, rows through Python's workers) against `to_spark` and the verbs, in one session.

Two shapes of 10,000,000 rows: the benchmark's, and an id in order with 30 integer partitions, a double and 1,000 names.
`LAKEFORMAT_BENCH_ROWS` makes them smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import spark_overwrite
from benchmarks.measure import Figure, by_turns, seconds
from benchmarks.spark_overwrite import PARTITIONS, ROWS
from lakeformat import Lake

RUNS = 5


def run(folder: Path) -> Iterator[Figure]:
    """For each shape: all columns, one column of one partition, and an overwrite of all partitions."""
    spark = spark_overwrite.session()
    try:
        lake = Lake(str(folder / "lake"))
        lake.attach(spark, [])
        source = spark_overwrite.source_of(spark, str(folder / "random"))
        yield from figures(lake, source, "bench.random", "dt", "amount")
        yield from figures(lake, in_order(spark, str(folder / "in_order")), "bench.in_order", "part", "value")
    finally:
        spark.stop()


def figures(lake: Lake, source: DataFrame, name: str, parted: str, number: str) -> Iterator[Figure]:
    spark = source.sparkSession
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

    def totals(frame: DataFrame) -> tuple[object, ...]:
        return tuple(
            frame.agg(F.count("*"), F.sum("id"), F.sum(F.floor(number)), F.max("name"), F.max(parted)).first() or ()
        )

    assert totals(by_name()) == totals(fast())
    yield by_turns(
        f"{name}: read all columns of {ROWS:,} rows by name", "scan().to_spark()", 2.0,
        lambda: seconds(lambda: totals(by_name())), lambda: seconds(lambda: totals(fast())), RUNS,
    )  # fmt: skip
    yield by_turns(
        f"{name}: read a number of one of {PARTITIONS} partitions", "scan(columns, where).to_spark()", 10.0,
        lambda: seconds(by_name().filter(f"{parted} = '{value}'").agg(F.sum(number)).first),
        lambda: seconds(table.scan([number], where=f"{parted} = '{value}'" if parted == "dt" else f"{parted} = {value}").to_spark(spark).agg(F.sum(number)).first),
        RUNS,
    )  # fmt: skip
    yield by_turns(
        f"{name}: overwrite {ROWS:,} rows over {PARTITIONS} partitions by name", "overwrite_partitions()", 1.5,
        lambda: seconds(write), lambda: seconds(lambda: table.overwrite_partitions(source)), RUNS,
    )  # fmt: skip


def in_order(spark: SparkSession, path: str) -> DataFrame:
    """An id in order, one of 30 partitions, a double and one of 1,000 names, in one file."""
    spark.range(0, ROWS, 1, 1).select(
        F.col("id"),
        F.expr(f"cast(id % {PARTITIONS} as int)").alias("part"),
        F.expr("cast(id as double) / 7").alias("value"),
        F.expr("concat('name-', cast(pmod(hash(id), 1000) as string))").alias("name"),
    ).write.parquet(path)
    return spark.read.parquet(path)
