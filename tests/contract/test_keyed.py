"""Tables with a primary key: rows of one key become one row, whoever wrote them and when."""

import datetime
import itertools
import math
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Conflict, InvalidInput, Lake, OutsideScope, StoreError, UnsupportedFeature
from lakeformat.dialects.paimon import manifest
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.spark import few
from lakeformat.maintenance import compact
from lakeformat.model.operation import Request, Rewrite
from lakeformat.model.predicate import ALWAYS
from lakeformat.model.work import MergeTask
from lakeformat.verbs.change import Change
from tests import doors
from tests.contract.meanwhile import before_commits

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64()), ("dt", pa.string())])


@pytest.fixture(params=["arrow", "spark"])
def frame(request):
    """Rows as the engine's own kind of frame."""
    if request.param == "arrow":
        return arrow
    spark = request.getfixturevalue("spark")

    def make(rows):
        found = arrow(rows)
        types = {"id": "bigint", "v": "string", "n": "bigint", "dt": "string", "rowkind": "string"}
        names = ", ".join(f"{name} {types[name]}" for name in found.column_names)
        return spark.createDataFrame([tuple(row.values()) for row in found.to_pylist()], names)

    return make


def arrow(rows):
    schema = SCHEMA if all("rowkind" not in row for row in rows) else SCHEMA.append(pa.field("rowkind", pa.string()))
    return pa.Table.from_pylist(rows, schema)


def row(id, v="v", dt="a", n=None, **more):
    return {"id": id, "v": v, "n": n, "dt": dt, **more}


@pytest.fixture
def lake(tmp_path):
    return Lake(str(tmp_path / "warehouse"))


def make(lake, name="d.t", **properties):
    given = {"bucket": "2"} | {key.replace("_", "."): value for key, value in properties.items()}
    return lake.create_table(
        name, SCHEMA, format="paimon", partition_by=["dt"], primary_key=["id", "dt"], properties=given
    )


@pytest.fixture
def table(lake):
    return make(lake)


def contents(table, **how):
    found = table.scan(columns=["id", "dt", "v"], **how).to_arrow().to_pylist()
    assert table.scan(**how).count() == len(found)
    keys = {(r["dt"], r["id"]): r["v"] for r in found}
    assert len(keys) == len(found)
    return keys


def levels(table):
    return sorted(table.inspect.files()["level"].to_pylist())


# --- upsert -----------------------------------------------------------------------------------------------------------


def test_upsert_puts_rows_in_the_place_of_those_with_their_key(table, frame):
    made = table.upsert(frame([row(1, "one"), row(2, "two"), row(1, "other", dt="b")]))
    assert (made.kind, made.rows_added, made.rows_removed) == ("append", 3, 0)
    table.upsert(frame([row(2, "TWO"), row(3, "three")]))
    assert contents(table) == {("a", 1): "one", ("a", 2): "TWO", ("a", 3): "three", ("b", 1): "other"}
    assert contents(table, snapshot_id=1) == {("a", 1): "one", ("a", 2): "two", ("b", 1): "other"}


def test_the_last_row_of_a_key_counts_within_one_write_too(table):
    table.append(arrow([row(1, "first"), row(2), row(1, "last")]))
    assert contents(table)["a", 1] == "last"
    assert sum(table.inspect.files()["row_count"].to_pylist()) == 2


@pytest.mark.parametrize("is_few", [True, False])
@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_verbs_that_replace_rows_keep_the_last_row_of_each_key(lake, frame, format, is_few, monkeypatch):
    if not is_few:
        monkeypatch.setattr(few, "_WRITTEN_BYTES", 0)
        monkeypatch.setattr(few, "guessed_few", lambda frame: False)
    table = lake.create_table("d.t", SCHEMA, format=format, partition_by=["dt"], primary_key=["id", "dt"])
    data = frame([row(1, "first"), row(2, "other"), row(1, "middle", n=3), row(1, "last"), row(1, "b", "b")])
    rows = [row(1, "last"), row(1, "b", "b"), row(2, "other")]
    old = row(9, "old")
    for kept, verb in (
        ([old], table.upsert),
        ([], table.overwrite),
        ([], table.overwrite_partitions),
        ([], lambda data: table.overwrite_partitions(data, [{"dt": "a"}, {"dt": "b"}])),
        ([], lambda data: table.overwrite(data, where="dt < 'c'")),
        ([old], lambda data: table.overwrite(data, where="id < 9")),
    ):
        table.overwrite(arrow([old]))
        verb(data)
        result = lake.table("d.t").scan().to_arrow().to_pylist()
        assert sorted(result, key=str) == sorted([*rows, *kept], key=str)


def test_rows_that_say_what_they_do_to_their_key(table, frame):
    table.upsert(frame([row(1), row(2), row(3)]))
    table.upsert(frame([row(1, rowkind="-D"), row(2, "new", rowkind="+U"), row(3, rowkind="-U"), row(4, rowkind=None)]))
    assert contents(table) == {("a", 2): "new", ("a", 4): "v"}
    with pytest.raises(InvalidInput, match="a row's kind is one of"):
        table.upsert(frame([row(1, rowkind="D")]))
    assert contents(table) == {("a", 2): "new", ("a", 4): "v"}


def test_key_columns_hold_no_nulls_and_others_may_be_left_out(table):
    table.upsert(pa.table({"id": [1], "dt": ["a"]}))
    assert contents(table) == {("a", 1): None}
    with pytest.raises(InvalidInput, match="id is NOT NULL"):
        table.upsert(arrow([row(None)]))


def test_upsert_needs_a_primary_key(lake):
    plain = lake.create_table("d.plain", SCHEMA, format="paimon")
    with pytest.raises(InvalidInput, match="upsert needs a primary key"):
        plain.upsert(arrow([row(1)]))
    with pytest.raises(InvalidInput, match="rowkind"):
        plain.append(arrow([row(1, rowkind="+I")]))


def test_the_sequence_field_decides_which_row_is_the_newest(lake, frame):
    for order, winner in (("ascending", "late"), ("descending", "early")):
        t = make(lake, f"d.{order}", sequence_field="n", **{"sequence.field.sort-order": order})
        t.upsert(frame([row(1, "late", n=9), row(2, "null", n=None)]))
        t.upsert(frame([row(1, "early", n=3), row(2, "any", n=0)]))
        assert contents(t) == {("a", 1): winner, ("a", 2): "any"}


def test_an_update_that_would_count_as_older_is_refused(lake, frame):
    t = make(lake, sequence_field="n")
    t.upsert(frame([row(1, n=5), row(2, n=None), row(3, n=1)]))
    for behind in ("n - 1", "null", "case when id = 3 then 0 else n end"):
        with pytest.raises(InvalidInput, match=r"update of n: by the table.s sequence\.field, 1 rows are older"):
            t.update(
                {"v": "'no'", "n": behind}, where="n is not null and id in (3, 1)" if "case" in behind else "id = 1"
            )
    t.update({"v": "'same'", "n": "n"}, where="id = 1")
    t.update({"v": "'more'", "n": "coalesce(n, 0) + 1"}, where="id > 1")
    assert contents(t) == {("a", 1): "same", ("a", 2): "more", ("a", 3): "more"}


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_the_first_sequence_field_that_changes_decides_whether_an_update_counts(lake, order):
    t = make(lake, sequence_field="n,v", **{"sequence.field.sort-order": order})
    up, down = ("n + 1", "n - 1") if order == "ascending" else ("n - 1", "n + 1")
    before, after = ("a", "z") if order == "ascending" else ("z", "a")
    t.upsert(arrow([row(1, "m", n=5)]))
    for behind in ({"n": down, "v": f"'{after}'"}, {"v": f"'{before}'"}, {"n": "n", "v": f"'{before}'"}):
        with pytest.raises(InvalidInput, match="1 rows are older"):
            t.update(behind)
    t.update({"n": up, "v": f"'{before}'"})
    t.update({"v": f"'{after}'"})
    assert contents(t) == {("a", 1): after}


def test_a_sequence_field_is_named_once(lake):
    with pytest.raises(InvalidInput, match=r"sequence\.field names 'n' twice"):
        make(lake, sequence_field="n, v, n")


def test_deletes_may_be_ignored(lake):
    t = make(lake, **{"ignore-delete": "true"})
    t.upsert(arrow([row(1), row(2)]))
    assert t.upsert(arrow([row(1, rowkind="-D")])) is None
    with pytest.raises(UnsupportedFeature, match="delete of rows on a table with 'ignore-delete'"):
        t.delete(where="id = 2")
    chain = t.merge_into(arrow([row(2)]), on="t.id = s.id and t.dt = s.dt").when_matched().delete()
    with pytest.raises(UnsupportedFeature, match="cannot delete rows of a table with 'ignore-delete'"):
        chain.merge()
    assert contents(t) == {("a", 1): "v", ("a", 2): "v"}


def test_a_column_of_the_table_may_hold_the_row_kind(lake, frame):
    t = make(lake, rowkind_field="v")
    t.upsert(frame([row(1, "+I"), row(2, "+I"), row(3, "+U")]))
    t.upsert(frame([row(1, "-D"), row(2, "+U")]))
    assert contents(t) == {("a", 2): "+U", ("a", 3): "+U"}
    t.delete(where="id = 3")
    assert contents(t) == {("a", 2): "+U"}
    with pytest.raises(InvalidInput, match="a row's kind is one of"):
        t.upsert(frame([row(1, "gone")]))
    with pytest.raises(InvalidInput, match="must be a string"):
        make(lake, "d.number", rowkind_field="n")
    with pytest.raises(InvalidInput, match="only one column can hold the row kind"):
        make(lake, "d.two", rowkind_field="v,dt")
    with pytest.raises(InvalidInput, match=r"rowkind\.field names 'v', which is not a column"):
        t.alter().drop_column("v").commit()


def test_thin_files_hold_their_keys_once(lake):
    t = make(lake, **{"data-file.thin-mode": "true", "metadata.stats-mode": "none"})
    t.upsert(arrow([row(i) for i in range(10)]))
    t.upsert(arrow([row(i, "w") for i in range(5, 20)]))
    path = t.inspect.files()["path"][0].as_py()
    names = pq.read_schema(f"{t.uri.removeprefix('file://')}/{path}").names
    assert names == ["_SEQUENCE_NUMBER", "_VALUE_KIND", "id", "v", "n", "dt"]
    wanted = {("a", i): "w" if i >= 5 else "v" for i in range(20)}
    assert contents(t) == wanted
    t.compact(full=True)
    assert contents(t) == wanted


def test_rows_of_a_bucket_are_numbered_on(table):
    table.upsert(arrow([row(i) for i in range(6)]))
    table.upsert(arrow([row(i) for i in range(3)]))
    files = table.inspect.files().select(["bucket", "min_sequence_number", "max_sequence_number"]).to_pylist()
    for bucket in {f["bucket"] for f in files}:
        ranges = sorted((f["min_sequence_number"], f["max_sequence_number"]) for f in files if f["bucket"] == bucket)
        assert ranges[0][0] == 0
        assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(ranges))


def test_files_hold_the_columns_that_java_gives_them(table):
    table.upsert(arrow([row(2), row(1)]))
    path = table.inspect.files()["path"][0].as_py()
    found = pq.read_table(f"{table.uri.removeprefix('file://')}/{path}")
    ids = {f.name: int(f.metadata[b"PARQUET:field_id"]) for f in found.schema}
    assert list(ids) == ["_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", "id", "v", "n", "dt"]
    assert list(ids.values()) == [1073741823, 2147483646, 2147483645, 0, 1, 2, 3]
    assert found["_KEY_id"].to_pylist() == sorted(found["_KEY_id"].to_pylist())


@pytest.mark.parametrize("format", ["orc", "avro"])
def test_other_file_formats(lake, format):
    t = make(lake, file_format=format)
    t.upsert(arrow([row(1, "old"), row(2)]))
    t.upsert(arrow([row(1, "new")]))
    assert contents(t) == {("a", 1): "new", ("a", 2): "v"}


# --- scan -------------------------------------------------------------------------------------------------------------


def test_conditions_on_values_never_bring_back_an_older_row(table, spark):
    table.upsert(arrow([row(1, "x", n=1), row(2, "x", n=2), row(50, "x", n=50)]))
    table.upsert(arrow([row(1, "y", n=10)]))
    assert contents(table, where="v = 'x'") == {("a", 2): "x", ("a", 50): "x"}
    assert contents(table, where="n < 5") == {("a", 2): "x"}
    assert contents(table, where="v = 'y' and id = 1") == {("a", 1): "y"}
    assert contents(table, where="v = 'z'") == {}
    found = table.scan(columns=["n"], where="v <> 'y'").to_spark(spark).toPandas()
    assert sorted(found["n"]) == [2, 50]


def test_conditions_on_keys_and_partitions_leave_files_out(table):
    table.upsert(arrow([row(i, dt=dt) for i in range(10) for dt in ("a", "b")]))
    table.upsert(arrow([row(i, dt="a") for i in range(100, 110)]))
    paths = [path for task in table.scan(where="dt = 'a' and id > 50").plan() for path in task.paths]
    assert paths
    assert all(path.startswith("dt=a/") for path in paths)
    assert len(paths) < len([p for p in table.inspect.files()["path"].to_pylist() if p.startswith("dt=a/")])


def test_columns_that_are_not_asked_for_still_merge(lake):
    t = make(lake, sequence_field="n")
    t.upsert(arrow([row(1, "new", n=5)]))
    t.upsert(arrow([row(1, "old", n=1)]))
    assert t.scan(columns=["v"]).to_arrow().to_pylist() == [{"v": "new"}]
    assert t.scan(columns=[]).to_arrow().num_rows == 1


def test_rows_without_columns_are_counted_by_spark_too(table, spark):
    table.upsert(arrow([row(1), row(2)]))
    table.upsert(arrow([row(2)]))
    found = table.scan(columns=[]).to_spark(spark)
    assert (found.columns, found.count(), len(found.collect())) == ([], 2, 2)
    assert table.scan(columns=[], where="id = 2").to_spark(spark).count() == 1


