"""dlt's side of the benchmarks: its SQL source, read by ConnectorX, into Iceberg tables in a folder. Each verb returns
the processor seconds that count."""

from __future__ import annotations

import gc
import logging
import time
from typing import Any

import dlt
from dlt.sources.sql_database import sql_table
from serve import serve

logging.getLogger("dlt").setLevel(logging.ERROR)


def load(dsn: str, table: str, folder: str, rows: int, cursor: str | None = None) -> float:
    """A table into an Iceberg table in `folder`: all of it anew, or the rows whose `cursor` is above that of the load
    before, merged by their key."""
    made = dlt.destinations.filesystem(f"{folder}/lake")
    pipeline = dlt.pipeline(table, pipelines_dir=f"{folder}/state", destination=made, dataset_name="bench")
    arguments: dict[str, Any] = {"backend": "connectorx", "credentials": dsn, "table": table, "schema": "public"}
    if cursor is not None:
        arguments |= {"incremental": dlt.sources.incremental(cursor), "primary_key": "id"}
    disposition: Any = "replace" if cursor is None else {"disposition": "merge", "strategy": "upsert"}
    gc.collect()
    started = time.process_time()
    pipeline.run(sql_table(**arguments), write_disposition=disposition, table_format="iceberg").raise_on_failed_jobs()
    took = time.process_time() - started
    found = pipeline.last_trace.last_normalize_info.row_counts[table]
    assert found == rows, found
    return took


serve({"load": load})
