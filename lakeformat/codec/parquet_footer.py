"""Structs of Parquet files that Arrow does not fully support (parquet.thrift, compact protocol): its writer omits the
variant annotation and NaN counts from footers, it cannot copy row groups of other files, and it checks page checksums
only while it decodes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lakeformat.codec import varint
from lakeformat.errors import CorruptFile
from lakeformat.model.dataclass import dataclass

_MAGIC = b"PAR1"
_SCHEMA, _LOGICAL_TYPE = 2, 10  # Fields of FileMetaData and SchemaElement.
_STORED_SIZE, _CRC = 3, 4  # Fields of PageHeader.
_BOOLEANS, _BYTE, _NUMBERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
# LogicalType, a union whose field 16 is VariantType with specification_version = 1, 17 GeometryType, 18 GeographyType.
VARIANT = bytes([_STRUCT, 16 << 1, 1 << 4 | _BYTE, 1, 0, 0])
_ALGORITHMS = {"spherical": 0, "vincenty": 1, "thomas": 2, "andoyer": 3, "karney": 4}  # EdgeInterpolationAlgorithm.
_I16, _I64, _LIST = 4, 6, 9

_ROW_COUNT, _ROW_GROUPS, _CREATED_BY, _COLUMN_ORDERS = 3, 4, 6, 7  # Fields of FileMetaData.
_KNOWN = {1, _SCHEMA, _ROW_COUNT, _ROW_GROUPS, 5, _CREATED_BY, _COLUMN_ORDERS}  # Without the fields for encryption.
_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7  # Fields of RowGroup.
_GROUP_SIZES = (2, 6)  # Encoded and stored.
_CHUNK_OFFSET, _CHUNK = 2, 3  # Fields of ColumnChunk.
_PAGES, _DICTIONARY, _STATISTICS = 9, 11, 12  # Fields of ColumnMetaData.
_NANS = 9  # Field of Statistics.
_LEFT_OUT = {10, 14, 15}  # Fields of ColumnMetaData that are not copied: index pages, bloom filters.
_ELSEWHERE = {1, 8, 9}  # Fields of ColumnChunk for columns in other files or encrypted.
_MOST_ORDINALS = 1 << 15

# A struct: the type and the bytes of each field by number, in file order.
_Fields = dict[int, tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Footer:
    """The parts of a footer needed to copy row groups: schema, writer and column orders as bytes, and the row
    groups."""

    schema: bytes
    created_by: bytes
    column_orders: bytes
    row_groups: tuple[bytes, ...]
    is_plain: bool  # Without encryption and without unknown fields.

    def agrees(self, other: Footer) -> bool:
        """Whether a row group of one file can be copied unchanged into the other: Arrow wrote both, with one schema."""
        mine, theirs = (footer.created_by.partition(b" ")[0] for footer in (self, other))
        same = (self.schema, self.column_orders, mine) == (other.schema, other.column_orders, theirs)
        return same and self.is_plain and other.is_plain and mine == b"parquet-cpp-arrow"


def parse(footer: bytes, where: str) -> Footer:
    """The footer of the file `where`, without the file's last eight bytes. Raises `CorruptFile`."""
    try:
        fields = _fields(footer, 0)[0]
        groups = tuple(_items(fields[_ROW_GROUPS][1]))
        schema, created_by, orders = (
            fields.get(number, (0, b"\0"))[1] for number in (_SCHEMA, _CREATED_BY, _COLUMN_ORDERS)
        )
    except (IndexError, KeyError, AssertionError) as error:
        raise CorruptFile(f"{where}: its footer is damaged") from error
    return Footer(schema, created_by[varint.read(created_by, 0)[1] :], orders, groups, fields.keys() <= _KNOWN)


def joined(row_groups: Sequence[bytes]) -> bytes:
    """The row group of the columns of several with the same rows; `moved` says where their pages are."""
    groups = [_fields(row_group, 0)[0] for row_group in row_groups]
    assert len({group[_GROUP_ROWS] for group in groups}) == 1, row_groups
    group = dict(groups[0])
    group[_COLUMNS] = _LIST, _list_of([column for part in groups for column in _items(part[_COLUMNS][1])])
    for number in _GROUP_SIZES:
        if number in group:
            group[number] = _I64, _zigzag(sum(_number(part[number][1]) for part in groups))
    return _struct_of(group)


