"""PostgreSQL into tables of both formats, with the real server: every transaction once, whatever fails."""

import datetime
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from functools import partial
from statistics import mode
from threading import Event, Timer

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, NotFound, SourceError, UnsupportedFeature
from lakeformat.cdc import Postgres, lag_seconds, run, sync_database, sync_table
from lakeformat.cli.app import run as run_command
from lakeformat.storage.memory import MemoryFiles
from tests.cdc.each_call import STEP, World, every_call_fails_once
from tests.cdc.following import (
    IS_LONG,
    ROUNDS,
    WORKLOADS,
    NthFetchFails,
    OneTable,
    RaisesFor,
    a_library_stops_one_table,
    a_server_crashes_within_a_sync,
    a_sync_goes_on_after_its_connections_drop,
    a_sync_of_all_takes_up_tables,
    a_sync_up_to_now_goes_on_after_its_connections_drop,
    changelog_properties,
    every_change_comes_once,
    postgres_workload,
    replay,
    the_rows_of_a_filter_are_followed,
    two_syncs_at_once,
    wide_rows_are_read_in_chunks_by_bytes,
)
from tests.cdc.turmoil import OnPostgres, Turmoil
from tests.conftest import MEMORY, running_postgres
from tests.simulation.failing import NthCallFails

FORMATS = pytest.mark.parametrize("format", ["paimon", "iceberg"])


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "warehouse")


def rows_of(table):
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def rows_in(server, table):
    cursor = server.execute(f"SELECT * FROM {table} ORDER BY id")
    names = [column.name for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@FORMATS
def test_a_table_is_what_the_source_is_whatever_its_types(server, source, lake, format):
    server.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    server.execute("CREATE DOMAIN price AS numeric(10, 2)")
    server.execute(
        "CREATE TABLE kinds (id int, part text, a smallint, b bigint, c real, d double precision, e price, f boolean, g bytea, h date, "
        "i time(3), j timestamp(3), k timestamptz, l varchar(9), m char(3), n mood, o jsonb, p int[], q numeric, r text, PRIMARY KEY (id, part))"
    )
    server.execute("COMMENT ON TABLE kinds IS 'all of them'; COMMENT ON COLUMN kinds.r IS 'a text'")
    full = (
        "'p', -7, 9000000000, 1.5, 0.1, 12.34, true, '\\x00ff10', '0001-12-31', '23:59:59.123', '1969-12-31 23:59:59.999', "
        "'2024-02-29 12:00:00.123456+05:30', 'ä,\"', 'ab', 'glad', '{\"a\": [1]}', '{1,NULL}', -0.000000000000000001, ''"
    )
    nulls = "''" + ", NULL" * 18
    for start in (0, 10):  # By the snapshot, then by the log.
        server.execute(f"INSERT INTO kinds VALUES ({start + 1}, {full}), ({start + 2}, {nulls})")
        report = sync_table(source, "public.kinds", lake, "d.kinds", format, primary_key=["id", "part"])
    assert (report.rows, dict(report.rows_by_kind), report.snapshot_rows) == (2, {"+I": 2}, 0)
    table = lake.table("d.kinds")
    found = rows_of(table)
    assert [row["id"] for row in found] == [1, 2, 11, 12]
    assert {**found[0], "id": 11} == found[2]
    assert {**found[1], "id": 12} == found[3]
    assert found[1] == {**dict.fromkeys(found[1]), "id": 2, "part": ""}
    told = found[0]
    assert told["k"] == datetime.datetime(2024, 2, 29, 6, 30, 0, 123456, datetime.UTC)
    assert told["j"] == datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)
    assert (told["i"], told["h"]) == (datetime.time(23, 59, 59, 123000), datetime.date(1, 12, 31))
    assert [told[name] for name in "abcdfg"] == [-7, 9000000000, 1.5, 0.1, True, b"\x00\xff\x10"]
    assert (told["e"], told["q"]) == (Decimal("12.34"), Decimal("-0.000000000000000001"))
    assert [told[name] for name in "lmnopr"] == ['ä,"', "ab ", "glad", '{"a": [1]}', "{1,NULL}", ""]
    assert (table.schema.primary_key, table.schema.comment) == (("id", "part"), "all of them")
    assert table.schema.field("r").comment == "a text"


@FORMATS
def test_a_sync_goes_on_where_the_table_stands(server, source, lake, format):
    """Also after a rollback of the table, as long as the slot holds the changes back; each transaction is in one snapshot."""
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    server.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 25) i")
    told = []
    sync_table(source, "t", lake, "d.t", format, batch_rows=10, max_rows=15, on_progress=told.append)
    assert [report.snapshot_rows for report in told] == [10, 20]
    assert re.fullmatch(r"d\.t: 20 rows of the snapshot, 0 changes, [\d,]+ rows/s", str(told[1])), str(told[1])
    assert told[1].rows_per_second == 20 / told[1].seconds
    if format == "iceberg":
        assert lake.table("d.t").inspect.delete_files().num_rows == 0, "new rows replace none"
    server.execute("UPDATE t SET v = 1 WHERE id IN (3, 24)")  # Of keys that were read, and that were not.
    report = sync_table(source, "t", lake, "d.t", format, batch_rows=10)
    assert (report.snapshot_rows, dict(report.rows_by_kind)) == (5, {"+U": 1})
    table = lake.table("d.t")
    assert rows_of(table) == rows_in(server, "t")
    before = table.current_snapshot()
    assert sync_table(source, "t", lake, "d.t", format).snapshots == ()
    server.execute("BEGIN; UPDATE t SET v = 2; DELETE FROM t WHERE id > 20; COMMIT")
    server.execute("UPDATE t SET id = 100 WHERE id = 1")
    report = sync_table(source, "t", lake, "d.t", format, batch_rows=10)
    assert dict(report.rows_by_kind) == {"+U": 25, "-D": 6, "+I": 1}
    assert len(report.snapshots) == 2, "one of each transaction, as the first is a batch and more"
    assert rows_of(table) == rows_in(server, "t")
    table.rollback_to(before.id)
    with pytest.raises(NotFound, match=r"rolled back.*restart=True"):
        sync_table(source, "t", lake, "d.t", format)
    told = {"by": "a test"}
    for expected in (20, 0):  # A restart with a name happens once.
        report = sync_table(source, "t", lake, "d.t", format, restart="again", snapshot_properties=told)
        assert (report.snapshot_rows, report.is_complete) == (expected, True)
    assert lake.table("d.t").current_snapshot().properties["by"] == "a test"
    assert rows_of(table) == rows_in(server, "t")


def test_connections_read_a_snapshot_together_in_one_view(server, lake):
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 25) i"
    )
    source = Postgres(server.dsn, slot=server.info.dbname, readers=3)
    with source.view(source.describe("t")) as view:
        chunks = view.chunks(("3",), 4)
        read = [next(chunks)]
        server.execute("UPDATE t SET v = 1 WHERE id > 6; DELETE FROM t WHERE id = 20")
        read += chunks
    assert [chunk.upto for chunk in read] == [("7",), ("11",), ("15",), ("19",), ("23",), None]
    assert pa.concat_tables([chunk.rows for chunk in read]).to_pylist() == [{"id": i, "v": 0} for i in range(4, 26)]
    assert sync_table(source, "t", lake, "d.t", batch_rows=4, max_rows=8).snapshot_rows == 8
    server.execute("UPDATE t SET v = 2 WHERE id IN (1, 25)")
    report = sync_table(source, "t", lake, "d.t", batch_rows=4)
    assert (report.snapshot_rows, report.rows, report.is_complete) == (16, 1, True)
    assert rows_of(lake.table("d.t")) == rows_in(server, "t")
    source.close()
    with pytest.raises(InvalidInput, match="readers=0"):
        Postgres(server.dsn, readers=0)


def test_settings_of_the_database_neither_end_a_sync_nor_change_its_values(server, source, lake):
    server.execute("CREATE TABLE t (id int PRIMARY KEY, fee money, takes interval, part regclass)")
    value = "'1234.5', '1 mon 02:03', 'pg_catalog.pg_class'"
    for id, settings in [(1, {}), (2, {"IntervalStyle": "sql_standard", "quote_all_identifiers": "on"})]:
        for name, setting in settings.items():
            server.execute(f"ALTER DATABASE {server.info.dbname} SET {name} = '{setting}'")
        server.execute(f"INSERT INTO t VALUES ({id}, {value})")
        sync_table(source, "t", lake, "d.t")
        source.close()
    rows = rows_of(lake.table("d.t"))
    assert {**rows[0], "id": 2} == rows[1]
    assert (rows[0]["fee"], rows[0]["takes"], rows[0]["part"]) == ("$1,234.50", "P1MT2H3M", "pg_class")

    server.execute(f"ALTER DATABASE {server.info.dbname} SET statement_timeout = '300ms'")
    with closing(psycopg.connect(server.dsn)) as other:
        other.execute("SET statement_timeout = 0; LOCK TABLE t")
        released = Timer(1, other.rollback)
        released.start()
        assert sync_table(source, "t", lake, "d.u").snapshot_rows == 2
        released.join()


def test_a_table_that_was_rolled_back_to_before_what_is_acknowledged_goes_on_from_there(server, source, lake):
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE other (id int PRIMARY KEY)")
    server.execute("INSERT INTO t VALUES (1, 0)")
    sync_database(source, lake, "d")  # `other` has no change and so holds the slot back.
    table = lake.table("d.t")
    before = table.current_snapshot()
    server.execute("UPDATE t SET v = 1")
    assert sync_database(source, lake, "d")["public.t"].rows == 1
    table.rollback_to(before.id)
    assert rows_of(table) == [{"id": 1, "v": 0}]
    assert sync_database(source, lake, "d")["public.t"].rows == 1
    assert rows_of(table) == [{"id": 1, "v": 1}]


