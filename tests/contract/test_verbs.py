"""What every verb promises, whatever the format and the engine."""

import datetime
import os
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import (
    AlreadyExists,
    Conflict,
    InvalidInput,
    Lake,
    NotFound,
    OutsideScope,
    UnsupportedFeature,
)
from tests.unit import hive_files

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])


@pytest.fixture(params=["arrow", "spark"])
def frame(request):
    """Rows as the engine's own kind of frame: an Arrow table stays here, a Spark frame goes through Spark."""
    if request.param == "arrow":
        return lambda rows: pa.Table.from_pylist(rows, SCHEMA)
    spark = request.getfixturevalue("spark")

    def make(rows):
        return spark.createDataFrame([(r["id"], r["v"], r["dt"]) for r in rows], "id bigint, v string, dt string")

    return make


class Warehouse(Lake):
    """A warehouse that makes tables of one format unless the test names another."""

    def __init__(self, uri, made_as):
        super().__init__(uri)
        self.made_as = made_as

    def create_table(self, name, schema, format=None, **how):
        return super().create_table(name, schema, format=format or self.made_as, **how)


def only(format):
    """A test of what one format alone has; what the others have instead is tested beside it."""
    return pytest.mark.parametrize("format", [format], indirect=True)


def notyet(format, reason):
    """A gap is written down, and fails when it closes."""
    return pytest.mark.notyet(format, reason)


@pytest.fixture(autouse=True)
def gap(request):
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    for mark in request.node.iter_markers("notyet"):
        if parameters.get("format") == mark.args[0]:
            request.applymarker(pytest.mark.xfail(strict=True, reason=mark.args[1]))


@pytest.fixture(params=["paimon", "iceberg"])
def format(request):
    return request.param


@pytest.fixture
def lake(tmp_path, format):
    return Warehouse(str(tmp_path / "warehouse"), format)


@pytest.fixture
def table(lake):
    return lake.create_table("shop.orders", SCHEMA, partition_by=["dt"])


def row(id, dt, v="v"):
    return {"id": id, "v": v, "dt": dt}


def ids(table, **how):
    return sorted(table.scan(columns=["id"], **how).to_arrow()["id"].to_pylist())


def nth(table, number):
    """The id of the `number`-th snapshot that led to the current one, counted from 1."""
    return table.snapshots()[number - 1].id


def partition_files(table):
    files = table.inspect.files()
    found = {}
    for partition, path in zip(files["partition"].to_pylist(), files["path"].to_pylist(), strict=True):
        found.setdefault(partition, set()).add(path)
    return found


# --- append -----------------------------------------------------------------------------------------------------------


def test_append_adds_rows_in_one_snapshot_and_says_what_it_did(table, frame):
    made = table.append(frame([row(1, "a"), row(2, "b"), row(3, "a")]))
    assert (made.kind, made.rows_added, made.rows_removed, made.total_rows) == ("append", 3, 0, 3)
    assert [s.id for s in table.snapshots()] == [made.id] == [table.current_snapshot().id]
    assert {p.values: p.rows_added for p in made.partitions} == {("a",): 2, ("b",): 1}
    assert made.files_added >= 2
    assert made.attempts == 1
    assert ids(table) == [1, 2, 3]


def test_append_of_no_rows_makes_no_snapshot(table, frame):
    assert table.append(frame([])) is None
    assert table.snapshots() == []


def test_append_matches_columns_by_name_and_fills_what_is_left_out(lake):
    t = lake.create_table("d.t", SCHEMA)
    t.append(pa.table({"dt": ["x"], "id": [1]}))
    assert t.scan().to_arrow().to_pylist() == [{"id": 1, "v": None, "dt": "x"}]


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"id": [1], "nonsense": [2]}),
        pa.table({"id": ["text"], "v": ["x"], "dt": ["y"]}),
        pa.table({"id": pa.array([2**63 - 1], pa.uint64()), "v": [["x"]], "dt": ["y"]}),
        42,
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name_and_leave_no_file(table, tmp_path, data):
    with pytest.raises(InvalidInput):
        table.append(data)
    assert table.snapshots() == []
    assert not list((tmp_path / "warehouse").rglob("*.parquet"))


# --- overwrite --------------------------------------------------------------------------------------------------------


def test_dynamic_overwrite_replaces_the_partitions_of_its_rows_and_no_other(table, frame):
    table.append(frame([row(1, "a"), row(2, "b"), row(3, "c")]))
    before = partition_files(table)
    made = table.overwrite_partitions(frame([row(10, "a"), row(11, "b")]))
    assert (made.kind, made.rows_added, made.rows_removed) == ("overwrite", 2, 2)
    assert ids(table) == [3, 10, 11]
    assert partition_files(table)["dt=c"] == before["dt=c"]


def test_dynamic_overwrite_without_rows_changes_nothing(table, frame):
    table.append(frame([row(1, "a")]))
    assert table.overwrite_partitions(frame([])) is None
    assert len(table.snapshots()) == 1
    assert ids(table) == [1]


def test_dynamic_overwrite_of_an_unpartitioned_table_replaces_its_rows(lake, frame):
    t = lake.create_table("d.t", SCHEMA)
    t.append(frame([row(1, "a"), row(2, "b")]))
    t.overwrite_partitions(frame([row(3, "c")]))
    assert ids(t) == [3]


@pytest.mark.parametrize("partition_by", ["months(day)", "bucket(64, id)", "truncate(1, v)"])
def test_partitions_of_transformed_values_are_overwritten(tmp_path, partition_by):
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.date32())])
    t = Lake(tmp_path).create_table("d.t", schema, format="iceberg", partition_by=[partition_by])
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)]
    t.append(pa.table({"id": [1, 2], "v": ["a", "b"], "day": days}, schema=schema))
    made = t.overwrite_partitions(pa.table({"id": [1], "v": ["anew"], "day": days[:1]}, schema=schema))
    assert (made.rows_added, made.rows_removed) == (1, 1)
    assert sorted(t.scan(["v"]).to_arrow()["v"].to_pylist()) == ["anew", "b"]


def test_declared_partition_without_rows_becomes_empty(table, frame):
    table.append(frame([row(1, "a"), row(2, "b"), row(3, "c")]))
    made = table.overwrite_partitions(frame([row(10, "a")]), partitions=[{"dt": "a"}, {"dt": "b"}])
    assert ids(table) == [3, 10]
    assert {p.values: p.rows_removed for p in made.partitions} == {("a",): 1, ("b",): 1}


