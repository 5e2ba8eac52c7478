"""The maintenance of all tables of a warehouse, assets or not: `maintenance_of`."""

import re
import threading
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lakeformat import Table
from lakeformat.dagster import LakeResource, Upkeep, maintenance_of
from lakeformat.dagster.time_limit import MOST_STUCK, each_in_time
from lakeformat.errors import InvalidInput

LIMITS = Upkeep(max_small_files=3, max_snapshots=4, retain_snapshots=2)
FORMATS = ("paimon", "iceberg")


def fill(lake, name, writes, format="paimon"):
    """A table with so many small files."""
    table = lake.lake.create_table(
        name, pa.schema([("n", pa.int64())]), format=format, properties={"write-only": "true"}
    )
    for n in range(writes):
        table.append(pa.table({"n": [n]}))
    return table


def data_bytes(lake):
    files = [file for format in FORMATS for file in lake.lake.table(f"raw.{format}").stored_files()]
    return sum(file.size_bytes for file in files if file.path.endswith(".parquet"))


@pytest.fixture
def run(lake, instance):
    def run(*patterns, raises=True, assets=(), **config):
        defs = maintenance_of(lake, patterns, assets=assets, upkeep=LIMITS)
        return defs.resolve_job_def("maintain_fleet").execute_in_process(
            run_config={"ops": {"maintain_fleet_tables": {"config": config}}} if config else None,
            instance=instance,
            raise_on_error=raises,
        )

    return run


@pytest.fixture
def pages(run, instance):
    """The observations of the fleet by a run: the sentence and the metadata of each."""

    def pages(*patterns, **how):
        run_id = run(*patterns, **how).run_id
        records = instance.fetch_observations(dg.AssetKey("fleet"), limit=10).records
        events = [record.asset_observation for record in records[::-1] if record.run_id == run_id]
        return [(event.description, {name: value.value for name, value in event.metadata.items()}) for event in events]

    return pages


def lines(metadata):
    """The first cell of each line of the page's table, and the last."""
    cells = [
        line.removeprefix("| ").removesuffix(" |").split(" | ")
        for line in metadata["lake/worst_tables"].splitlines()[2:]
    ]
    return [(row[0].replace("\\", ""), row[-1]) for row in cells]


@pytest.mark.parametrize("format", FORMATS)
def test_what_exceeds_a_limit_is_maintained_the_worst_first_and_nothing_else(lake, pages, format):
    for name, writes in {"raw.few": 1, "raw.many": 5, "raw.most": 7, "other.many": 5}.items():
        fill(lake, name, writes, format)
    fill(lake, "raw.none", 0, format)
    (before, found), (after, left) = pages("raw.*")
    assert before.endswith(": 2 tables need maintenance, 0 B to win")
    assert before.startswith("Looked at 4 tables in ")
    assert [name for name, _ in lines(found)] == ["raw.most", "raw.many", "raw.few", "raw.none"]
    assert (found["lake/tables"], found["lake/tables_to_maintain"], found["lake/small_files"]) == (4, 2, 13)
    assert found["lake/snapshots_to_expire"] == 4 + 2
    assert after.startswith("Maintained 2 tables in ")
    assert ": 0 tables need maintenance" in after
    assert left["lake/snapshots_to_expire"] == 0
    assert left["lake/small_files"] == 3
    outcomes = dict(lines(left))
    assert outcomes["raw.most"].startswith("Compacted 7 files (")
    assert "; Dropped " in outcomes["raw.most"]
    assert outcomes["raw.few"] == outcomes["raw.none"] == ""
    numbers = re.findall(r"\| ([\d.]+\u00a0K?B) \| (?:[\d-]{10}\u00a0[\d:]{8})? \|", left["lake/worst_tables"])
    assert len(numbers) == 4, "a number and its unit stay in one line, as do a date and its time"
    assert len(lake.lake.table("other.many").snapshots()) == 5
    assert lake.lake.table("raw.most").scan().to_arrow().sort_by("n").column("n").to_pylist() == list(range(7))


def test_bytes_to_win_are_those_of_files_that_only_old_snapshots_have(lake, run, pages):
    for format in FORMATS:
        table = fill(lake, f"raw.{format}", 1, format)
        for n in range(6):
            table.overwrite(pa.table({"n": [n]}))
    before = data_bytes(lake)
    ((_, found),) = pages("raw.*", dry_run=True)
    run("raw.*")
    assert before - data_bytes(lake) == found["lake/bytes_to_win"] > 0


