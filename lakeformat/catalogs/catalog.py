"""What a catalog is asked: which tables there are, where each lies, and who may move its newest root."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from lakeformat.storage.catalogued import Place
from lakeformat.storage.credentials import Lease
from lakeformat.storage.store import Store


@dataclass(frozen=True, slots=True)
class Found:
    """Where a table's files lie, and the storage options and credentials that the catalog has for it."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    lease: Lease | None = None
    place: Place | None = None  # Where the catalog said which table it is: else that which it has by the name.
    # What its files are seen through, where some are the server's to write.
    guard: Callable[[Store], Store] | None = None


class Catalog(Protocol):
    """Names are `namespace.table`; a namespace may have dots. Picklable; contacts nobody before it is asked.

    Every call raises `StoreError` when the catalog fails or does not answer.
    """

    @property
    def format(self) -> str:
        """The format of its tables, "iceberg" or "paimon"; of other formats it knows none."""
        ...

    @property
    def names_are_folders(self) -> bool:
        """Whether a table lies at `<namespace>.db/<table>` of the warehouse, moves when it is renamed, and goes with its files."""
        ...

    @property
    def vends_credentials(self) -> bool:
        """Whether files of its tables may be out of reach without what the catalog hands out for them."""
        ...

    def namespaces(self) -> list[str]: ...

    def tables(self, namespace: str) -> list[str]:
        """Full names of the tables of a namespace."""
        ...

    def find(self, name: str, options: Mapping[str, str]) -> Found | None:
        """Where a table lies; `options` are those of the warehouse's storage."""
        ...

    def place(self, name: str) -> Place:
        """The table's contested name, whether or not there is such a table."""
        ...

    def create_namespace(self, name: str) -> None:
        """Make a namespace if it is not there."""
        ...

    def namespace_properties(self, name: str) -> dict[str, str]:
        """None of a namespace that the catalog does not know."""
        ...

    def alter_namespace(self, name: str, properties: Mapping[str, str], remove: Collection[str]) -> None:
        """Set properties of a namespace that is there, and remove others."""
        ...

    def drop_namespace(self, name: str) -> None:
        """Forget a namespace without tables and views; one that is not there stays so. Raises `InvalidInput` where the catalog
        finds some."""
        ...

    def location_of(self, namespace: str) -> str | None:
        """The folder below which new tables of the namespace lie; None: the warehouse's, or the catalog chooses itself."""
        ...

    def register(self, name: str, metadata_location: str) -> None:
        """A table that is there already: an Iceberg table by its newest metadata file, a Paimon table by its folder. Raises
        `AlreadyExists`."""
        ...

    def rename(self, old: str, new: str) -> None:
        """With its folder, where names are folders. Raises `NotFound` and `AlreadyExists`."""
        ...

    def drop(self, name: str) -> None:
        """Forget a table; its files stay. Raises `NotFound`."""
        ...


@dataclass(frozen=True, slots=True)
class FoundView:
    """A view's newest metadata file, and what is in it: a document of Iceberg's view specification."""

    location: str
    document: Mapping[str, Any]


@runtime_checkable
class ViewCatalog(Protocol):
    """A catalog that keeps views too, or may; `options` are those of the warehouse's storage."""

    @property
    def keeps_views(self) -> bool:
        """Whether it does. Where it does not, it has no views, and nothing below is asked of it."""
        ...

    @property
    def places_views(self) -> bool:
        """Whether it chooses itself where a new view lies."""
        ...

    def views(self, namespace: str) -> list[str]:
        """Full names of the views of a namespace."""
        ...

    def has_view(self, name: str) -> bool: ...

    def find_view(self, name: str, options: Mapping[str, str]) -> FoundView | None: ...

    def publish_view(
        self, name: str, base: FoundView | None, document: Mapping[str, Any], nonce: str, options: Mapping[str, str]
    ) -> bool:
        """Whether the view is now what `document` says; not if it is not what `base` is (None: not there) any more. Raises
        `UnsupportedFeature`."""
        ...

    def rename_view(self, old: str, new: str) -> None:
        """Raises `NotFound` and `AlreadyExists`."""
        ...

    def drop_view(self, name: str, root: str, options: Mapping[str, str]) -> None:
        """With its metadata files, and folders below `root` that are empty then. Raises `NotFound`."""
        ...


@runtime_checkable
class ShowCatalog(Protocol):
    """A catalog that can show a table whose metadata others keep."""

    def show(self, name: str, newest: Callable[[], tuple[str, Mapping[str, Any]]]) -> None:
        """Make the table what its newest metadata file says, which `newest` gives with its location: from whatever the catalog has
        of it, so that a call cut short is made up for by the next. A table that cannot go on from there is dropped, without its
        files, and registered anew. Raises `StoreError`."""
        ...
