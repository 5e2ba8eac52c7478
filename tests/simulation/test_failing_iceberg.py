"""Iceberg's verbs by row, with the n-th storage call failing, for every n: the table is as before or as after, and asking again
ends it."""

from collections import Counter
from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import LakeError
from lakeformat.dialects.iceberg import dialect
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests.simulation.test_failing import AT_ONCE, NthCallFails, content, rows

MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
SCHEMA = Schema(
    fields=(
        Field(0, "id", scalar(Kind.BIGINT)),
        Field(1, "v", scalar(Kind.STRING)),
        Field(2, "dt", scalar(Kind.STRING)),
    ),
    partitioning=identity("dt"),
    properties={"commit.manifest.min-count-to-merge": "3", **MERGE_ON_READ},
)
VERBS: dict[str, Callable[[Table], object]] = {
    "delete": lambda t: t.delete("id in (2, 4, 12)", id="op"),
    "update": lambda t: t.update({"v": "'new'"}, "id in (2, 12)", id="op"),
    "compact": lambda t: t.compact(full=True, id="op"),
    "sort": lambda t: t.compact(sort_by=["v", "id"], id="op"),
    "rewrite position deletes": lambda t: t.rewrite_position_deletes(full=True, id="op"),
    "add files": lambda t: t.add_files(["landing/a.parquet", "landing/dt=b/b.parquet"], id="op"),
    "expire snapshots": lambda t: t.expire_snapshots(retain_last=1),
    "remove orphans": lambda t: t.remove_orphan_files(older_than=AT_ONCE),
}


@cache
def before() -> dict[str, bytes]:
    """The files of a table with deletes in both partitions, some of them of data that is gone, and an orphan."""
    store = MemoryFiles()
    table = Table("t", store, dialect)
    create(table, SCHEMA)
    table.append(pa.concat_tables([rows(1, 2, 3, 4, 5, 6), rows(11, 12, 13, dt="b")]))
    table.delete("id in (1, 11)")
    table.append(rows(7, 8, 9))
    table.update({"v": "'u'"}, "id = 3")
    table.compact(full=True, where="dt = 'b'")
    table.delete("id in (7, 13)")
    for path, added in (("a", rows(20, 21)), ("dt=b/b", rows(22).drop_columns(["dt"]))):
        pq.write_table(added, sink := pa.BufferOutputStream())
        store.write(f"landing/{path}.parquet", sink.getvalue().to_pybytes())
    store.write("data/dt=a/00000-0-deletes-00000000-0000-0000-0000-000000000000-0.parquet", b"x")
    return {listed.path: store.read(listed.path) for listed in store.list("")}


def copy() -> MemoryFiles:
    store = MemoryFiles()
    for path, data in before().items():
        store.write(path, data)
    return store


def swept(store: MemoryFiles) -> Counter[str]:
    """How many data files and files of deletes there are once nothing is left that nobody names."""
    Table("t", store, dialect).remove_orphan_files(older_than=AT_ONCE)
    return Counter("deletes" if "deletes" in listed.path else "data" for listed in store.list("data"))


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("verb", VERBS)
def test_the_nth_call_fails(verb: str, after: bool):
    clean = copy()
    old = content(Table("t", clean, dialect))
    VERBS[verb](Table("t", clean, dialect))
    left, new = swept(clean), content(Table("t", clean, dialect))
    landed = [snapshot.operation_id for snapshot in Table("t", clean, dialect).snapshots()].count("op")
    n = 0
    while True:
        n += 1
        store = copy()
        failing = NthCallFails(store, n, after)
        told = None
        try:
            VERBS[verb](Table("t", failing, dialect))
        except LakeError as error:
            told = error
        if failing.failed is None:
            assert told is None
            break
        where = f"call {n}, {failing.failed}, told {told!r}"
        seen = Table("t", store, dialect)
        assert content(seen) in ([new] if told is None else [old, new]), where
        VERBS[verb](seen)
        assert [snapshot.operation_id for snapshot in seen.snapshots()].count("op") == landed, where
        assert swept(store) == left, where
        assert content(seen) == new, where
        assert len(store.list("landing")) == 2, where
    assert n > 1
