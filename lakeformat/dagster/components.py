"""Components for `dg`: a warehouse, and the tables in it, declared in YAML.

    dg scaffold defs lakeformat.dagster.LakeComponent lake --warehouse /data/warehouse
    dg scaffold defs lakeformat.dagster.LakeTableComponent orders --table shop.orders --partitions daily --start-date
    2026-01-01

The YAML of a table uses the names of `lakeformat.dagster.declaration`, with the same meaning.
"""

import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from lakeformat.dagster.audit import published
from lakeformat.dagster.cdc import CdcSource, cdc_assets, lag_checks, lag_sensor
from lakeformat.dagster.checks import checks_for
from lakeformat.dagster.declaration import option_text
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.maintenance import maintenance
from lakeformat.dagster.rerun import rerun_partitions
from lakeformat.dagster.sensors import foreign_commits
from lakeformat.dagster.spark import SparkResource
from lakeformat.dagster.sql_table import sql_table
from lakeformat.dagster.tables import RETRY, pool_of, tables_of
from lakeformat.dagster.upkeep import Upkeep
from lakeformat.errors import InvalidInput

TIME_PARTITIONS: Mapping[str, Callable[..., dg.PartitionsDefinition]] = {
    "hourly": dg.HourlyPartitionsDefinition,
    "daily": dg.DailyPartitionsDefinition,
    "weekly": dg.WeeklyPartitionsDefinition,
    "monthly": dg.MonthlyPartitionsDefinition,
}
KEY_COLUMNS = {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month"}  # Columns of a scaffolded table.


class TimePartitions(dg.Model):
    """Time-window partitions."""

    type: Literal["hourly", "daily", "weekly", "monthly"]
    start_date: str = Field(description="The first one, e.g. '2026-01-01' (for hours '2026-01-01-00:00').")
    end_date: str | None = Field(default=None, description="The first one that is not among them.")
    timezone: str | None = Field(default=None, description="UTC unless it says otherwise, e.g. 'Europe/Berlin'.")

    def definition(self) -> dg.PartitionsDefinition:
        """The Dagster definition."""
        return TIME_PARTITIONS[self.type](start_date=self.start_date, end_date=self.end_date, timezone=self.timezone)


class StaticPartitions(dg.Model):
    """Partitions with a fixed list of keys."""

    type: Literal["static"]
    partition_keys: list[str]

    def definition(self) -> dg.PartitionsDefinition:
        """The Dagster definition."""
        return dg.StaticPartitionsDefinition(self.partition_keys)


class DynamicPartitions(dg.Model):
    """Partitions whose keys are added by sensors and users."""

    type: Literal["dynamic"]
    name: str

    def definition(self) -> dg.PartitionsDefinition:
        """The Dagster definition."""
        return dg.DynamicPartitionsDefinition(name=self.name)


class MultiPartitions(dg.Model):
    """Partitions of two dimensions."""

    type: Literal["multi"]
    dimensions: dict[str, TimePartitions | StaticPartitions | DynamicPartitions]

    def definition(self) -> dg.PartitionsDefinition:
        """The Dagster definition."""
        return dg.MultiPartitionsDefinition(
            {name: dimension.definition() for name, dimension in self.dimensions.items()}
        )


class FromEnv(dg.Model):
    """The value of an environment variable, read when a run needs it; Dagster shows only its name."""

    env: str


Text = str | FromEnv
Partitions = TimePartitions | StaticPartitions | DynamicPartitions | MultiPartitions


class DeclaredAssets(dg.Component, dg.Model, dg.Resolvable):
    """A component whose assets are tables: the lake of the project maintains them."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @abstractmethod
    def assets(self) -> list[dg.AssetsDefinition]:
        """The assets that fill the tables."""

    @property
    @abstractmethod
    def is_maintained(self) -> bool:
        """Whether the lake compacts and expires the tables."""


class DeclaredTable(DeclaredAssets):
    """The common part of all components for one table: the table, and how Dagster treats it."""

    table: str = Field(description="The table, 'db.name', or 'name' in the database of the lake. The asset's key too.")
    format: Annotated[
        Literal["paimon", "iceberg"], dg.Resolver.default(description="The format of a table that is created.")
    ] = "paimon"
    partitions: Annotated[Partitions | None, dg.Resolver.default(description="The asset's partitions.")] = None
    partition_by: Annotated[
        str | dict[str, Any] | None,
        dg.Resolver.default(description="How partitions fall onto columns, e.g. {date: day}."),
    ] = None
    layout: Annotated[
        list[str], dg.Resolver.default(description="The table's partition columns where they are others.")
    ] = []
    primary_key: Annotated[list[str], dg.Resolver.default(description="The columns of the primary key.")] = []
    write: Annotated[
        Literal["replace", "upsert", "merge", "append"], dg.Resolver.default(description="How a run changes the table.")
    ] = "replace"
    merge: Annotated[
        dict[str, Any] | None, dg.Resolver.passthrough(description="The clauses, where `write` is merge.")
    ] = None
    schema_evolution: Annotated[
        Literal["refuse", "add", "widen"], dg.Resolver.default(description="What a frame may change about the columns.")
    ] = "refuse"
    table_properties: Annotated[
        dict[str, str | bool | int | float], dg.Resolver.default(description="The options of a table that is created.")
    ] = {}
    lineage: Annotated[dict[str, Any], dg.Resolver.default(description="Where each column comes from.")] = {}
    checks: Annotated[
        bool, dg.Resolver.default(description="Whether rows, columns, partitions and `unique_key` are checked.")
    ] = True
    unique_key: Annotated[
        list[str], dg.Resolver.default(description="Columns of which no two rows have the same values.")
    ] = []
    unique_over: Annotated[
        Literal["partition", "table"], dg.Resolver.default(description="No two rows of what: see `unique_key`.")
    ] = "partition"
    audit: Annotated[
        bool,
        dg.Resolver.default(
            description="Whether rows go to a branch first: the asset `<table>_audited` writes it, and the table's "
            "own publishes it once all blocking checks have passed."
        ),
    ] = False
    maintenance: Annotated[
        bool | dict[str, int | float],
        dg.Resolver.default(
            description="Whether the lake compacts and expires; limits of its own, e.g. {max_small_files: 4}."
        ),
    ] = True
    max_partitions_per_run: Annotated[
        int | None, dg.Resolver.default(description="Splits backfills; without it a range is one run and one snapshot.")
    ] = None
    description: Annotated[
        str | None,
        dg.Resolver.default(
            description="The asset's, and the table's comment; else the docstring, or the query's first comment."
        ),
    ] = None
    group_name: Annotated[str | None, dg.Resolver.default(description="The asset's group.")] = None
    owners: Annotated[list[str], dg.Resolver.default(description="The asset's owners, e.g. 'team:shop'.")] = []
    tags: Annotated[dict[str, str | bool | int | float], dg.Resolver.default(description="The asset's tags.")] = {}
    automation_condition: Annotated[
        dg.AutomationCondition | None,
        dg.Resolver.default(model_field_type=str, description="e.g. '{{ dg.AutomationCondition.eager() }}'."),
    ] = None

    @property
    def key(self) -> dg.AssetKey:
        """The table's asset key: of the asset that fills the table, or, if it is audited, of the one that publishes
        it."""
        return dg.AssetKey(self.table.split("."))

    def options(self) -> dict[str, Any]:
        """The arguments of `dg.asset` for the table."""
        *database, name = self.key.path
        declared = {
            "partition_by": self.partition_by,
            "layout": self.layout,
            "primary_key": self.primary_key,
            "merge": self.merge,
            "table_properties": self.table_properties,
            "lineage": self.lineage,
            "unique_key": self.unique_key,
            "unique_over": self.unique_over if self.unique_over != "partition" else None,
            "maintenance": self.maintenance if isinstance(self.maintenance, dict) else None,
            "audit": self.audit,
            "table": self.audit and (f"{'_'.join(database)}.{name}" if database else name),
        }
        common = {"format": self.format, "write": self.write, "schema_evolution": self.schema_evolution}
        return {
            "key": dg.AssetKey([*database, f"{name}_audited"]) if self.audit else self.key,
            "partitions_def": None if self.partitions is None else self.partitions.definition(),
            **(
                {"backfill_policy": dg.BackfillPolicy.multi_run(at_most)}
                if (at_most := self.max_partitions_per_run)
                else {}
            ),
            "metadata": common | {name: value for name, value in declared.items() if value},
            "description": self.description,
            "group_name": self.group_name,
            "owners": self.owners or None,
            "tags": {name: option_text(value) for name, value in self.tags.items()},
            "kinds": {self.format},
            "automation_condition": self.automation_condition,
            "pool": pool_of(self.key.to_python_identifier()),
            "retry_policy": RETRY,
        }

    @abstractmethod
    def asset(self) -> dg.AssetsDefinition:
        """The asset that fills the table."""

    def assets(self) -> list[dg.AssetsDefinition]:
        """The asset that fills the table, and, if it is audited, the one that publishes it."""
        written = self.asset()
        if not self.audit:
            return [written]
        names = ("owners", "tags", "kinds", "automation_condition", "retry_policy")
        same = {name: value for name, value in self.options().items() if name in names}
        return [written, published(written, key=self.key, **same)]

    @property
    def is_maintained(self) -> bool:
        """Whether the lake compacts and expires the table."""
        return self.maintenance is not False

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The asset and its checks. Raises `InvalidInput` for an invalid declaration."""
        with _betas_allowed():
            assets = self.assets()
            tables_of(assets)
            return dg.Definitions(assets=assets, asset_checks=checks_for(assets[:1]) if self.checks else [])


def _function(context: dg.ResolutionContext, path: str) -> Callable[..., Any]:
    """`.module.function` beside the YAML, or `package.module.function`."""
    name, _, function = path.rpartition(".")
    if not name.strip("."):
        raise InvalidInput(f"rows: {path!r}; give '.module.function' beside the YAML, or 'package.module.function'")
    if name.startswith("."):
        component = dg.ComponentLoadContext.from_resolution_context(context)
        file = Path(*name[1:].split(".")).with_suffix(".py")
        folder = component.path.parent if component.path.is_file() else component.path
        if not (folder / file).exists():
            raise InvalidInput(f"rows: {path!r} is the function {function} of {file}, and there is no {folder / file}")
        module = component.load_defs_relative_python_module(file)
    else:
        module = import_module(name)
    loaded = getattr(module, function, None)
    if not callable(loaded):
        there = sorted(name for name in vars(module) if callable(getattr(module, name)) and not name.startswith("_"))
        raise InvalidInput(f"rows: {path!r}; {module.__name__} has no function {function}, it has {', '.join(there)}")
    return loaded


def _file(context: dg.ResolutionContext, name: str) -> Path:
    """The file `name` beside the YAML."""
    path = context.resolve_source_relative_path(name)
    if not path.is_file():
        raise InvalidInput(f"sql: {name!r}; there is no file {path}")
    return path


class TableParams(BaseModel):
    """The command line options of a scaffolded table."""

    table: str = Field(description="'db.name', or 'name' in the database of the lake.")
    table_format: Literal["paimon", "iceberg"] = Field(default="paimon", description="The table's format.")
    partitions: Literal["hourly", "daily", "weekly", "monthly"] | None = Field(default=None, description="Of time.")
    start_date: str = Field(default="2026-01-01", description="The first partition.")

    def attributes(self) -> dict[str, Any]:
        """The YAML of the table."""
        attributes: dict[str, Any] = {"table": self.table, "format": self.table_format}
        if self.partitions:
            attributes["partitions"] = {"type": self.partitions, "start_date": self.start_date}
            attributes["partition_by"] = KEY_COLUMNS[self.partitions]
        return attributes


ROWS = '''import dagster as dg
import pyarrow as pa


def {name}(context: dg.AssetExecutionContext) -> pa.Table:
    """The rows of {table}; replace this by your own."""
    return pa.table({columns})
'''


class TableScaffolder(dg.Scaffolder[TableParams]):
    """A table's YAML, and a function that makes its rows."""

    @classmethod
    def get_scaffold_params(cls) -> type[TableParams]:
        """The options of the command."""
        return TableParams

    def scaffold(self, request: dg.ScaffoldRequest[TableParams]) -> None:
        """Write defs.yaml and rows.py."""
        params = request.params
        name = dg.AssetKey(params.table.split(".")).path[-1]
        attributes = params.attributes()
        dg.scaffold_component(request, {"table": attributes.pop("table"), "rows": f".rows.{name}", **attributes})
        column = attributes.get("partition_by")
        keys = "context.partition_keys"
        columns = f'{{"{column}": {keys}, "n": [1] * len({keys})}}' if column else '{"n": [1]}'
        rows = ROWS.format(name=name, table=params.table, columns=columns)
        (request.target_path / "rows.py").write_text(rows, "utf-8")


@dg.scaffold_with(TableScaffolder)
class LakeTableComponent(DeclaredTable):
    """A table whose rows a Python function returns.

    ```yaml
    type: lakeformat.dagster.LakeTableComponent
    attributes:
      table: shop.orders
      rows: .rows.orders
      partitions: {type: daily, start_date: "2026-01-01"}
      partition_by: {date: day}
    ```
    """

    rows: Annotated[Callable[..., Any], dg.Resolver(_function, model_field_type=str)] = Field(
        description="The function: '.module.function' beside this file, or 'package.module.function'. As of any "
        "asset, its arguments are `context`, resources and upstream tables, and it returns a frame."
    )
    inputs: Annotated[
        dict[str, str], dg.Resolver.default(description="Argument -> upstream table, where it has another name.")
    ] = {}

    def asset(self) -> dg.AssetsDefinition:
        """The asset that fills the table."""
        ins = {name: dg.AssetIn(key=table.split(".")) for name, table in self.inputs.items()}
        one_run = {"backfill_policy": dg.BackfillPolicy.single_run()} if self.partitions else {}
        return dg.asset(ins=ins, **{**one_run, **self.options()})(self.rows)


class SqlParams(TableParams):
    """The command line options of a scaffolded table of a query."""

    upstream: str = Field(description="The table that the query reads, 'db.name', or 'name' in the lake's database.")


class SqlScaffolder(dg.Scaffolder[SqlParams]):
    """A table's YAML, and the query that makes its rows."""

    @classmethod
    def get_scaffold_params(cls) -> type[SqlParams]:
        """The options of the command."""
        return SqlParams

    def scaffold(self, request: dg.ScaffoldRequest[SqlParams]) -> None:
        """Write defs.yaml and rows.sql."""
        params = request.params
        attributes = {"table": params.table, "sql": "rows.sql", **params.attributes()}
        dg.scaffold_component(request, attributes)
        column = attributes.get("partition_by")
        select = f"SELECT {column}, count(*) AS n FROM {params.upstream} GROUP BY {column}" if column else ""
        query = select or f"SELECT count(*) AS n FROM {params.upstream}"
        (request.target_path / "rows.sql").write_text(
            f"-- The rows of {params.table}; replace this by your own.\n{query}\n", "utf-8"
        )


@dg.scaffold_with(SqlScaffolder)
class LakeSqlComponent(DeclaredTable):
    """A table that a SELECT over other tables fills.

    ```yaml
    type: lakeformat.dagster.LakeSqlComponent
    attributes:
      table: shop.days
      sql: rows.sql
      partitions: {type: daily, start_date: "2026-01-01"}
      partition_by: {date: day}
    ```
    """

    sql: Annotated[Path, dg.Resolver(_file, model_field_type=str)] = Field(
        description="The file of the SELECT, beside this one. Each table that it names is upstream; it may name "
        ":partition_key, :partition_start and :partition_end."
    )
    upstream: Annotated[
        dict[str, str | None],
        dg.Resolver.default(
            description="Name in the query -> the asset's key ('raw/orders'), or null: a table that is no asset."
        ),
    ] = {}
    params: Annotated[
        dict[str, str | bool | int | float | None], dg.Resolver.default(description="Values of :name in the query.")
    ] = {}
    on_spark: Annotated[
        bool, dg.Resolver.default(description="Whether Spark answers the query; else this process.")
    ] = False

    def asset(self) -> dg.AssetsDefinition:
        """The asset that fills the table."""
        keys = {name: key and dg.AssetKey.from_user_string(key) for name, key in self.upstream.items()}
        options = {**self.options(), "kinds": {self.format, "sql"}}
        if self.description is None:
            del options["description"]  # The query's first comment is the description.
        return sql_table(self.sql, upstream=keys, params=self.params, spark=self.on_spark, **options)


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
        Literal["paimon", "iceberg"], dg.Resolver.default(description="The format of tables that are created.")
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
    table_properties: Annotated[
        dict[str, str | bool | int | float], dg.Resolver.default(description="Of tables that are created.")
    ] = {}
    schedule: Annotated[str | None, dg.Resolver.default(description="When micro-batches run, as cron writes it.")] = (
        None
    )
    timezone: Annotated[str, dg.Resolver.default(description="Of the schedule.")] = "UTC"
    run_at_lag_seconds: Annotated[
        float | None, dg.Resolver.default(description="A sensor asks for a run of a table that is so far behind.")
    ] = None
    max_lag_seconds: Annotated[
        float | None, dg.Resolver.default(description="A check fails for a table that is so far behind.")
    ] = None
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
            partition_by=self.partition_by,
            table_properties={name: option_text(value) for name, value in self.table_properties.items()},
            group_name=self.group_name,
            owners=self.owners or None,
            tags={name: option_text(value) for name, value in self.tags.items()},
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The database's resource, the assets of its tables, and their schedule and sensor."""
        with _betas_allowed():
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
        source = CdcSource(
            url=_value(self.url),
            slot=self.slot,
            type_options=self.type_options,
            exclude_columns=self.exclude_columns,
            readers=self.readers,
            name=self.name,
        )
        return dg.Definitions(
            assets=assets, asset_checks=checks, schedules=schedules, sensors=sensors, resources={self.source: source}
        )


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
            storage_options={name: _value(option) for name, option in self.storage_options.items()},
            catalog=_value(self.catalog),
            catalog_options={name: _value(option) for name, option in self.catalog_options.items()},
            encryption_keys={id: _value(key) for id, key in self.encryption_keys.items()},
            allowed_locations=self.allowed_locations,
        )
        spark = SparkResource(**self.spark)
        declared = context.component_tree.get_all_components(of_type=DeclaredAssets)
        with _betas_allowed():
            pairs = [(component, asset) for component in declared for asset in component.assets()]
        assets = [asset for _, asset in pairs]
        definitions = dg.Definitions(
            jobs=[rerun_partitions(assets)] if assets else [],
            sensors=[foreign_commits(assets)] if assets else [],
            resources={"lake": lake, "spark": spark, "io_manager": LakeIOManager(lake=lake, spark=spark)},
            executor=dg.in_process_executor if self.in_process else None,
        )
        kept = [asset for component, asset in pairs if component.is_maintained]
        if not (self.maintenance and kept):
            return definitions
        upkeep = maintenance(kept, upkeep=Upkeep(**self.upkeep), sweep_cron=self.sweep_cron)
        return dg.Definitions.merge(definitions, upkeep)


def _place(warehouse: Text, root: Path) -> Any:
    is_path = isinstance(warehouse, str) and "://" not in warehouse
    return str(root / warehouse) if is_path else _value(warehouse)


def _value(text: Text | None) -> Any:
    return dg.EnvVar(text.env) if isinstance(text, FromEnv) else text


@contextmanager
def _betas_allowed() -> Iterator[None]:
    """Suppress Dagster's beta warnings: backfill policies are used on purpose, and one warning per table says nothing
    new."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield
