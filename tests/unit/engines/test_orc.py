"""ORC files on which Arrow's reader ends the process: maps with a null as key, which Hive and Paimon write."""

import base64
import io
import textwrap

import pyarrow as pa
import pytest
from pyarrow import orc as arrow_orc

from lakeformat.engines.files import orc
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.schema import Field, Kind, MapOf, scalar

# struct<id:int,attrs:map<string,int>> with the one row (1, {NULL: 30}), written by ORC's Java library.
NULL_KEY = base64.b64decode(
    textwrap.dedent("""
    T1JDEQAACgYSBAgBUAArAAAKEwoDAAAAEgwIARIGCAIQAhgCUAAjAAAKDwoDAAAAEggIAVAAYgIYACQAAOMS5eJkgAEhDg4GJSYJhgBGACsAAA
    oTCgMAAAASDAgBEgYIPBA8GDxQAAcAAEIAgAcAAEAAgAUAAP8ABwAATgA8iAAAbcnBCYBADETRbBKDrBcRhcF2bEH7b8XZAW9e5pH8XnOthqUP
    GyAduwwcMvVv7EWdfWjsk+6AqX8makt24/rfnvHc1wtcAADjMuNi4WAMYODi4WAUYuNgEmCSYALyOEBiSUwSIBaDEpAOYISqsBGwkbAJYAAA7A
    AA42AWOMQoxcXBLJAiIa7grsGoJM7BI8TEyCTFlJkixZpYUlJUrMCgwWDAoMTBwQxl8XBwCzExs8DF2dFVGDBasXAwBjBY8XAwCrFxMAkwSTAB
    eRwgsSQmCRCLQQlIBzBCVdgI2EjYBDA4TPDzYExiNdIz1jMEAAh5EAEYgIAEIgIADCgxMAaC9AMDT1JDFw==
    """)
)
ID = Field(-1, "id", scalar(Kind.INT))
ATTRS = Field(-1, "attrs", MapOf(Field(-1, "key", scalar(Kind.STRING)), Field(-1, "value", scalar(Kind.INT))))


def varint(number):
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def encoded(messages):
    """A protocol buffer."""
    parts = []
    for number, value in messages:
        if isinstance(value, int):
            parts.append(varint(number << 3) + varint(value))
        else:
            parts.append(varint(number << 3 | 2) + varint(len(value)) + value)
    return b"".join(parts)


def without_has_null(data):
    """The file as old writers leave it: no column says whether it has nulls."""
    footer, _ = orc._footer(io.BytesIO(data))
    kept = []
    for number, message in orc._messages(footer):
        if number == 7:
            message = encoded((at, value) for at, value in orc._messages(message) if at != 10)
        kept.append((number, message))
    plain = encoded(kept)
    chunk = (len(plain) << 1 | 1).to_bytes(3, "little") + plain  # Stored, not compressed.
    postscript = data[-1 - data[-1] : -1]
    numbers = list(orc._messages(postscript))
    begin = len(data) - 1 - data[-1] - dict(numbers)[1]
    tail = encoded((at, len(chunk) if at == 1 else value) for at, value in numbers)
    return data[:begin] + chunk + tail + bytes([len(tail)])


def rows(data, *fields):
    file = orc.File(pa.BufferReader(data), "x.orc")
    return [row for _, batch in file.batches(fields, None, 1000) for row in batch.to_pylist()]


@pytest.mark.parametrize("change", [bytes, without_has_null])
def test_a_null_as_key_of_a_map_is_refused(change):
    data = change(NULL_KEY)
    assert rows(data, ID) == [{"id": 1}]
    for fields in ((ATTRS,), (ID, ATTRS)):
        with pytest.raises(UnsupportedFeature, match=r"x\.orc: column attrs has a map with a null as key"):
            rows(data, *fields)


@pytest.mark.parametrize("compression", ["zlib", "snappy", "zstd", "uncompressed"])
def test_maps_without_such_keys_are_read(compression):
    kind = pa.map_(pa.string(), pa.int32())
    values = [[("a", 1), ("b", None)], None, [], [("c", 3)]]
    nested = [[{"m": value}] for value in values]
    table = pa.table(
        {"id": pa.array(range(4), pa.int32()), "attrs": pa.array(values, kind), "n": nested},
        pa.schema([("id", pa.int32()), ("attrs", kind), ("n", pa.list_(pa.struct([("m", kind)])))]),
    )
    sink = io.BytesIO()
    arrow_orc.write_table(table, sink, compression=compression)
    assert [row["attrs"] for row in rows(sink.getvalue(), ID, ATTRS)] == values
    assert orc._null_key(io.BytesIO(sink.getvalue()), None) is None


def test_of_an_old_writers_file_the_streams_tell():
    values = [[("a", 1), ("b", None)], None, [("c", 3)]]
    sink = io.BytesIO()
    arrow_orc.write_table(
        pa.table({"attrs": pa.array(values, pa.map_(pa.string(), pa.int32()))}), sink, compression="zlib"
    )
    assert [row["attrs"] for row in rows(without_has_null(sink.getvalue()), ATTRS)] == values
