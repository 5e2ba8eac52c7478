"""MariaDB into tables of both formats, with a real server: the traps of its log, and every transaction once."""

import datetime
import random
import re
import struct
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from decimal import Context, Decimal
from pathlib import Path
from threading import Event

import pyarrow as pa
import pymysql
import pytest

from lakeformat import InvalidInput, Lake, LakeError, NotFound, SourceError, UnsupportedFeature
from lakeformat.cdc import MySql, open_source, sync_database, sync_table
from lakeformat.cdc.source import Position
from lakeformat.cli.app import run as run_command
from tests.cdc.each_call import STEP, World, every_call_fails_once
from tests.cdc.following import (
    IS_LONG,
    ROUNDS,
    WORKLOADS,
    a_library_stops_one_table,
    a_server_crashes_within_a_sync,
    a_sync_goes_on_after_its_connections_drop,
    a_sync_of_all_takes_up_tables,
    a_sync_up_to_now_goes_on_after_its_connections_drop,
    every_change_comes_once,
    mysql_workload,
    replay,
    the_rows_of_a_filter_are_followed,
    two_syncs_at_once,
    wide_rows_are_read_in_chunks_by_bytes,
)
from tests.cdc.servers import DURABLE, LOGS_ALL, SERVER, MariaDb
from tests.cdc.turmoil import OnMySql, Turmoil
from tests.conftest import MEMORY
from tests.draw import some

pytestmark = pytest.mark.skipif(
    SERVER.program() is None,
    reason=f"no {SERVER.__name__} server here: `make {SERVER.__name__.lower()}` brings one out of Debian's packages",
)
FORMATS = pytest.mark.parametrize("format", ["paimon", "iceberg"])


@pytest.fixture(scope="session")
def server():
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        made = SERVER(folder)
        made.start()
        yield made
        made.stop()


@pytest.fixture
def run(server):
    """Executes statements in a database of its own, `run.name`."""
    connection = server.connect()
    name = f"d{random.getrandbits(40):x}"

    def execute(*statements):
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    execute(f"CREATE DATABASE {name}", f"USE {name}", "SET time_zone = '+05:30', sql_mode = ''")

    def many(statement, rows):
        with connection.cursor() as cursor:
            cursor.executemany(statement, rows)

    execute.name, execute.many = name, many
    yield execute
    with server.connect() as again, again.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name}")


@pytest.fixture
def source(server):
    found = MySql(server.url)
    yield found
    found.close()


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "warehouse")


def rows_of(table):
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


@FORMATS
def test_a_table_is_what_the_source_is_whatever_its_types(run, source, lake, format):
    run(
        "CREATE TABLE kinds (id bigint unsigned, part char(4), a tinyint, b tinyint(1), c smallint unsigned, d mediumint, e int unsigned, f float, "
        "g double, h decimal(12, 3), i bit(1), j bit(10), k date NOT NULL, l time(3), m datetime(3), n timestamp(6) NULL, o year, p varchar(9), q text, "
        "r longtext, s json, t enum('x', 'y'), u set('a', 'b', 'd'), v binary(4), w varbinary(9), x blob, y decimal(50, 2), PRIMARY KEY (id, part)) "
        "COMMENT 'all of them' CHARACTER SET utf8mb4"
    )
    full = (
        "'p', -7, 1, 65535, -8388608, 4294967295, 1.5, 0.1, -1.005, b'1', b'1000000001', '0001-12-31', '23:59:59.123', '1969-12-31 23:59:59.999', "
        "'2024-02-29 12:00:00.123456', 1901, 'ä,\"', 'q', 'r', '{\"a\": [1]}', 'y', 'd,a', x'6100', x'6100', x'00ff', 1.25"
    )
    nulls = "''" + ", NULL" * 10 + ", '0000-00-00'" + ", NULL" * 9 + ", '', NULL, NULL, NULL, NULL"
    assert len(full.split(", ")) == len(nulls.split(", "))
    for start in (0, 10):  # By the snapshot, then by the log.
        big = 18446744073709551600 + start
        run(f"INSERT INTO kinds VALUES ({big}, {full}), ({start + 2}, {nulls})")
        report = sync_table(source, f"{run.name}.kinds", lake, "d.kinds", format)
    assert (report.rows, dict(report.rows_by_kind), report.snapshot_rows) == (2, {"+I": 2}, 0)
    table = lake.table("d.kinds")
    found = rows_of(table)
    assert [int(row["id"]) for row in found] == [2, 12, 18446744073709551600, 18446744073709551610]
    assert {**found[0], "id": 12} == {**found[1], "id": 12}
    assert {**found[2], "id": 1} == {**found[3], "id": 1}
    assert found[0] == {**dict.fromkeys(found[0]), "id": found[0]["id"], "part": "", "u": ""}
    told = found[2]
    assert told["n"] == datetime.datetime(2024, 2, 29, 6, 30, 0, 123456, datetime.UTC)
    assert told["m"] == datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)
    assert (told["k"], told["l"]) == (datetime.date(1, 12, 31), datetime.time(23, 59, 59, 123000))
    assert [told[name] for name in "abcdefg"] == [-7, True, 65535, -8388608, 4294967295, 1.5, 0.1]
    assert (told["h"], told["y"]) == (Decimal("-1.005"), "1.25")
    assert [told[name] for name in "ijopqrstu"] == [True, b"\x02\x01", 1901, 'ä,"', "q", "r", '{"a": [1]}', "y", "a,d"]
    assert [told[name] for name in "vwx"] == [b"a\0\0\0", b"a\0", b"\x00\xff"]
    assert table.schema.comment == "all of them"


