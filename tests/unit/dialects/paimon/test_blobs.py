"""BLOB columns of Paimon tables, whose values are in blob files: a table of pypaimon, our own, and files that are damaged."""

import datetime
import json
import zlib
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat import Lake
from lakeformat.codec import varint
from lakeformat.dialects.paimon import tracking
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.engines import worker
from lakeformat.engines.files import blob
from lakeformat.errors import CorruptFile, CorruptTable, InvalidInput, UnsupportedFeature
from lakeformat.maintenance import sweep
from lakeformat.model.schema import Field, Kind, scalar
from lakeformat.model.work import BlobTask
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table
from tests import doors
from tests.draw import IS_LONG
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
        root = f"{doors.store(table).root}/"
        assert uri.startswith(root)
        assert doors.store(table).read(uri.removeprefix(root))[offset : offset + size] == LAST[id]


def test_values_of_other_places_are_refused_by_name():
    with pytest.raises(UnsupportedFeature, match=r"blob-descriptor-field=picture.*blob-as-descriptor"):
        golden(**{"blob-descriptor-field": "picture"}).scan().to_arrow()
    with pytest.raises(UnsupportedFeature, match="blob-view-field"):
        golden(**{"blob-view-field": "picture"}).scan().to_arrow()


def test_a_table_of_pypaimon_goes_on():
    table = golden()
    pictures, sounds = dict(LAST), dict(SOUNDS)
    new = table.scan(where="id IN (1, 7)").to_arrow()
    table.append(new.set_column(new.column_names.index("id"), "id", pa.array([20, 21], pa.int64())))
    pictures |= {20: b"one", 21: b"seven"}
    sounds |= {20: None, 21: b"re"}
    table.update({"name": "'x'"}, where="id = 20")
    table.compact(full=True)
    assert (column(table, "picture"), column(table, "sound")) == (pictures, sounds)
    assert column(table, "name")[20] == "x"
    assert sorted(table.scan(["_ROW_ID"]).to_arrow()["_ROW_ID"].to_pylist()) == list(range(len(pictures)))
    with pytest.raises(UnsupportedFeature, match=r"deletion-vectors\.enabled"):
        table.delete("id = 0")
    table.expire_snapshots(retain_last=1)
    assert table.remove_orphan_files(older_than=AT_ONCE) == []
    assert sweep.missing(doors.store(table), doors.view(table)) == []
    assert (column(table, "picture"), column(table, "sound")) == (pictures, sounds)


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
    path = next(e.path for e in doors.store(table).list("") if e.path.endswith("-1.blob") and "dt=x" in e.path)
    doors.store(table).delete([path])
    assert sweep.missing(doors.store(table), doors.view(table)) == [path]
    with pytest.raises(CorruptFile, match=f"{path}.*does not exist"):
        table.scan().to_arrow()
    assert len(table.scan(columns=["id", "name"]).to_arrow()) == 11


def test_rows_that_no_data_file_has_are_an_error():
    entries = doors.view(golden()).files().each().entries
    lone = entries.filter(pc.ends_with(entries["_FILE_NAME"], ".blob"))
    with pytest.raises(CorruptTable, match="that no one data file has"):
        tracking.by_row_id(lone, "t")


# --- writes -----------------------------------------------------------------------------------------------------------

AT_ONCE = datetime.timedelta(days=-1)
OPTIONS = {
    "row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true",
    "blob-field": "picture,sound", "blob.target-file-size": "1 kb",
}  # fmt: skip
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("picture", pa.binary()),
        ("name", pa.string()),
        ("sound", pa.large_binary()),
        ("dt", pa.string()),
    ]
)


def made(tmp_path, **options: str) -> Table:
    given = OPTIONS | {key.replace("_", "-"): value for key, value in options.items()}
    return Lake(tmp_path).create_table("db.t", COLUMNS, format="paimon", partition_by=["dt"], properties=given)


def rows(low: int, high: int, dt: str = "x") -> pa.Table:
    """Pictures of other sizes, some NULL and some empty; sounds that are short."""
    found = [
        {"id": i, "picture": None if i % 5 == 4 else bytes([i % 251]) * (i % 7 * 90), "name": f"n{i}", "sound": b"%d" % i, "dt": dt}
        for i in range(low, high)
    ]  # fmt: skip
    return pa.Table.from_pylist(found, COLUMNS)


def seen(table: Table) -> dict[int, tuple]:
    found = table.scan().to_arrow()
    assert found.schema.field("sound").type == pa.binary()
    return {row["id"]: tuple(row.values()) for row in found.to_pylist()}


