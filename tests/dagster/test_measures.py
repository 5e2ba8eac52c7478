"""What a table holds, as Dagster's pages show it: true for tables whose rows are merged, and safe for any text of the data."""

import re

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from lakeformat import Lake
from lakeformat.dagster import measures as measuring
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.markdown import cell, markdown_table, size_text
from lakeformat.dagster.measures import measures, rows_by_key
from lakeformat.dagster.pictures import pictures

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
PROPERTIES = {
    "paimon": {"bucket": "1", "write-only": "true"},
    "iceberg": {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")},
}
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-11")


def cells(markdown):
    """The text of each cell of the rows of the one table in `markdown`, which has nothing but text."""
    tokens = MARKDOWN.parse(markdown)
    assert {token.type.removesuffix("_open").removesuffix("_close") for token in tokens} <= {
        *("table", "thead", "tbody", "tr", "th", "td", "inline", "paragraph")
    }
    inlines = [token for token in tokens if token.type == "inline"]
    for token in inlines:
        assert {child.type for child in token.children} <= {"text", "text_special", "code_inline"}, token.content
        is_code = [child.type == "code_inline" for child in token.children]
        assert is_code == [True] or not re.search(r"^[^`|\\]*(://|www\.|@)[^`|\\]*$", token.content), "a link"
    width = sum(token.type == "th_open" for token in tokens)
    texts = ["".join(child.content for child in token.children) for token in inlines]
    return [texts[n : n + width] for n in range(width, len(texts) - len(texts) % width, width)]


@given(st.text(st.characters(codec="utf-8"), max_size=40))
@example("[Click](http://a.example/login)")
@example("![x](http://a.example/p.png)")
@example("<img src=x onerror=alert(1)>")
@example("a\n\n# A heading")
@example("a | b \\| c")
@example("`code` **bold** __init__ ~~no~~ &amp; www.a.example a@b.example")
def test_text_of_the_data_is_shown_as_it_is(text):
    table = markdown_table(["a", text], [[cell(text), cell(1)]]).md_str
    ((shown, one),) = cells(table)
    assert one == "1"
    assert shown.split() == re.sub(r"[\x00-\x1f\x7f]", " ", text).split()


def test_values_are_shown_without_python_names():
    shown = [cell(value) for value in (None, True, b"\x00\xff", 1.5, "x" * 300)]
    assert shown == ["null", "true", "00ff", "1.5", "x" * 200 + "…"]
    sizes = [size_text(size) for size in (0, 999, 1000, 31_276, 999_999, 2_000_000_000, 10**19)]
    assert sizes == ["0 B", "999 B", "1 KB", "31.3 KB", "1 MB", "2 GB", "10,000 PB"]


@pytest.fixture(params=["paimon", "iceberg"])
def table(request, tmp_path):
    """Five keys, of which one is there twice until compaction, and another is deleted."""
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("dt", pa.string(), nullable=False), ("n", pa.int64())]
    )
    key = ["dt", "id"] if request.param == "paimon" else ["id"]
    properties = PROPERTIES[request.param]
    table = Lake(str(tmp_path)).create_table(
        "d.t", schema, format=request.param, partition_by=["dt"], primary_key=key, properties=properties
    )
    rows = [(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "b")]
    table.append(pa.table({"id": [i for i, _ in rows], "dt": [dt for _, dt in rows], "n": [0] * 5}, schema))
    table.upsert(pa.table({"id": [1], "dt": ["a"], "n": [1]}, schema))
    table.delete(where="id = 2")
    return table


def test_rows_of_a_keyed_table_are_those_that_a_reader_sees(table):
    snapshot = table.current_snapshot()
    assert sum(table.inspect.files()["row_count"].to_pylist()) > 4
    held = measures(table, snapshot)
    assert held["dagster/row_count"] == table.scan().count() == 4
    assert held["dagster/size_bytes"] == sum(table.inspect.partitions()["size_bytes"].to_pylist())
    assert held["dagster/last_updated_timestamp"].value == snapshot.timestamp_ms / 1000
    specs = {"1": ({"dt": "a"},), "2": ({"dt": "b"}, {"dt": "c"}), "3": ({"dt": "c"},)}
    assert rows_by_key(table, specs, ["dt"]) == {"1": 2, "2": 2, "3": 0}
    shown = pictures(table)
    assert [row[:2] for row in cells(shown["lake/partitions"].md_str)] == [["a", "2"], ["b", "2"]]
    assert [row[3] for row in cells(shown["lake/history"].md_str)] == ["4", "5", "5"]


