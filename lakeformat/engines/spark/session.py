"""The Spark session: shipping the library to executors, and temporary settings."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakeformat import errors
from lakeformat.errors import InvalidInput, UnsupportedFeature

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNCOUNTED = (1 << 31) - 1  # Of bytes in a batch: the limit with which Spark does not add them up.
_is_sail: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()
_LISTED_BY_DRIVER = 4  # Objects, each of which takes some requests.


def require_running(spark: SparkSession) -> None:
    """Raise `InvalidInput` for a stopped session."""
    stopped = getattr(spark, "is_stopped", None)  # In Connect; a stopped classic session has no Java context.
    if stopped is True or (stopped is None and getattr(spark.sparkContext, "_jsc", None) is None):
        raise InvalidInput(
            "the Spark session was stopped; start another one (SparkSession.builder.getOrCreate()) and pass that"
        )


def run_here_as_here(spark: SparkSession) -> None:
    """Tasks of a local session run this process's Python, unless PYSPARK_PYTHON names another one: Spark would start
    `python3`, which is the system's and not the virtual environment's."""
    context = _context(spark)
    if context is not None and context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def plan_here(spark: SparkSession) -> None:
    """Python code that Spark runs on the driver's machine, such as a data source's planning, runs in this process's
    Python. On a server of Spark Connect it is the server's."""
    if (context := _context(spark)) is not None:
        context.pythonExec = sys.executable


def is_connect(spark: SparkSession) -> bool:
    """Whether it is a session of Spark Connect."""
    return hasattr(spark, "is_stopped")


def _context(spark: SparkSession) -> Any:
    """The context of a classic session; None for Spark Connect."""
    return None if is_connect(spark) else spark.sparkContext


def add_to_session(spark: SparkSession) -> None:
    """Send lakeformat's modules to the executors of `spark` if it is not installed there.

    The packages that lakeformat needs (pyarrow, numpy, cramjam, obstore, sqlglot) must be installed.
    """
    package = Path(errors.__file__).parent
    packed = Path(tempfile.mkdtemp(prefix="lakeformat-")) / "lakeformat.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*.py")):
            archive.write(path, path.relative_to(package.parent).as_posix())
    spark.addArtifacts(str(packed), pyfile=True)


@contextmanager
def cancelled_with_caller(spark: SparkSession) -> Iterator[None]:
    """If the caller is stopped, the jobs started inside are cancelled."""
    tag = f"lakeformat-{uuid.uuid4()}"
    spark.addTag(tag)
    try:
        yield
    except BaseException:
        with suppress(Exception):
            spark.interruptTag(tag)
        raise
    finally:
        with suppress(Exception):
            spark.removeTag(tag)


@contextmanager
def listing(spark: SparkSession, paths: Sequence[str]) -> Iterator[None]:
    """Local files are listed by the driver, where Spark would start a job with a task for each, and objects by such a
    job, where the driver would wait for one after the other."""
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    least = int(spark.conf.get(name) or 0)
    is_local = all(path.startswith("file:") for path in paths)
    with _configured(spark, name, str(max(least, len(paths)) if is_local else min(least, _LISTED_BY_DRIVER))):
        yield


@contextmanager
def in_large_batches(spark: SparkSession) -> Iterator[None]:
    """Rows are sent to Python in batches of up to 64 MB (`maxBytesPerBatch`) instead of 10,000 rows, unless the session
    sets a number of rows or is too old to limit bytes."""
    if not _knows(spark, _BATCH_BYTES) or spark.conf.get(_BATCH_ROWS) != "10000":
        yield
        return
    with _configured(spark, _BATCH_ROWS, "100000"):
        yield


@contextmanager
def in_batches_of(spark: SparkSession, rows: int) -> Iterator[None]:
    """Rows are sent to Python in batches of so many, whatever their bytes."""
    with _configured(spark, _BATCH_ROWS, str(rows)), _configured(spark, _BATCH_BYTES, f"{_UNCOUNTED}b"):
        yield


def is_sail(spark: SparkSession) -> bool:
    """Whether the server is Sail, which lacks settings that every Spark has, and takes hints without heeding them.
    A session is asked once."""
    if spark not in _is_sail:
        _is_sail[spark] = spark.conf.get("spark.sql.warehouse.dir", None) is None
    return _is_sail[spark]


def require_sparks_own(spark: SparkSession, feature: str, instead: str) -> None:
    """Raise `UnsupportedFeature` for a feature that Sail has in another way than Spark."""
    if is_sail(spark):
        raise UnsupportedFeature(f"{feature} on Sail: {instead}")


def sends_by_number(frame: DataFrame) -> bool:
    """Whether rows can be sent to a task by its number: from PySpark 4.1 on, and not by Sail."""
    return hasattr(frame, "repartitionById") and not is_sail(frame.sparkSession)


def counts_bytes(spark: SparkSession) -> bool:
    """Whether Spark adds up the bytes of batches for Python, and the session has its defaults for them."""
    if not _knows(spark, _BATCH_BYTES) or spark.conf.get(_BATCH_ROWS) != "10000":
        return False
    return spark.conf.get(_BATCH_BYTES) in ("64MB", f"{64 << 20}b", str(64 << 20))


@contextmanager
def in_tasks_of(spark: SparkSession, size_bytes: int) -> Iterator[None]:
    """Spark splits the rows of a shuffled partition over several tasks, which each write a file, only above this size,
    unless the session sets one."""
    name = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
    if spark.conf.get(name) not in ("64MB", f"{64 << 20}b"):
        yield
        return
    with _configured(spark, name, f"{max(size_bytes, 64 << 20)}b"):
        yield


@contextmanager
def unbroadcast(spark: SparkSession) -> Iterator[None]:
    """Spark does not broadcast by its own estimate: rows that come from Python have no known size, so it would take the
    largest table for a small one."""
    with _configured(spark, "spark.sql.autoBroadcastJoinThreshold", "-1"):
        yield


@contextmanager
def evaluating(spark: SparkSession) -> Iterator[None]:
    """Spark evaluates expressions as the library does, whatever the session's settings."""
    with ExitStack() as stack:
        for name, value in _EVALUATION.items():
            stack.enter_context(_configured(spark, name, value))
        yield


_EVALUATION = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.function.concatBinaryAsString": "false",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def _configured(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """The session with another setting, temporarily."""
    before = spark.conf.get(name, None)  # None: it has Spark's own default.
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def _knows(spark: SparkSession, name: str) -> bool:
    """Whether Spark has such a setting, whether or not the session has changed it."""
    try:
        return spark.conf.get(name) is not None
    except PySparkException:
        return False
