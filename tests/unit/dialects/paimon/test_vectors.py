"""Deletion vectors of Paimon tables: index files written here byte by byte, as Java does, and read by lakeformat."""

import datetime
import itertools
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap, BitMap64

from lakeformat import CommitError, Conflict, CorruptFile, InvalidInput, Lake, StoreError
from lakeformat.codec import bitmap
from lakeformat.codec.arrow import from_arrow
from lakeformat.codec.avro import file as avro
from lakeformat.codec.paimon import vector_file
from lakeformat.dialects.paimon import manifest, plan
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.dialects.paimon.metadata import head, load
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.model.partition import identity
from lakeformat.model.schema import Field, Schema
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from tests.draw import IS_LONG
from tests.simulation.failing import NthCallFails, faults
from tests.simulation.turns import Watched

dialect = Paimon()

AT_ONCE = datetime.timedelta(days=-1)

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
WIDTHS = {"32 bits": False, "64 bits": True}


def frame(positions, wide):
    body = struct.pack("<i", 1681511377) + BitMap64(positions).serialize() if wide else b""
    body = body or struct.pack(">i", 1581511376) + BitMap(positions).serialize()
    return struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def mark(table, marked, wide=False, cardinality=True, beside=""):
    """Give the current snapshot deletion vectors: (path of a data file, positions, partition), all in one index file."""
    home = table.uri.removeprefix("file://")
    data, ranges = b"\x01", []
    for path, positions, _ in marked:
        vector = frame(positions, wide)
        told = {"f0": path.rsplit("/", 1)[1], "f1": len(data), "f2": len(vector) if wide else len(vector) - 8}
        ranges.append(told | {"_CARDINALITY": len(positions) if cardinality else None})
        data += vector
    folder = beside or f"{home}/index"
    Path(folder).mkdir(exist_ok=True)
    with open(f"{folder}/index-x-0", "wb") as file:
        file.write(data)
    row = {
        "_VERSION": 1,
        "_KIND": 0,
        "_PARTITION": manifest.partition_rows([marked[0][2]], table.schema)[0].as_py(),
        "_BUCKET": 0,
        "_INDEX_TYPE": "DELETION_VECTORS",
        "_FILE_NAME": "index-x-0",
        "_FILE_SIZE": len(data),
        "_ROW_COUNT": len(marked),
        "_DELETIONS_VECTORS_RANGES": [None, *ranges],
        "_EXTERNAL_PATH": f"file://{beside}/index-x-0" if beside else None,
    }
    entries = pa.Table.from_pylist([row], manifest.INDEX_ENTRY)
    with open(f"{home}/manifest/index-manifest-x-0", "wb") as file:
        file.write(avro.encode(entries.drop_columns(["_GLOBAL_INDEX"]), manifest.INDEX_SCHEMA))
    snapshot = f"{home}/snapshot/snapshot-{table.current_snapshot().id}"
    with open(snapshot) as file:
        document = json.load(file)
    with open(snapshot, "w") as file:
        json.dump(document | {"indexManifest": "index-manifest-x-0"}, file)


@pytest.fixture
def table(tmp_path):
    made = Lake(str(tmp_path)).create_table("d.t", SCHEMA, format="paimon", partition_by=["dt"])
    for start in (0, 100):
        made.append({"id": range(start, start + 10), "v": [f"r{i}" for i in range(10)], "dt": ["x"] * 10})
    return made


def ids(table, **asked):
    return sorted(table.scan(**asked).to_arrow()["id"].to_pylist())


def paths(table):
    found = table.inspect.files()
    return found["path"].to_pylist()


@pytest.mark.parametrize("wide", WIDTHS.values(), ids=WIDTHS)
def test_rows_that_a_vector_names_are_gone(table, wide):
    first, second = paths(table)
    mark(table, [(first, [0, 3, 9], ("x",)), (second, [5], ("x",))], wide)
    assert ids(table) == [1, 2, 4, 5, 6, 7, 8, 100, 101, 102, 103, 104, 106, 107, 108, 109]
    assert table.scan().count() == 16
    assert ids(table, where="v = 'r5'") == [5]
    assert table.scan(where="v = 'r5'").count() == 1
    assert ids(table, snapshot_id=1) == list(range(10))


