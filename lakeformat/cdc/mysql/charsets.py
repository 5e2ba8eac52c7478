"""Text in the character sets of MySQL and MariaDB, decoded as the server converts it.

A snapshot has text as the server converted it to UTF-8; the log has its bytes. Python's codecs differ from the server's
tables in many characters, and the tables of servers differ.
So each character that a log has is converted by the server, once.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import pyarrow as pa

_UTF8 = {"utf8", "utf8mb3", "utf8mb4"}
_UNICODE = {"utf16": "utf_16_be", "utf16le": "utf_16_le", "ucs2": "utf_16_be", "utf32": "utf_32_be"}
# How characters of several bytes are encoded; all other character sets have one byte per character.
_CHARACTERS = {
    "sjis": rb"[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]",
    "cp932": rb"[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]",
    "big5": rb"[\xa1-\xf9][\x40-\x7e\xa1-\xfe]",
    "gbk": rb"[\x81-\xfe][\x40-\x7e\x80-\xfe]",
    "gb2312": rb"[\xa1-\xf7][\xa1-\xfe]",
    "euckr": rb"[\x81-\xfe][\x41-\x5a\x61-\x7a\x81-\xfe]",
    "ujis": rb"\x8f[\xa1-\xfe]{2}|\x8e[\xa1-\xdf]|[\xa1-\xfe]{2}",
    "eucjpms": rb"\x8f[\xa1-\xfe]{2}|\x8e[\xa1-\xdf]|[\xa1-\xfe]{2}",
    "gb18030": rb"[\x81-\xfe](?:[\x30-\x39][\x81-\xfe][\x30-\x39]|[\x40-\x7e\x80-\xfe])",
}
_CHARACTERS_A_QUERY = 2000
_BYTES = [bytes([byte]) for byte in range(256)]
_ASCII = "".join(map(chr, range(128)))

Convert = Callable[[str, Sequence[bytes]], Sequence[str]]


@dataclass(slots=True)
class Charsets:
    """The character sets of one server. `convert(charset, characters)`: the characters as the server converts them.
    `names`: character set by the id of a collation."""

    convert: Convert
    names: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    _tables: dict[str, dict[bytes, str]] = field(default_factory=dict)  # Character set -> its characters so far.

    def decode(self, charset: str, values: pa.Array) -> pa.Array:
        """Binary values as text. Raises `UnicodeDecodeError` or `ArrowInvalid` if a value is none."""
        if charset in _UTF8:
            return values.cast(pa.string())
        if charset in _UNICODE:
            codec = _UNICODE[charset]
            return _each(values, lambda value: value.decode(codec, "replace"))
        table = self._table(charset)
        if _is_ascii(values) and "".join(table[byte] for byte in _BYTES[:128]) == _ASCII:
            return values.cast(pa.string())
        pattern = _CHARACTERS.get(charset)
        if pattern is None:
            mapping = "".join(table[byte] for byte in _BYTES)
            return _each(values, lambda value: codecs.charmap_decode(value, "strict", mapping)[0])
        split = re.compile(pattern + rb"|[\x00-\xff]").findall
        self._learn(charset, {one for value in values.to_pylist() if value is not None for one in split(value)})
        return _each(values, lambda value: "".join([table[one] for one in split(value)]))

    def text(self, charset: str, value: bytes) -> str:
        return str(self.decode(charset, pa.array([value]))[0])

    def _table(self, charset: str) -> dict[bytes, str]:
        if charset not in self._tables:
            self._learn(charset, _BYTES)
        return self._tables[charset]

    def _learn(self, charset: str, characters: Iterable[bytes]) -> None:
        table = self._tables.get(charset, {})
        new = sorted(set(characters) - table.keys())
        for start in range(0, len(new), _CHARACTERS_A_QUERY):
            some = new[start : start + _CHARACTERS_A_QUERY]
            table |= zip(some, self.convert(charset, some), strict=True)
        self._tables[charset] = table  # Once complete.


def _each(values: pa.Array, decode: Callable[[bytes], str]) -> pa.Array:
    return pa.array([None if value is None else decode(value) for value in values.to_pylist()], pa.string())


def _is_ascii(values: pa.Array) -> bool:
    data = values.buffers()[2]
    return data is None or not len(data) or int(np.frombuffer(data, np.uint8).max()) < 0x80
