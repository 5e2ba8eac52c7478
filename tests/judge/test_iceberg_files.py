"""Files that others wrote and a table took in: Iceberg's own runtime on Spark, pyiceberg and DuckDB read them row for row."""

from __future__ import annotations

import datetime
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Lake

from .conftest import Sql
from .test_iceberg import counted, ours, place
from .test_iceberg_deletes import fresh, named

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("n", pa.decimal128(9, 2)), ("x", pa.float64()), ("ts", pa.timestamp("us")),
     ("st", pa.struct([("a", pa.int64()), ("b", pa.string())])), ("li", pa.list_(pa.int64())), ("dt", pa.string())]
)  # fmt: skip


def landed(path: Path, start: int, **other: pa.Array) -> str:
    count = 20
    columns = {
        "id": pa.array(range(start, start + count)),
        "v": pa.array([None if i % 5 == 0 else f"v{i}" * 9 for i in range(count)]),
        "n": pa.array([i if i % 3 else None for i in range(count)], pa.decimal128(7, 0)).cast(pa.decimal128(7, 2)),
        "x": pa.array([i / 2 for i in range(count)], pa.float32()),
        "ts": pa.array([datetime.datetime(1969, 12, 31, i) for i in range(count)]),
        "st": pa.array([{"a": i, "b": "b"} if i % 2 else None for i in range(count)]),
        "li": pa.array([list(range(i % 3)) for i in range(count)]),
        **other,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=7)
    return str(path)


def test_others_read_files_that_we_added(engines: dict, sql: Sql, lake: Lake, tmp_path: Path) -> None:
    name = fresh()
    by = ["dt", "days(ts)"]
    t = lake.create_table(f"d.{name}", SCHEMA, format="iceberg", partition_by=by, properties={"format-version": "2"})
    inside = landed(tmp_path / "a.parquet", 0, dt=pa.array(["a"] * 20))
    t.add_files([inside, landed(tmp_path / "dt=b%20c" / "b.parquet", 100)])
    t.append(pa.table({"id": [1000], "dt": ["a"], "ts": pa.nulls(1, pa.timestamp("us"))}))
    expected = ours(t)
    assert sum(expected.values()) == 41
    assert counted(sql(f"select * from {named(name)}")) == expected
    for where in ("dt = 'b c'", "id >= 110", "ts < timestamp '1969-12-31 03:00:00'", "n > 15", "x = 9.5"):
        found = counted(sql(f"select * from {named(name)} where {where}"))
        assert found == ours(t, where=where), where
        assert found
    by_path = {file["path"]: file for file in t.inspect.files().to_pylist()}
    for path, rows, size in sql(f"select file_path, record_count, file_size_in_bytes from {named(name)}.files"):
        assert (by_path[path]["row_count"], by_path[path]["size_bytes"]) == (rows, size)
    for reader in ("pyiceberg", "duckdb"):
        assert counted(engines[reader].ask(verb="read", **place(t))["rows"]) == expected, reader
    sql(f"delete from {named(name)} where id % 10 = 1", "select 1")
    t.add_files([landed(tmp_path / "dt=b%20c" / "c.parquet", 200)])
    sql(f"update {named(name)} set v = 'u' where id % 10 = 2", "select 1")
    assert counted(sql(f"select * from {named(name)}")) == ours(t)
    t.compact(full=True)
    assert counted(sql(f"select * from {named(name)}")) == ours(t)


def test_we_read_files_that_spark_added(sql: Sql, lake: Lake, tmp_path: Path) -> None:
    name = fresh()
    columns = "id bigint, v string, n decimal(9, 2), x double, ts timestamp_ntz, st struct<a: bigint, b: string>, li array<bigint>"
    sql(f"create table {named(name)} ({columns}, dt string) using iceberg partitioned by (dt)", "select 1")
    for start, dt in ((0, "a"), (100, "b c")):
        landed(tmp_path / f"dt={dt}" / "a.parquet", start)
    sql(f"call lake.system.add_files(table => '`d.db`.{name}', source_table => '`parquet`.`{tmp_path}`')")
    t = lake.table(f"d.{name}")
    assert ours(t) == counted(sql(f"select * from {named(name)}"))
    assert {row["dt"] for row in t.scan(["dt"]).to_arrow().to_pylist()} == {"a", "b c"}
    t.delete("dt = 'a' and id > 5")
    t.add_files([landed(tmp_path / "more.parquet", 200, dt=pa.array(["z"] * 20))])
    assert ours(t) == counted(sql(f"select * from {named(name)}"))


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_table_of_version_1_that_spark_made_goes_on(engines: dict, sql: Sql, lake: Lake, version: str) -> None:
    name = fresh()
    table = named(name)
    sql(
        f"create table {table} (id bigint, v string, dt string) using iceberg partitioned by (dt, bucket(3, id)) "
        "tblproperties ('format-version' = '1')",
        f"insert into {table} select id, concat('v', id), if(id % 2 = 0, 'a', 'b') from range(40)",
        f"delete from {table} where id % 10 = 3",
        f"alter table {table} drop partition field bucket(3, id)",
        f"alter table {table} rename column v to w",
        f"insert into {table} select id, 'new', 'c' from range(100, 104)",
        "select 1",
    )
    t = lake.table(f"d.{name}")
    before = counted(sql(f"select * from {table}"))
    assert ours(t) == before
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    t.alter().set_properties({"format-version": version, **modes}).commit()
    assert counted(sql(f"select * from {table}")) == before
    for snapshot in t.snapshots():
        found = sql(f"select * from {table} version as of {snapshot.id}")
        assert counted(found) == ours(t, snapshot_id=snapshot.id), snapshot
    t.append(pa.table({"id": [200, 201], "w": ["x", None], "dt": ["a", "d"]}))
    t.delete("id % 10 = 4")
    t.update({"w": "'u'"}, where="id in (5, 6, 101)")
    assert counted(sql(f"select * from {table}")) == ours(t)
    sql(f"delete from {table} where id = 7", f"insert into {table} values (300, 'spark', 'a')", "select 1")
    assert counted(sql(f"select * from {table}")) == ours(t)
    assert counted(engines["pyiceberg"].ask(verb="read", **place(t))["rows"]) == ours(t)
    t.compact(full=True, sort_by=["id"])
    t.rewrite_manifests()
    t.expire_snapshots(retain_last=1)
    assert counted(sql(f"select * from {table}")) == ours(t)
    # DuckDB 1.5.5 wants sequence numbers in manifests of version 1, which have none, until they are written anew.
    assert counted(engines["duckdb"].ask(verb="read", **place(t))["rows"]) == ours(t)


