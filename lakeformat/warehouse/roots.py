"""Where a table's files begin, and the formats that a folder's table can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakeformat.dialects.dialect import Format
from lakeformat.dialects.iceberg import metadata as iceberg
from lakeformat.dialects.iceberg.dialect import Iceberg
from lakeformat.dialects.iceberg.metadata import METADATA_FOLDER
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.errors import CorruptFile, InvalidInput
from lakeformat.storage.allowed import Allowed
from lakeformat.storage.cache import Cache
from lakeformat.storage.files import open_store
from lakeformat.storage.head import Pointer
from lakeformat.storage.store import Store

FORMATS: Mapping[str, Callable[[Cache], Format]] = {"paimon": Paimon, "iceberg": Iceberg}


def read_root(metadata_location: str, options: Mapping[str, str], allowed: Allowed | None = None) -> tuple[str, str]:
    """(the URI of an Iceberg metadata file, the table location that it records). Raises `NoSuchFile`, `CorruptTable`
    and `UnsupportedFeature`."""
    if not isinstance(metadata_location, str) or not metadata_location:
        raise InvalidInput(f"{metadata_location!r} is not a metadata file; give its path or URI")
    folder, _, file = metadata_location.rpartition("/")
    store = open_store(folder or ("/" if metadata_location.startswith("/") else "."), options, None, allowed)
    where = store.location(file)
    base = iceberg.load(store, Pointer(where))
    root = base.document.get("location")
    if not isinstance(root, str) or not root:
        raise CorruptFile(f"{where}: no table metadata: its location is {root!r}")
    return where, root.rstrip("/")


def refers_to_catalog(store: Store) -> str:
    """The error text for a folder with metadata files that only a catalog can order; empty for other folders."""
    documents = iceberg.documents_of_catalogs(store)
    if not documents:
        return ""
    newest = store.location(f"{METADATA_FOLDER}/{documents[-1]}")
    return (
        f"holds the metadata files of an Iceberg table in a catalog, which alone knows which of them counts: open "
        f"Lake(..., catalog=...), or read it by lakeformat.open_table({newest!r})"
    )
