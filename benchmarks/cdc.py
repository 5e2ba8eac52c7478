"""Change data capture: snapshots against ADBC, the fastest client into Arrow;
changes against a client that only reads the log."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from benchmarks.measure import Figure, both, by_turns, processor_seconds, seconds
from benchmarks.peers.process import adbc, connectorx, debezium, dlt
from benchmarks.peers.timing import both_times
from lakeformat import Lake
from lakeformat.cdc import MySql, Postgres, sync_table
from lakeformat.cdc.source import Position
from tests.cdc.servers import MariaDb
from tests.conftest import running_postgres

ROWS, CHANGED, BATCH, RUNS = 1_000_000, 200_000, 100_000, 3
SINGLE = 20_000  # Transactions of one row.
SHARED, FEW = 50_000, 2_000  # Rows of peers that take long.
LEAST = 1 / 0.7  # Seven tenths of the peer's rows a second.
_COLUMNS = (
    "id bigint PRIMARY KEY, amount numeric(12, 2), name varchar(40), at timestamp, day date, x double precision, n int"
)
_ROWS = (
    "SELECT i, i * 0.01, 'name ' || i, '2024-01-01'::timestamp + i * interval '1 second', '2024-01-01'::date + i % "
    "1000, i * 1.5, i % 1000 FROM generate_series({first}, {last}) i"
)


def run(folder: Path) -> Iterator[Figure]:
    with running_postgres() as server:
        yield from postgres(server.get_uri(), folder / "postgres")
    with postgres_over_tcp() as dsn:
        yield from peers(dsn, folder / "peers")
    if MariaDb.program() is not None:
        with tempfile.TemporaryDirectory() as data:
            server = MariaDb(data)
            try:
                server.start()
                yield from mysql(server, server.connect(), folder / "mysql")
            finally:
                server.stop()


def postgres(dsn: str, folder: Path) -> Iterator[Figure]:
    connection, numbers = psycopg.connect(dsn, autocommit=True), count()
    for name in ("bench_there", "bench_changed"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.execute(f"CREATE TABLE {name} ({_COLUMNS})")
    connection.execute(f"INSERT INTO bench_there {_ROWS.format(first=1, last=ROWS)}")
    connection.execute("VACUUM ANALYZE bench_there")
    source = Postgres(dsn, slot="lakeformat_bench")
    table = source.describe("bench_there")

    def read() -> float:
        def work() -> None:
            with source.view(table) as view:
                assert sum(chunk.rows.num_rows for chunk in view.chunks(None, BATCH)) == ROWS

        return seconds(work)

    def taken() -> float:
        source.drop()
        lake = Lake(str(folder / f"snapshot-{next(numbers)}"), fsync="false")
        return seconds(lambda: sync_table(source, "bench_there", lake, "bench.rows", "iceberg"))

    with adbc() as peer:
        ask = {"verb": "select", "dsn": dsn, "table": "bench_there", "rows": ROWS}
        subject = f"{ROWS:,} rows of PostgreSQL"
        yield by_turns(f"read {subject}", "ADBC into Arrow", LEAST, read, lambda: peer.ask(**ask), RUNS)
        yield by_turns(f"take {subject} into Iceberg", "ADBC into Arrow", LEAST, taken, lambda: peer.ask(**ask), RUNS)

    source.drop()
    changed = source.describe("bench_changed")
    lake = Lake(str(folder / "changes"), fsync="false")
    sync_table(source, "bench_changed", lake, "bench.rows", "iceberg")
    start = source.begin([changed])
    for first in range(1, CHANGED // 2, BATCH // 20):
        connection.execute(f"INSERT INTO bench_changed {_ROWS.format(first=first, last=first + BATCH // 20 - 1)}")
    connection.execute("UPDATE bench_changed SET n = n + 1")
    end = source.position()

    def followed() -> list[float]:
        batches = source.changes(start, end, {changed.name: changed}, 2 * CHANGED)
        return _seconds_of_both(lambda: [batch.tables for batch in batches], source._open())

    def fetched() -> list[float]:
        query = (
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s, NULL, 'proto_version', "
            "'1', 'publication_names', %s)"
        )
        asked = ("lakeformat_bench", end.text, "lakeformat_bench")
        with connection.cursor(binary=True) as cursor:
            return _seconds_of_both(lambda: cursor.execute(query, asked).fetchall(), connection)

    subject = f"decode {CHANGED:,} changes of PostgreSQL"
    yield from both(subject, "psycopg fetches the messages", LEAST, followed, fetched, 3 * RUNS)
    source.drop()


def _seconds_of_both(work: Callable[[], object], connection: psycopg.Connection) -> list[float]:
    """Wall time, and processor time of this process and of the server's that serves `connection`."""
    status = Path(f"/proc/{connection.info.backend_pid}/stat")

    def of_server() -> float:
        user, system = status.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    before = of_server()
    wall, own = both_times(work)
    return [wall, own + of_server() - before]


