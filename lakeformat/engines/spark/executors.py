"""The functions that Spark's tasks run on executors: rows are passed as Arrow batches, everything else pickled."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from lakeformat.codec import layouts
from lakeformat.codec.arrow import arrow_schema
from lakeformat.codec.plain_values import row_kinds
from lakeformat.engines import worker
from lakeformat.engines.exchange import reading, writing
from lakeformat.engines.exchange.layout import FileLayout
from lakeformat.engines.files import formats
from lakeformat.engines.kernels import assign, casts
from lakeformat.engines.keyed import key_places, key_values
from lakeformat.engines.row_level import marks, outcomes
from lakeformat.engines.row_level.arrow_merge import ArrowSource
from lakeformat.engines.row_level.delta import DeltaFiles
from lakeformat.engines.spark.types import kind_of, nullable
from lakeformat.errors import InvalidInput, LakeError, UnsupportedFeature
from lakeformat.expression import canonical
from lakeformat.model.dataclass import dataclass
from lakeformat.model.merge import Merge
from lakeformat.model.operation import RowCounts
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
    find_field,
    scalar,
    walk,
)
from lakeformat.model.work import (
    BUCKET,
    ROW_KIND,
    VALUE_KIND,
    DeleteTask,
    DeltaLayout,
    ReadTask,
    RowKind,
    WriteTask,
    WrittenFile,
)
from lakeformat.storage.cache import decoded
from lakeformat.storage.store import Store

_RETYPED = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ, Kind.TIME, Kind.TIME_MICROS, Kind.FIXED, Kind.UUID)  # For Spark.

ROW = "_lakeformat_row"  # A column for rows without columns, which Spark does not accept from Python.

DECODED = pa.schema([("place", pa.int64()), ("rows", pa.list_(pa.int64())), ("content", pa.binary())])

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class WideRows(LakeError):
    """A row is too large for batches of a fixed number of rows: they are sent again, with their bytes added up."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows of a merge's source and of the table that are merged together."""

    source: list[ReadTask]
    target: list[ReadTask]


