"""Row kernels: split, sort, keep, and deletes by position and by key."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec import numbers
from lakeformat.engines.kernels import rows
from lakeformat.engines.keyed.key_map import KeyMap
from lakeformat.model.schema import Field, Kind, scalar

FIELDS = (Field(1, "text", scalar(Kind.STRING)), Field(2, "number", scalar(Kind.INT)))
keys = st.lists(st.tuples(st.none() | st.sampled_from(["", "a", "b"]), st.none() | st.integers(0, 3)), max_size=60)


@given(keys)
def test_split_gives_each_row_once_with_its_like_in_order(pairs):
    batch = pa.record_batch({"text": pa.array([p[0] for p in pairs], pa.string()), "row": np.arange(len(pairs))})
    numbers = pa.array([p[1] for p in pairs], pa.int32())
    found = list(rows.split(batch, [batch.column("text"), numbers]))
    shown = [tuple(value.as_py() for value in values) for values, _ in found]
    assert shown == list(dict.fromkeys(pairs))
    for values, group in found:
        wanted = [index for index, pair in enumerate(pairs) if pair == tuple(value.as_py() for value in values)]
        assert group.column("row").to_pylist() == wanted


LIMITS = {
    pa.int8(): (-(1 << 7), (1 << 7) - 1),
    pa.int32(): (-(1 << 31), (1 << 31) - 1),
    pa.date32(): (-(1 << 31), (1 << 31) - 1),
    pa.int64(): (-(1 << 63), (1 << 63) - 1),
    pa.uint64(): (0, (1 << 64) - 1),
}


@given(st.data())
def test_integers_have_the_same_code_if_they_are_the_same_in_all_keys(data):
    columns, pairs = [], []
    count = data.draw(st.integers(0, 30))
    for _ in range(2):
        type = data.draw(st.sampled_from(list(LIMITS)))
        least, most = LIMITS[type]
        near = st.integers(0, data.draw(st.sampled_from([3, 127, 4095, 4096])))
        values = st.one_of(
            near.map(lambda n, least=least, most=most: min(least + n, most)),
            near.map(lambda n, least=least, most=most: max(most - n, least)),
            *([st.none()] if data.draw(st.booleans()) else []),
        )
        pairs.append(data.draw(st.lists(values, min_size=count, max_size=count)))
        integers = pa.array(pairs[-1], pa.int32() if type == pa.date32() else type)
        columns.append(integers.view(type))
    for keys in (columns[:1], columns):
        codes = rows.key_codes(keys).tolist()
        named = list(zip(*pairs[: len(keys)], strict=True))
        assert len(set(codes)) == len(set(named)) == len(set(zip(codes, named, strict=True)))


def test_split_without_keys_is_the_batch_itself():
    batch = pa.record_batch({"a": [1, 2]})
    assert [(key, group) for key, group in rows.split(batch, [])] == [((), batch)]
    assert list(rows.split(batch.slice(0, 0), [])) == []


def test_split_takes_many_keys_of_many_values():
    rng = np.random.default_rng(2)
    columns = [pa.array(rng.integers(0, 2**62, 500)) for _ in range(8)]
    batch = pa.record_batch({"row": np.arange(500)})
    found = list(rows.split(batch, columns))
    assert [group.column("row").to_pylist() for _, group in found] == [[i] for i in range(500)]


def test_a_small_group_does_not_keep_its_batch_in_memory():
    batch = pa.record_batch({"p": ["a"] * 99_990 + ["b"] * 10, "v": np.arange(100_000)})
    _, (_, small) = rows.split(batch, [batch.column("p")])
    assert small.get_total_buffer_size() < 2000


def test_keep_copies_nothing_when_all_rows_stay():
    batch = pa.record_batch({"a": [1, 2]})
    assert rows.keep(batch, pa.array([True, True])) is batch
    assert rows.keep(batch, pa.array([True, False])).to_pylist() == [{"a": 1}]
    assert rows.keep(batch.slice(0, 0), pa.array([], pa.bool_())).num_rows == 0


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 5), st.integers(1, 7))
def test_deleted_positions_are_left_out_of_every_batch(gone, first, size):
    values = pa.record_batch({"at": np.arange(first, first + len(gone))})
    positions = np.array([first + i for i, g in enumerate(gone) if g] + [first + len(gone) + 3], np.int64)
    left = []
    for start in range(0, len(gone), size):
        batch = values.slice(start, size)
        left += rows.apply_deletes(batch, first + start, positions).column(0).to_pylist()
    assert left == [first + i for i, g in enumerate(gone) if not g]


@given(keys, keys)
def test_a_key_set_knows_its_keys_and_null_equals_null(known, asked):
    def columns(pairs):
        return [pa.array([p[0] for p in pairs], pa.string()), pa.array([p[1] for p in pairs], pa.int32())]

    for width in (1, 2):
        found = rows.KeySet(FIELDS[:width], columns(known)[:width]).contains(columns(asked)[:width])
        assert found.tolist() == [a[:width] in {k[:width] for k in known} for a in asked]


floats = st.sampled_from([0.0, -0.0, 1.5, -math.inf, math.nan, -math.nan, None])  # -math.nan has other bits.


@pytest.mark.parametrize("type", [pa.float64(), pa.float32()])
@given(st.lists(floats, max_size=30), st.lists(floats, max_size=30))
def test_floats_are_told_apart_as_in_java(type, known, asked):
    def same(values):  # As java.lang.Double.equals.
        return [None if v is None else "NaN" if math.isnan(v) else str(v) for v in values]

    columns = [pa.array(known, type)]
    contained = [value in same(known) for value in same(asked)]
    assert rows.KeySet(FIELDS[:1], columns).contains([pa.array(asked, type)]).tolist() == contained
    batch = pa.record_batch({"row": np.arange(len(known))})
    groups = [group.column("row").to_pylist() for _, group in rows.split(batch, columns)]
    assert groups == [[i for i, v in enumerate(same(known)) if v == key] for key in dict.fromkeys(same(known))]
    firsts = [same(known).index(key) for key in dict.fromkeys(same(known))]
    key_map = KeyMap()
    assert key_map.add([columns[0].take(pa.array(firsts, pa.int64()))]).tolist() == list(range(len(firsts)))
    assert (key_map.find([pa.array(asked, type)]) >= 0).tolist() == contained


def test_a_batch_without_deleted_rows_is_not_copied():
    batch = pa.record_batch({"a": [1, 2]})
    assert rows.apply_deletes(batch, 0, np.array([], np.int64)) is batch
    assert rows.apply_deletes(batch, 5, np.array([3, 7])) is batch


@pytest.mark.parametrize("type", [np.int32, np.int64, np.uint64])
def test_numbers_are_distinct_and_among_others_as_numpy_has_it(type):
    random = np.random.default_rng(7)
    for size, spread in [(0, 1), (1, 1), (50, 10), (500, 10**6)]:
        values, others = (random.integers(0, spread, size).astype(type) for _ in range(2))
        assert np.array_equal(numbers.distinct(values), np.unique(values))
        assert numbers.distinct(values).dtype == type
        for against in (others, others[:0]):
            assert np.array_equal(numbers.among(values, np.sort(against)), np.isin(values, against))
