"""Bounds and counts: those of a footer are those of the rows, whatever the type."""

import datetime as dt
import math
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat.codec.arrow import arrow_schema
from lakeformat.engines import worker
from lakeformat.engines.files import statistics
from lakeformat.model.schema import Field, Kind, ListOf, Row, scalar
from lakeformat.model.work import ColumnStats, Encoding, StatsMode, WriteTask
from lakeformat.storage.memory import MemoryFiles

FORMATS = ("parquet", "orc", "avro")


def written(table, fields, format="parquet", options=()):
    task = WriteTask(
        fields=fields, directory=lambda values, bucket: "t", encoding=Encoding(format, options=dict(options))
    )
    (file,) = worker.write(MemoryFiles(), table.to_batches(), task)
    return file


def one(kind, *parameters):
    return (Field(7, "v", scalar(kind, *parameters)),)


VALUES = [
    (Kind.BOOLEAN, (), [False, True]),
    (Kind.TINYINT, (), [-128, 127]),
    (Kind.SMALLINT, (), [-5, 300]),
    (Kind.INT, (), [-(2**31), 2**31 - 1]),
    (Kind.BIGINT, (), [-(2**63), 2**63 - 1]),
    (Kind.FLOAT, (), [-0.5, 1.5]),
    (Kind.DOUBLE, (), [-1e300, math.inf]),
    (Kind.DECIMAL, (9, 2), [Decimal("-1234567.89"), Decimal("0.01")]),
    (Kind.DECIMAL, (18, 0), [Decimal(-1), Decimal(10**18 - 1)]),
    (Kind.DECIMAL, (38, 10), [Decimal("-1.5000000000"), Decimal("12345678901234567890.0000000001")]),
    (Kind.CHAR, (3,), ["a", "abc"]),
    (Kind.VARCHAR, (9,), ["", "ä"]),
    (Kind.STRING, (), ["Z", "z", "é", "🙂"]),
    (Kind.BYTES, (), [b"", b"\x7f", b"\x80\xff"]),
    (Kind.DATE, (), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (Kind.TIME, (3,), [dt.time(0, 0), dt.time(23, 59, 59, 999000)]),
    (Kind.TIMESTAMP, (3,), [-1000, 1_600_000_000_000]),
    (Kind.TIMESTAMP, (6,), [-1_000_000, 1_600_000_000_000_000]),
    (Kind.TIMESTAMP_TZ, (6,), [-1_000_000, 1_600_000_000_000_000]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "parameters", "values"), VALUES)
@pytest.mark.parametrize("format", FORMATS)
def test_bounds_are_the_least_and_the_greatest_value(format, kind, parameters, values):
    fields = one(kind, *parameters)
    type = arrow_schema(fields).field(0).type
    column = pa.array([*reversed(values), None, *values], type if not pa.types.is_timestamp(type) else pa.int64()).cast(
        type
    )
    stats = written(pa.table([column], ["v"]), fields, format).stats[7]
    assert (stats.minimum, stats.maximum) == (values[0], values[-1])
    assert (stats.null_count, stats.value_count) == (1, 2 * len(values) + 1)


@pytest.mark.parametrize("format", ["parquet", "avro"])
def test_bounds_are_exact_to_the_last_digit_before_1970(format):
    stats = written(
        pa.table({"v": pa.array([-1, -1_000_001], pa.timestamp("us"))}), one(Kind.TIMESTAMP, 6), format
    ).stats[7]
    assert (stats.minimum, stats.maximum) == (-1_000_001, -1)


@pytest.mark.parametrize("format", FORMATS)
def test_a_nan_leaves_no_bounds(format):
    fields = one(Kind.DOUBLE)
    stats = written(pa.table({"v": [1.0, math.nan, None]}), fields, format).stats[7]
    assert (stats.minimum, stats.maximum, stats.null_count, stats.nan_count) == (None, None, 1, 1)


def test_a_footer_of_another_writer_does_not_say_how_many_values_are_nan():
    fields = one(Kind.DOUBLE)
    stats = {}
    for values in ([1.0, math.nan], [None, None]):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"v": pa.array(values, pa.float64())}), sink)
        stats[values[0]] = statistics.from_footer(
            pq.read_metadata(pa.BufferReader(sink.getvalue())), fields, [range(1)]
        )[7]
    assert (stats[1.0].minimum, stats[1.0].maximum, stats[1.0].nan_count) == (1.0, 1.0, None)
    assert (stats[None].null_count, stats[None].nan_count) == (2, 0)


