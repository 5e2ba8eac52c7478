"""Avro object container files <-> Arrow tables, columnar both ways."""

from __future__ import annotations

import bz2
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import lru_cache
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa

from lakeformat.codec.avro import decode as avro_decode
from lakeformat.codec.avro import encode as avro_encode
from lakeformat.codec.avro import few as avro_few
from lakeformat.codec.avro import schema as avro_schema
from lakeformat.errors import CorruptFile, InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass

CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")


@dataclass(frozen=True, slots=True)
class Decoded:
    """The content of an Avro file.

    `schema` is the writer's, as parsed JSON; for a union of a record with null, the record.
    """

    table: pa.Table
    schema: dict[str, Any]
    metadata: dict[str, bytes] = field(default_factory=dict)


def decode(
    data: bytes, columns: Sequence[str] | None = None, logical: bool = False, few_bytes: int = avro_few.READ_BYTES
) -> Decoded:
    """Every record of an Avro file, in order.

    `columns`: the names to keep, in the file's order; `a.b` keeps field b of the nested record a. Names that the file
    lacks are left out of the table; see also `avro_schema.select`. With `logical`, dates, times, timestamps and
    decimals get their Arrow types (timestamps have a zone only under `adjust-to-utc`); without it they stay integers
    and bytes. Records of up to `few_bytes` together are read one by one, which is faster for so few and gives the same
    result.

    Records with unions of several types are all read one by one, which is slow. Such a union has the type that holds
    the values of all its branches (`avro_schema.common_type`): int and long become int64, float and double float64, an
    enum and string string. Without such a type it is a struct without fields, null where the union is null.

    Raises `CorruptFile` for bytes that are no Avro file or that inflate out of proportion to their size, and
    `UnsupportedFeature` for an unknown codec or type; neither names the file.
    """
    head = read_head(data)
    batches = list(_read(data, head, columns, logical, _proportionate(len(data), _FILE_BYTES), few_bytes))
    wanted = head.record if columns is None else avro_schema.select(head.record, tuple(columns))
    return Decoded(
        pa.Table.from_batches(batches, avro_schema.arrow_schema(wanted, logical)), head.schema, head.metadata
    )


def parse_together(
    files: Sequence[bytes],
    where: Sequence[str],
    parse: Callable[[bytes, str], pa.Table],
    conform: Callable[[Decoded, str], pa.Table],
    logical: bool = False,
) -> list[pa.Table]:
    """The result of `parse` for each file. Undamaged files of one schema and codec are decoded together and given to
    `conform`: the columnar decoder costs time per call, so many small files take little longer than one."""
    if len(files) > 1:
        with suppress(Exception):  # `parse` finds below which file is wrong, and why.
            together = _decode_together(files, logical)
            if together is not None:
                decoded, counts = together
                table = conform(decoded, where[0])
                ends = np.cumsum(counts).tolist()
                return [table.slice(end - count, count) for end, count in zip(ends, counts, strict=True)]
    return [parse(data, name) for data, name in zip(files, where, strict=True)]


def _decode_together(files: Sequence[bytes], logical: bool) -> tuple[Decoded, list[int]] | None:
    """Small files of one schema and codec decoded as one, with the key-value metadata of the first, and the number of
    records of each. None if they differ or are large. Raises any exception for damaged files."""
    heads = [read_head(data) for data in files]
    first = heads[0]
    if first.null_at is not None or not avro_schema.min_bytes(first.record) or first.has_unions:
        return None
    if len({(head.metadata["avro.schema"], head.codec) for head in heads}) > 1:
        return None
    joined, blocks, counts = bytearray(), [], []
    room = np.empty(_FILE_BYTES_TOGETHER + avro_decode.PADDING, np.uint8)
    for data, head in zip(files, heads, strict=True):
        count = end = 0
        for number, (records, packed) in enumerate(_blocks(data, head.size_bytes, head.sync)):
            size = _inflate(head.codec, packed, room[end : len(room) - avro_decode.PADDING], number)
            if size is None:
                return None
            blocks.append(avro_decode.Block(len(joined) + end, len(joined) + end + size, records))
            count, end = count + records, end + size
        joined += room[:end].data
        counts.append(count)
    buffer = np.frombuffer(joined + bytes(avro_decode.PADDING), np.uint8)
    batch = avro_decode.columns(first.record, None, buffer, blocks, logical, avro_decode.Looks())
    table = pa.Table.from_batches([batch], avro_schema.arrow_schema(first.record, logical))
    return Decoded(table, first.schema, first.metadata), counts


