"""The context of a statement: the warehouse, the session's settings, and the arguments of this call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.model.dataclass import dataclass
from lakeformat.table import Table
from lakeformat.warehouse.functions import Function, Functions
from lakeformat.warehouse.views import Views

if TYPE_CHECKING:
    from lakeformat.sql.text import Piece, Script

OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
MERGE_SCHEMA = "spark.paimon.write.merge-schema"  # INSERT adds missing columns.
WAP_ID = "spark.wap.id"  # The id under which writes to tables with `write.wap.enabled` are staged.
WAP_BRANCH = "spark.wap.branch"  # The branch for tables with `write.wap.enabled`.


class Warehouse(Protocol):
    """The part of a lake that statements use."""

    @property
    def uri(self) -> str: ...
    @property
    def allowed_locations(self) -> tuple[str, ...] | None: ...
    @property
    def views(self) -> Views: ...
    @property
    def functions(self) -> Functions: ...
    def table(self, name: str) -> Table: ...
    def exists(self, name: str) -> bool: ...
    def namespaces(self) -> list[str]: ...
    def tables(self, namespace: str | None = None) -> list[str]: ...
    def rename_table(self, old: str, new: str) -> Table: ...
    def create_namespace(self, name: str) -> None: ...
    def drop_namespace(self, name: str) -> None: ...
    def namespace_properties(self, name: str) -> dict[str, str]: ...
    def alter_namespace(self, name: str, properties: Mapping[str, str], remove: Collection[str] = ...) -> None: ...
    def places(self, format: str) -> bool: ...
    def repair(self, *names: str) -> list[str]: ...
    @property
    def keeps_properties(self) -> bool: ...
    def register_table(self, name: str, metadata_location: str) -> Table: ...
    @property
    def snapshot_table(self) -> Any: ...
    @property
    def migrate_table(self) -> Any: ...
    @property
    def snapshot_spark_table(self) -> Any: ...
    @property
    def migrate_spark_table(self) -> Any: ...
    @property
    def import_spark_table(self) -> Any: ...
    @property
    def create_table(self) -> Any: ...
    @property
    def create_table_as(self) -> Any: ...
    @property
    def drop_table(self) -> Any: ...
    @property
    def load_files(self) -> Any: ...
    @property
    def export_files(self) -> Any: ...


@dataclass(slots=True)
class Session:
    """State that USE, SET and temporary views keep for later statements, also of later calls."""

    database: str = "default"
    settings: dict[str, str] = field(default_factory=dict)
    views: dict[str, pa.Table] = field(default_factory=dict)  # Changelog views, computed once.
    catalogs: set[str] = field(default_factory=set)  # Names that stand for this warehouse.
    databases: set[str] = field(default_factory=set)  # Databases that CREATE DATABASE made; they may be empty.
    temporary: dict[str, Temporary] = field(default_factory=dict)  # Temporary views by name in lower case.
    functions: dict[str, Function] = field(default_factory=dict)  # Temporary functions by name in lower case.

    def __reduce__(self) -> Any:  # Without temporary views: they may hold Spark frames.
        return Session, (self.database, self.settings, self.views, self.catalogs, self.databases, {}, self.functions)


@dataclass(frozen=True, slots=True)
class Context:
    """One call of `sql`."""

    lake: Warehouse
    session: Session
    script: Script
    params: Mapping[str, Any]
    frames: Mapping[str, Any]
    spark: Any = None
    id: str | None = None
    properties: Mapping[str, str] | None = None
    folders: tuple[str, ...] = ()  # Whose files statements may reach.
    views: tuple[str, ...] = ()  # The views whose queries contain this one.
    functions: tuple[str, ...] = ()  # The functions whose bodies contain this text.

    @property
    def verb(self) -> dict[str, Any]:
        """The keywords that every committing verb takes."""
        return {"id": self.id, "properties": self.properties}

    @property
    def databases(self) -> list[str]:
        try:
            namespaces = self.lake.namespaces()
        except NotFound:  # A new warehouse has no folder before its first table.
            if not self.session.databases:
                raise
            namespaces = []
        return sorted({*namespaces, *self.session.databases})

    def setting(self, key: str) -> str | None:
        """The value that SET gave; else the Spark session's."""
        if key in self.session.settings:
            return self.session.settings[key]
        if self.spark is None:
            return None
        return self.spark.conf.get(key, None)

    @property
    def is_dynamic(self) -> bool:
        """Whether INSERT OVERWRITE replaces only the partitions of the inserted rows."""
        mode = (self.setting(OVERWRITE_MODE) or "static").lower()
        if mode not in ("static", "dynamic"):
            raise InvalidInput(f"{OVERWRITE_MODE}={mode!r}: it is 'static' or 'dynamic'")
        return mode == "dynamic"


@dataclass(frozen=True, slots=True)
class Temporary:
    """A temporary view: its query, the context of its creation, and its columns as (the query's name,
    the view's name)."""

    name: str
    context: Context
    query: Piece
    columns: tuple[tuple[str, str], ...]
