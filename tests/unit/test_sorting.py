"""Rows in order, with less memory than they need: against Python's own sort."""

import math
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat.engines import sorting


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
    rows = [(*KINDS[kind](chance), place) for place in range(900)]
    types = [pa.float64() if kind == "floats" else pa.int64(), pa.string(), pa.int64()]
    columns = [pa.array([row[i] for row in rows], types[i]) for i in range(3)]
    table = pa.table(columns, names=["a", "b", "place"])
    pieces = [table.slice(start, 70).combine_chunks().to_batches()[0] for start in range(0, 900, 70)]
    batches = [pa.RecordBatch.from_arrays([column.take(pa.array(range(len(column)))) for column in each], names=each.schema.names)
               for each in pieces]  # fmt: skip
    for by in (["a"], ["b", "a"]):
        found = pa.Table.from_batches(list(sorting.in_order(iter(batches), by, memory)), table.schema)
        places = {"a": 0, "b": 1}
        expected = sorted(rows, key=lambda row: [rank(row[places[name]]) for name in by])
        assert spelled(zip(*(column.to_pylist() for column in found), strict=True)) == spelled(expected), by


def test_rows_that_were_in_order_or_turned_round():
    for values in (range(5000), range(5000, 0, -1)):
        batches = [pa.record_batch({"a": pa.array(list(values)[i : i + 100])}) for i in range(0, 5000, 100)]
        found = pa.Table.from_batches(list(sorting.in_order(batches, ["a"], 4_000)))
        assert found["a"].to_pylist() == sorted(values)


def test_nothing_is_left_behind_and_nothing_is_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    batches = [pa.record_batch({"a": pa.array([i % 7] * 100)}) for i in range(50)]
    rows = sorting.in_order(batches, ["a"], 1_000)
    next(rows)
    assert list(tmp_path.iterdir())
    rows.close()
    assert list(tmp_path.iterdir()) == []
    assert list(sorting.in_order([], ["a"], 1_000)) == []
    assert not list(Path(tmp_path).rglob("*"))