@contextmanager
def postgres_over_tcp() -> Iterator[str]:
    """A server that Java's and Rust's clients reach, and that streams its log."""
    with running_postgres() as server:
        with (server.pgdata / "postgresql.conf").open("a") as config:
            config.write("max_wal_senders = 5\n")
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]

        def control(*arguments: str) -> None:
            command = [server.bin_path / "pg_ctl", "-w", "-D", server.pgdata, "-l", server.log, *arguments]
            subprocess.run(command, user=server.system_user, check=True, stdout=subprocess.DEVNULL)

        control("-o", f"-h 127.0.0.1 -p {port} -k {server.pgdata}", "restart")
        try:
            yield f"postgresql://postgres:x@127.0.0.1:{port}/postgres"
        finally:
            control("-m", "fast", "stop")


def peers(dsn: str, folder: Path) -> Iterator[Figure]:
    """Processor time of the client that takes rows, and then their changes, into an Iceberg table; of Debezium, into
    events for Python."""
    connection, numbers = psycopg.connect(dsn, autocommit=True), count()
    connection.execute(f"CREATE TABLE shared ({_COLUMNS})")
    connection.execute(f"INSERT INTO shared {_ROWS.format(first=1, last=SHARED)}")
    source, ours = Postgres(dsn, slot="ours"), Lake(str(folder / "ours"), fsync="false")

    def sync(lake: Lake, rows: int) -> float:
        def work() -> None:
            report = sync_table(source, "shared", lake, "bench.rows", "iceberg")
            assert report.rows + report.snapshot_rows == rows, report

        return processor_seconds(work)

    def taken() -> float:
        source.drop()
        return sync(Lake(str(folder / f"ours-{next(numbers)}"), fsync="false"), SHARED)

    def change(rows: int) -> None:
        connection.execute(
            "UPDATE shared SET n = n + 1, at = (SELECT max(at) FROM shared) "
            f"+ id * interval '1 second' WHERE id <= {rows}"
        )

    subject, server = f"{SHARED:,} rows of PostgreSQL", urlsplit(dsn)
    with debezium() as peer:
        request = {
            "hostname": "127.0.0.1",
            "port": str(server.port),
            "user": "postgres",
            "password": "x",
            "dbname": "postgres",
        }
        connection.execute("CREATE PUBLICATION events FOR TABLE shared")
        connection.execute("SELECT pg_create_logical_replication_slot('events', 'pgoutput')")

        def events(rows: int, folder: Path, snapshot: bool) -> float:
            folder.mkdir(parents=True, exist_ok=True)
            return peer.ask(
                verb="read", folder=str(folder), slot="events", table="shared", rows=rows, snapshot=snapshot, **request
            )

        def shown() -> float:
            return events(SHARED, folder / f"events-{next(numbers)}", True)

        yield by_turns(f"take {subject} into Iceberg", "Debezium's events of them", 1, taken, shown, RUNS)
        source.drop()
        sync(ours, SHARED)

        def pair() -> tuple[float, float]:
            change(SHARED)
            return sync(ours, SHARED), events(SHARED, folder / "events", False)

        events_of = [pair() for _ in range(RUNS + 1)][1:]
        yield Figure(
            f"follow {SHARED:,} updates of PostgreSQL into Iceberg",
            "Debezium's events of them",
            1,
            *zip(*events_of, strict=True),
        )
    with dlt() as peer:
        ask = {"verb": "load", "dsn": dsn.replace("postgresql:", "postgresql+psycopg2:"), "table": "shared"}
        whole = {**ask, "folder": str(folder / "dlt"), "rows": SHARED}
        yield by_turns(
            f"take {subject} into Iceberg", "dlt (ConnectorX, pyiceberg)", 1, taken, lambda: peer.ask(**whole), RUNS
        )
        source.drop()
        ours = Lake(str(folder / "merged"), fsync="false")
        merged = {**ask, "folder": str(folder / "dlt-merged"), "cursor": "at"}
        sync(ours, SHARED)
        peer.ask(**merged, rows=SHARED)

        def both() -> tuple[float, float]:
            change(FEW)
            return sync(ours, FEW), peer.ask(**merged, rows=FEW)

        merges = [both() for _ in range(RUNS)]
        yield Figure(
            f"follow {FEW:,} updates among {SHARED:,} rows",
            "dlt merges them by a cursor",
            1,
            *zip(*merges, strict=True),
        )
    source.drop()


