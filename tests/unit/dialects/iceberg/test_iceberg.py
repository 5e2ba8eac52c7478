"""Iceberg's own rules: what documents and manifests say after each kind of commit, races, and what is refused."""

import datetime
import gzip
import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import Conflict, CorruptTable, InvalidInput, Lake, NotFound, UnsupportedFeature
from lakeformat.codec.avro import file as avro
from lakeformat.commit import commit
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.model.evolution import AddColumn, SetProperties
from lakeformat.model.operation import Request, Rewrite
from lakeformat.storage.files import open_store
from tests import doors

iceberg = Iceberg()

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


@pytest.fixture
def table(lake):
    return lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"])


def rows(*pairs):
    return pa.table({"id": [i for i, _ in pairs], "dt": [d for _, d in pairs]}, schema=SCHEMA)


def folder(table):
    return Path(table.uri.removeprefix("file://"))


def newest(table):
    """(version, path) of the newest metadata file."""
    return max((int(p.name[1:].split(".")[0]), p) for p in folder(table).glob("metadata/v*.metadata.json"))


def document(table):
    return json.loads(newest(table)[1].read_text())


def rewrite(table, change):
    """The newest document, changed behind the library's back."""
    _, path = newest(table)
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def entries(table):
    """(status, sequence number as written, snapshot id) of every entry that the current snapshot names."""
    found = []
    for path in table.inspect.manifests()["path"].to_pylist():
        held = avro.decode(Path(path.removeprefix("file://")).read_bytes()).table
        columns = (held[name].to_pylist() for name in ("status", "sequence_number", "snapshot_id"))
        found += zip(*columns, strict=True)
    return found


def test_the_document_keeps_every_rule_that_java_checks(table):
    for i in range(4):
        table.append(rows((i, "a")))
    table.overwrite_partitions(rows((9, "a")))
    found = document(table)
    assert found["last-sequence-number"] == 5
    assert [s["sequence-number"] for s in found["snapshots"]] == [1, 2, 3, 4, 5]
    assert found["refs"]["main"]["snapshot-id"] == found["current-snapshot-id"] == found["snapshots"][-1]["snapshot-id"]
    assert [e["snapshot-id"] for e in found["snapshot-log"]] == [s["snapshot-id"] for s in found["snapshots"]]
    assert [e["metadata-file"].rsplit("/", 1)[1] for e in found["metadata-log"]] == [
        f"v{i}.metadata.json" for i in range(1, 6)
    ]
    times = [e["timestamp-ms"] for e in (*found["metadata-log"], {"timestamp-ms": found["last-updated-ms"]})]
    assert times == sorted(times)
    assert "parent-snapshot-id" not in found["snapshots"][0]
    assert (folder(table) / "metadata" / "version-hint.text").read_text() == "6"
    assert found["last-partition-id"] == 1000
    assert all(isinstance(v, str) for s in found["snapshots"] for v in s["summary"].values())


@pytest.mark.parametrize("hint", [None, "", "garbage", "1", "99", "\0\0"])
def test_the_hint_is_a_hint(table, hint):
    table.append(rows((1, "a")))
    path = folder(table) / "metadata" / "version-hint.text"
    path.unlink() if hint is None else path.write_text(hint)
    assert table.scan().count() == 1
    table.append(rows((2, "a")))
    assert (path.read_text(), len(table.snapshots()), table.scan().count()) == ("3", 2, 2)
    table.expire_snapshots(retain_last=1)
    assert table.missing_files() == []


def test_unpartitioned_tables_have_partition_ids_below_1000(lake):
    assert document(lake.create_table("d.u", SCHEMA, format="iceberg"))["last-partition-id"] == 999


