"""MySQL and MariaDB types -> lakeformat types, and their values (text, log or PyMySQL) -> Arrow."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymysqlreplication.constants import FIELD_TYPE

from lakeformat.cdc.mysql.row_events import VECTOR, LogColumn
from lakeformat.cdc.mysql.text_rows import TextColumn
from lakeformat.cdc.type_option import TypeOption
from lakeformat.codec import spans
from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.schema import Kind, Scalar, Type, scalar

_INTEGERS = {  # (signed, unsigned)
    "tinyint": (scalar(Kind.TINYINT), scalar(Kind.SMALLINT)),
    "smallint": (scalar(Kind.SMALLINT), scalar(Kind.INT)),
    "mediumint": (scalar(Kind.INT), scalar(Kind.INT)),
    "int": (scalar(Kind.INT), scalar(Kind.BIGINT)),
    "bigint": (scalar(Kind.BIGINT), scalar(Kind.DECIMAL, 20, 0)),
}
_SPATIAL = {
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
}
_NUMBERS = {*_INTEGERS, "decimal", "float", "double", "year"}
_TEXTS = {
    "char",
    "varchar",
    "tinytext",
    "text",
    "mediumtext",
    "longtext",
    "enum",
    "set",
    "json",
    "uuid",
    "inet4",
    "inet6",
}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "longtext", "vector"}
_KNOWN = {*_NUMBERS, *_TEXTS, *_BYTES, "bit", "date", "time", "datetime", "timestamp"}
_MAX_PRECISION = 38
_ADDRESS_BYTES = {"inet4": 4, "inet6": 16}
_UUID_BYTES = 16
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_HYPHENS = (8, 12, 16, 20)  # Digits that a hyphen precedes.


@dataclass(frozen=True, slots=True)
class MySqlType:
    """A column type as in `information_schema.columns`."""

    name: str  # data_type: "int"
    text: str  # column_type: "int(10) unsigned", "set('a','b')"
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    digits: int | None = None  # Fractional-second digits.
    charset: str | None = None
    collation: str | None = None

    @property
    def is_boolean(self) -> bool:
        return self.text.startswith("tinyint(1)") or (self.name == "bit" and self.precision == 1)


_OF_LOG = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.NEWDECIMAL: "decimal",
    FIELD_TYPE.BIT: "bit",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.TIME: "time",
    FIELD_TYPE.TIME2: "time",
    FIELD_TYPE.DATETIME: "datetime",
    FIELD_TYPE.DATETIME2: "datetime",
    FIELD_TYPE.TIMESTAMP: "timestamp",
    FIELD_TYPE.TIMESTAMP2: "timestamp",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.ENUM: "enum",
    FIELD_TYPE.SET: "set",
    FIELD_TYPE.JSON: "json",
    FIELD_TYPE.GEOMETRY: "geometry",
    VECTOR: "vector",
}


def of_log(column: LogColumn) -> MySqlType:
    """The type of a dropped column, from the log, which has no text lengths."""
    name = _OF_LOG.get(column.type, "blob" if column.charset is None else "text")
    text = f"{name} unsigned" if column.is_unsigned else name
    return MySqlType(name, text, None, column.precision or None, column.scale, column.digits)


def to_type(  # noqa: C901 - a case for each type
    column: str, type: MySqlType, options: Collection[TypeOption], *, is_key: bool = False
) -> Type:
    """The column type, mapped as Paimon's CDC does. Raises `UnsupportedFeature` for spatial types,
    and types that are not known."""
    if type.name not in _KNOWN:
        kind = "spatial type" if type.name in _SPATIAL else "type"
        raise UnsupportedFeature(
            f"column {column!r} is of the {kind} {type.name}, which is not followed; "
            "leave the column out (exclude_columns)"
        )
    is_unsigned = "unsigned" in type.text
    match type.name:
        case _ if TypeOption.TO_STRING in options:
            return scalar(Kind.STRING)
        case "tinyint" | "bit" if type.is_boolean and not (
            TypeOption.TINYINT1_NOT_BOOL in options or (is_key and type.name == "tinyint")
        ):  # TINYINT(1) has more than two values, which are different keys.
            return scalar(Kind.BOOLEAN)
        case "bigint" if is_unsigned and TypeOption.BIGINT_UNSIGNED_TO_BIGINT in options:
            return scalar(Kind.BIGINT)
        case name if name in _INTEGERS:
            return _INTEGERS[name][is_unsigned]
        case "bit":
            return scalar(Kind.VARBINARY, ((type.precision or 1) + 7) // 8)
        case "float":
            return scalar(Kind.FLOAT)
        case "double":
            return scalar(Kind.DOUBLE)
        case "decimal":
            precision, scale = type.precision or 10, type.scale or 0
            return scalar(Kind.DECIMAL, precision, scale) if precision <= _MAX_PRECISION else scalar(Kind.STRING)
        case "date":
            return scalar(Kind.DATE)
        case "time":
            return scalar(Kind.TIME_MICROS)  # Paimon stores TIME in milliseconds.
        case "datetime":
            return scalar(Kind.TIMESTAMP, type.digits or 0)
        case "timestamp":
            return scalar(Kind.TIMESTAMP_TZ, type.digits or 0)
        case "year":
            return scalar(Kind.INT)
        case "char" | "varchar" as name if type.length and TypeOption.CHAR_TO_STRING not in options:
            return scalar(Kind.CHAR if name == "char" and type.length <= 255 else Kind.VARCHAR, type.length)
        case "binary" | "varbinary" if type.length:
            return scalar(Kind.VARBINARY, type.length)
        case "tinyblob" | "blob" | "mediumblob" | "longblob" | "binary" | "varbinary" | "vector":
            return scalar(Kind.BYTES)
        case "longtext" if TypeOption.LONGTEXT_TO_BYTES in options:
            return scalar(Kind.BYTES)
        case _:
            return scalar(Kind.STRING)


def of_log_values(column: str, values: pa.Array, type: MySqlType, target: Type) -> pa.Array:
    """Log values, as `row_events` decodes them, cast to the column's current type."""
    assert isinstance(target, Scalar), target
    try:
        converted = _cast(values, type, target)
    except pa.ArrowInvalid:
        converted = None
    return to_values(column, values.to_pylist(), type, target) if converted is None else converted


