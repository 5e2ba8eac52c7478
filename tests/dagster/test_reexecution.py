"""A run that is executed again from its failure, as a user does it: what its commits did is neither lost nor doubled."""

import os

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.spark import SparkResource


class LosesAnswers(LakeIOManager):
    """Fails after the commit has landed, where its option says so."""

    def handle_output(self, context: dg.OutputContext, obj) -> None:
        super().handle_output(context, obj)
        if os.environ["LOSES_ANSWERS"] == "yes":
            raise dg.Failure("the answer was lost")


@dg.asset(metadata={"write": "append"}, retry_policy=dg.RetryPolicy(max_retries=1))
def events() -> pa.Table:
    return pa.table({"n": [1, 2]})


@dg.asset
def states() -> pa.Table:
    return pa.table({"n": [1, 2]})


def appending() -> dg.JobDefinition:
    lake = LakeResource(warehouse=dg.EnvVar("LAKE_WAREHOUSE"), database="nyc")
    defs = dg.Definitions(
        assets=[events, states],
        jobs=[dg.define_asset_job("appending", [events, states])],
        resources={"io_manager": LosesAnswers(lake=lake, spark=SparkResource())},
        executor=dg.in_process_executor,
    )
    return defs.resolve_job_def("appending")


@pytest.fixture
def execute(lake, tmp_path, monkeypatch):
    monkeypatch.setenv("LAKE_WAREHOUSE", lake.warehouse)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:

        def execute(loses, again=None):
            monkeypatch.setenv("LOSES_ANSWERS", "yes" if loses else "no")
            options = dg.ReexecutionOptions.from_failure(again, instance) if again else None
            return dg.execute_job(dg.reconstructable(appending), instance, reexecution_options=options)

        yield execute


def test_what_a_retried_step_and_a_run_executed_again_append_is_appended_once(execute, lake):
    first = execute(loses=True)
    assert not first.success
    assert {event.step_key for event in first.all_events if event.is_step_up_for_retry} == {"events"}
    again = execute(loses=False, again=first.run_id)
    assert again.success
    table = lake.lake.table("nyc.events")
    assert (len(table.snapshots()), table.scan().count()) == (1, 2)
    metadata = again.asset_materializations_for_node("events")[0].metadata
    assert metadata["lake/committed_by_run"].value == first.run_id
    assert len(lake.lake.table("nyc.states").snapshots()) == 2, "what is replaced is replaced by what is new"
    execute(loses=False)
    assert (len(table.snapshots()), table.scan().count()) == (2, 4), "a new run appends again"
