"""Types that only Iceberg has, in every file format: time, fixed, uuid, and version 3's nanoseconds and unknown."""

import datetime
import io
import json
import random
import struct
import uuid
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from lakeformat import Field, InvalidInput, Lake, Schema, UnsupportedFeature
from lakeformat.codec import murmur, wkb
from lakeformat.codec.iceberg import single_value
from lakeformat.dialects.iceberg import manifest, types
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.expression import sql_text, transform
from lakeformat.model.partition import Transform, TransformKind
from lakeformat.model.predicate import bind
from lakeformat.model.schema import Geo, Kind, Scalar, scalar
from lakeformat.model.type_text import parse_type
from tests import doors

iceberg = Iceberg()

FORMATS = ("parquet", "orc", "avro")
COLUMNS = {
    "id": "bigint", "t": "time", "f": "fixed(4)", "u": "uuid", "n": "timestamp(9)", "z": "timestamp_ltz(9)", "k": "unknown",
    "st": "struct<t: time, u: uuid, l: array<uuid>, k: unknown, f: fixed(2)>", "m": "map<uuid, timestamp(9)>",
}  # fmt: skip
U = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes
NOW = 1_234_567_890_123_456_789  # 2009-02-13 23:31:30.123456789
ROW = {
    "id": 1, "t": datetime.time(22, 31, 8, 123456), "f": b"\x00\xff12", "u": U, "n": NOW, "z": NOW, "k": None,
    "st": {"t": datetime.time(1), "u": U, "l": [U, None], "k": None, "f": b"ab"}, "m": [(U, 5)],
}  # fmt: skip
NOTHING = {**dict.fromkeys(ROW), "id": 2}


def schema():
    return Schema(tuple(Field(-1, name, parse_type(text)) for name, text in COLUMNS.items()))


def properties(format="parquet", **more):
    return {"format-version": "3", "write.format.default": format, **more}


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


@pytest.fixture(params=FORMATS)
def table(lake, request):
    return lake.create_table("d.t", schema(), format="iceberg", properties=properties(request.param))


def data(table, *rows):
    return pa.Table.from_pylist(list(rows), table.scan().schema)


def entries(table, content=manifest.ManifestContent.DATA):
    store = doors.store(table)
    return manifest.live_entries(
        store, iceberg.load(store, iceberg.head(store).version()).state, content=content
    ).to_pylist()


def test_every_type_comes_back(table):
    kinds = [
        pa.int64(),
        pa.time64("us"),
        pa.binary(4),
        pa.binary(16),
        pa.timestamp("ns"),
        pa.timestamp("ns", "UTC"),
        pa.null(),
    ]
    assert table.scan().schema.types[:7] == kinds
    expected = data(table, ROW, NOTHING)
    table.append(expected)
    assert table.scan().to_arrow().equals(expected)
    table.append(table.scan().to_arrow())
    assert table.scan(["st.u", "k", "m"]).to_arrow().num_rows == 4
    assert table.compact(full=True) is not None
    assert table.scan().to_arrow().equals(pa.concat_tables([expected, expected]).combine_chunks())


