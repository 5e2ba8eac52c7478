"""MERGE in this process: the source in memory, the table's files one after the other on each thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from lakeformat.codec import layouts, numbers
from lakeformat.codec.arrow import fields_from_arrow, to_arrow
from lakeformat.engines import worker
from lakeformat.engines.engine import Decided, Spread
from lakeformat.engines.kernels import casts, gather, rows
from lakeformat.engines.kernels.gather import Rows
from lakeformat.engines.row_level import deletes, marks, outcomes
from lakeformat.engines.written import Copied
from lakeformat.model.dataclass import dataclass
from lakeformat.model.merge import SOURCE, TARGET, Act, Group, Merge, flat_name
from lakeformat.model.operation import RowCounts
from lakeformat.model.schema import Field
from lakeformat.model.work import (
    CHANGED,
    POSITION,
    Content,
    DeleteTask,
    FilesTask,
    ReadTask,
    RowKind,
    Target,
    WriteTask,
    WrittenFile,
)
from lakeformat.storage.store import Store

_WRITE_ROWS = 1 << 17  # Rows of the source that are inserted together.
_DECIDE_ROWS = 1 << 20  # Rows of the table that are decided together; they have few columns.
# Bytes of changed rows' columns that are kept, over all files, so that they need not be read again.
_KEPT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """The decisions of a merge for the rows of one file."""

    clauses: np.ndarray  # By position: the clause that applies, `outcomes.NONE` for an unchanged row.
    updated: np.ndarray  # The positions of rows that are updated with values of the source, ascending.
    source: np.ndarray  # For each of those, the row of the source.
    rows: pa.Table | None = None  # And the columns that were read, if there are few rows.

    def keeps(self, names: set[str]) -> bool:
        """Whether these columns of the updated rows are kept."""
        return self.rows is not None and names.issubset(self.rows.column_names)


class ArrowSource:
    """A source in memory. `run` is the engine's way to run work on many items."""

    def __init__(
        self, store: Store, table: pa.Table, run: Any, threads: int = 1, untyped: frozenset[str] = frozenset()
    ) -> None:
        self.untyped = untyped
        self.fields: tuple[Field, ...] = fields_from_arrow(table.schema)
        self._store, self._run, self._threads = store, run, threads
        self._rows = Rows(outcomes.named(SOURCE, gather.compact(table)))

    def keep_last(self, key: tuple[str, ...]) -> None:
        self._rows = Rows(last_of_each(self._rows.table, key))

    def spread(self, merge: Merge, limit: int) -> list[Spread]:
        return outcomes.spread(merge, self._rows.table, limit)

    def decide(self, merge: Merge, tasks: Sequence[FilesTask]) -> Decided:
        index = outcomes.Index(merge, self._rows)
        room = _Room(_KEPT_BYTES)
        decided = self._run(lambda task: decide(self._store, index, task, room), tasks)
        choices = {task.paths[0]: choice for task, choice in zip(tasks, decided, strict=True) if choice is not None}
        unmatched = rest(self._rows, index.matched()) if merge.clauses_of(Group.NOT_MATCHED) else np.zeros(0, np.int64)
        counts = sum((changes_of(merge, choice.clauses) for choice in choices.values()), np.zeros(2, np.int64))
        return Decided(frozenset(choices), (choices, unmatched), *counts.tolist())

    def write(
        self,
        merge: Merge,
        decided: Decided,
        tasks: Sequence[FilesTask],
        layout: WriteTask,
        whole: bool,
        beside: Sequence[WriteTask] = (),
    ) -> list[WrittenFile]:
        choices, unmatched = decided.choices
        layouts = dict(zip((task.paths[0] for task in tasks), beside, strict=True)) if beside else {}
        # Rows that need not be read again are written to the same files as inserted rows.
        needed = {flat_name(TARGET, f.name) for f in merge.surviving}
        kept: list[Choice] = []
        if not whole and not beside:
            kept = [choices[task.paths[0]] for task in tasks if choices[task.paths[0]].keeps(needed)]
            tasks = [task for task in tasks if not choices[task.paths[0]].keeps(needed)]

        def together() -> Iterator[pa.RecordBatch]:
            for choice in kept:
                yield from updated(merge, self._rows, choice)
            yield from inserted(merge, self._rows, unmatched)

        def work(task: FilesTask | None) -> list[WrittenFile]:
            if task is None:
                return worker.write(self._store, together(), layout, threads=1 if tasks else self._threads)
            choice = choices[task.paths[0]]
            if beside:
                return write_columns(self._store, merge, self._rows, task, choice, layouts[task.paths[0]])
            batches = changed(self._store, merge, self._rows, task, choice, whole, layout)
            return worker.write(self._store, batches, layout)

        written = self._run(work, [*([None] if kept or len(unmatched) else []), *tasks])
        return [file for files in written for file in files]

    def mark(self, merge: Merge, decided: Decided, layout: DeleteTask, deleted_only: bool = False) -> list[WrittenFile]:
        choices, _ = decided.choices
        if deleted_only:
            choices = {path: _of_act(choice, merge, Act.DELETE) for path, choice in choices.items()}

        def work(targets: tuple[Target, ...]) -> list[WrittenFile]:
            by_path = {target.path: np.flatnonzero(choices[target.path].clauses != outcomes.NONE) for target in targets}
            by_path = {path: positions for path, positions in by_path.items() if len(positions)}
            return marks.write_positions(self._store, by_path, replace(layout, targets=targets))

        alone = layout.per_file and layout.content is not Content.DELETION_VECTORS  # Of which one file holds many.
        written = self._run(work, [(target,) for target in layout.targets] if alone else [layout.targets])
        return [file for files in written for file in files]

    def write_by_key(
        self, merge: Merge, tasks: Sequence[ReadTask], layout: WriteTask
    ) -> tuple[list[WrittenFile], RowCounts]:
        changes, fresh = np.zeros(2, np.int64), np.zeros(1, np.int64)
        written = worker.write(self._store, self._by_key(merge, tasks, changes, fresh), layout)
        return written, RowCounts(*changes.tolist(), *fresh.tolist())

    def close(self) -> None:
        self._rows = Rows(self._rows.table.slice(0, 0))

    def _by_key(
        self, merge: Merge, tasks: Sequence[ReadTask], changes: np.ndarray, fresh: np.ndarray
    ) -> Iterator[pa.RecordBatch]:
        """The resulting rows; adds to `changes` those that are updated and deleted, and to `fresh` those inserted."""
        index = outcomes.Index(merge, self._rows)
        right = assigning(merge, self._rows)
        for task in tasks:
            for batch in worker.read(self._store, task):
                target = outcomes.named(TARGET, pa.Table.from_batches([batch]))
                rows, clauses, right_rows = outcomes.decide(index, target)
                choice, beside = np.full(target.num_rows, outcomes.NONE, np.int8), np.zeros(target.num_rows, np.int64)
                choice[rows], beside[rows] = clauses, right_rows
                changes += changes_of(merge, clauses)
                for some in _windows(right, target.num_rows, rows[right_rows >= 0], right_rows[right_rows >= 0]):
                    source = partial(_taken, right, beside[some])
                    yield outcomes.by_key(merge, _sliced(target, some), choice[some], source)[0]
        if merge.clauses_of(Group.NOT_MATCHED):
            for batch in inserted(merge, self._rows, rest(self._rows, index.matched())):
                fresh += batch.num_rows
                yield outcomes.of_kind(batch, RowKind.INSERT)


