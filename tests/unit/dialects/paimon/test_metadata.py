"""Root documents of every age: schemas, snapshots, hints, tags, consumers; what is refused, and what is tolerated."""

import datetime
import json
import os
import time

import pytest

from lakeformat import CorruptFile, InvalidInput, Lake, LakeError, NotFound, UnsupportedFeature
from lakeformat.dialects.paimon import expire, metadata
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.memory import MemoryFiles
from tests import doors
from tests.unit.dialects.paimon.by_day import SCHEMA, ids, rows

dialect = Paimon()

DAY_MS = 86_400_000


def edit(path, **changes):
    """Change a JSON file; `...` takes a key away."""
    document = json.loads(path.read_text())
    document.update(changes)
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not ...}))


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_says_what_java_wants_and_leaves_out_what_is_null(table, home):
    table.append(rows(1, 2), properties={"who": "me"}, watermark=7)
    table.append(rows(3))
    first, second = (json.loads((home / f"snapshot/snapshot-{i}").read_text()) for i in (1, 2))
    assert None not in first.values()
    assert first["version"] == 3
    assert first["properties"] == {"who": "me"}
    assert first["watermark"] == second["watermark"] == 7
    assert (first["totalRecordCount"], first["deltaRecordCount"]) == (2, 2)
    assert (second["totalRecordCount"], second["deltaRecordCount"]) == (3, 1)
    assert first["commitIdentifier"] == 2**63 - 1
    assert first["nextRowId"] == 0
    for key in ("baseManifestList", "deltaManifestList"):
        assert (home / "manifest" / second[key]).stat().st_size == second[f"{key}Size"]
    assert "properties" not in second


def test_older_writers_nulls_and_lost_fields_are_tolerated(table, home):
    table.append(rows(1))
    table.append(rows(2))
    for i in (1, 2):
        edit(
            home / f"snapshot/snapshot-{i}",
            logOffsets={},
            watermark=-(2**63),
            statistics=None,
            indexManifest=None,
            changelogManifestList=None,
            changelogRecordCount=None,
            properties=None,
            nextRowId=None,
            uuid=...,
            operation=...,
            totalRecordCount=None,
            deltaRecordCount=...,
            baseManifestListSize=...,
            deltaManifestListSize=...,
            somethingNew={"a": [1]},
        )
    assert ids(table) == [1, 2]
    made = table.append(rows(3), watermark=-5)
    document = json.loads((home / "snapshot/snapshot-3").read_text())
    assert document["watermark"] == -5
    assert document["nextRowId"] == 0
    assert ids(table) == [1, 2, 3]
    assert made.rows_added == 1
    assert table.inspect.snapshots().num_rows == 3


def test_a_watermark_never_goes_back(table):
    table.append(rows(1), watermark=10)
    table.append(rows(2), watermark=5)
    table.append(rows(3))
    assert table.inspect.snapshots()["watermark"].to_pylist() == [10, 10, 10]


def test_time_never_goes_back_and_travel_finds_the_newest_by_then(table, home):
    table.append(rows(1))
    ahead = int(time.time() * 1000) + 3_600_000
    edit(home / "snapshot/snapshot-1", timeMillis=ahead)
    table.append(rows(2))
    assert json.loads((home / "snapshot/snapshot-2").read_text())["timeMillis"] == ahead
    assert ids(table, as_of=ahead) == [1, 2]
    with pytest.raises(NotFound, match="the oldest, 1,"):
        table.scan(as_of=ahead - 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "1"},
        {"schemaId": None},
        {"baseManifestList": ...},
        {"deltaManifestList": 5},
        {"deltaManifestList": ""},
        {"commitUser": 5},
        {"commitIdentifier": ...},
        {"commitKind": ["APPEND"]},
        {"timeMillis": "now"},
        {"timeMillis": True},
        {"version": "3"},
        {"version": None},
        {"properties": ["a"]},
        {"properties": {"a": 5}},
        {"totalRecordCount": "7"},
        {"watermark": "7"},
        {"indexManifest": 7},
        {"statistics": 7},
        {"nextRowId": "x"},
        {"id": 5},
    ],
)
def test_a_snapshot_that_contradicts_itself_is_corrupt_by_name(table, home, changes):
    table.append(rows(1))
    edit(home / "snapshot/snapshot-1", **changes)
    if changes == {"version": None}:
        assert ids(table) == [1]
        return
    for read in (
        lambda: table.scan().to_arrow(),
        lambda: table.append(rows(2)),
        lambda: table.snapshots(),
        lambda: table.inspect.snapshots(),
    ):
        with pytest.raises(CorruptFile, match="snapshot-1"):
            read()