def test_files_say_what_the_types_are(table):
    table.append(data(table, ROW))
    path = entries(table)[0]["file_path"].removeprefix("file://")
    match path.rpartition(".")[2]:
        case "parquet":
            held = pq.ParquetFile(path).schema
            told = {held.column(i).path: str(held.column(i).logical_type) for i in range(len(held))}
            assert told["t"] == "Time(isAdjustedToUTC=false, timeUnit=microseconds)"
            assert told["u"] == told["st.u"] == told["st.l.list.element"] == told["m.key_value.key"] == "UUID"
            assert "isAdjustedToUTC=false, timeUnit=nanoseconds" in told["n"]
            assert "isAdjustedToUTC=true, timeUnit=nanoseconds" in told["z"]
            assert "k" not in told
            assert "st.k" not in told
        case "orc":
            held = po.ORCFile(path).schema
            assert held.names == [name for name in COLUMNS if name != "k"]
            told = {
                f.name: {k: v for k, v in f.metadata.items() if k not in (b"iceberg.id", b"iceberg.required")}
                for f in held
            }
            assert told["t"] == {b"iceberg.long-type": b"TIME"}
            assert told["f"] == {b"iceberg.binary-type": b"FIXED", b"iceberg.length": b"4"}
            assert told["u"] == {b"iceberg.binary-type": b"UUID"}
            assert told["n"] == told["z"] == {b"iceberg.timestamp-unit": b"NANOS"}
        case "avro":
            with open(path, "rb") as file:
                found = fastavro.reader(file)
                kinds = {f["name"]: f["type"][1] for f in found.writer_schema["fields"]}
                (row,) = found
            assert kinds["t"] == {"type": "long", "logicalType": "time-micros"}
            assert kinds["f"] == {"type": "fixed", "name": "fixed_4", "size": 4}
            assert kinds["n"] == {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False}
            assert "k" not in kinds
            assert (row["t"], row["f"], row["n"]) == (ROW["t"], ROW["f"], NOW)


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("t = time '22:31:08.123456'", 1), ("t > time '22:31:08.123456'", 0), ("t in (time '22:31:08.123456')", 1),
        ("u = 'f79c3e09-677c-4bbd-a479-3f349cb785e7'", 1), ("f = X'00ff3132'", 1), ("f > X'00ff3132'", 0),
        ("n = timestamp '2009-02-13 23:31:30.123456789'", 1), ("n < timestamp '2009-02-13 23:31:30.123456789'", 0),
        ("z > timestamp '2009-02-13 23:31:30.123456788Z'", 1), ("k is null", 2), ("k is not null", 0),
        ("st.t = time '01:00:00' and st.f = X'6162'", 1),
    ],
)  # fmt: skip
def test_conditions(table, where, count):
    table.append(data(table, ROW, NOTHING))
    assert table.scan(where=where).count() == count
    assert table.scan(where=f"not ({where})").count() == (0 if "is n" in where else 1 - count) + (2 - count) * (
        "is n" in where
    )
    table.delete(where)
    assert table.scan().count() == 2 - count


def test_bounds_in_manifests_leave_files_out(table):
    table.append(data(table, ROW))
    if table.schema.properties["write.format.default"] != "avro":
        (entry,) = entries(table)
        ids = {f.name: f.id for f in table.schema.fields}
        low = {pair["key"]: pair["value"] for pair in entry["lower_bounds"]}
        micros = ((22 * 60 + 31) * 60 + 8) * 1_000_000 + 123456
        assert low[ids["t"]] == micros.to_bytes(8, "little")
        assert (low[ids["f"]], low[ids["u"]]) == (ROW["f"], U)
        assert low[ids["n"]] == low[ids["z"]] == NOW.to_bytes(8, "little")
        assert ids["k"] not in low
        for where in ("t > time '23:00:00'", "f = X'00000000'", "n < timestamp '2009-02-13 23:31:30.123456789'"):
            assert table.scan(where=where).plan() == [], where
    assert len(table.scan(where="t > time '22:00:00'").plan()) == 1


def test_bounds_of_uuids_are_read_as_bytes_and_as_signed_numbers():
    chance = random.Random(7)
    for _ in range(300):
        few = [0, 1, 2**63 - 1, 2**63, 2**64 - 1, chance.getrandbits(64)]
        values = [(chance.choice(few) << 64 | chance.getrandbits(64)).to_bytes(16) for _ in range(3)]
        is_one = len({value[0] >> 7 for value in values}) == 1
        for low, high in ((min(values), max(values)), (min(values, key=signed), max(values, key=signed))):
            low, high = (pa.array([None, value, None]).slice(1) for value in (low, high))
            low, high = (
                decode_bound.to_pylist() for decode_bound in single_value.decode_bounds(low, high, scalar(Kind.UUID))
            )
            assert low[1] is high[1] is None
            assert (low[0] is not None) == (high[0] is not None) == is_one
            assert not is_one or low[0] <= min(values) <= max(values) <= high[0]


