"""The functions that DuckDB evaluates as Spark does, and the translation of a query's tree to DuckDB.

The results of each entry were compared with Spark's over nulls, NaN, negative numbers, old dates and non-Latin scripts
(tests/sql/test_spark.py). Other functions are refused by name. Where Spark's ANSI mode raises (division by zero, an index out
of range), the value is null, as everywhere in this library, or an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlglot import exp

from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.expression import sql_text
from lakeformat.model.partition import TransformKind
from lakeformat.model.predicate import Call, Literal
from lakeformat.sql import casts, transforms
from lakeformat.sql.text import Piece

_SAME = frozenset({
    "abs", "and", "argmax", "argmin", "array", "arrayagg", "arrayappend",  "arraymax", "arraymin",
    "arraysort", "arrayslice", "arraytostring", "arrayuniqueagg", "ascii", "atan", "atan2", "avg", "bitwiseandagg",
    "bitwiseoragg", "bitwisexoragg", "case", "cast", "cbrt", "coalesce", "concat", "concatws", "contains", "cos", "count",
    "countif", "covarpop", "covarsamp", "cumedist", "currentdate", "currenttimestamp", "decodecase", "degrees", "endswith",
    "exp", "explode", "first", "frombase64", "greatest", "groupconcat", "hex", "if", "initcap", "jsonextractscalar", "lag", "last",
    "lastday", "lastvalue", "lead", "least", "ln", "log", "logicaland", "logicalor", "lower", "map", "mapkeys",
    "max", "md5", "median", "min", "nextday", "nthvalue", "nullif", "nvl2", "or", "pad", "percentrank", "pi", "pow", "radians", "rand",
    "reduce", "regexpextract", "regexpsplit", "regrslope", "repeat", "replace", "reverse", "round",
    "sha", "sha2", "sin", "space", "splitpart", "sqrt", "startswith", "stddev", "stddevpop", "stddevsamp", "struct", "sum", "tan",
    "timestrtotime", "tobase64", "translate", "unhex",
    "upper", "uuid", "varmap", "variance", "variancepop", "xor",
})  # fmt: skip
_ANONYMOUS = frozenset({"mean", "make_date", "map_values", "map_entries", "now"})
_INTEGERS = frozenset({
    "length", "strposition", "datediff", "year", "quarter", "month", "day", "dayofmonth", "dayofyear", "weekofyear", "hour",
    "minute", "second", "unixdate", "arraysize", "bitlength", "rownumber", "rank", "denserank", "ntile",
})  # fmt: skip
_DATES = frozenset({"tsordsadd", "addmonths", "datefromunixdate"})
_PARTS = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE"})
_UNITS = {"MM": "MONTH", "MON": "MONTH", "YY": "YEAR", "YYYY": "YEAR", "DD": "DAY"}
_TRUNCATED = _PARTS | {"SECOND", "MILLISECOND", "MICROSECOND"}
_CONVERSIONS = frozenset({"bigint", "smallint", "tinyint", "float", "decimal", "binary", "date", "timestamp"})
_OR_ONE_NULL = "CASE WHEN $x IS NULL OR LEN($x) = 0 THEN [NULL] ELSE $x END"


def translated(tree: Any, piece: Piece) -> Any:
    """The tree for DuckDB. Raises `UnsupportedFeature` with the function and its place in the text."""
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == "range":
            _range(node, piece)
        elif not isinstance(node.this, exp.Identifier):
            _refuse(node.this or node, piece, "table function")
    for node in tree.find_all(exp.Pivot, exp.MatchRecognize, exp.QueryTransform, exp.Command):
        _refuse(node, piece, "clause")
    for select in tree.find_all(exp.Select):
        select.set("hint", None)  # Hints do not change the rows.
        _expand(select, piece)
    for group in tree.find_all(exp.Group):
        _regroup(group)
    for node in reversed(list(tree.bfs())):  # Inner nodes before outer ones.
        rewritten = _node(node, piece)
        if rewritten is node:
            continue
        if node is tree:
            tree = rewritten
        else:
            node.replace(rewritten)
    return tree


def variant_gets(tree: Any) -> Iterator[tuple[str, str, str]]:
    """The variant functions of a translated tree: (name, result type, DuckDB's spelling of that type)."""
    for node in tree.find_all(exp.Anonymous):
        if call := node.meta.get(_VARIANT_GET):
            yield node.name, *call


# --- private ----------------------------------------------------------------------------------------------------------


def _expand(select: Any, piece: Piece) -> None:
    """`SELECT *` of a join by USING: Spark gives the columns of USING first, DuckDB where they stand in the left table."""
    joins = select.args.get("joins") or []
    if not any(isinstance(expression, exp.Star) and not any(_said(expression)) for expression in select.expressions):
        return
    if any(join.args.get("method") == "NATURAL" for join in joins):
        raise piece.script.unsupported(
            piece.origin(_offset(select)), "* of a NATURAL JOIN in process; name the columns"
        )
    names = list(dict.fromkeys(column.name for join in reversed(joins) for column in join.args.get("using") or ()))
    if names:
        first = [exp.column(name, quoted=True) for name in names]
        others = exp.Star(except_=[exp.to_identifier(name, quoted=True) for name in names])
        expanded = [
            [*first, others] if isinstance(expression, exp.Star) else [expression] for expression in select.expressions
        ]
        select.set("expressions", [projection for part in expanded for projection in part])


def _regroup(group: Any) -> None:
    """`GROUP BY a, b WITH ROLLUP | WITH CUBE | GROUPING SETS (...)` in DuckDB's form: in place of the columns."""
    for key, kind in (("rollup", exp.Rollup), ("cube", exp.Cube)):
        if any(not item.expressions for item in group.args.get(key) or ()):
            group.set(key, [kind(expressions=group.expressions)])
            group.set("expressions", [])
    if group.args.get("grouping_sets"):
        group.set("expressions", [])


def _range(table: Any, piece: Piece) -> None:
    """`range([start,] end [, step])`: one column, `id`. The number of Spark's partitions, the fourth argument, has no effect."""
    given = table.this.expressions
    if not 1 <= len(given) <= 4:
        _refuse(table.this, piece, "table function")
    table.this.set("expressions", given[:3])
    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier("range"))
    if not alias.columns:
        alias.set("columns", [exp.to_identifier("id")])
    table.set("alias", alias)


