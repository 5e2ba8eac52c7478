"""Change data capture: foreign engines read row for row what a sync of a random workload on a real PostgreSQL leads to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from lakeformat import Lake
from lakeformat.cdc import Postgres, sync_table
from tests.cdc.following import postgres_workload

from .conftest import Sql
from .test_iceberg import counted, place

SEED, ROUNDS, STEPS = 11, 8, 6
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


@pytest.fixture
def server(postgres_server: Any) -> Iterator[Any]:
    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE judged")
    dsn = postgres_server.get_uri("judged")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.dsn = dsn  # type: ignore[attr-defined]
        yield connection
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = 'judged'"
        )
    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as admin:
        admin.execute("DROP DATABASE judged WITH (FORCE)")


@pytest.mark.parametrize("name", TABLES)
def test_others_read_what_a_sync_wrote(engines: dict, lake: Lake, sql: Sql, server: Any, name: str) -> None:
    format, properties, readers = TABLES[name]
    work = postgres_workload(server.execute, "t", SEED, ["name", "note"])
    source = Postgres(server.dsn, slot="judged")
    table = f"cdc.{name}"
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            work.step()
        sync_table(source, "t", lake, table, format, properties=properties, batch_rows=20)
    source.close()
    wanted = counted([list(row) for row in server.execute("SELECT * FROM t").fetchall()])
    assert wanted, f"seed {SEED}: no rows are left"
    for reader in readers:
        if reader == "spark":
            found = sql(f"SELECT id, version, name, note FROM lake.`cdc.db`.{name}")
        elif reader == "duckdb":
            found = engines[reader].ask(verb="read", **place(lake.table(table)))["rows"]
        else:
            found = engines[reader].ask(verb="read", warehouse=lake.uri, table=table)["rows"]
        assert counted(found) == wanted, f"{reader}, seed {SEED}"
