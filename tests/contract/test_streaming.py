"""Commits of a stream: each once, whatever fails in between."""

import json
import os
import pickle
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Timer

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from lakeformat import (
    CommitError,
    CommitUnknown,
    Conflict,
    InvalidInput,
    Lake,
    NotFound,
    StoreError,
    UnsupportedFeature,
)
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.commit import discard
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.choose import spark_engine
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.memory import MemoryFiles
from lakeformat.streaming import Sink
from lakeformat.table import Table, create
from tests.simulation.failing import NthCallFails, faults

iceberg = Iceberg()

dialect = Paimon()

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
KINDS = ["iceberg", "iceberg keyed", "paimon", "keyed"]


def make(lake, kind):
    if kind == "keyed":
        given = {"format": "paimon", "primary_key": ["id", "dt"], "properties": {"bucket": "1"}}
    elif kind == "iceberg keyed":
        given = {"format": "iceberg", "primary_key": ["id", "dt"]}
    else:
        given = {"format": kind}
    return lake.create_table("d.t", SCHEMA, partition_by=["dt"], **given)


@pytest.fixture(params=KINDS)
def table(request, tmp_path):
    return make(Lake(str(tmp_path / "warehouse")), request.param)


def rows(*given):
    return pa.Table.from_pylist([dict(zip(("id", "v", "dt"), row, strict=True)) for row in given], SCHEMA)