def test_changes_are_those_of_spark_s_changelog_view(sql: Sql, lake: Lake) -> None:
    """Without the rows that a copy-on-write took over as they were, which the view leaves out; it reads no delete files."""
    name = fresh()
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
    t = lake.create_table(f"d.{name}", schema, format="iceberg", partition_by=["dt"])
    t.append(pa.table({"id": range(20), "v": ["a"] * 20, "dt": ["xy"[i % 2] for i in range(20)]}))
    t.update({"v": "'u'"}, where="id % 5 = 1")
    sql(f"delete from {named(name)} where id in (2, 3)", "select 1")
    t.compact(full=True)
    t.overwrite_partitions(pa.table({"id": [100, 4], "v": ["o", "a"], "dt": ["x", "x"]}))
    sql(f"insert into {named(name)} values (200, 's', 'z')", "select 1")
    t.merge_into(pa.table({"id": [100, 5]}), on="t.id = s.id").when_matched("t.id = 5").delete().when_matched().update(
        {"v": "'m'"}
    ).merge()
    ids = [snapshot.id for snapshot in t.snapshots()]
    for start, stop in [*pairwise(ids), (ids[0], ids[-1])]:
        options = f"map('start-snapshot-id', '{start}', 'end-snapshot-id', '{stop}')"
        view = sql(
            f"call lake.system.create_changelog_view(table => '`d.db`.{name}', options => {options}, "
            f"changelog_view => 'changes_{name}')",
            f"select id, v, dt, _change_type, _commit_snapshot_id from changes_{name}",
        )
        expected = Counter((id, v, dt, {"INSERT": 1, "DELETE": -1}[kind]) for id, v, dt, kind, _ in view)
        found: Counter = Counter()
        for one, other in pairwise(ids[ids.index(start) : ids.index(stop) + 1]):
            net: Counter = Counter()
            for row in t.changes(one, other).to_arrow().to_pylist():
                net[row["id"], row["v"], row["dt"]] += 1 if row["_row_kind"] == "+I" else -1
            found += Counter({(*row, 1 if count > 0 else -1): abs(count) for row, count in net.items() if count})
        assert found == expected, (start, stop)
        assert found or start == ids[2]


def test_compressed_metadata_goes_from_one_to_the_other(sql: Sql, lake: Lake) -> None:
    """Java names a compressed version `vN.gz.metadata.json`, and finds ours by that name."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    codec = "write.metadata.compression-codec"
    theirs, ours_ = fresh(), fresh()
    sql(
        f"create table {named(theirs)} (id bigint, v string) using iceberg tblproperties ('{codec}' = 'gzip')",
        f"insert into {named(theirs)} values (1, 'a')",
    )
    made = lake.create_table(f"d.{ours_}", schema, format="iceberg", properties={codec: "gzip"})
    made.append(pa.table({"id": [1], "v": ["a"]}))
    for name in (theirs, ours_):
        t = lake.table(f"d.{name}")
        t.append(pa.table({"id": [2], "v": ["b"]}))
        sql(f"insert into {named(name)} values (3, 'c')", f"update {named(name)} set v = 'x' where id = 2")
        t.delete("id = 1")
        expected = counted([[2, "x"], [3, "c"]])
        assert counted(sql(f"refresh table {named(name)}", f"select * from {named(name)}")) == ours(t) == expected
        names = sorted(path.name for path in Path(t.uri.removeprefix("file://")).glob("metadata/v*.json"))
        plain = [] if name == theirs else ["v1.metadata.json"]
        assert names == [*plain, *(f"v{i}.gz.metadata.json" for i in range(len(plain) + 1, 7))]
