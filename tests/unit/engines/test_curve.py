"""Keys along the z-order, against whole numbers whose bits are put in turn one by one, and along a Hilbert curve."""

import datetime
import math
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.engines.kernels import curve

EPOCH = datetime.date(1970, 1, 1)


def whole(value):
    return value + 2**63


def double(value):
    (bits,) = struct.unpack(">Q", struct.pack(">d", math.nan if math.isnan(value) else value))
    return bits ^ (2**64 - 1) if bits >> 63 else bits | 2**63


def first_bytes(value):
    return int.from_bytes((value.encode() if isinstance(value, str) else value)[:8].ljust(8, b"\0"))


KINDS = {
    "bool": (pa.bool_(), st.booleans(), lambda value: 0x81 << 56 if value else 0),
    "int8": (pa.int8(), st.integers(-128, 127), whole),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), whole),
    "float": (pa.float32(), st.floats(width=32), double),
    "double": (pa.float64(), st.floats(), double),
    "date": (pa.date32(), st.dates(), lambda value: whole((value - EPOCH).days)),
    "decimal": (
        pa.decimal128(12, 2),
        st.integers(-(10**6), 10**6).map(lambda n: Decimal(n) / 4),
        lambda value: double(float(value)),
    ),
    "text": (pa.string(), st.text(max_size=12), first_bytes),
    "bytes": (pa.binary(), st.binary(max_size=12), first_bytes),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3), first_bytes),
}


def in_turn(numbers):
    """The highest bit of each, then the next of each, ..."""
    found = 0
    for index in range(63, -1, -1):
        for number in numbers:
            found = found << 1 | (number >> index & 1)
    return found


@given(data=st.data())
def test_bits_take_turns(data):
    kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.tuples(*(st.none() | KINDS[kind][1] for kind in kinds)), max_size=12))
    start = data.draw(st.integers(0, len(rows)))
    columns = [pa.array([row[i] for row in rows], KINDS[kind][0]).slice(start) for i, kind in enumerate(kinds)]
    found = curve.interleaved(columns)
    assert found.type == pa.binary(8 * len(kinds))
    for key, row in zip(found.to_pylist(), rows[start:], strict=True):
        numbers = [0 if v is None else KINDS[kind][2](v) for kind, v in zip(kinds, row, strict=True)]
        assert int.from_bytes(key) == in_turn(numbers)


@pytest.mark.parametrize(
    "values",
    [
        [None, -math.inf, -1.5, -0.0, 0.0, 1e-300, 2.0, math.inf, math.nan],
        [None, Decimal("-3.50"), Decimal("0.00"), Decimal("0.01")],
        [None, datetime.datetime(1960, 1, 1), datetime.datetime(1970, 1, 1), datetime.datetime(2262, 1, 1)],
        [None, datetime.time(0, 0, 1), datetime.time(23)],
        ["", "a", "ab", "b", "\u00e9", "\U0001f600"],
    ],
)
def test_along_one_column_the_curve_is_its_order(values):
    keys = curve.interleaved([pa.array(values)]).to_pylist()
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_a_column_of_nothing_changes_nothing():
    x = pa.array(np.arange(50))
    keys = curve.interleaved([pa.nulls(50), x, pa.nulls(50, pa.string())]).to_pylist()
    assert keys == sorted(keys)
    assert curve.interleaved([pa.nulls(0), x[:0]]).to_pylist() == []


@pytest.mark.parametrize(("columns", "side"), [(1, 64), (2, 32), (3, 8)])
def test_neighbours_on_a_hilbert_curve_are_neighbours_in_space(columns, side):
    cells = np.stack([axis.ravel() for axis in np.meshgrid(*[np.arange(side)] * columns)])
    keys = curve.hilbert([pa.array(axis) for axis in cells]).to_pylist()
    assert len(set(keys)) == side**columns
    along = cells[:, sorted(range(len(keys)), key=keys.__getitem__)]
    assert (np.abs(np.diff(along, axis=1)).sum(axis=0) == 1).all()


def test_conditions_on_two_columns_read_fewer_files_along_a_hilbert_curve():
    side, rows_of_a_file, box = 128, 200, 12
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(side), np.arange(side)))
    touched = {}
    for along in (curve.interleaved, curve.hilbert):
        keys = along([pa.array(x), pa.array(y)]).to_pylist()
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__))
        starts = np.arange(0, len(order), rows_of_a_file)
        spans = [f.reduceat(axis[order], starts) for axis in (x, y) for f in (np.minimum, np.maximum)]
        touched[along.__name__] = sum(
            int(((spans[0] < i + box) & (spans[1] >= i) & (spans[2] < j + box) & (spans[3] >= j)).sum())
            for i in range(0, side, 7)
            for j in range(0, side, 7)
        )
    assert touched["hilbert"] < 0.9 * touched["interleaved"], touched


def test_rows_of_nothing_have_no_place_on_a_hilbert_curve():
    x = pa.array(np.arange(50))
    keys = curve.hilbert([x, pa.nulls(50)]).to_pylist()
    assert keys == sorted(keys)
    assert curve.hilbert([pa.nulls(0), x[:0]]).to_pylist() == []
