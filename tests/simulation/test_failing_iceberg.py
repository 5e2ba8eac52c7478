"""Iceberg's verbs by row, with the n-th storage call failing, for every n: the table is as before or as after, and asking again
ends it."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Conflict, NotFound
from lakeformat.dialects.iceberg import metadata
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.model import evolution
from lakeformat.model.partition import SortField, identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors
from tests.simulation.failing import AT_ONCE, fail_each_call
from tests.simulation.test_failing import content, once, rows

dialect = Iceberg()

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


def changelog(table: Table) -> None:
    """A checkpoint of keys that were there, that come again, and that go."""
    log = [(2, "+U"), (40, "+I"), (12, "-D")]
    again = [(40, "+U"), (41, "+I")]
    with table.delta_writer("stream", key=["id", "dt"], upsert=True, buffer_bytes=1) as writer:
        for part in (log, again):
            made = rows(*(id for id, _ in part), v="log")
            writer.write(made.append_column("rowkind", pa.array([kind for _, kind in part])))
        writer.checkpoint(1)


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


# On a smaller table, with branches and deletes by key.
MORE_VERBS: dict[str, Callable[[Table], object]] = {
    "dynamic overwrite": lambda t: t.overwrite_partitions(rows(30), id="op"),
    "rewrite manifests": lambda t: t.rewrite_manifests(id="op"),
    "convert equality deletes": lambda t: t.convert_equality_deletes(id="op"),
    "compact in parts": lambda t: t.compact(full=True, partial_progress=True),
    "upgrade": lambda t: t.evolve([evolution.SetProperties({"format-version": "3"})], id="op"),
    "set the sort order": lambda t: t.evolve([evolution.SetSortOrder((SortField(("v",)),))], id="op"),
    "write to a branch": lambda t: t.branch("audit").append(rows(31), id="on a branch"),
    "fast-forward": lambda t: t.fast_forward("ahead"),
    "delete a branch": lambda t: once(lambda: t.delete_branch("audit"), NotFound),
    "changelog": changelog,
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


@cache
def branched() -> dict[str, bytes]:
    """The files of a table with small files in both partitions, a deleted key, and a branch behind and one ahead."""
    store = MemoryFiles()
    table = Table("t", store, dialect)
    create(table, SCHEMA)
    table.append(pa.concat_tables([rows(2, 5), rows(12, dt="b")]))
    table.append(pa.concat_tables([rows(7), rows(13, dt="b")]))
    table.create_branch("audit")
    with table.delta_writer("before", key=["id", "dt"]) as writer:
        writer.write(rows(5).append_column("rowkind", pa.array(["-D"])))
        writer.checkpoint(1)
    table.create_branch("ahead").append(rows(32))
    return {listed.path: store.read(listed.path) for listed in store.list("")}


def swept(store: MemoryFiles) -> Counter[str]:
    """How many data files and delete files there are once nothing is left that nobody names."""
    Table("t", store, Iceberg()).remove_orphan_files(older_than=AT_ONCE)
    return Counter("deletes" if "deletes" in listed.path else "data" for listed in store.list("data"))


def seen(table: Table) -> Any:
    """The rows of the table and of each branch, and its version."""
    base = doors.view(table).state
    names = sorted(metadata.branches(base))
    return content(table), {name: content(table.branch(name)) for name in names}, metadata.format_version(base)


def landed(table: Table) -> list[str]:
    """The snapshots of verbs that were asked for by a name of their own, on any branch."""
    branches = metadata.branches(doors.view(table).state)
    found = {s.id: s.operation_id or "" for name in branches for s in table.branch(name).snapshots()}
    return sorted(id for id in found.values() if len(id) < 36)


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("verb", VERBS)
def test_the_nth_call_fails(verb: str, after: bool):
    check(before(), VERBS[verb], content, after)


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("verb", MORE_VERBS)
def test_the_nth_call_fails_on_branches_and_beside_keys(verb: str, after: bool):
    check(branched(), MORE_VERBS[verb], seen, after)


STAGING: dict[str, Callable[[Table], object]] = {
    "stage": lambda t: t.staged("new").append(rows(40), id="op"),
    "publish the next": lambda t: once(lambda: t.publish("next"), Conflict),
    "publish after others": lambda t: once(lambda: t.publish("earlier"), Conflict),
}


@cache
def staged() -> dict[str, bytes]:
    """The files of a table with rows staged on its snapshot, and on the one before."""
    store = MemoryFiles()
    table = Table("t", store, dialect)
    create(table, SCHEMA)
    table.evolve([evolution.SetProperties({"write.wap.enabled": "true"})])
    table.append(rows(1))
    table.staged("earlier").append(rows(2))
    table.append(rows(3))
    table.staged("next").append(rows(4))
    return {listed.path: store.read(listed.path) for listed in store.list("")}


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("verb", STAGING)
def test_the_nth_call_fails_where_rows_are_staged(verb: str, after: bool):
    check(staged(), STAGING[verb], content, after)


def check(files: dict[str, bytes], verb: Callable[[Table], object], state: Callable[[Table], Any], after: bool) -> None:
    def whole(table: Table) -> object:
        return landed(table), swept(doors.store(table)), state(table), len(doors.store(table).list("landing"))

    fail_each_call(files, dialect, verb, state, whole, after)
