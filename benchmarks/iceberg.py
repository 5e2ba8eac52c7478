"""Iceberg tables: planning and manifests against pyiceberg; overwrite and upkeep against Iceberg on Spark 3.5."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks import spark_overwrite, upkeep
from benchmarks.keys import keep
from benchmarks.measure import Figure, at_most, both, by_turns, seconds, timed
from benchmarks.peers.process import iceberg_on_spark, pyiceberg
from benchmarks.planning import SCHEMA, described
from benchmarks.spark_overwrite import PARTITIONS, SHAPES, Shape
from benchmarks.spark_overwrite import ROWS as SPARK_ROWS
from benchmarks.upkeep import PEER
from lakeformat import Lake
from lakeformat.commit import commit
from lakeformat.dialects.iceberg import manifest
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.model.operation import Append, Request
from lakeformat.storage.files import open_store

iceberg = Iceberg()

FILES = 50_000
CHANGES = 200_000
ROWS, KEYS, KEY = 1_000_000, 2_000, ["region", "id"]
_PYICEBERG = "pyiceberg 0.12"


def run(folder: Path) -> Iterator[Figure]:
    yield from _planning(folder / "planning")
    yield from _upsert(folder / "upsert")
    yield from _on_spark(folder / "spark")


def _planning(folder: Path) -> Iterator[Figure]:
    """Every run plans a table of its own, for decoded manifests are kept by path; the peer keeps none."""
    numbers = count()

    def declared() -> Path:
        root = folder / f"warehouse-{next(numbers)}"
        declare(root)
        return root

    first = declared()
    metadata = str(first / "bench.db" / "files" / "metadata" / "v2.metadata.json")
    base = iceberg.load(open_store(str(first / "bench.db" / "files")), 2).state
    entries = manifest.live_entries(open_store(str(first / "bench.db" / "files")), base)
    assert len(entries) == FILES

    def plan() -> float:
        root = declared()
        return seconds(lambda: _plan(root))

    def write() -> float:
        def work() -> None:
            numbers = manifest.emit(entries, base, base.spec, str(uuid.uuid4()), 1, 1, str(folder))
            for path, data in numbers.files.items():
                (folder / Path(path).name).write_bytes(data)

        return seconds(work)

    with pyiceberg() as peer:
        subject = f"{FILES:,} files in one manifest"
        yield by_turns(
            f"plan {subject}",
            _PYICEBERG,
            0.2,
            plan,
            lambda: peer.ask(verb="plan", metadata=metadata, files=FILES),
            runs=3,
        )
        ask = {"verb": "write", "metadata": metadata, "path": str(folder / "theirs.avro"), "entries": FILES}
        yield by_turns(f"write {subject}", _PYICEBERG, 1 / 3, write, lambda: peer.ask(**ask), runs=3)


def _upsert(folder: Path) -> Iterator[Figure]:
    """Half of the keys are there already, and get other values; each run has a table of its own."""
    folder.mkdir(parents=True)
    numbers, step = count(), ROWS // (KEYS // 2)
    old = np.arange(ROWS)
    changed = np.concatenate((old[::step], ROWS + np.arange(KEYS // 2)))
    keep(keyed_rows(old, 0.0), folder / "rows.arrow")
    keep(keyed_rows(changed, 0.5), folder / "changes.arrow")

    def ours() -> float:
        before, after = keyed_rows(old, 0.0), keyed_rows(changed, 0.5)
        lake = Lake(str(folder / f"ours-{next(numbers)}"))
        table = lake.create_table("bench.rows", before.schema, format="iceberg", primary_key=KEY)
        table.append(before)
        took = seconds(lambda: table.upsert(after))
        assert table.scan(where="amount % 1 = 0.5").count() == KEYS
        return took

    with pyiceberg() as peer:
        files = {"rows": str(folder / "rows.arrow"), "changes": str(folder / "changes.arrow")}
        yield by_turns(
            f"upsert {KEYS:,} keys of two columns into {ROWS:,} rows",
            _PYICEBERG,
            0.1,
            ours,
            lambda: peer.ask(verb="upsert", folder=str(folder / f"theirs-{next(numbers)}"), key=KEY, **files),
            runs=1,
        )


def keyed_rows(ids: np.ndarray, more: float) -> pa.Table:
    """Rows with two key columns, and two more that `more` makes differ."""
    regions = pa.DictionaryArray.from_arrays(ids % 50, [f"r{i:02}" for i in range(50)]).cast(pa.string())
    schema = pa.schema(
        [
            pa.field("region", pa.string(), False),
            pa.field("id", pa.int64(), False),
            ("amount", pa.float64()),
            ("name", pa.string()),
        ]
    )
    names = pc.binary_join_element_wise("customer ", pa.array(ids).cast(pa.string()), "")
    return pa.table([regions, ids, ids + more, names], schema=schema)


def _plan(warehouse: Path) -> None:
    tasks = Lake(str(warehouse)).table("bench.files").scan().plan()
    assert sum(len(task.paths) for task in tasks) == FILES, len(tasks)


def declare(warehouse: Path, files: int = FILES) -> None:
    """A table of files that need not be there, for planning opens none."""
    properties = {"commit.manifest.target-size-bytes": str(1 << 30)}
    Lake(str(warehouse)).create_table(
        "bench.files", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties
    )
    store = open_store(str(warehouse / "bench.db" / "files"))
    added = tuple(described(i, first_id=1, folder="data") for i in range(files))
    commit(store, iceberg.head(store), iceberg, Append(request=Request(id="bench"), added=added))


def _on_spark(folder: Path) -> Iterator[Figure]:
    ours, theirs = folder / "ours", folder / "theirs"
    lake = Lake(str(ours), fsync="false")
    numbers = count()

    def small(shape: str, spark: SparkSession | None = None) -> list[float]:
        """1,000 files by one commit, as the peer's have."""
        name = f"bench.small_{next(numbers)}"
        data = upkeep.shapes()[shape]
        table = lake.create_table(name, data.schema, format="iceberg")
        store = open_store(table.uri)
        base = iceberg.load(store, 1)
        step = upkeep.ROWS // upkeep.FILES
        engine, layout = ArrowEngine(), base.layout()
        added = [engine.write(store, data.slice(start, step), layout)[0] for start in range(0, upkeep.ROWS, step)]
        commit(store, iceberg.head(store), iceberg, Append(request=Request(id="small"), added=tuple(added)))
        took = timed(lambda: Lake(str(ours)).table(name).compact(spark=spark))
        assert len(table.inspect.files()) < upkeep.FILES / 50
        return took

    def aged() -> list[float]:
        name = f"bench.aged_{next(numbers)}"
        data = upkeep.rows(1000 * upkeep.PARTITIONS, upkeep.PARTITIONS)
        table = lake.create_table(name, data.schema, format="iceberg", partition_by=["dt"])
        for _ in range(upkeep.SNAPSHOTS + 1):
            table.overwrite_partitions(data)
        took = timed(lambda: Lake(str(ours)).table(name).expire_snapshots(retain_last=1))
        assert len(table.snapshots()) == 1
        assert table.scan().count() == len(data)
        return took

    spark = spark_overwrite.session()
    try:
        with iceberg_on_spark(theirs) as peer:
            for shape in upkeep.shapes():
                again = upkeep.small_files_of(peer.ask, theirs, shape)
                work = f"compact {upkeep.FILES:,} files of {upkeep.ROWS:,} {shape} rows, iceberg"
                for where, session in (("", None), (" on Spark", spark)):
                    yield from both(
                        work + where, PEER, upkeep.COMPACTED,
                        lambda shape=shape, session=session: small(shape, session), again, runs=3,  # type: ignore[misc]
                    )  # fmt: skip
            table = "peer.bench.aged"
            peer.ask(verb="history", table=table, snapshots=upkeep.SNAPSHOTS, partitions=upkeep.PARTITIONS)
            theirs_aged = upkeep.put_back(theirs / "bench" / "aged", lambda: peer.ask(verb="expire", table=table))
            work = (
                f"expire {upkeep.SNAPSHOTS} snapshots and their {upkeep.SNAPSHOTS * upkeep.PARTITIONS:,} files, iceberg"
            )
            yield from both(work, PEER, 1.0, aged, theirs_aged, runs=3)
            for rows in SHAPES:
                yield from _changes(lake, spark, rows, folder / rows.name, peer.ask)
    finally:
        spark.stop()


