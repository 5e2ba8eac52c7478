"""Functions whose DuckDB SQL depends on more than the types of their arguments: constants, lambda functions, decimals, formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lakeformat.errors import InvalidInput
from lakeformat.expression import sql_text
from lakeformat.expression.duckdb_sql import quoted, text
from lakeformat.model import casing
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import Call, Literal
from lakeformat.sql import casts, patterns, spark_types
from lakeformat.sql.operands import arithmetic, cast, compared, quotient, shared, shown
from lakeformat.sql.scopes import Scope, Typed
from lakeformat.sql.signatures import PLACES, coerces
from lakeformat.sql.spark_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    VOID,
    SparkType,
    array,
    decimal,
    in_duckdb,
)
from lakeformat.sql.templates import fill

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

    def distinct(self) -> Modifiers:
        return replace(self, is_distinct=True)

    def applied(self, template: str, *values: str) -> str:
        """A template of an aggregate function with its arguments, DISTINCT, IGNORE NULLS, FILTER and OVER in their places."""

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


_MARK = re.compile(r"\$([a-z])\b|@(?:\[(.*?)\])?|~|!|\^")


def filled(template: str, values: Sequence[str], how: Modifiers) -> str:
    """A signature's template with the arguments."""
    if "@" in template:
        return how.applied(template, *values)
    if "$*" in template:
        return template.replace("$*", ", ".join(values))
    return fill(template, **dict(zip(PLACES, values, strict=False)))


def like(node: Any, pattern: Any, escape: str, scope: Scope) -> Typed:
    """One LIKE or ILIKE. Spark raises for an escape character in front of another than `%`, `_` and itself."""
    texts = [_text(item, scope) for item in (node.this, pattern)]
    if isinstance(node, exp.ILike):
        texts = [_LOWER.replace("$x", f"({item})") for item in texts]
    spelt = re.escape(escape)
    whole = f"([^{spelt}]|{spelt}[%_{spelt}])*".replace("'", "''")
    form = f"(?s:{whole})"
    if isinstance(pattern, exp.Literal) and escape not in pattern.name:
        return Typed(f"({texts[0]} LIKE {texts[1]} ESCAPE {text(escape)})", BOOLEAN)
    wrong = "ERROR('LIKE: the escape character stands before another than %, _ and itself')"
    sql = f"CASE WHEN NOT REGEXP_FULL_MATCH($y, '{form}') THEN {wrong} ELSE $x LIKE $y ESCAPE {text(escape)} END"
    return Typed(fill(sql, x=texts[0], y=texts[1]), BOOLEAN)


# --- private ----------------------------------------------------------------------------------------------------------


def _text(node: Any, scope: Scope) -> str:
    return _as(STRING, node, scope)


def _as(target: SparkType, node: Any, scope: Scope) -> str:
    """An argument in a type to which Spark casts it of its own accord."""
    typed = scope.translate(node, scope)
    if not coerces(typed.type, target):
        raise scope.refuse(node, f"{shown(node)}: {typed.type} where {target} is needed in process; cast it")
    return cast(typed, target, scope, node)


def _constant(node: Any) -> Any:
    """The value of a literal; None for another expression."""
    sign = 1
    while isinstance(node, exp.Neg | exp.Paren):
        sign, node = (-sign if isinstance(node, exp.Neg) else sign), node.this
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.name
    return sign * int(node.name) if node.name.isdecimal() else None


def _literal(node: Any, name: str, scope: Scope) -> str:
    """The text of a literal."""
    value = _constant(node)
    if not isinstance(value, str):
        raise scope.refuse(node, f"{name} with another than a constant text here in process; pass spark=")
    return value


# Case. Spark's mapping has several letters for one, and letters newer than DuckDB's tables.
_LETTERS = [chr(code) for code in range(0x80, 0x1F000) if not 0xD800 <= code < 0xE000]
_NEWEST = {chr(code) for code in (*range(0x10D50, 0x10D86), *range(0x16EA0, 0x16ED4))} | {
    *map(chr, range(0xA7CB, 0xA7DD))
}
_NEWEST |= {chr(code) for code in (0x19B, 0x264, 0x1C89, 0x1C8A)}


def _case_map(mapped: Callable[[str], str]) -> dict[str, str]:
    """The letters that DuckDB does not map as Spark does."""
    return {c: mapped(c) for c in _LETTERS if mapped(c) != c and (len(mapped(c)) > 1 or c in _NEWEST)}


def _case_template(name: str, mapped: Mapping[str, str], refused: str = "") -> str:
    letters = "".join(mapped)
    pairs = ", ".join(f"{text(letter)}: {text(other)}" for letter, other in mapped.items())
    each = f"LIST_TRANSFORM(REGEXP_EXTRACT_ALL($x, '(?s:.)'), lambda c: COALESCE(MAP {{{pairs}}}[c], {name}(c)))"
    return f"CASE {refused}WHEN REGEXP_MATCHES($x, '[{letters}]') THEN ARRAY_TO_STRING({each}, '') ELSE {name}($x) END"


_SIGMA = "WHEN CONTAINS($x, 'Σ') THEN ERROR('in process, lower takes no text with Σ, which has two small letters; pass spark=') "
_UPPER = _case_template("UPPER", _case_map(casing.upper))
_LOWER = _case_template("LOWER", _case_map(casing.lower), _SIGMA)
_WORD = f"({_UPPER.replace('$x', 'LEFT(w, 1)')}) || ({_LOWER.replace('$x', 'SUBSTRING(w, 2)')})"
_INITCAP = f"ARRAY_TO_STRING(LIST_TRANSFORM(STRING_SPLIT($x, ' '), lambda w: {_WORD}), ' ')"


def _of_text(template: str) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        return Typed(fill(template, x=_text(nodes[0], scope)), STRING)

    return build


def _conversion(target: SparkType) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        return Typed(cast(scope.translate(nodes[0], scope), target, scope, node), target)

    return build


