"""What a commit makes of an operation on an Iceberg table: documents, references, manifests, and the figures of a snapshot."""

import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat.dialects.iceberg import manifest
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.errors import AlreadyExists, InvalidInput, LakeError, NotFound
from lakeformat.model import evolution
from lakeformat.model.operation import (
    Append,
    DropSnapshots,
    DropTag,
    Evolve,
    Operation,
    OperationKind,
    Request,
    Restore,
    RewriteManifests,
    RowDelta,
)
from lakeformat.model.partition import PartitionField, SortOrder, Transform, TransformKind, identity
from lakeformat.model.schema import Field, Kind, Row, Schema, scalar
from lakeformat.model.snapshot import PartitionChange, Plan, Retention, Stamp
from lakeformat.model.work import ColumnStats, Content, WrittenFile
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors

SCHEMA = Schema(
    fields=(Field(0, "id", scalar(Kind.BIGINT), False), Field(1, "dt", scalar(Kind.STRING))),
    partitioning=identity("dt"),
    properties={"write.delete.mode": "merge-on-read", "commit.manifest-merge.enabled": "false"},
)
MERGED = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "3"}


def rows(*ids: int, dt: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def made(schema: Schema = SCHEMA, **properties: str) -> Table:
    table = Table("d.t", MemoryFiles(), Iceberg())
    create(table, replace(schema, properties={**schema.properties, **properties}))
    return table


def document(table: Table) -> dict[str, Any]:
    found: dict[str, Any] = doors.view(table).state.document
    return found


def metas(table: Table) -> list[dict[str, Any]]:
    """The manifests of the current snapshot."""
    found: list[dict[str, Any]] = manifest.metas_of(
        doors.store(table), doors.view(table).state.snapshot_document
    ).to_pylist()
    return found


def entries(table: Table, content: manifest.ManifestContent = manifest.ManifestContent.DATA) -> pa.Table:
    state = doors.view(table).state
    held = manifest.metas_of(doors.store(table), state.snapshot_document)
    return manifest.read_all(doors.store(table), state, held.filter(pc.equal(held["content"], int(content))))


def deletes(table: Table) -> int:
    """How many delete files are live."""
    found = entries(table, manifest.ManifestContent.DELETES)
    return sum(status != manifest.Status.DELETED for status in found["status"].to_pylist())


def planned(table: Table, operation: Operation, **stamp: Any) -> tuple[Plan, dict[str, Any]]:
    """What would be committed: the plan, and its document."""
    plan = doors.view(table).plan(operation, Stamp(**{"now_ms": 1, "nonce": "x", **stamp}))
    return plan, json.loads(plan.root)


def last(table: Table) -> int:
    made = table.current_snapshot()
    assert made is not None
    return made.id


def ids(table: Table) -> list[int]:
    found: list[int] = sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())
    return found


# --- schemas, specs, orders -------------------------------------------------------------------------------------------


def test_a_schema_that_was_there_is_used_again():
    table = made()
    change = evolution.AddColumn("v", "int")
    told = planned(table, Evolve(request=Request(id="op"), changes=(change,)))[0].snapshot
    assert (told.id, told.kind, told.schema_id) == (0, "evolve", 1)
    table.evolve([change])
    table.append(pa.table({"id": [1], "v": pa.array([1], pa.int32()), "dt": ["a"]}))
    change = evolution.RenameColumn("v", "w")
    told = planned(table, Evolve(request=Request(id="op"), changes=(change,)))[0].snapshot
    assert (told.id, told.schema_id) == (last(table), 2)
    table.evolve([change])
    table.evolve([evolution.RenameColumn("w", "v")])
    found = document(table)
    assert [schema["schema-id"] for schema in found["schemas"]] == [0, 1, 2]
    assert (found["current-schema-id"], found["last-column-id"]) == (1, 3)
    table.evolve([evolution.DropColumn("v"), evolution.AddColumn("v", "int")])
    assert (document(table)["current-schema-id"], document(table)["last-column-id"]) == (3, 4)
    table.evolve([evolution.SetProperties({"owner": "me"}), evolution.SetTableComment("text")])
    assert len(document(table)["schemas"]) == 4
    assert {"owner": "me", "comment": "text"}.items() <= document(table)["properties"].items()


