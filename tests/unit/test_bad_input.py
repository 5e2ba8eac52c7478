"""What cannot be is refused with an error of ours that says what was wrong, and leaves nothing behind."""

import datetime
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lakeformat import AlreadyExists, InvalidInput, Lake, LakeError, NotFound, OutsideScope, UnsupportedFeature
from lakeformat.model.schema import Field, Kind, project, scalar

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
ROWS = pa.table({"id": [1, 2], "v": ["a", None], "dt": ["x", "y"]})


@pytest.fixture
def lake(tmp_path):
    return Lake(str(tmp_path / "w"))


@pytest.fixture
def table(lake):
    t = lake.create_table("d.t", SCHEMA, partition_by=["dt"])
    t.append(ROWS)
    t.create_tag("kept")
    return t


def files(tmp_path):
    return {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}


STRANGE = [5, 5.5, True, b"x", object(), [], {}, ("a",), datetime.date(2020, 1, 1), float("nan"), "", "\ud800", "\0"]


def shown(value):
    return repr(value)[:20].replace("\x00", "0").encode("ascii", "replace").decode()


# --- warehouses and names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri", [5, None, "", "\0", b"x", "s3://", "nonsense://host/x", "file://host/x", [], "ftp://a"], ids=shown
)
def test_warehouses_that_cannot_be(uri):
    with pytest.raises(LakeError):
        Lake(uri).tables()


