"""Tables with a primary key: sections, levels, and which sorted runs are worth merging."""

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.dialects.paimon import scan
from lakeformat.dialects.paimon.compaction import Rules, pick
from lakeformat.model.schema import Schema

RULES = Rules.read(Schema(fields=()))

# (levels of the runs, their sizes, full) -> (runs merged, level of the result): UniversalCompactionTest's rules by hand.
PICKS = [
    (([], [], True), None),
    (([5], [10], True), None),
    (([0], [10], True), (1, 5)),
    (([3], [10], True), (1, 5)),
    (([0, 0, 5], [1, 1, 100], True), (3, 5)),
    (([0] * 4, [1] * 4, False), None),
    (([0] * 5, [1] * 5, False), (5, 5)),  # All others are more than twice the oldest.
    (([0, 0, 0, 0, 5], [1, 1, 1, 1, 100], False), (4, 4)),  # Sizes alike, and the oldest much larger.
    (([0, 0, 0, 3, 5], [1, 1, 1, 50, 1000], False), (3, 2)),
    (([0, 0, 0, 1, 5], [1, 1, 1, 50, 1000], False), (4, 4)),  # Level 1 goes along whatever its size.
    (([0, 0, 0, 0, 0, 5], [1, 10, 100, 1000, 10**4, 10**6], False), (5, 4)),  # Nothing alike, but too many runs.
    (([0, 3, 4, 5], [1, 10, 100, 1000], False), None),
]


@pytest.mark.parametrize(("given", "picked"), PICKS)
def test_sorted_runs_are_picked_as_java_picks_them(given, picked):
    levels, sizes, full = given
    assert pick(np.array(levels, int), np.array(sizes, int), RULES, full) == picked


def test_whatever_is_picked_leaves_the_levels_in_order():
    """The result lies above level 0 and below nothing that is newer: on no level that a run beyond it has."""
    for seed in range(3000):
        chance = random.Random(seed)
        count = chance.randint(1, 9)
        above = sorted(chance.sample(range(1, 6), chance.randint(0, 4)))
        levels = [0] * count + above
        sizes = [chance.choice([1, 5, 20, 1000]) for _ in levels]
        rules = replace(RULES, levels=6, trigger=chance.randint(2, 6))
        found = pick(np.array(levels), np.array(sizes), rules)
        if found is None:
            assert len(levels) <= rules.trigger, seed
            continue
        taken, level = found
        assert 1 <= level <= 5, seed
        assert all(other > level for other in levels[taken:]), seed
        assert taken == len(levels) or level < 5, seed


# Levels of a section's files, their sequence numbers from and to -> whether rows that stand later are newer.
ORDERS = [
    ([0], [(0, 9)], True),
    ([5, 0, 0], [(0, 9), (10, 19), (20, 20)], True),
    ([5, 0, 0], [(0, 9), (10, 20), (20, 30)], False),
    ([0, 0], [(10, 19), (0, 9)], False),
    ([5, 5, 0], [(0, 90), (3, 80), (91, 99)], True),  # Those of a level above 0 have no key in common.
    ([5, 5, 0], [(0, 90), (3, 80), (85, 99)], False),
    ([5, 3, 3, 0], [(0, 9), (12, 30), (10, 11), (31, 31)], True),
    ([5, 3, 3, 0], [(0, 9), (12, 30), (9, 11), (31, 31)], False),
]


@pytest.mark.parametrize(("levels", "numbers", "ordered"), ORDERS)
def test_files_in_the_order_of_their_numbers_are_told_by_the_manifests(levels, numbers, ordered):
    least, greatest = np.array(numbers).T
    assert scan.in_order(np.array(levels), least, greatest) is ordered


def read_for_merging(table):
    return {field.name for task in table.scan().plan() for part in task.parts for field in part.fields}


@pytest.mark.parametrize(("properties", "numbered"), [({}, False), ({"sequence.field": "v"}, True)])
def test_numbers_are_read_only_where_files_do_not_stand_in_their_order(tmp_path, properties, numbered):
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    options = {"bucket": "1", **properties}
    table = Lake(str(tmp_path)).create_table("d.t", schema, format="paimon", primary_key=["id"], properties=options)
    for value in "abc":
        table.upsert(pa.table({"id": [1, 2], "v": [value, value]}))
    reading = table.scan()

    held = read_for_merging(table)
    assert held == {"id", "v", *(["_VALUE_KIND", "_SEQUENCE_NUMBER"] if numbered else [])}
    assert reading.to_arrow().sort_by("id").to_pylist() == [{"id": 1, "v": "c"}, {"id": 2, "v": "c"}]


def test_row_kinds_are_read_only_where_a_file_of_the_section_retracts_rows(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = Lake(str(tmp_path)).create_table("d.t", schema, primary_key=["id"], properties={"bucket": "1"})
    for value in "ab":
        table.upsert(pa.table({"id": [1, 2], "v": [value, value]}))
    assert read_for_merging(table) == {"id", "v"}
    assert table.scan(columns=["v"], where="v = 'b'").to_arrow().to_pylist() == [{"v": "b"}, {"v": "b"}]
    assert table.scan(columns=[]).to_arrow().num_rows == table.scan().count() == 2

    table.delete(where="id = 1")

    assert read_for_merging(table) == {"id", "v", "_VALUE_KIND"}
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "v": "b"}]
