"""BLOB columns of Paimon tables, whose values are in blob files: a table of pypaimon, and files that are damaged."""

import json
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat import Lake
from lakeformat.codec import varint
from lakeformat.dialects.paimon import tracking
from lakeformat.engines import worker
from lakeformat.engines.files import blob
from lakeformat.errors import CorruptFile, CorruptTable, UnsupportedFeature
from lakeformat.lake import Paimon
from lakeformat.maintenance import sweep
from lakeformat.model.schema import Field, Kind, scalar
from lakeformat.model.work import BlobRows, ReadTask
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table
from tests.golden.archives import unzipped

PICTURES = {i: bytes([i]) * (200 * i + 1) for i in range(9)} | {2: None, 3: b""}
SECOND = PICTURES | {1: b"one", 4: None}
LAST = SECOND | {7: b"seven", 9: b"nine", 10: None}
SOUNDS = dict.fromkeys(range(11)) | {0: b"do", 7: b"re", 9: b"la"}


def golden(**options: str) -> Table:
    """Of pypaimon: nine rows in two partitions, blob files of about 1 kB, `picture` set for ids 1 and 4, `name` for 1 and 7, a
    column `sound` added, two rows appended, `sound` set for 0 and 7, `picture` for 7."""
    store = unzipped("evolution/blobs.zip")
    for path in ("schema/schema-0", "schema/schema-1"):
        document = json.loads(store.read(path))
        store.write(path, json.dumps(document | {"options": document["options"] | options}).encode())
    return Table("t", store, Paimon())


def column(table: Table, name: str, **how) -> dict[int, bytes | None]:
    found = table.scan(columns=["id", name], **how).to_arrow()
    return dict(zip(found["id"].to_pylist(), found[name].to_pylist(), strict=True))


def test_each_row_has_the_newest_of_its_values():
    table = golden()
    assert column(table, "picture") == LAST
    assert column(table, "sound") == SOUNDS
    assert column(table, "picture", snapshot_id=1) == PICTURES
    assert column(table, "picture", snapshot_id=3) == SECOND
    assert column(table, "name")[7] == "N7"
    assert table.scan().to_arrow().schema.field("picture").type == pa.binary()
    assert table.scan().count() == len(LAST)
    assert column(table, "picture", where="picture = X'6f6e65'") == {1: b"one"}
    assert table.scan(columns=["sound"]).to_arrow()["sound"].null_count == 8
    (partition,) = [each for each in table.inspect.partitions().to_pylist() if each["dt"] == "x"]
    assert (partition["row_count"], partition["file_count"]) == (6, 6)


def test_changes_are_the_values_before_and_after():
    found = golden().changes(1, 2, columns=["id", "picture"], where="id IN (1, 4)").to_arrow().to_pylist()
    assert [(each["_row_kind"], each["id"], each["picture"]) for each in found] == [
        ("-D", 1, PICTURES[1]), ("-D", 4, PICTURES[4]), ("+I", 1, b"one"), ("+I", 4, None),
    ]  # fmt: skip


def test_descriptors_say_where_the_bytes_are():
    table = golden(**{"blob-as-descriptor": "true"})
    for id, descriptor in column(table, "picture").items():
        if descriptor is None:
            assert LAST[id] is None
            continue
        length = int.from_bytes(descriptor[9:13], "little")
        uri = descriptor[13 : 13 + length].decode()
        offset, size = np.frombuffer(descriptor[13 + length :], "<i8").tolist()
        assert descriptor[:9] == b"\x02CSEDBOLB"
        root = f"{table._store.root}/"
        assert uri.startswith(root)
        assert table._store.read(uri.removeprefix(root))[offset : offset + size] == LAST[id]


def test_values_of_other_places_are_refused_by_name():
    with pytest.raises(UnsupportedFeature, match=r"blob-descriptor-field=picture.*blob-as-descriptor"):
        golden(**{"blob-descriptor-field": "picture"}).scan().to_arrow()
    with pytest.raises(UnsupportedFeature, match="blob-view-field"):
        golden(**{"blob-view-field": "picture"}).scan().to_arrow()


def test_blobs_are_not_written():
    table = golden()
    row = table.scan(where="id = 0").to_arrow()
    before = {each.path for each in table._store.list("")}
    for verb in (
        lambda: table.append(row),
        lambda: table.delete("id = 0"),
        lambda: table.update({"name": "'x'"}),
        lambda: table.compact(),
        lambda: table.alter().add_column("x", "int").commit(),
    ):
        with pytest.raises(UnsupportedFeature, match="blob-field=picture,sound"):
            verb()
    assert {each.path for each in table._store.list("")} == before


def test_queries_read_them(tmp_path):
    store = unzipped("evolution/blobs.zip")
    for each in store.list(""):
        place = tmp_path / "db.db/t" / each.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(store.read(each.path))
    lake = Lake(str(tmp_path))
    found = lake.sql("SELECT id, picture FROM db.t WHERE id IN (1, 9) ORDER BY id").to_arrow()
    assert found["picture"].to_pylist() == [b"one", b"nine"]
    assert lake.sql("SELECT count(*) AS n FROM db.t WHERE picture IS NULL").to_arrow()["n"].to_pylist() == [3]


