"""`rerun_partitions`: rerun any set of partitions, in one run and one snapshot per table.

In Dagster, a backfill of days that are not consecutive, or of some cells of a two-dimensional table, is several runs.
This job needs one. Name the partitions of each table to rerun; other tables are left alone:

    ops:
      rerun_flights:        {config: {partitions: ["2013-01-03", "2013-01-17", "2013-02-01"]}}
      rerun_flight_weather: {config: {partitions: ["2013-01-03", "2013-01-17", "2013-02-01"]}}

With `downstream: true` the run also reruns everything that depends on them.
Automation does not request partitions of the run.

A step runs the asset's own step, with its configuration under `config`, its IO managers, hooks and retries.

With `plan: {config: {dry_run: true}}` the run makes nothing: the step `plan` shows which partitions it would make, and
the rows and files that would go. `preview_rerun` does the same from Python.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from lakeformat.dagster.asset_table import specs_of
from lakeformat.dagster.declaration import settled
from lakeformat.dagster.fields import KnownFields, require
from lakeformat.dagster.internals import of_keys, plan_partitions, run_asset
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.lake import LAKE_FORM, LakeResource
from lakeformat.dagster.markdown import cell, markdown_table, size_text
from lakeformat.dagster.measures import rows_by_key
from lakeformat.dagster.partition_keys import columns_of, has_windows
from lakeformat.dagster.tables import TableAsset, listed, tables_of
from lakeformat.errors import InvalidInput
from lakeformat.model.wording import count_text

IO_MANAGER_KEY = "dagster/io_manager_key"  # Of an asset's metadata.
PLAN = "plan"
MOST_SHOWN = 100  # Partitions in the preview of a run.
PREVIEW = pa.schema(
    {
        "asset": pa.string(),
        "partition": pa.string(),
        "effect": pa.string(),
        "row_count": pa.int64(),
        "file_count": pa.int64(),
        "size_bytes": pa.int64(),
    }
)


class Plan(KnownFields, dg.Config):
    """Whether a run makes anything."""

    dry_run: bool = Field(
        default=False, description="Only show which partitions would be made, and the rows and files that would go."
    )


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
    assets = listed(assets)
    partitioned = _partitioned(assets, io_manager_key)
    needed = set[str]().union(*(_resources_of(asset.definition, assets) for asset in partitioned))

    @dg.op(
        name=PLAN,
        out=dg.Out(dg.Nothing),
        required_resource_keys=needed,
        description="Finds the partitions of all tables, and says what the run will make.",
    )
    def plan(context: dg.OpExecutionContext, config: Plan) -> None:
        selection = _selection_of(context, partitioned)
        if not config.dry_run:
            for asset in partitioned:
                plan_partitions(context, _step(asset), asset.key, selection[asset.name])
            return
        lakes = {asset.name: _lake_of(asset, context.resources) for asset in partitioned if selection[asset.name]}
        shown = _preview(partitioned, lakes, selection)
        context.add_output_metadata({"lake/dry_run": _as_markdown(shown)})
        context.log.info(f"dry run: nothing is made of {_in_words(shown)}")

    @dg.job(
        name=name,
        description="Makes any set of partitions again, in one run and one snapshot of each table. If no table names "
        "partitions, the newest one of each that was made before.",
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


def preview_rerun(
    assets: Iterable[Any],
    lake: LakeResource,
    partitions: Mapping[str, Sequence[str]],
    *,
    downstream: bool = False,
    instance: dg.DagsterInstance | None = None,
    io_manager_key: str = "io_manager",
) -> pa.Table:
    """What a rerun or a backfill of `partitions` (asset -> partition keys) would replace, from metadata alone: nothing
    is run or written.

    One row per partition, upstream assets first: `asset`, `partition`, `effect` ("replaced": its rows and files go, and
    those of the run come; "new": it has none yet; "added to": rows are appended or merged, and no file goes at first),
    and what it has now: `row_count` (null if that is expensive to know), `file_count` and `size_bytes` (null if the
    table's layout is not by the partition's columns). How many rows come is known once the asset has run.

    Args:
        assets: All assets of the repository.
        lake: The warehouse of their tables.
        partitions: Partition keys by asset key.
        downstream: Whether what depends on them, and was made before, is made too; this needs `instance`.
        instance: Dagster's, which knows dynamic partitions and what was made.
        io_manager_key: See `tables_of`.

    Raises `dagster.Failure` for partitions that an asset does not have.
    """
    require("lake", lake, LakeResource, LAKE_FORM)
    require("partitions", partitions, Mapping, "a mapping, as in {'orders': ['2026-01-01']}")
    if texts := [name for name, keys in partitions.items() if isinstance(keys, str)]:
        raise InvalidInput(f"partitions[{texts[0]!r}] is the text {partitions[texts[0]]!r}; give a list of keys")
    partitioned = _partitioned(listed(assets), io_manager_key)
    names = {asset.name for asset in partitioned}
    if unknown := sorted(set(partitions) - names):
        raise InvalidInput(f"no partitioned table {unknown[0]}; there are {', '.join(sorted(names)) or 'none'}")
    if downstream and instance is None:
        raise InvalidInput("preview_rerun(downstream=True) needs instance=, which knows what was made before")
    reruns = {
        name: Rerun(partitions=list(partitions.get(name, ())), downstream=downstream and name in partitions)
        for name in names
    }
    with dg.DagsterInstance.ephemeral() as ephemeral:
        selection = _selection(reruns, partitioned, instance or ephemeral)
    return _preview(partitioned, dict.fromkeys(names, lake), selection)


# --- private ----------------------------------------------------------------------------------------------------------


def _partitioned(assets: Sequence[Any], io_manager_key: str) -> list[TableAsset]:
    """The tables that can be rerun, upstream ones first."""
    tables = tables_of(assets, io_manager_key=io_manager_key)
    return [
        table
        for table in tables.values()
        if table.partitions and table.step and len(table.definition.keys) == 1 and not (table.audits or table.publishes)
    ]


def _is_dry(context: dg.OpExecutionContext) -> bool:
    ops = context.run.run_config.get("ops") or {}
    return bool(((ops.get(PLAN) or {}).get("config") or {}).get("dry_run", False))


def _lake_of(asset: TableAsset, resources: Any) -> LakeResource:
    """The warehouse of an asset's table, in a run."""
    output = asset.definition.node_def.output_def_named(asset.definition.get_output_name_for_asset_key(asset.key))
    manager = None if output.dagster_type.is_nothing else getattr(resources, str(output.io_manager_key))
    lake: LakeResource = manager.lake if isinstance(manager, LakeIOManager) else asset.lake(resources)
    return lake


