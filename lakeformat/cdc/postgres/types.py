"""PostgreSQL types -> lakeformat types, and the text of their values -> Arrow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.cdc.type_option import TypeOption
from lakeformat.codec import spans
from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.schema import Kind, Scalar, Type, scalar

_PLAIN = {
    "bool": scalar(Kind.BOOLEAN),
    "int2": scalar(Kind.SMALLINT),
    "int4": scalar(Kind.INT),
    "int8": scalar(Kind.BIGINT),
    "oid": scalar(Kind.BIGINT),
    "float4": scalar(Kind.FLOAT),
    "float8": scalar(Kind.DOUBLE),
    "bytea": scalar(Kind.BYTES),
    "date": scalar(Kind.DATE),
}
_PARSED_BY_ARROW = {
    *(Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL),
    *(Kind.DATE, Kind.TIMESTAMP, Kind.STRING, Kind.VARCHAR, Kind.CHAR),
}
_SPATIAL = {"point", "line", "lseg", "box", "path", "polygon", "circle", "geometry", "geography"}
_LENGTH_HEADER = 4  # Type modifiers of these types are larger by this than the length or digits.
_DEFAULT_DECIMAL = 38, 18
_MAX_PRECISION = 38
_HEX = np.zeros(256, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


@dataclass(frozen=True, slots=True)
class PostgresType:
    """A type: its name in `pg_type`, with domains resolved, and its modifier (-1: none)."""

    name: str
    modifier: int = -1


def to_type(column: str, type: PostgresType, options: Collection[TypeOption]) -> Type:
    """The column type. Raises `UnsupportedFeature` for spatial types."""
    if TypeOption.TO_STRING in options:
        return scalar(Kind.STRING)
    modifier = type.modifier
    match type.name:
        case name if name in _PLAIN:
            return _PLAIN[name]
        case "numeric":
            return _decimal(modifier)
        case "varchar" | "bpchar" as name if modifier > _LENGTH_HEADER and TypeOption.CHAR_TO_STRING not in options:
            length = modifier - _LENGTH_HEADER
            return scalar(Kind.CHAR, length) if name == "bpchar" and length <= 255 else scalar(Kind.VARCHAR, length)
        case "time":
            return scalar(Kind.TIME_MICROS)  # Paimon stores TIME in milliseconds.
        case "timestamp":
            return scalar(Kind.TIMESTAMP, 6 if modifier < 0 else modifier)
        case "timestamptz":
            return scalar(Kind.TIMESTAMP_TZ, 6 if modifier < 0 else modifier)
        case name if name in _SPATIAL:
            raise UnsupportedFeature(
                f"column {column!r} is of the spatial type {name}, which is not followed; leave the column out "
                f"(exclude_columns), or take all columns as text (type option 'to-string')"
            )
        case _:
            return scalar(Kind.STRING)  # json, uuid, enums, arrays, intervals ...: PostgreSQL's text.


def _decimal(modifier: int) -> Type:
    if modifier < 0:
        return scalar(Kind.DECIMAL, *_DEFAULT_DECIMAL)
    precision, scale = (modifier - _LENGTH_HEADER) >> 16, (modifier - _LENGTH_HEADER) & 0x7FF
    scale = scale - 0x800 if scale >= 0x400 else scale
    precision, scale = (precision - scale, 0) if scale < 0 else (max(precision, scale), scale)
    return scalar(Kind.DECIMAL, precision, scale) if precision <= _MAX_PRECISION else scalar(Kind.STRING)


def is_parsed_by_arrow(type: Type) -> bool:
    """Whether Arrow's CSV reader parses PostgreSQL's text as `to_values` does, or fails."""
    return isinstance(type, Scalar) and type.kind in _PARSED_BY_ARROW


def to_values(column: str, texts: pa.Array, type: PostgresType | None, target: Type) -> pa.Array:
    """Values parsed from text (binary, UTF-8), written with `DateStyle` ISO, `TimeZone` UTC and `bytea_output` hex."""
    assert isinstance(target, Scalar), target
    read = _READERS.get(target.kind, _cast)
    try:
        return read(texts, to_arrow(target))
    except pa.ArrowInvalid as error:
        source_type = f" ({type.name})" if type else ""
        raise InvalidInput(
            f"column {column!r}{source_type} holds a value that {target} cannot: {error}. Leave the column out "
            "(exclude_columns), take it as text (text_columns), or such values as NULL (on_misfit='null')"
        ) from error


def _cast(texts: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    # Only text has to be valid UTF-8: what is parsed has no other characters.
    return texts.cast(arrow_type) if pa.types.is_string(arrow_type) else texts.view(pa.string()).cast(arrow_type)


def _boolean(texts: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    return pc.equal(texts, pa.scalar(b"t", pa.binary()))


def _instant(texts: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    local = texts.cast(pa.string())
    if not pc.all(pc.ends_with(local, "+00")).as_py() and local.null_count < len(local):
        raise pa.ArrowInvalid(f"a time zone other than UTC, or no date of this era, e.g. {pc.min(local).as_py()}")
    return pc.utf8_slice_codeunits(local, 0, -3).cast(pa.timestamp(arrow_type.unit)).cast(arrow_type)


def _time(texts: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    moments = pc.binary_join_element_wise("1970-01-01", texts.cast(pa.string()), " ")
    return moments.cast(pa.timestamp("us")).cast(arrow_type)


def _hex(texts: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    data, offsets = spans.padded(texts)
    lengths = np.diff(offsets)
    has_value = lengths >= 2
    digits = spans.ranges(offsets[:-1][has_value] + 2, lengths[has_value] - 2)
    nibbles = _HEX[data[digits]]
    ends = np.concatenate([[0], np.cumsum(np.where(has_value, lengths - 2, 0) // 2)])
    made = spans.binary(ends, (nibbles[::2] << 4) | nibbles[1::2])
    return pc.if_else(pc.is_valid(texts), made, pa.scalar(None, pa.binary())).cast(arrow_type)


_READERS: dict[Kind, Callable[[pa.Array, pa.DataType], pa.Array]] = {
    Kind.BOOLEAN: _boolean,
    Kind.TIMESTAMP_TZ: _instant,
    Kind.TIME_MICROS: _time,
    Kind.BYTES: _hex,
}
