"""Changelogs into Iceberg tables, against a dict that takes one row after the other."""

import datetime
import random
import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Conflict, InvalidInput, Lake, NotFound, UnsupportedFeature
from lakeformat.engines.keyed.key_map import KeyMap
from tests import doors

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64()), pa.field("dt", pa.string(), False)])
LOG = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("dt", pa.string()), ("rowkind", pa.string())])


def row(id, v=0, dt="a", kind="+I"):
    return {"id": id, "v": v, "dt": dt, "rowkind": kind}


def log(*rows):
    return pa.Table.from_pylist(list(rows), LOG)


def rows_of(table):
    return sorted((r["id"], r["dt"], r["v"]) for r in table.scan().to_arrow().to_pylist())


def contents(table):
    """How many files of each kind the newest snapshot added."""
    made = doors.view(table).state.snapshot_document["summary"]
    names = ("added-data-files", "added-equality-delete-files", "added-position-delete-files")
    return tuple(int(made.get(name, 0)) for name in names)


@pytest.fixture
def table(tmp_path):
    lake = Lake(str(tmp_path / "warehouse"))
    return lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], primary_key=["id", "dt"])


FEW = 1  # Bytes that wait: rows are dealt with a batch at a time, so that keys come again later.


@pytest.mark.parametrize("upsert", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_a_random_changelog_gives_the_rows_that_a_dict_has(table, upsert, seed):
    rng, state, checkpoint = random.Random(seed), {}, 0
    with table.delta_writer("cdc", upsert=upsert, buffer_bytes=FEW) as writer:
        for _ in range(rng.randint(2, 6)):
            for _ in range(rng.randint(0, 4)):
                writer.write(log(*changes(rng, state, upsert)))
            checkpoint += 1
            writer.checkpoint(checkpoint)
            assert rows_of(table) == sorted((*key, v) for key, v in state.items()), (seed, checkpoint)


def test_deletes_as_old_as_the_oldest_data_still_apply(table):
    """A checkpoint takes rows of its own by position: data and deletes of one sequence number."""
    with table.delta_writer("cdc", upsert=False, buffer_bytes=FEW) as writer:
        writer.write(log(row(9)))
        writer.checkpoint(1)
        writer.write(log(row(1, dt="b"), row(2, dt="b")))
        writer.write(log(row(1, dt="b", kind="-D")))
        writer.checkpoint(2)
    assert contents(table)[2] == 1, "by position"
    table.drop_partitions([{"dt": "a"}])  # Then nothing is older than those deletes.
    assert rows_of(table) == [(2, "b", 0)]


def changes(rng, state, upsert):
    found = []
    for _ in range(rng.randint(1, 12)):
        key, v = (rng.randrange(8), rng.choice("ab")), rng.randrange(100)
        if key not in state or (upsert and rng.random() < 0.3):
            found.append(row(key[0], v, key[1]))
            state[key] = v
        elif rng.random() < 0.4:
            found.append(row(key[0], state.pop(key), key[1], "-D"))
        else:
            found += [row(key[0], state[key], key[1], "-U"), row(key[0], v, key[1], "+U")]
            state[key] = v
    return found


def test_a_key_that_comes_again_gets_a_position_delete_and_an_older_one_an_equality_delete(table):
    with table.delta_writer("cdc", upsert=True, buffer_bytes=FEW) as writer:
        writer.write(log(row(1, 1), row(2, 1)))
        writer.checkpoint(1)
        writer.write(log(row(1, 2)))
        writer.write(log(row(1, 3)))
        assert (writer.key_count, writer.key_bytes > 0) == (1, True)
        made = writer.checkpoint(2)
    assert rows_of(table) == [(1, "a", 3), (2, "a", 1)]
    assert contents(table) == (2, 1, 1)
    assert made.properties["stream.checkpoint-id"] == "2"


def test_keys_that_wait_are_counted(table):
    with table.delta_writer("cdc", upsert=True) as writer:
        writer.write(log(row(1, 1), row(2, 1), row(1, 2)))
        assert writer.key_count == 2
        writer.write(log(row(2, 3), row(3, 1)))
        assert writer.key_count == 3
        writer.checkpoint(1)
        assert writer.key_count == 0
    with table.delta_writer("cdc", upsert=True, buffer_bytes=2_000) as writer:
        writer.write(log(*(row(k, 1) for k in range(100))))
        writer.write(log(row(0, 2), row(99, 2), row(100, 1)))
        assert writer.key_count == 101, "three rows wait, two of them of keys that do not"


def test_a_table_says_that_its_writers_upsert(table):
    table.alter().set_properties({"write.upsert.enabled": "true"}).commit()
    with table.delta_writer("cdc") as writer:
        writer.write(log(row(1, 1)))
        writer.checkpoint(1)
        writer.write(log(row(1, 2)))
        writer.checkpoint(2)
    assert rows_of(table) == [(1, "a", 2)]


def test_rows_of_one_batch_that_replace_each_other_are_not_written(table):
    with table.delta_writer("cdc") as writer:
        writer.write(log(row(1, 1), row(1, 1, kind="-U"), row(1, 2, kind="+U"), row(2, 1), row(2, 1, kind="-D")))
        writer.checkpoint(1)
    assert rows_of(table) == [(1, "a", 2)]
    assert contents(table) == (1, 0, 0)


def test_names_of_files_are_those_that_engines_give(table, tmp_path):
    with table.delta_writer("cdc", upsert=True, buffer_bytes=FEW) as writer:
        writer.write(log(row(1, 1)))
        writer.write(log(row(1, 2)))
        writer.checkpoint(1)
    names = sorted(p.name for p in tmp_path.rglob("*.parquet"))
    uuid = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    assert all(re.fullmatch(rf"\d{{5}}-\d+-{uuid}-\d{{5}}(-deletes)?\.parquet", name) for name in names), names
    assert sum("-deletes" in name for name in names) == 2
    keys = [p for p in tmp_path.rglob("*-deletes.parquet") if pq.read_schema(p).names == ["id", "dt"]]
    assert [pq.read_table(p, partitioning=None).to_pylist() for p in keys] == [[{"id": 1, "dt": "a"}]]


def test_a_checkpoint_happens_once_also_for_a_writer_that_starts_again(table, tmp_path):
    with table.delta_writer("cdc") as writer:
        writer.write(log(row(1)))
        assert writer.checkpoint(5) is not None
    with table.delta_writer("cdc") as writer:
        assert writer.last_checkpoint == 5
        writer.write(log(row(1)))
        assert writer.checkpoint(5) is None
        writer.write(log(row(2)))
        assert writer.checkpoint(6) is not None
    with table.delta_writer("another") as writer:
        assert writer.last_checkpoint is None
        assert writer.checkpoint(1) is None
    assert rows_of(table) == [(1, "a", 0), (2, "a", 0)]
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_what_no_checkpoint_holds_is_gone_with_its_files(table, tmp_path):
    with table.delta_writer("cdc", upsert=True, buffer_bytes=FEW) as writer:
        writer.write(log(row(1)))
        assert list(tmp_path.rglob("*.parquet")) != []
    assert rows_of(table) == []
    assert list(tmp_path.rglob("*.parquet")) == []


def test_keys_are_bounded(table):
    with (
        table.delta_writer("cdc", max_keys=3, buffer_bytes=FEW) as writer,
        pytest.raises(InvalidInput, match="more than 3 keys"),
    ):
        writer.write(log(*(row(i) for i in range(4))))


def test_what_does_not_make_a_changelog_is_named(table, tmp_path):
    with pytest.raises(InvalidInput, match=r"must hold the columns that the partitions are made of: add dt"):
        table.delta_writer("cdc", key=["id"])
    with pytest.raises(NotFound, match="nope"):
        table.delta_writer("cdc", key=["nope"])
    lake = Lake(str(tmp_path / "warehouse"))
    with pytest.raises(InvalidInput, match="no identifier fields"):
        lake.create_table("d.plain", SCHEMA, format="iceberg").delta_writer("cdc")
    with pytest.raises(UnsupportedFeature, match="upsert the changelog"):
        lake.create_table("d.paimon", SCHEMA, format="paimon").delta_writer("cdc", key=["id"])
    writer = table.delta_writer("cdc")
    with pytest.raises(InvalidInput, match="'\\+X' is not a kind of row"):
        writer.write(log(row(1, kind="+X")))
    with pytest.raises(InvalidInput, match="column id is NOT NULL"):
        writer.write(log(row(None)))
    writer.write(log({"id": 1, "dt": "a", "rowkind": "-D"}))  # A key is enough to take a row away.
    with pytest.raises(InvalidInput, match="whole number"):
        writer.checkpoint("one")


def test_a_map_of_keys_finds_what_was_added_and_nothing_else():
    rng, known, found = random.Random(3), {}, KeyMap()
    for _ in range(30):
        keys = [(rng.choice([None, *range(20)]), rng.choice([None, "x", "y"])) for _ in range(rng.randint(1, 10))]
        columns = [pa.array([k[0] for k in keys], pa.int64()), pa.array([k[1] for k in keys], pa.string())]
        assert found.find(columns).tolist() == [known.get(key, -1) for key in keys]
        new = list(dict.fromkeys(key for key in keys if key not in known))
        slots = found.add([pa.array([k[0] for k in new], pa.int64()), pa.array([k[1] for k in new], pa.string())])
        known |= dict(zip(new, slots.tolist(), strict=True))
        assert len(found) == len(known)


def test_keys_of_one_hash_are_told_apart_and_keys_are_of_any_type():
    factor = 0x9E3779B97F4A7C15  # A key (a, b) has the hash ((a * factor ^ a * factor >> 29) ^ b) * factor.
    low = [factor * a % 2**64 for a in range(3)]
    collide = [pa.array(range(3), pa.int64()), pa.array([a ^ a >> 29 for a in low], pa.uint64()).view(pa.int64())]
    found = KeyMap()
    assert found.add([batch.slice(0, 2) for batch in collide]).tolist() == [0, 1]
    assert found.find(collide).tolist() == [0, 1, -1]
    assert found.add([batch.slice(2) for batch in collide]).tolist() == [2]
    assert found.find(collide).tolist() == [0, 1, 2]
    for values, type in (
        ([True, False, None], pa.bool_()),
        ([Decimal("1.50"), Decimal("-0.01"), None], pa.decimal128(9, 2)),
        ([b"\xff" * 16, bytes(16), None], pa.binary(16)),
        ([datetime.date(2024, 2, 29), datetime.date(1, 1, 1), None], pa.date32()),
        ([0.5, float("nan"), None], pa.float64()),
        (["a", "", None], pa.dictionary(pa.int32(), pa.string())),
        ([0, -1, None], pa.timestamp("us", "UTC")),
    ):
        found, keys = KeyMap(), pa.array(values, type)
        found.add([keys.slice(0, 2)])
        assert found.find([keys]).tolist() == [0, 1, -1], type
        found.add([keys.slice(2)])
        assert found.find([keys]).tolist() == [0, 1, 2], type


def test_equality_deletes_wait_for_nobody_who_changes_the_partitions(tmp_path):
    lake = Lake(str(tmp_path / "warehouse"))
    t = lake.create_table("d.spec", SCHEMA, format="iceberg", partition_by=["dt"])
    t.append(log(row(1), row(2)).drop_columns(["rowkind"]))
    with t.delta_writer("cdc", key=["id", "dt"]) as writer:
        writer.write(log(row(1, kind="-D")))
        t.alter().drop_partition_field("dt").add_partition_field("bucket(4, id)").commit()
        with pytest.raises(Conflict, match="another writer changed the table's partitions"):
            writer.checkpoint(1)
    assert rows_of(t) == [(1, "a", 0), (2, "a", 0)]
    with pytest.raises(UnsupportedFeature, match="compact the table first"):
        t.delta_writer("cdc", key=["id", "dt"])
    t.compact(full=True)
    with t.delta_writer("cdc", key=["id", "dt"]) as writer:
        writer.write(log(row(1, kind="-D")))
        writer.checkpoint(1)
    assert rows_of(t) == [(2, "a", 0)]
