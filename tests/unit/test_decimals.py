"""Decimals of up to 38 digits in conditions, assignments and partitions, whatever the process's decimal context is."""

import decimal
import itertools
import operator
import random
from contextlib import contextmanager
from decimal import Context, Decimal

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.errors import InvalidInput
from lakeformat.expression import spark_sql, sql_text
from lakeformat.model.predicate import Literal, coerce, eq
from lakeformat.model.schema import Kind, scalar
from tests.draw import some

USUAL = Context(prec=28)
COARSE = Context(prec=3, traps=[])  # Rounds everything, and takes "abc" for NaN.
STRICT = Context(prec=3, traps=[decimal.Inexact, decimal.Rounded, decimal.Subnormal, decimal.FloatOperation])
CONTEXTS = {"usual": USUAL, "coarse": COARSE, "strict": STRICT}
COMPARED = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TYPES = [(38, 0), (38, 20), (38, 38), (30, 2), (18, 9), (5, 5)]


@contextmanager
def within(context):
    """The context in this thread, and in those that are started."""
    usual = decimal.DefaultContext.copy()
    changed = {name: getattr(context, name) for name in ("prec", "Emin", "Emax", "traps")}
    with decimal.localcontext(context):
        for name, value in changed.items():
            setattr(decimal.DefaultContext, name, value)
        try:
            yield
        finally:
            for name in changed:
                setattr(decimal.DefaultContext, name, getattr(usual, name))


@pytest.fixture(params=CONTEXTS)
def context(request):
    with within(CONTEXTS[request.param]):
        yield


def values_of(precision, scale, rng, count=6):
    """Values of all lengths and both signs, and their neighbours in the last digit."""
    units = [rng.randrange(10 ** rng.randint(1, precision)) for _ in range(count)] + [10**precision - 1]
    near = {unit + step for unit in units for step in (-1, 0, 1)}
    units = sorted({sign * unit for unit in near if 0 <= unit < 10**precision for sign in (1, -1)})
    return [Decimal((unit < 0, tuple(map(int, str(abs(unit)))), -scale)) for unit in units]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_conditions_and_assignments_are_exact_in_any_context(tmp_path, format, context):
    rng = random.Random(38)
    for number, (precision, scale) in enumerate(TYPES):
        values = values_of(precision, scale, rng)
        kind = pa.decimal128(precision, scale)
        table = Lake(tmp_path).create_table(f"d.t{number}", pa.schema([("d", kind)]), format=format)
        table.append(pa.table({"d": pa.array(values, kind)}))
        for value in rng.sample(values, 5):
            spellings = (f"{value:f}", f"-({value:f})", f"'{value:f}'")
            for sign, spelling in some([*itertools.product(COMPARED, spellings)], 6, format, value):
                compare = COMPARED[sign]
                if spelling.startswith("-("):
                    condition = f"-d {sign} {spelling}"
                    right = [compare(v.copy_negate(), value.copy_negate()) for v in values]
                else:
                    condition, right = f"d {sign} {spelling}", [compare(v, value) for v in values]
                rows = table.scan(where=condition).to_arrow()["d"].to_pylist()
                assert sorted(rows) == [v for v, is_kept in zip(values, right, strict=True) if is_kept], condition
        low, high = values[0], values[-1]
        table.delete(f"d < {low:f} or d > {high:f}")
        assert table.scan().count() == len(values)
        table.update({"d": f"{low:f}"}, f"d = {values[1]:f}")
        table.update({"d": f"-({low:f})"}, f"d = {high:f}")
        rows = table.scan().to_arrow()["d"].to_pylist()
        assert sorted(rows) == sorted([low, low, *values[2:-1], low.copy_abs()])


@pytest.mark.drawn(1)
@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_partitions_keys_and_parameters_are_exact_in_any_context(tmp_path, format, context):
    values, kind = values_of(38, 20, random.Random(20), count=2), pa.decimal128(38, 20)
    rows = pa.table({"d": pa.array(values, kind), "k": range(len(values))})
    lake = Lake(tmp_path)
    table = lake.create_table("d.t", rows.schema, format=format, partition_by=["d"])
    table.append(rows)
    for number, value in enumerate(values):
        assert table.scan(where=f"d = {value:f}").to_arrow()["k"].to_pylist() == [number]
        assert lake.sql("select k from d.t where d = :d", params={"d": value}).to_arrow()["k"].to_pylist() == [number]
    table.overwrite_partitions(rows.slice(0, 1), partitions=[{"d": values[0]}])
    table.merge_into(rows, "t.d = s.d").when_matched().update({"k": "s.k + 100"}).merge()
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == [100 + number for number in range(len(values))]


def test_literals_keep_all_digits_as_text_and_back(context):
    for value in values_of(38, 20, random.Random(7)):
        for parsed in (sql_text.parse(f"d = {value:f}"), sql_text.parse(f"d = - {value.copy_negate():f}")):
            assert parsed.arguments[1] == Literal(value)
        assert f"{value.copy_abs():f}BD" in spark_sql.to_sql(eq("d", value))
        assert coerce(f" {value:f} ", scalar(Kind.DECIMAL, 38, 20)) == value


def test_text_that_is_no_number_is_refused_in_any_context(context):
    with pytest.raises(InvalidInput, match="not a number"):
        coerce("abc", scalar(Kind.DECIMAL, 38, 20))
    with pytest.raises(InvalidInput, match="cannot hold"):  # Beyond the digits of any column, not equal to 1.
        coerce(f"1.{'0' * 130}1", scalar(Kind.DECIMAL, 38, 20))
