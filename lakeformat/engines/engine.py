"""The protocol of an engine: read tasks, write rows, rewrite files, mark rows as deleted. It knows no table format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from lakeformat.model.dataclass import dataclass
from lakeformat.model.merge import Merge
from lakeformat.model.operation import RowCounts
from lakeformat.model.schema import Field
from lakeformat.model.work import (
    Adopted,
    AdoptTask,
    DeleteTask,
    FilesTask,
    MarkTask,
    ReadTask,
    RewriteTask,
    WriteTask,
    WrittenFile,
)
from lakeformat.storage.store import Store


class Engine(Protocol):
    """`data` and the result of `read` are the engine's own kind of frame."""

    def read(self, store: Store, tasks: Sequence[ReadTask], fields: tuple[Field, ...], limit: int | None = None) -> Any:
        """The rows of all tasks, with the columns `fields` (which give a type even without tasks)."""
        ...

    def write(self, store: Store, data: Any, task: WriteTask) -> list[WrittenFile]:
        """Write rows to files. Columns are matched by name; a missing column gets its default or null."""
        ...

    def count(self, store: Store, tasks: Sequence[ReadTask]) -> list[int]:
        """For each task, the number of rows that satisfy its predicate."""
        ...

    def rewrite(self, store: Store, tasks: Sequence[RewriteTask]) -> list[list[WrittenFile]]:
        """The files that each task wrote, in order."""
        ...

    def mark(self, store: Store, tasks: Sequence[MarkTask]) -> list[list[WrittenFile]]:
        """The delete files that each task wrote, in order."""
        ...

    def rewrite_deletes(self, store: Store, tasks: Sequence[DeleteTask]) -> list[list[WrittenFile]]:
        """The earlier deletes of all targets of each task, in new files."""
        ...

    def adopt(self, store: Store, tasks: Sequence[AdoptTask]) -> list[Adopted]:
        """Existing files as files of the table, in the order of the tasks; none of them is deleted after an error."""
        ...

    def stage(self, store: Store, data: Any, layout: WriteTask, hints: tuple[Field, ...]) -> Source:
        """The source of a merge, evaluated once. Columns of nulls get the types of `hints`, the table's columns."""
        ...


class Source(Protocol):
    """A merge's source: every read of it returns the same rows. Call `close` when the merge is done."""

    @property
    def fields(self) -> tuple[Field, ...]: ...

    @property
    def untyped(self) -> frozenset[str]:
        """The columns of `fields` without any value, whose type is a guess."""
        ...

    def keep_last(self, key: tuple[str, ...]) -> None:
        """Keep only the last of rows that are equal in these columns."""
        ...

    def spread(self, merge: Merge, limit: int) -> list[Spread]:
        """The known values of each key, in order."""
        ...

    def decide(self, merge: Merge, tasks: Sequence[FilesTask]) -> Decided:
        """The clause that applies to each row. Each task reads one file: the columns that clauses and keys need, and
        the rows' positions.

        Raises `InvalidInput` if several rows of the source match one row and the merge wants one match.
        """
        ...

    def write(
        self,
        merge: Merge,
        decided: Decided,
        tasks: Sequence[FilesTask],
        layout: WriteTask,
        whole: bool,
        beside: Sequence[WriteTask] = (),
    ) -> list[WrittenFile]:
        """Write the resulting rows: inserted rows, and for the files of `tasks` (one each, with positions) updated rows
        or, if `whole`, all remaining rows; as `beside` says for each task, if given. If it fails, the files are deleted
        as far as possible."""
        ...

    def mark(self, merge: Merge, decided: Decided, layout: DeleteTask, deleted_only: bool = False) -> list[WrittenFile]:
        """Delete files for the rows to which a clause applies, or only for those that a clause deletes."""
        ...

    def write_by_key(
        self, merge: Merge, tasks: Sequence[ReadTask], layout: WriteTask
    ) -> tuple[list[WrittenFile], RowCounts | None]:
        """The results for the rows of `tasks` and of the source, as rows by key with row kinds, for tables that merge
        rows by key; and the counts of rows that clauses changed, if they are known. The tasks read `merge.reading`,
        each in one partition and bucket. Raises as `decide`."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of one key in a source: all, or (unless `every`) the smallest and largest; None: unknown."""

    values: pa.Array | None
    every: bool = False
    has_null: bool = True


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions of a merge: the files with rows that change, and each row's clause, in the engine's own form."""

    touched: frozenset[str]  # As in `ReadTask.paths`.
    choices: Any
    updated: int  # Rows of the table.
    deleted: int
