"""The names that Spark gives columns without one."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from lakeformat.sql import transforms

# fmt: off
_SIGNS = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div", exp.EQ: "=", exp.LT: "<",
    exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>", exp.And: "AND", exp.Or: "OR", exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|", exp.BitwiseXor: "^",
}
# fmt: on
_IN_CAPITALS = {"ceil": "CEIL", "ceiling": "CEIL", "floor": "FLOOR"}


def titled(expression: Any) -> str | None:
    """The name that Spark gives an unnamed column: `count(1)`, or `a` for `CAST(a AS INT)`. None if the expression has
    a name, or is a star."""
    is_call = transforms.called(expression) is not None
    is_named = isinstance(expression, exp.Alias | exp.Column | exp.Star | exp.Dot | exp.Aliases)
    if (
        is_named
        and not is_call
        and not (isinstance(expression, exp.Dot) and isinstance(expression.expression, exp.Anonymous))
    ):
        return None
    if isinstance(expression, exp.Explode):
        return "col"
    if isinstance(expression, exp.CurrentDate):
        return "current_date()"
    if isinstance(expression, exp.Cast) and isinstance(expression.this, exp.Column):
        return str(expression.this.name)
    return _written(expression)


# --- private ----------------------------------------------------------------------------------------------------------


def _written(node: Any) -> str:
    """An expression as Spark writes it: texts without quotes, operators in parentheses."""
    if (sign := _SIGNS.get(type(node))) is not None:
        return f"({_written(node.this)} {sign} {_written(node.expression)})"
    match node:
        case exp.Paren():
            return _written(node.this)
        case exp.NEQ():
            return f"(NOT ({_written(node.this)} = {_written(node.expression)}))"
        case exp.Not(this=exp.Is(this=inner, expression=exp.Null())):
            return f"({_written(inner)} IS NOT NULL)"
        case exp.Is(this=inner, expression=exp.Null()):
            return f"({_written(inner)} IS NULL)"
        case exp.Not():
            return f"(NOT {_written(node.this)})"
        case exp.Neg() if not isinstance(node.this, exp.Literal):
            return f"(- {_written(node.this)})"
        case exp.In() if node.expressions:
            return f"({_written(node.this)} IN ({', '.join(map(_written, node.expressions))}))"
        case exp.Like(expression=pattern) if not isinstance(pattern, exp.Any | exp.All):
            return f"{_written(node.this)} LIKE {_written(pattern)}"
        case exp.ILike(expression=pattern) if not isinstance(pattern, exp.Any | exp.All):
            return f"ilike({_written(node.this)}, {_written(pattern)})"
        case exp.Between() if not node.args.get("symmetric"):
            return f"between({_written(node.this)}, {_written(node.args['low'])}, {_written(node.args['high'])})"
        case exp.DPipe():
            return f"concat({_written(node.this)}, {_written(node.expression)})"
        case exp.Filter(this=call, expression=exp.Where(this=condition)):
            return f"{_written(call)} FILTER (WHERE {_written(condition)})"
        case exp.Anonymous():
            name = str(node.name)
            parts = ["1" if isinstance(part, exp.Star) else _written(part) for part in node.expressions]
            return f"{_IN_CAPITALS.get(name.lower(), name.lower())}({', '.join(parts)})"
        case exp.Distinct():
            return f"DISTINCT {', '.join(map(_written, node.expressions))}"
        case exp.Cast() if _of_dialect(node).startswith("CAST("):
            kind = re.sub(r"(\d), (\d)", r"\1,\2", _of_dialect(node.args["to"]))
            return f"CAST({_written(node.this)} AS {kind})"
        case exp.Literal():
            return str(node.this)
    return _of_dialect(node)


def _of_dialect(node: Any) -> str:
    """The text of other expressions, with their texts without quotes."""

    def change(node: Any) -> Any:
        is_text = isinstance(node, exp.Literal) and node.is_string and not isinstance(node.parent, exp.Interval)
        return exp.Var(this=node.name) if is_text else node

    text = (
        node.copy().transform(change).sql(dialect="spark", normalize_functions="lower").replace("count(*)", "count(1)")
    )
    is_operator = isinstance(node, exp.Binary) and not isinstance(node, exp.Func | exp.Dot)
    return f"({text})" if is_operator and transforms.called(node) is None else str(text)
