"""Avro files in Iceberg tables: columns with ids, as fastavro sees them; and files that others wrote."""

import datetime
import io
import json
import random
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from lakeformat import CorruptFile, Lake
from lakeformat.codec.avro import fields as avro_fields
from lakeformat.codec.avro import schema as avro_schema
from lakeformat.commit import commit
from lakeformat.dialects.iceberg import manifest
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.engines import worker
from lakeformat.model.operation import Append, Request
from lakeformat.model.work import WrittenFile
from tests import doors

iceberg = Iceberg()

SCHEMA = pa.schema(
    [
        ("b", pa.bool_()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64()),
        ("dec", pa.decimal128(9, 2)), ("wide", pa.decimal128(38, 10)), ("same", pa.decimal128(9, 2)), ("day", pa.date32()),
        ("ts", pa.timestamp("us")), ("tz", pa.timestamp("us", "UTC")), ("s", pa.string()), ("bin", pa.binary()),
        ("li", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int32())), ("by", pa.map_(pa.int32(), pa.string())),
        ("st", pa.struct([("a", pa.int32()), ("b c", pa.list_(pa.struct([("x", pa.string())])))])),
        pa.field("1 st", pa.struct([pa.field("\u00fc", pa.int32(), nullable=False)]), nullable=False),
    ]
)  # fmt: skip
ROW = {
    "b": True, "i": -5, "l": 2**40, "f": 1.5, "d": 2.5, "dec": Decimal("-14.20"), "wide": Decimal("-1.5"),
    "same": Decimal("0.01"), "day": datetime.date(1969, 5, 5), "ts": datetime.datetime(1960, 1, 2, 3, 4, 5, 6),
    "tz": datetime.datetime(2020, 1, 1, 5, tzinfo=datetime.UTC), "s": "\u00fc", "bin": b"\xff\x00", "li": [1, None],
    "m": [("k", 1), ("l", None)], "by": [(7, "x"), (8, None)], "st": {"a": 1, "b c": [{"x": "y"}, None]}, "1 st": {"\u00fc": 3},
}  # fmt: skip
NOTHING = {**dict.fromkeys(ROW), "1 st": {"\u00fc": 0}}
AVRO = {"write.format.default": "avro"}
MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


def files(table, content=manifest.ManifestContent.DATA):
    store = doors.store(table)
    return manifest.live_entries(
        store, iceberg.load(store, iceberg.head(store).version()).state, content=content
    ).to_pylist()


def opened(entry):
    return fastavro.reader(open(entry["file_path"].removeprefix("file://"), "rb"))


def add(table, schema, records, **how):
    """A file of another writer."""
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, **how)
    path = f"data/foreign-{len(records)}-{len(schema['fields'])}.avro"
    doors.store(table).write(path, sink.getvalue())
    added = (WrittenFile(path, (), len(records), len(sink.getvalue()), file_format="avro"),)
    commit(doors.store(table), iceberg.head(doors.store(table)), iceberg, Append(request=Request(id=path), added=added))


