"""Sort orders: Iceberg's own runtime on Spark and pyiceberg know ours, we know theirs, and each sorts as the other does.

Known gaps of the judges: Iceberg 1.10 on Spark writes by the table's order and does not say so (`sort_order_id` is 0, set from 1.11
on); pyiceberg 0.12 keeps a table's order and does not write by it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Lake
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.engines.kernels import sorting
from lakeformat.expression import order
from lakeformat.table import Table

from .conftest import Sql
from .test_iceberg import counted, ours, place

SCHEMA = pa.schema(
    [("id", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("ts", pa.timestamp("us")), ("a", pa.struct([("b", pa.int32())]))]
)  # fmt: skip
# Ours, and the words of `ALTER TABLE ... WRITE ORDERED BY`.
ORDERS = {
    "floats": (["x desc", "id"], "x DESC, id"),
    "nulls": (["s nulls last", "x desc nulls first"], "s NULLS LAST, x DESC NULLS FIRST"),
    "transforms": (
        ["days(ts) desc", "truncate(2, s)", "bucket(4, id)", "id desc"],
        "days(ts) DESC, truncate(s, 2), bucket(4, id), id DESC",
    ),
    "parts": (["a.b desc nulls first", "id"], "a.b DESC NULLS FIRST, id"),
    "years": (["years(ts)", "months(ts) desc", "hours(ts)", "id"], "years(ts), months(ts) DESC, hours(ts), id"),
}
ROWS = (
    "select id * 7919 % 1000 as id, if(id % 5 = 0, null, if(id % 11 = 0, double('nan'), (500 - id * 37 % 1000) / 7)) as x, "
    "if(id % 6 = 0, null, concat(chr(97 + id % 3), chr(8364 + id % 50), id % 9)) as s, "
    "if(id % 7 = 0, null, timestamp_ntz'1969-12-20 03:00:00' + make_dt_interval(id * 31 % 40, id % 24)) as ts, "
    "if(id % 4 = 0, null, named_struct('b', int(id * 13 % 17))) as a from range(400)"
)
FIELDS = [{"name": "id", "type": "BIGINT"}, {"name": "v", "type": "STRING"}]


def orders(table: Table) -> list:
    """The table's order, as its document spells it."""
    path = Path(table.uri.removeprefix("file://"), f"metadata/v{place(table)['version']}.metadata.json")
    document = json.loads(path.read_text())
    return [each for each in document["sort-orders"] if each["order-id"] == document["default-sort-order-id"]]


def as_we_sort(table: Table, asked: list[str]) -> list[int]:
    """The sort order ids of the live files; the rows of each are as we sort them."""
    found = table.inspect.files()
    by = order.parse(asked, fields_from_arrow(SCHEMA), "sort_by")
    for path in found["path"].to_pylist():
        rows = pq.ParquetFile(path.removeprefix("file://")).read()
        batches = [rows.cast(SCHEMA).combine_chunks().to_batches()[0]]
        again = pa.Table.from_batches(sorting.in_order(batches, by, table.schema.fields, 1 << 30))
        keys = [
            sorting.keys(each.combine_chunks().to_batches()[0], by, table.schema.fields)
            for each in (rows.cast(SCHEMA), again)
        ]
        for before, after in zip(*keys, strict=True):
            assert counted(before.to_pylist()) == counted(after.to_pylist())
            assert [repr(v) for v in before.to_pylist()] == [repr(v) for v in after.to_pylist()], path
    return sorted(found["sort_order_id"].to_pylist())


@pytest.mark.parametrize("name", ORDERS)
def test_spark_and_we_sort_alike(engines: dict, sql: Sql, lake: Lake, name: str) -> None:
    asked, ddl = ORDERS[name]
    theirs = f"lake.`d.db`.spark_{name}"
    sql(
        f"create table {theirs} (id bigint, x double, s string, ts timestamp_ntz, a struct<b: int>) using iceberg",
        f"alter table {theirs} write ordered by {ddl}",
        f"insert into {theirs} {ROWS}",
    )
    t, own = lake.table(f"d.spark_{name}"), lake.create_table(f"d.ours_{name}", SCHEMA, format="iceberg", sort_by=asked)
    assert orders(t) == orders(own)
    assert [str(field) for field in t.schema.sort_order.fields] == [
        str(field) for field in own.schema.sort_order.fields
    ]
    assert as_we_sort(t, asked) == [0] * t.inspect.files().num_rows
    own.append(t.scan().to_arrow())
    assert as_we_sort(own, asked) == [1]
    # Spark reads our file one row after the other: as it would have sorted it.
    of_ours = f"lake.`d.db`.ours_{name}"
    words = ", ".join(f"{field}" for field in own.schema.sort_order.fields).replace("truncate(2, s)", "substr(s, 1, 2)")
    words = words.replace("bucket(4, id)", "lake.system.bucket(4, id)").replace("day(ts)", "to_date(ts)")
    words = words.replace("month(ts)", "trunc(ts, 'MM')").replace("hour(ts)", "date_trunc('HOUR', ts)")
    ranked = f"select _pos as at, rank() over (order by {words}) as r from {of_ours}"
    assert sql(f"select count(*) from ({ranked}) a join ({ranked}) b on a.at + 1 = b.at where a.r > b.r") == [[0]]
    assert sql(f"select distinct sort_order_id from {of_ours}.files") == [[1]]
    # And each goes on with the other's.
    sql(f"insert into {of_ours} {ROWS}", "select 1")
    own.append(t.scan().to_arrow())
    assert set(as_we_sort(own, asked)) == {0, 1}
    own.delete("id = 5")
    assert set(as_we_sort(own, asked)) == {1}  # All of its files had such a row.
    sql(
        f"call lake.system.rewrite_data_files(table => '`d.db`.ours_{name}', strategy => 'sort', options => map('rewrite-all', 'true'))"
    )
    assert set(as_we_sort(own, asked)) == {0}
    own.compact(sort_by=True)
    assert set(as_we_sort(own, asked)) == {1}
    assert counted(sql(f"select * from {of_ours}")) == ours(own)
    assert own.scan().count() > 1100


