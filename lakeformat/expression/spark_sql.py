"""Expressions and types as Spark SQL text."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakeformat.errors import InvalidInput
from lakeformat.model.exact import EXACT
from lakeformat.model.predicate import (
    ANY_CHARACTER,
    ANY_TEXT,
    CONDITIONS,
    FUNCTIONS,
    Call,
    Column,
    Expression,
    Literal,
    like_parts,
    naive,
    type_of,
)
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, MultisetOf, Row, Scalar, Type
from lakeformat.model.type_text import parse_type


def quoted(name: str) -> str:
    """A name quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def to_sql(expression: Expression) -> str:
    """Equivalent Spark SQL text, independent of the session's parser settings. Raises `InvalidInput` for a value
    without an SQL form. Arithmetic, casts and functions still depend on Spark's settings: see `is_plain`."""
    match expression:
        case Column(path):
            return ".".join(map(quoted, path))
        case Literal(value):
            return _sql_value(value)
        case Call("not", (Call("is_null", (inner,)),)):
            return f"({to_sql(inner)} IS NOT NULL)"
        case Call("not", (inner,)):
            return f"(NOT {to_sql(inner)})"
        case Call("neg", (inner,)):
            return f"(- {to_sql(inner)})"
        case Call("is_null", (inner,)):
            return f"({to_sql(inner)} IS NULL)"
        case Call("in", (operand, Literal(values))):
            return _sql_in(to_sql(operand), values)
        case Call("in_tuples", (*columns, Literal(tuples))):
            return _sql_tuples([to_sql(column) for column in columns], tuples)
        case Call("like", (operand, Literal(str(pattern)), Literal(str(escape)))):
            return _sql_like(to_sql(operand), pattern, escape)
        case Call("cast", (operand, Literal(text))):
            return f"CAST({to_sql(operand)} AS {spark_type(parse_type(text))})"
        case Call("stored", (operand, _)):
            return to_sql(operand)
        case Call("variant_get", (operand, path, Literal(text))):
            target = _sql_text(spark_type(parse_type(text)))
            return f"variant_get({to_sql(operand)}, {to_sql(path)}, {target})"
        case Call("case", (*branches, otherwise)):
            pairs = zip(branches[::2], branches[1::2], strict=True)
            whens = " ".join(f"WHEN {to_sql(when)} THEN {to_sql(then)}" for when, then in pairs)
            return f"(CASE {whens} ELSE {to_sql(otherwise)} END)"
        case Call(name, arguments) if name in FUNCTIONS:
            parts, infix = [to_sql(argument) for argument in arguments], FUNCTIONS[name].infix
            return f"({f' {infix} '.join(parts)})" if infix else f"{FUNCTIONS[name].spark}({', '.join(parts)})"
    raise InvalidInput(f"not an expression: {expression!r}")


def spark_type(type: Type) -> str:
    """`type` as Spark SQL text."""
    match type:
        case Scalar(
            Kind.BYTES | Kind.BINARY | Kind.VARBINARY | Kind.FIXED | Kind.UUID | Kind.GEOMETRY | Kind.GEOGRAPHY
        ):
            return "BINARY"
        case Scalar(Kind.TIME_MICROS):
            return "TIME(6)"
        case Scalar(Kind.UNKNOWN):
            return "VOID"
        case Scalar(Kind.TIMESTAMP):
            return "TIMESTAMP_NTZ"
        case Scalar(Kind.TIMESTAMP_TZ):
            return "TIMESTAMP_LTZ"
        case Scalar(kind, parameters):
            return str(Scalar(kind, parameters)).upper()
        case ListOf(element):
            return f"ARRAY<{spark_type(element.type)}>"
        case MultisetOf(element):
            return f"MAP<{spark_type(element.type)}, INT>"
        case MapOf(key, value):
            return f"MAP<{spark_type(key.type)}, {spark_type(value.type)}>"
        case Row(fields):
            parts = (f"{to_sql(Column((f.name,)))}: {spark_type(f.type)}" for f in fields)
            return f"STRUCT<{', '.join(parts)}>"


