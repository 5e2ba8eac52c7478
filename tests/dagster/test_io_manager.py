"""LakeIOManager without Spark: every kind of partitions and frame, one commit a run, and what goes wrong."""

import base64
import inspect
import os
import re
import time
import zlib
from datetime import date, datetime

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat import Conflict, InvalidInput, Lake, NotFound, Scan
from lakeformat.dagster.asset_table import as_dagster_failures
from lakeformat.dagster.declaration import declared
from lakeformat.dagster.frames import NoRows, to_read
from lakeformat.dagster.identity import Origin, request_id
from lakeformat.dagster.io_manager import READS_TAG, LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.spark import SparkResource
from lakeformat.dagster.upkeep import Maintain, Upkeep

DAILY = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01")
HOURLY = dg.HourlyPartitionsDefinition("2013-01-01-00:00", end_date="2013-01-03-00:00")
WEEKLY = dg.WeeklyPartitionsDefinition("2013-01-01", end_date="2013-03-01")
MONTHLY = dg.MonthlyPartitionsDefinition("2013-01-01", end_date="2014-01-01")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
CELLS = dg.MultiPartitionsDefinition({"day": DAILY, "region": REGIONS})


@pytest.fixture
def io(lake):
    return LakeIOManager(lake=lake, spark=SparkResource())


@pytest.fixture
def run(lake, io, instance):
    """Materialize assets for a key, a range of keys, or without partitions."""

    def run(*assets, key=None, keys=None, raises=True, selection=None, **options):
        tags = options.pop("tags", {})
        if keys:
            start, end = keys
            tags |= {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
        return dg.materialize(
            list(assets),
            resources={"io_manager": io, "lake": lake},
            instance=instance,
            partition_key=key,
            tags=tags,
            raise_on_error=raises,
            selection=selection,
            **options,
        )

    return run


FORMATS = ["paimon", "iceberg"]
IS_LONG = int(os.environ.get("LAKEFORMAT_SEEDS", "50")) > 1000  # `make test-long`.


def pytest_generate_tests(metafunc):
    """Tests that name `format` run on both. The others take one by their name, and both in `make test-long`: the manager calls the same
    verbs of a table, whatever its format."""
    if any(marker.args[0] == "format" for marker in metafunc.definition.iter_markers("parametrize")):
        return
    both = IS_LONG or "format" in inspect.signature(metafunc.function).parameters
    turn = zlib.crc32(metafunc.function.__name__.encode()) % 2
    metafunc.parametrize("format", FORMATS if both else [FORMATS[turn]], indirect=True)


@pytest.fixture(autouse=True)
def format(request, monkeypatch):
    """The format of all tables that a test declares."""
    monkeypatch.setitem(DECLARED, "format", request.param)
    return request.param


DECLARED = {}


def single(metadata=None, **options):
    return dg.asset(
        backfill_policy=dg.BackfillPolicy.single_run(), metadata={**DECLARED, **(metadata or {})}, **options
    )


def daily_asset(rows, name="orders", **options):
    """An asset of daily rows; `rows` is a dict of days, so that a test can change what the asset gives."""

    @single(name=name, partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}}, **options)
    def asset(context: dg.AssetExecutionContext) -> pa.Table:
        days = [(day, n) for day in context.partition_keys for n in rows.get(day, [])]
        return pa.table(
            {"dt": pa.array([d for d, _ in days], pa.string()), "n": pa.array([n for _, n in days], pa.int64())}
        )

    return asset


def content(lake, name="nyc.orders", **scan):
    rows = lake.lake.table(name).scan(**scan).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=lambda row: tuple((v is None, v) for v in row))


def materializations(result):
    return [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]


def test_a_range_of_days_is_one_snapshot_and_each_day_reports_its_rows(run, lake):
    rows = {"2013-01-01": [1, 2], "2013-01-03": [3]}
    result = run(daily_asset(rows), keys=("2013-01-01", "2013-01-03"))
    (snapshot,) = lake.lake.table("nyc.orders").snapshots()
    events = {m.partition: m for m in materializations(result)}
    counts = {day: m.metadata["dagster/partition_row_count"].value for day, m in events.items()}
    assert counts == {"2013-01-01": 2, "2013-01-02": 0, "2013-01-03": 1}
    assert {m.tags["dagster/data_version"] for m in events.values()} == {str(snapshot.id)}
    assert content(lake) == [("2013-01-01", 1), ("2013-01-01", 2), ("2013-01-03", 3)]


def test_the_event_log_says_what_was_written(run, lake, format):
    result = run(
        daily_asset({"2013-01-01": [1, 2]}, tags={"a": "b"}), key="2013-01-01", tags={"dagster/backfill": "fill1"}
    )
    (found,) = materializations(result)
    metadata = {name: value.value for name, value in found.metadata.items()}
    snapshot = lake.lake.table("nyc.orders").current_snapshot()
    assert metadata["dagster/table_name"] == "nyc.orders"
    assert metadata["dagster/uri"].endswith("nyc.db/orders")
    assert metadata["dagster/storage_kind"] == format
    assert [c.name for c in metadata["dagster/column_schema"].columns] == ["dt", "n"]
    assert metadata["lake/snapshot_id"] == str(snapshot.id)
    assert metadata["lake/partitions_in_commit"] == 1
    assert (metadata["lake/files_added"], metadata["lake/files_removed"]) == (1, 0)
    assert metadata["lake/bytes_added"] > 0
    assert metadata["lake/commit_milliseconds"] >= 0
    assert metadata["lake/preview"].splitlines()[2] == "| 2013-01-01 | 1 |"
    assert (metadata["dagster/row_count"], metadata["dagster/partition_row_count"]) == (2, 2)
    assert metadata["dagster/size_bytes"] == sum(
        lake.lake.table("nyc.orders").inspect.files()["size_bytes"].to_pylist()
    )
    assert metadata["dagster/last_updated_timestamp"] == snapshot.timestamp_ms / 1000
    assert snapshot.properties["dagster/run_id"] == result.run_id
    assert snapshot.properties["dagster/backfill"] == "fill1"
    assert snapshot.properties["dagster/partitions"] == "2013-01-01"