def test_a_limit_counts_rows_that_are_left_of_a_merge(lake):
    t = make(lake, bucket="1", **{"write-only": "true"})
    for dt in "abc":
        t.upsert(arrow([row(i, dt=dt) for i in range(4)]))
    for _ in range(3):
        t.upsert(arrow([row(0, dt="b")]))
    t.delete(where="dt = 'a'")
    for limit, wanted in ((0, 0), (1, 1), (7, 7), (9, 8)):
        assert t.scan(limit=limit).to_arrow().num_rows == t.scan(limit=limit).count() == wanted
    t.compact(full=True)
    assert len(t.scan(limit=3).plan()) == 1
    assert t.scan(limit=3).to_arrow().num_rows == 3


def test_files_of_older_schemas_merge_with_newer_ones(table):
    table.upsert(arrow([row(1, "one"), row(2, "two")]))
    table.alter().rename_column("v", "w").add_column("x", "int").commit()
    table.upsert(pa.table({"id": [2], "dt": ["a"], "w": ["TWO"], "x": pa.array([7], pa.int32())}))
    found = table.scan(columns=["id", "w", "x"]).to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": 1, "w": "one", "x": None}, {"id": 2, "w": "TWO", "x": 7}]


def test_key_columns_of_many_types(lake):
    columns = {
        "s": pa.array(["é", "z", "Z", "", "ab" * 40]),
        "d": pa.array([Decimal("-1.50"), Decimal("10.00"), Decimal("2.00"), Decimal("0.00"), Decimal("9.99")]),
        "t": pa.array([datetime.datetime(2020 + i % 2, 1, 1, i) for i in range(5)], pa.timestamp("us")),
        "b": pa.array([True, False, True, False, True]),
        "y": pa.array([datetime.date(1969, 12, 28 + i % 3) for i in range(5)]),
    }
    keys = pa.table(columns)
    names = list(columns)
    schema = keys.schema.append(pa.field("v", pa.int32()))
    t = lake.create_table("d.k", schema, format="paimon", primary_key=names, properties={"bucket": "1"})
    for turn in range(3):
        t.upsert(keys.slice(turn).append_column("v", pa.array([turn] * (5 - turn), pa.int32())))
    found = t.scan().to_arrow()
    assert sorted(found["v"].to_pylist()) == [0, 1, 2, 2, 2]
    assert set(map(str, found.select(names).to_pylist())) == set(map(str, keys.to_pylist()))
    assert t.scan(where="s = 'Z'").to_arrow()["v"].to_pylist() == [2]


# --- buckets that grow -----------------------------------------------------------------------------------------------


def hashes(table):
    """By partition and bucket: how many hashes of keys its index holds."""
    reader = doors.store(table)
    found = manifest.read_index(reader, doors.view(table).state.document).to_pylist()
    return {(f["_PARTITION"], f["_BUCKET"]): f["_ROW_COUNT"] for f in found}


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "types", [("tinyint",), ("smallint",), ("int",), ("bigint",), ("date",), ("int", "date", "bigint")]
)
def test_spark_knows_the_buckets_of_whole_numbers_and_dates(lake, spark, types):
    """Rows of a bucket meet in one task, which writes one file: Spark hashes keys as the writer does."""
    widths = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
    chance = random.Random(str(types))
    day = datetime.date(1970, 1, 1)

    def drawn(type):
        if type == "date":
            return day + datetime.timedelta(chance.randint(-300_000, 300_000))
        limit = 1 << widths[type] - 1
        return chance.choice([-limit, limit - 1, 0, -1, chance.randrange(-limit, limit), chance.randint(-99, 99)])

    keys = sorted({tuple(map(drawn, types)) for _ in range(300)})
    names = [f"k{i}" for i in range(len(types))]
    frame = spark.createDataFrame(keys, ", ".join(f"{n} {t}" for n, t in zip(names, types, strict=True)))
    table = lake.create_table("d.t", frame.schema, primary_key=names, properties={"bucket": "7", "write-only": "true"})
    table.upsert(frame.repartition(4))
    assert len(table.inspect.files()) == 7
    assert sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist()) == keys


def test_buckets_grow_with_their_keys(lake, frame):
    t = make(lake, bucket="-1", **{"dynamic-bucket.target-row-num": "5"})
    t.upsert(frame([row(i) for i in range(7)] + [row(1, dt="b")]))
    assert sorted(hashes(t).values()) == [1, 2, 5]
    t.upsert(frame([row(i, "w") for i in range(3, 12)]))
    assert sorted(hashes(t).values()) == [1, 2, 5, 5]
    wanted = {("a", i): "w" if i >= 3 else "v" for i in range(12)} | {("b", 1): "v"}
    assert contents(t) == wanted
    assert set(t.inspect.files()["bucket"].to_pylist()) == {0, 1, 2}
    t.delete(where="id < 2 and dt = 'a'")
    t.update({"v": "'u'"}, where="id = 5")
    wanted = {k: "u" if k[1] == 5 else v for k, v in wanted.items() if k not in (("a", 0), ("a", 1))}
    assert contents(t) == wanted
    t.compact(full=True)
    t.upsert(frame([row(0, "again"), row(11, "x")]))
    wanted |= {("a", 0): "again", ("a", 11): "x"}
    assert contents(t) == wanted
    assert sorted(hashes(t).values()) == [1, 2, 5, 5]
    t.overwrite_partitions(frame([row(i, "z") for i in range(100, 103)]))
    assert sorted(hashes(t).values()) == [1, 3]
    t.upsert(frame([row(100, "y")]))
    assert contents(t) == {("a", 100): "y", ("a", 101): "z", ("a", 102): "z", ("b", 1): "v"}
    t.expire_snapshots(retain_last=1)
    t.remove_orphan_files(older_than=datetime.timedelta(days=-1))
    t.upsert(frame([row(101, "y")]))
    assert contents(t) == {("a", 100): "y", ("a", 101): "y", ("a", 102): "z", ("b", 1): "v"}
    t.truncate()
    assert hashes(t) == {}


def test_no_more_buckets_than_there_may_be(lake):
    options = {"dynamic-bucket.target-row-num": "2", "dynamic-bucket.max-buckets": "2"}
    t = make(lake, bucket="-1", **options)
    t.upsert(arrow([row(i) for i in range(20)]))
    t.upsert(arrow([row(i, "w") for i in range(20)]))
    assert set(t.inspect.files()["bucket"].to_pylist()) == {0, 1}
    assert contents(t) == {("a", i): "w" for i in range(20)}


def test_two_writers_never_put_one_key_into_two_buckets(lake, monkeypatch):
    t = make(lake, bucket="-1", **{"dynamic-bucket.target-row-num": "1"})
    t.upsert(arrow([row(1)]))
    other = lake.table("d.t")
    before_commits(monkeypatch, t, lambda: other.upsert(arrow([row(7, "theirs")])))
    with pytest.raises(Conflict, match="must not be in two"):
        t.upsert(arrow([row(8, "ours"), row(7, "ours")]))
    monkeypatch.undo()
    t.upsert(arrow([row(8, "ours"), row(7, "ours")]))
    assert contents(t) == {("a", 1): "v", ("a", 7): "ours", ("a", 8): "ours"}


def postponing(lake, **more):
    return make(lake, bucket="-2", **{"postpone.default-bucket-num": "2"} | more)


