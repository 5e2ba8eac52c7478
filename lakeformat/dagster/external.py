"""`external_tables(lake)`: tables that other programs write, as assets that Dagster observes."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from lakeformat.dagster.asset_table import as_dagster_failures, column_schema
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.markdown import id_text
from lakeformat.dagster.measures import measures


def external_tables(
    lake: LakeResource,
    tables: Sequence[str] | None = None,
    *,
    cron: str | None = "*/5 * * * *",
    group: str | None = None,
    resource: str = "lake",
) -> list[dg.SourceAsset]:
    """One observable asset per table, with the key [db, name]; read it as an input by `AssetIn(key=["db", "name"])` and
    `LakeIOManager`.

    An observation records the table's snapshot as the data version, so that downstream assets see changes.

    Args:
        lake: The warehouse, where `tables` are looked up if no names are given.
        tables: Names "db.name"; by default all tables that exist now.
        cron: When to observe, by the repository's automation sensor; None: on request only.
        resource: The name of the repository's resource that observes the tables, a `LakeResource`.
    """
    return [_external(name, cron, group, resource) for name in (lake.lake.tables() if tables is None else tables)]


def _external(name: str, cron: str | None, group: str | None, resource: str) -> dg.SourceAsset:
    key = dg.AssetKey(name.split("."))

    @dg.observable_source_asset(
        key=key,
        group_name=group,
        metadata={"table": name, "dagster/table_name": name},
        description=f"The table {name}, which others write.",
        automation_condition=None if cron is None else dg.AutomationCondition.on_cron(cron),
        required_resource_keys={resource},
    )
    def observe(context: dg.OpExecutionContext) -> dg.ObserveResult:
        lake: LakeResource = getattr(context.resources, resource)
        with as_dagster_failures(key, []):
            table = lake.lake.table(name)
            snapshot = table.scan().snapshot
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
