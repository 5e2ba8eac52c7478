"""Tables that others write: observed whole or by partition, read by partition; how fresh tables are; inputs as a frame
for each partition."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from lakeformat import InvalidInput
from lakeformat.dagster import LakeIOManager, external_tables, freshness_checks, sql_table

# Dagster's own use, of each observable asset.
pytestmark = pytest.mark.filterwarnings("ignore:Property .OpDefinition.version. is deprecated")

DAILY = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
DAYS = ("2026-01-01", "2026-01-02")
KEY = dg.AssetKey(["raw", "events"])


def rows(*days, n=1):
    return pa.table({"day": list(days), "n": [n] * len(days)})


@pytest.fixture(params=["paimon", "iceberg"])
def events(lake, request):
    """A table of another program."""
    table = lake.lake.create_table("raw.events", rows("").schema, format=request.param, partition_by=["day"])
    table.append(rows(*DAYS))
    return table


@pytest.fixture
def run(lake, instance):
    """Materialize assets; the failure's text, or None."""

    def run(*assets, selection, days=DAYS):
        tags = {
            f"dagster/asset_partition_range_{edge}": day for edge, day in zip(("start", "end"), days, strict=bool(days))
        }
        result = dg.materialize(
            list(assets),
            selection=selection,
            resources={"lake": lake, "io_manager": LakeIOManager(lake=lake)},
            instance=instance,
            tags=tags if days else {},
            raise_on_error=False,
        )
        failures = result.get_step_failure_events()
        return failures[0].step_failure_data.user_failure_data.description if failures else None

    return run


@pytest.fixture
def observe(lake, instance):
    def observe(external):
        job = dg.define_asset_job("observed", selection=dg.AssetSelection.assets(external.key))
        defs = dg.Definitions(assets=[external], jobs=[job], resources={"lake": lake})
        result = defs.resolve_job_def("observed").execute_in_process(instance=instance)
        seen = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
        return {one.partition: one.tags["dagster/data_version"] for one in seen}

    return observe


def test_partitions_of_an_external_table_have_versions_of_their_own_and_are_read_alone(events, lake, run, observe):
    (external,) = external_tables(lake, ["raw.events"], partitions_def=DAILY, partition_by={"date": "day"})
    before = observe(external)
    assert before.keys() == set(DAYS), "those with rows"
    events.append(rows(DAYS[1], n=2))
    after = observe(external)
    assert (after[DAYS[0]] == before[DAYS[0]], after[DAYS[1]] == before[DAYS[1]]) == (True, False)
    seen = []

    @dg.asset(
        ins={"events": dg.AssetIn(key=KEY)},
        partitions_def=DAILY,
        metadata={"partition_by": {"date": "day"}},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def copied(events: pa.Table) -> pa.Table:
        seen.append(sorted(events["n"].to_pylist()))
        return events

    assert run(external, copied, selection=[copied], days=(DAYS[1], DAYS[1])) is None
    assert seen == [[1, 2]]


@pytest.mark.parametrize("kind", [pa.Table, pd.DataFrame], ids=["arrow", "pandas"])
def test_an_input_may_be_a_frame_for_each_partition(events, lake, run, kind):
    (external,) = external_tables(lake, ["raw.events"], partitions_def=DAILY, partition_by={"date": "day"})
    seen = {}

    @dg.asset(
        ins={"events": dg.AssetIn(key=KEY)},
        partitions_def=DAILY,
        metadata={"partition_by": {"date": "day"}},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def copied(events: dict[str, kind]):
        seen.update({day: (type(frame), len(frame)) for day, frame in events.items()})
        return (pa.concat_tables if kind is pa.Table else pd.concat)(events.values())

    assert run(external, copied, selection=[copied], days=("2026-01-01", "2026-01-03")) is None
    assert seen == {day: (kind, int(day in DAYS)) for day in (*DAYS, "2026-01-03")}
    assert lake.lake.table("nyc.copied").scan().count() == 2


def test_a_frame_for_each_partition_of_what_has_none_is_refused(events, lake, run):
    (external,) = external_tables(lake, ["raw.events"])

    @dg.asset(ins={"events": dg.AssetIn(key=KEY)})
    def copied(events: dict[str, pa.Table]) -> pa.Table:
        return rows(DAYS[0])

    message = run(external, copied, selection=[copied], days=())
    assert "the rows of raw/events are not by partition; annotate it as a frame" in message


def test_a_column_that_partition_expr_names_is_filled_in_once_the_table_is_there(lake, run):
    lake.lake.create_table("nyc.orders", pa.schema([("day", pa.date32()), ("n", pa.int64())]), partition_by=["day"])

    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "day"})
    def orders() -> pa.Table:
        return pa.table({"n": [1]})

    assert run(orders, selection=[orders], days=(DAYS[1], DAYS[1])) is None
    assert [str(day) for day in lake.lake.table("nyc.orders").scan().to_arrow()["day"].to_pylist()] == [DAYS[1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitions_def": DAILY}, "partitions_def and partition_by go together"),
        ({"partition_by": "day"}, "partitions_def and partition_by go together"),
        ({"partitions_def": DAILY, "partition_by": ["day"]}, r"raw/events: partition_by=\['day'\]; name the column"),
    ],
)
def test_partitions_of_external_tables_are_declared_whole(lake, options, message):
    with pytest.raises(InvalidInput, match=message):
        external_tables(lake, ["raw.events"], **options)


