"""INSERT, DELETE, UPDATE, MERGE and TRUNCATE: what becomes of the rows, in one commit each."""

import datetime as dt
import pathlib
from decimal import Decimal

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, LakeError, NotFound, UnsupportedFeature
from tests.sql.conftest import ORDERS, rows


def ids(table):
    return sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())


def test_the_result_of_a_change_is_its_snapshots_metrics(lake, orders):
    found = lake.sql("DELETE FROM shop.orders WHERE id IN (1, 5)", id="gone", properties={"by": "test"})
    made = orders.current_snapshot()
    (told,) = found.to_arrow().to_pylist()
    assert (told["snapshot_id"], told["rows_removed"] - told["rows_added"]) == (made.id, 2)
    assert found.snapshot.operation_id == "gone"
    assert made.properties["by"] == "test"
    again = lake.sql("DELETE FROM shop.orders WHERE id IN (1, 5)", id="gone").to_arrow().to_pylist()
    assert again[0]["snapshot_id"] == made.id
    assert len(orders.snapshots()) == 2
    (none,) = lake.sql("DELETE FROM shop.orders WHERE id = 77").to_arrow().to_pylist()
    assert none["operation"] == "none"
    assert none["snapshot_id"] is None


def test_insert_takes_values_queries_column_lists_and_names(lake, orders):
    lake.sql("INSERT INTO shop.orders (dt, id) VALUES ('05-04', 6)")
    lake.sql("INSERT INTO TABLE shop.orders BY NAME SELECT '05-04' AS DT, 7 AS id, 1 AS amount")
    lake.sql("INSERT INTO shop.orders PARTITION (dt = '05-05') SELECT 8, name, amount FROM shop.orders WHERE id = 1")
    lake.sql("WITH c AS (SELECT 9 AS id) INSERT INTO shop.orders SELECT id, 'x', 1, '05-05' FROM c")
    lake.sql(
        "INSERT INTO shop.orders TABLE staged",
        staged=pa.table({"a": [10], "b": ["y"], "c": [Decimal(1)], "d": ["05-06"]}),
    )
    lake.sql("INSERT INTO shop.orders FROM staged SELECT a, NULL, 2.5, 20230506", staged=pa.table({"a": [11]}))
    assert ids(orders) == list(range(1, 12))
    found = {
        row["id"]: (row["name"], row["amount"], row["dt"])
        for row in orders.scan(["id", "name", "amount", "dt"]).to_arrow().to_pylist()
    }
    assert found[6] == (None, None, "05-04")
    assert found[7] == (None, Decimal("1.00"), "05-04")
    assert found[8] == ("ann", Decimal("10.50"), "05-05")
    assert found[11] == (None, Decimal("2.50"), "20230506")
    assert len(orders.snapshots()) == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("INSERT INTO shop.orders VALUES (1, 'a')", "INSERT of 2 columns"),
        ("INSERT INTO shop.orders (id, id) VALUES (1, 2)", "'id' is given twice"),
        ("INSERT INTO shop.orders PARTITION (name = 'a') VALUES (1, 2, 3)", "'name' is not a partition column"),
        ("INSERT INTO shop.orders BY NAME SELECT 1 AS nope", "no column 'nope'"),
        ("INSERT INTO shop.orders VALUES ('one', 'a', 1, 'd')", "does not fit"),
        ("INSERT INTO shop.orders", "expected a query"),
        ("INSERT INTO shop.orders.snapshots VALUES (1)", "metadata table snapshots, cannot be changed"),
        ("INSERT shop.orders VALUES (1)", "expected INTO"),
    ],
)
def test_inserts_that_do_not_fit_change_nothing(lake, orders, text, said):
    with pytest.raises((InvalidInput, NotFound), match=said.replace("(", r"\(")):
        lake.sql(text)
    assert ids(orders) == [1, 2, 3, 4, 5]


def test_insert_overwrite_is_static_unless_it_is_set_dynamic(lake, orders):
    lake.sql("INSERT OVERWRITE shop.orders PARTITION (dt = '05-01') SELECT 11, 'new', 1")
    assert ids(orders) == [3, 4, 5, 11]
    lake.sql(
        "INSERT OVERWRITE shop.orders PARTITION (dt = '05-03') SELECT id, name, amount FROM shop.orders WHERE false"
    )
    assert ids(orders) == [3, 4, 11]  # Emptied, by a snapshot.
    lake.sql("SET spark.sql.sources.partitionOverwriteMode=dynamic")
    lake.sql("INSERT OVERWRITE shop.orders SELECT 12, 'dyn', 1, '05-02'")
    assert ids(orders) == [11, 12]
    lake.sql(
        "INSERT OVERWRITE shop.orders /*+ OPTIONS('dynamic-partition-overwrite'='false') */ SELECT 13, 'all', 1, '05-09'"
    )
    assert ids(orders) == [13]
    lake.sql("SET `spark.sql.sources.partitionOverwriteMode` = static")
    lake.sql("INSERT OVERWRITE TABLE shop.orders VALUES (14, 'x', 1, '05-10')")
    assert ids(orders) == [14]


