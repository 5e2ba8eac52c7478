"""All verbs on a cluster whose workers have no packages, and what becomes of tables when executors and drivers die."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.spark_cluster import _environment, connect_server, running_cluster

DRIVER = Path(__file__).with_name("driver.py").read_text()
FORMATS = "paimon,iceberg"


def _minor(python):
    """Of its version; None for a shim that starts none."""
    command = [python, "-c", "import sys; print(sys.version_info[1])"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(shown.stdout) if shown.returncode == 0 else None


MINORS = [minor for minor in (11, 12, 13) if minor != sys.version_info[1]]  # Of other Pythons that the library runs on.
OTHERS = [
    *filter(None, (shutil.which(f"python3.{minor}") for minor in MINORS)),
    *map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))),
]

ATTACH = """
import sys
from pyspark.sql import SparkSession
from lakeformat import Lake, UnsupportedFeature

spark = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false").getOrCreate()
for pack in (None, "auto"):
    try:
        Lake(sys.argv[2]).attach(spark, [], pack=pack)
    except UnsupportedFeature as error:
        print(error)
"""
pytestmark = pytest.mark.timeout(0)  # Each run has a limit of its own, which grows with the machine's load.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def warehouse(cluster):
    return str(cluster.folder / "lake")


def run(cluster, *arguments, **environment):
    found = cluster.run(DRIVER, *arguments, XDG_CACHE_HOME=str(cluster.folder), **environment)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-6000:]
    print(found.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "scenarios",
    [
        "verbs",
        "by_name",
        "killed_in_append",
        "killed_in_merge",
        "killed_in_compaction",
        "slow_executor",
    ],
)
def test_on_a_cluster(cluster, warehouse, scenarios):
    run(cluster, warehouse, scenarios, FORMATS)


@pytest.mark.parametrize("format", FORMATS.split(","))
def test_a_job_that_fails_leaves_no_files(cluster, warehouse, format):
    run(cluster, warehouse, "failing_task", format)


def test_a_keyed_write_of_which_an_executor_dies(cluster, warehouse):
    run(cluster, warehouse, "killed_in_upsert", "paimon")


def test_a_connect_server_on_the_cluster(cluster, warehouse):
    """The server's own Python has no packages either."""
    with connect_server(cluster) as url:
        run(cluster, warehouse, "verbs", FORMATS, CONNECT=url)


@pytest.mark.parametrize("python", [other for other in OTHERS if _minor(other) in MINORS][:1])
def test_workers_of_another_python_are_refused_by_name(cluster, warehouse, python):
    refused = cluster.run(ATTACH, warehouse, PYSPARK_PYTHON=python)
    assert refused.returncode == 0, refused.stderr[-3000:]
    lines = refused.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert f"workers run Python 3.{_minor(python)}, and this process 3.{sys.version_info[1]}:" in line
        assert "set PYSPARK_PYTHON" in line


@pytest.mark.parametrize("format", FORMATS.split(","))
def test_a_driver_that_is_killed_leaves_a_whole_table(cluster, warehouse, format):
    command = [sys.executable, "-c", DRIVER, cluster.url, warehouse, "driver_killed", format]
    driver = subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE, text=True, start_new_session=True)
    name = driver.stdout.readline().strip()
    os.killpg(driver.pid, signal.SIGKILL)  # Its JVM as well.
    driver.wait()
    run(cluster, warehouse, "after_driver_killed", format, TABLE=name)


def test_a_worker_that_dies_leaves_its_work_to_the_other(tmp_path):
    with running_cluster(tmp_path) as cluster:
        run(cluster, str(tmp_path / "lake"), "worker_killed", "iceberg")
