"""The functions that DuckDB evaluates as Spark does, and the translation of a query's tree to DuckDB.

The results of each entry were compared with Spark's over nulls, NaN, negative numbers, old dates and non-Latin scripts
(tests/sql/test_spark.py). Other functions are refused by name. Where Spark's ANSI mode raises (division by zero, an index out
of range), the value is null, as everywhere in this library, or an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sqlglot
from sqlglot import exp

from lakeformat.codec import sql_text
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.predicate import Call, Literal
from lakeformat.sql.text import Piece

_SAME = frozenset({
    "abs", "and", "argmax", "argmin", "array", "arrayagg", "arrayappend", "arrayfilter", "arraymax", "arraymin",
    "arraysort", "arrayslice", "arraytostring", "arrayuniqueagg", "ascii", "atan", "atan2", "avg", "bitwiseandagg",
    "bitwiseoragg", "bitwisexoragg", "case", "cast", "cbrt", "chr", "coalesce", "concat", "concatws", "contains", "cos", "count",
    "countif", "covarpop", "covarsamp", "cumedist", "currentdate", "currenttimestamp", "decodecase", "degrees", "endswith",
    "exp", "explode", "first", "frombase64", "greatest", "groupconcat", "hex", "if", "initcap", "jsonextractscalar", "lag", "last",
    "lastday", "lastvalue", "lead", "least", "left", "ln", "log", "logicaland", "logicalor", "lower", "map", "mapkeys",
    "max", "md5", "median", "min", "nextday", "nthvalue", "nullif", "nvl2", "or", "pad", "percentrank", "pi", "pow", "radians", "rand",
    "reduce", "regexpextract", "regexplike", "regexpreplace", "regexpsplit", "regrslope", "repeat", "replace", "reverse", "right", "round",
    "sha", "sha2", "sin", "space", "splitpart", "sqrt", "startswith", "stddev", "stddevpop", "stddevsamp", "struct", "sum", "tan",
    "timestamptrunc", "timestrtotime", "timetostr", "tobase64", "transform", "translate", "trim", "unhex",
    "upper", "uuid", "varmap", "variance", "variancepop", "xor",
})  # fmt: skip
_ANONYMOUS = frozenset({"mean", "make_date", "map_values", "map_entries", "now"})
_INTEGERS = frozenset({
    "length", "strposition", "datediff", "year", "quarter", "month", "day", "dayofmonth", "dayofyear", "weekofyear", "hour",
    "minute", "second", "unixdate", "arraysize", "bitlength", "rownumber", "rank", "denserank", "ntile",
})  # fmt: skip
_DATES = frozenset({"tsordsadd", "addmonths", "datefromunixdate"})
_PARTS = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE"})
_UNITS = {"MM": "MONTH", "MON": "MONTH", "YY": "YEAR", "YYYY": "YEAR"}
_CONVERSIONS = frozenset({"bigint", "smallint", "tinyint", "float", "decimal", "binary", "date", "timestamp"})
_WHOLE = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})

# Casts that depend on the operand's type, which DuckDB knows only after binding.
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
  WHEN TYPEOF($x) IN ('DOUBLE', 'FLOAT') THEN CAST(TRUNC(TRY_CAST(CAST($x AS VARCHAR) AS DOUBLE)) AS $t)
  WHEN TYPEOF($x) LIKE 'DECIMAL%' THEN CAST(SPLIT_PART(CAST($x AS VARCHAR), '.', 1) AS $t)
  WHEN TYPEOF($x) = 'VARCHAR' AND CAST($x AS VARCHAR) LIKE '%.%' THEN ERROR('text with a point is no whole number')
  ELSE CAST($x AS $t)
END"""
_TRY_WHOLE = (
    _TO_WHOLE.replace(" CAST(TRUNC(", " TRY_CAST(TRUNC(")
    .replace("CAST(SPLIT_PART", "TRY_CAST(SPLIT_PART")
    .replace("ELSE CAST", "ELSE TRY_CAST")
)
_OR_ONE_NULL = "CASE WHEN $x IS NULL OR LEN($x) = 0 THEN [NULL] ELSE $x END"
_TO_BYTES = """
CASE
  WHEN TYPEOF($x) = 'BLOB' THEN CAST($x AS BLOB)
  WHEN TYPEOF($x) = 'VARCHAR' THEN ENCODE(CAST($x AS VARCHAR))
  ELSE ERROR('only text becomes bytes')
END"""


