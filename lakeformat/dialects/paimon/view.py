"""One Paimon table at one version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakeformat.dialects.dialect import View
from lakeformat.dialects.paimon import conflict, lineage, metadata, options
from lakeformat.dialects.paimon import layout as layouts
from lakeformat.dialects.paimon import plan as plans
from lakeformat.dialects.paimon import scan as scans
from lakeformat.dialects.paimon.branch import Branches
from lakeformat.dialects.paimon.compaction import Compaction
from lakeformat.dialects.paimon.expire import Expiring
from lakeformat.dialects.paimon.history import History
from lakeformat.dialects.paimon.indexing import Indexes
from lakeformat.dialects.paimon.inspect import INSPECTIONS, Inspections
from lakeformat.dialects.paimon.layout import Hints
from lakeformat.dialects.paimon.metadata import Consumers, State
from lakeformat.dialects.paimon.metadata_tables import MetadataTables
from lakeformat.dialects.paimon.mirror import Mirroring
from lakeformat.dialects.paimon.postponed import Keyed
from lakeformat.dialects.paimon.scan import ColumnFiles, Files, Partitions, Pruning
from lakeformat.dialects.paimon.statistics import Statistics
from lakeformat.dialects.part import Owned
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Operation, OperationKind
from lakeformat.model.predicate import ALWAYS, Expression, and_
from lakeformat.model.schema import Field
from lakeformat.model.snapshot import Outcome, Plan, Snapshot, Stamp
from lakeformat.model.work import (
    DeleteTask,
    Delta,
    FilesTask,
    ReadTask,
    WriteTask,
)


@dataclass(frozen=True, slots=True)
class PaimonView(View[State]):
    """See `dialects.dialect.View`."""

    fallback: PaimonView | None = None  # The branch whose partitions `scan` and `count` add where the table lacks them.

    @property
    def format(self) -> str:
        return "paimon"

    def with_fallback(self) -> PaimonView:
        if not options.read(self.state.newest or self.schema).scan_fallback_branch:
            return self
        fallback = self.branches.fallback()
        return self if fallback is None else replace(self, fallback=PaimonView(*fallback))

    def on(self, branch: str | None) -> PaimonView:
        return self if branch is None else replace(self, state=self.branches.require(branch))

    history = Owned(History)
    partitions = Owned(Partitions)
    pruning = Owned(Pruning)
    compaction = Owned(Compaction)
    expiring = Owned(Expiring)
    statistics = Owned(Statistics)
    metadata_tables = Owned(MetadataTables)
    branches = Owned(Branches)

    @property
    def keyed(self) -> Keyed | None:
        return Keyed(self.reader, self.state) if self.schema.primary_key else None

    @property
    def column_files(self) -> ColumnFiles | None:
        return ColumnFiles(self.reader, self.state) if options.read(self.schema).data_evolution_enabled else None

    indexes = Owned(Indexes)
    consumers = Owned(Consumers)
    mirroring = Owned(Mirroring)
    hints = Owned(Hints)

    def find(self, operation: Operation) -> Snapshot | None:
        return plans.find(self.reader, operation, self.state)

    def settle(self, operation: Operation, plan: Plan, since: int) -> Outcome:
        return lineage.settle(self.reader, operation, self.state, plan, since)

    def check(self, operation: Operation) -> None:
        conflict.check(self.reader, operation, self.state)

    def plan(self, operation: Operation, stamp: Stamp) -> Plan:
        return plans.plan(self.reader, operation, self.state, stamp)

    def attempts(self) -> int:
        return metadata.attempts(self.schema)

    def waits_ms(self) -> tuple[int, int]:
        return metadata.waits_ms(self.schema)

    def project(self, columns: Sequence[str] | None) -> tuple[Field, ...]:
        metadata.require_readable(self.state, self.reader.root)
        return scans.project(self.state, columns)

    def scan(self, columns: Sequence[str] | None = None, predicate: Expression = ALWAYS) -> Sequence[ReadTask]:
        tasks = scans.scan(self.reader, self.state, columns, predicate)
        if self.fallback is None:
            return tasks
        beside = self.branches.beside(self.fallback.reader, self.fallback.state)
        return [*tasks, *self.fallback.scan(columns, and_(predicate, beside))]

    def files(self, predicate: Expression = ALWAYS) -> Files:
        return scans.files(self.reader, self.state, predicate)

    def tasks(
        self, files: Any, fields: tuple[Field, ...], predicate: Expression = ALWAYS, alone: bool = False
    ) -> Sequence[FilesTask]:
        return scans.tasks(self.reader, self.state, files, fields, predicate, alone)

    def count(self, predicate: Expression = ALWAYS) -> int | None:
        count = scans.count(self.reader, self.state, predicate)
        if self.fallback is None or count is None:
            return count
        beside = self.branches.beside(self.fallback.reader, self.fallback.state)
        more = self.fallback.count(and_(predicate, beside))
        return None if more is None else count + more

    def audit(self, fields: tuple[Field, ...], predicate: Expression = ALWAYS) -> list[Delta]:
        return scans.audit(self.reader, self.state, fields, predicate)

    def layout(self, from_files: bool = False) -> WriteTask:
        return layouts.layout(self.state, self.reader if from_files else None)

    def rewriting(self) -> tuple[tuple[Field, ...], WriteTask]:
        return layouts.rewriting(self.state, self.reader)

    def delete_layout(self, files: Any, verb: OperationKind) -> DeleteTask | None:
        return scans.delete_layout(self.reader, self.state, files, verb)

    def tag(self, name: str, now_ms: int, retain_ms: int | None) -> Operation | tuple[str, bytes]:
        return metadata.tag(self.reader, self.state, name, now_ms, retain_ms)

    def inspect(self, name: str, *arguments: Any) -> pa.Table:
        return INSPECTIONS[name](Inspections(self.reader, self.state), *arguments)
