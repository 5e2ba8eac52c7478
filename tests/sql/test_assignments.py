"""Values that statements assign to columns of other types: Spark's ANSI store assignment, in every statement alike."""

import datetime as dt
from decimal import Decimal

import pytest

from lakeformat import InvalidInput, Lake, LakeError

# As Iceberg 1.11 on Spark 4.1 stores them.
STORED = [
    ("INT", "2.5", 2), ("INT", "-2.5", -2), ("INT", "CAST(7.9 AS DOUBLE)", 7), ("BIGINT", "1e2", 100), ("INT", "CAST(7 AS BIGINT)", 7),
    ("DECIMAL(5, 2)", "1.005", Decimal("1.01")), ("DECIMAL(5, 2)", "-1.005", Decimal("-1.01")), ("DECIMAL(5, 2)", "3", Decimal("3.00")),
    ("DECIMAL(5, 2)", "CAST(0.125 AS DOUBLE)", Decimal("0.13")), ("DOUBLE", "1.5", 1.5),
    ("STRING", "1", "1"), ("STRING", "1.50", "1.50"), ("STRING", "true", "true"), ("STRING", "DATE '2024-01-01'", "2024-01-01"),
    ("STRING", "id DIV 1", "1"), ("STRING", "id * 1.5", "1.5"),
    ("STRING", "id * 2.5D", "2.5"), ("STRING", "CAST(id AS DOUBLE)", "1.0"), ("STRING", "CAST('-Infinity' AS FLOAT)", "-Infinity"),
    ("DATE", "TIMESTAMP '1969-12-31 23:00:00'", dt.date(1969, 12, 31)), ("TIMESTAMP_NTZ", "DATE '2024-01-01'", dt.datetime(2024, 1, 1)),
    ("STRUCT<a: INT, b: STRING>", "named_struct('a', 1.9, 'b', 2)", {"a": 1, "b": "2"}),
    ("STRUCT<a: STRUCT<x: STRING>>", "named_struct('a', named_struct('x', 1))", {"a": {"x": "1"}}),
    ("ARRAY<INT>", "array(1.5, NULL)", [1, None]), ("ARRAY<STRUCT<x: STRING>>", "array(named_struct('x', 1))", [{"x": "1"}]),
    ("MAP<STRING, INT>", "map(1, 2.5)", [("1", 2)]), ("MAP<STRING, INT>", "map()", []), ("ARRAY<INT>", "array()", []),
]  # fmt: skip
REFUSED = [
    ("INT", "2147483648"), ("INT", "'1'"), ("BOOLEAN", "1"), ("DECIMAL(3, 1)", "99.95"), ("DATE", "'2024-01-01'"),
    ("STRUCT<a: INT>", "named_struct('a', 'x')"), ("ARRAY<INT>", "array('x')"), ("INT", "CAST(1e30 AS DOUBLE)"),
]  # fmt: skip
# {values}, {named} and {assigned} are of the columns v0, v1, ...; `id` is 1.
STATEMENTS = {
    "INSERT": "INSERT INTO d.t SELECT 2, {values}, NULL FROM (SELECT 1 AS id)",
    "INSERT of columns": "INSERT INTO d.t ({columns}, id) SELECT {values}, 2 FROM (SELECT 1 AS id)",
    "INSERT BY NAME": "INSERT INTO d.t BY NAME SELECT {named}, 2 AS id FROM (SELECT 1 AS id)",
    "UPDATE": "UPDATE d.t SET {assigned}",
    "UPDATE by a subquery": "UPDATE d.t SET {assigned} WHERE id IN (SELECT 1)",
    "UPDATE by the engine": "UPDATE d.t SET {assigned}, name = (SELECT 'x')",
    "MERGE UPDATE": "MERGE INTO d.t USING (SELECT 1 AS one) s ON t.id = s.one WHEN MATCHED THEN UPDATE SET {assigned}",
    "MERGE UPDATE alone": "MERGE INTO d.t USING (SELECT 9 AS one) s ON t.id = s.one WHEN NOT MATCHED BY SOURCE THEN UPDATE SET {assigned}",
    "MERGE UPDATE *": "MERGE INTO d.t USING (SELECT id, {named}, 'x' AS name FROM (SELECT 1 AS id)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
    "MERGE INSERT": "MERGE INTO d.t t USING (SELECT 1 AS id, 9 AS one) s ON t.id = s.one WHEN NOT MATCHED THEN INSERT ({columns}, id) VALUES ({values}, 2)",
    "MERGE INSERT *": "MERGE INTO d.t USING (SELECT 9 AS id, {named}, 'x' AS name FROM (SELECT 1 AS id)) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
}  # fmt: skip