def _node(node: Any, piece: Piece) -> Any:
    if isinstance(node, exp.Add | exp.Sub):
        return _sum(node)
    if isinstance(node, exp.Cast):
        return casts.cast(node)
    if (kind := transforms.called(node)) is not None:
        return _transformed(node, kind)
    if isinstance(node, exp.Like | exp.ILike):
        return _escaped(node, piece)
    if isinstance(node, exp.Lateral) and node.args.get("outer"):
        _keep_rows(node, piece)
        return node
    if isinstance(node, exp.IntDiv):
        return casts.template(_WHOLE_QUOTIENT, x=node.this, y=node.expression)
    if isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE):
        return _compared(node)
    if isinstance(node, exp.Window) and node.this.key in _INTEGERS:
        return _typed(node, "INT")
    return _function(node, piece) if isinstance(node, exp.Func) else node


def _function(node: Any, piece: Piece) -> Any:
    key = node.key
    if key in _REWRITTEN:
        rewritten = _REWRITTEN[key](node)
        if rewritten is None:
            raise _refused(node, piece, "function")
        return rewritten
    if key in _INTEGERS:
        return node if isinstance(node.parent, exp.Window) else _typed(node, "INT")
    if key in _DATES:
        return _typed(node, "DATE")
    if isinstance(node, exp.Anonymous):
        is_translated = isinstance(node.parent, exp.Table) or transforms.is_of_call(node)
        return node if is_translated else _anonymous(node, piece)
    if key not in _SAME:
        raise _refused(node, piece, "function")
    return node


def _refuse(node: Any, piece: Piece, what: str) -> None:
    raise _refused(node, piece, what)


def _refused(node: Any, piece: Piece, what: str) -> UnsupportedFeature:
    name = node.name if isinstance(node, exp.Anonymous) else node.sql_name() if isinstance(node, exp.Func) else node.key
    return piece.script.unsupported(
        piece.origin(_offset(node)),
        f"the {what} {str(name).lower()} is not known to mean in process what it means in Spark; pass spark= for Spark's own",
    )


