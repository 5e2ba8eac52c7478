"""Components for `dg`: a warehouse, and the tables in it, declared in YAML.

    dg scaffold defs lakeformat.dagster.LakeComponent lake --warehouse /data/warehouse
    dg scaffold defs lakeformat.dagster.LakeTableComponent orders --table shop.orders --partitions daily --start-date
    2026-01-01

The YAML of a table uses the names of `lakeformat.dagster.declaration`, with the same meaning.
"""

from lakeformat.dagster.components.database import LakeCdcComponent
from lakeformat.dagster.components.lake import LakeComponent
from lakeformat.dagster.components.models import LakeModelsComponent
from lakeformat.dagster.components.query import LakeSqlComponent
from lakeformat.dagster.components.table import LakeTableComponent

__all__ = ["LakeCdcComponent", "LakeComponent", "LakeModelsComponent", "LakeSqlComponent", "LakeTableComponent"]
