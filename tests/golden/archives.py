"""Golden tables that are kept as archives."""

import zipfile
from pathlib import Path

from lakeformat.storage.memory import MemoryFiles


def unzipped(path: str) -> MemoryFiles:
    """The files of a table that is kept as an archive in this folder."""
    store = MemoryFiles("file:/golden/db.db/t")
    with zipfile.ZipFile(Path(__file__).parent / path) as packed:
        for name in packed.namelist():
            store.write(name, packed.read(name))
    return store
