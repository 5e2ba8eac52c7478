"""Conditions as values: building, binding, splitting, single rows, SQL text."""

import datetime as dt
import math
import pickle
import uuid
from decimal import Decimal

import pytest

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.expression.spark_sql import to_sql
from lakeformat.model import predicate
from lakeformat.model.predicate import (
    ALWAYS,
    NEVER,
    Call,
    Column,
    Literal,
    and_,
    between,
    bind,
    case,
    cast,
    coerce,
    column,
    columns_of,
    conjuncts,
    eq,
    eq_null_safe,
    ge,
    gt,
    in_tuples,
    is_in,
    is_never,
    is_not_null,
    is_null,
    le,
    like,
    lt,
    ne,
    not_,
    or_,
    partition_equals,
    rename,
    split,
)
from lakeformat.model.schema import Field, Kind, Row, scalar
from tests.row_conditions import value_of

NAN = math.nan
FIELDS = (
    Field(0, "id", scalar(Kind.INT)),
    Field(1, "dt", scalar(Kind.DATE)),
    Field(2, "Price", scalar(Kind.DECIMAL, 5, 2)),
    Field(3, "ts", scalar(Kind.TIMESTAMP, 3)),
    Field(4, "at", scalar(Kind.TIMESTAMP_TZ, 6)),
    Field(5, "ns", scalar(Kind.TIMESTAMP, 9)),
    Field(6, "f", scalar(Kind.FLOAT)),
    Field(7, "s", scalar(Kind.STRING)),
    Field(8, "flag", scalar(Kind.BOOLEAN)),
    Field(9, "blob", scalar(Kind.BYTES)),
    Field(10, "clock", scalar(Kind.TIME, 3)),
    Field(11, "u", scalar(Kind.UUID)),
    Field(12, "address", Row((Field(13, "City", scalar(Kind.STRING)), Field(14, "zip", scalar(Kind.INT))))),
    Field(15, "a", scalar(Kind.INT)),
    Field(16, "A", scalar(Kind.INT)),
)


def test_conditions_flatten_and_forget_what_says_nothing():
    a, b, c = eq("a", 1), eq("b", 2), eq("c", 3)
    assert and_() is ALWAYS or and_() == ALWAYS
    assert is_never(or_())
    assert and_(a, ALWAYS, and_(b, c)) == Call("and", (a, b, c))
    assert or_(a, NEVER, or_(b, c)) == Call("or", (a, b, c))
    assert is_never(and_(a, NEVER))
    assert or_(a, ALWAYS) == ALWAYS
    assert and_(a) is a
    assert not_(not_(a)) is a
    assert not_(ALWAYS) is NEVER
    assert not_(Literal(None)) == Literal(None)
    assert conjuncts(and_(a, and_(b, c))) == (a, b, c)
    assert conjuncts(ALWAYS) == ()


def test_one_is_not_true():
    assert Literal(1) != ALWAYS  # Python has 1 == True.
    assert Literal(float("nan")) == Literal(float("nan"))
    assert and_(Literal(1), eq("a", 1)) == Call("and", (Literal(1), eq("a", 1)))


def test_names_that_are_no_operator_are_refused():
    with pytest.raises(InvalidInput, match=r"'frobnicate'.*coalesce"):
        predicate.call("frobnicate", column("a"))
    with pytest.raises(InvalidInput, match="2 arguments, not 1"):
        predicate.call("eq", column("a"))
    with pytest.raises(InvalidInput, match="1 to 2"):
        predicate.call("round")
    with pytest.raises(InvalidInput, match="non-empty"):
        column("")
    with pytest.raises(InvalidInput, match="nonsense"):
        cast("a", "nonsense")


