"""Global indexes of Paimon tables: what they prune, and what they must not."""

import datetime
import io
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake
from lakeformat.codec.paimon import btree_index
from lakeformat.commit import commit
from lakeformat.dialects.paimon import global_index
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.engines.choose import engine_for
from lakeformat.errors import Conflict, CorruptFile, UnsupportedFeature
from lakeformat.model.operation import Request
from lakeformat.model.predicate import ALWAYS
from lakeformat.model.schema import Kind, scalar
from lakeformat.table import Table
from lakeformat.verbs import global_index as verb
from lakeformat.verbs.change import Change
from tests import doors
from tests.golden.archives import unzipped

# As pypaimon wrote it: six files of 100 rows with B-trees of id, name (several for the rows of a file, some NULL), day (with a
# bloom filter) and n, and bitmaps of m; then one more file, which no index covers.
ROWS = [
    {
        "id": i * 7919 % 1000, "name": None if i % 10 == 3 else f"n{i * 31 % 500:03}",
        "day": datetime.date(1970, 1, 1) + datetime.timedelta(days=i % 365), "n": i % 50, "m": i % 7,
        "dt": "xyxyxyx"[i // 100],
    }
    for i in range(700)
]  # fmt: skip


def golden(**options: str) -> Table:
    store = unzipped("evolution/indexed.zip")
    document = json.loads(store.read("schema/schema-0"))
    given = {key.replace("_", "-"): value for key, value in options.items()}
    store.write("schema/schema-0", json.dumps(document | {"options": document["options"] | given}).encode())
    return Table("t", store, Paimon())


def ids(table: Table, where: str) -> list[int]:
    return sorted(table.scan(["id"], where=where).to_arrow()["id"].to_pylist())


def file_count(table: Table, where: str) -> int:
    return sum(len(task.paths) for task in table.scan(where=where).plan())


CONDITIONS = [
    ("id = 5", lambda row: row["id"] == 5, 2),
    ("id IN (5, 700, 12)", lambda row: row["id"] in (5, 700, 12), 3),
    ("id > 990 AND id < 995", lambda row: 990 < row["id"] < 995, 3),
    ("NOT (id < 999)", lambda row: row["id"] >= 999, 2),
    ("id = 123456", lambda row: False, 1),
    ("name = 'n031'", lambda row: row["name"] == "n031", 3),
    ("name = 'n031' AND id = 3", lambda row: row["name"] == "n031" and row["id"] == 3, 2),
    ("name LIKE 'n031%'", lambda row: (row["name"] or "").startswith("n031"), 3),
    ("name IS NULL", lambda row: row["name"] is None, 7),
    ("name IS NULL OR name = 'n031'", lambda row: row["name"] in (None, "n031"), 7),
    ("coalesce(name, 'n031') = 'n031'", lambda row: row["name"] in (None, "n031"), 7),
    ("day = date '1970-02-01'", lambda row: row["day"] == datetime.date(1970, 2, 1), 3),
    ("n = 7", lambda row: row["n"] == 7, 7),
    ("m = 3 AND n > 60", lambda row: False, 1),
    ("id = 5 OR name = 'n031'", lambda row: row["id"] == 5 or row["name"] == "n031", 7),
    ("dt = 'y' AND id < 20", lambda row: row["dt"] == "y" and row["id"] < 20, 3),
]


@pytest.mark.parametrize(("where", "wanted", "files"), CONDITIONS, ids=[where for where, _, _ in CONDITIONS])
def test_files_without_a_row_that_an_index_names_are_left_out(where, wanted, files):
    table = golden()
    assert ids(table, where) == sorted(row["id"] for row in ROWS if wanted(row))
    assert file_count(table, where) == files
    assert table.scan(where=where).count() == sum(map(wanted, ROWS))


@pytest.mark.parametrize(
    "options", [{"global-index.enabled": "false"}, {"global-index.column-update-action": "IGNORE"}], ids=str
)
def test_indexes_that_are_switched_off_or_may_be_old_are_not_used(options):
    assert file_count(golden(**options), "id = 5") == 7


def test_rows_that_come_later_and_ranges_that_are_joined_are_seen():
    table = golden()
    row = table.scan(where="id = 5").to_arrow()
    table.append(row)
    assert ids(table, "id = 5") == [5, 5]
    assert file_count(table, "id = 5") == 3
    table.compact(full=True)
    assert ids(table, "id = 5") == [5, 5]
    # In neither partition is there a file of covered rows alone.
    assert ids(table, "id = 12") == [12]
    table.drop_partitions([{"dt": "y"}])
    assert ids(table, "id < 100") == sorted(row["id"] for row in ROWS if row["dt"] == "x" and row["id"] < 100)


def test_values_that_column_files_replaced_are_seen():
    """Of an engine that kept an index although it updated the column."""
    table = golden()
    store, number = doors.store(table), table.current_snapshot().id
    document = json.loads(store.read(f"snapshot/snapshot-{number}"))
    store.write(f"snapshot/snapshot-{number}", json.dumps({**document, "indexManifest": None}).encode())
    table = Table("t", store, Paimon())
    table.update({"name": "'new'"}, where="id = 5")
    newer = json.loads(store.read(f"snapshot/snapshot-{number + 1}"))
    newer["indexManifest"] = document["indexManifest"]
    store.write(f"snapshot/snapshot-{number + 1}", json.dumps(newer).encode())
    table = Table("t", store, Paimon())
    assert ids(table, "name = 'new'") == [5]
    assert file_count(table, "name = 'new'") == 2


def test_an_index_of_a_column_that_had_another_type_is_not_used():
    table = golden()
    table.alter().change_type("n", "bigint").commit()
    assert ids(table, "n > 60") == []
    assert file_count(table, "n > 60") == 7
    assert file_count(table, "id = 5") == 2


def indexes(table: Table, name: str) -> list[str]:
    field = table.schema.field(name)
    view = doors.view(table)
    found = global_index.read_all(view.reader, view.state.document).to_pylist()
    return [row["path"] for row in found if row["field_id"] == field.id]


def test_a_missing_index_proves_nothing():
    table = golden()
    assert file_count(table, "name = 'n0005'") == 1  # Between two values of the first rows.
    doors.store(table).delete(indexes(table, "name")[:1])
    assert file_count(table, "name = 'n0005'") == 2
    assert ids(table, "name = 'n031'") == sorted(row["id"] for row in ROWS if row["name"] == "n031")
    doors.store(table).delete(indexes(table, "name"))
    assert file_count(table, "name = 'n031'") == 7


def test_a_condition_that_would_read_too_much_of_an_index_does_without(monkeypatch):
    monkeypatch.setattr(global_index, "_MOST_BYTES", 100)
    table = golden()
    assert file_count(table, "id = 5") == 7
    assert file_count(table, "id = 123456") == 1


def test_a_damaged_index_is_named():
    table = golden()
    path = indexes(table, "id")[0]
    data = bytearray(doors.store(table).read(path))
    data[3] ^= 1
    doors.store(table).write(path, bytes(data))
    with pytest.raises(CorruptFile, match=f"{path}.*checksum"):
        ids(table, "id < 1000")


def test_no_byte_of_an_index_changes_unseen():
    store = unzipped("evolution/indexed.zip")
    (path,) = indexes(golden(), "n")[:1]
    data = store.read(path)

    def content(data: bytes) -> list:
        store.write(path, data)
        file = btree_index.File(store.open(path), path)
        blocks = [file.block(number) for number in range(len(file))]
        return [(stored.to_pylist(), row_ids.tolist(), of.tolist()) for stored, row_ids, of in blocks]

    whole = content(data)
    rows = {}
    for stored, row_ids, of in whole:
        for row_id, key in zip(row_ids, of, strict=True):
            rows[row_id] = int.from_bytes(stored[key], "little")
    assert rows == {i: i % 50 for i in range(100)}
    for position in range(len(data)):
        for changed in (data[:position], data[:position] + bytes([data[position] ^ 0x81]) + data[position + 1 :]):
            try:
                assert content(changed) == whole
            except (CorruptFile, UnsupportedFeature):
                continue


def test_values_of_another_length_are_no_values_of_the_column():
    with pytest.raises(CorruptFile, match="another length"):
        global_index._values([b"1234"], scalar(Kind.BIGINT))
    assert global_index._values([None, b"\xff" * 8], scalar(Kind.BIGINT)).to_pylist() == [None, -1]


def test_ranges_that_touch_are_one():
    starts, stops = global_index.joined(np.array([10, 0, 30, 5]), np.array([20, 5, 40, 10]))
    assert (starts.tolist(), stops.tolist()) == ([0, 30], [20, 40])


def test_columns_are_matched_by_id():
    table = golden()
    table.alter().rename_column("id", "number").commit()
    assert file_count(table, "number = 5") == 2


# --- our own ------------------------------------------------------------------------------------------------------------

ON = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"}
ON["metadata.stats-mode"] = "none"  # So that nothing else leaves out files.
SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("n", pa.int32()), ("dt", pa.string())]
)


