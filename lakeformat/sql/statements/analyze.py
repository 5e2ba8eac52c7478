"""ANALYZE TABLE: column statistics, stored in the table for query planners."""

from __future__ import annotations

import pyarrow as pa

from lakeformat.errors import UnsupportedFeature
from lakeformat.model.schema import spelled
from lakeformat.sql import names
from lakeformat.sql.result import Result, listing
from lakeformat.sql.session import Context
from lakeformat.sql.text import Cursor


def analyze(context: Context, cursor: Cursor) -> Result:
    """`ANALYZE TABLE t COMPUTE STATISTICS [FOR COLUMNS a, b | FOR ALL COLUMNS]`; all columns by default. The result is
    the location of the statistics file."""
    start = cursor.offset
    cursor.expect("ANALYZE")
    if not cursor.take("TABLE"):
        cursor.refuse(f"ANALYZE {cursor.word()}; supported: ANALYZE TABLE t COMPUTE STATISTICS", start)
    at = cursor.offset
    table = names.table(context, cursor.path(), f"SQL at {context.script.position(at)}")
    if cursor.peek("PARTITION"):
        cursor.refuse("PARTITION in ANALYZE TABLE; statistics are of the whole table: leave it out")
    cursor.expect("COMPUTE", "STATISTICS")
    if cursor.peek("NOSCAN"):
        cursor.refuse("NOSCAN in ANALYZE TABLE; the numbers of rows and bytes are in the table's metadata already")
    columns = None
    if cursor.take("FOR", "COLUMNS"):
        fields = table.schema.fields
        columns = [spelled(fields, cursor.part())]
        while cursor.take(","):
            columns.append(spelled(fields, cursor.part()))
    elif not cursor.done:
        cursor.expect("FOR", "ALL", "COLUMNS")
    cursor.close()
    try:
        path = table.compute_table_stats(columns)
    except UnsupportedFeature as error:
        raise context.script.unsupported(start, f"ANALYZE TABLE: {error}") from error
    return listing({"statistics_file": pa.string()}, [(path,)])
