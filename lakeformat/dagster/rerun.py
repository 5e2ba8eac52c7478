"""`rerun_partitions`: rerun any set of partitions, in one run and one snapshot per table.

In Dagster, a backfill of days that are not consecutive, or of some cells of a two-dimensional table, is several runs.
This job needs one. Name the partitions of each table to rerun; other tables are left alone:

    ops:
      rerun_flights:        {config: {partitions: ["2013-01-03", "2013-01-17", "2013-02-01"]}}
      rerun_flight_weather: {config: {partitions: ["2013-01-03", "2013-01-17", "2013-02-01"]}}

With `downstream: true` the run also reruns everything that depends on them.
Automation does not request partitions of the run.

A step runs the asset's own step, with its configuration under `config`, its IO managers, hooks and retries.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from lakeformat.dagster.fields import KnownFields
from lakeformat.dagster.internals import of_keys, plan_partitions, run_asset
from lakeformat.dagster.tables import TableAsset, tables_of

IO_MANAGER_KEY = "dagster/io_manager_key"  # Of an asset's metadata.


class Rerun(KnownFields, dg.Config):
    """The partitions of one table to rerun."""

    partitions: list[str] = Field(
        default=[],
        description="Partition keys, in any order; none leaves the table alone. A run that names none for any table "
        "reruns the newest partition of each that was made before, except of tables that append.",
    )
    downstream: bool = Field(
        default=False,
        description=(
            "Whether the partitions downstream of these that were made before are made again too, "
            "except of tables that append."
        ),
    )


def rerun_partitions(
    assets: Iterable[Any], name: str = "rerun_partitions", *, io_manager_key: str = "io_manager"
) -> dg.JobDefinition:
    """A job that reruns any set of partitions, with one step per partitioned table of `assets`, in its pool, upstream
    tables first.

    Each step runs the asset's own step for the partitions. Assets of graphs and multi-assets are left out, and so are
    audited assets, as no checks run in between. It uses the resources and IO managers of the assets. `io_manager_key`:
    see `tables_of`.
    """
    assets = list(assets)
    tables = tables_of(assets, io_manager_key=io_manager_key)
    checked = {table.name for table in tables.values() if table.audits or table.publishes}
    partitioned = [
        table
        for name, table in tables.items()
        if table.partitions and table.step and len(table.definition.keys) == 1 and name not in checked
    ]

    @dg.op(out=dg.Out(dg.Nothing), description="Finds the partitions of all tables, and says what the run will make.")
    def plan(context: dg.OpExecutionContext) -> None:
        selection = _selection(context, partitioned)
        for asset in partitioned:
            plan_partitions(context, _step(asset), asset.key, selection[asset.name])

    @dg.job(
        name=name,
        description="Makes any set of partitions again: one run, one snapshot for each table that is named.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        planned = plan()
        reruns: dict[str, Any] = {}
        for asset in partitioned:
            upstream = [key.to_user_string() for key in asset.definition.dependency_keys]
            after = [reruns[name] for name in upstream if name in reruns]
            rerun = _rerun_op(asset, assets, partitioned).with_hooks(set(asset.definition.hook_defs))
            reruns[asset.name] = rerun(after=after or [planned])

    return job


def _step(asset: TableAsset) -> str:
    return f"rerun_{asset.definition.op.name}"


def _selection(context: dg.OpExecutionContext, assets: Sequence[TableAsset]) -> dict[str, list[str]]:
    """The partitions of each of `assets`, upstream assets first, that the run's configuration names, and those
    downstream of them. The newest ones if it names none."""
    ops = context.run.run_config.get("ops") or {}
    reruns = {asset.name: _rerun_of((ops.get(_step(asset)) or {}).get("config") or {}) for asset in assets}
    names_none = not any(rerun.partitions for rerun in reruns.values())
    selection: dict[str, list[str]] = {}
    # By asset: the partitions whose downstream partitions are rerun.
    followed: dict[str, tuple[TableAsset, set[str]]] = {}
    for asset in assets:
        rerun = reruns[asset.name]
        keys = set(rerun.partitions)
        follow = set(keys) if rerun.downstream else set()
        upstream = {key.to_user_string() for key in asset.definition.dependency_keys} & set(followed)
        if (upstream or names_none) and asset.write != "append":
            made_before = context.instance.get_materialized_partitions(asset.key)
            follow |= {key for name in upstream for key in _downstream(context, *followed[name], asset)} & made_before
            if names_none:
                keys |= set(_existing(asset.definition, made_before, context.instance)[-1:])
        selection[asset.name] = _existing(asset.definition, keys | follow, context.instance)
        if missing := sorted((keys | follow) - set(selection[asset.name])):
            raise dg.Failure(f"{asset.name} has no partitions {', '.join(missing)}", allow_retries=False)
        if follow:
            followed[asset.name] = (asset, follow)
    return selection


def _rerun_of(config: Mapping[str, Any]) -> Rerun:
    return Rerun(**{name: value for name, value in config.items() if name != "config"})


def _downstream(context: dg.OpExecutionContext, upstream: TableAsset, keys: set[str], asset: TableAsset) -> set[str]:
    """The partitions of `asset` that depend on the upstream partitions `keys`."""
    partitions, changed = asset.partitions, upstream.partitions
    assert partitions is not None, "asset has partitions"
    assert changed is not None, "upstream has partitions"
    mapping = asset.definition.infer_partition_mapping(asset.key, upstream.key, changed)
    with dg.partition_loading_context(dynamic_partitions_store=context.instance):
        subset = changed.empty_subset().with_partition_keys(keys)
        return set(mapping.get_downstream_partitions_for_partitions(subset, changed, partitions).get_partition_keys())


def _rerun_op(asset: TableAsset, assets: Sequence[Any], partitioned: Sequence[TableAsset]) -> dg.OpDefinition:
    """The step that runs the step of an asset for the partitions asked for."""
    definition = asset.definition
    fields = dict(Rerun.to_config_schema().as_field().config_type.fields)
    if isinstance(definition.op.config_field.config_type, dg.Shape):
        fields["config"] = dg.Field(
            definition.op.config_field.config_type, is_required=False, description="The configuration of the asset."
        )

    @dg.op(
        name=_step(asset),
        pool=asset.pool,
        retry_policy=definition.op.retry_policy,
        ins={"after": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        config_schema=fields,
        required_resource_keys=_resources_of(definition, assets),
    )
    def rerun(context: dg.OpExecutionContext) -> Iterator[Any]:
        keys = _selection(context, partitioned)[asset.name]
        if not keys:
            context.log.info(f"no partition of {asset.name} is asked for")
            return
        job = _job(definition, keys, assets)
        assert definition.partitions_def is not None, "the asset has partitions"
        tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        if len(keys) == 1:
            tags = dict(definition.partitions_def.get_tags_for_partition_key(keys[0]))
        yield from run_asset(context, job, definition.op.name, tags, context.op_config.get("config"))

    return rerun


def _job(definition: dg.AssetsDefinition, keys: Sequence[str], assets: Sequence[Any]) -> dg.JobDefinition:
    """A job over one asset whose run has the partitions `keys`.
    Its resources are those of the run that it is part of."""
    assert definition.partitions_def is not None, "the asset has partitions"
    selected = of_keys(definition.partitions_def, keys)
    definition = definition.map_asset_specs(lambda spec: spec.replace_attributes(partitions_def=selected))
    upstream = [_spec_of(key, assets) for key in sorted(definition.dependency_keys - definition.keys)]
    names = _resources_of(definition, assets)
    return dg.Definitions(
        assets=[definition, *upstream],
        jobs=[dg.define_asset_job("rerun", [definition.key])],
        resources=dict.fromkeys(names, dg.mem_io_manager),
        executor=dg.in_process_executor,
    ).resolve_job_def("rerun")


def _resources_of(definition: dg.AssetsDefinition, assets: Sequence[Any]) -> set[str]:
    """The resources that the step of an asset uses, and the IO managers of its output and its inputs."""
    inputs = {name: definition.op.input_def_named(name) for name in definition.keys_by_input_name}
    specs = {
        name: _spec_of(definition.keys_by_input_name[name], assets)
        for name, input in inputs.items()
        if not input.dagster_type.is_nothing
    }
    managers = {inputs[name].input_manager_key or str(spec.metadata[IO_MANAGER_KEY]) for name, spec in specs.items()}
    return {*definition.required_resource_keys, *managers}


def _spec_of(key: dg.AssetKey, assets: Sequence[Any]) -> dg.AssetSpec:
    """An upstream asset, which its IO manager loads."""
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition) and key in asset.keys:
            return asset.specs_by_key[key].with_io_manager_key(asset.get_io_manager_key_for_asset_key(key))
        if isinstance(asset, dg.AssetSpec | dg.SourceAsset) and asset.key == key:
            spec = asset if isinstance(asset, dg.AssetSpec) else asset.to_spec()
            return spec.with_io_manager_key(str(spec.metadata.get(IO_MANAGER_KEY, "io_manager")))
    return dg.AssetSpec(key).with_io_manager_key("io_manager")


def _existing(definition: dg.AssetsDefinition, keys: Iterable[str], instance: dg.DagsterInstance) -> list[str]:
    """Those of `keys` that are partitions, without duplicates, in the order of the definition."""
    unordered = set(keys)
    if not unordered or definition.partitions_def is None:
        return []
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        return [key for key in definition.partitions_def.get_partition_keys() if key in unordered]
