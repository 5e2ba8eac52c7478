"""Whether verbs in this process keep every core busy: wall time beside processor time, and beside `pyarrow.dataset`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.measure import Figure, at_most, by_turns, seconds, timed
from benchmarks.reading import ordered
from lakeformat import Lake

ROWS = 10_000_000
PARALLELISM = 1.8  # Of two cores.


def run(folder: Path) -> Iterator[Figure]:
    """Wall time as a part of processor time: half if two cores are always busy."""
    data = ordered(ROWS).set_column(1, "part", pa.array([i % 30 for i in range(ROWS)], pa.int32()))
    bar = max(1 / PARALLELISM, 1 / (os.cpu_count() or 1))
    for format in ("paimon", "iceberg"):
        lake = Lake(str(folder / format))
        table = lake.create_table("bench.parts", data.schema, format=format, partition_by=["part"])
        whole = lake.create_table("bench.whole", data.schema, format=format)
        small = lake.create_table("bench.small", data.schema, format=format)
        for start in range(0, ROWS // 10, ROWS // 400):
            small.append(data.slice(start, ROWS // 400))
        works: list[tuple[str, Callable[[], object]]] = [
            ("append to 30 partitions", lambda table=table: table.append(data)),
            ("append to a table without partitions", lambda whole=whole: whole.append(data)),
            ("overwrite 30 partitions", lambda table=table: table.overwrite_partitions(data)),
            ("scan", lambda table=table: table.scan().to_arrow()),
            ("count by a condition", lambda table=table: table.scan(where="amount > 100.0").count()),
            ("delete one row of 10,000", lambda table=table: table.delete("id % 10000 = 3")),
            ("update one row of 10,000", lambda table=table: table.update({"amount": "0.0"}, "id % 10000 = 4")),
            ("compact 40 files", lambda small=small: small.compact()),
        ]
        if format == "paimon":
            keyed_schema = data.schema.set(0, pa.field("id", pa.int64(), nullable=False))
            keyed = lake.create_table("bench.keyed", keyed_schema, primary_key=["id"], properties={"bucket": "4"})
            rows = data.slice(0, ROWS // 2).cast(keyed_schema)
            works += [
                ("load by key", lambda keyed=keyed, rows=rows: keyed.append(rows)),
                ("load by key again", lambda keyed=keyed, rows=rows: keyed.append(rows)),
                ("merge read", lambda keyed=keyed: keyed.scan().to_arrow()),
            ]
        for name, work in works:
            wall, processor = timed(work)
            yield at_most(f"{name}, {format}", "s of wall time a second of processor time", bar, [wall / processor])
        scan = table.scan()
        files = [scan.store.location(path).removeprefix("file://") for task in scan.plan() for path in task.paths]
        yield by_turns(
            f"scan 30 files, {format}, wall time",
            "pyarrow.dataset",
            1.05,
            lambda table=table: seconds(table.scan().to_arrow),
            lambda files=files: seconds(lambda: ds.dataset(files).to_table()),
            runs=9,
        )
