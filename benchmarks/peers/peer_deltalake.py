"""delta-rs's side of the benchmarks. Each timed verb returns wall and processor seconds."""

from __future__ import annotations

import gc
import time

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from serve import serve


def load(source: str, location: str) -> int:
    """A table with the rows of the Parquet files in `source`, partitioned by their first column; how many it holds."""
    rows = ds.dataset(source).to_table()
    write_deltalake(location, rows, partition_by=rows.column_names[:1])
    return DeltaTable(location).count()


def merge(location: str, changes: str, key: list[str], updated: list[str], rows: int) -> list[float]:
    """Merge the rows of a Parquet file: `updated` columns of those whose `key` is there, all of the others."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    chain = DeltaTable(location).merge(
        pq.read_table(changes),
        predicate=" and ".join(f"t.{name} = s.{name}" for name in key),
        source_alias="s",
        target_alias="t",
    )
    chain = chain.when_matched_update({name: f"s.{name}" for name in updated})
    chain.when_not_matched_insert_all().execute()
    took = [time.perf_counter() - wall, time.process_time() - processor]
    found = DeltaTable(location).count()
    assert found == rows, found
    return took


VERBS = (load, merge)
serve({verb.__name__: verb for verb in VERBS})
