"""Asset checks of tables: the declaration against the table, row counts against the snapshot, unique keys, partitions
with rows, unchanged columns.

One step per table reads the key columns of the run's partitions once, in this process; no Spark. On a partitioned asset
each partition has its own evaluation, which Dagster shows, but of a run of several partitions does not make by itself.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dagster.asset_table import as_dagster_failures, audited_branch, column_schema, scan, specs_of
from lakeformat.dagster.declaration import (
    EVERY_COLUMN,
    OF_ASSETS,
    OVER_TABLE,
    SOURCE_TABLE,
    AssetTable,
    names_of,
    refuse_near,
    settled,
    unique_over,
)
from lakeformat.dagster.drift import differences, missing_columns, refusal
from lakeformat.dagster.fields import require
from lakeformat.dagster.identity import origin_of
from lakeformat.dagster.internals import check_target, check_targets
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.markdown import cell, id_text, markdown_table
from lakeformat.dagster.measures import rows_by_key
from lakeformat.dagster.partition_keys import columns_of, has_windows, indexes_of, sql_of
from lakeformat.dagster.tables import TableAsset, tables_of
from lakeformat.errors import NotFound
from lakeformat.model.wording import count_text

ROWS, UNIQUE, PRESENT, COLUMNS = "row_count", "unique_key", "partition_present", "columns_unchanged"
DECLARED = "as_declared"  # Of the table, not of a partition.
WARNINGS = (PRESENT, COLUMNS)
_AS_DECLARED = "The table is as the asset declares: format, key, partitions, properties, named columns."
SAMPLES = 5  # Repeated keys that an evaluation shows.
MOST_EVALUATIONS = 500  # Of a check in a run without partitions, which checks all of them.
MOST_NAMED = 20  # Partitions in a sentence.


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check for one partition; of an asset without partitions, for the key ""."""

    passed: bool
    description: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_warning: bool = False


Findings = dict[str, Finding]  # By partition.


def checks_for(assets: Iterable[Any], *, io_manager_key: str = "io_manager") -> list[dg.AssetChecksDefinition]:
    """Checks for each table among `assets`, one step per table, each of which may run alone: the row count equals the
    one in metadata; the columns are those of the previous run; the table is as the asset declares (format, key,
    partitions, properties, named columns); each partition of the run has rows; and if the asset's metadata has
    `unique_key`, no two rows of a partition (with `"unique_over": "table"`: of the table) have the same
    key.

    The checks of a partitioned asset are partitioned too: each partition of a run has its own result. A run without
    partitions checks all that were materialized. The checks of an audited asset are blocking, and read the run's
    branch. Checks that an asset has in its own step (`check_specs`) are left out. They use the resource `lake`.
    `io_manager_key`: see `tables_of`.
    """
    checks = (_checks_of(asset) for asset in tables_of(assets, io_manager_key=io_manager_key).values())
    return [check for check in checks if check is not None]


def check_specs(
    asset: Any, *, partitions_def: dg.PartitionsDefinition | None = None, metadata: Mapping[str, Any] | None = None
) -> list[dg.AssetCheckSpec]:
    """The checks of `checks_for`, to be made in the asset's own step,
    where a step of their own would be one process more:

        @dg.asset(partitions_def=DAILY, metadata=ORDERS, check_specs=check_specs("orders", partitions_def=DAILY,
        metadata=ORDERS)) def orders(context: dg.AssetExecutionContext, lake: LakeResource):
            yield lake.write(context, rows_of(context.partition_keys))  # Or: yield dg.Output(rows)
            yield from run_checks(context, lake)

    `asset` is the asset's key; `partitions_def` and `metadata` are the asset's own.
    """
    require("asset", asset, str | Sequence | dg.AssetKey, "the asset's key, as in 'orders'")
    key = dg.AssetKey.from_coercible(asset)
    refuse_near(f"{key.to_user_string()}: metadata", metadata or {}, OF_ASSETS)
    return _specs(key, partitions_def, metadata or {})


