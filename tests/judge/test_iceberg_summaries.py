"""What snapshots say of themselves: the same changes by us and by Iceberg's own runtime on Spark have the same figures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Lake
from lakeformat.table import Table
from tests import doors

from .conftest import Sql
from .test_iceberg_deletes import MERGE_ON_READ, SCHEMA, fresh, named, rows

COPY_ON_WRITE = dict.fromkeys(MERGE_ON_READ, "copy-on-write")
# Of the engine, of the writer's own; and how many bytes and manifests it makes of the same rows.
OTHERS = ("spark.", "app-", "engine-", "iceberg-version", "lakeformat.", "manifests-", "entries-processed")


def source(*found: tuple[int, str]) -> pa.Table:
    return pa.table(
        {"id": [i for i, _ in found], "v": ["s"] * len(found), "dt": [dt for _, dt in found]}, schema=SCHEMA
    )


def merged(t: Table) -> None:
    (
        t.merge_into(source((1, "a"), (2, "a"), (100, "c")), "t.id = s.id")
        .when_matched("t.id = 2").delete().when_matched().update_all().when_not_matched().insert_all().merge()
    )  # fmt: skip


MERGED = (
    "merge into {t} t using (select * from values (1, 's', 'a'), (2, 's', 'a'), (100, 's', 'c') as s(id, v, dt)) s "
    "on t.id = s.id when matched and t.id = 2 then delete when matched then update set * when not matched then insert *"
)
STEPS: tuple[tuple[str, Callable[[Table], object], str], ...] = (
    ("append", lambda t: t.append(pa.concat_tables([rows(range(10), "a"), rows(range(10, 20), "b")])),
     "insert into {t} select id, 'v', if(id < 10, 'a', 'b') from range(0, 20, 1, 1)"),
    ("append", lambda t: t.append(rows(range(20, 30), "a")), "insert into {t} select id, 'v', 'a' from range(20, 30, 1, 1)"),
    ("delete", lambda t: t.delete("id in (3, 13)"), "delete from {t} where id in (3, 13)"),
    ("update", lambda t: t.update({"v": "'u'"}, where="id in (4, 24)"), "update {t} set v = 'u' where id in (4, 24)"),
    ("merge", merged, MERGED),
    ("delete partition", lambda t: t.delete("dt = 'b'"), "delete from {t} where dt = 'b'"),
    ("append", lambda t: t.append(rows(range(40, 45), "d")), "insert into {t} select id, 'v', 'd' from range(40, 45, 1, 1)"),
    ("overwrite", lambda t: t.overwrite_partitions(rows(range(50, 55), "d")),
     "insert overwrite {t} select id, 'v', 'd' from range(50, 55, 1, 1)"),
    ("append", lambda t: t.append(rows(range(60, 70), "a")), "insert into {t} select id, 'v', 'a' from range(60, 70, 1, 1)"),
    ("compact", lambda t: t.compact(full=True, where="dt = 'a'"),
     "call lake.system.rewrite_data_files(table => '{name}', where => 'dt = \"a\"', options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"),
    ("truncate", lambda t: t.truncate(), "delete from {t}"),
)  # fmt: skip


def told(found: dict[str, str]) -> dict[str, str]:
    """The figures of a summary; of bytes only that there are some."""
    shown = {}
    for name, value in found.items():
        if not name.startswith(OTHERS):
            some = "some" if name.endswith("-files-size") and value != "0" else value
            shown[name] = re.sub(r"-files-size=\d+", "-files-size=some", some)
    return shown


@pytest.mark.parametrize("kind", ["copies", "places", "vectors"])
def test_summaries_are_javas(sql: Sql, lake: Lake, kind: str) -> None:
    properties = {"format-version": "3" if kind == "vectors" else "2", "write.summary.partition-limit": "1"} | (
        COPY_ON_WRITE if kind == "copies" else MERGE_ON_READ
    )
    t = lake.create_table(f"d.{fresh()}", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    theirs = fresh()
    for _, ours, _ in STEPS:
        ours(t)
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in properties.items())
    made = sql(
        f"create table {named(theirs)} (id bigint, v string, dt string) using iceberg partitioned by (dt) tblproperties ({listed})",
        "set spark.sql.sources.partitionOverwriteMode = dynamic",
        *(statement.format(t=named(theirs), name=f"`d.db`.{theirs}") for _, _, statement in STEPS),
        f"select to_json(summary), operation from {named(theirs)}.snapshots order by committed_at",
    )
    found = [dict(snapshot) for snapshot in t.inspect.snapshots()["summary"].to_pylist()]
    for step, summary, (text, operation) in zip(STEPS, found, made, strict=False):
        if kind == "places" and step[0] == "compact":
            break  # What Java finds useless then it removes in a commit after that, of which we make one.
        assert told(summary) == told(json.loads(text)) | {"operation": operation}, step[0]
    assert kind == "places" or len(found) == len(made) == len(STEPS)


@pytest.mark.parametrize("version", ["2", "3"])
def test_statistics_files_are_those_of_iceberg(sql: Sql, lake: Lake, version: str) -> None:
    """Java goes on with our figures of partitions; its sketches and figures of the same snapshot are ours."""
    properties = {**MERGE_ON_READ, "format-version": version}
    ours = lake.create_table(f"d.{fresh()}", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    name = named(ours.name.removeprefix("d."))
    ours.append(pa.concat_tables([rows(range(40), "a"), rows(range(20, 30), "b")]))
    ours.delete("id in (3, 25)")
    ours.compute_partition_stats()
    ours.compute_table_stats()
    sql(f"insert into {name} select id, 'w', 'a' from range(100, 110, 1, 1)")
    ((theirs,),) = sql(f"call lake.system.compute_partition_stats(table => '{name.removeprefix('lake.')}')")
    ((sketches,),) = sql(f"call lake.system.compute_table_stats(table => '{name.removeprefix('lake.')}')")
    figures = pq.read_table(theirs.removeprefix("file:"))
    noted = {
        row["column"]: row["distinct_values"]
        for row in ours.inspect.statistics().to_pylist()
        if row["path"] == sketches
    }
    assert noted == {"id": 48, "v": 2, "dt": 2}
    own = pq.read_table(ours.compute_partition_stats().removeprefix("file://"))
    assert own.schema.names == figures.schema.names
    by_partition = [sorted(table.to_pylist(), key=lambda row: row["partition"]["dt"]) for table in (own, figures)]
    assert by_partition[0] == by_partition[1]
    own_sketches = ours.compute_table_stats()
    assert doors.store(ours).read(own_sketches)[:4] == b"PFA1"
    again = {
        row["column"]: row["distinct_values"]
        for row in ours.inspect.statistics().to_pylist()
        if row["path"] == own_sketches
    }
    assert again == noted
    assert sql(f"select count(*) from {name}") == [[57]]