@pytest.mark.parametrize(
    ("condition", "bound"),
    [
        (eq("ID", "5"), eq("id", 5)),
        (eq("price", 1), eq("Price", Decimal("1.00"))),
        (eq("dt", "2023-5-1"), eq("dt", dt.date(2023, 5, 1))),
        (eq("dt", dt.datetime(2023, 5, 1)), eq("dt", dt.date(2023, 5, 1))),
        (lt("dt", dt.datetime(2023, 5, 1, 10)), le("dt", dt.date(2023, 5, 1))),
        (ge("dt", dt.datetime(2023, 5, 1, 10)), gt("dt", dt.date(2023, 5, 1))),
        (eq("ts", "2023-05-01 10:00:00.123"), eq("ts", dt.datetime(2023, 5, 1, 10, 0, 0, 123000))),
        (gt("ts", "2023-05-01T10:00:00.123456"), gt("ts", dt.datetime(2023, 5, 1, 10, 0, 0, 123000))),
        (eq("ts", dt.date(2023, 5, 1)), eq("ts", dt.datetime(2023, 5, 1))),
        (eq("at", "2023-05-01 10:00:00+02:00"), eq("at", dt.datetime(2023, 5, 1, 8, tzinfo=dt.UTC))),
        (eq("at", "2023-05-01"), eq("at", dt.datetime(2023, 5, 1, tzinfo=dt.UTC))),
        (eq("clock", "10:00:00.5"), eq("clock", dt.time(10, 0, 0, 500000))),
        (
            eq("u", "12345678-1234-1234-1234-123456789abc"),
            eq("u", uuid.UUID("12345678-1234-1234-1234-123456789abc").bytes),
        ),
        (eq("flag", " TRUE "), eq("flag", True)),
        (eq("f", 1), eq("f", 1.0)),
        (gt("f", 10**400), gt("f", math.inf)),
        (eq(column("address", "city"), "x"), eq(column("address", "City"), "x")),
        (Call("gt", (Literal(5), column("id"))), lt("id", 5)),
        (gt("id", 2.5), gt("id", 2)),
        (ge("id", Decimal("2.5")), gt("id", 2)),
        (lt("id", 2.5), le("id", 2)),
        (lt("id", -2.5), le("id", -3)),
        (le("price", 1.239), le("Price", Decimal("1.23"))),
        (eq("id", None), Literal(None)),
        (eq_null_safe("id", None), is_null("id")),
        (eq_null_safe("id", 2**40), NEVER),
        (is_in("id", [1, 2.5, 2**40, None]), is_in("id", [1, None])),
        (is_in("id", [2.5, None]), Literal(None)),
        (
            in_tuples(["dt", "id"], [("2023-05-01", None), ("2023-05-02", 2**40)]),
            in_tuples(["dt", "id"], [(dt.date(2023, 5, 1), None)]),
        ),
        (in_tuples(["id"], [(2**40,)]), NEVER),
        (Call("eq", (Literal(1), Literal(1.0))), ALWAYS),
        (Call("eq", (Literal(1), Literal(None))), Literal(None)),
        (and_(eq("id", 1), Call("eq", (Literal(1), Literal(2)))), NEVER),
    ],
)
def test_values_become_those_of_the_columns(condition, bound):
    found = bind(condition, FIELDS)
    assert found == bound
    assert repr(found) == repr(bound)
    assert bind(found, FIELDS) == found


@pytest.mark.parametrize(
    ("condition", "for_a_value"),
    [
        (gt("id", 2**40), False),
        (le("id", 2**40), True),
        (lt("id", NAN), True),
        (gt("id", -math.inf), True),
        (eq("id", 2.5), False),
        (ne("id", 2.5), True),
        (ne("id", 2**40), True),
        (ge("price", 1000), False),
        (lt("price", "-1000"), False),
        (gt("ns", "9999-01-01"), False),
        (is_in("id", [2.5, 2**40]), False),
    ],
)
def test_a_value_that_the_type_cannot_hold_decides_but_for_null(condition, for_a_value):
    found = bind(condition, FIELDS)
    row = {"id": 7, "Price": Decimal("7.00"), "ns": dt.datetime(2023, 1, 1)}
    assert value_of(found, row) is for_a_value
    assert value_of(found, dict.fromkeys(row)) is None
    assert value_of(not_(found), row) is not for_a_value
    assert value_of(not_(found), dict.fromkeys(row)) is None