def test_row_outside_the_declared_partitions_is_refused_and_nothing_is_committed(table, frame):
    table.append(frame([row(1, "a")]))
    with pytest.raises(OutsideScope, match="'b'"):
        table.overwrite_partitions(frame([row(10, "a"), row(11, "b")]), partitions=[{"dt": "a"}])
    assert len(table.snapshots()) == 1
    assert ids(table) == [1]


def test_static_overwrite_of_one_partition_without_rows_empties_it_in_a_snapshot(table, frame):
    table.append(frame([row(1, "a"), row(2, "b")]))
    made = table.overwrite(frame([]), partition={"dt": "a"})
    assert made.id == nth(table, 2)
    assert ids(table) == [2]
    again = table.overwrite(frame([]), partition={"dt": "a"})
    assert again.id == nth(table, 3)  # A snapshot is always made.


def test_static_overwrite_with_a_row_outside_is_refused(table, frame):
    with pytest.raises(OutsideScope):
        table.overwrite(frame([row(1, "b")]), partition={"dt": "a"})
    assert table.snapshots() == []


def test_static_overwrite_by_partial_spec_replaces_all_matching_partitions(lake):
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("hour", pa.int32())])
    t = lake.create_table("d.t", schema, partition_by=["day", "hour"])
    day1, day2 = datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)
    t.append(pa.table({"id": [1, 2, 3], "day": [day1, day1, day2], "hour": [0, 1, 0]}, schema=schema))
    t.overwrite(pa.table({"id": [9], "day": [day1], "hour": [5]}, schema=schema), partition={"day": "2024-01-01"})
    assert ids(t) == [3, 9]
    assert t.scan(where="day = date '2024-01-01'").to_arrow()["hour"].to_pylist() == [5]


def test_overwrite_of_the_whole_table(table, frame):
    table.append(frame([row(1, "a"), row(2, "b")]))
    table.overwrite(frame([row(3, "c")]))
    assert ids(table) == [3]
    table.overwrite(frame([row(4, "c")]), partition={})
    assert ids(table) == [4]
    assert table.overwrite(frame([])).rows_removed == 1
    assert ids(table) == []


def test_overwrite_where_on_whole_partitions_and_on_rows(table, frame):
    table.append(frame([row(1, "a"), row(2, "a"), row(3, "b")]))
    table.overwrite(frame([row(10, "b")]), where="dt >= 'b'")
    assert ids(table) == [1, 2, 10]
    made = table.overwrite(frame([row(2, "a", "new")]), where="id = 2")
    assert (made.kind, made.id) == ("overwrite", nth(table, 3))
    assert ids(table) == [1, 2, 10]
    assert table.scan(where="id = 2").to_arrow()["v"].to_pylist() == ["new"]
    with pytest.raises(OutsideScope):
        table.overwrite(frame([row(3, "a")]), where="id = 2")
    assert len(table.snapshots()) == 3


def test_truncate_and_drop_partitions_always_make_a_snapshot(table, frame):
    table.append(frame([row(1, "a"), row(2, "b"), row(3, "c")]))
    dropped = table.drop_partitions([{"dt": "a"}, {"dt": "zzz"}])
    assert (dropped.rows_removed, ids(table)) == (1, [2, 3])
    emptied = table.truncate()
    assert (emptied.kind, emptied.rows_removed, ids(table)) == ("truncate", 2, [])
    assert table.truncate().id == nth(table, 4)


def test_readers_of_an_old_snapshot_keep_their_view_after_an_overwrite(table, frame):
    table.append(frame([row(1, "a")]))
    old = table.scan()
    table.overwrite(frame([row(2, "a")]))
    assert old.to_arrow()["id"].to_pylist() == [1]
    assert ids(table, snapshot_id=nth(table, 1)) == [1]


NANOSECONDS = pa.timestamp("ns")


@pytest.mark.parametrize(
    ("type", "given", "declared"),
    [
        (pa.timestamp("us"), datetime.datetime(2013, 1, 5, 6, 7, 8, 9), datetime.datetime(2013, 1, 5, 6, 7, 8, 9)),
        (pa.timestamp("ms"), datetime.datetime(1913, 1, 5, 6), "1913-01-05 06:00:00"),
        (pa.timestamp("us", "UTC"), datetime.datetime(2013, 1, 5, tzinfo=datetime.UTC), "2013-01-05"),
        (NANOSECONDS, datetime.datetime(2013, 1, 5, 6, 7, 8, 9), "2013-01-05 06:07:08.000009"),
        (pa.time32("ms"), datetime.time(1, 2, 3), "01:02:03"),
        (pa.date32(), datetime.date(2013, 1, 5), "2013-01-05"),
        (pa.decimal128(10, 2), Decimal("1.50"), "1.5"),
        (pa.int16(), -3, -3),
        (pa.bool_(), True, True),
        (pa.float64(), 1e10, 1e10),
    ],
    ids=str,
)
def test_partitions_of_every_type_are_overwritten_declared_and_dynamic(lake, format, type, given, declared):
    schema = pa.schema([("id", pa.int64()), ("k", type)])
    properties = {"format-version": "3"} if (format, type) == ("iceberg", NANOSECONDS) else {}
    t = lake.create_table("d.t", schema, partition_by=["k"], properties=properties)
    t.append(pa.table({"id": [1, 2], "k": pa.array([given, None], type)}))
    t.overwrite_partitions(pa.table({"id": [3], "k": pa.array([given], type)}), partitions=[{"k": declared}])
    assert ids(t) == [2, 3]
    t.overwrite_partitions(pa.table({"id": [4], "k": pa.array([given], type)}))
    assert ids(t) == [2, 4]
    with pytest.raises(OutsideScope):
        t.overwrite_partitions(pa.table({"id": [5], "k": pa.array([None], type)}), partitions=[{"k": declared}])
    t.overwrite_partitions(pa.table({"id": [5], "k": pa.array([None], type)}), partitions=[{"k": None}])
    assert ids(t) == [4, 5]
    t.drop_partitions([{"k": declared}])
    assert ids(t) == [5]


# --- pinned, exactly once ---------------------------------------------------------------------------------------------


def test_last_writer_wins_by_default(table, frame):
    table.append(frame([row(1, "a")]))
    table.append(frame([row(2, "a")]))
    table.overwrite_partitions(frame([row(3, "a")]))
    assert ids(table) == [3]


