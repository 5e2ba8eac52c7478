"""Values converted to the types of columns, and text to values as Spark casts it."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
import uuid
from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any

from lakeformat.errors import InvalidInput
from lakeformat.model.exact import EXACT
from lakeformat.model.predicate.nodes import Call, Literal
from lakeformat.model.schema import Kind, Scalar, Type

BLANKS = "".join(map(chr, range(33))) + "\x7f"  # The characters that Spark strips before a cast.
_INTEGERS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
TEXTS = (Kind.CHAR, Kind.VARCHAR, Kind.STRING)
_BYTES = (Kind.BINARY, Kind.VARBINARY, Kind.BYTES, Kind.FIXED)
_UTC = dt.UTC
_EPOCH = dt.datetime(1970, 1, 1)
_DATE = re.compile(r"([+-]?\d{4,5})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?:[ T].*)?", re.DOTALL | re.ASCII)
_TIME_OF_DAY = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?"
_TIME = re.compile(_TIME_OF_DAY, re.ASCII)
_ZONE = r"\s*(Z|UTC|GMT|(?:UTC|GMT)?[+-]\d{1,2}(?::?\d{2})?)?"
_TIMESTAMP = re.compile(rf"(\d{{4}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T](?:{_TIME_OF_DAY})?{_ZONE})?)?)?", re.ASCII)


def coerce(value: Any, type: Type, label: str = "value") -> Any:
    """`value` as a value of `type`, e.g. `'2023-05-01'` for a date as `datetime.date`; None stays None.

    Raises `InvalidInput`, naming `label`, the type and the value, for a value of a wrong type or out of range.
    """
    if value is None:
        return None
    fitted, exact, side = fit(value, type, label)
    if side or not exact:
        raise InvalidInput(f"{label}: {type} cannot hold {value!r}")
    # The text of a FLOAT column's value, e.g. a partition's, is that value.
    # In a comparison text is a DOUBLE, as in Spark.
    return _single(fitted) if isinstance(value, str) and type == Scalar(Kind.FLOAT) else fitted


def fit(value: Any, type: Type, label: str) -> tuple[Any, bool, int]:
    """(the greatest value of `type` that is not above `value`, is it equal, -1/+1 if it lies below/above them all)."""
    if not isinstance(type, Scalar):
        raise InvalidInput(f"{label} is {type}: it cannot be compared with {value!r}; compare a part of it")
    result = None
    try:
        match type.kind:
            case Kind.BOOLEAN:
                result = _fit_boolean(value)
            case kind if kind in _INTEGERS:
                limit = 2 ** (_INTEGERS[kind] - 1)
                result = _fit_number(value, 0, -limit, limit - 1, int)
            case Kind.DECIMAL:
                precision, scale = type.parameters
                limit = 10**precision - 1
                result = _fit_number(value, scale, -limit, limit, lambda n: EXACT.scaleb(Decimal(n), -scale))
            case Kind.FLOAT | Kind.DOUBLE:
                result = _fit_float(value)
            case kind if kind in TEXTS:
                result = (value, True, 0) if isinstance(value, str) else None
            case kind if kind in _BYTES:
                result = (bytes(value), True, 0) if isinstance(value, bytes | bytearray | memoryview) else None
            case Kind.DATE:
                result = _fit_date(value)
            case Kind.TIME | Kind.TIME_MICROS as kind:
                result = _fit_time(value, 1000 if kind is Kind.TIME else 1)
            case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
                result = _fit_timestamp(value, type)
            case Kind.UUID:
                result = _fit_uuid(value)
    except InvalidOperation as error:
        raise InvalidInput(f"{label} is {type}: {value!r} is not a number") from error
    except ValueError as error:
        raise InvalidInput(f"{label} is {type}: {value!r} is not one ({error})") from error
    if result is None:
        kind_of = value.__class__.__name__
        raise InvalidInput(f"{label} is {type}: it cannot be compared with {value!r}, which is {kind_of}")
    return result


def parse_date(text: str) -> dt.date:
    """A date as Spark casts it from text: `2023-05-01`, `2023-5-1`, `2023-05`, `2023`; a time behind it is left out."""
    match = _DATE.fullmatch(text.strip(BLANKS))
    if not match:
        raise ValueError("a date looks like 2023-05-01")
    year, month, day = match.groups()
    return dt.date(int(year), int(month or 1), int(day or 1))


def parse_timestamp(text: str) -> tuple[dt.datetime, int]:
    """(timestamp, nanoseconds beyond its microseconds) of `2023-05-01 10:00:00.123Z`; aware only if a zone is given."""
    match = _TIMESTAMP.fullmatch(text.strip(BLANKS))
    if not match:
        raise ValueError("a timestamp looks like 2023-05-01 10:00:00")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    nanos = int((fraction or "0").ljust(9, "0"))
    value = dt.datetime(
        int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), nanos // 1000
    )
    return (value if zone is None else value.replace(tzinfo=_zone(zone))), nanos % 1000


def parse_time(text: str) -> dt.time:
    match = _TIME.fullmatch(text.strip(BLANKS))
    if not match:
        raise ValueError("a time looks like 10:00:00")
    hour, minute, second, fraction = match.groups()
    return dt.time(int(hour), int(minute), int(second or 0), int((fraction or "0").ljust(9, "0")) // 1000)


def number_text(value: str) -> str:
    """Without blanks; raises for Python's own forms of numbers, such as 1_000, which SQL lacks."""
    text = value.strip(BLANKS)
    if "_" in text or not text.isascii():
        raise ValueError(f"{value!r} is not a number")
    return text


