"""pyiceberg's side of the benchmarks: each verb returns the seconds that count."""

from __future__ import annotations

import gc
import time
from pathlib import Path

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


serve({"plan": plan, "write": write})
