"""Data files without field ids: which column is which, by a name mapping, and as Iceberg Java has it without one."""

import io
import json
import uuid

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from lakeformat import CorruptTable, InvalidInput, Lake, UnsupportedFeature
from lakeformat.commit import commit
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.model.operation import Append, Request
from lakeformat.model.work import WrittenFile
from tests import doors

iceberg = Iceberg()

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
     ("li", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int32()))]
)  # fmt: skip
AVRO = {
    "id": "long", "v": "string", "li": {"type": "array", "items": ["null", "long"]}, "m": {"type": "map", "values": "int"},
    "st": {"type": "record", "name": "st", "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "int"}]},
}  # fmt: skip
ROW = {"id": 1, "v": "x", "st": {"a": 2, "b": "y"}, "li": [1, None], "m": [("k", 3)]}


@pytest.fixture
def table(tmp_path):
    return Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg")


def add(table, rows, file_format="parquet"):
    """A file of another writer, which knows no ids."""
    path, sink = f"data/foreign-{uuid.uuid4()}.{file_format}", io.BytesIO()
    if file_format == "parquet":
        pq.write_table(rows, sink)
    elif file_format == "orc":
        orc.write_table(rows, sink)
    else:
        fields = [{"name": name, "type": AVRO[name]} for name in rows.column_names]
        rows_of_dicts = [row | {"m": dict(row["m"])} if "m" in row else row for row in rows.to_pylist()]
        fastavro.writer(sink, {"type": "record", "name": "rows", "fields": fields}, rows_of_dicts)
    data = sink.getvalue()
    doors.store(table).write(path, data)
    added = (WrittenFile(path, (), rows.num_rows, len(data), file_format=file_format),)
    operation = Append(request=Request(id=path), added=added)
    commit(doors.store(table), iceberg.head(doors.store(table)), iceberg, operation)


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


def test_without_a_name_mapping_parquet_columns_count_by_position(table):
    """Iceberg Java: ids 1, 2, ... for the columns, and inside them every field by its place."""
    other_names = pa.schema(
        [("_c0", pa.int64()), ("id", pa.string()), ("s", pa.struct([("b", pa.int32()), ("a", pa.string())])),
         ("l", pa.list_(pa.int64())), ("n", pa.map_(pa.string(), pa.int32())), ("none of the table's", pa.int64())]
    )  # fmt: skip
    row = {"_c0": 2, "id": "q", "s": {"b": 5, "a": "z"}, "l": [7], "n": [("j", 4)], "none of the table's": 0}
    add(table, pa.Table.from_pylist([ROW], SCHEMA))
    add(table, pa.Table.from_pylist([row], other_names))
    add(table, pa.table({"only": pa.array([3], pa.int64())}))
    rest = dict.fromkeys(["v", "st", "li", "m"])
    expected = [
        ROW, {"id": 2, "v": "q", "st": {"a": 5, "b": "z"}, "li": [7], "m": [("j", 4)]}, {"id": 3, **rest}
    ]  # fmt: skip
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    nested = sorted(table.scan(["st.b", "id"], where="id < 3").to_arrow().to_pylist(), key=lambda row: row["id"])
    assert nested == [{"st": {"b": "y"}, "id": 1}, {"st": {"b": "z"}, "id": 2}]
    assert table.scan(where="v = 'q'").count() == table.scan(where="st.a = 5").count() == 1
    table.alter().rename_column("v", "w").drop_column("li").add_column("extra", "bigint").move_column(
        "m", first=True
    ).commit()
    assert table.scan(["w", "extra"], where="id = 2").to_arrow().to_pylist() == [{"w": "q", "extra": 0}]  # The sixth.
    table.delete("w = 'x'")
    table.compact(full=True)
    found = sorted(table.scan(["id", "w", "m"]).to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [{"id": 2, "w": "q", "m": [("j", 4)]}, {"id": 3, "w": None, "m": None}]


def test_fields_of_rows_that_have_another_number_of_them_count_by_name(table):
    add(table, pa.table({"id": pa.array([1], pa.int64()), "v": ["x"], "st": [{"b": "y"}]}))
    assert table.scan(["id", "st"]).to_arrow().to_pylist() == [{"id": 1, "st": {"a": None, "b": "y"}}]
    add(table, pa.table({"id": pa.array([2], pa.int64()), "v": ["x"], "st": [{"_1": "y"}]}))
    with pytest.raises(UnsupportedFeature, match=r"column 'st' has fields without ids, _1,.*name-mapping"):
        table.scan(["st"]).to_arrow()


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_without_a_name_mapping_orc_and_avro_columns_count_by_name(table, file_format):
    renamed = pa.Table.from_pylist([{**ROW, "id": 2}], SCHEMA).select(["m", "st", "id", "v", "li"])
    for rows in (pa.Table.from_pylist([ROW], SCHEMA), renamed.drop_columns(["li"])):
        add(table, rows, file_format)
    expected = [ROW, {**ROW, "id": 2, "li": None}]
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    assert table.scan(["st.b"], where="id = 2").to_arrow().to_pylist() == [{"st": {"b": "y"}}]
    table.alter().rename_column("v", "w").commit()  # As Java: the file's column has another name now.
    assert table.scan(["w", "id"], where="id = 2").to_arrow().to_pylist() == [{"w": None, "id": 2}]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_an_empty_name_mapping_has_no_column(table, file_format):
    table.alter().set_properties({"schema.name-mapping.default": "[]"}).commit()
    add(table, pa.table({"id": pa.array([1], pa.int64())}), file_format)
    assert table.scan(["id"]).to_arrow().to_pylist() == [{"id": None}]


def test_position_deletes_without_field_ids_count_by_name(tmp_path):
    properties = {"write.delete.mode": "merge-on-read"}
    table = Lake(tmp_path).create_table("d.t", SCHEMA.remove(4), format="iceberg", properties=properties)
    table.append(pa.Table.from_pylist([{**ROW, "id": id} for id in range(5)], SCHEMA.remove(4)))
    table.delete("id = 3")
    (path,) = (tmp_path / "d.db/t/data").glob("*deletes*")
    deletes = pq.read_table(path)
    pq.write_table(pa.table(dict(zip(deletes.column_names, deletes.columns, strict=True))), path, store_schema=False)
    assert table.scan(["id"]).to_arrow()["id"].to_pylist() == [0, 1, 2, 4]


def test_conversion_keeps_columns_that_count_by_position(tmp_path, table):
    """By their names these two would change places."""
    add(table, pa.table({"v": pa.array([1], pa.int64()), "id": ["x"]}))
    before = table.scan().to_arrow().to_pylist()
    table = Lake(tmp_path).convert("d.t", "paimon")
    assert table.scan().to_arrow().to_pylist() == before == [{"id": 1, "v": "x", "st": None, "li": None, "m": None}]


def test_a_damaged_name_mapping_is_refused(table):
    table.alter().set_properties({"schema.name-mapping.default": "{"}).commit()
    add(table, pa.Table.from_pylist([ROW], SCHEMA))
    with pytest.raises(CorruptTable, match="name-mapping"):
        table.scan().to_arrow()


def mapped_names(table):
    def by_id(entries):
        return {entry["field-id"]: (set(entry["names"]), by_id(entry.get("fields", []))) for entry in entries}

    return by_id(json.loads(table.schema.properties["schema.name-mapping.default"]))


def test_the_mapping_follows_the_schema(tmp_path, table):
    """Iceberg Java's UpdateSchema: names of new and renamed columns are added at every depth, none is removed."""
    mapping(table)
    before = mapped_names(table)
    change = table.alter().rename_column("v", "w").rename_column("st.a", "first").drop_column("li")
    change.add_column("extra", "row<x bigint>").add_column("st.c", "int").commit()
    ids = {field.name: field for field in table.schema.fields}
    parts = {field.name: field.id for field in ids["st"].type.fields}
    expected = before | {
        ids["w"].id: ({"v", "w"}, {}),
        ids["st"].id: (
            {"st"},
            {parts["first"]: ({"a", "first"}, {}), parts["b"]: ({"b"}, {}), parts["c"]: ({"c"}, {})},
        ),
        ids["extra"].id: ({"extra"}, {ids["extra"].type.fields[0].id: ({"x"}, {})}),
    }
    assert mapped_names(table) == expected
    add(table, pa.Table.from_pylist([ROW], SCHEMA))
    new = {"id": 2, "w": "q", "st": {"first": 1, "b": "z", "c": 4}, "extra": {"x": 7}}
    path = tmp_path / "new.parquet"
    pq.write_table(
        pa.table(
            {
                "id": [2],
                "w": ["q"],
                "st": pa.array([new["st"]], pa.struct([("first", pa.int32()), ("b", pa.string()), ("c", pa.int32())])),
                "extra": [new["extra"]],
            }
        ),
        path,
    )
    table.add_files([str(path)])
    found = sorted(table.scan(["id", "w", "st", "extra"]).to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [{"id": 1, "w": "x", "st": {"first": 2, "b": "y", "c": None}, "extra": None}, new]


def test_a_name_that_another_column_has_in_files_stays_its_own(tmp_path, table):
    """Java gives it to the new column, whose values are then those of the dropped one in earlier files."""
    mapping(table)
    add(table, pa.Table.from_pylist([ROW], SCHEMA))
    table.alter().drop_column("v").add_column("v", "string").commit()
    assert table.scan(["v"]).to_arrow().to_pylist() == [{"v": None}]
    pq.write_table(pa.table({"id": [2], "v": ["q"]}), tmp_path / "new.parquet")
    with pytest.raises(InvalidInput, match="column 'v': the table's name mapping"):
        table.add_files([str(tmp_path / "new.parquet")])


def test_a_mapping_that_did_not_follow_is_completed_by_add_files(tmp_path, table):
    """As earlier versions left it."""
    mapping(table)
    stale = table.schema.properties["schema.name-mapping.default"]
    table.alter().rename_column("v", "w").add_column("x", "int").commit()
    table.alter().set_properties({"schema.name-mapping.default": stale}).commit()
    pq.write_table(pa.table({"id": [2], "w": ["q"], "x": pa.array([5], pa.int32())}), tmp_path / "new.parquet")
    table.add_files([str(tmp_path / "new.parquet")])
    assert table.scan(["w", "x"]).to_arrow().to_pylist() == [{"w": "q", "x": 5}]


def test_a_mapping_given_with_a_change_or_damaged_stays_as_it_is(table):
    for text in ("{", "[]"):
        table.alter().set_properties({"schema.name-mapping.default": text}).rename_column(
            *table.schema.names[:1], f"i{len(text)}"
        ).commit()
        assert table.schema.properties["schema.name-mapping.default"] == text
    table.alter().set_properties({"schema.name-mapping.default": "{"}).commit()
    table.alter().add_column("y", "int").commit()
    assert table.schema.properties["schema.name-mapping.default"] == "{"
