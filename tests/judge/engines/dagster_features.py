"""What an integration of Dagster does with the same assets: `python dagster_features.py PEER` prints one line of JSON, feature -> what happened.

Every asset returns Arrow, with one row for each number in `DATA` under the partition's key.
"""

import datetime
import json
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-03-01")
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-03-00:00")
DATE = pa.date32()
RANGE = ("2026-01-01", "2026-01-03")


class Lakeformat:
    upsert = {"write_mode": "upsert", "primary_key": ["n"]}
    append = {"write_mode": "append"}
    evolve = {"schema_evolution": "add"}

    def __init__(self, folder: Path) -> None:
        from lakeformat.dagster import LakeIOManager, LakeResource

        self.lake = LakeResource(warehouse=str(folder), database="shop")
        self.resources = {"lake": self.lake, "io_manager": LakeIOManager(lake=self.lake)}

    def read(self, name: str) -> pa.Table:
        return self.lake.lake.table(f"shop.{name}").scan().to_arrow()

    def commits(self, name: str) -> int:
        return len(self.lake.lake.table(f"shop.{name}").snapshots())


class DagsterIceberg:
    upsert = {"write_mode": "upsert", "upsert_options": {"join_cols": ["n"]}}
    append = {"write_mode": "append"}
    evolve = {"schema_update_mode": "update"}

    def __init__(self, folder: Path) -> None:
        from dagster_iceberg.config import IcebergCatalogConfig
        from dagster_iceberg.io_manager.arrow import PyArrowIcebergIOManager
        from pyiceberg.catalog import load_catalog

        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        self.catalog = load_catalog("peer", **properties)
        self.catalog.create_namespace("shop")
        config = IcebergCatalogConfig(properties=properties)
        self.resources = {"io_manager": PyArrowIcebergIOManager(name="peer", config=config, namespace="shop")}

    def read(self, name: str) -> pa.Table:
        return self.catalog.load_table(f"shop.{name}").scan().to_arrow()

    def commits(self, name: str) -> int:
        return len(self.catalog.load_table(f"shop.{name}").snapshots())


class DagsterDeltalake:
    upsert = None  # Modes are error, append, overwrite and ignore.
    append = {"mode": "append"}
    evolve = {"overwrite_schema": True}

    def __init__(self, folder: Path) -> None:
        from dagster_deltalake import DeltaLakePyarrowIOManager, LocalConfig

        self.folder = folder
        manager = DeltaLakePyarrowIOManager(root_uri=str(folder), storage_options=LocalConfig(), schema="shop")
        self.resources = {"io_manager": manager}

    def _table(self, name: str) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(f"{self.folder}/shop/{name}")

    def read(self, name: str) -> pa.Table:
        return pa.table(self._table(name).to_pyarrow_table())

    def commits(self, name: str) -> int:
        return len(self._table(name).history())


PEERS = {"lakeformat": Lakeformat, "dagster-iceberg": DagsterIceberg, "dagster-deltalake": DagsterDeltalake}


class World:
    """A warehouse with one asset `t`, whose rows for each partition stand in `data`."""

    def __init__(
        self,
        peer: Any,
        partitions: dg.PartitionsDefinition | None = DAYS,
        column: Callable[[str], Any] = datetime.date.fromisoformat,
        type: pa.DataType = DATE,
        **metadata: Any,
    ) -> None:
        self.peer, self.data, self.extra = peer, {}, {}
        expression = {} if partitions is None else {"partition_expr": "p"}

        @dg.asset(
            name="t",
            partitions_def=partitions,
            metadata={**expression, **metadata},
            backfill_policy=dg.BackfillPolicy.single_run(),
        )
        def t(context: dg.AssetExecutionContext) -> pa.Table:
            keys = [""] if partitions is None else context.partition_keys
            rows = [(column(key), n) for key in keys for n in self.data.get(key, [])]
            types = {"p": type, "n": pa.int64()}
            columns = {name: pa.array([row[i] for row in rows], types[name]) for i, name in enumerate(types)}
            return pa.table({**columns, **{name: [value] * len(rows) for name, value in self.extra.items()}})

        self.asset, self.column, self.instance = t, column, dg.DagsterInstance.ephemeral()

    def run(self, key: str | None = None, *, span: tuple[str, str] | None = None, **data: list[int]) -> Any:
        self.data |= {name.replace("_", "-").lstrip("d"): numbers for name, numbers in data.items()}
        tags = {f"dagster/asset_partition_range_{e}": k for e, k in zip(("start", "end"), span or (), strict=False)}
        return dg.materialize(
            [self.asset], resources=self.peer.resources, instance=self.instance, partition_key=key, tags=tags or None
        )

    def verdict(self, **rows: list[int]) -> str:
        wanted = Counter((self.column(k.replace("_", "-").lstrip("d")), n) for k, ns in rows.items() for n in ns)
        table = self.peer.read("t")
        got = Counter(zip(table["p"].to_pylist(), table["n"].to_pylist(), strict=True))
        if got == wanted:
            return "yes"
        lost, more = wanted - got, got - wanted
        return "no: " + " and ".join(["rows are lost"] * bool(lost) + ["rows stay that should be gone"] * bool(more))


