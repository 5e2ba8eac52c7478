"""What MERGE INTO promises, in both formats and on both engines, against a merge that goes row by row."""

import datetime as dt
import math
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakeformat import Conflict, InvalidInput, Lake, NotFound, UnsupportedFeature
from lakeformat.codec.arrow import fields_from_arrow
from tests import doors
from tests.contract.merging import Case, apply_case, keyed_case, random_case

ROOT = Path(__file__).parent.parent.parent
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("v", pa.int64()), ("dt", pa.string())])
SOURCE = pa.schema([*SCHEMA, ("op", pa.string())])


MODES = {
    "paimon": {},
    "iceberg": {},
    "iceberg merge-on-read": {"write.merge.mode": "merge-on-read"},
}


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def format(mode):
    return mode.partition(" ")[0]


ENGINES = ("arrow", pytest.param("spark", marks=pytest.mark.spark))
BY_JOIN = pytest.param("spark by join", marks=pytest.mark.spark)
each_plan = pytest.mark.parametrize("frame", [*ENGINES, BY_JOIN], indirect=True)


@pytest.fixture(params=ENGINES)
def frame(request):
    """Rows as the engine's own kind of frame; Spark merges small sources part by part, unless by join."""
    if request.param == "arrow":
        return lambda rows, schema=SOURCE: pa.Table.from_pylist(rows, schema)
    spark = request.getfixturevalue("spark")
    if request.param == "spark by join":
        request.getfixturevalue("monkeypatch").setattr("lakeformat.engines.spark.merge._PART_BYTES", -1)
    return lambda rows, schema=SOURCE: on_spark(spark, rows, schema)


def on_spark(spark, rows, schema=SOURCE):
    from lakeformat.engines.spark import spark_schema

    return spark.createDataFrame(pa.Table.from_pylist(rows, schema), spark_schema(fields_from_arrow(schema)))


class Warehouse(Lake):
    """A warehouse whose tables merge in one way unless the test says otherwise."""

    properties = {}

    def create_table(self, name, schema, *, properties=None, **how):
        given = {**self.properties, **(properties or {})} if how["format"] == "iceberg" else properties
        return super().create_table(name, schema, properties=given, **how)


@pytest.fixture
def lake(tmp_path, request):
    found = Warehouse(str(tmp_path / "warehouse"))
    if "mode" in request.fixturenames:
        found.properties = MODES[request.getfixturevalue("mode")]
    return found


@pytest.fixture
def table(lake, format):
    return lake.create_table("shop.orders", SCHEMA, format=format, partition_by=["dt"])


def row(id, v=0, dt="a", k="k", **more):
    return {"id": id, "k": k, "v": v, "dt": dt, **more}


def rows_of(table, schema=SCHEMA):
    found = table.scan(columns=schema.names).to_arrow().to_pylist()
    return sorted(found, key=str)


def values(table):
    return {r["id"]: r["v"] for r in table.scan().to_arrow().to_pylist()}


def files(table):
    """The names of the files that the table's rows are in."""
    return {path.rpartition("/")[2] for path in table.inspect.files()["path"].to_pylist()}


def stored(table):
    """The names of all files of rows, in use or not."""
    return {f.path.rpartition("/")[2] for f in doors.store(table).list("") if f.path.endswith(".parquet")}


# --- against the oracle -----------------------------------------------------------------------------------------------


def run_case(table, case: Case, frame, fill=True):
    for part in case.written if fill else ():
        table.append(pa.Table.from_pylist(part, table.scan().schema))
    chain = table.merge_into(frame(case.source), on=case.on.text)
    for clause in case.clauses:
        condition = [] if clause.condition is None else [clause.condition.text]
        when = getattr(chain, clause.group)(*condition)
        given = [] if clause.values is None else [{name: value.text for name, value in clause.values.items()}]
        chain = getattr(when, clause.act)(*given)
    expected = apply_case(case)
    if expected is None:
        with pytest.raises(InvalidInput, match="more than one row of the source"):
            chain.merge()
        assert rows_of(table) == sorted((r for part in case.written for r in part), key=str), case
        return
    rows, changes = expected
    before = len(table.snapshots())
    made = chain.merge()
    assert rows_of(table) == sorted(rows, key=str), case
    assert (made is None) == (changes == 0), case
    assert len(table.snapshots()) - before == (made is not None), case


@pytest.mark.parametrize("seed", range(5))
def test_a_random_merge_does_what_a_merge_row_by_row_does(lake, format, seed):
    rng = random.Random(seed)
    for number in range(6):
        partitions = rng.choice([[], ["dt"]])
        table = lake.create_table(f"a.t{number}", SCHEMA, format=format, partition_by=partitions)
        run_case(table, random_case(rng), lambda rows: pa.Table.from_pylist(rows, SOURCE))
        again = replace(random_case(rng), written=[table.scan().to_arrow().to_pylist()])
        run_case(table, again, lambda rows: pa.Table.from_pylist(rows, SOURCE), fill=False)


@pytest.mark.parametrize("frame", [*ENGINES[1:], BY_JOIN], indirect=True)
def test_a_random_merge_on_spark_does_what_a_merge_row_by_row_does(lake, format, frame):
    rng = random.Random(f"spark {format}")
    for number in range(3):
        table = lake.create_table(f"a.t{number}", SCHEMA, format=format, partition_by=rng.choice([[], ["dt"]]))
        run_case(table, random_case(rng), frame)


# --- clauses ----------------------------------------------------------------------------------------------------------


@each_plan
def test_all_kinds_of_clauses_in_one_snapshot(table, frame):
    table.append(pa.Table.from_pylist([row(1), row(2), row(3, dt="b"), row(4, dt="c")], SCHEMA))
    source = [
        row(1, 10, op="u"),
        row(2, 20, op="d"),
        row(3, 30, "b", op="u"),
        row(9, 90, "d", op="i"),
        row(8, 1, op="n"),
    ]
    made = (
        table.merge_into(frame(source), on="t.id = s.id AND t.dt = s.dt")
        .when_matched("s.op = 'd'")
        .delete()
        .when_matched("t.dt = 'b'")
        .update({"v": "t.v + s.v + 1", "k": "concat(t.k, '!')"})
        .when_matched()
        .update_all()
        .when_not_matched("op = 'i'")
        .insert_all()
        .when_not_matched("s.op = 'n'")
        .insert({"id": "s.id + 100", "dt": "'n'"})
        .when_not_matched_by_source("t.dt = 'c'")
        .update({"v": "-1"})
        .merge()
    )
    assert made.kind == "merge"
    assert len(table.snapshots()) == 2
    assert rows_of(table) == sorted(
        [
            row(1, 10),
            row(3, 31, "b", "k!"),
            row(4, -1, "c"),
            row(9, 90, "d"),
            {"id": 108, "k": None, "v": None, "dt": "n"},
        ],
        key=str,
    )


@each_plan
def test_only_files_with_rows_that_change_are_rewritten(table, frame, mode):
    for number in range(4):
        table.append(pa.Table.from_pylist([row(number * 10 + i, dt="ab"[number % 2]) for i in range(5)], SCHEMA))
    before = files(table)
    source = [row(3, 33, op="u"), row(13, 44, "b", op="skip")]
    made = table.merge_into(frame(source), on="t.id = s.id").when_matched("op = 'u'").update_all().merge()
    if "read" in mode:
        assert before < files(table)
        assert len(stored(table) - before) == 2, "the new row, and where the old one lies"
        assert (made.rows_added, made.rows_removed) == (1, 1)
        return
    assert len(before - files(table)) == 1
    assert len(files(table) - before) == 1
    assert (made.rows_added, made.rows_removed) == (5, 5)
    assert stored(table) - before == files(table) - before, "the source's own files are gone"


def test_a_merge_that_changes_nothing_makes_no_snapshot_and_leaves_no_file(table, frame):
    table.append(pa.Table.from_pylist([row(1), row(2)], SCHEMA))
    before = stored(table)
    assert table.merge_into(frame([row(5, op="u")]), on="t.id = s.id").when_matched().update_all().merge() is None
    chain = table.merge_into(frame([row(1, op="u")]), on="t.id = s.id").when_matched("s.op = 'd'").delete()
    assert chain.merge() is None
    assert (
        table.merge_into(frame([]), on="t.id = s.id").when_matched().delete().when_not_matched().insert_all().merge()
        is None
    )
    assert len(table.snapshots()) == 1
    assert stored(table) == before


@each_plan
def test_a_row_may_move_to_another_partition(table, frame):
    table.append(pa.Table.from_pylist([row(1), row(2)], SCHEMA))
    table.merge_into(frame([row(1, 7, "z", op="u")]), on="t.id = s.id").when_matched().update_all().merge()
    assert rows_of(table) == sorted([row(1, 7, "z"), row(2)], key=str)
    assert table.scan(where="dt = 'z'").to_arrow()["id"].to_pylist() == [1]


@each_plan
def test_null_keys_match_nothing_unless_asked(table, frame):
    table.append(pa.Table.from_pylist([row(None, 1), row(1, 1)], SCHEMA))
    source = [row(None, 5, op="u"), row(1, 5, op="u")]
    table.merge_into(frame(source), on="t.id = s.id").when_matched().update({"v": "s.v"}).merge()
    assert values(table) == {None: 1, 1: 5}
    table.merge_into(frame(source), on="t.id <=> s.id").when_matched().update({"v": "s.v + 1"}).merge()
    assert values(table) == {None: 6, 1: 6}


