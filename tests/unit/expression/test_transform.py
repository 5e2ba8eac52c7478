"""Partition transforms and single values against the vectors of Iceberg's specification."""

import datetime
import random
import uuid
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest

from lakeformat import InvalidInput
from lakeformat.codec import murmur
from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.iceberg import single_value
from lakeformat.expression import transform
from lakeformat.model.partition import Transform, TransformKind
from lakeformat.model.schema import Kind, result_type, scalar

INT, BIGINT, STRING, BYTES, DATE = (scalar(k) for k in (Kind.INT, Kind.BIGINT, Kind.STRING, Kind.BYTES, Kind.DATE))
FLOAT, DOUBLE, UUID = scalar(Kind.FLOAT), scalar(Kind.DOUBLE), scalar(Kind.UUID)
MONEY, INSTANT = scalar(Kind.DECIMAL, 9, 2), scalar(Kind.TIMESTAMP, 6)
EVENING = datetime.datetime(2017, 11, 16, 22, 31, 8)


def of(kind, number, values, type):
    return transform.apply(Transform(TransformKind(kind), number), pa.array(values, to_arrow(type)), type).to_pylist()


@pytest.mark.parametrize(
    ("type", "value", "hashed"),
    [
        (INT, 34, 2017239379),
        (BIGINT, 34, 2017239379),
        (DATE, datetime.date(2017, 11, 16), -653330422),
        (INSTANT, EVENING, -2047944441),
        (MONEY, Decimal("14.20"), -500754589),
        (STRING, "iceberg", 1210000089),
        (BYTES, bytes([0, 1, 2, 3]), -188683207),
        (UUID, uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
    ],
    ids=lambda v: str(v)[:20],
)
def test_buckets_are_those_of_the_specification(type, value, hashed):
    for count in (1, 7, 16, 2**31 - 1):
        expected = (hashed & 0x7FFFFFFF) % count
        assert of("bucket", count, [value, None, value], type) == [expected, None, expected]


def test_an_int_is_hashed_as_a_long():
    number = np.arange(-50, 50)
    wide = murmur.murmur3_32(single_value.encode(pa.array(number), BIGINT))
    assert (
        of("bucket", 2**31 - 1, number.tolist(), INT) == ((wide.astype(np.int64) & 0x7FFFFFFF) % (2**31 - 1)).tolist()
    )


@pytest.mark.parametrize(
    ("type", "width", "values", "cut"),
    [
        (INT, 10, [1, -1, 10, -10, -11, 0, None], [0, -10, 10, -10, -20, 0, None]),
        (BIGINT, 10, [2**62, -1], [2**62 - 2**62 % 10, -10]),
        (MONEY, 50, [Decimal("10.65"), Decimal("-0.01"), None], [Decimal("10.50"), Decimal("-0.50"), None]),
        (STRING, 3, ["iceberg", "ic", "", "😀日é!", None], ["ice", "ic", "", "😀日é", None]),
        (BYTES, 2, [b"\x01\x02\x03", b"\x01", None], [b"\x01\x02", b"\x01", None]),
    ],
    ids=lambda v: str(v)[:20],
)
def test_truncation_is_that_of_the_specification(type, width, values, cut):
    assert of("truncate", width, values, type) == cut


def test_times_are_counted_downwards_from_1970():
    days = [
        datetime.date(2017, 12, 1),
        datetime.date(1970, 1, 1),
        datetime.date(1969, 12, 31),
        datetime.date(1969, 1, 1),
        None,
    ]
    assert of("year", None, days, DATE) == [47, 0, -1, -1, None]
    assert of("month", None, days, DATE) == [575, 0, -1, -12, None]
    assert of("day", None, days, DATE) == days
    moments = [datetime.datetime(2017, 12, 1, 10, 12, 55), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), None]
    assert of("year", None, moments, INSTANT) == [47, -1, None]
    assert of("month", None, moments, INSTANT) == [575, -1, None]
    assert of("day", None, moments, INSTANT) == [datetime.date(2017, 12, 1), datetime.date(1969, 12, 31), None]
    assert of("hour", None, moments, INSTANT) == [420034, -1, None]
    assert of("void", None, [1, None], INT) == [None, None]
    assert of("identity", None, [1, None], INT) == [1, None]


