"""Tables with a primary key and planning, in process: against Paimon's own library in Rust,
on the same files, of two shapes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks import merging, planning
from benchmarks.measure import Figure, both, timed
from benchmarks.peers.process import paimon_rust
from benchmarks.spark_overwrite import ROWS
from lakeformat import Lake

PEER, BAR, RUNS = "paimon-rust 0.4", 0.5, 5
RUN = 500_000  # Rows of each of the three runs on top: half of them new.


def run(folder: Path) -> Iterator[Figure]:
    views = count()
    with paimon_rust() as peer:
        for shape in planning.SHAPES:
            warehouse = folder / f"planning-{shape}"
            planning.declare(warehouse, planning.FILES, shape)

            def cold(warehouse: Path = warehouse) -> list[float]:
                view = folder / f"view-{next(views)}"
                view.symlink_to(warehouse)
                return timed(lambda: planning.plan(view))

            ask = {"warehouse": str(warehouse), "table": "bench.files"}
            yield from both(
                f"plan {planning.FILES:,} files in one manifest, {shape}, cold", PEER, BAR,
                cold, lambda ask=ask: peer.ask(verb="plan", **ask), RUNS,  # type: ignore[misc]
            )  # fmt: skip
        for shape, data in (("mixed", merging.mixed), ("ordered", merging.ordered)):
            place = str(folder / shape)
            properties = {"bucket": "2", "write-only": "true"}
            table = Lake(place, fsync="false").create_table(
                "bench.keyed", data(np.arange(1)).schema, primary_key=["id"], properties=properties
            )
            ids = np.arange(ROWS)
            table.upsert(data(ids if shape == "ordered" else np.random.default_rng(3).permutation(ids)))
            for turn in range(3):
                news = ROWS + turn * RUN // 2 + np.arange(RUN // 2)
                table.upsert(
                    data(np.concatenate((np.arange(RUN // 2) * (ROWS * 2 // RUN) + turn, news)), f"run {turn}")
                )
            rows = ROWS + 3 * RUN // 2

            def ours(table: object = Lake(place).table("bench.keyed"), rows: int = rows) -> list[float]:
                def work() -> None:
                    assert table.scan().to_arrow().num_rows == rows  # type: ignore[attr-defined]

                return timed(work)

            ask = {"warehouse": place, "table": "bench.keyed"}
            yield from both(
                f"merge read of {ROWS:,} {shape} rows and three runs of {RUN:,}", PEER, BAR,
                ours, lambda rows=rows, ask=ask: peer.ask(verb="merged", rows=rows, **ask), RUNS,  # type: ignore[misc]
            )  # fmt: skip
