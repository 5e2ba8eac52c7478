"""Casts in process as Spark makes them in ANSI mode: DuckDB SQL for a value of a known type.

DuckDB reads more spellings of numbers, dates and times than Spark, and fewer: `1_000`, `2023/05/01`, `epoch`; not
`2023-05`. Text that both read alike is cast; of other text, CAST raises, and TRY_CAST gives null where Spark does and
raises where Spark reads a value.
"""

from __future__ import annotations

from lakeformat.expression.duckdb_sql import text
from lakeformat.sql.translation import spark_types
from lakeformat.sql.translation.spark_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGRAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    SparkType,
    in_duckdb,
)
from lakeformat.sql.translation.templates import fill

_EXACT_DIGITS = 15  # Of decimals whose digits a double holds.
_BYTES = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
_NEVER = "[^\\s\\S]"
_NUMBER = r"\s*[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?\s*"
_DAY = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_HOUR = r"([01]?[0-9]|2[0-3]):[0-5]?[0-9](:[0-5]?[0-9]([.][0-9]{1,9})?)?"
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2}| UTC| [A-Z][A-Za-z]+/[A-Za-z_/]+)?"
_SOME_TIME = r"\s*([+-]?[0-9]{4,7}(-[0-9]{1,2}(-[0-9]{1,2}(\s*|[ T].*))?)?\s*|T?[0-9]{1,2}:.*)"
_FORMS = {  # of text: (read alike by both, read by Spark alone)
    "decimal": (_NUMBER, _NEVER),
    "double": (rf"{_NUMBER}|\s*(?i:nan|[+-]?inf|[+-]?infinity)\s*", r"\s*[+-]?([0-9.]+.*[dDfF]|0[xX].*)\s*"),
    "date": (rf"\s*{_DAY}(\s*|[ T].*)", r"\s*[+-]?[0-9]{4,7}(-[0-9]{1,2}(-[0-9]{1,2}(\s*|[ T].*))?)?\s*"),
    "timestamp": (rf"\s*{_DAY}([ T]{_HOUR}{_ZONE})?\s*", _SOME_TIME),
    "timestamp_ntz": (rf"\s*{_DAY}([ T]{_HOUR})?\s*", _SOME_TIME),
    **dict.fromkeys((type.name for type in INTEGRAL), (r"\s*[+-]?[0-9]+\s*", _NEVER)),
}
_FORMS["float"] = _FORMS["double"]
_TRUE, _FALSE = "('t', 'true', 'y', 'yes', '1')", "('f', 'false', 'n', 'no', '0')"


def cast(value: str, source: SparkType, target: SparkType, is_safe: bool = False) -> str | None:
    """DuckDB SQL of Spark's CAST of a value, or with `is_safe` of TRY_CAST.
    None if this process does not make it as Spark does."""
    if source == target:
        return value
    template = _template("$x", source, target, is_safe)
    return None if template is None else fill(template, x=value)


def widens(source: SparkType, target: SparkType) -> bool:
    """Whether the target holds each value of the source, and DuckDB's cast gives it."""
    if source in (target, VOID):
        return True
    if source.parts and source.name == target.name and len(source.parts) == len(target.parts):
        return all(map(widens, source.parts, target.parts)) and source.labels == target.labels
    if source in INTEGRAL and target in INTEGRAL:
        return INTEGRAL.index(source) < INTEGRAL.index(target)
    if target.name == "decimal" and (source in INTEGRAL or source.name == "decimal"):
        (p, s), (q, r) = spark_types.as_decimal(source).digits, target.digits
        return s <= r and p - s <= q - r
    if target == DOUBLE:
        return source in INTEGRAL or source == FLOAT
    return (source == DATE and target in (TIMESTAMP, TIMESTAMP_NTZ)) or (source, target) == (TIMESTAMP_NTZ, TIMESTAMP)


# --- private ----------------------------------------------------------------------------------------------------------


def _template(value: str, source: SparkType, target: SparkType, is_safe: bool) -> str | None:
    way = "TRY_CAST" if is_safe else "CAST"
    plain = f"{way}({value} AS {in_duckdb(target)})" if spark_types.is_computed(target) else None
    if plain is None or source == VOID or widens(source, target):
        return plain
    if source.name == target.name == "array":
        item = f"_e{value.count('_e')}"
        element = _template(item, source.parts[0], target.parts[0], is_safe)
        return None if element is None else f"LIST_TRANSFORM({value}, lambda {item}: {element})"
    if source == STRING:
        return _read(value, target, is_safe)
    if target == STRING:
        return _written(value, source)
    if target in INTEGRAL:
        return _whole(value, source, target, way)
    if target == BOOLEAN:
        return f"({value} <> 0)" if spark_types.is_number(source) else None
    if target in (FLOAT, DOUBLE):
        return _floating(value, source, target, way)
    if target.name == "decimal":
        if source in (FLOAT, DOUBLE):
            return f"{way}(CAST({value} AS VARCHAR) AS {in_duckdb(target)})"  # Of its shortest digits, as in Spark.
        return plain if spark_types.is_number(source) or source == BOOLEAN else None
    if target in (DATE, TIMESTAMP_NTZ) and spark_types.is_time(source):
        return plain
    return None


