"""Schedules. The data is of 2013, so time is replayed: a tick on 5 March runs 4 March 2013.

They run as soon as the project is opened; `LAKE_SCHEDULES=off` leaves them to be switched on under Automation.
"""

import os
from datetime import date, datetime, timedelta

import dagster as dg

from assets.table import MONTHLY, START
from pipelines.jobs import daily, monthly

OFF = os.environ.get("LAKE_SCHEDULES", "on").lower() == "off"
STATUS = dg.DefaultScheduleStatus.STOPPED if OFF else dg.DefaultScheduleStatus.RUNNING
LATE_DAYS = 3
_YEAR = date.fromisoformat(START).year


def replayed(today: date) -> date:
    """The day of 2013 that stands for `today`."""
    last_of_february = today.month == 2 and today.day == 29
    return today.replace(year=_YEAR, day=28 if last_of_february else today.day)


def days_before(today: date, count: int) -> list[str]:
    """The partition keys of the last `count` days before `today`, as far as the data goes back."""
    last = replayed(today)
    days = [(last - timedelta(days=n)).isoformat() for n in range(count, 0, -1)]
    return [day for day in days if day >= START]


def _range(keys: list[str]) -> dict[str, str]:
    return {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}


@dg.schedule(
    job=daily,
    cron_schedule="0 2 * * *",
    execution_timezone="UTC",
    default_status=STATUS,
    description="Yesterday's partition of every daily table.",
)
def nightly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    tick: datetime = context.scheduled_execution_time
    keys = days_before(tick.date(), 1)
    if not keys:
        return dg.SkipReason(f"there is no data before {START}")
    return dg.RunRequest(run_key=f"nightly:{tick:%Y%m%d}", partition_key=keys[0])


@dg.schedule(
    job=daily,
    cron_schedule="30 3 * * *",
    execution_timezone="UTC",
    default_status=STATUS,
    description="The last days again, for rows that came late: one range run, one snapshot per table.",
)
def late_data(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    tick: datetime = context.scheduled_execution_time
    keys = days_before(tick.date(), LATE_DAYS)
    if not keys:
        return dg.SkipReason(f"there is no data before {START}")
    return dg.RunRequest(run_key=f"late:{keys[0]}:{keys[-1]}:{tick:%Y%m%d}", tags=_range(keys))


@dg.schedule(
    job=monthly,
    cron_schedule="0 5 1 * *",
    execution_timezone="UTC",
    default_status=STATUS,
    description="Last month's partition of every monthly table.",
)
def month_end(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    tick: datetime = context.scheduled_execution_time
    last = (replayed(tick.date()).replace(day=1) - timedelta(days=1)).replace(day=1).isoformat()
    if last not in MONTHLY.get_partition_keys():
        return dg.SkipReason(f"there is no data before {START}")
    days = context.instance.get_materialized_partitions(dg.AssetKey("flights"))
    if not any(day[:7] == last[:7] for day in days):
        return dg.SkipReason(f"no day of {last[:7]} has been materialized")
    return dg.RunRequest(run_key=f"month:{tick:%Y%m}", partition_key=last)


SCHEDULES = [nightly, late_data, month_end]
