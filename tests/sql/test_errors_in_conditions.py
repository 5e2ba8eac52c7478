"""Division by zero and other ANSI errors in conditions and values: raised where Spark raises them, and for no other rows."""

from importlib.metadata import version

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, LakeError, UnsupportedFeature

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int32()),
        "n": pa.array([0, 2, None, 5], pa.int32()),
        "b": pa.array([2**63 - 1, 7, 0, None], pa.int64()),
        "s": ["x", "12", None, "3"],
        "p": ["a", "a", "b", "b"],
    }
)
RAISING = ["1 / n > 0", "10 % n = 0", "7 DIV n > 1", "b + 1 > 0", "b * 2 <> 4", "b - (-1) > 0", "-2 - b < 0", "CAST(b AS INT) > 3", "CAST(s AS INT) > 0", "id > 1 OR id / n > 0", "CASE WHEN id = 1 THEN 1 / n > 0 END", "coalesce(n, 1 / (id - 3)) = 5"]  # fmt: skip
# Of the rows that meet them, the ids.
FINE = {
    "n <> 0 AND 10 / n > 4": [2],
    "n = 0 OR 10 % n = 0": [1, 2, 4],
    "id > 1 AND 1 / n > 0": [2, 4],
    "CASE WHEN n = 0 THEN true ELSE 5 % n = 0 END": [1, 4],
    "s <> 'x' AND CAST(s AS INT) > 5": [2],
    "length(s) < 2 AND id <> 1 AND CAST(s AS INT) > 0": [4],
    "s RLIKE '2' AND n > 0 AND 10 / n > 4": [2],
    "if(n = 0, 1, 10 / n) = 1": [1],
    "coalesce(n, 1 / (id - 1)) = 5": [4],
    "id = 3 AND NULL / n IS NULL": [3],
    "p = 'b' AND 10 / n = 2": [4],
    "b IS NULL OR b < 10 AND b + 1 > 5": [2, 4],
}
STATEMENTS = {
    "delete": "DELETE FROM d.t WHERE {condition}",
    "update": "UPDATE d.t SET s = 'set' WHERE {condition}",
    "merge": "MERGE INTO d.t t USING (SELECT 0 AS id) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND {condition} THEN DELETE",
    "select": "SELECT id FROM d.t WHERE {condition}",
}


@pytest.fixture(params=["paimon", "iceberg"])
def lake(request, tmp_path):
    lake = Lake(str(tmp_path))
    for name, partitions in (("t", ""), ("by_p", "PARTITIONED BY (p)")):
        lake.sql(
            f"CREATE TABLE d.{name} (id INT, n INT, b BIGINT, s STRING, p STRING) USING {request.param} {partitions}"
        )
        lake.table(f"d.{name}").append(ROWS)
    return lake


def qualified(condition, statement):
    return condition.replace("id ", "t.id ") if statement.startswith("MERGE") else condition


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_condition_raises_what_spark_raises(lake, name):
    for condition in RAISING:
        text = STATEMENTS[name].format(condition=qualified(condition, STATEMENTS[name]))
        with pytest.raises(LakeError):
            lake.sql(text).to_arrow()
    for condition in ("1 / n > 0", "10 % n = 0", "7 DIV n > 1"):
        with pytest.raises(InvalidInput, match=r"(?i)by.zero"):
            lake.sql(STATEMENTS[name].format(condition=condition)).to_arrow()
    assert lake.table("d.t").scan().count() == len(ROWS)