def test_whole_numbers_meet_floats_as_floats(tmp_path):
    """As Spark compares them: also those that only become equal so."""
    table = Lake(str(tmp_path)).create_table("a.t", pa.schema([("k", pa.int64())]), format="iceberg")
    for key in (1, 2, 2**53, 2**53 + 1):
        table.append({"k": [key]})
    source = pa.table({"k": [1.0, 2.5, 2.0**53]})
    table.merge_into(source, on="t.k = s.k").when_matched().delete().merge()
    assert table.scan().to_arrow()["k"].to_pylist() == [2]


def test_a_condition_without_columns_is_that_of_each_pair(tmp_path):
    table = Lake(str(tmp_path)).create_table("a.t", pa.schema([("k", pa.int64())]), format="iceberg")
    table.append({"k": [1, 2, 3]})
    source = pa.table({"k": [2, 3, 4]})
    merge = table.merge_into(source, on="t.k = s.k AND cast(null AS boolean)")
    made = merge.when_matched().delete().when_not_matched().insert_all().merge()
    assert (made.rows_added, made.rows_removed) == (3, 0)
    merge = table.merge_into(source, on="t.k = s.k AND coalesce(cast(null AS boolean), true)")
    merge.when_matched("coalesce(cast(null AS boolean), true)").delete().merge()
    assert table.scan().to_arrow()["k"].to_pylist() == [1]


@pytest.mark.parametrize("of_source", [3, 200])
@pytest.mark.parametrize("type", [pa.int64(), pa.float64()], ids=["int64", "float64"])
def test_keys_that_lie_far_apart_match_whether_they_are_few_or_many(tmp_path, type, of_source):
    draw = random.Random(of_source)
    far = [-(2**63), 2**63 - 1, -(2**40), -1, 0, *(draw.randrange(-(2**62), 2**62) for _ in range(100))]
    is_float = type == pa.float64()
    keys = [*(map(float, far) if is_float else far), *([math.nan, math.inf] if is_float else [])]
    given = [*keys[:: 2 if of_source > 3 else 60], *([math.nan] if is_float else [])][:of_source]
    missing = [(float if is_float else int)(draw.randrange(2**50, 2**51)) for _ in range(of_source - len(given))]

    def columns(values, marks):
        return pa.table({"k": pa.array(values, type), "v": pa.array(marks, pa.int64())})

    table = Lake(str(tmp_path)).create_table("a.t", columns([], []).schema, format="iceberg")
    table.append(columns([None, *keys], range(-1, len(keys))))
    source = columns([*given, *missing, None], [-2] * (of_source + 1))
    table.merge_into(source, on="t.k = s.k").when_matched().update({"v": "s.v"}).merge()
    left = [
        i for i, key in enumerate(keys) if not any(key == other or (key != key and other != other) for other in given)
    ]
    assert sorted(table.scan(["v"]).to_arrow()["v"].to_pylist()) == [-2] * (len(keys) - len(left)) + [-1, *left]


def test_the_same_request_lands_once(table, frame):
    table.append(pa.Table.from_pylist([row(1)], SCHEMA))
    chain = table.merge_into(frame([row(1, op="u")]), on="t.id = s.id").when_matched().update({"v": "t.v + 1"})
    made = chain.merge(id="run 1", properties={"who": "me"})
    assert made.properties["who"] == "me"
    assert chain.merge(id="run 1").id == made.id
    assert values(table) == {1: 1}


@each_plan
def test_types_are_those_of_the_columns(lake, format, frame):
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us")),
            ("price", pa.decimal128(9, 2)),
            ("ratio", pa.float64()),
            ("tags", pa.list_(pa.string())),
            ("spot", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ]
    )
    t = lake.create_table("d.types", schema, format=format)
    day, at = dt.date(2023, 5, 1), dt.datetime(2023, 5, 1, 10, 0, 0, 5)
    first = {"id": 1, "day": day, "at": at, "price": Decimal("1.50"), "ratio": 0.5, "tags": ["a", None], "spot": None}
    t.append(pa.Table.from_pylist([first, {**first, "id": 2}], schema))
    new = {**first, "price": Decimal("2.25"), "tags": [], "spot": {"x": 1, "y": "z"}, "ratio": float("nan")}
    source = [new, {**new, "id": 3}]
    t.merge_into(frame(source, schema), on="t.id = s.id AND t.day = s.day AND t.at = s.at").when_matched(
        "t.price < s.price"
    ).update({"price": "t.price + s.price", "tags": "s.tags", "spot": "s.spot"}).when_not_matched().insert_all().merge()
    found = {r["id"]: r for r in t.scan().to_arrow().to_pylist()}
    assert found[1] == {**first, "price": Decimal("3.75"), "tags": [], "spot": {"x": 1, "y": "z"}}
    assert found[2] == {**first, "id": 2}
    assert str(found[3]) == str({**new, "id": 3})