def test_a_warehouse_that_is_not_one(lake, table, tmp_path):
    for path in (tmp_path / "w/d.db/t", tmp_path / "w/d.db/t/"):
        inner = Lake(str(path))
        for ask in (
            lambda inner=inner: inner.table("d.t"),
            lambda inner=inner: inner.create_table("d.t", SCHEMA),
        ):
            with pytest.raises(InvalidInput, match="a table, not a warehouse"):
                ask()
    plain = tmp_path / "plain"
    plain.write_text("a file")
    with pytest.raises(LakeError):
        Lake(str(plain)).create_table("d.t", SCHEMA)
    nowhere = Lake(str(tmp_path / "nowhere"))
    for ask in (nowhere.tables, nowhere.namespaces, lambda: nowhere.table("d.t")):
        with pytest.raises(NotFound, match="no folder 'nowhere'"):
            ask()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "name",
    ["", "t", "a.b.c", ".", "..", "d.", ".t", "d.t/u", "d/..", "../d.t", "d.t\n", "d. t", "d.t$files", "d.\0", "d\\.t",
     "d.\ud800", "d.." , "d.%", 5, None, ("d", "t"), "d.t\x7f", "d.t\u2028"],
    ids=shown,
)  # fmt: skip
def test_table_names_that_cannot_be(lake, tmp_path, name):
    if name == "d.%":  # Odd, and possible.
        assert lake.create_table(name, SCHEMA).append(ROWS).rows_added == 2
        assert lake.tables() == ["d.%"]
        return
    for ask in (
        lambda: lake.create_table(name, SCHEMA),
        lambda: lake.table(name),
        lambda: lake.exists(name),
        lambda: lake.drop_table(name),
        lambda: lake.drop_table(name, if_exists=True),
        lambda: lake.rename_table(name, "d.u"),
    ):
        with pytest.raises(InvalidInput, match="not a table name"):
            ask()
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    "name", ["データ.表", "d.ключ", "d.😀", "D.T", "d.a-b_c", "d.a+b@c=d", "d.%2F", "d.a:b", "d.~"]
)
def test_unicode_names_are_names(lake, tmp_path, name):
    t = lake.create_table(name, SCHEMA, partition_by=["dt"])
    t.append(ROWS)
    t.overwrite_partitions(ROWS)
    t.expire_snapshots(retain_last=1)
    assert lake.tables() == [name]
    assert lake.table(name).scan().count() == 2
    other = lake.rename_table(name, "new.name")
    assert sorted(other.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    lake.drop_table("new.name")
    assert lake.tables() == []


def test_a_name_too_long_for_the_storage_is_a_store_error(lake):
    with pytest.raises(LakeError):
        lake.create_table("d." + "x" * 5000, SCHEMA)


# --- making a table ---------------------------------------------------------------------------------------------------

NESTED = pa.schema(
    [("id", pa.int64()), ("a", pa.list_(pa.int64())), ("s", pa.struct([("b", pa.int64())])), ("bin", pa.binary())]
)


@pytest.mark.parametrize(
    ("schema", "how", "says"),
    [
        (SCHEMA, {"format": "delta"}, "delta"),
        (SCHEMA, {"format": None}, "None"),
        (SCHEMA, {"if_exists": "replace"}, "replace"),
        (SCHEMA, {"partition_by": ["nowhere"]}, "nowhere"),
        (SCHEMA, {"partition_by": ["dt", "dt"]}, "twice"),
        (SCHEMA, {"partition_by": ["id", "v", "dt"]}, "every column"),
        (SCHEMA, {"partition_by": ["days(dt)"]}, "plain columns"),
        (SCHEMA, {"partition_by": ["nope(dt)"]}, "nope"),
        (SCHEMA, {"partition_by": [5]}, "5"),
        (SCHEMA, {"partition_by": 5}, "partition_by"),
        (
            SCHEMA,
            {"primary_key": ["id"], "partition_by": ["dt"], "properties": {"bucket": "2"}},
            "add dt to primary_key",
        ),
        (SCHEMA, {"primary_key": ["id"], "properties": {"bucket-key": "id"}}, "bucket-key"),
        (SCHEMA, {"primary_key": 7}, "primary_key"),
        (SCHEMA, {"properties": {"bucket": "0"}}, "bucket"),
        (SCHEMA, {"properties": {"bucket": "many"}}, "bucket"),
        (SCHEMA, {"properties": {"bucket": "-2"}}, "postpone"),
        (
            SCHEMA,
            {"primary_key": ["id"], "partition_by": ["dt"], "properties": {"bucket": "-2"}},
            "add dt to primary_key",
        ),
        (SCHEMA, {"properties": {"bucket": "4"}}, "bucket-key"),
        (SCHEMA, {"properties": {"bucket-key": "id"}}, "fixed number"),
        (SCHEMA, {"properties": {"bucket": "4", "bucket-key": "nowhere"}}, "nowhere"),
        (SCHEMA, {"properties": {"bucket": "4", "bucket-key": "dt"}, "partition_by": ["dt"]}, "partition column"),
        (SCHEMA, {"properties": {"bucket": "4", "bucket-key": "v", "bucket-function.type": "mod"}}, "mod"),
        (SCHEMA, {"properties": {"bucket": "4", "bucket-key": "id", "bucket-function.type": "sha"}}, "sha"),
        (SCHEMA, {"properties": {"file.format": "csv"}}, "csv"),
        (SCHEMA, {"properties": {"file.compression": "shrink"}}, "shrink"),
        (SCHEMA, {"properties": {"manifest.compression": "shrink"}}, "shrink"),
        (SCHEMA, {"properties": {"file.compression.zstd-level": "x"}}, "zstd-level"),
        (SCHEMA, {"properties": {"target-file-size": "big"}}, "target-file-size"),
        (SCHEMA, {"properties": {"target-file-size": "0"}}, "target-file-size"),
        (SCHEMA, {"properties": {"snapshot.time-retained": "1 fortnight"}}, "time-retained"),
        (SCHEMA, {"properties": {"bukcet": "4"}}, "did you mean 'bucket'"),
        (SCHEMA, {"properties": {5: "4"}}, "5"),
        (SCHEMA, {"properties": {"": "4"}}, "unknown option"),
        (SCHEMA, {"properties": [("a", "b")]}, "properties"),
        (SCHEMA, {"properties": "bucket=4"}, "properties"),
        (SCHEMA, {"properties": {"user.note": "\ud800"}}, "text"),
        (SCHEMA, {"comment": 5}, "comment"),
        (SCHEMA, {"properties": {"type": "format-table"}}, "format-table"),
        (NESTED, {"partition_by": ["a"]}, "'a'"),
        (NESTED, {"partition_by": ["s"]}, "'s'"),
        (NESTED, {"partition_by": ["bin"]}, "'bin'"),
        (NESTED, {"properties": {"bucket": "4", "bucket-key": "s"}}, "'s'"),
        (pa.schema([]), {}, "column"),
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), {}, "'a'"),
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), {}, "'A'"),
        (pa.schema([("", pa.int64())]), {}, "no name"),
        (pa.schema([("_KEY_a", pa.int64())]), {}, "_KEY_a"),
        (pa.schema([("_VALUE_KIND", pa.int64())]), {}, "_VALUE_KIND"),
        (pa.schema([("s", pa.struct([("x", pa.int64()), ("x", pa.int64())]))]), {}, "'x'"),
        (pa.schema([("s", pa.struct([]))]), {}, "s"),
        (pa.schema([("d", pa.decimal256(50, 2))]), {}, "d"),
        (pa.schema([("d", pa.duration("s"))]), {}, "d"),
        (pa.schema([("u", pa.uint64())]), {}, "u"),
        (pa.schema([("u", pa.dense_union([pa.field("a", pa.int64())]))]), {}, "u"),
        ("id int", {}, "schema"),
        (None, {}, "schema"),
        ({"id": "int"}, {}, "schema"),
        ([("id", "int")], {}, "schema"),
    ],
    ids=lambda v: shown(v) if not isinstance(v, pa.Schema) else "",
)
def test_tables_that_cannot_be_made_leave_nothing(lake, tmp_path, schema, how, says):
    with pytest.raises((InvalidInput, UnsupportedFeature, NotFound)) as caught:
        lake.create_table("d.t", schema, **how)
    assert says in str(caught.value)
    assert files(tmp_path) == {}
    assert not lake.exists("d.t")


