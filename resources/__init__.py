"""The project's resources, configured: the warehouse, a Spark session, and the bridge between assets and tables."""

import os
from pathlib import Path

import dagster as dg

from lakeformat.dagster import CdcSource, LakeIOManager, LakeResource, SparkResource

DATABASE = "nyc"
BOOKING_SYSTEM, BOOKING_SYSTEM_DSN = "booking_system", "BOOKING_SYSTEM_DSN"


def resources_of(lake: LakeResource, spark: SparkResource) -> dict[str, object]:
    """What the assets ask for by name, over a warehouse."""
    return {"lake": lake, "spark": spark, "io_manager": LakeIOManager(lake=lake, spark=spark), **booking_system()}


def booking_system() -> dict[str, CdcSource]:
    """The database that bookings are followed from, where `BOOKING_SYSTEM_DSN` has its address;
    without it they are made up."""
    return {BOOKING_SYSTEM: CdcSource(url=dg.EnvVar(BOOKING_SYSTEM_DSN))} if os.environ.get(BOOKING_SYSTEM_DSN) else {}


def warehouse() -> str:
    """`LAKE_WAREHOUSE`, a path or URI; without it `./warehouse`."""
    where = os.environ.get("LAKE_WAREHOUSE") or "warehouse"
    return where if "://" in where else str(Path(where).absolute())


lake = LakeResource(warehouse=warehouse(), database=DATABASE)
spark = SparkResource()
