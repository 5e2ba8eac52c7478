"""`rerun_partitions`: any set of partitions, in one run and one snapshot per table.

A backfill of days that are not next to each other, or of some cells of a two-dimensional table, is several runs in
Dagster. This job is one, for any set. Name the partitions of each table to rerun; the rest are left alone:

    ops:
      rerun_flights:        {config: {partitions: ["2013-01-03", "2013-01-17", "2013-02-01"]}}
      rerun_flight_weather: {config: {partitions: ["2013-01-03", "2013-01-17", "2013-02-01"]}}
"""

import inspect
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.partitions.utils.mapping import infer_partition_mapping
from pydantic import Field

from assets.table import RETRY, pool_of
from pipelines.tables import TABLE_ASSETS
from resources.asset_table import as_dagster_failures, scan
from resources.frames import to_read
from resources.io_manager import note_read
from resources.lake import LakeResource


class Rerun(dg.Config):
    """Which partitions of one table to make again."""

    partitions: list[str] = Field(default=[], description="Partition keys, in any order; none leaves the table alone.")


class PartitionsContext:
    """What an asset's body sees as `context`: the partitions asked for, and everything else of the op's context."""

    def __init__(self, context: dg.OpExecutionContext, asset: dg.AssetsDefinition, keys: Sequence[str]):
        self.op_execution_context = context
        self.asset_key = asset.key
        self.assets_def = asset
        self.partition_keys = list(keys)
        self.has_partition_key = False
        self.has_partition_key_range = False  # The keys need not be a range.
        self.metadata: dict[str | None, dict[str, Any]] = {}
        self.reads: dict[str, dict[str, int]] = {}

    def add_asset_metadata(
        self, metadata: Mapping[str, Any], asset_key: Any = None, partition_key: str | None = None
    ) -> None:
        """Kept for the materialization of the partition, or of all of them."""
        self.metadata.setdefault(partition_key, {}).update(metadata)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.op_execution_context, name)


def rerun_job(
    assets: Mapping[str, dg.AssetsDefinition] = TABLE_ASSETS, name: str = "rerun_partitions"
) -> dg.JobDefinition:
    """One step for each partitioned table, in its pool, upstream tables first."""
    partitioned = {name: asset for name, asset in assets.items() if asset.partitions_def}

    @dg.job(
        name=name,
        description="Makes any set of partitions again: one run, one snapshot for each table that is named.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        done: dict[str, Any] = {}
        for name, asset in partitioned.items():
            upstream = [done[key.to_user_string()] for key in asset.dependency_keys if key.to_user_string() in done]
            done[name] = rerun_op(name, asset, assets)(after=upstream)

    return job


def rerun_op(name: str, asset: dg.AssetsDefinition, assets: Mapping[str, dg.AssetsDefinition]) -> dg.OpDefinition:
    """The step that makes the partitions of one table again and turns them green."""

    @dg.op(
        name=f"rerun_{asset.op.name}",
        pool=pool_of(name),
        retry_policy=RETRY,
        ins={"after": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys={"lake", "spark", *_resources_of(asset)},
    )
    def rerun(context: dg.OpExecutionContext, config: Rerun) -> None:
        if not config.partitions:
            context.log.info(f"no partition of {name} is asked for")
            return
        lake: LakeResource = context.resources.lake
        keys = _known(asset, config.partitions, context.instance)
        seen = PartitionsContext(context, asset, keys)
        made = _make(seen, assets)
        if not isinstance(made, dg.MaterializeResult):
            made = lake.write(typing.cast(dg.AssetExecutionContext, seen), made)
        tags = {"dagster/data_version": made.data_version.value} if made.data_version else None
        for key in keys:
            metadata = {**(made.metadata or {}), **seen.metadata.get(None, {}), **seen.metadata.get(key, {})}
            context.log_event(dg.AssetMaterialization(asset.key, partition=key, metadata=metadata, tags=tags))

    return rerun


def _make(context: PartitionsContext, assets: Mapping[str, dg.AssetsDefinition]) -> Any:
    """What the asset's function returns for these partitions, its inputs read as the IO manager would read them."""
    asset = context.assets_def
    function = typing.cast(Any, asset.op.compute_fn).decorated_fn
    arguments: dict[str, Any] = {}
    hints = typing.get_type_hints(function)
    for name in inspect.signature(function).parameters:
        if name in asset.keys_by_input_name:
            arguments[name] = _input(
                context, assets[asset.keys_by_input_name[name].to_user_string()], hints.get(name, Any)
            )
        elif name in _resources_of(asset):
            arguments[name] = getattr(context.resources, name)
        else:
            arguments[name] = context
    return function(**arguments)


def _input(context: PartitionsContext, upstream: dg.AssetsDefinition, wanted: Any) -> Any:
    """The upstream partitions that those of the context depend on, as the frame that is wanted."""
    asset, keys = context.assets_def, None
    own = asset.partitions_def
    if own is not None and upstream.partitions_def is not None:
        mapping = infer_partition_mapping(asset.get_partition_mapping(upstream.key), own, upstream.partitions_def)
        with dg.partition_loading_context(dynamic_partitions_store=context.instance):
            mapped = mapping.get_upstream_mapped_partitions_result_for_partitions(
                own.empty_subset().with_partition_keys(context.partition_keys), own, upstream.partitions_def
            )
            keys = list(mapped.partitions_subset.get_partition_keys())
    lake: LakeResource = context.resources.lake
    with as_dagster_failures(upstream.key, keys or []):
        table = lake.declared(upstream.key, upstream)
        found, snapshot_id = scan(lake.lake, table, keys)
        if snapshot_id is not None:
            note_read(context.op_execution_context, context.reads, table.name, snapshot_id)
        return to_read(found, wanted, context.resources.spark)


def _known(asset: dg.AssetsDefinition, asked: Sequence[str], instance: dg.DagsterInstance) -> list[str]:
    """The partitions asked for, each once, in the order of the definition; `Failure` for one that does not exist."""
    wanted, found = set(asked), []
    if asset.partitions_def is not None:
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            found = [key for key in asset.partitions_def.get_partition_keys() if key in wanted]
    if unknown := sorted(wanted - set(found)):
        raise dg.Failure(f"{asset.key.to_user_string()} has no partitions {', '.join(unknown)}", allow_retries=False)
    return found


def _resources_of(asset: dg.AssetsDefinition) -> set[str]:
    return set(asset.op.required_resource_keys)
