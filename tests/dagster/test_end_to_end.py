"""`dagster dev` for real: a backfill through GraphQL, sensors ticked by the daemon, and a run that is killed mid-write.

One server for the module; the tests build on each other in their order. They are those of `make test-long`, with another server too,
whose instance is in PostgreSQL; in `make test` the same jobs, sensors and launchpads run in the process of the test.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import dagster as dg
import pytest

from assets.nycflights13 import read_days
from assets.table import DAILY
from lakeformat import Lake
from lakeformat.dagster import LakeResource, SparkResource, Upkeep
from pipelines.definitions import definitions
from pipelines.origin import LOCATION, REPOSITORY_TAG, show_under_job
from tests.dagster.browser import Browser

PROVED_BY = [
    "test_runs.py: one run and one snapshot per table; a demo under its jobs",
    "test_definitions.py: workspace.yaml and dagster.yaml load",
    "test_postgres_instance.py, test_backfills.py: backfills on an instance that other processes read",
    "test_sensors.py: compaction, expiry and commits of others",
    "test_concurrency.py: a process that is killed",
    "../contract/test_engines.py: whatever ends a job of Spark, its files are deleted",
    "test_launchpad.py: every launchpad as it opens",
]
pytestmark = [pytest.mark.spark, pytest.mark.dagster, pytest.mark.long(PROVED_BY)]

ROOT = Path(__file__).parent.parent.parent
YAML = ROOT / "dagster.yaml"
STORAGES = ["sqlite", "postgresql"] if int(os.environ.get("LAKEFORMAT_SEEDS", "100")) >= 10_000 else ["sqlite"]
DAYS = ["2013-01-01", "2013-01-02", "2013-01-03"]
MAX_SNAPSHOTS = 100  # of lakeformat.dagster.Upkeep
PATIENCE = 400  # Seconds, of which a busy machine with two cores may need many; nothing is true by waiting alone.

BACKFILL = """
mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}"""
TERMINATE = "mutation ($run: String!) { terminateRun(runId: $run) { __typename ... on PythonError { message } } }"
ORIGIN = """
query ($run: ID!) {
  runOrError(runId: $run) {
    ... on Run { pipelineName status repositoryOrigin { repositoryLocationName repositoryName } }
  }
}"""
LOCATIONS = "{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError { __typename } } } } }"


class Server:
    """A running `dagster dev` (of this project, unless `loads` says another), its instance and its warehouse."""

    def __init__(
        self,
        folder: Path,
        yaml: str = YAML.read_text(),
        loads: tuple[str, ...] = ("-w", "workspace.yaml"),
        within: Path = ROOT,
        **environment: str,
    ) -> None:
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        (self.home / "dagster.yaml").write_text(yaml)
        self.lake = Lake(str(folder / "warehouse"))
        self.port = free_port()
        self.log = folder / "dagster.log"
        variables = {
            **os.environ,
            "DAGSTER_HOME": str(self.home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "LAKE_WAREHOUSE": str(folder / "warehouse"),
            "LAKE_SCHEDULES": "off",  # At their hours they would run beside what is tested.
            **environment,
        }
        command = [sys.executable, "-m", "dagster", "dev", *loads, "-h", "127.0.0.1", "-p", str(self.port)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=within, env=variables, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(self.is_up, "dagster dev to load the project", self)
        self.instance = dg.DagsterInstance.from_config(str(self.home))

    def ask(self, query, **variables):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return found["data"]

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            entries = self.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
        except (urllib.error.URLError, ConnectionError):
            return False
        loaded = [entry["locationOrLoadError"] for entry in entries]
        assert not any(entry and entry["__typename"] == "PythonError" for entry in loaded), entries
        return bool(loaded) and all(loaded)

    def backfill(self, assets, partitions) -> str:
        params = {"assetSelection": [{"path": [name]} for name in assets], "partitionNames": partitions}
        answer = self.ask(BACKFILL, params=params)["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return answer["backfillId"]

    def runs(self, **tags):
        return self.instance.get_runs(dg.RunsFilter(tags=tags))

    def processes(self, name: str) -> list[int]:
        """The processes called `name` in the server's session."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = stat.read_text()
            except OSError:
                continue
            command, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
            if command == name and int(fields[3]) == self.process.pid and fields[0] != "Z":
                found.append(int(stat.parent.name))
        return found

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(done, what, server=None):
    """Poll until `done` answers with something true; what it answered."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := done():
            return found
        time.sleep(0.5)
    log = server.log.read_text()[-3000:] if server else ""
    raise AssertionError(f"waited {PATIENCE} s for {what}\n{log}")


@pytest.fixture(scope="module", params=STORAGES)
def server(request, tmp_path_factory):
    yaml = YAML.read_text()
    if request.param == "postgresql":
        yaml, address = request.getfixturevalue("in_postgres")
        yaml = yaml.replace("{env: DAGSTER_PG_URL}", f"'{address}'")
    server = Server(tmp_path_factory.mktemp("end_to_end"), yaml)
    yield server
    server.stop()
    server.instance.dispose()


def finished(server, runs):
    done = [server.instance.get_run_by_id(run.run_id) for run in runs]
    return done if done and all(run.is_finished for run in done) else None


@pytest.fixture(scope="module")
def filled(server):
    """A backfill of the days, and its runs."""
    backfill = server.backfill(["flights", "weather", "flight_weather"], DAYS)
    tag = {"dagster/backfill": backfill}
    wait_for(lambda: server.runs(**tag), "the backfill daemon to launch a run", server)
    return backfill, wait_for(lambda: finished(server, server.runs(**tag)), "the run to finish", server)


def test_a_backfill_launched_through_graphql_is_one_run_and_one_snapshot_per_table(server, filled):
    backfill, runs = filled
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS], server.log.read_text()[-3000:]
    for name in ("flights", "weather", "flight_weather"):
        (snapshot,) = server.lake.table(f"nyc.{name}").snapshots()
        assert snapshot.properties["dagster/backfill"] == backfill
        assert snapshot.properties["dagster/run_id"] == runs[0].run_id
        assert server.lake.table(f"nyc.{name}").inspect.partitions()["dt"].to_pylist() == DAYS
        assert server.instance.get_materialized_partitions(dg.AssetKey(name)) == set(DAYS)
    assert server.lake.table("nyc.flights").scan().count() == read_days("flights", DAYS).num_rows
    stderr = [path.read_text() for path in server.home.rglob("*.err")]
    assert stderr
    assert not any("incubator" in text or "log4j" in text for text in stderr), "Java says so at each start"


@pytest.mark.usefixtures("filled")
def test_the_daemon_ticks_the_sensors_until_files_are_compacted_and_snapshots_expired(server):
    """Another program commits 110 times to the table; nobody does anything but the sensors."""
    table = server.lake.table("nyc.flights")
    rows = read_days("flights", DAYS[:1])
    appended = [table.drop_partitions([{"dt": DAYS[0]}]).id]
    appended += [table.append(rows.slice(part * 5, 5)).id for part in range(109)]
    appended.append(table.append(rows.slice(109 * 5)).id)
    assert len(table.snapshots()) > MAX_SNAPSHOTS
    before = table.scan().to_arrow().sort_by("flight").num_rows

    def files():
        return table.inspect.partitions()["file_count"].to_pylist()

    assert max(files()) == 110
    wait_for(lambda: max(files()) < 10, "compaction", server)
    wait_for(lambda: len(table.snapshots()) <= MAX_SNAPSHOTS, "expiry", server)
    assert table.scan().count() == before == read_days("flights", DAYS).num_rows
    runs = wait_for(lambda: finished(server, server.runs(**{"lake/table": "flights"})), "upkeep to end", server)
    assert {run.status for run in runs} == {dg.DagsterRunStatus.SUCCESS}
    assert {run.tags["lake/maintenance"] for run in runs} == {"compact", "expire"}
    assert [run.tags["lake/maintenance"] for run in runs].count("compact") == 1, "compaction triggers no other"

    def foreign():
        """The commits of other programs that were observed: whichever had not expired when the sensor looked."""
        reported = server.instance.fetch_materializations(dg.AssetKey("flights"), limit=500).records
        changes = [event.asset_materialization for event in reported]
        return {
            change.metadata["lake/snapshot_id"].value for change in changes if "lake/foreign" in (change.tags or {})
        }

    wait_for(lambda: str(appended[-1]) in foreign(), "the last commit of another program to be observed", server)
    assert foreign() <= set(map(str, appended))


@pytest.mark.usefixtures("filled")
def test_a_run_that_is_killed_mid_write_changes_nothing_and_leaves_no_process(server):
    table = server.lake.table("nyc.flights")
    before, rows = table.snapshots()[-1].id, table.scan().count()
    folder = server.lake.uri.removeprefix("file://") + "/nyc.db/flights"
    backfill = server.backfill(["flights"], [day for day in DAILY.get_partition_keys() if day > DAYS[-1]])
    tag = {"dagster/backfill": backfill}
    (run,) = wait_for(lambda: server.runs(**tag), "the backfill daemon to launch a run", server)

    def at_work():
        return next(Path(folder).glob("dt=2013-[01][02-9]-*/*/*.parquet"), None) or finished(server, [run])

    wait_for(at_work, "the run to write its first file", server)
    assert not server.instance.get_run_by_id(run.run_id).is_finished, "the write ended before it could be killed"
    assert server.processes("java")
    answer = server.ask(TERMINATE, run=run.run_id)["terminateRun"]
    assert answer["__typename"] == "TerminateRunSuccess", answer
    (ended,) = wait_for(lambda: finished(server, [run]), "the run to end", server)
    assert ended.status == dg.DagsterRunStatus.CANCELED
    assert not server.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY), "it would run on"
    wait_for(lambda: not server.processes("java"), "the JVM to go", server)
    assert table.snapshots()[-1].id == before
    assert table.scan().count() == rows
    assert server.instance.get_materialized_partitions(dg.AssetKey("flights")) == set(DAYS)


def test_a_run_of_the_demo_is_under_its_job(server):
    """It is none of the server's: jobs' pages and the timeline find runs by their origin."""
    lake = LakeResource(warehouse=server.lake.uri, database="nyc")
    job = definitions(lake, SparkResource(), Upkeep()).resolve_job_def("sweep_orphans")
    run = job.execute_in_process(instance=server.instance, tags={REPOSITORY_TAG: LOCATION}).run_id
    show_under_job(server.instance, run)
    answer = server.ask(ORIGIN, run=run)["runOrError"]
    assert answer == {
        "pipelineName": "sweep_orphans",
        "status": "SUCCESS",
        "repositoryOrigin": {"repositoryLocationName": "lake", "repositoryName": "__repository__"},
    }


def test_launchpads_launch_as_they_open_in_a_browser(server):
    """The button of the UI is pressed: it is grey where the configuration that a launchpad opens with is not valid."""
    address = f"http://127.0.0.1:{server.port}"
    earlier = {run.run_id for run in server.instance.get_runs()}

    def ended(job):
        runs = server.instance.get_runs(dg.RunsFilter(job_name=job))
        return finished(server, [run for run in runs if run.run_id not in earlier and "lake/table" not in run.tags])

    with Browser() as browser:
        browser.open(f"{address}/assets/airlines")
        browser.click("Materialize")
        browser.wait("document.body.innerText.includes('Launched run')")
        for job in ("maintain", "sweep_orphans", "rerun_partitions"):
            browser.open(f"{address}/locations/lake/jobs/{job}/playground")
            if job == "rerun_partitions":
                browser.wait("document.body.innerText.includes('dry_run: false')")
            browser.click("Launch Run")
            browser.wait("location.pathname.startsWith('/runs/')")
    jobs = ("__ASSET_JOB", "maintain", "sweep_orphans", "rerun_partitions")
    launched = {job: wait_for(lambda job=job: ended(job), f"the run of {job}", server) for job in jobs}
    assert {job: {run.status.name for run in runs} for job, runs in launched.items()} == {
        job: {"SUCCESS"} for job in launched
    }
    assert server.lake.table("nyc.airlines").scan().count() == 16
