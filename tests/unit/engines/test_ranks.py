"""Values as numbers that sort as Paimon's do."""

import datetime
import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.engines.kernels import ranks

DECIMALS = st.decimals(-(10**6), 10**6, places=2).map(lambda value: value + 0)
KINDS = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time32("ms"), st.times().map(lambda t: t.replace(microsecond=0))),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(datetime.UTC))),
    "decimal": (pa.decimal128(12, 2), DECIMALS),
    "long decimal": (pa.decimal128(38, 2), DECIMALS),
    "string": (pa.string(), st.text(max_size=3)),
    "binary": (pa.binary(), st.binary(max_size=3)),
}


def java_key(value):
    """A Python value as something that sorts as Java's comparator sorts it, nulls first."""
    if value is None:
        return (0,)
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value) > 0)
    return (1, value)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_rows_sort_by_rank_as_java_sorts_them(kind, data):
    type, values = KINDS[kind]
    drawn = data.draw(st.lists(st.tuples(st.none() | values, st.none() | values), max_size=30))
    descending = data.draw(st.tuples(st.booleans(), st.booleans()))
    columns = [pa.chunked_array([pa.array([row[i] for row in drawn], type)]) for i in range(2)]
    found = ranks.ranks(columns, descending)
    order = list(np.argsort(found, kind="stable"))
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))

    expected = list(range(len(rows)))
    for place in (1, 0):  # Stable sorts, the last key first.
        nulls = [i for i in expected if rows[i][place] is None]
        known = [i for i in expected if rows[i][place] is not None]
        known.sort(key=lambda i: java_key(rows[i][place]), reverse=descending[place])
        if descending[place]:  # A reversed sort keeps the order of what is equal, as it must.
            assert known == sorted(known, key=lambda i: java_key(rows[i][place]), reverse=True)
        expected = nulls + known
    assert order == expected
    for a in range(len(rows)):
        for b in range(len(rows)):
            equal = [java_key(v) for v in rows[a]] == [java_key(v) for v in rows[b]]
            assert (found[a] == found[b]) == equal


def test_ranks_of_many_wide_columns_still_fit():
    rng = np.random.default_rng(3)
    columns = [pa.chunked_array([rng.integers(-(2**63), 2**63 - 1, 200)]) for _ in range(9)]
    tuples = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert list(np.argsort(ranks.ranks(columns))) == sorted(range(200), key=tuples.__getitem__)


def test_every_nan_is_one_value():
    other = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
    found = ranks.ranks([pa.chunked_array([pa.array([float("nan"), other, -float("nan"), math.inf])])])
    assert found[0] == found[1] == found[2] > found[3]
