"""Calls of SQL functions and operators over edge values, and what Spark answers: `python -m tests.sql.spark_answers [COUNT]` asks
Spark for the answers that spark_answers.json.gz lacks, at most COUNT of them, which test_spark_answers.py compares with ours.

The calls are generated: each function that runs in process, with each number of arguments, over columns of each type and constants;
spark_calls.txt has those whose arguments chance does not hit upon. Calls that we refuse are left out: a refusal is never a wrong
answer, so only what runs is recorded and compared.
"""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
import json
import logging
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lakeformat import LakeError
from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.expression import sql_text
from lakeformat.sql.text import Piece, Script, parse
from lakeformat.sql.translation import signatures, special
from lakeformat.sql.translation.queries import Translated, translated
from lakeformat.sql.translation.scopes import Rows
from lakeformat.sql.translation.spark_types import of_model

FILE = Path(__file__).with_name("spark_answers.json.gz")
WRITTEN = Path(__file__).with_name("spark_calls.txt")
ROWS = 24
NAN, INF = float("nan"), float("inf")
UTC = dt.UTC
VALUES: dict[str, tuple[Any, str, list[Any]]] = {
    "b": (pa.bool_(), "boolean", [True, False, None]),
    "y": (pa.int8(), "tinyint", [0, 1, -1, 127, -128, None, 5]),
    "i": (pa.int32(), "int", [0, 1, -1, 2, 3, -7, 31, 2147483647, -2147483648, None, 12, 100, -2]),
    "l": (pa.int64(), "bigint", [0, 1, -1, 5, 9007199254740993, 9223372036854775807, -9223372036854775808, None, 1700000000, 255, -3]),
    "f": (pa.float32(), "float", [0.0, -0.0, 0.1, 1.5, -2.5, 3.4e38, NAN, INF, -INF, None, 16777216.0, 100.25]),
    "x": (pa.float64(), "double", [0.0, -0.0, 0.1, 0.5, -0.5, 1.005, 2.5, -2.5, 1e6, 1e-5, 1e20, 1e308, NAN, INF, -INF, None, 123456.789, -7.0, 3.0]),
    "m": (pa.decimal128(10, 2), "decimal(10,2)", [Decimal(v) if v else None for v in ("0.00", "1.25", "-2.35", "99999999.99", "-99999999.99", None, "0.01", "7.50", "-0.50", "100.00", "2.50")]),
    "n": (pa.decimal128(38, 18), "decimal(38,18)", [Decimal(v) if v else None for v in ("0", "1.5", "12345678901234567890.123456789012345678", "-0.000000000000000001", None, "-7")]),
    "s": (pa.string(), "string", ["", " ", "a", "abc", " Hello World ", "ünïcödé", "Straße", "İx", "数据 x", "1", " 12 ", "1.5", "-0", "1e3", "NaN", "2023-05-01", "2023-05-01 12:34:56", "true", "no", None, "a,b,,c", "%_", "\\", "a\nb", "MO", "UTC", "America/New_York", '{"a": 1, "b": {"c": "x"}, "d": [1, null]}', "QUJD", "4142", "ABC abc", "aXbXc"]),
    "w": (pa.binary(), "binary", [b"", b"ab", b"abc", None, b"12", b"\x00\x7f"]),
    "d": (pa.date32(), "date", [dt.date(1970, 1, 1), dt.date(2023, 5, 1), dt.date(2024, 2, 29), dt.date(1969, 12, 31), dt.date(1900, 1, 1), dt.date(1582, 10, 4), dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(2023, 12, 31), dt.date(2023, 1, 31)]),
    "t": (pa.timestamp("us", "UTC"), "timestamp", [dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(2023, 5, 1, 12, 34, 56, 789000, UTC), dt.datetime(2024, 2, 29, 23, 59, 59, 999999, UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 500000, UTC), dt.datetime(1900, 1, 1, tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None, dt.datetime(2023, 3, 26, 1, 30, tzinfo=UTC), dt.datetime(2023, 12, 31, 1, tzinfo=UTC)]),
    "z": (pa.timestamp("us"), "timestamp_ntz", [dt.datetime(1970, 1, 1), dt.datetime(2023, 5, 1, 12, 34, 56, 789000), dt.datetime(2024, 2, 29, 23, 59, 59, 999999), dt.datetime(1969, 12, 31, 23, 59, 59, 500000), dt.datetime(1900, 1, 1), None, dt.datetime(2023, 12, 31, 1)]),
    "ai": (pa.list_(pa.int32()), "array<int>", [[], [1], [1, 2, 3], [None], [None, 5, 5], [3, 1, 2, 1], None, [2147483647, -1]]),
    "as": (pa.list_(pa.string()), "array<string>", [[], ["a"], ["b", None, "a"], ["", "B"], None, ["a", "a"]]),
    "ax": (pa.list_(pa.float64()), "array<double>", [[1.5, NAN, -0.0], [], None, [None, 0.0], [INF, 2.5]]),
    "aa": (pa.list_(pa.list_(pa.int32())), "array<array<int>>", [[[1], [2, 3]], [], None, [None, [1]], [[]]]),
    "mp": (pa.map_(pa.string(), pa.int32()), "map<string,int>", [[], [("a", 1)], [("a", None), ("b", 2)], None, [("", 5)]]),
    "r": (pa.struct([("p", pa.int32()), ("q", pa.string())]), "struct<p:int,q:string>", [{"p": 1, "q": "z"}, {"p": None, "q": ""}, None, {"p": 3, "q": None}]),
}  # fmt: skip
ROWS_OF_ERRORS, UNASKED = 6, "not asked"  # A call that raises for some row is recorded for a few.
COPIES = (1, 2, 3)
_STEPS = {1: 1, 2: 5, 3: 7}
STRINGS = [
    "", "a", ",", " ", "b", "%", "a%", "_b%", "\\%", "x", "X", "UTC", "America/New_York", "MO", "fri", "yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "dd/MM/yyyy",
    "MMM d yyyy", "HH:mm:ss.SSS", "EEEE", "hh:mm a", "yyyyMMdd", "year", "MONTH", "week", "quarter", "DAY", "hour", "minute", "SECOND", "MM", "dow", "doy",
    "[a-z]", "[a-z]+", "(a)(b)?", "l+", "^a", "c$", "[,X]", "\\\\d+", "$.a", "$.b", "$.b.c", "$.d[0]", "$.d[*]", "$", "a.b", "$1", "utf-8", "true",
]  # fmt: skip
CONSTANTS = [
    *(f"'{text}'" for text in STRINGS),
    *map(str, (0, 1, 2, 3, -1, -2, 7, 256, 2147483648)),
    "1.5", "-2.5", "0.1", "1e3", "CAST(0.1 AS FLOAT)", "NULL", "true", "DATE'2024-02-29'", "TIMESTAMP'2024-02-29 12:00:00'", "array(1, 2)", "array()", "array('a', NULL)",
]  # fmt: skip
OPERATORS = [
    "{} + {}", "{} - {}", "{} * {}", "{} / {}", "{} % {}", "{} div {}", "{} = {}", "{} <> {}", "{} < {}", "{} >= {}", "{} <=> {}", "{} AND {}", "{} OR {}",
    "{} || {}", "{} & {}", "{} | {}", "{} ^ {}", "{} LIKE {}", "{} NOT LIKE {}", "{} NOT ILIKE {}", "{} NOT RLIKE {}", "{} IS DISTINCT FROM {}", "{} NOT BETWEEN {} AND 3", "{} ILIKE {}", "{} RLIKE {}", "{} IN ({})", "{} NOT IN ({}, NULL)", "{}[{}]", "nullif({}, {})",
    "CASE WHEN b1 THEN {} ELSE {} END", "CASE {} WHEN {} THEN 1 ELSE 0 END",
]  # fmt: skip
UNARY = [
    "-{}", "~{}", "NOT {}", "{} IS NULL", "{} IS TRUE", "{} IS NOT FALSE", "{} BETWEEN 0 AND 5", "CASE WHEN {} THEN 1 END", "{}.p", "{}['p']",
    "trim(BOTH 'a' FROM {})", "extract(YEAR FROM {})", "extract(SECOND FROM {})", "position('a' IN {})", "substring({} FROM 2 FOR 1)",
    "transform({}, v -> v)", "transform({}, (v, n) -> n)", "filter({}, v -> v IS NOT NULL)", "filter({}, (v, n) -> n > 0)", "exists({}, v -> v = 1)",
    "forall({}, v -> v > 0)", "aggregate({}, 0, (p, q) -> p + q)", "aggregate({}, 0, (p, q) -> p, p -> p + 1)", "timestampdiff(HOUR, t1, {})",
    "datediff(DAY, {}, t1)", "timestampadd(MONTH, i1, {})", "dateadd(DAY, 3, {})", "dateadd(HOUR, 5, {})", "{} IN (SELECT i2 FROM t)",
    "make_timestamp(2024, 2, 29, 1, 2, {})", "(SELECT max({}) FROM t)",
    *(f"{{}} {sign} INTERVAL {amount}" for sign in "+-" for amount in ("1 DAY", "1 MONTH", "2 WEEKS", "3 YEARS", "5 HOURS", "90 MINUTES", "1.5 SECONDS")),
]  # fmt: skip
CASTS = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(38,18)", "decimal(4,1)", "string", "binary", "date", "timestamp", "timestamp_ntz", "array<bigint>"]  # fmt: skip
UNSTABLE = {"rand", "random", "uuid", "now", "current_timestamp", "current_date", "curdate", "variant_get", "grouping"}
MOST_PER_SHAPE, MOST_TRIED = 2, 24


def table() -> pa.Table:
    """The edge values: three columns of each type, each in an order of its own, so that pairs differ from row to row."""
    columns: dict[str, pa.Array] = {"k": pa.array(range(ROWS), pa.int32())}
    for name, (type, _, values) in VALUES.items():
        for copy in COPIES:
            shift, step = copy * 3, _STEPS[copy]
            columns[f"{name}{copy}"] = pa.array(
                [values[(shift + row * step + row // len(values)) % len(values)] for row in range(ROWS)], type
            )
    return pa.table(columns)


def generated() -> list[str]:
    """The calls that run in process: those written out, and of each function and number of arguments at most so many by chance."""
    chosen = [text for text in WRITTEN.read_text().splitlines() if translates(text)]
    for _, shapes in itertools.groupby(_shapes(), key=lambda pair: pair[0]):
        candidates = list(dict.fromkeys(text for _, text in shapes))
        random.Random(candidates[0]).shuffle(candidates)
        accepted = 0
        for text in candidates[:MOST_TRIED]:
            if accepted < MOST_PER_SHAPE and translates(text):
                chosen.append(text)
                accepted += 1
    return chosen


def translates(text: str) -> bool:
    """Whether we accept a call; DuckDB may refuse it still."""
    try:
        translation_of(f"SELECT {text} AS c FROM t")
    except (LakeError, RecursionError):
        return False
    return True


def translation_of(sql: str) -> Translated:
    """The translation of a query of the table of edge values, `t`."""
    piece = Piece(Script(sql, sql, ()), sql, ((0, 0),))
    tree = parse(piece, dialect=sql_text.plain())
    tables = {node.this.meta.get("start", -1): TABLE for node in tree.find_all(exp.Table)}
    made = translated(tree, piece, tables, {})
    return replace(made, sql=re.sub(r"_lakeformat_\d+ AS", "_lakeformat_0 AS", made.sql))


def load() -> dict[str, Any]:
    """The recorded answers: per call its type and a value, or an error, of each row."""
    return json.loads(gzip.decompress(FILE.read_bytes()))


def plain(value: Any) -> Any:
    """A value as JSON has it, such that equal values of one type are equal texts."""
    match value:
        case float():
            return "nan" if value != value else repr(value + 0.0)
        case Decimal():
            return f"{value:f}"
        case bytes() | bytearray():
            return bytes(value).hex()
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat()
        case dt.date():
            return value.isoformat()
        case dict():
            return [[plain(key), plain(item)] for key, item in value.items()]
        case list() | tuple():
            return [plain(item) for item in value]
    return value


# --- private ----------------------------------------------------------------------------------------------------------


def _columns(copy: int) -> list[str]:
    return [f"{name}{copy}" for name in VALUES]


def _shapes() -> Iterator[tuple[Any, str]]:
    """(shape, call): the calls of one shape, a function with a number of arguments, follow each other."""
    for operator in OPERATORS:
        for pair in itertools.product(_columns(1), _columns(2)):
            yield ("operator", operator), operator.format(*pair)
        for column, constant in itertools.product(_columns(1), CONSTANTS):
            yield ("constant", operator), operator.format(column, constant)
        for constant, column in itertools.product(CONSTANTS, _columns(1)):
            yield ("constant first", operator), operator.format(constant, column)
        for pair in itertools.product(CONSTANTS, CONSTANTS):
            yield ("constants", operator), operator.format(*pair)
    for operator in UNARY:
        for argument in (*_columns(1), *CONSTANTS):
            yield ("unary", operator), operator.format(argument)
    for kind, way in itertools.product(CASTS, ("CAST", "TRY_CAST")):
        for argument in (*_columns(1), *CONSTANTS):
            yield ("cast", kind, way), f"{way}({argument} AS {kind})"
    for name in sorted({*signatures.SCALARS, *special.SCALARS} - UNSTABLE):
        yield (name, 0), f"{name}()"
        for argument in (*_columns(1), *CONSTANTS):
            yield (name, 1), f"{name}({argument})"
        for pair in itertools.product(_columns(1), _columns(2)):
            yield (name, 2), f"{name}({', '.join(pair)})"
        for pair in itertools.product(_columns(1), CONSTANTS):
            yield (name, 2, "constant"), f"{name}({', '.join(pair)})"
        for pair in itertools.product(CONSTANTS, _columns(1)):
            yield (name, 2, "constant first"), f"{name}({', '.join(pair)})"
        draw = random.Random(name)
        for count in (3, 4, 6):
            for _ in range(900):
                first = draw.choice(_columns(1))
                rest = [draw.choice(draw.choice((_columns(2), CONSTANTS, _columns(3)))) for _ in range(count - 1)]
                yield (name, count), f"{name}({', '.join([first, *rest])})"
    for name in sorted({*signatures.AGGREGATES, *special.AGGREGATES} - UNSTABLE):
        for argument in (*_columns(1), *CONSTANTS, "*"):
            yield (name, "aggregate", 1), f"{name}({argument})"
            yield (name, "distinct", 1), f"{name}(DISTINCT {argument})"
            yield (name, "filter", 1), f"{name}({argument}) FILTER (WHERE b2)"
            yield (name, "window", 1), f"{name}({argument}) OVER (PARTITION BY b2 ORDER BY k)"
            yield (name, "frame", 1), f"{name}({argument}) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
            yield (name, "within", 1), f"{name}(0.25) WITHIN GROUP (ORDER BY {argument})"
            yield (name, "within", 2), f"{name}({argument}) WITHIN GROUP (ORDER BY k)"
        for pair in itertools.product(_columns(1), (*_columns(2), *CONSTANTS)):
            yield (name, "aggregate", 2), f"{name}({', '.join(pair)})"
    for name in sorted(signatures.WINDOWS):
        yield (name, "window", 0), f"{name}() OVER (ORDER BY k)"
        yield (name, "window", 0), f"{name}() OVER (PARTITION BY b1 ORDER BY i1)"
        for given in itertools.chain(
            ((column,) for column in (*_columns(1), *CONSTANTS)),
            itertools.product(_columns(1), CONSTANTS),
            itertools.product(_columns(1), ("1", "2"), (*_columns(2), "NULL", "0")),
        ):
            yield (name, "window", len(given)), f"{name}({', '.join(given)}) OVER (ORDER BY k)"


EMPTY = table().slice(0, 0)
TABLE = Rows(("t",), tuple((field.name, of_model(field.type)) for field in fields_from_arrow(EMPTY.schema)))


def is_of_all_rows(text: str) -> bool:
    """Whether the value depends on more rows than its own."""
    return "OVER (" in text or "(SELECT" in text or text.split("(")[0] in {*signatures.AGGREGATES, *special.AGGREGATES}


def _literal(value: Any, kind: str) -> str:
    match value:
        case None:
            return f"CAST(NULL AS {kind})"
        case bool():
            return str(value)
        case float() if kind in ("float", "double"):
            return f"CAST('{value!r}' AS {kind})"
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            return f"{'TIMESTAMP_NTZ' if kind == 'timestamp_ntz' else 'TIMESTAMP'}'{value.replace(tzinfo=None).isoformat(' ')}'"
        case dt.date():
            return f"DATE'{value.isoformat()}'"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
            return f"'{escaped}'"
        case list() if kind.startswith("map"):
            parts = ", ".join(f"{_literal(a, 'string')}, {_literal(b, 'int')}" for a, b in value)
            return f"CAST(map({parts}) AS {kind})"
        case list():
            return f"CAST(array({', '.join(_literal(item, kind[6:-1]) for item in value)}) AS {kind})"
        case dict():
            return f"CAST(named_struct('p', {_literal(value['p'], 'int')}, 'q', {_literal(value['q'], 'string')}) AS {kind})"
        case _:
            return f"CAST({value} AS {kind})"


def register(spark: Any) -> tuple[list[str], str]:
    """Make the edge values the view `t`; its rows as text, and the names of its columns."""
    names, kinds = ["k"], ["int"]
    for name, (_, kind, _) in VALUES.items():
        names += [f"{name}{copy}" for copy in COPIES]
        kinds += [kind] * len(COPIES)
    lines = [
        "(" + ", ".join(_literal(row[name], kind) for name, kind in zip(names, kinds, strict=True)) + ")"
        for row in table().to_pylist()
    ]
    listed = ", ".join(names)
    spark.sql(f"SELECT * FROM VALUES {', '.join(lines)} AS v({listed})").createOrReplaceTempView("t")
    return lines, listed


def record(texts: list[str]) -> None:
    """Add Spark's answers to these calls."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC")
    for key, value in {
        "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.driver.memory": "1g",
    }.items():  # fmt: skip
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    logging.disable(logging.CRITICAL)
    lines, listed = register(spark)
    for number, line in enumerate(lines):
        spark.sql(f"SELECT * FROM VALUES {line} AS v({listed})").createOrReplaceTempView(f"t{number}")
    print(len(texts), "calls", flush=True)
    answers = load()
    for number, text in enumerate(texts, 1):
        answers[text] = _answer(spark, text)
        if number % 200 == 0 or number == len(texts):
            FILE.write_bytes(
                gzip.compress(json.dumps(answers, separators=(",", ":"), sort_keys=True).encode(), mtime=0)
            )
            print(number, text, answers[text] if len(str(answers[text])) < 200 else "", flush=True)
    spark.stop()


def _answer(spark: Any, text: str) -> Any:
    """[type, values]; a value that is an error is {"e": its class}. {"e": class} alone: Spark refuses the call."""
    try:
        frame = spark.sql(f"SELECT {text} AS c FROM t")
        kind = frame.schema["c"].dataType.simpleString()
    except Exception as error:
        return {"e": _class(error)}
    try:
        return [kind, [plain(row.c) for row in frame.collect()]]
    except Exception as error:
        if is_of_all_rows(text):
            return [kind, {"e": _class(error)}]
    values: list[Any] = [{"e": UNASKED}] * ROWS
    for number in random.Random(text).sample(range(ROWS), ROWS_OF_ERRORS if re.search(r"\b[a-z]+[123]\b", text) else 1):
        try:
            values[number] = plain(spark.sql(f"SELECT {text} AS c FROM t{number}").collect()[0].c)
        except Exception as error:
            values[number] = {"e": _class(error)}
    return [kind, values]


def _class(error: Exception) -> str:
    condition = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", lambda: None)
    return str(condition() or type(error).__name__)


if __name__ == "__main__":
    recorded = load()
    record([text for text in generated() if text not in recorded][: int(sys.argv[1]) if sys.argv[1:] else None])
