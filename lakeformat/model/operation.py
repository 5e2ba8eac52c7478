"""Changes as values: what a commit evaluates again on every base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field, Schema
from lakeformat.model.work import DeleteFile, WrittenFile, paths_of


class OperationKind(StrEnum):
    """What a change of rows is for: snapshots say it, and what conflicts with it depends on it."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    TRUNCATE = "truncate"
    DELETE = "delete"
    UPDATE = "update"
    MERGE = "merge"
    REPLACE = "replace"  # Rows give way to others.
    COMPACT = "compact"
    CONVERT = "convert"  # Equality deletes become position deletes.
    RESTORE = "restore"
    REWRITE_MANIFESTS = "rewrite manifests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What every operation carries.

    `id` makes it happen once: a snapshot that carries it is this operation, landed. No snapshot up to `absent_until`
    can carry it, so history is searched only above that. `properties` go into the snapshot. `schema_id` is that of the
    schema that new files were written with. `branch` is where the operation happens; None is the table itself.
    `partitioning_id` is that of the partitioning that new files were written with, where a table may change it.
    `stages`: the snapshot is made and is not the current one: somebody publishes it later. `session` is of a commit of a stream: its user, and a number that rises from commit to commit; `id` names both; `follows`
    are the numbers of those that were prepared before it and not committed yet.
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
    """A new table, with its first rows where the format has one root for both. With `keeps_ids`, columns have the ids that the
    schema says, by which files know them that are there already; `earlier` are the columns of files that have others, and get the
    schemas 0, 1, ... before that of the table."""

    request: Request
    schema: Schema
    added: tuple[WrittenFile, ...] = ()
    keeps_ids: bool = False
    earlier: tuple[tuple[Field, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolve:
    """Schema changes, in order; evaluated again on every base."""

    request: Request
    changes: tuple[Any, ...]  # of model.evolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    request: Request
    added: tuple[WrittenFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Files that were there before become part of the table where they are. They are not this operation's: whatever becomes
    of it, it deletes none. Unless `may_repeat`, a file that the table has already is refused on every base."""

    request: Request
    added: tuple[WrittenFile, ...]
    may_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """All live files in the partitions that satisfy `scope` go, `added` come: last writer wins inside the scope.

    `scope` speaks of partition columns only and is evaluated again on every base. With `pinned_to`, anything that
    others changed inside the scope after that snapshot is a `Conflict`.
    """

    request: Request
    added: tuple[WrittenFile, ...]
    scope: Expression = ALWAYS
    pinned_to: int | None = None
    kind: OperationKind = OperationKind.OVERWRITE  # Or TRUNCATE, DELETE.
    is_dynamic: bool = False  # The scope is the partitions of `added`, whatever else they are.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Exactly the files of `removed` go, `added` come: compaction, copy-on-write delete, update, overwrite by row.

    The files read are frozen: a removed file that is no longer live is a `Conflict`, and so are deletes that others made of
    its rows after `read_at`, the snapshot that was read (0: there was none). `scope` is a condition on partition columns that holds for all
    of them; with `pinned_to`, others' changes inside it are conflicts too. By `isolation`, so is what others did since
    `read_at` where rows satisfy `condition`: with "snapshot" new deletes, with "serializable" new rows too.
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
    upgraded: tuple[tuple[str, int], ...] = ()  # Files that stay, on another level: (path, level).


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDelta:
    """Rows come and rows go, in one snapshot: `added` holds data files and delete files; these take the place of the
    delete files that they say they replace, and of those in `removed`.

    What was read is frozen: a data file of `referenced` (whose rows deletes name by position) that is no longer live is a
    `Conflict`. So is, by `isolation`, what others did since `read_at` where rows satisfy `condition`: with "snapshot" new
    deletes, with "serializable" new rows too. Without `read_at` nothing else is checked.
    """

    request: Request
    added: tuple[WrittenFile, ...]
    removed: tuple[DeleteFile, ...] = ()
    referenced: tuple[str, ...] = ()
    read_at: int | None = None
    condition: Expression = ALWAYS
    kind: OperationKind = OperationKind.DELETE  # Or UPDATE, MERGE, REPLACE, COMPACT, CONVERT; APPEND: a changelog.
    isolation: str | None = "serializable"
    pinned_to: int | None = None  # Others' changes after that snapshot where `condition` may hold are conflicts too.
    reads: frozenset[str] = frozenset()  # Columns that new values of other columns of the same rows were made of.


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """The table as it was at `snapshot_id`, as a new version; everything in between leaves its history. `tag` is where the
    snapshot is kept if it has expired otherwise."""

    request: Request
    snapshot_id: int
    tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """The table becomes what a table of another format is at one snapshot, under that snapshot's number; none of its data files is
    this table's own, and it deletes none. Only metadata that mirrors another table's is made so."""

    request: Request
    published: Any  # of dialects.dialect.Published


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteManifests:
    """The same live files in fewer manifests, those of a partition together; evaluated again on every base. No row changes."""

    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTag:
    """A snapshot is kept by name, for `retain_ms` or for ever. Only where a tag is no file of its own."""

    request: Request
    name: str
    snapshot_id: int
    retain_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTag:
    """A tag goes. Only where a tag is no file of its own."""

    request: Request
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBranch:
    """A branch begins at a snapshot. It goes `retain_ms` after its newest snapshot; of what led to that, `keep_snapshots` and
    all younger than `keep_ms` stay. None: as the table's own."""

    request: Request
    name: str
    snapshot_id: int
    retain_ms: int | None = None
    keep_snapshots: int | None = None
    keep_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropBranch:
    """A branch goes; its snapshots expire like any that nothing names."""

    request: Request
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FastForward:
    """The branch of the request moves to where `to`, a branch or a snapshot, is. A `Conflict` where it has snapshots that did not
    lead there."""

    request: Request
    to: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class CherryPick:
    """What a staged snapshot added, and what it replaced, is done to the table as it is. A `Conflict` where that was done before, or
    others wrote to partitions that it replaced."""

    request: Request
    snapshot_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSnapshots:
    """Snapshots leave the history; a `Conflict` if one came into use again. Only where a snapshot is no file of its own."""

    request: Request
    snapshots: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatistics:
    """A file that says more of a snapshot comes: of the values of its columns ("table"), or of its partitions ("partition"). It
    takes the place of an earlier one. `details` are what the format notes beside the file."""

    request: Request
    snapshot_id: int
    of: str
    data: bytes
    details: Mapping[str, Any] = field(default_factory=dict)


# What makes no snapshot: changes of the schema, and of what names snapshots.
WithoutSnapshot = (
    Create | Evolve | SetTag | DropTag | CreateBranch | DropBranch | FastForward | DropSnapshots | SetStatistics
)
Operation = (
    Append | Adopt | CherryPick | Overwrite | Rewrite | RowDelta | Restore | Follow | RewriteManifests | WithoutSnapshot
)


def new_files(operation: Operation) -> tuple[str, ...]:
    """The files that exist only for this operation."""
    match operation:
        case (
            Create(added=added)
            | Append(added=added)
            | Overwrite(added=added)
            | Rewrite(added=added)
            | RowDelta(added=added)
        ):
            return tuple(dict.fromkeys(paths_of(added)))
        case _:
            return ()
