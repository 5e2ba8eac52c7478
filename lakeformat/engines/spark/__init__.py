"""The engine that runs the worker on Spark's executors, and leaves clean files to Spark's own reader.

Public Python API only (DataFrame, `mapInArrow`), so that classic sessions and Spark Connect do the same. Executors need
lakeformat: installed, or sent along by `add_to_session`.
"""

from lakeformat.engines.spark import changelog, exchange, planning, session_tables, transforms
from lakeformat.engines.spark.data_source import attach, push_filters, register
from lakeformat.engines.spark.engine import SparkEngine
from lakeformat.engines.spark.frames import apart, of_arrow
from lakeformat.engines.spark.merge import SparkSource
from lakeformat.engines.spark.session import add_to_session, require_sparks_own
from lakeformat.engines.spark.types import fields_from_spark, spark_schema, spark_type
from lakeformat.engines.spark.workers import pack_packages, ready

__all__ = [
    "SparkEngine",
    "SparkSource",
    "add_to_session",
    "apart",
    "attach",
    "changelog",
    "exchange",
    "fields_from_spark",
    "of_arrow",
    "pack_packages",
    "planning",
    "push_filters",
    "ready",
    "register",
    "require_sparks_own",
    "session_tables",
    "spark_schema",
    "spark_type",
    "transforms",
]
