"""SparkResource: its configuration, and what it says where Spark cannot start."""

import socket
import subprocess
import time

import pytest

from lakeformat.dagster import spark
from lakeformat.dagster.spark import (
    DEFAULT_CONF,
    LOCAL_CONF,
    SparkResource,
    SparkUnavailable,
    java_version,
    require_java,
    without_start_lines,
)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_the_java_version_is_read(text, version):
    assert java_version(text) == version


def test_without_java_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="install Java 17 or newer") as caught:
        require_java()
    assert "\n" not in str(caught.value)


def test_an_old_java_is_named(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="is 8: install Java 17"):
        require_java()


@pytest.mark.parametrize("backlog", [None, 1], ids=["nobody listens", "nobody answers"])
def test_an_address_without_a_spark_connect_server_ends_in_one_line(backlog, monkeypatch):
    monkeypatch.setattr(spark, "_SESSION", spark._Shared())  # Other tests of this process may have one that runs.
    began = time.monotonic()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if backlog is not None:
            server.listen(backlog)
        remote = f"sc://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(
            SparkUnavailable, match=f"no Spark Connect server has answered at {remote} within"
        ) as caught:
            getattr(SparkResource(remote=f"{remote}/;token=hidden", connect_seconds=0.3), "session")  # noqa: B009
    assert "\n" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert time.monotonic() - began < 30, "PySpark alone would try for minutes, and again at the end of the process"


def test_local_sessions_start_fast_and_listen_to_nobody_else():
    conf = SparkResource(conf={"spark.ui.enabled": "true"}).full_conf()
    assert conf == {**DEFAULT_CONF, **LOCAL_CONF, "spark.ui.enabled": "true"}
    assert "spark.driver.host" not in SparkResource(master="yarn").full_conf()
    assert "spark.driver.host" not in SparkResource(remote="sc://host:15002").full_conf()


def test_a_session_is_not_started_by_a_run_that_does_not_use_it():
    resource = SparkResource(master="local[7]")
    resource.teardown_after_execution(None)
    assert not resource._uses


def test_what_java_prints_at_the_start_is_dropped_and_all_else_comes_through(capfd):
    text = (
        "WARNING: Using incubator modules: jdk.incubator.vector\n"
        'Setting default log level to "WARN".\n'
        "26/11/27 15:30:54 WARN NativeCodeLoader: Unable to load native-hadoop library\n"
        "26/11/27 15:30:55 WARN Utils: Service could not bind\n"
    )
    with without_start_lines():
        process = subprocess.Popen(["sh", "-c", "cat >&2; sleep 0.1; echo later >&2"], stdin=subprocess.PIPE)
    process.communicate(text.encode())
    shown = ""
    while "later" not in shown:
        shown += capfd.readouterr().err
    assert shown == "26/11/27 15:30:55 WARN Utils: Service could not bind\nlater\n"
