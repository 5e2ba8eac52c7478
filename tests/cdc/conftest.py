"""A PostgreSQL database for each test, and a source that reads it; tests of other servers bring their own."""

import random

import psycopg
import pytest

from lakeformat.cdc import Postgres


@pytest.fixture
def server(postgres_server):
    """A connection to a database of its own, whose address is `server.dsn`."""
    name = f"d{random.getrandbits(40):x}"
    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    dsn = postgres_server.get_uri(name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.dsn = dsn
        yield connection
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
        )


@pytest.fixture
def source(server):
    found = Postgres(server.dsn, slot=server.info.dbname)
    yield found
    found.close()