def test_a_snapshot_of_a_later_format_is_refused(table, home):
    table.append(rows(1))
    edit(home / "snapshot/snapshot-1", version=4)
    with pytest.raises(UnsupportedFeature, match="version 4"):
        table.scan()


@pytest.mark.parametrize("latest", ["garbage", "", "1", "99", None, "-3", "2\n", "\0\0"])
@pytest.mark.parametrize("earliest", ["garbage", "", "7", None])
def test_hints_are_hints(table, home, latest, earliest):
    for i in range(3):
        table.append(rows(i))
    for name, text in (("LATEST", latest), ("EARLIEST", earliest)):
        path = home / "snapshot" / name
        path.unlink() if text is None else path.write_text(text)
    assert ids(table) == [0, 1, 2]
    assert table.append(rows(3)).id == 4
    assert (home / "snapshot/LATEST").read_text() == "4"
    assert [s.id for s in table.snapshots()] == [1, 2, 3, 4]
    table.expire_snapshots(retain_last=2)
    assert (home / "snapshot/EARLIEST").read_text() == "3"


def test_gaps_in_history_are_no_damage(table, home):
    for i in range(6):
        table.append(rows(i))
    for i in (2, 4):
        (home / f"snapshot/snapshot-{i}").unlink()
    assert [s.id for s in table.snapshots()] == [1, 3, 5, 6]
    assert ids(table, snapshot_id=3) == [0, 1, 2]
    with pytest.raises(NotFound, match="no snapshot 4"):
        table.scan(snapshot_id=4)
    assert table.append(rows(9), id="again").id == 7
    assert table.append(rows(9), id="again").id == 7
    assert table.expire_snapshots(retain_last=2).snapshots == (1, 3, 5)
    assert ids(table) == [0, 1, 2, 3, 4, 5, 9]


def test_strangers_in_the_folders_are_no_snapshots_and_no_schemas(table, home):
    table.append(rows(1))
    for name in (
        "snapshot/snapshot-x",
        "snapshot/.snapshot-2.tmp",
        "snapshot/snapshot-",
        "snapshot/snapshot-2.bak",
        "snapshot/snapshot-٣",
        "schema/schema-x",
        "schema/.schema-1.tmp",
        "schema/schema-1.bak",
        "schema/schema-²",
        "tag/other",
        "consumer/other",
    ):
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("?")
    (home / "snapshot/snapshot-77").mkdir()
    assert ids(table) == [1]
    assert table.append(rows(2)).id == 2
    assert table.inspect.schemas().num_rows == 1
    assert table.inspect.tags().num_rows == 0
    assert table.inspect.consumers().num_rows == 0
    table.alter().add_column("n", "int").commit()
    assert table.schema.id == 1


def test_statistics_pass_through_until_the_schema_changes(table, home):
    table.append(rows(1))
    edit(home / "snapshot/snapshot-1", statistics="stat-1", nextRowId=42)
    table.append(rows(2))
    document = json.loads((home / "snapshot/snapshot-2").read_text())
    assert (document["statistics"], document["nextRowId"]) == ("stat-1", 42)
    table.alter().add_column("n", "int").commit()
    table.append(rows(3))
    document = json.loads((home / "snapshot/snapshot-3").read_text())
    assert ("statistics" in document, document["nextRowId"], document["schemaId"]) == (False, 42, 1)


