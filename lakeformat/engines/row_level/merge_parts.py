"""MERGE part by part: each part of a table's files is read, decided and written by one worker, which reads the whole
source from files. Only rows that move to a partition and bucket that other parts write to are sent elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import bitmap, layouts
from lakeformat.codec.arrow import arrow_schema
from lakeformat.codec.numbers import distinct
from lakeformat.engines import worker
from lakeformat.engines.engine import Decided
from lakeformat.engines.kernels import gather, rows
from lakeformat.engines.kernels.gather import Rows
from lakeformat.engines.row_level import arrow_merge, marks, outcomes
from lakeformat.engines.row_level.arrow_merge import Choice
from lakeformat.engines.written import Copied
from lakeformat.errors import LakeError
from lakeformat.model.dataclass import dataclass
from lakeformat.model.merge import SOURCE, Act, Group, Merge
from lakeformat.model.schema import NO_ID, Field, Kind, find_field, scalar
from lakeformat.model.work import FILE, DeleteTask, FilesTask, ReadTask, Target, WriteTask, WrittenFile, paths_of
from lakeformat.storage.store import Store

PART_BYTES = 256 << 20  # Bytes of the table's files that one worker merges.
LOOSE_BYTES = 64 << 20  # Bytes of rows in files that one worker distributes.
_OPENING = 4 << 20  # The cost of a file beside its size.
_ASIDE_BYTES = 64 << 20  # Of rows in memory that are put aside together.


@dataclass(frozen=True, slots=True)
class Staged:
    """A merge's source in files, with columns `c0`, `c1`, ... for `fields`, and `ROW`, which orders its rows. With
    `key`, only the last of rows that are equal in these columns counts. A row's index among those that count identifies
    it."""

    fields: tuple[Field, ...]
    tasks: tuple[ReadTask, ...]
    key: tuple[str, ...] = ()

    def load(self, store: Store, fields: tuple[Field, ...]) -> Rows:
        """These columns (and those of the key), with the names that a merge's expressions use."""
        wanted = {*(field.name for field in fields), *self.key}
        kept = [(f"c{index}", field) for index, field in enumerate(self.fields) if field.name in wanted]
        columns = (
            *(Field(NO_ID, name, field.type) for name, field in kept),
            Field(NO_ID, outcomes.ROW, scalar(Kind.BIGINT)),
        )
        read = [replace(task, fields=tuple(find_field(task.fields, f.name) for f in columns)) for task in self.tasks]
        table = pa.Table.from_batches(gather.joined(_read(store, read)), arrow_schema(columns))
        rows = layouts.plain(table[outcomes.ROW]).to_numpy()
        table = table.drop_columns([outcomes.ROW]).rename_columns([field.name for _, field in kept])
        if not (rows[1:] > rows[:-1]).all():
            table = gather.take(table, np.argsort(rows))
        table = outcomes.named(SOURCE, gather.compact(table))
        return Rows(arrow_merge.last_of_each(table, self.key) if self.key else table)


@dataclass(frozen=True, slots=True)
class Part:
    """Files of the table that one worker merges, one per task; and for those with rows that change, in the same order,
    the files of decisions."""

    tasks: tuple[FilesTask, ...]
    decisions: tuple[ReadTask, ...] = ()
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class PartResult:
    """A worker's result for a part."""

    files: list[WrittenFile]  # Of the table.
    beside: list[WrittenFile]  # Temporary files of the merge.
    touched: tuple[str, ...] = ()  # As in `ReadTask.paths`: files with rows that change.
    matched: bytes = b""  # The rows of the source that were matched, as a bitmap,
    row_count: int = 0  # of so many.
    changes: tuple[int, int] = (0, 0)  # Rows that are updated, and deleted.


@dataclass(frozen=True, slots=True)
class Loose:
    """Rows that must be distributed: those in files, and inserted rows, unless `matched` is None."""

    tasks: tuple[ReadTask, ...]
    matched: bytes | None


class Workers(Protocol):
    """What an engine provides for a merge by parts."""

    @property
    def count(self) -> int:
        """The number of concurrent workers, as far as known."""
        ...

    def each(self, store: Store, tasks: Sequence[Any], work: Callable[[Store, Any], Any]) -> list[Any]:
        """The results of `work`, in order. If one fails, the files of the others are deleted."""
        ...

    def spread(self, store: Store, tasks: Sequence[ReadTask], layout: WriteTask) -> list[WrittenFile] | None:
        """Write these rows with as many workers as they are worth; None if rows cannot be sent between workers."""
        ...


