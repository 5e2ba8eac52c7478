"""The same SQL on Spark and in process: the same rows; and what in process is not known to mean the same is refused."""

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import AlreadyExists, InvalidInput, Lake, UnsupportedFeature
from tests.sql import test_assignments, test_changes, test_metadata_tables, test_nested_changes
from tests.sql.conftest import ORDERS, rows

pytestmark = pytest.mark.spark

MOMENTS = [
    dt.datetime(2023, 5, 1, 12, 34, 56, 789000),
    dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    None,
    dt.datetime(1969, 12, 31, 23),
    dt.datetime(1900, 1, 1),
    dt.datetime(2023, 12, 31, 1),
]
DATES = [
    dt.date(2023, 5, 1),
    dt.date(2024, 2, 29),
    None,
    dt.date(1969, 12, 31),
    dt.date(1900, 1, 1),
    dt.date(2023, 12, 31),
]
VALUES = pa.table(
    {
        "k": pa.array([1, 2, 3, 4, 5, 6]),
        "i": pa.array([1, -7, None, 0, 21, 12], pa.int32()),
        "l": pa.array([5, -9007199254740993, None, 7, 3, -2]),
        "x": pa.array([1.5, -2.5, None, 0.0, float("nan"), 1e6]),
        "m": pa.array(
            [Decimal("1.25"), Decimal("-2.35"), None, Decimal("0.00"), Decimal("99999.99"), Decimal("7.50")],
            pa.decimal128(10, 2),
        ),
        "s": pa.array(["abc", " Hello World ", None, "", "ünïcödé,a,b", "12"]),
        "u": pa.array(["b", None, "y", "x", ",", "2"]),
        "d": pa.array(DATES),
        "e": pa.array(
            [
                dt.date(2023, 4, 30),
                dt.date(2023, 2, 28),
                None,
                dt.date(1970, 1, 1),
                dt.date(2000, 1, 31),
                dt.date(2024, 1, 1),
            ]
        ),
        "ts": pa.array(MOMENTS, pa.timestamp("us", "UTC")),
        "b": pa.array([True, False, None, True, False, True]),
        "a": pa.array([[1, 2, 3], [4], None, [None, 5], [7], [2, 1]], pa.list_(pa.int32())),
        "w": pa.array([b"ab", b"", None, b"\xff", b"x", b"12"]),
        "r": pa.array(
            [
                {"p": 1, "q": "z"},
                {"p": None, "q": "y"},
                None,
                {"p": 3, "q": None},
                {"p": 4, "q": "w"},
                {"p": 5, "q": "v"},
            ]
        ),
        "mp": pa.array(
            [[("k", 1)], [("j", 4)], None, [("j", 2), ("k", 3)], [("k", None)], [("k", 9)]],
            pa.map_(pa.string(), pa.int32()),
        ),
    }
)
SCALARS = """
i + l; i - 1; i * l; i / 2; i div 4; i % 4; -i; m + m; m * m; m - i; m % 3; x * 2; abs(i); abs(x); abs(m); ceil(i / 2); floor(i / 2);
round(x); round(x, 1); round(m, 1); round(m); sqrt(abs(i)); power(i, 2); ln(abs(m) + 1); log(2, abs(m) + 1); log10(abs(m) + 1); sign(i);
signum(x); mod(i, 3); pmod(i, 3); greatest(i, l); least(i, l); greatest(s, u); sin(m); cos(m); tan(m); atan(x); degrees(x); radians(x);
cbrt(x); pi(); isnan(x); nanvl(x, 0); upper(s); lower(s); length(s); char_length(s); trim(s); ltrim(s); rtrim(s); trim(BOTH 'a' FROM s);
concat(s, u); s || u; concat_ws('-', s, u); substring(s, 2, 3); substring(s, 2); substr(s, -2); substring(s, 0, 2); left(s, 2); right(s, 2);
replace(s, 'l', 'L'); reverse(s); repeat(s, 2); lpad(s, 5, '*'); rpad(s, 5, '*'); lpad(s, 2, '*'); instr(s, 'l'); locate('l', s);
locate('l', s, 5); position('l' IN s); initcap(s); split(s, ','); split(s, ',')[0]; split_part(s, ',', 1); ascii(s); chr(65);
translate(s, 'lo', '01'); s LIKE '%l%'; s NOT LIKE 'a%'; s ILIKE '%H%'; s RLIKE 'l+'; regexp_replace(s, '[a-z]', '_');
regexp_extract(s, '([a-z])([a-z])', 2); regexp_like(s, '^a'); startswith(s, 'a'); endswith(s, 'c'); contains(s, 'b'); md5(s); sha1(s);
sha2(s, 256); base64(w); hex(i); hex(s); unhex('6162'); space(2); octet_length(s); bit_length(s);
date_add(d, 3); date_sub(d, 3); datediff(d, e); add_months(d, 1); months_between(d, e); last_day(d); next_day(d, 'MO'); year(d); quarter(d);
month(d); day(d); dayofmonth(d); dayofweek(d); weekday(d); dayofyear(d); weekofyear(d); year(ts); hour(ts); minute(ts); second(ts);
extract(year FROM ts); extract(week FROM d); date_trunc('month', ts); date_trunc('week', ts); trunc(d, 'MM'); trunc(d, 'YEAR'); dayname(d); monthname(d);
date_format(ts, 'yyyy-MM-dd HH:mm:ss'); date_format(d, 'yyyyMMdd'); date_format(ts, 'MMM'); to_date('2023-01-02'); to_date('20230102', 'yyyyMMdd');
to_timestamp('2023-01-02 03:04:05'); to_timestamp('02/01/2023', 'dd/MM/yyyy'); unix_date(d); date_from_unix_date(3); make_date(2023, 5, 1);
make_timestamp(2023, 5, 1, 1, 2, 3); DATE '2023-01-01'; TIMESTAMP '2023-01-01 00:00:00'; ts + INTERVAL 1 DAY; date(ts);
cast(i AS string); cast(m AS decimal(12, 1)); cast(m AS string); cast(d AS string); cast(ts AS string); cast(b AS string); cast(m AS int);
cast(m AS double); cast(i AS double); cast(i AS decimal(12, 1)); cast('12' AS int); cast('1.5' AS double); cast('2023-01-01' AS date);
cast(ts AS date); cast(d AS timestamp); cast(i AS boolean); cast(b AS int); cast(s AS binary); int(m); string(i); double(i); bigint(i);
coalesce(i, 0); ifnull(i, 0); nvl(s, 'it''s \\'z\\''); "dou""ble"; nvl2(i, 1, 2); nullif(i, 0); if(b, 1, 2); CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' ELSE 'z' END;
CASE i WHEN 1 THEN 'one' END; i IS NULL; i IS NOT NULL; i <=> l; i IN (1, 0); i NOT IN (1); i BETWEEN 0 AND 5; isnull(i); isnotnull(i);
b AND i > 0; b OR i > 0; NOT b; x > 1; x = x; x < 0; s < u; d > e; m > 1; decode(i, 1, 'a', 'b'); try_cast(s AS int);
size(a); array_size(a); a[0]; element_at(a, 1); element_at(a, -1); array(1, i); sort_array(a); array_max(a); array_min(a); array_join(a, ',');
slice(a, 1, 2); concat(a, a); transform(a, v -> v + 1); filter(a, v -> v > 1); aggregate(a, 0, (p, q) -> p + q); array_append(a, 1);
r.p; r.q; struct(i, s); named_struct('a', i, 'b', s); mp['k']; element_at(mp, 'j') IS NULL; map('a', 1); map_keys(mp); map_values(mp);
get_json_object('{"a": 1}', '$.a'); row_number() OVER (ORDER BY k); rank() OVER (ORDER BY b); dense_rank() OVER (ORDER BY b);
percent_rank() OVER (ORDER BY k); cume_dist() OVER (ORDER BY k); ntile(2) OVER (ORDER BY k); lag(i) OVER (ORDER BY k); lead(i, 1, 0) OVER (ORDER BY k);
first_value(i) OVER (ORDER BY k); last_value(i) OVER (ORDER BY k); nth_value(i, 2) OVER (ORDER BY k); sum(i) OVER (ORDER BY k);
sum(i) OVER (PARTITION BY b ORDER BY k); avg(i) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW); count(*) OVER ();
row_number() OVER (ORDER BY i); row_number() OVER (ORDER BY i DESC, k);
array_contains(a, 1); array_contains(a, 9); array_contains(a, i); unix_timestamp(ts); unix_timestamp(d); unix_timestamp('2023-01-02 03:04:05');
to_unix_timestamp('1969-12-31 23:59:59'); transform(a, (v, n) -> v + n); filter(a, (v, n) -> n > 0); transform(a, (v, n) -> n); pmod(i, -3);
m div 2; round(x + 0.005D, 2); round(1.005D, 2); round(i, -1); left(s, -1); right(s, i); substring(s, 2, i - 5); trim(concat(s, '\u00a0'));
chr(i + 256); chr(-1); regexp_replace(s, '([a-z])', '<$1>'); regexp_replace(s, 'l', '$0\\\\$'); regexp_like(concat(s, '\n'), 'c$');
date_trunc('MM', ts); date_trunc('second', ts); date_format(ts, 'HH:mm:ss.SSS'); date_format(ts, "yyyy'T'MM"); d + INTERVAL 1 MONTH; d - INTERVAL 3 DAYS;
INTERVAL 1 WEEK + d; ts - INTERVAL 1 YEAR; ts + INTERVAL 90 MINUTES; try_cast(s AS double); try_cast(u AS boolean); cast(' 12 ' AS int);
cast('2023-5-1' AS date); cast('2023-05-01T10:00:00Z' AS timestamp)
"""
# Text that Spark and DuckDB read differently, or one of them alone.
FORMS = {
    "int": "12| 12 |+12|-0|1_000|0x1F|1e3|1.0|.5||１２|99999999999",
    "double": "1.5| 1.5 |1e3|1_0.5|.5|5.|NaN|-infinity||1,5|true",
    "decimal(10, 2)": "1.5| 1.555 |1e2|1_0|.5|-0.005||NaN|12345678901",
    "date": "2023-05-01|2023-5-1|2023/05/01|2023-05-01 10:00|2023-05-01T10|2023-05-01x|20230501|epoch|today|infinity|2023-13-01|",
    "timestamp": "2023-05-01|2023-5-1 1:2:3|2023-05-01T10:00:00Z|2023-05-01 10:00:00+02:00|2023-05-01 10:00:00 UTC|epoch|2023/05/01 10:00:00|",
    "boolean": "t|TRUE|y|yes|1|on|f|no|0|off|| true |2",
}
# Refused in process: results, or texts, that DuckDB computes otherwise.
OTHERWISE = """
d - e; ts - ts; INTERVAL 1 DAY; trunc(d, 'Q'); date_trunc('W', ts); date_format(ts, 'Q'); date_format(ts, 'DD');
regexp_replace(s, 'a', '${n}'); regexp_replace(s, 'a', u); months_between(ts, d); r < r; max(a); a > a; try_cast('2023-05' AS date); try_cast('1d' AS double);
try_cast('2023-05-01 10' AS timestamp); to_date(s, 'yy-MM-dd'); to_timestamp(s, 'HH:mm'); to_date(s, 'EEE, dd MMM yyyy'); to_date(s, 'yyyy [MM]');
to_timestamp(s, 'yyyy-DDD'); date_format(ts, 'yyyy[MM]')
"""
AGGREGATES = """
count(*); count(i); count(DISTINCT i); sum(i); sum(l); sum(m); avg(i); avg(l); mean(i); min(i); max(s); min(ts); max(d); count_if(b); bool_and(b);
bool_or(b); every(b); stddev(i); stddev_pop(i); variance(i); var_pop(i); median(i); percentile(i, 0.5); 
array_sort(collect_set(i)); first(k); last(k); any_value(k); max_by(s, k); min_by(s, k); covar_pop(i, l); sum(DISTINCT i); bit_and(i); bit_or(i);
sum(i) FILTER (WHERE i > 0); count(*) FILTER (WHERE b); sum(i + l) / count(*)
"""
NAMES = {"array<element", "list<"}


