"""Spark's types of expressions: their spelling in Spark and DuckDB,
and the type that several operands have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlglot import exp

from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Kind, ListOf, MapOf, Row, Scalar, Type


@dataclass(frozen=True, slots=True)
class SparkType:
    """A type by Spark's name. `parts`: of an array, a map (key, value) or a struct, whose fields are `labels`.
    `digits`: precision and scale of a decimal."""

    name: str
    parts: tuple[SparkType, ...] = ()
    labels: tuple[str, ...] = ()
    digits: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        match self.name:
            case "decimal":
                return f"DECIMAL({self.digits[0]},{self.digits[1]})"
            case "struct":
                fields = zip(self.labels, self.parts, strict=True)
                return f"STRUCT<{', '.join(f'{label}: {part}' for label, part in fields)}>"
            case _:
                return self.name.upper() + (f"<{', '.join(map(str, self.parts))}>" if self.parts else "")


BOOLEAN, STRING, BINARY, DATE = SparkType("boolean"), SparkType("string"), SparkType("binary"), SparkType("date")
TINYINT, SMALLINT, INT, BIGINT = (SparkType(name) for name in ("tinyint", "smallint", "int", "bigint"))
FLOAT, DOUBLE, VOID = SparkType("float"), SparkType("double"), SparkType("void")
TIMESTAMP, TIMESTAMP_NTZ = SparkType("timestamp"), SparkType("timestamp_ntz")
INTERVAL = SparkType("interval")
INTEGRAL = (TINYINT, SMALLINT, INT, BIGINT)
MOST_DIGITS = 38
_DUCKDB = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
_NUMBERS = {"tinyint": (3, 0), "smallint": (5, 0), "int": (10, 0), "bigint": (20, 0)}
_KINDS = {
    Kind.CHAR: "string",
    Kind.VARCHAR: "string",
    Kind.VARBINARY: "binary",
    Kind.BYTES: "binary",
    Kind.FIXED: "binary",
    Kind.TIMESTAMP: "timestamp_ntz",
    Kind.TIMESTAMP_TZ: "timestamp",
    Kind.UNKNOWN: "void",
}
_NAMES = {
    "TEXT": "string",
    "VARCHAR": "string",
    "CHAR": "string",
    "NCHAR": "string",
    "VARBINARY": "binary",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
}


def decimal(precision: int, scale: int) -> SparkType:
    return SparkType("decimal", digits=(precision, scale))


def array(element: SparkType) -> SparkType:
    return SparkType("array", (element,))


def of_model(type: Type) -> SparkType:
    """The Spark type of a table's column; types that Spark lacks keep the name they have here."""
    match type:
        case Scalar(Kind.DECIMAL, (precision, scale)):
            return decimal(precision, scale)
        case Scalar():
            return SparkType(_KINDS.get(type.kind, str(type.kind)))
        case ListOf():
            return array(of_model(type.element.type))
        case MapOf():
            return SparkType("map", (of_model(type.key.type), of_model(type.value.type)))
        case Row():
            names = tuple(field.name for field in type.fields)
            return SparkType("struct", tuple(of_model(field.type) for field in type.fields), names)
        case _:
            return SparkType("multiset")


def of_syntax(node: Any) -> SparkType | None:
    """The type that a cast names; None for one that this process does not compute with."""
    name = node.this.name if isinstance(node, exp.DataType) else ""
    name = _NAMES.get(name, name.lower())
    if name == "decimal":
        digits = [int(parameter.this.name) for parameter in node.expressions] or [10, 0]
        precision, scale = (*digits, 0)[:2]
        return decimal(precision, scale) if 0 <= scale <= precision <= MOST_DIGITS and precision else None
    if name in ("array", "list", "map"):
        parts = [of_syntax(part) for part in node.expressions]
        if None in parts or len(parts) != (2 if name == "map" else 1):
            return None
        return SparkType("map" if name == "map" else "array", tuple(part for part in parts if part is not None))
    if name == "struct":
        fields = [(part.name, of_syntax(part.args.get("kind"))) for part in node.expressions]
        if not fields or any(type is None for _, type in fields):
            return None
        return SparkType("struct", tuple(t for _, t in fields if t is not None), tuple(label for label, _ in fields))
    return SparkType(name) if name in _DUCKDB else None