class MergeByParts:
    """`decide`, `write` and `mark` for a source that fits into each worker. `beside` says how temporary files of the
    merge are written; `paths` lists them."""

    def __init__(self, store: Store, staged: Staged, beside: WriteTask, workers: Workers) -> None:
        self._store, self._staged, self._beside, self._workers = store, staged, beside, workers
        self.paths: list[str] = []

    def decide(self, merge: Merge, tasks: Sequence[FilesTask]) -> Decided:
        layout = replace(self._beside, fields=outcomes.DECISIONS)
        work = partial(_decide, merge, self._staged, layout)
        parts = divided(tasks, self._workers.count)
        results: list[PartResult] = self._workers.each(self._store, parts, work)
        decided = []
        for part, result in zip(parts, results, strict=True):
            changed = set(result.touched)
            touched = tuple(task for task in part.tasks if task.paths[0] in changed)
            decided.append(Part(touched, self._kept(outcomes.DECISIONS, result.beside)))
        paths = frozenset(path for result in results for path in result.touched)
        inserts = bool(merge.clauses_of(Group.NOT_MATCHED))
        choices = [part for part in decided if part.tasks], _matched(results) if inserts else None
        updated, deleted = (sum(numbers) for numbers in zip(*((0, 0), *(r.changes for r in results)), strict=True))
        return Decided(paths, choices, updated, deleted)

    def write(
        self,
        merge: Merge,
        decided: Decided,
        tasks: Sequence[FilesTask],
        layout: WriteTask,
        whole: bool,
        beside: Sequence[WriteTask] = (),
    ) -> list[WrittenFile]:
        parts, matched = decided.choices
        by_path = {task.paths[0]: task for task in tasks}
        parts = [replace(part, tasks=tuple(by_path[task.paths[0]] for task in part.tasks)) for part in parts]
        written: list[WrittenFile] = []
        loose: list[ReadTask] = []
        fields = tuple(replace(field, nullable=True) for field in layout.fields)
        try:
            if beside:
                layouts = dict(zip((task.paths[0] for task in tasks), beside, strict=True))
                for files in self._workers.each(
                    self._store, parts, partial(_write_columns, merge, self._staged, layouts)
                ):
                    written += files
            elif whole or any(clause.act is Act.UPDATE for clause in merge.clauses):
                work = partial(_write, merge, self._staged, layout, replace(self._beside, fields=fields), whole)
                for result in self._workers.each(self._store, parts, work):
                    written += result.files
                    loose += self._kept(fields, result.beside)
            written += self._settled(merge, loose, matched, layout)
        except BaseException:
            with suppress(LakeError):
                self._store.delete(paths_of(written))
            raise
        return written

    def mark(self, merge: Merge, decided: Decided, layout: DeleteTask, deleted_only: bool = False) -> list[WrittenFile]:
        parts, _ = decided.choices
        targets = {target.path: target for target in layout.targets}
        parts = [replace(part, targets=tuple(targets[task.paths[0]] for task in part.tasks)) for part in parts]
        if not layout.per_file and parts:
            decisions = tuple(decision for part in parts for decision in part.decisions)
            parts = [Part((), decisions, layout.targets)]
        acts = (Act.DELETE,) if deleted_only else (Act.DELETE, Act.UPDATE)
        clauses = [index for index, clause in enumerate(merge.clauses) if clause.act in acts]
        made = self._workers.each(self._store, parts, partial(_mark, layout, clauses))
        return [file for files in made for file in files]

    def _settled(
        self, merge: Merge, loose: list[ReadTask], matched: bytes | None, layout: WriteTask
    ) -> list[WrittenFile]:
        """Write the remaining rows: with one worker, unless they are many."""
        written: list[WrittenFile] | None = None
        if sum(part.size_bytes for part in loose) > LOOSE_BYTES:
            written = self._workers.spread(self._store, loose, layout)
        try:
            units = _cut(loose) if written is None else []
            if matched is not None:
                units[:1] = [Loose(units[0].tasks if units else (), matched)]
            settled = self._workers.each(self._store, units, partial(_settle, merge, self._staged, layout))
        except BaseException:
            with suppress(LakeError):
                self._store.delete(paths_of(written or []))
            raise
        return [*(written or []), *(file for files in settled for file in files)]

    def _kept(self, fields: tuple[Field, ...], files: Sequence[WrittenFile]) -> tuple[ReadTask, ...]:
        self.paths += [file.path for file in files]
        return tuple(read_back(file, fields) for file in files)


