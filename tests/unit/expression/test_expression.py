"""Expressions against a row-by-row reference, and what statistics and filters may never lose."""

import datetime as dt
import hashlib
import json
import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat.codec import arrow
from lakeformat.errors import InvalidInput, NotFound
from lakeformat.expression.evaluation import evaluate, mask
from lakeformat.expression.pruning import Bounds, may_match, must_match, to_dataset_filter
from lakeformat.expression.spark_sql import to_sql
from lakeformat.expression.sql_text import parse
from lakeformat.model import predicate
from lakeformat.model.predicate import ALWAYS, Call, Column, Literal, bind, column, is_in
from lakeformat.model.schema import Field, Kind, scalar
from tests.row_conditions import value_of

NAN = math.nan
FIELDS = (
    Field(0, "i", scalar(Kind.INT)),
    Field(1, "b", scalar(Kind.TINYINT)),
    Field(2, "f", scalar(Kind.DOUBLE)),
    Field(3, "g", scalar(Kind.FLOAT)),
    Field(4, "s", scalar(Kind.STRING)),
    Field(5, "d", scalar(Kind.DATE)),
    Field(6, "t", scalar(Kind.TIMESTAMP, 3)),
    Field(7, "z", scalar(Kind.TIMESTAMP_TZ, 6)),
    Field(8, "p", scalar(Kind.DECIMAL, 4, 2)),
    Field(9, "o", scalar(Kind.BOOLEAN)),
    Field(10, "y", scalar(Kind.BYTES)),
)
SCHEMA = arrow.arrow_schema(FIELDS)
DAYS = [dt.date(1969, 12, 31), dt.date(2023, 5, 1), dt.date(2024, 2, 29)]
TIMES = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999000),
    dt.datetime(2023, 5, 1),
    dt.datetime(2023, 5, 1, 10, 0, 0, 5000),
]
# Few values on purpose, so that rows, bounds and conditions meet often, and on their edges.
VALUES = {
    "i": [-(2**31), -1, 0, 1, 2, 2**31 - 1],
    "b": [-128, -1, 0, 1, 127],
    "f": [-math.inf, -1.5, -0.0, 0.0, 0.1, 1.0, math.inf, NAN],
    "g": [-1.5, -0.0, 0.0, float(np.float32(0.1)), 1.0, NAN],
    "s": ["", "a", "ab", "abc", "b", "ä", "a%b", "a\nb", "\U0010ffff"],
    "d": DAYS,
    "t": TIMES,
    "z": [moment.replace(tzinfo=dt.UTC) for moment in TIMES],
    "p": [Decimal("-99.99"), Decimal("-0.05"), Decimal("0.00"), Decimal("1.23"), Decimal("99.99")],
    "o": [True, False],
    "y": [b"", b"a", b"ab", b"\xff"],
}
# What a condition may be compared with besides: other types, values between and beyond those that the type holds.
NUMBERS = [
    0,
    1,
    -1,
    128,
    2**31,
    10**12,
    10**40,
    0.1,
    1.5,
    -1e300,
    NAN,
    math.inf,
    Decimal("1.235"),
    Decimal("-100"),
    "1",
    "0.1",
]
DATES = [
    "2023-05-01",
    "2023-5-1 10:00",
    dt.datetime(2023, 5, 1, 10, 0, 0, 5001),
    dt.date(2023, 5, 1),
    "1969-12-31 23:59:59.9999",
]
OTHERS = {
    **dict.fromkeys("ibfgp", NUMBERS),
    "s": ["a%", "abd"],
    **dict.fromkeys("dtz", DATES),
    "o": ["true", "FALSE"],
    "y": [b"b"],
}


def often(times: int):
    """So many times the examples of the profile in use."""
    return settings(max_examples=times * settings.default.max_examples, deadline=None)


def rows() -> st.SearchStrategy:
    names = [f.name for f in FIELDS]
    row = st.fixed_dictionaries({n: st.one_of(st.none(), st.sampled_from(VALUES[n])) for n in names})
    return st.lists(row, min_size=0, max_size=8)