def test_a_lost_blob_file_is_missing_and_named():
    table = golden()
    path = next(e.path for e in table._store.list("") if e.path.endswith("-1.blob") and "dt=x" in e.path)
    table._store.delete([path])
    assert sweep.missing(table._store, table._view()) == [path]
    with pytest.raises(CorruptFile, match=f"{path}.*is not there"):
        table.scan().to_arrow()
    assert len(table.scan(columns=["id", "name"]).to_arrow()) == 11


def test_rows_that_no_data_file_has_are_an_error():
    entries = golden()._view().files().each().entries
    lone = entries.filter(pc.ends_with(entries["_FILE_NAME"], ".blob"))
    with pytest.raises(CorruptTable, match="that no one data file has"):
        tracking.by_row_id(lone, "t")


# --- files ------------------------------------------------------------------------------------------------------------


def emitted(*values: bytes | int | None) -> bytes:
    """A blob file: None is NULL, -2 the value of an older file."""
    data, lengths = b"", []
    for value in values:
        if not isinstance(value, bytes):
            lengths.append(-1 if value is None else value)
            continue
        whole = (1481511375).to_bytes(4, "little") + value
        whole += (len(value) + 16).to_bytes(8, "little")
        data += whole + zlib.crc32(whole).to_bytes(4, "little")
        lengths.append(len(value) + 16)
    index = differences(lengths)
    return data + index + len(index).to_bytes(4, "little") + b"\x01"


def differences(numbers: list[int]) -> bytes:
    steps = [b - a for a, b in zip([0, *numbers], numbers, strict=False)]
    return b"".join(varint.write(step << 1 if step >= 0 else (-step << 1) - 1) for step in steps)


def read(files: dict[str, tuple[int, bytes]], count: int, batch_rows: int = 1 << 17, **how) -> list[pa.RecordBatch]:
    """Of rows 100 on, from files (first row id, content), the newest first."""
    store = MemoryFiles("file:/t")
    store.write_many({path: data for path, (_, data) in files.items()})
    counts = tuple(len(blob.File(store.open(path), path).lengths) for path in files)
    task = ReadTask(
        tuple(files), counts, counts, "blob", (Field(1, "v", scalar(Kind.BYTES)),),
        blobs=BlobRows(100, count, tuple(first for first, _ in files.values()), **how),
    )  # fmt: skip
    return list(worker.read(store, task, batch_rows))


def values(batches: list[pa.RecordBatch]) -> list[bytes | None]:
    return [value for batch in batches for value in batch.column(0).to_pylist()]


VALUE = st.one_of(st.none(), st.just(-2), st.binary(max_size=40))


@given(st.data(), st.integers(1, 12), st.integers(1, 5))
def test_any_files_give_each_row_its_newest_value(data, count, batch_rows):
    files, wanted = {}, [-2] * count
    for i in range(data.draw(st.integers(1, 4))):
        first = data.draw(st.integers(0, count - 1))
        held = data.draw(st.lists(VALUE, min_size=1, max_size=count - first))
        files[f"{i}.blob"] = (100 + first, emitted(*held))
        for place, value in enumerate(held, first):
            wanted[place] = value if wanted[place] == -2 else wanted[place]
    batches = read(files, count, batch_rows)
    assert values(batches) == [None if value == -2 else value for value in wanted]
    assert all(batch.num_rows <= batch_rows for batch in batches)


@given(st.lists(st.integers(-(2**61), 2**61)))
def test_an_index_of_any_lengths_is_read(numbers):
    assert varint.read_differences(differences(numbers)).tolist() == numbers


def test_batches_hold_so_many_bytes(monkeypatch):
    monkeypatch.setattr(blob, "CHUNK_BYTES", 100)
    batches = read({"a.blob": (100, emitted(b"a" * 50, b"b" * 30, None, b"c" * 200, b"d"))}, 5)
    assert [batch.num_rows for batch in batches] == [1, 2, 1, 1]
    assert values(batches) == [b"a" * 50, b"b" * 30, None, b"c" * 200, b"d"]


GOOD = emitted(b"hello", None, b"world")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes are no blob file"),
        (GOOD[:-1] + b"\x02", "version 2"),
        (GOOD[:6] + b"?" + GOOD[7:], "value at byte 0 is damaged"),
        (b"?" + GOOD[1:], "value at byte 0 is damaged"),
        (GOOD[1:], "does not fit"),
        (GOOD[:-5] + (10**6).to_bytes(4, "little") + b"\x01", "index of the blob file is damaged"),
        (GOOD[:-6] + b"\xff" + GOOD[-5:], "index of the blob file is damaged"),
        (emitted(-3), "does not fit"),
    ],
)
def test_a_damaged_file_is_named(data, says):
    with pytest.raises((CorruptFile, UnsupportedFeature), match=rf"a\.blob.*{says}"):
        read({"a.blob": (100, data)}, 3)


def test_a_file_of_another_number_of_rows_is_an_error():
    store = MemoryFiles("file:/t")
    store.write("a.blob", GOOD)
    task = ReadTask(("a.blob",), (2,), (1,), "blob", (Field(1, "v", scalar(Kind.BYTES)),), blobs=BlobRows(0, 2, (0,)))
    with pytest.raises(CorruptFile, match=r"a\.blob: the file holds 3 rows, its table says 2"):
        list(worker.read(store, task))


@pytest.mark.parametrize("cut", range(len(GOOD)))
def test_no_file_that_was_cut_short_is_read(cut):
    with pytest.raises((CorruptFile, UnsupportedFeature)):
        read({"a.blob": (100, GOOD[:cut])}, 3)