def moved(row_group: bytes, starts: Sequence[int]) -> bytes | None:
    """The row group with the pages of each column moved to `starts`, without page indexes and bloom filters. None if
    its columns are in another file or encrypted."""
    return _moved(row_group, lambda column, _: starts[column])


def _moved(row_group: bytes, start: Callable[[int, int], int]) -> bytes | None:
    """As `moved`; `start` maps (column, offset of its pages) to the new offset."""
    group = _fields(row_group, 0)[0]
    chunks, starts = [], []
    for index, column in enumerate(_items(group[_COLUMNS][1])):
        fields = _fields(column, 0)[0]
        if fields.keys() & _ELSEWHERE or _CHUNK not in fields:
            return None
        chunk = {number: field for number, field in _fields(fields[_CHUNK][1], 0)[0].items() if number not in _LEFT_OUT}
        offsets = {number: _number(chunk[number][1]) for number in (_PAGES, _DICTIONARY) if number in chunk}
        begins = min(offset for offset in offsets.values() if offset)
        starts.append(start(index, begins))
        for number, offset in offsets.items():
            if offset:
                chunk[number] = _I64, _zigzag(offset - begins + starts[-1])
        chunks.append(_struct_of({_CHUNK_OFFSET: (_I64, _zigzag(0)), _CHUNK: (_STRUCT, _struct_of(chunk))}))
    group[_COLUMNS] = _LIST, _list_of(chunks)
    if _GROUP_OFFSET in group:
        group[_GROUP_OFFSET] = _I64, _zigzag(starts[0])
    return _struct_of(group)


def spliced(end: bytes, between: Sequence[bytes | int]) -> bytes:
    """The end of a file, footer included, with copied row groups among its own. `between` has for each row group its
    bytes if it was copied, else the number of bytes by which it moved."""
    size = int.from_bytes(end[-8:-4], "little")
    assert end[-4:] == _MAGIC, end[-8:]
    fields = _fields(end[-8 - size : -8], 0)[0]
    own = iter(_items(fields[_ROW_GROUPS][1]))
    made = [piece if isinstance(piece, bytes) else _shifted(next(own), piece) for piece in between]
    assert next(own, None) is None, between
    groups = [_fields(group, 0)[0] for group in made]
    for index, group in enumerate(groups):
        group.pop(_ORDINAL, None)
        if len(groups) < _MOST_ORDINALS:
            group[_ORDINAL] = _I16, _zigzag(index)
    fields[_ROW_COUNT] = _I64, _zigzag(sum(_number(group[_GROUP_ROWS][1]) for group in groups))
    fields[_ROW_GROUPS] = _LIST, _list_of([_struct_of(group) for group in groups])
    footer = _struct_of(fields)
    return end[: -8 - size] + footer + len(footer).to_bytes(4, "little") + _MAGIC


def nan_counts(row_group: bytes, columns: Sequence[int]) -> list[int | None]:
    """The NaN counts of the leaf columns `columns`, in that order; None if the row group has no count."""
    chunks = _items(_fields(row_group, 0)[0][_COLUMNS][1])
    nans = (_statistics(chunks[position])[2].get(_NANS) for position in columns)
    return [None if nan is None else _number(nan[1]) for nan in nans]


def counted(end: bytes, counts: Sequence[Mapping[int, int]]) -> bytes:
    """The end of a file, footer included, with NaN counts: for each row group, by index of the leaf column."""
    size = int.from_bytes(end[-8:-4], "little")
    assert end[-4:] == _MAGIC, end[-8:]
    footer = end[-8 - size : -8]
    groups = _ends(footer, 0, (_ROW_GROUPS, _COLUMNS, _CHUNK, _STATISTICS))[1] or []
    assert len(groups) == len(counts), (len(groups), len(counts))
    places = [
        (columns[position], count)
        for columns, of_group in zip(groups, counts, strict=True)
        for position, count in sorted(of_group.items())
    ]
    if any(struct is None or struct[1] >= _NANS for struct, _ in places):
        changed = _counted_anew(footer, counts)
    else:
        parts, done = [], 0
        for (stop, last), count in places:
            parts += [footer[done:stop], bytes([(_NANS - last) << 4 | _I64]), _zigzag(count)]
            done = stop
        changed = b"".join([*parts, footer[done:]])
    return end[: -8 - size] + changed + len(changed).to_bytes(4, "little") + _MAGIC


