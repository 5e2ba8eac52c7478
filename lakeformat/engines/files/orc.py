"""ORC data files: columns by name or id, stripe by stripe; and a writer for the types that Paimon has in ORC."""

from __future__ import annotations

import datetime
import zlib
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, BinaryIO

import cramjam
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as po

from lakeformat.codec import layouts, orc_runs, varint
from lakeformat.codec.arrow import from_arrow, to_arrow
from lakeformat.engines.files import statistics
from lakeformat.engines.files.parquet import present
from lakeformat.engines.kernels import casts
from lakeformat.errors import CorruptFile, InvalidInput, UnsupportedFeature
from lakeformat.model.schema import NO_ID, Field, Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type, scalar, walk
from lakeformat.model.work import ColumnStats, WriteTask

PIECE_OPTION = "orc.stripe.size"

FIELD_IDS = "orc.field-ids"  # An option: "true" writes field ids into the file, as Iceberg does.
_ID, _REQUIRED = b"iceberg.id", b"iceberg.required"
_LONG, _BINARY, _LENGTH, _UNIT = (
    b"iceberg.long-type",
    b"iceberg.binary-type",
    b"iceberg.length",
    b"iceberg.timestamp-unit",
)
_MAP = 11  # `Type.Kind`.
_LENGTHS = 2  # `Stream.Kind`.
_VERSION_2 = (2, 3)  # `ColumnEncoding.Kind`: direct and dictionary.
_STRIPE_BYTES = 64 << 20
_NANOS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECOND, _MILLISECOND = 1_000_000_000, 1_000_000  # In nanoseconds.
_SECONDS = (2**63 - 1) // _SECOND  # The reader's range on either side of 1970: until 2262.
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_WIDEST_OFFSET = 24 * 3600  # No time zone is further from UTC, in seconds.


