"""The Spark session of a process: started on first use, stopped by the one who started it.

PySpark is optional and imported only when a session is needed.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field, PrivateAttr

from lakeformat.dagster.fields import LaunchableFields

OLDEST_JAVA = 17

# Enough for two cores; adaptive execution merges small shuffle partitions.
DEFAULT_CONF: Mapping[str, str] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
# A local session: half the start-up time, and nothing listens beyond this machine.
LOCAL_CONF: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
}

# What Java and Spark print when a session starts, whatever its log level.
START_LINES = re.compile(
    rb"WARNING: Using incubator modules: |Using Spark's default log4j profile: |Setting default log level to |"
    rb"To adjust logging level use |.* WARN NativeCodeLoader: "
)


class SparkUnavailable(RuntimeError):
    """Spark cannot start here, or does not answer. The message says what to install or to check."""


class SparkResource(LaunchableFields, dg.ConfigurableResource):
    """A Spark session, started on first use and shared by everything in the process.

    `master` runs the driver here (`local[*]`, `yarn`, `k8s://...`); `remote` connects to Spark Connect
    (`sc://host:15002`). Remote executors are sent lakeformat; the packages that it needs (pyarrow and others) must be
    installed there. A session that is already running is used, and not stopped.
    """

    master: str = Field(default="local[*]", description="Where the driver sends its tasks; not used with `remote`.")
    remote: str | None = Field(default=None, description="A Spark Connect address, e.g. `sc://host:15002`.")
    connect_seconds: float = Field(default=10, description="How long the server of `remote` may take to answer.")
    app_name: str = Field(default="lakeformat", description="The name in Spark's own UI.")
    conf: dict[str, str] = Field(default={}, description="Spark properties; they win over the defaults.")
    log_level: str = Field(default="ERROR", description="What Spark logs into the step's stderr.")
    _groups: set[str] = PrivateAttr(default_factory=set)
    _uses: bool = PrivateAttr(default=False)

    @property
    def session(self) -> Any:
        """The session. Inside a step, its jobs are grouped by run and asset, so that they can be cancelled."""
        if not self._uses:
            _SESSION.acquire(self)
            self._uses = True
        session = _SESSION.session
        assert session is not None, "acquire leaves a session"
        if group := _job_group():
            self._enter_group(session, *group)
        return session

    def full_conf(self) -> dict[str, str]:
        """The properties that a session starts with."""
        local = LOCAL_CONF if self.master.startswith("local") and not self.remote else {}
        return {**DEFAULT_CONF, **local, **self.conf}

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Cancel jobs that the run left running, then release the session."""
        if not self._uses:
            return
        session = _SESSION.session
        if session is not None and _alive(session):
            for group in self._groups:
                if self.remote:
                    session.interruptTag(group)
                else:
                    session.sparkContext.cancelJobGroup(group)
        self._groups.clear()
        self._uses = False
        _SESSION.release()

    def _enter_group(self, session: Any, group: str, description: str) -> None:
        if self.remote:
            for earlier in self._groups & session.getTags():
                session.removeTag(earlier)
            session.addTag(group)
        else:
            session.sparkContext.setJobGroup(group, description, interruptOnCancel=True)
        self._groups.add(group)


