"""A standalone cluster of PySpark's own jars: a master and workers as processes, whose Python has no packages."""

import os
import re
import socket
import subprocess
import sys
import venv
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

import pyspark

HOME = Path(pyspark.__file__).parent
WAIT_SECONDS, RUN_SECONDS = 120, 500  # Of a machine that does nothing else.
# As of all JVMs of the tests; executors refuse settings of Spark among them.
QUICK = " ".join(part for part in os.environ["SPARK_SUBMIT_OPTS"].split() if not part.startswith("-Dspark."))


def patience(seconds: float) -> float:
    """How long to wait for what takes so many seconds at most on an idle machine."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@dataclass
class Cluster:
    url: str
    python: Path  # What its workers run.
    folder: Path
    workers: list[subprocess.Popen] = field(default_factory=list)

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        """A driver, as `.venv/bin/python job.py` starts it: no PYSPARK_PYTHON."""
        return subprocess.run(
            [sys.executable, "-c", script, self.url, *arguments],
            env=_environment(**environment), capture_output=True, text=True, timeout=patience(RUN_SECONDS),
            check=False,
        )  # fmt: skip


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {
        **kept, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK, "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"],
        "JVM_OPTIONS": QUICK, "PYTHONPATH": str(Path(__file__).parents[2]), **more,
    }  # fmt: skip


def _logged(log: Path, pattern: str, process: subprocess.Popen) -> str:
    """What a process says in its log, once it does."""
    end = monotonic() + patience(WAIT_SECONDS)
    while monotonic() < end:
        if found := re.search(pattern, log.read_text()):
            return found[1]
        assert process.poll() is None, log.read_text()
        sleep(0.1)
    raise AssertionError(log.read_text())


@contextmanager
def running_cluster(folder: Path, workers: int = 2, cores: int = 1):
    """The workers' Python is a bare virtual environment. Each has an address of its own: Spark does not run a task on one host twice.
    Processes are gone afterwards."""
    venv.create(folder / "bare", with_pip=False, symlinks=True)
    python = folder / "bare" / "bin" / "python"
    with ExitStack() as stack:

        def start(name: str, host: str, *command: str) -> tuple[subprocess.Popen, Path]:
            log = folder / f"{name}.log"
            process = subprocess.Popen(
                [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{command[0]}", "--host", host, *command[1:]],
                env={**_environment(PYSPARK_PYTHON=str(python), SPARK_LOCAL_IP=host), "PYTHONPATH": ""}, cwd=folder,
                stdout=stack.enter_context(log.open("w")), stderr=subprocess.STDOUT,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process, log

        master, log = start("master", "127.0.0.1", "master.Master", "--port", "0", "--webui-port", "0")
        cluster = Cluster(_logged(log, r"Starting Spark master at (\S+)", master), python, folder)
        started = [
            start(
                f"worker{n}", f"127.0.0.{n + 1}", "worker.Worker", "--webui-port", "0", "--cores", str(cores),
                "--memory", "1g", "--work-dir", str(folder / f"work{n}"), cluster.url,
            )
            for n in range(workers)
        ]  # fmt: skip
        for process, log in started:
            _logged(log, r"(Successfully registered) with master", process)
            cluster.workers.append(process)
        yield cluster


@contextmanager
def connect_server(cluster: Cluster):
    """A Spark Connect server on the cluster, as one starts it without a Spark distribution; its URL."""
    log = cluster.folder / "connect.log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false", "spark.executor.memory": "700m", "spark.sql.shuffle.partitions": "4",
    }  # fmt: skip
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                str(HOME / "bin" / "spark-submit"), "--master", cluster.url,
                *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
                "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
            ],
            env={**_environment(PYSPARK_PYTHON=str(cluster.python), SPARK_DAEMON_MEMORY="700m"), "PYTHONPATH": ""}, cwd=cluster.folder,
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            _logged(log, r"(Spark Connect server started)", process)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
