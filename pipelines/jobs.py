"""Jobs over assets: every day's tables, every month's, the reference tables, and what tells of changes."""

from typing import Any

import dagster as dg

from assets.table import DAILY, MONTHLY
from pipelines.maintenance import maintain_job, sweep_job
from pipelines.rerun import rerun_job
from pipelines.tables import TABLE_ASSETS, named, replaced

daily = dg.define_asset_job(
    "daily", selection=named(DAILY), description="Every daily table, for a day or for a range of days."
)
monthly = dg.define_asset_job(
    "monthly", selection=named(MONTHLY), description="Every monthly table, for a month or for a range of months."
)
reference = dg.define_asset_job(
    "reference", selection=replaced(named(None)), description="The tables without partitions: airlines, airports."
)
changes = dg.define_asset_job(
    "changes",
    selection=[name for name in named(None) if name not in replaced(named(None))],
    description="The tables that tell what changed in others: fleet_changes.",
)

rerun_partitions = rerun_job()
sweep_orphans = sweep_job()
MAINTAIN = {name: maintain_job(name) for name in TABLE_ASSETS}

JOBS: list[Any] = [daily, monthly, reference, changes, rerun_partitions, sweep_orphans, *MAINTAIN.values()]
