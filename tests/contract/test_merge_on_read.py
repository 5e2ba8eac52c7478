"""Changes by row beside the data, on either engine: the same rows, the same delete files."""

import datetime

import pyarrow as pa
import pytest

from lakeformat import Lake
from lakeformat.engines.row_level import arrow_merge
from tests.draw import IS_LONG

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


@pytest.fixture(params=["arrow", pytest.param("spark", marks=pytest.mark.spark)])
def spark_or_not(request):
    return request.getfixturevalue("spark") if request.param == "spark" else None


def iceberg(granularity, format):
    return {**MERGE_ON_READ, "write.delete.granularity": granularity, "write.format.default": format}


def paimon(format="parquet", **more):
    options = {name.replace("_", "-"): value for name, value in more.items()}
    return {"deletion-vectors.enabled": "true", "file.format": format, "compaction.min.file-num": "100", **options}


KINDS = {
    "iceberg by file": ("iceberg", iceberg("file", "parquet"), "parquet"),
    "iceberg by partition": ("iceberg", iceberg("partition", "parquet"), "parquet"),
    "iceberg in Avro": ("iceberg", iceberg("file", "avro"), "avro"),
    "paimon": ("paimon", paimon(), "parquet"),
    "paimon with 64 bits": ("paimon", {**paimon("orc"), "deletion-vectors.bitmap64": "true"}, "orc"),
    "paimon in buckets": ("paimon", paimon("avro", bucket="3", bucket_key="id"), "avro"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_marked_found_again_and_compacted_on_either_engine(tmp_path, spark_or_not, kind):
    session, (table_format, properties, format) = spark_or_not, KINDS[kind]
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format=table_format, partition_by=["dt"], properties=properties)
    for start in (0, 20):
        ids = range(start, start + 20)
        t.append(pa.table({"id": ids, "v": ["v"] * 20, "dt": ["ab"[i % 2] for i in ids]}, schema=SCHEMA))

    def seen():
        if session is None:
            return sorted(map(tuple, (r.values() for r in t.scan().to_arrow().to_pylist())))
        return sorted(map(tuple, t.scan().to_spark(session).collect()))

    files = set(t.inspect.files()["path"].to_pylist())
    made = t.delete("id % 10 = 3", spark=session)
    assert (made.rows_removed, made.files_removed) == (4, 0)
    assert set(t.inspect.files()["path"].to_pylist()) == files
    made = t.update({"v": "concat(v, '!')", "dt": "'c'"}, where="id in (4, 5, 24)", spark=session)
    assert (made.rows_added, made.rows_removed) == (3, 3)
    expected = sorted(
        (i, "v!" if i in (4, 5, 24) else "v", "c" if i in (4, 5, 24) else "ab"[i % 2]) for i in range(40) if i % 10 != 3
    )
    assert seen() == expected
    source = pa.table({"id": [0, 1, 2, 100], "v": ["m"] * 4, "dt": ["b"] * 4}, schema=SCHEMA)
    source = source if session is None else session.createDataFrame(source)
    made = (
        t.merge_into(source, "t.id = s.id")
        .when_matched("s.id = 0")
        .delete()
        .when_matched()
        .update({"v": "s.v"})
        .when_not_matched()
        .insert_all()
        .merge()
    )
    assert (made.rows_added, made.rows_removed) == (3, 3)
    assert set(t.inspect.files()["path"].to_pylist()) > files
    expected = sorted([(i, "m" if i in (1, 2) else v, dt) for i, v, dt in expected if i != 0] + [(100, "m", "b")])
    assert seen() == expected
    assert sum(t.inspect.partitions()["deleted_row_count"].to_pylist()) == 10
    if table_format == "iceberg":
        assert t.rewrite_position_deletes(full=True, spark=session).kind == "compact"
        assert seen() == expected
    t.compact(full=True, spark=session)
    assert seen() == expected
    assert {path.rpartition(".")[2] for path in t.inspect.files()["path"].to_pylist()} == {format}
    assert t.current_snapshot().rows_added == t.current_snapshot().rows_removed
    assert t.scan().count() == len(expected)
    assert sum(t.inspect.partitions()["deleted_row_count"].to_pylist()) == 0
    t.expire_snapshots(retain_last=1, older_than=datetime.timedelta(0))
    assert seen() == expected
    assert not [path for path in tmp_path.rglob("*index-*") if path.is_file()]
    assert t.remove_orphan_files(older_than=datetime.timedelta(days=-1)) == []


@pytest.mark.spark
@pytest.mark.parametrize("kind", KINDS if IS_LONG else [*KINDS][::2])  # Spark marks rows of the others above.
def test_spark_marks_the_same_rows_part_by_part_and_by_join(tmp_path, spark, monkeypatch, kind):
    table_format, properties, _ = KINDS[kind]
    source = pa.table({"id": range(0, 60, 7), "v": ["m"] * 9, "dt": ["b"] * 9}, schema=SCHEMA)
    found = []
    for limit in (1 << 20, -1):
        monkeypatch.setattr("lakeformat.engines.spark.merge._PART_BYTES", limit)
        lake = Lake(tmp_path / str(limit))
        t = lake.create_table("d.t", SCHEMA, format=table_format, partition_by=["dt"], properties=properties)
        for start in (0, 20):
            ids = range(start, start + 20)
            t.append(pa.table({"id": ids, "v": ["v"] * 20, "dt": ["ab"[i % 2] for i in ids]}, schema=SCHEMA))
        t.delete("id = 8")
        chain = t.merge_into(spark.createDataFrame(source), "t.id = s.id").when_matched("s.id < 10").delete()
        chain = chain.when_matched().update({"v": "s.v"}).when_not_matched_by_source("t.id = 9").update({"dt": "'c'"})
        made = chain.when_not_matched().insert_all().merge()
        deleted = sum(t.inspect.partitions()["deleted_row_count"].to_pylist())
        rows = sorted(map(tuple, (row.values() for row in t.scan().to_arrow().to_pylist())))
        found.append((rows, made.rows_added, made.rows_removed, deleted))
        assert not list(tmp_path.rglob("merge-*"))
    assert found[0] == found[1]
    assert found[0][1:3] == (8, 7)


@pytest.mark.parametrize("kind", ["iceberg by file", "paimon"])
def test_rows_that_are_gone_match_nothing_in_any_batch_of_their_file(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(arrow_merge, "_DECIDE_ROWS", 16)
    table_format, properties, _ = KINDS[kind]
    t = Lake(tmp_path).create_table("d.t", SCHEMA, format=table_format, properties=properties)
    rows = pa.table({"id": range(64), "v": ["v"] * 64, "dt": ["a"] * 64}, schema=SCHEMA)
    t.append(rows)
    t.delete("id % 20 = 3")
    made = t.merge_into(rows, "t.id = s.id").when_matched().update({"v": "'m'"}).when_not_matched().insert_all().merge()
    assert (made.rows_added, made.rows_removed) == (64, 60)
    assert sorted((r["id"], r["v"]) for r in t.scan().to_arrow().to_pylist()) == [
        (i, "v" if i % 20 == 3 else "m") for i in range(64)
    ]
