"""Work on several items at a time, in order, with few results waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def several(work: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """What `work` makes of each item, in order, on `threads` threads; at most twice as many results wait to be taken."""
    left = iter(items)
    first = list(islice(left, 2 * threads))
    if threads == 1 or len(first) < 2:
        for items in (first, left):
            yield from map(work, items)
        return
    with ThreadPoolExecutor(min(threads, len(first)), "lakeformat") as pool:
        waiting = deque(pool.submit(work, item) for item in first)
        try:
            while waiting:
                found = waiting.popleft().result()
                waiting.extend(pool.submit(work, item) for item in islice(left, 1))
                yield found
        finally:
            for each in waiting:
                each.cancel()
