"""One Spark session for all of these tests; a warehouse and a Dagster instance for each."""

import os
import re
from pathlib import Path

os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
os.environ.pop("DAGSTER_HOME", None)  # Tests bring their own homes, and leave the user's alone.

import dagster as dg
import psycopg
import pytest

from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.spark import SparkResource


@pytest.fixture(scope="session")
def spark():
    """A session that outlives every run: a run gives back only what it started itself."""
    resource = SparkResource(app_name="lakeformat tests", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    yield resource.session
    resource.teardown_after_execution(dg.build_init_resource_context())


YAML = Path(__file__).parent.parent.parent / "dagster.yaml"


@pytest.fixture(scope="module")
def in_postgres(postgres_server):
    """`dagster.yaml` with its lines about PostgreSQL uncommented, and the address of a new database, which they read from the
    environment."""
    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE dagster")
        yaml, lines = re.subn(
            r"^# (storage:|  postgres:|    postgres_url:)", r"\1", YAML.read_text(), flags=re.MULTILINE
        )
        assert lines == 3
        yield yaml, postgres_server.get_uri("dagster").replace("postgresql://", "postgresql+psycopg2://")
        admin.execute("DROP DATABASE dagster WITH (FORCE)")


@pytest.fixture
def lake(tmp_path):
    return LakeResource(warehouse=str(tmp_path / "warehouse"), database="nyc")


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance
