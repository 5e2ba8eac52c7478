"""Avro files against fastavro, both ways, over drawn schemas and values; damage; and the guesses of the decoder."""

import io
import itertools
import json
import random
import re
import struct
import subprocess
import sys
import zlib
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path

import cramjam
import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeformat.codec import parsing
from lakeformat.codec.avro import few as avro_few
from lakeformat.codec.avro import file as avro
from lakeformat.codec.avro import schema as avro_schema
from lakeformat.errors import CorruptFile, InvalidInput, LakeError, UnsupportedFeature
from tests.draw import IS_LONG

SYNC = bytes(range(16))
PLAIN = settings(
    max_examples=80 if IS_LONG else 25, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)

WAYS = (0, 1 << 20)  # `few_bytes`: columns, and records one after the other where that can be.

STATS = [
    ("_MIN_VALUES", "bytes"),
    ("_MAX_VALUES", "bytes"),
    ("_NULL_COUNTS", ["null", {"type": "array", "items": ["null", "long"]}]),
]


def record(name, fields):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


ENTRY = record(
    "entry",
    [
        ("_VERSION", "int"),
        ("_KIND", "int"),
        ("_PARTITION", "bytes"),
        (
            "_FILE",
            record(
                "record__FILE",
                [
                    ("_FILE_NAME", "string"),
                    ("_FILE_SIZE", "long"),
                    ("_VALUE_STATS", record("record__FILE__VALUE_STATS", STATS)),
                    ("_EXTRA_FILES", {"type": "array", "items": "string"}),
                    ("_CREATION_TIME", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
                    ("_FILE_SOURCE", ["null", "int"]),
                    ("_WRITE_COLS", ["null", {"type": "array", "items": "string"}]),
                ],
            ),
        ),
    ],
)


def entries(count, seed=0):
    draw = random.Random(seed)
    return [
        {
            "_VERSION": 2,
            "_KIND": int(draw.random() < 0.05),
            "_PARTITION": draw.randbytes(draw.choice([12, 20, 70])),
            "_FILE": {
                "_FILE_NAME": f"data-{draw.randbytes(16).hex()}-{i % 40}.parquet",
                "_FILE_SIZE": draw.randrange(1 << draw.randrange(1, 63)),
                "_VALUE_STATS": {
                    "_MIN_VALUES": draw.randbytes(draw.randrange(200)),
                    "_MAX_VALUES": draw.randbytes(30),
                    "_NULL_COUNTS": draw.choice([None, [], [0, None, 300], [1] * 4]),
                },
                "_EXTRA_FILES": ["x.index"] * draw.choice([0, 0, 0, 0, 1, 2, 90]),
                "_CREATION_TIME": draw.choice([None, 1_700_000_000_000 + i]),
                "_FILE_SOURCE": draw.choice([None, 0, 1]),
                "_WRITE_COLS": draw.choice([None, None, [], ["a", "bé"]]),
            },
        }
        for i in range(count)
    ]


def written(schema, rows, codec="null", interval=16_000):
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, codec=codec, sync_interval=interval, sync_marker=SYNC)
    return out.getvalue()


def read(data):
    return list(fastavro.reader(io.BytesIO(data)))


# --- Drawn schemas and values. ---

LEAVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=40),
    "string": st.text(max_size=20) | st.just("x" * 300),
}


PARTS = ["record", "array", "map", "union"]


