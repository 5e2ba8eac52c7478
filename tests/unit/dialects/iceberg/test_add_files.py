"""Files of other writers become part of a table: checked, in their partitions, and never deleted by what adds them."""

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import AlreadyExists, Conflict, InvalidInput, Lake, NotFound, UnsupportedFeature
from lakeformat.commit import commit
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.model.operation import Adopt, Request
from lakeformat.model.work import WrittenFile
from tests import doors

iceberg = Iceberg()

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.timestamp("us")), ("dt", pa.string())])
MORNING, NIGHT = datetime.datetime(2024, 1, 1, 8), datetime.datetime(2024, 1, 1, 22)
NEXT = datetime.datetime(2024, 1, 2)


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "warehouse")


@pytest.fixture
def table(lake):
    return lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt", "days(ts)"])


def file(tmp_path, name="a.parquet", without=(), **columns):
    rows = {"id": [1, 2], "v": ["x", None], "ts": [MORNING, NIGHT], "dt": ["a", "a"], **columns}
    path = tmp_path / "landing" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: values for name, values in rows.items() if name not in without}
    pq.write_table(pa.table({n: v if isinstance(v, pa.Array) else pa.array(v) for n, v in kept.items()}), path)
    return str(path)


def rows(table, **how):
    return sorted(table.scan(**how).to_arrow().to_pylist(), key=lambda row: row["id"])


ROWS = [{"id": 1, "v": "x", "ts": MORNING, "dt": "a"}, {"id": 2, "v": None, "ts": NIGHT, "dt": "a"}]


def test_a_file_is_in_the_partition_that_its_rows_are_in(table, tmp_path):
    path = file(tmp_path)
    made = table.add_files([path], properties={"who": "me"})
    assert (made.kind, made.files_added, made.rows_added, made.properties) == ("append", 1, 2, {"who": "me"})
    assert [change.values for change in made.partitions] == [("a", datetime.date(2024, 1, 1))]
    assert rows(table) == ROWS
    assert rows(table, where="ts > timestamp '2024-01-02'") == [] == table.scan(where="id > 2").plan()
    (told,) = table.inspect.files().to_pylist()
    assert (told["path"], told["size_bytes"]) == (f"file://{path}", Path(path).stat().st_size)
    assert told["split_offsets"] == [4]
    named = json.loads(table.properties["schema.name-mapping.default"])
    assert [(entry["field-id"], entry["names"]) for entry in named] == [
        (1, ["id"]),
        (2, ["v"]),
        (3, ["ts"]),
        (4, ["dt"]),
    ]


def test_rows_with_nan_are_found_though_a_footer_counts_none(lake, tmp_path):
    table = lake.create_table("d.t", pa.schema([("id", pa.int64()), ("v", pa.float64())]), format="iceberg")
    table.add_files([file(tmp_path, without=("ts", "dt"), v=[1.0, float("nan")])])
    assert [row["id"] for row in rows(table, where="v > 5")] == [2]


def test_columns_that_a_file_lacks_come_from_its_folders_or_the_caller(table, tmp_path):
    by_folder = file(tmp_path, "dt=a%20b%2Fc/x.parquet", without=["dt"])
    nowhere = file(tmp_path, "dt=__HIVE_DEFAULT_PARTITION__/x.parquet", without=["dt"], id=[3, 4])
    table.add_files([by_folder, nowhere])
    told = file(tmp_path, "dt=ignored/y.parquet", without=["dt", "v"], id=[5, 6])
    table.add_files([told], partition={"dt": "q"})
    assert [(row["id"], row["dt"]) for row in rows(table)] == [(1, "a b/c"), (2, "a b/c"), *[(i, None) for i in (3, 4)],
                                                              (5, "q"), (6, "q")]  # fmt: skip
    assert rows(table, where="dt = 'q'") == [
        {**ROWS[0], "id": 5, "v": None, "dt": "q"},
        {**ROWS[1], "id": 6, "dt": "q"},
    ]
    assert [row["id"] for row in rows(table, where="dt is null and id = 4")] == [4]
    table.update({"v": "concat(dt, '!')"}, where="id in (1, 5)")
    table.delete("dt is null")
    table.compact(full=True)
    assert [(row["id"], row["v"], row["dt"]) for row in rows(table)] == [
        (1, "a b/c!", "a b/c"), (2, None, "a b/c"), (5, "q!", "q"), (6, None, "q")]  # fmt: skip


