"""Sensors: they read metadata only, start no JVM, and say why when they do nothing.

A sensor's cursor is JSON: for each asset the snapshot it last looked at.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow.compute as pc

from lakeformat.errors import LakeError
from pipelines.jobs import MAINTAIN
from pipelines.maintenance import (
    LOW_PRIORITY,
    TABLE_TAG,
    TASK_TAG,
    Maintain,
    Upkeep,
    first_to_keep,
    in_flight,
    reads,
)
from pipelines.tables import TABLE_ASSETS, table_of
from resources.lake import LakeResource

COMPACTION = "compact"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about one table: ask for a run, or not, and why. `seen` is what the cursor remembers."""

    why: str
    run: dg.RunRequest | None = None
    seen: int | None = None


@dg.sensor(
    jobs=list(MAINTAIN.values()),
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Asks for compaction of a table when a partition has too many small files or too many deleted rows.",
)
def compaction(context: dg.SensorEvaluationContext, lake: LakeResource, upkeep: Upkeep) -> dg.SensorResult:
    def judge(name: str, table: Any, seen: int | None) -> Verdict:
        latest = latest_write(table, seen)
        if latest is None:
            return Verdict(f"nobody has written since snapshot {seen}", seen=seen)
        small, share = worst_partition(table)
        found = f"{small} small files and {share:.0%} deleted rows in a partition"
        if small < upkeep.max_small_files and share < upkeep.max_deleted_share:
            allowed = f"{upkeep.max_small_files} and {upkeep.max_deleted_share:.0%} allowed"
            return Verdict(f"at most {found}, {allowed}", seen=latest)
        if busy := in_flight(context.instance, name):
            return Verdict(f"{found}, but run {busy.run_id[:8]} is at work", seen=seen)
        run = _request(name, COMPACTION, f"compact:{table.name}:{latest}", Maintain(compact=True))
        return Verdict(found, run, seen=latest)

    return _each_table(context, lake, judge)


