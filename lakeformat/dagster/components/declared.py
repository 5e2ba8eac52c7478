"""What the components for tables have in common."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import ConfigDict, Field

from lakeformat.dagster.audit import published
from lakeformat.dagster.checks import checks_for
from lakeformat.dagster.components.values import Freshness, Partitions, betas_allowed, one_of
from lakeformat.dagster.declaration import LAKE, OF_ASSETS, check_table_name, naming, option_text
from lakeformat.dagster.tables import RETRY, pool_of, tables_of
from lakeformat.dagster.upkeep import Upkeep
from lakeformat.errors import InvalidInput


def io_manager_of(lake: str) -> str:
    """The resource that is the IO manager of a lake's tables."""
    return "io_manager" if lake == LAKE else f"{lake}_io_manager"


def check_declarations(assets: Iterable[dg.AssetsDefinition]) -> None:
    """Raise `InvalidInput` for an invalid declaration, and for limits that no maintenance has."""
    for table in tables_of(assets).values():
        Upkeep().of(table)


class DeclaredAssets(dg.Component, dg.Model, dg.Resolvable):
    """A component whose assets are tables: the lake of the project maintains them."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @abstractmethod
    def assets(self) -> list[dg.AssetsDefinition]:
        """The assets that fill the tables."""

    lake: Annotated[
        str,
        dg.Resolver.default(description="The LakeComponent of the tables, by its `name`, if the project has several."),
    ] = LAKE


class TableFields(dg.Model, dg.Resolvable):
    """How a table, or each of several, is declared, and how Dagster treats it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    format: Annotated[
        Literal["paimon", "iceberg"], one_of("paimon", "iceberg", description="The format of a table that is created.")
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
        Literal["replace", "upsert", "merge", "append"],
        one_of("replace", "upsert", "merge", "append", description="How a run changes the table."),
    ] = "replace"
    merge: Annotated[
        dict[str, Any] | None, dg.Resolver.passthrough(description="The clauses, where `write` is merge.")
    ] = None
    table_evolution: Annotated[
        Literal["refuse", "alter"],
        one_of(
            "refuse",
            "alter",
            description="What a run does where the table is not as declared here: key, properties ...",
        ),
    ] = "refuse"
    schema_evolution: Annotated[
        Literal["refuse", "add", "widen"],
        one_of("refuse", "add", "widen", description="What a frame may change about the columns."),
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
        Literal["partition", "table"],
        one_of("partition", "table", description="No two rows of what: see `unique_key`."),
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
    ] = Field(default=None, ge=1)
    description: Annotated[
        str | None,
        dg.Resolver.default(
            description="The asset's, and the table's comment; else the docstring, or the query's first comment."
        ),
    ] = None
    group_name: Annotated[str | None, dg.Resolver.default(description="The asset's group.")] = None
    deps: Annotated[
        list[str],
        dg.Resolver.default(
            description="Assets that come before this one and that it does not read, e.g. 'raw/orders'."
        ),
    ] = []
    kinds: Annotated[
        list[str], dg.Resolver.default(description="The asset's kinds beside the format, e.g. 'silver'; at most 10.")
    ] = []
    freshness: Annotated[
        Freshness | None,
        dg.Resolver.default(
            description="How fresh the asset must be: {fail_hours: 26}, or {deadline_cron: '0 6 * * *', "
            "lower_bound_hours: 6}."
        ),
    ] = None
    metadata: Annotated[
        dict[str, Any], dg.Resolver.default(description="Further metadata of the asset, which the table does not heed.")
    ] = {}
    owners: Annotated[list[str], dg.Resolver.default(description="The asset's owners, e.g. 'team:shop'.")] = []
    tags: Annotated[dict[str, str | bool | int | float], dg.Resolver.default(description="The asset's tags.")] = {}
    automation_condition: Annotated[
        dg.AutomationCondition | None,
        dg.Resolver.default(model_field_type=str, description="e.g. '{{ dg.AutomationCondition.eager() }}'."),
    ] = None

    @property
    def is_maintained(self) -> bool:
        """Whether the lake compacts and expires the table."""
        return self.maintenance is not False


class DeclaredTable(TableFields, DeclaredAssets):
    """The common part of all components for one table."""

    table: str = Field(description="The table, 'db.name', or 'name' in the database of the lake. The asset's key too.")

    @property
    def key(self) -> dg.AssetKey:
        """The table's asset key: of the asset that fills the table, or, if it is audited, of the one that publishes
        it."""
        with naming("table"):
            check_table_name(self.table)
        return dg.AssetKey(self.table.split("."))

    def options(self) -> dict[str, Any]:
        """The arguments of `dg.asset` for the table."""
        *database, name = self.key.path
        if ours := sorted(OF_ASSETS.intersection(self.metadata)):
            raise InvalidInput(
                f"{self.table}: metadata {ours[0]!r} is a field of its own: write {ours[0]}: beside table:"
            )
        if self.max_partitions_per_run and self.partitions is None:
            raise InvalidInput(
                f"{self.table}: max_partitions_per_run splits backfills, and the table has no partitions"
            )
        declared = {
            "partition_by": self.partition_by,
            "layout": self.layout,
            "primary_key": self.primary_key,
            "merge": self.merge,
            "table_properties": self.table_properties,
            "lineage": self.lineage,
            "unique_key": self.unique_key,
            "unique_over": self.unique_over if self.unique_over != "partition" else None,
            "audit": self.audit,
            "lake": self.lake if self.lake != LAKE else None,
            "table_evolution": self.table_evolution if self.table_evolution != "refuse" else None,
            "table": self.audit and (f"{'_'.join(database)}.{name}" if database else name),
        }
        limits = {} if self.maintenance is True else {"maintenance": self.maintenance}
        common = limits | {"format": self.format, "write": self.write, "schema_evolution": self.schema_evolution}
        return {
            "key": dg.AssetKey([*database, f"{name}_audited"]) if self.audit else self.key,
            "partitions_def": None if self.partitions is None else self.partitions.definition(),
            **(
                {"backfill_policy": dg.BackfillPolicy.multi_run(at_most)}
                if (at_most := self.max_partitions_per_run)
                else {}
            ),
            "metadata": self.metadata | common | {name: value for name, value in declared.items() if value},
            "deps": [dg.AssetKey.from_user_string(key) for key in self.deps],
            "freshness_policy": self.freshness and self.freshness.policy(),
            "description": self.description,
            "group_name": self.group_name,
            "owners": self.owners or None,
            "tags": {name: option_text(value) for name, value in self.tags.items()},
            "kinds": {self.format, *self.kinds},
            "io_manager_key": io_manager_of(self.lake),
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
        names = ("owners", "tags", "kinds", "automation_condition", "retry_policy", "freshness_policy")
        same = {name: value for name, value in self.options().items() if name in names}
        return [written, published(written, key=self.key, **same)]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The asset and its checks. Raises `InvalidInput` for an invalid declaration."""
        with betas_allowed():
            assets = self.assets()
            check_declarations(assets)
            return dg.Definitions(assets=assets, asset_checks=checks_for(assets[:1]) if self.checks else [])
