"""Sensors and upkeep over real tables: when they ask for a run, when not and why; never because of themselves."""

import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyspark import SparkContext

from lakeformat.commit import commit
from lakeformat.dagster import Upkeep, cdc_assets, checks_for, foreign_commits, maintenance
from lakeformat.dagster.io_manager import READS_TAG, LakeIOManager
from lakeformat.dagster.pictures import MOST, pictures
from lakeformat.dagster.sensors import Verdict, sentences
from lakeformat.dagster.spark import SparkResource
from lakeformat.dagster.upkeep import TABLE_TAG, TASK_TAG, Maintain, first_to_keep
from lakeformat.engines.arrow import ArrowEngine
from lakeformat.model.operation import Append, Request
from pipelines.definitions import definitions
from pipelines.tables import ASSETS, TABLES
from tests import doors

DAY = "2013-01-01"
UPKEEP = maintenance(ASSETS)
COMPACTION, EXPIRY = UPKEEP.sensors
FOREIGN_COMMITS = foreign_commits(ASSETS)
MAINTAIN, SWEEP = UPKEEP.jobs


@pytest.fixture
def flights(lake):
    """The table behind the asset `flights`, written by somebody else."""
    schema = pa.schema([("dt", pa.string()), ("n", pa.int64())])
    return lake.lake.create_table("nyc.flights", schema, partition_by=["dt"])


def rows(*numbers, day=DAY):
    return pa.table({"dt": [day] * len(numbers), "n": pa.array(numbers, pa.int64())})


@pytest.fixture
def tick(lake, instance):
    """One evaluation of a sensor that remembers its cursor, as the daemon would do it."""
    cursors = {}

    def tick(sensor, **upkeep):
        context = dg.build_sensor_context(
            instance=instance,
            cursor=cursors.get(sensor.name),
            resources={"lake": lake, "upkeep": Upkeep(**upkeep)},
            definitions=None,
        )
        result = sensor(context)
        cursors[sensor.name] = result.cursor
        return result

    return tick


@pytest.fixture
def maintain(lake, instance):
    def maintain(name="flights", raises=True, run_tags=None, upkeep=None, **what):
        return MAINTAIN.execute_in_process(
            run_config=dg.RunConfig(ops={"maintain_tables": Maintain(**{"tables": [name], **what})}),
            resources={"lake": lake, "upkeep": upkeep or Upkeep()},
            instance=instance,
            tags=run_tags,
            raise_on_error=raises,
        )

    return maintain


def commits(result):
    """What a tick of `foreign_commits` reports of commits; these tables are not as the assets declare."""
    return [event for event in result.asset_events if not isinstance(event, dg.AssetCheckEvaluation)]


def execute(request, maintain, upkeep=None):
    """Run what a sensor asked for."""
    config = request.run_config["ops"]["maintain_tables"]["config"]
    return maintain(run_tags=request.tags, upkeep=upkeep, **config)


def test_compaction_asks_when_a_partition_has_many_small_files_and_not_before(flights, tick):
    for n in range(7):
        flights.append(rows(n))
    result = tick(COMPACTION)
    assert not result.run_requests
    assert "flights: at most 7 small files" in result.skip_reason.skip_message
    assert f"{len(TABLES) - 1} tables: not there yet" in result.skip_reason.skip_message
    flights.append(rows(7))
    (request,) = tick(COMPACTION).run_requests
    assert request.run_config["ops"]["maintain_tables"]["config"]["tables"] == ["flights"]
    assert request.run_key == "compact:nyc.flights:8"
    assert request.tags["dagster/priority"] == "-5"
    assert request.tags[TABLE_TAG] == "flights"


def test_an_asset_has_limits_of_its_own(lake, flights, tick):
    """`planes` is compacted after each write, because that writes its changelog."""
    flights.append(rows(1))
    properties = TABLES["planes"].metadata["table_properties"]
    schema = pa.schema([("tailnum", pa.string()), ("last_seen", pa.int64())])
    planes = lake.lake.create_table("nyc.planes", schema, primary_key=["tailnum"], properties=properties)
    planes.upsert(pa.table({"tailnum": ["N1"], "last_seen": [1]}))
    (request,) = tick(COMPACTION).run_requests
    assert request.run_config["ops"]["maintain_tables"]["config"]["tables"] == ["planes"]