@dg.sensor(
    jobs=list(MAINTAIN.values()),
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Asks for expiry when snapshots are too many or too old, and no run in flight reads them.",
)
def snapshot_expiry(context: dg.SensorEvaluationContext, lake: LakeResource, upkeep: Upkeep) -> dg.SensorResult:
    def judge(name: str, table: Any, seen: int | None) -> Verdict:
        snapshots = table.snapshots()
        if not snapshots:
            return Verdict("no snapshot yet")
        now_ms = int(time.time() * 1000)
        read = reads(context.instance, name, table)
        ids = [each.id for each in snapshots]
        keep_from = first_to_keep(snapshots, upkeep, read, now_ms)
        if keep_from == ids[0]:
            unprotected = first_to_keep(snapshots, upkeep, (), now_ms)
            oldest = next((each for each in ids if each in read), None)
            held = f"; a run in flight reads snapshot {oldest}" if unprotected != keep_from else ""
            return Verdict(f"{len(snapshots)} snapshots, none to expire{held}")
        if busy := in_flight(context.instance, name):
            return Verdict(f"snapshots before {keep_from} can go, but run {busy.run_id[:8]} is at work")
        run = _request(name, "expire", f"expire:{table.name}:{ids[0]}:{keep_from}", Maintain(expire=True))
        return Verdict(f"{ids.index(keep_from)} snapshots before {keep_from} can go", run, seen=keep_from)

    return _each_table(context, lake, judge)


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Reports what other engines and programs committed to our tables, as observations of the assets.",
)
def foreign_commits(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.SensorResult:
    seen = json.loads(context.cursor or "{}")
    events: list[dg.AssetObservation] = []
    reasons = []
    for name, definition in TABLE_ASSETS.items():
        table, problem = _open(lake, name)
        if table is None:
            reasons.append(f"{name}: {problem}")
            continue
        found = snapshots_after(table, seen.get(name, 0))
        if found:
            seen[name] = found[-1].id
        for each in found:
            if "dagster/run_id" not in each.properties:
                events.append(dg.AssetObservation(definition.key, metadata=_foreign(table.name, each)))
        reasons.append(f"{name}: {len(found)} new snapshots")
    result = dg.SensorResult(asset_events=events, cursor=json.dumps(seen))
    return result if events else dg.SensorResult(skip_reason="; ".join(reasons), cursor=json.dumps(seen))


follow_upstream = dg.AutomationConditionSensorDefinition(
    "follow_upstream",
    target=dg.AssetSelection.all(),
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Runs downstream partitions after any of their upstream partitions has changed, however old.",
)

SENSORS = [compaction, snapshot_expiry, foreign_commits, follow_upstream]


def latest_write(table: Any, after: int | None) -> int | None:
    """The newest snapshot after `after` that is not a compaction of ours; None if there is none."""
    found = [each.id for each in snapshots_after(table, after or 0) if each.properties.get(TASK_TAG) != COMPACTION]
    return found[-1] if found else None


def snapshots_after(table: Any, after: int) -> list[Any]:
    """The snapshots newer than the snapshot `after`, oldest first; one small read where there is none. All that are left,
    where that one has expired."""
    current = table.scan().snapshot
    return table.snapshots(after) if current and current.id != after else []


def worst_partition(table: Any) -> tuple[int, float]:
    """The number of small files in the partition that has most of them, and the share of deleted rows in the one where it
    is largest, from metadata alone."""
    partitions = table.inspect.partitions()
    small = pc.max(partitions["small_file_count"]).as_py() or 0
    share = pc.max(pc.divide(partitions["deleted_row_count"].cast("double"), partitions["row_count"])).as_py() or 0.0
    return small, share


def _each_table(
    context: dg.SensorEvaluationContext, lake: LakeResource, judge: Callable[[str, Any, int | None], Verdict]
) -> dg.SensorResult:
    """Judge every table; one that cannot be read is reported and does not keep the others from being looked at."""
    seen: dict[str, int] = json.loads(context.cursor or "{}")
    runs: list[dg.RunRequest] = []
    reasons: list[str] = []
    for name in TABLE_ASSETS:
        table, problem = _open(lake, name)
        if table is None:
            reasons.append(f"{name}: {problem}")
            continue
        try:
            verdict = judge(name, table, seen.get(name))
        except LakeError as error:
            context.log.warning(f"{name}: {error}")
            reasons.append(f"{name}: {error}")
            continue
        reasons.append(f"{name}: {verdict.why}")
        if verdict.run:
            runs.append(verdict.run)
        if verdict.seen is not None:
            seen[name] = verdict.seen
    if runs:
        context.log.info("; ".join(reasons))
        return dg.SensorResult(run_requests=runs, cursor=json.dumps(seen))
    return dg.SensorResult(skip_reason="; ".join(reasons), cursor=json.dumps(seen))


def _open(lake: LakeResource, name: str) -> tuple[Any, str]:
    table = table_of(lake, name).name
    try:
        return (lake.lake.table(table), "") if lake.lake.exists(table) else (None, "not there yet")
    except LakeError as error:
        return None, str(error)


def _request(name: str, task: str, run_key: str, config: Maintain) -> dg.RunRequest:
    return dg.RunRequest(
        job_name=MAINTAIN[name].name,
        run_key=run_key,
        run_config=dg.RunConfig(ops={f"upkeep_{name}": config}),
        tags={**LOW_PRIORITY, TABLE_TAG: name, TASK_TAG: task},
    )


def _foreign(table: str, snapshot: Any) -> Mapping[str, Any]:
    found = {
        "dagster/table_name": table,
        "lake/snapshot_id": snapshot.id,
        "lake/snapshot_kind": snapshot.kind,
        "lake/committed_at": dg.MetadataValue.timestamp(snapshot.timestamp_ms / 1000),
        "dagster/row_count": snapshot.total_rows,
        "lake/operation_id": snapshot.operation_id,
    }
    return {name: value for name, value in found.items() if value is not None}
