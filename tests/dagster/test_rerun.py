"""`rerun_partitions`: any set of partitions is one run and one snapshot per table, and the partitions turn green."""

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat.dagster import preview_rerun, rerun_partitions
from lakeformat.dagster.io_manager import READS_TAG, LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.spark import SparkResource
from lakeformat.errors import InvalidInput

DAILY = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01")
MONTHLY = dg.MonthlyPartitionsDefinition("2013-01-01", end_date="2013-03-01")
CELLS = dg.MultiPartitionsDefinition({"day": DAILY, "region": dg.StaticPartitionsDefinition(["eu", "us", "asia"])})
ROWS = {"leak": False}


@dg.asset(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}}, op_tags={"a": "b"})
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    keys = list(context.partition_keys)
    return pa.table({"dt": [*keys, *(["2013-02-20"] if ROWS["leak"] else [])], "n": [1] * (len(keys) + ROWS["leak"])})


@dg.asset(partitions_def=MONTHLY, metadata={"partition_by": {"month": "month"}})
def months(orders: pa.Table) -> pa.Table:
    counted = orders.set_column(0, "month", pa.array([dt[:7] for dt in orders["dt"].to_pylist()]))
    return counted.group_by("month").aggregate([("n", "sum")]).rename_columns(["month", "n"])


@dg.asset(partitions_def=CELLS, metadata={"partition_by": {"day": "dt", "region": "region"}})
def cells(context: dg.AssetExecutionContext, lake: LakeResource) -> pa.Table:
    found = [key.keys_by_dimension for key in context.partition_keys]
    assert lake.database == "nyc"
    days, regions = ([cell[dimension] for cell in found] for dimension in ("day", "region"))
    return pa.table({"dt": days, "region": regions, "n": [1] * len(found)})


@dg.asset(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}})
def written(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
    keys = list(context.partition_keys)
    context.add_asset_metadata({"made_by": "its own body"})
    return lake.write(context, pa.table({"dt": keys, "n": [1] * len(keys)}))


@dg.asset(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}})
def told(context: dg.AssetExecutionContext) -> dg.Output:
    """Appends, and says so only when it runs."""
    keys = list(context.partition_keys)
    return dg.Output(pa.table({"dt": keys, "n": [1] * len(keys)}), metadata={"write_mode": "append", "made_by": "us"})


RERUN = rerun_partitions([orders, months, cells, written, told], name="rerun_test")


@pytest.fixture
def rerun(lake, instance):
    def rerun(raises=True, dry_run=False, **partitions):
        ops = {f"rerun_{name}": {"config": {"partitions": keys}} for name, keys in partitions.items()}
        if dry_run:
            ops["plan"] = {"config": {"dry_run": True}}
        return RERUN.execute_in_process(
            run_config={"ops": ops},
            instance=instance,
            resources={"lake": lake, "io_manager": LakeIOManager(lake=lake)},
            raise_on_error=raises,
        )

    return rerun


def green(instance, asset):
    return sorted(instance.get_materialized_partitions(dg.AssetKey(asset)))


def test_days_that_are_not_next_to_each_other_are_one_snapshot_and_green(rerun, lake, instance):
    keys = ["2013-01-01", "2013-01-17", "2013-02-11"]
    result = rerun(orders=keys[::-1])
    table = lake.lake.table("nyc.orders")
    (snapshot,) = table.snapshots()
    assert sorted(table.scan().to_arrow()["dt"].to_pylist()) == keys
    assert green(instance, "orders") == keys
    records = instance.fetch_materializations(dg.AssetKey("orders"), limit=10).records
    events = {record.partition_key: record.asset_materialization for record in records}
    assert {e.metadata["dagster/partition_row_count"].value for e in events.values()} == {1}
    assert {e.tags["dagster/data_version"] for e in events.values()} == {str(snapshot.id)}
    assert snapshot.properties["dagster/run_id"] == result.run_id
    assert not lake.lake.exists("nyc.months"), "a table that nobody asked for is left alone"


