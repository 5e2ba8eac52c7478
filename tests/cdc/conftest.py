"""A PostgreSQL database for each test, and a source that reads it; tests of other servers bring their own."""

import pytest

from lakeformat.cdc import Postgres


@pytest.fixture
def server(postgres_database):
    return postgres_database


@pytest.fixture
def source(server):
    found = Postgres(server.dsn, slot=server.info.dbname)
    yield found
    found.close()
