"""The protocols of a table format: `Format` finds and loads tables, `View` is one table at one version.

Only `head` takes a Store; everything else only reads. Conditions are bound to the schema; a `scope` is a condition on
partition columns. What only one format has is a protocol of its own: test for it with `isinstance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa

from lakeformat.codec.figures import Figures
from lakeformat.dialects.metadata_tables import MetadataTables
from lakeformat.dialects.part import Part, S
from lakeformat.expression.pruning import Bounds
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Operation, OperationKind, Request, RewriteManifests
from lakeformat.model.partition import Sort
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field, Schema
from lakeformat.model.snapshot import Expiry, Outcome, PartitionChange, Plan, Retention, Snapshot, Stamp, TableState
from lakeformat.model.tag_schedule import TagSchedule
from lakeformat.model.work import (
    DeleteFile,
    DeleteTask,
    Delta,
    DeltaLayout,
    FilesTask,
    GlobalIndexFile,
    IndexRange,
    IndexTask,
    MarkTask,
    Named,
    ReadTask,
    RewriteTask,
    Upkeep,
    WriteTask,
)
from lakeformat.storage.cache import Elsewhere, decoding
from lakeformat.storage.head import Head
from lakeformat.storage.store import Listed, Reader, Store

WAITS_MS = 10, 10_000  # The least and the longest wait between two attempts of a commit, by default.


class Files(Protocol):
    """Live files of one snapshot, columnar; `paths` are relative to the table's location. They can be passed only to
    the view that returned them."""

    @property
    def paths(self) -> pa.Array: ...
    @property
    def row_count(self) -> int: ...
    def __len__(self) -> int: ...
    def filter(self, keep: pa.Array) -> Files: ...


class History(Protocol):
    """The snapshots that led to a view of a table, and their changes."""

    def snapshots(self, after: int = 0) -> list[Snapshot]:
        """The retained snapshots after `after` that led to the view, oldest first."""

    def committed(self, user: str) -> int | None:
        """The largest number that the stream `user` has committed, as far as history is kept."""

    def ids_with_changes(self, after: int) -> list[int]:
        """The snapshots after `after` that led here and whose changes can be read, oldest first; also expired ones
        whose changelog is kept."""

    def changes(self) -> tuple[PartitionChange, ...]:
        """What the view's own snapshot changed in each partition."""

    def delta(
        self, since: int, snapshot_id: int, fields: tuple[Field, ...], predicate: Expression = ...
    ) -> list[Delta]:
        """The rows added and removed by a snapshot after `since`, its predecessor, in order and with this later view's
        names. Raises `NotFound`."""


