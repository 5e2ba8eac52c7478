"""The changelog of `planes`, read downstream: each change once, whatever happens to a run."""

from datetime import UTC, datetime

import dagster as dg
import pyarrow as pa
import pytest

from assets.fleet import fleet_changes
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.spark import SparkResource
from lakeformat.errors import StoreError
from lakeformat.reading.changes import Changes
from pipelines.tables import TABLES

TEXTS = ("tailnum", "manufacturer", "model", "carrier", "flew_to")


@pytest.fixture
def planes(lake):
    schema = pa.schema([*((name, pa.string()) for name in TEXTS), ("last_seen", pa.timestamp("us", "UTC"))])
    properties = TABLES["planes"].metadata["table_properties"]
    return lake.lake.create_table("nyc.planes", schema, primary_key=["tailnum"], properties=properties)


@pytest.fixture
def follow(lake, instance):
    def follow(raises=True):
        resources = {"lake": lake, "io_manager": LakeIOManager(lake=lake, spark=SparkResource())}
        return dg.materialize([fleet_changes], resources=resources, instance=instance, raise_on_error=raises)

    return follow


def fly(planes, hour, *tails):
    """These planes fly at that hour. Compaction writes the changelog."""
    row = {"manufacturer": "BOEING", "model": "737", "carrier": "UA", "flew_to": f"at {hour}"}
    last_seen = datetime(2013, 1, 1, hour, tzinfo=UTC)
    planes.upsert([{"tailnum": tail, **row, "last_seen": last_seen} for tail in tails])
    assert planes.compact() is not None


def told(lake):
    rows = lake.lake.table("nyc.fleet_changes").scan().to_arrow().to_pylist()
    return sorted((row["tailnum"], row["last_seen"].hour, row["_row_kind"]) for row in rows)


def test_each_change_comes_once(planes, lake, follow):
    fly(planes, 1, "N1", "N2")
    result = follow()
    assert told(lake) == [("N1", 1, "+I"), ("N2", 1, "+I")]
    metadata = result.asset_materializations_for_node("fleet_changes")[0].metadata
    assert metadata["lake/changes_until"].value == str(planes.scan().snapshot_id)
    follow()
    assert len(told(lake)) == 2, "nothing has changed"
    fly(planes, 2, "N2", "N3")
    follow()
    fly(planes, 2, "N2", "N3")
    follow()  # What is written again is no change.
    wanted = [("N1", 1, "+I"), ("N2", 1, "+I"), ("N2", 1, "-U"), ("N2", 2, "+U"), ("N3", 2, "+I")]
    assert told(lake) == sorted(wanted)


def test_a_run_that_dies_before_it_says_how_far_it_came_doubles_and_loses_nothing(planes, lake, follow, monkeypatch):
    fly(planes, 1, "N1")
    with monkeypatch.context() as broken:

        def dies(changes):
            raise StoreError("no answer")

        broken.setattr(Changes, "acknowledge", dies)
        assert not follow(raises=False).success
    fly(planes, 2, "N2")
    result = follow()  # What had landed is noted, then what has changed since is told.
    assert told(lake) == [("N1", 1, "+I"), ("N2", 2, "+I")]
    assert result.asset_materializations_for_node("fleet_changes")[0].metadata["lake/changes_after"].value == "0"


def test_expiry_keeps_changes_that_are_not_read_yet(planes, lake, follow):
    fly(planes, 1, "N1")
    follow()
    for hour in range(2, 8):
        fly(planes, hour, "N2")
    planes.expire_snapshots(retain_last=1)
    follow()
    assert len([row for row in told(lake) if row[0] == "N2"]) == 1 + 2 * 5
