"""The assets of a repository that are tables, as maintenance, checks and reruns need them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, permutations
from typing import Any

import dagster as dg

from lakeformat.dagster.declaration import (
    LAKE,
    OF_ASSETS,
    AssetTable,
    declared,
    lake_key,
    table_name,
    upstream_of,
)
from lakeformat.dagster.fields import require
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.errors import InvalidInput

RETRY = dg.RetryPolicy(max_retries=3, delay=1, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)


@dataclass(frozen=True, slots=True)
class TableAsset:
    """An asset that fills a table, and its definition, which may define other assets too."""

    key: dg.AssetKey
    definition: dg.AssetsDefinition

    @property
    def name(self) -> str:
        """The asset's key as text: `flights`, `sales/orders`."""
        return self.key.to_user_string()

    @property
    def identifier(self) -> str:
        """The asset's name in the names of jobs and steps."""
        return self.key.to_python_identifier()

    @property
    def step(self) -> dg.OpDefinition | None:
        """The step that makes the asset; None if a graph does."""
        node = self.definition.node_def
        return node if isinstance(node, dg.OpDefinition) else None

    @property
    def pool(self) -> str:
        """The pool of all writers of the table: that of the asset's own step, if it has one."""
        return (self.step and self.step.pool) or pool_of(self.identifier)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the asset."""
        return self.definition.metadata_by_key.get(self.key) or {}

    @property
    def partitions(self) -> dg.PartitionsDefinition | None:
        """The asset's partitions."""
        return self.definition.partitions_def

    @property
    def write(self) -> str:
        """How a run changes the table: replace, append, upsert or merge."""
        return str(self.metadata.get("write", self.metadata.get("write_mode", "replace")))

    @property
    def replaces(self) -> bool:
        """Whether a run replaces exactly its partitions; other tables collect rows."""
        return self.write == "replace"

    @property
    def audits(self) -> bool:
        """Whether the asset writes to a branch that another asset publishes."""
        return bool(self.metadata.get("audit", False))

    @property
    def publishes(self) -> bool:
        """Whether the asset publishes what another asset wrote."""
        return "publishes" in self.metadata

    @property
    def maintained(self) -> bool:
        """Whether the table is compacted, expired and swept; for an audited table, by the asset that publishes it."""
        return not self.audits and self.metadata.get("maintenance") is not False

    @property
    def lake_key(self) -> str:
        """The name of the resource that is the table's warehouse."""
        return lake_key(self.key, self.metadata)

    def lake(self, resources: Any) -> LakeResource:
        """The table's warehouse, among the resources of a run or a tick."""
        lake: LakeResource = getattr(resources, self.lake_key)
        return lake

    def table(self, lake: LakeResource) -> AssetTable:
        """The table that the asset fills."""
        return lake.declared(self.key, self.definition)


def pool_of(name: str) -> str:
    """The pool of all writers of an asset's table, unless the asset declares another."""
    return f"lake__{name}"


def tables_of(assets: Iterable[Any], *, io_manager_key: str = "io_manager") -> dict[str, TableAsset]:
    """The materializable assets that are tables, by name, upstream ones first.

    An asset is a table if its metadata has one of lakeformat's keys, if it returns its rows to the IO manager
    `io_manager_key`, the repository's `LakeIOManager`, or if it returns none and uses the resource `lake`. Others,
    specs and external assets among `assets` are left out.

    Raises `InvalidInput` for an invalid declaration, and for two assets of one table of which one would replace the
    rows of the other.
    """
    tables: dict[str, TableAsset] = {}
    assets = listed(assets)
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition) and asset.is_executable and asset.is_materializable:
            for key in asset.keys:
                if _is_table(asset, key, io_manager_key):
                    table = TableAsset(key, asset)
                    declared(key, table.name, asset.partitions_def, table.metadata)
                    table_name(key, table.metadata, database="")
                    tables[table.name] = table
    _refuse_shared(list(tables.values()))
    _refuse_unknown_lineage(tables.values(), assets)
    upstream = {
        # An asset may depend on its own earlier partitions.
        name: sorted({key.to_user_string() for key in table.definition.asset_deps[table.key]} & tables.keys() - {name})
        for name, table in tables.items()
    }
    try:
        return {name: tables[name] for name in TopologicalSorter(upstream).static_order()}
    except CycleError as error:
        raise InvalidInput(
            f"{' -> '.join(error.args[1])}: each of these assets needs the next; break the circle"
        ) from error