def _changes(lake: Lake, spark: SparkSession, shape: Shape, folder: Path, ask: Callable[..., Any]) -> Iterator[Figure]:
    """Both replace every partition by the same rows, read from the same Parquet files,
    and then merge the same changes."""
    path = str(folder / "source")
    source = shape.source(spark, path)
    table = lake.create_table(f"bench.{shape.name}", source.schema, format="iceberg", partition_by=[shape.partition])
    theirs = f"peer.bench.events_{shape.name}"
    ask(verb="events", table=theirs, source=path, partition=shape.partition)
    subject = f"{SPARK_ROWS:,} {shape.name} rows over {PARTITIONS} partitions"
    yield from both(
        f"overwrite {subject}", PEER, 0.9,
        lambda: timed(lambda: table.overwrite_partitions(source)),
        lambda: ask(verb="overwrite", table=theirs, source=path), runs=3,
    )  # fmt: skip
    assert table.scan().count() == SPARK_ROWS
    yield at_most(f"overwrite {subject}", "files", ask(verb="files", table=theirs), [len(table.inspect.files())])
    for mode in ("copy-on-write", "merge-on-read"):
        table.alter().set_properties({"write.merge.mode": mode}).commit()
        ask(verb="merge_by", table=theirs, mode=mode)
        turns = {"ours": count(), "theirs": count()}

        def ours(turns: dict[str, count[int]] = turns) -> list[float]:
            changed = shape.changes(spark, CHANGES, CHANGES, next(turns["ours"]))
            chain = table.merge_into(changed, on=f"t.id = s.id and t.{shape.partition} = s.{shape.partition}")
            chain = chain.when_matched().update({"name": "s.name", shape.number: f"s.{shape.number}"})
            return timed(lambda: chain.when_not_matched().insert_all().merge())

        def merged(turns: dict[str, count[int]] = turns) -> list[float]:
            asked = {"columns": shape.columns, "number": shape.number, "rows": SPARK_ROWS, "changes": CHANGES}
            took: list[float] = ask(verb="merge", table=theirs, turn=next(turns["theirs"]), **asked)
            return took

        yield from both(
            f"MERGE {CHANGES:,} updates and {CHANGES:,} inserts into {subject}, {mode}", PEER, 0.2, ours, merged, runs=2
        )