def _counted_anew(footer: bytes, counts: Sequence[Mapping[int, int]]) -> bytes:
    """As `counted`, for columns without statistics or with NaN counts already."""
    fields = _fields(footer, 0)[0]
    groups = []
    for row_group, of_group in zip(_items(fields[_ROW_GROUPS][1]), counts, strict=True):
        group = _fields(row_group, 0)[0]
        chunks = _items(group[_COLUMNS][1])
        for position, count in of_group.items():
            column, chunk, statistics = _statistics(chunks[position])
            statistics[_NANS] = _I64, _zigzag(count)
            chunk[_STATISTICS] = _STRUCT, _struct_of(statistics)
            column[_CHUNK] = _STRUCT, _struct_of(chunk)
            chunks[position] = _struct_of(column)
        group[_COLUMNS] = _LIST, _list_of(chunks)
        groups.append(_struct_of(group))
    fields[_ROW_GROUPS] = _LIST, _list_of(groups)
    return _struct_of(fields)


Buffer = bytes | memoryview


def geo(text: str) -> bytes:
    """The LogicalType of a geometry or geography from its text in a table schema, e.g. `geography(OGC:CRS84,
    vincenty)`."""
    kind, _, rest = text.rstrip(")").partition("(")
    # A reference system may hold commas; an algorithm is a word.
    system, _, last = rest.rpartition(",") if kind == "geography" else ("", "", rest)
    algorithm = _ALGORITHMS.get(last.strip().lower())
    system = (system if algorithm is not None else rest).strip()
    parts = b"\x18" + varint.write(len(system.encode())) + system.encode() if system else b""
    if algorithm is not None:
        parts += bytes([(1 if system else 2) << 4 | _NUMBERS[1], algorithm << 1])
    return bytes([_STRUCT, (17 if kind == "geometry" else 18) << 1]) + parts + b"\0\0"


def annotated(end: bytes, marks: Sequence[bytes]) -> bytes:
    """The end of a file, footer included, with LogicalTypes added to the schema elements (without the root). `marks`
    has one per element: `VARIANT`, a result of `geo`, or empty for none."""
    size = int.from_bytes(end[-8:-4], "little")
    assert end[-4:] == _MAGIC, end[-8:]
    footer = end[-8 - size : -8]
    stops = _elements(footer)
    assert len(stops) == len(marks) + 1, (len(stops), len(marks))
    parts, done = [], 0
    for (stop, last), mark in zip(stops[1:], marks, strict=True):
        if mark:
            assert last < _LOGICAL_TYPE, last
            parts += [footer[done:stop], bytes([(_LOGICAL_TYPE - last) << 4 | _STRUCT]), mark]
            done = stop
    changed = b"".join([*parts, footer[done:]])
    return end[: -8 - size] + changed + len(changed).to_bytes(4, "little") + _MAGIC


def damaged_page(chunk: Buffer) -> int | None:
    """The offset of the first page of a column chunk that does not match its checksum; None if there is none, or no
    checksums. Raises `IndexError` and `AssertionError` for bytes that are no pages."""
    position, end = 0, len(chunk)
    while position < end:
        start, number = position, 0
        header = {}
        while chunk[position]:
            position, number, kind = _field(chunk, position, number)
            if number in (_STORED_SIZE, _CRC):
                value, position = varint.read(chunk, position)
                header[number] = value >> 1 ^ -(value & 1)
            else:
                position = _skip(chunk, position, kind)
        stored = chunk[position + 1 : position + 1 + header[_STORED_SIZE]]
        assert len(stored) == header[_STORED_SIZE], (start, header)
        if _CRC in header and zlib.crc32(stored) != header[_CRC] & 0xFFFFFFFF:
            return start
        position += 1 + len(stored)
    return None


def _statistics(column: bytes) -> tuple[_Fields, _Fields, _Fields]:
    """The fields of a ColumnChunk, of its ColumnMetaData, and of the Statistics in it."""
    fields = _fields(column, 0)[0]
    chunk = _fields(fields[_CHUNK][1], 0)[0] if _CHUNK in fields else {}
    return fields, chunk, _fields(chunk[_STATISTICS][1], 0)[0] if _STATISTICS in chunk else {}


def _shifted(row_group: bytes, by: int) -> bytes:
    data = _moved(row_group, lambda _, begins: begins + by)
    assert data is not None, row_group
    return data