@pytest.mark.parametrize(
    ("by", "column", "values", "partition"),
    [
        ("truncate(2, v)", "v", ["abc", "abd"], "ab"),
        ("bucket(4, id)", "id", [7, 7], 3),
        ("hours(ts)", "ts", [MORNING, MORNING.replace(minute=59)], 473360),
        ("void(v)", "v", ["p", "q"], None),
        ("v", "v", ["w" * 100, "w" * 100], "w" * 100),
        ("x", "x", [float("nan"), float("nan")], None),
        ("x", "x", pa.array([None, None], pa.float64()), None),
    ],
)
def test_partitions_by_every_kind_of_transform(lake, tmp_path, by, column, values, partition):
    schema = pa.schema([*SCHEMA, ("x", pa.float64())])
    table = lake.create_table("d.p", schema, format="iceberg", partition_by=[by])
    made = table.add_files([file(tmp_path, **{"x": [1.0, 1.0], column: values})])
    ((found,),) = [change.values for change in made.partitions]
    assert (found == partition) or (by == "x" and found != found)
    assert table.scan().count() == 2


@pytest.mark.parametrize(
    ("by", "columns", "says"),
    [
        ("dt", {"dt": ["a", "b"]}, "'dt' holds 'a' to 'b'"),
        ("dt", {"dt": ["a", None]}, "and nulls"),
        ("days(ts)", {"ts": [MORNING, NEXT]}, "more than one partition of day"),
        ("bucket(4, id)", {"id": [1, 2]}, "more than one partition of bucket"),
        ("x", {"x": [1.0, float("nan")]}, "more than one partition of identity"),
        ("v", {"v": ["w" * 100 + "a", "w" * 100 + "b"]}, "more than one partition"),
        ("days(ts)", {"without": ["ts"]}, "partitioned by day.ts., and the file has no column 'ts'; append its rows"),
        ("dt", {"without": ["dt"]}, r"nor a folder dt=...: say partition=.'dt'"),
    ],
)
def test_a_file_of_several_partitions_is_refused(lake, tmp_path, by, columns, says):
    schema = pa.schema([*SCHEMA, ("x", pa.float64())])
    table = lake.create_table("d.p", schema, format="iceberg", partition_by=[by])
    path = file(tmp_path, **{"x": [1.0, 1.0], **columns})
    with pytest.raises(InvalidInput, match=says):
        table.add_files([path])
    assert table.snapshots() == []
    assert Path(path).exists()
    assert "schema.name-mapping.default" not in table.properties


