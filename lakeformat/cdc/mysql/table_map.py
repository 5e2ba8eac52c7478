"""Table map events of the binary log: which table the rows after them are of, and its columns.

Source: MySQL's `Table_map_event`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from pymysqlreplication.constants import FIELD_TYPE

from lakeformat.cdc.mysql.charsets import Charsets
from lakeformat.cdc.mysql.log_reader import packed_int
from lakeformat.cdc.mysql.row_events import VECTOR, LogColumn, column_of
from lakeformat.errors import CorruptFile, UnsupportedFeature

BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141  # Of MariaDB.
_BLOBS = {FIELD_TYPE.TINY_BLOB, FIELD_TYPE.MEDIUM_BLOB, FIELD_TYPE.LONG_BLOB, FIELD_TYPE.BLOB, FIELD_TYPE.GEOMETRY}
_METADATA_BYTES = {
    **dict.fromkeys((*_BLOBS, FIELD_TYPE.JSON, VECTOR, BLOB_COMPRESSED, FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE), 1),
    **dict.fromkeys((FIELD_TYPE.TIME2, FIELD_TYPE.DATETIME2, FIELD_TYPE.TIMESTAMP2), 1),
    **dict.fromkeys((FIELD_TYPE.VARCHAR, FIELD_TYPE.VAR_STRING, FIELD_TYPE.STRING, VARCHAR_COMPRESSED), 2),
    **dict.fromkeys((FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.BIT, FIELD_TYPE.ENUM, FIELD_TYPE.SET), 2),
    **dict.fromkeys(range(FIELD_TYPE.DECIMAL, FIELD_TYPE.FLOAT), 0),
    **dict.fromkeys(range(FIELD_TYPE.NULL, FIELD_TYPE.VARCHAR), 0),
}
_TEXTS = {FIELD_TYPE.VARCHAR, FIELD_TYPE.VAR_STRING, FIELD_TYPE.STRING, FIELD_TYPE.BLOB}
_NUMBERS = {
    FIELD_TYPE.TINY,
    FIELD_TYPE.SHORT,
    FIELD_TYPE.INT24,
    FIELD_TYPE.LONG,
    FIELD_TYPE.LONGLONG,
    FIELD_TYPE.NEWDECIMAL,
    FIELD_TYPE.FLOAT,
    FIELD_TYPE.DOUBLE,
    FIELD_TYPE.YEAR,
}
_MEMBERED = {FIELD_TYPE.ENUM, FIELD_TYPE.SET}
# Types of optional metadata.
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SET_MEMBERS, _ENUM_MEMBERS = 1, 2, 3, 4, 5, 6
_MEMBERED_DEFAULT_CHARSET, _MEMBERED_CHARSET = 10, 11


class TableMap:
    """A table as a table map event describes it. `name`: "database.table"."""

    def __init__(self, description: bytes, charsets: Charsets, *, is_mariadb: bool) -> None:
        self._data, self._charsets = description, charsets
        more = {BLOB_COMPRESSED, VARCHAR_COMPRESSED, FIELD_TYPE.GEOMETRY} if is_mariadb else {VECTOR}
        self._texts = _TEXTS | more
        database, start = _text(description, 0)
        table, self._start = _text(description, start)
        self.name = f"{database}.{table}"

    @cached_property
    def has_names(self) -> bool:
        """Whether the log has the columns' names (binlog_row_metadata = FULL)."""
        return _NAMES in self._metadata

    @cached_property
    def _types(self) -> list[tuple[int, bytes]]:
        """The type and the metadata of each column. Raises `UnsupportedFeature` for a type of unknown size."""
        count, start = packed_int(self._data, self._start)
        types = self._data[start : start + count]
        _, start = packed_int(self._data, start + count)
        columns = list[tuple[int, bytes]]()
        for type in types:
            if type not in _METADATA_BYTES:
                raise UnsupportedFeature(
                    f"{self.name}: the log has a column of the unknown type {type}; leave it out of the table, and "
                    "load it again (restart=True)"
                )
            size = _METADATA_BYTES[type]
            columns.append(_real_type(type, self._data[start : start + size]))
            start += size
        return columns

    @cached_property
    def _metadata(self) -> dict[int, bytes]:
        count, start = packed_int(self._data, self._start)
        size, start = packed_int(self._data, start + count)
        start, fields = start + size + (count + 7) // 8, dict[int, bytes]()
        while start < len(self._data):
            type = self._data[start]
            size, start = packed_int(self._data, start + 1)
            fields[type] = self._data[start : start + size]
            start += size
        return fields

    @cached_property
    def columns(self) -> tuple[LogColumn, ...]:
        """The columns. Raises `UnsupportedFeature` for a type that cannot be read."""
        types = [type for type, _ in self._types]
        names = list(_strings(self._metadata[_NAMES]))
        if len(names) != len(types):
            raise CorruptFile(f"binary log: {self.name} has {len(types)} columns and {len(names)} names")
        unsigned = self._unsigned(types)
        collations = {
            **self._collations(types, self._texts, _DEFAULT_CHARSET, _COLUMN_CHARSET),
            **self._collations(types, _MEMBERED, _MEMBERED_DEFAULT_CHARSET, _MEMBERED_CHARSET),
        }
        members = {
            FIELD_TYPE.ENUM: _lists(self._metadata.get(_ENUM_MEMBERS, b"")),
            FIELD_TYPE.SET: _lists(self._metadata.get(_SET_MEMBERS, b"")),
        }
        columns = list[LogColumn]()
        for index, ((type, metadata), name) in enumerate(zip(self._types, names, strict=True)):
            charset = self._charsets.names.get(collations.get(index, 0), "utf8mb4")
            texts: Sequence[str] = ()
            if type in members:
                texts = [self._charsets.text(charset, member) for member in next(members[type], [])]
            columns.append(column_of(self.name, name, type, metadata, index in unsigned, charset, texts))
        return tuple(columns)

    def _unsigned(self, types: Sequence[int]) -> set[int]:
        bits = self._metadata.get(_SIGNEDNESS, b"")
        numbers = [index for index, type in enumerate(types) if type in _NUMBERS]
        return {
            index
            for number, index in enumerate(numbers)
            if number < 8 * len(bits) and bits[number // 8] << number % 8 & 0x80
        }

    def _collations(self, types: Sequence[int], with_text: set[int], default: int, by_column: int) -> dict[int, int]:
        """The id of the collation of each column whose type is in `with_text`."""
        indexes = [index for index, type in enumerate(types) if type in with_text]
        if by_column in self._metadata:
            return dict(zip(indexes, _ints(self._metadata[by_column]), strict=True))
        first, *others = list(_ints(self._metadata.get(default, b""))) or [0]
        return dict.fromkeys(indexes, first) | {
            indexes[number]: collation for number, collation in zip(others[::2], others[1::2], strict=True)
        }


def _real_type(type: int, metadata: bytes) -> tuple[int, bytes]:
    """A column's type; enums and sets are logged as strings."""
    if type == FIELD_TYPE.STRING and metadata[0] in _MEMBERED:
        return metadata[0], metadata
    return type, metadata


def _text(data: bytes, start: int) -> tuple[str, int]:
    """A string with its length before it and a zero behind it, and where it ends."""
    end = start + 1 + data[start]
    return data[start + 1 : end].decode(), end + 1


def _ints(data: bytes) -> Iterator[int]:
    start = 0
    while start < len(data):
        number, start = packed_int(data, start)
        yield number


def _strings(data: bytes) -> Iterator[str]:
    start = 0
    while start < len(data):
        size, start = packed_int(data, start)
        yield data[start : start + size].decode()
        start += size


def _lists(data: bytes) -> Iterator[list[bytes]]:
    """The members of each enum or set."""
    start = 0
    while start < len(data):
        count, start = packed_int(data, start)
        members = list[bytes]()
        for _ in range(count):
            size, start = packed_int(data, start)
            members.append(data[start : start + size])
            start += size
        yield members
