"""Queries in process: what they answer, what they read, and how the tables in them are found."""

import datetime as dt
import re
from decimal import Decimal
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest

from lakeformat import CorruptFile, InvalidInput, Lake, LakeError, NotFound, UnsupportedFeature
from lakeformat.sql import in_process
from lakeformat.sql.sources import TableRows
from tests.sql.conftest import rows


def one(result):
    (value,) = result.to_arrow().to_pylist()[0].values()
    return value


def ids(lake, text, **more):
    return sorted(lake.sql(text, **more).to_arrow().column(0).to_pylist())


def test_a_query_joins_groups_and_orders(lake, orders):
    found = lake.sql(
        """
        WITH big AS (SELECT * FROM shop.orders WHERE amount >= 20)
        SELECT o.dt, count(*) AS n, sum(big.amount) AS total
        FROM shop.orders o LEFT JOIN big ON o.id = big.id
        GROUP BY o.dt HAVING count(*) > 1 ORDER BY o.dt DESC
        """
    )
    assert rows(found) == [("05-01", 2, Decimal("20.00")), ("05-02", 2, Decimal("30.00"))]


def test_a_result_takes_every_form(lake, orders, capsys):
    found = lake.sql("SELECT id, name FROM shop.orders WHERE id < 3 ORDER BY id")
    assert found.to_pandas()["name"].tolist() == ["ann", "bob"]
    assert found.to_polars()["id"].to_list() == [1, 2]
    assert pa.table(found).num_rows == len(found) == 2
    found.show()
    assert capsys.readouterr().out == "id | name\n-- | ----\n1  | ann\n2  | bob\n"
    assert repr(found) == "Result(2 rows: id, name)"
    lake.sql("SELECT 1 AS a, 2 AS a").show()
    assert capsys.readouterr().out == "a | a\n- | -\n1 | 2\n"


def test_a_notebook_shows_the_first_rows_of_a_result(lake):
    shown = lake.sql("SELECT '<b>' AS a, CAST(NULL AS STRING) AS n, '' AS e")._repr_html_()
    assert "&lt;b&gt;" in shown
    assert ">NULL<" in shown
    assert "1 row" in shown
    assert "the first 20 rows" in lake.sql("SELECT * FROM range(100)")._repr_html_()


def test_names_are_found_however_they_are_quoted_and_spelt(lake, orders):
    for name in ("shop.orders", "`shop`.`orders`", "`shop.orders`", "SHOP.Orders"):
        assert one(lake.sql(f"SELECT count(*) FROM {name}")) == 5, name
    assert ids(lake, "SELECT shop.orders.ID FROM shop.orders WHERE shop.orders.id = 1") == [1]
    assert ids(lake, "SELECT orders.id FROM shop.orders WHERE ORDERS.Id = 1") == [1]


def test_a_cte_and_a_frame_shadow_tables_only_where_they_are_in_sight(lake, orders):
    assert one(lake.sql("WITH orders AS (SELECT 1 AS id) SELECT count(*) FROM orders")) == 1
    # Inside its own definition, and where a namespace is named, the name is the table's.
    lake.sql("USE shop")
    assert one(lake.sql("WITH orders AS (SELECT * FROM orders WHERE id > 3) SELECT count(*) FROM orders")) == 2
    assert one(lake.sql("WITH orders AS (SELECT 1 AS id) SELECT count(*) FROM shop.orders")) == 5
    text = "SELECT count(*) FROM orders WHERE id IN (WITH orders AS (SELECT 2 AS id) SELECT id FROM orders)"
    assert one(lake.sql(text)) == 1
    assert one(lake.sql("SELECT count(*) FROM orders", orders=pa.table({"id": [1, 2]}))) == 2


def test_frames_of_every_kind_are_named(lake, orders):
    arrow = pa.table({"id": [1, 7]})
    kinds = [
        arrow,
        arrow.to_pandas(),
        polars.from_arrow(arrow),
        arrow.to_batches()[0],
        {"id": [1, 7]},
        orders.scan(["id"]),
    ]
    for kind in kinds:
        assert ids(lake, "SELECT o.id FROM shop.orders o JOIN staged s ON o.id = s.id WHERE o.id = 1", staged=kind) == [
            1
        ]
    with pytest.raises(InvalidInput, match="give a frame"):
        lake.sql("SELECT * FROM staged", staged=7)


def test_parameters_are_bound(lake, orders):
    name = "x'; DROP TABLE shop.orders; -- {brace} `tick` :id ?"
    lake.sql("INSERT INTO shop.orders VALUES (9, :name, 1, '05-09')", params={"name": name})
    assert one(lake.sql("SELECT name FROM shop.orders WHERE name = :n", params={"n": name})) == name
    assert one(lake.sql("SELECT name FROM shop.orders WHERE name = ? AND id = ?", params=[name, 9])) == name
    assert ids(lake, "SELECT id FROM shop.orders WHERE dt = :day LIMIT :n", params={"day": "05-03", "n": 1}) == [5]
    values = [dt.date(2023, 5, 1), dt.datetime(2023, 5, 1, 2, 3), Decimal("-1.50"), b"\x00", None, True, -7, 1.5]
    for value in values:
        assert one(lake.sql("SELECT ? AS v", params=[value])) == value
    lake.sql("DELETE FROM shop.orders WHERE name = ?", params=[name])
    assert one(lake.sql("SELECT count(*) FROM shop.orders WHERE id = 9")) == 0