@st.composite
def types(draw, depth=2):
    """(schema, strategy of its values)"""
    kind = draw(
        st.sampled_from([*LEAVES, "fixed", "enum", *(["record", "array", "map", "union"] * 2 if depth else [])])
    )
    name = "unnamed"
    match kind:
        case "fixed":
            size = draw(st.integers(1, 20))
            return {"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size)
        case "enum":
            return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")
        case "record":
            parts = draw(st.lists(types(depth=depth - 1), min_size=1, max_size=3))
            names = [f"f{i}" for i in range(len(parts))]
            return record(name, [(n, t) for n, (t, _) in zip(names, parts, strict=True)]), st.fixed_dictionaries(
                {n: v for n, (_, v) in zip(names, parts, strict=True)}
            )
        case "array":
            item, values = draw(types(depth=depth - 1))
            return {"type": "array", "items": item}, st.lists(values, max_size=5)
        case "map":
            item, values = draw(types(depth=depth - 1))
            return {"type": "map", "values": item}, st.dictionaries(st.text(max_size=5), values, max_size=4)
        case "union":
            inner, values = draw(types(depth=depth - 1).filter(lambda t: t[0] != "null" and not isinstance(t[0], list)))
            order = draw(st.booleans())
            return ["null", inner] if order else [inner, "null"], st.none() | values
    return kind, LEAVES[kind]


def numbered(schema, counter):
    """The schema with a name of its own for each named type."""
    if isinstance(schema, list):
        return [numbered(field, counter) for field in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {k: numbered(v, counter) for k, v in schema.items()}
    return {**copy, "name": f"n{next(counter)}"} if copy.get("type") in ("record", "fixed", "enum") else copy


@st.composite
def files(draw):
    """(schema, a few rows, how many to make of them in disorder, a seed): many, so that guessing is worth its while."""
    parts = draw(st.lists(types(), min_size=1, max_size=5))
    schema = numbered(record("top", [(f"c{i}", t) for i, (t, _) in enumerate(parts)]), itertools.count())
    row = st.fixed_dictionaries({f"c{i}": v for i, (_, v) in enumerate(parts)})
    return schema, draw(st.lists(row, max_size=6)), draw(st.sampled_from([1, 7, 90, 400])), draw(st.integers(0, 99))


def spread(some, count, seed):
    draw = random.Random(seed)
    return [draw.choice(some) for _ in range(count)] if some else []


def as_rows(table):
    """Rows as fastavro gives them: maps are dicts."""
    return [{k: tidy(v, table.schema.field(k).type) for k, v in row.items()} for row in table.to_pylist()]


def tidy(value, type):
    if value is None:
        return None
    if pa.types.is_map(type):
        return {k: tidy(v, type.item_type) for k, v in value}
    if pa.types.is_list(type):
        return [tidy(v, type.value_type) for v in value]
    if pa.types.is_struct(type):
        return {k: tidy(v, type.field(k).type) for k, v in value.items()}
    return value


@PLAIN
@given(files(), st.sampled_from(["null", "deflate", "snappy"]), st.sampled_from([200, 16_000, 1 << 40]))
def test_reads_what_fastavro_writes(file, codec, interval):
    schema, rows = file[0], spread(*file[1:])
    data = written(schema, rows, codec, interval)
    for few_bytes in WAYS:
        decoded = avro.decode(data, few_bytes=few_bytes)
        assert as_rows(decoded.table) == rows
        decoded.table.validate(full=True)
    assert decoded.table.schema == avro.decode(data, few_bytes=0).table.schema


@PLAIN
@given(files(), st.sampled_from(["null", "deflate", "snappy"]), st.sampled_from([1, 300, 64_000]))
def test_fastavro_reads_what_is_written(file, codec, block_bytes):
    schema, rows = file[0], spread(*file[1:])
    table = avro.decode(written(schema, rows)).table
    data, few = (
        avro.encode(table, schema, codec, sync=SYNC, block_bytes=block_bytes, few_bytes=few_bytes) for few_bytes in WAYS
    )
    assert few == data
    assert read(data) == rows
    assert avro.decode(data).table.equals(table)


@PLAIN
@given(files(), st.sampled_from([300, 1 << 40]), st.integers(0, 2**32), st.integers(1, 3))
def test_flipped_bits_are_refused_or_read_as_fastavro_reads_them(file, interval, seed, flips):
    schema, rows = file[0], spread(*file[1:])
    data, draw = bytearray(written(schema, rows, interval=interval)), random.Random(seed)
    begin = data.index(SYNC) + len(SYNC)
    for _ in range(flips if len(data) > begin else 0):
        data[draw.randrange(begin, len(data))] ^= 1 << draw.randrange(8)
    try:
        table = avro.decode(bytes(data), few_bytes=0).table
    except CorruptFile as error:
        with pytest.raises(CorruptFile, match=f"^{re.escape(str(error))}$"):
            avro.decode(bytes(data), few_bytes=1 << 20)
        return
    table.validate(full=True)
    assert repr(avro.decode(bytes(data), few_bytes=1 << 20).table.to_pylist()) == repr(table.to_pylist())
    assert repr(as_rows(table)) == repr(read(bytes(data)))  # As text, so that NaN equals NaN.


# --- Manifests: many records, whose places are guessed. ---


@pytest.mark.parametrize("interval", [500, 16_000, 1 << 40])
@pytest.mark.parametrize("count", [1, 40, 41, 300, 5000])
def test_manifest_entries_are_read_whatever_the_blocks(count, interval):
    rows = raw(entries(count, seed=count))
    assert avro.decode(written(ENTRY, rows, interval=interval)).table.to_pylist() == rows


def raw(rows):
    """Rows as they are read without logical types; fastavro takes integers for timestamps too."""
    return rows


def test_several_batches_are_one_table():
    rows = entries(30_000, seed=3)
    data = written(ENTRY, rows)
    assert len(data) > 5_000_000
    table = avro.decode(data).table
    assert table.num_rows == 30_000
    assert table["_FILE"].combine_chunks().field("_FILE_NAME").to_pylist() == [r["_FILE"]["_FILE_NAME"] for r in rows]
    again = avro.encode(table, ENTRY, "null", sync=SYNC, block_bytes=16_000)
    assert avro.decode(again).table.equals(table)


def test_files_that_are_alike_are_parsed_together():
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "string"}, {"name": "i", "type": "long"}]}

    def file(rows: list[tuple[str, int]], codec: str = "zstandard") -> bytes:
        table = pa.table({"n": [n for n, _ in rows], "i": pa.array([i for _, i in rows], pa.int64())})
        return avro.encode(table, schema, codec, block_bytes=40)

    def parse(data: bytes, where: str) -> pa.Table:
        alone.append(where)
        with parsing.naming(where):
            return avro.decode(data).table

    contents: list[list[tuple[str, int]]] = [[("a" * k, 3**k + j) for j in range(k)] for k in range(9)]
    files, names = [file(rows) for rows in contents], [f"m{k}" for k in range(9)]
    alone: list[str] = []
    found = avro.parse_together(files, names, parse, lambda all, _: all.table)
    assert [[tuple(row.values()) for row in table.to_pylist()] for table in found] == contents
    assert alone == []
    files[3] = file(contents[3], "deflate")
    assert avro.parse_together(files, names, parse, lambda all, _: all.table) == found
    assert alone == names
    files[3] = file(contents[3])[:-1]
    with pytest.raises(CorruptFile, match="m3"):
        avro.parse_together(files, names, parse, lambda all, _: all.table)


def test_records_that_all_look_different_are_read():
    schema = record("row", [("id", "long"), ("name", "string"), ("score", "double")])
    draw = random.Random(5)
    rows = [
        {"id": draw.randrange(-(1 << 62), 1 << 62), "name": draw.randbytes(draw.randrange(9)).hex(), "score": i / 3}
        for i in range(3000)
    ]
    for interval in (2_000, 1 << 40):
        assert avro.decode(written(schema, rows, interval=interval)).table.to_pylist() == rows


def test_records_full_of_what_looks_like_records_are_read():
    """A string that holds the bytes of records is no place where one begins."""
    schema = record("row", [("version", "int"), ("kind", "int"), ("text", "bytes")])
    plain = written(schema, [{"version": 2, "kind": 0, "text": b"\x04\x00\x06abc"}] * 20)
    decoy = plain[plain.index(b"\x04\x00\x0c") :][:180]
    rows = [{"version": 2, "kind": i % 2, "text": decoy if i % 3 else b"abc"} for i in range(2000)]
    assert avro.decode(written(schema, rows)).table.to_pylist() == rows


def test_records_of_no_bytes_are_counted():
    schema = record("row", [("nothing", "null")])
    table = avro.decode(written(schema, [{"nothing": None}] * 500)).table
    assert (table.num_rows, table.schema.field("nothing").type) == (500, pa.null())


def test_long_arrays_in_few_records_are_read():
    schema = record("row", [("values", {"type": "array", "items": ["null", "long"]}), ("end", "int")])
    draw = random.Random(11)
    rows = [
        {"values": [draw.choice([None, draw.randrange(1 << 40)]) for _ in range(5000 if i == 70 else i % 3)], "end": i}
        for i in range(200)
    ]
    assert avro.decode(written(schema, rows)).table.to_pylist() == rows


def test_array_blocks_with_sizes_are_read():
    """A writer may put the items of an array in several blocks, and say a block's bytes after a negative count."""
    body = b"".join(bytes([3, 4, 2 * i, 2 * i + 2 & 0xFF, 2, 10, 0, 8]) for i in range(60))
    schema = record("row", [("values", {"type": "array", "items": "long"}), ("end", "int")])
    data = container(schema, 60, body)
    wanted = read(data)
    assert wanted[1] == {"values": [1, 2, 5], "end": 4}
    assert avro.decode(data).table.to_pylist() == wanted


def container(schema, count, body, codec=b"null", sync=SYNC):
    """A file of one block, as its bytes."""
    header = written(schema, [])[: -len(SYNC)].replace(b"\x08null", bytes([2 * len(codec)]) + codec)
    return header + sync + number(count) + number(len(body)) + body + sync


def number(value):
    folded, out = value << 1 if value >= 0 else -2 * value - 1, bytearray()
    while folded > 127:
        out.append(folded & 127 | 128)
        folded >>= 7
    return bytes([*out, folded])


# --- Few records, one after the other. ---


TABLES = Path(__file__).parents[2] / "golden"


def test_few_records_of_other_engines_are_read_and_written_as_many_are():
    """Every Avro file of the golden tables: manifests, lists, index manifests and data files of Java, Rust and Python."""
    kinds: dict[str, bytes] = {}
    for path in sorted(TABLES.rglob("*")):
        if path.is_file() and path.open("rb").read(4) == b"Obj\x01":
            data = path.read_bytes()
            kinds.setdefault(
                f"{path.relative_to(TABLES).parts[:2]} {avro.read_head(data).metadata['avro.schema']}", data
            )
    assert len(kinds) > 10
    for data in kinds.values():
        for logical in (False, True):
            columns, few = (avro.decode(data, logical=logical, few_bytes=way) for way in WAYS)
            assert few.table.equals(columns.table)
        again = [avro.encode(few.table, few.schema, "null", sync=SYNC, few_bytes=way) for way in WAYS]
        assert again[0] == again[1]


def test_few_records_are_read_in_the_columns_asked_for():
    data = written(ENTRY, entries(3))
    whole, (tree, _) = avro.decode(data).table, avro_schema.parse(ENTRY)
    plain = avro_few.write(tree, None, whole)
    assert plain is not None
    assert avro_few.read(tree, None, plain, 3, True) is not None
    for columns in (["_KIND"], [], ["_FILE._VALUE_STATS._NULL_COUNTS", "_FILE._CREATION_TIME"]):
        for logical in (False, True):
            tables = [avro.decode(data, columns, logical, few_bytes=way).table for way in WAYS]
            assert tables[0].equals(tables[1])
            assert tables[0].num_rows == 3


@pytest.mark.parametrize(
    "type", ["boolean", "int", "long", "double", "bytes", "string", {"type": "array", "items": "boolean"}]
)
def test_a_null_that_the_schema_does_not_allow_is_refused_in_few_records_too(type):
    table = pa.table({"a": pa.array([None], avro.decode(written(record("row", [("a", type)]), [])).table["a"].type)})
    for way in WAYS:
        with pytest.raises(InvalidInput, match="allows no null"):
            avro.encode(table, record("row", [("a", type)]), few_bytes=way)
    if isinstance(type, dict):
        table = pa.table({"a": pa.array([[None]], pa.list_(pa.bool_()))})
        for way in WAYS:
            with pytest.raises(InvalidInput, match="allows no null"):
                avro.encode(table, record("row", [("a", type)]), few_bytes=way)