def test_pinned_overwrite_fails_when_anyone_wrote_to_its_scope_since(table, frame):
    table.append(frame([row(1, "a"), row(2, "b")]))
    read_at = table.current_snapshot().id
    table.append(frame([row(3, "a")]))
    with pytest.raises(Conflict, match=f"snapshot {nth(table, 2)}"):
        table.overwrite_partitions(frame([row(10, "a")]), pinned_to=read_at)
    with pytest.raises(Conflict):
        table.overwrite(frame([row(10, "a")]), partition={"dt": "a"}, pinned_to=read_at)
    with pytest.raises(Conflict):
        table.overwrite(frame([row(1, "a")]), where="id = 1", pinned_to=read_at)
    assert ids(table) == [1, 2, 3]
    table.overwrite_partitions(frame([row(11, "b")]), pinned_to=read_at)  # Nobody touched b.
    assert ids(table) == [1, 3, 11]


def test_pinned_overwrite_does_not_mind_a_compaction(table, frame):
    for i in range(3):
        table.append(frame([row(i, "a")]))
    read_at = table.current_snapshot().id
    assert table.compact(full=True).kind == "compact"
    table.overwrite_partitions(frame([row(10, "a")]), pinned_to=read_at)
    assert ids(table) == [10]


def test_pinned_to_a_snapshot_that_expired_is_a_conflict(table, frame):
    for i in range(4):
        table.append(frame([row(i, "a")]))
    first = nth(table, 1)
    table.expire_snapshots(retain_last=1)
    with pytest.raises(Conflict, match="history"):
        table.overwrite(frame([row(9, "a")]), pinned_to=first)


LACKING = {"id": [1, 2], "v": ["a", "b"]}
LACKING_FORMS = {
    "arrow": lambda: pa.table(LACKING),
    "batches": lambda: iter(pa.table(LACKING).to_batches()),
    "reader": lambda: pa.table(LACKING).to_reader(),
    "dict": lambda: LACKING,
    "dicts": lambda: [{"id": 1, "v": "a"}],
    "some dicts": lambda: [row(1, "x"), {"id": 2, "v": "b"}],
    "pandas": lambda: pa.table(LACKING).to_pandas(),
    "polars": lambda: pl.from_arrow(pa.table(LACKING)),
}


def verbs_of_rows(table):
    """Every verb that takes rows, by name."""
    return {
        "append": table.append,
        "overwrite_partitions": table.overwrite_partitions,
        "declared": lambda data: table.overwrite_partitions(data, partitions=[{"dt": None}]),
        "overwrite": table.overwrite,
        "overwrite where": lambda data: table.overwrite(data, where="id > 0"),
        "upsert": table.upsert if table.schema.primary_key else table.append,
        "stream": lambda data: table.stream("job").write_batch(data, 1),
        "insert_all": lambda data: table.merge_into(data, on="t.id = s.id").when_not_matched().insert_all().merge(),
        "insert": lambda data: (
            table.merge_into(data, on="t.id = s.id").when_not_matched().insert({"id": "s.id", "v": "s.v"}).merge()
        ),
    }


@pytest.mark.parametrize("key", [(), ("id", "dt"), ("id",)], ids=["", "keyed", "crossing"])
def test_rows_without_a_partition_column_are_refused(lake, format, key):
    given = {"dt": pa.field("dt", pa.string(), nullable="dt" not in key)}
    schema = pa.schema([given.get(field.name, field) for field in SCHEMA])
    table = lake.create_table("d.t", schema, partition_by=["dt"], primary_key=list(key))
    table.append([row(7, "x")])
    before = len(table.snapshots())
    for verb, write in verbs_of_rows(table).items():
        for form, make in LACKING_FORMS.items():
            if (key == ("id",) and format == "iceberg" and verb == "stream") or (verb == "insert" and "dicts" in form):
                continue  # Keys that may change partitions are not for equality deletes.
            with pytest.raises(InvalidInput, match=r"'dt'|t\.dt|s\.dt|columns? dt") as raised:
                write(make())
            assert "dt" in str(raised.value), (verb, form)
    assert len(table.snapshots()) == before
    if not key:
        assert table.append([row(8, None)]).rows_added == 1  # Said, and so meant.
    update = table.merge_into([{"id": 7, "v": "new"}], on="t.id = s.id" + " and t.dt = 'x'" * bool(key))
    update.when_matched().update({"v": "s.v"}).merge()
    assert table.scan(where="id = 7").to_arrow()["v"].to_pylist() == ["new"]


@pytest.mark.spark
def test_spark_frames_without_a_partition_column_are_refused(table, spark):
    frame = spark.createDataFrame([(1, "a")], "id bigint, v string")
    for verb, write in verbs_of_rows(table).items():
        with pytest.raises(InvalidInput, match=r"'dt'|t\.dt|s\.dt"):
            write(frame)
        assert table.snapshots() == [], verb


def test_rows_without_a_partition_column_that_has_a_default_get_that(lake, format):
    table = lake.create_table(
        "d.t",
        SCHEMA,
        partition_by=["dt"],
        properties={"format-version": "3"} if format == "iceberg" else {},
    )
    table.alter().change_default("dt", "x").commit()
    table.append(LACKING)
    merge = table.merge_into({"id": [3]}, on="t.id = s.id").when_not_matched().insert({"id": "s.id"})
    merge.merge()
    table.overwrite_partitions({"id": [4]}, partitions=[{"dt": "y"}, {"dt": "x"}])
    assert table.scan().to_arrow().to_pylist() == [{"id": 4, "v": None, "dt": "x"}]


def test_the_named_index_of_a_pandas_frame_is_a_column(lake, table):
    rows = pa.Table.from_pylist([row(1, "a"), row(2, "b")], SCHEMA).to_pandas()
    table.append(rows.set_index("id"))
    table.append(rows.assign(id=[3, 4]).set_index(["id", "dt"]))
    table.append(rows.assign(id=[5, 6]).set_index("id", append=True))
    table.append(rows.assign(id=[7, 8]))
    assert ids(table) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert table.scan(where="dt is null").count() == 0
    merge = table.merge_into(rows.assign(v="new").set_index("id"), on="t.id = s.id").when_matched().update_all()
    merge.merge()
    assert table.scan(where="v = 'new'").count() == 2
    with pytest.raises(InvalidInput, match="index is called 'id', and so is another column"):
        table.append(rows.set_index("id", drop=False))
    with pytest.raises(InvalidInput, match="column 'at' is not in the table"):
        table.append(rows.rename_axis("at"))


FIGURES = ("files_added", "files_removed", "rows_added", "rows_removed", "bytes_added", "bytes_removed")


