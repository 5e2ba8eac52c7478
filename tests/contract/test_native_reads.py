"""Files of Iceberg tables that Spark reads itself, by the names in their footers, and those that it leaves to the worker."""

import datetime
import decimal
import logging
import uuid
from threading import Event

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.engines.spark import native, reachable
from lakeformat.engines.spark.reachable import Reach
from tests import doors
from tests.unit import hive_files
from tests.unit.s3_server import S3Server

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "part": ["a", "a", None],
        "ts": pa.array([datetime.datetime(1960, 1, 2, 3, 4, 5, 6), None, datetime.datetime(2024, 1, 1)], pa.timestamp("us")),
        "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")], pa.decimal128(9, 2)),
        "place": [{"x": 1.5, "tags": ["p", None]}, None, {"x": float("inf"), "tags": []}],
    }
)  # fmt: skip


def made(tmp_path, data=ROWS, **options):
    table = Lake(str(tmp_path)).create_table("d.t", data.schema, format="iceberg", **options)
    table.append(data)
    return table


def renamed(table):
    table.alter().rename_column("id", "number").rename_column("place.x", "y").commit()


def widened(table):
    table.alter().change_type("id", "bigint").change_type("price", "decimal(12, 2)").commit()
    table.append(ROWS.set_column(0, "id", pa.array([1 << 40, 5, 6])))


def with_new_column(table):
    table.alter().drop_column("part").add_column("part", "int").commit()
    table.append(ROWS.set_column(1, "part", pa.array([7, 8, None], pa.int32())))


def with_initial_default(table):
    table.alter().add_column("flag", "int", default="7").commit()


def with_deletes(table):
    table.alter().set_properties({"write.delete.mode": "merge-on-read"}).commit()
    table.delete("id = 1")


def with_files_of_hive(table):
    hive_files.append(table, ROWS)


CASES = {
    "as_written": (made, None, True),
    "partitioned": (lambda path: made(path, partition_by=["part"]), None, True),
    "renamed_columns": (made, lambda table: table.alter().rename_column("id", "number").commit(), True),
    "renamed_parts": (made, renamed, False),
    "wider_types": (made, widened, True),
    "name_of_a_dropped_column": (made, with_new_column, True),
    "initial_default": (lambda path: made(path, properties={"format-version": "3"}), with_initial_default, False),
    "delete_files": (made, with_deletes, False),
    "files_without_the_partition": (lambda path: made(path, partition_by=["part"]), with_files_of_hive, True),
    "uuids": (lambda path: made(path, pa.table({"u": pa.array([uuid.UUID(int=5).bytes], pa.uuid())})), None, False),
    "names_that_differ_in_case": (lambda path: made(path, pa.table({"a": [1], "A": [2]})), None, False),
    "avro": (lambda path: made(path, properties={"write.format.default": "avro"}), None, False),
}


@pytest.mark.spark
@pytest.mark.parametrize("case", CASES)
def test_spark_reads_what_the_worker_reads(tmp_path, spark, case):
    make, change, is_native = CASES[case]
    table = make(tmp_path)
    if change is not None:
        change(table)
    groups, rest = native.parted(doors.store(table), table.scan().plan(), Reach(spark))
    assert (bool(groups), bool(rest)) == (is_native, not is_native)
    expected = table.scan().to_arrow()
    read = pa.table(table.scan().to_spark(spark).toArrow()).cast(expected.schema)
    assert sorted(read.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)


def test_many_small_files_are_left_to_the_worker(tmp_path, spark, monkeypatch):
    table = made(tmp_path, partition_by=["part"])
    monkeypatch.setattr(native, "_FEW_FILES", 1)
    groups, rest = native.parted(doors.store(table), table.scan().plan(), Reach(spark))
    assert (groups, sum(len(task.paths) for task in rest)) == ([], 2)


def test_files_with_deletes_leave_the_others_to_spark(tmp_path, spark):
    table = made(tmp_path, partition_by=["part"], properties={"write.delete.mode": "merge-on-read"})
    table.delete("id = 1")
    groups, rest = native.parted(doors.store(table), table.scan().plan(), Reach(spark))
    assert [len(task.paths) for group in groups for task in group] == [len(task.paths) for task in rest] == [1]
    rows = table.scan(["id", "part"]).to_spark(spark).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(2, "a"), (3, None)]


@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_a_bucket_that_spark_does_not_reach_is_read_by_workers_and_the_log_says_why(spark, caplog, format):
    with S3Server() as server:
        bucket = server.new_bucket()
        table = Lake(f"{bucket}/lake", **server.options).create_table("d.t", ROWS.schema, format=format)
        table.append(ROWS)
        with caplog.at_level(logging.INFO, "lakeformat"):
            for _ in range(2):
                assert table.scan(["id"]).to_spark(spark).toArrow()["id"].to_pylist() == [1, 2, 3]
    (line,) = [record.getMessage() for record in caplog.records if "Spark" in record.getMessage()]
    assert line.startswith(f"{bucket}: the workers read all files, since Spark does not reach them: by s3a, ")
    assert "S3AFileSystem not found" in line
    assert "by s3, " in line


def test_a_session_is_asked_once_for_each_bucket(spark, monkeypatch, caplog):
    asked = []

    def failure(session, location, file_format):
        asked.append(location)
        return None if location.startswith(("s3a://new", "gs:", "s3://old")) else "no such file system"

    monkeypatch.setattr(reachable, "_failure", failure)
    monkeypatch.setattr(reachable, "_schemes_of_session", type(reachable._schemes_of_session)())
    reach = Reach(spark)
    with caplog.at_level(logging.INFO, "lakeformat"):
        for location, uri in {
            "s3://new/a b/%20=ü.parquet": "s3a://new/a b/%20=ü.parquet",
            "s3://new/other.parquet": "s3a://new/other.parquet",
            "s3://old/x.parquet": "s3://old/x.parquet",
            "s3a://none/x.parquet": None,
            "s3://new//x.parquet": None,  # Hadoop would read new/x.parquet.
            "gs://b/x.orc": "gs://b/x.orc",
            "az://c/x.parquet": None,
            "https://host/x.parquet": None,
            "file:///x//y.parquet": "file:///x//y.parquet",
        }.items():
            assert reach.uri(location, "parquet") == Reach(spark).uri(location, "parquet") == uri
    assert len(asked) == len(set(asked)) == 6
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["s3", "s3", "s3a", "gs"]
    spark.conf.set(reachable.SCHEMES, "file, gs")
    try:
        chosen = Reach(spark)
        assert chosen.uri("s3://new/x.parquet", "parquet") is None
        assert chosen.uri("gs://b/x.parquet", "parquet") == "gs://b/x.parquet"
    finally:
        spark.conf.unset(reachable.SCHEMES)


def test_a_file_system_that_does_not_answer_is_given_up(spark, monkeypatch):
    hangs = Event()
    monkeypatch.setattr(reachable, "_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(reachable.T, "StructType", lambda fields: hangs.wait())
    assert reachable._failure(spark, "s3a://b/x.parquet", "parquet") == "no answer in 0 s"
    hangs.set()
