"""Choose the engine: it follows the data. PySpark is optional and imported only when there is a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.engine import Engine
from lakeformat.errors import InvalidInput
from lakeformat.model.partition import TransformKind
from lakeformat.model.schema import Field
from lakeformat.model.work import DeltaLayout, WrittenFile
from lakeformat.storage.cache import Elsewhere
from lakeformat.storage.store import Store


def engine_for(data: Any = None, spark: Any = None) -> Engine:
    """Spark for a Spark DataFrame or session, this process for everything else."""
    session = spark if spark is not None else data.sparkSession if is_spark(data) else None
    return ArrowEngine() if session is None else import_module("lakeformat.engines.spark").SparkEngine(session)


def on_executors(session: Any, store: Store, least: int) -> Elsewhere:
    """Decodes manifests on executors if there are at least `least`; see the Spark engine."""
    elsewhere: Elsewhere = import_module("lakeformat.engines.spark.planning").OnExecutors(session, store, least)
    return elsewhere


def register(session: Any, name: str, tables: Any) -> None:
    """Register tables with a Spark session as the data source `name`; see the Spark engine."""
    import_module("lakeformat.engines.spark").register(session, name, tables)


def make_ready(session: Any, pack: str | None) -> None:
    """Make a Spark session able to run the library; see the Spark engine."""
    spark = import_module("lakeformat.engines.spark")
    spark.ready(session, pack)
    spark.push_filters(session)


def attach(session: Any, name: str, lake: str, reading: Callable[[], Any]) -> None:
    """Make a table readable by name in a Spark session; see the Spark engine."""
    import_module("lakeformat.engines.spark").attach(session, name, lake, reading)


def check_changelog(frame: Any, layout: DeltaLayout) -> None:
    """Raise `InvalidInput` for a Spark frame whose columns do not fit; see the Spark engine."""
    import_module("lakeformat.engines.spark.changelog").check(frame, layout)


def write_changelog(
    frames: Sequence[Any], store: Store, layout: DeltaLayout, upsert: bool, max_keys: int, buffer_bytes: int
) -> list[WrittenFile]:
    """The files of a changelog that is in Spark's frames; see the Spark engine."""
    changelog = import_module("lakeformat.engines.spark.changelog")
    written: list[WrittenFile] = changelog.write(frames, store, layout, upsert, max_keys, buffer_bytes)
    return written


def register_transforms(session: Any, wanted: Mapping[str, tuple[TransformKind, str]]) -> None:
    """Register partition transforms as functions of a Spark session; see the Spark engine."""
    import_module("lakeformat.engines.spark.transforms").register_transforms(session, wanted)


def is_spark(value: Any) -> bool:
    """Whether a value is an object of PySpark, classic or Connect."""
    return type(value).__module__.startswith("pyspark.")


def require_spark(session: Any) -> None:
    """Raise `InvalidInput` unless the value is a Spark session."""
    if not is_spark(session):
        raise InvalidInput(f"to_spark({session!r}): give the SparkSession that reads the rows")


def fields_from_spark(schema: Any) -> tuple[Field, ...]:
    """The columns of a StructType."""
    return import_module("lakeformat.engines.spark").fields_from_spark(schema)