@pytest.mark.spark
def test_spark_leaves_digits_alone_that_it_does_not_hold(lake, format, spark, monkeypatch):
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("ns")), ("dt", pa.string())])
    properties = {"format-version": "3"} if format == "iceberg" else {}
    t = lake.create_table("d.exact", schema, format=format, partition_by=["dt"], properties=properties)
    at = pa.array([1, 1001, 1_000_000_007, None], pa.timestamp("ns"))
    t.append(pa.table({"id": [1, 2, 3, 4], "v": [0] * 4, "at": at, "dt": list("aabb")}, schema=schema))
    source = spark.createDataFrame([(1, 5, "c"), (2, 5, "a"), (9, 5, "a")], "id long, v long, dt string")
    chain = t.merge_into(source, on="t.id = s.id").when_matched().update({"v": "s.v", "dt": "s.dt"})
    chain.when_not_matched().insert({"id": "s.id", "dt": "NULL"}).merge()
    found = t.scan().to_arrow().sort_by("id")
    assert found["at"].cast(pa.int64()).to_pylist() == [1, 1001, 1_000_000_007, None, None]
    assert (found["v"].to_pylist(), found["dt"].to_pylist()) == ([5, 5, 0, 0, None], ["c", "a", "b", "b", None])
    monkeypatch.setattr("lakeformat.engines.spark.merge._PART_BYTES", -1)
    with pytest.raises(UnsupportedFeature, match=r"column at is .* would lose digits"):
        t.merge_into(source, on="t.id = s.id").when_matched().delete().merge()


def test_new_columns_of_the_source_are_added_where_that_is_asked_for(table, frame):
    table.append(pa.Table.from_pylist([row(1), row(2)], SCHEMA))
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("dt", pa.string()), ("note", pa.string())])
    schema = schema.append(pa.field("untyped", pa.null()))  # Which is not added.
    source = frame([{"id": 1, "v": 5, "dt": "a", "note": "x"}, {"id": 3, "v": 6, "dt": "a", "note": "y"}], schema)
    with pytest.raises(InvalidInput, match="has no column 'k'"):
        table.merge_into(source, on="t.id = s.id").when_matched().update_all().merge()
    assert "note" not in table.schema.names
    chain = table.merge_into(source, on="t.id = s.id", evolve_schema=True)
    chain.when_matched().update_all().when_not_matched().insert_all().merge()
    assert sorted(table.scan().to_arrow().to_pylist(), key=str) == [
        {**row(1, 5), "note": "x"},
        {**row(2, 0), "note": None},
        {**row(3, 6, k=None), "note": "y"},
    ]


@pytest.mark.parametrize("frame", [BY_JOIN], indirect=True)
def test_a_join_of_spark_finds_the_same_whatever_the_sessions_settings(table, frame, spark):
    table.append(pa.Table.from_pylist([row(1, k="it's"), row(2, k="1 "), row(3, k="a\\b")], SCHEMA))
    source = frame([{**row(i, 5), "op": "u"} for i in (1, 2, 3)], SOURCE)
    settings = {
        "spark.sql.parser.escapedStringLiterals": "true", "spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "Asia/Tokyo",
    }  # fmt: skip
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        on = "t.id = s.id and t.k in ('it\\'s', 'a\\\\b')"
        table.merge_into(source, on=on).when_matched().update({"v": "s.v"}).merge()
        assert {name: spark.conf.get(name) for name in settings} == settings
        with pytest.raises(InvalidInput, match="cannot be cast to"):  # Spark's own error, of ANSI mode.
            table.merge_into(source, on="t.k = s.id").when_matched().update({"v": "s.v"}).merge()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert values(table) == {1: 5, 2: 0, 3: 5}


# --- tables whose rows are merged by key --------------------------------------------------------------------------------

KEYED = pa.schema(
    [pa.field("id", pa.int64(), False), ("k", pa.string()), ("v", pa.int64()), pa.field("dt", pa.string(), False)]
)


@pytest.fixture
def keyed(lake):
    return lake.create_table(
        "k.t", KEYED, format="paimon", partition_by=["dt"], primary_key=["id", "dt"], properties={"bucket": "2"}
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_random_merge_by_key_does_what_a_merge_row_by_row_does(keyed, seed):
    case = keyed_case(random.Random(seed))
    run_case(keyed, case, lambda rows: pa.Table.from_pylist(rows, SOURCE))


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(2))
def test_a_random_merge_by_key_on_spark_does_what_a_merge_row_by_row_does(keyed, spark, seed):
    run_case(keyed, keyed_case(random.Random(f"spark {seed}")), lambda rows: on_spark(spark, rows))