# --- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "bucket", "format"),
    [(..., "1", "orc"), (1, "1", "orc"), (2, None, "orc"), (3, None, None)],
)
def test_options_that_old_schemas_imply(table, home, version, bucket, format):
    edit(home / "schema/schema-0", version=version)
    given = table.schema.properties
    assert (given.get("bucket"), given.get("file.format")) == (bucket, format)
    # One bucket without a key was the default then, and is written as such.
    table.append(rows(1, 2))
    files = table.inspect.files()
    assert files["file_format"].to_pylist() == [format or "parquet"]
    assert files["path"].to_pylist()[0].split("/")[1] == "bucket-0"
    assert ids(table) == [1, 2]
    table.append(rows(3))
    assert table.compact(full=True) is not None
    assert ids(table) == [1, 2, 3]


@pytest.mark.parametrize(
    "changes",
    [
        {"fields": ...},
        {"fields": {}},
        {"fields": [{"id": 0}]},
        {"fields": [{"id": 0, "name": "id", "type": 5}]},
        {"fields": [{"id": "0", "name": "id", "type": "INT"}]},
        {"fields": [{"id": 0, "name": 7, "type": "INT"}]},
        {"fields": [{"id": 0, "name": "id", "type": "DECIMAL(99, 2)"}]},
        {"fields": [{"id": 0, "name": "id", "type": "not a type"}]},
        {"options": ...},
        {"options": []},
        {"options": {"bucket": 5}},
        {"partitionKeys": ["nowhere"]},
        {"partitionKeys": 5},
        {"id": "0"},
        {"id": 3},
        {"highestFieldId": ...},
        {"highestFieldId": None},
        {"version": "x"},
        {"primaryKeys": [5]},
    ],
)
def test_a_schema_that_contradicts_itself_is_corrupt_by_name(table, home, changes):
    table.append(rows(1))
    edit(home / "schema/schema-0", **changes)
    for read in (lambda: table.scan().to_arrow(), lambda: table.append(rows(2)), lambda: table.schema):
        with pytest.raises(CorruptFile, match="schema-0"):
            read()


@pytest.mark.parametrize(
    "type", [{"type": "ARRAY", "element": "BLOB"}, "VECTOR", {"type": "VECTOR", "element": "FLOAT", "length": 3}]
)
def test_types_that_are_not_known_are_refused_by_name(table, home, type):
    document = json.loads((home / "schema/schema-0").read_text())
    document["fields"].append({"id": 3, "name": "strange", "type": type})
    (home / "schema/schema-0").write_text(json.dumps(document | {"highestFieldId": 3}))
    with pytest.raises(UnsupportedFeature, match=r"schema-0.*(BLOB|VECTOR)"):
        table.scan()


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("type", "object-table", "object-table"),
        ("vector-field", "v", "vector"),
        ("chain-table.enabled", "true", "chain"),
        ("pk-clustering-override", "true", "order of other columns"),
        ("query-auth.enabled", "true", "authorization"),
    ],
)
def test_tables_that_would_be_half_read_are_refused_by_name(table, home, key, value, word):
    table.append(rows(1))
    edit(home / "schema/schema-0", options={key: value})
    for verb in (
        lambda: table.scan().to_arrow(),
        lambda: table.scan(snapshot_id=1),
        lambda: table.append(rows(2)),
        lambda: table.delete("id = 1"),
        lambda: table.truncate(),
        lambda: table.compact(),
        lambda: table.inspect.files(),
        lambda: table.expire_snapshots(retain_last=1),
        lambda: table.remove_orphan_files(datetime.timedelta(0)),
    ):
        with pytest.raises(UnsupportedFeature, match=word):
            verb()
    assert (home / "snapshot/snapshot-1").exists()
    assert not (home / "snapshot/snapshot-2").exists()


