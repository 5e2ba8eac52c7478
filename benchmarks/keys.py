"""Paimon tables with a primary key: against pypaimon in this process,
and on Spark against plain Parquet and this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks import spark_overwrite
from benchmarks.measure import Figure, at_most, both, by_turns, seconds, timed
from benchmarks.peers.process import pypaimon
from benchmarks.spark_overwrite import PLAIN, SHAPES, Shape
from lakeformat import Lake
from lakeformat.table import Table

ROWS, RUNS = 1_000_000, 5
KEY = ["region", "id"]
_PROPERTIES = {"bucket": "1", "write-only": "true", "file.format": "parquet", "file.compression": "zstd"}
_PYPAIMON = "pypaimon 2.1"
MERGED, LOADED, MEBIBYTES = 20_000, 20_000_000, 600


def run(folder: Path) -> Iterator[Figure]:
    yield from _in_process(folder / "here")
    yield from _merged_memory(folder / "memory")
    spark = spark_overwrite.session()
    try:
        for shape in SHAPES:
            yield from _on_spark(spark, shape, folder / shape.name)
    finally:
        spark.stop()


def rows(count: int, seed: int) -> pa.Table:
    """Rows in no order with two key columns and eight values; each seed has a good half of the same million keys."""
    random = np.random.default_rng(seed)
    ids = random.permutation(2 * ROWS)[:count]
    names = np.array([f"city {i}" for i in range(200)])
    return pa.table(
        {
            "region": np.array([f"r{i:02}" for i in range(50)])[ids % 50],
            "id": ids,
            "amount": random.normal(100.0, 20.0, count),
            "tax": random.normal(10.0, 2.0, count),
            "quantity": random.integers(0, 50, count, np.int32),
            "stock": random.integers(0, 5000, count),
            "city": names[random.integers(0, len(names), count)],
            "note": np.char.add("note ", random.integers(0, count, count).astype(str)),
            "open": random.integers(0, 2, count).astype(bool),
            "at": np.datetime64("2024-01-01T00:00:00", "us")
            + random.integers(0, 86_400_000_000, count).astype("m8[us]"),
        }
    )


def declared(lake: Lake, name: str) -> Table:
    return lake.create_table(name, rows(1, 0).schema, primary_key=KEY, properties=_PROPERTIES)


def _in_process(folder: Path) -> Iterator[Figure]:
    folder.mkdir(parents=True)
    source = folder / "rows.arrow"
    keep(rows(ROWS, 1), source)
    numbers = count()

    def written() -> float:
        table = declared(Lake(str(folder / f"written-{next(numbers)}"), fsync="false"), "bench.rows")
        with pa.memory_map(str(source)) as file:
            data = pa.ipc.open_file(file).read_all()
            return seconds(lambda: table.upsert(data))

    runs = declared(Lake(str(folder / "runs")), "bench.rows")
    for seed in range(RUNS):
        runs.upsert(rows(ROWS // RUNS, seed))

    def merged() -> float:
        return seconds(lambda: runs.scan().to_arrow())

    with pypaimon() as peer:
        ask = {"verb": "keyed_write", "source": str(source), "key": KEY, "properties": _PROPERTIES}
        yield by_turns(
            f"write {ROWS:,} rows by key",
            _PYPAIMON,
            1 / 15,
            written,
            lambda: peer.ask(**ask, warehouse=str(folder / f"theirs-{next(numbers)}")),
            runs=1,
        )
        yield by_turns(
            f"merge {RUNS} overlapping runs of {ROWS:,} rows",
            _PYPAIMON,
            1 / 15,
            merged,
            lambda: peer.ask(verb="keyed_read", warehouse=str(folder / "runs"), rows=runs.scan().count()),
            runs=1,
        )
    files = [str(folder / "runs" / "bench.db" / "rows" / path) for path in runs.inspect.files()["path"].to_pylist()]

    def compacted() -> float:
        copy = folder / f"compacted-{next(numbers)}"
        shutil.copytree(folder / "runs", copy)
        return seconds(lambda: Lake(str(copy), fsync="false").table("bench.rows").compact(full=True))

    def plainly() -> float:
        def work() -> None:
            read = pa.concat_tables([pq.read_table(file) for file in files])
            order = [("_KEY_region", "ascending"), ("_KEY_id", "ascending"), ("_SEQUENCE_NUMBER", "ascending")]
            pq.write_table(read.sort_by(order), folder / "plain.parquet", compression="zstd")

        return seconds(work)

    yield by_turns(f"compact {RUNS} runs", "PyArrow reads, sorts, writes", 2.0, compacted, plainly, runs=5)
    yield _memory(folder / "runs")


def _memory(warehouse: Path) -> Figure:
    """Peak memory of a merge read beyond that of a process that only imports, in bytes;
    to the section's size in memory."""
    peak, idle = (
        int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for code in (_MERGE.format(warehouse=warehouse), _IDLE)
    )
    section = sum(rows(ROWS // RUNS, seed).nbytes for seed in range(RUNS))
    return Figure("peak bytes of a merge read", "its section in memory", 3.0, (float(peak - idle),), (float(section),))


_PEAK = "print(next(int(line.split()[1]) << 10 for line in open('/proc/self/status') if line.startswith('VmHWM')))"
_IDLE = f"""
import lakeformat, pyarrow.parquet, pyarrow.dataset
{_PEAK}
"""
_MERGE = f"""
from lakeformat import Lake
for batch in Lake("{{warehouse}}").table("bench.rows").scan().to_batches():
    pass
{_PEAK}
"""


def _merged_memory(folder: Path) -> Iterator[Figure]:
    """Peak memory of a process that merges few rows into a table of very many keys,
    its libraries and the rows with it."""
    for shape in ("mixed", "ordered"):
        for layout, buckets in (("four buckets", "4"), ("dynamic buckets", "-1")):
            place = str(folder / shape / layout.split()[0])
            for code in (_LOAD, _MERGE_FEW):
                text = code.format(place=place, shape=shape, buckets=buckets, rows=LOADED, merged=MERGED, peak=_PEAK)
                said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
            what = f"merge {MERGED:,} rows into {LOADED:,} keys of {layout}, {shape}, peak memory"
            yield at_most(what, "MiB", MEBIBYTES, [int(said) / 2**20])


_LOAD = """
import numpy as np
from benchmarks import merging
from lakeformat import Lake
data = getattr(merging, "{shape}")
ids = np.arange({rows}) if "{shape}" == "ordered" else np.random.default_rng(5).permutation({rows})
table = Lake("{place}", fsync="false").create_table(
    "bench.keyed", data(ids[:1]).drop_columns(data(ids[:1]).column_names[0]).schema, primary_key=["id"],
    properties={{"bucket": "{buckets}"}},
)
for part in np.array_split(ids, 8):
    rows = data(part)
    table.upsert(rows.drop_columns(rows.column_names[0]))
"""
_MERGE_FEW = """
import numpy as np
from benchmarks import merging
from lakeformat import Lake
half = {merged} // 2
ids = np.concatenate((np.arange(half) * ({rows} // half), {rows} + np.arange(half)))
rows = getattr(merging, "{shape}")(ids, "changed")
table = Lake("{place}", fsync="false").table("bench.keyed")
chain = table.merge_into(rows.drop_columns(rows.column_names[0]), on="t.id = s.id")
made = chain.when_matched().update_all().when_not_matched().insert_all().merge()
assert made is not None
{peak}
assert table.scan(where="name = 'changed'").count() == {merged}
"""


def _on_spark(spark: SparkSession, shape: Shape, folder: Path) -> Iterator[Figure]:
    source = shape.source(spark, str(folder / "source"))
    plain, numbers = str(folder / "plain"), count()
    lake = Lake(str(folder / "lake"))

    def declare(name: str) -> Table:
        return lake.create_table(name, source.schema, primary_key=["id"], properties={"bucket": "2"})

    def loaded(data: DataFrame | str) -> list[float]:
        name = f"bench.loaded_{next(numbers)}"
        table = declare(name)
        took = timed(lambda: table.overwrite(pq.read_table(data) if isinstance(data, str) else data))
        lake.drop_table(name)
        return took

    subject = f"a table of {spark_overwrite.ROWS:,} {shape.name} rows with a key"
    here = "the same in process"
    files = str(folder / "source")
    yield from both(f"load {subject} on Spark", here, 2.0, lambda: loaded(source), lambda: loaded(files), runs=3)
    first = declare("bench.keyed")
    first.overwrite(source)
    home = folder / "lake" / "bench.db"

    def fresh() -> Table:
        """The table of all rows, in a folder of its own; no file of a table ever changes."""
        name = f"keyed_{next(numbers)}"
        shutil.copytree(home / "keyed", home / name, copy_function=os.link)
        return lake.table(f"bench.{name}")

    runs = fresh()
    runs.alter().set_properties({"write-only": "true"}).commit()
    for turn in range(3):
        runs.upsert(shape.changes(spark, 400_000, 100_000, turn).toArrow())

    def read_here() -> None:
        assert sum(map(len, runs.scan().to_batches())) == spark_overwrite.ROWS + 300_000

    yield from both(
        f"merge read of {subject} and three runs on Spark", here, 2.0,
        lambda: timed(lambda: shape.totals(runs.scan().to_spark(spark))), lambda: timed(read_here), runs=3,
    )  # fmt: skip

    def plainly() -> float:
        return seconds(lambda: source.write.mode("overwrite").parquet(plain))

    def upserted() -> float:
        table = fresh()
        changed = shape.changes(spark, 400_000, 0)
        return seconds(lambda: table.upsert(changed))

    def merged() -> float:
        table = fresh()
        changed = shape.changes(spark, 200_000, 200_000)
        chain = table.merge_into(changed, on="t.id = s.id").when_matched().update_all().when_not_matched().insert_all()
        return seconds(lambda: chain.merge())

    whole = f"{PLAIN} of the whole"
    yield by_turns(f"upsert 400,000 rows into {subject}", whole, 0.2, upserted, plainly, runs=5)
    yield by_turns(f"MERGE 200,000 updates and inserts into {subject}", whole, 1.2, merged, plainly, runs=5)


def keep(data: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, data.schema) as writer:
        writer.write_table(data, max_chunksize=1 << 16)