@pytest.mark.parametrize(
    ("type", "body"),
    [
        ("boolean", b"\x02"),  # Neither true nor false.
        (["null", "long"], b"\x01"),  # Branch -1.
        ("long", b"\xff" * 10 + b"\x01"),  # More than 64 bits.
        ("int", b"\x80\x80\x80\x80\x10"),  # 2^31.
        ("bytes", b"\x01"),  # A length of -1.
        ("string", b"\x02\xff"),  # No UTF-8.
        ("int", b"\x02\x00"),  # A byte too many.
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\x07\x00"),
    ],
)
def test_damage_of_few_records_is_refused(type, body):
    for way in WAYS:
        with pytest.raises(CorruptFile):
            avro.decode(container(record("row", [("a", type)]), 1, body), few_bytes=way)


# --- Choosing columns. ---


def test_only_the_columns_asked_for_are_read():
    rows = entries(500)
    data = written(ENTRY, rows)
    table = avro.decode(data, ["_FILE._FILE_NAME", "_KIND", "_FILE._VALUE_STATS._MAX_VALUES", "_MISSING"]).table
    assert table.column_names == ["_KIND", "_FILE"]
    assert table.to_pylist() == [
        {
            "_KIND": row["_KIND"],
            "_FILE": {
                "_FILE_NAME": row["_FILE"]["_FILE_NAME"],
                "_VALUE_STATS": {"_MAX_VALUES": row["_FILE"]["_VALUE_STATS"]["_MAX_VALUES"]},
            },
        }
        for row in rows
    ]
    none = avro.decode(data, []).table
    assert (none.num_rows, none.num_columns) == (500, 0)
    assert avro.decode(data, ["_FILE"]).table.equals(avro.decode(data).table.select(["_FILE"]))


def test_a_field_of_a_record_that_may_be_null_can_be_chosen():
    schema = record("row", [("part", ["null", record("part", [("a", "int"), ("b", "string")])])])
    rows = [{"part": None if i % 3 else {"a": i, "b": str(i)}} for i in range(100)]
    table = avro.decode(written(schema, rows), ["part.b"]).table
    assert table.to_pylist() == [{"part": r["part"] and {"b": r["part"]["b"]}} for r in rows]


# --- Schemas. ---


def test_a_union_of_a_record_with_null_is_the_record():
    """Paimon up to 0.9 wrote its manifests so, with records that may be null inside."""
    inner = record("stats", [("low", "bytes"), ("counts", ["null", {"type": "array", "items": ["null", "long"]}])])
    schema = ["null", record("entry", [("_KIND", "int"), ("_STATS", ["null", inner])])]
    rows = [
        {"_KIND": 0, "_STATS": None if i % 7 == 0 else {"low": b"x" * (i % 90), "counts": [i, None]}}
        for i in range(300)
    ]
    decoded = avro.decode(written(schema, rows))
    assert decoded.table.to_pylist() == rows
    assert decoded.schema["name"] == "entry"
    again = avro.encode(decoded.table, schema, "deflate", sync=SYNC)
    assert read(again) == rows
    assert avro.decode(again).table.equals(decoded.table)
    with pytest.raises(CorruptFile, match="null"):
        avro.decode(written(schema, [*rows, None]))


def test_types_are_referred_to_by_name():
    part = {**record("part", [("a", "int")]), "namespace": "x.y"}
    other = {**record("part", [("a", "string")]), "namespace": "z"}
    fields = [("first", part), ("second", "x.y.part"), ("third", ["null", "x.y.part"]), ("other", other)]
    schema = record("row", [*fields, ("last", {"type": "array", "items": "z.part"})])
    rows = [
        {"first": {"a": i}, "second": {"a": -i}, "third": None, "other": {"a": "é"}, "last": [{"a": ""}]}
        for i in range(9)
    ]
    data = written(schema, rows)
    assert avro.decode(data).table.to_pylist() == rows
    assert read(avro.encode(avro.decode(data).table, schema, "null")) == rows


def test_attributes_of_the_schema_and_metadata_survive():
    schema = {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            {"name": "status", "type": "int", "field-id": 0},
            {
                "name": "ids",
                "type": ["null", {"type": "array", "items": "int", "element-id": 136}],
                "default": None,
                "field-id": 135,
            },
            {
                "name": "sizes",
                "field-id": 108,
                "type": {
                    "type": "array",
                    "logicalType": "map",
                    "items": {
                        "type": "record",
                        "name": "k117_v118",
                        "fields": [
                            {"name": "key", "type": "int", "field-id": 117},
                            {"name": "value", "type": "long", "field-id": 118},
                        ],
                    },
                },
            },
        ],
    }
    pairs = pa.array([[(1, 10), (2, 20)], []], pa.map_(pa.int32(), pa.int64()))
    table = pa.table({"status": pa.array([1, 2], pa.int32()), "ids": [[1], None], "sizes": pairs})
    data = avro.encode(table, schema, "deflate", {"format-version": b"2", "\u00e9": b""}, sync=SYNC)
    assert data == avro.encode(table, schema, "deflate", {"format-version": b"2", "\u00e9": b""}, sync=SYNC)
    decoded = avro.decode(data)
    assert decoded.schema == schema
    assert decoded.metadata["format-version"] == b"2"
    assert (
        decoded.table.to_pylist()
        == read(data)
        == [
            {"status": 1, "ids": [1], "sizes": [{"key": 1, "value": 10}, {"key": 2, "value": 20}]},
            {"status": 2, "ids": None, "sizes": []},
        ]
    )


