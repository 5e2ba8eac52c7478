"""The project's resources, configured: the warehouse, a Spark session, and the bridge between assets and tables."""

import os
from pathlib import Path

from lakeformat.dagster import LakeIOManager, LakeResource, SparkResource

DATABASE = "nyc"


def resources_of(lake: LakeResource, spark: SparkResource) -> dict[str, object]:
    """What the assets ask for by name, over a warehouse."""
    return {"lake": lake, "spark": spark, "io_manager": LakeIOManager(lake=lake, spark=spark)}


def warehouse() -> str:
    """`LAKE_WAREHOUSE`, a path or URI; without it `./warehouse`."""
    where = os.environ.get("LAKE_WAREHOUSE") or "warehouse"
    return where if "://" in where else str(Path(where).absolute())


lake = LakeResource(warehouse=warehouse(), database=DATABASE)
spark = SparkResource()
