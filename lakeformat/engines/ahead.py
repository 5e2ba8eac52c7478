"""What threads read before it is needed, in order, within a number of bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from threading import Condition
from typing import Generic, TypeVar

from lakeformat.engines.files import parquet

T = TypeVar("T")

_PARTS = 4  # Parts a thread that are begun and not consumed.
_PART_BYTES = 16 << 20  # Bytes of the first part that wait.
_BYTES = 128 << 20  # Bytes of all parts that wait, however many threads there are.


def read(parts: Iterable[Callable[[], Iterator[T]]], threads: int) -> Iterator[T]:
    """The items of all parts in order, such as batches, read on `threads` threads; raises what a part raises, where its
    next item would be.

    The parts are taken one by one in the thread that consumes, some ahead. `_BYTES` of batches wait, and a batch of
    each thread more: the first part always continues, the others wait when there are as many.
    """
    left = iter(parts)
    first = list(islice(left, threads))
    if threads == 1 or len(first) < 2:
        for part in chain(first, left):
            yield from part()
        return
    with pool(threads, "read", len(first)) as readers:
        queue = _Queue[T]()
        try:
            for part in chain(first, islice(left, (_PARTS - 1) * threads)):
                readers.submit(queue.add(part))
            while queue.parts:
                yield from queue.first()
                for part in islice(left, 1):
                    readers.submit(queue.add(part))
        finally:
            queue.stop()


def pool(threads: int, name: str, tasks: int) -> ThreadPoolExecutor:
    """Threads for so many tasks; each thread decodes by itself if there are enough to use all cores."""
    return ThreadPoolExecutor(threads, name, parquet.one_of_many if tasks >= threads else None)


class _Queue(Generic[T]):
    """The items of the parts that are begun, by part."""

    def __init__(self) -> None:
        self.parts: deque[_Waiting[T]] = deque()
        self._changed = Condition()
        self._bytes = 0
        self._is_stopped = False

    def add(self, part: Callable[[], Iterator[T]]) -> Callable[[], None]:
        """A part as the last one: the call that reads it, for a thread."""
        waiting = _Waiting[T]()
        self.parts.append(waiting)
        return lambda: self._fill(waiting, part)

    def first(self) -> Iterator[T]:
        """The items of the first part, which then makes room for the next."""
        waiting = self.parts[0]
        while True:
            with self._changed:
                self._changed.wait_for(lambda: waiting.items or waiting.is_done)
                if not waiting.items:
                    break
                item, size = waiting.items.popleft()
                self._count(waiting, -size)
            yield item
        if waiting.error is not None:
            raise waiting.error
        with self._changed:
            self.parts.popleft()
            self._changed.notify_all()

    def stop(self) -> None:
        """Let the threads end at their next item."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _fill(self, waiting: _Waiting[T], part: Callable[[], Iterator[T]]) -> None:
        try:
            if self._is_stopped:
                return
            for item in part():
                size = getattr(item, "nbytes", 0)
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopped or self._has_room(waiting))
                    if self._is_stopped:
                        return
                    waiting.items.append((item, size))
                    self._count(waiting, size)
        except BaseException as error:
            waiting.error = error
        finally:
            with self._changed:
                waiting.is_done = True
                self._changed.notify_all()

    def _count(self, waiting: _Waiting[T], size: int) -> None:
        waiting.bytes += size
        self._bytes += size
        self._changed.notify_all()

    def _has_room(self, waiting: _Waiting[T]) -> bool:
        if waiting is self.parts[0]:  # What waits behind it must not stop it.
            return waiting.bytes < _PART_BYTES
        return self._bytes < _BYTES


class _Waiting(Generic[T]):
    """The items of a part that are read and not consumed."""

    def __init__(self) -> None:
        self.items: deque[tuple[T, int]] = deque()  # And their bytes.
        self.bytes = 0
        self.error: BaseException | None = None
        self.is_done = False
