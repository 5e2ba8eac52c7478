"""Connections in one view of a database: they read chunks of a table at the same time, which come in the order of their keys."""

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

Key: TypeAlias = tuple[str, ...] | None  # None: before the first row, and after the last one.


@dataclass(frozen=True, slots=True)
class Readers:
    """Connections that see the same rows: `first` finds where chunks end, and reads them itself where there are no `others`."""

    first: Any
    others: tuple[Any, ...]
    pool: ThreadPoolExecutor

    def chunks(
        self, after: Key, last_key: Callable[[Key], Key], read: Callable[[Any, Key, Key], Callable[[], pa.Table]]
    ) -> Iterator[Chunk]:
        """`last_key(after)`: the key at which the chunk above `after` ends. `read(connection, after, upto)`: its rows, fetched and
        yet to be parsed. As many chunks are read, or wait for their turn, as there are connections that read."""
        if not self.others:
            yield from (Chunk(read(self.first, start, upto), upto) for start, upto in _ranges(after, last_key))
            return
        reading = deque[tuple[Key, Future[pa.Table]]]()
        for number, (start, upto) in enumerate(_ranges(after, last_key)):
            if len(reading) == len(self.others):  # The oldest has the connection whose turn it is.
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
    """One connection for `count` 1, else one more than `count`; the database's client is to have them see the same rows."""
    with ExitStack() as stack:
        first, *others = (stack.enter_context(closing(connect())) for _ in range(1 if count == 1 else 1 + count))
        yield Readers(first, tuple(others), stack.enter_context(ThreadPoolExecutor(count)))


def required(count: int) -> int:
    """How many connections are to read. Raises `InvalidInput`."""
    if count < 1:
        raise InvalidInput(f"readers={count}: it must be at least 1")
    return count


def _ranges(after: Key, last_key: Callable[[Key], Key]) -> Iterator[tuple[Key, Key]]:
    """Keys above which, and up to which, the rows of a chunk are; the last range goes to the end."""
    is_last = False
    while not is_last:
        upto = last_key(after)
        yield after, upto
        is_last, after = upto is None, upto
