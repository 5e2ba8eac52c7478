"""Geometries and encrypted tables of Iceberg through Spark, which has them as WKB and is given their keys."""

import pyarrow as pa
import pytest

from lakeformat import Lake, MissingKey
from tests.unit.dialects.iceberg.test_encryption import MASTER, encrypt
from tests.unit.dialects.iceberg.test_types import made_geo, point


@pytest.mark.parametrize("text", ["geometry(srid:4326)", "geography(OGC:CRS84, vincenty)"])
def test_geometries_are_binary_in_spark_both_ways(spark, tmp_path, text):
    t = made_geo(tmp_path, text)
    t.append(pa.table({"id": [1, 2], "g": [point(1, 2), None]}))
    frame = t.scan().to_spark(spark)
    assert dict(frame.dtypes)["g"] == "binary"
    assert [(r.id, r.g and bytes(r.g)) for r in frame.orderBy("id").collect()] == [(1, point(1, 2)), (2, None)]
    t.append(frame.selectExpr("id + 10 as id", "g"))
    assert t.update({"id": "id + 100"}, where="g is null", spark=spark).rows_added >= 2
    found = {r["id"]: r["g"] for r in t.scan().to_arrow().to_pylist()}
    assert found == {1: point(1, 2), 102: None, 11: point(1, 2), 112: None}


def test_an_encrypted_table_is_read_on_spark(spark, tmp_path):
    lake = Lake(tmp_path, encryption_keys=MASTER)
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    properties = {"format-version": "3", "write.delete.mode": "merge-on-read"}
    t = lake.create_table("d.t", schema, format="iceberg", properties=properties)
    t.append(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}))
    t.delete("id = 2")
    encrypt(tmp_path / "d.db/t")
    t = Lake(tmp_path, encryption_keys=MASTER).table("d.t")
    assert sorted(map(tuple, t.scan().to_spark(spark).collect())) == [(1, "a"), (3, "c")]
    with pytest.raises(MissingKey, match="keyA"):
        Lake(tmp_path).table("d.t").scan().to_spark(spark).collect()
