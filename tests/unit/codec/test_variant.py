"""VARIANT columns of both formats in this process: rows, marks, files and what is refused."""

import datetime
import itertools
import json
import shutil
import struct
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import CorruptFile, Field, InvalidInput, Lake, Schema, UnsupportedFeature
from lakeformat.codec import arrow
from lakeformat.codec.variant import get as variant_get
from lakeformat.codec.variant import shredding as variant_shredding
from lakeformat.codec.variant import variant
from lakeformat.errors import LakeError
from lakeformat.expression import evaluation
from lakeformat.expression.spark_sql import to_sql
from lakeformat.expression.sql_text import parse
from lakeformat.model.schema import Kind, scalar
from lakeformat.model.type_text import parse_type

GOLDEN = Path(__file__).parents[2] / "golden/variant"
COLUMNS = {"id": "bigint", "v": "variant", "l": "array<variant>", "s": "struct<v: variant, m: map<string, variant>>"}
# {"a": 5} and the text "x", as VariantEncoding.md has them.
OBJECT = {"value": bytes([0x02, 1, 0, 0, 2, 0x0C, 5]), "metadata": b"\x01\x01\x00\x01a"}
TEXT = {"value": b"\x05x", "metadata": b"\x01\x00\x00"}
ROWS = [
    {"id": 1, "v": OBJECT, "l": [TEXT, None], "s": {"v": TEXT, "m": [("k", OBJECT)]}},
    {"id": 2, "v": None, "l": None, "s": None},
    {"id": 3, "v": TEXT, "l": [], "s": {"v": None, "m": []}},
]
PLAIN = pa.struct([("metadata", pa.binary()), ("value", pa.large_binary())])


@pytest.fixture(params=["iceberg", "paimon"])
def make(tmp_path, request):
    def made(columns=COLUMNS, name="d.t", **how):
        properties = {"format-version": "3"} if request.param == "iceberg" else {}
        fields = [(name, *text.partition(" not null")) for name, text in columns.items()]
        schema = Schema(tuple(Field(-1, name, parse_type(text), not required) for name, text, required, _ in fields))
        properties |= how.pop("properties", {})
        return Lake(tmp_path).create_table(name, schema, format=request.param, properties=properties, **how)

    made.format, made.keyed = request.param, {"bucket": "1"} if request.param == "paimon" else {}
    return made


def in_order(table):
    return table.sort_by("id").to_pylist()


def test_rows_with_variants_at_any_depth_are_read_as_written(make, tmp_path):
    t = make()
    t.append(pa.Table.from_pylist(ROWS, t.scan().schema))
    assert in_order(t.scan().to_arrow()) == ROWS
    assert t.scan(["id"], where="v is null").to_arrow()["id"].to_pylist() == [2]
    t.append(t.scan().to_arrow())
    t.delete("id = 1")
    t.update({"v": None}, where="id = 3")
    t.compact(full=True)
    assert [row["v"] for row in in_order(t.scan().to_arrow())] == [None] * 4
    assert [row["s"] for row in in_order(t.scan().to_arrow())] == [None, None, ROWS[2]["s"], ROWS[2]["s"]]
    assert arrow.fields_from_arrow(t.scan().schema)[1].type == scalar(Kind.VARIANT)


def test_files_have_the_annotation_in_iceberg_alone(make, tmp_path):
    """Iceberg's specification asks for it; the Parquet library of Java Paimon 1.3.1 fails at it."""
    t = make()
    t.append(pa.Table.from_pylist(ROWS, t.scan().schema))
    (path,) = (tmp_path / "d.db").rglob("*.parquet")
    assert str(pq.ParquetFile(path).schema).count("(Variant(1))") == (4 if make.format == "iceberg" else 0)


