"""Files that are being written and files of object storage that are being read, as Python's binary files."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from types import TracebackType
from typing import Any

from lakeformat.errors import LakeError, StoreError

_FETCH_BYTES = 1 << 20  # Bytes fetched at least.


class NewFile:
    """A file that is written from front to back. It appears with `close`; a `with` block left by an exception abandons
    it.

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
                self._write(data if view.format == "B" else view.cast("B"))  # Of Arrow's buffers they are signed bytes.
            except LakeError:
                raise
            except Exception as error:
                raise StoreError(f"{self.name}: cannot write: {error}") from error
        self._position += size
        return size

    def flush(self) -> None:
        """Does nothing: the file appears with `close`, not before."""

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
        """Abandon the file."""
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
        with suppress(Exception):  # A temporary file that could not be removed is left to the sweep.
            self._abandon()


class Ranges(io.RawIOBase):
    """Random access to a file of `size` bytes through `fetch(starts, ends)`, which requests several ranges together.
    `tail`: its last bytes. A small read fetches more, for the next reads."""

    def __init__(
        self, name: str, size: int, fetch: Callable[[Sequence[int], Sequence[int]], Sequence[Any]], tail: Any = b""
    ) -> None:
        super().__init__()
        self.name = name
        self._size, self._fetch, self._position = size, fetch, 0
        tail = memoryview(tail)
        self._tail = size - tail.nbytes, tail
        self._ahead: list[tuple[int, memoryview]] = []  # Sorted by start.
        self._last = 0, memoryview(b"")

    def apart(self) -> Ranges:
        """The same file for another thread, without what was fetched of it but its last bytes."""
        return Ranges(self.name, self._size, self._fetch, self._tail[1])

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
        """Fetch ranges (start, end) together and keep them, in place of those prefetched before."""
        missing = sorted({(a, b) for a, b in ranges if a < b and self._in_memory(a, b) is None})
        self._ahead = []
        fetched = self._fetch([a for a, _ in missing], [b for _, b in missing]) if missing else []
        self._ahead = [(start, memoryview(data)) for (start, _), data in zip(missing, fetched, strict=True)]

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self._take(self._size if size is None or size < 0 else size))

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as view, view.cast("B") as target:
            data = self._take(target.nbytes)
            target[: data.nbytes] = data
            return data.nbytes

    def _take(self, size: int) -> memoryview:
        start, end = self._position, min(self._position + size, self._size)
        if end <= start:
            return memoryview(b"")
        data = self._in_memory(start, end)
        if data is None:
            until = min(max(end, start + _FETCH_BYTES), self._size)
            (fetched,) = self._fetch([start], [until])
            self._last = start, memoryview(fetched)
            data = self._last[1][: end - start]
        self._position += data.nbytes
        return data

    def _in_memory(self, start: int, end: int) -> memoryview | None:
        """The bytes of a range, if all of them are in memory."""
        index = bisect_right(self._ahead, start, key=itemgetter(0))
        for at, data in (self._tail, self._last, *self._ahead[max(0, index - 1) : index]):
            if at <= start and end <= at + data.nbytes:
                return data[start - at : end - at]
        return None
