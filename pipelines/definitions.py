"""Everything Dagster loads: `workspace.yaml` points here."""

import os
from pathlib import Path

import dagster as dg

from pipelines.checks import CHECKS
from pipelines.jobs import JOBS
from pipelines.maintenance import Upkeep
from pipelines.schedules import SCHEDULES
from pipelines.sensors import SENSORS
from pipelines.tables import ASSETS, DATABASE
from resources.io_manager import LakeIOManager
from resources.lake import LakeResource
from resources.spark import SparkResource


def warehouse() -> str:
    """`LAKE_WAREHOUSE`, a path or URI; without it `./warehouse`."""
    where = os.environ.get("LAKE_WAREHOUSE") or "warehouse"
    return where if "://" in where else str(Path(where).absolute())


def definitions(lake: LakeResource, spark: SparkResource, upkeep: Upkeep) -> dg.Definitions:
    """The project over a warehouse. Steps run in the run's process, so that they share one Spark session."""
    return dg.Definitions(
        assets=ASSETS,
        asset_checks=CHECKS,
        jobs=JOBS,
        schedules=SCHEDULES,
        sensors=SENSORS,
        executor=dg.in_process_executor,
        resources={
            "lake": lake,
            "spark": spark,
            "io_manager": LakeIOManager(lake=lake, spark=spark),
            "upkeep": upkeep,
        },
    )


defs = definitions(LakeResource(warehouse=warehouse(), database=DATABASE), SparkResource(), Upkeep())
