"""A column that a data file does not hold, and that is its partition, has the partition's value (spec, Column Projection)."""

import datetime
import json
import random
import types
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Field, Lake, Schema, UnsupportedFeature
from lakeformat.dialects.iceberg import manifest
from lakeformat.engines.kernels import casts
from lakeformat.model.type_text import parse_type
from tests import doors
from tests.unit import hive_files
from tests.unit.dialects.iceberg.test_pruning_random import KINDS, value

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string()), ("n", pa.int32())])
MODES = ("copy-on-write", "merge-on-read")


def row(id, dt, n=1, v="x"):
    return {"id": id, "v": v, "dt": dt, "n": n}


def rows(*found, schema=SCHEMA):
    return pa.Table.from_pylist(list(found), schema)


def read(table, columns=None, **how):
    return sorted(table.scan(columns, **how).to_arrow().to_pylist(), key=lambda each: each.get("id", 0))


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path, fsync="false")


@pytest.fixture(params=MODES)
def table(lake, request):
    properties = {f"write.{verb}.mode": request.param for verb in ("delete", "update", "merge")}
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    hive_files.append(t, rows(row(1, "a"), row(2, "a"), row(3, "b"), row(4, None)))
    t.append(rows(row(5, "a"), row(6, "b")))
    return t


WHERE = {
    "dt = 'a'": [1, 2, 5], "dt is null": [4], "dt > 'a'": [3, 6], "dt = 'a' and id = 2": [2],
    "dt <> 'a' or id = 1": [1, 3, 6], "upper(dt) = 'B'": [3, 6], "dt <=> 'b' and n = 1": [3, 6],
}  # fmt: skip


def test_readers_see_the_value_of_the_partition(table):
    assert read(table) == [row(1, "a"), row(2, "a"), row(3, "b"), row(4, None), row(5, "a"), row(6, "b")]
    for where, ids in WHERE.items():
        assert [r["id"] for r in read(table, where=where)] == ids, where
        assert table.scan(where=where).count() == len(ids), where
    assert sorted(map(str, table.scan(["dt"]).to_arrow()["dt"].to_pylist())) == ["None", "a", "a", "a", "b", "b"]
    table.compact(full=True)
    changes = table.changes(0).to_arrow().to_pylist()
    assert sorted((r["id"], str(r["dt"])) for r in changes) == [
        (1, "a"), (2, "a"), (3, "b"), (4, "None"), (5, "a"), (6, "b")]  # fmt: skip
    assert read(table, snapshot_id=table.snapshots()[0].id) == [row(1, "a"), row(2, "a"), row(3, "b"), row(4, None)]


def test_writers_take_and_write_the_value_of_the_partition(table):
    table.update({"v": "concat(dt, '!')"}, where="dt = 'a' and id < 2")
    table.delete("dt = 'b' and id = 3")
    source = rows(row(2, "a", v="merged"), row(7, "c", v="new"))
    merge = table.merge_into(source, on="t.id = s.id and t.dt = s.dt")
    merge.when_matched().update_all().when_not_matched().insert_all().merge()
    expected = [
        row(1, "a", v="a!"),
        row(2, "a", v="merged"),
        row(4, None),
        row(5, "a"),
        row(6, "b"),
        row(7, "c", v="new"),
    ]
    assert read(table) == expected
    table.alter().drop_partition_field("dt").commit()
    table.compact(full=True)  # Files of the earlier spec are written again: from here on their columns alone tell `dt`.
    assert read(table) == expected
    assert table.scan(where="dt = 'a'").count() == 3
    path = table.inspect.files()["path"][0].as_py()
    assert "dt" in pq.read_schema(path.removeprefix("file://")).names


