"""One SQL catalog, pyiceberg's and ours: each opens, reads and continues what the other made; DuckDB reads the result."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat import Lake
from lakeformat.table import Table
from tests.judge.test_iceberg import counted, ours

FIELDS = [{"name": "id", "type": "BIGINT"}, {"name": "v", "type": "STRING"}]


def newest(lake: Lake, name: str) -> str:
    return lake._catalog.entry(name).location().removeprefix("file://")  # type: ignore[union-attr]


def seen_by_all(engines: dict, lake: Lake, table: Table, expected: list) -> None:
    assert ours(table) == counted(expected)
    found = engines["pyiceberg"].ask(verb="read", warehouse=lake.uri, name=table.name)
    assert counted(found["rows"]) == counted(expected)
    found = engines["duckdb"].ask(verb="read", metadata=newest(lake, table.name))
    assert counted(found["rows"]) == counted(expected)


def test_each_continues_what_the_other_made(engines: dict, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "w"), catalog="sql")
    assert lake.tables() == []  # Makes the database.
    pyiceberg = engines["pyiceberg"]
    theirs = {"warehouse": lake.uri, "name": "by.theirs", "fields": FIELDS}
    pyiceberg.ask(verb="continue", rows=[[1, "a"], [2, "b"]], **theirs)
    table = lake.table("by.theirs")
    seen_by_all(engines, lake, table, [[1, "a"], [2, "b"]])
    table.append(pa.table({"id": [3], "v": ["c"]}))
    pyiceberg.ask(verb="continue", rows=[[4, "d"]], where="id = 1", **theirs)
    table.update({"v": "'x'"}, where="id = 4")
    seen_by_all(engines, lake, table, [[2, "b"], [3, "c"], [4, "x"]])
    assert len(table.snapshots()) == 5

    own = lake.create_table("by.own", pa.schema([("id", pa.int64()), ("v", pa.string())]), format="iceberg")
    own.append(pa.table({"id": [1], "v": ["a"]}))
    answer = pyiceberg.ask(verb="continue", rows=[[2, "b"]], **{**theirs, "name": "by.own"})
    assert answer["tables"] == lake.tables() == ["by.own", "by.theirs"]
    own.append(pa.table({"id": [3], "v": ["c"]}))
    seen_by_all(engines, lake, own, [[1, "a"], [2, "b"], [3, "c"]])
    moved = lake.rename_table("by.own", "to.moved")
    assert pyiceberg.ask(verb="continue", rows=[], **{**theirs, "name": "to.moved"})["tables"] == lake.tables()
    seen_by_all(engines, lake, moved, [[1, "a"], [2, "b"], [3, "c"]])
    assert moved.expire_snapshots(retain_last=1).snapshots
    assert moved.remove_orphan_files(older_than=0) == []
    seen_by_all(engines, lake, moved, [[1, "a"], [2, "b"], [3, "c"]])


def test_compressed_metadata_goes_from_one_to_the_other(engines: dict, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "w"), catalog="sql")
    gzip = {"write.metadata.compression-codec": "gzip"}
    table = lake.create_table(
        "by.packed", pa.schema([("id", pa.int64()), ("v", pa.string())]), format="iceberg", properties=gzip
    )
    table.append(pa.table({"id": [1], "v": ["a"]}))
    theirs = {"warehouse": lake.uri, "name": "by.packed", "fields": FIELDS}
    answer = engines["pyiceberg"].ask(verb="continue", rows=[[2, "b"]], **theirs)
    assert counted(answer["rows"]) == counted([[1, "a"], [2, "b"]])
    table.append(pa.table({"id": [3], "v": ["c"]}))
    assert newest(lake, table.name).endswith(".gz.metadata.json")
    seen_by_all(engines, lake, table, [[1, "a"], [2, "b"], [3, "c"]])


def test_files_that_pyiceberg_added_are_read_by_its_mapping_of_names(engines: dict, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "w"), catalog="sql")
    assert lake.tables() == []  # Makes the database.
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"v": ["p", "q"], "id": pa.array([7, 8], pa.int64())}), plain)
    theirs = {"warehouse": lake.uri, "name": "by.theirs", "fields": FIELDS}
    engines["pyiceberg"].ask(verb="continue", rows=[[1, "a"]], files=[str(plain)], **theirs)
    table = lake.table("by.theirs")
    assert ours(table) == counted([[1, "a"], [7, "p"], [8, "q"]])
    table.alter().rename_column("v", "w").commit()
    table.delete("w = 'p'")
    assert ours(table) == counted([[1, "a"], [8, "q"]])
    assert counted(engines["pyiceberg"].ask(verb="read", warehouse=lake.uri, name="by.theirs")["rows"]) == ours(table)


def test_files_outside_the_tables_folder_are_read_and_continued(engines: dict, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "w"), catalog="sql")
    elsewhere = {
        "write.data.path": f"file://{tmp_path}/data",
        "write.metadata.path": f"file://{tmp_path}/metadata",
        "write.object-storage.enabled": "true",
        "write.delete.mode": "merge-on-read",
    }
    table = lake.create_table(
        "by.far", pa.schema([("id", pa.int64()), ("v", pa.string())]), format="iceberg", properties=elsewhere
    )
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    table.delete("id = 2")
    theirs = {"warehouse": lake.uri, "name": "by.far", "fields": FIELDS}
    engines["pyiceberg"].ask(verb="continue", rows=[[3, "c"]], **theirs)
    seen_by_all(engines, lake, table, [[1, "a"], [3, "c"]])
    table.compact(full=True)
    table.expire_snapshots(retain_last=1)
    seen_by_all(engines, lake, table, [[1, "a"], [3, "c"]])
    live = {path.split("/data/")[1] for path in table.inspect.files()["path"].to_pylist()}
    assert {str(p.relative_to(tmp_path / "data")) for p in (tmp_path / "data").rglob("*.parquet")} == live


def test_a_copy_at_another_prefix_is_read_by_all(engines: dict, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "w"), catalog="sql")
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    properties = {"write.delete.mode": "merge-on-read"}
    table = lake.create_table("by.own", schema, format="iceberg", partition_by=["bucket(2, id)"], properties=properties)
    table.append(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}))
    table.delete("id = 2")
    made = table.rewrite_table_path(table.uri, f"file://{tmp_path}/copy")
    for line in Path(made.file_list.removeprefix("file://")).read_text().splitlines():
        source, target = (Path(part.removeprefix("file://")) for part in line.split(","))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    shutil.rmtree(table.uri.removeprefix("file://"))
    lake.drop_table("by.own")
    copy = lake.register_table("by.copy", f"{tmp_path}/copy/metadata/{made.latest}")
    seen_by_all(engines, lake, copy, [[1, "a"], [3, "c"]])
    engines["pyiceberg"].ask(verb="continue", warehouse=lake.uri, name="by.copy", fields=FIELDS, rows=[[4, "d"]])
    seen_by_all(engines, lake, copy, [[1, "a"], [3, "c"], [4, "d"]])


def test_a_folder_that_became_a_table_is_read_by_all(engines: dict, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "w"), catalog="sql")
    for number in range(2):
        location = tmp_path / "landing" / f"p={number}"
        location.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number], "v": [f"v{number}"]}), location / "part.parquet")
    table = lake.snapshot_table(str(tmp_path / "landing"), "by.snap")
    seen_by_all(engines, lake, table, [[0, "v0", 0], [1, "v1", 1]])
    table.delete("id = 0")
    seen_by_all(engines, lake, table, [[1, "v1", 1]])


def test_views_are_to_pyiceberg_what_they_are_here(engines: dict, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "w"), catalog="sql")
    lake.create_table("by.own", pa.schema([("id", pa.int64()), ("v", pa.string())]), format="iceberg")
    lake.sql("USE by; CREATE VIEW seen TBLPROPERTIES ('a' = 'b') AS SELECT id FROM own")
    lake.sql("CREATE OR REPLACE VIEW by.seen (n, day) AS SELECT count(*), v FROM by.own GROUP BY v")
    with sqlite3.connect(f"{lake.uri.removeprefix('file://')}/catalog.sqlite") as connection:
        where = "SELECT metadata_location FROM iceberg_tables WHERE table_name = 'seen'"
        ((place,),) = connection.execute(where).fetchall()
    found = engines["pyiceberg"].ask(verb="view", metadata=place.removeprefix("file://"))
    assert found["columns"] == [["n", "long"], ["day", "string"]]
    assert found["queries"] == {"spark": "SELECT count(*), v FROM by.own GROUP BY v"}
    assert (found["versions"], found["log"], found["properties"].get("a")) == ([1, 2], [1, 2], "b")
    assert found["namespace"] == ["by"]