def test_insert_overwrite_is_as_a_paimon_tables_option_says_unless_the_session_says(lake):
    lake.sql("CREATE TABLE shop.p (id INT, dt STRING) PARTITIONED BY (dt)")
    lake.sql("INSERT INTO shop.p VALUES (1, 'a'), (2, 'b')")
    lake.sql("ALTER TABLE shop.p SET TBLPROPERTIES ('dynamic-partition-overwrite' = 'true')")
    lake.sql("INSERT OVERWRITE shop.p VALUES (3, 'b')")
    assert ids(lake.table("shop.p")) == [1, 3]
    lake.sql("INSERT OVERWRITE shop.p /*+ OPTIONS('dynamic-partition-overwrite'='false') */ VALUES (4, 'b')")
    assert ids(lake.table("shop.p")) == [4]
    lake.sql("INSERT INTO shop.p VALUES (5, 'c')")
    lake.sql("SET spark.sql.sources.partitionOverwriteMode=static")
    lake.sql("INSERT OVERWRITE shop.p VALUES (6, 'c')")
    assert ids(lake.table("shop.p")) == [6]


def test_insert_replaces_the_rows_that_a_condition_names(lake, orders):
    lake.sql(
        "INSERT INTO shop.orders REPLACE WHERE dt IN ('05-01', :day) SELECT 9, 'x', 1, '05-02'", params={"day": "05-02"}
    )
    assert ids(orders) == [5, 9]
    assert len(orders.snapshots()) == 2
    with pytest.raises(NotFound, match="nope"):
        lake.sql("INSERT INTO shop.orders REPLACE WHERE nope = 1 VALUES (1, 'a', 1, 'x')")


def test_a_partial_partition_is_overwritten_whole(lake):
    schema = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.int32())])
    for format in ("paimon", "iceberg"):
        table = lake.create_table(f"{format}.t", schema, format=format, partition_by=["a", "b"])
        lake.sql(f"INSERT INTO {format}.t VALUES (1, 'x', 1), (2, 'x', 2), (3, 'y', 1)")
        lake.sql(f"INSERT OVERWRITE {format}.t PARTITION (a = 'x', b) SELECT 4, 7")
        assert rows(table) == [(3, "y", 1), (4, "x", 7)]
        lake.sql(f"INSERT OVERWRITE {format}.t PARTITION (b = '1', a) SELECT 5, 'z'")
        assert rows(table) == [(4, "x", 7), (5, "z", 1)]


def test_delete_and_update_by_conditions_of_our_own(lake, orders):
    lake.sql("DELETE FROM shop.orders AS o WHERE o.id = 1 OR o.name IS NULL")
    lake.sql("UPDATE shop.orders SET amount = amount * 2, orders.name = upper(name) WHERE shop.orders.amount < 30")
    found = {row[0]: row[1:3] for row in rows(orders)}
    assert found == {2: ("BOB", Decimal("40.00")), 4: ("dan", None), 5: ("eve", Decimal("50.00"))}
    lake.sql("UPDATE shop.orders SET name = DEFAULT")
    assert {row[1] for row in rows(orders)} == {None}
    lake.sql("DELETE FROM shop.orders")
    assert ids(orders) == []


