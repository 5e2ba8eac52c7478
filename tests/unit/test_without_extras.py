"""The library alone, as `pip install lakeformat` brings it: none of the packages of the extras is there."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, UnsupportedFeature
from lakeformat.engines import arrow

ROOT = Path(__file__).parents[2]

ALONE = """
import sys

EXTRAS = {"boto3", "dagster", "duckdb", "grpc", "pandas", "polars", "pyspark", "requests", "sqlalchemy"}

class NotInstalled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled)

import pyarrow as pa
from lakeformat import InvalidInput, Lake

lake = Lake(sys.argv[1])
schema = pa.schema([("id", pa.int64()), ("dt", pa.string())])
for format in ("paimon", "iceberg"):
    table = lake.create_table(f"{format}.t", schema, format=format, partition_by=["dt"])
    table.append({"id": [1, 2, 3], "dt": ["a", "b", "a"]})
    table.delete("id = 1")
    source = pa.table({"id": [3, 4], "dt": ["a", "b"]})
    merge = table.merge_into(source, on="t.id = s.id").when_matched().delete().when_not_matched().insert_all()
    merge.merge()
    table.compact(full=True)
    table.expire_snapshots(retain_last=1)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [2, 4]
lake.sql("CREATE TABLE a.b (id BIGINT); ALTER TABLE a.b ADD COLUMN c INT; DELETE FROM paimon.t WHERE id = 2")
assert lake.table("paimon.t").scan().count() == 1
try:
    lake.sql("SELECT 1")
except InvalidInput as error:
    assert "lakeformat[duckdb]" in str(error), error
else:
    raise AssertionError("duckdb")
for catalog, extra in (("sql", "lakeformat[sql]"), ("https://example.test", "lakeformat[rest]")):
    try:
        Lake(sys.argv[1], catalog=catalog)
    except InvalidInput as error:
        assert extra in str(error), error
    else:
        raise AssertionError(catalog)
"""


def test_tables_of_both_formats_need_no_extra(tmp_path):
    command = [sys.executable, "-c", ALONE, str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_importing_the_library_imports_no_pandas():
    """Arrow imports pandas, where that is installed, for the first array or table made of Python values: half of the time of a start."""
    command = [sys.executable, "-c", "import sys, lakeformat; print('pandas' in sys.modules)"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "False\n"


def test_what_is_no_spark_session_is_refused(tmp_path):
    table = Lake(tmp_path).create_table("a.t", pa.schema([("id", pa.int64())]))
    for read in (table.scan().to_spark, table.changes(0).to_spark):
        with pytest.raises(InvalidInput, match=r"to_spark\(None\): give the SparkSession"):
            read(None)


def test_a_spark_frame_that_does_not_stream_is_refused_with_the_way_out():
    old = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})  # As PySpark 4.0 has it.
    with pytest.raises(UnsupportedFeature, match=r"PySpark 4\.1 on; before, give frame\.toArrow"):
        list(arrow.batches(old()))
