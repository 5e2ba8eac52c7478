"""Streaming writes: rows are prepared, then committed, exactly once whatever process dies in between."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import chain
from threading import Thread
from types import TracebackType
from typing import Any

import pyarrow as pa

from lakeformat import clock
from lakeformat.arguments import is_spark
from lakeformat.codec.arrow import arrow_schema
from lakeformat.commit import commit, discard, newest
from lakeformat.dialects.dialect import AnyView, Format
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.engines.choose import engine_for, spark_engine
from lakeformat.engines.engine import Engine
from lakeformat.engines.row_level.delta import BUFFER_BYTES, MAX_KEYS, DeltaFiles
from lakeformat.errors import CommitLost, CommitUnknown, Conflict, InvalidInput, NotFound, UnsupportedFeature
from lakeformat.maintenance import compact, follow_up
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Append, OperationKind, Request, RowDelta
from lakeformat.model.schema import Field
from lakeformat.model.snapshot import Snapshot
from lakeformat.model.work import Content, DeltaLayout, WrittenFile
from lakeformat.storage.cache import with_cache
from lakeformat.storage.reaching import reaching
from lakeformat.storage.store import Store
from lakeformat.verbs.change import Change
from lakeformat.verbs.placing import after, with_lookup

_STARTS = 3
_DELETES = {Content.EQUALITY_DELETES, Content.POSITION_DELETES, Content.DELETION_VECTORS}
STREAM, CHECKPOINT = "stream.name", "stream.checkpoint-id"  # Snapshot properties of a changelog.
_LARGEST = 2**63 - 2  # One below Paimon's identifier of batch commits.


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows that are written and not committed yet. It can be pickled, and committed by another process."""

    user: str
    identifier: int
    files: tuple[WrittenFile, ...] = ()
    schema_id: int = 0
    watermark: int | None = None
    read_at: int = 0  # The version that it was prepared on; it was not committed then.
    follows: tuple[int, ...] = ()  # The identifiers prepared before it, which are committed first.
    partitioning_id: int | None = None

    @property
    def row_count(self) -> int:
        return sum(file.row_count for file in self.files if file.content is Content.DATA)


