"""Functions of numbers whose DuckDB SQL depends on more than types: rounding, and operators that give null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lakeformat.sql.translation import casts, spark_types
from lakeformat.sql.translation.arguments import (
    Builder,
    as_number,
    constant,
)
from lakeformat.sql.translation.operands import arithmetic, cast, shown
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import (
    BIGINT,
    DOUBLE,
    VOID,
    decimal,
    in_duckdb,
)
from lakeformat.sql.translation.templates import fill

# --- private ----------------------------------------------------------------------------------------------------------


def _round(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    digits = 0 if len(nodes) == 1 else constant(nodes[1])
    if not isinstance(digits, int) or not -18 <= digits <= 18:
        raise scope.refuse(
            node, "round to another than a constant number of digits, -18 to 18, in process; pass spark="
        )
    typed = as_number(nodes[0], scope)
    if typed.type.name == "decimal":
        (p, s), kept = typed.type.digits, min(typed.type.digits[1], max(digits, 0))
        type = spark_types.bounded(max(p - s + 1, 1 - digits) + kept if digits < 0 else p - s + 1 + kept, kept)
        type = type or decimal(spark_types.MOST_DIGITS, kept)
        return Typed(f"CAST(ROUND({typed.sql}, {digits}) AS {in_duckdb(type)})", type)
    if spark_types.is_integral(typed.type):
        if digits >= 0:
            return typed
        rounded = f"ROUND(CAST({typed.sql} AS DECIMAL(38, 0)), {digits})"
        return Typed(f"CAST({rounded} AS {in_duckdb(typed.type)})", typed.type)
    exact = (
        f"CAST(CAST(ROUND(CAST(CAST($x AS VARCHAR) AS DECIMAL(38, 20)), {digits}) AS VARCHAR) "
        f"AS {in_duckdb(typed.type)})"
    )
    return Typed(
        fill(
            f"CASE WHEN ABS($x) < 1e16 AND $x <> 0 THEN {exact} {_HUGE.replace('$n', str(digits))} ELSE $x END",
            x=typed.sql,
        ),
        typed.type,
    )


_HUGE = (
    "WHEN ABS($x) >= 1e16 AND NOT ISNAN($x) AND NOT ISINF($x) AND $n < 0 THEN ERROR('in process, "
    "round takes no floats beyond 1e16 here')"
)


def _rounded_to_whole(name: str) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        typed = as_number(nodes[0], scope)
        if typed.type.name == "decimal":
            (p, s) = typed.type.digits
            type = decimal(min(p - s + (1 if s else 0), spark_types.MOST_DIGITS), 0)
            return Typed(f"CAST({name}({typed.sql}) AS {in_duckdb(type)})", type)
        if spark_types.is_integral(typed.type):
            return Typed(f"CAST({typed.sql} AS BIGINT)", BIGINT)
        sql = casts.cast(f"{name}($x)", DOUBLE, BIGINT) or ""
        return Typed(fill(f"CASE WHEN ISNAN($x) THEN 0 ELSE {sql} END", x=f"CAST({typed.sql} AS DOUBLE)"), BIGINT)

    return build


def _operator(kind: type, is_safe: bool = False) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        typed = [scope.translate(item, scope) for item in nodes]
        if is_safe and any(not spark_types.is_number(item.type) and item.type != VOID for item in typed):
            raise scope.refuse(node, f"{shown(node)} of {typed[0].type} and {typed[1].type} in process; pass spark=")
        if not is_safe:
            return arithmetic(kind, typed[0], typed[1], nodes, scope)
        bound = [replace(item, sql=f"_o.{label}") for item, label in zip(typed, "xy", strict=True)]
        result = arithmetic(kind, bound[0], bound[1], nodes, scope, zero="NULL")
        operands = (
            f"STRUCT_PACK(x := {typed[0].sql}, y := {typed[1].sql})"  # TRY takes no operands that may raise themselves.
        )
        return Typed(f"LIST_TRANSFORM([{operands}], lambda _o: TRY({result.sql}))[1]", result.type)

    return build


def _signed(template: str) -> Builder:
    """abs and negative. Spark rounds decimals to 34 digits here."""

    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        typed = as_number(nodes[0], scope)
        if typed.type.name == "decimal" and typed.type.digits[0] > 34:
            raise scope.refuse(node, "the sign of decimals of more than 34 digits in process; cast them to fewer")
        if template.startswith("ABS") and spark_types.is_integral(
            typed.type
        ):  # DuckDB's own gives the smallest number for itself.
            return Typed(fill("CASE WHEN $x < 0 THEN -$x ELSE $x END", x=typed.sql), typed.type)
        return Typed(fill(template, x=typed.sql), typed.type)

    return build


def _pmod(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    typed = [scope.translate(item, scope) for item in nodes]
    rest = arithmetic(exp.Mod, typed[0], typed[1], nodes, scope)
    if rest.type.name == "decimal":
        raise scope.refuse(node, "pmod of decimals in process; pass spark=")
    divisor = cast(typed[1], rest.type, scope, nodes[1])
    sql = "CASE WHEN $r < 0 THEN ($r + $y) % $y ELSE $r END"
    return Typed(fill(sql, r=rest.sql, y=divisor), rest.type)


def _rand(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if nodes:
        raise scope.refuse(node, "rand with a seed in process; pass spark=")
    return Typed("RANDOM()", DOUBLE)


SCALARS: Mapping[str, tuple[int, int | None, Builder]] = {
    "round": (1, 2, _round),
    **dict.fromkeys(("ceil", "ceiling"), (1, 1, _rounded_to_whole("CEIL"))),
    "floor": (1, 1, _rounded_to_whole("FLOOR")),
    "mod": (2, 2, _operator(exp.Mod)),
    "abs": (1, 1, _signed("ABS($x)")),
    "negative": (1, 1, _signed("-($x)")),
    "pmod": (2, 2, _pmod),
    "try_add": (2, 2, _operator(exp.Add, True)),
    "try_subtract": (2, 2, _operator(exp.Sub, True)),
    "try_multiply": (2, 2, _operator(exp.Mul, True)),
    "try_divide": (2, 2, _operator(exp.Div, True)),
    "try_mod": (2, 2, _operator(exp.Mod, True)),
    **dict.fromkeys(("rand", "random"), (0, 1, _rand)),
}  # fmt: skip