def test_files_without_vectors_have_a_task_of_their_own(table):
    first, second = paths(table)
    mark(table, [(first, [0], ("x",))])
    tasks = table.scan().plan()
    assert [(task.paths, bool(task.deletes)) for task in tasks] == [((second,), False), ((first,), True)]


def test_rows_of_a_vector_without_a_recorded_cardinality_are_counted(table):
    mark(table, [(paths(table)[0], [0, 3, 9], ("x",))], cardinality=False)
    assert table.scan().count() == 17


def test_an_index_file_may_lie_elsewhere(table, tmp_path):
    mark(table, [(paths(table)[0], [0, 3, 9], ("x",))], beside=str(tmp_path / "elsewhere"))
    assert len(ids(table)) == 17


@pytest.mark.parametrize("wide", WIDTHS.values(), ids=WIDTHS)
def test_a_damaged_vector_is_named(table, wide, tmp_path):
    mark(table, [(paths(table)[0], [0, 3, 9], ("x",)), (paths(table)[1], [1], ("x",))], wide)
    index = tmp_path / "d.db/t/index/index-x-0"
    data = bytearray(index.read_bytes())
    data[12] ^= 1
    index.write_bytes(bytes(data))
    with pytest.raises(CorruptFile, match="index-x-0"):
        table.scan().to_arrow()
    index.unlink()
    with pytest.raises(CorruptFile, match="index-x-0"):
        table.scan().to_arrow()


def test_many_files_and_positions_against_a_set(tmp_path):
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, format="paimon")
    chance = np.random.default_rng(7)
    gone, live = {}, set()
    for start in range(0, 40_000, 5_000):
        table.append({"id": range(start, start + 5_000), "v": ["v"] * 5_000, "dt": [None] * 5_000})
    for path in paths(table):
        start = min(pq.read_table(tmp_path / "d.db/t" / path)["id"].to_pylist())
        gone[path] = sorted(chance.choice(5_000, chance.integers(0, 4_000), replace=False).tolist())
        live |= set(range(start, start + 5_000)) - {start + position for position in gone[path]}
    mark(table, [(path, positions, ()) for path, positions in gone.items() if positions])
    assert ids(table) == sorted(live)
    assert table.scan(where="id >= 12345").count() == sum(file >= 12345 for file in live)


# --- written ----------------------------------------------------------------------------------------------------------


class Meanwhile:
    """A store in which something else happens right before the first new file is there."""

    def __init__(self, store, act):
        self._store, self._act = store, act

    def __getattr__(self, name):
        if name in ("write", "create_stream") and (act := self._act):
            self._act = None
            act()
        return getattr(self._store, name)


VECTORS = {"deletion-vectors.enabled": "true"}
PROPERTIES = {"one bucket for all": {}, "buckets": {"bucket": "1", "bucket-key": "id"}}


@pytest.fixture(params=PROPERTIES.values(), ids=PROPERTIES)
def marked(request):
    """Two files with ten rows each, both with a vector, which share an index file."""
    store = MemoryFiles()
    made = Table("t", store, dialect)
    fields = tuple(Field(i, f.name, from_arrow(f.type)) for i, f in enumerate(SCHEMA))
    create(made, Schema(fields, properties=VECTORS | request.param))
    for start in (0, 100):
        made.append({"id": range(start, start + 10), "v": [f"r{i}" for i in range(10)], "dt": ["x"] * 10})
    made.delete("id in (0, 100)")
    return store, made


def vectors(store):
    document = load(store, head(store).version()).document
    index = manifest.read_index(store, document)
    return index, {vector["of"]: vector["cardinality"] for vector in manifest.vectors(index).to_pylist()}


OTHERS = {
    "deletes rows of the same file": lambda t: t.delete("id = 5"),
    "compacts": lambda t: t.compact(full=True),
    "overwrites": lambda t: t.overwrite({"id": [7], "v": ["v"], "dt": ["x"]}),
    "updates the same file": lambda t: t.update({"v": "'new'"}, where="id = 6"),
    "goes back": lambda t: t.rollback_to(snapshot_id=2),
}
CHANGES = {
    "delete": lambda t: t.delete("id = 3"),
    "update": lambda t: t.update({"v": "'other'"}, where="id = 3"),
    "merge": lambda t: (
        t.merge_into(pa.table({"id": [3], "v": ["m"], "dt": ["x"]}), "t.id = s.id").when_matched().update_all().merge()
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_change_of_a_file_that_others_changed_meanwhile_is_a_conflict(marked, change, other):
    store, table = marked
    racing = Table("t", Meanwhile(store, lambda: other(table)), dialect)
    with pytest.raises(Conflict):
        change(racing)
    after = ids(table)
    assert 3 in after or after == [7]  # What the other did stands, and nothing else.
    assert after[-1] in (7, 109)
    assert (change(table) is None) == (after == [7])


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_of_other_files_are_none(marked, change):
    store, table = marked

    def other():
        table.delete("id = 101")
        table.append({"id": [200], "v": ["v"], "dt": ["x"]})

    change(Table("t", Meanwhile(store, other), dialect))
    expected = {*range(1, 10), *range(102, 110), 200} - ({3} if change is CHANGES["delete"] else set())
    assert ids(table) == sorted(expected)
    assert sorted(vectors(store)[1].values()) == [2, 2]


def test_a_compaction_starts_over_where_rows_were_deleted_meanwhile(marked):
    store, table = marked
    racing = Table("t", Meanwhile(store, lambda: table.delete("id = 5")), dialect)
    assert racing.compact(full=True).kind == "compact"
    assert ids(table) == [*range(1, 5), *range(6, 10), *range(101, 110)]
    assert vectors(store)[1] == {}


def test_files_that_go_whole_are_a_conflict_where_rows_were_deleted_meanwhile(marked):
    store, table = marked
    racing = Table("t", Meanwhile(store, lambda: table.delete("id = 5")), dialect)
    with pytest.raises(Conflict):
        racing.overwrite({"id": [1], "v": ["v"], "dt": ["x"]}, where="id < 50")


def test_a_bucket_has_one_file_of_vectors_and_nothing_is_left_behind(marked):
    store, table = marked
    for count, id in enumerate((1, 101, 2)):
        table.delete(f"id = {id}")
        index, held = vectors(store)
        assert sum(held.values()) == 2 + count + 1
        if table.schema.properties.get("bucket") == "1":
            assert len(index) == 1
    table.expire_snapshots(retain_last=1)
    there = {file.path.rpartition("/")[2] for file in store.list("index")}
    assert there == set(vectors(store)[0]["_FILE_NAME"].to_pylist())
    table.compact(full=True)
    table.expire_snapshots(retain_last=1)
    assert list(store.list("index")) == []


def test_index_files_are_as_long_as_the_table_asks_for():
    store = MemoryFiles()
    table = Table("t", store, dialect)
    fields = tuple(Field(i, f.name, from_arrow(f.type)) for i, f in enumerate(SCHEMA))
    create(table, Schema(fields, properties=VECTORS | {"deletion-vector.index-file.target-size": "70 b"}))
    for start in range(0, 60, 10):
        table.append({"id": range(start, start + 10), "v": ["v"] * 10, "dt": ["x"] * 10})
    table.delete("id % 10 = 4")
    index, held = vectors(store)
    assert (len(held), index["_ROW_COUNT"].to_pylist()) == (6, [3, 3])
    table.delete("id = 5")
    index, held = vectors(store)
    assert sorted(held.values()) == [1, 1, 1, 1, 1, 2]
    assert index["_ROW_COUNT"].to_pylist() == [3, 3]
    assert len(ids(table)) == 53


def test_files_that_lost_more_rows_than_the_threshold_are_compacted():
    store = MemoryFiles()
    table = Table("t", store, dialect)
    fields = tuple(Field(i, f.name, from_arrow(f.type)) for i, f in enumerate(SCHEMA))
    create(table, Schema(fields, properties=VECTORS | {"target-file-size": "100 b"}))
    for start in (0, 100):
        table.append({"id": range(start, start + 10), "v": ["v"] * 10, "dt": ["x"] * 10})
    table.delete("id in (1, 2, 101, 102, 103)")
    (kept,) = table.scan(where="id < 100").plan()[0].paths
    assert table.compact().rows_added == 7
    assert kept in paths(table)
    assert list(vectors(store)[1].values()) == [2]
    table.alter().set_properties({"compaction.delete-ratio-threshold": "0.1"}).commit()
    assert table.compact().rows_added == 8
    assert vectors(store)[1] == {}
    assert ids(table) == [0, *range(3, 10), 100, *range(104, 110)]


def test_rows_that_vectors_took_are_changes(marked):
    _, table = marked
    before = table.current_snapshot().id
    table.delete("id in (3, 103)")
    table.append({"id": [200], "v": ["v"], "dt": ["x"]})
    table.compact(full=True)
    found = table.changes(before).to_arrow().to_pylist()
    net = {}
    for row in found:
        net[row["id"]] = net.get(row["id"], 0) + (1 if row["_row_kind"] == "+I" else -1)
    assert {id: count for id, count in net.items() if count} == {3: -1, 103: -1, 200: 1}


@pytest.mark.parametrize("value", ["2", "-0.1", "x"])
def test_a_threshold_is_a_share(tmp_path, value):
    with pytest.raises(InvalidInput, match="delete-ratio-threshold"):
        Lake(str(tmp_path)).create_table("d.t", SCHEMA, properties={"compaction.delete-ratio-threshold": value})


# --- tables with a primary key ----------------------------------------------------------------------------------------

KEYED = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.int64()), pa.field("dt", pa.string())]
)
ENGINES = {
    "the newest row": {},
    "the newest row by a column": {"sequence.field": "n"},
    "the last values": {"merge-engine": "partial-update"},
    "sums": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "wide vectors": {"deletion-vectors.bitmap64": "true"},
    "a changelog": {"changelog-producer": "lookup"},
    "buckets that grow": {"bucket": "-1", "dynamic-bucket.target-row-num": "20"},
    "keys in files once": {"data-file.thin-mode": "true"},
}


def keyed(folder, **more):
    properties = VECTORS | {"bucket": "2"} | {name.replace("_", "-"): value for name, value in more.items()}
    return Lake(str(folder), fsync="false").create_table(
        "d.k", KEYED, format="paimon", partition_by=["dt"], primary_key=["id", "dt"], properties=properties
    )


def expected(rows, properties):
    """What comes of rows, in their order, by the rules of the engine."""
    found = {}
    for row in rows:
        key = row["id"], row["dt"]
        old = found.get(key)
        new = row["v"], row["n"]
        if old and "sequence.field" in properties and new[1] < old[1]:
            continue
        if old and properties.get("merge-engine") == "partial-update":
            new = tuple(o if v is None else v for v, o in zip(new, old, strict=True))
        if old and properties.get("merge-engine") == "aggregation":
            new = (old[0] if new[0] is None else new[0]), old[1] + new[1]
        found[key] = new
    return found


def held(table, **how):
    rows = table.scan(**how).to_arrow().to_pylist()
    found = {(r["id"], r["dt"]): (r["v"], r["n"]) for r in rows}
    assert len(found) == len(rows) == table.scan(**how).count()
    return found


@pytest.mark.drawn(3)
@pytest.mark.parametrize("properties", ENGINES.values(), ids=ENGINES)
def test_rows_of_a_key_against_a_dict(tmp_path, properties):
    table, chance, written, marked = keyed(tmp_path, **properties), np.random.default_rng(3), [], 0
    for turn in range(9 if IS_LONG else 4):
        made = [
            {"id": int(id), "v": None if chance.random() < 0.2 else f"{turn}.{at}", "n": int(chance.integers(-9, 9))}
            | {"dt": "ab"[id % 2]}
            for at, id in enumerate(chance.integers(0, 50, 2 if turn % 4 else 40))
        ]
        table.upsert(pa.Table.from_pylist(made, KEYED))
        written += made
        found = expected(written, properties)
        assert held(table) == found, turn
        wanted = {k: r for k, r in found.items() if r[1] > 0}
        assert held(table, where="n > 0") == wanted
        marked += sum(table.inspect.files()["deleted_row_count"].to_pylist())
    assert (marked > 0) == (properties != ENGINES["a changelog"])
    table.compact(full=True)
    assert held(table) == expected(written, properties)
    assert not any(table.inspect.files()["deleted_row_count"].to_pylist())


def test_a_write_marks_what_it_replaces_and_rewrites_none_of_it(tmp_path):
    table = keyed(tmp_path, bucket="1")
    table.upsert(pa.table({"id": range(100), "v": ["old"] * 100, "n": [1] * 100, "dt": ["a"] * 100}))
    (below,) = paths(table)
    made = table.upsert(pa.table({"id": [7, 200], "v": ["new"] * 2, "n": [2] * 2, "dt": ["a"] * 2}))
    assert (made.kind, table.current_snapshot().kind, table.current_snapshot().id) == ("append", "compact", made.id + 1)
    assert below in paths(table)
    assert sorted(
        zip(*(table.inspect.files()[n].to_pylist() for n in ("row_count", "deleted_row_count")), strict=True)
    ) == [
        (2, 0),
        (100, 1),
    ]
    assert len(held(table, snapshot_id=made.id)) == 100  # Rows of level 0 wait.
    assert held(table)[7, "a"] == ("new", 2)
    table.delete("id in (7, 8)")
    assert below in paths(table)
    assert len(held(table)) == 99
    table.upsert({"id": [7], "v": ["back"], "n": [3], "dt": ["a"]})
    assert (len(held(table)), held(table)[7, "a"]) == (100, ("back", 3))
    table.overwrite_partitions({"id": [1], "v": ["alone"], "n": [3], "dt": ["a"]})
    assert held(table) == {(1, "a"): ("alone", 3)}
    table.expire_snapshots(retain_last=1)
    assert list((tmp_path / "d.db/k/index").iterdir()) == []


@pytest.mark.parametrize("wide", WIDTHS.values(), ids=WIDTHS)
def test_parts_of_a_compaction_that_mark_rows_of_one_file_mark_all_of_them(tmp_path, wide):
    """New files without shared keys are taken one by one, and may be about rows of the same older file."""
    more = {"compaction.file-size": "1 b", "num-sorted-run.compaction-trigger": "9"}
    more |= {"deletion-vectors.bitmap64": str(wide).lower()}
    table = keyed(tmp_path, bucket="1", write_only="true", **more)
    table.upsert(pa.table({"id": range(100), "v": ["old"] * 100, "n": [1] * 100, "dt": ["a"] * 100}))
    table.compact(full=True)
    for turn in range(2):
        for start in (0, 20, 40):
            ids = [start + turn, start + 5]
            table.upsert(pa.table({"id": ids, "v": [f"new {turn}"] * 2, "n": [2] * 2, "dt": ["a"] * 2}))
        table.compact()
        found = held(table)
        assert sorted(id for (id, _), (v, _) in found.items() if v == f"new {turn}") == sorted(
            start + more for start in (0, 20, 40) for more in (turn, 5)
        )
        assert len(found) == 100
        files = table.inspect.files().to_pylist()
        assert [file["deleted_row_count"] for file in files if file["row_count"] == 100] == [6 + 3 * turn]


@pytest.mark.parametrize("target", [None, 1], ids=["a file for all", "large files stay"])
def test_vectors_of_one_data_file_become_one_wherever_they_lie(target):
    store, staged = MemoryFiles(), []
    for number, marked in enumerate([{"data-a": [1, 5]}, {"data-a": [5, 7], "data-b": [2]}, {"data-c": [3]}]):
        vectors = [bitmap.encode(np.array(positions), wide=number == 1) for positions in marked.values()]
        content, offsets = vector_file.emit(vectors)
        store.write(path := f"index/index-{number}", content)
        for of, vector, offset in zip(marked, vectors, offsets, strict=True):
            length = vector_file.length(vector)
            staged.append(plan._Vector(of, path, offset, length, len(marked[of]), len(content)))
    made, unused = plan._placed(store, [], staged, target)
    found, stays = {}, []
    for held, content in made:
        if content is None:
            stays.append(held[0].path)
        for file in held:
            data = store.read(file.path) if content is None else content
            positions = bitmap.decode(vector_file.take(data, file.offset, file.length, ""), "").tolist()
            assert file.of not in found
            assert len(positions) == file.cardinality
            assert bitmap.is_wide(data[file.offset :]) == (file.of != "data-c")
            found[file.of] = positions
    assert found == {"data-a": [1, 5, 7], "data-b": [2], "data-c": [3]}
    assert stays == ([] if target is None else ["index/index-2"])
    assert sorted(unused + stays) == [f"index/index-{number}" for number in range(3)]


def test_tables_that_are_write_only_wait_and_merge_on_read_does_not(tmp_path):
    rows = {"id": [1, 2], "v": ["a", "b"], "n": [1, 1], "dt": ["a", "a"]}
    hidden, seen = (
        keyed(tmp_path / "x", write_only="true"),
        keyed(tmp_path / "y", **{"write-only": "true", "deletion-vectors.merge-on-read": "true"}),
    )
    for table in (hidden, seen):
        table.upsert(rows)
        table.compact()
        table.upsert(rows | {"v": ["c", "d"]})
    assert [sorted(v for v, _ in held(table).values()) for table in (hidden, seen)] == [["a", "b"], ["c", "d"]]
    for table in (hidden, seen):
        table.compact()
        assert sorted(v for v, _ in held(table).values()) == ["c", "d"]


@pytest.mark.parametrize(
    "other",
    [
        lambda t: t.upsert({"id": [5], "v": ["theirs"], "n": [9], "dt": ["a"]}),
        lambda t: t.delete("id = 5"),
        lambda t: t.compact(full=True),
    ],
    ids=["upserts", "deletes", "compacts"],
)
def test_a_compaction_that_marks_loses_nothing_of_what_others_did_meanwhile(other):
    store = MemoryFiles()
    table = Table("t", store, dialect)
    fields = tuple(Field(i, f.name, from_arrow(f.type), f.nullable) for i, f in enumerate(KEYED))
    fields = tuple(Field(f.id, f.name, f.type, f.name not in ("id", "dt")) for f in fields)
    create(table, Schema(fields, primary_key=("id", "dt"), properties=VECTORS | {"bucket": "1", "write-only": "true"}))
    for start in (0, 5):
        table.upsert({"id": range(start, start + 10), "v": ["v"] * 10, "n": [start] * 10, "dt": ["a"] * 10})
        table.compact()
    table.upsert({"id": [4, 20], "v": ["mine"] * 2, "n": [7] * 2, "dt": ["a"] * 2})
    Table("t", Meanwhile(store, lambda: (other(table), table.compact())), dialect).compact()
    table.compact()
    rows = {r["id"]: r["v"] for r in table.scan().to_arrow().to_pylist()}
    assert len(rows) == table.scan().count() == table.scan().to_arrow().num_rows
    wanted = dict.fromkeys(range(15), "v") | {4: "mine", 20: "mine"}
    after = dict(rows)
    if after.get(5) == "theirs":
        wanted[5] = "theirs"
    if 5 not in after:
        del wanted[5]
    assert after == wanted


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"merge-engine": "first-row"}, "first-row"),
        ({"changelog-producer": "full-compaction"}, "full-compaction"),
    ],
)
def test_what_cannot_have_vectors_is_refused(tmp_path, more, says):
    with pytest.raises(InvalidInput, match=says):
        keyed(tmp_path, **more)


def in_memory(**more):
    """A table with a key in one bucket, whose sums show if a row is lost or counted twice; its store."""
    store = MemoryFiles()
    table = Table("t", store, dialect)
    fields = tuple(Field(i, f.name, from_arrow(f.type), f.name not in ("id", "dt")) for i, f in enumerate(KEYED))
    given = VECTORS | {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"} | more
    create(table, Schema(fields, primary_key=("id", "dt"), partitioning=identity("dt"), properties=given))
    return store, table


def sums(table):
    return {row["id"]: row["n"] for row in table.scan().to_arrow().to_pylist()}


def ones(*ids, dt="a"):
    return pa.table({"id": ids, "v": ["v"] * len(ids), "n": [1] * len(ids), "dt": [dt] * len(ids)}, KEYED)


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_a_write_asked_for_again_shows_its_rows_once_whatever_call_failed(after):
    store, table = in_memory()
    table.upsert(ones(1, 2))
    Table("t", counting := NthCallFails(store, 0, after), dialect).upsert(ones(2, 3), id="once")
    assert counting.made.total() > 15
    for n, kind in faults(counting.made, after):
        store, table = in_memory()
        table.upsert(ones(1, 2))
        failing = NthCallFails(store, n, after, kind=kind)
        try:
            Table("t", failing, dialect).upsert(ones(2, 3), id="once")
        except (StoreError, CommitError):
            assert sums(table) in ({1: 1, 2: 1}, {1: 1, 2: 2, 3: 1}), failing.failed
        else:
            assert sums(table) == {1: 1, 2: 2, 3: 1}, (
                failing.failed
            )  # A call that fails once keeps no row from readers.
        made = table.upsert(ones(2, 3), id="once")
        assert (made.kind, made.operation_id) == ("append", "once"), failing.failed
        assert sums(table) == {1: 1, 2: 2, 3: 1}, failing.failed
        asked = [snapshot.operation_id for snapshot in table.snapshots()]
        assert (asked.count("once"), asked.count("once/compact"), len(asked)) == (1, 1, 4), failing.failed
        assert table.compact(full=False) is None
        table.remove_orphan_files(AT_ONCE)
        assert sums(table) == {1: 1, 2: 2, 3: 1}, failing.failed


class Dies(Watched):
    """A store that answers nothing from its n-th call on, as to a process that was killed."""

    def __init__(self, store, n):
        self._store, self._left = store, n

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*arguments, **how):
            self._left -= 1
            if self._left <= 0:
                raise KeyboardInterrupt
            return found(*arguments, **how)

        return call


WRITES = {
    "an upsert": lambda t: t.upsert(ones(2, 3), id="once"),
    "a stream": lambda t: t.stream("s").write_batch(ones(2, 3), 7),
}


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # A process that is killed takes its threads.
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_who_was_killed_between_the_two_snapshots_and_asks_again_finishes(write):
    waited = 0
    for n in itertools.count(1, 1 if IS_LONG else 5):
        store, table = in_memory()
        table.upsert(ones(1, 2))
        try:
            write(Table("t", Dies(store, n), dialect))
        except KeyboardInterrupt:
            kinds = [snapshot.kind for snapshot in table.snapshots()]
            waited += kinds[2:] == ["append"]
            assert sums(table) == ({1: 1, 2: 2, 3: 1} if kinds[2:] == ["append", "compact"] else {1: 1, 2: 1}), n
            write(table)
            write(table)
            assert sums(table) == {1: 1, 2: 2, 3: 1}, n
            assert [snapshot.kind for snapshot in table.snapshots()] == ["append", "compact"] * 2, n
        else:
            break
    assert waited > (2 if IS_LONG else 0)


def test_rows_whose_compaction_failed_are_named_and_the_next_write_shows_them(monkeypatch, caplog):
    _, table = in_memory()
    table.upsert(ones(1))

    def fails(self, store, tasks):
        raise StoreError("no space")

    monkeypatch.setattr(ArrowEngine, "rewrite", fails)
    made = table.upsert(ones(1, 2))
    table.upsert(ones(9, dt="b"))
    assert f"rows of snapshot {made.id} are written and no reader sees them yet" in caplog.text
    assert "compact() at once" in caplog.text
    assert sums(table) == {1: 1}
    table.alter().set_properties({"deletion-vectors.merge-on-read": "true"}).commit()
    assert sums(table) == {1: 2, 2: 1, 9: 1}  # A reader need not wait.
    table.alter().set_properties({"deletion-vectors.merge-on-read": "false"}).commit()
    monkeypatch.undo()
    table.upsert(ones(1))
    assert sums(table) == {1: 3, 2: 1}
    table.compact()
    assert sums(table) == {1: 3, 2: 1, 9: 1}


@pytest.mark.parametrize("crossing", [False, True], ids=["keys stay", "keys change partitions"])
def test_changes_by_row_see_rows_that_wait(tmp_path, crossing):
    table = Lake(str(tmp_path)).create_table(
        "d.t",
        KEYED,
        partition_by=["dt"],
        primary_key=["id"] if crossing else ["id", "dt"],
        properties=VECTORS | {"write-only": "true"},
    )
    table.upsert(ones(1, 2, 3, 4))
    table.compact()
    table.upsert(pa.table({"id": [1, 2, 3, 5], "v": ["new"] * 4, "n": [10] * 4, "dt": ["a"] * 4}, KEYED))
    assert sums(table) == {1: 1, 2: 1, 3: 1, 4: 1}
    table.update({"n": "n + 1"}, where="id in (1, 4)")
    table.delete("n = 10 and id = 2")
    merge = table.merge_into(ones(3, 5, 6), on="t.id = s.id and t.dt = s.dt")
    merge.when_matched("t.n = 10").update({"n": "t.n + s.n"}).when_not_matched().insert_all().merge()
    table.compact()
    assert sums(table) == {1: 11, 3: 11, 4: 2, 5: 11, 6: 1}
    if crossing:
        table.upsert(ones(1, dt="b"))
        table.upsert(ones(1, dt="c"))
        table.compact()
        assert sums(table) == {1: 1, 3: 11, 4: 2, 5: 11, 6: 1}
        assert table.scan().count() == 5


def test_a_table_with_a_key_has_vectors_from_the_first_or_never(tmp_path):
    with pytest.raises(InvalidInput, match="make a new table"):
        keyed(tmp_path).alter().set_properties({"deletion-vectors.enabled": "false"}).commit()
