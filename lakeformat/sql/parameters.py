"""Parameters: the values of `:name` and `?`, bound in trees and engines. No value becomes part of a text."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sqlglot import exp

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.expression import sql_text
from lakeformat.model.exact import EXACT
from lakeformat.model.predicate import Expression, Literal
from lakeformat.sql import text
from lakeformat.sql.text import Piece, Script
from lakeformat.sql.translation import spark_types
from lakeformat.sql.translation.spark_types import SparkType

UNKNOWN = object()  # Not a constant, or one that only an engine can evaluate.


def named(script: Script, params: Any) -> dict[str, Any]:
    """Parameters by name; the first `?` is `_0`. Raises `InvalidInput` for too few or too many."""
    if params is not None and not isinstance(params, Mapping | list | tuple):
        raise InvalidInput(f"params={params!r}: give a mapping for :name, or a list for ?")
    values = list(params) if isinstance(params, list | tuple) else []
    if script.question_marks != len(values):
        raise InvalidInput(f"the SQL has {script.question_marks} ?, and params has {len(values)} values for them")
    named = dict(params) if isinstance(params, Mapping) else {}
    if not all(isinstance(name, str) for name in named):
        raise InvalidInput(f"params={params!r}: names must be text")
    return named | {f"_{index}": value for index, value in enumerate(values)}


def marked(root: Any) -> Any:
    """The tree with each `?` as a named parameter."""

    def change(node: Any) -> Any:
        if isinstance(node, exp.Column) and len(node.parts) == 1 and not node.this.args.get("quoted"):
            index = text.question_mark(node.name)
            return node if index is None else exp.Placeholder(this=f"_{index}")
        return node

    return root.transform(change, copy=False)


def used(root: Any) -> list[str]:
    """Names of the parameters in a tree."""
    return sorted({str(node.this) for node in root.find_all(exp.Placeholder)})


def listed(root: Any, params: Mapping[str, Any]) -> Any:
    """The tree with a parameter for each member of a list: `IN (:ids)` is `IN (:ids[0], :ids[1])`.
    No row is in an empty list."""
    for node in list(root.find_all(exp.In)):
        members: list[Any] = []
        for member in node.expressions:
            given = params.get(str(member.this)) if isinstance(member, exp.Placeholder) else None
            if isinstance(given, list | tuple | set | frozenset):
                members += [exp.Placeholder(this=f"{member.this}[{index}]") for index in range(len(given))]
            else:
                members.append(member)
        node.set("expressions", members or [exp.Null()])
    return root


def type_of(name: str, value: Any) -> SparkType:
    """The type of a parameter in Spark."""
    match value:
        case None:
            return spark_types.VOID
        case bool():
            return spark_types.BOOLEAN
        case int():
            return spark_types.INT if -(2**31) <= value < 2**31 else spark_types.BIGINT
        case float():
            return spark_types.DOUBLE
        case Decimal() if value.is_finite():
            _, digits, exponent = value.as_tuple()
            scale = max(-int(exponent), 0)
            return spark_types.decimal(max(len(digits) + max(int(exponent), 0), scale, 1), scale)
        case str():
            return spark_types.STRING
        case bytes():
            return spark_types.BINARY
        case dt.datetime():
            return spark_types.TIMESTAMP_NTZ if value.tzinfo is None else spark_types.TIMESTAMP
        case dt.date():
            return spark_types.DATE
    raise _unfit(name, value)


def value(params: Mapping[str, Any], name: str) -> Any:
    outer, bracket, index = name.partition("[")
    if bracket:
        return list(value(params, outer))[int(index[:-1])]
    if name not in params:
        known = ", ".join(f":{param}" for param in params if not param.startswith("_")) or "none"
        raise NotFound(f"no parameter :{name}; params has {known}")
    return params[name]


def filled(root: Any, params: Mapping[str, Any]) -> Any:
    """The tree with the parameters' values as literals."""

    def change(node: Any) -> Any:
        return _literal(str(node.this), value(params, str(node.this))) if isinstance(node, exp.Placeholder) else node

    return root.transform(change)


def condition(piece: Piece, params: Mapping[str, Any]) -> Expression:
    """A piece as an expression. Raises `InvalidInput` if our evaluator does not support it."""
    return sql_text.read(filled(marked(text.expression(piece)), params), piece.text)


def constant(piece: Piece, params: Mapping[str, Any]) -> Any:
    """The value of a constant, or UNKNOWN."""
    return node_constant(marked(text.expression(piece)), params)


def node_constant(node: Any, params: Mapping[str, Any]) -> Any:
    try:
        expression = sql_text.read(filled(node, params), node.sql(dialect="spark"))
    except InvalidInput:
        return UNKNOWN
    return expression.value if isinstance(expression, Literal) else UNKNOWN


def _literal(name: str, value: Any) -> Any:
    match value:
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case int():
            return _signed(value)
        case float() if value == value and abs(value) != float("inf"):
            return exp.Cast(this=_signed(Decimal(repr(value))), to=exp.DataType.build("double"))
        case float():
            return exp.Cast(this=exp.Literal.string(str(value)), to=exp.DataType.build("double"))
        case Decimal() if value.is_finite():
            scale = max(-int(value.as_tuple().exponent), 0)
            digits = max(len(value.as_tuple().digits) + max(int(value.as_tuple().exponent), 0), scale, 1)
            target = exp.DataType.build(f"decimal({digits}, {scale})", dialect="spark")
            return exp.Cast(this=exp.Literal.string(f"{value:f}"), to=target)
        case str():
            return exp.Literal.string(value)
        case bytes():
            return exp.HexString(this=value.hex())
        case dt.datetime():
            kind = "timestamp_ntz" if value.tzinfo is None else "timestamp"
            return exp.Cast(this=exp.Literal.string(value.isoformat(" ")), to=exp.DataType.build(kind, dialect="spark"))
        case dt.date():
            return exp.Cast(this=exp.Literal.string(value.isoformat()), to=exp.DataType.build("date"))
    raise _unfit(name, value)


def _unfit(name: str, value: Any) -> InvalidInput:
    return InvalidInput(
        f"parameter :{name} is {value!r}; give None, a bool, a number, text, bytes, a date or a datetime, "
        f"or in IN (:{name}) a list of them"
    )


def _signed(number: int | Decimal) -> Any:
    magnitude = exp.Literal.number(f"{EXACT.abs(number):f}" if isinstance(number, Decimal) else str(abs(number)))
    return exp.Neg(this=magnitude) if number < 0 else magnitude
