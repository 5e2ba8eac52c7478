"""Metadata files of views, for catalogs that keep only the location of a view's newest one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from lakeformat.catalogs.catalog import ViewMetadata
from lakeformat.codec import document as documents
from lakeformat.errors import CorruptFile
from lakeformat.storage.allowed import Allowed
from lakeformat.storage.files import open_store
from lakeformat.storage.paths import relative

Document = Mapping[str, Any]


def read(location: str, options: Mapping[str, str], allowed: Allowed | None, name: str) -> ViewMetadata:
    """The view whose newest metadata file is there."""
    store = open_store(location.rpartition("/")[0], options, None, allowed, name)
    return ViewMetadata(location, documents.parse(store.read(location), location))


def write(
    document: Document,
    base: ViewMetadata | None,
    nonce: str,
    options: Mapping[str, str],
    allowed: Allowed | None,
    swap: Callable[[str], bool],
) -> bool:
    """Write the view's next metadata file and `swap` to it; the file is deleted if the swap fails."""
    store = open_store(f"{document['location']}/metadata", options, None, allowed)
    number = 0 if base is None else _number(base.location) + 1
    file = f"{number:05d}-{uuid.uuid5(uuid.NAMESPACE_OID, nonce)}.metadata.json"
    store.create(file, documents.emit(document))
    if swap(store.location(file)):
        return True
    store.delete([file])
    return False


def remove(view: ViewMetadata, root: str, options: Mapping[str, str], allowed: Allowed | None) -> None:
    """Delete the metadata files of a view, and folders below `root` that are empty then."""
    folder = view.location.rpartition("/")[0]
    store = open_store(folder, options, None, allowed)
    files = [file for file in store.names("") if file.endswith(".metadata.json")]
    store.delete([file for file in files if _uuid_of(store.read(file), file) == view.document.get("view-uuid")])
    if inside := relative(root, folder):
        open_store(root, options).remove_empty_folders([inside])


# --- private ----------------------------------------------------------------------------------------------------------


def _uuid_of(data: bytes, where: str) -> Any:
    try:
        return documents.parse(data, where).get("view-uuid")
    except CorruptFile:  # Not ours to delete.
        return None


def _number(location: str) -> int:
    """The number at the beginning of a metadata file's name, by which other engines count versions."""
    digits = location.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else 0
