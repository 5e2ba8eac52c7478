"""A table at one version, as its root document says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from lakeformat.dialects.iceberg.metadata.snapshots import to_snapshot
from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import (
    Partitioning,
    TransformKind,
)
from lakeformat.model.schema import (
    Schema,
    Type,
)
from lakeformat.model.snapshot import Snapshot

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Spec:
    """A partition spec: its fields, the id of each field's source column, and the types of their values."""

    id: int
    partitioning: Partitioning
    source_ids: tuple[int, ...]
    types: tuple[Type, ...]

    @property
    def field_ids(self) -> tuple[int, ...]:
        return tuple(f.id for f in self.partitioning.fields)

    @property
    def is_unpartitioned(self) -> bool:
        return all(f.transform.kind is TransformKind.VOID for f in self.partitioning.fields)


@dataclass(frozen=True, slots=True)
class State:
    """An Iceberg table at one version of its metadata, seen from one of its snapshots."""

    version: int
    schema: Schema
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    snapshot_document: Mapping[str, Any] | None = None
    specs: Mapping[int, Spec] = field(default_factory=dict)
    branch: str = MAIN
    location: str = ""  # The document's location.
    # The loaded state, of which this is a branch or an older snapshot.
    whole: State | None = field(default=None, compare=False, repr=False)

    exists: bool = True

    @property
    def snapshot(self) -> Snapshot | None:
        return None if self.snapshot_document is None else to_snapshot(self.snapshot_document)

    @property
    def spec(self) -> Spec:
        """The current spec, with which new files are written."""
        return self.specs[self.document["default-spec-id"]]


NOTHING = State(0, Schema(fields=(), id=-1), exists=False)
