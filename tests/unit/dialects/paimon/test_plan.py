"""What a commit makes of an operation: index manifests, statistics, totals, what is inherited, and what one must not write."""

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakeformat import (
    AlreadyExists,
    CorruptFile,
    CorruptTable,
    InvalidInput,
    Lake,
    NoSuchFile,
    NotFound,
    OutsideScope,
    UnsupportedFeature,
)
from lakeformat.codec import bitmap
from lakeformat.codec.avro import file as avro
from lakeformat.codec.paimon import vector_file
from lakeformat.dialects.paimon import conflict, manifest, metadata, plan
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.dialects.paimon.metadata import State
from lakeformat.model import evolution
from lakeformat.model.operation import Append, Create, Evolve, OperationKind, Overwrite, Request, Restore, Rewrite
from lakeformat.model.partition import SortField, identity
from lakeformat.model.predicate import ALWAYS, bind, in_tuples
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.snapshot import Stamp
from lakeformat.model.work import KeyRange, WrittenFile
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from lakeformat.verbs.append import append
from tests import doors
from tests.unit.dialects.paimon.by_day import SCHEMA, ids, rows

dialect = Paimon()


def document(home, id):
    return json.loads((home / f"snapshot/snapshot-{id}").read_text())


NULLABLE = ["null", "string"]
RANGES = {
    "type": "record",
    "name": "record__DELETIONS_VECTORS_RANGES",
    "fields": [
        {"name": "f0", "type": "string"},
        {"name": "f1", "type": "int"},
        {"name": "f2", "type": "int"},
        {"name": "_CARDINALITY", "type": ["null", "long"], "default": None},
    ],
}
# As Java writes it.
INDEX_SCHEMA = {
    "type": "record",
    "name": "record",
    "namespace": "org.apache.paimon.avro.generated",
    "fields": [
        {"name": "_VERSION", "type": "int"},
        {"name": "_KIND", "type": "int"},
        {"name": "_PARTITION", "type": "bytes"},
        {"name": "_BUCKET", "type": "int"},
        {"name": "_INDEX_TYPE", "type": "string"},
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_ROW_COUNT", "type": "long"},
        {
            "name": "_DELETIONS_VECTORS_RANGES",
            "type": ["null", {"type": "array", "items": ["null", RANGES]}],
            "default": None,
        },
        {"name": "_EXTERNAL_PATH", "type": NULLABLE, "default": None},
    ],
}
INDEX = pa.schema([field for field in manifest.INDEX_ENTRY if field.name != "_GLOBAL_INDEX"])


def with_index(home, schema, snapshot_id, entries):
    """Give a snapshot an index manifest: (type, partition, bucket, file name) of each file."""
    kinds, partitions, buckets, names = zip(*entries, strict=True)
    count = len(entries)
    columns = {
        "_VERSION": [1] * count,
        "_KIND": [0] * count,
        "_PARTITION": manifest.partition_rows(list(partitions), schema),
        "_BUCKET": buckets,
        "_INDEX_TYPE": kinds,
        "_FILE_NAME": names,
        "_FILE_SIZE": [10] * count,
        "_ROW_COUNT": [1] * count,
        "_DELETIONS_VECTORS_RANGES": [[None, {"f0": n, "f1": 1, "f2": 22, "_CARDINALITY": None}] for n in names],
        "_EXTERNAL_PATH": ["s3://elsewhere/x"] + [None] * (count - 1),
    }
    arrays = [
        columns[f.name] if isinstance(columns[f.name], pa.Array) else pa.array(columns[f.name], f.type) for f in INDEX
    ]
    (home / "manifest/index-manifest-x-0").write_bytes(
        avro.encode(pa.Table.from_arrays(arrays, schema=INDEX), INDEX_SCHEMA)
    )
    path = home / f"snapshot/snapshot-{snapshot_id}"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"indexManifest": "index-manifest-x-0"}))


def index_of(home, id):
    name = document(home, id).get("indexManifest")
    if name is None:
        return None
    found = avro.decode((home / "manifest" / name).read_bytes())
    assert found.schema == INDEX_SCHEMA
    for row in found.table.to_pylist():
        assert row["_DELETIONS_VECTORS_RANGES"] == [
            None,
            {"f0": row["_FILE_NAME"], "f1": 1, "f2": 22, "_CARDINALITY": None},
        ]
    return dict(zip(found.table["_FILE_NAME"].to_pylist(), found.table["_EXTERNAL_PATH"].to_pylist(), strict=True))


