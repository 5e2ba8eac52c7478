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
    """Every flight that left EWR, JFK or LGA: 336,776 in the year. A cancelled flight has no `dep_time`."""
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
    """Hourly weather at the three airports: temperatures in °F, speeds in mph, `precip` in inches, `visib` in miles."""
    return spark.session.createDataFrame(read_days("weather", context.partition_keys))


@table(group="raw", unique=["carrier"], lineage={"*": "nycflights13"}, deps=[SOURCE], freshness_policy=MONTHLY_AT_LEAST)
def airlines(spark: SparkResource) -> DataFrame:
    """Names of the 16 airlines by two-letter `carrier` code."""
    return spark.session.createDataFrame(read("airlines"))


@table(group="raw", unique=["faa"], lineage={"*": "nycflights13"}, deps=[SOURCE], freshness_policy=MONTHLY_AT_LEAST)
def airports(spark: SparkResource) -> DataFrame:
    """Airports by FAA code, with place, altitude in feet and time zone."""
    return spark.session.createDataFrame(read("airports"))
