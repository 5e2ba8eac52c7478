"""Tables with a primary key and deletion vectors, on both engines: rows are seen with the compaction that belongs to a write."""

import datetime
import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import Lake

ROOT = Path(__file__).parent.parent.parent
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64()), ("dt", pa.string())])
MARKED = {"deletion-vectors.enabled": "true"}
LAYOUTS = {
    "fixed buckets": (["id", "dt"], {"bucket": "2"}),
    "buckets that grow": (["id", "dt"], {"dynamic-bucket.target-row-num": "4"}),
    "keys that change partitions": (["id"], {"dynamic-bucket.target-row-num": "4"}),
}


@pytest.fixture(params=["arrow", "spark"])
def engine(request):
    """(rows -> the engine's own kind of frame, the options of verbs without data, a scan -> its rows)."""
    if request.param == "arrow":
        return arrow, None, lambda scan: scan.to_arrow().to_pylist()
    spark = request.getfixturevalue("spark")

    def frame(*given, kinds=None):
        found = arrow(*given, kinds=kinds)
        types = {"id": "bigint", "v": "string", "n": "bigint", "dt": "string", "rowkind": "string"}
        names = ", ".join(f"{name} {types[name]}" for name in found.column_names)
        return spark.createDataFrame([tuple(row.values()) for row in found.to_pylist()], names)

    return frame, spark, lambda scan: [row.asDict() for row in scan.to_spark(spark).collect()]


def arrow(*given, kinds=None):
    found = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in given], SCHEMA)
    return found if kinds is None else found.append_column("rowkind", pa.array(kinds, pa.string()))


def make(tmp_path, layout="fixed buckets", **more):
    key, properties = LAYOUTS[layout]
    lake = Lake(str(tmp_path / "warehouse"), fsync="false")
    given = {**MARKED, **properties, **more}
    return lake.create_table("d.t", SCHEMA, format="paimon", partition_by=["dt"], primary_key=key, properties=given)


def held(table, rows, **how):
    """By key, the row that is live, the same to both engines and in the count."""
    found = rows(table.scan(**how))
    assert sorted(map(str, found)) == sorted(map(str, table.scan(**how).to_arrow().to_pylist()))
    assert table.scan(**how).count() == len(found)
    by_key = {(row["id"], row["dt"]): (row["v"], row["n"]) for row in found}
    assert len(by_key) == len(found)
    return by_key