def test_compaction_does_not_look_again_at_what_it_has_judged(flights, tick):
    flights.append(rows(1))
    tick(COMPACTION)
    result = tick(COMPACTION)
    assert "flights: nobody has written since the last look" in result.skip_reason.skip_message


def test_compaction_joins_the_files_and_is_not_triggered_by_its_own_snapshot(flights, tick, maintain, instance):
    for n in range(8):
        flights.append(rows(n))
    (request,) = tick(COMPACTION, max_small_files=1).run_requests
    result = execute(request, maintain)
    assert flights.inspect.files().num_rows == 1
    assert flights.current_snapshot().properties[TASK_TAG] == "compact"
    again = tick(COMPACTION, max_small_files=1)
    assert not again.run_requests, "one small file is left, but nobody has written since"
    (event,) = [e for e in result.all_events if e.event_type_value == "ASSET_OBSERVATION"]
    observed = event.asset_observation_data.asset_observation
    assert observed.asset_key == TABLES["flights"].key
    assert observed.metadata["lake/files_removed"].value == 8
    header, _, partition = observed.metadata["lake/partitions"].value.splitlines()
    assert header == "| dt | rows | files | small files | size | last write (UTC) |"
    assert partition.startswith(f"| {DAY} | 8 | 1 | 1 | ")
    history = observed.metadata["lake/history"].value.splitlines()[2:]
    assert ["compact" in line for line in history] == [True] + [False] * 8, "the newest first"
    assert history[-1].endswith("| append | 1 |")
    assert instance.get_latest_materialization_event(TABLES["flights"].key) is None


def test_a_picture_of_many_partitions_shows_the_last_and_says_how_many_there_are(flights):
    days = [f"2013-{month:02d}-{day:02d}" for month in (1, 2) for day in range(1, 21)]
    flights.append(pa.table({"dt": days, "n": pa.array([0] * 40, pa.int64())}))
    lines = pictures(flights)["lake/partitions"].value.splitlines()
    assert lines[2].startswith(f"| {days[40 - MOST]} |")
    assert lines[-1] == f"{MOST} of 40"


def test_a_write_during_compaction_is_looked_at(flights, tick, maintain):
    for n in range(8):
        flights.append(rows(n))
    (request,) = tick(COMPACTION).run_requests
    for n in range(9):
        flights.append(rows(n, day="2013-01-02"))
    execute(request, maintain)
    for n in range(9):
        flights.append(rows(n, day="2013-01-02"))
    (request,) = tick(COMPACTION).run_requests
    assert request.run_key == f"compact:nyc.flights:{flights.current_snapshot().id}"


@pytest.mark.parametrize("tables", [[], ["weather", "flights"]], ids=["all tables", "some"])
def test_compaction_waits_for_a_run_at_work_and_asks_afterwards(tables, flights, tick, instance):
    for n in range(8):
        flights.append(rows(n))
    run = instance.create_run_for_job(
        MAINTAIN,
        run_config={"ops": {"maintain_tables": {"config": {"tables": tables}}}},
        status=dg.DagsterRunStatus.STARTED,
    )
    waiting = tick(COMPACTION)
    assert not waiting.run_requests
    assert f"run {run.run_id[:8]} is at work" in waiting.skip_reason.skip_message
    instance.report_run_canceled(run)
    assert len(tick(COMPACTION).run_requests) == 1


def test_the_jobs_take_some_tables_or_all(flights, maintain, lake, instance):
    for n in range(8):
        flights.append(rows(n))
    weather = lake.lake.create_table("nyc.weather", flights.scan().schema, partition_by=["dt"])
    for n in range(8):
        weather.append(rows(n))
    maintain(compact=True)
    assert [table.current_snapshot().kind for table in (flights, weather)] == ["compact", "append"]
    maintain(tables=[])
    assert weather.current_snapshot().kind == "compact"
    failed = maintain(tables=["flihgts"], raises=False)
    text = failed.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert text == "no maintained table has the asset key flihgts; did you mean 'flights'?"
    resources = {"lake": lake, "upkeep": Upkeep()}
    for tables in ([], ["weather"]):
        config = {"ops": {"sweep_tables": {"config": {"tables": tables}}}}
        swept = SWEEP.execute_in_process(config, instance=instance, resources=resources)
        events = [event.asset_observation_data.asset_observation for event in swept.get_asset_observation_events()]
        assert [event.asset_key.to_user_string() for event in events] == (tables or ["flights", "weather"])


