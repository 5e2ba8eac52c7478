"""lakeformat on Spark behind the judge's protocol, in a process of its own so that its JVM ends with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from pyspark.sql import SparkSession

from lakeformat import Lake
from tests.judge.engines.protocol import rows, serve
from tests.judge.ours import Ours

os.environ["PYSPARK_PYTHON"] = sys.executable
session = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "3")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
session.sparkContext.setLogLevel("ERROR")
ours = Ours(session)


def verb(name: str) -> Callable[[dict], Any]:
    return lambda request: ours.ask(**{**request, "verb": name})


def sql(request: dict) -> Any:
    """The rows of a statement."""
    return rows(lake(request["warehouse"]).sql(request["text"], spark=session).to_arrow())


lake = cache(Lake)
serve({**{name: verb(name) for name in ("write", "steps", "read", "describe")}, "sql": sql})
session.stop()