def table_of(found: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(found, SCHEMA)


def operands(name: str) -> st.SearchStrategy:
    return st.one_of(st.none(), st.sampled_from(VALUES[name]), st.sampled_from(OTHERS[name]))


@st.composite
def comparisons(draw):
    name = draw(st.sampled_from(sorted(VALUES)))
    here = column(name)
    kind = draw(
        st.sampled_from(
            ["compare", "compare", "compare", "in", "null", "text", "columns", "tuples", "bare", "nan", "many"]
        )
    )
    if kind == "in":
        return is_in(here, draw(st.lists(operands(name), max_size=7)))
    if kind == "many":
        name, fillers = draw(
            st.sampled_from([("i", range(100, 120)), ("f", np.arange(5.0, 25)), ("s", [f"z{n}" for n in range(20)])])
        )
        fillers = [filler if isinstance(filler, int | str) else float(filler) for filler in fillers]
        if draw(st.booleans()):
            return is_in(name, [*draw(st.lists(operands(name), max_size=3)), *fillers])
        values = st.one_of(st.none(), st.sampled_from(VALUES[name]))
        rows = draw(st.lists(st.tuples(values, st.sampled_from(VALUES["o"])), max_size=3))
        return predicate.in_tuples([name, "o"], [*rows, *((filler, True) for filler in fillers)])
    if kind == "null":
        return predicate.is_null(here)
    if kind == "text":
        texts = [*VALUES["s"], "a%", "%b", "_b%", "a\\%b", "%", "_", "ab%c"]
        text = draw(st.sampled_from(texts))
        if draw(st.booleans()):
            return predicate.like("s", text)
        return Call(draw(st.sampled_from(["starts_with", "ends_with", "contains"])), (column("s"), Literal(text)))
    if kind == "columns":
        left, right = draw(
            st.sampled_from(
                [("i", "b"), ("f", "g"), ("f", "i"), ("p", "i"), ("d", "t"), ("s", "s"), ("t", "z"), ("o", "o")]
            )
        )
        return Call(draw(st.sampled_from(COMPARING)), (column(left), column(right)))
    if kind == "tuples":
        names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True))
        literals = st.tuples(*(st.one_of(st.none(), st.sampled_from(VALUES[n])) for n in names))
        return predicate.in_tuples(names, draw(st.lists(literals, max_size=20)))
    if kind == "bare":
        return column("o")
    if kind == "nan":
        return predicate.is_nan(draw(st.sampled_from(["f", "g"])))
    sides = (here, Literal(draw(operands(name))))
    return Call(draw(st.sampled_from(COMPARING)), sides if draw(st.booleans()) else sides[::-1])


COMPARING = [*sorted(predicate.COMPARISONS), "eq_null_safe"]


def conditions() -> st.SearchStrategy:
    leaves = st.one_of(comparisons(), comparisons(), st.sampled_from([Literal(True), Literal(False), Literal(None)]))

    def extend(inner):
        several = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            several.map(lambda c: Call("and", tuple(c))),
            several.map(lambda c: Call("or", tuple(c))),
            inner.map(lambda c: Call("not", (c,))),
        )

    return st.recursive(leaves, extend, max_leaves=5)


def bounds_of(files: list[pa.Table], draw) -> dict[str, Bounds]:
    """Statistics as writers keep them: no NaN within, texts cut to one character, some not known."""
    found = {}
    for field in SCHEMA:
        if draw(st.integers(0, 9)) == 0:
            continue
        minima, maxima, nulls, counts, nans = [], [], [], [], []
        for file in files:
            values = [v for v in file[field.name].to_pylist() if v is not None and v == v]
            low, high = (min(values), max(values)) if values else (None, None)
            if field.name == "s" and draw(st.booleans()) and values:
                low = low[:1]
                high = high if len(high) <= 1 else predicate.successor(high[:1])
            unknown = draw(st.sampled_from([(), (), (), (), ("low",), ("high",), ("low", "high")]))
            minima.append(None if "low" in unknown else low)
            maxima.append(None if "high" in unknown else high)
            nulls.append(None if draw(st.integers(0, 5)) == 0 else file[field.name].null_count)
            counts.append(None if draw(st.integers(0, 5)) == 0 else file.num_rows)
            found_nans = sum(v is not None and v != v for v in file[field.name].to_pylist())
            nans.append(None if draw(st.integers(0, 2)) == 0 else found_nans)
        found[field.name] = Bounds(
            pa.array(minima, field.type),
            pa.array(maxima, field.type),
            pa.array(nulls, pa.int64()),
            pa.array(counts, pa.int64()),
            pa.array(nans, pa.int64()) if draw(st.booleans()) else None,
        )
    return found


@often(3)
@given(conditions(), rows())
def test_a_table_is_evaluated_as_its_rows_are(condition, found):
    bound = bind(condition, FIELDS)
    expected = [value_of(bound, row) for row in found]
    assert evaluate(bound, table_of(found)).to_pylist() == expected, to_sql(bound)
    assert mask(bound, table_of(found)).to_pylist() == [value is True for value in expected]


@often(2)
@given(conditions(), rows())
def test_binding_keeps_the_meaning_for_rows(condition, found):
    bound = bind(condition, FIELDS)
    again = bind(bound, FIELDS)
    assert again == bound or repr(again) == repr(bound)  # From Python 3.13 on dataclasses with the same NaN differ.
    for row in found:
        for name, kind in ((f.name, f.type) for f in FIELDS):
            row[name] = predicate.coerce(row[name], kind)
        try:
            expected = value_of(condition, row)
        except InvalidInput:
            continue  # Text against a number or a date has no meaning before it is bound.
        # A decimal and a float are compared as floats before binding and exactly after it: only there may they differ.
        if not mixes_decimals(condition):
            assert value_of(bound, row) is expected, to_sql(bound)


def mixes_decimals(condition) -> bool:
    names = predicate.columns_of(condition)
    return bool(names & {"p", "i", "b", "f", "g"})


@often(1)
@given(conditions(), rows())
def test_moving_not_inward_keeps_the_meaning(condition, found):
    bound = bind(condition, FIELDS)
    pushed = predicate.push_not(bound)
    assert [value_of(pushed, row) for row in found] == [value_of(bound, row) for row in found]