@pytest.mark.parametrize(
    ("text", "params", "said"),
    [
        ("SELECT :a", None, "no parameter :a"),
        ("SELECT ?", [], "1 ?, and params has 0"),
        ("SELECT 1", [1], "0 ?, and params has 1"),
        ("SELECT 1", 7, "mapping for :name"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(lake, text, params, said):
    with pytest.raises((InvalidInput, NotFound), match=said.replace("?", r"\?")):
        lake.sql(text, params=params)


def test_time_travel_in_every_spelling(lake, orders):
    first = orders.current_snapshot()
    orders.create_tag("before")
    lake.sql("DELETE FROM shop.orders WHERE dt = '05-01'")
    assert one(lake.sql("SELECT count(*) FROM shop.orders")) == 3
    at = dt.datetime.fromtimestamp(first.timestamp_ms / 1000, dt.UTC)
    later = f"{at + dt.timedelta(milliseconds=1):%Y-%m-%d %H:%M:%S.%f}"
    for clause in (
        f"VERSION AS OF {first.id}",
        f"VERSION AS OF '{first.id}'",
        f"FOR VERSION AS OF {first.id}",
        f"FOR SYSTEM_VERSION AS OF {first.id}",
        f"FOR  SYSTEM_VERSION\nAS OF {first.id}",
        f"TIMESTAMP AS OF '{later}'",
        f"FOR SYSTEM_TIME AS OF TIMESTAMP '{later}'",
        f"TIMESTAMP AS OF {first.timestamp_ms / 1000 + 0.001:.3f}",
        "VERSION AS OF 'before'",
        "VERSION AS OF :tag",
        f"VERSION AS OF ({first.id} + 0)",
    ):
        text = f"SELECT count(o.id) FROM shop.orders {clause} AS o WHERE o.id > 0"
        assert one(lake.sql(text, params={"tag": "before"})) == 5, clause
    assert one(lake.sql("SELECT count(*) FROM shop.orders.tag_before")) == 5
    assert one(lake.sql("SELECT count(*) FROM shop.`orders$tag_before`")) == 5
    with pytest.raises(InvalidInput, match="no such tag or branch; tags are before"):
        lake.sql("SELECT * FROM shop.orders VERSION AS OF 'nope'")


def test_branches_by_name(lake, orders):
    orders.create_branch("audit")
    lake.sql("INSERT INTO shop.orders.branch_audit VALUES (6, 'fay', 1, '05-04')")
    for name in ("shop.orders.branch_audit", "shop.`orders$branch_audit`", "shop.orders$branch_audit"):
        assert one(lake.sql(f"SELECT count(*) FROM {name}")) == 6, name
    assert one(lake.sql("SELECT count(*) FROM shop.orders VERSION AS OF 'audit'")) == 6
    lake.sql(
        "UPDATE shop.orders.branch_audit SET amount = 2 WHERE id = 6; DELETE FROM shop.orders.branch_audit WHERE id < 3"
    )
    merge = "MERGE INTO shop.`orders$branch_audit` t USING (SELECT 3 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert one(lake.sql(merge + "; SELECT count(*) FROM shop.orders.branch_audit")) == 3
    assert one(lake.sql("SELECT count(*) FROM shop.orders")) == 5
    lake.sql("CALL sys.fast_forward('shop.orders', 'audit')")
    assert one(lake.sql("SELECT count(*) FROM shop.orders")) == 3
    lake.sql("ALTER TABLE shop.orders CREATE OR REPLACE BRANCH audit; ALTER TABLE shop.orders DROP BRANCH audit")
    assert set(orders.inspect.branches()["branch_name"].to_pylist()) <= {"main"}


def test_metadata_tables_in_every_spelling(lake, orders):
    for name in (
        "shop.orders.snapshots",
        "shop.orders$snapshots",
        "shop.`orders$snapshots`",
        "`shop.orders$snapshots`",
    ):
        assert one(lake.sql(f"SELECT count(snapshot_id) FROM {name} AS s WHERE s.snapshot_id > 0")) == 1, name
    assert one(lake.sql("SELECT sum(record_count) FROM shop.orders.files")) == 5
    assert {"files", "manifests", "partitions", "tags", "options", "schemas"} <= set(dir(orders.inspect))
    other = "buckets" if orders.format == "iceberg" else "entries"  # Of the other format.
    with pytest.raises(UnsupportedFeature, match=other):
        lake.sql(f"SELECT * FROM shop.orders.{other}")
    with pytest.raises(NotFound, match="did you mean 'snapshots'"):
        lake.sql("SELECT * FROM shop.orders.snapshot")


def test_an_incremental_query_gives_what_came(lake, orders):
    lake.sql("INSERT INTO shop.orders VALUES (6, 'fay', 1, '05-04')")
    first, last = (snapshot.id for snapshot in orders.snapshots())
    text = f"SELECT q.id FROM paimon_incremental_query('shop.orders', '{first}', :last) AS q"
    assert ids(lake, text, params={"last": last}) == [6]


def test_time_travel_of_delta_is_refused_with_the_way_out(lake, orders):
    with pytest.raises(UnsupportedFeature, match=r"line 1, column 26: @, .* write t VERSION AS OF 1"):
        lake.sql("SELECT * FROM shop.orders@v1")
    assert lake.sql("SELECT 'a@b' AS `c@d` /* @v1 */").to_arrow().to_pylist() == [{"c@d": "a@b"}]


def test_columns_and_conditions_are_pushed_into_scans(lake, orders):
    def told(text, **more):
        return lake.sql(f"EXPLAIN {text}", **more).to_arrow().to_pylist()

    (scan,) = told("SELECT o.id FROM shop.orders o WHERE o.dt = '05-01' AND upper(name) <> 'Q'")
    assert scan["columns"] == "id, name, dt"
    assert scan["files_read"] == 1
    assert scan["files"] == 3
    assert (scan["manifests_read"], scan["manifests"]) == (1, 1)
    assert "`dt`" in scan["pushed"]
    assert "upper" in scan["pushed"]
    # Conditions that scans cannot evaluate, or would evaluate otherwise than Spark, stay with the engine.
    for text in (
        "date_trunc('Q', dt) IS NULL",
        "datediff(HOUR, dt, dt) = 0",
        "regexp_count(name, 'a') = 1",
    ):
        (scan,) = told(f"SELECT id FROM shop.orders WHERE {text} AND dt = '05-01'")
        assert scan["pushed"] == "(`dt` = '05-01')"
    # Through a CTE and a subquery that only choose rows and columns.
    (scan,) = told(
        "WITH c AS (SELECT id, dt AS day FROM shop.orders) SELECT id FROM (SELECT * FROM c) x WHERE day = :d",
        params={"d": "05-02"},
    )
    assert scan["files_read"] == 1
    assert scan["columns"] == "id, dt"
    # Not below a limit, a window, or the side of an outer join that it fills with nulls.
    for text in (
        "SELECT id FROM (SELECT id, dt FROM shop.orders LIMIT 1) x WHERE dt = '05-01'",
        "SELECT id FROM (SELECT id, dt, row_number() OVER (ORDER BY id) n FROM shop.orders) x WHERE dt = '05-01' AND n > 0",
        "SELECT a.id FROM s a LEFT JOIN shop.orders o ON a.id = o.id WHERE o.dt IS NULL",
        "SELECT a.id FROM s a FULL JOIN shop.orders o ON a.id = o.id AND o.dt = '05-01'",
        "SELECT id FROM shop.orders WHERE dt = '05-01' OR id = 5 OR rand() > 2",
    ):
        scan = told(text, s=pa.table({"id": [1]}))[-1]
        assert scan["files_read"] == 3, text
    (scan,) = told(
        "SELECT a.id FROM s a LEFT JOIN shop.orders o ON a.id = o.id AND o.dt = '05-01'", s=pa.table({"id": [1]})
    )[-1:]
    assert scan["files_read"] == 1


def test_what_is_pushed_changes_no_answer(lake, orders):
    nulls = "SELECT count(*) FROM s LEFT JOIN shop.orders o ON s.id = o.id WHERE o.name IS NULL"
    assert one(lake.sql(nulls, s=pa.table({"id": [1, 3, 9]}))) == 2
    limited = "SELECT count(*) FROM (SELECT id FROM shop.orders ORDER BY id LIMIT 2) x WHERE id > 1"
    assert one(lake.sql(limited)) == 1
    distinct = "SELECT count(*) FROM (SELECT DISTINCT * FROM shop.orders) x"
    assert one(lake.sql(distinct)) == 5
    except_ = "SELECT id FROM (SELECT * FROM shop.orders EXCEPT SELECT * FROM shop.orders WHERE dt = '05-01') x"
    assert ids(lake, except_) == [3, 4, 5]
    natural = "SELECT count(*) FROM shop.orders NATURAL JOIN (SELECT id, dt FROM shop.orders WHERE id < 3) y"
    assert one(lake.sql(natural)) == 2
    twice = (
        "WITH c AS (SELECT id, dt FROM shop.orders) SELECT count(*) FROM c a JOIN c b ON a.id = b.id AND a.dt = '05-01'"
    )
    assert one(lake.sql(twice)) == 2
    correlated = (
        "SELECT id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM shop.orders p WHERE p.dt = o.dt AND p.id > o.id)"
    )
    assert ids(lake, correlated) == [1, 3]


def test_an_alias_is_not_taken_for_a_column_of_its_name(lake, orders):
    assert ids(lake, "SELECT id, upper(name) AS dt FROM shop.orders WHERE dt = '05-01'") == [1, 2]
    assert one(lake.sql("SELECT count(*) FROM (SELECT id AS dt, dt AS id FROM shop.orders) x WHERE id = '05-01'")) == 2
    grouped = (
        "SELECT substring(dt, 4) AS day, count(*) AS n FROM shop.orders WHERE dt < '05-03' GROUP BY day ORDER BY day"
    )
    assert lake.sql(grouped).to_arrow().to_pylist() == [{"day": "01", "n": 2}, {"day": "02", "n": 2}]
    merge = (
        "MERGE INTO shop.orders t USING (SELECT 1 AS id) s ON t.id = s.id AND t.dt = '05-01' WHEN MATCHED THEN DELETE"
    )
    (target,) = lake.sql(f"EXPLAIN {merge}").to_arrow().to_pylist()
    assert (target["table"], target["pushed"], target["files_read"]) == ("shop.orders", "(`dt` = '05-01')", 1)
    (scan,) = lake.sql(f"EXPLAIN {grouped}").to_arrow().to_pylist()
    assert (scan["columns"], scan["files_read"]) == ("dt", 2)


def test_columns_without_a_name_are_called_as_in_spark(lake, orders):
    found = lake.sql("SELECT count(*), sum(id), id + 1 AS x FROM shop.orders GROUP BY id")
    assert found.to_arrow().column_names == ["count(1)", "sum(id)", "x"]
    assert found.to_arrow().schema.types == [pa.int64(), pa.int64(), pa.int64()]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("SELECT *\nFROM shop.nope", NotFound, "line 2, column 6: no table 'shop.nope'"),
        ("SELECT id\n  FROM shop.orders\n  WHERE WHERE", InvalidInput, "line 3, column 9"),
        (
            "SELECT id, sentences(name) FROM shop.orders",
            UnsupportedFeature,
            "line 1, column 12: the function sentences",
        ),
        ("SELECT nope FROM shop.orders", InvalidInput, "nope"),
        ("SELECT map_zip_with(map(1, 2), map(1, 3), (k, x, y) -> x)", UnsupportedFeature, "the function map_zip_with"),
        ("SELECT 'a", InvalidInput, "cannot be taken apart"),
        ("", InvalidInput, "no statement"),
        ("-- nothing", InvalidInput, "no statement"),
        ("SELECT * FROM ROWS FROM (range(3))", UnsupportedFeature, "the table function ROWS FROM"),
        ("SELECT * FROM `/etc/passwd`", InvalidInput, "line 1, column 15: 'default./etc/passwd' is not a table name"),
        ("SELECT * FROM shop.orders TIMESTAMP AS OF 1e400", InvalidInput, "is not a time"),
        ("ALTER TABLE shop.orders CREATE TAG", InvalidInput, "expected"),
        ("ALTER TABLE shop.orders CREATE TAG a AS OF VERSION 1e400", InvalidInput, "expected a whole number"),
        ("CREATE TABLE shop.x (a INT) PARTITIONED BY (bucket(", InvalidInput, "expected"),
        ("CALL sys.compact(table => )", InvalidInput, "expected an expression"),
        ("CALL sys.rollback('shop.orders', snapshot => 'x')", InvalidInput, "snapshot => 'x' is not a whole number"),
        ("CALL sys.reset_consumer('shop.orders', 'a', map('a', 1))", InvalidInput, "is not a whole number"),
        (
            "CALL system.create_changelog_view('shop.orders', options => map('start-timestamp', 'x'))",
            InvalidInput,
            "is not a whole",
        ),
        ("CALL sys.compact('shop.orders', options => 5)", InvalidInput, "options => 5 is not a map"),
        ("VACUUM shop.orders", UnsupportedFeature, "line 1, column 1: VACUUM is not a statement"),
        ("SELECT 1; CREATE VIEW v AS SELECT 1", UnsupportedFeature, "line 1, column 23: CREATE VIEW"),
    ],
)
def test_mistakes_are_told_with_their_place(lake, orders, text, kind, said):
    with pytest.raises(kind) as raised:
        lake.sql(text)
    assert said in str(raised.value)


def test_lineage_tells_what_each_column_is_computed_from(lake, orders):
    found = lake.sql(
        "WITH x AS (SELECT *, upper(name) AS u FROM shop.orders WHERE id > 0) "
        "SELECT x.*, o.Amount + x.id AS both, (SELECT max(id) FROM shop.orders) AS m, 1 AS one FROM x JOIN `a.b` o ON x.id = o.id",
        **{"a.b": orders.scan(where="dt = '05-01'")},
    )
    same = {name: (("shop.orders", name),) for name in ("id", "name", "amount", "dt")}
    computed = {
        "u": (("shop.orders", "name"),),
        "both": (("a.b", "amount"), ("shop.orders", "id")),
        "m": (("shop.orders", "id"),),
        "one": (),
    }
    assert {name: tuple(sorted(origins)) for name, origins in found.lineage.items()} == same | computed
    assert len(found) == 2
    both = lake.sql("SELECT dt, count(*) AS c FROM shop.orders GROUP BY dt UNION ALL SELECT name, id FROM shop.orders")
    assert [name for _, name in both.lineage["dt"]] == ["dt", "name"]


def test_a_scan_among_the_frames_is_narrowed_like_a_table(lake, orders):
    (told,) = (
        lake.sql("EXPLAIN SELECT id FROM s WHERE amount > 15", s=orders.scan(where="dt = '05-01'"))
        .to_arrow()
        .to_pylist()
    )
    assert (told["columns"], told["pushed"], told["files_read"]) == ("id, amount", "(`amount` > 15)", 1)


def test_several_statements_run_in_order(lake, orders):
    found = lake.sql(
        "DELETE FROM shop.orders WHERE id = 1; -- a comment; with a semicolon\nSELECT count(*) FROM shop.orders;"
    )
    assert one(found) == 4
    with pytest.raises(InvalidInput, match="names one commit; the text has 2"):
        lake.sql("DELETE FROM shop.orders WHERE id = 2; DELETE FROM shop.orders WHERE id = 3", id="x")
    assert one(lake.sql("SELECT count(*) FROM shop.orders")) == 4


def test_columns_named_outside_a_star_are_read(orders, lake):
    """Once the optimizer left out those that no outer query used, though the text between names them."""
    text = "SELECT id FROM (SELECT id, name AS called FROM (SELECT * FROM shop.orders) AS a) AS b WHERE id < 3"
    assert rows(lake.sql(text)) == [(1,), (2,)]
    (scan,) = lake.sql(f"EXPLAIN {text}").to_arrow().to_pylist()
    assert scan["columns"] == "id, name"


def test_stars_leave_out_and_replace_columns_that_nothing_else_reads(lake, orders):
    assert rows(lake.sql("SELECT * EXCEPT (name, amount) FROM shop.orders WHERE dt = '05-03'")) == [(5, "05-03")]
    assert rows(
        lake.sql("SELECT o.* EXCEPT (Amount, dt) FROM shop.orders o JOIN shop.orders p ON o.id = p.id WHERE p.id = 5")
    ) == [(5, "eve")]
    assert rows(lake.sql("SELECT * REPLACE (id + 1 AS name) FROM (SELECT id, name FROM shop.orders WHERE id = 1)")) == [
        (1, 2)
    ]


def test_rows_and_values_that_duckdb_alone_would_give_otherwise_are_as_in_spark(lake):
    f = pa.table(
        {
            "id": [1, 2, 3, 4],
            "a": pa.array([[1, 2], [], None, [None]], pa.list_(pa.int32())),
            "s": ["x%y", "xay", "a\\b", "A_b"],
            "x": [1.7, -1.7, None, 2.5],
        }
    )

    def asked(text):
        return rows(lake.sql(text, f=f))

    assert asked(r"SELECT id FROM f WHERE s LIKE 'x\\%y'") == [(1,)]
    assert asked(r"SELECT id FROM f WHERE s ILIKE 'a\\_%' OR s LIKE concat('a', '\\\\', '_')") == [(3,), (4,)]
    assert asked("SELECT id FROM f WHERE s LIKE 'x!%y' ESCAPE '!' OR s LIKE 'xa%'") == [(1,), (2,)]
    expected = [(1, 1), (1, 2), (2, None), (3, None), (4, None)]
    assert asked("SELECT id, v FROM f LATERAL VIEW OUTER explode(a) e AS v") == expected
    assert asked("SELECT id, v FROM f LATERAL VIEW explode(a) e AS v") == [row for row in expected if row[0] in (1, 4)]
    assert asked(
        "SELECT CAST(1.7 AS INT), TRY_CAST(1.7 AS BIGINT), int(2.5), TRY_CAST('a' AS INT), CAST('12' AS INT)"
    ) == [(1, 1, 2, None, 12)]
    assert asked("SELECT TRY_CAST(x AS INT) AS n, TRY_CAST(x * 1e10 AS INT) AS m FROM f WHERE id < 3") == [
        (-1, None),
        (1, None),
    ]


def test_substrings_of_any_start_and_length_are_those_of_spark(lake):
    """Spark's `UTF8String.substringSQL`: characters before the first count."""

    def expected(text, start, length):
        if text is None or start is None or length is None:
            return None
        first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
        return text[max(first, 0) : max(first + length, 0)]

    texts, starts, lengths = ["cab", "żółć", "", None, "🙂b"], [None, -(1 << 31), *range(-6, 6)], [None, *range(-2, 6)]
    staged = pa.table(
        dict(zip("xpn", zip(*product(texts, starts, lengths), strict=True), strict=True)),
        pa.schema([("x", pa.string()), ("p", pa.int32()), ("n", pa.int32())]),
    )
    query = "SELECT x, p, n, substring(x, p, n) AS s, substring(x, -4, n) AS t, substring(x, p, 2) AS u FROM staged"
    for row in lake.sql(query, staged=staged).to_arrow().to_pylist():
        x, p, n = row["x"], row["p"], row["n"]
        assert (row["s"], row["t"], row["u"]) == (expected(x, p, n), expected(x, -4, n), expected(x, p, 2)), row


@pytest.mark.parametrize(
    ("group", "counts"),
    [
        ("dt WITH ROLLUP", [2, 2, 1, 5]),
        ("dt, id > 2 WITH CUBE", [2, 2, 1, 2, 2, 1, 2, 3, 5]),
        ("dt GROUPING SETS ((dt), ())", [2, 2, 1, 5]),
        ("GROUPING SETS ((dt), ())", [2, 2, 1, 5]),
        ("ROLLUP (dt)", [2, 2, 1, 5]),
        ("dt, ROLLUP (id)", [2, 2, 1, *[1] * 5]),
    ],
)
def test_rows_are_grouped_by_several_sets(lake, orders, group, counts):
    assert sorted(
        row[0] for row in rows(lake.sql(f"SELECT count(*) AS n FROM shop.orders GROUP BY {group}"))
    ) == sorted(counts)


def test_many_rows_are_streamed_and_can_be_asked_for_again(lake, capsys):
    """Of 4 * 10^10 rows, 320 GB, the first come at once; nothing holds them all."""
    many = pa.table({"n": pa.array(range(200_000))})
    endless = lake.sql("SELECT a.n FROM many AS a CROSS JOIN many AS b", many=many)
    assert (repr(endless), endless.schema) == ("Result(many rows: n)", pa.schema([("n", pa.int64())]))
    for _ in range(2):
        with endless.to_batches() as reader:
            assert 0 < sum(len(next(reader)) for _ in range(3)) < 2_000_000
    endless.show(2)
    assert "(only the first 2 rows)" in capsys.readouterr().out
    wide = lake.sql("SELECT a.n, b.n AS m FROM some AS a CROSS JOIN some AS b", some=many.slice(0, 2200))
    assert repr(wide).startswith("Result(many rows")
    assert (
        pa.RecordBatchReader.from_stream(wide).read_all().num_rows == len(wide) == wide.to_arrow().num_rows == 2200**2
    )
    assert len(wide.to_batches().read_all()) == 2200**2  # Held by now.


def test_what_stops_a_stream_is_said_in_our_words(lake):
    long = "SELECT CAST(CASE WHEN a.n = 2199 AND b.n = 2199 THEN 'x' ELSE '1' END AS INT) AS m, b.n FROM some AS a CROSS JOIN some AS b"
    with pytest.raises(InvalidInput, match=r"line 1, column 1: .*text that is not a valid INT"):
        lake.sql(long, some=pa.table({"n": range(2200)})).to_arrow()


def test_nan_is_above_all_numbers_and_null_is_neither(lake):
    """As to Spark. Arrow, by which DuckDB would filter, finds NaN greater than nothing, and NULL at most NaN."""
    values = [1.0, float("nan"), None, -1.0]
    held = pa.table(
        {"x": values, "y": pa.array(values, pa.float32()), "s": [v if v is None else {"x": v} for v in values]}
    )
    nan, tests = "CAST('NaN' AS DOUBLE)", ("{0} > 0", "NOT {0} < 0", "{0} BETWEEN 0 AND {1}")
    for format in ("paimon", "iceberg"):
        lake.create_table(f"db.{format}", held.schema, format=format).append(held)
    for name in ("db.paimon", "db.iceberg", "held"):
        for column in ("x", "y", "s.x"):
            for test in tests:
                found = lake.sql(f"SELECT x FROM {name} WHERE {test.format(column, nan)}", held=held).to_arrow()
                assert str(found["x"].to_pylist()) == "[1.0, nan]", (name, column, test)
            found = lake.sql(f"SELECT x FROM {name} WHERE {column} <= {nan}", held=held).to_arrow()
            assert str(found["x"].to_pylist()) == "[1.0, nan, -1.0]", (name, column)


def test_null_safe_comparisons_stand_beside_others(lake, orders):
    text = "SELECT id FROM {} WHERE name <=> 'ann' OR name = 'eve' ORDER BY id"
    assert ids(lake, text.format("shop.orders")) == [1, 5]
    assert ids(lake, text.format("held"), held=orders.scan().to_arrow()) == [1, 5]


QUERIES = (
    "SELECT count(*), count(`A value`), sum(id), min(name), max(name) FROM t",
    "SELECT name, count(*) AS n, max(id) AS last FROM t WHERE `A value` > 0.5 GROUP BY name ORDER BY name",
    "SELECT id, `A value`, small FROM t WHERE `A value` > 100 ORDER BY id",  # NaN is above all numbers.
    "SELECT id, `A value`, try_divide(1, `A value`) FROM t WHERE `A value` = 0 ORDER BY id",  # -0.0 as well.
    "SELECT max(`A value`), max(small), min(exact), max(exact), min(day), max(day), min(at), max(at), max(seen) FROM t",
    "SELECT day, sum(exact) AS total FROM t WHERE at >= TIMESTAMP '2020-01-01 00:00:10' AND flag GROUP BY day ORDER BY day",
    "SELECT a.id, b.name FROM t a JOIN t b ON a.id = b.id + 1 WHERE a.id < 50 AND b.name IS NOT NULL ORDER BY a.id",
    "SELECT count(*) FROM (SELECT id FROM t LIMIT 5)",
)


def many(start: int, count: int) -> pa.Table:
    """Rows of every type that DuckDB may read itself, with nulls, NaN, -0.0."""
    random, ids = np.random.default_rng(start), np.arange(start, start + count)
    values = random.random(count)
    values[5], values[7] = np.nan, -0.0
    micros = 1_577_836_800_000_000 + ids * 1000
    return pa.table(
        {
            "id": ids,
            "A value": pa.array(values, mask=ids % 10 == 3),
            "small": values.astype(np.float32),
            "name": pa.array([None, "ä", "b'b", ""] * (count // 4)),
            "flag": pa.array(ids % 3 == 0),
            "exact": pa.array((ids % 1000).astype("int32")).cast(pa.decimal128(12, 2)),
            "day": pa.array((ids % 30).astype("int32")).cast(pa.date32()),
            "at": pa.array(micros, pa.timestamp("us")),
            "seen": pa.array(micros, pa.timestamp("us", "UTC")),
            "rest": random.random(count),
        }
    )


def test_databases_that_may_read_files_are_few_and_each_reads_its_own(tmp_path):
    lake, files = Lake(tmp_path), {}
    held = pa.table({"x": np.random.default_rng(1).random(700_000)})  # Long enough for DuckDB to read itself.
    for number in range(6):
        table = lake.create_table(f"db.t{number}", held.schema)
        table.append(held)
        (files[number],) = (f"{tmp_path}/db.db/t{number}/{task.paths[0]}" for task in table.scan().plan())
        assert one(lake.sql(f"SELECT max(x) FROM db.t{number}")) == max(held["x"].to_numpy())
    opened = [database for database in in_process._opened if database.paths & {*files.values()}]
    assert [sorted(database.paths) for database in opened] == [[files[number]] for number in (5, 4, 3, 2)]
    assert one(lake.sql("SELECT count(x) FROM db.t2 WHERE x >= 0")) == 700_000
    assert in_process._opened[0].database is opened[3].database
    for other in (files[3], "/etc/passwd"):
        with pytest.raises(duckdb.PermissionException):
            opened[3].database.cursor().execute(f"SELECT * FROM read_blob('{other}')")
    with pytest.raises(duckdb.Error, match="does not exist"):  # Views are a query's own.
        opened[3].database.cursor().execute("SELECT * FROM _lakeformat_0")


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_files_that_need_no_scan_give_the_rows_of_one(tmp_path, format):
    lake = Lake(str(tmp_path / "it's a lake"))
    table = lake.create_table("shop.many", many(0, 8).schema, format=format)
    table.append(many(0, 120_000))
    table.alter().rename_column("rest", "left over").commit()
    more = many(120_000, 120_000)
    table.append(more.rename_columns([*more.column_names[:-1], "left over"]))
    scan = lake.table("shop.many").scan()
    found = TableRows(scan, scan).files()
    assert {file.names[-1] for file in found or ()} == {"rest", "left over"}
    assert all({*file.names} - file.without_nan == {"A value", "small"} for file in found)  # As their footers count.
    held = scan.to_arrow()
    for text in QUERIES:
        direct = lake.sql(text.replace("FROM t", "FROM shop.many").replace("JOIN t", "JOIN shop.many")).to_arrow()
        scanned = lake.sql(text, t=held).to_arrow()
        assert (direct.schema, str(direct.to_pylist())) == (scanned.schema, str(scanned.to_pylist())), text
    some = scan.filter("id % 2 = 0")  # A condition that is not in the text, and is tested all the same.
    assert one(lake.sql("SELECT count(*) FROM t", t=some)) == 120_000
    with pytest.raises((InvalidInput, UnsupportedFeature)):
        lake.sql(f"SELECT count(*) FROM shop.many, read_parquet('{found[0].path}')")

    data = Path(found[0].path).read_bytes()
    Path(found[0].path).write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    with pytest.raises(CorruptFile, match=Path(found[0].path).name):
        lake.sql("SELECT sum(id) FROM shop.many")
    Path(found[0].path).write_bytes(data)
    table = lake.table("shop.many")
    table.delete(where="id < 10")
    assert one(lake.sql("SELECT min(id) FROM shop.many")) == 10


def test_hints_are_ignored_and_today_has_a_name(lake, orders):
    found = lake.sql(
        "SELECT /*+ BROADCAST(o), COALESCE(1) */ current_date(), id FROM shop.orders o WHERE id = 1"
    ).to_arrow()
    assert found.column_names == ["current_date()", "id"]
    assert found["current_date()"].type == pa.date32()
    assert lake.sql("SELECT 1 AS one, current_date() WHERE current_date() < DATE '2000-01-01'").to_arrow().num_rows == 0


def test_rows_of_paimon_have_their_ids_in_a_metadata_table(lake):
    given = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    table = lake.create_table("shop.tracked", pa.schema([("id", pa.int64()), ("v", pa.string())]), properties=given)
    table.append({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    table.append({"id": [4], "v": ["d"]})
    tracked = "shop.`tracked$row_tracking`"
    assert rows(lake.sql(f"SELECT * FROM {tracked} WHERE id > 2 ORDER BY id")) == [(3, "c", 2, 1), (4, "d", 3, 2)]
    assert rows(lake.sql(f"SELECT id FROM {tracked} WHERE _ROW_ID = 1")) == [(2,)]
    assert rows(lake.sql(f"SELECT v FROM {tracked} WHERE id < 4 AND _SEQUENCE_NUMBER > 1")) == []
    assert rows(lake.sql(f"SELECT max(_row_id) FROM {tracked} VERSION AS OF 1")) == [(2,)]
    lake.create_table("shop.plain", pa.schema([("id", pa.int64())]), format="paimon")
    with pytest.raises(UnsupportedFeature, match="row_tracking is not supported"):
        lake.sql("SELECT * FROM shop.`plain$row_tracking`")


TEXTS = ["o'brien", "o\\b", 'o"b', "${x}", "a\nb", "''", "\\'", "é'日", ":p", "?", "--", "{{a}}"]


@pytest.mark.drawn(5)
@pytest.mark.parametrize("value", TEXTS)
def test_values_of_any_text_stand_in_queries(lake, value):
    """Of partitions, and of conditions that a view takes over: their text is spelt in the query."""
    fields = pa.schema([("id", pa.int64()), ("p", pa.string())])
    lake.create_table("d.t", fields, partition_by=["p"]).append(pa.table({"id": [1, 2], "p": ["!", value]}, fields))
    newest = "SELECT id FROM d.t WHERE p = sys.max_pt('d.t')"
    assert ids(lake, newest) == [2]
    assert lake.sql(f"EXPLAIN {newest}").to_arrow()["files_read"].to_pylist() == [1]
    lake.sql("CREATE TEMP VIEW v AS SELECT * FROM d.t")
    for condition in ("p = :v", "p IN (:v, 'zz')", "p <=> :v", "NOT (p <> :v)"):
        assert ids(lake, f"SELECT id FROM v WHERE {condition}", params={"v": value}) == [2]


def test_values_of_every_type_stand_in_queries_of_views(lake):
    instant = dt.datetime(2020, 1, 1, 1, 2, 3, 4)
    values = {
        "b": (pa.binary(), [b"\x00'\xff", b"c"]),
        "d": (pa.date32(), [dt.date(2020, 1, 1), dt.date(1, 1, 1)]),
        "ts": (pa.timestamp("us"), [instant, dt.datetime(1900, 1, 1)]),
        "tz": (pa.timestamp("us", "UTC"), [instant.replace(tzinfo=dt.UTC), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)]),
        "n": (pa.decimal128(30, 3), [Decimal("-123456789012345678901234567.125"), Decimal("0.001")]),
        "f": (pa.float64(), [0.1, float("inf")]),
        "nan": (pa.float64(), [float("nan"), -0.0]),
        "i": (pa.int64(), [-(2**63), 2**63 - 1]),
        "t": (pa.bool_(), [True, False]),
    }
    for name, (kind, both) in values.items():
        rows_of = pa.table({"id": [0, 1], "p": pa.array(both, kind)})
        lake.create_table(f"d.{name}", rows_of.schema).append(rows_of)
        lake.sql(f"CREATE TEMP VIEW v_{name} AS SELECT * FROM d.{name}")
        for index, value in enumerate(both):
            for relation in (f"d.{name}", f"v_{name}"):
                assert ids(lake, f"SELECT id FROM {relation} WHERE p = :v", params={"v": value}) == [index], relation


@pytest.mark.other_clock("DuckDB")
def test_a_version_by_an_expression_is_that_of_the_whole_expression(lake, orders):
    assert one(lake.sql("SELECT count(*) FROM shop.orders TIMESTAMP AS OF now() + INTERVAL 1 DAY AS o")) == 5
    for text in (
        "now() - INTERVAL 7 DAYS",
        "CAST(now() AS TIMESTAMP) - INTERVAL '7' DAY",
        "now() - INTERVAL 7 DAYS - INTERVAL 1 HOUR",
    ):
        for select in (
            f"SELECT id FROM shop.orders TIMESTAMP AS OF {text}",
            f"SELECT id FROM shop.orders TIMESTAMP AS OF {text} o",
        ):
            with pytest.raises(NotFound):
                lake.sql(select)
        with pytest.raises(NotFound):
            lake.sql(f"CREATE TABLE shop.copied AS SELECT * FROM shop.orders TIMESTAMP AS OF {text}")
    for text in ("1 + 1", "1 - 0", "'1' || '2'"):
        with pytest.raises(InvalidInput, match="VERSION AS OF takes a number or a text"):
            lake.sql(f"SELECT id FROM shop.orders VERSION AS OF {text}")


WELL_FORMED = (
    "SELECT id, amount FROM shop.orders WHERE id IN (1, 2) AND amount > 3 ORDER BY id, amount",
    "SELECT dt, count(*) AS n FROM shop.orders GROUP BY dt HAVING count(*) > 0 LIMIT 3",
    "SELECT o.id FROM shop.orders o JOIN shop.orders p ON o.id = p.id",
    "SELECT coalesce(id, 1), row_number() OVER (PARTITION BY dt ORDER BY id) FROM shop.orders",
)


@pytest.mark.parametrize("text", WELL_FORMED)
def test_a_part_that_is_missing_or_twice_is_refused(lake, orders, text):
    """A comma, an operator, a dot or a keyword without what belongs behind it, wherever it stands."""
    assert lake.sql(text).to_arrow().num_rows > 0
    words = re.findall(r"\w+|[^\w\s]", text)
    for index, word in enumerate(words):
        if word == ",":
            broken = [[*words[:index], ",", *words[index:]]]
        elif word in ("(", "SELECT", "BY", "WHERE", "FROM"):
            broken = [[*words[: index + 1], ",", *words[index + 1 :]]]
        elif word in (")", "FROM"):
            broken = [[*words[:index], ",", *words[index:]]]
        elif word in ("=", ">", "ON", "AND", "."):
            broken = (
                [[*words[: index + 1], *words[index + 2 :]]] if word != "." else [[*words[:index], ".", *words[index:]]]
            )
        else:
            continue
        for parts in broken:
            with pytest.raises(LakeError):
                print(" ".join(parts), lake.sql(" ".join(parts)).to_arrow().to_pylist())
    with pytest.raises(LakeError):
        lake.sql(f"{text},").to_arrow()


@pytest.mark.parametrize("text", ["SELECT 0x1F", "SELECT sum(id) OVER FROM shop.orders", "SELECT * EXCEPT () FROM shop.orders", "SELECT id FROM shop.orders LIMIT", "SELECT substr('a', 1, 2, 3)", "SELECT id FROM shop.orders WHERE id LIKE"])  # fmt: skip
def test_what_sqlglot_reads_and_spark_does_not_is_refused(lake, orders, text):
    with pytest.raises(LakeError):
        lake.sql(text).to_arrow()


def test_an_unknown_column_is_told_with_its_place_and_those_near_it(lake, orders):
    for text, place, near in (
        ("SELECT amont FROM shop.orders", "column 8: no column amont", "did you mean amount"),
        ("SELECT o.id,\n  o.nme FROM shop.orders o", "line 2, column 5: no column o.nme", "did you mean name"),
        ("SELECT id FROM shop.orders WHERE ammount > 3", "column 34: no column ammount", "did you mean amount"),
    ):
        with pytest.raises(InvalidInput) as raised:
            lake.sql(text).to_arrow()
        assert place in str(raised.value)
        assert near in str(raised.value)
    with pytest.raises(InvalidInput, match="takes 1 to 2 arguments, and 3 are given"):
        lake.sql("SELECT round(1.5, 1, 2)")
    several = "SELECT nope(id),\n sentences(name), upper(name) FROM shop.orders LATERAL VIEW explode(array(1)) e AS x WHERE soundex2(name) > 1"
    with pytest.raises(UnsupportedFeature) as refused:
        lake.sql(several)
    for function in ("nope", "sentences", "soundex2"):  # All of them at once.
        assert f"{function} " in str(refused.value), refused.value
    assert not any(name in str(refused.value) for name in ("upper", "explode"))
    with pytest.raises(UnsupportedFeature, match="the function try_ad is not known; did you mean try_add"):
        lake.sql("SELECT try_ad(1, 2)")


def test_a_list_is_the_members_of_in(lake, orders):
    text = "SELECT id FROM shop.orders WHERE id IN (:ids) AND dt IN (:days, '05-03')"
    assert ids(lake, text, params={"ids": [1, 3, 5], "days": ["05-01", "05-02"]}) == [1, 3, 5]
    assert ids(lake, text, params={"ids": [], "days": ["05-01"]}) == []
    assert ids(lake, "SELECT id FROM shop.orders WHERE id NOT IN (?)", params=[(1, 2, 3)]) == [4, 5]


def test_columns_that_differ_only_in_case_are_ambiguous(lake):
    table = lake.create_table(
        "d.t", pa.schema([("a", pa.int64()), ("A", pa.int64()), ("b", pa.int64())]), format="iceberg"
    )
    table.append(pa.table({"A": [10, 20], "a": [1, 2], "b": [5, 6]}))
    assert one(lake.sql("SELECT sum(b) FROM d.t")) == 11
    assert one(lake.sql("SELECT count(*) FROM d.t")) == 2
    for text in (
        "SELECT sum(A) FROM d.t",
        "SELECT * FROM d.t",
        "SELECT t.* FROM d.t",
        "SELECT b FROM d.t WHERE a = 1",
        "SELECT r.p FROM g",
    ):
        with pytest.raises(InvalidInput, match=r"ambiguous|differ only in case"):
            lake.sql(text, g=pa.table({"r": [{"p": 1, "P": 2}]})).to_arrow()
    with pytest.raises(InvalidInput, match="differ only in case"):
        lake.sql(
            "MERGE INTO d.t USING f s ON t.a = s.a WHEN MATCHED THEN UPDATE SET *",
            f=pa.table({"a": [1], "A": [201], "b": [0]}),
        )
    lake.sql("UPDATE d.t SET A = 99 WHERE a = 2")
    assert rows(table) == [(1, 10, 5), (2, 99, 6)]
    table.merge_into(pa.table({"a": [1], "A": [7], "b": [5]}), on="t.a = s.a").when_matched().update_all().merge()
    assert rows(table) == [(1, 7, 5), (2, 99, 6)]


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_floats_are_compared_as_doubles_in_scans_and_in_queries(lake, format):
    """The FLOAT 0.1 is above the DOUBLE 0.1, whether a literal, a text or a cast gives it."""
    floats = pa.table({"r": pa.array([0.1, 0.5], pa.float32())})
    table = lake.create_table("shop.floats", floats.schema, format=format)
    table.append(floats)
    counts = {"=": 0, ">": 2, "<=": 0, "<": 0, "<>": 2, "<=>": 0}
    for (sign, count), value in product(counts.items(), ("0.1", "'0.1'", "CAST(0.1 AS DOUBLE)")):
        condition = f"r {sign} {value}"
        assert table.scan(where=condition).count() == count, condition
        assert one(lake.sql(f"SELECT count(*) FROM shop.floats WHERE {condition}")) == count, condition
        assert one(lake.sql(f"SELECT count_if({condition}) FROM shop.floats")) == count, condition
    lake.sql("DELETE FROM shop.floats WHERE r = '0.1'")
    assert table.scan(where="r = CAST(0.1 AS FLOAT)").count() == 1


@pytest.mark.parametrize("expression", [
    "CAST({} AS STRING)", "concat({}, '')", "date_format({}, 'yyyy')", "CAST(CAST({} AS TIMESTAMP) AS STRING)",
    "CAST(CAST({} AS TIMESTAMP_NTZ) AS STRING)",
])  # fmt: skip
def test_years_that_are_written_otherwise_in_spark_do_not_become_text(lake, expression):
    """DuckDB writes the year 0 as 0001 (BC), and its YEAR of a time with a zone is then 1."""
    dates = pa.table({"d": [dt.date(1, 1, 1), None]})
    for moment in ("add_months(d, -1)", "date_add(d, -1)", "date_add(d, -800)"):
        with pytest.raises(InvalidInput, match="years 1 to 9999"):
            lake.sql(f"SELECT {expression.format(moment)} AS c FROM dates", dates=dates)
    assert lake.sql(f"SELECT {expression.format('d')} AS c FROM dates", dates=dates).to_arrow()["c"].null_count in (
        0,
        1,
    )
