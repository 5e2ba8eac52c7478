"""Casts in process as Spark makes them in ANSI mode: CASE expressions over the operand's type, which DuckDB knows only after binding.

DuckDB reads more spellings of numbers, dates and times than Spark, and fewer: `1_000`, `2023/05/01`, `epoch`; not `2023-05`. Text that
both read alike is cast; of other text, CAST raises, and TRY_CAST gives null where Spark does and raises where Spark reads a value.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import sqlglot
from sqlglot import exp

_WHOLE = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})
_TEXTS = frozenset({"TEXT", "VARCHAR", "CHAR"})

_TO_TEXT = """
CASE
  WHEN TYPEOF($x) IN ('DOUBLE', 'FLOAT') AND (TRY_CAST(CAST($x AS VARCHAR) AS DOUBLE) IS NULL AND $x IS NOT NULL
    OR CAST($x AS VARCHAR) IN ('inf', '-inf', 'nan')
    OR TRY_CAST(CAST($x AS VARCHAR) AS DOUBLE) NOT BETWEEN -9999999 AND 9999999
    OR (TRY_CAST(CAST($x AS VARCHAR) AS DOUBLE) <> 0 AND ABS(TRY_CAST(CAST($x AS VARCHAR) AS DOUBLE)) < 0.001))
    THEN ERROR('in process, no float becomes text that is not finite, or not between 0.001 and 9999999; cast it to a decimal')
  WHEN TYPEOF($x) = 'BLOB' OR TYPEOF($x) LIKE '%]' OR TYPEOF($x) LIKE 'STRUCT%' OR TYPEOF($x) LIKE 'MAP%'
    THEN ERROR('in process, only plain values become text')
  WHEN TYPEOF($x) = 'TIMESTAMP WITH TIME ZONE' THEN REGEXP_REPLACE(CAST($x AS VARCHAR), '[+]00$', '')
  ELSE CAST($x AS VARCHAR)
END"""
_TO_WHOLE = """
CASE
  WHEN TYPEOF($x) IN ('DOUBLE', 'FLOAT') THEN $cast(TRUNC(TRY_CAST(CAST($x AS VARCHAR) AS DOUBLE)) AS $t)
  WHEN TYPEOF($x) LIKE 'DECIMAL%' THEN $cast(SPLIT_PART(CAST($x AS VARCHAR), '.', 1) AS $t)
  WHEN TYPEOF($x) = 'VARCHAR' THEN $read
  ELSE $cast($x AS $t)
END"""
_TO_BYTES = """
CASE
  WHEN TYPEOF($x) = 'BLOB' THEN CAST($x AS BLOB)
  WHEN TYPEOF($x) = 'VARCHAR' THEN ENCODE(CAST($x AS VARCHAR))
  ELSE ERROR('only text becomes bytes')
END"""
_TO_OTHER = "CASE WHEN TYPEOF($x) = 'VARCHAR' THEN $read ELSE $cast($x AS $t) END"
_READ = """
CASE
  WHEN $x IS NULL THEN NULL
  WHEN REGEXP_FULL_MATCH(CAST($x AS VARCHAR), '$alike') THEN $cast($given AS $t)
  WHEN REGEXP_FULL_MATCH(CAST($x AS VARCHAR), '$only_spark') THEN ERROR('in process, $t does not read text of this form; pass spark=')
  ELSE $wrong
END"""
_BOOLEAN = """
CASE
  WHEN LOWER(TRIM(CAST($x AS VARCHAR))) IN ('t', 'true', 'y', 'yes', '1') THEN TRUE
  WHEN LOWER(TRIM(CAST($x AS VARCHAR))) IN ('f', 'false', 'n', 'no', '0') THEN FALSE
  WHEN $x IS NULL THEN NULL
  ELSE $wrong