def test_identifier_fields_follow_the_schema():
    table = made()
    table.evolve([evolution.SetKey(("id",))])

    def held() -> list[int]:
        found = document(table)
        (current,) = (s for s in found["schemas"] if s["schema-id"] == found["current-schema-id"])
        identifiers: list[int] = current["identifier-field-ids"]
        return identifiers

    assert held() == [1]
    table.evolve([evolution.RenameColumn("id", "key"), evolution.AddColumn("x", "double", nullable=True)])
    assert held() == [1]
    with pytest.raises(InvalidInput, match="part of the primary key and cannot be dropped"):
        table.evolve([evolution.DropColumn("key")])
    table.evolve([evolution.SetKey(())])
    table.evolve([evolution.DropColumn("key")])


def test_identifier_fields_inside_columns_stay():
    """Other engines set them; they are no primary key of ours."""
    part = Row((Field(5, "k", scalar(Kind.BIGINT), False),))
    table = made(replace(SCHEMA, fields=(*SCHEMA.fields, Field(2, "s", part, False))))
    found = document(table)
    (inside,) = (f["type"]["fields"][0]["id"] for f in found["schemas"][0]["fields"] if f["name"] == "s")
    held = {**found, "schemas": [{**found["schemas"][0], "identifier-field-ids": [inside]}]}
    doors.store(table).write(doors.view(table).state.location, json.dumps(held).encode())
    table.evolve([evolution.AddColumn("v", "int")])
    assert document(table)["schemas"][1]["identifier-field-ids"] == [inside]
    with pytest.raises(InvalidInput, match="a column that is an identifier field cannot be dropped"):
        table.evolve([evolution.DropColumn("s")])


def test_sort_orders_keep_their_ids():
    table = made()

    def sort(*columns: str) -> tuple[int, list[int]]:
        table.alter().set_sort_order(list(columns)).commit()
        found = document(table)
        return found["default-sort-order-id"], [order["order-id"] for order in found["sort-orders"]]

    assert sort("id") == (1, [0, 1])
    assert sort("id DESC", "dt") == (2, [0, 1, 2])
    assert sort("id") == (1, [0, 1, 2])
    with pytest.raises(InvalidInput, match="part of the sort order cannot be dropped"):
        table.evolve([evolution.DropColumn("id")])
    table.evolve([evolution.AddColumn("v", "int")])
    assert document(table)["default-sort-order-id"] == 1
    assert sort() == (0, [0, 1, 2])
    table.evolve([evolution.DropColumn("id")])  # Earlier orders are no reason.
    assert document(table)["default-sort-order-id"] == 0

    sorted_first = made(replace(SCHEMA, sort_order=table_order()))
    sorted_first.alter().set_sort_order([]).commit()
    found = document(sorted_first)
    assert (found["default-sort-order-id"], [order["order-id"] for order in found["sort-orders"]]) == (0, [1, 0])


def table_order() -> SortOrder:
    table = made()
    table.alter().set_sort_order(["id"]).commit()
    return table.schema.sort_order


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (evolution.AddColumn("", "int"), "not the name of a column"),
        (evolution.SetKey(("x",)), "x"),
        (evolution.ChangeType("i", "double"), "i"),
        (evolution.ChangeType("i", "string"), "i"),
        (evolution.AddPartitionField(PartitionField("x", Transform(TransformKind.BUCKET, 4), "x_bucket")), "x"),
        (evolution.SetProperties({"write.delete.mdoe": "x"}), "'write.delete.mode'"),
        (evolution.SetProperties({"format-version": "9"}), "9"),
    ],
)
def test_changes_that_iceberg_does_not_know_are_refused(change: Any, says: str):
    fields = (*SCHEMA.fields, Field(2, "x", scalar(Kind.DOUBLE), False), Field(3, "i", scalar(Kind.INT)))
    table = made(replace(SCHEMA, fields=fields))
    version = doors.view(table).version
    with pytest.raises(LakeError, match=says):
        table.evolve([change])
    assert doors.view(table).version == version