def test_rows_that_are_expensive_to_count_are_left_out(table, monkeypatch):
    monkeypatch.setattr(measuring, "READ_TO_COUNT", 0)
    monkeypatch.setattr(measuring, "READ_FOR_HISTORY", 0)
    held = measures(table, table.current_snapshot())
    exact = table.scan().count_if_cheap(0)
    assert held.get("dagster/row_count") == exact
    shown = pictures(table)
    counts = {"a": table.scan(where="dt = 'a'").count_if_cheap(0), "b": table.scan(where="dt = 'b'").count_if_cheap(0)}
    for name, rows, *_ in cells(shown["lake/partitions"].md_str):
        assert rows == ("" if counts[name] is None or exact is None else str(counts[name]))


def test_a_table_without_partitions_is_one_line_with_a_name(tmp_path):
    table = Lake(str(tmp_path)).create_table("d.t", pa.schema([("n", pa.int64())]))
    table.append(pa.table({"n": range(1000)}))
    ((name, rows, files, small, size, _),) = cells(pictures(table)["lake/partitions"].md_str)
    assert (name, rows, files, small) == ("whole table", "1,000", "1", "1")
    assert size.endswith("KB")
    assert "█" not in pictures(table)["lake/history"].md_str


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_the_data_version_is_the_tables_snapshot_also_if_nothing_was_written(lake, instance, format):
    clauses = {"on": "t.id = s.id", "not_matched": [{"then": "insert_all"}]}

    @dg.asset(metadata={"format": format, "write": "merge", "merge": clauses})
    def merged() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.asset(metadata={"format": format, "write": "merge", "merge": clauses})
    def in_the_body(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
        lake.write(context, pa.table({"id": [1]}))
        return dg.MaterializeResult(metadata={"own": 1})

    for _ in range(2):
        result = dg.materialize(
            [merged, in_the_body], resources={"io_manager": LakeIOManager(lake=lake), "lake": lake}, instance=instance
        )
        for event in result.get_asset_materialization_events():
            made = event.step_materialization_data.materialization
            table = lake.lake.table(f"nyc.{made.asset_key.to_user_string()}")
            assert made.tags["dagster/data_version"] == str(table.current_snapshot().id)
        assert result.asset_materializations_for_node("merged")[0].metadata["dagster/row_count"].value == 1
    assert len(lake.lake.table("nyc.merged").snapshots()) == 1


@pytest.mark.parametrize("write", ["upsert", "append", "merge"])
@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_every_event_of_a_range_has_the_rows_of_its_partition_and_of_the_table(lake, instance, write, format):
    merge = {
        "on": "t.id = s.id and t.dt = s.dt",
        "matched": [{"then": "update_all"}],
        "not_matched": [{"then": "insert_all"}],
    }
    key = {"primary_key": ["dt", "id"]} if write == "upsert" else {}
    declared = {"format": format, "write": write, "partition_by": {"date": "dt"}, **key}

    @dg.asset(
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata=declared | ({"merge": merge} if write == "merge" else {}),
    )
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        rows = [(n, day) for day in context.partition_keys for n in range(int(day[-2:]))]
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("dt", pa.string(), nullable=False)])
        return pa.table({"id": [n for n, _ in rows], "dt": [day for _, day in rows]}, schema)

    times = 2 if write == "append" else 1
    for n in (1, 2):
        first, last = ("2026-01-01", "2026-01-03")
        result = dg.materialize(
            [orders],
            resources={"io_manager": LakeIOManager(lake=lake)},
            instance=instance,
            tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
        )
        made = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
        rows = times if n == 2 else 1
        assert {m.partition: m.metadata["dagster/partition_row_count"].value for m in made} == {
            "2026-01-01": 1 * rows, "2026-01-02": 2 * rows, "2026-01-03": 3 * rows
        }  # fmt: skip
        assert {m.metadata["dagster/row_count"].value for m in made} == {6 * rows}
        assert all(m.metadata["dagster/size_bytes"].value > 0 for m in made)
