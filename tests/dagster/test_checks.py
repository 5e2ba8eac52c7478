"""Asset checks over real tables: what passes, what does not, and what they say."""

from datetime import datetime

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat import InvalidInput
from lakeformat.dagster import LakeResource, check_specs, checks_for, published, run_checks
from lakeformat.dagster.asset_table import column_schema
from lakeformat.dagster.checks import column_changes
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.spark import SparkResource

DAILY = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01")
DAYS = ("2013-01-01", "2013-01-02")
NAMES = ("row_count", "unique_key", "partition_present", "columns_unchanged")
SCHEMA = pa.schema([("dt", pa.string()), ("n", pa.int64())])


@dg.asset(deps=["orders"], partitions_def=DAILY, backfill_policy=dg.BackfillPolicy.single_run())
def after() -> dg.MaterializeResult:
    return dg.MaterializeResult()


@pytest.fixture
def job(lake):
    """A job that materializes an asset of `rows` with its checks, and those that run its checks alone, all or one."""

    def job(rows, which="made", **metadata):
        @dg.asset(
            partitions_def=DAILY,
            metadata={"partition_by": "dt", "unique_key": ["dt", "n"], **metadata},
            backfill_policy=dg.BackfillPolicy.single_run(),
        )
        def orders() -> pa.Table:
            return pa.Table.from_pylist(rows, SCHEMA if rows and "at" not in rows[0] else None)

        downstream = published(orders, key="after") if "audit" in metadata else after
        checks = dg.AssetSelection.checks_for_assets("orders")
        one = dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey("orders"), "unique_key"))
        defs = dg.Definitions(
            assets=[orders, downstream],
            asset_checks=checks_for([orders]),
            resources={"lake": lake, "io_manager": LakeIOManager(lake=lake, spark=SparkResource())},
            jobs=[
                dg.define_asset_job("made", selection=dg.AssetSelection.assets("orders")),
                dg.define_asset_job("followed", selection=dg.AssetSelection.assets("orders", "after") | checks),
                dg.define_asset_job("checked", selection=checks),
                dg.define_asset_job("unique", selection=one),
            ],
        )
        return defs.resolve_job_def(which)

    return job


@pytest.fixture
def outcome(job, instance):
    """The results of the checks of a run of some days, or without any: check -> day -> evaluation."""

    def outcome(rows, keys=DAYS, which="made", **metadata):
        tags = dict(zip(("start", "end"), keys, strict=True)) if keys else {}
        result = job(rows, which, **metadata).execute_in_process(
            instance=instance,
            tags={f"dagster/asset_partition_range_{edge}": key for edge, key in tags.items()},
            raise_on_error=False,
        )
        by_check = {}
        for evaluation in result.get_asset_check_evaluations():
            assert evaluation.partition not in by_check.setdefault(evaluation.check_name, {}), "one for each key"
            by_check[evaluation.check_name][evaluation.partition] = evaluation
        return by_check

    return outcome


def row(day, n, **more):
    return {"dt": day, "n": n, **more}


def passed(outcome):
    return {name: [by_day[day].passed for day in sorted(by_day, key=str)] for name, by_day in outcome.items()}


def test_a_sound_table_passes_in_each_partition(outcome, instance):
    found = outcome([row(DAYS[0], 1), row(DAYS[0], 2), row(DAYS[1], 1)])
    whole = found.pop("as_declared")
    assert {key: result.passed for key, result in whole.items()} == {None: True}, "the table has it, not a day"
    assert passed(found) == {name: [True, True] for name in NAMES}
    assert [by_day.keys() for by_day in found.values()] == [set(DAYS)] * len(NAMES)
    assert [found["row_count"][day].metadata["rows_read"].value for day in DAYS] == [2, 1]
    for check in NAMES:
        key = dg.AssetCheckKey(dg.AssetKey("orders"), check)
        states = instance.event_log_storage.get_asset_check_partition_info([key])
        assert {(state.partition_key, state.latest_execution_status.value, state.is_current) for state in states} == {
            (day, "SUCCEEDED", True) for day in DAYS
        }


def test_repeated_keys_and_empty_partitions_are_found_where_they_are(outcome):
    found = outcome([row(DAYS[0], 1), row(DAYS[0], 1), row(DAYS[0], 2)])
    assert passed(found) == {
        "row_count": [True, True],
        "unique_key": [False, True],
        "partition_present": [True, False],
        "columns_unchanged": [True, True],
        "as_declared": [True],
    }
    repeated = found["unique_key"][DAYS[0]]
    assert repeated.metadata["repeated_rows"].value == 1
    assert repeated.severity == dg.AssetCheckSeverity.ERROR
    assert repeated.metadata["sample_keys"].value.splitlines()[2:] == [f"| {DAYS[0]} | 1 | 2 |"]
    empty = found["partition_present"][DAYS[1]]
    assert empty.severity == dg.AssetCheckSeverity.WARN
    assert empty.metadata["empty_partitions"].value == DAYS[1]


