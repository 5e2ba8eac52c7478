"""`format("lakeformat")`: tables that Spark reads, follows and writes by name."""

import datetime as dt
import json
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import datasource

from lakeformat import Lake
from lakeformat.engines.spark import data_source, executors
from lakeformat.errors import Conflict, InvalidInput, NotFound, UnsupportedFeature
from lakeformat.warehouse.data_source import TablesByOptions
from tests import doors

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), pa.field("dt", pa.string(), nullable=False)]
)


def create(folder, kind):
    lake = Lake(str(folder / "lake"))
    if kind == "keyed":
        properties = {"bucket": "2", "changelog-producer": "input"}
        return lake.create_table("d.t", SCHEMA, partition_by=["dt"], primary_key=["id", "dt"], properties=properties)
    return lake.create_table("d.t", SCHEMA, format=kind, partition_by=["dt"])


def rows(*found):
    return pa.table(dict(zip(SCHEMA.names, zip(*found, strict=True), strict=True)), SCHEMA)


def held(frame):
    return sorted((tuple(row) for row in frame.collect()), key=str)


@pytest.mark.parametrize("kind", ["iceberg", "paimon"])
def test_options_choose_the_version_the_branch_or_the_changes(tmp_path, kind):
    table = create(tmp_path, kind)
    tables = TablesByOptions(Lake(str(tmp_path / "lake")))
    first = table.append(rows((1, "a", "x"), (2, None, "y")))
    table.create_tag("one")
    table.create_branch("side").append(rows((9, "side", "x")))
    last = table.append(rows((3, "c", "x")))

    def ids(**options):
        reading = tables.reading({"path": "d.t", **{name: str(value) for name, value in options.items()}}).select(
            ["id"]
        )
        tasks = [(piece.task, piece.kind) for piece in reading.pieces()]
        found = executors.pieces(reading.store, tasks, table.scan(["id"]).fields, None, False)
        return sorted(id for batch in found for id in batch["id"].to_pylist())

    assert ids() == ids(as_of=last.timestamp_ms) == ids(from_snapshot=0) == [1, 2, 3]
    assert ids(snapshot=first.id) == ids(tag="one") == ids(from_snapshot=0, to_snapshot=first.id) == [1, 2]
    assert ids(branch="side") == [1, 2, 9]
    assert ids(from_snapshot=first.id) == [3]
    for options, why in [
        ({"row_kinds": "yes"}, "must be 'true' or 'false'"),
        ({"snapshotId": "1"}, "no option 'snapshotId'"),
        ({"to_snapshot": "1"}, "to_snapshot without from_snapshot"),
        ({"from_snapshot": "1", "tag": "one"}, "give one or the other"),
        ({"snapshot": "new"}, "give a whole number"),
        ({"table": "d.other"}, "and not two: d.other, d.t"),
        ({"snapshot": "1", "tag": "one"}, "one of snapshot_id, as_of and tag"),
        ({"from_snapshot": "0", "row_kinds": "yes"}, "must be 'true' or 'false'"),
        ({"from_snapshot": "0", "row_kinds": "false"}, "changes always have the column _row_kind"),
    ]:
        with pytest.raises(InvalidInput, match=why):
            tables.reading({"path": "d.t", **options})
    for options, why in [
        ({"snapshot": "1"}, "no option 'snapshot'"),
        ({"to_snapshot": "1"}, "no option 'to_snapshot'"),
        ({"row_kinds": "yes"}, "must be 'true' or 'false'"),
        ({"maxFilesPerTrigger": "0"}, "at least 1"),
        ({"maxRowsPerTrigger": "-1"}, "give a whole number"),
    ]:
        with pytest.raises(InvalidInput, match=why):
            tables.following({"path": "d.t", **options})
    for user, options, why in [
        ("a write", {"user": "me"}, "no option 'user'"),
        ("a write", {"snapshot": "1"}, "no option 'snapshot'"),
        ("a write", {"partitionOverwriteMode": "dynamik"}, "found 'dynamik'"),
        (None, {"user": "me", "partitionOverwriteMode": "dynamic"}, "no option 'partitionOverwriteMode'"),
        (None, {}, "under a name of its own"),
    ]:
        with pytest.raises(InvalidInput, match=why):
            tables.sink({"path": "d.t", **options}, user)


