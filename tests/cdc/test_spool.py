"""What a sync keeps on disk comes back as it was, and little of it is in memory."""

import pyarrow as pa
import pytest

from lakeformat.cdc.spool import Messages, Rows


@pytest.mark.parametrize("memory_bytes", [None, 100, 10])
def test_messages_come_back_in_pieces(memory_bytes):
    messages, given = Messages(memory_bytes), [bytes([n]) * (n % 7) for n in range(200)]
    for message in given:
        messages.append(message)
        assert memory_bytes is None or len(messages.data) <= memory_bytes
    messages.finish()
    ranges = messages.ranges(50)
    assert [first for first, _ in ranges[1:]] == [end for _, end in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, 200)
    read = []
    for first, end in ranges:
        data, starts = messages.read(first, end)
        assert 0 < end - first <= 50
        assert memory_bytes is None or sum(map(len, given[first:end])) <= memory_bytes
        read += [
            bytes(data[at : at + size])
            for at, size in zip(starts.tolist(), messages.lengths[first:end].tolist(), strict=True)
        ]
    assert read == given
    messages.close()


def test_rows_come_back_with_the_columns_of_all():
    rows = Rows()
    rows.append(pa.table({"a": [1, 2], "where": ["x", "y"], "rowkind": ["+I", "-D"]}))
    rows.append(pa.table({"a": [3], "b": ["new"], "where": ["x"], "rowkind": ["+U"]}))
    assert (rows.num_rows, dict(rows.counts)) == (3, {"+I": 1, "-D": 1, "+U": 1})
    (first, second) = rows.batches(lambda table: table.set_column(0, "a", table["a"].cast(pa.int32())))
    assert first.schema == second.schema
    assert [first["b"].to_pylist(), second["b"].to_pylist()] == [[None, None], ["new"]]
    rows.drop({"where": "x"})
    assert [table["a"].to_pylist() for table in rows.tables()] == [[2]]
    rows.append(pa.table({"a": [4], "where": ["y"], "rowkind": ["+I"]}))
    assert [table["a"].to_pylist() for table in rows.tables()] == [[2], [4]]
    rows.drop({})
    assert (rows.num_rows, list(rows.tables())) == (0, [])
    rows.close()
