"""Tables for Spark's `format("lakeformat")`: options -> scans, changes, streams, and the target of written rows."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from lakeformat.arguments import Moment
from lakeformat.codec.arrow import arrow_schema
from lakeformat.commit import discard
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.errors import Conflict, InvalidInput, NotFound, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import ALWAYS, Expression, and_, bind
from lakeformat.model.schema import NO_ID, Field, Kind, scalar
from lakeformat.model.snapshot import Snapshot, utc
from lakeformat.model.work import Delta, MergeTask, ReadTask, RowKind, WrittenFile, paths_of
from lakeformat.reading.changes import KIND_COLUMN, Changes
from lakeformat.reading.scan import Scan
from lakeformat.storage.store import Store
from lakeformat.streaming import Prepared, Sink
from lakeformat.table import Table
from lakeformat.verbs import overwrite

KIND_FIELD = Field(NO_ID, KIND_COLUMN, scalar(Kind.STRING), nullable=False)

_READS = (
    *("path", "table", "branch", "snapshot", "tag", "as_of", "from_snapshot", "to_snapshot", "row_kinds"),
    "partitionoverwritemode",  # A view that is also written to passes its write options.
)
_STREAMS = ("path", "table", "branch", "from_snapshot", "row_kinds", "maxfilespertrigger", "maxrowspertrigger")
_WRITES = ("path", "table", "branch", "partitionoverwritemode")
_STREAM_WRITES = ("path", "table", "branch", "user")
_SPARKS_OWN = ("checkpointlocation", "header")  # Options that Spark adds by itself.
_START = -1  # Snapshot of an offset: nothing was read yet.
_WHOLE = -1  # Tasks of an offset: all of them.
_STEP = ("snapshot", "full", "since")  # What makes a step, of an offset inside it.


@dataclass(frozen=True, slots=True)
class Piece:
    """A task of a reader, pickled for the executors, and the kind of its rows; None if a column holds it."""

    task: bytes
    kind: str | None
    row_count: int
    file_count: int
    size_bytes: int
    home: tuple[Any, ...]  # (partition, bucket), as far as it is known.


@dataclass(frozen=True, slots=True)
class TablesByOptions:
    """The tables of `lake`, named by options. It can be pickled."""

    lake: Any

    def sink(self, options: Mapping[str, str], user: str | None, overwrite: bool = False) -> Sink | Replacing:
        """The target of written rows, committed under the name `user` (None: a stream whose options name the user).
        Raises `InvalidInput`."""
        if user is None:
            _require_known("writeStream", options, _STREAM_WRITES)
        else:
            _require_known("write", options, _WRITES)
        table = self._table(options)
        if overwrite or options.get("partitionOverwriteMode") is not None:
            mode = _overwrite_mode(options, table)
            if overwrite:
                return Replacing(table, mode == "dynamic")
        name = user or options.get("user")
        if not name:
            raise InvalidInput(
                "a stream into a table is committed under a name of its own: give it by option('user', ...)"
            )
        return Sink(_Opens(table, name), appends=user is not None)

    def shown(self, options: Mapping[str, str]) -> tuple[Field, ...]:
        """The columns of a read or a stream with these options. Spark asks before it says which of the two it is."""
        limits = {key for key in options if key.lower() in _STREAMS and key.lower() not in _READS}
        return self.reading({key: value for key, value in options.items() if key not in limits}).fields

    def reading(self, options: Mapping[str, str]) -> Reading:
        """The rows or changes that a read's options select. Raises `InvalidInput`, `NotFound`."""
        _require_known("read", options, _READS)
        table, has_kinds = self._table(options), _is_true(options, "row_kinds")
        snapshot, tag, as_of = _whole(options, "snapshot"), options.get("tag"), options.get("as_of")
        since, until = _whole(options, "from_snapshot"), _whole(options, "to_snapshot")
        if since is None and until is None:
            return Reading(table.scan(snapshot_id=snapshot, tag=tag, as_of=_moment(as_of)), has_kinds)
        if since is None:
            raise InvalidInput(
                "to_snapshot without from_snapshot: changes begin after a snapshot; 0 is before the first"
            )
        if (snapshot, tag, as_of) != (None, None, None):
            raise InvalidInput("from_snapshot reads changes, and snapshot, tag and as_of rows: give one or the other")
        if not has_kinds and options.get("row_kinds") is not None:
            raise InvalidInput(
                f"from_snapshot={since} with row_kinds=false: changes always have the column {KIND_COLUMN}; leave "
                "row_kinds out, and drop the column once added and removed rows are told apart"
            )
        return Reading(table.changes(since, until), has_kinds=True)

    def following(self, options: Mapping[str, str]) -> Following:
        """The stream that the options of `readStream` select. Raises `InvalidInput`, `NotFound`."""
        _require_known("readStream", options, _STREAMS)
        _is_true(options, "row_kinds")  # `shown` is not called for a stream with a schema of its own.
        limits = {name: _whole(options, name) for name in ("maxFilesPerTrigger", "maxRowsPerTrigger")}
        for name, limit in limits.items():
            if limit == 0:
                raise InvalidInput(f"{name}=0: give a number of at least 1")
        return Following(self._table(options), _whole(options, "from_snapshot"), *limits.values())

    def _table(self, options: Mapping[str, str]) -> Table:
        names = {options[key] for key in ("table", "path") if options.get(key)}
        if len(names) != 1:
            note = f", and not two: {', '.join(sorted(names))}" if names else ""
            raise InvalidInput(
                f"{self.lake!r} as a data source of Spark: name the table, by load('namespace.table') or "
                f"option('table', ...){note}"
            )
        (name,) = names
        table: Table = self.lake.table(name)
        return table if options.get("branch") is None else table.branch(options["branch"])


