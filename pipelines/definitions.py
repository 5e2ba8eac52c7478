"""Everything Dagster loads: `workspace.yaml` points here."""

import dagster as dg

from lakeformat.dagster import (
    LakeResource,
    SparkResource,
    Upkeep,
    checks_for,
    foreign_commits,
    maintenance,
    rerun_partitions,
)
from pipelines.jobs import JOBS
from pipelines.schedules import SCHEDULES
from pipelines.tables import ASSETS
from resources import lake, resources_of, spark

follow_upstream = dg.AutomationConditionSensorDefinition(
    "follow_upstream",
    target=dg.AssetSelection.all(),
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Runs downstream partitions after any of their upstream partitions has changed, however old.",
)


def definitions(lake: LakeResource, spark: SparkResource, upkeep: Upkeep) -> dg.Definitions:
    """The project over a warehouse. Steps run in the run's process, so that they share one Spark session."""
    project = dg.Definitions(
        assets=ASSETS,
        asset_checks=checks_for(ASSETS),
        jobs=[*JOBS, rerun_partitions(ASSETS)],
        schedules=SCHEDULES,
        sensors=[foreign_commits(ASSETS), follow_upstream],
        executor=dg.in_process_executor,
        resources=resources_of(lake, spark),
    )
    return dg.Definitions.merge(project, maintenance(ASSETS, upkeep=upkeep))


defs = definitions(lake, spark, Upkeep())
