"""Dynamic overwrite and scan through Spark: tables of both formats against plain Spark Parquet, in one session.

All write the same DataFrame of 10,000,000 rows and 30 partitions, read from Parquet, and replace what is there; of two
shapes. `LAKEFORMAT_BENCH_ROWS` makes it smaller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Figure, both, timed
from lakeformat import Lake

ROWS = int(os.environ.get("LAKEFORMAT_BENCH_ROWS", "10000000"))
PARTITIONS = 30
RUNS = int(os.environ.get("LAKEFORMAT_BENCH_RUNS", "5"))
PLAIN = "plain Spark Parquet"


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows made of an id: SQL by the names of columns, the partition first."""

    name: str
    columns: dict[str, str]
    files: int

    @property
    def partition(self) -> str:
        return next(iter(self.columns))

    @property
    def number(self) -> str:
        return next(name for name in ("amount", "value") if name in self.columns)

    def source(self, spark: SparkSession, path: str) -> DataFrame:
        """`ROWS` of them out of Parquet files, which are written here."""
        made = [f"{sql} as {name}" for name, sql in self.columns.items()]
        spark.range(0, ROWS, 1, self.files).selectExpr(*made).write.parquet(path)
        return spark.read.parquet(path)

    def changes(self, spark: SparkSession, updates: int, inserts: int, turn: int = 0) -> DataFrame:
        """Rows of which the first have keys all over the table, and the others new ones each turn."""
        old = spark.range(updates).selectExpr(f"id * {ROWS // updates} as id")
        new = spark.range(inserts).selectExpr(f"id + {ROWS + (turn + 1) * 1_000_000} as id")
        changed = {"name": f"'changed {turn}'", self.number: "1.5D"}
        return old.union(new).selectExpr(*(f"{changed.get(name, sql)} as {name}" for name, sql in self.columns.items()))

    def totals(self, frame: DataFrame) -> tuple[object, ...]:
        """Of every column something that does not hang on the order of rows."""
        of = (F.sum("id"), F.sum(F.floor(self.number)), F.max("name"), F.max(self.partition))
        return tuple(frame.agg(F.count("*"), *of).first() or ())


MIXED = Shape(  # A day in no order, an id, one of 100,000 names and a random amount.
    "mixed",
    {
        "dt": f"date_add(date'2024-01-01', cast(pmod(hash(id), {PARTITIONS}) as int))",
        "id": "id",
        "name": "concat('user-', cast(pmod(hash(id, 7), 100000) as string))",
        "amount": "rand(1) * 1000",
    },
    files=2,
)
ORDERED = Shape(  # An id in order, one of 30 partitions, a double and one of 1,000 names, in one file.
    "ordered",
    {
        "part": f"cast(id % {PARTITIONS} as int)",
        "id": "id",
        "value": "cast(id as double) / 7",
        "name": "concat('name-', cast(pmod(hash(id), 1000) as string))",
    },
    files=1,
)
SHAPES = (MIXED, ORDERED)


def run(folder: Path) -> Iterator[Figure]:
    """Figures for overwriting all partitions, and for scanning all columns."""
    spark = session()
    try:
        for shape in SHAPES:
            yield from _figures(spark, shape, folder / shape.name)
    finally:
        spark.stop()


def _figures(spark: SparkSession, shape: Shape, folder: Path) -> Iterator[Figure]:
    source, plain = shape.source(spark, str(folder / "source")), str(folder / "plain")
    lake, parted = Lake(str(folder / "lake")), [shape.partition]
    paimon, iceberg = (
        lake.create_table(f"bench.{format}", source.schema, partition_by=parted, format=format)
        for format in ("paimon", "iceberg")
    )

    def overwrite_plain() -> None:
        source.write.partitionBy(shape.partition).mode("overwrite").parquet(plain)

    yield from both(
        f"overwrite {ROWS:,} {shape.name} rows over {PARTITIONS} partitions, paimon", PLAIN, 1.0,
        lambda: timed(lambda: paimon.overwrite_partitions(source)), lambda: timed(overwrite_plain), RUNS,
    )  # fmt: skip
    iceberg.overwrite_partitions(source)
    for table in (paimon, iceberg):
        assert (
            shape.totals(source)
            == shape.totals(table.scan().to_spark(spark))
            == shape.totals(spark.read.parquet(plain))
        )
        yield from both(
            f"scan {ROWS:,} {shape.name} rows, {table.format}", PLAIN, 1.0,
            lambda table=table: timed(lambda: shape.totals(table.scan().to_spark(spark))),  # type: ignore[misc]
            lambda: timed(lambda: shape.totals(spark.read.parquet(plain))), 2 * RUNS,
        )  # fmt: skip


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