def listed(assets: Iterable[Any], argument: str = "assets") -> list[Any]:
    """The assets. Raises `InvalidInput` for one that is not in a list, and for names of assets."""
    form = "a list of assets, as in [orders, customers]"
    if isinstance(assets, str):
        raise InvalidInput(f"{argument} is the text {assets!r}; give {form}")
    require(argument, assets, Iterable, form)
    assets = list(assets)
    if names := [asset for asset in assets if isinstance(asset, str | dg.AssetKey)]:
        name = names[0] if isinstance(names[0], str) else names[0].to_user_string()
        raise InvalidInput(f"{argument} has the name {name!r}; give the assets themselves, not their names")
    return assets


def lake_keys(tables: Iterable[TableAsset]) -> set[str]:
    """The names of the resources that are the tables' warehouses."""
    return {table.lake_key for table in tables}


def refuse_unpublished(tables: Mapping[str, TableAsset]) -> None:
    """Raise `InvalidInput` for an audited asset among all of a repository's that no other publishes."""
    published = {table.metadata.get("publishes") for table in tables.values()}
    if lost := next((name for name, table in tables.items() if table.audits and name not in published), None):
        raise InvalidInput(
            f"{lost}: 'audit': True writes to branches that no asset publishes; add published({lost}, key=...), or "
            "leave out 'audit'"
        )


def shared_reason(first: TableAsset, second: TableAsset) -> str | None:
    """Why two assets must not share a table; None if they may: one publishes the other, or both name the table and
    neither replaces its rows."""
    if any(one.audits and other.metadata.get("publishes") == one.name for one, other in permutations((first, second))):
        return None
    if not all("table" in table.metadata for table in (first, second)):
        return "their keys join to one name; name another by metadata={'table': 'db.name'}"
    if replacing := next((table for table in (first, second) if table.replaces), None):
        return (
            f"{replacing.name} replaces the rows of the other; give each a table of its own, or let both declare a "
            "'write' that adds to it: 'append', 'upsert' or 'merge'"
        )
    return None


# --- private ----------------------------------------------------------------------------------------------------------


def _is_table(definition: dg.AssetsDefinition, key: dg.AssetKey, io_manager_key: str) -> bool:
    output: Any = definition.node_def.output_def_named(definition.get_output_name_for_asset_key(key))
    declares = sorted(OF_ASSETS.intersection(definition.metadata_by_key.get(key) or {}))
    if declares and not output.dagster_type.is_nothing and _is_bound_to_ours(definition, output) is False:
        raise InvalidInput(
            f"{key.to_user_string()}: metadata {declares[0]!r} declares a table, and the asset's IO manager "
            f"{output.io_manager_key!r} is not a LakeIOManager, so that its rows would go elsewhere; give it one"
        )
    if declares:
        return True
    if output.dagster_type.is_nothing:
        return LAKE in definition.required_resource_keys
    is_ours = _is_bound_to_ours(definition, output)
    return bool(output.io_manager_key == io_manager_key) if is_ours is None else is_ours


def _is_bound_to_ours(definition: dg.AssetsDefinition, output: Any) -> bool | None:
    """Whether the IO manager that a definition brings for an output is a `LakeIOManager`; None if it brings none."""
    bound: Any = definition.resource_defs.get(output.io_manager_key)
    return None if bound is None else issubclass(getattr(bound, "configurable_resource_cls", object), LakeIOManager)


def _refuse_unknown_lineage(tables: Iterable[TableAsset], assets: Iterable[Any]) -> None:
    """Raise `InvalidInput` for a declared lineage from an asset that is neither upstream nor among the assets."""
    keys = {key for asset in assets for key in getattr(asset, "keys", ())}
    for table in tables:
        if table.publishes:
            continue  # Its metadata are those of the asset that wrote the rows.
        upstream = table.definition.asset_deps[table.key]
        for name in upstream_of(table.metadata.get("lineage")):
            if dg.AssetKey.from_user_string(name) not in keys | upstream:
                shown = ", ".join(sorted(key.to_user_string() for key in upstream)) or "none"
                raise InvalidInput(
                    f"{table.name}: lineage names the asset {name!r}, which is not upstream; there are {shown}. Add it "
                    "by deps=[...], or correct the name"
                )


def _refuse_shared(tables: list[TableAsset]) -> None:
    """Raise `InvalidInput` where jobs of two assets have one name,
    or two assets one table that one of them replaces."""
    by_name: dict[tuple[str, str], list[TableAsset]] = {}
    identified: dict[str, TableAsset] = {}
    for table in tables:
        name = table_name(table.key, table.metadata, database="")
        by_name.setdefault((table.lake_key, name), []).append(table)
        if (other := identified.setdefault(table.identifier, table)) is not table:
            raise InvalidInput(
                f"{other.name} and {table.name}: the jobs and steps of both are called {table.identifier}; rename one"
            )
    for (_, name), sharing in by_name.items():
        for first, second in combinations(sharing, 2):
            if reason := shared_reason(first, second):
                raise InvalidInput(f"{first.name} and {second.name} are one table, {name.removeprefix('.')}: {reason}")