def part(low: int, high: int) -> pa.Table:
    names = SCHEMA.names
    return pa.table({name: [row[name] for row in ROWS[low:high]] for name in names}, schema=SCHEMA)


@pytest.fixture
def own(tmp_path) -> Table:
    table = Lake(tmp_path).create_table("d.t", SCHEMA, partition_by=["dt"], properties=ON)
    for low in range(0, 600, 100):
        table.append(part(low, low + 100))
    return table


@pytest.mark.drawn(5)
@pytest.mark.parametrize(("where", "wanted", "files"), CONDITIONS, ids=[where for where, _, _ in CONDITIONS])
def test_our_indexes_leave_out_what_those_of_pypaimon_do(own, where, wanted, files):
    if "m =" in where:
        return
    for name in ("id", "name", "day", "n"):
        assert own.create_global_index(name, id=name).operation_id == name
    own.append(part(600, 700))
    assert ids(own, where) == sorted(row["id"] for row in ROWS if wanted(row))
    assert file_count(own, where) == files


def test_an_index_is_made_of_the_rows_that_none_covers_and_dropped_by_partition(own):
    assert own.create_global_index("id", where="dt = 'x'").kind == "compact"
    assert (file_count(own, "id = 123456"), own.changes(own.current_snapshot().id - 1).to_arrow().num_rows) == (3, 0)
    assert own.create_global_index("id", where="dt = 'x'") is None
    assert own.create_global_index("id", id="rest").id == own.create_global_index("id", id="rest").id
    assert file_count(own, "id = 123456") == 0
    own.append(part(600, 700))
    own.compact(full=True)
    assert file_count(own, "id = 123456") == 1
    assert own.create_global_index("id") is not None
    assert (file_count(own, "id = 123456"), own.create_global_index("id")) == (0, None)
    named = own.drop_global_index("id", where="dt = 'x'", dry_run=True)
    assert file_count(own, "id = 123456") == 0
    assert own.drop_global_index("id", where="dt = 'x'") == named
    assert 0 < file_count(own, "id = 123456") < len(own.inspect.files())
    assert (own.drop_global_index("id", where="dt = 'x'"), own.drop_global_index("name")) == ([], [])
    assert len(own.drop_global_index("id")) > 0
    own.rewrite_manifests()
    own.expire_snapshots(retain_last=1, older_than="2100-01-01")
    own.remove_orphan_files(older_than=datetime.timedelta(days=-1))
    assert [file.path for file in own.stored_files() if file.path.startswith("index/")] == []


