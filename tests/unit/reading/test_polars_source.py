"""Lazy polars frames of a scan: the rows that polars finds in the whole table, and few files read for them."""

import datetime

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.engines import worker

pl = pytest.importorskip("polars")

DAY = datetime.date(2024, 1, 1)
ROWS = pa.table(
    {
        "id": pa.array(range(200), pa.int64()),
        "small": pa.array([None if i % 7 == 0 else i % 50 for i in range(200)], pa.int32()),
        "f": pa.array([float("nan") if i % 11 == 0 else i / 4 for i in range(200)]),
        "s": [None if i % 13 == 0 else f"s{i % 20:02}" for i in range(200)],
        "d": [DAY + datetime.timedelta(days=i // 10) for i in range(200)],
        "b": [None if i % 17 == 0 else i % 2 == 0 for i in range(200)],
        "a.b": [i % 3 for i in range(200)],
        "part": [f"p{i // 50}" for i in range(200)],
    }
)
c = pl.col
CONDITIONS = {
    "range": (c("id") > 10) & (c("id") <= 60),
    "flipped": pl.lit(150) < c("id"),
    "between": c("id").is_between(20, 30),
    "half open": c("id").is_between(20, 30, closed="left"),
    "nulls": c("s").is_null() | c("small").is_null(),
    "not": ~(c("b") & (c("id") < 100)),
    "not null": c("s").is_not_null() & (c("part") == "p3"),
    "text": (c("s") >= "s07") & (c("s") != "s08"),
    "date": c("d") >= DAY + datetime.timedelta(days=15),
    "date of text": c("d") == pl.lit("2024-01-03").str.to_date(),
    "in": c("id").is_in([3, 5, 190]),
    "float": c("f") > 40,
    "integer by float": c("id") == 7.0,
    "half": c("small") < 10.5,
    "boolean": c("b"),
    "dotted": c("a.b") == 1,
    "prefix": c("s").str.starts_with("s1"),
    "two columns": c("id") == c("small"),
    "arithmetic": (c("id") + 1) % 10 == 0,
    "part and unknown": (c("part") == "p1") & (c("id") % 2 == 0),
    "or with unknown": (c("part") == "p1") | (c("id") % 50 == 0),
    "beyond the type": c("small") < 2**40,
}


@pytest.fixture(scope="module", params=["paimon", "iceberg"])
def table(request, tmp_path_factory):
    lake = Lake(tmp_path_factory.mktemp("wh"))
    table = lake.create_table("d.t", ROWS.schema, format=request.param, partition_by=["part"])
    table.append(ROWS)
    return table


def rows(frame):
    return frame.sort("id", nulls_last=True).rows() if "id" in frame.columns else sorted(frame.rows(), key=repr)


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS.keys())
def test_conditions_find_what_polars_finds(table, condition):
    whole = pl.from_arrow(ROWS)
    lazy = table.scan().to_polars_lazy()
    for ask in (
        lambda frame: frame.filter(condition),
        lambda frame: frame.filter(condition).select("s", "id"),
        lambda frame: frame.filter(condition).group_by("part").agg(pl.len(), pl.col("id").sum()).sort("part"),
    ):
        found, expected = ask(lazy).collect(), ask(whole)
        assert repr(rows(found)) == repr(rows(expected.select(found.columns)))


def test_few_files_and_columns_are_read(table, monkeypatch):
    tasks = []
    parts = worker.parts
    monkeypatch.setattr(worker, "parts", lambda store, task, **kw: tasks.append(task) or parts(store, task, **kw))
    lazy = table.scan().to_polars_lazy()
    assert tasks == []
    lazy.filter((c("part") == "p1") & (c("id") % 2 == 0)).select("s").collect()
    assert {path for task in tasks for path in task.paths} == set(table.scan(where="part = 'p1'").plan()[0].paths)
    assert {field.name for task in tasks for field in task.fields} == {"s", "id", "part"}
    tasks.clear()
    assert lazy.head(3).collect().height == 3
    assert len(tasks) < 4
    tasks.clear()
    assert lazy.select(pl.len()).collect().item() == 200


def test_a_frame_reads_the_snapshot_of_its_scan_and_its_limit(tmp_path):
    table = Lake(tmp_path).create_table("d.t", ROWS.schema)
    table.append(ROWS)
    lazy, few = table.scan().to_polars_lazy(), table.scan(limit=5).to_polars_lazy()
    table.append(ROWS)
    assert lazy.collect().height == 200
    assert few.filter(c("id") >= 0).collect().height == 5
    assert few.head(2).collect().height == 2
    assert table.scan(where="id < 3").to_polars_lazy().filter(c("id") > 1).collect().height == 2
    table.append(lazy.filter(c("id") == 3))
    assert table.scan(where="id = 3").count() == 3
