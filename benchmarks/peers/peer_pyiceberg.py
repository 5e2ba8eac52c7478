"""pyiceberg's side of the benchmarks: each verb returns the seconds that count."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import write_manifest
from pyiceberg.table import StaticTable
from serve import serve


def plan(metadata: str, files: int) -> float:
    """From the metadata file to the list of files to read."""
    gc.collect()
    started = time.perf_counter()
    found = list(StaticTable.from_metadata(metadata).scan().plan_files())
    took = time.perf_counter() - started
    assert len(found) == files, len(found)
    return took


def write(metadata: str, path: str, entries: int) -> float:
    """Write again, as one manifest, the entries of the table's only one."""
    table = StaticTable.from_metadata(metadata)
    snapshot = table.current_snapshot()
    io = PyArrowFileIO()
    (only,) = snapshot.manifests(io)
    kept = only.fetch_manifest_entry(io)
    assert len(kept) == entries, len(kept)
    output = io.new_output(Path(path).absolute().as_uri())
    gc.collect()
    started = time.perf_counter()
    with write_manifest(2, table.spec(), table.schema(), output, snapshot.snapshot_id, "deflate") as writer:
        for entry in kept:
            writer.add_entry(entry)
    return time.perf_counter() - started


def upsert(folder: str, rows: str, changes: str, key: list[str]) -> float:
    """Upsert the rows of one Arrow file by `key` into a new table of the rows of another, in a SQLite catalog."""
    home = Path(folder)
    home.mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{home}/catalog.db", warehouse=home.as_uri())
    catalog.create_namespace("bench")
    before, changed = (pa.ipc.open_file(pa.memory_map(path)).read_all() for path in (rows, changes))
    table = catalog.create_table("bench.rows", before.schema)
    table.append(before)
    gc.collect()
    started = time.perf_counter()
    done = table.upsert(changed, join_cols=key)
    took = time.perf_counter() - started
    assert done.rows_updated + done.rows_inserted == len(changed), done
    return took


serve({"plan": plan, "write": write, "upsert": upsert})
