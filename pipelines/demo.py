"""`make demo`: January 2013 through Dagster into Paimon and Iceberg tables, then upkeep, then one day again.

    python -m pipelines.demo [WAREHOUSE]          a folder; ./warehouse without it

Dagster's history goes to `.dagster/`, so that `make ui` shows what happened here. It may be run any number of times,
also after one that was killed: the tables and their checks are as after the first.
"""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow.compute as pc

from assets.nycflights13 import read_days
from assets.table import DAILY, MONTHLY
from lakeformat.dagster import LakeResource, SparkResource, SparkUnavailable, Upkeep
from pipelines.definitions import definitions
from pipelines.origin import LOCATION, REPOSITORY_TAG, show_under_job
from pipelines.tables import TABLES, named, replaced
from resources import DATABASE

ROOT = Path(__file__).parent.parent
JANUARY = [f"2013-01-{day:02d}" for day in range(1, 32)]
DEMO_TAG = "lake/demo"
ENDS = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
UNFINISHED = [status for status in dg.DagsterRunStatus if status not in ENDS]
QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}


def main(arguments: Sequence[str]) -> int:
    """Run the demo; the exit status."""
    warehouse = Path(arguments[0] if arguments else "warehouse").absolute()
    home = Path(os.environ.setdefault("DAGSTER_HOME", str(ROOT / ".dagster")))
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copy(ROOT / "dagster.yaml", home / "dagster.yaml")
    began = time.monotonic()
    lake = LakeResource(warehouse=str(warehouse), database=DATABASE)
    # A run stops the session that it started: this one is started here, for all runs.
    spark = SparkResource(app_name="lakeformat demo", log_level="ERROR")
    try:
        version = spark.session.version
    except SparkUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    with only_demo(home), dg.DagsterInstance.get() as instance:
        end_dead_runs(instance)
        print(f"warehouse {warehouse}; Dagster's history in {home}")
        print(f"Spark {version} is up after {time.monotonic() - began:.1f} s")
        try:
            Demo(lake, instance, definitions(lake, spark, Upkeep(max_snapshots=1, retain_snapshots=1))).run()
        finally:
            spark.teardown_after_execution(dg.build_init_resource_context())
    print(f"\nDone in {time.monotonic() - began:.0f} s. Next: make ui, and look at the lineage and at a backfill.")
    return 0


