"""Sort orders of Iceberg tables: every file that a verb writes is sorted by the table's order, and says so."""

import datetime
import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import InvalidInput, Lake, NotFound, UnsupportedFeature
from lakeformat.engines import worker
from tests import doors

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us")),
        ("x", pa.float64()),
        ("a", pa.struct([("b", pa.string())])),
        ("dt", pa.string()),
    ]
)
# (terms, what they make of a row, in the same words: key, descending, nulls last)
ORDERS = {
    "columns": (["id desc", "x"], [(lambda r: r["id"], True, True), (lambda r: r["x"], False, False)]),
    "nulls": (
        ["x desc nulls first", "id nulls last"],
        [(lambda r: r["x"], True, False), (lambda r: r["id"], False, True)],
    ),
    "transforms": (
        ["days(ts) desc", "truncate(1, a.b)", "id"],
        [
            (lambda r: r["ts"] and r["ts"].date(), True, True),
            (lambda r: r["a"] and r["a"]["b"] and r["a"]["b"][:1], False, False),
            (lambda r: r["id"], False, False),
        ],
    ),
}


@pytest.fixture(params=["arrow", pytest.param("spark", marks=pytest.mark.spark)])
def session(request):
    return request.getfixturevalue("spark") if request.param == "spark" else None


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


def rows(count, seed=0):
    chance = random.Random(seed)
    return [
        {
            "id": chance.choice([None, chance.randrange(count)]),
            "ts": chance.choice([None, datetime.datetime(2024, 1, chance.randrange(1, 9), chance.randrange(24))]),
            "x": chance.choice([None, math.nan, -0.0, 0.0, -1.0, 2.5, math.inf]),
            "a": chance.choice([None, {"b": None}, {"b": chance.choice(["", "ab", "ba", "é"])}]),
            "dt": chance.choice("pq"),
        }
        for _ in range(count)
    ]


def given(session, data):
    found = pa.Table.from_pylist(data, SCHEMA)
    return found if session is None else session.createDataFrame(found).repartition(3)


def java(value):
    if isinstance(value, float):
        return (True,) if math.isnan(value) else (False, value, math.copysign(1, value))
    return value.encode() if isinstance(value, str) else value


def key(row, terms):
    """What sorts as the terms ask, for rows of one file."""
    found = []
    for make, descending, nulls_last in terms:
        value = make(row)
        found.append(((value is None) == nulls_last, Turned(java(value)) if descending else java(value)))
    return [(rank, () if make(row) is None else each) for (rank, each), (make, *_) in zip(found, terms, strict=True)]


class Turned:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        return other.value < self.value

    def __eq__(self, other):
        return other.value == self.value


def files(table):
    """(sort order id, rows) of each data file, as pyarrow reads it."""
    found = table.inspect.files().to_pylist()
    return [
        (row["sort_order_id"], pq.ParquetFile(row["path"].removeprefix("file://")).read().to_pylist()) for row in found
    ]


def assert_sorted(table, terms, order_id=1, at_least=1):
    found = files(table)
    assert len(found) >= at_least
    for told, held in found:
        assert told == order_id
        keys = [key(row, terms) for row in held]
        assert all(not after < before for before, after in itertools.pairwise(keys))
    return found


