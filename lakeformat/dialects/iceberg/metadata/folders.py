"""The folders of a table, and the names of its root documents."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakeformat.dialects.iceberg import options
from lakeformat.dialects.iceberg.metadata.state import State
from lakeformat.errors import (
    UnsupportedFeature,
)
from lakeformat.model.work import in_folder
from lakeformat.storage.cache import in_catalog
from lakeformat.storage.paths import is_absolute, relative
from lakeformat.storage.store import Reader

METADATA_FOLDER = "metadata"
DATA_FOLDER = "data"
_PLAIN, COMPRESSED = ".metadata.json", ".gz.metadata.json"
SUFFIXES = (_PLAIN, COMPRESSED, ".metadata.json.gz")  # In the order in which Java looks for a version's document.
_METADATA_PATH = "write.metadata.path"
OF_CATALOG = re.compile(r"(\d+)-.+\.metadata\.json(\.gz)?")


def data_folder(base: State) -> str:
    """The folder of new data files (`write.data.path`): below the table's location, or absolute."""
    return _folder(base, options.data_path(base.schema.properties), DATA_FOLDER)


def metadata_folder(base: State) -> str:
    """The folder of new metadata files (`write.metadata.path`): below the table's location, or absolute."""
    return _folder(base, base.schema.properties.get(_METADATA_PATH), METADATA_FOLDER)


def outside_folders(base: State) -> tuple[str, ...]:
    """Folders outside the table's location where its properties put files."""
    return tuple(dict.fromkeys(filter(is_absolute, (data_folder(base), metadata_folder(base))))) if base.exists else ()


def _folder(base: State, path: str | None, default: str) -> str:
    if path is None or not base.document:
        return default
    inside = relative(base.document["location"].rstrip("/"), path.rstrip("/"))
    return path.rstrip("/") if inside is None else inside


def next_path(reader: Reader, base: State, properties: Mapping[str, str], nonce: str) -> str:
    """The name of the document after the base's, for a table with these `properties`.

    In the Hadoop layout it follows from the base alone: all writers of the next version must contest one name.
    """
    if in_catalog(reader):
        return in_folder(metadata_folder(base), f"{base.version:05d}-{nonce}{_suffix(properties)}")
    if _METADATA_PATH in properties:
        raise UnsupportedFeature(
            f"{reader.root}: {_METADATA_PATH}={properties[_METADATA_PATH]}: a table without a catalog is found by the "
            "metadata in its own folder; keep it in a catalog, or leave the property out"
        )
    return f"{METADATA_FOLDER}/v{base.version + 1}{_suffix(base.schema.properties if base.exists else {})}"


def _suffix(properties: Mapping[str, str]) -> str:
    return COMPRESSED if options.compresses_metadata(properties) else _PLAIN
