"""Columns by id <-> Avro schemas that carry the ids (Iceberg specification, Appendix A: Avro)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakeformat.codec.arrow import from_arrow
from lakeformat.codec.avro import schema as avro_schema
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.schema import NO_ID, Field, Kind, ListOf, MapOf, Row, Scalar, Type, scalar

_PLAIN = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.BIGINT: "long",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
    Kind.BYTES: "bytes",
}


def emit(fields: tuple[Field, ...], name: str = "table") -> dict[str, Any]:
    """The record schema of rows with the columns `fields`, as Java writes it. Raises `UnsupportedFeature`."""
    return _record(fields, name, set())


def parse(record: Mapping[str, Any]) -> tuple[Field, ...]:
    """The columns of a record schema, with the names in the file; `NO_ID` for columns without an id. Raises
    `UnsupportedFeature` for a union of several types that no one type expresses (`avro_schema.common_type`)."""
    return _fields(record, {})


def field(id: int, name: str, type: Any, optional: bool = False) -> dict[str, Any]:
    """A field of a record. A name that Avro does not allow is kept beside the legal one, as `iceberg-field-name`."""
    document = {"name": avro_schema.legal(name), "type": ["null", type] if optional else type}
    if optional:
        document["default"] = None
    if document["name"] != name:
        document["iceberg-field-name"] = name
    return {**document, "field-id": id}


def scalar_type(kind: Type, defined: set[str]) -> Any:
    """The Avro type of a scalar. Avro defines a named type once and then refers to it; `defined` holds the names
    defined so far."""
    document = _scalar(kind)
    if isinstance(document, dict) and "name" in document:
        if document["name"] in defined:
            return document["name"]
        defined.add(document["name"])
    return document


def _scalar(kind: Type) -> Any:
    match kind:
        case Scalar(plain) if plain in _PLAIN:
            return _PLAIN[plain]
        case Scalar(Kind.DATE):
            return {"type": "int", "logicalType": "date"}
        case Scalar(Kind.TIME_MICROS):
            return {"type": "long", "logicalType": "time-micros"}
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as zone, (digits,)):
            unit = "micros" if digits <= 6 else "nanos"
            return {"type": "long", "logicalType": f"timestamp-{unit}", "adjust-to-utc": zone is Kind.TIMESTAMP_TZ}
        case Scalar(Kind.FIXED, (length,)):
            return {"type": "fixed", "name": f"fixed_{length}", "size": length}
        case Scalar(Kind.UUID):
            return {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
        case Scalar(Kind.DECIMAL, (precision, scale)):
            size = next(n for n in range(1, 17) if 10**precision <= 2 ** (8 * n - 1))
            return {
                "type": "fixed", "name": f"decimal_{precision}_{scale}", "size": size, "logicalType": "decimal",
                "precision": precision, "scale": scale,
            }  # fmt: skip
    raise UnsupportedFeature(f"values of type {kind} cannot be written as Avro by field id")


def _record(fields: tuple[Field, ...], name: str, defined: set[str]) -> dict[str, Any]:
    documents = []
    for part in fields:
        made = field(part.id, part.name, _type(part, defined), part.nullable)
        documents.append(made if part.comment is None else {**made, "doc": part.comment})
    return {"type": "record", "name": name, "fields": documents}


def _type(part: Field, defined: set[str]) -> Any:
    match part.type:
        case Row(parts):
            return _record(parts, f"r{part.id}", defined)
        case ListOf(element):
            return {"type": "array", "items": _part(element, defined), "element-id": element.id}
        case MapOf(key, value) if key.type == scalar(Kind.STRING):
            values = _part(value, defined)
            return {"type": "map", "values": values, "key-id": key.id, "value-id": value.id}
        case MapOf(key, value):  # Avro's own maps have string keys.
            pair = [
                field(key.id, "key", _type(key, defined)),
                field(value.id, "value", _type(value, defined), value.nullable),
            ]
            items = {"type": "record", "name": f"k{key.id}_v{value.id}", "fields": pair}
            return {"type": "array", "items": items, "logicalType": "map"}
    return scalar_type(part.type, defined)


def _part(part: Field, defined: set[str]) -> Any:
    document = _type(part, defined)
    return ["null", document] if part.nullable else document


def _fields(record: Mapping[str, Any], named: dict[str, Any]) -> tuple[Field, ...]:
    return tuple(_read(part.get("field-id", NO_ID), part["name"], part["type"], named) for part in record["fields"])


def _read(id: int, name: str, schema: Any, named: dict[str, Any]) -> Field:
    nullable = False
    if isinstance(schema, list):
        nullable = "null" in schema
        if len(schema) - nullable > 1:
            return Field(id, name, from_arrow(_arrow_type({"type": schema}, name)), nullable)
        schema = next((branch for branch in schema if branch != "null"), "null")
    return Field(id, name, _read_type(schema, named), nullable)


def _read_type(schema: Any, named: dict[str, Any]) -> Type:
    if isinstance(schema, str):
        schema = named.get(schema.rpartition(".")[2], {"type": schema})
    if "name" in schema:
        named[schema["name"].rpartition(".")[2]] = schema
    match schema:
        case {"type": "record" | "error"}:
            return Row(_fields(schema, named))
        case {"type": "array", "items": items} if schema.get("logicalType") == "map":
            pair = _read_type(items, named)
            assert isinstance(pair, Row), schema
            return MapOf(*pair.fields)
        case {"type": "array", "items": items}:
            return ListOf(_read(schema.get("element-id", NO_ID), "element", items, named))
        case {"type": "map", "values": values}:
            key = Field(schema.get("key-id", NO_ID), "key", scalar(Kind.STRING), nullable=False)
            return MapOf(key, _read(schema.get("value-id", NO_ID), "value", values, named))
        case {"type": "null"}:
            return scalar(Kind.UNKNOWN)
        case {"type": "fixed", "size": 16, "logicalType": "uuid"}:
            return scalar(Kind.UUID)
        case {"type": (dict() | list()) as inner}:
            return _read(NO_ID, "", inner, named).type
    return from_arrow(_arrow_type(schema, "value"))


def _arrow_type(schema: Mapping[str, Any], name: str) -> pa.DataType:
    record, _ = avro_schema.parse(
        {"type": "record", "name": "record", "fields": [{"name": name, "type": dict(schema)}]}
    )
    avro_schema.require_types(record)
    return avro_schema.arrow_type(record.members[0].node, True)
