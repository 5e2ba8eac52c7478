"""Compaction of 1,000 small files, of two shapes, and expiry of 200 snapshots: against Iceberg on Spark 3.5,
whose JVM runs already."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import writing
from benchmarks.measure import Figure, at_most, both, processor_seconds, timed
from benchmarks.peers.process import iceberg_on_spark
from benchmarks.spark_overwrite import session
from lakeformat import Lake
from lakeformat.table import Table

T = TypeVar("T")
ROWS, FILES = 1_000_000, 1_000
SNAPSHOTS, PARTITIONS = 200, 5
PEER = "Iceberg 1.10.2 on Spark 3.5"


COMPACTED = 0.5
EXPIRY_SECONDS = 0.2  # Of processor time.


def run(folder: Path) -> Iterator[Figure]:
    ours, theirs = folder / "ours", folder / "theirs"
    prepared = Lake(str(ours), fsync="false")
    for shape, data in shapes().items():
        _small_files(prepared, f"bench.{shape}", data)
    _history(prepared)
    with iceberg_on_spark(theirs) as peer:

        def compact(small: Table, spark: SparkSession | None = None) -> list[float]:
            took = timed(lambda: small.compact(spark=spark))
            assert len(small.inspect.files()) < FILES / 50
            assert small.scan().count() == ROWS
            return took

        def expire(aged: Table) -> list[float]:
            took = timed(lambda: aged.expire_snapshots(retain_last=1))
            assert len(aged.snapshots()) == 1
            assert aged.scan().count() == 1000 * PARTITIONS
            return took

        again = {shape: small_files_of(peer.ask, theirs, shape) for shape in shapes()}
        for shape, theirs_again in again.items():
            work = f"compact {FILES:,} files of {ROWS:,} {shape} rows, paimon"
            yield from both(work, PEER, COMPACTED, _copied(ours, shape, compact), theirs_again, runs=3)
        spark = session()
        try:
            for shape, theirs_again in again.items():
                on_spark = _copied(ours, shape, lambda small: compact(small, spark))
                work = f"compact {FILES:,} files of {ROWS:,} {shape} rows, paimon on Spark"
                yield from both(work, PEER, COMPACTED, on_spark, theirs_again, runs=3)
        finally:
            spark.stop()
        kept = peer.ask(verb="history", table="peer.bench.aged", snapshots=SNAPSHOTS, partitions=PARTITIONS)
        assert kept == SNAPSHOTS + 1, kept
        work = f"expire {SNAPSHOTS} snapshots and their {SNAPSHOTS * PARTITIONS:,} files, paimon"
        expiry = _copied(ours, "aged", expire)
        theirs_again = put_back(theirs / "bench" / "aged", lambda: peer.ask(verb="expire", table="peer.bench.aged"))
        yield from both(work, PEER, 1.0, expiry, theirs_again, runs=3)
    own = _copied(ours, "aged", lambda aged: processor_seconds(lambda: aged.expire_snapshots(retain_last=1)))
    own()
    yield at_most(work, "seconds of processor time", EXPIRY_SECONDS, [own() for _ in range(5)])


def shapes() -> dict[str, pa.Table]:
    """`ROWS` rows in order of an id, and in no order, as they are written in small files."""
    return {"ordered": rows(ROWS), "mixed": writing.rows(ROWS, days=1)}


def small_files_of(ask: Callable[..., Any], theirs: Path, shape: str) -> Callable[[], list[float]]:
    """The peer's compaction of a table of the same rows, put back before each run."""
    source = theirs.parent / f"{shape}.parquet"
    source.parent.mkdir(exist_ok=True)
    pq.write_table(shapes()[shape], source)
    table = f"peer.bench.{shape}"
    files = ask(verb="small_files", table=table, source=str(source), files=FILES, in_order=shape == "ordered")
    assert files == FILES, files
    return put_back(theirs / "bench" / shape, lambda: ask(verb="compact", table=table))


def _copied(warehouse: Path, name: str, work: Callable[[Table], T]) -> Callable[[], T]:
    """`work` on a new copy of the table each time: what is kept decoded of a table belongs to where it lies."""

    def once() -> T:
        copy = f"{name}_{uuid.uuid4().hex}"
        shutil.copytree(warehouse / "bench.db" / name, warehouse / "bench.db" / copy)
        took = work(Lake(str(warehouse)).table(f"bench.{copy}"))
        shutil.rmtree(warehouse / "bench.db" / copy)
        return took

    return once


def put_back(table: Path, work: Callable[[], T]) -> Callable[[], T]:
    """`work` on the table as it is now, however often: its metadata names its files by where they lie."""
    kept = table.with_name(f"{table.name}-kept")
    shutil.copytree(table, kept)

    def once() -> T:
        shutil.rmtree(table)
        shutil.copytree(kept, table)
        return work()

    return once


def _small_files(lake: Lake, name: str, data: pa.Table) -> None:
    table = lake.create_table(name, data.schema)
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
