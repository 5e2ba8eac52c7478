"""What a run of ops says before it begins: which partitions it is going to make.

Dagster says so itself of runs of assets. Automation then waits for the run, the partitions are shown as in progress, and as failed where the
run fails. The event is the one thing here that Dagster does not export: `AssetMaterializationPlannedData`, of `dagster._core.events`.
"""

import logging
from collections.abc import Iterable

import dagster as dg
from dagster._core.events import AssetMaterializationPlannedData


def plan_partitions(context: dg.OpExecutionContext, step: str, asset: dg.AssetKey, keys: Iterable[str]) -> None:
    """Announce to Dagster that the step `step` of this run will make the partitions `keys` of an asset."""
    for key in keys:
        planned = AssetMaterializationPlannedData(asset, partition=key)
        event = dg.DagsterEvent.build_asset_materialization_planned_event(context.job_name, step, planned)
        context.instance.report_dagster_event(event, context.run.run_id, logging.DEBUG)
