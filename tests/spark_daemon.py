"""Spark's daemon of Python workers (`spark.python.daemon.module`) that has already imported what our tasks need.

Workers are forked from it: each would import the same for half a second of CPU time.
"""

import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401  What a worker runs.
from pyspark.daemon import manager

import lakeformat.engines.spark  # noqa: F401  What its tasks unpickle.

if __name__ == "__main__":
    manager()