def held(table):
    return Counter(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def data_files(table):
    home = Path(table.uri.removeprefix("file://"))
    return {path for path in home.rglob("*.parquet") if "metadata" not in path.parts}


def test_prepared_rows_are_seen_once_committed(table):
    session = table.stream("job")
    prepared = session.prepare(1, rows((1, "a", "x")), watermark=7)
    assert (prepared.row_count, held(table), session.last_committed()) == (1, Counter(), None)
    made = session.commit(prepared)
    assert (made.rows_added, made.operation_id) == (1, "job/1")
    assert held(table) == {(1, "a", "x"): 1}
    assert table.snapshots()[-1].operation_id == "job/1"
    assert (session.last_committed(), table.stream("other").last_committed()) == (1, None)


def test_replays_change_nothing(table):
    session = table.stream("job")
    first = session.prepare(1, rows((1, "a", "x")))
    session.commit(first)
    second = session.prepare(2, rows((2, "b", "x")))
    files = data_files(table)
    again = table.stream("job")  # The process was killed: what was prepared comes out of a checkpoint.
    for prepared in pickle.loads(pickle.dumps((first, second))):
        again.commit(prepared)
        assert again.commit(prepared) is None
    assert again.commit(again.prepare(1, rows((9, "z", "x")))) is None
    assert held(table) == {(1, "a", "x"): 1, (2, "b", "x"): 1}
    assert (len(table.snapshots()), data_files(table)) == (2, files)


def test_what_is_committed_outlasts_the_snapshots_that_say_so(table):
    """Commits of ours carry it, and how far the rows follow a database; a rollback takes that back to where its rows are."""
    session = table.stream("job")
    first = session.commit(session.prepare(4, rows((1, "a", "x"))), properties={"cdc.position": "1", "cdc.shards": "s"})
    table.stream("other").write_batch(rows((2, "b", "x")), 7)
    session.commit(session.prepare(5, rows((3, "c", "y"))), properties={"cdc.position": "2", "cdc.committed-ms": "9"})
    table.append(rows((4, "d", "y")))
    table.compact(full=True)
    table.expire_snapshots(retain_last=1)
    (left,) = table.snapshots()
    assert {k: v for k, v in left.properties.items() if k.startswith("cdc.")} == {"cdc.position": "2"}
    assert (session.last_committed(), table.stream("other").last_committed()) == (5, 7)
    assert session.commit(session.prepare(5, rows((9, "z", "x")))) is None
    assert sum(held(table).values()) == 4
    assert first.id not in {snapshot.id for snapshot in table.snapshots()}


def test_a_rollback_goes_back_to_how_far_its_rows_follow(table):
    session = table.stream("job")
    first, _ = [
        session.commit(session.prepare(n, rows((n, "a", "x"))), properties={"cdc.position": f"{n}"}) for n in (1, 2)
    ]
    table.rollback_to(first.id)
    table.append(rows((3, "b", "x")))
    assert table.current_snapshot().properties["cdc.position"] == "1"
    following = (session.last_committed() or 0) + 1
    assert session.commit(session.prepare(following, rows((4, "c", "x")))) is not None
    assert held(table) == {(1, "a", "x"): 1, (3, "b", "x"): 1, (4, "c", "x"): 1}


def test_a_batch_older_than_the_newest_is_refused(table):
    """A new checkpoint begins with batch 0: its rows are others than those of the batch 0 that is committed."""
    session = table.stream("job")
    for n in (0, 1, 2):
        session.write_batch(rows((n, "a", "x")), n)
    assert table.stream("job").write_batch(rows((2, "a", "x")), 2) is None
    with pytest.raises(
        InvalidInput, match=r"batch 0 comes under the name 'job', of which batch 2 is committed.*under a new name"
    ):
        table.stream("job").write_batch(rows((9, "new", "x")), 0)
    sink, files = Sink(partial(table.stream, "job"), appends=True), data_files(table)
    part = sink.write(rows((9, "new", "x")).to_batches())
    with pytest.raises(InvalidInput, match="batch 1 comes under the name 'job'"):
        sink.commit([part], 1)
    assert data_files(table) == files
    assert held(table) == {(n, "a", "x"): 1 for n in (0, 1, 2)}
    table.stream("new").write_batch(rows((9, "new", "x")), 0)
    assert held(table)[9, "new", "x"] == 1


def test_checkpoints_without_rows(table):
    session = table.stream("job")
    assert session.commit(session.prepare(1, rows())) is None
    made = session.commit(session.prepare(2, rows(), watermark=5), empty=True)
    assert (made.files_added, session.last_committed()) == (0, 2)
    assert held(table) == Counter()
    session.commit(session.prepare(3, rows((1, "a", "x"))))
    assert held(table) == {(1, "a", "x"): 1}


def test_abort_removes_its_own_files_only(table):
    session = table.stream("job")
    session.commit(session.prepare(1, rows((1, "a", "x"))))
    files = data_files(table)
    prepared = session.prepare(2, rows((2, "b", "x"), (3, "c", "y")))
    assert len([path for path in data_files(table) - files if "deletes" not in path.name]) == 2
    session.abort(prepared)
    assert data_files(table) == files
    session.commit(session.prepare(3, rows((4, "d", "x"))))
    with pytest.raises(InvalidInput, match="is part of the table"):
        session.abort(prepared)
    assert held(table) == {(1, "a", "x"): 1, (4, "d", "x"): 1}


def test_commits_go_in_order(table):
    session = table.stream("job")
    first, second = session.prepare(1, rows((1, "a", "x"))), session.prepare(2, rows((1, "b", "x")))
    with pytest.raises(InvalidInput, match="commit 1 is prepared and comes before 2"):
        session.commit(second)
    with pytest.raises(InvalidInput, match="prepared by 'job'"):
        table.stream("other").commit(first)
    session.commit(first)
    session.commit(second)
    assert held(table)[1, "b", "x"] == 1
    for identifier in (-1, True, "1", 2**63):
        with pytest.raises(InvalidInput, match="identifier"):
            session.prepare(identifier, rows())
    with pytest.raises(InvalidInput, match="no slashes"):
        table.stream("a/b")


@pytest.mark.parametrize("kind", ["keyed", "iceberg keyed"])
def test_a_stream_upserts_where_there_is_a_primary_key(tmp_path, kind):
    table = make(Lake(str(tmp_path)), kind)
    table.append(rows((1, "old", "x"), (2, "old", "x")))
    session = table.stream("job")
    first = session.prepare(1, rows((1, "a", "x"), (3, "a", "y"), (1, "b", "x")))
    second = session.prepare(2, rows((3, "c", "y"), (4, "c", "y")).append_column("rowkind", pa.array(["+U", "+I"])))
    assert held(table) == {(1, "old", "x"): 1, (2, "old", "x"): 1}
    assert session.commit(first).operation_id == "job/1"
    assert session.commit(second) is not None
    assert session.commit(first) is None
    expected = {(1, "b", "x"): 1, (2, "old", "x"): 1, (3, "c", "y"): 1, (4, "c", "y"): 1}
    assert held(table) == expected
    session.write_batch(rows((4, "c", "y")).append_column("rowkind", pa.array(["-D"])), 3)
    assert held(table) == {row: 1 for row in expected if row[0] != 4}
    if kind == "iceberg keyed":
        with pytest.raises(UnsupportedFeature, match=r"same key \(id, dt\) is kept: write the stream by foreachBatch"):
            Sink(partial(table.stream, "job")).require_writable(fields_from_arrow(SCHEMA))
        assert table.append(rows((2, "again", "x"))).rows_added == 1  # Which adds rows, whatever their keys.
        assert held(table)[2, "old", "x"] == 1


def test_rows_prepared_under_an_earlier_partitioning_are_not_committed(tmp_path):
    table = make(Lake(str(tmp_path)), "iceberg")
    session = table.stream("job")
    prepared = session.prepare(1, rows((1, "a", "x")))
    table.alter().drop_partition_field("dt").commit()
    with pytest.raises(Conflict):
        session.commit(prepared)
    session.commit(session.prepare(1, rows((1, "a", "x"))))
    assert table.scan(where="dt = 'x'").count() == 1


def test_what_is_prepared_later_is_newer(tmp_path):
    """Two checkpoints in flight write the same key."""
    table = make(Lake(str(tmp_path)), "keyed")
    session = table.stream("job")
    prepared = [session.prepare(n, rows((1, f"v{n}", "x"))) for n in range(1, 4)]
    assert [p.files[0].keys.first_sequence for p in prepared] == [0, 1, 2]
    for commit in prepared:
        session.commit(commit)
    assert held(table) == {(1, "v3", "x"): 1}


def test_batches_are_prepared_anew_where_buckets_grew_meanwhile(tmp_path):
    given = {"format": "paimon", "primary_key": ["id", "dt"], "properties": {"bucket": "-1"}}
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, partition_by=["dt"], **given)
    session, other = table.stream("job"), table.stream("other")
    late = session.prepare(1, rows((1, "a", "x")))
    other.write_batch(rows((2, "b", "x")), 1)
    with pytest.raises(Conflict):
        session.commit(late)
    session.write_batch(rows((1, "a", "x")), 1)
    session.write_batch(rows((1, "a", "x")), 1)
    assert held(table) == {(1, "a", "x"): 1, (2, "b", "x"): 1}
    assert [s.operation_id for s in table.snapshots()] == ["other/1", "job/1"]