def test_a_table_that_fails_leaves_the_others_maintained(flights, maintain, lake):
    broken = lake.lake.create_table("nyc.airlines", flights.scan().schema)
    for table in (broken, flights):
        for n in range(8):
            table.append(rows(n))
    Path(lake.warehouse, "nyc.db/airlines/snapshot/snapshot-8").write_text("{")
    failed = maintain(tables=[], raises=False, compact=True)
    assert not failed.success
    assert "airlines: " in failed.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert flights.current_snapshot().kind == "compact"


def test_cursors_are_read_by_people(flights, tick):
    flights.append(rows(1))
    for sensor in (COMPACTION, FOREIGN_COMMITS):
        assert (tick(sensor).cursor or "").partition(", differs ")[0] == "flights: 1"
        assert tick(sensor).skip_reason, "nothing new"


def test_compaction_judges_ten_thousand_files_in_a_second(lake, tick):
    """The files are only promised, not there: metadata is all that is read."""
    schema = pa.schema([("dt", pa.string()), ("n", pa.int64())])
    table = lake.lake.create_table("nyc.weather", schema, partition_by=["dt"])
    base = doors.view(table)
    (real,) = ArrowEngine().write(doors.store(table), rows(1), base.layout())
    promised = tuple(
        replace(real, path=f"dt=day-{n % 5_000}/bucket-0/data-{n}-0.parquet", partition=(f"day-{n % 5_000}",))
        for n in range(10_000)
    )
    operation = Append(request=Request(id="many"), added=promised)
    commit(doors.store(table), doors.dialect(table).head(doors.store(table)), doors.dialect(table), operation)
    assert table.inspect.files().num_rows == 10_000
    began = time.process_time()  # What other programs take of the machine is not the sensor's.
    result = tick(COMPACTION)
    took = time.process_time() - began
    assert "weather: at most 2 small files" in result.skip_reason.skip_message
    assert took < 1, f"{took:.2f} s"


def test_expiry_asks_when_there_are_too_many_snapshots_and_drops_them(flights, tick, maintain):
    limits = {"max_snapshots": 10, "retain_snapshots": 2}
    for n in range(10):
        flights.append(rows(n))
    assert "flights: no snapshot to expire" in tick(EXPIRY, **limits).skip_reason.skip_message
    flights.append(rows(10))
    (request,) = tick(EXPIRY, **limits).run_requests
    assert request.run_key == "expire:nyc.flights:1:3"
    execute(request, maintain, Upkeep(**limits))
    assert [snapshot.id for snapshot in flights.snapshots()] == list(range(3, 12))
    assert flights.scan().count() == 11
    assert not tick(EXPIRY, **limits).run_requests


def test_expiry_never_goes_past_what_a_run_in_flight_reads(flights, tick, maintain, instance):
    limits = {"max_snapshots": 4, "retain_snapshots": 1, "retain_hours": 0}
    for n in range(8):
        flights.append(rows(n))
    reader = instance.create_run_for_job(
        SWEEP,
        status=dg.DagsterRunStatus.STARTED,
        tags={f"{READS_TAG}/copied/nyc.flights": "3"},
    )
    (request,) = tick(EXPIRY, **limits).run_requests
    execute(request, maintain, Upkeep(**limits))
    assert [snapshot.id for snapshot in flights.snapshots()] == [3, 4, 5, 6, 7, 8]
    assert flights.scan(snapshot_id=3).count() == 3
    held = tick(EXPIRY, **limits)
    assert "a run in flight reads snapshot 3" in held.skip_reason.skip_message
    instance.report_run_canceled(reader)
    (request,) = tick(EXPIRY, **limits).run_requests
    execute(request, maintain, Upkeep(**limits))
    assert [snapshot.id for snapshot in flights.snapshots()] == [8]