def test_names_of_columns_may_be_odd(lake):
    odd = ["a b", "a.b", "日本", "a/b", 'q"', "`", "x" * 300, "select", "%", "=", "\u00a0"]
    t = lake.create_table("d.t", pa.schema([(n, pa.int64()) for n in odd]), partition_by=["a/b"])
    t.append(pa.table({n: [i] for i, n in enumerate(odd)}))
    t.append(pa.table({n: [None] for n in odd}, pa.schema([(n, pa.int64()) for n in odd])))
    assert t.scan(where="`a b` = 0").to_arrow().to_pylist() == [dict(zip(odd, range(len(odd)), strict=True))]
    assert t.scan(columns=["a.b"]).to_arrow().column_names == ["a.b"]
    assert t.scan(where="`a.b` = 1").count() == 1


def test_a_table_that_is_there(lake, table):
    with pytest.raises(AlreadyExists, match="if_exists"):
        lake.create_table("d.t", SCHEMA)
    assert lake.create_table("d.t", pa.schema([("x", pa.int8())]), if_exists="ignore").schema.names == ("id", "v", "dt")
    lake.create_table("d.u", SCHEMA)
    with pytest.raises(AlreadyExists):
        lake.rename_table("d.t", "d.u")
    with pytest.raises(NotFound, match=r"d\.t"):
        lake.table("d.tt")
    with pytest.raises(NotFound):
        lake.drop_table("d.v")
    with pytest.raises(NotFound):
        lake.tables("nope")


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        *({"columns": v} for v in ([5], 5, ["nope"], ["id.x"], ["id", "nope.x"], [None], [""], "id,v", ["\0"], b"id")),
        *({"where": v} for v in (5, b"x", "", "id =", "nope = 1", "id = 'x'", "id + 1", "sum(id) > 1", "id = 1; drop", [],
                                 "id between 1", "v like 5", "exists (select 1)", "id = date 'x'",
                                 "(" * 5000 + "id = 1" + ")" * 5000, "dt", "\0")),
        *({"snapshot_id": v} for v in (0, -1, 99, 2**70, True, 1.5, "1", "x", "../1", [], b"1")),
        *({"as_of": v} for v in ("", "yesterday", True, 1.5, [], b"x", -1, "2020-13-01", datetime.time(1))),
        *({"tag": v} for v in ("", "nope", "..", "a/b", 5, True, [], "../../snapshot/snapshot-1")),
        *({"limit": v} for v in (-1, "5", 1.5, True, [], 2.0)),
        {"snapshot_id": 1, "tag": "kept"},
        {"snapshot_id": 1, "as_of": 5},
    ],
    ids=shown,
)  # fmt: skip
def test_scans_that_cannot_be(table, how):
    with pytest.raises((InvalidInput, NotFound, UnsupportedFeature)):
        table.scan(**how).to_arrow()


def test_limits_at_the_edges(table):
    assert table.scan(limit=0).to_arrow().num_rows == 0
    assert table.scan(limit=0).count() == 0
    assert table.scan(limit=2**62).to_arrow().num_rows == 2
    assert table.scan(columns=[]).to_arrow().num_rows == 2
    assert table.scan(columns=("id",)).to_arrow().column_names == ["id"]
    assert table.scan(columns=["v", "id", "v"]).to_arrow().column_names == ["v", "id"]


# --- writing ----------------------------------------------------------------------------------------------------------

