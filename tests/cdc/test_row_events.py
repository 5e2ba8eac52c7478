"""Rows of MySQL's log that are cut short."""

import pytest
from pymysqlreplication.constants import FIELD_TYPE

from lakeformat.cdc.row_events import LogColumn, decode
from lakeformat.errors import CorruptFile

COLUMNS = (LogColumn("id", FIELD_TYPE.LONG, 4), LogColumn("name", FIELD_TYPE.VARCHAR, prefix=1))
ROWS = [b"\0\7\0\0\0\3abc", b"\2\xff\xff\xff\xff", b"\xfd\1x", b"\0\0\0\0\0\0"]


def test_events_that_end_within_a_row_are_refused():
    whole = b"".join(ROWS)
    ends = [sum(map(len, ROWS[:count])) for count in range(len(ROWS) + 1)]
    for size in range(len(whole) + 1):
        if size in ends:
            found = decode([b"", whole[:size], whole], COLUMNS)
            count = ends.index(size)
            assert found.counts.tolist() == [0, count, 4]
            for name, values in (("id", [7, -1, None, 0]), ("name", ["abc", None, "x", ""])):
                assert found.arrays[name].to_pylist() == [*values[:count], *values]
        else:
            with pytest.raises(CorruptFile, match="beyond"):
                decode([whole[:size]], COLUMNS)
    with pytest.raises(CorruptFile):
        decode([b"\0\0\0\0\0\xff"], COLUMNS)