@dataclass(slots=True)
class WriteSession:
    """A write session: one stream's commits to a table, under the name `user` and with increasing identifiers (of
    checkpoints or batches).

    Rows are upserted into a table with a primary key, and appended to any other table. The table's history says what
    has been committed, so keep snapshots for longer than a stream may be down. Only one process at a time may write
    under a name. Auto-compaction runs in a thread beside the commits; `settle` waits for it.
    """

    store: Store
    format: Format
    user: str
    branch: str | None = None
    # Prepared files by identifier; empty for a failed commit, without which no later one may be committed.
    _waiting: dict[int, tuple[WrittenFile, ...]] = field(default_factory=dict)
    _tried: set[int] = field(default_factory=set)  # Identifiers whose commit was tried and may still land.
    _engine: Engine | None = None  # The engine of the rows that were written last.
    _compaction: Thread | None = None
    _ahead: int = 0  # Commits of this session.

    def __reduce__(self) -> Any:
        return WriteSession, (self.store, self.format, self.user, self.branch)

    def last_committed(self) -> int | None:
        """The largest identifier that this user has committed, as far as the table's history goes back; None if there
        is none."""
        return self._view().history.committed(self.user)

    def is_committed(self, identifier: int) -> bool:
        """Whether this identifier, or a later one, has been committed."""
        return self._is_committed(self._view(), identifier)

    def _is_committed(self, view: AnyView, identifier: int) -> bool:
        last = view.history.committed(self.user)
        return last is not None and identifier <= last

    def prepare(self, identifier: int, data: Any, *, watermark: int | None = None, appends: bool = False) -> Prepared:
        """Write rows, which `commit` then makes visible. Rows of a commit that has landed already are not written
        again.

        Args:
            identifier: Larger than those before it.
            data: Any data that `Table.append` takes.
            watermark: Event time in milliseconds, recorded in the snapshot.
            appends: The caller guarantees that no two rows of the table and `data` have the same key, so no row is
                looked up to be replaced.
        """
        _check(identifier)
        view = self._view()
        if self._is_committed(view, identifier):
            return Prepared(self.user, identifier)
        if later := [pending for pending in self._waiting if pending > identifier]:
            raise InvalidInput(
                f"commit {min(later)} is prepared, and comes after {identifier}: its rows would count as the older "
                "ones; abort it, and prepare it again after this one"
            )
        waiting = {pending: files for pending, files in self._waiting.items() if pending != identifier}
        upkeep, self._engine = compact.upkeep(view, identifier), engine_for(data)
        if upkeep is not None and self._ahead >= upkeep.ahead:
            self.settle()
        layout = view.layout(from_files=True)
        if layout.keyed is not None and layout.keyed.places is not None and waiting:
            raise InvalidInput(
                f"commit {min(waiting)} is prepared, and {identifier} may bring its keys in other partitions; "
                "commit or abort it first"
            )
        if layout.keyed is None and view.schema.primary_key and not appends:
            files = self._upserted(view, data)
        else:
            layout = after(with_lookup(view, layout), chain.from_iterable(waiting.values()))
            files = tuple(self._engine.write(with_cache(self._reach(view), view.reader), data, layout))
        return self._hold(view, identifier, files, watermark)

    def _hold(
        self, view: AnyView, identifier: int, files: tuple[WrittenFile, ...], watermark: int | None = None
    ) -> Prepared:
        """Prepared files, written for the table as `view` has it, to be committed after those that are prepared
        already."""
        follows = tuple(pending for pending in self._waiting if pending != identifier)
        self._waiting[identifier] = files
        self._tried.discard(identifier)
        made_on = view.schema.id, watermark, view.version, follows, view.schema.partitioning.id
        return Prepared(self.user, identifier, files, *made_on)

    def _upserted(self, view: AnyView, data: Any) -> tuple[WrittenFile, ...]:
        """The rows, and the equality deletes of those they replace, for tables that do not merge rows by key when they
        are read."""
        store, layout = self._reach(view), delta_layout(view, view.schema.primary_key)
        if is_spark(data):
            return tuple(spark_engine.changelog.write([data], store, layout, True, MAX_KEYS, BUFFER_BYTES))
        return tuple(DeltaFiles(store, layout, upsert=True, buffer_bytes=BUFFER_BYTES // 2).write_all([data]))

    def part(self, data: Any, *, appends: bool = False) -> Prepared:
        """The rows that one of several tasks writes for a commit. Raises `UnsupportedFeature` if tasks would have to
        know of each other; rows that are appended whatever their keys (`appends`) never do."""
        view = self._view()
        layout = view.layout(from_files=True)
        if layout.keyed is not None and (layout.keyed.index, layout.keyed.places) != (None, None):
            raise UnsupportedFeature(
                f"{self.store.root}: separate tasks cannot assign keys to dynamic buckets (bucket=-1): write the "
                "stream by "
                f"foreachBatch(table.stream({self.user!r}).write_batch), or make a table with a fixed number of buckets"
            )
        if layout.keyed is None and view.schema.primary_key and not appends:
            raise UnsupportedFeature(
                f"{self.store.root}: separate tasks cannot decide which of two rows with the same key "
                f"({', '.join(view.schema.primary_key)}) is kept: write the stream by "
                f"foreachBatch(table.stream({self.user!r}).write_batch)"
            )
        files = tuple(ArrowEngine(threads=1).write(self._reach(view), data, layout))
        made_on = view.schema.id, None, view.version, (), view.schema.partitioning.id
        return Prepared(self.user, 0, files, *made_on)

    def commit(
        self, prepared: Prepared, *, empty: bool = False, properties: Mapping[str, str] | None = None
    ) -> Snapshot | None:
        """Commit prepared rows in one snapshot. Returns None if this or a later identifier is committed already, or if
        there are no rows.

        It is always safe to repeat. Raises as verbs do: after `Conflict` and `CommitLost` the files are gone, and these
        rows and those prepared after them must be prepared again. `NotFound` says so if a process before this one got
        that error, or if a sweep has deleted the files.

        Args:
            prepared: What `prepare` returned.
            empty: Make a snapshot without rows too, for its watermark and `properties`.
            properties: Written into the snapshot.
        """
        if prepared.user != self.user:
            raise InvalidInput(f"prepared by {prepared.user!r}, and this session is {self.user!r}'s")
        if earlier := [pending for pending in self._waiting if pending < prepared.identifier]:
            raise InvalidInput(
                f"commit {min(earlier)} is prepared and comes before {prepared.identifier}; commit or abort it first; "
                f"or, if it failed, abort {prepared.identifier} and prepare both again"
            )
        view = self._view()
        if self._is_committed(view, prepared.identifier):
            self._forget(prepared.identifier)
            self._again(prepared.identifier, self._engine or engine_for())
            return None
        if not prepared.files and not empty:
            self._forget(prepared.identifier)
            return None
        if self._waiting.get(prepared.identifier) != prepared.files:
            self._require_files(prepared)
        request = Request(
            id=f"{self.user}/{prepared.identifier}",
            session=(self.user, prepared.identifier),
            absent_until=prepared.read_at,
            schema_id=prepared.schema_id if prepared.files else view.schema.id,
            branch=self.branch,
            watermark=prepared.watermark,
            properties=dict(properties or {}),
            follows=prepared.follows,
            partitioning_id=prepared.partitioning_id,
        )
        operation: Append | RowDelta = Append(request=request, added=prepared.files)
        if any(file.content in _DELETES for file in prepared.files):
            operation = RowDelta(request=request, added=prepared.files, kind=OperationKind.APPEND, isolation=None)
        self._tried.add(prepared.identifier)
        try:
            store = self._reach(view)
            snapshot = commit(store, self.format.head(store), self.format, operation, view.attempts(), loaded=view)
        except (Conflict, CommitLost):
            self._waiting[prepared.identifier] = ()
            self._tried.discard(prepared.identifier)
            raise
        self._forget(prepared.identifier)
        self._keep_up(view, request, snapshot)
        follow_up.after(self._reach(view), self.format, view, snapshot, clock.now_ms())
        return snapshot

    def settle(self) -> None:
        """Wait for the compaction that is running."""
        if self._compaction is not None:
            self._compaction.join()
        self._compaction, self._ahead = None, 0

    def abort(self, prepared: Prepared) -> None:
        """Delete the files of prepared rows that are not committed. Raises `InvalidInput` if they are committed.

        If a commit of them was tried, here or by an earlier process, and may still land, a snapshot without rows is
        made first: no commit that started before it can land after it.
        """
        self._require_absent(prepared.identifier)
        is_own = self._waiting.get(prepared.identifier) == prepared.files
        if prepared.files and (not is_own or prepared.identifier in self._tried):
            view = self._view()
            fence = Append(
                request=Request(id=str(uuid.uuid4()), absent_until=view.version, branch=self.branch), added=()
            )
            store = self._reach(view)
            commit(store, self.format.head(store), self.format, fence, view.attempts(), loaded=view)
            self._require_absent(prepared.identifier)
        discard(self._reach(self._view()), tuple(file.path for file in prepared.files))
        self._forget(prepared.identifier)

    def write_batch(self, frame: Any, batch_id: int) -> Snapshot | None:
        """A function for Structured Streaming's `foreachBatch`: a batch that Spark repeats after a failure is written
        once.

        Spark repeats only the newest batch. `InvalidInput` refuses an older one, with which a new checkpoint begins, or
        goes on from a copy: its rows may be others than those committed under that number.

        If others have changed what the rows were prepared for (the buckets of new keys), they are prepared again, up to
        three times.
        """
        for start in range(_STARTS):
            if self._is_repeated(batch_id):
                self._again(batch_id, engine_for(frame))
                return None
            try:
                return self.commit(self.prepare(batch_id, frame))
            except Conflict:
                if start == _STARTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _is_repeated(self, batch_id: int) -> bool:
        """Whether Spark gives the newest committed batch again. Raises `InvalidInput` for an older one."""
        last = self.last_committed()
        if last is not None and batch_id < last:
            raise InvalidInput(
                f"{self.store.root}: batch {batch_id} comes under the name {self.user!r}, of which batch {last} is "
                "committed: the stream's checkpoint is new, or older than the table. Nothing was written: start the "
                "stream with the checkpoint that wrote those batches, or under a new name"
            )
        return batch_id == last

    def _again(self, identifier: int, engine: Engine) -> None:
        """Run the compaction of a commit that has landed, if the process that committed it did not get to it."""
        view = self._view()
        upkeep = compact.upkeep(view, identifier)
        if upkeep is None or not upkeep.waits:
            return
        request = Request(id=f"{self.user}/{identifier}", session=(self.user, identifier), branch=self.branch)
        made = view.find(Append(request=request, added=()))
        if made is not None:
            compact.again(Change(self._reach(view), view, engine, request), self.format, upkeep, made)

    def _keep_up(self, view: AnyView, request: Request, snapshot: Snapshot) -> None:
        """Start the compaction that belongs to a commit, beside later commits; one at a time. The process waits for it
        before it ends."""
        assert request.session is not None, request
        upkeep = compact.upkeep(view, request.session[1])
        if self._compaction is not None and self._compaction.is_alive() and not (upkeep and upkeep.waits):
            self._ahead += 1
            return
        self.settle()
        change = Change(self._reach(view), view, self._engine or engine_for(), request)
        if upkeep is None or not compact.is_due(change, self.format, upkeep, snapshot):
            return

        def work() -> None:
            compacted = compact.after(change, self.format, upkeep, snapshot)
            if compacted is not None:
                follow_up.after(self._reach(view), self.format, view, compacted, clock.now_ms())

        self._compaction = Thread(target=work, name=f"compaction of {self.store.root}")
        self._compaction.start()
        if upkeep is not None and upkeep.waits:
            self.settle()

    def _forget(self, identifier: int) -> None:
        """Forget a prepared commit that failed or has landed; its files stay."""
        self._waiting.pop(identifier, None)
        self._tried.discard(identifier)

    def _require_absent(self, identifier: int) -> None:
        if self.is_committed(identifier):
            raise InvalidInput(f"commit {identifier} of {self.user!r} is part of the table; nothing was removed")

    def _require_files(self, prepared: Prepared) -> None:
        missing = [file.path for file in prepared.files if not self.store.exists(file.path)]
        if missing:
            raise NotFound(
                f"{self.store.root}: of the {len(prepared.files)} files of commit {prepared.identifier} of "
                f"{self.user!r}, {len(missing)} no longer exist, e.g. {missing[0]}: a commit of it failed, or they "
                "were swept. Nothing was committed: prepare it again"
            )

    def _view(self) -> AnyView:
        return newest(self.store, self.format).on(self.branch)

    def _reach(self, view: AnyView) -> Store:
        return reaching(self.store, view.outside_folders)


class DeltaWriter:
    """Writes a changelog to a table that does not merge rows by key: `write` frames, then `checkpoint`.

    The table's history says what the stream `name` has committed; it is read when the writer is made, and a checkpoint
    that has landed is not written again. Leaving a `with` block deletes files that no checkpoint committed.
    """

    def __init__(
        self, session: WriteSession, key: tuple[str, ...], upsert: bool, max_keys: int, buffer_bytes: int
    ) -> None:
        self._session, self._key = session, key
        self._max_keys, self._buffer_bytes = max_keys, buffer_bytes
        self._view = session._view()
        # Raises what it refuses before the first row is written.
        self._upsert = upsert or delta_layout(self._view, key).upserts
        self._files: DeltaFiles | None = None
        # Spark's frames, which its tasks write at the checkpoint; either these or `_files`.
        self._frames: list[Any] = []
        self._prepared: Prepared | None = None  # A commit that may or may not have landed.
        self.last_checkpoint = session.last_committed()

    @property
    def key_count(self) -> int:
        """The number of keys written since the last checkpoint, without those of Spark frames."""
        return self._files.key_count if self._files else 0

    @property
    def key_bytes(self) -> int:
        """The memory used by those keys, once they are no longer buffered."""
        return self._files.keys.nbytes if self._files else 0

    def write(self, data: Any) -> None:
        """Add changes in the order in which they happened. The column `rowkind` holds "+I", "-U", "+U" or "-D" (null,
        or no column: "+I").

        The partitions of a Spark DataFrame count in their order. Spark's tasks write it at the checkpoint, distributed
        by key; a frame of few rows, or one beside other rows of the same checkpoint, is collected to this process.
        """
        self._require_settled()
        if self._files is None:
            if not self._frames:
                self._view = self._session._view()
            layout = delta_layout(self._view, self._key)
            if is_spark(data):
                spark_engine.changelog.check(data, layout)
                self._frames.append(data)
                return
            self._files = DeltaFiles(
                self._session._reach(self._view), layout, self._upsert, self._max_keys, self._buffer_bytes
            )
        while self._frames:
            self._files.write(self._frames[0])
            del self._frames[0]
        self._files.write(data)

    def checkpoint(self, id: int, properties: Mapping[str, str] | None = None) -> Snapshot | None:
        """Commit the changes since the last checkpoint in one snapshot. Returns None if there are none, or if this or a
        later checkpoint was committed before; then the changes are discarded."""
        if not isinstance(id, int) or isinstance(id, bool) or id < 0:
            raise InvalidInput(f"checkpoint({id!r}): give a whole number that grows")
        self._require_settled(id)
        if self._prepared is None:
            if self.last_checkpoint is not None and id <= self.last_checkpoint:
                self.close()
                return None
            added = tuple(self._files.finish() if self._files else self._spread())
            self._files, self._frames = None, []
            if not added:
                return None
            self._prepared = self._session._hold(self._view, id, added)
        own = {STREAM: self._session.user, CHECKPOINT: str(id)}
        try:
            snapshot = self._session.commit(self._prepared, properties={**(properties or {}), **own})
        except CommitUnknown:
            raise
        except BaseException:
            self._session._forget(id)  # The caller may write the rows again, with this or a later checkpoint.
            self._prepared = None
            raise
        self._prepared, self.last_checkpoint = None, id
        return snapshot

    def close(self) -> None:
        """Delete what no checkpoint committed."""
        self._frames = []
        if self._files is not None:
            self._files.abandon()
            self._files = None

    def _spread(self) -> list[WrittenFile]:
        """The files that Spark's tasks write."""
        if not self._frames:
            return []
        store, layout = self._session._reach(self._view), delta_layout(self._view, self._key)
        return spark_engine.changelog.write(
            self._frames, store, layout, self._upsert, self._max_keys, self._buffer_bytes
        )

    def _require_settled(self, id: int | None = None) -> None:
        if self._prepared is not None and self._prepared.identifier != id:
            raise InvalidInput(
                f"checkpoint {self._prepared.identifier} may or may not have landed: ask for it again first"
            )

    def __enter__(self) -> DeltaWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Sink:
    """The batches of a stream, written by many independent tasks and committed by one process.

    `open` returns a session of the stream; it can be pickled. If a batch is committed already, files written for it
    again are left to the sweep.
    """

    open: Callable[[], WriteSession]
    appends: bool = False  # Rows are appended whatever their keys.

    def require_writable(self, fields: tuple[Field, ...]) -> None:
        """Raise the error that writing the first row would raise. `fields` are those of the rows."""
        self.open().part(arrow_schema(fields).empty_table(), appends=self.appends)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Prepared:
        """Write one task's rows."""
        return self.open().part(batches, appends=self.appends)

    def commit(self, parts: Sequence[Prepared], identifier: int) -> Snapshot | None:
        """Commit what all tasks of a batch wrote, once. Returns None if the batch is committed already or has no rows.
        Raises `InvalidInput` for a batch older than the newest, as `write_batch` does."""
        session = self.open()
        if len({(part.schema_id, part.partitioning_id) for part in parts}) > 1:
            discard(session._reach(session._view()), (file.path for part in parts for file in part.files))
            raise Conflict(
                f"{session.store.root}: the schema changed while batch {identifier} of {session.user!r} was written; "
                "nothing was committed, start the stream again"
            )
        if not parts:
            return None
        try:
            session._is_repeated(identifier)
        except InvalidInput:
            discard(session._reach(session._view()), (file.path for part in parts for file in part.files))
            raise
        files = tuple(file for part in parts for file in part.files)
        read_at = min(part.read_at for part in parts)
        session._waiting[identifier] = files  # They were written a moment ago: whether they exist is not checked.
        try:
            made_on = parts[0].schema_id, None, read_at, (), parts[0].partitioning_id
            return session.commit(Prepared(session.user, identifier, files, *made_on))
        finally:
            session.settle()

    def abort(self, parts: Sequence[Prepared | None], identifier: int) -> None:
        """Delete the files of a batch of which a task failed. If all tasks succeeded, a commit was tried and may have
        landed: nothing is deleted."""
        session = self.open()
        if None in parts and not session.is_committed(identifier):
            discard(
                session._reach(session._view()),
                (file.path for part in parts if part is not None for file in part.files),
            )


def _check(identifier: Any) -> None:
    if isinstance(identifier, bool) or not isinstance(identifier, int) or not 0 <= identifier <= _LARGEST:
        raise InvalidInput(f"identifier {identifier!r}: it must be a whole number of at least 0")


def delta_layout(view: AnyView, key: tuple[str, ...]) -> DeltaLayout:
    """How a changelog of rows with the key `key` becomes files. Raises `UnsupportedFeature` if the format has no
    equality deletes."""
    if view.delete_files is None:
        raise UnsupportedFeature(
            f"{view.reader.root}: {view.format.capitalize()} has no equality deletes; make the table with a primary "
            "key, and upsert the changelog"
        )
    return view.delete_files.delta_layout(key)
