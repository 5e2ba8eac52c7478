"""Wall and processor time of work in this process and in those below it. For the peers' environments too: it imports
Python's own alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A process at one time: its parent, the ticks of its own, and those of children that ended and were waited for."""

    parent: int
    own: int
    ended: int


Processes = Mapping[tuple[int, int], Process]  # By number, and by when they began: numbers are used again.


def both_times(work: Callable[[], object]) -> list[float]:
    """Seconds of wall time, and of processor time of this process, the JVM it started and the workers of that."""
    wall, before = time.perf_counter(), _processes()
    work()
    return [time.perf_counter() - wall, ticks_between(os.getpid(), before, _processes()) / _TICKS]


def ticks_between(top: int, before: Processes, after: Processes) -> int:
    """The ticks of the process `top` and of all below it.

    A process that ended is in the ticks that its parent, or the next above that is left, was told. Nobody was told of
    it if another waited for it: then what it took since `before` is missing.
    """
    was, now = _below(top, before), _below(top, after)
    total = 0
    told = {}
    for key, process in now.items():
        earlier = was.get(key, Process(process.parent, 0, 0))
        total += process.own - earlier.own
        told[key] = process.ended - earlier.ended
    by_number = {key[0]: key for key in was}
    for key, process in was.items():
        if key in now:
            continue
        above = by_number.get(process.parent)
        while above is not None and above not in now:
            above = by_number.get(was[above].parent)
        if above is not None:
            told[above] -= process.own + process.ended
    return total + sum(max(ticks, 0) for ticks in told.values())


def _below(top: int, processes: Processes) -> dict[tuple[int, int], Process]:
    """The process `top` and all below it."""
    children: dict[int, list[tuple[int, int]]] = {}
    for key, process in processes.items():
        children.setdefault(process.parent, []).append(key)
    left, below = [key for key in processes if key[0] == top], {}
    while left:
        key = left.pop()
        below[key] = processes[key]
        left += children.get(key[0], [])
    return below


def _processes() -> dict[tuple[int, int], Process]:
    """Those of the machine."""
    processes = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has ended.
            own, ended = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
            processes[int(entry.name), int(fields[19])] = Process(int(fields[1]), own, ended)
    return processes
