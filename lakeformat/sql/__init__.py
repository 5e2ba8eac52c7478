"""SQL over a lake: statements -> verbs of tables, queries -> DuckDB in this process, or Spark.

The first access to one of these names loads the statements and the parser.
"""

from typing import TYPE_CHECKING

from lakeformat import lazy

if TYPE_CHECKING:
    from lakeformat.sql.result import Result
    from lakeformat.sql.router import expression, parameter_names, run, tables
    from lakeformat.sql.session import Session

__all__ = ["Result", "Session", "expression", "parameter_names", "run", "tables"]

_OF_ROUTER = ("expression", "parameter_names", "run", "tables")
__getattr__ = lazy.names(__name__, {"Result": "result", "Session": "session", **dict.fromkeys(_OF_ROUTER, "router")})
