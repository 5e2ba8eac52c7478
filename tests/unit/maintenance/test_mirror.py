"""Iceberg metadata for Paimon tables: whoever reads it sees the rows that Paimon's readers see, whatever happens."""

import datetime
import json
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, NotFound, UnsupportedFeature, open_table
from lakeformat.dialects.iceberg import manifest as iceberg_manifest
from lakeformat.dialects.iceberg import metadata as iceberg_metadata
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.errors import CorruptTable, LakeError
from lakeformat.maintenance import mirror
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, ListOf, Schema, scalar
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors
from tests.draw import IS_LONG
from tests.simulation.failing import NthCallFails, faults, holding
from tests.simulation.turns import FaultyStore, Turns
from tests.unit.s3_server import S3Server

GOLDEN = Path(__file__).parents[2] / "golden" / "one_table"
AT_ONCE = datetime.timedelta(days=-1)  # Older than tomorrow: everything.
HERE = {"metadata.iceberg.storage": "table-location"}
VECTORS = {
    "deletion-vectors.enabled": "true",
    "deletion-vectors.bitmap64": "true",
    "metadata.iceberg.format-version": "3",
}
FIELDS = (
    Field(0, "id", scalar(Kind.BIGINT), nullable=False),
    Field(1, "v", scalar(Kind.STRING)),
    Field(2, "dt", scalar(Kind.STRING), nullable=False),
    Field(3, "ts", scalar(Kind.TIMESTAMP, 3)),
    Field(4, "l", ListOf(Field(-1, "element", scalar(Kind.INT)))),
)
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("dt", pa.string()),
        ("ts", pa.timestamp("ms")),
        ("l", pa.list_(pa.int32())),
    ]
)


def data(*ids, v="x", dt="a"):
    rows = [{"id": i, "v": v, "dt": dt, "ts": datetime.datetime(2024, 1, 1 + i % 28), "l": [i, None]} for i in ids]
    return pa.Table.from_pylist(rows, ARROW)


def made(store=None, key=(), **properties):
    store = store or MemoryFiles()
    table = Table("t", store, Paimon())
    properties = {"bucket": "1" if key else "-1", **HERE, **properties}
    create(table, Schema(FIELDS, identity("dt"), key, properties))
    return table


def keyed(**properties):
    return made(key=("id", "dt"), **properties)


def seen(table, **version):
    rows = table.scan(**version).to_arrow()
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows.to_pylist())


def shown(table):
    return Table("i", doors.store(table), Iceberg())


def document(table):
    return iceberg_metadata.newest(doors.store(table)).document


def require_same(table, history=True):
    """Now, and at every snapshot and tag that both have."""
    assert seen(shown(table)) == seen(table)
    said = document(table)
    assert said["current-snapshot-id"] == table.current_snapshot().id
    own = f"/v{said['current-snapshot-id']}.metadata.json"
    earlier = [entry["metadata-file"] for entry in said.get("metadata-log", ())]
    assert all(path.endswith(".metadata.json") and not path.endswith(own) for path in earlier), earlier
    for snapshot in said["snapshots"] if history else ():
        version = {"snapshot_id": snapshot["snapshot-id"]}
        tags = [name for name, ref in said["refs"].items() if ref["snapshot-id"] == snapshot["snapshot-id"]]
        names = [*({"tag": name} for name in tags if name != "main")] or [version]
        rows = [{**json.loads(row)} for row in seen(shown(table), **version)]
        for how in names:
            theirs = [json.loads(row) for row in seen(table, **how)]
            assert sorted(row["id"] for row in rows) == sorted(row["id"] for row in theirs), (snapshot, how)


# --- each verb --------------------------------------------------------------------------------------------------------


