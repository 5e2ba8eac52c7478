"""What all tests share: one Spark session, started by the first test that asks for it."""

import os
import sys

import pytest

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")


@pytest.fixture(scope="session")
def spark():
    from pyspark.sql import SparkSession

    if remote := os.environ.get("SPARK_TEST_REMOTE"):  # Over Spark Connect: a process holds one kind of session.
        session = SparkSession.builder.remote(remote).getOrCreate()
        yield session
        session.stop()
        return
    session = (
        SparkSession.builder.master("local[2,2]")  # A task that fails is tried once more.
        .appName("lakeformat tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
