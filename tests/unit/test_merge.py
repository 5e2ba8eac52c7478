"""The merge kernels against a model that takes one row at a time."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.engines.merge import merge
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.work import MergeSpec, SequenceGroup
from tests.unit import row_model

KINDS = st.sampled_from([0, 0, 0, 2, 1, 3])
SMALL = st.none() | st.integers(-2, 2)

SCHEMA = pa.schema(
    [
        ("k1", pa.int32()),
        ("k2", pa.string()),
        ("_SEQUENCE_NUMBER", pa.int64()),
        ("_VALUE_KIND", pa.int8()),
        ("s1", pa.int32()),
        ("s2", pa.string()),
        ("v", pa.string()),
    ]
)


def table_of(rows, schema=SCHEMA, pieces=1):
    """Rows as a table of several chunks, as files give them."""
    step = max(1, -(-len(rows) // pieces))
    parts = [pa.Table.from_pylist(rows[at : at + step], schema) for at in range(0, len(rows), step)]
    return pa.concat_tables(parts) if parts else schema.empty_table()


@st.composite
def key_rows(draw):
    """Rows of few keys, with sequence numbers that are each given once."""
    count = draw(st.integers(0, 24))
    numbers = draw(st.permutations(range(count)))
    return [
        {
            "k1": draw(st.integers(-1, 1)),
            "k2": draw(st.sampled_from(["", "a", "é", "z"])),
            "_SEQUENCE_NUMBER": numbers[i],
            "_VALUE_KIND": draw(KINDS),
            "s1": draw(SMALL),
            "s2": draw(st.none() | st.sampled_from(["a", "b"])),
            "v": draw(st.none() | st.sampled_from("xyz")),
        }
        for i in range(count)
    ]


@given(
    rows=key_rows(),
    engine=st.sampled_from(["deduplicate", "first-row"]),
    key=st.sampled_from([("k1",), ("k2",), ("k1", "k2")]),
    sequence=st.sampled_from([(), ("s1",), ("s2", "s1")]),
    descending=st.booleans(),
    ignore_delete=st.booleans(),
    pieces=st.integers(1, 3),
)
def test_one_row_of_each_key_is_kept(rows, engine, key, sequence, descending, ignore_delete, pieces):
    spec = MergeSpec(key, engine, sequence, not descending, ignore_delete)
    expected = row_model.merge(rows, spec)
    if expected is None:
        with pytest.raises(UnsupportedFeature, match="ignore-delete"):
            merge(table_of(rows, pieces=pieces), spec)
    else:
        found = merge(table_of(rows, pieces=pieces), spec)
        assert found.schema == SCHEMA
        assert found.to_pylist() == expected


def test_of_equal_sequence_numbers_the_later_file_wins():
    rows = [{"k1": 1, "k2": "", "_SEQUENCE_NUMBER": 7, "_VALUE_KIND": 0, "s1": None, "s2": None, "v": v} for v in "abc"]
    assert merge(table_of(rows, pieces=3), MergeSpec(("k1",))).column("v").to_pylist() == ["c"]


def test_an_engine_nobody_knows_is_refused_by_name():
    with pytest.raises(UnsupportedFeature, match="'last-row'"):
        merge(SCHEMA.empty_table(), MergeSpec(("k1",), "last-row"))


def test_a_projection_keeps_what_merging_needs():
    groups = (SequenceGroup(("g",), ("a", "b")), SequenceGroup(("h",), ("c",), removes_record=True))
    spec = MergeSpec(("k",), "partial-update", ("s",), groups=groups)
    assert spec.needed(["a"]) == ("a", "s", "g", "h")
    assert spec.needed(["z"]) == ("z", "s", "h")