def test_new_entries_inherit_and_all_others_say_their_numbers(table):
    first = table.append(rows((1, "a"), (2, "b"))).id
    assert entries(table) == [(1, None, first)] * 2
    gone = table.drop_partitions([{"dt": "a"}]).id
    assert sorted(entries(table)) == [(0, 1, first), (2, 1, gone)]
    table.append(rows((3, "c")))
    assert sorted(e[0] for e in entries(table)) == [0, 1, 2]
    table.drop_partitions([{"dt": "b"}])  # Written again, the manifest forgets what an earlier snapshot deleted.
    assert sorted((e[0], e[1]) for e in entries(table) if e[0] != 1) == [(2, 1)]
    table.truncate()
    assert [e[0] for e in entries(table)] == [2]
    table.append(rows((4, "d")))
    assert [e[0] for e in entries(table)] == [1]  # Manifests without a live file are named no longer.


def test_manifests_are_merged_once_there_are_enough_and_say_the_same(lake):
    t = lake.create_table(
        "d.m", SCHEMA, format="iceberg", partition_by=["dt"], properties={"commit.manifest.min-count-to-merge": "4"}
    )
    for i in range(10):
        t.append(rows((i, "ab"[i % 2])))
        assert len(t.inspect.manifests()) <= 5
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == list(range(10))
    assert sorted(t.inspect.files()["sequence_number"].to_pylist()) == list(range(1, 11))
    assert sum(p.rows_added for p in t.current_snapshot().partitions) == 1
    t.delete("dt = 'a'")
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 3, 5, 7, 9]


def test_summaries_add_up(table):
    table.append(rows((1, "a"), (2, "b"), (3, "b")))
    made = table.delete("id = 3")
    summary = document(table)["snapshots"][-1]["summary"]
    sizes = table.inspect.files()["size_bytes"].to_pylist()
    assert (made.kind, summary["operation"]) == ("delete", "overwrite")
    for name, value in (
        ("added-data-files", 1), ("deleted-data-files", 1), ("added-records", 1), ("deleted-records", 2),
        ("changed-partition-count", 1), ("total-data-files", 2), ("total-records", 2), ("total-files-size", sum(sizes)),
        ("total-delete-files", 0), ("total-position-deletes", 0), ("total-equality-deletes", 0),
    ):  # fmt: skip
        assert summary[name] == str(value), name
    table.drop_partitions([{"dt": "a"}])
    summary = document(table)["snapshots"][-1]["summary"]
    assert summary["operation"] == "delete"
    assert "added-data-files" not in summary


