"""ORC data files in Iceberg tables: written with the ids of their columns, found by these whatever they are called now."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.orc as po
import pytest

from lakeformat import InvalidInput, Lake

SCHEMA = pa.schema(
    [
        ("b", pa.bool_()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64()),
        ("dec", pa.decimal128(9, 2)), ("day", pa.date32()), ("ts", pa.timestamp("us")), ("tz", pa.timestamp("us", "UTC")),
        ("s", pa.string()), ("bin", pa.binary()), ("li", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int32())),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
    ]
)  # fmt: skip
ROW = {
    "b": True, "i": -5, "l": 2**40, "f": 1.5, "d": 2.5, "dec": Decimal("-14.20"), "day": datetime.date(1969, 5, 5),
    "ts": datetime.datetime(2020, 1, 2, 3, 4, 5, 6), "tz": datetime.datetime(2020, 1, 1, 5, tzinfo=datetime.UTC), "s": "\u00fc",
    "bin": b"\xff\x00", "li": [1, None], "m": [("k", 1)], "st": {"a": 1, "b": ["x"]},
}  # fmt: skip
ORC = {"write.format.default": "orc"}


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


def test_every_type_comes_back(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", properties=ORC)
    expected = pa.Table.from_pylist([ROW, dict.fromkeys(ROW)], SCHEMA)
    t.append(expected)
    assert t.scan().to_arrow().equals(expected)
    (path,) = t.inspect.files()["path"].to_pylist()
    assert path.endswith(".orc")
    schema = po.ORCFile(path.removeprefix("file://")).schema
    assert [int(f.metadata[b"iceberg.id"]) for f in schema] == [f.id for f in t.schema.fields]
    assert int(schema.field("st").type.field(0).metadata[b"iceberg.id"]) == t.schema.field("st").type.fields[0].id
    assert schema.field("i").metadata[b"iceberg.required"] == b"false"
    assert t.scan(where="ts > timestamp '2021-01-01'").count() == 0


def test_formats_live_side_by_side_and_columns_are_known_by_id(lake):
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int32())])
    t = lake.create_table("d.t", schema, format="iceberg", properties=ORC)
    t.append(pa.table({"id": [1, 2], "v": ["a", "b"], "n": [1, 2]}, schema=schema))
    t.alter().rename_column("v", "w").drop_column("n").add_column("n", "string").change_type("id", "bigint").commit()
    t.alter().set_properties({"write.format.default": "parquet"}).commit()
    t.append(pa.table({"id": [3], "w": ["c"], "n": ["new"]}))
    expected = [{"id": 1, "w": "a", "n": None}, {"id": 2, "w": "b", "n": None}, {"id": 3, "w": "c", "n": "new"}]
    assert sorted(t.scan().to_arrow().to_pylist(), key=lambda r: r["id"]) == expected
    assert t.scan(where="w = 'b'").to_arrow()["id"].to_pylist() == [2]
    t.delete("id = 1")
    t.update({"w": "'x'"}, where="id = 2")
    t.compact(full=True)
    assert sorted(t.scan().to_arrow()["w"].to_pylist()) == ["c", "x"]
    assert all(path.endswith(".parquet") for path in t.inspect.files()["path"].to_pylist())


def test_deletes_by_position_apply_to_orc_files(lake):
    t = lake.create_table("d.t", pa.schema([("id", pa.int64())]), format="iceberg",
                          properties={**ORC, "write.delete.mode": "merge-on-read"})  # fmt: skip
    t.append(pa.table({"id": list(range(10))}))
    t.delete("id in (2, 5)")
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [0, 1, 3, 4, 6, 7, 8, 9]
    assert t.inspect.files().num_rows == 1


def test_what_orc_cannot_is_said(lake):
    t = lake.create_table("d.t", pa.schema([("ts", pa.timestamp("us"))]), format="iceberg", properties=ORC)
    with pytest.raises(InvalidInput, match="before 1970"):
        t.append(pa.table({"ts": pa.array([datetime.datetime(1960, 1, 1, 0, 0, 0, 1)], pa.timestamp("us"))}))