def test_what_holds_variants_is_taken_in_any_form(make):
    t = make({"id": "bigint", "v": "variant"})
    t.append(pa.table({"id": [1, 2], "v": pa.array([OBJECT, None], PLAIN)}))
    t.append(pa.table({"id": [3], "v": pa.array([None], pa.null())}))
    t.alter().add_column("w", "variant").commit()
    assert in_order(t.scan().to_arrow()) == [
        {"id": 1, "v": OBJECT, "w": None}, {"id": 2, "v": None, "w": None}, {"id": 3, "v": None, "w": None},
    ]  # fmt: skip
    for wrong, says in (
        (pa.array(["{}"]), "column v: string does not fit variant"),
        (pa.array([{"metadata": b"", "value": None}], PLAIN), "column v: 1 variants have no value"),
        (pa.array([{"value": b"", "other": b""}]), "column v"),
    ):
        with pytest.raises(InvalidInput, match=says):
            t.append(pa.table({"id": [1], "v": wrong}))
    assert t.scan().count() == 3


def test_rows_by_key_hold_variants(make):
    t = make({"id": "bigint not null", "v": "variant"}, primary_key=["id"], properties=make.keyed)
    given = pa.table({"id": [1, 2], "v": pa.array([OBJECT, None], PLAIN)})
    t.upsert(given)
    t.upsert(given.slice(0, 1).set_column(1, "v", pa.array([TEXT], PLAIN)))
    assert in_order(t.scan().to_arrow()) == [{"id": 1, "v": TEXT}, {"id": 2, "v": None}]


@pytest.mark.parametrize("role", ["primary_key", "partition_by"])
def test_variants_have_no_order(make, role):
    with pytest.raises(InvalidInput, match="v"):
        make({"id": "bigint", "v": "variant"}, **{role: ["v"]})
    t = make({"id": "bigint", "v": "variant"})
    t.append(pa.table({"id": [1], "v": pa.array([OBJECT], PLAIN)}))
    for condition in ("v = 1", "v < v"):
        with pytest.raises(InvalidInput, match="cannot be compared"):
            t.scan(where=condition).to_arrow()


@pytest.mark.parametrize("format", ["orc", "avro"])
def test_other_files_than_parquet_are_refused(make, format):
    key = "write.format.default" if make.format == "iceberg" else "file.format"
    t = make({"id": "bigint", "v": "variant"}, properties={key: format})
    with pytest.raises(UnsupportedFeature, match="variant"):
        t.append(pa.table({"id": [1], "v": pa.array([OBJECT], PLAIN)}))
    assert t.scan().count() == 0


def test_variants_of_java_are_read(tmp_path):
    shutil.copytree(GOLDEN / "java131", tmp_path / "d.db/t")
    found = Lake(tmp_path).table("d.t").scan().to_arrow().to_pylist()
    assert [row["id"] for row in found] == [77, 78]
    assert found[1]["v"] is None
    assert found[0]["v"]["metadata"] == b"\x01\x03\x00\x01\x02\x03abc"
    assert found[0]["v"]["value"].startswith(b"\x02\x02\x00\x02\x00\x15\x16\x02\x01\x01\x00\x10\x03\x03\x00\x02\x08\n")


def test_shredded_variants_are_put_together(make, tmp_path):
    """A file of DuckDB in the place of ours: objects in parts and whole, below them objects and lists, and what is no object."""
    properties = {"schema.name-mapping.default": '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["v"]}]'}
    t = make({"id": "bigint", "v": "variant"}, properties=properties if make.format == "iceberg" else {})
    t.append(pa.table({"id": range(40), "v": pa.nulls(40)}))
    (path,) = (tmp_path / "d.db").rglob("*.parquet")
    shutil.copy(GOLDEN / "duckdb_shredded.parquet", path)
    expected = json.loads((GOLDEN / "duckdb_shredded.json").read_text())
    for _ in range(2):
        assert {str(row["id"]): row["v"] and decoded(**row["v"]) for row in t.scan().to_arrow().to_pylist()} == expected
        assert t.scan(["v"], where="id = 1").to_arrow()["v"].to_pylist()[0]["value"][0] & 3 == 2
        t.overwrite(t.scan().to_arrow())  # Written plain.


PARTS = {"type": "ROW", "fields": [{"name": "v", "type": {"type": "ROW NOT NULL", "fields": [
    {"id": 7, "name": "a", "type": "TINYINT"}, {"name": "b", "type": "STRING"}, {"name": "zz", "type": "DECIMAL(9, 3)"},
    {"name": "c", "type": {"type": "ARRAY", "element": "INT"}}, {"name": "d", "type": "VARIANT"}, {"name": "none", "type": "BYTES"}]}}]}  # fmt: skip


