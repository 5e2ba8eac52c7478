"""Golden tables: small tables of Iceberg's Java runtime in `tests/golden/iceberg`, with the rows that it reads from them.

`python -m tests.judge.golden_iceberg` (from the root of the repository) makes them anew, each packed with `expected.json`, which also
tells the folder that it was made in: the table's files name each other by that.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from .peers import Conversation

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "iceberg"
ENGINE = "Apache Iceberg 1.10.2 (iceberg-spark-runtime-3.5_2.12)"
COLUMNS = "id bigint, k string, ts timestamp_ntz, n decimal(9, 2), st struct<a: int, b: string>, li array<int>"
ROWS = (
    "select id, concat('k', id) k, timestamp_ntz'2024-01-01' + make_interval(0, 0, 0, id) ts, cast(id / 4 as decimal(9, 2)) n, "
    "if(id % 3 = 0, null, named_struct('a', int(id), 'b', 'b')) st, array(int(id), null) li from range({}, {}, 1, 1)"
)
MERGE_ON_READ = (
    "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read'"
)
SMALL = "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '1'"
Step = str | dict[str, Any]


def insert(start: int, end: int) -> str:
    return f"insert into {{}} {ROWS.format(start, end)}"


def create(version: int, by: str, properties: str = MERGE_ON_READ) -> str:
    return (
        f"create table {{}} ({COLUMNS}) using iceberg {f'partitioned by ({by})' if by else ''} "
        f"tblproperties ('format-version' = '{version}', {properties}, {SMALL})"
    )


TABLES: dict[str, tuple[Step, ...]] = {
    "v1": (
        create(1, "bucket(2, id)", "'write.delete.mode' = 'copy-on-write'"),
        insert(0, 6),
        "delete from {} where id = 2",
        "alter table {} add column extra string",
        "alter table {} rename column k to key",
        "insert into {} values (100, 'x', null, null, null, null, 'more')",
    ),
    "v2_positions": (
        create(2, "days(ts)"),
        insert(0, 6),
        insert(6, 9),
        "delete from {} where id in (1, 7)",
        "update {} set n = -1 where id = 4",
    ),
    "v2_keys": (
        create(2, ""),
        insert(0, 6),
        {"verb": "delete_keys", "name": "a", "rows": [{"k": "k1"}, {"k": "k4"}]},
        "insert into {} values (100, 'k1', null, null, null, null)",
        "delete from {} where id = 5",
    ),
    "v2_keys_by_partition": (
        create(2, "k"),
        "insert into {} values (1, 'a', null, null, null, null), (2, 'b', null, null, null, null)",
        {"verb": "delete_keys", "name": "a", "rows": [{"k": "a"}], "partition": ["a"]},
        {"verb": "delete_keys", "name": "b", "rows": [{"k": "b"}], "partition": ["a"]},  # Of no row of its partition.
    ),
    "v2_evolved": (
        create(2, "truncate(1, k)"),
        insert(0, 4),
        "alter table {} drop partition field truncate(1, k)",
        "alter table {} add partition field days(ts)",
        "alter table {} alter column n type decimal(12, 2)",
        "alter table {} alter column st.a type bigint",
        "alter table {} rename column st.b to c",
        "alter table {} add column st.d double",
        "alter table {} drop column li",
        "alter table {} add column li string first",
        "insert into {} values ('new', 50, 'k50', timestamp_ntz'2024-02-01', 123456.75, named_struct('a', bigint(1), 'c', 'c', 'd', 0.5))",
    ),
    "v3_vectors": (
        create(3, "days(ts)"),
        insert(0, 6),
        "delete from {} where id in (1, 2)",
        "delete from {} where id = 4",
        insert(6, 8),
    ),
    "v3_defaults": (
        create(3, ""),
        insert(0, 2),
        {"verb": "add_default", "column": "d", "value": 5},
        "insert into {} values (100, 'x', null, null, null, null, 6)",
    ),
}  # fmt: skip


def main() -> None:
    """Write every table and its expected rows."""
    spark = Conversation("iceberg")
    shutil.rmtree(GOLDEN, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="golden-") as warehouse:
        for name, steps in TABLES.items():
            expected = make(spark, warehouse, name, steps)
            GOLDEN.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(GOLDEN / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
                folder = Path(warehouse) / "g" / name
                for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")):
                    packed.write(path, path.relative_to(folder))
                packed.writestr("expected.json", json.dumps(expected))
    spark.close()


def make(spark: Conversation, warehouse: str, name: str, steps: tuple[Step, ...]) -> dict:
    """Have the runtime make the table; the document that says what it reads from it."""
    table = f"lake.g.{name}"

    def sql(statement: str) -> dict:
        return spark.ask(verb="run", warehouse=warehouse, statements=[statement.replace("{}", table)])

    for step in steps:
        if isinstance(step, str):
            sql(step)
        else:
            spark.ask(warehouse=warehouse, table=table, **step)
    snapshots = [row[0] for row in sql("select snapshot_id from {}.snapshots order by committed_at")["rows"]]
    return {
        "engine": ENGINE,
        "location": f"{warehouse}/g/{name}",
        "latest": sql("select * from {}"),
        "snapshots": {str(id): sql(f"select * from {{}} version as of {id}") for id in snapshots},
        "lineage": sql("select id, _row_id, _last_updated_sequence_number from {}") if name.startswith("v3") else None,
    }


if __name__ == "__main__":
    main()
