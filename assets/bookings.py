"""Seats sold on the flights: what happened to each booking, its state by MERGE, and what the routes earn."""

from collections.abc import Sequence
from datetime import date, timedelta

import dagster as dg
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assets.nycflights13 import read_days
from assets.raw import SOURCE
from assets.table import DAILY, FOLLOW_UPSTREAM, OWNER, table
from lakeformat.dagster import SparkResource, cdc_assets
from resources import BOOKING_SYSTEM, booking_system

SEED = 2013
MOST_DAYS_AHEAD = 30
MOST_SEATS = 3
CHANGED_SHARE, CANCELLED_SHARE = 0.20, 0.08

EVENT = (
    "event_date", "event_at", "op", "booking_id", "booked_at", "flight_date", "carrier", "flight", "origin", "dest",
    "cabin", "fare",
)  # fmt: skip


def events_of(flights: DataFrame, days: Sequence[str]) -> DataFrame:
    """What happened on `days` to bookings of `flights`: `op` is booked, changed or cancelled.

    Up to three seats of each flight are followed. A seat is booked 1 to 30 days before the flight; one in five is then
    changed to a dearer cabin and one in twelve cancelled, by the day of the flight at the latest. Every event carries
    the whole booking as it is then. All of it follows from the flight's key and `SEED`.
    """
    flown = F.to_date("dt")
    seats = (
        flights.withColumn("seat", F.explode(F.sequence(F.lit(1), F.lit(MOST_SEATS))))
        .withColumn("booking_id", F.concat_ws("-", "dt", "carrier", "flight", "origin", "seat"))
        .withColumn("lead", 1 + F.floor(_chance(1) * MOST_DAYS_AHEAD).cast("int"))
        .withColumn("booked_on", F.date_sub(flown, F.col("lead")))
        .withColumn("changed_on", F.date_add("booked_on", 1 + F.floor(_chance(2) * F.col("lead")).cast("int")))
        .withColumn("cancelled_on", F.date_add("booked_on", 1 + F.floor(_chance(3) * F.col("lead")).cast("int")))
        .withColumn("is_cancelled", _chance(4) < CANCELLED_SHARE)
        .withColumn(
            "is_changed",
            (_chance(5) < CHANGED_SHARE) & ~(F.col("is_cancelled") & (F.col("cancelled_on") <= F.col("changed_on"))),
        )
        .withColumn("base", 40 + F.coalesce("distance", F.lit(500)) * 0.11 + _chance(6) * 60)
    )
    happened = F.array(
        _event("booked", F.col("booked_on")),
        _event("changed", F.when(F.col("is_changed"), F.col("changed_on"))),
        _event("cancelled", F.when(F.col("is_cancelled"), F.col("cancelled_on"))),
    )
    dearer = F.col("is_changed") & (F.col("event_date") >= F.col("changed_on"))
    return (
        seats.withColumn("event", F.explode(happened))
        .select("*", "event.*")
        .filter(F.col("event_date").isin([date.fromisoformat(day) for day in days]))
        .withColumn("event_at", _moment(F.col("event_date"), F.col("op")))
        .withColumn("booked_at", _moment(F.col("booked_on"), F.lit("booked")))
        .withColumn("flight_date", flown)
        .withColumn("cabin", F.when(dearer, "business").otherwise("economy"))
        .withColumn("fare", F.round(F.col("base") * F.when(dearer, 2.6).otherwise(1.0), 2).cast("decimal(10, 2)"))
        .select(*EVENT)
    )


def latest(events: DataFrame) -> DataFrame:
    """The last event of each booking."""
    last_first = Window.partitionBy("booking_id").orderBy(F.col("event_at").desc())
    return events.withColumn("place", F.row_number().over(last_first)).filter("place = 1").drop("place", "event_date")


def earn_by_route(flights: DataFrame, bookings: DataFrame) -> DataFrame:
    """One row for each day and route: flights, seats sold and cancelled, and what the seats that were kept cost."""
    flown = flights.groupBy("dt", "origin", "dest").agg(F.count("*").alias("flights"))
    kept = F.when(F.col("op") != "cancelled", F.col("fare"))
    sold = bookings.groupBy(F.date_format("flight_date", "yyyy-MM-dd").alias("dt"), "origin", "dest").agg(
        F.count("*").alias("sold"),
        F.count(F.when(F.col("op") == "cancelled", 1)).alias("cancelled"),
        F.sum(kept).cast("decimal(14, 2)").alias("revenue"),
    )
    return flown.join(sold, ["dt", "origin", "dest"], "left").fillna(0, ["sold", "cancelled"])


