"""Iceberg: pyiceberg and DuckDB read our tables row for row, and we read pyiceberg's."""

from __future__ import annotations

import datetime
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.table import Table
from tests.golden import wire

from .conftest import Sql

READERS = ("pyiceberg", "duckdb")
MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
ORDERS = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
TYPES = pa.schema(
    [
        ("b", pa.bool_()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64()),
        ("dec", pa.decimal128(9, 2)), ("wide", pa.decimal128(38, 10)), ("day", pa.date32()), ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")), ("s", pa.string()), ("bin", pa.binary()), ("li", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int32())), ("st", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
    ]
)  # fmt: skip
ROW = {
    "b": True, "i": -5, "l": 2**40, "f": 1.5, "d": float("nan"), "dec": Decimal("-14.20"), "wide": Decimal("1.5"),
    "day": datetime.date(1969, 5, 5), "ts": datetime.datetime(1969, 12, 31, 23, 59, 59, 1),
    "tz": datetime.datetime(2020, 1, 1, 5, tzinfo=datetime.UTC), "s": "\u00fcber/1 %~*", "bin": b"\xff\xff\x00",
    "li": [1, None], "m": [("k", 1)], "st": {"a": 1, "b": ["x"]},
}  # fmt: skip
NOTHING = dict.fromkeys(ROW)
TRANSFORMS = [
    f"bucket(7, {column})" for column in ("i", "l", "dec", "wide", "day", "ts", "tz", "s", "bin")
] + [
    "truncate(3, i)", "truncate(10, l)", "truncate(50, dec)", "truncate(3, s)", "truncate(2, bin)", "years(day)",
    "years(ts)", "months(day)", "months(ts)", "days(day)", "days(ts)", "days(tz)", "hours(ts)", "hours(tz)", "void(s)",
    "b", "i", "l", "d", "dec", "wide", "day", "ts", "tz", "s", "bin",
]  # fmt: skip


def counted(rows: list) -> Counter:
    return Counter(repr(row) for row in rows)


def ours(table: Table, **how: Any) -> Counter:
    return counted(wire.from_arrow(table.scan(**how).to_arrow()))


def place(table: Table) -> dict:
    versions = [int(p.name[1:].split(".")[0]) for p in Path(table.uri.removeprefix("file://")).glob("metadata/v*.json")]
    return {"location": table.uri, "version": max(versions)}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "warehouse")


@pytest.fixture
def changed(lake: Lake) -> Table:
    """A table on which every verb was tried."""
    t = lake.create_table("j.orders", ORDERS, format="iceberg", partition_by=["dt"], comment="orders")
    t.append(pa.table({"id": [1, 2, 3], "v": ["a", None, "c"], "dt": ["a b/c", "\u65e5\u672c", "a b/c"]}))
    t.create_tag("first")
    t.overwrite_partitions(pa.table({"id": [10], "v": ["z"], "dt": ["a b/c"]}))
    t.append(pa.table({"id": [20, 21, 22, 23], "v": ["z", "y" * 40, "q", "r"], "dt": [None, "x~*", "x~*", "gone"]}))
    t.delete("id = 22")
    t.update({"v": "concat(v, '!')"}, where="id = 21")
    t.drop_partitions([{"dt": "gone"}])
    t.alter().add_column("n", "int", comment="new").rename_column("v", "w").set_properties({"a": "b"}).commit()
    t.append(pa.table({"id": [30], "w": ["q"], "dt": ["x"], "n": pa.array([5], pa.int32())}))
    t.append(pa.table({"id": [31], "w": ["q"], "dt": ["x"], "n": pa.array([6], pa.int32())}))
    t.compact(full=True)
    return t


@pytest.mark.parametrize("reader", READERS)
def test_rows_after_every_verb(engines: dict, changed: Table, reader: str) -> None:
    expected = [[2, None, "\u65e5\u672c", None], [10, "z", "a b/c", None], [20, "z", None, None]]
    expected += [[21, "y" * 40 + "!", "x~*", None], [30, "q", "x", 5], [31, "q", "x", 6]]
    assert ours(changed) == counted(expected)
    assert counted(engines[reader].ask(verb="read", **place(changed))["rows"]) == counted(expected)
    changed.rollback_to(tag="first")
    changed.expire_snapshots(retain_last=1)
    assert changed.scan().count() == 3
    assert counted(engines[reader].ask(verb="read", **place(changed))["rows"]) == ours(changed)
    changed.truncate()
    assert engines[reader].ask(verb="read", **place(changed))["rows"] == []