def test_nanoseconds_survive_where_python_has_none():
    found = bind(eq("ns", "2023-05-01 10:00:00.123456789"), FIELDS)
    assert found == Call("eq", (Column(("ns",)), cast(Literal("2023-05-01 10:00:00.123456789"), "timestamp(9)")))
    assert bind(gt("ts", "2023-05-01 10:00:00.123456789"), FIELDS) == gt(
        "ts", dt.datetime(2023, 5, 1, 10, 0, 0, 123000)
    )


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (eq("id", "abc"), "id is int.*'abc'"),
        (eq("id", True), "id is int.*True.*bool"),
        (eq("dt", 5), "dt is date.*5.*int"),
        (eq("dt", "yesterday"), "dt is date.*yesterday"),
        (eq("dt", "2023-02-30"), "dt is date"),
        (eq("flag", 1), "flag is boolean"),
        (eq("s", 5), "s is string"),
        (eq("blob", "text"), "blob is bytes"),
        (eq("address", "x"), "compare a part"),
        (is_in("id", ["x"]), "id is int"),
        (in_tuples(["id"], [("x",)]), "id is int"),
        (like("id", "1%"), "id is int: cast"),
        (eq("u", "not-a-uuid"), "u is uuid"),
        (eq("price", object()), "Price is decimal"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_column_type_and_value(condition, said):
    with pytest.raises(InvalidInput, match=said):
        bind(condition, FIELDS)


def test_columns_that_are_not_there_are_named_with_those_that_are():
    with pytest.raises(NotFound, match=r"'nope'; there are id, dt"):
        bind(eq("nope", 1), FIELDS)
    with pytest.raises(NotFound, match=r"'street' in address; there are City, zip"):
        bind(eq(column("address", "street"), 1), FIELDS)
    with pytest.raises(NotFound, match="id is int"):
        bind(eq(column("id", "x"), 1), FIELDS)
    assert bind(eq("a", 1), FIELDS) == eq("a", 1)
    assert bind(eq("A", 1), FIELDS) == eq("A", 1)
    with pytest.raises(InvalidInput, match="Id or iD"):
        predicate.resolve(("ID",), (Field(0, "Id", FIELDS[0].type), Field(1, "iD", FIELDS[0].type)))


def test_splitting_by_partition_columns():
    on_dt, on_id = eq("dt", "a"), gt("id", 1)
    assert split(and_(on_dt, on_id), ["dt"]) == (on_dt, on_id)
    assert split(on_dt, ["dt"]) == (on_dt, ALWAYS)
    assert split(on_id, ["dt"]) == (ALWAYS, on_id)
    assert split(NEVER, ["dt"]) == (NEVER, ALWAYS)
    mixed = or_(and_(on_dt, on_id), and_(eq("dt", "b"), lt("id", 0)))
    assert split(mixed, ["dt"]) == (or_(on_dt, eq("dt", "b")), mixed)
    assert split(or_(on_dt, on_id), ["dt"]) == (ALWAYS, or_(on_dt, on_id))


def test_columns_and_renaming():
    condition = and_(eq(column("t", "a"), 1), gt(column("s", "b", "c"), column("d")))
    assert columns_of(condition) == {"t", "s", "d"}
    renamed = rename(condition, {("t",): (), ("s", "b"): ("x",), "d": "e"})
    assert renamed == and_(eq("a", 1), gt(column("x", "c"), column("e")))
    assert rename(condition, {}) == condition
    with pytest.raises(InvalidInput, match="names no column"):
        rename(eq(column("t"), 1), {("t",): ()})


def test_one_partition_is_null_safe():
    found = partition_equals({"dt": None, "h": 3})
    assert value_of(found, {"dt": None, "h": 3}) is True
    assert value_of(found, {"dt": "x", "h": 3}) is False
    assert value_of(found, {"dt": None, "h": None}) is False
    assert partition_equals({}) == ALWAYS


ROW = {
    "i": 7,
    "n": None,
    "f": NAN,
    "s": "a%b\nc",
    "d": dt.date(2023, 5, 1),
    "p": Decimal("1.25"),
    "r": {"x": 1},
    "t": dt.datetime(2023, 5, 1),
}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (eq("i", 7), True),
        (eq("i", 7.0), True),
        (eq("p", 1.25), True),
        (eq("n", 1), None),
        (not_(eq("n", 1)), None),
        (and_(eq("n", 1), eq("i", 8)), False),
        (or_(eq("n", 1), eq("i", 7)), True),
        (eq("f", NAN), True),
        (gt("f", math.inf), True),
        (lt("f", 1.0), False),
        (Call("lt", (Literal(1.0), column("f"))), True),
        (predicate.is_nan("f"), True),
        (predicate.is_nan("n"), False),
        (is_in("i", [1, None]), None),
        (is_in("i", [7, None]), True),
        (is_in("n", [7]), None),
        (is_in("f", [NAN]), True),
        (eq_null_safe("n", None), True),
        (in_tuples(["i", "n"], [(7, None)]), True),
        (in_tuples(["i", "n"], [(7, 1)]), False),
        (like("s", "a\\%_%c"), True),
        (like("s", "a%"), True),
        (like("s", "A%"), False),
        (like("s", "a!%%", "!"), True),
        (like("n", "%"), None),
        (predicate.starts_with("s", "a%"), True),
        (between("i", 7, 8), True),
        (eq("t", dt.date(2023, 5, 1)), True),
        (is_not_null(column("r", "x")), True),
        (eq(column("r", "x"), 1), True),
        (Call("add", (column("i"), Literal(1))), 8),
        (Call("div", (column("i"), Literal(2))), 3.5),
        (Call("div", (column("i"), Literal(0))), None),
        (Call("mod", (Literal(-7), Literal(3))), -1),
        (Call("int_div", (Literal(-7), Literal(2))), -3),
        (Call("neg", (column("i"),)), -7),
        (case((gt("i", 8), "big"), (gt("i", 6), "fine")), "fine"),
        (case((gt("n", 8), "big"), otherwise="unknown"), "unknown"),
        (Call("coalesce", (column("n"), column("i"))), 7),
        (Call("nullif", (column("i"), Literal(7))), None),
        (Call("substring", (Literal("abc"), Literal(-5), Literal(3))), "a"),
        (Call("substring", (Literal("abc"), Literal(2))), "bc"),
        (Call("concat", (Literal("a"), column("n"))), None),
        (Call("greatest", (column("n"), Literal(1), column("f"))), NAN),
        (Call("year", (column("d"),)), 2023),
        (Call("round", (Literal(Decimal("1.25")), Literal(1))), Decimal("1.3")),
    ],
)
def test_one_row_is_evaluated_as_in_sql(condition, expected):
    found = value_of(condition, ROW)
    assert repr(found) == repr(expected)