def test_spark_reads_versions_columns_and_changes_by_name(spark, tmp_path):
    table = create(tmp_path, "keyed")
    Lake(str(tmp_path / "lake")).register(spark)
    first = table.append(rows((1, "a", "x"), (2, None, "y")))
    table.append(rows((3, "c", "x")))
    changes = spark.read.format("lakeformat").option("from_snapshot", first.id).load("d.t")
    assert held(changes.filter("_row_kind = '+I' AND dt = 'x'")) == [(3, "c", "x", "+I")]
    chosen = spark.read.format("lakeformat").schema("dt string, id bigint").load("d.t")
    assert held(chosen) == [("x", 1), ("x", 3), ("y", 2)]
    spark.sql(f"CREATE OR REPLACE TEMP VIEW named USING lakeformat OPTIONS (path 'd.t', snapshot '{first.id}')")
    assert [tuple(row) for row in spark.sql("SELECT count(*), max(v) FROM named").collect()] == [(2, "a")]
    with pytest.raises(Exception, match="no option 'snapshotid'"):
        spark.read.format("lakeformat").option("snapshotId", "1").load("d.t").collect()


def read(following, start, end):
    """The rows, with their kinds, and how many files they lie in."""
    names = [*SCHEMA.names, "_row_kind"]
    pieces = following.pieces(names, start, end)
    tasks = [(piece.task, piece.kind) for piece in pieces]
    found = executors.pieces(following.store, tasks, following.fields[:-1], "_row_kind", False)
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()], sum(
        piece.file_count for piece in pieces
    )


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", ["iceberg", "paimon", "keyed"])
@pytest.mark.parametrize("limits", [(None, None), (1, None), (2, None), (None, 1), (None, 3)])
def test_a_stream_gives_each_change_once_and_in_order_whatever_the_limits(tmp_path, kind, limits):
    table = create(tmp_path, kind)
    tables = TablesByOptions(Lake(str(tmp_path / "lake")))
    options = {"path": "d.t", "maxFilesPerTrigger": limits[0], "maxRowsPerTrigger": limits[1]}
    following = tables.following({name: str(value) for name, value in options.items() if value})
    assert following.latest(following.initial(), None, *limits) == following.initial()
    changes = [
        lambda: table.append(rows((1, "a", "x"), (2, "b", "y"), (3, "c", "z"))),
        lambda: table.append(rows((4, "d", "x"), (5, "e", "x"))),
        lambda: table.compact(full=True),
        lambda: table.overwrite_partitions(rows((6, "f", "y"), (7, "g", "z"))),
        lambda: table.drop_partitions([{"dt": "x"}]),
        lambda: table.append(rows((4, "again", "x"), (8, None, "w"))),
    ]
    for first in (1, 3):  # The stream begins with what is there, and goes on in pieces.
        for change in changes[:first]:
            change()
        start, state, batches = following.initial(), Counter(), 0
        for change in [lambda: None, *changes[first:]]:
            change()
            while (end := json.loads(json.dumps(following.latest(start, None, *limits)))) != start:
                found, files = read(following, start, end)
                assert read(following, start, end) == (found, files)
                assert limits[0] is None or files <= limits[0]
                assert limits[1] is None or len(found) <= max(limits[1], 3)  # One file has three rows.
                for *row, sign in found:
                    state[tuple(row)] += 1 if sign[0] == "+" else -1
                    assert state[tuple(row)] >= 0
                start, batches = end, batches + 1
            assert +state == Counter(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())
            assert following.newest() == start
        assert batches > 3 or limits == (None, None)
        table.truncate()


