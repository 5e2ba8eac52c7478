"""Python imports this when it starts, where this folder is on PYTHONPATH: a daemon that forks Spark's Python workers then imports what our
tasks need, and no worker has to. Each would import the same for a second of CPU time.

`spark.python.daemon.module` would not do: Spark plans reads and writes of data sources in workers of `pyspark.daemon`, whatever it says.
"""

import gc
import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    import importlib

    for name in (
        "pyspark.sql.pandas.serializers",
        *sys.orig_argv[3:],
        "lakeformat.warehouse.data_source",
        "lakeformat.engines.spark.data_source",
    ):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # A worker collects garbage after each task: not what it was forked with.