def test_rows_of_the_log_are_those_of_a_snapshot(run, source, lake):
    """Events of many rows of all sizes, each with other nulls, of tables with more and fewer columns than a byte of the bitmap has bits."""
    draw = random.Random(7)
    kinds = {
        "tinyint": lambda: draw.randint(-128, 127),
        "tinyint unsigned": lambda: draw.randint(0, 255),
        "smallint": lambda: draw.randint(-(2**15), 2**15 - 1),
        "mediumint unsigned": lambda: draw.randint(0, 2**24 - 1),
        "int": lambda: draw.randint(-(2**31), 2**31 - 1),
        "bigint": lambda: draw.randint(-(2**63), 2**63 - 1),
        "bigint unsigned": lambda: draw.randint(0, 2**64 - 1),
        "float": lambda: draw.randint(-(2**20), 2**20) / 16,
        "double": lambda: draw.random() * 10.0 ** draw.randint(-9, 9),
        **{
            f"decimal({precision}, {scale})": lambda precision=precision, scale=scale: (
                Decimal(draw.randint(1 - 10**precision, 10**precision - 1)).scaleb(-scale, Context(prec=65))
            )
            for precision, scale in ((1, 0), (5, 5), (10, 2), (18, 9), (19, 1), (38, 12), (30, 30), (65, 20))
        },
        **{
            f"{name}({digits})": lambda name=name, digits=digits: (
                datetime.datetime(draw.randint(1971, 2037), draw.randint(1, 12), draw.randint(1, 28), draw.randint(0, 23), draw.randint(0, 59))
                + datetime.timedelta(microseconds=draw.randint(0, 60 * 10**digits - 1) * 10 ** (6 - digits))
            ).isoformat(" ")[0 if name != "time" else 11 :]
            for name in ("datetime", "timestamp", "time")
            for digits in range(7)
        },
        "date": lambda: draw.choice(["0000-00-00", "2000-02-29", "1000-01-01", "9999-12-31", "1900-03-01"]),
        "year": lambda: draw.choice([0, 1901, 2155]),
        "char(7)": lambda: draw.choice(["", "ä", "abcdefg"]),
        "varchar(100) CHARACTER SET latin1": lambda: draw.choice(["", "äÖ", "x" * 100]),
        "varchar(300)": lambda: "ß" * draw.randint(0, 300),
        "tinytext": lambda: "t" * draw.randint(0, 255),
        "mediumtext": lambda: "m" * draw.choice([0, 255, 256, 999, 70_000]),
        "binary(3)": lambda: draw.choice([b"", b"a\0\0", b"\0\0\0", b"abc"]),
        "varbinary(9)": lambda: draw.randbytes(draw.randint(0, 9)),
        "blob": lambda: draw.randbytes(draw.randint(0, 300)),
        "bit(1)": lambda: draw.randint(0, 1),
        "bit(17)": lambda: draw.randint(0, 2**17 - 1),
        "bit(64)": lambda: draw.randint(0, 2**64 - 1),
        "enum('a', 'ö,')": lambda: draw.choice(["a", "ö,"]),
        f"set({', '.join(repr(f'm{i}') for i in range(64))})": lambda: ",".join(
            f"m{member}" for member in sorted(draw.sample(range(64), draw.randint(0, 64)))
        ),
        "json": lambda: '{"a": [1, null, "ö"]}',
        "varchar(5) CHARACTER SET utf16": lambda: draw.choice(["", "ä€", "abc"]),
        "enum('ä', 'b') CHARACTER SET latin1": lambda: draw.choice(["ä", "b"]),
        "set('ä', 'b') CHARACTER SET latin1": lambda: draw.choice(["", "ä", "ä,b"]),
        **({
            "uuid": lambda: str(uuid.UUID(bytes=draw.randbytes(14) + bytes(2))),
            "inet6": lambda: draw.choice(["::", "::1", "1:0:2:3:4:5:6:0", "1:0:0:2::", "::ffff:1.2.3.4", "ff::"]),
            "inet4": lambda: draw.choice(["0.0.0.0", "10.1.0.0", "255.255.255.255"]),
        } if SERVER is MariaDb else {}),
    }  # fmt: skip
    few = dict(list(kinds.items())[:7])  # And the key: a byte of the bitmap has a bit for each.
    old = {kind: kinds[kind] for kind in ("datetime(0)", "timestamp(0)", "time(0)")}
    for name, own in {"many": kinds, "few": few, **({"old": old} if SERVER is MariaDb else {})}.items():
        if name == "old":
            run("SET GLOBAL mysql56_temporal_format = OFF")
        columns = ", ".join(f"c{number} {kind} NULL" for number, kind in enumerate(own))
        run(f"CREATE TABLE {name} (id int PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")
        sync_table(source, f"{run.name}.{name}", lake, f"d.{name}")
        rows = [[id, *(None if draw.random() < 0.3 else make() for make in own.values())] for id in range(150)]
        run.many(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * (len(own) + 1))})", rows)
        run(f"UPDATE {name} SET id = -id, c0 = NULL WHERE id % 3 = 1", f"DELETE FROM {name} WHERE id % 5 = 1")
        report = sync_table(source, f"{run.name}.{name}", lake, f"d.{name}")
        assert dict(report.rows_by_kind) == {"+I": 200, "-D": 50 + 20}
        sync_table(source, f"{run.name}.{name}", lake, f"d.{name}_read")
        read, followed = (
            lake.table(f"d.{name}{suffix}").scan().to_arrow().sort_by("id").combine_chunks() for suffix in ("_read", "")
        )
        assert read.num_rows == 130
        for each in read.schema.names:
            assert followed[each] == read[each], (each, list(own)[int(each[1:])])
    name = f"{run.name}.other"
    if SERVER is MariaDb:
        what, told = "v time(2)", r"'v' has fractions of seconds.*mysql56_temporal_format = ON.*restart=True"
    else:
        what, told = "v json", r"parts of changed JSON.*SET GLOBAL binlog_row_value_options = ''.*restart=True"
        run("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
    run(f"CREATE TABLE other (id int PRIMARY KEY, {what})")
    sync_table(source, name, lake, "d.other")
    if SERVER is MariaDb:
        run("INSERT INTO other VALUES (1, '10:00:00.12')", "SET GLOBAL mysql56_temporal_format = ON")
    else:
        run("INSERT INTO other VALUES (1, '{\"a\": 1}')", "UPDATE other SET v = JSON_SET(v, '$.a', 2)")
    with pytest.raises((SourceError, UnsupportedFeature), match=told):
        sync_table(source, name, lake, "d.other")
    assert not rows_of(lake.table("d.other"))


@pytest.mark.skipif(SERVER is MariaDb, reason="MariaDB's JSON is text")
def test_json_of_the_log_is_what_the_server_shows(run, source, lake):
    run("CREATE TABLE j (id int PRIMARY KEY, v json)")
    sync_table(source, f"{run.name}.j", lake, "d.j")
    run(
        "INSERT INTO j VALUES (1, JSON_OBJECT('a', 1.50, 'b', CAST('2024-02-29 10:00:00.5' AS DATETIME(6)), 'c', CAST('-100:00:01' AS TIME), "
        "'d', CAST('2024-02-29' AS DATE), 'e', -0.000001, 'f', 18446744073709551615, 'g', NULL, 'h', TRUE, 'i', x'00ff', 'j', 0.5e0, "
        "'k', JSON_ARRAY('ö\"', JSON_OBJECT()), 'l', CAST('2024-02-29 10:00:00' AS DATETIME), 'm', 12345678901234567890.000000000001)), "
        "(2, CAST('1.50' AS JSON)), (3, CAST(1.50 AS JSON)), (4, '\"text\"'), (5, 'null'), (6, NULL)"
    )
    sync_table(source, f"{run.name}.j", lake, "d.j")
    assert [(row["id"], row["v"]) for row in rows_of(lake.table("d.j"))] == list(run("SELECT id, v FROM j ORDER BY id"))


def test_rows_of_several_packets_are_read(run, server):
    """A row of 2**24 - 1 bytes is followed by an empty packet."""
    ((before,),) = run("SELECT @@global.max_allowed_packet")
    run("SET GLOBAL max_allowed_packet = 1 << 26", "CREATE TABLE t (id int PRIMARY KEY, v longtext)")
    source, sizes = MySql(server.url), [2**24 - 7, 2**24, 3]
    try:
        with server.connect(max_allowed_packet=1 << 26) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            for id, size in enumerate(sizes):
                text = f"left(repeat('ab', {size // 2 + 1}), {size})"
                cursor.execute(f"INSERT INTO {run.name}.t VALUES ({id}, {text})")
        with source.view(source.describe(f"{run.name}.t")) as view:
            (chunk,) = view.chunks(None, 10)
        assert chunk.rows["id"].to_pylist() == [0, 1, 2]
        for size, text in zip(sizes, chunk.rows["v"].to_pylist(), strict=True):
            assert text == ("ab" * (size // 2 + 1))[:size]
    finally:
        source.close()
        run(f"SET GLOBAL max_allowed_packet = {before}")


@pytest.mark.parametrize("readers", [1, 2])
def test_wide_rows_are_read_in_chunks_by_bytes(run, server, lake, readers, monkeypatch):
    run("CREATE TABLE t (id int PRIMARY KEY, v longtext)")
    run(
        *(
            f"INSERT INTO t SELECT {start} + seq, repeat('ab', IF(seq % 2, 1, 62500)) FROM (SELECT 0 AS seq UNION SELECT 1) s"
            for start in range(0, 600, 2)
        )
    )
    source = MySql(server.url, readers=readers)
    wide_rows_are_read_in_chunks_by_bytes(source, f"{run.name}.t", lake, "paimon", 600, 125_000, monkeypatch)
    source.close()


def test_a_sync_goes_on_after_its_server_restarts(server, run, lake):
    names = ["a", "b"]
    run(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names))

    def insert(number):
        with server.connect() as connection, connection.cursor() as cursor:
            for name in names:
                cursor.execute(f"INSERT INTO {run.name}.{name} VALUES ({number})")

    def interrupt():
        server.stop()
        server.start()

    source = MySql(server.url)
    a_sync_goes_on_after_its_connections_drop(
        (source, [f"{run.name}.{name}" for name in names]), lake, interrupt, insert
    )
    server.stop()  # Within its limit.
    try:
        with pytest.raises(SourceError, match="cannot be reached"):
            sync_table(source, f"{run.name}.a", lake, "d.a", until="stopped", stop=lambda: False, reconnect_seconds=1)
    finally:
        server.start()


def test_a_sync_up_to_now_goes_on_after_its_connections_drop(run, source, lake, monkeypatch, caplog):
    run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    a_sync_up_to_now_goes_on_after_its_connections_drop(
        source, f"{run.name}.t", lake, lambda: kill_connections(run), run, monkeypatch, caplog
    )


def test_a_sync_of_all_takes_up_tables(run, source, lake):
    a_sync_of_all_takes_up_tables(
        source, lake, run, [f"{run.name}.{name}" for name in ("t", "late")], rf"{run.name}\.(t|late)", has_names=True
    )


def test_a_library_stops_one_table(run, source, lake):
    run(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in "ab"), "INSERT INTO a VALUES (1)")
    a_library_stops_one_table(source, [f"{run.name}.a", f"{run.name}.b"], lake)


def test_type_options(run, server, lake):
    run(
        "CREATE TABLE t (id int PRIMARY KEY, a tinyint(1) NOT NULL, b bigint unsigned, c varchar(3), d longtext, e point)"
    )
    name = f"{run.name}.t"
    with pytest.raises(UnsupportedFeature, match=r"column 'e' is of the spatial type point.*exclude_columns"):
        sync_table(MySql(server.url), name, lake, "d.t")
    options = ["tinyint1-not-bool", "bigint-unsigned-to-bigint", "char-to-string", "longtext-to-bytes", "to-nullable"]
    run("INSERT INTO t VALUES (1, 7, 8, 'c', 'd', NULL)")
    source = MySql(server.url, type_options=options, exclude_columns=[f"{name}.e"])
    for _ in range(2):
        sync_table(source, name, lake, "d.t")
        run("INSERT INTO t VALUES (2, -7, 9, 'c', 'd', NULL)" if _ == 0 else "DO 1")
    assert [f"{field.name} {field.type} {field.nullable}" for field in lake.table("d.t").schema.fields] == [
        "id int False",
        "a tinyint True",
        "b bigint True",
        "c string True",
        "d bytes True",
    ]
    assert [tuple(row.values()) for row in rows_of(lake.table("d.t"))] == [(1, 7, 8, "c", b"d"), (2, -7, 9, "c", b"d")]
    texts = MySql(server.url, type_options=["to-string"])
    run("CREATE TABLE u (id int PRIMARY KEY, a time(3), b time, c datetime(3), d decimal(65, 30), e decimal(30, 9))")
    as_written = ("-12:00:00.500", "838:59:59", "2024-01-01 00:00:00.250", f"0.{'0' * 30}", "-0.000000001")
    for digit in "12":  # By the snapshot, then by the log.
        run(f"INSERT INTO u VALUES ({digit}, {', '.join(map(repr, as_written))})")
        sync_table(texts, f"{run.name}.u", lake, "d.u")
    assert {str(field.type) for field in lake.table("d.u").schema.fields} == {"string"}
    assert [tuple(row.values()) for row in rows_of(lake.table("d.u"))] == [("1", *as_written), ("2", *as_written)]
    texts.close()


def test_a_value_that_its_column_cannot_hold_is_null_or_text_where_that_is_allowed(run, server, lake):
    run("CREATE TABLE t (id int PRIMARY KEY, due time NOT NULL, took time(3), wide bigint unsigned, v int)")
    name = f"{run.name}.t"
    source = MySql(
        server.url,
        type_options=["bigint-unsigned-to-bigint"],
        on_misfit="null",
        text_columns=[f"{name}.took"],
    )
    for first in (0, 10):  # By the snapshot, then by the log.
        run(
            *(
                f"INSERT INTO t VALUES ({first + i}, '{'-01:00:00' if i in (3, 8) else '12:00:00'}', '30:00:00.5', "
                f"{2**64 - 1 if i == 8 else 7}, {i})"
                for i in range(10)
            )
        )
        report = sync_table(source, name, lake, "d.t")
    assert report.misfits == {"due": 4, "wide": 2}
    rows = rows_of(lake.table("d.t"))
    assert [row["id"] for row in rows if row["due"] is None] == [3, 8, 13, 18]
    assert [row["id"] for row in rows if row["wide"] is None] == [8, 18]
    assert {row["took"] for row in rows} == {"30:00:00.500"}
    assert {row["v"] for row in rows} == set(range(10))
    source.close()


KEYS = {  # Of each type literals in the server's order.
    "time": ["'9:00:00'", "'10:00:00'", "'23:59:59'"],
    "time(1)": ["'9:00:00'", "'10:00:00'", "'20:00:00.5'"],
    "bigint unsigned": ["9", "10", "18446744073709551615"],
    "tinyint(1)": ["-3", "0", "1", "2", "5"],
    "bit(1)": ["b'0'", "b'1'"],
    "bit(10)": ["b'1'", "b'1001'", "b'1010'", "b'1000000000'"],
    "bit(64)": ["b'1'", "~0"],
    "float": ["-0.3", "0.1", "0.2", "1000000.5", "1e30"],
    "double": ["-0.1", "0.1", "1.7976931348623157e308"],
    "decimal(30, 9)": ["-1.1", "9", "10", "10.000000001"],
    "year": ["1901", "2155"],
    "date": ["'0999-12-31'", "'2024-02-29'"],
    "datetime": ["'2024-02-29 09:00:00'", "'2024-02-29 10:00:00'"],
    "datetime(3)": ["'2024-02-29 09:00:00'", "'2024-02-29 09:00:00.5'", "'2024-02-29 10:00:00'"],
    "timestamp(6)": ["'2024-02-29 09:00:00'", "'2024-02-29 09:00:00.000001'"],
    "enum('z', 'b', 'it''s', 'a')": ["'z'", "'b'", "'it''s'", "'a'"],
    "set('z', 'b', 'a')": ["''", "'z'", "'b'", "'z,b'", "'a'"],
    "varchar(9) CHARACTER SET ascii COLLATE ascii_bin": ["'B'", "'a'", "'b'"],
    "varchar(9) CHARACTER SET latin1 COLLATE latin1_bin": ["'B'", "'a'", "_latin1 x'81'", "'ä'"],
    "varchar(9) CHARACTER SET latin1 COLLATE latin1_swedish_ci": ["'a'", "'B'", "'z'", "'å'"],
    "varchar(9) CHARACTER SET gbk": ["'a'", "'啊'", "'把'"],
    "varchar(9) CHARACTER SET sjis": ["'a'", "'あ'", "'亜'"],
    "varchar(9) CHARACTER SET ucs2": ["'a'", "'B'", "'ä€'"],
    "char(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": ["'B'", "'a'", "'a%'"],
    "varbinary(9)": ["x'00'", "x'0000'", "x'7f'", "x'ff'"],
    "binary(2)": ["x'00'", "x'7f'", "x'ff'"],
    **({
        "uuid": [f"'{digit}50e8400-e29b-41d4-a716-44665544000{9 - digit}'" for digit in (8, 5, 1)],
        "inet6": ["'::1'", "'::a'", "'::10'"],
        "inet4": ["'9.0.0.0'", "'10.0.0.0'"],
    } if SERVER is MariaDb else {}),
}  # fmt: skip


@pytest.mark.drawn(6)
@pytest.mark.parametrize("type", KEYS)
def test_keys_are_compared_as_the_server_orders_them(run, source, lake, type):
    """As of a snapshot that is read in several views: which chunk a changed row is of. Alone and as the first column of a key."""
    for key, name in (("k", "t"), ("k, n", "u")):
        run(f"CREATE TABLE {name} (k {type} NOT NULL, n int, v int, PRIMARY KEY ({key}))")
        run(*(f"INSERT INTO {name} VALUES ({literal}, {index}, 0)" for index, literal in enumerate(KEYS[type])))
        table, count = source.describe(f"{run.name}.{name}"), len(KEYS[type])
        with source.view(table) as view:
            chunks = [(chunk.upto, chunk.rows) for chunk in view.chunks(None, 1)]
        assert len(chunks) == count
        rows = pa.concat_tables([rows for _, rows in chunks])
        assert sorted(rows["n"].to_pylist()) == list(range(count))
        order = rows["n"].to_pylist()
        ordered = run(f"SELECT n FROM {name} ORDER BY {key}")
        assert order == [number for (number,) in ordered]
        for number, (bound, _) in enumerate(chunks[:-1]):
            assert source.upto(table, rows, bound).tolist() == [index <= number for index in range(count)]
        for number in range(count):
            sync_table(source, f"{run.name}.{name}", lake, f"d.{name}", batch_rows=1, max_rows=1)
            run(f"UPDATE {name} SET v = v + 1 WHERE n IN ({order[0]}, {order[number]})")
        sync_table(source, f"{run.name}.{name}", lake, f"d.{name}", batch_rows=1)
        values = lake.table(f"d.{name}").scan().to_arrow().sort_by("n")["v"].to_pylist()
        assert values == [number for (number,) in run(f"SELECT v FROM {name} ORDER BY n")]


def _characters(charset):
    """The bytes of the characters that a character set may have."""
    single = [bytes([byte]) for byte in range(1, 256)]
    trails = [bytes([lead, trail]) for lead in range(0x81, 0xFF) for trail in (*range(0x30, 0x7F), *range(0x80, 0xFF))]
    match charset:
        case "sjis" | "cp932" | "big5" | "gbk" | "gb2312" | "euckr":
            return single + trails
        case "ujis" | "eucjpms":
            return single + trails + [b"\x8f" + two for two in trails if min(two) >= 0xA1]
        case "gb18030":
            fours = [
                bytes([first, second, third, fourth])
                for first in (*range(0x81, 0x85), 0x90, 0xE3)
                for second in range(0x30, 0x3A)
                for third in range(0x81, 0xFF)
                for fourth in range(0x30, 0x3A)
            ]
            return single + trails + fours
        case "ucs2" | "utf16":
            return [bytes([high, low]) for high in range(256) for low in range(256)]
        case "utf16le":
            return [bytes([low, high]) for high in range(256) for low in range(256)]
        case "utf32":
            return [number.to_bytes(4) for number in (*range(0x10000), 0x1F600, 0x10FFFF)]
        case "utf8" | "utf8mb3" | "utf8mb4":
            return [chr(number).encode() for number in range(0x10000) if not 0xD800 <= number < 0xE000]
        case _:
            return single


def test_every_character_is_what_the_server_shows(run, server, source, lake):
    """Of every character set of the server, by the snapshot and by the log: each valid character, where it is stored, in a row of its own."""
    charsets = [
        name for (name,) in run("SELECT character_set_name FROM information_schema.character_sets") if name != "binary"
    ]
    assert {"latin1", "sjis", "hebrew", "koi8u", "greek", "cp866", "euckr", "ujis", "big5", "dec8"} <= set(charsets)
    for charset in some(charsets, 6):
        run(
            f"CREATE TABLE {charset} (id int PRIMARY KEY, v varchar(9) CHARACTER SET {charset}, t text CHARACTER SET {charset}, "
            f"e enum('a', 'é', 'я') CHARACTER SET {charset})"
        )
        characters = _characters(charset)
        for start in range(0, len(characters), 5000):
            rows = (
                f"({number}, CONVERT(x'{one.hex()}' USING {charset}), CONVERT(x'{(one + one).hex()}' USING {charset}), {1 + number % 3})"
                for number, one in enumerate(characters[start : start + 5000], start)
            )
            run(f"INSERT INTO {charset} VALUES {', '.join(rows)}")
        sync_table(source, f"{run.name}.{charset}", lake, f"d.{charset}")
        snapshot = lake.table(f"d.{charset}").scan().to_arrow().sort_by("id")
        assert pa.compute.count(snapshot["v"]).as_py() >= 128
        run(f"UPDATE {charset} SET id = -1 - id")
        sync_table(source, f"{run.name}.{charset}", lake, f"d.{charset}")
        log = lake.table(f"d.{charset}").scan().to_arrow().sort_by([("id", "descending")])
        for name in ("v", "t", "e"):
            pairs = zip(characters, snapshot[name].to_pylist(), log[name].to_pylist(), strict=True)
            wrong = [(one.hex(), before, after) for one, before, after in pairs if before != after]
            assert not wrong, (charset, name, len(wrong), wrong[:5])
        run(f"DROP TABLE {charset}")


@FORMATS
def test_table_ids_begin_anew_with_the_server(server, run, lake, format):
    """Tables that are not followed have the ids of followed ones after a restart, in the log of one sync; however the server ended."""
    names = ["a", "b", "c", "d"]
    run(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in names))
    source, followed = MySql(server.url), f"{run.name}.c"
    sync_table(source, followed, lake, "d.t", format)
    source.close()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        other = SERVER(folder)
        try:
            other.start(*DURABLE, *LOGS_ALL)
            with other.connect() as connection, connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE x")
                for name in names:
                    cursor.execute(f"CREATE TABLE x.{name} (id int PRIMARY KEY, v int)")
            source = MySql(other.url, name="restarts")
            sync_table(source, "x.c", lake, "d.restarted", format)
            source.close()
            for number in range(4):
                order = names[number:] + names[:number]
                with other.connect() as connection, connection.cursor() as cursor:
                    for name in order:
                        cursor.execute(f"INSERT INTO x.{name} VALUES ({number}, {number + ord(name)})")
                if number % 2:
                    other.crash(*DURABLE, *LOGS_ALL)
                else:
                    other.stop()
                    other.start(*DURABLE, *LOGS_ALL)
            sync_table(source, "x.c", lake, "d.restarted", format)
            source.close()
        finally:
            other.stop()
    assert [tuple(row.values()) for row in rows_of(lake.table("d.restarted"))] == [(n, n + ord("c")) for n in range(4)]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_rolled_back_leaves_nothing(run, source, lake, seed):
    """Random transactions with savepoints, beside temporary tables and tables of engines without transactions, which the log has."""
    draw = random.Random(seed)
    run(
        "CREATE TABLE i (id int PRIMARY KEY, v int) ENGINE=InnoDB",
        "CREATE TABLE m (id int PRIMARY KEY, v int) ENGINE=MyISAM",
    )

    def statement(number):
        id, savepoint = draw.randint(1, 9), draw.choice(["s", "`S`", "`t u`", "`ro``ll`"])
        return draw.choice([
            f"INSERT INTO i VALUES ({id}, {number}) ON DUPLICATE KEY UPDATE v = {number}",
            f"INSERT INTO i VALUES ({id}, {number}) ON DUPLICATE KEY UPDATE v = {number}",
            f"DELETE FROM i WHERE id = {id}",
            f"INSERT INTO m VALUES ({id}, {number}) ON DUPLICATE KEY UPDATE v = {number}",
            f"SAVEPOINT {savepoint}",
            f"ROLLBACK TO {savepoint}",
            f"RELEASE SAVEPOINT {savepoint}",
            "CREATE TEMPORARY TABLE IF NOT EXISTS temporary (id int)",
            "INSERT INTO temporary VALUES (1)",
            "INSERT INTO i SELECT 20 + id, 0 FROM temporary",
            "DROP TEMPORARY TABLE IF EXISTS temporary",
        ])  # fmt: skip

    for round in range(6):
        for transaction in range(12):
            statements = [statement(100 * round + transaction) for _ in range(draw.randint(1, 8))]
            for text in ("BEGIN", *statements, draw.choice(["COMMIT", "ROLLBACK"])):
                with suppress(pymysql.Error):  # No such savepoint; MySQL refuses some of these in a transaction.
                    run(text)
        for name in ("i", "m"):
            limit = draw.choice([1, 5, 100_000])
            sync_table(source, f"{run.name}.{name}", lake, f"d.{name}", batch_rows=limit)
            rows = [tuple(row.values()) for row in rows_of(lake.table(f"d.{name}"))]
            assert rows == list(run(f"SELECT * FROM {name} ORDER BY id")), f"seed {seed}, round {round}, {name}"