@pytest.mark.parametrize("reader", READERS)
def test_rows_at_each_snapshot(engines: dict, changed: Table, reader: str) -> None:
    for snapshot in changed.snapshots():
        found = engines[reader].ask(verb="read", **place(changed), snapshot=snapshot.id)
        rows = [row[: len(changed.scan(snapshot_id=snapshot.id).schema)] for row in found["rows"]]
        assert counted(rows) == ours(changed, snapshot_id=snapshot.id), snapshot


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("where", ["id = 21", "dt = 'x'", "id > 20 and dt is not null", "dt is null", "v >= 'q'"])
def test_conditions_prune_alike(engines: dict, changed: Table, reader: str, where: str) -> None:
    where = where.replace("v ", "w ")
    found = engines[reader].ask(verb="read", **place(changed), filter=where)["rows"]
    assert counted(found) == ours(changed, where=where)


def test_pyiceberg_understands_history(engines: dict, changed: Table) -> None:
    answer = engines["pyiceberg"].ask(verb="describe", **place(changed))
    own = changed.inspect.snapshots()
    assert [s["id"] for s in answer["snapshots"]] == own["snapshot_id"].to_pylist()
    operations = ["append", "overwrite", "append", "overwrite", "overwrite", "delete", "append", "append", "replace"]
    assert [s["operation"] for s in answer["snapshots"]] == operations
    assert [s["sequence"] for s in answer["snapshots"]] == list(range(1, 10))
    last = answer["snapshots"][-1]["summary"]
    assert (last["total-records"], last["total-data-files"]) == ("6", str(answer["files"]))
    assert (last["added-records"], last["deleted-records"]) == ("2", "2")
    assert answer["tags"] == {"first": changed.snapshots()[0].id}
    assert [c["type"] for c in answer["columns"]] == ["long", "string", "string", "int"]
    assert answer["partitions"] == ["dt: identity"]
    assert answer["manifests"] == changed.inspect.manifests().num_rows


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("transform", [None, *TRANSFORMS])
def test_every_type_under_every_transform(engines: dict, lake: Lake, reader: str, transform: str | None) -> None:
    t = lake.create_table("j.t", TYPES, format="iceberg", partition_by=[transform] if transform else [])
    t.append(pa.Table.from_pylist([ROW, NOTHING], TYPES))
    t.append(pa.Table.from_pylist([ROW], TYPES))
    t.overwrite_partitions(pa.Table.from_pylist([ROW, ROW, ROW], TYPES))
    assert t.scan().count() == (4 if transform and not transform.startswith("void") else 3)
    found = engines[reader].ask(verb="read", **place(t))
    assert counted(found["rows"]) == ours(t)


@pytest.mark.parametrize("transform", [t for t in TRANSFORMS if "(" in t])
def test_partition_values_are_those_of_pyiceberg(engines: dict, lake: Lake, transform: str) -> None:
    t = lake.create_table("j.t", TYPES, format="iceberg", partition_by=[transform])
    t.append(pa.Table.from_pylist([ROW, NOTHING], TYPES))
    for value, expected in engines["pyiceberg"].ask(verb="transforms", **place(t)):
        assert [value] == expected


FIELDS = [
    {"name": "id", "type": "BIGINT"}, {"name": "s", "type": "STRING"}, {"name": "d", "type": "DOUBLE"},
    {"name": "day", "type": "DATE"}, {"name": "ts", "type": "TIMESTAMP(6)"}, {"name": "dec", "type": "DECIMAL(9, 2)"},
    {"name": "li", "type": {"type": "ARRAY", "element": "BIGINT"}},
    {"name": "st", "type": {"type": "ROW", "fields": [{"name": "a", "type": "INT"}]}},
]  # fmt: skip


def made(i: int) -> list:
    return [i, f"s{i % 3}", i / 2, 19000 + i, (10**15 + i * 86_400_000_000) * 1000, f"{i}.25", [i, None], [i]]


@pytest.mark.parametrize(
    ("name", "partition_by"),
    [
        ("plain", []), ("identity", [["s", "identity"]]), ("bucketed", [["id", "bucket[4]"]]), ("daily", [["ts", "day"]]),
        ("mixed", [["day", "month"], ["s", "truncate[1]"]]),
    ],
)  # fmt: skip
def test_we_read_what_pyiceberg_wrote(engines: dict, tmp_path: Path, name: str, partition_by: list) -> None:
    first = [made(i) for i in range(10)] + [[-1, *[None] * 7]]
    steps = [
        {"do": "append", "rows": first},
        {"do": "tag", "name": "first"},
        {"do": "append", "rows": [made(i) for i in range(10, 20)]},
        {"do": "delete", "where": "id = 3"},
        {"do": "overwrite", "where": "id >= 18", "rows": [made(30)]},
        {"do": "rename", "column": "d", "to": "half"},
    ]
    request = {"fields": FIELDS, "partition_by": partition_by, "steps": steps, "name": name}
    peer = engines["pyiceberg"].ask(verb="write", warehouse=str(tmp_path / "by.db"), **request)
    folder = Path(peer["location"])
    (tmp_path / "w" / "by.db").mkdir(parents=True)
    (tmp_path / "w" / "by.db" / name).symlink_to(folder)
    t = Lake(tmp_path / "w").table(f"by.{name}")
    expected = [made(i) for i in range(18) if i != 3] + [first[-1], made(30)]
    assert ours(t) == counted(peer["rows"]) == counted(expected)
    assert t.scan().schema.names == ["id", "s", "half", "day", "ts", "dec", "li", "st"]
    assert t.scan(where="id = 7").count() == 1
    assert ours(t, tag="first") == counted(first)
    assert t.scan().count() == len(expected)


