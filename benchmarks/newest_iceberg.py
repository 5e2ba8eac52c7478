"""Scans of one Iceberg table on the newest Spark that Iceberg's runtime has: by us and by Iceberg itself, in one
session there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import spark_overwrite
from benchmarks.measure import Figure, both
from benchmarks.peers.process import newest_iceberg
from benchmarks.spark_overwrite import RUNS, SHAPES
from lakeformat import Lake

PEER = "Iceberg 1.11.0 on Spark 4.1"


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
            ask = {"table": f"bench.{shape.name}", "number": shape.number, "partition": shape.partition}
            yield from both(
                f"scan {spark_overwrite.ROWS:,} {shape.name} rows of an Iceberg table on Spark 4.1", PEER, 1.0,
                lambda ask=ask: peer.ask(verb="ours", **ask), lambda ask=ask: peer.ask(verb="theirs", **ask), 2 * RUNS,  # type: ignore[misc]
            )  # fmt: skip
