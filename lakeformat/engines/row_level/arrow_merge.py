"""Merging in this process: the source in memory, the table's files one after the other on each thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakeformat.codec.arrow import fields_from_arrow, to_arrow
from lakeformat.engines import worker
from lakeformat.engines.engine import Decided, Spread
from lakeformat.engines.kernels import casts, rows
from lakeformat.engines.row_level import marks, outcomes
from lakeformat.engines.written import Copied
from lakeformat.model.merge import SOURCE, TARGET, Act, Group, Merge, flat_name
from lakeformat.model.schema import Field
from lakeformat.model.work import FILE, POSITION, Content, DeleteTask, ReadTask, RowKind, Target, WriteTask, WrittenFile
from lakeformat.storage.store import Store

_WRITE_ROWS = 1 << 17  # Rows of the source that are inserted together.
_DECIDE_ROWS = 1 << 20  # Rows of the table that are decided together: there are few columns of them.


@dataclass(frozen=True, slots=True)
class Choice:
    """What a merge does with the rows of one file."""

    clauses: np.ndarray  # By position: the clause that decides, `outcomes.NONE` for a row that stays.
    updated: np.ndarray  # The positions of rows that are updated with values of the source, ascending.
    source: np.ndarray  # For each of those, the row of the source.


class ArrowSource:
    """A source in memory. `run` is the engine's way to do work on each of many things."""

    def __init__(self, store: Store, table: pa.Table, run: Any) -> None:
        self.fields: tuple[Field, ...] = fields_from_arrow(table.schema)
        self._store, self._run = store, run
        self._table = outcomes.named(SOURCE, table.combine_chunks())

    def keep_last(self, key: tuple[str, ...]) -> None:
        self._table = last_of_each(self._table, key)

    def spread(self, merge: Merge, limit: int) -> list[Spread]:
        return outcomes.spread(merge, self._table, limit)

    def decide(self, merge: Merge, tasks: Sequence[ReadTask]) -> Decided:
        index = outcomes.Index(merge, self._table)
        found = self._run(lambda task: decide(self._store, index, task), tasks)
        choices = {task.paths[0]: each for task, each in zip(tasks, found, strict=True) if each is not None}
        unmatched = rest(self._table, index.matched()) if merge.of(Group.NOT_MATCHED) else np.zeros(0, np.int64)
        return Decided(frozenset(choices), (choices, unmatched))

    def write(
        self,
        merge: Merge,
        decided: Decided,
        tasks: Sequence[ReadTask],
        layout: WriteTask,
        whole: bool,
        beside: Sequence[WriteTask] = (),
    ) -> list[WrittenFile]:
        choices, unmatched = decided.choices
        layouts = dict(zip((task.paths[0] for task in tasks), beside, strict=True)) if beside else {}

        def work(task: ReadTask | None) -> list[WrittenFile]:
            if task is None:
                return worker.write(self._store, inserted(merge, self._table, unmatched), layout)
            choice = choices[task.paths[0]]
            if beside:
                return write_columns(self._store, merge, self._table, task, choice, layouts[task.paths[0]])
            batches = changed(self._store, merge, self._table, task, choice, whole, layout)
            return worker.write(self._store, batches, layout)

        written = self._run(work, [*([None] if len(unmatched) else []), *tasks])
        return [file for files in written for file in files]

    def mark(self, merge: Merge, decided: Decided, layout: DeleteTask, deleted_only: bool = False) -> list[WrittenFile]:
        choices, _ = decided.choices
        if deleted_only:
            choices = {path: _of(each, merge, Act.DELETE) for path, each in choices.items()}

        def work(targets: tuple[Target, ...]) -> list[WrittenFile]:
            placed = (places(each.path, choices[each.path]) for each in targets)
            return marks.write(self._store, placed, replace(layout, targets=targets))

        alone = layout.per_file and layout.content is not Content.DELETION_VECTORS  # Of which one file holds many.
        written = self._run(work, [(each,) for each in layout.targets] if alone else [layout.targets])
        return [file for files in written for file in files]

    def write_by_key(self, merge: Merge, tasks: Sequence[ReadTask], layout: WriteTask) -> list[WrittenFile]:
        return worker.write(self._store, self._by_key(merge, tasks), layout)

    def close(self) -> None:
        self._table = self._table.slice(0, 0)

    def _by_key(self, merge: Merge, tasks: Sequence[ReadTask]) -> Iterator[pa.RecordBatch]:
        index = outcomes.Index(merge, self._table)
        right = self._table.select([flat_name(SOURCE, f.name) for f in merge.assigning(SOURCE)])
        for task in tasks:
            for batch in worker.read(self._store, task):
                target = outcomes.named(TARGET, pa.Table.from_batches([batch]))
                choice, beside = outcomes.decide(index, target)

                def source(rows: np.ndarray, beside: np.ndarray = beside) -> pa.Table:
                    return right.take(pa.array(beside[rows]))

                yield outcomes.by_key(merge, target, choice, source)[0]
        if merge.of(Group.NOT_MATCHED):
            for batch in inserted(merge, self._table, rest(self._table, index.matched())):
                yield outcomes.of_kind(batch, RowKind.INSERT)


