"""Random conditions on random rows under specs that change: never a row is left out, whatever partitions and bounds say. Some
files lack the columns that are their partition."""

import datetime
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from lakeformat import Field, Lake, Schema
from lakeformat.expression import evaluation, sql_text
from lakeformat.model.predicate import bind
from lakeformat.model.type_text import parse_type
from tests.draw import IS_LONG
from tests.unit import hive_files

KINDS = {
    "i": "int", "l": "bigint", "d": "double", "f": "float", "b": "boolean", "n": "decimal(9, 2)", "s": "string", "x": "bytes",
    "u": "uuid", "g": "fixed(3)", "day": "date", "ts": "timestamp(6)", "tz": "timestamp_ltz(6)", "ns": "timestamp(9)", "t": "time",
}  # fmt: skip
FIELDS = tuple(Field(i, name, parse_type(kind)) for i, (name, kind) in enumerate(KINDS.items()))
MOMENT = datetime.datetime(1969, 12, 31, 22)
SPECS = [
    "i", "l", "d", "f", "b", "n", "s", "u", "day", "ts", "bucket(3, i)", "bucket(3, n)", "bucket(4, s)", "bucket(4, x)", "bucket(3, u)",
    "bucket(3, day)", "bucket(4, ts)", "bucket(5, ns)", "bucket(2, t)", "truncate(3, i)", "truncate(50, n)", "truncate(7, l)",
    "truncate(1000, i)", "truncate(64, i)", "truncate(1, s)",
    "truncate(2, x)", "years(day)", "months(ts)", "days(tz)", "hours(ts)", "days(ns)", "hours(ns)", "years(ts)", "months(day)", "years(day)", "years(ns)",
    "days(day)", "g", "tz", "ns", "t", "void(l)",
]  # fmt: skip
MICRO = datetime.timedelta(microseconds=1)
ENDS = {  # The ends of each type, and what lies beside them.
    "i": [-(2**31), -(2**31) + 1, -(2**31) + 2, -(2**31) + 500, 2**31 - 1, 2**31 - 2, 2**31 - 500],
    "l": [-(2**63), -(2**63) + 1, -(2**63) + 7, 2**63 - 1, 2**63 - 7, -(2**31), 2**31, 2**53 + 1],
    "d": [1.7976931348623157e308, -1.7976931348623157e308, 5e-324, -5e-324],
    "f": [3.4028234663852886e38, -3.4028234663852886e38, 1.401298464324817e-45],
    "n": [Decimal("9999999.99"), Decimal("-9999999.50"), Decimal("-9999999.00"), Decimal("-0.01")],
    "s": ["\ud7ff", "\ue000", "\ud7ff\ud7ff", "\uffff", "\x00", "\x00a", "\U0010ffff", "a\U0010ffff"],
    "x": [b"\xff", b"\xff\xff", b"\xff\x00", b"\x7f", b"\x80"],
    "day": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1969, 12, 31), datetime.date(1970, 1, 1)],
    "ts": [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
           datetime.datetime(1970, 1, 1) - MICRO, datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1) + MICRO],
    "ns": [-(2**63) + 1, 2**63 - 1, -(2**63) + 1000, 2**63 - 1000, -1, 0, 1, -999, -1000, -1001],
    "t": [datetime.time(0), datetime.time(23, 59, 59, 999999)],
}  # fmt: skip
ENDS["tz"] = ENDS["ts"]
TEXTS = ["", "a", "ab", "abc", "\U0001f600", "\U0001f600b", "a\uffff", "\U0010ffff" * 2, "b%", "z" * 20]


def value(chance, kind):
    """A value, or a null, of few; some of them at the ends of the type."""
    if chance.random() < 0.1:
        return None
    if chance.random() < 0.25 and kind in ENDS:
        return chance.choice(ENDS[kind])
    number = chance.randrange(-6, 7)
    match kind:
        case "i" | "l":
            return number
        case "d" | "f":
            return chance.choice([float(number), -0.0, math.nan, math.inf, -math.inf, number / 2])
        case "b":
            return number > 0
        case "n":
            return Decimal(number * 37) / 100
        case "s":
            return chance.choice(TEXTS)
        case "x":
            return chance.choice([b"", b"\x00", b"\xff\xff\xff", b"ab", b"\xff" * 20, b"a\xff"])
        case "u":
            return (
                bytes([chance.choice([0, 0x7F, 0x80, 0xFF])]) + bytes(7) + bytes([chance.choice([0, 0x80])]) + bytes(7)
            )
        case "g":
            return chance.choice([b"\x00" * 3, b"\xff" * 3, b"abc"])
        case "day":
            return (MOMENT + datetime.timedelta(days=20 * number)).date()
        case "ts" | "tz":
            return MOMENT + datetime.timedelta(minutes=70 * number, microseconds=number)
        case "ns":
            return number * 36_000_000_000_001
        case "t":
            return datetime.time(number % 24, 59, 59, 999999)


