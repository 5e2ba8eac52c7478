"""Upkeep of tables: compaction, snapshot expiry and the orphan sweep, each as a low-priority step in the table's pool.

Upkeep changes no row, so it reports observations, not materializations: nothing downstream runs because of it.
"""

import json
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from assets.table import RETRY, pool_of
from lakeformat.errors import LakeError
from pipelines.tables import TABLE_ASSETS, table_of
from resources.asset_table import as_dagster_failures
from resources.io_manager import READS_TAG
from resources.lake import LakeResource

TABLE_TAG = "lake/table"
TASK_TAG = "lake/maintenance"
LOW_PRIORITY = {"dagster/priority": "-5"}
IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


class Upkeep(dg.ConfigurableResource):
    """When a table needs upkeep, and how much of its past is kept."""

    max_small_files: int = Field(
        default=8, description="Compact when a partition has this many files far below target."
    )
    max_deleted_share: float = Field(
        default=0.2, description="Compact when this share of a partition's rows is deleted by files of deletes."
    )
    max_snapshots: int = Field(default=100, description="Expire when there are more snapshots than this.")
    retain_snapshots: int = Field(default=20, description="Expiry leaves at least this many.")
    retain_hours: float = Field(default=24.0, description="Expire when a snapshot is older than this.")
    orphan_hours: float = Field(default=24.0, description="The sweep leaves files alone that are younger than this.")


class Maintain(dg.Config):
    """What to do to a table, in this order."""

    compact: bool = Field(default=False, description="Join the small files of each partition.")
    full: bool = Field(default=False, description="With `compact`: rewrite every partition that is not one file yet.")
    expire: bool = Field(default=False, description="Drop snapshots that `Upkeep` no longer keeps.")


