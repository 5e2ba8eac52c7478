"""Batches of rows that Spark sends to Python have a bound in bytes, whether or not Spark adds them up."""

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from lakeformat.codec.arrow import arrow_schema
from lakeformat.dialects.iceberg.layout import Directory
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.spark import batches, executors, session
from lakeformat.engines.spark.engine import SparkEngine
from lakeformat.model.partition import PartitionField, Transform, TransformKind
from lakeformat.model.schema import Field, Kind, result_type, scalar
from lakeformat.model.work import FilesTask, WriteTask
from lakeformat.storage.files import open_store

pytestmark = pytest.mark.spark
FIELDS = (
    Field(0, "id", scalar(Kind.BIGINT)),
    Field(1, "part", scalar(Kind.INT)),
    Field(2, "te.xt", scalar(Kind.STRING)),
    Field(3, "raw", scalar(Kind.BYTES)),
)
ROW_BYTES = 8 << 10
IDENTITY = Transform(TransformKind.IDENTITY)


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    monkeypatch.setattr(batches, "_wide", set())


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "table"))


def layout(distribution, source="part", transform=IDENTITY):
    type = result_type(transform, next(field.type for field in FIELDS if field.name == source))
    directory = Directory((source,), (transform.kind,), (type,))
    return WriteTask(
        FIELDS, directory, partition_by=(PartitionField(source, transform, source),), distribution=distribution
    )


def frame_of(spark, sizes):
    """Rows whose text and bytes have these sizes together; None: both are null."""
    rows = [
        (i, i % 3, *((None, None) if size is None else (size // 2, size - size // 2))) for i, size in enumerate(sizes)
    ]
    frame = spark.createDataFrame(rows, "id bigint, part int, texts int, bytes int").repartition(2)
    text = F.expr("repeat('x', texts)").alias("te.xt")
    return frame.select("id", "part", text, F.expr("cast(repeat('y', bytes) as binary)").alias("raw"))


def written(spark, store, frame, task):
    """(id, size) of all rows written, from the files that the engine returns, which are all that exist."""
    files = SparkEngine(spark).write(store, frame, task)
    assert {file.path for file in files} == {entry.path for entry in store.list("")}
    assert len({file.partition for file in files}) == len({file.path for file in files}) or task.distribution == "none"
    parallel = [(file.path, file.row_count, file.size_bytes) for file in files]
    read = FilesTask(*zip(*parallel, strict=True), "parquet", FIELDS)
    table = pa.Table.from_batches(ArrowEngine().read(store, [read], FIELDS), arrow_schema(FIELDS))
    return {
        row["id"]: None if row["te.xt"] is None else len(row["te.xt"]) + len(row["raw"]) for row in table.to_pylist()
    }


@pytest.mark.parametrize("distribution", ["none", "hash"])
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_all_sizes_are_written_whole(spark, store, seed, distribution):
    numbers = random.Random(seed)
    near = [0, 1, ROW_BYTES - 100, ROW_BYTES, ROW_BYTES + 1, 5 * ROW_BYTES][: 3 + seed]
    sizes = [numbers.choice([None, *near, numbers.randrange(2000)]) for _ in range(300)]
    frame = frame_of(spark, sizes)
    assert written(spark, store, frame, layout(distribution)) == dict(enumerate(sizes))
    is_wide = any((size or 0) >= ROW_BYTES for size in sizes)
    assert (batches.narrow(frame) is None) == is_wide == (seed > 0)


@pytest.mark.parametrize("size", [100, ROW_BYTES])
@pytest.mark.from_pyspark("4.1")
def test_rows_are_bounded_before_python_computes_their_partition(spark, store, size):
    sizes = [50] * 99 + [size]
    task = layout("hash", "te.xt", Transform(TransformKind.TRUNCATE, 2))
    assert written(spark, store, frame_of(spark, sizes), task) == dict(enumerate(sizes))
    assert bool(batches._wide) == (size == ROW_BYTES)


def test_a_batch_is_flagged_before_it_grows_beyond_its_bound(spark):
    narrow = batches.narrow(frame_of(spark, [ROW_BYTES - 40, ROW_BYTES, 1 << 20, None]))
    rows = {row["id"]: row for row in narrow.frame.collect()}
    assert [rows[id][-1] for id in range(4)] == [False, True, True, False]
    assert [rows[id]["te.xt"] is None for id in range(4)] == [False, True, True, True]
    assert narrow.rows * ROW_BYTES <= batches.BATCH_BYTES
    with session.in_batches_of(spark, narrow.rows):
        sizes = narrow.frame.select("id").mapInArrow(
            lambda parts: (pa.record_batch({"n": [part.num_rows]}) for part in parts), "n bigint"
        )
        assert max(row.n for row in sizes.collect()) <= narrow.rows
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"


def test_columns_of_fixed_width_need_no_flag(spark):
    narrow = batches.narrow(spark.range(10).selectExpr("id", "cast(id as double) d", "current_date() day"))
    assert (narrow.rows, narrow.is_flagged) == (100_000, False)
    many = batches.narrow(spark.range(10).selectExpr(*(f"id as c{number}" for number in range(300))))
    assert many.rows * 300 * 8 <= batches.BATCH_BYTES


@pytest.mark.parametrize("select", ["array(id) a", "map(id, id) m", "named_struct('a', id) s", "parse_json('1') v"])
def test_spark_adds_up_the_bytes_of_nested_columns(spark, select):
    assert batches.narrow(spark.range(10).selectExpr("id", select)) is None


def test_spark_adds_up_bytes_where_others_send_rows_to_python(spark):
    assert batches.narrow(spark.range(10).mapInArrow(lambda parts: parts, "id bigint")) is None


@pytest.mark.from_pyspark("4.1")
def test_the_sessions_own_batches_are_kept(spark):
    assert session.counts_bytes(spark)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        assert not session.counts_bytes(spark)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")


def test_rows_that_are_too_large_end_the_work():
    flagged = pa.record_batch({"id": [1, 2], "wide": [False, True]})
    with pytest.raises(executors.WideRows):
        list(executors.only_narrow(lambda parts: parts, iter([flagged])))
    narrow = flagged.slice(0, 1)
    assert [part.schema.names for part in executors.only_narrow(lambda parts: parts, iter([narrow]))] == [["id"]]


def test_an_error_of_a_row_is_raised_from_narrow_batches_too(spark, store):
    task = replace(layout("none"), fields=(replace(FIELDS[0], nullable=False), *FIELDS[1:]))
    frame = frame_of(spark, [1, 2]).withColumn("id", F.expr("if(part = 1, null, id)"))
    with pytest.raises(Exception, match="id"):
        SparkEngine(spark).write(store, frame, task)
    assert store.list("") == []