@FORMATS
def test_columns_and_whole_tables_that_change_are_followed(server, source, lake, format):
    server.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(3), c text, d text)")
    server.execute(
        "ALTER TABLE t ALTER c SET STORAGE EXTERNAL; INSERT INTO t VALUES (1, 1, 'x', repeat('c', 5000), 'd')"
    )
    sync_table(source, "t", lake, "d.t", format)
    server.execute("ALTER TABLE t ALTER a TYPE bigint, ALTER b TYPE varchar(9), ADD e date, DROP d")
    server.execute("INSERT INTO t VALUES (2, 9000000000, 'xxxxxx', NULL, '2024-01-01')")
    server.execute("UPDATE t SET a = 2 WHERE id = 1")  # The log leaves `c` out, as it is long and did not change.
    server.execute("UPDATE t SET id = 3 WHERE id = 1; UPDATE t SET id = 4 WHERE id = 3")
    server.execute("ALTER TABLE t RENAME e TO f; INSERT INTO t VALUES (5, 0, '', '', '2024-01-02')")
    report = sync_table(source, "t", lake, "d.t", format)
    assert [
        schema_change.split()[0] for schema_change in report.schema_changes if "b" not in schema_change.split()[1:]
    ] == [
        "ChangeType",
        "AddColumn",
        "AddColumn",
    ]
    table = lake.table("d.t")
    found = rows_of(table)
    assert [{k: v for k, v in row.items() if k not in "def"} for row in found] == [
        {k: v for k, v in row.items() if k != "f"} for row in rows_in(server, "t")
    ]
    assert [(row["d"], row["e"], row["f"]) for row in found] == [
        (None, None, datetime.date(2024, 1, 1)),
        (None, None, None),
        (None, None, datetime.date(2024, 1, 2)),
    ]
    server.execute("BEGIN; INSERT INTO t(id) VALUES (6); TRUNCATE t; INSERT INTO t(id) VALUES (7); COMMIT")
    report = sync_table(source, "t", lake, "d.t", format)
    assert (dict(report.rows_by_kind), len(report.snapshots)) == ({"-D": 3, "+I": 1}, 1)
    assert [row["id"] for row in rows_of(table)] == [7]
    server.execute("ALTER TABLE t ALTER a TYPE text; INSERT INTO t VALUES (8, 'no number')")
    with pytest.raises(UnsupportedFeature, match=r"d\.t cannot follow a change of public\.t"):
        sync_table(source, "t", lake, "d.t", format)
    assert [row["id"] for row in rows_of(table)] == [7]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_what_changes_and_changes_back_between_two_syncs_is_followed(server, source, lake, identity):
    """Names, the key and a partition that are the old ones again, though rows in the log have others."""
    server.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b text, c text NOT NULL)")
    server.execute("CREATE TABLE p (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
    server.execute("CREATE TABLE part PARTITION OF p FOR VALUES FROM (0) TO (9)")
    server.execute("INSERT INTO t VALUES (1, 1, 'b1', 'c1'), (2, 2, 'b2', 'c2'); INSERT INTO p VALUES (1, 1)")
    for table in "t", "part", "p":
        server.execute(f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
    swap = ("ALTER TABLE t RENAME b TO d", "ALTER TABLE t RENAME c TO b", "ALTER TABLE t RENAME d TO c")
    sync_database(source, lake, "d", including=r"public\.[tp]")
    for statements in (
        (*swap, "UPDATE t SET b = 'swapped' WHERE id = 1", *swap, "UPDATE t SET a = 5 WHERE id = 2"),
        ("ALTER TABLE t RENAME b TO d", "INSERT INTO t VALUES (3, 3, 'b3', 'c3')", "ALTER TABLE t RENAME d TO b"),
        ("ALTER TABLE t RENAME c TO d", "INSERT INTO t VALUES (4, 4, 'b4', 'c4')", "ALTER TABLE t RENAME d TO c"),
        (
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, c)",
            "INSERT INTO t VALUES (1, 9, 'b', 'other'); DELETE FROM t WHERE a = 9",
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)",
        ),
        (
            "ALTER TABLE p DETACH PARTITION part",
            "INSERT INTO part VALUES (2, 2)",
            "ALTER TABLE p ATTACH PARTITION part FOR VALUES FROM (0) TO (9)",
        ),
        (),  # Reads the log of the one before again.
    ):
        server.execute("UPDATE t SET a = a + 1")
        for statement in statements:
            server.execute(statement)
        reports = sync_database(source, lake, "d", including=r"public\.[tp]")
        assert [report.error for report in reports.values()] == [None, None]
        for table in "tp":
            rows = [{**row, "d": None} for row in rows_in(server, table)]  # The other name stays as a column.
            assert [{**row, "d": None} for row in rows_of(lake.table(f"d.{table}"))] == rows, statements


@pytest.mark.parametrize("asked", ["FROM pg_attribute WHERE attrelid", "FROM pg_index", "pg_partition_tree", "contype"])
def test_rows_that_change_while_their_table_is_described_are_those_of_the_source(server, source, lake, asked):
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 3) i")
    sync_table(source, "t", lake, "d.t")
    rows, alterations = source._rows, iter(["ALTER TABLE t ALTER v TYPE int USING v + 10"])

    def altered(query, *values):
        found = rows(query, *values)
        if asked in str(query):
            for statement in alterations:
                server.execute(statement)
        return found

    source._rows = altered
    for id in (4, 5):  # A commit records what the table was when it was described.
        server.execute(f"INSERT INTO t VALUES ({id}, {id})")
        sync_table(source, "t", lake, "d.t")
    assert next(alterations, None) is None
    assert rows_of(lake.table("d.t")) == rows_in(server, "t")


@FORMATS
def test_rows_that_change_without_the_log_are_those_of_the_source(server, source, lake, format):
    """By USING, by types, by columns that change their names, by partitions: the log has none of it, and what it has beside it comes once."""
    server.execute("CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TYPE pair AS (a int, b int)")
    values = "'{sad,glad}', 7, (1, 2)::pair"
    columns = "id int PRIMARY KEY, v int, w text, moods mood[], readded int, p pair"
    server.execute(
        f"CREATE TABLE t ({columns}); INSERT INTO t SELECT i, i, 'w' || i, {values} FROM generate_series(1, 9) i"
    )
    parts = {"old": (1, 10), "emptied": (10, 20), "gone": (20, 30)}
    server.execute("CREATE TABLE p (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
    for name, (low, high) in parts.items():
        server.execute(f"CREATE TABLE {name} PARTITION OF p FOR VALUES FROM ({low}) TO ({high})")
    server.execute("INSERT INTO p SELECT i, i FROM generate_series(1, 29) i; ALTER TABLE t REPLICA IDENTITY FULL")
    properties = {"changelog-producer": "input", "bucket": "1"} if format == "paimon" else {}

    def sync():
        found = sync_database(source, lake, "d", format, including=r"public\.[tp]", properties=properties, batch_rows=4)
        assert [report.error for report in found.values()] == [None, None]
        for name in "tp":
            names = [row for row in rows_in(server, name)[0] if name == "p" or row not in ("moods", "p")]
            assert [{name: row[name] for name in names} for row in rows_of(lake.table(f"d.{name}"))] == [
                {name: row[name] for name in names} for row in rows_in(server, name)
            ]
        return found["public.p"].filled_rows, found["public.t"].filled_rows

    assert sync() == (0, 0)
    server.execute("UPDATE t SET v = -v WHERE id = 1; ALTER TABLE t ALTER v TYPE bigint USING v * 10000000000")
    server.execute("UPDATE t SET v = 1 WHERE id = 2; DELETE FROM t WHERE id = 3; TRUNCATE emptied")
    assert sync() == (10, 9)
    server.execute("ALTER TABLE t ALTER id TYPE int USING id + 5; ALTER TABLE p DETACH PARTITION gone")
    assert sync() == (10, 5 + 5 + 3)  # Keys that are gone, that are new, and that have another row.
    server.execute("ALTER TABLE t RENAME w TO x; ALTER TABLE t RENAME moods TO w; ALTER TABLE t RENAME x TO moods")
    server.execute(
        "ALTER TABLE t DROP readded; ALTER TABLE t ADD readded int DEFAULT 9; ALTER TYPE pair ADD ATTRIBUTE c int"
    )
    server.execute("CREATE TABLE bare (LIKE p); INSERT INTO bare VALUES (100, 1)")
    server.execute(
        "ALTER TABLE p ATTACH PARTITION bare FOR VALUES FROM (100) TO (101); UPDATE p SET v = 2 WHERE id = 100"
    )
    assert sync() == (1, 8)
    assert {row["p"] for row in rows_of(lake.table("d.t"))} == {"(1,2,)"}
    server.execute(
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; CREATE TABLE made PARTITION OF p FOR VALUES FROM (200) TO (300)"
    )
    server.execute("INSERT INTO p VALUES (200, 1)")
    server.execute("VACUUM FULL t")
    assert sync() == (0, 8)
    assert {row["w"] for row in rows_of(lake.table("d.t"))} == {"{blue,glad}"}
    if format == "paimon":
        for name in "tp":
            replayed = replay(lake.table(f"d.{name}").changes(0).to_arrow().to_pylist(), ["id"])
            assert [replayed[key] for key in sorted(replayed)] == rows_of(lake.table(f"d.{name}"))


@FORMATS
def test_a_transaction_that_is_larger_than_a_batch_comes_in_parts_and_is_one_commit(server, source, lake, format):
    """Across parts: values that the log leaves out, rows that move to other keys, a column that is added and one that is emptied before."""
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, note text); ALTER TABLE t ALTER note SET STORAGE EXTERNAL"
    )
    server.execute("INSERT INTO t SELECT i, 0, repeat('n', 3000) FROM generate_series(1, 30) i")
    sync_table(source, "t", lake, "d.t", format, batch_rows=10)
    server.execute(
        "BEGIN; INSERT INTO t VALUES (99, 9, 'gone'); TRUNCATE t; INSERT INTO t SELECT i, 0, repeat('m', 3000) FROM generate_series(1, 40) i; "
        "UPDATE t SET v = 1; ALTER TABLE t ADD w int; UPDATE t SET id = id + 100, w = 7 WHERE id > 20; UPDATE t SET v = 2; "
        "DELETE FROM t WHERE id % 4 = 0; COMMIT"
    )
    table = source.describe("t")
    after = source.parse(lake.table("d.t").current_snapshot().properties["cdc.position"])
    parts = list(source.changes(after, source.position(), {table.name: table}, 10))
    assert len(parts) > 10
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert {part.position for part in parts} == {parts[-1].position}
    assert max(part.tables[table.name].rows.num_rows for part in parts if part.tables) <= 20
    report = sync_table(source, "t", lake, "d.t", format, batch_rows=10)
    assert rows_of(lake.table("d.t")) == rows_in(server, "t")
    assert dict(report.rows_by_kind) == {"-D": 30 + 20 + 10, "+I": 40 + 20, "+U": 40 + 40}
    recorded = [snapshot.properties for snapshot in lake.table("d.t").snapshots()]
    assert sum("cdc.committed-ms" in properties for properties in recorded) == 1