def test_a_column_that_is_not_there_is_null_where_it_may_be():
    schema = record("row", [("a", "int"), ("b", ["null", "string"])])
    assert read(avro.encode(pa.table({"a": [1, 2]}), schema, "null")) == [{"a": 1, "b": None}, {"a": 2, "b": None}]


LOGICAL = {
    "day": ({"type": "int", "logicalType": "date"}, pa.date32(), date(1969, 12, 31)),
    "clock": ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms"), time(1, 2, 3, 4000)),
    "clock_us": ({"type": "long", "logicalType": "time-micros"}, pa.time64("us"), time(1, 2, 3, 4)),
    "ms": (
        {"type": "long", "logicalType": "timestamp-millis"},
        pa.timestamp("ms"),
        datetime(1960, 1, 1, 0, 0, 0, 1000),
    ),
    "us": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        pa.timestamp("us"),
        datetime(2024, 2, 29, 1, 2, 3, 4),
    ),
    "money": (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
        pa.decimal128(20, 2),
        Decimal("-1.28"),
    ),
    "coin": (
        {"type": "fixed", "name": "f", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 3},
        pa.decimal128(20, 3),
        Decimal("-12345678901234567.890"),
    ),
    "wide": (
        {"type": "fixed", "name": "g", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 0},
        pa.decimal128(38, 0),
        Decimal(-(10**37)),
    ),
    "uuid": ({"type": "string", "logicalType": "uuid"}, pa.string(), "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
}


@pytest.mark.parametrize("nullable", [False, True])
def test_logical_types_have_their_arrow_types_when_asked_for(nullable):
    types = {n: ["null", t] if nullable else t for n, (t, _, _) in LOGICAL.items() if n != "wide"}
    schema = record("row", list(types.items()))
    arrow = pa.schema([pa.field(n, a, nullable) for n, (_, a, _) in LOGICAL.items() if n in types])
    row = {n: v for n, (_, _, v) in LOGICAL.items() if n in types}
    rows = [dict.fromkeys(row) if nullable and i % 4 == 1 else row for i in range(70)]
    table = pa.Table.from_pylist(rows, arrow)
    data = avro.encode(table, schema, "null")
    decoded = avro.decode(data, logical=True).table
    assert decoded.schema == arrow
    assert decoded.to_pylist() == rows
    numbers = avro.decode(data).table.select(["day", "clock", "clock_us", "ms", "us", "money"]).slice(0, 1).to_pylist()
    micros = 1_709_168_523_000_004
    assert list(numbers[0].values()) == [-1, 3_723_004, 3_723_000_004, -315_619_199_999, micros, b"\x80"]


def test_decimals_are_the_bytes_that_fastavro_reads():
    kinds = [n for n, (_, a, _) in LOGICAL.items() if pa.types.is_decimal(a)]
    schema = record("row", [(n, LOGICAL[n][0]) for n in kinds])
    edges = [Decimal(s * (1 << b) + d) for b in range(62) for s in (1, -1) for d in (-1, 0, 1)]
    arrays = [pa.array([e.scaleb(-LOGICAL[n][1].scale) for e in edges], LOGICAL[n][1]) for n in kinds]
    data = avro.encode(pa.table(arrays, kinds), schema, "null")
    assert read(data) == [{n: e.scaleb(-LOGICAL[n][1].scale) for n in kinds} for e in edges]
    assert avro.decode(data, logical=True).table.equals(pa.table(arrays, avro.decode(data, logical=True).table.schema))


def test_timestamps_under_adjust_to_utc_are_instants():
    for zoned in (True, False):
        kind = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": zoned}
        stamp = pa.array([1, 2], pa.timestamp("us", "UTC" if zoned else None))
        data = avro.encode(pa.table({"t": stamp}), record("row", [("t", kind)]), "null")
        assert avro.decode(data, logical=True).table["t"].combine_chunks().equals(stamp)


def test_columns_of_kindred_arrow_types_are_written():
    schema = record(
        "row",
        [("s", "string"), ("b", "bytes"), ("i", "int"), ("l", {"type": "array", "items": "long"}), ("d", "double")],
    )
    table = pa.table(
        {
            "d": pa.array([1.5, 2.5], pa.float32()),
            "s": pa.array(["x", "y"]).dictionary_encode(),
            "b": pa.array([b"1", b"22"], pa.large_binary()),
            "i": pa.array([1, -1], pa.int8()),
            "l": pa.array([[1], [2, 3]], pa.large_list(pa.int32())),
        }
    )
    wanted = [{"s": "x", "b": b"1", "i": 1, "l": [1], "d": 1.5}, {"s": "y", "b": b"22", "i": -1, "l": [2, 3], "d": 2.5}]
    assert read(avro.encode(table, schema, "null")) == wanted