def test_what_one_row_cannot_decide_is_named():
    with pytest.raises(NotFound, match="'q'; there are i, n"):
        value_of(eq("q", 1), ROW)
    with pytest.raises(InvalidInput, match="cannot be compared"):
        value_of(eq("i", "7"), ROW)
    with pytest.raises(InvalidInput, match="cast"):
        value_of(cast("i", "string"), ROW)
    with pytest.raises(InvalidInput, match="not a number"):
        value_of(Call("add", (column("s"), Literal(1))), ROW)
    with pytest.raises(InvalidInput, match="upper"):
        value_of(Call("upper", (column("i"),)), ROW)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (eq(column("we`ird", "x y"), "it's \\ \n"), "(`we``ird`.`x y` = CAST(X'69742773205C200A' AS STRING))"),
        (eq("a", "${x}"), "(`a` = CAST(X'247B787D' AS STRING))"),
        (eq("a", "é\n$1"), "(`a` = 'é\n$1')"),
        (eq("a", dt.date(2023, 5, 1)), "(`a` = DATE'2023-05-01')"),
        (eq("a", dt.datetime(2023, 5, 1)), "(`a` = TIMESTAMP_NTZ'2023-05-01 00:00:00.000000')"),
        (
            eq("a", dt.datetime(2023, 5, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
            "(`a` = TIMESTAMP_LTZ'2023-04-30 22:00:00.000000Z')",
        ),
        (eq("a", -(2**63)), "(`a` = CAST('-9223372036854775808' AS BIGINT))"),
        (eq("a", Decimal("-1.50")), "(`a` = (- 1.50BD))"),
        (eq("a", -0.5), "(`a` = CAST('-0.5' AS DOUBLE))"),
        (eq("a", NAN), "(`a` = CAST('NaN' AS DOUBLE))"),
        (eq("a", b"\x0a"), "(`a` = X'0A')"),
        (is_in("a", [1, None]), "(`a` IN (1, NULL))"),
        (in_tuples(["a", "b"], [(1, None)]), "((`a` <=> 1 AND `b` <=> NULL))"),
        (like("a", "x\\%"), "(`a` LIKE 'x!%' ESCAPE '!')"),
        (like("a", "!a_##%", "#"), "(`a` LIKE '!!a_#%' ESCAPE '!')"),
        (case((eq("a", 1), 2), otherwise=3), "(CASE WHEN (`a` = 1) THEN 2 ELSE 3 END)"),
        (cast("a", "timestamp(6)"), "CAST(`a` AS TIMESTAMP_NTZ)"),
        (cast("a", "map<string, array<row<x: int>>>"), "CAST(`a` AS MAP<STRING, ARRAY<STRUCT<`x`: INT>>>)"),
        (not_(is_null("a")), "(`a` IS NOT NULL)"),
    ],
)
def test_sql_text_is_sparks(condition, text):
    assert to_sql(condition) == text