def told(text):
    return [part.strip() for part in text.replace("\n", " ").split(";")]


def alike(value):
    match value:
        case float():
            return "nan" if value != value else float(f"{value:.11g}")
        case list() | tuple():
            return [alike(item) for item in value]
        case dict():
            return [alike(item) for item in value.values()]
        case dt.datetime():
            return value.replace(tzinfo=None)
    return value


def spelt(kind):
    """A type without the names and nullability of its parts, decimals without their digits."""
    if pa.types.is_list(kind):
        return f"[{spelt(kind.value_type)}]"
    if pa.types.is_map(kind):
        return f"{{{spelt(kind.key_type)}: {spelt(kind.item_type)}}}"
    if pa.types.is_struct(kind):
        return f"({', '.join(spelt(kind.field(i).type) for i in range(kind.num_fields))})"
    return "decimal" if pa.types.is_decimal(kind) else str(kind)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return Lake(tmp_path_factory.mktemp("sql"))


def test_functions_mean_in_process_what_they_mean_on_spark(plain, spark):
    frame = spark.createDataFrame(VALUES).coalesce(1)
    wrong = []
    for names, tail in ((told(SCALARS), "ORDER BY k"), (told(AGGREGATES), "")):
        listed = ", ".join(f"{expression} AS c{i}" for i, expression in enumerate(names))
        there = plain.sql(f"SELECT {listed} FROM t {tail}", spark=spark, t=frame).to_arrow()
        here = plain.sql(f"SELECT {listed} FROM t {tail}", t=VALUES).to_arrow()
        for i, expression in enumerate(names):
            on_spark, in_process = there[f"c{i}"], here[f"c{i}"]
            if alike(on_spark.to_pylist()) != alike(in_process.to_pylist()):
                wrong.append(f"{expression}: {on_spark.to_pylist()} {in_process.to_pylist()}")
            elif spelt(on_spark.type) != spelt(in_process.type):
                wrong.append(f"{expression}: {on_spark.type} {in_process.type}")
    assert not wrong, "\n".join(wrong)