def changes_of(merge: Merge, clauses: np.ndarray) -> np.ndarray:
    """The numbers of rows that are updated and deleted, of rows to which these clauses apply."""
    acts = (np.array([clause.act is act for clause in merge.clauses], bool) for act in (Act.UPDATE, Act.DELETE))
    numbers = np.bincount(clauses[clauses != outcomes.NONE], minlength=len(merge.clauses))
    return np.array([numbers[is_act].sum() for is_act in acts], np.int64)


def _of_act(choice: Choice, merge: Merge, act: Act) -> Choice:
    """What is done with the rows of a file by clauses that do this; all others stay."""
    own = [index for index, clause in enumerate(merge.clauses) if clause.act is act]
    return replace(choice, clauses=np.where(np.isin(choice.clauses, own), choice.clauses, outcomes.NONE))


def last_of_each(source: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The last of rows that are equal in these columns; the result keeps the order."""
    return rows.last_of_each(source, [flat_name(SOURCE, name) for name in key])


def rest(source: Rows, matched: np.ndarray) -> np.ndarray:
    """The rows of the source that are not in `matched`."""
    alone = np.ones(source.table.num_rows, bool)
    alone[matched] = False
    return np.flatnonzero(alone)


def inserted(merge: Merge, source: Rows, unmatched: np.ndarray) -> Iterator[pa.RecordBatch]:
    """The rows to insert for these rows of the source."""
    for some in source.windows(unmatched, _WRITE_ROWS):
        yield from outcomes.inserted(merge, source.take(unmatched[some]))


def assigning(merge: Merge, source: Rows) -> Rows:
    """The source columns whose values are assigned to rows of the table."""
    return source.select([flat_name(SOURCE, f.name) for f in merge.assigning(SOURCE)])


class _Room:
    """How many more bytes are kept; threads that ask at the same time may exceed it a little."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, size: int) -> bool:
        self._left -= size
        return self._left >= 0


def decide(store: Store, index: outcomes.Index, task: FilesTask, room: _Room | None = None) -> Choice | None:
    """The decisions for the rows of one file; None if nothing changes. Columns of changed rows are kept as far as there
    is `room`."""
    merge = index.merge
    clauses = np.full(task.row_count, outcomes.NONE, np.int8)
    updates = [p for p, clause in enumerate(merge.clauses) if (clause.act, clause.group) == (Act.UPDATE, Group.MATCHED)]
    keeps = room is not None and all(
        clause.group is not Group.NOT_MATCHED_BY_SOURCE or clause.act is not Act.UPDATE for clause in merge.clauses
    )
    updated, source, kept = [], [], []
    deleted = None
    if index.tests_rows_freely and all(
        file.content is not Content.EQUALITY_DELETES for some in task.deletes for file in some
    ):
        # Among the few that match, deleted rows are found faster than they are left out of all.
        deleted = deletes.positions(store, task.paths[0], task.deletes[0]) if task.deletes else None
        task = replace(task, deletes=())
    for batch in worker.read(store, task, _DECIDE_ROWS):
        target, positions = _target(batch)
        rows, choice, beside = outcomes.decide(index, target, None if deleted is None else deleted - positions[0])
        clauses[positions[rows]] = choice
        changes = np.isin(choice, updates)
        rows = rows[changes]
        updated.append(positions[rows])
        source.append(beside[changes])
        if keeps and room is not None:
            kept.append(gather.take(target, rows))
            keeps = room.take(kept[-1].nbytes)
    if (clauses == outcomes.NONE).all():
        return None
    columns = pa.concat_tables(kept) if keeps and kept else None
    return Choice(clauses, np.concatenate(updated), np.concatenate(source), columns)


def updated(merge: Merge, source: Rows, choice: Choice) -> Iterator[pa.RecordBatch]:
    """The updated rows of one file: those that `choice` keeps."""
    if not len(choice.updated):
        return
    assert choice.rows is not None, choice
    right = assigning(merge, source)
    for some in right.windows(choice.source, _WRITE_ROWS):
        clauses = choice.clauses[choice.updated[some]]
        beside = partial(_taken, right, choice.source[some])
        yield outcomes.changed(merge, _sliced(choice.rows, some), clauses, beside, False)


def changed(
    store: Store, merge: Merge, source: Rows, task: FilesTask, choice: Choice, whole: bool, into: WriteTask
) -> Iterator[pa.RecordBatch | Copied]:
    """The rows of one file after the merge, for files of `into`: all remaining rows, or (unless `whole`) the updated
    ones. `source` has the source columns whose values are assigned."""
    updates = [index for index, clause in enumerate(merge.clauses) if clause.act is Act.UPDATE]
    if not whole and not np.isin(choice.clauses, updates).any():
        return
    right = assigning(merge, source)

    def touches(_: pa.Table, start: int, count: int) -> bool:
        return bool((choice.clauses[start : start + count] != outcomes.NONE).any())

    parts = worker.parts_or_copies(store, task, into, touches) if whole else worker.parts(store, task)
    for batch in chain.from_iterable(part() for part in parts):
        if isinstance(batch, Copied):
            yield batch
            continue
        target, positions = _target(batch)
        updated_rows = np.flatnonzero(numbers.among(positions, choice.updated))
        rows_of_source = choice.source[np.searchsorted(choice.updated, positions[updated_rows])]
        beside = np.full(len(positions), outcomes.NONE, np.int64)
        beside[updated_rows] = rows_of_source
        for some in _windows(right, len(positions), updated_rows, rows_of_source):
            clauses = choice.clauses[positions[some]]
            yield outcomes.changed(merge, _sliced(target, some), clauses, partial(_taken, right, beside[some]), whole)


def write_columns(
    store: Store, merge: Merge, source: Rows, task: FilesTask, choice: Choice, into: WriteTask
) -> list[WrittenFile]:
    """The columns of `into` for all rows of one file after the merge, including deleted rows; nothing if no row is
    updated."""
    choice = _of_act(choice, merge, Act.UPDATE)
    if (choice.clauses == outcomes.NONE).all():
        return []
    names = {field.name for field in into.fields}
    narrow = replace(merge, target=tuple(f for f in merge.target if f.name in names))
    batches = changed(store, narrow, source, task, choice, True, into)
    if into.blobs is not None and into.blobs.updates:
        batches = _with_changed(batches, choice.clauses != outcomes.NONE)
    return worker.write(store, batches, into)


def _with_changed(batches: Iterable[Any], is_changed: np.ndarray) -> Iterator[pa.RecordBatch]:
    """All rows of a file in order, with the column `CHANGED`."""
    start = 0
    for batch in batches:
        yield batch.append_column(CHANGED.name, pa.array(is_changed[start : start + batch.num_rows]))
        start += batch.num_rows


def _windows(source: Rows, count: int, updated: np.ndarray, of_source: np.ndarray) -> Iterator[slice]:
    """Windows of `count` rows of the table, of which those `updated` get the values of these rows of the source."""
    sizes = np.zeros(count, np.int64)
    sizes[updated] = source.sizes(of_source)
    return gather.windows(sizes, max(count, 1))


def _sliced(table: pa.Table, some: slice) -> pa.Table:
    return table.slice(some.start, some.stop - some.start)


def _taken(source: Rows, beside: np.ndarray, rows: np.ndarray) -> pa.Table:
    return source.take(beside[rows])


def untyped_columns(schema: pa.Schema) -> frozenset[str]:
    """The columns that have no type, as no row has a value."""
    return frozenset(field.name for field in schema if pa.types.is_null(field.type))


def typed(table: pa.Table, hints: tuple[Field, ...]) -> pa.Table:
    """`table` in plain types that have a logical type: columns of nulls as in `hints`, or else as text."""
    hinted_types = {hint.name.casefold(): to_arrow(hint.type) for hint in hints}
    columns: list[pa.Array | pa.ChunkedArray] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_null(column.type):
            columns.append(casts.nulls(len(column), hinted_types.get(name.casefold(), pa.string())))
        elif pa.types.is_uint64(column.type):
            columns.append(column.cast(pa.decimal128(20, 0)))
        else:
            columns.append(column if column.type == layouts.plain_type(column.type) else layouts.plain(column))
    return pa.table(columns, names=table.column_names)


def _target(batch: pa.RecordBatch) -> tuple[pa.Table, np.ndarray]:
    positions = batch.column(POSITION.name).to_numpy()
    rest = pa.Table.from_batches([batch]).drop_columns([POSITION.name])
    return outcomes.named(TARGET, rest), positions
