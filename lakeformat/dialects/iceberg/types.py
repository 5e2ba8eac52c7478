"""Logical types <-> Iceberg's: type JSON, which types a table can have, and how a column may be widened."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from lakeformat.errors import CorruptFile, InvalidInput, UnsupportedFeature
from lakeformat.expression import default_value
from lakeformat.model.schema import (
    Field,
    Geo,
    Kind,
    ListOf,
    MapOf,
    Row,
    Scalar,
    Type,
    children,
    rebuild,
    require_storable,
    scalar,
    walk,
)

_NAMES = {
    "boolean": scalar(Kind.BOOLEAN),
    "int": scalar(Kind.INT),
    "long": scalar(Kind.BIGINT),
    "float": scalar(Kind.FLOAT),
    "double": scalar(Kind.DOUBLE),
    "date": scalar(Kind.DATE),
    "timestamp": scalar(Kind.TIMESTAMP, 6),
    "timestamptz": scalar(Kind.TIMESTAMP_TZ, 6),
    "string": scalar(Kind.STRING),
    "time": scalar(Kind.TIME_MICROS),
    "uuid": scalar(Kind.UUID),
    "binary": scalar(Kind.BYTES),
    # From format version 3 on.
    "timestamp_ns": scalar(Kind.TIMESTAMP, 9),
    "timestamptz_ns": scalar(Kind.TIMESTAMP_TZ, 9),
    "unknown": scalar(Kind.UNKNOWN),
    "variant": scalar(Kind.VARIANT),
}
_TEXTS = {type: name for name, type in _NAMES.items()}
_ONLY_IN_3 = {"timestamp_ns", "timestamptz_ns", "unknown", "variant"}
_FIXED = re.compile(r"fixed\[\s*(\d+)\s*\]")
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_GEO = re.compile(r"(geometry|geography)(\(.*\))?")
_WIDER = {(Kind.INT, Kind.BIGINT), (Kind.FLOAT, Kind.DOUBLE)}


def parse_type(value: Any) -> Type:
    """A type from schema JSON. Raises `UnsupportedFeature` for an unknown one."""
    if isinstance(value, str):
        if value in _NAMES:
            return _NAMES[value]
        if match := _DECIMAL.fullmatch(value):
            precision, scale = int(match[1]), int(match[2])
            if not 1 <= precision <= 38 or scale > precision:
                raise CorruptFile(f"type {value}: a decimal has 1 to 38 digits, at most all of them after the point")
            return scalar(Kind.DECIMAL, precision, scale)
        if match := _FIXED.fullmatch(value):
            if int(match[1]) >= 2**31:
                raise CorruptFile(f"type {value}: a fixed has less than 2^31 bytes")
            return scalar(Kind.FIXED, int(match[1]))
        if match := _GEO.fullmatch(value):
            return Geo(Kind(match[1]), text=value)
        raise UnsupportedFeature(
            f"type {value}: lakeformat neither reads nor writes it in Iceberg tables; use an engine that does"
        )
    try:
        match value["type"]:
            case "struct":
                return Row(parse_fields(value))
            case "list":
                return ListOf(_part(value, "element", value["element-required"]))
            case "map":
                return MapOf(_part(value, "key", True), _part(value, "value", value["value-required"]))
            case other:
                raise UnsupportedFeature(f"type {other}: lakeformat neither reads nor writes it in Iceberg tables")
    except (KeyError, TypeError) as error:
        raise CorruptFile(f"type {value!r} is not one that Iceberg writes") from error


def parse_fields(struct: Any) -> tuple[Field, ...]:
    """The fields of a struct, or of a schema."""
    return tuple(_field(f) for f in struct["fields"])


def emit_type(type: Type) -> Any:
    """A type as schema JSON: text, or an object for a nested type."""
    match type:
        case Scalar(Kind.DECIMAL, (precision, scale)):
            return f"decimal({precision}, {scale})"
        case Geo():
            return type.text
        case Scalar(Kind.FIXED, (length,)):
            return f"fixed[{length}]"
        case Scalar() if type in _TEXTS:
            return _TEXTS[type]
        case Row(fields):
            return {"type": "struct", "fields": [emit_field(f) for f in fields]}
        case ListOf(element):
            return {
                "type": "list",
                "element-id": element.id,
                "element": emit_type(element.type),
                "element-required": not element.nullable,
            }
        case MapOf(key, value):
            return {
                "type": "map",
                "key-id": key.id,
                "key": emit_type(key.type),
                "value-id": value.id,
                "value": emit_type(value.type),
                "value-required": not value.nullable,
            }
    raise UnsupportedFeature(f"Iceberg: a column of type {type} cannot be written; choose another type")


def emit_field(field: Field) -> dict[str, Any]:
    value: dict[str, Any] = {
        "id": field.id,
        "name": field.name,
        "required": not field.nullable,
        "type": emit_type(field.type),
    }
    if field.comment is not None:
        value["doc"] = field.comment
    for key, default in (("initial-default", field.initial), ("write-default", field.default)):
        if default is not None:
            value[key] = default_value.to_json(default, field.type, f"column {field.name}")
    return value


def iceberg_type(type: Type) -> Type:
    """The nearest Iceberg type: small integers become int, bounded texts and bytes lose their bounds, times and
    timestamps get six digits, finer timestamps nine."""
    match type:
        case Scalar(Kind.TINYINT | Kind.SMALLINT):
            return scalar(Kind.INT)
        case Scalar(Kind.CHAR | Kind.VARCHAR):
            return scalar(Kind.STRING)
        case Scalar(Kind.BINARY, (length,)):
            return scalar(Kind.FIXED, length)
        case Scalar(Kind.VARBINARY):
            return scalar(Kind.BYTES)
        case Scalar(Kind.TIME):
            return scalar(Kind.TIME_MICROS)
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as kind, (digits,)):
            return scalar(kind, 6 if digits <= 6 else 9)
        case Scalar():
            return type
        case _:
            return rebuild(type, lambda part: replace(part, type=iceberg_type(part.type)))


def check_supported(fields: tuple[Field, ...], version: int) -> None:
    """Refuse, by name, a column that a table of this format version cannot have, or not at this position."""
    require_storable(fields)
    for field in fields:
        for part in walk((field,)):
            match part.type:
                case Scalar() if _TEXTS.get(part.type) in _ONLY_IN_3 and version < 3:
                    way_out = {Kind.UNKNOWN: "leave it out", Kind.VARIANT: "keep it as string or bytes"}.get(
                        part.type.kind, "cast it to microseconds"
                    )
                    raise UnsupportedFeature(
                        f"column {field.name}: {part.type}: Iceberg has it from format version 3 on; make the table "
                        f"with format-version=3, or {way_out}"
                    )
                case Geo() if version < 3:
                    raise UnsupportedFeature(
                        f"column {field.name}: {part.type}: Iceberg has it from format version 3 on; make the table "
                        "with format-version=3, or keep it as bytes"
                    )
                case Scalar(Kind.UNKNOWN) if not part.nullable:
                    raise InvalidInput(f"column {field.name}: unknown is always null, and cannot be NOT NULL")
                case ListOf() | MapOf() if any(c.type == scalar(Kind.UNKNOWN) for c in children(part.type)):
                    raise UnsupportedFeature(f"column {field.name}: lists and maps of unknown: not supported")
                case Row(parts) if parts and all(p.type == scalar(Kind.UNKNOWN) for p in parts):
                    raise UnsupportedFeature(f"column {field.name}: rows of nothing but unknown: not supported")
            if part.default is not None and version < 3:
                raise UnsupportedFeature(
                    f"column {field.name}: a default: Iceberg has defaults from format version 3 on; make the table "
                    "with format-version=3, or leave the default out"
                )
        emit_type(field.type)


def check_widened(before: tuple[Field, ...], after: tuple[Field, ...]) -> None:
    """Raise `InvalidInput` for a type change that Iceberg's readers do not support."""
    old = {f.id: f for f in walk(before)}
    for field in walk(after):
        was = old.get(field.id)
        if was is None or was.type == field.type or not isinstance(field.type, Scalar):
            continue
        match was.type, field.type:
            case Scalar(Kind.DECIMAL, (_, low)), Scalar(Kind.DECIMAL, (_, high)) if low == high:
                continue
            case Scalar(a), Scalar(b) if (a, b) in _WIDER or a is Kind.UNKNOWN:
                continue
        raise InvalidInput(
            f"column {field.name} is {was.type} and cannot become {field.type}: Iceberg widens int to bigint, float to "
            "double and a decimal's digits, nothing else; add a column of that type instead"
        )


def _field(value: Any) -> Field:
    try:
        type = parse_type(value["type"])
    except CorruptFile as error:
        raise CorruptFile(f"field {value['name']!r}: {error}") from error
    initial, default = (
        None if value.get(key) is None else default_value.from_json(value[key], type, f"column {value['name']}")
        for key in ("initial-default", "write-default")
    )
    return Field(value["id"], value["name"], type, not value["required"], value.get("doc"), default, initial)


def _part(value: Any, role: str, required: bool) -> Field:
    return Field(value[f"{role}-id"], role, parse_type(value[role]), not required)
