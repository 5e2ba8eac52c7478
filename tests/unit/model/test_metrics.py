"""What a snapshot says of the commit that made it."""

import pyarrow as pa
import pytest

from lakeformat import Lake

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("dt", pa.string(), nullable=False)])


def rows(ids, dt):
    return pa.table({"id": ids, "dt": [dt] * len(ids)}, schema=SCHEMA)


def test_a_keyed_table_with_a_changelog(tmp_path):
    properties = {"bucket": "2", "changelog-producer": "input"}
    table = Lake(tmp_path).create_table(
        "d.t", SCHEMA, partition_by=["dt"], primary_key=["id", "dt"], properties=properties
    )
    metrics = table.upsert(pa.concat_tables([rows(range(100), "a"), rows([1], "b")])).metrics
    expected = {"partitions_written": 2, "buckets_written": 3, "files_added": 3, "rows_added": 101, "snapshots": 1}
    expected |= {"changelog_files": 3, "changelog_rows": 101, "compacted_files_added": 0, "attempts": 1}
    assert {name: metrics[name] for name in expected} == expected
    assert metrics["duration_ms"] >= 0
    table.upsert(rows(range(50), "a"))
    metrics = table.compact(full=True).metrics
    assert metrics["compacted_files_removed"] == metrics["files_removed"] > 0
    assert metrics["compacted_files_added"] == metrics["files_added"] == 3
    assert metrics["changelog_files"] == metrics["changelog_rows"] == 0
    history = table.snapshots()[0].metrics
    assert (history["changelog_rows"], history["changelog_files"], history["buckets_written"]) == (101, None, None)


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_verbs_of_both_formats(tmp_path, format):
    table = Lake(tmp_path).create_table("d.t", SCHEMA, format=format, partition_by=["dt"])
    metrics = table.append(pa.concat_tables([rows([1, 2], "a"), rows([3], "b")])).metrics
    assert (metrics["partitions_written"], metrics["files_added"], metrics["rows_added"]) == (2, 2, 3)
    assert metrics["buckets_written"] == (2 if format == "paimon" else 0)
    table.append(rows([4], "a"))
    metrics = table.compact(full=True).metrics
    assert metrics["compacted_files_removed"] == 3 - (metrics["compacted_files_added"] == 1)
    assert table.delete("id = 3").metrics["rows_removed"] == 1
