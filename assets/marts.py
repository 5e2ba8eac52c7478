"""What people ask: how late are flights to an airport, how well does an airline do."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.table import DAILY, FOLLOW_UPSTREAM, MONTHLY, table

LATE_MINUTES = 15


def delays_by_airport(flights: DataFrame, airports: DataFrame) -> DataFrame:
    """One row for each day and destination; delays in minutes, late from 15 on. Cancelled flights count."""
    places = airports.select(F.col("faa").alias("dest"), F.col("name").alias("airport"), "lat", "lon")
    return (
        flights.groupBy("dt", "dest")
        .agg(
            F.count("*").alias("flights"),
            _cancelled().alias("cancelled"),
            F.avg("dep_delay").alias("mean_dep_delay"),
            F.avg("arr_delay").alias("mean_arr_delay"),
            F.avg((F.col("arr_delay") >= LATE_MINUTES).cast("double")).alias("late_share"),
        )
        .join(places, "dest", "left")
        .select("dt", "dest", "airport", "lat", "lon", *_MEASURES)
    )


def score_carriers(flights: DataFrame, airlines: DataFrame, planes: DataFrame) -> DataFrame:
    """One row for each month ("2013-01") and airline: flights, punctuality, seats offered and the age of its planes."""
    fleet = planes.select("tailnum", "seats", F.col("year").alias("built"))
    return (
        flights.join(fleet, "tailnum", "left")
        .groupBy(F.substring("dt", 1, 7).alias("month"), "carrier")
        .agg(
            F.count("*").alias("flights"),
            _cancelled().alias("cancelled"),
            F.avg("dep_delay").alias("mean_dep_delay"),
            F.avg("arr_delay").alias("mean_arr_delay"),
            F.avg((F.col("arr_delay") >= LATE_MINUTES).cast("double")).alias("late_share"),
            F.sum(F.when(F.col("dep_time").isNotNull(), F.col("seats"))).alias("seats"),
            F.avg(F.col("year") - F.col("built")).alias("mean_plane_age"),
        )
        .join(airlines.withColumnRenamed("name", "airline"), "carrier", "left")
        .select("month", "carrier", "airline", *_MEASURES, "seats", "mean_plane_age")
    )


_MEASURES = ("flights", "cancelled", "mean_dep_delay", "mean_arr_delay", "late_share")
_FROM_FLIGHTS = {
    "flights": ["flights.flight"],
    "cancelled": ["flights.dep_time"],
    "mean_dep_delay": ["flights.dep_delay"],
    "mean_arr_delay": ["flights.arr_delay"],
    "late_share": ["flights.arr_delay"],
}


def _cancelled() -> Column:
    return F.count(F.when(F.col("dep_time").isNull(), 1))


@table(
    group="marts",
    partitions=DAILY,
    partition_by={"date": "dt"},
    unique=["dt", "dest"],
    lineage={
        **_FROM_FLIGHTS,
        "dt": ["flights.dt"],
        "dest": ["flights.dest"],
        "airport": ["airports.name"],
        "lat": ["airports.lat"],
        "lon": ["airports.lon"],
    },
    automation_condition=FOLLOW_UPSTREAM,
)
def airport_delays(flights: DataFrame, airports: DataFrame) -> DataFrame:
    """How late flights were, for each day and destination.

    Columns:
    - `dt`: The day of departure, the table's partition.
    - `dest`: The FAA's code.
    - `flights`: How many there were, cancelled ones too.
    - `cancelled`: How many of them did not leave.
    - `mean_dep_delay`: Minutes, of those that left.
    - `mean_arr_delay`: Minutes, of those that arrived.
    - `late_share`: The share of those that arrived 15 minutes late, or later.
    """
    return delays_by_airport(flights, airports)


@table(
    group="marts",
    partitions=MONTHLY,
    partition_by={"month": "month"},
    unique=["month", "carrier"],
    lineage={
        **_FROM_FLIGHTS,
        "month": ["flights.dt"],
        "carrier": ["flights.carrier"],
        "airline": ["airlines.name"],
        "seats": ["planes.seats"],
        "mean_plane_age": ["flights.year", "planes.year"],
    },
    automation_condition=FOLLOW_UPSTREAM,
)
def carrier_scorecard(flights: DataFrame, airlines: DataFrame, planes: DataFrame) -> DataFrame:
    """How each airline did in a month, from every day of it.

    Columns:
    - `month`: As "2013-01", the table's partition.
    - `flights`: How many there were, cancelled ones too.
    - `late_share`: The share of those that arrived 15 minutes late, or later.
    - `seats`: On flights that left, where the plane is known.
    - `mean_plane_age`: Years.
    """
    return score_carriers(flights, airlines, planes)
