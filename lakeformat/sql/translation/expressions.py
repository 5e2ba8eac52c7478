"""Expressions of Spark -> DuckDB SQL with Spark's types, casts and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lakeformat.expression.duckdb_sql import text
from lakeformat.sql import transforms
from lakeformat.sql.translation import calls, scopes, spark_types
from lakeformat.sql.translation.operands import arithmetic, cast, compared, condition, shared, shown
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    VOID,
    decimal,
    in_duckdb,
)
from lakeformat.sql.translation.templates import fill

_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_DATE_UNITS = {"YEAR": "MONTHS", "MONTH": "MONTHS", "WEEK": "DAYS", "DAY": "DAYS"}
_PER = {"YEAR": 12, "MONTH": 1, "WEEK": 7, "DAY": 1}
_MICROSECONDS = {
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}
_RAISING = re.compile(r"\b(ERROR|ADD|SUBTRACT|MULTIPLY)\(")
_LONGEST_GUARD = 20_000  # Characters.


def translated(node: Any, scope: Scope) -> Typed:
    """DuckDB SQL of an expression. Raises `InvalidInput` for names and types that Spark refuses as well, and
    `UnsupportedFeature` for what is not known to mean the same in process."""
    for kind in type(node).__mro__:
        if (reader := _READERS.get(kind)) is not None:
            typed = reader(node, scope)
            return Typed(f"(NOT {typed.sql})", BOOLEAN) if node.args.get("negate") else typed
    raise scope.refuse(node, f"{shown(node)} in process; pass spark=")


# --- private ----------------------------------------------------------------------------------------------------------


def _literal(node: Any, scope: Scope, sign: str = "") -> Typed:
    if node.is_string:
        return Typed(text(node.this), STRING)
    digits = sign + node.this.lower().replace("_", "x")
    if "e" in digits:
        return Typed(f"CAST('{digits}' AS DOUBLE)", DOUBLE)
    if "." in digits:
        whole, _, fraction = digits.lstrip("-").partition(".")
        whole = whole.lstrip("0")
        type = decimal(max(len(whole) + len(fraction), 1), len(fraction))
        if type.digits[0] > spark_types.MOST_DIGITS:
            raise scope.invalid(node, f"{digits} has more than 38 digits")
        return Typed(f"CAST({digits} AS {in_duckdb(type)})", type)
    if not digits.lstrip("-").isdecimal():
        raise scope.invalid(node, f"{node.this} is not a number")
    number = int(digits)
    if -(2**31) <= number < 2**31:
        return Typed(f"CAST({digits} AS INTEGER)", INT, digits)
    if -(2**63) <= number < 2**63:
        return Typed(f"CAST({digits} AS BIGINT)", BIGINT, digits)
    length = len(digits.lstrip("-0"))
    if length > spark_types.MOST_DIGITS:
        raise scope.invalid(node, f"{digits} has more than 38 digits")
    return Typed(f"CAST('{digits}' AS DECIMAL({length}, 0))", decimal(length, 0))


def _negative(node: Any, scope: Scope) -> Typed:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _literal(node.this, scope, "-")
    typed = translated(node.this, scope)
    if typed.type == STRING:
        typed = Typed(cast(typed, DOUBLE, scope, node), DOUBLE)
    if not spark_types.is_number(typed.type):
        raise scope.invalid(node, f"a minus takes a number, and {shown(node.this)} is {typed.type}")
    if typed.type.name == "decimal" and typed.type.digits[0] > 34:  # Spark rounds them to 34 digits.
        raise scope.refuse(node, "a minus before decimals of more than 34 digits in process; cast them to fewer")
    return Typed(f"(-({typed.sql}))", typed.type)


def _column(node: Any, scope: Scope) -> Typed:
    if isinstance(node.this, exp.Star):
        raise scope.invalid(node, "* is a column list; name one column here")
    return scopes.column(scope, [part for part in node.parts if isinstance(part, exp.Identifier)])


def _identifier(node: Any, scope: Scope) -> Typed:
    return scopes.column(scope, [node])


def _dot(node: Any, scope: Scope) -> Typed:
    if (kind := transforms.called(node)) is not None:
        return calls.transformed(node, kind, scope)
    parts: list[Any] = []
    inner = node
    while isinstance(inner, exp.Dot):
        parts.insert(0, inner.expression)
        inner = inner.this
    if any(not isinstance(part, exp.Identifier) for part in parts):
        call = next(part for part in parts if not isinstance(part, exp.Identifier))
        name = shown(node).partition("(")[0] if isinstance(call, exp.Anonymous) else shown(node)
        raise scope.refuse(
            node, f"the function {name} is not known to mean in process what it means in Spark; pass spark="
        )
    if isinstance(inner, exp.Identifier):
        return scopes.column(scope, [inner, *parts])
    if isinstance(inner, exp.Column):
        return scopes.column(scope, [*(part for part in inner.parts if isinstance(part, exp.Identifier)), *parts])
    typed = translated(inner, scope)
    for part in parts:
        labels = [label for label in typed.type.labels if label.casefold() == part.name.casefold()]
        if len(labels) != 1:
            raise scope.invalid(part, f"{shown(inner)} is {typed.type}; it has no field {part.name}")
        typed = scopes.field_of(typed, labels[0])
    return typed


def _bracket(node: Any, scope: Scope) -> Typed:
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        raise scope.refuse(node, f"{shown(node)} in process; use slice(array, start, length)")
    typed, (inner,) = translated(node.this, scope), node.expressions
    key = translated(inner, scope)
    if typed.type.name == "array" and spark_types.is_integral(key.type):
        wrong = "ERROR('an index beyond the array; get(array, index) gives null')"
        position = cast(key, BIGINT, scope, inner)
        sql = fill(
            "CASE WHEN $x IS NULL OR $y IS NULL THEN NULL WHEN $y < 0 OR $y >= LEN($x) "
            f"THEN {wrong} ELSE $x[$y + 1] END",
            x=typed.sql,
            y=position,
        )
        return Typed(sql, typed.type.parts[0])
    if typed.type.name == "map":
        value = (
            cast(key, typed.type.parts[0], scope, inner)
            if key.type != STRING or typed.type.parts[0] == STRING
            else None
        )
        if value is None:
            raise scope.invalid(node, f"the keys are {typed.type.parts[0]}, and {shown(inner)} is {key.type}")
        return Typed(f"MAP_EXTRACT({typed.sql}, {value})[1]", typed.type.parts[1])
    if typed.type.name == "struct" and isinstance(inner, exp.Literal) and inner.is_string:
        labels = [label for label in typed.type.labels if label.casefold() == inner.name.casefold()]
        if len(labels) == 1:
            return scopes.field_of(typed, labels[0])
    raise scope.invalid(node, f"{shown(node)}: {typed.type} has no element by {key.type}")


def _cast(node: Any, scope: Scope) -> Typed:
    typed = translated(node.this, scope)
    target = spark_types.of_syntax(node.args["to"])
    if target is None or node.args.get("format") is not None or node.args.get("action") is not None:
        raise scope.refuse(node, f"a cast to {node.args['to'].sql(dialect='spark')} in process; pass spark=")
    is_safe = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
    return Typed(cast(typed, target, scope, node, is_safe), target)


def _arithmetic(node: Any, scope: Scope) -> Typed:
    nodes = [node.this, node.expression]
    intervals = [isinstance(_plain(operand), exp.Interval) for operand in nodes]
    if any(intervals):
        if type(node) not in (exp.Add, exp.Sub) or all(intervals) or (type(node) is exp.Sub and intervals[0]):
            raise scope.refuse(node, "arithmetic with intervals in process, except with a date or a time; pass spark=")
        moment, interval = (nodes[1], nodes[0]) if intervals[0] else nodes
        return _moved(translated(moment, scope), _plain(interval), -1 if type(node) is exp.Sub else 1, node, scope)
    left, right = (translated(operand, scope) for operand in nodes)
    if type(node) in (exp.Add, exp.Sub) and (spark_types.is_time(left.type) or spark_types.is_time(right.type)):
        return _days(node, left, right, scope)
    if {left.type, right.type} == {STRING}:
        left, right = (Typed(cast(item, DOUBLE, scope, node), DOUBLE) for item in (left, right))
    return arithmetic(type(node), left, right, nodes, scope)


def _plain(node: Any) -> Any:
    return node.unnest() if isinstance(node, exp.Paren) else node


def _days(node: Any, left: Typed, right: Typed, scope: Scope) -> Typed:
    """`date + n` and `date - n`."""
    sign = "+" if type(node) is exp.Add else "-"
    if type(node) is exp.Add and right.type == DATE:
        left, right = right, left
    if left.type == DATE and right.type in (*spark_types.INTEGRAL[:3], VOID):
        return Typed(f"({left.sql} {sign} {cast(right, INT, scope, node)})", DATE)
    if (
        type(node) is exp.Sub
        and spark_types.is_time(left.type)
        and (spark_types.is_time(right.type) or right.type == STRING)
    ):
        raise scope.refuse(
            node, "a difference of dates or times, which is an interval, in process; use datediff(a, b) for days"
        )
    raise scope.invalid(node, f"{left.type} {sign} {right.type}: add an interval, or whole days to a date")


def _moved(moment: Typed, interval: Any, sign: int, node: Any, scope: Scope) -> Typed:
    """A date or a time moved by an interval."""
    if moment.type == STRING:
        moment = Typed(cast(moment, TIMESTAMP, scope, node), TIMESTAMP)
    if not spark_types.is_time(moment.type):
        raise scope.invalid(node, f"an interval is added to a date or a time, not to {moment.type}")
    unit = interval.args.get("unit")
    name = unit.name.upper() if isinstance(unit, exp.Var) else ""
    name = name if name in {*_PER, *_MICROSECONDS} else name.removesuffix("S")
    value, amount = interval.this, sign
    while isinstance(value, exp.Neg | exp.Paren):
        value, amount = value.this, amount * (-1 if isinstance(value, exp.Neg) else 1)
    message = value.name.strip() if isinstance(value, exp.Literal) else ""
    if name not in {*_PER, *_MICROSECONDS} or not re.fullmatch(
        r"[+-]?\d+" + (r"([.]\d{1,6})?" if name == "SECOND" else ""), message
    ):
        raise scope.refuse(
            node, f"{shown(interval)} in process; write INTERVAL n YEAR, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND"
        )
    if name in _PER:
        function = _DATE_UNITS[name]
        moved = f"({moment.sql} + TO_{function}(CAST({int(message) * amount * _PER[name]} AS INTEGER)))"
        return Typed(f"CAST({moved} AS {in_duckdb(moment.type)})", moment.type)
    whole, _, fraction = message.partition(".")
    micros = abs(int(whole)) * _MICROSECONDS[name] + int(fraction.ljust(6, "0") if fraction else 0)
    micros *= amount * (-1 if message.startswith("-") else 1)
    type = TIMESTAMP if moment.type == DATE else moment.type
    start = cast(moment, type, scope, node)
    return Typed(f"CAST({start} + TO_MICROSECONDS(CAST({micros} AS BIGINT)) AS {in_duckdb(type)})", type)


def _compared(node: Any, scope: Scope) -> Typed:
    return compared(_COMPARISONS[type(node)], [node.this, node.expression], scope)


def _null_safe(node: Any, scope: Scope) -> Typed:
    sign = "IS NOT DISTINCT FROM" if isinstance(node, exp.NullSafeEQ) else "IS DISTINCT FROM"
    return compared(sign, [node.this, node.expression], scope)


def _between(node: Any, scope: Scope) -> Typed:
    if node.args.get("symmetric"):
        raise scope.refuse(node, "BETWEEN SYMMETRIC in process; pass spark=")
    low = compared(">=", [node.this, node.args["low"]], scope)
    high = compared("<=", [node.this, node.args["high"]], scope)
    return Typed(f"({low.sql} AND {high.sql})", BOOLEAN)


def _in(node: Any, scope: Scope) -> Typed:
    if node.args.get("unnest") or node.args.get("field"):
        raise scope.refuse(node, f"{shown(node)} in process; pass spark=")
    operands = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    if (query := node.args.get("query")) is not None:
        return _in_query(node, operands, query, scope, "IN")
    if isinstance(node.this, exp.Tuple):
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
        if any(len(row) != len(operands) for row in rows):
            raise scope.invalid(node, f"IN: each row has {len(operands)} values")
        alike = [
            " AND ".join(compared("IS NOT DISTINCT FROM", pair, scope).sql for pair in zip(operands, row, strict=True))
            for row in rows
        ]
        return Typed(f"({' OR '.join(f'({row})' for row in alike)})", BOOLEAN)
    nodes = [node.this, *node.expressions]
    if not node.expressions:
        raise scope.invalid(node, "IN () has no value")
    type, (operand, *members) = shared([translated(item, scope) for item in nodes], nodes, scope)
    if not spark_types.has_order(type):
        raise scope.refuse(node, f"IN of {type} in process; pass spark=")
    return Typed(f"({operand} IN ({', '.join(members)}))", BOOLEAN)


def _in_query(node: Any, operands: Sequence[Any], query: Any, scope: Scope, word: str) -> Typed:
    sql, columns = scope.query(query, scope.within())
    if len(columns) != len(operands):
        raise scope.invalid(node, f"IN: {len(operands)} values, and the query has {len(columns)} columns")
    left, right = [], []
    for operand, (name, type) in zip(operands, columns, strict=True):
        typed = translated(operand, scope)
        both, (a, b) = shared([typed, Typed(f'_in."{name}"', type)], [operand, query], scope)
        if not spark_types.has_order(both):
            raise scope.refuse(node, f"IN of {both} in process; pass spark=")
        left.append(a)
        right.append(b)
    labels = ", ".join('"' + name.replace('"', '""') + '"' for name, _ in columns)
    tested = left[0] if len(left) == 1 else f"({', '.join(left)})"
    if len({name.casefold() for name, _ in columns}) != len(columns):
        raise scope.refuse(node, "IN of a query with two columns of one name in process; name them apart")
    wanted = ", ".join(right) if len(right) == 1 else f"({', '.join(right)})"
    # Spark joins to see whether there is such a row: IN and NOT IN of a query are false where others give NULL.
    return Typed(f"COALESCE({tested} {word} (SELECT {wanted} FROM ({sql}) AS _in({labels})), FALSE)", BOOLEAN)


def _is(node: Any, scope: Scope) -> Typed:
    typed, other = translated(node.this, scope), node.expression
    is_not = isinstance(other, exp.Not)
    other = other.this if is_not else other
    if isinstance(other, exp.Null):
        return Typed(f"({typed.sql} IS {'NOT ' if is_not else ''}NULL)", BOOLEAN)
    if isinstance(other, exp.Boolean):
        value = cast(typed, BOOLEAN, scope, node) if typed.type in (BOOLEAN, STRING, VOID) else None
        if value is None:
            raise scope.invalid(node, f"IS TRUE takes a BOOLEAN, not {typed.type}")
        return Typed(f"({value} IS {'' if not is_not else 'NOT '}{'TRUE' if other.this else 'FALSE'})", BOOLEAN)
    raise scope.refuse(node, f"{shown(node)} in process; pass spark=")


def _logical(node: Any, scope: Scope) -> Typed:
    """AND and OR. DuckDB tests the operands in an order of its own, so one that may raise an error tests again those
    before it, by which Spark does not come to it."""
    word, decided = (" AND ", "($) IS FALSE THEN FALSE") if isinstance(node, exp.And) else (" OR ", "$ THEN TRUE")
    operands = list(node.flatten(unnest=False))
    plain = [condition(operand, scope) for operand in operands]
    guarded = plain[:1]
    for index, (operand, sql) in enumerate(zip(operands[1:], plain[1:], strict=True), 1):
        before = [decided.replace("$", other) for other in plain[:index] if "SELECT " not in other]
        if before and _may_raise(operand, sql) and sum(map(len, before)) < _LONGEST_GUARD:
            sql = f"CASE WHEN {' WHEN '.join(before)} ELSE {sql} END"
        guarded.append(sql)
    return Typed(f"({word.join(guarded)})", BOOLEAN)


def _may_raise(operand: Any, sql: str) -> bool:
    """Not for an equality of two tables, by which DuckDB joins them, nor for queries."""
    if not _RAISING.search(sql) or "SELECT " in sql:
        return False
    is_equality = isinstance(operand.unnest(), exp.EQ | exp.NullSafeEQ)
    return not is_equality or len({column.table for column in operand.find_all(exp.Column)}) < 2


def _not(node: Any, scope: Scope) -> Typed:
    inner = node.this.unnest()
    if isinstance(inner, exp.In) and (query := inner.args.get("query")) is not None:
        operands = inner.this.expressions if isinstance(inner.this, exp.Tuple) else [inner.this]
        return _in_query(inner, operands, query, scope, "NOT IN")
    return Typed(f"(NOT {condition(node.this, scope)})", BOOLEAN)


def _case(node: Any, scope: Scope) -> Typed:
    tests, branches = [], []
    for branch in node.args["ifs"]:
        tests.append(
            condition(branch.this, scope) if node.this is None else compared("=", [node.this, branch.this], scope).sql
        )
        branches.append(branch.args["true"])
    default = node.args.get("default")
    nodes = [*branches, *([default] if default is not None else [])]
    type, values = shared([translated(item, scope) for item in nodes], nodes, scope)
    text_ = " ".join(f"WHEN {test} THEN {value}" for test, value in zip(tests, values, strict=False))
    rest = f" ELSE {values[-1]}" if default is not None else ""
    return Typed(f"CASE {text_}{rest} END", type)


def _bitwise(node: Any, scope: Scope) -> Typed:
    nodes = [node.this, node.expression]
    type, (a, b) = shared([translated(item, scope) for item in nodes], nodes, scope)
    if not spark_types.is_integral(type):
        raise scope.invalid(node, f"{shown(node)} takes whole numbers, not {type}")
    if isinstance(node, exp.BitwiseXor):
        return Typed(f"XOR({a}, {b})", type)
    return Typed(f"({a} {'&' if isinstance(node, exp.BitwiseAnd) else '|'} {b})", type)


def _bitwise_not(node: Any, scope: Scope) -> Typed:
    typed = translated(node.this, scope)
    if not spark_types.is_integral(typed.type):
        raise scope.invalid(node, f"~ takes a whole number, not {typed.type}")
    return Typed(f"(~({typed.sql}))", typed.type)


def _scalar_query(node: Any, scope: Scope) -> Typed:
    sql, columns = scope.query(node.this if isinstance(node, exp.Subquery) else node, scope.within())
    if len(columns) != 1:
        raise scope.invalid(node, f"a subquery here gives one column, not {len(columns)}")
    return Typed(f"({sql})", columns[0][1])


def _exists(node: Any, scope: Scope) -> Typed:
    if not isinstance(node.this, exp.Query):
        raise scope.refuse(node, "EXISTS of this form in process; pass spark=")
    sql, _ = scope.query(node.this, scope.within())
    return Typed(f"EXISTS ({sql})", BOOLEAN)


def _hex(node: Any, scope: Scope) -> Typed:
    digits = str(node.this)
    digits = "0" * (len(digits) % 2) + digits
    try:
        spelt = "".join(f"\\x{byte:02X}" for byte in bytes.fromhex(digits))
    except ValueError as error:
        raise scope.invalid(node, f"X'{digits}' has other than hexadecimal digits") from error
    return Typed(f"CAST('{spelt}' AS BLOB)", BINARY)


def _placeholder(node: Any, scope: Scope) -> Typed:
    return scope.parameter(str(node.this))


def _joined(node: Any, scope: Scope) -> Typed:
    return calls.named("concat", [node.this, node.expression], node, scope)


def _refused_lambda(node: Any, scope: Scope) -> Typed:
    raise scope.invalid(
        node, f"{shown(node)}: a lambda function stands only as an argument of a function that takes one"
    )


_READERS: Mapping[type, Callable[[Any, Scope], Typed]] = {
    exp.Literal: _literal,
    exp.RawString: lambda node, scope: Typed(text(node.this), STRING),
    exp.HexString: _hex,
    exp.Boolean: lambda node, scope: Typed("TRUE" if node.this else "FALSE", BOOLEAN),
    exp.Null: lambda node, scope: Typed("NULL", VOID),
    exp.Paren: lambda node, scope: _enclosed(translated(node.this, scope)),
    exp.Neg: _negative,
    exp.Column: _column,
    exp.Identifier: _identifier,
    exp.Dot: _dot,
    exp.Bracket: _bracket,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv), _arithmetic),
    **dict.fromkeys(_COMPARISONS, _compared),
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: _null_safe,
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.And: _logical,
    exp.Or: _logical,
    exp.Not: _not,
    exp.Case: _case,
    exp.BitwiseAnd: _bitwise,
    exp.BitwiseOr: _bitwise,
    exp.BitwiseXor: _bitwise,
    exp.BitwiseNot: _bitwise_not,
    exp.Subquery: _scalar_query,
    exp.Select: _scalar_query,
    exp.SetOperation: _scalar_query,
    exp.Exists: _exists,
    exp.Placeholder: _placeholder,
    exp.DPipe: _joined,
    exp.Lambda: _refused_lambda,
    exp.Anonymous: lambda node, scope: calls.called(node, scope),
    exp.Func: lambda node, scope: calls.written(node, scope),
    exp.Window: lambda node, scope: calls.windowed(node, scope),
    exp.Filter: lambda node, scope: calls.windowed(node, scope),
    exp.WithinGroup: lambda node, scope: calls.windowed(node, scope),
    exp.IgnoreNulls: lambda node, scope: calls.windowed(node, scope),
    exp.RespectNulls: lambda node, scope: calls.windowed(node, scope),
    exp.Like: lambda node, scope: calls.liked(node, scope),
    exp.ILike: lambda node, scope: calls.liked(node, scope),
    exp.Escape: lambda node, scope: calls.liked(node, scope),
}


def _enclosed(typed: Typed) -> Typed:
    return replace(typed, sql=f"({typed.sql})")