def signed(value):
    """A uuid as Java compares it."""
    return tuple(int.from_bytes(half, signed=True) for half in (value[:8], value[8:]))


def test_a_manifest_of_uuids_of_both_signs_is_not_left_out(tmp_path):
    fields = (Field(0, "id", scalar(Kind.INT)), Field(1, "u", scalar(Kind.UUID)))
    t = Lake(tmp_path).create_table("d.t", Schema(fields), format="iceberg", partition_by=["u"])
    uuids = [bytes([first]) + bytes(15) for first in (0x00, 0x20, 0x7F, 0x80, 0xFF)] + [None]
    t.append(pa.table({"id": pa.array(range(6), pa.int32()), "u": pa.array(uuids, pa.binary(16))}))
    for i, value in enumerate(uuids):
        where = "u is null" if value is None else f"u = X'{value.hex()}'"
        assert t.scan(where=where).to_arrow()["id"].to_pylist() == [i]
        assert len(t.scan(where=where).plan()) == 1
    # What Java makes of the same partitions: the least is one with a sign.
    base = doors.view(t).state
    (meta,) = manifest.metas_of(doors.store(t), base.snapshot_document).to_pylist()
    meta["partitions"][0] |= {"lower_bound": uuids[3], "upper_bound": uuids[2]}
    metas = pa.Table.from_pylist([meta], manifest.META)
    for value in uuids:
        where = sql_text.parse("u is null" if value is None else f"u = X'{value.hex()}'")
        assert len(manifest.prune_metas(metas, base, sql_text.parse("true"), bind(where, base.schema.fields))) == 1


@pytest.mark.parametrize("length", [4, 16])
def test_bounds_of_bytes_of_a_fixed_length_are_cut_as_bytes_are_and_uuids_are_not(tmp_path, length):
    properties = {"write.metadata.metrics.default": f"truncate({length})"}
    fields = (Field(0, "f", Scalar(Kind.FIXED, (20,))), Field(1, "u", scalar(Kind.UUID)))
    t = Lake(tmp_path).create_table("d.t", Schema(fields), format="iceberg", properties=properties)
    t.append(pa.table({"f": pa.array([b"a" * 20, b"b" * 20], pa.binary(20)), "u": pa.array([U, U], pa.binary(16))}))
    t.append(pa.table({"f": pa.array([b"\xff" * 20], pa.binary(20)), "u": pa.array([None], pa.binary(16))}))
    high, first = entries(t)
    bounds = {name: {p["key"]: p["value"] for p in first[name]} for name in ("lower_bounds", "upper_bounds")}
    assert bounds["lower_bounds"] == {1: b"a" * length, 2: U}
    assert bounds["upper_bounds"] == {1: b"b" * (length - 1) + b"c", 2: U}
    assert high["upper_bounds"] is None  # Nothing is above.
    assert t.scan(where=f"f = X'{(b'a' * 20).hex()}'").count() == t.scan(where=f"f = X'{'ff' * 20}'").count() == 1


@pytest.mark.parametrize(
    ("by", "folders"),
    [
        ("t", {"t=22%3A31%3A08.123456", "t=null"}), ("f", {"f=AP8xMg%3D%3D", "f=null"}),
        ("u", {"u=f79c3e09-677c-4bbd-a479-3f349cb785e7", "u=null"}),
        ("n", {"n=2009-02-13T23%3A31%3A30.123456789", "n=null"}),
        ("z", {"z=2009-02-13T23%3A31%3A30.123456789%2B00%3A00", "z=null"}),
        ("hours(n)", {"n_hour=2009-02-13-23", "n_hour=null"}), ("days(z)", {"z_day=2009-02-13", "z_day=null"}),
        ("months(n)", {"n_month=2009-02", "n_month=null"}), ("years(z)", {"z_year=2009", "z_year=null"}),
        ("bucket(4, t)", None), ("bucket(4, f)", None), ("bucket(4, u)", None), ("bucket(4, n)", None), ("void(t)", None),
    ],
)  # fmt: skip
def test_partitions(lake, by, folders):
    t = lake.create_table("d.t", schema(), format="iceberg", partition_by=[by], properties=properties())
    t.append(data(t, ROW, NOTHING, {**ROW, "id": 3, "t": datetime.time(23), "n": -1, "z": -1}))
    if folders:
        assert folders < set(t.inspect.files()["partition"].to_pylist()) or by in ("f", "u")
    t.overwrite_partitions(data(t, {**ROW, "id": 4}))
    where = "t = time '22:31:08.123456' and n = timestamp '2009-02-13 23:31:30.123456789' and f = X'00ff3132'"
    assert t.scan(where=where).to_arrow()["id"].to_pylist() == [4]
    assert t.scan(where="id = 2").count() == (0 if by.startswith("void") else 1)