def read_back(file: WrittenFile, fields: tuple[Field, ...]) -> FilesTask:
    """The task that reads a file that a worker wrote with these columns."""
    return FilesTask(
        (file.path,),
        (file.row_count,),
        (file.size_bytes,),
        file.file_format,
        fields,
        fields,
        partition=file.partition,
        bucket=file.bucket,
    )


def divided(tasks: Sequence[FilesTask], workers: int) -> list[Part]:
    """Tasks by partition, in as many parts of about equal size as there are workers; in more if they would be large."""
    if not tasks:
        return []
    ordered = sorted(tasks, key=lambda task: (repr(task.partition), task.bucket or 0))
    weights = np.array([task.size_bytes + _OPENING for task in ordered], float)
    count = min(len(ordered), max(workers, -(-int(weights.sum()) // PART_BYTES)))
    numbers = ((np.cumsum(weights) - weights / 2) * count / weights.sum()).astype(np.int64)
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(ordered)]
    return [Part(tuple(ordered[start:end])) for start, end in pairwise(edges)]


# --- On the workers. ---


def _decide(merge: Merge, staged: Staged, layout: WriteTask, store: Store, part: Part) -> PartResult:
    index = outcomes.Index(merge, staged.load(store, merge.deciding(SOURCE)))
    touched: list[str] = []
    changes = np.zeros(2, np.int64)

    def decisions() -> Iterator[pa.RecordBatch]:
        for task in part.tasks:
            choice = arrow_merge.decide(store, index, task)
            if choice is not None:
                touched.append(task.paths[0])
                changes[:] += arrow_merge.changes_of(merge, choice.clauses)
                yield _decisions(task.paths[0], choice)

    written = worker.write(store, decisions(), layout)
    matched = bitmap.encode(index.matched()) if merge.clauses_of(Group.NOT_MATCHED) else b""
    updated, deleted = changes.tolist()
    return PartResult([], written, tuple(touched), matched, index.source.table.num_rows, (updated, deleted))


def _write(
    merge: Merge, staged: Staged, layout: WriteTask, beside: WriteTask, whole: bool, store: Store, part: Part
) -> PartResult:
    """Write rows that stay in the part's partitions to files of the table, all others to temporary files; unless whole
    files are rewritten, all rows are written there, since there are few in each file."""
    source = staged.load(store, merge.assigning(SOURCE))
    tasks = {task.paths[0]: task for task in part.tasks}

    def rows() -> Iterator[pa.RecordBatch | Copied]:
        for path, choice in _choices(store, part.decisions, {path: task.row_count for path, task in tasks.items()}):
            yield from arrow_merge.changed(store, merge, source, tasks[path], choice, whole, layout)

    if not whole:
        return PartResult([], worker.write(store, rows(), beside))
    if not layout.partition_by and layout.bucket is None:
        return PartResult(worker.write(store, rows(), layout), [])
    aside = _Aside(store, beside)
    homes = {(task.partition, task.bucket if layout.bucket else None) for task in part.tasks}
    try:
        return PartResult(worker.write(store, _staying(rows(), layout, homes, aside), layout), aside.written)
    except BaseException:
        with suppress(LakeError):
            store.delete([file.path for file in aside.written])
        raise


def _write_columns(
    merge: Merge, staged: Staged, layouts: Mapping[str, WriteTask], store: Store, part: Part
) -> list[WrittenFile]:
    source = staged.load(store, merge.assigning(SOURCE))
    tasks = {task.paths[0]: task for task in part.tasks}
    written: list[WrittenFile] = []
    try:
        for path, choice in _choices(store, part.decisions, {path: task.row_count for path, task in tasks.items()}):
            written += arrow_merge.write_columns(store, merge, source, tasks[path], choice, layouts[path])
    except BaseException:
        with suppress(LakeError):
            store.delete(paths_of(written))
        raise
    return written


def _mark(layout: DeleteTask, clauses: list[int], store: Store, part: Part) -> list[WrittenFile]:
    """Delete files for the rows to which one of these clauses applies."""
    placed = _read(store, part.decisions)
    chosen = (
        rows.keep(batch, pc.is_in(batch.column(outcomes.DECISIONS[3].name), pa.array(clauses, pa.int32())))
        for batch in placed
    )
    return marks.write(store, chosen, replace(layout, targets=part.targets))


def _settle(merge: Merge, staged: Staged, layout: WriteTask, store: Store, loose: Loose) -> list[WrittenFile]:
    return worker.write(store, chain(_read(store, loose.tasks), _inserted(merge, staged, store, loose)), layout)


def _inserted(merge: Merge, staged: Staged, store: Store, loose: Loose) -> Iterator[pa.RecordBatch]:
    if loose.matched is None:
        return
    source = staged.load(store, staged.fields)
    yield from arrow_merge.inserted(merge, source, arrow_merge.rest(source, _rows(loose.matched)))


def _read(store: Store, tasks: Iterable[ReadTask]) -> Iterator[pa.RecordBatch]:
    for task in tasks:
        yield from worker.read(store, task)


def _decisions(path: str, choice: Choice) -> pa.RecordBatch:
    """The decisions for a file's rows, as `outcomes.DECISIONS`; unchanged rows have none."""
    positions = np.flatnonzero(choice.clauses != outcomes.NONE)
    source = np.full(len(positions), outcomes.NONE, np.int64)
    source[np.searchsorted(positions, choice.updated)] = choice.source
    numbers = (positions, source, choice.clauses[positions].astype(np.int32))
    columns = [pa.repeat(path, len(positions)), *(pa.array(number) for number in numbers)]
    return pa.RecordBatch.from_arrays(columns, [f.name for f in outcomes.DECISIONS])


def _choices(store: Store, decisions: Sequence[ReadTask], counts: dict[str, int]) -> Iterator[tuple[str, Choice]]:
    """The choices that `_decisions` recorded, file by file."""
    for path, table in _by_file(_read(store, decisions)):
        positions, source, clause = (layouts.plain(table[f.name]).to_numpy() for f in outcomes.DECISIONS[1:])
        clauses = np.full(counts[path], outcomes.NONE, np.int8)
        clauses[positions] = clause
        updated = source != outcomes.NONE
        yield path, Choice(clauses, positions[updated], source[updated])


def _by_file(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each file, which are adjacent."""
    path = ""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        paths = batch.column(FILE.name).dictionary_encode()
        codes = np.asarray(paths.indices)
        for start, end in pairwise([0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]):
            file = paths.dictionary[codes[start]].as_py()
            if file != path and waiting:
                yield path, pa.Table.from_batches(waiting)
                waiting = []
            path = file
            waiting.append(batch.slice(start, end - start))
    if waiting:
        yield path, pa.Table.from_batches(waiting)


def _staying(
    batches: Iterable[pa.RecordBatch | Copied], layout: WriteTask, homes: set[tuple[Any, ...]], aside: _Aside
) -> Iterator[pa.RecordBatch | Copied]:
    """The rows whose partition and bucket is one of `homes`; the others are set aside, except copied row groups."""
    for batch in batches:
        if isinstance(batch, Copied):
            yield batch
            continue
        for partition, bucket, group in worker.placed(batch, layout) if batch.num_rows else ():
            if (partition, bucket) in homes:
                yield group
            else:
                aside.add(group)
    aside.finish()


class _Aside:
    """Rows that are set aside and written to temporary files as they become many."""

    def __init__(self, store: Store, layout: WriteTask) -> None:
        self._store, self._layout = store, layout
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self.written: list[WrittenFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes > _ASIDE_BYTES:
            self.finish()

    def finish(self) -> None:
        self.written += worker.write(self._store, self._waiting, self._layout)
        self._waiting, self._waiting_bytes = [], 0


def _matched(results: Sequence[PartResult]) -> bytes | None:
    """The rows of the source that any worker matched; None if that is all of them."""
    rows = distinct(np.concatenate([np.zeros(0, np.int64), *(_rows(result.matched) for result in results)]))
    return None if results and len(rows) == results[0].row_count else bitmap.encode(rows)


def _rows(matched: bytes) -> np.ndarray:
    return bitmap.decode(matched, "rows of the source that were matched")


def _cut(tasks: Sequence[ReadTask]) -> list[Loose]:
    """Files of rows, for one worker each."""
    numbers = np.cumsum([task.size_bytes for task in tasks]) // LOOSE_BYTES
    groups = (np.flatnonzero(numbers == number).tolist() for number in np.unique(numbers))
    return [Loose(tuple(tasks[index] for index in group), None) for group in groups]
