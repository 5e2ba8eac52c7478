"""What runs in process gives what Spark gives, over edge values: see spark_answers.py."""

import functools
import math
import random
import re
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lakeformat import InvalidInput, LakeError, UnsupportedFeature
from lakeformat.sql.translation import calls, hashes
from tests.draw import some
from tests.sql import counts, spark_answers
from tests.sql.spark_answers import ROWS, UNASKED, is_of_all_rows, plain

TABLE = spark_answers.table()
SHARDS, AT_ONCE = 8, 30
# Java and C differ in the last digit of these.
INEXACT = {"sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "exp", "ln", "log", "log10", "log2", "log1p", "pow", "power", "cbrt", "hypot", "degrees", "radians", "stddev", "std", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop", "covar_pop", "covar_samp", "corr", "sum", "avg", "mean", "median", "percentile", "percentile_cont"}  # fmt: skip
UNREADABLE = (UNASKED, "ValueError", "OverflowError")  # Python has no such date.


@functools.cache
def answers():
    return spark_answers.load()


class Ours:
    """Our translation of calls, in a database of DuckDB's with the edge values; a row by itself is a table of its own."""

    def __init__(self):
        self.connection = duckdb.connect(config={"enable_external_access": "false", "threads": "1"})
        self.connection.execute("SET GLOBAL TimeZone='UTC'")
        hashes.add(self.connection)
        self.connection.register("given", TABLE)
        self.connection.execute("CREATE TABLE edges AS SELECT * FROM given")

    def ask(self, texts, rows=None):
        """Our values and their types, per call. Raises the library's error, or DuckDB's."""
        where = "" if rows is None else f" WHERE k IN ({', '.join(map(str, rows))})"
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW _lakeformat_0 AS SELECT * FROM edges{where}")
        listed = ", ".join(f"{text} AS c{number}" for number, text in enumerate(texts))
        order = "" if len(texts) == 1 and is_of_all_rows(texts[0]) else " ORDER BY k"
        sql = f"SELECT {listed} FROM t{order}"
        made = spark_answers.translation_of(sql)
        found = self.connection.sql(made.sql).to_arrow_table()
        return [
            ([plain(without_labels(value)) for value in column.to_pylist()], kind_of(type))
            for column, (_, type) in zip(found.columns, made.columns, strict=True)
        ]


def without_labels(value):
    """A value with the fields of structs as lists, as Spark's rows are."""
    match value:
        case dict():
            return [without_labels(item) for item in value.values()]
        case list() | tuple():
            return [without_labels(item) for item in value]
    return value


def kind_of(type):
    """A type as Spark writes it."""
    match type.name:
        case "decimal":
            return f"decimal({type.digits[0]},{type.digits[1]})"
        case "struct":
            return f"struct<{','.join(f'{label}:{kind_of(part)}' for label, part in zip(type.labels, type.parts, strict=True))}>"
    return type.name + (f"<{','.join(map(kind_of, type.parts))}>" if type.parts else "")


def unordered(value):
    return sorted(value, key=repr) if isinstance(value, list) else value


def alike(one, other, is_inexact):
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(a, b, is_inexact) for a, b in zip(one, other, strict=True))
    if one == other or not is_inexact or not isinstance(one, str) or not isinstance(other, str):
        return one == other
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-12, abs_tol=1e-300)
    except ValueError:
        return False