def negated(value: float | Decimal) -> int | float | Decimal:
    return EXACT.minus(value) if isinstance(value, Decimal) else -value


def naive(value: dt.datetime) -> dt.datetime:
    return value.astimezone(_UTC).replace(tzinfo=None) if value.tzinfo else value


def _fit_boolean(value: Any) -> tuple[Any, bool, int] | None:
    if isinstance(value, bool):
        return value, True, 0
    if isinstance(value, str) and value.strip(BLANKS).lower() in ("true", "false"):
        return value.strip(BLANKS).lower() == "true", True, 0
    return None


def _fit_number(
    value: Any, scale: int, low: int, high: int, make: Callable[[int], Any]
) -> tuple[Any, bool, int] | None:
    """The number in units of `10**-scale`, as an integer between `low` and `high`."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        number = EXACT.create_decimal(number_text(value))
    elif isinstance(value, float):
        number = Decimal(repr(value))
    elif isinstance(value, int | Decimal):
        number = Decimal(value)
    else:
        return None
    if number.is_nan():
        return None, False, 1
    if number.is_infinite() or number.adjusted() > 60:
        return (None, False, 1 if number > 0 else -1) if number else (make(0), True, 0)
    units = EXACT.scaleb(number, scale)
    floor = int(units.to_integral_value(ROUND_FLOOR))
    exact = floor == units
    if floor > high:
        return None, False, 1
    if floor < low:
        # Nothing below the least value could be the lower neighbour.
        return None, False, -1
    return make(floor), exact, 0


def _fit_float(value: Any) -> tuple[Any, bool, int] | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return float(number_text(value)), True, 0
    if isinstance(value, int | float | Decimal):
        try:
            return float(value), True, 0
        except OverflowError:
            return (-math.inf if value < 0 else math.inf), True, 0
    return None


def _single(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _zone(text: str) -> dt.tzinfo:
    text = text.removeprefix("UTC").removeprefix("GMT").removeprefix("Z")
    if not text:
        return _UTC
    hours, _, minutes = text[1:].partition(":")
    if not minutes and len(hours) > 2:
        hours, minutes = hours[:-2], hours[-2:]
    offset = dt.timedelta(hours=int(hours), minutes=int(minutes or 0))
    return dt.timezone(-offset if text[0] == "-" else offset)


def _fit_date(value: Any) -> tuple[Any, bool, int] | None:
    if isinstance(value, dt.datetime):
        moment = naive(value)
        return moment.date(), moment.time() == dt.time(), 0
    if isinstance(value, dt.date):
        return value, True, 0
    return (parse_date(value), True, 0) if isinstance(value, str) else None


def _fit_time(value: Any, step: int) -> tuple[Any, bool, int] | None:
    if isinstance(value, str):
        value = parse_time(value)
    if not isinstance(value, dt.time):
        return None
    floor = value.replace(microsecond=value.microsecond // step * step)
    return floor, floor == value, 0


def _fit_timestamp(value: Any, type: Scalar) -> tuple[Any, bool, int] | None:
    digits = type.parameters[0] if type.parameters else 6
    extra = 0
    if isinstance(value, str):
        value, extra = parse_timestamp(value)
        value = value if type.kind is Kind.TIMESTAMP_TZ else value.replace(tzinfo=None)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    if not isinstance(value, dt.datetime):
        return None
    moment = naive(value)
    zoned = type.kind is Kind.TIMESTAMP_TZ
    if digits > 6:  # 64 bits of nanoseconds cover 1677 to 2262.
        nanos = ((moment - _EPOCH) // dt.timedelta(microseconds=1)) * 1000 + extra
        if not -(2**63) <= nanos < 2**63:
            return None, False, 1 if nanos > 0 else -1
        if extra:
            text = f"{moment.isoformat(' ', 'microseconds')}{extra:03d}"
            return Call("cast", (Literal(text), Literal(str(type)))), True, 0
    step = 1000 if digits <= 3 else 1
    floor = moment.replace(microsecond=moment.microsecond // step * step)
    return floor.replace(tzinfo=_UTC) if zoned else floor, floor == moment and not extra, 0


def _fit_uuid(value: Any) -> tuple[Any, bool, int] | None:
    if isinstance(value, str):
        value = uuid.UUID(value)
    if isinstance(value, uuid.UUID):
        return value.bytes, True, 0
    return (bytes(value), True, 0) if isinstance(value, bytes) and len(value) == 16 else None
