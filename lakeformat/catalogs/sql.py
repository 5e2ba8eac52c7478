"""Iceberg's SQL catalog: one database row per table, as in pyiceberg's `SqlCatalog` and Java's `JdbcCatalog`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from lakeformat.catalogs import view_files
from lakeformat.catalogs.catalog import TableAccess, ViewMetadata
from lakeformat.catalogs.database import Text, TextOrNull, connected, shown
from lakeformat.catalogs.sql_functions import SqlFunctions
from lakeformat.codec import document
from lakeformat.errors import AlreadyExists, CorruptFile, NotFound, StoreError, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.storage.allowed import Allowed
from lakeformat.storage.catalogued import is_within
from lakeformat.storage.files import open_store
from lakeformat.storage.head import SwapHead
from lakeformat.storage.store import Reader, Store

_TABLES = sa.MetaData()
_LINES = sa.Table(
    "iceberg_tables",
    _TABLES,
    sa.Column("catalog_name", Text(255), primary_key=True),
    sa.Column("table_namespace", Text(255), primary_key=True),
    sa.Column("table_name", Text(255), primary_key=True),
    sa.Column("metadata_location", TextOrNull(1000)),
    sa.Column("previous_metadata_location", sa.String(1000)),
    sa.Column("iceberg_type", sa.String(5)),
)
_NAMESPACES = sa.Table(
    "iceberg_namespace_properties",
    _TABLES,
    sa.Column("catalog_name", Text(255), primary_key=True),
    sa.Column("namespace", Text(255), primary_key=True),
    sa.Column("property_key", sa.String(255), primary_key=True),
    sa.Column("property_value", sa.String(1000), nullable=False),
)
_TABLE, _VIEW = "TABLE", "VIEW"  # The kind of a row's object.


@dataclass(frozen=True, slots=True)
class SqlCatalog:
    """The catalog `name` in the database `uri` (a SQLAlchemy URL). Creates missing database tables. Metadata files are
    opened where they are `allowed`."""

    uri: str
    name: str = "default"
    allowed: Allowed | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"SqlCatalog({shown(self.uri)!r}, {self.name!r})"

    @property
    def format(self) -> str:
        return "iceberg"

    @property
    def functions(self) -> SqlFunctions:
        return SqlFunctions(self.uri, f"{self.format}.{self.name}")

    @property
    def vends_credentials(self) -> bool:
        return False

    @property
    def names_are_folders(self) -> bool:
        return False

    def namespaces(self) -> list[str]:
        with _connected(self.uri) as (connection, _):
            declared = sa.select(_NAMESPACES.c.namespace).where(_NAMESPACES.c.catalog_name == self.name)
            used = sa.select(_LINES.c.table_namespace).where(_LINES.c.catalog_name == self.name)
            return sorted(set(connection.scalars(declared.union(used))))

    def tables(self, namespace: str) -> list[str]:
        return self._names(namespace, _TABLE)

    def find(self, name: str, options: Mapping[str, str]) -> TableAccess | None:
        location = self.entry(name).location()
        if location is None:
            return None
        data = open_store(location.rpartition("/")[0], options, None, self.allowed, name).read(location)
        return TableAccess(table_root(data, location))

    def entry(self, name: str) -> SqlEntry:
        namespace, _, table = name.rpartition(".")
        return SqlEntry(self, namespace, table)

    def create_namespace(self, name: str) -> None:
        line = {
            "catalog_name": self.name, "namespace": name, "property_key": "exists", "property_value": "true",
        }  # fmt: skip
        if name not in self.namespaces():
            try:
                with _connected(self.uri) as (connection, _):
                    connection.execute(sa.insert(_NAMESPACES).values(**line))
            except AlreadyExists:
                return  # Another process created it.

    def namespace_properties(self, name: str) -> dict[str, str]:
        with _connected(self.uri) as (connection, _):
            columns = (_NAMESPACES.c.property_key, _NAMESPACES.c.property_value)
            lines = connection.execute(sa.select(*columns).where(*self._lines_of(name))).all()
        return {key: value for key, value in lines if key != "exists"}

    def alter_namespace(self, name: str, properties: Mapping[str, str], remove: Collection[str]) -> None:
        lines = {"exists": "true", **properties}  # A namespace exists if it has rows.
        own = self._lines_of(name)
        with _connected(self.uri) as (connection, _):
            connection.execute(sa.delete(_NAMESPACES).where(*own, _NAMESPACES.c.property_key.in_([*lines, *remove])))
            line = {"catalog_name": self.name, "namespace": name}
            connection.execute(
                sa.insert(_NAMESPACES), [{**line, "property_key": k, "property_value": v} for k, v in lines.items()]
            )

    def drop_namespace(self, name: str) -> None:
        with _connected(self.uri) as (connection, _):
            connection.execute(sa.delete(_NAMESPACES).where(*self._lines_of(name)))

    def location_of(self, namespace: str) -> str | None:
        return self.namespace_properties(namespace).get("location")

    def _lines_of(self, namespace: str) -> tuple[Any, ...]:
        return _NAMESPACES.c.catalog_name == self.name, _NAMESPACES.c.namespace == namespace

    def register(self, name: str, metadata_location: str) -> None:
        if not self.entry(name).swap(None, metadata_location):
            raise AlreadyExists(f"{name}: a table exists already in {self!r}; drop it first")

    def rename(self, old: str, new: str) -> None:
        self._rename(old, new, _TABLE)

    def drop(self, name: str) -> None:
        self._drop(name, _TABLE)

    def views(self, namespace: str) -> list[str]:
        return self._names(namespace, _VIEW)

    @property
    def keeps_views(self) -> bool:
        return True

    @property
    def places_views(self) -> bool:
        return False

    def has_view(self, name: str) -> bool:
        return self._view(name).location() is not None

    def find_view(self, name: str, options: Mapping[str, str]) -> ViewMetadata | None:
        location = self._view(name).location()
        return None if location is None else view_files.read(location, options, self.allowed, name)

    def publish_view(
        self, name: str, base: ViewMetadata | None, document: Mapping[str, Any], nonce: str, options: Mapping[str, str]
    ) -> bool:
        def swap(new: str) -> bool:
            try:
                return self._view(name).swap(None if base is None else base.location, new)
            except AlreadyExists:
                return False

        return view_files.write(document, base, nonce, options, self.allowed, swap)

    def rename_view(self, old: str, new: str) -> None:
        self._rename(old, new, _VIEW)

    def drop_view(self, name: str, root: str, options: Mapping[str, str]) -> None:
        view = self.find_view(name, options)
        self._drop(name, _VIEW)
        if view is not None:
            view_files.remove(view, root, options, self.allowed)

    def _view(self, name: str) -> SqlEntry:
        return replace(self.entry(name), kind=_VIEW)

    def _names(self, namespace: str, kind: str) -> list[str]:
        with _connected(self.uri) as (connection, typed):
            chosen = sa.select(_LINES.c.table_name).where(
                _LINES.c.catalog_name == self.name, _LINES.c.table_namespace == namespace, *_is(kind, typed)
            )
            return sorted(f"{namespace}.{name}" for name in connection.scalars(chosen))

    def _rename(self, old: str, new: str, kind: str) -> None:
        namespace, _, name = new.rpartition(".")
        with _connected(self.uri) as (connection, typed):
            change = sa.update(_LINES).where(*self.entry(old).line, *_is(kind, typed))
            changed = connection.execute(change.values(table_namespace=namespace, table_name=name)).rowcount
        if not changed:
            raise NotFound(f"no {kind.lower()} {old!r} in {self!r}")

    def _drop(self, name: str, kind: str) -> None:
        with _connected(self.uri) as (connection, typed):
            gone = connection.execute(sa.delete(_LINES).where(*self.entry(name).line, *_is(kind, typed))).rowcount
        if not gone:
            raise NotFound(f"no {kind.lower()} {name!r} in {self!r}")


@dataclass(frozen=True, slots=True)
class SqlEntry:
    """One row of a SQL catalog: the contested name of a table or view."""

    catalog: SqlCatalog
    namespace: str
    table: str
    kind: str = _TABLE

    @property
    def line(self) -> tuple[Any, ...]:
        return (
            _LINES.c.catalog_name == self.catalog.name,
            _LINES.c.table_namespace == self.namespace,
            _LINES.c.table_name == self.table,
        )

    def head(self, store: Store) -> SwapHead:
        return SwapHead(store, self)

    def location(self) -> str | None:
        with _connected(self.catalog.uri) as (connection, typed):
            chosen = sa.select(_LINES.c.metadata_location).where(*self.line, *_is(self.kind, typed))
            return connection.scalar(chosen)

    def sharers(self, reader: Reader) -> list[str]:
        """The tables of all catalogs in the database. A table's location is that of its metadata file,
        `<location>/metadata/`; a metadata file in another folder is read."""
        with _connected(self.catalog.uri) as (connection, typed):
            columns = (_LINES.c.catalog_name, _LINES.c.table_namespace, _LINES.c.table_name, _LINES.c.metadata_location)
            lines = connection.execute(sa.select(*columns).where(*_is(_TABLE, typed))).all()
        names = []
        for catalog, namespace, table, location in lines:
            if location is None or (catalog, namespace, table) == (self.catalog.name, self.namespace, self.table):
                continue
            root = location
            if not location.rpartition("/")[0].endswith("/metadata"):
                with suppress(StoreError, CorruptFile):
                    root = table_root(reader.read(location), location)
            if is_within(reader.root, root):
                shown = f"{namespace}.{table}"
                names.append(shown if catalog == self.catalog.name else f"{shown} (catalog {catalog!r})")
        return sorted(names)

    def swap(self, old: str | None, new: str) -> bool:
        try:
            with _connected(self.catalog.uri) as (connection, typed):
                if self.kind == _VIEW and not typed:
                    raise UnsupportedFeature(
                        f"{self.namespace}.{self.table}: the tables of {self.catalog!r} are of version 0, which keeps "
                        "no views: they lack the column iceberg_type"
                    )
                if old is not None:
                    is_own = *self.line, *_is(self.kind, typed)
                    change = sa.update(_LINES).where(*is_own, _LINES.c.metadata_location == old)
                    done = connection.execute(change.values(metadata_location=new, previous_metadata_location=old))
                    return done.rowcount == 1
                line = {
                    "catalog_name": self.catalog.name, "table_namespace": self.namespace, "table_name": self.table,
                    "metadata_location": new, **({"iceberg_type": self.kind} if typed else {}),
                }  # fmt: skip
                connection.execute(sa.insert(_LINES).values(**line))
                return True
        except AlreadyExists as error:
            if self.location() is None:
                other = _VIEW if self.kind == _TABLE else _TABLE
                raise AlreadyExists(
                    f"{self.namespace}.{self.table}: there is a {other.lower()} of that name in {self.catalog!r}"
                ) from error
            return False


def table_root(metadata: bytes, where: str) -> str:
    """The table location that a metadata file records."""
    location = document.parse(metadata, where).get("location")
    if not isinstance(location, str) or not location:
        raise CorruptFile(f"{where}: no table metadata: its location is {location!r}")
    return location.rstrip("/")


# --- private ----------------------------------------------------------------------------------------------------------


def _is(kind: str, typed: bool) -> tuple[Any, ...]:
    """The condition for tables or views: views have rows since version 1 of the database's schema, and a row without a
    kind is a table."""
    if not typed:
        return () if kind == _TABLE else (sa.false(),)
    own = _LINES.c.iceberg_type == kind
    return (sa.or_(own, _LINES.c.iceberg_type.is_(None)) if kind == _TABLE else own,)


@contextmanager
def _connected(uri: str) -> Iterator[tuple[sa.Connection, bool]]:
    """A transaction, and whether a column distinguishes tables from views."""
    with connected(uri, _TABLES) as connection:
        yield connection, _is_typed(connection.engine)


@cache
def _is_typed(engine: sa.Engine) -> bool:
    return any(column["name"] == "iceberg_type" for column in sa.inspect(engine).get_columns(_LINES.name))
