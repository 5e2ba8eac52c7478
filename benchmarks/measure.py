"""A figure: how long we took, how long the peer took, and the ratio that is good enough."""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

import numpy as np
import pyarrow as pa

from benchmarks.peers.timing import both_times

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """Seconds of runs by turns, ours and the peer's: the n-th of one stood beside the n-th of the other."""

    work: str
    peer: str
    target: float  # The ratio, ours to the peer's, may be at most this.
    ours_seconds: tuple[float, ...]
    peer_seconds: tuple[float, ...]
    unit: str = "s"

    @property
    def ratio(self) -> float:
        """The median of the ratios of neighbouring runs: what slows the machine for a while slows both."""
        return median(ours / peer for ours, peer in zip(self.ours_seconds, self.peer_seconds, strict=True))

    @property
    def met(self) -> bool:
        return self.ratio <= self.target

    def __str__(self) -> str:
        return (
            f"{self.work}: {self._shown(self.ours_seconds)}, {self.peer} {self._shown(self.peer_seconds)}, "
            f"ratio {self.ratio:.3g} of at most {self.target:g}: {'met' if self.met else 'MISSED'} "
            f"({len(self.ours_seconds)} runs each)"
        )

    def _shown(self, found: tuple[float, ...]) -> str:
        middle = median(found)
        if self.unit != "s":
            return f"{middle:.4g}"
        return f"{middle * 1000:.1f} ms" if middle < 1 else f"{middle:.2f} s"


def by_turns(
    work: str, peer: str, target: float, ours: Callable[[], float], theirs: Callable[[], float], runs: int
) -> Figure:
    """Run both once to warm up, then `runs` times by turns. Each call returns the seconds that count."""
    mine, others = zip(*pairs(ours, theirs, runs), strict=True)
    return Figure(work, peer, target, mine, others)


def pairs(ours: Callable[[], T], theirs: Callable[[], T], runs: int) -> list[tuple[T, T]]:
    """What both return, `runs` times by turns, after once of each to warm up."""
    ours(), theirs()
    return [(ours(), theirs()) if i % 2 == 0 else (theirs(), ours())[::-1] for i in range(runs)]


def both(
    work: str, peer: str, target: float, ours: Callable[[], list[float]], theirs: Callable[[], list[float]], runs: int
) -> Iterator[Figure]:
    """A figure of wall time and one of processor time: each call returns the seconds of both, as `timed` does."""
    taken = pairs(ours, theirs, runs)
    for place, measure in enumerate(("wall", "processor")):
        mine, others = zip(*((a[place], b[place]) for a, b in taken), strict=True)
        yield Figure(f"{work}, {measure} time", peer, target, mine, others)


def at_most(work: str, unit: str, bar: float, found: Sequence[float]) -> Figure:
    """What is measured against a number and no peer: the ratio is that to the `bar`, of the same `unit`."""
    return Figure(f"{work}, {unit}", f"at most {bar:g} {unit}:", 1.0, tuple(found), (bar,) * len(found), unit)


def timed(work: Callable[[], object]) -> list[float]:
    """Seconds of wall time and of processor time that `work` takes in this process and those below it,
    Spark's among them."""
    gc.collect()
    return both_times(work)


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes, with the garbage of what came before collected first."""
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def processor_seconds(work: Callable[[], object]) -> float:
    """As `seconds`, of all threads of this process: what others do on the machine hardly counts."""
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def machine() -> str:
    """What a figure depends on beside the code: processor, cores, memory, kernel, versions."""
    with open("/proc/cpuinfo") as lines:
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{model}, {len(os.sched_getaffinity(0))} cores, {memory_gib:.0f} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, pyarrow {pa.__version__}, numpy {np.__version__}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