def translated(tree: Any, piece: Piece) -> Any:
    """The tree for DuckDB. Raises `UnsupportedFeature` with the function and its place in the text."""
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            _refuse(node.this or node, piece, "table function")
    for node in tree.find_all(exp.Pivot, exp.MatchRecognize, exp.QueryTransform, exp.Command):
        _refuse(node, piece, "clause")
    for select in tree.find_all(exp.Select):
        select.set("hint", None)  # Hints do not change the rows.
    for group in tree.find_all(exp.Group):
        _regroup(group)
    for node in reversed(list(tree.bfs())):  # Inner nodes before outer ones.
        found = _node(node, piece)
        if found is node:
            continue
        if node is tree:
            tree = found
        else:
            node.replace(found)
    return tree


def variant_gets(tree: Any) -> Iterator[tuple[str, str, str]]:
    """The variant functions of a translated tree: (name, result type, DuckDB's spelling of that type)."""
    for node in tree.find_all(exp.Anonymous):
        if found := node.meta.get(_VARIANT_GET):
            yield node.name, *found


# --- private ----------------------------------------------------------------------------------------------------------


def _regroup(group: Any) -> None:
    """`GROUP BY a, b WITH ROLLUP | WITH CUBE | GROUPING SETS (...)` in DuckDB's form: in place of the columns."""
    for key, kind in (("rollup", exp.Rollup), ("cube", exp.Cube)):
        if any(not each.expressions for each in group.args.get(key) or ()):
            group.set(key, [kind(expressions=group.expressions)])
            group.set("expressions", [])
    if group.args.get("grouping_sets"):
        group.set("expressions", [])


def _node(node: Any, piece: Piece) -> Any:
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Like | exp.ILike):
        return _escaped(node, piece)
    if isinstance(node, exp.Lateral) and node.args.get("outer"):
        _keep_rows(node, piece)
        return node
    if isinstance(node, exp.IntDiv):
        return _typed(node, "BIGINT")
    if isinstance(node, exp.Window) and node.this.key in _INTEGERS:
        return _typed(node, "INT")
    if not isinstance(node, exp.Func):
        return node
    key = node.key
    if key in _REWRITTEN:
        found = _REWRITTEN[key](node)
        if found is None:
            raise _refused(node, piece, "function")
        return found
    if key in _INTEGERS:
        return node if isinstance(node.parent, exp.Window) else _typed(node, "INT")
    if key in _DATES:
        return _typed(node, "DATE")
    if isinstance(node, exp.Anonymous):
        return _anonymous(node, piece)
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


def _template(text: str, type: str = "INT", **parts: Any) -> Any:
    """DuckDB SQL with trees in place of each `$name`."""
    tree = sqlglot.parse_one(text.replace("$t", type), read="duckdb")

    def change(each: Any) -> Any:
        is_place = isinstance(each, exp.Placeholder | exp.Parameter) and each.name in parts
        return exp.Paren(this=parts[each.name].copy()) if is_place else each

    return tree.transform(change)


def _cast(node: Any) -> Any:
    kind = node.to.this.name if isinstance(node.to, exp.DataType) else ""
    safe = bool(node.args.get("safe"))
    if kind == "TIMESTAMP":  # The result of to_timestamp; Spark's TIMESTAMP is an instant.
        node.to.set("this", exp.DataType.Type.TIMESTAMPTZ)
    operand = node.this
    if kind in _WHOLE:  # DuckDB rounds, Spark truncates.
        return _template(_TRY_WHOLE if safe else _TO_WHOLE, x=operand, type=kind)
    if isinstance(operand, exp.Literal) and operand.is_string:
        return node if safe else _strict(node)
    if kind in ("TEXT", "VARCHAR", "CHAR"):
        return _template(_TO_TEXT, x=operand)
    if kind in ("BINARY", "VARBINARY"):
        return _template(_TO_BYTES, x=operand)
    return node if safe else _strict(node)


def _strict(node: Any) -> Any:
    """Spark's CAST fails for values that do not convert; sqlglot reads it as TRY_CAST."""
    return exp.Cast(this=node.this.copy(), to=node.to.copy())


def _anonymous(node: Any, piece: Piece) -> Any:
    name, given = node.name.lower(), node.expressions
    if name in _ANONYMOUS:
        return node
    if name == "variant_get":
        return _variant_get(node, piece)
    if name in _CONVERSIONS and len(given) == 1:
        return _cast(exp.TryCast(this=given[0].copy(), to=exp.DataType.build(name, dialect="spark")))
    if name in _TEMPLATES and len(given) == _TEMPLATES[name][0]:
        return _template(_TEMPLATES[name][1], **dict(zip("xyz", given, strict=False)))
    raise _refused(node, piece, "function")


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
    "pmod": (2, "(($x % $y) + $y) % $y"),
    "nanvl": (2, "CASE WHEN ISNAN($x) THEN $y ELSE $x END"),
    "e": (0, "EXP(1)"),
    "weekday": (1, "CAST((DAYOFWEEK(CAST($x AS DATE)) + 6) % 7 AS INT)"),
    "every": (1, "BOOL_AND($x)"),
    "octet_length": (1, "CAST(STRLEN($x) AS INT)"),
}


