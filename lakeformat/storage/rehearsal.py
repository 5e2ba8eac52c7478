"""A Store for dry runs: writes stay in memory above the real store's files, and deletes are recorded."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import BinaryIO, cast

from lakeformat import clock
from lakeformat.errors import NoSuchFile, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.storage.catalogued import CatalogEntry
from lakeformat.storage.head import Head
from lakeformat.storage.store import ForwardingReader, Listed, Reader, Store
from lakeformat.storage.streams import NewFile


@dataclass(slots=True)
class Rehearsal(ForwardingReader):
    """`store` as it would be after the calls made here; `store` itself is only read.

    `written` has the new files by location, `deleted` the locations of files of `store` that would be deleted, in
    order.
    """

    store: Reader
    written: dict[str, bytes] = field(default_factory=dict)
    deleted: dict[str, None] = field(default_factory=dict)

    def read(self, path: str) -> bytes:
        location = self.location(path)
        if location in self.written:
            return self.written[location]
        if location in self.deleted:
            raise NoSuchFile(f"{location}: deleted in this dry run")
        return self.store.read(path)

    def read_many(self, paths: Sequence[str]) -> Iterable[bytes | None]:
        below = [p for p in paths if self._is_below(p)]
        stored = dict(zip(below, self.store.read_many(below), strict=True))
        return [stored[p] if p in stored else self.written.get(self.location(p)) for p in paths]

    def exists(self, path: str) -> bool:
        return self.location(path) in self.written or (self._is_below(path) and self.store.exists(path))

    def folders(self, prefix: str) -> list[str]:
        above = {p.split("/", 1)[0] for p in self._written_in(prefix) if "/" in p}
        return sorted(above | set(self.store.folders(prefix)))

    def names(self, prefix: str) -> list[str]:
        folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        below = {name for name in self.store.names(prefix) if self._is_below(f"{folder}{name}")}
        return sorted(below | {p for p in self._written_in(prefix) if "/" not in p})

    def list(self, prefix: str) -> list[Listed]:
        folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        now_ms = clock.now_ms()
        new = {
            f"{folder}{p}": Listed(f"{folder}{p}", len(self.written[self.location(f"{folder}{p}")]), now_ms)
            for p in self._written_in(prefix)
        }
        below = [file for file in self.store.list(prefix) if file.path not in new and self._is_below(file.path)]
        return sorted([*below, *new.values()], key=lambda file: file.path)

    def open(self, path: str) -> BinaryIO:
        return self.store.open(path) if self._is_below(path) else io.BytesIO(self.read(path))

    def write(self, path: str, data: bytes) -> None:
        self.written[self.location(path)] = bytes(data)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self.write(path, data)

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        self.write_many(files)

    def create(self, path: str, data: bytes) -> bool:
        if self.exists(path):
            return False
        self.write(path, data)
        return True

    def create_stream(self, path: str) -> BinaryIO:
        content = io.BytesIO()
        stream = NewFile(
            self.location(path), content.write, lambda: self.write(path, content.getvalue()), content.close
        )
        return cast(BinaryIO, stream)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            location = self.location(path)
            if self.written.pop(location, None) is None or self.store.exists(path):  # Not a new file.
                self.deleted[location] = None

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        """Does nothing: an empty folder is not worth showing."""

    def move_folder(self, old: str, new: str) -> None:
        raise UnsupportedFeature(f"{self.root}: moving {old} to {new} has no dry run")

    def _is_below(self, path: str) -> bool:
        """Whether the file, if it exists, is the real store's."""
        location = self.location(path)
        return location not in self.written and location not in self.deleted

    def _written_in(self, prefix: str) -> Iterable[str]:
        folder = f"{self.location(prefix) if prefix.strip('/') else self.root}/"
        return [location[len(folder) :] for location in self.written if location.startswith(folder)]


@dataclass(frozen=True, slots=True)
class RehearsedEntry:
    """The catalog entry of a table in a dry run: the head of each branch moves in memory, for all users of the
    copy."""

    entry: CatalogEntry
    heads: dict[str, Head] = field(default_factory=dict)

    def head(self, store: Store) -> Head:
        return self.heads.setdefault(store.location("snapshot"), self.entry.head(store).rehearsed())

    def sharers(self, reader: Reader) -> list[str]:
        return self.entry.sharers(reader)
