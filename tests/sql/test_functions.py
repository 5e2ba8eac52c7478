"""SQL functions: stored by a catalog in Paimon's model, or by the session; calls are replaced by their bodies."""

import json
import pickle
import sqlite3
import threading

import pyarrow as pa
import pytest

from lakeformat import AlreadyExists, Conflict, CorruptFile, InvalidInput, Lake, NotFound, UnsupportedFeature
from lakeformat.sql import builtin, inline
from lakeformat.warehouse.functions import Function
from tests.draw import some
from tests.sql.conftest import rows

INT = ({"id": 0, "name": "x", "type": "INT"},)


@pytest.fixture(params=["iceberg", "paimon"])
def lake(request, tmp_path):
    """Tables and functions in a SQL catalog of each format."""
    lake = Lake(tmp_path / "w", catalog="sql", catalog_options={"format": request.param})
    made = f"USING {request.param}"
    lake.sql(
        f"""
        CREATE DATABASE default; CREATE DATABASE hr;
        CREATE TABLE emp (id INT, dept_id INT, salary INT) {made};
        INSERT INTO emp VALUES (1, 10, 100), (2, 10, 200), (3, 20, 300);
        CREATE TABLE t (k INT, name STRING, p INT) {made} PARTITIONED BY (p);
        INSERT INTO t VALUES (1, 'a', 100), (2, 'b', 200), (3, NULL, 300);
        CREATE FUNCTION inc(x INT) RETURNS INT RETURN x + 100;
        CREATE FUNCTION dept_total(d INT) RETURNS INT RETURN SELECT SUM(salary) FROM emp WHERE dept_id = d;
        """
    )
    return lake


def ask(lake, sql, spark=None, **how):
    return rows(lake.sql(sql, spark=spark, **how))


def lines(lake):
    """The catalog's rows: (database, name, version, document)"""
    with sqlite3.connect(f"{lake.uri}/catalog.sqlite") as connection:
        chosen = (
            "SELECT database_name, function_name, version, document FROM lakeformat_functions ORDER BY function_name"
        )
        return [(*rest, json.loads(document)) for *rest, document in connection.execute(chosen)]


def stored(lake, name, body, parameters=None):
    """Store a function as another engine might, without a look at its body."""
    fields = lake.functions.find("default.inc").parameters if parameters is None else parameters
    lake.functions.create(
        Function(f"default.{name}", fields, None, {"spark": {"type": "sql", "definition": body}}), "replace"
    )


def test_a_function_is_stored_as_paimon_has_it(lake):
    lake.sql(
        "CREATE FUNCTION hr.area(w DOUBLE COMMENT 'the width', h DOUBLE DEFAULT 2 * 1.5) COMMENT 'c' RETURN w * h -- !"
    )
    assert lines(lake)[0] == (
        "hr",
        "area",
        1,
        {
            "name": "area",
            "inputParams": [
                {"id": 0, "name": "w", "type": "DOUBLE", "description": "the width"},
                {"id": 1, "name": "h", "type": "DOUBLE", "defaultValue": "2 * 1.5"},
            ],
            "returnParams": [{"id": 0, "name": "area", "type": "DOUBLE"}],
            "deterministic": True,
            "definitions": {"spark": {"type": "sql", "definition": "w * h"}},
            "comment": "c",
            "options": {
                "spark.sql-function.is-query": "false",
                "spark.sql-function.deterministic": "true",
                "spark.sql-function.contains-sql": "true",
            },
        },
    )
    assert lines(lake)[1][3]["options"]["spark.sql-function.is-query"] == "true"
    assert lines(lake)[1][3]["options"]["spark.sql-function.contains-sql"] == "false"
    assert ask(lake, "SELECT hr.area(2) AS a, hr.area(h => 1, w => 5) AS b") == [(6.0, 5.0)]
    described = lake.sql("DESCRIBE FUNCTION EXTENDED hr.area").to_arrow()["function_desc"].to_pylist()
    assert described == [
        "Function:      hr.area",
        "Type:          SCALAR",
        "Input:         w DOUBLE 'the width'",
        "               h DOUBLE DEFAULT 2 * 1.5",
        "Returns:       DOUBLE",
        "Comment:       c",
        "Deterministic: true",
        "Data Access:   CONTAINS SQL",
        "Body:          w * h",
    ]
    assert ask(lake, "SHOW USER FUNCTIONS IN hr") == [("hr.area",)]
    assert ask(lake, "SHOW USER FUNCTIONS LIKE 'd*|x'") == [("default.dept_total",)]
    lake.sql("CREATE OR REPLACE FUNCTION hr.area(w INT) RETURN w")
    assert lines(lake)[0][2] == 2
    with pytest.raises(AlreadyExists, match="CREATE OR REPLACE FUNCTION"):
        lake.sql("CREATE FUNCTION hr.area(w INT) RETURN w")
    with pytest.raises(InvalidInput, match=r"holds hr\.area"):
        lake.sql("DROP DATABASE hr")
    lake.sql("DROP DATABASE hr CASCADE")
    assert [line[1] for line in lines(lake)] == ["dept_total", "inc"]


