"""The walk of docs/understand-files.md, step by step; the page is what the walk makes today."""

import pytest

from docs import understand_files

DELETED = [f"202305{day:02}" for day in range(3, 11)]


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    return {step.title: step for step in understand_files.walk(tmp_path_factory.mktemp("walk"))}


def new_in(steps, title):
    """The files that a step added to the table's folder."""
    titles = list(steps)
    before = steps[titles[titles.index(title) - 1]]
    return set(steps[title].tree) - set(before.tree)


def kinds(step):
    return [kind for kind, _, _, _ in step.entries]


def test_the_page_is_what_the_walk_makes(steps):
    assert understand_files.PAGE.read_text() == understand_files.page(list(steps.values())), (
        "run python docs/understand_files.py"
    )


def test_a_new_table_is_its_schema(steps):
    assert steps["Create the table"].tree == ("schema/schema-0",)
    assert steps["Create the table"].snapshot is None


def test_one_row_is_a_data_file_a_manifest_two_lists_and_a_snapshot(steps):
    assert new_in(steps, "Insert one row") == {
        "dt=20230501/bucket-0/data-1.parquet",
        *("manifest/manifest-1", "manifest/manifest-list-1", "manifest/manifest-list-2"),
        *("snapshot/snapshot-1", "snapshot/EARLIEST", "snapshot/LATEST"),
    }
    found = steps["Insert one row"]
    assert (found.snapshot["schemaId"], found.snapshot["commitKind"], found.snapshot["totalRecordCount"]) == (
        0,
        "APPEND",
        1,
    )
    assert found.entries == (("ADD", "20230501", "data-1.parquet", 0),)
    assert found.rows == ((1, 10001, "varchar00001", "20230501"),)


def test_nine_rows_are_nine_files_in_nine_partitions(steps):
    found = steps["Insert nine rows in nine partitions"]
    assert kinds(found) == ["ADD"] * 9
    assert len([path for path in new_in(steps, found.title) if path.startswith("dt=")]) == 9
    assert [row[0] for row in found.rows] == list(range(1, 11))


def test_a_delete_adds_a_file_to_each_partition_and_removes_none(steps):
    found = steps["Delete rows"]
    assert [(kind, day) for kind, day, _, _ in found.entries] == [("ADD", day) for day in DELETED]
    assert set(steps["Insert nine rows in nine partitions"].tree) <= set(found.tree)
    assert found.snapshot["totalRecordCount"] == 18
    assert [row[0] for row in found.rows] == [1, 2]


def test_compaction_marks_sixteen_and_two_files_and_adds_two(steps):
    found = steps["Compact"]
    assert found.snapshot["commitKind"] == "COMPACT"
    assert sorted(kinds(found)) == ["ADD"] * 2 + ["DELETE"] * 18
    deleted = [day for kind, day, _, _ in found.entries if kind == "DELETE"]
    assert sorted(deleted) == sorted([*DELETED, *DELETED, "20230501", "20230502"])
    assert [(day, level) for kind, day, _, level in found.entries if kind == "ADD"] == [
        ("20230501", 5),
        ("20230502", 5),
    ]
    named = [[file for action, _, file, _ in found.entries if action == kind] for kind in ("ADD", "DELETE")]
    assert set(named[0]) < set(named[1]), "the two are lifted as they are"
    assert not [path for path in new_in(steps, "Compact") if path.startswith("dt=")]
    assert set(steps["Delete rows"].tree) <= set(found.tree), "no file goes before expiry"
    assert found.rows == steps["Delete rows"].rows


def test_alter_writes_a_schema_that_the_next_snapshot_uses(steps):
    assert new_in(steps, "Alter the table") == {"schema/schema-1"}
    assert steps["Alter the table"].snapshot == steps["Compact"].snapshot
    assert steps["Insert once more"].snapshot["schemaId"] == 1


def test_expiry_removes_what_is_marked_and_nothing_else(steps):
    before, after = steps["Insert once more"], steps["Expire snapshots"]
    gone = set(before.tree) - set(after.tree)
    assert len([path for path in gone if path.startswith("dt=")]) == 16
    assert {path for path in gone if path.startswith("snapshot/")} == {f"snapshot/snapshot-{n}" for n in range(1, 6)}
    assert not any(day in path for path in after.tree for day in DELETED), "partitions that became empty are removed"
    assert after.rows == before.rows
    assert after.snapshot == before.snapshot


def test_a_checkpoint_of_a_stream_is_a_file_first_and_then_two_snapshots(steps):
    before, prepared, after = (
        steps[title] for title in ("Expire snapshots", "Prepare a checkpoint of a stream", "Commit the checkpoint")
    )
    (file,) = new_in(steps, prepared.title)
    assert file.startswith("dt=20230511/bucket-0/data-")
    assert (prepared.snapshot, prepared.rows) == (before.snapshot, before.rows)
    assert [(id, kind) for id, kind, _ in after.history[1:]] == [(7, "APPEND"), (8, "COMPACT")]
    assert after.history[1][2] == 1
    assert sorted((kind, day, level) for kind, day, _, level in after.entries) == [
        ("ADD", "20230511", 5),
        ("DELETE", "20230511", 0),
        ("DELETE", "20230511", 5),
    ]
    assert [row for row in after.rows if row not in before.rows] == [(11, 0, "varchar00011", "20230511")]
    assert len(after.rows) == len(before.rows)


def test_a_checkpoint_is_committed_once(steps):
    first, again = steps["Commit the checkpoint"], steps["Commit it again"]
    assert (again.tree, again.snapshot, again.rows, again.history) == (
        first.tree,
        first.snapshot,
        first.rows,
        first.history,
    )
