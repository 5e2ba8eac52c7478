"""Spark frames: the changes of each day are merged into an Iceberg table of orders,
and a Paimon table sums them up by month."""

import os

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeformat.dagster import LakeIOManager, LakeResource, SparkResource, checks_for, maintenance

DAILY = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-03-01")
MONTHLY = dg.MonthlyPartitionsDefinition("2026-01-01", end_date="2026-03-01")
ONE_RUN = dg.BackfillPolicy.single_run()
NEWEST_WINS = {
    "on": "t.id = s.id",
    "matched": [{"when": "s.changed > t.changed", "then": "update_all"}],
    "not_matched": [{"then": "insert_all"}],
}


@dg.asset(partitions_def=DAILY, metadata={"partition_by": {"date": "changed"}}, backfill_policy=ONE_RUN)
def changes(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """Changes of orders, by day: each order is placed, and changed once more a day later."""
    rows = [(int(day[-2:]) - late, day, 10.0 + late) for day in context.partition_keys for late in (0, 1)]
    return spark.session.createDataFrame(rows, "id int, changed string, amount double")


@dg.asset(
    partitions_def=DAILY,
    metadata={"format": "iceberg", "write": "merge", "merge": NEWEST_WINS, "unique_key": ["id"]},
    backfill_policy=ONE_RUN,
)
def orders(changes: DataFrame) -> DataFrame:
    """Every order as it is now."""
    return changes.groupBy("id").agg(F.max("changed").alias("changed"), F.max_by("amount", "changed").alias("amount"))


@dg.asset(partitions_def=MONTHLY, metadata={"partition_by": {"date": "month"}}, backfill_policy=ONE_RUN)
def monthly_totals(changes: DataFrame) -> DataFrame:
    """How many changes each month had, and of how many orders."""
    month = F.concat(F.substring("changed", 1, 7), F.lit("-01")).alias("month")
    return changes.groupBy(month).agg(F.count("*").alias("changes"), F.countDistinct("id").alias("orders"))


assets = [changes, orders, monthly_totals]
lake = LakeResource(warehouse=os.environ.get("WAREHOUSE", "warehouse"), database="shop")
spark = SparkResource()
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=assets,
        asset_checks=checks_for(assets),
        jobs=[dg.define_asset_job("daily", [changes, orders])],
        resources={"lake": lake, "spark": spark, "io_manager": LakeIOManager(lake=lake, spark=spark)},
        executor=dg.in_process_executor,  # A run has one session.
    ),
    maintenance(assets),
)
