"""`rerun_partitions`: rerun any set of partitions, in one run and one snapshot per table.

In Dagster, a backfill of days that are not consecutive, or of some cells of a two-dimensional table, is several runs.
This job needs one. Name the partitions of each table to rerun; other tables are left alone:

    ops:
      rerun_flights:        {config: {partitions: ["2013-01-03", "2013-01-17", "2013-02-01"]}}
      rerun_flight_weather: {config: {partitions: ["2013-01-03", "2013-01-17", "2013-02-01"]}}

With `downstream: true` the run also reruns everything that depends on them. Automation does not request partitions of the run.
"""

import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from lakeformat.dagster.asset_table import as_dagster_failures, scan
from lakeformat.dagster.declaration import pin_of
from lakeformat.dagster.fields import KnownFields
from lakeformat.dagster.frames import to_read, wants_spark
from lakeformat.dagster.internals import plan_partitions
from lakeformat.dagster.io_manager import Reads, note_read
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.spark import SparkResource
from lakeformat.dagster.tables import RETRY, TableAsset, tables_of


class Rerun(KnownFields, dg.Config):
    """The partitions of one table to rerun."""

    partitions: list[str] = Field(default=[], description="Partition keys, in any order; none leaves the table alone.")
    downstream: bool = Field(
        default=False,
        description="Whether the partitions downstream of these that were made before are made again too, except of tables that append.",
    )


class PartitionsContext:
    """The `context` of an asset's function: the partitions asked for, and everything else of the op's context."""

    def __init__(self, context: dg.OpExecutionContext, asset: dg.AssetsDefinition, keys: Sequence[str]):
        self.op_execution_context = context
        self.asset_key = asset.key
        self.assets_def = asset
        self.partition_keys = list(keys)
        self.has_partition_key = False
        self.has_partition_key_range = False  # The keys need not be a consecutive range.
        self.metadata: dict[str | None, dict[str, Any]] = {}
        self.reads: Reads = {}

    def add_asset_metadata(
        self, metadata: Mapping[str, Any], asset_key: Any = None, partition_key: str | None = None
    ) -> None:
        """Add metadata to the materialization of the partition, or of all partitions."""
        self.metadata.setdefault(partition_key, {}).update(metadata)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.op_execution_context, name)


