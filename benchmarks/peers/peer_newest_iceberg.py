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


def ours(table: str, number: str, partition: str) -> list[float]:
    found = _started["lake"].table(table)
    return both_times(lambda: _totals(found.scan().to_spark(_started["spark"]), number, partition))


def theirs(table: str, number: str, partition: str) -> list[float]:
    """The same files through Iceberg's Hadoop catalog, which finds a namespace in a folder of its name."""
    spark = _started["spark"]
    name = table.replace(".", ".db`.`" if "." in table else ".")
    return both_times(lambda: _totals(spark.table(f"peer.`{name}`"), number, partition))


def _totals(frame: Any, number: str, partition: str) -> Any:
    """An aggregate over all columns."""
    return frame.agg(F.count("*"), F.sum("id"), F.sum(F.floor(number)), F.max("name"), F.max(partition)).first()


serve({"start": start, "ours": ours, "theirs": theirs})
if _started:
    _started["spark"].stop()
