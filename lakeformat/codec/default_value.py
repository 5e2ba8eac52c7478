"""Default values of columns: the text of a declaration <-> Arrow, and Iceberg's JSON (spec, Appendix D: JSON single-value
serialization)."""

from __future__ import annotations

import datetime
import json
import uuid
from typing import Any

import pyarrow as pa

from lakeformat.codec import evaluation
from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import InvalidInput, LakeError, UnsupportedFeature
from lakeformat.model.schema import Kind, Scalar, Type, is_plain

_BYTES = (Kind.BYTES, Kind.FIXED)


def value(given: str | bytes, type: Type, what: str) -> pa.Scalar:
    """The value that a default means; raises `InvalidInput`, naming `what`, where it is none of its type."""
    target = to_arrow(type)
    try:
        match type, given:
            case Scalar(kind), bytes() if kind in (*_BYTES, Kind.UUID):
                return pa.array([given], target)[0]
            case Scalar(Kind.FIXED), str():
                return pa.array([given.encode()], target)[0]
            case Scalar(Kind.UUID), str():
                return pa.array([uuid.UUID(given).bytes], target)[0]
            case Scalar(), str():
                return evaluation.cast(pa.array([given]), target)[0]
    except (LakeError, pa.ArrowException, ValueError) as error:
        raise InvalidInput(f"{what}: default {given!r} is no {type}: {error}") from error
    raise InvalidInput(f"{what}: default {given!r} is no {type}")


def to_json(given: str | bytes, type: Type, what: str) -> Any:
    """A default as a schema in table metadata has it."""
    if not isinstance(type, Scalar) or not is_plain(type):
        raise UnsupportedFeature(f"{what}: a default of {type}: Iceberg has null alone there; give its parts defaults")
    found = value(given, type, what)
    match type.kind:
        case Kind.BOOLEAN | Kind.INT | Kind.BIGINT | Kind.STRING:
            return found.as_py()
        case Kind.FLOAT | Kind.DOUBLE:
            number = found.as_py()
            if number - number != 0:
                raise InvalidInput(f"{what}: default {given!r}: metadata of a table has no number for it")
            return number
        case Kind.DECIMAL:
            return format(found.as_py(), "f")
        case Kind.DATE:
            return found.as_py().isoformat()
        case Kind.TIME_MICROS:
            return found.as_py().isoformat("microseconds")
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as kind:
            return _moment(found.value, type.parameters[0]) + ("+00:00" if kind is Kind.TIMESTAMP_TZ else "")
        case Kind.UUID:
            return str(uuid.UUID(bytes=found.as_py()))
    return found.as_py().hex().upper()


def from_json(held: Any, type: Type, what: str) -> str | bytes:
    """What `to_json` made. Raises `UnsupportedFeature` for a default of rows, lists and maps."""
    match type, held:
        case Scalar(kind), str() if kind in _BYTES:
            return bytes.fromhex(held)
        case Scalar(), str():
            return held
        case Scalar(), bool() | int() | float():
            return json.dumps(held)
    raise UnsupportedFeature(f"{what}: default {held!r} of {type}: not supported; give its parts defaults")


def _moment(count: int, digits: int) -> str:
    per_second = 10 ** (6 if digits <= 6 else 9)
    seconds, rest = divmod(count, per_second)
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    return f"{at.isoformat()}.{rest:0{6 if digits <= 6 else 9}}"
