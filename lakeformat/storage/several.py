"""One call for many files, on threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from lakeformat.errors import NoSuchFile
from lakeformat.storage.store import R, T


def several(work: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """The results of `work` for each item, in order, on `threads` threads. At most twice as many results wait in
    memory."""
    left = iter(items)
    first = list(islice(left, 2 * threads))
    if threads == 1 or len(first) < 2:
        return map(work, chain(first, left))
    return _on_threads(work, first, left, threads)


def _on_threads(work: Callable[[T], R], first: Sequence[T], left: Iterator[T], threads: int) -> Iterator[R]:
    with ThreadPoolExecutor(min(threads, len(first)), "lakeformat") as pool:
        waiting = deque(pool.submit(work, item) for item in first)
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(work, item) for item in islice(left, 1))
                yield result
        finally:
            for future in waiting:
                future.cancel()


def or_none(read: Callable[[str], bytes | None], path: str) -> bytes | None:
    try:
        return read(path)
    except NoSuchFile:
        return None
