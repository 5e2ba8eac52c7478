"""SQL over a lake: statements -> verbs of tables, queries -> DuckDB in this process, or Spark."""

from lakeformat.sql.result import Result
from lakeformat.sql.router import run, tables
from lakeformat.sql.session import Session

__all__ = ["Result", "Session", "run", "tables"]
