"""The files that Spark reads itself: local ones, and those of object stores for which the session has a file system."""

from __future__ import annotations

import re
from functools import cached_property
from queue import Empty, SimpleQueue
from threading import Thread
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakeformat import redact
from lakeformat.engines.spark.session import is_sail
from lakeformat.model.log import log

# A setting of the session: the schemes of locations that Spark may read, separated by commas; all of these if unset.
SCHEMES = "spark.lakeformat.nativeSchemes"
# Hadoop's file systems for a location's scheme, the first one first.
_FILE_SYSTEMS = {
    "file": ("file",),
    "s3": ("s3a", "s3"),
    "s3a": ("s3a", "s3"),
    "gs": ("gs",),
    "abfs": ("abfs",),
    "abfss": ("abfss",),
}
_WAIT_SECONDS = 60.0  # A file system without credentials or with a wrong endpoint tries for minutes.

# By session, and by scheme and bucket: the scheme by which Spark reads it, or None.
_schemes_of_session: WeakKeyDictionary[SparkSession, dict[str, str | None]] = WeakKeyDictionary()


class Reach:
    """What a session reads itself.

    Whether it reaches a bucket is found out once: Spark's driver looks for the first file of it that is asked for. What
    the session is configured with counts, not the store's own credentials. The log says the answer.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @cached_property
    def _schemes(self) -> set[str]:
        if is_sail(self._spark):  # Its readers heed none of the options that `native` sets.
            return set()
        chosen = self._spark.conf.get(SCHEMES, None)
        return set(_FILE_SYSTEMS) if chosen is None else set(_FILE_SYSTEMS) & set(re.split(r"[\s,]+", chosen))

    def uri(self, location: str, file_format: str) -> str | None:
        """The URI by which Spark reads a file itself; None if the worker reads it."""
        scheme, _, rest = location.partition(":")
        if scheme not in self._schemes:
            return None
        if scheme == "file":
            return location
        bucket, _, key = rest.removeprefix("//").partition("/")
        if "//" in f"/{key}":  # Hadoop makes one slash of two.
            return None
        root = f"{scheme}://{bucket}"
        schemes = _schemes_of_session.setdefault(self._spark, {})
        if root not in schemes:
            schemes[root] = _file_system(self._spark, root, _FILE_SYSTEMS[scheme], rest, file_format)
        return None if schemes[root] is None else f"{schemes[root]}:{rest}"


def unglobbed(location: str) -> str:
    """A location in which Spark finds no pattern."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", location)


def _reason(text: str) -> str:
    """The first line that says why, of the text of an error: Py4J's own comes before it."""
    lines = [line.lstrip(": ") for line in text.splitlines() if not line.startswith("An error occurred while calling")]
    return next(filter(None, lines), text)


def _file_system(spark: SparkSession, root: str, schemes: tuple[str, ...], rest: str, file_format: str) -> str | None:
    failures = []
    for scheme in schemes:
        failure = _failure(spark, f"{scheme}:{rest}", file_format)
        if failure is None:
            log.info("%s: Spark reads Parquet and ORC files itself, by its file system %s", root, scheme)
            return scheme
        failures.append(f"by {scheme}, {failure}")
    log.info("%s: the workers read all files, since Spark does not reach them: %s", root, "; ".join(failures))
    return None


def _failure(spark: SparkSession, location: str, file_format: str) -> str | None:
    """Why Spark does not find a file; None if it does."""
    answer: SimpleQueue[str | None] = SimpleQueue()

    def look() -> None:
        try:
            reader = spark.read.schema(T.StructType([T.StructField("_", T.BooleanType())])).format(file_format)
            # No job: its tasks may wait for executors to start. Twice, for Spark looks at a single path first, and logs
            # a warning with a trace if it has no such file system.
            _ = reader.load([unglobbed(location)] * 2).schema
        except Exception as error:
            answer.put(redact.redacted(_reason(str(error))))
        else:
            answer.put(None)

    Thread(target=look, daemon=True).start()
    try:
        return answer.get(timeout=_WAIT_SECONDS)
    except Empty:
        return f"no answer in {_WAIT_SECONDS:.0f} s"
