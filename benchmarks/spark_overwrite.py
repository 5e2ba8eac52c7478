"""Dynamic overwrite and scan through Spark: a Paimon table against plain Spark Parquet, in one session.

Both write the same DataFrame of 10,000,000 rows, 4 columns and 30 partitions, read from Parquet in no order of its
partitions; both replace what is there. `LAKEFORMAT_BENCH_ROWS` makes it smaller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Figure, by_turns, seconds
from lakeformat import Lake

ROWS = int(os.environ.get("LAKEFORMAT_BENCH_ROWS", "10000000"))
PARTITIONS = 30
RUNS = 5


def run(folder: Path) -> Iterator[Figure]:
    """Figures for overwriting all partitions, and for scanning all columns."""
    spark = session()
    try:
        source = source_of(spark, str(folder / "source"))
        plain = str(folder / "plain")
        table = Lake(str(folder / "lake")).create_table("bench.events", source.schema, partition_by=["dt"])

        def overwrite_plain() -> None:
            source.write.partitionBy("dt").mode("overwrite").parquet(plain)

        yield by_turns(
            f"overwrite {ROWS:,} rows over {PARTITIONS} partitions",
            "plain Spark Parquet",
            1.0,
            lambda: seconds(lambda: table.overwrite_partitions(source)),
            lambda: seconds(overwrite_plain),
            RUNS,
        )
        assert totals(source) == totals(table.scan().to_spark(spark)) == totals(spark.read.parquet(plain))
        yield by_turns(
            f"scan {ROWS:,} rows",
            "plain Spark Parquet",
            1.1,
            lambda: seconds(lambda: totals(table.scan().to_spark(spark))),
            lambda: seconds(lambda: totals(spark.read.parquet(plain))),
            2 * RUNS,
        )
    finally:
        spark.stop()


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    found = (
        SparkSession.builder.master("local[2]")
        .appName("spark_overwrite")
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")  # As the peers have it.
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.sources.partitionOverwriteMode", "dynamic")
        .getOrCreate()
    )
    found.sparkContext.setLogLevel("ERROR")
    return found


def source_of(spark: SparkSession, path: str) -> DataFrame:
    """A day, an id, one of 100,000 names and a random amount."""
    spark.range(0, ROWS, 1, 2).select(
        F.expr(f"date_add(date'2024-01-01', cast(pmod(hash(id), {PARTITIONS}) as int))").alias("dt"),
        F.col("id"),
        F.expr("concat('user-', cast(pmod(hash(id, 7), 100000) as string))").alias("name"),
        F.expr("rand(1) * 1000").alias("amount"),
    ).write.parquet(path)
    return spark.read.parquet(path)


def totals(frame: DataFrame) -> tuple[object, ...]:
    """Of every column something that does not hang on the order of rows."""
    return tuple(
        frame.agg(F.count("*"), F.sum("id"), F.sum(F.floor("amount")), F.max("name"), F.max("dt")).first() or ()
    )