def verbs(table):
    """After each verb, its name."""
    table.append(data(1, 2, 3))
    yield "append"
    table.append(data(4, 5, dt="b/c"))
    yield "append to another partition"
    table.create_tag("kept")
    yield "tag"
    table.delete("id = 2")
    yield "delete"
    table.update({"v": "'new'"}, where="id = 4")
    yield "update"
    table.overwrite(data(7, dt="b/c"), partition={"dt": "b/c"})
    yield "overwrite"
    table.alter().add_column("more", "int").rename_column("v", "w").drop_column("l").commit()
    yield "schema"
    table.append(pa.table({"id": [8], "w": ["y"], "dt": ["a"], "more": pa.array([1], pa.int32())}))
    yield "append of the new schema"
    table.compact(full=True)
    yield "compact"
    table.remove_orphan_files(AT_ONCE)
    yield "sweep"
    table.rollback_to(tag="kept")
    yield "rollback"
    table.append(pa.table({"id": [9], "w": ["y"], "dt": ["a"], "more": pa.array([1], pa.int32())}))
    yield "append after the rollback"
    table.expire_snapshots(retain_last=1)
    yield "expire"
    table.delete_tag("kept")
    yield "delete tag"
    table.truncate()
    yield "truncate"


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["append", "append, vectors"])
def test_iceberg_shows_the_rows_of_each_snapshot_after_each_verb(properties):
    table = made(**properties)
    for verb in verbs(table):
        require_same(table)
        tags = {n: r["snapshot-id"] for n, r in document(table)["refs"].items() if r["type"] == "tag"}
        assert tags == {row["tag_name"]: row["snapshot_id"] for row in table.inspect.tags().to_pylist()}, verb
        kept = {row["snapshot_id"] for row in table.inspect.snapshots().to_pylist()} | set(tags.values())
        assert {s["snapshot-id"] for s in document(table)["snapshots"]} <= kept, verb
    named = {p for s in document(table)["snapshots"] for p in reached(table, s)}
    there = {
        doors.store(table).location(p.path) for p in doors.store(table).list("metadata") if p.path.endswith(".avro")
    }
    assert there == named  # What expired took its manifests along.


def reached(table, snapshot):
    listed = iceberg_manifest.metas_of(doors.store(table), snapshot)
    return [snapshot["manifest-list"], *listed["manifest_path"].to_pylist()]


def test_a_keyed_table_with_vectors_shows_what_is_above_level_0():
    table = keyed(**VECTORS)
    for act in (
        lambda: table.upsert(data(1, 2, 3)),
        lambda: table.upsert(data(2, v="y")),
        lambda: table.delete("id = 3"),
        lambda: table.upsert(data(2, 4, v="z", dt="b")),
        lambda: table.compact(full=True),
        lambda: table.overwrite(data(5), partition={"dt": "a"}),
        lambda: table.upsert(data(5, 6, v="again")),
        lambda: table.expire_snapshots(retain_last=1),
    ):
        act()
        require_same(table, history=False)


def test_a_keyed_table_without_vectors_shows_its_last_full_compaction():
    table = keyed()
    table.upsert(data(1, 2))
    assert seen(shown(table)) == []  # Level 0 is merged when it is read, and Iceberg merges nothing.
    table.compact(full=True)
    require_same(table, history=False)
    before = seen(table)
    table.upsert(data(2, v="y"))
    table.delete("id = 1")
    assert seen(shown(table)) == before
    table.compact(full=True)
    require_same(table, history=False)


def test_numbers_are_those_of_paimon_as_its_own_engines_go_on_from_them():
    table = made()
    for i in range(3):
        table.append(data(i))
    store, said = doors.store(table), document(table)
    assert store.read("metadata/version-hint.text") == b"3"
    assert [p.path for p in store.list("metadata") if "metadata.json" in p.path] == ["metadata/v3.metadata.json"]
    assert said["last-sequence-number"] == said["current-snapshot-id"] == 3
    assert [s["snapshot-id"] for s in said["snapshots"]] == [1, 2, 3]
    assert [f["source-id"] for f in said["partition-specs"][0]["fields"]] == [2]
    assert [f["id"] for f in said["schemas"][0]["fields"]] == [0, 1, 2, 3, 4]
    assert said["schemas"][0]["fields"][4]["type"]["element-id"] == 536870911 + 1024 * 4 + 1
    entries = shown(table).inspect.entries().to_pylist()
    assert sorted((e["sequence_number"], e["snapshot_id"]) for e in entries) == [(1, 1), (2, 2), (3, 3)]