NESTED = pa.array([{"a": 1, "z": 2}] * 2)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"other": [1, 2]}, "column 'other' is not in the table.*add_column"),
        ({"v": [1, 2]}, "column 'v' is bigint, the table's is string"),
        ({"ts": pa.array([MORNING] * 2, pa.timestamp("ns"))}, r"column 'ts' is timestamp\(9\)"),
        ({"ts": pa.array([MORNING] * 2, pa.timestamp("us", "UTC"))}, "column 'ts' is timestamp"),
        ({"v": [None, None]}, "column 'v' holds nulls and has no type"),
        ({"id": pa.array([1.0, 2.0])}, "column 'id' is double"),
        ({"key": pa.array([1, None])}, "column 'key' holds 1 nulls"),
        ({"without": ["key"]}, "it has no column 'key'"),
        ({"st": NESTED}, "column 'st.z' is not in the table"),
        ({"st": pa.array([{"a": "t"}] * 2)}, "column 'st.a' is string"),
        ({"li": pa.array([["t"]] * 2)}, "column 'li.element' is string"),
        ({"li": [1, 2]}, "column 'li' is bigint"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(lake, tmp_path, columns, says):
    schema = pa.schema([*SCHEMA, pa.field("key", pa.int64(), nullable=False), ("st", pa.struct([("a", pa.int64())])),
                        ("li", pa.list_(pa.int64()))])  # fmt: skip
    table = lake.create_table("d.p", schema, format="iceberg")
    path = file(tmp_path, **{"key": [1, 2], **columns})
    with pytest.raises(InvalidInput, match=says) as raised:
        table.add_files([file(tmp_path, "good.parquet", key=[1, 2]), path])
    assert path in str(raised.value)
    assert table.snapshots() == []
    assert Path(path).exists()


def test_narrower_types_and_coarser_times_are_read_as_the_table_s(lake, tmp_path):
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("ts", pa.timestamp("us")), ("n", pa.decimal128(9, 2)),
                        ("st", pa.struct([("a", pa.int64()), ("b", pa.string())])), ("li", pa.list_(pa.int64()))])  # fmt: skip
    table = lake.create_table("d.p", schema, format="iceberg", partition_by=["hours(ts)"])
    columns = {
        "id": pa.array([1, 2], pa.int8()), "x": pa.array([0.5, None], pa.float32()),
        "ts": pa.array([MORNING] * 2, pa.timestamp("ms")), "n": pa.array([1, 2], pa.decimal128(5, 2)),
        "st": pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])), "li": pa.array([[1, 2], []], pa.list_(pa.int32())),
    }  # fmt: skip
    table.add_files([file(tmp_path, without=["v", "dt"], **columns)])
    assert [row["ts"] for row in rows(table, where="ts >= timestamp '2024-01-01 08:00:00'")] == [MORNING] * 2
    assert table.scan(where="ts > timestamp '2024-01-01 08:00:00'").plan() == []
    assert table.scan(where="n > 2.00").plan() == []
    assert table.scan(where="n = 1.00").count() == 1
    assert rows(table)[0]["st"] == {"a": 1, "b": None}
    assert rows(table)[0]["li"] == [1, 2]


def with_ids(path, ids, **columns):
    given = pa.table(columns)
    fields = [f.with_metadata({b"PARQUET:field_id": str(ids[f.name]).encode()}) for f in given.schema]
    pq.write_table(given.cast(pa.schema(fields)), path)
    return str(path)


def test_field_ids_are_used_where_they_are_the_table_s(lake, tmp_path):
    table = lake.create_table("d.p", pa.schema([("id", pa.int64()), ("v", pa.string())]), format="iceberg")
    other = with_ids(tmp_path / "other.parquet", {"id": 2, "v": 1}, id=[1], v=["x"])
    with pytest.raises(
        InvalidInput, match=r"column 'id' has the field id 2, which is the table's 'v': .* another table"
    ):
        table.add_files([other])
    unknown = with_ids(tmp_path / "unknown.parquet", {"id": 1, "v": 9}, id=[1], v=["x"])
    with pytest.raises(InvalidInput, match="column 'v' has the field id 9, which the table does not know"):
        table.add_files([unknown])
    table.add_files([with_ids(tmp_path / "own.parquet", {"id": 1, "v": 2}, id=[1], v=["x"])])
    table.alter().rename_column("v", "w").commit()
    assert rows(table) == [{"id": 1, "w": "x"}]
    assert "schema.name-mapping.default" not in table.properties


def test_columns_that_the_mapping_lacks_join_it(lake, tmp_path):
    table = lake.create_table("d.p", pa.schema([("id", pa.int64()), ("v", pa.string())]), format="iceberg")
    table.add_files([file(tmp_path, without=["ts", "dt"])])
    table.alter().rename_column("v", "w").add_column("dt", "string").commit()
    table.add_files([file(tmp_path, "b.parquet", without=["ts", "v"], id=[3, 4])])
    assert [(row["id"], row["w"], row["dt"]) for row in rows(table)] == [
        (1, "x", None), (2, None, None), (3, None, "a"), (4, None, "a")]  # fmt: skip
    table.alter().drop_column("w").add_column("v", "string").commit()
    with pytest.raises(InvalidInput, match=r"column 'v': the table's name mapping .* for another column"):
        table.add_files([file(tmp_path, "c.parquet", without=["ts"])])


