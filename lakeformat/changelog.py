"""Streams: changelogs into a table, a commit for each checkpoint, each of which happens once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from lakeformat.dialects.dialect import AnyView, DeletesByKey
from lakeformat.engines.row_level.delta import DeltaFiles
from lakeformat.errors import CommitUnknown, InvalidInput, UnsupportedFeature
from lakeformat.model.operation import OperationKind, Request, RowDelta
from lakeformat.model.snapshot import Snapshot
from lakeformat.model.work import DeltaLayout
from lakeformat.storage.store import Store

STREAM, CHECKPOINT = "stream.name", "stream.checkpoint-id"  # In a snapshot's properties.


class DeltaWriter:
    """Writes a changelog to a table without rows merged by key: `write` frames, then `checkpoint`.

    What a stream of this `name` has committed is found in the table's history when the writer is made: a checkpoint that
    is there already is not written again. Leaving a `with` deletes what no checkpoint holds.
    """

    def __init__(
        self,
        store: Store,
        view: Callable[[], AnyView],
        commit: Callable[[AnyView, RowDelta], Snapshot],
        request: Callable[[AnyView, str, Mapping[str, str]], Request],
        name: str,
        key: tuple[str, ...],
        upsert: bool,
        max_keys: int,
        buffer_bytes: int,
    ) -> None:
        self._store, self._load, self._commit, self._request = store, view, commit, request
        self._name, self._key, self._upsert, self._max_keys = name, key, upsert, max_keys
        self._buffer_bytes = buffer_bytes
        self._view = view()
        delta_layout(self._view, key)  # What it refuses, it refuses before the first row.
        self._files: DeltaFiles | None = None
        self._pending: tuple[int, RowDelta] | None = None  # A commit that may or may not have landed.
        told = [s.properties for s in self._view.history() if s.properties.get(STREAM) == name]
        self.last_checkpoint: int | None = max((int(each[CHECKPOINT]) for each in told), default=None)

    @property
    def key_count(self) -> int:
        """How many keys are known since the last checkpoint."""
        return len(self._files.keys) if self._files else 0

    @property
    def key_bytes(self) -> int:
        """The memory that those keys take."""
        return self._files.keys.nbytes if self._files else 0

    def write(self, data: Any) -> None:
        """Rows in the order they happened, with a column `rowkind`: "+I", "-U", "+U" or "-D" (null, or no column: "+I").

        A Spark DataFrame comes partition by partition, in its order.
        """
        if self._pending is not None:
            raise InvalidInput(f"checkpoint {self._pending[0]} may or may not have landed: ask for it again first")
        if self._files is None:
            self._view = self._load()
            layout = delta_layout(self._view, self._key)
            self._files = DeltaFiles(self._store, layout, self._upsert, self._max_keys, self._buffer_bytes)
        self._files.write(data)

    def checkpoint(self, id: int, properties: Mapping[str, str] | None = None) -> Snapshot | None:
        """Commit what was written since the last checkpoint, in one snapshot; None where there is nothing, or where this or a
        later checkpoint has been committed before: then what was written is dropped."""
        if not isinstance(id, int) or isinstance(id, bool) or id < 0:
            raise InvalidInput(f"checkpoint({id!r}): give a whole number that grows")
        if self._pending is None:
            if self.last_checkpoint is not None and id <= self.last_checkpoint:
                self.close()
                return None
            files = self._files
            if files is None:
                return None
            added = tuple(files.finish())
            self._files = None
            if not added:
                return None
            told = {**(properties or {}), STREAM: self._name, CHECKPOINT: str(id)}
            request = self._request(self._view, f"{self._name}/{id}", told)
            self._pending = id, RowDelta(request=request, added=added, kind=OperationKind.APPEND, isolation=None)
        elif self._pending[0] != id:
            raise InvalidInput(f"checkpoint {self._pending[0]} may or may not have landed: ask for it again first")
        try:
            made = self._commit(self._view, self._pending[1])
        except CommitUnknown:
            raise
        except BaseException:
            self._pending = None
            raise
        self._pending, self.last_checkpoint = None, id
        return made

    def close(self) -> None:
        """Drop what no checkpoint holds."""
        if self._files is not None:
            self._files.abandon()
            self._files = None

    def __enter__(self) -> DeltaWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def delta_layout(view: AnyView, key: tuple[str, ...]) -> DeltaLayout:
    """How a changelog of rows known by `key` becomes files. Raises `UnsupportedFeature` where none delete by key."""
    if not isinstance(view, DeletesByKey):
        raise UnsupportedFeature(
            f"{view.reader.root}: {view.format.capitalize()} has no equality deletes; make the table with a primary key, and upsert "
            "the changelog"
        )
    return view.delta_layout(key)