def test_five_sample_keys_and_a_query_that_finds_all(outcome, lake):
    found = outcome([row(day, n) for day in DAYS for n in range(8) for _ in range(1 + n % 4)])["unique_key"][DAYS[1]]
    assert found.metadata["repeated_rows"].value == 12
    assert len(found.metadata["sample_keys"].value.splitlines()) == 2 + 5
    query = found.metadata["query"].value.removeprefix("```sql\n").removesuffix("\n```")
    rows = lake.lake.sql(query).to_arrow().to_pylist()
    assert sorted(rows, key=lambda row: row["n"]) == [
        {"dt": DAYS[1], "n": n, "row_count": 1 + n % 4} for n in (1, 2, 3, 5, 6, 7)
    ]


def test_a_key_may_be_unique_over_the_table(outcome, lake):
    rows = [row(DAYS[0], 1), row(DAYS[0], 2), row(DAYS[1], 3)]
    lake.lake.create_table("nyc.orders", SCHEMA, partition_by=["dt"]).append(
        pa.table({"dt": ["2013-02-01"], "n": [2]}, SCHEMA)
    )
    assert passed(outcome(rows, unique_key="n"))["unique_key"] == [True, True]
    found = outcome(rows, unique_key="n", unique_over="table")["unique_key"]
    assert [found[day].passed for day in DAYS] == [False, True]
    assert found[DAYS[0]].metadata["sample_keys"].value.splitlines()[2:] == ["| 2 | 2 |"]
    assert found[DAYS[0]].description == "1 row of 2 has the n of another row of the table"


def test_what_a_unique_key_proves_is_said():
    def description(partitions, **metadata):
        specs = check_specs("orders", partitions_def=partitions, metadata={"unique_key": "n", **metadata})
        return next(spec.description for spec in specs if spec.name == "unique_key")

    assert description(DAILY, partition_by="dt") == "No two rows of a partition have the same n."
    assert description(DAILY, partition_by="dt", unique_over="table") == "No two rows of the table have the same n."
    assert description(DAILY, write="append") == "No two rows of the table have the same n."
    assert description(None) == "No two rows of the table have the same n."
    with pytest.raises(InvalidInput, match="unique_over='lake'; it must be one of partition, table"):
        check_specs("orders", metadata={"unique_key": "n", "unique_over": "lake"})


def test_a_failed_partition_blocks_what_is_downstream(job, instance):
    for n, is_sound in ((1, False), (2, True)):
        rows = [row(DAYS[0], 1), row(DAYS[0], n), row(DAYS[1], 1)]
        job_def = job(rows, "followed", audit=True, table="nyc.orders")
        result = job_def.execute_in_process(
            instance=instance,
            tags={"dagster/asset_partition_range_start": DAYS[0], "dagster/asset_partition_range_end": DAYS[1]},
            raise_on_error=False,
        )
        assert result.success == is_sound
        made = {event.asset_key.to_user_string() for event in result.get_asset_materialization_events()}
        assert ("after" in made) == is_sound


def test_a_column_that_somebody_added_is_reported_once(outcome, lake):
    rows = [row(DAYS[0], 1), row(DAYS[1], 1)]
    assert passed(outcome(rows))["columns_unchanged"] == [True, True]
    lake.lake.table("nyc.orders").alter().add_column("note", "string").commit()
    found = outcome(rows, schema_evolution="add")["columns_unchanged"]
    assert [result.passed for result in found.values()] == [False, False]
    assert found[DAYS[0]].metadata["changes"].value == "note is new"
    assert passed(outcome(rows, schema_evolution="add"))["columns_unchanged"] == [True, True]


def test_commits_of_others_between_two_runs_do_not_hide_a_new_column(outcome, lake, instance):
    rows = [row(DAYS[0], 1), row(DAYS[1], 1)]
    outcome(rows)
    lake.lake.table("nyc.orders").alter().add_column("note", "string").commit()
    schema = column_schema(lake.lake.table("nyc.orders").schema)
    for metadata in ({}, {"dagster/column_schema": schema}, {"dagster/column_schema": schema}):
        instance.report_runless_asset_event(dg.AssetMaterialization("orders", partition=DAYS[0], metadata=metadata))
    assert passed(outcome(rows, schema_evolution="add"))["columns_unchanged"] == [False, False]


def test_checks_alone_look_at_every_partition_that_was_made(outcome, lake):
    outcome([row(DAYS[0], 1), row(DAYS[1], 1)])
    lake.lake.table("nyc.orders").drop_partitions([{"dt": DAYS[1]}])
    found = outcome([], None, which="checked")
    assert {day: result.passed for day, result in found["partition_present"].items()} == {
        DAYS[0]: True, DAYS[1]: False, None: False
    }  # fmt: skip
    whole = found["partition_present"][None]
    assert whole.metadata["empty_partitions"].value == DAYS[1]
    assert whole.description == f"1 of 2 partitions failed: {DAYS[1]}"
    assert found["row_count"][None].passed
    assert found["row_count"][None].metadata["rows_read"].value == 1