def test_what_cannot_be_added(table, tmp_path, lake):
    path = file(tmp_path)
    table.add_files([path])
    with pytest.raises(AlreadyExists, match=r"1 of 2 files are in the table already, e\.g\. file:///.*a\.parquet"):
        table.add_files([file(tmp_path, "b.parquet"), path])
    with pytest.raises(InvalidInput, match="given twice"):
        table.add_files([path, path], check_duplicate_files=False)
    with pytest.raises(NotFound, match="there is no such file"):
        table.add_files([str(tmp_path / "none.parquet")])
    (tmp_path / "text.parquet").write_text("text")
    with pytest.raises(InvalidInput, match="no Parquet file"):
        table.add_files([str(tmp_path / "text.parquet")])
    with pytest.raises(InvalidInput, match="partition names 'ts'"):
        table.add_files([path], partition={"ts": MORNING})
    with pytest.raises(InvalidInput, match="column 'dt' holds 'a'"):
        table.add_files([path], partition={"dt": "b"})
    with pytest.raises(InvalidInput, match="give a list of files"):
        table.add_files(path)
    with pytest.raises(UnsupportedFeature, match="add_files: a Paimon table"):
        lake.create_table("d.paimon", SCHEMA).add_files([path])
    assert table.scan().count() == 2
    assert Path(path).exists()
    table.add_files([path], check_duplicate_files=False)
    assert table.scan().count() == 4


def test_a_file_without_rows_is_left_out(table, tmp_path):
    empty = file(tmp_path, id=pa.array([], pa.int64()), v=pa.array([], pa.string()), ts=pa.array([], pa.timestamp("us")),
                 dt=pa.array([], pa.string()))  # fmt: skip
    assert table.add_files([empty]) is None
    assert table.add_files([empty, file(tmp_path, "b.parquet")]).files_added == 1


def test_asking_again_adds_nothing(table, tmp_path):
    path = file(tmp_path)
    first = table.add_files([path], id="once")
    assert table.add_files([path], id="once").id == first.id
    assert table.scan().count() == 2


def test_who_loses_a_race_deletes_nothing(table, tmp_path):
    """The files are others': neither a conflict nor a repeat may take them."""
    path = file(tmp_path)
    store, head = doors.store(table), iceberg.head(doors.store(table))
    before = doors.view(table)
    added = (WrittenFile(path, ("a", datetime.date(2024, 1, 1)), 2, Path(path).stat().st_size),)
    request = Request(id="late", schema_id=before.schema.id, partitioning_id=before.schema.partitioning.id)
    table.add_files([path])
    with pytest.raises(AlreadyExists):
        commit(store, head, iceberg, Adopt(request=request, added=added))
    table.alter().drop_partition_field("ts_day").commit()
    with pytest.raises(Conflict, match="changed the table's partitions"):
        commit(store, head, iceberg, Adopt(request=request, added=added))
    assert Path(path).exists()
    assert table.scan().count() == 2


def test_expiry_and_the_sweep_leave_files_outside_the_table(table, tmp_path):
    path = file(tmp_path)
    table.add_files([path])
    table.truncate()
    table.expire_snapshots(retain_last=1)
    table.remove_orphan_files(older_than=datetime.timedelta(days=-1))
    assert Path(path).exists()


def test_branches_and_evolved_specs(table, tmp_path):
    table.append(pa.table({"id": [9], "dt": ["z"], "ts": [MORNING]}))
    branch = table.create_branch("audit")
    branch.add_files([file(tmp_path)])
    assert (table.scan().count(), branch.scan().count()) == (1, 3)
    table.alter().drop_partition_field("ts_day").commit()
    table.add_files([file(tmp_path, "b.parquet", ts=[MORNING, NEXT])])
    assert table.scan(where="dt = 'a'").count() == 2
    table.overwrite_partitions(pa.table({"id": [10], "dt": ["a"]}))
    assert [row["id"] for row in rows(table)] == [9, 10]


def test_texts_that_a_footer_may_have_cut_short_are_read(lake, tmp_path):
    """As some writers do: the bounds are equal, the values are not."""
    table = lake.create_table("d.p", SCHEMA, format="iceberg", partition_by=["v"])
    path = Path(file(tmp_path, v=["w" * 100 + "a", "w" * 100 + "b"]))
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    changed = data[footer:].replace(b"w" * 100 + b"b", b"w" * 100 + b"a")
    assert changed != data[footer:]
    path.write_bytes(data[:footer] + changed)
    with pytest.raises(InvalidInput, match="more than one partition"):
        table.add_files([str(path)])


# --- whole folders ----------------------------------------------------------------------------------------------------


def folder(path, suffix="parquet"):
    for number, (day, ids) in enumerate(
        {"2024-01-01": [1, 2], "2024-01-02": [3], "__HIVE_DEFAULT_PARTITION__": [4]}.items()
    ):
        location = path / f"day={day}" / "n=7"
        location.mkdir(parents=True)
        columns = {"id": pa.array(ids, pa.int32() if number else pa.int64()), "v": [f"v{i}" for i in ids]}
        pq.write_table(
            pa.table(columns if number < 2 else {**columns, "new": ids}), location / f"part-{number}.{suffix}"
        )
    (path / "_SUCCESS").write_text("")
    (path / ".part-0.parquet.crc").write_text("x")
    return {p: p.read_bytes() for p in path.rglob("*.parquet")}


FOLDER = [(1, "2024-01-01", None), (2, "2024-01-01", None), (3, "2024-01-02", None), (4, None, 4)]


def of_folder(table):
    return [(r["id"], None if r["day"] is None else str(r["day"]), r["new"]) for r in rows(table)]


@pytest.mark.parametrize("catalog", [None, "sql"])
def test_a_folder_is_a_table_that_leaves_it_as_it_is(tmp_path, catalog):
    before = folder(tmp_path / "landing")
    lake = Lake(tmp_path / "warehouse", catalog=catalog)
    table = lake.snapshot_table(str(tmp_path / "landing"), "d.snap", properties={"write.delete.mode": "merge-on-read"})
    assert of_folder(table) == FOLDER
    assert [str(f.type) for f in table.schema.fields] == ["bigint", "string", "bigint", "date", "int"]
    assert table.schema.partitioning.names == ("day", "n")
    assert json.loads(table.properties["schema.name-mapping.default"])[0]["names"] == ["id"]
    assert sum(len(task.paths) for task in table.scan(where="day = '2024-01-02'").plan()) == 1
    table.delete("id = 1")
    table.append(pa.table({"id": [9], "n": pa.array([7], pa.int32()), "day": pa.nulls(1, pa.date32())}))
    table.compact(full=True)
    assert [row[0] for row in of_folder(table)] == [2, 3, 4, 9]
    with pytest.raises(UnsupportedFeature, match=r"gc\.enabled"):
        table.expire_snapshots(retain_last=1)
    assert {p: p.read_bytes() for p in (tmp_path / "landing").rglob("*.parquet")} == before
    with pytest.raises(AlreadyExists):
        lake.snapshot_table(str(tmp_path / "landing"), "d.snap")


@pytest.mark.parametrize("catalog", [None, "sql"])
def test_a_folder_becomes_the_table_of_its_name(tmp_path, catalog):
    location = tmp_path / "warehouse" / "d.db" / "t"
    before = folder(location)
    lake = Lake(tmp_path / "warehouse", catalog=catalog)
    found = lake.sql("CALL system.migrate('d.t', map('write.delete.mode', 'merge-on-read'))").to_arrow()
    assert found.to_pylist() == [{"migrated_files_count": 3}]
    table = lake.table("d.t")
    assert of_folder(table) == FOLDER
    assert table.uri == f"file://{location}"
    table.delete("id = 1")
    assert {p: p.read_bytes() for p in before} == before
    with pytest.raises(AlreadyExists, match="already"):
        lake.migrate_table("d.t")
    table.compact(sort_by=["id"])
    table.expire_snapshots(retain_last=1)
    assert [row[0] for row in of_folder(table)] == [2, 3, 4]
    assert not any(p.exists() for p in before)  # They are the table's, and no snapshot has them.