# --- indexes ----------------------------------------------------------------------------------------------------------


def test_indexes_of_overwritten_partitions_go_and_the_others_stay_whole(table, home):
    for dt in ("a", "b", "c"):
        table.append(rows(1, dt=dt))
    schema = table.schema
    with_index(
        home,
        schema,
        3,
        [("HASH", ("a",), 0, "index-a"), ("HASH", ("b",), 0, "index-b"), ("BTREE", ("c",), 0, "index-c")],
    )
    table.append(rows(2, dt="a"))
    assert document(home, 4)["indexManifest"] == "index-manifest-x-0"
    table.overwrite_partitions(rows(3, dt="b"))
    assert index_of(home, 5) == {"index-a": "s3://elsewhere/x", "index-c": None}
    table.overwrite_partitions(rows(4, dt="nowhere"))
    assert index_of(home, 6) == {"index-a": "s3://elsewhere/x", "index-c": None}
    table.drop_partitions([{"dt": "c"}])
    assert index_of(home, 7) == {"index-a": "s3://elsewhere/x"}
    table.truncate()
    assert index_of(home, 8) is None
    back = table.rollback_to(5)
    assert index_of(home, back.id) == {"index-a": "s3://elsewhere/x", "index-c": None}


def test_a_missing_or_broken_index_manifest_is_named(table, home):
    table.append(rows(1))
    with_index(home, table.schema, 1, [("HASH", ("x",), 0, "index-a")])
    (home / "manifest/index-manifest-x-0").write_bytes(b"?")
    for verb in (lambda: table.scan().to_arrow(), lambda: table.overwrite(rows(2))):
        with pytest.raises(CorruptFile, match="index-manifest-x-0"):
            verb()
    (home / "manifest/index-manifest-x-0").unlink()
    for verb in (lambda: table.scan().to_arrow(), lambda: table.overwrite(rows(2))):
        with pytest.raises(NoSuchFile, match="index-manifest-x-0"):
            verb()


# --- what a snapshot says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "kind", "operation"),
    [
        (lambda t: t.append(rows(9)), "APPEND", "WRITE"),
        (lambda t: t.overwrite(rows(9)), "OVERWRITE", "OVERWRITE"),
        (lambda t: t.overwrite_partitions(rows(9)), "OVERWRITE", "OVERWRITE"),
        (lambda t: t.overwrite(rows(1), where="id = 1"), "OVERWRITE", "OVERWRITE"),
        (lambda t: t.truncate(), "OVERWRITE", "TRUNCATE"),
        (lambda t: t.drop_partitions([{"dt": "x"}]), "OVERWRITE", "OVERWRITE"),
        (lambda t: t.delete("id = 1"), "OVERWRITE", "DELETE"),
        (lambda t: t.delete("dt = 'x'"), "OVERWRITE", "DELETE"),
        (lambda t: t.update({"v": "'w'"}), "OVERWRITE", "UPDATE"),
        (lambda t: t.compact(full=True), "COMPACT", None),
        (lambda t: t.rollback_to(1), "OVERWRITE", None),
    ],
)
def test_kinds_totals_and_deltas(table, home, verb, kind, operation):
    table.append(rows(1, 2))
    table.append(rows(3, dt="y"))
    table.append(rows(4))
    made = verb(table)
    found = document(home, 4)
    assert (found["commitKind"], found.get("operation")) == (kind, operation)
    assert found["totalRecordCount"] == table.scan().count() == table.scan().to_arrow().num_rows == made.total_rows
    assert found["deltaRecordCount"] == found["totalRecordCount"] - 4
    assert made.rows_added - made.rows_removed == (
        found["deltaRecordCount"] if table.snapshots()[-1].properties == {} else 0
    )
    assert table.current_snapshot().partitions == made.partitions


