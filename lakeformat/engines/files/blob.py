"""Paimon's blob files (`.blob`): the values of one BLOB column, each with a checksum, then the index of their lengths.

Source: Paimon's specification, File Format, BLOB; lengths of NULL and of a value that an older file has, and
descriptors, as in pypaimon 2.1 (`BlobFormatWriter`, `BlobDescriptor`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from lakeformat.codec import spans, varint
from lakeformat.codec.arrow import arrow_schema
from lakeformat.errors import CorruptFile, InvalidInput, NoSuchFile, UnsupportedFeature
from lakeformat.model.work import CHANGED, BlobColumns, BlobTask, ColumnStats
from lakeformat.storage.store import Reader

CHUNK_BYTES = 64 << 20  # Bytes of values per batch, unless one value is larger.

_MAGIC = (1481511375).to_bytes(4, "little")
_VERSION = 1
_NULL, _OLDER = -1, -2  # Lengths: of NULL, and of a row whose value is in an older file.
_HEAD, _TAIL = 4, 12  # Around a value: the magic; the length of the whole and its CRC-32.
_END = 5  # After the index: its length and the version.
_MOST_BYTES = (1 << 31) - 1  # In one value of Arrow's binary type.
_BUFFER_BYTES = 1 << 20  # Bytes that are written together, and read together where a descriptor says they are.
_GROUP_BYTES = 8 << 20  # Bytes in memory of a row group of the other columns, whose values are small beside the task.

# Of version 2; the URI, the offset and the length follow.
_DESCRIPTOR = b"\x02" + (0x424C4F4244455343).to_bytes(8, "little")


class File:
    """A blob file opened for reading."""

    def __init__(self, source: BinaryIO, path: str) -> None:
        self.path, self._source = path, source
        size = source.seek(0, 2)
        data_end = size - _END
        index = self._read(max(data_end, 0), size)
        if len(index) < _END:
            raise CorruptFile(f"{path}: {size} bytes are not a blob file")
        length, version = int.from_bytes(index[:4], "little"), index[4]
        if version != _VERSION:
            raise UnsupportedFeature(f"{path}: a blob file of version {version}; lakeformat reads version {_VERSION}")
        begin = data_end - length
        try:
            self.lengths = varint.read_differences(self._read(begin, data_end) if begin >= 0 else b"\x80")
        except ValueError as error:
            raise CorruptFile(f"{path}: the index of the blob file is damaged: {error}") from error
        stored = np.maximum(self.lengths, 0)
        self.ends = np.cumsum(stored)
        self.starts = self.ends - stored
        is_wrong = (self.lengths < _OLDER) | ((self.lengths >= 0) & (self.lengths < _HEAD + _TAIL))
        if is_wrong.any() or int(stored.sum()) != begin:
            raise CorruptFile(
                f"{path}: the index of the blob file is damaged: it does not fit the {begin} bytes before it"
            )

    def values(self, rows: np.ndarray) -> pa.Array:
        """The values of these rows, ascending, none of them NULL; values that lie beside each other are read together.
        Raises `CorruptFile` for a wrong checksum."""
        starts, ends = self.starts[rows], self.ends[rows]
        cuts = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        pieces = [self._run(*run) for run in zip(np.split(starts, cuts), np.split(ends, cuts), strict=True)]
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def descriptors(self, rows: np.ndarray, uri: str) -> pa.Array:
        """Where the values of these rows are: Paimon's descriptors."""
        name = uri.encode()
        prefix = np.frombuffer(_DESCRIPTOR + len(name).to_bytes(4, "little") + name, np.uint8)
        whole = np.empty((len(rows), len(prefix) + 16), np.uint8)
        whole[:, : len(prefix)] = prefix
        numbers = np.stack([self.starts[rows] + _HEAD, self.lengths[rows] - _HEAD - _TAIL], axis=1)
        whole[:, len(prefix) :] = np.ascontiguousarray(numbers.astype("<i8")).view(np.uint8)
        return spans.fixed(whole.reshape(-1), whole.shape[1], len(rows))

    def _run(self, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
        first = int(starts[0])
        data = self._read(first, int(ends[-1]))
        begins, ends = starts - first, ends - first
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):  # A checksum is a call of its own.
            whole = memoryview(data)[begin:end]
            expected = (end - begin).to_bytes(8, "little") + zlib.crc32(whole[:-4]).to_bytes(4, "little")
            if whole[:_HEAD] != _MAGIC or whole[-_TAIL:] != expected:
                raise CorruptFile(
                    f"{self.path}: the value at byte {first + begin} is damaged: its checksum or length is wrong"
                )
        return spans.gather(np.frombuffer(data, np.uint8), begins + _HEAD, ends - _TAIL)

    def _read(self, begin: int, end: int) -> bytes:
        self._source.seek(begin)
        data = self._source.read(end - begin)
        if len(data) < end - begin:
            raise CorruptFile(f"{self.path}: the blob file ends at byte {begin + len(data)}, its index says {end}")
        return data


