"""Frames in and out, of the library that an asset's annotations name.

Spark, pandas, polars and DuckDB are imported only if an asset uses their frames.
"""

from collections.abc import Mapping
from importlib import import_module
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pyarrow as pa

from lakeformat.arguments import is_spark
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.dagster.spark import SparkResource
from lakeformat.engines.choose import in_memory, spark_engine
from lakeformat.errors import InvalidInput, NotFound
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type

_COLUMNS = ("Series", "ChunkedArray", "Column")  # Types of one column, which is no frame.


def to_write(data: Any) -> Any:
    """`data` as `Table` writes it: a Spark frame unchanged, anything else as Arrow."""
    is_column = isinstance(data, pa.Array) or type(data).__name__ in _COLUMNS
    match "" if is_column else _library(type(data)):
        case "pyspark" | "pyarrow":
            return data
        case "lakeformat" if hasattr(data, "to_batches"):
            return data.to_batches()
        case "duckdb" | "_duckdb":
            return data.to_arrow_table()
        case "pandas":
            return in_memory(data)
        case "polars":
            return (data.collect() if hasattr(data, "collect") else data).to_arrow()
    if hasattr(data, "__arrow_c_stream__") and not is_column:
        return pa.table(data)
    raise InvalidInput(
        f"an asset returned {type(data).__name__}; return a Spark, pandas or polars frame, a pyarrow.Table, "
        f"a DuckDB relation, a Scan, or anything with __arrow_c_stream__ (no rows is an empty frame, not None)"
    )


def fields_of(frame: Any) -> tuple[Field, ...]:
    """The columns of a result of `to_write`."""
    return spark_engine.fields_from_spark(frame.schema) if is_spark(frame) else fields_from_arrow(frame.schema)


def filled(frame: Any, values: Mapping[str, pa.Scalar]) -> Any:
    """A result of `to_write` with further columns, each of one value."""
    if is_spark(frame):
        functions = import_module("pyspark.sql.functions")
        return frame.withColumns({name: functions.lit(value.as_py()) for name, value in values.items()})
    if not isinstance(frame, pa.RecordBatchReader):
        for name, value in values.items():
            frame = frame.append_column(name, pa.repeat(value, frame.num_rows))
        return frame
    schema = frame.schema
    for name, value in values.items():
        schema = schema.append(pa.field(name, value.type))
    return pa.RecordBatchReader.from_batches(
        schema,
        (
            pa.RecordBatch.from_arrays(
                [*batch.columns, *(pa.repeat(value, batch.num_rows) for value in values.values())], schema=schema
            )
            for batch in frame
        ),
    )


def untyped_columns(frame: Any) -> list[str]:
    """The columns of a frame whose type no value tells: of pandas and polars frames without rows,
    or with nulls only."""
    return [field.name for field in fields_of(frame) if is_untyped(field.type)]


def is_untyped(type: Type) -> bool:
    """Whether a type is the one of no value, or has it inside."""
    match type:
        case Row(fields=fields):
            return any(is_untyped(field.type) for field in fields)
        case ListOf(element=element) | MultisetOf(element=element):
            return is_untyped(element.type)
        case MapOf(key=key, value=value):
            return is_untyped(key.type) or is_untyped(value.type)
        case Scalar(kind=kind):
            return kind is Kind.UNKNOWN
    return False


class NoRows:
    """A frame without columns: the rows of a table that does not exist yet when no partition is asked for, as for the
    first partition of an asset that depends on its own earlier ones."""

    def to_arrow(self) -> pa.Table:
        """A table without columns."""
        return pa.table({})

    def to_batches(self) -> pa.RecordBatchReader:
        """A batch without columns."""
        nothing = pa.RecordBatch.from_arrays([], [])  # Without any batch it looks like a reader that was read.
        return pa.RecordBatchReader.from_batches(nothing.schema, [nothing])

    def to_pandas(self) -> Any:
        """A pandas frame without columns."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """A polars frame without columns."""
        import polars

        return polars.DataFrame()

    def to_polars_lazy(self) -> Any:
        """A lazy polars frame without columns."""
        return self.to_polars().lazy()

    def to_spark(self, spark: Any) -> Any:
        """A Spark frame without columns."""
        return spark.createDataFrame([], "struct<>")


def to_read(scan: Any, annotation: Any, spark: SparkResource) -> Any:
    """`scan` as the frame that an input's annotation names; a Spark frame without an annotation."""
    name = getattr(annotation, "__name__", str(annotation))
    match _library(annotation), name:
        case "pyarrow", "Table":
            return scan.to_arrow()
        case "pyarrow", "RecordBatchReader":
            return scan.to_batches()
        case "pandas", "DataFrame":
            return scan.to_pandas()
        case "polars", "DataFrame":
            return scan.to_polars()
        case "polars", "LazyFrame":
            return scan.to_polars_lazy()
        case "lakeformat", "Scan" if not isinstance(scan, NoRows):
            return scan
        case ("duckdb" | "_duckdb", "DuckDBPyRelation") if not isinstance(scan, NoRows):
            return scan.to_duckdb()
        case _ if wants_spark(annotation):
            return scan.to_spark(spark.session)
    if isinstance(scan, NoRows):
        raise NotFound(
            f"the table does not exist yet, and {name} has no form without columns; annotate the input as pyarrow.Table"
        )
    raise InvalidInput(
        f"an input is annotated {annotation}; annotate it as a Spark, pandas or polars DataFrame, a polars LazyFrame, "
        f"a pyarrow.Table or RecordBatchReader, a DuckDBPyRelation, a lakeformat Scan, or a dict[str, ...] of one of "
        "these for each partition"
    )


def required(annotation: Any) -> Any:
    """An input's annotation without the None of `Optional`."""
    several = [part for part in get_args(annotation) if part is not type(None)]
    is_optional = get_origin(annotation) in (Union, UnionType) and len(several) == 1
    return several[0] if is_optional else annotation


def kind_by_partition(annotation: Any) -> Any:
    """The frame of an input that is annotated as one for each partition, `dict[str, frame]`; None for any other."""
    arguments = get_args(annotation)
    is_mapping = get_origin(annotation) is dict and len(arguments) == 2
    return arguments[1] if is_mapping and arguments[0] is str else None


def wants_spark(annotation: Any) -> bool:
    """Whether an input's annotation is a Spark frame, or missing."""
    return annotation in (Any, object) or _library(annotation) == "pyspark"


def _library(type: Any) -> str:
    return getattr(type, "__module__", "").split(".")[0]