@often(1)
@given(conditions(), rows(), st.sets(st.sampled_from(sorted(VALUES))))
def test_the_parts_of_a_split_condition_are_the_condition(condition, found, names):
    bound = bind(condition, FIELDS)
    inside, outside = predicate.split(bound, names)
    assert predicate.columns_of(inside) <= names
    both = predicate.and_(inside, outside)
    for row in found:
        assert (value_of(both, row) is True) == (value_of(bound, row) is True)


@often(4)
@given(conditions(), st.lists(rows(), min_size=1, max_size=4), st.data())
def test_no_file_with_a_matching_row_is_left_out_and_none_with_another_is_taken_whole(condition, found, data):
    bound = bind(condition, FIELDS)
    files = [table_of(each) for each in found]
    bounds = bounds_of(files, data.draw)
    may = may_match(bound, bounds, len(files)).to_pylist()
    must = must_match(bound, bounds, len(files)).to_pylist()
    for i, file in enumerate(files):
        matching = mask(bound, file).to_pylist()
        assert may[i] or not any(matching), (to_sql(bound), bounds, file.to_pylist())
        assert not must[i] or all(matching), (to_sql(bound), bounds, file.to_pylist())


@often(2)
@given(conditions(), rows())
def test_a_dataset_filter_drops_no_matching_row(condition, found):
    bound = bind(condition, FIELDS)
    table = table_of(found)
    pushed = to_dataset_filter(bound, FIELDS)
    table = table.append_column("row", pa.array(range(len(found)), pa.int64()))
    kept = (
        set(table["row"].to_pylist())
        if pushed is None
        else set(ds.dataset(table).to_table(filter=pushed)["row"].to_pylist())
    )
    wanted = {i for i, match in enumerate(mask(bound, table).to_pylist()) if match}
    assert wanted <= kept, (to_sql(bound), pushed)


@settings(deadline=None)
@given(conditions(), st.lists(rows(), min_size=1, max_size=3))
def test_a_parquet_scan_with_the_filter_keeps_every_matching_row(tmp_path_factory, condition, found):
    bound = bind(condition, FIELDS)
    path = tmp_path_factory.mktemp("scan") / "f.parquet"
    table = pa.concat_tables([table_of(each) for each in found])
    table = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    pq.write_table(table, path, row_group_size=2)
    pushed = to_dataset_filter(bound, FIELDS)
    kept = set(ds.dataset(path).to_table(filter=pushed)["row"].to_pylist())
    wanted = {i for i, match in enumerate(mask(bound, table).to_pylist()) if match}
    assert wanted <= kept, (to_sql(bound), pushed)


@often(2)
@given(conditions())
def test_sql_text_reads_back_as_the_same_condition(condition):
    bound = bind(condition, FIELDS)
    text = to_sql(bound)
    again = bind(parse(text), FIELDS)
    table = table_of([{n: v[i % len(v)] for n, v in VALUES.items()} for i in range(9)] + [dict.fromkeys(VALUES)])
    assert evaluate(again, table).to_pylist() == evaluate(bound, table).to_pylist(), text


NUMBER_LEAVES = st.sampled_from(
    [
        column("i"),
        column("f"),
        column("p"),
        Literal(0),
        Literal(3),
        Literal(-2),
        Literal(0.5),
        Literal(Decimal("0.7")),
        Literal(None),
    ]
)


def numbers(inner: st.SearchStrategy) -> st.SearchStrategy:
    two = st.sampled_from(["add", "sub", "mul", "mod", "coalesce", "nullif", "greatest", "least"])
    one = st.sampled_from(["neg", "abs"])
    compared = st.builds(lambda n, a, b: Call(n, (a, b)), st.sampled_from(COMPARING), inner, inner)
    return st.one_of(
        st.builds(lambda n, a, b: Call(n, (a, b)), two, inner, inner),
        st.builds(lambda n, a: Call(n, (a,)), one, inner),
        st.builds(lambda when, a, b: Call("case", (when, a, b)), compared, inner, inner),
    )


def divides_by_zero(expression, row):
    try:
        evaluate(expression, row)
    except InvalidInput as error:
        return "division by zero" in str(error)
    return False


@often(2)
@given(st.recursive(NUMBER_LEAVES, numbers, max_leaves=5), st.data())
def test_arithmetic_over_a_table_is_that_of_its_rows(expression, data):
    cells = {"i": [None, 0, 1, -7, 40], "f": [None, 0.0, -1.5, 1e10, NAN, math.inf], "p": VALUES["p"]}
    row = st.fixed_dictionaries({n: st.sampled_from([None, *v]) for n, v in cells.items()})
    found = data.draw(st.lists(row, min_size=1, max_size=6))
    table = pa.Table.from_pylist(found, pa.schema([("i", pa.int64()), ("f", pa.float64()), ("p", pa.decimal128(4, 2))]))
    try:
        values = evaluate(expression, table).to_pylist()
    except InvalidInput as error:
        if "digits" in str(error) or "fit in precision" in str(error):
            return  # Decimals of 38 digits and more, said by name.
        if "division by zero" in str(error):
            assert any(divides_by_zero(expression, table.slice(number, 1)) for number in range(len(table)))
            return
        raise
    for value, one in zip(values, found, strict=True):
        expected = value_of(expression, one)
        assert (value is None) == (expected is None), to_sql(expression)
        if value is not None:
            same = value == expected or float(value) == float(expected) or (value != value and expected != expected)
            if isinstance(value, float) and isinstance(expected, Decimal):  # The row alone has no column of doubles.
                doubles = value_of(expression, one | {"i": None if one["i"] is None else float(one["i"])})
                same = same or any(math.isclose(value, each, rel_tol=1e-12) for each in (expected, doubles))
            assert same, (to_sql(expression), one, value, expected)