@contextmanager
def only_demo(home: Path) -> Iterator[None]:
    """Keep a second demo out: then every unfinished run of a demo in this history is of one that died."""
    with (home / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another demo is at work in {home}; wait for it") from None
        yield


def end_dead_runs(instance: dg.DagsterInstance) -> None:
    """End the runs of demos that were killed: they would hold their tables' pools,
    and the snapshots they read, for ever."""
    for run in instance.get_runs(dg.RunsFilter(tags={DEMO_TAG: "yes"}, statuses=UNFINISHED)):
        instance.report_run_failed(run, "the demo was killed")
        if instance.event_log_storage.supports_global_concurrency_limits:
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


@dataclass(frozen=True, slots=True)
class Demo:
    """The steps: each through Dagster, each followed by what the tables themselves say."""

    lake: LakeResource
    instance: dg.DagsterInstance
    definitions: dg.Definitions
    days: Sequence[str] = tuple(JANUARY)
    seconds: dict[str, float] = field(default_factory=dict)  # of each job's last run
    commits: dict[str, str] = field(default_factory=dict)  # how long each asset's last commit took

    @property
    def piecemeal_day(self) -> str:
        """The day that another program writes."""
        return self.days[-1]

    @property
    def again(self) -> str:
        """The day that is run again."""
        return self.days[len(self.days) // 2 - 1]

    def run(self) -> None:
        """All steps."""
        self.backfill()
        self.piecemeal()
        self.upkeep()
        self.rerun()

    def backfill(self) -> None:
        """Reference tables, then the days of every daily table in one run, then the month's scorecard."""
        print(f"\nBackfill of {self.days[0]} ... {self.days[-1]}: one run, one snapshot per table")
        before = {name: self._snapshot_id(name) for name in TABLES}
        self._run("reference")
        run = self._run("daily", keys=self.days)
        self._run("monthly", keys=["2013-01-01"])
        self._maintain("planes", compact=True)  # This writes its changelog.
        self._run("changes")
        self._show(TABLES)
        for name in named(DAILY):
            new = [snapshot.id for snapshot in self._table(name).snapshots(before[name]) if snapshot.kind != "compact"]
            if not new and name not in replaced([name]):
                continue  # It knew all of these days.
            expect(len(new) == 1, f"{name}: one snapshot, not {new}")
            committed = self._table(name).snapshot(new[0])
            if name in replaced([name]):
                expect(len(committed.partitions) == len(self.days), f"{name}: {len(committed.partitions)} partitions")
            expect(committed.properties["dagster/run_id"] == run, f"{name}: written by run {run}")
        days = ", ".join(f"'{day}'" for day in self.days)  # The table may have others, which the UI made.
        rows = self._table("flights").scan(where=f"dt IN ({days})").count()
        expect(rows == read_days("flights", self.days).num_rows, f"flights has {rows} rows of these days")
        print(
            f"  {rows:,} flights in {len(self.days)} partitions. Dagster's run {run[:8]} wrote "
            f"{', '.join(named(DAILY))}"
        )

    def piecemeal(self) -> None:
        """Another program replaces a day by many small commits, as a stream would."""
        table, rows = self._table("flights"), read_days("flights", [self.piecemeal_day])
        table.drop_partitions([{"dt": self.piecemeal_day}])
        hours = sorted(set(rows["hour"].to_pylist()))
        for hour in hours:
            table.append(rows.filter(pc.equal(rows["hour"], hour)))
        files = self._files("flights")[self.piecemeal_day]
        print(
            f"\nAnother program wrote the flights of {self.piecemeal_day} again, hour by hour: {len(hours)} commits, "
            f"{len(files)} files in its partition"
        )

    def upkeep(self) -> None:
        """Compaction joins the small files; expiry drops every snapshot but the last."""
        table = self._table("flights")
        files, snapshots, rows = self._files("flights"), table.snapshots(), table.scan().count()
        print("\nUpkeep of flights, as the sensors would ask for it")
        self._maintain("flights", compact=True)
        compacted = self._files("flights")
        expect(len(compacted[self.piecemeal_day]) < len(files[self.piecemeal_day]), "compaction joins files")
        print(
            f"  compaction: {len(files[self.piecemeal_day])} -> {len(compacted[self.piecemeal_day])} files in "
            f"{self.piecemeal_day}, in snapshot {self._snapshot_id('flights')}; "
            f"{self.seconds['maintain']:.1f} s"
        )
        self._maintain("flights", expire=True)
        left = table.snapshots()
        expect(len(left) == 1, f"expiry leaves one snapshot, not {len(left)}")
        expect(table.scan().count() == rows, "upkeep changes no row")
        print(
            f"  expiry: {len(snapshots) + 1} -> {len(left)} snapshots, {self.seconds['maintain']:.1f} s; "
            f"still {rows:,} rows"
        )

    def rerun(self) -> None:
        """One day again: its files are replaced, nobody else's."""
        print(f"\nRe-run of {self.again}: exactly its partition is replaced")
        names = replaced(named(DAILY))
        before = {name: self._files(name) for name in names}
        rows = {name: self._table(name).scan().count() for name in named(DAILY)}
        self._run("daily", keys=[self.again])
        self._show(names)
        for name in names:
            after = self._files(name)
            changed = sorted(day for day in after if after[day] != before[name].get(day))
            expect(changed == [self.again], f"{name}: partitions {changed} changed")
            expect(not after[self.again] & before[name][self.again], f"{name}: every file of {self.again} is new")
            count = self._table(name).scan().count()
            expect(count == rows[name], f"{name}: {count} rows, were {rows[name]}")
            print(
                f"  {name}: new files in {len(changed)} of {len(after)} partitions, {self.again}; "
                f"{count:,} rows as before"
            )
        for name in sorted(rows.keys() - set(names)):
            expect(self._table(name).scan().count() == rows[name], f"{name}: other rows")
            print(f"  {name}: kept by key, and knew all of that day; {rows[name]:,} rows as before")

    def _run(self, job: str, keys: Sequence[str] = (), run_config: Mapping[str, Any] | None = None) -> str:
        """Run a job for no partition, one, or a range; the run's id."""
        began = time.monotonic()
        tags = {DEMO_TAG: "yes", REPOSITORY_TAG: LOCATION}
        if len(keys) > 1:
            tags |= {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        run_id = str(uuid4())
        try:
            result = self.definitions.resolve_job_def(job).execute_in_process(
                instance=self.instance,
                partition_key=keys[0] if len(keys) == 1 else None,
                tags=tags,
                run_config={**QUIET, **(run_config or {})},
                run_id=run_id,
            )
        finally:
            show_under_job(self.instance, run_id)
        failed = [
            asset_check_evaluation.asset_key.to_user_string()
            for asset_check_evaluation in result.get_asset_check_evaluations()
            if not asset_check_evaluation.passed
        ]
        expect(not failed, f"asset checks failed: {failed}")
        self.seconds[job] = time.monotonic() - began
        materializations = [event.materialization for event in result.get_asset_materialization_events()]
        observed = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
        # Where there was nothing to write.
        self.commits.update({each.asset_key.to_user_string(): "-" for each in materializations})
        for each in [*materializations, *observed]:  # A run of several partitions reports its commit in an observation.
            if took := each.metadata.get("lake/commit_milliseconds"):
                self.commits[each.asset_key.to_user_string()] = f"{took.value} ms"
        return result.run_id

    def _maintain(self, name: str, **settings: bool) -> None:
        self._run("maintain", run_config={"ops": {"maintain_tables": {"config": {"tables": [name], **settings}}}})

    def _table(self, name: str) -> Any:
        return self.lake.lake.table(TABLES[name].table(self.lake).name)

    def _snapshot_id(self, name: str) -> int:
        if not self.lake.lake.exists(TABLES[name].table(self.lake).name):
            return 0
        snapshot = self._table(name).scan().snapshot
        return snapshot.id if snapshot else 0

    def _files(self, name: str) -> dict[str, set[str]]:
        """The paths of the live files of each day."""
        (column,) = TABLES[name].metadata["partition_by"].values()
        found: dict[str, set[str]] = {}
        for path in self._table(name).inspect.files()["path"].to_pylist():
            day = next(part.removeprefix(f"{column}=") for part in path.split("/") if part.startswith(f"{column}="))
            found.setdefault(day, set()).add(path)
        return found

    def _show(self, names: Sequence[str] | Mapping[str, Any]) -> None:
        """What the last snapshot of each table did."""
        jobs = {
            **dict.fromkeys(named(None), "changes"),
            **dict.fromkeys(replaced(named(None)), "reference"),
            **dict.fromkeys(named(DAILY), "daily"),
        }
        jobs |= dict.fromkeys(named(MONTHLY), "monthly")
        lines = [("table", "last snapshot", "partitions", "files +", "files -", "rows +", "MB", "commit", "job")]
        for name in names:
            snapshot = self._table(name).current_snapshot()
            run = f"{jobs[name]} {self.seconds[jobs[name]]:.1f} s"
            lines.append(
                (
                    f"{DATABASE}.{name} ({self._table(name).format})",
                    f"{snapshot.id} {snapshot.kind}",
                    f"{len(snapshot.partitions):,}" if TABLES[name].partitions else "-",
                    f"{snapshot.files_added:,}",
                    f"{snapshot.files_removed:,}",
                    f"{snapshot.rows_added:,}",
                    f"{snapshot.bytes_added / 1e6:.2f}",
                    self.commits[name],
                    run,
                )
            )
        print(aligned(lines))
        print(
            "  (+ and -: what that snapshot added and removed; Paimon counts snapshots, "
            "Iceberg names them by random numbers)"
        )


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Rows of text as a table: the first and last column to the left, numbers to the right."""
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    left = {0, 1, len(widths) - 1}

    def row(line: Sequence[str]) -> str:
        cells = (
            cell.ljust(w) if n in left else cell.rjust(w) for n, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        return "  " + "  ".join(cells).rstrip()

    return "\n".join([row(lines[0]), "  " + "  ".join("-" * w for w in widths), *map(row, lines[1:])])


def expect(condition: bool, expectation: str) -> None:
    """Stop the demo where a table is not as promised."""
    if not condition:
        raise SystemExit(f"the demo failed: {expectation}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
