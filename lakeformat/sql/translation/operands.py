"""Operands of expressions: casts to the type that they have in common,
comparisons and arithmetic by Spark's rules for types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lakeformat.sql.translation import casts, spark_types
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    STRING,
    VOID,
    SparkType,
    decimal,
    in_duckdb,
)
from lakeformat.sql.translation.templates import fill

ZERO = "ERROR('division by zero; try_divide and try_mod give null')"


def condition(node: Any, scope: Scope) -> str:
    """DuckDB SQL of a condition. Raises `InvalidInput` for another type than BOOLEAN."""
    typed = scope.translate(node, scope)
    if typed.type not in (BOOLEAN, VOID):
        raise scope.invalid(node, f"a condition is BOOLEAN, and {shown(node)} is {typed.type}")
    return cast(typed, BOOLEAN, scope, node)


def cast(typed: Typed, target: SparkType, scope: Scope, node: Any, is_safe: bool = False) -> str:
    """DuckDB SQL of a value in another type."""
    sql = casts.cast(typed.sql, typed.type, target, is_safe)
    if sql is None:
        raise scope.refuse(node, f"a cast from {typed.type} to {target} in process; pass spark=")
    return sql


def shared(typed: Sequence[Typed], nodes: Sequence[Any], scope: Scope) -> tuple[SparkType, list[str]]:
    """The type that operands have in common, and each operand in that type."""
    type = spark_types.common(item.type for item in typed)
    if type is None:
        kinds = " and ".join(dict.fromkeys(str(item.type) for item in typed))
        raise scope.refuse(nodes[0], f"{kinds} have no type in common in process; cast one to the other's")
    return type, [cast(item, type, scope, node) for item, node in zip(typed, nodes, strict=True)]


def quotient(dividend: Typed, divisor: Typed, scale: int, precision: int, zero: str = ZERO) -> str:
    """A quotient of decimals or integers, rounded half up, as a decimal.
    The digits of both are whole numbers of 128 bits."""
    shift = scale - dividend.type.digits[1] + divisor.type.digits[1]
    digits = "CAST(REPLACE(CAST($x AS VARCHAR), '.', '') AS HUGEINT)"
    other = digits.replace("$x", "$y")
    dividend_sql = f"({digits} * CAST('1{'0' * shift}' AS HUGEINT))"
    rounded = f"((2 * ABS({dividend_sql}) + ABS({other})) // (2 * ABS({other})))"
    sign = f"CASE WHEN ({digits} < 0) <> ({other} < 0) THEN '-' ELSE '' END"
    padded = f"LPAD(CAST($r AS VARCHAR), CAST(GREATEST(LENGTH(CAST($r AS VARCHAR)), {scale + 1}) AS INTEGER), '0')"
    spelt = fill(
        f"CAST($s || LEFT({padded}, LENGTH({padded}) - {scale}) || '.' || RIGHT({padded}, {scale}) AS "
        f"DECIMAL({precision}, {scale}))",
        r=fill(rounded, x=dividend.sql, y=divisor.sql),
        s=fill(sign, x=dividend.sql, y=divisor.sql),
    )
    return fill(f"CASE WHEN $y = 0 THEN {zero} ELSE $q END", y=divisor.sql, q=spelt)


def arithmetic(kind: type, left: Typed, right: Typed, nodes: Sequence[Any], scope: Scope, zero: str = ZERO) -> Typed:
    """`a + b`, `-`, `*`, `/`, `%`, `div` of numbers. `zero`: DuckDB SQL of the value for a divisor of zero."""
    left, right = _number(left, right), _number(right, left)
    types = (left.type, right.type)
    if VOID in types:
        other = left.type if right.type == VOID else right.type
        if other != VOID and not spark_types.is_number(other):
            raise scope.invalid(
                nodes[0], f"arithmetic takes numbers, and {shown(nodes[0])} has {types[0]} and {types[1]}"
            )
        type = DOUBLE if kind is exp.Div or other == VOID else BIGINT if kind is exp.IntDiv else other
        return Typed(f"CAST(NULL AS {in_duckdb(type)})", type)
    if not all(map(spark_types.is_number, types)):
        raise scope.invalid(nodes[0], f"arithmetic takes numbers, and {shown(nodes[0])} has {types[0]} and {types[1]}")
    has_float = bool({FLOAT, DOUBLE} & set(types))
    if any(type.name == "decimal" for type in types) and not has_float:
        return _decimals(kind, left, right, nodes, scope, zero)
    if kind is exp.IntDiv:
        if has_float:
            raise scope.invalid(
                nodes[0], f"div takes whole numbers and decimals, and {shown(nodes[0])} has {types[0]} and {types[1]}"
            )
        a, b = cast(left, BIGINT, scope, nodes[0]), cast(right, BIGINT, scope, nodes[1])
        overflow = "WHEN $y = -1 THEN -$x"
        return Typed(fill(f"CASE WHEN $y = 0 THEN {zero} {overflow} ELSE $x // $y END", x=a, y=b), BIGINT)
    shared_type = DOUBLE if kind is exp.Div else spark_types.common(types)
    assert shared_type is not None, types
    type = shared_type
    a, b = cast(left, type, scope, nodes[0]), cast(right, type, scope, nodes[1])
    if kind in (exp.Div, exp.Mod):
        sign = "/" if kind is exp.Div else "%"
        if _is_above_zero(nodes[1]):
            return Typed(fill(f"($x {sign} $y)", x=a, y=b), type)
        guard = "WHEN $y = -1 THEN 0 " if kind is exp.Mod and spark_types.is_integral(type) else ""
        result = fill(
            f"CASE WHEN $y IS NULL OR $x IS NULL THEN NULL WHEN $y = 0 THEN {zero} {guard}ELSE $x {sign} $y END",
            x=a,
            y=b,
        )
        return Typed(f"CAST({result} AS {in_duckdb(type)})" if guard else result, type)
    # Not as operators: DuckDB would move constants to the other side of comparisons, where nothing overflows.
    name = {exp.Add: "ADD", exp.Sub: "SUBTRACT", exp.Mul: "MULTIPLY"}[kind]
    return Typed(fill(f"{name}($x, $y)", x=a, y=b), type)


def _is_above_zero(node: Any) -> bool:
    """Whether it is a number above zero, by which every division has a result."""
    return isinstance(node, exp.Literal) and not node.is_string and float(node.name) > 0


def compared(sign: str, nodes: Sequence[Any], scope: Scope) -> Typed:
    """A comparison of two operands."""
    if isinstance(nodes[0], exp.Tuple) and isinstance(nodes[1], exp.Tuple) and sign in ("=", "<>"):
        pairs = zip(nodes[0].expressions, nodes[1].expressions, strict=True)
        both = " AND ".join(compared("IS NOT DISTINCT FROM", pair, scope).sql for pair in pairs)
        return Typed(f"({both})" if sign == "=" else f"(NOT ({both}))", BOOLEAN)
    typed = [scope.translate(node, scope) for node in nodes]
    type, (a, b) = shared(typed, nodes, scope)
    is_equality = sign in ("=", "<>") or "DISTINCT" in sign
    if not spark_types.has_order(type) and not (
        is_equality and type.name in ("array", "struct") and all(map(spark_types.has_order, type.parts))
    ):
        raise scope.refuse(nodes[0], f"a comparison of {type} in process; pass spark=")
    return Typed(f"({a} {sign} {b})", BOOLEAN)


def shown(node: Any) -> str:
    shown = node.sql(dialect="spark", normalize_functions=False)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


# --- private ----------------------------------------------------------------------------------------------------------


def _number(typed: Typed, other: Typed) -> Typed:
    """An operand of arithmetic: text beside a number is read as that kind of number;
    a literal beside a decimal has its own digits."""
    if typed.type == STRING and spark_types.is_number(other.type):
        target = spark_types.common((STRING, other.type))
        assert target is not None, other
        return Typed(casts.cast(typed.sql, STRING, target) or "", target)
    if typed.literal is not None and other.type.name == "decimal":
        return Typed(typed.sql, decimal(max(len(typed.literal.lstrip("-0")), 1), 0))
    return typed


def _decimals(kind: type, left: Typed, right: Typed, nodes: Sequence[Any], scope: Scope, zero: str) -> Typed:
    left = replace(left, type=spark_types.as_decimal(left.type))
    right = replace(right, type=spark_types.as_decimal(right.type))
    (p, s), (q, r) = left.type.digits, right.type.digits
    values = {"x": left.sql, "y": right.sql}
    if kind is exp.IntDiv:
        aligned = spark_types.bounded(max(p - s, q - r) + max(s, r), max(s, r))
        if aligned is None:
            raise scope.refuse(nodes[0], "div of decimals of more than 38 digits in process; cast them")
        values = {name: f"CAST({value} AS {in_duckdb(aligned)})" for name, value in values.items()}
        digits = "CAST(REPLACE(CAST({} AS VARCHAR), '.', '') AS HUGEINT)"
        both = f"{digits.format('$x')} // {digits.format('$y')}"
        return Typed(fill(f"CASE WHEN $y = 0 THEN {zero} ELSE CAST({both} AS BIGINT) END", **values), BIGINT)
    if kind is exp.Div:
        scale = max(6, s + q + 1)
        precision, scale = _adjusted(p - s + r + scale, scale)
        typed = [Typed(f"CAST({item.sql} AS {in_duckdb(item.type)})", item.type) for item in (left, right)]
        if scale - s + r < 0:
            raise scope.refuse(nodes[0], "a quotient of these decimals in process; cast them to fewer digits")
        return Typed(quotient(typed[0], typed[1], scale, precision, zero), decimal(precision, scale))
    match kind:
        case exp.Add | exp.Sub:
            type = spark_types.bounded(max(s, r) + max(p - s, q - r) + 1, max(s, r))
            inner = type
        case exp.Mul:
            type = spark_types.bounded(p + q + 1, s + r)
            inner = None
        case _:
            type = spark_types.bounded(min(p - s, q - r) + max(s, r), max(s, r))
            inner = spark_types.bounded(max(p - s, q - r) + max(s, r), max(s, r))
            type = type if inner is not None else None
    if type is None:
        raise scope.refuse(
            nodes[0], f"{shown(nodes[0])} of decimals with more than 38 digits in process; cast them to fewer digits"
        )
    if inner is not None:
        values = {name: f"CAST({value} AS {in_duckdb(inner)})" for name, value in values.items()}
    else:
        casted = zip(values.items(), (left.type, right.type), strict=True)
        values = {name: f"CAST({value} AS {in_duckdb(own)})" for (name, value), own in casted}
    sign = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}[kind]
    body = f"CAST($x {sign} $y AS {in_duckdb(type)})"
    if kind is exp.Mod:
        body = f"CASE WHEN $y IS NULL OR $x IS NULL THEN NULL WHEN $y = 0 THEN {zero} ELSE {body} END"
    return Typed(fill(body, **values), type)


def _adjusted(precision: int, scale: int) -> tuple[int, int]:
    """Spark's digits of a decimal that would have more than 38: it keeps the whole part,
    and at least six of the fraction."""
    most = spark_types.MOST_DIGITS
    if precision <= most:
        return precision, scale
    return most, max(most - (precision - scale), min(scale, 6))
