"""Sensors. They read metadata only, start no JVM, and report why they do nothing.

A sensor's cursor has a line for each asset: the snapshot that it looked at last, as in `flights: 8`. That of
`foreign_commits` adds `, differs 5c1a2b9e` where the table is not as declared: which difference was reported.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat import clock
from lakeformat.codec.arrow import to_arrow
from lakeformat.dagster.asset_table import metadata_of, specs_of
from lakeformat.dagster.checks import declaration_event, declaration_finding
from lakeformat.dagster.declaration import SOURCE_TABLE, settled
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.markdown import id_text
from lakeformat.dagster.measures import measures, rows_by_key
from lakeformat.dagster.partition_keys import columns_of, has_windows, indexes_of
from lakeformat.dagster.tables import TableAsset, lake_keys, tables_of
from lakeformat.dagster.upkeep import (
    LOW_PRIORITY,
    MAINTAIN_STEP,
    TABLE_TAG,
    TASK_TAG,
    Maintain,
    Upkeep,
    first_to_keep,
    in_flight,
    reads,
    runs_in_flight,
)
from lakeformat.errors import LakeError
from lakeformat.model.snapshot import Snapshot
from lakeformat.model.wording import count_text

EVERY_SECONDS = 30
COMPACTION = "compact"
REASONS = 3  # The most tables in a skip reason.
MISSING = "not there yet"
_CURSOR_LINE = re.compile(r"^(.+): (\d+)(?:, differs ([0-9a-f]{8}))?$", re.MULTILINE)
KEEPS_ROWS = ("compact", "analyze", "replace")  # Kinds of snapshots.
FOREIGN_TAG = "lake/foreign"  # Of a materialization that another program made.


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one table: request a run or not, and why. `seen` is saved in the cursor. `is_news`: whether
    the reason is worth a place among those that a tick shows."""

    why: str
    run: dg.RunRequest | None = None
    seen: int | None = None
    is_news: bool = True


@dataclass(frozen=True, slots=True)
class Look:
    """A table that a sensor looks at: its retained snapshots, and the one that the sensor looked at last."""

    asset: TableAsset
    table: Any
    limits: Upkeep
    seen: int | None
    instance: dg.DagsterInstance


def compaction_sensor(
    assets: Mapping[str, TableAsset], job: dg.JobDefinition, status: dg.DefaultSensorStatus
) -> dg.SensorDefinition:
    """The sensor `compaction`, which requests runs of the job `maintain`."""

    def judge(look: Look) -> Verdict:
        table, seen, unchanged = look.table, look.seen, "nobody has written since the last look"
        latest = latest_write(table, seen)
        if latest is None:
            return Verdict(unchanged, seen=seen, is_news=False)
        small, share = worst_partition(table.inspect.partitions())
        reason = f"{count_text(small, 'small file')} and {share:.0%} deleted rows in a partition"
        if small < look.limits.max_small_files and share < look.limits.max_deleted_share:
            allowed = f"{look.limits.max_small_files} and {look.limits.max_deleted_share:.0%} allowed"
            return Verdict(f"at most {reason}, {allowed}", seen=latest)
        if not table.compaction_plan().num_rows:
            return Verdict(f"{reason}, but compaction would join none", seen=latest)
        if busy := in_flight(look.instance, look.asset):
            return Verdict(f"{reason}, but run {busy.run_id[:8]} is at work", seen=seen)
        run_key = f"compact:{table.name}:{latest}"
        return Verdict(
            reason,
            _request(look.asset, job, COMPACTION, run_key, Maintain(tables=[look.asset.name], compact=True)),
            seen=latest,
        )

    description = "Asks for compaction of a table when a partition has too many small files or too many deleted rows."
    return _sensor("compaction", description, assets, job, status, judge)


def expiry_sensor(
    assets: Mapping[str, TableAsset], job: dg.JobDefinition, status: dg.DefaultSensorStatus
) -> dg.SensorDefinition:
    """The sensor `snapshot_expiry`, which requests runs of the job `maintain`."""

    def judge(look: Look) -> Verdict:
        table, limits = look.table, look.limits
        snapshots = table.snapshots()
        if not snapshots:
            return Verdict("no snapshot yet", is_news=False)
        now_ms = clock.now_ms()
        read = reads(runs_in_flight(look.instance), look.asset.name, table)
        ids = [snapshot.id for snapshot in snapshots]
        keep_from = first_to_keep(snapshots, limits, read, now_ms)
        if keep_from == ids[0]:
            unprotected = first_to_keep(snapshots, limits, (), now_ms)
            oldest = next((known for known in ids if known in read), None)
            if unprotected == keep_from:
                return Verdict("no snapshot to expire", is_news=False)
            return Verdict(
                f"{count_text(len(snapshots), 'snapshot')}, none to expire; a run in flight reads snapshot {oldest}"
            )
        if busy := in_flight(look.instance, look.asset):
            return Verdict(
                f"{count_text(ids.index(keep_from), 'snapshot')} can go, but run {busy.run_id[:8]} is at work"
            )
        run_key = f"expire:{table.name}:{ids[0]}:{keep_from}"
        run = _request(look.asset, job, "expire", run_key, Maintain(tables=[look.asset.name], expire=True))
        return Verdict(f"{count_text(ids.index(keep_from), 'snapshot')} can go", run, seen=keep_from)

    description = "Asks for expiry when snapshots are too many or too old, and no run in flight reads them."
    return _sensor("snapshot_expiry", description, assets, job, status, judge)