def test_partition_specs_keep_the_ids_of_their_fields():
    table = made()
    (by_id,) = identity("id").fields
    for changes, spec_id, fields in (
        ([evolution.AddPartitionField(by_id)], 1, [1000, 1001]),
        ([evolution.DropPartitionField("dt")], 2, [1001]),
        ([evolution.DropPartitionField("id")], 3, []),
        ([evolution.AddPartitionField(identity("dt").fields[0])], 0, [1000]),
    ):
        table.evolve(changes)
        found = document(table)
        assert (found["default-spec-id"], found["last-partition-id"]) == (spec_id, 1001)
        (spec,) = (s for s in found["partition-specs"] if s["spec-id"] == spec_id)
        assert [field["field-id"] for field in spec["fields"]] == fields
    assert [spec["spec-id"] for spec in found["partition-specs"]] == [0, 1, 2, 3]
    assert len(found["schemas"]) == 1


def test_what_landed_is_found_by_its_id():
    table = made()
    with pytest.raises(AlreadyExists, match="exists already"):
        create(table, SCHEMA)
    change = Evolve(request=Request(id="evolve"), changes=(evolution.AddColumn("v", "int"),))
    assert doors.view(table).find(change) is None
    table.evolve(change.changes, id="evolve")
    found = doors.view(table).find(change)
    assert found is not None
    assert (found.id, found.kind, found.schema_id, found.operation_id, found.partitions) == (
        0,
        "evolve",
        1,
        "evolve",
        (),
    )
    assert found.timestamp_ms == 0, "it does not say when"
    first = table.append(pa.table({"id": [1], "v": pa.array([1], pa.int32()), "dt": ["a"]}), id="append")
    again = doors.view(table).find(Append(request=Request(id="append"), added=()))
    assert again is not None
    assert (again.id, again.partitions) == (first.id, first.partitions)
    table.evolve([evolution.DropColumn("v")], id="evolve again")
    found = doors.view(table).find(replace(change, request=Request(id="evolve again")))
    assert found is not None
    assert found.id == first.id


# --- references -------------------------------------------------------------------------------------------------------


def test_references_say_how_long_they_last():
    table = made()
    table.append(rows(1))
    first = last(table)
    table.create_tag("kept")
    table.create_tag("timed", retain=datetime.timedelta(hours=1))
    table.create_branch("plain")
    table.create_branch(
        "full", retain=datetime.timedelta(hours=1), keep_snapshots=3, keep_younger_than=datetime.timedelta(hours=2)
    )
    refs = document(table)["refs"]
    assert refs["kept"] == {"snapshot-id": first, "type": "tag"}
    age = refs["timed"].pop("max-ref-age-ms") - 3_600_000
    assert (refs["timed"], 0 <= age < 600_000) == ({"snapshot-id": first, "type": "tag"}, True)
    assert refs["plain"] == {"snapshot-id": first, "type": "branch"}
    assert refs["full"] == {
        "snapshot-id": first, "type": "branch",
        "max-ref-age-ms": 3_600_000, "min-snapshots-to-keep": 3, "max-snapshot-age-ms": 7_200_000,
    }  # fmt: skip
    table.branch("full").append(rows(2))
    ahead = document(table)["refs"]["full"]
    assert ahead["min-snapshots-to-keep"] == 3
    assert document(table)["current-snapshot-id"] == first
    assert len(document(table)["snapshot-log"]) == 1
    table.fast_forward("full")
    assert (
        document(table)["current-snapshot-id"] == ahead["snapshot-id"] == document(table)["refs"]["main"]["snapshot-id"]
    )
    assert [entry["snapshot-id"] for entry in document(table)["snapshot-log"]] == [first, ahead["snapshot-id"]]


def test_references_go_by_name():
    table = made()
    table.append(rows(1))
    table.create_tag("tag")
    table.create_branch("branch")
    plan, _ = planned(table, DropTag(request=Request(id="op"), name="tag"))
    assert plan.snapshot.id == last(table)
    table.delete_tag("tag")
    table.delete_branch("branch")
    assert document(table)["refs"].keys() == {"main"}


def test_what_expires_of_a_branch_leaves_the_log_as_it_is():
    table = made()
    table.append(rows(1))
    table.create_branch("branch")
    table.branch("branch").append(rows(2))
    table.append(rows(3))
    log = document(table)["snapshot-log"]
    assert len(log) == 2
    gone = document(table)["refs"]["branch"]["snapshot-id"]
    _, parsed = planned(table, DropSnapshots(request=Request(id="op"), snapshots=(gone,)))
    assert parsed["snapshot-log"] == log


def test_what_expires_leaves_log_and_statistics_too():
    table = made()
    for id in range(3):
        table.append(rows(id))
    base = doors.view(table)
    names = [snapshot["snapshot-id"] for snapshot in document(table)["snapshots"]]
    statistics = [{"snapshot-id": id, "statistics-path": f"{id}.puffin"} for id in names]
    state = replace(
        base.state, document={**document(table), "statistics": statistics, "partition-statistics": statistics}
    )
    expiry = base.expiring.snapshots(Retention(1, retain_max=2), 0)
    assert expiry.snapshots == (names[0],)
    plan = replace(base, state=state).plan(expiry.operation, Stamp(1, "x"))
    found = replace(base, state=state)  # What it was.
    assert len(found.state.document["snapshots"]) == 3
    parsed = __import__("json").loads(plan.root)
    assert [snapshot["snapshot-id"] for snapshot in parsed["snapshots"]] == names[1:]
    assert [entry["snapshot-id"] for entry in parsed["snapshot-log"]] == names[1:]
    for key in ("statistics", "partition-statistics"):
        assert [entry["snapshot-id"] for entry in parsed[key]] == names[1:]
    assert plan.snapshot.kind == "refer"


def test_a_log_with_a_gap_begins_after_it():
    """Time travel needs a log without gaps."""
    table = made()
    for id in range(4):
        table.append(rows(id))
    names = [snapshot["snapshot-id"] for snapshot in document(table)["snapshots"]]
    _, parsed = planned(table, DropSnapshots(request=Request(id="op"), snapshots=(names[1],)))
    assert [entry["snapshot-id"] for entry in parsed["snapshot-log"]] == names[2:]
    assert [snapshot["snapshot-id"] for snapshot in parsed["snapshots"]] == [names[0], *names[2:]]


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_says_what_changed():
    table = made()
    first = table.append(rows(1, 2))
    assert first.partitions == (PartitionChange(("a",), 1, 0, 2, 0, first.bytes_added, 0),)
    second = table.append(pa.concat_tables([rows(3), rows(4, dt="b")]))
    size = sum(file["size_bytes"] for file in table.inspect.files().to_pylist())
    summary = document(table)["snapshots"][1]["summary"]
    expected = {
        "operation": "append", "added-data-files": "2", "added-records": "2", "changed-partition-count": "2",
        "total-data-files": "3", "total-records": "4", "total-files-size": str(size), "total-delete-files": "0",
        "total-position-deletes": "0", "total-equality-deletes": "0",
        "manifests-created": "1", "manifests-kept": "1", "manifests-replaced": "0",
    }  # fmt: skip
    assert expected.items() <= summary.items()
    assert {(p.values, p.rows_added) for p in second.partitions} == {(("a",), 1), (("b",), 1)}
    third = table.delete("id = 1")
    summary = document(table)["snapshots"][2]["summary"]
    expected = {
        "operation": "delete",
        "added-position-deletes": "1",
        "added-delete-files": "1",
        "total-delete-files": "1",
    }
    assert expected.items() <= summary.items()
    assert (third.partitions[0].rows_removed, third.partitions[0].rows_added) == (1, 0)
    overwritten = table.overwrite_partitions(rows(9))
    summary = document(table)["snapshots"][3]["summary"]
    expected = {
        "operation": "overwrite", "replace-partitions": "true", "deleted-data-files": "2", "deleted-records": "3",
        "removed-delete-files": "1", "total-data-files": "2", "total-records": "2", "total-delete-files": "0",
    }  # fmt: skip
    assert expected.items() <= summary.items()
    (change,) = overwritten.partitions
    assert (change.values, change.files_added, change.rows_added, change.rows_removed) == (("a",), 1, 1, 2)
    whole = table.overwrite(rows(7))
    assert document(table)["snapshots"][4]["summary"]["operation"] == "overwrite"
    assert "replace-partitions" not in document(table)["snapshots"][4]["summary"]
    assert whole.rows_added == 1
    table.truncate()
    summary = document(table)["snapshots"][5]["summary"]
    assert (summary["operation"], summary["total-records"], summary["total-files-size"]) == ("delete", "0", "0")
    for exact, snapshot in zip((first, second, third, overwritten, whole), table.snapshots(), strict=False):
        assert table.snapshot(snapshot.id).partitions == exact.partitions