def test_checkpoints_in_flight_know_which_buckets_the_earlier_ones_gave(tmp_path):
    properties = {"bucket": "-1", "dynamic-bucket.target-row-num": "1"}
    given = {"format": "paimon", "primary_key": ["id", "dt"], "properties": properties}
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, partition_by=["dt"], **given)
    session = table.stream("job")
    keys = ([1, 2, 3], [3, 4, 5], [1, 5, 6])
    prepared = [session.prepare(n, rows(*((i, f"v{n}", "x") for i in keys[n]))) for n in range(3)]
    again = table.stream("job")  # Out of a checkpoint.
    for load in pickle.loads(pickle.dumps(prepared)):
        again.commit(load)
        assert again.commit(load) is None
    assert held(table) == {(i, f"v{n}", "x"): 1 for i, n in zip(range(1, 7), (2, 0, 1, 1, 2, 2), strict=True)}
    late = [again.prepare(n, rows((n + 4, "late", "x"))) for n in (3, 4)]
    table.upsert(rows((100, "new", "x")))
    with pytest.raises(Conflict, match="must not be in two"):
        again.commit(late[0])
    with pytest.raises(InvalidInput, match="commit 3 is prepared and comes before 4"):
        again.commit(late[1])  # It would land without what came before it.
    with pytest.raises(InvalidInput, match="comes after 3"):
        again.prepare(3, rows((4, "late", "x")))
    with pytest.raises(NotFound, match="prepare it again"):
        table.stream("job").commit(late[0])
    again.abort(late[1])
    for n in (3, 4):
        again.commit(again.prepare(n, rows((n + 1, "late", "x"))))
    assert held(table)[5, "late", "x"] == 1