def batches(
    data: bytes, columns: Callable[[Head], Sequence[str]] | None = None, logical: bool = False
) -> Iterator[pa.RecordBatch]:
    """The records of an Avro file in batches of some megabytes of blocks; one empty batch for a file without records.
    See `decode`. `columns` chooses the columns to keep by the file's head."""
    head = read_head(data)
    chosen = None if columns is None else tuple(columns(head))
    tables = _read(data, head, chosen, logical, _proportionate(len(data), _FILE_BYTES), avro_few.READ_BYTES)
    first = next(tables, None)
    wanted = head.record if chosen is None else avro_schema.select(head.record, chosen)
    yield first if first is not None else avro_schema.arrow_schema(wanted, logical).empty_table().to_batches()[0]
    yield from tables


def values_at(data: bytes, record: str, names: Sequence[str], places: np.ndarray) -> Iterator[pa.RecordBatch]:
    """The fields `names`, given in the file's order, of the record `record` in each row, in the same batches as
    `batches`. `places`: where the first of them begins, as `batches` returns them for `record.first@`."""
    head = read_head(data)
    node = avro_schema.between(head.record, record, names)
    start = 0
    for buffer, blocks in _batches(
        data, head.size_bytes, head.sync, head.codec, _proportionate(len(data), _FILE_BYTES)
    ):
        end = start + sum(block.count for block in blocks)
        values = avro_decode.values_at(node, buffer, blocks, places[start:end].astype(np.int64))
        yield pa.RecordBatch.from_struct_array(values)
        start = end
    if start != len(places):
        raise CorruptFile(f"it holds {start} records, of {len(places)} is known where they begin")


@dataclass(frozen=True, slots=True)
class Head:
    """The header of an Avro file, before its records. `schema` is as in `Decoded`."""

    schema: dict[str, Any]
    metadata: dict[str, bytes]
    record: avro_schema.Record
    null_at: int | None
    sync: bytes
    size_bytes: int

    @property
    def codec(self) -> str:
        return self.metadata.get("avro.codec", b"null").decode(errors="replace")

    @property
    def has_unions(self) -> bool:
        """Whether records have unions of several types."""
        return avro_schema.has_unions(self.record)

    def arrow_schema(self) -> pa.Schema:
        """The columns as a read with `logical` returns them. Raises `UnsupportedFeature` for a union that no type
        expresses."""
        avro_schema.require_types(self.record)
        return avro_schema.arrow_schema(self.record, True)


def read_head(data: bytes) -> Head:
    """The head of an Avro file. Raises as `decode` does."""
    metadata, sync, offset = _header(data)
    if "avro.schema" not in metadata:
        raise CorruptFile("the Avro header has no avro.schema")
    parsed, record, null_at = _tree(metadata["avro.schema"])
    schema = parsed if null_at is None else next(branch for branch in parsed if branch != "null")
    head = Head(schema, metadata, record, null_at, sync, offset)
    if head.codec not in CODECS:
        raise UnsupportedFeature(f"Avro codec {head.codec!r}; supported: {', '.join(CODECS)}")
    return head


def read(
    data: bytes, head: Head, columns: Sequence[str] | None = None, logical: bool = False
) -> Iterator[pa.RecordBatch]:
    """The records of an Avro file in batches of some megabytes of blocks; see `decode`."""
    return _read(data, head, columns, logical, None, avro_few.READ_BYTES)


