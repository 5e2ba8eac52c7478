"""Compaction that sorts, and compaction in parts: whatever the format and the engine."""

import itertools
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import InvalidInput, Lake, NotFound, StoreError, UnsupportedFeature
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.maintenance import compact
from lakeformat.model.operation import Request
from lakeformat.model.partition import SortField
from lakeformat.model.predicate import ALWAYS
from lakeformat.verbs.change import Change
from tests import doors

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("dt", pa.string())])
TARGET = {"paimon": {"target-file-size": "20 kb"}, "iceberg": {"write.target-file-size-bytes": "20000"}}


@pytest.fixture(params=["arrow", pytest.param("spark", marks=pytest.mark.spark)])
def session(request):
    return request.getfixturevalue("spark") if request.param == "spark" else None


@pytest.fixture(params=["paimon", "iceberg"])
def format(request):
    return request.param


@pytest.fixture
def table(tmp_path, format):
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format=format, partition_by=["dt"], properties=TARGET[format])
    chance = random.Random(3)
    for _ in range(4):
        rows = [
            {"id": chance.choice([None, chance.randrange(10**12)]), "k": f"{chance.random():.15f}" * 2, "dt": chance.choice("ab")}
            for _ in range(1500)
        ]  # fmt: skip
        t.append(pa.Table.from_pylist(rows, SCHEMA))
    return t


def seen(table):
    return sorted(map(repr, table.scan().to_arrow().to_pylist()))


def files(table, dt):
    """The rows of each file of a partition, read one by one."""
    store, base = doors.store(table), doors.view(table)
    found = base.files()
    tasks = base.tasks(found, base.schema.fields, alone=True)
    read = [list(ArrowEngine().read(store, [task], base.schema.fields)) for task in tasks]
    tables = [pa.Table.from_batches(batches) for batches in read]
    return [part for part in tables if part["dt"][0].as_py() == dt]


def assert_sorted(table, columns):
    for dt in "ab":
        parts = [file.select(columns).to_pylist() for file in files(table, dt)]
        keys = [[[(v is not None, v or 0) for v in row.values()] for row in rows] for rows in parts]
        assert all(rows == sorted(rows) for rows in keys)
        keys.sort(key=lambda rows: rows[0])
        assert len(keys) >= 2, "one file proves nothing"
        assert all(before[-1] <= after[0] for before, after in itertools.pairwise(keys))


def test_files_that_are_sorted_do_not_overlap(table, session):
    before = seen(table)
    made = table.compact(sort_by=["id"], spark=session)
    assert made.kind == "compact"
    assert made.rows_added == made.rows_removed == 6000
    assert_sorted(table, ["id"])
    assert seen(table) == before
    middle = sorted(
        row["id"] for row in table.scan(["id"], where="dt = 'a' and id is not null").to_arrow().to_pylist()
    )[500]
    condition = f"dt = 'a' and id = {middle}"
    assert sum(len(task.paths) for task in table.scan(where=condition).plan()) <= 2
    assert table.scan(where=condition).count() == 1


def test_by_several_columns_in_chosen_partitions(table):
    before, kept = seen(table), {path for task in table.scan(where="dt = 'b'").plan() for path in task.paths}
    table.compact(sort_by=["k", "id"], where="dt = 'a'")
    assert {path for task in table.scan(where="dt = 'b'").plan() for path in task.paths} == kept
    table.compact(sort_by=["k", "id"])
    assert_sorted(table, ["k", "id"])
    assert seen(table) == before


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_along_a_curve_conditions_on_each_column_leave_files_out(tmp_path, format, session, curve):
    if curve == "hilbert":
        session = None  # Spark calls the same kernel.
    schema = pa.schema([("x", pa.int64()), ("a", pa.struct([("y", pa.int32())])), ("n", pa.string())])
    t = Lake(tmp_path).create_table("d.z", schema, format=format, properties=TARGET[format])
    chance = random.Random(4)
    pairs = [(x, y) for x in range(100) for y in range(100)]
    chance.shuffle(pairs)
    rows = [{"x": x, "a": {"y": y}, "n": chance.randbytes(32).hex()} for x, y in pairs]
    for start in range(0, 10_000, 2_500):
        t.append(pa.Table.from_pylist(rows[start : start + 2_500], schema))
    t.compact(sort_by=[f"{curve}(x, a.y)"], spark=session)
    found = t.scan().to_arrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, rows))
    count = len(t.inspect.files())
    assert count >= 8
    paths = [path for task in t.scan().plan() for path in task.paths]
    store = doors.store(t)
    held = [pq.ParquetFile(pa.BufferReader(store.read(path))).read().to_pylist() for path in paths]
    for make in (lambda row: row["x"], lambda row: row["a"]["y"]):
        spans = [(min(map(make, column)), max(map(make, column))) for column in held]
        touched = [sum(low <= value <= high for low, high in spans) for value in range(100)]
        assert sum(touched) <= 0.6 * count * 100, (count, touched)
    assert sum(len(task.paths) for task in t.scan(where="x = 3").plan()) < count


def test_what_cannot_be_sorted_by_is_named(table, tmp_path, format):
    with pytest.raises(NotFound, match="'nope'"):
        table.compact(sort_by=["nope"])
    for wrong in ([], "id", [3]):
        with pytest.raises(InvalidInput, match="sort_by"):
            table.compact(sort_by=wrong)
    nested = Lake(tmp_path).create_table("d.n", pa.schema([("l", pa.list_(pa.int64()))]), format=format)
    with pytest.raises(InvalidInput, match="sort_by names 'l'"):
        nested.compact(sort_by=["l"])
    with pytest.raises(InvalidInput, match="sort_by names 'l'"):
        nested.compact(sort_by=["zorder(l)"])
    for wrong in ("zorder(id) desc", "hilbert(days(id))", "zorder()"):
        with pytest.raises(InvalidInput, match="write columns only"):
            table.compact(sort_by=[wrong])
    assert Lake(tmp_path).create_table("d.e", SCHEMA, format=format).compact(sort_by=["id"]) is None
    if format == "paimon":
        buckets = {"bucket": "2", "bucket-key": "id"}
        fixed = Lake(tmp_path).create_table("d.b", SCHEMA, properties=buckets)
        with pytest.raises(UnsupportedFeature, match="fixed buckets"):
            fixed.compact(sort_by=["id"])


def test_sorting_applies_deletes_and_takes_files_of_earlier_partitions(tmp_path):
    mode = {"write.delete.mode": "merge-on-read", "format-version": "3", **TARGET["iceberg"]}
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format="iceberg", properties=mode)
    ids = list(range(3000))
    random.Random(1).shuffle(ids)
    t.append(pa.table({"id": ids, "k": [str(i) for i in ids], "dt": ["ab"[i % 2] for i in ids]}))
    t.delete("id % 3 = 0")
    t.alter().add_partition_field("dt").commit()
    row_ids = {row["id"]: row["_row_id"] for row in t.scan(["id", "_row_id"]).to_arrow().to_pylist()}
    t.compact(sort_by=["id"])
    assert not any(delete for task in t.scan().plan() for delete in task.deletes)
    for dt in "ab":
        found = [file["id"].to_pylist() for file in files(t, dt)]
        assert sorted(i for ids in found for i in ids) == [i for i in range(3000) if i % 3 and "ab"[i % 2] == dt]
        assert all(ids == sorted(ids) for ids in found)
    assert {row["id"]: row["_row_id"] for row in t.scan(["id", "_row_id"]).to_arrow().to_pylist()} == row_ids


def test_compaction_in_parts_makes_several_snapshots(table):
    before, count = seen(table), len(table.snapshots())
    made = table.compact(full=True, sort_by=["id"], partial_progress=True, max_commits=2)
    assert [snapshot.kind for snapshot in table.snapshots()[count:]] == ["compact", "compact"]
    assert table.current_snapshot().id == made.id
    assert seen(table) == before
    assert_sorted(table, ["id"])
    whole = table.compact(sort_by=["id"], partial_progress=True, max_commits=1)
    assert len(table.snapshots()) == count + 3
    assert sorted(change.values for change in whole.partitions) == [("a",), ("b",)]
    assert seen(table) == before
    with pytest.raises(InvalidInput, match="ids of their own"):
        table.compact(partial_progress=True, id="mine")
    with pytest.raises(InvalidInput, match="max_commits"):
        table.compact(partial_progress=True, max_commits=0)


class Fails(ArrowEngine):
    """Fails for files of the partitions `dts`."""

    def __init__(self, dts):
        super().__init__(1)
        self.dts = dts

    def rewrite(self, store, tasks):
        if any(f"dt={dt}" in path for task in tasks for read in task.read for path in read.paths for dt in self.dts):
            raise StoreError("no answer")
        return super().rewrite(store, tasks)


def test_a_part_that_fails_loses_nothing_of_the_others(table):
    before, base = seen(table), doors.view(table)
    request = Request(id="compaction", absent_until=base.version)
    how = (doors.dialect(table), False, ALWAYS, (SortField(("id",)),), 10)
    kept = {path for task in table.scan(where="dt = 'b'").plan() for path in task.paths}
    made = compact.compact_in_parts(Change(doors.store(table), base, Fails("b"), request), *how)
    assert made.kind == "compact"
    assert [change.values for change in made.partitions] == [("a",)]
    assert {path for task in table.scan(where="dt = 'b'").plan() for path in task.paths} == kept
    assert seen(table) == before
    with pytest.raises(StoreError, match="no answer"):
        compact.compact_in_parts(Change(doors.store(table), doors.view(table), Fails("ab"), request), *how)
    assert seen(table) == before