def test_a_range_reports_its_commit_once_and_each_day_its_own_measures(run, lake):
    rows = {"2013-01-01": [1, 2], "2013-01-03": [3]}
    asset = daily_asset(rows)
    run(asset, keys=("2013-01-01", "2013-01-03"))
    rows["2013-01-01"] = [4, 5, 6]
    result = run(asset, keys=("2013-01-01", "2013-01-03"))
    (whole,) = (e.asset_observation_data.asset_observation for e in result.get_asset_observation_events())
    assert (whole.asset_key, whole.partition) == (dg.AssetKey("orders"), None)
    whole = {name: value.value for name, value in whole.metadata.items()}
    assert (whole["lake/rows_added"], whole["lake/rows_removed"], whole["lake/partitions_in_commit"]) == (4, 3, 3)
    assert len(whole["lake/preview"].splitlines()) == 2 + 4
    days = {m.partition: {name: value.value for name, value in m.metadata.items()} for m in materializations(result)}
    told = ("lake/rows_added", "lake/rows_removed", "lake/files_removed", "dagster/partition_row_count")
    assert {day: tuple(metadata[name] for name in told) for day, metadata in days.items()} == {
        "2013-01-01": (3, 2, 1, 3),
        "2013-01-02": (0, 0, 0, 0),
        "2013-01-03": (1, 1, 1, 1),
    }
    for metadata in days.values():
        assert metadata["lake/snapshot_id"] == str(lake.lake.table("nyc.orders").current_snapshot().id)
        assert not {"lake/preview", "lake/commit_milliseconds", "lake/partitions_in_commit"} & metadata.keys()


def test_a_run_says_where_its_time_went(run, lake, instance):
    @dg.asset
    def source() -> pa.Table:
        return pa.table({"n": [1, 2]})

    @dg.asset
    def slow(source: pa.Table) -> pa.Table:
        time.sleep(0.05)
        return source

    resources = {"io_manager": LakeIOManager(lake=lake)}
    result = dg.materialize([source, slow], resources=resources, instance=instance)
    (event,) = result.asset_materializations_for_node("slow")
    seconds = {name: event.metadata[f"lake/{name}_seconds"].value for name in ("read", "compute", "write")}
    assert 0.05 <= seconds["compute"] < 5
    assert all(0 < part < 5 for part in seconds.values())
    (event,) = result.asset_materializations_for_node("source")
    assert "lake/write_seconds" in event.metadata
    assert "lake/read_seconds" not in event.metadata, "it has no input"


def test_a_partition_column_that_the_frame_lacks_is_filled_in_for_one_partition(run, lake):
    @single(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}})
    def orders() -> pa.Table:
        return pa.table({"n": [1, 2]})

    run(orders, key="2013-01-01")
    run(orders, key="2013-01-02")
    run(orders, key="2013-01-01")
    assert sorted(content(lake, columns=["dt", "n"])) == [(f"2013-01-0{day}", n) for day in (1, 2) for n in (1, 2)]
    assert not run(orders, keys=("2013-01-01", "2013-01-02"), raises=False).success, (
        "of which day the rows are is unknown"
    )
    lake.lake.create_table(
        "nyc.dated", pa.schema([("dt", pa.date32()), ("n", pa.int64())]), partition_by=["dt"], format=DECLARED["format"]
    )

    @single(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}})
    def dated() -> pa.RecordBatchReader:
        return pa.table({"n": [3]}).to_reader()

    run(dated, key="2013-01-02")
    assert content(lake, "nyc.dated") == [(date(2013, 1, 2), 3)]


def test_declared_lineage_reaches_the_event_log(run):
    @single(metadata={"partition_by": "dt", "lineage": {"n": ["raw.a", "raw.b"], "*": "raw"}}, partitions_def=DAILY)
    def derived() -> pa.Table:
        return pa.table({"dt": ["2013-01-01"], "n": [1]})

    (found,) = materializations(run(derived, key="2013-01-01"))
    lineage = found.metadata["dagster/column_lineage"].value.deps_by_column
    assert [(d.asset_key.to_user_string(), d.column_name) for d in lineage["n"]] == [("raw", "a"), ("raw", "b")]
    assert [(d.asset_key.to_user_string(), d.column_name) for d in lineage["dt"]] == [("raw", "dt")]


def test_a_rerun_replaces_exactly_its_partition(run, lake):
    rows = {"2013-01-01": [1], "2013-01-02": [2], "2013-01-03": [3]}
    asset = daily_asset(rows)
    run(asset, keys=("2013-01-01", "2013-01-03"))
    before = files_by_day(lake)
    rows["2013-01-02"] = [20, 21]
    run(asset, key="2013-01-02")
    after = files_by_day(lake)
    assert content(lake) == [("2013-01-01", 1), ("2013-01-02", 20), ("2013-01-02", 21), ("2013-01-03", 3)]
    assert {day for day in after if after[day] != before[day]} == {"2013-01-02"}


def test_a_rerun_without_rows_leaves_the_partition_empty(run, lake):
    rows = {"2013-01-01": [1], "2013-01-02": [2]}
    asset = daily_asset(rows)
    run(asset, keys=("2013-01-01", "2013-01-02"))
    del rows["2013-01-02"]
    result = run(asset, key="2013-01-02")
    assert content(lake) == [("2013-01-01", 1)]
    assert materializations(result)[0].metadata["dagster/partition_row_count"].value == 0


def test_a_row_of_another_partition_fails_the_step_at_once_and_changes_nothing(run, lake, instance):
    tries = []

    @single(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}}, retry_policy=dg.RetryPolicy(max_retries=3))
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        tries.append(context.partition_key)
        leaked = "2013-02-09" if len(context.instance.get_runs()) > 1 else context.partition_key
        return pa.table({"dt": [context.partition_key, leaked], "n": [1, 2]})

    run(orders, key="2013-01-01")
    result = run(orders, key="2013-01-02", raises=False)
    assert not result.success
    (failure,) = result.get_step_failure_events()
    said = failure.step_failure_data.user_failure_data.description
    assert "2013-02-09" in said
    assert "2013-01-02" in said
    assert "nothing was committed" in said
    assert tries == ["2013-01-01", "2013-01-02"]
    assert len(lake.lake.table("nyc.orders").snapshots()) == 1


def test_a_step_that_is_retried_after_its_commit_does_not_write_twice(run, lake):
    """The answer is lost after the commit: the second attempt finds that it has landed."""

    class LosesTheFirstAnswer(LakeIOManager):
        def handle_output(self, context: dg.OutputContext, obj) -> None:
            super().handle_output(context, obj)
            if context.step_context.previous_attempt_count == 0:
                raise Conflict("the answer was lost")

    asset = daily_asset({"2013-01-01": [1, 2]}, retry_policy=dg.RetryPolicy(max_retries=2))
    result = run_with(LosesTheFirstAnswer(lake=lake, spark=SparkResource()), asset, lake)
    assert result.success
    assert [e.step_key for e in result.all_events if e.is_step_up_for_retry] == ["orders"]
    assert len(lake.lake.table("nyc.orders").snapshots()) == 1
    (found,) = materializations(result)
    assert found.metadata["dagster/partition_row_count"].value == 2