@pytest.mark.parametrize("today", [False, True], ids=["refused then", "refused today"])
@pytest.mark.parametrize("key", [False, True], ids=["append", "keyed"])
def test_time_travel_is_refused_by_the_options_of_then_and_by_those_of_today(tmp_path, key, today):
    """An option may be set after a snapshot, or before it and be gone."""
    home, refused = (
        tmp_path / "d.db" / "t",
        {"merge-engine": "newest"} if key else {"query-auth.enabled": "true"},
    )
    given = {"primary_key": ["id"], "properties": {"bucket": "1"}} if key else {}
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, **given)
    table.append(rows(1))
    table.create_tag("kept")
    table.append(rows(2))
    then = json.loads((home / "schema/schema-0").read_text())
    options = then["options"] | refused
    (home / "schema/schema-1").write_text(
        json.dumps(then | {"id": 1, "options": options if today else then["options"]})
    )
    if not today:
        edit(home / "schema/schema-0", options=options)
    made_ms = table.snapshots()[0].timestamp_ms
    for read in (
        lambda: table.scan(snapshot_id=1),
        lambda: table.scan(tag="kept"),
        lambda: table.scan(as_of=made_ms),
        lambda: table.changes(from_snapshot=0, to_snapshot=1),
        lambda: table.inspect.audit_log(to_snapshot=1),
    ):
        with pytest.raises(UnsupportedFeature, match=next(iter(refused)).replace("-", ".")):
            read()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("manifest.format", "orc"),
        ("data-file.external-paths", "file:///tmp/x"),
        ("bucket", "-2"),
        ("unheard-of.enabled", "true"),
    ],
)
def test_tables_that_a_write_would_break_are_read_and_not_written(table, home, key, value):
    table.append(rows(1))
    edit(home / "schema/schema-0", options={key: value})
    assert ids(table) == [1]
    for verb in (
        lambda: table.append(rows(2)),
        lambda: table.overwrite(rows(2)),
        lambda: table.delete("id = 1"),
        lambda: table.update({"v": "'w'"}),
        lambda: table.truncate(),
        lambda: table.drop_partitions([{"dt": "x"}]),
    ):
        with pytest.raises(UnsupportedFeature):
            verb()
    assert [s.id for s in table.snapshots()] == [1]
    assert len(list(home.rglob("*.parquet"))) == 1


def test_primary_key_tables_whose_rows_cannot_be_merged_are_refused_by_every_verb(table, home):
    table.append(rows(1))
    edit(home / "schema/schema-0", primaryKeys=["id", "dt"], options={"bucket": "1", "merge-engine": "newest"})
    for verb in (lambda: table.scan(), lambda: table.append(rows(2)), lambda: table.inspect.files()):
        with pytest.raises(UnsupportedFeature, match="merge engine 'newest'"):
            verb()


def test_unknown_json_fields_of_a_schema_are_skipped(table, home):
    edit(home / "schema/schema-0", news={"a": 1}, comment=None, timeMillis=...)
    table.append(rows(1))
    assert ids(table) == [1]


def test_a_missing_schema_in_between_is_named(table, home):
    table.append(rows(1))
    table.alter().add_column("n", "int").commit()
    (home / "schema/schema-0").unlink()
    assert table.schema.id == 1
    with pytest.raises(LakeError, match="schema-0"):
        table.scan().to_arrow()


# --- tags and consumers -----------------------------------------------------------------------------------------------


def test_tags_with_and_without_a_life_of_their_own(table, home):
    table.append(rows(1))
    table.create_tag("lasting")
    table.create_tag("short", retain=datetime.timedelta(hours=1))
    table.append(rows(2))
    shown = {r["tag_name"]: r["retained_ms"] for r in table.inspect.tags().to_pylist()}
    assert shown == {"lasting": None, "short": 3_600_000}
    document = json.loads((home / "tag/tag-short").read_text())
    assert len(document["tagCreateTime"]) == 7
    assert document["tagTimeRetained"] == 3600
    now_ms = int(time.time() * 1000)
    store = doors.store(table)
    assert metadata.expired_tags(store, metadata.NOTHING, now_ms) == []
    assert metadata.expired_tags(store, metadata.NOTHING, now_ms + 3_700_000) == ["short"]
    # Java leaves zeros off at the end, and writes decimal seconds.
    y, m, d, h, mi, *_ = document["tagCreateTime"]
    (home / "tag/tag-short").write_text(
        json.dumps(document | {"tagCreateTime": [y, m, d, h, mi]})[:-1] + ', "tagTimeRetained": 5.000000000}'
    )
    assert metadata.expired_tags(store, metadata.NOTHING, now_ms + DAY_MS) == ["short"]
    assert ids(table, tag="short") == [1]


