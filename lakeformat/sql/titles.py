"""The names that Spark gives columns without one."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from lakeformat.sql import transforms


def titled(expression: Any) -> str | None:
    """The name that Spark gives an unnamed column: `count(1)`. None if the expression has a name, or is a star."""
    is_call = transforms.called(expression) is not None
    is_named = isinstance(expression, exp.Alias | exp.Column | exp.Star | exp.Dot | exp.Aliases)
    if (
        is_named
        and not is_call
        and not (isinstance(expression, exp.Dot) and isinstance(expression.expression, exp.Anonymous))
    ):
        return None
    name = _unquoted(expression).sql(dialect="spark", normalize_functions="lower")
    name = "col" if isinstance(expression, exp.Explode) else name.replace("count(*)", "count(1)")
    name = "current_date()" if isinstance(expression, exp.CurrentDate) else name
    is_operator = isinstance(expression, exp.Binary) and not isinstance(expression, exp.Func | exp.Dot) and not is_call
    return f"({name})" if is_operator else str(name)


def _unquoted(expression: Any) -> Any:
    """An expression with its texts without quotes, as Spark names a column: `concat(a, b)` of two texts."""

    def change(node: Any) -> Any:
        is_text = isinstance(node, exp.Literal) and node.is_string and not isinstance(node.parent, exp.Interval)
        return exp.Var(this=node.name) if is_text else node

    return expression.copy().transform(change)