def test_a_write_of_partitions_is_the_same_in_every_process(run, lake):
    """Dagster gives keys that are no times in the order of a set of texts, which is another in each process."""
    letters = sorted("abcdefghijkl")
    options = {
        "partitions_def": dg.StaticPartitionsDefinition(letters[::-1]),
        "backfill_policy": dg.BackfillPolicy.single_run(),
    }
    seen = []

    @dg.asset(metadata={"partition_by": "c", "write": "append"}, **options)
    def events(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"c": letters, "n": range(12)})

    @dg.asset(metadata={"partition_by": "c"}, **options)
    def later(events: dict[str, pa.Table]) -> pa.Table:
        seen.extend(events)
        return pa.concat_tables(events.values())

    run(events, later, keys=("l", "a"))
    assert seen == letters
    (snapshot,) = lake.lake.table("nyc.events").snapshots()
    assert snapshot.properties["dagster/partitions"] == ", ".join(letters)
    to, origin = declared(dg.AssetKey("events"), "nyc.events", None, {"write": "append"}), Origin("run", "events")
    assert len({request_id(to, keys, origin) for keys in (letters, letters[::-1], [*letters[6:], *letters[:6]])}) == 1


def test_a_lost_race_asks_dagster_for_a_retry(run, lake, io):
    class LosesTheFirstRace(LakeIOManager):
        def handle_output(self, context: dg.OutputContext, obj) -> None:
            first = context.step_context.previous_attempt_count == 0
            with as_dagster_failures(context.asset_key, ["2013-01-01"]):
                if first:
                    raise Conflict("somebody else was there")
            super().handle_output(context, obj)

    asset = daily_asset({"2013-01-01": [1]})
    result = run_with(LosesTheFirstRace(lake=lake, spark=SparkResource()), asset, lake)
    assert result.success
    assert content(lake) == [("2013-01-01", 1)]


def run_with(io, asset, lake):
    return dg.materialize([asset], resources={"io_manager": io, "lake": lake}, partition_key="2013-01-01")