CALLS = (
    ("SELECT id, dept_total(dept_id) AS s FROM emp", [(1, 300), (2, 300), (3, 300)]),
    ("SELECT emp.id, dept_total(emp.dept_id) AS s FROM emp WHERE dept_total(dept_id) > 1", [(1, 300), (2, 300), (3, 300)]),
    ("SELECT id, dept_total(d => e.dept_id + 10) AS s FROM default.emp e", [(1, 300), (2, 300), (3, None)]),
    ("SELECT inc(inc(k)) AS a, `inc`(k) + 1 AS b FROM t WHERE inc(p) = 200", [(201, 102)]),
    ("SELECT default.INC('7') AS a, inc((SELECT max(k) FROM t)) AS b", [(107, 103)]),
    ("SELECT inc(/* a, b) */ 1 -- c\n + 2) AS a", [(103,)]),
    ("SELECT sum(inc(k)) AS a, inc(max(k)) AS b FROM t GROUP BY inc(p) HAVING inc(max(k)) > 101", [(102, 102), (103, 103)]),
    ("SELECT k FROM t WHERE k IN (SELECT inc(id) - 100 FROM emp WHERE id > 1)", [(2,), (3,)]),
    ("WITH inc AS (SELECT k AS kk FROM t) SELECT dept_total(inc.kk * 10) AS a FROM inc WHERE kk < 3", [(300,), (300,)]),
    ("SELECT x.j FROM (SELECT k, dept_total(k * 10) AS j FROM t) x WHERE x.j > 2", [(300,), (300,)]),
    ("SELECT transform(array(1, 2), x -> inc(x)) AS a", [([101, 102],)]),
    ("SELECT '{inc(1)}' AS a, inc(:one) AS b", [("{inc(1)}", 101)]),
)  # fmt: skip


def check_calls(lake, spark=None):
    for sql, wanted in CALLS if spark is None else some(CALLS, 6, "calls on Spark"):
        how = {"params": {"one": 1}} if ":one" in sql else {}
        assert ask(lake, sql, spark, **how) == wanted, sql
    made = lake.sql("SELECT area(k, 2), inc(k) + 1, upper(name) FROM t WHERE k < 2", spark=spark).to_arrow()
    assert made.column_names == ["area(k, 2)", "(inc(k) + 1)", "upper(name)"]  # As Spark names them.
    assert [tuple(row.values()) for row in made.to_pylist()] == [(2.0, 102, "A")]
    frame = pa.table({"a": pa.array([1, 2], pa.int32())})
    assert ask(lake, "SELECT a, inc(a) AS b, dept_total(f.a * 10) AS c FROM f", spark, f=frame) == [
        (1, 101, 300),
        (2, 102, 300),
    ]
    assert ask(lake, "SELECT n, deep(dept_id) AS a, cte(id) AS b FROM (SELECT id AS n, dept_id, id FROM emp) s", spark) == [
        (1, 400, 200), (2, 400, 200), (3, 400, 300),
    ]  # fmt: skip
    assert ask(lake, "SELECT at(array(1, 2), k) AS a, part(named_struct('a', k, 'b', name)) AS b FROM t WHERE k = 1", spark) == [
        ([2, 3], "a1")
    ]  # fmt: skip
    assert ask(lake, "USE hr; SELECT default.deep(10) AS a, default.dept_total(20) AS b", spark) == [(400, 300)]
    lake.sql("USE default")
    # A column of a body's table comes before a parameter of its name, and the function's name tells them apart.
    assert ask(lake, "SELECT hidden(99) AS a, shown(10) AS b", spark) == [(3, 2)]