def wrong(ours, text, answer):
    """What is wrong with our answer to a call; None for a right one, and for a refusal."""
    if isinstance(answer, dict):
        return _refused_by_spark(ours, text, answer)
    kind, values = answer
    if "_by(" in text and not re.search(r", \w+[12]\)", text):  # Any row is the first of equal ones.
        return None
    if isinstance(values, dict):
        if values["e"] in UNREADABLE or (
            text.startswith("sum(") and values["e"] == "ARITHMETIC_OVERFLOW"
        ):  # By the order of rows.
            return None
        return _refused_by_spark(ours, text, values)
    failing = [n for n, value in enumerate(values) if isinstance(value, dict) and value["e"] not in UNREADABLE]
    fine = [number for number, value in enumerate(values) if not isinstance(value, dict)]
    is_inexact = bool(INEXACT & {*text.replace("(", " ").split()})
    if fine:
        rows = fine if len(fine) < len(values) else None
        try:
            ((values_here, own),) = ours.ask([text], rows)
        except OverflowError:
            return None
        except (LakeError, duckdb.Error) as error:
            if (
                None in [values[number] for number in fine] and len(fine) > 1
            ):  # Spark gives NULL before it reads the other argument.
                return wrong(ours, text, [kind, [{"e": UNASKED} if value is None else value for value in values]])
            return None if failing or _is_refusal(error) else f"{text}: {str(error)[:200]}, Spark {values}"
        if own != kind:
            return f"{text}: {own}, Spark {kind}"
        theirs = [values[number] for number in fine]
        if "OVER (" in text or "collect_set(" in text or "DISTINCT" in text:  # In any order.
            values_here, theirs = (sorted(map(unordered, side), key=repr) for side in (values_here, theirs))
        different = [(a, b) for a, b in zip(values_here, theirs, strict=True) if not alike(a, b, is_inexact)]
        if different or len(values_here) != len(theirs):
            return f"{text}: (ours, Spark's) {different[:4]}"
    for number in failing[:3]:
        try:
            ours.ask([text], [number])
        except (LakeError, duckdb.Error):
            continue
        return f"{text}: row {number} is {ours.ask([text], [number])[0][0]}, Spark {values[number]}"
    return None


def _refused_by_spark(ours, text, answer):
    try:
        ours.ask([text])
    except (LakeError, duckdb.Error):
        return None
    return f"{text}: runs, Spark {answer}"


def _is_refusal(error):
    """Whether an error says that this process does not compute it, though Spark does."""
    return (
        "in process" in str(error)
        or " is out of range" in str(error)
        or isinstance(error, duckdb.OutOfRangeException | duckdb.NotImplementedException)
    )


def test_calls_that_are_written_out_give_what_spark_gives():
    written = spark_answers.WRITTEN.read_text().splitlines()
    mistakes = mistaken([(text, answer) for text, answer in answers().items() if text in written])
    assert not mistakes, "\n".join(mistakes)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_runs_in_process_gives_what_spark_gives(shard):
    recorded = list(answers().items())[shard::SHARDS]
    recorded = some(recorded, len(recorded) // 8, shard)
    mistakes = mistaken(recorded)
    assert not mistakes, f"{len(mistakes)} of {len(recorded)}:\n" + "\n".join(mistakes)


def mistaken(recorded):
    """What is wrong with our answers to these calls; many of them are asked in one query."""
    ours = Ours()
    plain_ones = [
        (text, answer) for text, answer in recorded
        if isinstance(answer, list) and isinstance(answer[1], list) and len(answer[1]) == ROWS
        and not any(isinstance(value, dict) for value in answer[1]) and not is_of_all_rows(text)
    ]  # fmt: skip
    settled = set()
    for start in range(0, len(plain_ones), AT_ONCE):
        batch = plain_ones[start : start + AT_ONCE]
        try:
            found = ours.ask([text for text, _ in batch])
        except (LakeError, duckdb.Error):
            continue
        for (text, (kind, values)), (here, own) in zip(batch, found, strict=True):
            if own == kind and here == values:
                settled.add(text)
    rest = (wrong(ours, text, answer) for text, answer in recorded if text not in settled)
    return [mistake for mistake in rest if mistake is not None]


def test_each_function_that_runs_in_process_is_compared():
    compared = {
        name
        for text, answer in answers().items()
        if isinstance(answer, list)
        for name in re.findall(r"\b(\w+)\(", text.lower())
    }
    generators = {"explode", "explode_outer", "posexplode", "posexplode_outer"}
    assert calls.names() - spark_answers.UNSTABLE - generators <= compared


def test_the_page_has_the_counts():
    page = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
    assert [sentence for sentence in counts.sentences() if sentence not in page] == []


def test_averages_and_quotients_of_decimals(lake):
    values = pa.table({"d": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(10, 2))})
    found = lake.sql("SELECT avg(d), sum(d) / 7 FROM v", v=values).to_arrow()
    assert [column[0].as_py() for column in found.columns] == [Decimal("1.875000"), Decimal("0.535714")]
    quotients = lake.sql("SELECT d / 7 AS q, d / 0.3 AS r FROM v", v=values).to_arrow()
    assert quotients["q"].to_pylist() == [Decimal("0.214286"), Decimal("0.321429"), None]
    assert quotients["r"].to_pylist() == [Decimal("5.000000"), Decimal("7.500000"), None]