def read(store: Reader, task: BlobTask, files: Sequence[File], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The values of the task's rows (see `BlobTask`) from its `files`, in batches of at most `batch_rows` and about
    `CHUNK_BYTES`. Raises `CorruptFile` for damaged files, `UnsupportedFeature` for values of 2 GiB and more."""
    source, places = np.full(task.row_count, -1), np.zeros(task.row_count, np.int64)
    weights = np.zeros(task.row_count, np.int64)
    for number, (file, first, count) in enumerate(zip(files, task.first_row_ids, task.row_counts, strict=True)):
        if len(file.lengths) != count:
            raise CorruptFile(f"{file.path}: the file holds {len(file.lengths)} rows, its table says {count}")
        begin = first - task.first_row_id
        taken = np.flatnonzero((source[begin : begin + count] < 0) & (file.lengths != _OLDER))
        source[begin + taken], places[begin + taken] = number, taken
        weights[begin + taken] = np.maximum(file.lengths[taken], 0)
        source[begin + taken[file.lengths[taken] == _NULL]] = len(files)
    if not task.as_descriptors and task.row_count and weights.max() > _MOST_BYTES:
        of = files[source[weights.argmax()]].path
        raise UnsupportedFeature(
            f"{of}: a value of {weights.max()} bytes, and Arrow's binary values have less than 2 GiB: set "
            "blob-as-descriptor=true, by which the table's rows say where the bytes are"
        )
    total = np.concatenate(([0], np.cumsum(weights)))
    schema, start = arrow_schema(task.fields), 0
    while start < task.row_count:
        end = int(total.searchsorted(total[start] + CHUNK_BYTES, "right")) - 1
        end = min(max(end, start + 1), start + batch_rows, task.row_count)
        pieces, index, count = [pa.nulls(1, pa.binary())], np.zeros(end - start, np.int64), 1
        for number, file in enumerate(files):
            in_file = np.flatnonzero(source[start:end] == number)
            if len(in_file):
                rows = places[start + in_file]
                pieces.append(
                    file.descriptors(rows, store.location(file.path)) if task.as_descriptors else file.values(rows)
                )
                index[in_file] = count + np.arange(len(in_file))
                count += len(in_file)
        yield pa.RecordBatch.from_arrays([pa.concat_arrays(pieces).take(pa.array(index))], schema=schema)
        start = end


class Output:
    """A data file that is written to `inner`, and beside it the blob files of some columns of its rows; without `inner`
    only these. `create` opens a new blob file: (its path, what it is written to).
    `store` reads what descriptors name."""

    def __init__(self, inner: Any, columns: BlobColumns, create: Callable[[], tuple[str, Any]], store: Reader) -> None:
        self._inner, self._columns, self._create, self._store = inner, columns, create, store
        self.files: list[NewFile] = []
        self._last: dict[str, NewFile] = {}  # Of each column, the file that is being written.
        self._row_count = 0
        self._waiting: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        stays = np.zeros(table.num_rows, bool)
        if self._columns.updates:
            stays = ~np.asarray(table.column(CHANGED.name))
            table = table.drop_columns([CHANGED.name])
        for name in table.column_names:
            if name in self._columns.names:
                self._write_values(name, table.column(name), stays.tolist())
        self._row_count += table.num_rows
        if self._inner is None:
            return
        self._waiting.append(table.select([name for name in table.column_names if name not in self._columns.names]))
        if sum(part.nbytes for part in self._waiting) >= _GROUP_BYTES:
            self._flush()

    def size(self) -> int:
        """Bytes of the data file written so far."""
        size: int = 0 if self._inner is None else self._inner.size()
        return size

    def close(self) -> tuple[dict[int, ColumnStats], tuple[int, ...]]:
        """As the data file's own; blob files are complete, in `files`."""
        self._flush()
        for file in self._last.values():
            file.close()
        if self._inner is None:
            return {}, ()
        result: tuple[dict[int, ColumnStats], tuple[int, ...]] = self._inner.close()
        return result

    def give_up(self) -> None:
        """Abandon the data file; the blob files are `files`."""
        if self._inner is not None:
            self._inner.give_up()

    def _flush(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._inner.add(pa.concat_tables(waiting).combine_chunks())

    def _write_values(self, name: str, values: pa.ChunkedArray, stays: list[bool]) -> None:
        position = self._row_count
        for chunk in values.chunks:
            offsets, nulls = spans.offsets_of(chunk).tolist(), np.asarray(chunk.is_null()).tolist()
            buffer = chunk.buffers()[2]
            data = memoryview(b"" if buffer is None else buffer)
            for row, is_null in enumerate(nulls):  # A checksum is a call of its own.
                file = self._last.get(name)
                if file is None:
                    file = self._last[name] = NewFile(name, position + row, *self._create())
                    self.files.append(file)
                if stays[position + row - self._row_count]:
                    file.add_older()
                elif is_null:
                    file.add_null()
                else:
                    file.add(self._bytes_of(name, data[offsets[row] : offsets[row + 1]]))
                if file.size_bytes >= self._columns.target_size_bytes:
                    self._last.pop(name).close()
            position += len(chunk)

    def _bytes_of(self, name: str, value: memoryview) -> Iterable[bytes | memoryview]:
        """A value in pieces: itself, or the bytes that it names as a descriptor.
        Raises `InvalidInput` if they are not there."""
        if not self._columns.as_descriptors or value[: len(_DESCRIPTOR)] != _DESCRIPTOR:
            return (value,)
        uri, offset, length = _named_by(bytes(value), name)
        try:
            source = self._store.open(uri)
        except NoSuchFile as error:
            raise InvalidInput(f"column {name!r}: a descriptor names {uri}, which does not exist") from error
        return _pieces(source, uri, name, offset, length)


class NewFile:
    """A blob file being written to `sink`: values of `column` from the row at `position` of the data file on."""

    def __init__(self, column: str, position: int, path: str, sink: Any) -> None:
        self.column, self.position, self.path, self.sink = column, position, path, sink
        self.size_bytes = self.null_count = 0
        self._lengths: list[int] = []
        self._buffer = bytearray()

    @property
    def row_count(self) -> int:
        return len(self._lengths)

    def add_null(self) -> None:
        self._lengths.append(_NULL)
        self.null_count += 1

    def add_older(self) -> None:
        """The row keeps the value of an older file."""
        self._lengths.append(_OLDER)

    def add(self, pieces: Iterable[bytes | memoryview]) -> None:
        start, checksum = self.size_bytes, zlib.crc32(_MAGIC)
        self._write(_MAGIC)
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
            self._write(piece)
        length = self.size_bytes - start + _TAIL
        counted = length.to_bytes(8, "little")
        self._write(counted + zlib.crc32(counted, checksum).to_bytes(4, "little"))
        self._lengths.append(length)

    def close(self) -> None:
        index = varint.write_differences(np.array(self._lengths, np.int64))
        self._write(index + len(index).to_bytes(4, "little") + bytes([_VERSION]))
        self.sink.write(self._buffer)
        self.sink.finish()

    def _write(self, data: bytes | memoryview) -> None:
        self._buffer += data
        self.size_bytes += len(data)
        if len(self._buffer) >= _BUFFER_BYTES:
            self.sink.write(self._buffer)
            self._buffer = bytearray()


def _named_by(descriptor: bytes, column: str) -> tuple[str, int, int]:
    """(URI, offset, length) in a descriptor."""
    start = len(_DESCRIPTOR) + 4
    end = start + int.from_bytes(descriptor[start - 4 : start], "little")
    if len(descriptor) != end + 16:
        raise InvalidInput(f"column {column!r}: a descriptor of {len(descriptor)} bytes is damaged")
    offset, length = np.frombuffer(descriptor, "<i8", 2, end).tolist()
    return descriptor[start:end].decode(), offset, length


def _pieces(source: BinaryIO, uri: str, column: str, offset: int, length: int) -> Iterator[bytes]:
    """The bytes from `offset` on; a length of -1 is the rest of the file."""
    with source:
        size = source.seek(0, 2)
        end = size if length == -1 else offset + length
        if not 0 <= offset <= end <= size:
            raise InvalidInput(
                f"column {column!r}: a descriptor names bytes {offset} to {end} of {uri}, which has {size}"
            )
        source.seek(offset)
        while offset < end:
            piece = source.read(min(_BUFFER_BYTES, end - offset))
            if not piece:
                raise InvalidInput(f"column {column!r}: {uri} ends at byte {offset}, {end - offset} bytes too early")
            offset += len(piece)
            yield piece