def test_a_run_that_names_no_partition_reruns_the_newest_that_was_made(rerun, lake, instance):
    rerun(orders=["2013-01-01", "2013-01-17"])
    rerun()
    assert len(lake.lake.table("nyc.orders").snapshots()) == 2
    (newest,) = instance.fetch_materializations(dg.AssetKey("orders"), limit=1).records
    assert newest.partition_key == "2013-01-17"
    assert not lake.lake.exists("nyc.months")


def test_any_cells_of_a_two_dimensional_table_are_one_snapshot(rerun, lake, instance):
    rerun(cells=["2013-01-01|eu", "2013-01-02|us", "2013-02-03|asia"])
    assert len(lake.lake.table("nyc.cells").snapshots()) == 1
    assert green(instance, "cells") == ["2013-01-01|eu", "2013-01-02|us", "2013-02-03|asia"]


def test_an_asset_that_writes_in_its_body_is_made_again_too(rerun, lake, instance):
    rerun(written=["2013-01-01", "2013-02-11"])
    (snapshot,) = lake.lake.table("nyc.written").snapshots()
    assert green(instance, "written") == ["2013-01-01", "2013-02-11"]
    for record in instance.fetch_materializations(dg.AssetKey("written"), limit=5).records:
        event = record.asset_materialization
        assert event.tags["dagster/data_version"] == str(snapshot.id)
        assert event.metadata["dagster/partition_row_count"].value == 1
        assert event.metadata["made_by"].value == "its own body"


def test_what_an_output_says_of_its_write_holds_in_a_rerun(rerun, lake, instance):
    for _ in range(2):
        rerun(told=["2013-01-01", "2013-02-11"])
    assert lake.lake.table("nyc.told").scan().count() == 4
    event = instance.get_latest_materialization_event(dg.AssetKey("told")).asset_materialization
    assert event.metadata["made_by"].value == "us"


def test_downstream_tables_of_the_same_run_see_what_it_wrote(rerun, lake, instance):
    result = rerun(orders=["2013-01-01", "2013-01-09", "2013-02-02"], months=["2013-01-01", "2013-02-01"])
    rows = lake.lake.table("nyc.months").scan().to_arrow().to_pylist()
    assert sorted((row["month"], row["n"]) for row in rows) == [("2013-01", 2), ("2013-02", 1)]
    assert len(lake.lake.table("nyc.months").snapshots()) == 1
    tags = instance.get_run_by_id(result.run_id).tags
    assert tags[f"{READS_TAG}/months/nyc.orders"] == "1", "expiry leaves what the run reads"


def test_other_partitions_keep_their_files(rerun, lake, instance):
    resources = {"lake": lake, "io_manager": LakeIOManager(lake=lake, spark=SparkResource())}
    for key in ("2013-01-01", "2013-01-02", "2013-01-03"):
        dg.materialize([orders], resources=resources, instance=instance, partition_key=key)
    before = set(lake.lake.table("nyc.orders").inspect.files()["path"].to_pylist())
    rerun(orders=["2013-01-01", "2013-01-03"])
    after = set(lake.lake.table("nyc.orders").inspect.files()["path"].to_pylist())
    assert len(before & after) == 1
    assert "2013-01-02" in next(iter(before & after))


def test_a_partition_that_does_not_exist_is_named_and_nothing_is_written(rerun, lake):
    result = rerun(raises=False, orders=["2013-01-01", "1999-01-01"])
    assert not result.success
    said = result.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert "1999-01-01" in said
    assert not lake.lake.exists("nyc.orders")


def test_a_row_outside_the_set_fails_at_once(rerun, lake, monkeypatch):
    monkeypatch.setitem(ROWS, "leak", True)
    result = rerun(raises=False, orders=["2013-01-01", "2013-01-03"])
    said = result.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert "2013-02-20" in said
    assert not [event for event in result.all_events if event.is_step_up_for_retry]
    assert not lake.lake.exists("nyc.orders")


