"""`hash`, `xxhash64` and `crc32`, which DuckDB has not as Spark has them: functions over Arrow that DuckDB calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakeformat.codec import spark_hash
from lakeformat.sql.translation.arguments import Builder, as_type
from lakeformat.sql.translation.operands import shown
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import BIGINT, BINARY, INT, SparkType, in_duckdb

PREFIX = "_lakeformat_hashed_"  # Begins the names of the functions in DuckDB.
_NESTED = ("array", "map", "struct", "variant")


def add(database: Any) -> None:
    """Register the functions, which take any types."""
    for name, (function, type) in _FUNCTIONS.items():
        settings = {"type": "arrow", "null_handling": "special"}
        database.create_function(f"{PREFIX}{name}", function, None, in_duckdb(type), **settings)


# --- private ----------------------------------------------------------------------------------------------------------


def _folding(hashed: Callable[[Sequence[pa.Array]], np.ndarray]) -> Callable[..., pa.Array]:
    def get(*columns: pa.ChunkedArray) -> pa.Array:
        return pa.array(hashed([pa.concat_arrays(column.chunks) for column in columns]))

    return get


def _crc32(values: pa.ChunkedArray) -> pa.Array:
    return spark_hash.crc32(pa.concat_arrays(values.chunks))


def _of_columns(name: str) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        columns = [scope.translate(argument, scope) for argument in nodes]
        if nested := [column.type for column in columns if column.type.name in _NESTED]:
            raise scope.refuse(node, f"{shown(node)} of {nested[0]} in process; pass spark=")
        return Typed(f"{PREFIX}{name}({', '.join(column.sql for column in columns)})", _FUNCTIONS[name][1])

    return build


def _of_bytes(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    return Typed(f"{PREFIX}crc32({as_type(BINARY, nodes[0], scope)})", BIGINT)


_FUNCTIONS: Mapping[str, tuple[Callable[..., pa.Array], SparkType]] = {
    "hash": (_folding(spark_hash.murmur), INT),
    "xxhash64": (_folding(spark_hash.xxhash64), BIGINT),
    "crc32": (_crc32, BIGINT),
}
SCALARS: Mapping[str, tuple[int, int | None, Builder]] = {
    "hash": (1, None, _of_columns("hash")),
    "xxhash64": (1, None, _of_columns("xxhash64")),
    "crc32": (1, 1, _of_bytes),
}