def begin(lake, format, types):
    columns = "".join(f", v{index} {type}" for index, type in enumerate(types))
    nulls = ", NULL" * len(types)
    lake.sql(f"DROP TABLE IF EXISTS d.t; CREATE TABLE d.t (id INT{columns}, name STRING) USING {format}")
    lake.sql(f"INSERT INTO d.t VALUES (1{nulls}, NULL)")


def filled(statement, values):
    names = [f"v{index}" for index in range(len(values))]
    pairs = list(zip(names, values, strict=True))
    return statement.format(
        columns=", ".join(names),
        values=", ".join(values),
        named=", ".join(f"{value} AS {name}" for name, value in pairs),
        assigned=", ".join(f"{name} = {value}" for name, value in pairs),
    )


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_every_statement_stores_values_as_spark_does(lake, format):
    types, values, stored = zip(*STORED, strict=True)
    for kind, statement in STATEMENTS.items():
        begin(lake, format, types)
        lake.sql(filled(statement, values))
        (row,) = lake.sql("SELECT * FROM d.t WHERE id <> 1 OR v0 IS NOT NULL").to_arrow().to_pylist()
        assert [row[f"v{index}"] for index in range(len(types))] == list(stored), kind


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_every_statement_refuses_what_spark_does_not_store(lake, format):
    for column, value in REFUSED:
        begin(lake, format, [column])
        for kind in ("INSERT of columns", "UPDATE", "UPDATE by the engine", "MERGE UPDATE *"):
            with pytest.raises(LakeError, match="v0"):
                lake.sql(filled(STATEMENTS[kind], [value]))
        assert lake.sql("SELECT * FROM d.t").to_arrow().to_pylist() == [{"id": 1, "v0": None, "name": None}], column


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_merge_that_inserts_without_the_partition_column_writes_null_there(lake, format):
    lake.sql(f"CREATE TABLE d.t (id INT, v INT, p STRING) USING {format} PARTITIONED BY (p)")
    lake.sql("MERGE INTO d.t t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)")
    assert lake.sql("SELECT * FROM d.t").to_arrow().to_pylist() == [{"id": 1, "v": None, "p": None}]


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_condition_without_columns_is_one_of_all_rows(lake, format):
    for partitioned in ("", "PARTITIONED BY (id)"):
        lake.sql(
            f"DROP TABLE IF EXISTS d.t; CREATE TABLE d.t (id INT, v INT) USING {format} {partitioned}; INSERT INTO d.t VALUES (1, 1), (2, 2)"
        )
        for condition in ("CAST(NULL AS BOOLEAN)", "length('abc') > 3", "1 > 1", "false"):
            lake.sql(f"DELETE FROM d.t WHERE {condition}; UPDATE d.t SET id = 7 WHERE {condition}")
        assert sorted(lake.sql("SELECT id FROM d.t").to_arrow()["id"].to_pylist()) == [1, 2]
        lake.sql("UPDATE d.t SET id = id + 1 WHERE length('abc') = 3")
        assert sorted(lake.sql("SELECT id FROM d.t").to_arrow()["id"].to_pylist()) == [2, 3]
        merge = (
            "MERGE INTO d.t t USING (SELECT 2 AS id) s ON t.id = s.id AND {} WHEN MATCHED THEN UPDATE SET v = v + 10"
        )
        lake.sql(merge.format("length('abc') = 3"))
        lake.sql(merge.format("NULL LIKE '%a%'"))
        assert sorted(lake.sql("SELECT v FROM d.t").to_arrow()["v"].to_pylist()) == [2, 11]
        lake.sql("DELETE FROM d.t WHERE length('abc') = 3")
        assert lake.sql("SELECT id FROM d.t").to_arrow().num_rows == 0


