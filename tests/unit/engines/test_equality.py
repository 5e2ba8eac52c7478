"""Equal rows, beside Python's own equality."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.engines.kernels.equality import equal

INTS, TEXTS = st.integers(-2, 2), st.sampled_from(["", "a", "b"])
KINDS = {
    "int": (pa.int32(), INTS),
    "text": (pa.string(), TEXTS),
    "list": (pa.list_(pa.int32()), st.lists(st.none() | INTS, max_size=2)),
    "lists": (pa.list_(pa.list_(pa.string())), st.lists(st.none() | st.lists(TEXTS, max_size=2), max_size=2)),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(TEXTS, st.none() | INTS, max_size=2).map(lambda held: sorted(held.items())),
    ),
    "row": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
        st.fixed_dictionaries({"a": st.none() | INTS, "b": st.none() | st.lists(TEXTS, max_size=2)}),
    ),
}


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_as_python_has_it(name, data):
    kind, values = KINDS[name]
    pairs = data.draw(st.lists(st.tuples(st.none() | values, st.none() | values), max_size=8))
    cut = data.draw(st.integers(0, len(pairs)))
    left, right = (pa.array([pair[i] for pair in pairs], kind).slice(cut) for i in (0, 1))
    assert equal(left, right).tolist() == [one == other for one, other in pairs[cut:]]


def test_nan_equals_nan():
    nan = float("nan")
    assert equal(pa.array([nan, nan, 1.0, None]), pa.array([nan, 1.0, nan, nan])).tolist() == [
        True,
        False,
        False,
        False,
    ]
