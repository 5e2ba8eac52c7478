"""A table at one version, as its root documents say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from lakeformat.dialects.paimon.metadata.snapshots import to_snapshot
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Schema
from lakeformat.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class State:
    """A Paimon table at one version: the snapshot's document, and the schema that a write would use."""

    version: int
    schema: Schema
    document: Mapping[str, Any] | None = None
    schemas: dict[int, Schema] = field(default_factory=dict, compare=False, repr=False)
    # The current options, for a table at an older snapshot.
    newest: Schema | None = field(default=None, compare=False, repr=False)
    is_complete: bool = False  # With rows that readers do not see before compaction.
    is_compacted: bool = False  # Only files of the highest level, whose rows need no merging; of a table with a key.

    exists: bool = True

    @property
    def snapshot(self) -> Snapshot | None:
        return None if self.document is None else to_snapshot(self.document)


NOTHING = State(0, Schema(fields=(), id=-1), exists=False)
