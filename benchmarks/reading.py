"""Reading whole tables in this process: against PyArrow's dataset on the same files, beside DuckDB and Polars;
processor time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks import writing
from benchmarks.measure import Figure, by_turns, processor_seconds
from lakeformat import Lake

ROWS = 4_000_000


def run(folder: Path) -> Iterator[Figure]:
    for shape, data in (("mixed", writing.rows(ROWS, days=1).drop_columns("dt")), ("ordered", ordered(ROWS))):
        for format in ("paimon", "iceberg"):
            table = Lake(str(folder)).create_table(f"{shape}.{format}", data.schema, format=format)
            table.append(data)
            scan = table.scan()
            files = [scan.store.location(path).removeprefix("file://") for task in scan.plan() for path in task.paths]
            peers: dict[str, Callable[[], pa.Table]] = {
                "pyarrow.dataset": lambda files=files: ds.dataset(files).to_table(),
                "DuckDB": lambda files=files: duckdb.read_parquet(files).to_arrow_table(),
                "Polars": lambda files=files: polars.scan_parquet(files).collect().to_arrow(),
            }
            for name, read in peers.items():
                assert read().num_rows == ROWS
                figure = by_turns(
                    f"read {ROWS:,} rows, {shape}, {format}",
                    name,
                    1.1,
                    lambda table=table: processor_seconds(table.scan().to_arrow),
                    lambda read=read: processor_seconds(read),
                    runs=7,
                )
                ours, theirs = (data.nbytes / 1e9 / min(each) for each in (figure.ours_seconds, figure.peer_seconds))
                print(f"{figure.work}: {ours:.2f} GB/s per core, {name} {theirs:.2f}", flush=True)
                if name == "pyarrow.dataset":  # The others stand beside it.
                    yield figure


def ordered(count: int) -> pa.Table:
    """Rows in order of an id, of 30 partitions: a double, 1,000 names."""
    random = np.random.default_rng(11)
    names = np.array([f"customer {i}" for i in range(1_000)])
    return pa.table(
        {
            "id": np.arange(count),
            "part": np.arange(count) % 30,
            "amount": random.normal(100.0, 20.0, count),
            "name": names[random.integers(0, len(names), count)],
        }
    )