def foreign_commits(
    assets: Iterable[Any],
    status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    *,
    at_most: int = 100,
    io_manager_key: str = "io_manager",
) -> dg.SensorDefinition:
    """The sensor `foreign_commits`, which reports commits of other engines and programs to the tables of `assets`.

    A commit that changed rows is a materialization of each partition that it changed, without a run, tagged
    `lake/foreign`, with the snapshot as data version: what is downstream becomes stale. Other commits, and those of
    partitions that the asset does not have, are observations.

    Where the declaration of an asset and its table differ (`table.alter()` elsewhere, or another declaration since the
    definitions were loaded), it reports the result of the check `as_declared`, once for each difference.

    At most `at_most` commits per table and tick are reported, the newest: on its first tick it may find a long history.
    It uses the resource `lake`, or those that assets name. `io_manager_key`: see `tables_of`.
    """
    all_tables = tables_of(assets, io_manager_key=io_manager_key)
    tables = {name: asset for name, asset in all_tables.items() if not asset.audits}

    @dg.sensor(
        name="foreign_commits",
        minimum_interval_seconds=EVERY_SECONDS,
        default_status=status,
        description="Reports what other engines and programs committed to our tables, as events of the assets.",
        required_resource_keys=lake_keys(tables.values()),
    )
    def observe(context: dg.SensorEvaluationContext, **_: Any) -> dg.SensorResult:
        # A direct call, as in a test, has the resources as arguments too.
        seen, differing = _read_cursor(context.cursor), _read_differing(context.cursor)
        events: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = []
        verdicts: dict[str, Verdict] = {}
        for name, asset in tables.items():
            lake = asset.lake(context.resources)
            table, problem = _open(lake, asset)
            if table is None:
                verdicts[name] = problem
                continue
            snapshots = snapshots_after(table, seen.get(name, 0))
            if snapshots:
                seen[name] = snapshots[-1].id
            foreign = [snapshot for snapshot in snapshots if "dagster/run_id" not in snapshot.properties]
            reported = foreign[max(0, len(foreign) - at_most) :]
            try:
                declaration = _declaration(lake, asset, table, differing)
                events += declaration
                events += _foreign_events(lake, asset, table, reported, context.instance)
            except LakeError as error:
                context.log.warning(f"{name}: {error}")
                verdicts[name] = Verdict(str(error))
                continue
            if len(foreign) > len(reported):
                context.log.info(f"{name}: the last {len(reported)} of {len(foreign)} foreign snapshots are reported")
            news = [
                "not as declared, see its check" if not event.passed else "declared otherwise" for event in declaration
            ]
            if foreign:
                news.append(
                    f"{count_text(len(foreign), 'foreign commit')} of {count_text(len(snapshots), 'new snapshot')}"
                )
            quiet = "no foreign commit" if snapshots else "no new snapshot"
            verdicts[name] = Verdict(", ".join(news) or quiet, is_news=bool(news))
        cursor = _cursor(seen, differing)
        if events:
            context.log.info(sentences(verdicts))
            return dg.SensorResult(asset_events=events, cursor=cursor)
        return dg.SensorResult(skip_reason=sentences(verdicts), cursor=cursor)

    return observe


def latest_write(table: Any, after: int | None) -> int | None:
    """The newest snapshot after `after` that is no compaction of ours; None if there is none."""
    ids = [
        snapshot.id
        for snapshot in snapshots_after(table, after or 0)
        if snapshot.properties.get(TASK_TAG) != COMPACTION
    ]
    return ids[-1] if ids else None


def snapshots_after(table: Any, after: int) -> list[Any]:
    """The snapshots after the snapshot `after`, oldest first; one small read if there are none. All retained ones if
    that one has expired."""
    current = table.scan().snapshot
    return table.snapshots(after) if current and current.id != after else []


