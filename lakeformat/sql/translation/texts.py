"""Functions of text whose DuckDB SQL depends on more than types: case, substrings, patterns, encodings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from lakeformat.expression.duckdb_sql import text
from lakeformat.model import casing
from lakeformat.sql.translation import patterns, spark_types
from lakeformat.sql.translation.arguments import (
    Builder,
    as_text,
    as_type,
    constant,
    literal_text,
)
from lakeformat.sql.translation.operands import compared, shared, shown
from lakeformat.sql.translation.scopes import Scope, Typed
from lakeformat.sql.translation.spark_types import (
    BINARY,
    BOOLEAN,
    INT,
    STRING,
    VOID,
    SparkType,
    array,
)
from lakeformat.sql.translation.templates import fill


def like(node: Any, pattern: Any, escape: str, scope: Scope) -> Typed:
    """One LIKE or ILIKE. Spark raises for an escape character in front of another than `%`, `_` and itself."""
    texts = [as_text(item, scope) for item in (node.this, pattern)]
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
    by_letter = f"LIST_TRANSFORM(REGEXP_EXTRACT_ALL($x, '(?s:.)'), lambda c: COALESCE(MAP {{{pairs}}}[c], {name}(c)))"
    return (
        f"CASE WHEN STRLEN($x) = LENGTH($x) THEN {name}($x) {refused}WHEN REGEXP_MATCHES($x, '[{letters}]') THEN "
        f"ARRAY_TO_STRING({by_letter}, '') ELSE {name}($x) END"
    )


_SIGMA = (
    "WHEN CONTAINS($x, 'Σ') THEN ERROR('in process, lower takes no text with Σ, which has two small letters; "
    "pass spark=') "
)


_UPPER = _case_template("UPPER", _case_map(casing.upper))


_LOWER = _case_template("LOWER", _case_map(casing.lower), _SIGMA)


_WORD = f"({_UPPER.replace('$x', 'LEFT(w, 1)')}) || ({_LOWER.replace('$x', 'SUBSTRING(w, 2)')})"


_INITCAP = f"ARRAY_TO_STRING(LIST_TRANSFORM(STRING_SPLIT($x, ' '), lambda w: {_WORD}), ' ')"


def _of_text(template: str) -> Builder:
    def build(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
        return Typed(fill(template, x=as_text(nodes[0], scope)), STRING)

    return build


def _concat(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    typed = [scope.translate(item, scope) for item in nodes]
    if all(item.type.name in ("array", "void") for item in typed) and any(item.type.name == "array" for item in typed):
        type, values = shared(typed, nodes, scope)
        tests = " OR ".join(f"({value}) IS NULL" for value in values)
        return Typed(f"CASE WHEN {tests} THEN NULL ELSE LIST_CONCAT({', '.join(values)}) END", type)
    if all(item.type == BINARY for item in typed):
        return Typed("(" + " || ".join(f"({item.sql})" for item in typed) + ")", BINARY)
    values = [as_type(STRING, item, scope) for item in nodes]
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
            lists.append(fill("CASE WHEN $x IS NOT NULL THEN [$x] END", x=as_type(STRING, item, scope)))
    both = lists[0] if len(lists) == 1 else f"LIST_CONCAT({', '.join(lists)})" if lists else "CAST([] AS VARCHAR[])"
    joined = (  # ARRAY_TO_STRING takes no separator of a column.
        "CASE WHEN $y IS NOT NULL THEN "
        "SUBSTRING(ARRAY_TO_STRING(LIST_TRANSFORM(COALESCE($x, []), lambda s: $y || s), ''), LENGTH($y) + 1) END"
    )
    return Typed(fill(joined, x=both, y=as_text(separator, scope)), STRING)


_START = (
    "CASE WHEN $y > 0 THEN CAST($y AS BIGINT) - 1 WHEN $y < 0 THEN LENGTH($x) + CAST($y AS BIGINT) "
    "ELSE CAST(0 AS BIGINT) END"
)


_SUBSTRING = (
    f"CASE WHEN $x IS NULL OR $y IS NULL OR $z IS NULL THEN NULL ELSE "
    f"SUBSTRING($x, GREATEST({_START}, 0) + 1, GREATEST(GREATEST({_START} + $z, 0) - GREATEST({_START}, 0), 0)) END"
)


def _substring(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    values = {"x": as_text(nodes[0], scope), "y": as_type(INT, nodes[1], scope)}
    values["z"] = as_type(INT, nodes[2], scope) if len(nodes) == 3 else "CAST(2147483647 AS BIGINT)"
    return Typed(fill(_SUBSTRING, **values), STRING)


def _decode(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if len(nodes) == 2:
        if literal_text(nodes[1], "decode", scope).lower() not in ("utf-8", "utf8"):
            raise scope.refuse(node, "decode of another character set than UTF-8 in process; pass spark=")
        return Typed(f"DECODE({as_type(BINARY, nodes[0], scope)})", STRING)
    pairs = [(nodes[index], nodes[index + 1]) for index in range(1, len(nodes) - 1, 2)]
    # Without a default Spark's is NULL of text, to whose type it casts the results.
    default = nodes[-1] if len(nodes) % 2 == 0 else exp.cast(exp.Null(), "STRING")
    results = [*(result for _, result in pairs), default]
    type, values = shared([scope.translate(item, scope) for item in results], results, scope)
    if not spark_types.has_order(type):
        raise scope.refuse(node, f"decode to {type} in process; pass spark=")
    tests = [compared("IS NOT DISTINCT FROM", [nodes[0], key], scope).sql for key, _ in pairs]
    branches = " ".join(f"WHEN {test} THEN {value}" for test, value in zip(tests, values, strict=False))
    return Typed(f"CASE {branches} ELSE {values[-1]} END", type)


def _encode(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if literal_text(nodes[1], "encode", scope).lower() not in ("utf-8", "utf8"):
        raise scope.refuse(node, "encode to another character set than UTF-8 in process; pass spark=")
    return Typed(f"ENCODE({as_text(nodes[0], scope)})", BINARY)


def _sha2(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    if constant(nodes[1]) not in (0, 256):
        raise scope.refuse(node, "sha2 of other lengths than 256 in process; pass spark=")
    return Typed(f"SHA256({as_type(BINARY, nodes[0], scope)})", STRING)


def _unhex(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    sql = (
        "CASE WHEN REGEXP_FULL_MATCH($x, '[0-9A-Fa-f]*') THEN UNHEX(CASE WHEN LENGTH($x) "
        "% 2 = 1 THEN '0' || $x ELSE $x END) END"
    )
    return Typed(fill(sql, x=as_text(nodes[0], scope)), BINARY)


def _unbase64(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    """Characters outside of Base64 do not count, and the last group may lack its `=`, as in Java's MIME decoder."""
    letters = fill("REGEXP_REPLACE($x, '[^A-Za-z0-9+/=]', '', 'g')", x=as_text(nodes[0], scope))
    whole = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}(==)?|[A-Za-z0-9+/]{3}=?)?"
    sql = (
        f"CASE WHEN REGEXP_FULL_MATCH($x, '{whole}') THEN "
        "FROM_BASE64(RPAD($x, CAST((LENGTH($x) + 3) // 4 * 4 AS INTEGER), '=')) "
        "WHEN $x IS NOT NULL THEN ERROR('unbase64: text that is no Base64 of whole groups, in process') END"
    )
    return Typed(fill(sql, x=letters), BINARY)


