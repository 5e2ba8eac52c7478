"""read(task) and write(batches, task): the one reader and the one writer, used by every engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts, murmur
from lakeformat.codec.arrow import arrow_schema
from lakeformat.codec.latest import latest
from lakeformat.engines import ahead, written
from lakeformat.engines.files import blob
from lakeformat.engines.files.formats import blamed, opened
from lakeformat.engines.kernels import assign, casts, rows, sorting, unique
from lakeformat.engines.keyed import hash_index, key_places, key_values, merge
from lakeformat.engines.row_level import deletes
from lakeformat.engines.written import Copied
from lakeformat.errors import (
    CorruptFile,
    InvalidInput,
    LakeError,
    OutsideScope,
    UnsupportedFeature,
)
from lakeformat.expression import evaluation, pruning, transform
from lakeformat.model import nanoseconds
from lakeformat.model.partition import Curve, PartitionField, Sort, SortField
from lakeformat.model.predicate import ALWAYS, Call, Column, Expression, and_, columns_of, conjuncts, rename
from lakeformat.model.schema import (
    NO_ID,
    Field,
    Kind,
    ListOf,
    MapOf,
    MultisetOf,
    Row,
    Scalar,
    Type,
    children,
    find_field,
    rebuild,
    walk,
)
from lakeformat.model.work import (
    BUCKET,
    CHANGED,
    FILE,
    LAST_UPDATED,
    POSITION,
    ROW_ID,
    VALUE_KIND,
    BlobTask,
    BucketRule,
    Content,
    FilesTask,
    MergeTask,
    Named,
    ReadTask,
    RewriteTask,
    WriteTask,
    WrittenFile,
    paths_of,
)
from lakeformat.storage.store import Reader, Store

BATCH_ROWS = 1 << 17  # Rows per batch.
_COPIED_BYTES = 4 << 20  # Stored bytes of a row group from which on compaction copies it unchanged.

NAN = float("nan")

_CHECKING = 4  # Files whose pages are checked at the same time.

_FLOATS = (Scalar(Kind.FLOAT), Scalar(Kind.DOUBLE))
_FORMED = (Kind.VARIANT, Kind.UNKNOWN)  # Have several forms in files, or none.


def read(store: Reader, task: ReadTask | BlobTask, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of the task's files that satisfy its predicate, with exactly the columns `task.fields`.

    Columns are found by field id at every depth. Raises `CorruptFile` for a file that is missing, damaged, or has
    another number of rows than the task says; `UnsupportedFeature` for unknown merge engines and formats. The files of
    a task that merges are in memory together.
    """
    if isinstance(task, BlobTask):
        yield from blob.read(store, task, [_blobs(store, path) for path in task.paths], batch_rows)
        return
    for name in columns_of(task.predicate):
        find_field(task.fields, name)
    if isinstance(task, MergeTask):
        yield from _merged(store, task, batch_rows)
        return
    store = _with_deletes(store, task)
    for index, file in enumerate(store.several(partial(_open, store, task), range(len(task.paths)))):
        yield from _read_file(store, task, index, file, batch_rows)


def parts(
    store: Reader, task: ReadTask, fields: tuple[Field, ...] | None = None
) -> Iterator[Callable[[], Iterator[pa.RecordBatch]]]:
    """`read` in parts, in order, each of which another thread may read: files, and runs of row groups of large ones. A
    file is opened when its part is requested. `fields`: those of the task's columns to return."""
    for part in _parts(store, task):
        yield part if fields is None or fields == task.fields else partial(_chosen, part, fields, task.fields)


def write(
    store: Store,
    batches: Iterable[pa.RecordBatch | Copied],
    task: WriteTask,
    *,
    buffer_bytes: int = written.BUFFER_BYTES,
    chunk_bytes: int = written.CHUNK_BYTES,
    threads: int = 1,
) -> list[WrittenFile]:
    """Write rows to files, split by partition and bucket, each of about `task.target_size_bytes`.

    Columns are matched by name; raises `InvalidInput` for a misfit. With `task.unique`, rows are first sorted by these
    columns if they have more than `buffer_bytes`; with `task.sort_by`, rows are sorted, partition by partition, with
    about `buffer_bytes` of them in memory at a time. On `threads` threads rows are split,
    and at the end the remaining files closed. After an error the files are deleted as far as possible.
    """
    output = written.Files(store, task, buffer_bytes, chunk_bytes, threads)
    index, places = (task.keyed.index, task.keyed.places) if task.keyed else (None, None)
    assigner: hash_index.Assigner | key_places.Placer | None = None
    try:
        prepared = _required(_gathered(batches, task), task)
        if task.unique:
            prepared = unique.last_rows(prepared, task.unique, task.fields, buffer_bytes)
        if index is not None:
            assigner = hash_index.Assigner(store, task, index)
        elif places is not None:
            assigner = placer = key_places.Placer(task, places, partial(read, store), threads)
            prepared = placer.settled(prepared)
        if task.sort_by:
            prepared = sorting.in_order(prepared, ordering(task), task.fields, buffer_bytes)
        for item in ahead.read((partial(_split, batch, task) for batch in prepared), threads):
            if isinstance(item, Copied):
                output.copy(item)
                continue
            partition, bucket, group = item
            if assigner is None:
                output.add(partition, bucket, group)
                continue
            for assigned, part in assigner.split(partition, group):
                output.add(partition, assigned, part)
        files = output.finish()
        return files if assigner is None else files + assigner.finish()
    except BaseException as error:
        output.abandon(error)
        raise