def _offset(node: Any) -> int:
    return next((n.meta["start"] for n in node.walk() if "start" in n.meta), 0)


def _typed(node: Any, kind: str) -> Any:
    return exp.Cast(this=node.copy(), to=exp.DataType.build(kind))


def _anonymous(node: Any, piece: Piece) -> Any:
    name, given = node.name.lower(), node.expressions
    if name in _ANONYMOUS:
        return node
    if name == "variant_get":
        return _variant_get(node, piece)
    if name in _CONVERSIONS and len(given) == 1:
        return casts.cast(exp.TryCast(this=given[0].copy(), to=exp.DataType.build(name, dialect="spark")))
    if name in _TEMPLATES and len(given) == _TEMPLATES[name][0]:
        return casts.template(_TEMPLATES[name][1], **dict(zip("xyz", given, strict=False)))
    raise _refused(node, piece, "function")


def _transformed(node: Any, kind: TransformKind) -> Any:
    """A call of our own function, which in_process.py registers; truncated values come as text."""
    given = node.expression.expressions
    made = exp.Anonymous(this=transforms.name_of(kind), expressions=[argument.copy() for argument in given])
    if kind is TransformKind.TRUNCATE and len(given) == 2 and not isinstance(given[1], exp.Null):
        return exp.Anonymous(this="cast_to_type", expressions=[made, given[1].copy()])
    return made


def _variant_get(node: Any, piece: Piece) -> Any:
    """A call of our own function, one per result type; in_process.py registers it."""
    try:
        match sql_text.read(
            exp.Anonymous(this="variant_get", expressions=[exp.column("v"), *node.expressions[1:]]), "v"
        ):
            case Call(_, (_, Literal(path), Literal(text))):
                spelt = exp.DataType.build(node.expressions[2].name, dialect="spark").sql(dialect="duckdb")
                name = "_lakeformat_variant_get_" + re.sub(r"\W+", "_", text)
                made = exp.Anonymous(this=name, expressions=[node.expressions[0].copy(), exp.Literal.string(path)])
                made.meta[_VARIANT_GET] = (text, spelt)
                return made
    except InvalidInput as error:
        raise piece.script.invalid(piece.origin(_offset(node)), str(error)) from error
    raise _refused(node, piece, "function")


_VARIANT_GET = "lakeformat_variant_get"
_TEMPLATES = {
    "isnull": (1, "$x IS NULL"),
    "isnotnull": (1, "$x IS NOT NULL"),
    "pmod": (2, "CASE WHEN $x % $y < 0 THEN ($x % $y + $y) % $y ELSE $x % $y END"),
    "nanvl": (2, "CASE WHEN ISNAN($x) THEN $y ELSE $x END"),
    "e": (0, "EXP(1)"),
    "weekday": (1, "CAST((DAYOFWEEK(CAST($x AS DATE)) + 6) % 7 AS INT)"),
    "every": (1, "BOOL_AND($x)"),
    "octet_length": (1, "CAST(STRLEN($x) AS INT)"),
}
_WHOLE_QUOTIENT = """
CASE
  WHEN TYPEOF($x) LIKE '%INT%' AND TYPEOF($y) LIKE '%INT%' THEN CAST($x // $y AS BIGINT)
  ELSE CAST(TRUNC(CAST($x AS DOUBLE) / CAST($y AS DOUBLE)) AS BIGINT)
END"""
_ROUNDED = """
ROUND(
  CASE
    WHEN TYPEOF($x) IN ('DOUBLE', 'FLOAT') AND TRY_CAST(CAST($x AS VARCHAR) AS DECIMAL(38, 20)) IS NOT NULL
      THEN CAST_TO_TYPE(ROUND(TRY_CAST(CAST($x AS VARCHAR) AS DECIMAL(38, 20)), $n), $x)
    ELSE $x
  END, $n)"""
