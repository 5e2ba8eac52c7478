"""The project's own assets through Dagster on one Spark session: the month in one run, one day again, checks, groups."""

import dagster as dg
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame

from assets.nycflights13 import read, read_days
from assets.table import DAILY, MONTHLY, table
from lakeformat.dagster import Upkeep
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.spark import SparkResource
from pipelines.definitions import definitions
from pipelines.demo import Demo
from pipelines.tables import TABLES, named, replaced

pytestmark = pytest.mark.spark

DAYS = ["2013-01-01", "2013-01-02", "2013-01-03"]


@pytest.fixture(scope="module")
def project(spark, tmp_path_factory):
    """The project over a warehouse of its own, with three days, the reference tables and a month made."""
    lake = LakeResource(warehouse=str(tmp_path_factory.mktemp("warehouse")), database="nyc")
    with dg.DagsterInstance.ephemeral() as instance:
        project = Project(lake, instance)
        project.results = {
            "reference": project.run("reference"),
            "daily": project.run("daily", keys=DAYS),
            "monthly": project.run("monthly", keys=["2013-01-01"]),
        }
        project.table("planes").compact()
        project.results["changes"] = project.run("changes")
        yield project


class Project:
    def __init__(self, lake, instance):
        self.lake, self.instance = lake, instance
        self.definitions = definitions(lake, SparkResource(), Upkeep())

    def run(self, job, keys=(), **options):
        tags = {}
        if len(keys) > 1:
            tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance, tags=tags, partition_key=keys[0] if len(keys) == 1 else None, **options
        )

    def table(self, name):
        return self.lake.lake.table(f"nyc.{name}")


def test_a_range_is_one_run_and_one_snapshot_per_table(project):
    for name in named(DAILY):
        (snapshot,) = [snapshot for snapshot in project.table(name).snapshots() if snapshot.kind != "compact"]
        assert snapshot.properties["dagster/run_id"] == project.results["daily"].run_id
        if name in replaced(named(DAILY)):
            (column,) = TABLES[name].metadata["partition_by"].values()
            assert [str(day) for day in project.table(name).inspect.partitions()[column].to_pylist()] == DAYS


def test_the_flights_in_the_table_are_the_flights_in_the_source(project):
    source = read_days("flights", DAYS)
    keys = [("carrier", "ascending"), ("flight", "ascending"), ("origin", "ascending"), ("dt", "ascending")]
    found = project.table("flights").scan().to_arrow().select(source.column_names)
    assert found.sort_by(keys).to_pylist() == source.sort_by(keys).to_pylist()
    counts = {
        record.partition_key: record.asset_materialization.metadata["dagster/partition_row_count"].value
        for record in project.instance.fetch_materializations(dg.AssetKey("flights"), limit=10).records
    }
    assert counts == {day: pc.sum(pc.equal(source["dt"], day)).as_py() for day in DAYS}


@pytest.fixture(scope="module")
def day_again(project):
    """Files, row counts, and of tables that gather rows the rows and snapshots, before and after the second day is run again."""

    def state():
        tables = {name: project.table(name) for name in named(DAILY)}
        gathering = {name: tables[name] for name in ("bookings", "planes")}
        return {
            "files": {name: set(tables[name].inspect.files()["path"].to_pylist()) for name in replaced(named(DAILY))},
            "counts": {name: table.scan().count() for name, table in tables.items()},
            **{name: (table.scan().to_arrow().to_pylist(), table.snapshots()) for name, table in gathering.items()},
        }

    before = state()
    project.run("daily", keys=[DAYS[1]])
    return before, state()