def test_rows_wait_for_a_bucket_until_they_are_compacted(lake):
    t = postponing(lake)
    t.upsert(arrow([row(i, "first") for i in range(9)] + [row(1, "other", "b")]))
    t.upsert(arrow([row(1, "a"), row(1, "b"), row(2, rowkind="-D"), row(3, rowkind="-D"), row(3, "back")]))
    assert t.scan().count() == 0
    t.compact(where="dt = 'a'")
    kept = {("a", i): "first" for i in (0, 4, 5, 6, 7, 8)} | {("a", 1): "b", ("a", 3): "back"}
    assert contents(t) == kept
    assert t.scan(where="id = 3").count() == 1
    t.compact()
    assert contents(t) == kept | {("b", 1): "other"}
    assert t.compact() is None
    t.upsert(arrow([row(4, "second"), row(9, "new")]))
    assert contents(t) == kept | {("b", 1): "other"}
    t.compact(full=True)
    assert contents(t) == kept | {("b", 1): "other", ("a", 4): "second", ("a", 9): "new"}
    t.overwrite_partitions(arrow([row(7, "over", "b")]))
    assert contents(t) == {key: v for key, v in contents(t).items() if key[0] == "a"}
    t.compact()
    assert contents(t)["b", 7] == "over"
    assert ("b", 1) not in contents(t)


def test_merges_wait_for_a_bucket_too(lake):
    t = postponing(lake)
    t.upsert(arrow([row(i, f"first {i}") for i in range(20)]))
    t.compact()
    source = arrow([row(i, "merged") for i in range(15, 25)])
    asked = t.merge_into(source, "t.id = s.id AND t.dt = s.dt").when_matched("t.id = 17").delete()
    asked.when_matched().update({"v": "s.v"}).when_not_matched().insert_all().merge()
    t.compact()
    assert contents(t) == {("a", i): f"first {i}" if i < 15 else "merged" for i in range(25) if i != 17}


def test_a_partition_keeps_the_number_of_buckets_that_its_rows_were_given(lake):
    t = postponing(lake, **{"postpone.default-bucket-num": "4"})

    def buckets():
        return {path.rsplit("/", 1)[0] for task in t.scan().plan() for path in task.paths}

    t.upsert(arrow([row(i) for i in range(40)]))
    t.compact()
    assert buckets() == {f"dt=a/bucket-{i}" for i in range(4)}
    fewer = t.alter().remove_properties("postpone.default-bucket-num")
    fewer.set_properties({"postpone.target-row-num-per-bucket": "5"}).commit()
    t.upsert(arrow([row(i, "new") for i in range(40)] + [row(i, dt="b") for i in range(9)]))
    t.compact(full=True)
    assert buckets() == {f"dt=a/bucket-{i}" for i in range(4)} | {f"dt=b/bucket-{i}" for i in range(2)}
    assert contents(t) == {("a", i): "new" for i in range(40)} | {("b", i): "v" for i in range(9)}


def test_changes_by_row_are_refused_while_rows_wait_for_a_bucket(lake):
    t = postponing(lake)
    t.upsert(arrow([row(1), row(2)]))
    t.compact()
    t.delete("id = 1")  # Waits as well.
    assert sorted(contents(t)) == [("a", 1), ("a", 2)]
    for change in (lambda: t.delete("id = 2"), lambda: t.update({"v": "'x'"}, where="id = 2")):
        with pytest.raises(InvalidInput, match="compact"):
            change()
    t.compact()
    t.update({"v": "'x'"}, where="id = 2")
    t.compact()
    assert contents(t) == {("a", 2): "x"}


def test_rows_that_are_given_buckets_meanwhile_are_a_conflict(lake):
    t = postponing(lake)
    t.upsert(arrow([row(1)]))
    t.compact()
    pinned = t.snapshots()[-1].id
    t.upsert(arrow([row(1, "late"), row(2)]))
    others = doors.view(lake.table("d.t"))
    for _ in range(2):  # They wait, then they have theirs.
        with pytest.raises(Conflict):
            t.overwrite_partitions(arrow([row(5)]), pinned_to=pinned)
        t.compact()
    change = Change(doors.store(t), others, ArrowEngine(), Request(id="late", absent_until=others.version))
    assert compact.compact(change, doors.dialect(t), False, ALWAYS, starts=2) is None
    with pytest.raises(Conflict, match="no longer"):
        compact.compact(change, doors.dialect(t), False, ALWAYS, starts=1)
    assert contents(t) == {("a", 1): "late", ("a", 2): "v"}


