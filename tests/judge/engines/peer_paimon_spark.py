"""Paimon's own connector 0.9 on Spark 3.5 behind the judge's protocol: any statement on the tables of a warehouse. The jar is its argument."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

import pyarrow as pa
from protocol import rows, serve
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

os.environ["PYSPARK_PYTHON"] = sys.executable
SESSION = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", sys.argv[1])
    .config("spark.sql.extensions", "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
SESSION.sparkContext.setLogLevel("ERROR")


@cache
def session(warehouse: str) -> SparkSession:
    """A session a warehouse, whose catalog is called `paimon` and is the current one, as on the connector's pages."""
    made = SESSION.newSession()
    made.conf.set("spark.sql.catalog.paimon", "org.apache.paimon.spark.SparkCatalog")
    made.conf.set("spark.sql.catalog.paimon.warehouse", f"file://{warehouse}")
    made.sql("USE paimon")
    return made


def run(request: dict) -> Any:
    """Run statements; the rows of the last."""
    spark = session(request["warehouse"])
    for statement in request["statements"]:
        found = spark.sql(statement)
    batches = found._collect_as_arrow()
    return rows(pa.Table.from_batches(batches) if batches else to_arrow_schema(found.schema).empty_table())


serve({"run": run})
