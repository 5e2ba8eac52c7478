"""The functions that DuckDB evaluates as Spark does: names, types of arguments and result, and DuckDB SQL, a line each.

`T` is any type, `O` a type with an order, `N` a number, `I` an integer, `J` one of INT at most, `D` a time, `E` a DATE
and `P` a TIMESTAMP and `Q` a STRING without a cast, `S` the first argument's; the same letter is the same type, to
which all its arguments are cast. `X*` is any number of arguments, `$*` all of them. In an aggregate function, `~` is
the place of DISTINCT, `!` of IGNORE NULLS, `@` of FILTER and OVER, with a condition of its own in brackets.
tests/sql/test_spark_answers.py compares each line with Spark's recorded answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from lakeformat.model.dataclass import dataclass
from lakeformat.sql.translation import casts, spark_types
from lakeformat.sql.translation.spark_types import (
    BINARY,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    SparkType,
)

_SCALARS = r"""
abs(I) -> I = CASE WHEN $x < 0 THEN -$x ELSE $x END
positive(N) -> N = $x
sign, signum(double) -> double = CASE WHEN ISNAN($x) THEN $x WHEN $x = 0 THEN $x ELSE CAST(SIGN($x) AS DOUBLE) END
ceil, ceiling(I) -> bigint = CAST($x AS BIGINT)
floor(I) -> bigint = CAST($x AS BIGINT)
pi() -> double = PI()
e() -> double = EXP(CAST(1 AS DOUBLE))
isnan(double) -> boolean = COALESCE(ISNAN($x), FALSE)
nanvl(double, double) -> double = CASE WHEN ISNAN($x) THEN $y ELSE $x END
sqrt(double) -> double = CASE WHEN $x < 0 THEN CAST('NaN' AS DOUBLE) ELSE SQRT($x) END
cbrt(double) -> double = CBRT($x)
exp(double) -> double = EXP($x)
ln(double) -> double = CASE WHEN $x > 0 THEN LN($x) END
log(double) -> double = CASE WHEN $x > 0 THEN LN($x) END
log10(double) -> double = CASE WHEN $x > 0 THEN LOG10($x) END
log2(double) -> double = CASE WHEN $x > 0 THEN LOG2($x) END
log1p(double) -> double = CASE WHEN $x > -1 THEN LN(1 + $x) END
log(double, double) -> double = CASE WHEN $x > 0 AND $y > 0 THEN LN($y) / LN($x) END
power, pow(double, double) -> double = POW($x, $y)
hypot(double, double) -> double = CASE WHEN ISINF($x) OR ISINF($y) THEN CAST('inf' AS DOUBLE) WHEN ISNAN($x) OR ISNAN($y) THEN CAST('NaN' AS DOUBLE) WHEN $x = 0 AND $y = 0 THEN CAST(0 AS DOUBLE) WHEN ABS($x) >= ABS($y) THEN ABS($x) * SQRT(1 + ($y / $x) * ($y / $x)) WHEN ABS($x) < ABS($y) THEN ABS($y) * SQRT(1 + ($x / $y) * ($x / $y)) END
sin(double) -> double = CASE WHEN ISINF($x) THEN CAST('NaN' AS DOUBLE) ELSE SIN($x) END
cos(double) -> double = CASE WHEN ISINF($x) THEN CAST('NaN' AS DOUBLE) ELSE COS($x) END
tan(double) -> double = CASE WHEN ISINF($x) THEN CAST('NaN' AS DOUBLE) ELSE TAN($x) END
cot(double) -> double = CASE WHEN ISINF($x) THEN CAST('NaN' AS DOUBLE) ELSE CAST(1 AS DOUBLE) / TAN($x) END
csc(double) -> double = CASE WHEN ISINF($x) THEN CAST('NaN' AS DOUBLE) ELSE CAST(1 AS DOUBLE) / SIN($x) END
sec(double) -> double = CASE WHEN ISINF($x) THEN CAST('NaN' AS DOUBLE) ELSE CAST(1 AS DOUBLE) / COS($x) END
asin(double) -> double = CASE WHEN ABS($x) > 1 THEN CAST('NaN' AS DOUBLE) ELSE ASIN($x) END
acos(double) -> double = CASE WHEN ABS($x) > 1 THEN CAST('NaN' AS DOUBLE) ELSE ACOS($x) END
atan(double) -> double = ATAN($x)
atan2(double, double) -> double = ATAN2($x, $y)
sinh(double) -> double = SINH($x)
cosh(double) -> double = COSH($x)
tanh(double) -> double = TANH($x)
degrees(double) -> double = DEGREES($x)
radians(double) -> double = RADIANS($x)
factorial(int) -> bigint = CASE WHEN $x BETWEEN 0 AND 20 THEN CAST(FACTORIAL($x) AS BIGINT) END
shiftleft(J, int) -> int = CAST(CAST(((CAST($x AS HUGEINT) * POW(2, $y & 31)::HUGEINT) & 4294967295) AS HUGEINT) - CASE WHEN ((CAST($x AS HUGEINT) * POW(2, $y & 31)::HUGEINT) & 4294967295) > 2147483647 THEN 4294967296 ELSE 0 END AS INTEGER)
shiftright(J, int) -> int = CAST(CAST($x AS BIGINT) >> ($y & 31) AS INTEGER)
shiftright(I, int) -> bigint = CAST($x AS BIGINT) >> ($y & 63)
bit_count(I) -> int = CAST(BIT_COUNT(CAST($x AS BIGINT)) AS INTEGER)
bin(bigint) -> string = CASE WHEN $x IS NULL THEN NULL ELSE COALESCE(NULLIF(LTRIM(CAST(CAST($x AS BIT) AS VARCHAR), '0'), ''), '0') END
hex(bigint) -> string = UPPER(PRINTF('%x', $x))
hex(string) -> string = HEX($x)
hex(binary) -> string = HEX($x)
width_bucket(double, double, double, bigint) -> bigint = CASE WHEN $u > 0 AND $y <> $z AND NOT ISNAN($x) AND NOT ISINF($y) AND NOT ISINF($z) AND NOT ISNAN($y) AND NOT ISNAN($z) THEN CASE WHEN $y < $z THEN CASE WHEN $x < $y THEN 0 WHEN $x >= $z THEN $u + 1 ELSE CAST(FLOOR($u * ($x - $y) / ($z - $y)) AS BIGINT) + 1 END ELSE CASE WHEN $x > $y THEN 0 WHEN $x <= $z THEN $u + 1 ELSE CAST(FLOOR($u * ($y - $x) / ($y - $z)) AS BIGINT) + 1 END END END
coalesce(T, T*) -> T = COALESCE($*)
ifnull, nvl(T, T) -> T = COALESCE($x, $y)
nvl2(any, T, T) -> T = CASE WHEN $x IS NOT NULL THEN $y ELSE $z END
if(boolean, T, T) -> T = CASE WHEN $x THEN $y ELSE $z END
isnull(any) -> boolean = $x IS NULL
isnotnull(any) -> boolean = $x IS NOT NULL
nullifzero(N) -> N = CASE WHEN $x <> 0 THEN $x END
greatest(O, O, O*) -> O = GREATEST($*)
least(O, O, O*) -> O = LEAST($*)
length, char_length, character_length, len(string) -> int = CAST(LENGTH($x) AS INTEGER)
length, char_length, character_length, len(binary) -> int = CAST(OCTET_LENGTH($x) AS INTEGER)
octet_length(string) -> int = CAST(STRLEN($x) AS INTEGER)
octet_length(binary) -> int = CAST(OCTET_LENGTH($x) AS INTEGER)
bit_length(string) -> int = CAST(8 * STRLEN($x) AS INTEGER)
bit_length(binary) -> int = CAST(8 * OCTET_LENGTH($x) AS INTEGER)
concat(binary, binary*) -> binary = CONCAT_STRICT($*)
reverse(string) -> string = REVERSE($x)
reverse(array<T>) -> array<T> = LIST_REVERSE($x)
repeat(string, int) -> string = CASE WHEN $y > 16777216 THEN ERROR('in process, no text of over 16777216 characters is padded or repeated') ELSE REPEAT($x, CASE WHEN $y < 0 THEN 0 ELSE $y END) END
replace(string, string) -> string = CASE WHEN $y = '' THEN $x ELSE REPLACE($x, $y, '') END
replace(string, string, string) -> string = CASE WHEN $y = '' THEN $x ELSE REPLACE($x, $y, $z) END
translate(string, string, string) -> string = TRANSLATE($x, $y, $z)
trim, btrim(string) -> string = TRIM($x, ' ')
ltrim(string) -> string = LTRIM($x, ' ')
rtrim(string) -> string = RTRIM($x, ' ')
btrim(string, string) -> string = TRIM($x, $y)
ltrim(string, string) -> string = LTRIM($y, $x)
rtrim(string, string) -> string = RTRIM($y, $x)
lpad(string, int) -> string = CASE WHEN $y > 16777216 THEN ERROR('in process, no text of over 16777216 characters is padded or repeated') WHEN $y <= 0 THEN LEFT($x, 0) ELSE LPAD($x, $y, ' ') END
rpad(string, int) -> string = CASE WHEN $y > 16777216 THEN ERROR('in process, no text of over 16777216 characters is padded or repeated') WHEN $y <= 0 THEN LEFT($x, 0) ELSE RPAD($x, $y, ' ') END
lpad(string, int, string) -> string = CASE WHEN $y > 16777216 THEN ERROR('in process, no text of over 16777216 characters is padded or repeated') WHEN $y <= 0 AND $z IS NOT NULL THEN LEFT($x, 0) WHEN $z = '' THEN LEFT($x, $y) ELSE LPAD($x, $y, $z) END
rpad(string, int, string) -> string = CASE WHEN $y > 16777216 THEN ERROR('in process, no text of over 16777216 characters is padded or repeated') WHEN $y <= 0 AND $z IS NOT NULL THEN LEFT($x, 0) WHEN $z = '' THEN LEFT($x, $y) ELSE RPAD($x, $y, $z) END
left(string, int) -> string = LEFT($x, CASE WHEN $y < 0 THEN 0 ELSE CAST($y AS BIGINT) END)
right(string, int) -> string = RIGHT($x, CASE WHEN $y < 0 THEN 0 ELSE CAST($y AS BIGINT) END)
space(int) -> string = CASE WHEN $x > 16777216 THEN ERROR('in process, no text of over 16777216 characters is padded or repeated') ELSE REPEAT(' ', CASE WHEN $x < 0 THEN 0 ELSE $x END) END
instr(string, string) -> int = CAST(INSTR($x, $y) AS INTEGER)
position, locate(string, string) -> int = CAST(INSTR($y, $x) AS INTEGER)
position, locate(string, string, int) -> int = CASE WHEN $z IS NULL THEN 0 WHEN $x IS NULL OR $y IS NULL THEN NULL WHEN $z < 1 OR $z > LENGTH($y) + 1 THEN 0 WHEN INSTR(SUBSTRING($y, $z), $x) = 0 THEN 0 ELSE CAST(INSTR(SUBSTRING($y, $z), $x) + $z - 1 AS INTEGER) END
ascii(string) -> int = CASE WHEN $x = '' THEN 0 ELSE CAST(UNICODE($x) AS INTEGER) END
chr, char(bigint) -> string = CASE WHEN $x < 0 THEN '' ELSE CHR(CAST($x % 256 AS INTEGER)) END
startswith(string, string) -> boolean = STARTS_WITH($x, $y)
endswith(string, string) -> boolean = SUFFIX($x, $y)
contains(string, string) -> boolean = CONTAINS($x, $y)
split_part(string, string, int) -> string = CASE WHEN $z = 0 THEN ERROR('split_part: the index 0 is invalid') WHEN $y = '' THEN CASE WHEN $z IN (1, -1) THEN $x ELSE LEFT($x, 0) END ELSE SPLIT_PART($x, $y, $z) END
substring_index(string, string, int) -> string = CASE WHEN $z IS NULL OR $y IS NULL THEN NULL WHEN $z = 0 OR $y = '' THEN LEFT($x, 0) WHEN $z > 0 THEN SUBSTRING(ARRAY_TO_STRING(LIST_TRANSFORM(LIST_SLICE(STRING_SPLIT($x, $y), 1, $z), lambda s: $y || s), ''), LENGTH($y) + 1) ELSE SUBSTRING(ARRAY_TO_STRING(LIST_TRANSFORM(LIST_SLICE(STRING_SPLIT($x, $y), GREATEST(LEN(STRING_SPLIT($x, $y)) + $z + 1, 1), LEN(STRING_SPLIT($x, $y))), lambda s: $y || s), ''), LENGTH($y) + 1) END
soundex(Q) -> string = CASE WHEN NOT REGEXP_MATCHES($x, '^[A-Za-z]') THEN $x ELSE UPPER(LEFT($x, 1)) || RPAD(LEFT(REPLACE(SUBSTRING(REGEXP_REPLACE(REGEXP_REPLACE(REGEXP_REPLACE(REGEXP_REPLACE(REGEXP_REPLACE(REGEXP_REPLACE(REPLACE(REGEXP_REPLACE(TRANSLATE(UPPER(REGEXP_REPLACE($x, '[^A-Za-z]', 'A', 'g')), 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', '01230127022455012623017202'), '^7', '0'), '7', ''), '1+', '1', 'g'), '2+', '2', 'g'), '3+', '3', 'g'), '4+', '4', 'g'), '5+', '5', 'g'), '6+', '6', 'g'), 2), '0', ''), 3), 3, '0') END
md5(binary) -> string = MD5($x)
sha, sha1(binary) -> string = SHA1($x)
base64(binary) -> string = TO_BASE64($x)
array_join(array<string>, Q) -> string = SUBSTRING(ARRAY_TO_STRING(LIST_TRANSFORM(LIST_FILTER($x, lambda v: v IS NOT NULL), lambda s: $y || s), ''), LENGTH($y) + 1)
array_join(array<string>, Q, Q) -> string = SUBSTRING(ARRAY_TO_STRING(LIST_TRANSFORM(LIST_FILTER(LIST_TRANSFORM($x, lambda v: COALESCE(v, $z)), lambda v: v IS NOT NULL), lambda s: $y || s), ''), LENGTH($y) + 1)
year(date) -> int = CAST(YEAR($x) AS INTEGER)
quarter(date) -> int = CAST(QUARTER($x) AS INTEGER)
month(date) -> int = CAST(MONTH($x) AS INTEGER)
day, dayofmonth(date) -> int = CAST(DAY($x) AS INTEGER)
dayofweek(date) -> int = CAST(DAYOFWEEK($x) + 1 AS INTEGER)
weekday(date) -> int = CAST((DAYOFWEEK($x) + 6) % 7 AS INTEGER)
dayofyear(date) -> int = CAST(DAYOFYEAR($x) AS INTEGER)
weekofyear(date) -> int = CAST(WEEKOFYEAR($x) AS INTEGER)
hour(D) -> int = CAST(HOUR($x) AS INTEGER)
minute(D) -> int = CAST(MINUTE($x) AS INTEGER)
second(D) -> int = CAST(SECOND($x) AS INTEGER)
dayname(date) -> string = LEFT(DAYNAME($x), 3)
monthname(date) -> string = LEFT(MONTHNAME($x), 3)
date_sub(date, J) -> date = $x - CAST($y AS INTEGER)
add_months(date, int) -> date = CAST($x + TO_MONTHS($y) AS DATE)
last_day(date) -> date = LAST_DAY($x)
unix_date(E) -> int = CAST($x - DATE '1970-01-01' AS INTEGER)
date_from_unix_date(int) -> date = DATE '1970-01-01' + $x
make_date(int, int, int) -> date = MAKE_DATE(CAST($x AS BIGINT), CAST($y AS BIGINT), CAST($z AS BIGINT))
months_between(E, E) -> double = CASE WHEN DAY($x) = DAY($y) OR ($x = LAST_DAY($x) AND $y = LAST_DAY($y)) THEN CAST((YEAR($x) - YEAR($y)) * 12 + MONTH($x) - MONTH($y) AS DOUBLE) ELSE ROUND((YEAR($x) - YEAR($y)) * 12 + MONTH($x) - MONTH($y) + (DAY($x) - DAY($y)) / CAST(31 AS DOUBLE), 8) END
unix_seconds(P) -> bigint = (EPOCH_US($x) - ((EPOCH_US($x) % 1000000) + 1000000) % 1000000) // 1000000
unix_millis(P) -> bigint = CASE WHEN EPOCH_US($x) % 1000 < 0 THEN EPOCH_US($x) // 1000 - 1 ELSE EPOCH_US($x) // 1000 END
unix_micros(P) -> bigint = EPOCH_US($x)
timestamp_micros(I) -> timestamp = CAST(MAKE_TIMESTAMP(CAST($x AS BIGINT)) AS TIMESTAMPTZ)
timestamp_millis(I) -> timestamp = CAST(MAKE_TIMESTAMP(CAST($x AS BIGINT) * 1000) AS TIMESTAMPTZ)
timestamp_seconds(I) -> timestamp = CAST(MAKE_TIMESTAMP(CAST($x AS BIGINT) * 1000000) AS TIMESTAMPTZ)
from_utc_timestamp(timestamp, string) -> timestamp = CASE WHEN $x IS NULL OR $y IS NULL THEN NULL ELSE CAST(CAST($x AT TIME ZONE $y AS TIMESTAMP) AS TIMESTAMPTZ) END
to_utc_timestamp(timestamp, string) -> timestamp = CASE WHEN $x IS NULL OR $y IS NULL THEN NULL ELSE CAST($x AS TIMESTAMP) AT TIME ZONE $y END
size, cardinality(array<T>) -> int = CAST(LEN($x) AS INTEGER)
size, cardinality(map<K,V>) -> int = CAST(CARDINALITY($x) AS INTEGER)
array_size(array<T>) -> int = CAST(LEN($x) AS INTEGER)
array_max(array<O>) -> O = LIST_AGGREGATE($x, 'max')
array_min(array<O>) -> O = LIST_AGGREGATE($x, 'min')
array_contains(array<T>, T) -> boolean = CASE WHEN $x IS NULL OR $y IS NULL THEN NULL WHEN LIST_CONTAINS($x, $y) THEN TRUE WHEN LIST_COUNT($x) = LEN($x) THEN FALSE END
array_position(array<T>, T) -> bigint = CASE WHEN $x IS NULL OR $y IS NULL THEN NULL ELSE CAST(COALESCE(LIST_POSITION($x, $y), 0) AS BIGINT) END
array_append(array<T>, T) -> array<T> = CASE WHEN $x IS NOT NULL THEN LIST_APPEND($x, $y) END
array_prepend(array<T>, T) -> array<T> = CASE WHEN $x IS NOT NULL THEN LIST_PREPEND($y, $x) END
array_compact(array<T>) -> array<T> = LIST_FILTER($x, lambda v: v IS NOT NULL)
array_remove(array<T>, T) -> array<T> = CASE WHEN $y IS NOT NULL THEN LIST_FILTER($x, lambda v: v IS DISTINCT FROM $y) END
array_repeat(T, int) -> array<T> = CASE WHEN $y IS NULL THEN NULL WHEN $y > 16777216 THEN ERROR('in process, no array of over 16777216 elements is made') ELSE LIST_TRANSFORM(RANGE(GREATEST($y, 0)), lambda v: $x) END
array_distinct(array<T>) -> array<T> = LIST_FILTER($x, lambda v, n: (v IS NOT NULL AND LIST_POSITION($x, v) = n) OR (v IS NULL AND LEN(LIST_FILTER(LIST_SLICE($x, 1, n), lambda u: u IS NULL)) = 1))
array_sort(array<O>) -> array<O> = LIST_SORT($x, 'ASC', 'NULLS LAST')
slice(array<T>, int, int) -> array<T> = CASE WHEN $x IS NULL OR $y IS NULL OR $z IS NULL THEN NULL WHEN $y = 0 THEN ERROR('slice: arrays begin with index 1') WHEN $z < 0 THEN ERROR('slice: a length is not negative') WHEN $y < 0 AND -CAST($y AS BIGINT) > LEN($x) THEN LIST_SLICE($x, 1, 0) WHEN $z = 0 THEN LIST_SLICE($x, 1, 0) WHEN $y < 0 THEN LIST_SLICE($x, LEN($x) + $y + 1, LEN($x) + $y + $z) ELSE LIST_SLICE($x, $y, CAST($y AS BIGINT) + $z - 1) END
flatten(array<array<T>>) -> array<T> = CASE WHEN LIST_COUNT($x) = LEN($x) THEN FLATTEN($x) END
concat(array<T>, array<T>*) -> array<T> = LIST_CONCAT_STRICT($*)
element_at(array<T>, int) -> T = CASE WHEN $y = 0 THEN ERROR('element_at: arrays begin with index 1') WHEN ABS(CAST($y AS BIGINT)) > LEN($x) THEN ERROR('element_at: the index is out of range; try_element_at gives null') ELSE $x[$y] END
try_element_at(array<T>, int) -> T = CASE WHEN $y = 0 THEN ERROR('try_element_at: arrays begin with index 1') ELSE $x[$y] END
get(array<T>, int) -> T = CASE WHEN $y >= 0 THEN $x[CAST($y AS BIGINT) + 1] END
element_at, try_element_at(map<K,V>, K) -> V = MAP_EXTRACT($x, $y)[1]
map_keys(map<K,V>) -> array<K> = MAP_KEYS($x)
map_values(map<K,V>) -> array<V> = MAP_VALUES($x)
map_contains_key(map<K,V>, K) -> boolean = CASE WHEN $x IS NOT NULL AND $y IS NOT NULL THEN LIST_CONTAINS(MAP_KEYS($x), $y) END
array_union(array<T>, array<T>) -> array<T> = CASE WHEN $x IS NOT NULL AND $y IS NOT NULL THEN LIST_FILTER(LIST_CONCAT($x, $y), lambda v, n: ((v IS NOT NULL AND LIST_POSITION(LIST_CONCAT($x, $y), v) = n) OR (v IS NULL AND LEN(LIST_FILTER(LIST_SLICE(LIST_CONCAT($x, $y), 1, n), lambda u: u IS NULL)) = 1))) END
array_intersect(array<T>, array<T>) -> array<T> = CASE WHEN $x IS NOT NULL AND $y IS NOT NULL THEN LIST_FILTER($x, lambda v, n: ((v IS NOT NULL AND LIST_POSITION($x, v) = n) OR (v IS NULL AND LEN(LIST_FILTER(LIST_SLICE($x, 1, n), lambda u: u IS NULL)) = 1)) AND (CASE WHEN v IS NULL THEN LIST_COUNT($y) < LEN($y) ELSE LIST_CONTAINS($y, v) END)) END
array_except(array<T>, array<T>) -> array<T> = CASE WHEN $x IS NOT NULL AND $y IS NOT NULL THEN LIST_FILTER($x, lambda v, n: ((v IS NOT NULL AND LIST_POSITION($x, v) = n) OR (v IS NULL AND LEN(LIST_FILTER(LIST_SLICE($x, 1, n), lambda u: u IS NULL)) = 1)) AND NOT (CASE WHEN v IS NULL THEN LIST_COUNT($y) < LEN($y) ELSE LIST_CONTAINS($y, v) END)) END
arrays_overlap(array<T>, array<T>) -> boolean = CASE WHEN $x IS NULL OR $y IS NULL THEN NULL WHEN LEN(LIST_FILTER($x, lambda v: v IS NOT NULL AND LIST_CONTAINS($y, v))) > 0 THEN TRUE WHEN LEN($x) > 0 AND LEN($y) > 0 AND (LIST_COUNT($x) < LEN($x) OR LIST_COUNT($y) < LEN($y)) THEN NULL ELSE FALSE END
map_from_arrays(array<K>, array<V>) -> map<K,V> = CASE WHEN $x IS NULL OR $y IS NULL THEN NULL WHEN LEN($x) <> LEN($y) THEN ERROR('map_from_arrays: the arrays have different lengths') ELSE MAP($x, $y) END
equal_null(T, T) -> boolean = $x IS NOT DISTINCT FROM $y
getbit, bit_get(tinyint, int) -> tinyint = CASE WHEN $y < 0 OR $y > 7 THEN ERROR('bit_get: the position is outside of the number') ELSE CAST((CAST($x AS BIGINT) >> $y) & 1 AS TINYINT) END
getbit, bit_get(smallint, int) -> tinyint = CASE WHEN $y < 0 OR $y > 15 THEN ERROR('bit_get: the position is outside of the number') ELSE CAST((CAST($x AS BIGINT) >> $y) & 1 AS TINYINT) END
getbit, bit_get(int, int) -> tinyint = CASE WHEN $y < 0 OR $y > 31 THEN ERROR('bit_get: the position is outside of the number') ELSE CAST((CAST($x AS BIGINT) >> $y) & 1 AS TINYINT) END
getbit, bit_get(bigint, int) -> tinyint = CASE WHEN $y < 0 OR $y > 63 THEN ERROR('bit_get: the position is outside of the number') ELSE CAST((CAST($x AS BIGINT) >> $y) & 1 AS TINYINT) END
rint(double) -> double = ROUND_EVEN($x, 0)
find_in_set(string, string) -> int = CASE WHEN $x IS NULL OR $y IS NULL THEN NULL WHEN CONTAINS($x, ',') THEN 0 ELSE CAST(COALESCE(LIST_POSITION(STRING_SPLIT($y, ','), $x), 0) AS INTEGER) END
levenshtein(string, string) -> int = CASE WHEN $x IS NULL OR $y IS NULL THEN NULL WHEN STRLEN($x) = LENGTH($x) AND STRLEN($y) = LENGTH($y) THEN CAST(LEVENSHTEIN($x, $y) AS INTEGER) ELSE ERROR('in process, levenshtein takes only ASCII') END
url_encode(string) -> string = REPLACE(REPLACE(REPLACE(URL_ENCODE($x), '%20', '+'), '~', '%7E'), '%2A', '*')
bitmap_bit_position(bigint) -> bigint = CASE WHEN $x > 0 THEN ($x - 1) % 32768 ELSE -$x % 32768 END
"""
_AGGREGATES = r"""
count_if(boolean) -> bigint = COUNT(~CASE WHEN $x THEN 1 END)@
min(O) -> O = MIN($x)@
max(O) -> O = MAX($x)@
sum(double) -> double = SUM(~$x)@
sum(I) -> bigint = CAST(SUM(~$x)@ AS BIGINT)
avg, mean(double) -> double = AVG(~$x)@
bool_and, every(boolean) -> boolean = BOOL_AND($x)@
bool_or, some(boolean) -> boolean = BOOL_OR($x)@
bit_and(I) -> I = BIT_AND($x)@
bit_or(I) -> I = BIT_OR($x)@
bit_xor(I) -> I = BIT_XOR(~$x)@
stddev, std, stddev_samp(double) -> double = STDDEV_SAMP(~CASE WHEN ISFINITE($x) OR $x IS NULL THEN $x ELSE ERROR('in process, this function takes no NaN and no infinity') END)@
stddev_pop(double) -> double = STDDEV_POP(~CASE WHEN ISFINITE($x) OR $x IS NULL THEN $x ELSE ERROR('in process, this function takes no NaN and no infinity') END)@
variance, var_samp(double) -> double = VAR_SAMP(~CASE WHEN ISFINITE($x) OR $x IS NULL THEN $x ELSE ERROR('in process, this function takes no NaN and no infinity') END)@
var_pop(double) -> double = VAR_POP(~CASE WHEN ISFINITE($x) OR $x IS NULL THEN $x ELSE ERROR('in process, this function takes no NaN and no infinity') END)@
covar_pop(double, double) -> double = COVAR_POP(CASE WHEN ISFINITE($x) OR $x IS NULL THEN $x ELSE ERROR('in process, this function takes no NaN and no infinity') END, CASE WHEN ISFINITE($y) OR $y IS NULL THEN $y ELSE ERROR('in process, this function takes no NaN and no infinity') END)@
covar_samp(double, double) -> double = COVAR_SAMP(CASE WHEN ISFINITE($x) OR $x IS NULL THEN $x ELSE ERROR('in process, this function takes no NaN and no infinity') END, CASE WHEN ISFINITE($y) OR $y IS NULL THEN $y ELSE ERROR('in process, this function takes no NaN and no infinity') END)@
corr(double, double) -> double = NULLIF(CORR(CASE WHEN ISFINITE($x) OR $x IS NULL THEN $x ELSE ERROR('in process, this function takes no NaN and no infinity') END, CASE WHEN ISFINITE($y) OR $y IS NULL THEN $y ELSE ERROR('in process, this function takes no NaN and no infinity') END)@, CAST('NaN' AS DOUBLE))
regr_count(double, double) -> bigint = REGR_COUNT($x, $y)@
max_by(T, O) -> T = ARG_MAX_NULL($x, $y)@
min_by(T, O) -> T = ARG_MIN_NULL($x, $y)@
collect_list, array_agg(T) -> array<T> = COALESCE(LIST(~$x)@[$x IS NOT NULL], [])
collect_set(O) -> array<O> = COALESCE(LIST(DISTINCT $x)@[$x IS NOT NULL], [])
"""
_WINDOWS = r"""
row_number() -> int = CAST(ROW_NUMBER()@ AS INTEGER)
rank() -> int = CAST(RANK()@ AS INTEGER)
dense_rank() -> int = CAST(DENSE_RANK()@ AS INTEGER)
percent_rank() -> double = PERCENT_RANK()@
cume_dist() -> double = CUME_DIST()@
ntile(int) -> int = CAST(NTILE($x)@ AS INTEGER)
lag(T) -> T = LAG($x!)@
lag(T, int) -> T = LAG($x, $y!)@
lag(S, int, S) -> S = LAG($x, $y, $z!)@
lead(T) -> T = LEAD($x!)@
lead(T, int) -> T = LEAD($x, $y!)@
lead(S, int, S) -> S = LEAD($x, $y, $z!)@
nth_value(T, int) -> T = NTH_VALUE($x, $y!)@
"""
_LINE = re.compile(r"(?P<names>[\w, ]+)\((?P<given>.*?)\) -> (?P<result>\S+) = (?P<sql>.*)")
_GENERIC: Mapping[str, Callable[[SparkType], bool]] = {
    "T": spark_types.is_computed,
    "K": spark_types.is_computed,
    "V": spark_types.is_computed,
    "S": spark_types.is_computed,
    "O": spark_types.has_order,
    "N": spark_types.is_number,
    "I": spark_types.is_integral,
    "E": lambda type: type == DATE,
    "P": lambda type: type == TIMESTAMP,
    "Q": lambda type: type == STRING,
    "J": lambda type: type in spark_types.INTEGRAL[:3],
    "D": lambda type: type in (TIMESTAMP, TIMESTAMP_NTZ),
}
_OF_NULLS = {"I": INT, "N": DOUBLE}  # What the letters are for NULL without a type.
PLACES = "xyzuvw"


@dataclass(frozen=True, slots=True)
class Signature:
    """One line: how many arguments of which types, the result's type, and the template."""

    given: tuple[str, ...]
    result: str
    sql: str

    @property
    def is_open(self) -> bool:
        """Whether the last type stands for any number of arguments."""
        return bool(self.given) and self.given[-1].endswith("*")

    @property
    def arity(self) -> tuple[int, int | None]:
        """The smallest and the largest number of arguments; None: no largest."""
        return (len(self.given) - 1, None) if self.is_open else (len(self.given), len(self.given))

    def names(self, count: int) -> tuple[str, ...]:
        """The names of the types of so many arguments."""
        if not self.is_open:
            return self.given
        last = self.given[-1].removesuffix("*")
        return (*self.given[:-1], *[last] * (count - len(self.given) + 1))


class Bound(NamedTuple):
    """A signature for the types of a call: those to which its arguments are cast, and the result's."""

    signature: Signature
    given: tuple[SparkType, ...]
    result: SparkType


def bind(signatures: Iterable[Signature], types: Sequence[SparkType]) -> Bound | None:
    """The first signature that takes arguments of these types, those without a cast first."""
    bound = [made for signature in signatures if (made := _bind(signature, types)) is not None]
    exact = [made for made in bound if tuple(types) == made.given]
    return next(iter([*exact, *bound]), None)


def coerces(source: SparkType, target: SparkType) -> bool:
    """Whether Spark casts an argument of its own accord."""
    if casts.widens(source, target):
        return True
    is_plain = spark_types.has_order(source) and spark_types.has_order(target)
    if source.name == target.name == "array":
        return coerces(source.parts[0], target.parts[0])
    if STRING in (source, target):
        return is_plain and source != BINARY
    if spark_types.is_number(source):
        return spark_types.is_number(target)
    return spark_types.is_time(source) and spark_types.is_time(target)


# --- private ----------------------------------------------------------------------------------------------------------


def _bind(signature: Signature, types: Sequence[SparkType]) -> Bound | None:
    least, most = signature.arity
    if len(types) < least or (most is not None and len(types) > most):
        return None
    names = signature.names(len(types))
    letters: dict[str, list[SparkType]] = {}
    for name, type in zip(names, types, strict=True):
        if not _collect(name, type, letters):
            return None
    bound: dict[str, SparkType] = {}
    for letter, bound_types in letters.items():
        shared = spark_types.common(bound_types)
        if shared is None or not (_GENERIC[letter](shared) or (shared == VOID and letter not in ("E", "J", "P", "Q"))):
            return None
        in_arrays = any(f"<{letter}>" in name for name in names)
        if in_arrays and not (set(bound_types) == {shared} or all(map(spark_types.is_integral, bound_types))):
            return None
        if (
            letter == "S" and shared != bound_types[0] and bound_types[0] != VOID
        ):  # Spark casts the others to the first.
            return None
        bound[letter] = _OF_NULLS.get(letter, shared) if shared == VOID else shared
    argument_types = tuple(
        type if name == "any" else _type(name, bound) for name, type in zip(names, types, strict=True)
    )
    if not all(coerces(source, target) for source, target in zip(types, argument_types, strict=True)):
        return None
    return Bound(signature, argument_types, _type(signature.result, bound))


def _collect(name: str, type: SparkType, letters: dict[str, list[SparkType]]) -> bool:
    """Note the types that the letters of a name stand for; whether the type has the name's form."""
    if name in _GENERIC:
        letters.setdefault(name, []).append(type)
        return True
    outer, _, inner = name.partition("<")
    if not inner:
        return True
    if type.name != outer:
        return False
    parts = _split(inner[:-1])
    return len(parts) == len(type.parts) and all(
        _collect(part, item, letters) for part, item in zip(parts, type.parts, strict=True)
    )


def _type(name: str, letters: Mapping[str, SparkType]) -> SparkType:
    if name in letters:
        return letters[name]
    outer, _, inner = name.partition("<")
    if not inner:
        return SparkType(outer)
    return SparkType(outer, tuple(_type(part, letters) for part in _split(inner[:-1])))


def _split(names: str) -> list[str]:
    """The names between the commas that are in no angle brackets."""
    return re.findall(r"\w+(?:<.*>)?", names)


def _read(text: str) -> dict[str, tuple[Signature, ...]]:
    table: dict[str, tuple[Signature, ...]] = {}
    for line in text.strip().splitlines():
        match = _LINE.fullmatch(line)
        assert match is not None, line
        given = tuple(re.findall(r"[\w*]+(?:<.*?>+)?[*]?", match["given"]))
        signature = Signature(given, match["result"], match["sql"])
        for name in match["names"].split(","):
            table[name.strip()] = (*table.get(name.strip(), ()), signature)
    return table


SCALARS, AGGREGATES, WINDOWS = _read(_SCALARS), _read(_AGGREGATES), _read(_WINDOWS)
