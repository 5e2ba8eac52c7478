"""Verbs on the twin of a table say what they would do, and do nothing."""

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.errors import NoSuchFile
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.rehearsal import Rehearsal

ROWS = pa.table({"id": [1, 2], "dt": ["x", "y"]})
KINDS = [("paimon", None), ("iceberg", None), ("iceberg", "sql")]


@pytest.fixture(params=KINDS, ids=["paimon", "iceberg", "iceberg-catalog"])
def table(request, tmp_path):
    format, catalog = request.param
    table = Lake(tmp_path / "warehouse", catalog=catalog).create_table(
        "db.t", ROWS.schema, format=format, partition_by=["dt"]
    )
    for _ in range(4):
        table.overwrite(ROWS)
    return table


def state(table, tmp_path):
    files = {
        p: p.read_bytes() for p in sorted((tmp_path / "warehouse").rglob("*")) if p.is_file() and "sqlite" not in p.name
    }
    return files, [s.id for s in table.snapshots()], table.current_snapshot().id


def test_a_rehearsal_shows_files_as_they_would_be():
    real = MemoryFiles("memory://real")
    for path in ("a", "b", "x/c"):
        real.write(path, b"old")
    twin = Rehearsal(real)
    twin.delete(["a", "x/c"])
    twin.write("new", b"new")
    assert (twin.names(""), twin.names("x")) == (["b", "new"], [])
    assert [file.path for file in twin.list("")] == ["b", "new"]
    assert list(twin.read_many(["a", "b", "new"])) == [None, b"old", b"new"]
    for path in ("a", "x/c"):
        with pytest.raises(NoSuchFile, match="deleted in this dry run"):
            twin.read(path)
    assert [file.path for file in real.list("")] == ["a", "b", "x/c"]


VERBS = {
    "expire": lambda t: t.expire_snapshots(retain_last=1),
    "sweep": lambda t: t.remove_orphan_files(older_than=2**52),
    "rollback": lambda t: t.rollback_to(snapshot_id=t.snapshots()[1].id),
    "compact": lambda t: t.compact(full=True),
    "append": lambda t: t.append(ROWS),
    "delete": lambda t: t.delete("id = 1"),
    "tag": lambda t: t.create_tag("v1"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_changes_nothing_and_predicts_exactly_what_the_verb_does(table, tmp_path, verb):
    before = state(table, tmp_path)
    twin, record = table.dry_run()
    VERBS[verb](twin)
    assert state(table, tmp_path) == before
    VERBS[verb](table)
    after = state(table, tmp_path)
    gone = {f"file://{p}" for p in before[0].keys() - after[0].keys()}
    assert {p for p in record.deleted if p[len("file://") :] in {str(q) for q in before[0]}} == gone
    assert sorted(map(str, twin.scan().to_arrow().to_pylist())) == sorted(map(str, table.scan().to_arrow().to_pylist()))
    assert len(twin.snapshots()) == len(after[1])


def test_an_expiry_in_a_dry_run_names_files(table):
    twin, record = table.dry_run()
    twin.expire_snapshots(retain_last=1)
    assert record.deleted
    assert len(table.snapshots()) == 4
    assert len(twin.snapshots()) == 1
