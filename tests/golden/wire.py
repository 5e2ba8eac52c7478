"""The wire form of rows: what golden files and the judge's peers say in JSON, and its way to Arrow and back.

DECIMAL is its plain text, bytes are hex, DATE is days, TIME milliseconds, a timestamp nanoseconds since the epoch (with
local time zone too), NaN and the infinities are their names, ARRAY is a list, MAP and MULTISET a list of pairs, ROW a
list in field order. Types are spelled as in Paimon's schema files; a field is a dict with `name` and `type`.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

_ARROW = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BYTES": pa.binary(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
}
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_TEXT = re.compile(r"(?P<name>[A-Z]+)(?:\((?P<numbers>[\d, ]+)\))?(?P<zone> WITH LOCAL TIME ZONE)?(?: NOT NULL)?$")


def arrow_type(type_: Any) -> pa.DataType:
    """The Arrow type for a Paimon type. Timestamps: ms up to 3 digits, us up to 6, ns beyond."""
    if not isinstance(type_, str):
        match kind(type_):
            case "ARRAY":
                return pa.list_(arrow_type(type_["element"]))
            case "MAP":
                return pa.map_(arrow_type(type_["key"]), arrow_type(type_["value"]))
            case "MULTISET":
                return pa.map_(arrow_type(type_["element"]), pa.int32())
            case "ROW":
                return pa.struct([(field["name"], arrow_type(field["type"])) for field in type_["fields"]])
    found = _TEXT.match(type_)
    numbers = [int(number) for number in (found["numbers"] or "").split(",") if number]
    match found["name"]:
        case "DECIMAL":
            return pa.decimal128(*numbers)
        case "TIMESTAMP":
            unit = "ms" if numbers[0] <= 3 else "us" if numbers[0] <= 6 else "ns"
            return pa.timestamp(unit, "UTC" if found["zone"] else None)
        case name:
            return _ARROW[name]


def arrow_schema(fields: Iterable[dict]) -> pa.Schema:
    """The columns as an Arrow schema; NOT NULL is kept."""
    return pa.schema([pa.field(field["name"], arrow_type(field["type"]), nullable(field["type"])) for field in fields])


def kind(type_: Any) -> str:
    """ARRAY, MAP, MULTISET, ROW, or the text of a scalar type without NOT NULL."""
    text = type_ if isinstance(type_, str) else type_["type"]
    return text.removesuffix(" NOT NULL")


def nullable(type_: Any) -> bool:
    """Whether a type takes nulls."""
    return not (type_ if isinstance(type_, str) else type_["type"]).endswith(" NOT NULL")


def to_arrow(fields: Sequence[dict], rows: Iterable[Sequence]) -> pa.Table:
    """Rows in wire form as an Arrow table."""
    schema = arrow_schema(fields)
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    return pa.Table.from_arrays(
        [
            pa.array([_python(value, field["type"]) for value in column], arrow.type)
            for column, field, arrow in zip(columns, fields, schema, strict=True)
        ],
        schema=schema,
    )


def from_arrow(table: pa.Table) -> list[list]:
    """An Arrow table's rows in wire form."""
    columns = [_column(column) for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def multiset(fields: Sequence[dict], rows: Iterable[Sequence]) -> Counter[str]:
    """Rows as something to compare: how often each comes, entries of maps in a fixed order."""
    types = [field["type"] for field in fields]
    return Counter(
        json.dumps([_ordered(value, type_) for value, type_ in zip(row, types, strict=True)], ensure_ascii=False)
        for row in rows
    )


def date_text(days: int) -> str:
    """A DATE as SQL text has it."""
    return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=days))


