"""PIVOT and UNPIVOT in process, and the names of columns without one. What is expected here is what Spark 4.3 gave."""

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, UnsupportedFeature

T = pa.table(
    {
        "k": pa.array([1, 1, 2, 2, 3, 3, None], pa.int32()),
        "c": ["a", "b", "a", "a", None, "b", "a"],
        "v": pa.array([1, 2, 3, None, 5, -1, 1], pa.int32()),
        "w": pa.array([10, None, 30, None, 50, 60, 70], pa.int64()),
        "d": ["x", "y", "x", None, "y", "z", "x"],
        "b": [True, False, None, True, True, False, None],
        "x": [1.5, None, 2.0, -0.0, 2.5, 1e10, 0.1],
    }
)
KCV = "(SELECT k, c, v FROM t)"
PIVOTS = {
    f"{KCV} PIVOT (sum(v) FOR c IN ('a', 'b'))": (["k", "a", "b"], [(1, 1, 2), (2, 3, None), (3, None, -1), (None, 1, None)]),
    f"{KCV} PIVOT (sum(v) AS s FOR c IN ('a'))": (["k", "a"], [(1, 1), (2, 3), (3, None), (None, 1)]),
    f"{KCV} PIVOT (sum(v) AS s, max(v) FOR c IN ('a' AS x, 'b'))": (
        ["k", "x_s", "x_max(v)", "b_s", "b_max(v)"],
        [(1, 1, 1, 2, 2), (2, 3, 3, None, None), (3, None, None, -1, -1), (None, 1, 1, None, None)],
    ),
    f"{KCV} PIVOT (count(*) FOR c IN ('a' AS x, 'zz', NULL AS nil))": (
        ["k", "v", "x", "zz", "nil"],
        [(1, 1, 1, None, None), (1, 2, None, None, None), (2, 3, 1, None, None), (2, None, 1, None, None), (3, -1, None, None, None), (3, 5, None, None, 1), (None, 1, 1, None, None)],
    ),
    f"{KCV} PIVOT (sum(v) FOR (c, k) IN (('a', 2) AS x, ('b', 1)))": (["x", "{b, 1}"], [(3, 2)]),
    "(SELECT c, v FROM t WHERE false) PIVOT (sum(v) FOR c IN ('a', 'b'))": (["a", "b"], [(None, None)]),
    "(SELECT k, b, v FROM t WHERE k < 3) PIVOT (count(v) FOR b IN (true, false))": (["k", "true", "false"], [(1, 1, 1), (2, 0, None)]),
    f"{KCV} PIVOT (count(DISTINCT v) FOR C IN ('a', 'b')) p WHERE p.b = 1": (["k", "a", "b"], [(1, 1, 1), (3, None, 1)]),
    "(SELECT k, v, w AS ww FROM t WHERE k < 3) UNPIVOT (x FOR n IN (v, ww AS w2))": (
        ["k", "n", "x"], [(1, "v", 1), (1, "w2", 10), (1, "v", 2), (2, "v", 3), (2, "w2", 30)],
    ),
    "(SELECT k, v, w FROM t WHERE k = 2) UNPIVOT INCLUDE NULLS (x FOR n IN (v, w))": (
        ["k", "n", "x"], [(2, "v", 3), (2, "w", 30), (2, "v", None), (2, "w", None)],
    ),
    "(SELECT k, v, w, c, d FROM t WHERE k = 1) UNPIVOT ((x, y) FOR n IN ((v, c) AS vc, (w, d)))": (
        ["k", "n", "x", "y"], [(1, "vc", 1, "a"), (1, "w_d", 10, "x"), (1, "vc", 2, "b"), (1, "w_d", None, "y")],
    ),
    "(SELECT v, x FROM t WHERE k = 1) UNPIVOT (val FOR name IN (V, x)) u": (["name", "val"], [("V", 1.0), ("x", 1.5), ("V", 2.0)]),
}  # fmt: skip
NAMES = {
    "CAST(v AS STRING)": "v", "CAST(t.v AS DECIMAL(9, 1)) + 1": "(CAST(v AS DECIMAL(9,1)) + 1)", "t.v + k * 2": "(v + (k * 2))", "upper(t.c)": "upper(c)",
    "v DIV 2": "(v div 2)", "-v": "(- v)", "NOT b": "(NOT b)", "b AND NULL": "(b AND NULL)", "c LIKE 'A%'": "c LIKE A%", "c ILIKE 'A%'": "ilike(c, A%)",
    "v IN (1, 2)": "(v IN (1, 2))", "v <=> NULL": "(v <=> NULL)", "v IS NULL": "(v IS NULL)", "v BETWEEN 1 AND 2": "between(v, 1, 2)", "ceil(x)": "CEIL(x)",
    "floor(x)": "FLOOR(x)", "c || 'z'": "concat(c, z)", "c = 'a '": "(c = a )", "-5 % 3": "(-5 % 3)",
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    return Lake(str(tmp_path_factory.mktemp("pivots")))


@pytest.mark.parametrize("text", PIVOTS)
def test_pivots_give_what_spark_gives(lake, text):
    names, expected = PIVOTS[text]
    rows = lake.sql(f"SELECT * FROM {text}", t=T).to_arrow()
    assert rows.column_names == names
    assert sorted(map(repr, zip(*(column.to_pylist() for column in rows.columns), strict=True))) == sorted(
        map(repr, expected)
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"{KCV} PIVOT (v FOR c IN ('a'))", InvalidInput),
        (f"{KCV} PIVOT (first(c) FOR v IN (1, 2))", UnsupportedFeature),
        (f"{KCV} PIVOT (sum(v) FOR c IN (1))", UnsupportedFeature),
        (f"{KCV} PIVOT (sum(v) FOR nope IN ('a'))", InvalidInput),
        (f"{KCV} PIVOT (sum(v) FOR c IN (k))", InvalidInput),
        ("t UNPIVOT (x FOR n IN (v, nope))", InvalidInput),
        ("t UNPIVOT (x FOR n IN (v, c))", UnsupportedFeature),
        ("t UNPIVOT ((x, y) FOR n IN (v, w))", InvalidInput),
    ],
)
def test_pivots_that_are_not_compared_are_refused(lake, text, error):
    with pytest.raises(error):
        lake.sql(f"SELECT * FROM {text}", t=T).to_arrow()


def test_pivots_read_tables_and_join(lake):
    lake.sql("CREATE TABLE d.t USING iceberg AS SELECT k, c, v FROM t", t=T)
    text = (
        "SELECT a.k, p.a FROM d.t a JOIN (SELECT * FROM d.t PIVOT (sum(v) FOR c IN ('a'))) p ON a.k = p.k ORDER BY 1, 2"
    )
    assert lake.sql(text).to_arrow()["a"].to_pylist() == [1, 1, 3, 3, None, None]


def test_columns_without_a_name_have_sparks(lake):
    names = lake.sql(f"SELECT {', '.join(NAMES)} FROM t WHERE false", t=T).to_arrow().column_names
    assert dict(zip(NAMES, names, strict=True)) == NAMES


def test_order_by_what_distinct_does_not_list_is_refused(lake):
    with pytest.raises(InvalidInput, match="ORDER BY v"):
        lake.sql("SELECT DISTINCT k FROM t ORDER BY v", t=T).to_arrow()
    assert len(lake.sql("SELECT DISTINCT k AS a FROM t ORDER BY k", t=T).to_arrow()) == 4
