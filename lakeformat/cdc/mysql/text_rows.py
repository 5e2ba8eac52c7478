"""Decodes SELECT results in MySQL's text protocol into columns, all rows at once.

A row is a packet with the length and the text of each column. PyMySQL converts values one by one, which takes twenty
times as long.

Source: MySQL internals, "Text Resultset Row" and "Length-Encoded Integer".
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
from pymysql.constants import CR
from pymysql.cursors import SSCursor
from pymysql.protocol import MysqlPacket

from lakeformat.codec import spans
from lakeformat.errors import CorruptFile

_HEADER = 4  # Bytes before each packet: length (3) and sequence number (1).
_WHOLE = 0xFFFFFF  # A packet of this length continues in the next one.
_NULL, _TWO, _THREE, _EIGHT = 0xFB, 0xFC, 0xFD, 0xFE
_END, _ERROR, _END_BYTES = 0xFE, 0xFF, 9
_READ_BYTES = 1 << 18
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows as the server sent them."""

    data: bytearray
    starts: np.ndarray  # Per row.
    ends: np.ndarray
    # Per column: its encoding, and PyMySQL's converter.
    readers: Sequence[tuple[str | None, Callable[[str], Any] | None]]
    is_last: bool  # False: more rows of the query follow.


@dataclass(frozen=True, slots=True)
class TextColumn:
    """The values of a column."""

    texts: pa.Array  # Binary array.
    encoding: str | None
    reader: Callable[[Any], Any] | None

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, rows: slice) -> TextColumn:
        return replace(self, texts=self.texts[rows])

    def last_value(self) -> Any:
        """The last value as PyMySQL converts it."""
        return self[len(self) - 1 :].values()[0]

    def values(self) -> list[Any]:
        """The values as PyMySQL converts them."""
        values = self.texts.to_pylist()
        if self.encoding is not None:
            values = [None if text is None else _decoded(text, self.encoding) for text in values]
        return values if self.reader is None else [None if text is None else self.reader(text) for text in values]


def _decoded(text: bytes, encoding: str) -> str:
    """The server's UTF-8, in which the halves of a UCS-2 pair are characters of their own."""
    try:
        return text.decode(encoding)
    except UnicodeDecodeError:
        pairs = text.decode(encoding, "surrogatepass").encode("utf_16_be", "surrogatepass")
        return pairs.decode("utf_16_be", "replace")


def fetch(connection: Any, query: str, values: Sequence[Any], limit: int) -> Generator[TextRows]:
    """Fetch all rows of a query, about `limit` bytes at a time; at least one piece, which may be empty. The server
    waits meanwhile. Raises PyMySQL's errors; closes the connection if it fails or ends halfway."""
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(query, tuple(values))  # Passed even if empty: % is doubled in names.
        result = cursor._result
        try:
            for data, starts, ends, is_last in _packets(connection, limit):
                yield TextRows(data, starts, ends, result.converters, is_last)
        except OSError as error:
            connection._force_close()
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, f"the connection was lost ({error})") from error
        except BaseException:
            connection._force_close()
            raise
        finally:
            result.unbuffered_active, result.connection = False, None


def _packets(connection: Any, limit: int) -> Iterator[tuple[bytearray, np.ndarray, np.ndarray, bool]]:
    """The bytes of about `limit` bytes of rows, the start and the end of each row, and whether no more follow."""
    data, starts, ends = bytearray(), array("q"), array("q")
    offset, is_continued, read, length_at = 0, False, connection._rfile.read1, _LENGTH.unpack_from
    while True:
        got = read(_READ_BYTES)
        if not got:
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, "the server ended the connection within a query")
        data += got
        while offset + _HEADER <= len(data):
            size = length_at(data, offset)[0] & _WHOLE
            end = offset + _HEADER + size
            if end > len(data):
                break
            if is_continued:
                del data[offset : offset + _HEADER]
                end -= _HEADER
                ends[-1] = end
            else:
                mark = data[offset + _HEADER]
                if mark == _END and size < _END_BYTES:
                    yield data, np.array(starts, np.int64), np.array(ends, np.int64), True
                    return
                if mark == _ERROR:
                    MysqlPacket(bytes(data[offset + _HEADER : end]), connection.encoding).raise_for_error()
                if offset >= limit:
                    rest = data[offset:]
                    del data[offset:]
                    yield data, np.array(starts, np.int64), np.array(ends, np.int64), False
                    data, starts, ends, end, offset = rest, array("q"), array("q"), end - offset, 0
                starts.append(offset + _HEADER)
                ends.append(end)
            offset, is_continued = end, size == _WHOLE


def columns(rows: TextRows) -> list[TextColumn]:
    """Split rows into columns. Raises `CorruptFile` if a row does not end where its packet does."""
    rows.data.extend(bytes(2 * spans.WORD))
    buffer, offsets, result = np.frombuffer(rows.data, np.uint8), rows.starts, list[TextColumn]()
    words = spans.words(buffer)
    for encoding, reader in rows.readers:
        marks = buffer[offsets]
        is_null, begins = marks == _NULL, offsets + 1
        sizes = np.where(is_null, 0, marks).astype(np.int64)
        if len(marks) and int(marks.max()) > _NULL:
            for mark, width in ((_TWO, 2), (_THREE, 3), (_EIGHT, 8)):
                long = np.flatnonzero(marks == mark)
                unused = np.uint64(64 - 8 * width)
                sizes[long] = ((words[offsets[long] + 1] << unused) >> unused).astype(np.int64)
                begins[long] += width
        offsets = begins + sizes
        if len(offsets) and int(offsets.max()) > len(buffer) - spans.WORD:
            raise CorruptFile("the server sent a row that ends beyond its packet")
        result.append(
            TextColumn(spans.gather(buffer, begins, offsets, is_null if is_null.any() else None), encoding, reader)
        )
    if (offsets != rows.ends).any():
        raise CorruptFile("the server sent a row that does not end with its packet")
    return result
