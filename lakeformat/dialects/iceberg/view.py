"""One Iceberg table at one version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakeformat.dialects.dialect import View
from lakeformat.dialects.iceberg import (
    conflict,
    lineage,
    metadata,
    mirror,
    name_mapping,
    relocate,
)
from lakeformat.dialects.iceberg import layout as layouts
from lakeformat.dialects.iceberg import plan as plans
from lakeformat.dialects.iceberg import scan as scans
from lakeformat.dialects.iceberg.compaction import Compaction, DeleteFiles
from lakeformat.dialects.iceberg.conflict import Staging
from lakeformat.dialects.iceberg.expire import Expiring
from lakeformat.dialects.iceberg.history import History
from lakeformat.dialects.iceberg.inspect import INSPECTIONS, Inspections
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.iceberg.metadata_tables import MetadataTables
from lakeformat.dialects.iceberg.scan import Files, Partitions, Pruning
from lakeformat.dialects.iceberg.statistics import Statistics
from lakeformat.dialects.part import Owned
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Operation, OperationKind
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field
from lakeformat.model.snapshot import Outcome, Plan, Snapshot, Stamp
from lakeformat.model.work import (
    DeleteTask,
    FilesTask,
    Named,
    ReadTask,
    WriteTask,
)


@dataclass(frozen=True, slots=True)
class IcebergView(View[State]):
    """See `dialects.dialect.View`."""

    @property
    def format(self) -> str:
        return "iceberg"

    @property
    def outside_folders(self) -> tuple[str, ...]:
        return metadata.outside_folders(self.state)

    def on(self, branch: str | None) -> IcebergView:
        return replace(self, state=metadata.on(self.reader, self.state, branch))

    history = Owned(History)
    partitions = Owned(Partitions)
    pruning = Owned(Pruning)
    compaction = Owned(Compaction)
    expiring = Owned(Expiring)
    statistics = Owned(Statistics)
    metadata_tables = Owned(MetadataTables)
    staging = Owned(Staging)

    delete_files = Owned(DeleteFiles)

    def find(self, operation: Operation) -> Snapshot | None:
        return plans.find(self.reader, operation, self.state)

    def settle(self, operation: Operation, plan: Plan, since: int) -> Outcome:
        return lineage.settle(self.reader, operation, self.state, plan, since)

    def check(self, operation: Operation) -> None:
        conflict.check(self.reader, operation, self.state)

    def isolation(self, kind: OperationKind) -> str:
        return conflict.isolation(self.state, kind)

    def plan(self, operation: Operation, stamp: Stamp) -> Plan:
        return plans.plan(self.reader, operation, self.state, stamp)

    def attempts(self) -> int:
        return metadata.attempts(self.schema)

    def waits_ms(self) -> tuple[int, int]:
        return metadata.waits_ms(self.schema)

    def project(self, columns: Sequence[str] | None) -> tuple[Field, ...]:
        return scans.project(self.state, columns)

    def scan(self, columns: Sequence[str] | None = None, predicate: Expression = ALWAYS) -> Sequence[ReadTask]:
        return scans.scan(self.reader, self.state, columns, predicate)

    def files(self, predicate: Expression = ALWAYS) -> Files:
        return scans.files(self.reader, self.state, predicate)

    def tasks(
        self, files: Any, fields: tuple[Field, ...], predicate: Expression = ALWAYS, alone: bool = False
    ) -> Sequence[FilesTask]:
        return scans.tasks(self.reader, self.state, files, fields, predicate, alone)

    def count(self, predicate: Expression = ALWAYS) -> int | None:
        return scans.count(self.reader, self.state, predicate)

    def layout(self, from_files: bool = False) -> WriteTask:
        return layouts.layout(self.state, self.reader if from_files else None)

    def rewriting(self) -> tuple[tuple[Field, ...], WriteTask]:
        return layouts.rewriting(self.state, self.reader)

    def delete_layout(self, files: Any, verb: OperationKind) -> DeleteTask | None:
        return layouts.delete_layout(self.reader, self.state, files, verb)

    def tag(self, name: str, now_ms: int, retain_ms: int | None) -> Operation | tuple[str, bytes]:
        return metadata.tag(self.reader, self.state, name, now_ms, retain_ms)

    def inspect(self, name: str, *arguments: Any) -> pa.Table:
        return INSPECTIONS[name](Inspections(self.reader, self.state), *arguments)

    def adoption(self) -> tuple[tuple[Named, ...], Mapping[str, str]]:
        return name_mapping.for_adoption(self.state)

    def followed(self, location: str, format_version: int) -> Snapshot | None:
        return mirror.shown(self.state, location, format_version)

    def relocation(self, source: str, target: str, start: str | None, end: str | None) -> relocate.Relocation:
        return relocate.relocation(self.reader, self.state, source, target, start, end)