def rows(chance, names, schema, count):
    """`names`: what each column is called now -> what it holds."""
    columns = []
    for field in schema:
        values = [value(chance, names[field.name]) for _ in range(count)]
        if names[field.name] == "ns":
            columns.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def said(chance, kind):
    """A value as a condition says it."""
    found = None
    while found is None:
        found = value(chance, kind)
    match kind:
        case "d" | "f":
            return f"cast('{'NaN' if math.isnan(found) else found}' as double)"
        case "b":
            return str(found).lower()
        case "s":
            return "'" + found + "'"
        case "x" | "u" | "g":
            return f"X'{found.hex()}'"
        case "day":
            return f"date '{found}'"
        case "ts":
            return f"timestamp '{found}'"
        case "tz":
            return f"timestamp '{found}+00:00'"
        case "ns":
            found = max(found, -(2**63) + 2 * 10**9)  # Arrow reads no text of the first second that nanoseconds reach.
            moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=found // 1000)
            return f"cast('{moment.isoformat(' ', 'microseconds')}{found % 1000:03}' as timestamp(9))"
        case "t":
            return f"time '{found}'"
    return str(found)


def condition(chance, names, depth=2):
    if depth and chance.random() < 0.7:
        inner = [condition(chance, names, depth - 1) for _ in range(2)]
        return chance.choice([f"({inner[0]} and {inner[1]})", f"({inner[0]} or {inner[1]})", f"not ({inner[0]})"])
    name, kind = chance.choice(list(names.items()))
    one, other = said(chance, kind), said(chance, kind)
    options = [f"{name} {operator} {one}" for operator in ("=", "<", "<=", ">", ">=", "<>", "<=>")]
    options += [f"{one} < {name}", f"{name} is null", f"{name} is not null", f"{name} in ({one}, {other})"]
    options += [f"{name} not in ({one}, {other})", f"{name} between {one} and {other}", f"{name} in ({one}, null)"]
    if kind == "s":
        options += [f"{name} like '{text}%'" for text in ("", "a", "ab", "\U0001f600", "\U0010ffff")] * 2
        options += [f"{name} like '%b'", f"{name} not like 'a%'"]
    if kind in "df":
        options += [f"isnan({name})", f"not isnan({name})"]
    return chance.choice(options)


def told(table):
    return sorted(map(repr, table.to_pylist()))


def check(lake, seed, count):
    chance, hive = random.Random(seed), random.Random(f"hive {seed}")
    properties = {
        "format-version": "3", "commit.manifest.min-count-to-merge": "3",
        "write.metadata.metrics.default": chance.choice(["none", "counts", "truncate(1)", "truncate(2)", "full"]),
        "write.format.default": chance.choice(["parquet", "avro"]),
    }  # fmt: skip
    t = lake.create_table(
        f"d.t{seed}", Schema(FIELDS), format="iceberg", partition_by=chance.sample(SPECS, 1), properties=properties
    )
    names = {name: name for name in KINDS}
    everything = t.scan().schema.empty_table()
    for step in range(3):
        schema = t.scan().schema
        for _ in range(2):
            made = rows(chance, names, schema, 6)
            everything = pa.concat_tables([everything, made])
            hive_files.append(t, made) if hive.random() < 0.5 else t.append(made)
        for _ in range(count):
            where = condition(chance, names)
            expected = everything.filter(evaluation.mask(bind(sql_text.parse(where), t.schema.fields), everything))
            assert told(t.scan(where=where).to_arrow()) == told(expected), f"seed {seed}, step {step}: {where}"
            assert t.scan(where=where).count() == len(expected), f"seed {seed}, step {step}: count of {where}"
        if chance.random() < 0.5:
            where = condition(chance, names)
            t.delete(where)
            gone = evaluation.mask(bind(sql_text.parse(where), t.schema.fields), everything)
            everything = everything.filter(pa.compute.invert(pa.compute.fill_null(gone, False)))
            assert told(t.scan().to_arrow()) == told(everything), f"seed {seed}, step {step}: delete {where}"
        change = t.alter().drop_partition_field(t.schema.partitioning.fields[0].name)
        left = [spec for spec in SPECS if spec.rpartition(" ")[2].rstrip(")").split("(")[-1] in t.schema.names]
        change.add_partition_field(chance.choice(left)).commit()
        if chance.random() < 0.5 and "s" in t.schema.names:
            t.alter().rename_column("s", "renamed").commit()
            names = {"renamed" if name == "s" else name: kind for name, kind in names.items()}
        if chance.random() < 0.5 and "i" not in t.schema.partitioning.sources:
            t.alter().change_type("i", "bigint").commit()
        everything = pa.Table.from_arrays(
            [column.cast(field.type) for column, field in zip(everything.columns, t.scan().schema, strict=True)],
            schema=t.scan().schema,
        )
        if chance.random() < 0.3:
            t.compact(full=True)


@pytest.mark.parametrize("seed", [0, 1, 2, 9, 10])
def test_no_row_is_lost_under_specs_that_change(tmp_path, seed):
    check(Lake(tmp_path, fsync="false"), seed, 10 if IS_LONG else 4)
