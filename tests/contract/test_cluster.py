"""A cluster whose workers have no packages: what a driver says so that the verbs run there, and what its failures leave."""

import json
import os

import pytest

from tests.contract.spark_cluster import running_cluster

# A driver starts as `.venv/bin/python job.py` does: no PYSPARK_PYTHON, and the `python3` of its PATH has no packages either.
SHORT = """
import json, os, sys
import pyarrow as pa
from pyspark.sql import SparkSession
from lakeformat import Lake, UnsupportedFeature
from lakeformat.engines.spark import few

few._REWRITTEN_BYTES = few._MERGED_BYTES = -1  # Executors rewrite and merge few rows too.
url, warehouse = sys.argv[1:]

def session(master):
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.executor.memory", "512m")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.executor.extraJavaOptions", os.environ["JVM_OPTIONS"]).getOrCreate()

spark = session(url)
spark.sparkContext.setLogLevel("OFF")
lake = Lake(warehouse)
found = {}
for format in ("paimon", "iceberg"):
    lake.create_table(f"d.{format}", pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]), format=format,
                      primary_key=["id"] if format == "paimon" else [], properties={"bucket": "2"} if format == "paimon" else {})
try:
    lake.attach(spark)
    found["refused"] = ""
except UnsupportedFeature as error:
    found["refused"] = str(error)
lake.attach(spark, pack="auto")
for format in ("paimon", "iceberg"):
    table = lake.table(f"d.{format}")
    table.append(spark.range(100_000, numPartitions=2).selectExpr("id", "'a' AS v").repartition(2))
    source = spark.range(50, 150).selectExpr("id * 1000 AS id", "'b' AS v")
    table.merge_into(source, on="t.id = s.id").when_matched().update_all().when_not_matched().insert_all().merge()
    table.compact(full=True, spark=spark)
    counts = {row[0]: row[1] for row in spark.sql(f"SELECT v, count(*) FROM d.{format} GROUP BY v").collect()}
    assert counts == {row[0]: row[1] for row in table.scan().to_spark(spark).groupBy("v").count().collect()}
    found[format] = counts, [each.kind for each in table.snapshots()]
spark.stop()
spark = session("local[1]")
lake.table("d.iceberg").append(spark.createDataFrame([(-1, "local")], "id bigint, v string"))
found["local"] = spark.createDataFrame([(1,)], "id int").join(lake.table("d.iceberg").scan(where="v = 'local'").to_spark(spark).select("v")).count()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder) as found:
        yield found


@pytest.mark.long("test_engines.py: executors are sent the library, and packages that they lack are named")
@pytest.mark.spark
def test_attach_makes_a_cluster_without_packages_able_to_run_all_verbs(cluster, tmp_path):
    path = f"{cluster.python.parent}:{os.environ['PATH']}"
    run = cluster.run(SHORT, str(tmp_path / "lake"), PATH=path, XDG_CACHE_HOME=str(cluster.folder))
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert "lacks pyarrow, numpy" in found["refused"]
    assert "pack='auto'" in found["refused"]
    for format in ("paimon", "iceberg"):
        counts, kinds = found[format]
        assert counts == {"a": 99_950, "b": 100}
        assert len(kinds) == 3
    assert found["local"] == 1