def test_slices_and_chunks_are_written_as_what_they_show():
    nested = record(
        "part", [("m", {"type": "map", "values": ["null", "string"]}), ("l", {"type": "array", "items": "bytes"})]
    )
    schema = record("row", [("p", ["null", nested]), ("m", {"type": "map", "values": "int"})])
    pairs = lambda i: [(f"k{j}", None if j == 1 else "v" * j) for j in range(i % 4)]  # noqa: E731
    rows = [
        {"p": None if i % 5 == 2 else {"m": pairs(i), "l": [b"x"] * (i % 3)}, "m": [("a", i)] * (i % 2)}
        for i in range(40)
    ]
    arrow = pa.schema(
        [
            ("p", pa.struct([("m", pa.map_(pa.string(), pa.string())), ("l", pa.list_(pa.binary()))])),
            ("m", pa.map_(pa.string(), pa.int32())),
        ]
    )
    table = pa.Table.from_pylist(rows, arrow)
    table = pa.concat_tables([table.slice(7, 5), table.slice(20, 11)])
    data = avro.encode(table, schema, "null")
    assert as_rows(avro.decode(data).table) == as_rows(table) == read(data)


# --- Codecs and blocks. ---


@pytest.mark.parametrize("codec", avro.CODECS)
def test_every_codec_comes_back(codec):
    table = avro.decode(written(ENTRY, entries(700))).table
    data = avro.encode(table, ENTRY, codec, sync=SYNC, block_bytes=5000)
    assert avro.decode(data).table.equals(table)
    assert avro.decode(data).metadata["avro.codec"] == codec.encode()
    assert data.count(SYNC) > 10


def test_zstandard_blocks_are_frames_of_records():
    table = pa.table({"a": pa.array(range(9), pa.int32())})
    data = avro.encode(table, record("row", [("a", "int")]), sync=SYNC)
    block = data[data.index(SYNC) + 16 : -16]
    assert block[:2] == bytes([18, 2 * (len(block) - 2)])
    assert bytes(cramjam.zstd.decompress(block[2:])) == bytes(range(0, 18, 2))


def test_a_block_larger_than_the_buffer_is_read():
    rows = [{"text": random.Random(i).randbytes(1000) * 3000} for i in range(4)]
    schema = record("row", [("text", "bytes")])
    for codec in ("null", "deflate", "snappy"):
        assert avro.decode(written(schema, rows, codec)).table.to_pylist() == rows
    table = avro.decode(written(schema, rows)).table
    assert avro.decode(avro.encode(table, schema)).table.equals(table)


def test_no_rows_are_a_table_of_the_schemas_types():
    decoded = avro.decode(written(ENTRY, []))
    assert decoded.table.num_rows == 0
    assert decoded.table.schema == avro.decode(written(ENTRY, entries(50))).table.schema
    assert read(avro.encode(decoded.table, ENTRY, "null")) == []


# --- Damage. ---