def rerun(peer: Any) -> str:
    world = World(peer)
    world.run("2026-01-01", d2026_01_01=[1])
    world.run("2026-01-02", d2026_01_02=[2])
    world.run("2026-01-01", d2026_01_01=[3])
    return world.verdict(d2026_01_01=[3], d2026_01_02=[2])


def emptied(peer: Any) -> str:
    world = World(peer)
    world.run("2026-01-01", d2026_01_01=[1])
    world.run("2026-01-02", d2026_01_02=[2])
    world.run("2026-01-01", d2026_01_01=[])
    return world.verdict(d2026_01_02=[2])


def outside(peer: Any) -> str:
    world = World(peer, column=lambda key: datetime.date(2026, 1, 9))
    try:
        world.run("2026-01-01", d2026_01_01=[1])
    except Exception:
        return "yes"
    return "no: it is written"


def backfill(peer: Any) -> str:
    world = World(peer)
    world.run("2026-01-01", d2026_01_01=[1])
    world.run(span=RANGE, d2026_01_01=[4], d2026_01_02=[5], d2026_01_03=[6])
    return world.verdict(d2026_01_01=[4], d2026_01_02=[5], d2026_01_03=[6])


def commits_of_a_rerun(peer: Any) -> str:
    world = World(peer)
    world.run("2026-01-01", d2026_01_01=[1])
    before = peer.commits("t")
    world.run("2026-01-01", d2026_01_01=[2])
    return str(peer.commits("t") - before)


def text_days(peer: Any) -> str:
    world = World(peer, column=str, type=pa.string())
    world.run("2026-01-01", d2026_01_01=[1])
    world.run("2026-01-02", d2026_01_02=[2])
    world.run("2026-01-01", d2026_01_01=[3])
    return world.verdict(d2026_01_01=[3], d2026_01_02=[2])


def hours(peer: Any) -> str:
    world = World(peer, HOURS, lambda k: datetime.datetime.strptime(k, "%Y-%m-%d-%H:%M"), pa.timestamp("us"))
    first, second = "2026-01-01-00:00", "2026-01-01-01:00"
    world.run(first, **{first: [1]})
    world.run(second, **{second: [2]})
    world.run(first, **{first: [3]})
    return world.verdict(**{first: [3], second: [2]})


def static(peer: Any) -> str:
    world = World(peer, dg.StaticPartitionsDefinition(["a", "b"]), str, pa.string())
    world.run("a", a=[1])
    world.run("b", b=[2])
    world.run("a", a=[3])
    return world.verdict(a=[3], b=[2])


def numbers(peer: Any) -> str:
    world = World(peer, dg.StaticPartitionsDefinition(["1", "2"]), int, pa.int64())
    world.run("1", **{"1": [1]})
    world.run("2", **{"2": [2]})
    world.run("1", **{"1": [3]})
    return world.verdict(**{"1": [3], "2": [2]})


def dynamic(peer: Any) -> str:
    world = World(peer, dg.DynamicPartitionsDefinition(name="shops"), str, pa.string())
    world.instance.add_dynamic_partitions("shops", ["O'Hare/1", "b c"])
    for key, number in (("O'Hare/1", 1), ("b c", 2), ("O'Hare/1", 3)):
        world.run(key, **{key: [number]})
    return world.verdict(**{"O'Hare/1": [3], "b c": [2]})


def two_dimensions(peer: Any) -> str:
    partitions = dg.MultiPartitionsDefinition({"day": DAYS, "shop": dg.StaticPartitionsDefinition(["a", "b"])})
    kept = [0]

    @dg.asset(name="t", partitions_def=partitions, metadata={"partition_expr": {"day": "d", "shop": "s"}})
    def t(context: dg.AssetExecutionContext) -> pa.Table:
        key = context.partition_key.keys_by_dimension
        return pa.table({"d": [datetime.date.fromisoformat(key["day"])], "s": [key["shop"]], "n": kept})

    for number, shop in ((1, "a"), (2, "b"), (3, "a")):
        kept[0] = number
        key = dg.MultiPartitionKey({"day": "2026-01-01", "shop": shop})
        dg.materialize([t], resources=peer.resources, partition_key=key)
    got = peer.read("t").sort_by("s").to_pydict()
    return "yes" if (got["s"], got["n"]) == (["a", "b"], [3, 2]) else "no: other rows"


def downstream(peer: Any) -> str:
    world, seen = World(peer), []
    for day in (4, 5, 6):
        world.run(f"2026-01-0{day}", **{f"d2026_01_0{day}": [day]})

    @dg.asset(partitions_def=dg.WeeklyPartitionsDefinition("2026-01-04"), ins={"t": dg.AssetIn()})
    def week(t: pa.Table) -> None:
        seen.append(sorted(t["n"].to_pylist()))

    how = {"resources": peer.resources, "instance": world.instance, "partition_key": "2026-01-04"}
    dg.materialize([world.asset, week], selection=[week], **how)
    return "yes" if seen == [[4, 5, 6]] else f"no: it gets {len(seen[0])} of 3 days"


def one_day_downstream(peer: Any) -> str:
    world, seen = World(peer), []
    for day in (1, 2):
        world.run(f"2026-01-0{day}", **{f"d2026_01_0{day}": [day]})

    @dg.asset(partitions_def=DAYS, ins={"t": dg.AssetIn(metadata={"columns": ["n"]})})
    def copy(t: pa.Table) -> None:
        seen.append(t.to_pydict())

    how = {"resources": peer.resources, "instance": world.instance, "partition_key": "2026-01-02"}
    dg.materialize([world.asset, copy], selection=[copy], **how)
    return "yes" if seen == [{"n": [2]}] else f"no: {seen}"


def upsert(peer: Any) -> str:
    if peer.upsert is None:
        return "no such mode"
    world = World(peer, None, lambda key: datetime.date(2026, 1, 1), **peer.upsert)
    for numbers_now in ([1, 2], [2, 3]):
        world.data = {"": numbers_now}
        world.run()
    return "yes" if sorted(peer.read("t")["n"].to_pylist()) == [1, 2, 3] else "no: other rows"


def append(peer: Any) -> str:
    world = World(peer, None, lambda key: datetime.date(2026, 1, 1), **peer.append)
    for number in (1, 2):
        world.data = {"": [number]}
        world.run()
    return "yes" if sorted(peer.read("t")["n"].to_pylist()) == [1, 2] else "no: other rows"


def new_column(peer: Any) -> str:
    world = World(peer, **peer.evolve)
    world.run("2026-01-01", d2026_01_01=[1])
    world.extra = {"more": 7}
    world.run("2026-01-02", d2026_01_02=[2])
    rows = {row["n"]: row.get("more", "-") for row in peer.read("t").to_pylist()}
    return (
        "yes" if rows == {1: None, 2: 7} else f"no: {'rows are lost' if len(rows) < 2 else 'the column is not there'}"
    )


def rows_in_the_catalog(peer: Any) -> str:
    world = World(peer, None, lambda key: datetime.date(2026, 1, 1))
    world.data = {"": [1, 2]}
    event = world.run().asset_materializations_for_node("t")[0]
    count = event.metadata.get("dagster/row_count")
    return "yes" if count is not None and count.value == 2 else "no"


FEATURES = {
    "a rerun replaces exactly its day": rerun,
    "a rerun without rows empties its day": emptied,
    "a row of another day is refused": outside,
    "a backfill of three days is one run": backfill,
    "snapshots of the rerun of one day": commits_of_a_rerun,
    "days in a text column": text_days,
    "hours in a timestamp column": hours,
    "static partitions in a text column": static,
    "static partitions in a number column": numbers,
    "dynamic partitions named as people name things": dynamic,
    "two dimensions": two_dimensions,
    "an input is the run's day, and the columns asked for": one_day_downstream,
    "a weekly asset reads its daily input": downstream,
    "upsert by key": upsert,
    "append": append,
    "a declared new column is added": new_column,
    "row counts in Dagster's catalog": rows_in_the_catalog,
}


def main(peer: str) -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found = {}
    for name, feature in FEATURES.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                found[name] = feature(PEERS[peer](Path(folder)))
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error)[-600:]}", file=sys.stderr)
                found[name] = "no: the run fails"
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