_PLAIN = """
CASE
  WHEN TYPEOF($x) LIKE '%]' OR TYPEOF($x) LIKE 'STRUCT%' THEN ERROR('in process, arrays and structs are not ordered; pass spark=')
  ELSE $y
END"""
_MONTHS = """
CASE
  WHEN TYPEOF($x) = 'DATE' AND TYPEOF($y) = 'DATE' THEN $z
  ELSE ERROR('in process, months_between takes dates; cast its arguments')
END"""
_KNOWN_PARTS = r"%-?[YyBbmdHIMSfgpaA]|%-j|strict"
_TWO = "[0-9]{2}"
_DIGITS = {  # Of text that a part of a format reads.
    "%Y": "[0-9]{4}",
    "%b": "[A-Za-z]{3}",
    "%B": "[A-Za-z]+",
    "%p": "[AP]M",
    "%f": "[0-9]{1,9}",
    "%g": "[0-9]{3}",
    "%j": "[0-9]{3}",
    "%-j": "[0-9]{1,3}",
    **{f"%{letter}strict": _TWO for letter in "mdI"},
    **{f"%{mark}{letter}": "[0-9]{1,2}" for letter in "mdI" for mark in ("", "-")},
    "%Hstrict": "([01][0-9]|2[0-3])",  # DuckDB takes 24:00 and 23:59:60.
    **{f"%{letter}strict": "[0-5][0-9]" for letter in "MS"},
    **{f"%{mark}H": "([01]?[0-9]|2[0-3])" for mark in ("", "-")},
    **{f"%{mark}{letter}": "[0-5]?[0-9]" for letter in "MS" for mark in ("", "-")},
}
_DATE_UNITS = frozenset({"YEAR", "MONTH", "WEEK", "DAY"})
_TIME_OF_DATE = "CASE WHEN TYPEOF($x) = 'DATE' THEN ERROR('in process, a date takes an interval of days or longer; cast it') ELSE $y END"
_DAYS = "CASE WHEN TYPEOF($x) = 'DATE' AND TYPEOF($y) = 'DATE' THEN ERROR('in process, write datediff(a, b) for days between dates') ELSE $x - $y END"
_FORMAT = "%Y-%mstrict-%dstrict %Hstrict:%Mstrict:%Sstrict"  # sqlglot's spelling of yyyy-MM-dd HH:mm:ss.
_LINE_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?$"
_CONTAINS = """
CASE
  WHEN $x IS NULL OR $y IS NULL THEN NULL
  WHEN LIST_CONTAINS($x, $y) THEN TRUE
  WHEN LIST_COUNT($x) = LEN($x) THEN FALSE
END"""
_SECONDS = """
CASE
  WHEN TYPEOF($x) <> 'VARCHAR' THEN CAST(FLOOR(EPOCH(CAST($x AS TIMESTAMPTZ))) AS BIGINT)
  WHEN $x IS NULL OR REGEXP_FULL_MATCH(CAST($x AS VARCHAR), '[0-9]{4}-[0-9]{2}-[0-9]{2} ([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]')
    THEN CAST(FLOOR(EPOCH(CAST(CAST($x AS VARCHAR) AS TIMESTAMPTZ))) AS BIGINT)
  ELSE ERROR('text that is no time of the form yyyy-MM-dd HH:mm:ss')
END"""


def _compared(node: Any) -> Any:
    """`a < b`. In Spark a null inside an array or a struct comes first, in DuckDB last."""
    if any(
        isinstance(operand, exp.Literal | exp.Cast | exp.Placeholder | exp.Subquery)
        for operand in (node.this, node.expression)
    ):
        return node
    return casts.template(_PLAIN, x=node.this, y=node)


def _plain_extreme(node: Any) -> Any:
    """max or min, greatest or least of plain values: see `_compared`."""
    if isinstance(node.this, exp.Struct | exp.Array):
        return None
    if isinstance(node.this, exp.Distinct | exp.Literal):
        return node
    node.set("this", casts.template(_PLAIN, x=node.this, y=node.this))
    return node


