"""How rows of a table are compared with those of its source."""

import pyarrow as pa

from lakeformat.cdc import comparison


def _rows(*rows):
    return pa.table({"id": [row[0] for row in rows], "v": [row[1] for row in rows]})


def test_rows_that_differ_are_new_or_have_other_values():
    there = _rows((1, "a"), (2, None), (3, "c"), (4, None), (9, "gone")).append_column("own", pa.array(range(5)))
    found = comparison.difference(there, _rows((5, "new"), (4, None), (3, "d"), (2, "b"), (1, "a")), ["id"])
    assert found.before.to_pylist() == [{"id": 2, "v": None, "own": 1}, {"id": 3, "v": "c", "own": 2}]
    assert found.after.to_pylist() == [{"id": 2, "v": "b", "own": 1}, {"id": 3, "v": "d", "own": 2}]
    assert (found.new.to_pylist(), found.same_keys) == ([{"id": 5, "v": "new"}], 4)
    empty = comparison.difference(there, _rows().cast(pa.schema({"id": pa.int64(), "v": pa.string()})), ["id"])
    assert (empty.before.num_rows, empty.new.num_rows, empty.same_keys) == (0, 0, 0)


def test_keys_that_the_source_lacks_are_found_a_part_at_a_time():
    there = pa.table({"a": [f"k{n}" for n in range(500)], "b": pa.array(range(500), pa.int64())})
    shown, calls = there.filter(pa.array([n % 7 != 0 for n in range(500)])), []

    def read(rows):
        calls.append(rows)
        return (rows.slice(start, 100) for start in range(0, rows.num_rows, 100))

    for size, parts in ((1000, 1), (100, 6)):
        calls.clear()
        found = list(comparison.surplus(lambda: read(there), lambda: read(shown), ["a", "b"], 500, size))
        assert (len(found), len(calls)) == (parts, 2 * parts)
        assert sorted(pa.concat_tables(found)["b"].to_pylist()) == list(range(0, 500, 7))
    dates = there.set_column(0, "a", there["b"].cast(pa.timestamp("us", "UTC")))
    found = comparison.surplus(lambda: iter([dates]), lambda: iter([dates.slice(2)]), ["a", "b"], 500, 100)
    assert pa.concat_tables(found)["b"].to_pylist() == [0, 1]
    assert comparison.matching(there, there.select(["b"]).slice(3, 2))["a"].to_pylist() == ["k3", "k4"]