class Multiplied(dg.Config):
    by: int = 1


ATTEMPTS = []
HOOKS = []


@dg.success_hook
def noted(context):
    HOOKS.append(context.op.name)


@dg.asset(
    partitions_def=DAILY,
    metadata={"partition_by": {"date": "dt"}},
    retry_policy=dg.RetryPolicy(max_retries=1),
    hooks={noted},
)
def ordinary(context: dg.AssetExecutionContext, config: Multiplied, outside: pa.Table):
    """Uses what an asset may use."""
    ATTEMPTS.append(context.retry_number)
    if not context.retry_number:
        raise OSError("once")
    assert context.has_partition_key == (len(context.partition_keys) == 1)
    first, last = context.partition_keys[0], context.partition_keys[-1]
    assert context.partition_time_window.start.date().isoformat() == first
    assert (context.partition_key_range.start, context.partition_key_range.end) == (first, last)
    days = outside.filter(pc.is_in(outside["dt"], pa.array(context.partition_keys)))
    assert days.equals(outside), "the input has the partitions of the run"
    yield dg.Output(days.set_column(1, "n", pc.multiply(days["n"], config.by)), metadata={"by": config.by})


@dg.asset(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}})
def after_it(context: dg.AssetExecutionContext, ordinary: pa.Table) -> pa.Table:
    return ordinary


class Outside(dg.IOManager):
    """Another IO manager, of an asset of another location."""

    def load_input(self, context):
        keys = list(context.asset_partition_keys)
        return pa.table({"dt": keys, "n": [1] * len(keys)})

    def handle_output(self, context, obj): ...


OUTSIDE = dg.AssetSpec("outside", partitions_def=DAILY).with_io_manager_key("elsewhere")


@pytest.mark.parametrize("keys", [["2013-01-02"], ["2013-01-02", "2013-01-03"], ["2013-01-02", "2013-01-09"]])
def test_a_rerun_runs_the_step_of_the_asset_as_any_run_does(keys, lake, instance):
    ATTEMPTS.clear()
    HOOKS.clear()
    job = rerun_partitions([OUTSIDE, ordinary, after_it])
    resources = {"lake": lake, "io_manager": LakeIOManager(lake=lake), "elsewhere": Outside()}
    ops = {
        "rerun_ordinary": {"config": {"partitions": keys, "config": {"by": 7}}},
        "rerun_after_it": {"config": {"partitions": keys}},
    }
    assert job.execute_in_process({"ops": ops}, instance=instance, resources=resources).success
    assert ATTEMPTS == [0, 1]
    assert HOOKS == ["rerun_ordinary"]
    for name in ("ordinary", "after_it"):
        table = lake.lake.table(f"nyc.{name}")
        assert len(table.snapshots()) == 1
        assert sorted(table.scan().to_arrow().to_pylist(), key=str) == [{"dt": key, "n": 7} for key in keys]
        assert green(instance, name) == keys
    event = instance.get_latest_materialization_event(dg.AssetKey("ordinary")).asset_materialization
    assert event.metadata["by"].value == 7


def test_the_configuration_of_a_rerun_is_checked_before_it_starts(lake, instance):
    job = rerun_partitions([OUTSIDE, ordinary])
    ops = {"rerun_ordinary": {"config": {"partitions": ["2013-01-02"], "config": {"by": "seven"}}}}
    with pytest.raises(dg.DagsterInvalidConfigError, match="config"):
        job.execute_in_process({"ops": ops}, instance=instance, resources={"lake": lake, "io_manager": Outside(), "elsewhere": Outside()})  # fmt: skip


FOLLOWS = dg.AutomationCondition.eager().without(dg.AutomationCondition.in_latest_time_window())
AT_WORK = []


@dg.asset(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}})
def days(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"dt": list(context.partition_keys), "n": [1] * len(context.partition_keys)})


