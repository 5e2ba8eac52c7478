"""Default values of columns: the text in a declaration <-> Arrow, and Iceberg's JSON (spec, Appendix D: JSON
single-value serialization)."""

from __future__ import annotations

import datetime
import json
import uuid
from typing import Any, Literal

import pyarrow as pa

from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import InvalidInput, LakeError, UnsupportedFeature
from lakeformat.expression import evaluation
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, Row, Scalar, Type, is_plain

_BYTES = (Kind.BYTES, Kind.FIXED)


def value(
    default: str | bytes, type: Type, subject: str, of_parts: Literal["initial", "default"] = "initial"
) -> pa.Scalar:
    """The value of a default. Raises `InvalidInput`, naming `subject`, if it is not of the type.

    The default of a row is `{}`: its fields have defaults of their own; `of_parts` chooses which of them. Lists and
    maps are JSON, as in table metadata.
    """
    target = to_arrow(type)
    try:
        if isinstance(type, Row | ListOf | MapOf):
            return _nested(json.loads(default), type, subject, of_parts)
        match type, default:
            case Scalar(kind), bytes() if kind in (*_BYTES, Kind.UUID):
                return pa.array([default], target)[0]
            case Scalar(Kind.FIXED), str():
                return pa.array([default.encode()], target)[0]
            case Scalar(Kind.UUID), str():
                return pa.array([uuid.UUID(default).bytes], target)[0]
            case Scalar(), str():
                return evaluation.cast(pa.array([default]), target)[0]
    except (LakeError, pa.ArrowException, ValueError) as error:
        raise InvalidInput(f"{subject}: default {default!r} is not a valid {type}: {error}") from error
    raise InvalidInput(f"{subject}: default {default!r} is not a valid {type}")


def to_json(default: str | bytes, type: Type, subject: str) -> Any:
    """A default as schemas in table metadata store it."""
    if isinstance(type, Row | ListOf | MapOf):
        value(default, type, subject)
        return json.loads(default)
    if not isinstance(type, Scalar) or not is_plain(type):
        raise UnsupportedFeature(f"{subject}: a default of {type}: Iceberg has null alone there")
    parsed = value(default, type, subject)
    match type.kind:
        case Kind.BOOLEAN | Kind.INT | Kind.BIGINT | Kind.STRING:
            return parsed.as_py()
        case Kind.FLOAT | Kind.DOUBLE:
            number = parsed.as_py()
            if number - number != 0:
                raise InvalidInput(f"{subject}: default {default!r}: metadata of a table has no number for it")
            return number
        case Kind.DECIMAL:
            return format(parsed.as_py(), "f")
        case Kind.DATE:
            return parsed.as_py().isoformat()
        case Kind.TIME_MICROS:
            return parsed.as_py().isoformat("microseconds")
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as kind:
            return _moment(parsed.value, type.parameters[0]) + ("+00:00" if kind is Kind.TIMESTAMP_TZ else "")
        case Kind.UUID:
            return str(uuid.UUID(bytes=parsed.as_py()))
    return parsed.as_py().hex().upper()


def from_json(default: Any, type: Type, subject: str) -> str | bytes:
    """The inverse of `to_json`: text, or bytes. Rows, lists and maps give the bytes of their JSON, which declared text
    never is. Raises `UnsupportedFeature` for JSON that is no default of the type."""
    match type, default:
        case Row(), {}:
            if not default:
                return b"{}"
        case ListOf(), list():
            return json.dumps(default).encode()
        case MapOf(), {"keys": list(keys), "values": list(values)} if len(keys) == len(values):
            return json.dumps(default).encode()
        case Scalar(kind), str() if kind in _BYTES:
            return bytes.fromhex(default)
        case Scalar(), str():
            return default
        case Scalar(), bool() | int() | float():
            return json.dumps(default)
    raise UnsupportedFeature(f"{subject}: default {default!r} of {type}: not supported")


def _nested(
    default: Any, type: Row | ListOf | MapOf, subject: str, of_parts: Literal["initial", "default"]
) -> pa.Scalar:
    """The value of a row, list or map from JSON in metadata; a row without values takes its fields' defaults."""
    target = to_arrow(type)

    def items(values: list[Any], part: Field) -> pa.Array:
        kind = to_arrow(part.type)
        scalars = [
            pa.scalar(None, kind)
            if v is None
            else value(from_json(v, part.type, subject), part.type, subject, of_parts)
            for v in values
        ]
        return pa.concat_arrays([pa.array([], kind), *(pa.repeat(v, 1) for v in scalars)])

    match type, default:
        case Row(parts), {} if not default:
            columns = []
            for part in parts:
                part_default = getattr(part, of_parts)
                kind = to_arrow(part.type)
                columns.append(
                    pa.nulls(1, kind)
                    if part_default is None
                    else pa.repeat(value(part_default, part.type, subject, of_parts), 1)
                )
            return pa.StructArray.from_arrays(columns, fields=target.fields)[0]
        case ListOf(element), list():
            ends = pa.array([0, len(default)], pa.int32())
            return pa.ListArray.from_arrays(ends, items(default, element)).cast(target)[0]
        case MapOf(key, part), {"keys": list(keys), "values": list(values)} if len(keys) == len(values):
            ends = pa.array([0, len(keys)], pa.int32())
            return pa.MapArray.from_arrays(ends, items(keys, key), items(values, part)).cast(target)[0]
    raise ValueError('a row\'s is {}, a list\'s [...], a map\'s {"keys": [...], "values": [...]}')


def _moment(count: int, digits: int) -> str:
    per_second = 10 ** (6 if digits <= 6 else 9)
    seconds, rest = divmod(count, per_second)
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    return f"{at.isoformat()}.{rest:0{6 if digits <= 6 else 9}}"