def test_merge_takes_clauses_after_one_that_is_always_true_as_spark_does(lake):
    lake.sql("CREATE TABLE d.t (id INT, v INT); INSERT INTO d.t VALUES (1, 1), (2, 2)")
    head = "MERGE INTO d.t t USING (SELECT 1 AS id) s ON t.id = s.id "
    lake.sql(head + "WHEN MATCHED AND true THEN UPDATE SET v = 9 WHEN MATCHED THEN DELETE")
    assert lake.sql("SELECT v FROM d.t ORDER BY id").to_arrow()["v"].to_pylist() == [9, 2]
    for clause in ("WHEN MATCHED THEN DELETE", "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = (SELECT 1)"):
        with pytest.raises(InvalidInput, match="without a condition"):
            lake.sql(f"{head} {clause} {clause}")


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_tables_full_name_comes_before_a_column_of_its_databases_name(lake, format):
    lake.sql(f"CREATE TABLE d.t (id INT, d INT, st STRUCT<a: INT>) USING {format}")
    lake.sql("INSERT INTO d.t VALUES (1, 10, named_struct('a', 1)), (2, 20, NULL), (3, 30, named_struct('a', 3))")
    same = "EXISTS (SELECT 1 FROM d.t s WHERE s.st.a = d.t.st.a AND d.t.d > 10)"
    assert lake.sql(f"SELECT d.t.st.a AS a FROM d.t WHERE d.t.st.a = 3 AND {same}").to_arrow()["a"].to_pylist() == [3]
    lake.sql(f"UPDATE d.t SET d = d.t.d + d.t.st.a WHERE {same}")
    lake.sql(
        "MERGE INTO d.t USING (SELECT 1 AS k) s ON d.t.id = s.k AND d.t.d < 30 WHEN MATCHED THEN UPDATE SET d = length(d.t.st.a)"
    )
    assert lake.sql("SELECT d FROM d.t ORDER BY id").to_arrow()["d"].to_pylist() == [1, 20, 33]
    lake.sql(f"DELETE FROM d.t WHERE {same}")
    assert lake.sql("SELECT id FROM d.t ORDER BY id").to_arrow()["id"].to_pylist() == [1, 2]


def test_a_merge_without_a_clause_for_matches_takes_several_of_them(lake):
    lake.sql("CREATE TABLE d.t (id INT, v INT); INSERT INTO d.t VALUES (1, 1), (2, 2)")
    lake.sql(
        "MERGE INTO d.t t USING (VALUES (1), (1), (3)) s(id) ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) "
        "WHEN NOT MATCHED BY SOURCE AND t.v = (SELECT 2) THEN UPDATE SET v = (SELECT 7)"
    )
    assert sorted(map(str, lake.sql("SELECT * FROM d.t").to_arrow().to_pylist())) == [
        "{'id': 1, 'v': 1}", "{'id': 2, 'v': 7}", "{'id': 3, 'v': None}"
    ]  # fmt: skip


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_insert_by_position_takes_the_fields_of_structs_by_position(tmp_path, format):
    """As plain Spark 4.3 answered."""
    inserts_by_position(Lake(tmp_path), format)


@pytest.mark.spark
def test_insert_by_position_takes_the_fields_of_structs_by_position_on_spark(tmp_path, spark):
    inserts_by_position(Lake(tmp_path), "iceberg", spark=spark)


def inserts_by_position(lake, format, **how):
    struct = "STRUCT<a: STRING, b: STRING>"
    lake.sql(f"CREATE TABLE d.t (id INT, st {struct}, ss ARRAY<{struct}>) USING {format}")
    swapped, other = "named_struct('b', 'y', 'a', 'x')", "struct('y', 'x')"
    for text in (
        f"VALUES (1, {swapped}, array({swapped}, NULL))",
        f"(id, ss, st) VALUES (2, array({other}), {other})",
        f"BY NAME SELECT 3 AS id, {swapped} AS st, array({swapped}) AS ss",
        "VALUES (4, NULL, NULL)",
    ):
        lake.sql(f"INSERT INTO d.t {text}", **how)
    by_place, by_name = {"a": "y", "b": "x"}, {"a": "x", "b": "y"}
    rows = lake.sql("SELECT * FROM d.t ORDER BY id").to_arrow().to_pylist()
    assert [tuple(row.values())[1:] for row in rows] == [
        (by_place, [by_place, None]), (by_place, [by_place]), (by_name, [by_name]), (None, None),
    ]  # fmt: skip
    lake.sql(f"CREATE TABLE d.n (id INT, st STRUCT<a: INT, b: STRING>) USING {format}")
    with pytest.raises(InvalidInput, match="st"):
        lake.sql("INSERT INTO d.n VALUES (1, named_struct('b', 'y', 'a', 2))", **how)
