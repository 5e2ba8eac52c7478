"""Tables that follow those of a database."""

import re
from datetime import timedelta
from typing import Annotated, Literal

import dagster as dg
from pydantic import BaseModel, Field

from lakeformat.dagster.cdc import CdcSource, cdc_assets, lag_checks, lag_sensor
from lakeformat.dagster.checks import checks_for
from lakeformat.dagster.components.declared import DeclaredAssets
from lakeformat.dagster.components.values import Text, betas_allowed, one_of, value_of
from lakeformat.dagster.declaration import LAKE, option_text
from lakeformat.errors import InvalidInput


class CdcParams(BaseModel):
    """The command line options of a scaffolded database."""

    source_table: str = Field(description="The first table to follow, 'schema.table'.")
    table: str = Field(description="The table that follows it, 'db.name', or 'name' in the database of the lake.")
    url_env: str = Field(default="DATABASE_URL", description="The environment variable with the database's address.")


class CdcScaffolder(dg.Scaffolder[CdcParams]):
    """A database's YAML."""

    @classmethod
    def get_scaffold_params(cls) -> type[CdcParams]:
        """The options of the command."""
        return CdcParams

    def scaffold(self, request: dg.ScaffoldRequest[CdcParams]) -> None:
        """Write defs.yaml."""
        params = request.params
        attributes = {
            "url": {"env": params.url_env},
            "tables": {params.source_table: params.table},
            "schedule": "*/5 * * * *",
        }
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(CdcScaffolder)
class LakeCdcComponent(DeclaredAssets):
    """Tables that follow those of a PostgreSQL or MySQL database; each change is applied exactly once.

    ```yaml
    type: lakeformat.dagster.LakeCdcComponent
    attributes:
      url: {env: SHOP_DSN}
      tables: {public.orders: shop.orders, public.customers: shop.customers}
      schedule: "*/5 * * * *"
    ```
    """

    url: Text = Field(description="postgresql://... or mysql://...; {env: NAME} reads the environment.")
    tables: dict[str, str] = Field(description="The database's table -> 'db.name', or 'name' in the lake's database.")
    source: Annotated[
        str, dg.Resolver.default(description="The name of the resource, where a project has several.")
    ] = "database"
    format: Annotated[
        Literal["paimon", "iceberg"], one_of("paimon", "iceberg", description="The format of tables that are created.")
    ] = "paimon"
    slot: Annotated[str, dg.Resolver.default(description="PostgreSQL's replication slot, one for all tables.")] = (
        "lakeformat"
    )
    name: Annotated[
        str | None,
        dg.Resolver.default(description="The name recorded in tables, for a MySQL server whose address may change."),
    ] = None
    type_options: Annotated[
        list[str], dg.Resolver.default(description="How types are mapped: to-string, to-nullable ...")
    ] = []
    exclude_columns: Annotated[
        list[str], dg.Resolver.default(description="'schema.table.column', as the database names them.")
    ] = []
    on_misfit: Annotated[
        Literal["stop", "null"],
        dg.Resolver.default(description="What becomes of values that their column cannot hold."),
    ] = "stop"
    text_columns: Annotated[
        list[str], dg.Resolver.default(description="'schema.table.column': those that are STRING.")
    ] = []
    readers: Annotated[int, dg.Resolver.default(description="Connections that read a snapshot, a chunk each.")] = Field(
        default=1, ge=1
    )
    primary_keys: Annotated[dict[str, list[str]], dg.Resolver.default(description="Of tables that declare none.")] = {}
    shards: Annotated[
        dict[str, str],
        dg.Resolver.default(description="A pattern of the database's tables, which are one together -> as in tables."),
    ] = {}
    computed_columns: Annotated[
        dict[str, dict[str, str]],
        dg.Resolver.default(description="Source table -> column -> Spark SQL over its row."),
    ] = {}
    partition_by: Annotated[
        dict[str, list[str]], dg.Resolver.default(description="How tables are partitioned, by source table.")
    ] = {}
    row_filters: Annotated[
        dict[str, str],
        dg.Resolver.default(description="Source table -> the condition that rows satisfy, Spark SQL over its columns."),
    ] = {}
    table_properties: Annotated[
        dict[str, str | bool | int | float], dg.Resolver.default(description="Of tables that are created.")
    ] = {}
    schedule: Annotated[str | None, dg.Resolver.default(description="When micro-batches run, as cron writes it.")] = (
        None
    )
    timezone: Annotated[str, dg.Resolver.default(description="Of the schedule.")] = "UTC"
    run_at_lag_seconds: Annotated[
        float | None, dg.Resolver.default(description="A sensor asks for a run of a table that is so far behind.")
    ] = Field(default=None, ge=0)
    max_lag_seconds: Annotated[
        float | None, dg.Resolver.default(description="A check fails for a table that is so far behind.")
    ] = Field(default=None, ge=0)
    checks: Annotated[bool, dg.Resolver.default(description="Whether rows, columns and the key are checked.")] = True
    maintenance: Annotated[bool, dg.Resolver.default(description="Whether the lake compacts and expires.")] = True
    group_name: Annotated[str | None, dg.Resolver.default(description="The group of the assets.")] = None
    owners: Annotated[list[str], dg.Resolver.default(description="The owners of the assets.")] = []
    tags: Annotated[
        dict[str, str | bool | int | float], dg.Resolver.default(description="The tags of the assets.")
    ] = {}

    @property
    def is_maintained(self) -> bool:
        """Whether the lake compacts and expires the tables."""
        return self.maintenance

    def assets(self) -> list[dg.AssetsDefinition]:
        """An asset for each table."""
        tables: dict[str | re.Pattern[str], str] = dict(self.tables.items())
        if not tables and not self.shards:
            raise InvalidInput("tables is empty; name what to follow, as in {public.orders: shop.orders}")
        for pattern, target in self.shards.items():
            try:
                tables[re.compile(pattern)] = target
            except re.error as error:
                raise InvalidInput(f"shards: {pattern!r} is not a regular expression: {error}") from error
        return cdc_assets(
            self.source,
            tables,
            format=self.format,
            primary_keys=self.primary_keys,
            computed_columns=self.computed_columns,
            row_filters=self.row_filters,
            partition_by=self.partition_by,
            metadata={
                **({} if self.lake == LAKE else {"lake": self.lake}),
                **({} if self.is_maintained else {"maintenance": False}),
            },
            table_properties={name: option_text(value) for name, value in self.table_properties.items()},
            group_name=self.group_name,
            owners=self.owners or None,
            tags={name: option_text(value) for name, value in self.tags.items()},
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The database's resource, the assets of its tables, and their schedule and sensor."""
        with betas_allowed():
            assets = self.assets()
            checks = checks_for(assets) if self.checks else []
        if self.max_lag_seconds is not None:
            checks += lag_checks(assets, timedelta(seconds=self.max_lag_seconds))
        schedules, sensors = list[dg.ScheduleDefinition](), list[dg.SensorDefinition]()
        if self.schedule is not None:
            schedules.append(
                dg.ScheduleDefinition(
                    name=f"follow_{self.source}",
                    target=assets,
                    cron_schedule=self.schedule,
                    execution_timezone=self.timezone,
                    default_status=dg.DefaultScheduleStatus.RUNNING,
                )
            )
        if self.run_at_lag_seconds is not None:
            sensors.append(
                lag_sensor(assets, timedelta(seconds=self.run_at_lag_seconds), name=f"follow_{self.source}_at_lag")
            )
        # Each field of the resource is one of the component.
        options = {name: getattr(self, name) for name in CdcSource.model_fields.keys() - {"url"}}
        source = CdcSource(url=value_of(self.url), **options)
        return dg.Definitions(
            assets=assets, asset_checks=checks, schedules=schedules, sensors=sensors, resources={self.source: source}
        )