def test_every_type_comes_back_and_fastavro_reads_it(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", properties=AVRO)
    expected = pa.Table.from_pylist([ROW, NOTHING], SCHEMA)
    t.append(expected)
    assert t.scan().to_arrow().equals(expected)
    (entry,) = files(t)
    assert (entry["file_format"], entry["record_count"], entry["file_path"][-5:]) == ("AVRO", 2, ".avro")
    # As Java, which keeps of Avro files only how many rows they hold.
    assert [entry[n] for n in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")] == [None] * 4
    found = opened(entry)
    assert found.codec == "deflate"
    first, second = found
    zone = datetime.UTC
    assert first == {
        **{k: v for k, v in ROW.items() if k not in ("ts", "m", "by", "st", "1 st")},
        "ts": ROW["ts"].replace(tzinfo=zone), "m": dict(ROW["m"]),
        "by": [{"key": 7, "value": "x"}, {"key": 8, "value": None}],
        "st": {"a": 1, "b_x20c": [{"x": "y"}, None]}, "_1_x20st": {"_xFC": 3},
    }  # fmt: skip
    assert second == {**dict.fromkeys(first), "_1_x20st": {"_xFC": 0}}
    written = {f["name"]: f for f in found.writer_schema["fields"]}
    ids = {f.name: f for f in t.schema.fields}
    assert [written[n]["field-id"] for n in ("b", "st")] == [ids["b"].id, ids["st"].id]
    assert written["_1_x20st"]["iceberg-field-name"] == "1 st"
    assert written["ts"]["type"][1] == {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False}
    assert written["tz"]["type"][1]["adjust-to-utc"] is True
    assert (written["dec"]["type"][1]["size"], written["wide"]["type"][1]["size"]) == (4, 16)
    assert written["li"]["type"][1]["element-id"] == ids["li"].type.element.id
    assert written["m"]["type"][1]["key-id"] == ids["m"].type.key.id
    by = written["by"]["type"][1]
    assert by["logicalType"] == "map"
    assert [f["field-id"] for f in by["items"]["fields"]] == [ids["by"].type.key.id, ids["by"].type.value.id]
    assert t.scan(where="ts > timestamp '1970-01-01'").count() == 0


@pytest.mark.parametrize("seed", range(4))
def test_random_rows_come_back_with_any_parts_asked_for(lake, seed):
    rng = random.Random(seed)

    def value(kind):
        if rng.random() < 0.2:
            return None
        if pa.types.is_struct(kind):
            return {f.name: value(f.type) for f in kind}
        if pa.types.is_list(kind):
            return [value(kind.value_type) for _ in range(rng.randint(0, 3))]
        if pa.types.is_map(kind):
            return [(k, value(kind.item_type)) for k in range(rng.randint(0, 3))]
        return rng.choice(["", "a", "b" * 100]) if pa.types.is_string(kind) else rng.randint(-(2**40), 2**40)

    def kind(depth):
        draw = rng.randint(0, 4 if depth else 1)
        if draw == 2:
            return pa.list_(kind(depth - 1))
        if draw == 3:
            return pa.map_(pa.int64(), kind(depth - 1))
        if draw == 4:
            return pa.struct([(f"f {i}", kind(depth - 1)) for i in range(rng.randint(1, 3))])
        return (pa.int64(), pa.string())[draw]

    schema = pa.schema([(f"c{i}", kind(3)) for i in range(4)] + [("st", pa.struct([("x", kind(2)), ("y", kind(2))]))])
    rows = [{f.name: value(f.type) for f in schema} for _ in range(200)]
    t = lake.create_table("d.t", schema, format="iceberg", properties={**AVRO, "write.avro.compression-codec": "zstd"})
    t.append(pa.Table.from_pylist(rows, schema))
    assert t.scan().to_arrow().to_pylist() == pa.Table.from_pylist(rows, schema).to_pylist(), seed
    assert next(iter(opened(files(t)[0]))).keys() == {"c0", "c1", "c2", "c3", "st"}
    found = t.scan(["c2", "st.y"]).to_arrow().to_pylist()
    expected = [{"c2": r["c2"], "st": None if r["st"] is None else {"y": r["st"]["y"]}} for r in rows]
    assert found == pa.Table.from_pylist(expected, t.scan(["c2", "st.y"]).schema).to_pylist(), seed


def test_formats_live_side_by_side_and_columns_are_known_by_id(lake):
    schema = pa.schema(
        [("id", pa.int32()), ("v", pa.string()), ("st", pa.struct([("a", pa.float32()), ("b", pa.int32())]))]
    )
    t = lake.create_table("d.t", schema, format="iceberg", properties=AVRO)
    t.append(pa.table({"id": [1, 2], "v": ["a", "b"], "st": [{"a": 1.5, "b": 2}, None]}, schema=schema))
    t.alter().rename_column("v", "w").rename_column("st.b", "c").drop_column("st.a").commit()
    t.alter().add_column("st.a", "string").add_column("v", "string").change_type("id", "bigint").commit()
    t.alter().set_properties({"write.format.default": "orc"}).commit()
    t.append(pa.table({"id": [3], "w": ["c"], "st": [{"c": 5, "a": "new"}], "v": ["x"]}))
    expected = [
        {"id": 1, "w": "a", "st": {"c": 2, "a": None}, "v": None},
        {"id": 2, "w": "b", "st": None, "v": None},
        {"id": 3, "w": "c", "st": {"c": 5, "a": "new"}, "v": "x"},
    ]
    assert sorted(t.scan().to_arrow().to_pylist(), key=lambda r: r["id"]) == expected
    assert t.scan(where="w = 'b'").to_arrow()["id"].to_pylist() == [2]
    t.update({"w": "'x'"}, where="id = 2")
    t.delete("id = 1")
    t.compact(full=True)
    assert sorted(t.scan().to_arrow()["w"].to_pylist()) == ["c", "x"]


@pytest.mark.parametrize("granularity", ["file", "partition"])
@pytest.mark.parametrize("format", ["avro", "orc"])
def test_deletes_are_in_the_format_of_the_data_unless_said_otherwise(lake, format, granularity):
    t = lake.create_table(
        "d.t", pa.schema([("id", pa.int64())]), format="iceberg",
        properties={**MERGE_ON_READ, "write.format.default": format, "write.delete.granularity": granularity},
    )  # fmt: skip
    for start in (0, 10):
        t.append(pa.table({"id": range(start, start + 10)}))
    t.delete("id in (2, 15)")
    expected = [i for i in range(20) if i not in (2, 15)]
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == expected
    deletes = files(t, manifest.ManifestContent.DELETES)
    assert [d["file_format"] for d in deletes] == [format.upper()] * (2 if granularity == "file" else 1)
    if format == "avro":
        (head,) = {json.dumps(opened(d).writer_schema["fields"], sort_keys=True) for d in deletes}
        assert [f["field-id"] for f in json.loads(head)] == [2147483546, 2147483545]
        assert sorted(row["pos"] for d in deletes for row in opened(d)) == [2, 5]
    t.alter().set_properties({"write.delete.format.default": "parquet"}).commit()
    t.update({"id": "id + 100"}, where="id = 3")
    found = {d["file_format"] for d in files(t, manifest.ManifestContent.DELETES)}
    assert "PARQUET" in found
    t.compact(full=True)
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == sorted(103 if i == 3 else i for i in expected)


def test_equality_deletes_in_avro(lake):
    schema = pa.schema([("id", pa.int64()), ("k", pa.decimal128(9, 2)), ("v", pa.string())])
    t = lake.create_table("d.t", schema, format="iceberg", primary_key=["id", "k"], properties=AVRO)
    with t.delta_writer("cdc", upsert=True) as writer:
        for turn in range(3):
            keys = range(turn, turn + 3)
            writer.write(pa.table({"id": keys, "k": [Decimal(f"{i}.5") for i in keys], "v": [f"t{turn}"] * 3}))
            writer.checkpoint(turn + 1)
    found = {row["id"]: row["v"] for row in t.scan().to_arrow().to_pylist()}
    assert found == {0: "t0", 1: "t1", 2: "t2", 3: "t2", 4: "t2"}
    deletes = files(t, manifest.ManifestContent.DELETES)
    assert {d["file_format"] for d in deletes} == {"AVRO"}
    assert {d["content"] for d in deletes} == {manifest.FileContent.EQUALITY_DELETES}
    assert t.scan().count() == 5


FOREIGN = {
    "type": "record", "name": "n.s.Row", "fields": [
        {"name": "renamed", "type": ["null", "string"], "field-id": 2},
        {"name": "unknown", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "st", "type": ["null", {"type": "record", "name": "In", "fields": [
            {"name": "b", "type": ["string", "null"], "field-id": 5}, {"name": "a", "type": "int", "field-id": 4}]}], "field-id": 3},
        {"name": "again", "type": ["null", "n.s.In"]},
        {"name": "li", "type": {"type": "array", "items": ["null", "int"], "element-id": 7}, "field-id": 6},
        {"name": "m", "type": {"type": "array", "logicalType": "map", "items": {"type": "record", "name": "kv", "fields": [
            {"name": "key", "type": "string", "field-id": 9}, {"name": "value", "type": "int", "field-id": 10}]}}, "field-id": 8},
        {"name": "id", "type": {"type": "int"}, "field-id": 1},
    ],
}  # fmt: skip
MINE = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("st", pa.struct([("a", pa.int64()), ("b", pa.string())])),
     ("li", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int32()))]
)  # fmt: skip