def test_bookings_are_the_last_event_of_each_and_a_day_again_changes_nothing(project, day_again):
    events = project.table("booking_events").scan().to_arrow().sort_by("event_at").to_pylist()
    last = {event["booking_id"]: event for event in events}
    assert {row["op"] for row in last.values()} == {"booked", "changed", "cancelled"}

    before, after = (
        ({row["booking_id"]: row for row in rows}, snapshots)
        for rows, snapshots in (state["bookings"] for state in day_again)
    )
    columns = set(next(iter(before[0].values())))
    assert before[0] == {key: {c: v for c, v in row.items() if c in columns} for key, row in last.items()}
    assert after == before, "nothing was to do, so there is no commit"
    revenue = project.table("route_revenue").scan().to_arrow()
    flown = [row for row in before[0].values() if str(row["flight_date"]) in DAYS]
    assert pc.sum(revenue["sold"]).as_py() == len(flown)


def test_planes_are_as_their_last_flight_left_them_and_a_day_again_changes_none(project, day_again):
    flown = read_days("flights", DAYS).sort_by("time_hour").to_pylist()
    last = {row["tailnum"]: row["time_hour"] for row in flown if row["tailnum"] and row["dep_time"] is not None}
    known = {row["tailnum"]: row for row in read("planes").to_pylist()}

    before, after = ({plane["tailnum"]: plane for plane in state["planes"][0]} for state in day_again)
    assert {tail: row["last_seen"] for tail, row in before.items()} == last
    for tail, each in before.items():
        assert each["seats"] == known.get(tail, {}).get("seats")
        assert each["manufacturer"] == known.get(tail, {}).get("manufacturer")
    assert after == before
    told = project.table("fleet_changes").scan().to_arrow()
    assert set(told["tailnum"].to_pylist()) == set(last)
    assert set(told["_row_kind"].to_pylist()) == {"+I"}


def test_the_month_is_made_from_its_days(project):
    rows = project.table("carrier_scorecard").scan().to_arrow()
    assert set(rows["month"].to_pylist()) == {"2013-01"}
    assert pc.sum(rows["flights"]).as_py() == read_days("flights", DAYS).num_rows


@pytest.mark.parametrize("name", TABLES)
def test_every_table_passed_its_checks(name, project):
    jobs = [job for job, partitions in (("daily", DAILY), ("monthly", MONTHLY)) if name in named(partitions)]
    (job,) = jobs or ["reference" if name in replaced(named(None)) else "changes"]
    results = project.results[job].get_asset_check_evaluations()
    outcome = {r.check_name: r.passed for r in results if r.asset_key == dg.AssetKey(name)}
    assert outcome == dict.fromkeys(outcome, True)
    assert {"row_count", "unique_key", "columns_unchanged"} <= set(outcome)


@pytest.mark.parametrize("name", TABLES)
def test_declared_lineage_names_columns_that_exist(name, project):
    event = project.instance.get_latest_materialization_event(dg.AssetKey(name)).asset_materialization
    columns = {c.name: c.description for c in event.metadata["dagster/column_schema"].value.columns}
    lineage = event.metadata["dagster/column_lineage"].value.deps_by_column
    assert set(lineage) == set(columns)
    for dependencies in lineage.values():
        for dependency in dependencies:
            upstream = dependency.asset_key.to_user_string()
            if upstream in TABLES:
                assert dependency.column_name in project.table(upstream).schema.names
    spec = TABLES[name].definition.specs_by_key[dg.AssetKey(name)]
    assert "Columns:" not in spec.description, "a column's comment stands once on the asset's page"
    described = {column.name: column.description for column in spec.metadata["dagster/column_schema"].columns}
    assert described.items() <= columns.items(), "what the docstring says of columns is in the table and in the event"
    assert described


def test_one_day_again_replaces_its_files_and_no_others(day_again):
    before, after = day_again
    for name, files in before["files"].items():
        kept, replaced_files = after["files"][name] & files, files - after["files"][name]
        assert all(DAYS[1] in path for path in replaced_files)
        assert replaced_files
        assert not any(DAYS[1] in path for path in kept)
    assert after["counts"] == before["counts"]