@pytest.mark.parametrize("readers", [1, 2])
def test_wide_rows_are_read_in_chunks_by_bytes(server, lake, readers, monkeypatch):
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    server.execute(
        "INSERT INTO t SELECT i, repeat('ab', CASE WHEN i % 2 = 1 THEN 1 ELSE 62500 END) FROM generate_series(0, 599) i"
    )
    source = Postgres(server.dsn, slot=server.info.dbname, readers=readers)
    wide_rows_are_read_in_chunks_by_bytes(source, "public.t", lake, "iceberg", 600, 125_000, monkeypatch)
    source.close()


def test_a_sync_goes_on_after_its_connections_drop(server, source, lake):
    server.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")

    def insert(number):
        server.execute(f"INSERT INTO a VALUES ({number}); INSERT INTO b VALUES ({number})")

    names = ["public.a", "public.b"]
    a_sync_goes_on_after_its_connections_drop((source, names), lake, partial(drop_connections, server), insert)


def test_a_sync_up_to_now_goes_on_after_its_connections_drop(server, source, lake, monkeypatch, caplog):
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int); ALTER TABLE t REPLICA IDENTITY FULL")
    a_sync_up_to_now_goes_on_after_its_connections_drop(
        source, "t", lake, partial(drop_connections, server), server.execute, monkeypatch, caplog
    )


@FORMATS
def test_a_column_of_a_type_that_cannot_be_followed_is_made_anew(server, source, lake, format):
    """Once it is dropped here, as the error says."""
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)")

    def sync(**how):
        return sync_table(source, "t", lake, "d.t", format, **how)

    sync()
    server.execute("ALTER TABLE t ALTER v TYPE text; INSERT INTO t VALUES (7, 'x')")
    with pytest.raises(UnsupportedFeature, match="drop the column here"):
        sync()
    lake.table("d.t").alter().drop_column("v").commit()
    sync()
    assert rows_of(lake.table("d.t")) == rows_in(server, "t")


def test_a_sync_of_all_goes_on_after_its_connections_drop_while_it_begins(server, source, lake, monkeypatch):
    """Before each of the calls that the source gets, but for the first: a database that cannot be reached is an error at once."""
    monkeypatch.setattr(run, "FIRST_DELAY", 0.01)
    server.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1); CREATE TABLE b (id int PRIMARY KEY)")
    for n in range(1, 9):
        dropping = NthFetchFails(source, n, drop=partial(drop_connections, server))
        reports = sync_database(dropping, lake, "d")
        assert dropping.made > n
        assert {name: report.error for name, report in reports.items()} == {"public.a": None, "public.b": None}
    assert rows_of(lake.table("d.a")) == rows_in(server, "a")


def test_a_slot_that_is_dropped_is_noticed_without_changes(server, source, lake):
    server.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    sync_table(source, "t", lake, "d.t")
    sync_table(source, "t", lake, "d.t")
    other, polls = Postgres(server.dsn, slot=server.info.dbname), iter(range(100))

    def stop():
        number = next(polls)
        if number == 5:
            other.drop()
        return number > 90

    with pytest.raises(NotFound, match=r"restart=True"):
        sync_table(source, "t", lake, "d.t", until="stopped", stop=stop, poll_seconds=0.05)
    other.close()
    assert sync_table(source, "t", lake, "d.t", restart=True).snapshot_rows == 1


def test_a_slot_that_was_dropped_is_not_made_anew_without_a_word(server, source, lake, tmp_path, capsys):
    """Neither by a sync of its table nor by one of all; `restart=True` takes them anew, from Python and the command line."""
    name = server.info.dbname
    server.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
    server.execute("CREATE TABLE b (id int PRIMARY KEY); INSERT INTO b VALUES (1)")
    slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
    command = ["--warehouse", str(tmp_path / "warehouse"), "--json"]
    cli = [*command, "cdc", server.dsn, r"public\..", "d", "--all", "--slot", name]
    sync_database(source, lake, "d")
    for restart in (
        lambda: sync_database(source, lake, "d", restart=True),
        lambda: sync_database(source, lake, "d", restart="once"),
        lambda: run_command([*cli, "--restart"]),
        lambda: run_command([*cli, "--restart", "--swap"]),
    ):
        server.execute(f"SELECT pg_drop_replication_slot('{name}'); INSERT INTO a SELECT max(id) + 1 FROM a")
        with pytest.raises(NotFound, match=r"does not exist.*restart=True"):
            sync_database(source, lake, "d")
        assert run_command(cli) == 2
        assert server.execute(slots, [name]).fetchone()[0] == 0
        restart()
        assert rows_of(lake.table("d.a")) == rows_in(server, "a")
        server.execute("INSERT INTO b SELECT max(id) + 1 FROM b")
        assert sync_database(source, lake, "d")["public.b"].rows == 1
    capsys.readouterr()
    for is_dropped in (True, False):
        assert run_command([*command, "slot", "drop", server.dsn, name]) == 0
        answer = {"slot": name, "dropped": is_dropped, "tables": ["public.a", "public.b"] if is_dropped else []}
        assert json.loads(capsys.readouterr().out) == answer
    assert server.execute(slots, [name]).fetchone()[0] == 0
    assert run_command([*command, "slot", "drop", "mysql://u@h/d"]) == 2
    assert "only PostgreSQL has replication slots" in capsys.readouterr().err


def test_a_slot_serves_the_tables_of_one_call(server, source, lake):
    """A further table is refused by the name of the table that the slot serves, unless the calls say that they share it."""
    for name in "abc":
        server.execute(f"CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (0)")
    sync_table(source, "a", lake, "d.a")
    for restart in (False, True):
        with pytest.raises(InvalidInput, match=r"serves public\.a: take another slot for public\.b"):
            sync_table(source, "b", lake, "d.b", restart=restart)
    with pytest.raises(InvalidInput, match=r"serves public\.a: take another slot for public\.b, public\.c"):
        sync_database(source, lake, "e", including=r"public\.[bc]")
    assert source.served() == ["public.a"]
    tables = {"public.a": "d.a", "public.b": "d.b", re.compile(r"public\.c"): "d.c"}
    for number in range(1, 5):
        for name in "abc"[:number]:
            key = re.compile(r"public\.c") if name == "c" else name
            sync_table(source, key, lake, f"d.{name}", slot_shared_with=tables)
            server.execute("".join(f"INSERT INTO {every} SELECT max(id) + 1 FROM {every};" for every in "abc"))
    before = server.execute("SELECT min(confirmed_flush_lsn) FROM pg_replication_slots").fetchone()
    for name in "abc":
        key = re.compile(r"public\.c") if name == "c" else name
        sync_table(source, key, lake, f"d.{name}", slot_shared_with=tables)
        assert [row["id"] for row in rows_of(lake.table(f"d.{name}"))] == [row["id"] for row in rows_in(server, name)]
    assert server.execute("SELECT min(confirmed_flush_lsn) FROM pg_replication_slots").fetchone() > before


def test_a_slot_keeps_what_a_table_lacks_that_cannot_be_followed_or_is_left_out(server, source, lake):
    server.execute("CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY)")
    server.execute("CREATE TABLE never (id int PRIMARY KEY, at point)")
    sync_database(source, lake, "d")
    server.execute("INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1); ALTER TABLE a ADD at point")
    for _ in range(2):
        reports = sync_database(source, lake, "d")
        assert (type(reports["public.a"].error), reports["public.b"].error) == (UnsupportedFeature, None)
        sync_database(source, lake, "d", excluding=r".*\.a")
    server.execute("ALTER TABLE a DROP at")
    assert (sync_database(source, lake, "d")["public.a"].rows, rows_of(lake.table("d.a"))) == (1, [{"id": 1, "v": 1}])
    before = server.execute("SELECT min(confirmed_flush_lsn) FROM pg_replication_slots").fetchone()
    server.execute("INSERT INTO b VALUES (2)")
    sync_database(source, lake, "d")
    assert server.execute("SELECT min(confirmed_flush_lsn) FROM pg_replication_slots").fetchone() > before


def test_a_sync_of_all_takes_up_tables(server, source, lake):
    def execute(*statements):
        for statement in statements:
            server.execute(statement)

    a_sync_of_all_takes_up_tables(
        source, lake, execute, ["public.t", "public.late"], r"public\.(t|late)", has_names=False
    )