def kinds(table):
    return [snapshot.kind for snapshot in table.snapshots()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_verbs_one_after_the_other(tmp_path, engine, layout):
    frame, spark, rows = engine
    table, crosses = make(tmp_path, layout), layout == "keys that change partitions"
    table.upsert(frame(*((i, "v", i, "ab"[i % 2]) for i in range(12))))
    wanted = {(i, "ab"[i % 2]): ("v", i) for i in range(12)}
    assert held(table, rows) == wanted
    first = table.current_snapshot().id

    made = table.upsert(frame((1, "w", 1, "b"), (2, None, 2, "a"), (3, "x", 3, "b"), kinds=["+U", "-D", "+I"]))
    wanted |= {(1, "b"): ("w", 1), (3, "b"): ("x", 3)}
    del wanted[2, "a"]
    assert held(table, rows) == wanted
    assert kinds(table)[-2:] == ["append", "compact"]
    assert sum(table.inspect.files()["deleted_row_count"].to_pylist()) >= 3
    assert held(table, rows, snapshot_id=first) == held(table, rows, snapshot_id=made.id) != wanted

    table.delete("n > 9", spark=spark)
    table.update({"v": "concat(v, '!')"}, where="n < 2", spark=spark)
    wanted = {k: (v + "!" if n < 2 else v, n) for k, (v, n) in wanted.items() if n <= 9}
    assert held(table, rows) == wanted
    assert held(table, rows, where="v like '%!'") == {k: r for k, r in wanted.items() if r[0].endswith("!")}

    on = "t.id = s.id" if crosses else "t.id = s.id and t.dt = s.dt"
    merge = table.merge_into(frame((3, "gone", 0, "b"), (4, "m", 44, "a"), (20, "new", 20, "c")), on=on)
    merge = merge.when_matched("s.v = 'gone'").delete().when_matched().update_all().when_not_matched().insert_all()
    merge.merge()
    wanted |= {(4, "a"): ("m", 44), (20, "c"): ("new", 20)}
    del wanted[3, "b"]
    assert held(table, rows) == wanted

    table.overwrite_partitions(frame((20, "o", 1, "c"), (21, "o", 1, "c")))
    wanted |= {(20, "c"): ("o", 1), (21, "c"): ("o", 1)}
    assert held(table, rows) == wanted
    table.overwrite(frame((21, "row", 44, "c")), where="n = 44")
    del wanted[4, "a"]
    wanted[21, "c"] = ("row", 44)
    assert held(table, rows) == wanted
    if crosses:
        table.upsert(frame((20, "moved", 1, "d"), (5, "moved", 5, "d")))
        wanted = {k: r for k, r in wanted.items() if k[0] not in (5, 20)}
        wanted |= {(20, "d"): ("moved", 1), (5, "d"): ("moved", 5)}
        assert held(table, rows) == wanted

    table.compact(full=True, spark=spark)
    assert not any(table.inspect.files()["deleted_row_count"].to_pylist())
    assert held(table, rows) == wanted
    before = table.current_snapshot().id
    table.upsert(frame((1, "last", 1, "b")))
    assert held(table, rows, snapshot_id=before) == wanted
    table.rollback_to(snapshot_id=before)
    assert held(table, rows) == wanted
    table.expire_snapshots(retain_last=1)
    table.remove_orphan_files(older_than=datetime.timedelta(days=-1))
    assert held(table, rows) == wanted


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_changes_lead_from_one_snapshot_to_another(tmp_path, engine, producer):
    frame, spark, rows = engine
    table, draw = make(tmp_path, **{"changelog-producer": producer}), random.Random(5)
    for _ in range(3):
        given = [(draw.randrange(6), f"v{draw.randrange(99)}", draw.randrange(9), "a") for _ in range(5)]
        table.upsert(frame(*given, kinds=[draw.choice(["+I", "+U", "-D"]) for _ in given]))
    table.delete("n > 4", spark=spark)
    seen = {}
    told = table.changes(0)
    for row in told.to_arrow().to_pylist():
        seen.pop((row["id"], row["dt"]), None)
        if row["_row_kind"] in ("+I", "+U"):
            seen[row["id"], row["dt"]] = (row["v"], row["n"])
    assert seen == held(table, rows)
    if spark is not None:
        on_spark = [row.asDict() for row in told.to_spark(spark).collect()]
        assert sorted(map(str, on_spark)) == sorted(map(str, told.to_arrow().to_pylist()))


def test_a_write_asked_for_again_makes_its_rows_seen(tmp_path, engine, monkeypatch):
    frame, _, rows = engine
    table = make(tmp_path, **{"write-only": "true"})
    made = table.upsert(frame((1, "a", 1, "x")), id="once")
    assert held(table, rows) == {}
    table.alter().set_properties({"write-only": "false"}).commit()  # As if who wrote had died before the compaction.
    assert table.upsert(frame((1, "a", 1, "x")), id="once").id == made.id
    assert held(table, rows) == {(1, "x"): ("a", 1)}
    assert table.upsert(frame((1, "a", 1, "x")), id="once").id == made.id
    assert kinds(table) == ["append", "compact"]


@pytest.mark.spark
@pytest.mark.from_pyspark("4.1")
def test_streams_of_spark_make_their_rows_seen(spark, tmp_path):
    table, source = make(tmp_path), tmp_path / "source"
    source.mkdir()
    Lake(str(tmp_path / "warehouse")).register(spark, "marked")
    for n in range(2):
        row = {"id": 1, "v": f"v{n}", "n": n, "dt": "a"}
        (source / f"{n}.json").write_text(json.dumps(row))
        stream = spark.readStream.schema("id bigint, v string, n bigint, dt string").json(str(source))
        query = stream.writeStream.format("marked").option("table", "d.t").option("user", "job")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
    assert {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == {1: "v1"}
    assert kinds(table) == ["append", "compact"] * 2
