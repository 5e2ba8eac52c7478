"""Manifests written anew: fewer, by partition, the same rows, and nobody is in the way."""

import datetime

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, UnsupportedFeature
from lakeformat.commit import commit
from lakeformat.dialects.iceberg import manifest
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.model.operation import Request, RewriteManifests
from lakeformat.model.predicate import bind, eq
from tests import doors

iceberg = Iceberg()

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
APART = {"commit.manifest-merge.enabled": "false"}


def rows(*ids, dt="a"):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def content(table, **how):
    return sorted(table.scan(["id"], **how).to_arrow()["id"].to_pylist())


@pytest.fixture
def table(tmp_path):
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=APART)
    for i in range(6):
        t.append(rows(i, dt="ab"[i % 2]))
    return t


def test_many_become_one_and_rows_stay(table):
    before, ids = table.current_snapshot(), [s.id for s in table.snapshots()]
    numbers = numbered(table)
    made = table.rewrite_manifests(id="once")
    assert (made.kind, made.files_added, made.files_removed, made.total_rows) == ("rewrite manifests", 0, 0, 6)
    assert made.parent_id == before.id
    assert table.inspect.manifests().num_rows == 1
    assert (content(table), numbered(table)) == ([0, 1, 2, 3, 4, 5], numbers)
    summary = doors.view(table).state.snapshot_document["summary"]
    assert (summary["operation"], summary["entries-processed"], summary["manifests-replaced"]) == ("replace", "6", "6")
    assert summary["total-data-files"] == "6"
    assert table.rewrite_manifests(id="once").id == made.id
    assert table.rewrite_manifests() is None
    for number, snapshot_id in enumerate(ids):
        assert content(table, snapshot_id=snapshot_id) == list(range(number + 1))
    table.overwrite_partitions(rows(9))
    assert content(table) == [1, 3, 5, 9]
    table.expire_snapshots(retain_last=1)
    table.remove_orphan_files(older_than=0)
    assert content(table) == [1, 3, 5, 9]


def numbered(table):
    """The sequence number and the snapshot of each file."""
    entries = manifest.live_entries(doors.store(table), doors.view(table).state)
    columns = [entries[n].to_pylist() for n in ("file_path", "sequence_number", "file_sequence_number", "snapshot_id")]
    return sorted(zip(*columns, strict=True))


def test_specs_and_deletes_keep_manifests_of_their_own(table):
    table.alter().set_properties({"write.delete.mode": "merge-on-read"}).commit()
    table.append(rows(6, 7))
    table.append(rows(8, 9))
    table.delete("id = 7")
    table.delete("id = 9")
    table.alter().add_partition_field("bucket(2, id)").commit()
    table.append(rows(10))
    table.append(rows(11))
    expected = [0, 1, 2, 3, 4, 5, 6, 8, 10, 11]
    assert content(table) == expected
    table.rewrite_manifests()
    assert content(table) == expected
    assert table.inspect.manifests().num_rows == 3
    assert content(table, where="id = 10") == [10]


def test_partitions_lie_together(table):
    table.alter().set_properties({"commit.manifest.target-size-bytes": "2500"}).commit()
    assert table.rewrite_manifests() is not None or table.inspect.manifests().num_rows == 6
    base = doors.view(table)
    metas = manifest.metas_of(doors.store(table), base.state.snapshot_document)
    kept = [len(manifest.prune_metas(metas, base.state, base.partitions.scope_of([(value,)]))) for value in ("a", "b")]
    assert sum(kept) <= len(metas) + 1