def test_partitions_by_another_column_are_refused_with_the_way_out(events, lake, instance):
    (external,) = external_tables(lake, ["raw.events"], partitions_def=DAILY, partition_by={"date": "n"})
    job = dg.define_asset_job("observed", selection=dg.AssetSelection.assets(external.key))
    defs = dg.Definitions(assets=[external], jobs=[job], resources={"lake": lake})
    result = defs.resolve_job_def("observed").execute_in_process(instance=instance, raise_on_error=False)
    (failure,) = result.get_step_failure_events()
    assert "is not by the table's partition columns (day)" in failure.step_failure_data.user_failure_data.description


def test_a_partition_column_that_the_table_lacks_is_named_with_those_that_it_has(events, lake, instance):
    (external,) = external_tables(lake, ["raw.events"], partitions_def=DAILY, partition_by={"date": "dy"})
    job = dg.define_asset_job("observed", selection=dg.AssetSelection.assets(external.key))
    defs = dg.Definitions(assets=[external], jobs=[job], resources={"lake": lake})
    result = defs.resolve_job_def("observed").execute_in_process(instance=instance, raise_on_error=False)
    (failure,) = result.get_step_failure_events()
    message = failure.step_failure_data.user_failure_data.description
    assert message.endswith("partition_by names dy, which raw.events does not have; it has day, n")


def test_freshness_is_when_rows_last_changed_whoever_changed_them(events, lake, instance, monkeypatch):
    @dg.asset
    def orders() -> pa.Table:
        return rows(DAYS[0])

    external = external_tables(lake, ["raw.events"])
    assets = [orders, *external]
    defs = dg.Definitions(
        assets=assets,
        asset_checks=freshness_checks(assets, timedelta(hours=2)),
        jobs=[dg.define_asset_job("checked", selection=dg.AssetSelection.all_asset_checks())],
        resources={"lake": lake, "io_manager": LakeIOManager(lake=lake)},
    )

    def check():
        result = defs.resolve_job_def("checked").execute_in_process(instance=instance, raise_on_error=False)
        return {one.asset_key.path[-1]: one for one in result.get_asset_check_evaluations()}

    lake.lake.create_table("nyc.orders", rows("").schema)
    found = check()
    assert (found["events"].passed, found["orders"].passed) == (True, False)
    assert found["orders"].description == "no row of nyc.orders was ever written"
    now_ms = events.current_snapshot().timestamp_ms
    monkeypatch.setattr("lakeformat.clock.now_ms", lambda: now_ms + 3 * 3_600_000)
    events.append(rows(DAYS[1]))  # Two files of one day, to compact.
    monkeypatch.setattr("lakeformat.clock.now_ms", lambda: now_ms + 6 * 3_600_000)
    events.compact(full=True)
    assert check()["events"].description == "raw.events last changed 3.0 hours ago", "compaction changes no row"
    assert not check()["events"].passed


@pytest.mark.parametrize("age", [timedelta(0), 3600])
def test_an_age_that_is_none_is_refused(age):
    with pytest.raises(InvalidInput, match=r"give a datetime\.timedelta above 0"):
        freshness_checks([], age)


def test_a_query_in_a_file_refers_to_it(tmp_path):
    """The link *Open in editor* on the asset's page."""
    file = tmp_path / "days.sql"
    file.write_text("-- Days.\nSELECT 1 AS n")
    (reference,) = sql_table(file).metadata_by_key[dg.AssetKey("days")]["dagster/code_references"].code_references
    assert Path(reference.file_path) == file
