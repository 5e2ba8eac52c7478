"""Avro unions of several types: columns with one type for all values, manifests of other writers, and data files."""

import copy
import io
import random
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from lakeformat import CorruptFile, Lake, LakeError, UnsupportedFeature
from lakeformat.codec.avro import file as avro

FIXED = {"type": "fixed", "name": "f", "size": 2}
ENUM = {"type": "enum", "name": "e", "symbols": ["x", "y"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
AB = b"ab"


def record(name, *fields):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def written(schema, rows, codec="null"):
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, codec=codec, sync_marker=bytes(16))
    return out.getvalue()


@pytest.mark.parametrize(
    ("branches", "values", "expected", "arrow"),
    [
        (["int", "long"], [1, 2**40], [1, 2**40], pa.int64()),
        (["null", "float", "double"], [1.5, None, 1e300], [1.5, None, 1e300], pa.float64()),
        (["int", "double"], [7, 0.5], [7.0, 0.5], pa.float64()),
        ([ENUM, "string"], ["x", "other"], ["x", "other"], pa.string()),
        (["bytes", FIXED], [AB, b"abc"], [AB, b"abc"], pa.binary()),
        ([record("p", ("k", "int")), record("q", ("k", "int"))], [{"k": 7}], [{"k": 7}], None),
        (["long", "double"], [2**60 + 1, 0.5], [{}, {}], pa.struct([])),
        (["null", "string", {"type": "array", "items": "int"}], ["s", None, [1]], [{}, None, {}], pa.struct([])),
        ({"type": "map", "values": ["int", "long"]}, [{"a": 1, "b": 2**40}], [[("a", 1), ("b", 2**40)]], None),
        ({"type": "array", "items": ["null", "int", "string"]}, [[1, None]], [[{}, None]], None),
    ],
)
@pytest.mark.parametrize("top", [False, True])
def test_a_union_has_the_type_that_holds_all_of_its_values(branches, values, expected, arrow, top):
    schema = record("row", ("before", ["null", "string"]), ("u", branches), ("price", DECIMAL))
    rows = [{"before": "b", "u": value, "price": Decimal("-1.25")} for value in values]
    table = avro.decode(written(["null", schema] if top else schema, rows * 3, "deflate"), logical=True).table
    assert table["u"].to_pylist() == expected * 3
    assert arrow is None or table.schema.field("u").type == arrow
    assert table["price"].to_pylist() == [Decimal("-1.25")] * len(table)
    assert avro.decode(written(schema, rows), ["before"]).table.to_pylist() == [{"before": "b"}] * len(rows)


def test_a_member_of_a_union_of_records_is_kept_with_the_union():
    schema = record("row", ("u", [record("p", ("k", "int"), ("v", "int")), record("q", ("k", "int"), ("v", "int"))]))
    table = avro.decode(written(schema, [{"u": ("q", {"k": 7, "v": 8})}]), ["u.k"]).table
    assert table.to_pylist() == [{"u": {"k": 7, "v": 8}}]


def test_damaged_records_with_unions_are_read_as_fastavro_reads_them_or_refused():
    schema = record(
        "row", ("a", ["int", "string"]), ("b", {"type": "array", "items": ["int", "long", "null"]}), ("e", ENUM)
    )
    rows = [{"a": i if i % 3 else "text", "b": [i, None, 2**40], "e": "xy"[i % 2]} for i in range(20)]
    whole, chance = written(schema, rows), random.Random(11)
    start = len(written(schema, []))
    refused = 0
    for _ in range(400):
        data = bytearray(whole)
        data[chance.randrange(start, len(data))] ^= 1 << chance.randrange(8)
        try:
            table = avro.decode(bytes(data)).table
        except CorruptFile:
            refused += 1
            continue
        assert table["b"].to_pylist() == [row["b"] for row in fastavro.reader(io.BytesIO(data))]
    assert refused > 100
    for block in (b"\x02\x02\x01", b"\x02\x02\x04", b"\x02\x08\x00\x02\x00\x03"):  # Branches -1 and 2, and symbol -2.
        with pytest.raises(CorruptFile, match=r"block 0: record\.[ae]: .* holds number"):
            avro.decode(whole[:start] + block + bytes(16))


def test_unions_are_not_written():
    with pytest.raises(UnsupportedFeature, match=r"row\.a: Avro union \['int', 'string'\].* not written"):
        avro.encode(pa.table({"a": [1]}), record("row", ("a", ["int", "string"])))


def rewritten(path, change, extra=None):
    """Write an Avro file again, with a changed schema and, where the schema has more fields, the values of `extra`."""
    data = path.read_bytes()
    head, rows = avro.read_head(data), list(fastavro.reader(io.BytesIO(data)))
    schema = change(copy.deepcopy(head.schema))
    for row in rows:
        row.update(extra or {})
        for part in row.values():
            if isinstance(part, dict):
                part.update(extra or {})
    out = io.BytesIO()
    kept = {name: value.decode() for name, value in head.metadata.items() if not name.startswith("avro.")}
    fastavro.writer(out, schema, rows, metadata=kept)
    path.write_bytes(out.getvalue())


def widened(schema, beside=()):
    """Integers as unions of int and long, and the fields `beside` at the end; also inside nested records."""
    for field in schema["fields"]:
        if field["type"] in ("int", "long"):
            field["type"] = ["int", "long"]
        elif isinstance(field["type"], dict) and field["name"] in ("data_file", "_FILE"):
            widened(field["type"], beside)
    schema["fields"] += copy.deepcopy(list(beside))
    return schema


ROWS = pa.table({"id": pa.array(range(20), pa.int64()), "p": [i % 2 for i in range(20)]})


def table_with_manifests(tmp_path, format, change, extra=None):
    options = {"iceberg": {}, "paimon": {"bucket": "-1"}}[format]
    made = Lake(tmp_path, fsync="false").create_table("d.t", ROWS.schema, format, ["p"], properties=options)
    made.append(ROWS)
    made.append(pa.table({"id": pa.array([100], pa.int64()), "p": [5]}))
    folder = Path(made.uri.removeprefix("file://"))
    files = [*folder.glob("metadata/*.avro"), *folder.glob("manifest/*")]
    assert len(files) >= 4
    for path in files:
        rewritten(path, change, extra)
    return Lake(tmp_path, fsync="false").table("d.t")


@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_manifests_with_unions_are_read_pruned_and_committed_to(tmp_path, format):
    table = table_with_manifests(tmp_path, format, widened)
    assert table.scan().to_arrow().num_rows == table.scan().count() == 21
    assert table.scan(where="id = 100").to_arrow()["id"].to_pylist() == [100]
    assert len(table.scan(where="id >= 100").plan()) == 1  # By bounds.
    table.delete("id < 5")
    table.append(pa.table({"id": pa.array([101], pa.int64()), "p": [1]}))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [*range(5, 20), 100, 101]


ODD = {"name": "odd", "type": ["null", "string", "long"], "default": None}


def test_fields_that_iceberg_does_not_know_are_left_out_whatever_their_type(tmp_path):
    table = table_with_manifests(tmp_path, "iceberg", lambda schema: widened(schema, [ODD]), {"odd": 5})
    assert table.scan(where="id < 3").to_arrow().num_rows == 3


@pytest.mark.parametrize("value", [None, 5])
def test_fields_that_paimon_does_not_know_are_refused_if_a_file_has_them(tmp_path, value):
    table = table_with_manifests(tmp_path, "paimon", lambda schema: widened(schema, [ODD]), {"odd": value})
    if value is None:
        assert table.scan(where="id < 3").to_arrow().num_rows == 3
    else:
        with pytest.raises(UnsupportedFeature, match="files have odd, which lakeformat does not know"):
            table.scan(where="id < 3").to_arrow()


def test_a_known_field_that_is_a_union_without_one_type_is_damage(tmp_path):
    def change(schema):
        for field in schema["fields"]:
            if field["name"] == "data_file":
                (count,) = [part for part in field["type"]["fields"] if part["name"] == "record_count"]
                count["type"] = ["string", "long"]
        return schema

    table = table_with_manifests(tmp_path, "iceberg", change)
    with pytest.raises(CorruptFile, match=r"\.avro: .*struct<>"):
        table.scan().to_arrow()


@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_data_files_with_unions_are_read_or_refused_by_name(tmp_path, format):
    properties = {"iceberg": {"write.format.default": "avro"}, "paimon": {"bucket": "-1", "file.format": "avro"}}[
        format
    ]
    table = Lake(tmp_path, fsync="false").create_table("d.t", ROWS.schema, format, properties=properties)
    table.append(ROWS)
    (path,) = Path(table.uri.removeprefix("file://")).glob("data/*.avro" if format == "iceberg" else "bucket-*/*.avro")

    def with_union(*branches):
        def change(schema):
            (field,) = [field for field in schema["fields"] if field["name"] == "id"]
            field["type"] = list(branches)
            return schema

        return change

    rewritten(path, with_union("null", "int", "long"))
    assert table.scan().to_arrow().sort_by("id").equals(ROWS)
    assert table.scan(where="id > 17").to_arrow()["id"].to_pylist() == [18, 19]
    rewritten(path, with_union("null", "string", "long"))
    with pytest.raises(
        UnsupportedFeature, match=rf"{path.name}.*id: Avro union \['null', 'string', 'long'\]; no one type"
    ):
        table.scan().to_arrow()


def test_no_bytes_of_a_manifest_raise_anything_but_errors_of_the_library(tmp_path):
    table = table_with_manifests(tmp_path, "iceberg", widened)
    path = next(Path(table.uri.removeprefix("file://")).glob("metadata/*-m0.avro"))
    whole, chance = path.read_bytes(), random.Random(5)
    for _ in range(60):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        with suppress(LakeError):
            Lake(tmp_path).table("d.t").scan().plan()
