"""One Paimon table at one version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.figures import Figures
from lakeformat.dialects.dialect import Mirror, Part, Published, View
from lakeformat.dialects.paimon import (
    compaction,
    conflict,
    expire,
    indexing,
    lineage,
    manifest,
    metadata,
    options,
    postponed,
    statistics,
)
from lakeformat.dialects.paimon import inspect as inspections
from lakeformat.dialects.paimon import layout as layouts
from lakeformat.dialects.paimon import mirror as mirrors
from lakeformat.dialects.paimon import plan as plans
from lakeformat.dialects.paimon import scan as scans
from lakeformat.dialects.paimon.branch import Branches, own_name
from lakeformat.dialects.paimon.metadata import MANIFEST_FOLDER, State
from lakeformat.dialects.paimon.scan import Files
from lakeformat.errors import UnsupportedFeature
from lakeformat.expression.pruning import Bounds
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Operation, OperationKind, Request, RewriteManifests
from lakeformat.model.partition import Sort
from lakeformat.model.predicate import ALWAYS, Expression, and_
from lakeformat.model.schema import Field
from lakeformat.model.snapshot import Expiry, Outcome, PartitionChange, Plan, Retention, Snapshot, Stamp
from lakeformat.model.work import (
    DeleteTask,
    Delta,
    GlobalIndexFile,
    IndexRange,
    IndexTask,
    ReadTask,
    RewriteTask,
    Upkeep,
    WriteTask,
)
from lakeformat.storage.store import Listed


@dataclass(frozen=True, slots=True)
class History(Part[State]):
    def snapshots(self, after: int = 0) -> list[Snapshot]:
        return metadata.history(self.reader, self.state, after)

    def committed(self, user: str) -> int | None:
        return metadata.committed(self.reader, self.state, user)

    def ids_with_changes(self, after: int) -> list[int]:
        return metadata.ids_with_changes(self.reader, self.state, after)

    def changes(self) -> tuple[PartitionChange, ...]:
        return plans.changes(self.reader, self.state)

    def delta(
        self, since: int, snapshot_id: int, fields: tuple[Field, ...], predicate: Expression = ALWAYS
    ) -> list[Delta]:
        return scans.delta(self.reader, self.state, since, snapshot_id, fields, predicate)


@dataclass(frozen=True, slots=True)
class Partitions(Part[State]):
    def scope_of(self, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        return manifest.scope_of(self.state.schema, partitions)

    def rows_in(self, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        return manifest.rows_in(self.state.schema, partitions)

    def chooses_files(self, scope: Expression) -> bool:
        return scans.chooses_files(self.reader, self.state, scope)


@dataclass(frozen=True, slots=True)
class Pruning(Part[State]):
    def manifests(self, predicate: Expression = ALWAYS) -> pa.Table:
        metas = scans.manifests(self.reader, self.state, predicate)
        paths = [f"{MANIFEST_FOLDER}/{name}" for name in metas["_FILE_NAME"].to_pylist()]
        count = pc.add(metas["_NUM_ADDED_FILES"], metas["_NUM_DELETED_FILES"])
        return pa.table({"path": pa.array(paths, pa.string()), "size_bytes": metas["_FILE_SIZE"], "file_count": count})

    def manifest_bounds(self) -> Iterator[tuple[np.ndarray, Mapping[str, Bounds]]]:
        metas = scans.manifests(self.reader, self.state)
        if len(metas) and self.state.schema.partitioning:
            yield np.arange(len(metas)), manifest.partition_bounds(metas, self.state.schema)

    def bounds(self, files: Any, names: Iterable[str]) -> Iterator[tuple[np.ndarray, Mapping[str, Bounds]]]:
        return scans.bounds(self.reader, self.state, files, names)

    def matching_wholly(self, files: Any, predicate: Expression) -> np.ndarray:
        return scans.matching_wholly(self.reader, self.state, files, predicate)


@dataclass(frozen=True, slots=True)
class Maintenance(Part[State]):
    def compaction(
        self,
        full: bool,
        scope: Expression = ALWAYS,
        now_ms: int | None = None,
        min_files: int | None = None,
        buckets: Sequence[int] | None = None,
    ) -> list[RewriteTask]:
        if min_files is not None:
            raise UnsupportedFeature(
                f"{self.reader.root}: min_files={min_files}: a Paimon table says it itself, by its property compaction.min.file-num"
            )
        return compaction.compaction(self.reader, self.state, full, scope, now_ms, buckets)

    def sorting(self, scope: Expression, sort_by: tuple[Sort, ...]) -> list[RewriteTask]:
        return compaction.sorting(self.reader, self.state, scope, sort_by)

    def has_many_manifests(self, asked: RewriteManifests) -> bool:
        metas, schema = manifest.read_metas(self.reader, self.state.document), self.state.schema
        if asked.sort_by:
            return len(metas) > 0 and manifest.are_unsorted(metas, schema, asked)
        return manifest.are_many(metas, schema)

    def default_retention(self, now_ms: int) -> Retention:
        return expire.default_retention(self.state.schema, now_ms)

    def expiry(self, retention: Retention, now_ms: int) -> Expiry:
        return expire.expiry(self.reader, self.state, retention, now_ms)

    def expired_tags(self, now_ms: int) -> list[str]:
        return metadata.expired_tags(self.reader, self.state, now_ms)

    def expiry_of_tag(self, name: str) -> Expiry:
        return expire.expiry_of_tag(self.reader, self.state, name)

    def orphans(self, older_than_ms: int) -> list[Listed]:
        return expire.orphans(self.reader, self.state, older_than_ms)


@dataclass(frozen=True, slots=True)
class PaimonView(View[State]):
    """See `dialects.dialect.View`; it also has `Keyed`, `Upkept`, `Consumers`, `Mirrored`, `Indexed` and `Statistics`."""

    fallback: PaimonView | None = None  # The branch whose partitions `scan` and `count` add where the table lacks them.

    @property
    def format(self) -> str:
        return "paimon"

    def with_fallback(self) -> PaimonView:
        if not options.of(self.state.newest or self.schema).scan_fallback_branch:
            return self
        fallback = self.branches.fallback()
        return self if fallback is None else replace(self, fallback=PaimonView(*fallback))

    def on(self, branch: str | None) -> PaimonView:
        return self if branch is None else replace(self, state=self.branches.require(branch))

    @property
    def history(self) -> History:
        return History(self.reader, self.state)

    @property
    def partitions(self) -> Partitions:
        return Partitions(self.reader, self.state)

    @property
    def pruning(self) -> Pruning:
        return Pruning(self.reader, self.state)

    @property
    def maintenance(self) -> Maintenance:
        return Maintenance(self.reader, self.state)

    @property
    def branches(self) -> Branches:
        return Branches(self.reader, self.state)

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

    def project(self, columns: Sequence[str] | None) -> tuple[Field, ...]:
        metadata.require_readable(self.state, self.reader.root)
        return scans.project(self.state, columns)

    def scan(self, columns: Sequence[str] | None = None, predicate: Expression = ALWAYS) -> Sequence[ReadTask]:
        own = scans.scan(self.reader, self.state, columns, predicate)
        if self.fallback is None:
            return own
        beside = self.branches.beside(self.fallback.reader, self.fallback.state)
        return [*own, *self.fallback.scan(columns, and_(predicate, beside))]

    def files(self, predicate: Expression = ALWAYS) -> Files:
        return scans.files(self.reader, self.state, predicate)

    def tasks(
        self, files: Any, fields: tuple[Field, ...], predicate: Expression = ALWAYS, alone: bool = False
    ) -> Sequence[ReadTask]:
        return scans.tasks(self.reader, self.state, files, fields, predicate, alone)

    def count(self, predicate: Expression = ALWAYS) -> int | None:
        own = scans.count(self.reader, self.state, predicate)
        if self.fallback is None or own is None:
            return own
        beside = self.branches.beside(self.fallback.reader, self.fallback.state)
        more = self.fallback.count(and_(predicate, beside))
        return None if more is None else own + more

    def audit(self, fields: tuple[Field, ...], predicate: Expression = ALWAYS) -> list[Delta]:
        return scans.audit(self.reader, self.state, fields, predicate)

    def layout(self, from_files: bool = False) -> WriteTask:
        return layouts.layout(self.state, self.reader if from_files else None)

    def rewriting(self) -> tuple[tuple[Field, ...], WriteTask]:
        return layouts.rewriting(self.state, self.reader)

    @property
    def writes_columns(self) -> bool:
        return options.of(self.schema).data_evolution_enabled

    def column_layouts(self, files: Any, names: Sequence[str]) -> list[WriteTask]:
        return layouts.of_columns(self.state, files, names, scans.partitions_of(self.state, files.entries))

    def delete_layout(self, files: Any, verb: OperationKind) -> DeleteTask | None:
        return scans.delete_layout(self.reader, self.state, files, verb)

    def tag(self, name: str, now_ms: int, retain_ms: int | None) -> Operation | tuple[str, bytes]:
        return metadata.tag(self.reader, self.state, name, now_ms, retain_ms)

    def inspect(self, name: str, *how: Any) -> pa.Table:
        return inspections.INSPECTIONS[name](self.reader, self.state, *how)

    def complete(self) -> PaimonView:
        postponed.require_none(self.reader, self.state)
        return replace(self, state=scans.complete(self.state))

    def located(self, columns: Sequence[str] | None = None, predicate: Expression = ALWAYS) -> list[ReadTask]:
        return scans.located(self.reader, self.state, columns, predicate)

    def scan_by_bucket(
        self, columns: Sequence[str] | None = None, predicate: Expression = ALWAYS
    ) -> Sequence[ReadTask]:
        return scans.scan(self.reader, self.state, columns, predicate, by_bucket=True)

    def placement(self, scope: Expression) -> list[RewriteTask]:
        return postponed.placement(self.reader, self.state, scope)

    def upkeep(self, number: int | None = None) -> Upkeep | None:
        return compaction.upkeep(self.schema, number) if self.schema.primary_key else None

    def due(self, made: Snapshot, now_ms: int) -> Retention | None:
        is_asked_for = options.of(self.schema).expires_with_commits
        return expire.due(self.reader, self.state, made, now_ms) if is_asked_for else None

    def expired_partitions(self, now_ms: int, options: Mapping[str, str] = MappingProxyType({})) -> Expression | None:
        schema = replace(self.state.schema, properties={**self.state.schema.properties, **options})
        return expire.expired_partitions(self.reader, replace(self.state, schema=schema), now_ms)

    def done_marks(self, partitions: Sequence[tuple[Any, ...]], now_ms: int) -> dict[str, bytes]:
        return layouts.done_marks(self.reader, self.state, partitions, now_ms)

    def pin(self, now_ms: int, retain_ms: int) -> tuple[str, bytes] | None:
        return metadata.pin(self.state, now_ms, retain_ms)

    def require_kept(self, tag: str | None = None) -> None:
        expire.require_kept(self.reader, self.state, tag)

    def replaced_history(self, version: int) -> Expiry:
        return expire.replaced_history(self.reader, version)

    def earliest(self, snapshot_id: int) -> tuple[int, Mapping[str, bytes]]:
        return metadata.earliest(self.reader, snapshot_id)

    def progress(self, consumer: str) -> int | None:
        return metadata.progress(self.reader, consumer)

    def consumer(self, name: str, next_snapshot: int) -> tuple[str, bytes]:
        return metadata.consumer(name, next_snapshot)

    def consumer_path(self, name: str) -> str:
        return metadata.consumer_path(name)

    def unindexed(self, scope: Expression) -> list[IndexTask]:
        return indexing.tasks(self.reader, self.state, scope)

    def unindexed_rows(self, column: str, kind: str, scope: Expression) -> list[IndexRange]:
        return indexing.unindexed(self.reader, self.state, column, kind, scope)

    def index_files(self, part: IndexRange, rows: pa.Table) -> Iterator[tuple[bytes, GlobalIndexFile]]:
        return indexing.files(part, rows)

    def global_indexes(self, column: str, kind: str, scope: Expression) -> list[str]:
        return indexing.paths(self.reader, self.state, column, kind, scope)

    def comparable(self, values: pa.Array, field: Field) -> pa.Array:
        return statistics.comparable(values, field)

    def column_statistics(self, request: Request, figures: Mapping[int, Figures], row_count: int) -> Operation:
        return statistics.of_columns(self.reader, self.state, request, figures, row_count)

    def partition_statistics(self, request: Request) -> Operation:
        raise UnsupportedFeature(
            f"{self.reader.root}: Paimon has no statistics of partitions; its manifests have their counts and sizes"
        )

    def mirror(self) -> Mirror | None:
        if options.of(self.schema).metadata_iceberg_storage == "disabled":
            return None
        is_table = own_name(self.reader) is None  # A mirror shows the main branch only.
        return mirrors.mirror(self.schema, self.reader.root) if is_table else None

    def published(self, known: Snapshot | None, schema_id: int) -> Published:
        return mirrors.published(self.reader, self.state, known, schema_id)

    def unshown(self) -> list[RewriteTask]:
        return mirrors.unshown(self.reader, self.state)

    def shown(self) -> PaimonView:
        return replace(self, state=mirrors.shown(self.reader, self.state))
