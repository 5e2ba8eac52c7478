"""Tables that Iceberg's Java runtime and pyiceberg wrote, row for row, at every snapshot; what it wrote as version 1 goes on as version 2."""

import datetime
import json
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat.codec.avro import file as avro
from lakeformat.dialects.iceberg import manifest, manifest_schema
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table
from tests import doors
from tests.golden import wire

iceberg = Iceberg()

GOLDEN = Path(__file__).parents[3] / "golden" / "iceberg"
TABLES = sorted(path.stem for path in GOLDEN.glob("*.zip"))


def opened(name):
    """(the table in memory, at the place where it was made; what its engine read from it)."""
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as packed:
        expected = json.loads(packed.read("expected.json"))
        store = MemoryFiles(expected["location"])
        for path in packed.namelist():
            if path != "expected.json":
                store.write(path, packed.read(path))
    return Table(f"g.{name}", store, iceberg), expected


def rows(scan):
    found = scan.to_arrow()
    assert scan.count() == found.num_rows
    return found.column_names, Counter(map(repr, wire.from_arrow(found)))


def said(answer):
    return [column["name"] for column in answer["columns"]], Counter(map(repr, answer["rows"]))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_another_engine_reads_row_for_row(name):
    table, expected = opened(name)
    assert rows(table.scan()) == said(expected["latest"])
    assert {str(snapshot.id) for snapshot in table.snapshots()} == expected["snapshots"].keys()
    for snapshot_id, answer in expected["snapshots"].items():
        assert rows(table.scan(snapshot_id=int(snapshot_id))) == said(answer), snapshot_id
    if expected["lineage"]:
        names, told = said(expected["lineage"])
        assert rows(table.scan(columns=names)) == (names, told)


def test_there_is_a_table_of_each_kind():
    assert len(TABLES) == 8
    assert sum((GOLDEN / f"{name}.zip").stat().st_size for name in TABLES) < 300_000


def name_manifests_themselves(table):
    """Snapshots as Java wrote them before there were manifest lists (`write.manifest-lists.enabled=false`)."""
    base = doors.view(table).state
    document = json.loads(json.dumps(base.document))
    for snapshot in document["snapshots"]:
        snapshot["manifests"] = manifest.metas_of(doors.store(table), snapshot)["manifest_path"].to_pylist()
        doors.store(table).delete([snapshot.pop("manifest-list")])
    doors.store(table).write(base.location, json.dumps(document).encode())


def drop_counts(table, what):
    """Manifest lists as early writers of version 1 wrote them: without the counts of files, or only of rows."""
    store, base = doors.store(table), doors.view(table).state
    document = json.loads(json.dumps(base.document))
    held = [
        f for f in manifest_schema.LIST_FIELDS if what not in f["name"] and f["field-id"] not in (515, 516, 517, 520)
    ]
    schema = {"type": "record", "name": "manifest_file", "fields": held}
    for snapshot in document["snapshots"]:
        path = snapshot["manifest-list"]
        metas = manifest.parse_list(store.read(path), path).select([f["name"] for f in held])
        store.delete([path])
        snapshot["manifest-list"] = path.replace("/snap-", f"/snap-{len(what)}")  # Lists are kept in memory by name.
        store.write(snapshot["manifest-list"], avro.encode(metas, schema, "deflate", {}))
    store.write(base.location, json.dumps(document).encode())


def evolve(table):
    table.alter().add_column("y", "int").commit()


def merge(table):
    rows = pa.table({"id": [1, 50], "key": ["a", "z"]})
    table.merge_into(rows, "t.id = s.id").when_not_matched().insert(
        {"id": "s.id", "key": "s.key"}
    ).when_matched().delete().merge()


UPGRADING = {
    "append": lambda table: table.append(pa.table({"id": [50], "key": ["a"]})),
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update({"key": "'u'"}, "id = 1"),
    "merge": merge,
    "overwrite": lambda table: table.overwrite(pa.table({"id": [50], "key": ["a"]})),
    "evolve": evolve,
    "tag": lambda table: table.create_tag("kept"),
    "rollback": lambda table: table.rollback_to(snapshot_id=table.snapshots()[0].id),
    "manifests": lambda table: table.rewrite_manifests(),
    "compact": lambda table: table.compact(full=True, sort_by=["id"]),
    "expire": lambda table: table.expire_snapshots(retain_last=1, older_than=datetime.timedelta(0)),
}


@pytest.mark.parametrize("verb", UPGRADING)
def test_the_first_write_makes_a_table_of_version_1_one_of_version_2(verb):
    table, expected = opened("v1")
    twin, _ = opened("v1")
    twin.alter().set_properties({"format-version": "2"}).commit()
    for copy in (table, twin):
        UPGRADING[verb](copy)
    document = doors.view(table).state.document
    assert document["format-version"] == 2
    keys = [{key for key in doors.view(copy).state.document if "lakeformat" not in key} for copy in (table, twin)]
    assert keys[0] == keys[1]
    assert rows(table.scan()) == rows(twin.scan())
    table.append(pa.table({"id": [51], "key": ["b"]}))
    assert table.scan(where="id = 51").count() == 1
    if verb != "expire":
        for snapshot_id, answer in list(expected["snapshots"].items())[:1]:
            assert rows(table.scan(snapshot_id=int(snapshot_id))) == said(answer)


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("lists", ["manifest lists", "no manifest lists", "no _count", "no _rows_count"])
def test_a_table_of_version_1_goes_on_in_a_later_one(version, lists):
    table, expected = opened("v1")
    if lists.startswith("no _"):
        drop_counts(table, lists.removeprefix("no "))
    elif lists == "no manifest lists":
        changed = [table.snapshot(int(id)) for id in expected["snapshots"]]
        name_manifests_themselves(table)
        assert [table.snapshot(int(id)) for id in expected["snapshots"]] == changed
        assert changed[0].rows_added == 6
        for snapshot_id, answer in expected["snapshots"].items():
            assert rows(table.scan(snapshot_id=int(snapshot_id))) == said(answer), snapshot_id
    more = pa.table({"id": [50, 51, 52], "key": ["a", "b", "c"]})
    table.alter().set_properties({"format-version": version}).commit()
    assert rows(table.scan()) == said(expected["latest"])
    for snapshot_id, answer in expected["snapshots"].items():
        assert rows(table.scan(snapshot_id=int(snapshot_id))) == said(answer), snapshot_id
    document = doors.view(table).state.document
    assert document["format-version"] == int(version)
    assert not {"schema", "partition-spec"} & document.keys()
    assert ("next-row-id" in document) == (version == "3")
    for key in ("table-uuid", "last-partition-id", "sort-orders", "default-sort-order-id", "last-sequence-number"):
        assert key in document, key
    table.append(more)
    table.alter().set_properties({"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"}).commit()
    table.delete("id in (0, 50)")
    table.update({"key": "'u'"}, where="id in (1, 51)")
    ids = [1, 3, 4, 5, 51, 52, 100]
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == ids
    table.compact(full=True)
    table.remove_orphan_files(older_than=datetime.timedelta(days=-1))
    for snapshot_id, answer in expected["snapshots"].items():
        assert rows(table.scan(snapshot_id=int(snapshot_id))) == said(answer), "the sweep leaves what a snapshot names"
    table.expire_snapshots(retain_last=1)
    assert table.remove_orphan_files(older_than=datetime.timedelta(days=-1), dry_run=True) == []
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == ids
    assert table.scan(where="key = 'u'").count() == 2
