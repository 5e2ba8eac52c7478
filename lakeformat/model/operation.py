"""Operations: changes as values, which a commit evaluates again on every base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field, Schema
from lakeformat.model.work import DeleteFile, GlobalIndexFile, WrittenFile, paths_of


class OperationKind(StrEnum):
    """The purpose of a change of rows. Snapshots record it, and conflict checks depend on it."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    TRUNCATE = "truncate"
    DELETE = "delete"
    UPDATE = "update"
    MERGE = "merge"
    REPLACE = "replace"  # Rows are replaced by others.
    COMPACT = "compact"
    CONVERT = "convert"  # Equality deletes become position deletes.
    RESTORE = "restore"
    REWRITE_MANIFESTS = "rewrite manifests"


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The rows that a change updated, deleted and inserted; None: not known."""

    updated: int | None = 0
    deleted: int | None = 0
    inserted: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What every operation carries.

    `id` makes the operation exactly-once: a snapshot with this id is this operation, landed. No snapshot up to
    `absent_until` can have it, so only later history is searched. `properties` are written into the snapshot.
    `schema_id` and `partitioning_id` are those that new files were written with. `branch` is the branch that the
    operation changes; None is the main branch. `stages`: the snapshot does not become the current one; it is published
    later. `session` belongs to a commit of a stream: its user and an increasing number, which `id` encodes. `follows`
    are the numbers prepared before it and not committed yet.
    """

    id: str
    session: tuple[str, int] | None = None
    follows: tuple[int, ...] = ()
    absent_until: int = 0
    schema_id: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    watermark: int | None = None
    branch: str | None = None
    partitioning_id: int | None = None
    stages: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create a table, with its first rows if the format has one root for both. With `keeps_ids`, columns keep the ids
    of the schema, by which existing files know them. `earlier` are the columns of files with other schemas; they become
    schemas 0, 1, ... before the table's own. With `adopts`, the files were there before: as for `Adopt`."""

    request: Request
    schema: Schema
    added: tuple[WrittenFile, ...] = ()
    keeps_ids: bool = False
    earlier: tuple[tuple[Field, ...], ...] = ()
    adopts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolve:
    """Apply schema changes in order, evaluated again on every base."""

    request: Request
    changes: tuple[Any, ...]  # from model.evolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    request: Request
    added: tuple[WrittenFile, ...]
    counts: RowCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Add existing files to the table in place. The operation does not own them: it deletes none, whatever becomes of
    it. Unless `may_repeat`, a file that the table already has is refused on every base."""

    request: Request
    added: tuple[WrittenFile, ...]
    may_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """Replace all live files in the partitions that satisfy `scope` by `added`. The last writer wins inside the scope.

    `scope` is a condition on partition columns, evaluated again on every base. With `pinned_to`, changes by others
    inside the scope after that snapshot are a `Conflict`.
    """

    request: Request
    added: tuple[WrittenFile, ...]
    scope: Expression = ALWAYS
    pinned_to: int | None = None
    kind: OperationKind = OperationKind.OVERWRITE  # Or TRUNCATE, DELETE.
    is_dynamic: bool = False  # The scope is the partitions of `added`.
    counts: RowCounts | None = None  # `deleted` on the base that the caller read.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Replace exactly the files of `removed` by `added`: compaction, copy-on-write delete and update, overwrite by row.

    The files read are frozen: a removed file that is no longer live is a `Conflict`, and so are others' deletes of its
    rows after `read_at`, the snapshot that was read (0: none). `scope` is a condition on partition columns that is true
    for all of them; with `pinned_to`, changes by others inside it are conflicts too. `isolation` adds others' changes
    since `read_at` to rows that satisfy `condition`: with "snapshot" new deletes, with "serializable" also new rows.
    """

    request: Request
    removed: tuple[str, ...]  # Paths relative to the table's location.
    added: tuple[WrittenFile, ...]
    kind: OperationKind = OperationKind.COMPACT  # Or DELETE, UPDATE, MERGE, OVERWRITE.
    scope: Expression = ALWAYS
    pinned_to: int | None = None
    read_at: int | None = None
    condition: Expression = ALWAYS
    isolation: str | None = None  # "serializable", "snapshot", or None: neither is checked.
    upgraded: tuple[tuple[str, int], ...] = ()  # Files that are upgraded: (path, level).
    counts: RowCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDelta:
    """Add and delete rows in one snapshot. `added` has data files and delete files; the delete files replace those that
    they name, and those in `removed`.

    What was read is frozen: a data file of `referenced` (whose rows are deleted by position) that is no longer live is
    a `Conflict`. `isolation` adds others' changes since `read_at` to rows that satisfy `condition`: with "snapshot" new
    deletes, with "serializable" also new rows. Without `read_at` nothing else is checked.
    """

    request: Request
    added: tuple[WrittenFile, ...]
    removed: tuple[DeleteFile, ...] = ()
    referenced: tuple[str, ...] = ()
    read_at: int | None = None
    condition: Expression = ALWAYS
    kind: OperationKind = OperationKind.DELETE  # Or UPDATE, MERGE, REPLACE, COMPACT, CONVERT; APPEND: a changelog.
    isolation: str | None = "serializable"
    pinned_to: int | None = (
        None  # Others' changes after that snapshot to rows that may satisfy `condition` are conflicts too.
    )
    reads: frozenset[str] = frozenset()  # Columns from which the new values of other columns were computed.
    counts: RowCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """The table as it was at `snapshot_id`, as a new version; the snapshots in between leave the history. `tag` keeps
    the snapshot if it has expired otherwise."""

    request: Request
    snapshot_id: int
    tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """The table becomes what a table of another format is at one snapshot, under that snapshot's number. It does not
    own the data files and deletes none. Only mirrors are made this way."""

    request: Request
    published: Any  # a dialects.dialect.Published


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteManifests:
    """The same live files in fewer manifests, clustered by partition; evaluated again on every base. No row changes.

    With `sort_by`, partition columns, each manifest gets a range of them: those that overlap are rewritten, or all with
    `rewrites_all`, up to `most_bytes`.
    """

    request: Request
    sort_by: tuple[str, ...] = ()
    rewrites_all: bool = False
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBranch:
    """Add the data files of the branch `source` that the table lacks; evaluated again on every base. Only where
    branches are folders."""

    request: Request
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFileIndexes:
    """Give data files the file indexes of (path, its indexes or the path that has them); those that others have
    replaced are left out on every base. No row changes."""

    request: Request
    indexes: tuple[tuple[str, bytes | str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGlobalIndexes:
    """Add global indexes of the rows at the snapshot `read_at`, and remove those in the files `removed`. A `Conflict`
    if others have changed such rows since. No row changes."""

    request: Request
    added: tuple[GlobalIndexFile, ...] = ()
    removed: tuple[str, ...] = ()
    read_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTag:
    """Tag a snapshot, for `retain_ms` or for ever. Only where a tag is no file of its own."""

    request: Request
    name: str
    snapshot_id: int
    retain_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTag:
    """Delete a tag. Only where a tag is no file of its own."""

    request: Request
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBranch:
    """Create a branch at a snapshot. It expires `retain_ms` after its newest snapshot. Expiry keeps `keep_snapshots` of
    its snapshots and all younger than `keep_ms`; None: as for the table."""

    request: Request
    name: str
    snapshot_id: int
    retain_ms: int | None = None
    keep_snapshots: int | None = None
    keep_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropBranch:
    """Delete a branch; its snapshots expire like any that nothing refers to."""

    request: Request
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FastForward:
    """Move the branch of the request to the head of `to`, a branch or a snapshot. A `Conflict` if the branch has
    snapshots that `to` lacks."""

    request: Request
    to: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class CherryPick:
    """Apply a staged snapshot's additions and replacements to the current table. A `Conflict` if that was done before,
    or if others have written to partitions that it replaced."""

    request: Request
    snapshot_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSnapshots:
    """Remove snapshots from the history; a `Conflict` if one is in use again. Only where a snapshot is no file of its
    own."""

    request: Request
    snapshots: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatistics:
    """Add a statistics file to a snapshot, of its columns ("table") or its partitions ("partition"), in place of an
    earlier one. `details` is what the format records beside the file."""

    request: Request
    snapshot_id: int
    of: str
    data: bytes
    details: Mapping[str, Any] = field(default_factory=dict)


# Operations without a snapshot: changes of the schema, tags and branches.
WithoutSnapshot = (
    Create | Evolve | SetTag | DropTag | CreateBranch | DropBranch | FastForward | DropSnapshots | SetStatistics
)
Operation = (
    Append
    | Adopt
    | CherryPick
    | MergeBranch
    | Overwrite
    | Rewrite
    | RowDelta
    | Restore
    | Follow
    | RewriteManifests
    | SetFileIndexes
    | SetGlobalIndexes
    | WithoutSnapshot
)


def new_files(operation: Operation) -> tuple[str, ...]:
    """The files that exist only for this operation."""
    match operation:
        case (
            Create(added=added, adopts=False)
            | Append(added=added)
            | Overwrite(added=added)
            | Rewrite(added=added)
            | RowDelta(added=added)
        ):
            return tuple(dict.fromkeys(paths_of(added)))
        case SetGlobalIndexes(added=files):
            return tuple(file.path for file in files)
        case SetFileIndexes(indexes=indexes):
            return tuple(index for _, index in indexes if isinstance(index, str))
        case _:
            return ()
