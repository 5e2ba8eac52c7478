"""Default values of Iceberg's columns: what rows of files without the column have, and what new rows have without a value."""

import datetime
import json
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, Schema, UnsupportedFeature
from lakeformat.dialects.iceberg import types
from lakeformat.expression import default_value
from lakeformat.model.schema import Field, Kind, scalar
from lakeformat.model.type_text import parse_type

U = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
UTC = datetime.UTC
# (type, as declared, in JSON as the specification has it, in Python)
DEFAULTS = [
    ("boolean", "true", True, True), ("int", "-5", -5, -5), ("bigint", str(2**40), 2**40, 2**40), ("float", "1.5", 1.5, 1.5),
    ("double", "-0.25", -0.25, -0.25), ("decimal(9, 2)", "14.2", "14.20", Decimal("14.20")),
    ("date", "2017-11-16", "2017-11-16", datetime.date(2017, 11, 16)),
    ("time", "22:31:08.123456", "22:31:08.123456", datetime.time(22, 31, 8, 123456)),
    ("timestamp", "2017-11-16 22:31:08.123456", "2017-11-16T22:31:08.123456", datetime.datetime(2017, 11, 16, 22, 31, 8, 123456)),
    ("timestamp_ltz", "1969-12-31 23:59:59.999999Z", "1969-12-31T23:59:59.999999+00:00",
     datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    ("string", "i\u00e7eberg", "i\u00e7eberg", "i\u00e7eberg"), ("uuid", str(U), str(U), U.bytes),
    ("fixed(4)", b"\x00\x01\x02\xff", "000102FF", b"\x00\x01\x02\xff"), ("bytes", b"\x00\xff", "00FF", b"\x00\xff"),
]  # fmt: skip
NANOS = ("timestamp(9)", "2017-11-16T22:31:08.123456789", "2017-11-16T22:31:08.123456789")


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


@pytest.fixture
def table(lake):
    t = lake.create_table(
        "d.t", pa.schema([("id", pa.int64()), ("st", pa.struct([("a", pa.int32())]))]), format="iceberg",
        properties={"format-version": "3"},
    )  # fmt: skip
    t.append(pa.table({"id": [1, 2], "st": [{"a": 1}, None]}, schema=t.scan().schema))
    return t


def rows(table, *columns, **how):
    return sorted(table.scan(list(columns) or None, **how).to_arrow().to_pylist(), key=lambda r: r["id"])


def declared(table, name):
    document = json.loads(
        max(
            Path(table.uri.removeprefix("file://")).glob("metadata/v*.json"), key=lambda p: int(p.name[1:-14])
        ).read_text()
    )
    fields = next(s for s in document["schemas"] if s["schema-id"] == document["current-schema-id"])["fields"]
    return next(f for f in fields if f["name"] == name)


@pytest.mark.parametrize(("kind", "given", "held", "value"), DEFAULTS, ids=[d[0] for d in DEFAULTS])
def test_old_rows_and_new_ones_have_the_default(table, kind, given, held, value):
    table.alter().add_column("c", kind, default=given).commit()
    assert (declared(table, "c")["initial-default"], declared(table, "c")["write-default"]) == (held, held)
    assert rows(table, "id", "c") == [{"id": 1, "c": value}, {"id": 2, "c": value}]
    table.append(pa.table({"id": [3]}))
    table.append(pa.table({"id": [4], "c": pa.array([None], table.scan().schema.field("c").type)}))
    assert [r["c"] for r in rows(table, "id", "c")] == [value, value, value, None]
    assert table.scan(where="c is null").count() == 1
    table.compact(full=True)
    table.alter().change_default("c", None).commit()
    table.append(pa.table({"id": [5]}))
    assert [r["c"] for r in rows(table, "id", "c")] == [value, value, value, None, None]
    assert declared(table, "c")["initial-default"] == held
    assert "write-default" not in declared(table, "c")


def test_nanoseconds_too(table):
    kind, given, held = NANOS
    table.alter().add_column("c", kind, default=given).commit()
    assert declared(table, "c")["initial-default"] == held
    assert table.scan(where="c = timestamp '2017-11-16 22:31:08.123456789'").count() == 2


def test_a_changed_default_counts_for_new_rows_only(table):
    table.alter().add_column("c", "int", default="1").commit()
    table.append(pa.table({"id": [3]}))
    table.alter().change_default("c", "7").change_type("c", "bigint").rename_column("c", "d").commit()
    table.append(pa.table({"id": [4]}))
    assert [r["d"] for r in rows(table, "id", "d")] == [1, 1, 1, 7]
    assert (declared(table, "d")["initial-default"], declared(table, "d")["write-default"]) == (1, 7)
    assert [r["d"] for r in rows(table, "id", "d", where="d = 1")] == [1, 1, 1]
    table.delete("d = 1 and id = 2")
    table.update({"d": "d + 1"}, where="id = 1")
    assert [r["d"] for r in rows(table, "id", "d")] == [2, 1, 7]


def test_parts_of_rows_have_defaults(table):
    table.alter().add_column("st.b", "string", default="x").commit()
    assert rows(table, "id", "st") == [{"id": 1, "st": {"a": 1, "b": "x"}}, {"id": 2, "st": None}]
    assert rows(table, "id", "st.b")[0] == {"id": 1, "st": {"b": "x"}}
    table.append(pa.table({"id": [3], "st": pa.array([{"a": 5}], pa.struct([("a", pa.int32())]))}))
    assert rows(table, where="id = 3") == [{"id": 3, "st": {"a": 5, "b": "x"}}]
    assert table.scan(where="st.b = 'x'").count() == 2


@pytest.mark.parametrize("format", ["orc", "avro"])
def test_in_files_of_every_format(lake, format):
    t = lake.create_table("d.f", pa.schema([("id", pa.int64())]), format="iceberg",
                          properties={"format-version": "3", "write.format.default": format})  # fmt: skip
    t.append(pa.table({"id": [1]}))
    t.alter().add_column("c", "uuid", default=str(U)).add_column("n", "int", nullable=False, default="3").commit()
    t.append(pa.table({"id": [2]}))
    assert rows(t) == [{"id": i, "c": U.bytes, "n": 3} for i in (1, 2)]
    with pytest.raises(InvalidInput, match="n is NOT NULL"):
        t.append(pa.table({"id": [3], "n": pa.array([None], pa.int32())}))


def test_equality_deletes_see_the_default_of_a_column_that_old_files_lack(lake):
    t = lake.create_table("d.k", pa.schema([("id", pa.int64())]), format="iceberg", properties={"format-version": "3"})
    t.append(pa.table({"id": [1, 2]}))
    t.alter().add_column("k", "int", default="5").commit()
    with t.delta_writer("cdc", key=["id", "k"], upsert=True) as writer:
        writer.write(pa.table({"id": [1], "k": pa.array([5], pa.int32())}))
        writer.write(pa.table({"id": [2], "k": pa.array([6], pa.int32())}))
        writer.checkpoint(1)
    assert sorted(tuple(r.values()) for r in t.scan().to_arrow().to_pylist()) == [(1, 5), (2, 5), (2, 6)]


def test_merges_insert_the_default(table):
    table.alter().add_column("c", "int", default="9").commit()
    made = table.merge_into(pa.table({"id": [2, 7]}), on="t.id = s.id").when_matched().update({"c": "t.c + 1"})
    made.when_not_matched().insert({"id": "s.id"}).merge()
    assert [(r["id"], r["c"]) for r in rows(table, "id", "c")] == [(1, 9), (2, 10), (7, 9)]


def test_a_new_table_declares_what_new_rows_have(lake):
    fields = (Field(-1, "id", scalar(Kind.BIGINT)), Field(-1, "c", parse_type("date"), default="2020-02-29"))
    t = lake.create_table("d.n", Schema(fields), format="iceberg", properties={"format-version": "3"})
    t.append(pa.table({"id": [1]}))
    assert rows(t) == [{"id": 1, "c": datetime.date(2020, 2, 29)}]
    assert "initial-default" not in declared(t, "c")


def test_what_cannot_be_a_default_is_refused(lake, table):
    old = lake.create_table("d.v2", pa.schema([("id", pa.int64())]), format="iceberg")
    with pytest.raises(UnsupportedFeature, match="defaults from format version 3 on"):
        old.alter().add_column("c", "int", default="1").commit()
    for kind, given in (
        ("int", "x"),
        ("date", "2020-13-01"),
        ("fixed(2)", b"abc"),
        ("uuid", "no"),
        ("double", "nan"),
        ("int", b"1"),
    ):
        with pytest.raises(InvalidInput, match="default"):
            table.alter().add_column("c", kind, default=given).commit()
    for kind in ("array<int>", "struct<a: int>", "unknown"):
        with pytest.raises((UnsupportedFeature, InvalidInput), match="default"):
            table.alter().add_column("c", kind, default="1").commit()
    with pytest.raises(InvalidInput, match="give it a default"):
        table.alter().add_column("c", "int", nullable=False).commit()
    for given, kind in (
        ({"1": 2}, {"type": "struct", "fields": []}),
        ({}, {"type": "list", "element-id": 2, "element": "int", "element-required": True}),
        ([1], {"type": "map", "key-id": 2, "key": "int", "value-id": 3, "value": "int", "value-required": True}),
        ([1], "variant"),
    ):
        with pytest.raises(UnsupportedFeature, match=r"column c: default .*: not supported"):
            types.parse_fields(
                {"fields": [{"id": 1, "name": "c", "required": False, "initial-default": given, "type": kind}]}
            )


def test_rows_lists_and_maps_have_defaults(table):
    for name, kind, given in (
        ("l", "array<timestamp(9)>", '["2017-11-16T22:31:08.123456789", null]'),
        ("m", "map<string, decimal(9, 2)>", '{"keys": ["k"], "values": ["14.20"]}'),
        ("e", "array<int>", "[]"),
        ("r", "struct<x: int, in: struct<y: string>>", "{}"),
    ):
        table.alter().add_column(name, kind, default=given).commit()
        assert [declared(table, name)[key] for key in ("initial-default", "write-default")] == [json.loads(given)] * 2
    table.alter().add_column("r.z", "bigint", default="7").commit()
    table.append(pa.table({"id": [3]}))
    table.alter().change_default("r.z", "8").commit()
    table.append(pa.table({"id": [4]}))
    found = table.scan(["id", "m", "e", "r"]).to_arrow().to_pylist()
    before = {"m": [("k", Decimal("14.20"))], "e": [], "r": {"x": None, "in": None, "z": 7}}
    new = before | {"r": {"x": None, "in": None, "z": 8}}
    assert sorted(found, key=lambda r: r["id"]) == [
        {"id": 1, **before},
        {"id": 2, **before},
        {"id": 3, **before},
        {"id": 4, **new},
    ]
    table.merge_into(pa.table({"id": [4, 5]}), on="t.id = s.id").when_not_matched().insert({"id": "s.id"}).merge()
    assert rows(table, "id", "r", where="id = 5") == [{"id": 5, "r": new["r"]}]
    moments = pa.concat_arrays([chunk.values.view(pa.int64()) for chunk in table.scan(["l"]).to_arrow()["l"].chunks])
    assert moments.to_pylist() == [1510871468123456789, None] * 5
    with pytest.raises(InvalidInput, match="default"):
        table.alter().add_column("w", "map<string, int>", default='{"keys": ["a"], "values": []}').commit()


def test_json_is_what_the_specification_says():
    for kind, given, held, _ in DEFAULTS:
        type = types.iceberg_type(parse_type(kind))
        assert default_value.to_json(given, type, "c") == held
        back = default_value.from_json(held, type, "c")
        assert default_value.value(back, type, "c") == default_value.value(given, type, "c")
        assert default_value.to_json(back, type, "c") == held
