"""Files being written and read: a new file that is there whole or not at all, and random access by ranges."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from lakeformat.errors import LakeError, StoreError


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
    """Random access to a file of `size` bytes through `fetch(start, end)`. Wrap it in `io.BufferedReader`."""

    def __init__(self, name: str, size: int, fetch: Callable[[int, int], Any]) -> None:
        super().__init__()
        self.name = name
        self._size, self._fetch, self._position = size, fetch, 0

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

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as view, view.cast("B") as target:
            end = min(self._position + target.nbytes, self._size)
            if end <= self._position:
                return 0
            found = memoryview(self._fetch(self._position, end))
            target[: found.nbytes] = found
            self._position += found.nbytes
            return found.nbytes
