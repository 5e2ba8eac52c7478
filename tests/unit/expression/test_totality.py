"""Conditions that scans may evaluate before those that a query tests first."""

import pyarrow as pa
import pytest

from lakeformat.expression import evaluation, totality
from lakeformat.expression.sql_text import parse

EMPTY = pa.schema(
    {"i": pa.int32(), "b": pa.int64(), "f": pa.float64(), "s": pa.string(), "d": pa.date32(), "t": pa.timestamp("us", "UTC"), "p": pa.decimal128(5, 2), "o": pa.bool_()}
).empty_table()  # fmt: skip
TOTAL = [
    "i > 5", "i = 5 / 2", "d > date_sub(date '2024-01-01', 7)", "s IN ('a', NULL)", "s LIKE 'a%' OR NOT o", "year(d) = 2024", "cast(t as date) = d",
    "i <=> b", "f > 1e300 AND p < i", "coalesce(s, 'x') = 'y'", "cast(i as bigint) = b", "cast(p as string) = '1'", "CASE WHEN o THEN i ELSE b END > 3",
    "upper(s) = 'A'", "startswith(s, 'a')", "sqrt(f) > 1", "isnan(f)",
]  # fmt: skip
PARTIAL = [
    "i + 1 > 0", "1 / i > 0", "o AND 5 % i = 1", "cast(s as int) = 1", "s = 1", "s > d", "cast(b as int) = 1", "abs(i) = 1", "-i > 0", "year(s) = 2024",
    "i IN (1, 2) AND b * 2 > 0", "CASE WHEN o THEN i - 1 ELSE 0 END = 1", "sqrt(s) > 1", "floor(f) = 1", "coalesce(i, b + 1) = 1", "i = 1 / 0", "cast(p as int) = 1",
]  # fmt: skip


@pytest.mark.parametrize("text", TOTAL)
def test_a_total_condition_has_a_value_for_every_row(text):
    assert totality.is_total(parse(text), EMPTY)
    extremes = {
        "i": [-(2**31), 0, 2**31 - 1, None], "b": [-(2**63), 0, 2**63 - 1, None], "f": [float("nan"), float("-inf"), 0.0, None], "s": ["", "x", "1", None],
        "d": [-719162, 2932896, 0, None], "t": [-62135596800000000, 253402300799999999, 0, None], "p": ["-999.99", "0", "999.99", None], "o": [True, False, None, None],
    }  # fmt: skip
    columns = [
        pa.array(extremes[field.name]).cast(field.type)
        if field.name in "p"
        else pa.array(extremes[field.name], field.type)
        for field in EMPTY.schema
    ]
    for column, values in enumerate(columns):
        for row in range(4):
            rows = [other.take([(row + column) % 4 if other is values else row]) for other in columns]
            evaluation.mask(parse(text), pa.table(rows, schema=EMPTY.schema))


@pytest.mark.parametrize("text", PARTIAL)
def test_a_condition_that_may_raise_is_not_total(text):
    assert not totality.is_total(parse(text), EMPTY)