def test_a_stream_stops_at_rows_that_go_where_it_shows_no_kinds(tmp_path):
    table = create(tmp_path, "iceberg")
    table.append(rows((1, "a", "x")))
    following = TablesByOptions(Lake(str(tmp_path / "lake"))).following({"path": "d.t"})
    start = following.newest()
    table.drop_partitions([{"dt": "x"}])
    tasks = [(piece.task, piece.kind) for piece in following.pieces(SCHEMA.names, start, following.newest())]
    with pytest.raises(InvalidInput, match="rows were changed or removed, and the stream shows no kinds"):
        list(executors.pieces(following.store, tasks, following.fields[:-1], None, True))


def test_a_checkpoint_of_another_history_is_refused(tmp_path):
    """Paimon numbers the snapshots of each table and branch from 1."""
    table = create(tmp_path, "paimon")
    lake = Lake(str(tmp_path / "lake"))
    following = TablesByOptions(lake).following({"path": "d.t"})
    for id in (1, 2):
        table.append(rows((id, "a", "x")))
    offset = json.loads(json.dumps(following.newest()))
    within = {**following.latest(following.initial(), None, 1, None), "tasks": 1}
    old = {name: value for name, value in offset.items() if name != "made"}  # As earlier versions wrote them.
    assert read(following, old, following.newest())[0] == []
    lake.drop_table("d.t")
    table = create(tmp_path, "paimon")
    following = TablesByOptions(Lake(str(tmp_path / "lake"))).following({"path": "d.t"})
    with pytest.raises(NotFound, match="the table has no snapshot"):
        read(following, offset, following.newest())
    for id in (3, 4, 5):
        table.append(rows((id, "c", "x")))
    for start, end in [(offset, following.newest()), (within, following.newest()), (following.initial(), offset)]:
        with pytest.raises(NotFound, match=r"read up to snapshot 2 of 20.*dropped and created again.*new checkpoint"):
            read(following, start, end)


@pytest.mark.parametrize("kind", ["iceberg", "paimon"])
def test_a_stream_that_was_down_for_longer_than_snapshots_are_kept_says_so(tmp_path, kind):
    table = create(tmp_path, kind)
    following = TablesByOptions(Lake(str(tmp_path / "lake"))).following({"path": "d.t", "maxFilesPerTrigger": "1"})
    table.append(rows((1, "a", "x")))
    start = following.newest()
    table.append(rows((2, "b", "x"), (3, "c", "y")))
    within = following.latest(start, None, 1, None)  # One of two files.
    table.append(rows((4, "d", "x")))
    table.expire_snapshots(retain_last=1)
    for offset in (start, within):
        with pytest.raises(NotFound, match=r"snapshot \d+ does not exist"):
            read(following, offset, following.newest())
    assert len(read(following, following.initial(), following.newest())[0]) == 4


@pytest.mark.from_pyspark("4.2")
def test_a_stream_of_spark_copies_rows_then_changes_in_bounds(spark, tmp_path):
    table = create(tmp_path, "keyed")
    lake = Lake(str(tmp_path / "lake"))
    lake.register(spark)
    copy = lake.create_table("d.copy", SCHEMA, primary_key=["id", "dt"], properties={"bucket": "2"})

    def follow(**options):
        stream = spark.readStream.format("lakeformat").option("row_kinds", "true").options(**options).load("d.t")
        query = stream.withColumnRenamed("_row_kind", "rowkind").writeStream
        query = query.foreachBatch(copy.stream("copy").write_batch).trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        assert copy.scan().to_arrow().sort_by("id") == table.scan().to_arrow().sort_by("id")
        return [snapshot.operation_id for snapshot in copy.snapshots() if snapshot.kind == "append"]

    table.append(rows((1, "a", "x"), (2, "b", "y"), (3, "c", "z")))
    assert follow(maxFilesPerTrigger="2") == ["copy/0", "copy/1"]
    table.upsert(rows((1, "n", "x"), (3, None, "z")).append_column("rowkind", pa.array(["+U", "-D"])))
    table.upsert(rows((1, "m", "x")))
    assert follow() == ["copy/0", "copy/1", "copy/2"]