def parts_or_copies(
    store: Reader,
    task: ReadTask,
    into: WriteTask,
    touches: Callable[[pa.Table, int, int], bool] | None = None,
    named: frozenset[str] = frozenset(),
    least_bytes: int = 0,
) -> Iterator[Callable[[], Iterator[pa.RecordBatch | Copied]]]:
    """As `parts`, but row groups of at least `least_bytes` that can be copied unchanged to files of `into` are returned
    as such: those without a changed row by `touches`, which gets their rows (with the columns `named`), the position of
    the first, and their number."""
    if isinstance(task, MergeTask) or not (_is_copyable(task, into) and into.partition is None):
        yield from parts(store, task)
        return
    for index, file in enumerate(store.several(partial(_open, store, task), range(len(task.paths)))):
        yield partial(_groups_or_copies, store, task, index, file, into, touches, named, least_bytes)


def needs_rows(task: ReadTask) -> bool:
    """Whether `count` reads rows, for a condition, merging or equality deletes, and not only delete positions."""
    if isinstance(task, MergeTask) or task.predicate != ALWAYS or not task.row_counts:
        return True
    return any(by.content is Content.EQUALITY_DELETES for delete in task.deletes for by in delete)


def count(store: Reader, task: ReadTask) -> int:
    """The number of rows that satisfy the task's predicate; reads only the columns in it."""
    return sum(count for part in counts(store, task) for _, count in part())


def counts(store: Reader, task: ReadTask, number: int = 0) -> Iterator[Callable[[], Iterator[tuple[int, int]]]]:
    """`count` in parts, as `parts` has them, each beside the task's `number`."""
    if isinstance(task, FilesTask) and not needs_rows(task):
        yield partial(_counted, number, partial(_counts_of_files, store, task))
        return
    named = columns_of(task.predicate)
    needed = tuple(field for field in task.fields if field.name in named) or task.fields[:1]
    for part in parts(store, replace(task, fields=needed)):
        yield partial(_counted, number, partial(_row_counts, part))


def row_groups(store: Reader, task: FilesTask) -> list[tuple[int, int]]:
    """For each Parquet file of a task without merging, (the number of row groups that `read` reads, the number of row
    groups)."""
    groups = []
    for index, path in enumerate(task.paths):
        with blamed(path):
            file = _open(store, task, index)
            groups.append(file.row_groups(_pushed(task, *_fields_and_constants(file, task, index, path))))
    return groups


def plain_columns(
    store: Reader, task: ReadTask, fields: tuple[Field, ...], whole: Sequence[Collection[str]] = ()
) -> list[tuple[tuple[str, ...], frozenset[str]]] | None:
    """For each file of a task the file's names of the columns `fields`, and which of them are known to have no NaN, if
    a plain Parquet reader gets the same rows from it as `read` before its predicate: whole files without damaged pages.
    None otherwise. `whole`: for each file the columns whose pages the caller knows to be undamaged."""
    if (
        isinstance(task, MergeTask)
        or task.file_format != "parquet"
        or any(task.keys)
        or any(task.deletes)
        or any(task.taken_by)
        or any(task.beside)
        or task.lineage
        or not all(field in task.fields and field.id not in task.far_as_null for field in fields)
    ):
        return None
    plain = []
    for names in store.several(partial(_plain_columns, store, task, fields, whole), range(len(task.paths)), _CHECKING):
        if names is None:
            return None
        plain.append(names)
    return plain


def rewrite(store: Store, task: RewriteTask, threads: int = 1) -> list[WrittenFile]:
    """Read, change and rewrite, on `threads` threads; see `RewriteTask`."""
    files = write(store, ahead.read(_changed(store, task), threads), task.write, threads=threads)
    if task.changelog is None:
        return files
    try:
        return [*files, *write(store, _changelog(store, task), task.changelog)]
    except BaseException:
        with suppress(LakeError):
            store.delete(paths_of(files))
        raise


def buckets(keys: pa.RecordBatch, task: WriteTask) -> pa.Array:
    """The bucket of each row by its bucket-key columns, as computed by `write`."""
    rule = task.bucket
    assert rule is not None, task
    fields = tuple(find_field(task.fields, name) for name in rule.columns)
    assign.check(keys.schema, fields)
    return _buckets(assign.assign(keys, fields), rule, fields)


def partition_keys(keys: pa.RecordBatch, task: WriteTask, by: PartitionField) -> pa.Array:
    """For each row of `by`'s source column, bytes that are equal if the partition is."""
    fields = (find_field(task.fields, by.source),)
    assign.check(keys.schema, fields)
    values = transform.apply(by.transform, assign.assign(keys, fields).column(0), fields[0].type)
    return values if pa.types.is_binary(values.type) else values.cast(pa.string()).cast(pa.binary())


def ordering(task: WriteTask) -> tuple[Sort, ...]:
    """The sort order of a write: the partitions, then the table's or requested order."""
    return (*(SortField((by.source,), by.transform) for by in task.partition_by), *task.sort_by)


def order_key(rows: pa.RecordBatch, task: WriteTask, by: Sort) -> pa.Array:
    """The sort keys of rows of the columns in `by`."""
    fields = tuple(find_field(task.fields, name) for name in rows.schema.names)
    assign.check(rows.schema, fields)
    (key,) = sorting.keys(assign.assign(rows, fields), (by,), fields)
    return key.cast(pa.binary()) if isinstance(by, Curve) else key