def test_text_is_cast_as_on_spark(plain, spark):
    wrong = []
    for kind, given in FORMS.items():
        forms = pa.table({"v": [part.replace("\\n", "\n") for part in given.split("|")]})
        text = f"SELECT v, TRY_CAST(v AS {kind}) AS r FROM forms"
        there = dict(rows(plain.sql(text, spark=spark, forms=spark.createDataFrame(forms).coalesce(1))))
        here = dict(rows(plain.sql(text, forms=forms)))
        wrong += [f"{v!r} AS {kind}: {there[v]!r} {here[v]!r}" for v in there if repr(there[v]) != repr(here[v])]
    assert not wrong, "\n".join(wrong)


FORMATS = (
    "yyyy-MM-dd|yyyyMMdd|dd/MM/yyyy|yyyy/M/d|d.M.yyyy|yyyy-MM-dd HH:mm:ss|yyyy-MM-dd'T'HH:mm:ss|yyyyMMddHHmmss|yyyy-MM|yyyy|MMM d yyyy|dd-MMM-yyyy|"
    "yyyy-MM-dd hh:mm a|yyyy-MM-dd HH:mm|yyyy-M-d H:m:s|MMMM dd, yyyy"
)
DATES = (
    "2023-05-01|2023-5-1|20230501|01/05/2023|1/5/2023|23-05-01|2023/5/1|1.5.2023|2023-05-01 12:34:56|2023-05-01T12:34:56|20230501123456|2023-05|2023|"
    "May 1 2023|01-May-2023|01-MAY-2023|2023-121|2023-05-01 01:02 PM|2023-05-01 12:34| 2023-05-01|2023-05-01 |2023-05-01abc||abc|2024-02-29|"
    "0001-01-01|9999-12-31|10000-01-01|+2023-05-01|2023-05-01 24:00:00|2023-05-01 23:59:60|2023-5-1 1:2:3|2023-5-1 25:2:3|May 01, 2023"
)


