"""Merge-on-read in Iceberg tables: what delete, update and compaction write, and which concurrent changes break them."""

import datetime
import itertools
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakeformat import Conflict, CorruptFile, InvalidInput, Lake, UnsupportedFeature
from lakeformat.commit import commit
from lakeformat.dialects.iceberg import conflict, manifest, scan
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.engines import worker
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.errors import NoSuchFile
from lakeformat.expression import sql_text
from lakeformat.model.operation import Append, Request, Rewrite, RowDelta
from lakeformat.model.partition import identity
from lakeformat.model.predicate import ALWAYS, bind
from lakeformat.model.schema import Field, Kind, Row, Schema, scalar, walk
from lakeformat.model.work import Content
from lakeformat.storage.cache import Cache, cached, keeps_part
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from lakeformat.verbs import delete, overwrite, update
from lakeformat.verbs.change import Change
from tests import doors

iceberg = Iceberg()

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
AT_ONCE = datetime.timedelta(days=-1)


def rows(ids, dt, v="v"):
    return pa.table({"id": list(ids), "v": [v] * len(ids), "dt": [dt] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path, fsync="false")


@pytest.fixture
def table(lake):
    """Two partitions of two files each, ids 0 to 39: 0 to 19 in `a`."""
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=MERGE_ON_READ)
    for start, dt in ((0, "a"), (10, "a"), (20, "b"), (30, "b")):
        t.append(rows(range(start, start + 10), dt))
    return t


@cache
def four_files():
    """The files of the table that the fixture `table` makes."""
    store = MemoryFiles("memory://deletes")
    made = Table("t", store, iceberg)
    fields = [
        Field(i, n, scalar(k))
        for i, (n, k) in enumerate([("id", Kind.BIGINT), ("v", Kind.STRING), ("dt", Kind.STRING)])
    ]
    create(made, Schema(tuple(fields), identity("dt"), (), MERGE_ON_READ))
    for start, dt in ((0, "a"), (10, "a"), (20, "b"), (30, "b")):
        made.append(rows(range(start, start + 10), dt))
    return {listed.path: store.read(listed.path) for listed in store.list("")}


@pytest.fixture
def stored():
    """The same table, in memory."""
    store = MemoryFiles("memory://deletes")
    for path, data in four_files().items():
        store.write(path, data)
    return Table("t", store, iceberg)


def ids(table, **how):
    return sorted(table.scan(columns=["id"], **how).to_arrow()["id"].to_pylist())


def summary(table):
    return dict(table.inspect.snapshots()["summary"].to_pylist()[-1])


def store_of(table):
    return doors.store(table)


def base_of(table):
    store = store_of(table)
    return iceberg.load(store, iceberg.head(store).version())


def live_deletes(table):
    return manifest.live_entries(
        store_of(table), base_of(table).state, content=manifest.ManifestContent.DELETES
    ).to_pylist()


def delete_keys(table, values, column="id"):
    """A commit of equality deletes, as streaming writers make them."""
    store, base = store_of(table), base_of(table)
    field = base.schema.field(column)
    layout = replace(
        base.layout(), fields=(field,), partition_by=(), directory=lambda v, b: "data/dt=a", stats=(),
        content=Content.EQUALITY_DELETES,
    )  # fmt: skip
    (file,) = worker.write(store, iter([pa.record_batch({column: pa.array(values)})]), layout)
    file = replace(file, partition=("a",), spec_id=0, compared=(field.id,))
    request = Request(id=f"keys {values}", schema_id=base.schema.id)
    return commit(
        store, iceberg.head(store), iceberg, RowDelta(request=request, added=(file,), kind="append", isolation=None)
    )


# --- what is written --------------------------------------------------------------------------------------------------


def test_delete_adds_one_file_of_positions_for_each_data_file_and_touches_no_data(table):
    before = set(table.inspect.files()["path"].to_pylist())
    made = table.delete("id in (3, 4, 25)")
    assert (made.kind, made.rows_removed, made.rows_added, made.files_removed) == ("delete", 3, 0, 0)
    assert set(table.inspect.files()["path"].to_pylist()) == before
    assert ids(table) == [i for i in range(40) if i not in (3, 4, 25)]
    assert table.scan().count() == 37
    assert table.scan(where="dt = 'a'").count() == 18
    assert table.scan(limit=37).to_arrow().num_rows == 37
    found = live_deletes(table)
    assert sorted((d["p1000"], d["record_count"], d["content"], d["sequence_number"]) for d in found) == [
        ("a", 2, 1, 5), ("b", 1, 1, 5),
    ]  # fmt: skip
    for entry in found:
        assert entry["referenced_data_file"] in before
        bounds = {pair["key"]: pair["value"] for pair in entry["lower_bounds"]}
        assert bounds[2147483546].decode() == entry["referenced_data_file"]
        assert entry["sort_order_id"] is None


