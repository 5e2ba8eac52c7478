"""Spark frames column by column: renamed, given the table's types, sent through Python."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeformat.engines.spark import executors
from lakeformat.engines.spark.types import spark_type, zoned
from lakeformat.model.schema import Field, Kind, scalar

OURS = "_lakeformat_"  # The prefix of columns that are not the data's.


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def of_arrow(spark: Any, table: pa.Table, schema: T.StructType | None = None) -> DataFrame:
    """The rows as a frame, with Arrow's types or those of `schema`. Of a table with an empty chunk Spark's own
    conversion drops the rows behind it."""
    batches = [batch for batch in table.to_batches() if batch.num_rows]
    filled = pa.Table.from_batches(batches, table.schema) if batches else table.schema.empty_table()
    return spark.createDataFrame(filled) if schema is None else spark.createDataFrame(filled, schema)


def assignable(frame: DataFrame, fields: tuple[Field, ...]) -> DataFrame:
    """Timestamps with and without a zone become each other by the session's zone, as in Spark's own INSERT."""
    types = {field.name: field.type for field in fields}
    fitting = [zoned(field.dataType, types[field.name]) if field.name in types else None for field in frame.schema]
    return _cast(frame, fitting)


def untyped_columns(frame: DataFrame) -> frozenset[str]:
    """The columns that have no type, as no row has a value."""
    return frozenset(field.name for field in frame.schema if isinstance(field.dataType, T.NullType))


def hinted(frame: DataFrame, hints: tuple[Field, ...]) -> DataFrame:
    """Columns of nulls, and timestamps with or without a zone, with the types of the table's columns of the same
    names."""
    types = {field.name.casefold(): field.type for field in hints}
    fitting = []
    for field in frame.schema:
        hint = types.get(field.name.casefold(), scalar(Kind.STRING))
        is_untyped = isinstance(field.dataType, T.NullType)
        fitting.append(spark_type(hint) if is_untyped else zoned(field.dataType, hint))
    return _cast(frame, fitting)


def _cast(frame: DataFrame, types: Sequence[T.DataType | None]) -> DataFrame:
    """The columns with these types, None for as they are. Each of a frame's steps takes some milliseconds of the
    driver's, so that nothing to cast is no step."""
    fields = frame.schema.fields
    if all(type is None or type == field.dataType for field, type in zip(fields, types, strict=True)):
        return frame
    return frame.select(
        *(
            F.col(quoted(field.name)) if type is None else F.col(quoted(field.name)).cast(type).alias(field.name)
            for field, type in zip(fields, types, strict=True)
        )
    )


def mapped(frame: DataFrame, work: executors.Work, schema: T.StructType | str) -> DataFrame:
    """`mapInArrow` for columns with dots in their names, which it does not accept."""
    numbered = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
    return numbered.mapInArrow(partial(executors.renamed, tuple(frame.columns), work), schema)


def apart(frame: DataFrame, as_bytes: Collection[str]) -> DataFrame:
    """The distinct rows, with the canonical bytes of the columns `as_bytes` in place of their values."""
    columns = [T.StructField(f.name, T.BinaryType()) if f.name in as_bytes else f for f in frame.schema]
    identities = [f"{OURS}identity_{index}" for index in range(len(columns))]
    schema = T.StructType([*columns, *(T.StructField(name, T.BinaryType()) for name in identities)])
    named = mapped(frame, partial(executors.identified, frozenset(as_bytes), schema.names), schema)
    return named.dropDuplicates(identities).drop(*identities)
