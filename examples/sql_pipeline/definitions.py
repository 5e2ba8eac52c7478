"""A pipeline in SQL: each `.sql` file beside this one is a partitioned table, made in this process, without Spark."""

import os
from pathlib import Path

import dagster as dg
import pyarrow as pa

from lakeformat.dagster import LakeIOManager, LakeResource, checks_for, maintenance, sql_table

HERE = Path(__file__).parent
DAILY = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-03-01")
BY_DAY = {"partition_by": {"date": "day"}}
PRODUCTS = ["apples", "bread", "cheese"]


@dg.asset(partitions_def=DAILY, metadata=BY_DAY, backfill_policy=dg.BackfillPolicy.single_run())
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    """Every order, by the day it was placed: stands for the system that you read from."""
    rows = [
        (day, product, 5.0 * i + int(day[-2:])) for day in context.partition_keys for i, product in enumerate(PRODUCTS)
    ]
    days, products, amounts = zip(*rows, strict=True)
    return pa.table({"day": days, "product": products, "amount": amounts})


revenue = sql_table(HERE / "revenue.sql", partitions_def=DAILY, metadata={**BY_DAY, "format": "iceberg"})
best_product = sql_table(HERE / "best_product.sql", partitions_def=DAILY, metadata={**BY_DAY, "unique_key": ["day"]})

assets = [orders, revenue, best_product]
lake = LakeResource(warehouse=os.environ.get("WAREHOUSE", "warehouse"), database="shop")
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=assets,
        asset_checks=checks_for(assets),
        jobs=[dg.define_asset_job("daily", assets)],
        resources={"lake": lake, "io_manager": LakeIOManager(lake=lake)},
    ),
    maintenance(assets),
)
