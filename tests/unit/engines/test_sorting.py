"""Rows in order, with less memory than they need: against Python's own sort."""

import math
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.engines.kernels import sorting
from lakeformat.expression import order


def in_order(batches, by, memory):
    """The rows of one batch at least, by texts of an order."""
    batches = list(batches)
    fields = fields_from_arrow(batches[0].schema)
    found = order.parse(by, fields, "sort_by")
    return sorting.in_order(iter(batches), found, fields, memory)


def rank(value):
    """Nulls first, NaN above all numbers."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def spelled(rows):
    return [tuple("NaN" if value != value else value for value in row) for row in rows]


KINDS = {
    "few": lambda chance: [chance.choice([None, 1, 2]), chance.choice("abc")],
    "one": lambda chance: [7, "same"],
    "mostly one": lambda chance: [chance.choice([3] * 50 + list(range(7))), chance.choice(["x", None])],
    "floats": lambda chance: [chance.choice([float("nan"), None, -0.5, chance.random()]), str(chance.randrange(9))],
    "texts": lambda chance: [chance.randrange(3), "".join(chance.choices("ab\u00e9\U0001f600", k=chance.randrange(6)))],
    "many": lambda chance: [chance.randrange(10**9), None],
}


@pytest.mark.parametrize("memory", [200, 3_000, 10**9])
@pytest.mark.parametrize("kind", KINDS)
def test_any_rows_come_in_order_and_equal_ones_as_they_were(kind, memory):
    chance = random.Random(f"{kind} {memory}")
    rows = [(*KINDS[kind](chance), index) for index in range(900)]
    types = [pa.float64() if kind == "floats" else pa.int64(), pa.string(), pa.int64()]
    columns = [pa.array([row[i] for row in rows], types[i]) for i in range(3)]
    table = pa.table(columns, names=["a", "b", "place"])
    pieces = [table.slice(start, 70).combine_chunks().to_batches()[0] for start in range(0, 900, 70)]
    batches = [pa.RecordBatch.from_arrays([column.take(pa.array(range(len(column)))) for column in piece], names=piece.schema.names)
               for piece in pieces]  # fmt: skip
    for by in (["a"], ["b", "a"]):
        found = pa.Table.from_batches(list(in_order(iter(batches), by, memory)), table.schema)
        places = {"a": 0, "b": 1}
        expected = sorted(rows, key=lambda row: [rank(row[places[name]]) for name in by])
        assert spelled(zip(*(column.to_pylist() for column in found), strict=True)) == spelled(expected), by


def test_rows_that_were_in_order_or_turned_round():
    for values in (range(5000), range(5000, 0, -1)):
        batches = [pa.record_batch({"a": pa.array(list(values)[i : i + 100])}) for i in range(0, 5000, 100)]
        found = pa.Table.from_batches(list(in_order(batches, ["a"], 4_000)))
        assert found["a"].to_pylist() == sorted(values)


def test_nothing_is_left_behind_and_nothing_is_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    batches = [pa.record_batch({"a": pa.array([i % 7] * 100)}) for i in range(50)]
    rows = in_order(batches, ["a"], 1_000)
    next(rows)
    assert list(tmp_path.iterdir())
    rows.close()
    assert list(tmp_path.iterdir()) == []
    assert list(sorting.in_order([], (), (), 1_000)) == []
    assert not list(Path(tmp_path).rglob("*"))


def java(value):
    """A value as Java compares it: -0.0 below 0.0, NaN above all, text by its bytes."""
    if isinstance(value, float):
        return (True,) if math.isnan(value) else (False, value, math.copysign(1, value))
    return value.encode() if isinstance(value, str) else value


VALUES = {
    "float": (pa.float64(), [None, float("nan"), -float("nan"), -0.0, 0.0, 1.5, -1.5, math.inf, -math.inf]),
    "text": (pa.string(), [None, "", "a", "ab", "\uffff", "\U0001f600", "b"]),
    "whole": (pa.int64(), [None, -(2**63), 2**63 - 1, 0, -1]),
    "bytes": (pa.binary(2), [None, b"\x00\xff", b"\xff\x00", b"\x7f\x00"]),
}


@pytest.mark.parametrize("memory", [3_000, 10**9])
@pytest.mark.parametrize("seed", range(12))
def test_directions_and_nulls_are_as_asked(seed, memory):
    chance = random.Random(seed)
    kinds = chance.sample(sorted(VALUES), 2)
    directions = [(chance.random() < 0.5, chance.random() < 0.5) for _ in kinds]
    rows = [(*(chance.choice(VALUES[kind][1]) for kind in kinds), index) for index in range(700)]
    arrays = [pa.array([row[i] for row in rows], VALUES[kind][0]) for i, kind in enumerate(kinds)]
    batches = pa.table([*arrays, range(700)], [*kinds, "place"]).to_batches(90)
    texts = [
        f"{kind} {'desc' if descending else 'asc'} nulls {'last' if last else 'first'}"
        for kind, (descending, last) in zip(kinds, directions, strict=True)
    ]
    found = [place for batch in in_order(batches, texts, memory) for place in batch["place"].to_pylist()]
    expected = rows
    for i, (descending, last) in reversed(list(enumerate(directions))):  # Stable sorts, the last key first.
        nulls = [row for row in expected if row[i] is None]
        known = sorted((r for r in expected if r[i] is not None), key=lambda r: java(r[i]), reverse=descending)
        expected = known + nulls if last else nulls + known
    assert found == [row[2] for row in expected]


@pytest.mark.parametrize("memory", [2_000, 10**9])
def test_transforms_and_parts_of_rows_order_too(memory):
    chance = random.Random(5)
    rows = [{"a": chance.choice([None, {"b": None}, {"b": chance.randrange(-50, 50)}]), "n": n} for n in range(500)]
    schema = pa.schema([("a", pa.struct([("b", pa.int32())])), ("n", pa.int64())])
    batches = pa.Table.from_pylist(rows, schema).to_batches(60)
    found = [
        row for batch in in_order(batches, ["truncate(10, a.b) desc", "n desc"], memory) for row in batch.to_pylist()
    ]

    def key(row):
        value = row["a"] and row["a"]["b"]
        return (value is None, 0 if value is None else -(value // 10), -row["n"])

    assert found == sorted(rows, key=key)