def run_checks(context: dg.AssetExecutionContext, lake: LakeResource) -> Iterator[Any]:
    """Run the checks of `check_specs` that the running asset has, on the run's partitions, after it has written.
    Dagster takes what this yields."""
    step = context.op_execution_context
    for key in context.selected_asset_keys:
        asset = TableAsset(key, context.assets_def)
        ours = {spec.name for spec in _specs(key, asset.partitions, asset.metadata)}
        specs = [spec for spec in asset.definition.check_specs if spec.asset_key == key and spec.name in ours]
        yield from _events(step, lake, asset, [spec for spec in specs if spec.key in step.selected_asset_check_keys])


def keys_to_check(context: dg.OpExecutionContext, asset: TableAsset) -> list[str]:
    """The partitions of the run; in a run without partitions, all that were ever materialized and still exist."""
    if context.has_partition_key or context.has_partition_key_range:
        return list(context.partition_keys)
    made = context.instance.get_materialized_partitions(asset.key)
    with dg.partition_loading_context(dynamic_partitions_store=context.instance):
        return [key for key in asset.partitions.get_partition_keys() if key in made] if asset.partitions else []


def counts_in_metadata(table: Any, of: AssetTable, keys: Sequence[str] | None) -> dict[str, int]:
    """The rows of each partition according to metadata; an unpartitioned table has the key ""."""
    counts = table.inspect.partitions()["row_count"]
    uncounted = counts.null_count > 0  # Files of other engines may have no counts.
    if keys is None:
        return {"": table.scan().count() if uncounted else pc.sum(counts).as_py() or 0}
    specs = specs_of(of, table.schema, keys)
    names = columns_of(of.partition_by or {})
    measured = None if has_windows(specs) or uncounted else table.inspect.partition_measures(names)
    if measured is None:
        return rows_by_key(table, specs, names)
    rows = {values: measures["row_count"] for values, measures in measured.items()}
    return {
        key: sum(rows.get(tuple(spec[name] for name in names), 0) for spec in several) for key, several in specs.items()
    }


def declaration_finding(lake: LakeResource, asset: TableAsset, opened: Any) -> Finding:
    """The result of the check `as_declared`, from the table's metadata alone: what the next run will do about a
    difference."""
    to = settled(asset.table(lake), opened.schema.fields)
    differing = list(differences(opened, to))
    refused = [one for one in differing if not (to.follows and one.calls)]
    lineage = [name for name in to.lineage or {} if name != EVERY_COLUMN]
    lacking = missing_columns(opened, to, (*names_of(asset.name, asset.metadata, "unique_key"), *lineage))
    metadata = {"change": dg.MetadataValue.md("\n\n".join(f"`{one.change}`" for one in differing))} if differing else {}
    if refused:
        return Finding(False, f"the next run is refused: {refusal(to, refused)}", metadata)
    if lacking:
        text = f"the asset names {', '.join(lacking)}, and {to.name} has {', '.join(opened.schema.names)}"
        return Finding(False, text, metadata, is_warning=True)
    if differing:
        return Finding(True, f"the next run changes {to.name}: {'; '.join(one.text for one in differing)}", metadata)
    return Finding(True, f"{to.name} is as the asset declares")


def declaration_event(asset: TableAsset, finding: Finding) -> dg.AssetCheckEvaluation:
    """The result of the check `as_declared` as an event without a run."""
    return dg.AssetCheckEvaluation(
        asset_key=asset.key,
        check_name=DECLARED,
        passed=finding.passed,
        severity=_severity(DECLARED, finding),
        description=finding.description,
        metadata=finding.metadata,
    )


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


# --- private ----------------------------------------------------------------------------------------------------------


