"""The assets of a repository that are tables, as maintenance, checks and reruns need them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from lakeformat.dagster.declaration import AssetTable, declared
from lakeformat.dagster.lake import LakeResource

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

    def table(self, lake: LakeResource) -> AssetTable:
        """The table that the asset fills."""
        return lake.declared(self.key, self.definition)


def pool_of(name: str) -> str:
    """The pool of all writers of an asset's table, unless the asset declares another."""
    return f"lake__{name}"


def tables_of(assets: Iterable[Any]) -> dict[str, TableAsset]:
    """The materializable assets by name, upstream ones first. Specs and external assets among `assets` are left out.
    Raises `InvalidInput` for an invalid declaration."""
    tables: dict[str, TableAsset] = {}
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition) and asset.is_executable and asset.is_materializable:
            for key in asset.keys:
                table = TableAsset(key, asset)
                declared(key, table.name, asset.partitions_def, table.metadata)
                tables[table.name] = table
    ordered: dict[str, TableAsset] = {}

    def visit(name: str) -> None:
        if name in tables and name not in ordered:
            table = tables[name]
            for upstream in sorted(key.to_user_string() for key in table.definition.asset_deps[table.key]):
                visit(upstream)
            ordered[name] = table

    for name in tables:
        visit(name)
    return ordered
