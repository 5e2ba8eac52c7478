"""Merges and streams of Iceberg tables with their n-th storage call failing, for every n: the table is as before or as after,
asking again ends it, and nothing is left that nobody names."""

import re
from collections import Counter
from contextlib import suppress
from functools import cache

import pyarrow as pa
import pytest

from lakeformat import LakeError
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors
from tests.contract.in_parts import Workers, by_parts
from tests.simulation.failing import AT_ONCE, fail_each_call, holding
from tests.simulation.test_failing import rows

dialect = Iceberg()

MERGE_ON_READ = {"write.merge.mode": "merge-on-read"}


def merge(table):
    (
        table.merge_into(rows(1, 4, 20, v="new"), "t.id = s.id")
        .when_matched("t.id = 4")
        .delete()
        .when_matched()
        .update_all()
        .when_not_matched()
        .insert_all()
        .merge(id="op")
    )


def stream(table):
    with table.delta_writer("cdc", upsert=True, buffer_bytes=1) as writer:
        writer.write(rows(1, 20, v="new"))
        writer.write(rows(1, v="newer"))
        writer.checkpoint(7)


VERBS = {
    "copy-on-write": ({}, merge),
    "merge-on-read": (MERGE_ON_READ, merge),
    "stream": ({}, stream),
}


@cache
def before(verb):
    store = MemoryFiles()
    fields = (
        Field(1, "id", scalar(Kind.BIGINT), nullable=False),
        Field(2, "v", scalar(Kind.STRING)),
        Field(3, "dt", scalar(Kind.STRING), nullable=False),
    )
    create(Table("t", store, dialect), Schema(fields, identity("dt"), ("id", "dt"), properties=VERBS[verb][0]))
    table = Table("t", store, dialect)
    table.append(rows(1, 2, 4))
    table.append(rows(5, dt="b"))
    return {listed.path: store.read(listed.path) for listed in store.list("")}


def content(table):
    return sorted(map(str, table.scan().to_arrow().to_pylist()))


def swept(store):
    """How many files there are of each kind once nothing is left that nobody names."""
    Table("t", store, Iceberg()).remove_orphan_files(older_than=AT_ONCE)
    return Counter(re.sub(r"[0-9a-f]{8}(-[0-9a-f]+)+|\d{6,}", "*", listed.path) for listed in store.list("data"))


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("verb", VERBS)
def test_the_nth_call_of_a_merge_fails(verb, after):
    each_call_fails_once(verb, after)


@pytest.mark.parametrize(("verb", "after"), [("copy-on-write", True), ("merge-on-read", False)])
def test_the_nth_call_of_a_merge_by_parts_fails(verb, after, monkeypatch):
    """As Spark's tasks do it."""
    workers = Workers(2)
    monkeypatch.setattr(ArrowEngine, "stage", by_parts(ArrowEngine.stage, workers))
    each_call_fails_once(verb, after)
    assert {name for name, _ in workers.worked} == {
        "copy-on-write": {"_decide", "_write", "_settle"},
        "merge-on-read": {"_decide", "_write", "_settle", "_mark"},
    }[verb]


def each_call_fails_once(verb, after):
    def whole(table):
        return content(table), swept(doors.store(table))

    assert fail_each_call(before(verb), dialect, VERBS[verb][1], content, whole, after) > 5


def test_rows_that_do_not_fit_leave_no_file():
    store = holding(before("merge-on-read"))
    table = Table("t", store, dialect)
    files = {listed.path for listed in store.list("data")}
    with suppress(LakeError):
        table.merge_into(rows(1, 20), "t.id = s.id").when_matched().update(
            {"v": "cast(cast(concat('x', s.v) as bigint) as string)"}
        ).when_not_matched().insert_all().merge()
    assert {listed.path for listed in store.list("data")} == files
    assert pa.table({"id": [1, 2, 4, 5]}).equals(
        table.scan(["id"]).to_arrow().sort_by("id").cast(pa.schema([("id", pa.int64())]))
    )