def test_a_compressed_log_is_read(run, source, lake):
    setting = "GLOBAL log_bin_compress" if SERVER is MariaDb else "SESSION binlog_transaction_compression"
    run("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u LIKE t")
    name = f"{run.name}.t"
    sync_table(source, name, lake, "d.t")
    try:
        run(f"SET {setting} = ON")
        for number in range(3):
            run(
                "BEGIN",
                f"INSERT INTO t VALUES ({number}, repeat('a', 999)), ({10 + number}, 'b')",
                "INSERT INTO u SELECT id + 100, v FROM t",
            )
            run("UPDATE t SET v = concat(v, 'c')", "DELETE FROM t WHERE id = 11", "DELETE FROM u", "COMMIT")
        run(f"ALTER TABLE t COMMENT '{'long' * 100}', ADD w int DEFAULT 7", "INSERT INTO t VALUES (99, 'z', 8)")
    finally:
        run(f"SET {setting} = OFF")
    sync_table(source, name, lake, "d.t")
    assert [tuple(row.values()) for row in rows_of(lake.table("d.t"))] == list(run("SELECT * FROM t ORDER BY id"))


@pytest.mark.skipif(SERVER is MariaDb, reason="MariaDB 10.11 has no VECTOR")
@FORMATS
def test_vectors_are_their_bytes(run, source, lake, format):
    run(
        "CREATE TABLE t (id int PRIMARY KEY, a varchar(9) CHARACTER SET latin1, v vector(3), b text CHARACTER SET sjis)"
    )
    for number in (1, 2):  # By the snapshot, then by the log.
        run(f"INSERT INTO t VALUES ({number}, 'ä', to_vector('[1,2.5,-3]'), 'あ'), ({number + 2}, NULL, NULL, NULL)")
        sync_table(source, f"{run.name}.t", lake, "d.t", format)
    rows = [tuple(row.values())[1:] for row in rows_of(lake.table("d.t"))]
    assert rows[:2] == [("ä", struct.pack("<3f", 1, 2.5, -3), "あ")] * 2
    assert rows[2:] == [(None, None, None)] * 2


