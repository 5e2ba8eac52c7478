"""Expressions mean on Arrow what they mean on Spark: the same texts, the same values, in one comparison."""

import datetime as dt
import json
import math
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from lakeformat.codec import arrow
from lakeformat.errors import InvalidInput
from lakeformat.expression.evaluation import evaluate
from lakeformat.expression.spark_sql import to_sql
from lakeformat.expression.sql_text import parse
from lakeformat.model.predicate import bind

pytestmark = pytest.mark.spark

CASING = json.loads((Path(__file__).parents[2] / "golden" / "vectors" / "casing.json").read_text())

TABLE = pa.table(
    {
        "i": pa.array([1, -7, None, 0], pa.int32()),
        "j": pa.array([100, -128, None, 127], pa.int8()),
        "b": pa.array([2**62, 5, None, -3], pa.int64()),
        "f": pa.array([1.5, math.nan, None, -0.0]),
        "e": pa.array([2.675, -1e10, None, 0.5]),
        "g": pa.array([0.1, 1, None, -2.5], pa.float32()),
        "s": ["abc", "", None, "a%b\n"],
        "u": ["  Ab ", "é_x", None, "2023-5-1"],
        "d": pa.array([dt.date(2023, 5, 1), dt.date(1969, 12, 31), None, dt.date(2000, 2, 29)]),
        "ts": pa.array(
            [
                dt.datetime(2023, 5, 1, 10, 0, 0, 123456),
                dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
                None,
                dt.datetime(2000, 1, 1),
            ],
            pa.timestamp("us"),
        ),
        "tz": pa.array(
            [dt.datetime(2023, 5, 1, 10), dt.datetime(1960, 1, 1, 0, 0, 1), None, dt.datetime(2000, 1, 1)],
            pa.timestamp("us", "UTC"),
        ),
        "p": pa.array([Decimal("1.23"), Decimal("-0.05"), None, Decimal("99.99")], pa.decimal128(4, 2)),
        "q": pa.array([Decimal("0.0000001"), Decimal("-0.05"), None, Decimal("99.99")], pa.decimal128(10, 7)),
        "w": pa.array(
            [Decimal("12345678901234567890.123456789"), Decimal("-0.000000001"), None, Decimal(7)], pa.decimal128(38, 9)
        ),
        "o": [True, False, None, True],
        "y": pa.array([b"a", b"", None, b"\xff"]),
        "st": pa.array([{"x": 1}, {"x": None}, None, {"x": 4}]),
    }
)