@pytest.mark.parametrize("properties", [{}, {"format-version": "3"}], ids=["", "version 3"])
def test_history_says_what_each_snapshot_changed_or_that_it_does_not_know(lake, format, properties):
    if format == "iceberg":
        properties = properties | {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update")}
    elif properties:
        properties = {"deletion-vectors.enabled": "true"}
    table = lake.create_table("d.t", SCHEMA, partition_by=["dt"], properties=properties)

    def rows(*ids):
        return pa.Table.from_pylist([row(id, "ab"[id % 2]) for id in ids], SCHEMA)

    made = [
        table.append(rows(*range(8))),
        table.append(rows(*range(8, 12))),
        table.delete("id in (1, 2)"),
        table.delete("id in (1, 3)"),
        table.update({"v": "'w'"}, where="id = 8"),
        table.compact(full=True),
        table.overwrite_partitions(rows(1, 3)),
        table.truncate(),
    ]
    snapshots = table.snapshots()
    assert [snapshot.id for snapshot in snapshots] == [snapshot.id for snapshot in made]
    for exact, from_history in zip(made, snapshots, strict=True):
        assert from_history.partitions is None
        assert table.snapshot(exact.id).partitions == exact.partitions
        for name in FIGURES:
            assert getattr(exact, name) is not None
            assert getattr(from_history, name) in (None, getattr(exact, name)), (exact.kind, name)
    known = [snapshot.rows_added for snapshot in snapshots]
    assert known[:2] == [8, 4]
    assert (known == [snapshot.rows_added for snapshot in made]) is (format == "iceberg")
    assert (snapshots[0].files_removed, snapshots[0].rows_removed, snapshots[0].bytes_removed) == (0, 0, 0)


def test_asking_again_with_the_same_id_changes_nothing_and_returns_the_same_snapshot(table, frame):
    first = table.append(frame([row(1, "a")]), id="job/1", properties={"run": "7", "note": ""})
    table.append(frame([row(2, "b")]))
    again = table.append(frame([row(1, "a")]), id="job/1")
    assert (again.id, again.rows_added, again.partitions) == (first.id, 1, first.partitions)
    assert again.properties == {"run": "7", "note": ""}
    assert ids(table) == [1, 2]
    assert table.overwrite_partitions(frame([row(5, "a")]), id="job/2").id == nth(table, 3)
    assert table.overwrite_partitions(frame([row(5, "a")]), id="job/2").id == nth(table, 3)
    assert len(table.snapshots()) == 3


# --- delete and update ------------------------------------------------------------------------------------------------


def test_delete_by_row_rewrites_only_files_with_a_match(table, frame):
    table.append(frame([row(1, "a"), row(2, "a"), row(3, "b")]))
    before = partition_files(table)
    made = table.delete("id = 2")
    assert (made.kind, made.rows_removed - made.rows_added) == ("delete", 1)
    assert ids(table) == [1, 3]
    assert partition_files(table)["dt=b"] == before["dt=b"]
    assert table.delete("id = 99") is None


def test_delete_keeps_rows_for_which_the_condition_is_null(table, frame):
    table.append(frame([row(1, "a", None), row(2, "a", "x")]))
    table.delete("v = 'x'")
    assert ids(table) == [1]
    assert table.delete("v <> 'x'") is None


def test_delete_of_whole_partitions_reads_no_data(table, frame, tmp_path):
    table.append(frame([row(1, "a"), row(2, "b")]))
    for path in (tmp_path / "warehouse").rglob("*.parquet"):
        path.write_bytes(b"")
    made = table.delete("dt = 'a'")
    assert (made.files_added, made.files_removed) == (0, 1)


def test_update_sees_the_old_row_and_moves_rows_between_partitions(table, frame):
    table.append(frame([row(1, "a", "x"), row(2, "a", "y"), row(3, "b", "z")]))
    made = table.update({"id": "id + 10", "v": "concat(v, cast(id as string))"}, where="id < 3")
    assert made.kind == "update"
    assert ids(table) == [3, 11, 12]
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == ["x1", "y2", "z"]
    table.update({"dt": "'b'"}, where="id = 11")
    assert ids(table, where="dt = 'b'") == [3, 11]
    assert table.update({"v": "'q'"}, where="id = 99") is None


def test_delete_and_update_through_spark_do_the_same(table, spark):
    table.append(pa.Table.from_pylist([row(i, "ab"[i % 2]) for i in range(10)], SCHEMA))
    table.delete("id % 4 = 0", spark=spark)
    table.update({"v": "upper(v)"}, where="id > 5", spark=spark)
    found = table.scan().to_arrow().sort_by("id").to_pydict()
    assert found["id"] == [1, 2, 3, 5, 6, 7, 9]
    assert found["v"] == ["v", "v", "v", "v", "V", "V", "V"]


# --- reading ----------------------------------------------------------------------------------------------------------


def test_every_form_of_a_scan_has_the_same_rows(table, spark):
    table.append(pa.Table.from_pylist([row(i, "abc"[i % 3], None if i % 5 else "x") for i in range(30)], SCHEMA))
    scan = table.scan(columns=["v", "id"], where="dt <> 'b' and id < 20")
    expected = scan.to_arrow().sort_by("id").to_pylist()
    assert list(expected[0]) == ["v", "id"]
    assert len(expected) == scan.count() == 13
    assert scan.to_pandas().sort_values("id")["id"].tolist() == [r["id"] for r in expected]
    assert scan.to_polars().sort("id").to_dicts() == expected
    assert [r.asDict() for r in scan.to_spark(spark).orderBy("id").collect()] == expected


def test_times_are_compared_in_every_spelling(lake):
    t = lake.create_table("d.t", pa.schema([("id", pa.int64()), ("at", pa.time32("ms"))]))
    t.append(pa.table({"id": [1, 2, 3], "at": pa.array([datetime.time(0), datetime.time(1, 2, 3, 4000), None])}))
    for spelled in ["at = '01:02:03.004'", "at = time '01:02:03.004'", "at = cast('01:02:03.004' as time(3))"]:
        assert ids(t, where=spelled) == [2], spelled


def test_limit_and_count(table):
    table.append(pa.Table.from_pylist([row(i, "a") for i in range(100)], SCHEMA))
    assert table.scan(limit=7).to_arrow().num_rows == 7
    assert table.scan(limit=7, where="id > 50").to_arrow().num_rows == 7
    assert table.scan(limit=7).count() == 7
    assert table.scan(where="id >= 90").count() == 10
    assert table.scan(where="dt = 'zzz'").count() == 0
    assert table.scan(limit=0).to_arrow().num_rows == 0


def test_count_by_partition_needs_no_data_file(table, tmp_path):
    table.append(pa.Table.from_pylist([row(i, "ab"[i % 2]) for i in range(10)], SCHEMA))
    for path in (tmp_path / "warehouse").rglob("*.parquet"):
        path.unlink()
    assert table.scan().count() == 10
    assert table.scan(where="dt = 'a'").count() == 5
    assert table.scan(where="id >= 0").count() == 10


def test_files_are_pruned_by_partition_and_by_bounds(table):
    for i in range(5):
        table.append(pa.Table.from_pylist([row(i * 10 + j, "ab"[i % 2]) for j in range(10)], SCHEMA))
    paths = lambda **how: [p for t in table.scan(**how).plan() for p in t.paths]  # noqa: E731
    assert len(paths()) == 5
    assert len(paths(where="dt = 'a'")) == 3
    assert len(paths(where="id = 25")) == 1
    assert len(paths(where="id between 8 and 12")) == 2
    assert len(paths(where="id > 100")) == 0


def test_time_travel_by_snapshot_time_and_tag(table):
    for i in range(3):
        table.append(pa.Table.from_pylist([row(i, "a")], SCHEMA))
    table.create_tag("two", snapshot_id=nth(table, 2))
    moment = table.snapshots()[1].timestamp_ms
    assert ids(table, snapshot_id=nth(table, 1)) == [0]
    assert table.scan(tag="two").snapshot_id == nth(table, 2)
    assert ids(table, tag="two") == [0, 1]
    assert 1 <= len(ids(table, as_of=moment)) <= 3
    assert ids(table, as_of=datetime.datetime.now(datetime.UTC)) == [0, 1, 2]
    with pytest.raises(NotFound, match=r"as old as 2001-01-01T00:00:00.000Z; the oldest, .*, was made at 20"):
        table.scan(as_of="2001-01-01")
    with pytest.raises(NotFound, match="no snapshot 9"):
        table.scan(snapshot_id=9)
    with pytest.raises(NotFound, match="two"):
        table.scan(tag="three")
    with pytest.raises(InvalidInput):
        table.scan(tag="two", snapshot_id=1)


def test_unknown_columns_and_conditions_are_named(table):
    with pytest.raises(NotFound, match="nope"):
        table.scan(columns=["nope"])
    with pytest.raises(NotFound, match="nope"):
        table.scan(where="nope = 1")
    with pytest.raises(InvalidInput):
        table.scan(where="id = ")
    with pytest.raises(InvalidInput, match="frobnicate"):
        table.scan(where="frobnicate(id) = 1")


# --- schema -----------------------------------------------------------------------------------------------------------


def test_old_files_read_through_every_change_of_schema(lake):
    t = lake.create_table("d.t", pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.float32())]))
    t.append(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"], "c": pa.array([0.5], pa.float32())}))
    t.alter().rename_column("b", "text").change_type("a", "bigint").add_column(
        "d", "decimal(10,2)", first=True
    ).commit()
    t.append(pa.table({"d": [Decimal("1.25")], "a": [2**40], "text": ["y"], "c": pa.array([1.5], pa.float32())}))
    t.alter().drop_column("c").move_column("text", first=True).add_column("c", "string").commit()
    found = t.scan().to_arrow()
    assert found.schema.names == ["text", "d", "a", "c"]
    assert found.sort_by("a").to_pylist() == [
        {"text": "x", "d": None, "a": 1, "c": None},
        {"text": "y", "d": Decimal("1.25"), "a": 2**40, "c": None},
    ]
    assert t.scan(where="a = 1").to_arrow()["text"].to_pylist() == ["x"]
    assert t.scan(where="d is null").count() == 1
    assert t.scan(snapshot_id=nth(t, 1)).to_arrow().to_pylist() == [{"a": 1, "b": "x", "c": 0.5}]


@only("paimon")
def test_set_properties_writes_a_schema_that_no_snapshot_uses_until_the_next_commit(table, tmp_path):
    table.append(pa.Table.from_pylist([row(1, "a")], SCHEMA))
    table.alter().set_properties({"snapshot.num-retained.min": "3"}).commit()
    folder = tmp_path / "warehouse" / "shop.db" / "orders"
    assert (folder / "schema" / "schema-1").exists()
    assert table.current_snapshot().schema_id == 0
    table.append(pa.Table.from_pylist([row(2, "a")], SCHEMA))
    assert table.current_snapshot().schema_id == 1
    table.alter().remove_properties("snapshot.num-retained.min").set_comment("orders").commit()
    assert "snapshot.num-retained.min" not in table.properties
    assert table.schema.comment == "orders"


@only("iceberg")
def test_properties_change_without_a_new_schema_and_schemas_are_used_again(table):
    table.append(pa.Table.from_pylist([row(1, "a")], SCHEMA))
    table.alter().set_properties({"owner": "us", "write.target-file-size-bytes": "1000000"}).commit()
    assert table.schema.id == 0
    assert table.alter().add_column("x", "int").commit().id == 1
    assert table.alter().drop_column("x").commit().id == 0
    assert table.alter().add_column("x", "int").commit().field("x").id == 5  # Never the id of the one that was dropped.
    assert len(table.snapshots()) == 1
    table.alter().remove_properties("owner").set_comment("orders").commit()
    assert dict(table.properties) == {"write.target-file-size-bytes": "1000000"}
    assert table.schema.comment == "orders"
    assert ids(table) == [1]


def test_not_null(lake):
    t = lake.create_table("d.t", pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]))
    with pytest.raises(InvalidInput, match="id"):
        t.append(pa.table({"v": ["x"]}))
    with pytest.raises(InvalidInput, match="id"):
        t.append(pa.table({"id": pa.array([1, None]), "v": ["x", "y"]}))
    t.alter().drop_not_null("id").commit()
    t.append(pa.table({"v": ["y"]}))
    assert t.scan(where="id is null").count() == 1


