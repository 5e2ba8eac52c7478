"""Paimon's blob files (`.blob`), read only: the values of one BLOB column, each with a checksum, then the index of their lengths.

Source: Paimon's specification, File Format, BLOB; lengths of NULL and of a value that an older file has, and descriptors, as in
pypaimon 2.1 (`BlobFormatWriter`, `BlobDescriptor`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from lakeformat.codec import spans, varint
from lakeformat.codec.arrow import arrow_schema
from lakeformat.errors import CorruptFile, UnsupportedFeature
from lakeformat.model.work import ReadTask
from lakeformat.storage.store import Reader

CHUNK_BYTES = 64 << 20  # Bytes of values per batch, unless one value is larger.

_MAGIC = (1481511375).to_bytes(4, "little")
_VERSION = 1
_NULL, _OLDER = -1, -2  # Lengths: of NULL, and of a row whose value is in an older file.
_HEAD, _TAIL = 4, 12  # Around a value: the magic; the length of the whole and its CRC-32.
_END = 5  # After the index: its length and the version.
_MOST_BYTES = (1 << 31) - 1  # In one value of Arrow's binary type.

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
            raise CorruptFile(f"{path}: {size} bytes are no blob file")
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


def read(store: Reader, task: ReadTask, files: Sequence[File], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The values of the task's rows (see `BlobRows`) from its `files`, in batches of at most `batch_rows` and about
    `CHUNK_BYTES`. Raises `CorruptFile` for damaged files, `UnsupportedFeature` for values of 2 GiB and more."""
    blobs = task.blobs
    assert blobs is not None, task
    source, places = np.full(blobs.row_count, -1), np.zeros(blobs.row_count, np.int64)
    weights = np.zeros(blobs.row_count, np.int64)
    for number, (file, first, count) in enumerate(zip(files, blobs.first_row_ids, task.row_counts, strict=True)):
        if len(file.lengths) != count:
            raise CorruptFile(f"{file.path}: the file holds {len(file.lengths)} rows, its table says {count}")
        begin = first - blobs.first_row_id
        taken = np.flatnonzero((source[begin : begin + count] < 0) & (file.lengths != _OLDER))
        source[begin + taken], places[begin + taken] = number, taken
        weights[begin + taken] = np.maximum(file.lengths[taken], 0)
        source[begin + taken[file.lengths[taken] == _NULL]] = len(files)
    if not blobs.as_descriptors and blobs.row_count and weights.max() > _MOST_BYTES:
        of = files[source[weights.argmax()]].path
        raise UnsupportedFeature(
            f"{of}: a value of {weights.max()} bytes, and Arrow's binary values have less than 2 GiB: set "
            "blob-as-descriptor=true, by which the table's rows say where the bytes are"
        )
    total = np.concatenate(([0], np.cumsum(weights)))
    schema, start = arrow_schema(task.fields), 0
    while start < blobs.row_count:
        end = int(total.searchsorted(total[start] + CHUNK_BYTES, "right")) - 1
        end = min(max(end, start + 1), start + batch_rows, blobs.row_count)
        pieces, index, count = [pa.nulls(1, pa.binary())], np.zeros(end - start, np.int64), 1
        for number, file in enumerate(files):
            own = np.flatnonzero(source[start:end] == number)
            if len(own):
                rows = places[start + own]
                pieces.append(
                    file.descriptors(rows, store.location(file.path)) if blobs.as_descriptors else file.values(rows)
                )
                index[own] = count + np.arange(len(own))
                count += len(own)
        yield pa.RecordBatch.from_arrays([pa.concat_arrays(pieces).take(pa.array(index))], schema=schema)
        start = end