def _read(
    data: bytes, head: Head, columns: Sequence[str] | None, logical: bool, most: int | None, few_bytes: int
) -> Iterator[pa.RecordBatch]:
    """`most`: the limit on the inflated size of the whole file, in bytes."""
    codec = head.codec
    record = head.record if columns is None else avro_schema.select(head.record, tuple(columns))
    looks = avro_decode.Looks()
    number = inflated = empty = 0
    is_empty = not avro_schema.min_bytes(head.record) and head.null_at is None
    for buffer, blocks in _batches(data, head.size_bytes, head.sync, codec, most):
        inflated += blocks[-1].end
        if most is not None and inflated > most:
            raise CorruptFile(f"a file of {len(data)} bytes inflates to more than {most}")
        empty += sum(block.count for block in blocks) if is_empty else 0
        if empty > avro_decode.EMPTY_RECORDS:
            raise CorruptFile(f"a file of {len(data)} bytes says that it holds {empty} records of no bytes")
        if head.has_unions:
            for block in blocks:
                own = memoryview(buffer[block.begin : block.end].tobytes())
                try:
                    yield avro_few.read_unions(record, head.null_at, own, block.count, logical)
                except CorruptFile as error:
                    raise CorruptFile(f"block {number}: {error}") from error
                number += 1
            continue
        end, count = blocks[-1].end, sum(block.count for block in blocks)
        if count and end <= few_bytes and len(blocks) == 1:
            few = avro_few.read(record, head.null_at, buffer[:end].tobytes(), count, logical)
            if few is not None:
                yield few
                number += 1
                continue
        try:
            yield avro_decode.columns(record, head.null_at, buffer, blocks, logical, looks)
        except CorruptFile as error:
            raise CorruptFile(f"blocks {number} to {number + len(blocks) - 1} together: {error}") from error
        number += len(blocks)


def spell(schema: Mapping[str, Any]) -> bytes:
    """A writer schema as the text that `encode` puts into the header."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False).encode()


def encode(
    table: pa.Table,
    schema: Mapping[str, Any] | bytes,
    codec: str = "zstandard",
    metadata: Mapping[str, bytes] | None = None,
    level: int | None = None,
    sync: bytes | None = None,
    block_bytes: int = 64_000,
    few_bytes: int = avro_few.WRITE_BYTES,
) -> bytes:
    """`table` as an Avro file with the writer schema `schema`, or with its text from `spell`, stored unchanged.

    Columns are matched by name; a column that the table lacks is null if the schema allows it. A block ends when it
    holds `block_bytes`. With `sync` (16 bytes) equal input gives equal bytes. `level` is the codec's compression level,
    by default 1 for zstandard and 6 for deflate. A table of up to `few_bytes` in memory is written record by record, to
    the same bytes. Raises `InvalidInput` if table and schema do not match.
    """
    text = schema if isinstance(schema, bytes) else spell(schema)
    _, record, null_at = _tree(text)
    if avro_schema.has_unions(record):
        refusal = next(avro_schema.unions(record)).refusal()
        raise UnsupportedFeature(f"{refusal}; unions of several types are read, not written")
    few = few_records(table, text, few_bytes)
    if few is not None and len(few) <= block_bytes:
        blocks: Iterable[tuple[int, memoryview]] = [(table.num_rows, memoryview(few))]
    else:
        blocks = avro_encode.blocks(record, null_at, table, block_bytes)
    return _framed(blocks, text, codec, metadata or {}, level, sync)


def few_records(table: pa.Table, text: bytes, few_bytes: int = avro_few.WRITE_BYTES) -> bytes | None:
    """The encoded records of a table of up to `few_bytes` in memory, concatenated, in the schema `text`; None for
    larger and for empty tables, and for types that `avro_few` does not encode."""
    _, record, null_at = _tree(text)
    is_few = table.num_rows and table.get_total_buffer_size() <= few_bytes
    return avro_few.write(record, null_at, table) if is_few else None


def of_records(
    count: int,
    records: bytes,
    text: bytes,
    codec: str = "zstandard",
    metadata: Mapping[str, bytes] | None = None,
) -> bytes:
    """The file of `count` records in one block. `records` are those of `few_records`, of one table or of several
    concatenated."""
    return _framed([(count, memoryview(records))], text, codec, metadata or {}, None, None)


def _framed(
    blocks: Iterable[tuple[int, memoryview]],
    text: bytes,
    codec: str,
    metadata: Mapping[str, bytes],
    level: int | None,
    sync: bytes | None,
) -> bytes:
    if codec not in CODECS:
        raise InvalidInput(f"Avro codec {codec!r}; supported: {', '.join(CODECS)}")
    if sync is not None and len(sync) != 16:
        raise InvalidInput(f"an Avro sync marker has 16 bytes, not {len(sync)}")
    reserved = [name for name in metadata if name.startswith("avro.")]
    if reserved:
        raise InvalidInput(f"metadata {reserved[0]!r}: names that begin with 'avro.' belong to the format")
    marker = os.urandom(16) if sync is None else sync
    head = {"avro.schema": text, "avro.codec": codec.encode(), **metadata}
    out = [_MAGIC, avro_encode.varint(len(head))]
    for name, value in head.items():
        out += [avro_encode.varint(len(name.encode())), name.encode(), avro_encode.varint(len(value)), bytes(value)]
    out += [avro_encode.varint(0), marker]
    for count, block in blocks:
        packed = _compress(codec, block, level)
        out += [avro_encode.varint(count), avro_encode.varint(len(packed)), packed, marker]
    return b"".join(out)


_MAGIC = b"Obj\x01"
_ENCRYPTED = b"AGS1"  # Iceberg's AES GCM streams (spec: gcm-stream-spec.md).
_BATCH_BYTES = 4 << 20  # Blocks are decoded together up to this inflated size, so that numpy's arrays stay in cache.
# Limits on the inflated size of a block and of a file that is decoded as a whole: this much, or more in proportion to
# its compressed size. Manifests inflate up to fifty times. Repetitive rows inflate more, but writers end a block long
# before the limit.
_BLOCK_BYTES, _FILE_BYTES, _RATIO = 64 << 20, 32 << 20, 256
_FILE_BYTES_TOGETHER = 4 << 20  # The limit on the inflated size of each file that is decoded together with others.
_FEW_RECORDS = 1 << 16  # A block of up to this many records may inflate to _BLOCK_BYTES_MAX: its last row may be large.
_BLOCK_BYTES_MAX = 1 << 30


@lru_cache(maxsize=64)
def _tree(text: bytes) -> tuple[Any, avro_schema.Record, int | None]:
    """(the parsed schema, its tree, the branch of null); the same objects for the same text, which are never
    changed."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"the Avro header's schema is not JSON: {error}") from error
    return parsed, *avro_schema.parse(parsed)