def test_a_condition_raises_nothing_for_rows_that_it_need_not_look_at(lake):
    """A SELECT of each, and one of the other statements."""
    changes = [
        "DELETE FROM d.{table} WHERE {condition}",
        "UPDATE d.{table} SET s = 'set' WHERE {condition}",
        "MERGE INTO d.{table} t USING (SELECT 0 AS one) s ON t.id = s.one "
        "WHEN NOT MATCHED BY SOURCE AND {condition} THEN UPDATE SET s = 'set'",
    ]
    for number, (condition, ids) in enumerate(FINE.items()):
        rows = lake.sql(f"SELECT id FROM d.t WHERE {condition} ORDER BY id").to_arrow()
        assert rows["id"].to_pylist() == ids, condition
        table = ("t", "by_p")[number // 3 % 2]
        lake.sql(changes[number % 3].format(table=table, condition=condition))
        left = lake.sql(f"SELECT id FROM d.{table} WHERE s IS NULL OR s <> 'set' ORDER BY id").to_arrow()
        assert left["id"].to_pylist() == [id for id in (1, 2, 3, 4) if id not in ids], condition
        lake.table(f"d.{table}").overwrite(ROWS)


def test_verbs_raise_it_too(lake):
    table = lake.table("d.t")
    for change in (
        lambda: table.delete("1 / n > 0"),
        lambda: table.update({"n": "id % n"}),
        lambda: table.update({"s": "'x'"}, "id / n > 0"),
        lambda: table.scan(where="7 DIV n = 1").to_arrow(),
    ):
        with pytest.raises(InvalidInput, match=r"n`\).*division by zero; write nullif"):
            change()
    table.update({"n": "id % nullif(n, 0)"}, "n = 0 OR id / n > 0")
    assert table.scan(columns=["n"]).to_arrow().sort_by("n")["n"].to_pylist() == [0, 4, None, None]


def test_a_condition_that_may_raise_is_tested_after_those_before_it(lake):
    for query, ids in (
        ("SELECT id FROM (SELECT * FROM d.t WHERE n <> 0) WHERE 10 / n > 4", [2]),
        ("SELECT id FROM (SELECT * FROM d.t WHERE s RLIKE '[0-9]') WHERE CAST(s AS INT) < 5", [4]),
    ):
        assert lake.sql(query).to_arrow()["id"].to_pylist() == ids, query


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_conditions_raise_on_spark_what_they_raise_in_process(spark, tmp_path, format):
    lake = Lake(str(tmp_path))
    lake.create_table("d.t", ROWS.schema, format=format)
    lake.table("d.t").append(ROWS)
    for name, condition in (("delete", RAISING[0]), ("update", RAISING[1]), ("merge", "7 DIV n > 1")):
        with pytest.raises(InvalidInput, match=r"(?i)by zero"):
            lake.sql(STATEMENTS[name].format(condition=condition), spark=spark)
    with pytest.raises(InvalidInput, match=r"(?i)by zero"):
        lake.table("d.t").update({"s": "'x'"}, "id / n > 0", spark=spark)
    lake.sql("UPDATE d.t SET s = id * 2.5D, p = map('k', id)['k'] WHERE n <> 0 AND 10 / n > 4", spark=spark)
    lake.sql("DELETE FROM d.t WHERE n = 0 OR 10 % n = 3", spark=spark)
    rows = lake.sql("SELECT id, s, p FROM d.t ORDER BY id").to_arrow().to_pylist()
    assert [tuple(row.values()) for row in rows] == [(2, "5.0", "2"), (3, None, "b"), (4, "3", "b")]


@pytest.mark.parametrize("key", ["id % n", "CAST(s AS INT)"])
def test_a_window_by_what_may_raise_has_its_rows_or_a_way_out(tmp_path, key):
    lake = Lake(tmp_path)
    lake.create_table("d.t", ROWS.schema).append(ROWS)

    def counted(key, source):
        text = f"SELECT id, count(*) OVER (PARTITION BY {key}) AS n FROM {source}"
        return sorted(tuple(row.values()) for row in lake.sql(text).to_arrow().to_pylist())

    rows = "d.t WHERE n <> 0 AND s <> 'x'"
    assert counted("k", f"(SELECT id, {key} AS k FROM {rows})") == [(2, 1), (4, 1)]
    if version("duckdb").startswith("1."):
        assert counted(key, rows) == [(2, 1), (4, 1)]
    else:
        with pytest.raises(UnsupportedFeature, match="compute it in a subquery"):
            counted(key, rows)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM d.t WHERE rand() < 0.5",
        "DELETE FROM d.t WHERE id > 1 AND uuid() > 'a'",
        "UPDATE d.t SET id = 1 WHERE random() < 0.5",
        "UPDATE d.t SET id = CAST(rand() * 10 AS INT)",
        "MERGE INTO d.t t USING d.t s ON t.id = s.id AND rand() < 0.5 WHEN MATCHED THEN DELETE",
    ],
)
def test_rows_are_not_changed_by_what_differs_each_time(tmp_path, statement):
    lake = Lake(tmp_path)
    lake.sql("CREATE TABLE d.t (id INT); INSERT INTO d.t VALUES (1), (1), (2)")
    with pytest.raises(UnsupportedFeature, match=r"(rand|random|uuid)\(\) gives another value each time"):
        lake.sql(statement)
    lake.sql("DELETE FROM d.t WHERE id IN (SELECT id FROM d.t WHERE rand() < 2)")
    assert lake.table("d.t").scan().count() == 0
