"""The assets, and the table behind each."""

from collections.abc import Mapping

import dagster as dg

from assets import bookings, fleet, joined, marts, raw
from resources.asset_table import AssetTable
from resources.lake import LakeResource

DATABASE = "nyc"
ASSETS = dg.load_assets_from_modules([raw, fleet, joined, marts, bookings], include_specs=True)


def definitions_by_name() -> dict[str, dg.AssetsDefinition]:
    """The definition of each table's asset, by asset key; upstream assets first."""
    found = {a.key.to_user_string(): a for a in ASSETS if isinstance(a, dg.AssetsDefinition) and a.is_executable}
    ordered: dict[str, dg.AssetsDefinition] = {}

    def visit(name: str) -> None:
        if name in found and name not in ordered:
            for upstream in sorted(k.to_user_string() for k in found[name].asset_deps[found[name].key]):
                visit(upstream)
            ordered[name] = found[name]

    for name in found:
        visit(name)
    return ordered


TABLE_ASSETS: Mapping[str, dg.AssetsDefinition] = definitions_by_name()


def table_of(lake: LakeResource, name: str) -> AssetTable:
    """The table behind the asset `name`."""
    definition = TABLE_ASSETS[name]
    return lake.declared(definition.key, definition)


def named(partitions: dg.PartitionsDefinition | None) -> list[str]:
    """The assets that have these partitions."""
    return [name for name, asset in TABLE_ASSETS.items() if asset.partitions_def == partitions]


def replaces(asset: dg.AssetsDefinition) -> bool:
    """Whether a run replaces exactly its partitions; other tables gather rows by upsert or merge."""
    return str(asset.metadata_by_key[asset.key].get("write", "replace")) == "replace"


def replaced(names: list[str]) -> list[str]:
    """Those of the assets whose runs replace exactly their partitions."""
    return [name for name in names if replaces(TABLE_ASSETS[name])]