def _cast(values: pa.Array, type: MySqlType, target: Scalar) -> pa.Array | None:
    """Log values cast by Arrow; None for types that Arrow converts differently than the client."""
    stored, arrow = values.type, to_arrow(target)
    match target.kind:
        case Kind.BOOLEAN | Kind.TINYINT | Kind.SMALLINT | Kind.INT | Kind.BIGINT if pa.types.is_integer(stored):
            return values.cast(arrow)
        case Kind.DECIMAL if pa.types.is_integer(stored) or pa.types.is_decimal(stored):
            return values.cast(arrow)
        case Kind.FLOAT | Kind.DOUBLE if pa.types.is_floating(stored):
            return values.cast(arrow)
        case Kind.DATE if pa.types.is_date(stored):
            return values
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ if pa.types.is_timestamp(stored):
            return values.cast(pa.timestamp(arrow.unit)).cast(arrow)
        case Kind.STRING | Kind.CHAR | Kind.VARCHAR if pa.types.is_string(stored):
            return values
        case Kind.VARBINARY | Kind.BYTES if pa.types.is_binary(stored) and type.name == "binary":
            return _padded(values, type.length or 0)
        case Kind.VARBINARY | Kind.BYTES if pa.types.is_binary(stored) and type.name != "bit":
            return values
        case Kind.STRING if pa.types.is_binary(stored) and type.name == "uuid":
            return _uuids(values)
        case Kind.STRING if pa.types.is_binary(stored) and type.name in _ADDRESS_BYTES:
            return _addresses(values, _ADDRESS_BYTES[type.name])
        case _:
            return None


def _padded(values: pa.Array, size: int) -> pa.Array:
    """Values padded with the trailing zeros that the log omits."""
    padded = pc.binary_slice(pc.binary_join_element_wise(values, bytes(size), b""), 0, size)
    return pc.if_else(pc.less(pc.binary_length(values), size), padded, values)


def _uuids(values: pa.Array) -> pa.Array:
    """MariaDB UUIDs as text; their bytes are in the order of the digits."""
    whole = _padded(pc.fill_null(values, bytes(_UUID_BYTES)), _UUID_BYTES).cast(pa.binary(_UUID_BYTES))
    octets = np.frombuffer(whole.buffers()[1], np.uint8).reshape(-1, _UUID_BYTES)
    digits = _HEX[np.stack([octets >> 4, octets & 15], axis=2)].reshape(len(values), -1)
    texts = np.insert(digits, _UUID_HYPHENS, ord("-"), axis=1)
    made = spans.fixed(texts.ravel(), texts.shape[1], len(values)).cast(pa.string())
    return pc.if_else(values.is_valid(), made, pa.scalar(None, pa.string()))