@pytest.mark.parametrize(
    ("kind", "number", "type", "error"),
    [
        ("bucket", 4, DOUBLE, InvalidInput), ("bucket", 0, INT, InvalidInput), ("truncate", 4, DATE, InvalidInput),
        ("hour", None, DATE, InvalidInput), ("year", None, STRING, InvalidInput),
        ("truncate", 2**31, scalar(Kind.DECIMAL, 30, 2), InvalidInput),
    ],
)  # fmt: skip
def test_what_a_transform_does_not_take_is_refused(kind, number, type, error):
    with pytest.raises(error, match=kind):
        result_type(Transform(TransformKind(kind), number), type, "x")


@pytest.mark.parametrize(
    ("type", "value", "data"),
    [
        (scalar(Kind.BOOLEAN), True, "01"),
        (INT, -2, "feffffff"),
        (BIGINT, 34, "2200000000000000"),
        (FLOAT, 1.0, "0000803f"),
        (DOUBLE, 1.0, "000000000000f03f"),
        (DATE, datetime.date(2017, 11, 16), "4e440000"),
        (INSTANT, EVENING, "00c3262d215e0500"),
        (STRING, "iceberg", "69636562657267"),
        (BYTES, b"\x00\xff", "00ff"),
        (MONEY, Decimal("14.20"), "058c"),
        (MONEY, Decimal("-1.28"), "80"),
        (MONEY, Decimal("1.28"), "0080"),
        (UUID, uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, "f79c3e09677c4bbda4793f349cb785e7"),
    ],
    ids=lambda v: str(v)[:20],
)
def test_single_values_there_and_back(type, value, data):
    values = pa.array([value, None, value], to_arrow(type))
    found = single_value.encode(values, type)
    assert [None if v is None else v.hex() for v in found.to_pylist()] == [data, None, data]
    assert single_value.decode(found, type).equals(values)
    assert single_value.encode(values.slice(2), type).to_pylist() == [bytes.fromhex(data)]
    assert single_value.decode(found.slice(1), type).to_pylist() == values.slice(1).to_pylist()


def test_bounds_written_before_a_column_was_widened_are_read():
    assert single_value.decode(pa.array([b"\xfe\xff\xff\xff", bytes(8)]), BIGINT).to_pylist() == [-2, 0]
    assert single_value.decode(pa.array([b"\x00\x00\x80\x3f"]), DOUBLE).to_pylist() == [1.0]


def test_bytes_that_no_such_value_has_are_unknown():
    assert single_value.decode(pa.array([b"\x01\x02", b"", None]), BIGINT).to_pylist() == [None] * 3
    assert single_value.decode(pa.array([b"", bytes(17)]), MONEY).to_pylist() == [None] * 2
    assert single_value.decode(pa.array([b"\xff\xfe"]), STRING).to_pylist() == [None]


def test_decimals_of_any_size_are_truncated_as_whole_numbers():
    rng = random.Random(7)
    for width in (1, 10, 50, 2**31 - 1):
        for precision, scale in ((9, 2), (18, 0), (19, 4), (38, 10), (38, 0)):
            whole = [rng.randrange(-(10**precision) + 1, 10**precision) for _ in range(200)]
            whole += [
                0,
                -1,
                1,
                width % 10**precision,
                -width % 10**precision,
                2**63 % 10**precision,
                -(2**64) % 10**precision,
                10**precision - 1,
            ]
            kind = pa.decimal128(precision, scale)
            with localcontext(prec=60):
                values = [Decimal(number).scaleb(-scale) for number in whole]
                expected = [Decimal(number - number % width).scaleb(-scale) for number in whole]
            cut = transform.apply(
                Transform(TransformKind.TRUNCATE, width),
                pa.array([*values, None], kind),
                scalar(Kind.DECIMAL, precision, scale),
            )
            in_range = [i for i, value in enumerate(expected) if abs(value.scaleb(scale)) < 10**precision]
            found = cut.to_pylist()
            assert [found[i] for i in in_range] == [expected[i] for i in in_range], (width, precision)
            assert found[-1] is None


