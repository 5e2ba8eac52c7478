"""Connections in one consistent view that read chunks of a table in parallel and return them in key order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from lakeformat.cdc.source import Chunk
from lakeformat.errors import InvalidInput
from lakeformat.model.schema import Field, Kind, Scalar, Type

CHUNK_BYTES = 128 << 20  # Bytes of a chunk of a snapshot, but for its last row.
_CHARACTER_BYTES, _VALUE_BYTES = 4, 40
Key: TypeAlias = tuple[str, ...] | None  # None: before the first or after the last row.
Piece: TypeAlias = tuple[Callable[[], pa.Table], Key]  # A function that parses rows, and their last key.
Read: TypeAlias = Callable[[Any, Key, Key], Iterator[Piece]]


@dataclass(frozen=True, slots=True)
class Readers:
    """Connections in the same view: `first` finds the chunk boundaries,
    `others` read the chunks (`first` does if there are none)."""

    first: Any
    others: tuple[Any, ...]
    pool: ThreadPoolExecutor

    def chunks(self, after: Key, last_key: Callable[[Key], Key], read: Read) -> Iterator[Chunk]:
        """The chunks above key `after`, in key order. `last_key(after)`: the last key of the range of rows above
        `after`. `read(connection, after, upto)`: the rows of a range, in one piece or, if they are more than
        `CHUNK_BYTES`, in several. At most one range per reading connection is in progress or waiting, of which one
        piece is in memory."""
        if not self.others:
            for start, upto in _ranges(after, last_key):
                for parse, end in read(self.first, start, upto):
                    yield Chunk(parse, end)
            return
        reading = deque[Future[tuple[pa.Table, Key, Iterator[Piece]]]]()
        for number, (start, upto) in enumerate(_ranges(after, last_key)):
            if len(reading) == len(self.others):  # The oldest range has the next free connection.
                yield from _of_range(reading.popleft())
            connection = self.others[number % len(self.others)]
            reading.append(self.pool.submit(_first, read(connection, start, upto)))
        for first in reading:
            yield from _of_range(first)


def _first(pieces: Iterator[Piece]) -> tuple[pa.Table, Key, Iterator[Piece]]:
    parse, end = next(pieces)
    return parse(), end, pieces


def _of_range(first: Future[tuple[pa.Table, Key, Iterator[Piece]]]) -> Iterator[Chunk]:
    rows, end, others = first.result()
    yield Chunk(rows, end)
    for parse, end in others:
        yield Chunk(parse, end)


def are_bounded(fields: Iterable[Field], count: int) -> bool:
    """Whether `count` rows of these columns take at most `CHUNK_BYTES`, whatever their values."""
    widths = [_width(field.type) for field in fields]
    return None not in widths and count * sum(width or 0 for width in widths) <= CHUNK_BYTES


def _width(type: Type) -> int | None:
    """The most bytes of a value; None without a limit."""
    match type:
        case Scalar(Kind.CHAR | Kind.VARCHAR, (length, *_)):
            return _CHARACTER_BYTES * length
        case Scalar(Kind.BINARY | Kind.VARBINARY | Kind.FIXED, (length, *_)):
            return int(length)
        case Scalar(Kind.STRING | Kind.BYTES):
            return None
        case _:
            return _VALUE_BYTES


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


def ahead(chunks: Iterator[Chunk]) -> Generator[Chunk]:
    """The same chunks, read one ahead: the next one loads while the current one is committed."""
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, chunks, None)
        while (chunk := following.result()) is not None:
            following = reader.submit(next, chunks, None)
            yield chunk
