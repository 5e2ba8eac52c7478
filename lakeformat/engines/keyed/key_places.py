"""Keys that may change partitions: where each has its row, and what happens to it when the key is written to another
partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts, plain_values
from lakeformat.engines.kernels import rows
from lakeformat.engines.keyed import key_values
from lakeformat.engines.keyed.hash_index import with_room
from lakeformat.engines.keyed.key_map import KeyMap
from lakeformat.errors import OutsideScope
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import ALWAYS, Column, Expression, Literal, and_, bind, ge, le
from lakeformat.model.schema import Field, find_field
from lakeformat.model.work import (
    BUCKET,
    VALUE_KIND,
    KeyPlaces,
    KeyValues,
    MergeEngine,
    MergeSpec,
    MergeTask,
    ReadTask,
    RowKind,
    WriteTask,
    WrittenFile,
)

LOOKED_UP_BYTES = 256 << 20  # Rows whose keys are looked up together, by one read of the table's keys.
NOWHERE = -1

Read = Callable[[ReadTask], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Was:
    """For each row, where its key's existing row is. Columns are those of the partition."""

    exists: np.ndarray  # Whether there is one.
    columns: Sequence[pa.Array]
    home: Sequence[pa.Array]  # Where it was before the write,
    bucket: pa.Array  # and in which bucket; null for a key that had none.


def settle(batch: pa.RecordBatch, was: Was, places: KeyPlaces, spec: MergeSpec) -> pa.RecordBatch:
    """Rows (with `VALUE_KIND`) with their final partition and, if it is fixed, their `BUCKET`; each after the delete
    row of its key's old row."""
    partition = [batch.column(name) for name in places.partition]
    moves = was.exists & ~_same(partition, was.columns)
    removes = spec.engine is MergeEngine.DEDUPLICATE or (places.only_removes and spec.remove_on_delete)
    removes = removes and not (places.only_removes and places.removes_late)
    if places.only_removes and not removes and moves.any():
        where = {
            name: column[int(np.flatnonzero(moves)[0])].as_py()
            for name, column in zip(places.partition, was.columns, strict=True)
        }
        why = f"merge engine '{spec.engine}' does not let them go"
        if places.removes_late:
            why = "rows that take them away would only count once they are compacted (deletion vectors)"
        raise OutsideScope(
            f"{int(moves.sum())} rows have keys that exist in partitions that are not overwritten, e.g. {where}, and "
            f"{why}. Nothing was committed: leave these rows out, or overwrite those partitions too"
        )
    if removes:
        chosen = pa.array(np.flatnonzero(moves))
        removals = _in_partition(batch.take(chosen), [column.take(chosen) for column in was.columns], places)
        kinds = pa.array(np.full(len(chosen), int(RowKind.DELETE), np.int8))
        removals = removals.set_column(
            removals.schema.get_field_index(VALUE_KIND.name), batch.schema.field(VALUE_KIND.name), kinds
        )
        removals = _in_bucket(removals, _at_home(was.columns, was).take(chosen))
        if places.only_removes:
            return removals
        both = pa.concat_batches([removals, _in_bucket(batch, _at_home(partition, was))])
        order = np.argsort(np.concatenate([np.flatnonzero(moves), np.arange(batch.num_rows)]), kind="stable")
        return both.take(pa.array(order)) if len(chosen) else both
    if places.only_removes:
        return batch.slice(0, 0)
    if spec.engine is MergeEngine.FIRST_ROW:
        return rows.keep(_in_bucket(batch, _at_home(partition, was)), pa.array(~moves))
    exists = pa.array(was.exists)
    current = [pc.if_else(exists, old, new) for old, new in zip(was.columns, partition, strict=True)]
    return _in_bucket(_in_partition(batch, current, places), _at_home(current, was))


def moved(before: pa.RecordBatch, after: pa.RecordBatch, places: KeyPlaces, keyed: KeyValues) -> pa.RecordBatch:
    """Rows that were `before` at their `BUCKET`, as rows to be written."""
    was = [before.column(name) for name in places.partition]
    earlier = Was(np.ones(before.num_rows, bool), was, was, before.column(BUCKET.name))
    kinds = pa.array(np.full(after.num_rows, int(keyed.kind), np.int8))
    changed = after.append_column(pa.field(VALUE_KIND.name, pa.int8(), nullable=False), kinds)
    return key_values.with_names(settle(changed, earlier, places, keyed.merge))