def _header(data: bytes) -> tuple[dict[str, bytes], bytes, int]:
    """(metadata, sync marker, where the blocks begin)."""
    if data[:4] == _ENCRYPTED:
        raise UnsupportedFeature("an encrypted file (AES GCM), of which the table's metadata names no key")
    if data[:4] != _MAGIC:
        raise CorruptFile(f"not an Avro file: it begins with {bytes(data[:4])!r}, not {_MAGIC!r}")
    metadata: dict[str, bytes] = {}
    try:
        offset = 4
        while True:
            count, offset = avro_decode.varint(data, offset)
            if count < 0:
                count = -count
                _, offset = avro_decode.varint(data, offset)
            if not count:
                break
            for _ in range(count):
                name, offset = _sized(data, offset)
                metadata[name.decode()], offset = _sized(data, offset)
    except IndexError as error:
        raise CorruptFile(f"the Avro header is cut off at byte {len(data)}") from error
    except UnicodeDecodeError as error:
        raise CorruptFile(f"a name in the Avro header is not UTF-8: {error}") from error
    if offset + 16 > len(data):
        raise CorruptFile(f"the Avro header is cut off at byte {len(data)}, within its sync marker")
    return metadata, bytes(data[offset : offset + 16]), offset + 16


def _sized(data: bytes, offset: int) -> tuple[bytes, int]:
    size, offset = avro_decode.varint(data, offset)
    if size < 0 or offset + size > len(data):
        raise CorruptFile(f"the Avro header holds a length of {size} at byte {offset} of {len(data)}")
    return bytes(data[offset : offset + size]), offset + size


def _batches(
    data: bytes, offset: int, sync: bytes, codec: str, file_bytes: int | None
) -> Iterator[tuple[np.ndarray, list[avro_decode.Block]]]:
    """Inflated blocks, several at a time, in a buffer that is reused."""
    buffer = np.empty(2 * _BATCH_BYTES + avro_decode.PADDING, np.uint8)
    blocks: list[avro_decode.Block] = []
    end = 0
    for number, (count, packed) in enumerate(_blocks(data, offset, sync)):
        most = file_bytes or (_BLOCK_BYTES_MAX if count <= _FEW_RECORDS else _proportionate(len(packed), _BLOCK_BYTES))
        room = min(most, _BLOCK_BYTES_MAX) + avro_decode.PADDING
        while True:
            size = _inflate(codec, packed, buffer[end : len(buffer) - avro_decode.PADDING], number)
            if size is not None:
                break
            if end:
                yield _padded(buffer, end), blocks
                blocks, end = [], 0
            elif len(buffer) >= room:
                raise CorruptFile(
                    f"block {number} of {len(packed)} bytes, {count} records, inflates to more than {room} bytes"
                )
            else:
                buffer = np.empty(min(4 * len(buffer), room), np.uint8)
        blocks.append(avro_decode.Block(end, end + size, count))
        end += size
        if end >= _BATCH_BYTES:
            yield _padded(buffer, end), blocks
            blocks, end = [], 0
    if blocks:
        yield _padded(buffer, end), blocks


