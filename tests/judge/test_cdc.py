"""Change data capture: foreign engines read row for row what a sync of a random workload on a real PostgreSQL or MariaDB leads to."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from lakeformat import Lake
from lakeformat.cdc import MySql, Postgres, sync_table
from tests.cdc.following import Workload, mysql_workload, postgres_workload
from tests.cdc.servers import MariaDb

from .conftest import Sql
from .test_iceberg import counted, place

SEED, ROUNDS, STEPS = 11, 8, 6
COLUMNS = ["name", "note"]
TABLES: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "merged": ("paimon", {"bucket": "2", "changelog-producer": "input"}, ("java", "rust", "pypaimon")),
    "vectors": ("paimon", {"bucket": "1", "deletion-vectors.enabled": "true"}, ("java", "rust", "pypaimon")),
    "version_2": ("iceberg", {"format-version": "2"}, ("spark", "duckdb")),
    "version_3": (
        "iceberg",
        {"format-version": "3"},
        ("spark",),
    ),  # The others have no vectors beside equality deletes.
}


@dataclass(frozen=True, slots=True)
class Followed:
    """A database with a table `t` that a random workload changes."""

    source: Postgres | MySql
    table: str
    work: Workload
    rows: Callable[[], list]


@contextmanager
def _postgres(server: Any) -> Iterator[Followed]:
    with psycopg.connect(server.get_uri(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE judged")
    dsn = server.get_uri("judged")
    with psycopg.connect(dsn, autocommit=True) as connection:
        source, work = Postgres(dsn, slot="judged"), postgres_workload(connection.execute, "t", SEED, COLUMNS)
        yield Followed(source, "t", work, lambda: connection.execute("SELECT * FROM t").fetchall())
        source.close()
        source.drop()
        source.close()
    with psycopg.connect(server.get_uri(), autocommit=True) as admin:
        admin.execute("DROP DATABASE judged WITH (FORCE)")


@contextmanager
def _mariadb(server: MariaDb) -> Iterator[Followed]:
    with server.connect() as connection, connection.cursor() as cursor:

        def execute(statement: str) -> list:
            cursor.execute(statement)
            return list(cursor.fetchall())

        for statement in ("CREATE DATABASE judged", "USE judged", "SET sql_mode = ''"):
            execute(statement)
        source = MySql(server.url)
        yield Followed(
            source, "judged.t", mysql_workload(execute, "t", SEED, COLUMNS), lambda: execute("SELECT * FROM t")
        )
        source.close()
        execute("DROP DATABASE judged")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    assert MariaDb.program() is not None, "`make mariadb` brings the server out of Debian's packages"
    with tempfile.TemporaryDirectory() as folder:
        server = MariaDb(folder)
        server.start()
        yield server
        server.stop()


@pytest.fixture(params=["postgres", "mariadb"])
def followed(request: pytest.FixtureRequest) -> Iterator[Followed]:
    if request.param == "postgres":
        made = _postgres(request.getfixturevalue("postgres_server"))
    else:
        made = _mariadb(request.getfixturevalue("mariadb"))
    with made as database:
        yield database


@pytest.mark.parametrize("name", TABLES)
def test_others_read_what_a_sync_wrote(engines: dict, lake: Lake, sql: Sql, followed: Followed, name: str) -> None:
    format, properties, readers = TABLES[name]
    target = f"{name}_of_{followed.source.name.partition('/')[0]}"
    table = f"cdc.{target}"
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            followed.work.step()
        sync_table(followed.source, followed.table, lake, table, format, properties=properties, batch_rows=20)
    wanted = counted([list(row) for row in followed.rows()])
    assert wanted, f"seed {SEED}: no rows are left"
    for reader in readers:
        if reader == "spark":
            found = sql(f"SELECT id, version, name, note FROM lake.`cdc.db`.{target}")
        elif reader == "duckdb":
            found = engines[reader].ask(verb="read", **place(lake.table(table)))["rows"]
        else:
            found = engines[reader].ask(verb="read", warehouse=lake.uri, table=table)["rows"]
        assert counted(found) == wanted, f"{reader}, seed {SEED}"