@dataclass(frozen=True, slots=True)
class _Opens:
    """Opens a stream's session when it is needed."""

    table: Table
    user: str

    def __call__(self) -> Any:
        return self.table.stream(self.user)


@dataclass(frozen=True, slots=True)
class Reading:
    """A batch read: the rows of a scan, or changes with their kinds in a last column."""

    source: Scan | Changes
    has_kinds: bool = False

    @property
    def store(self) -> Store:
        return self.source.store

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that Spark sees."""
        return (*self.source.fields, KIND_FIELD) if self.has_kinds else self.source.fields

    def select(self, names: Sequence[str]) -> Reading:
        """Read these columns only. The kinds are put where the caller asks for them."""
        if isinstance(self.source, Scan):
            return replace(self, source=self.source.select(names))
        return replace(self, source=replace(self.source, fields=_chosen(self.source.fields, names)))

    def filter(self, condition: Expression) -> Reading:
        """Read the rows for which the condition is true. Raises `LakeError` for a condition that the table cannot
        evaluate."""
        if isinstance(self.source, Scan):
            return replace(self, source=self.source.filter(condition))
        bound = bind(condition, self.source.view.schema.fields)
        return replace(self, source=replace(self.source, predicate=and_(self.source.predicate, bound)))

    def pieces(self) -> list[Piece]:
        if isinstance(self.source, Scan):
            return _pieces([Delta(RowKind.INSERT, tuple(self.source.plan()))])
        return _pieces(self.source.plan())


@dataclass(frozen=True, slots=True)
class Following:
    """A stream: the table's rows when it starts and then the changes, or with `from_snapshot` the changes alone.
    Without row kinds it returns added rows, and raises at removed ones.

    An offset is a stream's progress: how many `tasks` of a step have been read. A step is the changes of one
    `snapshot`, or (`full`) all its rows. The tasks of a step are always the same, so a batch that Spark repeats has the
    same rows. `made` is the time of the snapshot's commit in milliseconds: Paimon numbers snapshots from 1 in every
    table and branch, so the number alone does not tell whether a checkpoint is of this table. Offsets without it, of
    earlier versions, are not checked.
    """

    table: Table
    after: int | None
    max_files: int | None
    max_rows: int | None

    @property
    def store(self) -> Store:
        return self.table._store

    @property
    def has_kinds(self) -> bool:
        return True

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.table._changes(0, None, None, None).fields, KIND_FIELD)

    def initial(self) -> dict[str, Any]:
        return _offset(_START, 0, full=True) if self.after is None else _offset(self.after)

    def newest(self) -> dict[str, Any]:
        """The offset of a stream that has read everything."""
        view = self.table._view()
        return _offset(view.snapshot_id, commit_ms=_committed_ms(view)) if view.snapshot_id > 0 else self.initial()

    def latest(
        self, start: Mapping[str, Any], until: Mapping[str, Any] | None, max_files: int | None, max_rows: int | None
    ) -> dict[str, Any]:
        """The offset to read to from `start`: up to `until` (the newest), within the limits, but at least one task."""
        end = dict(until or self.newest())
        if end["snapshot"] == _START or (max_files is None and max_rows is None):
            return end
        files, rows, came = 0, 0, dict(start)
        for step in self._steps((), start, end):
            for index in range(step.tasks_before(start, 0), len(step.pieces)):
                files, rows = files + step.pieces[index].file_count, rows + step.pieces[index].row_count
                if came != start and (files > (max_files or files) or rows > (max_rows or rows)):
                    return self._dated(came)
                came = {**step.begin, "tasks": index + 1}
            came = _offset(step.begin["snapshot"])
        return self._dated(came)

    def pieces(self, names: Sequence[str], start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Piece]:
        """The tasks between two offsets, oldest changes first. Raises `NotFound` if a snapshot in between has
        expired."""
        steps = self._steps(names, start, end)
        return [
            piece
            for step in steps
            for piece in step.pieces[step.tasks_before(start, 0) : step.tasks_before(end, len(step.pieces))]
        ]

    def _steps(self, names: Sequence[str], start: Mapping[str, Any], end: Mapping[str, Any]) -> Iterator[_Step]:
        """The steps between two offsets, oldest first. Raises `NotFound` if an offset is of another table's history."""
        for offset in (start, end):
            self._require_made(offset)
        if end["snapshot"] == _START:
            if start["snapshot"] > 0:
                raise self._other(start, "the table has no snapshot")
            return
        if start == end:
            return
        came = start["snapshot"]
        if start["full"]:
            came = end["snapshot"] if came == _START else came
            rows = self.table.scan(snapshot_id=came)
            tasks = rows.select([field.name for field in _chosen(rows.fields, names)]).plan()
            yield _Step(_offset(came, 0, full=True), _pieces([Delta(RowKind.INSERT, tuple(tasks))], by_file=True))
        elif start["tasks"] != _WHOLE:
            came = start["since"]
        if end["full"] or came == end["snapshot"]:
            return
        changes = self.table._changes(came, end["snapshot"], None, None)
        for since, snapshot_id in pairwise([came, *changes.snapshot_ids()]):
            deltas = changes.view.history.delta(since, snapshot_id, _chosen(changes.fields, names), ALWAYS)
            yield _Step(_offset(snapshot_id, 0, since=since), _pieces(deltas, by_file=True))

    def _dated(self, offset: dict[str, Any]) -> dict[str, Any]:
        """The offset with the time of its snapshot's commit."""
        if offset["snapshot"] <= 0 or offset.get("made") is not None:
            return offset
        return {**offset, "made": _committed_ms(self.table._version(offset["snapshot"], None, None))}

    def _require_made(self, offset: Mapping[str, Any]) -> None:
        """Raise `NotFound` if the table's snapshot of that number is another one. A snapshot that has expired is not
        checked."""
        identity = offset.get("made")
        if identity is None:
            return
        try:
            now = _committed_ms(self.table._version(offset["snapshot"], None, None))
        except NotFound:
            return
        if now is not None and now != identity:
            raise self._other(offset, f"here snapshot {offset['snapshot']} is of {utc(now)}")

    def _other(self, offset: Mapping[str, Any], note: str) -> NotFound:
        made = offset.get("made")
        when = "" if made is None else f" of {utc(made)}"
        return NotFound(
            f"{self.table.uri}: the stream's checkpoint has read up to snapshot {offset['snapshot']}{when}, and "
            f"{note}: the table was rolled back, or dropped and created again, or the options now name another table "
            "or branch; start the stream with a new checkpoint"
        )


