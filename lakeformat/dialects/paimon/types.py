"""Logical types <-> Paimon's: type JSON, field numbering, and the value types of rows in manifests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lakeformat.errors import CorruptFile, UnsupportedFeature
from lakeformat.model.schema import (
    NO_ID,
    Field,
    Kind,
    ListOf,
    MapOf,
    MultisetOf,
    Row,
    Scalar,
    Type,
    rebuild,
    require_storable,
    scalar,
)

# Paimon's spelling, the number of its parameters and their defaults.
_NAMES = {
    "BOOLEAN": (Kind.BOOLEAN, ()),
    "TINYINT": (Kind.TINYINT, ()),
    "SMALLINT": (Kind.SMALLINT, ()),
    "INT": (Kind.INT, ()),
    "INTEGER": (Kind.INT, ()),
    "BIGINT": (Kind.BIGINT, ()),
    "FLOAT": (Kind.FLOAT, ()),
    "DOUBLE": (Kind.DOUBLE, ()),
    "DECIMAL": (Kind.DECIMAL, (10, 0)),
    "CHAR": (Kind.CHAR, (1,)),
    "VARCHAR": (Kind.VARCHAR, (1,)),
    "STRING": (Kind.STRING, ()),
    "BINARY": (Kind.BINARY, (1,)),
    "VARBINARY": (Kind.VARBINARY, (1,)),
    "BYTES": (Kind.BYTES, ()),
    "DATE": (Kind.DATE, ()),
    "TIME": (Kind.TIME, (0,)),
    "TIMESTAMP": (Kind.TIMESTAMP, (6,)),
    "TIMESTAMP_LTZ": (Kind.TIMESTAMP_TZ, (6,)),
    "VARIANT": (Kind.VARIANT, ()),
}
_TEXT = re.compile(
    r"\s*(?P<name>[A-Z_]+)\s*(?:\(\s*(?P<parameters>\d+(?:\s*,\s*\d+)?)\s*\))?"
    r"(?P<zone>\s+WITH LOCAL TIME ZONE|\s+WITHOUT TIME ZONE)?(?P<not_null>\s+NOT NULL)?\s*$"
)
_BLOB, _BYTES = (re.compile(rf"{name}(?=$| NOT NULL$)") for name in ("BLOB", "BYTES"))
_MAX_LENGTH = 2**31 - 1
NESTED_STATS = scalar(Kind.BYTES)  # A null of any nested type has the same size in a row of bounds.

# Ids of the parts of collections in data files, which the schema does not number (SpecialFields).
_COLLECTION_BASE = 536870911
_COLLECTION_STEP = 1024
_KEY_BASE = 1073741823  # Added to the id of a column's copy as a key (SpecialFields).


def parse_type(value: Any) -> tuple[Type, bool]:
    """A type from schema JSON -> (type, nullable)."""
    if isinstance(value, str):
        return _parse_text(value)
    try:
        text = value["type"]
        nullable = not text.endswith(" NOT NULL")
        match text.removesuffix(" NOT NULL"):
            case "ARRAY":
                return ListOf(_part("element", value["element"])), nullable
            case "MULTISET":
                return MultisetOf(_part("element", value["element"])), nullable
            case "MAP":
                return MapOf(_part("key", value["key"]), _part("value", value["value"])), nullable
            case "ROW":
                return Row(tuple(parse_field(f) for f in value["fields"])), nullable
            case other:
                raise UnsupportedFeature(f"type {other}: lakeformat neither reads nor writes it")
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"type {value!r} is not one that Paimon writes") from error


def without_blobs(fields: Any) -> tuple[Any, list[str]]:
    """(columns from schema JSON with BYTES instead of BLOB, the names of those that were BLOB)."""
    blobs = [f for f in fields if isinstance(f, dict) and isinstance(f.get("type"), str) and _BLOB.match(f["type"])]
    if not blobs:
        return fields, []
    changed = [{**f, "type": _BLOB.sub("BYTES", f["type"])} if f in blobs else f for f in fields]
    return changed, [f["name"] for f in blobs]


def with_blobs(fields: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Columns as schema JSON, those of `names` with BLOB instead of BYTES."""
    return [{**f, "type": _BYTES.sub("BLOB", f["type"])} if f["name"] in names else f for f in fields]