@pytest.mark.parametrize(("kind", "by", "value"), [
    ("date", "dt", 2**24), ("date", "days(dt)", -(2**24)), ("timestamp(6)", "hours(dt)", 2**62), ("timestamp(6)", "dt", -(2**62)),
])  # fmt: skip
def test_partitions_of_times_that_python_cannot_name_are_refused(tmp_path, kind, by, value):
    fields = (Field(0, "dt", parse_type(kind)),)
    t = Lake(tmp_path).create_table("d.t", Schema(fields), format="iceberg", partition_by=[by])
    column = pa.array([value], pa.int32() if kind == "date" else pa.int64()).cast(t.scan().schema.types[0])
    with pytest.raises(InvalidInput, match="in the years 1 to 9999"):
        t.append(pa.table({"dt": column}))
    assert not list(tmp_path.rglob("*.parquet"))
    t.alter().drop_partition_field(t.schema.partitioning.names[0]).commit()
    t.append(pa.table({"dt": column}))
    assert t.scan().to_arrow()["dt"].cast(column.type).equals(pa.chunked_array([column]))


def test_nanoseconds_fall_into_the_partition_that_holds_them():
    at = pa.array([-1, -3_600_000_000_000, -3_600_000_000_001, 0, None, 1], pa.timestamp("ns"))
    kind = scalar(Kind.TIMESTAMP, 9)

    def applied(what, parameter=None):
        return transform.apply(Transform(what, parameter), at, kind).to_pylist()

    assert applied(TransformKind.HOUR) == [-1, -1, -2, 0, None, 0]
    assert applied(TransformKind.YEAR) == [-1, -1, -1, 0, None, 0]
    low, high = transform.between(
        Transform(TransformKind.YEAR),
        pa.array([-1, -293, 292], pa.int32()),
        pa.array([-1, -293, 292], pa.int32()),
        kind,
        True,
    )
    second = 1_000_000_000
    assert low.cast(pa.int64()).to_pylist()[0] == -365 * 86400 * second
    assert high.cast(pa.int64()).to_pylist()[0] == -1
    assert low.cast(pa.int64()).to_pylist()[1] < -(2**63) + 2000
    assert high.cast(pa.int64()).to_pylist()[2] > 2**63 - 2001


def test_the_specifications_own_hashes():
    def hashed(values, kind):
        buckets = transform.apply(Transform(TransformKind.BUCKET, 2**31 - 1), values, kind).to_pylist()
        return buckets[0]

    nanos = np.datetime64("2017-11-16T22:31:08.000001001", "ns").astype(int)
    cases = [
        (pa.array([datetime.time(22, 31, 8)], pa.time64("us")), scalar(Kind.TIME_MICROS), -662762989),
        (pa.array([U], pa.binary(16)), scalar(Kind.UUID), 1488055340),
        (pa.array([b"\x00\x01\x02\x03"], pa.binary(4)), scalar(Kind.FIXED, 4), -188683207),
        (pa.array([int(nanos)], pa.timestamp("ns")), scalar(Kind.TIMESTAMP, 9), -1207196810),
        (pa.array([int(nanos) - 1001], pa.timestamp("ns", "UTC")), scalar(Kind.TIMESTAMP_TZ, 9), -2047944441),
    ]
    for values, kind, expected in cases:
        assert hashed(values, kind) == (expected & 0x7FFFFFFF) % (2**31 - 1), kind
    assert murmur.murmur3_32(pa.array([b"\x00\x01\x02\x03"]))[0] == -188683207


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (scalar(Kind.TIME_MICROS), datetime.time(0, 0, 1, 2), (1_000_002).to_bytes(8, "little")),
        (scalar(Kind.FIXED, 3), b"\x00\x01\xff", b"\x00\x01\xff"),
        (scalar(Kind.UUID), U, U),
        (scalar(Kind.TIMESTAMP, 9), -1, b"\xff" * 8),
    ],
)
def test_single_values(kind, value, stored):
    arrow = types_of(kind)
    values = (
        pa.array([value, None], arrow)
        if not pa.types.is_timestamp(arrow)
        else pa.array([value, None], pa.int64()).cast(arrow)
    )
    found = single_value.encode(values, kind)
    assert found.to_pylist() == [stored, None]
    assert single_value.decode(found, kind).equals(values)
    assert single_value.decode(pa.array([stored[:-1]]), kind).null_count == (1)


