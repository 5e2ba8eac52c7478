"""Builders of expressions. The left side of a condition may be a column's name; any other argument that is not an
expression is a value."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakeformat.errors import InvalidInput
from lakeformat.model.predicate.functions import FUNCTIONS
from lakeformat.model.predicate.like import like_parts
from lakeformat.model.predicate.nodes import ALWAYS, NEVER, Call, Column, Expression, Literal
from lakeformat.model.type_text import parse_type


def column(*path: str) -> Column:
    """A column, or a field inside one: `column("address", "city")`."""
    if not path or not all(isinstance(part, str) and part for part in path):
        raise InvalidInput(f"a column is named by non-empty text, not {path!r}")
    return Column(path)


def literal(value: Any) -> Literal:
    return value if isinstance(value, Literal) else Literal(value)


def call(name: str, *arguments: Expression) -> Call:
    """An operator by name; raises `InvalidInput` for a name or a number of arguments that is not in `FUNCTIONS`."""
    if name not in FUNCTIONS:
        near = difflib.get_close_matches(name, FUNCTIONS, 3, 0.8) or sorted(FUNCTIONS)
        raise InvalidInput(f"unknown function {name!r}; there are {', '.join(near)}")
    low, high = FUNCTIONS[name].arity
    if len(arguments) < low or (high is not None and len(arguments) > high):
        wanted = str(low) if low == high else f"at least {low}" if high is None else f"{low} to {high}"
        raise InvalidInput(f"{name} takes {wanted} arguments, not {len(arguments)}")
    return Call(name, arguments)


def eq(left: str | Expression, right: Any) -> Expression:
    return _compare("eq", left, right)


def ne(left: str | Expression, right: Any) -> Expression:
    return _compare("ne", left, right)


def lt(left: str | Expression, right: Any) -> Expression:
    return _compare("lt", left, right)


def le(left: str | Expression, right: Any) -> Expression:
    return _compare("le", left, right)


def gt(left: str | Expression, right: Any) -> Expression:
    return _compare("gt", left, right)


def ge(left: str | Expression, right: Any) -> Expression:
    return _compare("ge", left, right)


def eq_null_safe(left: str | Expression, right: Any) -> Expression:
    """Equality in which null equals null; never null itself."""
    return _compare("eq_null_safe", left, right)


def is_null(operand: str | Expression) -> Expression:
    return Call("is_null", (_left(operand),))


def is_not_null(operand: str | Expression) -> Expression:
    return not_(is_null(operand))


def is_nan(operand: str | Expression) -> Expression:
    return Call("is_nan", (_left(operand),))


def is_in(operand: str | Expression, values: Iterable[Any]) -> Expression:
    """One of `values`; as in SQL, a None among them makes every miss null."""
    return Call("in", (_left(operand), Literal(frozenset(values))))


def in_tuples(columns: Sequence[str | Column], tuples: Iterable[Sequence[Any]]) -> Expression:
    """Whether the columns' values are one of `tuples`, null equal to null: a set of partitions."""
    named = tuple(_left(reference) for reference in columns)
    distinct = frozenset(tuple(tuple_) for tuple_ in tuples)
    for values in distinct:
        if len(values) != len(named):
            raise InvalidInput(f"in_tuples: {len(named)} columns, but {values!r} has {len(values)} values")
    if not distinct:
        return NEVER
    if not named:
        return ALWAYS
    return Call("in_tuples", (*named, Literal(distinct)))


def between(operand: str | Expression, low: Any, high: Any) -> Expression:
    return and_(ge(operand, low), le(operand, high))


def like(operand: str | Expression, pattern: str, escape: str = "\\") -> Expression:
    """SQL LIKE: `%` any text, `_` any one character, `escape` before either takes it literally."""
    like_parts(pattern, escape)
    return Call("like", (_left(operand), Literal(pattern), Literal(escape)))


def starts_with(operand: str | Expression, prefix: str) -> Expression:
    return Call("starts_with", (_left(operand), Literal(prefix)))


def and_(*conditions: Expression) -> Expression:
    """All of them, flat; `ALWAYS` of none."""
    return _junction("and", conditions, neutral=True)


def or_(*conditions: Expression) -> Expression:
    """Any of them, flat; `NEVER` of none."""
    return _junction("or", conditions, neutral=False)


def not_(condition: Expression) -> Expression:
    match condition:
        case Literal(bool(value)):
            return NEVER if value else ALWAYS
        case Literal(None):
            return condition
        case Call("not", (inner,)):
            return inner
    return Call("not", (condition,))


def cast(operand: str | Expression, type_text: str) -> Expression:
    parse_type(type_text)
    return Call("cast", (_left(operand), Literal(type_text)))


def case(*branches: tuple[Expression, Any], otherwise: Any = None) -> Expression:
    """`case((condition, value), ..., otherwise=value)`: the value of the first true condition."""
    flat = [part for condition, value in branches for part in (condition, _right(value))]
    return call("case", *flat, _right(otherwise))


def partition_equals(values: Mapping[str, Any]) -> Expression:
    """The rows of one partition, or of all partitions with these first values: each column equals its value, null equal
    to null."""
    return and_(*(eq_null_safe(column(name), Literal(value)) for name, value in values.items()))


def _left(operand: str | Expression) -> Expression:
    return Column((operand,)) if isinstance(operand, str) else _right(operand)


def _right(operand: Any) -> Expression:
    return operand if isinstance(operand, Column | Literal | Call) else Literal(operand)


def _compare(name: str, left: str | Expression, right: Any) -> Expression:
    return Call(name, (_left(left), _right(right)))


def _junction(name: str, conditions: Iterable[Expression], neutral: bool) -> Expression:
    flat: list[Expression] = []
    for condition in conditions:
        if isinstance(condition, Literal) and isinstance(condition.value, bool):
            if condition.value is not neutral:
                return condition
        elif isinstance(condition, Call) and condition.name == name:
            flat += condition.arguments
        else:
            flat.append(condition)
    if not flat:
        return Literal(neutral)
    return flat[0] if len(flat) == 1 else Call(name, tuple(flat))