def timestamp_text(nanos: int) -> str:
    """A timestamp as SQL text has it, to the microsecond."""
    return str(datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=nanos // 1000))


def arrow_text(type_: pa.DataType) -> str:
    """The text of an Arrow type, the same for types that hold the same values exactly: large, view, dictionary and
    fixed-size forms count as their plain ones, seconds as milliseconds, and what may be null is left out."""
    if pa.types.is_dictionary(type_):
        return arrow_text(type_.value_type)
    if pa.types.is_map(type_):
        return f"map<{arrow_text(type_.key_type)}, {arrow_text(type_.item_type)}>"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list<{arrow_text(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{part.name}: {arrow_text(part.type)}' for part in type_)}>"
    if pa.types.is_timestamp(type_):
        return f"timestamp[{'ms' if type_.unit == 's' else type_.unit}{', UTC' if type_.tz else ''}]"
    if pa.types.is_time(type_):
        return "time[ms]"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    if pa.types.is_fixed_size_binary(type_):
        return "binary"
    return str(type_).removeprefix("large_").removesuffix("_view")


def _python(value: Any, type_: Any) -> Any:
    if value is None:
        return None
    match kind(type_):
        case "ARRAY":
            return [_python(item, type_["element"]) for item in value]
        case "MAP":
            return [(_python(key, type_["key"]), _python(item, type_["value"])) for key, item in value]
        case "MULTISET":
            return [(_python(key, type_["element"]), count) for key, count in value]
        case "ROW":
            parts = zip(type_["fields"], value, strict=True)
            return {field["name"]: _python(item, field["type"]) for field, item in parts}
    arrow = arrow_type(type_)
    if pa.types.is_decimal(arrow):
        return Decimal(value)
    if pa.types.is_binary(arrow):
        return bytes.fromhex(value)
    if pa.types.is_floating(arrow):
        return float(value)
    if pa.types.is_timestamp(arrow):
        return value // _NANOS[arrow.unit]
    return value


def _column(column: pa.ChunkedArray) -> list:
    return [value for chunk in column.chunks for value in _values(chunk)]


def _values(array: pa.Array) -> list:
    type_ = array.type
    if pa.types.is_dictionary(type_):
        return _values(array.dictionary_decode())
    if pa.types.is_struct(type_):
        parts = [_values(part) for part in array.flatten()]
        rows = list(zip(*parts, strict=True)) if parts else [()] * len(array)
        return [list(row) if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_map(type_):
        keys, items = _values(array.keys), _values(array.items)
        return _lists(array, [list(pair) for pair in zip(keys, items, strict=True)])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _lists(array, _values(array.values))
    return [None if value is None else _scalar(type_)(value) for value in _storage(array)]


def _lists(array: pa.Array, items: list) -> list:
    offsets, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
    return [items[offsets[i] : offsets[i + 1]] if valid[i] else None for i in range(len(array))]


def _storage(array: pa.Array) -> list:
    type_ = array.type
    if pa.types.is_timestamp(type_):
        return array.cast(pa.int64()).to_pylist()
    if pa.types.is_time(type_):
        return array.cast(pa.int32() if pa.types.is_time32(type_) else pa.int64()).to_pylist()
    if pa.types.is_date(type_):
        return array.cast(pa.date32()).cast(pa.int32()).to_pylist()
    return array.to_pylist()


def _scalar(type_: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_timestamp(type_):
        return lambda value: value * _NANOS[type_.unit]
    if pa.types.is_time(type_):
        return lambda value: value * _NANOS[type_.unit] // 10**6
    if pa.types.is_decimal(type_):
        return lambda value: format(value, "f")
    if pa.types.is_floating(type_):
        return lambda value: value if math.isfinite(value) else _name(value)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return bytes.hex
    return lambda value: value


def _name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _ordered(value: Any, type_: Any) -> Any:
    if value is None:
        return None
    match kind(type_):
        case "ARRAY":
            return [_ordered(item, type_["element"]) for item in value]
        case "MAP":
            pairs = [[_ordered(key, type_["key"]), _ordered(item, type_["value"])] for key, item in value]
            return sorted(pairs, key=json.dumps)
        case "MULTISET":
            return sorted(([_ordered(key, type_["element"]), count] for key, count in value), key=json.dumps)
        case "ROW":
            parts = zip(value, type_["fields"], strict=True)
            return [_ordered(item, field["type"]) for item, field in parts]
        case "FLOAT" | "DOUBLE":
            return value if isinstance(value, str) else float(value)
    return value
