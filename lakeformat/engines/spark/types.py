"""Spark's types <-> logical types."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import types as T

from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.schema import NO_ID, Field, Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type, scalar, walk

PLAIN: dict[Kind, T.DataType] = {
    Kind.BOOLEAN: T.BooleanType(),
    Kind.TINYINT: T.ByteType(),
    Kind.SMALLINT: T.ShortType(),
    Kind.INT: T.IntegerType(),
    Kind.BIGINT: T.LongType(),
    Kind.FLOAT: T.FloatType(),
    Kind.DOUBLE: T.DoubleType(),
    Kind.CHAR: T.StringType(),
    Kind.VARCHAR: T.StringType(),
    Kind.STRING: T.StringType(),
    Kind.BINARY: T.BinaryType(),
    Kind.VARBINARY: T.BinaryType(),
    Kind.BYTES: T.BinaryType(),
    Kind.FIXED: T.BinaryType(),
    Kind.UUID: T.BinaryType(),
    Kind.GEOMETRY: T.BinaryType(),
    Kind.GEOGRAPHY: T.BinaryType(),
    Kind.UNKNOWN: T.NullType(),
    Kind.DATE: T.DateType(),
    Kind.TIMESTAMP: T.TimestampNTZType(),
    Kind.TIMESTAMP_TZ: T.TimestampType(),
    Kind.VARIANT: T.VariantType(),
}
_LOGICAL: dict[type[T.DataType], Scalar] = {
    T.BooleanType: scalar(Kind.BOOLEAN),
    T.ByteType: scalar(Kind.TINYINT),
    T.ShortType: scalar(Kind.SMALLINT),
    T.IntegerType: scalar(Kind.INT),
    T.LongType: scalar(Kind.BIGINT),
    T.FloatType: scalar(Kind.FLOAT),
    T.DoubleType: scalar(Kind.DOUBLE),
    T.StringType: scalar(Kind.STRING),
    T.BinaryType: scalar(Kind.BYTES),
    T.DateType: scalar(Kind.DATE),
    T.NullType: scalar(Kind.UNKNOWN),
    T.TimestampNTZType: scalar(Kind.TIMESTAMP, 6),
    T.TimestampType: scalar(Kind.TIMESTAMP_TZ, 6),
    T.VariantType: scalar(Kind.VARIANT),
}


def fields_from_spark(schema: T.StructType) -> tuple[Field, ...]:
    """The columns of a Spark schema, without ids. Raises `UnsupportedFeature` for a type that tables do not have."""
    return tuple(_field_of(field) for field in schema)


def spark_schema(fields: tuple[Field, ...]) -> T.StructType:
    """Columns as Spark's schema: timestamps in microseconds, CHAR and VARCHAR as strings, multisets as maps."""
    return T.StructType([spark_field(field) for field in fields])


def spark_type(type: Type) -> T.DataType:
    match type:
        case Scalar(Kind.DECIMAL, (precision, scale)):
            return T.DecimalType(precision, scale)
        case Scalar(Kind.TIME, (digits,)) if hasattr(T, "TimeType"):
            return T.TimeType(min(digits, 3))
        case Scalar(Kind.TIME_MICROS) if hasattr(T, "TimeType"):
            return T.TimeType(6)
        case Scalar(kind) if kind in PLAIN:
            return PLAIN[kind]
        case ListOf(element):
            return T.ArrayType(spark_type(element.type), element.nullable)
        case MapOf(key, value):
            return T.MapType(spark_type(key.type), spark_type(value.type), value.nullable)
        case MultisetOf(element):
            return T.MapType(spark_type(element.type), T.IntegerType(), False)
        case Row(parts):
            return T.StructType([spark_field(part) for part in parts])
    raise UnsupportedFeature(f"type {type} has no Spark form; leave the column out of the read")


def spark_field(field: Field) -> T.StructField:
    return T.StructField(field.name, spark_type(field.type), field.nullable)


def arrow_of(schema: T.StructType) -> pa.Schema:
    """The Arrow schema that `mapInArrow` passes for a Spark schema, apart from units and zones."""
    return pa.schema([pa.field(field.name, to_arrow(_logical(field.dataType))) for field in schema])


def zoned(spark_type: T.DataType, table_type: Type) -> T.DataType:
    """`spark_type` with timestamps with or without zone as in `table_type`, at any depth."""
    match spark_type, table_type:
        case ((T.TimestampType() | T.TimestampNTZType()), Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as kind)):
            return PLAIN[kind]
        case T.ArrayType(), ListOf(element):
            return T.ArrayType(zoned(spark_type.elementType, element.type), spark_type.containsNull)
        case T.MapType(), MapOf(key, value):
            return T.MapType(
                zoned(spark_type.keyType, key.type),
                zoned(spark_type.valueType, value.type),
                spark_type.valueContainsNull,
            )
        case T.StructType(), Row(parts):
            types = {part.name: part.type for part in parts}
            return T.StructType(
                [
                    T.StructField(field.name, zoned(field.dataType, types[field.name]), field.nullable, field.metadata)
                    if field.name in types
                    else field
                    for field in spark_type
                ]
            )
    return spark_type


def require_whole(fields: tuple[Field, ...]) -> None:
    """Refuse a table whose values Spark would truncate."""
    for field in walk(fields):
        if digits_of(field.type) > 6:
            raise UnsupportedFeature(
                f"column {field.name} is {field.type}, and Spark holds microseconds: its values would lose digits; "
                "merge from data that is not a Spark DataFrame"
            )


def nullable(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(replace(field, nullable=True) for field in fields)


def kind_of(type: Type) -> Kind | None:
    return type.kind if isinstance(type, Scalar) else None


def digits_of(type: Type) -> int:
    match type:
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)):
            return digits
    return 0


def _field_of(field: T.StructField) -> Field:
    try:
        type = _logical(field.dataType)
    except UnsupportedFeature as error:
        raise UnsupportedFeature(f"column {field.name}: {error}") from error
    return Field(NO_ID, field.name, type, field.nullable, (field.metadata or {}).get("comment"))


def _logical(type: T.DataType) -> Type:
    match type:
        case T.CharType() | T.VarcharType():
            return scalar(Kind.CHAR if isinstance(type, T.CharType) else Kind.VARCHAR, type.length)
        case T.DecimalType():
            return scalar(Kind.DECIMAL, type.precision, type.scale)
        case T.ArrayType():
            return ListOf(Field(NO_ID, "element", _logical(type.elementType), type.containsNull))
        case T.MapType():
            key = Field(NO_ID, "key", _logical(type.keyType), nullable=False)
            return MapOf(key, Field(NO_ID, "value", _logical(type.valueType), type.valueContainsNull))
        case T.StructType():
            return Row(tuple(_field_of(field) for field in type))
    if hasattr(T, "TimeType") and isinstance(type, T.TimeType):
        return scalar(Kind.TIME, type.precision)
    logical = _LOGICAL.get(type.__class__)
    if logical is None:
        raise UnsupportedFeature(f"Spark type {type.simpleString()} has no table type; cast the column first")
    return logical