# One expression per line. Where Spark's ANSI mode raises an error, so must lakeformat.
EXPRESSIONS = r"""
i+1
j+1
j+j
-j
j-j
abs(j)
i*b
i/2
i%3
b%-1
f%2
e%3
p%0.5
p%q
w%3
i div 2
p div 0.3
p+1
p+q
p+w
w*w
w*p
p*p
p*i
p*1.5
p/3
p/q
w/p
w/3
1/3
p+f
p-b
w+b
-p
abs(p)
abs(f)
abs(i)
round(p,1)
round(p,-1)
round(p)
round(p,5)
round(e,2)
round(e)
round(g,1)
round(e+0.005D,2)
round(1.005D,2)
round(2.675D,2)
round(-15,-1)
round(b,-2)
floor(p)
ceil(p)
floor(e)
ceil(e)
ceil(g)
floor(i)
i=1.0
f=f
f>100
f>=f
f<f
f<>f
g=0.1
g<1
g=g
g+g
g+i
g+1.5
i+1.5
i+1e0
i in (1,null)
i in (1,2.0)
f in (0)
f in (0.0, 1.5)
g in (0.1)
i not in (1)
i not in (1,null)
p in (1.23,5)
p = 1.230
p > 1.229
p < '1.5'
i = '1'
i < '5'
i > 0.5
i between -7 and 1
i = 3000000000
j = 1000
j < 1000
b > 1e18
b = 4611686018427387905
b = 4611686018427387904.5
s like 'a%'
s like 'a\\%b_'
s like 'a!%b_' escape '!'
s like '%'
s like '_b_'
s like ''
s ilike 'A%'
u ilike 'É%'
s || i
concat(s,d,ts)
concat(s, tz)
concat(i, p, o)
concat(y, y)
upper(u)
lower(u)
substring(s,2)
substring(s,0,2)
substring(s,-2,1)
substring(s,-5,3)
substring(s,2,0)
substring(s,2,-1)
substring(y,1,1)
left(s,1)
left(s,0)
right(s,2)
length(s)
length(y)
length(u)
trim(u)
ltrim(u)
rtrim(u)
replace(s,'a','x')
replace(s,'','x')
replace(s,'a')
startswith(s,'a')
endswith(s,'c')
contains(s,'%')
s < 'b'
s > 'a'
s = ''
y = X'61'
y < X'62'
d > '2000-01-01'
d = '2023-5-1'
d >= '2023'
d + 1
d - 1
date_add(d,1)
date_sub(d,1)
datediff(d,'2000-01-01')
datediff(ts,d)
year(d)
month(ts)
day(tz)
hour(ts)
minute(tz)
second(ts)
year(ts)
quarter(ts)
quarter(d)
weekofyear(d)
weekofyear(ts)
dayofyear(d)
dayofyear(tz)
sqrt(abs(i)) > 1
sign(i) = -1
power(i, 2) = 49
i div 2 = 0
datediff(d, d) = 0
date_add(d, 1) = "2023-05-02"
'it''s'
ts > d
ts = d
tz = ts
tz > '2001-01-01'
ts > '2000-01-01 00:00:00'
tz > timestamp '2000-01-01 00:00:00'
tz = timestamp '2023-05-01 12:00:00+02:00'
ts > timestamp '2000-01-01 00:00:00'
ts = timestamp_ntz '2000-01-01 00:00:00'
d < timestamp '2000-02-29 00:00:01'
d in ('2023-05-01', '2000-02-29')
d in (date '2023-05-01', null)
date_trunc('month',tz)
date_trunc('week',tz)
date_trunc('YEAR',tz)
date_trunc('quarter',tz)
date_trunc('hour',tz)
to_date(ts)
cast(i as string)
cast(p as string)
cast(q as string)
cast(w as string)
cast(o as string)
cast(d as string)
cast(ts as string)
cast(tz as string)
cast(s as binary)
cast(ts as date)
cast(tz as date)
cast(d as timestamp)
cast(d as timestamp_ntz)
cast(ts as timestamp)
cast(tz as timestamp_ntz)
cast(e as bigint)
cast(e as int)
cast(g as int)
cast(1.5 as int)
cast(-1.5 as int)
cast(p as int)
cast(w as bigint)
cast(i as tinyint)
cast(b as int)
cast(i as decimal(5,2))
cast(i as decimal(1,0))
cast(e as decimal(20,1))
cast(e as decimal(20,2))
cast(0.125e0 as decimal(5,2))
cast(g as decimal(5,1))
cast(p as decimal(5,1))
cast(p as decimal(3,2))
cast(p as double)
cast(w as double)
cast(b as float)
cast(b as double)
cast(o as int)
cast(o as decimal(3,1))
cast(i as boolean)
cast(p as boolean)
cast(f as boolean)
cast('2023-5-1' as date)
cast('2023' as date)
cast('2023-05-01T10' as date)
cast('2023-05-01 10:00:00.5' as timestamp)
cast('2023-05-01' as timestamp)
cast(' 12 ' as int)
cast('1.5' as double)
cast('1e3' as double)
cast('1.005' as decimal(5,2))
cast('-1.5' as decimal(5,2))
cast('abc' as int)
cast('x' as boolean)
cast(' TRUE ' as boolean)
cast('no' as boolean)
cast(' x' as string)
case when i = 0 then 0 else 10/i end
case when i < 0 then 300 end
case i when 1 then 'one' when 0 then 'zero' end
case when o then d else '2020-01-01' end
case when o then 1 else 2.5 end
coalesce(i,b,0)
coalesce(s,'x')
coalesce(d,'2020-01-01')
coalesce(p,0)
coalesce(null,i)
greatest(i,b)
greatest(f,1)
least(f,1)
greatest(p,i)
greatest(d,date '2001-01-01')
nullif(i,0)
nullif(s,'')
nvl(i,5)
ifnull(i,5)
nvl2(i,1,2)
if(o,i,-1)
st.x + 1
st.x is null
st is null
o and i > 0
o or null
o and null
not o
not null
o = true
o = 'true'
o > false
i is null
i is not null
o is true
o is not true
o is false
o is unknown
isnan(f)
isnull(f)
isnotnull(f)
i <=> null
i <=> 1
f <=> double('nan')
not (i <=> null)
i is distinct from 1
sqrt(f)
sqrt(i)
power(i,2)
power(p,2)
sign(i)
sign(f)
sign(p)
i = null
null
1 = 1
null = null
i + null
i > 1 or b > 1 and s = ''
not i = 1 and o
-i
- -i
+i
i + -1
i - -1
2147483647 + 1
2147483647 + i
2147483648 + 1
9223372036854775807 + 1
i = -7
-i = 7
'a' = "a"
s = 'a%b\n'
s in ('abc', 'x')
(i, s) in ((1, 'abc'), (2, 'x'))
i in (b, 1)
i in (1, 1+1)
s = 5
o > i
d = ts
1.0 / 3
1.5 * 2
2.50
5L
1.5D
1.5BD
3S
1e3
.5
X'0aff'
date '2023-05-01'
timestamp '2023-05-01 10:00:00'
d = date '2023-05-01' or ts > '2020-01-01'
s between 'a' and 'b'
length(s) > 2 and upper(s) = 'ABC'
hour(d)
i % 2 = 1
b % 1000
mod(i, 4)
e - e
e * 0
upper('Straße ŉǰΐ ﬁᾳ ǆ ɤ')
lower('İSTANBUL ΟΔΟΣ ΟΔΟΣΑ ΑΣ.Α ΑΣ́ 1Σ ẞ')
'Straße' ilike 'STRAẞE'
'ΟΔΟΣ' ilike '%σ'
upper(u || 'ß')
length('😀a')
substring('😀ab', 2, 1)
right('abc', 0)
'😀' like '_'
trim('\t a ')
cast(' 1' as int)
cast('\t1' as int)
cast('+5' as int)
cast('0x10' as int)
cast('1_000' as int)
cast('1_0' as double)
cast('٣' as int)
i = '1_000'
i = '+1'
i = '　1'
b = '0x5'
f = '1_5'
d = '２０２３-05-01'
cast('2023-05-01 10:00:00+02:00' as timestamp_ntz)
cast(concat('2023-05-01 10:00:00', '+02:00') as timestamp_ntz)
ts = '2023-05-01 10:00:00.123456+05:00'
tz = '2023-05-01 12:00:00+02:00'
0.1 + 0.2
0.1e0 + 0.2e0
i * 1.1
b * 1.1
b / b
w - w
""".strip().splitlines()