def worst_partition(partitions: pa.Table) -> tuple[int, float]:
    """The most small files in any partition, and the largest share of deleted rows in any, of the result of
    `Table.inspect.partitions()`."""
    small = pc.max(partitions["small_file_count"]).as_py() or 0
    share = pc.max(pc.divide(partitions["deleted_row_count"].cast("double"), partitions["row_count"])).as_py() or 0.0
    return small, share


def _sensor(
    name: str,
    description: str,
    assets: Mapping[str, TableAsset],
    job: dg.JobDefinition,
    status: dg.DefaultSensorStatus,
    judge: Callable[[Look], Verdict],
) -> dg.SensorDefinition:
    """A sensor that judges every table. A table that cannot be read is reported, and the others are still judged."""

    @dg.sensor(
        name=name,
        job_name=job.name,  # By the job itself, Dagster warns of a beta parameter of its own as it attaches resources.
        minimum_interval_seconds=EVERY_SECONDS,
        default_status=status,
        description=description,
        required_resource_keys={"upkeep", *lake_keys(assets.values())},
    )
    def sensor(context: dg.SensorEvaluationContext, **_: Any) -> dg.SensorResult:
        upkeep: Upkeep = context.resources.upkeep
        seen: dict[str, int] = _read_cursor(context.cursor)
        verdicts: dict[str, Verdict] = {}
        for asset_name, asset in assets.items():
            table, problem = _open(asset.lake(context.resources), asset)
            if table is None:
                verdicts[asset_name] = problem
                continue
            try:
                verdict = judge(Look(asset, table, upkeep.of(asset), seen.get(asset_name), context.instance))
            except LakeError as error:
                context.log.warning(f"{asset_name}: {error}")
                verdicts[asset_name] = Verdict(str(error))
                continue
            verdicts[asset_name] = verdict
            if verdict.seen is not None:
                seen[asset_name] = verdict.seen
        if runs := [verdict.run for verdict in verdicts.values() if verdict.run]:
            context.log.info(sentences(verdicts))
            return dg.SensorResult(run_requests=runs, cursor=_cursor(seen))
        return dg.SensorResult(skip_reason=sentences(verdicts), cursor=_cursor(seen))

    return sensor


def _cursor(seen: Mapping[str, int], differing: Mapping[str, str] = MappingProxyType({})) -> str:
    lines = {name: f"{name}: {seen.get(name, 0)}" for name in {**seen, **differing}}
    return "\n".join(
        f"{line}, differs {differing[name]}" if name in differing else line for name, line in sorted(lines.items())
    )


def _read_cursor(cursor: str | None) -> dict[str, int]:
    return {match[1]: int(match[2]) for match in _CURSOR_LINE.finditer(cursor or "")}


def _read_differing(cursor: str | None) -> dict[str, str]:
    return {match[1]: match[3] for match in _CURSOR_LINE.finditer(cursor or "") if match[3]}


def _declaration(
    lake: LakeResource, asset: TableAsset, table: Any, differing: dict[str, str]
) -> list[dg.AssetCheckEvaluation]:
    """The result of `as_declared` if it is another than the one reported last, which `differing` has."""
    if SOURCE_TABLE in asset.metadata:
        return []
    finding = declaration_finding(lake, asset, table)
    is_quiet = finding.passed and not finding.metadata
    digest = "" if is_quiet else hashlib.sha256(finding.description.encode()).hexdigest()[:8]
    if digest == differing.get(asset.name, ""):
        return []
    if digest:
        differing[asset.name] = digest
    else:
        del differing[asset.name]
    return [declaration_event(asset, finding)]


def sentences(verdicts: Mapping[str, Verdict]) -> str:
    """In one line: the news of at most `REASONS` tables, first of those that runs are requested for, then for each
    other reason how many tables have it."""
    by_run = sorted(verdicts.items(), key=lambda item: item[1].run is None)
    news = [f"{name}: {verdict.why}" for name, verdict in by_run if verdict.is_news]
    quiet: dict[str, list[str]] = {}
    for name, verdict in verdicts.items():
        if not verdict.is_news:
            quiet.setdefault(verdict.why, []).append(name)
    more = [f"news of {count_text(len(news) - REASONS, 'other table')}"] if len(news) > REASONS else []
    rest = [f"{names[0] if len(names) == 1 else f'{len(names):,} tables'}: {why}" for why, names in quiet.items()]
    return "; ".join([*news[:REASONS], *more, *rest])


def _open(lake: LakeResource, asset: TableAsset) -> tuple[Any, Verdict]:
    table = asset.table(lake).name
    try:
        return (lake.lake.table(table) if lake.lake.exists(table) else None), Verdict(MISSING, is_news=False)
    except LakeError as error:
        return None, Verdict(str(error))


