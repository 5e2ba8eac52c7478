"""Readings of weather stations, with pandas and without Spark: partitioned tables, one kept by key,
checks and maintenance."""

import os

import dagster as dg
import pandas as pd

from lakeformat.dagster import LakeIOManager, LakeResource, checks_for, maintenance, rerun_partitions

DAILY = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-03-01")
BY_DAY = {"partition_by": {"date": "day"}}
ONE_RUN = dg.BackfillPolicy.single_run()
STATIONS = ["Kiel", "Lima", "Oslo"]


@dg.asset(partitions_def=DAILY, metadata={**BY_DAY, "unique_key": ["day", "station", "hour"]}, backfill_policy=ONE_RUN)
def readings(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """What the stations sent; -99 where the sensor failed."""
    rows = [(day, station, hour) for day in context.partition_keys for station in STATIONS for hour in range(24)]
    frame = pd.DataFrame(rows, columns=["day", "station", "hour"])
    frame["celsius"] = frame["hour"] - 10.0 * frame["station"].map(STATIONS.index)
    return frame.assign(celsius=frame["celsius"].where(frame["hour"] != 5, -99.0))


@dg.asset(partitions_def=DAILY, metadata={**BY_DAY, "unique_key": ["day", "station"]}, backfill_policy=ONE_RUN)
def daily_means(readings: pd.DataFrame) -> pd.DataFrame:
    """Mean temperature of each station and day, without failed readings."""
    good = readings[readings["celsius"] > -99]
    return good.groupby(["day", "station"], as_index=False).agg(celsius=("celsius", "mean"), readings=("hour", "size"))


@dg.asset(partitions_def=DAILY, metadata={"write": "upsert", "primary_key": ["station"]}, backfill_policy=ONE_RUN)
def last_seen(readings: pd.DataFrame) -> pd.DataFrame:
    """The newest day of each station: one row per key, whatever day runs."""
    return readings.groupby("station", as_index=False).agg(day=("day", "max"))


assets = [readings, daily_means, last_seen]
lake = LakeResource(warehouse=os.environ.get("WAREHOUSE", "warehouse"), database="weather")
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=assets,
        asset_checks=checks_for(assets),
        jobs=[rerun_partitions(assets), dg.define_asset_job("daily", assets)],
        resources={"lake": lake, "io_manager": LakeIOManager(lake=lake)},
    ),
    maintenance(assets),
)