@pytest.mark.parametrize("how", ["inferred", "named"])
def test_variants_are_shredded_where_the_table_asks(make, tmp_path, how):
    """Values come back as they were, and those of their columns' types stand in them; beside them columns keep their statistics."""
    given = {
        "iceberg": {"write.parquet.shred-variants": "true", "write.parquet.variant-inference-buffer-size": "30"},
        "paimon": {"variant.inferShreddingSchema": "true"} if how == "inferred" else {"variant.shreddingSchema": json.dumps(PARTS)},
    }  # fmt: skip
    t = make(
        {"id": "bigint", "v": "variant", "l": "array<variant>", "x": "double", "w": "variant"},
        properties=given[make.format],
    )
    source = pq.ParquetFile(GOLDEN / "duckdb_shredded.parquet").read()
    variants = variant.plain(source["v"].combine_chunks(), "v")
    rows = pa.table(
        {"id": source["id"], "v": variants, "l": pa.nulls(40), "x": [float("nan"), *range(39)], "w": pa.nulls(40)}
    )
    expected = json.loads((GOLDEN / "duckdb_shredded.json").read_text())
    t.append(rows)
    t.append(rows)
    for _ in range(2):
        found = t.scan().to_arrow().sort_by("id").to_pylist()
        assert [row["v"] and decoded(**row["v"]) for row in found] == [
            expected[str(id)] for id in range(40) for _ in "12"
        ]
        assert t.scan(["id"], where="x >= 38").to_arrow()["id"].to_pylist().count(39) == 2
        assert t.scan(["id"], where="variant_get(v, '$.c[1]', 'int') = 28").count() == 2
        t.compact(full=True)
    file = pq.ParquetFile(max((tmp_path / "d.db").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns))
    held = file.schema_arrow.field("v").type
    assert held.names == ["metadata", "value", "typed_value"]
    parts = {field.name: field.type for field in held.field("typed_value").type}
    named = make.format == "paimon" and how == "named"
    assert parts["a"].field("typed_value").type == (pa.int8() if named else pa.int64())
    if make.format == "iceberg":
        assert list(parts) == ["a", "b", "c", "d", "e", "zz", "Ä"]
        assert parts["zz"].field("typed_value").type == pa.decimal128(18, 2)
    else:  # Java 1.3.1 reads neither decimals nor timestamps there, and no part without a field id.
        assert list(parts) == (["a", "b", "c", "none"] if named else ["a", "b", "c", "d", "Ä"])
        assert held.field("typed_value").metadata[b"PARQUET:field_id"] == b"2"
    assert (
        file.schema_arrow.field("l").type.value_type.names
        == file.schema_arrow.field("w").type.names
        == ["value", "metadata"]
    )
    column = file.read(["v"])["v"].combine_chunks()
    typed = column.field("typed_value")
    assert typed.field("a").field("typed_value").drop_null().to_pylist().count(14) == 2
    assert str(file.schema).count("(Variant(1))") == (3 if make.format == "iceberg" else 0)


def test_values_that_do_not_fit_their_columns_stay_beside_them():
    rows = [
        TEXT,
        OBJECT,
        None,
        {"value": b"\x00", "metadata": b"\x01\x00\x00"},
        {"value": b"\x10\x2c\x01", "metadata": b"\x01\x00\x00"},
    ]
    given = pa.array(rows, variant.ARROW)
    for parts, fit in (
        (pa.int8(), []),
        (pa.int16(), [300]),
        (pa.string(), ["x"]),
        (pa.decimal128(4, 2), []),
        (pa.list_(pa.null()), []),
    ):
        found = variant_shredding.shred(given, parts)
        found.validate(full=True)
        assert found.field("typed_value").drop_null().to_pylist() == fit
        assert variant.plain(found, "v").equals(given)
    assert variant_shredding.infer(given.slice(2, 2), variant_shredding.Limits()) == pa.null()
    number = {"value": bytes([8 << 2, 2, 0x39, 0x30, 0, 0]), "metadata": b"\x01\x00\x00"}  # 123.45
    for parts, fit in (
        (pa.decimal128(4, 1), []),
        (pa.decimal128(4, 2), []),
        (pa.decimal128(6, 3), [Decimal("123.450")]),
    ):
        assert (
            variant_shredding.shred(pa.array([number], variant.ARROW), parts)
            .field("typed_value")
            .drop_null()
            .to_pylist()
            == fit
        )


