"""What planning a table of very many files costs: processor time and memory, each part by itself, against the bars.

`python -m benchmarks.million FOLDER FILES [SHAPE]` declares the table first, in a process of its own, where it is not
there yet, and plans it the next time. As a benchmark it does both, for two shapes of Paimon tables. The shape `iceberg`
is an Iceberg table of the data of `mixed`.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas  # noqa: F401  # Arrow loads it when it is first asked for a Python list: not a part of planning.

from benchmarks import iceberg, planning
from benchmarks.measure import Figure, at_most
from lakeformat import Lake

FILES, RUNS = 1_000_000, 3
_BARS = {"plan all, cold": 2.0, "plan all again": 0.2, "plan one partition again": 0.05}  # Seconds of processor time.
MEBIBYTES = 600
_PLACES = {"mixed": ("dt = '2024-01-05'", "dt = '2024-01-06'"), "ordered": ("part = 5", "part = 6")}
_PLACES["iceberg"] = _PLACES["mixed"]


def run(folder: Path) -> Iterator[Figure]:
    for shape in planning.SHAPES:
        command = [sys.executable, "-m", "benchmarks.million", str(folder / shape), str(FILES), shape]
        subprocess.run(command, check=True, capture_output=True)
        outputs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(RUNS)]
        for part, bar in _BARS.items():
            found = [float(re.search(rf"^{part}: ([0-9.]+) s", each, re.M)[1]) for each in outputs]  # type: ignore[index]
            yield at_most(f"{part}, {FILES:,} files, {shape}", "seconds of processor time", bar, found)
        peaks = [max(map(float, re.findall(r"peak (\d+) MiB", each))) for each in outputs]
        yield at_most(f"all of these in one process, {shape}, peak memory", "MiB", MEBIBYTES, peaks)


def main(folder: Path, files: int, shape: str = "mixed") -> None:
    if not folder.exists():
        if shape == "iceberg":
            iceberg.declare(folder, files)
        else:
            planning.declare(folder, files, shape)
        print(f"declared {files:,} files; run it again to plan them")
        return
    table = Lake(str(folder)).table("bench.files")
    one, another = _PLACES[shape]
    measure("plan all, cold", lambda: table.scan().plan())
    measure("plan all again", lambda: table.scan().plan())
    measure("plan one partition", lambda: table.scan(where=one).plan())
    measure("plan one partition again", lambda: table.scan(where=another).plan())
    measure("plan a point", lambda: table.scan(where="id = 1000003").plan())
    measure("count", lambda: table.scan().count())


def measure(step: str, work: Callable[[], object]) -> None:
    started = time.process_time()
    work()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{step}: {time.process_time() - started:.3f} s of processor time, peak {peak_mib} MiB", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
