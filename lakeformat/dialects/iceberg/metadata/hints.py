"""Files that tell readers where to begin."""

from __future__ import annotations

from lakeformat.dialects.iceberg.metadata.folders import METADATA_FOLDER
from lakeformat.dialects.iceberg.metadata.state import State
from lakeformat.storage.cache import in_catalog
from lakeformat.storage.store import Reader

HINT = f"{METADATA_FOLDER}/version-hint.text"


def hints(reader: Reader, base: State) -> dict[str, bytes]:
    """What readers without a catalog read first, written after the version that follows the base's."""
    return {} if in_catalog(reader) else {HINT: str(base.version + 1).encode()}