def test_a_writer_meanwhile_loses_nothing(table):
    base = doors.view(table)
    request = Request(id="rewrite", absent_until=base.version)
    table.append(rows(7))
    commit(doors.store(table), iceberg.head(doors.store(table)), iceberg, RewriteManifests(request=request))
    assert content(table) == [0, 1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize("key", [[], ["id", "dt"]])
def test_those_of_paimon_become_one_too(tmp_path, key):
    """As Java's `compact_manifest`: all in the base list, an empty delta, and nobody who follows the table sees a change."""
    properties = {"bucket": "1"} if key else {}
    schema = pa.schema([field.with_nullable(not key) for field in SCHEMA])
    t = Lake(tmp_path).create_table("d.t", schema, partition_by=["dt"], primary_key=key, properties=properties)
    for i in range(4):
        t.append(rows(i, i + 10, dt="ab"[i % 2]), watermark=i)
    t.delete("dt = 'a'")
    before, files = doors.view(t).state.document, t.inspect.files().num_rows
    made = t.rewrite_manifests(id="once")
    after = doors.view(t).state.document
    assert (made.kind, made.files_added, made.files_removed, made.total_rows) == (
        "compact",
        0,
        0,
        before["totalRecordCount"],
    )
    assert (after["commitKind"], after["deltaRecordCount"], after["watermark"]) == ("COMPACT", 0, 3)
    assert (t.inspect.manifests().num_rows, t.inspect.files().num_rows) == (1, files)
    assert content(t) == [1, 3, 11, 13]
    assert t.rewrite_manifests(id="once").id == made.id
    assert t.rewrite_manifests() is None
    assert t.changes(made.id - 1).to_arrow().num_rows == 0
    assert content(t, snapshot_id=1) == [0, 10]
    t.append(rows(9))
    t.expire_snapshots(retain_last=1)
    t.remove_orphan_files(older_than=0)
    assert content(t) == [1, 3, 9, 11, 13]


def test_sorted_manifests_of_paimon_have_a_range_of_partitions_each(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("hh", pa.int32())])
    t = Lake(tmp_path).create_table("d.t", schema, partition_by=["dt", "hh"])
    for i in range(20):
        wide = pa.table({"id": [i] * 20, "dt": [f"{i % 2}{n:02}" for n in range(20)], "hh": [i] * 20}, schema=schema)
        t.append(wide)
    t.delete("id = 3")
    before = content(t)
    with pytest.raises(InvalidInput, match="has the partition columns dt, hh"):
        t.rewrite_manifests(sort_by=["id"])
    with pytest.raises(InvalidInput, match="only with sort_by"):
        t.rewrite_manifests(full=True)
    plain = Lake(tmp_path).create_table("d.plain", schema)
    with pytest.raises(InvalidInput, match=r"sort_by=True.*has the partition columns \(none\)"):
        plain.rewrite_manifests(sort_by=True)
    t.alter().set_properties({"manifest.target-file-size": "600 b"}).commit()
    made = t.rewrite_manifests(sort_by=["dt"], id="once")
    assert (made.kind, t.rewrite_manifests(sort_by=["dt"], id="once").id) == ("compact", made.id)
    assert t.rewrite_manifests(sort_by=["dt"]) is None
    many = len(t.inspect.manifests())
    assert many > 5
    assert len(doors.view(t).pruning.manifests(bind(eq("dt", "105"), t.schema.fields))) <= 2
    assert content(t) == before
    assert sum(t.inspect.manifests()["deleted_files"].to_pylist()) == 0
    t.rewrite_manifests(sort_by=["hh"])
    assert len(doors.view(t).pruning.manifests(bind(eq("hh", 5), t.schema.fields))) <= 2
    assert content(t) == before
    names = set(t.inspect.manifests()["file_name"].to_pylist())
    size = max(t.inspect.manifests()["size_bytes"].to_pylist())
    t.rewrite_manifests(sort_by=["dt"], max_bytes=3 * size)
    kept = names & set(t.inspect.manifests()["file_name"].to_pylist())
    assert many - 4 <= len(kept) < many
    t.delete("id = 4")
    t.rewrite_manifests(sort_by=["dt"], full=True, max_bytes=1)
    assert content(t) == sorted(id for id in before if id != 4)
    assert sum(t.inspect.manifests()["deleted_files"].to_pylist()) == 0
    t.expire_snapshots(retain_last=1)
    t.remove_orphan_files(older_than=datetime.timedelta(days=-1))
    assert content(t) == sorted(id for id in before if id != 4)


def test_sorted_manifests_with_nulls_and_of_iceberg(tmp_path, table):
    t = Lake(tmp_path / "p").create_table(
        "d.t", SCHEMA, partition_by=["dt"], properties={"manifest.target-file-size": "1 b"}
    )
    for dt in ("b", None, "a", "b"):
        t.append(pa.table({"id": pa.array([1], pa.int64()), "dt": pa.array([dt], pa.string())}))
    assert t.rewrite_manifests(sort_by=True, full=True) is not None
    assert t.scan(["dt"]).to_arrow()["dt"].to_pylist().count("b") == 2
    with pytest.raises(UnsupportedFeature, match="always sorted"):
        table.rewrite_manifests(sort_by=True)