def foreign_rows():
    return [
        {"renamed": "x", "unknown": "B", "st": {"a": 5, "b": None}, "again": None, "li": [1, None],
         "m": [{"key": "k", "value": 1}], "id": 1},
        {"renamed": None, "unknown": "A", "st": None, "again": {"a": 1, "b": "z"}, "li": [], "m": [], "id": 2},
    ]  # fmt: skip


EXPECTED = [
    {"id": 1, "v": "x", "st": {"a": 5, "b": None}, "li": [1, None], "m": [("k", 1)]},
    {"id": 2, "v": None, "st": None, "li": [], "m": []},
]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_files_of_others_are_read_by_id_whatever_they_call_columns_and_in_whatever_order(lake, codec):
    t = lake.create_table("d.t", MINE, format="iceberg")
    assert [f.id for f in t.schema.field("st").type.fields] == [4, 5]
    add(t, FOREIGN, foreign_rows(), codec=codec)
    assert t.scan().to_arrow().to_pylist() == EXPECTED
    assert t.scan(["st.b", "id"], where="id = 1").to_arrow().to_pylist() == [{"st": {"b": None}, "id": 1}]
    t.delete("id = 1")
    assert t.scan().to_arrow().to_pylist() == EXPECTED[1:]


def test_files_of_others_without_ids_are_read_by_the_tables_mapping_of_names(lake):
    def bare(node):
        if isinstance(node, dict):
            return {k: bare(v) for k, v in node.items() if not k.endswith("-id")}
        return [bare(item) for item in node] if isinstance(node, list) else node

    t = lake.create_table("d.t", MINE, format="iceberg")
    add(t, bare(FOREIGN), foreign_rows())
    assert t.scan(["id", "st"]).to_arrow().to_pylist() == [{"id": row["id"], "st": row["st"]} for row in EXPECTED]
    assert t.scan(["v"]).to_arrow()["v"].null_count == 2  # Without a mapping "renamed" is no name of it.

    def part(id, *names, fields=()):
        return {"field-id": id, "names": names, **({"fields": fields} if fields else {})}

    mapping = [
        part(1, "id"), part(2, "v", "renamed"), part(3, "st", fields=[part(4, "a"), part(5, "b")]),
        part(6, "li", fields=[part(7, "element")]), part(8, "m", fields=[part(9, "key"), part(10, "value")]),
    ]  # fmt: skip
    t.alter().set_properties({"schema.name-mapping.default": json.dumps(mapping)}).commit()
    assert t.scan().to_arrow().to_pylist() == EXPECTED