def _concat(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    typed = [scope.translate(item, scope) for item in nodes]
    if all(item.type.name in ("array", "void") for item in typed) and any(item.type.name == "array" for item in typed):
        type, values = shared(typed, nodes, scope)
        tests = " OR ".join(f"({value}) IS NULL" for value in values)
        return Typed(f"CASE WHEN {tests} THEN NULL ELSE LIST_CONCAT({', '.join(values)}) END", type)
    if all(item.type == BINARY for item in typed):
        return Typed("(" + " || ".join(f"({item.sql})" for item in typed) + ")", BINARY)
    values = [_as(STRING, item, scope) for item in nodes]
    return Typed("(" + " || ".join(f"({value})" for value in values) + ")", STRING)


def _concat_ws(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    separator, *items = nodes
    lists = []
    for item in items:
        typed = scope.translate(item, scope)
        if typed.type.name == "array":
            if typed.type.parts[0] not in (STRING, VOID):
                raise scope.refuse(item, f"concat_ws of {typed.type} in process; cast it to ARRAY<STRING>")
            lists.append(f"LIST_FILTER(CAST({typed.sql} AS VARCHAR[]), lambda v: v IS NOT NULL)")
        else:
            lists.append(fill("CASE WHEN $x IS NOT NULL THEN [$x] END", x=_as(STRING, item, scope)))
    both = lists[0] if len(lists) == 1 else f"LIST_CONCAT({', '.join(lists)})" if lists else "CAST([] AS VARCHAR[])"
    for item in lists[2:] and []:
        both = f"LIST_CONCAT({both}, {item})"
    made = "CASE WHEN $y IS NOT NULL THEN COALESCE(ARRAY_TO_STRING(COALESCE($x, []), $y), '') END"
    return Typed(fill(made, x=both, y=_text(separator, scope)), STRING)


_START = "CASE WHEN $y > 0 THEN CAST($y AS BIGINT) - 1 WHEN $y < 0 THEN LENGTH($x) + CAST($y AS BIGINT) ELSE CAST(0 AS BIGINT) END"
_SUBSTRING = (
    f"CASE WHEN $x IS NULL OR $y IS NULL OR $z IS NULL THEN NULL ELSE "
    f"SUBSTRING($x, GREATEST({_START}, 0) + 1, GREATEST(GREATEST({_START} + $z, 0) - GREATEST({_START}, 0), 0)) END"
)


def _substring(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values = {"x": _text(nodes[0], scope), "y": _as(INT, nodes[1], scope)}
    values["z"] = _as(INT, nodes[2], scope) if len(nodes) == 3 else "CAST(2147483647 AS BIGINT)"
    return Typed(fill(_SUBSTRING, **values), STRING)


# Numbers.


def _round(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    digits = 0 if len(nodes) == 1 else _constant(nodes[1])
    if not isinstance(digits, int) or not -18 <= digits <= 18:
        raise scope.refuse(
            node, "round to another than a constant number of digits, -18 to 18, in process; pass spark="
        )
    typed = _numeric(nodes[0], scope)
    if typed.type.name == "decimal":
        (p, s), kept = typed.type.digits, min(typed.type.digits[1], max(digits, 0))
        type = spark_types.bounded(max(p - s + 1, 1 - digits) + kept if digits < 0 else p - s + 1 + kept, kept)
        type = type or decimal(spark_types.MOST_DIGITS, kept)
        return Typed(f"CAST(ROUND({typed.sql}, {digits}) AS {in_duckdb(type)})", type)
    if spark_types.is_integral(typed.type):
        if digits >= 0:
            return typed
        rounded = f"ROUND(CAST({typed.sql} AS DECIMAL(38, 0)), {digits})"
        return Typed(f"CAST({rounded} AS {in_duckdb(typed.type)})", typed.type)
    exact = f"CAST(CAST(ROUND(CAST(CAST($x AS VARCHAR) AS DECIMAL(38, 20)), {digits}) AS VARCHAR) AS {in_duckdb(typed.type)})"
    return Typed(
        fill(
            f"CASE WHEN ABS($x) < 1e16 AND $x <> 0 THEN {exact} {_HUGE.replace('$n', str(digits))} ELSE $x END",
            x=typed.sql,
        ),
        typed.type,
    )


_HUGE = "WHEN ABS($x) >= 1e16 AND NOT ISNAN($x) AND NOT ISINF($x) AND $n < 0 THEN ERROR('in process, round takes no floats beyond 1e16 here')"


def _numeric(node: Any, scope: Scope) -> Typed:
    typed = scope.translate(node, scope)
    if typed.type in (STRING, VOID):
        typed = Typed(cast(typed, DOUBLE, scope, node), DOUBLE)
    if not spark_types.is_number(typed.type):
        raise scope.invalid(node, f"{shown(node)} is {typed.type}, and a number is needed")
    return typed


def _rounded_to_whole(name: str) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        typed = _numeric(nodes[0], scope)
        if typed.type.name == "decimal":
            (p, s) = typed.type.digits
            type = decimal(min(p - s + (1 if s else 0), spark_types.MOST_DIGITS), 0)
            return Typed(f"CAST({name}({typed.sql}) AS {in_duckdb(type)})", type)
        if spark_types.is_integral(typed.type):
            return Typed(f"CAST({typed.sql} AS BIGINT)", BIGINT)
        sql = casts.cast(f"{name}($x)", DOUBLE, BIGINT) or ""
        return Typed(fill(sql, x=typed.sql), BIGINT)

    return build


def _operator(kind: type, is_safe: bool = False) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        typed = [scope.translate(item, scope) for item in nodes]
        if is_safe and any(not spark_types.is_number(item.type) and item.type != VOID for item in typed):
            raise scope.refuse(node, f"{shown(node)} of {typed[0].type} and {typed[1].type} in process; pass spark=")
        if not is_safe:
            return arithmetic(kind, typed[0], typed[1], nodes, scope)
        bound = [replace(item, sql=f"_o.{place}") for item, place in zip(typed, "xy", strict=True)]
        made = arithmetic(kind, bound[0], bound[1], nodes, scope, zero="NULL")
        operands = (
            f"STRUCT_PACK(x := {typed[0].sql}, y := {typed[1].sql})"  # TRY takes no operands that may raise themselves.
        )
        return Typed(f"LIST_TRANSFORM([{operands}], lambda _o: TRY({made.sql}))[1]", made.type)

    return build


def _signed(template: str) -> Builder:
    """abs and negative. Spark rounds decimals to 34 digits here."""

    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        typed = _numeric(nodes[0], scope)
        if typed.type.name == "decimal" and typed.type.digits[0] > 34:
            raise scope.refuse(node, "the sign of decimals of more than 34 digits in process; cast them to fewer")
        if template.startswith("ABS") and spark_types.is_integral(
            typed.type
        ):  # DuckDB's own gives the smallest number for itself.
            return Typed(fill("CASE WHEN $x < 0 THEN -$x ELSE $x END", x=typed.sql), typed.type)
        return Typed(fill(template, x=typed.sql), typed.type)

    return build


def _pmod(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    typed = [scope.translate(item, scope) for item in nodes]
    rest = arithmetic(exp.Mod, typed[0], typed[1], nodes, scope)
    if rest.type.name == "decimal":
        raise scope.refuse(node, "pmod of decimals in process; pass spark=")
    divisor = cast(typed[1], rest.type, scope, nodes[1])
    sql = "CASE WHEN $r < 0 THEN ($r + $y) % $y ELSE $r END"
    return Typed(fill(sql, r=rest.sql, y=divisor), rest.type)


def _nullif(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    first = scope.translate(nodes[0], scope)
    return Typed(f"CASE WHEN {compared('=', nodes, scope).sql} THEN NULL ELSE {first.sql} END", first.type)


def _decode(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if len(nodes) == 2:
        if _literal(nodes[1], "decode", scope).lower() not in ("utf-8", "utf8"):
            raise scope.refuse(node, "decode of another character set than UTF-8 in process; pass spark=")
        return Typed(f"DECODE({_as(BINARY, nodes[0], scope)})", STRING)
    pairs = [(nodes[index], nodes[index + 1]) for index in range(1, len(nodes) - 1, 2)]
    results = [result for _, result in pairs] + ([nodes[-1]] if len(nodes) % 2 == 0 else [])
    type, values = shared([scope.translate(item, scope) for item in results], results, scope)
    tests = [compared("IS NOT DISTINCT FROM", [nodes[0], key], scope).sql for key, _ in pairs]
    branches = " ".join(f"WHEN {test} THEN {value}" for test, value in zip(tests, values, strict=False))
    return Typed(f"CASE {branches}{f' ELSE {values[-1]}' if len(nodes) % 2 == 0 else ''} END", type)


def _encode(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if _literal(nodes[1], "encode", scope).lower() not in ("utf-8", "utf8"):
        raise scope.refuse(node, "encode to another character set than UTF-8 in process; pass spark=")
    return Typed(f"ENCODE({_text(nodes[0], scope)})", BINARY)


def _sha2(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if _constant(nodes[1]) not in (0, 256):
        raise scope.refuse(node, "sha2 of other lengths than 256 in process; pass spark=")
    return Typed(f"SHA256({_as(BINARY, nodes[0], scope)})", STRING)


def _unhex(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    sql = "CASE WHEN REGEXP_FULL_MATCH($x, '[0-9A-Fa-f]*') THEN UNHEX(CASE WHEN LENGTH($x) % 2 = 1 THEN '0' || $x ELSE $x END) END"
    return Typed(fill(sql, x=_text(nodes[0], scope)), BINARY)


def _unbase64(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    whole = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
    sql = f"CASE WHEN REGEXP_FULL_MATCH($x, '{whole}') THEN FROM_BASE64($x) WHEN $x IS NOT NULL THEN ERROR('unbase64: text that is no Base64 of whole groups, in process') END"
    return Typed(fill(sql, x=_text(nodes[0], scope)), BINARY)


def _typeof(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    return Typed(text(str(scope.translate(nodes[0], scope).type).lower().replace(", ", ",").replace(": ", ":")), STRING)


def _plain(sql: str, type: SparkType) -> Builder:
    return lambda nodes, node, scope: Typed(sql, type)


def _rand(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if nodes:
        raise scope.refuse(node, "rand with a seed in process; pass spark=")
    return Typed("RANDOM()", DOUBLE)


# Regular expressions.


def _pattern(node: Any, name: str, scope: Scope) -> tuple[str, int]:
    found = patterns.regex(_literal(node, name, scope))
    if found is None:
        raise scope.refuse(
            node,
            f"{name}: the pattern {shown(node)}, which Java and DuckDB may read differently, in process; pass spark=",
        )
    return found


def _guarded(spelt: str, sql: str) -> str:
    """In Java, `$` also matches before a line's end that ends the text, and leaves it."""
    if not spelt.endswith(patterns.LINE_END):
        return sql.replace("$p", text(spelt))
    ended = "WHEN REGEXP_MATCHES($x, '[\\n\\r\\x{85}\\x{2028}\\x{2029}]$') THEN ERROR('in process, no text ends in a line break here')"
    return f"CASE {ended} ELSE {sql.replace('$p', text(spelt))} END"


def _regexp_like(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    spelt, _ = _pattern(nodes[1], "rlike", scope)
    return Typed(f"REGEXP_MATCHES({_text(nodes[0], scope)}, {text(spelt)})", BOOLEAN)


def _regexp_replace(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    spelt, groups = _pattern(nodes[1], "regexp_replace", scope)
    new = patterns.replacement(_literal(nodes[2], "regexp_replace", scope), groups)
    if new is None:
        raise scope.refuse(node, f"regexp_replace: the replacement {shown(nodes[2])} in process; pass spark=")
    sql = _guarded(spelt, f"REGEXP_REPLACE($x, $p, {text(new)}, 'g')")
    return Typed(fill(sql, x=_text(nodes[0], scope)), STRING)


def _group(nodes: Sequence[Any], groups: int, name: str, scope: Scope) -> int:
    group = 1 if len(nodes) == 2 else _constant(nodes[2])
    if not isinstance(group, int):
        raise scope.refuse(nodes[2], f"{name} of another than a constant group in process; pass spark=")
    if not 0 <= group <= groups:
        raise scope.invalid(nodes[1], f"{name}: group {group}, and the pattern has {groups}")
    return group


def _regexp_extract(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    spelt, groups = _pattern(nodes[1], "regexp_extract", scope)
    group = _group(nodes, groups, "regexp_extract", scope)
    sql = _guarded(spelt, f"REGEXP_EXTRACT($x, $p, {group})")
    return Typed(fill(f"CASE WHEN $x IS NOT NULL THEN {sql} END", x=_text(nodes[0], scope)), STRING)


def _regexp_extract_all(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    spelt, groups = _pattern(nodes[1], "regexp_extract_all", scope)
    group = _group(nodes, groups, "regexp_extract_all", scope)
    return Typed(fill(_guarded(spelt, f"REGEXP_EXTRACT_ALL($x, $p, {group})"), x=_text(nodes[0], scope)), array(STRING))


def _regexp_count(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    spelt, _ = _pattern(nodes[1], "regexp_count", scope)
    sql = _guarded(spelt, "CAST(LEN(REGEXP_EXTRACT_ALL($x, $p, 0)) AS INTEGER)")
    return Typed(fill(sql, x=_text(nodes[0], scope)), INT)


def _split(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    pattern, value = _literal(nodes[1], "split", scope), _text(nodes[0], scope)
    limit = -1 if len(nodes) == 2 else _constant(nodes[2])
    if not isinstance(limit, int) or (limit > 0 and (not patterns.is_plain(pattern) or not pattern)):
        raise scope.refuse(
            node, "split with this limit in process: a constant, with a delimiter that is no pattern; pass spark="
        )
    if not pattern:
        raise scope.refuse(node, "split by an empty pattern in process; pass spark=")
    if patterns.is_plain(pattern):
        parts = fill(f"STRING_SPLIT($x, {text(pattern)})", x=value)
    else:
        spelt, _ = _pattern(nodes[1], "split", scope)
        if re.fullmatch(spelt.replace("\\x{85}", "").replace("\\x{2028}", "").replace("\\x{2029}", ""), ""):
            raise scope.refuse(node, "split by a pattern that matches the empty text in process; pass spark=")
        parts = fill(_guarded(spelt, "STRING_SPLIT_REGEX($x, $p)"), x=value)
    if limit > 0:
        rest = f"ARRAY_TO_STRING(LIST_SLICE($x, {limit}, LEN($x)), {text(pattern)})"
        parts = fill(
            f"CASE WHEN LEN($x) > {limit} THEN LIST_APPEND(LIST_SLICE($x, 1, {limit - 1}), {rest}) ELSE $x END", x=parts
        )
    return Typed(parts, array(STRING))


# Dates and times.

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
    unit = (_UNITS | _TIME_UNITS).get(_literal(nodes[0], "date_trunc", scope).upper())
    if unit is None:
        raise scope.refuse(node, f"date_trunc to {shown(nodes[0])}, for which Spark gives null, in process")
    return Typed(f"DATE_TRUNC('{unit}', {_as(TIMESTAMP, nodes[1], scope)})", TIMESTAMP)


def _trunc(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    unit = _UNITS.get(_literal(nodes[1], "trunc", scope).upper())
    if unit is None:
        raise scope.refuse(node, f"trunc to {shown(nodes[1])}, for which Spark gives null, in process")
    return Typed(f"CAST(DATE_TRUNC('{unit}', {_as(DATE, nodes[0], scope)}) AS DATE)", DATE)


_PARTS = {
    "YEAR": "YEAR", "Y": "YEAR", "YEARS": "YEAR", "QUARTER": "QUARTER", "QTR": "QUARTER", "MONTH": "MONTH", "MON": "MONTH", "MONTHS": "MONTH",
    "WEEK": "WEEKOFYEAR", "W": "WEEKOFYEAR", "WEEKS": "WEEKOFYEAR", "DAY": "DAY", "D": "DAY", "DAYS": "DAY", "DOY": "DAYOFYEAR",
}  # fmt: skip
_TIME_PARTS = {
    "HOUR": "HOUR",
    "H": "HOUR",
    "HOURS": "HOUR",
    "MINUTE": "MINUTE",
    "M": "MINUTE",
    "MIN": "MINUTE",
    "MINUTES": "MINUTE",
}


def _date_part(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    part = _literal(nodes[0], "date_part", scope).upper()
    if part in _PARTS:
        return Typed(f"CAST({_PARTS[part]}({_as(DATE, nodes[1], scope)}) AS INTEGER)", INT)
    if part in ("DAYOFWEEK", "DOW"):
        return Typed(f"CAST(DAYOFWEEK({_as(DATE, nodes[1], scope)}) + 1 AS INTEGER)", INT)
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
    return Typed(_as(type, node, scope), type)


def _date_format(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    format = patterns.written(_literal(nodes[1], "date_format", scope))
    if format is None:
        raise scope.refuse(node, f"date_format by {shown(nodes[1])} in process; pass spark=")
    return Typed(_by_format(_moment(nodes[0], scope).sql, format), STRING)


def _by_format(value: str, format: str) -> str:
    wrong = "WHEN $x IS NOT NULL THEN ERROR('in process, times become text of the years 1 to 9999 only')"
    return fill(
        f"CASE WHEN YEAR($x) BETWEEN 1 AND 9999 THEN STRFTIME(CAST($x AS TIMESTAMP), {text(format)}) {wrong} END",
        x=value,
    )


def _from_unixtime(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    format = patterns.written("yyyy-MM-dd HH:mm:ss" if len(nodes) == 1 else _literal(nodes[1], "from_unixtime", scope))
    if format is None:
        raise scope.refuse(node, f"from_unixtime by {shown(nodes[1])} in process; pass spark=")
    seconds = f"MAKE_TIMESTAMP({_as(BIGINT, nodes[0], scope)} * 1000000)"
    return Typed(_by_format(seconds, format), STRING)


def _read_by(value: str, form: str, target: str, is_safe: bool, kind: str) -> str:
    wrong = "NULL" if is_safe else f"ERROR({text(f'text that is no {kind} of this format: ')} || $x)"
    made = f"CAST(TRY_STRPTIME($x, {text(target)}) AS {kind})"
    return fill(
        f"CASE WHEN $x IS NULL THEN NULL WHEN REGEXP_FULL_MATCH($x, {text(form)}) AND TRY_STRPTIME($x, {text(target)}) IS NOT NULL THEN {made} ELSE {wrong} END",
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
        format = patterns.read(_literal(nodes[1], "a format", scope))
        if format is None:
            raise scope.refuse(node, f"{shown(node)}: reading text by this format in process; pass spark=")
        value = cast(typed, STRING, scope, node)
        return Typed(_read_by(value, format[1], format[0], is_safe, in_duckdb(target)), target)

    return build


def _unix_timestamp(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    typed = scope.translate(nodes[0], scope)
    seconds = "EPOCH_US($x) // 1000000"  # Spark truncates here.
    if len(nodes) == 2:
        _literal(nodes[1], "unix_timestamp", scope)
    if spark_types.is_time(typed.type):
        return Typed(fill(seconds, x=cast(typed, TIMESTAMP, scope, node)), BIGINT)
    format = [*nodes[1:], exp.Literal.string("yyyy-MM-dd HH:mm:ss")][:1]
    made = _to_time(TIMESTAMP)([nodes[0], *format], node, scope)
    return Typed(fill(seconds, x=made.sql), BIGINT)


_DAYS_OF_WEEK = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")


def _next_day(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    word = _literal(nodes[1], "next_day", scope).strip().upper()
    days = [n for n, day in enumerate(_DAYS_OF_WEEK) if word in (day, day[:3], day[:2])]
    if not days:
        raise scope.invalid(nodes[1], f"next_day: {shown(nodes[1])} is no day of the week")
    sql = f"($x + CAST((({days[0]} - DAYOFWEEK($x) - 1) % 7 + 7) % 7 + 1 AS INTEGER))"
    return Typed(fill(sql, x=_as(DATE, nodes[0], scope)), DATE)


def _make_timestamp(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values = [_as(INT, item, scope) for item in nodes[:5]]
    seconds = cast(_numeric(nodes[5], scope), decimal(8, 6), scope, nodes[5])
    whole = ", ".join(f"CAST({value} AS BIGINT)" for value in values)
    sql = f"CASE WHEN $x < 0 OR $x >= 60 THEN ERROR('in process, make_timestamp takes seconds below 60') ELSE CAST(MAKE_TIMESTAMP({whole}, CAST($x AS DOUBLE)) AS TIMESTAMPTZ) END"
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
        left, right = (_as(DATE, item, scope) for item in nodes)
        return Typed(f"CAST({left} - {right} AS INTEGER)", INT)
    unit = _unit(nodes[0], "datediff", scope)
    if unit not in _COUNTED:
        raise scope.refuse(node, f"a difference in the unit {unit} in process; pass spark=")
    left, right = (_as(TIMESTAMP, item, scope) for item in nodes[1:])
    return Typed(fill(f"(EPOCH_US($y) - EPOCH_US($x)) // {_COUNTED[unit]}", x=left, y=right), BIGINT)


def _moved(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    """date_add(d, n), and timestampadd(unit, n, t)."""
    if len(nodes) == 2:
        days = scope.translate(nodes[1], scope)
        if days.type not in spark_types.INTEGRAL[:3]:
            raise scope.refuse(node, f"date_add of {days.type} days in process; cast them to INT")
        return Typed(f"({_as(DATE, nodes[0], scope)} + CAST({days.sql} AS INTEGER))", DATE)
    unit = _unit(nodes[0], "dateadd", scope)
    moment = _moment(nodes[2], scope)
    functions = {"YEAR": "TO_YEARS", "MONTH": "TO_MONTHS", "WEEK": "TO_WEEKS", "DAY": "TO_DAYS"}
    if unit in functions:
        moved = f"{functions[unit]}({_as(INT, nodes[1], scope)})"
    elif unit in _COUNTED:
        moved = f"TO_MICROSECONDS(CAST({_as(INT, nodes[1], scope)} AS BIGINT) * {_COUNTED[unit]})"
    else:
        raise scope.refuse(node, f"adding the unit {unit} in process; pass spark=")
    return Typed(f"CAST({moment.sql} + {moved} AS {in_duckdb(moment.type)})", moment.type)


# Arrays, maps, structs.


def _array(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if not nodes:
        return Typed("CAST([] AS INTEGER[])", array(VOID))
    type, values = shared([scope.translate(item, scope) for item in nodes], nodes, scope)
    return Typed(f"CAST([{', '.join(values)}] AS {in_duckdb(array(type))})", array(type))


def _map(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if len(nodes) % 2 or not nodes:
        raise scope.invalid(node, "map takes keys and values by turns")
    keys, values = nodes[::2], nodes[1::2]
    key_type, key_values = shared([scope.translate(item, scope) for item in keys], keys, scope)
    value_type, value_values = shared([scope.translate(item, scope) for item in values], values, scope)
    type = SparkType("map", (key_type, value_type))
    if not spark_types.has_order(key_type) or key_type == VOID:
        raise scope.refuse(node, f"a map with keys of {key_type} in process; pass spark=")
    return Typed(f"CAST(MAP([{', '.join(key_values)}], [{', '.join(value_values)}]) AS {in_duckdb(type)})", type)


def _struct(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    labels, values = [], []
    for number, item in enumerate(nodes, 1):
        inner = item.this if isinstance(item, exp.Alias) else item
        name = (
            item.alias
            if isinstance(item, exp.Alias)
            else inner.name
            if isinstance(inner, exp.Column | exp.Dot | exp.Identifier)
            else ""
        )
        labels.append(name or f"col{number}")
        values.append(scope.translate(inner, scope))
    return _row(labels, values, node, scope)


def _named_struct(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if len(nodes) % 2 or not nodes:
        raise scope.invalid(node, "named_struct takes names and values by turns")
    labels = [_literal(item, "named_struct", scope) for item in nodes[::2]]
    return _row(labels, [scope.translate(item, scope) for item in nodes[1::2]], node, scope)


def _row(labels: Sequence[str], values: Sequence[Typed], node: Any, scope: Scope) -> Typed:
    if len({label.casefold() for label in labels}) != len(labels) or not labels:
        raise scope.refuse(node, "a struct with two fields of one name, or none, in process")
    type = SparkType("struct", tuple(value.type for value in values), tuple(labels))
    fields = ", ".join(f"{quoted(label)} := {value.sql}" for label, value in zip(labels, values, strict=True))
    return Typed(f"STRUCT_PACK({fields})", type)


def _lambda(node: Any, types: Sequence[SparkType], scope: Scope, name: str) -> tuple[list[str], Typed]:
    """A lambda function's variables in DuckDB and its value."""
    if not isinstance(node, exp.Lambda) or len(node.expressions) > len(types):
        raise scope.invalid(
            node, f"{name} takes a lambda function of at most {len(types)} variables, such as x -> x + 1"
        )
    depth = len(scope.variables)
    spelt = [f"_v{depth + index}" for index in range(len(node.expressions))]
    variables = {
        variable.name.casefold(): Typed(sql, type)
        for variable, sql, type in zip(node.expressions, spelt, types, strict=False)
    }
    inner = replace(scope, variables={**scope.variables, **variables})
    return spelt, scope.translate(node.this, inner)


def _list(node: Any, name: str, scope: Scope) -> Typed:
    typed = scope.translate(node, scope)
    if typed.type.name != "array":
        raise scope.invalid(node, f"{name} takes an array, and {shown(node)} is {typed.type}")
    return typed


def _with_index(nodes: Sequence[Any], name: str, scope: Scope) -> tuple[Typed, str, Typed]:
    """The array, the head `lambda v, n:` and the value of transform and filter; Spark's index begins with 0, DuckDB's with 1."""
    values = _list(nodes[0], name, scope)
    (first, *second), typed = _lambda(nodes[1], [values.type.parts[0], INT], scope, name)
    if second:
        typed = replace(typed, sql=re.sub(rf"\b{second[0]}\b", f"CAST({second[0]} - 1 AS INTEGER)", typed.sql))
    return values, f"lambda {', '.join([first, *second])}:", typed


def _transform(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values, head, typed = _with_index(nodes, "transform", scope)
    return Typed(f"LIST_TRANSFORM({values.sql}, {head} {typed.sql})", array(typed.type))


def _filter(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values, head, typed = _with_index(nodes, "filter", scope)
    _require_boolean(typed, nodes[1], scope)
    return Typed(f"LIST_FILTER({values.sql}, {head} {typed.sql})", values.type)


def _require_boolean(typed: Typed, node: Any, scope: Scope) -> None:
    if typed.type != BOOLEAN:
        raise scope.invalid(node, f"the lambda function gives {typed.type}, and BOOLEAN is needed")


def _any_or_all(name: str, sql: str) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        values = _list(nodes[0], name, scope)
        (variable,), typed = _lambda(nodes[1], [values.type.parts[0]], scope, name)
        _require_boolean(typed, nodes[1], scope)
        return Typed(fill(sql, x=f"LIST_TRANSFORM({values.sql}, lambda {variable}: {typed.sql})"), BOOLEAN)

    return build


_EXISTS = "CASE WHEN $x IS NULL THEN NULL WHEN LIST_CONTAINS($x, TRUE) THEN TRUE WHEN LIST_COUNT($x) < LEN($x) THEN NULL ELSE FALSE END"
_FORALL = "CASE WHEN $x IS NULL THEN NULL WHEN LIST_CONTAINS($x, FALSE) THEN FALSE WHEN LIST_COUNT($x) < LEN($x) THEN NULL ELSE TRUE END"


def _aggregate(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values, start = _list(nodes[0], "aggregate", scope), scope.translate(nodes[1], scope)
    variables, merged = _lambda(nodes[2], [start.type, values.type.parts[0]], scope, "aggregate")
    if merged.type != start.type or len(variables) != 2:
        raise scope.invalid(
            nodes[2], f"aggregate: the lambda function gives {merged.type}, and the start is {start.type}; cast one"
        )
    if values.type.parts[0] != start.type:
        item = casts.cast(variables[1], values.type.parts[0], start.type)
        if item is None or not casts.widens(values.type.parts[0], start.type):
            raise scope.refuse(node, f"aggregate of {values.type} to {start.type} in process; pass spark=")
        values = Typed(f"CAST({values.sql} AS {in_duckdb(array(start.type))})", array(start.type))
    made = f"LIST_REDUCE({values.sql}, lambda {', '.join(variables)}: {merged.sql}, {start.sql})"
    sql = Typed(made, start.type)
    if len(nodes) == 4:
        (variable,), finished = _lambda(nodes[3], [start.type], scope, "aggregate")
        return Typed(f"LIST_TRANSFORM([{sql.sql}], lambda {variable}: {finished.sql})[1]", finished.type)
    return sql


def _sequence(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    type, values = shared([scope.translate(item, scope) for item in nodes[:2]], nodes[:2], scope)
    if not spark_types.is_integral(type):
        raise scope.refuse(node, f"sequence of {type} in process; pass spark=")
    step = (
        cast(scope.translate(nodes[2], scope), type, scope, node)
        if len(nodes) == 3
        else "CASE WHEN $x <= $y THEN 1 ELSE -1 END"
    )
    wrong = "ERROR('sequence: a step of 0, or in the wrong direction')"
    test = "$z = 0 AND $x <> $y OR $z > 0 AND $x > $y OR $z < 0 AND $x < $y"
    start, end = values
    step = fill(step, x=start, y=end)
    made = f"CASE WHEN $x IS NULL OR $y IS NULL OR $z IS NULL THEN NULL WHEN {test} THEN {wrong} WHEN $x = $y THEN [$x] ELSE GENERATE_SERIES(CAST($x AS BIGINT), CAST($y AS BIGINT), CAST($z AS BIGINT)) END"
    return Typed(f"CAST({fill(made, x=start, y=end, z=step)} AS {in_duckdb(array(type))})", array(type))


# JSON and variants.


def _get_json_object(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    path = _literal(nodes[1], "get_json_object", scope)
    if scope.translate(nodes[0], scope).type not in (STRING, VOID):
        raise scope.refuse(node, "get_json_object of another than STRING in process; cast it")
    value = _text(nodes[0], scope)
    if not path.startswith("$"):
        return Typed(fill("CASE WHEN $x IS NULL THEN NULL END", x=f"CAST({value} AS VARCHAR)"), STRING)
    steps = patterns.json_path(path)
    if steps is None:
        raise scope.refuse(node, f"get_json_object by the path {shown(nodes[1])} in process; pass spark=")
    spelt = "$" + "".join(f"[{step}]" if isinstance(step, int) else f'."{step}"' for step in steps)
    kind = f"JSON_TYPE(CAST($x AS JSON), {text(spelt)})"
    plain = f"JSON_EXTRACT_STRING(CAST($x AS JSON), {text(spelt)})"
    others = "ERROR('in process, get_json_object gives text, whole numbers and booleans; pass spark= for others')"
    sql = f"CASE WHEN NOT JSON_VALID($x) THEN NULL WHEN {kind} IN ('VARCHAR', 'BIGINT', 'UBIGINT', 'BOOLEAN') THEN {plain} WHEN {kind} IS NULL OR {kind} = 'NULL' THEN NULL ELSE {others} END"
    return Typed(fill(sql, x=value), STRING)


def _variant_get(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    """A call of our own function, one per result type; in_process.py registers it."""
    try:
        read = sql_text.read(exp.Anonymous(this="variant_get", expressions=[exp.column("v"), *nodes[1:]]), "v")
    except InvalidInput as error:
        raise scope.invalid(node, str(error)) from error
    match read:
        case Call(_, (_, Literal(path), Literal(spelt))):
            target = spark_types.of_syntax(exp.DataType.build(nodes[2].name, dialect="spark"))
            if target is not None:
                name = "_lakeformat_variant_get_" + re.sub(r"\W+", "_", str(spelt))
                scope.variants.append((name, str(spelt), in_duckdb(target)))
                return Typed(f"{name}({scope.translate(nodes[0], scope).sql}, {text(str(path))})", target)
    raise scope.refuse(node, "variant_get of this form in process; pass spark=")


def _lower(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    return Typed(fill(_LOWER, x=_text(nodes[0], scope)), STRING)


# Aggregate functions.


def _count(nodes: Sequence[Any], how: Modifiers, node: Any, scope: Scope) -> Typed | None:
    if len(nodes) == 1 and isinstance(nodes[0], exp.Star):
        return Typed(how.applied("COUNT(*)@"), BIGINT)
    typed = [scope.translate(item, scope) for item in nodes]
    if how.is_distinct and any(not spark_types.has_order(item.type) for item in typed):
        raise scope.refuse(node, f"count(DISTINCT ...) of {typed[0].type} in process; pass spark=")
    if len(typed) == 1:
        return Typed(how.applied("COUNT(~$x)@", typed[0].sql), BIGINT)
    present = " AND ".join(f"({item.sql}) IS NOT NULL" for item in typed)
    row = f"CASE WHEN {present} THEN ROW({', '.join(item.sql for item in typed)}) END"
    return Typed(how.applied("COUNT(~$x)@", row), BIGINT)


def _sum(nodes: Sequence[Any], how: Modifiers, node: Any, scope: Scope) -> Typed | None:
    typed = scope.translate(nodes[0], scope)
    if typed.type.name != "decimal":
        return None
    type = decimal(min(typed.type.digits[0] + 10, spark_types.MOST_DIGITS), typed.type.digits[1])
    return Typed(how.applied(f"CAST(SUM(~$x)@ AS {in_duckdb(type)})", typed.sql), type)


def _avg(nodes: Sequence[Any], how: Modifiers, node: Any, scope: Scope) -> Typed | None:
    typed = scope.translate(nodes[0], scope)
    if typed.type.name != "decimal":
        return None
    p, s = typed.type.digits
    precision, scale = min(p + 4, spark_types.MOST_DIGITS), min(s + 4, spark_types.MOST_DIGITS)
    if p + 4 > spark_types.MOST_DIGITS:
        raise scope.refuse(node, "avg of decimals of more than 34 digits in process; cast them to fewer")
    total = Typed(how.applied("SUM(~$x)@", typed.sql), decimal(spark_types.MOST_DIGITS, s))
    number = Typed(how.applied("COUNT(~$x)@", typed.sql), BIGINT)
    made = quotient(total, number, scale, precision)
    return Typed(f"CASE WHEN {number.sql} > 0 THEN {made} END", decimal(precision, scale))


def _first(name: str) -> Callable[[Sequence[Any], Modifiers, Any, Scope], Typed | None]:
    def build(nodes: Sequence[Any], how: Modifiers, node: Any, scope: Scope) -> Typed | None:
        ignores = how.ignores_nulls
        if len(nodes) == 2:
            if not isinstance(nodes[1], exp.Boolean):
                raise scope.invalid(node, f"{name.lower()}: the second argument is TRUE or FALSE")
            ignores = bool(nodes[1].this)
        typed = scope.translate(nodes[0], scope)
        if how.window:
            how = replace(how, ignores_nulls=ignores)
            return Typed(how.applied(f"{name}_VALUE($x!)@", typed.sql), typed.type)
        return Typed(how.applied(f"{name}($x)@{'[$x IS NOT NULL]' if ignores else ''}", typed.sql), typed.type)

    return build


def _percentile(nodes: Sequence[Any], how: Modifiers, node: Any, scope: Scope) -> Typed | None:
    _require_whole_window(how, node, scope)
    share = nodes[-1]
    typed = scope.translate(share, scope)
    if how.within is not None:
        if len(nodes) != 1 or len(how.within.expressions) != 1 or how.within.expressions[0].args.get("desc"):
            raise scope.refuse(node, "WITHIN GROUP (ORDER BY one expression ASC) in process")
        value = how.within.expressions[0].this
    elif len(nodes) == 2:
        value = nodes[0]
    else:
        raise scope.invalid(
            node, "percentile takes an expression and a share, percentile_cont WITHIN GROUP (ORDER BY expression)"
        )
    if not isinstance(share, exp.Literal) or not spark_types.is_number(typed.type):
        raise scope.refuse(node, "a percentile of another than a constant share in process; pass spark=")
    if not 0 <= float(share.name) <= 1:
        raise scope.invalid(share, "a share is between 0 and 1")
    values = _as(DOUBLE, value, scope)
    return Typed(how.applied(f"CAST(QUANTILE_CONT(~$x, {share.name})@ AS DOUBLE)", values), DOUBLE)


def _median(nodes: Sequence[Any], how: Modifiers, node: Any, scope: Scope) -> Typed | None:
    _require_whole_window(how, node, scope)
    return Typed(how.applied("CAST(MEDIAN(~$x)@ AS DOUBLE)", _as(DOUBLE, nodes[0], scope)), DOUBLE)


def _require_whole_window(how: Modifiers, node: Any, scope: Scope) -> None:
    if "ORDER BY" in how.window:
        raise scope.invalid(node, "a percentile over a window takes no ORDER BY and no frame")


def _listagg(nodes: Sequence[Any], how: Modifiers, node: Any, scope: Scope) -> Typed | None:
    value = _text(nodes[0], scope)
    delimiter = _text(nodes[1], scope) if len(nodes) == 2 and not isinstance(nodes[1], exp.Null) else "''"
    order = ""
    if how.within is not None:
        items = []
        for item in how.within.expressions:
            typed = scope.translate(item.this, scope)
            if not spark_types.has_order(typed.type):
                raise scope.refuse(node, f"ORDER BY of {typed.type} in process; pass spark=")
            nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
            items.append(f"{typed.sql} {'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}")
        order = f" ORDER BY {', '.join(items)}"
    return Typed(replace(how, order=order).applied("STRING_AGG(~$x, $y^)@", value, delimiter), STRING)


def _grouping(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    return Typed(f"CAST(GROUPING({scope.translate(nodes[0], scope).sql}) AS TINYINT)", TINYINT)


def _spread(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    raise scope.refuse(
        node, f"{shown(node)} inside another expression in process; select it by itself, or use LATERAL VIEW"
    )


Aggregate = Callable[[Sequence[Any], Modifiers, Any, Scope], Typed | None]
SCALARS: Mapping[str, tuple[int, int | None, Builder]] = {
    **dict.fromkeys(("upper", "ucase"), (1, 1, _of_text(_UPPER))),
    **dict.fromkeys(("lower", "lcase"), (1, 1, _lower)),
    "initcap": (1, 1, _of_text(_INITCAP)),
    "concat": (1, None, _concat),
    "concat_ws": (1, None, _concat_ws),
    **dict.fromkeys(("substring", "substr"), (2, 3, _substring)),
    "round": (1, 2, _round),
    **dict.fromkeys(("ceil", "ceiling"), (1, 1, _rounded_to_whole("CEIL"))),
    "floor": (1, 1, _rounded_to_whole("FLOOR")),
    "mod": (2, 2, _operator(exp.Mod)),
    "abs": (1, 1, _signed("ABS($x)")),
    "negative": (1, 1, _signed("-($x)")),
    "pmod": (2, 2, _pmod),
    "try_add": (2, 2, _operator(exp.Add, True)),
    "try_subtract": (2, 2, _operator(exp.Sub, True)),
    "try_multiply": (2, 2, _operator(exp.Mul, True)),
    "try_divide": (2, 2, _operator(exp.Div, True)),
    "try_mod": (2, 2, _operator(exp.Mod, True)),
    "nullif": (2, 2, _nullif),
    "decode": (2, None, _decode),
    "encode": (2, 2, _encode),
    "sha2": (2, 2, _sha2),
    "unhex": (1, 1, _unhex),
    "unbase64": (1, 1, _unbase64),
    "typeof": (1, 1, _typeof),
    **dict.fromkeys(("rand", "random"), (0, 1, _rand)),
    "uuid": (0, 0, _plain("CAST(UUID() AS VARCHAR)", STRING)),
    **dict.fromkeys(("now", "current_timestamp"), (0, 0, _plain("NOW()", TIMESTAMP))),
    **dict.fromkeys(("current_date", "curdate"), (0, 0, _plain("CAST(NOW() AS DATE)", DATE))),
    **dict.fromkeys(("regexp_like", "rlike", "regexp"), (2, 2, _regexp_like)),
    "regexp_replace": (3, 3, _regexp_replace),
    "regexp_extract": (2, 3, _regexp_extract),
    "regexp_extract_all": (2, 3, _regexp_extract_all),
    "regexp_count": (2, 2, _regexp_count),
    "split": (2, 3, _split),
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
    "array": (0, None, _array),
    "map": (2, None, _map),
    "struct": (1, None, _struct),
    "named_struct": (2, None, _named_struct),
    "transform": (2, 2, _transform),
    "filter": (2, 2, _filter),
    "exists": (2, 2, _any_or_all("exists", _EXISTS)),
    "forall": (2, 2, _any_or_all("forall", _FORALL)),
    **dict.fromkeys(("aggregate", "reduce"), (3, 4, _aggregate)),
    "sequence": (2, 3, _sequence),
    "get_json_object": (2, 2, _get_json_object),
    "variant_get": (3, 3, _variant_get),
    "grouping": (1, 1, _grouping),
    **dict.fromkeys(("explode", "explode_outer", "posexplode", "posexplode_outer"), (1, 1, _spread)),
    **{
        name: (1, 1, _conversion(type))
        for name, type in {
            "string": STRING, "boolean": BOOLEAN, "tinyint": TINYINT, "smallint": SparkType("smallint"), "int": INT, "bigint": BIGINT,
            "float": FLOAT, "double": DOUBLE, "decimal": decimal(10, 0), "binary": BINARY, "date": DATE, "timestamp": TIMESTAMP,
        }.items()
    },
}  # fmt: skip
AGGREGATES: Mapping[str, tuple[int, int | None, Aggregate]] = {
    "count": (1, None, _count),
    "sum": (1, 1, _sum),
    **dict.fromkeys(("avg", "mean"), (1, 1, _avg)),
    **dict.fromkeys(("first", "first_value", "any_value"), (1, 2, _first("FIRST"))),
    **dict.fromkeys(("last", "last_value"), (1, 2, _first("LAST"))),
    "percentile": (2, 2, _percentile),
    "median": (1, 1, _median),
    "percentile_cont": (1, 1, _percentile),
    **dict.fromkeys(("listagg", "string_agg"), (1, 2, _listagg)),
}