class Partitions(Protocol):
    """Partitions of a view, as conditions."""

    def scope_of(self, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        """The condition on partition columns that selects exactly these partitions."""

    def rows_in(self, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        """The condition on rows that selects exactly the rows of these partitions."""

    def chooses_files(self, scope: Expression) -> bool:
        """Whether every live file is wholly inside or outside `scope`."""


class Pruning(Protocol):
    """What metadata alone says about the rows in a view's manifests and files."""

    def manifests(self, predicate: Expression = ...) -> pa.Table:
        """The manifests to read for the files that may have a row for which `predicate` is true: `path`, `size_bytes`,
        `file_count` (entries of live files; in Paimon of all files)."""

    def manifest_bounds(self) -> Iterator[tuple[np.ndarray, Mapping[str, Bounds]]]:
        """(indices of `manifests()`, the bounds of columns that follow from these manifests' partition bounds)."""

    def bounds(self, files: Files, names: Iterable[str]) -> Iterator[tuple[np.ndarray, Mapping[str, Bounds]]]:
        """(indices of `files`, the bounds of the columns `names` in them)."""

    def matching_wholly(self, files: Files, predicate: Expression) -> np.ndarray:
        """For each file, whether bounds prove that `predicate` is true for all of its rows."""

    def has_whole_files(self) -> bool:
        """Whether the table's rows are those of its files: none is deleted, and none has columns in another file."""


class Compaction(Protocol):
    """What is worth rewriting."""

    def tasks(
        self,
        full: bool,
        scope: Expression = ...,
        now_ms: int | None = None,
        min_files: int | None = None,
        buckets: Sequence[int] | None = None,
    ) -> list[RewriteTask]:
        """What is worth rewriting, in all or these `buckets`; without `now_ms` regardless of the time, with `min_files`
        from that many files on. Raises `UnsupportedFeature` for `min_files` if only the table's options decide, and for
        `buckets` if the table has no fixed ones; `InvalidInput` for buckets that it does not have."""

    def sorting(self, scope: Expression, sort_by: tuple[Sort, ...]) -> list[RewriteTask]:
        """All files of each partition in `scope`, to be rewritten in that order. Raises `UnsupportedFeature` if the
        rows' order is fixed."""

    def has_many_manifests(self, request: RewriteManifests) -> bool:
        """Whether rewriting manifests would make them fewer, or sort them. Raises `UnsupportedFeature` for a sort order
        if the format has one of its own."""

    def upkeep(self, number: int | None = None) -> Upkeep | None:
        """The auto-compaction of a write, or of a stream's commit `number`; None without one, or if another job
        compacts."""


class Expiring(Protocol):
    """What may be deleted, and what keeps it."""

    def default_retention(self, now_ms: int) -> Retention: ...
    def due(self, snapshot: Snapshot, now_ms: int) -> Retention | None:
        """The retention after the commit `snapshot`, if the table expires snapshots with its commits and some may
        expire; else None."""

    def snapshots(self, retention: Retention, now_ms: int) -> Expiry: ...
    def expired_tags(self, now_ms: int) -> list[str]: ...
    def of_tag(self, name: str) -> Expiry: ...
    def of_restore(self, version: int) -> Expiry:
        """The snapshots undone by the restore with this id."""

    def partitions(self, now_ms: int, properties: Mapping[str, str] = ...) -> Expression | None:
        """The expired partitions as a scope, by the table's options and `properties` over them; None without any."""

    def orphans(self, older_than_ms: int) -> list[Listed]: ...
    def tag_schedule(self) -> TagSchedule | None: ...
    def pin(self, now_ms: int, retain_ms: int) -> tuple[str, bytes] | None:
        """The path and bytes of a file that keeps this view's snapshot for that time; None if the commit itself
        does."""

    def require_kept(self, tag: str | None = None) -> None:
        """Raises `NotFound` if an expiry has begun to remove the snapshot of this view, or the tag that it is the view
        of. To be called after something that keeps the snapshot is there."""


class Statistics(Protocol):
    """Statistics files of snapshots."""

    def comparable(self, values: pa.Array, field: Field) -> pa.Array:
        """Values as the bytes (binary) that the format counts."""

    def of_columns(self, request: Request, figures: Mapping[int, Figures], row_count: int) -> Operation:
        """The operation that records the figures of columns, by field id, of the snapshot's `row_count` rows."""

    def of_partitions(self, request: Request) -> Operation:
        """The operation that records the statistics of partitions. Raises `UnsupportedFeature`."""


class Keyed(Protocol):
    """Rows that are merged by key when they are read, in buckets, as row-level changes must see them: with written rows
    that no reader sees yet."""

    def scan(self, columns: Sequence[str] | None = None, predicate: Expression = ...) -> Sequence[ReadTask]: ...
    def located(self, columns: Sequence[str] | None = None, predicate: Expression = ...) -> list[ReadTask]:
        """As `scan`, with each row's bucket (`BUCKET`)."""

    def scan_by_bucket(self, columns: Sequence[str] | None = None, predicate: Expression = ...) -> Sequence[ReadTask]:
        """As `scan`; each task has files of one bucket, and names its partition and bucket."""

    def placement(self, scope: Expression) -> list[RewriteTask]:
        """The tasks that assign buckets to rows that wait for one. `scope`: on partition columns only."""


class ColumnFiles(Protocol):
    """New values of some columns, in files beside the rows' own."""

    def layouts(self, files: Any, names: Sequence[str]) -> list[WriteTask]:
        """For each of these files, how new values of the columns `names` of all its rows are written beside it. Raises
        `InvalidInput` for columns that decide where rows are stored."""


class Branches(Protocol):
    """Branches that are folders, with schemas, snapshots and tags of their own."""

    def begin(self, name: str, tag: str | None) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
        """(the files of a branch that starts at this view, including `tag`, the tag it is the view of; its schemas in
        the order in which they are written). Raises `AlreadyExists`, but not for the leftovers of an interrupted
        creation."""

    def require_free(self, name: str, files: Mapping[str, bytes]) -> bool:
        """Whether the branch's folder has all of `files`. Raises `AlreadyExists` if it has any other file."""

    def empty(self) -> TableState:
        """The table before its first snapshot, with its newest schema."""

    def end(self, name: str) -> Expiry:
        """The files of a branch. Raises `NotFound`."""

    def require_renamable(self, name: str, to: str) -> tuple[str, str, str]:
        """(the folder of the branch `name`, the folder of `to`, a file in it that says that it is being renamed).
        Raises `NotFound` and `AlreadyExists`, but not for a renaming that was interrupted."""

    def renamed(self, name: str, to: str) -> Mapping[str, bytes]:
        """The files of a branch, under their names in the branch `to`, in the order in which they are written."""

    def is_behind(self, source: str) -> bool:
        """Whether the branch `source` has files that this one lacks. Raises `NotFound`, `InvalidInput` and `Conflict`
        if they cannot be added."""

    def forward(self, to: str) -> tuple[Mapping[str, bytes], Plan | None, Mapping[str, bytes] | None]:
        """(files of the branch `to` that the table lacks, the plan for the first of its snapshots that are new to the
        table or None, the files that are still lacking then if that is the last one). Raises `NotFound`, and `Conflict`
        if the table has snapshots that the branch lacks."""


class Staging(Protocol):
    """Snapshots that are made now and published later."""

    def leads_to(self, snapshot_id: int) -> bool:
        """Whether the given snapshot was made on the table's current one. Raises `NotFound`."""

    def staged(self, wap_id: str) -> list[int]:
        """The snapshots that were staged under an id, oldest first."""


class Consumers(Protocol):
    """Named readers, whose progress the table keeps, together with the snapshots they still need."""

    def progress(self, name: str) -> int | None:
        """The next snapshot that a consumer will read; None if it does not exist."""

    def file(self, name: str, next_snapshot: int) -> tuple[str, bytes]:
        """The path and bytes of the file with a consumer's progress; expiry keeps snapshots from there on."""

    def path(self, name: str) -> str: ...


class DeleteFiles(Protocol):
    """Equality deletes, and the compaction of position delete files."""

    def delta_layout(self, key: tuple[str, ...]) -> DeltaLayout:
        """How a changelog of rows with the key `key` becomes files."""

    def position_deletes(self) -> tuple[Sequence[DeleteFile], pa.Table]:
        """The live position delete files and deletion vectors, and one row for each: `file_path` (its only data file;
        null if there may be several), `partition`, `spec_id`, `delete_file_path`."""

    def compaction(self, full: bool, scope: Expression = ..., min_files: int | None = None) -> list[DeleteTask]:
        """Position delete files that are worth rewriting."""

    def conversion(self, scope: Expression = ...) -> tuple[list[MarkTask], tuple[DeleteFile, ...], tuple[str, ...]]:
        """(the tasks that find the positions of rows that equality deletes delete, these delete files, the data files
        they apply to)."""


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """Files of a table as a table of another format can refer to them. One row per file in `table`: its location
    (`path`), `row_count`, `size_bytes`, and the partition's values (`p0`, `p1`, ...); for a deletion vector also its
    data file (`of`) and its position in the file (`offset`, `length`). `bounds` by field id."""

    table: pa.Table
    bounds: Mapping[int, Bounds]


@dataclass(frozen=True, slots=True)
class Published:
    """What a table publishes of one of its snapshots to its mirror.

    `added` and `removed` (locations) count from the snapshot `since`; None: the mirror begins anew. Without `removed`,
    `added` has all files. Without `vectors` they are unchanged.
    """

    location: str
    format_version: int
    snapshot: Snapshot
    identity: str  # The snapshot's identity: numbers are reused after a rollback.
    kind: OperationKind
    schemas: tuple[Schema, ...]  # The schemas that the mirror lacks, oldest first, with the ids that files have.
    schema: Schema  # The newest one.
    properties: Mapping[str, str]  # The mirror's properties.
    kept: frozenset[int]  # The retained snapshots.
    tags: Mapping[str, int]
    since: int | None
    added: tuple[PublishedFiles, ...]
    removed: pa.Array | None
    vectors: PublishedFiles | None


FOLLOWED = "followed-snapshot"  # In a mirror's snapshot summary: the `identity` of the followed snapshot.


@dataclass(frozen=True, slots=True)
class ShownIn:
    """The catalog that shows a mirror, by its address and options, and the mirror's name in it."""

    catalog: str
    name: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Mirror:
    """The location `root` of a table's metadata in another format."""

    root: str
    format_version: int
    shown_in: ShownIn | None = None


class Mirroring(Protocol):
    """The metadata in another format that a table may keep beside its own."""

    def mirror(self) -> Mirror | None:
        """The mirror; None if the table has none."""

    def published(self, earlier: Snapshot | None, schema_id: int) -> Published:
        """What to publish to the mirror that shows the snapshot `earlier` (None: none that it can continue from) and
        has the schemas up to `schema_id`.
        Raises `UnsupportedFeature` for files that the other format cannot represent."""

    def unshown(self) -> list[RewriteTask]:
        """What must be rewritten before the other format can show all rows."""

    def shown(self) -> TableState:
        """The table as if its mirror were in its own folder. Raises `UnsupportedFeature`."""


class Indexes(Protocol):
    """Indexes of the values in files."""

    def unindexed(self, scope: Expression) -> list[IndexTask]:
        """The files of these partitions that lack an index which the table's options ask for."""

    def unindexed_rows(self, column: str, kind: str, scope: Expression) -> list[IndexRange]:
        """The rows of these partitions that no global index of the column covers. Raises `UnsupportedFeature` for
        columns and kinds that are not indexed."""

    def index_files(self, part: IndexRange, rows: pa.Table) -> Iterator[tuple[bytes, GlobalIndexFile]]:
        """(the bytes, the file) of global indexes for the rows of `part`: the column and the row ids."""

    def global_indexes(self, column: str, kind: str, scope: Expression) -> list[str]:
        """The files of a column's global indexes in these partitions."""


class Hints(Protocol):
    """Files that tell other engines what metadata alone does not."""

    def done_marks(self, partitions: Sequence[tuple[Any, ...]], now_ms: int) -> Mapping[str, bytes]:
        """The files that mark these partitions as done. Raises `UnsupportedFeature` for options that ask for more."""

    def earliest(self, snapshot_id: int) -> tuple[int, Mapping[str, bytes]]:
        """(the snapshot that other engines take for the earliest now, the hint by which they take `snapshot_id`).
        Raises `InvalidInput` unless all snapshots from there on exist."""


class Relocation(Protocol):
    """A table as it would be under another prefix, `target`. Paths are absolute."""

    @property
    def target(self) -> str: ...
    @property
    def latest(self) -> str:
        """The name of its newest metadata file."""

    def moved(self, path: str) -> str:
        """A path at the target. Raises `InvalidInput` for a path outside the source."""

    def moved_all(self, paths: pa.Array) -> pa.Array: ...
    def position_deletes(self) -> list[tuple[str, str]]:
        """(path, format) of the delete files that refer to data files by path; "puffin": deletion vectors."""

    def vectors(self, data: bytes, path: str) -> bytes:
        """A file of deletion vectors with the new paths."""

    def files(self, sizes: Mapping[str, int]) -> dict[str, bytes]:
        """The rewritten metadata, by path at the target; `sizes` are those of the new position delete files by their
        old paths."""

    def copies(self) -> list[str]:
        """The files to copy unchanged."""


@dataclass(frozen=True, slots=True)
class View(Part[S], ABC):
    """One table at one version. It reads each metadata file once, and does not change while others write. What not all
    tables have is a part that may be None."""

    @property
    @abstractmethod
    def format(self) -> str: ...
    @property
    def exists(self) -> bool:
        """Whether the table exists; an operation that creates it is planned on a view where it does not."""
        return self.state.exists

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def schema(self) -> Schema:
        """The newest schema; in a view of an older snapshot that snapshot's schema."""
        return self.state.schema

    @property
    def snapshot(self) -> Snapshot | None:
        return self.state.snapshot

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot that is read; 0 before the first."""
        return 0 if self.state.snapshot is None else self.state.snapshot.id

    @property
    def outside_folders(self) -> tuple[str, ...]:
        """The absolute locations outside the table's folder where its properties put files; usually none."""
        return ()

    def planned(self, elsewhere: Elsewhere) -> Self:
        """The same view; other processes decode manifests if there are very many."""
        return replace(self, reader=decoding(self.reader, elsewhere))

    @abstractmethod
    def on(self, branch: str | None) -> View[S]:
        """The table at a branch; None is the table itself. Raises `NotFound`."""

    def with_fallback(self) -> View[S]:
        """The table as scans see it: `scan` and `count` include the partitions that only its fallback branch has; the
        table itself if it has no fallback branch. Raises `NotFound` for a branch that does not exist, `InvalidInput`
        for one that does not fit."""
        return self

    def adoption(self) -> tuple[tuple[Named, ...], Mapping[str, str]] | None:
        """(the name mapping for files without field ids, the properties to set for it first), if existing files can be
        added in place."""
        return None

    def followed(self, location: str, format_version: int) -> Snapshot | None:
        """For metadata that mirrors a table of another format, which is at `location`: its mirrored snapshot from which
        the mirror can continue."""
        return None

    # --- parts ---

    @property
    @abstractmethod
    def history(self) -> History: ...
    @property
    @abstractmethod
    def partitions(self) -> Partitions: ...
    @property
    @abstractmethod
    def pruning(self) -> Pruning: ...
    @property
    @abstractmethod
    def compaction(self) -> Compaction: ...
    @property
    @abstractmethod
    def expiring(self) -> Expiring: ...
    @property
    @abstractmethod
    def statistics(self) -> Statistics: ...
    @property
    @abstractmethod
    def metadata_tables(self) -> MetadataTables: ...
    @property
    def branches(self) -> Branches | None:
        """None: branches are references to snapshots, and made by operations."""
        return None

    @property
    def staging(self) -> Staging | None:
        return None

    @property
    def keyed(self) -> Keyed | None:
        """None for a table without a primary key by which rows are merged."""
        return None

    @property
    def column_files(self) -> ColumnFiles | None:
        """None: changed rows are rewritten whole."""
        return None

    @property
    def delete_files(self) -> DeleteFiles | None:
        return None

    @property
    def indexes(self) -> Indexes | None:
        return None

    @property
    def consumers(self) -> Consumers | None:
        return None

    @property
    def mirroring(self) -> Mirroring | None:
        return None

    @property
    def hints(self) -> Hints | None:
        return None

    def relocation(self, source: str, target: str, start: str | None, end: str | None) -> Relocation | None:
        """The table under another prefix: the versions after `start` (a metadata file), up to `end`; None if its
        metadata refers to files relative to its folder."""
        return None

    # --- operations ---

    @abstractmethod
    def find(self, operation: Operation) -> Snapshot | None:
        """The snapshot that `operation` became, if it has landed."""

    @abstractmethod
    def settle(self, operation: Operation, plan: Plan, since: int) -> Outcome:
        """The outcome of an attempt at `operation` whose answer left it open, now that the version is no longer
        `since`, where it began: PUBLISHED if `plan` is in the history, LOST if it provably is not, UNKNOWN if the proof
        has expired."""

    def isolation(self, kind: OperationKind) -> str | None:
        """The isolation level of a row-level change ("delete", "update", "merge"): with "serializable" others' new rows
        are conflicts, with "snapshot" their deletes, with None only the removal of a file that the change read."""
        return None

    @abstractmethod
    def check(self, operation: Operation) -> None:
        """Raise `Conflict` if others changed what `operation` relied on."""

    @abstractmethod
    def plan(self, operation: Operation, stamp: Stamp) -> Plan: ...
    @abstractmethod
    def attempts(self) -> int:
        """The number of attempts of a commit."""

    @abstractmethod
    def waits_ms(self) -> tuple[int, int]:
        """(the least, the longest time to wait before a commit is attempted again), in milliseconds."""

    # --- reading ---

    @abstractmethod
    def project(self, columns: Sequence[str] | None) -> tuple[Field, ...]:
        """The requested columns, in that order; all columns without `columns`. Raises `NotFound`, and
        `UnsupportedFeature` for a table that could only be half-read, by its options at that version or its current
        ones."""

    @abstractmethod
    def scan(self, columns: Sequence[str] | None = None, predicate: Expression = ...) -> Sequence[ReadTask]:
        """The tasks that together read the rows for which `predicate` is true."""

    @abstractmethod
    def files(self, predicate: Expression = ...) -> Files:
        """The live files that may hold a row for which `predicate` is true."""

    @abstractmethod
    def tasks(
        self, files: Files, fields: tuple[Field, ...], predicate: Expression = ..., alone: bool = ...
    ) -> Sequence[FilesTask]:
        """Tasks that read these files; with `alone`, one per file, in order."""

    @abstractmethod
    def count(self, predicate: Expression = ...) -> int | None:
        """The number of rows that satisfy `predicate`, if metadata alone has it exactly; else None."""

    def audit(self, fields: tuple[Field, ...], predicate: Expression = ALWAYS) -> list[Delta] | None:
        """The rows, each with its kind; None if the files do not record that."""
        return None

    # --- writing ---

    @abstractmethod
    def layout(self, from_files: bool = ...) -> WriteTask:
        """How rows become files. `from_files`: also with what only the table's files record (`KeyValues.first`)."""

    @abstractmethod
    def rewriting(self) -> tuple[tuple[Field, ...], WriteTask]:
        """(the columns to read, how they are written) for existing rows that move, with the columns that they keep
        beside the table's own."""

    @abstractmethod
    def delete_layout(self, files: Files, verb: OperationKind) -> DeleteTask | None:
        """How the rows of these data files that `verb` ("delete", "update", "merge") deletes become delete files; None
        for copy-on-write."""

    @abstractmethod
    def tag(self, name: str, now_ms: int, retain_ms: int | None) -> Operation | tuple[str, bytes]:
        """How to tag the snapshot: by an operation, or by a file (path, bytes) of the tag's own."""

    @abstractmethod
    def inspect(self, name: str, *arguments: Any) -> pa.Table:
        """Metadata as a table, by name."""


AnyView = View[TableState]


class Format(Protocol):
    """A table format. Its views share a cache of metadata files whose names are never reused."""

    @property
    def name(self) -> str: ...
    @property
    def is_movable(self) -> bool:
        """Whether a table may be moved to another folder."""

    @property
    def creates_with_rows(self) -> bool:
        """Whether one commit creates a table and its first snapshot (`Create.added`)."""

    @property
    def metadata_folders(self) -> Sequence[str]:
        """The folders that hold only metadata. The root documents are in the last one."""

    @property
    def inspections(self) -> Collection[str]:
        """The names that `View.inspect` takes."""

    def is_table(self, reader: Reader) -> bool: ...
    def on_branch(self, store: Store, name: str) -> Store:
        """The files of the table at the branch `name`, which need not exist. Raises `InvalidInput` for its name."""

    def head(self, store: Store) -> Head: ...
    def load(self, reader: Reader, version: int, earlier: Any = None) -> AnyView:
        """The table at a version, with its newest schema. `earlier` is a view that was loaded before; what it has of
        that version is not read again."""

    def load_snapshot(self, reader: Reader, snapshot_id: int) -> AnyView:
        """The table at a snapshot, with that snapshot's schema. Raises `NotFound`."""

    def at_tag(self, reader: Reader, name: str) -> AnyView: ...
    def at_time(self, reader: Reader, epoch_ms: int) -> AnyView: ...
    def until(self, reader: Reader, snapshot_id: int) -> AnyView:
        """As `at`; for an expired snapshot whose changelog is kept, what that says. Raises `NotFound`."""

    def everything(self, reader: Reader) -> Expiry:
        """All files of the table, in waves: those below its location that its metadata reaches, and those named as
        engines name files. The root documents are last, so that an interrupted drop can be repeated."""


# --- what one format alone has ----------------------------------------------------------------------------------------


@runtime_checkable
class Adjustable(Protocol):
    """A format whose tables can be read and written with other options than their own."""

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """The options that come before the tables' own."""

    def with_options(self, options: Mapping[str, str], where: str) -> Format:
        """The format with these options alone before the tables' own; no table keeps them. Raises `InvalidInput` and
        `UnsupportedFeature` for options that cannot differ from the tables'."""