class File:
    """An ORC file opened for reading."""

    def __init__(self, source: Any, path: str) -> None:
        self._source, self._path = source, path
        self._file = po.ORCFile(source)
        self.row_count: int | None = self._file.nrows

    def fields(self, named: tuple[Field, ...] | None) -> tuple[Field, ...]:
        """The columns of the file: those of `named`, matched by name; otherwise by the attributes of their types."""
        if named is not None:
            return present(named, list(self._file.schema))
        return tuple(_own_field(field) for field in self._file.schema)

    def batches(
        self,
        fields: tuple[Field, ...],
        pushed: pc.Expression | None,
        batch_rows: int,
        far_as_null: frozenset[int] = frozenset(),
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(position of the first row, rows) with the columns `fields`; nothing is pruned."""
        if any(isinstance(field.type, Scalar) and field.type.kind in _INSTANTS for field in walk(fields)):
            self._refuse_far_timestamps()
        names = [field.name for field in fields]
        if not names:
            yield from _empty_columns(self._file.nrows, batch_rows)
            return
        # The reader treats a dot as a path, so a name with a dot is found by reading all columns.
        columns = None if any("." in name for name in names) else names
        self._refuse_null_keys(columns)
        position = 0
        for stripe in range(self._file.nstripes):
            self._require_lengths(stripe, columns)
            batch = self._file.read_stripe(stripe, columns=columns).select(names)
            utc_offset = partial(self._utc_offset, stripe)
            batch = pa.RecordBatch.from_arrays(
                [_mended(batch.column(i), field.type, utc_offset) for i, field in enumerate(fields)], names=names
            )
            for start in range(0, batch.num_rows, batch_rows):
                yield position + start, batch.slice(start, batch_rows)
            position += batch.num_rows
        if position != self._file.nrows:
            raise CorruptFile(f"{self._path}: stripes hold {position} rows, the footer says {self._file.nrows}")

    def _utc_offset(self, stripe: int) -> int:
        """The UTC offset of the writer's time zone at 1970, in seconds; 0 for a stripe that names no time zone."""
        zone = self._zones[stripe]
        offset = _EPOCH.astimezone(zoneinfo.ZoneInfo(zone)).utcoffset() if zone else None
        return int(offset.total_seconds()) if offset else 0

    @cached_property
    def _zones(self) -> list[str]:
        return list(_writer_zones(self._source))

    def _refuse_null_keys(self, names: list[str] | None) -> None:
        """Arrow ends the process over a map with a null as key, which no other format has."""
        read = list(self._file.schema) if names is None else [self._file.schema.field(name) for name in names]
        if any(_has_map(field.type) for field in read) and (name := _null_key(self._source, names)):
            raise UnsupportedFeature(
                f"{self._path}: column {name} has a map with a null as key, which Arrow cannot hold; leave the column "
                "out, or have the writing engine remove these keys"
            )

    @cached_property
    def _parts(self) -> tuple[list[dict[int, Any]], dict[str, set[int]], int]:
        """(the stripes; the numbers of each column and of the types below it; the codec)."""
        footer, codec = _footer(self._source)
        messages = list(_messages(footer))
        types = [list(_messages(message)) for number, message in messages if number == 4]
        below = [[part for tag, value in type if tag == 2 for part in _numbers(value)] for type in types]
        columns = {}
        for name, number in zip((value.decode() for tag, value in types[0] if tag == 3), below[0], strict=True):
            inside, ahead = set(), [number]
            while ahead:
                type = ahead.pop()
                if type in inside:
                    raise CorruptFile(f"{self._path}: type {type} in its footer lies in itself")
                inside.add(type)
                ahead += below[type]
            columns[name] = inside
        return [dict(_messages(message)) for number, message in messages if number == 3], columns, codec

    def _require_lengths(self, index: int, names: list[str] | None) -> None:
        """Raise `CorruptFile` for a stripe with lengths that are none: Arrow's reader takes them for addresses."""
        stripes, columns, codec = self._parts
        if codec and codec not in _DECOMPRESS:
            return
        chosen = set().union(*(columns.get(name, ()) for name in (columns if names is None else names)))
        offset, index_bytes, data_bytes, footer_bytes = (stripes[index].get(part, 0) for part in (1, 2, 3, 4))
        self._source.seek(offset + index_bytes + data_bytes)
        footer = list(_messages(_inflated(self._source.read(footer_bytes), codec)))
        encodings = [dict(_messages(message)).get(1, 0) for number, message in footer if number == 2]
        spans = {}
        for stream in (dict(_messages(message)) for number, message in footer if number == 1):
            column, size = stream.get(2, 0), stream.get(3, 0)
            if stream.get(1, 0) == _LENGTHS and column in chosen:
                spans[column] = offset, offset + size
            offset += size
        if hasattr(self._source, "prefetch"):
            self._source.prefetch(list(spans.values()))
        for column, (start, end) in spans.items():
            self._source.seek(start)
            data = _inflated(self._source.read(end - start), codec)
            if not orc_runs.may_be_lengths(data, encodings[column] in _VERSION_2):
                raise CorruptFile(f"{self._path}: type {column} has lengths at byte {start} that are damaged")

    def _refuse_far_timestamps(self) -> None:
        """Arrow reads ORC timestamps as nanoseconds, and before version 24 does not say when they overflow."""
        reach = max((abs(millis) for millis in _timestamp_bounds(self._source)), default=0)
        if reach > _SECONDS * 1000:
            raise UnsupportedFeature(
                f"{self._path}: holds timestamps outside 1677 to 2262, too far for Arrow's ORC reader; "
                f"have the writing engine rewrite the table in Parquet"
            )


class Output:
    """An ORC file being written to `sink`."""

    def __init__(self, sink: BinaryIO, task: WriteTask) -> None:
        with_ids = task.encoding.options.get(FIELD_IDS) == "true"
        for field in walk(task.fields):
            if field.type == Scalar(Kind.VARIANT):
                raise UnsupportedFeature(f"column {field.name}: a variant is not written to ORC; use Parquet")
            if not with_ids and isinstance(field.type, Scalar) and field.type.kind in _BYTES_LIMITED:
                raise UnsupportedFeature(
                    f"column {field.name}: Paimon's ORC has no {field.type}; declare it BYTES or use Parquet"
                )
        self._fields = task.fields
        self._schema = pa.schema([_file_field(field, with_ids) for field in task.fields])
        self._stats: list[dict[int, ColumnStats]] = []
        try:
            self._writer = po.ORCWriter(
                sink,
                compression=_codec(task.encoding.compression),
                stripe_size=min(
                    int(task.encoding.options.get("orc.stripe.size", _STRIPE_BYTES)),
                    max(1 << 16, task.target_size_bytes // 4),
                ),
            )
        except (ValueError, OSError) as error:
            raise InvalidInput(
                f"options of the table for ORC, compression {task.encoding.compression!r}: {error}"
            ) from error
        self._sink = sink
        self._rows = self._added = self._in_stripe = 0  # The last two in bytes of memory.
        self._seen = sink.tell()

    def add(self, table: pa.Table) -> None:
        self._stats.append(statistics.of_rows(table, self._fields))
        columns = [
            _storable(layouts.plain(table.column(i)), field.type, field.name) for i, field in enumerate(self._fields)
        ]
        self._writer.write(pa.Table.from_arrays(columns, schema=self._schema))
        self._rows += table.num_rows
        self._in_stripe = self._in_stripe + table.nbytes if self._sink.tell() == self._seen else 0
        self._added += table.nbytes
        self._seen = self._sink.tell()

    def give_up(self) -> None:
        """Abandon the file."""

    def size(self) -> int:
        """Bytes written so far, and an estimate of the stripe in memory."""
        ratio = self._seen / (self._added - self._in_stripe) if self._added > self._in_stripe else 1.0
        return self._seen + int(self._in_stripe * ratio)

    def close(self) -> tuple[dict[int, ColumnStats], tuple[int, ...]]:
        """(statistics by field id, no offsets); the sink stays open."""
        if not self._rows:
            self._writer.write(self._schema.empty_table())
        self._writer.close()
        return {field.id: statistics.merge(part[field.id] for part in self._stats) for field in self._fields}, ()


def _has_map(type: pa.DataType) -> bool:
    return pa.types.is_map(type) or any(_has_map(type.field(index).type) for index in range(type.num_fields))


def _null_key(source: Any, names: list[str] | None) -> str | None:
    """The first column, among `names` if given, whose maps may have a null as key.

    ORC specification v1, "File Tail" and "Stripe Footer": `Type`, `ColumnStatistics.hasNull`; where an old writer left
    that out, whether a stripe has a PRESENT stream of the keys.
    """
    footer, codec = _footer(source)
    kinds, parts, of_root, has_null, stripes = [], [], [], [], []
    for number, message in _messages(footer):
        if number == 3:
            stripes.append(dict(_messages(message)))
        elif number == 4:
            type = list(_messages(message))
            kinds.append(next((value for tag, value in type if tag == 1), 0))
            parts.append([part for tag, value in type if tag == 2 for part in _numbers(value)])
            if len(kinds) == 1:
                of_root = [value.decode() for tag, value in type if tag == 3]
        elif number == 7:
            has_null.append(dict(_messages(message)).get(10))
    columns = dict(zip(of_root, parts[0], strict=True)) if parts else {}
    present: set[int] | None = None
    for name, column in columns.items():
        below = [column] if names is None or name in names else []
        while below:
            type = below.pop()
            below += parts[type]
            if kinds[type] != _MAP:
                continue
            key = parts[type][0]
            null_flag = has_null[key] if key < len(has_null) else None
            if null_flag is None and present is None:
                present = _present(source, stripes, codec)
            if null_flag or (null_flag is None and present is not None and key in present):
                return name
    return None


def _present(source: Any, stripes: list[dict[int, Any]], codec: int) -> set[int]:
    """The columns with a PRESENT stream, which has their nulls, in any stripe."""
    columns: set[int] = set()
    for stripe in stripes:
        source.seek(sum(stripe.get(at, 0) for at in (1, 2, 3)))
        for number, message in _messages(_inflated(source.read(stripe[4]), codec)):
            stream: dict[int, Any] = dict(_messages(message)) if number == 1 else {1: None}
            if stream.get(1, 0) == 0:
                columns.add(stream.get(2, 0))
    return columns


def _numbers(packed: int | bytes) -> Iterator[int]:
    """The integers of a repeated field, which may be packed."""
    if isinstance(packed, int):
        yield packed
        return
    at = 0
    while at < len(packed):
        value, at = varint.read(packed, at)
        yield value


def _timestamp_bounds(source: Any) -> Iterator[int]:
    """The least and greatest timestamps in the footer, in milliseconds, of all columns.

    ORC specification v1, "File Tail": `ColumnStatistics.timestampStatistics`.
    """
    for number, message in _messages(_footer(source)[0]):
        if number == 7:
            for kind, of_timestamps in _messages(message):
                if kind == 9:
                    yield from ((zigzag >> 1) ^ -(zigzag & 1) for at, zigzag in _messages(of_timestamps) if at <= 4)


def _writer_zones(source: Any) -> Iterator[str]:
    """The time zone in which each stripe was written, "" where it names none.

    ORC specification v1, "Stripe Footer": `StripeInformation`, `StripeFooter.writerTimezone`.
    """
    footer, codec = _footer(source)
    for number, message in _messages(footer):
        if number == 3:
            stripe = dict(_messages(message))
            source.seek(sum(stripe.get(at, 0) for at in (1, 2, 3)))  # After its offset: indexes, then data.
            stripe_footer = dict(_messages(_inflated(source.read(stripe[4]), codec)))
            yield stripe_footer.get(3, b"").decode()


def _footer(source: Any) -> tuple[bytes, int]:
    """The footer, and the compression of it and of the stripe footers (ORC specification v1, "File Tail")."""
    size = source.seek(0, 2)
    source.seek(max(0, size - 256))
    tail = source.read()
    postscript = dict(_messages(tail[-1 - tail[-1] : -1]))
    footer_size, codec = postscript.get(1, 0), postscript.get(2, 0)
    source.seek(size - 1 - tail[-1] - footer_size)
    return _inflated(source.read(footer_size), codec), codec


def _messages(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer: (number, integer or bytes)."""
    offset = 0
    while offset < len(data):
        key, offset = varint.read(data, offset)
        match key & 7:
            case 0:
                value, offset = varint.read(data, offset)
                yield key >> 3, value
            case 2:
                length, offset = varint.read(data, offset)
                yield key >> 3, data[offset : offset + length]
                offset += length
            case 1 | 5 as fixed:
                offset += 8 if fixed == 1 else 4
            case other:
                raise ValueError(f"wire type {other} in the footer")


def _inflated(data: bytes, codec: int) -> bytes:
    """The content of a compressed stream; each chunk's three-byte header has its length and whether it is stored
    uncompressed."""
    if codec == 0:
        return data
    parts, offset = [], 0
    while offset < len(data):
        head = int.from_bytes(data[offset : offset + 3], "little")
        chunk = data[offset + 3 : offset + 3 + (head >> 1)]
        parts.append(chunk if head & 1 else bytes(_DECOMPRESS[codec](chunk)))
        offset += 3 + len(chunk)
    return b"".join(parts)


_DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {
    1: lambda chunk: zlib.decompress(chunk, -15),
    2: lambda chunk: bytes(cramjam.snappy.decompress_raw(chunk)),
    4: lambda chunk: bytes(cramjam.lz4.decompress_block(chunk, output_len=1 << 24)),
    5: lambda chunk: bytes(cramjam.zstd.decompress(chunk)),
}

_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)
_MENDED = (*_INSTANTS, Kind.CHAR, Kind.VARCHAR, Kind.STRING)
_BYTES_LIMITED = (Kind.BINARY, Kind.VARBINARY, Kind.UUID)


def _empty_columns(rows: int, batch_rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    for start in range(0, rows, batch_rows):
        length = min(batch_rows, rows - start)
        yield start, pa.RecordBatch.from_struct_array(pa.array([{}] * length, pa.struct([])))


def _mended(array: pa.Array, type: Type, utc_offset: Callable[[], int]) -> pa.Array:
    """A column as Java reads it, at any depth, where Arrow's reader differs.

    Texts are checked to be UTF-8; CHAR loses its padding; timestamps without time zone around 1970 get the seconds that
    a writer outside UTC meant.
    """
    match type:
        case Scalar(Kind.CHAR):
            return pc.utf8_rtrim(_utf8(array), characters=" ")
        case Scalar(Kind.VARCHAR | Kind.STRING):
            return _utf8(array)
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ):
            return _right_seconds(array, utc_offset)
        case Row(parts) if _has_mended(type):
            places = [array.type.get_field_index(part.name) for part in parts]
            children = [
                _mended(pc.struct_field(array, [i]), part.type, utc_offset)
                for i, part in zip(places, parts, strict=True)
            ]
            return casts.struct(array, children, pa.struct([array.type.field(i) for i in places]))
        case ListOf(element) if _has_mended(type):
            return casts.relist(array, array.type, _mended(casts.items(array), element.type, utc_offset))
        case MapOf() | MultisetOf() if _has_mended(type):
            keys, values = casts.entries(array)
            key, value = (type.key, type.value) if isinstance(type, MapOf) else (type.element, None)
            values = _mended(values, value.type, utc_offset) if value else values
            return casts.remap(array, array.type, _mended(keys, key.type, utc_offset), values)
    return array


def _right_seconds(array: pa.Array, utc_offset: Callable[[], int]) -> pa.Array:
    """Timestamps without time zone as Java reads them.

    Java's writer rounds the seconds before 1970 up, in UTC, and leaves the fraction. Java's reader subtracts one second
    where the seconds are negative and the fraction is a millisecond or more. Arrow's reader does the same, but only
    after it has shifted the seconds to the writer's time zone. Where the shift changes the sign, Arrow is one second
    late (east of UTC) or early (west). No time zone changed its offset within a day of 1970,
    so that one offset decides which.
    """
    if not pa.types.is_timestamp(array.type) or array.type.tz is not None:
        return array
    values = array.view(pa.int64())
    if not pc.any(_within(values, -_WIDEST_OFFSET, _WIDEST_OFFSET)).as_py():
        return array
    offset = utc_offset()
    if not offset:
        return array
    first, end, missing = (0, offset, -_SECOND) if offset > 0 else (offset - 1, -1, _SECOND)
    past = pc.subtract(values, first * _SECOND)
    fraction = pc.subtract(past, pc.multiply(pc.divide(past, _SECOND), _SECOND))
    wrong = pc.and_(_within(values, first, end), pc.greater_equal(fraction, _MILLISECOND))
    return pc.if_else(wrong, pc.add(values, missing), values).view(array.type)


def _within(nanoseconds: pa.Array, first: int, end: int) -> pa.Array:
    return pc.and_(pc.greater_equal(nanoseconds, first * _SECOND), pc.less(nanoseconds, end * _SECOND))


def _utf8(array: pa.Array) -> pa.Array:
    return array.cast(pa.binary()).cast(pa.string()) if pa.types.is_string(array.type) else array


def _has_mended(type: Type) -> bool:
    return any(isinstance(field.type, Scalar) and field.type.kind in _MENDED for field in walk((Field(-1, "", type),)))


def _own_field(arrow_field: pa.Field) -> Field:
    """A column by the attributes in its file (Iceberg specification, Appendix A, ORC)."""
    attributes = arrow_field.metadata or {}
    type = _attributed_type(arrow_field.type, attributes)
    return Field(int(attributes.get(_ID, NO_ID)), arrow_field.name, type, attributes.get(_REQUIRED) != b"true")


def _attributed_type(arrow_type: pa.DataType, attributes: Mapping[bytes, bytes]) -> Type:
    if pa.types.is_timestamp(arrow_type) and attributes.get(_UNIT) == b"NANOS":
        return scalar(Kind.TIMESTAMP if arrow_type.tz is None else Kind.TIMESTAMP_TZ, 9)
    if attributes.get(_LONG) == b"TIME":
        return scalar(Kind.TIME_MICROS)
    return _own_type(arrow_type)


def _marks(type: Type) -> dict[bytes, str]:
    """What the attributes of a type say beyond ORC's own type."""
    match type:
        case Scalar(Kind.TIME_MICROS):
            return {_LONG: "TIME"}
        case Scalar(Kind.UUID):
            return {_BINARY: "UUID"}
        case Scalar(Kind.FIXED, (length,)):
            return {_BINARY: "FIXED", _LENGTH: str(length)}
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)):
            return {_UNIT: "MICROS" if digits <= 6 else "NANOS"}
    return {}


def _own_type(arrow_type: pa.DataType) -> Type:
    if pa.types.is_struct(arrow_type):
        return Row(tuple(_own_field(arrow_type.field(i)) for i in range(arrow_type.num_fields)))
    if pa.types.is_list(arrow_type):
        return ListOf(_own_field(arrow_type.value_field))
    if pa.types.is_map(arrow_type):
        return MapOf(_own_field(arrow_type.key_field), _own_field(arrow_type.item_field))
    if pa.types.is_timestamp(arrow_type):  # Arrow reads all of them as nanoseconds.
        return scalar(Kind.TIMESTAMP if arrow_type.tz is None else Kind.TIMESTAMP_TZ, 6)
    return from_arrow(arrow_type)


def _file_field(field: Field, with_ids: bool, name: str | None = None) -> pa.Field:
    """A column of the file, with its id in the attributes of its type if requested."""
    attributes = (
        {_ID: str(field.id), _REQUIRED: str(not field.nullable).lower(), **_marks(field.type)} if with_ids else None
    )
    return pa.field(name or field.name, _file_type(field.type, with_ids), metadata=attributes)


def _file_type(type: Type, with_ids: bool = False) -> pa.DataType:
    match type:
        case Scalar(Kind.TIME):
            return pa.int32()
        case Scalar(Kind.TIME_MICROS):
            return pa.int64()
        case Scalar(Kind.UUID | Kind.FIXED):
            return pa.binary()
        case Row(parts):
            return pa.struct([_file_field(part, with_ids) for part in parts])
        case ListOf(element):
            return pa.list_(_file_field(element, with_ids, "element"))
        case MapOf(key, value) if with_ids:
            key_field = _file_field(key, with_ids, "key").with_nullable(False)
            return pa.map_(key_field, _file_field(value, with_ids, "value"))
        case MapOf(key, value):
            return pa.map_(_file_type(key.type), _file_type(value.type))
        case MultisetOf(element):
            return pa.map_(_file_type(element.type), pa.int32())
        case _:
            return to_arrow(type)


def _storable(array: pa.Array, type: Type, name: str) -> pa.Array:
    """A column as the ORC writer takes it: times are integers; timestamps only in the range that Arrow can read
    back."""
    match type:
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ):
            step = _NANOS[array.type.unit]
            values = array.view(pa.int64())
            bounds = pc.min_max(values).as_py()
            if bounds["min"] is not None and not -_SECONDS * step <= bounds["min"] <= bounds["max"] <= _SECONDS * step:
                raise InvalidInput(
                    f"column {name}: ORC timestamps outside 1677 to 2262 cannot be read back; use Parquet"
                )
            # Arrow writes the fraction of such a time as a negative number, which other engines misread.
            early = pc.filter(values, pc.less(values, 0))
            if pc.any(pc.not_equal(pc.multiply(pc.divide(early, step), step), early)).as_py():
                raise InvalidInput(
                    f"column {name}: ORC files with fractions of a second before 1970 are not read alike by all "
                    "engines; use Parquet"
                )
            return array
        case Scalar(Kind.TIME | Kind.TIME_MICROS | Kind.UUID | Kind.FIXED):
            return array.cast(_file_type(type))
        case Row(parts):
            # For a nullable row whose field is a slice of a longer array, Arrow writes wrong values.
            whole = pa.concat_arrays([array])
            children = [
                _storable(pc.struct_field(whole, [i]), part.type, f"{name}.{part.name}") for i, part in enumerate(parts)
            ]
            return casts.struct(whole, children, _file_type(type))
        case ListOf(element):
            return casts.relist(array, _file_type(type), _storable(casts.items(array), element.type, f"{name}[]"))
        case MapOf(key, value):
            keys, values = casts.entries(array)
            keys, values = _storable(keys, key.type, f"{name}[key]"), _storable(values, value.type, f"{name}[value]")
            return casts.remap(array, _file_type(type), keys, values)
        case MultisetOf(element):
            keys, values = casts.entries(array)
            return casts.remap(array, _file_type(type), _storable(keys, element.type, f"{name}[key]"), values)
        case _:
            return array


def _codec(name: str) -> str:
    return {"none": "uncompressed", "gzip": "zlib"}.get(name.lower(), name.lower())