def test_whatever_changes_beside_them_blobs_stay_with_their_rows(tmp_path):
    """Random verbs beside a dict. After each the rows and their ids are as they should be; files are neither lost nor left."""
    for seed in range(3 if IS_LONG else 1):
        random, table, model = Random(seed), made(tmp_path / str(seed), **{"target-file-size": "1 kb"}), {}
        high, rolled_back = 0, False
        for step in range(14):
            cut = random.randrange(max(high, 1))
            match random.choice(
                ["append", "append", "update", "paint", "merge", "delete", "compact", "overwrite", "expire", "rollback"]
            ):
                case "append":
                    low, high = high, high + random.randrange(1, 60)
                    new = pa.concat_tables([rows(low, high, "x"), rows(high, high + 2, "y")])
                    high += 2
                    table.append(new)
                    model |= {row["id"]: tuple(row.values()) for row in new.to_pylist()}
                case "update":
                    table.update({"name": "concat(name, '!')"}, where=f"id >= {cut}")
                    model |= {i: (*row[:2], row[2] + "!", *row[3:]) for i, row in model.items() if i >= cut}
                case "paint":
                    table.update({"picture": "concat(sound, X'00')"}, where=f"id % 4 = {cut % 4}")
                    model |= {i: (i, row[3] + b"\0", *row[2:]) for i, row in model.items() if i % 4 == cut % 4}
                case "merge" if high:
                    new = pa.concat_tables([rows(cut, cut + 1), rows(high, high + 1)])
                    values = {"name": "'merged'"} | ({"sound": "s.picture"} if cut % 2 else {})
                    merge = table.merge_into(new, on="t.id = s.id").when_matched().update(values)
                    merge.when_not_matched().insert_all().merge()
                    for row in new.to_pylist():
                        before = model.get(row["id"])
                        sound = row["picture"] if cut % 2 else before and before[3]
                        new_row = (*before[:2], "merged", sound, before[4]) if before else tuple(row.values())
                        model[row["id"]] = new_row
                    high += 1
                case "delete":
                    table.delete(f"id = {cut}")
                    model.pop(cut, None)
                case "compact":
                    table.compact(full=True)
                case "overwrite":
                    new = rows(high, high + 3, "y")
                    high += 3
                    table.overwrite_partitions(new)
                    model = {i: row for i, row in model.items() if row[4] != "y"}
                    model |= {row["id"]: tuple(row.values()) for row in new.to_pylist()}
                case "expire":
                    table.expire_snapshots(retain_last=1)
                case "rollback" if (version := table.current_snapshot()) is not None:
                    table.append(rows(10_000, 10_003))
                    table.rollback_to(snapshot_id=version.id)
                    rolled_back = True
            assert seen(table) == model, (seed, step)
            assert table.scan().count() == len(model)
            ids = table.scan(["_ROW_ID"]).to_arrow()["_ROW_ID"].to_pylist()
            assert len(set(ids)) == len(ids)
            assert sweep.missing(doors.store(table), doors.view(table)) == []
        table.expire_snapshots(retain_last=1)
        # Files of a snapshot that was rolled back are left to the sweep.
        assert table.remove_orphan_files(older_than=AT_ONCE) == [] or rolled_back
        live = {file["path"] for file in table.inspect.files().to_pylist()}
        assert any(path.endswith(".blob") for path in live)
        assert {file.path for file in doors.store(table).list("") if file.path.endswith((".blob", ".parquet"))} == live


def test_the_blob_files_of_a_data_file_have_its_row_ids(tmp_path):
    table = made(tmp_path, **{"blob.target-file-size": "2 kb"})
    table.append(pa.concat_tables([rows(0, 40), rows(40, 50, "y")]))
    table.append(rows(50, 60))
    entries = doors.view(table).files().each().entries.to_pylist()
    ranges: dict[str, list[tuple[int, int]]] = {}
    for entry in entries:
        (name,) = entry["_WRITE_COLS"] if entry["_FILE_NAME"].endswith(".blob") else ["rest"]
        ranges.setdefault(name, []).append((entry["_FIRST_ROW_ID"], entry["_ROW_COUNT"]))
    assert ranges["rest"] == [(0, 40), (40, 10), (50, 10)]
    assert ranges["sound"] == ranges["rest"]
    assert len(ranges["picture"]) > 5
    for first, count in ranges["rest"]:
        own = sorted((start, size) for start, size in ranges["picture"] if first <= start < first + count)
        assert [start for start, _ in own] == [first, *(start + size for start, size in own[:-1])]
        assert sum(size for _, size in own) == count
    assert all(entry["_VALUE_STATS_COLS"] == entry["_WRITE_COLS"] for entry in entries)