@pytest.mark.parametrize(
    ("properties", "rows"),
    [
        ({"merge-engine": "first-row"}, {("a", 1): ("x", 1)}),
        ({"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}, {("a", 1): ("z", 6)}),
        ({"merge-engine": "partial-update"}, {("a", 1): ("z", 3)}),
        ({"deletion-vectors.enabled": "true"}, {("a", 1): ("z", 3)}),
        ({"changelog-producer": "lookup"}, {("a", 1): ("z", 3)}),
        ({"changelog-producer": "input"}, {("a", 1): ("z", 3)}),
    ],
)
def test_rows_that_waited_are_merged_as_the_table_says(lake, properties, rows):
    t = postponing(lake, **properties)
    t.upsert(arrow([row(1, "x", n=1), row(1, "y", n=2)]))
    t.upsert(arrow([row(1, "z", n=3)]))
    t.compact()
    assert {(r["dt"], r["id"]): (r["v"], r["n"]) for r in t.scan().to_arrow().to_pylist()} == rows
    if (producer := properties.get("changelog-producer")) is not None:
        kinds = [each["_row_kind"] for each in t.changes(0).to_arrow().to_pylist()]
        assert kinds == (["+I"] if producer == "lookup" else ["+I", "+I", "+I"])


# --- rows that expire -------------------------------------------------------------------------------------------------


TOMORROW = datetime.datetime.now() + datetime.timedelta(days=1)
UTC_TOMORROW = TOMORROW.astimezone(datetime.UTC)
EXPIRING = {"record-level.expire-time": "2 d", "record-level.time-field": "at"}
LONG_AGO = datetime.datetime(2001, 10, 1)


def timed(lake, type, **properties):
    schema = pa.schema([("id", pa.int64()), ("at", type), ("v", pa.string())])
    return lake.create_table(
        "d.timed", schema, format="paimon", primary_key=["id"], properties={"bucket": "1", **properties}
    )


def at(*rows, type):
    schema = pa.schema([("id", pa.int64()), ("at", type), ("v", pa.string())])
    return pa.table(dict(zip(schema.names, map(list, zip(*rows, strict=True)), strict=True)), schema)


def living(table):
    return {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


@pytest.mark.parametrize(
    ("type", "old", "new"),
    [
        (pa.int32(), 10**9, int(UTC_TOMORROW.timestamp())),
        (pa.int64(), 10**9, int(UTC_TOMORROW.timestamp())),
        (pa.int64(), 10**12, int(UTC_TOMORROW.timestamp() * 1000)),
        (pa.timestamp("us"), LONG_AGO, TOMORROW),
        (pa.timestamp("us"), TOMORROW - datetime.timedelta(days=5), TOMORROW),
        (pa.timestamp("us", "UTC"), LONG_AGO.replace(tzinfo=datetime.UTC), UTC_TOMORROW),
    ],
    ids=["seconds", "seconds in 64 bits", "milliseconds", "timestamp", "timestamp of these days", "instant"],
)
def test_compaction_drops_rows_that_are_too_old(lake, type, old, new):
    """Readers see them until then, as with Java; also those on the highest level, where nothing else would be done."""
    t = timed(lake, type)
    t.upsert(at((1, old, "old"), (2, new, "new"), (3, None, "none"), type=type))
    t.compact(full=True)
    t.alter().set_properties(EXPIRING).commit()
    assert t.compact() is None
    assert living(t) == {1: "old", 2: "new", 3: "none"}
    t.compact(full=True)
    assert living(t) == {2: "new", 3: "none"}
    assert t.compact(full=True) is None
    t.alter().rename_column("at", "since").commit()
    assert t.inspect.options().to_pylist().count({"key": "record-level.time-field", "value": "since"}) == 1
    with pytest.raises(InvalidInput, match=r"record-level\.time-field names 'since'"):
        t.alter().drop_column("since").commit()


@pytest.mark.parametrize("marked", ["true", "false"])
def test_no_older_row_comes_to_light_where_the_newest_expires(lake, marked):
    type, new = pa.int64(), int(UTC_TOMORROW.timestamp())
    t = timed(lake, type, **EXPIRING, **{"deletion-vectors.enabled": marked})
    t.upsert(at((1, new, "v"), (2, new, "v"), type=type))
    t.compact(full=True)
    t.upsert(at((1, 10**9, "late"), type=type))
    assert living(t) == ({2: "v"} if marked == "true" else {1: "late", 2: "v"})
    t.compact(full=True)
    assert living(t) == {2: "v"}


# --- delete, update, overwrite ----------------------------------------------------------------------------------------


def test_delete_writes_rows_that_take_others_away(table):
    table.upsert(arrow([row(i, n=i) for i in range(6)]))
    made = table.delete(where="n >= 4")
    assert (made.kind, made.rows_added, made.files_removed) == ("delete", 2, 0)
    assert sorted(contents(table)) == [("a", i) for i in range(4)]
    assert table.delete(where="n = 77") is None
    table.upsert(arrow([row(5, "back")]))
    assert contents(table)["a", 5] == "back"


def test_update_writes_the_changed_rows_only(table, spark):
    table.upsert(arrow([row(i, n=i) for i in range(6)]))
    made = table.update({"v": "concat(v, '!')", "n": "n + 1"}, where="n < 2")
    assert (made.kind, made.rows_added, made.files_removed) == ("update", 2, 0)
    assert contents(table, where="v = 'v!'") == {("a", 0): "v!", ("a", 1): "v!"}
    table.update({"v": "'all'"}, spark=spark)
    assert set(contents(table).values()) == {"all"}
    with pytest.raises(InvalidInput, match="'id', which is in the primary key"):
        table.update({"id": "id + 1"})


def test_overwrites_replace_rows_and_settle_at_once(table, frame):
    table.upsert(frame([row(1, dt="a"), row(1, dt="b"), row(1, dt="c")]))
    table.upsert(frame([row(2, dt="a"), row(2, dt="b")]))
    table.overwrite_partitions(frame([row(9, "w", dt="a"), row(9, "x", dt="a")]))
    assert contents(table) == {("a", 9): "x", ("b", 1): "v", ("b", 2): "v", ("c", 1): "v"}
    settled = [f for f in table.inspect.files().to_pylist() if f["partition"] == "dt=a"]
    assert [f["level"] for f in settled] == [5]
    table.overwrite(frame([row(3, dt="b")]), partition={"dt": "b"})
    assert contents(table, where="dt = 'b'") == {("b", 3): "v"}
    with pytest.raises(OutsideScope):
        table.overwrite(frame([row(3, dt="c")]), where="dt = 'b'")
    table.drop_partitions([{"dt": "c"}])
    assert set(contents(table)) == {("a", 9), ("b", 3)}
    table.upsert(frame([row(9, "y")]))
    assert contents(table)["a", 9] == "y"
    table.truncate()
    assert contents(table) == {}


def test_rows_that_retract_do_not_settle(table):
    table.overwrite(arrow([row(1), row(1, rowkind="-D")]))
    assert levels(table) == [0]
    assert contents(table) == {}


def test_settled_files_are_counted_and_read_as_they_stand(table):
    table.overwrite(arrow([row(i, n=i) for i in range(10)]))
    assert not any(isinstance(task, MergeTask) for task in table.scan().plan())
    table.upsert(arrow([row(0, "new")]))
    assert sum(isinstance(task, MergeTask) for task in table.scan().plan()) == 1
    assert len(contents(table)) == 10


def test_rows_are_counted_if_few_of_them_must_be_read(table):
    table.overwrite(arrow([row(i, n=i) for i in range(10)]))
    assert table.scan().count_if_cheap(0) == 10
    assert table.scan(where="n < 5").count_if_cheap(9) is None
    table.upsert(arrow([row(0, "new"), row(10)]))
    read = sum(task.row_count for task in table.scan().plan() if isinstance(task, MergeTask))
    assert [table.scan().count_if_cheap(rows) for rows in (read - 1, read)] == [None, 11]
    assert table.scan(limit=3).count_if_cheap(read) == 3
    table.compact(full=True)
    assert table.scan().count_if_cheap(0) == 11


@pytest.mark.parametrize("bucket", ["2", "-1"])
def test_an_overwrite_by_row_deletes_and_writes(lake, frame, bucket):
    t = make(lake, bucket=bucket)
    t.upsert(frame([row(i, n=i) for i in range(6)] + [row(2, dt="b", n=2)]))
    made = t.overwrite(frame([row(2, "w", n=2), row(9, "w", n=2), row(4, "w", n=2)]), where="n = 2")
    assert (made.kind, made.rows_added, made.files_removed) == ("overwrite", 5, 0)
    wanted = {("a", i): "w" if i in (2, 4, 9) else "v" for i in (0, 1, 2, 3, 4, 5, 9)}
    assert contents(t) == wanted
    with pytest.raises(OutsideScope):
        t.overwrite(frame([row(1, n=3)]), where="n = 2")
    assert contents(t) == wanted
    t.overwrite(frame([row(0, n=-1)]).limit(0) if hasattr(frame([]), "limit") else arrow([]), where="n = 2 or id = 0")
    assert contents(t) == {k: v for k, v in wanted.items() if k[1] not in (0, 2, 4, 9)}
    assert t.overwrite(arrow([]), where="n = 77").rows_added == 0


def test_an_overwrite_by_row_minds_others(table, lake, monkeypatch):
    table.upsert(arrow([row(i, n=i) for i in range(4)]))
    pin, other = table.current_snapshot().id, lake.table("d.t")
    before_commits(monkeypatch, table, lambda: other.upsert(arrow([row(2, "theirs")])))
    with pytest.raises(Conflict):
        table.overwrite(arrow([row(1, "w", n=1)]), where="n between 1 and 2")
    monkeypatch.undo()
    assert contents(table)["a", 2] == "theirs"
    with pytest.raises(Conflict, match="pin anew"):
        table.overwrite(arrow([row(0, "w", n=0)]), where="n = 0", pinned_to=pin)
    table.overwrite(arrow([row(0, "w", n=0)]), where="n = 0", pinned_to=table.current_snapshot().id)
    assert contents(table)["a", 0] == "w"


def test_an_overwrite_by_row_is_refused_where_rows_cannot_go(lake):
    for index, how in enumerate(({"merge_engine": "first-row"}, {"sequence_field": "n"}, {"ignore-delete": "true"})):
        t = make(
            lake, f"d.t{index}", **{key.replace("merge_engine", "merge-engine"): value for key, value in how.items()}
        )
        t.upsert(arrow([row(1, n=2)]))
        with pytest.raises(UnsupportedFeature, match="overwrite"):
            t.overwrite(arrow([row(1, "w", n=2)]), where="n = 2")
        assert contents(t) == {("a", 1): "v"}


def test_buckets_change_by_overwrite(table):
    table.upsert(arrow([row(i) for i in range(20)]))
    table.alter().set_properties({"bucket": "4"}).commit()
    with pytest.raises(InvalidInput, match="2 buckets and the table now 4"):
        table.upsert(arrow([row(1, "new")]))
    table.overwrite(table.scan().to_arrow())
    table.upsert(arrow([row(1, "new")]))
    assert contents(table) == {("a", i): "new" if i == 1 else "v" for i in range(20)}
    assert set(table.inspect.files()["bucket"].to_pylist()) == {0, 1, 2, 3}


# --- concurrency ------------------------------------------------------------------------------------------------------


def test_an_update_loses_to_others_who_changed_rows_with_such_keys(table, lake, monkeypatch):
    table.upsert(arrow([row(i, n=i) for i in range(4)]))
    other = lake.table("d.t")

    def meanwhile(rows):
        before_commits(monkeypatch, table, lambda: other.upsert(arrow(rows)))

    meanwhile([row(2, "theirs")])
    with pytest.raises(Conflict, match="changed rows with keys as of those that were read"):
        table.update({"n": "n + 1"}, where="id between 1 and 3")
    assert contents(table)["a", 2] == "theirs"
    monkeypatch.undo()
    meanwhile([row(900, "far")])
    table.update({"n": "n + 1"}, where="id < 3")
    assert contents(table)["a", 900] == "far"


# --- compaction -------------------------------------------------------------------------------------------------------


def test_a_full_compaction_leaves_one_settled_file_and_drops_deletes(table, spark):
    for turn in range(3):
        table.upsert(arrow([row(i, f"v{turn}") for i in range(turn, 20)]))
    table.delete(where="id >= 10")
    before = contents(table)
    made = table.compact(full=True)
    assert (made.kind, made.rows_removed - made.rows_added) == ("compact", 3 * 20 - 3 + 10 - 10)
    assert contents(table) == before == {("a", i): f"v{min(i, 2)}" for i in range(10)}
    assert levels(table) == [5, 5]
    assert not any(isinstance(task, MergeTask) for task in table.scan().plan())
    assert table.compact(full=True) is None
    assert contents(table, snapshot_id=made.id - 1) == before
    table.upsert(arrow([row(3, "new"), row(50, "far", dt="b")]))
    assert table.compact(full=True, spark=spark, where="dt = 'a'").kind == "compact"
    assert contents(table) == before | {("a", 3): "new", ("b", 50): "far"}
    assert levels(table) == [0, 5, 5]


def test_compaction_waits_for_enough_sorted_runs(lake):
    t = make(lake, bucket="1", **{"write-only": "true"})
    for turn in range(4):
        t.upsert(arrow([row(turn)]))
    assert t.compact() is None
    t.upsert(arrow([row(4)]))
    assert t.compact().kind == "compact"
    assert levels(t) == [5]
    assert contents(t) == {("a", i): "v" for i in range(5)}


def kinds(table):
    return [snapshot.kind for snapshot in table.snapshots()]


def test_a_write_compacts_what_the_sorted_runs_ask_for(lake, frame):
    t = make(lake, bucket="1")
    for turn in range(4):
        t.upsert(frame([row(turn), row(turn, dt="b")] if turn < 1 else [row(turn)]))
    assert kinds(t) == ["append"] * 4
    made = t.upsert(frame([row(4)]), id="fifth")
    assert (made.kind, made.operation_id) == ("append", "fifth")
    assert kinds(t) == ["append"] * 5 + ["compact"]
    assert levels(t) == [0, 5]
    assert t.upsert(frame([row(4)]), id="fifth").id == made.id
    assert len(t.snapshots()) == 6
    assert contents(t) == {("a", i): "v" for i in range(5)} | {("b", 0): "v"}


@pytest.mark.parametrize(
    ("options", "compacts"),
    [
        ({}, False),
        ({"num-sorted-run.compaction-trigger": "2"}, True),
        ({"num-sorted-run.compaction-trigger": "2", "write-only": "true"}, False),
        ({"full-compaction.delta-commits": "3"}, True),
        ({"compaction.total-size-threshold": "1 mb"}, True),
        ({"compaction.incremental-size-threshold": "1 b"}, True),
        ({"compaction.incremental-size-threshold": "1 mb"}, False),
        ({"compaction.optimization-interval": "1 ms"}, True),
    ],
)
def test_what_makes_a_write_compact(lake, options, compacts):
    t = make(lake, bucket="1", **options)
    for turn in range(2):
        t.upsert(arrow([row(1, f"v{turn}")]))
    assert (kinds(t)[-1] == "compact") is compacts
    assert levels(t) == ([t.inspect.files()["level"][0].as_py()] if compacts else [0, 0])
    assert contents(t) == {("a", 1): "v1"}


def test_every_verb_that_writes_rows_compacts(lake):
    t = make(lake, bucket="1", **{"full-compaction.delta-commits": "1"})
    verbs = [
        lambda: t.append(arrow([row(1), row(2), row(3)])),
        lambda: t.delete("id = 1"),
        lambda: t.update({"v": "'u'"}, where="id = 2"),
        lambda: (
            t.merge_into(arrow([row(3, "m")]), on="t.id = s.id and t.dt = s.dt").when_matched().update_all().merge()
        ),
    ]
    for n, verb in enumerate(verbs, 1):
        verb()
        assert kinds(t) == ["append", "compact", "delete", "compact", "update", "compact", "merge", "compact"][: 2 * n]
        assert len(levels(t)) == 1
        assert levels(t)[0] > 0
    assert contents(t) == {("a", 2): "u", ("a", 3): "m"}
    t.overwrite(arrow([row(9)]))
    assert kinds(t)[-1] == "overwrite", "its files are where compaction would put them"


@pytest.mark.parametrize("error", [StoreError("refused"), ValueError("a bug")])
def test_a_write_stays_where_its_compaction_fails(lake, monkeypatch, caplog, error):
    t = make(lake, bucket="1", **{"full-compaction.delta-commits": "1"})

    def fails(self, store, tasks):
        raise error

    monkeypatch.setattr(ArrowEngine, "rewrite", fails)
    assert t.upsert(arrow([row(1)])).kind == "append"
    assert "failed; the next write tries again" in caplog.text
    monkeypatch.undo()
    t.upsert(arrow([row(2)]))
    assert kinds(t) == ["append", "append", "compact"]
    assert contents(t) == {("a", 1): "v", ("a", 2): "v"}


def test_a_write_gives_way_to_others_that_compact_what_it_wrote(lake, monkeypatch, caplog):
    t = make(lake, bucket="1", **{"full-compaction.delta-commits": "1"})
    other, rewrite, turns = lake.table("d.t"), ArrowEngine.rewrite, iter(["one"])

    def meanwhile(self, store, tasks):
        found = rewrite(self, store, tasks)
        for _ in turns:
            other.compact(full=True)
        return found

    monkeypatch.setattr(ArrowEngine, "rewrite", meanwhile)
    t.upsert(arrow([row(1)]))
    assert kinds(t) == ["append", "compact"]
    assert "WARNING" not in {record.levelname for record in caplog.records}
    assert contents(t) == {("a", 1): "v"}
    assert len(t.remove_orphan_files(older_than=datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1))) == 0


def test_deleted_rows_stay_while_an_older_row_may_be_below(lake):
    rules = {"num-sorted-run.compaction-trigger": "2", "num-levels": "4", "write-only": "true"}
    t = make(lake, bucket="1", **rules)
    t.overwrite(arrow([row(i, "old" * 1000 + str(i)) for i in range(3000)]))
    t.delete(where="id = 7")
    t.upsert(arrow([row(8, "new")]))
    made = t.compact()
    assert made.rows_removed == made.rows_added == 2
    assert levels(t) == [2, 3]
    found = contents(t)
    assert ("a", 7) not in found
    assert found["a", 8] == "new"
    t.compact(full=True)
    assert levels(t) == [3]
    assert contents(t) == found


def test_large_files_without_shared_keys_are_lifted(lake):
    t = make(lake, bucket="1", **{"compaction.file-size": "1 b"})
    t.overwrite(arrow([row(i) for i in range(100, 110)]))
    t.alter().set_properties({"num-levels": "8"}).commit()
    t.upsert(arrow([row(i) for i in range(10)]))
    t.upsert(arrow([row(i, "w") for i in range(10)]))
    paths = set(t.inspect.files()["path"].to_pylist())
    made = t.compact(full=True)
    assert len(paths & set(t.inspect.files()["path"].to_pylist())) == 1
    assert levels(t) == [7, 7]
    assert (made.rows_removed, made.rows_added) == (30, 20)
    assert contents(t) == {("a", i): "w" if i < 10 else "v" for i in (*range(10), *range(100, 110))}
    t.expire_snapshots(retain_last=1)
    assert contents(t) == {("a", i): "w" if i < 10 else "v" for i in (*range(10), *range(100, 110))}


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_file_of_level_0_is_lifted_as_it_is(lake, file_format):
    t = make(lake, bucket="1", **{"file.format": file_format, "changelog-producer": "input", "write-only": "true"})
    t.upsert(arrow([row(i) for i in range(20)]))
    (path,) = t.inspect.files()["path"].to_pylist()
    made = t.compact(full=True)
    assert (made.files_added, made.files_removed, levels(t)) == (1, 1, [5])
    assert t.inspect.files()["path"].to_pylist() == [path]
    assert not any(isinstance(task, MergeTask) for task in t.scan().plan())
    t.upsert(arrow([row(50)]))
    t.expire_snapshots(retain_last=1)
    t.remove_orphan_files(older_than=datetime.timedelta(days=-1))
    assert contents(t) == {("a", i): "v" for i in (*range(20), 50)}
    t.compact(full=True)
    assert levels(t) == [5]
    assert contents(t) == {("a", i): "v" for i in (*range(20), 50)}


def test_a_file_of_level_0_with_a_key_in_it_twice_is_written_again(lake):
    t = make(lake, bucket="1")
    t.upsert(arrow([row(1, "old"), row(2, "new"), row(3)]))
    (path,) = t.inspect.files()["path"].to_pylist()
    file = f"{t.uri.removeprefix('file://')}/{path}"
    found = pq.read_table(file)
    for name in ("_KEY_id", "id"):
        column = pa.array([1, 1, 3], pa.int64())
        found = found.set_column(found.column_names.index(name), found.schema.field(name), column)
    pq.write_table(found, file)
    t.compact(full=True)
    assert t.inspect.files()["path"].to_pylist() != [path]
    assert levels(t) == [5]
    assert contents(t) == {("a", 1): "new", ("a", 3): "v"}


def test_what_is_not_lifted_from_level_0(lake):
    def lifts(name, change=None, **properties):
        t = make(lake, name, bucket="1", **{"write-only": "true", **properties})
        t.upsert(arrow([row(i) for i in range(3)]))
        if change:
            change(t)
        before = set(t.inspect.files()["path"].to_pylist())
        rows = contents(t)
        t.compact(full=True)
        assert contents(t) == rows or "deletion-vectors.enabled" in properties
        assert set(levels(t)) == {5}
        return before >= set(t.inspect.files()["path"].to_pylist())

    assert lifts("d.plain")
    assert not lifts("d.kinds", lambda t: t.upsert(arrow([row(7, rowkind="-D"), row(8)])))
    assert not lifts("d.shared", lambda t: t.upsert(arrow([row(2)])))
    assert not lifts("d.small", lambda t: t.upsert(arrow([row(9)])))
    assert not lifts("d.lookup", **{"changelog-producer": "lookup"})
    assert not lifts("d.full", **{"changelog-producer": "full-compaction"})
    assert lifts("d.marked", **{"deletion-vectors.enabled": "true"})
    assert lifts("d.large", lambda t: t.upsert(arrow([row(9)])), **{"compaction.file-size": "1 b"})


def test_files_that_were_lifted_survive_expiry(lake):
    t = make(lake, bucket="1", **{"compaction.file-size": "1 b"})
    t.overwrite(arrow([row(i) for i in range(10)]))
    t.alter().set_properties({"num-levels": "8"}).commit()
    (path,) = t.inspect.files()["path"].to_pylist()
    made = t.compact(full=True)
    assert (made.files_added, made.files_removed, levels(t)) == (1, 1, [7])
    assert t.inspect.files()["path"].to_pylist() == [path]
    t.append(arrow([row(50)]))
    gone = t.expire_snapshots(retain_last=1)
    assert len(gone.snapshots) == 2
    assert not [p for wave in gone.waves for p in wave if p.endswith(".parquet")]
    assert len(contents(t)) == 11


def test_a_compaction_keeps_the_buckets_of_what_it_reads(table):
    table.upsert(arrow([row(i) for i in range(20)]))
    table.upsert(arrow([row(i, "w") for i in range(20)]))
    table.alter().set_properties({"bucket": "4"}).commit()
    table.compact(full=True)
    assert set(table.inspect.files()["bucket"].to_pylist()) == {0, 1}
    assert contents(table) == {("a", i): "w" for i in range(20)}
    with pytest.raises(InvalidInput, match="2 buckets and the table now 4"):
        table.upsert(arrow([row(1)]))


def test_a_compaction_does_not_mind_writers_beside_it(lake, monkeypatch):
    table = make(lake, **{"write-only": "true"})
    for turn in range(3):
        table.upsert(arrow([row(i, f"v{turn}") for i in range(5)]))
    other = lake.table("d.t")
    rewrite, turns = ArrowEngine.rewrite, iter(["one"])

    def meanwhile(self, store, tasks):
        for _ in turns:
            other.upsert(arrow([row(1, "newest")]))
            other.delete(where="id = 2")
        return rewrite(self, store, tasks)

    monkeypatch.setattr(ArrowEngine, "rewrite", meanwhile)
    table.compact(full=True)
    assert contents(table) == {("a", 0): "v2", ("a", 1): "newest", ("a", 3): "v2", ("a", 4): "v2"}
    assert 0 in levels(table)


def test_a_file_is_not_lifted_onto_keys_of_its_own_on_that_level(lake):
    t = make(lake, bucket="1")
    t.overwrite(arrow([row(i) for i in range(10)]))
    t.upsert(arrow([row(3, "new")]))
    t.upsert(arrow([row(100)]))
    above = {f["max_sequence_number"]: f["path"] for f in t.inspect.files().to_pylist() if f["level"] == 0}
    shared, alone = (above[number] for number in sorted(above))

    def lift(path):
        request = Request(id=f"lift {path}", absent_until=t.current_snapshot().id, schema_id=t.schema.id)
        return doors.runner(t).commit(
            doors.view(t), Rewrite(request=request, removed=(), added=(), upgraded=((path, 5),))
        )

    with pytest.raises(Conflict, match="on the same level"):
        lift(shared)
    lift(alone)
    assert levels(t) == [0, 5, 5]
    assert contents(t) == {("a", i): "new" if i == 3 else "v" for i in (*range(10), 100)}


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "how",
    [
        {"merge-engine": "partial-update", "ignore-delete": "true"},
        {"merge-engine": "partial-update", "fields.n.sequence-group": "v"},
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.v.aggregate-function": "listagg"},
        {"merge-engine": "first-row"},
    ],
    ids=lambda how: "/".join(how.values()),
)
@pytest.mark.parametrize("seed", range(3))
def test_compaction_changes_no_row_whatever_the_merge_engine(lake, how, seed):
    chance = random.Random(seed)
    t = make(lake, bucket="1", **{"num-sorted-run.compaction-trigger": "2", "num-levels": "4", **how})

    def rows():
        return t.scan().to_arrow().sort_by([("dt", "ascending"), ("id", "ascending")]).to_pylist()

    for turn in range(8):
        long = "x" * (3000 if turn == 0 else 1)
        t.upsert(
            arrow(
                [
                    row(
                        chance.randrange(8),
                        chance.choice([None, f"{long}{turn}"]),
                        n=chance.choice([None, turn, 9 - turn]),
                    )
                    for _ in range(5)
                ]
            )
        )
        before = rows()
        t.compact(full=turn == 5)
        assert rows() == before, (seed, turn)
    assert len(before) > 3


def test_names_with_dots_in_every_verb(lake, frame):
    """Spark takes them for parts of columns, and `mapInArrow` refuses them."""
    names = ["i.d", "d.t", "v.w"]
    schema = pa.schema([(names[0], pa.int64()), (names[1], pa.string()), (names[2], pa.string())])

    def data(*given):
        found = frame([row(id, v, dt) for id, dt, v in given])
        if isinstance(found, pa.Table):
            return found.select(["id", "dt", "v"]).rename_columns(names)
        return found.select("id", "dt", "v").toDF(*names)

    def held(t):
        return sorted(tuple(each.values()) for each in t.scan().to_arrow().to_pylist())

    for bucket in ("2", "-1"):
        t = lake.create_table(
            f"d.keyed{bucket.strip('-')}",
            schema,
            partition_by=["d.t"],
            primary_key=["i.d", "d.t"],
            properties={"bucket": bucket},
        )
        t.upsert(data((1, "a", "x"), (2, "a", "y"), (3, "b", "z")))
        t.upsert(data((1, "a", "X")))
        t.delete("`i.d` = 3")
        t.update({"v.w": "'U'"}, where="`v.w` = 'y'")
        t.compact(full=True)
        assert held(t) == [(1, "a", "X"), (2, "a", "U")]
        t.overwrite_partitions(data((4, "a", "n")))
        assert held(t) == [(4, "a", "n")]
    for format in ("paimon", "iceberg"):
        t = lake.create_table(f"d.{format}", schema, format=format, partition_by=["d.t"])
        t.append(data((1, "a", "x"), (2, "b", "y")))
        t.overwrite(data((3, "b", "z")), where="`d.t` = 'b'")
        assert held(t) == [(1, "a", "x"), (3, "b", "z")]


# --- floats as keys ---------------------------------------------------------------------------------------------------


FLOAT_KEYS = [0.0, -0.0, 1.5, -math.inf, math.nan, -math.nan]  # -math.nan has other bits, as 0.0 / 0.0 has on x86.


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "properties",
    [
        {"bucket": "1"},
        {"bucket": "-1", "dynamic-bucket.target-row-num": "1"},
        {"bucket": "3", "deletion-vectors.enabled": "true"},
        {"bucket": "1", "changelog-producer": "lookup"},
        {"bucket": "1", "changelog-producer": "full-compaction"},
        {"bucket": "1", "changelog-producer": "lookup", "merge-engine": "first-row"},
        {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"},
    ],
    ids=lambda properties: " ".join(properties.values()),
)
def test_keys_that_are_floats_are_told_apart_as_in_java(lake, properties, seed):
    """-0.0 and 0.0 are two keys, and NaN is one, whatever its bits."""
    chance = random.Random(seed)
    schema = pa.schema([("x", pa.float64()), ("k", pa.int32()), ("v", pa.string())])
    table = lake.create_table("d.f", schema, format="paimon", primary_key=["x", "k"], properties=properties)
    engine, model = properties.get("merge-engine"), {}
    for step in range(4):
        keys = [(x, k) for x in chance.sample(FLOAT_KEYS, 4) for k in (1, 2)]
        table.upsert(pa.table({"x": [x for x, _ in keys], "k": [k for _, k in keys], "v": [str(step)] * 8}, schema))
        for key in dict.fromkeys((str(x).lstrip("-") if math.isnan(x) else str(x), k) for x, k in keys):
            # Both NaNs of one write are one row of it.
            times = sum(math.isnan(x) for x, k in keys if k == key[1]) if key[0] == "nan" else 1
            match engine:
                case "first-row":
                    model.setdefault(key, str(step))
                case "aggregation":
                    model[key] = ",".join([*filter(None, [model.get(key)]), *[str(step)] * times])
                case _:
                    model[key] = str(step)
        if chance.random() < 0.7:
            table.compact(full=True)
    table.compact(full=True)
    rows = [((str(row["x"]), row["k"]), row["v"]) for row in table.scan().to_arrow().to_pylist()]
    assert sorted(rows) == sorted(model.items())
    if "changelog-producer" in properties:
        followed = {}
        for row in table.changes(0).to_arrow().to_pylist():
            key = str(row["x"]), row["k"]
            if row["_row_kind"] in ("+I", "+U"):
                assert (key in followed) == (row["_row_kind"] == "+U"), row
                followed[key] = row["v"]
            else:
                assert followed[key] == row["v"], row
        assert followed == model
