"""The planes that fly: a table by tail number that every day's flights bring up to date."""

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.nycflights13 import read
from assets.raw import SOURCE
from assets.table import DAILY, FOLLOW_UPSTREAM, table
from lakeformat.dagster import LakeResource, SparkResource

REGISTERED = ("year", "type", "manufacturer", "model", "engines", "seats", "speed", "engine")


def planes_of(flights: DataFrame, registry: DataFrame) -> DataFrame:
    """Each plane of these flights as its last one leaves it: who flew it, when, and what the registry knows of it."""
    last = F.max(F.struct("time_hour", "flight", "carrier", "dest"))  # One of those of an hour, always the same.
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
    table_properties={
        "bucket": "2",
        "sequence.field": "last_seen",
        "changelog-producer": "lookup",
        "changelog-producer.row-deduplicate": "true",  # A day that is run again is no change.
    },
    metadata={"maintenance": {"max_small_files": 1}},  # Compaction writes the changelog: after every write.
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
    """Planes by tail number: year built, maker, model, seats, and who flew it last. A day that is run again changes no
    plane that has flown since.

    Columns:
    - `tailnum`: The plane, the table's primary key.
    - `year`: When it was built.
    - `seats`: How many it has.
    - `carrier`: Who flew it last.
    - `flew_to`: Where it went then.
    - `last_seen`: The hour in which that flight was to leave.
    """
    return planes_of(flights, spark.session.createDataFrame(read("planes")))


@table(
    group="fleet",
    write="append",
    unique=["tailnum", "last_seen", "_row_kind"],
    lineage={"*": "planes", "_row_kind": ["planes.tailnum"]},
    deps=["planes"],
    automation_condition=dg.AutomationCondition.any_deps_updated() & ~dg.AutomationCondition.in_progress(),
)
def fleet_changes(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
    """What changed in the fleet: a plane that is new (+I), and each that flew again as it was (-U) and as it is (+U).
    From the changelog that compaction of `planes` writes.

    Columns:
    - `_row_kind`: +I, -U or +U.
    """
    return lake.append_changes(context, "planes", changes_of)


def changes_of(rows: pa.Table) -> pa.Table:
    """The columns of a change: which plane, who flew it, where to and when."""
    return rows.select(["tailnum", "manufacturer", "model", "carrier", "flew_to", "last_seen", "_row_kind"])
