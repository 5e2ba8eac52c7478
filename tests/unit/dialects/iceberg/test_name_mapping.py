"""Data files without field ids: the name mapping says which column is which."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import CorruptFile, CorruptTable, Lake
from lakeformat.commit import commit
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.model.operation import Append, Request
from lakeformat.model.work import WrittenFile

iceberg = Iceberg()

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
     ("li", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int32()))]
)  # fmt: skip
ROW = {"id": 1, "v": "x", "st": {"a": 2, "b": "y"}, "li": [1, None], "m": [("k", 3)]}


@pytest.fixture
def table(tmp_path):
    return Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg")


def add(table, rows):
    """A file of another writer, which knows no ids."""
    path, sink = f"data/foreign-{rows.num_rows}-{len(rows.column_names)}.parquet", pa.BufferOutputStream()
    pq.write_table(rows, sink)
    data = sink.getvalue().to_pybytes()
    table._store.write(path, data)
    added = (WrittenFile(path, (), rows.num_rows, len(data)),)
    operation = Append(request=Request(id=path), added=added)
    commit(table._store, iceberg.head(table._store), iceberg, operation)


def mapping(table, **extra):
    """What pyiceberg and Java write for the table's own names; `extra`: more names of columns."""

    def entry(field):
        parts = getattr(field.type, "fields", None) or [
            p for p in (getattr(field.type, role, None) for role in ("element", "key", "value")) if p is not None
        ]
        names = [field.name, *extra.get(field.name, [])]
        return {"field-id": field.id, "names": names, **({"fields": [entry(p) for p in parts]} if parts else {})}

    text = json.dumps([entry(f) for f in table.schema.fields])
    table.alter().set_properties({"schema.name-mapping.default": text}).commit()


def test_names_stand_for_ids(table):
    mapping(table, v=["value", "w"])
    add(table, pa.Table.from_pylist([ROW], SCHEMA))
    add(table, pa.table({"w": ["q", "r"], "other": [1, 2], "id": pa.array([7, 8], pa.int64())}))
    table.append(pa.Table.from_pylist([{**ROW, "id": 2}], SCHEMA))
    rest = {"st": None, "li": None, "m": None}
    expected = [ROW, {**ROW, "id": 2}, {"id": 7, "v": "q", **rest}, {"id": 8, "v": "r", **rest}]
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["id"]) == expected
    table.alter().rename_column("v", "renamed").rename_column("st.a", "first").commit()
    found = table.scan(["id", "renamed", "st.first"], where="renamed = 'x'").to_arrow().to_pylist()
    assert sorted(found, key=lambda r: r["id"]) == [{"id": i, "renamed": "x", "st": {"first": 2}} for i in (1, 2)]
    table.delete("id = 7")
    table.compact(full=True)
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == [1, 2, 8]


def test_without_a_name_mapping_columns_are_refused(table):
    add(table, pa.Table.from_pylist([ROW], SCHEMA))
    with pytest.raises(CorruptFile, match=r"no column has a field id.*schema\.name-mapping\.default"):
        table.scan().to_arrow()
    table.alter().set_properties({"schema.name-mapping.default": "{"}).commit()
    with pytest.raises(CorruptTable, match="name-mapping"):
        table.scan().to_arrow()