def test_summaries_list_each_partition_where_there_are_few(lake):
    properties = {"write.summary.partition-limit": "2"}
    t = lake.create_table("d.s", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    t.append(rows((1, "a"), (2, "b"), (3, "c")))
    assert not {k for k in document(t)["snapshots"][-1]["summary"] if k.startswith("partition")}
    t.overwrite_partitions(rows((4, "a"), (5, None)))
    summary = document(t)["snapshots"][-1]["summary"]
    size = dict(zip(*(t.inspect.files()[n].to_pylist() for n in ("partition", "size_bytes")), strict=True))
    assert (summary["replace-partitions"], summary["partition-summaries-included"]) == ("true", "true")
    assert summary["partitions.dt=null"] == f"added-data-files=1,added-records=1,added-files-size={size['dt=null']}"
    expected = "added-data-files=1,deleted-data-files=1,added-records=1,deleted-records=1,added-files-size="
    assert summary["partitions.dt=a"].startswith(expected)
    assert t.snapshots()[-1].properties == {}
    t.overwrite(rows((6, "a")), partition={"dt": "a"})
    assert "replace-partitions" not in document(t)["snapshots"][-1]["summary"]
    with pytest.raises(InvalidInput, match="'replace-partitions' is reserved"):
        t.append(rows((7, "a")), properties={"replace-partitions": "true"})


def test_a_dynamic_overwrite_of_nothing_is_one_too(table):
    table.overwrite_partitions(rows((1, "a")))
    summary = document(table)["snapshots"][-1]["summary"]
    assert (summary["operation"], summary["replace-partitions"]) == ("overwrite", "true")


def test_racing_writers_all_land_once_and_in_order(table):
    def work(writer):
        for i in range(6):
            table.append(rows((writer * 100 + i, "ab"[i % 2])), id=f"{writer}/{i}")

    threads = [threading.Thread(target=work, args=(w,)) for w in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(w * 100 + i for w in range(3) for i in range(6))
    found = document(table)["snapshots"]
    assert [s["sequence-number"] for s in found] == list(range(1, 19))
    assert len({s["snapshot-id"] for s in found}) == 18
    assert newest(table)[0] == 19
    lists = {s["manifest-list"].rsplit("/", 1)[1] for s in found}
    assert {p.name for p in folder(table).glob("metadata/snap-*")} == lists  # What lost a race left nothing behind.


def test_a_rewrite_loses_to_whoever_replaced_its_files_and_leaves_none_of_its_own(table):
    for i in range(3):
        table.append(rows((i, "a")))
    read = tuple(table.inspect.files()["path"].to_pylist())
    store = open_store(table.uri)
    (written,) = ArrowEngine().write(store, rows((0, "a"), (1, "a"), (2, "a")), iceberg.load(store, 4).layout())
    table.overwrite_partitions(rows((9, "a")))
    operation = Rewrite(request=Request(id="late"), removed=read, added=(written,))
    with pytest.raises(Conflict, match="3 are no longer in the table"):
        commit(store, iceberg.head(store), iceberg, operation)
    assert table.scan().to_arrow()["id"].to_pylist() == [9]
    assert not store.exists(written.path)


def test_a_change_of_schema_or_properties_asked_twice_happens_once(table):
    changes = table.alter().add_column("x", "int").changes
    table.evolve(changes, id="once")
    version = newest(table)[0]
    assert table.evolve(changes, id="once").names == ("id", "dt", "x")
    assert newest(table)[0] == version


def test_a_rollback_comes_from_the_snapshot_it_restores_and_frees_what_it_undid(table):
    first = table.append(rows((1, "a"))).id
    undone = table.append(rows((2, "a"))).id
    made = table.rollback_to(snapshot_id=first)
    assert made.parent_id == first
    assert table.scan(snapshot_id=undone).count() == 2  # Until it expires.
    table.append(rows((3, "a")))
    gone = table.expire_snapshots(older_than=datetime.timedelta(0), retain_last=3)
    assert gone.snapshots == (undone,)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]
    with pytest.raises(NotFound):
        table.scan(snapshot_id=undone)
    assert len(list(folder(table).rglob("*.parquet"))) == 2


def test_expiry_keeps_other_branches_and_cuts_the_log(table):
    ids = [table.append(rows((i, "a"))).id for i in range(4)]
    rewrite(table, lambda d: d["refs"].update(side={"snapshot-id": ids[1], "type": "branch"}))
    assert table.expire_snapshots(retain_last=1).snapshots == (ids[0], ids[2])
    found = document(table)
    assert [s["snapshot-id"] for s in found["snapshots"]] == [ids[1], ids[3]]
    assert [e["snapshot-id"] for e in found["snapshot-log"]] == [ids[3]]
    assert table.scan(snapshot_id=ids[1]).count() == 2
    assert table.append(rows((9, "a"))).parent_id == ids[3]
    assert document(table)["refs"]["side"]["snapshot-id"] == ids[1]


def test_documents_go_where_the_table_wants_it(lake):
    properties = {"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "true"}
    t = lake.create_table("d.few", SCHEMA, format="iceberg", properties=properties)
    for i in range(5):
        t.append(rows((i, "a")), id=f"append {i}")
    assert sorted(p.name for p in folder(t).glob("metadata/v*.json")) == [f"v{n}.metadata.json" for n in (4, 5, 6)]
    assert [e["metadata-file"].rpartition("/")[2] for e in document(t)["metadata-log"]] == [
        "v4.metadata.json",
        "v5.metadata.json",
    ]
    made = t.append(rows((0, "a")), id="append 0")
    assert (made.id, t.scan().count(), len(t.snapshots())) == (t.snapshots()[0].id, 5, 5)
    t.alter().set_properties({"write.metadata.delete-after-commit.enabled": "false"}).commit()
    t.append(rows((5, "a")))
    t.append(rows((6, "a")))
    assert len(list(folder(t).glob("metadata/v*.json"))) == 5
    with pytest.raises(InvalidInput, match="must be 'true' or 'false'"):
        t.alter().set_properties({"write.metadata.delete-after-commit.enabled": "yes"}).commit()


def test_expiry_is_refused_where_others_use_the_files(table):
    table.append(rows((1, "a")))
    table.alter().set_properties({"gc.enabled": "false"}).commit()
    with pytest.raises(UnsupportedFeature, match=r"gc\.enabled=false"):
        table.expire_snapshots(retain_last=1)


def test_an_alias_in_another_catalog_does_not_sweep_files_that_its_table_wrote_since(tmp_path):
    table = Lake(tmp_path / "w", catalog="sql").create_table(
        "d.t", SCHEMA, format="iceberg", properties={"gc.enabled": "false"}
    )
    table.append(rows((1, "a")))
    other = Lake(tmp_path / "other", catalog="sql")
    alias = other.register_table("d.alias", doors.view(table).state.location)
    table.append(rows((2, "a")))
    with pytest.raises(UnsupportedFeature, match=r"gc\.enabled=false"):
        alias.remove_orphan_files(older_than=datetime.timedelta(days=-1))
    assert (table.missing_files(), table.scan().count()) == ([], 2)


def test_statistics_files_of_others_pass_through_and_go_with_their_snapshot(table):
    first, _ = table.append(rows((1, "a"))).id, table.append(rows((2, "a")))
    path = folder(table) / "metadata" / "x.stats"
    path.write_bytes(b"x")
    told = {"snapshot-id": first, "statistics-path": f"file://{path}", "file-size-in-bytes": 1}
    rewrite(table, lambda d: d["statistics"].append(told))
    table.append(rows((3, "a")))
    assert document(table)["statistics"] == [told]
    table.expire_snapshots(retain_last=1)
    assert document(table)["statistics"] == []
    assert not path.exists()


def test_hidden_partitions_prune_and_are_overwritten_by_their_rows(lake):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
    t = lake.create_table("d.h", schema, format="iceberg", partition_by=["days(ts)", "bucket(4, id)"])
    day = lambda d: datetime.datetime(2024, 1, d, 5)  # noqa: E731
    t.append(pa.table({"id": list(range(8)), "ts": [day(1 + i % 2) for i in range(8)]}, schema=schema))
    assert sum(len(task.paths) for task in t.scan(where="ts < '2024-01-02'").plan()) < len(t.inspect.files())
    made = t.overwrite_partitions(pa.table({"id": [0], "ts": [day(1)]}, schema=schema))
    assert len(made.partitions) == 1
    assert made.rows_added == 1
    t.delete("ts >= '2024-01-02'")
    assert t.scan(where="ts >= '2024-01-02'").count() == 0
    with pytest.raises(InvalidInput, match="where="):
        t.drop_partitions([{"ts": "2024-01-01"}])


def test_files_under_an_earlier_spec_are_read_and_compacted_but_not_overwritten_blindly(table):
    table.append(rows((1, "a"), (2, "b")))

    def evolve(d):
        d["partition-specs"].append({"spec-id": 1, "fields": [
            {"source-id": 1, "field-id": 1001, "name": "id_bucket", "transform": "bucket[2]"}]})  # fmt: skip
        d.update({"default-spec-id": 1, "last-partition-id": 1001})

    rewrite(table, evolve)
    table.append(rows((3, "a"), (4, "b")))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    assert table.scan(where="dt = 'a'").to_arrow().sort_by("id")["id"].to_pylist() == [1, 3]
    assert table.scan(where="dt = 'a'").count() == 2
    with pytest.raises(UnsupportedFeature, match="earlier partition spec"):
        table.overwrite_partitions(rows((3, "a")))
    table.delete("id = 1")
    table.compact(full=True)
    assert set(table.inspect.files()["spec_id"].to_pylist()) == {1}
    table.overwrite_partitions(rows((3, "z")))
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    assert {"id": 3, "dt": "z"} in found
    assert {"id": 1, "dt": "a"} not in found


def test_encrypted_metadata_is_refused_by_name(table):
    table.append(rows((1, "a")))
    for pattern in ("*-m0.avro", "snap-*.avro"):
        (path,) = (newest(table)[1].parent).glob(pattern)
        path.write_bytes(b"AGS1" + path.read_bytes()[4:])
        with pytest.raises(UnsupportedFeature, match=rf"{path.name}.*encrypted"):
            Lake(newest(table)[1].parents[3]).table("d.t").scan().to_arrow()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda d: d.update({"format-version": 4}), UnsupportedFeature, "version 4"),
        (lambda d: d["partition-specs"][0]["fields"][0].update(transform="zorder[2]"), UnsupportedFeature, "zorder"),
        (lambda d: d["schemas"][0]["fields"][0].update(type="vector"), UnsupportedFeature, "vector"),
        (lambda d: d["schemas"][0]["fields"][0].update({"initial-default": {}}), UnsupportedFeature, "default"),
        (lambda d: d.pop("schemas"), CorruptTable, "schema"),
        (lambda d: d.update({"current-snapshot-id": 5}), CorruptTable, "current snapshot 5"),
    ],
)
def test_documents_that_would_be_half_read_are_refused_by_name(table, change, error, says):
    table.append(rows((1, "a")))
    rewrite(table, change)
    with pytest.raises(error, match=says):
        table.scan()


