"""`external_tables(lake)`: tables that other programs write, as assets that Dagster observes; and how fresh tables are,
whoever writes them."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg

from lakeformat import clock
from lakeformat.dagster.asset_table import as_dagster_failures, column_schema, specs_of
from lakeformat.dagster.declaration import AssetTable, check_table_name, declared
from lakeformat.dagster.fields import require
from lakeformat.dagster.lake import LAKE_FORM, LakeResource
from lakeformat.dagster.markdown import id_text
from lakeformat.dagster.measures import measures
from lakeformat.dagster.partition_keys import columns_of, has_windows
from lakeformat.dagster.sensors import KEEPS_ROWS
from lakeformat.dagster.tables import listed, tables_of
from lakeformat.errors import InvalidInput, UnsupportedFeature

RESOURCE = "lake/resource"  # Metadata of an external table: the resource that reads it.


def external_tables(
    lake: LakeResource,
    tables: Sequence[str] | None = None,
    *,
    cron: str | None = "*/5 * * * *",
    group: str | None = None,
    resource: str = "lake",
    partitions_def: dg.PartitionsDefinition | None = None,
    partition_by: Any = None,
) -> list[dg.SourceAsset]:
    """One observable asset per table, with the key [db, name]; read it as an input by `AssetIn(key=["db", "name"])` and
    `LakeIOManager`.

    An observation records the table's snapshot as the data version, so that downstream assets see changes. With
    `partitions_def`, each partition has a data version of its own, which changes when its files do (a compaction
    counts), and a downstream run reads the partitions that it maps to.

    Args:
        lake: The warehouse, where `tables` are looked up if no names are given.
        tables: Names "db.name"; by default all tables that exist now.
        cron: When to observe, by the repository's automation sensor; None: on request only.
        resource: The name of the repository's resource that observes the tables, a `LakeResource`.
        partitions_def: The partitions of each of `tables`.
        partition_by: How they map to columns, as in an asset's metadata: `{"date": "day"}`.

    Raises `InvalidInput` for one of `partitions_def` and `partition_by` without the other.
    """
    if (partitions_def is None) != (partition_by is None):
        raise InvalidInput(
            "external_tables: partitions_def and partition_by go together: the partitions, and the columns that they "
            "are, e.g. partition_by={'date': 'day'}"
        )
    require("lake", lake, LakeResource, LAKE_FORM)
    if isinstance(tables, str):
        raise InvalidInput(f"tables is the text {tables!r}; give a list of names, as in ['shop.orders']")
    if tables is not None:
        names = list(tables)
        for name in names:
            require("the name of a table", name, str, "it as text, as in 'shop.orders'")
            check_table_name(name)
            if "." not in name:
                raise InvalidInput(f"tables has {name!r}; give the whole name, 'db.{name}'")
        if len(set(names)) < len(names):
            raise InvalidInput(f"tables={names} names a table twice; name each once")
    names = lake.lake.tables() if tables is None else names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # Of `observable_source_asset`.
        return [_external(name, cron, group, resource, partitions_def, partition_by) for name in names]


def freshness_checks(
    assets: Iterable[Any], max_age: timedelta, *, io_manager_key: str = "io_manager"
) -> list[dg.AssetChecksDefinition]:
    """The check `fresh` of each table among `assets`, `external_tables` too: it fails if rows of the table last changed
    more than `max_age` ago, whoever changed them. It reads the metadata of the newest snapshots, not Dagster's events.
    `io_manager_key`: see `tables_of`.
    """
    if not isinstance(max_age, timedelta) or max_age <= timedelta(0):
        raise InvalidInput(f"max_age={max_age!r}: give a datetime.timedelta above 0")
    assets = listed(assets)
    tables = tables_of(assets, io_manager_key=io_manager_key).values()
    declarations = {table.key: (table.lake_key, table.metadata) for table in tables if not table.audits}
    declarations |= {
        asset.key: (str(asset.raw_metadata[RESOURCE]), asset.raw_metadata)
        for asset in assets
        if isinstance(asset, dg.SourceAsset) and RESOURCE in asset.raw_metadata
    }
    return [_freshness_check(key, max_age, resource, metadata) for key, (resource, metadata) in declarations.items()]


# --- private ----------------------------------------------------------------------------------------------------------


def _freshness_check(
    key: dg.AssetKey, max_age: timedelta, resource: str, declared: Mapping[str, Any]
) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=key,
        name="fresh",
        description=f"Rows of the table changed less than {max_age} ago.",
        required_resource_keys={resource},
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        lake: LakeResource = getattr(context.op_execution_context.resources, resource)
        with as_dagster_failures(key, []):
            table = lake.lake.table(lake.table_name(key, declared))
            changed = (snapshot for snapshot in reversed(table.snapshots()) if snapshot.kind not in KEEPS_ROWS)
            newest = next(changed, None)
        if newest is None:
            return dg.AssetCheckResult(passed=False, description=f"no row of {table.name} was ever written")
        age = timedelta(milliseconds=clock.now_ms() - newest.timestamp_ms)
        hours = age / timedelta(hours=1)
        return dg.AssetCheckResult(
            passed=age <= max_age,
            description=f"{table.name} last changed {hours:,.1f} hours ago",
            metadata={
                "dagster/last_updated_timestamp": dg.TimestampMetadataValue(newest.timestamp_ms / 1000),
                "lake/snapshot_id": id_text(newest.id),
            },
        )

    return check


def _external(
    name: str,
    cron: str | None,
    group: str | None,
    resource: str,
    partitions_def: dg.PartitionsDefinition | None,
    partition_by: Any,
) -> dg.SourceAsset:
    key = dg.AssetKey(name.split("."))
    by = {} if partition_by is None else {"partition_by": partition_by}
    declared_metadata = {"table": name, **by}
    declared(key, name, partitions_def, declared_metadata)  # Refuses what is misspelt.

    @dg.observable_source_asset(
        key=key,
        group_name=group,
        metadata={**declared_metadata, "dagster/table_name": name, RESOURCE: resource},
        partitions_def=partitions_def,
        description=f"The table {name}, which others write.",
        automation_condition=None if cron is None else dg.AutomationCondition.on_cron(cron),
        required_resource_keys={resource},
    )
    def observe(context: dg.OpExecutionContext) -> dg.ObserveResult | dg.DataVersionsByPartition:
        lake: LakeResource = getattr(context.resources, resource)
        with as_dagster_failures(key, []):
            table = lake.lake.table(name)
            snapshot = table.scan().snapshot
            if partitions_def is not None:
                to = declared(key, name, partitions_def, declared_metadata)
                return dg.DataVersionsByPartition(_versions(table, to, context.instance))
        metadata: dict[str, Any] = {
            "dagster/uri": table.uri,
            "dagster/storage_kind": table.format,
            "dagster/column_schema": column_schema(table.schema),
            **({"lake/comment": table.schema.comment} if table.schema.comment else {}),
        }
        if snapshot is None:
            return dg.ObserveResult(metadata=metadata)
        metadata |= {
            "lake/snapshot_id": id_text(snapshot.id),
            "lake/snapshot_kind": snapshot.kind,
            **measures(table, snapshot),
        }
        return dg.ObserveResult(metadata=metadata, data_version=dg.DataVersion(str(snapshot.id)))

    return observe


def _versions(table: Any, to: AssetTable, instance: dg.DagsterInstance) -> dict[str, str]:
    """The data version of each partition that has files: when the newest of them was written, and their rows."""
    assert to.partitions is not None, "the table is observed by partition"
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        specs = specs_of(to, table.schema, to.partitions.get_partition_keys())
    columns = columns_of(to.partition_by or {})
    measured = None if has_windows(specs) else table.inspect.partition_measures(columns)
    if measured is None:
        raise UnsupportedFeature(
            f"{table.name}: partition_by={to.partition_by!r} is not by the table's partition columns "
            f"({', '.join(table.schema.partitioning.columns) or 'none'}), so that its partitions have no versions; "
            "observe it without partitions_def"
        )
    versions: dict[str, str] = {}
    for partition, several in specs.items():
        parts = [measured.get(tuple(spec[column] for column in columns)) for spec in several]
        if present := [part for part in parts if part]:
            times = max(part["last_modified_ms"] or 0 for part in present)
            versions[partition] = f"{times}-{sum(part['row_count'] or 0 for part in present)}"
    return versions