def test_an_update_writes_the_new_values_alone(tmp_path):
    """The other rows keep those of older files, which are not read."""
    table = made(tmp_path)
    table.append(rows(0, 40))
    before = {file["path"] for file in table.inspect.files().to_pylist()}
    read_later = {path: doors.store(table).read(path) for path in before if path.endswith(".blob")}
    doors.store(table).delete(read_later)
    table.update({"picture": "X'00ff'", "name": "'new'"}, where="id IN (3, 9)")
    table.update({"sound": "NULL"}, where="id = 9")
    table.merge_into(rows(5, 6), on="t.id = s.id").when_matched().update({"picture": "s.sound"}).merge()
    doors.store(table).write_many(read_later)
    wanted = {row["id"]: tuple(row.values()) for row in rows(0, 40).to_pylist()}
    wanted |= {
        3: (3, b"\x00\xff", "new", b"3", "x"),
        9: (9, b"\x00\xff", "new", None, "x"),
        5: (5, b"5", *wanted[5][2:]),
    }
    assert seen(table) == wanted
    new = [file for file in table.inspect.files().to_pylist() if file["path"] not in before]
    assert sorted(file["path"].rpartition(".")[2] for file in new) == ["blob", "blob", "blob", "parquet"]
    assert all(file["row_count"] == 40 for file in new)
    assert all(file["size_bytes"] < 120 for file in new if file["path"].endswith(".blob"))
    table.update({"picture": "concat(picture, sound)"}, where="id = 3")
    assert seen(table)[3][1] == b"\x00\xff3"
    found = table.changes(4, 5, columns=["id", "picture"], where="id < 4").to_arrow().to_pylist()
    assert [row["picture"] for row in found if row["id"] == 3] == [b"\x00\xff", b"\x00\xff3"]


def test_descriptors_are_written_as_the_bytes_that_they_name(tmp_path):
    source = made(tmp_path / "a")
    source.append(rows(0, 12))
    whole = tmp_path / "whole.bin"
    whole.write_bytes(b"0123456789" * 300_000)
    source.alter().set_properties({"blob-as-descriptor": "true"}).commit()
    found = source.scan().to_arrow()
    target = made(tmp_path / "b", **{"blob-as-descriptor": "true"})
    target.append(found)
    ends = [descriptor(f"file://{whole}", 1, 2_000_001), descriptor(f"file://{whole}", 2_999_998, -1), b"as they are"]
    beside = pa.Table.from_pylist([{"id": 100 + i, "picture": value} for i, value in enumerate(ends)], COLUMNS)
    target.append(beside)
    target.alter().set_properties({"blob-as-descriptor": "false"}).commit()
    wanted = {row["id"]: tuple(row.values()) for row in rows(0, 12).to_pylist()}
    taken = seen(target)
    assert {i: row for i, row in taken.items() if i < 100} == wanted
    assert [taken[100 + i][1] for i in range(3)] == [whole.read_bytes()[1:2_000_002], b"89", b"as they are"]


def descriptor(uri: str, offset: int, length: int) -> bytes:
    ends = b"".join(number.to_bytes(8, "little", signed=True) for number in (offset, length))
    return b"\x02CSEDBOLB" + len(uri).to_bytes(4, "little") + uri.encode() + ends


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (descriptor("file:///no/such/file", 0, 1), "names file:///no/such/file, which does not exist"),
        (descriptor("file://HERE/a", 0, 9), "names bytes 0 to 9 of file://.*/a, which has 8"),
        (descriptor("file://HERE/a", 0, 8)[:-1], "damaged"),
    ],
)
def test_descriptors_that_name_nothing_write_nothing(tmp_path, value, says):
    (tmp_path / "a").write_bytes(b"12345678")
    start, rest = value[:9], value[13:]
    here = rest.replace(b"HERE", str(tmp_path).encode())
    length = int.from_bytes(value[9:13], "little") + len(here) - len(rest)
    table = made(tmp_path, **{"blob-as-descriptor": "true"})
    before = {file.path for file in doors.store(table).list("")}
    data = pa.Table.from_pylist(
        [{"id": 1, "picture": b"fine"}, {"id": 2, "picture": start + length.to_bytes(4, "little") + here}], COLUMNS
    )
    with pytest.raises(InvalidInput, match=f"'picture'.*{says}"):
        table.append(data)
    assert {file.path for file in doors.store(table).list("")} == before


