"""A standalone cluster of PySpark's own jars: a master and workers as processes, whose Python has no packages."""

import os
import re
import subprocess
import sys
import venv
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

import pyspark

HOME = Path(pyspark.__file__).parent
WAIT_SECONDS = 120
QUICK = os.environ["SPARK_SUBMIT_OPTS"]  # As of all JVMs of the tests.


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
            env=_environment(**environment), capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {
        **kept, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK, "SPARK_SUBMIT_OPTS": QUICK,
        "JVM_OPTIONS": QUICK, "PYTHONPATH": str(Path(__file__).parents[2]), **more,
    }  # fmt: skip


def _logged(log: Path, pattern: str, process: subprocess.Popen) -> str:
    """What a process says in its log, once it does."""
    end = monotonic() + WAIT_SECONDS
    while monotonic() < end:
        if found := re.search(pattern, log.read_text()):
            return found[1]
        assert process.poll() is None, log.read_text()
        sleep(0.1)
    raise AssertionError(log.read_text())


@contextmanager
def running_cluster(folder: Path, workers: int = 2, cores: int = 1):
    """The workers' Python is a bare virtual environment. Processes are gone afterwards."""
    venv.create(folder / "bare", with_pip=False, symlinks=True)
    python = folder / "bare" / "bin" / "python"
    with ExitStack() as stack:

        def start(name: str, *command: str) -> tuple[subprocess.Popen, Path]:
            log = folder / f"{name}.log"
            process = subprocess.Popen(
                [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{command[0]}", *command[1:]],
                env={**_environment(PYSPARK_PYTHON=str(python)), "PYTHONPATH": ""}, cwd=folder,
                stdout=stack.enter_context(log.open("w")), stderr=subprocess.STDOUT,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process, log

        master, log = start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        cluster = Cluster(_logged(log, r"Starting Spark master at (\S+)", master), python, folder)
        started = [
            start(
                f"worker{n}", "worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", str(cores),
                "--memory", "1g", "--work-dir", str(folder / f"work{n}"), cluster.url,
            )
            for n in range(workers)
        ]  # fmt: skip
        for process, log in started:
            _logged(log, r"(Successfully registered) with master", process)
            cluster.workers.append(process)
        yield cluster