def columns(batch: pa.RecordBatch, fields: tuple[Field, ...], batch_fields: tuple[Field, ...]) -> pa.RecordBatch:
    """The columns `fields` of a batch that `read` returned, which has `batch_fields`: also those that only the
    predicate needed."""
    if fields == batch_fields:
        return batch
    types = {batch_field.name: batch_field.type for batch_field in batch_fields}
    wanted = [casts.project(batch.column(f.name), types[f.name], f.type, f.name) for f in fields]
    return _record_batch(wanted, arrow_schema(fields), batch.num_rows)


def _plain_columns(
    store: Reader, task: FilesTask, fields: tuple[Field, ...], whole: Sequence[Collection[str]], index: int
) -> tuple[tuple[str, ...], frozenset[str]] | None:
    path = task.paths[index]
    with blamed(path):
        file = opened(store, path, task.file_format)
        in_file, constants = _fields_and_constants(file, task, index, path)
        _require_whole(file, task, index, path, in_file)
        if any(field.id not in in_file or field.id in constants for field in fields):
            return None
        names = tuple(in_file[field.id].name for field in fields)
        kept, total = file.row_groups(_pushed(task, in_file, constants))
        if kept < total or not file.is_plain(dict(zip(names, fields, strict=True))):
            return None
        file.check_pages([name for name in names if not whole or name not in whole[index]])
        return names, file.without_nan(names)


def _merged(store: Reader, task: MergeTask, batch_rows: int) -> Iterator[pa.RecordBatch]:
    fields, spec = task.parts[0].fields, task.merge

    def rows_of(parts: Sequence[ReadTask]) -> pa.Table:
        batches = store.several(lambda part: list(read(store, part, batch_rows)), parts)
        return pa.Table.from_batches(chain.from_iterable(batches), arrow_schema(fields))

    def merge_input() -> pa.Table:
        if not task.settled_parts:
            return rows_of(task.parts)
        settled, rest = task.parts[: task.settled_parts], task.parts[task.settled_parts :]
        return pa.concat_tables([merge.last_of_each(rows_of(settled), spec), rows_of(rest)])

    # Only the merge refers to the rows, so that it can release them.
    unasked = {field.name for field in fields} - {field.name for field in task.fields}
    for batch in merge.merge_in_batches(merge_input(), spec, batch_rows, VALUE_KIND in task.fields, unasked):
        result = columns(batch, task.fields, fields)
        if task.predicate != ALWAYS:
            result = rows.keep(result, evaluation.mask(task.predicate, result))
        if result.num_rows:
            yield result


def _parts(store: Reader, task: ReadTask) -> Iterator[Callable[[], Iterator[pa.RecordBatch]]]:
    if isinstance(task, MergeTask):
        yield partial(read, store, task)
        return
    for name in columns_of(task.predicate):
        find_field(task.fields, name)
    store = _with_deletes(store, task)
    for index, file in enumerate(store.several(partial(_open, store, task), range(len(task.paths)))):
        runs = [] if task.file_format != "parquet" or any(task.beside) else file.runs_of_groups
        if len(runs) < 2:
            yield partial(_read_file, store, task, index, file, BATCH_ROWS)
        else:
            yield from (partial(_read_file, store, task, index, file.apart(), BATCH_ROWS, groups) for groups in runs)


def _with_deletes(store: Reader, task: FilesTask) -> Reader:
    """The storage with the task's delete files, each of which is read once."""
    files = dict.fromkeys(chain.from_iterable((*task.deletes, *task.taken_by)))
    return deletes.load(store, files) if files else store


def _chosen(
    part: Callable[[], Iterator[pa.RecordBatch]], fields: tuple[Field, ...], part_fields: tuple[Field, ...]
) -> Iterator[pa.RecordBatch]:
    for batch in part():
        yield columns(batch, fields, part_fields)


def _counted(number: int, row_counts: Callable[[], Iterator[int]]) -> Iterator[tuple[int, int]]:
    yield number, sum(row_counts())


