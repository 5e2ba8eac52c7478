"""Calls of functions, as users type them -> DuckDB SQL: by a line of signatures.py, or by a function of special.py."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lakeformat.model.partition import TransformKind
from lakeformat.sql import builtin, transforms
from lakeformat.sql.translation import signatures, spark_types, special, texts
from lakeformat.sql.translation.arguments import Modifiers, filled
from lakeformat.sql.translation.operands import cast, condition, shown
from lakeformat.sql.translation.scopes import Scope, Typed, offset
from lakeformat.sql.translation.signatures import AGGREGATES, SCALARS, WINDOWS, Signature
from lakeformat.sql.translation.spark_types import BOOLEAN, DATE, INT, STRING, in_duckdb


def names() -> frozenset[str]:
    """The functions that this process evaluates."""
    return frozenset({*SCALARS, *AGGREGATES, *WINDOWS, *special.SCALARS, *special.AGGREGATES})


def called(node: Any, scope: Scope) -> Typed:
    """A call `name(arguments)`."""
    return named(str(node.name), node.expressions, node, scope)


def named(name: str, nodes: Sequence[Any], node: Any, scope: Scope, modifiers: Modifiers | None = None) -> Typed:
    """A call of the function of this name. Raises `UnsupportedFeature` for functions that are not known to mean the
    same in process, `InvalidInput` for wrong numbers and types of arguments."""
    key, effective = name.lower(), modifiers or Modifiers()
    nodes = list(nodes)
    if any(isinstance(argument, exp.Kwarg) for argument in nodes):
        raise scope.refuse(node, f"{name}(name => value): arguments by name in process; give them by position")
    if len(nodes) == 1 and isinstance(nodes[0], exp.Order):  # array_agg(x ORDER BY y)
        raise scope.refuse(node, f"{name}(... ORDER BY ...) in process; use WITHIN GROUP, or pass spark=")
    if len(nodes) == 1 and isinstance(nodes[0], exp.Distinct):
        effective, nodes = replace(effective, is_distinct=True), list(nodes[0].expressions)
        if key in ("first", "last", "any_value"):
            raise scope.refuse(node, f"{name}(DISTINCT ...) in process; pass spark=")
    is_aggregate = key in AGGREGATES or key in special.AGGREGATES
    if effective.is_distinct and not is_aggregate:
        raise scope.invalid(node, f"{name}(DISTINCT ...): {name} is not an aggregate function")
    if (effective.filter or effective.within) and not is_aggregate:
        raise scope.invalid(node, f"{name}: FILTER and WITHIN GROUP stand behind aggregate functions")
    if effective.within is not None and key not in ("percentile_cont", "listagg", "string_agg"):
        raise scope.invalid(node, f"{name} takes no WITHIN GROUP")
    if key in ("lag", "lead", "nth_value", "ntile"):
        for argument in nodes[1:2] if key != "ntile" else nodes[:1]:
            if not re.fullmatch(r"-?\d+", argument.sql()):
                raise scope.refuse(argument, f"{name} by another than a constant whole number in process; pass spark=")
            if key in ("nth_value", "ntile") and int(argument.sql()) < 1:
                raise scope.invalid(argument, f"{name}: {argument.sql()} is not above 0")
    if effective.window and not is_aggregate and key not in WINDOWS:
        raise scope.invalid(node, f"{name} is not a window function")
    if key in WINDOWS and not effective.window:
        raise scope.invalid(node, f"{name} needs a window: {name}(...) OVER (ORDER BY ...)")
    if key in special.SCALARS:
        least, most, build = special.SCALARS[key]
        _require_count(name, len(nodes), [(least, most)], node, scope)
        return build(nodes, node, scope)
    if key in special.AGGREGATES:
        least, most, build_aggregate = special.AGGREGATES[key]
        _require_count(name, len(nodes), [(least, most)], node, scope)
        if (made := build_aggregate(nodes, effective, node, scope)) is not None:
            return made
    table = AGGREGATES if key in AGGREGATES else WINDOWS if key in WINDOWS else SCALARS
    if key not in table:
        raise _unknown(name, node, scope)
    return _signed(name, table[key], nodes, node, scope, effective)


def windowed(node: Any, scope: Scope) -> Typed:
    """A call with FILTER, WITHIN GROUP, IGNORE NULLS or OVER behind it."""
    modifiers = Modifiers()
    if isinstance(node, exp.Window):
        modifiers.window = _window(node, scope)
        node = node.this
    while not isinstance(node, exp.Anonymous):
        match node:
            case exp.Filter():
                modifiers.filter = condition(node.expression.this, scope)
            case exp.WithinGroup():
                modifiers.within = node.expression
            case exp.IgnoreNulls():
                modifiers.ignores_nulls = True
            case exp.RespectNulls():
                pass
            case _:
                raise scope.refuse(node, f"{shown(node)} in process; pass spark=")
        node = node.this
    return named(str(node.name), node.expressions, node, scope, modifiers)


def ordering(node: Any, scope: Scope) -> str:
    """One item of ORDER BY."""
    expression = node.this if isinstance(node, exp.Ordered) else node
    typed = scope.translate(expression, scope)
    return ordered(typed, node, scope)


def ordered(typed: Typed, node: Any, scope: Scope) -> str:
    """An item of ORDER BY with its direction."""
    if not spark_types.has_order(typed.type):
        raise scope.refuse(node, f"ORDER BY of {typed.type} in process; pass spark=")
    return f"{typed.sql} {direction(node)}"


def direction(node: Any) -> str:
    is_descending = isinstance(node, exp.Ordered) and bool(node.args.get("desc"))
    nulls_first = node.args.get("nulls_first") if isinstance(node, exp.Ordered) else True
    return f"{'DESC' if is_descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


def window_definition(node: Any, scope: Scope) -> str:
    """What stands in the parentheses of OVER, or of a named window."""
    parts = (
        [node.args["alias"].name]
        if isinstance(node.args.get("alias"), exp.Identifier) and node.args.get("first")
        else []
    )
    if node.args.get("partition_by"):
        keys = [scope.translate(item, scope) for item in node.args["partition_by"]]
        parts.append("PARTITION BY " + ", ".join(key.sql for key in keys))
    order = node.args.get("order")
    if order is not None:
        parts.append("ORDER BY " + ", ".join(ordering(item, scope) for item in order.expressions))
    if (spec := node.args.get("spec")) is not None:
        parts.append(_frame(spec, order, scope))
    return " ".join(parts)


def written(node: Any, scope: Scope) -> Typed:
    """A function with a syntax of its own: `EXTRACT(YEAR FROM d)`, `TRIM(BOTH 'a' FROM s)`, `s RLIKE 'a'`."""
    match node:
        case exp.CurrentDate():
            return named("current_date", [], node, scope)
        case exp.CurrentTimestamp():
            return named("current_timestamp", [], node, scope)
        case exp.Extract():
            return named("date_part", [exp.Literal.string(node.this.name), node.expression], node, scope)
        case exp.StrPosition():
            return named("position", _present(node, "substr", "this", "position"), node, scope)
        case exp.Substring():
            return named("substring", _present(node, "this", "start", "length"), node, scope)
        case exp.Trim():
            name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "btrim")
            if node.expression is None:
                return named(name, [node.this], node, scope)
            given = [node.this, node.expression] if name == "btrim" else [node.expression, node.this]
            return named(name, given, node, scope)
        case exp.RegexpLike():
            return named("regexp_like", [node.this, node.expression], node, scope)
        case exp.Transform():
            return named("transform", _present(node, "this", "expression"), node, scope)
        case exp.Interval():
            raise scope.refuse(node, "an interval that is not added to a date or a time in process; pass spark=")
    raise scope.refuse(node, f"the function {node.sql_name().lower()} in process; pass spark=")


def liked(node: Any, scope: Scope) -> Typed:
    """`a LIKE b [ESCAPE c]`, `ILIKE`, `LIKE ANY | ALL (...)`."""
    escape, is_negated = "\\", False
    if isinstance(node, exp.Escape):
        if not isinstance(node.expression, exp.Literal) or len(node.expression.name) != 1:
            raise scope.invalid(node, "ESCAPE takes one character in quotes")
        escape, node = node.expression.name, node.this
        is_negated = bool(node.args.get("negate"))
    if not isinstance(node, exp.Like | exp.ILike):
        raise scope.refuse(node, f"{shown(node)} in process; pass spark=")
    pattern = node.expression
    if isinstance(pattern, exp.Any | exp.All):
        if node.args.get("negate"):  # In Spark each of them is negated.
            raise scope.refuse(node, "NOT LIKE ANY | ALL in process; write several NOT LIKE")
        inner = pattern.this.expressions if isinstance(pattern.this, exp.Tuple) else [pattern.this.this]
        word = " OR " if isinstance(pattern, exp.Any) else " AND "
        return Typed(f"({word.join(texts.like(node, item, escape, scope).sql for item in inner)})", BOOLEAN)
    typed = texts.like(node, pattern, escape, scope)
    return Typed(f"(NOT {typed.sql})", BOOLEAN) if is_negated else typed


def transformed(node: Any, kind: TransformKind, scope: Scope) -> Typed:
    """A call of our own function of an Iceberg transform, which in_process.py registers;
    truncated values come as text."""
    nodes = node.expression.expressions
    arguments = [scope.translate(argument, scope) for argument in nodes]
    sql = f"{transforms.name_of(kind)}({', '.join(item.sql for item in arguments)})"
    if kind is TransformKind.TRUNCATE and len(arguments) == 2:
        return Typed(f"CAST({sql} AS {in_duckdb(arguments[1].type)})", arguments[1].type)
    return Typed(sql, {TransformKind.DAY: DATE, TransformKind.TRUNCATE: STRING}.get(kind, INT))


# --- private ----------------------------------------------------------------------------------------------------------


def _present(node: Any, *keys: str) -> list[Any]:
    """The arguments of a node that are there."""
    return [node.args[key] for key in keys if node.args.get(key) is not None]


def _signed(
    name: str, lines: Sequence[Signature], nodes: Sequence[Any], node: Any, scope: Scope, modifiers: Modifiers
) -> Typed:
    _require_count(name, len(nodes), [line.arity for line in lines], node, scope)
    typed = [scope.translate(argument, scope) for argument in nodes]
    bound = signatures.bind(lines, [item.type for item in typed])
    if bound is None:
        kinds = ", ".join(str(item.type) for item in typed)
        raise scope.refuse(node, f"the function {name} of ({kinds}) in process; cast the arguments, or pass spark=")
    values = [
        cast(item, target, scope, argument) for item, target, argument in zip(typed, bound.given, nodes, strict=True)
    ]
    return Typed(filled(bound.signature.sql, values, modifiers), bound.result)


def _require_count(name: str, count: int, arities: Sequence[tuple[int, int | None]], node: Any, scope: Scope) -> None:
    if any(least <= count and (most is None or count <= most) for least, most in arities):
        return
    counts = [
        f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        for least, most in arities
    ]
    raise scope.invalid(node, f"{name} takes {' or '.join(dict.fromkeys(counts))} arguments, and {count} are given")


def _unknown(name: str, node: Any, scope: Scope) -> Exception:
    """The refusal of a function, and of the others of the statement, so that one message has all of them."""
    supported = names()
    others = [
        f"{call.name} at {scope.piece.script.position(scope.piece.origin(offset(call)))}"
        for call in node.root().find_all(exp.Anonymous)
        if call is not node
        and str(call.name).lower() not in {*supported, name.lower()}
        and not isinstance(call.parent, exp.Table | exp.Lateral | exp.Dot)
    ]
    further = f"; neither is {', '.join(dict.fromkeys(others))}" if others else ""
    if builtin.is_one(name):
        near = difflib.get_close_matches(name.lower(), supported, 3, 0.75)
        hint = f"; {' and '.join(near)} {'are' if len(near) > 1 else 'is'} supported" if near else ""
        return scope.refuse(
            node,
            f"the function {name} is not known to mean in process what it means in Spark{hint}{further}; "
            "pass spark= for Spark's own",
        )
    near = difflib.get_close_matches(name.lower(), {*supported, *builtin.UNNAMED}, 3, 0.75)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return scope.refuse(node, f"the function {name} is not known{hint or ' in process; pass spark='}{further}")


def _window(node: Any, scope: Scope) -> str:
    alias = node.args.get("alias")
    has_more = any(node.args.get(key) for key in ("partition_by", "order", "spec"))
    if alias is not None and not has_more:
        return f'OVER "{alias.name}"'
    if node.args.get("over") not in (None, "OVER") or alias is not None:
        raise scope.refuse(node, f"{shown(node)} in process; pass spark=")
    return f"OVER ({window_definition(node, scope)})"


def _frame(spec: Any, order: Any, scope: Scope) -> str:
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise scope.refuse(spec, "a window frame of this form in process; pass spark=")
    ends = [_bound(spec, "start", scope), _bound(spec, "end", scope)]
    if kind == "RANGE" and any(re.match(r"\d", end) for end in ends):
        items = order.expressions if order is not None else []
        types = [scope.translate(item.this if isinstance(item, exp.Ordered) else item, scope).type for item in items]
        if len(types) != 1 or not spark_types.is_number(types[0]):
            raise scope.refuse(spec, "RANGE BETWEEN with a number, but by one number, in process; pass spark=")
        distances = [int(end.split()[0]) for end in ends if re.match(r"\d", end)]
        largest = 2 ** {"tinyint": 7, "smallint": 15}.get(types[0].name, 31) - 1
        if max(distances) > largest:  # Spark casts a distance to the type of the key.
            raise scope.refuse(spec, f"RANGE BETWEEN with a number above {largest} by {types[0]} in process")
    return f"{kind} BETWEEN {ends[0]} AND {ends[1] or 'CURRENT ROW'}"


def _bound(spec: Any, end: str, scope: Scope) -> str:
    value, side = spec.args.get(end), str(spec.args.get(f"{end}_side") or "").upper()
    if value is None:
        return ""
    if isinstance(value, str):
        return f"{value.upper()} {side}".strip()
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdecimal():
        return f"{value.name} {side}"
    raise scope.refuse(spec, "a window frame whose ends are not whole numbers in process; pass spark=")
