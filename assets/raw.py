"""The data sets as they come: flights and weather by day; airlines and airports as they are."""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame

from assets.nycflights13 import read, read_days
from assets.table import DAILY, SOURCE_KEY, table
from lakeformat.dagster import SparkResource

SOURCE = dg.AssetSpec(
    SOURCE_KEY,
    group_name="source",
    description="Flights that left New York City in 2013, with hourly weather, airlines, airports and planes (CC0).",
    kinds={"csv"},
    owners=["team:flights"],
    tags={"domain": "flights"},
)
DAILY_BY_SIX = dg.FreshnessPolicy.cron(deadline_cron="0 6 * * *", lower_bound_delta=timedelta(hours=6))
MONTHLY_AT_LEAST = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=35), warn_window=timedelta(days=32))


@table(
    group="raw",
    partitions=DAILY,
    partition_by={"date": "dt"},
    unique=["dt", "carrier", "flight", "origin"],
    lineage={"*": "nycflights13"},
    deps=[SOURCE],
    freshness_policy=DAILY_BY_SIX,
)
def flights(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """Every flight that left EWR, JFK or LGA: 336,776 in the year. A cancelled flight has no `dep_time`.

    Columns:
    - `dt`: The day of departure, the table's partition.
    - `dep_time`: When it left, as HHMM of local time.
    - `sched_dep_time`: When it was to leave, as HHMM of local time.
    - `dep_delay`: Minutes; early departures are negative.
    - `arr_delay`: Minutes; early arrivals are negative.
    - `carrier`: Two letters, the key of `airlines`.
    - `tailnum`: The plane, the key of `planes`.
    - `origin`: EWR, JFK or LGA.
    - `dest`: The key of `airports`.
    - `air_time`: Minutes.
    - `distance`: Miles.
    - `time_hour`: The hour in which it was to leave.
    """
    return spark.session.createDataFrame(read_days("flights", context.partition_keys))


@table(
    group="raw",
    partitions=DAILY,
    partition_by={"date": "dt"},
    unique=["origin", "time_hour"],
    lineage={"*": "nycflights13"},
    deps=[SOURCE],
    freshness_policy=DAILY_BY_SIX,
)
def weather(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """Hourly weather at the three airports.

    Columns:
    - `dt`: The day of the observation, the table's partition.
    - `origin`: EWR, JFK or LGA.
    - `temp`: °F.
    - `dewp`: The dew point, °F.
    - `humid`: Relative humidity in percent.
    - `wind_dir`: Degrees.
    - `wind_speed`: Miles per hour.
    - `wind_gust`: Miles per hour.
    - `precip`: Inches.
    - `pressure`: Millibars.
    - `visib`: Miles.
    """
    return spark.session.createDataFrame(read_days("weather", context.partition_keys))


@table(group="raw", unique=["carrier"], lineage={"*": "nycflights13"}, deps=[SOURCE], freshness_policy=MONTHLY_AT_LEAST)
def airlines(spark: SparkResource) -> DataFrame:
    """Names of the 16 airlines.

    Columns:
    - `carrier`: Two letters.
    - `name`: In full.
    """
    return spark.session.createDataFrame(read("airlines"))


@table(group="raw", unique=["faa"], lineage={"*": "nycflights13"}, deps=[SOURCE], freshness_policy=MONTHLY_AT_LEAST)
def airports(spark: SparkResource) -> DataFrame:
    """Airports, with their place and time zone.

    Columns:
    - `faa`: The FAA's code.
    - `lat`: Degrees north.
    - `lon`: Degrees east.
    - `alt`: Feet.
    - `tz`: Hours from UTC.
    """
    return spark.session.createDataFrame(read("airports"))