def write(store: Store, task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _answer(lambda: worker.write(store, batches, task))


def only_narrow(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of `work` on rows without their last column, which flags rows that are too large for batches; for
    such a row `work` gets `WideRows`."""

    def narrow() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if pc.any(batch.column(batch.num_columns - 1)).as_py():
                raise WideRows("a row is too large for batches of a fixed number of rows")
            yield batch.select(list(range(batch.num_columns - 1)))

    yield from work(narrow())


def write_delta(
    store: Store,
    layout: DeltaLayout,
    make: Callable[[Store, DeltaLayout], DeltaFiles],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    yield _answer(lambda: make(store, layout).write_all(batches))


def settle(task: WriteTask, names: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows, with whether their key has a row, and where: its partition, and its partition and bucket before the
    write."""
    assert task.keyed is not None, task
    places, fields = task.keyed.places, (*task.fields, ROW_KIND, BUCKET)
    assert places is not None, task
    parts = nullable(tuple(find_field(task.fields, name) for name in places.partition))
    for batch in batches:
        rows = assign.assign(
            batch.select(list(range(len(names)))).rename_columns(list(names)), key_values.input_fields(task)
        )
        columns = batch.columns[len(names) :]
        exists, was, home = columns[0], columns[1 : 1 + len(parts)], columns[1 + len(parts) : -1]
        was, home = (
            assign.assign(pa.RecordBatch.from_arrays(side, names=[f.name for f in parts]), parts).columns
            for side in (was, home)
        )
        existing = key_places.Was(exists.to_numpy(zero_copy_only=False), was, home, columns[-1].cast(pa.int32()))
        worker.require(rows, task)
        settled = key_places.settle(key_values.with_kinds(rows, task), existing, places, task.keyed.merge)
        named = key_values.with_names(settled)
        yield _for_spark(named.select([field.name for field in fields]), fields)


def decode(store: Store, groups: Sequence[bytes], ids: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The decoded files of groups of paths: for each run of files with one schema the number of rows of each, and all
    of them as Arrow's bytes. A file that does not exist has -1 rows; an error is in a row of its own."""
    for batch in ids:
        for index in batch.column(0).to_pylist():
            packed: list[tuple[int, list[int] | None, bytes]]
            try:
                paths, parse = pickle.loads(groups[index])
                packed = [*_packed(index, decoded(store, paths, parse))]
            except LakeError as error:
                packed = [(index, None, pickle.dumps(type(error)(*error.args)))]
            columns = [
                pa.array(column, type) for column, type in zip(zip(*packed, strict=True), DECODED.types, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=DECODED)


def _packed(index: int, tables: Sequence[pa.Table | None]) -> Iterator[tuple[int, list[int], bytes]]:
    for schema, run in groupby(tables, lambda table: None if table is None else table.schema):
        run_tables = list(run)
        sink = pa.BufferOutputStream()
        if schema is not None:
            with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
                for table in run_tables:  # A batch for each, so that each has memory of its run_tables.
                    assert table is not None, schema
                    stream.write_table(table.combine_chunks())
        yield index, [-1 if table is None else len(table) for table in run_tables], sink.getvalue().to_pybytes()


def each(
    store: Store, blobs: Sequence[bytes], work: Callable[[Store, Any], Any], ids: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in ids:
        for index in batch.column(0).to_pylist():
            yield _answer(partial(_numbered, store, work, index, blobs[index]))


def decide(store: Store, merge: Merge, task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _answer(lambda: worker.write(store, outcomes.decisions(merge, batches), task))


def marked(store: Store, task: DeleteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _answer(lambda: marks.write(store, batches, task))


def decide_by_key(
    store: Store, merge: Merge, task: WriteTask, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield _answer(lambda: worker.write(store, outcomes.results_by_key(merge, batches), task))


def merged_by_key(merge: Merge, layout: WriteTask, store: Store, unit: Unit) -> tuple[list[WrittenFile], RowCounts]:
    fields = tuple(Field(NO_ID, f"c{index}", field.type) for index, field in enumerate(merge.source))
    tasks = [
        replace(task, fields=tuple(find_field(task.fields, field.name) for field in fields)) for task in unit.source
    ]
    batches = [batch for task in tasks for batch in worker.read(store, task)]
    source = pa.Table.from_batches(batches, arrow_schema(fields)).rename_columns([field.name for field in merge.source])
    return ArrowSource(store, source, map).write_by_key(merge, unit.target, layout)


def results(merge: Merge, whole: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in outcomes.results(merge, whole, batches):
        yield _for_spark(batch, merge.target)


def inserted(merge: Merge, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for rows in outcomes.inserted(merge, pa.Table.from_batches([batch])):
            yield _for_spark(rows, merge.target)


def renamed(names: Sequence[str], work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from work(batch.rename_columns(names) for batch in batches)
    except (InvalidInput, UnsupportedFeature) as error:
        # A short trace, since the driver sees only the beginning of a long one.
        raise type(error)(*error.args) from None


def identified(
    as_bytes: Collection[str], names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows with canonical bytes of each column behind them, and in place of those in `as_bytes`; all as `names`."""
    for batch in batches:
        identities = [canonical.encoded(column) for column in batch.columns]
        pairs = zip(batch.schema.names, batch.columns, identities, strict=True)
        columns = [identity if name in as_bytes else column for name, column, identity in pairs]
        yield pa.RecordBatch.from_arrays([*columns, *identities], names)


def read(
    store: Store, blobs: Sequence[bytes], fields: tuple[Field, ...], ids: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in ids:
        for index in batch.column(0).to_pylist():
            task = pickle.loads(blobs[index])
            for part in worker.read(store, task):
                if fields:
                    yield _for_spark(worker.columns(part, fields, task.fields), fields)
                else:
                    yield pa.RecordBatch.from_arrays([pa.nulls(part.num_rows, pa.bool_())], names=[ROW])


def load(
    store: Store, blobs: Sequence[bytes], fields: tuple[Field, ...], ids: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of files of others."""
    for batch in ids:
        for index in batch.column(0).to_pylist():
            for part in reading.batches(store, pickle.loads(blobs[index]), reading.Tally()):
                yield _for_spark(part, fields)


def export(
    store: Store, schema: pa.Schema, layout: FileLayout, name: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows to files of others; answers with the files."""
    rows = (
        pa.RecordBatch.from_arrays(
            [layouts.plain(column).cast(field.type) for column, field in zip(batch.columns, schema, strict=True)],
            schema=schema,
        )
        for batch in batches
    )
    stem = f"part-{this_task()[0]:05}-{name}"
    yield _answer(lambda: writing.export(store, rows, schema, layout, stem, may_be_none=True))


def pieces(
    store: Store,
    pieces: Sequence[tuple[bytes, str | None]],
    fields: tuple[Field, ...],
    kind_column: str | None,
    only_inserts: bool,
) -> Iterator[pa.RecordBatch]:
    """The rows of pickled tasks; with `kind_column`, each with its kind, from its task or from a column. Raises
    `InvalidInput` for a row that is no insert if there must be `only_inserts`."""
    for blob, kind in pieces:
        task = pickle.loads(blob)
        for part in worker.read(store, task):
            rows = worker.columns(part, fields if kind is not None else (*fields, VALUE_KIND), task.fields)
            if kind is None:
                kinds = row_kinds().take(rows.column(VALUE_KIND.name))
            else:
                kinds = pa.repeat(kind, len(rows))
            if only_inserts and pc.any(pc.not_equal(kinds, RowKind.INSERT.short)).as_py():
                raise InvalidInput(
                    f"{store.root}: rows were changed or removed, and the stream shows no kinds of rows; read it with "
                    "option('row_kinds', 'true'), and take the rows by their _row_kind"
                )
            columns = _for_spark(rows, fields)
            yield columns if kind_column is None else columns.append_column(kind_column, kinds)


def of_job(job: str, work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of `work` on rows; names of the files it writes contain the job."""
    with formats.of_task(job, *this_task()):
        yield from work(batches)


def this_task() -> tuple[int, int]:
    """The running task: its partition, and its attempt number, which is unique in the application. Sail does not tell
    them; numbers by chance keep the names of its tasks' files apart as well."""
    context = TaskContext.get()
    if context is None:
        return secrets.randbits(62), 0
    return context.partitionId(), context.taskAttemptId()


def _numbered(store: Store, work: Callable[[Store, Any], Any], index: int, blob: bytes) -> tuple[int, Any]:
    return index, work(store, pickle.loads(blob))


def _answer(work: Callable[[], Any]) -> pa.RecordBatch:
    """The result of `work`, pickled in one row; also an error that a retry would not fix."""
    try:
        answer = work()
    except (InvalidInput, UnsupportedFeature, WideRows) as error:
        answer = type(error)(*error.args)
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(answer)], pa.binary())], names=["answer"])


def _for_spark(batch: pa.RecordBatch, fields: tuple[Field, ...]) -> pa.RecordBatch:
    """Timestamps in microseconds and times in nanoseconds, the only units that Spark accepts, and bytes without a
    length; at any depth."""
    columns = [_micros(batch.column(i), field.type) for i, field in enumerate(fields)]
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])


def _micros(array: Any, type: Type) -> pa.Array:
    match type:
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as kind):
            return casts.normal(array, scalar(kind, 6), "")
        case Scalar(Kind.TIME | Kind.TIME_MICROS):
            return array.cast(pa.time64("ns"))
        case Scalar(Kind.FIXED | Kind.UUID):
            return array.cast(pa.binary())
        case _ if not any(kind_of(field.type) in _RETYPED for field in walk((Field(NO_ID, "", type),))):
            return array
        case Row(parts):
            children = [_micros(array.field(i), part.type) for i, part in enumerate(parts)]
            row_type = pa.struct([pa.field(part.name, child.type) for part, child in zip(parts, children, strict=True)])
            return casts.struct(array, children, row_type)
        case ListOf(element):
            items = _micros(casts.items(array), element.type)
            return casts.relist(array, pa.list_(items.type), items)
        case MapOf(key, value):
            keys, values = casts.entries(array)
            keys, values = _micros(keys, key.type), _micros(values, value.type)
            return casts.remap(array, pa.map_(keys.type, values.type), keys, values)
        case MultisetOf(element):
            keys, values = casts.entries(array)
            keys = _micros(keys, element.type)
            return casts.remap(array, pa.map_(keys.type, values.type), keys, values)
    raise AssertionError(type)