def test_summaries_of_changes_by_row_are_complete(table):
    table.delete("id in (3, 25)")
    found = summary(table)
    assert (found["operation"], found["added-delete-files"], found["added-position-delete-files"]) == (
        "delete",
        "2",
        "2",
    )
    assert (found["added-position-deletes"], found["changed-partition-count"]) == ("2", "2")
    assert (found["total-delete-files"], found["total-position-deletes"], found["total-records"]) == ("2", "2", "40")
    assert "added-data-files" not in found
    table.update({"v": "'new'"}, where="id = 4")
    found = summary(table)
    assert (found["operation"], found["added-data-files"], found["added-records"]) == ("overwrite", "1", "1")
    # The positions of the same data file are in one delete file again.
    assert (found["added-position-deletes"], found["removed-position-deletes"], found["total-position-deletes"]) == (
        "2", "1", "3",
    )  # fmt: skip
    assert found["total-delete-files"] == "2"
    delete_keys(table, [7, 8, 9])
    found = summary(table)
    assert (found["added-equality-delete-files"], found["total-equality-deletes"]) == ("1", "3")
    table.compact(full=True)
    found = summary(table)
    assert found["operation"] == "replace"
    assert (found["removed-delete-files"], found["total-delete-files"], found["total-equality-deletes"]) == (
        "3",
        "0",
        "0",
    )
    assert (found["added-records"], found["total-records"]) == ("35", "35")


def test_update_moves_rows_and_leaves_the_others_where_they_are(table):
    before = set(table.inspect.files()["path"].to_pylist())
    made = table.update({"v": "concat(v, cast(id as string))", "dt": "'c'"}, where="id % 10 = 1")
    assert (made.kind, made.rows_added, made.rows_removed) == ("update", 4, 4)
    assert before < set(table.inspect.files()["path"].to_pylist())
    assert ids(table, where="dt = 'c'") == [1, 11, 21, 31]
    assert sorted(table.scan(where="dt = 'c'").to_arrow()["v"].to_pylist()) == ["v1", "v11", "v21", "v31"]
    assert ids(table) == list(range(40))
    assert table.update({"v": "'x'"}, where="id = 99") is None
    assert table.delete("id = 99") is None