def parse_field(value: Any) -> Field:
    """A field from schema JSON."""
    try:
        id, name, text = value["id"], value["name"], value["type"]
        comment, default = value.get("description"), value.get("defaultValue")
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"field {value!r} is not one that Paimon writes") from error
    if (
        type(id) is not int
        or not isinstance(name, str)
        or not all(isinstance(t, str | None) for t in (comment, default))
    ):
        raise CorruptFile(f"field {value!r} is not one that Paimon writes")
    kind, nullable = parse_type(text)
    return Field(id, name, kind, nullable, comment, default)


def emit_type(type: Type, nullable: bool) -> Any:
    """A type as schema JSON: text, or an object for a nested type."""
    suffix = "" if nullable else " NOT NULL"
    match type:
        case ListOf(element):
            return {"type": f"ARRAY{suffix}", "element": emit_type(element.type, element.nullable)}
        case MultisetOf(element):
            return {"type": f"MULTISET{suffix}", "element": emit_type(element.type, element.nullable)}
        case MapOf(key, value):
            return {
                "type": f"MAP{suffix}",
                "key": emit_type(key.type, key.nullable),
                "value": emit_type(value.type, value.nullable),
            }
        case Row(fields):
            return {"type": f"ROW{suffix}", "fields": [emit_field(f) for f in fields]}
        case Scalar(Kind.DECIMAL, (precision, scale)):
            return f"DECIMAL({precision}, {scale}){suffix}"
        case Scalar(Kind.TIMESTAMP_TZ, (digits,)):
            return f"TIMESTAMP({digits}) WITH LOCAL TIME ZONE{suffix}"
        case Scalar(Kind.UUID | Kind.GEOMETRY | Kind.GEOGRAPHY | Kind.UNKNOWN | Kind.FIXED | Kind.TIME_MICROS as kind):
            raise UnsupportedFeature(f"Paimon: a column of type {kind} cannot be written; use BYTES or STRING")
        case Scalar(kind, parameters):
            name = kind.name if kind is not Kind.TIMESTAMP_TZ else "TIMESTAMP_LTZ"
            return f"{name}({parameters[0]}){suffix}" if parameters else f"{name}{suffix}"


def sql_name(type: Type, nullable: bool) -> str:
    """A type as Paimon's SQL spells it: `ARRAY<INT> NOT NULL`."""
    suffix = "" if nullable else " NOT NULL"
    match type:
        case ListOf(element):
            return f"ARRAY<{sql_name(element.type, element.nullable)}>{suffix}"
        case MultisetOf(element):
            return f"MULTISET<{sql_name(element.type, element.nullable)}>{suffix}"
        case MapOf(key, value):
            parts = (sql_name(part.type, part.nullable) for part in (key, value))
            return f"MAP<{', '.join(parts)}>{suffix}"
        case Row(fields):
            return f"ROW<{', '.join(f'`{f.name}` {sql_name(f.type, f.nullable)}' for f in fields)}>{suffix}"
    return str(emit_type(type, nullable))


def emit_field(field: Field) -> dict[str, Any]:
    """A field as schema JSON."""
    value: dict[str, Any] = {"id": field.id, "name": field.name, "type": emit_type(field.type, field.nullable)}
    if field.comment is not None:
        value["description"] = field.comment
    if field.default is not None:
        value["defaultValue"] = field.default
    return value


def number(fields: tuple[Field, ...], last: int = -1) -> tuple[tuple[Field, ...], int]:
    """Fields with ids in Paimon's order, depth first; parts of collections get none. Also the last id assigned."""

    def visit(field: Field, is_column: bool) -> Field:
        nonlocal last
        if is_column:
            last += 1
        own = last if is_column else NO_ID
        in_row = isinstance(field.type, Row)
        return replace(field, id=own, type=rebuild(field.type, lambda part: visit(part, in_row)))

    return tuple(visit(f, True) for f in fields), last