def test_a_dry_run_and_a_choice_of_tables_leave_the_others_alone(lake, run, pages):
    tables = [fill(lake, f"raw.t{n}", 5) for n in range(3)]
    assert len(pages("raw.*", dry_run=True)) == 1
    assert [len(table.snapshots()) for table in tables] == [5, 5, 5]
    run("raw.*", tables=["raw.t1", "raw.[2]"])
    assert [table.inspect.partitions()["file_count"].to_pylist() for table in tables] == [[5], [1], [5]]
    failed = run("raw.*", tables=["raw.tt"], raises=False)
    (event,) = failed.get_step_failure_events()
    assert event.event_specific_data.user_failure_data.description == (
        "fleet: no table of the fleet matches raw.tt; it is raw.*"
    )


def test_a_table_that_hangs_or_is_broken_does_not_stop_the_others(lake, pages, monkeypatch):
    @dg.asset(key=["raw", "stuck"], metadata={"maintenance": {"minutes": 0.005}})
    def stuck(lake: LakeResource): ...

    for name in ("raw.broken", "raw.hangs", "raw.good", "raw.stuck"):
        fill(lake, name, 5)
    broken = lake.lake.table("raw.broken")
    for file in broken.stored_files():
        if "manifest" in file.path:
            (Path(lake.warehouse) / "raw.db" / "broken" / file.path).unlink()
    free, snapshots, compact = threading.Event(), Table.snapshots, Table.compact
    monkeypatch.setattr(
        Table, "snapshots", lambda t, after=0: free.wait() if "hangs" in t.name else snapshots(t, after)
    )
    monkeypatch.setattr(Table, "compact", lambda t, **k: free.wait() if "stuck" in t.name else compact(t, **k))
    (_, _), (sentence, left) = pages("raw.*", raises=False, assets=[stuck], look_seconds=1)
    free.set()
    assert sentence.endswith("; 3 tables failed")
    assert left["lake/tables_failed"] == 3
    outcomes = dict(lines(left))
    assert outcomes["raw.good"].startswith("Compacted 5 files")
    assert "manifest" in outcomes["raw.broken"]
    assert "no end after 1 seconds" in outcomes["raw.hangs"]
    assert "no end after 0.3 seconds; its limit is Upkeep's minutes=0.005" in outcomes["raw.stuck"]


def test_tables_of_assets_keep_their_limits_and_are_observed(lake, pages, instance):
    @dg.asset(key=["raw", "patient"], metadata={"maintenance": {"max_small_files": 100, "max_snapshots": 100}})
    def patient(lake: LakeResource): ...

    @dg.asset(key=["raw", "eager"], metadata={"maintenance": {"max_small_files": 4}})
    def eager(lake: LakeResource): ...

    @dg.asset(key=["raw", "off"], metadata={"maintenance": False})
    def off(lake: LakeResource): ...

    for name, writes in {"patient": 5, "eager": 5, "off": 5}.items():
        fill(lake, f"raw.{name}", writes)
    (_, found), (_, _left) = pages("raw.*", assets=[patient, eager, off])
    assert found["lake/tables"] == 2
    assert found["lake/tables_to_maintain"] == 1
    _, record = instance.fetch_observations(dg.AssetKey(["raw", "eager"]), limit=5).records
    assert record.asset_observation.description.startswith("Compacted 5 files")


def test_patterns_are_checked_and_the_schedule_runs_the_job(lake):
    for wrong in ([], "", [1]):
        with pytest.raises(InvalidInput, match="give patterns of table names"):
            maintenance_of(lake, wrong)
    defs = maintenance_of(lake, "raw.*", name="raws", running=False)
    repository = defs.get_repository_def()
    (schedule,) = repository.schedule_defs
    assert (schedule.name, schedule.job_name, schedule.cron_schedule) == ("raws_upkeep", "maintain_raws", "0 2 * * *")
    assert repository.assets_defs_by_key[dg.AssetKey("raws")].is_external


def test_threads_that_hang_are_bounded():
    free = threading.Event()

    def work(n, begin):
        begin(0.01)
        free.wait()

    outcomes = list(each_in_time(work, range(3 * MOST_STUCK), at_once=8))
    free.set()
    assert sorted(outcome.item for outcome in outcomes) == list(range(3 * MOST_STUCK))
    texts = [str(outcome.error) for outcome in outcomes]
    assert texts.count("no end after 0.01 seconds") <= MOST_STUCK + 8
    assert any(text.startswith("not begun, as ") for text in texts)


def test_work_is_limited_from_its_begin_and_comes_in_the_order_of_its_end():
    second = threading.Event()

    def work(n, begin):
        if n == 0:
            second.wait(5)
        begin(5)
        second.set()
        return n

    assert [outcome.result for outcome in each_in_time(work, range(2), at_once=2)] == [1, 0]
