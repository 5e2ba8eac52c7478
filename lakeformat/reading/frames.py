"""Arrow tables as pandas frames, without a number changed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def to_pandas(table: pa.Table) -> Any:
    """The rows as a pandas DataFrame. Integers with nulls among them have pandas' nullable dtype of their width, such
    as `Int64`, and within lists, maps and structs they are Python's: in pyarrow's default, `float64`,
    those above 2^53 are others."""
    import pandas as pd

    nullable = {i: c for i, c in enumerate(table.columns) if pa.types.is_integer(c.type) and c.null_count}
    for index in nullable:
        table = table.set_column(index, table.schema.field(index).with_type(pa.null()), pa.nulls(len(table)))
    frame = table.to_pandas(integer_object_nulls=True)
    for index, column in nullable.items():
        dtype = pd.api.types.pandas_dtype(str(column.type).replace("int", "Int").replace("u", "U"))
        frame.isetitem(index, dtype.__from_arrow__(column))
    return frame
