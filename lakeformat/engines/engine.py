"""What an engine does: read tasks, write rows, rewrite files. It knows no table format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from lakeformat.model.schema import Field
from lakeformat.model.work import ReadTask, RewriteTask, WriteTask, WrittenFile
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