def prepare_calls(lake, spark=None):
    lake.sql(
        """
        CREATE FUNCTION area(w DOUBLE, h DOUBLE) RETURN w * h;
        CREATE FUNCTION deep(salary INT) RETURN inc(dept_total(salary));
        CREATE FUNCTION cte(id INT) RETURNS INT RETURN
          WITH s AS (SELECT max(salary) AS m, emp.dept_id AS d FROM emp GROUP BY emp.dept_id)
          SELECT max(s.m) FROM s JOIN emp e ON e.dept_id = s.d WHERE e.id = cte.id;
        CREATE FUNCTION at(xs ARRAY<INT>, y INT) RETURN transform(xs, x -> x + y);
        CREATE FUNCTION part(s STRUCT<a: INT, b: STRING>) RETURN concat(s.b, CAST(s.a AS STRING));
        CREATE FUNCTION hidden(dept_id INT) RETURN SELECT count(*) FROM emp WHERE dept_id = dept_id;
        CREATE FUNCTION shown(dept_id INT) RETURN SELECT count(*) FROM emp WHERE dept_id = shown.dept_id
        """,
        spark=spark,
    )


def test_a_call_is_its_body_over_the_arguments(lake):
    prepare_calls(lake)
    check_calls(lake)


def test_calls_are_conditions_that_skip_files(lake):
    for sql in ("SELECT k FROM t WHERE p = inc(0)", "SELECT k FROM t WHERE inc(p) = 200"):
        (scan,) = lake.sql(f"EXPLAIN {sql}").to_arrow().to_pylist()
        assert (scan["files_read"], scan["files"]) == (1, 3), sql
    lake.sql("CREATE VIEW v AS SELECT k, inc(k) AS i, p FROM t") if lake.views.are_kept else None
    if lake.views.are_kept:
        (scan,) = lake.sql("EXPLAIN SELECT i FROM v WHERE p = inc(0)").to_arrow().to_pylist()
        assert (scan["files_read"], scan["files"]) == (1, 3)
        assert ask(lake, "USE hr; SELECT i FROM default.v WHERE k = 1") == [(101,)]
        lake.sql("USE default; DROP FUNCTION inc")
        with pytest.raises(UnsupportedFeature, match=r"view default\.v: .* inc "):
            lake.sql("SELECT * FROM v")


def check_writes(lake, spark=None):
    lake.sql(
        "UPDATE t SET k = inc(k), name = CASE WHEN dept_total(k * 10) > 0 THEN 'z' ELSE name END WHERE inc(k) < 103",
        spark=spark,
    )
    assert ask(lake, "SELECT * FROM t") == [(101, "z", 100), (102, "z", 200), (3, None, 300)]
    lake.sql("DELETE FROM t WHERE dept_total(p / 10) IS NOT NULL OR inc(k) = 103", spark=spark)
    assert ask(lake, "SELECT * FROM t") == []
    lake.sql(
        "INSERT INTO t SELECT inc(id), 'n', inc(0) FROM emp; INSERT INTO t PARTITION (p = inc(1)) VALUES (inc(5), 'm')",
        spark=spark,
    )
    lake.sql(
        """
        MERGE INTO t USING (SELECT 101 AS k, 5 AS s) s ON t.k = s.k AND inc(s.s) = 105
        WHEN MATCHED AND dept_total(t.p - 90) > 1 THEN UPDATE SET name = CAST(inc(s.s) AS STRING)
        WHEN NOT MATCHED BY SOURCE AND inc(t.k) > 204 THEN DELETE
        """,
        spark=spark,
    )
    assert ask(lake, "SELECT k, name, p FROM t") == [(101, "105", 100), (102, "n", 100), (103, "n", 100)]


