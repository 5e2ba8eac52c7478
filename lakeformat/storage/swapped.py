"""A Store with some subfolders of the root and of another folder exchanged: a branch's metadata beside the table's
data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO

from lakeformat.model.dataclass import dataclass
from lakeformat.storage.store import ForwardingStore, Listed, Store


@dataclass(frozen=True, slots=True)
class Swapped(ForwardingStore):
    """`store`, where each of `folders` is the one inside the folder `inner`. Those of the root are inside the folder
    `outer`; `inner` itself is hidden."""

    store: Store
    folders_swapped: tuple[str, ...]
    inner: str
    outer: str

    def location(self, path: str) -> str:
        return self.store.location(self._stored(path))

    def read(self, path: str) -> bytes:
        return self.store.read(self._stored(path))

    def read_many(self, paths: Sequence[str]) -> Iterable[bytes | None]:
        return self.store.read_many([self._stored(path) for path in paths])

    def exists(self, path: str) -> bool:
        return self.store.exists(self._stored(path))

    def folders(self, prefix: str) -> list[str]:
        names = self.store.folders(self._stored(prefix))
        above, _, inner = self.inner.rpartition("/")
        if prefix.strip("/") != above:
            return names
        return sorted({*names, self.outer.rpartition("/")[2]} - {inner})

    def names(self, prefix: str) -> list[str]:
        return self.store.names(self._stored(prefix))

    def list(self, prefix: str) -> list[Listed]:
        folder = prefix.strip("/")
        # Its files are in several folders of the store.
        if f"{self.outer}/".startswith(f"{folder}/" if folder else ""):
            inside = f"{folder}/" if folder else ""
            every = (replace(file, path=self._shown(file.path)) for file in self.store.list(""))
            return sorted((file for file in every if file.path.startswith(inside)), key=lambda file: file.path)
        return [replace(file, path=self._shown(file.path)) for file in self.store.list(self._stored(prefix))]

    def open(self, path: str) -> BinaryIO:
        return self.store.open(self._stored(path))

    def write(self, path: str, data: bytes) -> None:
        self.store.write(self._stored(path), data)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        self.store.write_many({self._stored(path): data for path, data in files.items()})

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        self.store.write_hints({self._stored(path): data for path, data in files.items()})

    def create(self, path: str, data: bytes) -> bool:
        return self.store.create(self._stored(path), data)

    def create_stream(self, path: str) -> BinaryIO:
        return self.store.create_stream(self._stored(path))

    def delete(self, paths: Iterable[str]) -> None:
        self.store.delete([self._stored(path) for path in paths])

    def remove_empty_folders(self, prefixes: Iterable[str]) -> None:
        self.store.remove_empty_folders([self._stored(prefix) for prefix in prefixes])

    def move_folder(self, old: str, new: str) -> None:
        self.store.move_folder(self._stored(old), self._stored(new))

    def _stored(self, path: str) -> str:
        if path.partition("/")[0] in self.folders_swapped:
            return f"{self.inner}/{path}"
        return path.removeprefix(f"{self.outer}/")

    def _shown(self, path: str) -> str:
        if path.partition("/")[0] in self.folders_swapped:
            return f"{self.outer}/{path}"
        return path.removeprefix(f"{self.inner}/")
