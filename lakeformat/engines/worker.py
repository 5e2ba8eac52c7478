"""read(task) and write(batches, task): the one reader and the one writer, whatever engine runs them."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import expression, murmur, transform
from lakeformat.codec.arrow import arrow_schema
from lakeformat.engines import (
    assign,
    casts,
    deletes,
    hash_index,
    key_places,
    key_values,
    merge,
    rows,
    sorting,
    statistics,
)
from lakeformat.engines.formats import FORMATS, opened
from lakeformat.errors import (
    CorruptFile,
    InvalidInput,
    LakeError,
    NoSuchFile,
    OutsideScope,
    StoreError,
    UnsupportedFeature,
)
from lakeformat.model.order import Sort, SortField, ZOrder
from lakeformat.model.partition import PartitionField
from lakeformat.model.predicate import ALWAYS, Call, Column, Expression, and_, columns_of, conjuncts, rename
from lakeformat.model.schema import NO_ID, Field, Kind, ListOf, MapOf, Row, Scalar, Type, find_field, rebuild
from lakeformat.model.work import (
    BUCKET,
    FILE,
    LAST_UPDATED,
    POSITION,
    ROW_ID,
    VALUE_KIND,
    BucketRule,
    ColumnStats,
    Content,
    KeyRange,
    KeyValues,
    MergeSpec,
    Named,
    ReadTask,
    RewriteTask,
    WriteTask,
    WrittenFile,
)
from lakeformat.storage.store import Reader, Store

BATCH_ROWS = 1 << 17  # Rows that travel together.
CHUNK_BYTES = 64 << 20  # Rows of one file that are encoded together: a row group or stripe, by their size in memory.
BUFFER_BYTES = 256 << 20  # Rows that wait, over all files of one write.
OPEN_FILES = 64
_PIECE_MIN = 1 << 16

NAN = float("nan")

_UNKNOWN = Scalar(Kind.UNKNOWN)
_FLOATS = (Scalar(Kind.FLOAT), Scalar(Kind.DOUBLE))


def read(store: Reader, task: ReadTask, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of the task's files that satisfy its predicate, with exactly the columns `task.fields`.

    Columns are found by field id at every depth. Raises `CorruptFile` for a file that is missing, damaged, or holds
    another number of rows than the task says; `UnsupportedFeature` for merge engines and formats that are not known. The
    files of a task that merges are in memory together.
    """
    for name in columns_of(task.predicate):
        find_field(task.fields, name)
    if task.merge is not None:
        yield from _merged(store, task, task.merge, batch_rows)
        return
    for place, path in enumerate(task.paths):
        yield from _read_file(store, task, place, path, batch_rows)


def write(
    store: Store,
    batches: Iterable[pa.RecordBatch],
    task: WriteTask,
    *,
    buffer_bytes: int = BUFFER_BYTES,
    chunk_bytes: int = CHUNK_BYTES,
    open_files: int = OPEN_FILES,
    threads: int = 1,
) -> list[WrittenFile]:
    """Rows to files, split by partition and bucket, each about `task.target_size_bytes` long at most.

    Columns are matched by name; raises `InvalidInput` that names what does not fit. With `task.sort_by`, rows are first put
    in that order, partition by partition, with about `buffer_bytes` of them in memory at a time. Once all rows are there, the
    files left to end are ended by `threads` threads. Files of a write that fails are deleted as far as storage lets.
    """
    files = _Files(store, task, buffer_bytes, chunk_bytes, open_files)
    index, places = (task.keyed.index, task.keyed.places) if task.keyed else (None, None)
    assigner: hash_index.Assigner | key_places.Placer | None = None
    try:
        given = _required(_gathered(batches, task), task)
        if index is not None:
            assigner = hash_index.Assigner(store, task, index)
        elif places is not None:
            assigner = placer = key_places.Placer(task, places, partial(read, store), threads)
            given = placer.settled(given)
        if task.sort_by:
            given = sorting.in_order(given, ordering(task), task.fields, buffer_bytes)
        for batch in given:
            for partition, bucket, group in placed(batch, task):
                if assigner is None:
                    files.add(partition, bucket, group)
                    continue
                for assigned, part in assigner.split(partition, group):
                    files.add(partition, assigned, part)
        written = files.finish(threads)
        return written if assigner is None else written + assigner.finish()
    except BaseException as error:
        files.abandon(error)
        raise