def test_idle_tables_cost_one_query_together(server, lake):
    """A round of a sync that goes on asks as often for two tables as for twelve."""

    class Counting(Postgres):
        count = 0

        def _rows(self, query, *values):
            self.count += 1
            return super()._rows(query, *values)

    counts = []
    for first, end in ((0, 2), (2, 12)):
        server.execute("".join(f"CREATE TABLE t{number} (id int PRIMARY KEY);" for number in range(first, end)))
        source, rounds = Counting(server.dsn, slot=server.info.dbname), []

        def stop(source=source, rounds=rounds):
            rounds.append(source.count)
            return len(rounds) >= 40

        sync_database(source, lake, "d", until="stopped", stop=stop, poll_seconds=0.001)
        counts.append(mode(np.diff(rounds)[-20:].tolist()))  # Of most rounds: a keep-alive makes one dearer.
        source.close()
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_table_that_stops_does_not_hold_the_others_back(server, source, lake, is_shared):
    """The slot advances without it, and what it lacks is kept and read again for it alone; the report says how much."""
    server.execute("CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY, v text)")
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    broken, reports = RaisesFor(source, "public.a", SourceError("x")), {}

    def sync(of):
        if not is_shared:
            reports.update(sync_database(of, lake, "d", batch_rows=100))
            return
        for name, other in (("public.a", "public.b"), ("public.b", "public.a")):
            shared = {other: f"d.{other[-1]}"}
            with suppress(SourceError):
                reports[name] = sync_table(of, name, lake, f"d.{name[-1]}", slot_shared_with=shared, batch_rows=100)

    sync(source)
    sync(source)
    # A comparison opens a view, which fails.
    server.execute("INSERT INTO a VALUES (1, 1); ALTER TABLE a ALTER v TYPE bigint USING v + 1")
    positions = []
    for _ in range(4):
        server.execute("INSERT INTO b SELECT coalesce(max(id), 0) + 1, repeat('x', 100000) FROM b")
        sync(broken)
        positions.append(source.parse(server.execute(confirmed, [server.info.dbname]).fetchone()[0]))
        assert reports["public.b"].rows == 1
    assert positions == sorted(set(positions))
    assert server.execute(slots).fetchone() == (2,)
    if not is_shared:
        assert type(reports["public.a"].error) is SourceError
        assert reports["public.a"].kept_bytes > 1000
    for _ in range(2):
        sync(source)
        assert (rows_of(lake.table("d.a")), reports["public.a"].kept_bytes) == ([{"id": 1, "v": 2}], None)
        assert lake.table("d.b").scan().count() == 4
    assert server.execute(slots).fetchone() == (1,)
    server.execute("INSERT INTO a VALUES (2, 2)")
    sync(source)
    assert len(rows_of(lake.table("d.a"))) == 2
    sync(broken)
    source.drop()
    assert server.execute(slots).fetchone() == (0,)


def test_a_slot_that_lost_its_log_is_made_anew(server, source, lake):
    server.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    sync_table(source, "t", lake, "d.t")
    server.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    try:
        server.execute("SELECT pg_reload_conf()")
        for _ in range(20):
            server.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 20000000)); ")
            server.execute("SELECT pg_switch_wal()")
            server.execute("CHECKPOINT")
            slots = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s"
            if server.execute(slots, [server.info.dbname]).fetchone()[0] == "lost":
                break
        server.execute("INSERT INTO t VALUES (2)")
        with pytest.raises(NotFound, match=r"lost its log.*restart=True"):
            sync_table(source, "t", lake, "d.t")
        assert sync_table(source, "t", lake, "d.t", restart=True).snapshot_rows == 2
        server.execute("INSERT INTO t VALUES (3)")
        assert sync_table(source, "t", lake, "d.t").rows == 1
    finally:
        server.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        server.execute("SELECT pg_reload_conf()")


def test_a_library_stops_one_table(server, source, lake):
    server.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
    a_library_stops_one_table(source, ["public.a", "public.b"], lake)


@FORMATS
@pytest.mark.parametrize("seed", range(40))
def test_values_that_the_log_omits_follow_a_row_from_key_to_key(server, source, lake, format, seed):
    """Among few keys, so that a key is often freed and taken within a transaction; also while a snapshot is taken in several views."""
    draw = random.Random(seed)
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, note text); ALTER TABLE t ALTER note SET STORAGE EXTERNAL"
    )
    server.execute("INSERT INTO t SELECT i, 0, repeat('n' || i, 1000) FROM generate_series(1, 6) i")

    def statement(number):
        id, other = draw.sample(range(1, 9), 2)
        return draw.choice([
            f"DELETE FROM t WHERE id = {id}",
            f"DELETE FROM t WHERE id = {id}; UPDATE t SET id = {id} WHERE id = {other}",
            f"UPDATE t SET id = {id}, v = {number} WHERE id = {other} AND NOT EXISTS (SELECT 1 FROM t WHERE id = {id})",
            f"UPDATE t SET id = 99 WHERE id = {id}; UPDATE t SET id = {id} WHERE id = {other}; UPDATE t SET id = {other} WHERE id = 99",
            f"UPDATE t SET v = {number} WHERE id >= {id}",
            f"INSERT INTO t VALUES ({id}, {number}, repeat('s{number} ', 1000)) ON CONFLICT (id) DO UPDATE SET note = EXCLUDED.note",
            f"INSERT INTO t VALUES ({id}, {number}, NULL) ON CONFLICT (id) DO NOTHING",
        ])  # fmt: skip

    for round in range(25):
        limit = draw.choice([1, 2, 100])
        # Refused: a row that moves, without its values, from a part of an interrupted snapshot to another.
        with suppress(UnsupportedFeature):
            sync_table(source, "t", lake, "d.t", format, batch_rows=limit, max_rows=draw.choice([1, 3, None]))
        for number in range(draw.randint(1, 4)):
            body = "; ".join(statement(100 * round + 10 * number + i) for i in range(draw.randint(1, 5)))
            server.execute(f"BEGIN; {body}; COMMIT")
        if round % 5 == 0:
            try:
                sync_table(source, "t", lake, "d.t", format, batch_rows=limit)
            except UnsupportedFeature:
                sync_table(source, "t", lake, "d.t", format, restart=True)
            assert rows_of(lake.table("d.t")) == rows_in(server, "t"), f"seed {seed}, round {round}"


@FORMATS
def test_columns_are_computed_from_a_row_and_its_change(server, source, lake, format):
    server.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamp, name text)")
    server.execute("INSERT INTO t VALUES (1, '2024-02-29 10:00', 'Ann'), (2, NULL, NULL)")
    computed = {
        "year": "year(at)",
        "whole": "concat(upper(name), '!')",
        "origin": "_source_table",
        "op_ts": "_committed_at",
    }

    def sync(**more):
        return sync_table(source, "t", lake, "d.t", format, computed_columns={**computed, **more})

    assert sync().snapshot_rows == 2
    server.execute(
        "UPDATE t SET name = 'bob', at = '2025-01-01' WHERE id = 2; INSERT INTO t VALUES (3, '2023-01-01', 'c')"
    )
    server.execute("DELETE FROM t WHERE id = 1")
    sync()
    found = rows_of(lake.table("d.t"))
    assert [(row["id"], row["year"], row["whole"], row["origin"]) for row in found] == [
        (2, 2025, "BOB!", "public.t"),
        (3, 2023, "C!", "public.t"),
    ]
    (now,) = server.execute("SELECT clock_timestamp()").fetchone()
    assert all(datetime.timedelta(0) <= now - row["op_ts"] < datetime.timedelta(hours=1) for row in found)
    server.execute("INSERT INTO t VALUES (4, NULL, 'd')")
    assert sync(n="id + 1").schema_changes == ("AddColumn n",)
    assert rows_of(lake.table("d.t"))[-1]["n"] == 5
    server.execute("ALTER TABLE t ADD m int DEFAULT 6")
    sync(n="coalesce(m, id) + 1")
    assert {(row["m"], row["n"]) for row in rows_of(lake.table("d.t"))} == {(6, 7)}
    for wrong, said in (
        ("year(", "Expecting"),
        ("nobody", "computed column 'x'.*nobody"),
        ("null", "no type"),
    ):
        with pytest.raises(InvalidInput, match=said):
            sync(x=wrong)
    with pytest.raises(InvalidInput, match=r"public\.t has a column 'name'"):
        sync(name="at")
    server.execute("TRUNCATE t; INSERT INTO t VALUES (5, '2020-01-01', 'e')")
    sync()
    assert [(row["id"], row["year"]) for row in rows_of(lake.table("d.t"))] == [(5, 2020)]


@FORMATS
def test_shards_are_one_table(server, source, lake, format):
    """Their keys are the same; a snapshot is cut short in the second, a shard comes later, one is emptied, and one has further columns."""
    server.execute("CREATE SCHEMA one; CREATE SCHEMA two; CREATE SCHEMA three")
    server.execute("CREATE TABLE one.o_1 (id int PRIMARY KEY, v int); ALTER TABLE one.o_1 REPLICA IDENTITY FULL")
    server.execute("CREATE TABLE two.o_1 (id int PRIMARY KEY, v bigint, note text DEFAULT 'n')")
    server.execute(
        "ALTER TABLE two.o_1 REPLICA IDENTITY FULL; INSERT INTO one.o_1 SELECT i, i FROM generate_series(1, 5) i"
    )
    server.execute("INSERT INTO two.o_1 SELECT i, 9000000000 + i FROM generate_series(1, 5) i")
    properties = {"changelog-producer": "input", "bucket": "1"} if format == "paimon" else {}
    names, key = {"one.o_1", "two.o_1"}, ["database_name", "table_name", "id"]

    def sync(**more):
        shards, how = re.compile(r".*\.o_\d"), {"primary_key": key, "properties": properties, "batch_rows": 2}
        return sync_table(source, shards, lake, "d.t", format, **{**how, **more})

    def matches():
        found = {
            tuple(row[name] for name in (*key, "v", "note")) for row in lake.table("d.t").scan().to_arrow().to_pylist()
        }
        there = set()
        for name in names:
            note = "note" if name.startswith("two") else "NULL"
            for row in server.execute(f"SELECT id, v, {note} FROM {name}").fetchall():
                there.add((*name.split("."), *row))
        return found == there

    assert sync(max_rows=6).snapshot_rows == 7
    server.execute("UPDATE one.o_1 SET v = 0 WHERE id = 3; UPDATE two.o_1 SET v = 0 WHERE id IN (1, 5)")
    report = sync()
    assert (report.snapshot_rows, dict(report.rows_by_kind)) == (3, {"-U": 2, "+U": 2})
    assert matches()
    server.execute("CREATE TABLE three.o_2 (id int PRIMARY KEY, v int); ALTER TABLE three.o_2 REPLICA IDENTITY FULL")
    server.execute("INSERT INTO three.o_2 SELECT i, i FROM generate_series(1, 3) i; DELETE FROM two.o_1 WHERE id = 1")
    names.add("three.o_2")
    report = sync(max_rows=1)
    assert (report.snapshot_rows, report.rows, report.is_complete) == (2, 0, False)
    server.execute("UPDATE three.o_2 SET v = 10; TRUNCATE one.o_1; INSERT INTO one.o_1 VALUES (1, 7)")
    report = sync()
    assert (report.snapshot_rows, dict(report.rows_by_kind)) == (1, {"-D": 6, "+I": 1, "-U": 2, "+U": 2})
    assert matches()
    if format == "paimon":
        replayed = replay(lake.table("d.t").changes(0).to_arrow().to_pylist(), key)
        assert len(replayed) == lake.table("d.t").scan().count() == 8
    with pytest.raises(NotFound, match=r"no table matches 'nobody'"):
        sync_table(source, re.compile("nobody"), lake, "d.n")
    server.execute(
        "CREATE TABLE one.x_1 (id int PRIMARY KEY, v text); CREATE TABLE one.x_2 (id int PRIMARY KEY, v int)"
    )
    server.execute("CREATE TABLE one.x_3 (other int PRIMARY KEY, v text)")
    for wrong, kind, said in (
        (r"one\.x_[12]", UnsupportedFeature, "column 'v' is .* no type holds both"),
        (r"one\.x_[13]", InvalidInput, "has the key .*primary_key="),
    ):
        with pytest.raises(kind, match=said):
            sync_table(source, re.compile(wrong), lake, "d.x")