@pytest.mark.parametrize("kind", ["iceberg", "paimon", "keyed"])
def test_overwrites_are_static_or_dynamic_as_asked(tmp_path, kind):
    """Two tasks write, and one process commits."""
    table = create(tmp_path, kind)
    tables = TablesByOptions(Lake(str(tmp_path / "lake")))

    def overwrite(*parts, **options):
        sink = tables.sink({"path": "d.t", **options}, "user", overwrite=True)
        sink.require_writable(table.scan().fields)
        sink.commit([sink.write(part.to_batches()) for part in parts], 0)
        return sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())

    table.append(rows((1, "a", "x"), (2, "b", "y")))
    for options in ({}, {"partitionOverwriteMode": "some"}):
        with pytest.raises(InvalidInput, match=r"replaces either the whole table"):
            overwrite(rows((3, "c", "y")), **options)
    new, other, none = rows((3, "c", "y")), rows((4, "d", "y"), (5, "e", "z")), SCHEMA.empty_table()
    assert overwrite(new, other, partitionOverwriteMode="dynamic") == [1, 3, 4, 5]
    assert overwrite(none, partitionOverwriteMode="dynamic") == [1, 3, 4, 5]
    assert overwrite(new, none, partitionOverwriteMode="STATIC") == [3]
    assert overwrite(none, partitionOverwriteMode="static") == []
    assert table.remove_orphan_files(older_than=dt.timedelta(0), dry_run=True) == []
    table.append(new)
    sink = tables.sink({"path": "d.t", "partitionOverwriteMode": "static"}, "user", overwrite=True)
    parts = [sink.write(new.to_batches())]
    table.alter().add_column("more", "int").commit()
    with pytest.raises(Conflict, match="schema changed"):
        sink.commit([*parts, sink.write(new.to_batches())], 0)
    sink.abort([sink.write(new.to_batches()), None], 0)
    assert table.remove_orphan_files(older_than=dt.timedelta(0), dry_run=True) == []


def test_tasks_do_not_overwrite_an_iceberg_table_with_a_key(tmp_path):
    lake = Lake(str(tmp_path / "lake"))
    table = lake.create_table("d.t", SCHEMA, format="iceberg", primary_key=[SCHEMA.names[0]])
    table.append(rows((1, "a", "x")))
    sink = TablesByOptions(lake).sink({"path": "d.t", "partitionOverwriteMode": "static"}, "user", overwrite=True)
    with pytest.raises(UnsupportedFeature, match=r"the last row of each key.*table\.overwrite\(frame\)"):
        sink.require_writable(table.scan().fields)
    assert table.scan().count() == 1


def test_spark_overwrites_and_inserts_by_name(spark, tmp_path):
    table = create(tmp_path, "iceberg")
    Lake(str(tmp_path / "lake")).register(spark)
    table.append(rows((1, "a", "x"), (2, "b", "y")))
    new = spark.createDataFrame([(2, "new", "y")], "id bigint, v string, dt string")
    new.write.format("lakeformat").mode("overwrite").option("partitionOverwriteMode", "dynamic").save("d.t")
    assert held(table.scan().to_spark(spark)) == [(1, "a", "x"), (2, "new", "y")]
    options = "path 'd.t', partitionOverwriteMode 'dynamic'"
    spark.sql(f"CREATE OR REPLACE TEMP VIEW named USING lakeformat OPTIONS ({options})")
    spark.sql("INSERT INTO named VALUES (3, 'c', 'y')")
    spark.sql("INSERT OVERWRITE named SELECT 9, 'z', 'x'")
    assert held(table.scan().to_spark(spark)) == [(2, "new", "y"), (3, "c", "y"), (9, "z", "x")]