@notyet("iceberg", reason="default values exist from format version 3 on")
def test_defaults(lake):
    t = lake.create_table("d.t", pa.schema([("id", pa.int64())]))
    t.alter().add_column("n", "int", default="7").commit()
    t.append(pa.table({"id": [1]}))
    assert t.scan().to_arrow().to_pylist() == [{"id": 1, "n": 7}]


def test_partition_columns_cannot_be_dropped_nor_in_paimon_renamed(table):
    with pytest.raises(InvalidInput, match="dt"):
        table.alter().drop_column("dt").commit()
    if table.format == "iceberg":  # Where they are known by id, they may have another name.
        table.alter().rename_column("dt", "day").rename_column("day", "dt").commit()
    else:
        with pytest.raises(InvalidInput, match="dt"):
            table.alter().rename_column("dt", "day").commit()
    with pytest.raises(NotFound, match="nope"):
        table.alter().drop_column("nope").commit()
    with pytest.raises(AlreadyExists):
        table.alter().add_column("v", "int").commit()


# --- maintenance ------------------------------------------------------------------------------------------------------


def test_compact_makes_one_file_of_many_and_changes_no_row(table, frame):
    for i in range(6):
        table.append(frame([row(i, "a"), row(100 + i, "b")]))
    before = table.scan().to_arrow().sort_by("id")
    made = table.compact()
    assert made.kind == "compact"
    assert made.rows_added == made.rows_removed == 12
    assert {k: len(v) for k, v in partition_files(table).items()} == {"dt=a": 1, "dt=b": 1}
    assert table.scan().to_arrow().sort_by("id") == before
    assert table.compact() is None