def _from_zero(node: Any) -> Any:
    """transform and filter by (element, index): Spark's index begins with 0, DuckDB's with 1."""
    given = node.expression
    if isinstance(given, exp.Lambda) and len(given.expressions) == 2:
        index = given.expressions[1].name
        inner = [
            identifier
            for identifier in given.this.walk()
            if isinstance(identifier, exp.Identifier) and identifier.name == index
        ]
        named = exp.Dot | exp.PropertyEQ | exp.Lambda | exp.Column
        if any(isinstance(identifier.parent, named) and identifier is not given.this for identifier in inner):
            return None
        for identifier in inner:
            new = casts.template("CAST($x - 1 AS INT)", x=identifier)
            if identifier is given.this:
                given.set("this", new)
            else:
                identifier.replace(new)
    return node


def _round(node: Any) -> Any:
    """round(x, n). Spark rounds the decimal text of a double, so 1.005 becomes 1.01."""
    decimals = node.args.get("decimals")
    return node if decimals is None else casts.template(_ROUNDED, x=node.this, n=decimals)


def _formatted(node: Any) -> Any:
    """date_format, to_date and to_timestamp with a format whose letters DuckDB knows."""
    format = node.args.get("format")
    if format is None:
        return node
    if not isinstance(format, exp.Literal):
        return None
    parts = format.name.split("'")
    if len(parts) % 2 == 0 or "" in parts[1::2]:
        return None
    is_output = isinstance(node, exp.TimeToStr)
    spelt = ""
    for index, part in enumerate(parts):
        if index % 2:
            spelt += part.replace("%", "%%")
            continue
        if is_output:  # %g: milliseconds
            part = re.sub("(?<!S)SSS(?!S)", "%g", part)
        if re.search(r"[A-Za-z\[\]{}#]", re.sub(_KNOWN_PARTS, "", part)):  # Brackets: what may be left out.
            return None
        spelt += part
    if not is_output and ("%Y" not in spelt or re.search("%-?[yaA]", spelt)):
        return None  # Without a year DuckDB reads 1900; Spark reads two digits as of 2000 on, and no weekdays.
    node.set("format", exp.Literal.string(spelt))
    return node if is_output else _read_strictly(node, spelt)


def _read_strictly(node: Any, format: str) -> Any:
    """to_date and to_timestamp of text that has the format's digits; DuckDB takes fewer digits, and text after them."""
    parts = re.findall(r"%-?[A-Za-z](?:strict)?|%%|(?s:.)", format)
    form = "".join(_DIGITS.get(part) or re.escape("%" if part == "%%" else part) for part in parts)
    made = node.copy() if isinstance(node, exp.TsOrDsToDate) else _typed(node, "TIMESTAMPTZ")
    text = exp.Cast(this=node.this.copy(), to=exp.DataType.build("VARCHAR"))
    quoted = form.replace("'", "''")
    return casts.template(f"CASE WHEN REGEXP_FULL_MATCH($x, '{quoted}') THEN $y END", x=text, y=made)


def _sum(node: Any) -> Any:
    """A sum or difference with dates: DuckDB makes days of a difference and a time of a date plus an interval."""
    if isinstance(node, exp.Add) and isinstance(node.this, exp.Interval):
        node = exp.Add(this=node.expression.copy(), expression=node.this.copy())
    if isinstance(node.expression, exp.Interval):
        unit = node.expression.args.get("unit")
        is_date = isinstance(unit, exp.Var) and unit.name.upper().rstrip("S") in _DATE_UNITS
        made = (
            exp.Anonymous(this="cast_to_type", expressions=[node.copy(), node.this.copy()]) if is_date else node.copy()
        )
        return made if is_date else casts.template(_TIME_OF_DATE, x=node.this, y=made)
    if isinstance(node, exp.Sub) and not any(
        isinstance(operand, exp.Literal) for operand in (node.this, node.expression)
    ):
        return casts.template(_DAYS, x=node.this, y=node.expression)
    return node


