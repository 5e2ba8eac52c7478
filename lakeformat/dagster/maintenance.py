"""`maintenance(assets)`: jobs, sensors and schedules that maintain the tables of a repository's assets."""

from collections.abc import Iterable
from typing import Any

import dagster as dg

from lakeformat.dagster.sensors import compaction_sensor, expiry_sensor
from lakeformat.dagster.tables import refuse_unpublished, tables_of
from lakeformat.dagster.upkeep import Upkeep, maintain_job, sweep_job


def maintenance(
    assets: Iterable[Any],
    *,
    upkeep: Upkeep | None = None,
    sweep_cron: str = "0 4 * * 0",
    timezone: str = "UTC",
    running: bool = True,
    io_manager_key: str = "io_manager",
) -> dg.Definitions:
    """Definitions that maintain the tables of `assets`, to be merged into a repository's definitions:

        defs = dg.Definitions.merge(dg.Definitions(assets=assets, resources={"lake": lake, ...}), maintenance(assets))

    They are: the job `maintain` (compaction, expiry), which takes the tables one after the other, each in the pool of
    its asset; the sensors `compaction` and `snapshot_expiry`, which request it when the limits of `upkeep` (by default
    `Upkeep()`) are exceeded; the job `sweep_orphans` and its schedule `sweep`, at `sweep_cron`. An asset whose metadata
    has `"maintenance": False` is left out. Sensors and schedule are running by default, unless `running` is False. All
    use the resource `lake`, a `LakeResource`, or those that assets name (metadata `lake`); the resource `upkeep` is
    included, and the launchpad can change it for a run. `io_manager_key`: see `tables_of`.
    """
    limits = upkeep or Upkeep()
    all_tables = tables_of(assets, io_manager_key=io_manager_key)
    refuse_unpublished(all_tables)
    tables = {name: asset for name, asset in all_tables.items() if asset.maintained}
    for table in tables.values():
        limits.of(table)  # What it declares is checked.
    maintain, sweep = maintain_job(tables), sweep_job(tables)
    status = dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED
    return dg.Definitions(
        jobs=[maintain, sweep],
        sensors=[compaction_sensor(tables, maintain, status), expiry_sensor(tables, maintain, status)],
        schedules=[
            dg.ScheduleDefinition(
                name="sweep",
                job=sweep,
                cron_schedule=sweep_cron,
                execution_timezone=timezone,
                default_status=dg.DefaultScheduleStatus.RUNNING if running else dg.DefaultScheduleStatus.STOPPED,
                description="Removes orphan files of every table.",
            )
        ],
        resources={"upkeep": limits},
    )
