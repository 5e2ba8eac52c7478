"""Statements by chance over edge values, in process and on Spark: `python -m tests.sql.differential [COUNT] [SEED]` prints every
statement whose rows differ, that runs in process and Spark refuses, or that says something other than a refusal here.

An error while rows are read (ANSI) counts as none: Spark and DuckDB read the rows and arguments of a query in orders of their own.
"""

import collections
import random
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from lakeformat import Lake, LakeError
from tests.sql import spark_answers

MEMBERS = {
    "n": [
        "i1", "i2", "l1", "y1", "x1", "f1", "m1", "3", "-2", "0", "1.5", "CAST(NULL AS INT)", "({n} + {n})", "({n} - {n})",
        "({n} * {n})", "({n} / 4)", "({n} % 7)", "abs(y1 + 1)", "length({s})", "coalesce({n}, {n})",
        "CASE WHEN {b} THEN {n} ELSE {n} END", "round({n}, 1)", "size(ai1)", "year({d})", "datediff({d}, {d})",
        "nullif({n}, {n})", "greatest({n}, {n})", "least({n}, {n})", "instr({s}, 'a')", "sign({n})", "floor({n})",
        "try_divide({n}, {n})", "try_element_at(ai2, 1)", "mp1['a']", "r1.p", "try_cast({s} AS INT)", "if({b}, {n}, {n})",
    ],
    "s": [
        "s1", "s2", "'a'", "''", "concat({s}, {s})", "upper({s})", "substring({s}, 2, 3)", "trim({s})", "coalesce({s}, {s})",
        "lpad({s}, 5, 'x')", "CASE WHEN {b} THEN {s} END", "date_format({d}, 'yyyy-MM')", "replace({s}, 'a', 'bb')",
        "CAST(i1 AS STRING)", "CAST({d} AS STRING)", "reverse({s})", "split_part({s}, ',', 1)", "r1.q", "CAST(m1 AS STRING)",
        "concat_ws('-', {s}, {s})", "regexp_replace({s}, '[a-c]', '_')", "get_json_object({s}, '$.a')", "array_join(as1, '+')",
    ],
    "b": [
        "b1", "{n} < {n}", "{n} = {n}", "{n} <=> {n}", "{s} LIKE '%a%'", "{s} = {s}", "{n} IS NULL", "NOT ({b})", "({b} AND {b})",
        "({b} OR {b})", "{n} IN (1, 2, NULL)", "{n} BETWEEN -1 AND 5", "array_contains(ai1, 1)", "{s} < {s}", "{d} >= {d}",
        "{s} IS NOT NULL", "exists(ai1, v -> v > 1)", "{s} RLIKE '^[a-z]+$'", "isnan(x1)", "arrays_overlap(ai1, ai2)",
    ],
    "d": [
        "d1", "d2", "DATE '2024-02-29'", "date_add(d1, 3)", "trunc(d2, 'MM')", "CAST(t1 AS DATE)", "last_day(d1)",
        "coalesce({d}, {d})", "add_months(d2, -1)", "if({b}, {d}, {d})",
    ],
}  # fmt: skip
SHAPES = [
    "SELECT k, {n} AS p, {s} AS q FROM t WHERE {b}",
    "SELECT k, {b} AS p, {d} AS q, {n} AS r FROM t",
    "SELECT {s} AS g, count(*) AS c, sum(i1) AS v, max({s}) AS w, min({d}) AS z FROM t GROUP BY {same}",
    "SELECT {d} AS g, count(DISTINCT i1) AS c, avg(m1) AS v FROM t WHERE {b} GROUP BY 1 HAVING count(*) > 1",
    "SELECT DISTINCT {s} AS q FROM t",
    "SELECT a.k, c.k AS m, a.s1 FROM t a JOIN t c ON a.i1 = c.i2 AND a.k < c.k",
    "SELECT a.k, c.k AS m FROM t a LEFT JOIN t c ON a.s1 = c.s2",
    "SELECT k, row_number() OVER (PARTITION BY b1 ORDER BY k) AS p, sum(y1) OVER (ORDER BY k) AS q, lag(s1) OVER (ORDER BY k) AS r FROM t",
    "SELECT k, {n} AS p FROM t WHERE k IN (SELECT k FROM t WHERE {b})",
    "WITH c AS (SELECT k, {n} AS p, {s} AS q FROM t) SELECT q, count(p) AS n FROM c GROUP BY q",
    "SELECT k FROM t WHERE {b} UNION ALL SELECT k FROM t WHERE {b}",
    "SELECT k FROM t WHERE {b} EXCEPT SELECT k FROM t WHERE {b}",
    "SELECT k, {n} AS p FROM t ORDER BY k DESC LIMIT 5",
    "SELECT k, e FROM t LATERAL VIEW explode(ai1) v AS e WHERE {b}",
    "SELECT count(*) AS c, count_if({b}) AS v, max({n}) AS w FROM t",
    "SELECT k, (SELECT max(i2) FROM t) AS p, {s} AS q FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u.i1 = t.i2)",
]  # fmt: skip


