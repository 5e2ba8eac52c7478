"""Decodes row events of the MySQL and MariaDB binary log into columns, many events at once.

A row is a null bitmap and then the non-null values, without offsets, so the start of a row is only known when the
previous one is measured. One pass measures the n-th row of every event at a time;
a second pass reads all rows column by column.

Source: MySQL internals, "Rows_event" and "my_time_packed_from_binary" ff.; MySQL's `decimal2bin`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymysqlreplication.constants import FIELD_TYPE

from lakeformat.cdc.mysql import json_text
from lakeformat.cdc.mysql.charsets import Charsets
from lakeformat.codec import decimals, spans
from lakeformat.errors import CorruptFile, UnsupportedFeature

_PAD = 64  # Padding after the last row, for reads ahead and reads at a null's offset.
_DAY_MICROS = 86_400_000_000
_DIGITS = 9  # Decimal digits in a group of four bytes.
_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # Bytes of a group by its number of digits.
_WORD_DIGITS, _DECIMAL_DIGITS = 18, 38  # Digits that fit in int64 and in decimal128.
_FRACTION = (1, 10_000, 100, 1)  # Microseconds per unit, by the bytes of the fraction.
_MONTH_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0])
OLD_TIMES = {FIELD_TYPE.TIME, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP}  # Their fraction digits are not logged.
_WIDTHS = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
    FIELD_TYPE.FLOAT: 4,
    FIELD_TYPE.DOUBLE: 8,
    FIELD_TYPE.YEAR: 1,
    FIELD_TYPE.DATE: 3,
    FIELD_TYPE.TIME: 3,
    FIELD_TYPE.DATETIME: 8,
    FIELD_TYPE.TIMESTAMP: 4,
    FIELD_TYPE.TIME2: 3,
    FIELD_TYPE.DATETIME2: 5,
    FIELD_TYPE.TIMESTAMP2: 4,
}
_TEXTS = {FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING}
VECTOR = 242  # Of MySQL 9; the library does not know it.
_PREFIXED = {FIELD_TYPE.BLOB, FIELD_TYPE.JSON, FIELD_TYPE.GEOMETRY, VECTOR}
_BINARY = "binary"


@dataclass(frozen=True, slots=True)
class LogColumn:
    """A column, as described by a table map event."""

    name: str
    type: int  # A `FIELD_TYPE`.
    width: int = 0  # Bytes per value; 0: variable, after a length of `prefix` bytes.
    prefix: int = 0
    is_unsigned: bool = False
    precision: int = 0
    scale: int = 0
    charset: str | None = "utf8mb4"  # Character set of text; None: bytes.
    members: tuple[str, ...] = ()  # Enum members, from 1; set members, from the lowest bit.
    digits: int | None = None  # Fractional-second digits.

    @property
    def fraction(self) -> int:
        """Bytes of the fractional seconds."""
        return self.width - _WIDTHS[self.type]


@dataclass(frozen=True, slots=True)
class Images:
    """Rows of events with the same columns, in log order; an update event alternates before-images and after-images."""

    arrays: dict[str, pa.Array]
    counts: np.ndarray  # Rows per event.
    smallest: int  # Bytes of the shortest row.


def column_of(
    table: str, name: str, type: int, metadata: bytes, is_unsigned: bool, charset: str, members: Sequence[str]
) -> LogColumn:
    """A column by its type and metadata in a table map event.
    Raises `UnsupportedFeature` for a type that cannot be read."""
    first, second = (*metadata, 0, 0)[:2]
    text_charset = None if charset == _BINARY else charset
    match type:
        case FIELD_TYPE.TIME2 | FIELD_TYPE.DATETIME2 | FIELD_TYPE.TIMESTAMP2:
            return LogColumn(name, type, _WIDTHS[type] + (first + 1) // 2, digits=first)
        case _ if type in _WIDTHS:
            return LogColumn(name, type, _WIDTHS[type], is_unsigned=is_unsigned)
        case FIELD_TYPE.VARCHAR:
            return LogColumn(name, type, prefix=2 if second else 1, charset=text_charset)
        case FIELD_TYPE.STRING:  # Two bits of the length are in the first byte, inverted.
            return LogColumn(name, type, prefix=2 if first & 0x30 != 0x30 else 1, charset=text_charset)
        case _ if type in _PREFIXED:
            return LogColumn(name, type, prefix=first, charset=text_charset if type == FIELD_TYPE.BLOB else None)
        case FIELD_TYPE.NEWDECIMAL:
            sizes = [_group_bytes(group) for group in _groups(first, second)]
            return LogColumn(name, type, sum(sizes), precision=first, scale=second)
        case FIELD_TYPE.BIT:
            bits = 8 * second + first
            return LogColumn(name, type, (bits + 7) // 8, precision=bits)
        case FIELD_TYPE.ENUM:
            return LogColumn(name, type, second, members=("", *members))
        case FIELD_TYPE.SET:
            return LogColumn(name, type, second, members=tuple(members))
        case _:
            raise UnsupportedFeature(
                f"{table}: column {name!r} is of a type that cannot be read out of the log ({type}); change its type, "
                "and load the table again (restart=True)"
            )


def decode(bodies: Sequence[bytes], columns: Sequence[LogColumn], charsets: Charsets) -> Images:
    """Decode the rows of events. `bodies`: the row bytes of each event, without header. All rows have all `columns`."""
    buffer = np.frombuffer(b"".join((*bodies, bytes(_PAD))), np.uint8)
    ends = np.cumsum([len(body) for body in bodies])
    try:
        starts, counts = _starts(buffer, ends - [len(body) for body in bodies], ends, columns)
        arrays, after = _arrays(buffer, starts, columns, charsets)
    except (IndexError, pa.ArrowIndexError) as error:
        raise CorruptFile(f"binary log: rows end beyond their event, or have no such value: {error}") from error
    return Images(arrays, counts, int((after - starts).min(initial=1 << 62)))


def _starts(
    buffer: np.ndarray, begins: np.ndarray, ends: np.ndarray, columns: Sequence[LogColumn]
) -> tuple[np.ndarray, np.ndarray]:
    """Where each row begins, and how many rows each event has."""
    cursors, live, rounds = begins.copy(), np.flatnonzero(begins < ends), list[tuple[np.ndarray, np.ndarray]]()
    while len(live):
        here = cursors[live]
        rounds.append((live, here))
        cursors[live] = here = _after(buffer, here, columns)
        live = live[here < ends[live]]
    if (cursors != ends).any():
        raise CorruptFile("binary log: a row ends beyond its event")
    events = np.concatenate([np.empty(0, np.int64), *(numbers for numbers, _ in rounds)])
    starts = np.concatenate([np.empty(0, np.int64), *(offsets for _, offsets in rounds)])
    return np.sort(starts), np.bincount(events, minlength=len(begins))


def _after(buffer: np.ndarray, starts: np.ndarray, columns: Sequence[LogColumn]) -> np.ndarray:
    """Where each row ends."""
    words, offsets = spans.words(buffer), starts + (len(columns) + 7) // 8
    nulls = [_bits(buffer, starts, index) for index in range(0, len(columns), 8)]
    nulls[-1] = nulls[-1] & ((1 << ((len(columns) - 1) % 8 + 1)) - 1)  # Unused bits of the last byte are set.
    some = [bool(null.any()) for null in nulls]
    for index, column in enumerate(columns):
        size: Any = column.width or _little(words, offsets, column.prefix) + column.prefix
        offsets = offsets + (size * (nulls[index // 8] >> index % 8 & 1 ^ 1) if some[index // 8] else size)
    return offsets


def _bits(buffer: np.ndarray, starts: np.ndarray, position: int) -> np.ndarray:
    """Per row, the null-bitmap byte that contains column `position`."""
    return buffer[starts + position // 8].astype(np.int64)


def _arrays(
    buffer: np.ndarray, starts: np.ndarray, columns: Sequence[LogColumn], charsets: Charsets
) -> tuple[dict[str, pa.Array], np.ndarray]:
    """The values of each column, and where each row ends."""
    words, offsets, arrays = spans.words(buffer), starts + (len(columns) + 7) // 8, {}
    for index, column in enumerate(columns):
        is_null = _bits(buffer, starts, index) >> index % 8 & 1 != 0
        mask = is_null if is_null.any() else None
        size: Any = column.width or _little(words, offsets, column.prefix)
        begins: Any = offsets if column.width else offsets + column.prefix
        if mask is not None:
            begins, size = np.where(mask, offsets, begins), np.where(mask, 0, size)
        offsets = begins + size
        if column.width:
            arrays[column.name] = _READERS[column.type](buffer, begins, mask, column)
        else:
            arrays[column.name] = _text(column, spans.gather(buffer, begins, offsets, mask), charsets)
    return arrays, offsets


# --- values ---


def _text(column: LogColumn, values: pa.Array, charsets: Charsets) -> pa.Array:
    if column.type == FIELD_TYPE.JSON:
        return pa.array([json_text.text(value) if value else None for value in values.to_pylist()], pa.string())
    if column.charset is None:
        return values
    try:
        return charsets.decode(column.charset, values)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise CorruptFile(f"binary log: column {column.name!r} holds text that is not {column.charset}") from error


def _integer(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    words, width = spans.words(buffer), column.width
    if column.is_unsigned:
        return pa.array(words[offsets] if width == 8 else _little(words, offsets, width), mask=mask)
    unused = 64 - 8 * width
    return pa.array((words[offsets] << np.uint64(unused)).view(np.int64) >> unused, mask=mask)


def _floating(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    words = spans.words(buffer)[offsets]
    if column.type == FIELD_TYPE.FLOAT:
        return pa.array(words.astype(np.uint32).view(np.float32), mask=mask)
    return pa.array(words.view(np.float64), mask=mask)


def _year(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    years = buffer[offsets].astype(np.int64)
    return pa.array(np.where(years == 0, 0, years + 1900), mask=mask)


def _bit(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    made = spans.fixed(buffer[offsets[:, None] + np.arange(column.width)].ravel(), column.width, len(offsets))
    return _masked(made, mask)


def _enum(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    numbers = _little(spans.words(buffer), offsets, column.width)
    return pa.array(column.members, pa.string()).take(pa.array(numbers, mask=mask))


def _set(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    bits = spans.words(buffer)[offsets]
    if column.width < 8:
        bits = bits & np.uint64((1 << 8 * column.width) - 1)
    masks, which = np.unique(bits, return_inverse=True)
    texts = [
        ",".join(member for index, member in enumerate(column.members) if mask >> index & 1) for mask in masks.tolist()
    ]
    return pa.array(texts, pa.string()).take(pa.array(which.ravel(), mask=mask))


def _date(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    packed = _little(spans.words(buffer), offsets, 3)
    days, is_none = _days(packed >> 9, packed >> 5 & 15, packed & 31)
    return pa.array(days.astype(np.int32), pa.date32(), mask=_either(mask, is_none))


def _datetime(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    """Digits, as MySQL 5.5 has it, and MariaDB with `mysql56_temporal_format` OFF."""
    digits = _little(spans.words(buffer), offsets, 8)
    date, time = digits // 1_000_000, digits % 1_000_000
    days, is_none = _days(date // 10_000, date // 100 % 100, date % 100)
    micros = days * _DAY_MICROS + _clock(time // 10_000, time // 100 % 100, time % 100)
    return pa.array(micros, pa.timestamp("us"), mask=_either(mask, is_none))


def _datetime2(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    packed = _big(buffer, offsets, 5) - (1 << 39)
    months = packed >> 22
    days, is_none = _days(months // 13, months % 13, packed >> 17 & 31)
    micros = days * _DAY_MICROS + _clock(packed >> 12 & 31, packed >> 6 & 63, packed & 63)
    return pa.array(
        micros + _fraction(buffer, offsets + 5, column), pa.timestamp("us"), mask=_either(mask, is_none | (packed < 0))
    )


def _timestamp(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    is_old = column.type == FIELD_TYPE.TIMESTAMP
    seconds = _little(spans.words(buffer), offsets, 4) if is_old else _big(buffer, offsets, 4)
    micros = seconds * 1_000_000 + _fraction(buffer, offsets + 4, column)
    return pa.array(micros, pa.timestamp("us"), mask=_either(mask, micros == 0))  # 0000-00-00.


def _time(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    """Digits, as MySQL 5.5 has it, and MariaDB with `mysql56_temporal_format` OFF."""
    packed = _little(spans.words(buffer), offsets, 3)
    packed = np.where(packed >= 1 << 23, packed - (1 << 24), packed)
    digits = np.abs(packed)
    micros = _clock(digits // 10_000, digits // 100 % 100, digits % 100) * np.sign(packed)
    return pa.array(micros, pa.duration("us"), mask=mask)


def _time2(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    whole, fraction = _big(buffer, offsets, 3) - (1 << 23), _big(buffer, offsets + 3, column.fraction)
    # A negative time negates the whole number: 24 bits of hours, minutes, seconds, then the fraction.
    both = (whole << 8 * column.fraction) + fraction
    size = np.abs(both)
    clock, fraction = size >> 8 * column.fraction, size & (1 << 8 * column.fraction) - 1
    micros = _clock(clock >> 12 & 1023, clock >> 6 & 63, clock & 63) + fraction * _FRACTION[column.fraction]
    return pa.array(micros * np.sign(both), pa.duration("us"), mask=mask)


def _fraction(buffer: np.ndarray, offsets: np.ndarray, column: LogColumn) -> np.ndarray:
    return _big(buffer, offsets, column.fraction) * _FRACTION[column.fraction]


def _clock(hours: np.ndarray, minutes: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    micros: np.ndarray = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    return micros


def _days(years: np.ndarray, months: np.ndarray, days: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Days since 1970, and a mask of invalid dates (0000-00-00, 2024-02-31)."""
    is_leap = (years % 4 == 0) & ((years % 100 != 0) | (years % 400 == 0))
    longest = _MONTH_DAYS[months & 15] - ((months == 2) & ~is_leap)
    is_none = (years < 1) | (months < 1) | (days < 1) | (days > longest)
    # Count years from March, so that the leap day is the last day.
    year = years - (months <= 2)
    day = (153 * (months + np.where(months > 2, -3, 9)) + 2) // 5 + days - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day - 719_468, is_none


