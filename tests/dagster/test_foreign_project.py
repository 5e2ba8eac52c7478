"""`lakeformat.dagster` in somebody else's repository: with a package `resources` of its own, and without Spark, pandas or polars."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

RESOURCES = """
import os
from lakeformat.dagster import LakeIOManager, LakeResource

lake = LakeResource(warehouse=os.environ["WAREHOUSE"], database="shop")
RESOURCES = {"lake": lake, "io_manager": LakeIOManager(lake=lake)}
"""

DEFINITIONS = """
import sys

class NotInstalled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "pandas", "polars", "duckdb", "grpc", "assets", "pipelines"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled)

import dagster as dg
import pyarrow as pa
from lakeformat.dagster import (
    Upkeep, checks_for, external_tables, foreign_commits, maintenance, rerun_partitions
)
from resources import RESOURCES, lake

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-03-01")

@dg.asset(key=["shop", "orders"], partitions_def=DAYS, metadata={"partition_by": {"date": "day"}, "unique_key": ["day"]},
          backfill_policy=dg.BackfillPolicy.single_run())
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"day": list(context.partition_keys), "n": [1] * len(context.partition_keys)})

@dg.asset(partitions_def=DAYS, metadata={"partition_by": {"date": "day"}}, pool="own",
          ins={"orders": dg.AssetIn(key=["shop", "orders"])}, backfill_policy=dg.BackfillPolicy.single_run())
def doubled(orders: pa.Table) -> pa.Table:
    return orders

@dg.asset(ins={"orders": dg.AssetIn(key=["shop", "orders"])})
def unannotated(orders):
    return orders

@dg.op
def tenfold(context: dg.OpExecutionContext) -> pa.Table:
    return pa.table({"day": [context.partition_key], "n": [10]})

@dg.graph_asset(partitions_def=DAYS, metadata={"partition_by": {"date": "day"}})
def graphed():
    return tenfold()

@dg.multi_asset(specs=[dg.AssetSpec("left"), dg.AssetSpec("right")])
def both(lake: dg.ResourceParam[object]):
    return dg.MaterializeResult(asset_key="left"), dg.MaterializeResult(asset_key="right")

lake.lake.create_table("theirs.events", pa.schema([("n", pa.int64())]), if_exists="ignore").append(pa.table({"n": [1]}))
ASSETS = [orders, doubled, graphed, both]
EXTERNAL = external_tables(lake, ["theirs.events"])
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[*ASSETS, *EXTERNAL, unannotated],
        asset_checks=checks_for(ASSETS),
        jobs=[rerun_partitions(ASSETS), dg.define_asset_job("daily", [orders, doubled]),
              dg.define_asset_job("observed", [each.key for each in EXTERNAL])],
        sensors=[foreign_commits(ASSETS)],
        resources=RESOURCES,
        executor=dg.in_process_executor,
    ),
    maintenance(ASSETS, upkeep=Upkeep(max_snapshots=1, retain_snapshots=1), sweep_cron="0 3 * * *"),
)

if __name__ == "__main__":
    repository = defs.get_repository_def()
    repository.load_all_definitions()
    sensors = {each.name: each.default_status.name for each in repository.sensor_defs}
    assert {name for name, status in sensors.items() if status == "RUNNING"} == {
        "compaction", "foreign_commits", "snapshot_expiry"
    }, sensors
    (schedule,) = repository.schedule_defs
    assert (schedule.name, schedule.cron_schedule, schedule.default_status.name) == ("sweep", "0 3 * * *", "RUNNING")

    with dg.DagsterInstance.ephemeral() as instance:
        def run(job, **options):
            result = defs.resolve_job_def(job).execute_in_process(instance=instance, **options)
            assert all(each.passed for each in result.get_asset_check_evaluations())
            return result

        edges = ("2026-01-01", "2026-01-05")
        tags = {f"dagster/asset_partition_range_{edge}": key for edge, key in zip(("start", "end"), edges)}
        assert len(run("daily", tags=tags).get_asset_check_evaluations()) == (4 + 3) * 5 + 2  # One for each day, or table.
        days = {"partitions": ["2026-01-02", "2026-02-01"]}
        run("rerun_partitions", run_config={"ops": {"rerun_shop__orders": {"config": days}, "rerun_doubled": {"config": days}}})
        tables = {name: lake.lake.table(name) for name in ("shop.orders", "shop.doubled")}
        for table in tables.values():
            assert len(table.snapshots()) == 2
            assert table.scan().count() == 6
        run("maintain", run_config={"ops": {"maintain_tables": {"config": {"tables": ["shop/orders"], "compact": True, "expire": True}}}})
        assert len(tables["shop.orders"].snapshots()) == 1
        run("sweep_orphans")
        (seen,) = run("observed").get_asset_observation_events()
        seen = seen.asset_observation_data.asset_observation
        assert seen.metadata["dagster/row_count"].value == 1
        assert seen.tags["dagster/data_version"] == str(lake.lake.table("theirs.events").current_snapshot().id)
        tables["shop.doubled"].append(pa.table({"day": ["2026-01-03"], "n": [7]}))
        sensor = repository.get_sensor_def("foreign_commits")
        context = dg.build_sensor_context(instance=instance, resources={"lake": lake}, repository_def=None)
        (event,) = sensor(context).asset_events
        assert event.asset_key == dg.AssetKey("doubled")
        assert dg.materialize([graphed], resources=RESOURCES, instance=instance, partition_key="2026-01-01").success
        assert lake.lake.table("shop.graphed").scan().count() == 1
        result = dg.materialize(
            [orders, unannotated], selection=[unannotated], resources=RESOURCES, instance=instance, raise_on_error=False
        )
        assert "pip install 'lakeformat[spark]'" in str(result.get_step_failure_events()[0].step_failure_data)
        print("done")
"""


def test_a_repository_with_its_own_resources_has_jobs_sensors_checks_and_reruns(tmp_path):
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "__init__.py").write_text(RESOURCES)
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "WAREHOUSE": str(tmp_path / "warehouse")}
    command = [sys.executable, "definitions.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.endswith("done\n"), run.stderr[-4000:]