def statement(draw: random.Random) -> str:
    text = draw.choice(SHAPES)
    if "{same}" in text:
        group = expression(draw, "s", 2)
        text = text.replace("{s}", group.replace("{", "{{"), 1).replace("{same}", group.replace("{", "{{"))
    return filled(draw, text, 2)


def expression(draw: random.Random, kind: str, depth: int) -> str:
    members = [member for member in MEMBERS[kind] if depth or "{" not in member]
    return filled(draw, draw.choice(members), depth - 1)


def filled(draw: random.Random, text: str, depth: int) -> str:
    while True:
        kinds = [kind for kind in MEMBERS if f"{{{kind}}}" in text]
        if not kinds:
            return text.replace("{{", "{")
        kind = min(kinds, key=lambda kind: text.index(f"{{{kind}}}"))
        text = text.replace(f"{{{kind}}}", expression(draw, kind, max(depth, 0)), 1)


def differences(spark: Any, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """(what is wrong, statement); and ("", outcome) for each statement."""
    lake, table, draw = Lake(tempfile.gettempdir()), spark_answers.table(), random.Random(seed)  # No table is in it.
    for _ in range(count):
        text = statement(draw)
        here, there = answer(lambda: lake.sql(text, t=table).to_arrow()), answer(lambda: spark.sql(text).toArrow())  # noqa: B023
        yield "", f"{here[0]} here, {there[0]} on Spark"
        if here[0] == "foreign":
            yield f"foreign error {here[1]}", text
        elif (here[0], there[0]) == ("rows", "refused"):
            yield f"Spark refuses: {there[1]}", text
        elif (here[0], there[0]) == ("rows", "rows") and here[1] != there[1]:
            lines = [f"{one} | {other}" for one, other in zip(here[1], there[1], strict=False) if one != other]
            yield f"{len(here[1])} rows here, {len(there[1])} on Spark; {lines[:2]}", text


def answer(run: Any) -> tuple[str, Any]:
    """("rows", sorted), ("refused", why) before rows are read, ("error", why) after, or ("foreign", why)."""
    try:
        rows = run()
    except LakeError as error:
        return ("refused" if type(error).__name__ == "UnsupportedFeature" else "error"), str(error)[:200]
    except Exception as error:
        if not type(error).__module__.startswith("pyspark"):
            return "foreign", f"{type(error).__name__}: {error}"[:200]
        return ("refused" if type(error).__name__ in ("AnalysisException", "ParseException") else "error"), str(error)[
            :200
        ]
    try:
        columns = [[rounded(value) for value in column.to_pylist()] for column in rows.columns]
    except OverflowError as error:  # A date or time that Python has not.
        return "error", str(error)
    return "rows", sorted(map(repr, zip(*columns, strict=True)))


def rounded(value: Any) -> Any:
    """A value as text; floats in twelve digits."""
    if isinstance(value, float):
        return spark_answers.plain(float(f"{value:.12g}"))
    return spark_answers.plain(value)


def main(count: int, seed: int) -> int:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1").config("spark.sql.codegen.wholeStage", "false").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("OFF")
    spark_answers.register(spark)
    outcomes: collections.Counter[str] = collections.Counter()
    wrong = 0
    for difference, text in differences(spark, count, seed):
        if difference:
            wrong += 1
            print(difference, text, sep="\n    ", flush=True)
        else:
            outcomes[text] += 1
    print(dict(outcomes), f"{wrong} differences", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]) if sys.argv[1:] else 1000, int(sys.argv[2]) if sys.argv[2:] else 1)))
