"""Functions of dates and times whose DuckDB SQL depends on units and formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from lakeformat.expression.duckdb_sql import text
from lakeformat.sql.translation import patterns, spark_types
from lakeformat.sql.translation.arguments import (
    Builder,
    as_number,
    as_type,
    fixed,
    literal_text,
)
from lakeformat.sql.translation.operands import cast, shown
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import (
    BIGINT,
    DATE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    SparkType,
    decimal,
    in_duckdb,
)
from lakeformat.sql.translation.templates import fill

# --- private ----------------------------------------------------------------------------------------------------------


_UNITS = {
    "YEAR": "YEAR",
    "YYYY": "YEAR",
    "YY": "YEAR",
    "QUARTER": "QUARTER",
    "MONTH": "MONTH",
    "MM": "MONTH",
    "MON": "MONTH",
    "WEEK": "WEEK",
}
_TIME_UNITS = {unit: unit for unit in ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")} | {"DD": "DAY"}


def _date_trunc(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    unit = (_UNITS | _TIME_UNITS).get(literal_text(nodes[0], "date_trunc", scope).upper())
    if unit is None:
        raise scope.refuse(node, f"date_trunc to {shown(nodes[0])}, for which Spark gives null, in process")
    return Typed(f"DATE_TRUNC('{unit}', {as_type(TIMESTAMP, nodes[1], scope)})", TIMESTAMP)


def _trunc(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    unit = _UNITS.get(literal_text(nodes[1], "trunc", scope).upper())
    if unit is None:
        raise scope.refuse(node, f"trunc to {shown(nodes[1])}, for which Spark gives null, in process")
    return Typed(f"CAST(DATE_TRUNC('{unit}', {as_type(DATE, nodes[0], scope)}) AS DATE)", DATE)


_PARTS = {
    "YEAR": "YEAR", "Y": "YEAR", "YEARS": "YEAR", "QUARTER": "QUARTER", "QTR": "QUARTER", "MONTH": "MONTH",
    "MON": "MONTH", "MONTHS": "MONTH",
    "WEEK": "WEEKOFYEAR", "W": "WEEKOFYEAR", "WEEKS": "WEEKOFYEAR", "DAY": "DAY", "D": "DAY", "DAYS": "DAY",
    "DOY": "DAYOFYEAR",
}  # fmt: skip
_TIME_PARTS = {
    "HOUR": "HOUR", "H": "HOUR", "HOURS": "HOUR", "MINUTE": "MINUTE", "M": "MINUTE", "MIN": "MINUTE",
    "MINUTES": "MINUTE",
}  # fmt: skip


def _date_part(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    part = literal_text(nodes[0], "date_part", scope).upper()
    if part in _PARTS:
        return Typed(f"CAST({_PARTS[part]}({as_type(DATE, nodes[1], scope)}) AS INTEGER)", INT)
    if part in ("DAYOFWEEK", "DOW"):
        return Typed(f"CAST(DAYOFWEEK({as_type(DATE, nodes[1], scope)}) + 1 AS INTEGER)", INT)
    if part in _TIME_PARTS:
        return Typed(f"CAST({_TIME_PARTS[part]}({_moment(nodes[1], scope).sql}) AS INTEGER)", INT)
    if part in ("SECOND", "S", "SEC", "SECONDS"):
        second = "CAST(CAST(MICROSECOND($x) AS DECIMAL(8, 0)) * CAST(0.000001 AS DECIMAL(6, 6)) AS DECIMAL(8, 6))"
        return Typed(fill(second, x=_moment(nodes[1], scope).sql), decimal(8, 6))
    raise scope.refuse(node, f"the part {shown(nodes[0])} of a date in process; pass spark=")


def _moment(node: Any, scope: Scope) -> Typed:
    """A time, with a zone unless the argument has none."""
    typed = scope.translate(node, scope)
    type = TIMESTAMP_NTZ if typed.type == TIMESTAMP_NTZ else TIMESTAMP
    return Typed(as_type(type, node, scope), type)


def _date_format(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    format = patterns.written(literal_text(nodes[1], "date_format", scope))
    if format is None:
        raise scope.refuse(node, f"date_format by {shown(nodes[1])} in process; pass spark=")
    return Typed(_by_format(_moment(nodes[0], scope).sql, format), STRING)


def _by_format(value: str, format: str) -> str:
    wrong = "WHEN $x IS NOT NULL THEN ERROR('in process, times become text of the years 1 to 9999 only')"
    return fill(
        f"CASE WHEN YEAR(CAST($x AS TIMESTAMP)) BETWEEN 1 AND 9999 "
        f"THEN STRFTIME(CAST($x AS TIMESTAMP), {text(format)}) {wrong} END",
        x=value,
    )


def _from_unixtime(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    format = patterns.written(
        "yyyy-MM-dd HH:mm:ss" if len(nodes) == 1 else literal_text(nodes[1], "from_unixtime", scope)
    )
    if format is None:
        raise scope.refuse(node, f"from_unixtime by {shown(nodes[1])} in process; pass spark=")
    seconds = f"MAKE_TIMESTAMP({as_type(BIGINT, nodes[0], scope)} * 1000000)"
    return Typed(_by_format(seconds, format), STRING)


def _read_by(value: str, form: str, target: str, is_safe: bool, kind: str) -> str:
    wrong = "NULL" if is_safe else f"ERROR({text(f'text that is not a valid {kind} of this format: ')} || $x)"
    converted = f"CAST(TRY_STRPTIME($x, {text(target)}) AS {kind})"
    return fill(
        f"CASE WHEN $x IS NULL THEN NULL WHEN REGEXP_FULL_MATCH($x, {text(form)}) AND TRY_STRPTIME($x, {text(target)}) "
        f"IS NOT NULL THEN {converted} ELSE {wrong} END",
        x=value,
    )


def _to_time(target: SparkType, is_safe: bool = False) -> Builder:
    """to_date and to_timestamp, with a format or without one."""

    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        typed = scope.translate(nodes[0], scope)
        if len(nodes) == 1:
            if typed.type != STRING and not spark_types.is_time(typed.type) and typed.type != VOID:
                raise scope.refuse(node, f"{shown(node)} of {typed.type} in process; cast it")
            return Typed(cast(typed, target, scope, node, is_safe), target)
        if typed.type not in (STRING, VOID):
            raise scope.refuse(node, f"{shown(node)}: a format for {typed.type} in process; pass spark=")
        format = patterns.read(literal_text(nodes[1], "a format", scope))
        if format is None:
            raise scope.refuse(node, f"{shown(node)}: reading text by this format in process; pass spark=")
        value = cast(typed, STRING, scope, node)
        return Typed(_read_by(value, format[1], format[0], is_safe, in_duckdb(target)), target)

    return build


def _unix_timestamp(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    typed = scope.translate(nodes[0], scope)
    seconds = "EPOCH_US($x) // 1000000"  # Spark truncates here.
    if len(nodes) == 2:
        literal_text(nodes[1], "unix_timestamp", scope)
    if spark_types.is_time(typed.type):
        return Typed(fill(seconds, x=cast(typed, TIMESTAMP, scope, node)), BIGINT)
    format = [*nodes[1:], exp.Literal.string("yyyy-MM-dd HH:mm:ss")][:1]
    made = _to_time(TIMESTAMP)([nodes[0], *format], node, scope)
    return Typed(fill(seconds, x=made.sql), BIGINT)


_DAYS_OF_WEEK = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")


def _next_day(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    word = literal_text(nodes[1], "next_day", scope).strip().upper()
    days = [n for n, day in enumerate(_DAYS_OF_WEEK) if word in (day, day[:3], day[:2])]
    if not days:
        raise scope.invalid(nodes[1], f"next_day: {shown(nodes[1])} is not a day of the week")
    sql = f"($x + CAST((({days[0]} - DAYOFWEEK($x) - 1) % 7 + 7) % 7 + 1 AS INTEGER))"
    return Typed(fill(sql, x=as_type(DATE, nodes[0], scope)), DATE)


def _make_timestamp(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values = [as_type(INT, item, scope) for item in nodes[:5]]
    seconds = cast(as_number(nodes[5], scope), decimal(8, 6), scope, nodes[5])
    whole = ", ".join(f"CAST({value} AS BIGINT)" for value in values)
    sql = (
        "CASE WHEN $x < 0 OR $x >= 60 THEN ERROR('in process, make_timestamp takes seconds below 60') ELSE "
        f"CAST(MAKE_TIMESTAMP({whole}, CAST($x AS DOUBLE)) AS TIMESTAMPTZ) END"
    )
    return Typed(fill(sql, x=seconds), TIMESTAMP)


_COUNTED = {
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}


def _unit(node: Any, name: str, scope: Scope) -> str:
    word = node.name.upper() if isinstance(node, exp.Column | exp.Var | exp.Identifier) else ""
    if not word:
        raise scope.invalid(node, f"{name}: a unit such as DAY, without quotes")
    return word


def _difference(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    """datediff(a, b), and timestampdiff(unit, a, b), which counts whole units."""
    if len(nodes) == 2:
        left, right = (as_type(DATE, item, scope) for item in nodes)
        return Typed(f"CAST({left} - {right} AS INTEGER)", INT)
    unit = _unit(nodes[0], "datediff", scope)
    if unit not in _COUNTED:
        raise scope.refuse(node, f"a difference in the unit {unit} in process; pass spark=")
    left, right = (as_type(TIMESTAMP, item, scope) for item in nodes[1:])
    return Typed(fill(f"(EPOCH_US($y) - EPOCH_US($x)) // {_COUNTED[unit]}", x=left, y=right), BIGINT)


def _moved(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    """date_add(d, n), and timestampadd(unit, n, t)."""
    if len(nodes) == 2:
        days = scope.translate(nodes[1], scope)
        if days.type not in spark_types.INTEGRAL[:3]:
            raise scope.refuse(node, f"date_add of {days.type} days in process; cast them to INT")
        return Typed(f"({as_type(DATE, nodes[0], scope)} + CAST({days.sql} AS INTEGER))", DATE)
    unit = _unit(nodes[0], "dateadd", scope)
    moment = _moment(nodes[2], scope)
    functions = {"YEAR": "TO_YEARS", "MONTH": "TO_MONTHS", "WEEK": "TO_WEEKS", "DAY": "TO_DAYS"}
    if unit in functions:
        moved = f"{functions[unit]}({as_type(INT, nodes[1], scope)})"
    elif unit in _COUNTED:
        moved = f"TO_MICROSECONDS(CAST({as_type(INT, nodes[1], scope)} AS BIGINT) * {_COUNTED[unit]})"
    else:
        raise scope.refuse(node, f"adding the unit {unit} in process; pass spark=")
    return Typed(f"CAST({moment.sql} + {moved} AS {in_duckdb(moment.type)})", moment.type)


SCALARS: Mapping[str, tuple[int, int | None, Builder]] = {
    **dict.fromkeys(("now", "current_timestamp"), (0, 0, fixed("NOW()", TIMESTAMP))),
    **dict.fromkeys(("current_date", "curdate"), (0, 0, fixed("CAST(NOW() AS DATE)", DATE))),
    "date_trunc": (2, 2, _date_trunc),
    "trunc": (2, 2, _trunc),
    **dict.fromkeys(("date_part", "datepart"), (2, 2, _date_part)),
    "date_format": (2, 2, _date_format),
    "from_unixtime": (1, 2, _from_unixtime),
    "to_date": (1, 2, _to_time(DATE)),
    "to_timestamp": (1, 2, _to_time(TIMESTAMP)),
    "try_to_date": (1, 2, _to_time(DATE, True)),
    "try_to_timestamp": (1, 2, _to_time(TIMESTAMP, True)),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), (1, 2, _unix_timestamp)),
    "next_day": (2, 2, _next_day),
    "make_timestamp": (6, 6, _make_timestamp),
    **dict.fromkeys(("datediff", "date_diff"), (2, 3, _difference)),
    "timestampdiff": (3, 3, _difference),
    **dict.fromkeys(("date_add", "dateadd"), (2, 3, _moved)),
    "timestampadd": (3, 3, _moved),
}  # fmt: skip
