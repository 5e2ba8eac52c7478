"""A table's files, and the catalog that says which of its roots is the newest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from lakeformat.storage import paths
from lakeformat.storage.head import Head
from lakeformat.storage.store import ForwardingStore, Reader, Store
from lakeformat.storage.swapped import Swapped


def files_of(store: Store) -> Store:
    """The files alone: what a worker needs, without the catalog and what opens it."""
    if isinstance(store, Swapped):
        return replace(store, store=files_of(store.store))
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


@runtime_checkable
class BranchKeeper(Protocol):
    """A place whose catalog makes the branches of the table, and removes them."""

    def create_branch(self, name: str, tag: str | None) -> None:
        """A branch that begins at a tag, or without snapshots. Raises `AlreadyExists`, `StoreError`."""
        ...

    def drop_branch(self, name: str) -> None:
        """Let a branch go; one that is gone stays so. Raises `StoreError`."""
        ...


@dataclass(frozen=True, slots=True)
class Catalogued(ForwardingStore):
    """A Store like any other; its newest root is found through `place`, not by listing."""

    store: Store
    place: Place

    def head(self) -> Head:
        return self.place.head(self.store)
