"""Batches of rows for Python, bounded without Spark adding up their bytes: it does so anew for each row, which takes as
long as turning the row into Arrow."""

from __future__ import annotations

from functools import reduce
from operator import add

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeformat.engines.spark.frames import OURS, quoted
from lakeformat.model.dataclass import dataclass

BATCH_BYTES = 64 << 20  # In memory, as Spark's own default.
_MOST_ROWS = 100_000
_TEXT_ROWS = 1 << 13  # Rows of a batch with columns of texts or bytes,
_ROW_BYTES = BATCH_BYTES // _TEXT_ROWS  # and the most bytes of a row of them.
_TEXTS = (T.StringType, T.CharType, T.VarcharType, T.BinaryType)
_FIXED = {  # Bytes of a value in Arrow.
    **dict.fromkeys((T.BooleanType, T.NullType, T.ByteType), 1),
    T.ShortType: 2,
    **dict.fromkeys((T.IntegerType, T.FloatType, T.DateType), 4),
    **dict.fromkeys((T.LongType, T.DoubleType, T.TimestampType, T.TimestampNTZType), 8),
    T.DecimalType: 16,
}
_BY_PYTHON = ("Python", "InArrow", "InPandas")  # In the names of steps of a plan that send rows to Python.

# Schemas of which rows were too large once; Spark adds up their bytes from then on.
_wide: set[str] = set()


@dataclass(frozen=True, slots=True)
class Narrow:
    """Rows to be sent in batches of `rows`. If `is_flagged`, the last column is true for a row that is too large for
    such batches; its texts and bytes are left out, and the rows must be sent in another way."""

    frame: DataFrame
    rows: int
    is_flagged: bool


def narrow(frame: DataFrame) -> Narrow | None:
    """The rows for batches of a fixed number of rows; None if their columns have no bound, or other steps of the frame
    send rows to Python, of which nothing is known."""
    schema = frame.schema
    texts = [field.name for field in schema if isinstance(field.dataType, _TEXTS)]
    widths = [_FIXED.get(type(field.dataType)) for field in schema if field.name not in texts]
    if any(width is None for width in widths) or schema.json() in _wide or _is_by_python(frame):
        return None
    width = sum(width or 0 for width in widths) + 4 * len(texts)
    if width > _ROW_BYTES // 2:
        return None
    if not texts:
        return Narrow(frame, max(1, min(_MOST_ROWS, BATCH_BYTES // max(1, width))), is_flagged=False)
    size = reduce(add, (F.coalesce(F.octet_length(F.col(quoted(name))), F.lit(0)) for name in texts))
    is_wide = size > _ROW_BYTES - width
    columns = [
        F.when(~is_wide, F.col(quoted(name))).alias(name) if name in texts else F.col(quoted(name))
        for name in frame.columns
    ]
    return Narrow(frame.select(*columns, is_wide.alias(f"{OURS}wide")), _TEXT_ROWS, is_flagged=True)


def remember(frame: DataFrame) -> None:
    """Rows with these columns are not taken for narrow again in this process."""
    _wide.add(frame.schema.json())


def _is_by_python(frame: DataFrame) -> bool:
    plan = frame.sparkSession.sql("EXPLAIN SELECT * FROM {frame}", frame=frame).collect()[0][0]
    return any(name in plan for name in _BY_PYTHON)
