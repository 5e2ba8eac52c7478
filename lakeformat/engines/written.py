"""The files of one write: rows are buffered, written chunk by chunk, and returned as `WrittenFile`s."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from lakeformat import clock
from lakeformat.codec import layouts
from lakeformat.codec.arrow import arrow_schema
from lakeformat.codec.paimon import file_index
from lakeformat.engines.files import blob, formats, parquet, statistics
from lakeformat.engines.files.formats import FORMATS
from lakeformat.engines.kernels import casts
from lakeformat.engines.keyed import key_values
from lakeformat.errors import InvalidInput, LakeError, StoreError, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.log import log
from lakeformat.model.schema import Field, Geo, Kind, Row, Scalar, rebuild, walk
from lakeformat.model.work import CHANGED, ColumnStats, Content, KeyRange, KeyValues, WriteTask, WrittenFile, paths_of
from lakeformat.storage.store import Store

CHUNK_BYTES = 64 << 20  # Bytes in memory of rows that are encoded together: a row group or stripe.
BUFFER_BYTES = 256 << 20  # Bytes of buffered rows, over all files of one write.
_PIECE_MIN = 1 << 16
_FEW_WRITERS = 8

_UNKNOWN = Scalar(Kind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Copied:
    """An existing row group for a new file of this partition and bucket: see `parquet.File.copyable`."""

    partition: tuple[Any, ...]
    bucket: int | None
    stored: parquet.Stored


class Files:
    """The files of one write. Rows are buffered up to `buffer_bytes`; then those of the largest partition and bucket
    are written to its file, or to disk: see `WriteTask.fans_out`. Row groups are encoded on `threads` threads, also of
    one file; which rows they have does not depend on when the threads are ready."""

    def __init__(self, store: Store, task: WriteTask, buffer_bytes: int, chunk_bytes: int, threads: int = 1) -> None:
        if task.encoding.file_format not in FORMATS:
            raise UnsupportedFeature(
                f"file format {task.encoding.file_format!r} cannot be written; supported: {', '.join(FORMATS)}"
            )
        whole = task.fields if task.encoding.file_format == "parquet" else ()
        for column in walk(task.fields):
            if isinstance(column.type, Geo) and column not in whole:
                raise UnsupportedFeature(
                    f"column {column.name} is {column.type}: written as a column of its own to Parquet, not within "
                    f"rows, lists and maps, and not to {task.encoding.file_format}; its rows are read, and deleted "
                    "(write.delete.mode=merge-on-read)"
                )
        self._store, self._task, self._format = store, task, FORMATS[task.encoding.file_format]
        self._schema = arrow_schema(task.fields if task.keyed is None else key_values.waiting(task))
        # The columns of a file; for a keyed table with key and system columns.
        self._file_task = task if task.keyed is None else replace(task, fields=task.keyed.fields)
        stored = _stored(self._file_task.fields)
        self._leaves_out = stored != self._file_task.fields
        apart = {*task.blobs.names, CHANGED.name} if task.blobs else set()
        self._file_task = replace(self._file_task, fields=tuple(f for f in stored if f.name not in apart))
        self._kept_fields = stored
        # Rows of a file that is sorted and written as a whole.
        self._is_whole = task.keyed is not None and not task.keyed.is_numbered
        self._buffer_bytes = buffer_bytes
        self._disk: _Disk | None = None
        # Groups of rows, and those whose partition and bucket had rows before others.
        self._last: _Writer | None = None
        self._came = self._came_back = 0
        # Other files are written in chunks small enough to stop near the target size.
        chunk_bytes = min(chunk_bytes, _whole_number(task.encoding.options, self._format.PIECE_OPTION, chunk_bytes))
        self._chunk_bytes = min(2 * task.target_size_bytes if self._is_whole else chunk_bytes, buffer_bytes)
        self._writers: dict[tuple[tuple[Any, ...], int | None], _Writer] = {}
        self._open: OrderedDict[int, _Writer] = OrderedDict()  # The least recently used first.
        self._waiting_bytes = 0
        # Only Parquet's row groups can be encoded beside their file.
        is_apart = self._format is parquet and not self._is_whole and task.blobs is None
        self._most_threads, self._threads = threads, threads if is_apart else 1
        self._pool: ThreadPoolExecutor | None = None
        self._encoding: deque[_Encoding] = deque()
        # Changelog files are not looked up.
        self._indexed = None if task.content is Content.CHANGELOG else task.file_indexes
        self._types = {column.name: column.type for column in task.fields}
        self._name = formats.fresh_name(task.naming.names_task)
        self._numbers = itertools.count(task.naming.first_number)
        self._ending = False
        self._written: list[WrittenFile] = []

    def add(self, partition: tuple[Any, ...], bucket: int | None, group: pa.RecordBatch) -> None:
        writer_count = len(self._writers)
        writer = self._writer(partition, bucket)
        self._came += 1
        self._came_back += len(self._writers) == writer_count and writer is not self._last
        self._last = writer
        start, row_bytes = 0, max(1.0, group.nbytes / group.num_rows)
        while start < group.num_rows:
            room = self._piece_bytes(writer) - writer.waiting_bytes
            piece = group.slice(start, max(1, int(room / row_bytes)))
            start += piece.num_rows
            size = int(piece.num_rows * row_bytes)
            writer.waiting.append(piece)
            writer.waiting_bytes += size
            self._waiting_bytes += size
            if size >= room:
                self._relieve(writer)
        while self._waiting_bytes > self._buffer_bytes:
            if self._encoding:
                self._append_first()
            else:
                self._relieve(max(self._writers.values(), key=lambda writer: writer.waiting_bytes))

    def copy(self, copied: Copied) -> None:
        """Copy a row group as it is stored, after the rows before it."""
        writer, stored = self._writer(copied.partition, copied.bucket), copied.stored
        self._flush(writer)
        self._settle(writer)
        file = writer.file or self._start(writer)
        file.row_count += stored.row_count
        file.added_bytes += stored.size_bytes
        self._open.move_to_end(id(writer))
        with _unwritable(file.path):
            file.output.copy(stored)
        if file.output.size() >= self._task.target_size_bytes:
            self._close(writer)

    def finish(self) -> list[WrittenFile]:
        """Close all files; they are in the order in which their partitions and buckets came."""
        writers, threads = list(self._writers.values()), self._most_threads
        ending = sorted(writers, key=lambda writer: writer.file is None)  # No more are open at the same time.
        if len(writers) < 2:
            # No thread for the only rows of a file, if they are few.
            self._ending = not self._encoding and self._waiting_bytes < 2 * parquet.PART_BYTES
            for writer in writers:
                self._end(writer)
        else:
            while self._encoding:
                self._append_first()
            self._ending = True
            few = (
                len(writers) < _FEW_WRITERS and self._waiting_bytes < _PIECE_MIN
            )  # Starting threads would take longer.
            for _ in self._store.several(self._end, ending, 1 if few else threads):
                pass
        self._let_go()
        assert not self._encoding, self._task
        order = {(writer.partition, self._bucket(writer)): at for at, writer in enumerate(writers)}
        return sorted(self._written, key=lambda file: order[file.partition, file.bucket])

    def abandon(self, error: BaseException) -> None:
        self._encoding.clear()
        self._let_go()
        unfinished = []
        for writer in self._open.values():
            if writer.file is not None:
                writer.file.output.give_up()
                beside = writer.file.blobs.files if writer.file.blobs else []
                unfinished += [file.path for file in beside]
                for sink in (writer.file.sink, *(file.sink for file in beside)):
                    with suppress(Exception):
                        if sink is not None:
                            sink.give_up(error)
        with suppress(LakeError):
            self._store.delete([*paths_of(self._written), *unfinished])

    def _writer(self, partition: tuple[Any, ...], bucket: int | None) -> _Writer:
        writer = self._writers.get((partition, bucket))
        if writer is None:
            writer = self._writers[partition, bucket] = _Writer(partition, bucket)
            keyed = self._task.keyed
            if keyed is not None and not keyed.is_numbered:
                assert keyed.first is not None, self._task
                writer.next_number = keyed.first.get(self._task.directory(partition, self._bucket(writer)), 0)
        return writer

    def _end(self, writer: _Writer) -> None:
        self._flush(writer)
        self._close(writer)

    def _bucket(self, writer: _Writer) -> int:
        return self._task.default_bucket if writer.bucket is None else writer.bucket

    def _piece_bytes(self, writer: _Writer) -> int:
        """The bytes in memory to write next: a chunk, or the rest of the file's size."""
        file = writer.file
        if self._is_whole:
            return self._chunk_bytes
        left = self._task.target_size_bytes if file is None else self._left_bytes(file)
        return max(_PIECE_MIN, min(self._chunk_bytes, left))

    def _left_bytes(self, file: _Open) -> int:
        """The bytes in memory that make the file as large as it shall be, by those of it that are encoded."""
        left = float(self._task.target_size_bytes)
        if file.added_bytes:
            size = file.output.size()
            left = (left - size) * file.added_bytes / max(1, size)
        return int(left) - file.encoding_bytes

    def _relieve(self, writer: _Writer) -> None:
        """Move buffered rows out of memory."""
        is_full = writer.file is None and len(self._open) >= self._task.open_files and not self._is_whole
        fans_out = self._task.fans_out or 3 * self._came_back > self._came
        if is_full and fans_out and writer.spilled_bytes < 2 * self._task.target_size_bytes:
            self._spill(writer)
        else:
            self._flush(writer)

    def _spill(self, writer: _Writer) -> None:
        if self._disk is None:
            self._disk = _Disk(self._schema)
            log.info(
                "%s: rows of %d partitions and buckets and more come mixed; %d files are open at a time, "
                "and rows of the others wait on disk",
                self._store.root, len(self._writers), self._task.open_files,
            )  # fmt: skip
        writer.spilled.append((self._disk.append(writer.waiting), writer.waiting_bytes))
        self._waiting_bytes -= writer.waiting_bytes
        writer.waiting, writer.waiting_bytes = [], 0

    def _let_go(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def _flush(self, writer: _Writer) -> None:
        """Write the buffered rows, and close the file if it is large enough."""
        for batches, size in self._pieces(writer):
            self._write_table(writer, pa.Table.from_batches(batches, self._schema), size)

    def _pieces(self, writer: _Writer) -> Iterator[tuple[list[pa.RecordBatch], int]]:
        """The buffered rows, on disk and in memory, and their bytes in memory."""
        (waiting, size), (spilled, writer.spilled) = (writer.waiting, writer.waiting_bytes), (writer.spilled, [])
        self._waiting_bytes -= size
        writer.waiting, writer.waiting_bytes = [], 0
        batches: list[pa.RecordBatch] = []
        held_bytes = 0
        for where, spilled_bytes in spilled:
            assert self._disk is not None, writer
            batches.append(self._disk.get(where))
            held_bytes += spilled_bytes
            if held_bytes >= self._piece_bytes(writer):
                yield batches, held_bytes
                batches, held_bytes = [], 0
        if batches or waiting:
            yield [*batches, *waiting], held_bytes + size

    def _write_table(self, writer: _Writer, table: pa.Table, waited_bytes: int) -> None:
        keyed = self._task.keyed
        if keyed is not None:
            number, writer.next_number = writer.next_number, writer.next_number + table.num_rows
            came, table = table, key_values.stand(table, keyed, number)
            if keyed.changelog_prefix is not None and not keyed.is_numbered:
                self._log(writer, key_values.changelog(came, keyed, number), keyed)
        if not table.num_rows:  # A merge may leave nothing.
            return
        file = writer.file or self._start(writer)
        if keyed is not None:
            file.keys = key_values.joined(file.keys, key_values.key_range(table, keyed))
        for name, indexes in file.indexes.items():
            values = layouts.plain(table.column(name))
            for index in indexes.values():
                index.add(values, self._types[name])
        file.row_count += table.num_rows
        self._open.move_to_end(id(writer))
        if self._leaves_out:
            table = _table_of(table, self._task.fields, self._kept_fields)
        if self._threads > 1 and not self._ending:
            self._encode(file, table, waited_bytes)
        else:
            self._settle(writer)
            file.added_bytes += waited_bytes
            with _unwritable(file.path):
                file.output.add(table)
        if file.encoding_bytes and self._left_bytes(file) <= 0:
            self._settle(writer)
        if self._is_whole or file.output.size() >= self._task.target_size_bytes:
            self._close(writer)

    def _encode(self, file: _Open, table: pa.Table, size: int) -> None:
        """Encode rows on other threads; they are written when their turn comes."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "encode")
        while len(self._encoding) > self._threads:
            self._append_first()
        with _unwritable(file.path):
            file.output.prepare(table)
        parts = file.output.parts(table, self._threads)
        futures = [self._pool.submit(file.output.encode, table, part) for part in parts]
        self._encoding.append(_Encoding(file, futures, size))
        file.encoding_bytes += size
        self._waiting_bytes += size

    def _append_first(self) -> None:
        """Write the rows that were encoded first to their file."""
        encoding = self._encoding.popleft()
        file = encoding.file
        self._waiting_bytes -= encoding.size
        file.encoding_bytes -= encoding.size
        file.added_bytes += encoding.size
        with _unwritable(file.path):
            for group in parquet.joined([part.result() for part in encoding.parts]):
                file.output.append(group.chunks, group.row_group, group.extra)

    def _settle(self, writer: _Writer) -> None:
        """Write all rows of the file that are being encoded."""
        while writer.file is not None and writer.file.encoding_bytes:
            self._append_first()

    def _log(self, writer: _Writer, table: pa.Table, keyed: KeyValues) -> None:
        """Write rows in their order to a changelog file."""
        if not table.num_rows:
            return
        side = _Writer(writer.partition, writer.bucket)
        file = self._start(side, keyed.changelog_prefix)
        file.indexes = {}
        file.keys, file.row_count = key_values.key_range(table, keyed), table.num_rows
        with _unwritable(file.path):
            file.output.add(table)
        self._close(side, Content.CHANGELOG)

    def _start(self, writer: _Writer, prefix: str | None = None) -> _Open:
        # Threads that close files use one each for a moment; none may close another's.
        while not self._ending and len(self._open) >= self._task.open_files:
            self._close(next(iter(self._open.values())))
        path, sink = "", None
        if self._file_task.fields:
            path, sink = self._create(writer, prefix or self._task.naming.prefix, self._task.encoding.file_format)
        with _unwritable(path):
            try:
                output, beside = None if sink is None else self._format.Output(sink, self._file_task), None
                if self._task.blobs is not None:
                    create = partial(self._create, writer, self._task.naming.prefix, "blob")
                    output = beside = blob.Output(output, self._task.blobs, create, self._store)
                writer.file = _Open(path, sink, output, beside, indexes=self._fresh_indexes())
            except BaseException as error:
                if sink is not None:
                    sink.give_up(error)
                raise
        self._open[id(writer)] = writer
        return writer.file

    def _create(self, writer: _Writer, prefix: str, ending: str) -> tuple[str, _Sink]:
        """A new file: (its path, what it is written to)."""
        folder = self._task.directory(writer.partition, self._bucket(writer))
        number = self._task.naming.suffix.format(next(self._numbers))
        path = self._task.naming.locate(folder, f"{prefix}{self._name}{number}.{ending}")
        return path, _Sink(self._store.create_stream(path))

    def _close(self, writer: _Writer, content: Content | None = None) -> None:
        self._settle(writer)
        file = writer.file
        if file is None:
            return
        with _unwritable(file.path):
            size = 0
            stats, offsets = file.output.close()
            if file.sink is not None:
                size = file.sink.tell()
                file.sink.finish()
        index = self._index(file)
        writer.file = None
        del self._open[id(writer)]
        data_file = WrittenFile(
            path=file.path,
            partition=writer.partition,
            row_count=file.row_count,
            size_bytes=size,
            bucket=self._bucket(writer),
            content=content or self._task.content,
            file_format=self._task.encoding.file_format,
            stats=self._trimmed(stats),
            split_offsets=offsets,
            created_ms=clock.now_ms(),
            keys=file.keys,
            sort_order_id=self._task.sort_order_id,
            columns=self._task.columns,
            first_row_id=self._task.first_row_id,
            bucket_count=self._task.bucket.count if self._task.bucket else None,
            index=index,
        )
        beside = self._blob_files(data_file, file.blobs.files if file.blobs else ())
        self._written += [*([] if file.sink is None else [data_file]), *beside]

    def _blob_files(self, data_file: WrittenFile, blob_files: Sequence[blob.NewFile]) -> Iterator[WrittenFile]:
        ids = {column.name: column.id for column in self._task.fields}
        first, of = data_file.first_row_id, (data_file.path,) if data_file.path else ()
        for file in sorted(blob_files, key=lambda file: (ids[file.column], file.position)):
            counts = ColumnStats(None, None, file.null_count if first is None else None, file.row_count)
            yield WrittenFile(
                path=file.path,
                partition=data_file.partition,
                row_count=file.row_count,
                size_bytes=file.size_bytes,
                bucket=data_file.bucket,
                file_format="blob",
                stats={ids[file.column]: counts},
                created_ms=data_file.created_ms,
                refers_to=of,
                offset=file.position,
                columns=(file.column,),
                first_row_id=None if first is None else first + file.position,
                bucket_count=data_file.bucket_count,
            )

    def _fresh_indexes(self) -> dict[str, dict[str, file_index.Index]]:
        """By column, by kind."""
        indexes: dict[str, dict[str, file_index.Index]] = {}
        for column in self._indexed.columns if self._indexed else ():
            indexes.setdefault(column.column, {})[column.kind] = file_index.fresh(column.kind, column.settings)
        return indexes

    def _index(self, file: _Open) -> bytes | str | None:
        """The indexes of a file, or the path at which they are written."""
        if self._indexed is None or not file.indexes:
            return None
        own = {name: {kind: bytes(blob) for kind, blob in made.items()} for name, made in file.indexes.items()}
        index = file_index.emit(own)
        if len(index) <= self._indexed.embedded_bytes:
            return index
        path = f"{file.path}.index"
        self._store.write(path, index)
        return path

    def _trimmed(self, stats: Mapping[int, ColumnStats]) -> dict[int, ColumnStats]:
        """The statistics that the table keeps of its columns; all for keys."""
        kept = statistics.trim(stats, self._task.fields, self._task.stats)
        keyed = self._task.keyed
        return kept if keyed is None else {**kept, **{f.id: stats[f.id] for f in keyed.key_fields}}


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
    sink: _Sink | None  # None if all columns go to blob files.
    output: Any
    blobs: blob.Output | None = None  # The output, if there are blob files beside the file.
    row_count: int = 0
    added_bytes: int = 0  # In memory.
    encoding_bytes: int = 0  # In memory, of rows that are being encoded.
    keys: KeyRange | None = None
    indexes: dict[str, dict[str, file_index.Index]] = field(default_factory=dict)  # By column, by kind.


@dataclass(slots=True)
class _Encoding:
    """Rows of a file that are being encoded."""

    file: _Open
    parts: list[Future[list[parquet.Encoded]]]  # The row groups, some columns each.
    size: int  # Bytes in memory.


@dataclass(slots=True)
class _Writer:
    """The writer of one partition and bucket: rows that wait, and the file they go to."""

    partition: tuple[Any, ...]
    bucket: int | None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    # Rows on disk before those: where, and their bytes.
    spilled: list[tuple[_Where, int]] = field(default_factory=list)
    file: _Open | None = None
    next_number: int = 0  # Of a row of a keyed table.

    @property
    def spilled_bytes(self) -> int:
        return sum(size for _, size in self.spilled)


class _Disk:
    """A local file of rows that wait."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._end = schema, 0
        self._file, path = tempfile.mkstemp(prefix="lakeformat-write-")
        os.unlink(path)  # It goes with this process, however that ends.

    def append(self, batches: Sequence[pa.RecordBatch]) -> _Where:
        content = pa.concat_batches(batches).serialize()
        where = self._end, content.size
        with _unwritable(tempfile.gettempdir()), memoryview(content) as view:
            while self._end < sum(where):
                self._end += os.write(self._file, view[self._end - where[0] :])
        return where

    def get(self, where: _Where) -> pa.RecordBatch:
        start, size = where
        content = os.pread(self._file, size, start)
        return pa.ipc.read_record_batch(pa.py_buffer(content), self._schema)

    def close(self) -> None:
        os.close(self._file)


_Where = tuple[int, int]  # (the first byte, how many bytes)


def _stored(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """The columns and parts that files hold: those that are always null they do not."""
    return tuple(_stored_field(column) for column in fields if column.type != _UNKNOWN)


def _stored_field(field: Field) -> Field:
    if isinstance(field.type, Row):
        return replace(field, type=Row(_stored(field.type.fields)))
    return replace(field, type=rebuild(field.type, _stored_field))


def _table_of(table: pa.Table, fields: tuple[Field, ...], kept: tuple[Field, ...]) -> pa.Table:
    types = {column.id: column.type for column in fields}
    columns = [
        casts.project(layouts.plain(table.column(column.name)), types[column.id], column.type, column.name)
        for column in kept
    ]
    return pa.Table.from_arrays(columns, schema=arrow_schema(kept))


def _whole_number(options: Mapping[str, str], name: str | None, default: int) -> int:
    value = options.get(name) if name else None
    if value is None:
        return default
    if not value.strip().isdigit():
        raise InvalidInput(f"option {name!r} is a number of bytes, not {value!r}")
    return int(value)


@contextmanager
def _unwritable(path: str) -> Iterator[None]:
    """Put `path` into errors raised inside; no other library's error leaves."""
    try:
        yield
    except (LakeError, MemoryError):
        raise
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    except Exception as error:
        raise InvalidInput(f"{path}: rows cannot be written: {error}") from error
