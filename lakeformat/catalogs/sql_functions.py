"""Functions in the database of a SQL catalog: one row of a table of our own, since neither format has one for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from lakeformat.catalogs.catalog import FunctionMetadata
from lakeformat.catalogs.database import Text, connected, shown
from lakeformat.errors import AlreadyExists, Conflict, CorruptFile, NotFound
from lakeformat.model.dataclass import dataclass

_NO_TABLES = sa.MetaData()  # For reading: a query creates no table.
_TABLES = sa.MetaData()
_LINES = sa.Table(
    "lakeformat_functions",
    _TABLES,
    sa.Column("catalog_key", Text(255), primary_key=True),
    sa.Column("database_name", Text(255), primary_key=True),
    sa.Column("function_name", Text(255), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("document", sa.Text, nullable=False),  # JSON of Paimon's model.
)


@dataclass(frozen=True, slots=True)
class SqlFunctions:
    """The functions of the catalog `key` in the database `uri`."""

    uri: str
    key: str

    def names(self, namespace: str) -> list[str]:
        own = _LINES.c.catalog_key == self.key, _LINES.c.database_name == namespace
        return [name for (name,) in self._read(sa.select(_LINES.c.function_name).where(*own))]

    def find(self, name: str) -> FunctionMetadata | None:
        for version, document in self._read(sa.select(_LINES.c.version, _LINES.c.document).where(*self._line(name))):
            try:
                return FunctionMetadata(json.loads(document), version)
            except ValueError as error:
                raise CorruptFile(f"function {name} in {shown(self.uri)}: no JSON ({error})") from error
        return None

    def create(self, name: str, document: Mapping[str, Any]) -> None:
        namespace, _, function = name.rpartition(".")
        line = {"catalog_key": self.key, "database_name": namespace, "function_name": function}
        try:
            with connected(self.uri, _TABLES) as connection:
                connection.execute(sa.insert(_LINES).values(**line, version=1, document=json.dumps(document)))
        except AlreadyExists:
            raise AlreadyExists(f"{name}: the function exists already in {shown(self.uri)}") from None

    def replace(self, name: str, base: FunctionMetadata, document: Mapping[str, Any]) -> None:
        with connected(self.uri, _TABLES) as connection:
            change = sa.update(_LINES).where(*self._line(name), _LINES.c.version == base.version)
            values = {"version": base.version + 1, "document": json.dumps(document)}
            done = connection.execute(change.values(**values)).rowcount
        if done != 1:
            raise Conflict(f"function {name} was changed by another writer meanwhile; nothing was changed here")

    def change(self, name: str, base: FunctionMetadata, document: Mapping[str, Any], change: Mapping[str, Any]) -> None:
        self.replace(name, base, document)

    def drop(self, name: str) -> None:
        with connected(self.uri, _TABLES) as connection:
            gone = connection.execute(sa.delete(_LINES).where(*self._line(name))).rowcount
        if not gone:
            raise NotFound(f"no function {name!r} in {shown(self.uri)}")

    def _read(self, chosen: sa.Select[Any]) -> list[Any]:
        with connected(self.uri, _NO_TABLES) as connection:
            if not sa.inspect(connection).has_table(_LINES.name):
                return []
            return list(connection.execute(chosen).all())

    def _line(self, name: str) -> tuple[Any, ...]:
        namespace, _, function = name.rpartition(".")
        return (
            _LINES.c.catalog_key == self.key,
            _LINES.c.database_name == namespace,
            _LINES.c.function_name == function,
        )