def test_parts_that_cannot_be_are_refused_before_anything_is_written(tmp_path):
    schema = Schema((Field(-1, "v", scalar(Kind.VARIANT)),))
    for text, says in (
        ("{", "row type"),
        ('"INT"', "must be a row type"),
        ('{"type": "MAP", "key": "INT", "value": "INT"}', "no MAP"),
    ):
        with pytest.raises(InvalidInput, match=says):
            Lake(tmp_path).create_table("d.t", schema, format="paimon", properties={"variant.shreddingSchema": text})
    with pytest.raises(InvalidInput, match="shred-variants"):
        Lake(tmp_path).create_table(
            "d.t", schema, format="iceberg", properties={"format-version": "3", "write.parquet.shred-variants": "yes"}
        )


@pytest.mark.parametrize(
    ("typed", "value", "says"),
    [
        (pa.array([1], pa.int32()), b"\x0c\x01", "both value and typed_value"),
        (pa.array([{"a": {"value": b"\x00"}}], pa.struct([("a", pa.struct([("value", pa.binary())]))])), None, "metadata"),
        (pa.array([{"b": {"value": None}}], pa.struct([("b", pa.struct([("value", pa.binary())]))])), b"\x0c\x01", "not an object"),
        (pa.array([{"b": {"value": None}}], pa.struct([("b", pa.struct([("value", pa.binary())]))])), b"\x02\x05", "ends before"),
        (pa.array([1], pa.duration("s")), None, "duration"),
    ],
)  # fmt: skip
def test_shredded_columns_that_contradict_each_other_are_refused(typed, value, says):
    parts = [pa.array([b"\x01\x01\x00\x01b"]), pa.array([value], pa.binary()), typed]
    with pytest.raises((CorruptFile, UnsupportedFeature), match=says):
        variant.plain(pa.StructArray.from_arrays(parts, ["metadata", "value", "typed_value"]), "v")


def test_parts_of_variants_in_conditions(make, tmp_path):
    t = make({"id": "bigint", "v": "variant"})
    shredded = pq.ParquetFile(GOLDEN / "duckdb_shredded.parquet").read()
    t.append(pa.table({"id": shredded["id"], "v": variant.plain(shredded["v"].combine_chunks(), "v")}))
    expected = json.loads((GOLDEN / "duckdb_shredded.json").read_text())

    def ids(condition):
        return sorted(t.scan(["id"], where=condition).to_arrow()["id"].to_pylist())

    def meant(holds):
        return [int(id) for id, value in expected.items() if holds(value if isinstance(value, dict) else {})]

    for condition, holds in (
        ("variant_get(v, '$.d.y[0].z', 'int') >= 14", lambda row: "y" in row.get("d", {}) and row["d"]["y"][0]["z"] >= 14),
        ("variant_get(v, '$[\"b\"]', 'string') = 'b'", lambda row: row.get("b") == "b"),
        ("variant_get(v, '$.d.x', 'decimal(4, 1)') = 2.5", lambda row: row.get("d", {}).get("x") == 2.5),
        ("variant_get(v, '$.zz', 'double') is not null", lambda row: "zz" in row),
        ("variant_get(v, '$.Ä', 'date') = date '2024-02-03'", lambda row: "Ä" in row),
        ("variant_get(v, '$.e', 'timestamp_ntz') > timestamp_ntz '2024-01-02 03:04:05.678900'", lambda row: "e" in row),
    ):  # fmt: skip
        assert ids(condition) == sorted(meant(holds)) != []
    assert ids("variant_get(v, '$[2]', 'bigint') = 3") == [6, 13, 20, 27, 34]
    for condition, says in (
        ("variant_get(v, '$.d', 'string') = ''", "objects or arrays"),
        ("variant_get(v, '$.a', 'int') = 1", "not a whole number"),
        ("variant_get(id, '$.a', 'int') = 1", "needs a variant"),
        ("variant_get(v, 'a', 'int') = 1", "is not a path"),
        ("variant_get(v, '$.a') = 1", "variant_get.column"),
        ("variant_get(v, '$.a', 'array<int>') = 1", "is not known"),
    ):
        with pytest.raises(InvalidInput, match=says):
            ids(condition)
    t.delete("variant_get(v, '$.d.w', 'boolean')")
    assert ids("id >= 0") == sorted(meant(lambda row: "w" not in row.get("d", {})))


