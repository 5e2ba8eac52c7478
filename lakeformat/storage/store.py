"""Reader and Store: all that lakeformat asks of storage. Paths are relative to `root`, with forward slashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as a listing shows it."""

    path: str
    size_bytes: int
    modified_ms: int


class Reader(Protocol):
    """Looks, never touches. Every call raises `StoreError` when storage fails or does not answer."""

    @property
    def root(self) -> str:
        """The URI that paths are relative to, without a slash at the end."""
        ...

    def location(self, path: str) -> str:
        """The absolute URI of `path`, literal (no percent-encoding), for readers other than this one."""
        ...

    def read(self, path: str) -> bytes:
        """The whole file; raises `NoSuchFile`."""
        ...

    def read_many(self, paths: Sequence[str]) -> Iterable[bytes | None]:
        """Whole files in order, several at a time and no more of them in memory; None for one that is not there."""
        ...

    def several(self, work: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
        """What `work`, which asks this storage, makes of each item, in order: on `threads` threads, on more where requests
        take longer than the work. What was made waits in memory for as many items at most as twice the threads."""
        ...

    def exists(self, path: str) -> bool: ...

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders directly inside the folder `prefix`, sorted."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Names of the files directly inside the folder `prefix`, sorted; cheaper than `list`."""
        ...

    def list(self, prefix: str) -> list[Listed]:
        """Every file below the folder `prefix` ("" is the root), at any depth; none if there is no such folder."""
        ...

    def open(self, path: str) -> BinaryIO:
        """The file for random access, seekable; raises `NoSuchFile`."""
        ...


class Store(Reader, Protocol):
    """A Reader that can change things. `create` is the one call that decides a race."""

    def write(self, path: str, data: bytes) -> None:
        """Make the file hold `data`, whether or not it is there; seen whole or not at all."""
        ...

    def write_many(self, files: Mapping[str, bytes]) -> None:
        """As `write` for each, in any order. After an error some may be there."""
        ...

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        """As `write_many`, for files that readers can do without: what a power cut leaves of them is not certain."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Make the file if nobody has: True if this call made it, False if it was there. Atomic among all writers."""
        ...

    def create_stream(self, path: str) -> BinaryIO:
        """A new file to write to; it is there when `close` returns. Leaving a `with` by an exception abandons it."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files; one that is not there is no error."""
        ...

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        """Remove folders that hold nothing, then their parents where those hold nothing, up to the root.

        Object storage has no folders: nothing happens.
        """
        ...

    def move_folder(self, old: str, new: str) -> None:
        """Give a folder another name, in one step; `new` must not be there. Raises `UnsupportedFeature` where storage
        cannot do that at once."""
        ...


class ForwardingReader:
    """Another view of `store`: each call goes on to it, but for those that a class of its own answers otherwise."""

    __slots__ = ()
    store: Reader

    @property
    def root(self) -> str:
        return self.store.root

    def location(self, path: str) -> str:
        return self.store.location(path)

    def read(self, path: str) -> bytes:
        return self.store.read(path)

    def read_many(self, paths: Sequence[str]) -> Iterable[bytes | None]:
        return self.store.read_many(paths)

    def several(self, work: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
        return self.store.several(work, items, threads)

    def exists(self, path: str) -> bool:
        return self.store.exists(path)

    def folders(self, prefix: str) -> list[str]:
        return self.store.folders(prefix)

    def names(self, prefix: str) -> list[str]:
        return self.store.names(prefix)

    def open(self, path: str) -> BinaryIO:
        return self.store.open(path)

    def list(self, prefix: str) -> list[Listed]:
        return self.store.list(prefix)


class ForwardingStore(ForwardingReader):
    """As `ForwardingReader`, of what changes things too."""

    __slots__ = ()
    store: Store

    def write(self, path: str, data: bytes) -> None:
        self.store.write(path, data)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        self.store.write_many(files)

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        self.store.write_hints(files)

    def create(self, path: str, data: bytes) -> bool:
        return self.store.create(path, data)

    def create_stream(self, path: str) -> BinaryIO:
        return self.store.create_stream(path)

    def delete(self, paths: Iterable[str]) -> None:
        self.store.delete(paths)

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        self.store.remove_empty_folders(prefixes)

    def move_folder(self, old: str, new: str) -> None:
        self.store.move_folder(old, new)