class _Step(NamedTuple):
    """The rows of a table, or the changes of a snapshot: the offset where they start, and their tasks."""

    begin: dict[str, Any]
    pieces: list[Piece]

    def tasks_before(self, offset: Mapping[str, Any], otherwise: int) -> int:
        """How many of the tasks come before an offset, if it is inside this step."""
        is_inside = offset["tasks"] != _WHOLE and all(offset[key] == self.begin[key] for key in _STEP)
        return offset["tasks"] if is_inside else otherwise


@dataclass(frozen=True, slots=True)
class Replacing:
    """Rows that replace those of a table, written by many tasks and committed by one process. They replace the
    partitions that they are in (`is_dynamic`), or all rows."""

    table: Table
    is_dynamic: bool

    def require_writable(self, fields: tuple[Field, ...]) -> None:
        """Raise the error that writing the first row would raise. `fields` are those of the rows."""
        self.write(arrow_schema(fields).empty_table())

    def write(self, batches: Any) -> Prepared:
        """Write one task's rows."""
        view = self.table._view()
        layout = overwrite.layout(view)
        if layout.keyed is not None and (layout.keyed.index, layout.keyed.places) != (None, None):
            raise UnsupportedFeature(
                f"{self.table.uri}: separate tasks cannot assign keys to dynamic buckets (bucket=-1): use "
                "table.overwrite_partitions(frame) or table.overwrite(frame)"
            )
        if layout.unique:
            raise UnsupportedFeature(
                f"{self.table.uri}: separate tasks cannot find the last row of each key ({', '.join(layout.unique)}): "
                "use table.overwrite_partitions(frame) or table.overwrite(frame)"
            )
        files = tuple(ArrowEngine(threads=1).write(self.table._runner.reach(view), batches, layout))
        return Prepared("", 0, files, view.schema.id, None, view.version, (), view.schema.partitioning.id)

    def commit(self, parts: Sequence[Prepared], identifier: int) -> Snapshot | None:
        """Commit what all tasks wrote as the rows of the table, in one snapshot."""
        files: tuple[WrittenFile, ...] = tuple(file for part in parts for file in part.files)
        if len({(part.schema_id, part.partitioning_id) for part in parts}) > 1:
            self._discard(files)
            raise Conflict(
                f"{self.table.uri}: the schema changed while it was written; nothing was committed, write again"
            )
        if not parts or (self.is_dynamic and not files):
            return None
        view = self.table._view()
        request, _ = self.table._runner.request(view, str(uuid.uuid4()), None)
        request = replace(
            request,
            absent_until=min(part.read_at for part in parts),
            schema_id=parts[0].schema_id,
            partitioning_id=parts[0].partitioning_id,
        )
        engine = ArrowEngine()
        change = self.table._runner.change(view, request, engine)
        operation = overwrite.replaced(change, None if self.is_dynamic else ALWAYS, files, None)
        return self.table._runner.commit(view, operation, engine)

    def abort(self, parts: Sequence[Prepared | None], identifier: int) -> None:
        """Delete the files of a write of which a task failed. If none failed, a commit was tried and may have landed:
        nothing is deleted."""
        if None in parts:
            self._discard([file for part in parts if part is not None for file in part.files])

    def _discard(self, files: Sequence[WrittenFile]) -> None:
        discard(self.table._runner.reach(self.table._view()), paths_of(files))