def test_what_is_read_of_a_variant_is_written_for_spark():
    text = "variant_get(`v`, '$.a', 'TIMESTAMP_LTZ')"
    assert to_sql(parse("variant_get(v, '$.a', 'timestamp')")) == to_sql(parse(text)) == text


def test_parts_of_variants_in_sql(make, tmp_path):
    t = make({"id": "bigint", "v": "variant"})
    shredded = pq.ParquetFile(GOLDEN / "duckdb_shredded.parquet").read()
    t.append(pa.table({"id": shredded["id"], "v": variant.plain(shredded["v"].combine_chunks(), "v")}))
    lake = Lake(tmp_path)
    text = """SELECT id, variant_get(v, '$.d.y[0].z', 'int') z, variant_get(v, '$.d.x', 'decimal(6, 1)') x FROM d.t
              WHERE variant_get(v, '$.b', 'string') = 'text 7' OR variant_get(v, '$.d.w', 'boolean') ORDER BY id LIMIT 2"""
    found = lake.sql(text).to_arrow()
    assert found.schema.types == [pa.int64(), pa.int32(), pa.decimal128(6, 1)]
    assert found.to_pylist() == [{"id": 5, "z": None, "x": Decimal("2.5")}, {"id": 7, "z": 7, "x": Decimal("7.0")}]
    lake.sql(
        "UPDATE d.t SET id = variant_get(v, '$.d.x', 'double') + 100 WHERE variant_get(v, '$.d.y[0].z', 'int') > 30"
    )
    assert t.scan(where="id > 100").to_arrow()["id"].to_pylist() == [135]
    for argument, says in (
        ("v, '$.d', 'string'", "objects or arrays"), ("v, '$.a', 'int'", "not a whole number"), ("v, 'a', 'int'", "is not a path"),
        ("v, '$.a'", "variant_get"), ("id, '$.a', 'int'", "variant_get"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=says):
            lake.sql(f"SELECT variant_get({argument}) FROM d.t").to_arrow()


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False, None]), pa.array([-1, 127], pa.int8()), pa.array([-2, 300], pa.int16()), pa.array([7], pa.int32()),
        pa.array([None, -(2**63)], pa.int64()), pa.array([1.5], pa.float32()), pa.array([float("-inf"), -0.0], pa.float64()),
        pa.array([19000], pa.date32()), pa.array([1], pa.time64("us")), pa.array(["", "é" * 31, "é" * 32, None]), pa.array([b"", b"\xff"]),
        *(pa.array([-(2**62), None], pa.timestamp(unit, zone)) for unit in ("us", "ns") for zone in (None, "UTC")),
        *(pa.array([None, Decimal("-12.34")], pa.decimal128(digits, 2)) for digits in (5, 12, 38)),
    ],
    ids=lambda values: str(values.type),
)  # fmt: skip
def test_each_plain_type_comes_back_from_its_bytes(values):
    metadata = pa.repeat(b"\x01\x00\x00", len(values))
    made = variant.plain(pa.StructArray.from_arrays([metadata, values], ["metadata", "typed_value"]), "v")
    assert all(
        (part == b"\x00") == (not value.is_valid)
        for part, value in zip(made.field("value").to_pylist(), values, strict=True)
    )
    assert variant_get.get(made, "$", values.type, evaluation.cast).equals(values)
    for cut in range(1, len(values)):
        assert variant.plain(made.slice(cut), "v").equals(made.slice(cut))