def seen(found):
    return sorted(map(repr, found))


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_written_is_sorted(lake, session, order):
    texts, terms = ORDERS[order]
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], sort_by=texts)
    data = rows(900)
    t.append(given(session, data))
    assert_sorted(t, terms, at_least=2)
    t.overwrite_partitions(given(session, [row for row in data if row["dt"] == "p"]))
    found = assert_sorted(t, terms, at_least=2)
    assert seen(row for _, held in found for row in held) == seen(data)
    assert seen(t.scan().to_arrow().to_pylist()) == seen(data)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_that_are_written_again_are_sorted(lake, session, mode):
    texts, terms = ORDERS["columns"]
    modes = {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")}
    t = lake.create_table("d.t", SCHEMA, format="iceberg", sort_by=texts, properties=modes)
    t.append(given(session, rows(300)))
    t.delete("id % 7 = 0", spark=session)
    assert_sorted(t, terms)
    t.update({"id": "400 - id"}, where="id % 3 = 0", spark=session)
    assert_sorted(t, terms)
    t.merge_into(given(session, [{**row, "id": n} for n, row in enumerate(rows(500, 1))]), on="t.id = s.id").when_matched().update_all().when_not_matched().insert_all().merge()  # fmt: skip
    assert_sorted(t, terms)
    before = t.scan().to_arrow().to_pylist()
    t.compact(full=True, spark=session)
    found = assert_sorted(t, terms)
    assert seen(row for _, held in found for row in held) == seen(before)
    deletes = list(Path(t.uri.removeprefix("file://")).rglob("*-deletes.*"))
    assert bool(deletes) == (mode == "merge-on-read")


def test_files_of_one_write_do_not_overlap(lake):
    properties = {"write.target-file-size-bytes": "8000"}
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], sort_by=["id"], properties=properties)
    data = [{**row, "id": n} for n, row in enumerate(rows(12000))]
    random.Random(2).shuffle(data)
    layout = doors.view(t).layout(from_files=True)
    table = pa.Table.from_pylist(data, SCHEMA)
    written = worker.write(doors.store(t), table.to_batches(500), layout, buffer_bytes=table.nbytes // 8)
    assert len(written) > 4
    assert {file.sort_order_id for file in written} == {1}
    for dt in "pq":
        found = [pq.ParquetFile(t.uri.removeprefix("file://") + "/" + f.path).read()["id"].to_pylist()
                 for f in written if f.partition == (dt,)]  # fmt: skip
        assert [i for ids in found for i in ids] == sorted(row["id"] for row in data if row["dt"] == dt)


@pytest.mark.parametrize("fans_out", [False, True])
def test_many_partitions_become_few_files(lake, fans_out):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["bucket(40, id)"], sort_by=["x", "id desc"])
    layout = doors.view(t).layout(from_files=True)
    batches = pa.Table.from_pylist([{**row, "id": n} for n, row in enumerate(rows(400))], SCHEMA).to_batches(50)
    written = worker.write(doors.store(t), batches, replace(layout, open_files=3, fans_out=fans_out), buffer_bytes=4000)
    assert len({file.partition for file in written}) == 40
    assert len(written) <= 44
    for file in written:
        found = pq.ParquetFile(t.uri.removeprefix("file://") + "/" + file.path).read(["x", "id"]).to_pylist()
        by_x = [
            (repr(x), [row["id"] for row in group]) for x, group in itertools.groupby(found, lambda row: repr(row["x"]))
        ]
        assert len(dict(by_x)) == len(by_x), "rows of an x meet"
        assert all(ids == sorted(ids, reverse=True) for _, ids in by_x)


