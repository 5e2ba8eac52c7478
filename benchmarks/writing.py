"""Writing a million rows in this process: against pypaimon's append, with the same rows, format and compression."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measure import Figure, by_turns, seconds
from benchmarks.peers.process import pypaimon
from lakeformat import Lake

ROWS = 1_000_000
_PROPERTIES = {"file.format": "parquet", "file.compression": "zstd"}


def run(folder: Path) -> Iterator[Figure]:
    data = rows(ROWS, days=10)
    source = folder / "rows.arrow"
    with pa.OSFile(str(source), "wb") as file, pa.ipc.new_file(file, data.schema) as writer:
        writer.write_table(data, max_chunksize=1 << 16)
    with pypaimon() as peer:
        for partition_by in ([], ["dt"]):

            def ours(partition_by: list[str] = partition_by) -> float:
                with pa.memory_map(str(source)) as file:
                    return _append(folder / "ours", pa.ipc.open_file(file).read_all(), partition_by)

            def theirs(partition_by: list[str] = partition_by) -> float:
                return peer.ask(
                    verb="append",
                    warehouse=str(folder / "theirs"),
                    source=str(source),
                    partition_by=partition_by,
                    properties=_PROPERTIES,
                )

            shape = "10 partitions" if partition_by else "a table without partitions"
            yield by_turns(f"append {ROWS:,} rows to {shape}", "pypaimon 2.1", 1.0, ours, theirs, runs=9)


def rows(count: int, days: int) -> pa.Table:
    """Rows in no order, of `days` days: keys, measures, a few names, many texts, times."""
    random = np.random.default_rng(7)
    names = np.array([f"city {i}" for i in range(200)])
    start = np.datetime64("2024-01-01T00:00:00", "us")
    return pa.table(
        {
            "id": random.permutation(count),
            "amount": random.normal(100.0, 20.0, count),
            "quantity": random.integers(0, 50, count, np.int32),
            "city": names[random.integers(0, len(names), count)],
            "note": np.char.add("note ", random.integers(0, count, count).astype(str)),
            "at": start + random.integers(0, 86_400_000_000, count).astype("m8[us]"),
            "dt": np.array([f"2024-01-{i + 1:02d}" for i in range(days)])[random.integers(0, days, count)],
        }
    )


def _append(warehouse: Path, data: pa.Table, partition_by: list[str]) -> float:
    shutil.rmtree(warehouse, ignore_errors=True)
    lake = Lake(str(warehouse))
    table = lake.create_table("bench.rows", data.schema, partition_by=partition_by, properties=_PROPERTIES)
    took = seconds(lambda: table.append(data))
    assert table.scan().count() == len(data)
    return took