@dg.asset(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}}, automation_condition=FOLLOWS)
def doubled(days: pa.Table) -> pa.Table:
    for look in AT_WORK:
        look()
    return days


@dg.asset(partitions_def=MONTHLY, metadata={"partition_by": {"month": "month"}}, automation_condition=FOLLOWS)
def counted(doubled: pa.Table) -> pa.Table:
    rows = doubled.set_column(0, "month", pa.array([dt[:7] for dt in doubled["dt"].to_pylist()]))
    return rows.group_by("month").aggregate([("n", "sum")]).rename_columns(["month", "n"])


CHAIN = [days, doubled, counted]
SCATTERED = ["2013-01-03", "2013-01-17", "2013-02-11"]


@pytest.fixture
def chain(lake, instance, monkeypatch):
    """A chain that was made once, its rerun, what automation asks for, and what it asked for in the middle of a rerun."""
    resources = {"lake": lake, "io_manager": LakeIOManager(lake=lake)}
    defs = dg.Definitions(CHAIN, jobs=[rerun_partitions(CHAIN)], resources=resources, executor=dg.in_process_executor)
    for asset, months in ((days, False), (doubled, False), (counted, True)):
        for key in ["2013-01-01", "2013-02-01"] if months else SCATTERED:
            instance.report_runless_asset_event(dg.AssetMaterialization(asset.key, partition=key))
    cursor, during = None, []

    def asked():
        nonlocal cursor
        found = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=cursor)
        cursor = found.cursor
        return {key: sorted(found.get_requested_partitions(asset.key)) for asset in CHAIN if found.get_num_requested(asset.key) for key in [asset.key.to_user_string()]}  # fmt: skip

    def run(raises=True, **ops):
        config = {"ops": {f"rerun_{name}": {"config": op} for name, op in ops.items()}}
        job = defs.resolve_job_def("rerun_partitions")
        return job.execute_in_process(instance=instance, run_config=config, raise_on_error=raises)

    asked()
    monkeypatch.setattr(f"{__name__}.AT_WORK", [lambda: during.append(asked())])
    return run, asked, during


def test_automation_leaves_alone_what_a_rerun_makes_also_while_it_is_at_work(chain):
    run, asked, during = chain
    some = {"partitions": SCATTERED}
    run(days=some, doubled=some, counted={"partitions": ["2013-01-01", "2013-02-01"]})
    assert during == [{}], "the days are there, and what depends on them is on its way"
    assert asked() == {}
    run(days=some)
    assert asked()["doubled"] == SCATTERED, "what the rerun leaves alone follows"


def test_partitions_downstream_follow_in_the_same_run(chain, lake, instance):
    run, asked, during = chain
    result = run(days={"partitions": SCATTERED, "downstream": True})
    assert during == [{}]
    assert asked() == {}
    for name, keys in {"days": SCATTERED, "doubled": SCATTERED, "counted": ["2013-01-01", "2013-02-01"]}.items():
        made = [e for e in result.get_asset_materialization_events() if e.asset_key == dg.AssetKey(name)]
        assert sorted(event.partition for event in made) == keys
        assert len(lake.lake.table(f"nyc.{name}").snapshots()) == 1
    rows = lake.lake.table("nyc.counted").scan().to_arrow().to_pylist()
    assert sorted((row["month"], row["n"]) for row in rows) == [("2013-01", 2), ("2013-02", 1)]


def test_what_was_never_made_downstream_is_not_made_by_a_rerun(chain, lake):
    run, asked, _ = chain
    run(days={"partitions": ["2013-02-20"], "downstream": True})
    assert not lake.lake.exists("nyc.doubled")
    assert asked() == {"doubled": ["2013-02-20"]}


