"""Reads of plain tables now, against an earlier commit: `python -m benchmarks.before COMMIT`.

The earlier code writes the tables and runs in this environment from a worktree of its own; each turn is a process of
its own, and processor time counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
TURNS = 7

_MAKE = """
import sys
import numpy as np, pyarrow as pa
from lakeformat import Lake
many = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("s", pa.string()), ("p", pa.int32())])
def rows(start, count, parts):
    ids = np.arange(start, start + count)
    texts = pa.array([f"text {i % 1000}" for i in ids])
    return pa.table([pa.array(ids), pa.array(ids * 0.5), texts, pa.array(ids % parts, pa.int32())], schema=many)
for format in ("paimon", "iceberg"):
    lake = Lake(f"{sys.argv[1]}/{format}")
    whole = lake.create_table("d.whole", many, format=format)
    for at in range(8):
        whole.append(rows(at * 250_000, 250_000, 1))
    files = lake.create_table("d.files", many, format=format, partition_by=["p"])
    for at in range(20):
        files.append(rows(at * 1000, 1000, 100))
"""

_READ = """
import gc, json, sys, time
from lakeformat import Lake
def spent(work, times):
    gc.collect()
    began = time.process_time()
    for at in range(times):
        work(at)
    return (time.process_time() - began) / times
found = {}
for format in ("paimon", "iceberg"):
    place = f"{sys.argv[1]}/{format}"
    whole, files = Lake(place).table("d.whole"), Lake(place).table("d.files")
    works = {
        "open and plan 2,000 files": (lambda _: Lake(place).table("d.files").scan(where="p = 3 or v > 10").plan(), 3),
        "plan them again": (lambda _: files.scan(where="p = 3 or v > 10").plan(), 10),
        "scan 2,000,000 rows": (lambda _: whole.scan().to_arrow(), 2),
        "scan with a condition": (
            lambda _: whole.scan(["id", "s"], where="v < 900000 and s like 'text 1%'").to_arrow(), 2
        ),
        "point lookup": (lambda at: whole.scan(where=f"id = {at * 77777}").to_arrow(), 20),
        "point lookup by partition": (lambda at: files.scan(where=f"p = {at} and id = {at + 1000}").to_arrow(), 20),
    }
    for name, (work, times) in works.items():
        work(0)
        found[f"{format}: {name}"] = spent(work, times)
print(json.dumps(found))
"""


def _run(code: Path, script: str, folder: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(code)}
    done = subprocess.run(
        [sys.executable, "-c", script, folder], env=environment, check=True, stdout=subprocess.PIPE, cwd=folder
    )
    return done.stdout.decode()


def main(commit: str) -> None:
    """Print, for each kind of read, our processor time, that of `commit`, and the median of their ratios."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "-q", "--detach", str(before), commit], check=True)
        try:
            _run(before, _MAKE, folder)
            found = []
            for _ in range(TURNS):
                theirs = json.loads(_run(before, _READ, folder))
                found.append((json.loads(_run(ROOT, _READ, folder)), theirs))
            for name in found[0][0]:
                ours, theirs = [median(turn[side][name] for turn in found) * 1000 for side in (0, 1)]
                ratio = median(turn[0][name] / turn[1][name] for turn in found)
                print(f"{name}: {ours:.2f} ms, before {theirs:.2f} ms, ratio {ratio:.2f}")
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(before)], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
