"""Changelogs out of Spark: each micro-batch of a stream becomes one checkpoint of a delta writer."""

import json

import pyarrow as pa
import pytest

from lakeformat import Lake

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def table(tmp_path):
    return Lake(tmp_path / "lake").create_table("d.t", SCHEMA, format="iceberg", primary_key=["id"])


def rows(table):
    return {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


@pytest.mark.spark
def test_a_spark_frame_is_written_partition_by_partition_in_its_order(spark, table):
    changes = spark.range(0, 1000, 1, 4).selectExpr("id % 50 AS id", "CAST(id AS STRING) AS v", "id AS at")
    with table.delta_writer("cdc", upsert=True) as writer:
        writer.write(changes.orderBy("at").drop("at"))
        assert writer.checkpoint(1).rows_added == 50
    assert rows(table) == {i: str(950 + i) for i in range(50)}


@pytest.mark.spark
def test_a_large_changelog_is_written_by_many_tasks_and_each_key_by_one(spark, table, caplog):
    caplog.set_level("INFO", "lakeformat")
    # Spark cannot bound the number of rows that a function gives.
    many = spark.range(0, 1000, 1, 4).mapInArrow(lambda batches: batches, "id bigint").withColumnRenamed("id", "n")
    kind = "CASE WHEN n % 50 = 7 AND n > 900 THEN '-D' ELSE '+U' END AS rowkind"
    changes = many.selectExpr("n % 50 AS id", "CAST(n AS STRING) AS v", kind, "n AS at").orderBy("at").drop("at")
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    try:
        with table.delta_writer("cdc", upsert=True) as writer:
            writer.write(changes)
            writer.write(many.selectExpr("n AS id", "'late' AS v").where("id < 3"))
            writer.checkpoint(1)
        first = table.inspect.files()
        table.stream("batches").write_batch(changes.where("id < 2"), 1)
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    assert caplog.text.count("spread by key over tasks") == 2
    assert len(first) == 2  # Of two tasks.
    assert rows(table) == {i: {0: "950", 1: "951", 2: "late"}.get(i, str(950 + i)) for i in range(50) if i != 7}


@pytest.mark.spark
def test_each_micro_batch_is_one_checkpoint_and_happens_once(tmp_path, spark, table):
    source = tmp_path / "source"
    source.mkdir()
    asked = tmp_path / "asked"  # A file: over Spark Connect the batches are written in a process of the server.

    def batch(frame, batch_id):
        with asked.open("a") as log:
            log.write(f"{batch_id} ")
        with table.delta_writer("cdc", upsert=True) as writer:
            writer.write(frame.orderBy("at").drop("at"))
            writer.checkpoint(batch_id)

    def drain(checkpoint):
        stream = spark.readStream.schema("id bigint, v string, rowkind string, at bigint").json(str(source))
        query = (
            stream.writeStream.foreachBatch(batch)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for n, changes in enumerate([[(1, "a", "+I"), (2, "b", "+I"), (1, "c", "+U")], [(2, "b", "-D"), (3, "d", "+I")]]):
        lines = [json.dumps({"id": i, "v": v, "rowkind": kind, "at": at}) for at, (i, v, kind) in enumerate(changes)]
        (source / f"{n}.json").write_text("\n".join(lines))
        drain("progress")
        assert rows(table) == [{1: "c", 2: "b"}, {1: "c", 3: "d"}][n]
    snapshots = len(table.snapshots())
    drain(
        "lost"
    )  # Another query without the progress of the first: its batch 0 holds everything, and is there already.
    assert asked.read_text().split() == ["0", "1", "0"]
    assert (rows(table), len(table.snapshots())) == ({1: "c", 3: "d"}, snapshots)
