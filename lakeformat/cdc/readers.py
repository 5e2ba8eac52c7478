"""Connections in one consistent view that read chunks of a table in parallel and return them in key order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from lakeformat.cdc.source import Chunk
from lakeformat.errors import InvalidInput

Key: TypeAlias = tuple[str, ...] | None  # None: before the first or after the last row.


@dataclass(frozen=True, slots=True)
class Readers:
    """Connections in the same view: `first` finds the chunk boundaries, `others` read the chunks (`first` does if there are none)."""

    first: Any
    others: tuple[Any, ...]
    pool: ThreadPoolExecutor

    def chunks(
        self, after: Key, last_key: Callable[[Key], Key], read: Callable[[Any, Key, Key], Callable[[], pa.Table]]
    ) -> Iterator[Chunk]:
        """The chunks above key `after`, in key order. `last_key(after)`: the last key of the chunk above `after`.
        `read(connection, after, upto)`: fetches its rows and returns a function that parses them. At most one chunk per reading
        connection is in progress or waiting."""
        if not self.others:
            yield from (Chunk(read(self.first, start, upto), upto) for start, upto in _ranges(after, last_key))
            return
        reading = deque[tuple[Key, Future[pa.Table]]]()
        for number, (start, upto) in enumerate(_ranges(after, last_key)):
            if len(reading) == len(self.others):  # The oldest chunk has the next free connection.
                done, rows = reading.popleft()
                yield Chunk(rows.result(), done)
            connection = self.others[number % len(self.others)]
            reading.append((upto, self.pool.submit(_parsed, read, connection, start, upto)))
        for done, rows in reading:
            yield Chunk(rows.result(), done)


def _parsed(
    read: Callable[[Any, Key, Key], Callable[[], pa.Table]], connection: Any, after: Key, upto: Key
) -> pa.Table:
    return read(connection, after, upto)()


@contextmanager
def connected(connect: Callable[[], Any], count: int) -> Iterator[Readers]:
    """Open one connection if `count` is 1, else `count` + 1. The caller puts them into one view."""
    with ExitStack() as stack:
        first, *others = (stack.enter_context(closing(connect())) for _ in range(1 if count == 1 else 1 + count))
        yield Readers(first, tuple(others), stack.enter_context(ThreadPoolExecutor(count)))


def required(count: int) -> int:
    """`count`, if it is at least 1. Raises `InvalidInput`."""
    if count < 1:
        raise InvalidInput(f"readers={count}: it must be at least 1")
    return count


def _ranges(after: Key, last_key: Callable[[Key], Key]) -> Iterator[tuple[Key, Key]]:
    """The key range (exclusive, inclusive) of each chunk; the last one is open-ended."""
    is_last = False
    while not is_last:
        upto = last_key(after)
        yield after, upto
        is_last, after = upto is None, upto