DIVISIONS = ["i / 0", "i % 0", "b div 0", "p / (p - p)", "1 % (i - i)"]


def plain(values: list) -> list[str]:
    shown = []
    for value in values:
        if isinstance(value, dt.datetime) and value.tzinfo:
            value = value.astimezone(dt.UTC).replace(tzinfo=None)
        shown.append(repr(bytes(value) if isinstance(value, bytearray) else value))
    return shown


def on_spark(spark, texts: list[str]) -> dict[str, list[str]]:
    """What Spark makes of each text, in one select."""
    names = [f"v{i}" for i in range(len(texts))]
    chosen = [f"({text}) AS {name}" for name, text in zip(names, texts, strict=True)]
    frame = spark.createDataFrame(TABLE).withColumn(
        "ts", F.col("ts").cast("timestamp_ntz")
    )  # It would take it for one of an instant.
    table = frame.selectExpr(*chosen).toArrow()
    return {text: plain(table[name].to_pylist()) for name, text in zip(names, texts, strict=True)}


def here(text: str) -> tuple[list[str] | None, str | None]:
    """(values, SQL text) that lakeformat makes of a text, bound or not; None where it makes an error of it."""
    try:
        expression = parse(text)
        values = plain(evaluate(expression, TABLE).to_pylist())
    except InvalidInput:
        return None, None
    bound = bind(expression, arrow.fields_from_arrow(TABLE.schema))
    assert plain(evaluate(bound, TABLE).to_pylist()) == values, f"{text}: bound it is {to_sql(bound)}"
    return values, to_sql(bound)


def test_every_expression_has_sparks_value_here_and_its_text_the_same_on_spark(spark):
    ours = {text: here(text) for text in EXPRESSIONS}
    if version("pyspark").startswith("4.0."):
        del ours["'it''s'"]  # Two texts to Spark 4.0.
    values = {text: values for text, (values, _) in ours.items() if values is not None}
    assert on_spark(spark, list(values)) == values
    written = {sql: values for values, sql in ours.values() if sql is not None}
    assert on_spark(spark, list(written)) == written
    refused = sorted(ours.keys() - values.keys())
    assert refused
    for text in refused:
        with pytest.raises(Exception, match=r"CAST|OVERFLOW|MISMATCH|RANGE"):
            on_spark(spark, [text])


def test_the_golden_cases_are_sparks(spark):
    for name in ("upper", "lower"):
        characters = CASING[name]["special"] | (CASING["sigma"] if name == "lower" else {})
        frame = spark.createDataFrame(pa.table({"c": list(characters)})).selectExpr("c", f"{name}(c) AS v")
        assert {row.c: row.v for row in frame.collect()} == characters


def test_a_division_by_zero_is_an_error_on_both(spark):
    for text in DIVISIONS:
        with pytest.raises(InvalidInput, match="division by zero"):
            evaluate(parse(text), TABLE)
        with pytest.raises(Exception, match="BY_ZERO"):
            on_spark(spark, [to_sql(parse(text))])