def test_damaged_bytes_are_an_error_that_names_them():
    """Bytes changed at random: a value, or an error of ours."""
    whole = pq.ParquetFile(GOLDEN / "duckdb_shredded.parquet").read()["v"].combine_chunks()
    rows, random = variant.plain(whole, "v").drop_null().to_pylist(), Random(5)
    condition = parse("variant_get(v, '$.d.y[0].z', 'int') > 1 OR variant_get(v, '$.b', 'string') > 'x'")
    seen = set()
    for _ in range(150):
        row = dict(random.choice(rows))
        part = random.choice(["value", "metadata"])
        damaged = bytearray(row[part])
        damaged[random.randrange(len(damaged))] = random.choice([0, 1, 127, 255])
        row[part] = bytes(damaged[: random.choice([len(damaged), random.randrange(len(damaged))])])
        rest = pa.array([{"q": {"value": None}}], pa.struct([("q", pa.struct([("value", pa.binary())]))]))
        for read in (
            lambda row=row: evaluation.evaluate(condition, pa.record_batch({"v": pa.array([row], variant.ARROW)})),
            lambda row=row, rest=rest: variant.plain(
                pa.StructArray.from_arrays(
                    [pa.array([row["metadata"]]), pa.array([row["value"]]), rest], ["metadata", "value", "typed_value"]
                ),
                "v",
            ),
        ):
            try:
                read()
                seen.add("read")
            except LakeError as error:
                seen.add(type(error).__name__)
    assert seen >= {"read", "CorruptFile"}


def decoded(metadata, value):
    """The value as JSON has it, read byte by byte."""
    size = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + size], "little")
    ends = [int.from_bytes(metadata[1 + size * i : 1 + size * (i + 1)], "little") for i in range(1, count + 2)]
    text = metadata[1 + size * (count + 2) :]
    names = [text[a:b].decode() for a, b in itertools.pairwise(ends)]

    def number(at, width):
        return int.from_bytes(value[at : at + width], "little")

    def read(at):
        kind, head = value[at] & 3, value[at] >> 2
        if kind == 1:
            return value[at + 1 : at + 1 + head].decode()
        if kind == 0:
            return primitive(at + 1, head)
        width, id_width = (head & 3) + 1, (head >> 2 & 3) + 1 if kind == 2 else 0
        count_width = 4 if head >> (4 if kind == 2 else 2) & 1 else 1
        items, ids = number(at + 1, count_width), at + 1 + count_width
        offsets = ids + items * id_width
        first = offsets + (items + 1) * width
        values = [read(first + number(offsets + i * width, width)) for i in range(items)]
        if kind == 3:
            return values
        keys = [names[number(ids + i * id_width, id_width)] for i in range(items)]
        assert keys == sorted(keys, key=str.encode)
        return dict(zip(keys, values, strict=True))

    def primitive(at, head):
        match head:
            case 0 | 1 | 2:
                return (None, True, False)[head]
            case 3 | 4 | 5 | 6:
                return int.from_bytes(value[at : at + (1 << head - 3)], "little", signed=True)
            case 7:
                return struct.unpack_from("<d", value, at)[0]
            case 8 | 9:
                return number(at + 1, 4 << head - 8) / 10 ** value[at]
            case 11:
                return str(datetime.date(1970, 1, 1) + datetime.timedelta(number(at, 4)))
            case 13:
                return str(datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=number(at, 8)))
            case 16:
                return value[at + 4 : at + 4 + number(at, 4)].decode()
        raise AssertionError(head)

    return read(0)


def test_shredded_metadata_says_sorted_only_where_it_is():
    """DuckDB says so always, and Java's Iceberg then finds no field `w` in a shredded column."""
    said = [b"\x11\x02\x00\x01\x02xw", b"\x11\x02\x00\x01\x02wx", b"\x01\x02\x00\x01\x02xw", b"\x11\x02\x00\x01\x02ww"]
    rows = [{"metadata": metadata, "value": b"\x00"} for metadata in said]
    found = variant_shredding.shred(pa.array([*rows, None, rows[0]], variant.ARROW), pa.struct([("w", pa.int64())]))
    assert [row and row["metadata"][0] for row in found.to_pylist()] == [0x01, 0x11, 0x01, 0x01, None, 0x01]
    assert [row and row["metadata"][1:] for row in found.to_pylist()][:4] == [metadata[1:] for metadata in said]
