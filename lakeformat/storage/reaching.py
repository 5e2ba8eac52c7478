"""A table's store that may also write and delete in folders outside the table's, which the table's properties name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, cast

from lakeformat.errors import UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.storage import paths
from lakeformat.storage.catalogued import Catalogued
from lakeformat.storage.local import LocalFiles
from lakeformat.storage.objects import ObjectFiles
from lakeformat.storage.rehearsal import Rehearsal
from lakeformat.storage.store import ForwardingStore, Store


def reaching(store: Store, folders: Sequence[str]) -> Store:
    """`store`, which may also change files below the absolute `folders`. Read-only stores are returned unchanged."""
    if not folders:
        return store
    if isinstance(store, Catalogued):
        return replace(store, store=reaching(store.store, folders))
    if isinstance(store, LocalFiles | ObjectFiles):
        return Reaching(store, tuple(store.elsewhere(folder) for folder in folders))
    return store


def beside(store: Store, root: str) -> Store:
    """The folder `root` of the same storage, opened like `store`; in a dry run with the same record. Raises
    `UnsupportedFeature`."""
    match store:
        case LocalFiles() | ObjectFiles():
            return store.elsewhere(root)
        case Rehearsal(store=inner, written=written, deleted=deleted):
            return Rehearsal(beside(cast(Store, inner), root), written, deleted)
    raise UnsupportedFeature(f"{store.root}: its storage cannot open {root} beside it")


@dataclass(frozen=True, slots=True)
class Reaching(ForwardingStore):
    """Relative names belong to `store`; absolute ones below the root of one of `beyond` belong to that store."""

    store: Store
    beyond: tuple[Store, ...]

    def read(self, path: str) -> bytes:
        return self._store_of(path).read(path)

    def exists(self, path: str) -> bool:
        return self._store_of(path).exists(path)

    def open(self, path: str) -> BinaryIO:
        return self._store_of(path).open(path)

    def write(self, path: str, data: bytes) -> None:
        self._store_of(path).write(path, data)

    def write_many(self, files: Mapping[str, bytes]) -> None:
        for store, some in self._groups(files).items():
            store.write_many({path: files[path] for path in some})

    def write_hints(self, files: Mapping[str, bytes]) -> None:
        for store, some in self._groups(files).items():
            store.write_hints({path: files[path] for path in some})

    def create(self, path: str, data: bytes) -> bool:
        return self._store_of(path).create(path, data)

    def create_stream(self, path: str) -> BinaryIO:
        return self._store_of(path).create_stream(path)

    def delete(self, paths: Iterable[str]) -> None:
        for store, some in self._groups(paths).items():
            store.delete(some)

    def _groups(self, paths: Iterable[str]) -> Mapping[Store, Sequence[str]]:
        groups: dict[Store, Any] = {}
        for path in paths:
            groups.setdefault(self._store_of(path), []).append(path)
        return groups

    def _store_of(self, path: str) -> Store:
        if not paths.is_absolute(path) or paths.relative(self.root, path) is not None:
            return self.store
        return next((store for store in self.beyond if paths.relative(store.root, path) is not None), self.store)