def test_statements_call_functions(lake):
    check_writes(lake)


def test_temporary_functions_are_the_sessions(lake, tmp_path):
    frame = pa.table({"a": pa.array([1, 9], pa.int32())})
    lake.sql("CREATE TEMPORARY FUNCTION `größe {x}`(`Ä b` INT) RETURN `Ä b` * 2 -- doubled")
    lake.sql("CREATE TEMPORARY FUNCTION largest(n INT) RETURN SELECT max(a) + max(k) FROM f, t WHERE a > n", f=frame)
    assert ask(lake, "SELECT `größe {x}`(k) AS a FROM t WHERE k = 2") == [(4,)]
    assert ask(lake, "USE hr; SELECT largest(1) AS a", f=frame) == [(12,)]  # Its tables are where it was created.
    lake.sql("USE default; CREATE TEMPORARY FUNCTION inc(x INT) RETURN x + 1")
    assert ask(lake, "SELECT inc(1) AS a, default.inc(1) AS b, largest(1) AS c", f=frame) == [(2, 101, 12)]
    assert ask(lake, "SHOW USER FUNCTIONS") == [
        ("default.dept_total",),
        ("default.inc",),
        ("größe {x}",),
        ("inc",),
        ("largest",),
    ]
    assert ask(pickle.loads(pickle.dumps(lake)), "SELECT inc(1) AS a") == [(2,)]
    with pytest.raises(AlreadyExists):
        lake.sql("CREATE TEMPORARY FUNCTION inc(x INT) RETURN x")
    for sql, error, says in (
        ("SELECT largest(1)", NotFound, "function largest: .*no table 'default.f'"),
        ("CREATE FUNCTION g(n INT) RETURN largest(n)", NotFound, "no function 'default.largest'"),
        ("CREATE TEMPORARY FUNCTION default.h(n INT) RETURN n", InvalidInput, "in no database"),
        ("DROP FUNCTION largest", InvalidInput, "DROP TEMPORARY FUNCTION"),
    ):
        with pytest.raises(error, match=says):
            lake.sql(sql)
    lake.sql("DROP TEMPORARY FUNCTION inc; DROP TEMPORARY FUNCTION IF EXISTS inc")
    assert ask(lake, "SELECT inc(1) AS a") == [(101,)]
    folder = Lake(tmp_path / "folder")
    folder.sql("CREATE TEMPORARY FUNCTION twice(x INT) RETURN x * 2")
    assert ask(folder, "SELECT twice(4) AS a") == [(8,)]
    for sql in ("CREATE FUNCTION f(x INT) RETURN x", "CALL sys.drop_function('f')"):
        with pytest.raises(UnsupportedFeature, match="this warehouse stores no functions"):
            folder.sql(sql)
    assert ask(folder, "SHOW USER FUNCTIONS") == [("twice",)]
    folder.sql("DROP FUNCTION IF EXISTS f")