@pytest.mark.parametrize("bucket", ["-1", "1"])
def test_a_commit_counts_only_those_that_it_was_prepared_after(tmp_path, bucket):
    given = {"format": "paimon", "primary_key": ["id", "dt"], "properties": {"bucket": bucket}}
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, partition_by=["dt"], **given)
    one, two = table.stream("job"), table.stream("job")
    second = two.prepare(2, rows((1, "b", "x")))
    one.commit(one.prepare(1, rows((1, "a", "x"), (2, "a", "x"))))
    with pytest.raises(Conflict, match="prepared before 1 was known"):
        two.commit(second)
    two.commit(two.prepare(2, rows((1, "b", "x"))))
    assert held(table) == {(1, "b", "x"): 1, (2, "a", "x"): 1}


def test_rows_whose_files_are_gone_are_not_committed(table):
    """A commit that lost its race removed them, and the process after it finds it in its checkpoint."""
    session = table.stream("job")
    prepared = session.prepare(1, rows((1, "a", "x"), (2, "b", "y")))
    discard(session.store, [prepared.files[1].path])
    with pytest.raises(NotFound, match=r"of the \d files of commit 1 of 'job', 1 no longer exist"):
        table.stream("job").commit(prepared)
    assert table.snapshots() == []
    assert table.stream("job").commit(session.prepare(1, rows((1, "a", "x")))).rows_added == 1


class Late:
    """A store whose newest version is made only when `land` is called, though its maker has heard of an error by then."""

    def __init__(self, store):
        self._store, self.land = store, None

    def __getattr__(self, name):
        return getattr(self._store, name)

    def create(self, path, data):
        self.land = self.land or partial(self._store.create, path, data)
        raise StoreError("no answer yet")


def unheard():
    """(store, table, a stream of it, the commit of which it heard no answer and that may still land, what it is of)."""
    store = MemoryFiles()
    table = Table("t", store, dialect)
    create(table, replace(memory_schema(True), properties={"bucket": "1", "commit.max-retries": "0"}))
    session = table.stream("job")
    session.store = late = Late(store)
    prepared = session.prepare(1, rows((1, "a", "x")))
    with pytest.raises(CommitUnknown):
        session.commit(prepared)
    session.store = store
    return store, table, session, late, prepared


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_abort_leaves_nothing_to_a_commit_that_lands_late(is_restarted):
    store, table, session, late, prepared = unheard()
    session = table.stream("job") if is_restarted else session
    session.abort(prepared)
    assert not any(store.exists(file.path) for file in prepared.files)
    assert late.land() is False
    assert session.commit(session.prepare(1, rows((1, "b", "x")))).operation_id == "job/1"
    assert held(table) == {(1, "b", "x"): 1}


def test_an_abort_removes_nothing_of_a_commit_that_landed_unheard():
    _, table, session, late, prepared = unheard()
    late.land()
    with pytest.raises(InvalidInput, match="is part of the table"):
        session.abort(prepared)
    assert held(table) == {(1, "a", "x"): 1}
    assert len(table.snapshots()) == 1


def test_a_write_whose_id_reads_like_a_commit_of_a_stream_is_none(tmp_path):
    table = make(Lake(str(tmp_path)), "paimon")
    session = table.stream("job")
    for n in range(3):
        session.write_batch(rows((n, "a", "x")), n)
    table.append(rows((9, "a", "x")), id="job/7")
    assert (session.last_committed(), table.stream("jo").last_committed()) == (2, None)


def test_a_stream_writes_to_the_branch_that_it_is_of(tmp_path):
    table = make(Lake(str(tmp_path)), "iceberg")
    table.append(rows((1, "a", "x")))
    branch = table.create_branch("b")
    branch.stream("job").write_batch(rows((2, "b", "x")), 0)
    assert held(table) == {(1, "a", "x"): 1}
    assert held(branch) == {(1, "a", "x"): 1, (2, "b", "x"): 1}
    assert (branch.stream("job").last_committed(), table.stream("job").last_committed()) == (0, None)