@pytest.mark.from_pyspark("4.1")
def test_text_is_read_by_a_format_as_on_spark(plain, spark):
    texts = pa.table({"t": DATES.split("|")})
    formats = [format.replace("'", "\\'") for format in FORMATS.split("|")]
    listed = [f"try_to_{kind}(t, '{format}')" for kind in ("date", "timestamp") for format in formats]

    def ask(**how):
        columns = (f"CAST({call} AS STRING) AS c{i}" for i, call in enumerate(listed))
        return plain.sql(f"SELECT t, {', '.join(columns)} FROM texts ORDER BY t", **how).to_arrow()

    here = ask(texts=texts)
    there = ask(spark=spark, texts=spark.createDataFrame(texts).coalesce(1))
    wrong = [
        (call, text, value, on_spark)
        for i, call in enumerate(listed)
        for text, value, on_spark in zip(
            here["t"].to_pylist(), here[f"c{i}"].to_pylist(), there[f"c{i}"].to_pylist(), strict=True
        )
        if value != on_spark
    ]
    assert not wrong


@pytest.mark.parametrize("text", told(OTHERWISE))
def test_what_duckdb_computes_otherwise_is_refused(plain, text):
    with pytest.raises((UnsupportedFeature, InvalidInput), match=r"in process|known to mean|Spark gives null"):
        plain.sql(f"SELECT {text} AS c FROM t", t=VALUES).to_arrow()


def test_braces_reach_spark_with_and_without_a_table(plain, spark):
    for text in (
        "SELECT '{a} {{b}}' AS c",
        "SELECT '{a} {{b}}' AS c FROM t",
        "SELECT id FROM range(1, 7, 2)",
        "SELECT r.id FROM range(3) r",
    ):
        here, there = (plain.sql(text, spark=session, t=pa.table({"w": [3], "x": [1]})) for session in (None, spark))
        assert rows(here) == rows(there), text


def test_columns_without_a_name_are_called_the_same(plain, spark):
    text = "SELECT count(*), count(DISTINCT i), sum(i), max(upper(s)), sum(i) + 1 FROM t"
    here, there = plain.sql(text, t=VALUES), plain.sql(text, spark=spark, t=VALUES)
    assert here.to_arrow().column_names == there.to_arrow().column_names


@pytest.fixture(scope="module")
def orders(plain):
    for format in ("paimon", "iceberg"):
        table = plain.create_table(f"{format}.orders", ORDERS, format=format, partition_by=["dt"])
        draw = random.Random(7)
        for day in range(4):
            names = [draw.choice(["ann", "bob", None, "dan {x}"]) for _ in range(20)]
            amounts = [draw.choice([None, Decimal(draw.randrange(100))]) for _ in range(20)]
            table.append(
                pa.table(
                    {"id": range(day * 15, day * 15 + 20), "name": names, "amount": amounts, "dt": [f"05-0{day}"] * 20},
                    ORDERS,
                )
            )
    return plain


def drawn(draw, format):
    """A query about orders, written by chance."""
    table = f"{format}.orders"
    sources = [
        f"{table} o",
        f"(SELECT * FROM {table} WHERE id % 2 = 0) o",
        f"{table} o LEFT JOIN staged s ON o.id = s.id",
        f"staged s RIGHT JOIN {table} o ON o.id = s.id AND o.dt > '05-01'",
        f"{table} o JOIN {table} p ON o.id = p.id AND o.dt < p.dt",
        f"(SELECT id, max(name) AS name, sum(amount) AS amount, max(dt) AS dt FROM {table} GROUP BY id) o",
    ]
    conditions = [
        "o.dt = '05-02'",
        "o.id BETWEEN 10 AND 40",
        "o.name IS NULL",
        "o.name LIKE '%a%'",
        "o.amount > 50",
        "NOT (o.amount <= 20)",
        "upper(o.name) = 'BOB'",
        "o.id IN (SELECT id FROM staged)",
        f"EXISTS (SELECT 1 FROM {table} q WHERE q.id = o.id AND q.dt <> o.dt)",
        "o.name <=> 'dan {x}'",
        "o.id NOT IN (1, 2, :three)",
    ]
    chosen = draw.sample(conditions, draw.randrange(4))
    both = f" {draw.choice(['AND', 'OR'])} "
    where = f" WHERE {both.join(chosen)}" if chosen else ""
    shape = draw.choice([
        "SELECT o.id, o.name, o.amount, o.dt FROM {0}{1}",
        "SELECT o.dt, count(*) AS n, sum(o.amount) AS total, count(DISTINCT o.name) AS names FROM {0}{1} GROUP BY o.dt",
        "SELECT DISTINCT o.name FROM {0}{1}",
        "SELECT o.id, o.dt, row_number() OVER (PARTITION BY o.dt ORDER BY o.id, o.amount) AS n FROM {0}{1}",
        "WITH c AS (SELECT o.id AS k, o.dt FROM {0}{1}) SELECT k, min(dt) AS dt FROM c GROUP BY k ORDER BY k DESC NULLS LAST LIMIT 7",
        "SELECT o.id FROM {0}{1} UNION SELECT id FROM staged",
    ])  # fmt: skip
    return shape.replace("{0}", draw.choice(sources)).replace("{1}", where)


