"""paimon-rust's side of the benchmarks. Each verb returns wall and processor seconds."""

from __future__ import annotations

import gc

import pyarrow as pa
from pypaimon_rust.datafusion import PaimonCatalog
from serve import serve
from timing import both_times


def plan(warehouse: str, table: str) -> list[float]:
    """From opening the catalog to the splits."""

    def work() -> None:
        found = PaimonCatalog({"warehouse": warehouse}).get_table(table).new_read_builder().new_scan().plan().splits()
        assert found

    gc.collect()
    return both_times(work)


def merged(warehouse: str, table: str, rows: int) -> list[float]:
    """All rows, merged by key, as an Arrow table."""
    opened = PaimonCatalog({"warehouse": warehouse}).get_table(table)

    def work() -> None:
        builder = opened.new_read_builder()
        found = pa.Table.from_batches(builder.new_read().read(builder.new_scan().plan().splits()))
        assert found.num_rows == rows, found.num_rows

    gc.collect()
    return both_times(work)


serve({"plan": plan, "merged": merged})