class Placer:
    """Assigns partitions and buckets to rows during one write. The keys of its rows are in memory."""

    def __init__(self, task: WriteTask, places: KeyPlaces, read: Read, threads: int = 1) -> None:
        assert task.keyed is not None, task
        self._places, self._read, self._threads, self._spec = places, read, threads, task.keyed.merge
        self._fields = tuple(find_field(task.fields, name) for name in places.key)
        self._keys = KeyMap()
        # By slot of a key: the numbers of its row's old and new partition, and its old bucket.
        self._home = self._current = self._bucket = np.zeros(0, np.int64)
        self._partitions = KeyMap()
        self._values: list[pa.Array] = []  # By number; one array for each column.
        self._counts: dict[tuple[Any, ...], dict[int, int]] = {}
        # New keys of a partition, and their buckets.
        self._given: dict[tuple[Any, ...], tuple[KeyMap, np.ndarray]] = {}

    def settled(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows to write for these, with their `BUCKET` if it is fixed."""
        if self._places.is_settled:
            yield from batches
            return
        for batch in _together(batches, LOOKED_UP_BYTES) if self._places.tasks else batches:
            yield self._settle(batch)

    def split(self, partition: tuple[Any, ...], batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of each bucket; rows without a fixed one get one with room, all rows of a key the same."""
        column = batch.column(BUCKET.name)
        batch = batch.drop_columns([BUCKET.name])
        buckets = column.fill_null(NOWHERE).to_numpy(zero_copy_only=False).copy()
        new = np.flatnonzero(buckets == NOWHERE)
        if len(new):
            key_map, key_buckets = self._given.get(partition) or (KeyMap(), np.zeros(0, np.int32))
            chosen = pa.array(new)
            slots, fresh = _admit(key_map, [batch.column(name).take(chosen) for name in self._places.key])
            counts = self._counts.setdefault(partition, dict(self._places.rows.get(repr(partition), {})))
            more = with_room(counts, len(fresh[0]), self._places.target_rows, self._places.max_buckets, partition)
            key_buckets = np.concatenate([key_buckets, more])
            self._given[partition] = key_map, key_buckets
            buckets[new] = key_buckets[slots]
        for (bucket,), group in rows.split(batch, [pa.array(buckets)]):
            yield bucket.as_py(), group

    def finish(self) -> list[WrittenFile]:
        """No files: the places of keys are not stored."""
        return []

    def _settle(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = [layouts.plain(batch.column(name)) for name in self._places.key]
        slots, fresh = _admit(self._keys, keys)
        if len(fresh[0]):
            home, bucket = self._look_up(fresh)
            self._home = np.concatenate([self._home, home])
            self._current = np.concatenate([self._current, home])
            self._bucket = np.concatenate([self._bucket, bucket])
        partitions = self._numbers([layouts.plain(batch.column(name)) for name in self._places.partition])
        order = np.argsort(slots, kind="stable")
        begins = np.append(True, slots[order][1:] != slots[order][:-1])
        was = np.empty(len(partitions), np.int64)
        if self._spec.engine is MergeEngine.DEDUPLICATE:  # A key's row is where its last one was written.
            was[order] = np.where(begins, self._current[slots[order]], np.roll(partitions[order], 1))
            ends = np.append(begins[1:], True)
            self._current[slots[order[ends]]] = partitions[order[ends]]
        else:  # It stays where the first one was written.
            first = order[begins]
            new = self._current[slots[first]] == NOWHERE
            self._current[slots[first[new]]] = partitions[first[new]]
            was = self._current[slots]
        home, bucket = self._home[slots], self._bucket[slots]
        buckets = pa.array(bucket, pa.int32(), mask=bucket == NOWHERE)
        return settle(
            batch,
            Was(was != NOWHERE, self._partition(was), self._partition(home), buckets),
            self._places,
            self._spec,
        )

    def _numbers(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """The number of each partition."""
        slots, fresh = _admit(self._partitions, columns)
        self._values = (
            [pa.concat_arrays([old, new]) for old, new in zip(self._values, fresh, strict=True)]
            if self._values
            else fresh
        )
        return slots

    def _partition(self, numbers: np.ndarray) -> list[pa.Array]:
        chosen = pa.array(numbers, mask=numbers == NOWHERE)
        return [column.take(chosen) for column in self._values]

    def _look_up(self, keys: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
        """(partition number, bucket) of the existing row of each of these distinct keys; or NOWHERE."""
        home, bucket = np.full(len(keys[0]), NOWHERE), np.full(len(keys[0]), NOWHERE)
        if not self._places.tasks:
            return home, bucket
        key_set = rows.KeySet(self._fields, keys)
        codes = key_set.codes(keys)
        places = np.zeros(int(codes.max()) + 1, np.int64)
        places[codes] = np.arange(len(codes))
        within = _range(self._fields, keys)

        def find(task: ReadTask) -> list[tuple[np.ndarray, pa.RecordBatch]]:
            pairs = []
            for batch in self._read(_narrowed(task, within)):
                codes = key_set.codes([layouts.plain(batch.column(name)) for name in self._places.key])
                hits = np.flatnonzero(codes >= 0)
                if len(hits):
                    existing = batch.select([*self._places.partition, BUCKET.name]).take(pa.array(hits))
                    pairs.append((places[codes[hits]], existing))
            return pairs

        with ThreadPoolExecutor(self._threads, "keys") as pool:
            for pairs in pool.map(find, self._places.tasks):
                for indexes, existing in pairs:
                    home[indexes] = self._numbers(
                        [layouts.plain(existing.column(name)) for name in self._places.partition]
                    )
                    bucket[indexes] = existing.column(BUCKET.name).to_numpy(zero_copy_only=False)
        return home, bucket


# --- private ----------------------------------------------------------------------------------------------------------


def _same(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> np.ndarray:
    """For each row, whether the partitions are the same; null is a value."""
    same = np.ones(len(left[0]), bool)
    for a, b in zip(left, right, strict=True):
        equal = pc.or_(pc.fill_null(pc.equal(a, b), False), pc.and_(a.is_null(), b.is_null()))
        same &= equal.to_numpy(zero_copy_only=False)
    return same


def _at_home(columns: Sequence[pa.Array], was: Was) -> pa.Array:
    """The fixed bucket of a key in these partitions; null: any."""
    return pc.if_else(pa.array(_same(columns, was.home)), was.bucket, pa.scalar(None, pa.int32()))


def _in_partition(batch: pa.RecordBatch, columns: Sequence[pa.Array], places: KeyPlaces) -> pa.RecordBatch:
    for name, column in zip(places.partition, columns, strict=True):
        index = batch.schema.get_field_index(name)
        batch = batch.set_column(index, batch.schema.field(index), column)
    return batch


def _in_bucket(batch: pa.RecordBatch, buckets: pa.Array) -> pa.RecordBatch:
    index = batch.schema.get_field_index(BUCKET.name)
    return batch.set_column(index, batch.schema.field(index), buckets)


def _admit(key_map: KeyMap, columns: Sequence[pa.Array]) -> tuple[np.ndarray, list[pa.Array]]:
    """(the slot of each row's key, the new keys in the order of their slots)."""
    slots = key_map.find(columns)
    new = np.flatnonzero(slots < 0)
    chosen = [column.take(pa.array(new)) for column in columns]
    if not len(new):
        return slots, chosen
    _, first, inverse = np.unique(rows.key_codes(chosen), return_index=True, return_inverse=True)
    distinct = [column.take(pa.array(first)) for column in chosen]
    slots[new] = key_map.add(distinct)[inverse]
    return slots, distinct


def _range(fields: Sequence[Field], keys: Sequence[pa.Array]) -> Expression:
    """A condition that is true for all of these keys: the smallest and largest value of the first column."""
    kind = keys[0].type
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    ):
        return ALWAYS
    ends = pc.min_max(keys[0].cast(pa.int64()) if pa.types.is_timestamp(kind) else keys[0])
    low, high = (plain_values.literal(ends[end].as_py(), fields[0].type) for end in ("min", "max"))
    if not isinstance(low, Literal) or not isinstance(high, Literal):
        return ALWAYS
    column = Column((fields[0].name,))
    return bind(and_(ge(column, low), le(column, high)), tuple(fields))


def _narrowed(task: ReadTask, condition: Expression) -> ReadTask:
    """The rows with such keys; all versions of a row, if rows are merged."""
    both = and_(task.predicate, condition)
    if not isinstance(task, MergeTask):
        return replace(task, predicate=both)
    parts = tuple(replace(part, predicate=and_(part.predicate, condition)) for part in task.parts)
    return replace(task, predicate=both, parts=parts)


def _together(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Batches of about `size` bytes."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(piece.nbytes for piece in waiting) >= size:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)
