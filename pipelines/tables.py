"""The assets, and the table behind each."""

from collections.abc import Iterable

import dagster as dg

from assets import bookings, fleet, joined, marts, raw
from lakeformat.dagster import tables_of

ASSETS = dg.load_assets_from_modules([raw, fleet, joined, marts, bookings], include_specs=True)
TABLES = tables_of(ASSETS)


def named(partitions: dg.PartitionsDefinition | None) -> list[str]:
    """The assets that have these partitions."""
    return [name for name, asset in TABLES.items() if asset.partitions == partitions]


def replaced(names: Iterable[str]) -> list[str]:
    """Those of the assets whose runs replace exactly their partitions; the others gather rows."""
    return [name for name in names if TABLES[name].replaces]