def _checks_of(asset: TableAsset) -> dg.AssetChecksDefinition | None:
    in_step = {spec.name for spec in asset.definition.check_specs if spec.asset_key == asset.key}
    specs = [spec for spec in _specs(asset.key, asset.partitions, asset.metadata) if spec.name not in in_step]
    if not specs:
        return None

    @dg.multi_asset_check(
        name=f"check_{asset.identifier}", specs=specs, can_subset=True, required_resource_keys={asset.lake_key}
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[Any]:
        selected = [spec for spec in specs if spec.key in context.selected_asset_check_keys]
        step = context.op_execution_context
        yield from _events(step, asset.lake(step.resources), asset, selected)

    return check


def _specs(
    asset: dg.AssetKey, partitions: dg.PartitionsDefinition | None, metadata: Mapping[str, Any]
) -> list[dg.AssetCheckSpec]:
    name = asset.to_user_string()
    unique = ", ".join(names_of(name, metadata, "unique_key"))
    replaces = metadata.get("write", metadata.get("write_mode", "replace")) == "replace"
    is_partitioned = partitions is not None and not {"partition_by", "partition_expr"}.isdisjoint(metadata)
    over = "the table" if unique_over(name, metadata) == OVER_TABLE or not is_partitioned else "a partition"
    described = {
        ROWS: "As many rows are read as the snapshot's metadata counts."
        if replaces
        else "No more rows are read than the snapshot's metadata counts before rows are merged.",
        **({UNIQUE: f"No two rows of {over} have the same {unique}."} if unique else {}),
        **({PRESENT: "The partition holds rows."} if replaces and is_partitioned else {}),
        COLUMNS: "The columns are those of the previous run.",
        # A table that follows a database has the declaration of its beginning, and its runs refuse no other.
        **({} if SOURCE_TABLE in metadata else {DECLARED: _AS_DECLARED}),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # Of `partitions_def`.
        return [
            dg.AssetCheckSpec(
                check,
                asset=asset,
                description=text,
                blocking=bool(metadata.get("audit", False)),
                partitions_def=partitions if is_partitioned and check != DECLARED else None,
            )
            for check, text in described.items()
        ]


def _events(
    context: dg.OpExecutionContext, lake: LakeResource, asset: TableAsset, specs: Sequence[dg.AssetCheckSpec]
) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
    """The evaluations of the checks `specs` of an asset, and Dagster's output of each."""
    if not specs:
        return
    keys = keys_to_check(context, asset) if any(spec.partitions_def for spec in specs) else None
    is_of_partitions = context.has_partition_key or context.has_partition_key_range
    with as_dagster_failures(asset.key, keys or []):
        findings = _findings(context, lake, asset, {spec.name for spec in specs}, keys)
    targets = check_targets(context.instance, asset.key, keys or [])
    newest = context.instance.fetch_materializations(asset.key, limit=1).records
    for spec in specs:
        by_key = findings[spec.name]
        if keys is not None and spec.partitions_def is not None:
            # The page of a check shows the result that came last: one that failed, if there is one.
            shown = sorted(by_key, key=lambda key: not by_key[key].passed)
            for key in shown if is_of_partitions else shown[-MOST_EVALUATIONS:]:
                yield _evaluation(spec, by_key[key], targets.get(key), key)
        if spec.partitions_def is None or not is_of_partitions:
            whole = by_key[""] if spec.partitions_def is None else _together(by_key)
            yield _evaluation(spec, whole, check_target(newest[0]) if newest else None)
        yield dg.Output(None, context.assets_def.get_output_name_for_asset_check_key(spec.key))


def _evaluation(
    spec: dg.AssetCheckSpec, finding: Finding, target: Any, key: str | None = None
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=spec.asset_key,
        check_name=spec.name,
        passed=finding.passed,
        severity=_severity(spec.name, finding),
        description=finding.description,
        metadata=finding.metadata,
        target_materialization_data=target,
        blocking=spec.blocking,
        partition=key,
    )


def _severity(check: str, finding: Finding) -> dg.AssetCheckSeverity:
    is_warning = finding.is_warning or check in WARNINGS
    return dg.AssetCheckSeverity.WARN if is_warning else dg.AssetCheckSeverity.ERROR


def _findings(
    context: dg.OpExecutionContext, lake: LakeResource, asset: TableAsset, names: Set[str], keys: Sequence[str] | None
) -> dict[str, Findings]:
    """The results of the checks `names` of the partitions `keys`; None: of the whole table."""
    name = asset.table(lake).name
    if not lake.lake.exists(name):
        raise NotFound(
            f"{name} does not exist: nothing has been written yet, or the rows went to another IO manager than "
            "LakeIOManager (without an 'io_manager' among its resources, Dagster pickles them), or to that of another "
            f"lake than the resource {asset.lake_key!r}"
        )
    opened = lake.lake.table(name)
    table = settled(asset.table(lake), opened.schema.fields)
    branch = audited_branch(lake.lake, table, origin_of(context))
    opened = opened if branch is None else opened.branch(branch)
    reads_rows = bool(names - {COLUMNS, DECLARED})
    of_rows = _findings_of_rows(lake, asset, table, opened, branch, names, keys) if reads_rows else {}
    changes = column_changes(_previous_columns(context, asset.key), column_schema(opened.schema))
    columns = Finding(
        not changes,
        f"since the previous run, {'; '.join(changes)}" if changes else "the columns are those of the previous run",
        {"changes": "; ".join(changes)} if changes else {},
    )
    return {
        **of_rows,
        COLUMNS: dict.fromkeys([""] if keys is None else keys, columns),
        DECLARED: {"": declaration_finding(lake, asset, opened)},
    }


def _findings_of_rows(
    lake: LakeResource,
    asset: TableAsset,
    table: AssetTable,
    opened: Any,
    branch: str | None,
    names: Set[str],
    keys: Sequence[str] | None,
) -> dict[str, Findings]:
    specs = {"": ()} if keys is None else specs_of(table, opened.schema, keys)
    partition_columns = () if keys is None else columns_of(table.partition_by or {})
    unique = names_of(asset.name, asset.metadata, "unique_key") if UNIQUE in names else ()
    reads_all = bool(unique) and unique_over(asset.name, asset.metadata) == OVER_TABLE
    read = list(dict.fromkeys((*unique, *partition_columns))) or list(opened.schema.names[:1])
    selected, snapshot_id = scan(lake.lake, table, None if reads_all else keys, columns=read, branch=branch)
    rows = selected.to_arrow()
    indexes = np.zeros(rows.num_rows, np.int64) if keys is None else indexes_of(specs, rows)
    counts = np.bincount(indexes[indexes >= 0], minlength=len(specs))
    counted = counts_in_metadata(opened, table, keys)
    repeated = _repeated(rows.select(unique), indexes, reads_all) if unique else {}
    version = {} if snapshot_id is None else {"snapshot_id": id_text(snapshot_id)}
    name = table.name if branch is None else f"{table.name}.branch_{branch}"
    findings: dict[str, Findings] = {ROWS: {}, UNIQUE: {}, PRESENT: {}}
    for index, key in enumerate(specs):
        where = f"\nWHERE {sql_of(specs[key])}" if specs[key] else ""
        count, promised = int(counts[index]), counted.get(key, 0)
        agree = count == promised if asset.replaces else count <= promised
        query = {} if agree and count else _query(f"SELECT count(*) AS row_count\nFROM {name}{where}")
        findings[ROWS][key] = Finding(
            agree,
            f"reading gives {count_text(count, 'row')}, and metadata counts {promised:,}",
            {"rows_read": count, "rows_counted": promised, **version, **({} if agree else query)},
        )
        findings[PRESENT][key] = Finding(
            count > 0, count_text(count, "row"), {} if count else {"empty_partitions": key, **query}
        )
        if unique:
            number, samples = repeated.get(index, (0, None))
            listed = ", ".join(unique)
            within = "" if reads_all else where
            text = (
                f"SELECT {listed}, count(*) AS row_count\nFROM {name}{within}\nGROUP BY {listed}\nHAVING count(*) > 1"
            )
            others = "another row of the table" if reads_all or keys is None else "another row of the partition"
            findings[UNIQUE][key] = Finding(
                number == 0,
                f"{count_text(number, 'row')} of {count:,} {'has' if number == 1 else 'have'} the {listed} of {others}",
                {"repeated_rows": number, **({"sample_keys": samples, **_query(text)} if samples else {})},
            )
    return findings


def _repeated(keys: pa.Table, indexes: np.ndarray, over_table: bool) -> dict[int, tuple[int, dg.MarkdownMetadataValue]]:
    """For each partition (by its position in `indexes`) with repeated keys: how many of its rows have the key of an
    earlier row (with `over_table`: of another row, in any partition), and some of these keys."""
    names = [str(n) for n in range(keys.num_columns)]
    numbered = keys.rename_columns(names)
    if not over_table:
        numbered, names = numbered.append_column("partition", pa.array(indexes)), [*names, "partition"]
    if numbered.group_by(names).aggregate([]).num_rows == numbered.num_rows:
        return {}
    grouped = (
        numbered.append_column("row", pa.array(np.arange(keys.num_rows))).group_by(names).aggregate([("row", "list")])
    )
    grouped = grouped.filter(pc.greater(pc.list_value_length(grouped["row_list"]), 1)).combine_chunks()
    lists = grouped["row_list"].combine_chunks()
    partitions = indexes[np.asarray(pc.list_flatten(lists))]
    order = np.argsort(partitions, kind="stable")
    partitions, groups = partitions[order], np.asarray(pc.list_parent_indices(lists))[order]
    repeated: dict[int, tuple[int, dg.MarkdownMetadataValue]] = {}
    for index in np.unique(partitions[partitions >= 0]).tolist():
        codes = groups[slice(*np.searchsorted(partitions, [index, index + 1]))]
        distinct = np.unique(codes)
        sample = grouped.take(distinct[:SAMPLES])
        values = zip(*(sample.column(n).to_pylist() for n in range(keys.num_columns)), strict=True)
        counts = pc.list_value_length(sample["row_list"]).to_pylist()
        cells = [[*map(cell, value), f"{count:,}"] for value, count in zip(values, counts, strict=True)]
        number = len(codes) if over_table else len(codes) - len(distinct)
        repeated[index] = number, markdown_table([*keys.column_names, "rows"], cells)
    return repeated


def _together(findings: Findings) -> Finding:
    """The result for all partitions together."""
    failed = {key: finding for key, finding in findings.items() if not finding.passed}
    metadata: dict[str, Any] = {}
    for finding in sorted(findings.values(), key=lambda finding: finding.passed):
        for name, value in finding.metadata.items():
            if isinstance(value, int):
                metadata[name] = metadata.get(name, 0) + value
            else:
                metadata.setdefault(name, value)
    if "empty_partitions" in metadata:
        metadata["empty_partitions"] = _named(list(failed))
    if failed:
        metadata["failed_partitions"] = _named(list(failed))
    partitions = count_text(len(findings), "partition")
    text = f"{len(failed):,} of {partitions} failed: {_named(list(failed))}" if failed else f"{partitions} passed"
    return Finding(not failed, text if findings else "no partition has been materialized", metadata)


def _named(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - MOST_NAMED:,} more" if len(keys) > MOST_NAMED else ""
    return ", ".join(keys[:MOST_NAMED]) + more


def _query(text: str) -> dict[str, dg.MarkdownMetadataValue]:
    return {"query": dg.MetadataValue.md(f"```sql\n{text}\n```")}


def _previous_columns(context: dg.OpExecutionContext, asset: dg.AssetKey) -> dg.TableSchema | None:
    """The columns reported by the last run before this one that materialized the asset. Commits of other programs are
    reported without a run."""
    last = 1 + (len(context.partition_keys) if context.has_partition_key_range else 1)
    cursor, has_more = None, True
    while has_more:
        page = context.instance.fetch_materializations(asset, limit=last, cursor=cursor)
        for record in page.records:
            if record.run_id not in ("", context.run.run_id) and record.asset_materialization:
                entry = record.asset_materialization.metadata.get("dagster/column_schema")
                return entry.schema if isinstance(entry, dg.TableSchemaMetadataValue) else None
        cursor, has_more = page.cursor, page.has_more
    return None
