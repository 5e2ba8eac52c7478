"""What a table format has to say: `Format` names what a table is, `View` is one table at one version.

Only `head` gets a Store; all else looks and never touches. Conditions are bound to the schema; a `scope` speaks of
partition columns only. What one format alone has is a protocol of its own: ask for it with `isinstance`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

from lakeformat.codec.pruning import Bounds
from lakeformat.codec.theta import Sketch
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Operation, OperationKind, Request
from lakeformat.model.partition import Sort
from lakeformat.model.predicate import Expression
from lakeformat.model.schema import Field, Schema
from lakeformat.model.snapshot import Expiry, Outcome, PartitionChange, Plan, Retention, Snapshot, Stamp, TableState
from lakeformat.model.work import (
    DeleteFile,
    DeleteTask,
    Delta,
    DeltaLayout,
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

S = TypeVar("S", bound=TableState, covariant=True)
T = TypeVar("T", bound=TableState)


class Files(Protocol):
    """Live files of one snapshot, columnar; `paths` relative to the table's location. Only the view that gave them takes them."""

    @property
    def paths(self) -> pa.Array: ...
    @property
    def row_count(self) -> int: ...
    def __len__(self) -> int: ...
    def filter(self, keep: pa.Array) -> Files: ...


class History(Protocol):
    """The snapshots that led to a view of a table, and what they changed."""

    def snapshots(self, after: int = 0) -> list[Snapshot]:
        """The snapshots that led to the view, as far as they are kept, oldest first: those after `after`."""
        ...

    def committed(self, user: str) -> int | None:
        """The largest number that a stream, `user`, has committed, as far as history is kept."""
        ...

    def ids_with_changes(self, after: int) -> list[int]:
        """The snapshots after `after` that led here and whose changes can be read, oldest first: also those of which only
        their changelog is kept."""
        ...

    def changes(self) -> tuple[PartitionChange, ...]:
        """What the view's own snapshot changed in each partition."""
        ...

    def delta(
        self, since: int, snapshot_id: int, fields: tuple[Field, ...], predicate: Expression = ...
    ) -> list[Delta]:
        """The rows that came and went with a snapshot after `since`, the one before it, in order, as this later view names
        them. Raises `NotFound`."""
        ...