def _read(value: str, target: SparkType, is_safe: bool) -> str | None:
    """A value read from text."""
    spelt = in_duckdb(target)
    wrong = "NULL" if is_safe else f"ERROR({text(f'text that is not a valid {target}: ')} || {value})"
    if target == BINARY:
        return f"ENCODE({value})"
    if target == BOOLEAN:
        word = f"LOWER(TRIM({value}, {text(_SPACES)}))"
        return (
            f"CASE WHEN {word} IN {_TRUE} THEN TRUE WHEN {word} IN {_FALSE} THEN FALSE WHEN {value} IS NULL THEN NULL "
            f"ELSE {wrong} END"
        )
    if target.name not in _FORMS:
        return None
    alike, only_spark = _FORMS[target.name]
    way = "TRY_CAST" if is_safe else "CAST"
    day_text = f"REGEXP_EXTRACT({value}, '{_DAY}')" if target == DATE else value
    spark = (
        f"WHEN REGEXP_FULL_MATCH({value}, '{only_spark}') THEN ERROR('in process, "
        f"{spelt} does not read text of this form; pass spark=') "
    )
    return (
        f"CASE WHEN {value} IS NULL THEN NULL WHEN REGEXP_FULL_MATCH({value}, '{alike}') THEN {way}({day_text} AS "
        f"{spelt}) {'' if only_spark == _NEVER else spark}ELSE {wrong} END"
    )


_SPACES = " \t\n\r\x0b\x0c"


def _written(value: str, source: SparkType) -> str | None:
    """A value as text."""
    spelt = f"CAST({value} AS VARCHAR)"
    if source in (FLOAT, DOUBLE):
        size = f"ABS({value})"
        return (
            f"CASE WHEN ISNAN({value}) THEN 'NaN' WHEN ISINF({value}) THEN CASE WHEN {value} > 0 THEN 'Infinity' ELSE "
            f"'-Infinity' END WHEN {value} = 0 OR ({size} >= 0.001 AND {size} < 10000000) THEN {spelt} WHEN {value} IS "
            "NOT NULL THEN ERROR('in process, no float becomes text that is not between 0.001 and 9999999; "
            "cast it to a decimal') END"
        )
    if source.name == "decimal" and source.digits[0] == source.digits[1]:  # DuckDB writes .25
        return f"REGEXP_REPLACE({spelt}, '^(-?)[.]', '\\10.')"
    if source in INTEGRAL or source == BOOLEAN or source.name == "decimal":
        return spelt
    if source == BINARY:
        return f"DECODE({value})"
    if spark_types.is_time(source):
        spelt = f"REGEXP_REPLACE({spelt}, '[+]00$', '')" if source == TIMESTAMP else spelt
        return (
            # Of a time with a zone, YEAR is that of the era: 1 in the year 0.
            f"CASE WHEN YEAR(CAST({value} AS TIMESTAMP)) BETWEEN 1 AND 9999 THEN {spelt} WHEN {value} IS NOT NULL "
            "THEN ERROR('in process, times become text of the years 1 to 9999 only') END"
        )
    return None


def _whole(value: str, source: SparkType, target: SparkType, way: str) -> str | None:
    """A value as a whole number. DuckDB compares a value that is cast before the cast, and would not raise:
    the limits are tested."""
    spelt = in_duckdb(target)
    if source == BOOLEAN:
        return f"{way}({value} AS {spelt})"
    if source == TIMESTAMP:
        value = f"FLOOR(EPOCH({value}))"
    elif source in (FLOAT, DOUBLE) or source.name == "decimal":
        value = f"TRUNC({value})"
    elif source not in INTEGRAL:
        return None
    limit = 2 ** (8 * _BYTES[target.name] - 1)
    wrong = "NULL" if way == "TRY_CAST" else f"ERROR('a number beyond {target}: ' || {value})"
    return (
        f"CASE WHEN {value} >= {-limit} AND {value} < {limit} THEN CAST({value} AS {spelt}) "
        f"WHEN {value} IS NOT NULL THEN {wrong} END"
    )


def _floating(value: str, source: SparkType, target: SparkType, way: str) -> str | None:
    spelt = in_duckdb(target)
    if source.name == "decimal" and source.digits[0] > _EXACT_DIGITS:
        return f"{way}(CAST({value} AS VARCHAR) AS {spelt})"  # DuckDB's own cast rounds twice.
    if source == DOUBLE:
        return (
            f"CASE WHEN ABS({value}) > 3.4028235677973366e38 THEN CAST(SIGN({value}) * CAST('inf' AS DOUBLE) AS FLOAT) "
            f"ELSE {way}({value} AS FLOAT) END"
        )
    if source == BIGINT and target == FLOAT:
        return f"{way}({value} AS {spelt})"
    if source == TIMESTAMP:
        return f"{way}(EPOCH({value}) AS {spelt})"
    return f"{way}({value} AS {spelt})" if spark_types.is_number(source) or source == BOOLEAN else None
