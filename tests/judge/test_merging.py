"""MERGE INTO as Iceberg's own runtime on Spark does it: the same random merges there and here, on tables that both made, give
the same rows; both read each other's results, and what the delta writer wrote."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake
from lakeformat.table import Table
from tests.contract.merging import Case, random_case

from .conftest import Sql
from .peers import PeerRefused
from .test_iceberg import counted, ours, place

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("v", pa.int64()), ("dt", pa.string())])
SOURCE = pa.schema([*SCHEMA, ("op", pa.string())])
NUMBERS = itertools.count()
GROUPS = ("when_matched", "when_not_matched", "when_not_matched_by_source")  # The order that Spark's grammar wants.


def literal(value: Any) -> str:
    return "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def select(rows: list[dict], schema: pa.Schema) -> str:
    types = {"int64": "bigint", "string": "string"}
    columns = ", ".join(f"cast({f.name} as {types[str(f.type)]}) {f.name}" for f in schema)
    given = rows or [dict.fromkeys(schema.names)]
    values = ", ".join(f"({', '.join(literal(row[name]) for name in schema.names)})" for row in given)
    return f"select {columns} from values {values} as x({', '.join(schema.names)}) where {'true' if rows else 'false'}"


def statement(case: Case, target: str) -> str:
    """The merge in Spark's words."""
    words = [f"merge into {target} t using ({select(case.source, SOURCE)}) s on {case.on.text}"]
    for group in GROUPS:
        for clause in (c for c in case.clauses if c.group == group):
            when = group.replace("_", " ") + (f" and {clause.condition.text}" if clause.condition else "")
            if clause.act.endswith("_all"):
                then = "update set *" if clause.act == "update_all" else "insert *"
            elif clause.act == "delete":
                then = "delete"
            elif clause.act == "update":
                then = "update set " + ", ".join(f"{name} = {e.text}" for name, e in clause.values.items())
            else:
                names, values = clause.values.keys(), (e.text for e in clause.values.values())
                then = f"insert ({', '.join(names)}) values ({', '.join(values)})"
            words.append(f"{when} then {then}")
    return " ".join(words)


def merge(table: Table, case: Case, spark: Any = None) -> None:
    source = pa.Table.from_pylist(case.source, SOURCE)
    chain = table.merge_into(spark.createDataFrame(source) if spark else source, on=case.on.text)
    for clause in case.clauses:
        when = getattr(chain, clause.group)(*([clause.condition.text] if clause.condition else []))
        given = [{name: e.text for name, e in clause.values.items()}] if clause.values else []
        chain = getattr(when, clause.act)(*given)
    chain.merge()


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Any:
    """Where a merge runs: here, or on today's Spark."""
    return request.getfixturevalue("spark") if request.param == "Spark" else None


@pytest.mark.parametrize("session", ["Arrow", "Spark"], indirect=True)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_random_merges_are_those_of_spark(engines: dict, sql: Sql, lake: Lake, mode: str, session: Any) -> None:
    rng = random.Random(f"{mode} 7")
    properties = {"write.merge.mode": mode}
    done = mistakes = 0
    while done < 8 or not mistakes:
        case, partitions = random_case(rng), rng.choice([[], ["dt"]])
        mine, theirs = f"m{next(NUMBERS)}", f"m{next(NUMBERS)}"
        table = lake.create_table(f"d.{mine}", SCHEMA, format="iceberg", partition_by=partitions, properties=properties)
        for part in case.written:
            table.append(pa.Table.from_pylist(part, SCHEMA))
        spark_table = f"lake.`d.db`.{theirs}"
        by = "partitioned by (dt)" if partitions else ""
        sql(
            f"create table {spark_table} (id bigint, k string, v bigint, dt string) using iceberg {by} "
            f"tblproperties ('format-version' = '2', 'write.merge.mode' = '{mode}')",
            *(f"insert into {spark_table} {select(part, SCHEMA)}" for part in case.written),
            "select 1",
        )
        try:
            sql(statement(case, spark_table), "select 1")
        except PeerRefused:
            mistakes += 1
            with pytest.raises(InvalidInput, match="more than one row of the source"):
                merge(table, case, session)
            continue
        merge(table, case, session)
        done += 1
        expected = ours(table)
        assert counted(sql(f"select * from {spark_table}")) == expected, case
        assert counted(sql(f"select * from lake.`d.db`.{mine}")) == expected, case
        assert ours(lake.table(f"d.{theirs}")) == expected, case
        if table.current_snapshot() is not None:
            assert counted(engines["duckdb"].ask(verb="read", **place(table))["rows"]) == expected, case


def test_others_read_upserts_and_streams(engines: dict, sql: Sql, lake: Lake) -> None:
    name = f"m{next(NUMBERS)}"
    table = lake.create_table(f"d.{name}", SCHEMA, format="iceberg", partition_by=["dt"], primary_key=["id", "dt"])
    rng = random.Random(5)
    with table.delta_writer("cdc", upsert=True, buffer_bytes=1) as writer:
        for checkpoint in range(4):
            for _ in range(3):
                rows = [
                    {"id": rng.randrange(9), "k": "x", "v": rng.randrange(99), "dt": rng.choice("ab"), "rowkind": kind}
                    for kind in rng.choices(["+I", "+U", "-D"], k=6)
                ]
                writer.write(pa.Table.from_pylist(rows, pa.schema([*SCHEMA, ("rowkind", pa.string())])))
            writer.checkpoint(checkpoint)
            assert counted(sql(f"select * from lake.`d.db`.{name}")) == ours(table), checkpoint
    told = sql(f"select content, count(*) from lake.`d.db`.{name}.delete_files group by content order by content")
    assert [row[0] for row in told] == [1, 2]
    table.upsert(pa.table({"id": [1, 77], "k": ["up", "up"], "v": [1, 2], "dt": ["a", "b"]}))
    expected = ours(table)
    assert counted(sql(f"select * from lake.`d.db`.{name}")) == expected
    table.compact(full=True)
    assert ours(table) == expected
    assert counted(engines["pyiceberg"].ask(verb="read", **place(table))["rows"]) == expected
    assert counted(engines["duckdb"].ask(verb="read", **place(table))["rows"]) == expected