def test_compact_waits_for_enough_files_unless_full_and_takes_partitions(table):
    for i in range(3):
        table.append(pa.Table.from_pylist([row(i, "a"), row(100 + i, "b")], SCHEMA))
    assert table.compact() is None
    table.compact(full=True, where="dt = 'a'")
    assert {k: len(v) for k, v in partition_files(table).items()} == {"dt=a": 1, "dt=b": 3}
    with pytest.raises(InvalidInput, match="partition columns"):
        table.compact(where="id = 1")


def test_compact_through_spark(table, spark):
    for i in range(6):
        table.append(pa.Table.from_pylist([row(i, "a")], SCHEMA))
    assert table.compact(spark=spark).files_added == 1
    assert ids(table) == list(range(6))


def test_expiry_removes_what_only_old_snapshots_reached(table, tmp_path, format):
    for i in range(4):
        table.overwrite(pa.Table.from_pylist([row(i, "a")], SCHEMA))
    folder = tmp_path / "warehouse"
    assert len(list(folder.rglob("*.parquet"))) == 4
    old = tuple(s.id for s in table.snapshots()[:3])
    assert len(table.inspect.snapshots()) == 4
    gone = table.expire_snapshots(retain_last=1)
    assert gone.snapshots == old
    assert len(table.inspect.snapshots()) == 1
    assert len(list(folder.rglob("*.parquet"))) == 1
    manifests, lists = {"paimon": (4, 2), "iceberg": (2, 1)}[format]  # What the commits left that is still told of.
    assert len(list(folder.rglob("manifest/*"))) + len(list(folder.rglob("metadata/*.avro"))) == manifests + lists
    assert ids(table) == [3]
    assert table.expire_snapshots(retain_last=1).snapshots == ()


def test_expiry_by_age_and_by_the_tables_own_options(table, format):
    for i in range(12):
        table.overwrite(pa.Table.from_pylist([row(i, "a")], SCHEMA))
    assert table.expire_snapshots().snapshots == ()  # Younger than an hour.
    assert table.expire_snapshots(older_than=datetime.timedelta(hours=1)).snapshots == ()
    assert len(table.expire_snapshots(older_than=datetime.timedelta(0), retain_last=5).snapshots) == 7
    options = {
        "paimon": {
            "snapshot.time-retained": "0 ms",
            "snapshot.num-retained.min": "2",
        },  # No commit follows, which would expire too.
        "iceberg": {"history.expire.max-snapshot-age-ms": "0", "history.expire.min-snapshots-to-keep": "2"},
    }
    table.alter().set_properties(options[format]).commit()
    assert len(table.expire_snapshots().snapshots) == 3
    with pytest.raises(InvalidInput):
        table.expire_snapshots(retain_last=0)


def test_tags_protect_what_they_name(table, tmp_path):
    for i in range(5):
        table.overwrite(pa.Table.from_pylist([row(i, "a")], SCHEMA))
    table.create_tag("keep", snapshot_id=nth(table, 2))
    table.expire_snapshots(retain_last=1)
    assert len(table.snapshots()) == 1
    assert ids(table, tag="keep") == [1]
    assert len(list((tmp_path / "warehouse").rglob("*.parquet"))) == 2
    table.delete_tag("keep")
    with pytest.raises(NotFound, match="keep"):
        table.scan(tag="keep")
    table.expire_snapshots(retain_last=1)
    assert len(list((tmp_path / "warehouse").rglob("*.parquet"))) == 1
    assert ids(table) == [4]


@only("paimon")
def test_tags_and_consumers_protect_what_they_name(table, tmp_path):
    for i in range(5):
        table.overwrite(pa.Table.from_pylist([row(i, "a")], SCHEMA))
    table.create_tag("keep", snapshot_id=2)
    consumer = tmp_path / "warehouse" / "shop.db" / "orders" / "consumer"
    consumer.mkdir()
    (consumer / "consumer-etl").write_text('{"nextSnapshot": 4}')
    table.expire_snapshots(retain_last=1)
    assert [s.id for s in table.snapshots()] == [3, 4, 5], "an overwrite is told out of the snapshot before it"
    assert ids(table, tag="keep") == [1]
    (consumer / "consumer-etl").unlink()
    table.expire_snapshots(retain_last=1)
    assert ids(table, tag="keep") == [1]
    table.delete_tag("keep")
    assert len(list((tmp_path / "warehouse").rglob("*.parquet"))) == 1
    assert ids(table) == [4]


def test_tag_with_its_own_time_goes_when_it_is_over(table):
    for i in range(3):
        table.overwrite(pa.Table.from_pylist([row(i, "a")], SCHEMA))
    table.create_tag("brief", snapshot_id=nth(table, 1), retain=datetime.timedelta(0))
    table.create_tag("long", snapshot_id=nth(table, 1), retain=datetime.timedelta(days=1))
    with pytest.raises(AlreadyExists, match="long"):
        table.create_tag("long")
    table.expire_snapshots(retain_last=1)
    assert table.inspect.tags()["tag_name"].to_pylist() == ["long"]
    assert ids(table, tag="long") == [0]


@pytest.mark.parametrize("name", ["", "a/b", "..", "7", " ", "a\x00"])
def test_bad_tag_names_are_refused(table, name):
    table.append(pa.Table.from_pylist([row(1, "a")], SCHEMA))
    with pytest.raises(InvalidInput):
        table.create_tag(name)


def test_rollback_shows_the_old_rows_and_survives_maintenance(table):
    for i in range(5):
        table.append(pa.Table.from_pylist([row(i, "a")], SCHEMA))
    table.compact(full=True)
    kept = [s.id for s in table.snapshots()[:3]]
    made = table.rollback_to(snapshot_id=kept[-1])
    assert ids(table) == [0, 1, 2]
    assert [s.id for s in table.snapshots()] == [*kept, made.id]
    assert table.rollback_to(snapshot_id=made.id) is None
    table.append(pa.Table.from_pylist([row(9, "a")], SCHEMA))
    table.expire_snapshots(retain_last=1)
    table.remove_orphan_files(older_than=datetime.timedelta(0))
    assert ids(table) == [0, 1, 2, 9]