def test_pruning_is_sharp_where_it_can_be():
    bounds = {
        "i": Bounds(
            pa.array([0, 10, None], pa.int32()),
            pa.array([5, 10, None], pa.int32()),
            pa.array([0, 0, 4]),
            pa.array([4, 4, 4]),
        ),
        "s": Bounds(pa.array(["aa", "b", None]), pa.array(["ab", "b", None]), pa.array([1, 0, 0]), pa.array([4, 4, 4])),
    }
    cases = {
        "i > 5": ([False, True, False], [False, True, False]),
        "i <= 5": ([True, False, False], [True, False, False]),
        "i = 10": ([False, True, False], [False, True, False]),
        "i <> 10": ([True, False, False], [True, False, False]),
        "i in (7, 8)": ([False, False, False], [False, False, False]),
        "i in (10, 11)": ([False, True, False], [False, True, False]),
        f"i in ({', '.join(map(str, range(10, 60)))})": ([False, True, False], [False, True, False]),
        "i is null": ([False, False, True], [False, False, True]),
        "i is not null": ([True, True, False], [True, True, False]),
        "not (i > 5 or i is null)": ([True, False, False], [True, False, False]),
        "s like 'b%x'": ([False, True, True], [False, False, False]),
        "s like 'b'": ([False, True, True], [False, True, False]),
        f"i in ({', '.join(map(str, range(18)))})": ([True, True, False], [False, True, False]),
        "i > 5 or s = 'b'": ([False, True, True], [False, True, False]),
        "s like 'b%'": ([False, True, True], [False, True, False]),
        "s like 'a%'": ([True, False, True], [False, False, False]),
        "startswith(s, 'c')": ([False, False, True], [False, False, False]),
        "s is null": ([True, False, False], [False, False, False]),
        "s <=> 'b'": ([False, True, True], [False, True, False]),
        "7 < i": ([False, True, False], [False, True, False]),
        "i + 1 > 7": ([True, True, True], [False, False, False]),
        "i = null": ([False, False, False], [False, False, False]),
        "other = 1": ([True, True, True], [False, False, False]),
        "1 = 1": ([True, True, True], [True, True, True]),
        "1 = 2 and other = 1": ([False, False, False], [False, False, False]),
    }
    for text, (may, must) in cases.items():
        assert may_match(parse(text), bounds).to_pylist() == may, text
        assert must_match(parse(text), bounds).to_pylist() == must, text
    rows = frozenset((n, "b") for n in range(10, 40))
    assert may_match(predicate.in_tuples(["i", "s"], rows), bounds).to_pylist() == [False, True, False]
    assert must_match(predicate.in_tuples(["i", "s"], [(10, "b")]), bounds).to_pylist() == [False, True, False]


@pytest.mark.parametrize(
    ("text", "may", "must", "without"),
    [
        ("f > 5", True, False, (False, False)),
        ("f < 5", True, False, (True, True)),
        ("f >= 1", True, True, (True, True)),
        ("f < 1", False, False, (False, False)),
        ("f <> 7", True, True, (True, True)),
        ("not f <= 2", True, False, (False, False)),
        ("isnan(f)", True, False, (False, False)),
        ("f in (7, cast('NaN' as double))", True, False, (False, False)),
    ],
)
def test_a_float_column_with_bounds_may_still_hold_nan_where_none_were_counted(text, may, must, without):
    """NaN is above all numbers: of a file with one, without any, with an unknown number, as the count says."""
    found = {"f": Bounds(*(pa.array([number] * 3) for number in (1.0, 2.0, 0, 3)), pa.array([1, 0, None]))}
    fields = (Field(0, "f", scalar(Kind.DOUBLE)),)
    bound = bind(parse(text), fields)
    assert may_match(bound, found).to_pylist() == [may, without[0], may], text
    assert must_match(bound, found).to_pylist() == [must, without[1], must], text
    uncounted = {"f": Bounds(*(pa.array([number] * 3) for number in (1.0, 2.0, 0, 3)))}
    assert may_match(bound, uncounted).to_pylist() == [may] * 3, text
    assert must_match(bound, uncounted).to_pylist() == [must] * 3, text


def test_a_dataset_filter_keeps_nan_which_is_above_all():
    table = pa.table(
        {"f": [NAN, 1.0, None], "g": pa.array([NAN, 1.0, None], pa.float32())},
    )
    for text, kept in [
        ("f > 5", 1),
        ("f >= 5", 1),
        ("5 < f", 1),
        ("g > 5", 1),
        ("g > 0.99999999999", 2),
        ("f < 5", 1),
        ("not f <= 5", 1),
    ]:
        bound = bind(parse(text), FIELDS)
        found = ds.dataset(table).to_table(filter=to_dataset_filter(bound, FIELDS))
        assert sum(mask(bound, found).to_pylist()) == sum(mask(bound, table).to_pylist()) == kept, text


