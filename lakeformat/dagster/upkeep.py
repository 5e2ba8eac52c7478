"""Upkeep of tables: compaction, snapshot expiry and the orphan sweep,
each in low-priority runs and in the table's pool.

An asset may override it for its table: `metadata={"maintenance": {"max_small_files": 1}}`, with the fields of `Upkeep`.
Upkeep changes no row, so it reports observations, not materializations: nothing downstream runs because of it.
"""

import difflib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any

import dagster as dg
from pydantic import Field

from lakeformat import clock
from lakeformat.dagster.asset_table import as_dagster_failures
from lakeformat.dagster.declaration import CURRENT, maintenance_limits
from lakeformat.dagster.fields import KnownFields, LaunchableFields
from lakeformat.dagster.internals import in_pool, leave_pool
from lakeformat.dagster.io_manager import pinned, snapshots_read
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.markdown import id_text, size_text
from lakeformat.dagster.measures import measures
from lakeformat.dagster.pictures import pictures
from lakeformat.dagster.tables import RETRY, TableAsset, lake_keys
from lakeformat.dagster.time_limit import each_in_time
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.model.wording import count_text

MAINTAIN, SWEEP = "maintain", "sweep_orphans"  # Jobs.
MAINTAIN_STEP, SWEEP_STEP = "maintain_tables", "sweep_tables"  # Their steps.
TABLE_TAG = "lake/table"
TASK_TAG = "lake/maintenance"
FAILURES = 5  # The most tables that the error of a run names.
LOW_PRIORITY = {"dagster/priority": "-5"}
IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


_BOUNDS: Mapping[str, tuple[float, float]] = {  # Of the fields of `Upkeep`.
    "max_small_files": (1, inf),
    "max_deleted_share": (0, 1),
    "max_snapshots": (1, inf),
    "retain_snapshots": (0, inf),
    "retain_hours": (0, inf),
    "orphan_hours": (0, inf),
    "minutes": (0, inf),
}


class Upkeep(LaunchableFields, dg.ConfigurableResource):
    """When a table needs upkeep, and how much of its history is kept."""

    max_small_files: int = Field(
        default=8, description="Compact when a partition has this many files far below target."
    )
    max_deleted_share: float = Field(
        default=0.2, description="Compact when this share of a partition's rows is deleted by delete files."
    )
    max_snapshots: int = Field(default=100, description="Expire when there are more snapshots than this.")
    retain_snapshots: int = Field(default=20, description="Expiry leaves at least this many.")
    retain_hours: float = Field(default=24.0, description="Expire when a snapshot is older than this.")
    orphan_hours: float = Field(default=24.0, description="The sweep leaves files alone that are younger than this.")
    minutes: float = Field(
        default=60.0, description="The maintenance of a table is given up after this long, and the next one begins."
    )

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        for name, (least, most) in _BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                limits = f"at least {least}" if most == inf else f"from {least} to {most}"
                raise InvalidInput(f"{type(self).__name__}: {name}={getattr(self, name)}; it must be {limits}")

    def of(self, asset: TableAsset) -> "Upkeep":
        """This upkeep with the asset's own overrides. Raises `InvalidInput`."""
        limits = maintenance_limits(asset.name, asset.metadata)
        try:
            return type(self)(**{**self._values(), **limits}) if limits else self
        except InvalidInput as error:
            raise InvalidInput(f"{asset.name}: maintenance: {error}") from error

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}


@dataclass(frozen=True, slots=True)
class Maintained:
    """A table that is maintained: its warehouse, its limits, and the asset that it belongs to, if there is one."""

    name: str
    lake: LakeResource
    limits: Upkeep
    asset: TableAsset | None = None

    @property
    def key(self) -> dg.AssetKey:
        """The asset's key; that which the asset would have, if there is none."""
        return self.asset.key if self.asset else dg.AssetKey(self.name.split("."))

    @property
    def label(self) -> str:
        """The key as text: `flights`, `sales/orders`."""
        return self.key.to_user_string()

    @property
    def pool(self) -> str | None:
        """The pool of the asset's runs."""
        return self.asset.pool if self.asset else None