def _row_counts(part: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[int]:
    return (batch.num_rows for batch in part())


def _counts_of_files(store: Reader, task: FilesTask) -> Iterator[int]:
    """The number of rows of each file that its positional deletes leave."""
    if not any(task.deletes):
        yield from task.row_counts
        return
    store = deletes.load(store, dict.fromkeys(chain.from_iterable(task.deletes)))
    for path, count, delete_files in zip(task.paths, task.row_counts, task.deletes, strict=True):
        yield count - int(np.searchsorted(deletes.positions(store, path, delete_files), count))


def _open(store: Reader, task: FilesTask, index: int) -> Any:
    with blamed(task.paths[index]):
        key = task.keys[index] if task.keys else None
        return opened(store, task.paths[index], task.file_format, task.text_options, key)


def _blobs(store: Reader, path: str) -> blob.File:
    with blamed(path):
        return blob.File(store.open(path), path)


def _is_copyable(task: FilesTask, into: WriteTask) -> bool:
    """Whether the rows of the task's files are the same in files of `into`, and no delete or index applies to them."""
    as_stored = not (task.lineage or task.far_as_null or task.constants or task.predicate != ALWAYS)
    alone = not (any(task.deletes) or any(task.taken_by) or any(task.beside) or any(task.keys))
    made_of_rows = into.keyed or into.sort_by or into.columns or into.file_indexes or into.required != ALWAYS
    same = _named(task.fields) == _named(into.fields)
    return (
        as_stored and alone and same and not made_of_rows and task.file_format == into.encoding.file_format == "parquet"
    )


def _groups_or_copies(
    store: Reader,
    task: FilesTask,
    index: int,
    file: Any,
    into: WriteTask,
    touches: Callable[[pa.Table, int, int], bool] | None,
    named: frozenset[str],
    least_bytes: int,
) -> Iterator[pa.RecordBatch | Copied]:
    with blamed(task.paths[index]):
        counts = file.group_rows
        # Of a single row group that is looked into, some row is changed.
        copyable = [] if touches is not None and len(counts) == 1 else file.copyable(into, least_bytes)
        copyable = copyable if _stands_as(file, task) else []
    start = 0
    for group, count in enumerate(counts):
        copied = None
        if group in copyable and count:
            reading = partial(_columns_of_group, store, task, index, file, group)
            if touches is None or not touches(reading(named), start, count):
                copied = _copied(reading, file, group, into)
        if copied is not None:
            yield copied
        elif copyable:
            yield from _read_file(store, task, index, file, BATCH_ROWS, [group])
        start += count
    if not copyable:
        yield from _read_file(store, task, index, file, BATCH_ROWS)


def _stands_as(file: Any, task: FilesTask) -> bool:
    """Whether the file's columns are the table's; `File.copyable` has checked that they are stored alike."""
    file_fields = fields_of(file, task)
    if task.file_fields is None:
        return _named(file_fields) == _named(task.fields)
    return file_fields == tuple(field for field in task.fields if field.id != POSITION.id)


def _named(fields: Iterable[Field]) -> list[tuple[int, str]]:
    """The file's columns that are in `fields`."""
    return [(field.id, field.name) for field in fields if field.id != POSITION.id]


def _columns_of_group(
    store: Reader, task: FilesTask, index: int, file: Any, group: int, named: frozenset[str]
) -> pa.Table:
    fields = tuple(field for field in task.fields if field.name in named)
    rows = _read_file(store, replace(task, fields=fields), index, file, BATCH_ROWS, [group]) if fields else ()
    return pa.Table.from_batches(rows, arrow_schema(fields))


def _copied(reading: Callable[[frozenset[str]], pa.Table], file: Any, group: int, into: WriteTask) -> Copied | None:
    """A row group as it is stored; None if its rows are of several partitions or buckets."""
    placing = {by.source for by in into.partition_by} | set(into.bucket.columns if into.bucket else ())
    lacking = {column.name for column in file.lacking(group, into)}
    rows = reading(frozenset(placing | lacking))
    homes: list[tuple[tuple[Any, ...], int | None]] = [((), None)]
    if placing:
        pieces = (placed(batch, into) for batch in rows.to_batches())
        homes = list(dict.fromkeys((partition, bucket) for piece in pieces for partition, bucket, _ in piece))
    if len(homes) != 1:
        return None
    stored = file.stored(group, into, rows.select([name for name in rows.column_names if name in lacking]))
    return None if stored is None else Copied(*homes[0], stored)


def _read_file(
    store: Reader, task: FilesTask, index: int, file: Any, batch_rows: int, groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    path = task.paths[index]
    with blamed(path):
        in_file, constants = _fields_and_constants(file, task, index, path)
        _require_whole(file, task, index, path, in_file)
        deleted = deletes.deleted_rows(store, path, task.deletes[index]) if task.deletes else deletes.NOTHING
        taken = deletes.deleted_rows(store, path, task.taken_by[index]) if task.taken_by else None
        compared = [field for known in (*deleted.keys, *(taken.keys if taken else ())) for field in known.fields]
        beside = _Beside.opened(store, task, index, batch_rows)
        if beside.ids:
            in_file = {id: field for id, field in in_file.items() if id not in beside.ids}
        needed = _needed((*task.fields, *compared) if compared else task.fields, in_file, frozenset(constants))
        pushed = None if beside.ids else _pushed(task, in_file, constants)  # The files are read in lockstep.
        schema, seen = arrow_schema(task.fields), 0
        chosen = {} if groups is None else {"groups": groups}
        stored = file.batches(needed, pushed, batch_rows, task.far_as_null, **chosen)
        for position, batch in beside.in_step(stored):
            seen += batch.num_rows
            batch, stored_fields = beside.joined(*_placed(*_by_id(batch, needed), position, task, index))
            batch = _left(batch, stored_fields, position, deleted, taken, constants)
            if batch.schema.types == schema.types and _as_stored(stored_fields, task.fields, task.far_as_null):
                result = _record_batch(batch.columns, schema, batch.num_rows)
            else:
                columns = _projected(batch, stored_fields, task.fields, constants, task.far_as_null)
                result = _record_batch(columns, schema, batch.num_rows)
            if task.predicate != ALWAYS:
                result = rows.keep(result, evaluation.mask(task.predicate, result))
            if result.num_rows:
                yield result
        if file.row_count is None and pushed is None and task.row_counts:
            _require_count(seen, task, index, path)


class _Beside:
    """Columns of one file's rows that other files have."""

    def __init__(self, tasks: tuple[FilesTask | BlobTask, ...], batches: Sequence[Iterator[pa.RecordBatch]]) -> None:
        self._fields, self._batches = tuple(task.fields for task in tasks), batches
        self.ids = frozenset(field.id for fields in self._fields for field in fields)
        self._left: list[pa.RecordBatch | None] = [None] * len(batches)

    @classmethod
    def opened(cls, store: Reader, task: FilesTask, index: int, batch_rows: int) -> _Beside:
        wanted = {field.id for field in task.fields}
        tasks = task.beside[index] if task.beside else ()
        tasks = tuple(beside for beside in tasks if any(field.id in wanted for field in beside.fields))
        return cls(tasks, [read(store, task, batch_rows) for task in tasks])

    def in_step(self, stored: Iterator[tuple[int, pa.RecordBatch]]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The file's batches, cut where batches of the other files end: several of those together may be too large."""
        if not self.ids:
            yield from stored
            return
        for position, batch in stored:
            start = 0
            while start < batch.num_rows:
                rest = (self._waiting(number).num_rows for number in range(len(self._batches)))
                count = min(batch.num_rows - start, *rest)
                yield position + start, batch.slice(start, count)
                start += count

    def joined(
        self, batch: pa.RecordBatch, stored_fields: tuple[Field, ...]
    ) -> tuple[pa.RecordBatch, tuple[Field, ...]]:
        """(the batch with the columns of the next rows of the other files, its fields)."""
        if not self.ids:
            return batch, stored_fields
        columns, fields = list(batch.columns), list(stored_fields)
        for number, file_fields in enumerate(self._fields):
            taken = self._next(number, batch.num_rows)
            columns += taken.columns
            fields += [_of_id(field) for field in file_fields]
        schema = pa.schema([pa.field(f.name, c.type) for f, c in zip(fields, columns, strict=True)])
        return _record_batch(columns, schema, batch.num_rows), tuple(fields)

    def _next(self, number: int, count: int) -> pa.RecordBatch:
        batch = self._waiting(number)
        self._left[number] = batch.slice(count) if batch.num_rows > count else None
        return batch.slice(0, count)

    def _waiting(self, number: int) -> pa.RecordBatch:
        """The rows that come next from one of the tasks."""
        batch = self._left[number]
        if batch is None:
            batch = next(self._batches[number], None)
            if batch is None:
                raise CorruptFile("the files that hold other columns of its rows have fewer rows")
            self._left[number] = batch
        return batch


def _require_whole(file: Any, task: FilesTask, index: int, path: str, in_file: dict[int, Field]) -> None:
    """Raises `CorruptFile` if the file lacks rows (if they are counted) or columns that its table records."""
    if not task.row_counts:
        return
    if file.row_count is not None:
        _require_count(file.row_count, task, index, path)
    lost = [file_field.name for file_field in task.file_fields or () if file_field.id not in in_file]
    if lost:
        raise CorruptFile(f"{path}: the table says that the file holds column {lost[0]!r}, and it does not")


def _require_count(count: int, task: FilesTask, index: int, path: str) -> None:
    expected = task.row_counts[index]
    if count != expected:
        raise CorruptFile(f"{path}: the file holds {count} rows, its table says {expected}")


@latest
def _needed(fields: tuple[Field, ...], in_file: dict[int, Field], constants: frozenset[int]) -> tuple[Field, ...]:
    """The file's columns to read for `fields`, each once, pruned to the fields that they need."""
    by_id: dict[int, Field] = {}
    for field in fields:
        if field.id in in_file and field.id not in constants:
            by_id[field.id] = _both(by_id.get(field.id, field), field)
    return tuple(_pruned(in_file[id], field.type) for id, field in by_id.items())


def _by_id(batch: pa.RecordBatch, fields: tuple[Field, ...]) -> tuple[pa.RecordBatch, tuple[Field, ...]]:
    """A file's columns, which are `fields`, named by their field ids: (the batch, its fields). The file's own names are
    those of when it was written, and may be the names of other columns now, or of virtual ones."""
    fields = _of_ids(fields)
    return batch.rename_columns([field.name for field in fields]), fields


@latest
def _of_ids(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(map(_of_id, fields))


def _of_id(field: Field) -> Field:
    return replace(field, name=str(field.id))


def _placed(
    batch: pa.RecordBatch, stored_fields: tuple[Field, ...], position: int, task: FilesTask, index: int
) -> tuple[pa.RecordBatch, tuple[Field, ...]]:
    """(the batch with the virtual columns of its rows' positions in the file, its fields)."""
    if POSITION in task.fields:
        places = pa.array(np.arange(position, position + batch.num_rows))
        field = _of_id(POSITION)
        batch, stored_fields = batch.append_column(field.name, places), (*stored_fields, field)
    return _descended(batch, stored_fields, position, *task.lineage[index]) if task.lineage else (batch, stored_fields)


def _left(
    batch: pa.RecordBatch,
    stored_fields: tuple[Field, ...],
    position: int,
    deleted: deletes.DeletedRows,
    taken: deletes.DeletedRows | None,
    constants: dict[int, Any],
) -> pa.RecordBatch:
    """The rows that are not `deleted`; with `taken`, only those among them that it deletes."""
    if deleted is deletes.NOTHING and taken is None:
        return batch
    keys = [(key_set, _keys(batch, stored_fields, key_set, constants)) for key_set in deleted.keys]
    if taken is None:
        return rows.apply_deletes(batch, position, deleted.positions, keys)
    now = [(key_set, _keys(batch, stored_fields, key_set, constants)) for key_set in taken.keys]
    return rows.newly_deleted(batch, position, (deleted.positions, keys), (taken.positions, now))


def _fields_and_constants(file: Any, task: FilesTask, index: int, path: str) -> tuple[dict[int, Field], dict[int, Any]]:
    """(the columns of the file at `index`, the values of columns that it lacks), by field id."""
    in_file = _ided(fields_of(file, task))
    constants = {**dict(task.constants), FILE.id: path, BUCKET.id: task.bucket}
    if task.absent:
        there = {part.id for part in walk(tuple(in_file.values()))}
        constants |= {id: value for id, value in task.absent[index] if id not in there}
    return in_file, constants


@latest
def _ided(fields: tuple[Field, ...]) -> dict[int, Field]:
    return {field.id: field for field in fields}


def fields_of(file: Any, task: FilesTask) -> tuple[Field, ...]:
    """The file's columns with their ids: from `task.file_fields` by name, from the file, or from the mapping."""
    fields: tuple[Field, ...] = file.fields(task.file_fields)
    if task.file_fields is not None or not fields or any(field.id != NO_ID for field in fields):
        return fields
    return identified(fields, task.mapping, task.positions)


def identified(
    fields: tuple[Field, ...], mapping: tuple[Named, ...], positions: tuple[int, ...] = ()
) -> tuple[Field, ...]:
    """The fields that the mapping has, with their ids. With `positions`, fields inside a column are those of the
    mapping in order, or by name if their numbers differ. Raises `UnsupportedFeature` if then no name is known."""
    if positions:
        pairs = sorted(zip(positions, mapping, strict=True), key=lambda pair: pair[0])
        return tuple(_paired(fields[index], entry) for index, entry in pairs if index < len(fields))
    known = {name: entry for entry in mapping for name in entry.names}
    return tuple(_with_id(field, known[field.name]) for field in fields if field.name in known)


def _paired(file_field: Field, mapped: Named) -> Field:
    stored, parts = children(file_field.type), iter(mapped.parts)
    if len(stored) == len(mapped.parts):
        return replace(file_field, id=mapped.id, type=rebuild(file_field.type, lambda part: _paired(part, next(parts))))
    if isinstance(file_field.type, Row) and mapped.parts and not identified(stored, mapped.parts):
        raise UnsupportedFeature(
            f"column {file_field.name!r} has fields without ids, {', '.join(part.name for part in stored)}, which "
            "neither their positions nor their names identify; set a name mapping (schema.name-mapping.default)"
        )
    return _with_id(file_field, mapped)


def _with_id(file_field: Field, mapped: Named) -> Field:
    match file_field.type:
        case Row(parts) if mapped.parts:  # Otherwise a variant.
            return replace(file_field, id=mapped.id, type=Row(identified(parts, mapped.parts)))
        case ListOf() | MapOf():
            return replace(file_field, id=mapped.id, type=rebuild(file_field.type, partial(_part, mapped.parts)))
    return replace(file_field, id=mapped.id)


def _part(mapping: tuple[Named, ...], part: Field) -> Field:
    """An element, key or value; writers name elements differently."""
    name = part.name if part.name in ("key", "value") else "element"
    mapped = next((entry for entry in mapping if name in entry.names), None)
    return part if mapped is None else _with_id(part, mapped)


def _descended(
    batch: pa.RecordBatch, stored_fields: tuple[Field, ...], position: int, first_id: int | None, updated: int | None
) -> tuple[pa.RecordBatch, tuple[Field, ...]]:
    """A file's rows with `ROW_ID` and `LAST_UPDATED`: from its columns, or else computed from a row's position."""
    fields = {part.id: part for part in stored_fields}
    count = batch.num_rows
    for field, start, inherited in (
        (ROW_ID, first_id, np.arange(count) + position + (first_id or 0)),
        (LAST_UPDATED, updated, np.full(count, updated or 0)),
    ):
        values = casts.nulls(count, pa.int64()) if start is None else pa.array(inherited)
        if field.id in fields:
            index = batch.schema.get_field_index(fields[field.id].name)
            batch = batch.set_column(index, fields[field.id].name, pc.coalesce(batch.column(index), values))
        else:
            batch = batch.append_column(_of_id(field).name, values)
            stored_fields = (*stored_fields, _of_id(field))
    return batch, stored_fields


def _projected(
    batch: pa.RecordBatch,
    stored_fields: tuple[Field, ...],
    fields: tuple[Field, ...],
    constants: Mapping[int, Any],
    far_as_null: frozenset[int] = frozenset(),
) -> list[pa.Array]:
    """The columns `fields` of a file's rows, which have the columns `stored_fields`; a missing column is a constant,
    its initial default, or null."""
    names = {field.id: field for field in stored_fields}
    columns = []
    for field in fields:
        if field.id in constants:
            columns.append(casts.constant(constants[field.id], field.type, batch.num_rows))
        elif field.id in names:
            stored = names[field.id]
            column, type = batch.column(stored.name), stored.type
            if field.id in far_as_null and not nanoseconds.is_fine(type):
                column, type = (
                    casts.project(column, type, nanoseconds.coarse(field.type), field.name),
                    nanoseconds.coarse(field.type),
                )
                column = casts.near(column, column)
            columns.append(casts.project(column, type, field.type, field.name, constants))
        else:
            columns.append(casts.initial(field, batch.num_rows, constants))
    return columns


@latest
def _as_stored(stored_fields: tuple[Field, ...], fields: tuple[Field, ...], far_as_null: frozenset[int]) -> bool:
    """Whether the columns `stored_fields` of a file are `fields`, in types whose one Arrow form is theirs."""
    return (
        len(stored_fields) == len(fields)
        and not far_as_null
        and all(
            stored.id == field.id
            and stored.type == field.type
            and isinstance(field.type, Scalar)
            and field.type.kind not in _FORMED
            for stored, field in zip(stored_fields, fields, strict=True)
        )
    )


def _keys(
    batch: pa.RecordBatch, stored_fields: tuple[Field, ...], key_set: rows.KeySet, constants: Mapping[int, Any]
) -> list[pa.Array]:
    """The values of a file's rows that are looked up in `key_set`."""
    return [casts.innermost(column) for column in _projected(batch, stored_fields, key_set.fields, constants)]


def _both(one: Field, other: Field) -> Field:
    """A column with the fields that either needs."""
    if one == other:
        return one
    if not isinstance(one.type, Row) or not isinstance(other.type, Row):
        return other if nanoseconds.is_fine(other.type) else one
    parts = {field.id: field for field in one.type.fields}
    for field in other.type.fields:
        parts[field.id] = _both(parts.get(field.id, field), field)
    return replace(one, type=Row(tuple(parts.values())))


def _pruned(file_field: Field, read_type: Type) -> Field:
    """A file's column without the fields that are not read."""
    pruned = _pruned_type(file_field.type, read_type)
    return file_field if pruned is file_field.type else replace(file_field, type=pruned)


def _pruned_type(file_type: Type, read_type: Type) -> Type:
    match file_type, read_type:
        case Row(parts), Row(parts_to_read):
            types = {part.id: part.type for part in parts_to_read}
            kept = tuple(_pruned(part, types[part.id]) for part in parts if part.id in types)
            return Row(kept or parts[:1])  # Nulls of the row itself are read from a field.
        case ListOf(element), ListOf(element_to_read):
            return ListOf(_pruned(element, element_to_read.type))
        case MapOf(key, value), MapOf(key_to_read, value_to_read):
            return MapOf(_pruned(key, key_to_read.type), _pruned(value, value_to_read.type))
        case MultisetOf(element), MultisetOf(element_to_read):
            return MultisetOf(_pruned(element, element_to_read.type))
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ), Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ):
            # Microseconds have a larger range, if no more is requested.
            return file_type if nanoseconds.is_fine(read_type) else nanoseconds.coarse(file_type)
    return file_type


def _pushed(task: FilesTask, in_file: dict[int, Field], constants: dict[int, Any]) -> pc.Expression | None:
    """The part of the predicate that a file's own statistics can decide, with the file's names; None for nothing."""
    if task.predicate == ALWAYS:
        return None
    same = {}
    for field in task.fields:
        stored = in_file.get(field.id)
        if (
            stored is None
            or field.id in constants
            or field.id in task.far_as_null
            or not isinstance(field.type, Scalar)
        ):
            continue
        if stored.type == field.type:
            same[field.name] = stored
    kept = [
        conjunct
        for conjunct in conjuncts(task.predicate)
        if columns_of(conjunct) <= same.keys() and _bounded(conjunct, same)
    ]
    if not kept:
        return None
    renamed = rename(and_(*kept), {name: in_file.name for name, in_file in same.items()})
    return pruning.to_dataset_filter(renamed, tuple(same.values()))


def _bounded(condition: Expression, fields: dict[str, Field]) -> bool:
    """Whether bounds can decide it: not if a NaN, which is above all numbers and not in bounds, could satisfy it."""
    if all(fields[name].type not in _FLOATS for name in columns_of(condition)):
        return True
    return isinstance(condition, Call) and condition.name in ("eq", "in") and isinstance(condition.arguments[0], Column)


def _record_batch(columns: list[pa.Array], schema: pa.Schema, length: int) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), length, [None]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _changed(store: Store, task: RewriteTask) -> Iterator[Callable[[], Iterator[pa.RecordBatch | Copied]]]:
    """The changed rows, in parts, as `parts` has them."""
    changes = [
        condition
        for condition in (task.delete_where, task.update_where if task.assignments else None)
        if condition is not None
    ]

    def touches(rows: pa.Table, start: int, count: int) -> bool:
        return any(
            pc.any(evaluation.mask(change, batch), min_count=0).as_py()
            for batch in rows.to_batches() or [_record_batch([], rows.schema, rows.num_rows)]
            for change in changes
        )

    named = frozenset(name for change in changes for name in columns_of(change))
    least_bytes = 0 if changes else _COPIED_BYTES
    for read_task in task.read:
        for part in parts_or_copies(store, read_task, task.write, touches if changes else None, named, least_bytes):
            yield partial(_changed_part, part, task, read_task.fields)


def _changed_part(
    part: Callable[[], Iterator[pa.RecordBatch | Copied]], task: RewriteTask, fields: tuple[Field, ...]
) -> Iterator[pa.RecordBatch | Copied]:
    is_blobs = task.write.blobs is not None and task.write.blobs.updates
    for batch in part():
        if isinstance(batch, Copied):
            yield batch
            continue
        mask = evaluation.mask(task.update_where, batch) if is_blobs else None
        if task.assignments:
            before, batch = batch, _assigned(batch, task, fields)
            if task.write.keyed is not None and task.write.keyed.places is not None:
                batch = key_places.moved(before, batch, task.write.keyed.places, task.write.keyed)
        if task.write.keyed is not None and not task.write.keyed.is_numbered and VALUE_KIND in fields:
            batch = key_values.with_names(batch)
        if mask is not None:
            batch = batch.append_column(CHANGED.name, pc.fill_null(mask, False))
        if task.write.first_row_id is not None:  # A column file.
            batch = batch.select([f.name for f in task.write.fields])
        if task.delete_where is not None:
            batch = rows.keep(batch, pc.invert(evaluation.mask(task.delete_where, batch)))
        yield batch


def _changelog(store: Store, task: RewriteTask) -> Iterator[pa.RecordBatch]:
    """The rows of the changelog: the differences of the merged rows from those before, section by section."""
    for part, earlier in zip(task.read, task.before, strict=True):
        assert isinstance(part, MergeTask), part
        schema = arrow_schema(part.fields)
        after, before = (
            pa.Table.from_batches([] if one is None else list(read(store, one)), schema) for one in (part, earlier)
        )
        yield from merge.difference(before, after, part.merge, task.compared).to_batches(BATCH_ROWS)


def _assigned(batch: pa.RecordBatch, task: RewriteTask, fields: tuple[Field, ...]) -> pa.RecordBatch:
    """`batch` with the assignments applied where `update_where` is true; all of them see the old row."""
    mask = evaluation.mask(task.update_where, batch)
    if not pc.any(mask, min_count=0).as_py():
        return batch
    chosen = batch.filter(mask)
    places = pc.if_else(mask, pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1), None)
    columns = list(batch.columns)
    for name, value in task.assignments:
        field = find_field(fields, name)
        new = pa.RecordBatch.from_arrays([layouts.plain(evaluation.evaluate(value, chosen))], names=[name])
        assign.check(new.schema, (field,))
        new = assign.assign(new, (field,)).column(0)
        index = batch.schema.get_field_index(name)
        both = pa.concat_arrays([columns[index], new])
        own = pa.array(np.arange(batch.num_rows), pa.int64())
        columns[index] = both.take(pc.coalesce(pc.add(places, batch.num_rows), own))
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _gathered(batches: Iterable[pa.RecordBatch | Copied], task: WriteTask) -> Iterator[Any]:
    """Rows with the table's columns, in batches large enough to be worth splitting; copied row groups unchanged."""
    fields = task.fields if task.keyed is None else key_values.input_fields(task)
    table_schema = arrow_schema(fields) if task.keyed is None else None
    checked: pa.Schema | None = None
    waiting: list[pa.RecordBatch] = []
    count = size = 0

    def joined(anew: bool = False) -> pa.RecordBatch:
        nonlocal waiting, count, size
        batch = waiting[0] if len(waiting) == 1 and not anew else pa.concat_batches(waiting)
        waiting, count, size = [], 0, 0
        return assign.assign(batch, fields) if checked == table_schema else batch

    for batch in batches:
        is_other = not isinstance(batch, Copied) and batch.schema is not checked and batch.schema != checked
        if waiting and (is_other or isinstance(batch, Copied)):
            # Filtered rows have bitmaps without nulls, and new ones have not: a row group must not grow by them.
            yield joined(anew=True)
        if isinstance(batch, Copied):
            yield batch
            continue
        if is_other:
            assign.check(batch.schema, fields, task.partition_by)
            checked = batch.schema
        pieces = (batch.slice(start, BATCH_ROWS) for start in range(0, batch.num_rows, BATCH_ROWS))
        for piece in chain.from_iterable(layouts.pieces(piece, written.CHUNK_BYTES) for piece in pieces):
            if checked != table_schema:
                piece = assign.assign(piece, fields)
                if task.keyed is not None:
                    piece = key_values.without_ignored(key_values.with_kinds(piece, task), task)
            waiting.append(piece)
            count += piece.num_rows
            size += piece.nbytes
            if count >= BATCH_ROWS // 2 or size >= written.CHUNK_BYTES:
                yield joined()
    if waiting:
        yield joined()