def _part(node: Any) -> Any:
    return _typed(node, "INT") if node.this.name.upper() in _PARTS else None


def _truncated(node: Any) -> Any:
    unit = node.args.get("unit")
    name = str(unit.name).upper() if unit is not None else "DAY"
    name = _UNITS.get(name, name)
    if name not in ("YEAR", "QUARTER", "MONTH", "WEEK"):
        return None
    return _template(f"CAST(DATE_TRUNC('{name}', CAST($x AS DATE)) AS DATE)", x=node.this)


def _rounded(node: Any) -> Any:
    return None if node.args.get("decimals") is not None else _typed(node, "BIGINT")


def _substring(node: Any) -> Any:
    start = node.args.get("start")
    if isinstance(start, exp.Neg) and node.args.get("length") is not None:
        return None
    if isinstance(start, exp.Literal):
        if start.name == "0":
            start.replace(exp.Literal.number(1))
        return node
    if start is not None and not isinstance(start, exp.Neg):
        start.replace(_template("CASE WHEN $x = 0 THEN 1 ELSE $x END", x=start))
    return node


def _to_date(node: Any) -> Any:
    if node.args.get("format") is not None:
        return node
    return exp.Cast(this=node.this.copy(), to=exp.DataType.build("DATE"))


def _escaped(node: Any, piece: Piece) -> Any:
    """LIKE with a backslash as escape character, which DuckDB needs stated."""
    pattern = node.expression
    if isinstance(node.parent, exp.Escape) or (isinstance(pattern, exp.Literal) and "\\" not in pattern.name):
        return node
    if isinstance(pattern, exp.Any | exp.All):
        if any("\\" in each.name for each in pattern.find_all(exp.Literal)):
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
    node.this.set("this", _template(_OR_ONE_NULL, x=node.this.this))
    node.set("outer", None)


def _subquery(node: Any) -> Any:
    """EXISTS of a subquery; the array function of the same name is not supported."""
    return node if isinstance(node.this, exp.Query) else None


def _no_struct(node: Any) -> Any:
    return None if isinstance(node.this, exp.Struct) else node


_REWRITTEN: Mapping[str, Callable[[Any], Any]] = {
    "isnan": lambda node: _template("COALESCE(ISNAN($x), FALSE)", x=node.this),
    "nanvl": lambda node: _template("CASE WHEN ISNAN($x) THEN $y ELSE $x END", x=node.this, y=node.expression),
    "dayofweek": lambda node: _template("CAST(DAYOFWEEK(CAST($x AS DATE)) + 1 AS INT)", x=node.this),
    "dayname": lambda node: _template("LEFT(DAYNAME($x), 3)", x=node.this),
    "monthname": lambda node: _template("LEFT(MONTHNAME($x), 3)", x=node.this),
    "sign": lambda node: _template(
        "CASE WHEN ISNAN(CAST($x AS DOUBLE)) THEN CAST('NaN' AS DOUBLE) ELSE CAST(SIGN($x) AS DOUBLE) END", x=node.this
    ),
    "currentdate": lambda node: exp.Anonymous(this="today"),  # A bare `today` would name a column.
    "monthsbetween": lambda node: exp.Round(this=node.copy(), decimals=exp.Literal.number(8)),
    "strtotime": lambda node: _typed(node, "TIMESTAMPTZ"),
    "timestampfromparts": lambda node: _typed(node, "TIMESTAMPTZ"),
    "tsordstodate": _to_date,
    "extract": _part,
    "datetrunc": _truncated,
    "ceil": _rounded,
    "floor": _rounded,
    "substring": _substring,
    "anyvalue": lambda node: exp.First(this=node.this.copy()),
    "firstvalue": lambda node: node if isinstance(node.parent, exp.Window) else exp.First(this=node.this.copy()),
    "quantile": lambda node: _template("CAST(QUANTILE_CONT($x, $y) AS DOUBLE)", x=node.this, y=node.args["quantile"]),
    "exists": _subquery,
    "max": _no_struct,
    "min": _no_struct,
}
