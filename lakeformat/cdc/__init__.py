"""Change data capture from PostgreSQL and MySQL into tables, in bounded micro-batches that are applied exactly once."""

from typing import TYPE_CHECKING

from lakeformat import lazy

if TYPE_CHECKING:
    from lakeformat.cdc.address import open_source
    from lakeformat.cdc.lag import lag_seconds
    from lakeformat.cdc.mysql.source import MySql
    from lakeformat.cdc.postgres.source import Postgres
    from lakeformat.cdc.report import Report
    from lakeformat.cdc.sync import sync_database, sync_table
    from lakeformat.cdc.type_option import OnMisfit, TypeOption

__all__ = [
    "MySql",
    "OnMisfit",
    "Postgres",
    "Report",
    "TypeOption",
    "lag_seconds",
    "open_source",
    "sync_database",
    "sync_table",
]

__getattr__ = lazy.names(
    __name__,
    {
        "MySql": "mysql.source",
        "OnMisfit": "type_option",
        "Postgres": "postgres.source",
        "Report": "report",
        "TypeOption": "type_option",
        "lag_seconds": "lag",
        "open_source": "address",
        "sync_database": "sync",
        "sync_table": "sync",
    },
)