def mysql(server: MariaDb, connection: pymysql.Connection, folder: Path) -> Iterator[Figure]:
    cursor = connection.cursor()
    cursor.execute("DROP DATABASE IF EXISTS bench")
    cursor.execute("CREATE DATABASE bench")
    columns = _COLUMNS.replace("double precision", "double").replace("at timestamp", "at datetime")
    cursor.execute(f"CREATE TABLE bench.changed ({columns})")
    source = MySql(server.url)
    table = source.describe("bench.changed")
    start = source.begin([table])
    cursor.execute("USE bench")
    for first in range(1, CHANGED // 2, BATCH // 20):
        cursor.execute(
            "INSERT INTO changed SELECT seq, seq * 0.01, concat('name ', seq), '2024-01-01' + INTERVAL seq SECOND, "
            "'2024-01-01' + INTERVAL (seq % 1000) DAY, seq * 1.5, seq % 1000 FROM "
            f"seq_{first}_to_{first + BATCH // 20 - 1}"
        )
    cursor.execute("UPDATE changed SET n = n + 1")
    end = source.position()

    def followed(start: Position, end: Position) -> float:
        batches = source.changes(start, end, {table.name: table}, BATCH)
        return seconds(lambda: [batch.tables for batch in batches])

    def bare(start: Position, rows: int) -> float:
        file, _, place = start.text.partition(";")[0].rpartition(":")
        reader = BinLogStreamReader(
            connection_settings=source._settings,
            server_id=77,
            blocking=True,
            resume_stream=True,
            log_file=file,
            log_pos=int(place),
            only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        )

        def work() -> None:
            read = 0
            while read < rows:
                read += len(reader.fetchone().rows)

        took = seconds(work)
        reader.close()
        return took

    peer_name = "mysql-replication alone"

    def figure(rows: int, what: str, start: Position, end: Position) -> Figure:
        ours, theirs = partial(followed, start, end), partial(bare, start, rows)
        return by_turns(f"decode {rows:,} {what} of MariaDB", peer_name, LEAST, ours, theirs, RUNS)

    yield figure(CHANGED, "changes", start, end)
    cursor.execute(
        "CREATE PROCEDURE one_by_one(count int) BEGIN DECLARE i int DEFAULT 0; WHILE i < count DO "
        "UPDATE changed SET n = n + 1 WHERE id = i % 100000 + 1; SET i = i + 1; END WHILE; END"
    )
    lakes = {name: Lake(str(folder / f"single-{name}"), fsync="false") for name in ("paimon", "iceberg")}
    for name, lake in lakes.items():
        sync_table(source, table.name, lake, "bench.rows", name)
    source.close()
    start = source.position()
    cursor.execute(f"CALL one_by_one({SINGLE})")
    end = source.position()
    yield figure(SINGLE, "transactions of one row", start, end)

    def synced(name: str) -> float:
        lake = lakes[name]
        lake.table("bench.rows").rollback_to(snapshot_id=taken[name])
        return seconds(lambda: sync_table(source, table.name, lake, "bench.rows", name))

    taken = {name: lake.table("bench.rows").current_snapshot().id for name, lake in lakes.items()}
    for name in lakes:
        ours, theirs = partial(synced, name), partial(bare, start, SINGLE)
        work = f"follow {SINGLE:,} transactions of one row of MariaDB into {name.title()}"
        yield by_turns(work, peer_name, LEAST, ours, theirs, RUNS)
    cursor.execute(f"CREATE TABLE there ({columns})")
    cursor.execute(
        "INSERT INTO there SELECT seq, seq * 0.01, concat('name ', seq), '2024-01-01' + INTERVAL seq SECOND, "
        f"'2024-01-01' + INTERVAL (seq % 1000) DAY, seq * 1.5, seq % 1000 FROM seq_1_to_{ROWS}"
    )
    cursor.execute("CREATE USER peer@'127.0.0.1' IDENTIFIED BY 'x'")
    cursor.execute("GRANT SELECT ON bench.* TO peer@'127.0.0.1'")
    described = source.describe("bench.there")

    def read() -> float:
        def work() -> None:
            with source.view(described) as view:
                assert sum(chunk.rows.num_rows for chunk in view.chunks(None, BATCH)) == ROWS

        return processor_seconds(work)

    with connectorx() as peer:
        ask = {"verb": "select", "url": f"mysql://peer:x@127.0.0.1:{server.port}/bench", "table": "there", "rows": ROWS}
        title = f"read {ROWS:,} rows of MariaDB, processor time"
        yield by_turns(title, "ConnectorX into Arrow", LEAST, read, lambda: peer.ask(**ask), RUNS)
    lake = Lake(str(folder), fsync="false")
    source.close()
    assert sync_table(source, "bench.changed", lake, "bench.rows").snapshot_rows == CHANGED // 2