def test_a_snapshot_that_was_rolled_back_is_named_as_such(tmp_path):
    table = Lake(tmp_path).create_table("d.t", pa.schema([("k", pa.int32())]))
    for k in range(4):
        table.append({"k": [k]})
    table.rollback_to(1)
    table.append({"k": [9]})
    with pytest.raises(NotFound, match="no snapshot 2; it was rolled back; there are 1, 5 to 6"):
        table.scan(snapshot_id=2)
    with pytest.raises(NotFound, match="no snapshot 9; there are 1, 5 to 6"):
        table.scan(snapshot_id=9)


def test_rollback_to_a_tag_whose_snapshot_expired(table):
    for i in range(3):
        table.overwrite(pa.Table.from_pylist([row(i, "a")], SCHEMA))
    table.create_tag("old", snapshot_id=nth(table, 1))
    table.expire_snapshots(retain_last=1)
    table.rollback_to(tag="old")
    assert ids(table) == [0]
    table.delete_tag("old")
    table.expire_snapshots(retain_last=1)
    assert ids(table) == [0]


def test_sweep_removes_orphans_only_and_only_old_ones(table, tmp_path, format):
    table.append(pa.Table.from_pylist([row(1, "a")], SCHEMA))
    folder = tmp_path / "warehouse" / "shop.db" / "orders"
    uuid = "00000000-0000-4000-8000-000000000000"
    data, metadata = {
        "paimon": (folder / "dt=a" / "bucket-0", folder / "manifest" / f"manifest-{uuid}-0"),
        "iceberg": (folder / "data" / "dt=a", folder / "metadata" / f"{uuid}-m0.avro"),
    }[format]
    orphan = data / f"data-{uuid}-0.parquet"
    orphan.write_bytes(b"x")
    manifest = metadata
    manifest.write_bytes(b"x")
    stranger = data / "notes.txt"
    stranger.write_bytes(b"x")
    assert table.remove_orphan_files() == []  # Younger than a day.
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))
    found = table.remove_orphan_files(dry_run=True)
    assert {f.path.rsplit("/", 1)[-1] for f in found} == {orphan.name, manifest.name}
    assert orphan.exists()
    table.remove_orphan_files()
    assert not orphan.exists()
    assert not manifest.exists()
    assert stranger.exists()
    assert ids(table) == [1]


@only("iceberg")
@pytest.mark.parametrize("engine", ["arrow", "spark"])
def test_files_of_others_are_added(table, tmp_path, engine, request):
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    paths = [tmp_path / "landing" / name for name in ("a.parquet", "dt=q/b.parquet")]
    paths[1].parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [100, 101], "v": ["x", None], "dt": ["p", "p"]}), paths[0])
    pq.write_table(pa.table({"id": [102], "v": ["y"]}), paths[1])
    before = table.scan().count()
    made = table.add_files([str(path) for path in paths], spark=spark)
    assert (made.kind, made.files_added, made.rows_added) == ("append", 2, 3)
    assert sorted(change.values for change in made.partitions) == [("p",), ("q",)]
    assert table.scan().count() == before + 3
    assert table.scan(where="dt = 'q'").to_arrow().to_pylist() == [{"id": 102, "v": "y", "dt": "q"}]
    if spark is not None:
        assert [tuple(row) for row in table.scan(where="id = 102").to_spark(spark).collect()] == [(102, "y", "q")]
    pq.write_table(pa.table({"id": ["no number"], "dt": ["p"]}), tmp_path / "bad.parquet")
    with pytest.raises(InvalidInput, match="column 'id' is string"):
        table.add_files([str(tmp_path / "bad.parquet")], spark=spark)
    assert all(path.exists() for path in [*paths, tmp_path / "bad.parquet"])


@only("paimon")
def test_files_of_others_are_refused(table, tmp_path):
    with pytest.raises(UnsupportedFeature, match="add_files"):
        table.add_files([str(tmp_path / "a.parquet")])


@only("paimon")
def test_partitions_expire_by_their_value(lake):
    t = lake.create_table(
        "d.t", SCHEMA, partition_by=["dt"],
        properties={"partition.expiration-time": "7 d", "partition.timestamp-formatter": "yyyyMMdd"},
    )  # fmt: skip
    today = datetime.datetime.now(datetime.UTC)
    old, new = today - datetime.timedelta(days=9), today - datetime.timedelta(days=2)
    t.append(pa.Table.from_pylist([row(1, f"{old:%Y%m%d}"), row(2, f"{new:%Y%m%d}"), row(3, "not a day")], SCHEMA))
    t.expire_partitions()
    assert ids(t) == [2, 3]
    assert t.expire_partitions() is None


# --- warehouse --------------------------------------------------------------------------------------------------------


def test_a_table_is_renamed(lake, format):
    t = lake.create_table("a.one", SCHEMA)
    t.append(pa.Table.from_pylist([row(1, "x")], SCHEMA))
    if format == "iceberg":
        with pytest.raises(UnsupportedFeature, match="absolute paths"):
            lake.rename_table("a.one", "b.three")
        assert ids(lake.table("a.one")) == [1]
        return
    assert ids(lake.rename_table("a.one", "b.three")) == [1]
    assert lake.tables() == ["b.three"]


def test_both_formats_live_side_by_side(lake):
    for format in ("paimon", "iceberg"):
        lake.create_table(f"a.{format}", SCHEMA, format=format).append(pa.Table.from_pylist([row(1, "x")], SCHEMA))
    assert lake.tables("a") == ["a.iceberg", "a.paimon"]
    assert {lake.table(name).format: ids(lake.table(name)) for name in lake.tables()} == {"paimon": [1], "iceberg": [1]}
    for format in ("paimon", "iceberg"):
        with pytest.raises(AlreadyExists):
            lake.create_table("a.paimon", SCHEMA, format=format)


def test_names_listings_and_drop(lake, tmp_path):
    lake.create_table("a.one", SCHEMA)
    lake.create_table("b.two", SCHEMA)
    assert lake.namespaces() == ["a", "b"]
    assert lake.tables() == ["a.one", "b.two"]
    assert lake.tables("a") == ["a.one"]
    lake.create_table("b.three", SCHEMA).append(pa.Table.from_pylist([row(1, "x")], SCHEMA))
    assert lake.tables() == ["a.one", "b.three", "b.two"]
    lake.drop_table("b.three")
    assert not (tmp_path / "warehouse" / "b.db" / "three").exists()
    with pytest.raises(NotFound, match=r"b\.two"):
        lake.table("b.too")
    with pytest.raises(NotFound):
        lake.drop_table("b.three")
    lake.drop_table("b.three", if_exists=True)