def _of(choice: Choice, merge: Merge, act: Act) -> Choice:
    """What is done with the rows of a file by clauses that do this; all others stay."""
    own = [place for place, each in enumerate(merge.clauses) if each.act is act]
    return replace(choice, clauses=np.where(np.isin(choice.clauses, own), choice.clauses, outcomes.NONE))


def last_of_each(source: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Of rows that are equal in these columns of the source, the last one; those that are left in their order."""
    codes = rows.key_codes([casts.flat(source[flat_name(SOURCE, name)]) for name in key])
    _, last = np.unique(codes[::-1], return_index=True)
    return source if len(last) == len(codes) else source.take(pa.array(np.sort(len(codes) - 1 - last)))


def rest(source: pa.Table, matched: np.ndarray) -> np.ndarray:
    """The rows of the source that are not among `matched`."""
    alone = np.ones(source.num_rows, bool)
    alone[matched] = False
    return np.flatnonzero(alone)


def inserted(merge: Merge, source: pa.Table, unmatched: np.ndarray) -> Iterator[pa.RecordBatch]:
    """The rows that come of these rows of the source."""
    for start in range(0, len(unmatched), _WRITE_ROWS):
        yield from outcomes.inserted(merge, source.take(pa.array(unmatched[start : start + _WRITE_ROWS])))


def decide(store: Store, index: outcomes.Index, task: ReadTask) -> Choice | None:
    """What becomes of the rows of one file; None where nothing does."""
    merge = index.merge
    clauses = np.full(task.row_count, outcomes.NONE, np.int8)
    updates = [p for p, each in enumerate(merge.clauses) if (each.act, each.group) == (Act.UPDATE, Group.MATCHED)]
    updated, source = [], []
    for batch in worker.read(store, task, _DECIDE_ROWS):
        target, positions = _target(batch)
        choice, beside = outcomes.decide(index, target)
        clauses[positions] = choice
        rows = np.flatnonzero(np.isin(choice, updates))
        updated.append(positions[rows])
        source.append(beside[rows])
    if (clauses == outcomes.NONE).all():
        return None
    return Choice(clauses, np.concatenate(updated), np.concatenate(source))


def changed(
    store: Store, merge: Merge, table: pa.Table, task: ReadTask, choice: Choice, whole: bool, into: WriteTask
) -> Iterator[pa.RecordBatch | Copied]:
    """The rows of one file after the merge, for files of `into`: all that are left, or (unless `whole`) those updated. `table` is the
    source: the columns that matched rows are given values from."""
    updates = [place for place, each in enumerate(merge.clauses) if each.act is Act.UPDATE]
    if not whole and not np.isin(choice.clauses, updates).any():
        return
    right = table.select([flat_name(SOURCE, f.name) for f in merge.assigning(SOURCE)])

    def touches(_: pa.Table, start: int, count: int) -> bool:
        return bool((choice.clauses[start : start + count] != outcomes.NONE).any())

    for batch in worker.read_or_copy(store, task, into, touches) if whole else worker.read(store, task):
        if isinstance(batch, Copied):
            yield batch
            continue
        target, positions = _target(batch)

        def source(rows: np.ndarray, positions: np.ndarray = positions) -> pa.Table:
            at = np.searchsorted(choice.updated, positions[rows])
            return right.take(pa.array(choice.source[at]))

        yield outcomes.changed(merge, target, choice.clauses[positions], source, whole)


def write_columns(
    store: Store, merge: Merge, table: pa.Table, task: ReadTask, choice: Choice, into: WriteTask
) -> list[WrittenFile]:
    """The columns of `into` of all rows of one file after the merge, also of those that go; nothing where none is updated."""
    choice = _of(choice, merge, Act.UPDATE)
    if (choice.clauses == outcomes.NONE).all():
        return []
    names = {each.name for each in into.fields}
    narrow = replace(merge, target=tuple(f for f in merge.target if f.name in names))
    return worker.write(store, changed(store, narrow, table, task, choice, True, into), into)


def places(path: str, choice: Choice) -> pa.RecordBatch:
    """Where the rows lie that a clause decides about."""
    positions = pa.array(np.flatnonzero(choice.clauses != outcomes.NONE))
    return pa.record_batch([pa.repeat(path, len(positions)), positions], names=[FILE.name, POSITION.name])


def typed(table: pa.Table, hints: tuple[Field, ...]) -> pa.Table:
    """`table` in plain types that have a logical one: columns of nulls as in `hints`, or else as text."""
    wanted = {each.name.casefold(): to_arrow(each.type) for each in hints}
    columns: list[pa.Array | pa.ChunkedArray] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_null(column.type):
            columns.append(casts.nulls(len(column), wanted.get(name.casefold(), pa.string())))
        elif pa.types.is_uint64(column.type):
            columns.append(column.cast(pa.decimal128(20, 0)))
        else:
            columns.append(column if column.type == casts.flat_type(column.type) else casts.flat(column))
    return pa.table(columns, names=table.column_names)


def _target(batch: pa.RecordBatch) -> tuple[pa.Table, np.ndarray]:
    positions = batch.column(POSITION.name).to_numpy()
    rest = pa.Table.from_batches([batch]).drop_columns([POSITION.name])
    return outcomes.named(TARGET, rest), positions