@pytest.mark.parametrize("pin", [{"snapshot_id": 3}, {"as_of": None}, {"snapshot": "3"}])
def test_expiry_leaves_what_a_run_that_has_not_begun_is_configured_to_read(flights, tick, lake, instance, pin):
    limits = {"max_snapshots": 4, "retain_snapshots": 1, "retain_hours": 0}
    for n in range(8):
        flights.append(rows(n))
    third = flights.snapshots()[2]
    pin = {
        name: value or datetime.fromtimestamp(third.timestamp_ms / 1000, UTC).isoformat() for name, value in pin.items()
    }
    assert "snapshot" in pin or flights.scan(**pin).snapshot_id == third.id
    instance.create_run_for_job(
        definitions(lake, SparkResource(), Upkeep()).resolve_job_def("daily"),
        status=dg.DagsterRunStatus.NOT_STARTED,
        run_config={"resources": {"io_manager": {"config": {"read_at": {"flights": pin, "weather": {"tag": "v1"}}}}}},
    )
    (request,) = tick(EXPIRY, **limits).run_requests
    assert request.run_key == "expire:nyc.flights:1:3"


@pytest.mark.parametrize(
    ("ages", "limits", "read", "kept"),
    [
        ([50, 40, 30, 20, 10], {}, [], 2),  # 40 was replaced 30 hours ago; at 24 hours ago it was snapshot 3.
        ([50, 40, 30, 20, 10], {"retain_snapshots": 4}, [], 1),
        ([50, 40, 30, 20, 10], {}, [3, 1], 1),
        ([50, 40], {}, [], 1),
        ([5, 4, 3, 2, 1], {}, [], 0),
        (list(range(20, 0, -1)), {"max_snapshots": 10}, [99], 11),
        ([50], {"retain_snapshots": 0}, [], 0),
    ],
)
def test_the_first_snapshot_to_keep(ages, limits, read, kept):
    """Ids of Iceberg's snapshots are in no order: here each is 7 less than the one before."""
    now_ms = 1_000 * 3_600_000
    snapshots = [Aged(1000 - 7 * n, now_ms - age * 3_600_000) for n, age in enumerate(ages)]
    policy = Upkeep(**{"max_snapshots": 100, "retain_snapshots": 1, "retain_hours": 24, **limits})
    assert first_to_keep(snapshots, policy, {1000 - 7 * n for n in read}, now_ms) == 1000 - 7 * kept


class Aged:
    def __init__(self, id, timestamp_ms):
        self.id, self.timestamp_ms = id, timestamp_ms


def test_commits_of_other_engines_are_observed_once(flights, tick, lake):
    flights.append(rows(1))
    flights.append(rows(2), properties={"dagster/run_id": "ours"})
    flights.append(rows(3))
    events = commits(tick(FOREIGN_COMMITS))
    assert [event.metadata["lake/snapshot_id"].value for event in events] == ["1", "3"]
    assert {event.asset_key for event in events} == {TABLES["flights"].key}
    assert events[1].metadata["dagster/row_count"].value == 3
    assert "flights: no new snapshot" in tick(FOREIGN_COMMITS).skip_reason.skip_message