def require_java() -> None:
    """Raise `SparkUnavailable` with a line of advice if there is no Java of `OLDEST_JAVA` or newer."""
    advice = f"install Java {OLDEST_JAVA} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not shutil.which(java):
        raise SparkUnavailable(
            f"Spark needs Java and none was found{f' in JAVA_HOME={home}' if home else ''}: {advice}"
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(answer.stderr + answer.stdout)
    if version is None or version < OLDEST_JAVA:
        raise SparkUnavailable(f"Spark needs Java {OLDEST_JAVA}; {java} is {version or 'not a Java'}: {advice}")


def require_server(remote: str, seconds: float) -> None:
    """Raise `SparkUnavailable` if no Spark Connect server answers at the address `remote` within `seconds`. PySpark
    would try for 10 minutes, and again when the process ends."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(remote).toChannel()
    try:
        grpc.channel_ready_future(channel).result(timeout=seconds)
    except grpc.FutureTimeoutError:
        address = remote.partition(";")[0].rstrip("/")  # Parameters may have a token.
        raise SparkUnavailable(
            f"no Spark Connect server has answered at {address} within {seconds:g} s; check the address, and that the "
            "server runs (start-connect-server.sh), or give it longer by SparkResource(connect_seconds=...)"
        ) from None
    finally:
        channel.close()


def java_version(text: str) -> int | None:
    """The major version in the output of `java -version`: 17 for "17.0.15", 8 for "1.8.0_402"."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first, second = match.groups()
    return int(second) if first == "1" and second else int(first)


@contextmanager
def without_start_lines() -> Iterator[None]:
    """Drop `START_LINES` from stderr. What is started within keeps its stderr, a pipe, for as long as it runs; its
    other lines go to the stderr that this process has when they come, which Dagster may redirect for each step."""
    try:
        outer = os.dup(2)
    except OSError:  # There is no stderr.
        yield
        return
    readable, writable = os.pipe()
    os.dup2(writable, 2)
    os.close(writable)
    is_over = threading.Event()

    def pass_on() -> None:
        with open(readable, "rb") as lines, open(outer, "wb", buffering=0) as earlier:
            for line in lines:
                if not START_LINES.match(line):
                    os.write(2, line) if is_over.is_set() else earlier.write(line)

    threading.Thread(target=pass_on, name="stderr of Spark", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(outer, 2)
        is_over.set()


def _job_group() -> tuple[str, str] | None:
    """The run and the asset (or op) of the step in this thread."""
    try:
        context = dg.OpExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        return None
    name = "/".join(sorted(k.to_user_string() for k in context.selected_asset_keys)) if context.has_assets_def else ""
    name = name or context.op_handle.name
    group = re.sub(r"[^\w.-]", "_", f"{context.run_id}.{name}")
    return group, f"{name} in Dagster run {context.run_id}"


class _Shared:
    """The session of this process, with a count of its users: the last one stops it, if this module started it."""

    def __init__(self) -> None:
        self.session: Any = None
        self._lock = threading.Lock()
        self._users = 0
        self._started = False

    def acquire(self, resource: SparkResource) -> None:
        with self._lock:
            if self.session is None or not _alive(self.session):
                try:
                    from pyspark import SparkContext
                    from pyspark.sql import SparkSession
                except ModuleNotFoundError as error:
                    raise SparkUnavailable(
                        "a Spark session was asked for, and PySpark is not installed: pip install 'lakeformat[spark]', "
                        "or annotate the inputs as pyarrow.Table, pandas or polars DataFrame, or lakeformat.Scan"
                    ) from error

                self._started = SparkContext._active_spark_context is None and SparkSession.getActiveSession() is None
                self.session = _start(resource)  # Or one that was running already, which is not ours to stop.
                self._users = 0
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users <= 0 and self.session is not None:
                if self._started and _alive(self.session):
                    self.session.stop()
                self.session = None


_SESSION = _Shared()


def _start(resource: SparkResource) -> Any:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.appName(resource.app_name)
    if (resource.remote or resource.master).startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Tasks import the driver's packages.
    if resource.remote:
        if resource.remote.startswith("sc://"):
            require_server(resource.remote, resource.connect_seconds)
        builder = builder.remote(resource.remote)
    else:
        require_java()
        builder = builder.master(resource.master)
    for name, value in resource.full_conf().items():
        builder = builder.config(name, value)
    with without_start_lines():
        session = builder.getOrCreate()
    if not resource.remote:
        session.sparkContext.setLogLevel(resource.log_level)
    if resource.remote or not resource.master.startswith("local"):
        import_module("lakeformat.engines.spark").add_to_session(session)
    return session


def _alive(session: Any) -> bool:
    if hasattr(session, "is_stopped"):  # Spark Connect
        return not session.is_stopped
    from pyspark import SparkContext

    return SparkContext._active_spark_context is session.sparkContext