def count(store: Reader, task: ReadTask) -> int:
    """How many rows satisfy the task's predicate; reads only the columns that it speaks of."""
    is_plain = task.predicate == ALWAYS and task.merge is None
    if is_plain and not any(task.deletes):
        return task.row_count
    if is_plain and all(by.content is not Content.EQUALITY_DELETES for each in task.deletes for by in each):
        return sum(
            count - int(np.searchsorted(deletes.positions(store, path, gone), count))
            for path, count, gone in zip(task.paths, task.row_counts, task.deletes, strict=True)
        )
    named = columns_of(task.predicate)
    needed = tuple(each for each in task.fields if each.name in named) or task.fields[:1]
    return sum(batch.num_rows for batch in read(store, replace(task, fields=needed)))


def rewrite(store: Store, task: RewriteTask) -> list[WrittenFile]:
    """Read, change, write again; see `RewriteTask`."""
    written = write(store, _changed(store, task), task.write)
    if task.changelog is None:
        return written
    try:
        return [*written, *write(store, _told(store, task), task.changelog)]
    except BaseException:
        with suppress(LakeError):
            store.delete([file.path for file in written])
        raise


def buckets(keys: pa.RecordBatch, task: WriteTask) -> pa.Array:
    """The bucket of each row by its bucket-key columns, as `write` finds it."""
    rule = task.bucket
    assert rule is not None, task
    fields = tuple(find_field(task.fields, name) for name in rule.columns)
    assign.check(keys.schema, fields)
    return _buckets(assign.assign(keys, fields), rule, fields)


def partition_keys(keys: pa.RecordBatch, task: WriteTask, by: PartitionField) -> pa.Array:
    """For each row of the one column that `by` speaks of, bytes that are the same where the partition is."""
    fields = (find_field(task.fields, by.source),)
    assign.check(keys.schema, fields)
    found = transform.apply(by.transform, assign.assign(keys, fields).column(0), fields[0].type)
    return found if pa.types.is_binary(found.type) else found.cast(pa.string()).cast(pa.binary())


def ordering(task: WriteTask) -> tuple[Sort, ...]:
    """By what a write that sorts puts all of its rows in order: the partitions one after the other."""
    return (*(SortField((each.source,), each.transform) for each in task.partition_by), *task.sort_by)


def order_key(rows: pa.RecordBatch, task: WriteTask, by: Sort) -> pa.Array:
    """What rows of the columns that `by` speaks of are sorted by."""
    fields = tuple(find_field(task.fields, name) for name in rows.schema.names)
    assign.check(rows.schema, fields)
    (found,) = sorting.keys(assign.assign(rows, fields), (by,), fields)
    return found.cast(pa.binary()) if isinstance(by, ZOrder) else found


