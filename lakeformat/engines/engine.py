"""What an engine does: read tasks, write rows, rewrite files, mark rows as deleted. It knows no table format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from lakeformat.model.merge import Merge
from lakeformat.model.schema import Field
from lakeformat.model.work import (
    Adopted,
    AdoptTask,
    DeleteTask,
    MarkTask,
    ReadTask,
    RewriteTask,
    WriteTask,
    WrittenFile,
)
from lakeformat.storage.store import Store


class Engine(Protocol):
    """`data` and what `read` returns are the engine's own kind of frame."""

    def read(self, store: Store, tasks: Sequence[ReadTask], fields: tuple[Field, ...], limit: int | None = None) -> Any:
        """The rows of all tasks, with the columns `fields` (so that no task at all still has a type)."""
        ...

    def write(self, store: Store, data: Any, task: WriteTask) -> list[WrittenFile]:
        """Rows to files. Columns are matched by name; missing nullable columns become their default or null."""
        ...

    def count(self, store: Store, tasks: Sequence[ReadTask]) -> list[int]:
        """For each task, how many rows satisfy its predicate."""
        ...

    def rewrite(self, store: Store, tasks: Sequence[RewriteTask]) -> list[list[WrittenFile]]:
        """What each task wrote, in the order of the tasks."""
        ...

    def mark(self, store: Store, tasks: Sequence[MarkTask]) -> list[list[WrittenFile]]:
        """The delete files that each task wrote, in the order of the tasks."""
        ...

    def rewrite_deletes(self, store: Store, tasks: Sequence[DeleteTask]) -> list[list[WrittenFile]]:
        """The earlier deletes of all targets of each task, in new files."""
        ...

    def adopt(self, store: Store, tasks: Sequence[AdoptTask]) -> list[Adopted]:
        """What files of others are to the table, in the order of the tasks; whatever fails, none of them is deleted."""
        ...

    def stage(self, store: Store, data: Any, layout: WriteTask, hints: tuple[Field, ...]) -> Source:
        """The source of a merge, evaluated once. Columns of nulls get the types of `hints`, the table's columns."""
        ...


class Source(Protocol):
    """A merge's source: each look at it gives the same rows. `close` when the merge is over."""

    @property
    def fields(self) -> tuple[Field, ...]: ...

    def keep_last(self, key: tuple[str, ...]) -> None:
        """Of rows that are equal in these columns, leave the last one only."""
        ...

    def spread(self, merge: Merge, limit: int) -> list[Spread]:
        """What is known of the values of each key, in order."""
        ...

    def decide(self, merge: Merge, tasks: Sequence[ReadTask]) -> Decided:
        """Which clause decides for each row. Each task reads one file: the columns that decide, and the rows' positions.

        Raises `InvalidInput` where several rows of the source match one row and the merge wants one match.
        """
        ...

    def write(
        self,
        merge: Merge,
        decided: Decided,
        tasks: Sequence[ReadTask],
        layout: WriteTask,
        whole: bool,
        beside: Sequence[WriteTask] = (),
    ) -> list[WrittenFile]:
        """The rows that come of it: those inserted, and of the files of `tasks` (one each, with positions) those updated
        or, if `whole`, all that are left: for each task as `beside` says where that is given. When it fails, what was written is deleted as far as storage lets."""
        ...

    def mark(self, merge: Merge, decided: Decided, layout: DeleteTask, deleted_only: bool = False) -> list[WrittenFile]:
        """Delete files for the rows that a clause decides about, or only for those that one deletes."""
        ...

    def write_by_key(self, merge: Merge, tasks: Sequence[ReadTask], layout: WriteTask) -> list[WrittenFile]:
        """What becomes of the rows of `tasks` and of the source, as rows that say what they do to their key: for tables that
        merge rows by key. The tasks read `merge.reading`, each in one partition and bucket. Raises as `decide`."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Spread:
    """Values of one key in a source: all that there are, or (unless `every`) the least and the greatest; None: unknown."""

    values: pa.Array | None
    every: bool = False
    has_null: bool = True


@dataclass(frozen=True, slots=True)
class Decided:
    """What a merge does: the files with rows that change, and what becomes of each row, as the engine has it."""

    touched: frozenset[str]  # As in `ReadTask.paths`.
    choices: Any
