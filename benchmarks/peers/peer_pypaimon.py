"""pypaimon's side of the benchmarks: each verb returns the seconds that count."""

from __future__ import annotations

import gc
import io
import shutil
import time
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from serve import serve


def plan(warehouse: str, table: str, files: int) -> float:
    gc.collect()
    started = time.perf_counter()
    found = CatalogFactory.create({"warehouse": warehouse}).get_table(table)
    splits = found.new_read_builder().new_scan().plan().splits()
    took = time.perf_counter() - started
    assert sum(len(split.files) for split in splits) == files, len(splits)
    return took


def decode(path: str, entries: int) -> float:
    """A bare Avro decode, by the library that pypaimon decodes manifests with."""
    data = Path(path).read_bytes()
    gc.collect()
    started = time.perf_counter()
    found = list(fastavro.reader(io.BytesIO(data)))
    took = time.perf_counter() - started
    assert len(found) == entries, len(found)
    return took


def append(warehouse: str, source: str, partition_by: list[str], properties: dict[str, str]) -> float:
    """Write the rows of an Arrow file to a new table, and commit them."""
    with pa.memory_map(source) as file:
        rows = pa.ipc.open_file(file).read_all()
        shutil.rmtree(warehouse, ignore_errors=True)
        catalog = CatalogFactory.create({"warehouse": warehouse})
        catalog.create_database("bench", True)
        schema = Schema.from_pyarrow_schema(rows.schema, partition_keys=partition_by, options=properties)
        catalog.create_table("bench.rows", schema, False)
        gc.collect()
        started = time.perf_counter()
        count = _append(catalog.get_table("bench.rows"), rows)
        took = time.perf_counter() - started
        assert count == len(rows), count
        return took


def keyed_write(warehouse: str, source: str, key: list[str], properties: dict[str, str]) -> float:
    """Write the rows of an Arrow file to a new table with a primary key, and commit them."""
    with pa.memory_map(source) as file:
        rows = pa.ipc.open_file(file).read_all()
        catalog = CatalogFactory.create({"warehouse": warehouse})
        catalog.create_database("bench", True)
        schema = Schema.from_pyarrow_schema(rows.schema, primary_keys=key, options=properties)
        catalog.create_table("bench.rows", schema, False)
        gc.collect()
        started = time.perf_counter()
        _append(catalog.get_table("bench.rows"), rows)
        return time.perf_counter() - started


def keyed_read(warehouse: str, rows: int) -> float:
    """Read all rows, merged by key."""
    table = CatalogFactory.create({"warehouse": warehouse}).get_table("bench.rows")
    gc.collect()
    started = time.perf_counter()
    builder = table.new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    took = time.perf_counter() - started
    assert found.num_rows == rows, found.num_rows
    return took


def _append(table: Any, rows: pa.Table) -> int:
    builder = table.new_batch_write_builder()
    writer, committer = builder.new_write(), builder.new_commit()
    writer.write_arrow(rows)
    committer.commit(writer.prepare_commit())
    writer.close()
    committer.close()
    return table.snapshot_manager().get_latest_snapshot().total_record_count


VERBS = (plan, decode, append, keyed_write, keyed_read)
serve({verb.__name__: verb for verb in VERBS})