def test_a_table_that_the_log_does_not_do_stops_alone(run, server, source, lake):
    """What others wrote in the same log comes; a table that was taken anew goes on."""
    names = ["dropped", "replaced", "moved", "xa", "text", "parts", "places", "unnamed", "good"]
    run(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in names))
    run(*(f"INSERT INTO {name} VALUES (1, 1), (2, 2)" for name in names))

    def sync():
        found = sync_database(source, lake, "d", including=rf"{run.name}\..*")
        return {name.rpartition(".")[2]: kind for name, kind in found.items()}

    assert all(report.snapshot_rows == 2 for report in sync().values())
    again = "CREATE OR REPLACE TABLE replaced" if SERVER is MariaDb else "CREATE TABLE IF NOT EXISTS replaced"
    run("DROP TABLE dropped", "CREATE TABLE dropped (id int PRIMARY KEY, v int)", "INSERT INTO dropped VALUES (1, 7)")
    run(*(() if SERVER is MariaDb else ("DROP TABLE IF EXISTS replaced",)), f"{again} (id int PRIMARY KEY, v int)")
    run("CREATE TABLE IF NOT EXISTS good (id int)")  # It is there.
    run("RENAME TABLE moved TO gone", "CREATE TABLE IF NOT EXISTS moved (id int PRIMARY KEY, v int)")
    run("CREATE TABLE new LIKE good", "INSERT INTO new SELECT * FROM good", "RENAME TABLE good TO old, new TO good")
    run("XA START 'x'", "UPDATE xa SET v = 3", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
    run("SET SESSION binlog_format = 'STATEMENT'", "UPDATE text SET v = 3", "SET SESSION binlog_format = 'ROW'")
    run("SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE parts SET v = 3", "SET SESSION binlog_row_image = 'FULL'")
    run("SET GLOBAL binlog_row_metadata = 'MINIMAL'", "UPDATE unnamed SET v = 3")
    run("SET GLOBAL binlog_row_metadata = 'FULL'", "ALTER TABLE places ADD p point", "UPDATE places SET v = 3")
    run("UPDATE good SET v = 3")
    told = {
        "dropped": "dropped, renamed or made anew",
        "replaced": "dropped, renamed or made anew",
        "moved": "dropped, renamed or made anew",
        "xa": "XA transaction",
        "text": "as statements",
        "parts": "lacks columns",
        "places": "spatial type",
        "unnamed": "without column names",
    }
    for number in range(2):  # It stays so.
        reports = sync()
        for name, text in told.items():
            assert re.search(text, str(reports[name].error)), (name, reports[name])
            assert [row["v"] for row in rows_of(lake.table(f"d.{name}"))] == [1, 2]
        assert (reports["good"].error, reports["good"].filled_rows) == (None, 2 - 2 * number)
    for name in set(told) - {"places"}:
        with pytest.raises(LakeError, match=f"{told[name]}.*restart=True"):
            sync_table(source, f"{run.name}.{name}", lake, f"d.{name}")
        sync_table(source, f"{run.name}.{name}", lake, f"d.{name}", restart=True)
        assert [tuple(row.values()) for row in rows_of(lake.table(f"d.{name}"))] == list(run(f"SELECT * FROM {name}"))
    dropped, after = source.describe(f"{run.name}.dropped"), source.position()
    run("DROP TABLE dropped")  # What follows may come in another sync.
    (batch,) = source.changes(after, source.position(), {dropped.name: dropped}, 9)
    assert "old rows are not deleted" in str(batch.failed[dropped.name][0].error)
    run("CREATE TABLE later (id int PRIMARY KEY, v int)", "INSERT INTO later VALUES (1, 1)", "UPDATE good SET v = 4")
    reports = sync()  # The log of "good" makes this one, which is read after that.
    assert (reports["later"].error, reports["later"].snapshot_rows, reports["good"].rows) == (None, 1, 4)


@FORMATS
def test_a_sync_goes_on_where_the_table_stands(run, source, lake, format):
    """Also after a rollback, for the log is kept; over files of the log; and rows that are not committed are not there."""
    name = f"{run.name}.t"
    run("CREATE TABLE t (id int, part varchar(9), v int, PRIMARY KEY (id, part))")
    run("INSERT INTO t SELECT seq, IF(seq % 2, 'ä', 'B'), 0 FROM seq_1_to_25" if _has_sequences(run) else _series(25))
    assert sync_table(source, name, lake, "d.t", format, batch_rows=10, max_rows=15).snapshot_rows == 20
    run("UPDATE t SET v = 1 WHERE id IN (3, 24)")
    report = sync_table(source, name, lake, "d.t", format, batch_rows=10)
    assert (report.snapshot_rows, dict(report.rows_by_kind)) == (5, {"-U": 1, "+U": 1})
    table = lake.table("d.t")
    before = table.current_snapshot()
    run("FLUSH BINARY LOGS", "BEGIN", "UPDATE t SET v = 2", "DELETE FROM t WHERE id > 20", "COMMIT")
    run("BEGIN", "UPDATE t SET v = 99", "ROLLBACK", "FLUSH BINARY LOGS", "UPDATE t SET id = 100 WHERE id = 1")
    expected = {"-U": 25, "+U": 25, "-D": 6, "+I": 1}
    for _ in range(2):
        report = sync_table(source, name, lake, "d.t", format, batch_rows=10)
        assert (dict(report.rows_by_kind), len(report.snapshots)) == (expected, 2)
        assert [(row["id"], row["v"]) for row in rows_of(table)] == list(run("SELECT id, v FROM t ORDER BY id"))
        assert sync_table(source, name, lake, "d.t", format).rows == 0
        table.rollback_to(before.id)


def _has_sequences(run):
    return any(row[0] == "SEQUENCE" for row in run("SHOW ENGINES"))


def _series(count):
    return "INSERT INTO t VALUES " + ", ".join(f"({i}, '{'ä' if i % 2 else 'B'}', 0)" for i in range(1, count + 1))


@contextmanager
def writing(server, pause, *statements):
    """These statements run one after the other, again and again with a pause of seconds, until the block ends."""
    ends = Event()

    def write():
        with server.connect() as connection, connection.cursor() as cursor:
            while not ends.wait(pause):
                for statement in statements:
                    cursor.execute(statement)

    with ThreadPoolExecutor(1) as pool:
        writes = pool.submit(write)
        try:
            yield
        finally:
            ends.set()
        writes.result()


def test_connections_read_a_snapshot_together_in_one_view(run, server, lake):
    name, key = f"{run.name}.t", {"changelog-producer": "input", "bucket": "1"}
    run("CREATE TABLE t (id int, part varchar(9), v int, PRIMARY KEY (id, part))", _series(45))
    source = MySql(server.url, readers=3)
    table = source.describe(name)
    with writing(server, 0, f"UPDATE {name} SET v = v + 1"):
        for _ in range(3):
            with source.view(table) as view:
                chunks = list(view.chunks(("3", "ä"), 8))
            assert [chunk.upto and int(chunk.upto[0]) for chunk in chunks] == [11, 19, 27, 35, 43, None]
            read = pa.concat_tables([chunk.rows for chunk in chunks]).to_pylist()
            assert [row["id"] for row in read] == list(range(4, 46))
            assert len({row["v"] for row in read}) == 1
    run("UPDATE t SET v = v + 1")
    batch = next(source.changes(view.until, source.position(), {name: table}, 1))
    assert batch.tables[name].rows["v"][0].as_py() == read[0]["v"]  # What the first update after the view replaced.
    moves = f"UPDATE {name} SET id = 91 - id, v = v + 1 WHERE id IN (1, 90, 44, 47)"
    with writing(server, 0.1, f"UPDATE {name} SET v = v + 1 WHERE id % 7 = 0", moves):
        report = sync_table(source, name, lake, "d.t", properties=key, batch_rows=6, max_rows=18)
        assert (report.snapshot_rows, report.is_complete) == (18, False)
        sync_table(source, name, lake, "d.t", batch_rows=6, max_rows=30)
    sync_table(source, name, lake, "d.t")
    found = lake.table("d.t")
    expected = list(run("SELECT id, part, v FROM t ORDER BY id"))
    assert [tuple(row.values()) for row in rows_of(found)] == expected
    replayed = replay(found.changes(0).to_arrow().to_pylist(), ["id"])
    assert [tuple(replayed[key].values()) for key in sorted(replayed)] == expected
    source.close()
    with pytest.raises(InvalidInput, match="readers=0"):
        MySql(server.url, readers=0)


def test_a_snapshot_of_several_connections_goes_on_where_one_dropped(run, server, lake):
    name, left = f"{run.name}.t", [3]
    run("CREATE TABLE t (id int, part varchar(9), v int, PRIMARY KEY (id, part))", _series(30))
    source = MySql(server.url, readers=2)

    def drop():
        left[0] -= 1
        if left[0] == 0:
            run(f"KILL {max(row[0] for row in run('SHOW PROCESSLIST'))}")  # The last to come: it reads.

    with pytest.raises(SourceError, match="run it again"):
        sync_table(source, name, lake, "d.t", batch_rows=2, stop=drop, reconnect_seconds=0)
    done = lake.table("d.t").scan().count()
    assert 6 <= done < 30
    assert [row["id"] for row in rows_of(lake.table("d.t"))] == list(range(1, done + 1))
    run("UPDATE t SET v = 1 WHERE id IN (1, 30)", "DELETE FROM t WHERE id = 2")
    report = sync_table(source, name, lake, "d.t", batch_rows=9)
    assert (report.snapshot_rows, report.is_complete) == (30 - done, True)
    assert [tuple(row.values()) for row in rows_of(lake.table("d.t"))] == list(run("SELECT * FROM t ORDER BY id"))
    run("INSERT INTO t VALUES (99, 'x', 1)")  # Nothing is locked.
    source.close()


def test_the_log_is_read_once_up_to_its_end(run, source, lake):
    """MariaDB drops a reader that does not block at the log's end, and one that connects again reads it again."""
    run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY)")
    name = f"{run.name}.t"
    sync_table(source, name, lake, "d.t")
    for start in range(0, 2000, 500):
        run("INSERT INTO t VALUES " + ", ".join(f"({i})" for i in range(start, start + 500)))
    run("INSERT INTO other VALUES (1)")  # The last event is not of the table.
    report = sync_table(source, name, lake, "d.t", batch_rows=700)
    assert (report.rows, len(report.snapshots), lake.table("d.t").scan().count()) == (2000, 2, 2000)


