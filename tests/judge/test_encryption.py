"""Encrypted tables that Iceberg's Java makes, read row for row."""

import pytest

import lakeformat

from .golden_encrypted import KEY_ID, TABLES, made


@pytest.mark.parametrize("name", TABLES)
def test_an_encrypted_table_of_java_reads_row_for_row(tmp_path, name):
    expected = made(str(tmp_path), name)
    table = lakeformat.open_table(tmp_path / name, encryption_keys={KEY_ID: bytes.fromhex(TABLES[name])})
    assert [str(snapshot.id) for snapshot in table.snapshots()] == list(expected["snapshots"])
    for id, rows in expected["snapshots"].items():
        found = table.scan(snapshot_id=int(id)).to_arrow().sort_by("id").to_pylist()
        assert [list(row.values()) for row in found] == rows, id
