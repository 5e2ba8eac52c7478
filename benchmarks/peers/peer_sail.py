"""Sail's side of the benchmarks: a Delta table by SQL, its server in this process. Each timed verb returns wall and
processor seconds."""

from __future__ import annotations

import gc
import time

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession
from serve import serve

_server = SparkConnectServer("127.0.0.1", 0)
_server.start()
_, _port = _server.listening_address
_spark = SparkSession.builder.remote(f"sc://127.0.0.1:{_port}").getOrCreate()


def load(source: str, location: str) -> int:
    """A table with the rows of the Parquet files in `source`, partitioned by their first column; how many it holds."""
    rows = _spark.read.parquet(source)
    rows.write.format("delta").partitionBy(rows.columns[0]).save(location)
    return _spark.read.format("delta").load(location).count()


def merge(location: str, changes: str, key: list[str], updated: list[str], rows: int) -> list[float]:
    """Merge the rows of a Parquet file: `updated` columns of those whose `key` is there, all of the others."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    _spark.read.parquet(changes).createOrReplaceTempView("changes")
    _spark.sql(
        f"merge into delta.`{location}` t using changes s on {' and '.join(f't.{name} = s.{name}' for name in key)} "
        f"when matched then update set {', '.join(f'{name} = s.{name}' for name in updated)} "
        "when not matched then insert *"
    ).collect()
    took = [time.perf_counter() - wall, time.process_time() - processor]
    found = _spark.read.format("delta").load(location).count()
    assert found == rows, found
    return took


VERBS = (load, merge)
serve({verb.__name__: verb for verb in VERBS})
_spark.stop()
_server.stop()