@pytest.fixture
def typed(tmp_path):
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    data = pa.table(
        {
            "id": pa.array([1, 2, 3, None], pa.int64()),
            "p": ["x", "y", "y", "z"],
            "f": pa.array([1.5, float("nan"), None, -0.0], pa.float64()),
            "s": ["abc", None, "bcd", ""],
            "d": pa.array([dt.date(2020, 1, 1), None, dt.date(2021, 1, 1), dt.date(1900, 1, 1)]),
            "t": pa.array([moment, None, moment + dt.timedelta(1), moment], pa.timestamp("us", "UTC")),
            "n": pa.array([moment.replace(tzinfo=None), None, None, None], pa.timestamp("us")),
            "x": pa.array([Decimal("1.50"), Decimal("-2.00"), None, Decimal("0.00")], pa.decimal128(10, 2)),
            "b": pa.array([b"a", b"", None, b"\xff"], pa.binary()),
            "y": pa.array([True, False, None, True]),
            "r": pa.array([{"a": 1}, {"a": None}, None, {"a": 4}], pa.struct([("a", pa.int32())])),
        }
    )
    table = Lake(str(tmp_path / "lake")).create_table("d.t", data.schema, format="iceberg", partition_by=["p"])
    table.append(data)
    return table


@pytest.mark.from_pyspark("4.1")
def test_filters_of_every_type_leave_out_files(spark, typed, tmp_path):
    """The other partitions' files are gone: a read that looked for them would fail."""
    for task in typed.scan(where="p <> 'x'").plan():
        doors.store(typed).delete(list(task.paths))
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, "true")
    try:
        Lake(str(tmp_path / "lake")).register(spark)
        conditions = [
            "p = 'x'", "id IN (1, 3)", "id <=> 1", "NOT (id > 5)", "f > 1", "s LIKE 'ab%'", "s LIKE '%c'", "s LIKE '%b%'",
            "d >= date '2020-01-01'", "t = timestamp '2020-01-02 03:04:05Z'", "n < timestamp_ntz '2020-01-03 00:00:00'",
            "x > 1.25", "b = X'61'", "y", "r.a >= 1", "s IS NOT NULL", "f <> double('NaN')",
        ]  # fmt: skip
        found = spark.read.format("lakeformat").load("d.t").filter(" AND ".join(conditions))
        assert held(found.select("id", "y")) == [(1, True)]
    finally:
        spark.conf.set(PUSHDOWN, before)


@pytest.mark.from_pyspark("4.1")
def test_a_filter_keeps_the_rows_that_it_keeps_in_spark(typed):
    nan = float("nan")
    for filter, ids in [
        (datasource.EqualTo(("id",), 2), [2]),
        (datasource.EqualNullSafe(("id",), 2), [2]),
        (datasource.Not(datasource.EqualTo(("id",), 2)), [1, 3]),
        (datasource.In(("id",), (1, 3)), [1, 3]),
        (datasource.Not(datasource.In(("id",), (1, 3))), [2]),
        (datasource.EqualTo(("f",), nan), [2]),
        (datasource.GreaterThan(("f",), 1.0), [1, 2]),
        (datasource.LessThanOrEqual(("f",), 0.0), [None]),
        (datasource.StringStartsWith(("s",), "ab"), [1]),
        (datasource.StringEndsWith(("s",), "d"), [3]),
        (datasource.StringContains(("s",), "bc"), [1, 3]),
        (datasource.LessThan(("s",), "b"), [1, None]),
        (datasource.GreaterThanOrEqual(("d",), dt.date(2020, 1, 1)), [1, 3]),
        (datasource.EqualTo(("t",), dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC)), [1, None]),
        (datasource.LessThan(("n",), dt.datetime(2020, 1, 3)), [1]),
        (datasource.GreaterThan(("x",), Decimal("-1.5")), [1, None]),
        (datasource.EqualTo(("b",), b"\xff"), [None]),
        (datasource.Not(datasource.EqualTo(("y",), True)), [2]),
        (datasource.GreaterThan(("r", "a"), 1), [None]),
        (datasource.IsNull(("r",)), [3]),
        (datasource.IsNotNull(("s",)), [1, 3, None]),
    ]:
        found = typed.scan(["id"]).filter(data_source._condition(filter)).to_arrow()["id"].to_pylist()
        assert sorted(found, key=str) == ids, filter
    assert data_source._condition(datasource.EqualTo(("id",), [1])) is None
