"""Compaction of 1,000 small files and expiry of 200 snapshots: against Iceberg on Spark 3.5, whose JVM runs already."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.measure import Figure, by_turns, seconds
from benchmarks.peers.process import iceberg_on_spark
from benchmarks.spark_overwrite import session
from lakeformat import Lake
from lakeformat.table import Table

ROWS, FILES = 1_000_000, 1_000
SNAPSHOTS, PARTITIONS = 200, 5
_PEER = "Iceberg 1.10.2 on Spark 3.5"


def run(folder: Path) -> Iterator[Figure]:
    ours, theirs = folder / "ours", folder / "theirs"
    prepared = Lake(str(ours), fsync="false")
    _small_files(prepared)
    _history(prepared)
    with iceberg_on_spark(theirs) as peer:
        files = peer.ask(verb="small_files", table="peer.bench.small", rows=ROWS, files=FILES)
        assert files == FILES, files
        kept = peer.ask(verb="history", table="peer.bench.aged", snapshots=SNAPSHOTS, partitions=PARTITIONS)
        assert kept == SNAPSHOTS + 1, kept

        def compact(small: Table, spark: SparkSession | None = None) -> float:
            took = seconds(lambda: small.compact(spark=spark))
            assert len(small.inspect.files()) < FILES / 50
            assert small.scan().count() == ROWS
            return took

        def expire(aged: Table) -> float:
            took = seconds(lambda: aged.expire_snapshots(retain_last=1))
            assert len(aged.snapshots()) == 1
            assert aged.scan().count() == 1000 * PARTITIONS
            return took

        what = f"compact {FILES:,} files of {ROWS:,} rows"
        theirs_again = put_back(theirs / "bench" / "small", lambda: peer.ask(verb="compact", table="peer.bench.small"))
        yield by_turns(what, _PEER, 1.0, _copied(ours, "small", compact), theirs_again, runs=3)
        spark = session()
        try:
            on_spark = _copied(ours, "small", lambda small: compact(small, spark))
            yield by_turns(f"{what} on Spark", _PEER, 1.0, on_spark, theirs_again, runs=3)
        finally:
            spark.stop()
        yield by_turns(
            f"expire {SNAPSHOTS} snapshots and their {SNAPSHOTS * PARTITIONS:,} files",
            _PEER,
            1.0,
            _copied(ours, "aged", expire),
            put_back(theirs / "bench" / "aged", lambda: peer.ask(verb="expire", table="peer.bench.aged")),
            runs=3,
        )


def _copied(warehouse: Path, name: str, work: Callable[[Table], float]) -> Callable[[], float]:
    """`work` on a new copy of the table each time: what is kept decoded of a table belongs to where it lies."""

    def once() -> float:
        copy = f"{name}_{uuid.uuid4().hex}"
        shutil.copytree(warehouse / "bench.db" / name, warehouse / "bench.db" / copy)
        took = work(Lake(str(warehouse)).table(f"bench.{copy}"))
        shutil.rmtree(warehouse / "bench.db" / copy)
        return took

    return once


def put_back(table: Path, work: Callable[[], float]) -> Callable[[], float]:
    """`work` on the table as it is now, however often: its metadata names its files by where they lie."""
    kept = table.with_name(f"{table.name}-kept")
    shutil.copytree(table, kept)

    def once() -> float:
        shutil.rmtree(table)
        shutil.copytree(kept, table)
        return work()

    return once


def _small_files(lake: Lake) -> None:
    data = rows(ROWS)
    table = lake.create_table("bench.small", data.schema)
    for start in range(0, ROWS, ROWS // FILES):
        table.append(data.slice(start, ROWS // FILES))


def _history(lake: Lake) -> None:
    data = rows(1000 * PARTITIONS, PARTITIONS)
    table = lake.create_table("bench.aged", data.schema, partition_by=["dt"])
    for _ in range(SNAPSHOTS + 1):
        table.overwrite_partitions(data)


def rows(count: int, days: int = 1) -> pa.Table:
    """The rows that the peer writes too."""
    ids = np.arange(count)
    names = pc.binary_join_element_wise("customer", pa.array(ids).cast(pa.string()), " ")
    dates = pa.array([f"2024-01-{i + 1:02d}" for i in range(days)]).take(pa.array(ids % days))
    return pa.table({"id": ids, "amount": ids % 1000 / 8, "name": names, "dt": dates})