def rerun_partitions(
    assets: Iterable[Any], name: str = "rerun_partitions", *, io_manager_key: str = "io_manager"
) -> dg.JobDefinition:
    """A job that reruns any set of partitions, with one step per partitioned table of `assets`, in its pool, upstream
    tables first.

    Assets of graphs and multi-assets are left out, and so are audited assets, as no checks run in between. It uses the
    resource `lake`, those of the assets, and `spark` if an input is a Spark frame. `io_manager_key`: see `tables_of`.
    """
    tables = tables_of(assets, io_manager_key=io_manager_key)
    checked = {table.name for table in tables.values() if table.audits or table.publishes}
    partitioned = [
        table
        for name, table in tables.items()
        if table.partitions and table.step and len(table.definition.keys) == 1 and name not in checked
    ]

    @dg.op(out=dg.Out(dg.Nothing), description="Finds the partitions of all tables, and says what the run will make.")
    def plan(context: dg.OpExecutionContext) -> None:
        asked = _asked(context, partitioned)
        for asset in partitioned:
            plan_partitions(context, _step(asset), asset.key, asked[asset.name])

    @dg.job(
        name=name,
        description="Makes any set of partitions again: one run, one snapshot for each table that is named.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        planned = plan()
        done: dict[str, Any] = {}
        for asset in partitioned:
            above = [key.to_user_string() for key in asset.definition.dependency_keys]
            after = [done[key] for key in above if key in done]
            done[asset.name] = _rerun_op(asset, tables, partitioned)(after=after or [planned])

    return job


def _step(asset: TableAsset) -> str:
    return f"rerun_{asset.definition.op.name}"


def _asked(context: dg.OpExecutionContext, assets: Sequence[TableAsset]) -> dict[str, list[str]]:
    """The partitions of each of `assets`, upstream assets first, that the run's configuration asks for, and those
    downstream of them."""
    ops = context.run.run_config.get("ops") or {}
    asked: dict[str, list[str]] = {}
    # By asset: the partitions whose downstream partitions are rerun.
    followed: dict[str, tuple[TableAsset, set[str]]] = {}
    for asset in assets:
        config = Rerun(**((ops.get(_step(asset)) or {}).get("config") or {}))
        wanted = set(config.partitions)
        follow = set(wanted) if config.downstream else set()
        above = {key.to_user_string() for key in asset.definition.dependency_keys} & set(followed)
        if above and asset.write != "append":
            made_before = context.instance.get_materialized_partitions(asset.key)
            follow |= {key for name in above for key in _downstream(context, *followed[name], asset)} & made_before
        asked[asset.name] = _known(asset.definition, wanted | follow, context.instance)
        if follow:
            followed[asset.name] = (asset, follow)
    return asked


def _downstream(context: dg.OpExecutionContext, upstream: TableAsset, keys: set[str], asset: TableAsset) -> set[str]:
    """The partitions of `asset` that depend on the upstream partitions `keys`."""
    own, other = asset.partitions, upstream.partitions
    assert own is not None, "asset has partitions"
    assert other is not None, "upstream has partitions"
    mapping = asset.definition.get_partition_mapping(upstream.key) or _mapping_between(own, other)
    with dg.partition_loading_context(dynamic_partitions_store=context.instance):
        changed = other.empty_subset().with_partition_keys(keys)
        return set(mapping.get_downstream_partitions_for_partitions(changed, other, own).get_partition_keys())


def _rerun_op(
    asset: TableAsset, tables: Mapping[str, TableAsset], partitioned: Sequence[TableAsset]
) -> dg.OpDefinition:
    """The step that reruns the partitions of one table and reports their materializations."""
    definition = asset.definition
    spark = {"spark"} if any(wants_spark(wanted) for wanted in _inputs(definition).values()) else set()

    @dg.op(
        name=_step(asset),
        pool=asset.pool,
        retry_policy=RETRY,
        ins={"after": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys={"lake", *spark, *_resources_of(definition)},
    )
    def rerun(context: dg.OpExecutionContext, config: Rerun) -> None:
        keys = _asked(context, partitioned)[asset.name]
        if not keys:
            context.log.info(f"no partition of {asset.name} is asked for")
            return
        lake: LakeResource = context.resources.lake
        seen = PartitionsContext(context, definition, keys)
        made = _make(seen, tables)
        if not isinstance(made, dg.MaterializeResult):
            made = lake.write(typing.cast(dg.AssetExecutionContext, seen), made)
        tags = {"dagster/data_version": made.data_version.value} if made.data_version else None
        for key in keys:
            metadata = {**(made.metadata or {}), **seen.metadata.get(None, {}), **seen.metadata.get(key, {})}
            context.log_event(dg.AssetMaterialization(asset.key, partition=key, metadata=metadata, tags=tags))

    return rerun


def _inputs(asset: dg.AssetsDefinition) -> dict[str, Any]:
    """The inputs that are upstream assets, with their annotations."""
    types = {name: asset.op.input_def_named(name).dagster_type for name in asset.keys_by_input_name}
    return {name: type.typing_type for name, type in types.items() if not type.is_nothing}


def _make(context: PartitionsContext, tables: Mapping[str, TableAsset]) -> Any:
    """The result of the asset's function for these partitions, with its inputs loaded as by the IO manager."""
    asset = context.assets_def
    function = typing.cast(Any, asset.op.compute_fn).decorated_fn
    arguments: dict[str, Any] = {}
    for name, wanted in _inputs(asset).items():
        upstream = asset.keys_by_input_name[name].to_user_string()
        if upstream not in tables:
            raise dg.Failure(f"input {name}: {upstream} is not among the assets of this job", allow_retries=False)
        arguments[name] = _input(context, name, tables[upstream], wanted)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in _resources_of(asset):
            arguments[name] = getattr(context.resources, name)
        elif name not in arguments and parameter.kind is not parameter.VAR_KEYWORD:
            arguments[name] = context
    return function(**arguments)


def _input(context: PartitionsContext, name: str, upstream: TableAsset, wanted: Any) -> Any:
    """The upstream partitions of the context's partitions, as the frame of the annotation."""
    asset, keys = context.assets_def, None
    own, other = asset.partitions_def, upstream.partitions
    if own is not None and other is not None:
        mapping = asset.get_partition_mapping(upstream.key) or _mapping_between(own, other)
        with dg.partition_loading_context(dynamic_partitions_store=context.instance):
            mapped = mapping.get_upstream_mapped_partitions_result_for_partitions(
                own.empty_subset().with_partition_keys(context.partition_keys), own, other
            )
            keys = list(mapped.partitions_subset.get_partition_keys())
    lake: LakeResource = context.resources.lake
    with as_dagster_failures(upstream.key, keys or []):
        table = upstream.table(lake)
        pin, columns = pin_of(f"input {name}", asset.op.input_def_named(name).metadata or {})
        selected, snapshot_id = scan(lake.lake, table, keys, pin, columns)
        if snapshot_id is not None:
            note_read(context.op_execution_context, context.reads, table.name, snapshot_id)
        return to_read(selected, wanted, context.resources.spark if wants_spark(wanted) else SparkResource())


def _mapping_between(own: dg.PartitionsDefinition, other: dg.PartitionsDefinition) -> dg.PartitionMapping:
    """The partition mapping to the upstream asset; Dagster's default if the asset declares none."""
    multi = [definition for definition in (own, other) if isinstance(definition, dg.MultiPartitionsDefinition)]
    if len(multi) == 1:
        single = other if multi[0] is own else own
        if [partitions_def.partitions_def for partitions_def in multi[0].partitions_defs].count(single) == 1:
            return dg.MultiToSingleDimensionPartitionMapping()
    if all(isinstance(definition, dg.TimeWindowPartitionsDefinition) for definition in (own, other)):
        return dg.TimeWindowPartitionMapping()
    return dg.IdentityPartitionMapping()


def _known(asset: dg.AssetsDefinition, asked: Iterable[str], instance: dg.DagsterInstance) -> list[str]:
    """The partitions asked for, without duplicates, in the order of the definition. Raises `Failure` for one that does
    not exist."""
    wanted, keys = set(asked), []
    if asset.partitions_def is not None:
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            keys = [key for key in asset.partitions_def.get_partition_keys() if key in wanted]
    if unknown := sorted(wanted - set(keys)):
        raise dg.Failure(f"{asset.key.to_user_string()} has no partitions {', '.join(unknown)}", allow_retries=False)
    return keys


def _resources_of(asset: dg.AssetsDefinition) -> set[str]:
    return set(asset.op.required_resource_keys)
