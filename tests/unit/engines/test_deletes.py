"""Delete files: which apply to which data files, how they are written and read, and what is left of the rows."""

import json
import pickle
import struct
from dataclasses import replace
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakeformat.codec import bitmap
from lakeformat.codec.iceberg import puffin
from lakeformat.dialects.iceberg import manifest, metadata, scan
from lakeformat.dialects.iceberg.manifest import FileContent
from lakeformat.engines import worker
from lakeformat.engines.row_level import deletes, marks
from lakeformat.errors import CorruptFile, InvalidInput
from lakeformat.model.partition import PartitionField, Partitioning, Transform, TransformKind
from lakeformat.model.predicate import lt
from lakeformat.model.schema import Field, Kind, scalar
from lakeformat.model.work import (
    FILE,
    POSITION,
    Content,
    DeleteFile,
    DeleteTask,
    FilesTask,
    MarkTask,
    Target,
    WriteTask,
)
from lakeformat.storage.cache import Cache, cache_of, cached, with_cache
from lakeformat.storage.files import open_store
from lakeformat.storage.local import LocalFiles
from lakeformat.storage.memory import MemoryFiles

# --- bytes ------------------------------------------------------------------------------------------------------------

POSITIONS = st.lists(st.one_of(st.integers(0, 200), st.integers(0, 2**31 - 1)), max_size=50)


@given(POSITIONS, st.booleans())
def test_vectors_hold_what_was_put_into_them(positions, wide):
    found = bitmap.decode(bitmap.encode(np.array(positions, np.int64), wide), "here")
    assert found.tolist() == sorted(set(positions))


def test_wide_vectors_are_as_the_spec_lays_them_out():
    data = bitmap.encode(np.array([3, 1, 2**33 + 5]))
    assert data[4:8] == bytes.fromhex("d1d33964")
    assert struct.unpack(">i", data[:4]) == (len(data) - 8,)
    assert struct.unpack("<qi", data[8:20]) == (2, 0)
    assert sorted(BitMap64.deserialize(data[8:-4])) == [1, 3, 2**33 + 5]
    assert len(bitmap.encode(np.arange(100_000))) < 100  # Runs are kept as runs.
    with pytest.raises(InvalidInput, match="32-bit"):
        bitmap.encode(np.array([2**31]), wide=False)


@pytest.mark.parametrize("at", [0, 4, 12, -1])
def test_damaged_vectors_are_named(at):
    data = bytearray(bitmap.encode(np.arange(0, 90, 3)))
    data[at] ^= 1
    with pytest.raises(CorruptFile, match="here"):
        bitmap.decode(bytes(data), "here")
    with pytest.raises(CorruptFile, match="here"):
        bitmap.decode(bytes(data[:7]), "here")


def test_puffin_files_say_where_their_blobs_lie():
    data, offsets = puffin.emit([puffin.Blob("a", b"xyz", (1,)), puffin.Blob("b", b"12", (2,), {"k": "v"})])
    (size,) = struct.unpack("<i", data[-12:-8])
    footer = json.loads(data[-12 - size : -12])
    assert data[:4] == data[-4:] == data[-16 - size : -12 - size] == b"PFA1"
    assert [data[b["offset"] : b["offset"] + b["length"]] for b in footer["blobs"]] == [b"xyz", b"12"]
    assert [b["offset"] for b in footer["blobs"]] == offsets
    assert footer["blobs"][1]["properties"] == {"k": "v"}
    assert "compression-codec" not in footer["blobs"][0]


# --- which apply ------------------------------------------------------------------------------------------------------

INT = scalar(Kind.INT)
NO_SPEC = metadata.Spec(0, Partitioning((), 0), (), ())
BY_P = metadata.Spec(
    1, Partitioning((PartitionField("p", Transform(TransformKind.IDENTITY), "p", 1000),), 1), (1,), (INT,)
)
VOID = metadata.Spec(2, Partitioning((PartitionField("p", Transform(TransformKind.VOID), "v", 1001),), 2), (1,), (INT,))
BASE = metadata.State(1, metadata.NOTHING.schema, specs={0: NO_SPEC, 1: BY_P, 2: VOID})


def table_of(rows):
    empty = manifest.read_all(MemoryFiles(), BASE, manifest.EMPTY_METAS)
    return pa.Table.from_pylist([{n: row.get(n) for n in empty.column_names} for row in rows], empty.schema)


PLACES = st.sampled_from([(0, None), (1, None), (1, 1), (1, 2), (2, None)])
DATA = st.lists(st.tuples(PLACES, st.integers(0, 4)), max_size=12)
DELETES = st.lists(
    st.tuples(
        PLACES, st.integers(0, 4), st.sampled_from(["equality", "wide", "said", "bounds", "vector"]), st.integers(0, 12)
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(DATA, DELETES)
def test_deletes_apply_exactly_where_the_spec_says(data, given):
    path = "file:///t/data/{}.parquet".format
    entries = [
        {
            "file_path": path(i),
            "_spec": spec,
            "p1000": p,
            "sequence_number": seq,
            "content": 0,
            "file_format": "PARQUET",
        }
        for i, ((spec, p), seq) in enumerate(data)
    ]
    files, kinds = [], []
    vectors = set()
    for (spec, p), seq, kind, about in given:
        if kind == "vector" and about in vectors:
            kind = "said"  # A data file has one vector at most.
        vectors |= {about} if kind == "vector" else set()
        kinds.append(kind)
        bound = [{"key": scan.PATH_ID, "value": path(about).encode()}]
        files.append(
            {
                "_spec": spec,
                "p1000": p,
                "sequence_number": seq,
                "file_format": "PUFFIN" if kind == "vector" else "PARQUET",
                "content": int(FileContent.EQUALITY_DELETES if kind == "equality" else FileContent.POSITION_DELETES),
                "referenced_data_file": path(about) if kind in ("said", "vector") else None,
                "lower_bounds": bound if kind == "bounds" else None,
                "upper_bounds": bound if kind == "bounds" else None,
            }
        )
    left, right = scan.attached(BASE, table_of(entries), table_of(files))
    expected = []
    for i, ((spec, p), seq) in enumerate(data):
        here = []
        for j, ((other, q), until, *_) in enumerate(given):
            kind = kinds[j]
            if kind == "equality":
                applies = seq < until and ((spec, p) == (other, q) or other in (0, 2))
            else:
                applies = seq <= until and (spec, p) == (other, q) and (kind == "wide" or given[j][3] == i)
            if applies:
                here.append((j, kind))
        if any(kind == "vector" for _, kind in here):
            here = [(j, kind) for j, kind in here if kind in ("vector", "equality")]
        expected += [(i, j) for j, _ in here]
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == expected


def test_bounds_that_were_cut_short_do_not_hide_deletes():
    entries = table_of([{"file_path": "file:///tmp/warehouse/a.parquet", "_spec": 0, "sequence_number": 1}])
    cut = [{"key": scan.PATH_ID, "value": b"file:///tmp/ware"}]
    delete = {"_spec": 0, "sequence_number": 2, "content": 1, "file_format": "PARQUET"}
    files = table_of([{**delete, "lower_bounds": cut, "upper_bounds": cut}])
    assert scan.attached(BASE, entries, files)[1].tolist() == [0]


def test_a_million_data_files_and_their_deletes_are_matched_in_whole_columns():
    rows = 1_000_000
    paths = pa.array([f"file:///t/data/{i}.parquet" for i in range(rows)])
    empty = table_of([])

    def made(**columns):
        length = len(next(iter(columns.values())))
        return pa.table([columns.get(f.name, pa.nulls(length, f.type)) for f in empty.schema], schema=empty.schema)

    specs, partitions = pa.array(np.ones(rows, np.int32)), pa.array(np.arange(rows, dtype=np.int32) % 1000)
    entries = made(file_path=paths, _spec=specs, p1000=partitions, sequence_number=pa.array(np.ones(rows, np.int64)))
    shared = {"_spec": specs, "p1000": partitions, "sequence_number": pa.array(np.full(rows, 2))}
    vectors = made(**shared, content=specs, file_format=pa.array(["PUFFIN"] * rows), referenced_data_file=paths)
    left, right = scan.attached(BASE, entries, vectors)
    assert np.array_equal(left, right)
    assert len(left) == rows


# --- written and read -------------------------------------------------------------------------------------------------

FIELDS = (Field(1, "id", scalar(Kind.INT)), Field(2, "v", scalar(Kind.STRING)))
DELETE_FIELDS = (
    Field(deletes.PATH_ID, "file_path", scalar(Kind.STRING), False),
    Field(deletes.POSITION_ID, "pos", scalar(Kind.BIGINT), False),
)
NUMBERS = count()


@pytest.fixture
def store():
    return MemoryFiles(f"memory://deletes-{next(NUMBERS)}")


def data_file(store, ids, fields=FIELDS):
    columns = {"id": pa.array(ids, pa.int32()), "v": [f"v{i}" for i in ids]}
    layout = WriteTask(fields, lambda values, bucket: "data", target_size_bytes=1 << 30)
    (file,) = worker.write(store, iter([pa.record_batch({f.name: columns[f.name] for f in fields})]), layout)
    return file


def task_of(files, gone=(), fields=FIELDS, **more):
    return FilesTask(
        tuple(f.path for f in files), tuple(f.row_count for f in files), tuple(f.size_bytes for f in files), "parquet",
        fields, deletes=gone, **more,
    )  # fmt: skip


def ids(store, task):
    return [i for batch in worker.read(store, task, 16) for i in batch.column(0).to_pylist()]


def as_delete(file):
    return DeleteFile(file.path, file.content, file.offset, file.vector_bytes, row_count=file.row_count)


@pytest.mark.parametrize("content", [Content.POSITION_DELETES, Content.DELETION_VECTORS])
@pytest.mark.parametrize("per_file", [True, False])
def test_marked_rows_are_gone_and_marks_add_up(store, content, per_file):
    files = [data_file(store, list(range(k * 100, k * 100 + 50))) for k in range(3)]
    targets = tuple(Target(f.path, (7,), 4, "data") for f in files)
    write = DeleteTask(targets, content, per_file, DELETE_FIELDS)
    first = marks.mark(store, MarkTask(task_of(files, predicate=lt("id", 120)), write))
    if content is Content.DELETION_VECTORS or per_file:
        assert [f.refers_to for f in first] == [(p,) for p in sorted(f.path for f in files[:2])]
    else:
        assert [set(f.refers_to) for f in first] == [{f.path for f in files[:2]}]
    assert {(f.partition, f.spec_id, f.content) for f in first} == {((7,), 4, content)}
    assert sum(f.row_count for f in first) == 70
    gone = tuple(tuple(as_delete(d) for d in first if f.path in d.refers_to) for f in files)
    left = task_of(files, gone)
    assert ids(store, left) == [*range(120, 150), *range(200, 250)]
    assert worker.count(store, left) == 80
    assert ids(store, replace(left, predicate=lt("id", 125))) == [120, 121, 122, 123, 124]
    again = DeleteTask(
        tuple(replace(t, deletes=g, replaced=g) for t, g in zip(targets, gone, strict=True)), content, per_file, DELETE_FIELDS
    )  # fmt: skip
    second = marks.mark(store, MarkTask(replace(left, predicate=lt("id", 130)), again))
    assert sum(f.row_count for f in second) == 30  # Those of before, and ten more; nothing for files without new ones.
    assert [d for f in second for d in f.replaces] == list(gone[1])


def test_position_deletes_are_sorted_and_their_bounds_are_whole(store):
    files = [data_file(store, list(range(9))) for _ in range(2)]
    targets = tuple(Target(f.path, (), 0, "data") for f in files)
    batch = pa.record_batch(
        {FILE.name: [files[1].path, files[0].path, files[1].path], POSITION.name: pa.array([5, 3, 2], pa.int64())}
    )
    (file,) = marks.write(store, iter([batch, batch]), DeleteTask(targets, per_file=False, fields=DELETE_FIELDS))
    found = pq.read_table(pa.BufferReader(store.read(file.path)))
    expected = sorted([(files[0].path, 3), (files[1].path, 2), (files[1].path, 5)])
    assert list(zip(*found.to_pydict().values(), strict=True)) == expected
    assert [f.metadata[b"PARQUET:field_id"] for f in found.schema] == [b"2147483546", b"2147483545"]
    paths = sorted(f.path for f in files)
    assert (file.stats[deletes.PATH_ID].minimum, file.stats[deletes.PATH_ID].maximum) == (paths[0], paths[1])
    with pytest.raises(InvalidInput, match="not among the 1 targets"):
        marks.write(store, iter([batch]), DeleteTask(targets[:1], fields=DELETE_FIELDS))


@pytest.mark.parametrize("positions", [[0, 5, 3], [5, 3, 0], [0, 3, 3, 5], [3, 3]], ids=str)
def test_position_deletes_of_others_may_come_in_any_order_and_twice(store, positions):
    """The specification says that they are sorted; not every writer does."""
    files = [data_file(store, list(range(9))) for _ in range(2)]
    schema = pa.schema(
        [
            pa.field(f.name, t, metadata={"PARQUET:field_id": str(f.id)})
            for f, t in zip(DELETE_FIELDS, (pa.string(), pa.int64()), strict=True)
        ]
    )
    for paths in ([files[0].path] * len(positions), [files[k % 2].path for k in range(len(positions))]):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table([paths, positions], schema=schema), sink)
        store.write(name := f"data/others-{next(NUMBERS)}.parquet", sink.getvalue().to_pybytes())
        gone = (DeleteFile(store.location(name), Content.POSITION_DELETES),)
        left = [(path, i) for path in (files[0].path, files[1].path) for i in range(9)]
        left = [i for path, i in left if (path, i) not in set(zip(paths, positions, strict=True))]
        task = task_of(files, (gone, gone))
        assert (ids(store, task), worker.count(store, task)) == (left, len(left))


def test_keys_are_compared_by_field_id_also_where_files_lack_the_column(store):
    whole, lacking = data_file(store, [1, 2, 3]), data_file(store, [4, 5], FIELDS[:1])
    renamed = (Field(1, "other", scalar(Kind.BIGINT)), Field(2, "w", scalar(Kind.STRING)))
    layout = WriteTask(FIELDS[1:], lambda values, bucket: "data")
    (by_v,) = worker.write(store, iter([pa.record_batch({"v": ["v2", None, "v4"]})]), layout)
    (by_id,) = worker.write(
        store, iter([pa.record_batch({"id": pa.array([3, 9], pa.int32())})]), replace(layout, fields=FIELDS[:1])
    )
    gone = (
        DeleteFile(by_v.path, Content.EQUALITY_DELETES, fields=renamed[1:]),
        DeleteFile(by_id.path, Content.EQUALITY_DELETES, fields=renamed[:1]),
    )
    task = task_of([whole, lacking], (gone, gone), renamed[:1])
    assert ids(store, task) == [1]  # The rows of the file without `v` have null there, and null is deleted.
    assert worker.count(store, task) == 1


OPENED = []


class Watched(LocalFiles):
    def open(self, path):
        OPENED.append(path)
        return super().open(path)


@pytest.fixture
def shared_deletes(tmp_path):
    """A store, two tasks of two files each, and the delete file that both need."""
    OPENED.clear()
    store = Watched(str(tmp_path), open_store, fsync=False)
    files = [data_file(store, [k, k + 10]) for k in range(4)]
    batch = pa.record_batch({FILE.name: [f.path for f in files], POSITION.name: pa.array([0] * 4, pa.int64())})
    targets = tuple(Target(f.path, (), 0, "data") for f in files)
    (gone,) = marks.write(store, iter([batch]), DeleteTask(targets, per_file=False, fields=DELETE_FIELDS))
    return store, [task_of(some, ((as_delete(gone),),) * 2) for some in (files[:2], files[2:])], gone.path


def reads(store, tasks, path):
    """How often a file is opened while the tasks are read."""
    before = OPENED.count(path)
    assert [ids(store, task) for task in tasks] == [[10, 11], [12, 13]]
    return OPENED.count(path) - before


def test_a_delete_file_is_read_once_by_each_lake_and_by_each_task_of_one_without_a_cache(shared_deletes):
    store, tasks, path = shared_deletes
    lakes = [with_cache(store, cached(store, Cache())) for _ in range(2)]
    assert [reads(lakes[0], tasks, path), reads(lakes[0], tasks, path), reads(lakes[1], tasks, path)] == [1, 0, 1]
    assert [reads(store, tasks, path), reads(with_cache(store, cached(store, Cache(0))), tasks, path)] == [2, 2]


def test_a_worker_shares_the_cache_of_the_lake_that_it_ran_last_and_its_size_is_the_lakes(shared_deletes):
    store, tasks, path = shared_deletes

    def sent(lake):
        return pickle.loads(pickle.dumps(with_cache(store, cached(store, lake))))

    lake, other, without = Cache(1 << 20), Cache(), Cache(0)
    first = sent(lake)
    assert cache_of(first) is cache_of(sent(lake)) is cache_of(pickle.loads(pickle.dumps(first)))
    assert cache_of(first) is cache_of(sent(pickle.loads(pickle.dumps(lake))))  # Of a copy of the lake.
    assert (cache_of(first).limit_bytes, cache_of(first) is lake) == (1 << 19, False)
    assert [reads(sent(lake), tasks, path), reads(sent(lake), tasks, path), reads(sent(other), tasks, path)] == [
        1,
        0,
        1,
    ]
    assert reads(sent(lake), tasks, path) == 1  # The other lake took the place.
    assert [reads(sent(without), tasks, path), len(cache_of(sent(without))._entries)] == [2, 0]


def test_a_cache_never_holds_more_than_its_limit(shared_deletes):
    store, tasks, path = shared_deletes
    cache = Cache(1_000)
    assert reads(with_cache(store, cached(store, cache)), tasks, path) == 4
    assert len(cache._entries) == 0


def test_a_vector_of_another_size_than_the_table_says_is_damage(store):
    file = data_file(store, list(range(10)))
    batch = pa.record_batch({FILE.name: [file.path], POSITION.name: pa.array([4], pa.int64())})
    (vector,) = marks.write(
        store, iter([batch]), DeleteTask((Target(file.path, folder="data"),), Content.DELETION_VECTORS)
    )
    with pytest.raises(CorruptFile, match="a vector of 1 rows, its table says 2"):
        ids(store, task_of([file], ((replace(as_delete(vector), row_count=2),),)))
