"""Paimon's JDBC catalog: one database row per table, as in Java's `JdbcCatalog`; the tables are folders of the
warehouse. External tables, which Java's catalog does not have, are properties of their namespace."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import sqlalchemy as sa

from lakeformat.catalogs.catalog import TableAccess
from lakeformat.catalogs.database import Text, TextOrNull, connected, shown
from lakeformat.catalogs.sql_functions import SqlFunctions
from lakeformat.errors import AlreadyExists, InvalidInput, NotFound, StoreError, StoreRefused, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.log import log
from lakeformat.model.snapshot import Outcome, Plan
from lakeformat.storage import paths
from lakeformat.storage.files import open_store
from lakeformat.storage.head import CreateHead, Head
from lakeformat.storage.store import Reader, Store

_TABLES = sa.MetaData()
_LINES = sa.Table(
    "paimon_tables",
    _TABLES,
    sa.Column("catalog_key", Text(255), primary_key=True),
    sa.Column("database_name", Text(255), primary_key=True),
    sa.Column("table_name", Text(255), primary_key=True),
)
_NAMESPACES = sa.Table(
    "paimon_database_properties",
    _TABLES,
    sa.Column("catalog_key", Text(255), primary_key=True),
    sa.Column("database_name", Text(255), primary_key=True),
    sa.Column("property_key", Text(255), primary_key=True),
    sa.Column("property_value", TextOrNull(1000)),
)
_WITH_LOCKS = sa.MetaData()
_LOCKS = sa.Table(
    "paimon_distributed_locks",
    _WITH_LOCKS,
    sa.Column("lock_id", sa.String(255), primary_key=True),
    sa.Column("acquired_at", sa.TIMESTAMP, server_default=sa.func.current_timestamp(), nullable=False),
    sa.Column("expire_time_seconds", sa.BigInteger, server_default="0", nullable=False),
)
_EXPIRED = {  # The database's clock.
    "sqlite": "strftime('%s', 'now') - strftime('%s', acquired_at) > expire_time_seconds",
    "postgresql": "extract(epoch from now() - acquired_at) > expire_time_seconds",
    "mysql": "timestampdiff(second, acquired_at, now()) > expire_time_seconds",
}
_EXISTS, _LOCATION = "exists", "location"  # Properties that Java sets on each namespace.
_EXTERNAL = "lakeformat.table."  # And an external table's name: the property that is its folder.
_LOCK_SECONDS = 8 * 60  # How long a lock is valid, and how long we wait for one (lock-acquire-timeout).
_LONGEST_SLEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PaimonSqlCatalog:
    """The catalog `name` (`catalog-key`) in the database `uri`, a SQLAlchemy URL. Creates missing database tables.

    `locks`: whether commits to a table take a lock in the database (`lock.enabled`).
    """

    uri: str
    warehouse: str
    name: str = "jdbc"
    locks: bool = False

    def __repr__(self) -> str:
        return f"PaimonSqlCatalog({shown(self.uri)!r}, {self.name!r})"

    @property
    def format(self) -> str:
        return "paimon"

    @property
    def functions(self) -> SqlFunctions:
        return SqlFunctions(self.uri, f"{self.format}.{self.name}")

    @property
    def names_are_folders(self) -> bool:
        return True

    @property
    def vends_credentials(self) -> bool:
        return False

    def namespaces(self) -> list[str]:
        with connected(self.uri, _TABLES) as connection:
            declared = sa.select(_NAMESPACES.c.database_name).where(_NAMESPACES.c.catalog_key == self.name)
            used = sa.select(_LINES.c.database_name).where(_LINES.c.catalog_key == self.name)
            return sorted(set(connection.scalars(declared.union(used))))

    def tables(self, namespace: str) -> list[str]:
        with connected(self.uri, _TABLES) as connection:
            own = _LINES.c.catalog_key == self.name, _LINES.c.database_name == namespace
            names = list(connection.scalars(sa.select(_LINES.c.table_name).where(*own)))
            external = sa.select(_NAMESPACES.c.property_key).where(
                *self._lines_of(namespace), _NAMESPACES.c.property_key.startswith(_EXTERNAL, autoescape=True)
            )
            names += [key.removeprefix(_EXTERNAL) for key in connection.scalars(external)]
        return sorted({f"{namespace}.{name}" for name in names})

    def find(self, name: str, options: Mapping[str, str]) -> TableAccess | None:
        with connected(self.uri, _TABLES) as connection:
            if connection.scalar(sa.select(_LINES.c.table_name).where(*self._line(name))) is not None:
                return TableAccess(self._root(name))
            location = connection.scalar(sa.select(_NAMESPACES.c.property_value).where(*self._external(name)))
        return None if location is None else TableAccess(location, is_external=True)

    def entry(self, name: str) -> PaimonEntry:
        return PaimonEntry(self, name)

    def create_namespace(self, name: str) -> None:
        _require_flat(name)
        if name not in self.namespaces():
            given = {_EXISTS: "true", _LOCATION: f"{self.warehouse}/{name}.db"}
            try:
                self._say(name, given)
            except AlreadyExists:
                return  # Another process created it.

    def namespace_properties(self, name: str) -> dict[str, str]:
        with connected(self.uri, _TABLES) as connection:
            columns = (_NAMESPACES.c.property_key, _NAMESPACES.c.property_value)
            lines = connection.execute(sa.select(*columns).where(*self._lines_of(name))).all()
        own = (_EXISTS, _LOCATION)
        return {
            key: value for key, value in lines if key not in own and not key.startswith(_EXTERNAL) and value is not None
        }

    def alter_namespace(self, name: str, properties: Mapping[str, str], remove: Collection[str]) -> None:
        if said := {_EXISTS, _LOCATION} & {*properties, *remove}:
            raise UnsupportedFeature(
                f"namespace {name}: {sorted(said)[0]!r} is the catalog's own property: tables of a JDBC catalog of "
                f"Paimon lie in {self.warehouse}/{name}.db"
            )
        if external := sorted(key for key in (*properties, *remove) if key.startswith(_EXTERNAL)):
            raise UnsupportedFeature(f"namespace {name}: {external[0]!r} is an external table; drop that, or rename it")
        self._say(name, properties, remove)

    def drop_namespace(self, name: str) -> None:
        with connected(self.uri, _TABLES) as connection:
            connection.execute(sa.delete(_NAMESPACES).where(*self._lines_of(name)))

    def location_of(self, namespace: str) -> str | None:
        return None

    def register(self, name: str, metadata_location: str) -> None:
        if paths.relative(self._root(name), metadata_location) == "":
            namespace, _, table = name.rpartition(".")
            line = {"catalog_key": self.name, "database_name": namespace, "table_name": table}
            with connected(self.uri, _TABLES) as connection:
                connection.execute(sa.insert(_LINES).values(**line))
            return
        if paths.relative(self.warehouse, metadata_location) is not None:
            raise InvalidInput(
                f"{name}: {metadata_location} is the location of another table of the warehouse {self.warehouse}; this "
                f"one's is {self._root(name)}, or a folder elsewhere"
            )
        with connected(self.uri, _TABLES) as connection:
            connection.execute(
                sa.insert(_NAMESPACES).values(**self._external_line(name), property_value=metadata_location)
            )

    def rename(self, old: str, new: str) -> None:
        _require_flat(new.rpartition(".")[0])
        namespace, _, table = new.rpartition(".")
        store = open_store(self.warehouse, {})
        with connected(self.uri, _TABLES) as connection:
            moved = sa.update(_NAMESPACES).where(*self._external(old)).values(**self._external_line(new))
            if connection.execute(moved).rowcount:
                return
            change = sa.update(_LINES).where(*self._line(old)).values(database_name=namespace, table_name=table)
            if not connection.execute(change).rowcount:
                raise NotFound(f"no table {old!r} in {self!r}")
            store.move_folder(_folder(old), _folder(new))  # A row that is not committed is rolled back.

    def drop(self, name: str) -> None:
        with connected(self.uri, _TABLES) as connection:
            gone = connection.execute(sa.delete(_LINES).where(*self._line(name))).rowcount
            gone = gone or connection.execute(sa.delete(_NAMESPACES).where(*self._external(name))).rowcount
        if not gone:
            raise NotFound(f"no table {name!r} in {self!r}")

    def _root(self, name: str) -> str:
        return f"{self.warehouse}/{_folder(name)}"

    def _line(self, name: str) -> tuple[Any, ...]:
        namespace, _, table = name.rpartition(".")
        return _LINES.c.catalog_key == self.name, _LINES.c.database_name == namespace, _LINES.c.table_name == table

    def _external(self, name: str) -> tuple[Any, ...]:
        namespace, _, table = name.rpartition(".")
        return (*self._lines_of(namespace), _NAMESPACES.c.property_key == f"{_EXTERNAL}{table}")

    def _external_line(self, name: str) -> dict[str, str]:
        namespace, _, table = name.rpartition(".")
        return {
            "catalog_key": self.name, "database_name": namespace, "property_key": f"{_EXTERNAL}{table}",
        }  # fmt: skip

    def _lines_of(self, namespace: str) -> tuple[Any, ...]:
        return _NAMESPACES.c.catalog_key == self.name, _NAMESPACES.c.database_name == namespace

    def _say(self, name: str, properties: Mapping[str, str], remove: Collection[str] = ()) -> None:
        with connected(self.uri, _TABLES) as connection:
            gone = _NAMESPACES.c.property_key.in_([*properties, *remove])
            connection.execute(sa.delete(_NAMESPACES).where(*self._lines_of(name), gone))
            line = {"catalog_key": self.name, "database_name": name}
            lines = [{**line, "property_key": key, "property_value": value} for key, value in properties.items()]
            if lines:
                connection.execute(sa.insert(_NAMESPACES), lines)


@dataclass(frozen=True, slots=True)
class PaimonEntry:
    """A table of the catalog. Its folder says which snapshot is the newest."""

    catalog: PaimonSqlCatalog
    name: str

    def head(self, store: Store) -> CreateHead:
        return LockedHead(store, entry=self) if self.catalog.locks else CreateHead(store)

    def sharers(self, reader: Reader) -> list[str]:
        return []  # A name is a folder.

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the table's lock. Raises `StoreRefused` if others hold it for too long."""
        lock_id, uri = f"{self.catalog.name}.{self.name}", self.catalog.uri
        begun = time.monotonic()
        sleep_seconds = 0.05
        while not _acquire(uri, lock_id):
            if time.monotonic() - begun > _LOCK_SECONDS:
                raise StoreRefused(
                    f"{self.name}: the lock {lock_id!r} in {shown(uri)} was held by others for {_LOCK_SECONDS} s"
                )
            time.sleep(sleep_seconds)
            sleep_seconds = min(2 * sleep_seconds, _LONGEST_SLEEP_SECONDS)
        held_since = time.monotonic()
        try:
            yield
        finally:
            if time.monotonic() - held_since < _LOCK_SECONDS:  # Otherwise another process may hold it by now.
                _release(uri, lock_id)


