"""Rewrites of conditions: their part over some columns alone, the values that they list, negations moved inward."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from lakeformat.model.predicate.builders import and_, not_, or_
from lakeformat.model.predicate.functions import COMPARISONS, FUNCTIONS
from lakeformat.model.predicate.nodes import ALWAYS, Call, Column, Expression, Literal, columns_of, conjuncts


def split(expression: Expression, names: Iterable[str]) -> tuple[Expression, Expression]:
    """(the part over the columns `names` alone, the rest): both together are the same condition.

    If the rest is not `ALWAYS`, the condition does not select by those columns alone. The first part also has what an
    `or` in the rest implies over the columns.
    """
    allowed = frozenset(names)
    inside, outside = [], []
    for conjunct in conjuncts(expression):
        if columns_of(conjunct) <= allowed:
            inside.append(conjunct)
            continue
        outside.append(conjunct)
        if isinstance(conjunct, Call) and conjunct.name == "or":
            implied = or_(*(split(branch, allowed)[0] for branch in conjunct.arguments))
            if implied != ALWAYS:
                inside.append(implied)
    return and_(*inside), and_(*outside)


def listed(expression: Expression, names: Sequence[str], limit: int) -> list[tuple[Any, ...]] | None:
    """The values of the columns `names` for which the bound condition can be true; None if it does not list them for
    each column, or lists more than `limit`."""
    choices = []
    for name in names:
        values = _values(expression, name)
        if values is None:
            return None
        choices.append(values)
    if math.prod(map(len, choices)) > limit:
        return None
    return list(itertools.product(*choices))


def push_not(expression: Expression, negate: bool = False) -> Expression:
    """The same condition with every `not` moved inward as far as possible."""
    match expression:
        case Call("not", (inner,)):
            return push_not(inner, not negate)
        case Call(("and" | "or") as name, arguments):
            pushed = tuple(push_not(argument, negate) for argument in arguments)
            return and_(*pushed) if (name == "and") != negate else or_(*pushed)
        case Call(name, (left, right)) if negate and name in COMPARISONS:
            return Call(FUNCTIONS[name].negated, (left, right))
    return not_(expression) if negate else expression


def _values(expression: Expression, name: str) -> frozenset[Any] | None:
    """The values of a column for which the condition can be true; None if it does not list them."""
    match expression:
        case Literal(value) if value is not True:
            return frozenset()
        case Call("eq" | "eq_null_safe", (Column((column,)), Literal(value))) if column == name:
            return frozenset({value})
        case Call("in", (Column((column,)), Literal(values))) if column == name:
            return frozenset(values)
        case Call("in_tuples", (*columns, Literal(tuples))) if Column((name,)) in columns:
            index = columns.index(Column((name,)))
            return frozenset(tuple_[index] for tuple_ in tuples)
        case Call("and", arguments):
            value_sets = [values for argument in arguments if (values := _values(argument, name)) is not None]
            return min(value_sets, key=len, default=None)
        case Call("or", arguments):
            parts = [_values(argument, name) for argument in arguments]
            known = [part for part in parts if part is not None]
            return frozenset().union(*known) if len(known) == len(parts) else None
    return None
