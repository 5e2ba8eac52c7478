"""Delete files: Iceberg's own runtime on Spark, pyiceberg and DuckDB read ours row for row, we read Spark's, and the two
continue each other's tables.

Known mistakes of the judges: pyiceberg 0.12 reads no equality deletes; DuckDB 1.5.5 applies equality deletes in partitions
that they do not belong to.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.commit import commit
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.engines import worker
from lakeformat.model.operation import Request, RowDelta
from lakeformat.model.work import Content
from lakeformat.storage.files import open_store
from lakeformat.table import Table

from .conftest import Sql
from .test_iceberg import counted, ours, place

iceberg = Iceberg()

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
KINDS = {
    "by file": {},
    "by partition": {"write.delete.granularity": "partition"},
    "vectors": {"format-version": "3"},
}
STEPS = int(os.environ.get("LAKEFORMAT_JUDGE_STEPS", "20"))
NUMBERS = itertools.count()
LINEAGE = ("id", "_row_id", "_last_updated_sequence_number")


def fresh() -> str:
    return f"t{next(NUMBERS)}"


def named(name: str) -> str:
    return f"lake.`d.db`.{name}"


def rows(ids: range, dt: str, v: str = "v") -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids), "dt": [dt] * len(ids)}, schema=SCHEMA)


def by_us(lake: Lake, name: str, properties: dict) -> Table:
    t = lake.create_table(
        f"d.{name}", SCHEMA, format="iceberg", partition_by=["dt"], properties={**MERGE_ON_READ, **properties}
    )
    for start, dt in ((0, "a"), (50, "b"), (100, "a")):
        t.append(rows(range(start, start + 50), dt))
    t.delete("id % 10 = 1")
    t.update({"v": "'u'"}, where="id % 10 = 2")
    t.delete("id % 10 = 3 and dt = 'a'")
    return t


def by_spark(sql: Sql, name: str, properties: dict) -> None:
    told = ", ".join(f"'{k}' = '{v}'" for k, v in {"format-version": "2", **MERGE_ON_READ, **properties}.items())
    sql(
        f"create table {named(name)} (id bigint, v string, dt string) using iceberg partitioned by (dt) "
        f"tblproperties ({told})",
        f"insert into {named(name)} select id, 'v', if(id % 3 = 0, 'a', 'b') from range(100)",
        f"delete from {named(name)} where id % 10 = 1",
        f"update {named(name)} set v = 'u' where id % 10 = 2",
        f"delete from {named(name)} where id % 10 = 3 and dt = 'a'",
        f"merge into {named(name)} t using (select id from range(90, 110)) s on t.id = s.id "
        "when matched and s.id < 95 then delete when matched then update set v = 'm' "
        "when not matched then insert (id, v, dt) values (s.id, 'n', 'c')",
        "select 1",
    )


def numbered(table: Table) -> Counter:
    """Rows with their ids, as we read them."""
    found = table.scan(columns=list(LINEAGE)).to_arrow()
    return Counter(zip(*(found[name].to_pylist() for name in LINEAGE), strict=True))


def delete_keys(table: Table, ids: list[int], dt: str) -> None:
    """Equality deletes, as streaming writers make them."""
    store = open_store(table.uri)
    head = iceberg.head(store)
    base = iceberg.load(store, head.version())
    field = base.schema.field("id")
    layout = replace(
        base.layout(), fields=(field,), partition_by=(), directory=lambda v, b: f"data/dt={dt}", stats=(),
        content=Content.EQUALITY_DELETES,
    )  # fmt: skip
    (file,) = worker.write(store, iter([pa.record_batch({"id": pa.array(ids)})]), layout)
    file = replace(file, partition=(dt,), spec_id=0, compared=(field.id,))
    request = Request(id=f"keys {ids} {dt}", schema_id=base.schema.id)
    commit(store, head, iceberg, RowDelta(request=request, added=(file,), kind="append", isolation=None))


@pytest.mark.parametrize("kind", KINDS)
def test_we_read_what_spark_deleted(sql: Sql, lake: Lake, kind: str) -> None:
    name = fresh()
    by_spark(sql, name, KINDS[kind])
    t = lake.table(f"d.{name}")
    assert ours(t) == counted(sql(f"select * from {named(name)}"))
    for where in ("dt = 'a'", "id % 10 = 2", "v = 'm'"):
        assert [[t.scan(where=where).count()]] == sql(f"select count(*) from {named(name)} where {where}")
    assert [[t.scan().count()]] == sql(f"select count(*) from {named(name)}")
    for snapshot in t.snapshots():
        found = sql(f"select * from {named(name)} version as of {snapshot.id}")
        assert ours(t, snapshot_id=snapshot.id) == counted(found), snapshot


@pytest.mark.parametrize("kind", KINDS)
def test_others_read_what_we_deleted(engines: dict, sql: Sql, lake: Lake, kind: str) -> None:
    t = by_us(lake, name := fresh(), KINDS[kind])
    expected = ours(t)
    assert counted(sql(f"select * from {named(name)}")) == expected
    for reader in ("pyiceberg", "duckdb"):
        assert counted(engines[reader].ask(verb="read", **place(t))["rows"]) == expected, reader
    for snapshot in t.snapshots():
        found = sql(f"select * from {named(name)} version as of {snapshot.id}")
        assert counted(found) == ours(t, snapshot_id=snapshot.id), snapshot
    told = sql(f"select content, record_count from {named(name)}.delete_files")
    assert {row[0] for row in told} == {1}
    assert sum(row[1] for row in told) == 15 + 15 + 5 + 5  # 1s and 2s everywhere, 3s of `a`.
    t.compact(full=True)
    assert counted(sql(f"select * from {named(name)}")) == expected
    assert sql(f"select * from {named(name)}.delete_files") == []


@pytest.mark.parametrize("reader", ["spark", "duckdb"])
def test_others_read_our_equality_deletes(engines: dict, sql: Sql, lake: Lake, reader: str) -> None:
    t = by_us(lake, name := fresh(), {})
    delete_keys(t, [4, 5, 104], "a")
    delete_keys(t, [60], "b")
    if reader == "spark":
        assert not {4, 5, 104, 60} & {row[0] for row in sql(f"select id from {named(name)}")}
        delete_keys(t, [70], "a")  # Not of its partition: it stays.
        assert counted(sql(f"select * from {named(name)}")) == ours(t)
        t.append(rows(range(4, 5), "a", "again"))
        assert counted(sql(f"select * from {named(name)}")) == ours(t)
        sql(f"call lake.system.rewrite_data_files(table => '`d.db`.{name}', options => map('rewrite-all', 'true'))")
        assert counted(sql(f"select * from {named(name)}")) == ours(t)
    else:
        assert counted(engines[reader].ask(verb="read", **place(t))["rows"]) == ours(t)


@pytest.mark.parametrize("kind", KINDS)
def test_others_read_equality_deletes_that_became_position_deletes(
    engines: dict, sql: Sql, lake: Lake, kind: str
) -> None:
    """Also pyiceberg, which knows no others; and Spark goes on from there."""
    t = by_us(lake, name := fresh(), KINDS[kind])
    delete_keys(t, [4, 5, 104, 70], "a")
    delete_keys(t, [60], "b")
    expected = ours(t)
    t.convert_equality_deletes()
    assert ours(t) == expected
    assert counted(sql(f"select * from {named(name)}")) == expected
    for reader in ("pyiceberg", "duckdb"):
        assert counted(engines[reader].ask(verb="read", **place(t))["rows"]) == expected, reader
    sql(
        f"delete from {named(name)} where id in (6, 66)",
        f"call lake.system.rewrite_data_files(table => '`d.db`.{name}', options => map('rewrite-all', 'true'))",
        "select 1",
    )
    assert ours(t) == counted(sql(f"select * from {named(name)}"))
    assert sum(ours(t).values()) == sum(expected.values()) - 2


def test_java_reads_and_writes_on_where_files_of_positions_became_vectors(sql: Sql, lake: Lake) -> None:
    t = by_us(lake, name := fresh(), KINDS["by partition"])
    t.alter().set_properties({"format-version": "3"}).commit()
    t.delete("id = 7")  # Of one data file a vector has all, of the others files of version 2 still tell.
    expected = ours(t)
    t.rewrite_position_deletes()
    told = sql(f"select file_format from {named(name)}.delete_files")
    assert {row[0] for row in told} == {"PUFFIN"}
    assert counted(sql(f"select * from {named(name)}")) == ours(t) == expected
    sql(f"delete from {named(name)} where id in (8, 58)", "select 1")
    assert counted(sql(f"select * from {named(name)}")) == ours(t)
    assert sum(ours(t).values()) == sum(expected.values()) - 2


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_we_and_spark_continue_each_other_s_tables(sql: Sql, lake: Lake, kind: str, seed: int) -> None:
    """Random steps, each by the one or the other; both see the same rows after each."""
    chance = random.Random(f"{kind}/{seed}")
    name = fresh()
    by_spark(sql, name, KINDS[kind])
    t, table = lake.table(f"d.{name}"), named(name)
    for step in range(STEPS):
        digit, low = chance.randrange(10), chance.randrange(120)
        do = chance.choice(["append", "delete", "update", "merge", "compact", "mode", "overwrite"])
        us = chance.random() < 0.5
        match do, us:
            case "append", True:
                t.append(rows(range(low, low + 10), chance.choice("abc"), f"{step}"))
            case "append", False:
                dt = chance.choice("abc")
                sql(f"insert into {table} select id, '{step}', '{dt}' from range({low}, {low + 10})", "select 1")
            case "delete", True:
                t.delete(f"id % 10 = {digit} and id > {low}")
            case "delete", False:
                sql(f"delete from {table} where id % 10 = {digit} and id > {low}", "select 1")
            case "update", True:
                t.update({"v": f"'{step}'"}, where=f"id % 10 = {digit}")
            case "update", False:
                sql(f"update {table} set v = '{step}' where id % 10 = {digit}", "select 1")
            case "merge", True:
                source = pa.table({"id": list(range(low, low + 5))})
                chain = t.merge_into(source, on="t.id = s.id").when_matched("t.id % 2 = 0").delete()
                chain.when_matched().update({"v": f"'{step}'"}).merge()
            case "merge", False:
                sql(
                    f"merge into {table} t using (select id from range({low}, {low + 5})) s on t.id = s.id "
                    f"when matched and s.id % 2 = 0 then delete when matched then update set v = '{step}' "
                    f"when not matched then insert (id, v, dt) values (s.id, 'n', 'a')",
                    "select 1",
                )
            case "compact", True:
                t.compact(full=True, sort_by=chance.choice([None, ["id"], ["v", "id"]]))
            case "compact", False:
                sql(
                    f"call lake.system.rewrite_data_files(table => '`d.db`.{name}', options => map('min-input-files', '2'))"
                )
            case "mode", _:
                mode = chance.choice(["copy-on-write", "merge-on-read"])
                t.alter().set_properties({f"write.{v}.mode": mode for v in ("delete", "update", "merge")}).commit()
            case "overwrite", True:
                t.overwrite_partitions(rows(range(low, low + 5), "c", f"{step}"))
            case "overwrite", False:
                sql(f"delete from {table} where dt = 'c'", "select 1")
        assert ours(t) == counted(sql(f"select * from {table}")), (
            f"seed {seed}, step {step}: {do} by {'us' if us else 'Spark'}"
        )
        assert t.scan().count() == len(t.scan().to_arrow())
        if kind == "vectors":
            assert numbered(t) == Counter(map(tuple, sql(f"select {', '.join(LINEAGE)} from {table}"))), (
                seed,
                step,
                do,
                us,
            )


def test_row_ids_stay_with_their_rows(sql: Sql, lake: Lake) -> None:
    t = by_us(lake, name := fresh(), KINDS["vectors"])

    def lineage() -> dict:
        found = sql(f"select id, _row_id, _last_updated_sequence_number from {named(name)}")
        return {id: (row_id, updated) for id, row_id, updated in found}

    before = lineage()
    assert len({row_id for row_id, _ in before.values()}) == len(before)
    t.compact(full=True)
    assert lineage() == before
    sql(f"delete from {named(name)} where id = 6", "select 1")
    t.alter().set_properties({f"write.{v}.mode": "copy-on-write" for v in ("delete", "update")}).commit()
    t.delete("id = 7")
    t.update({"v": "'new'"}, where="id = 8")
    sequence = t.inspect.snapshots()["sequence_number"].to_pylist()[-1]
    after = {id: told for id, told in before.items() if id not in (6, 7)} | {8: (before[8][0], sequence)}
    assert lineage() == after
    for mode in ("copy-on-write", "merge-on-read"):
        t.alter().set_properties({"write.merge.mode": mode}).commit()
        before = lineage()
        chain = t.merge_into(pa.table({"id": [9, 10, 59], "v": [mode] * 3}), on="t.id = s.id").when_matched("t.id = 59")
        chain.delete().when_matched().update({"v": "s.v"}).merge()
        sequence = t.inspect.snapshots()["sequence_number"].to_pylist()[-1]
        changed = {id: (before[id][0], sequence) for id in (9, 10)}
        assert lineage() == {id: told for id, told in before.items() if id != 59} | changed, mode
    assert numbered(t) == Counter((id, *told) for id, told in lineage().items())


def test_a_table_that_becomes_version_3_has_vectors_in_place_of_its_files_of_positions(sql: Sql, lake: Lake) -> None:
    t = by_us(lake, name := fresh(), {})
    t.alter().set_properties({"format-version": "3"}).commit()
    t.delete("id % 10 = 4")
    assert counted(sql(f"select * from {named(name)}")) == ours(t)
    formats = sql(f"select file_format, count(*) from {named(name)}.delete_files group by 1")
    assert formats == [["PUFFIN", 3]]
    assert len({row[0] for row in sql(f"select _row_id from {named(name)}")}) == t.scan().count()