def test_a_table_without_rows_and_one_parted_anew(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", sort_by=["id desc"])
    assert t.append(pa.Table.from_pylist([], SCHEMA)) is None
    assert t.compact(sort_by=True) is None
    assert t.delete("id = 1") is None
    data = [{**row, "id": n} for n, row in enumerate(rows(100))]
    t.append(pa.Table.from_pylist(data[:50], SCHEMA))
    t.alter().add_partition_field("dt").set_sort_order(["id"]).commit()
    t.append(pa.Table.from_pylist(data[50:], SCHEMA))
    t.compact(sort_by=True)
    found = assert_sorted(t, [(lambda r: r["id"], False, False)], order_id=2, at_least=2)
    assert all(len({row["dt"] for row in held}) == 1 for _, held in found)
    assert seen(row for _, held in found for row in held) == seen(data)
    assert t.scan(snapshot_id=t.snapshots()[0].id).count() == 50


def test_an_order_that_others_change_meanwhile_is_not_claimed(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", sort_by=["id"])

    def batches():
        yield from pa.Table.from_pylist(rows(60), SCHEMA).to_batches()
        lake.table("d.t").alter().set_sort_order(["x desc"]).commit()

    t.append(batches())
    assert_sorted(t, [(lambda r: r["id"], False, False)], order_id=1)
    branch = t.create_branch("audit")
    branch.append(pa.Table.from_pylist(rows(60), SCHEMA))
    t.fast_forward("audit")
    assert [told for told, held in files(t)] == [2, 1]
    t.delete("id = 0")
    t.rewrite_manifests()
    t.compact(full=True)
    assert_sorted(t, [(lambda r: r["x"], True, True)], order_id=2)


@pytest.mark.spark
def test_spark_spreads_rows_by_ranges_of_the_order(lake, spark):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", sort_by=["truncate(10, id) desc", "x"])
    data = [{**row, "id": n} for n, row in enumerate(rows(1000))]
    asked = {"spark.sql.adaptive.coalescePartitions.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    before = {name: spark.conf.get(name) for name in asked}
    for name, value in asked.items():
        spark.conf.set(name, value)
    try:
        t.append(given(spark, data))
        ranges = [sorted({row["id"] // 10 for row in held}) for _, held in files(t)]
        t.alter().set_properties({"write.distribution-mode": "none"}).commit()
        t.overwrite(given(spark, data))
        mixed = files(t)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert len(ranges) == 2  # As many as tasks.
    ranges.sort()
    assert ranges[0][-1] <= ranges[1][0]  # Where the first key is equal, the second tells.
    assert len(mixed) == 3
    for _, held in mixed:
        assert [r["id"] // 10 for r in held] == sorted((r["id"] // 10 for r in held), reverse=True)
        assert held[0]["id"] > 900 > 100 > held[-1]["id"]


def test_orders_keep_their_ids(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg")
    data = pa.Table.from_pylist(rows(50), SCHEMA)
    t.append(data)
    assert t.schema.sort_order.id == 0
    for asked, expected in ((["id"], 1), (["x desc"], 2), (["id asc nulls first"], 1), ([], 0), (["days(ts)"], 3)):
        assert t.alter().set_sort_order(asked).commit().sort_order.id == expected
        t.append(data)
    assert sorted(t.inspect.files()["sort_order_id"].to_pylist()) == [0, 0, 1, 1, 2, 3]
    t.alter().rename_column("ts", "at").commit()
    assert t.inspect.sort_orders().to_pylist() == [
        {"order_id": 0, "sort_by": [], "is_current": False},
        {"order_id": 1, "sort_by": ["id ASC NULLS FIRST"], "is_current": False},
        {"order_id": 2, "sort_by": ["x DESC NULLS LAST"], "is_current": False},
        {"order_id": 3, "sort_by": ["day(at) ASC NULLS FIRST"], "is_current": True},
    ]
    with pytest.raises(InvalidInput, match="part of the sort order"):
        t.alter().drop_column("at").commit()
    t.alter().drop_column("x").commit()  # Which only an order of old speaks of.
    assert t.inspect.sort_orders()["sort_by"].to_pylist()[2] == ["x DESC NULLS LAST"]
    after = t.alter().rename_column("a", "row").set_sort_order(["row.b desc"]).drop_column("at").commit()
    assert [str(field) for field in after.sort_order.fields] == ["row.b DESC NULLS LAST"]
    after = t.alter().rename_column("row.b", "c").commit()
    assert [str(field) for field in after.sort_order.fields] == ["row.c DESC NULLS LAST"]
    with pytest.raises(InvalidInput, match="part of the sort order"):
        t.alter().drop_column("row").commit()
    upgraded = t.alter().set_properties({"format-version": "3"}).commit()
    assert upgraded.sort_order == after.sort_order
    t.append(data.drop_columns(["x", "ts", "a"]))
    assert t.scan().count() == 350


def test_compaction_by_an_order_says_which_if_the_table_has_it(lake, session):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", sort_by=["id desc"])
    t.append(given(session, rows(200)))
    t.compact(sort_by=["x desc", "id"], spark=session)
    assert_sorted(t, [(lambda r: r["x"], True, True), (lambda r: r["id"], False, False)], order_id=0)
    t.compact(sort_by=["zorder(x)", "id desc"], spark=session)
    assert_sorted(t, [(lambda r: r["x"], False, False), (lambda r: r["id"], True, True)], order_id=0)
    t.compact(sort_by=True, spark=session)
    assert_sorted(t, [(lambda r: r["id"], True, True)])
    t.alter().set_sort_order([]).commit()
    t.compact(sort_by=["id desc nulls last"], spark=session)
    assert_sorted(t, [(lambda r: r["id"], True, True)])
    with pytest.raises(InvalidInput, match="has no sort order"):
        t.compact(sort_by=True)


def test_paimon_sorts_when_it_compacts_in_any_direction(lake, session):
    t = lake.create_table("d.t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    chance = random.Random(1)
    for _ in range(2):
        t.append(
            pa.table({"id": [chance.choice([None, n]) for n in range(100)], "s": [str(n % 9) for n in range(100)]})
        )
    t.compact(sort_by=["truncate(1, s) desc", "id desc nulls first"], spark=session)
    found = t.scan().to_arrow().to_pylist()
    terms = [(lambda r: r["s"], True, True), (lambda r: r["id"], True, False)]
    keys = [key(row, terms) for row in found]
    assert all(not after < before for before, after in itertools.pairwise(keys))
    assert len(found) == 200


def test_paimon_has_no_sort_order(lake):
    with pytest.raises(UnsupportedFeature, match=r"no sort order; compact\(sort_by="):
        lake.create_table("d.p", SCHEMA, sort_by=["id"])
    t = lake.create_table("d.p", SCHEMA)
    with pytest.raises(UnsupportedFeature, match=r"no sort order; compact\(sort_by="):
        t.alter().set_sort_order(["id"]).commit()
    with pytest.raises(UnsupportedFeature, match=r"no sort order; compact\(sort_by="):
        t.inspect.sort_orders()
    with pytest.raises(InvalidInput, match="has no sort order"):
        t.compact(sort_by=True)
    t.alter().set_sort_order([]).set_comment("as it was").commit()


def test_a_changelog_is_not_sorted_and_says_so(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", primary_key=["id"], sort_by=["id desc"])
    with t.delta_writer("cdc", upsert=True, buffer_bytes=1) as writer:
        writer.write(pa.table({"id": [1, 3, 2], "dt": ["p"] * 3}))
        writer.write(pa.table({"id": [3, 4], "dt": ["q"] * 2}))
        writer.checkpoint(1)
    assert t.inspect.files()["sort_order_id"].to_pylist() == [0, 0]
    found = t.scan(["id", "dt"]).to_arrow().to_pylist()  # The first row of 3 went by its place.
    assert sorted((row["id"], row["dt"]) for row in found) == [(1, "p"), (2, "p"), (3, "q"), (4, "q")]


def test_what_cannot_be_an_order_is_refused(lake):
    for asked, error, told in (
        (["nope"], NotFound, "'nope'"),
        (["a"], InvalidInput, "names 'a', of type row"),
        (["days(id)"], InvalidInput, "which day does not take"),
        (["id desc up"], InvalidInput, "sort_by 'id desc up'"),
        ([3], InvalidInput, "sort_by"),
        (["zorder(id, x)"], InvalidInput, r"compact\(sort_by=\['zorder"),
    ):
        with pytest.raises(error, match=told):
            lake.create_table("d.t", SCHEMA, format="iceberg", sort_by=asked)
    assert not lake.exists("d.t")
    t = lake.create_table("d.t", SCHEMA, format="iceberg", sort_by="id desc")
    with pytest.raises(NotFound, match="'nope'"):
        t.alter().set_sort_order(["nope"]).commit()
    assert [str(field) for field in t.schema.sort_order.fields] == ["id DESC NULLS LAST"]


@pytest.mark.parametrize(
    "field",
    [
        {"transform": "zorder", "source-id": 1, "direction": "asc", "null-order": "nulls-first"},
        {"transform": "identity", "source-ids": [1, 3], "direction": "asc", "null-order": "nulls-first"},
        {"transform": "identity", "source-id": 99, "direction": "asc", "null-order": "nulls-first"},
    ],
)
def test_an_order_that_is_not_known_is_refused_when_rows_are_written(lake, field):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", sort_by=["id"])
    t.append(pa.Table.from_pylist(rows(5), SCHEMA))
    path = max(Path(t.uri.removeprefix("file://"), "metadata").glob("v*.json"), key=lambda p: int(p.stem[1:-9]))
    document = json.loads(path.read_text())
    document["sort-orders"][0]["fields"] = [field]
    path.write_text(json.dumps(document))
    assert t.scan().count() == 5
    assert t.inspect.sort_orders()["sort_by"].to_pylist() == [None]
    for write in (
        lambda: t.append(pa.table({"id": [1]})),
        lambda: t.compact(full=True),
        lambda: t.compact(sort_by=True),
    ):
        with pytest.raises(UnsupportedFeature, match=r"sort order 1 has .*set_sort_order"):
            write()
    t.alter().add_column("new", "int").commit()
    t.alter().set_sort_order(["id desc"]).commit()
    t.append(pa.Table.from_pylist(rows(5), SCHEMA))
    assert t.scan().count() == 10


def test_columns_of_the_order_have_bounds(lake):
    off = {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.x": "none"}
    t = lake.create_table("d.t", SCHEMA, format="iceberg", sort_by=["id", "x", "bucket(4, dt)"], properties=off)
    t.append(pa.Table.from_pylist([{"id": n, "x": 1.0, "dt": "p"} for n in range(9)], SCHEMA))
    assert t.scan(where="id = 100").plan() == []
    assert [len(t.scan(where=where).plan()) for where in ("x = 100", "dt = 'z'")] == [1, 1]
