"""Reader and Store: everything that lakeformat needs of storage. Paths are relative to `root`, with forward slashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, Protocol, TypeVar

from lakeformat.model.dataclass import dataclass
from lakeformat.storage.allowed import Allowed
from lakeformat.storage.credentials import Lease

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file in a listing."""

    path: str
    size_bytes: int
    modified_ms: int


class Reader(Protocol):
    """Reads, never writes. Every call raises `StoreError` when storage fails or does not answer."""

    @property
    def root(self) -> str:
        """The URI that paths are relative to, without a trailing slash."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether a call takes microseconds, so that a few of them, one after the other,
        cost less than a long listing."""
        ...

    def location(self, path: str) -> str:
        """The absolute URI of `path`, literal (no percent-encoding), for other readers."""
        ...

    def read(self, path: str) -> bytes:
        """The whole file; raises `NoSuchFile`."""
        ...

    def read_many(self, paths: Sequence[str]) -> Iterable[bytes | None]:
        """Whole files in order, several read at a time, and only so many in memory; None for a file that does not
        exist."""
        ...

    def several(self, work: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
        """The results of `work`, which uses this storage, for each item in order: on `threads` threads, or on more if
        requests take longer than the work. At most twice as many results as threads wait in memory."""
        ...

    def exists(self, path: str) -> bool: ...

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders directly inside the folder `prefix`, sorted."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Names of the files directly inside the folder `prefix`, sorted; cheaper than `list`."""
        ...

    def list(self, prefix: str) -> list[Listed]:
        """Every file below the folder `prefix` ("" is the root), at any depth; empty if there is no such folder."""
        ...

    def open(self, path: str) -> BinaryIO:
        """The file for random access, seekable; raises `NoSuchFile`."""
        ...


class Store(Reader, Protocol):
    """A Reader that can change files. `create` is the one call that decides a race."""

    def write(self, path: str, data: bytes) -> None:
        """Write the file, whether or not it exists. Readers see all of it or nothing."""
        ...

    def write_many(self, files: Mapping[str, bytes]) -> None:
        """As `write` for each file, in any order. After an error some may be written."""
        ...

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        """As `write_many`, for files that readers can do without: a power cut may lose them."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Create the file if it does not exist: True if this call created it, False if it exists. Atomic among all
        writers."""
        ...

    def create_stream(self, path: str) -> BinaryIO:
        """A new file to write to; it appears when `close` returns. A `with` block left by an exception abandons it."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; no error for one that does not exist."""
        ...

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        """Remove empty folders, then their parents if those are empty too, up to the root.

        Does nothing on object storage, which has no folders.
        """
        ...

    def move_folder(self, old: str, new: str) -> None:
        """Rename a folder atomically; `new` must not exist. Raises `UnsupportedFeature` if storage cannot do that."""
        ...


class Opener(Protocol):
    """Opens the Store of a folder, as `open_store`."""

    def __call__(
        self,
        uri: str,
        options: Mapping[str, str] | None,
        lease: Lease | None,
        allowed: Allowed | None,
        named_by: str | None,
        /,
    ) -> Store: ...


class ForwardingReader:
    """Forwards each call to `store`; a subclass overrides those that it answers itself."""

    __slots__ = ()
    store: Reader

    @property
    def root(self) -> str:
        return self.store.root

    @property
    def is_local(self) -> bool:
        return self.store.is_local

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
    """As `ForwardingReader`, with the calls that change files."""

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
