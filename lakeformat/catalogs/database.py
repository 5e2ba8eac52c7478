"""The database of a catalog: its engine, its transactions, and its errors as lakeformat's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, InvalidRequestError, SQLAlchemyError

from lakeformat import redact
from lakeformat.errors import AlreadyExists, InvalidInput, StoreError

_WAIT_SECONDS = 60  # How long to wait for SQLite's only writer.


class Text(sa.TypeDecorator[str]):
    """A column that must be text: SQLite's columns hold any type, and tables made by others may hold nulls."""

    impl = sa.String
    cache_ok = True

    def process_result_value(self, value: object, dialect: sa.Dialect) -> str | None:
        if not isinstance(value, str):
            raise InvalidRequestError(f"a row of the catalog has {value!r} where text is expected")
        return value


class TextOrNull(Text):
    cache_ok = True

    def process_result_value(self, value: object, dialect: sa.Dialect) -> str | None:
        return None if value is None else super().process_result_value(value, dialect)


@contextmanager
def connected(uri: str, tables: sa.MetaData) -> Iterator[sa.Connection]:
    """A transaction in a database with `tables`. Raises `AlreadyExists` for a row that exists, and `StoreError` for any
    other error."""
    try:
        with _engine(uri, tables, os.getpid(), _file(uri)).begin() as connection:
            yield connection
    except IntegrityError as error:
        raise AlreadyExists(f"{shown(uri)}: there is a table of that name") from error
    except (SQLAlchemyError, UnicodeError) as error:  # A lone surrogate in a name cannot be encoded.
        secrets = redact.secrets_in(uri)
        said = redact.redacted((str(error).splitlines() or [type(error).__name__])[0], *secrets)
        raise StoreError(f"{shown(uri)}: {said}") from redact.cause(error, *secrets)


def shown(uri: str) -> str:
    return redact.address(uri)


# --- private ----------------------------------------------------------------------------------------------------------


def _file(uri: str) -> tuple[int, int] | None:
    """Which file a database of SQLite is in; it is created, empty, if it is missing. None for other databases. No file
    made anew has this number while a connection to the old one is open."""
    path = _path(uri)
    if path is None:
        return None
    try:
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            open(path, "ab").close()
        status = os.stat(path)
    except OSError as error:
        secrets = redact.secrets_in(uri)
        raise StoreError(f"{shown(uri)}: cannot make the file: {error.strerror}") from redact.cause(error, *secrets)
    return status.st_dev, status.st_ino


@lru_cache(maxsize=256)
def _path(uri: str) -> str | None:
    try:
        url = sa.make_url(uri)
    except (ArgumentError, ValueError):
        return None
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return url.database if is_file and not str(url.database).startswith("file:") else None


@cache
def _engine(uri: str, tables: sa.MetaData, process: int, file: tuple[int, int] | None) -> sa.Engine:
    """One engine per process, since connections do not survive a fork, and per file, which may be deleted and made
    anew. Creates missing tables."""
    try:
        url = sa.make_url(uri)
    except (ArgumentError, ValueError):  # The error's text may contain any part of the address.
        raise InvalidInput(
            f"catalog={shown(uri)!r} is not an address of a database; write e.g. 'postgresql+psycopg://user@host:5432/db'"
        ) from None
    try:
        is_sqlite = url.get_backend_name() == "sqlite"
        engine = sa.create_engine(url, connect_args={"timeout": _WAIT_SECONDS} if is_sqlite else {})
    except (ArgumentError, ImportError) as error:
        secrets = redact.secrets_in(uri)
        said = redact.redacted(str(error), *secrets)
        raise InvalidInput(f"catalog={shown(uri)!r}: {said}") from redact.cause(error, *secrets)
    for table in tables.sorted_tables:
        try:
            table.create(engine, checkfirst=True)
        except SQLAlchemyError:
            if not sa.inspect(engine).has_table(table.name):  # Otherwise another process created it at the same time.
                raise
    return engine
