"""Frames in and out: whatever library an asset speaks, by its annotation.

pandas and polars are imported only when an asset asks for one of their frames: loading them costs a second.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from lakeformat.errors import InvalidInput
from resources.spark import SparkResource


def to_write(data: Any) -> Any:
    """`data` as what `Table` writes: a Spark frame as it is, anything else as Arrow."""
    match _library(type(data)):
        case "pyspark" | "pyarrow":
            return data
        case "pandas":
            return pa.Table.from_pandas(data, preserve_index=False)
        case "polars":
            return (data.collect() if hasattr(data, "collect") else data).to_arrow()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise InvalidInput(
        f"an asset returned {type(data).__name__}; return a Spark, pandas or polars frame, a pyarrow.Table, "
        f"or anything with __arrow_c_stream__ (no rows is an empty frame, not None)"
    )


def to_read(scan: Any, wanted: Any, spark: SparkResource) -> Any:
    """`scan` as the frame that an input's annotation names; a Spark frame where it names none."""
    name = getattr(wanted, "__name__", str(wanted))
    match _library(wanted), name:
        case "pyarrow", "Table":
            return scan.to_arrow()
        case "pyarrow", "RecordBatchReader":
            return scan.to_batches()
        case "pandas", "DataFrame":
            return scan.to_pandas()
        case "polars", "DataFrame":
            return scan.to_polars()
        case "polars", "LazyFrame":
            return scan.to_polars().lazy()
        case "lakeformat", "Scan":
            return scan
        case ("pyspark", "DataFrame") | ("typing", _) | ("builtins", _):
            return scan.to_spark(spark.session)
    raise InvalidInput(
        f"an input is annotated {wanted}; annotate it as a Spark, pandas or polars DataFrame, a polars LazyFrame, "
        f"a pyarrow.Table or RecordBatchReader, or a lakeformat Scan"
    )


def schema_of(data: Any) -> Any:
    """The schema of a frame that `to_write` returned: a StructType or a pyarrow.Schema."""
    return data.schema


def is_spark(data: Any) -> bool:
    return isinstance(data, DataFrame)


def _library(type: Any) -> str:
    return getattr(type, "__module__", "").split(".")[0]