def _replacement(node: Any) -> Any:
    """regexp_replace(text, pattern, replacement) with Java's `$1` as RE2's `\\1`."""
    given = node.args.get("replacement")
    if (
        not isinstance(given, exp.Literal)
        or not given.is_string
        or set(_said(node)) != {"this", "expression", "replacement"}
    ):
        return None
    parts = re.findall(r"\\(?s:.)|[$]\d+|.", given.name, re.DOTALL)
    if any(part in ("$", "\\") or (part[0] == "$" and len(part) > 2) for part in parts):
        return None
    spelt = ["\\" + part[1:] if part[0] == "$" else part[1:] if part[0] == "\\" else part for part in parts]
    spelt = ["\\\\" if character == "\\" else character for character in spelt]
    node.set("replacement", exp.Literal.string("".join(spelt)))
    return node


def _matches(node: Any) -> Any:
    """regexp_like. Java's `$` also matches before a line's end that ends the text."""
    pattern = node.expression
    if isinstance(pattern, exp.Literal) and re.search(r"(?<!\\)(\\\\)*[$]$", pattern.name):
        pattern.replace(exp.Literal.string(pattern.name[:-1] + _LINE_END))
    return node


def _said(node: Any) -> Iterator[str]:
    return (key for key, value in node.args.items() if value not in (None, False, []))


def _part(node: Any) -> Any:
    return _typed(node, "INT") if node.this.name.upper() in _PARTS else None


def _truncated(node: Any) -> Any:
    unit = node.args.get("unit")
    name = str(unit.name).upper() if unit is not None else "DAY"
    name = _UNITS.get(name, name)
    if name not in ("YEAR", "QUARTER", "MONTH", "WEEK"):
        return None
    return casts.template(f"CAST(DATE_TRUNC('{name}', CAST($x AS DATE)) AS DATE)", x=node.this)


def _instant_truncated(node: Any) -> Any:
    unit = node.args["unit"]
    name = _UNITS.get(unit.name.upper(), unit.name.upper())
    if isinstance(unit, exp.Column) or name not in _TRUNCATED:  # Spark gives null for other units.
        return None
    node.set("unit", exp.Var(this=name))
    return node


def _rounded(node: Any) -> Any:
    return None if node.args.get("decimals") is not None else _typed(node, "BIGINT")


# Characters before the text count, as in Spark. DuckDB 1 leaves them out in ASCII text. GREATEST ignores nulls.
_FIRST = "(CASE WHEN $start > 0 THEN $start::BIGINT - 1 WHEN $start < 0 THEN LENGTH($x) + $start ELSE 0 END)"
_WITHIN = (
    "CASE WHEN $start IS NOT NULL AND $length IS NOT NULL THEN SUBSTRING($x, GREATEST(FIRST, 0) + 1, "
    "GREATEST(FIRST + GREATEST($length, 0), 0) - GREATEST(FIRST, 0)) END"
).replace("FIRST", _FIRST)


def _substring(node: Any) -> Any:
    start, length = node.args.get("start"), node.args.get("length")
    if length is not None and not (isinstance(start, exp.Literal) and isinstance(length, exp.Literal)):
        return casts.template(_WITHIN, x=node.this, start=start, length=length)
    if isinstance(start, exp.Literal):
        if start.name == "0":
            start.replace(exp.Literal.number(1))
        return node
    if start is not None and not isinstance(start, exp.Neg):
        start.replace(casts.template("CASE WHEN $x = 0 THEN 1 ELSE $x END", x=start))
    return node


def _to_date(node: Any) -> Any:
    if node.args.get("format") is not None:
        return _formatted(node)
    return casts.cast(exp.Cast(this=node.this.copy(), to=exp.DataType.build("DATE")))


def _escaped(node: Any, piece: Piece) -> Any:
    """LIKE with a backslash as escape character, which DuckDB needs stated."""
    pattern = node.expression
    if isinstance(node.parent, exp.Escape) or (isinstance(pattern, exp.Literal) and "\\" not in pattern.name):
        return node
    if isinstance(pattern, exp.Any | exp.All):
        if any("\\" in literal.name for literal in pattern.find_all(exp.Literal)):
            raise piece.script.unsupported(
                piece.origin(_offset(node)), "LIKE ANY | ALL with a backslash in process; write several LIKE"
            )
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _keep_rows(node: Any, piece: Piece) -> None:
    """LATERAL VIEW OUTER explode(x): a row with a null or empty array gives one row with a null."""
    if not isinstance(node.this, exp.Explode) or isinstance(node.this, exp.Posexplode):
        raise piece.script.unsupported(
            piece.origin(_offset(node)), "LATERAL VIEW OUTER of other functions than explode in process; pass spark="
        )
    node.this.set("this", casts.template(_OR_ONE_NULL, x=node.this.this))
    node.set("outer", None)


