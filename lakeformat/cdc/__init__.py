"""Change data capture: tables that follow those of a database, by bounded micro-batches that happen once."""

from lakeformat.cdc.follow import Report
from lakeformat.cdc.mysql import MySql
from lakeformat.cdc.postgres import Postgres
from lakeformat.cdc.source import TypeOption
from lakeformat.cdc.sync import sync_database, sync_table

__all__ = ["MySql", "Postgres", "Report", "TypeOption", "sync_database", "sync_table"]