WRITES = {
    "append": lambda t, rows, **how: t.append(rows, **how),
    "overwrite": lambda t, rows, **how: t.overwrite(rows, **how),
    "overwrite_partitions": lambda t, rows, **how: t.overwrite_partitions(rows, **how),
    "overwrite where": lambda t, rows, **how: t.overwrite(rows, where="id >= 0", **how),
}
CHANGES = {
    **{name: (lambda t, verb=verb, **how: verb(t, ROWS, **how)) for name, verb in WRITES.items()},
    "truncate": lambda t, **how: t.truncate(**how),
    "drop_partitions": lambda t, **how: t.drop_partitions([{"dt": "x"}], **how),
    "delete": lambda t, **how: t.delete("id = 1", **how),
    "update": lambda t, **how: t.update({"v": "'w'"}, **how),
    "compact": lambda t, **how: t.compact(**how),
    "rollback_to": lambda t, **how: t.rollback_to(1, **how),
}


@pytest.mark.parametrize("verb", CHANGES)
def test_ids_and_properties_that_cannot_be(table, tmp_path, verb):
    properties = [5, "a", [("a", "b")], {"a": 5}, {5: "a"}, {"a": None}, {"a": "\ud800"}, {"": "x"}]
    properties.append({"lakeformat.restored-from": "1"})
    table.append(ROWS)
    before, taken = files(tmp_path), []
    for how in [*({"id": value} for value in STRANGE), *({"properties": value} for value in properties)]:
        with suppress(InvalidInput):
            CHANGES[verb](table, **how)
            taken.append(how)
        assert files(tmp_path) == before, how
    assert taken == []


@pytest.mark.parametrize("watermark", ["x", 1.5, True, 2**63, -(2**64), []])
def test_watermarks_that_cannot_be(table, tmp_path, watermark):
    before = files(tmp_path)
    for verb in (table.append, table.overwrite, table.overwrite_partitions):
        with pytest.raises(InvalidInput, match="watermark"):
            verb(ROWS, watermark=watermark)
    assert files(tmp_path) == before