def test_nan_is_found_in_a_row_group_whose_bounds_leave_it_out(tmp_path):
    pq.write_table(pa.table({"f": [-math.inf, NAN]}), tmp_path / "one.parquet")
    stored = ds.dataset(tmp_path / "one.parquet")
    for text in ["isnan(f)", "f > 5", "f >= 5", "f <> -1", "f in (7, cast('NaN' as double))", "not f <= 5"]:
        bound = bind(parse(text), FIELDS)
        found = stored.to_table(filter=to_dataset_filter(bound, FIELDS))
        assert True in mask(bound, found).to_pylist(), text


def test_a_dataset_filter_speaks_of_the_files_own_narrower_types():
    narrow = (Field(0, "i", scalar(Kind.TINYINT)), Field(6, "t", scalar(Kind.TIMESTAMP, 0)))
    table = pa.table({"i": pa.array([1, 127, None], pa.int8()), "t": pa.array([0, 1, 2], pa.timestamp("ms"))})
    for text, kept in [
        ("i < 1000", 2),
        ("i > 1000", 0),
        ("i = 1000", 0),
        ("i <> 1000", 2),
        ("i in (1, 1000)", 1),
        ("i > 1.5", 1),
    ]:
        pushed = to_dataset_filter(bind(parse(text), FIELDS), narrow)
        assert ds.dataset(table).to_table(filter=pushed).num_rows == kept, text
    assert to_dataset_filter(parse("other = 1"), narrow) is None
    assert to_dataset_filter(parse("i + 1 = 2"), narrow) is None
    assert to_dataset_filter(parse("i = 1 or other = 1"), narrow) is None
    assert str(to_dataset_filter(parse("i = 1 and other = 1"), narrow)) == "(i == 1)"


def test_one_bound_for_all_of_a_float_column_is_no_proof():
    bounds = {"f": Bounds(pa.array([1.0]), pa.array([1.0]), pa.array([0]), pa.array([3]))}
    for text in ("f = 1", "f <=> 1", "f in (1, 2)", f"f in ({', '.join(map(str, range(40)))})"):
        assert may_match(parse(text), bounds).to_pylist() == [True], text
        assert must_match(parse(text), bounds).to_pylist() == [False], text


def test_null_is_found_among_many_partitions():
    bounds = {"i": Bounds(pa.array([None, 7]), pa.array([None, 7]), pa.array([2, 0]), pa.array([2, 2]))}
    wanted = predicate.in_tuples(["i"], [(None,), *((n,) for n in range(10, 60))])
    assert may_match(wanted, bounds).to_pylist() == [True, False]
    assert must_match(wanted, bounds).to_pylist() == [False, False]  # Not told for many, though it is so.


def test_bounds_need_one_row_per_file():
    one = Bounds(pa.array([1]), pa.array([1]), pa.array([0]), pa.array([1]))
    with pytest.raises(InvalidInput, match="one row per file"):
        may_match(ALWAYS, {})
    with pytest.raises(InvalidInput, match="one row per file"):
        may_match(ALWAYS, {"a": one}, files=3)
    assert may_match(ALWAYS, {}, files=2).to_pylist() == [True, True]
    assert may_match(ALWAYS, {}, files=0).to_pylist() == []


