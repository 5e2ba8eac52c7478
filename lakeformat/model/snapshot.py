"""A table at one version: snapshots, the plan of a commit attempt, and the properties that a snapshot carries from the
one before.

Properties about all rows, not about the commit, are carried, so that they survive the expiry of the commit that wrote
them. Snapshots of other engines carry nothing: then they are found in the history, as long as it is kept.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum, auto
from typing import Any, Protocol

from lakeformat import clock
from lakeformat.errors import CorruptTable
from lakeformat.model import html
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Schema

STREAMS = "lakeformat.streams"  # The largest number that each stream has committed, by its user.
CHANGED_ROWS = ("rows_updated", "rows_deleted", "rows_inserted")  # By the statement, whatever files it wrote.
_FOLLOWS = "cdc."  # Prefix: how far the rows follow a database.
_OF_THE_COMMIT = "cdc.committed-ms"
COUNTS = ("files_added", "files_removed", "rows_added", "rows_removed", "bytes_added", "bytes_removed")
_WITHOUT_SNAPSHOT = {"create", "evolve", "refer", "statistics"}  # Kinds of changes that make no snapshot.
_MOST_STREAMS = 20  # The users that committed last: a table written under ever new names would carry all of them.


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """What a snapshot added to and removed from one partition; `values` are the partition's values, in column order."""

    values: tuple[Any, ...]
    files_added: int = 0
    files_removed: int = 0
    rows_added: int = 0
    rows_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    buckets: int = 0  # Paimon's buckets whose files changed.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table, as recorded by the commit that made it."""

    id: int
    kind: str  # "append", "overwrite", "compact", "analyze" (Paimon); Iceberg's `operation`
    timestamp_ms: int
    schema_id: int
    operation_id: str | None = None
    parent_id: int | None = None
    total_rows: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[PartitionChange, ...] | None = None  # None: not computed, as in a table's history.
    # Counts of the changelog and of changed rows, and without `partitions` those that snapshot metadata has, by name.
    figures: Mapping[str, int] = field(default_factory=dict)
    attempts: int = 1
    milliseconds: int = 0

    def __repr__(self) -> str:
        counts = f"rows +{self.rows_added} -{self.rows_removed}, files +{self.files_added} -{self.files_removed}"
        return f"Snapshot({self.id}, {self.kind!r}, {utc(self.timestamp_ms)}{f', {counts}' if self.partitions else ''})"

    def _repr_html_(self) -> str:
        header = ("partition", "rows +", "rows -", "files +", "files -", "bytes +", "bytes -")
        rows = (
            (
                ", ".join(map(str, p.values)),
                p.rows_added,
                p.rows_removed,
                p.files_added,
                p.files_removed,
                p.bytes_added,
                p.bytes_removed,
            )
            for p in self.partitions or ()
        )
        return html.table(f"snapshot {self.id}, {self.kind}, {utc(self.timestamp_ms)}", header, rows)

    @property
    def files_added(self) -> int | None:
        """Data files and delete files. This and the other counts are None if they are not known."""
        return self._figure("files_added")

    @property
    def files_removed(self) -> int | None:
        return self._figure("files_removed")

    @property
    def rows_added(self) -> int | None:
        return self._figure("rows_added")

    @property
    def rows_removed(self) -> int | None:
        return self._figure("rows_removed")

    @property
    def bytes_added(self) -> int | None:
        return self._figure("bytes_added")

    @property
    def bytes_removed(self) -> int | None:
        return self._figure("bytes_removed")

    @property
    def metrics(self) -> dict[str, int | None]:
        """The figures of the commit, by the nouns of Paimon's commit metrics: its duration in milliseconds, attempts
        and generated snapshots (a verb makes one); partitions and Paimon's buckets written; files, rows and bytes added
        and removed, of which a compaction's also stand under `compacted_...`; the rows that an append, overwrite,
        delete, update or merge updated, deleted and inserted; and files and rows of the changelog. None is not known,
        as of most counts in a table's history."""
        counts = {name: self._figure(name) for name in COUNTS}
        is_compaction = self.kind in ("compact", "replace")
        return {
            "duration_ms": self.milliseconds,
            "attempts": self.attempts,
            "snapshots": 0 if self.kind in _WITHOUT_SNAPSHOT else 1,
            "partitions_written": None if self.partitions is None else len(self.partitions),
            "buckets_written": None if self.partitions is None else sum(part.buckets for part in self.partitions),
            **counts,
            **{name: self.figures.get(name) for name in CHANGED_ROWS},
            **{f"compacted_{name}": counts[name] if is_compaction else 0 for name in COUNTS[:4]},
            "changelog_files": self.figures.get("changelog_files"),
            "changelog_rows": self.figures.get("changelog_rows"),
        }

    def _figure(self, name: str) -> int | None:
        if self.partitions is None:
            return self.figures.get(name)
        return sum(getattr(partition, name) for partition in self.partitions)