def in_memory(**properties):
    """A table with a key in one bucket; its store."""
    store = MemoryFiles()
    table = Table("t", store, dialect)
    fields = (Field(0, "id", scalar(Kind.BIGINT), False), Field(1, "dt", scalar(Kind.STRING), False))
    given = {"bucket": "1", "write-only": "true"} | {k.replace("_", "-"): v for k, v in properties.items()}
    create(table, Schema(fields, primary_key=("id", "dt"), partitioning=identity("dt"), properties=given))
    return store, table


def keys(*ids, dt="x"):
    return {"id": list(ids), "dt": [dt] * len(ids)}


def newest(store):
    return metadata.read_snapshot(store, metadata.snapshot_ids(store)[-1])


def test_a_changelog_is_a_list_of_its_own_where_there_is_one():
    for properties, rows_of_changelog in (({}, None), ({"changelog_producer": "input"}, 3)):
        store, table = in_memory(**properties)
        table.upsert(keys(1, 2, 3))
        document = newest(store)
        assert document.get("changelogRecordCount") == rows_of_changelog
        assert (document["totalRecordCount"], document["deltaRecordCount"]) == (3, 3)
        lists = ["baseManifestList", "deltaManifestList"] + ["changelogManifestList"] * (rows_of_changelog is not None)
        assert [k for k in document if k.endswith("ManifestList")] == lists
        assert len({document[key] for key in lists}) == len(lists)
        for key in lists:
            assert document[f"{key}Size"] == len(store.read(f"manifest/{document[key]}"))
        entries = [manifest.read_all(store, manifest.read_list(store, document[key])) for key in lists]
        assert [[t["_ROW_COUNT"].to_pylist() for t in of_list] for of_list in entries] == [[], [[3]], [[3]]][
            : len(lists)
        ]


def test_the_kind_of_a_snapshot_with_a_key_says_whether_files_went():
    store, table = in_memory()
    table.upsert(keys(1, 2))
    table.upsert(keys(7, dt="y"))
    of_y = Overwrite(request=Request(id="y"), added=(), scope=in_tuples(["dt"], [("y",)]), kind=OperationKind.DELETE)
    for verb, kind, operation, rows_more in (
        (lambda: table.upsert(keys(3)), "APPEND", "WRITE", 1),
        (lambda: table.delete("id = 1"), "APPEND", "DELETE", 1),  # A row that retracts.
        (lambda: table.compact(full=True), "COMPACT", None, -2),  # The only file of `y` stays, on another level.
        (lambda: doors.runner(table).commit(doors.view(table), of_y), "OVERWRITE", "DELETE", -1),
        (lambda: table.overwrite_partitions(keys(9, dt="z")), "OVERWRITE", "OVERWRITE", 1),
    ):
        verb()
        assert newest(store)["deltaRecordCount"] == rows_more
        assert (newest(store)["commitKind"], newest(store).get("operation")) == (kind, operation)


def test_a_plan_names_its_parent_and_the_first_snapshot(table):
    base = doors.view(table)
    for version, parent, hints in ((1, None, {"LATEST": b"1", "EARLIEST": b"1"}), (2, 1, {"LATEST": b"2"})):
        base = doors.view(table)
        made = base.plan(append(doors.runner(table).change(base, Request(id="x")), rows(1)), Stamp(5, "n", 0))
        assert (made.snapshot.id, made.snapshot.parent_id) == (version, parent)
        assert made.hints == {f"snapshot/{name}": value for name, value in hints.items()}
        table.append(rows(1))


def test_a_change_of_schema_is_found_again(table):
    change = Evolve(request=Request(id="mine"), changes=(evolution.AddColumn("late", scalar(Kind.INT)),))
    base = doors.view(table)
    assert plan.find(doors.store(table), change, base.state) is None
    made = doors.runner(table).commit(base, change)
    found = plan.find(doors.store(table), change, doors.view(table).state)
    assert (found.kind, found.id, found.schema_id, found.operation_id) == ("evolve", 0, 1, "mine")
    assert found.timestamp_ms == 0
    assert made.schema_id == 1


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (evolution.SetKey(("id",)), UnsupportedFeature, "the primary key of a Paimon table cannot change"),
        (evolution.AddPartitionField(identity("id").fields[0]), UnsupportedFeature, "partitions of a Paimon table"),
        (evolution.SetSortOrder((SortField(("id",)),)), UnsupportedFeature, "no sort order"),
        (evolution.AddColumn("g", scalar(Kind.UNKNOWN)), UnsupportedFeature, "column g"),
        (evolution.AddColumn("_KEY_id", scalar(Kind.INT)), InvalidInput, "_KEY_id"),
        (evolution.SetProperties({"merge-engine": "first-row"}), InvalidInput, "'merge-engine' is set when"),
        (evolution.SetProperties({"bucket": "0"}), InvalidInput, "bucket"),
        (evolution.SetProperties({"metadata.stats-mode": "some"}), InvalidInput, "stats mode 'some'"),
    ],
)
def test_what_a_change_of_schema_cannot_be_is_refused(change, error, says):
    store, table = in_memory()
    base, request = doors.view(table), Request(id="x")
    with pytest.raises(error, match=says):
        base.plan(Evolve(request=request, changes=(change,)), Stamp(5, "n", 0))
    with pytest.raises(AlreadyExists):
        base.plan(Create(request=request, schema=base.state.schema), Stamp(5, "n", 0))
    with pytest.raises(NotFound, match="no longer exists"):
        plan.plan(
            store, Evolve(request=request, changes=(change,)), replace(base.state, exists=False), Stamp(5, "n", 0)
        )


def test_a_restore_takes_the_statistics_of_its_schema_and_no_stray(table, home):
    base = doors.view(table)
    late = base.plan(append(doors.runner(table).change(base, Request(id="late")), rows(9)), Stamp(5, "late", 0))
    for id in (1, 2, 3):
        table.append(rows(id))
    path = home / "snapshot/snapshot-1"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"statistics": "stat-1"}))
    table.create_tag("first", 1)
    assert document(home, table.rollback_to(1).id)["statistics"] == "stat-1"
    table.alter().add_column("n", "int").commit()
    made = table.rollback_to(1)
    assert "statistics" not in document(home, made.id)
    table.append(rows(4))
    for name, content in late.files.items():
        (home / name).write_bytes(content)
    path.write_bytes(late.root)
    with pytest.raises(NotFound, match="not part of the history"):
        table.rollback_to(1)
    with pytest.raises(NotFound, match="not part of the history"):  # Where it became one after the verb looked.
        plan.plan(
            doors.store(table),
            Restore(request=Request(id="x"), snapshot_id=1),
            doors.view(table).state,
            Stamp(5, "n", 0),
        )
    table.rollback_to(tag="first")
    assert ids(table) == [1]


def test_the_vectors_of_a_bucket_are_one_file_and_those_of_others_stay():
    store = MemoryFiles()
    table = Table("t", store, dialect)
    fields = (Field(0, "id", scalar(Kind.BIGINT)), Field(1, "dt", scalar(Kind.STRING)))
    given = {"bucket": "1", "bucket-key": "id", "deletion-vectors.enabled": "true", "write-only": "true"}
    create(table, Schema(fields, partitioning=identity("dt"), properties=given))

    def held():
        index = manifest.read_index(store, newest(store))
        return sorted(zip(index["_PARTITION"].to_pylist(), index["_FILE_NAME"].to_pylist(), strict=True))

    table.append(keys(1, 2, dt="x"))
    table.append(keys(3, 4, dt="y"))
    table.delete("id in (1, 3)")
    (_, first), (y, of_y) = held()
    table.append(keys(5, 6, dt="x"))
    made = table.delete("id = 5")  # Of a file that had no vector.
    (_, second), other = held()
    assert (second != first, other) == (True, (y, of_y))
    assert [(p.values, p.rows_added, p.rows_removed) for p in made.partitions] == [(("x",), 0, 1)]
    assert table.current_snapshot().partitions == made.partitions
    assert ids(table) == [2, 4, 6]
    made = table.delete("id = 6")
    assert (made.rows_removed, table.current_snapshot().partitions) == (1, made.partitions)
    table.truncate()
    assert "indexManifest" not in newest(store)


def test_a_file_of_vectors_ends_after_the_vector_that_passes_the_target():
    store = MemoryFiles()
    frames = [bitmap.encode(np.array([position]), wide=False) for position in range(6)]
    moving = []
    for number, frame in enumerate(frames):
        content, (offset,) = vector_file.emit([frame])
        store.write(path := f"index/index-{number}", content)
        moving.append(
            plan._Vector(f"data-{number}", path, offset, vector_file.length(frame), 1, file_bytes=len(content))
        )
    made, unused = plan._placed(store, moving, [], 2 * len(frames[0]))
    assert [[task.of[-1] for task in held] for held, _ in made] == [["0", "1", "2"], ["3", "4", "5"]]
    assert unused == []
    for target, stays in ((moving[0].file_bytes, True), (moving[0].file_bytes + 1, False)):
        made, unused = plan._placed(store, moving[1:2], moving[:1], target)
        assert ([content is None for _, content in made], unused == []) == ([True, False] if stays else [False], stays)


def test_vectors_are_not_moved_among_indexes_that_are_unknown(tmp_path, home):
    properties = {"bucket": "1", "bucket-key": "id", "deletion-vectors.enabled": "true", "write-only": "true"}
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, partition_by=["dt"], properties=properties)
    table.append(rows(1, 2, 3))
    table.delete("id = 1")
    (index,) = (home / "index").iterdir()
    index.rename(home / "elsewhere")
    table.append(rows(4, 5))
    with pytest.raises((CorruptFile, CorruptTable), match=index.name):
        table.delete("id = 4")
    (home / "elsewhere").rename(index)
    with_index(home, table.schema, 3, [("BTREE", ("x",), 0, "index-c")])
    with pytest.raises(UnsupportedFeature, match="BTREE"):
        table.delete("id = 4")


def test_columns_under_global_indexes_are_not_updated_and_the_indexes_stay(tmp_path, home):
    """An index of row ids would say of a column what it held before; rows that come, and compaction, keep it true."""
    properties = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, partition_by=["dt"], properties=properties)
    table.append(rows(1, 2))
    with_index(home, table.schema, 1, [("btree", ("x",), 0, "global-index-a")])
    before = (home / "snapshot/snapshot-1").read_text()
    with pytest.raises(UnsupportedFeature, match="btree"):
        table.update({"id": "id + 1"}, where="id = 1")
    assert (home / "snapshot/snapshot-1").read_text() == before
    assert not (home / "snapshot/snapshot-2").exists()
    table.append(rows(3))
    table.compact(full=True)
    assert sorted(table.scan(where="id < 9").to_arrow()["id"].to_pylist()) == [1, 2, 3]
    newest = max(int(path.name.partition("-")[2]) for path in (home / "snapshot").glob("snapshot-*"))
    assert list(index_of(home, newest)) == ["global-index-a"]


def test_what_entries_say_of_long_keys_is_cut():
    store = MemoryFiles()
    table = Table("t", store, dialect)
    fields = (Field(0, "k", scalar(Kind.STRING), False), Field(1, "v", scalar(Kind.INT)))
    create(table, Schema(fields, primary_key=("k",), properties={"bucket": "1", "metadata.stats-mode": "truncate(3)"}))
    long = "k" * 200
    table.upsert({"k": [long], "v": [1]})
    entries = doors.view(table).files().entries
    ends = [entries[name].to_pylist()[0] for name in ("_KEY_STATS", "_VALUE_STATS")]
    assert [end["_NULL_COUNTS"] for end in ends] == [[0], [0, 0]]
    for entry, length in zip(ends, (128, 3), strict=True):
        assert b"k" * length in entry["_MIN_VALUES"]
        assert b"k" * (length + 1) not in entry["_MIN_VALUES"]
        assert b"k" * (length - 1) + b"l" in entry["_MAX_VALUES"]


def test_options_follow_the_columns_they_speak_of(table):
    """Through two new names of a column, with what is checked against the options before."""
    fields = (Field(0, "id", scalar(Kind.BIGINT), False), Field(1, "seq", scalar(Kind.INT)))
    given = {"bucket": "1", "sequence.field": "seq", "fields.seq.stats-mode": "counts", "merge-engine": "aggregation"}
    table = Table("t", MemoryFiles(), dialect)
    create(table, Schema(fields, primary_key=("id",), properties=given))
    table.evolve([evolution.RenameColumn("seq", "late"), evolution.RenameColumn("late", "last")])
    found = table.schema.properties
    assert (found["sequence.field"], found["fields.last.stats-mode"]) == ("last", "counts")
    assert "fields.seq.stats-mode" not in found


def test_a_table_that_cannot_be_written_takes_no_commit(table):
    table.append(rows(1))
    state = doors.view(table).state
    for name in ("clustering.incremental", "index-file-in-data-file-dir"):
        strange = replace(state, schema=replace(state.schema, properties={name: "true"}))
        for operation in (Append(request=Request(id="x"), added=()), Restore(request=Request(id="x"), snapshot_id=1)):
            plan.plan(doors.store(table), operation, state, Stamp(5, "n", 0))
            with pytest.raises(UnsupportedFeature, match=re.escape(name)):
                plan.plan(doors.store(table), operation, strange, Stamp(5, "n", 0))
    with pytest.raises(NotFound, match="no snapshot 7"):
        plan.plan(doors.store(table), Restore(request=Request(id="x"), snapshot_id=7), state, Stamp(5, "n", 0))


@pytest.mark.parametrize(
    ("upgrade", "ranges", "levels"),
    [
        ("true", [(1, 2), (3, 4)], [5, 5]),
        ("true", [(3, 4), (1, 2)], [5, 5]),
        ("true", [(1, 3), (3, 4)], [0, 0]),  # A key may be in both.
        ("true", [(1, 9), (3, 4)], [0, 0]),
        ("false", [(1, 2), (3, 4)], [0, 0]),
    ],
)
def test_new_files_of_an_overwrite_are_on_the_highest_level_where_no_key_is_in_two(upgrade, ranges, levels):
    store, table = in_memory(overwrite_upgrade=upgrade, num_levels="6")
    base = doors.view(table)

    def written(bucket_of, retracts, level):
        return tuple(
            WrittenFile(
                f"dt={dt}/bucket-0/data-{dt}-{low}.parquet", (dt,), high - low + 1, 10,
                keys=KeyRange((low, dt)[: len(key)], (high, dt)[: len(key)], 0, high - low, retracts, level),
            )
            for dt in bucket_of for low, high in ranges
        )  # fmt: skip

    key = metadata.key_of(base.state.schema)

    def levels_of(added, kind=OperationKind.OVERWRITE):
        made = plan._added(store, Request(id="x"), kind, base.state, manifest.EMPTY_ENTRIES, added)
        return made["_LEVEL"].to_pylist()

    assert levels_of(written("x", 0, 0)) == levels
    assert levels_of(written("x", 0, 0), OperationKind.APPEND) == [0, 0]
    assert levels_of(written("x", 1, 0)) == [0, 0], "rows that retract wait for a compaction"
    assert levels_of(written("x", 0, 2)) == [2, 2]
    assert levels_of((*written("x", 0, 0), *written("y", 1, 0))) == [*levels, 0, 0]


def test_entries_say_of_new_files_what_java_says(table):
    table.append(rows(1, 2))
    table.append(rows(3))
    base = doors.view(table)
    [entry] = base.files().entries.slice(0, 1).to_pylist()
    for key, value in {
        "_KIND": 0, "_BUCKET": 0, "_TOTAL_BUCKETS": -1, "_MIN_KEY": bytes(12), "_MAX_KEY": bytes(12), "_MIN_SEQUENCE_NUMBER": 0,
        "_MAX_SEQUENCE_NUMBER": 1, "_LEVEL": 0, "_EXTRA_FILES": [], "_DELETE_ROW_COUNT": 0, "_FILE_SOURCE": 0, "_ROW_COUNT": 2,
        "_EMBEDDED_FILE_INDEX": None, "_EXTERNAL_PATH": None, "_FIRST_ROW_ID": None, "_WRITE_COLS": None, "_SCHEMA_ID": 0,
        "_VALUE_STATS_COLS": None, "_PARTITION": bytes.fromhex("00000001") + bytes(8) + b"x" + bytes(6) + b"\x81",
    }.items():  # fmt: skip
        assert entry[key] == value, key
    assert entry["_KEY_STATS"] == {"_MIN_VALUES": bytes(12), "_MAX_VALUES": bytes(12), "_NULL_COUNTS": []}


def test_rows_of_a_fixed_bucket_are_numbered_on_from_its_newest(tmp_path):
    """Append tables with buckets are read in that order."""
    properties = {"bucket": "1", "bucket-key": "id", "write-only": "true"}
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, partition_by=["dt"], properties=properties)
    for given in (rows(1, 2, 3), rows(4, 5), rows(6, dt="y"), rows(7)):
        table.append(given)
    live = doors.view(table).files().entries
    ends = ("_MIN_SEQUENCE_NUMBER", "_MAX_SEQUENCE_NUMBER", "_ROW_COUNT")
    assert sorted(zip(*(live[name].to_pylist() for name in ends), strict=True)) == [
        (0, 0, 1), (0, 2, 3), (3, 4, 2), (5, 5, 1),
    ]  # fmt: skip


def test_files_of_one_commit_are_numbered_on_bucket_by_bucket():
    store = MemoryFiles()
    table = Table("t", store, dialect)
    given = {"bucket": "2", "bucket-key": "id", "write-only": "true"}
    create(table, Schema((Field(0, "id", scalar(Kind.BIGINT)),), properties=given))
    for turn, expected in enumerate(([0, 3, 0], [5, 8, 4])):
        base = doors.view(table)
        added = tuple(
            WrittenFile(f"bucket-{bucket}/data-{turn}-{i}.parquet", (), count, 10, bucket)
            for i, (bucket, count) in enumerate([(0, 3), (0, 2), (1, 4)])
        )
        made = plan._added(store, Request(id="x"), OperationKind.APPEND, base.state, manifest.EMPTY_ENTRIES, added)
        assert made["_MIN_SEQUENCE_NUMBER"].to_pylist() == expected
        doors.runner(table).commit(base, Append(request=Request(id=f"{turn}"), added=added))


def test_compacted_files_have_the_numbers_of_the_rows_in_them():
    gone = pa.table(
        {
            "_PARTITION": [b"p"] * 4,
            "_BUCKET": [0, 1, 0, 0],
            "_MIN_SEQUENCE_NUMBER": [10, 3, 0, 20],
            "_ROW_COUNT": [5, 2, 10, 2],
            "_TOTAL_BUCKETS": [4, 2, 4, 8],
        }
    )
    added = [
        WrittenFile(f"bucket-{bucket}/data-{i}.parquet", (), count, 10, bucket)
        for i, (bucket, count) in enumerate([(0, 4), (1, 2), (0, 7), (0, 2), (0, 2)])
    ]
    lost = np.array([0, 0, 2, 0])  # Rows 0 to 7 are left, then 10 to 14, and 20, 21.
    first, totals = plan._in_place_of(gone, lost, tuple(added), [b"p"] * len(added))
    assert first.tolist() == [0, 3, 4, 13, 20]
    assert totals.tolist() == [4, 2, 4, 4, 8]


def test_a_file_without_rows_or_without_stats_is_no_trouble():
    schema = metadata.declare(Schema((Field(-1, "id", scalar(Kind.BIGINT)), Field(-1, "s", scalar(Kind.STRING)))), "t")
    file = WrittenFile("bucket-0/data-x.parquet", (), 3, 10)
    stats, columns = plan._value_stats((file,), schema)
    assert columns is None
    assert stats.field(2).to_pylist() == [[None, None]]


def test_plans_are_the_same_for_the_same_stamp(table):
    table.append(rows(1))
    base = doors.view(table)
    operation = append(doors.runner(table).change(base, Request(id="x")), rows(2))
    one, two, other = (base.plan(operation, Stamp(5, "n", a)) for a in (0, 0, 1))
    assert list(one.files) == list(two.files)
    assert (one.root_path, one.root) == (two.root_path, two.root)
    assert not one.files.keys() & other.files.keys()
    assert one.root != other.root


def test_files_written_under_an_older_schema_say_so(table, home):
    base = doors.view(table)
    request, _ = doors.runner(table).request(base, None)
    operation = append(doors.runner(table).change(base, request), rows(1))
    table.alter().add_column("late", "int").rename_column("v", "w").commit()
    doors.runner(table).commit(base, operation)
    assert table.inspect.files()["schema_id"].to_pylist() == [0]
    assert document(home, 1)["schemaId"] == 1
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "w": "v", "dt": "x", "late": None}]
    assert table.scan(where="w = 'v' and late is null").count() == 1