REFUSED = (
    ("CREATE FUNCTION upper(x STRING) RETURN x", InvalidInput, "built-in"),
    ("CREATE FUNCTION mask(x STRING) RETURN x", InvalidInput, "built-in"),
    ("CREATE FUNCTION inc(x INT) RETURN x", AlreadyExists, "already"),
    ("CREATE FUNCTION nodb.f(x INT) RETURN x", InvalidInput, "no such database"),
    ("CREATE FUNCTION `ü`(x INT) RETURN x", InvalidInput, "ASCII letters"),
    ("CREATE FUNCTION f(x INT) RETURN sum(x)", UnsupportedFeature, "row by row"),
    ("CREATE FUNCTION f(x INT) RETURN y", InvalidInput, "no parameter 'y'"),
    ("CREATE FUNCTION f(x INT, X INT) RETURN x", InvalidInput, "two parameters of one name"),
    ("CREATE FUNCTION f(x INT DEFAULT 1, y INT) RETURN x", InvalidInput, "DEFAULT come last"),
    ("CREATE FUNCTION f(x INT DEFAULT (SELECT max(k) FROM t)) RETURN x; SELECT f()", InvalidInput, "not a constant"),
    ("CREATE FUNCTION f(x INT NOT NULL) RETURN x", UnsupportedFeature, "NOT NULL"),
    ("CREATE FUNCTION f(x INT) RETURN x) AS a, (x", InvalidInput, "near '\\)'"),
    ("CREATE FUNCTION f(x INT) RETURN x UNION SELECT 1", InvalidInput, "one expression"),
    ("CREATE FUNCTION f(x INT) RETURN SELECT max(id) FROM nope", NotFound, "no table 'default.nope'"),
    ("CREATE FUNCTION f(x INT) RETURN SELECT max(x) AS x FROM emp", InvalidInput, "a parameter and an alias"),
    ("CREATE FUNCTION f(x INT) CONTAINS SQL RETURN SELECT max(id) FROM emp", InvalidInput, "READS SQL DATA"),
    ("CREATE FUNCTION f(x INT) RETURN x + :y", InvalidInput, "without parameters of its own"),
    ("CREATE FUNCTION f(x INT) RETURNS TABLE(a INT) RETURN SELECT 1", UnsupportedFeature, "RETURNS TABLE"),
    ("CREATE FUNCTION f(x INT) RETURN f(x)", InvalidInput, "calls itself"),
    ("CREATE OR REPLACE FUNCTION inc(x INT) RETURN inc(x) + 1", InvalidInput, "calls itself"),
    ("CREATE FUNCTION f(x INT) RETURN inc(x); CREATE OR REPLACE FUNCTION inc(x INT) RETURN f(x)", InvalidInput, "calls itself"),
    ("CREATE OR REPLACE FUNCTION IF NOT EXISTS f(x INT) RETURN x", InvalidInput, "IF NOT EXISTS"),
    ("CREATE TEMPORARY FUNCTION f AS 'a.B' USING JAR 'b.jar'", UnsupportedFeature, "loads no classes"),
    ("SELECT inc()", InvalidInput, "needs x"),
    ("SELECT inc(1, 2)", InvalidInput, "takes 1 arguments, and 2 are given"),
    ("SELECT inc(y => 1)", InvalidInput, "no parameter 'y'"),
    ("SELECT inc(x => 1, x => 2)", InvalidInput, "x is given twice"),
    ("SELECT inc('abc')", InvalidInput, "text that is not a valid INT"),
    ("SELECT inc(k) OVER () FROM t", InvalidInput, "not an aggregate"),
    ("CREATE FUNCTION twice(x DOUBLE) RETURN x + x; SELECT twice(rand())", UnsupportedFeature, "random"),
    ("SELECT dept_total(k) FROM t a JOIN t b USING (k)", InvalidInput, "qualify it by its table"),
    ("CREATE FUNCTION g(xs ARRAY<INT>, y INT) RETURN transform(xs, k -> k + y); SELECT g(array(1), k) FROM t", InvalidInput, "rename one"),
    ("DROP FUNCTION nope", NotFound, "no function 'default.nope'"),
    ("DROP TEMPORARY FUNCTION inc", NotFound, "no temporary function"),
    ("DESCRIBE FUNCTION nope", NotFound, "no function 'default.nope'"),
    ("DESCRIBE FUNCTION upper", UnsupportedFeature, "built-in"),
    ("SHOW FUNCTIONS", UnsupportedFeature, "SHOW USER FUNCTIONS"),
    ("SHOW USER FUNCTIONS IN nodb", NotFound, "no database"),
)  # fmt: skip


