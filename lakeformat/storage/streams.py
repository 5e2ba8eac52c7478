"""Files being written and read: a new file that is there whole or not at all, and random access by ranges."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from types import TracebackType
from typing import Any

from lakeformat.errors import LakeError, StoreError

_FETCH_BYTES = 1 << 20  # That are asked for at least.


class NewFile:
    """A file to write to, from front to back. `close` makes it be there; leaving a `with` by an exception does not.

    Dropping it without `close` never publishes half a file.
    """

    mode = "wb"

    def __init__(
        self, name: str, write: Callable[[Any], object], publish: Callable[[], object], abandon: Callable[[], object]
    ) -> None:
        self.name = name
        self._write, self._publish, self._abandon = write, publish, abandon
        self._position = 0
        self._open = True

    @property
    def closed(self) -> bool:
        return not self._open

    def write(self, data: Any) -> int:
        if not self._open:
            raise ValueError(f"{self.name}: write to a closed file")
        with memoryview(data) as view:
            size = view.nbytes
            try:
                self._write(data)
            except LakeError:
                raise
            except Exception as error:
                raise StoreError(f"{self.name}: cannot write: {error}") from error
        self._position += size
        return size

    def flush(self) -> None:
        """Nothing: the file appears with `close`, not before."""

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            self._publish()
        except BaseException as error:
            self._withdraw()
            if isinstance(error, LakeError) or not isinstance(error, Exception):
                raise
            raise StoreError(f"{self.name}: cannot finish the file: {error}") from error

    def discard(self) -> None:
        """End without a file."""
        if self._open:
            self._open = False
            self._withdraw()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def _withdraw(self) -> None:
        with suppress(Exception):  # What could not be removed has no name that counts, and is left to the sweep.
            self._abandon()


class Ranges(io.RawIOBase):
    """Random access to a file of `size` bytes through `fetch(starts, ends)`, which asks for ranges together. `tail`: its last
    bytes. A read of little fetches more, for the next ones."""

    def __init__(
        self, name: str, size: int, fetch: Callable[[Sequence[int], Sequence[int]], Sequence[Any]], tail: Any = b""
    ) -> None:
        super().__init__()
        self.name = name
        self._size, self._fetch, self._position = size, fetch, 0
        tail = memoryview(tail)
        self._tail = size - tail.nbytes, tail
        self._ahead: list[tuple[int, memoryview]] = []  # By their starts.
        self._last = 0, memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"{self.name}: seek to {start + offset}, before the start")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch ranges (start, end) together, and hold them in place of those that were asked for before."""
        wanted = sorted({(a, b) for a, b in ranges if a < b and self._held(a, b) is None})
        self._ahead = []
        found = self._fetch([a for a, _ in wanted], [b for _, b in wanted]) if wanted else []
        self._ahead = [(start, memoryview(each)) for (start, _), each in zip(wanted, found, strict=True)]

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self._take(self._size if size is None or size < 0 else size))

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as view, view.cast("B") as target:
            found = self._take(target.nbytes)
            target[: found.nbytes] = found
            return found.nbytes

    def _take(self, size: int) -> memoryview:
        start, end = self._position, min(self._position + size, self._size)
        if end <= start:
            return memoryview(b"")
        found = self._held(start, end)
        if found is None:
            until = min(max(end, start + _FETCH_BYTES), self._size)
            (fetched,) = self._fetch([start], [until])
            self._last = start, memoryview(fetched)
            found = self._last[1][: end - start]
        self._position += found.nbytes
        return found

    def _held(self, start: int, end: int) -> memoryview | None:
        """The bytes of a range of which all are there."""
        place = bisect_right(self._ahead, start, key=itemgetter(0))
        for at, data in (self._tail, self._last, *self._ahead[max(0, place - 1) : place]):
            if at <= start and end <= at + data.nbytes:
                return data[start - at : end - at]
        return None