WAYS = {
    "each bucket for itself": ({"bucket": "3"}, ["dt"], "t.id = s.id AND t.dt = s.dt", SOURCE),
    "one bucket without partitions": ({"bucket": "1"}, [], "t.id = s.id", SOURCE),
    "a bucket of all partitions": ({"bucket": "2"}, ["dt"], "t.id = s.id", SOURCE),
    "buckets that grow, of all partitions": ({"bucket": "-1"}, ["dt"], "t.id = s.id", SOURCE),
    "buckets that grow": ({"bucket": "-1"}, ["dt"], "t.id = s.id AND t.dt = s.dt", SOURCE),
    "a key that is computed": ({"bucket": "3"}, [], "t.id = s.id + 0", SOURCE),
    "numbers of another width": ({"bucket": "3"}, [], "t.id = s.id", SOURCE.set(0, pa.field("id", pa.int32()))),
}


@pytest.mark.drawn(2)
@pytest.mark.spark
@pytest.mark.parametrize("way", WAYS)
def test_rows_by_key_come_together_on_spark_in_whatever_way_they_must(lake, spark, way):
    properties, partitions, on, schema = WAYS[way]
    key = ["id", *partitions]
    rows = [row(i, i, "ab"[i % 2]) for i in range(-20, 20)]
    changed = [row(i, 100 + i, "ab"[i % 2], "new", op="d" if i % 5 == 0 else "u") for i in range(-30, 10)]
    found = []
    for engine in ("arrow", "spark"):
        t = lake.create_table(
            f"k.{engine}", KEYED, format="paimon", partition_by=partitions, primary_key=key, properties=properties
        )
        t.append(pa.Table.from_pylist(rows[:30], KEYED))
        t.append(pa.Table.from_pylist([*rows[25:], *([row(-7, -7, "a")] if partitions else [])], KEYED))
        if way == "one bucket without partitions":
            t.compact(full=True)
        source = pa.Table.from_pylist(changed, schema) if engine == "arrow" else on_spark(spark, changed, schema)
        chain = t.merge_into(source, on=on).when_matched("s.op = 'd'").delete()
        chain = chain.when_matched("t.v < 0").update({"v": "t.v * s.v"})
        chain = chain.when_not_matched_by_source("t.v > 15").update({"k": "t.dt"})
        if all(name in on for name in partitions):
            values = {name: f"s.{name}" for name in KEYED.names}
            if way == "each bucket for itself":
                values = {**values, "v": "s.v + 1"}
            chain = chain.when_not_matched("s.op = 'u'").insert(values)
        chain.merge()
        found.append(rows_of(t, KEYED))
    assert found[0] == found[1]
    assert sum(r["v"] < 0 for r in found[0]) > 5
    assert sum(r["k"] in ("a", "b") for r in found[0]) == 4
    assert [r["v"] for r in found[0] if r["id"] == -7] == {
        True: [-7 * 93, -7],
        False: [-7 * 93] * (1 + bool(partitions)),
    }["t.dt" in on]
    assert all(r["id"] % 5 or r["id"] >= 10 for r in found[0])


@pytest.mark.spark
def test_rows_that_are_inserted_under_another_key_than_they_are_looked_for_by(lake, spark):
    t = lake.create_table("k.t", KEYED, format="paimon", primary_key=["id"], properties={"bucket": "4"})
    t.append(pa.Table.from_pylist([row(i) for i in range(10)], KEYED))
    before = set(t.inspect.files()["path"].to_pylist())
    chain = t.merge_into(on_spark(spark, [row(i, 5, op="i") for i in range(105, 165)]), on="t.id = s.id")
    chain.when_not_matched().insert({"id": "s.id - 100", "k": "s.k", "v": "s.v", "dt": "s.dt"}).merge()
    assert values(t) == {**dict.fromkeys(range(5), 0), **dict.fromkeys(range(5, 65), 5)}
    folders = [path.rpartition("/")[0] for path in set(t.inspect.files()["path"].to_pylist()) - before]
    assert len(folders) == len(set(folders))  # One writer numbers the rows of a bucket.


def test_several_rows_of_the_source_for_one_key_are_a_mistake(keyed, frame):
    keyed.append(pa.Table.from_pylist([row(1), row(2)], KEYED))
    twice = frame([row(2, 1, op="d"), row(2, 2, op="x")])
    with pytest.raises(InvalidInput, match=r"more than one row of the source.*'[ts]\.id': 2"):
        keyed.merge_into(twice, on="t.id = s.id AND t.dt = s.dt").when_matched().update_all().merge()
    keyed.merge_into(twice, on="t.id = s.id").when_matched().delete().merge()
    assert values(keyed) == {1: 0}


