"""Paimon and Iceberg tables as Dagster assets, for any repository: `pip install 'lakeformat[dagster]'`."""

from lakeformat.dagster.audit import published
from lakeformat.dagster.cdc import CdcRun, CdcSource, cdc_assets, lag_checks, lag_sensor
from lakeformat.dagster.checks import check_specs, checks_for, run_checks
from lakeformat.dagster.components import (
    LakeCdcComponent,
    LakeComponent,
    LakeModelsComponent,
    LakeSqlComponent,
    LakeTableComponent,
)
from lakeformat.dagster.declaration import with_column_schema
from lakeformat.dagster.external import external_tables, freshness_checks
from lakeformat.dagster.io_manager import LakeIOManager
from lakeformat.dagster.lake import LakeResource
from lakeformat.dagster.maintenance import maintenance, maintenance_of
from lakeformat.dagster.rerun import preview_rerun, rerun_partitions
from lakeformat.dagster.sensors import foreign_commits
from lakeformat.dagster.spark import SparkResource, SparkUnavailable
from lakeformat.dagster.sql_table import sql_table
from lakeformat.dagster.tables import TableAsset, tables_of
from lakeformat.dagster.upkeep import Upkeep

__all__ = [
    "CdcRun",
    "CdcSource",
    "LakeCdcComponent",
    "LakeComponent",
    "LakeIOManager",
    "LakeModelsComponent",
    "LakeResource",
    "LakeSqlComponent",
    "LakeTableComponent",
    "SparkResource",
    "SparkUnavailable",
    "TableAsset",
    "Upkeep",
    "cdc_assets",
    "check_specs",
    "checks_for",
    "external_tables",
    "foreign_commits",
    "freshness_checks",
    "lag_checks",
    "lag_sensor",
    "maintenance",
    "maintenance_of",
    "preview_rerun",
    "published",
    "rerun_partitions",
    "run_checks",
    "sql_table",
    "tables_of",
    "with_column_schema",
]