def test_a_row_of_another_day_from_spark_is_refused_and_nothing_is_committed(spark, lake, instance):
    tries = []

    @table(group="test", unique=["dt"], partitions=DAILY, partition_by={"date": "dt"})
    def leaking(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
        tries.append(context.partition_keys)
        return spark.session.createDataFrame([("2013-01-01", 1), ("2013-05-05", 2)], "dt string, n int")

    resources = {"lake": lake, "spark": SparkResource(), "io_manager": LakeIOManager(lake=lake, spark=SparkResource())}
    result = dg.materialize(
        [leaking], resources=resources, instance=instance, partition_key="2013-01-01", raise_on_error=False
    )
    said = result.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert "2013-05-05" in said
    assert "2013-01-01" in said
    assert len(tries) == 1
    assert not lake.lake.exists("nyc.leaking")


def test_spark_jobs_belong_to_the_run_and_the_asset_and_the_session_survives_the_run(spark, lake, instance):
    seen = []

    @dg.asset
    def grouped(spark: SparkResource) -> DataFrame:
        frame = spark.session.range(3)
        seen.append(spark.session.sparkContext.getLocalProperty("spark.jobGroup.id"))
        return frame

    resources = {"spark": SparkResource(), "io_manager": LakeIOManager(lake=lake, spark=SparkResource())}
    result = dg.materialize([grouped], resources=resources, instance=instance)
    assert seen == [f"{result.run_id}.grouped"]
    assert spark.range(1).count() == 1, "a session that somebody else started is left running"


def test_a_pinned_backfill_reads_the_same_snapshot_after_later_commits(project):
    flights = project.table("flights")
    pinned = flights.scan().snapshot.id
    before = flights.scan(where=f"dt = '{DAYS[0]}'").count()
    flights.append(read_days("flights", [DAYS[0]]).slice(0, 5))
    config = {"resources": {"io_manager": {"config": {"read_at": {"flights": {"snapshot_id": pinned}}}}}}
    result = project.definitions.resolve_job_def("daily").execute_in_process(
        instance=project.instance,
        asset_selection=[dg.AssetKey("flight_weather")],
        partition_key=DAYS[0],
        run_config=config,
    )
    assert result.success
    assert project.table("flight_weather").scan(where=f"dt = '{DAYS[0]}'").count() == before


def test_the_demo_again_leaves_every_table_and_every_check_as_it_was(project):
    """The days that tables which gather rows know already change nothing in them, and no change goes downstream. A day that
    is not of the demo's, as one launches from the UI, stays as it is."""

    february = {"flights": "month = 2", "route_revenue": "dt = '2013-02-03'"}

    def rows(name):
        found = project.table(name).scan(where=february.get(name)).to_arrow()
        return found.sort_by([(column, "ascending") for column in found.schema.names])

    selection = [dg.AssetKey(name) for name in february]
    assert project.run("daily", keys=["2013-02-03"], asset_selection=selection).success
    project.table("planes").compact()
    assert project.run("changes").success
    names = sorted(february.keys() | set(TABLES) - set(replaced(list(TABLES))))
    before = {name: rows(name) for name in names}
    assert all(map(len, before.values()))
    lake, upkeep = project.lake, Upkeep(max_snapshots=1, retain_snapshots=1)
    earlier = {run.run_id for run in project.instance.get_runs()}
    Demo(lake, project.instance, definitions(lake, SparkResource(), upkeep), DAYS).run()
    runs = [run for run in project.instance.get_runs() if run.run_id not in earlier]
    jobs = sorted((run.job_name, run.remote_job_origin.job_name, run.remote_job_origin.location_name) for run in runs)
    shown = ["changes", "daily", "daily", "maintain", "maintain", "maintain", "monthly", "reference"]
    assert jobs == [(job, job, "lake") for job in shown]
    assert project.run("changes").success
    for name in names:
        assert rows(name).equals(before[name]), name