def test_conditions_with_subqueries_are_one_commit(lake, orders):
    other = pa.table({"id": [1, 3, 9, None], "to": ["A", "C", "I", "N"]})
    before = len(orders.snapshots())
    lake.sql(
        "DELETE FROM shop.orders WHERE id IN (SELECT id FROM other) AND dt < (SELECT max(dt) FROM shop.orders)",
        other=other,
    )
    assert ids(orders) == [2, 4, 5]
    lake.sql("DELETE FROM shop.orders o WHERE id NOT IN (SELECT id FROM other)", other=other)
    assert ids(orders) == [2, 4, 5]  # Null is in the list, so nothing is not in it.
    lake.sql(
        "DELETE FROM shop.orders o WHERE NOT EXISTS (SELECT 1 FROM shop.orders p WHERE p.dt = o.dt AND p.id <> o.id) AND o.id > (SELECT 4)"
    )
    assert ids(orders) == [2, 4]
    assert len(orders.snapshots()) == before + 2


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
@pytest.mark.parametrize("condition", ["n IN (SELECT 1)", "levenshtein(concat('a', n), 'a1') = 0"])
def test_a_null_struct_is_not_one_of_null_fields(lake, format, condition):
    """In a table without a key, where rows are told apart by their values; also within a struct."""
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    values = [None, {"in": None}, {"in": {"a": None, "b": None}}, {"in": {"a": 1, "b": "x"}}]
    data = pa.table(
        {"n": pa.array([1] * 4), "v": pa.array(range(4)), "st": pa.array(values, pa.struct([("in", inner)]))}
    )
    for index, test in enumerate(
        ("st IS NULL", "st IS NOT NULL AND st.`in` IS NULL", "st.`in` IS NOT NULL AND st.`in`.a IS NULL")
    ):
        table = lake.create_table(f"shop.t{index}", data.schema, format=format)
        table.append(data)
        lake.sql(f"UPDATE shop.t{index} SET n = 7 WHERE {test} AND {condition}")
        found = {row["v"]: row["n"] for row in table.scan().to_arrow().to_pylist()}
        assert found == {v: 7 if v == index else 1 for v in range(4)}, test
        lake.sql(f"DELETE FROM shop.t{index} WHERE {test} AND {condition.replace('1)', '7)').replace('a1', 'a7')}")
        assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [v for v in range(4) if v != index], test


def test_values_of_subqueries_and_functions_of_the_engine_alone(lake, orders):
    other = pa.table({"id": [1, 3, 4], "to": ["A", "C", "D"]})
    lake.sql(
        "UPDATE shop.orders o SET name = (SELECT max(`to`) FROM other s WHERE s.id = o.id), amount = o.amount + 1 "
        "WHERE EXISTS (SELECT 1 FROM other s WHERE s.id = o.id)",
        other=other,
    )
    found = {row[0]: row[1:3] for row in rows(orders)}
    assert found[1] == ("A", Decimal("11.50"))
    assert found[3] == ("C", Decimal("31.00"))
    assert found[4] == ("D", None)
    assert found[2] == ("bob", Decimal("20.00"))
    lake.sql("UPDATE shop.orders SET name = lpad(name, 3, '*') WHERE initcap(name) = 'A'")
    assert {row[0]: row[1] for row in rows(orders)}[1] == "**A"
    assert len(orders.snapshots()) == 3


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_fields_of_structs_change_in_a_table_without_a_key(lake, format):
    lake.sql(
        f"CREATE DATABASE d; CREATE TABLE d.t (id INT, s STRUCT<a: INT, b: STRUCT<c: INT>>, m MAP<STRING, INT>) USING {format};"
        "INSERT INTO d.t VALUES (1, named_struct('a', 1, 'b', named_struct('c', 2)), map('k', 1)), (2, NULL, NULL), "
        "(3, named_struct('a', NULL, 'b', NULL), NULL)"
    )
    lake.sql("UPDATE d.t SET s.b.c = coalesce(s.b.c, 0) + id, s.a = 7 WHERE id <> 2")
    lake.sql("DELETE FROM d.t WHERE s.a = 7 AND s.b.c IN (SELECT 4 - 1)")
    assert rows(lake.sql("SELECT id, s.a, s.b.c FROM d.t")) == [(2, None, None)]
    lake.sql("UPDATE d.t SET id = (SELECT 1) + coalesce(m['k'], 6)")
    assert rows(lake.sql("SELECT id FROM d.t")) == [(7,)]


