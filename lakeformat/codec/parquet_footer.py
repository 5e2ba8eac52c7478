"""Structs of Parquet files of which Arrow does too little (parquet.thrift, compact protocol): its writer leaves the mark of variants
out of a footer, and its check of page checksums comes with decoding only."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from lakeformat.codec import varint

_MAGIC = b"PAR1"
_SCHEMA, _LOGICAL_TYPE = 2, 10  # Fields of FileMetaData and SchemaElement.
_STORED_SIZE, _CRC = 3, 4  # Fields of PageHeader.
_BOOLEANS, _BYTE, _NUMBERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
# LogicalType, a union whose field 16 is VariantType with specification_version = 1.
_VARIANT = bytes([_STRUCT, 16 << 1, 1 << 4 | _BYTE, 1, 0, 0])

Buffer = bytes | memoryview


def annotated(end: bytes, is_variant: Sequence[bool]) -> bytes:
    """The end of a file, footer included, with those elements of its schema marked as variants for which `is_variant` (the root
    left out) is true."""
    size = int.from_bytes(end[-8:-4], "little")
    assert end[-4:] == _MAGIC, end[-8:]
    footer = end[-8 - size : -8]
    stops = _elements(footer)
    assert len(stops) == len(is_variant) + 1, (len(stops), len(is_variant))
    made, done = [], 0
    for (stop, last), marked in zip(stops[1:], is_variant, strict=True):
        if marked:
            assert last < _LOGICAL_TYPE, last
            made += [footer[done:stop], bytes([(_LOGICAL_TYPE - last) << 4 | _STRUCT]), _VARIANT]
            done = stop
    changed = b"".join([*made, footer[done:]])
    return end[: -8 - size] + changed + len(changed).to_bytes(4, "little") + _MAGIC


def damaged_page(chunk: Buffer) -> int | None:
    """Where the first page of a column chunk starts whose bytes are not those of its checksum; None for a whole chunk, and for one
    without checksums. Raises `IndexError` and `AssertionError` for bytes that are no pages."""
    place, end = 0, len(chunk)
    while place < end:
        start, number = place, 0
        known = {}
        while chunk[place]:
            place, number, kind = _field(chunk, place, number)
            if number in (_STORED_SIZE, _CRC):
                value, place = varint.read(chunk, place)
                known[number] = value >> 1 ^ -(value & 1)
            else:
                place = _skip(chunk, place, kind)
        stored = chunk[place + 1 : place + 1 + known[_STORED_SIZE]]
        assert len(stored) == known[_STORED_SIZE], (start, known)
        if _CRC in known and zlib.crc32(stored) != known[_CRC] & 0xFFFFFFFF:
            return start
        place += 1 + len(stored)
    return None


def _elements(footer: Buffer) -> list[tuple[int, int]]:
    """Of each element of the schema, (where its struct stops, the number of its last field)."""
    place, field = 0, 0
    while True:
        place, field, kind = _field(footer, place, field)
        if field != _SCHEMA:
            assert kind, "no schema in the footer"
            place = _skip(footer, place, kind)
            continue
        count, _, place = _list(footer, place)
        found = []
        for _ in range(count):
            stop, last = _struct(footer, place)
            found.append((stop, last))
            place = stop + 1
        return found


def _struct(footer: Buffer, place: int) -> tuple[int, int]:
    """(where the struct that starts at `place` stops, the number of its last field)."""
    last = 0
    while footer[place]:
        place, last, kind = _field(footer, place, last)
        place = _skip(footer, place, kind)
    return place, last


def _field(footer: Buffer, place: int, last: int) -> tuple[int, int, int]:
    """(where the value starts, the field's number, its type: 0 at the end)."""
    head = footer[place]
    if head >> 4:
        return place + 1, last + (head >> 4), head & 15
    number, place = varint.read(footer, place + 1) if head else (0, place + 1)
    return place, number >> 1, head


def _skip(footer: Buffer, place: int, kind: int) -> int:
    if kind in _BOOLEANS:
        return place
    if kind == _BYTE:
        return place + 1
    if kind in _NUMBERS:
        return varint.read(footer, place)[1]
    if kind == _DOUBLE:
        return place + 8
    if kind == _BINARY:
        size, place = varint.read(footer, place)
        return place + size
    if kind in _LISTS:
        count, inner, place = _list(footer, place)
        for _ in range(count):
            place = place + 1 if inner in _BOOLEANS else _skip(footer, place, inner)
        return place
    assert kind == _STRUCT, kind
    return _struct(footer, place)[0] + 1


def _list(footer: Buffer, place: int) -> tuple[int, int, int]:
    """(how many, of which type, where they start)."""
    count, inner, place = footer[place] >> 4, footer[place] & 15, place + 1
    if count == 15:
        count, place = varint.read(footer, place)
    return count, inner, place
