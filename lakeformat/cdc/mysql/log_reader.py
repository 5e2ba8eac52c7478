"""Reads the binary log of a MySQL or MariaDB server event by event, as a replica does.

A connection that drops ends the reading: one that reconnects by itself would get events twice.

Source: MySQL internals, "Binary Log Event", "COM_BINLOG_DUMP" and "COM_BINLOG_DUMP_GTID"; MariaDB documentation,
"Replication Protocol".
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import cramjam
import pymysql
from pymysql.constants import CR
from pymysql.protocol import MysqlPacket

from lakeformat.cdc.mysql.gtids import Gtid, Gtids
from lakeformat.errors import CorruptFile, SourceError, UnsupportedFeature
from lakeformat.model.work import RowKind


class EventType(IntEnum):
    """The types of events that are read; all others that a server may write change nothing."""

    QUERY = 2
    ROTATE = 4
    FORMAT_DESCRIPTION = 15
    XID = 16
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    INCIDENT = 26
    HEARTBEAT = 27
    GTID = 33
    ANONYMOUS_GTID = 34
    XA_PREPARE = 38
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    TAGGED_GTID = 42
    MARIADB_GTID = 162
    QUERY_COMPRESSED = 165


_ROWS = {  # Type -> (kind of its rows, whether it has extra data: version 2).
    23: (RowKind.INSERT, False),
    24: (RowKind.UPDATE_AFTER, False),
    25: (RowKind.DELETE, False),
    30: (RowKind.INSERT, True),
    31: (RowKind.UPDATE_AFTER, True),
    32: (RowKind.DELETE, True),
    39: (RowKind.UPDATE_AFTER, True),
    166: (RowKind.INSERT, False),
    167: (RowKind.UPDATE_AFTER, False),
    168: (RowKind.DELETE, False),
    169: (RowKind.INSERT, True),
    170: (RowKind.UPDATE_AFTER, True),
    171: (RowKind.DELETE, True),
}
# Events that say nothing of how others are to be read.
_PLAIN = frozenset(
    {*_ROWS, *map(int, (EventType.QUERY, EventType.XID, EventType.TABLE_MAP, EventType.GTID, EventType.MARIADB_GTID))}
)
_PARTIAL_UPDATE = 39
_COMPRESSED_ROWS = range(166, 172)
_LAST_MYSQL, _FIRST_MARIADB, _LAST_MARIADB = 42, 160, 171
_IGNORABLE = 0x80  # Flag of an event that a reader may skip without knowing it.
_HEADER = struct.Struct("<xIBIIIH")  # A packet's mark; time, type, server id, size, end in the file, flags.
_HEADER_BYTES, _CHECKSUM_BYTES = _HEADER.size, 4
_FRAME = struct.Struct("<IBIBIIIH")  # The same after the packet's length and number.
_PACKET_HEADER, _WHOLE = 4, 0xFFFFFF  # A packet of this length continues in the next one.
_END, _ERROR, _END_BYTES = 0xFE, 0xFF, 9
_READ_BYTES = 1 << 18
_LENGTH = struct.Struct("<I")
_MARIADB_GTID, _MYSQL_GTID = struct.Struct("<QIB"), struct.Struct("<x16sQ")
_DUMP, _DUMP_GTID = 0x12, 0x1E
_BEGINNINGS = 10_000  # Of row events: how many are kept.
_THROUGH_GTID = 4  # Flag of COM_BINLOG_DUMP_GTID.
_FIRST_OFFSET = 4
_NO_TABLE = 0xFFFFFF  # Table id of an event without rows, which ends a statement.
_VERSION_BYTES = 56  # Of a format description: version, server version, time, header length.
_COMPRESSION, _ZSTD = 2, 0  # Field of a compressed transaction, and its value.
_TIMEOUT_SECONDS = 60.0  # Without an event or a heartbeat the connection is lost.


class Event(NamedTuple):
    """An event that the server sent."""

    type: int
    time: int  # Seconds since 1970.
    server: int
    body: bytes  # Without header and checksum.


class RowsEvent(NamedTuple):
    """Rows of one table. An update has two images of each row."""

    table_id: int
    kind: RowKind
    is_partial: bool  # Updates that have parts of JSON values.
    is_whole: bool  # Whether the rows have all columns.
    rows: bytes


class _Beginning(NamedTuple):
    """What stands before the rows of an event: the same bytes in all events of a table, a kind and flags."""

    content: bytes
    table_id: int
    kind: RowKind
    is_partial: bool
    is_whole: bool


class LogReader:
    """Reads the log after an offset in a file, or after a set of GTIDs. `file` and `offset`: the position after the
    last event read."""

    def __init__(
        self,
        connection: Any,
        server_id: int,
        after: tuple[str, int] | Gtids,
        heartbeat_seconds: float,
        *,
        is_mariadb: bool,
    ) -> None:
        self.file, self.offset = after if isinstance(after, tuple) else ("", _FIRST_OFFSET)
        self._connection, self._read = connection, connection._rfile.read1
        self._data, self._start = b"", 0
        self._beginnings: dict[tuple[int, bytes], _Beginning] = {}  # By the event's type, and table id and flags.
        self._inner: deque[Event] = deque()  # Events of a compressed transaction.
        self._id_bytes, self._query_bytes = 6, 13
        connection._sock.settimeout(_TIMEOUT_SECONDS)
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@global.binlog_checksum")
            self._checksum_bytes = 0 if cursor.fetchone()[0] == "NONE" else _CHECKSUM_BYTES
            cursor.execute("SET @master_binlog_checksum = @@global.binlog_checksum")
            cursor.execute("SET @master_heartbeat_period = %s", (int(heartbeat_seconds * 1e9),))
            # With a lower capability MariaDB rewrites GTID events.
            cursor.execute("SET @mariadb_slave_capability = 4")
            if is_mariadb and isinstance(after, Gtids):
                cursor.execute("SET @slave_connect_state = %s", (str(after),))
                cursor.execute("SET @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0")
        if isinstance(after, tuple) or is_mariadb:
            command, request = _DUMP, struct.pack("<IHI", self.offset, 0, server_id) + self.file.encode()
        else:
            known = _encoded(after)
            request = struct.pack("<HIIQI", _THROUGH_GTID, server_id, 0, _FIRST_OFFSET, len(known)) + known
            command = _DUMP_GTID
        connection._execute_command(command, request)

    def fetch(self) -> Event | None:
        """The next event; None if the server ended the log. Raises PyMySQL's errors."""
        if self._inner:
            return self._inner.popleft()
        data, start = self._data, self._start
        body_start = start + _FRAME.size
        if body_start <= len(data):
            size, mark, time, type, server, _, end, flags = _FRAME.unpack_from(data, start)
            size &= _WHOLE
            stop = start + _PACKET_HEADER + size
            if type in _PLAIN and not mark and size < _WHOLE and stop <= len(data):
                self._start = stop
                if end:
                    self.offset = end
                return Event(type, time, server, data[body_start : stop - self._checksum_bytes])
        packet = self._packet()
        mark = packet[0]
        if mark == _END and len(packet) < _END_BYTES:
            return None
        if mark == _ERROR:
            MysqlPacket(packet, self._connection.encoding).raise_for_error()
        time, type, server, _, end, flags = _HEADER.unpack_from(packet)
        body = packet[_HEADER_BYTES : len(packet) - self._checksum_bytes]
        if end:
            self.offset = end
        if type in _PLAIN:
            return Event(type, time, server, body)
        if type == EventType.ROTATE:
            self.offset, self.file = int.from_bytes(body[:8], "little"), body[8:].decode()
        elif type == EventType.FORMAT_DESCRIPTION:
            self._describe(packet[_HEADER_BYTES:])
        elif type == EventType.TRANSACTION_PAYLOAD:
            self._inner.extend(_of_payload(body))
            return self.fetch()
        elif type > _LAST_MARIADB or _LAST_MYSQL < type < _FIRST_MARIADB or type == EventType.TAGGED_GTID:
            if not flags & _IGNORABLE:
                what = "a GTID with a tag" if type == EventType.TAGGED_GTID else f"an event of type {type}"
                raise UnsupportedFeature(
                    f"the server's log before {self.file}:{self.offset} has {what}, which is not known"
                )
        elif type == EventType.INCIDENT:
            raise SourceError(
                f"the server recorded before {self.file}:{self.offset} that its log lacks changes; "
                "load the tables again (restart=True)"
            )
        return Event(type, time, server, body)

    def rows(self, event: Event) -> RowsEvent | None:
        """The rows of an event; None if it is of another type, or has none."""
        type, body = event.type, event.body
        if type not in _ROWS:
            return None
        key = type, body[: self._id_bytes + 2]
        beginning = self._beginnings.get(key)
        if beginning is None or not body.startswith(beginning.content):
            beginning = self._beginning(type, body)
            if beginning is None:
                return None
            if len(self._beginnings) >= _BEGINNINGS:
                self._beginnings.clear()
            self._beginnings[key] = beginning
        content, table_id, kind, is_partial, is_whole = beginning
        rows = body[len(content) :]
        return RowsEvent(table_id, kind, is_partial, is_whole, _inflated(rows) if type in _COMPRESSED_ROWS else rows)

    def _beginning(self, type: int, body: bytes) -> _Beginning | None:
        """What stands before the rows of an event; None if it has no rows."""
        kind, has_extra = _ROWS[type]
        table_id = int.from_bytes(body[: self._id_bytes], "little")
        if table_id == _NO_TABLE:
            return None
        start = self._id_bytes + 2
        if has_extra:
            start += int.from_bytes(body[start : start + 2], "little")
        count, start = packed_int(body, start)
        size, is_whole = (count + 7) // 8, True
        for _ in range(2 if kind is RowKind.UPDATE_AFTER else 1):
            present = int.from_bytes(body[start : start + size], "little")
            is_whole &= present & (1 << count) - 1 == (1 << count) - 1
            start += size
        return _Beginning(body[:start], table_id, kind, type == _PARTIAL_UPDATE, is_whole)

    def table(self, event: Event) -> tuple[int, bytes]:
        """The table id of a table map event, and its description."""
        return int.from_bytes(event.body[: self._id_bytes], "little"), event.body[self._id_bytes + 2 :]

    def statement(self, event: Event) -> tuple[str, str]:
        """(database, statement) of a query event."""
        body, fixed = event.body, self._query_bytes
        database_bytes, status_bytes = body[8], int.from_bytes(body[11:13], "little")
        if event.type == EventType.EXECUTE_LOAD_QUERY:
            fixed += 13
        start = fixed + status_bytes
        database, query = body[start : start + database_bytes], body[start + database_bytes + 1 :]
        if event.type == EventType.QUERY_COMPRESSED:
            query = _inflated(query)
        return database.decode(errors="replace"), query.decode(errors="replace")

    def close(self) -> None:
        self._connection._force_close()

    def _describe(self, body: bytes) -> None:
        """Read how the events of a file are encoded."""
        sizes = body[_VERSION_BYTES + 1 : -_CHECKSUM_BYTES - 1]
        self._checksum_bytes = _CHECKSUM_BYTES if body[-_CHECKSUM_BYTES - 1] else 0
        self._id_bytes = sizes[EventType.TABLE_MAP - 1] - 2
        self._beginnings.clear()
        self._query_bytes = sizes[EventType.QUERY - 1]

    def _packet(self) -> bytes:
        whole = b""
        while True:
            self._require(_PACKET_HEADER)
            size = _LENGTH.unpack_from(self._data, self._start)[0] & _WHOLE
            self._require(_PACKET_HEADER + size)
            start = self._start + _PACKET_HEADER
            self._start = start + size
            part = self._data[start : self._start]
            whole = whole + part if whole else part
            if size < _WHOLE:
                return whole

    def _require(self, size: int) -> None:
        """Read until `size` bytes follow `_start`."""
        available = len(self._data) - self._start
        if available >= size:
            return
        parts = [self._data[self._start :]]
        while available < size:
            try:
                more = self._read(_READ_BYTES)
            except OSError as error:
                raise pymysql.OperationalError(CR.CR_SERVER_LOST, f"the connection was lost ({error})") from error
            if not more:
                raise pymysql.OperationalError(CR.CR_SERVER_LOST, "the server ended the connection")
            parts.append(more)
            available += len(more)
        self._data, self._start = b"".join(parts), 0