def checked_zstandard(rows):
    return avro.encode(avro.decode(written(ENTRY, rows)).table, ENTRY, sync=SYNC, block_bytes=3000)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_damage_is_named_or_leaves_rows_of_the_schema(codec, seed):
    """Flipped bits and cuts: a `CorruptFile`, or (flips in values cannot be known) as many rows as there were."""
    draw = random.Random(seed)
    rows = entries(120, seed)
    data = checked_zstandard(rows) if codec == "zstandard" else written(ENTRY, rows, codec, 3000)
    whole = avro.decode(data).table
    for _ in range(60):
        damaged = bytearray(data)
        kind = draw.randrange(4)
        at = draw.randrange(len(data))
        if kind == 0:
            damaged[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            damaged[at : at + draw.randrange(1, 20)] = draw.randbytes(draw.randrange(20))
        elif kind == 2:
            del damaged[at:]
        else:
            damaged += draw.randbytes(draw.randrange(1, 40))
        try:
            table = avro.decode(bytes(damaged)).table
        except LakeError as error:
            assert isinstance(error, CorruptFile | UnsupportedFeature), (seed, kind, at)  # noqa: PT017
            continue
        table.validate(full=True)
        assert bytes(damaged).startswith(data[: data.index(SYNC)][:4]), (seed, kind, at)
        if kind == 2:  # Only a cut between two blocks can pass: what is left is rows that were there.
            assert table.equals(whole.slice(0, table.num_rows)), (seed, at)
        if kind == 3:
            pytest.fail(f"bytes after the last block passed: seed {seed}")
        if kind == 0 and at > data.index(SYNC):
            assert table.num_rows == whole.num_rows, (seed, at)


def test_each_kind_of_damage_is_refused():
    data = written(ENTRY, entries(100), interval=1 << 40)
    start = data.index(SYNC) + 16
    told = {
        b"": "begins with b''",
        b"PAR1" + data[4:]: "begins with b'PAR1'",
        data[: start - 20]: "header",
        data[:-1]: "the file ends at",
        data[:-16] + bytes(16): "sync marker",
        data + b"\x02": "within the head of block 1",
        data[:start] + number(99) + data[start + 2 :]: "99 records fill",
        data[:start] + number(101) + data[start + 2 :]: "blocks 0 to 0 together: .*past its block's end",
        data[:start] + number(10**15) + data[start + 2 :]: "1000000000000000 records",
        data[:start] + number(-5) + data[start + 2 :]: "-5 records",
    }
    for damaged, reason in told.items():
        with pytest.raises(CorruptFile, match=reason):
            avro.decode(damaged)


def test_a_wrong_record_among_many_is_refused():
    schema = record(
        "row",
        [
            ("kind", "int"),
            ("name", ["null", "string"]),
            ("flag", "boolean"),
            ("bits", {"type": "enum", "name": "e", "symbols": ["A"]}),
        ],
    )
    good = bytes([2, 2, 6]) + b"abc" + bytes([1, 0])
    assert avro.decode(container(schema, 500, good * 500)).table.num_rows == 500
    bad = {
        bytes([2, 4, 6]) + b"abc" + bytes([1, 0]): "name: union branch byte 0x04",
        bytes([2, 2, 5]) + b"abc" + bytes([1, 0]): "name: a length of -3",
        bytes([2, 2, 6]) + b"abc" + bytes([1, 2]): "bits: an enum of 1 symbols holds number 1",
        bytes([2, 2, 6]) + b"\xff\xfe\xfd" + bytes([1, 0]): "name: .*UTF8",
        bytes([255] * 9 + [2]) + bytes([2, 6]) + b"abc" + bytes([1, 0]): "number",
        bytes([0x80] * 4 + [0x7F]) + bytes([2, 6]) + b"abc" + bytes([1, 0]): "kind: an int holds",
        bytes([2, 2, 6]) + b"abc" + bytes([7, 0]): "flag",
    }
    for one, reason in bad.items():
        for count in (3, 500):
            with pytest.raises(CorruptFile, match=reason):
                avro.decode(container(schema, count, good * (count - 1) + one))


def test_lengths_beyond_the_file_take_no_memory():
    schema = record("row", [("a", {"type": "array", "items": "null"}), ("b", {"type": "array", "items": "long"})])
    for body in (number(1 << 50) + b"\0\0", b"\0" + number(1 << 50) + b"\0", number(-(1 << 62)) + number(1) + b"\0\0"):
        with pytest.raises(CorruptFile):
            avro.decode(container(schema, 1, body))
        with pytest.raises(CorruptFile):
            avro.decode(container(schema, 100, body * 100))
    with pytest.raises(CorruptFile, match="records"):
        avro.decode(container(record("row", [("n", "null")]), 1 << 40, b""))
    bomb = struct.pack("<I", 0xFD2FB528) + bytes([0xE0]) + struct.pack("<Q", 1 << 60) + b"\x03\x00\x00"
    with pytest.raises(CorruptFile, match="not valid zstandard"):
        avro.decode(container(ENTRY, 1, bomb, b"zstandard"))


def test_a_wrong_checksum_is_refused():
    body = bytes(cramjam.snappy.compress_raw(b"\x02" * 100))
    schema = record("row", [("a", "int")])
    assert (
        avro.decode(
            container(schema, 100, body + struct.pack(">I", zlib.crc32(b"\x02" * 100)), b"snappy")
        ).table.num_rows
        == 100
    )
    with pytest.raises(CorruptFile, match="checksum"):
        avro.decode(container(schema, 100, body + bytes(4), b"snappy"))


# --- What is refused. ---


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("string", "only files of records"),
        (["null", "int"], "only files of records"),
        (["int", record("r", [])], "one record is needed"),
        (record("r", [("a", ["null", "r"])]), "r.a: Avro type r contains itself"),
        (record("r", [("a", "date")]), "'date' is not defined"),
        (record("r", [("a", {"type": "fixed", "name": "f", "size": -1})]), "is not an Avro type"),
        (record("r", [("a", {"type": "array"})]), "is not an Avro type"),
    ],
)
def test_schemas_that_are_not_read_are_named(schema, reason):
    body = json.dumps(schema).encode()
    data = b"Obj\x01" + number(1) + number(11) + b"avro.schema" + number(len(body)) + body + b"\0" + SYNC
    with pytest.raises(UnsupportedFeature, match=reason):
        avro.decode(data)
    with pytest.raises(UnsupportedFeature, match=reason):
        avro.encode(pa.table({"a": [1]}), schema)


def test_headers_that_are_not_read_are_named():
    with pytest.raises(UnsupportedFeature, match="'lzo'"):
        avro.decode(container(ENTRY, 0, b"", b"lzo"))
    for head, reason in {
        number(0): "no avro.schema",
        number(1) + number(11) + b"avro.schema" + number(1) + b"{" + b"\0": "not JSON",
        number(1) + number(2) + b"\xff\xff" + number(0) + b"\0": "not UTF-8",
        number(1) + number(1 << 40): "length of",
    }.items():
        with pytest.raises(CorruptFile, match=reason):
            avro.decode(b"Obj\x01" + head + SYNC)


