"""Iceberg's newest runtime, on the newest Spark that it is made for, and lakeformat in the same session: wall and
processor seconds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from serve import serve
from timing import both_times

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from lakeformat import Lake

_started: dict[str, Any] = {}


def start(warehouse: str, jar: str) -> str:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = sys.path[0]  # For the workers.
    settings = {
        "spark.jars": jar,
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.peer.type": "hadoop",
        "spark.sql.catalog.peer.warehouse": warehouse,
        "spark.sql.catalog.peer.cache-enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("peer")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    _started.update(spark=spark, lake=Lake(warehouse))
    return str(spark.version)


def create(table: str, source: str, partition: str) -> None:
    """A table of the peer's with the rows of a Parquet folder."""
    rows = _started["spark"].read.parquet(source)
    rows.writeTo(_peers(table)).using("iceberg").partitionedBy(F.col(partition)).create()


def overwrite_ours(table: str, source: str) -> list[float]:
    """Replace the partitions that the source has rows of."""
    lake, rows = _started["lake"], _started["spark"].read.parquet(source)
    return both_times(lambda: lake.table(table).overwrite_partitions(rows))


def overwrite_theirs(table: str, source: str) -> list[float]:
    rows = _started["spark"].read.parquet(source)
    return both_times(rows.writeTo(_peers(table)).overwritePartitions)


def files(table: str) -> int:
    """How many data files a table of the peer's has."""
    return int(_started["spark"].table(f"{_peers(table)}.files").count())


def scan_ours(table: str, number: str, partition: str) -> list[float]:
    spark, lake = _started["spark"], _started["lake"]
    return both_times(lambda: _totals(lake.table(table).scan().to_spark(spark), number, partition))


def scan_theirs(table: str, number: str, partition: str) -> list[float]:
    """The same files through Iceberg."""
    spark = _started["spark"]
    return both_times(lambda: _totals(spark.table(_peers(table)), number, partition))


def _peers(table: str) -> str:
    """The name in Iceberg's Hadoop catalog, which finds a namespace in a folder of its name."""
    namespace, name = table.split(".")
    return f"peer.`{namespace}.db`.`{name}`"


def _totals(frame: Any, number: str, partition: str) -> Any:
    """An aggregate over all columns."""
    return frame.agg(F.count("*"), F.sum("id"), F.sum(F.floor(number)), F.max("name"), F.max(partition)).first()


VERBS = (start, create, overwrite_ours, overwrite_theirs, files, scan_ours, scan_theirs)
serve({verb.__name__: verb for verb in VERBS})
if _started:
    _started["spark"].stop()