def _request(asset: TableAsset, job: dg.JobDefinition, task: str, run_key: str, config: Maintain) -> dg.RunRequest:
    return dg.RunRequest(
        job_name=job.name,
        run_key=run_key,
        run_config=dg.RunConfig(ops={MAINTAIN_STEP: config}),
        tags={**LOW_PRIORITY, TABLE_TAG: asset.name, TASK_TAG: task},
    )


def _foreign_events(
    lake: LakeResource, asset: TableAsset, table: Any, snapshots: Sequence[Snapshot], instance: dg.DagsterInstance
) -> list[dg.AssetMaterialization | dg.AssetObservation]:
    """The events of foreign snapshots, oldest first. The last one of each partition has its rows."""
    keys_of = _partitions_of(lake, asset, table, instance)
    described = metadata_of(table, settled(asset.table(lake), table.schema.fields), None)
    events: list[dg.AssetMaterialization | dg.AssetObservation] = []
    counted: set[str | None] = set()
    for snapshot in reversed(snapshots):
        changed = table.snapshot(snapshot.id)
        changes_rows = snapshot.kind not in KEEPS_ROWS and (changed.rows_added or changed.rows_removed)
        keys = keys_of(changed) if changes_rows else []
        measured = measures(table, snapshot) if not counted or not keys else {}
        metadata = {**described, **_foreign(snapshot), **measured}
        for key in reversed(keys):
            rows = {} if key is None or key in counted else _rows_of(lake, asset, table, key, snapshot)
            counted.add(key)
            events.append(
                dg.AssetMaterialization(
                    asset.key,
                    partition=key,
                    description=_sentence(changed, key),
                    metadata={**metadata, **rows},
                    tags={"dagster/data_version": str(snapshot.id), FOREIGN_TAG: "true"},
                )
            )
        if not keys:
            events.append(dg.AssetObservation(asset.key, description=_sentence(changed, None), metadata=metadata))
    return events[::-1]


def _partitions_of(
    lake: LakeResource, asset: TableAsset, table: Any, instance: dg.DagsterInstance
) -> Callable[[Snapshot], list[str | None]]:
    """What tells which of the asset's partitions a snapshot changed; None is the whole of an unpartitioned asset."""
    if asset.partitions is None:
        return lambda snapshot: [None]
    to = settled(asset.table(lake), table.schema.fields)
    if to.partition_by is None:
        return lambda snapshot: []
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        specs = specs_of(to, table.schema, asset.partitions.get_partition_keys())
    keys, columns = list(specs), columns_of(to.partition_by)
    names = table.schema.partitioning.names

    def changed(snapshot: Snapshot) -> list[str | None]:
        if has_windows(specs) or not set(columns) <= set(names):
            earlier = [older.id for older in table.snapshots() if older.id == snapshot.parent_id]
            rows = table.changes(earlier[0] if earlier else 0, snapshot.id, columns=list(columns)).to_arrow()
        else:
            values = [change.values for change in snapshot.partitions or () if change.rows_added or change.rows_removed]
            types = {name: to_arrow(table.schema.field(name).type) for name in columns}
            rows = pa.table(
                {name: pa.array([value[names.index(name)] for value in values], types[name]) for name in columns}
            )
        indexes = np.unique(indexes_of(specs, rows))
        return [keys[index] for index in indexes[indexes >= 0].tolist()]

    return changed


def _rows_of(lake: LakeResource, asset: TableAsset, table: Any, key: str, snapshot: Snapshot) -> dict[str, int]:
    to = settled(asset.table(lake), table.schema.fields)
    specs = specs_of(to, table.schema, [key])
    counts = rows_by_key(table, specs, columns_of(to.partition_by or {}), snapshot.id)
    return {"dagster/partition_row_count": counts[key]} if key in counts else {}


def _sentence(snapshot: Snapshot, key: str | None) -> str:
    changes = [
        f"{'+' if verb == 'added' else '-'}{count_text(count, 'row')}"
        for verb in ("added", "removed")
        if (count := getattr(snapshot, f"rows_{verb}"))
    ]
    where = "" if key is None else f"; partition {key} changed"
    return (
        f"Another program committed snapshot {snapshot.id} ({snapshot.kind}): "
        f"{', '.join(changes) or 'no row changed'}{where}"
    )


def _foreign(snapshot: Snapshot) -> Mapping[str, Any]:
    metadata = {
        "lake/snapshot_id": id_text(snapshot.id),
        "lake/snapshot_kind": snapshot.kind,
        "lake/committed_at": dg.MetadataValue.timestamp(snapshot.timestamp_ms / 1000),
        "lake/operation_id": snapshot.operation_id,
    }
    return {name: value for name, value in metadata.items() if value is not None}
