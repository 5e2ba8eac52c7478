"""What a statement runs in: the warehouse, what earlier statements set, and what came with this call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.model.dataclass import dataclass
from lakeformat.table import Table
from lakeformat.views import Views

if TYPE_CHECKING:
    from lakeformat.sql.text import Piece, Script

OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
MERGE_SCHEMA = "spark.paimon.write.merge-schema"  # INSERT adds the columns that a table lacks.
WAP_ID = "spark.wap.id"  # Under which statements stage what they write to such tables.
WAP_BRANCH = "spark.wap.branch"  # Where statements read and write tables with `write.wap.enabled`.


class Warehouse(Protocol):
    """What statements ask of a lake."""

    @property
    def uri(self) -> str: ...
    @property
    def views(self) -> Views: ...
    def table(self, name: str) -> Table: ...
    def exists(self, name: str) -> bool: ...
    def namespaces(self) -> list[str]: ...
    def tables(self, namespace: str | None = None) -> list[str]: ...
    def rename_table(self, old: str, new: str) -> Table: ...
    def create_namespace(self, name: str) -> None: ...
    def drop_namespace(self, name: str) -> None: ...
    def namespace_properties(self, name: str) -> dict[str, str]: ...
    def alter_namespace(self, name: str, properties: Mapping[str, str], remove: Collection[str] = ...) -> None: ...
    @property
    def places_tables(self) -> bool: ...
    @property
    def keeps_properties(self) -> bool: ...
    def register_table(self, name: str, metadata_location: str) -> Table: ...
    @property
    def snapshot_table(self) -> Any: ...
    @property
    def migrate_table(self) -> Any: ...
    @property
    def create_table(self) -> Any: ...
    @property
    def create_table_as(self) -> Any: ...
    @property
    def drop_table(self) -> Any: ...


@dataclass(slots=True)
class Session:
    """What USE and SET leave behind for the statements that follow, also of later calls."""

    database: str = "default"
    settings: dict[str, str] = field(default_factory=dict)
    views: dict[str, pa.Table] = field(default_factory=dict)  # Of changelogs, which stay as they are.
    catalogs: set[str] = field(default_factory=set)  # Names that stand for this warehouse.
    databases: set[str] = field(default_factory=set)  # What CREATE DATABASE made and no table is in yet.
    temporary: dict[str, Temporary] = field(default_factory=dict)  # Views, by name in lower case.

    def __reduce__(self) -> Any:  # Temporary views stay behind: they may hold Spark's frames.
        return Session, (self.database, self.settings, self.views, self.catalogs, self.databases)


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
    views: tuple[str, ...] = ()  # Whose queries this one is part of.

    @property
    def verb(self) -> dict[str, Any]:
        """What every verb that commits is given."""
        return {"id": self.id, "properties": self.properties}

    @property
    def databases(self) -> list[str]:
        try:
            there = self.lake.namespaces()
        except NotFound:  # A new warehouse, whose folder comes with its first table.
            if not self.session.databases:
                raise
            there = []
        return sorted({*there, *self.session.databases})

    def setting(self, key: str) -> str | None:
        """What SET said; else what the Spark session says."""
        if key in self.session.settings:
            return self.session.settings[key]
        if self.spark is None:
            return None
        return self.spark.conf.get(key, None)

    @property
    def is_dynamic(self) -> bool:
        """Whether INSERT OVERWRITE replaces the partitions that the rows lie in, and no others."""
        mode = (self.setting(OVERWRITE_MODE) or "static").lower()
        if mode not in ("static", "dynamic"):
            raise InvalidInput(f"{OVERWRITE_MODE}={mode!r}: it is 'static' or 'dynamic'")
        return mode == "dynamic"


@dataclass(frozen=True, slots=True)
class Temporary:
    """A view of the session: its query, what it stands in, and its columns by the query's names and the view's."""

    name: str
    context: Context
    query: Piece
    columns: tuple[tuple[str, str], ...]
