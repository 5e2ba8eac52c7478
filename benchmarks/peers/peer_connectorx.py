"""ConnectorX's side of the benchmarks: each verb returns the processor seconds that count."""

from __future__ import annotations

import gc
import time

import connectorx
from serve import serve


def select(url: str, table: str, rows: int) -> float:
    """A whole table into Arrow."""
    gc.collect()
    started = time.process_time()
    found = connectorx.read_sql(url, f"SELECT * FROM {table}", return_type="arrow")
    took = time.process_time() - started
    assert found.num_rows == rows, found.num_rows
    return took


serve({"select": select})