def test_deletes_keep_indexes_and_new_values_of_an_indexed_column_are_refused(own):
    own.create_global_index("id")
    own.delete("id < 10")
    own.update({"n": "n + 100"}, where="id < 50")
    assert (file_count(own, "id = 123456"), ids(own, "id < 12")) == (0, [11])
    stored = len(own.stored_files())
    with pytest.raises(InvalidInput, match=r"drop_global_index\('id'\) first"):
        own.update({"id": "id + 1"}, where="id < 50")
    assert len(own.stored_files()) == stored
    own.drop_global_index("id")
    own.update({"id": "id + 1000"}, where="id < 50")
    assert own.create_global_index("id") is not None
    assert ids(own, "id IN (5, 11, 1011)") == [1011]
    own.compact(full=True)
    assert file_count(own, "id = 11") == 0


def test_values_that_change_while_a_column_is_indexed_are_a_conflict(own):
    view = doors.view(own)
    change = Change(doors.store(own), view, engine_for(), Request(id="index", absent_until=view.version))
    operation = verb.create(change, "id", "btree", ALWAYS)
    own.append(part(600, 700))
    own.delete("id = 7")
    assert commit(doors.store(own), Paimon().head(doors.store(own)), Paimon(), operation).operation_id == "index"
    own.drop_global_index("id")
    operation = verb.create(replace(change, view=doors.view(own), request=Request(id="again")), "id", "btree", ALWAYS)
    own.update({"id": "id + 1000"}, where="id = 11")
    with pytest.raises(Conflict, match="new values of rows that were indexed"):
        commit(doors.store(own), Paimon().head(doors.store(own)), Paimon(), operation)
    assert all(file.path not in {f.path for f in operation.added} for file in own.stored_files())
    assert ids(own, "id = 1011") == [1011]


