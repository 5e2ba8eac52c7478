"""Jobs over assets: every day's tables, every month's, the reference tables, and the tables of changes."""

import dagster as dg

from assets.table import DAILY, MONTHLY
from pipelines.tables import named, replaced

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
    selection=sorted(set(named(None)) - set(replaced(named(None)))),
    description="The tables of what changed in others: fleet_changes.",
)

JOBS = [daily, monthly, reference, changes]
