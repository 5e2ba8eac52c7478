"""One Spark session for all of these tests; a warehouse and a Dagster instance for each."""

import os

os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
os.environ.pop("DAGSTER_HOME", None)  # Tests bring their own homes, and leave the user's alone.

import dagster as dg
import pytest

from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.spark import SparkResource


@pytest.fixture(scope="session")
def spark():
    """A session that outlives every run: a run gives back only what it started itself."""
    resource = SparkResource(app_name="lakeformat tests", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    yield resource.session
    resource.teardown_after_execution(dg.build_init_resource_context())


@pytest.fixture
def lake(tmp_path):
    return LakeResource(warehouse=str(tmp_path / "warehouse"), database="nyc")


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance
