"""Deletion vectors of Paimon tables: index files written here byte by byte, as Java does, and read by lakeformat."""

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap, BitMap64

from lakeformat import CorruptFile, Lake, UnsupportedFeature
from lakeformat.codec import avro
from lakeformat.dialects.paimon import manifest

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
        file.write(avro.encode(entries, manifest.INDEX_SCHEMA))
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


def test_where_a_vector_does_not_tell_how_many_rows_it_takes_they_are_counted(table):
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
        live |= set(range(start, start + 5_000)) - {start + each for each in gone[path]}
    mark(table, [(path, positions, ()) for path, positions in gone.items() if positions])
    assert ids(table) == sorted(live)
    assert table.scan(where="id >= 12345").count() == sum(each >= 12345 for each in live)


def test_tables_with_vectors_are_read_and_not_written(tmp_path):
    table = Lake(str(tmp_path))
    with pytest.raises(UnsupportedFeature, match="deletion vectors"):
        table.create_table("d.t", SCHEMA, format="paimon", properties={"deletion-vectors.enabled": "true"})
