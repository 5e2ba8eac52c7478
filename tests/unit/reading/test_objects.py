"""How a Lake, a Table, a Scan, a Schema and a Snapshot show themselves, and how other libraries take their rows."""

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, NotFound

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "<b>", None], "dt": ["x", "x", "y"]})


@pytest.fixture(params=["paimon", "iceberg"])
def lake(request, tmp_path):
    lake = Lake(tmp_path / "warehouse")
    lake.create_table("db.t", ROWS.schema, format=request.param, partition_by=["dt"]).append(ROWS)
    return lake


def rows(data):
    return sorted(pa.table(data).to_pylist(), key=lambda row: row["id"])


def test_rows_go_where_arrow_streams_go(lake):
    table = lake.table("db.t")
    for source in (table, table.scan()):
        assert rows(source) == rows(ROWS)
        assert rows(pl.DataFrame(source).to_arrow()) == rows(ROWS)
        assert rows(pa.RecordBatchReader.from_stream(source).read_all()) == rows(ROWS)
    assert rows(table.changes(0)) == [{**row, "_row_kind": "+I"} for row in rows(ROWS)]


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_conditions_on_a_duckdb_relation_mean_what_they_mean_in_duckdbs_tables(tmp_path, format):
    nan = float("nan")
    data = pa.table(
        {
            "id": pa.array(range(5), pa.int64()),
            "x": pa.array([1.0, nan, None, -1.0, 0.0]),
            "f": pa.array([nan, 1.0, None, 0.0, -1.0], pa.float32()),
            "s": [{"x": nan}, {"x": 1.0}, None, {"x": None}, {"x": -1.0}],
        }
    )
    lake = Lake(tmp_path / "warehouse")
    lake.create_table("db.t", data.schema, format=format).append(data)
    with duckdb.connect() as connection:
        relation = lake.table("db.t").scan().to_duckdb(connection)
        relation.create("own")
        own = connection.table("own")
        for column in ("x", "f", "s.x"):
            for value in ("0.5", "'nan'::DOUBLE", "NULL"):
                for test in ("<", "<=", "=", "<>", ">=", ">", "IS NOT DISTINCT FROM", "IS DISTINCT FROM"):
                    condition = f"{column} {test} {value}"
                    found, expected = (
                        sorted(each.filter(condition).select("id").fetchall()) for each in (relation, own)
                    )
                    assert found == expected, condition


@pytest.mark.parametrize("rows", [lambda table: table, lambda table: table.scan()], ids=["table", "scan"])
def test_pandas_asked_for_a_frame_of_a_scan_says_how_to_get_one(lake, rows):
    with pytest.raises(TypeError, match=r"take (\.scan\(\))?\.to_pandas\(\)"):
        pd.DataFrame(rows(lake.table("db.t")))


def test_a_scan_is_filtered_and_projected_step_by_step(lake):
    scan = lake.table("db.t").scan()
    assert scan.filter("id > 1").filter("dt = 'x'").to_arrow().to_pylist() == [{"id": 2, "name": "<b>", "dt": "x"}]
    assert sorted(row["id"] for row in scan.filter("dt = 'x'").select(["id"]).to_arrow().to_pylist()) == [1, 2]
    assert scan.select(["dt", "id"]).schema.names == ["dt", "id"]
    assert scan.filter("dt = 'y'").count() == 1
    with pytest.raises(NotFound, match="no column 'nope'"):
        scan.select(["nope"])
    with pytest.raises(InvalidInput, match="give a list of names"):
        scan.select("id")
    with pytest.raises(InvalidInput, match="filter first, then limit"):
        lake.table("db.t").scan(limit=1).filter("id = 1")


def test_reprs_fit_on_a_line(lake):
    table = lake.table("db.t")
    schema = repr(table.schema)
    assert schema.startswith("Schema(id: bigint, name: string, dt: string")
    assert schema.endswith("partitioned by (dt))")
    scan = repr(table.scan(columns=["id"], where="id > 1", limit=5))
    assert f"snapshot {table.current_snapshot().id}, columns id, where (`id` > " in scan
    assert scan.endswith("limit 5)")
    made = repr(table.append(ROWS))
    assert made.startswith("Snapshot(")
    assert "rows +3 -0, files +2 -0" in made
    assert "no snapshot" in repr(lake.create_table("db.empty", ROWS.schema).scan())


def test_notebooks_show_tables_whose_text_is_escaped(lake):
    table = lake.table("db.t")
    assert "db.t" in lake._repr_html_()
    assert "&lt;b&gt;" in table.scan()._repr_html_()
    assert "<b>" not in table.scan()._repr_html_().split("<thead>")[1]
    for shown in (table, table.schema, table.current_snapshot()):
        assert shown._repr_html_().startswith("<p><b>")


@pytest.fixture(params=["paimon", "iceberg"])
def days(request, tmp_path):
    properties = {"parquet.block.size": "1"} if request.param == "paimon" else {}
    table = Lake(tmp_path / "warehouse").create_table(
        "db.days",
        pa.schema([("id", pa.int64()), ("dt", pa.string())]),
        format=request.param,
        partition_by=["dt"],
        properties=properties,
    )
    for day in range(3):
        table.append(pa.table({"id": [day * 10, day * 10 + 1], "dt": [f"d{day}"] * 2}))
    return table


def test_explain_says_which_condition_leaves_out_which_file_and_by_which_bounds(days):
    told = days.scan(where="dt >= 'd1' and id < 15").explain().to_pylist()
    by_day = {next(d for d in ("d0", "d1", "d2") if f"dt={d}" in row["path"]): row for row in told}
    assert "'d1'" in by_day["d0"]["left_out_by"]
    assert by_day["d1"]["left_out_by"] is None
    assert (by_day["d1"]["row_groups_read"], by_day["d1"]["row_groups"]) == (1, 1)
    assert "15" in by_day["d2"]["left_out_by"]
    assert by_day["d2"]["bounds"] == "id: 20 .. 21"
    assert by_day["d2"]["row_groups"] is None
    assert [row["row_count"] for row in told] == [2, 2, 2]
    assert all(row["size_bytes"] > 100 for row in told)
    assert {row["left_out_by"] for row in days.scan().explain().to_pylist()} == {None}


def test_explain_says_which_manifests_are_left_out_and_by_which_bounds(days):
    found = days.scan(where="dt >= 'd1' and id < 15").explain_manifests().to_pylist()
    assert [row["file_count"] for row in found] == [1, 1, 1]
    (left_out,) = [row for row in found if row["left_out_by"] is not None]
    assert (left_out["left_out_by"], left_out["bounds"]) == ("(`dt` >= 'd1')", "dt: d0 .. d0")
    assert all(row["size_bytes"] > 100 and "/" in row["path"] for row in found)
    several = days.scan(where="dt = 'd1' or dt = 'd2' and id > 0").explain_manifests()
    assert several["left_out_by"].null_count == 2
    assert days.scan(where="id < 15").explain_manifests()["left_out_by"].null_count == 3
    assert days.scan().explain_manifests()["left_out_by"].null_count == 3


def test_explain_agrees_with_the_plan(days):
    for where in ("id = 11", "dt = 'd2' or id = 0", "id > 100", "dt = 'd0' and id = 21", "id is null"):
        scan = days.scan(where=where)
        read = {path for task in scan.plan() for path in task.paths}
        told = scan.explain().to_pylist()
        assert {row["path"] for row in told if row["left_out_by"] is None} == read, where
