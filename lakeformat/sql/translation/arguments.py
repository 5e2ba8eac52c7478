"""What the functions of the other modules of calls need: the arguments of a call in the types that DuckDB SQL needs,
and the modifiers of aggregate functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from lakeformat.model.dataclass import dataclass
from lakeformat.sql.translation import spark_types
from lakeformat.sql.translation.operands import cast, shown
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.signatures import PLACES, coerces
from lakeformat.sql.translation.spark_types import (
    DOUBLE,
    STRING,
    VOID,
    SparkType,
)
from lakeformat.sql.translation.templates import fill

Builder = Callable[[Sequence[Any], Any, Scope], Typed]


@dataclass(slots=True)
class Modifiers:
    """What stands in and behind a call of an aggregate function."""

    is_distinct: bool = False
    ignores_nulls: bool = False
    filter: str = ""
    within: Any = None  # WITHIN GROUP (ORDER BY ...)
    window: str = ""  # OVER ...
    order: str = ""  # ORDER BY behind the arguments

    def applied(self, template: str, *values: str) -> str:
        """A template of an aggregate function with its arguments, DISTINCT, IGNORE NULLS,
        FILTER and OVER in their places."""

        def part(match: re.Match[str]) -> str:
            if match[1]:
                return f"({values[PLACES.index(match[1])]})"
            if match[0] == "~":
                return "DISTINCT " if self.is_distinct else ""
            if match[0] == "^":
                return self.order
            if match[0] == "!":
                return " IGNORE NULLS" if self.ignores_nulls else ""
            tests = [_MARK.sub(part, match[2])] if match[2] else []
            tests += [self.filter] if self.filter else []
            filtered = f" FILTER (WHERE {' AND '.join(tests)})" if tests else ""
            return filtered + (f" {self.window}" if self.window else "")

        return _MARK.sub(part, template)


Aggregate = Callable[[Sequence[Any], Modifiers, Any, Scope], Typed | None]


def filled(template: str, values: Sequence[str], modifiers: Modifiers) -> str:
    """A signature's template with the arguments."""
    if "@" in template:
        return modifiers.applied(template, *values)
    if "$*" in template:
        return template.replace("$*", ", ".join(values))
    return fill(template, **dict(zip(PLACES, values, strict=False)))


def as_text(node: Any, scope: Scope) -> str:
    return as_type(STRING, node, scope)


def as_type(target: SparkType, node: Any, scope: Scope) -> str:
    """An argument in a type to which Spark casts it of its own accord."""
    typed = scope.translate(node, scope)
    if not coerces(typed.type, target):
        raise scope.refuse(node, f"{shown(node)}: {typed.type} where {target} is needed in process; cast it")
    return cast(typed, target, scope, node)


def constant(node: Any) -> Any:
    """The value of a literal; None for another expression."""
    sign = 1
    while isinstance(node, exp.Neg | exp.Paren):
        sign, node = (-sign if isinstance(node, exp.Neg) else sign), node.this
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.name
    return sign * int(node.name) if node.name.isdecimal() else None


def literal_text(node: Any, name: str, scope: Scope) -> str:
    """The text of a literal."""
    value = constant(node)
    if not isinstance(value, str):
        raise scope.refuse(node, f"{name} with another than a constant text here in process; pass spark=")
    return value


def as_number(node: Any, scope: Scope) -> Typed:
    typed = scope.translate(node, scope)
    if typed.type in (STRING, VOID):
        typed = Typed(cast(typed, DOUBLE, scope, node), DOUBLE)
    if not spark_types.is_number(typed.type):
        raise scope.invalid(node, f"{shown(node)} is {typed.type}, and a number is needed")
    return typed


def fixed(sql: str, type: SparkType) -> Builder:
    return lambda nodes, node, scope: Typed(sql, type)


# --- private ----------------------------------------------------------------------------------------------------------


_MARK = re.compile(r"\$([a-z])\b|@(?:\[(.*?)\])?|~|!|\^")