def test_old_documents_stay_as_asked():
    table = made(**{"metadata.iceberg.previous-versions-max": "2"})
    for i in range(5):
        table.append(data(i))
    there = [p.path for p in doors.store(table).list("metadata") if "metadata.json" in p.path]
    assert there == [f"metadata/v{i}.metadata.json" for i in (3, 4, 5)]


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["plain", "vectors"])
def test_an_append_costs_as_many_calls_however_large_the_table_is(properties):
    table, calls = made(**properties), []
    for count in (3, 12):
        for i in range(count):
            table.append(data(i, dt=f"{i % 5}"))
        counting = NthCallFails(doors.store(table), 0, False)
        Table("t", counting, Paimon()).append(data(count))
        calls.append({kind: n for kind, n in counting.made.items() if " metadata" in kind})
    assert calls[0] == calls[1]
    assert sum(calls[0].values()) < 20, calls[0]


def test_bounds_prune_as_paimons_do():
    table = made()
    table.append(data(1, 2))
    table.append(data(100))
    for where in ("id = 100", "id > 50", "ts > timestamp '2024-01-10'"):
        assert [len(t.scan(where=where).plan()) for t in (table, shown(table))] == [1, 1], where


def test_a_branch_leaves_it_alone_until_the_table_goes_there():
    table = made()
    table.append(data(1, 2))
    branch = table.create_branch("b")
    branch.append(data(3))
    branch.delete("id = 1")
    require_same(table)
    assert len(seen(branch)) == 2
    table.fast_forward("b")
    assert len(seen(table)) == 2
    require_same(table)


# --- behind, beside, before -------------------------------------------------------------------------------------------


def test_what_is_behind_is_made_up_for():
    table = made()
    table.append(data(1))
    plain = Table("t", doors.store(table), Paimon())
    held = holding({p.path: doors.store(table).read(p.path) for p in doors.store(table).list("metadata")})
    for i in (2, 3):
        plain.append(data(i))
    table.delete("id = 2")
    forget(table)
    for file in held.list(""):
        doors.store(table).write(file.path, held.read(file.path))
    assert document(table)["current-snapshot-id"] == 1
    assert table.sync_iceberg().id == 4
    require_same(table)
    assert [s["snapshot-id"] for s in document(table)["snapshots"]] == [1, 4]
    forget(table)
    table.append(data(9))
    require_same(table)