def types_of(kind):
    return {Kind.TIME_MICROS: pa.time64("us"), Kind.FIXED: pa.binary(3), Kind.UUID: pa.binary(16)}.get(
        kind.kind, pa.timestamp("ns")
    )


def test_names_of_types_are_icebergs():
    for name, kind in [
        ("time", scalar(Kind.TIME_MICROS)), ("fixed[7]", scalar(Kind.FIXED, 7)), ("uuid", scalar(Kind.UUID)),
        ("timestamp_ns", scalar(Kind.TIMESTAMP, 9)), ("timestamptz_ns", scalar(Kind.TIMESTAMP_TZ, 9)), ("unknown", scalar(Kind.UNKNOWN)),
    ]:  # fmt: skip
        assert types.parse_type(name) == kind
        assert types.emit_type(kind) == name
    for refused in ("vector", "geometries", "geometry(srid:4326"):
        with pytest.raises(UnsupportedFeature, match=refused.partition("(")[0]):
            types.parse_type(refused)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("timestamp(9)", UnsupportedFeature, "timestamp.9.: Iceberg has it from format version 3 on"),
        ("timestamp_ltz(7)", UnsupportedFeature, "format version 3"),
        ("unknown", UnsupportedFeature, "leave it out"), ("struct<a: unknown>", UnsupportedFeature, "unknown"),
        ("variant", UnsupportedFeature, "variant"),
    ],
)  # fmt: skip
def test_version_2_lacks_what_version_3_has(lake, text, error, says):
    with pytest.raises(error, match=says):
        lake.create_table("d.t", Schema((Field(-1, "c", parse_type(text)),)), format="iceberg")
    t = lake.create_table("d.t", pa.schema([("id", pa.int64())]), format="iceberg")
    with pytest.raises(error, match=says):
        t.alter().add_column("c", text).commit()
    if text.startswith("timestamp"):
        t.alter().set_properties({"format-version": "3"}).add_column("c", text).commit()
        t.append(pa.table({"id": [1], "c": pa.array([NOW], pa.timestamp("ns", "UTC" if "ltz" in text else None))}))
        assert t.scan().count() == 1


@pytest.mark.parametrize("text", ["array<unknown>", "map<string, unknown>", "struct<a: unknown>"])
def test_what_nothing_can_hold_is_refused(lake, text):
    with pytest.raises(UnsupportedFeature, match="unknown"):
        lake.create_table("d.t", Schema((Field(-1, "c", parse_type(text)),)), format="iceberg", properties=properties())
    with pytest.raises(InvalidInput, match="always null"):
        lake.create_table(
            "d.t",
            Schema((Field(-1, "c", scalar(Kind.UNKNOWN), nullable=False),)),
            format="iceberg",
            properties=properties(),
        )
    with pytest.raises(InvalidInput, match="identity does not take"):
        lake.create_table("d.t", schema(), format="iceberg", partition_by=["k"], properties=properties())