def mariadb_gtid(event: Event) -> tuple[Gtid, int]:
    """The GTID of a MariaDB event, and the event's flags."""
    number, domain, flags = _MARIADB_GTID.unpack_from(event.body)
    return Gtid(domain, number, event.server), flags


def mysql_gtid(event: Event) -> Gtid:
    source, number = _MYSQL_GTID.unpack_from(event.body)
    return Gtid(_uuid(source), number)


@lru_cache(64)
def _uuid(source: bytes) -> str:
    return str(UUID(bytes=source))


def packed_int(data: bytes, start: int) -> tuple[int, int]:
    """A length-encoded integer, and where it ends."""
    first = data[start]
    if first < 0xFB:
        return first, start + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
    if size is None:
        raise CorruptFile("binary log: no length-encoded integer where one belongs")
    return int.from_bytes(data[start + 1 : start + 1 + size], "little"), start + 1 + size


def _encoded(gtids: Gtids) -> bytes:
    """A set of MySQL's GTIDs, as COM_BINLOG_DUMP_GTID has it."""
    parts = [struct.pack("<Q", len(gtids.ranges))]
    for source, ranges in sorted(gtids.ranges.items()):
        parts.append(bytes.fromhex(source.replace("-", "")) + struct.pack("<Q", len(ranges)))
        parts += [struct.pack("<qq", first, last + 1) for first, last in ranges]
    return b"".join(parts)


def _of_payload(body: bytes) -> Iterator[Event]:
    """The events of a compressed transaction of MySQL. Source: `Transaction_payload_event`."""
    start, fields = 0, {}
    while (type := body[start]) != 0:
        size, start = packed_int(body, start + 1)
        fields[type] = packed_int(body, start)[0]
        start += size
    content = body[start + 1 :]
    if fields.get(_COMPRESSION, _ZSTD) == _ZSTD:
        content = bytes(cramjam.zstd.decompress(content))
    start = 0
    content = b"\0" + content  # For the mark of a packet.
    while start < len(content) - 1:
        time, type, server, size, _, _ = _HEADER.unpack_from(content, start)
        yield Event(type, time, server, content[start + _HEADER_BYTES : start + 1 + size])
        start += size


def _inflated(data: bytes) -> bytes:
    """The content of a compressed event of MariaDB. Source: `binlog_buf_uncompress`."""
    size = data[0] & 7
    try:
        return zlib.decompress(data[1 + size :])
    except zlib.error as error:
        raise CorruptFile(f"binary log: a compressed event cannot be read: {error}") from error
