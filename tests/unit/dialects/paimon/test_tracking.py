"""Row ids of Paimon tables, and columns of the same rows in several files."""

from random import Random

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.dialects.paimon import manifest, tracking
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.engines import worker
from lakeformat.engines.spark import native
from lakeformat.engines.spark.reachable import Reach
from lakeformat.errors import Conflict, CorruptTable, InvalidInput, UnsupportedFeature
from lakeformat.maintenance import sweep
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests import doors
from tests.golden.archives import unzipped

# As pypaimon reads its table: b was set for ids 1, 3 and 6, then a for 1 and 2, then b for 1 again.
ROWS = [(0, "a0", 0), (1, "A1", 101), (2, None, 2), (3, "a3", 300), (4, "a4", 4)]
MORE = [(5, "a5", 5), (6, "a6", 600), (7, "a7", 7), (8, "a8", 8)]


def golden(name: str) -> Table:
    return Table("t", unzipped(f"evolution/{name}.zip"), Paimon())


def rows(table: Table, columns=("id", "a", "b"), **how) -> list[tuple]:
    found = table.scan(columns=list(columns), **how).to_arrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_columns_of_several_files_are_put_together_by_row_id():
    table = golden("pypaimon")
    assert rows(table) == ROWS + MORE
    assert table.scan().count() == 9
    assert rows(table, ("id", "_ROW_ID", "_SEQUENCE_NUMBER")) == [(i, i, 5 if i < 5 else 3) for i in range(9)]
    assert rows(table, snapshot_id=3)[1] == (1, "a1", 100)
    assert rows(table, ("b",)) == sorted((b,) for _, _, b in ROWS + MORE)


@pytest.mark.parametrize(
    ("where", "ids"),
    [("b = 600", [6]), ("b = 6", []), ("b >= 100", [1, 3, 6]), ("a = 'A1'", [1]), ("a IS NULL", [2]), ("id = 3 AND b = 300", [3]),
     ("dt = 'y' AND b < 10", [5, 7, 8]), ("id > 7", [8]), ("b = 101 AND a = 'a1'", [])],
)  # fmt: skip
def test_bounds_of_values_that_newer_files_hold_leave_nothing_out(where, ids):
    table = golden("pypaimon")
    assert [id for (id,) in rows(table, ("id",), where=where)] == ids
    assert table.scan(where=where).count() == len(ids)


def test_files_of_the_same_rows_are_read_in_step_whatever_their_batches():
    table = golden("pypaimon")
    (task,) = (task for task in table.scan(["a", "b"], where="dt = 'x'").plan() if any(task.beside))
    found = pa.Table.from_batches(worker.read(doors.store(table), task, 2))
    assert found["b"].to_pylist() == [b for _, _, b in ROWS]
    path = task.beside[0][0].paths[0]
    doors.store(table).delete([path])
    assert sweep.missing(doors.store(table), doors.view(table)) == [path]


def test_tasks_leave_the_files_they_are_made_of_as_they_were():
    view = doors.view(golden("pypaimon"))
    found = view.files()
    before = found.entries.to_pylist()
    tasks = view.tasks(found, view.project(["id", "_SEQUENCE_NUMBER"]))
    assert any(task.lineage for task in tasks)
    assert found.entries.to_pylist() == before


def test_changes_of_columns_are_the_rows_before_and_after():
    table = golden("pypaimon")
    found = table.changes(2, 3, columns=["id", "b"], where="id < 2 OR id = 6").to_arrow().to_pylist()
    assert [(row["_row_kind"], row["id"], row["b"]) for row in found] == [
        ("-D", 0, 0), ("-D", 1, 1), ("-D", 6, 6), ("+I", 0, 0), ("+I", 1, 100), ("+I", 6, 600),
    ]  # fmt: skip
    assert table.changes(0, 2).to_arrow()["_row_kind"].to_pylist() == ["+I"] * 9


FIELDS = tuple(Field(-1, name, scalar(kind)) for name, kind in
               (("id", Kind.BIGINT), ("a", Kind.STRING), ("b", Kind.INT), ("dt", Kind.STRING)))  # fmt: skip
TRACKED = {"row-tracking.enabled": "true"}
EVOLVING = {**TRACKED, "data-evolution.enabled": "true"}
VECTORS = {"deletion-vectors.enabled": "true"}


def made(properties) -> Table:
    table = Table("t", MemoryFiles("file:/w/db.db/t"), Paimon())
    create(table, Schema(FIELDS, identity("dt"), (), properties))
    return table


def data(low: int, high: int, dt: str = "x") -> pa.Table:
    found = [{"id": i, "a": f"a{i}", "b": i, "dt": dt} for i in range(low, high)]
    return pa.Table.from_pylist(
        found, schema=pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.int32()), ("dt", pa.string())])
    )


def ids(table: Table) -> dict[int, int]:
    return dict(rows(table, ("id", "_ROW_ID")))


@pytest.mark.parametrize("properties", [TRACKED, EVOLVING | VECTORS], ids=["tracked", "evolving"])
def test_rows_keep_their_ids_whatever_changes_them(properties):
    """Random verbs beside a dict; after each the rows, their ids, and what is stored are as they should be."""
    for seed in range(2):
        random, table, model, known = Random(seed), made(properties), {}, {}
        for step in range(12):
            low, cut = 3 * step, random.randrange(max(3 * step, 1))
            match random.choice(
                ["append", "append", "update", "update both", "delete", "merge", "compact", "overwrite", "rollback"]
            ):
                case "append":
                    table.append(data(low, low + 3, random.choice("xy")))
                    model |= {i: (f"a{i}", i) for i in range(low, low + 3)}
                case "update":
                    table.update({"b": "b + 1000"}, where=f"id > {cut}")
                    model |= {i: (a, b + 1000) for i, (a, b) in model.items() if i > cut}
                case "update both":
                    table.update({"a": "concat('u', a)", "b": "id * 2"}, where=f"b % 3 = 0 AND id < {cut}")
                    model |= {i: (f"u{a}", i * 2) for i, (a, b) in model.items() if b % 3 == 0 and i < cut}
                case "delete":
                    table.delete(f"id = {cut}")
                    model.pop(cut, None)
                case "merge":
                    new = pa.table({"id": pa.array([cut, low], pa.int64()), "b": pa.array([-1, -2], pa.int32())})
                    merge = table.merge_into(new, on="t.id = s.id").when_matched().update({"b": "s.b"})
                    merge.when_not_matched().insert({"id": "s.id", "b": "s.b", "a": "'new'", "dt": "'x'"}).merge()
                    model |= {cut: (model[cut][0], -1) if cut in model else ("new", -1), low: ("new", -2)}
                case "compact":
                    table.compact(full=True)
                case "overwrite":
                    gone = {i for (i,) in rows(table, ("id",), where="dt = 'y'")}
                    table.overwrite_partitions(data(low, low + 2, "y"))
                    model = {i: values for i, values in model.items() if i not in gone} | {
                        i: (f"a{i}", i) for i in (low, low + 1)
                    }
                    known = {i: values for i, values in known.items() if i not in gone}
                case "rollback":
                    version = table.current_snapshot()
                    table.append(data(10_000, 10_003))
                    if version is not None:
                        table.rollback_to(snapshot_id=version.id)
                    else:
                        table.truncate()
            assert rows(table) == sorted((i, *values) for i, values in model.items()), (seed, step)
            now = ids(table)
            assert len(set(now.values())) == len(now), (seed, step)
            assert {i: values for i, values in now.items() if i in known} == {
                i: values for i, values in known.items() if i in now
            }, (seed, step)
            assert table.scan().count() == len(model), (seed, step)
            known |= now
        assert not sweep.missing(doors.store(table), doors.view(table))
        table.expire_snapshots(retain_last=1, older_than="2100-01-01")
        table.remove_orphan_files(older_than="2100-01-01")
        assert rows(table) == sorted((i, *values) for i, values in model.items()), seed


def test_a_file_of_one_column_is_all_that_an_update_writes():
    table = made(EVOLVING)
    table.append(data(0, 5))
    made_by = table.update({"b": "b + 1"}, where="id = 3")
    assert (made_by.kind, made_by.partitions[0].files_added, made_by.partitions[0].files_removed) == ("update", 1, 0)
    assert table.update({"b": "b + 1"}, where="id > 4") is None
    assert table.current_snapshot().id == made_by.id
    assert table.inspect.files()["row_count"].to_pylist() == [5, 5]
    (whole,) = table.inspect.partitions().to_pylist()
    assert (whole["file_count"], whole["row_count"]) == (2, 5)
    assert rows(table, ("id", "b", "_ROW_ID"))[3] == (3, 4, 3)
    assert table.compact(full=True).partitions[0].files_added == 1
    assert rows(table, ("id", "_ROW_ID", "_SEQUENCE_NUMBER")) == [(i, i, 2) for i in range(5)]
    assert table.compact(full=True) is None
    with pytest.raises(InvalidInput, match="'dt' is a partition column"):
        table.update({"dt": "'y'"}, where="id = 3")
    with pytest.raises(UnsupportedFeature, match=r"deletion-vectors\.enabled"):
        table.delete("id = 3")
    with pytest.raises(UnsupportedFeature, match="order of their ids"):
        table.compact(sort_by=["a"])
    assert table.delete("dt = 'x'").kind == "delete"


def merging(table, source, **options):
    asked = table.merge_into(source, "t.id = s.id").when_matched("s.b < 0").delete()
    return asked.when_matched("s.b > 100").update({"b": "s.b"}).when_not_matched().insert_all().merge(**options)


def removing(table, id: int):
    return merging(table, data(id, id + 1).set_column(2, "b", pa.array([-1], pa.int32())))


def setting(table, id: int, a: str):
    return table.merge_into(data(id, id + 1), on="t.id = s.id").when_matched().update({"a": a}).merge()


def test_a_merge_deletes_by_vectors_and_updates_by_columns():
    table = made(EVOLVING | VECTORS)
    table.append(data(0, 5))
    table.append(data(5, 10))
    before = ids(table)
    source = data(3, 8).set_column(2, "b", pa.array([-1, 200, 7, -1, 300], pa.int32()))
    made_by = merging(table, pa.concat_tables([source, data(20, 21)]))
    assert (made_by.kind, sum(partition.files_removed for partition in made_by.partitions)) == ("merge", 0)
    kept = dict(rows(table, ("id", "b")))
    assert kept == {**{i: i for i in (0, 1, 2, 5, 8, 9, 20)}, 4: 200, 7: 300}
    assert {id: row for id, row in ids(table).items() if id < 20} == {id: before[id] for id in kept if id < 20}
    merging(table, data(8, 10).set_column(2, "b", pa.array([-1, -1], pa.int32())))  # Nothing but deletes.
    assert [id for (id,) in rows(table, ("id",))] == [0, 1, 2, 4, 5, 7, 20]
    assert rows(table, ("id", "b"), snapshot_id=made_by.id) == sorted(kept.items())
    plain = made(EVOLVING)
    plain.append(data(0, 5))
    with pytest.raises(UnsupportedFeature, match=r"deletion-vectors\.enabled"):
        merging(plain, source)


def test_compaction_moves_the_marks_of_rows_that_were_deleted():
    table = made(EVOLVING | VECTORS | {"deletion-vectors.bitmap64": "true"})
    for low in (0, 3, 6):
        table.append(data(low, low + 3))
    table.append(data(9, 12, "y"))
    table.delete("id IN (1, 3, 5, 9)")
    table.update({"b": "b + 100"}, where="id > 3")
    before = rows(table, ("id", "a", "b", "_ROW_ID"))
    assert table.compact(full=True).kind == "compact"
    assert table.inspect.files()["row_count"].to_pylist() == [9, 3]
    assert rows(table, ("id", "a", "b", "_ROW_ID")) == before
    assert table.scan().count() == len(before) == 8
    assert table.compact(full=True) is None
    table.delete("id = 6")
    table.update({"a": "'new'"}, where="id = 7")
    assert rows(table, ("id", "a"), where="dt = 'x'") == [(0, "a0"), (2, "a2"), (4, "a4"), (7, "new"), (8, "a8")]
    table.expire_snapshots(retain_last=1, older_than="2100-01-01")
    table.remove_orphan_files(older_than="2100-01-01")
    assert not sweep.missing(doors.store(table), doors.view(table))


@pytest.mark.parametrize(
    ("theirs", "own", "is_conflict"),
    [
        (lambda t: t.update({"b": "7"}, where="id = 1"), lambda t: t.update({"b": "8"}, where="id = 2"), True),
        (lambda t: t.update({"b": "7"}, where="id = 1"), lambda t: t.update({"a": "'n'"}, where="id = 2"), False),
        (lambda t: t.update({"b": "7"}, where="id = 1"), lambda t: t.update({"a": "string(b)"}, where="id = 2"), True),
        (lambda t: t.update({"b": "7"}, where="id = 1"), lambda t: t.update({"a": "'n'"}, where="b = 2"), True),
        (lambda t: t.update({"b": "7"}, where="id = 1"), lambda t: t.delete("b = 2"), True),
        (lambda t: t.update({"b": "7"}, where="id = 1"), lambda t: t.delete("id = 2"), False),
        (lambda t: t.update({"b": "7"}, where="id = 1"), lambda t: t.update({"b": "8"}, where="id = 6"), False),
        (lambda t: t.update({"b": "7"}, where="id = 1"), lambda t: setting(t, 2, "string(t.b)"), True),
        (lambda t: t.update({"b": "7"}, where="id = 1"), lambda t: setting(t, 2, "'n'"), False),
        (lambda t: t.append(data(9, 10)), lambda t: t.update({"b": "8"}, where="id = 2"), False),
        (lambda t: t.delete("id = 1"), lambda t: removing(t, 2), True),
        (lambda t: t.compact(full=True), lambda t: removing(t, 2), True),
        (lambda t: t.update({"b": "7"}, where="id = 1"), lambda t: removing(t, 2), False),
        (lambda t: t.delete("id = 2"), lambda t: t.update({"b": "8"}, where="id = 2"), False),
        (lambda t: t.compact(full=True), lambda t: t.update({"b": "8"}, where="id = 2"), True),
        (lambda t: t.overwrite_partitions(data(9, 10)), lambda t: t.update({"b": "8"}, where="id = 2"), True),
    ],
)  # fmt: skip
def test_new_values_of_the_same_columns_of_the_same_rows_conflict(theirs, own, is_conflict):
    table = made(EVOLVING | VECTORS)
    table.append(data(0, 5))
    table.append(data(5, 9))
    before = doors.view(table)
    other = Table("t", Late(doors.store(table), lambda: theirs(table), before.state.version), Paimon())
    if is_conflict:
        with pytest.raises(Conflict):
            own(other)
    else:
        assert own(other) is not None
    assert len(ids(table)) == len(set(ids(table).values()))


class Late:
    """A store whose first write of a data or index file is followed by what others do."""

    def __init__(self, store, act, version) -> None:
        self._store, self._act, self._version = store, act, version

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name != "create" or self._act is None:
            return found

        def create(path, *args):
            act, self._act = self._act, None
            if act is not None:
                act()
            return found(path, *args)

        return create


@pytest.mark.parametrize(
    ("properties", "key", "word"),
    [({"data-evolution.enabled": "true"}, (), "needs row-tracking"), ({**TRACKED, "bucket": "1"}, ("id",), "without a primary key"),
     ({**TRACKED, "bucket": "2", "bucket-key": "id"}, (), "bucket=-1")],
)  # fmt: skip
def test_row_ids_are_for_tables_without_keys_and_buckets(properties, key, word):
    with pytest.raises(InvalidInput, match=word):
        create(Table("t", MemoryFiles(), Paimon()), Schema(FIELDS, primary_key=key, properties=properties))


def test_rows_that_a_rewrite_changes_have_its_snapshot_as_their_sequence_number():
    table = made(TRACKED)
    table.append(data(0, 3))
    table.append(data(3, 5))
    table.update({"b": "-1"}, where="id IN (1, 4)")
    assert rows(table, ("id", "_ROW_ID", "_SEQUENCE_NUMBER")) == [(0, 0, 1), (1, 1, 3), (2, 2, 1), (3, 3, 2), (4, 4, 3)]
    table.compact(full=True)
    assert rows(table, ("id", "_ROW_ID", "_SEQUENCE_NUMBER")) == [(0, 0, 1), (1, 1, 3), (2, 2, 1), (3, 3, 2), (4, 4, 3)]


def test_spark_reads_row_ids_by_the_worker(spark):
    table = made(EVOLVING)
    table.append(data(0, 5))
    for columns, is_left_to_spark in ((["id", "b"], True), (["id", "_ROW_ID"], False), (["_SEQUENCE_NUMBER"], False)):
        (task,) = table.scan(columns).plan()
        assert native.parted(doors.store(table), [task], Reach(spark))[0 if is_left_to_spark else 1] != [], columns


def test_row_ids_are_of_one_partition(tmp_path):
    """As paimon-cpp numbers rows: each partition from 0. Column files belong to the rows of their own partition."""
    fields = pa.schema([("id", pa.int32()), ("p", pa.int32()), ("v", pa.int32())])
    properties = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    t = Lake(str(tmp_path)).create_table("d.t", fields, partition_by=["p"], properties=properties)
    for p in (10, 20):
        t.append(pa.table({"id": [p, p + 1], "p": [p, p], "v": [0, 0]}, schema=fields))
    t.update({"v": "id"})
    view = doors.view(t)
    entries = manifest.live_entries(view.reader, view.state.document, view.schema)
    index = entries.column_names.index("_FIRST_ROW_ID")
    entries = entries.set_column(index, entries.schema.field(index), pa.array([0] * len(entries), pa.int64()))
    whole, beside = tracking.by_row_id(entries, "t")
    assert len(whole) == len(beside.entries) == 2
    partition_of = dict(zip(entries["_FILE_NAME"].to_pylist(), entries["_PARTITION"].to_pylist(), strict=True))
    for name, of in zip(beside.entries["_FILE_NAME"].to_pylist(), beside.of.to_pylist(), strict=True):
        assert name != of
        assert partition_of[name] == partition_of[of]
    longer = entries.set_column(
        entries.column_names.index("_ROW_COUNT"), "_ROW_COUNT", pa.array([3] + [2] * (len(entries) - 1), pa.int64())
    )
    with pytest.raises(CorruptTable, match="overlap"):
        tracking.by_row_id(longer, "t")
