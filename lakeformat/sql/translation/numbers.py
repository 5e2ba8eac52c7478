"""Functions of numbers whose DuckDB SQL depends on more than types: rounding, and operators that give null."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

from sqlglot import exp

from lakeformat.sql.translation import casts, spark_types
from lakeformat.sql.translation.arguments import (
    Builder,
    as_number,
    as_text,
    constant,
)
from lakeformat.sql.translation.operands import arithmetic, cast, shown
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import (
    BIGINT,
    DOUBLE,
    STRING,
    VOID,
    decimal,
    in_duckdb,
)
from lakeformat.sql.translation.templates import fill

# --- private ----------------------------------------------------------------------------------------------------------


def _round(nodes: Sequence[Any], node: Any, scope: Scope, rounded: Callable[[str, int], str]) -> Typed:
    digits = 0 if len(nodes) == 1 else constant(nodes[1])
    if not isinstance(digits, int) or not -18 <= digits <= 18:
        raise scope.refuse(
            node, f"{node.name} to another than a constant number of digits, -18 to 18, in process; pass spark="
        )
    typed = as_number(nodes[0], scope)
    if typed.type.name == "decimal":
        (p, s), kept = typed.type.digits, min(typed.type.digits[1], max(digits, 0))
        type = spark_types.bounded(max(p - s + 1, 1 - digits) + kept if digits < 0 else p - s + 1 + kept, kept)
        type = type or decimal(spark_types.MOST_DIGITS, kept)
        sql = typed.sql if digits > typed.type.digits[1] else rounded(typed.sql, digits)
        return Typed(f"CAST({sql} AS {in_duckdb(type)})", type)
    if spark_types.is_integral(typed.type):
        if digits >= 0:
            return typed
        sql = rounded(f"CAST({typed.sql} AS DECIMAL(38, 0))", digits)
        return Typed(f"CAST({sql} AS {in_duckdb(typed.type)})", typed.type)
    decimal_sql = rounded("CAST(CAST($x AS VARCHAR) AS DECIMAL(38, 20))", digits)
    exact = f"CAST(CAST({decimal_sql} AS VARCHAR) AS {in_duckdb(typed.type)})"
    return Typed(
        fill(
            f"CASE WHEN ABS($x) < 1e16 AND $x <> 0 THEN {exact} {_HUGE.replace('$n', str(digits))} ELSE $x END",
            x=typed.sql,
        ),
        typed.type,
    )


def _half_up(value: str, digits: int) -> str:
    return f"ROUND({value}, {digits})"


def _half_even(value: str, digits: int) -> str:
    """A decimal rounded to `digits`, halves to the even neighbour."""
    scale, zeros = max(digits, 0), max(-digits, 0)
    unit = f"CAST({Decimal(10).scaleb(-digits - 1):f} AS DECIMAL(38, {scale}))"
    half = f"CAST({Decimal(5).scaleb(-digits - 1):f} AS DECIMAL(38, {scale + (digits >= 0)}))"
    last = f"SUBSTRING(CAST(CAST(_r.r AS DECIMAL(38, {scale})) AS VARCHAR), -{zeros + 1}, 1)"
    is_odd_tie = f"ABS(_r.x - _r.r) = {half} AND {last} IN ('1', '3', '5', '7', '9')"
    towards_zero = f"CASE WHEN _r.r < 0 THEN _r.r + {unit} ELSE _r.r - {unit} END"
    return (
        f"LIST_TRANSFORM([STRUCT_PACK(x := {value}, r := ROUND({value}, {digits}))], "
        f"lambda _r: CASE WHEN {is_odd_tie} THEN {towards_zero} ELSE _r.r END)[1]"
    )


_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WORDS = 2**64


def _conv(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    """A number of one base in another, by way of unsigned 64 bits; a negative base takes them as signed."""
    source, target = constant(nodes[1]), constant(nodes[2])
    if not isinstance(source, int) or not isinstance(target, int):
        raise scope.refuse(node, f"{shown(node)}: bases that are no constants, in process; pass spark=")
    value = as_text(nodes[0], scope)
    if not 2 <= source <= 36 or not 2 <= abs(target) <= 36:
        return Typed("CAST(NULL AS VARCHAR)", STRING)
    letters = _ALPHABET[10:source]
    allowed = f"0-{min(source, 10) - 1}" + (f"A-{letters[-1]}a-{letters[-1].lower()}" if letters else "")
    digits = f"LTRIM(UPPER(REGEXP_EXTRACT($x, '^-?([{allowed}]*)', 1)), '0')"
    most = len(_digits(_WORDS - 1, source))
    number = (
        f"CASE WHEN LENGTH($d) > {most} THEN {_WORDS}::HUGEINT ELSE LIST_REDUCE(LIST_TRANSFORM(STRING_SPLIT('0' || $d, "
        f"''), lambda c: CAST(INSTR('{_ALPHABET}', c) - 1 AS HUGEINT)), lambda a, b: a * {source} + b) END"
    )
    above = f"$u >= {_WORDS // 2}"
    if target > 0:
        negative = f"CASE WHEN {above} THEN {_WORDS - 1} WHEN $u = 0 THEN 0 ELSE {_WORDS} - $u END"
        size, sign = f"CASE WHEN STARTS_WITH($x, '-') THEN {negative} ELSE $u END", "''"
    else:
        size = f"CASE WHEN {above} THEN {_WORDS} - $u ELSE $u END"
        sign = f"CASE WHEN STARTS_WITH($x, '-') OR {above} THEN '-' ELSE '' END"
    base, count = abs(target), len(_digits(_WORDS - 1, abs(target)))
    powers = ", ".join(str(base**power) for power in reversed(range(count)))
    spelt = (
        f"LIST_TRANSFORM([{powers}]::HUGEINT[], lambda p: SUBSTRING('{_ALPHABET}', "
        f"CAST(($m // p) % {base} AS INTEGER) + 1, 1))"
    )
    shown_digits = f"COALESCE(NULLIF(LTRIM(ARRAY_TO_STRING({spelt}, ''), '0'), ''), '0')"
    checked = (
        f"CASE WHEN $x IS NULL OR $x = '' THEN NULL WHEN $u >= {_WORDS} THEN ERROR('conv: more than 64 bits') "
        f"ELSE $s || {shown_digits} END"
    )
    # Each step is bound once: a copy of a copy grows with every use.
    sql = checked
    for name, step in (("s", sign), ("m", size), ("u", number), ("d", digits)):
        sql = f"LIST_TRANSFORM([{step}], lambda _c{name}: {sql})[1]"
    sql = re.sub(r"\$([xdums])\b", r"_c\1", sql)
    return Typed(f"LIST_TRANSFORM([TRIM({value}, ' ')], lambda _cx: {sql})[1]", STRING)


def _digits(number: int, base: int) -> str:
    """The digits of a whole number above 0."""
    digits = ""
    while number:
        number, digit = divmod(number, base)
        digits = _ALPHABET[digit] + digits
    return digits


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
    "round": (1, 2, partial(_round, rounded=_half_up)),
    "bround": (1, 2, partial(_round, rounded=_half_even)),
    "conv": (3, 3, _conv),
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