@FORMATS
def test_a_transaction_that_is_larger_than_a_batch_comes_in_parts_and_is_one_commit(run, source, lake, format):
    name = f"{run.name}.t"
    run("CREATE TABLE t (id int PRIMARY KEY, v int, note text)", "CREATE TABLE other (id int PRIMARY KEY)")
    for each in ("t", "other"):
        sync_table(source, f"{run.name}.{each}", lake, f"d.{each}", format)
    rows = [(id, 0, "n" * 300) for id in range(60)]
    run("BEGIN")
    run.many("INSERT INTO t VALUES (%s, %s, %s)", rows)
    for step in range(5):
        run(f"UPDATE t SET v = {step}, id = id + 1 ORDER BY id DESC", f"INSERT INTO other VALUES ({step})")
    run("DELETE FROM t WHERE id % 4 = 0", "COMMIT")
    table = source.describe(name)
    after = source.parse(lake.table("d.t").current_snapshot().properties["cdc.position"])
    parts = list(source.changes(after, source.position(), {name: table}, 10))
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) > 5
    assert {part.position for part in parts} == {parts[-1].position}
    assert len({end for part in parts for end in part.tables[name].ends.tolist()}) == 1
    report = sync_table(source, name, lake, "d.t", format, batch_rows=10)
    assert (dict(report.rows_by_kind), len(report.snapshots)) == ({"+I": 60 * 6, "-D": 60 * 5 + 15}, 1)
    assert [tuple(row.values()) for row in rows_of(lake.table("d.t"))] == list(run("SELECT * FROM t ORDER BY id"))
    assert sync_table(source, f"{run.name}.other", lake, "d.other", batch_rows=10).rows == 5


