"""Runs at the same time on one table: with pools one waits for the other, without them all land all the same."""

import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.spark import SparkResource
from lakeformat.dagster.upkeep import Upkeep, maintain_job
from pipelines.demo import DEMO_TAG, end_dead_runs, only_demo
from pipelines.tables import TABLES

ROOT = Path(__file__).parent.parent.parent
DAILY = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01")
KEYS = [f"2013-01-{day:02d}" for day in range(1, 9)]

RUN = """
import sys, time
import dagster as dg, pyarrow as pa
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.spark import SparkResource

warehouse, home, key = sys.argv[1:]

@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition("2013-01-01"), metadata={"partition_by": "dt"}, pool="lake__orders"
)
def orders() -> pa.Table:
    began = time.time()
    time.sleep(1)
    print(f"[{began}, {time.time()}]", flush=True)
    return pa.table({"dt": [key], "n": [1]})

lake = LakeResource(warehouse=warehouse, database="nyc")
io = LakeIOManager(lake=lake, spark=SparkResource())
with dg.DagsterInstance.from_config(home) as instance:
    dg.materialize([orders], resources={"io_manager": io}, instance=instance, partition_key=key)
"""


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_eight_runs_at_once_without_pools_all_land(lake, format):
    start = threading.Barrier(len(KEYS))

    @dg.asset(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}, "format": format})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        start.wait()
        return pa.table({"dt": [context.partition_key], "n": [1]})

    def run(key):
        io = LakeIOManager(lake=lake, spark=SparkResource())
        with dg.DagsterInstance.ephemeral() as instance:
            return dg.materialize([orders], resources={"io_manager": io}, instance=instance, partition_key=key).success

    with ThreadPoolExecutor(len(KEYS)) as pool:
        assert all(pool.map(run, KEYS))
    table = lake.lake.table("nyc.orders")
    assert sorted(table.scan().to_arrow()["dt"].to_pylist()) == KEYS
    assert len(table.snapshots()) == len(KEYS)


@pytest.fixture
def home(tmp_path):
    """A Dagster home with the project's own limits."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home / "dagster.yaml")
    return home


def test_a_demo_that_was_killed_holds_no_pool_and_no_snapshot(home):
    with dg.DagsterInstance.from_config(str(home)) as instance:
        status, pools = dg.DagsterRunStatus.STARTED, instance.event_log_storage
        job = maintain_job({"flights": TABLES["flights"]})
        run = instance.create_run_for_job(job, status=status, tags={DEMO_TAG: "yes"})
        other = instance.create_run_for_job(job, status=status)
        pools.initialize_concurrency_limit_to_default("lake__flights")
        assert pools.claim_concurrency_slot("lake__flights", run.run_id, "maintain").is_claimed
        with only_demo(home):
            with pytest.raises(SystemExit, match="another demo is at work"), only_demo(home):
                pass
            end_dead_runs(instance)
        assert instance.get_run_by_id(run.run_id).status == dg.DagsterRunStatus.FAILURE
        assert instance.get_run_by_id(other.run_id).status == status
        assert pools.claim_concurrency_slot("lake__flights", other.run_id, "maintain").is_claimed


def test_maintenance_waits_in_the_pool_of_each_table(home, lake):
    for name in ("airlines", "airports"):
        lake.lake.create_table(f"nyc.{name}", pa.schema([("n", pa.int64())])).append(pa.table({"n": [1]}))
    job = maintain_job({name: TABLES[name] for name in ("airlines", "airports")})
    with dg.DagsterInstance.from_config(str(home)) as instance:
        pools = instance.event_log_storage
        writer = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        pools.initialize_concurrency_limit_to_default("lake__airports")
        assert pools.claim_concurrency_slot("lake__airports", writer.run_id, "airports").is_claimed

        def maintain():
            return job.execute_in_process(instance=instance, resources={"lake": lake, "upkeep": Upkeep()})

        with ThreadPoolExecutor() as threads:
            run = threads.submit(maintain)
            while not run.done() and not instance.fetch_observations(dg.AssetKey("airlines"), limit=1).records:
                time.sleep(0.05)
            time.sleep(0.5)
            assert not run.done(), "airports has a writer"
            pools.free_concurrency_slots_for_run(writer.run_id)
            assert run.result(60).success
        assert not pools.get_concurrency_info("lake__airports").claimed_slots


def test_maintenance_gets_a_place_that_became_free_as_it_began_to_wait(home, lake, monkeypatch):
    lake.lake.create_table("nyc.airports", pa.schema([("n", pa.int64())])).append(pa.table({"n": [1]}))
    job = maintain_job({"airports": TABLES["airports"]})
    with dg.DagsterInstance.from_config(str(home)) as instance:
        pools = instance.event_log_storage
        writer = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        pools.initialize_concurrency_limit_to_default("lake__airports")
        assert pools.claim_concurrency_slot("lake__airports", writer.run_id, "airports").is_claimed
        added = type(pools).add_pending_step

        def late(self, *arguments, **named):
            self.free_concurrency_slots_for_run(writer.run_id)
            added(self, *arguments, **named)

        monkeypatch.setattr(type(pools), "add_pending_step", late)
        assert job.execute_in_process(instance=instance, resources={"lake": lake, "upkeep": Upkeep()}).success


@pytest.mark.long("test_maintenance_waits_in_the_pool_of_each_table, and test_definitions.py: every table is in a pool")
def test_processes_with_one_pool_wait_for_each_other(lake, home):
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.get_runs(limit=1)  # The first to open a home makes its schema; two at once would race.
        instance.event_log_storage.get_concurrency_keys()
        instance.fetch_run_status_changes(dg.DagsterEventType.RUN_SUCCESS, limit=1)
    command = [sys.executable, "-c", RUN, lake.warehouse, str(home)]
    runs = [
        subprocess.Popen([*command, key], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for key in KEYS[:2]
    ]
    answers = [run.communicate(timeout=400) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], [errors[-2000:] for _, errors in answers]
    at_work = sorted(json.loads(out) for out, _ in answers)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(at_work)), at_work
    assert sorted(lake.lake.table("nyc.orders").scan().to_arrow()["dt"].to_pylist()) == KEYS[:2]