def _decimal(buffer: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, column: LogColumn) -> pa.Array:
    """Integer and fractional digits in groups of nine. The first bit is the sign;
    a negative number has all bits inverted."""
    groups, negative = list[tuple[np.ndarray, int]](), buffer[offsets] < 0x80
    position, flip = offsets, np.where(negative, -1, 0)
    for digits in _groups(column.precision, column.scale):
        size = _group_bytes(digits)
        group = _big(buffer, position, size)
        if position is offsets:
            group ^= 1 << 8 * size - 1
        groups.append(((group ^ flip) & (1 << 8 * size) - 1, digits))
        position = position + size
    if column.precision <= _WORD_DIGITS:
        total = np.zeros(len(offsets), np.int64)
        for group, digits in groups:
            total = total * 10**digits + group
        total = np.where(negative, -total, total)
        return decimals.from_int64(total, pa.decimal128(column.precision, column.scale), mask)
    wide = pa.decimal128 if column.precision <= _DECIMAL_DIGITS else pa.decimal256
    if not len(offsets):
        return pa.array([], wide(column.precision, column.scale))
    figures = np.hstack([group[:, None] // 10 ** np.arange(count)[::-1] % 10 for group, count in groups])
    whole = column.precision - column.scale
    point = np.full((len(offsets), 1), ord("."))
    text = np.hstack(
        [np.where(negative, ord("-"), ord("+"))[:, None], figures[:, :whole] + 48, point, figures[:, whole:] + 48]
    )
    texts = spans.fixed(text.astype(np.uint8).ravel(), text.shape[1], len(offsets)).cast(pa.string())
    return _masked(texts, mask).cast(wide(column.precision, column.scale))


def _groups(precision: int, scale: int) -> list[int]:
    """The digits of each group: the short group comes first in the integer part and last in the fraction."""
    whole = precision - scale
    before = [whole % _DIGITS, *[_DIGITS] * (whole // _DIGITS)]
    behind = [*[_DIGITS] * (scale // _DIGITS), scale % _DIGITS]
    return [group for group in (*before, *behind) if group]


def _group_bytes(digits: int) -> int:
    return _GROUP_BYTES[digits]


def _masked(values: pa.Array, mask: np.ndarray | None) -> pa.Array:
    return values if mask is None else pc.if_else(pa.array(~mask), values, pa.scalar(None, values.type))


def _either(mask: np.ndarray | None, other: np.ndarray) -> np.ndarray:
    return other if mask is None else mask | other


def _little(words: np.ndarray, offsets: np.ndarray, size: int) -> np.ndarray:
    """Little-endian integers of `size` bytes, as int64."""
    values = words[offsets] if size == 8 else words[offsets] & np.uint64((1 << 8 * size) - 1)
    return values.view(np.int64)


def _big(buffer: np.ndarray, offsets: np.ndarray, size: int) -> np.ndarray:
    """Big-endian integers of `size` bytes (at most 7), as int64."""
    if not size:
        return np.zeros(len(offsets), np.int64)
    return (spans.words(buffer)[offsets].byteswap() >> np.uint64(64 - 8 * size)).view(np.int64)


_READERS: dict[int, Callable[[np.ndarray, np.ndarray, np.ndarray | None, LogColumn], pa.Array]] = {
    FIELD_TYPE.TINY: _integer,
    FIELD_TYPE.SHORT: _integer,
    FIELD_TYPE.INT24: _integer,
    FIELD_TYPE.LONG: _integer,
    FIELD_TYPE.LONGLONG: _integer,
    FIELD_TYPE.FLOAT: _floating,
    FIELD_TYPE.DOUBLE: _floating,
    FIELD_TYPE.YEAR: _year,
    FIELD_TYPE.DATE: _date,
    FIELD_TYPE.TIME: _time,
    FIELD_TYPE.TIME2: _time2,
    FIELD_TYPE.DATETIME: _datetime,
    FIELD_TYPE.DATETIME2: _datetime2,
    FIELD_TYPE.TIMESTAMP: _timestamp,
    FIELD_TYPE.TIMESTAMP2: _timestamp,
    FIELD_TYPE.NEWDECIMAL: _decimal,
    FIELD_TYPE.BIT: _bit,
    FIELD_TYPE.ENUM: _enum,
    FIELD_TYPE.SET: _set,
}
