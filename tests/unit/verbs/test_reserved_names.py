"""Columns called as lakeformat's own, or as another format's metadata columns."""

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake

NAMES = [
    "_file",
    "_pos",
    "_row_id",
    "_change_type",
    "_partition",
    "_spec_id",
    "_deleted",
    "_row",
    "_choice",
    "-3",
    "c0",
]
PROPERTIES = [
    {},
    {"deletion-vectors.enabled": "true"},
    {"row-tracking.enabled": "true"},
    {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"},
]


@pytest.mark.parametrize("properties", PROPERTIES, ids=["plain", "vectors", "tracking", "evolution"])
@pytest.mark.parametrize("name", NAMES)
def test_paimon_has_columns_of_any_name(name, properties, tmp_path):
    rows = pa.table({"id": [1, 2, 3], name: ["a", "b", "c"]})
    table = Lake(str(tmp_path)).create_table("d.t", rows.schema, properties=properties)
    table.append(rows)
    table.delete(f"`{name}` = 'b'")
    table.update({name: "'z'"}, where="id = 3")
    source = pa.table({"id": [1, 9], name: ["m", "n"]})
    table.merge_into(source, on="t.id = s.id").when_matched().update_all().when_not_matched().insert_all().merge()
    scanned = table.scan().to_arrow().sort_by("id").to_pylist()
    assert scanned == [{"id": 1, name: "m"}, {"id": 3, name: "z"}, {"id": 9, name: "n"}]


@pytest.mark.parametrize("name", NAMES[:7])
def test_iceberg_refuses_the_names_of_its_metadata_columns(name, tmp_path):
    lake = Lake(str(tmp_path))
    with pytest.raises(InvalidInput, match="metadata column"):
        lake.create_table("d.t", pa.schema([("id", pa.int64()), (name, pa.string())]), format="iceberg")
    table = lake.create_table("d.t", pa.schema([("id", pa.int64())]), format="iceberg")
    with pytest.raises(InvalidInput, match="metadata column"):
        table.alter().add_column(name, "string").commit()
    with pytest.raises(InvalidInput, match="metadata column"):
        table.alter().rename_column("id", name).commit()


@pytest.mark.parametrize("on", [[], ["id"]], ids=["primary key", "on"])
def test_an_iceberg_column_called_rowkind_is_data(on, tmp_path):
    fields = pa.schema([pa.field("id", pa.int64(), nullable=False), ("rowkind", pa.string())])
    table = Lake(str(tmp_path)).create_table("d.t", fields, format="iceberg", primary_key=[] if on else ["id"])
    table.append(pa.table({"id": [1, 2], "rowkind": ["+I", "x"]}))
    table.upsert(pa.table({"id": [1, 3], "rowkind": ["-D", "-U"]}), on=on)
    expected = [{"id": 1, "rowkind": "-D"}, {"id": 2, "rowkind": "x"}, {"id": 3, "rowkind": "-U"}]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    if not on:
        with pytest.raises(InvalidInput, match="'rowkind', as the kinds of changed rows are"):
            table.delta_writer("w").write(pa.table({"id": [1], "rowkind": ["-D"]}))