def test_a_foreign_commit_is_a_materialization_of_each_partition_that_it_changed(flights, tick):
    flights.append(pa.concat_tables([rows(1), rows(2, 3, day="2013-01-02"), rows(4, day="1999-01-01")]))
    flights.delete(where="dt = '2013-01-02' and n = 2")
    flights.append(rows(5, day="1999-01-01"))
    flights.compact(full=True)
    added, also, deleted, outside, compacted = commits(tick(FOREIGN_COMMITS))
    assert [(event.partition, event.metadata["lake/snapshot_id"].value) for event in (added, also, deleted)] == [
        (DAY, "1"), ("2013-01-02", "1"), ("2013-01-02", "2")
    ]  # fmt: skip
    assert deleted.tags == {"dagster/data_version": "2", "lake/foreign": "true"}
    assert (
        added.metadata["dagster/partition_row_count"].value
        == deleted.metadata["dagster/partition_row_count"].value
        == 1
    )
    assert (
        deleted.description
        == "Another program committed snapshot 2 (delete): +1 row, -2 rows; partition 2013-01-02 changed"
    )
    shown = {name: entry.value for name, entry in deleted.metadata.items()}
    assert [column.name for column in shown["dagster/column_schema"].columns] == ["dt", "n"]
    assert (shown["dagster/uri"], shown["dagster/storage_kind"]) == (flights.uri, flights.format)
    assert isinstance(outside, dg.AssetObservation), "a partition that the asset does not have"
    assert isinstance(compacted, dg.AssetObservation), "compaction changes no row"


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_foreign_delete_makes_its_day_stale(lake, instance, format):
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-04")
    hidden = (
        {"partition_by": {"window": "at"}, "layout": ["days(at)"]} if format == "iceberg" else {"partition_by": "dt"}
    )

    @dg.asset(
        partitions_def=days, metadata={"format": format, **hidden}, backfill_policy=dg.BackfillPolicy.single_run()
    )
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        moments = [datetime.fromisoformat(day) for day in context.partition_keys]
        return pa.table({"dt": list(context.partition_keys), "at": pa.array(moments, pa.timestamp("us"))})

    @dg.asset
    def whole() -> pa.Table:
        return pa.table({"n": [1]})

    resources = {"lake": lake, "io_manager": LakeIOManager(lake=lake)}
    ends = {"dagster/asset_partition_range_start": "2013-01-01", "dagster/asset_partition_range_end": "2013-01-03"}
    dg.materialize([orders], resources=resources, instance=instance, tags=ends)
    dg.materialize([whole], resources=resources, instance=instance)
    sensor = foreign_commits([orders, whole])
    assert not sensor(dg.build_sensor_context(instance=instance, resources={"lake": lake})).asset_events
    made = lake.lake.table("nyc.orders").delete(where="dt = '2013-01-02'")
    lake.lake.table("nyc.whole").append(pa.table({"n": [2]}))
    events = sensor(dg.build_sensor_context(instance=instance, resources={"lake": lake})).asset_events
    assert [(type(event), event.asset_key.path[-1], event.partition) for event in events] == [
        (dg.AssetMaterialization, "orders", "2013-01-02"), (dg.AssetMaterialization, "whole", None)
    ]  # fmt: skip
    for event in events:
        instance.report_runless_asset_event(event)
    record = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=orders.key, asset_partitions=["2013-01-02"]), limit=1
    ).records[0]
    assert record.asset_materialization.tags["dagster/data_version"] == str(made.id)
    assert record.asset_materialization.metadata["dagster/partition_row_count"].value == 0


def test_a_skip_reason_is_one_short_line_with_what_is_new_first(lake, tick):
    schema = pa.schema([("dt", pa.string()), ("n", pa.int64())])
    for name in TABLES:
        lake.lake.create_table(f"nyc.{name}", schema).append(rows(1))
    tick(COMPACTION)
    lake.lake.table("nyc.weather").append(rows(2))
    reason = tick(COMPACTION).skip_reason.skip_message
    assert reason.startswith("weather: at most 2 small files")
    assert reason.endswith(f"; {len(TABLES) - 1} tables: nobody has written since the last look")
    assert reason.count(";") == 1
    assert tick(EXPIRY).skip_reason.skip_message == f"{len(TABLES)} tables: no snapshot to expire"
    events = tick(FOREIGN_COMMITS).asset_events
    assert (dg.AssetKey("weather"), DAY) in {(event.asset_key, event.partition) for event in events}, "its first commit"
    assert tick(FOREIGN_COMMITS).skip_reason.skip_message.endswith(f"{len(TABLES) - 2} tables: no new snapshot")
    lake.lake.table("nyc.weather").append(rows(3), properties={"dagster/run_id": "a run of ours"})
    assert "weather: no foreign commit" in tick(FOREIGN_COMMITS).skip_reason.skip_message


