"""A driver on a cluster: scenarios by name, each with a table of one format. Arguments: master, warehouse, scenario, format."""

import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from lakeformat import Lake

ROWS, DAYS = 2_400_000, 8  # More than the driver would write by itself.
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.float64()), pa.field("day", pa.int32(), nullable=False)]
)


def session(master):
    settings = {
        "spark.ui.enabled": "false",
        "spark.executor.memory": "700m",
        "spark.sql.shuffle.partitions": "4",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "2",
        "spark.speculation.quantile": "0.5",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    return found


def frame(spark, first=0, count=ROWS, partitions=DAYS):
    rows = spark.range(first, first + count, 1, partitions)
    return rows.selectExpr("id", "CAST(id AS DOUBLE) AS v", f"CAST(id % {DAYS} AS INT) AS day")


def create(lake, format, keyed=False):
    properties = {"bucket": "2"} if keyed else {}
    keys = {"primary_key": ["id", "day"], "properties": properties} if keyed else {}
    name = f"d.{format}_{time.time_ns()}"
    return lake.create_table(name, SCHEMA, format=format, partition_by=["day"], **keys)


def leftovers(table):
    """Files that no snapshot names."""
    return [each.path for each in table.remove_orphan_files(older_than=timedelta(0), dry_run=True)]


def check(table, rows):
    assert table.missing_files() == []
    assert table.scan().count() == rows, (table.scan().count(), rows)
    ids = table.scan(["id"]).to_arrow()["id"]
    assert len(ids.unique()) == rows
    table.remove_orphan_files(older_than=timedelta(0))
    assert leftovers(table) == []


@contextmanager
def executor_killed(spark, table):
    """Once a task has written a file of the verb inside, one executor is killed."""
    before, killed, over = len(table.stored_files()), [], threading.Event()

    def work():
        while not over.is_set():
            if len(table.stored_files()) > before:
                pid = executors(spark.sparkContext.applicationId)[0]
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert killed


def executors(application):
    """The executors of this driver's own application."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in command and application in command and command.startswith("/"):
            found.append(int(each.parent.name))
    return sorted(found)


def verbs(spark, lake, format):
    keyed = format == "paimon"
    table = create(lake, format, keyed)
    few = 20_000
    table.append(frame(spark, 0, few))
    (table.upsert if keyed else table.append)(frame(spark, few, few))
    table.overwrite_partitions(frame(spark, 0, few).filter("day = 1"))
    check(table, 2 * few - few // DAYS)
    table.overwrite(frame(spark, few, few).filter("day = 1"), partition={"day": 1})
    table.delete("day = 1", spark=spark)
    table.overwrite(frame(spark, 0, 2 * few).filter("day = 1"), where="day = 1")
    table.update({"v": "v + 1"}, where="id % 100 = 2", spark=spark)
    table.delete("id % 1000 = 3", spark=spark)
    source = frame(spark, 0, 3 * few).filter("id % 3 = 0")
    table.merge_into(
        source, on="t.id = s.id AND t.day = s.day"
    ).when_matched().update_all().when_not_matched().insert_all().merge()
    table.compact(full=True, spark=spark)
    if not keyed:
        table.compact(sort_by=["id"], full=True, spark=spark)
    table.expire_snapshots(retain_last=1)
    table.append(frame(spark, 10 * few, few), id="once")
    table.append(frame(spark, 10 * few, few), id="once")
    table.stream("job").write_batch(frame(spark, 20 * few, few), 0)
    kept = set(range(2 * few)) - {i for i in range(2 * few) if i % 1000 == 3}
    kept |= set(range(0, 3 * few, 3)) | set(range(10 * few, 11 * few)) | set(range(20 * few, 21 * few))
    check(table, len(kept))
    assert table.scan().to_spark(spark).count() == len(kept)
    return len(kept)


def by_name(spark, lake, format):
    table = create(lake, format)
    lake.attach(spark, [table.name], pack="auto")
    frame(spark, 0, 1000).write.format("lakeformat").mode("append").save(table.name)
    read = spark.read.format("lakeformat").load(table.name).filter("day = 2")
    assert read.count() == spark.sql(f"SELECT count(*) FROM {table.name} WHERE day = 2").first()[0] == 125
    copy = create(lake, format)
    stream = spark.readStream.format("lakeformat").load(table.name)
    query = stream.writeStream.format("lakeformat").option("table", copy.name).option("user", "copy")
    query = query.option("checkpointLocation", f"{lake.uri}/checkpoint-{copy.name}").trigger(availableNow=True)
    query.start().awaitTermination()
    check(copy, 1000)


def killed_in_append(spark, lake, format):
    table = create(lake, format)
    with executor_killed(spark, table):
        table.append(frame(spark))
    check(table, ROWS)


def killed_in_upsert(spark, lake, format):
    table = create(lake, format, keyed=True)
    with executor_killed(spark, table):
        table.upsert(frame(spark).repartition(4))
    check(table, ROWS)


def killed_in_merge(spark, lake, format):
    table = create(lake, format, keyed=format == "paimon")
    table.append(frame(spark))
    source = frame(spark, ROWS // 2, ROWS)
    with executor_killed(spark, table):
        merge = table.merge_into(source, on="t.id = s.id AND t.day = s.day").when_matched().update_all()
        merge.when_not_matched().insert_all().merge()
    check(table, ROWS + ROWS // 2)


def killed_in_compaction(spark, lake, format):
    table = create(lake, format)
    for n in range(3):
        table.append(frame(spark, n * ROWS, ROWS))
    with executor_killed(spark, table):
        table.compact(full=True, spark=spark)
    check(table, 3 * ROWS)


def driver_killed(spark, lake, format):
    """Writes until it is killed from outside, which may begin when this prints the table's name."""
    table = create(lake, format)
    table.append(frame(spark, 0, 8000))
    before = len(table.stored_files())

    def shown():
        while len(table.stored_files()) == before:
            time.sleep(0.02)
        print(table.name, flush=True)

    threading.Thread(target=shown, daemon=True).start()
    table.append(frame(spark, 8000, 20 * ROWS), id="big")


def after_driver_killed(spark, lake, format):
    table = lake.table(next(each for each in lake.tables("d") if each == os.environ["TABLE"]))
    assert len(table.snapshots()) == 1
    table.append(frame(spark, 8000, 8000), id="big")
    table.append(frame(spark, 8000, 8000), id="big")
    check(table, 16_000)


if __name__ == "__main__":
    url, warehouse, scenarios, formats = sys.argv[1:]
    spark, lake = session(url), Lake(warehouse)
    lake.attach(spark, [], pack="auto")
    done = {}
    for scenario in scenarios.split(","):
        for format in formats.split(","):
            started = time.monotonic()
            globals()[scenario](spark, lake, format)
            done[f"{scenario} {format}"] = round(time.monotonic() - started, 1)
            print(json.dumps(done), flush=True)
    spark.stop()