@FORMATS
def test_columns_and_whole_tables_that_change_are_followed(run, source, lake, format):
    name = f"{run.name}.t"
    run("CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(3), d text)", "INSERT INTO t VALUES (1, 1, 'x', 'd')")
    sync_table(source, name, lake, "d.t", format)
    run(
        "INSERT INTO t VALUES (2, 2, 'y', NULL)",
        "ALTER TABLE t MODIFY a bigint, MODIFY b varchar(9), ADD e date COMMENT 'new' AFTER id, DROP d",
    )
    run(
        "INSERT INTO t VALUES (3, '2024-01-01', 9000000000, 'xxxxxx')",
        "ALTER TABLE t CHANGE e f date COMMENT 'new', ADD g int AS (a + 1) VIRTUAL",
    )
    run("INSERT INTO t (id, f, a) VALUES (4, '2024-01-02', 0)")
    sync_table(source, name, lake, "d.t", format)
    table = lake.table("d.t")
    assert [(row["id"], row["a"], row["b"], row["d"], row["e"], row["f"]) for row in rows_of(table)] == [
        (1, 1, "x", "d", None, None),
        (2, 2, "y", None, None, None),
        (3, 9000000000, "xxxxxx", None, None, datetime.date(2024, 1, 1)),
        (4, 0, None, None, None, datetime.date(2024, 1, 2)),
    ]
    assert [row["g"] for row in rows_of(table)] == [row[0] for row in run("SELECT g FROM t ORDER BY id")]
    assert table.schema.field("f").comment == "new"
    run(
        "ALTER TABLE t ADD h varchar(9) NOT NULL DEFAULT 'there'",
        "UPDATE t SET h = 'set' WHERE id = 1",
        "ALTER TABLE t ALTER h DROP DEFAULT",
    )
    report = sync_table(source, name, lake, "d.t", format, batch_rows=2)
    assert ([row["h"] for row in rows_of(table)], report.filled_rows) == (["set", "there", "there", "there"], 3)
    run("INSERT INTO t (id) VALUES (5)", "TRUNCATE TABLE t", "INSERT INTO t (id) VALUES (6)")
    report = sync_table(source, name, lake, "d.t", format)
    assert dict(report.rows_by_kind) == {"-D": 4, "+I": 1}
    assert [row["id"] for row in rows_of(table)] == [6]
    run("ALTER TABLE t MODIFY a text", "INSERT INTO t (id, a) VALUES (7, 'no number')")
    with pytest.raises(UnsupportedFeature, match=r"d\.t cannot follow a change of .*\.t"):
        sync_table(source, name, lake, "d.t", format)


@FORMATS
def test_rows_that_change_without_the_log_are_those_of_the_source(run, source, lake, format):
    """By columns that change their types or names, by a table that takes another's name: the log has none of it, and what it has beside it comes once."""
    name, properties = f"{run.name}.t", {"changelog-producer": "input", "bucket": "1"} if format == "paimon" else {}
    run("CREATE TABLE t (id int PRIMARY KEY, v int, w int, e enum('a', 'b'), u varchar(9))")
    run("INSERT INTO t VALUES " + ", ".join(f"({i}, {i * 100}, {-i}, 'a', 'abcdef')" for i in range(1, 21)))
    sync_table(source, name, lake, "d.t", format, properties=properties, batch_rows=7)
    statements = (
        ("INSERT INTO t VALUES (21, 1, 1, 'b', '')", "ALTER TABLE t MODIFY v tinyint, MODIFY u varchar(3), MODIFY e enum('x', 'b')", "UPDATE t SET v = 1 WHERE id = 3"),
        ("ALTER TABLE t CHANGE v w int, CHANGE w v int", "DELETE FROM t WHERE id = 4"),
        ("ALTER TABLE t DROP w", "INSERT INTO t (id, v) VALUES (30, 1)", "ALTER TABLE t ADD w int DEFAULT 7"),
        ("ALTER TABLE t DROP w",), ("ALTER TABLE t ADD w int DEFAULT 8",),
        ("CREATE TABLE n LIKE t", "INSERT INTO n SELECT id + 1, v, 1, e, u FROM t", "RENAME TABLE t TO o, n TO t", "UPDATE t SET v = 9 WHERE id = 6"),
    )  # fmt: skip
    for statement in statements:
        run(*statement)
        report = sync_table(source, name, lake, "d.t", format, properties=properties, batch_rows=7)
        assert (report.filled_rows > 0) == (statement != ("ALTER TABLE t DROP w",)), statement
        names = [row[0] for row in run("SHOW COLUMNS FROM t")]
        assert [tuple(row[name] for name in names) for row in rows_of(lake.table("d.t"))] == list(
            run("SELECT * FROM t ORDER BY id")
        ), statement
    assert sync_table(source, name, lake, "d.t", format).filled_rows == 0
    if format == "paimon":
        replayed = replay(lake.table("d.t").changes(0).to_arrow().to_pylist(), ["id"])
        assert [replayed[key] for key in sorted(replayed)] == rows_of(lake.table("d.t"))