def test_a_write_to_a_table_of_version_1_makes_it_one_of_version_2(table, caplog):
    table.append(rows((1, "a")))
    rewrite(table, lambda d: d.update({"format-version": 1}))
    assert table.scan().count() == 1
    with caplog.at_level("WARNING", "lakeformat"):
        table.append(rows((2, "a")))
    assert "a table of format version 1 is now one of version 2" in caplog.text
    assert doors.view(table).state.document["format-version"] == 2
    assert table.scan().count() == 2


def test_format_versions_go_up_and_not_back(lake, table):
    table.append(rows((1, "a")))
    for asked in ("1", "4", "x"):
        with pytest.raises(InvalidInput, match="it is 2 or 3"):
            table.alter().set_properties({"format-version": asked}).commit()
    table.alter().set_properties({"format-version": "3"}).commit()
    assert document(table)["format-version"] == 3
    with pytest.raises(InvalidInput, match="never goes back"):
        table.alter().set_properties({"format-version": "2"}).commit()
    table.append(rows((2, "b"), (3, "b")))
    assert document(table)["next-row-id"] == 3  # Old rows have ids too, from the first commit on.
    assert [s.get("first-row-id") for s in document(table)["snapshots"]] == [None, 0]
    assert document(table)["snapshots"][-1]["added-rows"] == 3
    assert "format-version" not in document(table)["properties"]
    new = lake.create_table("d.v3", SCHEMA, format="iceberg", properties={"format-version": "3"})
    new.append(rows((1, "a"), (2, "b")))
    new.append(rows((3, "a")))
    assert [s["first-row-id"] for s in document(new)["snapshots"]] == [0, 2]
    assert (document(new)["next-row-id"], new.scan().count()) == (3, 3)