def _proportionate(size: int, least: int) -> int:
    return max(least, _RATIO * size)


def _padded(buffer: np.ndarray, end: int) -> np.ndarray:
    buffer[end : end + avro_decode.PADDING] = 0
    return buffer


def _blocks(data: bytes, offset: int, sync: bytes) -> Iterator[tuple[int, memoryview]]:
    """(number of records, compressed bytes) of each block."""
    view = memoryview(data)
    number = 0
    while offset < len(data):
        try:
            count, begin = avro_decode.varint(data, offset)
            size, begin = avro_decode.varint(data, begin)
        except IndexError as error:
            raise CorruptFile(f"cut off at byte {len(data)}, within the head of block {number}") from error
        offset = begin + size + 16
        if count < 0 or size < 0 or offset > len(data):
            raise CorruptFile(
                f"block {number} says {count} records in {size} bytes at byte {begin}; the file ends at {len(data)}"
            )
        if view[offset - 16 : offset] != sync:
            raise CorruptFile(f"block {number} does not end with the file's sync marker at byte {offset - 16}")
        yield count, view[begin : begin + size]
        number += 1


def _inflate(codec: str, packed: memoryview, into: np.ndarray, number: int) -> int | None:
    """The number of bytes that the block fills in `into`; None if `into` is too small."""
    try:
        match codec:
            case "zstandard":
                return int(cramjam.zstd.decompress_into(packed, into.data)) if len(packed) else 0
            case "snappy":
                return _unsnap(packed, into)
            case "null":
                plain: Any = packed
            case "deflate":
                stream = zlib.decompressobj(-15)
                plain = stream.decompress(packed, len(into) + 1)
                # fastavro leaves three bytes of zlib's checksum after the stream.
                _whole(stream.eof or len(plain) > len(into), stream.unused_data[4:])
            case "bzip2":
                bunzip = bz2.BZ2Decompressor()
                plain = bunzip.decompress(packed, len(into) + 1)
                _whole(bunzip.eof or len(plain) > len(into), bunzip.unused_data)
            case "xz":
                unxz = lzma.LZMADecompressor(memlimit=_BLOCK_BYTES_MAX)
                plain = unxz.decompress(packed, len(into) + 1)
                _whole(unxz.eof or len(plain) > len(into), unxz.unused_data)
    except (cramjam.DecompressionError, zlib.error, lzma.LZMAError, OSError, ValueError, EOFError) as error:
        if "failed to write whole buffer" in str(error):
            return None
        raise CorruptFile(f"block {number} of {len(packed)} bytes is not valid {codec} data: {error}") from error
    if len(plain) > len(into):
        return None
    into[: len(plain)] = np.frombuffer(plain, np.uint8)
    return len(plain)


def _whole(complete: bool, rest: bytes) -> None:
    if not complete:
        raise ValueError("it is cut off")
    if rest:
        raise ValueError(f"{len(rest)} bytes follow its end")


def _unsnap(packed: memoryview, into: np.ndarray) -> int | None:
    """Snappy's raw format, followed by the big-endian CRC-32 of the inflated bytes."""
    if len(packed) < 5:
        raise ValueError("shorter than its checksum")
    size = cramjam.snappy.decompress_raw_len(packed[:-4])
    if size > len(into):
        return None
    cramjam.snappy.decompress_raw_into(packed[:-4], into.data[:size])
    if zlib.crc32(into.data[:size]) != int.from_bytes(packed[-4:], "big"):
        raise ValueError("its checksum is wrong")
    return int(size)


def _compress(codec: str, plain: memoryview, level: int | None) -> bytes:
    match codec:
        case "zstandard":
            return bytes(cramjam.zstd.compress(plain, 1 if level is None else level))
        case "deflate":
            stream = zlib.compressobj(6 if level is None else level, zlib.DEFLATED, -15)
            return stream.compress(plain) + stream.flush()
        case "snappy":
            return bytes(cramjam.snappy.compress_raw(plain)) + zlib.crc32(plain).to_bytes(4, "big")
        case "bzip2":
            return bz2.compress(plain, 9 if level is None else level)
        case "xz":
            return lzma.compress(plain, preset=6 if level is None else level)
    return bytes(plain)
