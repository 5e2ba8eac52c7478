"""Iceberg tables: planning and manifests against pyiceberg; overwrite and upkeep against Iceberg on Spark 3.5."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from benchmarks import spark_overwrite, upkeep
from benchmarks.keys import keep
from benchmarks.measure import Figure, by_turns, seconds
from benchmarks.peers.process import iceberg_on_spark, pyiceberg
from benchmarks.planning import SCHEMA, described
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
    made = count()

    def declared() -> Path:
        root = folder / f"warehouse-{next(made)}"
        _declare(root)
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
            made = manifest.emit(entries, base, base.spec, str(uuid.uuid4()), 1, 1, str(folder))
            for path, data in made.files.items():
                (folder / Path(path).name).write_bytes(data)

        return seconds(work)

    with pyiceberg() as peer:
        what = f"{FILES:,} files in one manifest"
        yield by_turns(
            f"plan {what}", _PYICEBERG, 0.2, plan, lambda: peer.ask(verb="plan", metadata=metadata, files=FILES), runs=3
        )
        ask = {"verb": "write", "metadata": metadata, "path": str(folder / "theirs.avro"), "entries": FILES}
        yield by_turns(f"write {what}", _PYICEBERG, 1 / 3, write, lambda: peer.ask(**ask), runs=3)


def _upsert(folder: Path) -> Iterator[Figure]:
    """Half of the keys are there already, and get other values; each run has a table of its own."""
    folder.mkdir(parents=True)
    made, step = count(), ROWS // (KEYS // 2)
    old = np.arange(ROWS)
    changed = np.concatenate((old[::step], ROWS + np.arange(KEYS // 2)))
    keep(keyed_rows(old, 0.0), folder / "rows.arrow")
    keep(keyed_rows(changed, 0.5), folder / "changes.arrow")

    def ours() -> float:
        before, after = keyed_rows(old, 0.0), keyed_rows(changed, 0.5)
        lake = Lake(str(folder / f"ours-{next(made)}"))
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
            lambda: peer.ask(verb="upsert", folder=str(folder / f"theirs-{next(made)}"), key=KEY, **files),
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


def _declare(warehouse: Path) -> None:
    """A table of files that need not be there, for planning opens none."""
    properties = {"commit.manifest.target-size-bytes": str(1 << 30)}
    Lake(str(warehouse)).create_table(
        "bench.files", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties
    )
    store = open_store(str(warehouse / "bench.db" / "files"))
    added = tuple(described(i, first_id=1, folder="data") for i in range(FILES))
    commit(store, iceberg.head(store), iceberg, Append(request=Request(id="bench"), added=added))


def _on_spark(folder: Path) -> Iterator[Figure]:
    ours, theirs, peer_name = folder / "ours", folder / "theirs", "Iceberg 1.10.2 on Spark 3.5"
    lake = Lake(str(ours), fsync="false")
    made = count()

    def small() -> float:
        """1,000 files by one commit, as the peer's have."""
        name = f"bench.small_{next(made)}"
        data = upkeep.rows(upkeep.ROWS)
        table = lake.create_table(name, data.schema, format="iceberg")
        store = open_store(table.uri)
        base = iceberg.load(store, 1)
        step = upkeep.ROWS // upkeep.FILES
        engine, layout = ArrowEngine(), base.layout()
        added = [engine.write(store, data.slice(start, step), layout)[0] for start in range(0, upkeep.ROWS, step)]
        commit(store, iceberg.head(store), iceberg, Append(request=Request(id="small"), added=tuple(added)))
        took = seconds(lambda: Lake(str(ours)).table(name).compact())
        assert len(table.inspect.files()) == 1
        return took

    def aged() -> float:
        name = f"bench.aged_{next(made)}"
        data = upkeep.rows(1000 * upkeep.PARTITIONS, upkeep.PARTITIONS)
        table = lake.create_table(name, data.schema, format="iceberg", partition_by=["dt"])
        for _ in range(upkeep.SNAPSHOTS + 1):
            table.overwrite_partitions(data)
        took = seconds(lambda: Lake(str(ours)).table(name).expire_snapshots(retain_last=1))
        assert len(table.snapshots()) == 1
        assert table.scan().count() == len(data)
        return took

    with iceberg_on_spark(theirs) as peer:
        peer.ask(verb="small_files", table="peer.bench.small", rows=upkeep.ROWS, files=upkeep.FILES)
        peer.ask(verb="history", table="peer.bench.aged", snapshots=upkeep.SNAPSHOTS, partitions=upkeep.PARTITIONS)

        def theirs_on(verb: str, table: str) -> Callable[[], float]:
            return upkeep.put_back(theirs / "bench" / table, lambda: peer.ask(verb=verb, table=f"peer.bench.{table}"))

        what = f"compact {upkeep.FILES:,} files of {upkeep.ROWS:,} rows"
        yield by_turns(what, peer_name, 1.0, small, theirs_on("compact", "small"), runs=3)
        what = f"expire {upkeep.SNAPSHOTS} snapshots and their {upkeep.SNAPSHOTS * upkeep.PARTITIONS:,} files"
        yield by_turns(what, peer_name, 1.0, aged, theirs_on("expire", "aged"), runs=3)
        yield from _changes(lake, folder, peer_name, peer.ask)


