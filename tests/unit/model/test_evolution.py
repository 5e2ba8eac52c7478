"""What schema changes make of a schema, and what they refuse."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeformat.errors import AlreadyExists, InvalidInput, LakeError, NotFound
from lakeformat.model import evolution as ev
from lakeformat.model.partition import identity
from lakeformat.model.schema import NO_ID, Field, Kind, ListOf, MapOf, Row, Schema, scalar, walk
from lakeformat.model.type_text import parse_column, parse_type

INT, TEXT = scalar(Kind.INT), scalar(Kind.STRING)
SCHEMA = Schema(
    fields=(
        Field(0, "id", INT, nullable=False),
        Field(1, "dt", TEXT),
        Field(2, "k", INT),
        Field(3, "address", Row((Field(4, "city", TEXT), Field(5, "zip", INT)))),
        Field(6, "tags", ListOf(Field(NO_ID, "element", Row((Field(7, "a", INT),))))),
        Field(8, "scores", MapOf(Field(NO_ID, "key", TEXT, False), Field(NO_ID, "value", INT))),
        Field(9, "n", INT, default="7"),
        Field(10, "d", scalar(Kind.DATE)),
    ),
    partitioning=identity("dt"),
    primary_key=("id",),
    properties={"bucket": "4", "bucket-key": "id, k"},
    last_field_id=12,  # 11 and 12 were dropped.
)


def names(schema: Schema) -> list[str]:
    return [field.name for field in schema.fields]


def at(schema: Schema, *path: str) -> Field:
    fields = schema.fields
    for name in path:
        found = next(field for field in fields if field.name == name)
        fields = found.type.fields if isinstance(found.type, Row) else ()
    return found


def test_new_columns_get_ids_that_no_column_ever_had():
    after = ev.apply(SCHEMA, [ev.AddColumn("x", "struct<a: int, b: array<struct<c: string>>>"), ev.AddColumn("y", INT)])
    x = at(after, "x")
    assert (x.id, [node.id for node in walk((x,))]) == (13, [13, 14, 15, NO_ID, 16])
    assert at(after, "y").id == 17
    assert after.last_field_id == 17
    assert after.fields[: len(SCHEMA.fields)] == SCHEMA.fields
    numbered = ev.apply(SCHEMA, [ev.AddColumn("x", "array<map<string, int>>")], collections_have_ids=True)
    assert [node.id for node in walk((at(numbered, "x"),))] == [13, 14, 15, 16]
    again = ev.apply(ev.apply(after, [ev.DropColumn("y")]), [ev.AddColumn("y", "int")])
    assert at(again, "y").id == 18


def test_columns_go_where_they_are_asked_to():
    assert names(ev.apply(SCHEMA, [ev.AddColumn("x", "int", first=True)]))[0] == "x"
    assert names(ev.apply(SCHEMA, [ev.AddColumn("x", "int", after="dt")]))[1:3] == ["dt", "x"]
    assert names(ev.apply(SCHEMA, [ev.MoveColumn("n", first=True)]))[:2] == ["n", "id"]
    assert names(ev.apply(SCHEMA, [ev.MoveColumn("id", after="d")]))[-2:] == ["d", "id"]
    assert names(ev.apply(SCHEMA, [ev.MoveColumn("id", after="k")]))[:3] == ["dt", "k", "id"]
    moved = ev.apply(SCHEMA, [ev.MoveColumn("address.zip", first=True)])
    assert [field.name for field in at(moved, "address").type.fields] == ["zip", "city"]


def test_parts_of_columns_change_by_path():
    after = ev.apply(
        SCHEMA,
        [
            ev.AddColumn("address.street", "string", comment="with number", after="city"),
            ev.RenameColumn("address.zip", "post_code"),
            ev.AddColumn("tags.element.b", "double"),
            ev.ChangeType("tags.element.a", "bigint"),
            ev.ChangeType("scores.value", "bigint"),
            ev.DropColumn("address.city"),
        ],
    )
    assert [(f.id, f.name) for f in at(after, "address").type.fields] == [(13, "street"), (5, "post_code")]
    assert at(after, "address", "street").comment == "with number"
    element = at(after, "tags").type.element
    assert [(f.id, f.name, str(f.type)) for f in element.type.fields] == [(7, "a", "bigint"), (14, "b", "double")]
    assert str(at(after, "scores").type) == "map<string, bigint>"
    assert at(after, "scores").type.value.name == "value"


def test_a_name_with_a_dot_is_a_column_of_that_name_if_there_is_one():
    dotted = Schema((Field(0, "a.b", INT), Field(1, "a", Row((Field(2, "b", INT),)))), last_field_id=2)
    after = ev.apply(dotted, [ev.RenameColumn("a.b", "c"), ev.RenameColumn("a.b", "d")])
    assert names(after) == ["c", "a"]
    assert at(after, "a", "d").id == 2
    assert at(ev.apply(dotted, [ev.DropColumn(("a.b",))]), "a").id == 1


def test_everything_else_changes_too():
    after = ev.apply(
        SCHEMA,
        [
            ev.ChangeComment("n", "count"),
            ev.ChangeDefault("n", "-1"),
            ev.ChangeDefault("d", "2023-05-01"),
            ev.ChangeType("n", "bigint"),
            ev.RenameColumn("n", "m"),
            ev.SetProperties({"a": "1", "bucket": "8"}),
            ev.RemoveProperties(("a", "never-set")),
            ev.SetTableComment("orders"),
        ],
    )
    assert at(after, "m") == Field(9, "m", scalar(Kind.BIGINT), True, "count", "-1")
    assert at(after, "d").default == "2023-05-01"
    assert after.properties == {"bucket": "8", "bucket-key": "id, k"}
    assert (after.comment, after.id, after.primary_key) == ("orders", SCHEMA.id, SCHEMA.primary_key)
    strict = Schema((Field(0, "a", INT, nullable=False),), last_field_id=0)
    assert at(ev.apply(strict, [ev.ChangeNullability("a", True)]), "a").nullable


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (ev.AddColumn("id", "int"), AlreadyExists, "id"),
        (ev.AddColumn("ID", "int"), AlreadyExists, "id"),
        (ev.AddColumn("x", "int", nullable=False), InvalidInput, "NOT NULL"),
        (ev.AddColumn("x", "nonsense"), InvalidInput, "nonsense.*decimal"),
        (ev.AddColumn("x", "int", default="many"), InvalidInput, "default of column x.*many"),
        (ev.AddColumn("x", "int", default=5), InvalidInput, "text"),
        (ev.AddColumn("x", "tinyint", default="500"), InvalidInput, "tinyint cannot hold"),
        (ev.AddColumn("x", "int", after="nowhere"), NotFound, "nowhere"),
        (ev.AddColumn("x", "int", first=True, after="k"), InvalidInput, "either"),
        (ev.AddColumn(" ", "int"), InvalidInput, "blank"),
        (ev.AddColumn("", "int"), InvalidInput, "name"),
        (ev.AddColumn("q.x", "int"), NotFound, "'q'"),
        (ev.AddColumn("n.x", "int"), NotFound, "n is int"),
        (ev.AddColumn("tags.x", "int"), NotFound, "element"),
        (ev.AddColumn("scores.key.x", "int"), InvalidInput, "key"),
        (ev.DropColumn("nowhere"), NotFound, "there are id, dt"),
        (ev.DropColumn("address.nowhere"), NotFound, "there are city, zip"),
        (ev.DropColumn("dt"), InvalidInput, "partition column"),
        (ev.DropColumn("id"), InvalidInput, "primary key"),
        (ev.DropColumn("k"), InvalidInput, "bucket key"),
        (ev.DropColumn("tags.element"), InvalidInput, "last one|nothing else"),
        (ev.RenameColumn("dt", "day"), InvalidInput, "partition column"),
        (ev.RenameColumn("k", "j"), InvalidInput, "bucket key"),
        (ev.RenameColumn("n", "Id"), AlreadyExists, "id"),
        (ev.RenameColumn("n", ""), InvalidInput, "not a name"),
        (ev.RenameColumn("tags.element", "e"), InvalidInput, "nothing else"),
        (ev.MoveColumn("n"), InvalidInput, "either"),
        (ev.MoveColumn("n", after="n"), InvalidInput, "itself"),
        (ev.ChangeType("n", "smallint"), InvalidInput, "n is int: smallint"),
        (ev.ChangeType("id", "bigint"), InvalidInput, "primary key"),
        (ev.ChangeType("dt", "varchar(3)"), InvalidInput, "partition"),
        (ev.ChangeType("address", "string"), InvalidInput, "address.city"),
        (ev.ChangeType("scores.key", "string"), InvalidInput, "key"),
        (ev.ChangeNullability("n", False), InvalidInput, "NOT NULL"),
        (ev.ChangeNullability("id", True), InvalidInput, "primary key"),
        (ev.ChangeDefault("n", "x"), InvalidInput, "default"),
        (ev.SetProperties({"a": 1}), InvalidInput, "text"),
        ("drop everything", InvalidInput, "not a schema change"),
    ],
)
def test_what_would_break_the_table_is_refused_by_name(change, error, said):
    with pytest.raises(error, match=said):
        ev.apply(SCHEMA, [change])


def test_the_last_column_stays():
    one = Schema((Field(0, "a", Row((Field(1, "b", INT),))),), last_field_id=1)
    for change in (ev.DropColumn("a"), ev.DropColumn("a.b")):
        with pytest.raises(InvalidInput, match="last"):
            ev.apply(one, [change])


@pytest.mark.parametrize(
    ("old", "wider", "others"),
    [
        (
            "tinyint",
            ["smallint", "int", "bigint", "float", "double", "decimal(3, 0)"],
            ["decimal(3, 1)", "string", "boolean"],
        ),
        ("int", ["bigint", "double", "decimal(12, 2)"], ["float", "smallint", "decimal(11, 2)", "date"]),
        ("bigint", ["decimal(19, 0)"], ["double", "int", "decimal(18, 0)"]),
        ("float", ["double"], ["int", "decimal(38, 10)"]),
        ("double", [], ["float", "bigint"]),
        ("decimal(5, 2)", ["decimal(6, 2)", "decimal(8, 4)"], ["decimal(6, 4)", "decimal(5, 1)", "double"]),
        ("char(3)", ["char(4)", "varchar(3)", "string"], ["char(2)", "varchar(2)"]),
        ("varchar(3)", ["varchar(4)", "string"], ["varchar(2)", "char(5)"]),
        ("string", [], ["varchar(100)", "bytes"]),
        ("binary(3)", ["varbinary(3)", "bytes"], ["binary(4)", "varbinary(2)"]),
        ("date", ["timestamp(0)", "timestamp(6)"], ["timestamp(9)", "timestamp_ltz(6)", "string"]),
        ("timestamp(3)", ["timestamp(6)"], ["timestamp(0)", "timestamp(9)", "timestamp_ltz(3)", "date"]),
        ("timestamp(7)", ["timestamp(9)"], ["timestamp(6)"]),
        ("array<int>", ["array<int>"], ["array<bigint>"]),
    ],
)
def test_a_type_is_widened_only_to_one_that_holds_its_values(old, wider, others):
    assert ev.can_widen(parse_type(old), parse_type(old))
    assert [t for t in wider if not ev.can_widen(parse_type(old), parse_type(t))] == []
    assert [t for t in others if ev.can_widen(parse_type(old), parse_type(t))] == []


CHANGES = st.one_of(
    st.builds(
        ev.AddColumn, st.sampled_from(["a", "b", "address.c", "tags.element.d"]), st.sampled_from(["int", "row<x int>"])
    ),
    st.builds(ev.DropColumn, st.sampled_from(["a", "b", "n", "address", "address.city", "address.c", "id"])),
    st.builds(ev.RenameColumn, st.sampled_from(["a", "n", "address.c", "dt"]), st.sampled_from(["a", "b", "z"])),
    st.builds(ev.MoveColumn, st.sampled_from(["a", "n", "id"]), st.booleans(), st.sampled_from([None, "id", "b"])),
    st.builds(ev.ChangeType, st.sampled_from(["a", "n"]), st.sampled_from(["bigint", "double"])),
)


@settings(deadline=None)
@given(st.lists(CHANGES, max_size=12))
def test_after_any_changes_ids_are_unique_and_still_mean_the_same_column(changes):
    schema, seen = SCHEMA, {node.id for node in walk(SCHEMA.fields)}
    for change in changes:
        try:
            after = ev.apply(schema, [change])
        except LakeError:
            continue
        ids = [node.id for node in walk(after.fields) if node.id != NO_ID]
        assert len(ids) == len(set(ids))
        assert after.last_field_id >= max(ids)
        assert after.last_field_id >= schema.last_field_id
        before = {node.id for node in walk(schema.fields)}
        assert not (set(ids) - before) & (seen - {NO_ID}), "an id that was used before came back"
        assert {"id", "dt", "k"} <= set(names(after))
        seen |= set(ids)
        schema = after


COLUMNS = st.lists(
    st.tuples(
        st.sampled_from(["a", "A", "b", "c", "d", "a_before", "e"]),
        st.sampled_from(
            ["int", "bigint", "string", "row<x: int>", "row<x: int, y: int>", "decimal(5, 2)", "decimal(9, 2)"]
        ),
        st.sampled_from([None, "text"]),
    ),
    min_size=1,
    unique_by=lambda pair: pair[0].casefold(),
)


@given(COLUMNS, COLUMNS)
@settings(max_examples=150, derandomize=True)
def test_a_schema_goes_towards_any_columns_and_ids_stay_where_values_fit(old, new):
    def fields(columns):
        return tuple(Field(NO_ID, name, parse_type(type), comment=comment) for name, type, comment in columns)

    numbered, last = ev.number(fields(old), -1, collections_have_ids=True)
    before = Schema(fields=numbered, last_field_id=last)
    after = ev.apply(before, ev.towards(before, fields(new)), collections_have_ids=True)
    assert [(field.name, str(field.type), field.comment) for field in after.fields] == [tuple(row) for row in new]
    ids = {field.name.casefold(): field for field in before.fields}
    for field in after.fields:
        was = ids.get(field.name.casefold())
        fits = was is not None and (str(was.type) == str(field.type) or ev.can_widen(was.type, field.type))
        assert (was is not None and was.id == field.id) == fits, field
        assert fits or field.id > last
    assert ev.towards(after, after.fields) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("decimal(10,2)", "decimal(10, 2)"),
        ("DECIMAL(10, 2) NOT NULL", "decimal(10, 2)"),
        ("struct<a: int, b: array<string>>", "row<a: int, b: array<string>>"),
        ("ROW<`a b` INT NOT NULL COMMENT 'it''s', c row(x int)>", "row<a b: int, c: row<x: int>>"),
        ("timestamp(3)", "timestamp(3)"),
        ("timestamp", "timestamp(6)"),
        ("timestamp_ltz", "timestamp_tz(6)"),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", "timestamp_tz(9)"),
        ("map<int,array<map<string,int>>>", "map<int, array<map<string, int>>>"),
        ("binary", "bytes"),
        ("BINARY(3)", "binary(3)"),
        ("multiset<string>", "multiset<string>"),
        ("time", "time(0)"),
    ],
)
def test_types_are_read_from_text(text, said):
    assert str(parse_type(text)) == said
    if "row" not in said:
        assert str(parse_type(said)) == said


def test_a_column_text_has_nullability_and_comment():
    assert parse_column("INT NOT NULL COMMENT 'it''s'") == (INT, False, "it's")
    inner = parse_type("row<a int not null comment 'x'>")
    assert inner == Row((Field(NO_ID, "a", INT, False, "x"),))


@pytest.mark.parametrize(
    "text",
    ["", "foo", "int(3)", "array<", "array<int", "array<int>>", "decimal(39, 1)", "decimal(5, 6)", "char", "char(0)",
     "struct<>", "struct<a int, a int>", "int not", "int x", "timestamp(10)", "map<int>", "array<" * 200, 5, None, "decimal(1,2,3)"],
)  # fmt: skip
def test_text_that_is_no_type_is_refused_by_name(text):
    with pytest.raises(InvalidInput, match="type"):
        parse_type(text)