def stored(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """The columns and parts that files hold: those that are always null they do not."""
    return tuple(_stored(each) for each in fields if each.type != _UNKNOWN)


def columns(batch: pa.RecordBatch, fields: tuple[Field, ...], held: tuple[Field, ...]) -> pa.RecordBatch:
    """The columns `fields` of a batch that `read` gave, which holds `held`: also what only the predicate needed."""
    if fields == held:
        return batch
    found = {each.name: each.type for each in held}
    wanted = [casts.project(batch.column(f.name), found[f.name], f.type, f.name) for f in fields]
    return _record_batch(wanted, arrow_schema(fields), batch.num_rows)


def _stored(field: Field) -> Field:
    if isinstance(field.type, Row):
        return replace(field, type=Row(stored(field.type.fields)))
    return replace(field, type=rebuild(field.type, _stored))


def _table_of(table: pa.Table, fields: tuple[Field, ...], kept: tuple[Field, ...]) -> pa.Table:
    types = {each.id: each.type for each in fields}
    found = [casts.project(table.column(each.name), types[each.id], each.type, each.name) for each in kept]
    return pa.Table.from_arrays(found, schema=arrow_schema(kept))


def _merged(store: Reader, task: ReadTask, spec: MergeSpec, batch_rows: int) -> Iterator[pa.RecordBatch]:
    held = task.parts[0].fields

    def rows_of(parts: Sequence[ReadTask]) -> pa.Table:
        found = (batch for part in parts for batch in read(store, part, batch_rows))
        return pa.Table.from_batches(found, arrow_schema(held))

    def given() -> pa.Table:
        if not task.settled_parts:
            return rows_of(task.parts)
        settled, rest = task.parts[: task.settled_parts], task.parts[task.settled_parts :]
        return pa.concat_tables([merge.last_of_each(rows_of(settled), spec), rows_of(rest)])

    # Nothing but the merge holds the rows, so that it can let go of them.
    for batch in merge.merge_in_batches(given(), spec, batch_rows, VALUE_KIND in task.fields):
        result = columns(batch, task.fields, held)
        if task.predicate != ALWAYS:
            result = rows.keep(result, expression.mask(task.predicate, result))
        if result.num_rows:
            yield result


def _read_file(store: Reader, task: ReadTask, place: int, path: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
    with _blamed(path):
        file = opened(store, path, task.file_format)
        expected = task.row_counts[place]
        if file.row_count is not None and file.row_count != expected:
            raise CorruptFile(f"{path}: the file holds {file.row_count} rows, its table says {expected}")
        held = {each.id: each for each in _fields(file, task)}
        lost = [each.name for each in task.file_fields or () if each.id not in held]
        if lost:
            raise CorruptFile(f"{path}: the table says that the file holds column {lost[0]!r}, and it does not")
        constants = {**dict(task.constants), FILE.id: path, BUCKET.id: task.bucket}
        if task.absent:
            constants |= {id: value for id, value in task.absent[place] if id not in held}
        gone = deletes.of(store, path, task.deletes[place] if task.deletes else ())
        taken = deletes.of(store, path, task.taken_by[place]) if task.taken_by else None
        known_keys = (*gone.keys, *(taken.keys if taken else ()))
        compared = tuple(each for known in known_keys for each in known.fields)
        wanted: dict[int, Field] = {}
        for each in (*task.fields, *compared):
            if each.id in held and each.id not in constants:
                wanted[each.id] = _both(wanted.get(each.id, each), each)
        needed = tuple(_pruned(held[id], each.type) for id, each in wanted.items())
        pushed = _pushed(task, held, constants)
        schema = arrow_schema(task.fields)
        placed = [POSITION] if POSITION in task.fields else []
        seen = 0
        for position, batch in file.batches(needed, pushed, batch_rows):
            seen += batch.num_rows
            if placed:
                places = pa.array(np.arange(position, position + batch.num_rows))
                batch = batch.append_column(POSITION.name, places)
            given = (*needed, *placed)
            if task.lineage:
                batch, given = _descended(batch, given, position, *task.lineage[place])
            keys = [(known, _keys(batch, given, known, constants)) for known in gone.keys]
            if taken is None:
                batch = rows.apply_deletes(batch, position, gone.positions, keys)
            else:
                now = [(known, _keys(batch, given, known, constants)) for known in taken.keys]
                batch = rows.newly_deleted(batch, position, (gone.positions, keys), (taken.positions, now))
            result = _record_batch(_projected(batch, given, task.fields, constants), schema, batch.num_rows)
            if task.predicate != ALWAYS:
                result = rows.keep(result, expression.mask(task.predicate, result))
            if result.num_rows:
                yield result
        if file.row_count is None and pushed is None and seen != expected:
            raise CorruptFile(f"{path}: the file holds {seen} rows, its table says {expected}")


def _fields(file: Any, task: ReadTask) -> tuple[Field, ...]:
    """The columns that the file holds, with their ids: by name, as the file tells, or as the table's mapping of names does."""
    found: tuple[Field, ...] = file.fields(task.file_fields)
    if task.file_fields is not None or not found or any(each.id != NO_ID for each in found):
        return found
    if not task.mapping:
        raise CorruptFile(
            "no column has a field id, and the table does not tell which column is which (schema.name-mapping.default)"
        )
    return identified(found, task.mapping)


def identified(fields: tuple[Field, ...], mapping: tuple[Named, ...]) -> tuple[Field, ...]:
    """The fields that the mapping names, with their ids."""
    known = {name: each for each in mapping for name in each.names}
    return tuple(_with_id(each, known[each.name]) for each in fields if each.name in known)


def _with_id(held: Field, told: Named) -> Field:
    match held.type:
        case Row(parts):
            return replace(held, id=told.id, type=Row(identified(parts, told.parts)))
        case ListOf() | MapOf():
            return replace(held, id=told.id, type=rebuild(held.type, partial(_part, told.parts)))
    return replace(held, id=told.id)


def _part(mapping: tuple[Named, ...], part: Field) -> Field:
    """An element, a key or a value; writers call elements as they like."""
    name = part.name if part.name in ("key", "value") else "element"
    told = next((each for each in mapping if name in each.names), None)
    return part if told is None else _with_id(part, told)


@contextmanager
def _blamed(path: str) -> Iterator[None]:
    """Whatever goes wrong inside is told of `path`; no other library's error leaves."""
    try:
        yield
    except NoSuchFile as error:
        raise CorruptFile(f"{path}: the table lists this file, and it is not there") from error
    except (InvalidInput, CorruptFile, UnsupportedFeature) as error:
        if path in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error
    except (LakeError, MemoryError):
        raise
    except Exception as error:
        raise CorruptFile(f"{path}: cannot be read: {error}") from error


def _descended(
    batch: pa.RecordBatch, given: tuple[Field, ...], position: int, first_id: int | None, updated: int
) -> tuple[pa.RecordBatch, tuple[Field, ...]]:
    """A file's rows with `ROW_ID` and `LAST_UPDATED`: what its columns say, else what follows from where a row lies."""
    held = {part.id: part for part in given}
    count = batch.num_rows
    for each, told in (
        (ROW_ID, np.arange(count) + position + (first_id or 0)),
        (LAST_UPDATED, np.full(count, updated)),
    ):
        values = casts.nulls(count, pa.int64()) if first_id is None else pa.array(told)
        if each.id in held:
            place = batch.schema.get_field_index(held[each.id].name)
            batch = batch.set_column(place, held[each.id].name, pc.coalesce(batch.column(place), values))
        else:
            batch = batch.append_column(each.name, values)
            given = (*given, each)
    return batch, given


def _projected(
    batch: pa.RecordBatch, given: tuple[Field, ...], fields: tuple[Field, ...], constants: Mapping[int, Any]
) -> list[pa.Array]:
    """The columns `fields` of a file's rows, which have the columns `given`; the initial default or null for one that the file does not
    hold."""
    names = {each.id: each for each in given}
    found = []
    for each in fields:
        if each.id in constants:
            found.append(casts.constant(constants[each.id], each.type, batch.num_rows))
        elif each.id in names:
            held = names[each.id]
            found.append(casts.project(batch.column(held.name), held.type, each.type, each.name))
        else:
            found.append(casts.initial(each, batch.num_rows))
    return found


def _keys(
    batch: pa.RecordBatch, given: tuple[Field, ...], known: rows.KeySet, constants: Mapping[int, Any]
) -> list[pa.Array]:
    """The values of a file's rows that are looked up in `known`."""
    return [casts.innermost(each) for each in _projected(batch, given, known.fields, constants)]


def _both(one: Field, other: Field) -> Field:
    """A column with the parts that either asks for."""
    if not isinstance(one.type, Row) or not isinstance(other.type, Row):
        return one
    parts = {each.id: each for each in one.type.fields}
    for each in other.type.fields:
        parts[each.id] = _both(parts.get(each.id, each), each)
    return replace(one, type=Row(tuple(parts.values())))


def _pruned(held: Field, wanted: Type) -> Field:
    """A file's column without the parts that nobody asks for."""
    return Field(held.id, held.name, _pruned_type(held.type, wanted), held.nullable)


def _pruned_type(held: Type, wanted: Type) -> Type:
    match held, wanted:
        case Row(parts), Row(asked):
            types = {each.id: each.type for each in asked}
            kept = tuple(_pruned(part, types[part.id]) for part in parts if part.id in types)
            return Row(kept or parts[:1])  # Some part must be read to tell which rows are null.
        case ListOf(element), ListOf(asked_element):
            return ListOf(_pruned(element, asked_element.type))
        case MapOf(key, value), MapOf(asked_key, asked_value):
            return MapOf(_pruned(key, asked_key.type), _pruned(value, asked_value.type))
    return held


def _pushed(task: ReadTask, held: dict[int, Field], constants: dict[int, Any]) -> pc.Expression | None:
    """What of the predicate a file's own statistics can decide, in the file's names; None for nothing."""
    same = {}
    for each in task.fields:
        found = held.get(each.id)
        if found is not None and each.id not in constants and isinstance(each.type, Scalar) and found.type == each.type:
            same[each.name] = found
    kept = [each for each in conjuncts(task.predicate) if columns_of(each) <= same.keys() and _bounded(each, same)]
    if not kept:
        return None
    renamed = rename(and_(*kept), {name: held.name for name, held in same.items()})
    return expression.to_dataset_filter(renamed, tuple(same.values()))


def _bounded(condition: Expression, fields: dict[str, Field]) -> bool:
    """Whether bounds decide it: not where a NaN, above all numbers and in no bounds, could satisfy it."""
    if all(fields[name].type not in _FLOATS for name in columns_of(condition)):
        return True
    return isinstance(condition, Call) and condition.name in ("eq", "in") and isinstance(condition.arguments[0], Column)


def _record_batch(columns: list[pa.Array], schema: pa.Schema, length: int) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), length, [None]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _changed(store: Store, task: RewriteTask) -> Iterator[pa.RecordBatch]:
    for each in task.read:
        for batch in read(store, each):
            if task.assignments:
                before, batch = batch, _assigned(batch, task, each.fields)
                if task.write.keyed is not None and task.write.keyed.places is not None:
                    batch = key_places.moved(before, batch, task.write.keyed.places, task.write.keyed)
            if task.delete_where is not None:
                batch = rows.keep(batch, pc.invert(expression.mask(task.delete_where, batch)))
            yield batch


def _told(store: Store, task: RewriteTask) -> Iterator[pa.RecordBatch]:
    """What became of the rows there were, section by section."""
    for each, earlier in zip(task.read, task.before, strict=True):
        assert each.merge is not None, each
        schema = arrow_schema(each.fields)
        after, before = (
            pa.Table.from_batches([] if one is None else list(read(store, one)), schema) for one in (each, earlier)
        )
        yield from merge.difference(before, after, each.merge, task.compared).to_batches(BATCH_ROWS)


def _assigned(batch: pa.RecordBatch, task: RewriteTask, fields: tuple[Field, ...]) -> pa.RecordBatch:
    """`batch` with the assignments made where `update_where` is true; all of them see the old row."""
    mask = expression.mask(task.update_where, batch)
    if not pc.any(mask, min_count=0).as_py():
        return batch
    chosen = batch.filter(mask)
    places = pc.if_else(mask, pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1), None)
    columns = list(batch.columns)
    for name, value in task.assignments:
        field = find_field(fields, name)
        new = pa.RecordBatch.from_arrays([casts.flat(expression.evaluate(value, chosen))], names=[name])
        assign.check(new.schema, (field,))
        new = assign.assign(new, (field,)).column(0)
        index = batch.schema.get_field_index(name)
        both = pa.concat_arrays([columns[index], new])
        own = pa.array(np.arange(batch.num_rows), pa.int64())
        columns[index] = both.take(pc.coalesce(pc.add(places, batch.num_rows), own))
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _gathered(batches: Iterable[pa.RecordBatch], task: WriteTask) -> Iterator[pa.RecordBatch]:
    """Rows as the table declares them, in batches big enough to be worth splitting."""
    fields = key_values.given(task)
    checked: pa.Schema | None = None
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if batch.schema is not checked and batch.schema != checked:
            assign.check(batch.schema, fields)
        checked = batch.schema
        for start in range(0, batch.num_rows, BATCH_ROWS):
            piece = key_values.with_kinds(assign.assign(batch.slice(start, BATCH_ROWS), fields), task)
            waiting.append(piece)
            count += piece.num_rows
            size += piece.nbytes
            if count >= BATCH_ROWS // 2 or size >= CHUNK_BYTES:
                yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
                waiting, count, size = [], 0, 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)


def _required(batches: Iterable[pa.RecordBatch], task: WriteTask) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        require(batch, task)
        yield batch


def require(batch: pa.RecordBatch, task: WriteTask) -> None:
    """Raise `OutsideScope` for rows for which `task.required` is not true."""
    if task.required == ALWAYS:
        return
    outside = rows.keep(batch, pc.invert(expression.mask(task.required, batch)))
    if outside.num_rows:
        named = [name for name in outside.schema.names if name in columns_of(task.required)]
        found = outside.select(named).slice(0, 1000).to_pylist()
        shown = list(dict.fromkeys(str(row) for row in found))[:5]
        raise OutsideScope(
            f"{outside.num_rows} rows lie outside what is overwritten, e.g. {', '.join(shown)}; nothing was committed. "
            f"Leave these rows out, or declare their partitions too"
        )


def placed(batch: pa.RecordBatch, task: WriteTask) -> Iterator[tuple[tuple[Any, ...], int | None, pa.RecordBatch]]:
    """The rows of each partition and bucket."""
    keys = []
    for each in task.partition_by:
        keys.append(
            transform.apply(each.transform, batch.column(each.source), find_field(task.fields, each.source).type)
        )
    if task.bucket is not None:
        keys.append(_buckets(batch, task.bucket, task.fields))
    for values, group in rows.split(batch, keys):
        found = [partition_value(value) for value in values]
        bucket = found.pop() if task.bucket is not None else None
        yield tuple(found), bucket, group


def _buckets(batch: pa.RecordBatch, rule: BucketRule, fields: tuple[Field, ...]) -> pa.Array:
    types = [find_field(fields, name).type for name in rule.columns]
    columns = [batch.column(name) for name in rule.columns]
    return pa.array(murmur.buckets(columns, types, rule.count, rule.function), pa.int32())


def partition_value(scalar: pa.Scalar) -> Any:
    """A partition's value as `WrittenFile` tells it; one NaN stands for all. Raises `InvalidInput` for one that Python lacks."""
    if pa.types.is_timestamp(scalar.type):
        return scalar.value
    try:
        value = scalar.as_py()
    except OverflowError as error:
        raise InvalidInput(
            f"a partition of {scalar.type} {scalar.value} (days since 1970): it must lie in the years 1 to 9999"
        ) from error
    return NAN if value != value else value


class _Sink:
    """What format libraries write to: they cannot close the file under it, nor write to one that was given up."""

    mode, closed = "wb", False

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._given_up, self._size = file, False, 0

    def write(self, content: Any) -> int:
        with memoryview(content) as view:
            size = view.nbytes
        if not self._given_up:
            self._file.write(content)
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def finish(self) -> None:
        self._file.close()

    def give_up(self, error: BaseException) -> None:
        self._given_up = True
        self._file.__exit__(type(error), error, error.__traceback__)


