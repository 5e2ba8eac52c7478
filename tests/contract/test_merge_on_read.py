"""Changes by row beside the data, on either engine: the same rows, the same files of deletes."""

import pyarrow as pa
import pytest

from lakeformat import Lake

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


@pytest.fixture(params=["arrow", pytest.param("spark", marks=pytest.mark.spark)])
def spark_or_not(request):
    return request.getfixturevalue("spark") if request.param == "spark" else None


@pytest.mark.parametrize(("granularity", "format"), [("file", "parquet"), ("partition", "parquet"), ("file", "avro")])
def test_rows_are_marked_found_again_and_compacted_on_either_engine(tmp_path, spark_or_not, granularity, format):
    session = spark_or_not
    t = Lake(tmp_path).create_table(
        "d.t", SCHEMA, format="iceberg", partition_by=["dt"],
        properties={**MERGE_ON_READ, "write.delete.granularity": granularity, "write.format.default": format},
    )  # fmt: skip
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
    assert t.rewrite_position_deletes(full=True, spark=session).kind == "compact"
    assert seen() == expected
    t.compact(full=True, spark=session)
    assert seen() == expected
    assert {path.rpartition(".")[2] for path in t.inspect.files()["path"].to_pylist()} == {format}
    assert t.current_snapshot().rows_added == t.current_snapshot().rows_removed
    assert t.scan().count() == len(expected)