def test_tables_of_a_database_stop_alone(server, source, lake, tmp_path, capsys):
    server.execute(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE nokey (v int); CREATE TABLE b (id int PRIMARY KEY, at point)"
    )
    server.execute("CREATE SCHEMA two; CREATE TABLE two.skipped (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
    server.execute('CREATE TABLE "a.b" (id int PRIMARY KEY); INSERT INTO "a.b" VALUES (7)')
    reports = sync_database(source, lake, "d", excluding=r".*\.skipped", table_prefix="pg_")
    assert {name: type(report.error) for name, report in reports.items()} == {
        "public.a": type(None),
        "public.a.b": type(None),
        "public.b": UnsupportedFeature,
        "public.nokey": InvalidInput,
    }
    assert rows_of(lake.table("d.pg_a")) == [{"id": 1}]
    server.execute('INSERT INTO "a.b" VALUES (8)')
    assert sync_database(source, lake, "d", including=r"public\.a.*", table_prefix="pg_")["public.a.b"].rows == 1
    assert rows_of(lake.table("d.pg_a_b")) == [{"id": 7}, {"id": 8}]
    command = ["--warehouse", str(tmp_path / "cli"), "--json", "cdc", server.dsn, r"public\..*", "d", "--all"]
    slot = ["--slot", f"{server.info.dbname}_cli", "--batch-rows", "1"]
    assert run_command([*command, *slot, "--prefix", "x_", "--suffix", "_y", "--excluding", r".*(b|nokey)"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["table"], told["snapshot_rows"], told["rows_per_second"] > 0) == ("d.x_a_y", 1, True)
    assert run_command([*command[:-1], *slot, "--prefix", "x_"]) != 0
    assert "--table-name and --row-filter go with --all" in capsys.readouterr().err
    server.execute("CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late VALUES (1); INSERT INTO a VALUES (2)")
    handlers, cli = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}, Lake(tmp_path / "cli")
    with ThreadPoolExecutor(1) as pool:
        interrupted = pool.submit(interrupt_once, lambda: cli.table("d.x_a_y").scan().count() == 2)
        try:
            assert run_command([*command[:3], "cdc", server.dsn, "public.a", "d.x_a_y", *slot, "--follow"]) == 0
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        interrupted.result()
    output = capsys.readouterr()
    assert (json.loads(output.out)[0]["rows"], "1 changes" in output.err) == (1, True)
    reports = sync_database(source, lake, "d", including=r"public\.(a|late)", table_prefix="pg_")
    assert {name: (report.rows, report.snapshot_rows) for name, report in reports.items()} == {
        "public.a": (1, 0),
        "public.late": (0, 1),
    }
    server.execute("INSERT INTO late VALUES (2)")
    assert sync_database(source, lake, "d", including=r"public\.(a|late)", table_prefix="pg_")["public.late"].rows == 1


def interrupt_once(is_time):
    """Press Ctrl-C once `is_time()`."""
    pause = Event()
    while not is_time():
        pause.wait(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def test_nothing_is_lost_in_silence(server, source, lake):
    """By one table's value, a table made anew, a log that went back, rewrites before a view's first read; children are tables of their own."""
    server.execute("CREATE TABLE a (id int PRIMARY KEY, v numeric(10, 2)); CREATE TABLE b (id int PRIMARY KEY)")
    server.execute("CREATE TABLE child (w int) INHERITS (b)")
    sync_database(source, lake, "d", including=r"public\.[ab]")
    server.execute(
        "INSERT INTO child VALUES (9, 9); UPDATE child SET w = 8"
    )  # The publication asks no replica identity of it.
    server.execute("INSERT INTO a VALUES (1, 'NaN'); INSERT INTO b VALUES (1)")
    reports = sync_database(source, lake, "d", including=r"public\.[ab]")
    assert "decimal(10, 2) cannot" in str(reports["public.a"].error)
    assert (reports["public.b"].error, rows_of(lake.table("d.b"))) == (None, [{"id": 1}])
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)")
    own = Postgres(server.dsn, slot=f"{server.info.dbname}_t")
    table = own.describe("t")
    own.begin([table], is_anew=True)
    with own.view(table) as view:
        server.execute("SET lock_timeout = 100")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            server.execute("ALTER TABLE t ALTER v TYPE bigint")
        assert sum(chunk.rows.num_rows for chunk in view.chunks(None, 9)) == 2
    sync_table(own, "t", lake, "d.t")
    server.execute("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (3, 3)")
    for _ in range(2):
        with pytest.raises(NotFound, match=r"changes of public\.t were not kept.*dropped and made anew.*restart=True"):
            sync_table(own, "t", lake, "d.t")
    assert sync_table(own, "t", lake, "d.t", restart=True).snapshot_rows == 1
    server.execute(
        "CREATE UNIQUE INDEX t_v ON t (v); ALTER TABLE t ALTER v SET NOT NULL, REPLICA IDENTITY USING INDEX t_v"
    )
    server.execute("DELETE FROM t; ALTER TABLE t REPLICA IDENTITY FULL")
    with pytest.raises(SourceError, match=r"replica identity was \(v\) for a while.*restart=True"):
        sync_table(own, "t", lake, "d.t")
    assert sync_table(own, "t", lake, "d.t", restart=True).rows == 0
    server.execute("INSERT INTO t VALUES (5, 5), (6, 6); ALTER TABLE t REPLICA IDENTITY DEFAULT")
    server.execute("DELETE FROM t WHERE id = 5; ALTER TABLE t REPLICA IDENTITY FULL")
    assert dict(sync_table(own, "t", lake, "d.t").rows_by_kind) == {"+I": 2, "-D": 1}
    for left_out in ("SET (publish = 'insert')", "SET TABLE t WHERE (id > 5)", "SET TABLE t (id)"):
        server.execute(f"ALTER PUBLICATION {server.info.dbname}_t {left_out}")
        with pytest.raises(SourceError, match="leaves changes out"):
            sync_table(own, "t", lake, "d.t")
        server.execute(f"ALTER PUBLICATION {server.info.dbname}_t SET (publish = 'insert, update, delete, truncate')")
    server.execute(f"ALTER PUBLICATION {server.info.dbname}_t SET TABLE t")
    for _ in range(2):  # The publication had only a part of it for a while, and was another one.
        with pytest.raises(
            NotFound, match=r"changes of public\.t were not kept.*left changes out for a while.*restart=True"
        ):
            sync_table(own, "t", lake, "d.t")
    assert sync_table(own, "t", lake, "d.t", restart=True).snapshot_rows == 1
    server.execute(
        "ALTER TABLE t RENAME TO u; UPDATE u SET v = 7; ALTER TABLE u RENAME TO t; INSERT INTO t VALUES (8, 8)"
    )
    assert dict(sync_table(own, "t", lake, "d.t").rows_by_kind) == {"-U": 1, "+U": 1, "+I": 1}
    server.execute(
        f"DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v int); ALTER PUBLICATION {server.info.dbname}_t ADD TABLE t"
    )
    with pytest.raises(NotFound, match=r"put in again, perhaps made anew.*restart=True"):
        sync_table(own, "t", lake, "d.t")
    sync_table(own, "t", lake, "d.t", restart=True)
    role = f"r{random.getrandbits(40):x}"
    server.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION; GRANT SELECT ON t TO {role}; ALTER TABLE t ENABLE ROW LEVEL SECURITY"
    )
    weak = Postgres(server.dsn.replace("postgres:@", f"{role}:@"), slot=f"{server.info.dbname}_t")
    with pytest.raises(SourceError, match="row-level security"):
        sync_table(weak, "t", lake, "d.hidden")
    weak.close()
    server.execute("CREATE TABLE kinds (id int PRIMARY KEY, rowkind text)")
    with pytest.raises(InvalidInput, match=r"public\.kinds has a column 'rowkind'.*exclude_columns"):
        sync_table(source, "kinds", lake, "d.kinds")
    lake.table("d.t").append(
        [{"id": 4, "v": 4}], properties={"cdc.source": f"{own.name}/public.t", "cdc.position": "FFFF/0"}
    )
    with pytest.raises(NotFound, match=r"log ends before FFFF/0"):
        sync_table(own, "t", lake, "d.t")
    own.close()