def test_each_file_goes_by_its_own_spec_and_by_ids(table):
    table.alter().drop_partition_field("dt").add_partition_field("n").commit()
    hive_files.append(table, rows(row(8, "z", 3), row(9, "y", 4)))
    table.alter().rename_column("dt", "day").change_type("n", "bigint").commit()
    table.alter().add_column("dt", "string").commit()
    found = [(r["id"], r["day"], r["n"], r["dt"]) for r in read(table)]
    assert found == [(1, "a", 1, None), (2, "a", 1, None), (3, "b", 1, None), (4, None, 1, None), (5, "a", 1, None),
                     (6, "b", 1, None), (8, "z", 3, None), (9, "y", 4, None)]  # fmt: skip
    assert [r["id"] for r in read(table, where="day = 'a' and n < 3")] == [1, 2, 5]
    assert [r["id"] for r in read(table, where="n = 4")] == [9]
    assert table.scan(where="n = 1").count() == 6
    assert table.scan(where="day = 'b'").count() == 2
    table.delete("day = 'b' or n = 3")
    assert [r["id"] for r in read(table)] == [1, 2, 4, 5, 9]


def test_a_file_that_holds_the_column_keeps_its_own_values(table):
    hive_files.append(table, rows(row(8, "q")), without=(), partition=("b",))
    assert [(r["id"], r["dt"]) for r in read(table, where="id = 8")] == [(8, "q")]


def test_the_partition_comes_before_the_initial_default(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", properties={"format-version": "3"})
    t.alter().add_column("region", "string", default="none").commit()
    t.append(rows({**row(1, "a"), "region": "eu"}, schema=t.scan().schema))
    t.alter().add_partition_field("region").commit()
    hive_files.append(t, rows({**row(2, "a"), "region": "us"}, {**row(3, "a"), "region": None}, schema=t.scan().schema))
    hive_files.append(t, rows({**row(4, "a"), "region": "us"}, schema=t.scan().schema), without=("dt",))
    assert [(r["id"], r["dt"], r["region"]) for r in read(t)] == [
        (1, "a", "eu"), (2, "a", "us"), (3, "a", None), (4, None, "us")]  # fmt: skip


def test_added_files_with_field_ids_may_lack_the_column(lake, tmp_path):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"])
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"id": [1, 2]}, schema=schema), tmp_path / "a.parquet")
    t.add_files([str(tmp_path / "a.parquet")], partition={"dt": "q"})
    assert "schema.name-mapping.default" not in t.properties
    assert read(t, ["id", "dt"], where="dt = 'q'") == [{"id": 1, "dt": "q"}, {"id": 2, "dt": "q"}]


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
def test_equality_deletes_compare_the_value_of_the_partition(lake, format):
    schema = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string()), pa.field("dt", pa.string(), False)])
    t = lake.create_table("d.t", schema, format="iceberg", partition_by=["dt"], primary_key=["id", "dt"],
                          properties={"write.format.default": format})  # fmt: skip
    given = [(1, "a", "x"), (2, "a", "x"), (1, "b", "x"), (2, "b", "x")]
    hive_files.append(
        t, pa.Table.from_pylist([dict(zip(("id", "dt", "v"), values, strict=True)) for values in given], schema)
    )
    with t.delta_writer("cdc") as writer:
        writer.write(pa.table({"id": [1, 2], "dt": ["a", "b"], "v": ["x", "x"], "rowkind": ["-D", "-D"]}))
        writer.checkpoint(1)
    assert sorted((r["id"], r["dt"], r["v"]) for r in t.scan().to_arrow().to_pylist()) == [(1, "b", "x"), (2, "a", "x")]


@pytest.mark.parametrize("name", KINDS)
def test_values_of_every_type(lake, name):
    """Of every type that a partition can have, also beyond the years that Python knows."""
    chance = random.Random(7)
    schema = Schema((Field(0, "id", parse_type("int")), Field(1, name, parse_type(KINDS[name]))))
    t = lake.create_table("d.t", schema, format="iceberg", partition_by=[name], properties={"format-version": "3"})
    arrow = t.scan().schema
    values = [None, *(value(chance, name) for _ in range(5))]
    column = (
        pa.array(values, pa.int64()).cast(arrow.field(name).type)
        if name == "ns"
        else pa.array(values, arrow.field(name).type)
    )
    given = pa.table([pa.array(range(6), pa.int32()), column], schema=arrow)
    hive_files.append(t, given)
    assert repr(t.scan().to_arrow().sort_by("id").to_pylist()) == repr(given.to_pylist())


