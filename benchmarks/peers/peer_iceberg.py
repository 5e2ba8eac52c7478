"""Iceberg's side of the benchmarks: Spark 3.5 with a Hadoop catalog.
Each timed verb returns wall and processor seconds."""

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
from timing import both_times

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


def small_files(table: str, source: str, files: int, in_order: bool) -> int:
    """A table of the rows of a Parquet file in `files` files of equal size, in one snapshot; how many there are."""
    spark = _session[0]
    rows = spark.read.parquet(source)
    rows.limit(0).writeTo(table).using("iceberg").tableProperty("format-version", "2").tableProperty(
        "write.parquet.compression-codec", "zstd"
    ).tableProperty("write.distribution-mode", "none").create()
    parts = rows.repartitionByRange(files, "id").sortWithinPartitions("id") if in_order else rows.repartition(files)
    parts.writeTo(table).append()
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


def compact(table: str) -> list[float]:
    return _timed(f"CALL peer.system.rewrite_data_files(table => '{table}')", f"{table}.files")


def expire(table: str) -> list[float]:
    later = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 86400))
    call = f"CALL peer.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '{later}', retain_last => 1)"
    return _timed(call, f"{table}.snapshots")


def events(table: str, source: str, partition: str) -> int:
    """An empty table with the columns of the Parquet files in `source`, partitioned by one of them."""
    spark = _session[0]
    spark.read.parquet(source).limit(0).writeTo(table).using("iceberg").partitionedBy(F.col(partition)).tableProperty(
        "format-version", "2"
    ).tableProperty("write.parquet.compression-codec", "zstd").create()
    return spark.table(table).count()


def overwrite(table: str, source: str) -> list[float]:
    """Replace the partitions that the source has rows of."""
    frame = _session[0].read.parquet(source)
    return both_times(frame.writeTo(table).overwritePartitions)


def files(table: str) -> int:
    """How many data files the table has."""
    return _session[0].table(f"{table}.files").count()


def merge_by(table: str, mode: str) -> str:
    _session[0].sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.merge.mode'='{mode}')")
    return mode


def merge(
    table: str, rows: int, turn: int, columns: dict[str, str], number: str, changes: int = 200_000
) -> list[float]:
    """200,000 updates of keys all over the table, 200,000 new rows; our side merges the same. `columns`:
    SQL by name, of an id."""
    spark = _session[0]
    old = spark.range(changes).selectExpr(f"id * {rows // changes} as id")
    new = spark.range(changes).selectExpr(f"id + {rows + (turn + 1) * 1_000_000} as id")
    changed = {"name": f"'changed {turn}'", number: "1.5D"}
    made = [f"{changed.get(name, sql)} as {name}" for name, sql in columns.items()]
    old.union(new).selectExpr(*made).createOrReplaceTempView("changes")
    partition = next(iter(columns))
    text = (
        f"MERGE INTO {table} t USING changes s ON t.id = s.id AND t.{partition} = s.{partition} "
        f"WHEN MATCHED THEN UPDATE SET name = s.name, {number} = s.{number} WHEN NOT MATCHED THEN INSERT *"
    )
    return both_times(lambda: spark.sql(text))


def _timed(call: str, left: str) -> list[float]:
    """The seconds of a procedure after which the metadata table `left` has one row."""
    spark = _session[0]
    took = both_times(lambda: spark.sql(call).collect())
    assert spark.table(left).count() == 1, call
    return took


def _declare(table: str, partitioned: str) -> None:
    spark = _session[0]
    spark.sql("CREATE NAMESPACE IF NOT EXISTS peer.bench")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, amount DOUBLE, name STRING, dt STRING) USING iceberg {partitioned} "
        "TBLPROPERTIES ('format-version'='2', 'write.parquet.compression-codec'='zstd', "
        "'write.distribution-mode'='none')"
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


VERBS = (start, small_files, history, compact, expire, events, overwrite, files, merge_by, merge)
serve({verb.__name__: verb for verb in VERBS})
if _session:
    _session[0].stop()