def _pattern(node: Any, name: str, scope: Scope) -> tuple[str, int]:
    regex_and_groups = patterns.regex(literal_text(node, name, scope))
    if regex_and_groups is None:
        raise scope.refuse(
            node,
            f"{name}: the pattern {shown(node)}, which Java and DuckDB may read differently, in process; pass spark=",
        )
    return regex_and_groups


def _may_be_empty(spelt: str) -> bool:
    """Whether a pattern matches the empty text."""
    return re.fullmatch(re.sub(r"\\x\{\w+\}", "", spelt), "") is not None


def _guarded(spelt: str, sql: str) -> str:
    """In Java, `$` also matches before a line's end that ends the text, and leaves it."""
    if not spelt.endswith(patterns.LINE_END):
        return sql.replace("$p", text(spelt))
    ended = (
        "WHEN REGEXP_MATCHES($x, '[\\n\\r\\x{85}\\x{2028}\\x{2029}]$') THEN ERROR('in process, "
        "no text ends in a line break here')"
    )
    return f"CASE {ended} ELSE {sql.replace('$p', text(spelt))} END"


def _regexp_like(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    spelt, _ = _pattern(nodes[1], "rlike", scope)
    return Typed(f"REGEXP_MATCHES({as_text(nodes[0], scope)}, {text(spelt)})", BOOLEAN)


def _regexp_replace(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    spelt, groups = _pattern(nodes[1], "regexp_replace", scope)
    new = patterns.replacement(literal_text(nodes[2], "regexp_replace", scope), groups)
    if new is None:
        raise scope.refuse(node, f"regexp_replace: the replacement {shown(nodes[2])} in process; pass spark=")
    if _may_be_empty(spelt) and spelt != "^":  # Java also replaces the empty text behind a match.
        raise scope.refuse(node, "regexp_replace by a pattern that matches the empty text in process; pass spark=")
    sql = _guarded(spelt, f"REGEXP_REPLACE($x, $p, {text(new)}, 'g')")
    return Typed(fill(sql, x=as_text(nodes[0], scope)), STRING)


def _group(nodes: Sequence[Any], groups: int, name: str, scope: Scope) -> int:
    group = 1 if len(nodes) == 2 else constant(nodes[2])
    if not isinstance(group, int):
        raise scope.refuse(nodes[2], f"{name} of another than a constant group in process; pass spark=")
    if not 0 <= group <= groups:
        raise scope.invalid(nodes[1], f"{name}: group {group}, and the pattern has {groups}")
    return group


def _regexp_extract(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    spelt, groups = _pattern(nodes[1], "regexp_extract", scope)
    group = _group(nodes, groups, "regexp_extract", scope)
    sql = _guarded(spelt, f"REGEXP_EXTRACT($x, $p, {group})")
    return Typed(fill(f"CASE WHEN $x IS NOT NULL THEN {sql} END", x=as_text(nodes[0], scope)), STRING)


def _regexp_extract_all(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    spelt, groups = _pattern(nodes[1], "regexp_extract_all", scope)
    group = _group(nodes, groups, "regexp_extract_all", scope)
    return Typed(
        fill(_guarded(spelt, f"REGEXP_EXTRACT_ALL($x, $p, {group})"), x=as_text(nodes[0], scope)), array(STRING)
    )


def _regexp_count(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    spelt, _ = _pattern(nodes[1], "regexp_count", scope)
    sql = _guarded(spelt, "CAST(LEN(REGEXP_EXTRACT_ALL($x, $p, 0)) AS INTEGER)")
    return Typed(fill(sql, x=as_text(nodes[0], scope)), INT)


def _split(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    pattern, value = literal_text(nodes[1], "split", scope), as_text(nodes[0], scope)
    limit = -1 if len(nodes) == 2 else constant(nodes[2])
    if not isinstance(limit, int) or (limit > 0 and (not patterns.is_plain(pattern) or not pattern)):
        raise scope.refuse(
            node, "split with this limit in process: a constant, with a delimiter that is not a pattern; pass spark="
        )
    if not pattern:
        parts = fill("CASE WHEN $x = '' THEN [''] ELSE REGEXP_EXTRACT_ALL($x, '(?s:.)') END", x=value)
    elif patterns.is_plain(pattern):
        parts = fill(f"STRING_SPLIT($x, {text(pattern)})", x=value)
    else:
        spelt, _ = _pattern(nodes[1], "split", scope)
        if _may_be_empty(spelt):
            raise scope.refuse(node, "split by a pattern that matches the empty text in process; pass spark=")
        parts = fill(_guarded(spelt, "STRING_SPLIT_REGEX($x, $p)"), x=value)
    if limit > 0:
        rest = f"ARRAY_TO_STRING(LIST_SLICE($x, {limit}, LEN($x)), {text(pattern)})"
        parts = fill(
            f"CASE WHEN LEN($x) > {limit} THEN LIST_APPEND(LIST_SLICE($x, 1, {limit - 1}), {rest}) ELSE $x END", x=parts
        )
    return Typed(parts, array(STRING))


def _str_to_map(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    between, inside = (
        literal_text(nodes[index], "str_to_map", scope) if len(nodes) > index else default
        for index, default in ((1, ","), (2, ":"))
    )
    if not all(delimiter and patterns.is_plain(delimiter) for delimiter in (between, inside)):
        raise scope.refuse(node, "str_to_map by a delimiter that is empty or a pattern in process; pass spark=")
    if scope.translate(nodes[0], scope).type not in (STRING, VOID):
        raise scope.refuse(node, "str_to_map of another than STRING in process; cast it")
    position = f"INSTR(e, {text(inside)})"
    key = f"CASE WHEN {position} > 0 THEN LEFT(e, {position} - 1) ELSE e END"
    value = f"CASE WHEN {position} > 0 THEN SUBSTRING(e, {position} + {len(inside)}) END"
    entries = (
        f"LIST_TRANSFORM(STRING_SPLIT($x, {text(between)}), lambda e: STRUCT_PACK(key := {key}, value := {value}))"
    )
    return Typed(fill(f"MAP_FROM_ENTRIES({entries})", x=as_text(nodes[0], scope)), SparkType("map", (STRING, STRING)))


def _lower(nodes: Sequence[Any], node: Any, scope: Scope) -> Typed:
    return Typed(fill(_LOWER, x=as_text(nodes[0], scope)), STRING)


SCALARS: Mapping[str, tuple[int, int | None, Builder]] = {
    **dict.fromkeys(("upper", "ucase"), (1, 1, _of_text(_UPPER))),
    **dict.fromkeys(("lower", "lcase"), (1, 1, _lower)),
    "initcap": (1, 1, _of_text(_INITCAP)),
    "concat": (1, None, _concat),
    "concat_ws": (1, None, _concat_ws),
    **dict.fromkeys(("substring", "substr"), (2, 3, _substring)),
    "decode": (2, None, _decode),
    "encode": (2, 2, _encode),
    "unhex": (1, 1, _unhex),
    **dict.fromkeys(("regexp_like", "rlike", "regexp"), (2, 2, _regexp_like)),
    "regexp_replace": (3, 3, _regexp_replace),
    "regexp_extract": (2, 3, _regexp_extract),
    "regexp_extract_all": (2, 3, _regexp_extract_all),
    "regexp_count": (2, 2, _regexp_count),
    "split": (2, 3, _split),
    "str_to_map": (1, 3, _str_to_map),
    "sha2": (2, 2, _sha2),
    "unbase64": (1, 1, _unbase64),
}  # fmt: skip