class TableState(Protocol):
    """A dialect's data of a table at one version. Shared code uses these four properties; the rest is the dialect's
    own."""

    @property
    def exists(self) -> bool:
        """Whether the table exists."""
        ...

    @property
    def version(self) -> int: ...
    @property
    def snapshot(self) -> Snapshot | None: ...
    @property
    def schema(self) -> Schema: ...


@dataclass(frozen=True, slots=True)
class Stamp:
    """The only clock and source of randomness of a plan."""

    now_ms: int
    nonce: str
    attempt: int = 0

    @classmethod
    def now(cls, attempt: int = 0) -> Stamp:
        return cls(clock.now_ms(), str(uuid.uuid4()), attempt)


@dataclass(frozen=True, slots=True)
class Plan:
    """New files, and the root that makes them part of the table. `hints` are written after it, and may fail. `unused`
    are files of the operation that the root does not refer to, since `files` replace them, and files that it drops.
    `statistics` counts what the root changes per partition, for a catalog that asks."""

    files: Mapping[str, bytes]
    root_path: str
    root: bytes
    snapshot: Snapshot
    hints: Mapping[str, bytes] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    statistics: Callable[[], Sequence[Mapping[str, Any]]] = tuple


class Outcome(Enum):
    """What became of an attempt to publish: won, lost, or unknown."""

    PUBLISHED = auto()
    LOST = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Retention:
    """Which snapshots to keep: at least `retain_min`, at most `retain_max`, all younger than `older_than_ms` (epoch),
    and all from the id `keep_from` on. Of the others, at most `limit` expire at once. `snapshot_ids` expire in any
    case."""

    retain_min: int = 1
    retain_max: int | None = None
    older_than_ms: int | None = None
    limit: int | None = None
    keep_from: int | None = None
    snapshot_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Expiry:
    """What nothing reaches any more once `snapshots` have expired: `waves` of paths, to be deleted in this order.

    Where there is `then`, this is the first step, which others can see: the `operation` that is committed if snapshots
    are part of a larger document, or else a notice among `files`, or a tag that goes. `then` computes from the table
    after it what may be deleted.
    """

    snapshots: tuple[int, ...]
    waves: tuple[tuple[str, ...], ...]
    files: Mapping[str, bytes] = field(default_factory=dict)  # Written before anything is deleted.
    marks: tuple[str, ...] = ()  # Written first as well, each time with content that none had before.
    notices: tuple[str, ...] = ()  # Notices of this and of earlier expiries. They are deleted last.
    folders: tuple[str, ...] = ()  # Removed afterwards if they are empty.
    hints: Mapping[str, bytes] = field(default_factory=dict)
    operation: Any = None  # from model.operation
    then: Callable[[Any], Expiry] | None = None


def utc(epoch_ms: int) -> str:
    """A snapshot's time as text: `2023-05-01T12:00:00.000Z`."""
    seconds, rest = divmod(epoch_ms, 1000)
    try:
        return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z"
    except (OverflowError, ValueError, OSError):  # After the year 9999.
        return f"{epoch_ms} ms since 1970"


def carried(
    properties: Mapping[str, str],
    session: tuple[str, int] | None,
    before: Mapping[str, str],
    streams: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The properties of a snapshot: those of its commit, and those carried from the snapshot `before`, whose rows it
    includes. A commit that says how far its rows follow a database replaces all of that. `streams`: the properties of
    the snapshot that the streams' numbers come from, if it is another."""
    merged = dict(properties)
    if not any(name.startswith(_FOLLOWS) for name in properties):
        merged = {k: v for k, v in before.items() if k.startswith(_FOLLOWS) and k != _OF_THE_COMMIT} | merged
    numbers = stream_numbers(before if streams is None else streams)
    if session is not None:
        user, number = session
        numbers[user] = max(number, numbers.pop(user, number))
    if numbers:
        merged[STREAMS] = json.dumps(dict(list(numbers.items())[-_MOST_STREAMS:]))
    return merged


def stream_numbers(properties: Mapping[str, str]) -> dict[str, int]:
    """User -> the largest number that it committed, as recorded in a snapshot's properties. Raises `CorruptTable`."""
    text = properties.get(STREAMS, "{}")
    try:
        return {str(user): int(number) for user, number in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptTable(f"a snapshot's property {STREAMS} is {text!r}, and no numbers of streams") from error
