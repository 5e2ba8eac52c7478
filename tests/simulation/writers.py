"""What other processes run in the tests of real races; imports little, for each of them imports it."""

from typing import Any

import pyarrow as pa

from lakeformat import Lake

SCHEMA = pa.schema([("id", pa.int64()), ("writer", pa.int32()), ("dt", pa.string())])


def rows(ids: list[int], writer: int, dt: str) -> pa.Table:
    return pa.table([ids, [writer] * len(ids), [dt] * len(ids)], schema=SCHEMA)


def write(work: tuple[str, dict[str, Any], int, int]) -> list[tuple[str, int, int]]:
    """Appends to a partition that all share, and overwrites of one's own; what each commit was told."""
    uri, options, writer, commits = work
    table = Lake(uri, **options).table("db.t")
    told = []
    for i in range(commits):
        id = f"{writer}-{i}"
        if i % 5 == 4:
            made = table.overwrite_partitions(rows([writer * 1000 + i], writer, f"own-{writer}"), id=id)
        else:
            made = table.append(rows([writer * 1000 + i], writer, "shared"), id=id)
        assert made is not None
        told.append((id, made.id, made.attempts))
    return told


def write_until_killed(uri: str, seed: int, ready: Any) -> None:
    table = Lake(uri).table("db.t")
    ready.set()
    for i in range(10_000):
        table.append(rows(list(range(20)), seed, f"p{i % 3}"), id=f"{seed}-{i}")
        if i % 3 == 2:
            table.compact(full=True)
