"""MERGE in process: 200,000 updates and 200,000 inserts into 10,000,000 rows, against DuckDB-Iceberg,
delta-rs and Sail.

Each side has the same rows, of two shapes, in 30 partitions, and its own table; a turn changes the same keys again and
inserts new ones. Both wall time and processor time are measured, which is that of all threads of the process.
`LAKEFORMAT_BENCH_ROWS` makes it smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import reading
from benchmarks.measure import Figure, both, timed
from benchmarks.peers.process import deltalake, duckdb_iceberg, sail
from benchmarks.spark_overwrite import PARTITIONS, ROWS
from lakeformat import Lake
from lakeformat.table import Table

CHANGES, RUNS, BAR = 200_000, 3, 0.5
Turn = Callable[[int], list[float]]  # The number of a turn -> seconds of wall time and of processor time.


def run(folder: Path) -> Iterator[Figure]:
    for shape, data in (("mixed", mixed), ("ordered", ordered)):
        yield from _race(folder / shape, shape, data)


def mixed(ids: np.ndarray, name: str | None = None) -> pa.Table:
    """Rows whose ids are spread over days, with one of 100,000 names and a random amount."""
    random = np.random.default_rng(1)
    days = np.datetime64("2024-01-01") + (ids * 2_654_435_761 >> 7) % PARTITIONS
    names = pc.binary_join_element_wise("user-", pa.array(random.integers(0, 100_000, len(ids))).cast(pa.string()), "")
    return pa.table(
        {
            "dt": days.astype("datetime64[D]"),
            "id": ids,
            "name": names if name is None else pa.repeat(name, len(ids)),
            "amount": random.random(len(ids)) * 1000,
        }
    )


def ordered(ids: np.ndarray, name: str | None = None) -> pa.Table:
    """The rows of `reading.ordered` for these ids, the partition first."""
    rows = reading.ordered(len(ids)).drop_columns(["id", "part"])
    rows = rows.add_column(0, "id", pa.array(ids)).add_column(0, "part", pa.array(ids % PARTITIONS))
    return rows if name is None else rows.set_column(rows.column_names.index("name"), "name", pa.repeat(name, len(ids)))


def _race(folder: Path, shape: str, data: Callable[..., pa.Table]) -> Iterator[Figure]:
    source, changes = folder / "source", folder / "changes"
    source.mkdir(parents=True), changes.mkdir()
    pq.write_table(data(np.arange(ROWS)), source / "rows.parquet")
    partition = pq.read_schema(source / "rows.parquet").names[0]
    columns = {"key": [partition, "id"], "updated": ["name", "amount"]}

    def changed(turn: int) -> str:
        path = changes / f"{turn}.parquet"
        if not path.exists():
            news = ROWS + (turn + 1) * 1_000_000 + np.arange(CHANGES)
            ids = np.concatenate((np.arange(CHANGES) * (ROWS // CHANGES), news))
            pq.write_table(data(ids, f"changed {turn}"), path)
        return str(path)

    def rows_after(turn: int) -> int:
        return ROWS + (turn + 1) * CHANGES

    def ours(name: str, **declared: object) -> Turn:
        table = Lake(str(folder / "ours")).create_table(
            f"bench.{name}", pq.read_schema(source / "rows.parquet"), partition_by=[partition], **declared
        )
        table.append(pq.read_table(source))
        return lambda turn: _merged(table, changed(turn), columns, rows_after(turn))

    lakes = {
        "Iceberg, merge-on-read": ours("mor", format="iceberg", properties={"write.merge.mode": "merge-on-read"}),
        "Iceberg, copy-on-write": ours("cow", format="iceberg", properties={"write.merge.mode": "copy-on-write"}),
        "Paimon": ours("paimon", format="paimon"),
    }
    turns = {name: count() for name in lakes}
    work = f"MERGE {CHANGES:,} updates and {CHANGES:,} inserts into {ROWS:,} rows, {shape}"
    for peer, names in (
        ("DuckDB-Iceberg 1.5", ["Iceberg, merge-on-read"]),
        ("delta-rs 1.6", ["Iceberg, copy-on-write", "Paimon"]),
        ("Sail 0.7", ["Iceberg, copy-on-write"]),
    ):
        with ExitStack() as stack:
            place = folder / "theirs" / peer.split()[0]
            if peer.startswith("DuckDB"):
                process, reached = stack.enter_context(duckdb_iceberg(place))
                process.ask(verb="load", source=str(source), location=str(place / "events"), **reached)
                arguments: dict[str, object] = columns
            else:
                process = stack.enter_context(deltalake() if peer.startswith("delta") else sail())
                place.parent.mkdir(exist_ok=True)
                process.ask(verb="load", source=str(source), location=str(place))
                arguments = {**columns, "location": str(place)}
            their_turns = count()

            def theirs() -> list[float]:
                turn = next(their_turns)  # noqa: B023  Called in this turn of the loop alone.
                found: list[float] = process.ask(  # noqa: B023
                    verb="merge",
                    changes=changed(turn),
                    rows=rows_after(turn),
                    **arguments,  # noqa: B023
                )
                return found

            for name in names:
                yield from both(
                    f"{work}, {name}", peer, BAR,
                    lambda name=name: lakes[name](next(turns[name])), theirs, RUNS,  # type: ignore[misc]
                )  # fmt: skip


def _merged(table: Table, changes: str, columns: dict[str, list[str]], rows: int) -> list[float]:
    def work() -> None:
        on = " and ".join(f"t.{name} = s.{name}" for name in columns["key"])
        chain = table.merge_into(pq.read_table(changes), on=on)
        chain = chain.when_matched().update({name: f"s.{name}" for name in columns["updated"]})
        chain.when_not_matched().insert_all().merge()

    took = timed(work)
    found = table.scan().count()
    assert found == rows, found
    return took
