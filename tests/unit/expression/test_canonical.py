"""Bytes that are equal exactly if the values are: over the edge values of SQL's tests, and each layout of Arrow."""

import pyarrow as pa
import pytest

from lakeformat.expression import canonical
from tests.sql import spark_answers

TABLE = spark_answers.table()
SLICED = pa.array([[9], [1, 2], None, [], [None]], pa.list_(pa.int32()))[1:]
NANOSECONDS = pa.array([0, 1, -1, 999, 1000, -1000, None], pa.timestamp("ns", "UTC"))


@pytest.mark.parametrize("name", [name for name in TABLE.column_names if name.endswith("1")])
def test_bytes_are_equal_exactly_if_the_values_are(name):
    column = TABLE[name]
    found, texts = canonical.encoded(column), [repr(value) for value in column.to_pylist()]
    assert found.null_count == 0
    assert [[one == other for other in found] for one in found] == [[one == other for other in texts] for one in texts]


def test_the_layout_does_not_matter():
    plain = canonical.encoded(SLICED)
    for type in (pa.large_list(pa.int32()), pa.list_(pa.int64())):
        assert canonical.encoded(SLICED.cast(type)) == plain
    text = pa.array(["a", None, "b", "a"])
    assert canonical.encoded(text.dictionary_encode()) == canonical.encoded(text)
    assert canonical.encoded(pa.chunked_array([text[:1], text[1:]])) == canonical.encoded(text)


def test_moments_are_equal_in_each_unit():
    assert len(set(canonical.encoded(NANOSECONDS).to_pylist())) == len(NANOSECONDS)
    whole = NANOSECONDS.take(pa.array([0, 4, 5, 6]))
    assert canonical.encoded(whole) == canonical.encoded(whole.cast(pa.timestamp("us", "UTC")))


def test_parts_do_not_run_into_each_other():
    texts = [["a", "b"], ["ab"], ["a:1b"], [None], ["-"], [""], [], None, ["1:a"]]
    assert len(set(canonical.encoded(pa.array(texts)).to_pylist())) == len(texts)


def test_distinct_rows_have_bytes_in_place_of_values():
    table = pa.table({"x": [[1.0], [1.0], [float("nan")], [-0.0], [0.0], [float("nan")]], "n": [1, 1, 1, 1, 1, 2]})
    distinct = canonical.apart(table, {"x"})
    assert distinct["n"].to_pylist() == [1, 1, 1, 1, 2]
    assert distinct["x"].type == pa.binary()
    assert canonical.apart(table.slice(0, 0), {"x"}).num_rows == 0
