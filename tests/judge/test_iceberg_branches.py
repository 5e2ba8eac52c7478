"""Branches and staged snapshots: Iceberg's own runtime on Spark and we write to the same branch, and publish what the other staged."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakeformat import Conflict, Lake
from lakeformat.table import Table

from .conftest import Sql
from .test_iceberg import counted, ours
from .test_iceberg_deletes import MERGE_ON_READ, fresh, named

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])


def rows(*ids: int, v: str = "ours", dt: str = "a") -> pa.Table:
    return pa.table({"id": ids, "v": [v] * len(ids), "dt": [dt] * len(ids)}, SCHEMA)


def made(lake: Lake, name: str, **properties: str) -> Table:
    return lake.create_table(f"d.{name}", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)


def changed(sql: Sql, on: Table, there: str) -> Iterator[None]:
    """A branch, changed by Spark and by us in turn."""
    sql(f"insert into {there} values (20, 'theirs', 'c')", "select 1")
    yield
    on.delete("id % 5 = 1")
    yield
    sql(f"delete from {there} where id = 2", "select 1")
    yield
    on.update({"v": "'u'"}, where="dt = 'b' and id % 2 = 0")
    yield
    sql(f"update {there} set v = 'su' where id in (4, 12)", "select 1")
    yield
    on.merge_into(rows(3, 30), on="t.id = s.id").when_matched().update_all().when_not_matched().insert_all().merge()
    yield
    source = "select id, 's' as v, 'b' as dt from range(15, 23)"
    merge = f"merge into {there} t using ({source}) s on t.id = s.id when matched then update set v = s.v when not matched then insert *"
    sql(merge, "select 1")
    yield
    on.compact(full=True)
    yield
    on.overwrite_partitions(rows(40, dt="c"))
    yield


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("modes", [MERGE_ON_READ, {}], ids=["merge-on-read", "copy-on-write"])
def test_both_change_a_branch_in_turns(sql: Sql, lake: Lake, version: str, modes: dict[str, str]) -> None:
    t = made(lake, name := fresh(), **{"format-version": version}, **modes)
    t.append(rows(*range(10)))
    t.append(rows(*range(10, 20), dt="b"))
    sql(f"alter table {named(name)} create branch theirs", "select 1")
    t.create_branch("mine")
    for branch in ("theirs", "mine"):
        on = t.branch(branch)
        for _ in changed(sql, on, f"{named(name)}.branch_{branch}"):
            assert ours(on) == counted(sql(f"select * from {named(name)} version as of '{branch}'"))
            assert t.scan().count() == 20, "main stays as it is"
    assert ours(t) == counted(sql(f"select * from {named(name)}"))
    sql(f"call lake.system.fast_forward('`d.db`.{name}', 'main', 'mine')", "select 1")
    assert ours(lake.table(f"d.{name}")) == ours(t.branch("mine")) == counted(sql(f"select * from {named(name)}"))


def test_each_publishes_what_the_other_staged(sql: Sql, lake: Lake) -> None:
    t = made(lake, name := fresh(), **{"write.wap.enabled": "true"})
    t.append(rows(1))

    def stage(id: str, statement: str) -> None:
        sql(f"set spark.wap.id = {id}", statement, "reset spark.wap.id", "select 1")

    def same(*ids: int) -> None:
        assert sorted(t.scan(["id"]).to_arrow()["id"].to_pylist()) == list(ids)
        assert ours(t) == counted(sql(f"select * from {named(name)}"))

    stage("first", f"insert into {named(name)} values (2, 'theirs', 'b')")
    same(1)
    t.append(rows(3))
    assert t.publish("first").kind == "append"
    same(1, 2, 3)
    t.staged("second").append(rows(4, dt="c"))
    same(1, 2, 3)
    sql(f"insert into {named(name)} values (5, 'theirs', 'a')", "select 1")
    sql(f"call lake.system.publish_changes('`d.db`.{name}', 'second')", "select 1")
    same(1, 2, 3, 4, 5)
    with pytest.raises(Conflict, match="published already"):
        t.publish("second")
    # Overwrites of partitions that nobody changed meanwhile.
    staged = t.staged("third").overwrite_partitions(rows(6, dt="c"))
    t.append(rows(7))
    sql(f"call lake.system.cherrypick_snapshot('`d.db`.{name}', {staged.id})", "select 1")
    same(1, 2, 3, 5, 6, 7)
    sql("set spark.sql.sources.partitionOverwriteMode = dynamic", "select 1")
    stage("fourth", f"insert overwrite {named(name)} values (8, 'theirs', 'b')")
    t.append(rows(9, dt="c"))
    t.publish("fourth")
    same(1, 3, 5, 6, 7, 8, 9)
    sql("set spark.sql.sources.partitionOverwriteMode = static", "select 1")