def in_duckdb(type: SparkType) -> str:
    """DuckDB's spelling of a type."""
    match type.name:
        case "decimal":
            return f"DECIMAL({type.digits[0]}, {type.digits[1]})"
        case "array":
            return f"{in_duckdb(type.parts[0])}[]"
        case "map":
            return f"MAP({in_duckdb(type.parts[0])}, {in_duckdb(type.parts[1])})"
        case "struct":
            fields = zip(type.labels, type.parts, strict=True)
            return f"STRUCT({', '.join(f'{_quoted(label)} {in_duckdb(part)}' for label, part in fields)})"
        case "void":
            return "INTEGER"
        case _:
            return _DUCKDB[type.name]


def is_computed(type: SparkType) -> bool:
    """Whether this process computes with values of the type, and does not only pass them on."""
    return type == VOID or (
        type.name in {*_DUCKDB, "decimal", "array", "map", "struct"} and all(map(is_computed, type.parts))
    )


def is_integral(type: SparkType) -> bool:
    return type in INTEGRAL


def is_number(type: SparkType) -> bool:
    return type in INTEGRAL or type in (FLOAT, DOUBLE) or type.name == "decimal"


def is_time(type: SparkType) -> bool:
    return type in (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def has_order(type: SparkType) -> bool:
    """Whether DuckDB orders values of the type as Spark does:
    nulls inside arrays and structs come first in Spark only."""
    return is_number(type) or is_time(type) or type in (BOOLEAN, STRING, BINARY, VOID)


def as_decimal(type: SparkType) -> SparkType:
    """The decimal that holds each value of an integral type."""
    return decimal(*_NUMBERS[type.name]) if type.name in _NUMBERS else type


def bounded(precision: int, scale: int) -> SparkType | None:
    """The decimal of these digits; None for more than 38, where Spark drops digits of the fraction."""
    return decimal(precision, scale) if precision <= MOST_DIGITS else None


def common(types: Iterable[SparkType]) -> SparkType | None:
    """The type to which Spark casts operands of these types, by its ANSI rules; None if there is none."""
    shared: SparkType | None = VOID
    for type in types:
        shared = _common(shared, type) if shared is not None else None
    return shared


def _common(one: SparkType, other: SparkType) -> SparkType | None:
    if one == other or other == VOID:
        return one
    if one == VOID:
        return other
    if STRING in (one, other):
        return _with_text(other if one == STRING else one)
    if is_number(one) and is_number(other):
        return _number(one, other)
    if is_time(one) and is_time(other):
        return TIMESTAMP if TIMESTAMP in (one, other) else TIMESTAMP_NTZ
    if one.name == other.name and one.parts and len(one.parts) == len(other.parts):
        if [label.casefold() for label in one.labels] != [label.casefold() for label in other.labels]:
            return None
        parts = [_common(a, b) for a, b in zip(one.parts, other.parts, strict=True)]
        return None if None in parts else SparkType(one.name, tuple(p for p in parts if p is not None), one.labels)
    return None


def _with_text(type: SparkType) -> SparkType | None:
    """Text beside another type is read as that type; beside an integer as BIGINT,
    beside a float or a decimal as DOUBLE."""
    if type in INTEGRAL:
        return BIGINT
    if is_number(type):
        return DOUBLE
    return type if is_time(type) or type == BOOLEAN else None


def _number(one: SparkType, other: SparkType) -> SparkType | None:
    if one in INTEGRAL and other in INTEGRAL:
        return max(one, other, key=INTEGRAL.index)
    if {one, other} & {FLOAT, DOUBLE}:
        return DOUBLE  # FLOAT beside an integer or a decimal as well.
    (p, s), (q, r) = as_decimal(one).digits, as_decimal(other).digits
    return bounded(max(p - s, q - r) + max(s, r), max(s, r))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