TABLE = pa.table(
    {
        "i": pa.array([1, -7, None, 0], pa.int32()),
        "b": pa.array([2**62, 5, None, -3], pa.int64()),
        "f": pa.array([1.5, NAN, None, -0.0]),
        "s": ["abc", "", None, "a%b\n"],
        "d": pa.array([dt.date(2023, 5, 1), dt.date(1969, 12, 31), None, dt.date(2000, 2, 29)]),
        "t": pa.array(
            [dt.datetime(2023, 5, 1, 10, 0, 0, 123456), dt.datetime(1969, 12, 31, 23), None, dt.datetime(2000, 1, 1)]
        ),
        "p": pa.array([Decimal("1.23"), Decimal("-0.05"), None, Decimal("99.99")], pa.decimal128(4, 2)),
        "o": [True, False, None, True],
        "r": pa.array([{"x": 1}, {"x": None}, None, {"x": 4}]),
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i + 1", [2, -6, None, 1]),
        ("-i", [-1, 7, None, 0]),
        ("i / 2", [0.5, -3.5, None, 0.0]),
        ("i / nullif(p, p)", [None] * 4),
        ("i <> 0 AND 10 / i > 0", [True, False, None, False]),
        ("i = 0 OR 10 % i = 0", [True, False, None, True]),
        ("NOT (i <> 0 AND 10 DIV i > 1)", [False, True, None, True]),
        ("(i IS NULL OR i <> 0) AND (s IS NULL OR 1 / i < 0 OR 5 % i = 0)", [True, True, True, False]),
        ("coalesce(i, 1 / (i - i), 1)", [1.0, -7.0, 1.0, 0.0]),
        ("coalesce(nullif(i, 0), 7, 1 / 0)", [1.0, -7.0, 7.0, 7.0]),
        ("false AND 1 / 0 > 1", [False] * 4),
        ("CASE WHEN o IS NULL OR i < 0 THEN 0 ELSE 1 % (i + 1) END", [1, 0, 0, 0]),
        ("NULL / 0", [None] * 4),
        ("o AND i < 1 OR s = '' AND cast(s || '1' as int) > 0", [False, True, None, True]),
        ("i % 3", [1, -1, None, 0]),
        ("b % -1", [0, 0, None, 0]),
        ("i DIV 2", [0, -3, None, 0]),
        ("p + 1", [Decimal("2.23"), Decimal("0.95"), None, Decimal("100.99")]),
        ("p * p", [Decimal("1.5129"), Decimal("0.0025"), None, Decimal("9998.0001")]),
        ("p / 3", [Decimal("0.410000"), Decimal("-0.016667"), None, Decimal("33.330000")]),
        ("p % 0.5", [Decimal("0.23"), Decimal("-0.05"), None, Decimal("0.49")]),
        ("round(p, 1)", [Decimal("1.2"), Decimal("-0.1"), None, Decimal("100.0")]),
        ("round(i, -1)", [0, -10, None, 0]),
        ("round(1.005D, 2)", [1.01] * 4),
        ("ceil(double('NaN'))", [0] * 4),
        ("f > 100", [False, True, None, False]),
        ("f IN (0)", [False, False, None, True]),
        ("i IN (1, NULL)", [True, None, None, None]),
        ("i NOT IN (1)", [False, True, None, True]),
        ("i BETWEEN -7 AND 0", [False, True, None, True]),
        ("i IS DISTINCT FROM 1", [False, True, True, True]),
        ("s LIKE 'a%'", [True, False, None, True]),
        ("s LIKE 'a!%b_' ESCAPE '!'", [False, False, None, True]),
        ("s ILIKE 'AB_'", [True, False, None, False]),
        ("s || i", ["abc1", "-7", None, "a%b\n0"]),
        ("concat(s, d)", ["abc2023-05-01", "1969-12-31", None, "a%b\n2000-02-29"]),
        ("substring(s, 2)", ["bc", "", None, "%b\n"]),
        ("substring(s, -5, 3)", ["a", "", None, "a%"]),
        ("upper(s)", ["ABC", "", None, "A%B\n"]),
        ("length(s)", [3, 0, None, 4]),
        ("d + 1", [dt.date(2023, 5, 2), dt.date(1970, 1, 1), None, dt.date(2000, 3, 1)]),
        ("datediff(d, '2000-01-01')", [8521, -10958, None, 59]),
        ("year(d)", [2023, 1969, None, 2000]),
        ("hour(t)", [10, 23, None, 0]),
        ("d > '2000'", [True, False, None, True]),
        ("cast(t as date) = d", [True, True, None, False]),
        ("cast(p as string)", ["1.23", "-0.05", None, "99.99"]),
        ("cast(date_add(date '9999-12-31', 3) as string)", ["+10000-01-03"] * 4),
        ("cast(cast(p as double) as string)", ["1.23", "-0.05", None, "99.99"]),
        ("cast(cast(i as float) as string)", ["1.0", "-7.0", None, "0.0"]),
        ("cast(double('NaN') as string) || double('-Infinity')", ["NaN-Infinity"] * 4),
        ("cast(t as string)", ["2023-05-01 10:00:00.123456", "1969-12-31 23:00:00", None, "2000-01-01 00:00:00"]),
        ("cast(cast(p as decimal(10, 8)) / 1 as string)", None),
        ("cast(p as int)", [1, 0, None, 99]),
        ("cast(i as decimal(5, 2))", [Decimal("1.00"), Decimal("-7.00"), None, Decimal("0.00")]),
        ("CASE WHEN i = 0 THEN 0 ELSE 10 / i END", [10.0, 10 / -7, None, 0.0]),
        ("CASE WHEN s = 'abc' THEN cast(b / 4611686018427387904 as int) WHEN i < 0 THEN 300 END", [1, 300, None, None]),
        ("CASE i WHEN 1 THEN 'one' END", ["one", None, None, None]),
        ("coalesce(i, b, 0)", [1, -7, 0, 0]),
        ("nullif(i, 0)", [1, -7, None, None]),
        ("greatest(i, b)", [2**62, 5, None, 0]),
        ("if(o, i, -1)", [1, -1, -1, 0]),
        ("r.x + 1", [2, None, None, 5]),
        ("r.x IS NULL", [False, True, True, False]),
        ("o AND i > 0", [True, False, None, False]),
        ("o OR NULL", [True, None, None, True]),
        ("NOT o", [False, True, None, False]),
        ("o IS NOT TRUE", [False, True, True, False]),
        ("isnan(f)", [False, True, False, False]),
        ("o OR b + b < 0 OR i IS NULL", [True, False, True, True]),
        ("date_trunc('month', t)", [dt.datetime(2023, 5, 1), dt.datetime(1969, 12, 1), None, dt.datetime(2000, 1, 1)]),
        ("t = TIMESTAMP '2023-05-01 12:00:00.123456+02:00'", [True, False, None, False]),
        ("X'61' = X'61'", [True] * 4),
    ],
)
def test_spark_sql_means_what_spark_means_by_it(text, expected):
    found = evaluate(parse(text), TABLE)
    if expected is not None:
        assert found.to_pylist() == expected
    by_batch = evaluate(parse(text), TABLE.to_batches()[0])
    assert isinstance(found, pa.ChunkedArray)
    assert isinstance(by_batch, pa.Array)
    assert repr(by_batch.to_pylist()) == repr(found.to_pylist())
    assert evaluate(parse(text), TABLE.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("b + b", "overflow"),
        ("cast(i as tinyint) = 1 and nothing = 2", "nothing"),
        ("cast(s as int)", "abc|a%b"),
        ("o > i", "are not compatible"),
        ("i and o", "not a condition"),
        ("cast(1e7 * f as string)", "decimal"),
        ("floor(1e300)", "beyond BIGINT"),
        ("ceil(f * 1e300)", "beyond BIGINT"),
        ("r = 1", "not compatible"),
        ("r.y = 1", "there are x"),
        ("cast(9.995 as decimal(3, 2))", "precision"),
        ("cast(d as int)", "cannot be cast"),
    ],
)
def test_what_cannot_be_evaluated_is_named(text, said):
    with pytest.raises((InvalidInput, NotFound), match=said):
        evaluate(parse(text), TABLE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found none"),
        ("a = 1; b = 2", "found several"),
        ("a = ", "an expression is missing at line 1, column 3"),
        ("a = 'x", "x"),
        ("foo(a)", "foo is not known.*coalesce"),
        ("a = (SELECT 1)", "holds a query"),
        ("SELECT 1", "holds a query"),
        ("count(*)", "count"),
        ("a[0] = 1", "bracket"),
        ("a LIKE b", "pattern"),
        ("a LIKE 'x\\\\y'", "pattern"),
        ("try_cast(a as int)", "trycast"),
        ("cast(a as struct<x: int>)", "STRUCT"),
        ("a = DATE '2023-13-01'", "date"),
        ("a = ?", "placeholder"),
        ("a = X'0g'", "."),
        ("(a, b) IN ((1, 2, 3))", "2 values"),
        ("(" * 2000 + "a = 1" + ")" * 2000, "deep"),
        ("substring(a)", "substring|argument"),
    ],
)
def test_text_that_is_no_condition_is_refused_by_name(text, said):
    with pytest.raises(InvalidInput, match=said):
        parse(text)