def test_a_summary_lists_the_partitions_where_it_is_asked_to():
    table = made(**{"write.summary.partition-limit": "1"})
    table.append(rows(1))
    table.append(pa.concat_tables([rows(3), rows(4, dt="b")]))
    first, second = (snapshot["summary"] for snapshot in document(table)["snapshots"])
    assert first["partition-summaries-included"] == "true"
    assert first["partitions.dt=a"].startswith("added-data-files=1,added-records=1,added-files-size=")
    assert not [key for key in second if key.startswith("partition")]


def test_a_summary_counts_what_came_and_what_went_by_partition():
    table = made(**{"write.summary.partition-limit": "9"})
    table.append(pa.concat_tables([rows(1), rows(2, dt="b")]))
    table.overwrite(rows(3, dt="c"))
    summary = document(table)["snapshots"][-1]["summary"]
    figures = {path: summary[f"partitions.dt={path}"].split(",") for path in "abc"}
    assert [figure for figure in figures["a"] if "size" not in figure] == ["deleted-data-files=1", "deleted-records=1"]
    assert figures["b"] == figures["a"]
    assert [figure for figure in figures["c"] if "size" not in figure] == ["added-data-files=1", "added-records=1"]


def test_a_snapshot_follows_the_clock_and_the_numbers_of_the_table():
    table = made()
    table.append(rows(1))
    base = doors.view(table)
    late = document(table)["last-updated-ms"]
    request = Request(id="op", absent_until=base.version, watermark=5)
    plan, parsed = planned(table, Append(request=request, added=()), now_ms=late - 1000, attempt=2)
    assert plan.snapshot.timestamp_ms == late
    (path,) = (path for path in plan.files if "/snap-" in path)
    assert path.startswith(f"metadata/snap-{plan.snapshot.id}-3-")
    newest = parsed["snapshots"][-1]
    assert (newest["sequence-number"], parsed["last-sequence-number"]) == (2, 2)
    assert newest["parent-snapshot-id"] == parsed["snapshots"][0]["snapshot-id"]
    assert newest["summary"]["lakeformat.watermark"] == "5"
    assert 0 < newest["snapshot-id"] < 1 << 63
    with pytest.raises(InvalidInput, match="is reserved in snapshot summaries"):
        base.plan(
            replace(Append(request=replace(request, properties={"lakeformat.verb": "x"}), added=())), Stamp(1, "x")
        )


def test_row_ids_go_on_from_snapshot_to_snapshot():
    table = made(**{"format-version": "3"})
    table.append(rows(1, 2))
    table.append(rows(3))
    found = document(table)
    assert [(snapshot["first-row-id"], snapshot["added-rows"]) for snapshot in found["snapshots"]] == [(0, 2), (2, 1)]
    assert found["next-row-id"] == 3


def test_a_rollback_names_the_same_manifests():
    table = made()
    first = table.append(rows(1))
    table.append(rows(2))
    before = document(table)["snapshots"][0]
    table.rollback_to(snapshot_id=first.id)
    newest = document(table)["snapshots"][-1]
    assert (newest["parent-snapshot-id"], newest["summary"]["operation"]) == (first.id, "overwrite")
    totals = {k: v for k, v in before["summary"].items() if k.startswith("total-")}
    assert len(totals) == 6
    assert totals.items() <= newest["summary"].items()
    assert newest["summary"]["changed-partition-count"] == "0"
    assert [m["manifest_path"] for m in metas(table)] == [
        m["manifest_path"] for m in manifest.metas_of(doors.store(table), before).to_pylist()
    ]
    with pytest.raises(NotFound, match="snapshot 5 no longer exists"):
        planned(table, Restore(request=Request(id="x"), snapshot_id=5))


