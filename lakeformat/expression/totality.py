"""Conditions that are evaluated before others must raise no error for rows that those others exclude."""

from __future__ import annotations

import pyarrow as pa

from lakeformat.errors import LakeError
from lakeformat.expression import evaluation
from lakeformat.model.predicate import FUNCTIONS, Call, Column, Expression, Literal, Takes, paths_of

# fmt: off
_PARTIAL = frozenset({
    "add", "sub", "mul", "div", "int_div", "mod", "neg", "abs", "round", "date_add", "date_sub", "date_diff",
    "floor", "ceil", "variant_get", "stored",
})
_ALIGNING = frozenset({"in", "eq_null_safe", "coalesce", "nullif", "greatest", "least", "case"})  # Besides comparisons.
_OF_OTHERS = frozenset({"sign", "date_trunc"})  # They cast text, as those of dates and doubles do.
# fmt: on


def is_total(expression: Expression, empty: pa.Table) -> bool:
    """Whether the expression has a value for every row with the columns of `empty`: no arithmetic that may overflow or
    divide by zero, no text that is cast, except in constants, whose value is tried. False also if it does not fit the
    types of the columns."""
    try:
        return _is_total(expression, empty)
    except LakeError:
        return False


# --- private ----------------------------------------------------------------------------------------------------------


def _is_total(expression: Expression, empty: pa.Table) -> bool:
    if not isinstance(expression, Call):
        return isinstance(expression, Column | Literal)
    if not paths_of(expression):
        evaluation.evaluate(expression, pa.table({"": pa.nulls(1)}))
        return True
    name, arguments = expression.name, expression.arguments
    if name in _PARTIAL:
        return False
    if name in ("in", "in_tuples", "like", "cast"):
        operands = arguments[:-1]
    else:
        operands = arguments
    if not all(_is_total(operand, empty) for operand in operands):
        return False
    if name == "cast":
        return _is_total_cast(_type(operands[0], empty), _type(expression, empty))
    function = FUNCTIONS[name]
    if function.takes in (Takes.DATE, Takes.TIME, Takes.DOUBLES) or name in _OF_OTHERS:
        return not any(_is_text_of_columns(operand, empty) for operand in operands)
    if name == "in" and isinstance(arguments[1], Literal):
        operands = (operands[0], *map(Literal, arguments[1].value))
    if function.takes is Takes.ALIGNED or name in _ALIGNING:
        values = operands[1::2] + operands[-1:] if name == "case" else operands
        types = {_type(value, empty) for value in values} - {pa.null()}
        return all(map(_is_text, types)) or not any(_is_text_of_columns(value, empty) for value in values)
    return True


def _is_text_of_columns(value: Expression, empty: pa.Table) -> bool:
    return bool(paths_of(value)) and _is_text(_type(value, empty))


def _is_total_cast(source: pa.DataType, target: pa.DataType) -> bool:
    t = pa.types
    if source == target or t.is_null(source):
        return True
    if t.is_string(target):
        return not (t.is_floating(source) or t.is_nested(source) or t.is_binary(source))
    if t.is_date(target) or t.is_timestamp(target):
        return t.is_date(source) or t.is_timestamp(source)
    if t.is_floating(target):
        return t.is_integer(source) or t.is_floating(source) or t.is_decimal(source)
    return t.is_signed_integer(source) and t.is_signed_integer(target) and source.bit_width <= target.bit_width


def _type(expression: Expression, empty: pa.Table) -> pa.DataType:
    return evaluation.evaluate(expression, empty).type


def _is_text(type: pa.DataType) -> bool:
    return pa.types.is_string(type) or pa.types.is_large_string(type)