def test_other_things_than_text_are_refused_with_what_to_pass():
    with pytest.raises(InvalidInput, match="SQL text"):
        parse(pc.field("a") > 1)
    assert parse(ALWAYS) is ALWAYS


def test_qualifiers_stay_in_front_of_the_path():
    found = parse("T.id = s.`Id` and t.addr.city = 'x'", qualifiers={"t", "s"})
    assert predicate.paths_of(found) == {("t", "id"), ("s", "Id"), ("t", "addr", "city")}
    assert predicate.rename(found, {("t",): ("target",), ("s",): ()}) == parse(
        "target.id = `Id` and target.addr.city = 'x'"
    )


def test_a_thousand_alternatives_are_no_depth():
    text = " OR ".join(f"i = {n}" for n in range(3000))
    assert mask(parse(text), TABLE).to_pylist() == [True, False, False, True]


def test_values_are_cast_as_an_assignment_does():
    assert evaluate(parse("i + 1"), TABLE, pa.int8()).type == pa.int8()
    assert evaluate(parse("'2023-05-01'"), TABLE, pa.date32()).to_pylist() == [dt.date(2023, 5, 1)] * 4
    with pytest.raises(InvalidInput, match="b"):
        evaluate(parse("b"), TABLE, pa.int32())


def test_a_condition_that_is_none_is_refused_as_a_mask():
    with pytest.raises(InvalidInput, match="not a condition"):
        mask(parse("i + 1"), TABLE)
    with pytest.raises(NotFound, match="there are i, b"):
        mask(parse("q = 1"), TABLE)
    assert mask(Column(("o",)), TABLE).to_pylist() == [True, False, False, True]