# --- manifests --------------------------------------------------------------------------------------------------------


def test_manifests_of_one_spec_and_content_are_merged_once_there_are_enough():
    table = made(**MERGED)
    for id in range(2):
        table.append(rows(id))
    assert len(metas(table)) == 2
    table.append(rows(2))
    assert len(metas(table)) == 3, "what a commit writes waits for the next one"
    for id in range(3, 6):
        table.append(rows(id))
    assert sum(m["added_files_count"] + m["existing_files_count"] for m in metas(table)) == 6
    assert len(metas(table)) < 5
    summaries = [snapshot["summary"] for snapshot in document(table)["snapshots"]]
    assert any(int(summary["manifests-replaced"]) >= 3 and summary["manifests-created"] == "2" for summary in summaries)
    table.append(rows(10, 11))
    table.delete("id = 10")
    table.evolve([evolution.AddPartitionField(identity("id").fields[0])])
    table.append(rows(6))
    assert {(m["partition_spec_id"], m["content"]) for m in metas(table)} == {(0, 0), (0, 1), (1, 0)}
    assert ids(table) == [0, 1, 2, 3, 4, 5, 6, 11]
    sequences = dict(
        zip(entries(table)["file_path"].to_pylist(), entries(table)["sequence_number"].to_pylist(), strict=True)
    )
    assert sorted(sequences.values()) == [1, 2, 3, 4, 5, 6, 7, 9]


def test_manifests_above_the_target_size_are_left_alone():
    table = made(**MERGED, **{"commit.manifest.target-size-bytes": "10"})
    for id in range(6):
        table.append(rows(id))
    assert len(metas(table)) == 6
    assert [m["added_files_count"] for m in metas(table)] == [1] * 6


def test_a_full_run_is_merged_at_once_and_the_newest_waits():
    table = made()
    for id in range(6):
        table.append(rows(id))
    length = max(m["manifest_length"] for m in metas(table))
    table.alter().set_properties(MERGED | {"commit.manifest.target-size-bytes": str(2 * length + 9)}).commit()
    table.append(rows(6))
    assert [m["added_files_count"] + m["existing_files_count"] for m in metas(table)] == [1, 2, 2, 2]
    assert ids(table) == list(range(7))


def test_a_run_may_be_just_as_large_as_the_target():
    table = made()
    for id in range(4):
        table.append(rows(id))
    both = sum(m["manifest_length"] for m in metas(table)[-2:])
    table.alter().set_properties(MERGED | {"commit.manifest.target-size-bytes": str(both)}).commit()
    table.append(rows(4))
    assert [m["existing_files_count"] for m in metas(table)][-1] == 2


def test_the_newest_run_is_merged_with_just_enough_manifests():
    table = made(**MERGED | {"commit.manifest.min-count-to-merge": "2"})
    table.append(rows(1))
    table.append(rows(2))
    assert len(metas(table)) == 2
    table.append(rows(3))
    assert [m["added_files_count"] + m["existing_files_count"] for m in metas(table)] == [1, 2]


def test_manifests_of_data_and_of_deletes_are_merged_apart():
    table = made(**MERGED | {"commit.manifest.min-count-to-merge": "2"})
    for id in (0, 10, 20, 30):
        table.append(rows(id, id + 1))
    table.evolve([evolution.AddPartitionField(identity("id").fields[0])])
    for id in (0, 10, 20, 30):
        table.delete(f"id = {id}")
    table.append(rows(40))
    found = [(m["partition_spec_id"], m["content"], m["existing_files_count"]) for m in metas(table)]
    assert sorted(found) == [(0, 0, 4), (0, 1, 4), (1, 0, 0)]
    assert ids(table) == [1, 11, 21, 31, 40]
    assert entries(table)["content"].unique().to_pylist() == [0]
    assert entries(table, manifest.ManifestContent.DELETES)["content"].unique().to_pylist() == [1]


