"""What planning a table of very many files costs: processor time and memory, each part by itself.

`python -m benchmarks.million FOLDER FILES` declares the table first, in a process of its own, where it is not there yet.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import planning
from lakeformat import Lake


def main(folder: Path, files: int) -> None:
    if not folder.exists():
        planning.declare(folder, files)
        print(f"declared {files:,} files; run it again to plan them")
        return
    table = Lake(str(folder)).table("bench.files")
    measure("plan all, cold", lambda: table.scan().plan())
    measure("plan all again", lambda: table.scan().plan())
    measure("plan one partition", lambda: table.scan(where="dt = '2024-01-05'").plan())
    measure("plan one partition again", lambda: table.scan(where="dt = '2024-01-06'").plan())
    measure("plan a point", lambda: table.scan(where="id = 1000003").plan())
    measure("count", lambda: table.scan().count())


def measure(what: str, work: Callable[[], object]) -> None:
    started = time.process_time()
    work()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{what}: {time.process_time() - started:.3f} s of processor time, peak {peak_mib} MiB", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
