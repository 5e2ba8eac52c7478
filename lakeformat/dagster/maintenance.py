"""`maintenance(assets)`: jobs, sensors and schedules that maintain the tables of a repository's assets;
`maintenance_of(lake, "raw.*")`: those that maintain all tables of a warehouse, whether or not they are assets."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Any

import dagster as dg
import pyarrow.compute as pc
from pydantic import Field

from lakeformat import clock
from lakeformat.dagster.asset_table import as_dagster_failures
from lakeformat.dagster.fields import KnownFields, require
from lakeformat.dagster.lake import LAKE_FORM, LakeResource
from lakeformat.dagster.markdown import cell, markdown_table, size_text, time_text
from lakeformat.dagster.sensors import compaction_sensor, expiry_sensor, worst_partition
from lakeformat.dagster.tables import TableAsset, refuse_unpublished, tables_of
from lakeformat.dagster.time_limit import each_in_time
from lakeformat.dagster.upkeep import (
    LOW_PRIORITY,
    TASK_TAG,
    Done,
    Maintained,
    Upkeep,
    compact,
    error_text,
    expire,
    first_to_keep,
    maintain_each,
    maintain_job,
    raise_failures,
    reads,
    runs_in_flight,
    sweep_job,
)
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.model.snapshot import Snapshot
from lakeformat.model.wording import count_text

SHOWN = 100  # The most tables on the page: the worst ones.
# Snapshots whose manifests are read for the bytes that they removed, of a table whose metadata does not have them.
MANIFESTS_READ = 10
NO_BREAK_SPACE = "\u00a0"
COMPACTIONS = ("compact", "replace")  # Kinds of snapshots.


class MaintainFleet(KnownFields, dg.Config):
    """A run of a fleet's maintenance. As the launchpad opens, it maintains all tables that need it."""

    tables: list[str] = Field(
        default=[], description="Names or patterns, e.g. `raw.orders` or `raw.*`; all tables of the fleet if empty."
    )
    dry_run: bool = Field(default=False, description="Only look at the tables, and report what they need.")
    looks_at_once: int = Field(default=16, ge=1, le=64, description="The tables that are looked at side by side.")
    look_seconds: float = Field(default=60.0, gt=0, description="The time limit of the look at one table.")
    at_once: int = Field(default=2, ge=1, le=16, description="The tables that are maintained side by side.")
    hours: float = Field(
        default=6.0, gt=0, description="After this long, the maintenance of no further table begins: the next run does."
    )


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a table needs, from its metadata alone: counts, and bytes of its files."""

    format: str
    size_bytes: int = 0
    small_files: int = 0
    deleted_rows: int = 0  # By delete files.
    snapshots_to_expire: int = 0
    bytes_to_win: int = 0  # Of deleted rows, estimated by their share, and of files that only snapshots to expire have.
    needs_compaction: bool = False
    compacted_ms: int | None = None  # Since 1970.
    oldest_snapshot_ms: int | None = None

    @property
    def needs_maintenance(self) -> bool:
        """Whether a limit of `Upkeep` is exceeded."""
        return self.needs_compaction or self.snapshots_to_expire > 0

    @property
    def rank(self) -> tuple[bool, int, int, int]:
        """How bad it is; the highest is maintained first."""
        return self.needs_maintenance, self.bytes_to_win, self.small_files, self.snapshots_to_expire


def maintenance(
    assets: Iterable[Any],
    *,
    upkeep: Upkeep | None = None,
    sweep_cron: str = "0 4 * * 0",
    timezone: str = "UTC",
    running: bool = True,
    io_manager_key: str = "io_manager",
) -> dg.Definitions:
    """Definitions that maintain the tables of `assets`, to be merged into a repository's definitions:

        defs = dg.Definitions.merge(dg.Definitions(assets=assets, resources={"lake": lake, ...}), maintenance(assets))

    They are: the job `maintain` (compaction, expiry), which takes the tables one after the other, each in the pool of
    its asset; the sensors `compaction` and `snapshot_expiry`, which request it when the limits of `upkeep` (by default
    `Upkeep()`) are exceeded; the job `sweep_orphans` and its schedule `sweep`, at `sweep_cron`. An asset whose metadata
    has `"maintenance": False` is left out. Sensors and schedule are running by default, unless `running` is False. All
    use the resource `lake`, a `LakeResource`, or those that assets name (metadata `lake`); the resource `upkeep` is
    included, and the launchpad can change it for a run. `io_manager_key`: see `tables_of`.
    """
    limits = _limits(upkeep)
    all_tables = tables_of(assets, io_manager_key=io_manager_key)
    refuse_unpublished(all_tables)
    tables = {name: asset for name, asset in all_tables.items() if asset.maintained}
    for table in tables.values():
        limits.of(table)  # What it declares is checked.
    maintain, sweep = maintain_job(tables), sweep_job(tables)
    status = dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED
    return dg.Definitions(
        jobs=[maintain, sweep],
        sensors=[compaction_sensor(tables, maintain, status), expiry_sensor(tables, maintain, status)],
        schedules=[
            dg.ScheduleDefinition(
                name="sweep",
                job=sweep,
                cron_schedule=sweep_cron,
                execution_timezone=timezone,
                default_status=dg.DefaultScheduleStatus.RUNNING if running else dg.DefaultScheduleStatus.STOPPED,
                description="Removes orphan files of every table.",
            )
        ],
        resources={"upkeep": limits},
    )


def maintenance_of(
    lake: LakeResource,
    tables: str | Sequence[str] = "*",
    *,
    assets: Iterable[Any] = (),
    upkeep: Upkeep | None = None,
    cron: str = "0 2 * * *",
    timezone: str = "UTC",
    running: bool = True,
    name: str = "fleet",
    resource: str = "lake",
    io_manager_key: str = "io_manager",
) -> dg.Definitions:
    """Definitions that maintain the tables of a warehouse whose names match `tables`, e.g. `"raw.*"` or `["raw.*",
    "shop.orders"]`, whether or not they are assets, and those that are created later:

        defs = dg.Definitions.merge(dg.Definitions(assets=assets, ...), maintenance_of(lake, "raw.*"))

    They are: the job `maintain_<name>` and the schedule `<name>_upkeep`, at `cron`; the asset `<name>`, whose
    observations are the page of the fleet; the resources `resource`, which is `lake`, and `<name>_upkeep`, the limits
    (by default `Upkeep()`).

    A run reads the metadata of all tables, some side by side and each within a time limit, then compacts and expires
    those that exceed a limit, the worst first. Tables that fail or hang do not stop the others; the run then fails at
    its end and names them. It removes no orphan files.

    Args:
        lake: The warehouse.
        tables: Patterns of full names, with `*`, `?` and `[...]`.
        assets: Assets whose tables may match: these tables keep the pool and the limits of their asset, which is
            observed; those with the metadata `"maintenance": False` are left out. Do not give them to `maintenance`
            too.
        upkeep: The limits.
        cron: When to run.
        timezone: Of `cron`.
        running: Whether the schedule is on from the start.
        name: The name of this fleet; a repository may have several.
        resource: The name of the repository's resource that is the warehouse.
        io_manager_key: See `tables_of`.
    """
    require("lake", lake, LakeResource, LAKE_FORM)
    require("resource", resource, str, "the name of the repository's resource, as text")
    patterns = [tables] if isinstance(tables, str) else list(tables)
    if not patterns or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise InvalidInput(f"tables={tables!r}: give patterns of table names, e.g. 'raw.*'")
    all_tables = tables_of(assets, io_manager_key=io_manager_key).values()
    table_assets = [asset for asset in all_tables if asset.lake_key == resource and not asset.audits]
    limits, key = _limits(upkeep), dg.AssetKey(name)
    for asset in table_assets:
        if asset.maintained:
            limits.of(asset)  # What it declares is checked.
    job = _job(name, key, patterns, table_assets, resource)
    shown = ", ".join(patterns)
    page = dg.AssetSpec(
        key,
        description=f"The maintenance of the tables {shown}: what they need, and what the last run did.",
        metadata={"lake/tables": shown},
    )
    schedule = dg.ScheduleDefinition(
        name=f"{name}_upkeep",
        job=job,
        cron_schedule=cron,
        execution_timezone=timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING if running else dg.DefaultScheduleStatus.STOPPED,
        description=f"Maintains the tables {shown}.",
    )
    resources = {resource: lake, f"{name}_upkeep": limits}
    return dg.Definitions(assets=[page], jobs=[job], schedules=[schedule], resources=resources)


def names_of(lake: Any, patterns: Sequence[str]) -> list[str]:
    """The names of the lake's tables that match a pattern, sorted."""
    namespaces = [namespace for namespace in lake.namespaces() if any(_may_hold(namespace, text) for text in patterns)]
    names = [name for namespace in namespaces for name in lake.tables(namespace)]
    return sorted({name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)})