def _addresses(values: pa.Array, size: int) -> pa.Array:
    addresses = _padded(values, size).dictionary_encode()
    family = socket.AF_INET6 if size == _ADDRESS_BYTES["inet6"] else socket.AF_INET
    texts = [_address(socket.inet_ntop(family, address)) for address in addresses.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(addresses.indices)


def _address(text: str) -> str:
    """The address as MariaDB writes it: `::` also replaces a single zero group."""
    groups = text.split(":")
    if "" in groups or "0" not in groups:
        return text
    at = groups.index("0")
    return f"{':'.join(groups[:at])}::{':'.join(groups[at + 1 :])}"


def of_texts(column: str, texts: TextColumn, type: MySqlType, target: Type) -> pa.Array:
    """Values parsed from the server's text protocol."""
    assert isinstance(target, Scalar), target
    try:
        converted = _parsed(texts.texts, type, target)
    except pa.ArrowInvalid:
        converted = None
    return to_values(column, texts.values(), type, target) if converted is None else converted


def _parsed(texts: pa.Array, type: MySqlType, target: Scalar) -> pa.Array | None:
    """Texts parsed by Arrow; None for types that Arrow parses differently than PyMySQL."""
    arrow = to_arrow(target)
    match target.kind:
        case Kind.BOOLEAN if type.name == "tinyint":
            return pc.not_equal(texts.cast(pa.string()).cast(pa.int16()), 0)
        case Kind.TINYINT | Kind.SMALLINT | Kind.INT | Kind.BIGINT | Kind.FLOAT | Kind.DOUBLE | Kind.DECIMAL:
            return texts.cast(pa.string()).cast(arrow) if type.name in _NUMBERS else None
        case Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
            local = texts.cast(pa.string())
            local = pc.if_else(pc.starts_with(local, "0000-00-00"), pa.scalar(None, pa.string()), local)
            return local.cast(arrow) if target.kind is Kind.DATE else local.cast(pa.timestamp(arrow.unit)).cast(arrow)
        case Kind.STRING | Kind.CHAR | Kind.VARCHAR if type.name in _TEXTS:
            return texts.cast(pa.string())
        case Kind.VARBINARY | Kind.BYTES if type.name in _BYTES:
            return texts
        case _:
            return None


def to_values(column: str, values: Sequence[Any], type: MySqlType, target: Type) -> pa.Array:
    """Arrow values from Python values, as PyMySQL or the log has them."""
    assert isinstance(target, Scalar), target
    if (read := _converter(type)) is not None:
        values = [None if value is None else read(value) for value in values]
    arrow = to_arrow(target)
    try:
        match target.kind:
            case Kind.STRING:
                return pa.array(
                    [value if value is None or isinstance(value, str) else to_text(value, type) for value in values],
                    arrow,
                )
            case Kind.BOOLEAN:
                return pa.array([None if value is None else bool(value) for value in values], arrow)
            case Kind.VARBINARY if type.name == "bit" and target.parameters:
                size = target.parameters[0]
                return pa.array(
                    [None if value is None else int(value).to_bytes(size, "big") for value in values], arrow
                )
            case Kind.BYTES:
                return pa.array([value.encode() if isinstance(value, str) else value for value in values], arrow)
            case Kind.TIME_MICROS:
                durations = pa.array(values, pa.duration("us")).cast(pa.int64())
                if pc.any(pc.or_(pc.less(durations, 0), pc.greater_equal(durations, 86_400_000_000))).as_py():
                    raise pa.ArrowInvalid("a time below 00:00:00 or above 23:59:59.999999")
                return durations.cast(arrow)
            case _:
                return pa.array(values, arrow)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(
            f"column {column!r} ({type.text}) holds a value that {target} cannot: {error}. Leave the column out "
            "(exclude_columns), take it as text (text_columns), or such values as NULL (on_misfit='null')"
        ) from error


def _converter(type: MySqlType) -> Callable[[Any], Any] | None:
    """The converter for one client or log value; None if none is needed."""
    match type.name:
        case "bit":
            return lambda value: int.from_bytes(value) if isinstance(value, bytes) else value
        case "binary":  # The log omits trailing zeros.
            return lambda value: (value.encode() if isinstance(value, str) else value).ljust(type.length or 0, b"\0")
        case "varbinary":
            return lambda value: value.encode() if isinstance(value, str) else value
        case "date" | "datetime" | "timestamp":  # PyMySQL returns 0000-00-00 as text.
            return lambda value: None if isinstance(value, str) else value
        case _:
            return None


def to_text(value: Any, type: MySqlType) -> str:
    """A PyMySQL value as the server would write it."""
    digits = type.digits or 0
    size = digits and digits + 1  # Characters of the fractional seconds.
    match value:
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case datetime.timedelta():
            seconds, sign = abs(value) // datetime.timedelta(seconds=1), "-" if value < datetime.timedelta(0) else ""
            fraction = f".{abs(value).microseconds:06}"[:size]
            return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
        case datetime.datetime():
            return value.isoformat(" ", "microseconds")[: len("2024-02-29 12:00:00") + size]
        case Decimal():
            return f"{value:f}"  # No exponent.
        case _:
            return str(value)
