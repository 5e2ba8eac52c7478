"""A rerun of an old partition asks for the same partition downstream, and for nothing else."""

import dagster as dg
import pytest

from lakeformat.dagster import Upkeep
from lakeformat.dagster.spark import SparkResource
from pipelines.definitions import definitions
from pipelines.tables import TABLES

DAYS = ["2013-01-01", "2013-01-02", "2013-01-03"]


@pytest.fixture
def project(lake, instance):
    """A project whose tables are all there for some days, and what its automation asks for."""
    defs = definitions(lake, SparkResource(), Upkeep())

    def report(name, *keys):
        for key in keys or [None]:
            instance.report_runless_asset_event(dg.AssetMaterialization(name, partition=key))

    for name, asset in TABLES.items():
        keys = () if asset.partitions is None else ["2013-01-01"] if name == "carrier_scorecard" else DAYS
        report(name, *keys)
    cursor = None

    def asked():
        nonlocal cursor
        found = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=cursor)
        cursor = found.cursor
        return {
            name: sorted(found.get_requested_partitions(asset.key))
            for name, asset in TABLES.items()
            if found.get_num_requested(asset.key)
        }

    return report, asked


def test_an_old_day_again_reaches_its_downstream_partitions_once(project):
    report, asked = project
    asked()
    assert asked() == {}, "nothing has changed"
    report("flights", "2013-01-02")
    # The month waits for no day that is missing: only the days of January that are there were ever asked for.
    reached = ("flight_weather", "airport_delays", "planes", "route_revenue")
    assert asked() == {name: ["2013-01-02"] for name in reached}
    assert asked() == {}


def test_a_range_reaches_every_day_of_it(project):
    report, asked = project
    asked()
    report("weather", *DAYS)
    assert asked() == {"flight_weather": DAYS}


def test_a_complete_month_is_scored_again_when_one_of_its_days_changes(project):
    report, asked = project
    for name in ("flights", "planes"):
        report(name, *[f"2013-01-{day:02d}" for day in range(4, 32)])
    asked()
    asked()
    report("flights", "2013-01-09")
    assert "carrier_scorecard" in asked()