def _elements(footer: Buffer) -> list[tuple[int, int]]:
    """For each schema element: (where its struct stops, the number of its last field)."""
    position, field = 0, 0
    while True:
        position, field, kind = _field(footer, position, field)
        if field != _SCHEMA:
            assert kind, "no schema in the footer"
            position = _skip(footer, position, kind)
            continue
        count, _, position = _list(footer, position)
        elements = []
        for _ in range(count):
            stop, last = _struct(footer, position)
            elements.append((stop, last))
            position = stop + 1
        return elements


def _struct(footer: Buffer, position: int) -> tuple[int, int]:
    """(where the struct that starts at `position` stops, the number of its last field)."""
    last = 0
    while footer[position]:
        position, last, kind = _field(footer, position, last)
        position = _skip(footer, position, kind)
    return position, last


def _ends(footer: Buffer, position: int, path: tuple[int, ...]) -> tuple[int, Any]:
    """(where the struct at `position` ends; the result of `_struct` for the struct at `path`: nested in lists where
    fields are lists, None for a missing field)."""
    ends, last = None, 0
    while footer[position]:
        position, last, kind = _field(footer, position, last)
        if not path or last != path[0]:
            position = _skip(footer, position, kind)
        elif kind == _STRUCT:
            position, ends = _ends(footer, position, path[1:])
        else:
            count, inner, position = _list(footer, position)
            assert inner == _STRUCT or not count, inner
            ends = []
            for _ in range(count):
                position, end = _ends(footer, position, path[1:])
                ends.append(end)
    return position + 1, ends if path else (position, last)


def _field(footer: Buffer, position: int, last: int) -> tuple[int, int, int]:
    """(where the value starts, the field's number, its type: 0 at the end)."""
    head = footer[position]
    if head >> 4:
        return position + 1, last + (head >> 4), head & 15
    number, position = varint.read(footer, position + 1) if head else (0, position + 1)
    return position, number >> 1, head


def _skip(footer: Buffer, position: int, kind: int) -> int:
    if kind in _BOOLEANS:
        return position
    if kind == _BYTE:
        return position + 1
    if kind in _NUMBERS:
        return varint.read(footer, position)[1]
    if kind == _DOUBLE:
        return position + 8
    if kind == _BINARY:
        size, position = varint.read(footer, position)
        return position + size
    if kind in _LISTS:
        count, inner, position = _list(footer, position)
        for _ in range(count):
            position = position + 1 if inner in _BOOLEANS else _skip(footer, position, inner)
        return position
    assert kind == _STRUCT, kind
    return _struct(footer, position)[0] + 1


def _list(footer: Buffer, position: int) -> tuple[int, int, int]:
    """(number of items, their type, where they start)."""
    count, inner, position = footer[position] >> 4, footer[position] & 15, position + 1
    if count == 15:
        count, position = varint.read(footer, position)
    return count, inner, position


def _fields(data: bytes, position: int) -> tuple[_Fields, int]:
    """(the fields of the struct that begins at `position`, where it ends). The type of a boolean is its value."""
    fields: _Fields = {}
    number = 0
    while True:
        position, number, kind = _field(data, position, number)
        if not kind:
            return fields, position
        stop = _skip(data, position, kind)
        fields[number] = kind, data[position:stop]
        position = stop


def _struct_of(fields: _Fields) -> bytes:
    struct, last = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        step = number - last
        struct += bytes([step << 4 | kind]) if step < 16 else bytes([kind]) + varint.write(number << 1)
        struct += value
        last = number
    struct.append(0)
    return bytes(struct)


def _items(structs: bytes) -> list[bytes]:
    """The structs of a list."""
    count, inner, position = _list(structs, 0)
    assert inner == _STRUCT or not count, inner
    items = []
    for _ in range(count):
        end = _struct(structs, position)[0] + 1
        items.append(structs[position:end])
        position = end
    return items


def _list_of(structs: Sequence[bytes]) -> bytes:
    count = len(structs)
    head = bytes([count << 4 | _STRUCT]) if count < 15 else bytes([15 << 4 | _STRUCT]) + varint.write(count)
    return head + b"".join(structs)


def _number(zigzag: bytes) -> int:
    value, _ = varint.read(zigzag, 0)
    return value >> 1 ^ -(value & 1)


def _zigzag(value: int) -> bytes:
    return varint.write(value << 1 if value >= 0 else (-value << 1) - 1)
