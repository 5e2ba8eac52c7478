"""Iceberg tables on the newest Spark that Iceberg's runtime has, by us and by Iceberg itself, in one session there:
dynamic overwrite of a table each, and scans of one table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import spark_overwrite
from benchmarks.measure import Figure, at_most, both
from benchmarks.peers.process import newest_iceberg
from benchmarks.spark_overwrite import PARTITIONS, ROWS, RUNS, SHAPES
from lakeformat import Lake

PEER = "Iceberg 1.12.0 on Spark 4.1"


def run(folder: Path) -> Iterator[Figure]:
    lake = Lake(str(folder / "lake"))
    spark = spark_overwrite.session()
    try:
        for shape in SHAPES:
            source = shape.source(spark, str(folder / shape.name))
            parted = [shape.partition]
            table = lake.create_table(f"bench.{shape.name}", source.schema, partition_by=parted, format="iceberg")
            table.overwrite_partitions(source)
    finally:
        spark.stop()
    with newest_iceberg(folder / "lake") as peer:
        for shape in SHAPES:
            source, ours, theirs = str(folder / shape.name), f"bench.{shape.name}", f"bench.{shape.name}_of_peer"
            peer.ask(verb="create", table=theirs, source=source, partition=shape.partition)
            subject = f"{ROWS:,} {shape.name} rows"
            work = f"overwrite {subject} over {PARTITIONS} partitions of an Iceberg table on Spark 4.1"
            yield from both(
                work, PEER, 0.9,
                lambda ours=ours, source=source: peer.ask(verb="overwrite_ours", table=ours, source=source),  # type: ignore[misc]
                lambda theirs=theirs, source=source: peer.ask(verb="overwrite_theirs", table=theirs, source=source),  # type: ignore[misc]
                RUNS,
            )  # fmt: skip
            count = len(lake.table(ours).inspect.files())
            yield at_most(work, "files", peer.ask(verb="files", table=theirs), [count])
            assert lake.table(ours).scan().count() == lake.table(theirs).scan().count() == ROWS
            ask = {"table": ours, "number": shape.number, "partition": shape.partition}
            yield from both(
                f"scan {subject} of an Iceberg table on Spark 4.1", PEER, 1.0,
                lambda ask=ask: peer.ask(verb="scan_ours", **ask),  # type: ignore[misc]
                lambda ask=ask: peer.ask(verb="scan_theirs", **ask),  # type: ignore[misc]
                2 * RUNS,
            )  # fmt: skip