def _pieces(deltas: Sequence[Delta], by_file: bool = False) -> list[Piece]:
    return [
        Piece(
            pickle.dumps(task),
            None if delta.kind is None else delta.kind.short,
            task.row_count,
            len(task.paths),
            task.size_bytes,
            (task.partition, task.bucket),
        )
        for delta in deltas
        for whole in delta.tasks
        for task in (_by_file(whole) if by_file else [whole])
    ]


def _by_file(task: ReadTask) -> list[ReadTask]:
    """One task per file, where rows of several files are not merged."""
    if isinstance(task, MergeTask):
        return [task]
    return [task.of_files([index]) for index in range(len(task.paths))]


def _offset(
    snapshot: int, tasks: int = _WHOLE, full: bool = False, since: int = _START, commit_ms: int | None = None
) -> dict[str, Any]:
    return {"snapshot": snapshot, "tasks": tasks, "full": full, "since": since, "made": commit_ms}


def _committed_ms(view: Any) -> int | None:
    """When the view's snapshot was committed, in milliseconds since 1970."""
    return None if view.snapshot is None else view.snapshot.timestamp_ms


def _chosen(fields: tuple[Field, ...], names: Sequence[str]) -> tuple[Field, ...]:
    """The fields with these names, or else the first one: a task must read a column to know how many rows it has."""
    return tuple(field for field in fields if field.name in names) or fields[:1]


def _overwrite_mode(options: Mapping[str, str], table: Table) -> str:
    mode = options.get("partitionOverwriteMode")
    if mode is None and not table.schema.partitioning:
        return "static"
    if mode is None or mode.lower() not in ("static", "dynamic"):
        note = "" if mode is None else f" (found {mode!r})"
        raise InvalidInput(
            f"{table.name}: mode('overwrite') of a table with partitions replaces either the whole table, with "
            "option('partitionOverwriteMode', 'static'), or the partitions that the rows lie in, with 'dynamic': say "
            f"which{note}; a data source does not see spark.sql.sources.partitionOverwriteMode"
        )
    return mode.lower()


def _require_known(verb: str, options: Mapping[str, str], options_of_verb: Sequence[str]) -> None:
    unknown = sorted(key for key in options if key.lower() not in (*options_of_verb, *_SPARKS_OWN))
    if unknown:
        raise InvalidInput(
            f"{verb} by format('lakeformat'): no option {unknown[0]!r}; there are {', '.join(options_of_verb)}"
        )


def _whole(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal():
        raise InvalidInput(f"option {name}={text!r}: give a whole number of at least 0")
    return int(text)


def _is_true(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidInput(f"option {name}={options[name]!r}: it must be 'true' or 'false'")
    return text == "true"


def _moment(text: str | None) -> Moment | None:
    """Milliseconds, or ISO text."""
    return int(text) if text is not None and text.strip().isdecimal() else text
