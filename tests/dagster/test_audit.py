"""Write, audit, publish: rows are seen once their blocking checks have passed, however often and where a run dies."""

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat import Table
from lakeformat.dagster import LakeIOManager, LakeResource, checks_for, maintenance, published, rerun_partitions
from lakeformat.errors import InvalidInput

# Partitions in one run upstream, and one by one downstream.
pytestmark = pytest.mark.filterwarnings("ignore:Asset job .* materializes assets with varying BackfillPolicies")

DAILY = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
WORLD = {"n": [1, 2], "meanwhile": lambda: None, "dies": ""}
DECLARED = {
    "table": "nyc.orders",
    "format": "iceberg",
    "partition_by": {"date": "dt"},
    "audit": True,
    "unique_key": ["dt", "n"],
}


class Dies(Exception):
    """A process that is gone."""


class Killed(LakeIOManager):
    """Dies after what it wrote has landed, where the world says so."""

    def handle_output(self, context: dg.OutputContext, obj) -> None:
        super().handle_output(context, obj)
        if WORLD["dies"] == "written":
            raise Dies


class Dying(LakeResource):
    """Dies once the rows are published, where the world says so."""

    def declared(self, asset, definition, *output):
        if (
            WORLD["dies"] == "published"
            and self.lake.exists("nyc.orders")
            and self.lake.table("nyc.orders").scan().count()
        ):
            raise Dies
        return super().declared(asset, definition, *output)


@dg.asset(partitions_def=DAILY, metadata=DECLARED, backfill_policy=dg.BackfillPolicy.single_run())
def orders_audited(context: dg.AssetExecutionContext) -> pa.Table:
    keys = list(context.partition_keys)
    return pa.table({"dt": [key for key in keys for _ in WORLD["n"]], "n": WORLD["n"] * len(keys)})


@dg.asset_check(asset=orders_audited, blocking=True)
def positive(orders_audited: pa.Table) -> dg.AssetCheckResult:
    WORLD["meanwhile"]()
    return dg.AssetCheckResult(passed=min(orders_audited["n"].to_pylist(), default=1) > 0)


ORDERS = published(orders_audited, key="orders")


@dg.asset(partitions_def=DAILY, metadata={"partition_by": {"date": "dt"}})
def after(orders: pa.Table) -> pa.Table:
    return orders


ASSETS = [orders_audited, ORDERS, after]


@pytest.fixture
def run(lake, monkeypatch, tmp_path):
    monkeypatch.setenv("LAKE_WAREHOUSE", lake.warehouse)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:

        def run(*days, again=None, **world):
            for name, value in {"n": [1, 2], "meanwhile": lambda: None, "dies": "", **world}.items():
                monkeypatch.setitem(WORLD, name, value)
            edges = zip(("start", "end"), (days[0], days[-1]), strict=True) if days else ()
            tags = {f"dagster/asset_partition_range_{edge}": day for edge, day in edges}
            if again:
                asked = instance.get_run_by_id(again.run_id).tags
                tags = {
                    name: value for name, value in asked.items() if name.startswith("dagster/asset_partition_range")
                }
            options = dg.ReexecutionOptions.from_failure(again.run_id, instance) if again else None
            job = dg.reconstructable(auditing)
            return dg.execute_job(job, instance, tags=tags, reexecution_options=options)

        yield run


def auditing() -> dg.JobDefinition:
    lake = Dying(warehouse=dg.EnvVar("LAKE_WAREHOUSE"), database="nyc")
    defs = dg.Definitions(
        assets=ASSETS,
        asset_checks=[*checks_for([orders_audited]), positive],
        jobs=[dg.define_asset_job("auditing", [asset.key for asset in ASSETS])],
        resources={"lake": lake, "io_manager": Killed(lake=lake)},
        executor=dg.in_process_executor,
    )
    return defs.resolve_job_def("auditing")


@pytest.fixture
def seen(lake):
    """The rows that readers of the table see, and its branches."""

    def seen():
        table = lake.lake.table("nyc.orders")
        rows = sorted((row["dt"], row["n"]) for row in table.scan().to_arrow().to_pylist())
        return rows, set(table.inspect.branches()["branch_name"].to_pylist()) - {"main"}

    return seen


ONE, TWO = "2013-01-01", "2013-01-02"


def test_rows_are_published_once_their_checks_have_passed(run, seen, lake):
    looked = []
    assert run(ONE, TWO, meanwhile=lambda: looked.append(seen()[0])).success
    assert looked == [[]], "the check saw rows that nobody else did"
    assert seen() == ([(ONE, 1), (ONE, 2), (TWO, 1), (TWO, 2)], set())
    assert lake.lake.table("nyc.after").scan().count() == 4


