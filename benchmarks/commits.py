"""What a small append costs: in processor time and fsyncs, and when the table is young and when it is old."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import Figure, at_most, by_turns, processor_seconds, seconds
from lakeformat import Lake
from lakeformat.table import Table

_YOUNG, _OLD, _ANCIENT, _MEASURED = 10, 1000, 10_000, 20
MILLISECONDS, FSYNCS = 8, 8
_ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None], "dt": ["2024-01-01", "2024-01-02", "2024-01-01"]})
_WIDE = pa.table(
    {
        **{f"number_{i}": pa.array([i, i + 1, None], pa.int64()) for i in range(8)},
        **{f"text_{i}": [f"text {i}", "another", None] for i in range(8)},
        "dt": ["2024-01-01", "2024-01-02", "2024-01-01"],
    }
)


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
            lambda old=old: seconds(lambda: old.append(_ROWS)),  # type: ignore[misc]
            lambda young=young: seconds(lambda: young.append(_ROWS)),  # type: ignore[misc]
            runs=_MEASURED,
        )
    for format in ("paimon", "iceberg"):
        for shape, rows in (("3 columns", _ROWS), ("17 columns", _WIDE)):
            work = f"append three rows of {shape} to two partitions, {format}"
            prefix = f"bench.{len(rows.column_names)}"
            young, ancient = (_aged(folder, f"{prefix}_{age}", format, rows, age) for age in (_YOUNG, _ANCIENT))
            young_cost = _cost(young, rows)
            yield at_most(work, "ms of processor time", MILLISECONDS, [young_cost() * 1000 for _ in range(_MEASURED)])
            yield by_turns(
                f"{work}, {_ANCIENT:,} snapshots",
                f"{_YOUNG} snapshots",
                1.2,
                _cost(ancient, rows),
                young_cost,
                _MEASURED,
            )
            one = lake.table(young.name), rows.slice(0, 1)
            yield at_most(f"append a row, {format}", "fsyncs", FSYNCS, [_fsyncs(lambda: one[0].append(one[1]))])  # noqa: B023


def _cost(table: Table, rows: pa.Table) -> Callable[[], float]:
    for _ in range(10):
        table.append(rows)
    return lambda: processor_seconds(lambda: table.append(rows))


def _fsyncs(work: Callable[[], object]) -> int:
    """How many of them `work` makes in this process."""
    count, fsync = [0], os.fsync

    def counted(file: int) -> None:
        count[0] += 1
        fsync(file)

    os.fsync = counted
    try:
        work()
    finally:
        os.fsync = fsync
    return count[0]


def _aged(folder: Path, name: str, format: str, rows: pa.Table, snapshots: int) -> Table:
    """A table of so many snapshots: ten commits, and the older ones as copies of the first of them."""
    name = f"{name}_{format}"
    lake = Lake(str(folder), fsync="false")
    table = lake.create_table(name, rows.schema, partition_by=["dt"], format=format)
    for _ in range(_YOUNG):
        table.append(rows)
    if snapshots > _YOUNG:
        home = Path(table.uri.removeprefix("file://"))
        (_older_documents if format == "iceberg" else _older_files)(home, snapshots)
    found = Lake(str(folder), fsync="false").table(name)
    assert len(found.snapshots()) == snapshots
    return found


def _older_files(home: Path, snapshots: int) -> None:
    """Paimon's: a file for each snapshot; those that were there get the highest numbers."""
    for number in range(_YOUNG, 0, -1):
        document = json.loads((home / "snapshot" / f"snapshot-{number}").read_text())
        for copy in [snapshots - _YOUNG + number] if number > 1 else range(1, snapshots - _YOUNG + 2):
            (home / "snapshot" / f"snapshot-{copy}").write_text(json.dumps({**document, "id": copy}))


def _older_documents(home: Path, snapshots: int) -> None:
    """Iceberg's: all in the newest document."""
    path = max((home / "metadata").glob("v*.metadata.json"), key=lambda each: int(each.name[1:].partition(".")[0]))
    document = json.loads(path.read_text())
    first, *others = document["snapshots"]
    copies = [{**first, "snapshot-id": 1000 + i} for i in range(snapshots - len(document["snapshots"]))]
    for before, each in pairwise(copies):
        each["parent-snapshot-id"] = before["snapshot-id"]
    document["snapshots"] = [*copies, {**first, "parent-snapshot-id": copies[-1]["snapshot-id"]}, *others]
    log = document["snapshot-log"]
    document["snapshot-log"] = [{**log[0], "snapshot-id": copy["snapshot-id"]} for copy in copies] + log
    path.write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
