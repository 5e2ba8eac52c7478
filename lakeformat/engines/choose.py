"""Choose the engine: it follows the data. PySpark is optional and imported only when there is a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.engine import Engine
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.partition import TransformKind
from lakeformat.model.schema import Field
from lakeformat.model.session_table import SessionFiles, SessionTable
from lakeformat.model.work import DeltaLayout, WrittenFile
from lakeformat.storage.cache import Elsewhere
from lakeformat.storage.store import Store

if TYPE_CHECKING:
    from lakeformat.engines.exchange.layout import FileLayout
    from lakeformat.engines.exchange.reading import Source, Tally
    from lakeformat.engines.exchange.writing import ExportedFile


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


def session_table(session: Any, source: str) -> SessionTable:
    """The table `namespace.name` of a Spark session's own catalog, or `catalog.namespace.name`; see the Spark engine."""
    require_spark(session)
    described: SessionTable = _session_tables().describe(session, source)
    return described


def session_files(session: Any, table: SessionTable, partition: Mapping[str, Any]) -> SessionFiles:
    """The files of a table of Spark's own catalog; see the Spark engine."""
    files: SessionFiles = _session_tables().files(session, table, partition)
    return files


def session_rows(session: Any, table: SessionTable) -> Any:
    """The rows of a table of Spark's own catalog, as a frame."""
    return _session_tables().rows(session, table)


def session_names(session: Any, namespace: str) -> list[str]:
    """The names of the tables of a namespace of Spark's own catalog; see the Spark engine."""
    require_spark(session)
    names: list[str] = _session_tables().names(session, namespace)
    return names


def rename_session_table(session: Any, table: SessionTable, name: str) -> SessionTable:
    """The table under another name in its namespace; see the Spark engine."""
    renamed: SessionTable = _session_tables().rename(session, table, name)
    return renamed


def drop_session_table(session: Any, table: SessionTable) -> None:
    """Drop a table of Spark's own catalog; Spark deletes the files of a managed one."""
    _session_tables().drop(session, table)


def frame_checksum(frame: Any) -> tuple[int, int]:
    """(rows, checksum) of a Spark frame; see the Spark engine."""
    checksum: tuple[int, int] = _session_tables().checksum(frame)
    return checksum


def require_parquet(table: SessionTable) -> None:
    """Raise `UnsupportedFeature` for a table whose files cannot become a lake's where they are."""
    if table.file_format != "parquet":
        raise UnsupportedFeature(
            f"{table.name} has files of {table.file_format}: only Parquet files become part of a table where they are; copy its "
            "rows with import_spark_table, or CREATE TABLE ... AS SELECT"
        )


def _session_tables() -> Any:
    return import_module("lakeformat.engines.spark.session_tables")


def examined(session: Any, store: Store, sources: Sequence[Source]) -> list[Tally]:
    """What is in files to load, read by tasks; see the Spark engine."""
    tallies: list[Tally] = import_module("lakeformat.engines.spark.exchange").examined(session, store, sources)
    return tallies


def loading_frame(session: Any, store: Store, sources: Sequence[Source]) -> Any:
    """The rows of files to load as a Spark frame; see the Spark engine."""
    return import_module("lakeformat.engines.spark.exchange").loading_frame(session, store, sources)


def export_from_spark(frame: Any, store: Store, layout: FileLayout) -> list[ExportedFile]:
    """Write a Spark frame to files; see the Spark engine."""
    files: list[ExportedFile] = import_module("lakeformat.engines.spark.exchange").export(frame, store, layout)
    return files


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