@pytest.mark.parametrize("created", ["yesterday", 5, [2024], ["a"] * 7, [2024, 99, 1, 1, 1, 1, 1], {}])
def test_a_tag_with_a_strange_time_is_corrupt_by_name(table, home, created):
    table.append(rows(1))
    table.create_tag("odd", retain=datetime.timedelta(hours=1))
    edit(home / "tag/tag-odd", tagCreateTime=created)
    with pytest.raises(CorruptFile, match="tag-odd"):
        table.expire_snapshots(retain_last=1)
    assert [s.id for s in table.snapshots()] == [1]


def test_a_tags_time_is_the_local_clocks_as_javas_is(table, home):
    before = os.environ.get("TZ")
    try:
        os.environ["TZ"] = "Asia/Shanghai"
        time.tzset()
        document = {"id": 1}
        data = json.loads(metadata.emit_tag(document, 0, 1000))
        assert data["tagCreateTime"] == [1970, 1, 1, 8, 0, 0, 0]
        table.append(rows(1))
        table.create_tag("t", retain=datetime.timedelta(hours=1))
        now_ms = int(time.time() * 1000)
        assert metadata.expired_tags(doors.store(table), doors.view(table).state, now_ms) == []
        assert metadata.expired_tags(doors.store(table), doors.view(table).state, now_ms + 3_700_000) == ["t"]
        newest = table.inspect.partitions()["last_modified_ms"].to_pylist()[0]
        assert abs(newest - now_ms) < 60_000
    finally:
        os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
        time.tzset()


@pytest.mark.parametrize("name", ["", " ", "5", "a/b", "..", ".", "a\nb", "a\\b", "x" * 300, 5, None, "tab\t"])
def test_bad_tag_names_are_refused(table, home, name):
    table.append(rows(1))
    with pytest.raises(LakeError):
        table.create_tag(name)
    assert not (home / "tag").exists() or not list((home / "tag").iterdir())
    if name is not None:
        with pytest.raises(LakeError):
            table.scan(tag=name)


def test_a_consumer_half_written_is_read_again_and_one_that_stays_so_stops_expiry(table, home):
    for i in range(4):
        table.append(rows(i))
    folder = home / "consumer"
    folder.mkdir()
    (folder / "consumer-a").write_text('{"nextSnapshot": 3}')
    assert table.inspect.consumers().to_pylist() == [{"consumer_id": "a", "next_snapshot_id": 3}]
    assert table.expire_snapshots(retain_last=1).snapshots == (1, 2)
    for text in ('{"nextSn', '{"nextSnapshot": null}', "{}", "[]", ""):
        (folder / "consumer-b").write_text(text)
        with pytest.raises(CorruptFile, match="consumer-b"):
            table.expire_snapshots(retain_last=1)
        assert [s.id for s in table.snapshots()] == [3, 4]


def test_names_that_are_not_text_for_json_are_refused_before_anything_is_written(table, home):
    before = sorted(home.rglob("*"))
    with pytest.raises(InvalidInput):
        table.append(rows(1), properties={"a": "\ud800"})
    with pytest.raises(InvalidInput):
        table.append(rows(1), id="\ud800")
    with pytest.raises(InvalidInput):
        table.alter().set_properties({"user.x": "\udfff"}).commit()
    assert sorted(p for p in home.rglob("*") if p.is_file()) == [p for p in before if p.is_file()]


def test_retention_reads_the_tables_options():
    given = {
        "snapshot.num-retained.min": "2",
        "snapshot.num-retained.max": "7",
        "snapshot.time-retained": "2 h",
        "snapshot.expire.limit": "3",
    }
    found = expire.Expiring(
        MemoryFiles(), metadata.State(0, Schema((Field(0, "a", scalar(Kind.INT)),), properties=given))
    ).default_retention(10_000_000)
    assert (found.retain_min, found.retain_max, found.older_than_ms, found.limit) == (2, 7, 10_000_000 - 7_200_000, 3)
    found = expire.Expiring(
        MemoryFiles(), metadata.State(0, Schema((Field(0, "a", scalar(Kind.INT)),)))
    ).default_retention(10_000_000)
    assert (found.retain_min, found.retain_max, found.older_than_ms, found.limit) == (10, 2**31 - 1, 6_400_000, 50)
    assert metadata.attempts(Schema((), properties={"commit.max-retries": "3"})) == 4
