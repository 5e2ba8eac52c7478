"""What users write of an order, and what columns take it."""

import pytest

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.expression import order
from lakeformat.model.partition import SortField, Transform, TransformKind
from lakeformat.model.schema import Field, Kind, ListOf, Row, scalar

NAMES = ("id", "ts", "a.b", "a", "date", "odd name", "order")
COLUMNS = tuple(Field(id, name, scalar(Kind.STRING)) for id, name in enumerate(NAMES))
DAY, BUCKET = Transform(TransformKind.DAY), Transform(TransformKind.BUCKET, 16)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id", SortField(("id",))),
        ("id asc", SortField(("id",))),
        ("id DESC", SortField(("id",), descending=True, nulls_last=True)),
        ("id desc nulls first", SortField(("id",), descending=True)),
        ("id nulls last", SortField(("id",), nulls_last=True)),
        ("days(ts) asc nulls last", SortField(("ts",), DAY, nulls_last=True)),
        ("DAY(ts)", SortField(("ts",), DAY)),
        ("date(ts) desc", SortField(("ts",), DAY, True, True)),
        ("bucket( 16 ,id )", SortField(("id",), BUCKET)),
        ("truncate(4, odd.name) desc", SortField(("odd", "name"), Transform(TransformKind.TRUNCATE, 4), True, True)),
        ("truncate(4, `odd name`)", SortField(("odd name",), Transform(TransformKind.TRUNCATE, 4))),
        ("identity(id)", SortField(("id",))),
        ("c.d.e.f.g desc", SortField(("c", "d", "e", "f", "g"), descending=True, nulls_last=True)),
        ("a.b", SortField(("a.b",))),  # There is a column called just so.
        ("a.b desc", SortField(("a.b",), descending=True, nulls_last=True)),
        ("date", SortField(("date",))),
        ("date desc", SortField(("date",), descending=True, nulls_last=True)),
        ("order", SortField(("order",))),
        ("odd name", SortField(("odd name",))),
        ("`odd name` desc", SortField(("odd name",), descending=True, nulls_last=True)),
    ],
)
def test_an_order_is_written_as_in_sql(text, expected):
    assert order.parse([text], COLUMNS, "sort_by") == (expected,)
    if " " not in expected.source[0]:
        assert order.parse([str(expected)], COLUMNS, "sort_by") == (expected,)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ("id", "give a list"),
        (3, "give a list"),
        ([3], "give a list"),
        (["id desc asc"], "'id desc asc': write a column"),
        (["id, ts"], "'id, ts': write a column"),
        (["id + 1"], "write a column"),
        (["'id'"], "write a column"),
        (["`id"], "write a column"),
        ([""], "write a column"),
        (["days(ts"], "write a column"),
        (["weeks(ts)"], "no transform 'weeks'"),
        (["bucket(id)"], r"write bucket\(16, id\)"),
        (["days(3, ts)"], r"write day\(ts\)"),
        (["days(ts) + 1"], "write a column"),
    ],
)
def test_what_is_no_order_is_named(texts, told):
    with pytest.raises(InvalidInput, match=told):
        order.parse(texts, COLUMNS, "sort_by")


FIELDS = (
    Field(1, "id", scalar(Kind.BIGINT)),
    Field(2, "ts", scalar(Kind.TIMESTAMP, 6)),
    Field(3, "a", Row((Field(4, "b", scalar(Kind.STRING)), Field(5, "c", ListOf(Field(6, "element", Kind.INT)))))),
)


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("nope", NotFound, "'nope'"),
        ("a.nope", NotFound, "'a.nope': a is row<.*its parts are b, c"),
        ("id.b", NotFound, "'id.b': id is bigint"),
        ("a", InvalidInput, "names 'a', of type row"),
        ("a.c", InvalidInput, "names 'a.c', of type array"),
        ("days(id)", InvalidInput, "id is bigint, which day does not take"),
        ("bucket(0, id)", InvalidInput, "at least 1"),
        ("void(id)", InvalidInput, r"void\(id\)"),
    ],
)
def test_what_columns_do_not_take_is_named(text, error, told):
    with pytest.raises(error, match=told):
        order.check(order.parse([text], (), "sort_by"), FIELDS, "table")


def test_a_column_may_come_twice_by_other_transforms_only():
    order.check(order.parse(["days(ts)", "ts desc", "a.b"], (), "sort_by"), FIELDS, "table")
    assert len(order.parse(["id", "id asc"], (), "sort_by")) == 1
    with pytest.raises(InvalidInput, match=r"names 'day\(ts\)' twice"):
        order.check(order.parse(["days(ts)", "day(ts) desc"], (), "sort_by"), FIELDS, "table")
