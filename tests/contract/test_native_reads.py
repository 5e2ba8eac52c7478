"""Files of Iceberg tables that Spark reads itself, by the names in their footers, and those that it leaves to the worker."""

import datetime
import decimal
import uuid

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.engines.spark import native
from tests.unit import hive_files

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
    groups, rest = native.parted(table._store, table.scan().plan(), ["file"])
    assert (bool(groups), bool(rest)) == (is_native, not is_native)
    expected = table.scan().to_arrow()
    read = pa.table(table.scan().to_spark(spark).toArrow()).cast(expected.schema)
    assert sorted(read.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)


def test_many_small_files_are_left_to_the_worker(tmp_path, monkeypatch):
    table = made(tmp_path, partition_by=["part"])
    monkeypatch.setattr(native, "_FEW_FILES", 1)
    groups, rest = native.parted(table._store, table.scan().plan(), ["file"])
    assert (groups, sum(len(task.paths) for task in rest)) == ([], 2)
