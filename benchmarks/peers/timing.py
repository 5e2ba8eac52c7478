"""Wall and processor time of work in this process and in those below it. For the peers' environments too: it imports
Python's own alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def both_times(work: Callable[[], object]) -> list[float]:
    """Seconds of wall time, and of processor time of this process, the JVM it started and the workers of that."""
    wall, processor = time.perf_counter(), _processor_seconds()
    work()
    return [time.perf_counter() - wall, _processor_seconds() - processor]


def _processor_seconds() -> float:
    """Of this process and all below it; of those that ended, what their parents were told."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has ended.
            parents.setdefault(int(fields[1]), []).append(int(each.name))
            ticks[int(each.name)] = sum(map(int, fields[11:15]))
    left, found = [os.getpid()], 0
    while left:
        process = left.pop()
        found += ticks.get(process, 0)
        left += parents.get(process, [])
    return found / _TICKS