def test_an_unknown_column_takes_only_nulls_and_becomes_any_other(table):
    table.append(data(table, ROW))
    with pytest.raises(InvalidInput, match="column k: string does not fit unknown"):
        table.append(pa.table({"id": [3], "k": ["x"]}))
    table.alter().change_type("k", "string").change_type("st.k", "int").commit()
    table.append(pa.table({"id": [3], "k": ["x"]}))
    found = table.scan(["id", "k", "st.k"]).to_arrow().to_pylist()
    assert sorted(found, key=lambda r: r["id"]) == [
        {"id": 1, "k": None, "st": {"k": None}},
        {"id": 3, "k": "x", "st": None},
    ]


def test_values_that_do_not_fit_are_refused(table):
    for column, wrong, says in (
        ("f", pa.array([b"abc"]), "fixed"), ("f", pa.array([b"abcde"], pa.binary(5)), "fixed"),
        ("u", pa.array([b"x"]), "uuid"), ("t", pa.array([1], pa.time64("ns")), "lose"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=says):
            table.append(pa.table({"id": [1], column: wrong}))
    table.append(
        pa.table({"id": [1], "u": pa.array([U], pa.binary(16)).cast(pa.binary()), "t": pa.array([5], pa.time32("ms"))})
    )
    table.append(pa.table([[2], pa.ExtensionArray.from_storage(pa.uuid(), pa.array([U], pa.binary(16)))], ["id", "u"]))
    assert table.scan(["u"], where="u = 'f79c3e09-677c-4bbd-a479-3f349cb785e7'").count() == 2
    assert table.scan(["t"], where="id = 1").to_arrow()["t"].to_pylist() == [datetime.time(0, 0, 0, 5000)]


@pytest.mark.parametrize("key", ["t", "f", "u", "n", "z"])
def test_keys_of_these_types(lake, key):
    fields = tuple(Field(-1, n, parse_type(COLUMNS[n]), nullable=False) for n in (key, "id"))
    t = lake.create_table("d.t", Schema(fields), format="iceberg", primary_key=[key], properties=properties())
    other = {"t": datetime.time(1, 2, 3, 4), "f": b"abcd", "u": bytes(16), "n": 5, "z": 5}[key]
    kind = t.scan().schema.field(key).type

    def rows(*pairs):
        arrays = (
            [pa.array([v for v, _ in pairs], pa.int64()).cast(kind)]
            if isinstance(other, int)
            else [pa.array([v for v, _ in pairs], kind)]
        )
        return pa.table([*arrays, pa.array([i for _, i in pairs])], [key, "id"])

    t.append(rows((ROW[key], 1), (other, 2)))
    t.upsert(rows((ROW[key], 10)))
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [2, 10]
    t.merge_into(rows((other, 20)), on=f"t.{key} = s.{key}").when_matched().update_all().merge()
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [10, 20]
    with t.delta_writer("cdc", upsert=True) as writer:
        writer.write(rows((ROW[key], 100)))
        writer.checkpoint(1)
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [20, 100]
    assert {e["content"] for e in entries(t, manifest.ManifestContent.DELETES)} == {2}
    t.compact(full=True)
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [20, 100]


def test_paimon_has_the_nearest_types(tmp_path):
    kept = [Field(-1, n, parse_type(COLUMNS[n])) for n in ("id", "t", "f", "u", "n")]
    t = Lake(tmp_path).create_table("d.p", Schema(tuple(kept)), format="paimon")
    assert [str(f.type) for f in t.schema.fields] == ["bigint", "time(0)", "binary(4)", "binary(16)", "timestamp(9)"]
    with pytest.raises(UnsupportedFeature, match="unknown"):
        t.alter().add_column("k", "unknown").commit()
    t = Lake(tmp_path).create_table("d.q", pa.schema([("t", pa.time64("us")), ("f", pa.binary(3))]), format="paimon")
    assert [str(f.type) for f in t.schema.fields] == ["time(3)", "binary(3)"]


def test_files_that_others_wrote_with_uuids_are_read(lake):
    """As Java writes them: 16 bytes, said to be a UUID or not."""
    t = lake.create_table("d.t", Schema((Field(-1, "u", scalar(Kind.UUID)),)), format="iceberg")
    t.append(pa.table({"u": pa.array([U], pa.binary(16))}))
    path = Path(entries(t)[0]["file_path"].removeprefix("file://"))
    bare = pa.schema([pa.field("u", pa.binary(16), metadata={b"PARQUET:field_id": b"1"})])
    sink = io.BytesIO()
    pq.write_table(pa.table([pa.array([bytes(16)], pa.binary(16))], schema=bare), sink)
    path.write_bytes(sink.getvalue())
    assert t.scan().to_arrow()["u"].to_pylist() == [bytes(16)]


def point(x, y, *more, flag=1):
    """A point in WKB: big-endian if `flag` is 0."""
    kind = {0: 1, 1: 1001, 2: 3001}[len(more)]
    return struct.pack(f"{'<' if flag else '>'}BI{2 + len(more)}d", flag, kind, x, y, *more)


def several(kind, *parts):
    return struct.pack("<BII", 1, kind, len(parts)) + b"".join(parts)


def ring(*points):
    return struct.pack("<I", len(points)) + b"".join(struct.pack("<2d", *pair) for pair in points)


def geo_bounds(table):
    """Of each file the bounds of the second column, as they stand in manifests."""
    return [
        tuple(
            {end["key"]: end["value"] for end in entry[name] or ()}.get(2) for name in ("lower_bounds", "upper_bounds")
        )
        for entry in entries(table)
    ]


def made_geo(folder, text, **properties):
    how = {"format-version": "3", **properties}
    type = Geo(Kind(text.partition("(")[0]), text=text)
    columns = Schema((Field(-1, "id", scalar(Kind.BIGINT)), Field(-1, "g", type)))
    return Lake(folder).create_table("d.t", columns, format="iceberg", properties=how)


@pytest.mark.parametrize("text", ["geometry", "geometry(srid:4326)", "geography(OGC:CRS84, vincenty)"])
def test_geometries_are_written_as_wkb_with_their_box(tmp_path, text):
    t = made_geo(tmp_path, text)
    rows = [(1, point(1, 2)), (2, None), (3, point(-3, 5, flag=0)), (4, several(3, ring((0, 9), (1, 1), (0, 9))))]
    t.append(pa.table({"id": [id for id, _ in rows], "g": pa.array([g for _, g in rows], pa.binary())}))
    t = Lake(tmp_path).table("d.t")
    assert str(t.schema.field("g").type) == text
    assert [(r["id"], r["g"]) for r in t.scan(where="id > 0").to_arrow().to_pylist()] == rows
    box = (struct.pack("<2d", -3, 1), struct.pack("<2d", 1, 9)) if text.startswith("geometry") else (None, None)
    assert geo_bounds(t) == [box]
    shown = t.inspect.files()["readable_metrics"].to_pylist()
    low, high = (
        None if box[0] is None else dict(zip("xyzm", (*span, None, None), strict=True)) for span in ((-3, 1), (1, 9))
    )
    assert (shown[0]["g"]["lower_bound"], shown[0]["g"]["upper_bound"], shown[0]["g"]["null_value_count"]) == (
        low,
        high,
        1,
    )
    assert (shown[0]["id"]["lower_bound"], shown[0]["id"]["upper_bound"], shown[0]["id"]["value_count"]) == (1, 4, 4)
    # The file says what it holds, and bounds of bytes, which mean nothing, are not in it.
    metadata = pq.read_metadata(entries(t)[0]["file_path"].removeprefix("file://"))
    said = metadata.schema.column(1).logical_type.to_json()
    assert json.loads(said)["Type"] == text.partition("(")[0].capitalize()
    assert ("4326" in said, "vincenty" in said.lower()) == ("4326" in text, "vincenty" in text)
    assert metadata.row_group(0).column(1).statistics is None
    assert metadata.row_group(0).column(0).statistics.max == 4
    # Rows are changed, deleted and compacted (row groups copied too) by copying; no condition leaves a file out.
    assert t.update({"id": "id + 10"}, where="g is not null and id < 4").rows_added == 4
    assert t.delete("id = 11").rows_added == 3
    t.append(pa.table({"id": [5], "g": [point(100, 200)]}))
    t.append(pa.table({"id": [6], "g": [point(7, 7)]}))
    t.compact(full=True)
    found = {r["id"]: r["g"] for r in t.scan(where="g is not null or id = 2").to_arrow().to_pylist()}
    assert found == {2: None, 13: rows[2][1], 4: rows[3][1], 5: point(100, 200), 6: point(7, 7)}
    wide = (struct.pack("<2d", -3, 1), struct.pack("<2d", 100, 200)) if text.startswith("geometry") else (None, None)
    assert geo_bounds(t) == [wide]
    t.alter().add_column("more", text).rename_column("g", "h").commit()
    assert str(Lake(tmp_path).table("d.t").schema.field("more").type) == text
    newest = max(
        (tmp_path / "d.db/t/metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0])
    )
    assert json.loads(newest.read_text())["schemas"][-1]["fields"][1]["type"] == text
    with pytest.raises(InvalidInput, match="cannot be compared"):
        t.scan(where="h = X'00'")
    with pytest.raises(InvalidInput, match="does not take"):
        t.alter().add_partition_field("h").commit()


NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([point(1, 2, 3), point(0, 5, -1)], (0, 2, -1), (1, 5, 3)),
        ([point(1, 2, 3, 4), point(0, 5, -1, 9)], (0, 2, -1, 4), (1, 5, 3, 9)),
        ([struct.pack("<BI3d", 1, 2001, 1, 2, 7)], (1, 2, NAN, 7), (1, 2, NAN, 7)),  # m without z
        ([point(1, 2, 3), point(0, 5)], (0, 2), (1, 5)),  # not all have z
        ([point(1, 2), point(NAN, 5)], (1, 2), (1, 5)),
        ([point(NAN, NAN), several(7), None], None, None),
        ([point(1, NAN)], None, None),
        ([several(7, point(-1, 8), several(6, several(3, ring((5, 5)), ring((6, -6)))), several(4))], (-1, -6), (6, 8)),
    ],
)
def test_boxes_of_geometries(values, low, high):
    found = wkb.box(pa.chunked_array([pa.array([None, *values], pa.binary())[1:]]), "g")
    ends = [None, None] if found is None else list(found)
    want = [None if corner is None else struct.pack(f"<{len(corner)}d", *corner) for corner in (low, high)]
    assert single_value.corners(ends).to_pylist() == want


