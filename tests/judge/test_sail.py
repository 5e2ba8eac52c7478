"""Sail, which answers Spark Connect without a JVM: verbs and scans do there what they do on Spark, and what it would do otherwise is refused."""

import os
import re
import subprocess

import pytest

from . import environments
from .environments import ROOT

FILES = ["verbs", "merge", "crossing", "keyed", "version_3", "merge_on_read"]
# What these ask of the session itself (a JVM, settings of Spark), or a match that Sail is not asked for.
OTHERWISE = "sessions_settings or source_once or computed or width"
SERVER = """
from pysail.spark import SparkConnectServer
server = SparkConnectServer(port=0)
server.start(background=True)
print(server.listening_address[1], flush=True)
input()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a command of the environment's Python with the address of a server in `SPARK_TEST_REMOTE`."""
    python = environments.python(environments.SAIL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RUST_LOG": "error"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([python, "-c", SERVER], env=environment, **pipes) as server:
        environment["SPARK_TEST_REMOTE"] = f"sc://localhost:{server.stdout.readline().strip()}"

        def run(*command):
            place = {"cwd": tmp_path_factory.mktemp("sail"), "env": environment, "check": False}
            ended = subprocess.run([python, *command], capture_output=True, text=True, timeout=1200, **place)
            assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-2000:]

        yield run
        server.stdin.close()


@pytest.mark.parametrize("file", FILES)
def test_sail_does_the_same(run, file):
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-m", "spark", "-k", f"not ({OTHERWISE})"]
    run("-m", "pytest", *options, f"{ROOT}/tests/contract/test_{file}.py")


def test_the_page_of_sail_runs(run):
    (block,) = re.findall(r'```py title="Sail"\n(.*?)```', (ROOT / "docs" / "spark.md").read_text(), re.DOTALL)
    run("-W", "error::UserWarning:lakeformat", "-c", block)