def test_changes_of_tables_with_a_primary_key(lake):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    for format in ("paimon", "iceberg"):
        table = lake.create_table(f"{format}.k", schema, format=format, primary_key=["id"])
        lake.sql(f"INSERT INTO {format}.k VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        lake.sql(f"DELETE FROM {format}.k WHERE id > (SELECT count(*) FROM {format}.k WHERE v < 'c')")
        lake.sql(f"UPDATE {format}.k SET v = (SELECT concat(k.v, max(o.v)) FROM {format}.k o) WHERE initcap(v) = 'A'")
        assert rows(table) == [(1, "ab"), (2, "b")]


def test_merge_with_all_clauses(lake, orders):
    source = pa.table(
        {
            "id": [1, 2, 3, 9],
            "name": ["A", "B", "C", "I"],
            "amount": [Decimal(1)] * 4,
            "dt": ["05-01", "05-01", "05-02", "05-09"],
            "op": ["d", "u", "u", "i"],
        }
    )
    found = lake.sql(
        """
        MERGE INTO shop.orders AS target USING (SELECT * FROM changes WHERE id < :most) AS src
        ON src.id = target.id AND target.dt = src.dt
        WHEN MATCHED AND src.op = 'd' THEN DELETE
        WHEN MATCHED AND CASE WHEN src.op = 'u' THEN target.id = 2 ELSE false END THEN UPDATE SET target.name = src.name, amount = target.amount + src.amount
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED BY TARGET AND op = 'i' THEN INSERT (id, dt, name) VALUES (src.id, src.dt, DEFAULT)
        WHEN NOT MATCHED BY SOURCE AND target.id = 5 THEN UPDATE SET name = 'left'
        WHEN NOT MATCHED BY SOURCE THEN DELETE
        """,
        params={"most": 10},
        changes=source,
    )
    assert {row[0]: row[1:] for row in rows(orders)} == {
        2: ("B", Decimal("21.00"), "05-01"),
        3: ("C", Decimal("1.00"), "05-02"),
        5: ("left", Decimal("50.00"), "05-03"),
        9: (None, None, "05-09"),
    }
    assert found.snapshot.id == orders.current_snapshot().id
    assert len(orders.snapshots()) == 2


def test_merge_from_tables_values_and_engine_expressions(lake, orders):
    lake.sql(
        "MERGE INTO shop.orders t USING shop.orders VERSION AS OF :v s ON t.id = s.id WHEN MATCHED AND s.id IN (SELECT max(id) FROM shop.orders) THEN DELETE",
        params={"v": orders.current_snapshot().id},
    )
    assert ids(orders) == [1, 2, 3, 4]
    lake.sql(
        "MERGE INTO shop.orders s USING (VALUES (1, 'one'), (7, 'seven')) AS t(id, word) ON s.id = t.id WHEN MATCHED THEN UPDATE SET name = lpad(word, 4, '_') WHEN NOT MATCHED THEN INSERT (id, name, dt) VALUES (t.id, t.word, '05-07')"
    )
    assert {row[0]: row[1] for row in rows(orders)} == {1: "_one", 2: "bob", 3: None, 4: "dan", 7: "seven"}
    lake.sql(
        "MERGE INTO shop.orders t USING other s ON t.id = s.id WHEN MATCHED AND initcap(t.name) = 'Dan' THEN DELETE",
        other=pa.table({"id": [1, 4]}),
    )
    assert ids(orders) == [1, 2, 3, 7]


def test_columns_stand_where_our_own_evaluator_takes_values_alone(lake, orders):
    """In clauses, in ON, in UPDATE and DELETE: DuckDB answers."""
    staged = pa.table({"id": [1, 2, 7], "name": ["A", "O", "z"], "at": [2, 1, 3]})
    lake.sql(
        "MERGE INTO shop.orders t USING staged s ON t.id = s.id "
        "WHEN MATCHED AND t.name LIKE concat('%', lower(s.name), '%') THEN UPDATE SET name = replace(t.name, lower(s.name), s.name) "
        "WHEN NOT MATCHED THEN INSERT (id, name, dt) VALUES (s.id, substring('abcde', s.at), '05-07') "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN UPDATE SET name = substring('unmatched', t.id)",
        staged=staged,
    )
    assert {row[0]: row[1] for row in rows(orders)} == {1: "Ann", 2: "bOb", 3: None, 4: "dan", 5: "tched", 7: "cde"}
    lake.sql(
        "UPDATE shop.orders SET name = replace(name, substring(name, id), dt) WHERE contains(dt, right(dt, id)) AND id < 3"
    )
    assert {row[0]: row[1] for row in rows(orders) if row[0] < 3} == {1: "05-01", 2: "b05-01"}
    lake.sql(
        "MERGE INTO shop.orders t USING staged s ON t.id = s.id AND startswith(t.name, substring('cab', s.id - 6, 1)) WHEN MATCHED THEN DELETE",
        staged=staged,
    )
    lake.sql("DELETE FROM shop.orders WHERE dt LIKE concat(name, '%')")
    assert ids(orders) == [3, 4, 5]


@pytest.mark.parametrize("key", [[], ["id"]])
@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_merge_clauses_with_subqueries_over_the_table(lake, format, key):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=not key), ("a", pa.int64()), ("b", pa.string())])
    table = lake.create_table("d.t", schema, format=format, primary_key=key)
    lake.sql("INSERT INTO d.t VALUES (1, 10, 'x'), (2, 20, 'y'), (3, NULL, NULL), (4, 40, 'x'), (5, 50, 'z')")
    staged = pa.table({"id": [1, 3, 7, 8], "a": [11, 33, 77, None], "b": ["p", None, "r", "s"]})
    lake.sql(
        """
        MERGE INTO d.t t USING staged s ON t.id = s.id
        WHEN MATCHED AND t.a < (SELECT max(a) FROM d.t) THEN UPDATE SET *
        WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED AND s.id < (SELECT max(id) FROM staged) THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.b IN (SELECT b FROM d.t o WHERE o.id = 1) THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN UPDATE SET a = (SELECT count(*) FROM d.t)
        """,
        staged=staged,
    )
    assert rows(table) == [(1, 11, "p"), (2, 5, "y"), (5, 50, "z"), (7, 77, "r")]
    lake.sql(
        "MERGE INTO d.t t USING (SELECT id FROM staged UNION ALL SELECT id FROM staged) s ON t.id = s.id WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE AND t.a = (SELECT max(a) FROM d.t WHERE id <> 7) THEN UPDATE SET b = 'most'",
        staged=staged,
    )
    assert rows(table) == [(2, 5, "y"), (5, 50, "most")]
    with pytest.raises(InvalidInput, match="ambiguous"):
        lake.sql(
            "MERGE INTO d.t t USING staged s ON t.id < s.id WHEN MATCHED AND a > (SELECT 1) THEN DELETE", staged=staged
        )
    with pytest.raises(InvalidInput, match="more than one row") as raised:
        lake.sql(
            "MERGE INTO d.t t USING staged s ON t.id < s.id WHEN MATCHED AND t.a = (SELECT max(a) FROM d.t) THEN UPDATE SET b = s.b",
            staged=staged,
        )
    assert "_lakeformat" not in str(raised.value)
    lake.sql(
        "MERGE INTO d.t t USING (SELECT * FROM staged WHERE false) s ON t.id = s.id "
        "WHEN NOT MATCHED BY SOURCE AND EXISTS (SELECT 1 FROM d.t o WHERE o.id < t.id) THEN DELETE",
        staged=staged,
    )
    assert rows(table) == [(2, 5, "y")]
    assert len(table.snapshots()) == 4