def test_columns_and_tables_that_are_not_indexed_say_why(tmp_path, own):
    lake = Lake(tmp_path / "other")
    with pytest.raises(UnsupportedFeature, match="needs the options row-tracking"):
        lake.create_table("d.plain", SCHEMA).create_global_index("id")
    with pytest.raises(UnsupportedFeature, match="has no global indexes"):
        lake.create_table("d.i", SCHEMA, format="iceberg").create_global_index("id")
    with pytest.raises(UnsupportedFeature, match="type 'fm' are not written"):
        own.create_global_index("name", "fm")
    own.alter().add_column("f", "double").change_type("n", "bigint").commit()
    for name, why in (("f", "whole numbers, dates and texts"), ("n", "another type")):
        with pytest.raises(UnsupportedFeature, match=why):
            own.create_global_index(name)
    with pytest.raises(InvalidInput, match="partition columns only"):
        own.create_global_index("id", where="id = 5")


@pytest.mark.parametrize("count", [0, 1, 7, 40_000])
@pytest.mark.parametrize("wide", [False, True], ids=["of one length", "of many lengths"])
def test_an_index_gives_back_what_was_written(count, wide):
    keys = [f"{i:06}".encode() + b"x" * (i % 40 if wide else 0) for i in range(count)]
    counts = np.arange(count) % 3 + 1
    row_ids = np.arange(counts.sum()) * 131
    data = btree_index.emit(pa.array(keys, pa.binary()), counts, row_ids, np.array([3, 1 << 40]))
    file = btree_index.File(io.BytesIO(data), "i")
    assert len(file) >= min(count, 1) + count // 10_000
    blocks = [file.block(number) for number in range(len(file))]
    assert [key for stored, _, _ in blocks for key in stored.to_pylist()] == keys
    assert (
        np.concatenate([ids[:0] for ids in [row_ids]] + [found for _, found, _ in blocks]).tolist() == row_ids.tolist()
    )
    assert file.last_values.to_pylist() == [stored[-1].as_py() for stored, _, _ in blocks]
