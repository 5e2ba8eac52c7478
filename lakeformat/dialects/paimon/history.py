"""The snapshots that led to a view of a table, and their changes."""

from __future__ import annotations

from lakeformat.dialects.paimon import metadata, plan, scan
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field
from lakeformat.model.snapshot import PartitionChange, Snapshot
from lakeformat.model.work import Delta


@dataclass(frozen=True, slots=True)
class History(Part[State]):
    """The snapshots that led to a view, and their changes."""

    def snapshots(self, after: int = 0) -> list[Snapshot]:
        return metadata.history(self.reader, self.state, after)

    def committed(self, user: str) -> int | None:
        return metadata.committed(self.reader, self.state, user)

    def ids_with_changes(self, after: int) -> list[int]:
        return metadata.ids_with_changes(self.reader, self.state, after)

    def changes(self) -> tuple[PartitionChange, ...]:
        return plan.changes(self.reader, self.state)

    def delta(
        self, since: int, snapshot_id: int, fields: tuple[Field, ...], predicate: Expression = ALWAYS
    ) -> list[Delta]:
        return scan.delta(self.reader, self.state, since, snapshot_id, fields, predicate)