def _changes(lake: Lake, folder: Path, peer_name: str, ask: Callable[..., float]) -> Iterator[Figure]:
    """Both replace every partition by the same rows, read from the same Parquet files, and then merge the same changes."""
    spark = spark_overwrite.session()
    try:
        path = str(folder / "source")
        source = spark_overwrite.source_of(spark, path)
        table = lake.create_table("bench.events", source.schema, format="iceberg", partition_by=["dt"])
        ask(verb="events", table="peer.bench.events", source=path)
        what = f"{spark_overwrite.ROWS:,} rows over {spark_overwrite.PARTITIONS} partitions"
        yield by_turns(
            f"overwrite {what}",
            peer_name,
            1.0,
            lambda: seconds(lambda: table.overwrite_partitions(source)),
            lambda: ask(verb="overwrite", table="peer.bench.events", source=path),
            runs=3,
        )
        assert table.scan().count() == spark_overwrite.ROWS
        for mode in ("copy-on-write", "merge-on-read"):
            table.alter().set_properties({"write.merge.mode": mode}).commit()
            ask(verb="merge_by", table="peer.bench.events", mode=mode)
            turns = {"ours": count(), "theirs": count()}

            def ours(turns: dict[str, count[int]] = turns) -> float:
                changed = changes(spark, next(turns["ours"]))
                chain = table.merge_into(changed, on="t.id = s.id and t.dt = s.dt")
                chain = chain.when_matched().update({"name": "s.name", "amount": "s.amount"})
                return seconds(lambda: chain.when_not_matched().insert_all().merge())

            yield by_turns(
                f"MERGE {CHANGES:,} updates and {CHANGES:,} inserts into {what}, {mode}",
                peer_name,
                1.0,
                ours,
                lambda turns=turns: ask(  # type: ignore[misc]
                    verb="merge", table="peer.bench.events", rows=spark_overwrite.ROWS, turn=next(turns["theirs"])
                ),
                runs=2,
            )
    finally:
        spark.stop()


def changes(spark: SparkSession, turn: int) -> DataFrame:
    """Rows of which half have keys all over the table, and half are new each turn; the peer makes the same."""
    days = f"date_add(date'2024-01-01', cast(pmod(hash(id), {spark_overwrite.PARTITIONS}) as int)) as dt"
    step = spark_overwrite.ROWS // CHANGES
    old = spark.range(CHANGES).selectExpr(f"id * {step} as id")
    new = spark.range(CHANGES).selectExpr(f"id + {spark_overwrite.ROWS + (turn + 1) * 1_000_000} as id")
    return old.union(new).selectExpr(days, "id", f"'changed {turn}' as name", "1.5D as amount")
