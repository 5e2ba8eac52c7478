"""One table in two formats: pyiceberg, DuckDB and Iceberg's own runtime read a Paimon table's Iceberg metadata row for row after
each verb, and Paimon's engines go on with the table.

Known gaps of the judges: DuckDB 1.5.5 has no deletion vectors, and pyiceberg 0.12 wants these in Puffin files, which Paimon's index
files are not; Iceberg's own runtime reads them where the entry says that they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.table import Table
from tests.golden import wire

from .test_iceberg import counted, ours

ORDERS = pa.schema(
    [
        ("id", pa.int64()), ("v", pa.string()), ("dt", pa.string()), ("ts", pa.timestamp("us")), ("n", pa.decimal128(12, 2)),
        ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int64())), ("st", pa.struct([("a", pa.int32())])),
        ("small", pa.int16()), ("day", pa.date32()), ("b", pa.binary()), ("ms", pa.timestamp("ms")), ("z", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
IN_CATALOG = {"metadata.iceberg.storage": "hadoop-catalog"}
VECTORS = {
    "deletion-vectors.enabled": "true",
    "deletion-vectors.bitmap64": "true",
    "metadata.iceberg.format-version": "3",
}


def data(*ids: int, v: str = "x", dt: str | None = "a b/c") -> pa.Table:
    day = 86_400_000_000
    rows = [
        {"id": i, "v": f"{v}{i}", "dt": dt, "ts": i * day + 1, "n": i, "l": [i, None], "m": [("k", i)], "st": {"a": i},
         "small": i, "day": i, "b": b"\xff", "ms": i * 1000, "z": i * day}
        for i in ids
    ]  # fmt: skip
    columns = {name: pa.array([row[name] for row in rows], ORDERS.field(name).type) for name in ORDERS.names}
    return pa.table(columns, schema=ORDERS)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "warehouse")


def made(lake: Lake, name: str, key: list[str] | None = None, **properties: str) -> Table:
    bucket = {"bucket": "2" if key else "-1"}
    return lake.create_table(
        name, ORDERS, partition_by=["dt"], primary_key=key or [], properties={**bucket, **IN_CATALOG, **properties}
    )


def verbs(table: Table) -> Iterator[str]:
    table.append(data(1, 2, 3))
    yield "append"
    table.append(data(4, 5, dt="\u65e5\u672c"))
    table.append(data(6, dt=None))
    table.create_tag("kept")
    yield "appends, tag"
    table.delete("id = 2")
    yield "delete"
    table.overwrite_partitions(data(7, dt="\u65e5\u672c"))
    yield "overwrite"
    table.alter().add_column("more", "int").rename_column("v", "w").drop_column("m").commit()
    yield "schema"
    new = data(8).drop_columns(["m"]).rename_columns([{"v": "w"}.get(n, n) for n in ORDERS.names if n != "m"])
    table.append(new.append_column("more", pa.array([1], pa.int32())))
    yield "append of the new schema"
    table.compact(full=True)
    yield "compact"
    table.rollback_to(tag="kept")
    yield "rollback"
    table.expire_snapshots(retain_last=1)
    yield "expire"


def readers(engines: Any, table: Table) -> dict[str, Callable[[], Any]]:
    warehouse, _, rest = table.uri.removeprefix("file://").rpartition("/warehouse/")
    database, name = rest.split("/")
    folder = f"{warehouse}/warehouse/iceberg"
    place = {"location": f"{folder}/{database.removesuffix('.db')}/{name}", "version": table.current_snapshot().id}
    named = f"lake.{database.removesuffix('.db')}.{name}"
    return {
        "pyiceberg": lambda: engines["pyiceberg"].ask(verb="read", **place),
        "duckdb": lambda: engines["duckdb"].ask(verb="read", **place),
        "iceberg": lambda: engines["iceberg"].ask(verb="run", warehouse=folder, statements=[f"select * from {named}"]),
    }


def require_same(engines: Any, table: Table, by: tuple[str, ...], after: str) -> None:
    for name in by:
        found = readers(engines, table)[name]()
        assert counted(found["rows"]) == ours(table), (name, after)


def test_three_engines_read_an_append_table_after_each_verb(engines: Any, lake: Lake) -> None:
    table = made(lake, "j.orders")
    for verb in verbs(table):
        require_same(engines, table, ("pyiceberg", "duckdb", "iceberg"), verb)
    folder = f"{table.uri.removeprefix('file://').partition('/j.db/')[0]}/iceberg"
    tagged = engines["iceberg"].ask(
        verb="run", warehouse=folder, statements=["select id from lake.j.orders version as of 'kept'"]
    )
    assert counted(tagged["rows"]) == counted(wire.from_arrow(table.scan(["id"], tag="kept").to_arrow()))


def test_icebergs_runtime_reads_the_vectors_of_an_append_table(engines: Any, lake: Lake) -> None:
    table = made(lake, "j.marked", **VECTORS)
    for verb in verbs(table):
        require_same(engines, table, ("iceberg",), verb)


def test_icebergs_runtime_reads_a_keyed_table_with_vectors_after_each_upsert(engines: Any, lake: Lake) -> None:
    table = made(lake, "j.keyed", ["id", "dt"], **VECTORS)
    for step, act in enumerate((
        lambda: table.upsert(data(1, 2, 3, 4)),
        lambda: table.upsert(data(2, 5, v="new")),
        lambda: table.delete("id = 3"),
        lambda: table.upsert(data(2, 6, v="newer")),
        lambda: table.compact(full=True),
    )):  # fmt: skip
        act()
        require_same(engines, table, ("iceberg",), str(step))


def test_three_engines_read_a_keyed_table_after_its_full_compaction(engines: Any, lake: Lake) -> None:
    table = made(lake, "j.merged", ["id", "dt"])
    table.upsert(data(1, 2, 3))
    table.upsert(data(2, v="new"))
    table.compact(full=True)
    require_same(engines, table, ("pyiceberg", "duckdb", "iceberg"), "compact")
    table.delete("id = 1")
    table.compact(full=True)
    require_same(engines, table, ("pyiceberg", "duckdb", "iceberg"), "delete, compact")


# --- one format, then the other ---------------------------------------------------------------------------------------

PLAIN = {"metadata.iceberg.storage": "disabled"}
SHARED = pa.schema([field for field in ORDERS if field.name not in ("small", "ms")])  # Iceberg has no types for these.


@pytest.mark.parametrize("kind", ["append", "deleted", "keyed", "keyed, vectors"])
def test_engines_read_and_write_a_paimon_table_that_became_an_iceberg_table(
    engines: Any, lake: Lake, kind: str
) -> None:
    vectors = {"deletion-vectors.enabled": "true"} if kind in ("deleted", "keyed, vectors") else {}
    table = made(lake, "j.moved", ["id", "dt"] if kind.startswith("keyed") else None, **PLAIN, **vectors)
    write = table.upsert if kind.startswith("keyed") else table.append
    write(data(1, 2, 3))
    write(data(2, 4, dt="b"))
    table.delete("id = 3")
    table = lake.convert("j.moved", to="iceberg")
    folder = Path(table.uri.removeprefix("file://"))
    newest = max(int(path.name[1:].split(".")[0]) for path in (folder / "metadata").glob("v*.metadata.json"))
    for name in ("pyiceberg", "duckdb"):
        found = engines[name].ask(verb="read", location=str(folder), version=newest)
        assert counted(found["rows"]) == ours(table), name
    warehouse, named = str(folder.parent.parent), "lake.`j.db`.moved"
    statements = [f"delete from {named} where id = 2", f"select * from {named}"]
    found = engines["iceberg"].ask(verb="run", warehouse=warehouse, statements=statements)
    assert counted(found["rows"]) == ours(table)
    assert table.scan().count() == 2


@pytest.mark.parametrize("writer", ["iceberg", "lakeformat"])
def test_engines_read_and_write_an_iceberg_table_that_became_a_paimon_table(
    engines: Any, lake: Lake, writer: str
) -> None:
    """Its files stay where they are, those of Iceberg's runtime too."""
    rows = data(1, 2, 3).select(SHARED.names)
    table = lake.create_table("j.back", SHARED, format="iceberg", partition_by=["dt"])
    table.append(rows)
    warehouse = table.uri.removeprefix("file://").partition("/j.db/")[0]
    if writer == "iceberg":
        named = "lake.`j.db`.back"
        statements = [
            f"insert into {named} select * from {named}",
            f"delete from {named} where id = 2",
            f"select 1 from {named}",
        ]
        engines["iceberg"].ask(verb="run", warehouse=warehouse, statements=statements)
    table.append(data(7, dt=None).select(SHARED.names))
    before = ours(table)
    table = lake.convert("j.back", to="paimon")
    assert ours(table) == before
    assert any("/data/" in path for task in table.scan().plan() for path in task.paths)
    place = {"warehouse": warehouse, "table": "j.back"}
    for name in ("pypaimon", "rust"):  # Java 0.9 knows no files outside of a bucket's folder, as 1.1 and newer do.
        assert counted(engines[name].ask(verb="read", **place)["rows"]) == before, name
    table.delete("id = 1")
    for name in ("pypaimon", "rust"):
        assert counted(engines[name].ask(verb="read", **place)["rows"]) == ours(table), name