def test_a_damaged_file_is_named(lake):
    t = lake.create_table("d.t", MINE, format="iceberg", properties=AVRO)
    t.append(pa.Table.from_pylist(EXPECTED, MINE))
    path = files(t)[0]["file_path"].removeprefix("file://")
    with open(path, "rb") as file:
        data = file.read()
    for damaged in (data[:-30], b"PAR1" + data[4:], data[:100]):
        with open(path, "wb") as file:
            file.write(damaged)
        with pytest.raises(CorruptFile, match="00000-0-"):
            t.scan().to_arrow()


def test_a_schema_says_the_columns_it_was_made_of(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg")
    emitted = avro_fields.emit(t.schema.fields)
    found = avro_fields.parse(json.loads(json.dumps(emitted)))

    def told(field):
        parts = getattr(field.type, "fields", None) or [
            p for p in (getattr(field.type, role, None) for role in ("element", "key", "value")) if p is not None
        ]
        kind = [told(p) for p in parts] or field.type
        return field.id, avro_schema.legal(field.name), field.nullable, kind

    assert [told(f) for f in found] == [told(f) for f in t.schema.fields]


def test_places_of_rows_count_over_batches(lake):
    t = lake.create_table(
        "d.t", pa.schema([("id", pa.int64())]), format="iceberg", properties={**AVRO, **MERGE_ON_READ}
    )
    t.append(pa.table({"id": range(100)}))
    t.delete("id in (5, 55, 99)")
    (task,) = iceberg.load(doors.store(t), iceberg.head(doors.store(t)).version()).scan()
    found = [id for batch in worker.read(doors.store(t), task, batch_rows=7) for id in batch["id"].to_pylist()]
    assert found == [i for i in range(100) if i not in (5, 55, 99)]