@pytest.mark.parametrize("seed", range(12))
def test_queries_give_the_same_rows(orders, spark, seed):
    draw = random.Random(seed)
    format = ["paimon", "iceberg"][seed % 2]
    text = drawn(draw, format)
    how = {"params": {"three": 3}, "staged": pa.table({"id": pa.array([3, 17, 30, None, 99])})}
    here, there = orders.sql(text, **how), orders.sql(text, spark=spark, **how)
    assert rows(here) == rows(there), (seed, text)


def test_text_goes_to_spark_as_it_is(orders, spark):
    found = orders.sql(
        """
        SELECT /*+ BROADCAST(orders) */ paimon.orders.id, '{brace} :no ?' AS t, x -- {comment} :no ?
        FROM paimon.orders LATERAL VIEW explode(array(1, 2)) v AS x
        WHERE paimon.orders.id = ? AND name IS NOT NULL /* {0} */ OR paimon.orders.id = ? AND name IS NULL
        """,
        spark=spark,
        params=[0, 0],
    )
    assert rows(found) == [(0, "{brace} :no ?", 1), (0, "{brace} :no ?", 2)]
    version = orders.table("paimon.orders").snapshots()[0].id
    at = orders.sql(
        "SELECT count(*) FROM paimon.orders FOR SYSTEM_VERSION AS OF :v TABLESAMPLE (100 PERCENT)",
        spark=spark,
        params={"v": version},
    )
    assert at.to_arrow()[0].to_pylist() == [20]
    for text in (
        "SELECT dt, count(*) AS n FROM paimon.orders GROUP BY dt GROUPING SETS ((dt), ())",
        "SELECT dt, id % 2 AS odd, count(*) AS n FROM paimon.orders GROUP BY dt, id % 2 WITH CUBE",
        "SELECT * EXCEPT (name, amount) FROM paimon.orders WHERE id > 10",
        "SELECT id, v FROM paimon.orders LATERAL VIEW OUTER explode(if(id > 9, array(id, NULL), array())) e AS v",
        r"SELECT CAST(1.7 AS INT) AS a, TRY_CAST(-2.5D AS INT) AS b, 'x%y' LIKE 'x\\%y' AS c, 'xay' LIKE concat('x', '\\%y') AS d",
    ):
        assert rows(orders.sql(text)) == rows(orders.sql(text, spark=spark)), text
    with pytest.raises(UnsupportedFeature, match="the function sentences"):
        orders.sql("SELECT sentences(name) FROM paimon.orders")
    assert orders.sql("SELECT sentences(name) FROM paimon.orders", spark=spark).to_spark().count() == 80


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT id,\n  upper(nam) AS n\nFROM paimon.orders", "line 2, column 9: no column nam; did you mean name?"),
        ("SELECT o.nam FROM paimon.orders o", "line 1, column 8: no column o.nam; did you mean name?"),
        ("SELECT 1; SELECT id FROM paimon.orders WHERE name = DATE '2020-01-01' + 'x'", "line 1, column 5"),
        ("SELECT id FROM paimon.orders WHERE id = array(1)", "line 1, column 36: Spark says"),
        ("SELECT id, count(*) FROM paimon.orders", "line 1, column 1: Spark says"),
    ],
)
def test_errors_of_spark_name_the_place_in_the_users_text(orders, spark, text, said):
    with pytest.raises(InvalidInput) as caught:
        orders.sql(text, spark=spark)
    assert said in str(caught.value)
    assert " pos " not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM IDENTIFIER('parquet.`{file}`')", "column 15: identifier(...)"),
        (
            "SELECT 1 FROM paimon.orders, LATERAL (SELECT * FROM `identifier` /* ( */ ('parquet.`{file}`'))",
            "identifier(...)",
        ),
        ("SELECT * FROM STREAM(parquet.`{file}`)", "stream(...)"),
        ("SELECT * FROM explode(TABLE(parquet.`{file}`))", "table(...)"),
        ("SELECT reflect('java.lang.System', 'getenv', 'HOME')", "reflect(...) calls any method of Java"),
        ("SELECT system.builtin.`java_method` ('java.lang.System', 'getenv', 'HOME')", "java_method(...)"),
        (
            "DELETE FROM paimon.orders WHERE name = try_reflect('java.lang.System', 'getenv', 'HOME')",
            "try_reflect(...)",
        ),
        (
            "SELECT TRANSFORM(id) USING 'cat {file}' AS (x STRING) FROM paimon.orders",
            "column 22: TRANSFORM ... USING runs a program",
        ),
        ("SELECT TRANSFORM(id) USING :file AS (x STRING) FROM paimon.orders", "runs a program"),
        ("SELECT input_file_name() FROM paimon.orders", "input_file_name(...)"),
    ],
)
def test_a_query_on_spark_reaches_no_file_and_no_program(orders, spark, tmp_path, text, said):
    file = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": ["secret"]}), file)
    with pytest.raises(UnsupportedFeature) as raised:
        orders.sql(text.format(file=file), spark=spark, params={"file": "cat /etc/passwd"} if ":file" in text else None)
    assert said in str(raised.value)