def test_what_is_not_set_up_is_said(server, source, lake, postgres_server):
    server.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE keyless (id int NOT NULL, v int)")
    with pytest.raises(NotFound, match=r"no table 'public\.none'.*public\.t"):
        sync_table(source, "public.none", lake, "d.t")
    with pytest.raises(InvalidInput, match="primary_key="):
        sync_table(source, "keyless", lake, "d.k")
    with pytest.raises(SourceError, match=r'ALTER TABLE "public"\."keyless" REPLICA IDENTITY FULL'):
        sync_table(source, "keyless", lake, "d.k", primary_key=["id"])
    server.execute("ALTER TABLE keyless REPLICA IDENTITY FULL; INSERT INTO keyless VALUES (1, 1), (2, 2)")
    own = Postgres(server.dsn, slot=f"{server.info.dbname}_k")
    sync_table(own, "keyless", lake, "d.k", primary_key=["id"])
    server.execute("UPDATE keyless SET v = 3 WHERE id = 1; DELETE FROM keyless WHERE id = 2")
    assert dict(sync_table(own, "keyless", lake, "d.k", primary_key=["id"]).rows_by_kind) == {"-U": 1, "+U": 1, "-D": 1}
    assert rows_of(lake.table("d.k")) == [{"id": 1, "v": 3}]
    own.drop()
    server.execute("INSERT INTO keyless VALUES (9, 9)")
    own.begin([own.describe("keyless", ["id"])], is_anew=True)
    with pytest.raises(NotFound, match=r"restart=True"):
        sync_table(own, "keyless", lake, "d.k", primary_key=["id"])
    own.close()

    role = f"r{random.getrandbits(40):x}"
    server.execute(f"CREATE ROLE {role} LOGIN")
    weak = Postgres(server.dsn.replace("postgres:@", f"{role}:@"), slot=server.info.dbname)
    with pytest.raises(SourceError, match=rf'GRANT SELECT ON "public"\."t" TO {role}'):
        sync_table(weak, "t", lake, "d.t")
    server.execute(f"GRANT SELECT ON t TO {role}")
    with pytest.raises(SourceError, match=f"ALTER ROLE {role} REPLICATION"):
        sync_table(weak, "t", lake, "d.t")
    server.execute(f"ALTER ROLE {role} REPLICATION")
    with pytest.raises(SourceError, match="have their owner run: CREATE PUBLICATION"):
        sync_table(weak, "t", lake, "d.t")
    weak.close()
    sync_table(source, "t", lake, "d.t")
    with pytest.raises(InvalidInput, match=r"d\.t follows postgres/"):
        sync_table(Postgres(server.dsn, slot="another"), "t", lake, "d.t")
    lake.create_table("d.mine", source.describe("t").fields, primary_key=["id"]).append([{"id": 1}])
    with pytest.raises(InvalidInput, match=r"has rows, and no snapshot"):
        sync_table(source, "t", lake, "d.mine")
    server.execute(
        "SELECT pg_terminate_backend(pid, 9000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    sync_table(source, "t", lake, "d.t")
    source.drop()
    server.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(SourceError, match="cannot be reached"):
        Postgres(f"host=/nonexistent dbname={server.info.dbname}").describe("t")


@FORMATS
def test_a_sync_goes_on_until_it_is_stopped(server, source, lake, format):
    """It follows what the log does not have as well, and says so where changes are no longer kept."""
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    told, left, steps = [], [500], [
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "UPDATE t SET v = 3 WHERE id = 1; ALTER TABLE t ADD w int DEFAULT 4",
        "ALTER TABLE t ALTER v TYPE bigint USING v + 10",
        "DELETE FROM t WHERE id = 2",
    ]  # fmt: skip

    def stop():
        """The next step, once the table is what the source is, and nobody reads that."""
        left[0] -= 1
        assert left[0], steps
        is_read = server.execute("SELECT 1 FROM pg_locks WHERE relation = 't'::regclass AND pid <> pg_backend_pid()")
        if is_read.fetchone() or not lake.exists("d.t") or rows_of(lake.table("d.t")) != rows_in(server, "t"):
            return False
        if steps:
            server.execute(steps.pop(0))
            return False
        return True

    def sync(stop):
        how = {"until": "stopped", "stop": stop, "poll_seconds": 0.001, "on_progress": told.append}
        return sync_table(source, "t", lake, "d.t", format, **how)

    report = sync(stop)
    assert (rows_of(lake.table("d.t")), steps) == ([{"id": 1, "v": 13, "w": 4}], [])
    assert report.rows_by_kind["-D"] == 1
    assert report.filled_rows >= 2
    assert told[-1].rows_per_second > 0
    assert re.search(r"rows/s, lag \d+\.\d s$", str(told[-1])), str(told[-1])
    remade = "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v bigint, w int); INSERT INTO t VALUES (7, 7, 7)"
    with pytest.raises(NotFound, match=r"changes of public\.t were not kept.*restart=True"):
        sync(lambda: server.execute(remade) is None)


def test_rows_are_ordered_by_a_sequence_field(server, source, lake):
    """A delete in the log has only the key: it is not older than the row that it deletes."""
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int, seq int); INSERT INTO t VALUES (1, 1, 5), (2, 2, 5)")
    properties = {"bucket": "1", "sequence.field": "seq", "changelog-producer": "lookup"}

    def sync():
        sync_table(source, "t", lake, "d.t", properties=properties)
        assert rows_of(lake.table("d.t")) == rows_in(server, "t")

    sync()
    before = lake.table("d.t").current_snapshot().id
    server.execute("UPDATE t SET v = 3, seq = 6 WHERE id = 1; DELETE FROM t WHERE id = 2")
    sync()
    changes = lake.table("d.t").changes(before).to_arrow().to_pylist()
    assert sorted((row["_row_kind"], row["id"], row["v"]) for row in changes) == [
        ("+U", 1, 3),
        ("-D", 2, 2),
        ("-U", 1, 1),
    ]
    server.execute("INSERT INTO t VALUES (3, 1, 9); UPDATE t SET seq = 10 WHERE id = 3; DELETE FROM t WHERE id = 3")
    sync()


@FORMATS
def test_compaction_beside_each_commit_stops_none(server, source, format):
    """Whenever a sync is about to publish a snapshot, another process compacts the table."""
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int); ALTER TABLE t REPLICA IDENTITY FULL")
    store, compactions = MemoryFiles(), []

    def compact():
        there = OneTable(store, format).create_table("d.t", (), primary_key=(), properties=None, if_exists="ignore")
        compactions.append(there.compact(full=True))

    class Compacted(NthCallFails):
        def __getattr__(self, name):
            call = super().__getattr__(name)

            def compacted(path, *arguments):
                if name == "create" and len(store.list("")) > 3:
                    compact()
                return call(path, *arguments)

            return compacted if name == "create" else call

    server.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 12) i")
    lake = OneTable(Compacted(store, 0, after=False), format)
    for step in range(4):
        sync_table(source, "t", lake, "d.t", format, properties=changelog_properties(format), batch_rows=5)
        server.execute(f"UPDATE t SET v = {step} WHERE id % 3 = 0; DELETE FROM t WHERE id = {step + 1}")
        server.execute(f"INSERT INTO t VALUES ({20 + step}, 0)")
    sync_table(source, "t", lake, "d.t", format, batch_rows=5)
    table = OneTable(store, format).create_table("d.t", (), primary_key=(), properties=None, if_exists="ignore")
    assert sum(each is not None for each in compactions) > 3
    assert rows_of(table) == rows_in(server, "t")
    if format == "paimon":
        told = replay(table.changes(0).to_arrow().to_pylist(), ["id"])
        assert [told[key] for key in sorted(told)] == rows_in(server, "t")


def test_a_process_is_killed(server, source, lake):
    """By SIGKILL, a commit or two after it began, with changes at the source before and after."""
    work = postgres_workload(server.execute, "t", 0, ["name", "note"])

    def sync():
        sync_table(source, "t", lake, "d.t", properties=changelog_properties("paimon"))

    def steps():
        for _ in range(15):
            work.step()

    sync()
    command = [sys.executable, "-m", "lakeformat.cli.main", "--warehouse", lake.uri, "cdc", server.dsn, "t", "d.t"]
    for commits in (1, 2):
        steps()
        options = ["--slot", server.info.dbname, "--batch-rows", "5", "--follow"]
        with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
            for _ in range(commits):
                assert re.match(r"d\.t: .* changes, ", process.stderr.readline())
                steps()
            process.kill()
    drop_connections(server)  # The server may not have noticed yet that the process has gone.
    source.close()
    sync()
    rows = rows_of(lake.table("d.t"))
    assert [(row["id"], row["version"]) for row in rows] == [
        (row["id"], row["version"]) for row in rows_in(server, "t")
    ]
    changes = replay(lake.table("d.t").changes(0).to_arrow().to_pylist(), ["id"])
    assert [changes[key] for key in sorted(changes)] == rows


def test_type_options(server, lake):
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a varchar(3) NOT NULL, b char(2), c numeric(10, 2), d timestamp(3), e bytea, f point)"
    )
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with pytest.raises(UnsupportedFeature, match=r"column 'f' is of the spatial type point.*exclude_columns"):
        sync_table(Postgres(server.dsn, slot=server.info.dbname), "t", lake, "d.t")
    values = "'a', 'b', 1.50, '2024-01-01 00:00:00.25', '\\x00ff', NULL"
    for number, (options, types) in enumerate((
        (["char-to-string", "to-nullable"], ["int False", "string True", "string True", "decimal(10, 2) True", "timestamp(3) True", "bytes True"]),
        (["to-string"], ["string False", "string False", *["string True"] * 4]),
    )):  # fmt: skip
        own = Postgres(server.dsn, f"{server.info.dbname}_{number}", options, ["public.t.f"])
        server.execute("TRUNCATE t")
        for id in (1, 2):  # By the snapshot, then by the log.
            server.execute(f"INSERT INTO t VALUES ({id}, {values})")
            sync_table(own, "t", lake, f"d.t{number}")
        own.close()
        table = lake.table(f"d.t{number}")
        assert [f"{field.type} {field.nullable}" for field in table.schema.fields] == types
        first, second = ([row[name] for name in "abcde"] for row in rows_of(table))
        assert first == second
        if number:
            assert first == ["a", "b ", "1.50", "2024-01-01 00:00:00.25", "\\x00ff"]