def test_a_value_without_sql_text_is_named():
    with pytest.raises(InvalidInput, match="object"):
        to_sql(eq("a", object()))
    with pytest.raises(InvalidInput, match="NaN"):
        to_sql(eq("a", Decimal("NaN")))


@pytest.mark.parametrize(
    ("pattern", "escape"), [("a\\", "\\"), ("a\\b", "\\"), ("a!", "!"), ("x", "!!"), ("x", ""), (5, "\\")]
)
def test_a_pattern_that_escapes_nothing_is_refused(pattern, escape):
    with pytest.raises(InvalidInput, match="LIKE"):
        like("a", pattern, escape)


@pytest.mark.parametrize(
    ("text", "after"),
    [("a", "b"), ("aé", "aê"), ("a\U0010ffff", "b"), ("\ud7ff", "\ue000"), ("\U0010ffff", None), ("", None)],
)
def test_the_successor_of_a_prefix_is_above_all_that_begin_with_it(text, after):
    assert predicate.successor(text) == after
    if after is not None:
        assert (text + "\U0010ffff" * 3).encode() < after.encode()


def test_values_are_taken_or_refused_as_the_type_says():
    assert coerce("2023-05-01", scalar(Kind.DATE)) == dt.date(2023, 5, 1)
    assert coerce(None, scalar(Kind.DATE)) is None
    assert repr(coerce("0.1", scalar(Kind.FLOAT))) == "0.10000000149011612"
    assert coerce(1.5, scalar(Kind.DECIMAL, 5, 2)) == Decimal("1.50")
    for value, kind in ((128, scalar(Kind.TINYINT)), (1.5, scalar(Kind.INT)), ("1.234", scalar(Kind.DECIMAL, 5, 2))):
        with pytest.raises(InvalidInput, match=r"size: .* cannot hold"):
            coerce(value, kind, "size")


def test_conditions_travel_to_workers():
    condition = and_(in_tuples(["a"], [(1,), (None,)]), like("b", "x%"), is_in("c", [NAN]))
    assert repr(pickle.loads(pickle.dumps(condition))) == repr(condition)
