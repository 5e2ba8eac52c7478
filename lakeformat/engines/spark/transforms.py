"""Iceberg's partition transforms as functions of a Spark session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from lakeformat.engines.spark.workers import ready
from lakeformat.errors import UnsupportedFeature
from lakeformat.expression import transform
from lakeformat.model.partition import TransformKind


def register_transforms(session: Any, transforms: Mapping[str, tuple[TransformKind, str]]) -> None:
    """Register transforms with a session as functions of these names: (transform, result type as Spark SQL text)."""
    if not hasattr(F, "arrow_udf"):
        raise UnsupportedFeature("system.bucket(...) and the other transforms in SQL on Spark need PySpark 4.1")
    ready(session, None)
    for name, (kind, type) in transforms.items():
        session.udf.register(name, F.arrow_udf(_function_of(kind), type))


# --- private ----------------------------------------------------------------------------------------------------------


def _function_of(kind: TransformKind) -> Callable[..., pa.Array]:
    def computed(*columns: pa.Array) -> pa.Array:
        return transform.call(kind, *columns)

    computed.__annotations__ = {"columns": pa.Array, "return": pa.Array}  # Spark reads types, not their names.
    return computed