@pytest.mark.parametrize("ending", [".gz.metadata.json", ".metadata.json.gz"])
def test_compressed_metadata_of_others_is_read_and_continued(table, ending):
    table.append(rows((1, "a")))
    version, path = newest(table)
    others = path.with_name(f"v{version + 1}{ending}")
    others.write_bytes(gzip.compress(path.read_bytes()))
    table.append(rows((2, "a")))
    assert newest(table)[0] == version + 2
    assert document(table)["metadata-log"][-1]["metadata-file"] == f"file://{others}"
    others.with_name(f"v{version + 1}.metadata.json").write_text("{}")  # Java would read this one first.
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    table.evolve([AddColumn("x", "int")], id="once")
    before = newest(table)[0]
    table.evolve([AddColumn("x", "int")], id="once")
    assert newest(table)[0] == before


def test_metadata_is_compressed_where_the_table_asks_for_it(lake):
    codec = "write.metadata.compression-codec"
    t = lake.create_table("d.z", SCHEMA, format="iceberg", properties={codec: "gzip"})
    t.append(rows((1, "a")))
    t.alter().set_properties({codec: "none"}).commit()
    t.append(rows((2, "a")))
    t.alter().set_properties({codec: "GZIP"}).commit()
    t.append(rows((3, "a")))
    t.create_tag("three")
    with pytest.raises(UnsupportedFeature, match="metadata in zstd"):
        t.alter().set_properties({codec: "zstd"}).commit()
    # A version's name follows from the version before it: of two who write it, one alone can.
    plain, packed = ".metadata.json", ".gz.metadata.json"
    endings = [plain, packed, packed, plain, plain, packed, packed]
    names = sorted(p.name for p in folder(t).glob("metadata/v*.json"))
    assert names == [f"v{i + 1}{ending}" for i, ending in enumerate(endings)]
    for name in names:
        data = (folder(t) / "metadata" / name).read_bytes()
        assert data.startswith(b"\x1f\x8b") == name.endswith(packed)
    again = lake.table("d.z")
    assert sorted(again.scan(tag="three").to_arrow()["id"].to_pylist()) == [1, 2, 3]
    log = json.loads(gzip.decompress((folder(t) / "metadata" / names[-1]).read_bytes()))["metadata-log"]
    assert [e["metadata-file"].rpartition("/")[2] for e in log] == names[:-1]
    assert again.expire_snapshots(retain_last=1).snapshots
    assert again.remove_orphan_files(older_than=datetime.timedelta(days=-1)) == []