def test_tables_that_do_not_fit_are_refused_by_name():
    schema = record("row", [("a", "int"), ("b", ["null", record("part", [("c", "string")])])])
    part = lambda value: pa.array([value])  # noqa: E731
    for table, reason in {
        "a: .*allows no null": {"a": pa.array([None], pa.int32())},
        "a: .*needs it": {"b": part({"c": "x"})},
        "no place for .'z'.": {"a": [1], "z": [1]},
        "b.c: .*allows no null": {"a": [1], "b": part({"c": None})},
        "b: .*no place for .'d'.": {"a": [1], "b": part({"c": "x", "d": 1})},
        "b: a column of int64": {"a": [1], "b": [1]},
        "a: .*not in range": {"a": [300 << 40]},
        "a: a column of double": {"a": [1.5]},
        "b.c: ": {"a": [1], "b": part({"c": [1]})},
    }.items():
        with pytest.raises(InvalidInput, match=table):
            avro.encode(pa.table(reason), schema)
    good = pa.table({"a": [1]})
    with pytest.raises(InvalidInput, match="'brotli'"):
        avro.encode(good, schema, "brotli")
    with pytest.raises(InvalidInput, match="16 bytes, not 3"):
        avro.encode(good, schema, sync=b"abc")
    with pytest.raises(InvalidInput, match=r"'avro\.codec'"):
        avro.encode(good, schema, metadata={"avro.codec": b"null"})
    kind = {"type": "enum", "name": "e", "symbols": ["A"]}
    with pytest.raises(InvalidInput, match="enum"):
        avro.encode(pa.table({"a": ["B"]}), record("row", [("a", kind)]))


# --- What Java wrote. ---

GOLDEN = sorted(
    path
    for path in (Path(__file__).parents[2] / "golden/paimon").rglob("*")
    if path.is_file() and path.open("rb").read(4) == b"Obj\x01"
)


def inflated(data):
    """The records' bytes of a file, its blocks one after the other."""
    metadata = avro.decode(data).metadata
    at = data.rindex(data[-16:], 0, data.index(data[-16:]) + 16) + 16
    body = b""
    while at < len(data):
        _, at = plain_number(data, at)
        size, at = plain_number(data, at)
        block = data[at : at + size]
        body += bytes(cramjam.zstd.decompress(block)) if metadata["avro.codec"] == b"zstandard" else block
        at += size + 16
    return body


def plain_number(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at


def test_records_of_java_are_read_and_written_to_the_byte():
    """Manifests with and without a union on top, their lists, and data files of all types."""
    chosen = [path for path in GOLDEN if path.suffix == ".avro"][::2] + GOLDEN[::9]
    assert len(chosen) > 100
    for path in chosen:
        data = path.read_bytes()
        body, schema = inflated(data), json.loads(avro.decode(data).metadata["avro.schema"])
        for logical in (False, True):
            table = avro.decode(data, logical=logical).table
            again = avro.encode(table, schema, "null", sync=SYNC, block_bytes=1 << 30)
            assert inflated(again) == body, (path, logical)


BOMB = """
import resource, sys
from lakeformat.codec.avro import few as avro_few, file as avro, schema as avro_schema
from lakeformat.errors import CorruptFile
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    avro.decode(open(sys.argv[1], "rb").read())
except CorruptFile as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


@pytest.mark.parametrize(("codec", "block_bytes"), [("zstandard", 1 << 30), ("deflate", 1 << 20)])
def test_a_small_file_does_not_inflate_to_a_large_one(tmp_path, codec, block_bytes):
    """Neither in one block nor in many; most of what it would hold is never inflated."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": "bytes"}]}
    rows = pa.table({"s": pa.array([bytes(1 << 18)] * 500)})
    data = avro.encode(rows, schema, codec, block_bytes=block_bytes)
    assert len(data) < 300_000
    path = tmp_path / "bomb.avro"
    path.write_bytes(data)
    found = subprocess.run([sys.executable, "-c", BOMB, path], capture_output=True, text=True, check=True).stdout
    kilobytes, _, said = found.partition(" ")
    assert re.search(r"inflates to more than \d+", said), found
    assert int(kilobytes) < 120_000, found


def test_rows_of_no_bytes_are_counted_for_the_whole_file():
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "null"}]}
    data = avro.encode(pa.table({"n": pa.nulls(1)}), schema, "null", sync=SYNC)
    block = bytes.fromhex("80808001") + b"\0" + SYNC  # 2**20 records in no bytes.
    with pytest.raises(CorruptFile, match="1048577 records of no bytes"):
        avro.decode(data + block)


def test_what_writers_make_inflates_within_bounds():
    """Rows that repeat, and a row that is larger than any block."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": "bytes"}, {"name": "n", "type": "long"}]}
    rows = pa.table({"s": [b""] * 200_000 + [b"x" * (70 << 20)], "n": [7] * 200_001})
    data = avro.encode(rows, schema)
    head = avro.read_head(data)
    assert sum(batch.num_rows for batch in avro.read(data, head)) == 200_001


def test_values_are_found_again_by_where_they_begin():
    data = written(ENTRY, entries(1_000) * 16)  # Of more bytes than are inflated together.
    names = ["_FILE_SIZE", "_VALUE_STATS", "_CREATION_TIME"]
    placed = pa.Table.from_batches(list(avro.batches(data, lambda head: ["_KIND", "_FILE._FILE_SIZE@"])))
    assert placed.column_names == ["_KIND", "_FILE"]
    places = pa.concat_arrays(placed["_FILE"].chunks).field("_FILE_SIZE@").to_numpy()
    whole = avro.decode(data).table["_FILE"].combine_chunks()
    found = pa.Table.from_batches(list(avro.values_at(data, "_FILE", names, places)))
    assert found.column_names == names
    for name in names:
        assert found[name].combine_chunks().equals(whole.field(name))
    with pytest.raises(CorruptFile, match="16000 records, of 15999"):
        list(avro.values_at(data, "_FILE", names, places[:-1]))