@pytest.mark.parametrize("pinned", ["x", 1.5, True, -1, 99, 0])
def test_pins_that_cannot_be(table, tmp_path, pinned):
    before = files(tmp_path)
    for verb in (table.overwrite, table.overwrite_partitions):
        with pytest.raises(LakeError):
            verb(ROWS, pinned_to=pinned)
    assert files(tmp_path) == before


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize(
    "data",
    [
        5, None, "rows", b"rows", object(), [5], [ROWS, 5], {"id": 5}, {"id": [1], "v": ["a", "b"]}, [{"id": object()}],
        pa.table({"nope": [1]}), pa.table({"id": ["x"]}), pa.table({"id": [1.5]}), pa.table({"v": [1]}),
        pa.table({"ID": [1]}), pa.table([[1], [2]], names=["id", "id"]), pa.table({"id": [[1]]}),
        pa.table({"id": pa.array([2**64 - 1], pa.uint64())}), pa.array([1]), pa.table({"v": [b"\xff\xfe"]}),
        pa.table({"dt": [datetime.date(2020, 1, 1)], "id": [Decimal("1.5")]}),
        [{"id": 1}, {"id": "x"}], iter([ROWS.to_batches()[0], "x"]), [{"id": 2**70}],
    ],
    ids=lambda v: shown(v) if not isinstance(v, pa.Table) else ",".join(v.schema.names),
)  # fmt: skip
def test_data_that_does_not_fit_leaves_nothing(table, tmp_path, verb, data):
    before = files(tmp_path)
    if isinstance(data, type(iter([]))):
        data = iter([ROWS.to_batches()[0], "x"])
    with pytest.raises(InvalidInput):
        WRITES[verb](table, data)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "type",
    [
        "INT NOT NULL",
        "TINYINT",
        "DECIMAL(3, 1)",
        "VARCHAR(3)",
        "CHAR(2)",
        "BINARY(2)",
        "DATE",
        "TIME(0)",
        "TIMESTAMP(3)",
    ],
)
def test_values_that_a_column_has_no_room_for_leave_nothing(lake, tmp_path, type):
    from lakeformat.dialects.paimon import types
    from lakeformat.model.schema import Field, Schema

    kind, nullable = types.parse_type(type)
    wrong = {
        "INT NOT NULL": [None], "TINYINT": [300], "DECIMAL(3, 1)": [Decimal("100.5")], "VARCHAR(3)": ["abcd"],
        "CHAR(2)": ["abc"], "BINARY(2)": [b"abc"], "DATE": ["x"], "TIME(0)": ["x"], "TIMESTAMP(3)": ["x"],
    }[type]  # fmt: skip
    t = lake.create_table(
        "d.t", Schema((Field(-1, "p", types.parse_type("INT")[0]), Field(-1, "c", kind, nullable))), partition_by=["p"]
    )
    before = files(tmp_path)
    rows = pa.table({"p": [1, 2], "c": pa.concat_arrays([pa.nulls(1, pa.array(wrong).type), pa.array(wrong)])})
    with pytest.raises(InvalidInput, match="c"):
        t.append(rows)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        (lambda t: t.overwrite(ROWS, partition={"dt": "x"}), OutsideScope),
        (lambda t: t.overwrite(ROWS, where="dt = 'x'"), OutsideScope),
        (lambda t: t.overwrite(ROWS, where="id = 1"), OutsideScope),
        (lambda t: t.overwrite(ROWS, partition={"nope": "x"}), InvalidInput),
        (lambda t: t.overwrite(ROWS, partition={"dt": 5.5}), InvalidInput),
        (lambda t: t.overwrite(ROWS, partition={"dt": object()}), InvalidInput),
        (lambda t: t.overwrite(ROWS, partition="dt=x"), InvalidInput),
        (lambda t: t.overwrite(ROWS, partition={"dt": "x"}, where="dt = 'x'"), InvalidInput),
        (lambda t: t.overwrite(ROWS, where=""), InvalidInput),
        (lambda t: t.overwrite(ROWS, where="nope = 1"), NotFound),
        (lambda t: t.overwrite_partitions(ROWS, partitions=[{"dt": "x"}]), OutsideScope),
        (lambda t: t.overwrite_partitions(ROWS, partitions=[]), OutsideScope),
        (lambda t: t.overwrite_partitions(ROWS, partitions={"dt": "x"}), InvalidInput),
        (lambda t: t.overwrite_partitions(ROWS, partitions=["x"]), InvalidInput),
        (lambda t: t.overwrite_partitions(ROWS, partitions=5), InvalidInput),
        (lambda t: t.overwrite_partitions(ROWS, partitions=[{}]), InvalidInput),
        (lambda t: t.overwrite_partitions(ROWS, partitions=[{5: "x"}]), InvalidInput),
        (lambda t: t.drop_partitions([]), InvalidInput),
        (lambda t: t.drop_partitions({"dt": "x"}), InvalidInput),
        (lambda t: t.drop_partitions("dt=x"), InvalidInput),
        (lambda t: t.drop_partitions([{"dt": ["x"]}]), InvalidInput),
        (lambda t: t.drop_partitions([{"dt": 5}, {"dt": "x"}]), InvalidInput),
        (lambda t: t.delete(""), InvalidInput),
        (lambda t: t.delete(None), InvalidInput),
        (lambda t: t.delete(5), InvalidInput),
        (lambda t: t.delete("id"), InvalidInput),
        (lambda t: t.delete("nope = 1"), NotFound),
        (lambda t: t.update({}), InvalidInput),
        (lambda t: t.update(None), InvalidInput),
        (lambda t: t.update({"nope": "1"}), NotFound),
        (lambda t: t.update({"v": 5}), InvalidInput),
        (lambda t: t.update({"v": ""}), InvalidInput),
        (lambda t: t.update({"id": "v"}), InvalidInput),
        (lambda t: t.update({"v": "nope"}), NotFound),
        (lambda t: t.update({5: "1"}), LakeError),
        (lambda t: t.update(["v"]), InvalidInput),
        (lambda t: t.update({"v": "'x'"}, where="nope"), NotFound),
        (lambda t: t.compact(where="id = 1"), InvalidInput),
        (lambda t: t.compact(where="nope = 1"), NotFound),
        (lambda t: t.expire_snapshots(retain_last=0), InvalidInput),
        (lambda t: t.expire_snapshots(retain_last="1"), InvalidInput),
        (lambda t: t.expire_snapshots(retain_last=1.5), InvalidInput),
        (lambda t: t.expire_snapshots(older_than="never"), InvalidInput),
        (lambda t: t.expire_snapshots(older_than=[]), InvalidInput),
        (lambda t: t.expire_snapshots(keep_from="x"), InvalidInput),
        (lambda t: t.remove_orphan_files("never"), InvalidInput),
        (lambda t: t.remove_orphan_files(None), InvalidInput),
        (lambda t: t.remove_orphan_files(1.5), InvalidInput),
        (lambda t: t.rollback_to(), InvalidInput),
        (lambda t: t.rollback_to(1, tag="kept"), InvalidInput),
        (lambda t: t.rollback_to(99), NotFound),
        (lambda t: t.rollback_to("1"), InvalidInput),
        (lambda t: t.rollback_to(tag="nope"), NotFound),
        (lambda t: t.rollback_to(tag=5), InvalidInput),
        (lambda t: t.rollback_to(as_of="x"), InvalidInput),
        (lambda t: t.rollback_to(as_of=5), NotFound),
        (lambda t: t.create_tag("kept", retain=datetime.timedelta(1)), AlreadyExists),
        (lambda t: t.create_tag("n", snapshot_id=99), NotFound),
        (lambda t: t.create_tag("n", snapshot_id="1"), InvalidInput),
        (lambda t: t.create_tag("n", retain=5), InvalidInput),
        (lambda t: t.create_tag("n", retain=datetime.timedelta(-1)), InvalidInput),
        (lambda t: t.delete_tag("nope"), NotFound),
        (lambda t: t.delete_tag(5), InvalidInput),
        (lambda t: t.snapshot(99), NotFound),
        (lambda t: t.snapshot("1"), InvalidInput),
        (lambda t: t.snapshots(after="x"), InvalidInput),
        (lambda t: t.inspect.partitions(small_file_bytes="x"), InvalidInput),
        (lambda t: t.alter().commit(), InvalidInput),
        (lambda t: t.alter().add_column("v", "int").commit(), AlreadyExists),
        (lambda t: t.alter().add_column("V", "int").commit(), AlreadyExists),
        (lambda t: t.alter().add_column("n", "nonsense").commit(), LakeError),
        (lambda t: t.alter().add_column("n", 5).commit(), InvalidInput),
        (lambda t: t.alter().add_column(5, "int").commit(), InvalidInput),
        (lambda t: t.alter().add_column("", "int").commit(), InvalidInput),
        (lambda t: t.alter().add_column("n", "int", nullable=False).commit(), InvalidInput),
        (lambda t: t.alter().add_column("n", "int", default="x").commit(), InvalidInput),
        (lambda t: t.alter().add_column("_KEY_n", "int").commit(), InvalidInput),
        (lambda t: t.alter().drop_column("nope").commit(), NotFound),
        (lambda t: t.alter().drop_column("dt").commit(), InvalidInput),
        (lambda t: t.alter().drop_column("id").drop_column("v").commit(), InvalidInput),
        (lambda t: t.alter().rename_column("dt", "d").commit(), InvalidInput),
        (lambda t: t.alter().rename_column("id", "v").commit(), AlreadyExists),
        (lambda t: t.alter().rename_column("id", "_VALUE_KIND").commit(), InvalidInput),
        (lambda t: t.alter().rename_column("id", 5).commit(), InvalidInput),
        (lambda t: t.alter().change_type("id", "int").commit(), InvalidInput),
        (lambda t: t.alter().change_type("dt", "bytes").commit(), InvalidInput),
        (lambda t: t.alter().change_type("v.x", "int").commit(), NotFound),
        (lambda t: t.alter().move_column("id", after="nope").commit(), NotFound),
        (lambda t: t.alter().set_properties({"bucket": "4"}).commit(), InvalidInput),
        (lambda t: t.alter().set_properties({"bukcet": "4"}).commit(), InvalidInput),
        (lambda t: t.alter().set_properties({"bucket-key": "id"}).commit(), InvalidInput),
        (lambda t: t.alter().set_properties({"target-file-size": "x"}).commit(), InvalidInput),
        (lambda t: t.alter().set_properties({"metadata.stats-mode": "x"}).commit(), InvalidInput),
        (lambda t: t.alter().set_properties({"data-evolution.enabled": "true"}).commit(), LakeError),
        (lambda t: t.alter().set_properties({"user.a": 5}).commit(), InvalidInput),
        (lambda t: t.alter().set_properties(5).commit(), InvalidInput),
        (lambda t: t.alter().set_comment(5).commit(), InvalidInput),
        (lambda t: t.alter().change_comment("v", 5).commit(), InvalidInput),
        (lambda t: t.evolve([5]), InvalidInput),
        (lambda t: t.evolve(5), InvalidInput),
    ],
)  # fmt: skip
def test_verbs_that_cannot_be_leave_nothing(table, tmp_path, verb, error):
    before = files(tmp_path)
    with pytest.raises(error) as caught:
        verb(table)
    assert isinstance(caught.value, LakeError)
    assert len(str(caught.value)) > 10
    assert files(tmp_path) == before