def test_streams_and_others_write_beside_each_other(table):
    one, other = table.stream("one"), table.stream("other")
    first, second = one.prepare(1, rows((1, "a", "x"))), other.prepare(1, rows((2, "b", "x")))
    table.append(rows((3, "c", "x")))
    other.commit(second)
    table.compact(full=True) if not table.schema.primary_key else None
    one.commit(first)
    assert held(table) == {(1, "a", "x"): 1, (2, "b", "x"): 1, (3, "c", "x"): 1}


BATCHES = {n: rows((n, f"v{n}", "x"), (10, f"v{n}", "y")) for n in range(1, 4)}


def run(store, checkpoint, format=dialect):
    """A stream from its checkpoint on, until it ends or dies."""
    session = Table("t", store, format).stream("job")
    for identifier, batch in BATCHES.items():
        if identifier > checkpoint.get("done", 0):
            prepared = checkpoint.setdefault("prepared", {}).get(identifier) or session.prepare(identifier, batch)
            checkpoint["prepared"][identifier] = prepared
            session.commit(prepared)
            checkpoint["done"] = identifier


def memory_schema(keyed):
    fields = (
        Field(0, "id", scalar(Kind.BIGINT)),
        Field(1, "v", scalar(Kind.STRING)),
        Field(2, "dt", scalar(Kind.STRING)),
    )
    return Schema(fields=fields, **({"primary_key": ("id",), "properties": {"bucket": "1"}} if keyed else {}))


@pytest.mark.parametrize("keeps_prepared", [False, True])
@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize(("keyed", "format"), [(False, dialect), (True, dialect), (True, iceberg)])
def test_a_stream_that_dies_anywhere_and_starts_again_writes_each_batch_once(keyed, format, after, keeps_prepared):
    def empty():
        store = MemoryFiles()
        create(Table("t", store, format), memory_schema(keyed))
        return store

    run(counting := NthCallFails(empty(), 0, after), {}, format)
    assert counting.made.total() > 10
    for n, kind in faults(counting.made, after):
        store = empty()
        failing, checkpoint = NthCallFails(store, n, after, kind=kind), {}
        try:
            run(failing, checkpoint, format)
        except (StoreError, CommitError):
            if not keeps_prepared:
                checkpoint.pop("prepared", None)
            run(store, checkpoint, format)
        table = Table("t", store, format)
        expected = Counter(row for batch in BATCHES.values() for row in zip(*batch.to_pydict().values(), strict=True))
        if keyed:
            expected -= Counter([(10, "v1", "y"), (10, "v2", "y")])
        assert held(table) == expected, failing.failed
        assert [s.operation_id for s in table.snapshots()] == ["job/1", "job/2", "job/3"], failing.failed


# --- written by tasks -------------------------------------------------------------------------------------------------


def parts(table, *tasks, user="job"):
    sink = Sink(partial(table.stream, user), appends=table.format == "iceberg")
    return sink, [sink.write(iter(task.to_batches())) for task in tasks]


def test_what_tasks_wrote_is_committed_once(table):
    sink, written = parts(table, rows((1, "a", "x"), (2, "b", "y")), rows((3, "c", "x")), rows())
    assert held(table) == Counter()
    made = sink.commit(pickle.loads(pickle.dumps(written)), 0)
    assert (made.rows_added, made.operation_id) == (3, "job/0")
    files = data_files(table)
    assert sink.commit(written, 0) is None
    sink.abort(written, 0)  # Spark does so where it did not hear that the commit went well.
    sink.abort([*written, None], 0)
    assert data_files(table) == files
    _, again = parts(table, rows((1, "a", "x"), (2, "b", "y"), (3, "c", "x")))
    assert sink.commit(again, 0) is None
    assert sink.commit(parts(table, rows())[1], 1) is None
    assert sink.commit([], 2) is None
    assert held(table) == {(1, "a", "x"): 1, (2, "b", "y"): 1, (3, "c", "x"): 1}
    assert len(table.snapshots()) == 1


