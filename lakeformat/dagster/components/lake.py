"""A warehouse, and the maintenance of the tables that the other components declare."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from pydantic import BaseModel, Field

from lakeformat.dagster.components.declared import DeclaredAssets, io_manager_of
from lakeformat.dagster.components.values import Text, betas_allowed, value_of
from lakeformat.dagster.declaration import LAKE
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.maintenance import maintenance
from lakeformat.dagster.rerun import rerun_partitions
from lakeformat.dagster.sensors import foreign_commits
from lakeformat.dagster.spark import SparkResource
from lakeformat.dagster.upkeep import Upkeep
from lakeformat.errors import InvalidInput


class LakeParams(BaseModel):
    """The command line options of a scaffolded lake."""

    warehouse: str = Field(description="A path or URI.")
    database: str = Field(default="default", description="Of tables whose name has none.")


class LakeScaffolder(dg.Scaffolder[LakeParams]):
    """A lake's YAML."""

    @classmethod
    def get_scaffold_params(cls) -> type[LakeParams]:
        """The options of the command."""
        return LakeParams

    def scaffold(self, request: dg.ScaffoldRequest[LakeParams]) -> None:
        """Write defs.yaml."""
        dg.scaffold_component(request, request.params.model_dump())


@dg.scaffold_with(LakeScaffolder)
class LakeComponent(dg.Component, dg.Model, dg.Resolvable):
    """A warehouse: the resources of all assets, and the maintenance of the project's tables.

    ```yaml
    type: lakeformat.dagster.LakeComponent
    attributes:
      warehouse: s3://bucket/warehouse
      storage_options: {region: eu-west-1, access_key_id: {env: S3_KEY}, secret_access_key: {env: S3_SECRET}}
    ```
    """

    warehouse: Text = Field(description="A URI or a path (from the project's root); {env: NAME} reads the environment.")
    name: Annotated[
        str,
        dg.Resolver.default(
            description="The name of the resource, and what tables say as `lake:`, if a project has several lakes. The "
            "others are then `<name>_spark` and `<name>_io_manager`."
        ),
    ] = Field(default=LAKE, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    database: Annotated[str, dg.Resolver.default(description="The database of tables whose name has none.")] = "default"
    storage_options: Annotated[
        dict[str, Text], dg.Resolver.default(description="What the storage needs; keys as {env: NAME}.")
    ] = {}
    catalog: Annotated[
        Text | None, dg.Resolver.default(description="Where Iceberg tables are named; see lakeformat.Lake.")
    ] = None
    catalog_options: Annotated[
        dict[str, Text], dg.Resolver.default(description="What the catalog needs; keys as {env: NAME}.")
    ] = {}
    encryption_keys: Annotated[
        dict[str, Text],
        dg.Resolver.default(description="Master keys of encrypted Iceberg tables by id, in base64, as {env: NAME}."),
    ] = {}
    allowed_locations: Annotated[
        list[str] | None,
        dg.Resolver.default(description="The folders, besides the warehouse, in which files may lie; by default all."),
    ] = None
    spark: Annotated[
        dict[str, Any], dg.Resolver.default(description="Fields of SparkResource: master, remote, conf ...")
    ] = {}
    maintenance: Annotated[
        bool, dg.Resolver.default(description="Whether the tables are compacted, expired and swept.")
    ] = True
    upkeep: Annotated[
        dict[str, int | float],
        dg.Resolver.default(description="Fields of Upkeep: when, and how much of the past is kept."),
    ] = {}
    sweep_cron: Annotated[str, dg.Resolver.default(description="When orphan files are removed.")] = "0 4 * * 0"
    in_process: Annotated[
        bool, dg.Resolver.default(description="Whether a run's steps share its process (and Spark session).")
    ] = True

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The resources, and the maintenance, observation and reruns of the tables."""
        lake = LakeResource(
            warehouse=_place(self.warehouse, context.project_root),
            database=self.database,
            storage_options={name: value_of(option) for name, option in self.storage_options.items()},
            catalog=value_of(self.catalog),
            catalog_options={name: value_of(option) for name, option in self.catalog_options.items()},
            encryption_keys={id: value_of(key) for id, key in self.encryption_keys.items()},
            allowed_locations=self.allowed_locations,
        )
        spark = SparkResource(**self.spark)
        resources = {
            self.name: lake,
            "spark" if self.name == LAKE else f"{self.name}_spark": spark,
            io_manager_of(self.name): LakeIOManager(lake=lake, spark=spark),
        }
        executor = dg.in_process_executor if self.in_process else None
        definitions = dg.Definitions(resources=resources, executor=executor)
        Upkeep(**self.upkeep)  # Refuses what is misspelt.
        lakes = context.component_tree.get_all_components(of_type=LakeComponent)
        first = min(lakes, key=lambda component: (component.name != LAKE, component.name))
        return dg.Definitions.merge(definitions, _of_tables(context, lakes)) if first.name == self.name else definitions


def _of_tables(context: dg.ComponentLoadContext, lakes: Sequence[LakeComponent]) -> dg.Definitions:
    """The maintenance, observation and reruns of the tables of all lakes: one job and one sensor of each kind."""
    by_name = {component.name: component for component in lakes}
    if len(by_name) < len(lakes):
        names = sorted(component.name for component in lakes)
        raise InvalidInput(f"the lakes of this project are called {', '.join(names)}; give each a `name` of its own")
    assets: list[dg.AssetsDefinition] = []
    kept: list[dg.AssetsDefinition] = []
    first = min(lakes, key=lambda component: component.name != LAKE)
    with betas_allowed():
        for component in context.component_tree.get_all_components(of_type=DeclaredAssets):
            lake = by_name.get(component.lake)
            if lake is None:
                raise InvalidInput(
                    f"{type(component).__name__}: lake: there is no lake {component.lake!r}; this project has "
                    f"{', '.join(sorted(by_name))}"
                )
            for asset in component.assets():
                assets.append(asset)
                if lake.maintenance:
                    kept.append(asset if lake is first else asset.map_asset_specs(partial(_with_limits, lake.upkeep)))
    if not assets:
        return dg.Definitions()
    definitions = dg.Definitions(jobs=[rerun_partitions(assets)], sensors=[foreign_commits(assets)])
    if not kept:
        return definitions
    return dg.Definitions.merge(
        definitions, maintenance(kept, upkeep=Upkeep(**first.upkeep), sweep_cron=first.sweep_cron)
    )


def _with_limits(limits: Mapping[str, int | float], spec: dg.AssetSpec) -> dg.AssetSpec:
    """The spec of a table whose maintenance has the limits of its lake, as far as it has none of its own."""
    declared = spec.metadata.get("maintenance", {})
    return spec if declared is False else spec.merge_attributes(metadata={"maintenance": {**limits, **declared}})


def _place(warehouse: Text, root: Path) -> Any:
    is_path = isinstance(warehouse, str) and "://" not in warehouse
    return str(root / warehouse) if is_path else value_of(warehouse)
