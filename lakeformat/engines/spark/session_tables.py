"""Tables of a Spark session's own catalog: what they are, which files they have, and changes to their names."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyspark.sql.functions as F
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakeformat.arguments import require_spark
from lakeformat.engines.spark.types import fields_from_spark
from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.expression.spark_sql import quoted
from lakeformat.model.session_table import SessionFiles, SessionTable
from lakeformat.storage.failures import first_line

_CATALOG = "spark_catalog"
_FILE = "__lakeformat_file"
_SHORT = re.compile("^file:/(?!/)")  # Hadoop's form of `file:///`.
_SERDES = ("parquet", "orc", "avro")


def describe(spark: SparkSession, source: str) -> SessionTable:
    """The table `namespace.name` of Spark's own catalog, or `catalog.namespace.name`. Raises `NotFound`, and
    `UnsupportedFeature` for a view, a table of a lake, and columns that tables do not have."""
    require_spark(spark)
    path = tuple(source.split("."))
    path = (_CATALOG, *path) if len(path) == 2 else path
    if len(path) != 3 or not all(path):
        raise InvalidInput(f"{source!r} is not a table of Spark's: write 'namespace.table'")
    shown = ".".join(path)
    try:
        document = json.loads(spark.sql(f"DESCRIBE TABLE EXTENDED {_text(path)} AS JSON").collect()[0][0])
    except AnalysisException as error:
        message = first_line(error)
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            raise NotFound(f"Spark's catalog has no table {shown}: {message}") from error
        raise UnsupportedFeature(f"{shown}: Spark does not describe it: {message}") from error
    kind, location = document.get("type", ""), document.get("location")
    if kind not in ("MANAGED", "EXTERNAL") or document.get("provider") == "lakeformat" or not location:
        what = "a table of a lake" if document.get("provider") == "lakeformat" else f"a {kind.lower() or 'source'}"
        raise UnsupportedFeature(f"{shown} is {what}, not a table of files in Spark's own catalog")
    return SessionTable(
        path=path,
        file_format=_file_format(document),
        fields=fields_from_spark(spark.table(_text(path)).schema),
        partition_by=tuple(document.get("partition_columns") or ()),
        location=location.rstrip("/"),
        is_managed=kind == "MANAGED",
        comment=document.get("comment"),
        properties=document.get("table_properties") or {},
    )


def rows(spark: SparkSession, table: SessionTable) -> DataFrame:
    """The rows of the table, without files and listings that Spark has cached."""
    spark.catalog.refreshTable(_text(table.path))
    return spark.table(_text(table.path))


def files(spark: SparkSession, table: SessionTable, partition: Mapping[str, Any]) -> SessionFiles:
    """The files that have rows, as Spark reads the table: also of partitions with locations of their own. `partition`:
    values of some partition columns, or none for all partitions. Raises `InvalidInput`."""
    frame = rows(spark, table)
    for name, value in partition.items():
        if name not in table.partition_by:
            raise InvalidInput(
                f"{table.name}: {name!r} is not a partition column; those are {', '.join(table.partition_by) or 'none'}"
            )
        column = F.col(quoted(name))
        frame = frame.where(column.eqNullSafe(F.lit(value).cast(frame.schema[name].dataType)))
    columns = [F.col(quoted(name)) for name in table.partition_by]
    try:
        path = frame.metadataColumn("_metadata").getField("file_path").alias(_FILE)
        listed = frame.select(path, *columns).distinct().orderBy(_FILE).toArrow()
    except PySparkException as error:
        raise InvalidInput(f"{table.name}: Spark does not read it: {first_line(error)}") from error
    paths = tuple(_SHORT.sub("file:///", unquote(text)) for text in listed.column(0).to_pylist())
    if len(set(paths)) < len(paths):
        (twice, _), *_ = Counter(paths).most_common(1)
        raise InvalidInput(f"{table.name}: two partitions have the file {twice}")
    return SessionFiles(paths, tuple(listed.drop_columns([_FILE]).to_pylist()))


def names(spark: SparkSession, namespace: str) -> list[str]:
    """The names of the tables of a namespace of Spark's own catalog, without views. Raises `NotFound`."""
    require_spark(spark)
    inside = f"{_CATALOG}.{quoted(namespace)}"
    try:
        tables = {row.tableName for row in spark.sql(f"SHOW TABLES IN {inside}").collect() if not row.isTemporary}
        views = {row.viewName for row in spark.sql(f"SHOW VIEWS IN {inside}").collect()}
    except AnalysisException as error:
        raise NotFound(f"Spark's catalog has no namespace {namespace!r}") from error
    return sorted(tables - views)


def rename(spark: SparkSession, table: SessionTable, name: str) -> SessionTable:
    """The table under another name in its namespace. Raises `InvalidInput`."""
    renamed = replace(table, path=(*table.path[:-1], name))
    try:
        spark.sql(f"ALTER TABLE {_text(table.path)} RENAME TO {_text(renamed.path[1:])}")
    except PySparkException as error:
        raise InvalidInput(f"{table.name}: Spark does not rename it to {name}: {first_line(error)}") from error
    return renamed


def drop(spark: SparkSession, table: SessionTable) -> None:
    """Drop a table; Spark deletes the files of a managed one."""
    spark.sql(f"DROP TABLE {_text(table.path)}")


def checksum(frame: DataFrame) -> tuple[int, int]:
    """(the number of rows, the sum of their hashes, without columns that Spark cannot hash). Columns are compared by
    their order."""
    hashed = [F.col(quoted(field.name)) for field in frame.schema if not _holds_maps(field.dataType)]
    value = F.xxhash64(*hashed).cast("decimal(20, 0)") if hashed else F.lit(0)
    count, total = frame.select(F.count(F.lit(1)), F.sum(value)).collect()[0]
    return count, int(total or 0)


# --- private ----------------------------------------------------------------------------------------------------------


def _text(path: tuple[str, ...]) -> str:
    return ".".join(map(quoted, path))


def _file_format(document: Mapping[str, Any]) -> str:
    provider = str(document.get("provider", "")).lower()
    if provider != "hive":
        return provider
    serde = f"{document.get('serde_library', '')} {document.get('input_format', '')}".lower()
    return next((format for format in _SERDES if format in serde), "text")


def _holds_maps(type: T.DataType) -> bool:
    match type:
        case T.MapType() | T.VariantType():
            return True
        case T.ArrayType():
            return _holds_maps(type.elementType)
        case T.StructType():
            return any(_holds_maps(field.dataType) for field in type)
    return False