@dataclass(frozen=True, slots=True)
class Done:
    """A step of a table's maintenance: what was done, in a sentence, and its metadata."""

    text: str
    metadata: Mapping[str, Any]


class Tables(KnownFields, dg.Config):
    """The tables of a run."""

    tables: list[str] = Field(
        default=[], description="Asset keys, e.g. `flights` or `sales/orders`; all tables if empty."
    )


class Maintain(Tables):
    """The steps of the tables' maintenance, in this order; if none is chosen, all."""

    compact: bool = Field(default=False, description="Join the small files of each partition.")
    full: bool = Field(default=False, description="With `compact`: rewrite every partition that is not one file yet.")
    expire: bool = Field(default=False, description="Drop snapshots that `Upkeep` no longer keeps.")


def maintain_job(assets: Mapping[str, TableAsset]) -> dg.JobDefinition:
    """The job `maintain`: one table after the other, each in its pool."""

    @dg.op(
        name=MAINTAIN_STEP,
        retry_policy=RETRY,
        out=dg.Out(dg.Nothing),
        required_resource_keys={"upkeep", *lake_keys(assets.values())},
    )
    def maintain(context: dg.OpExecutionContext, config: Maintain) -> None:
        is_all = not (config.compact or config.expire)

        def steps(table: Maintained) -> Iterator[Done | None]:
            if config.compact or is_all:
                yield compact(context.run_id, table, config.full)
            if config.expire or is_all:
                yield expire(context.instance, table)

        _in_turn(context, assets, config.tables, steps)

    @dg.job(
        name=MAINTAIN,
        description="Compacts tables and drops their old snapshots, as the configuration says: "
        "all tables, or those it names.",
        tags={**LOW_PRIORITY, TASK_TAG: "maintain"},
        metadata={"lake/tables": ", ".join(assets)},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        maintain()

    return job


def sweep_job(assets: Mapping[str, TableAsset]) -> dg.JobDefinition:
    """The job `sweep_orphans`: one table after the other, each in its pool."""

    @dg.op(
        name=SWEEP_STEP,
        retry_policy=RETRY,
        out=dg.Out(dg.Nothing),
        required_resource_keys={"upkeep", *lake_keys(assets.values())},
    )
    def sweep(context: dg.OpExecutionContext, config: Tables) -> None:
        def steps(table: Maintained) -> Iterator[Done]:
            removed = table.lake.lake.table(table.name).remove_orphan_files(
                older_than=timedelta(hours=table.limits.orphan_hours)
            )
            metadata = {TASK_TAG: "sweep", "lake/orphan_files_removed": len(removed)}
            text = f"Removed {count_text(len(removed), 'orphan file')}" if removed else "There are no orphan files"
            yield Done(text, metadata)

        _in_turn(context, assets, config.tables, steps)

    @dg.job(
        name=SWEEP,
        description="Removes files that no snapshot refers to and that nobody can still be writing.",
        tags={**LOW_PRIORITY, TASK_TAG: "sweep"},
        metadata={"lake/tables": ", ".join(assets)},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        sweep()

    return job


def maintain_each(
    context: dg.OpExecutionContext,
    tables: Iterable[Maintained],
    steps: Callable[[Maintained], Iterable[Done | None]],
    at_once: int = 1,
) -> Iterator[tuple[Maintained, list[Done] | Exception]]:
    """Do the steps of the tables' maintenance, each table's in its pool and within its time; gives what was done, or
    the error. The asset of a table, if it has one, is observed. What fails or hangs does not stop the others."""

    done: defaultdict[str, list[Done]] = defaultdict(list)  # Also of a table that fails later.

    def work(table: Maintained, begin: Callable[[float], None]) -> None:
        with in_pool(context, table.pool, table.name) if table.pool else nullcontext():
            begin(table.limits.minutes * 60)
            with as_dagster_failures(table.key, []):
                if not table.lake.lake.exists(table.name):
                    context.log.info(f"{table.name} is not there yet")
                    return
                for step in steps(table):
                    done[table.name] += [step] if step else []

    for outcome in each_in_time(work, tables, at_once):
        table, error = outcome.item, outcome.error
        if isinstance(error, TimeoutError):
            leave_pool(context, table.name)
            error = dg.Failure(f"{table.label}: {error}; its limit is Upkeep's minutes={table.limits.minutes:g}")
        if error is not None and not isinstance(error, dg.Failure | dg.RetryRequested):
            context.log.error(f"{table.label}: {error}", exc_info=error)
            error = dg.Failure(f"{table.label}: {type(error).__name__}: {error}")
        for step in list(done[table.name]):
            if table.asset:
                context.log_event(dg.AssetObservation(table.key, description=step.text, metadata=step.metadata))
        if error:
            context.log.error(error_text(table, error))
        yield table, error or done[table.name]


def error_text(table: Maintained, error: Exception) -> str:
    """Why a table's maintenance failed."""
    if isinstance(error, dg.Failure):
        return str(error.description)
    return f"{table.label}: {error.__cause__ or error}"  # A race that it lost.


def raise_failures(failures: Sequence[tuple[Maintained, Exception]]) -> None:
    """Raise one error for all tables that failed; a request to retry if races were lost, and nothing else failed."""
    if not failures:
        return
    errors = [error for _, error in failures]
    if all(isinstance(error, dg.RetryRequested) for error in errors):
        raise errors[0]
    texts = [error_text(*failure) for failure in failures]
    more = f"; and {count_text(len(texts) - FAILURES, 'other table')}" if len(texts) > FAILURES else ""
    may_retry = any(not isinstance(error, dg.Failure) or error.allow_retries for error in errors)
    raise dg.Failure("; ".join(texts[:FAILURES]) + more, allow_retries=may_retry)


def _in_turn(
    context: dg.OpExecutionContext,
    assets: Mapping[str, TableAsset],
    names: Sequence[str],
    steps: Callable[[Maintained], Iterable[Done | None]],
) -> None:
    """Maintain the tables of the assets `names`, or of all, one after the other. Raises `Failure` for those that
    failed, and for a name that is of no table."""
    if unknown := sorted(set(names) - assets.keys()):
        near = difflib.get_close_matches(unknown[0], assets, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(assets)) or 'none'}"
        raise dg.Failure(f"no maintained table has the asset key {', '.join(unknown)}; {advice}", allow_retries=False)
    upkeep: Upkeep = context.resources.upkeep

    tables = []
    for name in names or assets:
        asset = assets[name]
        lake = asset.lake(context.resources)
        tables.append(Maintained(asset.table(lake).name, lake, upkeep.of(asset), asset))
    results = maintain_each(context, tables, steps)
    raise_failures([(table, result) for table, result in results if isinstance(result, Exception)])


def compact(run_id: str, table: Maintained, full: bool = False) -> Done | None:
    """Compact small files in one commit; None if there are none. A concurrent overwrite wins, and compaction is
    requested again later."""
    properties = {TASK_TAG: "compact", "dagster/run_id": run_id}
    snapshot = table.lake.lake.table(table.name).compact(full=full, properties=properties)
    if snapshot is None:
        return None
    opened = table.lake.lake.table(table.name)
    before, after = (
        f"{count_text(getattr(snapshot, f'files_{verb}') or 0, 'file')} "
        f"({size_text(getattr(snapshot, f'bytes_{verb}') or 0)})"
        for verb in ("removed", "added")
    )
    return Done(
        f"Compacted {before} into {after}",
        {
            TASK_TAG: "compact",
            "lake/snapshot_id": id_text(snapshot.id),
            "lake/files_added": snapshot.files_added,
            "lake/files_removed": snapshot.files_removed,
            "lake/bytes_added": snapshot.bytes_added,
            "lake/bytes_removed": snapshot.bytes_removed,
            "lake/commit_milliseconds": snapshot.milliseconds,
            **(measures(opened, snapshot) | pictures(opened) if table.asset else {}),
        },
    )


def expire(instance: dg.DagsterInstance, table: Maintained) -> Done | None:
    """Expire snapshots that are too many or too old, except those that a running run reads; None if the table has no
    snapshot."""
    opened = table.lake.lake.table(table.name)
    read = reads(runs_in_flight(instance), table.label, opened)
    snapshots = opened.snapshots()
    if not snapshots:
        return None
    keep_from = first_to_keep(snapshots, table.limits, read, clock.now_ms())
    dropped = expire_before(opened, keep_from)
    text = f"Dropped {count_text(dropped, 'snapshot')}" if dropped else f"Dropped no snapshot of {len(snapshots):,}"
    metadata = {TASK_TAG: "expire", "lake/snapshots_dropped": dropped, "lake/oldest_snapshot": id_text(keep_from)}
    return Done(text, {**metadata, **(pictures(opened) if table.asset else {})})


def in_flight(instance: dg.DagsterInstance, asset: TableAsset) -> dg.DagsterRun | None:
    """A queued or running run of the job `maintain` over the table, if there is one."""
    for run in instance.get_runs(dg.RunsFilter(job_name=MAINTAIN, statuses=IN_FLIGHT)):
        config = ((run.run_config.get("ops") or {}).get(MAINTAIN_STEP) or {}).get("config") or {}
        if not config.get("tables") or asset.name in config["tables"]:
            return run
    return None


def runs_in_flight(instance: dg.DagsterInstance) -> Sequence[dg.DagsterRun]:
    """The runs that are queued or running."""
    return instance.get_runs(dg.RunsFilter(statuses=IN_FLIGHT))


def reads(runs: Iterable[dg.DagsterRun], asset: str, table: Any) -> frozenset[int]:
    """The snapshots of `table`, that of an asset, that `runs` read, or will read by their configuration."""
    snapshot_ids: set[int] = set()
    for run in runs:
        snapshot_ids |= snapshots_read(run, table.name)
        snapshot_ids |= set(_pinned(run, asset, table))
    return frozenset(snapshot_ids)


def _pinned(run: dg.DagsterRun, asset: str, table: Any) -> Iterator[int]:
    """The snapshots of the asset's table that a run's configuration pins, also while it is queued."""
    for resource in (run.run_config.get("resources") or {}).values():
        read_at = ((resource or {}).get("config") or {}).get("read_at") or {}
        if asset in read_at:
            try:
                pin = pinned(read_at[asset] or {})
                if pin != CURRENT:
                    yield int(table.scan(snapshot_id=pin.snapshot_id, tag=pin.tag, as_of=pin.as_of).snapshot.id)
            except LakeError:  # That run will raise that there is no such version.
                continue


def first_to_keep(snapshots: Sequence[Any], upkeep: Upkeep, read: Collection[int], now_ms: int) -> int:
    """The id of the oldest snapshot to keep, of `snapshots`, oldest first (their ids need not be ordered).

    All versions of the last `retain_hours` are kept, unless they are more than `max_snapshots`; then a tenth more
    expire than must, so that the next commit does not need expiry again. Those of `read` and younger ones are always
    kept.
    """
    since = now_ms - upkeep.retain_hours * 3_600_000
    young = max((n for n, snapshot in enumerate(snapshots) if snapshot.timestamp_ms <= since), default=0)
    many = len(snapshots) - upkeep.max_snapshots * 9 // 10 if len(snapshots) > upkeep.max_snapshots else 0
    first = max(0, min(max(young, many), len(snapshots) - max(1, upkeep.retain_snapshots)))
    in_use = [n for n, snapshot in enumerate(snapshots) if snapshot.id in read]
    return int(snapshots[min(first, *in_use)].id if in_use else snapshots[first].id)


def expire_before(table: Any, keep_from: int) -> int:
    """Expire the snapshots before `keep_from`; returns how many. Commits made meanwhile expire no more."""
    snapshots = table.snapshots()
    kept = snapshots[[snapshot.id for snapshot in snapshots].index(keep_from) :]
    return len(table.expire_snapshots(retain_last=len(kept), older_than=kept[0].timestamp_ms + 1).snapshots)