@pytest.mark.parametrize("keys", [None, DAYS])
def test_each_check_runs_alone(outcome, keys):
    rows = [row(DAYS[0], 1), row(DAYS[0], 1), row(DAYS[1], 1)]
    outcome(rows)
    found = outcome(rows, keys, which="unique")
    assert found.keys() == {"unique_key"}
    assert [found["unique_key"][day].passed for day in DAYS] == [False, True]
    assert [day for day in found["unique_key"] if day] == [*DAYS[::-1]], "what failed comes last, for the check's page"


def test_a_declaration_that_has_changed_is_found_by_the_checks_alone(outcome):
    """One that a person has edited, and whose next run would be refused."""
    rows = [row(day, 1) for day in DAYS]
    assert passed(outcome(rows))["as_declared"] == [True]
    found = outcome(rows, None, which="checked", table_properties={"a.b": "c"})
    assert {name for name, by_day in found.items() if not all(r.passed for r in by_day.values())} == {"as_declared"}
    result = found["as_declared"][None]
    assert result.severity == dg.AssetCheckSeverity.ERROR
    assert "table.alter().set_properties({'a.b': 'c'}).commit()" in result.description


def test_hidden_partitions_are_checked_by_the_time_of_their_rows(outcome, lake):
    hidden = {"format": "iceberg", "partition_by": {"window": "at"}, "layout": ["days(at)"], "unique_key": ["at", "n"]}
    rows = [{"at": datetime(2013, 1, 1, hour), "n": 1} for hour in (0, 0, 23)]
    found = outcome(rows, **hidden)
    assert passed(found)["row_count"] == [True, True]
    assert [found["row_count"][day].metadata["rows_counted"].value for day in DAYS] == [3, 0]
    repeated = found["unique_key"][DAYS[0]]
    assert repeated.metadata["repeated_rows"].value == 1
    query = repeated.metadata["query"].value.removeprefix("```sql\n").removesuffix("\n```")
    assert lake.lake.sql(query).to_arrow()["row_count"].to_pylist() == [2]
    assert found["partition_present"][DAYS[1]].metadata["empty_partitions"].value == DAYS[1]
    shown = {c.name: c.tags for c in column_schema(lake.lake.table("nyc.orders").schema).columns}
    assert shown == {"at": {"partition": ""}, "n": {}}


@pytest.mark.parametrize("keys", [DAYS, ("2013-01-01", "2013-01-01")])
@pytest.mark.parametrize("in_body", [True, False])
def test_checks_in_the_assets_own_step(lake, instance, in_body, keys):
    metadata = {"partition_by": "dt", "unique_key": ["n"]}
    rows = [row(DAYS[0], 1), row(DAYS[0], 1), row(DAYS[1], 1)]

    @dg.asset(
        partitions_def=DAILY,
        metadata=metadata,
        backfill_policy=dg.BackfillPolicy.single_run(),
        check_specs=check_specs("orders", partitions_def=DAILY, metadata=metadata),
    )
    def orders(context: dg.AssetExecutionContext, lake: LakeResource):
        days = pa.Table.from_pylist([row for row in rows if row["dt"] in context.partition_keys], SCHEMA)
        yield lake.write(context, days) if in_body else dg.Output(days)
        yield from run_checks(context, lake)

    assert checks_for([orders]) == []
    result = dg.materialize(
        [orders],
        instance=instance,
        resources={"lake": lake, "io_manager": LakeIOManager(lake=lake)},
        tags={f"dagster/asset_partition_range_{edge}": key for edge, key in zip(("start", "end"), keys, strict=True)},
    )
    (step,) = {event.step_key for event in result.get_step_success_events()}
    assert step == "orders"
    found = {(e.check_name, e.partition): e.passed for e in result.get_asset_check_evaluations()}
    days = sorted(set(keys))
    assert found.keys() == {(name, day) for name in NAMES for day in days} | {("as_declared", None)}
    assert {key for key, is_passed in found.items() if not is_passed} == {("unique_key", DAYS[0])}
    states = instance.event_log_storage.get_asset_check_partition_info(
        [dg.AssetCheckKey(dg.AssetKey("orders"), "row_count")]
    )
    assert {(state.partition_key, state.is_current) for state in states} == {(day, True) for day in days}


def test_changes_of_columns_are_reported_in_words():
    def schema(**columns):
        return dg.TableSchema(columns=[dg.TableColumn(name, type) for name, type in columns.items()])

    before, now = schema(a="int", b="string", c="int"), schema(a="bigint", b="string", d="int")
    assert column_changes(before, now) == ["d is new", "c is gone", "a was int, is bigint"]
    assert column_changes(None, now) == []