@pytest.mark.parametrize("format", FORMATS)
def test_nulls_alone_have_counts_and_no_bounds(format):
    stats = written(pa.table({"v": pa.nulls(3, pa.int32())}), one(Kind.INT), format).stats[7]
    assert (stats.minimum, stats.maximum, stats.null_count, stats.value_count) == (None, None, 3, 3)


@pytest.mark.parametrize("format", FORMATS)
def test_nested_columns_have_their_null_count_alone(format):
    fields = (
        Field(1, "l", ListOf(Field(-1, "element", scalar(Kind.INT)))),
        Field(2, "r", Row((Field(3, "a", scalar(Kind.INT)), Field(4, "b", scalar(Kind.INT))))),
        Field(5, "n", scalar(Kind.INT)),
    )
    table = pa.table({"l": [[], None, [None]], "r": [{"a": None, "b": 1}, None, None], "n": [3, None, 1]})
    stats = written(table, fields, format).stats
    assert {id: (stat.minimum, stat.null_count) for id, stat in stats.items()} == {
        1: (None, 1),
        2: (None, 2),
        5: (1, 1),
    }


@pytest.mark.parametrize("length", [10, 4095, 4096, 70_000])
def test_texts_too_long_for_a_footer_have_bounds_all_the_same(length):
    fields = one(Kind.STRING)
    values = ["b" * length, "a", "c" * length]
    stats = written(pa.table({"v": values}), fields).stats[7]
    assert (stats.minimum, stats.maximum) == ("a", "c" * length)


def test_bounds_of_many_row_groups_are_bounds_of_the_file():
    fields = (
        Field(0, "n", scalar(Kind.BIGINT)),
        Field(1, "x", scalar(Kind.DOUBLE)),
        Field(2, "s", scalar(Kind.STRING)),
    )
    rng = random.Random(6)
    numbers = [rng.randrange(-(10**9), 10**9) for _ in range(100_000)]
    table = pa.table(
        {"n": numbers, "x": [n / 7 for n in numbers], "s": [None] * 50_000 + [str(n) for n in numbers[50_000:]]}
    )
    file = written(table, fields, options={"parquet.block.size": "100000"})
    assert len(file.split_offsets) > 5
    assert (file.stats[0].minimum, file.stats[0].maximum) == (min(numbers), max(numbers))
    assert (file.stats[1].minimum, file.stats[1].maximum) == (min(numbers) / 7, max(numbers) / 7)
    texts = [str(n) for n in numbers[50_000:]]
    assert (file.stats[2].minimum, file.stats[2].maximum, file.stats[2].null_count) == (min(texts), max(texts), 50_000)


def test_merged_bounds_hold_only_where_every_piece_has_them():
    def stats(low, high, nulls=0, count=2, nans=0):
        return ColumnStats(low, high, nulls, count, nans, 10)

    assert statistics.merge([stats(1, 5), stats(0, 3)]) == ColumnStats(0, 5, 0, 4, 0, 20)
    assert statistics.merge([stats(1, 5), stats(None, None, 2)]) == ColumnStats(1, 5, 2, 4, 0, 20)
    assert statistics.merge([stats(1, 5), stats(None, None)]) == ColumnStats(None, None, 0, 4, 0, 20)
    assert statistics.merge([stats(1, 5), stats(None, None, None)]) == ColumnStats(None, None, None, 4, 0, 20)
    assert statistics.merge([stats(1, 5), stats(1, 2, nans=1)]) == ColumnStats(None, None, 0, 4, 1, 20)
    assert statistics.merge([]) == ColumnStats(None, None, 0, 0, 0, 0)


def test_modes_choose_what_is_kept():
    fields = tuple(Field(i, f"c{i}", scalar(Kind.INT)) for i in range(4))
    found = {i: ColumnStats(1, 2, 3, 4, 5, 6) for i in range(4)}
    modes = [(StatsMode.NONE, 0), (StatsMode.COUNTS, 0), (StatsMode.TRUNCATE, 16), (StatsMode.FULL, 0)]
    assert statistics.trim(found, fields, modes) == {
        1: ColumnStats(None, None, 3, 4, 5, 6),
        2: ColumnStats(1, 2, 3, 4, 5, 6),
        3: ColumnStats(1, 2, 3, 4, 5, 6),
    }
    assert statistics.trim(found, fields, []) == found
