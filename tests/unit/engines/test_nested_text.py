"""Defaults of arrays, maps and rows as text: what Java's cast rules read them as, and what SQL writes."""

import pyarrow as pa
import pytest

from lakeformat import InvalidInput
from lakeformat.engines.kernels import nested_text
from lakeformat.model.type_text import parse_type


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("[tag1, tag2]", "array<string>", ["tag1", "tag2"]),
        (" [ 1 ,null, 3 ] ", "array<int>", [1, None, 3]),
        ("[]", "array<int>", []),
        ("ARRAY(1, 2)", "array<int>", [1, 2]),
        ("array()", "array<int>", []),
        ("ARRAY('a', 'b')", "array<string>", ["'a'", "'b'"]),  # Java keeps the quotes (SparkWriteITCase).
        ('["a, b", c]', "array<string>", ['"a, b"', "c"]),
        ("[[1, 2], [], [3]]", "array<array<int>>", [[1, 2], [], [3]]),
        ("{a -> 1, b -> null}", "map<string, int>", [("a", 1), ("b", None)]),
        ('{"a,b" -> 1}', "map<string, int>", [("a,b", 1)]),
        ("MAP(a, 1, b, 2)", "map<string, int>", [("a", 1), ("b", 2)]),
        ("{1 -> [2, 3]}", "map<int, array<int>>", [(1, [2, 3])]),
        ("{42, x}", "struct<n: int, s: string>", {"n": 42, "s": "x"}),
        ("STRUCT(42, null)", "struct<n: int, s: string>", {"n": 42, "s": None}),
        ("{}", "struct<n: int, s: string>", {"n": None, "s": None}),
        ("[{1, 2020-01-02}]", "array<struct<n: int, d: date>>", None),
    ],
)
def test_text_is_read_as_java_reads_it(text, type, value):
    array = nested_text.parse(text, parse_type(type), "c")
    assert len(array) == 1
    if value is not None:
        assert array.to_pylist() == [value]
        return
    assert nested_text.emit(array[0]) == text


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("tag", "array<string>"), ("[a]", "array<int>"), ("{a}", "map<string, int>"), ("MAP(a)", "map<string, int>"),
        ("{1}", "struct<n: int, s: string>"), ("[1, 2", "array<int>"), ("{1 -> }", "map<int, int>"),
    ],
)  # fmt: skip
def test_text_that_is_no_value_is_refused(text, type):
    with pytest.raises(InvalidInput):
        nested_text.parse(text, parse_type(type), "c")


@pytest.mark.parametrize("part", ["a,b", "", " a", "null", "[", "'q'", 'a"b', "a -> b", "back\\slash", b"bytes"])
def test_a_part_that_would_be_read_otherwise_is_refused(part):
    with pytest.raises(InvalidInput, match="inside a default"):
        nested_text.emit(pa.scalar([part]))
