"""A Dagster instance whose runs, events and cursors are in PostgreSQL, set up as `dagster.yaml` says: pools, backfill, rerun, sensors."""

import dagster as dg
import pyarrow as pa
import pytest
from dagster_postgres import PostgresEventLogStorage

from lakeformat.dagster import LakeIOManager, Upkeep, checks_for, foreign_commits, maintenance, rerun_partitions

DAILY = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")
DAYS = [f"2026-01-{day:02d}" for day in range(1, 6)]
DECLARED = {"partitions_def": DAILY, "backfill_policy": dg.BackfillPolicy.single_run()}


@dg.asset(**DECLARED, metadata={"partition_by": {"date": "day"}}, pool="lake__orders")
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"day": list(context.partition_keys), "n": [1] * len(context.partition_keys)})


@dg.asset(
    **DECLARED,
    metadata={"partition_by": {"date": "day"}, "format": "iceberg"},
    automation_condition=dg.AutomationCondition.eager().without(dg.AutomationCondition.in_latest_time_window()),
)
def doubled(orders: pa.Table) -> pa.Table:
    return orders


ASSETS = [orders, doubled]


@pytest.fixture
def home(in_postgres, tmp_path, monkeypatch):
    """A Dagster home with the lines about PostgreSQL in `dagster.yaml` uncommented."""
    yaml, address = in_postgres
    monkeypatch.setenv("DAGSTER_PG_URL", address)
    (tmp_path / "dagster.yaml").write_text(yaml)
    return tmp_path


@pytest.mark.slow
def test_a_backfill_a_rerun_and_sensors_on_an_instance_in_postgresql(home, lake):
    upkeep = maintenance(ASSETS, upkeep=Upkeep(max_snapshots=1, retain_snapshots=1, retain_hours=0))
    sensor = foreign_commits(ASSETS)
    own = dg.Definitions(
        assets=ASSETS,
        asset_checks=checks_for(ASSETS),
        jobs=[rerun_partitions(ASSETS)],
        sensors=[sensor],
        resources={"lake": lake, "io_manager": LakeIOManager(lake=lake)},
        executor=dg.in_process_executor,
    )
    defs = dg.Definitions.merge(own, upkeep)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert isinstance(instance.event_log_storage, PostgresEventLogStorage)
        span = {"dagster/asset_partition_range_start": DAYS[0], "dagster/asset_partition_range_end": DAYS[-1]}
        made = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance, tags=span)
        assert all(check.passed for check in made.get_asset_check_evaluations())
        days = {"config": {"partitions": [DAYS[1], DAYS[4]], "downstream": True}}
        rerun = defs.resolve_job_def("rerun_partitions")
        assert rerun.execute_in_process(instance=instance, run_config={"ops": {"rerun_orders": days}}).success
    tables = {name: lake.lake.table(f"nyc.{name}") for name in ("orders", "doubled")}
    assert [len(table.snapshots()) for table in tables.values()] == [2, 2]
    assert [table.scan().count() for table in tables.values()] == [5, 5]
    tables["orders"].append(pa.table({"day": [DAYS[0]], "n": [7]}))

    with dg.DagsterInstance.from_config(str(home)) as instance:  # What another process finds.
        assert instance.get_materialized_partitions(orders.key) == set(DAYS)
        for day, times in ((DAYS[0], 1), (DAYS[1], 2)):
            which = dg.AssetRecordsFilter(doubled.key, asset_partitions=[day])
            assert len(instance.fetch_materializations(which, limit=9).records) == times, day
        context = {"instance": instance, "resources": {"lake": lake, "upkeep": defs.resources["upkeep"]}}
        (seen,) = sensor(dg.build_sensor_context(**context)).asset_events
        assert seen.metadata["lake/snapshot_id"].value == "3"
        expiry = next(sensor for sensor in upkeep.sensors if sensor.name == "snapshot_expiry")
        asked = expiry(dg.build_sensor_context(**context)).run_requests
        assert {request.tags["lake/table"] for request in asked} == {"orders", "doubled"}
        for request in asked:
            job = defs.resolve_job_def(request.job_name)
            assert job.execute_in_process(instance=instance, run_config=request.run_config, tags=request.tags).success
        assert [len(table.snapshots()) for table in tables.values()] == [1, 1]
        before = dg.evaluate_automation_conditions(defs=defs, instance=instance)
        config = {"ops": {"rerun_orders": {"config": {"partitions": [DAYS[2]]}}}}
        assert rerun.execute_in_process(instance=instance, run_config=config).success
        after = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=before.cursor)
        assert after.get_requested_partitions(doubled.key) == {DAYS[2]}
