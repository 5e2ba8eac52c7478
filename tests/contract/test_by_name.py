"""`format("lakeformat")`: tables that Spark reads, follows and writes by name."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from lakeformat import Lake

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), pa.field("dt", pa.string(), nullable=False)]
)


@pytest.fixture(params=["iceberg", "paimon", "keyed"])
def table(request, tmp_path):
    lake = Lake(str(tmp_path / "lake"))
    if request.param == "keyed":
        properties = {"bucket": "2", "changelog-producer": "input"}
        return lake.create_table("d.t", SCHEMA, partition_by=["dt"], primary_key=["id", "dt"], properties=properties)
    return lake.create_table("d.t", SCHEMA, format=request.param, partition_by=["dt"])


@pytest.fixture
def by_name(table, spark):
    Lake(table.uri.rpartition("/d.db")[0]).register(spark)
    return spark


def rows(*found):
    return pa.table(dict(zip(SCHEMA.names, zip(*found, strict=True), strict=True)), SCHEMA)


def held(frame):
    return sorted(tuple(row) for row in frame.collect())


def test_a_read_chooses_the_version_the_columns_and_the_changes(by_name, table):
    first = table.append(rows((1, "a", "x"), (2, None, "y")))
    table.create_tag("one")
    last = table.append(rows((3, "c", "x")))
    read = by_name.read.format("lakeformat")
    assert held(read.load("d.t").select("id")) == [(1,), (2,), (3,)]
    for option, value in [("snapshot", first.id), ("tag", "one"), ("as_of", first.timestamp_ms)]:
        if option != "as_of" or first.timestamp_ms < last.timestamp_ms:
            found = by_name.read.format("lakeformat").option(option, value).load("d.t")
            assert held(found.select("id", "dt")) == [(1, "x"), (2, "y")]
    changes = by_name.read.format("lakeformat").option("from_snapshot", first.id).load("d.t")
    assert held(changes) == [(3, "c", "x", "+I")]
    assert held(changes.filter("_row_kind = '+I' AND dt = 'y'")) == []
    assert held(read.schema("dt string, id bigint").load("d.t")) == [("x", 1), ("x", 3), ("y", 2)]
    by_name.sql("CREATE OR REPLACE TEMP VIEW named USING lakeformat OPTIONS (path 'd.t', tag 'one')")
    assert [tuple(row) for row in by_name.sql("SELECT count(*), max(v) FROM named").collect()] == [(2, "a")]
    for options, why in [
        ({"snapshotId": "1"}, "no option 'snapshotid'"),
        ({"to_snapshot": "1"}, "to_snapshot without from_snapshot"),
        ({"from_snapshot": "1", "tag": "one"}, "give one or the other"),
        ({"snapshot": "new"}, "give a whole number"),
        ({"table": "d.other"}, "and not two: d.other, d.t"),
    ]:
        with pytest.raises(Exception, match=why):
            by_name.read.format("lakeformat").options(**options).load("d.t").collect()


def test_a_stream_copies_rows_then_changes_each_once_and_in_bounds(by_name, table, tmp_path):
    """The copy takes row kinds where it has keys. It is stopped and goes on, also with limits in the middle of a snapshot."""
    keyed = bool(table.schema.primary_key)
    lake = Lake(table.uri.rpartition("/d.db")[0])
    keys = {"primary_key": ["id", "dt"], "properties": {"bucket": "2"}} if keyed else {}
    copy = lake.create_table("d.copy", SCHEMA, partition_by=["dt"], **keys)

    def follow(**options):
        stream = by_name.readStream.format("lakeformat").options(**options).load("d.t")
        frame = stream.withColumnRenamed("_row_kind", "rowkind") if keyed else stream.drop("_row_kind")
        query = frame.writeStream.foreachBatch(copy.stream("copy").write_batch)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def both():
        return [sorted(map(str, each.scan().to_arrow().to_pylist())) for each in (copy, table)]

    table.append(rows((1, "a", "x"), (2, "b", "y"), (3, "c", "z")))
    query = follow(maxFilesPerTrigger="1")
    assert both()[0] == both()[1]
    assert len([each for each in query.recentProgress if each["numInputRows"]]) == 3
    for n in range(2):
        if keyed:
            table.upsert(rows((1, f"n{n}", "x"), (3, None, "z")).append_column("rowkind", pa.array(["+U", "-D"])))
            table.upsert(rows((1, f"m{n}", "x"), (3, "again", "z")))
        else:
            table.append(rows((10 + n, "more", "x"), (20 + n, "more", "y")))
        follow(**{"maxRowsPerTrigger": "1"} if n else {})
        assert both()[0] == both()[1]
    snapshots = len(copy.snapshots())
    follow()
    assert len(copy.snapshots()) == snapshots


def test_overwrites_are_static_or_dynamic_as_asked(by_name, table):
    table.append(rows((1, "a", "x"), (2, "b", "y")))
    frame = table.scan().to_spark(by_name).filter("dt = 'y'").withColumn("v", F.lit("new"))

    def overwrite(frame, **options):
        frame.write.format("lakeformat").mode("overwrite").options(**options).save("d.t")
        return held(table.scan().to_spark(by_name))

    with pytest.raises(Exception, match=r"replaces either the whole table"):
        overwrite(frame)
    assert overwrite(frame, partitionOverwriteMode="dynamic") == [(1, "a", "x"), (2, "new", "y")]
    assert overwrite(frame, partitionOverwriteMode="STATIC") == [(2, "new", "y")]
    assert overwrite(frame.filter("id < 0"), partitionOverwriteMode="dynamic") == [(2, "new", "y")]
    assert overwrite(frame.filter("id < 0"), partitionOverwriteMode="static") == []
    by_name.sql("CREATE OR REPLACE TEMP VIEW named USING lakeformat OPTIONS (path 'd.t')")
    for text in ("INSERT INTO named VALUES (1, 'a', 'x')", "INSERT OVERWRITE named VALUES (1, 'a', 'x')"):
        with pytest.raises(Exception, match="UNSUPPORTED_INSERT"):
            by_name.sql(text)


def test_filters_leave_out_files_and_no_row_that_spark_would_keep(spark, tmp_path):
    lake = Lake(str(tmp_path / "lake"))
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
    table = lake.create_table("d.t", data.schema, format="iceberg", partition_by=["p"])
    table.append(data)
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, "true")
    try:
        lake.register(spark)
        whole = table.scan().to_spark(spark).cache()
        conditions = [
            "id = 2", "id <> 2", "id <=> NULL", "id IN (1, 3)", "id NOT IN (1, 3)", "NOT (id > 1)", "f = double('NaN')",
            "f > 1", "f <= 0", "s LIKE 'ab%'", "s LIKE '%d'", "s LIKE '%c%'", "s < 'b'", "d >= date '2020-01-01'",
            "t = timestamp '2020-01-02 03:04:05Z'", "n < timestamp_ntz '2020-01-03 00:00:00'", "x > -1.5", "x = 1.5",
            "b = X'FF'", "y", "NOT y", "r.a > 1", "r IS NULL", "id > 1 AND p = 'y'", "id = 1 OR p = 'z'",
        ]  # fmt: skip
        for condition in conditions:
            found = spark.read.format("lakeformat").load("d.t").filter(condition)
            assert held(found.select("p", "s")) == held(whole.filter(condition).select("p", "s")), condition
        whole.unpersist()
        for each in table.scan(where="p <> 'x'").plan():
            table._store.delete(list(each.paths))
        assert held(spark.read.format("lakeformat").load("d.t").filter("p = 'x' AND f > 0").select("id")) == [(1,)]
    finally:
        spark.conf.set(PUSHDOWN, before)
