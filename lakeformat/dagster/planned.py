"""Announce to Dagster which partitions a run of ops is going to make.

For runs of assets Dagster does so itself. Automation then waits for the run, and the partitions are shown as in progress, or as failed if
the run fails. The event is not exported by Dagster: `AssetMaterializationPlannedData`, in `dagster._core.events`.
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
