"""A table's files, together with the catalog that says which of its roots is the newest."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

from lakeformat.model.dataclass import dataclass
from lakeformat.storage import paths
from lakeformat.storage.head import Head
from lakeformat.storage.store import ForwardingStore, Reader, Store
from lakeformat.storage.swapped import Swapped


def files_of(store: Store) -> Store:
    """The files alone: what a worker needs, without the catalog."""
    if isinstance(store, Swapped):
        return replace(store, store=files_of(store.store))
    return store.store if isinstance(store, Catalogued) else store


def is_within(root: str, path: str) -> bool:
    """Whether a table whose folder or metadata file is `path` lies at `root`, or in its metadata or data folder."""
    inside = paths.relative(root, path)
    return inside is not None and (not inside or inside.startswith(("metadata/", "data/")))


class CatalogEntry(Protocol):
    """A table's entry in a catalog. Picklable."""

    def head(self, store: Store) -> Head:
        """The head of the table whose files are in `store`."""
        ...

    def sharers(self, reader: Reader) -> list[str]:
        """The names of the catalog's other tables at the reader's root, or in its `metadata` or `data` folder. Raises
        `StoreError`."""
        ...


@runtime_checkable
class BranchKeeper(Protocol):
    """An entry whose catalog creates and drops the table's branches."""

    def create_branch(self, name: str, tag: str | None) -> None:
        """Create a branch at a tag, or without snapshots. Raises `AlreadyExists`, `StoreError`."""
        ...

    def drop_branch(self, name: str) -> None:
        """Drop a branch; no error if it does not exist. Raises `StoreError`."""
        ...


@dataclass(frozen=True, slots=True)
class Catalogued(ForwardingStore):
    """A Store whose newest root is found through its catalog entry, not by listing."""

    store: Store
    entry: CatalogEntry

    def head(self) -> Head:
        return self.entry.head(self.store)
