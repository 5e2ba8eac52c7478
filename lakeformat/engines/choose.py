"""Choose the engine: it follows the data. PySpark is optional and imported only when there is a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeformat import lazy
from lakeformat.arguments import is_spark
from lakeformat.engines.arrow import ArrowEngine, in_memory
from lakeformat.engines.engine import Engine

if TYPE_CHECKING:
    from lakeformat.engines import spark as spark_engine
else:
    spark_engine = lazy.library("lakeformat.engines.spark")  # What only a Spark session can do; loaded on first use.


__all__ = ["engine_for", "in_memory", "spark_engine"]


def engine_for(data: Any = None, spark: Any = None) -> Engine:
    """Spark for a Spark DataFrame or session, this process for everything else."""
    session = spark if spark is not None else data.sparkSession if is_spark(data) else None
    return ArrowEngine() if session is None else spark_engine.SparkEngine(session)