def test_create_again(lake):
    lake.create_table("a.one", SCHEMA, partition_by=["dt"])
    with pytest.raises(AlreadyExists):
        lake.create_table("a.one", SCHEMA)
    assert lake.create_table("a.one", SCHEMA, if_exists="ignore").schema.partitioning.names == ("dt",)


@pytest.mark.parametrize("name", ["", "orders", "a.b.c", "../x.y", "a./etc", "a.b/c", "a b.c", "a.\x00"])
def test_bad_table_names_are_refused(lake, name):
    with pytest.raises(InvalidInput, match="table name"):
        lake.create_table(name, SCHEMA)


def test_unicode_names_are_fine(lake):
    t = lake.create_table(
        "bücher.订单", pa.schema([("ключ", pa.int64()), ("дата", pa.string())]), partition_by=["дата"]
    )
    t.append(pa.table({"ключ": [1, 2], "дата": ["день/1=%", None]}))
    assert t.scan(where="`дата` = 'день/1=%'").count() == 1
    assert t.scan().to_arrow().num_rows == 2


@only("paimon")
@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ({"format": "delta"}, UnsupportedFeature, "delta"),
        ({"partition_by": ["nope"]}, InvalidInput, "nope"),
        ({"partition_by": ["days(dt)"]}, InvalidInput, "iceberg"),
        ({"partition_by": ["id", "v", "dt"]}, InvalidInput, "every column"),
        ({"properties": {"buckets": "4"}}, InvalidInput, "bucket"),
        ({"properties": {"bucket": "4"}}, InvalidInput, "bucket-key"),
        ({"properties": {"bucket": "zero"}}, InvalidInput, "whole number"),
        ({"properties": {"target-file-size": "big"}}, InvalidInput, "size"),
        ({"properties": {"file.format": "csv"}}, UnsupportedFeature, "csv"),
        ({"properties": {"data-evolution.enabled": "true"}}, InvalidInput, "row-tracking"),
        ({"properties": {"clustering.incremental": "true"}}, UnsupportedFeature, "clustering"),
        (
            {"primary_key": ["id"], "partition_by": ["dt"], "properties": {"bucket": "1"}},
            InvalidInput,
            "add dt to primary_key",
        ),
        (
            {"primary_key": ["dt"], "partition_by": ["dt"], "properties": {"bucket": "1"}},
            InvalidInput,
            "no column beside",
        ),
        ({"primary_key": ["id"], "partition_by": ["dt"], "properties": {"bucket": "1"}}, InvalidInput, "add dt"),
        (
            {"primary_key": ["id"], "properties": {"bucket": "1", "bucket-key": "v"}},
            InvalidInput,
            "not in the primary key",
        ),
        (
            {"primary_key": ["id"], "properties": {"bucket": "1", "sequence.field": "no"}},
            InvalidInput,
            "sequence.field",
        ),
    ],
)
def test_what_a_table_cannot_be_is_refused_by_name_and_leaves_nothing(lake, how, error, says):
    with pytest.raises(error, match=says):
        lake.create_table("d.t", SCHEMA, **how)
    assert not lake.exists("d.t")


@only("iceberg")
@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ({"partition_by": ["nope"]}, InvalidInput, "nope"),
        ({"partition_by": ["days(dt)"]}, InvalidInput, "day does not take"),
        ({"partition_by": ["bucket(0, id)"]}, InvalidInput, "at least 1"),
        ({"partition_by": ["dt", "dt"]}, InvalidInput, "twice"),
        ({"properties": {"format-version": "4"}}, InvalidInput, "2 or 3"),
        ({"properties": {"uuid": "3"}}, InvalidInput, "reserved"),
        ({"properties": {"write.target-file-size-bytes": "big"}}, InvalidInput, "whole number"),
        ({"properties": {"write.metadata.metrics.default": "most"}}, InvalidInput, "metrics"),
        ({"properties": {"write.format.default": "lance"}}, UnsupportedFeature, "lance"),
        ({"properties": {"write.delete.format.default": "lance"}}, UnsupportedFeature, "delete files in lance"),
        ({"properties": {"write.metadata.path": "/elsewhere"}}, UnsupportedFeature, "without a catalog"),
        ({"properties": {"write.data.path": "elsewhere"}}, InvalidInput, "absolute"),
        ({"properties": {"write.metadata.compression-codec": "zstd"}}, UnsupportedFeature, "metadata in zstd"),
        ({"primary_key": ["nope"]}, InvalidInput, "'nope', which is not a column"),
        ({"primary_key": ["id", "id"]}, InvalidInput, "twice"),
    ],
)
def test_what_an_iceberg_table_cannot_be_is_refused_by_name_and_leaves_nothing(lake, how, error, says):
    with pytest.raises(error, match=says):
        lake.create_table("d.t", SCHEMA, **how)
    assert not lake.exists("d.t")


def test_a_folder_that_is_no_warehouse(tmp_path, lake, table):
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(InvalidInput):
        Lake(str(file)).create_table("a.b", SCHEMA)
    with pytest.raises(InvalidInput, match="not a warehouse"):
        Lake(table.uri).table("shop.orders")
    new = Lake(str(tmp_path / "warehouze"))
    for ask in (new.tables, new.namespaces, lambda: new.table("shop.orders"), lambda: new.drop_table("shop.orders")):
        with pytest.raises(NotFound, match=r"no folder 'warehouze'; near it are warehouse; create_table makes it"):
            ask()
    with pytest.raises(NotFound, match=r"has no folder 'a'; create_table"):
        Lake(str(tmp_path / "a" / "b" / "c")).tables("shop")
    assert not new.exists("shop.orders")
    assert new.drop_table("shop.orders", if_exists=True) is None
    new.create_table("shop.orders", SCHEMA)
    assert new.tables() == ["shop.orders"]


@only("iceberg")
@pytest.mark.parametrize("engine", ["arrow", "spark"])
def test_files_without_the_column_of_their_partition_have_its_value(table, engine, request):
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    hive_files.append(table, pa.table({"id": [200, 201, 202], "v": ["x"] * 3, "dt": ["p", "p", "q"]}))
    assert table.scan(where="dt = 'p'").count() == 2
    if spark is not None:
        found = table.scan(where="dt in ('p', 'q')").to_spark(spark).collect()
        assert sorted(map(tuple, found)) == [(200, "x", "p"), (201, "x", "p"), (202, "x", "q")]
    table.update({"v": "concat(dt, v)"}, where="dt = 'p' and id = 201", spark=spark)
    table.delete("dt = 'q' and id > 0", spark=spark)
    table.compact(full=True, spark=spark)
    found = table.scan(where="id >= 200").to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(200, "x", "p"), (201, "px", "p")]