def test_the_files_of_a_batch_go_where_a_task_failed(table):
    before = data_files(table)
    sink, written = parts(table, rows((1, "a", "x")), rows((2, "b", "y")))
    sink.abort(written, 0)
    assert len(data_files(table)) == len(before) + 2, "a commit was tried, which may still land"
    sink.abort([written[0], None, written[1]], 0)
    assert data_files(table) == before
    assert table.snapshots() == []


def test_a_schema_that_changes_between_tasks_is_a_conflict(table):
    sink, [first] = parts(table, rows((1, "a", "x")))
    table.alter().add_column("w", "string").commit()
    _, [second] = parts(table, rows((2, "b", "x")))
    with pytest.raises(Conflict, match="schema changed while batch 0 of 'job'"):
        sink.commit([first, second], 0)
    assert data_files(table) == set()
    assert sink.commit(parts(table, rows((1, "a", "x")))[1], 0).rows_added == 1


def test_a_sink_says_at_once_what_it_cannot_take(tmp_path, table):
    sink = Sink(partial(table.stream, "job"), appends=table.format == "iceberg")
    sink.require_writable(fields_from_arrow(SCHEMA))
    with pytest.raises(InvalidInput, match="zz"):
        sink.require_writable(fields_from_arrow(SCHEMA.append(pa.field("zz", pa.int8()))))
    growing = Lake(str(tmp_path / "other")).create_table("d.t", SCHEMA, primary_key=["id"])
    with pytest.raises(UnsupportedFeature, match="foreachBatch"):
        Sink(partial(growing.stream, "job")).require_writable(fields_from_arrow(SCHEMA))


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_sink_that_fails_anywhere_and_is_asked_again_writes_each_batch_once(keyed, after):
    def batch(held_in, number, tasks):
        sink = Sink(partial(Table("t", held_in, dialect).stream, "job"))
        written = [None] * len(tasks)
        try:
            for i, task in enumerate(tasks):
                written[i] = sink.write(task.to_batches())
            sink.commit(written, number)
        except (StoreError, CommitError):
            with suppress(StoreError):
                sink.abort(written, number)
            raise

    def stream(n, kind):
        store = MemoryFiles()
        create(Table("t", store, dialect), memory_schema(keyed))
        failing = NthCallFails(store, n, after, kind=kind)
        for number in range(3):
            tasks = [rows((number, "a", "x")), rows((number + 10, "b", "y"))]
            try:
                batch(failing, number, tasks)
            except (StoreError, CommitError):
                batch(store, number, tasks)
        return store, failing

    made = stream(0, None)[1].made
    assert made.total() > 10
    for n, kind in faults(made, after):
        store, failing = stream(n, kind)
        table = Table("t", store, dialect)
        expected = {(number, "a", "x"): 1 for number in range(3)} | {(number + 10, "b", "y"): 1 for number in range(3)}
        assert held(table) == expected, failing.failed
        landed = [s.operation_id for s in table.snapshots() if s.kind == "append"]  # Six sorted runs are compacted.
        assert landed == ["job/0", "job/1", "job/2"], failing.failed


# --- compaction beside a stream ---------------------------------------------------------------------------------------


def keyed(lake, **properties):
    given = {"bucket": "1", "num-sorted-run.compaction-trigger": "2"} | properties
    return lake.create_table("d.t", SCHEMA, format="paimon", primary_key=["id"], properties=given)