def maintain_job(name: str) -> dg.JobDefinition:
    """The job `maintain_<name>`: one step, in the table's pool."""

    @dg.op(name=f"upkeep_{name}", pool=pool_of(name), retry_policy=RETRY, out=dg.Out(dg.Nothing))
    def maintain(context: dg.OpExecutionContext, config: Maintain, lake: LakeResource, upkeep: Upkeep) -> None:
        if config.compact:
            compact(context, lake, name, config.full)
        if config.expire:
            expire(context, lake, upkeep, name)

    @dg.job(
        name=f"maintain_{name}",
        description=f"Compacts the table of `{name}` and drops its old snapshots, as the configuration says.",
        tags={**LOW_PRIORITY, TASK_TAG: "maintain", TABLE_TAG: name},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        maintain()

    return job


def sweep_job() -> dg.JobDefinition:
    """The job `sweep_orphans`: one step for each table, in its pool."""

    def sweep_op(name: str) -> dg.OpDefinition:
        @dg.op(name=f"sweep_{name}", pool=pool_of(name), retry_policy=RETRY, out=dg.Out(dg.Nothing))
        def sweep(context: dg.OpExecutionContext, lake: LakeResource, upkeep: Upkeep) -> None:
            table = table_of(lake, name)
            if not lake.lake.exists(table.name):
                context.log.info(f"{table.name} is not there yet")
                return
            with as_dagster_failures(table.asset, []):
                before = datetime.now(UTC) - timedelta(hours=upkeep.orphan_hours)
                removed = lake.lake.table(table.name).remove_orphan_files(older_than=before)
            _observe(context, name, {TASK_TAG: "sweep", "lake/orphan_files_removed": len(removed)})

        return sweep

    @dg.job(
        name="sweep_orphans",
        description="Removes files that no snapshot refers to and that nobody can still be writing.",
        tags={**LOW_PRIORITY, TASK_TAG: "sweep"},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        for name in TABLE_ASSETS:
            sweep_op(name)()

    return job


def compact(context: dg.OpExecutionContext, lake: LakeResource, name: str, full: bool) -> None:
    """Join small files in one commit; a concurrent overwrite wins, and compaction is asked for again later."""
    table = table_of(lake, name)
    properties = {TASK_TAG: "compact", "dagster/run_id": context.run_id}
    with as_dagster_failures(table.asset, []):
        snapshot = lake.lake.table(table.name).compact(full=full, properties=properties)
    if snapshot is None:
        context.log.info(f"{table.name}: nothing to compact")
        return
    _observe(
        context,
        name,
        {
            TASK_TAG: "compact",
            "lake/snapshot_id": snapshot.id,
            "lake/files_added": snapshot.files_added,
            "lake/files_removed": snapshot.files_removed,
            "lake/bytes_added": snapshot.bytes_added,
            "lake/bytes_removed": snapshot.bytes_removed,
            "lake/commit_milliseconds": snapshot.milliseconds,
        },
    )


def expire(context: dg.OpExecutionContext, lake: LakeResource, upkeep: Upkeep, name: str) -> None:
    """Drop snapshots that are too many or too old, but none that a run in flight reads."""
    table = table_of(lake, name)
    opened = lake.lake.table(table.name)
    read = reads(context.instance, name, opened)
    with as_dagster_failures(table.asset, []):
        snapshots = opened.snapshots()
        if not snapshots:
            context.log.info(f"{table.name} has no snapshot")
            return
        keep_from = first_to_keep(snapshots, upkeep, read, int(time.time() * 1000))
        dropped = expire_before(opened, keep_from)
    _observe(context, name, {TASK_TAG: "expire", "lake/snapshots_dropped": dropped, "lake/oldest_snapshot": keep_from})


def in_flight(instance: dg.DagsterInstance, name: str) -> dg.DagsterRun | None:
    """A maintenance run of the table that is queued or running, if there is one."""
    runs = instance.get_runs(dg.RunsFilter(tags={TABLE_TAG: name}, statuses=IN_FLIGHT), limit=1)
    return runs[0] if runs else None


def reads(instance: dg.DagsterInstance, name: str, table: Any) -> frozenset[int]:
    """The snapshots of `table`, that of the asset `name`, that runs in flight read, or will read by their configuration."""
    found = set()
    for run in instance.get_runs(dg.RunsFilter(statuses=IN_FLIGHT)):
        for tag, value in run.tags.items():
            if tag.startswith(f"{READS_TAG}/") and table.name in (noted := json.loads(value)):
                found.add(int(noted[table.name]))
        if (pinned := _pinned(run, name, table)) is not None:
            found.add(pinned)
    return frozenset(found)


def _pinned(run: dg.DagsterRun, name: str, table: Any) -> int | None:
    """The snapshot that the configuration of a run pins the asset's table to, also while it waits in the queue."""
    at: Any = run.run_config
    for key in ("resources", "io_manager", "config", "read_at", name):
        at = (at or {}).get(key)
    pin = {key: value for key, value in (at or {}).items() if value is not None}
    if not pin:
        return None
    try:
        return int(table.scan(**pin).snapshot.id)
    except LakeError:  # That run will say that there is no such state.
        return None


def first_to_keep(snapshots: Sequence[Any], upkeep: Upkeep, read: Collection[int], now_ms: int) -> int:
    """The id of the oldest snapshot that stays, of `snapshots`, oldest first (their ids need not be in order).

    What the table was at any moment of the last `retain_hours` stays, unless that is more than `max_snapshots`; then a
    tenth more goes than must, so that the next commit does not ask again. Those of `read` and younger ones always stay.
    """
    since = now_ms - upkeep.retain_hours * 3_600_000
    young = max((n for n, each in enumerate(snapshots) if each.timestamp_ms <= since), default=0)
    many = len(snapshots) - upkeep.max_snapshots * 9 // 10 if len(snapshots) > upkeep.max_snapshots else 0
    first = max(0, min(max(young, many), len(snapshots) - max(1, upkeep.retain_snapshots)))
    held = [n for n, each in enumerate(snapshots) if each.id in read]
    return int(snapshots[min(first, *held)].id if held else snapshots[first].id)


def expire_before(table: Any, keep_from: int) -> int:
    """Drop the snapshots before `keep_from`; the number dropped. Commits that come meanwhile drop nothing more."""
    snapshots = table.snapshots()
    kept = snapshots[[each.id for each in snapshots].index(keep_from) :]
    return len(table.expire_snapshots(retain_last=len(kept), older_than=kept[0].timestamp_ms + 1).snapshots)


def _observe(context: dg.OpExecutionContext, name: str, metadata: dict[str, Any]) -> None:
    context.log_event(dg.AssetObservation(TABLE_ASSETS[name].key, metadata=metadata))