def test_types_of_a_folder_may_be_said(tmp_path):
    folder(tmp_path / "landing")
    said = pa.schema([("day", pa.string()), ("n", pa.int64())])
    table = Lake(tmp_path / "w").snapshot_table(str(tmp_path / "landing"), "d.t", schema=said)
    assert [str(table.schema.field(name).type) for name in ("day", "n")] == ["string", "bigint"]
    assert of_folder(table) == FOLDER


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda p: (p / "x.orc").write_text("x"), UnsupportedFeature, "x.orc is ORC, not Parquet"),
        (lambda p: (p / "x.avro").write_text("x"), UnsupportedFeature, "x.avro is AVRO, not Parquet"),
        (lambda p: (p / "part-0").write_text("x"), UnsupportedFeature, "without a suffix"),
        (lambda p: (p / "x.parquet").write_text("x"), InvalidInput, "partitioned alike"),
        (lambda p: (p / "day=2024-01-01/n=7/x.parquet").write_text("x"), InvalidInput, "no Parquet file"),
        (lambda p: pq.write_table(pa.table({"id": ["x"]}), p / "day=2024-01-01/n=7/x.parquet"), InvalidInput, "are not compatible"),
        (lambda p: (p / "day=2024-01-01").rename(p / "day=2024-13-01"), InvalidInput, "2024-13-01"),
    ],
    ids=["orc", "avro", "unknown", "other depth", "damaged", "other types", "no date"],
)  # fmt: skip
def test_a_folder_that_is_no_table_is_refused_and_nothing_is_made(tmp_path, change, error, says):
    location = tmp_path / "w" / "d.db" / "t"
    folder(location)
    change(location)
    before = sorted(tmp_path.rglob("*"))
    lake = Lake(tmp_path / "w")
    for verb in (lambda: lake.migrate_table("d.t"), lambda: lake.snapshot_table(str(location), "d.other")):
        with pytest.raises(error, match=says):
            verb()
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(NotFound, match="holds no files"):
        lake.snapshot_table(str(tmp_path / "nothing"), "d.other")


def test_timestamps_of_spark_and_hive_are_added_and_int64_nanoseconds_are_not(lake, tmp_path):
    schema = pa.schema(
        [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("s", pa.struct([("t", pa.timestamp("us"))]))]
    )
    data = pa.table({"id": [1, 2], "ts": [MORNING, None], "s": [{"t": NIGHT}, {"t": None}]})
    int96, nanos = tmp_path / "int96.parquet", tmp_path / "nanos.parquet"
    pq.write_table(data, int96, use_deprecated_int96_timestamps=True)
    pq.write_table(data.set_column(1, "ts", pa.array([MORNING, None], pa.timestamp("ns"))), nanos)
    table = lake.create_table("d.i", schema, format="iceberg")
    table.add_files([str(int96)])
    (first, second) = rows(table)
    assert (first["ts"], first["s"]) == (MORNING.replace(tzinfo=datetime.UTC), {"t": NIGHT})
    assert (second["ts"], second["s"]) == (None, {"t": None})
    assert [row["id"] for row in rows(table, where="ts >= timestamp '2024-01-01 08:00:00'")] == [1]
    assert [row["id"] for row in rows(table, where="ts is null")] == [2]
    with pytest.raises(InvalidInput, match="column 'ts' is"):
        table.add_files([str(nanos)])
    by_day = lake.create_table("d.day", schema, format="iceberg", partition_by=["days(ts)"])
    pq.write_table(data.slice(0, 1), tmp_path / "one.parquet", use_deprecated_int96_timestamps=True)
    made = by_day.add_files([str(tmp_path / "one.parquet")])
    assert [change.values for change in made.partitions] == [(datetime.date(2024, 1, 1),)]
    table.compact(full=True)
    assert rows(table) == [first, second]


def test_each_file_may_have_partition_values_of_its_own(table, tmp_path):
    paths = [file(tmp_path, f"{name}.parquet", without=["dt"], id=[number] * 2) for number, name in enumerate("xy")]
    with pytest.raises(InvalidInput, match="1 are given for 2 paths"):
        table.add_files(paths, [{"dt": "a"}])
    table.add_files(paths, [{"dt": "a"}, {"dt": None}])
    assert {(row["id"], row["dt"]) for row in rows(table)} == {(0, "a"), (1, None)}