def test_manifests_without_live_files_go():
    table = made()
    table.append(rows(1))
    table.append(rows(2, dt="b"))
    table.drop_partitions([{"dt": "a"}])
    assert sorted(m["deleted_files_count"] for m in metas(table)) == [0, 1]
    table.append(rows(3, dt="b"))
    assert [m["deleted_files_count"] for m in metas(table)] == [0, 0]


def test_a_manifest_is_written_again_without_what_went():
    table = made()
    table.append(pa.concat_tables([rows(1), rows(2, dt="b"), rows(3, dt="c")]))
    first = last(table)
    table.drop_partitions([{"dt": "a"}])
    found = entries(table).sort_by("status").to_pylist()
    assert [entry["status"] for entry in found] == [0, 0, 2]
    assert [entry["snapshot_id"] for entry in found] == [first, first, last(table)]
    assert [entry["sequence_number"] for entry in found] == [1, 1, 1]
    table.drop_partitions([{"dt": "b"}])  # What went earlier is not told of again.
    assert sorted(entries(table)["status"].to_pylist()) == [0, 2]
    assert document(table)["snapshots"][-1]["summary"]["deleted-data-files"] == "1"


def test_rewritten_manifests_hold_live_entries_by_partition():
    table = made()
    for id, dt in ((1, "b"), (2, "a"), (3, "b"), (4, "c")):
        table.append(rows(id, dt=dt))
    table.drop_partitions([{"dt": "c"}])
    plan, _ = planned(table, RewriteManifests(request=Request(id="op")))
    table.rewrite_manifests()
    (only,) = metas(table)
    assert (only["existing_files_count"], only["added_files_count"], only["deleted_files_count"]) == (3, 0, 0)
    assert only["sequence_number"] == document(table)["last-sequence-number"] == 6
    assert entries(table)["p1000"].to_pylist() == ["a", "b", "b"]
    assert sorted(entries(table)["sequence_number"].to_pylist()) == [1, 2, 3]
    summary = document(table)["snapshots"][-1]["summary"]
    expected = {
        "operation": "replace", "changed-partition-count": "0", "manifests-created": "1", "manifests-kept": "0",
        "manifests-replaced": "4", "entries-processed": "3", "total-records": "3",
    }  # fmt: skip
    assert expected.items() <= summary.items()
    assert plan.snapshot.kind == "rewrite manifests"
    assert ids(table) == [1, 2, 3]


def test_each_spec_and_content_of_a_commit_has_a_manifest_of_its_own():
    table = made()
    table.evolve([evolution.AddPartitionField(identity("id").fields[0])])
    data = WrittenFile("data/x", ("a", 1), 1, 1)
    marks = replace(data, path="data/d1", content=Content.POSITION_DELETES, spec_id=1, refers_to=("data/y",))
    old = replace(marks, path="data/d0", partition=("a",), spec_id=0)
    delta = RowDelta(request=Request(id="op"), added=(data, marks, old), kind=OperationKind.UPDATE)
    plan, _ = planned(table, delta)
    manifests = [manifest.parse(plan.files[path], path) for path in plan.files if "/snap-" not in path]
    assert sorted(path for part in manifests for path in part["file_path"].to_pylist()) == [
        f"memory://files/data/{name}" for name in ("d0", "d1", "x")
    ]
    assert len(manifests) == 3


# --- dangling deletes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "left"),
    [
        (lambda t: t.append(rows(9)), 2),
        (lambda t: t.compact(full=True, where="dt = 'a'"), 1),
        (lambda t: t.drop_partitions([{"dt": "a"}]), 1),
        (lambda t: t.drop_partitions([{"dt": "c"}]), 2),
        (lambda t: t.delete("id <= 3"), 1),
        (lambda t: t.compact(full=True), 0),
    ],
)
def test_delete_files_go_with_the_data_they_apply_to(verb: Callable[[Table], object], left: int):
    table = made()
    table.append(pa.concat_tables([rows(1, 2, 3), rows(4, 5, 6, dt="b"), rows(7, dt="c")]))
    table.delete("id in (1, 4)")
    assert deletes(table) == 2
    verb(table)
    assert deletes(table) == left
    summary = document(table)["snapshots"][-1]["summary"]
    assert (summary["total-delete-files"], int(summary.get("removed-delete-files", 0))) == (str(left), 2 - left)
    assert not {1, 4} & set(ids(table))