def test_writers_of_plain_and_compressed_metadata_contest_one_name(lake):
    t = lake.create_table("d.race", SCHEMA, format="iceberg")
    barrier = threading.Barrier(3)

    def work(i):
        barrier.wait()
        t.append(rows((i, "a")))
        t.evolve([SetProperties({"write.metadata.compression-codec": ["gzip", "none"][i % 2], f"k{i}": "v"})])
        t.append(rows((i + 10, "a")))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 10, 11, 12]
    assert {"k0", "k1", "k2"} <= t.properties.keys()


def test_a_small_file_does_not_unpack_to_a_large_one(table):
    _, path = newest(table)
    path.write_bytes(gzip.compress(b'{"a": "' + b"x" * (64 << 20) + b'"}'))
    with pytest.raises(CorruptTable, match=r"v1\.metadata\.json: .* unpack to more than"):
        table.scan()
    path.write_bytes(gzip.compress(b"{}")[:-3])
    with pytest.raises(CorruptTable, match="the end of the gzip data is missing"):
        table.scan()


@pytest.mark.parametrize(
    ("type", "to"),
    [("int", "decimal(12, 2)"), ("float", "double"), ("int", "bigint"), ("decimal(9, 2)", "decimal(12, 2)")],
)
def test_types_widen_as_iceberg_widens(lake, type, to):
    t = lake.create_table("d.w", pa.schema([("id", pa.int64())]), format="iceberg")
    t.alter().add_column("x", type).commit()
    t.append(pa.table({"id": [1]}))
    change = t.alter().change_type("x", to)
    if to.startswith("decimal") and type == "int":
        with pytest.raises(InvalidInput, match="Iceberg widens"):
            change.commit()
    else:
        assert str(change.commit().field("x").type) == to
    assert t.scan().to_arrow().to_pylist() == [{"id": 1, "x": None}]


def test_a_summary_keeps_its_names_to_itself(table):
    for name in ("operation", "total-records", "deleted-data-files", "replace-partitions", "partitions.dt=a"):
        with pytest.raises(InvalidInput, match=name):
            table.append(rows((1, "a")), properties={name: "x"})
    made = table.append(rows((1, "a")), properties={"partition": "x", "wap.id": "y"})
    assert made.properties == table.snapshots()[-1].properties == {"partition": "x", "wap.id": "y"}
