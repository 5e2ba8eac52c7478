"""What this package needs of Dagster that Dagster does not export: the names of 1.13, all in this module."""

import copy
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import dagster as dg
from dagster._check import CheckError
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.definition_config_schema import DefinitionConfigSchema
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.events import AssetMaterializationPlannedData
from dagster._core.execution.api import create_execution_plan
from dagster._core.execution.context.system import StepExecutionContext
from dagster._core.execution.plan.execute_step import core_dagster_event_sequence_for_step
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.plan.state import KnownExecutionState
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.system_config.objects import ResolvedRunConfig

KEYS_IN_QUERY = 500
OF_ASSETS = {"ASSET_MATERIALIZATION", "ASSET_OBSERVATION", "ASSET_CHECK_EVALUATION"}  # Types of events.


def plan_partitions(context: dg.OpExecutionContext, step: str, asset: dg.AssetKey, keys: Iterable[str]) -> None:
    """Announce to Dagster that the step `step` of this run will make the partitions `keys` of an asset.

    For runs of assets Dagster does so itself. Automation then waits for the run, and the partitions are shown as in
    progress, or as failed if the run fails.
    """
    for key in keys:
        planned = AssetMaterializationPlannedData(asset, partition=key)
        event = dg.DagsterEvent.build_asset_materialization_planned_event(context.job_name, step, planned)
        context.instance.report_dagster_event(event, context.run.run_id, logging.DEBUG)


def of_keys(definition: dg.PartitionsDefinition, keys: Sequence[str]) -> dg.PartitionsDefinition:
    """A copy of a definition of partitions, for one run of `keys`, which need not be consecutive: Dagster asks it for
    the partitions of the run's range."""
    selected = copy.copy(definition)
    object.__setattr__(selected, "get_partition_keys_in_range", lambda partition_key_range, **_: list(keys))
    return selected


def run_asset(
    context: dg.OpExecutionContext, job: dg.JobDefinition, step: str, tags: Mapping[str, str], config: Any
) -> Iterator[dg.DagsterEvent]:
    """Run the step `step` of a job over an asset within the step of `context`, with the resources of this run and the
    partitions that `tags` name; the events of assets. Raises what the step raises, also requests to retry it."""
    outer = context.get_step_execution_context()
    run_config = {} if config is None else {"ops": {step: {"config": config}}}
    plan = create_execution_plan(job, run_config)
    resolved = ResolvedRunConfig.build(job, run_config)._replace(resources=outer.resolved_run_config.resources)
    run = outer.dagster_run.with_tags({**outer.dagster_run.tags, **tags})
    inner = StepExecutionContext(
        plan_data=outer.plan_data._replace(job=InMemoryJob(job), dagster_run=run, execution_plan=plan),
        execution_data=outer._execution_data._replace(job_def=job, resolved_run_config=resolved),
        log_manager=outer.log.with_tags(**plan.get_step_by_key(step).logging_tags),
        step=plan.get_step_by_key(step),
        output_capture=None,
        known_state=KnownExecutionState(previous_retry_attempts={step: outer.previous_attempt_count}),
        event_loop=outer.event_loop,
    )
    # Each event is in the run's log when it is made. Those of the step itself are of no step of the run.
    yield from (event for event in core_dagster_event_sequence_for_step(inner) if event.event_type_value in OF_ASSETS)


@contextmanager
def in_pool(context: dg.OpExecutionContext, pool: str, holder: str, seconds: float = 0.2) -> Iterator[None]:
    """Hold a place in a pool, as a step that declares the pool does; waits for one, looking every `seconds`. `holder`
    tells it from the step's other places."""
    claim = _claim(context, holder)
    with InstanceConcurrencyContext(context.instance, context.run) as pools:
        if not pools.claim(pool, claim):
            context.log.info(f"waits for a place in the pool {pool}")
            while not pools.claim(pool, claim):
                _assign_free_place(context.instance.event_log_storage, pool)
                time.sleep(seconds)
        try:
            yield
        finally:
            pools.free_step(claim)


def _assign_free_place(storage: Any, pool: str) -> None:
    """Give a place that is free to the first step that waits. Dagster assigns places when they become free, and none to
    a step that began to wait just then."""
    if isinstance(storage, SqlEventLogStorage) and storage.has_unassigned_slots(pool):
        storage.assign_pending_steps([pool])


def leave_pool(context: dg.OpExecutionContext, holder: str) -> None:
    """Give up a place that another thread holds by `in_pool`, which may hang."""
    if context.instance.event_log_storage.supports_global_concurrency_limits:
        context.instance.event_log_storage.free_concurrency_slot_for_step(context.run_id, _claim(context, holder))


def _claim(context: dg.OpExecutionContext, holder: str) -> str:
    return f"{context.op_handle}[{holder}]"


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
        missing, cursor = set(keys[start : start + KEYS_IN_QUERY]), None
        while missing:
            records = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=sorted(missing))
            result = instance.fetch_materializations(records, limit=len(missing), cursor=cursor)
            targets |= {str(record.partition_key): check_target(record) for record in reversed(result.records)}
            if not result.has_more:
                break
            missing, cursor = missing - targets.keys(), result.cursor
    return targets


def check_target(record: dg.EventLogRecord) -> AssetCheckEvaluationTargetMaterializationData:
    """A materialization as the target of a check's evaluation."""
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
    )


def asset_names(step: dg.OpExecutionContext) -> set[str]:
    """The assets of the code location that a step runs in; of its job alone where there is no code location."""
    keys = set(step.job_def.asset_layer.asset_graph.get_all_asset_keys())
    with suppress(CheckError):
        keys |= step.repository_def.asset_graph.get_all_asset_keys()
    return {key.to_user_string() for key in keys}
