"""ADBC's side of the benchmarks: each verb returns the seconds that count."""

from __future__ import annotations

import gc
import time

import adbc_driver_postgresql.dbapi as adbc
from serve import serve


def select(dsn: str, table: str, rows: int) -> float:
    """A whole table into Arrow."""
    with adbc.connect(dsn) as connection, connection.cursor() as cursor:
        gc.collect()
        started = time.perf_counter()
        cursor.execute(f"SELECT * FROM {table}")
        found = cursor.fetch_arrow_table()
        took = time.perf_counter() - started
        assert found.num_rows == rows, found.num_rows
    return took


serve({"select": select})