def test_the_sentence_of_a_tick_that_asks_for_a_run_begins_with_its_table(lake):
    verdicts = {f"t{n}": Verdict("at most 1 small file") for n in range(9)}
    verdicts["t9"] = Verdict("12 small files", dg.RunRequest())
    assert sentences(verdicts).startswith("t9: 12 small files; t0: ")
    assert sentences(verdicts).endswith("; news of 7 other tables")


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_compaction_asks_for_no_run_that_would_join_nothing(format, lake, tick):
    """Fewer than five small files of a partition stay as they are in either format."""
    schema = pa.schema([("dt", pa.string()), ("n", pa.int64())])
    table = lake.lake.create_table("nyc.flights", schema, partition_by=["dt"], format=format)
    for n in range(4):
        table.append(rows(n))
        result = tick(COMPACTION, max_small_files=1)
        assert not result.run_requests
        files = "1 small file" if n == 0 else f"{n + 1} small files"
        assert f"flights: {files} and 0% deleted rows in a partition, but compaction would join none" in (
            result.skip_reason.skip_message
        )
    table.append(rows(4))
    assert len(tick(COMPACTION, max_small_files=1).run_requests) == 1


def test_maintenance_as_the_launchpad_opens_does_all_and_says_what_it_did(flights, maintain):
    for n in range(8):
        flights.append(rows(n))
    result = maintain(upkeep=Upkeep(max_snapshots=2, retain_snapshots=1))
    seen = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    compacted, dropped = (event.description for event in seen)
    assert compacted.startswith("Compacted 8 files (")
    assert dropped == "Dropped 8 snapshots"
    assert seen[0].metadata["dagster/row_count"].value == 8


DRIFTS = {
    "the key": ({"primary_key": "n"}, "primary_key=['n'], and its key is none"),
    "the format": ({"format": "iceberg"}, "lake.lake.convert('nyc.orders', 'iceberg')"),
    "the partitions": ({"layout": "dt"}, "partitioned by dt, and it is by nothing"),
    "a property": ({"table_properties": {"a.b": "c"}}, "table.alter().set_properties({'a.b': 'c'}).commit()"),
    "a column of the docstring": ({}, "the asset names late, and nyc.orders has dt, n"),
    "a column of the key": ({"unique_key": "id"}, "the asset names late, id, and nyc.orders has dt, n"),
}


@pytest.mark.parametrize(("metadata", "message"), DRIFTS.values(), ids=DRIFTS)
def test_a_declaration_that_the_table_does_not_have_is_reported_once_without_a_run(
    lake, tick, instance, metadata, message
):
    """What a person sees who has edited an asset, or altered its table, before any run."""

    @dg.asset(metadata=metadata, description="Orders.\n\nColumns:\n    late: Whether it is late.")
    def orders(context) -> pa.Table:
        return rows(1)

    table = lake.lake.create_table("nyc.orders", rows(1).schema)
    table.append(rows(1), properties={"dagster/run_id": "ours"})
    sensor = foreign_commits([orders])
    (event,) = tick(sensor).asset_events
    assert (event.asset_key, event.check_name, event.passed) == (orders.key, "as_declared", False)
    assert message in event.description
    assert (event.severity == dg.AssetCheckSeverity.WARN) == ("the asset names" in message)
    again = tick(sensor)
    assert not again.asset_events, "once for each difference"
    assert re.fullmatch("orders: 1, differs [0-9a-f]{8}", again.cursor)
    table.alter().add_column("late", "boolean").add_column("id", "bigint").commit()
    if metadata.keys() <= {"unique_key"}:
        (event,) = tick(sensor).asset_events
        assert event.passed
        assert tick(sensor).cursor == "orders: 1"


def test_a_table_that_follows_a_database_has_the_declaration_of_its_beginning(lake, tick):
    """Its runs refuse no other."""
    assets = cdc_assets("shop", {"public.orders": "orders"}, table_properties={"a.b": "c"})
    lake.lake.create_table("nyc.orders", rows(1).schema)
    assert not tick(foreign_commits(assets)).asset_events
    assert "as_declared" not in {spec.name for checks in checks_for(assets) for spec in checks.check_specs}