def test_what_is_refused_says_why(lake):
    for sql, error, says in REFUSED:
        with pytest.raises(error, match=says):
            lake.sql(sql, params={"y": 1} if ":y" in sql else None)
        names = {line[1] for line in lines(lake)} - {"inc", "dept_total"}
        for name in names:
            lake.sql(f"DROP FUNCTION {name}")
    assert ask(lake, "SELECT inc(1) AS a") == [(101,)]


BODIES = (
    ("x) AS a, (SELECT max(k) FROM t", "near '\\)'"),
    ("1 /*", "not closed"),
    ("x' || '", "not closed"),
    ("x; DROP TABLE t", "one expression"),
    ("(SELECT max(k) FROM `parquet`.`/etc`)", "not a table name"),
    ("(SELECT count(*) FROM read_csv('/etc/passwd'))", "read_csv"),
    ("(SELECT max(input_file_name()) FROM t)", "input_file_name"),
    ("reflect('java.lang.System', 'getProperty', 'user.home')", "reflect"),
    ("getenv('HOME')", "no function 'default.getenv'"),
    ("x + ?", "without parameters"),
)


def check_bodies(lake, spark=None):
    for body, says in BODIES if spark is None else some(BODIES, 4, "bodies on Spark"):
        stored(lake, "evil", body)
        with pytest.raises((InvalidInput, NotFound, UnsupportedFeature), match=says):
            lake.sql("SELECT evil(k) AS a FROM t", spark=spark).to_arrow()
    stored(lake, "evil", "concat('{_lakeformat_0} ', \"}\", x) -- x")
    assert ask(lake, "SELECT evil(k) AS a FROM t WHERE k = 1", spark) == [("{_lakeformat_0} }1",)]


def test_a_body_reaches_what_a_query_reaches(lake):
    check_bodies(lake)
    for name, other in (("c1", "c2"), ("c2", "c1")):
        stored(lake, name, f"{other}(x)")
    with pytest.raises(InvalidInput, match=r"function default\.c1 calls itself, by default\.c1 and default\.c2"):
        lake.sql("SELECT c1(k) FROM t")
    # A body's names are not the caller's: a function and a table of another database.
    lake.sql("CREATE FUNCTION hr.only_there(x INT) RETURN x")
    stored(lake, "asks", "only_there(x)")
    with pytest.raises(NotFound, match=r"no function 'default\.only_there'"):
        lake.sql("USE hr; SELECT default.asks(1)")


def test_calls_in_calls(lake, monkeypatch):
    assert ask(lake, "SELECT " + "inc(" * 12 + "1" + ")" * 12 + " AS n") == [(1201,)]
    lake.sql("CREATE FUNCTION twice(x INT) RETURNS INT RETURN x + x")
    assert ask(lake, "SELECT " + "twice(" * 5 + "k" + ")" * 5 + " AS n FROM t") == [(32,), (64,), (96,)]
    monkeypatch.setattr(inline, "_MOST_CHARACTERS", 5_000)
    with pytest.raises(UnsupportedFeature, match="5000 characters of text in all"):
        lake.sql("SELECT " + "twice(" * 30 + "k" + ")" * 30 + " AS n FROM t")