def test_views_are_read_as_in_process(tmp_path, spark):
    lake = Lake(tmp_path / "w", catalog="sql")
    lake.sql("CREATE TABLE db.t (id BIGINT, name STRING) USING iceberg; INSERT INTO db.t VALUES (1, 'a{b}'), (2, 'c')")
    lake.sql("USE db; CREATE VIEW v (n, called) AS SELECT count(*), name FROM t GROUP BY name -- all", spark=spark)
    lake.sql("CREATE VIEW w AS SELECT id AS key, soundex(name) AS sound FROM t WHERE name = 'a{b}'", spark=spark)
    frame = spark.range(3)
    lake.sql("CREATE TEMP VIEW x AS SELECT key FROM w JOIN frame ON w.key = frame.id", frame=frame)
    for text in ("SELECT * FROM v", "SELECT called FROM db.v WHERE n = 1", "DESCRIBE v"):
        assert rows(lake.sql(text, spark=spark)) == rows(lake.sql(text)), text
    assert rows(lake.sql("SELECT key, sound FROM w WHERE key > 0", spark=spark)) == [(1, "A100")]
    assert rows(lake.sql("SELECT * FROM x", spark=spark)) == [(1,)]


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_changes_on_spark_are_those_in_process(plain, spark, format):
    texts = [
        "INSERT INTO {t} VALUES (1, 'a', 1, '05-01'), (2, 'b', 2, '05-01'), (3, NULL, 3, '05-02'), (4, 'd', NULL, '05-03')",
        "INSERT OVERWRITE {t} PARTITION (dt = '05-02') SELECT id + 10, name, amount FROM {t} WHERE dt = '05-02'",
        "INSERT INTO {t} (dt, id) SELECT dt, id FROM staged",
        "DELETE FROM {t} WHERE id IN (SELECT id FROM staged WHERE id > 20) OR soundex(name) = 'B000'",
        "UPDATE {t} x SET name = concat(x.name, (SELECT max(dt) FROM staged s WHERE s.id <= x.id)) WHERE name IS NOT NULL",
        "MERGE INTO {t} x USING staged s ON x.id = s.id AND x.dt = s.dt WHEN MATCHED THEN UPDATE SET amount = 7 "
        "WHEN NOT MATCHED AND s.id IN (SELECT 5) THEN INSERT (id, dt) VALUES (s.id, s.dt) WHEN NOT MATCHED BY SOURCE AND x.id = 1 THEN DELETE",
        "MERGE INTO {t} x USING staged s ON x.id BETWEEN s.id - 3 AND s.id - 1 WHEN MATCHED THEN UPDATE SET amount = s.id "
        "WHEN NOT MATCHED AND s.id = 21 THEN INSERT (id, dt) VALUES (s.id * 2, s.dt)",
        "MERGE INTO {t} x USING (SELECT id, dt, NULL AS name FROM staged) s ON x.id = s.id WHEN MATCHED AND x.dt <= (SELECT max(dt) FROM {t}) "
        "THEN UPDATE SET name = s.name WHEN NOT MATCHED BY SOURCE AND x.id IN (SELECT max(id) FROM {t}) THEN UPDATE SET name = lpad(x.dt, 7, '*')",
    ]  # fmt: skip
    staged = pa.table({"id": pa.array([5, 13, 21]), "dt": ["05-05", "05-02", "05-09"]})
    found = {}
    for way in ("here", "there"):
        name = f"{format}.changes_{way}"
        table = plain.create_table(name, ORDERS, format=format, partition_by=["dt"])
        for text in texts:
            if way == "here":
                text = text.replace("soundex(name) = 'B000'", "name = 'b'")
            plain.sql(text.replace("{t}", name), spark=spark if way == "there" else None, staged=staged)
        found[way] = rows(table), [snapshot.kind for snapshot in table.snapshots()]
    assert found["here"] == found["there"]