def test_a_value_that_its_column_cannot_hold_is_null_or_text_where_that_is_allowed(server, lake):
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamp NOT NULL, zoned timestamptz, day date, n numeric(10, 2), free numeric, "
        "wide numeric, due time)"
    )
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    held = "'2024-01-01', '2024-01-01Z', '2024-01-01', 1.5, 1.5, 1.5, '12:00'"
    misfits = "'infinity', '0044-03-15 BC', 'infinity', 'NaN', 0.1234567890123456789, 'NaN', '24:00'"
    nulling = Postgres(server.dsn, server.info.dbname, on_misfit="null", text_columns=["public.t.wide"])

    def sync():
        return sync_table(nulling, "t", lake, "d.t")

    for first in (0, 10):  # By the snapshot, then by the log.
        rows = ", ".join(f"({first + i}, {misfits if i in (3, 8) else held})" for i in range(10))
        server.execute(f"INSERT INTO t VALUES {rows}")
        report = sync()
    names = ["at", "zoned", "day", "n", "free", "due"]
    assert report.misfits == dict.fromkeys(names, 4)
    assert "4 values of at did not fit and are NULL" in str(report)
    table = lake.table("d.t")
    rows = rows_of(table)
    assert [row["id"] for row in rows if row["at"] is None] == [3, 8, 13, 18]
    assert {row["wide"] for row in rows} == {"1.5", "NaN"}
    for row in rows:
        assert {row[name] is None for name in names} == {row["at"] is None}
    server.execute("UPDATE t SET at = '2024-01-02' WHERE id = 3")
    server.execute("DELETE FROM t WHERE id = 18")
    sync()
    rows = {row["id"]: row for row in rows_of(table)}
    assert (len(rows), rows[3]["at"], rows[3]["day"]) == (19, datetime.datetime(2024, 1, 2), None)
    nulling.close()
    stopping = Postgres(server.dsn, server.info.dbname, text_columns=["public.t.wide"])
    server.execute("UPDATE t SET due = '24:00' WHERE id = 1")
    with pytest.raises(InvalidInput, match=r"column 'due' \(time\) holds a value that .* cannot: .*on_misfit='null'"):
        sync_table(stopping, "t", lake, "d.t")
    server.execute("CREATE TABLE due (id int PRIMARY KEY, due time); INSERT INTO due VALUES (1, '24:00')")
    with pytest.raises(InvalidInput, match=r"column 'due' holds a value that .* cannot: .*on_misfit='null'"):
        sync_table(Postgres(server.dsn, f"{server.info.dbname}_due"), "due", lake, "d.due")
    stopping.close()
    sync()
    assert {row["id"]: row for row in rows_of(table)}[1]["due"] is None
    nulling.close()


KEYS = {  # Of each type literals in the server's order.
    "smallint": ["-3", "0", "5"],
    "numeric(10, 2)": ["-1.1", "9", "10", "10.01"],
    "numeric": ["-1.1", "9", "10", "10.000000001", "1e19"],
    "numeric(45, 3)": ["-1.1", "9", "10", "1e40"],
    "real": ["-0.3", "0.1", "0.2", "1000000.5", "1e30"],
    "double precision": ["-1e308", "-0.1", "0.1", "1.7976931348623157e308", "'Infinity'", "'NaN'"],
    "boolean": ["false", "true"],
    "date": ["'0999-12-31'", "'2024-02-29'"],
    "time": ["'09:00:00'", "'10:00:00'", "'20:00:00.5'"],
    "timetz": ["'09:00:00+02'", "'10:00:00+02'", "'20:00:00.5Z'"],
    "timestamp": ["'2024-02-29 09:00:00'", "'2024-02-29 09:00:00.000001'", "'2024-02-29 10:00:00'"],
    "timestamptz(3)": ["'2024-02-29 09:00:00Z'", "'2024-02-29 09:00:00.5Z'"],
    "interval": ["'9 hours'", "'10 hours'", "'1 mon'"],
    "bytea": [r"'\x00'", r"'\x0000'", r"'\x5c'", r"'\x7f'", r"'\xff'"],
    "varchar(9) COLLATE \"C\"": ["'B'", "'a'", "'ä'"],
    "char(9)": ["'B '", "'a'", "'a%'"],
    '"char"': ["'B'", "'a'"],
    "name": ["'B'", "'a'"],
    "uuid": [f"'{digit}50e8400-e29b-41d4-a716-44665544000{9 - digit}'" for digit in (1, 5, 8)],
    "inet": ["'9.0.0.0'", "'10.0.0.0'", "'::1'"],
    "cidr": ["'9.0.0.0/8'", "'10.0.0.0/8'"],
    "macaddr": ["'08:00:2b:01:02:03'", "'08:00:2b:01:02:04'"],
    "bit(10)": ["b'0000000001'", "b'0000001010'"],
    "varbit(10)": ["b'1'", "b'1010'"],
    "money": ["'-1.5'", "'9'", "'10'", "'1000.5'"],
    "oid": ["9", "10", "4294967295"],
    "xid8": ["'9'", "'10'"],
    "pg_lsn": ["'9/1'", "'A/1'", "'10/1'"],
    "int[]": ["'{9}'", "'{9,1}'", "'{10}'"],
    "text[]": ["'{}'", "'{a}'", "'{\"a,b\"}'", "'{NULL}'"],
    "jsonb": ["'null'", "'\"a\"'", "'9'", "'10'", "'[1]'", "'{\"a\": 1}'"],
    "int4range": ["'empty'", "'[1,3)'", "'[9,10)'"],
    "mood": ["'z'", "'b'", "'it''s'", "'a'"],
    "pair": ["'(1,z)'", "'(9,a)'", "'(10,a)'"],
    "price": ["9", "10"],
}  # fmt: skip


@pytest.mark.drawn(6)
@pytest.mark.parametrize("type", KEYS)
def test_keys_are_compared_as_the_server_orders_them(server, source, lake, type):
    """As of a snapshot that is read in several views: which chunk a changed row is of. Alone and as the first column of a key."""
    server.execute("CREATE TYPE mood AS ENUM ('z', 'b', 'it''s', 'a'); CREATE TYPE pair AS (a int, b text)")
    server.execute("CREATE DOMAIN price AS numeric(10, 2) CHECK (value > 0)")
    for key, name in (("k", "t"), ("k, n", "u")):
        server.execute(f"CREATE TABLE {name} (k {type} NOT NULL, n int, v int, PRIMARY KEY ({key}))")
        for index, literal in enumerate(KEYS[type]):
            server.execute(f"INSERT INTO {name} VALUES ({literal}, {index}, 0)")
        table, count = source.describe(f"public.{name}"), len(KEYS[type])
        with source.view(table) as view:
            chunks = [(chunk.upto, chunk.rows) for chunk in view.chunks(None, 1)]
        assert len(chunks) == count
        rows = pa.concat_tables([rows for _, rows in chunks])
        order = rows["n"].to_pylist()
        assert order == [number for (number,) in server.execute(f"SELECT n FROM {name} ORDER BY {key}")]
        assert sorted(order) == list(range(count))
        for number, (bound, _) in enumerate(chunks[:-1]):
            assert source.upto(table, rows, bound).tolist() == [index <= number for index in range(count)]
        for number in range(count):
            sync_table(source, name, lake, f"d.{name}", batch_rows=1, max_rows=1, slot_shared_with={"public.t": "d.t"})
            server.execute(f"UPDATE {name} SET v = v + 1 WHERE n IN ({order[0]}, {order[number]})")
        sync_table(source, name, lake, f"d.{name}", batch_rows=1, slot_shared_with={"public.t": "d.t"})
        values = lake.table(f"d.{name}").scan().to_arrow().sort_by("n")["v"].to_pylist()
        assert values == [number for (number,) in server.execute(f"SELECT v FROM {name} ORDER BY n")]


@pytest.mark.parametrize("version", [2, 3])
def test_an_iceberg_table_has_no_equality_deletes_where_its_property_says_so(server, lake, version):
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    server.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 20) AS n")
    source = Postgres(server.dsn, server.info.dbname)
    properties = {"cdc.convert-deletes": "true", "format-version": str(version)}

    def sync():
        sync_table(source, "t", lake, "d.t", "iceberg", properties=properties)
        table = lake.table("d.t")
        assert rows_of(table) == rows_in(server, "t")
        return table.inspect.delete_files()["content"].to_pylist()

    assert sync() == []
    server.execute("UPDATE t SET v = -v WHERE id % 5 = 0")
    server.execute("DELETE FROM t WHERE id = 3")
    assert set(sync()) == {1}  # Positions.
    server.execute("DELETE FROM t WHERE id = 4")
    assert set(sync()) == {1}
    lake.table("d.t").alter().set_properties({"cdc.convert-deletes": "yes"}).commit()
    with pytest.raises(InvalidInput, match=r"cdc\.convert-deletes='yes'"):
        sync()
    source.close()


def test_tables_take_the_names_and_the_layout_that_are_asked_for(server, lake, tmp_path):
    for name in ('"We.ird Näme"', "plain"):
        server.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, dt text)")
        server.execute(f"INSERT INTO {name} VALUES (1, 'a')")
    source = Postgres(server.dsn, server.info.dbname)
    with pytest.raises(InvalidInput, match=r"table_names: 'public\.plan' is no table to follow"):
        sync_database(source, lake, "d", table_names={"public.plan": "p"})
    names = {"public.We.ird Näme": "weird"}
    for _ in range(2):
        reports = sync_database(source, lake, "d", table_prefix="p_", table_names=names)
    source.drop()
    assert {name: report.table for name, report in reports.items()} == {
        "public.We.ird Näme": "d.weird",
        "public.plain": "d.p_plain",
    }
    assert rows_of(lake.table("d.weird")) == [{"id": 1, "dt": "a"}]
    command = [
        "--warehouse",
        str(tmp_path / "w"),
        "cdc",
        server.dsn,
        "public.plain",
        "d.t",
        "--slot",
        server.info.dbname,
    ]
    assert run_command([*command, "--partition-by", "bucket(4, id)", "--format", "iceberg", "--property", "a=b=c"]) == 0
    table = Lake(tmp_path / "w").table("d.t")
    assert (str(table.schema.partitioning.fields[0].transform), table.properties["a"]) == ("bucket[4]", "b=c")
    for wrong in (["--table-name", "public.plain=p"], ["--lock-seconds", "3"], ["--property", "a"]):
        assert run_command([*command, *wrong]) != 0
    Postgres(server.dsn, server.info.dbname).drop()