def test_procedures_change_functions(lake):
    lake.sql(
        """CALL sys.create_function('f', '[{"id": 0, "name": "a", "type": "INT"}, {"id": 1, "name": "b", "type": "INT"}]',
        '[{"id": 0, "name": "r", "type": "BIGINT"}]', true, 'text', 'k1=v1,k2=v2')"""
    )
    with pytest.raises(UnsupportedFeature, match="has no definition for Spark; it has none"):
        lake.sql("SELECT f(1, 2)")

    def change(**said):
        lake.sql(
            "CALL sys.alter_function(`function` => 'default.f', `change` => :change)",
            params={"change": json.dumps(said)},
        )

    java = {"type": "lambda", "definition": "(Integer a, Integer b) -> (long) a * b", "language": "JAVA"}
    change(action="addDefinition", name="spark", definition=java)
    with pytest.raises(
        UnsupportedFeature, match=r"default\.f is a JAVA lambda, and lakeformat runs no code of the JVM"
    ):
        lake.sql("SELECT f(1, 2)")
    change(action="updateDefinition", name="spark", definition={"type": "sql", "definition": "a * b"})
    change(action="addDefinition", name="trino", definition={"type": "sql", "definition": "b * a"})
    change(action="dropDefinition", name="trino")
    change(action="setOption", key="k1", value="other")
    change(action="removeOption", key="k2")
    change(action="updateComment", comment=None)
    assert ask(lake, "SELECT f(2, 3) AS a") == [(6,)]
    function = lake.functions.find("default.f")
    assert (function.comment, dict(function.options), list(function.definitions)) == (None, {"k1": "other"}, ["spark"])
    for said, error in (
        ({}, InvalidInput),
        ({"action": "addDefinition", "name": "spark", "definition": java}, AlreadyExists),
        ({"action": "updateDefinition", "name": "flink", "definition": java}, NotFound),
        ({"action": "addDefinition", "name": "flink", "definition": {"type": "other"}}, InvalidInput),
        ({"action": "setOption", "key": "k"}, InvalidInput),
    ):
        with pytest.raises(error):
            change(**said)
    for call, error in (
        ("sys.alter_function('f', 'no json')", InvalidInput),
        ("sys.create_function('g', '{}', '[]')", InvalidInput),
        ("sys.create_function('g', '[{\"id\": 0}]', '[]')", CorruptFile),
        ("sys.create_function('f', '[]', '[]')", AlreadyExists),
    ):
        with pytest.raises(error):
            lake.sql(f"CALL {call}")
    lake.sql("CALL sys.drop_function('f')")
    with pytest.raises(NotFound):
        lake.sql("CALL sys.drop_function('f')")


def test_one_of_two_changes_at_once_is_refused(lake):
    base = lake.functions.catalog.functions.find("default.inc")
    barrier, outcomes = threading.Barrier(2), []

    def change(number):
        barrier.wait()
        try:
            lake.functions.catalog.functions.replace("default.inc", base, {**base.document, "comment": str(number)})
            outcomes.append("done")
        except Conflict:
            outcomes.append("conflict")

    threads = [threading.Thread(target=change, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["conflict", "done"]


def test_reading_makes_no_table_in_the_database(tmp_path):
    lake = Lake(tmp_path / "w", catalog="sql")
    lake.sql("CREATE DATABASE default")
    with pytest.raises(UnsupportedFeature):
        lake.sql("SELECT unknown(1)")
    with sqlite3.connect(f"{lake.uri}/catalog.sqlite") as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "lakeformat_functions" not in names


def test_functions_on_spark(tmp_path, spark):
    lake = Lake(tmp_path / "w", catalog="sql")
    lake.sql(
        """
        CREATE DATABASE default; CREATE DATABASE hr; CREATE TABLE emp (id INT, dept_id INT, salary INT);
        INSERT INTO emp VALUES (1, 10, 100), (2, 10, 200), (3, 20, 300);
        CREATE TABLE t (k INT, name STRING, p INT) PARTITIONED BY (p); INSERT INTO t VALUES (1, 'a', 100), (2, 'b', 200), (3, NULL, 300)
        """
    )
    lake.sql("CREATE FUNCTION inc(x INT) RETURNS INT RETURN x + 100", spark=spark)
    lake.sql(
        "CREATE FUNCTION dept_total(d INT) RETURNS INT RETURN SELECT SUM(salary) FROM emp WHERE dept_id = d",
        spark=spark,
    )
    prepare_calls(lake, spark)
    check_calls(lake, spark)
    check_bodies(lake, spark)
    check_writes(lake, spark)
    system = [row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()]
    assert [name for name in system if name.isidentifier() and not builtin.is_one(name)] == []


def test_bodies_call_functions_whose_arguments_are_names_or_values(lake):
    lake.sql("CREATE TEMPORARY FUNCTION part(x INT) RETURN named_struct('p', x, 'q', x + 1)")
    assert lake.sql("SELECT part(1).q AS a").to_arrow()["a"].to_pylist() == [2]