def test_days_beyond_the_years_that_python_knows(lake):
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    t = lake.create_table("d.t", schema, format="iceberg", partition_by=["day"])
    hive_files.append(t, pa.table({"id": [1], "day": [datetime.date(1, 1, 1)]}, schema=schema))
    numbers, values = manifest.identities(
        pa.table({"_spec": pa.array([0], pa.int32()), "p1000": pa.array([5_000_000], pa.int32()).cast(pa.date32())}),
        doors.view(t).state,
    )
    assert [values[number] for number in numbers] == [((2, 5_000_000),)]
    assert casts.constant(5_000_000, t.schema.field("day").type, 1).cast(pa.int32())[0].as_py() == 5_000_000
    assert read(t) == [{"id": 1, "day": datetime.date(1, 1, 1)}]


def test_specs_without_fields_are_told_apart(lake):
    t = lake.create_table("d.t", pa.schema([("id", pa.int64())]), format="iceberg")
    state = doors.view(t).state
    both = types.SimpleNamespace(specs={0: state.specs[0], 1: state.specs[0]})
    entries = pa.table({"_spec": pa.array([0, 1, 0], pa.int32())})
    assert manifest.partition_codes(entries, both).tolist() == [0, 1, 0]


PLACE = pa.struct([("country", pa.string()), ("city", pa.string())])


@pytest.fixture
def by_part(lake):
    """A table whose spec is a part of a row, as other writers make it."""
    t = lake.create_table("d.t", pa.schema([("id", pa.int64()), ("place", PLACE)]), format="iceberg")
    path = Path(t.uri.removeprefix("file://")) / "metadata" / "v1.metadata.json"
    answer = json.loads(path.read_text())
    country = answer["schemas"][0]["fields"][1]["type"]["fields"][0]
    field = {"source-id": country["id"], "field-id": 1000, "name": "c", "transform": "identity"}
    path.write_text(
        json.dumps(answer | {"partition-specs": [{"spec-id": 0, "fields": [field]}], "last-partition-id": 1000})
    )
    return lake.table("d.t")


def test_a_file_that_lacks_a_part_of_a_row_or_the_row(by_part):
    city = pa.table({"id": [1, 2], "place": pa.array([{"city": "Bern"}, None], pa.struct([("city", pa.string())]))})
    hive_files.append(by_part, city, partition=("CH",))
    hive_files.append(by_part, pa.table({"id": [3]}), partition=("DE",))
    hive_files.append(by_part, pa.table({"id": [4]}), partition=(None,))
    whole = pa.array([{"country": "AT", "city": "Wien"}], PLACE)
    hive_files.append(by_part, pa.table({"id": [5], "place": whole}), partition=("AT",))
    expected = [{"country": "CH", "city": "Bern"}, None, {"country": "DE", "city": None}, None, whole[0].as_py()]
    assert [r["place"] for r in read(by_part)] == expected
    for country, id in (("CH", 1), ("DE", 3), ("AT", 5)):
        assert [r["id"] for r in read(by_part, where=f"place.country = '{country}'")] == [id]
    assert by_part.scan(where="place.country is not null").count() == 3
    assert [r["place"] for r in read(by_part, ["id", "place.country"])][2] == {"country": "DE"}


def test_writers_refuse_a_spec_by_a_part_of_a_row(by_part):
    given = pa.table({"id": [1], "place": pa.array([{"country": "CH", "city": "Bern"}], PLACE)})
    hive_files.append(by_part, pa.table({"id": [2]}), partition=("DE",))
    for write in (
        lambda: by_part.append(given),
        lambda: by_part.compact(full=True),
        lambda: by_part.update({"id": "3"}),
    ):
        with pytest.raises(UnsupportedFeature, match=r"partition field 'c' .*drop_partition_field\('c'\)"):
            write()
    by_part.alter().drop_partition_field("c").commit()
    by_part.append(given)
    by_part.compact(full=True)
    assert read(by_part) == [*given.to_pylist(), {"id": 2, "place": {"country": "DE", "city": None}}]