def test_verbs_on_a_table_that_is_gone(lake, table, tmp_path):
    lake.drop_table("d.t")
    assert files(tmp_path) == {}
    others = [
        lambda t: t.scan(),
        lambda t: t.alter().drop_column("v").commit(),
        lambda t: t.expire_snapshots(retain_last=1),
        lambda t: t.create_tag("x"),
    ]
    for verb in [*CHANGES.values(), *others]:
        with pytest.raises(NotFound):
            verb(table)
    assert files(tmp_path) == {}


def test_partitions_by_column_for_a_table_without(lake, tmp_path):
    t = lake.create_table("d.u", SCHEMA)
    t.append(ROWS)
    before = files(tmp_path)
    for verb in (
        lambda: t.overwrite(ROWS, partition={"dt": "x"}),
        lambda: t.overwrite_partitions(ROWS, partitions=[{"dt": "x"}]),
        lambda: t.drop_partitions([{"dt": "x"}]),
    ):
        with pytest.raises(InvalidInput, match="no partitions"):
            verb()
    assert files(tmp_path) == before


def test_a_name_in_another_case_is_the_column_everywhere(lake):
    for format in ("paimon", "iceberg"):
        key = (
            {"primary_key": ["ID", "dt"], "properties": {"bucket": "1"}}
            if format == "paimon"
            else {"sort_by": ["ID DESC"]}
        )
        nested = SCHEMA.append(pa.field("row", pa.struct([("Part", pa.int64())])))
        t = lake.create_table(f"c.{format}", nested, format=format, partition_by=["DT"], **key)
        rows = ROWS.append_column("row", pa.array([{"Part": 1}, None], nested.field("row").type))
        t.append(rows)
        assert t.schema.partitioning.sources == ("dt",)
        found = t.scan(columns=["ID", "Row.part"], where="ID = 1").to_arrow()
        assert (found.schema.names, found.to_pylist()) == (["id", "row"], [{"id": 1, "row": {"Part": 1}}])
        assert t.changes(0, columns=["V"]).to_arrow().column_names == ["v", "_row_kind"]
        t.update({"V": "upper(V)"}, where="ID = 1")
        t.merge_into(rows, on="t.ID = s.Id").when_matched("s.iD = 2").update({"V": "'c'"}).merge()
        t.compact(sort_by=["V"]) if format == "iceberg" else None
        t.alter().rename_column("ROW.PART", "p").change_comment("V", "text").commit()
        assert t.schema.fields[3].type.fields[0].name == "p"
        t.overwrite(rows.slice(1).drop_columns("row"), partition={"DT": "y"})
        t.drop_partitions([{"Dt": "y"}])
        assert t.scan(["V"]).to_arrow().to_pylist() == [{"v": "A"}]
        with pytest.raises(NotFound, match="'idd'; there are id"):
            t.scan(columns=["idd"])
    twins = (Field(0, "id", scalar(Kind.INT)), Field(1, "ID", scalar(Kind.INT)))  # As other writers may have them.
    assert project(twins, ["ID"]) == twins[1:]
    with pytest.raises(InvalidInput, match="'Id' could be id or ID; spell it exactly"):
        project(twins, ["Id"])


