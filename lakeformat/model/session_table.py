"""A table of a Spark session's own catalog, which files of it may become part of a lake's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from lakeformat.errors import UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Field


@dataclass(frozen=True, slots=True)
class SessionTable:
    """`path` is (catalog, namespace, name). Spark deletes the files of a managed table together with it, and moves
    them when it is renamed."""

    path: tuple[str, ...]
    file_format: str  # "parquet", "orc", "csv", ...; or the name of another data source.
    fields: tuple[Field, ...]
    partition_by: tuple[str, ...]
    location: str
    is_managed: bool
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`namespace.name`."""
        return ".".join(self.path[1:])


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """The data files of a table of Spark's, and the partition that each is in."""

    paths: tuple[str, ...]
    partitions: tuple[Mapping[str, Any], ...]


def require_parquet(table: SessionTable) -> None:
    """Raise `UnsupportedFeature` for a table whose files cannot become a lake's where they are."""
    if table.file_format != "parquet":
        raise UnsupportedFeature(
            f"{table.name} has files of {table.file_format}: only Parquet files become part of a table where they are; "
            "copy its rows with import_spark_table, or CREATE TABLE ... AS SELECT"
        )
