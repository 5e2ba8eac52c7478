"""Asset checks over real tables: what passes, what does not, and what they say."""

from datetime import datetime

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat.dagster import checks_for
from lakeformat.dagster.asset_table import column_schema
from lakeformat.dagster.checks import column_changes
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.spark import SparkResource

DAILY = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01")
DAYS = ("2013-01-01", "2013-01-02")


@pytest.fixture
def outcome(lake, instance):
    """Materialize an asset of `rows` with its checks; the results by name."""

    def outcome(rows, keys=DAYS, only_checks=False, **metadata):
        @dg.asset(
            partitions_def=DAILY,
            metadata={"partition_by": "dt", "unique_key": ["dt", "n"], **metadata},
            backfill_policy=dg.BackfillPolicy.single_run(),
        )
        def orders() -> pa.Table:
            return pa.Table.from_pylist(rows)

        defs = dg.Definitions(
            assets=[orders],
            asset_checks=checks_for([orders]),
            resources={"lake": lake, "io_manager": LakeIOManager(lake=lake, spark=SparkResource())},
            jobs=[
                dg.define_asset_job("made", selection=["orders"]),
                dg.define_asset_job("checked", selection=dg.AssetSelection.checks_for_assets("orders")),
            ],
        )
        tags = {} if only_checks else dict(zip(("start", "end"), keys, strict=True))
        result = defs.resolve_job_def("checked" if only_checks else "made").execute_in_process(
            instance=instance, tags={f"dagster/asset_partition_range_{edge}": key for edge, key in tags.items()}
        )
        return {
            asset_check_evaluation.check_name: asset_check_evaluation
            for asset_check_evaluation in result.get_asset_check_evaluations()
        }

    return outcome


def row(day, n, **more):
    return {"dt": day, "n": n, **more}


def test_a_sound_table_passes(outcome):
    found = outcome([row(DAYS[0], 1), row(DAYS[0], 2), row(DAYS[1], 1)])
    assert {name: result.passed for name, result in found.items()} == {
        "row_count": True,
        "unique_key": True,
        "partition_present": True,
        "columns_unchanged": True,
    }
    assert found["row_count"].metadata["rows_read"].value == 3


def test_repeated_keys_and_empty_partitions_are_found(outcome):
    found = outcome([row(DAYS[0], 1), row(DAYS[0], 1), row(DAYS[0], 2)])
    assert not found["unique_key"].passed
    assert found["unique_key"].metadata["repeated_rows"].value == 1
    assert found["unique_key"].severity == dg.AssetCheckSeverity.ERROR
    assert not found["partition_present"].passed
    assert found["partition_present"].severity == dg.AssetCheckSeverity.WARN
    assert found["partition_present"].metadata["empty_partitions"].value == DAYS[1]
    assert found["row_count"].passed


def test_a_column_that_somebody_added_is_reported_once(outcome, lake):
    rows = [row(DAYS[0], 1), row(DAYS[1], 1)]
    assert outcome(rows)["columns_unchanged"].passed
    lake.lake.table("nyc.orders").alter().add_column("note", "string").commit()
    found = outcome(rows)["columns_unchanged"]
    assert not found.passed
    assert found.metadata["changes"].value == "note is new"
    assert outcome(rows)["columns_unchanged"].passed


def test_checks_alone_look_at_every_partition_that_was_made(outcome, lake):
    outcome([row(DAYS[0], 1), row(DAYS[1], 1)])
    lake.lake.table("nyc.orders").drop_partitions([{"dt": DAYS[1]}])
    found = outcome([], only_checks=True)
    assert found["partition_present"].metadata["empty_partitions"].value == DAYS[1]
    assert found["row_count"].passed


def test_hidden_partitions_are_checked_by_the_time_of_their_rows(outcome, lake):
    hidden = {"format": "iceberg", "partition_by": {"window": "at"}, "layout": ["days(at)"], "unique_key": ["at", "n"]}
    rows = [{"at": datetime(2013, 1, 1, hour), "n": 1} for hour in (0, 0, 23)]
    found = outcome(rows, **hidden)
    assert found["row_count"].passed
    assert found["row_count"].metadata["rows_counted"].value == 3
    assert found["unique_key"].metadata["repeated_rows"].value == 1
    assert found["partition_present"].metadata["empty_partitions"].value == DAYS[1]
    shown = {c.name: c.tags for c in column_schema(lake.lake.table("nyc.orders").schema).columns}
    assert shown == {"at": {"partition": ""}, "n": {}}


def test_changes_of_columns_are_reported_in_words():
    def schema(**columns):
        return dg.TableSchema(columns=[dg.TableColumn(name, type) for name, type in columns.items()])

    before, now = schema(a="int", b="string", c="int"), schema(a="bigint", b="string", d="int")
    assert column_changes(before, now) == ["d is new", "c is gone", "a was int, is bigint"]
    assert column_changes(None, now) == []