def test_delete_files_older_than_all_data_go():
    table = made(**{"write.delete.granularity": "partition"})  # They name no data file.
    table.append(rows(1, 2))
    table.append(rows(3, 4))
    table.append(rows(5, 6, dt="b"))
    table.delete("id in (1, 3)")
    table.append(rows(7))
    assert deletes(table) == 1
    table.drop_partitions([{"dt": "b"}])
    assert deletes(table) == 1, "it applies to older data"
    table.compact(full=True)
    assert (deletes(table), ids(table)) == (0, [2, 4, 7])


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_bounds_are_cut_as_the_modes_of_the_columns_say():
    fields = (
        *(Field(i, name, scalar(kind)) for i, (name, kind) in enumerate(
            [("s", Kind.STRING), ("b", Kind.BYTES), ("full", Kind.STRING), ("counts", Kind.STRING), ("none", Kind.STRING), ("f", Kind.DOUBLE)]
        )),
    )  # fmt: skip
    mode = "write.metadata.metrics."
    table = made(
        Schema(fields=fields),
        **{f"{mode}default": "truncate(2)", f"{mode}column.full": "full", f"{mode}column.counts": "counts"},
        **{f"{mode}column.none": "none"},
    )
    base = doors.view(table)
    text = ColumnStats(minimum="abc", maximum="xyz", null_count=1, value_count=5, size_bytes=7)
    data = replace(text, minimum=b"abc", maximum=b"\xff\xff\xff")
    numbers = ColumnStats(minimum=1.0, maximum=2.0, null_count=0, value_count=5, nan_count=3, size_bytes=8)
    ids_ = [f.id for f in base.schema.fields]
    file = WrittenFile("data/x", (), 5, 1, stats=dict(zip(ids_, [text, data, text, text, text, numbers], strict=True)))
    bare = WrittenFile("data/y", (), 5, 1)
    short = replace(
        file, path="data/z", stats={ids_[1]: replace(data, maximum=b"a\xff\xff"), ids_[0]: replace(text, maximum="xy")}
    )
    exact = replace(file, path="data/w", stats={ids_[1]: replace(data, maximum=b"zz")})
    long = replace(file, path="data/v", stats={ids_[1]: replace(data, maximum=b"xyz")})
    plan, _ = planned(table, Append(request=Request(id="op"), added=(file, bare, short, exact, long)))
    (path,) = (path for path in plan.files if "/snap-" not in path)
    found = manifest.parse(plan.files[path], path).to_pylist()

    def of(row: int, name: str) -> dict[int, Any] | None:
        held = found[row][name]
        return None if held is None else {pair["key"]: pair["value"] for pair in held}

    one, two, three, four, five, six = ids_
    assert of(0, "lower_bounds") == {one: b"ab", two: b"ab", three: b"abc", six: b"\0\0\0\0\0\0\xf0\x3f"}
    assert of(0, "upper_bounds") == {one: b"xz", three: b"xyz", six: b"\0\0\0\0\0\0\0\x40"}
    assert of(0, "nan_value_counts") == {six: 3}
    assert of(0, "null_value_counts") == {one: 1, two: 1, three: 1, four: 1, six: 0}
    assert of(0, "column_sizes") == {one: 7, two: 7, three: 7, four: 7, six: 8}
    assert of(1, "lower_bounds") is None
    assert of(1, "value_counts") is None
    assert of(2, "upper_bounds") == {one: b"xy", two: b"b"}
    assert of(4, "upper_bounds") == {two: b"xz"}
    assert of(3, "upper_bounds") == {two: b"zz"}, "a value of just that length is its own bound"
    assert five not in (of(0, "value_counts") or {})


def test_delete_files_older_than_all_data_go_without_a_compaction():
    table = made(**{"write.delete.granularity": "partition"})
    for ids_ in ((1, 2), (3, 4)):
        table.append(rows(*ids_))
    table.delete("id in (1, 3)")
    table.append(rows(50, dt="b"))
    assert deletes(table) == 1
    table.delete("id <= 4")  # Whole files, by their bounds.
    assert (deletes(table), ids(table)) == (0, [50])
