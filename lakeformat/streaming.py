"""Commits of a stream: prepared, then committed, each once, whatever is killed in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from lakeformat.commit import commit, discard
from lakeformat.dialects.dialect import Dialect
from lakeformat.engines.choose import engine_for
from lakeformat.errors import CommitLost, Conflict, InvalidInput
from lakeformat.model.operation import Append, Request
from lakeformat.model.snapshot import Snapshot, TableState
from lakeformat.model.work import Content, WrittenFile
from lakeformat.placing import after, looking
from lakeformat.storage.store import Store

_STARTS = 3
_LARGEST = 2**63 - 2  # One below what Paimon gives to commits that belong to no stream.


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows that are written and that no snapshot shows yet. It can be pickled, and committed by another process."""

    user: str
    identifier: int
    files: tuple[WrittenFile, ...] = ()
    schema_id: int = 0
    watermark: int | None = None
    read_at: int = 0  # The version that it was prepared on, and at which it was not committed.
    follows: tuple[int, ...] = ()  # The commits that were prepared by then, and that it comes after.

    @property
    def row_count(self) -> int:
        return sum(file.row_count for file in self.files if file.content is Content.DATA)


@dataclass(slots=True)
class WriteSession:
    """A stream that writes to a table under one name, `user`, with identifiers that rise: a checkpoint's, a batch's.

    What is committed is found in the table's history, so keep snapshots longer than a stream may be down. One process at a
    time writes under a name.
    """

    store: Store
    dialect: Dialect
    user: str
    branch: str | None = None
    _waiting: dict[int, tuple[WrittenFile, ...]] = field(default_factory=dict)  # What is prepared, by identifier.

    def last_committed(self) -> int | None:
        """The largest identifier that this user has committed, as far as history is kept."""
        prefix = f"{self.user}/"
        found = [
            each.operation_id.removeprefix(prefix)
            for each in self.dialect.history(self.store, self._base())
            if each.operation_id is not None and each.operation_id.startswith(prefix)
        ]
        return max((int(each) for each in found if each.isdecimal()), default=None)

    def is_committed(self, identifier: int) -> bool:
        """Whether this commit, or one after it, is part of the table."""
        last = self.last_committed()
        return last is not None and identifier <= last

    def prepare(self, identifier: int, data: Any, *, watermark: int | None = None) -> Prepared:
        """Write rows that `commit` then shows. Of a commit that is there already no row is written again."""
        _check(identifier)
        base = self._base()
        if self.is_committed(identifier):
            return Prepared(self.user, identifier)
        waiting = {each: files for each, files in self._waiting.items() if each != identifier}
        layout = self.dialect.layout(base, self.store)
        if layout.keyed is not None and layout.keyed.places is not None and waiting:
            raise InvalidInput(
                f"commit {min(waiting)} is prepared, and {identifier} may bring its keys in other partitions; commit or abort it "
                f"first"
            )
        layout = after(looking(self.store, self.dialect, base, layout), chain.from_iterable(waiting.values()))
        files = tuple(engine_for(data).write(self.store, data, layout))
        self._waiting[identifier] = files
        return Prepared(self.user, identifier, files, base.schema.id, watermark, base.version, tuple(waiting))

    def commit(self, prepared: Prepared, *, empty: bool = False) -> Snapshot | None:
        """Make prepared rows part of the table, in one snapshot; None where they, or later ones, are already, and where
        there are none. With `empty`, a commit without rows makes a snapshot too, for its watermark.

        Asking again is always safe. Raises as a verb does: after `Conflict` and `CommitLost` the files are gone.
        """
        if prepared.user != self.user:
            raise InvalidInput(f"prepared by {prepared.user!r}, and this session is {self.user!r}'s")
        if earlier := [each for each in self._waiting if each < prepared.identifier]:
            raise InvalidInput(
                f"commit {min(earlier)} is prepared and comes before {prepared.identifier}; commit or abort it first"
            )
        if self.is_committed(prepared.identifier):
            self._waiting.pop(prepared.identifier, None)
            return None
        if not prepared.files and not empty:
            self._waiting.pop(prepared.identifier, None)
            return None
        base = self._base()
        request = Request(
            id=f"{self.user}/{prepared.identifier}",
            session=(self.user, prepared.identifier),
            absent_until=prepared.read_at,
            schema_id=prepared.schema_id if prepared.files else base.schema.id,
            branch=self.branch,
            watermark=prepared.watermark,
            follows=prepared.follows,
        )
        head = self.dialect.head(self.store)
        operation = Append(request=request, added=prepared.files)
        try:
            made = commit(self.store, head, self.dialect, operation, self.dialect.attempts(base.schema))
        except (Conflict, CommitLost):
            self._waiting.pop(prepared.identifier, None)
            raise
        self._waiting.pop(prepared.identifier, None)
        return made

    def abort(self, prepared: Prepared) -> None:
        """Remove the files of prepared rows that are not committed; nothing else. Raises `InvalidInput` if they are."""
        if self.is_committed(prepared.identifier):
            raise InvalidInput(
                f"commit {prepared.identifier} of {self.user!r} is part of the table; nothing was removed"
            )
        discard(self.store, tuple(file.path for file in prepared.files))
        self._waiting.pop(prepared.identifier, None)

    def write_batch(self, frame: Any, batch_id: int) -> Snapshot | None:
        """For Structured Streaming's `foreachBatch`: a batch that Spark gives again after a failure is written once.

        Where others changed what the rows were prepared for (the buckets of new keys), they are prepared anew, three times.
        """
        for start in range(_STARTS):
            if self.is_committed(batch_id):
                return None
            try:
                return self.commit(self.prepare(batch_id, frame))
            except Conflict:
                if start == _STARTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _base(self) -> TableState:
        base = self.dialect.load(self.store, self.dialect.head(self.store).version())
        return self.dialect.on(self.store, base, self.branch)


def _check(identifier: Any) -> None:
    if isinstance(identifier, bool) or not isinstance(identifier, int) or not 0 <= identifier <= _LARGEST:
        raise InvalidInput(f"identifier {identifier!r}: it must be a whole number of at least 0")