VALUES = {
    "l": 5, "f": 0.5, "o": True, "s": None, "e": Decimal("1.25"), "b": b"x", "d": datetime.date(2020, 1, 2),
    "t": datetime.datetime(2020, 1, 2, 3, 4, 5, 6), "z": datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
}  # fmt: skip


def test_plain_values_are_assigned_as_they_are_and_text_is_an_expression(lake):
    types = [pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.decimal128(9, 2), pa.binary(), pa.date32()]
    schema = pa.schema(zip(VALUES, [*types, pa.timestamp("us"), pa.timestamp("us", "UTC")], strict=True))
    t = lake.create_table("c.values", schema, format="iceberg")
    t.append(pa.table({name: pa.nulls(1, schema.field(name).type) for name in VALUES}, schema))
    t.update(VALUES)
    assert t.scan().to_arrow().to_pylist() == [VALUES]
    t.update({"s": "'bob'", "l": np.int64(7)})
    source = pa.table({"l": [7]})
    t.merge_into(source, on="t.l = s.l").when_matched().update({"f": 1.5, "s": "concat(t.s, '!')"}).merge()
    assert t.scan(["l", "f", "s"]).to_arrow().to_pylist() == [{"l": 7, "f": 1.5, "s": "bob!"}]
    with pytest.raises(NotFound, match=r"update of 's': no column 'bob'.*text is quoted: \{'s': \"'...'\"\}"):
        t.update({"s": "bob"})
    with pytest.raises(InvalidInput, match="assigned twice"):
        t.update({"s": None, "S": 1})
    with pytest.raises(InvalidInput):
        t.update({"s": ["bob"]})


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("uper(v) = 'A'", r"uper is not known.*near it are upper"),
        ("substrng(v, 1) = 'A'", r"near it are substring"),
        ("start_with(v, 'A')", r"near it are startswith"),
        ("id IN (SELECT id FROM other)", r"holds a query, which a condition cannot; .*is_in\('id', other.scan"),
        ("EXISTS (SELECT 1)", "holds a query"),
    ],
)
def test_conditions_that_are_not_known_are_refused_with_what_is_near(table, where, said):
    with pytest.raises(InvalidInput, match=said):
        table.scan(where=where)
    with pytest.raises(InvalidInput) as raised:
        table.scan(where="zzz(v)")
    assert "upper" in str(raised.value)
    assert "eq_null_safe" not in str(raised.value)