def test_dagster_knows_which_partitions_a_rerun_did_not_make(chain, instance, monkeypatch):
    """Where Dagster moves the event of `lakeformat.dagster.internals`, partitions of a rerun that fails stay as they were."""
    run, _, _ = chain
    monkeypatch.setattr(f"{__name__}.AT_WORK", [lambda: 1 / 0])
    assert not run(raises=False, days={"partitions": SCATTERED[:1]}, doubled={"partitions": SCATTERED[:2]}).success
    status = instance.get_status_by_partition(doubled.key, SCATTERED, DAILY)
    failed = {key: each.name for key, each in status.items() if each is not None}
    assert {key for key, name in failed.items() if name == "FAILED"} == set(SCATTERED[:2])


def test_a_dry_run_says_what_would_go_and_makes_nothing(rerun, lake, instance):
    days = ["2013-01-01", "2013-01-17"]
    regions = [f"{day}|{region}" for day in days for region in ("eu", "us")]
    rerun(orders=days, cells=regions)
    lake.lake.table("nyc.orders").append(pa.table({"dt": days[:1], "n": [2]}))
    tables = {name: lake.lake.table(f"nyc.{name}") for name in ("orders", "cells")}
    before = {name: [snapshot.id for snapshot in table.snapshots()] for name, table in tables.items()}
    events = len(instance.fetch_materializations(dg.AssetKey("orders"), limit=100).records)
    asked = {"orders": [*days, "2013-02-02"], "cells": regions[:1]}
    result = rerun(dry_run=True, **asked)
    assert {name: [snapshot.id for snapshot in table.snapshots()] for name, table in tables.items()} == before
    assert len(instance.fetch_materializations(dg.AssetKey("orders"), limit=100).records) == events
    assert not lake.lake.exists("nyc.written")
    (output,) = [event for event in result.all_events if event.is_successful_output and event.node_name == "plan"]
    shown = output.event_specific_data.metadata["lake/dry_run"].value
    assert "| orders | 2013-01-01 | replaced | 2 | 2 |" in shown
    assert "| orders | 2013-02-02 | new | 0 | 0 | 0 B |" in shown
    assert "| cells | 2013-01-01\\|eu | replaced | 1 | 1 |" in shown
    assert "4 partitions of 2 tables: 3 partitions replaced (4 rows and 4 files go)" in shown

    preview = preview_rerun([orders, months, cells, written, told], lake, asked)
    totals = preview.group_by("asset").aggregate([("row_count", "sum"), ("file_count", "sum"), ("size_bytes", "sum")])
    rerun(**asked)
    for row in totals.to_pylist():
        made = tables[row["asset"]].current_snapshot()
        gone = (made.rows_removed, made.files_removed, made.bytes_removed)
        assert gone == (row["row_count_sum"], row["file_count_sum"], row["size_bytes_sum"]), row["asset"]


def test_a_preview_follows_what_is_downstream_and_refuses_what_is_no_table(rerun, lake, instance):
    assets = [orders, months, cells, written, told]
    rerun(orders=["2013-01-01"])
    rerun(months=["2013-01-01"])
    asked = {"orders": ["2013-01-03"]}
    alone = preview_rerun(assets, lake, asked)
    assert alone.to_pylist() == [
        {
            "asset": "orders",
            "partition": "2013-01-03",
            "effect": "new",
            "row_count": 0,
            "file_count": 0,
            "size_bytes": 0,
        }
    ]
    followed = preview_rerun(assets, lake, asked, downstream=True, instance=instance)
    assert followed.column("asset").to_pylist() == ["orders", "months"]
    assert followed.column("effect").to_pylist() == ["new", "replaced"]
    with pytest.raises(InvalidInput, match="no partitioned table nope; there are cells, months, orders, told, written"):
        preview_rerun(assets, lake, {"nope": ["x"]})
    with pytest.raises(InvalidInput, match="needs instance="):
        preview_rerun(assets, lake, asked, downstream=True)
    with pytest.raises(dg.Failure, match="orders has no partitions 1999-01-01"):
        preview_rerun(assets, lake, {"orders": ["1999-01-01"]})