@pytest.mark.parametrize("columns", [("id", "x"), ("s", "id"), ("x", "s", "id"), ("b", "id")])
def test_along_the_z_order_as_spark(sql: Sql, lake: Lake, columns: tuple[str, ...]) -> None:
    name, asked = f"z_{'_'.join(columns)}", f"zorder({', '.join(columns)})"
    table = f"lake.`d.db`.{name}"
    rows = f"select id, x, s, id % 3 = 0 as b from ({ROWS}) where s is null or ascii(s) < 128"
    sql(
        f"create table {table} (id bigint, x double, s string, b boolean) using iceberg",
        f"insert into {table} {rows}",
        f"call lake.system.rewrite_data_files(table => '`d.db`.{name}', strategy => 'sort', "
        f"sort_order => '{asked}', options => map('rewrite-all', 'true'))",
    )
    t = lake.table(f"d.{name}")
    by = order.parse_any([asked], t.schema.fields, "sort_by")

    def keys() -> list:
        paths = [path for task in t.scan().plan() for path in task.paths]
        rows = pa.concat_tables([pq.ParquetFile(path.removeprefix("file://")).read() for path in paths])
        return sorting.keys(rows.combine_chunks().to_batches()[0], by, t.schema.fields)[0].to_pylist()

    theirs = keys()
    assert len(set(theirs)) > 100
    assert theirs == sorted(theirs)
    t.compact(sort_by=[asked])
    assert keys() == theirs
    assert counted(sql(f"select * from {table}")) == ours(t)


def test_an_order_that_spark_changes_is_ours(sql: Sql, lake: Lake) -> None:
    t = lake.create_table("d.changed", SCHEMA, format="iceberg", sort_by=["id"])
    name = "lake.`d.db`.changed"
    sql(f"alter table {name} write ordered by s desc", f"alter table {name} rename column s to text", "select 1")
    assert [str(field) for field in t.schema.sort_order.fields] == ["text DESC NULLS LAST"]
    assert t.schema.sort_order.id == 2
    t.alter().set_sort_order(["id"]).commit()
    sql(f"alter table {name} write unordered", "select 1")
    assert (t.schema.sort_order.id, t.schema.sort_order.fields) == (0, ())
    assert t.alter().set_sort_order(["text desc"]).commit().sort_order.id == 2
    sql(f"alter table {name} write distributed by partition locally ordered by id", "select 1")
    assert (t.schema.sort_order.id, t.properties["write.distribution-mode"]) == (1, "hash")
    t.append(pa.table({"id": [2, 1]}))
    assert sql(f"select id from {name}") == [[1], [2]]


def test_pyiceberg_knows_our_orders_and_we_its(engines: dict, tmp_path: Path) -> None:
    peer, lake = engines["pyiceberg"], Lake(tmp_path, catalog="sql")
    t = lake.create_table("d.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), format="iceberg",
                          sort_by=["bucket(4, id) desc nulls first", "v"])  # fmt: skip
    t.append(pa.table({"id": [3, 1, 2], "v": ["c", "a", "b"]}))
    theirs = {"warehouse": str(tmp_path), "name": "d.t", "fields": FIELDS}
    answer = peer.ask(verb="describe", **{k: theirs[k] for k in ("warehouse", "name")})
    assert answer["order"] == ["bucket[4](id) DESC NULLS FIRST", "identity(v) ASC NULLS FIRST"]
    assert (answer["order_id"], answer["file_orders"]) == (1, [1])
    peer.ask(verb="continue", rows=[[9, "z"], [8, "y"]], **theirs)
    peer.ask(verb="continue", rows=[[7, "x"]], sort_by=[["v", "truncate[1]"]], **theirs)
    t = lake.table("d.t")
    assert [str(field) for field in t.schema.sort_order.fields] == ["truncate(1, v) DESC NULLS FIRST"]
    t.append(pa.table({"id": [4, 5], "v": ["da", "e"]}))
    t.compact(sort_by=["v desc"])
    t.append(pa.table({"id": [6], "v": ["f"]}))
    answer = peer.ask(verb="describe", **{k: theirs[k] for k in ("warehouse", "name")})
    assert (answer["order_id"], answer["file_orders"]) == (2, [0, 2])
    assert counted(peer.ask(verb="read", **{k: theirs[k] for k in ("warehouse", "name")})["rows"]) == ours(t)
