"""One event is one line of the log, whatever ids, names and values it tells of."""

import io
import logging

import pyarrow as pa
import pytest

from lakeformat import Lake, LakeError
from lakeformat.model.log import escaped, log

BREAKS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1b[2K", "\x85", "\u2028", "\u2029", "\x00", "\x9b"]
FORGED = "ERROR forged: table dropped"


@pytest.fixture
def written():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.parametrize("breaks", BREAKS)
def test_what_users_name_stays_on_the_line_that_tells_of_it(tmp_path, written, breaks):
    text = f"x{breaks}{FORGED}"
    lake = Lake(tmp_path)
    for format in ("paimon", "iceberg"):
        schema = pa.schema([("id", pa.int64()), ("dt", pa.string())])
        table = lake.create_table(f"{format}.t", schema, format=format, partition_by=["dt"])
        for verb in (
            lambda t: t.append(pa.table({"id": [1], "dt": [text]}), id=text, properties={"k": text}),
            lambda t: t.append(pa.table({"id": [1], "dt": [text]}), id=text),
            lambda t: t.alter().set_properties({f"own.{text}": text}).commit(),
            lambda t: t.create_tag(text),
            lambda t: t.compact(full=True),
            lambda t: t.drop_partitions([{"dt": text}]),
            lambda t: t.expire_snapshots(retain_last=1),
        ):
            try:
                verb(table)
            except LakeError:
                log.warning("%s: refused", text, exc_info=True)
    lines = written.getvalue().splitlines()
    assert lines
    assert [line for line in lines if line.startswith(("ERROR", FORGED))] == []


def test_text_without_control_characters_is_as_it_was():
    assert escaped("a\tb 'c' é \\n") == "a\tb 'c' é \\n"
    assert escaped("a\nb\x1b\u2028") == "a\\nb\\x1b\\u2028"
