"""Asset checks of tables: row counts against the snapshot, unique keys, partitions with rows, unchanged columns.

One step per table reads the key columns of the run's partitions, in this process; no Spark.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from lakeformat.dagster.asset_table import (
    audited_branch,
    column_schema,
    scan,
    specs_of,
)
from lakeformat.dagster.declaration import AssetTable, names_of, settled
from lakeformat.dagster.lake import LakeResource, origin_of
from lakeformat.dagster.measures import rows_by_key
from lakeformat.dagster.partition_keys import columns_of, has_windows
from lakeformat.dagster.tables import TableAsset, tables_of

ROWS, UNIQUE, PRESENT, COLUMNS = "row_count", "unique_key", "partition_present", "columns_unchanged"


def checks_for(assets: Iterable[Any], *, io_manager_key: str = "io_manager") -> list[dg.AssetChecksDefinition]:
    """Checks for each table among `assets`, one step per table: the row count equals the one in metadata; the columns
    are those of the previous run; each partition of the run has rows; and if the asset's metadata has `unique_key`, no
    two rows have the same key.

    The checks of an audited asset are blocking, and read the run's branch. They use the resource `lake`.
    `io_manager_key`: see `tables_of`.
    """
    return [_checks_of(asset) for asset in tables_of(assets, io_manager_key=io_manager_key).values()]


def _checks_of(asset: TableAsset) -> dg.AssetChecksDefinition:
    unique = list(names_of(asset.name, asset.metadata, "unique_key"))
    whole = asset.replaces
    partitioned = asset.partitions is not None and whole
    described = {
        ROWS: "As many rows are read as the snapshot's metadata counts."
        if whole
        else "No more rows are read than the snapshot's metadata counts before rows are merged.",
        **({UNIQUE: f"No two rows have the same {', '.join(unique)}."} if unique else {}),
        **({PRESENT: "Each partition of the run holds rows."} if partitioned else {}),
        COLUMNS: "The columns are those of the previous run.",
    }
    blocking = asset.audits
    specs = [
        dg.AssetCheckSpec(name, asset=asset.key, description=text, blocking=blocking)
        for name, text in described.items()
    ]

    @dg.multi_asset_check(name=f"check_{asset.identifier}", specs=specs)
    def check(context: dg.AssetCheckExecutionContext, lake: LakeResource) -> Iterator[dg.AssetCheckResult]:
        keys = keys_to_check(context, asset) if whole else None
        opened = lake.lake.table(asset.table(lake).name)
        table = settled(asset.table(lake), opened.schema.fields)
        branch = audited_branch(lake.lake, table, origin_of(context.op_execution_context, ""))
        opened = opened if branch is None else opened.branch(branch)
        read = unique or list(opened.schema.names[:1])
        selected, snapshot_id = scan(lake.lake, table, keys, columns=read, branch=branch)
        rows = selected.to_arrow()
        counted = counts_in_metadata(opened, table, keys)
        read, promised = rows.num_rows, sum(counted.values())
        agree = read == promised if whole else read <= promised
        yield _result(asset, ROWS, agree, rows_read=read, rows_counted=promised, snapshot_id=snapshot_id)
        if unique:
            repeated = repeated_keys(rows, unique)
            yield _result(asset, UNIQUE, repeated == 0, repeated_rows=repeated)
        if partitioned:
            empty = [key for key, count in counted.items() if count == 0]
            yield _result(asset, PRESENT, not empty, warn=True, empty_partitions=", ".join(empty))
        changes = column_changes(previous_columns(context, asset.key), column_schema(opened.schema))
        yield _result(asset, COLUMNS, not changes, warn=True, changes="; ".join(changes))

    return check


def keys_to_check(context: dg.AssetCheckExecutionContext, asset: TableAsset) -> list[str] | None:
    """The partitions of the run; in a run without partitions, all that were ever materialized; None for an
    unpartitioned table."""
    if asset.partitions is None:
        return None
    if context.has_partition_key or context.has_partition_key_range:
        return list(context.partition_keys)
    return sorted(context.instance.get_materialized_partitions(asset.key))


def counts_in_metadata(table: Any, of: AssetTable, keys: Sequence[str] | None) -> dict[str, int]:
    """The rows of each partition according to metadata; an unpartitioned table has the key ""."""
    counts = table.inspect.partitions()["row_count"]
    uncounted = counts.null_count > 0  # Files of other engines may have no counts.
    if keys is None:
        return {"": table.scan().count() if uncounted else sum(counts.to_pylist())}
    specs = specs_of(of, table.schema, keys)
    if not specs:
        return {}
    measures = table.inspect.partition_measures(list(next(iter(specs.values()))[0]))
    if has_windows(specs) or uncounted or measures is None:
        return rows_by_key(table, specs, columns_of(of.partition_by or {}))
    rows = {values: row["row_count"] for values, row in measures.items()}
    return {key: sum(rows.get(tuple(spec.values()), 0) for spec in several) for key, several in specs.items()}


def repeated_keys(rows: pa.Table, unique: Sequence[str]) -> int:
    """The number of rows whose key an earlier row has."""
    return rows.num_rows - rows.group_by(list(unique)).aggregate([]).num_rows


def previous_columns(context: dg.AssetCheckExecutionContext, asset: dg.AssetKey) -> dg.TableSchema | None:
    """The columns reported by the last materialization before this run."""
    last = 1 + (len(context.partition_keys) if context.has_partition_key_range else 1)
    for record in context.instance.fetch_materializations(asset, limit=last).records:
        if record.run_id != context.run.run_id and record.asset_materialization:
            entry = record.asset_materialization.metadata.get("dagster/column_schema")
            return entry.schema if isinstance(entry, dg.TableSchemaMetadataValue) else None
    return None


def column_changes(before: dg.TableSchema | None, now: dg.TableSchema) -> list[str]:
    """The differences as text; empty if there is no earlier run."""
    if before is None:
        return []
    old, new = ({column.name: column.type for column in schema.columns} for schema in (before, now))
    return [
        *(f"{name} is new" for name in new if name not in old),
        *(f"{name} is gone" for name in old if name not in new),
        *(f"{name} was {old[name]}, is {new[name]}" for name in new if name in old and old[name] != new[name]),
    ]


def _result(asset: TableAsset, name: str, passed: bool, warn: bool = False, **measures: Any) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset.key,
        check_name=name,
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN if warn else dg.AssetCheckSeverity.ERROR,
        metadata={key: value for key, value in measures.items() if value not in (None, "")},
    )
