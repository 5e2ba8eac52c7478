"""The protocols of catalogs: which tables exist, where each one is, and who may move its newest root."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any, Protocol, runtime_checkable

from lakeformat.model.dataclass import dataclass
from lakeformat.storage.catalogued import CatalogEntry
from lakeformat.storage.credentials import Lease
from lakeformat.storage.store import Store


@dataclass(frozen=True, slots=True)
class TableAccess:
    """The location of a table's files, and the storage options and credentials that the catalog has for it."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    lease: Lease | None = None
    # The table's entry, if the catalog identified it; otherwise the entry is looked up by name.
    entry: CatalogEntry | None = None
    # Whether dropping the table leaves its files, and renaming it its folder.
    is_external: bool = False
    # Wraps the store if some of the files are the server's to write.
    guard: Callable[[Store], Store] | None = None


class Catalog(Protocol):
    """Keeps tables by name, `namespace.table`; a namespace may contain dots. Picklable; connects on first use.

    Every call raises `StoreError` when the catalog fails or does not answer.
    """

    @property
    def format(self) -> str:
        """The format of its tables, "iceberg" or "paimon"; it keeps no tables of the other."""
        ...

    @property
    def names_are_folders(self) -> bool:
        """Whether a table is at `<namespace>.db/<table>` of the warehouse, moves when it is renamed, and is dropped
        with its files; unless it is external (`TableAccess.is_external`)."""
        ...

    @property
    def vends_credentials(self) -> bool:
        """Whether access to its tables' files may need credentials from the catalog."""
        ...

    def namespaces(self) -> list[str]: ...

    def tables(self, namespace: str) -> list[str]:
        """The full names of a namespace's tables."""
        ...

    def find(self, name: str, options: Mapping[str, str]) -> TableAccess | None:
        """Find a table; `options` are those of the warehouse's storage. None if it does not exist."""
        ...

    def entry(self, name: str) -> CatalogEntry:
        """The table's entry, whether or not the table exists."""
        ...

    def create_namespace(self, name: str) -> None:
        """Create a namespace if it does not exist."""
        ...

    def namespace_properties(self, name: str) -> dict[str, str]:
        """The properties of a namespace; empty if the catalog does not know it."""
        ...

    def alter_namespace(self, name: str, properties: Mapping[str, str], remove: Collection[str]) -> None:
        """Set properties of an existing namespace, and remove others."""
        ...

    def drop_namespace(self, name: str) -> None:
        """Drop an empty namespace; no error if it does not exist. Raises `InvalidInput` if it has tables or views."""
        ...

    def location_of(self, namespace: str) -> str | None:
        """The folder for new tables of the namespace; None: the warehouse's, or the catalog chooses."""
        ...

    def register(self, name: str, metadata_location: str) -> None:
        """Register an existing table: an Iceberg table by its newest metadata file, a Paimon table by its folder.
        Raises `AlreadyExists`."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a table, together with its folder if names are folders. Raises `NotFound` and `AlreadyExists`."""
        ...

    def drop(self, name: str) -> None:
        """Remove a table from the catalog; its files stay. Raises `NotFound`."""
        ...


@dataclass(frozen=True, slots=True)
class ViewMetadata:
    """A view's newest metadata file and its content, a document of Iceberg's view specification."""

    location: str
    document: Mapping[str, Any]


@runtime_checkable
class ViewCatalog(Protocol):
    """A catalog that may keep views; `options` are those of the warehouse's storage."""

    @property
    def keeps_views(self) -> bool:
        """Whether it keeps views. If it does not, none of the methods below is called."""
        ...

    @property
    def places_views(self) -> bool:
        """Whether it chooses the location of a new view."""
        ...

    def views(self, namespace: str) -> list[str]:
        """The full names of a namespace's views."""
        ...

    def has_view(self, name: str) -> bool: ...

    def find_view(self, name: str, options: Mapping[str, str]) -> ViewMetadata | None: ...

    def publish_view(
        self, name: str, base: ViewMetadata | None, document: Mapping[str, Any], nonce: str, options: Mapping[str, str]
    ) -> bool:
        """Make `document` the view, if it is still `base` (None: does not exist); returns whether it did. Raises
        `UnsupportedFeature`."""
        ...

    def rename_view(self, old: str, new: str) -> None:
        """Rename a view. Raises `NotFound` and `AlreadyExists`."""
        ...

    def drop_view(self, name: str, root: str, options: Mapping[str, str]) -> None:
        """Drop a view, its metadata files, and folders below `root` that are empty then. Raises `NotFound`."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionMetadata:
    """A stored function: a document of Paimon's model, and the number of the change that wrote it,
    if the catalog counts them."""

    document: Mapping[str, Any]
    version: int = 0


class FunctionKeeper(Protocol):
    """Stores functions by full name, `namespace.function`."""

    def names(self, namespace: str) -> list[str]:
        """The last names of a namespace's functions."""
        ...

    def find(self, name: str) -> FunctionMetadata | None: ...

    def create(self, name: str, document: Mapping[str, Any]) -> None:
        """Store a new function. Raises `AlreadyExists`."""
        ...

    def replace(self, name: str, base: FunctionMetadata, document: Mapping[str, Any]) -> None:
        """Give a function another document. Raises `Conflict` if it is not `base` any more."""
        ...

    def change(self, name: str, base: FunctionMetadata, document: Mapping[str, Any], change: Mapping[str, Any]) -> None:
        """As `replace`; `change` alone says what is new."""
        ...

    def drop(self, name: str) -> None:
        """Raises `NotFound`."""
        ...


@runtime_checkable
class FunctionCatalog(Protocol):
    """A catalog that stores functions."""

    @property
    def functions(self) -> FunctionKeeper: ...


@runtime_checkable
class ShowCatalog(Protocol):
    """A catalog that can show a table whose metadata is kept outside it."""

    def show(self, name: str, newest: Callable[[], tuple[str, Mapping[str, Any]]]) -> None:
        """Bring the catalog's table up to its newest metadata file, which `newest` returns with its location, from
        whatever state it is in; so the next call completes one that was interrupted. A table that cannot be updated is
        dropped without its files and registered again. Raises `StoreError`."""
        ...