def test_attached_tables_are_read_by_name_and_fresh(tmp_path, spark):
    lake = Lake(tmp_path / "attached")
    for format in ("paimon", "iceberg"):
        lake.sql(
            f"CREATE TABLE att.{format}s (id BIGINT NOT NULL, name STRING, dt STRING) USING {format} PARTITIONED BY (dt)"
        )
    lake.sql(
        "INSERT INTO att.paimons VALUES (1, 'a', 'x'), (2, NULL, 'y'); INSERT INTO att.icebergs SELECT * FROM att.paimons"
    )
    try:
        assert lake.attach(spark) == ["att.icebergs", "att.paimons"]
        both = "SELECT p.id, i.name FROM att.paimons p JOIN att.icebergs i ON p.id = i.id WHERE p.dt <> 'z' ORDER BY 1"
        assert [tuple(row) for row in spark.sql(both).collect()] == [(1, "a"), (2, None)]
        lake.sql("DELETE FROM att.icebergs WHERE id = 1; INSERT INTO att.paimons VALUES (3, 'c', 'x')")
        assert (spark.table("att.icebergs").count(), spark.table("att.paimons").count()) == (1, 3)
        lake.sql("ALTER TABLE att.paimons ADD COLUMN n INT")
        assert spark.table("att.paimons").columns == ["id", "name", "dt"]
        lake.attach(spark, ["att.paimons"])
        assert spark.table("att.paimons").columns == ["id", "name", "dt", "n"]
        with pytest.raises(Exception, match="read only"):
            spark.sql("INSERT INTO att.paimons VALUES (5, 'x', 'x', 1)")
        spark.sql("CREATE TABLE att.nothing (a INT) USING lakeformat")
        with pytest.raises(Exception, match=r"lake\.sql\('CREATE TABLE"):
            spark.sql("SELECT * FROM att.nothing").collect()
        with pytest.raises(Exception, match=r"lake\.sql\('CREATE TABLE"):
            spark.sql("CREATE TABLE att.less USING lakeformat")
        with pytest.raises(Exception, match="TIME_TRAVEL"):
            spark.sql("SELECT * FROM att.paimons VERSION AS OF 1").collect()
        lake.sql("CREATE TABLE att.nothing (a INT)")
        with pytest.raises(AlreadyExists, match=r"att\.nothing: Spark's catalog has another table"):
            lake.attach(spark)
        other = Lake(tmp_path / "other")
        other.sql(
            "CREATE TABLE att.paimons (id BIGINT); CREATE TABLE att.PAIMONS (id BIGINT); CREATE TABLE att.`a-b` (a INT)"
        )
        for name in ("att.paimons", "att.PAIMONS"):
            with pytest.raises(AlreadyExists, match=f"{name}: Spark's catalog has another table"):
                other.attach(spark, [name])
        with pytest.raises(UnsupportedFeature, match=r"att\.a-b: Spark's own catalog has only names"):
            other.attach(spark, ["att.a-b"])
        lake.sql("ALTER TABLE att.paimons ALTER COLUMN n TYPE BIGINT")
        with pytest.raises(Exception, match="column 'n' was int when the table was attached"):
            spark.table("att.paimons").collect()
        lake.sql("DROP TABLE att.paimons")
        with pytest.raises(Exception, match=r"NotFound: no table 'att\.paimons'"):
            spark.table("att.paimons").collect()
        lake.sql("CREATE TABLE att.paimons (id BIGINT, name STRING, dt STRING, n INT) USING iceberg")
        assert spark.table("att.paimons").collect() == []
    finally:
        spark.sql("DROP DATABASE IF EXISTS att CASCADE")


def test_attached_tables_have_every_type_and_take_nulls_that_come_later(tmp_path, spark):
    lake = Lake(tmp_path / "typed")
    lake.sql(
        "CREATE TABLE att.t (id BIGINT NOT NULL, s STRUCT<a: INT NOT NULL, b: ARRAY<INT>> NOT NULL, m MAP<STRING, TIMESTAMP>, "
        "ts TIMESTAMP, n TIMESTAMP_NTZ, d DATE, x DECIMAL(10, 2), b BINARY, f FLOAT, y BOOLEAN) USING iceberg"
    )
    lake.sql(
        "INSERT INTO att.t SELECT 1, named_struct('a', 2, 'b', array(1, NULL)), map('k', timestamp '2020-01-01 00:00:00'), "
        "timestamp '2020-01-01 00:00:00', timestamp_ntz '2020-01-01 00:00:00', date '2020-01-01', 1.5, X'00', 1.5, true"
    )
    try:
        lake.attach(spark)
        lake.sql("ALTER TABLE att.t ALTER COLUMN s DROP NOT NULL; INSERT INTO att.t (id) VALUES (2)")
        assert [row.id for row in spark.sql("SELECT id FROM att.t WHERE s IS NULL").collect()] == [2]
        found, expected = spark.table("att.t"), lake.table("att.t").scan().to_spark(spark)
        assert sorted(found.collect(), key=str) == sorted(expected.collect(), key=str)
        spark.sql("DROP DATABASE att CASCADE")
        spark.sql(f"CREATE DATABASE att LOCATION '{tmp_path}/typed/att.db'")
        with pytest.raises(
            InvalidInput, match=r"att\.t: Spark keeps its own tables in .*, where the lake keeps this one"
        ):
            lake.attach(spark)
        spark.sql(f"ALTER DATABASE att SET LOCATION '{tmp_path}/elsewhere'")  # Dropping it would delete the lake's.
    finally:
        spark.sql("DROP DATABASE IF EXISTS att CASCADE")


def test_null_is_the_columns_default_on_spark(plain, spark):
    assert test_changes.write_nulls(plain, spark=spark) == test_changes.NULLS


