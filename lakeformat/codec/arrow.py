"""Logical types <-> Arrow types: the one mapping that engines, dialects and users' schemas share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.codec.latest import latest
from lakeformat.codec.variant import variant
from lakeformat.errors import UnsupportedFeature
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
    require_shallow,
    scalar,
    too_deep,
)

_VARIANT = b"arrow.parquet.variant"  # Arrow's canonical extension type, as a field's metadata names it.
_PLAIN = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.TINYINT: pa.int8(),
    Kind.SMALLINT: pa.int16(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.CHAR: pa.string(),
    Kind.VARCHAR: pa.string(),
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.VARBINARY: pa.binary(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time32("ms"),
    Kind.TIME_MICROS: pa.time64("us"),
    Kind.UUID: pa.binary(16),
    Kind.UNKNOWN: pa.null(),
    Kind.VARIANT: variant.ARROW,
    Kind.GEOMETRY: pa.binary(),
    Kind.GEOGRAPHY: pa.binary(),
}

_LOGICAL = {
    pa.bool_(): scalar(Kind.BOOLEAN),
    pa.int8(): scalar(Kind.TINYINT),
    pa.int16(): scalar(Kind.SMALLINT),
    pa.uint8(): scalar(Kind.SMALLINT),
    pa.int32(): scalar(Kind.INT),
    pa.uint16(): scalar(Kind.INT),
    pa.int64(): scalar(Kind.BIGINT),
    pa.uint32(): scalar(Kind.BIGINT),
    pa.float16(): scalar(Kind.FLOAT),
    pa.float32(): scalar(Kind.FLOAT),
    pa.float64(): scalar(Kind.DOUBLE),
    pa.string(): scalar(Kind.STRING),
    pa.binary(): scalar(Kind.BYTES),
    pa.date32(): scalar(Kind.DATE),
    pa.date64(): scalar(Kind.DATE),
    pa.null(): scalar(Kind.UNKNOWN),
}

# Canonical extension types whose storage says all: text, booleans, lists of one length.
_STORED_AS_THEY_ARE = ("arrow.json", "arrow.bool8", "arrow.fixed_shape_tensor")
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


Values = Any  # pa.Array, pa.ChunkedArray or pa.Scalar


def to_arrow(type: Type) -> pa.DataType:
    """The Arrow type that holds `type` in memory. Timestamps: ms up to 3 digits, us up to 6, ns beyond."""
    match type:
        case Scalar(Kind.DECIMAL, (precision, scale)):
            return pa.decimal128(precision, scale)
        case Scalar(Kind.TIMESTAMP, (digits,)):
            return pa.timestamp(_unit(digits))
        case Scalar(Kind.TIMESTAMP_TZ, (digits,)):
            return pa.timestamp(_unit(digits), "UTC")
        case Scalar(Kind.FIXED, (length,)):
            return pa.binary(length)
        case Scalar(kind) if kind in _PLAIN:
            return _PLAIN[kind]
        case ListOf(element):
            return pa.list_(_field(element, "element"))
        case MultisetOf(element):
            return pa.map_(_field(element, "key").type, pa.field("value", pa.int32(), nullable=False))
        case MapOf(key, value):
            return pa.map_(_field(key, "key").type, _field(value, "value"))
        case Row(fields):
            return pa.struct([_field(f, f.name) for f in fields])
    raise UnsupportedFeature(f"type {type} has no Arrow form in lakeformat; leave the column out of the read")


@latest
def arrow_schema(fields: tuple[Field, ...]) -> pa.Schema:
    """The Arrow schema of columns, without field ids."""
    return pa.schema([_field(f, f.name) for f in fields])


def from_arrow(type: pa.DataType) -> Type:
    """The logical type of an Arrow type, in whatever layout. Raises `UnsupportedFeature` if there is none."""
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return from_arrow(type.value_type)
    if type == pa.uuid():
        return scalar(Kind.UUID)
    if _is_variant_type(type):
        return scalar(Kind.VARIANT)
    if isinstance(type, pa.BaseExtensionType) and type.extension_name not in _STORED_AS_THEY_ARE:
        raise UnsupportedFeature(
            f"Arrow's extension type {type.extension_name} has no table type; give its storage, "
            f"which is {type.storage_type}"
        )
    type = layouts.outer_type(type)
    if type in _LOGICAL:
        return _LOGICAL[type]
    if pa.types.is_decimal128(type) or pa.types.is_decimal32(type) or pa.types.is_decimal64(type):
        return scalar(Kind.DECIMAL, type.precision, type.scale)
    if pa.types.is_decimal256(type) and type.precision <= 38:
        return scalar(Kind.DECIMAL, type.precision, type.scale)
    if pa.types.is_timestamp(type):
        kind = Kind.TIMESTAMP_TZ if type.tz else Kind.TIMESTAMP
        return scalar(kind, _DIGITS[type.unit])
    if pa.types.is_time32(type):
        return scalar(Kind.TIME, _DIGITS[type.unit])
    if pa.types.is_time64(type):
        return scalar(Kind.TIME_MICROS)
    if pa.types.is_fixed_size_binary(type):
        return scalar(Kind.BINARY, type.byte_width)
    if pa.types.is_map(type):
        return MapOf(_part(type.key_field, "key"), _part(type.item_field, "value"))
    if pa.types.is_list(type):
        return ListOf(_part(type.value_field, "element"))
    if pa.types.is_struct(type):
        return Row(tuple(_part(type.field(i), type.field(i).name) for i in range(type.num_fields)))
    raise UnsupportedFeature(f"Arrow type {type} has no table type; cast the column first, e.g. to string or int64")


def fields_from_arrow(schema: pa.Schema) -> tuple[Field, ...]:
    """Columns without ids yet; a format assigns ids when it creates the table."""
    fields = []
    for field in schema:
        try:
            fields.append(_part(field, field.name))
        except RecursionError as error:
            raise too_deep(f"column {field.name}") from error
        except UnsupportedFeature as error:
            raise UnsupportedFeature(f"column {field.name}: {error}") from error
    require_shallow(tuple(fields))  # Before anything else descends.
    return tuple(fields)


def _unit(digits: int) -> str:
    return "ms" if digits <= 3 else "us" if digits <= 6 else "ns"


def _field(field: Field, name: str) -> pa.Field:
    return pa.field(name, to_arrow(field.type), nullable=field.nullable)


def _part(field: pa.Field, name: str) -> Field:
    comment = (field.metadata or {}).get(b"comment")
    type = scalar(Kind.VARIANT) if _is_variant(field) else from_arrow(field.type)
    return Field(NO_ID, name, type, field.nullable, comment.decode() if comment else None)


def rows_where(table: pa.Table, keep: Any) -> pa.Table:
    """The rows for which `keep` is true; the table itself, without a copy, if all are."""
    return table if len(table) == 0 or pc.all(keep, skip_nulls=False).as_py() else table.filter(keep)


def one_row(values: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """A table of one row. `Table.from_pylist` takes three times as long."""
    row = pa.array([values], pa.struct(list(schema)))
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(row)], schema)


def _is_variant(field: pa.Field) -> bool:
    """Whether a field's own metadata, or its type, marks it as a variant."""
    if (field.metadata or {}).get(b"ARROW:extension:name") == _VARIANT:
        return True
    return _is_variant_type(field.type)


def _is_variant_type(type: pa.DataType) -> bool:
    if isinstance(type, pa.BaseExtensionType):
        return type.extension_name.encode() == _VARIANT
    index = type.get_field_index("metadata") if pa.types.is_struct(type) else -1
    return index >= 0 and (type.field(index).metadata or {}).get(b"variant") == b"true"