def test_a_difference_that_the_next_run_follows_passes_with_the_change(lake, tick):
    @dg.asset(metadata={"table_evolution": "alter", "table_properties": {"a.b": "c"}})
    def orders(context) -> pa.Table:
        return rows(1)

    lake.lake.create_table("nyc.orders", rows(1).schema)
    sensor = foreign_commits([orders])
    (event,) = tick(sensor).asset_events
    assert event.passed
    assert event.metadata["change"].value == "`table.alter().set_properties({'a.b': 'c'}).commit()`"
    assert not tick(sensor).asset_events


def test_of_a_long_past_the_newest_commits_are_observed(flights, tick):
    for n in range(4):
        flights.append(rows(n))
    sensor = foreign_commits(ASSETS, at_most=2)
    assert [event.metadata["lake/snapshot_id"].value for event in commits(tick(sensor))] == ["3", "4"]
    assert "flights: no new snapshot" in tick(sensor).skip_reason.skip_message


@pytest.fixture
def events(lake):
    """The Iceberg table behind the asset `booking_events`."""
    schema = pa.schema([("event_date", pa.date32()), ("n", pa.int64())])
    return lake.lake.create_table("nyc.booking_events", schema, format="iceberg", partition_by=["event_date"])


def test_iceberg_tables_are_compacted_expired_and_observed(events, tick, maintain, instance):
    for n in range(12):
        events.append(pa.table({"event_date": pa.array([0], pa.date32()), "n": [n]}))
    observed = commits(tick(FOREIGN_COMMITS))
    assert [event.metadata["lake/snapshot_id"].value for event in observed] == [
        str(snapshot.id) for snapshot in events.snapshots()
    ]
    (request,) = tick(COMPACTION).run_requests
    assert request.tags[TABLE_TAG] == "booking_events"
    maintain("booking_events", run_tags=request.tags, compact=True)
    assert events.inspect.partitions()["file_count"].to_pylist() == [1]
    assert not tick(COMPACTION).run_requests, "compaction triggers no other"
    limits = {"max_snapshots": 5, "retain_snapshots": 2}
    held = events.snapshots()[3].id
    reader = instance.create_run_for_job(
        SWEEP,
        status=dg.DagsterRunStatus.STARTED,
        tags={f"{READS_TAG}/copied/nyc.booking_events": str(held)},
    )
    for reading, left in ((True, 10), (False, 4)):
        if not reading:
            instance.report_run_canceled(reader)
        (request,) = tick(EXPIRY, **limits).run_requests
        maintain("booking_events", run_tags=request.tags, upkeep=Upkeep(**limits), expire=True)
        assert len(events.snapshots()) == left
        assert (held in [snapshot.id for snapshot in events.snapshots()]) == reading
    assert events.scan().count() == 12


def test_many_deleted_rows_ask_for_compaction(events, tick, maintain):
    events.alter().set_properties({"write.delete.mode": "merge-on-read"}).commit()
    events.append(pa.table({"event_date": pa.array([0] * 100, pa.date32()), "n": list(range(100))}))
    events.delete("n < 10")
    assert "10% deleted rows" in tick(COMPACTION).skip_reason.skip_message
    assert events.inspect.partitions()["deleted_row_count"].to_pylist() == [10]
    events.delete("n < 30")
    (request,) = tick(COMPACTION).run_requests
    maintain("booking_events", run_tags=request.tags, compact=True, full=True)
    assert events.inspect.partitions()["deleted_row_count"].to_pylist() == [0]
    assert events.scan().count() == 70


def test_a_table_that_cannot_be_read_does_not_keep_the_others_from_being_looked_at(flights, tick, lake):
    for n in range(8):
        flights.append(rows(n))
    broken = lake.lake.create_table("nyc.weather", pa.schema([("n", pa.int64())]))
    broken.append(pa.table({"n": [1]}))
    Path(lake.warehouse, "nyc.db/weather/snapshot/snapshot-1").write_text("{")
    result = tick(COMPACTION)
    assert [request.tags[TABLE_TAG] for request in result.run_requests] == ["flights"]


def test_sensors_start_no_jvm(flights, tick):
    before = SparkContext._gateway
    for sensor in (COMPACTION, EXPIRY, FOREIGN_COMMITS):
        tick(sensor)
    assert SparkContext._gateway is before
