"""What this package needs of Dagster that Dagster does not export: the names of 1.13, all in this module."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.definition_config_schema import DefinitionConfigSchema
from dagster._core.events import AssetMaterializationPlannedData

KEYS_IN_QUERY = 500


def plan_partitions(context: dg.OpExecutionContext, step: str, asset: dg.AssetKey, keys: Iterable[str]) -> None:
    """Announce to Dagster that the step `step` of this run will make the partitions `keys` of an asset.

    For runs of assets Dagster does so itself. Automation then waits for the run, and the partitions are shown as in
    progress, or as failed if the run fails.
    """
    for key in keys:
        planned = AssetMaterializationPlannedData(asset, partition=key)
        event = dg.DagsterEvent.build_asset_materialization_planned_event(context.job_name, step, planned)
        context.instance.report_dagster_event(event, context.run.run_id, logging.DEBUG)


def resource_schema(resource: Any) -> tuple[dg.Field, dict[str, Any]]:
    """The configuration schema of a resource's class, and the values that its fields have in the code."""
    state = resource._state__internal__
    return state.schema, state.resolved_config_dict


def set_resource_schema(resource: Any, schema: dg.Field) -> None:
    """Replace the configuration schema of a resource, by which launchpads are filled and configurations checked."""
    state = resource._state__internal__
    resource._state__internal__ = state._replace(config_schema=DefinitionConfigSchema(schema))


def partial_schema(partial: Any) -> dg.Field:
    """The configuration schema of a result of `configure_at_launch`."""
    schema: dg.Field = partial._state__internal__.config_schema
    return schema


def set_partial_schema(partial: Any, schema: dg.Field) -> None:
    """Replace the configuration schema of a result of `configure_at_launch`."""
    partial._state__internal__ = partial._state__internal__._replace(config_schema=schema)


def check_targets(
    instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Sequence[str]
) -> dict[str, AssetCheckEvaluationTargetMaterializationData]:
    """The last materialization of each partition `keys` of an asset that has one. The evaluation of a partition's check
    counts as current if it names that."""
    targets: dict[str, AssetCheckEvaluationTargetMaterializationData] = {}
    for start in range(0, len(keys), KEYS_IN_QUERY):
        wanted, cursor = set(keys[start : start + KEYS_IN_QUERY]), None
        while wanted:
            records = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=sorted(wanted))
            result = instance.fetch_materializations(records, limit=len(wanted), cursor=cursor)
            targets |= {str(record.partition_key): check_target(record) for record in reversed(result.records)}
            if not result.has_more:
                break
            wanted, cursor = wanted - targets.keys(), result.cursor
    return targets


def check_target(record: dg.EventLogRecord) -> AssetCheckEvaluationTargetMaterializationData:
    """A materialization as the target of a check's evaluation."""
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
    )