def test_a_table_with_an_empty_chunk_keeps_its_rows_on_spark(plain, spark):
    column = pa.chunked_array([[], [1, 2], [], [3]], pa.int64())
    frame = pa.table({"id": column})
    counted = plain.sql("SELECT count(*) AS n FROM f", f=frame, spark=spark)
    assert counted.to_arrow()["n"].to_pylist() == [3]
    assert plain.sql("SELECT id FROM f", f=frame).to_spark(spark).count() == 3
    plain.sql("CREATE TABLE m.chunks (id BIGINT, s STRING) USING iceberg; INSERT INTO m.chunks VALUES (3, 'a')")
    merge = "MERGE INTO m.chunks t USING f ON t.id = f.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (f.id)"
    plain.sql(merge, f=frame, spark=spark)
    assert rows(plain.table("m.chunks")) == [(1, None), (2, None)]
    alike = pa.table({"id": pa.array([1]), "S": ["x"], "s": ["y"]})
    for clause in ("UPDATE SET s = f.s", "UPDATE SET *"):
        with pytest.raises(InvalidInput, match="differ only in case, S, s"):
            plain.sql(f"MERGE INTO m.chunks t USING f ON t.id = f.id WHEN MATCHED THEN {clause}", f=alike, spark=spark)
    assert rows(plain.table("m.chunks")) == [(1, None), (2, None)]


def test_metadata_tables_have_the_connectors_types_on_spark(plain, spark):
    plain.sql("""
        CREATE TABLE m.ice (id INT, st STRUCT<a: INT>, p STRING) USING iceberg PARTITIONED BY (p);
        INSERT INTO m.ice VALUES (1, named_struct('a', 2), 'x'), (2, NULL, NULL);
        CREATE TABLE m.pai (id INT NOT NULL, p STRING NOT NULL) USING paimon PARTITIONED BY (p)
            TBLPROPERTIES ('primary-key' = 'id,p', 'bucket' = '1');
        INSERT INTO m.pai VALUES (1, 'x')
    """)
    answers = test_metadata_tables.ANSWERS["tables"]
    for table, names in (
        (
            "m.ice",
            ("entries", "manifests", "partitions", "snapshots", "all_manifests", "history", "metadata_log_entries"),
        ),
        ("m.pai", ("files", "table_indexes", "schemas", "partitions", "tags", "statistics")),
    ):
        for name in names:
            here = plain.sql(f"SELECT * FROM {table}.{name}").to_arrow()
            there = plain.sql(f"SELECT * FROM {table}.{name}", spark=spark).to_arrow()
            assert test_metadata_tables.typed(there.schema) == test_metadata_tables.typed(here.schema), name
            assert there.to_pylist() == here.to_pylist(), name
            golden = answers[f"i.v2.{name}" if table == "m.ice" else f"p.k${name}"]["columns"]
            assert [column for column, _ in golden] == there.column_names, name


@pytest.mark.parametrize("form", ["paimon", "iceberg"])
def test_changes_over_arrays_and_maps_are_those_of_a_query(lake, spark, form):
    lake.create_table("d.t", test_nested_changes.SCHEMA, format=form)
    names = test_nested_changes.SCHEMA.names
    data = [dict(zip(names, row, strict=True)) for row in test_nested_changes.ROWS]
    lake.table("d.t").append(pa.Table.from_pylist(data, test_nested_changes.SCHEMA))
    for changed, expression, condition in test_nested_changes.UPDATES[::5]:
        expected = test_nested_changes.queried(lake, changed, expression, condition)
        lake.sql(f"UPDATE d.t SET {changed} = {expression} WHERE {condition}", spark=spark)
        assert test_nested_changes.rows(lake.table("d.t").scan()) == expected, (changed, expression)
    lake.sql("UPDATE d.t SET m = map_concat(m, map('z', 26)) WHERE array_contains(a, 12)", spark=spark)
    assert lake.sql("SELECT id FROM d.t WHERE m['z'] = 26").to_arrow()["id"].to_pylist() == [6]
    lake.sql(
        "MERGE INTO d.t USING (SELECT 6 AS n) u ON t.id = u.n WHEN MATCHED THEN UPDATE SET s.q.r = 'new'", spark=spark
    )
    lake.sql("DELETE FROM d.t WHERE NOT array_contains(map_keys(m), 'z') OR m IS NULL", spark=spark)
    assert [row["s"]["q"]["r"] for row in lake.table("d.t").scan().to_arrow().to_pylist()] == ["new"]


@pytest.mark.parametrize(("format", "kind"), [("paimon", "INSERT BY NAME"), ("iceberg", "INSERT of columns")])
def test_inserts_on_spark_store_values_as_in_process(spark, lake, format, kind):
    types, values, stored = zip(*test_assignments.STORED, strict=True)
    test_assignments.begin(lake, format, types)
    lake.sql(test_assignments.filled(test_assignments.STATEMENTS[kind], values), spark=spark)
    (row,) = lake.sql("SELECT * FROM d.t WHERE id <> 1 OR v0 IS NOT NULL").to_arrow().to_pylist()
    assert [row[f"v{index}"] for index in range(len(types))] == list(stored)