@dataclass(slots=True)
class _Open:
    """A file being written."""

    path: str
    sink: _Sink
    output: Any
    row_count: int = 0
    added_bytes: int = 0  # In memory.
    keys: KeyRange | None = None


@dataclass(slots=True)
class _Place:
    """One partition and bucket: rows that wait, and the file they go to."""

    partition: tuple[Any, ...]
    bucket: int | None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    file: _Open | None = None
    next_number: int = 0  # Of a row of a keyed table.


class _Files:
    """The files of one write. Rows wait in memory up to `buffer_bytes`; then the place with the most is written out."""

    def __init__(self, store: Store, task: WriteTask, buffer_bytes: int, chunk_bytes: int, open_files: int) -> None:
        if task.file_format not in FORMATS:
            raise UnsupportedFeature(
                f"file format {task.file_format!r} cannot be written; known are {', '.join(FORMATS)}"
            )
        self._store, self._task, self._format = store, task, FORMATS[task.file_format]
        self._schema = arrow_schema(key_values.waiting(task))
        # A file as formats write it: of a keyed table, with all of its columns.
        self._file_task = task if task.keyed is None else replace(task, fields=task.keyed.fields)
        held = stored(self._file_task.fields)
        self._leaves_out = held != self._file_task.fields
        self._file_task = replace(self._file_task, fields=held)
        # Rows that wait for a file of their own, which is sorted as a whole and written in one go.
        self._is_whole = task.keyed is not None and not task.keyed.is_numbered
        self._buffer_bytes, self._open_files = buffer_bytes, open_files
        # Other files are written in pieces small enough to stop near the target size.
        chunk_bytes = min(chunk_bytes, _whole_number(task.options, self._format.PIECE_OPTION, chunk_bytes))
        self._chunk_bytes = min(2 * task.target_size_bytes if self._is_whole else chunk_bytes, buffer_bytes)
        self._places: dict[tuple[tuple[Any, ...], int | None], _Place] = {}
        self._open: OrderedDict[int, _Place] = OrderedDict()  # By use, oldest first.
        self._waiting_bytes = 0
        self._name = str(uuid.uuid4())
        self._numbers = itertools.count(task.first_number)
        self._ending = False
        self._written: list[WrittenFile] = []

    def add(self, partition: tuple[Any, ...], bucket: int | None, group: pa.RecordBatch) -> None:
        place = self._places.get((partition, bucket))
        if place is None:
            place = self._places[partition, bucket] = _Place(partition, bucket)
            keyed = self._task.keyed
            if keyed is not None and not keyed.is_numbered:
                assert keyed.first is not None, self._task
                place.next_number = keyed.first.get(self._task.directory(partition, self._bucket(place)), 0)
        start, row_bytes = 0, max(1.0, group.nbytes / group.num_rows)
        while start < group.num_rows:
            room = self._piece_bytes(place) - place.waiting_bytes
            piece = group.slice(start, max(1, int(room / row_bytes)))
            start += piece.num_rows
            size = int(piece.num_rows * row_bytes)
            place.waiting.append(piece)
            place.waiting_bytes += size
            self._waiting_bytes += size
            if size >= room:
                self._flush(place)
        while self._waiting_bytes > self._buffer_bytes:
            self._flush(max(self._places.values(), key=lambda each: each.waiting_bytes))

    def finish(self, threads: int) -> list[WrittenFile]:
        """End all files; they come in the order in which their partitions and buckets came."""
        places = list(self._places.values())
        if threads == 1 or len(places) < 2:
            for place in places:
                self._end(place)
        else:
            self._ending = True
            with ThreadPoolExecutor(threads, "write") as pool:
                list(pool.map(self._end, places))
        order = {(each.partition, self._bucket(each)): at for at, each in enumerate(places)}
        return sorted(self._written, key=lambda each: order[each.partition, each.bucket])

    def abandon(self, error: BaseException) -> None:
        for place in self._open.values():
            if place.file is not None:
                place.file.output.give_up()
                with suppress(Exception):
                    place.file.sink.give_up(error)
        with suppress(LakeError):
            self._store.delete([each.path for each in self._written])

    def _end(self, place: _Place) -> None:
        self._flush(place)
        self._close(place)

    def _bucket(self, place: _Place) -> int:
        return self._task.default_bucket if place.bucket is None else place.bucket

    def _piece_bytes(self, place: _Place) -> int:
        """How many bytes in memory are written next: a chunk, or what is left of the file's size."""
        file = place.file
        if self._is_whole:
            return self._chunk_bytes
        if file is None or not file.added_bytes:
            return max(_PIECE_MIN, min(self._chunk_bytes, self._task.target_size_bytes))
        size = file.output.size()
        left = (self._task.target_size_bytes - size) * file.added_bytes / max(1, size)
        return max(_PIECE_MIN, min(self._chunk_bytes, int(left)))

    def _flush(self, place: _Place) -> None:
        """Write the rows that wait, and end the file if it is long enough."""
        if not place.waiting:
            return
        table = pa.Table.from_batches(place.waiting, self._schema)
        keyed = self._task.keyed
        if keyed is not None:
            number, place.next_number = place.next_number, place.next_number + table.num_rows
            came, table = table, key_values.stand(table, keyed, number)
            if keyed.changelog_prefix is not None and not keyed.is_numbered:
                self._log(place, key_values.changelog(came, keyed, number), keyed)
        waited_bytes = place.waiting_bytes
        self._waiting_bytes -= waited_bytes
        place.waiting, place.waiting_bytes = [], 0
        if not table.num_rows:  # A merge may leave nothing.
            return
        file = place.file or self._start(place)
        if keyed is not None:
            file.keys = key_values.joined(file.keys, key_values.key_range(table, keyed))
        file.row_count += table.num_rows
        file.added_bytes += waited_bytes
        self._open.move_to_end(id(place))
        if self._leaves_out:
            table = _table_of(table, self._task.fields, self._file_task.fields)
        with _unwritable(file.path):
            file.output.add(table)
        if self._is_whole or file.output.size() >= self._task.target_size_bytes:
            self._close(place)

    def _log(self, place: _Place, table: pa.Table, keyed: KeyValues) -> None:
        """Write rows as they came to a file of their own."""
        if not table.num_rows:
            return
        side = _Place(place.partition, place.bucket)
        file = self._start(side, keyed.changelog_prefix)
        file.keys, file.row_count = key_values.key_range(table, keyed), table.num_rows
        with _unwritable(file.path):
            file.output.add(table)
        self._close(side, Content.CHANGELOG)

    def _start(self, place: _Place, prefix: str | None = None) -> _Open:
        # Threads that end files hold one each for a moment; none may close the file of another.
        while not self._ending and len(self._open) >= self._open_files:
            self._close(next(iter(self._open.values())))
        folder = self._task.directory(place.partition, self._bucket(place))
        number = self._task.name_suffix.format(next(self._numbers))
        name = f"{prefix or self._task.name_prefix}{self._name}{number}.{self._task.file_format}"
        path = f"{folder}/{name}" if folder else name
        sink = _Sink(self._store.create_stream(path))
        with _unwritable(path):
            try:
                place.file = _Open(path, sink, self._format.Output(sink, self._file_task))
            except BaseException as error:
                sink.give_up(error)
                raise
        self._open[id(place)] = place
        return place.file

    def _close(self, place: _Place, content: Content | None = None) -> None:
        file = place.file
        if file is None:
            return
        with _unwritable(file.path):
            stats, offsets = file.output.close()
            size = file.sink.tell()
            file.sink.finish()
        place.file = None
        del self._open[id(place)]
        self._written.append(
            WrittenFile(
                path=file.path,
                partition=place.partition,
                row_count=file.row_count,
                size_bytes=size,
                bucket=self._bucket(place),
                content=content or self._task.content,
                file_format=self._task.file_format,
                stats=self._trimmed(stats),
                split_offsets=offsets,
                created_ms=int(time.time() * 1000),
                keys=file.keys,
                sort_order_id=self._task.sort_order_id,
            )
        )

    def _trimmed(self, stats: Mapping[int, ColumnStats]) -> dict[int, ColumnStats]:
        """What the table keeps of its columns' statistics; of its keys all."""
        kept = statistics.trim(stats, self._task.fields, self._task.stats)
        keyed = self._task.keyed
        return kept if keyed is None else {**kept, **{f.id: stats[f.id] for f in keyed.key_fields}}


def _whole_number(options: Mapping[str, str], name: str | None, default: int) -> int:
    given = options.get(name) if name else None
    if given is None:
        return default
    if not given.strip().isdigit():
        raise InvalidInput(f"option {name!r} is a number of bytes, not {given!r}")
    return int(given)


@contextmanager
def _unwritable(path: str) -> Iterator[None]:
    """Whatever goes wrong inside is told of `path`; no other library's error leaves."""
    try:
        yield
    except (LakeError, MemoryError):
        raise
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    except Exception as error:
        raise InvalidInput(f"{path}: rows cannot be written: {error}") from error