KINDS = {
    "daily text": (DAILY, {"date": "dt"}, {"dt": pa.string()}, ["2013-01-05"], {"dt": "2013-01-05"}),
    "daily date": (DAILY, "dt", {"dt": pa.date32()}, ["2013-01-05"], {"dt": date(2013, 1, 5)}),
    "daily int": (DAILY, "dt", {"dt": pa.int32()}, ["2013-01-05"], {"dt": 20130105}),
    "daily time": (DAILY, "dt", {"dt": pa.timestamp("us")}, ["2013-01-05"], {"dt": datetime(2013, 1, 5)}),
    "hourly": (
        HOURLY,
        {"date": "dt", "hour": "hour"},
        {"dt": pa.string(), "hour": pa.int32()},
        ["2013-01-01-07:00"],
        {"dt": "2013-01-01", "hour": 7},
    ),
    "weekly": (WEEKLY, "week", {"week": pa.date32()}, ["2013-01-06"], {"week": date(2013, 1, 6)}),
    "weekly over days": (WEEKLY, {"days": "dt"}, {"dt": pa.string()}, ["2013-01-06"], {"dt": "2013-01-08"}),
    "monthly": (MONTHLY, {"month": "month"}, {"month": pa.string()}, ["2013-02-01"], {"month": "2013-02"}),
    "static": (REGIONS, "region", {"region": pa.string()}, ["eu"], {"region": "eu"}),
    "dynamic": (dg.DynamicPartitionsDefinition(name="files"), "file", {"file": pa.string()}, ["a"], {"file": "a"}),
    "two dimensions": (
        CELLS,
        {"day": "dt", "region": "region"},
        {"dt": pa.date32(), "region": pa.string()},
        ["2013-01-05|eu"],
        {"dt": date(2013, 1, 5), "region": "eu"},
    ),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_partitions_is_written_read_and_emptied(kind, run, lake, instance):
    definition, mapping, types, keys, values = KINDS[kind]
    instance.add_dynamic_partitions("files", ["a", "b"])
    give = [{**values, "n": 1}]

    @single(name="orders", partitions_def=definition, metadata={"partition_by": mapping})
    def orders() -> pa.Table:
        return pa.Table.from_pylist(give, schema=pa.schema([*types.items(), ("n", pa.int64())]))

    seen = []

    @single(partitions_def=definition, metadata={"partition_by": mapping})
    def copied(orders: pa.Table) -> pa.Table:
        seen.append(orders.to_pylist())
        return orders

    result = run(orders, copied, key=keys[0])
    assert seen == [[{**values, "n": 1}]]
    counts = {
        m.asset_key.to_user_string(): m.metadata["dagster/partition_row_count"].value for m in materializations(result)
    }
    assert counts == {"orders": 1, "copied": 1}
    give.clear()
    run(orders, key=keys[0])
    assert content(lake) == []
    assert content(lake, "nyc.copied") == [(*values.values(), 1)]


# --- hidden partitions --------------------------------------------------------------------------------------------------


def at(day, hour=12):
    return datetime.fromisoformat(f"{day}T{hour:02d}:00:00")


def booked(give, name="booked", definition=DAILY, columns=None, **metadata):
    """An asset whose rows fall onto partitions by their time; `give` are its rows, whatever partitions are asked for."""
    schema = pa.schema([("booked_at", pa.timestamp("us")), *(columns or {}).items(), ("n", pa.int64())])

    @single(name=name, partitions_def=definition, metadata={"partition_by": {"window": "booked_at"}, **metadata})
    def asset() -> pa.Table:
        return pa.Table.from_pylist(give, schema=schema)

    return asset


def counts_of(result):
    return {m.partition: m.metadata["dagster/partition_row_count"].value for m in materializations(result)}


@pytest.fixture
def days(format):
    """How a table is laid out by days of `booked_at`, where its format has hidden partitions."""
    return {"layout": ["days(booked_at)"]} if format == "iceberg" else {}


def test_hidden_partitions_are_replaced_by_the_time_of_the_rows(run, lake, days):
    give = [{"booked_at": at(f"2013-01-0{day}", hour), "n": day} for day in (1, 2, 3) for hour in (0, 23)]
    orders = booked(give, **days)
    result = run(orders, keys=("2013-01-01", "2013-01-04"))
    assert counts_of(result) == {"2013-01-01": 2, "2013-01-02": 2, "2013-01-03": 2, "2013-01-04": 0}
    (first,) = lake.lake.table("nyc.booked").snapshots()
    give[:] = [{"booked_at": at("2013-01-02"), "n": 20}]
    assert counts_of(run(orders, key="2013-01-02")) == {"2013-01-02": 1}
    assert sorted(row[1] for row in content(lake, "nyc.booked")) == [1, 1, 3, 3, 20]
    if days:
        second = lake.lake.table("nyc.booked").current_snapshot()
        assert (second.files_removed, second.rows_removed, second.rows_added) == (1, 2, 1), "files of that day alone"
    give.clear()
    assert counts_of(run(orders, key="2013-01-01")) == {"2013-01-01": 0}
    assert sorted(row[1] for row in content(lake, "nyc.booked")) == [3, 3, 20]
    assert lake.lake.table("nyc.booked").scan(snapshot_id=first.id).count() == 6


def test_a_row_of_another_day_is_refused_in_hidden_partitions_too(run, lake, days):
    give = [{"booked_at": at("2013-01-01"), "n": 1}]
    orders = booked(give, **days)
    run(orders, key="2013-01-01")
    give.append({"booked_at": at("2013-01-03", 0), "n": 2})
    result = run(orders, keys=("2013-01-01", "2013-01-02"), raises=False)
    (failure,) = result.get_step_failure_events()
    said = failure.step_failure_data.user_failure_data.description
    assert "2013-01-01, 2013-01-02" in said
    assert "nothing was committed" in said
    assert not [e for e in result.all_events if e.is_step_up_for_retry]
    assert len(lake.lake.table("nyc.booked").snapshots()) == 1


def test_weeks_over_hidden_days_and_what_comes_after_them_read_their_own_rows(run, lake, days):
    give = [{"booked_at": at(f"2013-01-{day:02d}", 0), "n": day} for day in range(6, 20)]
    weekly = booked(give, definition=WEEKLY, **days)
    seen = []

    @single(partitions_def=WEEKLY, metadata={"partition_by": {"window": "booked_at"}, **days})
    def copied(booked: pa.Table) -> pa.Table:
        seen.append(sorted(booked["n"].to_pylist()))
        return booked

    assert counts_of(run(weekly, keys=("2013-01-06", "2013-01-13"))) == {"2013-01-06": 7, "2013-01-13": 7}
    run(weekly, copied, selection=[copied], key="2013-01-13")
    run(weekly, copied, selection=[copied], keys=("2013-01-06", "2013-01-13"))
    assert seen == [list(range(13, 20)), list(range(6, 20))]
    give[:] = [{"booked_at": at("2013-01-12"), "n": 0}]
    run(weekly, key="2013-01-06")
    assert sorted(row[1] for row in content(lake, "nyc.booked")) == [0, *range(13, 20)]


def test_cells_of_hidden_days_and_regions(run, lake, days):
    columns = {"region": pa.string()}
    give = [{"booked_at": at(f"2013-01-0{day}"), "region": r, "n": day} for day in (1, 2) for r in ("eu", "us")]
    mapping = {"partition_by": {"day": {"window": "booked_at"}, "region": "region"}}
    layout = {"layout": ["days(booked_at)", "region"]} if days else {}
    cells = booked(give, definition=CELLS, columns=columns, **mapping, **layout)
    result = run(cells, keys=("2013-01-01|eu", "2013-01-02|us"))
    assert set(counts_of(result).values()) == {1}
    assert len(lake.lake.table("nyc.booked").snapshots()) == 1
    give[:] = [{"booked_at": at("2013-01-02"), "region": "eu", "n": 20}]
    run(cells, key="2013-01-02|eu")
    assert sorted(row[2] for row in content(lake, "nyc.booked")) == [1, 1, 2, 20]


def test_a_value_mapped_onto_hidden_partitions_is_refused_with_the_way_out(run, format):
    if format == "iceberg":
        orders = booked([], partition_by={"date": "booked_at"}, layout=["days(booked_at)"])
        result = run(orders, key="2013-01-01", raises=False)
        (failure,) = result.get_step_failure_events()
        assert "partition_by': {'window': 'booked_at'}" in str(failure.step_failure_data)


def test_a_rectangle_of_cells_is_one_snapshot(run, lake):
    @single(partitions_def=CELLS, metadata={"partition_by": {"day": "dt", "region": "region"}})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        cells = [key.keys_by_dimension for key in context.partition_keys]
        return pa.table(
            {"dt": [c["day"] for c in cells], "region": [c["region"] for c in cells], "n": range(len(cells))}
        )

    result = run(orders, keys=("2013-01-01|eu", "2013-01-03|us"))
    assert len(materializations(result)) == 6
    assert len(lake.lake.table("nyc.orders").snapshots()) == 1
    assert {m.metadata["dagster/partition_row_count"].value for m in materializations(result)} == {1}


FRAMES = {
    "arrow": (pa.Table, lambda rows: rows),
    "reader": (pa.RecordBatchReader, lambda rows: rows.to_reader()),
    "pandas": (pd.DataFrame, lambda rows: rows.to_pandas()),
    "polars": (pl.DataFrame, pl.from_arrow),
    "lazy polars": (pl.LazyFrame, lambda rows: pl.from_arrow(rows).lazy()),
}


@pytest.mark.parametrize("is_optional", [False, True])
@pytest.mark.parametrize("library", FRAMES)
def test_frames_of_every_library_go_in_and_come_out(library, is_optional, run, lake):
    kind, make = FRAMES[library]
    rows = pa.table({"dt": ["2013-01-01", "2013-01-01"], "n": [1, None], "x": [0.5, 1.5]})

    def orders():
        return make(rows)

    orders.__annotations__["return"] = kind
    seen = []

    def receives(orders) -> pa.Table:
        seen.append(type(orders))
        return rows

    receives.__annotations__["orders"] = kind | None if is_optional else kind
    declared = {"partitions_def": DAILY, "metadata": {"partition_by": "dt"}}
    result = run(
        single(name="orders", **declared)(orders), single(name="receives", **declared)(receives), key="2013-01-01"
    )
    assert result.success
    assert issubclass(seen[0], kind)
    assert content(lake) == [("2013-01-01", 1, 0.5), ("2013-01-01", None, 1.5)]


def test_a_scan_can_be_asked_for_and_is_not_read(run):
    seen = []

    @single(partitions_def=DAILY, metadata={"partition_by": "dt"})
    def counted(orders: Scan) -> pa.Table:
        seen.append(orders.count())
        return pa.table({"dt": ["2013-01-01"], "n": [orders.count()]})

    run(daily_asset({"2013-01-01": [1, 2], "2013-01-02": [3]}), keys=("2013-01-01", "2013-01-02"))
    run(daily_asset({}), counted, selection=[counted], key="2013-01-01")
    assert seen == [2]


def test_a_monthly_asset_reads_the_days_of_its_month(run, lake):
    @single(partitions_def=MONTHLY, metadata={"partition_by": {"month": "month"}})
    def months(orders: pa.Table) -> pa.Table:
        total = pc.sum(orders["n"]).as_py()
        return pa.table({"month": ["2013-01"], "n": [total]})

    orders = daily_asset({"2013-01-01": [1], "2013-01-31": [2], "2013-02-01": [4]})
    run(orders, keys=("2013-01-01", "2013-02-01"))
    run(orders, months, selection=[months], key="2013-01-01")
    assert content(lake, "nyc.months") == [("2013-01", 3)]


def test_an_asset_without_partitions_is_replaced_whole_and_counts_its_rows(run, lake):
    give = [1, 2, 3]

    @dg.asset(metadata=DECLARED)
    def airlines() -> pa.Table:
        return pa.table({"n": give})

    run(airlines)
    give[:] = [9]
    (found,) = materializations(run(airlines))
    assert content(lake, "nyc.airlines") == [(9,)]
    assert found.metadata["dagster/row_count"].value == 1


def test_inputs_are_pinned_to_a_snapshot_or_tag_by_metadata_and_by_configuration(run, lake):
    rows = {"2013-01-01": [1]}
    orders = daily_asset(rows)
    run(orders, key="2013-01-01")
    first = lake.lake.table("nyc.orders").current_snapshot()
    lake.lake.table("nyc.orders").create_tag("closed")
    rows["2013-01-01"] = [2]
    run(orders, key="2013-01-01")
    seen = []

    def reads(pin):
        @single(partitions_def=DAILY, metadata={"partition_by": "dt"}, ins={"orders": dg.AssetIn(metadata=pin)})
        def copied(orders: pa.Table) -> pa.Table:
            seen.append(orders["n"].to_pylist())
            return orders

        return copied

    for pin in ({}, {"snapshot_id": first.id}, {"tag": "closed"}, {"as_of": first.timestamp_ms}):
        copied = reads(pin)
        run(orders, copied, selection=[copied], key="2013-01-01")
    assert seen == [[2], [1], [1], [1]]

    copied = reads({})
    for pin in ({"snapshot_id": first.id}, {"tag": "closed"}, {"snapshot": str(first.id)}):
        config = {"resources": {"io_manager": {"config": {"read_at": {"orders": pin}}}}}
        run(orders, copied, selection=[copied], keys=("2013-01-01", "2013-01-02"), run_config=config)
    assert seen[4:] == [[1], [1], [1]]
    config = {"resources": {"io_manager": {"config": {"read_at": {"orders": {"snapshot": "first"}}}}}}
    result = run(orders, copied, selection=[copied], key="2013-01-01", run_config=config, raises=False)
    failure = result.get_step_failure_events()[0].step_failure_data.user_failure_data
    assert "read_at: snapshot='first'; give a snapshot's id in digits" in failure.description


def test_a_run_notes_which_snapshots_it_reads(run, lake, instance):
    @single(partitions_def=DAILY, metadata={"partition_by": "dt"})
    def copied(orders: pa.Table) -> pa.Table:
        return orders

    result = run(daily_asset({"2013-01-01": [1]}), copied, key="2013-01-01")
    tags = instance.get_run_by_id(result.run_id).tags
    assert tags[f"{READS_TAG}/copied/nyc.orders"] == str(lake.lake.table("nyc.orders").scan().snapshot_id)


def test_an_upstream_table_that_is_not_there_is_named(run):
    @single(partitions_def=DAILY, metadata={"partition_by": "dt"})
    def copied(orders: pa.Table) -> pa.Table:
        return orders

    result = run(daily_asset({}), copied, selection=[copied], key="2013-01-01", raises=False)
    (failure,) = result.get_step_failure_events()
    assert "nyc.orders" in str(failure.step_failure_data)


@pytest.mark.parametrize(
    ("metadata", "give", "message"),
    [
        ({}, {"dt": ["2013-01-01"]}, "no 'partition_by'"),
        ({"partition_by": "dt"}, None, "returned NoneType"),
    ],
)
def test_a_wrong_declaration_or_value_fails_with_the_way_out(metadata, give, message, run):
    @single(partitions_def=DAILY, metadata=metadata, retry_policy=dg.RetryPolicy(max_retries=2))
    def orders():
        return pa.table(give) if give else None

    result = run(orders, key="2013-01-01", raises=False)
    (failure,) = result.get_step_failure_events()
    assert message in str(failure.step_failure_data)
    assert not [e for e in result.all_events if e.is_step_up_for_retry]


def test_a_body_may_write_itself_and_report_the_same(run, lake):
    @single(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}})
    def orders(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
        return lake.write(
            context, pl.DataFrame({"dt": list(context.partition_keys), "n": [1] * len(context.partition_keys)})
        )

    result = run(orders, keys=("2013-01-01", "2013-01-03"))
    events = materializations(result)
    assert [m.metadata["dagster/partition_row_count"].value for m in events] == [1, 1, 1]
    (snapshot,) = lake.lake.table("nyc.orders").snapshots()
    assert {m.tags["dagster/data_version"] for m in events} == {str(snapshot.id)}


def test_a_body_writes_each_table_of_a_multi_asset_by_name(run, lake):
    specs = [dg.AssetSpec(name, metadata={"partition_by": {"date": "dt"}}) for name in ("left", "right")]
    options = {"specs": specs, "partitions_def": DAILY, "backfill_policy": dg.BackfillPolicy.single_run()}

    @dg.multi_asset(can_subset=True, **options)
    def both(context: dg.AssetExecutionContext, lake: LakeResource):
        days = list(context.partition_keys)
        for key in context.selected_asset_keys:
            yield lake.write(context, pa.table({"dt": days, "n": [1] * len(days)}), asset=key)

    events = materializations(run(both, keys=("2013-01-01", "2013-01-02")))
    assert {m.asset_key.to_user_string() for m in events} == {"left", "right"}
    assert [m.metadata["dagster/partition_row_count"].value for m in events] == [1] * 4
    run(both, key="2013-01-03", selection=["left"])
    assert [lake.lake.table(f"nyc.{name}").scan().count() for name in ("left", "right")] == [3, 2]


@pytest.mark.parametrize(
    ("named", "message"), [(None, "makes left, right; name one"), ("up", "makes left, right, and not up; name one")]
)
def test_a_write_that_does_not_name_its_table_of_several_is_refused(run, named, message):
    @dg.multi_asset(specs=[dg.AssetSpec("left"), dg.AssetSpec("right")])
    def unclear(context: dg.AssetExecutionContext, lake: LakeResource):
        yield lake.write(context, pa.table({"n": [2]}), asset=named)

    with pytest.raises(dg.Failure, match=message):
        run(unclear)


def test_a_write_in_an_op_is_refused_with_the_way_out(lake, instance):
    @dg.op
    def fetch(context: dg.OpExecutionContext, lake: LakeResource) -> None:
        lake.write(context, pa.table({"n": [2]}))

    @dg.job(resource_defs={"lake": lake})
    def job():
        fetch()

    with pytest.raises(dg.Failure, match=r"fetch is an op; return the rows with out=dg.Out\(metadata"):
        job.execute_in_process(instance=instance)


def test_an_asset_of_its_own_earlier_partitions_begins_with_nothing(run, lake):
    """Also where the table is not there yet, and the first partition depends on none."""
    seen = []
    the_day_before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    @dg.asset(
        partitions_def=DAILY,
        metadata={**DECLARED, "partition_by": "dt"},
        ins={"total": dg.AssetIn(partition_mapping=the_day_before)},
    )
    def total(context: dg.AssetExecutionContext, total: pa.Table) -> pa.Table:
        seen.append(total.to_pydict())
        return pa.table({"dt": [context.partition_key], "n": [1]})

    for day in ("2013-01-01", "2013-01-02"):
        run(total, key=day)
    assert seen == [{}, {"dt": ["2013-01-01"], "n": [1]}]


@pytest.mark.parametrize("frame", [pa.Table, pa.RecordBatchReader, pd.DataFrame, pl.DataFrame, pl.LazyFrame])
def test_no_rows_have_the_form_that_is_asked_for(frame):
    rows = to_read(NoRows(), frame, SparkResource())
    assert isinstance(rows, frame)
    assert pa.table(rows.collect() if frame is pl.LazyFrame else rows).num_columns == 0
    with pytest.raises(NotFound, match="annotate the input as pyarrow"):
        to_read(NoRows(), Scan, SparkResource())


def test_a_second_write_of_a_body_is_refused_and_that_of_a_retry_is_found(run, lake):
    """Not taken for what was written already, whose rows it would lose."""

    @single(metadata={"write": "append"}, retry_policy=dg.RetryPolicy(max_retries=1))
    def events(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
        lake.write(context, pa.table({"n": [1]}))
        if not context.retry_number:
            raise RuntimeError("what a retry may mend")
        return lake.write(context, pa.table({"n": [2]}))

    result = run(events, raises=False)
    (failure,) = result.get_step_failure_events()
    assert "lake.write has written nyc.events in this step" in str(failure.step_failure_data)
    assert content(lake, "nyc.events") == [(1,)]


OPTION = {"paimon": "file.format", "iceberg": "write.format.default"}


def test_table_name_format_and_properties_come_from_metadata(run, lake, format):
    @single(
        partitions_def=DAILY,
        key_prefix=["sales", "eu"],
        metadata={"partition_by": "dt", "table": "shop.orders", "table_properties": {OPTION[format]: "orc"}},
    )
    def orders() -> pa.Table:
        return pa.table({"dt": ["2013-01-01"], "n": [1]})

    run(orders, key="2013-01-01")
    assert lake.lake.tables() == ["shop.orders"]
    assert lake.lake.table("shop.orders").properties[OPTION[format]] == "orc"
    assert lake.lake.table("shop.orders").format == format
    assert lake.table_name(dg.AssetKey(["sales", "eu", "orders"]), {}) == "sales_eu.orders"


def files_by_day(lake, name="nyc.orders"):
    found = {}
    for row in lake.lake.table(name).inspect.files().to_pylist():
        found.setdefault(row["partition"].split("=")[-1].rstrip("/"), set()).add(row["path"])
    return found


# --- appending ----------------------------------------------------------------------------------------------------------


def events_asset(give, mode="write", **options):
    @dg.asset(metadata={**DECLARED, mode: "append"}, **options)
    def events() -> pa.Table:
        return pa.table({"n": pa.array(give, pa.int64())})

    return events


@pytest.mark.parametrize("mode", ["write", "write_mode"])
def test_append_adds_at_each_materialization_and_removes_nothing(mode, run, lake):
    give = [1, 2]
    events = events_asset(give, mode)
    run(events)
    give[:] = [3]
    (found,) = materializations(run(events))
    assert content(lake, "nyc.events") == [(1,), (2,), (3,)]
    assert (found.metadata["lake/rows_added"].value, found.metadata["lake/rows_removed"].value) == (1, 0)
    assert found.metadata["dagster/row_count"].value == lake.lake.table("nyc.events").scan().count()


def test_partitions_of_an_appending_asset_gather_and_one_that_is_run_again_adds_again(run, lake):
    @single(partitions_def=DAILY, metadata={"write": "append"})
    def events(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"n": [int(day[-1]) for day in context.partition_keys]})

    seen = []

    @single(partitions_def=DAILY, metadata={"partition_by": "dt"})
    def copied(events: pa.Table) -> pa.Table:
        seen.append(events.num_rows)
        return pa.table({"dt": pa.array([], pa.string()), "n": pa.array([], pa.int64())})

    run(events, keys=("2013-01-01", "2013-01-03"))
    run(events, copied, key="2013-01-02")
    assert content(lake, "nyc.events") == [(1,), (2,), (2,), (3,)]
    assert seen == [4], "a table without partition_by is read whole"


def test_an_output_says_at_run_time_how_it_is_written(run, lake):
    how = {}

    @dg.asset(metadata={**DECLARED, "primary_key": ["n"]})
    def events() -> dg.Output[pa.Table]:
        return dg.Output(pa.table({"n": [1], "x": [how["x"]]}), metadata={"write_mode": how["mode"]})

    for x, mode in (("a", "replace"), ("b", "upsert")):
        how.update(x=x, mode=mode)
        run(events)
        assert content(lake, "nyc.events") == [(1, x)]
    how.update(mode="apend")
    result = run(events, raises=False)
    assert "'apend'; it must be one of" in str(result.get_step_failure_events()[0].step_failure_data)


# --- what is misspelt ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"wirte": "append"}, "'wirte' means nothing here; did you mean 'write'?"),
        ({"partitioned_by": "dt"}, "did you mean 'partition_by'?"),
        ({"primary_keys": ["n"]}, "did you mean 'primary_key'?"),
        ({"write": "append", "write_mode": "upsert"}, "do not agree"),
    ],
)
def test_metadata_that_is_nearly_ours_is_refused(metadata, message, run, lake):
    @dg.asset(metadata={**DECLARED, **metadata})
    def orders() -> pa.Table:
        return pa.table({"dt": ["2013-01-01"], "n": [1]})

    result = run(orders, raises=False)
    said = result.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert message in said
    assert said.count("orders: ") == 1, "the asset is named once"
    assert not lake.lake.exists("nyc.orders")