MICROS, NANOS = scalar(Kind.TIMESTAMP, 6), scalar(Kind.TIMESTAMP, 9)
REACH = {INT: 32, DATE: 32, BIGINT: 64, MICROS: 64, NANOS: 64}


def java_int(number, bits=32):
    return (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def java_rest(number, width):
    return abs(number) % width * (-1 if number < 0 else 1)


@pytest.mark.parametrize("width", [1, 3, 7, 64, 1000, 2**30, 2**30 + 1, 2**31 - 1])
def test_ints_are_truncated_as_java_does_it(width):
    values = [*range(-(2**31), -(2**31) + 9), -width, -1, 0, 1, width, *range(2**31 - 9, 2**31)]
    values = [value for value in values if -(2**31) <= value < 2**31]
    rests = [java_rest(java_int(java_rest(value, width) + width), width) for value in values]
    assert of("truncate", width, values, INT) == [java_int(v - r) for v, r in zip(values, rests, strict=True)]


def numbers(type, values):
    whole = pa.array(values, pa.int32() if REACH[type] == 32 else pa.int64())
    return whole.cast(to_arrow(type))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("type", REACH, ids=str)
def test_a_value_lies_between_what_its_partition_says(type, exact):
    """Also at both ends of a type, and where a partition's values are known from here to there only."""
    seed = random.randrange(2**32)
    chance, most = random.Random(seed), 2 ** (REACH[type] - 1) - 1
    steps = [chance.randrange(5000) for _ in range(20)] + [chance.randrange(most) for _ in range(20)]
    values = [v for s in steps for v in (-most - 1 + s, most - s, s, -s)]
    whole = pa.int32() if REACH[type] == 32 else pa.int64()
    if type in (INT, BIGINT):
        kinds = [Transform(TransformKind.TRUNCATE, width) for width in (1, 3, 7, 64, 1000, 2**30, 2**31 - 1)]
    else:
        kinds = [Transform(TransformKind(kind)) for kind in ("year", "month", "day", "hour")][
            : 3 if type == DATE else 4
        ]
    for bucketing in kinds:
        made = transform.apply(bucketing, numbers(type, values), type)
        low, high = (end.cast(whole).to_pylist() for end in transform.between(bucketing, made, made, type, exact))
        order = pa.compute.array_sort_indices(made)
        wide = transform.between(bucketing, made.take(order[:1]), made.take(order[-1:]), type, exact)
        least, greatest = (end.cast(whole)[0].as_py() for end in wide)
        for value, a, b in zip(values, low, high, strict=True):
            said = f"seed {seed}: {bucketing} of {value}: {a} to {b}, all together {least} to {greatest}"
            assert all(end is None or end <= value for end in (a, least)), said
            assert all(end is None or end >= value for end in (b, greatest)), said


def test_the_lowest_ints_are_known_by_the_number_they_are_cut_to():
    ten = Transform(TransformKind.TRUNCATE, 10)
    for type, bits in ((INT, 32), (BIGINT, 64)):
        floor = -(2 ** (bits - 1))
        made = transform.apply(ten, numbers(type, [floor, floor + 9, 0]), type)
        low, high = transform.between(ten, made, made, type)
        rest = floor % 10
        assert made.to_pylist()[0] == floor - rest + 2**bits
        assert low.to_pylist() == [floor, floor - rest + 10, 0]
        assert high.to_pylist() == [floor - rest + 9, floor - rest + 19, 9]
