"""What a small append costs when the table is young and when it is old."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import Figure, by_turns, seconds
from lakeformat import Lake
from lakeformat.table import Table

_YOUNG, _OLD, _MEASURED = 10, 1000, 20
_ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None], "dt": ["2024-01-01", "2024-01-02", "2024-01-01"]})


def run(folder: Path) -> Iterator[Figure]:
    lake, quick = Lake(str(folder)), Lake(str(folder), fsync="false")
    for partition_by in ([], ["dt"]):
        names = [f"bench.{age}{len(partition_by)}" for age in ("young", "old")]
        for name, commits in zip(names, (_YOUNG, _OLD), strict=True):
            aged = quick.create_table(name, _ROWS.schema, partition_by=partition_by)
            for _ in range(commits):
                aged.append(_ROWS)
        young, old = map(lake.table, names)
        yield by_turns(
            f"commit number {_OLD:,}, {'2 partitions' if partition_by else 'no partitions'}",
            f"commit number {_YOUNG}",
            1.3,
            _append(old),
            _append(young),
            runs=_MEASURED,
        )


def _append(table: Table) -> Callable[[], float]:
    return lambda: seconds(lambda: table.append(_ROWS))