END"""
_NEVER = "[^\\s\\S]"
_NUMBER = r"\s*[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?\s*"
_DATE = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_HOUR = r"([01]?[0-9]|2[0-3]):[0-5]?[0-9](:[0-5]?[0-9]([.][0-9]{1,9})?)?"
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2}| UTC| [A-Z][A-Za-z]+/[A-Za-z_/]+)?"
_SOME_TIME = r"\s*([+-]?[0-9]{4,7}(-[0-9]{1,2}(-[0-9]{1,2}(\s*|[ T].*))?)?\s*|T?[0-9]{1,2}:.*)"
_FORMS = {  # of text: (read alike by both, read by Spark alone)
    "DECIMAL": (_NUMBER, _NEVER),
    "DOUBLE": (rf"{_NUMBER}|\s*(?i:nan|[+-]?inf|[+-]?infinity)\s*", r"\s*[+-]?([0-9.]+.*[dDfF]|0[xX].*)\s*"),
    "DATE": (rf"\s*{_DATE}(\s*|[ T].*)", r"\s*[+-]?[0-9]{4,7}(-[0-9]{1,2}(-[0-9]{1,2}(\s*|[ T].*))?)?\s*"),
    "TIMESTAMPTZ": (rf"\s*{_DATE}([ T]{_HOUR}{_ZONE})?\s*", _SOME_TIME),
    "TIMESTAMP": (rf"\s*{_DATE}([ T]{_HOUR})?\s*", _SOME_TIME),
    **dict.fromkeys(_WHOLE, (r"\s*[+-]?[0-9]+\s*", _NEVER)),
}
_FORMS["FLOAT"] = _FORMS["DOUBLE"]
_FORMS["TIMESTAMPNTZ"] = _FORMS["TIMESTAMP"]
_GIVEN = {"DATE": rf"REGEXP_EXTRACT(CAST($x AS VARCHAR), '{_DATE}')"}


def cast(node: Any) -> Any:
    """DuckDB's tree for Spark's CAST or TRY_CAST."""
    kind = node.to.this.name if isinstance(node.to, exp.DataType) else ""
    safe = bool(node.args.get("safe"))
    if kind == "TIMESTAMP":  # The result of to_timestamp; Spark's TIMESTAMP is an instant.
        node.to.set("this", exp.DataType.Type.TIMESTAMPTZ)
        kind = "TIMESTAMPTZ"
    if kind in _TEXTS and isinstance(
        node.this, exp.HexString
    ):  # Text as `to_sql` spells it, whatever Spark's settings.
        with suppress(ValueError):
            node.set("this", exp.Literal.string(bytes.fromhex(node.this.name).decode()))
    operand = node.this
    if _cast_to(operand) == node.to.sql(dialect="duckdb"):
        return operand
    is_text = isinstance(operand, exp.Literal) and operand.is_string
    if isinstance(operand, exp.Literal) and not is_text and (kind == "DOUBLE" or (kind in _WHOLE and operand.is_int)):
        return node if safe else strict(node)
    if kind in _TEXTS:
        return node if is_text else template(_TO_TEXT, x=operand)
    if kind in ("BINARY", "VARBINARY"):
        return node if is_text else template(_TO_BYTES, x=operand)
    if kind not in _FORMS and kind != "BOOLEAN":
        return node if safe else strict(node)
    if is_text and kind in _FORMS and kind != "DATE" and re.fullmatch(_FORMS[kind][0], operand.name):
        return node if safe else strict(node)
    type = node.to.sql(dialect="duckdb")
    wrong = "NULL" if safe else f"ERROR('text that is no {type}')"
    if kind == "BOOLEAN":
        read = _BOOLEAN
    else:
        alike, only_spark = _FORMS[kind]
        read = _READ.replace("$alike", alike).replace("$only_spark", only_spark)
        read = read.replace("$given", _GIVEN.get(kind, "CAST($x AS VARCHAR)"))
    whole = _TO_WHOLE if kind in _WHOLE else _TO_OTHER  # DuckDB rounds to whole numbers, Spark truncates.
    text = whole.replace("$read", read).replace("$wrong", wrong).replace("$cast", "TRY_CAST" if safe else "CAST")
    made = template(text, type, x=operand)
    made.meta[_CAST] = type
    return made


def strict(node: Any) -> Any:
    """Spark's CAST fails for values that do not convert; sqlglot reads it as TRY_CAST."""
    return exp.Cast(this=node.this.copy(), to=node.to.copy())


def template(text: str, type: str = "INT", **parts: Any) -> Any:
    """DuckDB SQL with trees in place of each `$name`, and `type` in place of `$t`. A tree that has a template inside is computed once, as
    the variable of a lambda function: copies of copies would grow with the power of the depth."""
    tree = sqlglot.parse_one(text.replace("$t", type), read="duckdb")
    depths = {name: max((n.meta.get(_DEPTH, 0) for n in part.walk()), default=0) for name, part in parts.items()}
    uses = [node.name for node in tree.walk() if isinstance(node, exp.Placeholder | exp.Parameter)]
    depth = 1 + max(depths.values(), default=0)
    variables = {name: f"_{name}{depth}" for name in parts if depths[name] and uses.count(name) > 1}

    def change(node: Any) -> Any:
        if not isinstance(node, exp.Placeholder | exp.Parameter) or node.name not in parts:
            return node
        if node.name in variables:
            return exp.to_identifier(variables[node.name])
        return exp.Paren(this=parts[node.name].copy())

    made = tree.transform(change)
    for name, variable in variables.items():
        function = exp.Lambda(this=made, expressions=[exp.to_identifier(variable)])
        computed = exp.Transform(this=exp.Array(expressions=[parts[name].copy()]), expression=function)
        made = exp.Bracket(this=computed, expressions=[exp.Literal.number(0)])
    made.meta[_DEPTH] = depth
    return made


# --- private ----------------------------------------------------------------------------------------------------------

_DEPTH = "lakeformat_depth"  # How many templates are in each other.
_CAST = "lakeformat_cast"  # The type that a template casts to.


def _cast_to(node: Any) -> str | None:
    """The DuckDB type that a tree, maybe in parentheses, is cast to."""
    while isinstance(node, exp.Paren):
        node = node.this
    kind = node.meta.get(_CAST)
    return None if kind is None else str(kind)