def test_commits_of_a_stream_do_not_wait_for_compaction(tmp_path, monkeypatch):
    table = keyed(Lake(str(tmp_path)), **{"num-sorted-run.stop-trigger": "5"})
    session, rewrite, goes_on, began = table.stream("job"), ArrowEngine.rewrite, Event(), Event()

    def slowly(self, store, tasks):
        began.set()
        assert goes_on.wait(60)
        return rewrite(self, store, tasks)

    monkeypatch.setattr(ArrowEngine, "rewrite", slowly)
    for n in range(5):
        session.write_batch(rows((n, "a", "x"), (9, f"v{n}", "x")), n)
    assert began.is_set()
    assert [s.operation_id for s in table.snapshots()] == [f"job/{n}" for n in range(5)]
    prepared = cloudpickle.loads(cloudpickle.dumps(session)).prepare(
        5, rows((5, "a", "x"))
    )  # Another process waits for nothing.
    Timer(0.05, goes_on.set).start()
    waited = session.prepare(5, rows((5, "a", "x")))  # Three commits ahead: as many as the stop trigger lets.
    assert table.snapshots()[-1].operation_id == "job/1/compact"
    session.commit(waited)
    session.abort(replace(prepared, identifier=6))
    session.settle()
    assert session.last_committed() == 5
    assert held(table) == {(n, "a", "x"): 1 for n in range(6)} | {(9, "v4", "x"): 1}


def test_a_compaction_that_fails_or_comes_too_late_fails_no_commit(tmp_path, monkeypatch):
    table = keyed(Lake(str(tmp_path)))
    session, rewrite, told = table.stream("job"), ArrowEngine.rewrite, []

    def unluckily(self, store, tasks):
        told.append(len(told))
        if told == [0]:
            raise StoreError("storage is down")
        if told == [0, 1]:
            table.compact(full=True)  # Another process was faster.
        return rewrite(self, store, tasks)

    monkeypatch.setattr(ArrowEngine, "rewrite", unluckily)
    for n in range(5):
        assert session.write_batch(rows((n, "a", "x"), (9, f"v{n}", "x")), n).operation_id == f"job/{n}"
        session.settle()
    assert len(told) >= 4
    ids = [s.operation_id for s in table.snapshots()]
    assert [id for id in ids if id.count("/") == 1] == [f"job/{n}" for n in range(5)]
    assert "job/1/compact" not in ids  # It failed.
    assert "job/2/compact" not in ids  # Its files were gone.
    assert "job/4/compact" in ids  # Once there are runs enough again.
    assert held(table) == {(n, "a", "x"): 1 for n in range(5)} | {(9, "v4", "x"): 1}


@pytest.mark.parametrize(
    "options",
    [{"commit.force-compact": "true", "full-compaction.delta-commits": "1"}, {"changelog-producer": "lookup"}],
)
def test_commits_wait_for_compaction_where_that_is_asked_for(tmp_path, options):
    table = keyed(Lake(str(tmp_path)), **options)
    session = table.stream("job")
    for n in range(3):
        session.write_batch(rows((n, "a", "x")), n)
        assert table.snapshots()[-1].operation_id == f"job/{n}/compact"


def test_a_stream_compacts_fully_after_every_nth_commit(tmp_path):
    table = keyed(
        Lake(str(tmp_path)), **{"full-compaction.delta-commits": "3", "num-sorted-run.compaction-trigger": "9"}
    )
    session = table.stream("job")
    for n in range(7):
        session.write_batch(rows((n, "a", "x")), n)
        session.settle()
    kinds = [s.operation_id for s in table.snapshots() if s.kind == "compact"]
    assert kinds == ["job/2/compact", "job/5/compact"]
    assert table.stream("job").last_committed() == 6


def test_a_write_only_table_is_left_as_it_is(tmp_path):
    table = keyed(Lake(str(tmp_path)), **{"write-only": "true"})
    session = table.stream("job")
    for n in range(4):
        session.write_batch(rows((n, "a", "x")), n)
    session.settle()
    assert {s.kind for s in table.snapshots()} == {"append"}


# --- Spark ------------------------------------------------------------------------------------------------------------