def test_pyiceberg_reads_each_branch(engines: dict, lake: Lake) -> None:
    t = lake.create_table("j.t", ORDERS, format="iceberg", properties=MERGE_ON_READ)
    t.append(pa.table({"id": [1], "v": ["a"], "dt": ["x"]}))
    b = t.create_branch(
        "audit", retain=datetime.timedelta(days=1), keep_snapshots=2, keep_younger_than=datetime.timedelta(1)
    )
    b.append(pa.table({"id": [2], "v": ["b"], "dt": ["x"]}))
    t.append(pa.table({"id": [3], "v": ["c"], "dt": ["x"]}))
    b.delete("id = 1")
    merge = b.merge_into(pa.table({"id": [2, 5], "v": ["m", "n"], "dt": ["x", "y"]}), on="t.id = s.id")
    merge.when_matched().update_all().when_not_matched().insert_all().merge()
    b.update({"v": "'u'"}, where="id = 5")
    assert ours(b) == counted([[2, "m", "x"], [5, "u", "y"]])
    for name, table in (("main", t), ("audit", b)):
        found = engines["pyiceberg"].ask(verb="read", tag=name, **place(t))
        assert counted(found["rows"]) == ours(table)
    for reader in READERS:
        assert counted(engines[reader].ask(verb="read", **place(t))["rows"]) == ours(t)


@pytest.mark.parametrize("reader", READERS)
def test_specs_that_change_are_read_by_others(engines: dict, lake: Lake, reader: str) -> None:
    t = lake.create_table("j.t", TYPES, format="iceberg", partition_by=["s"])
    t.append(pa.Table.from_pylist([ROW, NOTHING], TYPES))
    t.alter().add_partition_field("days(ts)").drop_partition_field("s").commit()
    t.append(pa.Table.from_pylist([ROW, {**ROW, "l": 7}], TYPES))
    t.alter().add_partition_field("bucket(4, l)").commit()
    t.append(pa.Table.from_pylist([{**ROW, "l": 8}], TYPES))
    t.delete("l = 7")
    t.alter().drop_partition_field("ts_day").drop_partition_field("l_bucket").add_partition_field("day").commit()
    t.overwrite_partitions(pa.Table.from_pylist([{**ROW, "l": 9}], TYPES))
    assert t.scan().count() == 2
    t.append(pa.Table.from_pylist([{**ROW, "l": 10}], TYPES))
    assert t.rewrite_manifests() is not None
    found = engines[reader].ask(verb="read", **place(t))
    assert counted(found["rows"]) == ours(t)


@pytest.mark.parametrize("format", ["orc", "avro"])
def test_other_formats_are_read_by_icebergs_own_runtime_and_the_other_way(
    engines: dict, warehouse: Path, sql: Sql, format: str
) -> None:
    lake, name = Lake(warehouse / "iceberg"), f"lake.`d.db`.in_{format}"
    given = {"write.format.default": format, **MERGE_ON_READ}
    schema = TYPES.append(pa.field("by", pa.map_(pa.int32(), pa.struct([("a b", pa.string())]))))
    t = lake.create_table(f"d.in_{format}", schema, format="iceberg", properties=given, partition_by=["i"])
    late = {**ROW, "ts": datetime.datetime(2020, 1, 2, 3, 4, 5, 6)}
    late |= {"by": [(1, {"a b": "x"}), (2, None)]}
    t.append(pa.Table.from_pylist([late, NOTHING, {**late, "l": 1}, {**late, "l": 2}], schema))
    t.delete("l = 2")
    t.update({"l": "3"}, where="l = 1")
    t.alter().rename_column("s", "text").commit()
    assert counted(sql(f"select * from {name}")) == ours(t)
    sql(
        f"insert into {name} select * from {name} where i is not null",
        f"delete from {name} where i is null",
    )
    assert t.scan().count() == 4
    assert {path.rpartition(".")[2] for path in t.inspect.files()["path"].to_pylist()} == {format}
    sql(f"delete from {name} where l = 3 and f = 1.5")
    found = sql(f"select * from {name}")
    assert len(found) == 2
    assert counted(found) == ours(t)
    formats = sql(f"select distinct content, file_format from {name}.all_files order by 1")
    assert formats == [[0, format.upper()], [1, format.upper()]]
    assert t.scan(where="text like '\u00fc%'").count() == 2
    t.compact(full=True)
    assert counted(sql(f"select * from {name}")) == ours(t)