def test_granularity_partition_writes_one_file_for_all_data_files_of_a_partition(lake):
    properties = {**MERGE_ON_READ, "write.delete.granularity": "partition"}
    t = lake.create_table("d.g", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    t.append(rows(range(10), "a"))
    t.append(rows(range(10, 20), "a"))
    t.delete("id in (1, 11)")
    (found,) = live_deletes(t)
    assert (found["record_count"], found["referenced_data_file"]) == (2, None)
    t.delete("id = 2")
    assert len(live_deletes(t)) == 2
    assert ids(t) == [0, *range(3, 11), *range(12, 20)]
    with pytest.raises(InvalidInput, match="file or partition"):
        t.alter().set_properties({"write.delete.granularity": "bucket"}).commit()


def test_whole_files_still_go_by_metadata_alone(table):
    made = table.delete("id < 10")
    assert made.files_removed == 1
    assert live_deletes(table) == []
    table.delete("id = 11")
    made = table.delete("dt = 'a'")
    assert live_deletes(table) == []  # What told of the files that went is of no use.
    assert made.rows_removed == 9
    assert ids(table) == list(range(20, 40))


@pytest.mark.parametrize(
    "verb",
    [
        lambda t: t.delete("id = 12"),
        lambda t: t.update({"v": "'x'"}, where="id = 12"),
        lambda t: t.overwrite(rows([12], "a"), where="id = 12"),
    ],
)
def test_copy_on_write_heeds_the_deletes_there_are(table, verb):
    table.delete("id in (11, 25)")
    delete_keys(table, [13])
    table.alter().set_properties({f"write.{v}.mode": "copy-on-write" for v in ("delete", "update")}).commit()
    before = set(ids(table))
    verb(table)
    assert set(ids(table)) | {12} == before
    assert not {11, 13, 25} & set(ids(table))
    assert [d["p1000"] for d in live_deletes(table)].count("b") == 1


def test_overwritten_partitions_take_their_deletes_with_them(table):
    table.delete("id in (3, 25)")
    table.overwrite_partitions(rows([1, 2, 3], "a"))
    assert [d["p1000"] for d in live_deletes(table)] == ["b"]
    assert ids(table) == [1, 2, 3, *(i for i in range(20, 40) if i != 25)]
    table.truncate()
    assert live_deletes(table) == []
    table.append(rows([3], "a"))
    assert ids(table) == [3]


def test_time_travel_rollback_and_ids_work_as_ever(table):
    then = table.current_snapshot().id
    made = table.delete("id = 3", id="once")
    assert table.delete("id = 3", id="once").id == made.id
    assert ids(table, snapshot_id=then) == list(range(40))
    assert table.current_snapshot().rows_removed == 1
    table.rollback_to(snapshot_id=then)
    assert ids(table) == list(range(40))
    table.rollback_to(snapshot_id=made.id)
    assert 3 not in ids(table)


def test_keys_apply_to_older_data_only_and_in_their_partition(table):
    delete_keys(table, [3, 25])
    assert ids(table) == [i for i in range(40) if i != 3]
    table.append(rows([3], "a", "again"))
    assert 3 in ids(table)
    assert table.scan().count() == 40
    table.alter().rename_column("id", "key").commit()
    assert table.scan(columns=["key"], where="key = 3").to_arrow().num_rows == 1
    table.alter().drop_column("v").commit()
    assert table.scan().count() == 40


def test_deletes_of_orc_tables(lake):
    properties = {**MERGE_ON_READ, "write.format.default": "orc", "write.delete.format.default": "parquet"}
    t = lake.create_table("d.o", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    t.append(rows(range(10), "a"))
    t.delete("id = 3")
    delete_keys(t, [4, 5])
    assert {d["file_format"] for d in live_deletes(t)} == {"PARQUET", "ORC"}
    assert ids(t) == [0, 1, 2, 6, 7, 8, 9]
    t.compact(full=True)
    assert (ids(t), live_deletes(t)) == ([0, 1, 2, 6, 7, 8, 9], [])


def test_keys_by_a_column_that_was_dropped_still_apply(lake):
    t = lake.create_table("d.k", SCHEMA, format="iceberg", partition_by=["dt"])
    t.append(pa.table({"id": [1, 2, 3], "v": ["x", None, "z"], "dt": ["a"] * 3}))
    delete_keys(t, ["x", None], column="v")
    assert ids(t) == [3]
    t.alter().drop_column("v").commit()
    assert ids(t) == [3]
    t.alter().add_column("w", "string").commit()
    t.append(pa.table({"id": [4], "w": [None], "dt": ["a"]}))
    delete_keys(t, ["q"], column="w")
    assert ids(t) == [3, 4]
    delete_keys(t, [None], column="w")  # Rows of files that lack the column have null there.
    assert ids(t) == []


def test_files_of_a_write_that_fails_are_removed(table, monkeypatch):
    class Failing(ArrowEngine):
        def rewrite(self, store, tasks):
            raise InvalidInput("no")

    store = store_of(table)
    before = {f.path for f in store.list("data")}
    condition = bind(sql_text.parse("id = 3"), table.schema.fields)
    change = Change(store, base_of(table), Failing(), Request(id="x"))
    with pytest.raises(InvalidInput, match="no"):
        update.update(change, {"v": condition}, condition)
    assert {f.path for f in store.list("data")} == before


# --- maintenance ------------------------------------------------------------------------------------------------------


def test_expiry_and_the_sweep_keep_files_of_deletes_as_long_as_a_snapshot_names_them(table):
    folder = Path(table.uri.removeprefix("file://"))
    table.delete("id = 3")
    kept = table.current_snapshot().id
    assert table.remove_orphan_files(older_than=AT_ONCE) == []
    table.compact(full=True)
    table.expire_snapshots(retain_last=2)
    assert 3 not in ids(table, snapshot_id=kept)
    assert len(list(folder.rglob("*deletes*.parquet"))) == 1
    table.expire_snapshots(retain_last=1)
    assert list(folder.rglob("*deletes*.parquet")) == []
    orphan = folder / "data" / "00000-0-deletes-00000000-0000-0000-0000-000000000000-0.parquet"
    orphan.write_bytes(b"x")
    (folder / "data" / "00000-0-00000000-0000-0000-0000-000000000000-00001-deletes.puffin").write_bytes(b"x")
    assert len(table.remove_orphan_files(older_than=AT_ONCE)) == 2
    assert ids(table) == [i for i in range(40) if i != 3]


# --- conflicts --------------------------------------------------------------------------------------------------------

CONDITION = "dt = 'a' and id < 15"
# What others do meanwhile: to the file that is changed, and to others.
MEANWHILE = {
    "append": lambda t: t.append(rows([-1], "a")),
    "position delete": lambda t: t.delete("id = 12"),
    "update": lambda t: t.update({"v": "'x'"}, where="id = 12"),
    "compact": lambda t: t.compact(full=True, where="dt = 'a'"),
    "drop": lambda t: t.drop_partitions([{"dt": "a"}]),
    "overwrite": lambda t: t.overwrite_partitions(rows([-1], "a")),
    "equality delete": lambda t: delete_keys(t, [12]),
    "append elsewhere": lambda t: t.append(rows([-1], "b")),
    "delete elsewhere": lambda t: t.delete("id = 25"),
    "update elsewhere": lambda t: t.update({"v": "'x'"}, where="id = 25"),
    "compact elsewhere": lambda t: t.compact(full=True, where="dt = 'b'"),
    "overwrite elsewhere": lambda t: t.overwrite_partitions(rows([-1], "b")),
}
ALL = {name for name in MEANWHILE if "elsewhere" not in name}
# (what, isolation) -> what breaks it: BaseRowDelta, BaseOverwriteFiles and BaseRewriteFiles as Spark calls them.
BREAKS = {
    ("delete by position", "serializable"): {"append", "update", "compact", "overwrite"},
    ("delete by position", "snapshot"): {"compact", "overwrite"},
    ("update by position", "serializable"): ALL,
    ("update by position", "snapshot"): ALL - {"append"},
    ("delete by copy", "serializable"): ALL,
    ("delete by copy", "snapshot"): ALL - {"append"},
    ("update by copy", "serializable"): ALL,
    ("update by copy", "snapshot"): ALL - {"append"},
    ("overwrite by row", None): ALL - {"append"},
    ("compact", None): ALL - {"append", "equality delete"},
    ("append", None): set(),
}


def operation(table, what, isolation):
    """A change that has been made ready, and waits to be committed."""
    store, base, engine = store_of(table), base_of(table), ArrowEngine(1)
    schema = replace(base.schema, properties={
        **{f"write.{v}.mode": "copy-on-write" if "copy" in what else "merge-on-read" for v in ("delete", "update")},
        **{f"write.{v}.isolation-level": isolation or "snapshot" for v in ("delete", "update")},
    })  # fmt: skip
    base = replace(base, state=replace(base.state, schema=schema))
    condition = bind(sql_text.parse(CONDITION), schema.fields)
    request = Request(id="late", absent_until=base.version)
    match what.split()[0]:
        case "append":
            return Append(request=request, added=tuple(engine.write(store, rows([77], "a"), base.layout())))
        case "delete":
            return delete.delete(Change(store, base, engine, request), condition)
        case "update":
            assigned = {"v": bind(sql_text.parse("'late'"), schema.fields)}
            return update.update(Change(store, base, engine, request), assigned, condition)
        case "overwrite":
            return overwrite.replace_rows(Change(store, base, engine, request), condition, (), None)
    tasks = base.compaction.tasks(True, ALWAYS)
    removed = tuple(p for t in tasks for r in t.read for p in r.paths)
    added = tuple(f for written in engine.rewrite(store, tasks) for f in written)
    return Rewrite(request=request, removed=removed, added=added, read_at=base.snapshot.id)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize(("what", "isolation"), BREAKS, ids=lambda v: str(v))
def test_what_others_did_meanwhile_breaks_what_java_says_it_breaks(stored, what, isolation, meanwhile):
    table = stored
    late = operation(table, what, isolation)
    assert isinstance(late, RowDelta) == ("position" in what)
    if what == "compact" and "elsewhere" in meanwhile:
        late = None  # It would rewrite these files too.
    MEANWHILE[meanwhile](table)
    if late is None:
        return
    expected = ids(table)
    store = store_of(table)
    if meanwhile in BREAKS[what, isolation]:
        with pytest.raises(Conflict):
            commit(store, iceberg.head(store), iceberg, late)
        assert ids(table) == expected
        assert not any(store.exists(f.path) for f in late.added)
        return
    commit(store, iceberg.head(store), iceberg, late)
    match what.split()[0]:
        case "delete":
            came = [-1, 12] if meanwhile == "update" else [-1]  # What came meanwhile stays, also as another's new row.
            assert ids(table) == [i for i in expected if not 0 <= i < 15 or i in came]
        case "compact" | "update":
            assert ids(table) == expected
        case "append":
            assert ids(table) == sorted([*expected, 77])


@pytest.mark.parametrize("what", ["delete by position", "update by position", "update by copy", "compact", "append"])
def test_what_others_do_on_other_branches_breaks_nothing(stored, what):
    audit = stored.create_branch("audit")
    for table, elsewhere in ((stored, audit), (audit, stored)):
        before = ids(table)
        store, base = store_of(table), doors.view(table)
        late = operation(stored, what, "serializable")
        late = replace(late, request=replace(late.request, branch=table._branch, id=f"{what} {table._branch}"))
        if not isinstance(late, Append):
            late = replace(late, read_at=base.snapshot.id)
        elsewhere.append(rows([-1], "a"))
        elsewhere.delete("id = 12")
        commit(store, iceberg.head(store), iceberg, late)
        gone = range(15) if what.startswith("delete") else ()
        assert ids(table) == [i for i in before if i not in gone] + ([77] if what == "append" else [])
        assert -1 in ids(elsewhere)
        assert 12 not in ids(elsewhere)
        if table is stored:  # As it was.
            stored.rollback_to(snapshot_id=base.snapshot.id)
            audit.rollback_to(snapshot_id=base.snapshot.id)


@pytest.mark.parametrize("what", ["delete by position", "update by position", "update by copy", "compact", "append"])
def test_who_changes_the_partitions_meanwhile_breaks_what_brings_data(stored, what):
    late = operation(stored, what, "snapshot")
    stored.alter().add_partition_field("bucket(2, id)").commit()
    store, before = store_of(stored), ids(stored)
    if what == "delete by position":
        commit(store, iceberg.head(store), iceberg, late)
        assert ids(stored) == list(range(15, 40))
        return
    with pytest.raises(Conflict, match="another writer changed the table's partitions"):
        commit(store, iceberg.head(store), iceberg, late)
    assert ids(stored) == before


# (what, meanwhile) -> whether it breaks, in a table of version 3.
VECTORS = {
    ("delete by position", "position delete"): True,
    ("delete by position", "update"): True,
    ("delete by position", "equality delete"): False,
    ("delete by position", "delete elsewhere"): False,
    ("update by position", "position delete"): True,
    ("compact", "position delete"): True,
    ("compact", "equality delete"): False,
    ("update by copy", "position delete"): True,
}


@pytest.mark.parametrize(("what", "meanwhile"), VECTORS)
def test_vectors_of_the_same_data_file_are_no_ones_to_overlook(stored, what, meanwhile):
    stored.alter().set_properties({"format-version": "3"}).commit()
    late = operation(stored, what, "snapshot")
    MEANWHILE[meanwhile](stored)
    store, before = store_of(stored), ids(stored)
    if VECTORS[what, meanwhile]:
        with pytest.raises(Conflict):
            commit(store, iceberg.head(store), iceberg, late)
        assert ids(stored) == before
        return
    commit(store, iceberg.head(store), iceberg, late)
    assert ids(stored) == [i for i in before if what == "compact" or i >= 15]


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_a_pinned_overwrite_minds_rows_that_came_or_went_in_its_partitions(stored, meanwhile):
    """`validateNoConflictingData` and `validateNoConflictingDeletes`, from the snapshot that was read."""
    then = stored.current_snapshot().id
    MEANWHILE[meanwhile](stored)
    before = ids(stored)
    if "elsewhere" in meanwhile or meanwhile == "compact":
        stored.overwrite_partitions(rows([7], "a"), pinned_to=then)
        assert ids(stored) == sorted([7, *(i for i in before if i >= 20 or i == -1)])
        return
    with pytest.raises(Conflict, match="after snapshot"):
        stored.overwrite_partitions(rows([7], "a"), pinned_to=then)
    assert ids(stored) == before


@pytest.mark.parametrize("meanwhile", ["append", "position delete", "compact", "append elsewhere"])
def test_a_snapshot_that_does_not_say_what_it_did_is_looked_at(stored, meanwhile):
    then = stored.current_snapshot().id
    late = operation(stored, "update by position", "serializable")
    MEANWHILE[meanwhile](stored)
    store = store_of(stored)
    path = f"metadata/v{iceberg.head(store).version()}.metadata.json"
    document = json.loads(store.read(path))
    del document["snapshots"][-1]["summary"]
    store.write(path, json.dumps(document).encode())
    assert doors.view(stored).staging.staged("an id") == []
    before = ids(stored)
    if meanwhile == "append elsewhere":
        commit(store, iceberg.head(store), iceberg, late)
        stored.overwrite_partitions(rows([15], "c"), pinned_to=then)
        assert ids(stored) == sorted([*before, 15])
        return
    with pytest.raises(Conflict):
        commit(store, iceberg.head(store), iceberg, late)
    with pytest.raises(Conflict, match="after snapshot"):
        stored.overwrite_partitions(rows([7], "a"), pinned_to=then)
    assert ids(stored) == before


def test_each_check_is_one_of_java_s_and_each_verb_has_its_own():
    assert {check for checks in conflict.CHECKED.values() for check in checks} == set(conflict.Check)
    assert conflict.LOOKS_AT[conflict.Check.ADDED_DATA] == {"append", "overwrite"}
    for kind, isolation in itertools.product(("delete", "update", "merge"), ("serializable", "snapshot")):
        assert (RowDelta, kind, isolation) in conflict.CHECKED
        assert (Rewrite, kind, isolation) in conflict.CHECKED


def test_a_compaction_does_not_bring_back_rows_that_were_deleted_before_the_last_append(table):
    """pyiceberg 0.12 looks at the last snapshot alone, and the rows come back."""
    late = operation(table, "compact", None)
    table.delete("id in (0, 1)")
    table.append(rows([50], "a"))
    store = store_of(table)
    with pytest.raises(Conflict, match="deleted rows, by position, of a file that is replaced"):
        commit(store, iceberg.head(store), iceberg, late)
    assert not {0, 1} & set(ids(table))


def test_keys_that_came_during_a_compaction_apply_to_what_it_wrote(table):
    late = operation(table, "compact", None)
    delete_keys(table, [3])
    store = store_of(table)
    commit(store, iceberg.head(store), iceberg, late)
    assert 3 not in ids(table)
    assert set(table.inspect.files()["sequence_number"].to_pylist()) == {4}  # Of what was read.


def test_a_rewrite_that_does_not_say_what_it_read_bears_no_deletes(table):
    late = replace(operation(table, "compact", None), read_at=None)
    table.delete("id = 3")
    store = store_of(table)
    with pytest.raises(Conflict, match="another writer deleted rows"):
        commit(store, iceberg.head(store), iceberg, late)


def test_history_that_does_not_reach_back_is_a_conflict(table):
    late = operation(table, "delete by position", "snapshot")
    table.append(rows([50], "b"))
    table.append(rows([51], "b"))
    table.expire_snapshots(retain_last=1)
    store = store_of(table)
    with pytest.raises(Conflict, match="history from there"):
        commit(store, iceberg.head(store), iceberg, late)


def test_isolation_levels_are_words(table):
    with pytest.raises(InvalidInput, match="serializable or snapshot"):
        table.alter().set_properties({"write.delete.isolation-level": "none"}).commit()
    late = replace(operation(table, "delete by position", "snapshot"), isolation="none")
    store = store_of(table)
    with pytest.raises(UnsupportedFeature, match="isolation 'none'"):
        commit(store, iceberg.head(store), iceberg, late)


# --- compaction -------------------------------------------------------------------------------------------------------


def test_files_of_which_much_is_deleted_are_compacted_alone(table):
    table.delete("id in (1, 2)")  # A fifth of a file.
    assert table.compact() is None
    table.delete("id in (3, 21)")  # Three tenths of one, a tenth of another.
    made = table.compact()
    told = (made.files_removed, made.rows_removed, made.rows_added)
    assert told == (3, 17, 17)  # With the other one of its partition, and its deletes.
    assert [d["p1000"] for d in live_deletes(table)] == ["b"]
    table.alter().set_properties({"lakeformat.compact.delete-file-threshold": "1"}).commit()
    assert table.compact().rows_added == 19
    assert live_deletes(table) == []
    assert ids(table) == [i for i in range(40) if i not in (1, 2, 3, 21)]
    table.delete("id % 10 = 5 and id > 5")
    table.compact(full=True)
    assert live_deletes(table) == []
    with pytest.raises(InvalidInput, match="must be a number"):
        table.alter().set_properties({"lakeformat.compact.delete-ratio-threshold": "most"}).commit()


def test_small_files_are_rewritten_together_up_to_the_target_size(lake):
    t = lake.create_table("d.small", SCHEMA, format="iceberg")
    for i in range(8):
        t.append(rows([i], "a"))
    size = min(t.inspect.files()["size_bytes"].to_pylist())
    t.alter().set_properties({"write.target-file-size-bytes": str(2 * size)}).commit()
    plan = t.compaction_plan(full=True)
    assert [len(paths) for paths in plan["paths"].to_pylist()] == [2] * 4
    assert t.compact(full=True).files_removed == 8
    assert ids(t) == list(range(8))


def test_a_file_of_which_all_is_deleted_goes(table):
    table.delete("id >= 10 and id < 20 and v = 'v' or id = 3")
    table.compact()
    assert ids(table) == [i for i in range(40) if not 10 <= i < 20 and i != 3]
    assert table.scan(where="dt = 'a'").count() == 9


def test_position_deletes_are_rewritten_as_the_granularity_says_and_without_what_is_gone(table):
    for i in (1, 2, 11, 12, 21):
        table.alter().set_properties({"write.delete.granularity": "partition"}).commit()
        table.delete(f"id = {i}")
    assert len(live_deletes(table)) == 5
    assert table.rewrite_position_deletes() is None  # Four in a partition.
    before, expected = summary(table), ids(table)
    made = table.rewrite_position_deletes(full=True, where="dt = 'a'")
    assert (made.kind, made.rows_removed, made.rows_added) == ("compact", 0, 0)
    assert sorted((d["p1000"], d["record_count"]) for d in live_deletes(table)) == [("a", 4), ("b", 1)]
    assert ids(table) == expected
    found = summary(table)
    assert found["operation"] == "replace"
    assert found["total-position-deletes"] == before["total-position-deletes"]
    table.alter().set_properties({"write.delete.granularity": "file"}).commit()
    table.rewrite_position_deletes(full=True)
    assert sorted(d["record_count"] for d in live_deletes(table)) == [1, 2, 2]
    assert all(d["referenced_data_file"] for d in live_deletes(table))
    assert ids(table) == expected
    assert ids(table, where="dt = 'a'") == [i for i in expected if i < 20]


# --- version 3 --------------------------------------------------------------------------------------------------------


@pytest.fixture
def vectors(table):
    table.alter().set_properties({"format-version": "3"}).commit()
    return table


def lineage(table):
    """Row -> (its id, when it changed)."""
    store, base = store_of(table), base_of(table)
    fields, _ = base.rewriting()
    tasks = base.tasks(base.files(), fields)
    batches = [batch for task in tasks for batch in worker.read(store, task)]
    return {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"]) for b in batches for row in b.to_pylist()}


def test_one_file_holds_the_vectors_of_a_commit_and_each_data_file_has_one(vectors):
    vectors.delete("id in (1, 11)")
    vectors.delete("id in (2, 21)")
    found = live_deletes(vectors)
    assert sorted(d["record_count"] for d in found) == [1, 1, 2]
    assert len({d["referenced_data_file"] for d in found}) == 3
    assert all(d["content_offset"] >= 4 and d["content_size_in_bytes"] < d["file_size_in_bytes"] for d in found)
    assert vectors.scan().count() == 36
    found = summary(vectors)
    assert (found["added-dvs"], found["removed-dvs"], found["total-position-deletes"]) == ("2", "1", "4")
    assert "added-position-delete-files" not in found
    assert vectors.rewrite_position_deletes(full=True) is None


def test_a_vector_takes_in_the_position_deletes_of_version_2(table):
    table.alter().set_properties({"write.delete.granularity": "partition"}).commit()
    table.delete("id in (1, 11)")
    table.alter().set_properties({"write.delete.granularity": "file"}).commit()
    table.delete("id = 2")
    table.alter().set_properties({"format-version": "3"}).commit()
    table.delete("id in (3, 12)")
    assert ids(table) == [i for i in range(40) if i not in (1, 2, 3, 11, 12)]
    by_format = sorted((d["file_format"], d["record_count"]) for d in live_deletes(table))
    assert by_format == [("PARQUET", 2), ("PUFFIN", 2), ("PUFFIN", 3)]  # What tells of several files stays.
    table.compact(full=True)
    assert live_deletes(table) == []


def test_rows_keep_their_ids_wherever_they_move(vectors):
    vectors.append(rows([100], "c"))
    before = lineage(vectors)
    assert sorted(row_id for row_id, _ in before.values()) == list(range(41))
    vectors.delete("id = 1")
    vectors.update({"v": "'new'", "dt": "'c'"}, where="id in (2, 100)")
    changed = base_of(vectors).state.document["last-sequence-number"]
    vectors.compact(full=True)
    vectors.alter().set_properties({f"write.{v}.mode": "copy-on-write" for v in ("delete", "update")}).commit()
    vectors.delete("id = 3")
    expected = {i: told for i, told in before.items() if i not in (1, 3)}
    assert lineage(vectors) == expected | {i: (before[i][0], changed) for i in (2, 100)}
    assert vectors.scan().to_arrow().column_names == ["id", "v", "dt"]


def test_two_vectors_of_one_data_file_are_a_conflict(vectors):
    late = operation(vectors, "delete by position", "snapshot")
    vectors.delete("id = 12")
    store = store_of(vectors)
    with pytest.raises(Conflict, match="wrote a deletion vector for the same data file"):
        commit(store, iceberg.head(store), iceberg, late)
    assert ids(vectors) == [i for i in range(40) if i != 12]
    assert not any(store.exists(f.path) for f in late.added)


def test_a_file_of_vectors_goes_when_none_of_them_is_of_use(vectors):
    folder = Path(vectors.uri.removeprefix("file://"))
    vectors.delete("id in (1, 21)")
    vectors.compact(full=True, where="dt = 'a'")
    vectors.expire_snapshots(retain_last=1)
    assert vectors.remove_orphan_files(older_than=AT_ONCE) == []
    assert len(list(folder.rglob("*.puffin"))) == 1  # One vector of two is still of use.
    assert len(live_deletes(vectors)) == 1
    vectors.compact(full=True)
    vectors.expire_snapshots(retain_last=1)
    assert list(folder.rglob("*.puffin")) == []
    assert ids(vectors) == [i for i in range(40) if i not in (1, 21)]


# --- what deletes by value can tell of ----------------------------------------------------------------------------------


def delete_values(table, rows, **how):
    """A commit of equality deletes by all columns, or the one part of a row, that `rows` holds, without partitions."""
    store, base = store_of(table), base_of(table)

    def asked(field, type):
        if not pa.types.is_struct(type):
            return field
        (part,) = (asked(p, type.field(p.name).type) for p in field.type.fields if type.get_field_index(p.name) >= 0)
        return replace(field, type=Row((part,)))

    fields = tuple(asked(base.schema.field(field.name), field.type) for field in rows.schema)
    layout = replace(
        base.layout(), fields=fields, partition_by=(), directory=lambda v, b: "data", stats=(),
        content=Content.EQUALITY_DELETES, **how,
    )  # fmt: skip
    (file,) = worker.write(store, iter(rows.to_batches()), layout)
    compared = tuple([*walk((field,))][-1].id for field in fields)
    request = Request(id=f"values {rows.to_pylist()}", schema_id=base.schema.id)
    added = replace(file, spec_id=0, compared=compared)
    operation = RowDelta(request=request, added=(added,), kind="append", isolation=None)
    return commit(store, iceberg.head(store), iceberg, operation)


def with_deletes(table):
    """For each data file, by its first id, how many delete files a scan reads beside it."""
    found = {}
    for task in base_of(table).scan():
        for index, path in enumerate(task.paths):
            alone = replace(task, paths=(path,), row_counts=(task.row_counts[index],), sizes_bytes=(1,), deletes=())
            (batch, *_) = worker.read(store_of(table), alone)
            found[batch["id"][0].as_py()] = len(task.deletes[index]) if task.deletes else 0
    return found


def plain_table(lake, **schema):
    return lake.create_table("d.plain", pa.schema([("id", pa.int64()), *schema.items()]), format="iceberg")


def test_equality_deletes_are_read_only_beside_files_that_may_hold_one(lake):
    t = plain_table(lake, k=pa.string())
    for start in (0, 10, 20):
        t.append(pa.table({"id": range(start, start + 10), "k": [f"{i:02}" for i in range(start, start + 10)]}))
    delete_values(t, pa.table({"id": pa.array([15, 19])}))
    assert with_deletes(t) == {0: 0, 10: 1, 20: 0}
    delete_values(t, pa.table({"k": ["09", "10"]}))
    assert with_deletes(t) == {0: 1, 10: 2, 20: 0}
    delete_values(t, pa.table({"id": pa.array([5, 25]), "k": ["29", "29"]}))  # Of the two columns k alone tells.
    assert with_deletes(t) == {0: 1, 10: 2, 20: 1}
    assert ids(t) == [i for i in range(30) if i not in (9, 10, 15, 19)]
    t.compact(full=True)
    assert (ids(t), live_deletes(t)) == ([i for i in range(30) if i not in (9, 10, 15, 19)], [])


def test_nulls_meet_nulls_whatever_the_bounds(lake):
    t = plain_table(lake, k=pa.int32())
    for start, k in ((0, [1, 2]), (10, [None, 2]), (20, [None, None])):
        t.append(pa.table({"id": [start, start + 1], "k": pa.array(k, pa.int32())}))
    delete_values(t, pa.table({"k": pa.array([None], pa.int32())}))
    assert with_deletes(t) == {0: 0, 10: 1, 20: 1}
    assert ids(t) == [0, 1, 11]
    delete_values(t, pa.table({"k": pa.array([2], pa.int32())}))
    assert with_deletes(t) == {0: 1, 10: 2, 20: 1}
    assert ids(t) == [0]
    delete_values(t, pa.table({"k": pa.array([7, None], pa.int32())}))
    assert with_deletes(t) == {0: 1, 10: 3, 20: 2}


def test_a_widened_column_keeps_its_narrow_bounds(lake):
    t = plain_table(lake, k=pa.int32())
    for start in (0, 10):
        t.append(pa.table({"id": [start], "k": pa.array([start], pa.int32())}))
    t.alter().change_type("k", "bigint").commit()
    delete_values(t, pa.table({"k": pa.array([10, 2**40])}))
    assert with_deletes(t) == {0: 0, 10: 1}
    assert ids(t) == [0]


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
def test_deletes_by_a_part_of_a_row(lake, format):
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    t = plain_table(lake, st=pa.struct([("a", inner), ("b", pa.string())]))
    t.alter().set_properties({"write.format.default": format}).commit()
    t.append(pa.table({"id": [1, 2, 3, 4], "st": [{"a": {"x": 1, "y": "q"}, "b": "p"}, {"a": {"x": 2, "y": "q"}, "b": "p"},
                                                  {"a": None, "b": "p"}, None]}, schema=t.scan().schema))  # fmt: skip
    delete_values(t, pa.table({"st": pa.array([{"a": {"x": 2}}], pa.struct([("a", pa.struct([("x", pa.int32())]))]))}))
    assert ids(t) == [1, 3, 4]
    assert t.scan(["st.b"]).to_arrow()["st"].to_pylist() == [{"b": "p"}, {"b": "p"}, None]
    assert t.scan(["st.a.y"], where="st.a.x = 1").to_arrow()["st"].to_pylist() == [{"a": {"y": "q"}}]
    assert t.scan(where="st.a.x = 2").count() == 0
    t.alter().rename_column("st.a.x", "z").commit()
    assert ids(t) == [1, 3, 4]
    nothing = pa.array([{"a": {"z": None}}], pa.struct([("a", pa.struct([("z", pa.int32())]))]))
    delete_values(t, pa.table({"st": nothing}))
    assert ids(t) == [1]
    t.compact(full=True)
    assert (ids(t), live_deletes(t)) == ([1], [])


@pytest.mark.parametrize("version", ["2", "3"])
def test_the_rows_that_position_deletes_name_are_listed(lake, version):
    properties = {
        "write.delete.mode": "merge-on-read",
        "write.delete.granularity": "partition",
        "format-version": version,
    }
    t = lake.create_table("d.listed", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    assert t.inspect.position_deletes().num_rows == 0
    t.append(rows([1, 2, 3], "a"))
    t.append(rows([4, 5, 6], "a"))
    t.append(rows([7, 8], "b"))
    t.delete("id in (1, 3, 5, 8)")
    found = t.inspect.position_deletes()
    by_file = {
        path: pq.read_table(path.removeprefix("file://"))["id"].to_pylist()
        for path in {*found["file_path"].to_pylist()}
    }
    gone = [by_file[row["file_path"]][row["pos"]] for row in found.to_pylist()]
    assert sorted(gone) == [1, 3, 5, 8]
    assert {row["partition"] for row in found.to_pylist()} == {"dt=a", "dt=b"}
    assert {*found["delete_file_path"].to_pylist()} == {*t.inspect.delete_files()["path"].to_pylist()}
    assert t.inspect.at(t.snapshots()[0].id).position_deletes().num_rows == 0


# --- plans of very many files ------------------------------------------------------------------------------------------


def in_part(table, reader, condition, large_bytes):
    """The entries of data files that `condition` leaves, and the tasks that read them, of a plan that decodes more than
    `large_bytes` of manifests in part."""
    state = table.scan().view.state
    predicate = bind(sql_text.parse(condition), state.schema.fields)
    files = scan.files(reader, state, predicate, to_plan=True, large_bytes=large_bytes)
    return files.entries, list(scan.tasks(reader, state, files, state.schema.fields, predicate))


CONDITIONS = ["id is not null", "dt = 'a'", "id = 12", "dt = 'b' and id > 25", "v = 'w'", "id > 1000", "v is null"]


@pytest.mark.parametrize("format_version", ["2", "3"])
def test_bounds_are_read_by_where_they_begin_where_planning_left_them_out(lake, format_version):
    properties = {"format-version": format_version} | MERGE_ON_READ
    table = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    for start, dt, v in ((0, "a", "v"), (10, "a", None), (20, "b", "w"), (30, "b", "v")):
        table.append(rows(range(start, start + 10), dt, v))
    table.alter().add_column("more", "int").commit()
    table.append(rows(range(40, 50), "b").append_column("more", pa.array(range(10), pa.int32())))
    table.delete("id in (3, 4, 21)")
    table.drop_partitions([{"dt": "a"}])
    table.append(rows(range(5, 15), "a"))
    store = store_of(table)
    reader, whole = cached(store, Cache()), cached(store, Cache())
    entries, tasks = in_part(table, reader, "dt is not null", 0)
    assert not {"lower_bounds", "value_counts"} & set(entries.column_names)
    assert tasks == in_part(table, whole, "dt is not null", 1 << 30)[1]
    metas = manifest.metas_of(store, table.scan().view.state.snapshot_document)
    data = metas.filter(pc.equal(metas["content"], 0))["manifest_path"].to_pylist()
    assert all(keeps_part(reader, path) for path in data)
    for condition in (*CONDITIONS, "more = 3", "more is null and id < 8"):
        assert in_part(table, reader, condition, 0)[1] == in_part(table, whole, condition, 1 << 30)[1], condition
    assert all(keeps_part(reader, path) for path in data)


def test_equality_deletes_are_compared_with_the_bounds_of_a_plan_in_part(table):
    delete_keys(table, [12])
    reader, whole = cached(store_of(table), Cache()), cached(store_of(table), Cache())
    for condition in ("id is not null", *CONDITIONS):
        _, tasks = in_part(table, reader, condition, 0)
        assert tasks == in_part(table, whole, condition, 1 << 30)[1], condition
        if condition == "id is not null":  # Of the files of the partition, one may hold the key.
            assert sum(len(own) for task in tasks for own in task.deletes) == 1


def test_a_manifest_that_changed_since_it_was_planned_is_refused(table):
    store = store_of(table)
    reader = cached(store, Cache())
    in_part(table, reader, "dt is not null", 0)
    path = manifest.metas_of(store, table.scan().view.state.snapshot_document)["manifest_path"][0].as_py()
    file = Path(path.removeprefix("file://"))
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(CorruptFile, match=r"-m0\.avro.*sync marker|-m0\.avro.*ends at"):
        in_part(table, reader, "id = 12", 0)
    file.unlink()
    with pytest.raises(NoSuchFile, match=r"-m0\.avro is missing"):
        in_part(table, reader, "id = 12", 0)