def _chance(number: int) -> Column:
    """A number in [0, 1) that follows from the booking and `SEED`."""
    return F.pmod(F.xxhash64("booking_id", F.lit(SEED), F.lit(number)), F.lit(1 << 20)) / (1 << 20)


def _event(op: str, day: Column) -> Column:
    """What happens to a booking on a day; null if it does not."""
    return F.struct(F.lit(op).alias("op"), day.alias("event_date"))


def _moment(day: Column, op: Column) -> Column:
    """A time of that day; a later event of a booking never has an earlier one."""
    second = F.pmod(F.xxhash64("booking_id", op, F.lit(SEED)), F.lit(86_400))
    return F.timestamp_seconds(F.unix_date(day).cast("long") * 86_400 + second)


@table(
    group="bookings",
    format="iceberg",
    partitions=DAILY,
    partition_by={"date": "event_date"},
    unique=["booking_id", "op"],
    lineage={
        **{name: ["nycflights13.dt"] for name in ("event_date", "event_at", "op", "booked_at", "flight_date")},
        "booking_id": [f"nycflights13.{name}" for name in ("dt", "carrier", "flight", "origin")],
        **{name: [f"nycflights13.{name}"] for name in ("carrier", "flight", "origin", "dest")},
        **{name: ["nycflights13.distance"] for name in ("cabin", "fare")},
    },
    deps=[SOURCE],
)
def booking_events(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """Seats booked, changed and cancelled on a day: a changelog, derived from the flights of the next 30 days.

    Columns:
    - `event_date`: The day it happened, the table's partition.
    - `event_at`: When it happened; a later event of a booking never has an earlier time.
    - `op`: booked, changed or cancelled.
    - `booked_at`: When the seat was booked first.
    - `fare`: Dollars.
    """
    days = context.partition_keys
    ahead = {date.fromisoformat(day) + timedelta(n) for day in days for n in range(MOST_DAYS_AHEAD + 1)}
    flights = read_days("flights", sorted(day.isoformat() for day in ahead))
    return events_of(spark.session.createDataFrame(flights), days)


@table(
    group="bookings",
    format="iceberg",
    partitions=DAILY,
    write="merge",
    layout=["days(booked_at)"],
    merge={
        "on": "t.booking_id = s.booking_id",
        "matched": [{"when": "s.event_at > t.event_at", "then": "update_all"}],
        "not_matched": [{"then": "insert_all"}],
    },
    unique=["booking_id"],
    lineage={"*": "booking_events"},
    automation_condition=FOLLOW_UPSTREAM,
)
def bookings(booking_events: DataFrame) -> DataFrame:
    """Every booking as it is now. A day that is run again changes nothing that a later event has changed since.

    Columns:
    - `event_at`: When its last event happened.
    - `op`: What that was: booked, changed or cancelled.
    - `booked_at`: When the seat was booked first; its days part the table.
    - `fare`: Dollars.
    """
    return latest(booking_events)


def followed_bookings() -> dg.AssetsDefinition:
    """Every booking as it is now in the booking system's own database, each change once; deleted ones go."""
    (asset,) = cdc_assets(
        BOOKING_SYSTEM,
        {"public.bookings": "bookings"},
        format="iceberg",
        metadata={"unique_key": ["booking_id"]},
        group_name="bookings",
        owners=[OWNER],
        tags={"domain": "flights"},
        automation_condition=dg.AutomationCondition.on_cron("*/5 * * * *"),
    )
    return asset


if booking_system():  # Each of its changes may be of any day, so `route_revenue` is left to its schedule.
    bookings = followed_bookings()
    FOLLOW_FLIGHTS = FOLLOW_UPSTREAM.ignore(dg.AssetSelection.assets("bookings"))
else:
    FOLLOW_FLIGHTS = FOLLOW_UPSTREAM


@table(
    group="bookings",
    partitions=DAILY,
    partition_by={"date": "dt"},
    unique=["dt", "origin", "dest"],
    lineage={
        "dt": ["flights.dt"],
        "origin": ["flights.origin"],
        "dest": ["flights.dest"],
        "flights": ["flights.flight"],
        "sold": ["bookings.booking_id"],
        "cancelled": ["bookings.op"],
        "revenue": ["bookings.fare", "bookings.op"],
    },
    automation_condition=FOLLOW_FLIGHTS,
)
def route_revenue(flights: DataFrame, bookings: DataFrame) -> DataFrame:
    """What each route earns, by day of flight: a Paimon table out of a Paimon and an Iceberg table.

    Columns:
    - `dt`: The day of the flights, the table's partition.
    - `sold`: Seats, cancelled ones too.
    - `revenue`: Dollars, for seats that were kept.
    """
    return earn_by_route(flights, bookings)