def test_separators_and_functions_of_arrays_take_columns_of_their_own_row(lake):
    """DuckDB's ARRAY_TO_STRING takes no separator of a column, and its LIST_REDUCE takes those of other rows."""
    draw = random.Random(7)
    lists = [[draw.choice("pqr") for _ in range(draw.randrange(4))] for _ in range(500)]
    given = pa.table({"i": range(500), "x": lists, "s": [draw.choice(["", "-", "::"]) for _ in lists]})
    found = lake.sql(
        "SELECT s, x, array_join(x, s) AS a, concat_ws(s, x, s) AS c, substring_index('k-l::m', s, 1) AS u,"
        " transform(x, v -> concat(v, s)) AS t FROM given ORDER BY i",
        given=given,
    )
    for row in found.to_arrow().to_pylist():
        s, x = row["s"], row["x"]
        assert (row["a"], row["c"]) == (s.join(x), s.join([*x, s]))
        assert row["u"] == ("k-l::m".split(s)[0] if s else "")
        assert row["t"] == [v + s for v in x]
    with pytest.raises(UnsupportedFeature, match="a function that reads columns, in aggregate"):
        lake.sql("SELECT aggregate(x, '', (a, v) -> concat(a, v, s)) AS g FROM given", given=given)
    ordered = lake.sql("SELECT listagg(s) WITHIN GROUP (ORDER BY 'a', i) AS l FROM given", given=given)
    assert ordered.to_arrow()["l"].to_pylist() == ["".join(given["s"].to_pylist())]


def test_the_sets_of_groups_are_told_apart(lake):
    """By keys that are columns, positions and aliases."""
    given = pa.table({"dt": ["a", "a", "b", "b"], "id": [1, 3, 2, 4]})
    for keys in ("dt, id > 2", "1, 2", "d, id > 2"):
        key = "d" if keys.startswith("d,") else "dt"
        query = f"SELECT dt AS d, id > 2 AS late, grouping_id() AS g, grouping({key}) AS h FROM given GROUP BY {keys} WITH CUBE"
        groups = {tuple(row.values()) for row in lake.sql(query, given=given).to_arrow().to_pylist()}
        assert {(d is None, late is None, g, h) for d, late, g, h in groups} == {
            (False, False, 0, 0), (False, True, 1, 0), (True, False, 2, 1), (True, True, 3, 1)
        }  # fmt: skip
    for wrong in ("grouping_id(dt)", "grouping(id)"):
        with pytest.raises(InvalidInput, match="GROUP BY"):
            lake.sql(f"SELECT {wrong} FROM given GROUP BY dt, id > 2 WITH CUBE", given=given)
    with pytest.raises(InvalidInput, match="a position outside"):
        lake.sql("SELECT dt, grouping_id() FROM given GROUP BY ROLLUP (3)", given=given)
    with pytest.raises(InvalidInput, match="stands beside GROUPING SETS"):
        lake.sql("SELECT grouping_id() FROM given GROUP BY dt", given=given)


def test_variables_of_lambda_functions_are_not_looked_for_in_text(lake):
    result = lake.sql(
        "SELECT zip_with(array('a', 'b'), array('c'), (p, q) -> concat_ws('_v0_v1 _v1', p, q)) AS z,"
        " transform(array('a'), (p, n) -> concat('_v1 ', n, p)) AS t"
    )
    assert result.to_arrow().to_pylist() == [{"z": ["a_v0_v1 _v1c", "b"], "t": ["_v1 0a"]}]
