"""Paimon tables with a primary key: against pypaimon in this process, and on Spark against plain Parquet."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks import spark_overwrite
from benchmarks.measure import Figure, by_turns, seconds
from benchmarks.peers.process import pypaimon
from lakeformat import Lake
from lakeformat.table import Table

ROWS, RUNS = 1_000_000, 5
KEY = ["region", "id"]
_PROPERTIES = {"bucket": "1", "write-only": "true", "file.format": "parquet", "file.compression": "zstd"}
_PYPAIMON, _PLAIN = "pypaimon 2.1", "plain Spark Parquet"


def run(folder: Path) -> Iterator[Figure]:
    yield from _in_process(folder / "here")
    yield from _on_spark(folder / "spark")


def rows(count: int, seed: int) -> pa.Table:
    """Rows in no order with two key columns and eight values; each seed has a good half of the same million keys."""
    random = np.random.default_rng(seed)
    ids = random.permutation(2 * ROWS)[:count]
    names = np.array([f"city {i}" for i in range(200)])
    return pa.table(
        {
            "region": np.array([f"r{i:02}" for i in range(50)])[ids % 50],
            "id": ids,
            "amount": random.normal(100.0, 20.0, count),
            "tax": random.normal(10.0, 2.0, count),
            "quantity": random.integers(0, 50, count, np.int32),
            "stock": random.integers(0, 5000, count),
            "city": names[random.integers(0, len(names), count)],
            "note": np.char.add("note ", random.integers(0, count, count).astype(str)),
            "open": random.integers(0, 2, count).astype(bool),
            "at": np.datetime64("2024-01-01T00:00:00", "us")
            + random.integers(0, 86_400_000_000, count).astype("m8[us]"),
        }
    )


def declared(lake: Lake, name: str) -> Table:
    return lake.create_table(name, rows(1, 0).schema, primary_key=KEY, properties=_PROPERTIES)


def _in_process(folder: Path) -> Iterator[Figure]:
    folder.mkdir(parents=True)
    source = folder / "rows.arrow"
    keep(rows(ROWS, 1), source)
    made = count()

    def written() -> float:
        table = declared(Lake(str(folder / f"written-{next(made)}"), fsync="false"), "bench.rows")
        with pa.memory_map(str(source)) as file:
            data = pa.ipc.open_file(file).read_all()
            return seconds(lambda: table.upsert(data))

    runs = declared(Lake(str(folder / "runs")), "bench.rows")
    for seed in range(RUNS):
        runs.upsert(rows(ROWS // RUNS, seed))

    def merged() -> float:
        return seconds(lambda: runs.scan().to_arrow())

    with pypaimon() as peer:
        ask = {"verb": "keyed_write", "source": str(source), "key": KEY, "properties": _PROPERTIES}
        yield by_turns(
            f"write {ROWS:,} rows by key",
            _PYPAIMON,
            1 / 15,
            written,
            lambda: peer.ask(**ask, warehouse=str(folder / f"theirs-{next(made)}")),
            runs=1,
        )
        yield by_turns(
            f"merge {RUNS} overlapping runs of {ROWS:,} rows",
            _PYPAIMON,
            1 / 15,
            merged,
            lambda: peer.ask(verb="keyed_read", warehouse=str(folder / "runs"), rows=runs.scan().count()),
            runs=1,
        )
    files = [str(folder / "runs" / "bench.db" / "rows" / path) for path in runs.inspect.files()["path"].to_pylist()]

    def compacted() -> float:
        copy = folder / f"compacted-{next(made)}"
        shutil.copytree(folder / "runs", copy)
        return seconds(lambda: Lake(str(copy), fsync="false").table("bench.rows").compact(full=True))

    def plainly() -> float:
        def work() -> None:
            read = pa.concat_tables([pq.read_table(file) for file in files])
            order = [("_KEY_region", "ascending"), ("_KEY_id", "ascending"), ("_SEQUENCE_NUMBER", "ascending")]
            pq.write_table(read.sort_by(order), folder / "plain.parquet", compression="zstd")

        return seconds(work)

    yield by_turns(f"compact {RUNS} runs", "PyArrow reads, sorts, writes", 2.0, compacted, plainly, runs=5)
    yield _memory(folder / "runs")


def _memory(warehouse: Path) -> Figure:
    """Peak memory of a merge read beyond that of a process that only imports, in bytes; to the section's size in memory."""
    peak, idle = (
        int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for code in (_MERGE.format(warehouse=warehouse), _IDLE)
    )
    section = sum(rows(ROWS // RUNS, seed).nbytes for seed in range(RUNS))
    return Figure("peak bytes of a merge read", "its section in memory", 3.0, (float(peak - idle),), (float(section),))


_PEAK = "print(next(int(line.split()[1]) << 10 for line in open('/proc/self/status') if line.startswith('VmHWM')))"
_IDLE = f"""
import lakeformat, pyarrow.parquet, pyarrow.dataset
{_PEAK}
"""
_MERGE = f"""
from lakeformat import Lake
for batch in Lake("{{warehouse}}").table("bench.rows").scan().to_batches():
    pass
{_PEAK}
"""


def _on_spark(folder: Path) -> Iterator[Figure]:
    spark = spark_overwrite.session()
    try:
        source = spark_overwrite.source_of(spark, str(folder / "source"))
        plain, made = str(folder / "plain"), count()
        lake = Lake(str(folder / "lake"))

        first = lake.create_table("bench.keyed", source.schema, primary_key=["id"], properties={"bucket": "2"})
        first.overwrite(source)
        home = folder / "lake" / "bench.db"

        def fresh() -> Table:
            """The table of all rows, in a folder of its own; no file of a table ever changes."""
            name = f"keyed_{next(made)}"
            shutil.copytree(home / "keyed", home / name, copy_function=os.link)
            return lake.table(f"bench.{name}")

        def plainly() -> float:
            return seconds(lambda: source.write.mode("overwrite").parquet(plain))

        def upserted() -> float:
            table = fresh()
            changed = _changes(spark, 400_000, 0)
            return seconds(lambda: table.upsert(changed))

        def merged() -> float:
            table = fresh()
            changed = _changes(spark, 200_000, 200_000)
            chain = (
                table.merge_into(changed, on="t.id = s.id").when_matched().update_all().when_not_matched().insert_all()
            )
            return seconds(lambda: chain.merge())

        what = f"a table of {spark_overwrite.ROWS:,} rows"
        yield by_turns(f"upsert 400,000 rows into {what}", f"{_PLAIN} of the whole", 0.2, upserted, plainly, runs=5)
        yield by_turns(
            f"MERGE 200,000 updates and inserts into {what}", f"{_PLAIN} of the whole", 1.2, merged, plainly, runs=5
        )
    finally:
        spark.stop()


def _changes(spark: SparkSession, updates: int, inserts: int) -> object:
    """Rows of which the first have keys all over the table, the others new ones."""
    step = spark_overwrite.ROWS // updates
    old = spark.range(updates).select((F.col("id") * step).alias("id"))
    new = spark.range(inserts).select((F.col("id") + spark_overwrite.ROWS).alias("id"))
    return old.union(new).select(
        F.expr("date'2024-02-01'").alias("dt"), "id", F.lit("changed").alias("name"), F.lit(1.5).alias("amount")
    )


def keep(data: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, data.schema) as writer:
        writer.write_table(data, max_chunksize=1 << 16)