def backlog_of(table: Maintained, runs: Iterable[dg.DagsterRun]) -> Backlog:
    """What a table needs while `runs` are in flight. Reads its metadata only."""
    opened = table.lake.lake.table(table.name)
    snapshots = opened.snapshots()
    if not snapshots:
        return Backlog(opened.format)
    partitions = opened.inspect.partitions()
    small, share = worst_partition(partitions)
    exceeds = small >= table.limits.max_small_files or share >= table.limits.max_deleted_share
    keep_from = first_to_keep(snapshots, table.limits, reads(runs, table.label, opened), clock.now_ms())
    expiring = [snapshot.id for snapshot in snapshots].index(keep_from)
    shares = pc.divide(partitions["deleted_row_count"].cast("double"), partitions["row_count"])
    deleted_bytes = pc.sum(pc.multiply(shares, partitions["size_bytes"])).as_py() or 0
    return Backlog(
        opened.format,
        size_bytes=pc.sum(partitions["size_bytes"]).as_py() or 0,
        small_files=pc.sum(partitions["small_file_count"]).as_py() or 0,
        deleted_rows=pc.sum(partitions["deleted_row_count"]).as_py() or 0,
        snapshots_to_expire=expiring,
        bytes_to_win=int(deleted_bytes) + _removed_bytes(opened, snapshots[1 : expiring + 1]),
        needs_compaction=exceeds and opened.compaction_plan().num_rows > 0,  # Of a few files there may be no join.
        compacted_ms=next((s.timestamp_ms for s in reversed(snapshots) if s.kind in COMPACTIONS), None),
        oldest_snapshot_ms=snapshots[0].timestamp_ms,
    )


