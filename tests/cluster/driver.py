"""A driver on a cluster: scenarios by name, each with a table of one format. Arguments: master, warehouse, scenario, format."""

import json
import logging
import os
import re
import signal
import sys
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lakeformat import Lake
from lakeformat.engines.spark import few as few_rows

few_rows._WRITTEN_BYTES = few_rows._REWRITTEN_BYTES = few_rows._MERGED_BYTES = -1  # Executors do it with few rows too.
ROWS, DAYS = 2_400_000, 8  # More than the driver would write by itself.
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.float64()), pa.field("day", pa.int32(), nullable=False)]
)


def session(master):
    if master.startswith("sc://"):
        return SparkSession.builder.remote(master).getOrCreate()
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


def _rows(first, count):
    """Rows that this process writes itself: a task that Spark tried twice may write files after its job has ended."""
    ids = range(first, first + count)
    return pa.table({"id": ids, "v": [float(id) for id in ids], "day": [id % DAYS for id in ids]}, schema=SCHEMA)


def create(lake, format, keyed=False, spread=True):
    """Rows of a table that is not `spread` are written by the tasks that have them."""
    properties = {"bucket": "2"} if keyed else {}
    if format == "iceberg" and not spread:
        properties["write.distribution-mode"] = "none"
    keys = {"primary_key": ["id", "day"]} if keyed else {}
    name = f"d.{format}_{time.time_ns()}"
    return lake.create_table(name, SCHEMA, format=format, partition_by=["day"], properties=properties, **keys)


def leftovers(table):
    """Files that no snapshot names."""
    return [orphan.path for orphan in table.remove_orphan_files(older_than=timedelta(0), dry_run=True)]


def check(table, rows):
    assert table.missing_files() == []
    assert table.scan().count() == rows, (table.scan().count(), rows)
    ids = table.scan(["id"]).to_arrow()["id"]
    assert len(ids.unique()) == rows
    paths = [path for task in table.scan().plan() for path in task.paths]
    assert len(set(paths)) == len(paths)
    table.remove_orphan_files(older_than=timedelta(0))
    assert leftovers(table) == []


@contextmanager
def executor_killed(spark, table):
    """Once a task has written a file of the verb inside, one executor is killed."""
    with killed_once_written(table, lambda: executors(spark.sparkContext.applicationId)[0]):
        yield


@contextmanager
def killed_once_written(table, victim):
    before, killed, over = len(table.stored_files()), [], threading.Event()

    def work():
        while not over.is_set():
            if len(table.stored_files()) > before:
                pid = victim()
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
    return processes("CoarseGrainedExecutorBackend", application)


def processes(*words):
    """Those of which the command has all the words, but for the shells that start them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(word in command for word in words) and command.startswith("/"):
            found.append(int(path.parent.name))
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
    while True:
        try:
            query.start().awaitTermination()
            break
        except StreamingQueryException as error:  # Spark gives a stream's process ten seconds to start.
            if "Python worker failed to connect back" not in str(error):
                raise
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


def worker_killed(spark, lake, format):
    """One of the two workers is lost for good, with its executor; the other one goes on."""
    table = create(lake, format)
    with killed_once_written(
        table, lambda: processes("org.apache.spark.deploy.worker.Worker", spark.sparkContext.master)[0]
    ):
        table.append(frame(spark))
    check(table, ROWS)
    table.compact(full=True, spark=spark)
    check(table, ROWS)


def slow_executor(spark, lake, format):
    """Spark tries a task of a slow executor on the other one as well; what both write is in the table once."""
    table = create(lake, format, spread=False)
    marks = Path(lake.uri.removeprefix("file://")) / f"attempts-{table.name}"
    marks.mkdir()

    def folders(batches):
        for batch in batches:
            time.sleep(0.2)
            yield pa.RecordBatch.from_arrays([pa.array([os.getcwd()] * len(batch))], ["folder"])

    both = set()
    while len(both) < 2:  # One may come later.
        both = {row[0] for row in spark.range(0, 8, 1, 8).mapInArrow(folders, "folder string").collect()}
    slow = min(both)

    def waits(batches):
        context = TaskContext.get()
        (marks / f"{context.partitionId()}-{context.taskAttemptId()}").write_text(f"{time.time():.1f} {os.getcwd()}")
        for index, batch in enumerate(batches):
            if index == 0 and os.getcwd() == slow:
                time.sleep(15)
            yield batch

    rows = 400_000
    source = frame(spark, 0, rows)
    table.append(source.mapInArrow(waits, source.schema))
    tried = [name.partition("-")[0] for name in os.listdir(marks)]
    assert len(tried) > len(set(tried)) == DAYS, {path.name: path.read_text() for path in marks.iterdir()}
    check(table, rows)


def _everything(table):
    return {str(path) for path in Path(table.uri.removeprefix("file://")).rglob("*") if path.is_file()}


def _failing(spark, marks, how):
    """Rows of which the last task fails each time that Spark tries it, after the others have had their time."""

    def work(batches):
        context = TaskContext.get()
        if context.partitionId() == DAYS - 1:
            (marks / str(context.taskAttemptId())).touch()
            next(batches)
            time.sleep(1)
            if how == "raise":
                raise OSError("this disk is full")
            os._exit(1)
        yield from batches

    source = frame(spark, 0, 80_000)
    return source.mapInArrow(work, source.schema)


def failing_task(spark, lake, format):
    """A task that fails four times fails its job, which leaves no file behind, whether it raised or its process died."""
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("lakeformat").addHandler(handler)
    for how in ("raise", "exit"):
        table = create(lake, format, spread=False)
        lake.attach(spark, [table.name], pack="auto")
        table.append(_rows(10**6, 8000))
        before = _everything(table)
        for write in (
            table.append,
            lambda rows, to=table: rows.write.format("lakeformat").mode("append").save(to.name),
        ):
            marks = Path(lake.uri.removeprefix("file://")) / f"attempts-{time.time_ns()}"
            marks.mkdir()
            said.clear()
            with pytest.raises(Exception, match=r"this disk is full|crashed|exited|Connection reset"):
                write(_failing(spark, marks, how))
            assert len(os.listdir(marks)) == 4
            left = _everything(table) - before
            if write == table.append:
                (count,) = [int(n) for line in said for n in re.findall(r"(\d+) files that its tasks", line)]
                assert count >= 8, said  # Each of the seven other tasks wrote eight.
                assert left == set()
            else:  # Of a task whose process was stopped, nobody but the sweep knows the file.
                print(f"{format}, {how}, by name: {len(left)} files left", file=sys.stderr)
                assert left <= {f"{table.uri.removeprefix('file://')}/{path}" for path in leftovers(table)}
        check(table, 8000)


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
    table = lake.table(next(name for name in lake.tables("d") if name == os.environ["TABLE"]))
    assert len(table.snapshots()) == 1
    table.append(frame(spark, 8000, 8000), id="big")
    table.append(frame(spark, 8000, 8000), id="big")
    check(table, 16_000)


if __name__ == "__main__":
    url, warehouse, scenarios, formats = sys.argv[1:]
    spark, lake = session(os.environ.get("CONNECT", url)), Lake(warehouse)
    lake.attach(spark, [], pack="auto")
    done = {}
    for scenario in scenarios.split(","):
        for format in formats.split(","):
            started = time.monotonic()
            globals()[scenario](spark, lake, format)
            done[f"{scenario} {format}"] = round(time.monotonic() - started, 1)
            print(json.dumps(done), flush=True)
    spark.stop()
