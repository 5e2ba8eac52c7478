"""Tables that the Java engine wrote years ago, row for row, at every snapshot and tag."""

import json
from pathlib import Path

import pytest

from lakeformat import Lake
from tests.golden import wire

GOLDEN = Path(__file__).parents[3] / "golden" / "paimon"
EXPECTED = sorted((GOLDEN / "expected").glob("*.json"))


def rows_of(scan, fields):
    found = scan.to_arrow()
    assert scan.count() == found.num_rows
    return wire.multiset(fields, wire.from_arrow(found))


@pytest.mark.parametrize("path", EXPECTED, ids=lambda p: p.stem)
def test_table_of_another_engine_reads_row_for_row(path):
    expected = json.loads(path.read_text())
    table = Lake(str(GOLDEN)).table(expected["table"])
    versions = [({}, expected["latest"])]
    versions += [({"snapshot_id": int(i)}, moment) for i, moment in expected["snapshots"].items()]
    versions += [({"tag": name}, moment) for name, moment in expected["tags"].items()]
    for version, moment in versions:
        fields = moment["fields"]
        assert rows_of(table.scan(**version), fields) == wire.multiset(fields, moment["rows"]), version