@pytest.mark.parametrize("n", [[-1, 2], [3, 3]], ids=["a check of one's own", "a key twice"])
def test_a_check_that_fails_leaves_the_table_untouched(run, seen, lake, n):
    assert run(ONE).success
    before, snapshots = seen()[0], lake.lake.table("nyc.orders").snapshots()
    failed = run(ONE, n=n)
    assert not failed.success
    assert seen()[0] == before
    assert lake.lake.table("nyc.orders").snapshots() == snapshots
    branch = f"audit_{failed.run_id}"
    assert seen()[1] == {branch}, "what failed can be looked at"
    assert sorted(lake.lake.table("nyc.orders").branch(branch).scan().to_arrow()["n"].to_pylist()) == n
    assert failed.asset_materializations_for_node("orders") == []
    assert run(TWO).success
    assert seen()[0] == sorted([*before, (TWO, 1), (TWO, 2)]), "rows that failed come with no other run"


def test_a_table_that_moved_on_gets_exactly_the_partitions_of_the_run(run, seen, lake):
    assert run(ONE).success
    others = pa.table({"dt": [TWO], "n": pa.array([7], pa.int64())})
    assert run(ONE, n=[5, 6], meanwhile=lambda: lake.lake.table("nyc.orders").append(others)).success
    assert seen() == ([(ONE, 5), (ONE, 6), (TWO, 7)], set())


def test_a_run_that_died_is_executed_again_from_its_failure_or_as_a_new_one(run, seen, lake, monkeypatch):
    died = run(ONE, dies="written")
    assert not died.success
    assert seen()[0] == []
    assert run(again=died).success
    assert seen() == ([(ONE, 1), (ONE, 2)], set())
    died = run(ONE, dies="written", n=[8])
    assert run(ONE, n=[9]).success
    assert seen() == ([(ONE, 9)], {f"audit_{died.run_id}"})


def test_a_publication_that_landed_before_its_process_died_is_found(run, seen, lake):
    died = run(ONE, dies="published")
    assert not died.success
    table = lake.lake.table("nyc.orders")
    (before, _), snapshots = seen(), table.snapshots()
    assert before == [(ONE, 1), (ONE, 2)]
    table.append(pa.table({"dt": [TWO], "n": pa.array([7], pa.int64())}))
    again = run(again=died)
    assert again.success
    (event,) = again.asset_materializations_for_node("orders")
    assert event.metadata["lake/snapshot_id"].value == str(snapshots[-1].id)
    assert seen() == ([*before, (TWO, 7)], set())


def test_what_nobody_wrote_cannot_be_published(lake, instance):
    resources = {"lake": lake, "io_manager": LakeIOManager(lake=lake)}
    lake.lake.create_table("nyc.orders", pa.schema([("dt", pa.string()), ("n", pa.int64())]), format="iceberg")
    options = {"resources": resources, "instance": instance, "partition_key": ONE, "raise_on_error": False}
    failed = dg.materialize([orders_audited, ORDERS], selection=[ORDERS], **options)
    said = failed.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert "publish in the run that writes orders_audited" in said


def test_rows_of_a_paimon_table_are_published_once_their_check_has_passed(lake, instance):
    world = {"n": [1, 2]}

    @dg.asset(metadata={"table": "nyc.states", "audit": True, "primary_key": ["n"], "unique_key": ["n"]})
    def states_audited() -> pa.Table:
        return pa.table({"n": world["n"]})

    @dg.asset_check(asset=states_audited, blocking=True)
    def few(states_audited: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=len(states_audited) < 3)

    states = published(states_audited, key="states")
    options = {"instance": instance, "raise_on_error": False}
    options["resources"] = {"lake": lake, "io_manager": LakeIOManager(lake=lake)}
    assert dg.materialize([states_audited, few, states], **options).success
    table = lake.lake.table("nyc.states")
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [1, 2]
    assert table.inspect.branches().num_rows == 0
    world["n"] = [3, 4, 5]
    failed = dg.materialize([states_audited, few, states], **options)
    assert not failed.success
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [1, 2]
    assert table.inspect.branches()["branch_name"].to_pylist() == [f"audit_{failed.run_id}"]