def _required(batches: Iterable[Any], task: WriteTask) -> Iterator[Any]:
    for batch in batches:
        if not isinstance(batch, Copied):  # A write with a required condition copies nothing.
            require(batch, task)
        yield batch


def require(batch: pa.RecordBatch, task: WriteTask) -> None:
    """Raise `OutsideScope` for rows for which `task.required` is not true."""
    if task.required == ALWAYS:
        return
    outside = rows.keep(batch, pc.invert(evaluation.mask(task.required, batch)))
    if outside.num_rows:
        named = [name for name in outside.schema.names if name in columns_of(task.required)]
        examples = outside.select(named).slice(0, 1000).to_pylist()
        shown = list(dict.fromkeys(str(row) for row in examples))[:5]
        raise OutsideScope(
            f"{outside.num_rows} rows are outside what is overwritten, e.g. {', '.join(shown)}; nothing was committed. "
            f"Leave these rows out, or declare their partitions too"
        )


def placed(batch: pa.RecordBatch, task: WriteTask) -> Iterator[tuple[tuple[Any, ...], int | None, pa.RecordBatch]]:
    """The rows of each partition and bucket."""
    if task.partition is not None:
        yield task.partition, None, batch
        return
    keys = []
    for by in task.partition_by:
        keys.append(transform.apply(by.transform, batch.column(by.source), find_field(task.fields, by.source).type))
    if task.bucket is not None:
        keys.append(_buckets(batch, task.bucket, task.fields))
    for values, group in rows.split(batch, keys):
        key = [partition_value(value) for value in values]
        bucket = key.pop() if task.bucket is not None else None
        yield tuple(key), bucket, group