def test_nulls_without_a_type_are_merged_into_columns_of_every_type(lake, orders):
    lake.sql(
        "MERGE INTO shop.orders t USING (SELECT 1 AS id, NULL AS name, NULL AS dt) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name, amount = coalesce(s.name, t.amount)"
    )
    lake.sql(
        "MERGE INTO shop.orders t USING (SELECT 6 AS id, NULL AS name, NULL AS amount, '05-06' AS dt) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    found = {row[0]: row[1:] for row in rows(orders)}
    assert (found[1], found[6]) == ((None, Decimal("10.50"), "05-01"), (None, None, "05-06"))


def test_merge_on_any_condition(lake, orders):
    bands = pa.table({"low": [15, 40, 90], "high": [35, 60, 99], "word": ["mid", "top", "none"]})
    lake.sql(
        "MERGE INTO shop.orders o USING bands b ON o.amount BETWEEN b.low AND b.high "
        "WHEN MATCHED THEN UPDATE SET name = b.word WHEN NOT MATCHED THEN INSERT (id, name, dt) VALUES (b.low, b.word, '05-09') "
        "WHEN NOT MATCHED BY SOURCE AND o.amount IS NULL THEN DELETE",
        bands=bands,
    )
    assert {row[0]: row[1] for row in rows(orders)} == {1: "ann", 2: "mid", 3: "mid", 5: "top", 90: "none"}
    either = "MERGE INTO shop.orders o USING s ON o.id = s.id OR o.name = s.name WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, dt) VALUES (s.id, 'x')"
    lake.sql(either, s=pa.table({"id": [5, 77], "name": ["ann", None]}))
    assert ids(orders) == [2, 3, 77, 90]
    lake.sql(
        "MERGE INTO shop.orders o USING s ON initcap(o.name) = initcap(s.name) WHEN MATCHED THEN DELETE",
        s=pa.table({"name": ["NONE"]}),
    )
    lake.sql(
        "MERGE INTO shop.orders o USING s ON false WHEN NOT MATCHED THEN INSERT (id, dt) VALUES (s.id, 'x')",
        s=pa.table({"id": [2]}),
    )
    assert ids(orders) == [2, 2, 3, 77]
    with pytest.raises(InvalidInput, match=r"several|more than one|match"):
        lake.sql(
            "MERGE INTO shop.orders o USING s ON o.id <= s.id WHEN MATCHED THEN UPDATE SET name = s.w",
            s=pa.table({"id": [5, 5], "w": ["a", "a"]}),
        )
    assert len(orders.snapshots()) == 5


def test_merge_with_schema_evolution(lake, orders):
    noted = pa.table({"id": [1], "name": ["ann"], "amount": [Decimal(3)], "dt": ["05-01"], "note": ["window"]})
    lake.sql(
        "MERGE WITH SCHEMA EVOLUTION INTO shop.orders t USING noted s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
        noted=noted,
    )
    assert orders.scan(["note"], where="id = 1").to_arrow()["note"].to_pylist() == ["window"]
    graded = noted.append_column("grade", pa.array([7])).append_column("spare", pa.array(["x"]))
    lake.sql(
        "MERGE WITH SCHEMA EVOLUTION INTO shop.orders t USING (SELECT * EXCEPT (spare) FROM graded) s ON t.id > s.id + 3 "
        "WHEN MATCHED AND t.name = (SELECT max(name) FROM shop.orders) THEN UPDATE SET *",
        graded=graded,
    )
    assert orders.schema.names == ("id", "name", "amount", "dt", "note", "grade")
    assert ids(orders) == [1, 1, 2, 3, 4]


def test_truncate_a_table_or_a_partition(lake, orders):
    lake.sql("TRUNCATE TABLE shop.orders PARTITION (dt = '05-01')")
    assert ids(orders) == [3, 4, 5]
    lake.sql("TRUNCATE TABLE shop.orders")
    assert ids(orders) == []


def test_insert_stores_values_as_spark_does(lake):
    kinds = pa.schema(
        [
            ("i", pa.int16()),
            ("f", pa.float32()),
            ("s", pa.string()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("n", pa.timestamp("us")),
        ]
    )
    table = lake.create_table("x.kinds", kinds, format="iceberg")
    lake.sql(
        "INSERT INTO x.kinds VALUES (7, 1.5, 7, DATE '2023-05-01', TIMESTAMP_NTZ '2023-05-01 00:00:00', TIMESTAMP '2023-05-01 00:00:00')"
    )
    moment = dt.datetime(2023, 5, 1)
    assert rows(table) == [(7, 1.5, "7", dt.date(2023, 5, 1), moment.replace(tzinfo=dt.UTC), moment)]
    with pytest.raises(InvalidInput, match="does not fit"):
        lake.sql("INSERT INTO x.kinds VALUES (3000000000, 1, '', NULL, NULL, NULL)")


def test_other_tables_stay_as_they_are(lake, orders):
    other = lake.create_table("shop.other", ORDERS, format=orders.format)
    lake.sql("INSERT INTO shop.other SELECT * FROM shop.orders")
    lake.sql("DELETE FROM shop.orders WHERE id IN (SELECT id FROM shop.other)")
    assert ids(orders) == []
    assert ids(other) == [1, 2, 3, 4, 5]


def test_question_marks_keep_their_places_where_the_text_is_put_together_anew(lake, orders):
    text = "UPDATE shop.orders SET name = concat(initcap(name), ?), amount = ? WHERE initcap(name) = ? AND dt = ?"
    lake.sql(text, params=["!", 7, "Ann", "05-01"])
    assert {row[0]: row[1:3] for row in rows(orders)}[1] == ("Ann!", Decimal("7.00"))


def test_id_names_the_one_commit_of_a_text(lake, orders):
    text = "CREATE TABLE IF NOT EXISTS shop.copy (id BIGINT); INSERT INTO shop.copy SELECT id FROM shop.orders"
    lake.sql(text, id="load")
    lake.sql(text, id="load")
    assert len(ids(lake.table("shop.copy"))) == 5
    made = lake.sql("CREATE TABLE shop.again AS SELECT id FROM shop.orders", id="made").snapshot
    assert made.operation_id == "made"


def test_a_file_that_is_gone_is_told_as_such(lake, orders):
    for path in pathlib.Path(orders.uri.removeprefix("file://")).rglob("*.parquet"):
        path.unlink()
    with pytest.raises(LakeError) as raised:
        lake.sql("SELECT sum(id) FROM shop.orders")
    assert not isinstance(raised.value, InvalidInput)


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_nulls_without_a_type_go_into_columns_of_every_type(lake, format):
    lake.sql(
        f"CREATE TABLE d.t (id INT, s STRUCT<a: INT, b: STRING>, l ARRAY<STRING>, m MAP<STRING, DATE>, x BINARY) USING {format}"
    )
    lake.sql("INSERT INTO d.t VALUES (1, NULL, NULL, NULL, NULL), (2, NULL, NULL, NULL, NULL)")
    lake.sql("INSERT INTO d.t VALUES (3, named_struct('a', 1, 'b', NULL), array(NULL), map('k', NULL), NULL)")
    lake.sql("INSERT INTO d.t (l, id) SELECT array(), 4")
    held = lake.sql("SELECT * FROM d.t WHERE id > 1 ORDER BY id").to_arrow().to_pylist()
    nothing = dict.fromkeys(("s", "l", "m", "x"))
    assert held == [
        {"id": 2, **nothing},
        {"id": 3, "s": {"a": 1, "b": None}, "l": [None], "m": [("k", None)], "x": None},
        {"id": 4, **nothing, "l": []},
    ]
    with pytest.raises(InvalidInput, match="column s: int32 does not fit"):
        lake.sql("INSERT INTO d.t (id, s) VALUES (5, NULL), (6, 7)")


def test_default_in_values_is_the_columns_default(lake):
    lake.sql(
        "CREATE TABLE shop.d (a INT, b STRING DEFAULT 'it''s', c DECIMAL(5, 2) DEFAULT 1.5, l ARRAY<INT> DEFAULT ARRAY(1, 2)) USING paimon"
    )
    lake.sql("INSERT INTO shop.d (b, a, c) VALUES (DEFAULT, 1, 2), ('x, DEFAULT', 2, default), (DEFAULT, 3, DEFAULT)")
    told = "SELECT a, b, c, l FROM shop.d ORDER BY a"
    assert rows(lake.sql(told)) == [
        (1, "it's", Decimal("2.00"), [1, 2]),
        (2, "x, DEFAULT", Decimal("1.50"), [1, 2]),
        (3, "it's", Decimal("1.50"), [1, 2]),
    ]
    with pytest.raises(InvalidInput, match="line 1, column 35: INSERT of 1 values into 2 columns: a, b"):
        lake.sql("INSERT INTO shop.d (a, b) VALUES  (DEFAULT)")
    lake.sql("INSERT INTO shop.d (l, a) VALUES (DEFAULT, 4), (array(7), 5)")
    assert rows(lake.sql("SELECT l FROM shop.d WHERE a > 3 ORDER BY a")) == [([1, 2],), ([7],)]
    with pytest.raises(UnsupportedFeature, match="'l' has a DEFAULT of array<int>, which SQL gives Paimon tables only"):
        lake.sql("CREATE TABLE shop.e (l ARRAY<INT> DEFAULT ARRAY(1)) USING iceberg")


DEFAULTED = """CREATE TABLE shop.n (k INT, v STRING DEFAULT 'x', c INT DEFAULT 5, l ARRAY<INT> DEFAULT ARRAY(1, 2),
    m MAP<STRING, INT> DEFAULT MAP('a', 1), s STRUCT<x: INT, y: STRING> DEFAULT STRUCT(3, 'z')) USING paimon"""
EMPTY = ("x", 5, [1, 2], [("a", 1)], {"x": 3, "y": "z"})


def write_nulls(lake, **more):
    """The rows by key, after SQL wrote NULL into columns with a default."""
    lake.sql(DEFAULTED)
    lake.sql("INSERT INTO shop.n VALUES (1, NULL, NULL, NULL, NULL, NULL)", **more)
    lake.sql("INSERT INTO shop.n SELECT k + 1, nullif(v, 'x'), c * 2, l, m, s FROM shop.n", **more)
    lake.sql("UPDATE shop.n SET v = NULL, c = if(k = 1, NULL, c), l = NULL WHERE k < 3", **more)
    source = pa.table({"k": [2, 3], "v": pa.nulls(2, pa.string()), "c": pa.array([None, 7], pa.int32())})
    lake.sql(
        """MERGE INTO shop.n USING src ON n.k = src.k WHEN MATCHED THEN UPDATE SET v = src.v, c = src.c
        WHEN NOT MATCHED THEN INSERT (k, v, c) VALUES (src.k, src.v, src.c)""", src=source, **more,
    )  # fmt: skip
    lake.sql("INSERT INTO shop.n (k) VALUES (5)", **more)
    stars = pa.table({"k": [5, 6], "v": pa.array(["y", None]), "c": pa.nulls(2, pa.int32())})
    stars = stars.append_column("l", pa.nulls(2, pa.list_(pa.int32())))
    stars = stars.append_column("m", pa.nulls(2, pa.map_(pa.string(), pa.int32())))
    stars = stars.append_column("s", pa.nulls(2, pa.struct([("x", pa.int32()), ("y", pa.string())])))
    lake.sql(
        "MERGE INTO shop.n USING src ON n.k = src.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        src=stars, **more,
    )  # fmt: skip
    return {row[0]: row[1:] for row in rows(lake.sql("SELECT * FROM shop.n"))}


NULLS = {1: EMPTY, 2: EMPTY, 3: ("x", 7, *EMPTY[2:]), 5: ("y", *EMPTY[1:]), 6: EMPTY}


def test_null_is_the_columns_default_in_paimon_tables_alone(lake):
    assert write_nulls(lake) == NULLS
    lake.sql("CREATE TABLE shop.i (k INT, v STRING DEFAULT 'x') USING iceberg TBLPROPERTIES ('format-version' = '3')")
    lake.sql("INSERT INTO shop.i VALUES (1, NULL)")
    lake.sql("INSERT INTO shop.i (k) VALUES (2)")
    assert rows(lake.sql("SELECT * FROM shop.i ORDER BY k")) == [(1, None), (2, "x")]
    lake.sql("CREATE TABLE shop.r (k INT, v STRING NOT NULL DEFAULT 'x') USING paimon")
    with pytest.raises(InvalidInput, match="v"):
        lake.sql("INSERT INTO shop.r VALUES (1, NULL)")


STORED = {  # (the column's type, the value's text): what Spark stores.
    ("STRING", "12"): "12",
    ("STRING", "DATE '2024-05-05'"): "2024-05-05",
    ("STRING", "true"): "true",
    ("STRING", "CAST(1.50 AS DECIMAL(5,2))"): "1.50",
    ("DECIMAL(5,2)", "9.995"): Decimal("10.00"),
    ("DECIMAL(5,2)", "-1.005"): Decimal("-1.01"),
    ("DECIMAL(5,2)", "CAST(999.994 AS DECIMAL(38,3))"): Decimal("999.99"),
    ("DATE", "TIMESTAMP '2024-05-05 23:00:00'"): dt.date(2024, 5, 5),
    ("TIMESTAMP", "DATE '2024-05-05'"): dt.datetime(2024, 5, 5, tzinfo=dt.UTC),
    ("TIMESTAMP", "TIMESTAMP '2024-05-05 01:00:00'"): dt.datetime(2024, 5, 5, 1, tzinfo=dt.UTC),
    ("TIMESTAMP_NTZ", "TIMESTAMP '2024-05-05 01:00:00'"): dt.datetime(2024, 5, 5, 1),
    ("TIMESTAMP_NTZ", "DATE '2024-05-05'"): dt.datetime(2024, 5, 5),
    ("TIMESTAMP", "CAST('2024-05-05' AS TIMESTAMP)"): dt.datetime(2024, 5, 5, tzinfo=dt.UTC),
}


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
@pytest.mark.parametrize(("type", "text"), STORED, ids=[" ".join(key) for key in STORED])
def test_values_are_stored_as_sparks_store_assignment_does_by_every_verb(lake, format, type, text):
    lake.sql(f"CREATE TABLE shop.s (id INT, v {type}) USING {format}")
    lake.sql(f"INSERT INTO shop.s VALUES (1, {text})")
    lake.sql("INSERT INTO shop.s VALUES (2, NULL), (3, NULL)")
    lake.sql(f"UPDATE shop.s SET v = {text} WHERE id = 2")
    lake.sql(
        f"MERGE INTO shop.s t USING (SELECT 3 AS id, {text} AS x UNION ALL SELECT 4, {text}) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET t.v = s.x WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.x)"
    )
    assert lake.table("shop.s").scan(["v"]).to_arrow()["v"].to_pylist() == [STORED[type, text]] * 4


@pytest.mark.parametrize("text", ["'x'", "map('a', 1)", "array(1)"])
def test_what_sparks_store_assignment_refuses_is_refused(lake, text):
    lake.sql("CREATE TABLE shop.s (id INT, v DATE)")
    with pytest.raises((InvalidInput, UnsupportedFeature)):
        lake.sql(f"INSERT INTO shop.s VALUES (1, {text})")
    lake.sql("INSERT INTO shop.s VALUES (1, NULL)")
    with pytest.raises((InvalidInput, UnsupportedFeature)):
        lake.sql(f"UPDATE shop.s SET v = {text}")
    assert len(lake.table("shop.s").snapshots()) == 1


def test_a_column_list_without_the_partition_column_means_null(lake):
    for format in ("paimon", "iceberg"):
        lake.sql(f"CREATE TABLE shop.{format} (id INT, dt STRING) USING {format} PARTITIONED BY (dt)")
        lake.sql(f"INSERT INTO shop.{format} (id) VALUES (1)")
        assert lake.table(f"shop.{format}").scan().to_arrow().to_pylist() == [{"id": 1, "dt": None}]


def test_replace_needs_a_table_and_other_engines_statements_have_a_way(lake, orders):
    with pytest.raises(NotFound, match=r"no table shop\.nope to replace"):
        lake.sql("REPLACE TABLE shop.nope (id INT)")
    for text, way in {
        "OPTIMIZE shop.orders": "rewrite_data_files",
        "VACUUM shop.orders": "expire_snapshots",
        "RESTORE TABLE shop.orders TO VERSION AS OF 1": "rollback_to_snapshot",
        "DESCRIBE HISTORY shop.orders": "db.t.snapshots",
    }.items():
        with pytest.raises(UnsupportedFeature, match=way):
            lake.sql(text)