def test_what_is_no_blob_column_is_refused_by_name(tmp_path):
    for options, error, says in (
        ({"blob-field": "pic"}, InvalidInput, "names 'pic', which is not a column"),
        ({"blob-field": "name"}, InvalidInput, "'name', of type string"),
        ({"data-evolution.enabled": "false"}, InvalidInput, r"blob-field=picture,sound needs .*data-evolution\.enabled=true"),
        ({"blob-descriptor-field": "sound"}, UnsupportedFeature, "blob-descriptor-field=sound"),
        ({"blob-external-storage-field": "sound"}, UnsupportedFeature, "blob-external-storage-field=sound"),
    ):  # fmt: skip
        with pytest.raises(error, match=says):
            made(tmp_path, **options)
    lake = Lake(tmp_path)
    with pytest.raises(InvalidInput, match="every column is in blob-field"):
        lake.create_table("db.t", pa.schema([("picture", pa.binary()), ("sound", pa.binary())]), properties=OPTIONS)
    table = made(tmp_path)
    table.append(rows(0, 3))
    for change, says in (
        (lambda: table.alter().rename_column("sound", "noise").commit(), "rename BLOB column 'sound'"),
        (lambda: table.alter().set_properties({"blob-field": "picture"}).commit(), "change blob-field=picture"),
        (lambda: table.compact(sort_by=["id"]), "data evolution"),
        (lambda: lake.convert("db.t", to="iceberg"), "data.evolution"),
    ):  # fmt: skip
        with pytest.raises(UnsupportedFeature, match=says):
            change()
    assert seen(table) == {row["id"]: tuple(row.values()) for row in rows(0, 3).to_pylist()}


def test_blob_columns_are_added_and_dropped(tmp_path):
    table = made(tmp_path)
    table.append(rows(0, 3))
    table.alter().add_column("video", "binary").set_properties({"blob-field": "picture,sound,video"}).commit()
    assert column(table, "video") == {0: None, 1: None, 2: None}
    table.append(rows(3, 4).append_column("video", pa.array([b"film"])))
    table.alter().drop_column("sound").commit()
    assert table.schema.properties["blob-field"] == "picture,video"
    types = {field["name"]: field["type"] for field in json.loads(doors.store(table).read("schema/schema-2"))["fields"]}
    assert types["video"] == types["picture"] == "BLOB"
    table.compact(full=True)
    assert column(table, "video") == {0: None, 1: None, 2: None, 3: b"film"}
    assert list(column(table, "picture").values()) == rows(0, 4)["picture"].to_pylist()
    table.alter().drop_column("picture").drop_column("video").commit()
    assert "blob-field" not in table.schema.properties
    table.append(rows(4, 5).select(["id", "name", "dt"]))
    assert table.scan().to_arrow().column_names == ["id", "name", "dt"]


def test_sql_makes_them_and_fills_them(tmp_path):
    lake = Lake(tmp_path)
    options = ", ".join(f"'{key}' = '{value}'" for key, value in (OPTIONS | {"blob-field": "picture"}).items())
    lake.sql(f"CREATE TABLE db.t (id BIGINT, picture BINARY) USING paimon TBLPROPERTIES ({options})")
    lake.sql("INSERT INTO db.t VALUES (1, X'00ff'), (2, NULL)")
    lake.sql("DELETE FROM db.t WHERE picture IS NULL")
    assert lake.sql("SELECT * FROM db.t").to_arrow().to_pylist() == [{"id": 1, "picture": b"\x00\xff"}]
    assert [file.path.rpartition(".")[2] for file in doors.store(lake.table("db.t")).list("bucket-0")].count(
        "blob"
    ) == 1


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
    firsts = tuple(first for first, _ in files.values())
    task = BlobTask(tuple(files), counts, firsts, (Field(1, "v", scalar(Kind.BYTES)),), 100, count, **how)
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
    assert varint.write_differences(np.array(numbers, np.int64)) == differences(numbers)


def test_batches_hold_so_many_bytes(monkeypatch):
    monkeypatch.setattr(blob, "CHUNK_BYTES", 100)
    batches = read({"a.blob": (100, emitted(b"a" * 50, b"b" * 30, None, b"c" * 200, b"d"))}, 5)
    assert [batch.num_rows for batch in batches] == [1, 2, 1, 1]
    assert values(batches) == [b"a" * 50, b"b" * 30, None, b"c" * 200, b"d"]


GOOD = emitted(b"hello", None, b"world")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes are not a blob file"),
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
    task = BlobTask(("a.blob",), (2,), (0,), (Field(1, "v", scalar(Kind.BYTES)),), 0, 2)
    with pytest.raises(CorruptFile, match=r"a\.blob: the file holds 3 rows, its table says 2"):
        list(worker.read(store, task))


@pytest.mark.parametrize("cut", range(len(GOOD)))
def test_no_file_that_was_cut_short_is_read(cut):
    with pytest.raises((CorruptFile, UnsupportedFeature)):
        read({"a.blob": (100, GOOD[:cut])}, 3)