def test_what_is_no_geometry_is_refused_and_nothing_written(tmp_path):
    t = made_geo(tmp_path, "geometry")
    t.append(pa.table({"id": [1], "g": [point(1, 2)]}))
    for bad, why in (
        (b"", "ends within"),
        (b"\2" + point(1, 2)[1:], "byte order"),
        (point(1, 2)[:-1], "last coordinate"),
        (point(1, 2) + b"\0", "bytes follow"),
        (struct.pack("<BIIdd", 1, 0x20000001, 4326, 1, 2), "EWKB"),
        (struct.pack("<BIdd", 1, 8, 1, 2), "seven"),
        (several(4, several(2)), "last coordinate|seven"),
        (several(4, point(1, 2, 3)), "seven"),
        (struct.pack("<BII", 1, 2, 2**32 - 1), "last coordinate"),
        (several(7, b"") * 20 + point(1, 2), "16 deep"),
    ):
        with pytest.raises(InvalidInput, match=f"column g: X'.*({why})"):
            t.append(pa.table({"id": [2, 3], "g": [point(0, 0), bad]}))
    assert t.scan().count() == 1
    assert len(list((tmp_path / "d.db/t/data").rglob("*.parquet"))) == 1
    with pytest.raises(UnsupportedFeature, match="format-version=3"):
        made_geo(tmp_path / "two", "geometry", **{"format-version": "2"})
    orc = made_geo(tmp_path / "orc", "geometry", **{"write.format.default": "orc"})
    with pytest.raises(UnsupportedFeature, match=r"column g is geometry.*not to orc"):
        orc.append(pa.table({"id": [1], "g": [point(1, 2)]}))