def is_plain(condition: Expression, fields: tuple[Field, ...]) -> bool:
    """Whether a (bound) condition only compares columns with values or with columns of the same type, so that it
    depends on none of Spark's settings (ANSI mode, time zone, ...)."""
    match condition:
        case Literal(value):
            return value is None or isinstance(value, bool)
        case Call("and" | "or" | "not", arguments):
            return all(is_plain(argument, fields) for argument in arguments)
        case Call("in_tuples", (*columns, Literal())):
            return all(_is_simple(column, fields) for column in columns)
        case Call(name, (operand, *values)) if name in CONDITIONS:
            is_simple = isinstance(operand, Column) and _is_simple(operand, fields)
            of_type = type_of(operand, fields) if is_simple else None
            return is_simple and all(
                isinstance(value, Literal) or (isinstance(value, Column) and type_of(value, fields) == of_type)
                for value in values
            )
    return False


def _is_simple(column: Expression, fields: tuple[Field, ...]) -> bool:
    """Whether a column's type is the same under all of Spark's settings."""
    type = type_of(column, fields)
    return isinstance(type, Scalar) and type.kind not in (Kind.TIME, Kind.TIME_MICROS, Kind.UNKNOWN, Kind.VARIANT)


def _sql_text(value: str) -> str:
    """A string literal independent of session settings for escapes, quotes and `${...}` substitution."""
    if any(part in value for part in ("'", "\\", "${")):
        return f"CAST({_sql_value(value.encode())} AS STRING)"
    return f"'{value}'"


def _sql_like(operand: str, pattern: str, escape: str) -> str:
    """LIKE with an exclamation mark as escape; how to write Spark's own escape, a backslash, depends on its
    settings."""
    wild = {ANY_TEXT: "%", ANY_CHARACTER: "_"}
    parts = (
        wild[part] if not isinstance(part, str) else re.sub(r"[!%_]", r"!\g<0>", part)
        for part in like_parts(pattern, escape)
    )
    return f"({operand} LIKE {_sql_text(''.join(parts))} ESCAPE '!')"


def _sql_value(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            if not -(2**63) <= value < 2**63:
                return f"{value}BD" if value >= 0 else f"(- {-value}BD)"
            if value == -(2**63):
                return f"CAST('{value}' AS BIGINT)"
            text = f"{abs(value)}L" if abs(value) >= 2**31 else str(abs(value))
            return text if value >= 0 else f"(- {text})"
        case float():
            if math.isfinite(value):
                return f"CAST('{value!r}' AS DOUBLE)"
            return f"CAST('{'NaN' if value != value else 'Infinity' if value > 0 else '-Infinity'}' AS DOUBLE)"
        case Decimal():
            if not value.is_finite():
                raise InvalidInput(f"decimal {value} has no SQL form")
            text = f"{EXACT.abs(value):f}BD"
            return text if not value.is_signed() else f"(- {text})"
        case str():
            return _sql_text(value)
        case bytes() | bytearray():
            return f"X'{bytes(value).hex().upper()}'"
        case dt.datetime():
            text = naive(value).isoformat(" ", "microseconds")
            return f"TIMESTAMP_LTZ'{text}Z'" if value.tzinfo else f"TIMESTAMP_NTZ'{text}'"
        case dt.date():
            return f"DATE'{value.isoformat()}'"
        case dt.time():
            return f"TIME'{value.isoformat('microseconds')}'"
        case uuid.UUID():
            return _sql_value(value.bytes)
        case pa.Scalar():
            return _sql_nested(value)
    raise InvalidInput(f"{value!r} ({type(value).__name__}) has no SQL form")


def _sql_nested(value: pa.Scalar) -> str:
    """An array, map or struct by its constructor; the target of the cast gives the types of its parts."""
    if not value.is_valid or not pa.types.is_nested(value.type):
        return _sql_value(value.as_py())
    if pa.types.is_map(value.type):
        return f"map({', '.join(_sql_nested(part) for pair in value.values for part in pair.values())})"
    if pa.types.is_struct(value.type):
        return f"named_struct({', '.join(f'{_sql_text(k)}, {_sql_nested(part)}' for k, part in value.items())})"
    return f"array({', '.join(map(_sql_nested, value.values))})"


def _sql_in(operand: str, values: Iterable[Any]) -> str:
    texts = sorted(_sql_value(value) for value in values)
    return f"({operand} IN ({', '.join(texts)}))" if texts else f"({operand} IS NULL AND NULL)"


def _sql_tuples(columns: list[str], tuples: Iterable[tuple[Any, ...]]) -> str:
    rows = sorted(
        "(" + " AND ".join(f"{c} <=> {_sql_value(v)}" for c, v in zip(columns, tuple_, strict=True)) + ")"
        for tuple_ in tuples
    )
    return "(" + " OR ".join(rows) + ")" if rows else "FALSE"