@dataclass(frozen=True, slots=True)
class LockedHead(CreateHead):
    """A head whose commits create their file under the table's lock, for other engines on storage without
    create-if-absent."""

    entry: PaimonEntry = field(kw_only=True)

    def advance(self, version: int, plan: Plan) -> Outcome:
        with self.entry.locked():
            return CreateHead.advance(self, version, plan)

    def rehearsed(self) -> Head:
        return CreateHead(self.store)


# --- private ----------------------------------------------------------------------------------------------------------


def _acquire(uri: str, lock_id: str) -> bool:
    try:
        with connected(uri, _WITH_LOCKS) as connection:
            expired = _EXPIRED.get(connection.dialect.name)
            if expired is None:
                raise UnsupportedFeature(
                    f"{shown(uri)}: lock.enabled=true in a database of {connection.dialect.name}; "
                    f"supported: {', '.join(_EXPIRED)}"
                )
            connection.execute(sa.delete(_LOCKS).where(_LOCKS.c.lock_id == lock_id, sa.text(expired)))
        with connected(uri, _WITH_LOCKS) as connection:
            connection.execute(sa.insert(_LOCKS).values(lock_id=lock_id, expire_time_seconds=_LOCK_SECONDS))
    except AlreadyExists:
        return False
    return True


def _release(uri: str, lock_id: str) -> None:
    try:
        with connected(uri, _WITH_LOCKS) as connection:
            connection.execute(sa.delete(_LOCKS).where(_LOCKS.c.lock_id == lock_id))
    except StoreError:  # The commit is done, and the lock expires by itself.
        log.warning("%s: the lock %r stays until it expires", shown(uri), lock_id, exc_info=True)


def _folder(name: str) -> str:
    namespace, _, table = name.rpartition(".")
    return f"{namespace}.db/{table}"


def _require_flat(namespace: str) -> None:
    if "." in namespace:
        raise InvalidInput(f"namespace {namespace!r}: Paimon has no namespaces inside others")