class Killed(Exception):
    pass


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["paimon", "keyed", "iceberg"])
def test_structured_streaming_killed_at_every_step_and_restarted(spark, tmp_path, kind):
    table = make(Lake(str(tmp_path / "warehouse")), kind)
    source, kills = tmp_path / "source", ["before", "prepared", "committed"]
    source.mkdir()

    def batch(frame, batch_id):
        session = table.stream("query")
        step = kills.pop() if kills else None
        if step == "before":
            raise Killed
        if step == "prepared":
            session.prepare(batch_id, frame)
            raise Killed
        session.write_batch(frame, batch_id)
        if step == "committed":
            raise Killed

    def drain():
        stream = spark.readStream.schema("id bigint, v string, dt string").json(str(source))
        query = (
            stream.writeStream.foreachBatch(batch)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for n in (1, 2):
        (source / f"{n}.json").write_text(json.dumps({"id": n, "v": "a", "dt": "x"}))
        while kills:
            with pytest.raises(Exception, match="Killed"):
                drain()
        drain()
        assert held(table) == {(i, "a", "x"): 1 for i in range(1, n + 1)}
    assert [s.operation_id for s in table.snapshots()] == ["query/0", "query/1"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "steps"), [("keyed", ["written", "before", "committed"]), ("iceberg", ["committed"])], ids=str
)
@pytest.mark.from_pyspark("4.1")
def test_a_data_source_of_spark_killed_at_every_step_and_restarted(spark, tmp_path, kind, steps):
    """Tasks, commits and aborts run in processes of their own, and each kill ends one."""
    table = make(Lake(str(tmp_path / "warehouse")), kind)
    source, kills = tmp_path / "source", tmp_path / "kills"
    source.mkdir()
    kills.mkdir()

    def dies(step):
        with suppress(FileNotFoundError):
            (kills / step).unlink()
            os._exit(1)

    class Dying(Sink):
        def write(self, batches):
            part = super().write(batches)
            dies("written")
            return part

        def commit(self, parts, identifier):
            dies("before")
            super().commit(parts, identifier)
            dies("committed")

    class Tables:
        def sink(self, options, user, overwrite):
            return Dying(partial(table.stream, options["user"]))

    spark_engine.register(spark, "dying", Tables())

    def drain():
        stream = spark.readStream.schema("id bigint, v string, dt string").json(str(source))
        query = (
            stream.writeStream.format("dying")
            .option("user", "query")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for n, step in enumerate(steps, 1):
        (source / f"{n}.json").write_text(json.dumps({"id": n, "v": "a", "dt": "x"}))
        (kills / step).touch()
        with suppress(StreamingQueryException) if step == "written" else pytest.raises(StreamingQueryException):
            drain()  # Where the session lets tasks fail, Spark has another write the rows.
        assert not (kills / step).exists()
        drain()
        assert held(table) == {(i, "a", "x"): 1 for i in range(1, n + 1)}
    assert [s.operation_id for s in table.snapshots()] == [f"query/{n}" for n in range(len(steps))]


@pytest.mark.spark
@pytest.mark.from_pyspark("4.1")
def test_spark_appends_to_tables_of_a_warehouse_as_a_data_source(spark, tmp_path):
    lake = Lake(str(tmp_path / "warehouse"))
    dotted = SCHEMA.append(pa.field("a.b", pa.int64()))
    table = lake.create_table("d.t", dotted, partition_by=["dt"], primary_key=["id", "dt"], properties={"bucket": "2"})
    lake.register(spark, "lake")
    frame = spark.range(6).selectExpr("id", "'a' as v", "string(id % 2) as dt", "id as `a.b`", "'+I' as rowkind")

    def write(mode="append", table="d.t", frame=frame):
        frame.write.format("lake").option("table", table).mode(mode).save()

    write()
    write(frame=frame.filter("id = 3").withColumn("rowkind", F.lit("-D")))
    assert table.scan().to_arrow()["a.b"].to_pylist() == table.scan().to_arrow()["id"].to_pylist()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 4, 5]
    assert [s.kind for s in table.snapshots()] == ["append", "append"]
    for mode, name, why in [
        ("overwrite", "d.t", "replaces either the whole table"),
        ("append", "d.u", "no table"),
        ("append", "", "name the table"),
    ]:
        with pytest.raises(Exception, match=why):
            write(mode, name)
    with pytest.raises(Exception, match=r"to_spark\(spark\)"):
        spark.read.format("lake").load().schema  # noqa: B018  Over Spark Connect, not before.
    nameless = spark.readStream.format("rate").load().writeStream.format("lake").option("table", "d.t")
    with pytest.raises(Exception, match="under a name of its own"):
        nameless.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    assert len(table.snapshots()) == 2