def test_metadata_of_others_is_left_alone(run, lake):
    @dg.asset(metadata={**DECLARED, "team": "flights", "acme/write": "never"})
    def orders() -> pa.Table:
        return pa.table({"n": [1]})

    assert run(orders).success


def test_an_input_reads_the_columns_that_its_metadata_names(run):
    seen = []

    def reads(metadata):
        @dg.asset(metadata=DECLARED, ins={"orders": dg.AssetIn(metadata=metadata)})
        def copied(orders: pa.Table) -> pa.Table:
            seen.append(orders.column_names)
            return orders

        return copied

    @dg.asset(metadata=DECLARED)
    def orders() -> pa.Table:
        return pa.table({"a": [1], "b": [2], "c": [3]})

    run(orders)
    copied = reads({"columns": ["c", "a"]})
    run(orders, copied, selection=[copied])
    assert seen == [["c", "a"]]
    for metadata, message in (
        ({"colums": ["a"]}, "did you mean columns?"),
        ({"columns": "a"}, "give a list of names"),
        ({"columns": ["d"]}, "'d'"),
    ):
        copied = reads(metadata)
        result = run(orders, copied, selection=[copied], raises=False)
        assert message in str(result.get_step_failure_events()[0].step_failure_data)


def test_resources_refuse_fields_that_they_do_not_have():
    for make, message in (
        (lambda: LakeResource(warehouse="w", catalogue="sql"), "no field 'catalogue'; did you mean 'catalog'?"),
        (lambda: SparkResource(remot="sc://host"), "did you mean 'remote'?"),
        (lambda: LakeIOManager(lakes=LakeResource(warehouse="w")), "did you mean 'lake'?"),
        (lambda: Upkeep(max_snapshot=1), "did you mean 'max_snapshots'?"),
        (lambda: Maintain(compakt=True), "did you mean 'compact'?"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            make()
        assert "input_value" not in str(caught.value), "values may be secrets"


# --- catalogs and secrets -----------------------------------------------------------------------------------------------


def test_a_catalog_is_configured_and_secrets_come_from_the_environment(tmp_path, monkeypatch, instance, format):
    monkeypatch.setenv("CATALOG_NAME", "prod")
    lake = LakeResource(
        warehouse=str(tmp_path / "w"), catalog="sql", catalog_options={"name": dg.EnvVar("CATALOG_NAME")}
    )

    @dg.asset(metadata=DECLARED)
    def orders() -> pa.Table:
        return pa.table({"n": [1]})

    io = LakeIOManager(lake=lake, spark=SparkResource())
    assert dg.materialize([orders], resources={"io_manager": io}, instance=instance).success
    opened = Lake(str(tmp_path / "w"), catalog="sql", catalog_options={"name": "prod"})
    assert opened.table("default.orders").scan().count() == 1
    assert Lake(str(tmp_path / "w")).tables() == ([] if format == "iceberg" else ["default.orders"])


def test_fields_that_may_hold_secrets_are_marked_and_not_shown():
    resource = LakeResource(
        warehouse="w",
        storage_options={"secret_access_key": "hush"},
        catalog="sqlite://u:hush@h/db",
        encryption_keys={"master": "hush"},
    )
    assert "hush" not in repr(resource)
    fields = LakeResource.to_config_schema().as_field().config_type.fields
    assert {name for name, field in fields.items() if field.is_secret} == {
        "storage_options",
        "catalog",
        "catalog_options",
        "encryption_keys",
    }


def test_encryption_keys_are_given_in_base64():
    key = base64.b64encode(b"k" * 16).decode()
    assert LakeResource(warehouse="w", encryption_keys={"master": key}).lake.uri == "w"
    for text, says in (("no base64!", "give the key in base64"), ("aHVzaA==", "give 16, 24 or 32 bytes")):
        with pytest.raises(InvalidInput, match=f"encryption_keys.'master'.: {says}"):
            LakeResource(warehouse="w", encryption_keys={"master": text}).lake.uri  # noqa: B018 - opens the lake


# --- other shapes of assets ---------------------------------------------------------------------------------------------


def test_outputs_of_ops_graph_assets_and_multi_assets(run, lake, io, instance):
    @dg.op(out=dg.Out(metadata={**DECLARED, "table": "tmp.fetched"}))
    def fetched() -> pa.Table:
        return pa.table({"n": [1, 2], "x": ["a", "b"]})

    @dg.op(ins={"rows": dg.In(metadata={"columns": ["n"]})})
    def kept(rows: pa.Table) -> pa.Table:
        return rows

    @dg.graph_asset(metadata=DECLARED)
    def made():
        return kept(fetched())

    @dg.multi_asset(outs={name: dg.AssetOut(metadata=DECLARED) for name in ("left", "right")})
    def both(made: pa.Table):
        return made.slice(0, 1), made

    result = run(made, both)
    assert [content(lake, f"nyc.{name}") for name in ("made", "left", "right")] == [[(1,), (2,)], [(1,)], [(1,), (2,)]]
    assert content(lake, "tmp.fetched") == [(1, "a"), (2, "b")]
    assert {m.asset_key.to_user_string() for m in materializations(result)} == {"made", "left", "right"}


def test_an_output_of_an_op_without_a_table_is_refused_with_the_way_out(io, instance):
    @dg.op
    def fetched() -> pa.Table:
        return pa.table({"n": [1]})

    @dg.job(resource_defs={"io_manager": io})
    def job():
        fetched()

    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert "metadata={'table': 'db.name'}" in str(result.get_step_failure_events()[0].step_failure_data)


def test_outputs_of_which_there_are_several_are_refused_with_the_way_out(io, lake, instance):
    """They would have one table, and one id of their writes."""

    @dg.op(out=dg.DynamicOut(metadata={"table": "tmp.parts"}))
    def parts():
        for n in (1, 2):
            yield dg.DynamicOutput(pa.table({"n": [n]}), mapping_key=f"of_{n}")

    @dg.op(out=dg.DynamicOut(io_manager_key="memory"))
    def numbers():
        for n in (1, 2):
            yield dg.DynamicOutput(n, mapping_key=f"of_{n}")

    @dg.op(out=dg.Out(metadata={"table": "tmp.mapped"}))
    def mapped(n) -> pa.Table:
        return pa.table({"n": [n]})

    @dg.job(resource_defs={"io_manager": io, "memory": dg.mem_io_manager})
    def job():
        parts()
        numbers().map(mapped)

    result = job.execute_in_process(instance=instance, raise_on_error=False)
    failures = {
        step_failure_event.step_key: str(step_failure_event.step_failure_data)
        for step_failure_event in result.get_step_failure_events()
    }
    assert failures.keys() == {"parts", "mapped[of_1]", "mapped[of_2]"}
    assert all("in a step after collect()" in failure for failure in failures.values())
    assert not any(map(lake.lake.exists, ("tmp.parts", "tmp.mapped")))


EXPRESSIONS = {
    "text": (DAILY, "day", {"day": pa.string()}, "2013-01-06", [{"day": "2013-01-06"}]),
    "date": (DAILY, "day", {"day": pa.date32()}, "2013-01-06", [{"day": date(2013, 1, 6)}]),
    "week": (WEEKLY, "day", {"day": pa.date32()}, "2013-01-06", [{"day": date(2013, 1, n)} for n in (6, 12)]),
    "time": (DAILY, "at", {"at": pa.timestamp("us")}, "2013-01-06", [{"at": datetime(2013, 1, 6, h)} for h in (0, 23)]),
    "static": (REGIONS, "region", {"region": pa.string()}, "eu", [{"region": "eu"}]),
    "two dimensions": (
        CELLS,
        {"day": "at", "region": "region"},
        {"at": pa.timestamp("us"), "region": pa.string()},
        "2013-01-06|eu",
        [{"at": datetime(2013, 1, 6, 5), "region": "eu"}],
    ),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_partition_expr_is_what_dagster_means_by_it(kind, run, lake):
    definition, expression, types, key, values = EXPRESSIONS[kind]
    give = [{**row, "n": n} for n, row in enumerate(values)]

    @single(name="orders", partitions_def=definition, metadata={"partition_expr": expression})
    def orders() -> pa.Table:
        return pa.Table.from_pylist(give, schema=pa.schema([*types.items(), ("n", pa.int64())]))

    seen = []

    @single(partitions_def=definition, metadata={"partition_expr": expression})
    def copied(orders: pa.Table) -> pa.Table:
        seen.append(orders.num_rows)
        return orders

    run(orders, copied, key=key)
    assert seen == [len(give)]
    give.clear()
    run(orders, key=key)
    assert content(lake) == []
    assert lake.lake.table("nyc.copied").scan().count() == len(values)


def test_columns_follow_the_frame_as_far_as_the_asset_declares(run, lake):
    frame = {}

    def asset(how):
        @dg.asset(metadata={**DECLARED, "write": "append", **({"schema_evolution": how} if how else {})})
        def events() -> pa.Table:
            return frame["rows"]

        return events

    def tries(rows, how):
        frame["rows"] = rows
        return run(asset(how), raises=False).success

    first, new = pa.table({"a": pa.array([1], pa.int32())}), pa.table({"a": pa.array([2], pa.int32()), "b": ["x"]})
    wide = pa.table({"a": pa.array([2**40], pa.int64()), "b": ["y"]})
    assert tries(first, None)
    assert not tries(new, None)
    assert lake.lake.table("nyc.events").schema.names == ("a",)
    assert tries(new, "add")
    assert not tries(wide, "add")
    assert tries(wide, "widen")
    assert content(lake, "nyc.events") == [(1, None), (2, "x"), (2**40, "y")]
    assert not tries(pa.table({"a": ["text"], "b": ["z"]}), "widen"), "text is no wider number"
    assert not tries(first, "ad")


@pytest.mark.parametrize("kind", ["polars lazy", "scan", "duckdb"])
def test_frames_that_are_not_read_yet_are_written(kind, run, lake):
    rows = pa.table({"n": [1, 2]})
    lake.lake.create_table("nyc.source", rows.schema).append(rows)

    @dg.asset(metadata=DECLARED)
    def made():
        if kind == "polars lazy":
            return pl.from_arrow(rows).lazy()
        if kind == "scan":
            return lake.lake.table("nyc.source").scan()
        return duckdb.from_arrow(rows)

    run(made)
    assert content(lake, "nyc.made") == [(1,), (2,)]


def test_a_table_with_hidden_partitions_is_merged_and_appended_to(run, lake, days):
    merge = {"on": "t.n = s.n", "not_matched": [{"then": "insert_all"}]}

    def booked_by(how):
        @single(name="booked", partitions_def=DAILY, metadata={**how, **days})
        def booked() -> pa.Table:
            return pa.table({"booked_at": [at("2013-01-01")], "n": [1]})

        return booked

    for how in ({"write": "merge", "merge": merge}, {"write": "append"}):
        assert run(booked_by(how), keys=("2013-01-01", "2013-01-02")).success
    assert lake.lake.table("nyc.booked").scan().count() == 2


def test_a_column_and_hidden_days_beside_it_part_a_table(run, lake, days):
    @single(partitions_def=REGIONS, metadata={"partition_by": "region", "layout": ["region", *days.get("layout", [])]})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"region": [context.partition_key], "booked_at": [at("2013-01-01")], "n": [1]})

    (found,) = materializations(run(orders, key="eu"))
    assert found.metadata["dagster/partition_row_count"].value == 1


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_descriptions_of_columns_become_comments_and_come_back(lake, instance, format):
    columns = [
        dg.TableColumn("n", description="How many."),
        dg.TableColumn("m"),
        dg.TableColumn("gone", description="x"),
    ]

    @dg.asset(metadata={"format": format, "dagster/column_schema": dg.TableSchema(columns)})
    def described() -> pa.Table:
        """What there is.

        And how much of it.

        Columns:
            n: Less than what the metadata says.
            k: The docstring's.
        """
        seen = pa.field("m", pa.int64(), metadata={"comment": "The frame's own."})
        return pa.table({"n": [1], "m": [2], "k": [3]}, pa.schema([("n", pa.int64()), seen, ("k", pa.int64())]))

    for _ in range(2):
        resources = {"io_manager": LakeIOManager(lake=lake)}
        result = dg.materialize([described], resources=resources, instance=instance)
    table = lake.lake.table("nyc.described")
    comments = {"n": "How many.", "m": "The frame's own.", "k": "The docstring's."}
    assert {field.name: field.comment for field in table.schema.fields} == comments
    schema = result.asset_materializations_for_node("described")[0].metadata["dagster/column_schema"].schema
    assert {column.name: column.description for column in schema.columns} == comments
    assert table.inspect.schemas().num_rows == 2, "a run that describes the same changes no schema"
    assert table.schema.comment == "What there is.\n\nAnd how much of it."


def test_an_assets_description_is_the_comment_of_its_table(lake, instance):
    """Each time it changes, however the asset writes; of two assets with one table, the one that made the table describes it."""

    def run(*assets):
        resources = {"io_manager": LakeIOManager(lake=lake), "lake": lake}
        assert dg.materialize(list(assets), resources=resources, instance=instance).success
        return lake.lake.table("nyc.events").schema.comment

    def returning(name, description):
        @dg.asset(name=name, description=description, metadata={"table": "events", "write": "append"})
        def events() -> pa.Table:
            return pa.table({"n": [1]})

        return events

    @dg.op
    def one() -> pa.Table:
        return pa.table({"n": [1]})

    @dg.graph_asset(name="events", description="By a graph.", metadata={"table": "events", "write": "append"})
    def graphed():
        return one()

    @dg.asset(name="events", metadata={"table": "events"})
    def writing(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
        """Written in its body."""
        return lake.write(context, pa.table({"n": [1]}))

    lake.lake.create_table("nyc.events", pa.schema([("n", pa.int64())]))
    assert run(returning("events", None)) is None
    assert run(returning("events", "Clicks.")) == "Clicks."
    assert run(returning("events", "Clicks and views.")) == "Clicks and views."
    assert run(returning("others", "Views.")) == "Clicks and views."
    assert run(returning("events", "Clicks again.")) == "Clicks and views.", "another asset wrote last"
    assert run(returning("events", "Clicks again.")) == "Clicks again."
    assert run(returning("events", None)) == "Clicks again.", "nothing is said of it"
    assert run(graphed) == "By a graph."
    assert run(writing) == "Written in its body."