def _preview(
    assets: Sequence[TableAsset], lakes: Mapping[str, LakeResource], selection: Mapping[str, Sequence[str]]
) -> pa.Table:
    rows = [
        row
        for asset in assets
        if selection[asset.name]
        for row in _now(asset, lakes[asset.name], selection[asset.name])
    ]
    return pa.Table.from_pylist(rows, PREVIEW)


def _now(asset: TableAsset, lake: LakeResource, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of the preview for the partitions `keys` of an asset."""
    to = asset.table(lake)
    rows: Mapping[str, int | None] = dict.fromkeys(keys, 0)
    files: dict[str, tuple[int | None, int | None]] = dict.fromkeys(keys, (0, 0))
    if lake.lake.exists(to.name):
        table = lake.lake.table(to.name)
        to = settled(to, table.schema.fields)
        if to.partition_by is None:  # Its rows are not by partition.
            rows, files = dict.fromkeys(keys), dict.fromkeys(keys, (None, None))
        else:
            specs, columns = specs_of(to, table.schema, keys), columns_of(to.partition_by)
            counted = rows_by_key(table, specs, columns)
            rows = {key: counted.get(key) for key in keys}
            by_values = None if has_windows(specs) else table.inspect.partition_measures(columns)
            for key, several in specs.items():
                measured = (
                    None
                    if by_values is None
                    else [by_values.get(tuple(spec[name] for name in columns), {}) for spec in several]
                )
                files[key] = (
                    (None, None)
                    if measured is None
                    else (sum(m.get("file_count", 0) for m in measured), sum(m.get("size_bytes", 0) for m in measured))
                )
    for key in keys:
        is_new = rows[key] == 0 and not files[key][0]
        effect = "new" if is_new else "replaced" if asset.replaces else "added to"
        yield {
            "asset": asset.name,
            "partition": key,
            "effect": effect,
            "row_count": rows[key],
            "file_count": files[key][0],
            "size_bytes": files[key][1],
        }


def _as_markdown(shown: pa.Table) -> dg.MarkdownMetadataValue:
    """The preview for Dagster's pages, at most `MOST_SHOWN` partitions of it."""
    rows = [
        [
            cell(row["asset"]), cell(row["partition"]), row["effect"],
            *("?" if row[name] is None else f"{row[name]:,}" for name in ("row_count", "file_count")),
            "?" if row["size_bytes"] is None else size_text(row["size_bytes"]),
        ]
        for row in shown.slice(0, MOST_SHOWN).to_pylist()
    ]  # fmt: skip
    table = markdown_table(["asset", "partition", "effect", "rows now", "files now", "size now"], rows)
    return dg.MarkdownMetadataValue(f"{table.md_str}\n\n{_in_words(shown)}")


def _in_words(shown: pa.Table) -> str:
    replaced = shown.filter(pc.equal(shown["effect"], "replaced"))
    rows, files = (pc.sum(replaced[name]).as_py() or 0 for name in ("row_count", "file_count"))
    tables = count_text(len(pc.unique(shown["asset"])), "table")
    return (
        f"{count_text(shown.num_rows, 'partition')} of {tables}: {count_text(replaced.num_rows, 'partition')} replaced "
        f"({count_text(rows, 'row')} and {count_text(files, 'file')} go)"
    )


def _step(asset: TableAsset) -> str:
    return f"rerun_{asset.definition.op.name}"


def _selection_of(context: dg.OpExecutionContext, assets: Sequence[TableAsset]) -> dict[str, list[str]]:
    """The partitions of each of `assets`, upstream assets first, that the run's configuration asks for."""
    ops = context.run.run_config.get("ops") or {}
    reruns = {asset.name: _rerun_of((ops.get(_step(asset)) or {}).get("config") or {}) for asset in assets}
    return _selection(reruns, assets, context.instance)


def _selection(
    reruns: Mapping[str, Rerun], assets: Sequence[TableAsset], instance: dg.DagsterInstance
) -> dict[str, list[str]]:
    """The partitions of each of `assets`, upstream assets first, that `reruns` name, and those downstream of them. The
    newest ones if they name none."""
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
            made_before = instance.get_materialized_partitions(asset.key)
            follow |= {key for name in upstream for key in _downstream(instance, *followed[name], asset)} & made_before
            if names_none:
                keys |= set(_existing(asset.definition, made_before, instance)[-1:])
        selection[asset.name] = _existing(asset.definition, keys | follow, instance)
        if missing := sorted((keys | follow) - set(selection[asset.name])):
            raise dg.Failure(f"{asset.name} has no partitions {', '.join(missing)}", allow_retries=False)
        if follow:
            followed[asset.name] = (asset, follow)
    return selection


def _rerun_of(config: Mapping[str, Any]) -> Rerun:
    return Rerun(**{name: value for name, value in config.items() if name != "config"})


def _downstream(instance: dg.DagsterInstance, upstream: TableAsset, keys: set[str], asset: TableAsset) -> set[str]:
    """The partitions of `asset` that depend on the upstream partitions `keys`."""
    partitions, changed = asset.partitions, upstream.partitions
    assert partitions is not None, "asset has partitions"
    assert changed is not None, "upstream has partitions"
    mapping = asset.definition.infer_partition_mapping(asset.key, upstream.key, changed)
    with dg.partition_loading_context(dynamic_partitions_store=instance):
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
        if _is_dry(context):
            return
        keys = _selection_of(context, partitioned)[asset.name]
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
