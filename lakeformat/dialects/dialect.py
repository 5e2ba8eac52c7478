"""What a table format has to say: the functions that shared code calls. A dialect is a module that has them.

Only `head` gets a Store; all else looks and never touches. Conditions are bound to the schema; a `scope` speaks of
partition columns only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from lakeformat.codec.pruning import Bounds
from lakeformat.model.operation import Operation
from lakeformat.model.order import Sort
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
from lakeformat.storage.head import Head
from lakeformat.storage.store import Listed, Reader, Store


class Files(Protocol):
    """Live files of one snapshot, columnar; `paths` relative to the table's location."""

    @property
    def paths(self) -> pa.Array: ...
    @property
    def row_count(self) -> int: ...
    def __len__(self) -> int: ...
    def filter(self, keep: pa.Array) -> Files: ...


class Dialect(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def is_movable(self) -> bool:
        """Whether a table may lie in another folder than it was made in."""
        ...

    @property
    def INSPECTIONS(self) -> Mapping[str, Callable[..., pa.Table]]:
        """Metadata as tables, by name."""
        ...

    def is_table(self, reader: Reader) -> bool: ...
    def head(self, store: Store) -> Head: ...
    def load(self, reader: Reader, version: int, known: Any = None) -> TableState:
        """The table at a version, with its newest schema; a schema of id -1 where there is no table. What `known`, loaded
        before, holds of that very version is not read again."""
        ...

    def on(self, reader: Reader, base: Any, branch: str | None) -> Any:
        """The table as a branch of it; None is the table itself. Raises `NotFound`."""
        ...

    def at(self, reader: Reader, version: int) -> TableState:
        """The table as readers saw it then. Raises `NotFound`."""
        ...

    def at_tag(self, reader: Reader, name: str) -> TableState: ...
    def at_time(self, reader: Reader, epoch_ms: int) -> TableState: ...
    def require_readable(self, base: Any, where: str) -> None:
        """Raise `UnsupportedFeature` for a table that could only be half-read, by its options then or by those of today."""
        ...

    def history(self, reader: Reader, base: Any, after: int = 0) -> list[Snapshot]:
        """The snapshots that led to the current one, as far as they are kept, oldest first: those after `after`."""
        ...

    def committed(self, reader: Reader, base: Any, user: str) -> int | None:
        """The largest number that a stream, `user`, has committed, as far as history is kept."""
        ...

    def told(self, reader: Reader, base: Any, after: int) -> list[int]:
        """The snapshots after `after` that led to `base` and of which changes can be told, oldest first: also those of which only
        their changelog is kept."""
        ...

    def until(self, reader: Reader, version: int) -> TableState:
        """As `at`; of a snapshot of which only its changelog is kept, what that says. Raises `NotFound`."""
        ...

    def scope_of(self, schema: Schema, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        """The condition on partition columns that holds for these partitions only."""
        ...

    def rows_in(self, schema: Schema, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        """The condition on rows that holds for the rows of these partitions only."""
        ...

    def chooses_files(self, reader: Reader, base: Any, scope: Expression) -> bool:
        """Whether every live file lies wholly inside or outside `scope`, which speaks of partition columns."""
        ...

    def find(self, reader: Reader, operation: Operation, base: Any) -> Snapshot | None:
        """The snapshot that `operation` became, if it has landed."""
        ...

    def settle(self, reader: Reader, operation: Operation, base: Any, plan: Plan, since: int) -> Outcome:
        """What became of an attempt at `operation` whose answer did not tell, now that `base` is another version than `since`,
        from which it began: PUBLISHED if `plan` is in the history of `base`, LOST if it is proved not to be, UNKNOWN if
        what would tell has expired."""
        ...

    def check(self, reader: Reader, operation: Operation, base: Any) -> None:
        """Raise `Conflict` if others changed what `operation` relied on."""
        ...

    def isolation(self, base: Any, kind: str) -> str | None:
        """What a change by row ("delete", "update", "merge") minds of what others did since it read: "serializable" their new
        rows, "snapshot" their deletes; None: only that the files it read are still there."""
        ...

    def plan(self, reader: Reader, operation: Operation, base: Any, stamp: Stamp) -> Plan: ...
    def scan(
        self,
        reader: Reader,
        base: Any,
        columns: Sequence[str] | None = None,
        predicate: Expression = ...,
        by_bucket: bool = ...,
    ) -> list[ReadTask]:
        """The tasks that together read the rows for which `predicate` is true. With `by_bucket`, where rows are merged by key,
        a task has files of one bucket, and says of which partition and bucket."""
        ...

    def located(
        self, reader: Reader, base: Any, columns: Sequence[str] | None = None, predicate: Expression = ...
    ) -> list[ReadTask]:
        """As `scan`, with the bucket of each row too (`BUCKET`): where keys have buckets."""
        ...

    def complete(self, base: Any) -> Any:
        """The table as changes by row have to see it: also rows that were written and that no reader sees yet."""
        ...

    def project(self, base: Any, columns: Sequence[str] | None) -> tuple[Field, ...]:
        """The columns asked for, in the order asked for: all of the table's, without `columns`. Raises `NotFound`."""
        ...

    def files(self, reader: Reader, base: Any, predicate: Expression = ...) -> Any:
        """The live files that may hold a row for which `predicate` is true: `Files`."""
        ...

    def bounds(
        self, reader: Reader, base: Any, found: Any, names: Iterable[str]
    ) -> Iterator[tuple[np.ndarray, Mapping[str, Bounds]]]:
        """(indices of files of `found`, what metadata knows of the columns `names` in them)."""
        ...

    def matching_wholly(self, reader: Reader, base: Any, found: Any, predicate: Expression) -> np.ndarray:
        """For each file, whether bounds prove that `predicate` is true for all of its rows."""
        ...

    def tasks(
        self,
        reader: Reader,
        base: Any,
        found: Any,
        fields: tuple[Field, ...],
        predicate: Expression = ...,
        alone: bool = ...,
    ) -> list[ReadTask]:
        """Tasks that read these files; with `alone`, one for each file, in order."""
        ...

    def count(self, reader: Reader, base: Any, predicate: Expression = ...) -> int | None:
        """How many rows satisfy `predicate`, if metadata alone can tell."""
        ...

    def changes(self, reader: Reader, base: Any) -> tuple[PartitionChange, ...]:
        """What the base's own snapshot changed in each partition."""
        ...

    def delta(
        self,
        reader: Reader,
        base: Any,
        since: int,
        snapshot_id: int,
        fields: tuple[Field, ...],
        predicate: Expression = ...,
    ) -> list[Delta]:
        """The rows that came and went with a snapshot after `since`, the one before it, in order, as `base`, a later state,
        names them. Raises `NotFound`."""
        ...

    def audit(self, reader: Reader, base: Any, fields: tuple[Field, ...], predicate: Expression = ...) -> list[Delta]:
        """The rows of `base`, each with its kind."""
        ...

    def progress(self, reader: Reader, consumer: str) -> int | None:
        """The next snapshot that a named consumer will read; None for one that is not there."""
        ...

    def consumer(self, name: str, next_snapshot: int) -> tuple[str, bytes]:
        """The path and bytes of the file that keeps a consumer's progress, and with it snapshots from there on."""
        ...

    def consumer_path(self, name: str) -> str: ...
    def layout(self, base: Any, reader: Reader | None = None) -> WriteTask:
        """How rows become files; with `reader`, also what only the table's files tell (`KeyValues.first`)."""
        ...

    def rewriting(self, base: Any, reader: Reader | None = None) -> tuple[tuple[Field, ...], WriteTask]:
        """(the columns to read, how they are written) where rows that are there move: with what they keep beside the table's
        own columns."""
        ...

    def adoption(self, base: Any) -> tuple[tuple[Named, ...], Mapping[str, str]]:
        """(how files without field ids call the columns, the properties that are still to be set for it). Raises
        `UnsupportedFeature` where files of others cannot become the table's."""
        ...

    def delete_layout(self, reader: Reader, base: Any, found: Any, verb: str) -> DeleteTask | None:
        """How rows of the data files `found` that `verb` ("delete", "update", "merge") takes become files of deletes; None
        where whole files are written again."""
        ...

    def delta_layout(self, reader: Reader, base: Any, key: tuple[str, ...]) -> DeltaLayout:
        """How a changelog of rows known by `key` becomes files."""
        ...

    def compaction(
        self, reader: Reader, base: Any, full: bool, scope: Expression, now_ms: int | None = None
    ) -> list[RewriteTask]:
        """What is worth writing anew; without `now_ms`, whatever the time is."""
        ...

    def sorting(self, reader: Reader, base: Any, scope: Expression, sort_by: tuple[Sort, ...]) -> list[RewriteTask]:
        """All files of each partition in `scope`, to be written anew in that order. Raises
        `UnsupportedFeature` where the order of rows is not free."""
        ...

    def upkeep(self, schema: Schema, number: int | None) -> Upkeep | None:
        """The compaction that belongs to a write, of a stream where it has a `number`; None: others do that."""
        ...

    def delete_compaction(self, reader: Reader, base: Any, full: bool, scope: Expression) -> list[DeleteTask]:
        """Files of position deletes that are worth writing anew."""
        ...

    def conversion(
        self, reader: Reader, base: Any, scope: Expression
    ) -> tuple[list[MarkTask], tuple[DeleteFile, ...], tuple[str, ...]]:
        """(how the rows that equality deletes take are found and marked by their places, the files of those deletes, the data
        files they apply to)."""
        ...

    def has_many_manifests(self, reader: Reader, base: Any) -> bool:
        """Whether rewriting manifests would make them fewer."""
        ...

    def default_retention(self, schema: Schema, now_ms: int) -> Retention: ...
    def due(self, reader: Reader, base: Any, made: Snapshot, now_ms: int) -> Retention | None:
        """What is kept after the commit `made` on `base`, where the table asks for expiry with its commits and something may
        go; None: others do that, or nothing goes."""
        ...

    def expiry(self, reader: Reader, base: Any, retention: Retention, now_ms: int) -> Expiry: ...
    def expired_partitions(self, reader: Reader, base: Any, now_ms: int) -> Expression | None:
        """The partitions whose own time is over, as a scope; None when there is none."""
        ...

    def expired_tags(self, reader: Reader, base: Any, now_ms: int) -> list[str]: ...
    def expiry_of_tag(self, reader: Reader, base: Any, name: str) -> Expiry: ...
    def replaced_history(self, reader: Reader, version: int) -> Expiry: ...
    def orphans(self, reader: Reader, base: Any, older_than_ms: int) -> list[Listed]: ...
    def everything(self, reader: Reader) -> Expiry:
        """All files of the table, in waves: what its metadata reaches below its location, and what has a name that engines give
        there. What makes it a table goes last, so that who is cut short can ask again."""
        ...

    def attempts(self, schema: Schema) -> int:
        """How often a commit is tried."""
        ...

    def tag(
        self, reader: Reader, base: Any, name: str, now_ms: int, retain_ms: int | None
    ) -> Operation | tuple[str, bytes]:
        """What keeps the snapshot of `base` by name: an operation, or the path and bytes of a file of the tag's own."""
        ...