def _subquery(node: Any) -> Any:
    """EXISTS of a subquery; the array function of the same name is not supported."""
    return node if isinstance(node.this, exp.Query) else None


def _seconds(node: Any) -> Any:
    """unix_timestamp and to_unix_timestamp, without a format or with the default one."""
    format = node.args.get("format")
    return casts.template(_SECONDS, x=node.this) if format is None or format.name == _FORMAT else None


def _trimmed(node: Any) -> Any:
    if node.expression is None:  # DuckDB's default is any space of Unicode.
        node.set("expression", exp.Literal.string(" "))
    name = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(str(node.args.get("position") or "").upper(), "TRIM")
    return exp.Anonymous(this=name, expressions=[node.this.copy(), node.expression.copy()])


_REWRITTEN: Mapping[str, Callable[[Any], Any]] = {
    "arraycontains": lambda node: casts.template(_CONTAINS, x=node.this, y=node.expression),
    "chr": lambda node: casts.template(
        "CASE WHEN $x < 0 THEN '' ELSE CHR(CAST($x % 256 AS INT)) END", x=node.expressions[0]
    ),
    "grouping": lambda node: _typed(node, "TINYINT") if len(node.expressions) == 1 else None,
    "left": lambda node: casts.template("LEFT($x, GREATEST(CAST($y AS BIGINT), 0))", x=node.this, y=node.expression),
    "right": lambda node: casts.template("RIGHT($x, GREATEST(CAST($y AS BIGINT), 0))", x=node.this, y=node.expression),
    "trim": _trimmed,
    "regexplike": _matches,
    "regexpreplace": _replacement,
    "strtounix": _seconds,
    "isnan": lambda node: casts.template("COALESCE(ISNAN($x), FALSE)", x=node.this),
    "nanvl": lambda node: casts.template("CASE WHEN ISNAN($x) THEN $y ELSE $x END", x=node.this, y=node.expression),
    "dayofweek": lambda node: casts.template("CAST(DAYOFWEEK(CAST($x AS DATE)) + 1 AS INT)", x=node.this),
    "dayname": lambda node: casts.template("LEFT(DAYNAME($x), 3)", x=node.this),
    "monthname": lambda node: casts.template("LEFT(MONTHNAME($x), 3)", x=node.this),
    "sign": lambda node: casts.template(
        "CASE WHEN ISNAN(CAST($x AS DOUBLE)) THEN CAST('NaN' AS DOUBLE) ELSE CAST(SIGN($x) AS DOUBLE) END", x=node.this
    ),
    "currentdate": lambda node: exp.Anonymous(this="today"),  # A bare `today` would name a column.
    "monthsbetween": lambda node: casts.template(
        _MONTHS, x=node.this, y=node.expression, z=exp.Round(this=node.copy(), decimals=exp.Literal.number(8))
    ),
    "strtotime": _formatted,
    "timetostr": _formatted,
    "round": _round,
    "transform": _from_zero,
    "arrayfilter": _from_zero,
    "timestampfromparts": lambda node: _typed(node, "TIMESTAMPTZ"),
    "tsordstodate": _to_date,
    "extract": _part,
    "datetrunc": _truncated,
    "timestamptrunc": _instant_truncated,
    "ceil": _rounded,
    "floor": _rounded,
    "substring": _substring,
    "anyvalue": lambda node: exp.First(this=node.this.copy()),
    "firstvalue": lambda node: node if isinstance(node.parent, exp.Window) else exp.First(this=node.this.copy()),
    "quantile": lambda node: casts.template(
        "CAST(QUANTILE_CONT($x, $y) AS DOUBLE)", x=node.this, y=node.args["quantile"]
    ),
    "exists": _subquery,
    "max": _plain_extreme,
    "min": _plain_extreme,
}