def test_upkeep_is_of_what_publishes_and_reruns_leave_out_both(lake):
    assert [job.metadata["lake/tables"].value for job in maintenance(ASSETS).jobs] == ["orders, after"] * 2
    assert {node.name for node in rerun_partitions(ASSETS).nodes} == {"plan", "rerun_after"}
    with pytest.raises(InvalidInput, match="'audit': True"):
        published(after, key="x")


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_first_audited_write_that_is_refused_leaves_no_table(lake, instance, format):
    world = {"day": TWO}

    @dg.asset(partitions_def=DAILY, metadata={**DECLARED, "format": format})
    def orders_audited() -> pa.Table:
        return pa.table({"dt": [world["day"]], "n": [1]})

    assets = [orders_audited, published(orders_audited, key="orders")]
    resources = {"lake": lake, "io_manager": LakeIOManager(lake=lake)}
    options = {"resources": resources, "instance": instance, "partition_key": ONE, "raise_on_error": False}
    assert not dg.materialize(assets, **options).success, "a row of another day"
    assert not lake.lake.exists("nyc.orders")
    world["day"] = ONE
    assert dg.materialize(assets, **options).success
    world["day"] = TWO
    assert not dg.materialize(assets, **options).success
    assert lake.lake.table("nyc.orders").scan().to_arrow()["dt"].to_pylist() == [ONE]


def test_an_audited_asset_that_nothing_publishes_is_refused_when_definitions_load_and_when_it_runs(lake, instance):
    with pytest.raises(InvalidInput, match=r"add published\(orders_audited, key=...\)"):
        maintenance([orders_audited, after])
    resources = {"lake": lake, "io_manager": LakeIOManager(lake=lake)}
    options = {"resources": resources, "instance": instance, "partition_key": ONE, "raise_on_error": False}
    failed = dg.materialize([orders_audited, ORDERS], selection=[orders_audited], **options)
    failure = failed.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert "nothing in this run publishes it; run orders_audited together with published(" in failure
    assert not lake.lake.exists("nyc.orders")


def audited_pair():
    """Two audited assets whose tables belong together, the first of which is bad where the world says so."""

    @dg.asset(metadata={"table": "nyc.bills", "format": "iceberg", "audit": True, "unique_key": ["n"]})
    def bills_audited() -> pa.Table:
        return pa.table({"n": WORLD["n"]})

    @dg.asset(metadata={"table": "nyc.lines", "format": "paimon", "audit": True, "unique_key": ["n"]})
    def lines_audited() -> pa.Table:
        return pa.table({"n": [1, 2]})

    pair = [bills_audited, lines_audited]
    return pair, [published(asset, key=asset.key.path[-1].removesuffix("_audited"), together=pair) for asset in pair]


def test_tables_that_belong_together_move_once_the_checks_of_all_have_passed(lake, instance, monkeypatch):
    pair, publishers = audited_pair()

    def materialize():
        resources = {"lake": lake, "io_manager": LakeIOManager(lake=lake)}
        assets = [*pair, *publishers, *checks_for(pair)]
        return dg.materialize(assets, resources=resources, instance=instance, raise_on_error=False)

    def counts():
        tables = [lake.lake.table(f"nyc.{name}") for name in ("bills", "lines")]
        return [table.scan().count() if table.current_snapshot() else 0 for table in tables]

    monkeypatch.setitem(WORLD, "n", [1, 1])
    failed = materialize()
    assert not failed.success
    materialized = {event.asset_key.to_user_string() for event in failed.get_asset_materialization_events()}
    assert materialized == {"bills_audited", "lines_audited"}
    assert counts() == [0, 0]
    monkeypatch.setitem(WORLD, "n", [1, 2])
    assert materialize().success
    assert counts() == [2, 2]


def pairing() -> dg.JobDefinition:
    pair, publishers = audited_pair()
    lake = LakeResource(warehouse=dg.EnvVar("LAKE_WAREHOUSE"), database="nyc")
    defs = dg.Definitions(
        assets=[*pair, *publishers],
        asset_checks=checks_for(pair),
        resources={"lake": lake, "io_manager": LakeIOManager(lake=lake)},
        executor=dg.in_process_executor,
        jobs=[dg.define_asset_job("pairing", "*")],
    )
    return defs.resolve_job_def("pairing")


def test_a_run_that_dies_between_two_tables_is_finished_by_its_reexecution(lake, monkeypatch, tmp_path):
    monkeypatch.setenv("LAKE_WAREHOUSE", lake.warehouse)
    fast_forward = Table.fast_forward

    def dies(table, to):
        if table.name == "nyc.lines":
            raise Dies
        fast_forward(table, to)

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        with monkeypatch.context() as dying:
            dying.setattr(Table, "fast_forward", dies)
            died = dg.execute_job(dg.reconstructable(pairing), instance)
        assert not died.success
        options = dg.ReexecutionOptions.from_failure(died.run_id, instance)
        again = dg.execute_job(dg.reconstructable(pairing), instance, reexecution_options=options)
    assert again.success
    materialized = {event.asset_key.to_user_string() for event in again.get_asset_materialization_events()}
    assert "lines" in materialized
    assert not materialized & {"bills_audited", "lines_audited"}, "what has passed is not made again"
    assert [lake.lake.table(f"nyc.{name}").scan().count() for name in ("bills", "lines")] == [2, 2]