def test_rows_in_the_place_of_a_schema_are_refused_with_what_to_give(lake):
    for rows in (ROWS, ROWS.to_pandas()):
        with pytest.raises(InvalidInput, match=f"schema is a {type(rows).__name__}; give a pyarrow.Schema"):
            lake.create_table("d.n", rows)
    assert not lake.exists("d.n")


@pytest.mark.spark
def test_a_frame_of_spark_in_the_place_of_a_schema_is_refused_with_what_to_give(lake, spark):
    frame = spark.range(3)
    with pytest.raises(InvalidInput, match=r"schema is a DataFrame; .* give their \.schema here"):
        lake.create_table("d.n", frame)
    assert lake.create_table("d.n", frame.schema).schema.names == ("id",)


@pytest.mark.parametrize("key", [pa.int64(), pa.float64(), pa.date32(), pa.decimal128(5, 2), pa.bool_()], ids=str)
@pytest.mark.parametrize("text_in", ["table", "source"])
def test_merges_on_text_that_is_no_value_of_the_other_side_are_refused_by_name(lake, key, text_in):
    texts, others = pa.table({"k": ["x"], "v": [1]}), pa.table({"k": pa.nulls(1, key), "v": [1]})
    there, given = (texts, others) if text_in == "table" else (others, texts)
    t = lake.create_table("d.m", there.schema, format="iceberg")
    t.append(there)
    with pytest.raises(InvalidInput, match=r"merge_into on `t.k` = `s.k`: .* as text: cast\(`[ts].k` as string\)"):
        t.merge_into(given, on="t.k = s.k").when_matched().update({"v": "s.v + 1"}).merge()
    assert t.scan().to_arrow()["v"].to_pylist() == [1]


def test_a_consumer_is_not_recorded_for_a_column_that_is_not_there(table, tmp_path):
    before = files(tmp_path)
    with pytest.raises(NotFound, match="nope"):
        table.changes(consumer="late", columns=["nope"])
    assert files(tmp_path) == before


@pytest.mark.spark
def test_a_session_that_was_stopped_is_refused(table):
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    stopped = SparkSession.__new__(SparkSession)
    stopped._sc = SparkContext.__new__(SparkContext)
    stopped._sc._jsc = None  # As `stop` leaves it.
    for ask in (
        lambda: table.scan().to_spark(stopped),
        lambda: table.delete("id = 1", spark=stopped),
        lambda: table.compact(spark=stopped),
    ):
        with pytest.raises(InvalidInput, match="the Spark session was stopped; start another one"):
            ask()


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_half_a_surrogate_pair_is_nowhere_in_the_metadata(lake, tmp_path, format):
    table = lake.create_table("d.text", SCHEMA, format=format)
    table.append(ROWS)
    before, half = files(tmp_path), "x\ud800"
    for attempt in (
        lambda: table.alter().set_comment(half).commit(),
        lambda: table.alter().add_column(half, "int").commit(),
        lambda: table.alter().add_column("c", "int", comment=half).commit(),
        lambda: table.alter().rename_column("id", half).commit(),
        lambda: table.alter().set_properties({"user.note": half}).commit(),
        lambda: table.create_tag(half),
        lambda: table.create_branch(half),
        lambda: lake.create_table("d.new", [(half, pa.int64())], format=format),
        lambda: lake.create_table("d.new", SCHEMA, format=format, comment=half),
        lambda: lake.create_table("d.new", SCHEMA, format=format, properties={"user.note": half}),
    ):
        with pytest.raises(InvalidInput):
            attempt()
        assert files(tmp_path) == before