def test_files_of_unknown_ending_are_refused_by_name(table):
    table.append(rows(1))
    base = doors.view(table)
    for path in ("dt=x/bucket-0/data-x", "dt=x/bucket-0/data-x.csv.gz", "dt=x/bucket-0/data-x.vortex"):
        file = WrittenFile(path, ("x",), 1, 1)
        made = doors.runner(table).commit(base, Append(request=Request(id=path), added=(file,)))
        with pytest.raises(UnsupportedFeature, match="format"):
            table.scan().to_arrow()
        table.rollback_to(made.id - 1) if made.id > 1 else None


# --- conflicts --------------------------------------------------------------------------------------------------------


PARTED = Schema(
    (Field(0, "id", scalar(Kind.BIGINT)), Field(1, "dt", scalar(Kind.STRING))), identity("dt"), id=0, last_field_id=1
)


def test_files_outside_the_scope_are_refused():
    files = [WrittenFile(f"dt={p}/bucket-0/x.parquet", (p,), 1, 1) for p in ("a", None, "")]
    scope = bind(in_tuples(["dt"], [("a",), (None,)]), PARTED.fields)
    conflict.require_inside(tuple(files[:2]), PARTED, scope)
    with pytest.raises(OutsideScope, match="1 partitions"):
        conflict.require_inside(tuple(files), PARTED, scope)
    conflict.require_inside(tuple(files), PARTED, ALWAYS)
    conflict.require_inside((), PARTED, scope)


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_TZ", "DATE", "DECIMAL", "DOUBLE", "TIME", "BOOLEAN"])
def test_declared_partitions_of_every_type(tmp_path, kind):
    import datetime
    from decimal import Decimal

    utc = datetime.UTC
    type, value, other = {
        "TIMESTAMP": (pa.timestamp("us"), datetime.datetime(2013, 1, 5, 6), datetime.datetime(2013, 1, 6)),
        "TIMESTAMP_TZ": (pa.timestamp("us", "UTC"), datetime.datetime(2013, 1, 5, 6, tzinfo=utc), datetime.datetime(2013, 1, 6, tzinfo=utc)),
        "DATE": (pa.date32(), datetime.date(2013, 1, 5), datetime.date(2013, 1, 6)),
        "DECIMAL": (pa.decimal128(5, 2), Decimal("1.50"), Decimal("2.00")),
        "DOUBLE": (pa.float64(), 1.5, float("nan")),
        "TIME": (pa.time32("ms"), datetime.time(1, 2, 3), datetime.time(0)),
        "BOOLEAN": (pa.bool_(), True, False),
    }[kind]  # fmt: skip
    schema = pa.schema([("id", pa.int64()), ("k", type)])
    t = Lake(str(tmp_path)).create_table("d.t", schema, partition_by=["k"])
    data = pa.table({"id": [1, 2], "k": pa.array([value, other], type)})
    t.append(data)
    t.overwrite_partitions(data.slice(0, 1), partitions=[{"k": value}])
    with pytest.raises(OutsideScope):
        t.overwrite_partitions(data, partitions=[{"k": value}])
    assert t.scan().count() == 2
    made = t.overwrite_partitions(data.slice(0, 0), partitions=[{"k": other}])
    assert (made.rows_removed, ids(t)) == (1, [1])
    t.overwrite_partitions(data)
    assert ids(t) == [1, 2]
    t.overwrite(data.slice(0, 1), partition={"k": value}, pinned_to=t.current_snapshot().id)
    t.drop_partitions([{"k": value}])
    assert ids(t) == [2]


def test_operations_on_a_table_that_is_gone():
    store = MemoryFiles("memory://gone")
    base = State(0, Schema((), id=-1), exists=False)
    for operation in (
        Append(request=Request(id="x"), added=()),
        Overwrite(request=Request(id="x"), added=()),
        Rewrite(request=Request(id="x"), removed=(), added=()),
    ):
        with pytest.raises(NotFound, match="no longer exists"):
            conflict.check(store, operation, base)
