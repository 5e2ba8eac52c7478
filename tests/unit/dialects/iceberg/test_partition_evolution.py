"""Partition specs that change: where rows lie is one thing, which rows an overwrite replaces another."""

import datetime
import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import Conflict, InvalidInput, Lake, NotFound, UnsupportedFeature
from lakeformat.commit import commit
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.model.operation import Request
from lakeformat.verbs.append import append
from tests import doors

iceberg = Iceberg()

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("ts", pa.timestamp("us"))])
DAY = datetime.datetime(2020, 1, 1)


def row(id, dt="a", hour=0):
    return {"id": id, "dt": dt, "ts": DAY + datetime.timedelta(hours=hour)}


def rows(*found):
    return pa.Table.from_pylist(list(found), SCHEMA)


def ids(table, **how):
    return sorted(table.scan(["id"], **how).to_arrow()["id"].to_pylist())


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


def document(table):
    newest = max(Path(table.uri[7:]).glob("metadata/v*.json"), key=lambda p: int(p.name[1:].split(".")[0]))
    return json.loads(newest.read_text())


def test_specs_keep_their_fields_ids_and_come_back(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"])
    t.append(rows(row(1)))
    t.alter().add_partition_field("days(ts)").drop_partition_field("dt").commit()
    t.append(rows(row(2, hour=30)))
    t.alter().add_partition_field("bucket(4, id)", name="shard").commit()
    t.append(rows(row(3)))
    t.alter().drop_partition_field("shard").drop_partition_field("ts_day").add_partition_field("dt").commit()
    assert t.append(rows(row(4))).partitions[0].values == ("a",)
    found = document(t)
    assert [[(f["field-id"], f["name"], f["transform"]) for f in s["fields"]] for s in found["partition-specs"]] == [
        [(1000, "dt", "identity")],
        [(1001, "ts_day", "day")],
        [(1001, "ts_day", "day"), (1002, "shard", "bucket[4]")],
    ]
    assert (found["default-spec-id"], found["last-partition-id"]) == (0, 1002)
    assert ids(t) == [1, 2, 3, 4]
    assert ids(t, where="ts >= timestamp '2020-01-02'") == [2]
    t.alter().drop_partition_field("dt").commit()
    t.append(rows(row(5)))
    assert (document(t)["partition-specs"][3], ids(t, where="dt = 'a'")) == (
        {"spec-id": 3, "fields": []},
        [1, 2, 3, 4, 5],
    )


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda a: a.add_partition_field("dt"), InvalidInput, "twice"),
        (lambda a: a.add_partition_field("nope"), InvalidInput, "not a column"),
        (lambda a: a.add_partition_field("days(dt)"), InvalidInput, "day"),
        (lambda a: a.add_partition_field("days(ts)", name="id"), InvalidInput, "name of a column"),
        (lambda a: a.add_partition_field("weeks(ts)"), InvalidInput, "no transform"),
        (lambda a: a.drop_partition_field("nope"), NotFound, "there are: dt"),
        (lambda a: a.drop_column("dt"), InvalidInput, "partition"),
    ],
)
def test_changes_that_cannot_be(lake, change, error, says):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"])
    with pytest.raises(error, match=says):
        change(t.alter()).commit()
    assert len(document(t)["partition-specs"]) == 1


def test_paimons_partitions_stay(lake):
    t = lake.create_table("d.t", SCHEMA, partition_by=["dt"])
    for change in (t.alter().add_partition_field("id"), t.alter().drop_partition_field("dt")):
        with pytest.raises(UnsupportedFeature, match="fixed"):
            change.commit()


def test_an_overwrite_takes_its_rows_out_of_files_of_earlier_specs(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg")
    t.append(rows(row(1, "a"), row(2, "b"), row(3, "a", 30)))
    t.append(rows(row(4, "b"), row(5, "b")))
    t.alter().add_partition_field("dt").commit()
    made = t.overwrite_partitions(rows(row(6, "a")))
    assert ids(t) == [2, 4, 5, 6], "of mixed files the other rows stay"
    assert (made.kind, made.rows_added, made.rows_removed) == ("overwrite", 2, 3)
    t.overwrite_partitions(rows(), [{"dt": "b"}])
    assert ids(t) == [6]
    t.append(rows(row(7, "c")))
    t.alter().drop_partition_field("dt").add_partition_field("days(ts)").commit()
    t.append(rows(row(8, "c"), row(9, "c", 30)))
    t.overwrite_partitions(rows(row(10, "z", 1)))  # The first day.
    assert ids(t) == [9, 10]
    t.alter().add_partition_field("dt").commit()
    t.append(rows(row(11, "q", 30)))
    t.drop_partitions([{"dt": "c"}])
    assert ids(t) == [10, 11]
    t.delete("dt = 'q'")
    t.overwrite(rows(row(12, "z", 50)), {"dt": "z"})
    assert ids(t) == [12]


def test_buckets_of_another_number_are_other_buckets(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["bucket(2, id)"])
    t.append(rows(*(row(i) for i in range(20))))
    t.alter().drop_partition_field("id_bucket").add_partition_field("bucket(3, id)").commit()
    with pytest.raises(UnsupportedFeature, match="compact"):
        t.overwrite_partitions(rows(row(1)))
    assert ids(t) == list(range(20))
    assert ids(t, where="id = 7") == [7]
    t.compact(full=True)
    gone = t.overwrite_partitions(rows(row(1))).rows_removed
    assert 0 < gone < 20
    assert len(ids(t)) == 20 - gone + 1


def test_who_wrote_for_another_spec_starts_over(lake):
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"])
    base = doors.view(t)
    request = Request(id="late", partitioning_id=base.schema.partitioning.id)
    operation = append(doors.runner(t).change(base, request), rows(row(1)))
    t.alter().drop_partition_field("dt").add_partition_field("truncate(1, dt)").commit()
    with pytest.raises(Conflict, match="partitions"):
        commit(doors.store(t), iceberg.head(doors.store(t)), iceberg, operation)
    assert ids(t) == []


@pytest.mark.parametrize("seed", range(4))
def test_against_a_model(lake, seed):
    """Random appends, changes of the spec and dynamic overwrites, beside rows in a list."""
    chance = random.Random(seed)
    keys = {
        "dt": lambda r: r["dt"], "days(ts)": lambda r: r["ts"].date(), "hours(ts)": lambda r: r["ts"].replace(minute=0),
        "months(ts)": lambda r: r["ts"].month, "truncate(10, id)": lambda r: r["id"] // 10, "truncate(1, dt)": lambda r: r["dt"][:1],
    }  # fmt: skip
    names = {"dt": "dt", "days(ts)": "ts_day", "hours(ts)": "ts_hour", "months(ts)": "ts_month",
             "truncate(10, id)": "id_truncate", "truncate(1, dt)": "dt_truncate"}  # fmt: skip
    t = lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"])
    spec, live, count = ["dt"], [], 0
    for _ in range(14):
        made = []
        for _ in range(chance.randrange(1, 5)):
            count += 1
            made.append(row(count, chance.choice(["a", "ab", "b"]), chance.randrange(0, 24 * 40)))
        match chance.choice(["append", "append", "spec", "overwrite"]):
            case "append":
                t.append(rows(*made))
                live += made
            case "spec":
                text = chance.choice(sorted(keys))
                if text in spec:
                    t.alter().drop_partition_field(names[text]).commit()
                    spec.remove(text)
                else:
                    t.alter().add_partition_field(text).commit()
                    spec.append(text)
            case "overwrite":
                t.overwrite_partitions(rows(*made))
                replaced = {tuple(keys[s](r) for s in spec) for r in made}
                live = [r for r in live if tuple(keys[s](r) for s in spec) not in replaced] + made
        assert ids(t) == sorted(r["id"] for r in live), (seed, spec)


def test_columns_of_partitions_and_keys_change_their_names_and_widen(lake):
    t = lake.create_table(
        "d.t", pa.schema([pa.field("id", pa.int32(), False), ("dt", pa.string()), ("n", pa.int32())]), format="iceberg",
        partition_by=["dt", "bucket(4, id)", "truncate(10, n)"], primary_key=["id"],
    )  # fmt: skip
    t.append(pa.table({"id": pa.array([1, 2], pa.int32()), "dt": ["a", "b"], "n": pa.array([-1, 25], pa.int32())}))
    then = t.current_snapshot().id
    t.alter().rename_column("dt", "day").rename_column("id", "key").commit()
    t.alter().change_type("key", "bigint").change_type("n", "bigint").commit()
    assert (t.schema.primary_key, t.schema.partitioning.columns) == (("key",), ("day",))
    assert t.schema.partitioning.names == ("dt", "id_bucket", "n_truncate")
    assert [s["spec-id"] for s in doors.view(t).state.document["partition-specs"]] == [0]
    t.append(pa.table({"key": [1 << 40, 3], "day": ["a", "c"], "n": [-(1 << 40), None]}))
    assert sorted(t.scan(["key"], where="day = 'a'").to_arrow()["key"].to_pylist()) == [1, 1 << 40]
    assert len(t.scan(where=f"key = {1 << 40}").plan()) == len(t.scan(where="n = 25").plan()) == 1
    assert t.scan(["id"], where="dt = 'a'", snapshot_id=then).to_arrow()["id"].to_pylist() == [1]
    t.overwrite(pa.table({"key": [9], "day": ["a"], "n": [0]}), partition={"day": "a"})
    t.overwrite_partitions(pa.table({"key": [10], "day": ["a"], "n": [0]}), [{"day": "a"}])
    t.upsert(pa.table({"key": [2, 3], "day": ["b", "c"], "n": [26, 7]}))
    t.compact(full=True)
    found = t.scan().to_arrow().sort_by("key")
    assert [tuple(row.values()) for row in found.to_pylist()] == [(2, "b", 26), (3, "c", 7), (10, "a", 0)]
    with pytest.raises(InvalidInput, match="is a partition column and cannot be dropped"):
        t.alter().drop_column("day").commit()


def test_a_column_called_like_a_partition_field_is_refused_and_never_taken_for_it(lake):
    t = lake.create_table(
        "d.t", pa.schema([("id", pa.int64()), ("dt", pa.string())]), format="iceberg", partition_by=["dt"]
    )
    t.append(pa.table({"id": [1, 2], "dt": ["a", "b"]}))
    t.alter().rename_column("dt", "day").commit()
    with pytest.raises(InvalidInput, match="the partition field 'dt' has the name of a column"):
        t.alter().add_column("dt", "string").commit()
    # Others do that.
    path = max((Path(t.uri.removeprefix("file://")) / "metadata").glob("v*.metadata.json"))
    document = json.loads(path.read_text())
    document["schemas"][-1]["fields"].append({"id": 3, "name": "dt", "type": "string", "required": False})
    document["last-column-id"] = 3
    path.write_text(json.dumps(document))
    assert t.scan(where="dt is null").count() == 2
    t.append(pa.table({"id": [3], "day": ["a"], "dt": ["z"]}))
    assert t.scan(["id"], where="dt = 'z'").to_arrow()["id"].to_pylist() == [3]
    assert len(t.scan(where="day = 'b'").plan()) == 1
    t.delete("dt = 'z'")
    t.overwrite(pa.table({"id": [4], "day": ["b"], "dt": ["y"]}), partition={"day": "b"})
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 4]