def _split(batch: pa.RecordBatch | Copied, task: WriteTask) -> Iterator[Any]:
    if isinstance(batch, Copied):
        yield batch
    else:
        yield from placed(batch, task)


def _buckets(batch: pa.RecordBatch, rule: BucketRule, fields: tuple[Field, ...]) -> pa.Array:
    types = [find_field(fields, name).type for name in rule.columns]
    columns = [batch.column(name) for name in rule.columns]
    return pa.array(murmur.buckets(columns, types, rule.count, rule.function), pa.int32())


def partition_value(scalar: pa.Scalar) -> Any:
    """A partition's value as in `WrittenFile`; all NaNs are one. Raises `InvalidInput` for a value that Python cannot
    represent."""
    if pa.types.is_timestamp(scalar.type):
        return scalar.value
    try:
        value = scalar.as_py()
    except OverflowError as error:
        raise InvalidInput(
            f"a partition of {scalar.type} {scalar.value} (days since 1970): it must be in the years 1 to 9999"
        ) from error
    if pa.types.is_decimal(scalar.type) and value is not None and len(value.as_tuple().digits) > scalar.type.precision:
        raise InvalidInput(
            f"a partition of {value}, which {scalar.type} does not hold; widen the column or cut it less"
        )
    return NAN if value != value else value
