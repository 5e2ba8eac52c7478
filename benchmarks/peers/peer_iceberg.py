"""Iceberg's side of the benchmarks: Spark 3.5 with a Hadoop catalog. Each timed verb returns the seconds that count."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import snowpark_connect_deps_iceberg
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from serve import serve

_JARS = Path(snowpark_connect_deps_iceberg.__file__).parent / "jars"
_session: list[SparkSession] = []


def start(warehouse: str) -> str:
    (jar,) = _JARS.glob("iceberg-spark-runtime-3.5_2.12-*.jar")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.jars": str(jar),
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.peer.type": "hadoop",
        "spark.sql.catalog.peer.warehouse": warehouse,
        "spark.sql.catalog.peer.cache-enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("peer")
    for key, value in settings.items():
        builder = builder.config(key, value)
    _session.append(builder.getOrCreate())
    _session[0].sparkContext.setLogLevel("ERROR")
    return _session[0].version


def small_files(table: str, rows: int, files: int) -> int:
    """A table of `rows` rows in `files` files of equal size, in one snapshot."""
    spark = _session[0]
    _declare(table, "")
    _rows(rows).repartitionByRange(files, "id").sortWithinPartitions("id").writeTo(table).append()
    return spark.table(f"{table}.files").count()


def history(table: str, snapshots: int, partitions: int) -> int:
    """A table of `snapshots` snapshots after its first, each of which replaced every one of its files, one a partition.

    The files are copies of those that Spark wrote first; only Iceberg's own API makes snapshots this quickly.
    """
    spark = _session[0]
    _declare(table, "PARTITIONED BY (dt)")
    _rows(1000 * partitions, partitions).repartition(1).sortWithinPartitions("dt").writeTo(table).append()
    jvm = spark._jvm
    handle = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    originals = [Path(row.file_path.removeprefix("file:")) for row in spark.table(f"{table}.files").collect()]
    for number in range(snapshots):
        change = handle.newReplacePartitions()
        for original in originals:
            copy = original.with_name(f"{number}-{original.name}")
            shutil.copyfile(original, copy)
            file = (
                jvm.org.apache.iceberg.DataFiles.builder(handle.spec())
                .withPath(str(copy))
                .withPartitionPath(original.parent.name)
                .withFormat("parquet")
                .withFileSizeInBytes(copy.stat().st_size)
                .withRecordCount(1000)
                .build()
            )
            change.addFile(file)
        change.commit()
    return spark.table(f"{table}.snapshots").count()


def compact(table: str) -> float:
    return _timed(f"CALL peer.system.rewrite_data_files(table => '{table}')", f"{table}.files")


def expire(table: str) -> float:
    later = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 86400))
    call = f"CALL peer.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '{later}', retain_last => 1)"
    return _timed(call, f"{table}.snapshots")


def events(table: str, source: str) -> int:
    """An empty table with the columns of the Parquet files in `source`, partitioned by their `dt`."""
    spark = _session[0]
    spark.read.parquet(source).limit(0).writeTo(table).using("iceberg").partitionedBy(F.col("dt")).tableProperty(
        "format-version", "2"
    ).tableProperty("write.parquet.compression-codec", "zstd").create()
    return spark.table(table).count()


def overwrite(table: str, source: str) -> float:
    """Replace the partitions that the source has rows of."""
    frame = _session[0].read.parquet(source)
    started = time.perf_counter()
    frame.writeTo(table).overwritePartitions()
    return time.perf_counter() - started


def merge_by(table: str, mode: str) -> str:
    _session[0].sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.merge.mode'='{mode}')")
    return mode


def merge(table: str, rows: int, turn: int, changes: int = 200_000, partitions: int = 30) -> float:
    """200,000 updates of keys all over the table, 200,000 new rows; our side merges the same."""
    spark = _session[0]
    old = spark.range(changes).selectExpr(f"id * {rows // changes} as id")
    new = spark.range(changes).selectExpr(f"id + {rows + (turn + 1) * 1_000_000} as id")
    day = f"date_add(date'2024-01-01', cast(pmod(hash(id), {partitions}) as int)) as dt"
    old.union(new).selectExpr(day, "id", f"'changed {turn}' as name", "1.5D as amount").createOrReplaceTempView(
        "changes"
    )
    started = time.perf_counter()
    spark.sql(
        f"MERGE INTO {table} t USING changes s ON t.id = s.id AND t.dt = s.dt "
        "WHEN MATCHED THEN UPDATE SET name = s.name, amount = s.amount WHEN NOT MATCHED THEN INSERT *"
    )
    return time.perf_counter() - started


def _timed(call: str, left: str) -> float:
    """Seconds of a procedure after which the metadata table `left` has one row."""
    spark = _session[0]
    started = time.perf_counter()
    said = spark.sql(call).collect()
    took = time.perf_counter() - started
    assert spark.table(left).count() == 1, said
    return took


def _declare(table: str, partitioned: str) -> None:
    spark = _session[0]
    spark.sql("CREATE NAMESPACE IF NOT EXISTS peer.bench")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, amount DOUBLE, name STRING, dt STRING) USING iceberg {partitioned} "
        "TBLPROPERTIES ('format-version'='2', 'write.parquet.compression-codec'='zstd', 'write.distribution-mode'='none')"
    )


def _rows(count: int, days: int = 1) -> Any:
    """The rows that our side writes too."""
    return (
        _session[0]
        .range(count)
        .select(
            "id",
            (F.col("id") % 1000 / 8).alias("amount"),
            F.concat(F.lit("customer "), F.col("id").cast("string")).alias("name"),
            F.format_string("2024-01-%02d", F.col("id") % days + 1).alias("dt"),
        )
    )


VERBS = (start, small_files, history, compact, expire, events, overwrite, merge_by, merge)
serve({verb.__name__: verb for verb in VERBS})
if _session:
    _session[0].stop()
