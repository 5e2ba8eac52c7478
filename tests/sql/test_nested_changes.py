"""UPDATE, DELETE and MERGE over arrays, maps and structs of tables without a key: each changes the rows as a query computes them."""

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, NotFound

NAN = float("nan")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.list_(pa.int32())),
        ("x", pa.list_(pa.float64())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("s", pa.struct([("p", pa.int32()), ("q", pa.struct([("r", pa.string()), ("v", pa.list_(pa.string()))]))])),
        ("w", pa.list_(pa.struct([("k", pa.timestamp("us")), ("b", pa.binary())]))),
    ]
)
MOMENT = pa.scalar(1, pa.timestamp("us")).as_py()
ROWS = [
    (1, [1, 2], [1.5, NAN], [("a", 1)], {"p": 1, "q": {"r": "x", "v": ["é", ""]}}, [{"k": MOMENT, "b": b"\x00"}]),
    (2, [], [], [], None, []),
    (3, None, None, None, {"p": None, "q": None}, None),
    (4, [None], [None], [("a", None), ("b", 2)], {"p": 4, "q": {"r": None, "v": None}}, [None]),
    (5, [1, 2], [-0.0], [("a", 1)], {"p": 1, "q": {"r": "x", "v": ["é", ""]}}, [{"k": None, "b": b""}]),
    (5, [1, 2], [-0.0], [("a", 1)], {"p": 1, "q": {"r": "x", "v": ["é", ""]}}, [{"k": None, "b": b""}]),
    (6, [12], [0.0, -1.0], [("", 0)], {"p": 0, "q": {"r": "", "v": [None]}}, [{"k": MOMENT, "b": None}]),
    (7, [1, 2, None], [NAN], [("b", 2), ("a", None)], {"p": 1, "q": {"r": "x", "v": []}}, []),
]
UPDATES = [
    ("a", "array_append(a, 9)", "size(a) < 3"),
    ("a", "filter(a, v -> v IS NOT NULL)", "true"),
    ("a", "array(CAST(id AS INT), size(m))", "array_contains(a, 1)"),
    ("x", "transform(x, v -> v + 1)", "exists(x, v -> isnan(v)) OR id = 5"),
    ("m", "map('k', id)", "m['a'] IS NULL"),
    ("m", "map_from_arrays(map_keys(m), transform(map_values(m), v -> v * 2))", "cardinality(m) > 0"),
    ("s", "named_struct('p', size(a), 'q', s.q)", "s.q.r = 'x'"),
    ("id", "id + size(s.q.v)", "array_contains(s.q.v, 'é') OR s.q.v IS NULL"),
    ("id", "-id", "try_element_at(w, 1).b IS NOT NULL"),
]


@pytest.fixture(params=["paimon", "iceberg", "iceberg, merge-on-read"])
def table(request, tmp_path):
    form, _, mode = request.param.partition(", ")
    properties = {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")} if mode else {}
    table = Lake(tmp_path).create_table("d.t", SCHEMA, format=form, properties=properties)
    table.append(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], SCHEMA))
    return table


def rows(data):
    return sorted(map(repr, data.to_arrow().to_pylist()))


def queried(lake, changed, expression, condition):
    columns = (f"if({condition}, {expression}, {name}) AS {name}" if name == changed else name for name in SCHEMA.names)
    return rows(lake.sql(f"SELECT {', '.join(columns)} FROM d.t"))


@pytest.mark.parametrize(("changed", "expression", "condition"), UPDATES)
def test_an_update_changes_rows_as_a_query_computes_them(table, tmp_path, changed, expression, condition):
    lake = Lake(tmp_path)
    expected = queried(lake, changed, expression, condition)
    assert expected != rows(table.scan())
    lake.sql(f"UPDATE d.t SET {changed} = {expression} WHERE {condition}")
    assert rows(lake.table("d.t").scan()) == expected


@pytest.mark.parametrize("condition", [condition for _, _, condition in UPDATES])
def test_a_delete_removes_the_rows_that_a_query_finds(table, tmp_path, condition):
    lake = Lake(tmp_path)
    expected = rows(lake.sql(f"SELECT * FROM d.t WHERE NOT coalesce({condition}, false)"))
    lake.sql(f"DELETE FROM d.t WHERE {condition}")
    assert rows(lake.table("d.t").scan()) == expected


