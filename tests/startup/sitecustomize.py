"""Python imports this when it starts, where this folder is on PYTHONPATH.

On another day (see `another_day`), the process has that day's clock. And a daemon that forks Spark's Python workers imports what our
tasks need, so that no worker has to: each would import the same for a second of CPU time. `spark.python.daemon.module` would not do:
Spark plans reads and writes of data sources in workers of `pyspark.daemon`, whatever it says.
"""

import gc
import os
import sys

if "LAKEFORMAT_TEST_DAY" in os.environ:
    import another_day

    another_day.move()

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