@FORMATS
def test_what_changes_and_changes_back_between_two_syncs_is_followed(run, server, source, lake, format):
    """Types, the key and a foreign key that are the old ones again, though rows in the log have others."""
    name = f"{run.name}.t"
    run("CREATE TABLE p (id int PRIMARY KEY)", "INSERT INTO p VALUES (1), (2), (3)")
    run("CREATE TABLE t (id int PRIMARY KEY, v int, w varchar(9))", "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
    sync_table(source, name, lake, "d.t", format)
    for statements in (
        ("ALTER TABLE t MODIFY v varchar(9)", "UPDATE t SET v = '07' WHERE id = 1", "ALTER TABLE t MODIFY v int"),
        ("ALTER TABLE t MODIFY id varchar(9)", "INSERT INTO t VALUES ('3', 1, 'c')", "ALTER TABLE t MODIFY id int"),
        (
            "ALTER TABLE t ADD CONSTRAINT k FOREIGN KEY (v) REFERENCES p (id) ON DELETE SET NULL",
            "DELETE FROM p WHERE id = 1",
            "ALTER TABLE t DROP FOREIGN KEY k",
        ),
        (
            "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",
            "INSERT INTO t VALUES (1, 99, 'x')",
            "DELETE FROM t WHERE v = 99",
            "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
        ),
        (
            "ALTER TABLE t CHANGE w w2 varchar(9), ADD w varchar(9) DEFAULT 'd'",
            "ALTER TABLE t DROP w, CHANGE w2 w text",
        ),
    ):
        run("UPDATE t SET v = 1, w = CONCAT(w, '-')", *statements)
        again = MySql(server.url)
        sync_table(again, name, lake, "d.t", format)
        again.close()
        rows = [(row["id"], row["v"], row["w"]) for row in rows_of(lake.table("d.t"))]
        assert rows == list(run("SELECT id, v, w FROM t ORDER BY id")), statements


def test_a_table_that_is_made_anew_with_other_columns_is_no_other_process(run, source, lake):
    run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    sync_table(source, f"{run.name}.t", lake, "d.t")
    run("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, z double)", "INSERT INTO t VALUES (1, 0.5)")
    for _ in range(2):
        with pytest.raises(NotFound, match=r"dropped, renamed or made anew.*restart=True"):
            sync_table(source, f"{run.name}.t", lake, "d.t")
    sync_table(source, f"{run.name}.t", lake, "d.t", restart=True)
    assert rows_of(lake.table("d.t")) == [{"id": 1, "v": None, "z": 0.5}]


def test_a_replica_takes_over(run, server, lake):
    """Its log has other files and places; what it has in common with the first server's are GTIDs."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        replica = SERVER(folder, id=2)
        replica.start(*LOGS_ALL, *SERVER.replicates, "--log-bin=other-bin", "--binlog-ignore-db=ignored")
        try:
            with replica.connect() as connection, connection.cursor() as there:
                _takes_over(run, server, lake, replica, there)
        finally:
            replica.stop()


def _takes_over(run, server, lake, replica, there):
    run("CREATE USER IF NOT EXISTS replica IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO replica")
    (start,) = run(server.gtids)[0]
    for statement in (
        *replica.follow(server, start),
        "SET sql_log_bin = 0",
        f"CREATE DATABASE {run.name}",
        "SET sql_log_bin = 1",
        "FLUSH BINARY LOGS",
        server.start_replica,
    ):
        there.execute(statement)

    def caught_up():
        there.execute(server.waits(*run(server.gtids)[0]))
        assert there.fetchone() == (0,)

    name, key = f"{run.name}.t", {"changelog-producer": "input", "bucket": "1"}
    first, second = MySql(server.url, name="shop"), MySql(replica.url, name="shop")
    run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)")
    assert sync_table(first, name, lake, "d.t", properties=key).snapshot_rows == 3
    caught_up()
    there.execute(server.stop_replica)
    run("UPDATE t SET v = 1 WHERE id = 1")
    position = sync_table(first, name, lake, "d.t").position
    assert position.split(";")[1] == str(run(server.identity)[0][0])
    with pytest.raises(NotFound, match="a replica that is behind, run it again when it has caught up"):
        sync_table(second, name, lake, "d.t")
    second.close()
    run("UPDATE t SET v = 2 WHERE id = 2", "UPDATE t SET v = 2 WHERE id = 3")
    there.execute(server.start_replica)
    caught_up()
    there.execute(server.stop_replica)
    there.execute(f"DELETE FROM {run.name}.t WHERE id = 1")
    report = sync_table(second, name, lake, "d.t")
    assert dict(report.rows_by_kind) == {"-U": 2, "+U": 2, "-D": 1}
    there.execute(server.identity)
    assert (report.position.split(";")[1], report.position[:9]) == (str(there.fetchone()[0]), "other-bin")
    assert rows_of(lake.table("d.t")) == [{"id": 2, "v": 2}, {"id": 3, "v": 2}]
    assert replay(lake.table("d.t").changes(0).to_arrow().to_pylist(), ["id"]).keys() == {(2,), (3,)}
    assert sync_table(second, name, lake, "d.t").rows == 0
    there.execute("CREATE DATABASE ignored")
    there.execute("CREATE TABLE ignored.t (id int PRIMARY KEY)")
    with pytest.raises(
        SourceError, match=r"leaves the database 'ignored' out of its log \(binlog_do_db, binlog_ignore_db\)"
    ):
        sync_table(second, "ignored.t", lake, "d.ignored")
    # A position as it was written before it had GTIDs, which MariaDB alone looks up.
    old = first.parse(position.partition(";")[0])
    (batch,) = first.changes(old, first.position(), {name: first.describe(name)}, 100)
    assert (batch.tables[name].rows.num_rows, batch.position.text.count(";")) == (4, 2 * (SERVER is MariaDb))
    first.close()
    second.close()


def test_rows_that_move_between_shards(run, source, lake):
    run("CREATE TABLE t_1 (id int PRIMARY KEY, v int)", "CREATE TABLE t_2 (id int PRIMARY KEY, v int)")
    run("INSERT INTO t_1 VALUES (1, 1), (2, 1)", "INSERT INTO t_2 VALUES (3, 1)")

    def sync():
        shards = re.compile(rf"{run.name}\.t_\d")
        return sync_table(source, shards, lake, "d.t", properties={"changelog-producer": "input", "bucket": "1"})

    assert sync().snapshot_rows == 3
    for old, new in (("t_1", "t_2"), ("t_2", "t_1"), ("t_1", "t_2")):
        run("BEGIN", f"DELETE FROM {old} WHERE id = 1", f"INSERT INTO {new} VALUES (1, 2)", "COMMIT")
    run("UPDATE t_1 SET v = 3 WHERE id = 2")
    assert len(sync().snapshots) == 1
    replayed = replay(lake.table("d.t").changes(0).to_arrow().to_pylist(), ["id"])
    expected = [(1, 2, "t_2"), (2, 3, "t_1"), (3, 1, "t_2")]
    assert [(row["id"], row["v"], row["table_name"]) for row in rows_of(lake.table("d.t"))] == expected
    assert sorted((row["id"], row["v"], row["table_name"]) for row in replayed.values()) == expected
    reports = sync_database(source, lake, "e", including=rf"{run.name}\.t_1", merge_shards=True)
    assert (reports["*.t_1"].snapshot_rows, reports["*.t_1"].table) == (1, "e.t_1")


def test_nothing_is_lost_in_silence(run, server, source, lake):
    """By odd names, by rows that come and go without the log; and a lock that is held keeps neither a snapshot nor writers waiting."""
    run(
        "CREATE TABLE `100% ``t` (`id` int PRIMARY KEY, `a%` int)",
        "INSERT INTO `100% ``t` VALUES (1, 1), (2, 2), (3, 3)",
    )
    name = f"{run.name}.100% `t"
    assert sync_table(source, name, lake, "d.t", batch_rows=2).snapshot_rows == 3
    run("TRUNCATE /* all */ TABLE `100% ``t`", "INSERT INTO `100% ``t` VALUES (4, 4)")
    assert dict(sync_table(source, name, lake, "d.t").rows_by_kind) == {"-D": 3, "+I": 1}
    run("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))")
    run("CREATE TABLE q (id int PRIMARY KEY)", "INSERT INTO p VALUES (1)")
    sync_database(source, lake, "e", including=rf"{run.name}\.[pq]")
    run("ALTER TABLE p TRUNCATE PARTITION p0", "INSERT INTO q VALUES (1)")
    reports = sync_database(source, lake, "e", including=rf"{run.name}\.[pq]")
    assert (reports[f"{run.name}.p"].filled_rows, rows_of(lake.table("e.p"))) == (1, [])
    assert reports[f"{run.name}.q"].rows == 1
    run("CREATE TABLE c (id int PRIMARY KEY, q int, FOREIGN KEY (q) REFERENCES q (id) ON DELETE CASCADE)")
    run("INSERT INTO c VALUES (1, 1)")
    if SERVER is MariaDb:  # MySQL logs what a foreign key changes.
        with pytest.raises(
            SourceError, match=r"ON DELETE CASCADE, which the server does not log.*unlogged_cascades=accept"
        ):
            sync_table(source, f"{run.name}.c", lake, "d.c")
    accepting = MySql(f"{server.url}&unlogged_cascades=accept")
    assert sync_table(accepting, f"{run.name}.c", lake, "d.c").snapshot_rows == 1
    run("DELETE FROM q")
    assert sync_table(accepting, f"{run.name}.c", lake, "d.c").rows == (0 if SERVER is MariaDb else 1)
    accepting.close()
    run("INSERT INTO q VALUES (1)")
    place, who, known = sync_table(source, f"{run.name}.q", lake, "e.q").position.split(";")
    later = re.sub(r"\d+$", lambda last: str(int(last[0]) + 1000), known)
    properties = {"cdc.source": f"{source.name}/{run.name}.q", "cdc.position": f"{place};{who};{later}"}
    lake.table("e.q").append([{"id": 9}], properties=properties)
    run("INSERT INTO q VALUES (5)")
    with pytest.raises(NotFound, match=r"another log, the server was reset or restored.*restart=True"):
        sync_table(source, f"{run.name}.q", lake, "e.q")
    run("DELETE FROM q WHERE id = 5")
    locked = MySql(server.url, readers=2, lock_seconds=1)
    run("LOCK TABLES q WRITE")
    with pytest.raises(SourceError, match=r"for 1 s \(lock_seconds\).*SHOW PROCESSLIST"):
        sync_table(locked, f"{run.name}.q", lake, "d.q")
    run("UNLOCK TABLES")
    with server.connect(read_timeout=5) as other, other.cursor() as cursor:
        cursor.execute(f"INSERT INTO {run.name}.q VALUES (2)")
    assert sync_table(locked, f"{run.name}.q", lake, "d.q").snapshot_rows == 2
    locked.close()


def test_what_is_not_set_up_is_said(run, server, source, lake, tmp_path, capsys):
    name = f"{run.name}.t"
    run("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE keyless (v int)", "INSERT INTO t VALUES (1, 1)")
    with pytest.raises(NotFound, match=rf"no table '{run.name}\.none'"):
        sync_table(source, f"{run.name}.none", lake, "d.t")
    with pytest.raises(InvalidInput, match="primary_key="):
        sync_table(source, f"{run.name}.keyless", lake, "d.k")
    with pytest.raises(InvalidInput, match="mysql://user"):
        MySql("postgresql://x")
    for variable, bad, good in (
        ("binlog_row_metadata", "MINIMAL", "FULL"),
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "NOBLOB", "FULL"),
    ):
        run(f"SET GLOBAL {variable} = '{bad}'")
        with pytest.raises(SourceError, match=f"{variable} is {bad}.*SET GLOBAL {variable} = '{good}'"):
            sync_table(source, name, lake, "d.t")
        run(f"SET GLOBAL {variable} = '{good}'")
    sync_table(source, name, lake, "d.t")
    for setting, change in (
        ("binlog_format = 'STATEMENT'", "as statements"),
        ("binlog_row_image = 'MINIMAL'", "lacks columns"),
    ):
        run(
            f"SET SESSION {setting}",
            "UPDATE t SET v = v + 1",
            "SET SESSION binlog_format = 'ROW', binlog_row_image = 'FULL'",
        )
        with pytest.raises(SourceError, match=f"{change}.*restart=True"):
            sync_table(source, name, lake, "d.t")
        sync_table(source, name, lake, "d.t", restart=True)
    assert rows_of(lake.table("d.t")) == [{"id": 1, "v": 3}]
    run("SET GLOBAL binlog_row_metadata = 'MINIMAL'", "UPDATE t SET v = 4", "SET GLOBAL binlog_row_metadata = 'FULL'")
    with pytest.raises(SourceError, match="without column names"):
        sync_table(source, name, lake, "d.t")
    sync_table(source, name, lake, "d.t", restart=True)
    run("FLUSH BINARY LOGS", "UPDATE t SET v = 5", "FLUSH BINARY LOGS")
    current = run("SHOW BINARY LOGS")[-1][0]
    while len(run("SHOW BINARY LOGS")) > 1:  # The server keeps a file for a reader until it notices that it left.
        run(f"PURGE BINARY LOGS TO '{current}'")
    with pytest.raises(NotFound, match=r"is purged.*binlog_expire_logs_seconds"):
        sync_table(source, name, lake, "d.t")
    with pytest.raises(NotFound, match="was reset"):
        list(source.changes(Position(2**60, f"{current}:99999999"), Position(2**61, f"{current}:999999999"), {}, 1))
    user = f"u{random.getrandbits(40):x}"
    run(f"CREATE USER {user}@localhost", f"GRANT SELECT ON {run.name}.* TO {user}@localhost")
    weak_url = server.url.replace("root@", f"{user}@")
    with pytest.raises(SourceError, match=r"does not let the user in.*give the user and the password") as refused:
        sync_table(MySql(server.url.replace("root@", f"{user}:older@")), name, lake, "d.weak")
    assert "GRANT" not in str(refused.value)
    assert "older" not in str(refused.value)
    weak = MySql(weak_url)
    with pytest.raises(SourceError, match="GRANT SELECT, RELOAD, REPLICATION SLAVE"):
        sync_table(weak, name, lake, "d.weak")
    weak.close()
    run(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}@localhost")
    weak = MySql(weak_url, readers=2)
    with pytest.raises(SourceError, match=r"readers=2.*GRANT RELOAD ON") as refused:
        sync_table(weak, name, lake, "d.weak")
    assert str(refused.value).endswith("or read with readers=1") == (SERVER is MariaDb)
    command = ["--warehouse", str(tmp_path), "cdc", weak_url, name, "d.weak", "--readers"]
    assert run_command([*command, "2"]) != 0
    assert "readers=2" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="readers=0"):
        open_source(weak_url, readers=0)
    run(f"GRANT RELOAD ON *.* TO {user}@localhost")
    assert sync_table(weak, name, lake, "d.weak").snapshot_rows == 1
    weak.close()
    with pytest.raises(SourceError, match="cannot be reached"):
        MySql("mysql://root@localhost?unix_socket=/nonexistent").table_names()


def test_a_server_that_restarts_and_one_without_a_log(run, server, lake):
    name = f"{run.name}.t"
    run("CREATE TABLE t (id int PRIMARY KEY)")
    source = MySql(server.url)
    sync_table(source, name, lake, "d.t")
    run("INSERT INTO t VALUES (1)")
    server.stop()
    with pytest.raises(SourceError, match="run it again"):
        sync_table(source, name, lake, "d.t")
    server.start("--skip-log-bin")
    source.close()
    with pytest.raises(SourceError, match=r"log_bin is OFF.*log_bin = ON in the server's configuration"):
        sync_table(source, name, lake, "d.t")
    server.stop()
    server.start()
    source.close()
    assert sync_database(source, lake, "d", including=rf"{run.name}\.t")[name].rows == 1
    source.close()


@FORMATS
def test_a_server_crashes_within_a_sync(run, server, format):
    def execute(*statements):
        with server.connect(database=run.name) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    execute(*(f"SET GLOBAL {option.strip('-').replace('-', '_').replace('=', ' = ')}" for option in DURABLE))
    source = MySql(server.url)
    a_server_crashes_within_a_sync(
        source,
        f"{run.name}.t",
        execute,
        lambda: execute("SELECT id, v FROM t ORDER BY id"),
        lambda: server.crash(*LOGS_ALL, *DURABLE),
        format,
    )
    source.close()


@FORMATS
@pytest.mark.parametrize("seed", WORKLOADS)
def test_every_change_comes_once_whatever_fails(run, server, format, seed):
    source = MySql(server.url, readers=1 + (seed + seed // 2) % 2)
    work = mysql_workload(run, "t", seed)

    def drop():
        kill_connections(run)
        run("FLUSH BINARY LOGS")

    def rows_there():
        return list(run("SELECT id, version FROM t ORDER BY id"))

    name = f"{run.name}.t"
    every_change_comes_once(source, name, work, rows_there, drop, format, seed, changelog=True, rounds=ROUNDS)
    source.close()


@pytest.mark.parametrize("seed", range(8) if IS_LONG else [3])
def test_two_syncs_of_one_table_at_once(run, server, seed):
    work = mysql_workload(run, "t", seed, ["name"])
    rows_there = lambda: list(run("SELECT id, version FROM t ORDER BY id"))  # noqa: E731
    two_syncs_at_once([MySql(server.url) for _ in range(2)], f"{run.name}.t", work, rows_there, seed)


@pytest.mark.parametrize("format", ["paimon", "iceberg"] if IS_LONG else ["iceberg"])
def test_every_call_fails_once(run, server, format):
    run("CREATE TABLE t (id int PRIMARY KEY, v int, note text)")
    source = MySql(server.url, readers=2 if format == "iceberg" else 1)
    rewrite = "ALTER TABLE t DROP v, ADD v int DEFAULT 10"
    world = World(source, f"{run.name}.t", run, run, rewrite, lambda: kill_connections(run), source.close, format)
    tried, every = every_call_fails_once(world)
    assert tried >= every // STEP > 0
    source.close()


def kill_connections(run):
    own = run("SELECT CONNECTION_ID()")[0][0]
    for row in run("SHOW PROCESSLIST"):
        if row[0] != own and row[1] == "root":
            with suppress(pymysql.err.OperationalError):  # It went by itself.
                run(f"KILL {row[0]}")


def test_the_walk_of_the_page_runs(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_SOCKET", server.socket)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parent.parent.parent / "docs" / "cdc.md").read_text()
    seen = {}
    for block in re.findall(r'```py title="MariaDB"\n(.*?)```', page, re.DOTALL):
        exec(compile(block, "docs/cdc.md", "exec"), seen)
    seen["source"].close()


@FORMATS
@pytest.mark.parametrize("seed", WORKLOADS)
def test_the_rows_of_a_filter_are_followed(run, server, format, seed):
    source = MySql(server.url)
    work = mysql_workload(run, "t", seed)
    rows_there = lambda where: list(run(f"SELECT id, version FROM t WHERE {where} ORDER BY id"))  # noqa: E731
    the_rows_of_a_filter_are_followed(source, f"{run.name}.t", work, rows_there, format, seed)
    source.close()


@FORMATS
@pytest.mark.parametrize("seed", range(20))
def test_a_database_in_turmoil_is_followed(server, format, seed):
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        world = Turmoil(OnMySql(server, f"s{random.getrandbits(40):x}_"), format, folder, seed, tables=2)
        try:
            world.round(15, ["kill", "cut", "restart"], seconds=0.2)
        finally:
            world.close()