def unnumbered_parts(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """Fields with their own ids, and parts of collections without."""

    def visit(field: Field, is_column: bool) -> Field:
        in_row = isinstance(field.type, Row)
        type = rebuild(field.type, lambda part: visit(part, in_row))
        return replace(field, id=field.id if is_column else NO_ID, type=type)

    return tuple(visit(f, True) for f in fields)


def with_file_ids(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """Fields with the ids that parts of collections have in data files."""

    def visit(field: Field, owner: int, depth: int) -> Field:
        match field.type:
            case Row(parts):
                type: Type = Row(tuple(visit(p, p.id, 0) for p in parts))
            case ListOf(element):
                type = ListOf(part(element, owner, depth + 1, 1))
            case MultisetOf(element):
                type = MultisetOf(part(element, owner, depth + 1, -1))
            case MapOf(key, value):
                type = MapOf(part(key, owner, depth + 1, -1), part(value, owner, depth + 1, 1))
            case other:
                type = other
        return replace(field, type=type)

    def part(field: Field, owner: int, depth: int, sign: int) -> Field:
        own = _COLLECTION_BASE + sign * (_COLLECTION_STEP * owner + depth)
        return replace(visit(field, owner, depth), id=own)

    return tuple(visit(f, f.id, 0) for f in fields)


def key_fields(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """Columns as they are at the beginning of key-value files."""
    return tuple(
        Field(field.id + _KEY_BASE, f"_KEY_{field.name}", field.type, nullable=False, default=None) for field in fields
    )


def column_id(key_id: int) -> int:
    """The id of the column that a key field repeats."""
    return key_id - _KEY_BASE


def check_supported(fields: tuple[Field, ...]) -> None:
    """Refuse, by name, a column that Paimon cannot hold."""
    require_storable(fields)
    for field in fields:
        try:
            emit_type(field.type, field.nullable)
        except UnsupportedFeature as error:
            raise UnsupportedFeature(f"column {field.name}: {error}") from error


def paimon_type(type: Type) -> Type:
    """The nearest Paimon type: UUIDs become 16 bytes, times finer than milliseconds are truncated as by Paimon."""
    match type:
        case Scalar(Kind.UUID):
            return scalar(Kind.BINARY, 16)
        case Scalar(Kind.FIXED, (length,)):
            return scalar(Kind.BINARY, length)
        case Scalar(Kind.TIME_MICROS):
            return scalar(Kind.TIME, 3)
        case Scalar(Kind.TIME, (digits,)) if digits > 3:
            return scalar(Kind.TIME, 3)
        case Scalar():
            return type
        case _:
            return rebuild(type, lambda part: replace(part, type=paimon_type(part.type)))


def _parse_text(text: str) -> tuple[Type, bool]:
    match = _TEXT.match(text)
    if not match:
        raise CorruptFile(f"type {text!r} is not one that Paimon writes")
    name = match["name"]
    if (match["zone"] or "").strip() == "WITH LOCAL TIME ZONE":
        name = "TIMESTAMP_LTZ"
    if name not in _NAMES:
        raise UnsupportedFeature(f"type {name}: lakeformat neither reads nor writes it")
    kind, defaults = _NAMES[name]
    given = tuple(int(p) for p in match["parameters"].split(",")) if match["parameters"] else ()
    parameters = given + defaults[len(given) :]
    if len(parameters) > len(defaults) or not _sound(kind, parameters):
        raise CorruptFile(f"type {text!r} is not one that Paimon writes")
    if kind is Kind.VARCHAR and parameters == (_MAX_LENGTH,):
        kind, parameters = Kind.STRING, ()
    if kind is Kind.VARBINARY and parameters == (_MAX_LENGTH,):
        kind, parameters = Kind.BYTES, ()
    return Scalar(kind, parameters), match["not_null"] is None


def _sound(kind: Kind, parameters: tuple[int, ...]) -> bool:
    match kind, parameters:
        case Kind.DECIMAL, (precision, scale):
            return 1 <= precision <= 38 and scale <= precision
        case ((Kind.TIME | Kind.TIMESTAMP | Kind.TIMESTAMP_TZ), (digits,)):
            return digits <= 9
        case _, (length,):
            return 1 <= length <= _MAX_LENGTH
    return not parameters


def _part(name: str, value: Any) -> Field:
    type, nullable = parse_type(value)
    return Field(NO_ID, name, type, nullable)
