"""Equality deletes become position deletes: the same rows are gone, for readers that know no equality deletes too."""

import random

import pyarrow as pa
import pytest

from lakeformat import Conflict, InvalidInput, Lake
from lakeformat.commit import commit
from lakeformat.dialects.iceberg import manifest
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.model.operation import Request, Rewrite, RowDelta
from lakeformat.model.predicate import ALWAYS
from tests import doors

iceberg = Iceberg()

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
AWAY = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path, fsync="false")


@pytest.fixture(params=["2", "3"])
def table(lake, request):
    """Ids 0 to 19 in two files of partition `a`, 20 to 29 in one of `b`."""
    properties = {**AWAY, "format-version": request.param}
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    for start, dt in ((0, "a"), (10, "a"), (20, "b")):
        t.append(rows(range(start, start + 10), dt))
    return t


def rows(ids, dt="a", v="v"):
    return pa.table({"id": list(ids), "v": [v] * len(ids), "dt": [dt] * len(ids)}, schema=SCHEMA)


def delete_keys(table, keys, columns=("id", "dt")):
    """A commit of equality deletes, as streaming writers make them."""
    with table.delta_writer(f"{table.current_snapshot().id}", key=columns) as writer:
        part = pa.table({name: [key[i] for key in keys] for i, name in enumerate(columns)})
        writer.write(part.append_column("rowkind", pa.array(["-D"] * len(keys))))
        return writer.checkpoint(1)


def ids(table, **how):
    return sorted(table.scan(columns=["id"], **how).to_arrow()["id"].to_pylist())


def kinds(table):
    """(content, rows) of the delete files that are live."""
    found = manifest.live_entries(doors.store(table), doors.view(table).state, content=manifest.ManifestContent.DELETES)
    return sorted(zip(found["content"].to_pylist(), found["record_count"].to_pylist(), strict=True))


def test_places_take_over_and_no_data_is_touched(table):
    table.delete("id in (5, 25)")
    delete_keys(table, [(3, "a"), (5, "a"), (12, "a"), (99, "a"), (21, "b")])
    files, left = table.inspect.files(), ids(table)
    assert left == [i for i in range(30) if i not in (3, 5, 12, 21, 25)]
    made = table.convert_equality_deletes(id="once")
    assert (made.kind, ids(table)) == ("convert", left)
    assert kinds(table) == [(1, 1), (1, 2), (1, 2)]  # Each takes in what told of the same data file before.
    assert table.inspect.files() == files
    summary = dict(table.inspect.snapshots()["summary"].to_pylist()[-1])
    assert (summary["operation"], summary["removed-equality-deletes"], summary["total-equality-deletes"]) == (
        "delete",
        "5",
        "0",
    )
    assert table.convert_equality_deletes(id="once").id == made.id
    assert table.convert_equality_deletes() is None
    assert table.changes(made.parent_id).to_arrow().num_rows == 0
    assert ids(table, snapshot_id=made.parent_id) == left
    table.append(rows([3, 12]))
    assert ids(table) == sorted([*left, 3, 12])
    table.compact(full=True)
    table.expire_snapshots(retain_last=1)
    assert (ids(table), kinds(table)) == (sorted([*left, 3, 12]), [])


def test_only_the_partitions_asked_for(table):
    delete_keys(table, [(3, "a"), (21, "b")])
    made = table.convert_equality_deletes(where="dt = 'a'")
    assert [change.values for change in made.partitions] == [("a",)]
    assert kinds(table) == [(1, 1), (2, 1)]
    assert table.convert_equality_deletes(where="dt = 'c'") is None
    assert ids(table) == [i for i in range(30) if i not in (3, 21)]
    with pytest.raises(InvalidInput, match=r"convert_equality_deletes\(where='id = 3'\)"):
        table.convert_equality_deletes(where="id = 3")


def test_what_applies_everywhere_stays_until_it_is_converted_everywhere(lake):
    t = lake.create_table("d.g", SCHEMA, format="iceberg", properties=AWAY)
    t.append(rows(range(10), "a"))
    delete_keys(t, [(3,), (11,)], ("id",))
    t.alter().add_partition_field("dt").commit()
    t.append(rows(range(10, 20), "a"))
    assert ids(t) == [i for i in range(20) if i != 3]
    assert t.convert_equality_deletes(where="dt = 'a'") is None  # Of the first file nobody knows where it lies.
    assert t.convert_equality_deletes() is not None
    assert (ids(t), kinds(t)) == ([i for i in range(20) if i != 3], [(1, 1)])


def test_nulls_and_columns_that_changed(lake):
    t = lake.create_table("d.n", SCHEMA, format="iceberg", properties=AWAY)
    t.append(pa.table({"id": [1, 2, None, 4], "v": ["x", None, None, "y"], "dt": [None] * 4}, schema=SCHEMA))
    delete_keys(t, [(None, None)], ("id", "v"))
    delete_keys(t, [("y",)], ("v",))
    t.alter().rename_column("v", "w").add_column("v", "int", first=True).drop_column("w").commit()
    assert ids(t) == [1, 2]
    t.convert_equality_deletes()
    assert (ids(t), kinds(t)) == ([1, 2], [(1, 2)])


def test_a_compaction_meanwhile_never_brings_rows_back(table):
    """It read the table before the keys were deleted, and relies on these to stay."""
    store, base, engine = doors.store(table), doors.view(table), ArrowEngine(1)
    tasks = base.compaction.tasks(True, ALWAYS)
    late = Rewrite(
        request=Request(id="late"),
        removed=tuple(p for t in tasks for r in t.read for p in r.paths),
        added=tuple(f for written in engine.rewrite(store, tasks) for f in written),
        read_at=base.snapshot.id,
    )
    delete_keys(table, [(3, "a")])
    table.convert_equality_deletes()
    with pytest.raises(Conflict, match="by position"):
        commit(store, iceberg.head(store), iceberg, late)
    assert 3 not in ids(table)


@pytest.mark.parametrize("meanwhile", ["compact", "overwrite", "convert", "delete", "append", "keys"])
def test_a_conversion_minds_what_others_did_to_its_files(table, meanwhile):
    delete_keys(table, [(3, "a"), (12, "a")])
    store, base = doors.store(table), doors.view(table)
    tasks, gone, files = base.delete_files.conversion()
    added = tuple(file for written in ArrowEngine(1).mark(store, tasks) for file in written)
    request = Request(id="late", absent_until=base.version)
    late = RowDelta(
        request=request, added=added, removed=gone, referenced=files, read_at=base.snapshot.id, kind="convert",
        isolation=None,
    )  # fmt: skip
    match meanwhile:
        case "compact":
            table.compact(full=True)
        case "overwrite":
            table.overwrite_partitions(rows([3], v="new"))
        case "convert":
            table.convert_equality_deletes()
        case "delete":
            table.delete("id = 4")
        case "append":
            table.append(rows([3], v="new"))
        case "keys":
            delete_keys(table, [(4, "a")])
    left = ids(table)
    is_vector = base.state.document["format-version"] == 3
    if meanwhile in ("append", "keys") or (meanwhile == "delete" and not is_vector):
        commit(store, iceberg.head(store), iceberg, late)
    else:
        with pytest.raises(Conflict):
            commit(store, iceberg.head(store), iceberg, late)
    assert ids(table) == left


def test_files_of_positions_become_vectors_but_for_data_files_that_have_one(lake):
    properties = {**AWAY, "write.delete.granularity": "partition"}
    t = lake.create_table("d.u", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    t.append(rows(range(10)))
    t.append(rows(range(10, 20)))
    t.delete("id in (1, 11, 12)")
    assert t.rewrite_position_deletes() is None
    t.alter().set_properties({"format-version": "3"}).commit()
    t.delete("id = 2")
    left = ids(t)
    assert t.rewrite_position_deletes().kind == "compact"
    found = manifest.live_entries(doors.store(t), doors.view(t).state, content=manifest.ManifestContent.DELETES)
    assert found["file_format"].to_pylist() == ["PUFFIN", "PUFFIN"]
    assert len(set(found["referenced_data_file"].to_pylist())) == 2  # One for each data file.
    assert sorted(found["record_count"].to_pylist()) == [2, 2]
    assert (ids(t), t.rewrite_position_deletes(full=True)) == (left, None)


@pytest.mark.parametrize("seed", range(4))
def test_any_changelog(lake, seed):
    chance = random.Random(seed)
    properties = {**AWAY, "format-version": chance.choice("23"), "write.delete.granularity": chance.choice(["file", "partition"])}  # fmt: skip
    t = lake.create_table("d.r", SCHEMA, format="iceberg", partition_by=["dt"], properties=properties)
    with t.delta_writer("log", key=["id", "dt"], upsert=True, buffer_bytes=1) as writer:
        for checkpoint in range(5):
            for _ in range(2):
                part = pa.Table.from_pylist(
                    [{"id": chance.randrange(12), "v": str(checkpoint), "dt": chance.choice("ab")} for _ in range(5)]
                )
                writer.write(part.append_column("rowkind", pa.array([chance.choice(["+I", "-D"]) for _ in range(5)])))
            writer.checkpoint(checkpoint)
            if chance.random() < 0.5:
                t.delete(f"id = {chance.randrange(12)}")
            before = sorted(map(str, t.scan().to_arrow().to_pylist()))
            t.convert_equality_deletes()
            assert sorted(map(str, t.scan().to_arrow().to_pylist())) == before, (seed, checkpoint)
            assert all(kind == 1 for kind, _ in kinds(t))