def test_a_key_that_its_column_cannot_hold_stops_the_table(server, lake):
    server.execute("CREATE TABLE t (day date PRIMARY KEY)")
    server.execute("INSERT INTO t VALUES ('2024-01-01'), ('infinity')")
    source = Postgres(server.dsn, server.info.dbname, on_misfit="null")
    with pytest.raises(InvalidInput, match="column 'day'"):
        sync_table(source, "t", lake, "d.t")
    source.close()


@pytest.mark.parametrize("arguments", [{"on_misfit": "text"}, {"text_columns": ["t.a"]}])
def test_a_wrong_policy_is_refused(arguments):
    with pytest.raises(InvalidInput, match=next(iter(arguments))):
        Postgres("postgresql://localhost/d", **arguments)


def test_a_server_that_restarts_and_one_that_does_not_log_changes(lake, monkeypatch):
    monkeypatch.setattr(run, "FIRST_DELAY", 0.05)
    with running_postgres() as server:
        dsn, source = server.get_uri(), Postgres(server.get_uri())

        def execute(statement):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(statement)

        def restart(level):
            execute(f"ALTER SYSTEM SET wal_level = {level}")
            source.close()
            server.stop()
            server.start()

        execute("CREATE TABLE t (id int PRIMARY KEY)")
        restart("replica")
        with pytest.raises(SourceError, match=r"wal_level is replica.*ALTER SYSTEM SET wal_level = 'logical'"):
            sync_table(source, "t", lake, "d.t")
        restart("logical")
        sync_table(source, "t", lake, "d.t")
        execute("INSERT INTO t VALUES (1)")
        restart("logical")
        assert sync_table(source, "t", lake, "d.t").rows == 1
        source.close()

        def crash():
            command = [server.bin_path / "pg_ctl", "-w", "-D", server.pgdata, "-m", "immediate", "stop"]
            subprocess.run(command, user=server.system_user, check=True, stdout=subprocess.DEVNULL)
            server.start()

        def rows_there():
            with psycopg.connect(dsn, autocommit=True) as connection:
                return connection.execute("SELECT * FROM t ORDER BY id").fetchall()

        for format in ("paimon", "iceberg"):
            execute("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v int); ALTER TABLE t REPLICA IDENTITY FULL")
            own = Postgres(dsn, slot=format)
            a_server_crashes_within_a_sync(own, "t", execute, rows_there, crash, format)
            own.close()
        a_transaction_has_the_number_of_one_that_a_crash_took_back(dsn, lake, execute, rows_there, crash)


def a_transaction_has_the_number_of_one_that_a_crash_took_back(dsn, lake, execute, rows_there, crash):
    """One that was rolled back just before the snapshot, and whose end is not on disk when the server crashes."""
    numbers = []

    def number(connection):
        numbers.append(connection.execute("SELECT pg_current_xact_id()::text").fetchone()[0])

    class RolledBack(Postgres):
        @contextmanager
        def view(self, table, *others):
            with psycopg.connect(dsn) as connection:
                connection.execute("INSERT INTO t VALUES (2, 2)")
                number(connection)
                connection.rollback()
            with super().view(table, *others) as view:
                yield view

    def crashes(_):
        if len(numbers) == 1:
            crash()
            with psycopg.connect(dsn) as connection:
                connection.execute("UPDATE t SET v = 5 WHERE id = 1")
                number(connection)

    execute("ALTER SYSTEM SET wal_writer_delay = '300ms'")
    execute("SELECT pg_reload_conf()")
    execute("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)")
    with closing(RolledBack(dsn, slot="again")) as source:
        sync_table(source, "t", lake, "d.again", on_progress=crashes)
        sync_table(source, "t", lake, "d.again")
    assert len(numbers) == 2
    assert [(row["id"], row["v"]) for row in rows_of(lake.table("d.again"))] == rows_there() == [(1, 5)]


@FORMATS
@pytest.mark.parametrize("seed", WORKLOADS)
def test_every_change_comes_once_whatever_fails(server, source, format, seed):
    work = postgres_workload(server.execute, "t", seed)

    def rows_there():
        return server.execute("SELECT id, version FROM t ORDER BY id").fetchall()

    has_both = (seed + seed // 2) % 2 == 0  # Rows of an update.
    drop = partial(drop_connections, server)
    every_change_comes_once(source, "t", work, rows_there, drop, format, seed, changelog=has_both, rounds=ROUNDS)


def drop_connections(server):
    with psycopg.connect(server.dsn, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 9000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> ALL (%s)",
            [[server.info.backend_pid, other.info.backend_pid]],
        )


@pytest.mark.parametrize("format", ["paimon", "iceberg"] if IS_LONG else ["paimon"])
def test_every_call_fails_once(server, source, format):
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int, note text); ALTER TABLE t REPLICA IDENTITY FULL")

    def execute(*statements):
        for statement in statements:
            server.execute(statement)

    def anew():
        source.drop()
        source.close()

    rewrite = "ALTER TABLE t ALTER v TYPE int USING v + 10"
    drop = partial(drop_connections, server)
    world = World(source, "t", execute, lambda query: server.execute(query).fetchall(), rewrite, drop, anew, format)
    tried, every = every_call_fails_once(world)
    assert tried >= every // STEP > 0


@pytest.mark.parametrize("seed", range(8) if IS_LONG else [3])
def test_two_syncs_of_one_table_at_once(server, seed):
    work = postgres_workload(server.execute, "t", 2 * seed, ["name", "note"])
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    sources = [Postgres(server.dsn, slot=server.info.dbname) for _ in range(2)]
    two_syncs_at_once(
        sources, "t", work, lambda: server.execute("SELECT id, version FROM t ORDER BY id").fetchall(), seed
    )


@FORMATS
@pytest.mark.parametrize("seed", WORKLOADS)
def test_the_rows_of_a_filter_are_followed(server, source, format, seed):
    work = postgres_workload(server.execute, "t", seed)
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    rows_there = lambda where: server.execute(f"SELECT id, version FROM t WHERE {where} ORDER BY id").fetchall()  # noqa: E731
    the_rows_of_a_filter_are_followed(source, "t", work, rows_there, format, seed)


def test_a_row_filter_that_cannot_be_followed_is_refused(server, source, lake, tmp_path):
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v int, w int)")
    server.execute("INSERT INTO t SELECT i, i, i FROM generate_series(1, 9) i")

    def sync(where):
        return sync_table(source, "public.t", lake, "d.t", where=where)

    with pytest.raises(UnsupportedFeature, match="REPLICA IDENTITY FULL"):
        sync("v > 3")
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    for where, message in (("x > 3", "no column 'x'"), ("v + 1", "not a condition"), ("v >", "v >")):
        with pytest.raises(InvalidInput, match=message):
            sync(where)
    assert not lake.exists("d.t")
    assert sync("v > 3").snapshot_rows == 6
    server.execute("UPDATE t SET v = 0 WHERE id = 9")
    server.execute("UPDATE t SET v = 99, id = 100 WHERE id = 1")
    server.execute("UPDATE t SET w = 0 WHERE id IN (2, 8)")
    server.execute("DELETE FROM t WHERE id = 3")
    assert sync("v > 3").rows_by_kind == {"-D": 1, "+I": 1, "-U": 1, "+U": 1}
    assert [row["id"] for row in rows_of(lake.table("d.t"))] == [4, 5, 6, 7, 8, 100]
    assert sync("w < 7").filled_rows == 2  # Another filter: all rows are compared.
    assert [row["id"] for row in rows_of(lake.table("d.t"))] == [2, 4, 5, 6, 8, 100]
    assert lag_seconds(source, "public.t", lake, "d.t") == 0
    server.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
    server.execute("UPDATE t SET w = 99 WHERE id = 4")
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with pytest.raises(UnsupportedFeature, match="without their old rows"):
        sync("w < 7")
    sync_table(source, "public.t", lake, "d.t", where="w < 7", restart=True)
    server.execute("ALTER TABLE t DROP COLUMN w")
    server.execute("INSERT INTO t VALUES (200, 1)")
    with pytest.raises(InvalidInput, match="no column 'w'"):
        sync("w < 7")
    assert sync(None).filled_rows > 0
    source.close()
    command = ["--warehouse", str(tmp_path / "w"), "cdc", server.dsn, "public.t", "d"]
    slot = ["--slot", f"{server.info.dbname}_cli"]
    assert run_command([*command[:-1], "d.t", *slot, "--where", "id > 5"]) == 0
    assert run_command([*command, *slot, "--all", "--row-filter", "public.t=id <= 5"]) == 0
    assert [row["id"] for row in rows_of(Lake(tmp_path / "w").table("d.t"))] == [2, 4, 5]
    assert run_command([*command, *slot, "--all", "--where", "id > 5"]) != 0
    with pytest.raises(InvalidInput, match=r"row_filters: 'public\.u' is no table to follow"):
        sync_database(source, lake, "d", row_filters={"public.u": "id > 5"})
    assert [row["id"] for row in rows_of(lake.table("d.t"))] == [2, 4, 5, 6, 7, 8, 9, 100, 200]


@FORMATS
@pytest.mark.parametrize("seed", range(20))
def test_a_database_in_turmoil_is_followed(server, postgres_server, format, seed):
    """Its server is that of other tests, and does not restart."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        side = OnPostgres(server.dsn, postgres_server.pgdata, slot=server.info.dbname)
        world = Turmoil(side, format, folder, seed, tables=2)
        try:
            world.round(15, ["kill", "cut", "kill"], seconds=0.2)
        finally:
            world.close()
