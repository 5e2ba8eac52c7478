"""Aggregate functions whose DuckDB SQL depends on more than types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lakeformat.sql.translation import spark_types
from lakeformat.sql.translation.arguments import (
    Aggregate,
    Modifiers,
    as_text,
    as_type,
)
from lakeformat.sql.translation.operands import quotient
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import (
    BIGINT,
    DOUBLE,
    STRING,
    decimal,
    in_duckdb,
)

# --- private ----------------------------------------------------------------------------------------------------------


def _count(nodes: Sequence[Any], modifiers: Modifiers, node: Any, scope: Scope) -> Typed | None:
    if len(nodes) == 1 and isinstance(nodes[0], exp.Star):
        if modifiers.is_distinct:
            raise scope.refuse(node, "count(DISTINCT *) in process; name the columns")
        return Typed(modifiers.applied("COUNT(*)@"), BIGINT)
    typed = [scope.translate(item, scope) for item in nodes]
    if modifiers.is_distinct and any(not spark_types.has_order(item.type) for item in typed):
        raise scope.refuse(node, f"count(DISTINCT ...) of {typed[0].type} in process; pass spark=")
    if len(typed) == 1:
        return Typed(modifiers.applied("COUNT(~$x)@", typed[0].sql), BIGINT)
    present = " AND ".join(f"({item.sql}) IS NOT NULL" for item in typed)
    row = f"CASE WHEN {present} THEN ROW({', '.join(item.sql for item in typed)}) END"
    return Typed(modifiers.applied("COUNT(~$x)@", row), BIGINT)


def _sum(nodes: Sequence[Any], modifiers: Modifiers, node: Any, scope: Scope) -> Typed | None:
    typed = scope.translate(nodes[0], scope)
    if typed.type.name != "decimal":
        return None
    type = decimal(min(typed.type.digits[0] + 10, spark_types.MOST_DIGITS), typed.type.digits[1])
    return Typed(modifiers.applied(f"CAST(SUM(~$x)@ AS {in_duckdb(type)})", typed.sql), type)


def _avg(nodes: Sequence[Any], modifiers: Modifiers, node: Any, scope: Scope) -> Typed | None:
    typed = scope.translate(nodes[0], scope)
    if typed.type.name != "decimal":
        return None
    p, s = typed.type.digits
    precision, scale = min(p + 4, spark_types.MOST_DIGITS), min(s + 4, spark_types.MOST_DIGITS)
    if p + 4 > spark_types.MOST_DIGITS:
        raise scope.refuse(node, "avg of decimals of more than 34 digits in process; cast them to fewer")
    total = Typed(modifiers.applied("SUM(~$x)@", typed.sql), decimal(spark_types.MOST_DIGITS, s))
    number = Typed(modifiers.applied("COUNT(~$x)@", typed.sql), BIGINT)
    made = quotient(total, number, scale, precision)
    return Typed(f"CASE WHEN {number.sql} > 0 THEN {made} END", decimal(precision, scale))


def _first(name: str) -> Callable[[Sequence[Any], Modifiers, Any, Scope], Typed | None]:
    def build(nodes: Sequence[Any], modifiers: Modifiers, node: Any, scope: Scope) -> Typed | None:
        ignores = modifiers.ignores_nulls
        if len(nodes) == 2:
            if not isinstance(nodes[1], exp.Boolean):
                raise scope.invalid(node, f"{name.lower()}: the second argument is TRUE or FALSE")
            ignores = bool(nodes[1].this)
        typed = scope.translate(nodes[0], scope)
        if modifiers.window:
            modifiers = replace(modifiers, ignores_nulls=ignores)
            return Typed(modifiers.applied(f"{name}_VALUE($x!)@", typed.sql), typed.type)
        return Typed(modifiers.applied(f"{name}($x)@{'[$x IS NOT NULL]' if ignores else ''}", typed.sql), typed.type)

    return build


def _percentile(nodes: Sequence[Any], modifiers: Modifiers, node: Any, scope: Scope) -> Typed | None:
    _require_whole_window(modifiers, node, scope)
    share = nodes[-1]
    typed = scope.translate(share, scope)
    if modifiers.within is not None:
        if (
            len(nodes) != 1
            or len(modifiers.within.expressions) != 1
            or modifiers.within.expressions[0].args.get("desc")
        ):
            raise scope.refuse(node, "WITHIN GROUP (ORDER BY one expression ASC) in process")
        value = modifiers.within.expressions[0].this
    elif len(nodes) == 2:
        value = nodes[0]
    else:
        raise scope.invalid(
            node, "percentile takes an expression and a share, percentile_cont WITHIN GROUP (ORDER BY expression)"
        )
    if not isinstance(share, exp.Literal) or not spark_types.is_number(typed.type):
        raise scope.refuse(node, "a percentile of another than a constant share in process; pass spark=")
    if not 0 <= float(share.name) <= 1:
        raise scope.invalid(share, "a share is between 0 and 1")
    values = as_type(DOUBLE, value, scope)
    return Typed(modifiers.applied(f"CAST(QUANTILE_CONT(~$x, {share.name})@ AS DOUBLE)", values), DOUBLE)


def _median(nodes: Sequence[Any], modifiers: Modifiers, node: Any, scope: Scope) -> Typed | None:
    _require_whole_window(modifiers, node, scope)
    return Typed(modifiers.applied("CAST(MEDIAN(~$x)@ AS DOUBLE)", as_type(DOUBLE, nodes[0], scope)), DOUBLE)


def _require_whole_window(modifiers: Modifiers, node: Any, scope: Scope) -> None:
    if "ORDER BY" in modifiers.window:
        raise scope.invalid(node, "a percentile over a window takes no ORDER BY and no frame")


def _listagg(nodes: Sequence[Any], modifiers: Modifiers, node: Any, scope: Scope) -> Typed | None:
    value = as_text(nodes[0], scope)
    delimiter = as_text(nodes[1], scope) if len(nodes) == 2 and not isinstance(nodes[1], exp.Null) else "''"
    order = ""
    if modifiers.within is not None:
        items = []
        for item in modifiers.within.expressions:
            if isinstance(item.this, exp.Literal):  # Orders nothing.
                continue
            typed = scope.translate(item.this, scope)
            if not spark_types.has_order(typed.type):
                raise scope.refuse(node, f"ORDER BY of {typed.type} in process; pass spark=")
            nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
            items.append(f"{typed.sql} {'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}")
        order = f" ORDER BY {', '.join(items)}" if items else ""
    return Typed(replace(modifiers, order=order).applied("STRING_AGG(~$x, $y^)@", value, delimiter), STRING)


AGGREGATES: Mapping[str, tuple[int, int | None, Aggregate]] = {
    "count": (1, None, _count),
    "sum": (1, 1, _sum),
    **dict.fromkeys(("avg", "mean"), (1, 1, _avg)),
    **dict.fromkeys(("first", "first_value", "any_value"), (1, 2, _first("FIRST"))),
    **dict.fromkeys(("last", "last_value"), (1, 2, _first("LAST"))),
    "percentile": (2, 2, _percentile),
    "median": (1, 1, _median),
    "percentile_cont": (1, 1, _percentile),
    **dict.fromkeys(("listagg", "string_agg"), (1, 2, _listagg)),
}
