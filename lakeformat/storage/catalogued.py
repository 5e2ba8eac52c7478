"""A table's files, and the catalog that says which of its roots is the newest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from lakeformat.storage import paths
from lakeformat.storage.head import Head
from lakeformat.storage.store import Listed, R, Reader, Store, T


def files_of(store: Store) -> Store:
    """The files alone: what a worker needs, without the catalog and what opens it."""
    return store.store if isinstance(store, Catalogued) else store


def is_within(root: str, path: str) -> bool:
    """Whether a table that has `path` for its folder or its metadata file is at `root`, or where that keeps its files."""
    inside = paths.relative(root, path)
    return inside is not None and (not inside or inside.startswith(("metadata/", "data/")))


class Place(Protocol):
    """A table as a catalog knows it. Picklable."""

    def head(self, store: Store) -> Head:
        """The contested name of the table whose files are in `store`."""
        ...

    def sharers(self, reader: Reader) -> list[str]:
        """Names of the other tables of the catalog that lie where the reader's root is, or in its `metadata` or `data` folder.
        Raises `StoreError`."""
        ...


@dataclass(frozen=True, slots=True)
class Catalogued:
    """A Store like any other; its newest root is found through `place`, not by listing."""

    store: Store
    place: Place

    def head(self) -> Head:
        return self.place.head(self.store)

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

    def list(self, prefix: str) -> list[Listed]:
        return self.store.list(prefix)
