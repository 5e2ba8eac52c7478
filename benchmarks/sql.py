"""`lake.sql` against what it stands on: DuckDB over the same files, the scan's own Spark frame,
and the verb of a MERGE.

Measured in processor time, of this process and of Spark's: what else the machine does changes it little.
`LAKEFORMAT_BENCH_ROWS` makes it smaller.
"""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks import spark_overwrite
from benchmarks.measure import Figure, by_turns
from lakeformat import Lake
from lakeformat.table import Table

ROWS = int(os.environ.get("LAKEFORMAT_BENCH_ROWS", "10000000"))
RUNS = 9
_CHANGED = ROWS // 50
_QUERY = "SELECT name, count(*) AS n, sum(amount) AS total, max(id) AS last FROM {0} WHERE amount > 100 GROUP BY name"


def run(folder: Path) -> Iterator[Figure]:
    lake = Lake(str(folder / "lake"))
    for format in ("paimon", "iceberg"):
        table = lake.create_table(f"bench.{format}", rows(1, 0).schema, format=format)
        for part in range(4):
            table.append(rows(ROWS // 4, part))
        yield _select(lake, table)
    yield _merge(lake, folder)
    spark = spark_overwrite.session()
    try:
        for format in ("paimon", "iceberg"):
            yield _select_on_spark(spark, lake, lake.table(f"bench.{format}"))
    finally:
        spark.stop()


def rows(count: int, part: int) -> pa.Table:
    """An id, one of 1,000 names and a random amount."""
    random = np.random.default_rng(part)
    names = pa.array([f"user-{i}" for i in range(1000)])
    return pa.table(
        {
            "id": np.arange(part * count, (part + 1) * count),
            "name": names.take(pa.array(random.integers(0, 1000, count))),
            "amount": random.random(count) * 1000,
        }
    )


def _select(lake: Lake, table: Table) -> Figure:
    files = [
        f"{table.uri}/{stored_file.path}".removeprefix("file://")
        for stored_file in table.stored_files()
        if stored_file.path.endswith(".parquet")
    ]

    kept = duckdb.connect()  # As ours is, from one query to the next.

    def theirs() -> pa.Table:
        with kept.cursor() as connection:
            return connection.execute(_QUERY.format("read_parquet($files)"), {"files": files}).to_arrow_table()

    def ours() -> pa.Table:
        return lake.sql(_QUERY.format(table.name)).to_arrow()

    assert _summed(ours()) == _summed(theirs())
    what = f"SELECT over {ROWS:,} rows of {table.format} in process"
    return by_turns(what, "DuckDB over the same files", 1.1, lambda: _cpu(ours), lambda: _cpu(theirs), RUNS)


def _summed(found: pa.Table) -> tuple[object, ...]:
    return len(found), sum(found["n"].to_pylist()), max(found["last"].to_pylist())


def _merge(lake: Lake, folder: Path) -> Figure:
    numbers, home = count(), folder / "lake" / "bench.db"
    base = lake.create_table("bench.keyed", rows(1, 0).schema, primary_key=["id"], properties={"bucket": "2"})
    base.append(rows(ROWS // 10, 0))
    source = rows(_CHANGED, 0).set_column(2, "amount", pa.array(np.full(_CHANGED, 1.5)))

    def fresh() -> Table:
        """The table in a folder of its own; no file of a table ever changes."""
        name = f"keyed_{next(numbers)}"
        shutil.copytree(home / "keyed", home / name, copy_function=os.link)
        return lake.table(f"bench.{name}")

    def by_sql() -> float:
        table = fresh()
        text = (
            f"MERGE INTO {table.name} t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED "
            "THEN INSERT *"
        )
        return _cpu(lambda: lake.sql(text, source=source))

    def by_verb() -> float:
        chain = fresh().merge_into(source, on="t.id = s.id")
        return _cpu(lambda: chain.when_matched().update_all().when_not_matched().insert_all().merge())

    return by_turns(f"MERGE {_CHANGED:,} rows in process", "the verb", 1.1, by_sql, by_verb, RUNS)


def _select_on_spark(spark: SparkSession, lake: Lake, table: Table) -> Figure:
    def ours() -> object:
        return lake.sql(_QUERY.format(table.name), spark=spark).to_spark().collect()

    def theirs() -> object:
        frame = table.scan().to_spark(spark).where("amount > 100").groupBy("name")
        return frame.agg(F.count("*").alias("n"), F.sum("amount").alias("total"), F.max("id").alias("last")).collect()

    assert len(ours()) == len(theirs())  # type: ignore[arg-type]
    what = f"SELECT over {ROWS:,} rows of {table.format} on Spark"
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    return by_turns(what, "scan().to_spark()", 1.05, lambda: _cpu(ours, jvm), lambda: _cpu(theirs, jvm), RUNS)


def _cpu(work: Callable[[], object], other: int | None = None) -> float:
    """Seconds of processor time, with those of another process."""
    gc.collect()
    before = time.process_time() + _of(other)
    work()
    return time.process_time() + _of(other) - before


def _of(process: int | None) -> float:
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
