"""The planes that fly: a table by tail number that every day's flights bring up to date."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.nycflights13 import read
from assets.raw import SOURCE
from assets.table import DAILY, FOLLOW_UPSTREAM, table
from resources.spark import SparkResource

REGISTERED = ("year", "type", "manufacturer", "model", "engines", "seats", "speed", "engine")


def planes_of(flights: DataFrame, registry: DataFrame) -> DataFrame:
    """Each plane of these flights as its last one leaves it: who flew it, when, and what the registry knows of it."""
    last = F.max_by(F.struct("carrier", "dest", "time_hour"), "time_hour")
    flown = flights.filter("tailnum is not null and dep_time is not null").groupBy("tailnum").agg(last.alias("last"))
    seen = flown.select(
        "tailnum", "last.carrier", F.col("last.dest").alias("flew_to"), F.col("last.time_hour").alias("last_seen")
    )
    return seen.join(registry, "tailnum", "left").select("tailnum", *REGISTERED, "carrier", "flew_to", "last_seen")


@table(
    group="fleet",
    partitions=DAILY,
    write="upsert",
    primary_key=["tailnum"],
    table_properties={"bucket": "2", "sequence.field": "last_seen"},
    unique=["tailnum"],
    lineage={
        "tailnum": ["flights.tailnum"],
        **{name: [f"nycflights13.{name}"] for name in REGISTERED},
        "carrier": ["flights.carrier"],
        "flew_to": ["flights.dest"],
        "last_seen": ["flights.time_hour"],
    },
    deps=[SOURCE],
    automation_condition=FOLLOW_UPSTREAM,
)
def planes(flights: DataFrame, spark: SparkResource) -> DataFrame:
    """Planes by tail number: year built, maker, model, seats, and who flew it last. A day that is run again changes no plane
    that has flown since."""
    return planes_of(flights, spark.session.createDataFrame(read("planes")))