def test_a_key_stays_what_it_is(keyed):
    keyed.append(pa.Table.from_pylist([row(1)], KEYED))
    source = pa.Table.from_pylist([row(1, 5, "b", op="u")], SOURCE)
    with pytest.raises(InvalidInput, match="update of 'dt', which is in the primary key"):
        keyed.merge_into(source, on="t.id = s.id").when_matched().update_all().merge()
    with pytest.raises(InvalidInput, match="update of 'dt', which is in the primary key"):
        keyed.update({"dt": "'b'"})
    with pytest.raises(InvalidInput, match="not looked for by dt"):
        keyed.merge_into(source, on="t.id = s.id").when_not_matched().insert_all().merge()
    made = keyed.merge_into(source, on="t.id = s.id").when_matched().update({"v": "s.v"}).merge()
    assert made.kind == "merge"
    assert rows_of(keyed) == [row(1, 5)]


def test_merge_engines_that_do_not_replace_rows_take_only_inserts(lake):
    t = lake.create_table(
        "k.sums", KEYED, format="paimon", primary_key=["id"],
        properties={"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    )  # fmt: skip
    t.append(pa.Table.from_pylist([row(1, 5)], KEYED))
    chain = t.merge_into(pa.Table.from_pylist([row(1, 7, op="u"), row(2, 7, op="u")], SOURCE), on="t.id = s.id")
    with pytest.raises(UnsupportedFeature, match="merge-engine 'aggregation'"):
        chain.when_matched().update_all().merge()
    chain.when_not_matched().insert_all().merge()
    assert values(t) == {1: 5, 2: 7}


# --- upsert by columns that are named ---------------------------------------------------------------------------------


def test_an_upsert_by_named_columns_replaces_and_adds_in_any_table(table, frame):
    schema = pa.schema([*SCHEMA])
    table.append(pa.Table.from_pylist([row(1), row(2), row(None, 3, "b")], schema))
    made = table.upsert(frame([row(2, 7), row(None, 8, "b"), row(4, 1), row(4, 9)], schema), on=["id", "dt"], id="once")
    assert rows_of(table) == sorted([row(1), row(2, 7), row(None, 8, "b"), row(4, 9)], key=str), "null equals null"
    assert made.kind == "merge"
    assert table.upsert(frame([row(1, 5)], schema), on=["id", "dt"], id="once").id == made.id
    table.upsert(frame([row(9, 6, "c", k="only")], schema), on=["k"])
    assert "only" in {r["k"] for r in rows_of(table)}
    assert table.scan().count() == 5
    assert table.schema.primary_key == ()


def test_an_upsert_by_named_columns_says_what_is_wrong(table, keyed):
    rows = pa.Table.from_pylist([row(1)], SCHEMA)
    with pytest.raises(InvalidInput, match="no column 'x'"):
        table.upsert(rows, on=["x"])
    with pytest.raises(InvalidInput, match="give a list"):
        table.upsert(rows, on="id")
    keyed.upsert(pa.Table.from_pylist([row(1)], KEYED), on=["dt", "id"])
    keyed.upsert(pa.Table.from_pylist([row(1, 4)], KEYED), on=["id", "dt"])
    assert values(keyed) == {1: 4}


# --- upsert by identifier fields --------------------------------------------------------------------------------------


@pytest.fixture(params=[m for m in MODES if m.startswith("iceberg")])
def identified(lake, request):
    properties = MODES[request.param]
    return lake.create_table(
        "i.t", SCHEMA, format="iceberg", partition_by=["dt"], primary_key=["id", "dt"], properties=properties
    )


@each_plan
def test_an_upsert_replaces_and_adds_by_the_identifier_fields(identified, frame):
    assert identified.schema.primary_key == ("id", "dt")
    assert [f.name for f in identified.schema.fields if not f.nullable] == ["id", "dt"]
    identified.upsert(frame([row(1), row(2), row(1, 5, "b")], SCHEMA))
    made = identified.upsert(frame([row(2, 7), row(3, 7, "c"), row(3, 8, "c")], SCHEMA))
    assert made.kind == "merge"
    assert rows_of(identified) == sorted([row(1), row(2, 7), row(1, 5, "b"), row(3, 8, "c")], key=str)
    assert identified.upsert(frame([], SCHEMA)) is None


@each_plan
def test_rows_of_an_upsert_may_say_what_they_do(identified, frame):
    identified.append(pa.Table.from_pylist([row(1), row(2)], SCHEMA))
    schema = pa.schema([*SCHEMA, ("rowkind", pa.string())])
    rows = [row(1, rowkind="-D"), row(9, rowkind="-D"), row(2, 5, rowkind="+U"), row(3, 6, rowkind=None)]
    identified.upsert(frame([*rows, row(4, rowkind="+I"), row(4, rowkind="-D")], schema))
    assert rows_of(identified) == sorted([row(2, 5), row(3, 6)], key=str)


def test_an_upsert_says_what_is_wrong_with_its_data(identified, lake):
    with pytest.raises(InvalidInput, match="column 'op' is not in the table"):
        identified.upsert(pa.Table.from_pylist([row(1, op="u")], SOURCE))
    with pytest.raises(InvalidInput, match="no column 'dt', which is in the primary key"):
        identified.upsert(pa.table({"id": [1]}))
    with pytest.raises(InvalidInput, match="column id is NOT NULL"):
        identified.upsert(pa.Table.from_pylist([row(None)], SCHEMA))
    with pytest.raises(InvalidInput, match="upsert needs a primary key"):
        lake.create_table("i.plain", SCHEMA, format="iceberg").upsert(pa.Table.from_pylist([row(1)], SCHEMA))
    identified.append(pa.Table.from_pylist([row(1, 5)], SCHEMA))
    identified.upsert(pa.table({"id": [1], "dt": ["a"], "k": ["new"]}))
    assert rows_of(identified) == [row(1, 5, k="new")]


def test_an_upsert_touches_only_files_that_may_hold_its_keys(lake):
    t = lake.create_table("i.many", SCHEMA, format="iceberg", primary_key=["id", "k"])
    for start in range(0, 1000, 100):
        t.append(pa.Table.from_pylist([row(start + i, k=f"{start:04}") for i in range(100)], SCHEMA))
    before = files(t)
    t.upsert(pa.Table.from_pylist([row(150, 1, k="0100"), row(155, 2, k="0100"), row(150, 3, k="new")], SCHEMA))
    assert len(before - files(t)) == 1
    assert t.scan().count() == 1001


# --- refusals ---------------------------------------------------------------------------------------------------------


@each_plan
def test_two_rows_of_the_source_for_one_row_are_a_mistake_that_is_shown(table, frame):
    table.append(pa.Table.from_pylist([row(1), row(2)], SCHEMA))
    before = stored(table)
    twice = frame([row(2, 1, op="d"), row(2, 2, op="x")])
    with pytest.raises(
        InvalidInput, match=r"more than one row of the source.*'[ts]\.id': 2.*[Kk]eep one row for each id"
    ):
        table.merge_into(twice, on="t.id = s.id").when_matched("s.op = 'never'").delete().merge()
    assert stored(table) == before
    table.merge_into(twice, on="t.id = s.id").when_matched().delete().merge()
    assert values(table) == {1: 0}
    table.merge_into(
        frame([row(1, op=""), row(1, op=""), row(5, op="")]), on="t.id = s.id"
    ).when_not_matched().insert_all().merge()
    assert values(table) == {1: 0, 5: 0}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda m: m("t.id > s.id").when_matched().delete(), InvalidInput, "no equality between the table and the source"),
        (lambda m: m("t.id = 5").when_matched().delete(), InvalidInput, "no equality"),
        (lambda m: m("t.id = s.idd").when_matched().delete(), NotFound, "'idd'"),
        (lambda m: m("t.id = s.id AND v > 0").when_matched().delete(), InvalidInput, r"say t\.v or s\.v"),
        (lambda m: m("t.id = s.id"), InvalidInput, "without a clause"),
        (lambda m: m("t.id = s.id").when_matched().delete().when_matched().delete(), InvalidInput, "must be the last"),
        (lambda m: m("t.id = s.id").when_not_matched("t.v = 1").insert_all(), InvalidInput, r"t\.v.*only columns of s"),
        (lambda m: m("t.id = s.id").when_not_matched_by_source("s.v = 1").delete(), InvalidInput, "only columns of t"),
        (lambda m: m("t.id = s.id").when_matched().update({"v": "s.op"}), InvalidInput, "when_matched: update: column v"),
        (lambda m: m("t.id = s.id").when_matched().update({"w": "1"}), NotFound, "'w'"),
        (lambda m: m("t.id = s.id").when_matched("s.v + 1").delete(), InvalidInput, "not a condition"),
        (lambda m: m("t.id = s.id").when_matched().update({"v": "1", "t.v": "2"}), InvalidInput, "assigned twice"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_named_before_anything_is_written(table, make, error, message):
    table.append(pa.Table.from_pylist([row(1)], SCHEMA))
    before = stored(table)
    source = pa.Table.from_pylist([row(1, op="u")], SOURCE)
    with pytest.raises(error, match=message):
        make(lambda on: table.merge_into(source, on=on)).merge()
    assert stored(table) == before


def test_all_columns_are_asked_of_the_source(table, frame):
    table.append(pa.Table.from_pylist([row(1)], SCHEMA))
    source = frame([{"id": 1, "v": 2}], pa.schema([("id", pa.int64()), ("v", pa.int64())]))
    with pytest.raises(InvalidInput, match=r"update_all: the source has no column 'k'"):
        table.merge_into(source, on="t.id = s.id").when_matched().update_all().merge()


@pytest.mark.parametrize("group", ["when_matched", "when_not_matched"])
def test_a_value_that_does_not_fit_leaves_the_table_as_it_was(table, frame, group):
    table.append(pa.Table.from_pylist([row(i, dt="ab"[i % 2]) for i in range(4)], SCHEMA))
    before = stored(table)
    source = frame([row(1, 5, op="7"), row(2, 5, op="x" if group == "when_matched" else "8"), row(9, 5, op="x")])
    chain = table.merge_into(source, on="t.id = s.id").when_matched().update({"v": "CAST(s.op AS BIGINT)"})
    if group == "when_not_matched":
        chain = chain.when_not_matched().insert({"v": "CAST(s.op AS BIGINT)", "dt": "s.dt"})
    with pytest.raises(InvalidInput, match=f"{group}: "):
        chain.merge()
    assert len(table.snapshots()) == 1
    assert stored(table) == before


# --- others at work ---------------------------------------------------------------------------------------------------


class Meanwhile:
    """A source that lets others write to the table when it is read."""

    def __init__(self, table, act):
        self.table, self.act = table, act

    def __arrow_c_stream__(self, requested_schema=None):
        self.act()
        return self.table.__arrow_c_stream__(requested_schema)


def test_a_file_that_others_rewrote_meanwhile_is_a_conflict(table):
    table.append(pa.Table.from_pylist([row(1), row(2)], SCHEMA))
    source = Meanwhile(
        pa.Table.from_pylist([row(1, 5, op="u")], SOURCE), lambda: table.update({"v": "9"}, where="id = 2")
    )
    with pytest.raises(Conflict):
        table.merge_into(source, on="t.id = s.id").when_matched().update_all().merge()
    assert values(table) == {1: 0, 2: 9}
    assert len(stored(table)) == 2, "the file that the update replaced, the one it wrote, and none of the merge's"


def test_others_may_add_what_the_merge_looked_for_only_where_the_format_does_not_mind(table, format):
    table.append(pa.Table.from_pylist([row(1)], SCHEMA))
    source = pa.Table.from_pylist([row(7, 5, op="u")], SOURCE)
    racing = Meanwhile(source, lambda: table.append(pa.Table.from_pylist([row(7, 1)], SCHEMA)))
    chain = table.merge_into(racing, on="t.id = s.id").when_matched().update_all().when_not_matched().insert_all()
    if format == "iceberg":
        with pytest.raises(Conflict):
            chain.merge()
        assert rows_of(table) == sorted([row(1), row(7, 1)], key=str)
        table.alter().set_properties({"write.merge.isolation-level": "snapshot"}).commit()
    chain.merge()
    assert [r["id"] for r in rows_of(table)].count(7) == 2


@pytest.mark.spark
def test_spark_evaluates_the_source_once(table, spark):
    table.append(pa.Table.from_pylist([row(i, dt="ab"[i % 2]) for i in range(40)], SCHEMA))
    seen = spark.sparkContext.accumulator(0)

    def counted(batches):
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    drawn = (
        spark.range(0, 30, 1, 3)
        .mapInArrow(counted, "id bigint")
        .selectExpr("id * 2 AS id", "'n' AS k", "cast(rand() * 1000000 AS bigint) AS v", "'a' AS dt")
    )
    chain = table.merge_into(drawn, on="t.id = s.id").when_matched().update_all().when_not_matched().insert_all()
    chain.merge()
    assert seen.value == 30
    found = rows_of(table)
    assert len(found) == 20 + 20 + 10
    assert {r["id"] for r in found if r["k"] == "n"} == set(range(0, 60, 2))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_columns_without_a_type_are_not_added(tmp_path, format, make):
    """They would be text for good; they come with the first frame that has a value."""
    table = Lake(tmp_path).create_table("d.t", pa.schema([("id", pa.int64())]), format=format)
    for value in (None, 1.5):
        source = make({"id": [1], "note": [value], "text": ["x"]})
        chain = table.merge_into(source, on="t.id = s.id", evolve_schema=True)
        chain.when_matched().update_all().when_not_matched().insert_all().merge()
        assert table.schema.names == (("id", "text") if value is None else ("id", "text", "note"))
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "text": "x", "note": 1.5}]


@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_only_clauses_that_take_all_columns_add_those_of_the_source(tmp_path, format):
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = Lake(tmp_path).create_table("d.t", schema, format=format)
    table.append(pa.table({"id": [1, 2], "v": [1, 2]}))
    source = pa.table({"id": [1, 3], "v": [10, 30], "extra": ["x", "y"]})

    def chain():
        return table.merge_into(source, on="t.id = s.id", evolve_schema=True)

    chain().when_matched().update({"v": "s.v"}).merge()
    chain().when_matched("s.v > 50").delete().when_not_matched().insert({"id": "s.id", "v": "s.v"}).merge()
    assert table.schema.names == ("id", "v")
    chain().when_matched().delete().merge()
    assert table.schema.names == ("id", "v")
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "v": 2}]
    chain().when_matched().delete().when_not_matched().insert_all().merge()
    assert table.schema.names == ("id", "v", "extra")
