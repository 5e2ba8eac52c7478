"""Iceberg's own types on either engine: what is read, written, asked for and taken away is the same."""

import datetime
import uuid

import pyarrow as pa
import pytest

from lakeformat import Field, Lake, Schema, UnsupportedFeature
from lakeformat.model.type_text import parse_type

COLUMNS = {
    "id": "bigint", "t": "time", "f": "fixed(4)", "u": "uuid", "n": "timestamp(9)", "k": "unknown",
    "st": "struct<t: time, u: uuid, l: array<uuid>, k: unknown>",
}  # fmt: skip
U = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes
MICROS = 1_234_567_890_123_456  # Spark has no nanoseconds.
ROW = {
    "id": 1, "t": datetime.time(22, 31, 8, 123456), "f": b"\x00\xff12", "u": U, "n": MICROS * 1000, "k": None,
    "st": {"t": datetime.time(1), "u": U, "l": [U, None], "k": None},
}  # fmt: skip


ON_SPARK = [pytest.mark.spark, pytest.mark.from_pyspark("4.1")]  # Which has times of day.


@pytest.fixture(params=["arrow", pytest.param("spark", marks=ON_SPARK)])
def session(request):
    return request.getfixturevalue("spark") if request.param == "spark" else None


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
def test_icebergs_types_on_either_engine(tmp_path, session, format):
    schema = Schema(tuple(Field(-1, name, parse_type(text)) for name, text in COLUMNS.items()))
    given = {"format-version": "3", "write.format.default": format, "write.delete.mode": "merge-on-read"}
    t = Lake(tmp_path).create_table("d.t", schema, format="iceberg", properties=given)
    rows = pa.Table.from_pylist([ROW, {**dict.fromkeys(ROW), "id": 2}], t.scan().schema)
    t.append(rows)

    def seen(**how):
        scan = t.scan(**how)
        return scan.to_arrow() if session is None else scan.to_spark(session).toArrow()

    found = seen()
    t.append(found if session is None else t.scan().to_spark(session))
    assert t.scan().to_arrow().equals(pa.concat_tables([rows, rows]).combine_chunks())
    assert found["t"].to_pylist() == [ROW["t"], None]
    assert found["u"].to_pylist() == [U, None]
    assert found["st"].to_pylist()[0]["l"] == [U, None]
    assert seen(where="t = time '22:31:08.123456' and f = X'00ff3132'").num_rows == 2
    assert seen(where="u = '00000000-0000-0000-0000-000000000000'").num_rows == 0
    assert t.delete("t > time '22:31:08' and id = 1", spark=session).rows_removed == 2
    assert seen()["id"].to_pylist() == [2, 2]


def test_blobs_on_either_engine(tmp_path, session):
    given = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"}
    columns = pa.schema([("id", pa.int64()), ("b", pa.binary()), ("name", pa.string()), ("dt", pa.string())])
    t = Lake(tmp_path).create_table(
        "d.t", columns, format="paimon", partition_by=["dt"], properties={**given, "blob-field": "b"}
    )
    values = [None if i % 7 == 0 else bytes([i]) * i * 50 for i in range(40)]
    rows = pa.table({"id": range(40), "b": values, "name": ["n"] * 40, "dt": ["xy"[i % 2] for i in range(40)]}, columns)
    snapshot = t.append(rows if session is None else session.createDataFrame(rows))
    assert snapshot.rows_added == 40
    t.update({"name": "concat(name, id)"}, "id > 30", spark=session)
    t.update({"b": "X'00ff'"}, "id = 9", spark=session)
    new = pa.table({"id": [10, 40], "b": [b"merged", b"inserted"]})
    merge = t.merge_into(new if session is None else session.createDataFrame(new), "t.id = s.id")
    merge.when_matched().update({"b": "s.b"}).when_not_matched().insert({"id": "s.id", "b": "s.b", "dt": "'x'"}).merge()
    values[9:11], values[40:] = [b"\x00\xff", b"merged"], [b"inserted"]
    t.delete("id = 8", spark=session)
    t.compact(full=True, spark=session)
    scan = t.scan(["id", "b", "name"])
    found = (scan.to_arrow() if session is None else scan.to_spark(session).toArrow()).sort_by("id").to_pylist()
    assert [(row["id"], row["b"]) for row in found] == [(i, values[i]) for i in range(41) if i != 8]
    assert [row["name"] for row in found][-10:-1] == [f"n{i}" for i in range(31, 40)]
    assert {path.suffix for path in tmp_path.rglob("data-*")} == {".parquet", ".blob"}


@pytest.mark.spark
def test_variants_are_sparks_own(tmp_path, spark):
    frame = spark.sql(
        """SELECT id, parse_json(text) v, array(parse_json(text)) l FROM VALUES (1, '{"a": {"b": [1, "x"]}}'), (2, NULL) AS t(id, text)"""
    )
    for name, properties in (("iceberg", {"format-version": "3"}), ("paimon", {})):
        t = Lake(tmp_path / name).create_table("d.t", frame.schema, format=name, properties=properties)
        t.append(frame)
        t.append(t.scan().to_spark(spark).filter("id = 1"))
        t.merge_into(frame.filter("id = 2"), on="t.id = s.id").when_matched().update_all().merge()
        found = t.scan().to_spark(spark)
        assert found.schema["v"].dataType.simpleString() == "variant"
        rows = found.selectExpr("id", "variant_get(v, '$.a.b[1]', 'string') b", "to_json(l[0]) l").collect()
        assert sorted(map(tuple, rows)) == [(1, "x", '{"a":{"b":[1,"x"]}}')] * 2 + [(2, None, None)]


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
@pytest.mark.parametrize(
    "type", [pa.null(), pa.list_(pa.null()), pa.struct([("k", pa.null())]), pa.map_(pa.string(), pa.null())], ids=str
)
def test_a_column_without_a_type_makes_no_column_of_text(tmp_path, format, type):
    lake, schema = Lake(tmp_path), pa.schema([("id", pa.int64()), ("x", type)])
    for create in (
        lambda: lake.create_table("d.t", schema, format=format),
        lambda: lake.create_table_as("d.t", schema.empty_table(), schema, format=format),
    ):
        with pytest.raises(UnsupportedFeature, match="unknown"):
            create()
        assert not lake.exists("d.t")
    t = lake.create_table("d.t", pa.schema([("id", pa.int64()), ("x", pa.int32())]), format=format)
    t.append(pa.table({"id": [1], "x": pa.nulls(1)}))
    assert t.scan().to_arrow().to_pylist() == [{"id": 1, "x": None}]
