"""Which files were loaded into a table: records beside it, as Paimon's `COPY INTO` keeps them (CopyLoadHistoryManager).

A record is `load-<hash of the file's path>-<milliseconds>` in the folder `copy-into/history` of a Paimon table.
Iceberg's engines delete unknown files of a table, but none in folders that begin with `_`: there it is
`_copy-into/history`.

Before the commit of a load, its records are written into one file `pending-<hash of the commit's id>`: whoever comes
after a crash asks the table whether that commit landed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from lakeformat.errors import CorruptFile
from lakeformat.model.dataclass import dataclass
from lakeformat.storage.store import Reader, Store

FOLDERS = {"paimon": "copy-into/history", "iceberg": "_copy-into/history"}  # A converted table has both.
RECORDS = r"(load|pending)-[0-9a-f]{16}(-\d+)?"  # Their names.
_PENDING = "pending-"


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file that was loaded. Another size or time of modification makes it another file."""

    path: str
    size_bytes: int
    modified_ms: int
    rows: int = 0

    @property
    def key(self) -> tuple[str, int, int]:
        return self.path, self.size_bytes, self.modified_ms


@dataclass(frozen=True, slots=True)
class Pending:
    """A load whose commit may have landed. `read_at`: the table's snapshot before it; 0 for none."""

    name: str
    id: str
    started_ms: int
    read_at: int
    files: tuple[LoadedFile, ...]


def loaded(store: Reader, files: Sequence[LoadedFile]) -> set[tuple[str, int, int]]:
    """The keys of those files that have a record. Raises `CorruptFile`."""
    wanted = {f"load-{_hash(file.path)}" for file in files}
    names = [f"{folder}/{name}" for folder in FOLDERS.values() for name in store.names(folder) if name[:21] in wanted]
    keys = set()
    for name, data in zip(names, store.read_many(names), strict=True):
        if data is not None:
            keys.add(_file(_document(name, data), name).key)
    return keys


def record(store: Store, folder: str, files: Iterable[LoadedFile], snapshot_id: int, now_ms: int) -> None:
    """Record that files were loaded by a snapshot."""
    texts = {}
    for file in files:
        document = {**_to_json(file), "loadedAt": now_ms, "snapshotId": snapshot_id}
        texts[f"{folder}/load-{_hash(file.path)}-{now_ms}"] = json.dumps(document).encode()
    store.write_many(texts)


def begin(store: Store, folder: str, pending: Pending) -> None:
    """Record that a load is about to be committed."""
    document = {
        "id": pending.id,
        "startedAt": pending.started_ms,
        "snapshotId": pending.read_at,
        "files": [_to_json(file) for file in pending.files],
    }
    store.write(f"{folder}/{pending.name}", json.dumps(document).encode())


def pending_name(id: str) -> str:
    return f"{_PENDING}{_hash(id)}"


def pending(store: Reader, folder: str) -> list[Pending]:
    """The loads that were begun and not ended. Raises `CorruptFile`."""
    names = [name for name in store.names(folder) if name.startswith(_PENDING)]
    begun = []
    for name, data in zip(names, store.read_many([f"{folder}/{name}" for name in names]), strict=True):
        if data is None:
            continue
        document = _document(name, data)
        try:
            files = tuple(_file(file, name) for file in document["files"])
            begun.append(
                Pending(name, str(document["id"]), int(document["startedAt"]), int(document["snapshotId"]), files)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _corrupt(name) from error
    return begun


def end(store: Store, folder: str, name: str) -> None:
    """Forget that a load was begun."""
    store.delete([f"{folder}/{name}"])


# --- private ----------------------------------------------------------------------------------------------------------


def _to_json(file: LoadedFile) -> dict[str, Any]:
    return {
        "filePath": file.path,
        "fileSize": file.size_bytes,
        "lastModified": file.modified_ms,
        "rowsLoaded": file.rows,
    }


def _document(name: str, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise _corrupt(name) from error
    if not isinstance(document, dict):
        raise _corrupt(name)
    return document


def _file(document: Any, name: str) -> LoadedFile:
    try:
        return LoadedFile(
            str(document["filePath"]),
            int(document["fileSize"]),
            int(document["lastModified"]),
            int(document.get("rowsLoaded", 0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _corrupt(name) from error


def _corrupt(name: str) -> CorruptFile:
    return CorruptFile(
        f"{name}: no record of loaded files; check whether the table has the rows of its load, then delete this file"
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