class Partitions(Protocol):
    """Partitions of a view of a table, as conditions."""

    def scope_of(self, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        """The condition on partition columns that holds for these partitions only."""
        ...

    def rows_in(self, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        """The condition on rows that holds for the rows of these partitions only."""
        ...

    def chooses_files(self, scope: Expression) -> bool:
        """Whether every live file lies wholly inside or outside `scope`, which speaks of partition columns."""
        ...


class Pruning(Protocol):
    """What metadata alone knows of the rows in manifests and files of a view of a table."""

    def manifests(self, predicate: Expression = ...) -> pa.Table:
        """The manifests that are read to find the files that may hold a row for which `predicate` is true: `path`, `size_bytes`,
        `file_count` (entries of live files; in Paimon's, of all files)."""
        ...

    def manifest_bounds(self) -> Iterator[tuple[np.ndarray, Mapping[str, Bounds]]]:
        """(indices of `manifests()`, what these manifests' bounds of partitions say of columns)."""
        ...

    def bounds(self, files: Files, names: Iterable[str]) -> Iterator[tuple[np.ndarray, Mapping[str, Bounds]]]:
        """(indices of `files`, what metadata knows of the columns `names` in them)."""
        ...

    def matching_wholly(self, files: Files, predicate: Expression) -> np.ndarray:
        """For each file, whether bounds prove that `predicate` is true for all of its rows."""
        ...


class Maintenance(Protocol):
    """What of a view of a table is worth writing anew, and what may be deleted."""

    def compaction(
        self, full: bool, scope: Expression = ..., now_ms: int | None = None, min_files: int | None = None
    ) -> list[RewriteTask]:
        """What is worth writing anew: without `now_ms`, whatever the time is; with `min_files`, from that many files on. Raises
        `UnsupportedFeature` where the table alone decides how many."""
        ...

    def sorting(self, scope: Expression, sort_by: tuple[Sort, ...]) -> list[RewriteTask]:
        """All files of each partition in `scope`, to be written anew in that order. Raises
        `UnsupportedFeature` where the order of rows is not free."""
        ...

    def has_many_manifests(self) -> bool:
        """Whether rewriting manifests would make them fewer."""
        ...

    def default_retention(self, now_ms: int) -> Retention: ...
    def expiry(self, retention: Retention, now_ms: int) -> Expiry: ...
    def expired_tags(self, now_ms: int) -> list[str]: ...
    def expiry_of_tag(self, name: str) -> Expiry: ...
    def orphans(self, older_than_ms: int) -> list[Listed]: ...


class View(Protocol[S]):
    """One table at one version, which reads each metadata file once. It stays what it is while others write."""

    @property
    def reader(self) -> Reader: ...
    @property
    def state(self) -> S:
        """What the format's own functions know it by."""
        ...

    @property
    def format(self) -> str: ...
    @property
    def exists(self) -> bool:
        """Whether there is a table; an operation that makes one is planned where there is none."""
        ...

    @property
    def version(self) -> int: ...
    @property
    def schema(self) -> Schema:
        """The newest schema, or of a view of the past that of its snapshot."""
        ...

    @property
    def snapshot(self) -> Snapshot | None: ...
    @property
    def snapshot_id(self) -> int:
        """Its id: as of which rows were read; 0 before the first."""
        ...

    @property
    def places(self) -> tuple[str, ...]:
        """Where the table's properties put files outside its folder: absolute, none unless they say so."""
        ...

    def planned(self, elsewhere: Elsewhere) -> View[S]:
        """The same view; where it has to decode very many manifests, others do."""
        ...

    def on(self, branch: str | None) -> View[S]:
        """The table as a branch of it; None is the table itself. Raises `NotFound`."""
        ...

    def require_readable(self) -> None:
        """Raise `UnsupportedFeature` for a table that could only be half-read, by its options then or by those of today."""
        ...

    @property
    def history(self) -> History: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def pruning(self) -> Pruning: ...
    @property
    def maintenance(self) -> Maintenance: ...

    # --- operations ---

    def find(self, operation: Operation) -> Snapshot | None:
        """The snapshot that `operation` became, if it has landed."""
        ...

    def settle(self, operation: Operation, plan: Plan, since: int) -> Outcome:
        """What became of an attempt at `operation` whose outcome the answer left open, now that the version is another than
        `since`, from which it began: PUBLISHED if `plan` is in the history, LOST if it is proved not to be, UNKNOWN if the
        proof has expired."""
        ...

    def check(self, operation: Operation) -> None:
        """Raise `Conflict` if others changed what `operation` relied on."""
        ...

    def isolation(self, kind: OperationKind) -> str | None:
        """What a change by row ("delete", "update", "merge") minds of what others did since it read: "serializable" their new
        rows, "snapshot" their deletes; None: only that the files it read are still there."""
        ...

    def plan(self, operation: Operation, stamp: Stamp) -> Plan: ...
    def attempts(self) -> int:
        """How often a commit is tried."""
        ...

    # --- reading ---

    def project(self, columns: Sequence[str] | None) -> tuple[Field, ...]:
        """The columns asked for, in the order asked for: all of the table's, without `columns`. Raises `NotFound`."""
        ...

    def scan(self, columns: Sequence[str] | None = None, predicate: Expression = ...) -> Sequence[ReadTask]:
        """The tasks that together read the rows for which `predicate` is true."""
        ...

    def files(self, predicate: Expression = ...) -> Files:
        """The live files that may hold a row for which `predicate` is true."""
        ...

    def tasks(
        self, files: Files, fields: tuple[Field, ...], predicate: Expression = ..., alone: bool = ...
    ) -> Sequence[ReadTask]:
        """Tasks that read these files; with `alone`, one for each file, in order."""
        ...

    def count(self, predicate: Expression = ...) -> int | None:
        """How many rows satisfy `predicate`, if metadata alone has the exact number; else None."""
        ...

    def audit(self, fields: tuple[Field, ...], predicate: Expression = ...) -> list[Delta]:
        """The rows, each with its kind."""
        ...

    # --- writing ---

    def layout(self, from_files: bool = ...) -> WriteTask:
        """How rows become files; `from_files`: also with what only the table's files record (`KeyValues.first`)."""
        ...

    def rewriting(self) -> tuple[tuple[Field, ...], WriteTask]:
        """(the columns to read, how they are written) where rows that are there move: with what they keep beside the table's
        own columns."""
        ...

    def delete_layout(self, files: Files, verb: OperationKind) -> DeleteTask | None:
        """How rows of these data files that `verb` ("delete", "update", "merge") takes become delete files; None where
        whole files are written again."""
        ...

    def tag(self, name: str, now_ms: int, retain_ms: int | None) -> Operation | tuple[str, bytes]:
        """What keeps the snapshot by name: an operation, or the path and bytes of a file of the tag's own."""
        ...

    def inspect(self, name: str, *how: Any) -> pa.Table:
        """Metadata as a table, by name."""
        ...


AnyView = View[TableState]


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """What a view and its parts are made of."""

    reader: Reader
    state: T


@dataclass(frozen=True, slots=True)
class TableView(Part[T]):
    """What a view of either format knows by its state alone."""

    def planned(self, elsewhere: Elsewhere) -> Self:
        return replace(self, reader=decoding(self.reader, elsewhere))

    @property
    def places(self) -> tuple[str, ...]:
        return ()

    @property
    def exists(self) -> bool:
        return self.state.exists

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def schema(self) -> Schema:
        return self.state.schema

    @property
    def snapshot(self) -> Snapshot | None:
        return self.state.snapshot

    @property
    def snapshot_id(self) -> int:
        snapshot = self.state.snapshot
        return 0 if snapshot is None else snapshot.id


class Format(Protocol):
    """A table format. Its views share a cache of the metadata files whose names are never given twice."""

    @property
    def name(self) -> str: ...
    @property
    def is_movable(self) -> bool:
        """Whether a table may lie in another folder than it was made in."""
        ...

    @property
    def creates_with_rows(self) -> bool:
        """Whether one commit makes a table and its first snapshot (`Create.added`)."""
        ...

    @property
    def metadata_folders(self) -> Sequence[str]:
        """The folders that hold metadata alone. What makes it a table lies in the last one."""
        ...

    @property
    def inspections(self) -> Collection[str]:
        """The names of the tables that `View.inspect` gives."""
        ...

    def is_table(self, reader: Reader) -> bool: ...
    def on_branch(self, store: Store, name: str) -> Store:
        """The table's files as the branch `name` has them, whether or not it is there. Raises `InvalidInput` for a name that cannot
        be."""
        ...

    def head(self, store: Store) -> Head: ...
    def load(self, reader: Reader, version: int, known: Any = None) -> AnyView:
        """The table at a version, with its newest schema. What `known`, a view of it that was loaded before, holds of that very
        version is not read again."""
        ...

    def at(self, reader: Reader, snapshot_id: int) -> AnyView:
        """The table as readers saw it then. Raises `NotFound`."""
        ...

    def at_tag(self, reader: Reader, name: str) -> AnyView: ...
    def at_time(self, reader: Reader, epoch_ms: int) -> AnyView: ...
    def until(self, reader: Reader, snapshot_id: int) -> AnyView:
        """As `at`; of a snapshot of which only its changelog is kept, what that says. Raises `NotFound`."""
        ...

    def everything(self, reader: Reader) -> Expiry:
        """All files of the table, in waves: what its metadata reaches below its location, and what has a name that engines give
        there. What makes it a table goes last, so that who is cut short can ask again."""
        ...


# --- what one format alone has ----------------------------------------------------------------------------------------


@runtime_checkable
class Keyed(Protocol):
    """Rows merged by key when they are read, in buckets."""

    def complete(self) -> Keyed:
        """The table as changes by row have to see it: also rows that were written and that no reader sees yet."""
        ...

    def scan(self, columns: Sequence[str] | None = None, predicate: Expression = ...) -> Sequence[ReadTask]: ...
    def located(self, columns: Sequence[str] | None = None, predicate: Expression = ...) -> list[ReadTask]:
        """As `scan`, with the bucket of each row too (`BUCKET`)."""
        ...

    def scan_by_bucket(self, columns: Sequence[str] | None = None, predicate: Expression = ...) -> Sequence[ReadTask]:
        """As `scan`; where rows are merged by key, a task has files of one bucket, and says of which partition and bucket."""
        ...


@runtime_checkable
class ByColumn(Protocol):
    """What a table's view has whose rows may get new values of some columns in files beside those that hold them."""

    @property
    def writes_columns(self) -> bool:
        """Whether they do in this table; else rows that change are written whole."""
        ...

    def column_layouts(self, files: Any, names: Sequence[str]) -> list[WriteTask]:
        """For each of these files how new values of the columns `names`, of all of its rows, are written beside it. Raises
        `InvalidInput` for columns that decide where rows lie."""
        ...


@runtime_checkable
class Upkept(Protocol):
    """Compaction and expiry that belong to writes, partitions with a time of their own, snapshots that a restore undoes."""

    def upkeep(self, number: int | None = None) -> Upkeep | None:
        """The compaction that belongs to a write, of a stream where it has a `number`; None: others do that."""
        ...

    def placement(self, scope: Expression) -> list[RewriteTask]:
        """What gives rows that wait for a bucket theirs. `scope`: on partition columns only."""
        ...

    def due(self, made: Snapshot, now_ms: int) -> Retention | None:
        """What is kept after the commit `made`, where the table asks for expiry with its commits and something may go; None:
        others do that, or nothing goes."""
        ...

    def expired_partitions(self, now_ms: int, options: Mapping[str, str] = ...) -> Expression | None:
        """The partitions whose own time is over by the table's options and these over them, as a scope; None when there is none."""
        ...

    def done_marks(self, partitions: Sequence[tuple[Any, ...]], now_ms: int) -> Mapping[str, bytes]:
        """The files that say of these partitions that they are done. Raises `UnsupportedFeature` where the table asks for more."""
        ...

    def replaced_history(self, version: int) -> Expiry:
        """The snapshots that the one of that id, a restore, has undone."""
        ...


@runtime_checkable
class BranchFolders(Protocol):
    """Branches that are folders: with schemas, snapshots and tags of their own."""

    def begin_branch(self, name: str, tag: str | None) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
        """(the files of what a branch of this view begins at, with `tag`, the one that it is the view of; its schemas, in the order in
        which they are written). Raises `AlreadyExists`, but not for a branch that these files were to make and did not."""
        ...

    def require_free(self, name: str, files: Mapping[str, bytes]) -> bool:
        """Whether the branch's folder has all of `files`. Raises `AlreadyExists` where it has any other."""
        ...

    def empty(self) -> AnyView:
        """The table as it was before its first snapshot, with its newest schema."""
        ...

    def end_branch(self, name: str) -> Expiry:
        """The files of a branch. Raises `NotFound`."""
        ...

    def forward(self, to: str) -> tuple[Mapping[str, bytes], Plan | None]:
        """(files of the branch `to` that the table lacks, the first of its snapshots that are new to the table; None where there is
        none). Raises `NotFound`, and `Conflict` where the table has snapshots that did not lead there."""
        ...


@runtime_checkable
class Staging(Protocol):
    """Snapshots that are made and published later."""

    def leads_to(self, snapshot_id: int) -> bool:
        """Whether the table's snapshot is the one that this one was made on. Raises `NotFound`."""
        ...

    def staged(self, wap_id: str) -> list[int]:
        """The snapshots that were staged under an id, oldest first."""
        ...


@runtime_checkable
class FallsBack(Protocol):
    """Partitions that the table may lack and another branch has."""

    def with_fallback(self) -> AnyView:
        """The table as scans see it: `scan` and `count` with the partitions that only its fallback branch has; the table itself,
        where it has none. Raises `NotFound` for a branch that is not there, `InvalidInput` for one that does not fit."""
        ...


@runtime_checkable
class Consumers(Protocol):
    """Readers by name, whose progress the table keeps, and snapshots for them."""

    def progress(self, consumer: str) -> int | None:
        """The next snapshot that a named consumer will read; None for one that is not there."""
        ...

    def consumer(self, name: str, next_snapshot: int) -> tuple[str, bytes]:
        """The path and bytes of the file that keeps a consumer's progress, and with it snapshots from there on."""
        ...

    def consumer_path(self, name: str) -> str: ...


@runtime_checkable
class DeletesByKey(Protocol):
    """Files that delete rows by the values of columns, and position delete files that are worth fewer."""

    def delta_layout(self, key: tuple[str, ...]) -> DeltaLayout:
        """How a changelog of rows known by `key` becomes files."""
        ...

    def position_deletes(self) -> tuple[Sequence[DeleteFile], pa.Table]:
        """The live position delete files and deletion vectors, and a row for each: `file_path` (the one data file that it is of; null
        where it may name several), `partition`, `spec_id`, `delete_file_path`."""
        ...

    def delete_compaction(self, full: bool, scope: Expression = ..., min_files: int | None = None) -> list[DeleteTask]:
        """Position delete files that are worth writing anew."""
        ...

    def conversion(self, scope: Expression = ...) -> tuple[list[MarkTask], tuple[DeleteFile, ...], tuple[str, ...]]:
        """(how the rows that equality deletes take are found and marked by their places, the files of those deletes, the data
        files they apply to)."""
        ...


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """Files of a table as a table of another format can name them. One row a file in `table`: its location (`path`), `row_count`,
    `size_bytes`, and by place the partition (`p0`, `p1`, ...); for a deletion vector also the data file (`of`), and where in the
    file it lies (`offset`, `length`). `bounds` by field id."""

    table: pa.Table
    bounds: Mapping[int, Bounds]


@dataclass(frozen=True, slots=True)
class Published:
    """What a table says of one of its snapshots to a table of another format that follows it.

    `since` is the snapshot from which `added` and `removed` (locations) count; None: the follower begins anew. Without `removed`,
    `added` is all that there is, and without `vectors` these are as they were.
    """

    location: str
    format_version: int
    snapshot: Snapshot
    identity: str  # Of the snapshot: numbers are given again after a rollback.
    kind: OperationKind
    schemas: tuple[Schema, ...]  # Those that the follower lacks, oldest first; ids of all parts as files have them.
    schema: Schema  # The newest one.
    properties: Mapping[str, str]  # Of the follower.
    kept: frozenset[int]  # The snapshots that are there.
    tags: Mapping[str, int]
    since: int | None
    added: tuple[PublishedFiles, ...]
    removed: pa.Array | None
    vectors: PublishedFiles | None


FOLLOWED = "followed-snapshot"  # In the summary of a follower's snapshot: the `identity` of the one that it shows.


@dataclass(frozen=True, slots=True)
class ShownIn:
    """The catalog that shows a mirror, by its address and options, and the name that it has there."""

    catalog: str
    name: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Mirror:
    """Where a table keeps its metadata as another format has it: below `root`."""

    root: str
    format_version: int
    shown_in: ShownIn | None = None


@runtime_checkable
class Mirrored(Protocol):
    """A table that keeps its metadata as another format has it too."""

    def mirror(self) -> Mirror | None:
        """Where; None where it keeps none."""
        ...

    def published(self, known: Snapshot | None, schema_id: int) -> Published:
        """What there is to say to the follower that shows the snapshot `known` (None: nothing that it can go on from) and has the
        schemas up to `schema_id`. Raises `UnsupportedFeature` for files that the other format cannot name."""
        ...

    def unshown(self) -> list[RewriteTask]:
        """What is to be written anew before the other format can show all rows."""
        ...

    def shown(self) -> AnyView:
        """The table as if it kept metadata of the other format in its own folder. Raises `UnsupportedFeature`."""
        ...


@runtime_checkable
class Follower(Protocol):
    """Metadata that mirrors a table of another format."""

    def followed(self, location: str, format_version: int) -> Snapshot | None:
        """The snapshot that it shows of the table at `location`, and from which it can go on."""
        ...


@runtime_checkable
class Statistics(Protocol):
    """Files beside a snapshot that say more of it than its manifests."""

    def countable(self, names: Sequence[str] | None) -> tuple[Field, ...]:
        """The columns whose distinct values can be counted: those named, or all. Raises `InvalidInput`."""
        ...

    def comparable(self, values: pa.Array, field: Field) -> pa.Array:
        """Values as the bytes (binary) by which the format counts them."""
        ...

    def column_statistics(self, request: Request, sketches: Mapping[int, Sketch]) -> Operation:
        """What notes the distinct values of columns, by field id."""
        ...

    def partition_statistics(self, request: Request) -> Operation:
        """What notes the figures of partitions."""
        ...


class Relocation(Protocol):
    """A table as it would be below another prefix, `target`. Paths are absolute."""

    @property
    def target(self) -> str: ...
    @property
    def latest(self) -> str:
        """The name of its newest metadata file."""
        ...

    def moved(self, path: str) -> str:
        """A path at the target; raises `InvalidInput` for what does not lie below the source."""
        ...

    def moved_all(self, paths: pa.Array) -> pa.Array: ...
    def position_deletes(self) -> list[tuple[str, str]]:
        """(path, format) of the delete files that name data files by their paths; "puffin": deletion vectors."""
        ...

    def vectors(self, data: bytes, path: str) -> bytes:
        """A file of deletion vectors as it would be."""
        ...

    def files(self, sizes: Mapping[str, int]) -> dict[str, bytes]:
        """Metadata as it would be, by path at the target; `sizes` are those of the new position delete files by their old paths."""
        ...

    def copies(self) -> list[str]:
        """The files that stay as they are."""
        ...


@runtime_checkable
class Relocatable(Protocol):
    """Metadata that names files by absolute paths."""

    def relocation(self, source: str, target: str, start: str | None, end: str | None) -> Relocation:
        """The table below another prefix: the versions after `start` (a metadata file), up to `end`."""
        ...


@runtime_checkable
class Adoption(Protocol):
    """Files of others that can become the table's where they are."""

    def adoption(self) -> tuple[tuple[Named, ...], Mapping[str, str]]:
        """(how files without field ids call the columns, the properties that are still to be set for it)."""
        ...