# --- private ----------------------------------------------------------------------------------------------------------


def _limits(upkeep: Upkeep | None) -> Upkeep:
    require("upkeep", upkeep, (Upkeep, type(None)), "limits, as in Upkeep(max_snapshots=50)")
    return upkeep or Upkeep()


def _job(
    name: str, key: dg.AssetKey, patterns: Sequence[str], assets: Sequence[TableAsset], resource: str
) -> dg.JobDefinition:
    upkeep_key = f"{name}_upkeep"

    @dg.op(name=f"maintain_{name}_tables", out=dg.Out(dg.Nothing), required_resource_keys={resource, upkeep_key})
    def maintain(context: dg.OpExecutionContext, config: MaintainFleet) -> None:
        lake: LakeResource = getattr(context.resources, resource)
        begun_ms = clock.now_ms()
        with as_dagster_failures(key, []):
            names = names_of(lake.lake, patterns)
            if config.tables:
                names = [table for table in names if any(fnmatchcase(table, pattern) for pattern in config.tables)]
                if not names:
                    text = f"no table of the fleet matches {', '.join(config.tables)}; it is {', '.join(patterns)}"
                    raise InvalidInput(text)
        fleet = _maintained(names, lake, getattr(context.resources, upkeep_key), assets)
        page = _Page(context, key, fleet)
        page.look(fleet, config)
        seconds = (clock.now_ms() - begun_ms) / 1000
        page.report(f"Looked at {count_text(len(fleet), 'table')} in {seconds:,.1f} seconds")
        needy = page.needy()
        if needy and not config.dry_run:
            end_ms = begun_ms + timedelta(hours=config.hours) // timedelta(milliseconds=1)

            def steps(table: Maintained) -> Iterator[Done | None]:
                if page.backlogs[table.name].needs_compaction:
                    yield compact(context.run_id, table)
                if page.backlogs[table.name].snapshots_to_expire:
                    yield expire(context.instance, table)

            in_time = takewhile(lambda table: clock.now_ms() < end_ms, needy)
            page.done |= dict.fromkeys((table.name for table in needy), f"Not begun within {config.hours:g} hours")
            page.maintain(in_time, steps, config)
            seconds = (clock.now_ms() - begun_ms) / 1000
            page.report(f"Maintained {count_text(page.maintained, 'table')} in {seconds:,.1f} seconds")
        raise_failures(list(page.failures.values()))

    @dg.job(
        name=f"maintain_{name}",
        description=f"Compacts and expires those of the tables {', '.join(patterns)} that need it, the worst first.",
        tags={**LOW_PRIORITY, TASK_TAG: "fleet"},
        metadata={"lake/tables": ", ".join(patterns)},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        maintain()

    return job


class _Page:
    """What a run found and did, by table, and the observations that show it."""

    def __init__(self, context: dg.OpExecutionContext, key: dg.AssetKey, fleet: Sequence[Maintained]) -> None:
        self.context, self.key = context, key
        self.fleet = {table.name: table for table in fleet}
        self.backlogs: dict[str, Backlog] = {}
        self.done: dict[str, str] = {}
        self.maintained = 0
        self.failures: dict[str, tuple[Maintained, Exception]] = {}

    def look(self, tables: Sequence[Maintained], config: MaintainFleet) -> None:
        """Look at the tables side by side."""
        runs = runs_in_flight(self.context.instance)

        def work(table: Maintained, begin: Callable[[float], None]) -> Backlog:
            begin(config.look_seconds)
            return backlog_of(table, runs)

        for outcome in each_in_time(work, tables, config.looks_at_once):
            table = outcome.item
            if outcome.result is not None:
                self.backlogs[table.name] = outcome.result
                continue
            error = outcome.error
            text = (
                f"{table.name}: {error}" if isinstance(error, LakeError | TimeoutError) else f"{table.name}: {error!r}"
            )
            self.context.log.warning(text)
            self.failures[table.name] = (table, dg.Failure(text, allow_retries=False))
            self.done[table.name] = text

    def needy(self) -> list[Maintained]:
        """The tables that need maintenance, the worst first."""
        names = [name for name, backlog in self.backlogs.items() if backlog.needs_maintenance]
        return [self.fleet[name] for name in sorted(names, key=lambda name: self.backlogs[name].rank, reverse=True)]

    def maintain(
        self, tables: Iterable[Maintained], steps: Callable[[Maintained], Iterable[Done | None]], config: MaintainFleet
    ) -> None:
        """Maintain the tables, and look at them again."""
        maintained = []
        for table, result in maintain_each(self.context, tables, steps, config.at_once):
            if isinstance(result, Exception):
                self.failures[table.name] = (table, result)
                self.done[table.name] = error_text(table, result)
            else:
                self.done[table.name] = "; ".join(step.text for step in result) or "Nothing to do"
                maintained.append(table)
        self.maintained = len(maintained)
        self.look(maintained, config)

    def report(self, text: str) -> None:
        """Observe the fleet: its totals, and its worst tables."""
        backlogs = self.backlogs.values()
        needy = sum(backlog.needs_maintenance for backlog in backlogs)
        bytes_to_win = sum(backlog.bytes_to_win for backlog in backlogs)
        failed = f"; {count_text(len(self.failures), 'table')} failed" if self.failures else ""
        shown = f"; the worst {SHOWN} are shown" if len({*self.backlogs, *self.failures}) > SHOWN else ""
        sentence = (
            f"{text}: {count_text(needy, 'table')} {'needs' if needy == 1 else 'need'} maintenance, "
            f"{size_text(bytes_to_win)} to win{failed}{shown}"
        )
        metadata = {
            "lake/tables": len(self.fleet),
            "lake/tables_to_maintain": needy,
            "lake/tables_failed": len(self.failures),
            "lake/small_files": sum(backlog.small_files for backlog in backlogs),
            "lake/deleted_rows": sum(backlog.deleted_rows for backlog in backlogs),
            "lake/snapshots_to_expire": sum(backlog.snapshots_to_expire for backlog in backlogs),
            "lake/bytes_to_win": bytes_to_win,
            "lake/size_bytes": sum(backlog.size_bytes for backlog in backlogs),
            "lake/worst_tables": self._table(),
        }
        self.context.log.info(sentence)
        self.context.log_event(dg.AssetObservation(self.key, description=sentence, metadata=metadata))

    def _table(self) -> dg.MarkdownMetadataValue:
        """The tables that failed, then the others, the worst first."""
        ranked = sorted(self.backlogs, key=lambda name: self.backlogs[name].rank, reverse=True)
        names = [*self.failures, *(name for name in ranked if name not in self.failures)]
        rows = [
            [cell(name), *_cells(self.backlogs.get(name)).values(), cell(self.done.get(name, ""))]
            for name in names[:SHOWN]
        ]
        return markdown_table(["table", *_cells(Backlog("")), "this run"], rows)


def _cells(backlog: Backlog | None) -> dict[str, str]:
    """The numbers of a table's line, none of which breaks; empty if it could not be looked at."""
    shown = backlog or Backlog("")
    cells = {
        "format": shown.format,
        "small files": f"{shown.small_files:,}",
        "deleted rows": f"{shown.deleted_rows:,}",
        "snapshots to expire": f"{shown.snapshots_to_expire:,}",
        "bytes to win": size_text(shown.bytes_to_win),
        "size": size_text(shown.size_bytes),
        "last compaction (UTC)": time_text(shown.compacted_ms),
        "oldest snapshot (UTC)": time_text(shown.oldest_snapshot_ms),
    }
    return {name: text.replace(" ", NO_BREAK_SPACE) if backlog else "" for name, text in cells.items()}


def _maintained(
    names: Sequence[str], lake: LakeResource, upkeep: Upkeep, assets: Sequence[TableAsset]
) -> list[Maintained]:
    by_table = {asset.table(lake).name: asset for asset in assets}
    tables = []
    for name in names:
        asset = by_table.get(name)
        if asset is None or asset.maintained:
            tables.append(Maintained(name, lake, upkeep.of(asset) if asset else upkeep, asset))
    return tables


def _may_hold(namespace: str, pattern: str) -> bool:
    """Whether tables of a namespace may match the pattern. A star also stands for dots."""
    before, dot, _ = pattern.rpartition(".")
    return not dot or "*" in before or fnmatchcase(namespace, before)


def _removed_bytes(table: Any, snapshots: Sequence[Snapshot]) -> int:
    """The bytes of the files that these snapshots removed from the table, at least."""
    unknown = [snapshot.id for snapshot in snapshots if snapshot.bytes_removed is None]
    read = (table.snapshot(snapshot_id).bytes_removed for snapshot_id in unknown[:MANIFESTS_READ])
    return sum(snapshot.bytes_removed or 0 for snapshot in snapshots) + sum(removed or 0 for removed in read)
