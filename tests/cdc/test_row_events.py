"""Rows of MySQL's log that are cut short, and JSON values of types that JSON lacks."""

import struct

import pytest
from pymysqlreplication.constants import FIELD_TYPE

from lakeformat.cdc.mysql.charsets import Charsets
from lakeformat.cdc.mysql.json_text import text
from lakeformat.cdc.mysql.row_events import LogColumn, decode
from lakeformat.errors import CorruptFile

UTF8 = Charsets(lambda charset, characters: [])
COLUMNS = (LogColumn("id", FIELD_TYPE.LONG, 4), LogColumn("name", FIELD_TYPE.VARCHAR, prefix=1))
ROWS = [b"\0\7\0\0\0\3abc", b"\2\xff\xff\xff\xff", b"\xfd\1x", b"\0\0\0\0\0\0"]


def test_events_that_end_within_a_row_are_refused():
    whole = b"".join(ROWS)
    ends = [sum(map(len, ROWS[:count])) for count in range(len(ROWS) + 1)]
    for size in range(len(whole) + 1):
        if size in ends:
            found = decode([b"", whole[:size], whole], COLUMNS, UTF8)
            count = ends.index(size)
            assert found.counts.tolist() == [0, count, 4]
            for name, values in (("id", [7, -1, None, 0]), ("name", ["abc", None, "x", ""])):
                assert found.arrays[name].to_pylist() == [*values[:count], *values]
        else:
            with pytest.raises(CorruptFile, match="beyond"):
                decode([whole[:size]], COLUMNS, UTF8)
    with pytest.raises(CorruptFile):
        decode([b"\0\0\0\0\0\xff"], COLUMNS, UTF8)


@pytest.mark.parametrize(
    ("type", "content", "expected"),
    [
        (FIELD_TYPE.NEWDECIMAL, b"\3\2\x81\x32", "1.50"),
        (FIELD_TYPE.NEWDECIMAL, b"\3\2\x7e\xcd", "-1.50"),
        (FIELD_TYPE.DATE, struct.pack("<q", ((2024 * 13 + 2) << 5 | 29) << 41), '"2024-02-29"'),
        (FIELD_TYPE.DATETIME, struct.pack("<q", 5 << 24 | 7), '"0000-00-00 00:00:05.000007"'),
        (FIELD_TYPE.TIME, struct.pack("<q", -(838 << 36 | 59 << 30)), '"-838:59:00.000000"'),
        (FIELD_TYPE.VAR_STRING, b"\0\xff", '"base64:type253:AP8="'),
    ],
)
def test_json_of_sql_types_is_text_as_the_server_shows_it(type, content, expected):
    assert text(bytes([15, type, len(content)]) + content) == expected