def test_snapshots_expire_with_commits_once_the_mirror_shows_them(monkeypatch):
    """What it still shows, because it could not be written, keeps its files."""
    table = made(**{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    for i in range(4):
        table.overwrite(data(i))
    assert [snapshot.id for snapshot in table.snapshots()] == [3, 4]
    with monkeypatch.context() as broken:
        broken.setattr(mirror, "follow", lambda store, format: 1 / 0)
        for i in range(4):
            table.overwrite(data(i))
        assert [snapshot.id for snapshot in table.snapshots()] == [3, 4, 5, 6, 7, 8]
        assert len(seen(shown(table))) == 1
    table.overwrite(data(9))
    assert [snapshot.id for snapshot in table.snapshots()] == [8, 9]
    require_same(table, history=False)


def test_a_rollback_is_shown_with_its_commit_and_when_it_is_made_up_for():
    """Its delta is empty: the files of the snapshot before would stay."""
    table = made()
    for i in range(3):
        table.append(data(i))
    table.rollback_to(snapshot_id=1)
    require_same(table)
    before = {p.path: doors.store(table).read(p.path) for p in doors.store(table).list("metadata")}
    table.append(data(7))
    table.rollback_to(snapshot_id=1)
    table.append(data(8))
    forget(table)
    doors.store(table).write_many(before)
    table.sync_iceberg()
    require_same(table)
    assert table.scan().count() == 2


def forget(table):
    doors.store(table).delete([p.path for p in doors.store(table).list("metadata")])


def test_a_missing_schema_file_is_named_and_hinders_only_what_needs_it():
    table = made()
    table.append(data(1, 2))
    table.alter().add_column("n", "int").commit()
    table.append(data(3))
    old = doors.store(table).read("schema/schema-0")
    doors.store(table).delete(["schema/schema-0"])
    forget(table)
    behind = Table("t", doors.store(table), Paimon())  # Which has not read that schema yet.
    for asked in (behind.sync_iceberg, lambda: seen(behind)):
        with pytest.raises(CorruptTable, match="schema/schema-0 is missing, and data files at snapshot 2 were"):
            asked()
    assert not doors.store(table).names("metadata")
    doors.store(table).write("schema/schema-0", old)
    behind.sync_iceberg()
    require_same(behind)
    behind.overwrite(data(1, 2, 3))
    doors.store(table).delete(["schema/schema-0"])
    forget(table)
    newest = Table("t", doors.store(table), Paimon())
    newest.sync_iceberg()
    assert seen(shown(newest)) == seen(newest)


def test_a_number_that_another_engine_gives_again_is_shown_anew():
    table = made()
    for i in range(3):
        table.append(data(i))
    store = doors.store(table)
    store.delete(["snapshot/snapshot-3", "snapshot/snapshot-2"])  # As Java's rollback does.
    store.write("snapshot/LATEST", b"1")
    table.sync_iceberg()
    require_same(table)
    table.append(data(7))
    require_same(table)
    table.append(data(8))
    store.delete(["snapshot/snapshot-3"])
    stale = {p.path: store.read(p.path) for p in store.list("metadata")}
    table.append(data(9))
    forget(table)
    for path, content in stale.items():
        store.write(path, content)
    table.sync_iceberg()
    require_same(table)


def test_metadata_that_java_wrote_is_gone_on_from():
    """Without our marks in it."""
    table = made()
    table.append(data(1, 2))
    path = "metadata/v1.metadata.json"
    said = json.loads(doors.store(table).read(path))
    uuid = said["table-uuid"]
    said = {k: v for k, v in said.items() if k in ("format-version", "table-uuid", "location", "last-sequence-number",
            "last-updated-ms", "last-column-id", "schemas", "current-schema-id", "partition-specs", "default-spec-id",
            "last-partition-id", "sort-orders", "default-sort-order-id", "snapshots", "current-snapshot-id")}  # fmt: skip
    said["snapshots"][0]["summary"] = {"operation": "append"}
    doors.store(table).write(path, json.dumps(said).encode())
    table.create_tag("one")
    assert "one" in document(table)["refs"]
    doors.store(table).write(path, json.dumps(said).encode())
    table.delete("id = 1")
    table.append(data(3))
    require_same(table)
    assert document(table)["table-uuid"] == uuid
    assert [s["snapshot-id"] for s in document(table)["snapshots"]] == [1, 2, 3]


@pytest.mark.parametrize(("name", "place", "ids"), [("append", "t", [1, 2, 4, 5]), ("keyed", "p", [1, 2, 3, 4])])
def test_paimons_java_engine_is_read_and_gone_on_from(name, place, ids):
    """Tables of paimon-bundle 1.3.1, with its Iceberg metadata."""
    store = MemoryFiles(f"file:/golden/db.db/{place}")
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as packed:
        for path in packed.namelist():
            store.write(path, packed.read(path))
    table = Table("t", store, Paimon())
    before = document(table)
    assert sorted(json.loads(row)["id"] for row in seen(shown(table))) == ids
    require_same(table, history=False)
    new = {"id": [2, 9], "v": ["new", "new"], "dt": ["x", "y"], "ts": pa.array([0, 0], pa.timestamp("us"))}
    table.upsert(pa.table(new)) if name == "keyed" else table.append(pa.table(new))
    require_same(table, history=name == "append")
    table.delete("id = 4")
    table.compact(full=True)
    table.create_tag("ours")
    require_same(table, history=False)
    after = document(table)
    assert after["table-uuid"] == before["table-uuid"]
    assert after["location"] == before["location"]
    assert ("next-row-id" in after) is (
        after["format-version"] == 3
    )  # Iceberg's runtime wants it, and Java wrote none.
    assert {s["snapshot-id"] for s in before["snapshots"]} <= {s["snapshot-id"] for s in after["snapshots"]}


def test_switched_on_later_it_shows_all_there_is():
    table = made(**{"metadata.iceberg.storage": "disabled"})
    table.append(data(1))
    table.append(data(2))
    assert not doors.store(table).list("metadata")
    assert table.sync_iceberg() is None
    table.alter().set_properties(HERE).commit()
    require_same(table)
    table.alter().set_properties({"metadata.iceberg.format-version": "3"}).commit()
    require_same(table)
    assert document(table)["format-version"] == 3


def test_in_a_hadoop_catalog_it_lies_beside_the_warehouse(tmp_path: Path):
    lake = Lake(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = lake.create_table("db.t", schema, properties={"metadata.iceberg.storage": "hadoop-catalog"})
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    there = tmp_path / "iceberg" / "db" / "t"
    assert seen(open_table(there)) == seen(table)
    assert not (tmp_path / "db.db" / "t" / "metadata").exists()
    (tmp_path / "db.db" / "taken").mkdir()
    (tmp_path / "db.db" / "taken" / "file").touch()
    with pytest.raises(LakeError):
        lake.rename_table("db.t", "db.taken")
    assert seen(open_table(there)) == seen(table)  # What did not move keeps its metadata.
    moved = lake.rename_table("db.t", "db.u")
    assert seen(open_table(tmp_path / "iceberg" / "db" / "u")) == seen(moved)
    assert not list(there.rglob("*.*"))
    assert lake.tables() == ["db.u"]
    lake.drop_table("db.u")
    with pytest.raises(NotFound):
        open_table(tmp_path / "iceberg" / "db" / "u")


def test_on_object_storage_it_lies_beside_the_warehouse_too():
    with S3Server() as server:
        uri = f"{server.new_bucket()}/w"
        lake = Lake(uri, **server.options)
        table = lake.create_table("db.t", ARROW, properties={"metadata.iceberg.storage": "hadoop-catalog"})
        table.append(data(1, 2))
        table.delete("id = 1")
        assert seen(open_table(f"{uri}/iceberg/db/t", **server.options)) == seen(table)


def test_a_dry_run_writes_no_metadata_and_shows_what_it_would(tmp_path: Path):
    table = Lake(tmp_path).create_table("db.t", ARROW, properties={"metadata.iceberg.storage": "hadoop-catalog"})
    for i in range(3):
        table.append(data(i))
    there = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    twin, record = table.dry_run()
    twin.expire_snapshots(retain_last=1)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == there
    assert any("/iceberg/db/t/metadata/snap-1" in path for path in record.deleted)
    assert any(path.endswith("/iceberg/db/t/metadata/v3.metadata.json") for path in record.written)


def test_a_tag_of_a_table_whose_metadata_others_keep_is_made(tmp_path: Path):
    """Of a table with an option that no write would take."""
    table = made(**{"metadata.iceberg.storage": "disabled"})
    table.append(data(1))
    store = doors.store(table)
    schema = json.loads(store.read("schema/schema-0"))
    schema["options"]["metadata.iceberg.storage"] = "hive-catalog"
    store.write("schema/schema-0", json.dumps(schema).encode())
    table.create_tag("kept")
    assert seen(table, tag="kept") == seen(table)
    with pytest.raises(UnsupportedFeature, match="hive-catalog"):
        table.append(data(2))


def test_in_its_own_folder_it_goes_with_the_table(tmp_path: Path):
    lake = Lake(tmp_path)
    table = lake.create_table("db.t", pa.schema([("id", pa.int64())]), properties=HERE)
    table.append(pa.table({"id": [1]}))
    assert lake.table("db.t").format == "paimon"
    moved = lake.rename_table("db.t", "db.u")
    assert seen(Table("i", doors.store(moved), Iceberg())) == seen(moved)
    lake.drop_table("db.u")
    assert not (tmp_path / "db.db" / "u").exists()


@pytest.mark.parametrize(
    ("properties", "error", "said"),
    [
        ({"file.format": "orc"}, UnsupportedFeature, "file.format"),
        ({"metadata.iceberg.storage": "hive-catalog"}, UnsupportedFeature, "hadoop-catalog"),
        ({"metadata.iceberg.storage": "elsewhere"}, InvalidInput, "table-location"),
        ({"metadata.iceberg.storage": "rest-catalog"}, InvalidInput, "metadata.iceberg.rest.uri"),
        ({"metadata.iceberg.format-version": "4"}, InvalidInput, "'2' or '3'"),
        ({"metadata.iceberg.previous-versions-max": "-1"}, InvalidInput, "0 or more"),
        ({"metadata.iceberg.manifest-compresion": "zstd"}, InvalidInput, "manifest-compression"),
        ({"deletion-vectors.enabled": "true"}, UnsupportedFeature, "bitmap64"),
    ],
)
def test_what_iceberg_could_not_read_is_refused(properties, error, said):
    with pytest.raises(error, match=said):
        made(**properties)


@pytest.mark.parametrize(
    ("type", "said"), [(scalar(Kind.TIMESTAMP, 9), "3 to 6"), (scalar(Kind.TIME, 3), "milliseconds")]
)
def test_types_that_iceberg_could_not_read_are_refused(type, said):
    store = MemoryFiles()
    schema = Schema((Field(0, "ts", type),), properties={"bucket": "-1", **HERE})
    with pytest.raises(UnsupportedFeature, match=said):
        create(Table("t", store, Paimon()), schema)
    assert not store.list("")


# --- faults and races -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
def test_whatever_call_fails_readers_see_a_snapshot_and_the_next_commit_makes_up_for_it(after):
    table = made(**VECTORS, **{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    table.append(data(1, 2, 3))
    table.append(data(4, dt="b"))
    files = {p.path: doors.store(table).read(p.path) for p in doors.store(table).list("")}

    def act(store):
        other = Table("t", store, Paimon())
        other.delete("id = 2")
        other.create_tag("kept")
        return other

    counting = NthCallFails(holding(files), 0, after)
    act(counting)
    states = {tuple(seen(table))}
    clean = act(holding(files))
    states.add(tuple(seen(clean)))
    metadata = Counter({kind: count for kind, count in counting.made.items() if " metadata" in kind})
    for n, kind in faults(counting.made if IS_LONG else metadata, after):  # Others fail in other tests.
        store = holding(files)
        failing = NthCallFails(store, n, after, kind=kind)
        with suppress(LakeError):
            act(failing)
        there = Table("t", store, Paimon())
        if any("metadata.json" in p.path for p in store.list("metadata")):
            assert tuple(seen(shown(there))) in states, failing.failed
        there.append(data(9))
        require_same(there)


@pytest.mark.parametrize("seed", range(4))
def test_racing_writers_leave_metadata_of_the_newest_snapshot(seed):
    table = made()
    table.append(data(0))
    store, turns = doors.store(table), Turns(seed, pause_ratio=0.02)

    def work(actor, first):
        own = Table("t", FaultyStore(store, turns, actor, 0.02, 0.0), Paimon())

        def run():
            for i in range(2):
                with suppress(LakeError):
                    own.append(data(first + i))
                    own.create_tag(f"{actor}{i}")

        return run

    turns.race({actor: work(actor, 10 * index) for index, actor in enumerate("abc", 1)})
    table.sync_iceberg()
    require_same(table)
    tags = {n for n, r in document(table)["refs"].items() if r["type"] == "tag"}
    assert tags == set(table.inspect.tags()["tag_name"].to_pylist()), seed