def test_large_sets_of_partitions_are_looked_up_by_columns():
    n = 50_000
    table = pa.table({"a": pa.array(np.arange(n) % 1000), "b": pa.array((np.arange(n) // 1000).astype(str))})
    wanted = predicate.in_tuples(["a", "b"], [(i % 1000, str(i // 1000)) for i in range(0, n, 7)])
    assert mask(wanted, table).to_pylist() == [i % 7 == 0 for i in range(n)]


CASING = json.loads((Path(__file__).parents[2] / "golden" / "vectors" / "casing.json").read_text())


@pytest.mark.parametrize("name", ["upper", "lower"])
def test_every_character_has_sparks_case_over_a_table_and_alone(name):
    special = CASING[name]["special"] | (CASING["sigma"] if name == "lower" else {})
    rows = pa.table({"s": [*special, None, "ascii"]})
    found = evaluate(parse(f"{name}(s)"), rows).to_pylist()
    assert found == [*special.values(), None, getattr("ascii", name)()]
    assert [value_of(parse(f"{name}(s)"), {"s": text}) for text in special] == [*special.values()]
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    mapped = evaluate(parse(f"{name}(s)"), pa.table({"s": every})).to_pylist()
    assert hashlib.sha256("\n".join(mapped).encode()).hexdigest() == CASING[name]["sha256_of_every_character"]


def test_case_keeps_rows_apart_whatever_characters_they_hold():
    texts = ["ß\x00", None, "\x01ﬁ", "ΑΣ", "a", "Σ"]
    every = [*texts, "ß" + "".join(map(chr, range(32)))]
    for table in (
        pa.table({"s": texts}),
        pa.table({"s": every}),
        pa.table({"s": pa.chunked_array([texts[:2], every])}),
    ):
        wanted = [None if text is None else text.upper() for text in table["s"].to_pylist()]
        assert evaluate(parse("upper(s)"), table).to_pylist() == wanted
    assert mask(parse("s = upper('straße')"), pa.table({"s": ["STRASSE", "STRAẞE"]})).to_pylist() == [True, False]


def test_texts_are_trimmed_and_read_as_numbers_as_spark_does():
    held = pa.table({"s": ["\t+5\x00", " -7\x7f"]})
    assert evaluate(parse("cast(s as int)"), held).to_pylist() == [5, -7]
    for odd in ("0x10", "1_0", "\u00a01", "٣"):
        with pytest.raises(InvalidInput, match="is not a whole number"):
            evaluate(parse("cast(s as int)"), pa.table({"s": [odd]}))
        with pytest.raises(InvalidInput, match=r"is not a number|is not one"):
            bind(predicate.eq("i", odd), FIELDS)


# One call of each function, over `TABLE`.
CALLS = {
    "eq": "i = b", "ne": "i <> b", "lt": "i < b", "le": "i <= b", "gt": "i > b", "ge": "i >= b", "eq_null_safe": "i <=> b",
    "and": "o AND i > b", "or": "o OR i > b", "not": "NOT o", "in": "i IN (1, 2)", "is_null": "i IS NULL", "is_nan": "isnan(f)",
    "like": "s LIKE 'a%' ESCAPE '!'", "starts_with": "startswith(s, 'a')", "ends_with": "endswith(s, 'a')", "contains": "contains(s, 'a')",
    "add": "i + b", "sub": "i - 1", "mul": "i * 2", "div": "i / 2", "int_div": "i DIV 2", "mod": "i % 2", "neg": "negative(i)",
    "power": "power(i, 2)", "sqrt": "sqrt(i)", "sign": "sign(i)", "abs": "abs(i)", "floor": "floor(p)", "ceil": "ceil(p)",
    "round": "round(p, 1)", "case": "CASE WHEN o THEN i ELSE 0 END", "cast": "CAST(i AS BIGINT)", "coalesce": "nvl(i, b)",
    "nullif": "nullif(i, b)", "greatest": "greatest(i, b)", "least": "least(i, b)", "upper": "upper(s)", "lower": "lower(s)",
    "length": "length(s)", "trim": "trim(s)", "ltrim": "ltrim(s)", "rtrim": "rtrim(s)", "concat": "concat(s, s)",
    "substring": "substr(s, 1, 2)", "replace": "replace(s, 'a', 'b')", "year": "year(d)", "quarter": "quarter(t)",
    "month": "month(d)", "weekofyear": "weekofyear(d)", "day": "dayofmonth(d)", "dayofyear": "dayofyear(d)", "hour": "hour(t)",
    "minute": "minute(t)", "second": "second(t)", "date_add": "date_add(d, 1)", "date_sub": "date_sub(d, CAST(i AS INT))",
    "date_diff": "datediff(d, d)", "date_trunc": "date_trunc('month', t)",
    "named_struct": "named_struct('i', i, 'inner', named_struct('s', s))",
}  # fmt: skip


def test_each_row_of_the_table_of_functions_is_read_evaluated_and_written():
    # Which no text spells, and what needs a variant (test_variant.py).
    assert CALLS.keys() | {"in_tuples", "variant_get", "canonical", "stored"} == predicate.FUNCTIONS.keys()
    for name, text in CALLS.items():
        function, found = predicate.FUNCTIONS[name], parse(text)
        assert isinstance(found, Call), text
        if name != "date_sub":  # sqlglot reads it as the addition of the days times -1.
            assert found.name == name, text
            assert parse(to_sql(found)) == found, to_sql(found)
        type = evaluate(found, TABLE).type
        if function.result is not None:
            assert type == arrow.to_arrow(scalar(function.result)), f"{text}: {type}, not {function.result}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        ('"say ""no"""', 'say "no"'),
        ("''''", "'"),
        ("''", ""),
        ("'a''''b'", "a''b"),
        (r"'\''''", "''"),
    ],
)
def test_a_quote_written_twice_is_one_quote(text, value):
    assert parse(f"s = {text}") == Call("eq", (column("s"), Literal(value)))
    assert parse(f"s = {text} AND t = {text}").arguments[1] == Call("eq", (column("t"), Literal(value)))


def test_texts_beside_each_other_are_one_text():
    assert evaluate(parse("'it' 's'"), TABLE).to_pylist() == ["its"] * TABLE.num_rows
