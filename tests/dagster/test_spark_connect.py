"""A run over Spark Connect, in a process of its own: one process holds either a classic session or a remote one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

from assets.nycflights13 import read_days
from lakeformat import Lake

PROVED_BY = [
    "../contract/test_connect.py: rows over Spark Connect",
    "test_runs.py: jobs of Spark belong to the run and the asset",
    "test_spark_resource.py: an address of Spark Connect, and sessions that are started and stopped",
]
pytestmark = [pytest.mark.spark, pytest.mark.long(PROVED_BY)]

ROOT = Path(__file__).parent.parent.parent
DAYS = ["2013-01-01", "2013-01-02"]

RUN = """
import json, sys
import dagster as dg
from pyspark.sql import DataFrame, SparkSession
from assets.raw import flights
from assets.table import DAILY, table
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.spark import SparkResource

warehouse, first, last = sys.argv[1:]
seen = {}

@table(group="test", unique=["dt"], partitions=DAILY, partition_by={"date": "dt"})
def counted(flights: DataFrame, spark: SparkResource) -> DataFrame:
    seen["library"] = type(flights).__module__
    seen["tags"] = sorted(spark.session.getTags())
    return flights.groupBy("dt").count()

lake = LakeResource(warehouse=warehouse, database="nyc")
spark = SparkResource(remote="local[2]")
result = dg.materialize(
    [flights, counted],
    resources={"lake": lake, "spark": spark, "io_manager": LakeIOManager(lake=lake, spark=spark)},
    tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
)
seen["run"] = result.run_id
seen["left"] = SparkSession.getActiveSession() is not None
print(json.dumps(seen))
"""


def test_a_range_runs_over_spark_connect_with_its_jobs_tagged_and_its_session_stopped(tmp_path):
    warehouse = tmp_path / "warehouse"
    command = [sys.executable, "-c", RUN, str(warehouse), DAYS[0], DAYS[-1]]
    environment = {**os.environ, "SPARK_TESTING": "1"}  # Any free port, instead of 15002.
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    seen = json.loads(run.stdout.splitlines()[-1])
    assert seen["library"].startswith("pyspark.sql.connect")
    assert seen["tags"] == [f"{seen['run']}.counted"]
    assert not seen["left"]
    flights = read_days("flights", DAYS)
    counted = Lake(str(warehouse)).table("nyc.counted").scan().to_arrow().to_pylist()
    assert {row["dt"]: row["count"] for row in counted} == {
        day: pc.sum(pc.equal(flights["dt"], day)).as_py() for day in DAYS
    }