def test_a_merge_compares_arrays_of_the_table_and_computes_new_ones(table, tmp_path):
    lake = Lake(tmp_path)
    expected = rows(
        lake.sql(
            "SELECT id, if(array_contains(a, 12) OR id = 1, array_append(a, id), a) AS a, x, m, s, w FROM d.t "
            "UNION ALL SELECT 9, NULL, NULL, map('n', 9), NULL, NULL"
        )
    )
    lake.sql(
        "MERGE INTO d.t USING (SELECT * FROM VALUES (12, 1), (77, 9) AS v (n, id)) u "
        "ON array_contains(t.a, u.n) OR t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET a = array_append(t.a, t.id) "
        "WHEN NOT MATCHED THEN INSERT (id, m) VALUES (u.id, map('n', u.id))"
    )
    assert rows(lake.table("d.t").scan()) == expected


def test_a_merge_sets_a_field_of_a_struct_and_keeps_the_others(table, tmp_path):
    lake = Lake(tmp_path)
    expected = rows(
        lake.sql(
            "SELECT id, a, x, m, CASE WHEN id < 4 THEN named_struct('p', CAST(id AS INT), 'q', "
            "named_struct('r', 'new', 'v', s.q.v)) ELSE s END AS s, w FROM d.t"
        )
    )
    lake.sql(
        "MERGE INTO d.t USING (SELECT * FROM VALUES (1), (2), (3) AS v (n)) u ON t.id = u.n "
        "WHEN MATCHED THEN UPDATE SET s.p = u.n, t.s.q.r = 'new'"
    )
    assert rows(lake.table("d.t").scan()) == expected


def test_verbs_set_fields_of_structs(table):
    table.update({"s.p": "id", "s.q.r": "'u'"}, where="id < 3")
    source = pa.table({"id": [2, 3, 5], "r": ["m2", "m3", "m5"]})
    table.merge_into(source, on="t.id = s.id").when_matched("t.id > 2").update(
        {"t.s.q.r": "s.r", "s.p": "t.s.p + 1"}
    ).merge()
    structs = {row["id"]: row["s"] for row in table.scan(["id", "s"]).to_arrow().to_pylist()}
    assert structs[1] == {"p": 1, "q": {"r": "u", "v": ["é", ""]}}
    assert structs[2] == {"p": 2, "q": {"r": "u", "v": None}}
    assert structs[3] == {"p": None, "q": {"r": "m3", "v": None}}
    assert structs[5] == {"p": 2, "q": {"r": "m5", "v": ["é", ""]}}


def test_a_part_of_a_column_is_assigned_once_and_must_exist(table):
    for values in ({"s.p": 1, "s": None}, {"s.q": None, "s.q.r": "'x'"}):
        with pytest.raises(InvalidInput, match="assigned twice"):
            table.update(values)
    with pytest.raises(NotFound, match=r"s\.z"):
        table.update({"s.z": 1})
    with pytest.raises(NotFound, match=r"a\.z"):
        table.update({"a.z": 1})
    with pytest.raises(InvalidInput, match="whole column"):
        table.merge_into(pa.table({"id": [8]}), "t.id = s.id").when_not_matched().insert({"s.p": "s.id"}).merge()


@pytest.mark.parametrize(("type", "part"), [("ARRAY<DOUBLE>", "x[0]"), ("DOUBLE", "x"), ("FLOAT", "x")])
def test_minus_zero_and_zero_are_apart(tmp_path, type, part):
    lake = Lake(tmp_path)
    values = [f"array({value}D)" if "ARRAY" in type else f"{value}D" for value in ("0.0", "-0.0")]
    lake.sql(f"CREATE TABLE d.z (x {type}, s STRING) USING iceberg")
    lake.sql(f"INSERT INTO d.z VALUES ({values[0]}, 'a'), ({values[1]}, 'b'), ({values[1]}, 'c')")
    lake.sql(f"UPDATE d.z SET s = concat_ws('/', s, CAST({part} AS STRING))")
    assert sorted(lake.table("d.z").scan(["s"]).to_arrow()["s"].to_pylist()) == ["a/0.0", "b/-0.0", "c/-0.0"]
