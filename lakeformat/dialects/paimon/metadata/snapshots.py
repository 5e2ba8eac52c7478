"""Snapshot and changelog files: parse, emit, and what a snapshot says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any

from lakeformat.codec import parsing
from lakeformat.dialects.paimon.metadata.documents import emit, numbers_among, numbers_in, parsed
from lakeformat.dialects.paimon.metadata.folders import CHANGELOG_FOLDER, SNAPSHOT_FOLDER, changelog_path, snapshot_path
from lakeformat.errors import CorruptFile, UnsupportedFeature
from lakeformat.model.operation import Request
from lakeformat.model.snapshot import COUNTS, Snapshot
from lakeformat.storage import fence
from lakeformat.storage.store import Reader

BATCH_IDENTIFIER = 2**63 - 1
RESTORED_FROM = "lakeformat.restored-from"  # A snapshot property.
_SNAPSHOT_VERSION = 3
MANIFESTS = "lakeformatManifests"  # In a changelog's file: its manifests. Other readers ignore it.
_NO_WATERMARK = -(2**63)
_SNAPSHOT_KEYS: dict[str, type | UnionType] = {
    "version": int | None, "id": int, "schemaId": int, "baseManifestList": str, "deltaManifestList": str,
    "changelogManifestList": str | None, "indexManifest": str | None, "commitUser": str, "commitIdentifier": int,
    "commitKind": str, "operation": str | None, "timeMillis": int, "totalRecordCount": int | None,
    "deltaRecordCount": int | None, "changelogRecordCount": int | None, "watermark": int | None,
    "statistics": str | None, "properties": dict | None, "nextRowId": int | None, "tagCreateTime": list | None,
    "tagTimeRetained": int | float | None,
}  # fmt: skip
# A changelog's file is a copy of its snapshot's; those of Paimon 0.8 have fewer fields.
_CHANGELOG_KEYS: dict[str, type | UnionType] = _SNAPSHOT_KEYS | {
    "baseManifestList": str | None, "deltaManifestList": str | None, "commitUser": str | None,
    "commitIdentifier": int | None, MANIFESTS: list | None,
}  # fmt: skip


def spans(ids: Sequence[int]) -> str:
    """`1, 4 to 7`; of very many spans the last."""
    starts = [at for at in range(len(ids)) if at == 0 or ids[at] != ids[at - 1] + 1]
    ends = [*(at - 1 for at in starts[1:]), len(ids) - 1]
    spans = [
        f"{ids[start]}" if start == end else f"{ids[start]} to {ids[end]}"
        for start, end in zip(starts, ends, strict=True)
    ]
    return ", ".join(["..."] * (len(spans) > 9) + spans[-9:])


def snapshot_ids(reader: Reader) -> list[int]:
    """The ids of the retained snapshots, rising; there may be gaps."""
    return snapshot_ids_among(reader.names(SNAPSHOT_FOLDER))


def snapshot_ids_among(names: Iterable[str]) -> list[int]:
    """The ids of the snapshots whose files are among these names of the snapshot folder, rising."""
    return numbers_among(names, "snapshot-")


def listed_snapshots(reader: Reader) -> list[tuple[int, int]]:
    """(id, modification time of its file, in milliseconds since 1970) of the retained snapshots, rising."""
    start = f"{SNAPSHOT_FOLDER}/snapshot-"
    named = [(f.path[len(start) :], f.modified_ms) for f in reader.list(SNAPSHOT_FOLDER) if f.path.startswith(start)]
    return sorted((int(name), modified_ms) for name, modified_ms in named if name.isdecimal())


def read_snapshot(reader: Reader, snapshot_id: int) -> dict[str, Any]:
    return parsed_snapshot(reader, snapshot_id, reader.read(snapshot_path(snapshot_id)))


def read_snapshots(reader: Reader, ids: list[int]) -> list[dict[str, Any]]:
    """The documents of those snapshots that still exist, in the order of `ids`."""
    contents = zip(ids, reader.read_many([snapshot_path(i) for i in ids]), strict=True)
    return [parsed_snapshot(reader, i, data) for i, data in contents if data is not None]


def changelog_ids(reader: Reader) -> list[int]:
    """The ids of the expired snapshots that left their changelog, rising."""
    return numbers_in(reader, CHANGELOG_FOLDER, "changelog-")


def read_changelogs(reader: Reader, ids: list[int]) -> list[dict[str, Any]]:
    """The changelogs of those snapshots that have one, in the order of `ids`."""
    paths = [changelog_path(i) for i in ids]
    contents = zip(paths, reader.read_many(paths), strict=True)
    return [parse_changelog(data, f"{reader.root}/{path}") for path, data in contents if data is not None]


def parse_changelog(data: bytes, where: str) -> dict[str, Any]:
    return _checked(data, where, _CHANGELOG_KEYS)


def parse_snapshot(data: bytes, where: str) -> dict[str, Any]:
    """A snapshot or tag file -> its document, checked for what every reader needs."""
    document = _checked(data, where, _SNAPSHOT_KEYS)
    if not document["deltaManifestList"]:
        raise CorruptFile(f"{where}: deltaManifestList is empty; every snapshot names its changes")
    return document


def _checked(data: bytes, where: str, keys: Mapping[str, type | UnionType]) -> dict[str, Any]:
    with parsing.naming(where):
        document = parsed(data, where, keys)
        if (document.get("version") or 1) > _SNAPSHOT_VERSION:
            raise UnsupportedFeature(
                f"{where}: snapshot version {document['version']}; lakeformat knows up to {_SNAPSHOT_VERSION}"
            )
        if not all(isinstance(v, str) for v in (document.get("properties") or {}).values()):
            raise CorruptFile(f"{where}: properties that are not text: {document['properties']}")
        return document


def emit_snapshot(document: Mapping[str, Any]) -> bytes:
    """A document -> a snapshot file; keys with None are left out, as by Java."""
    return emit({"version": _SNAPSHOT_VERSION} | {k: v for k, v in document.items() if v is not None})


def content(document: Mapping[str, Any]) -> tuple[str, str]:
    """What differs between any two snapshots of a table, independent of their writer."""
    return document["baseManifestList"], document["deltaManifestList"]


def to_snapshot(document: Mapping[str, Any]) -> Snapshot:
    """A document in the nouns that both formats share."""
    operation = document.get("operation")
    kind = document["commitKind"].lower()
    if kind != "compact" and operation in {"DELETE", "UPDATE", "TRUNCATE", "MERGE", "OVERWRITE"}:
        kind = operation.lower()
    return Snapshot(
        id=document["id"],
        kind=kind,
        timestamp_ms=document["timeMillis"],
        schema_id=document["schemaId"],
        operation_id=_operation_id(document["commitUser"], document["commitIdentifier"]),
        parent_id=document["id"] - 1 or None,
        total_rows=document.get("totalRecordCount"),
        properties=document.get("properties") or {},
        figures=_figures(document),
    )


def watermark(document: Mapping[str, Any] | None, new: int | None) -> int | None:
    """The larger of the last snapshot's watermark and the given one."""
    old = None if document is None else document.get("watermark")
    if old == _NO_WATERMARK:
        old = None
    return max((w for w in (old, new) if w is not None), default=None)


def commit_identity(request: Request) -> tuple[str, int]:
    """`commitUser` and `commitIdentifier`: those of a session, or else the operation's id, as a batch."""
    return request.session or (request.id, BATCH_IDENTIFIER)


def backwards(reader: Reader, ids: list[int]) -> Iterator[dict[str, Any]]:
    """The documents of those snapshots that still exist, the newest first, read lazily."""
    end, size = len(ids), 4
    while end > 0:
        yield from reversed(read_snapshots(reader, ids[max(0, end - size) : end]))
        end, size = end - size, min(2 * size, 64)


def _figures(document: Mapping[str, Any]) -> dict[str, int]:
    """The changes that a snapshot records: the sum of rows is known, and for a plain write that is the number of rows
    added. Without an `operation` (before Paimon 2.0), an APPEND may include row-level deletes."""
    changelog = {"changelog_rows": document.get("changelogRecordCount") or 0}
    if not document.get("changelogManifestList"):
        changelog["changelog_files"] = 0
    if document["commitKind"] == "ANALYZE":
        return changelog | dict.fromkeys(COUNTS, 0)
    rows = document.get("deltaRecordCount")
    if document["commitKind"] != "APPEND" or document.get("operation") != "WRITE" or rows is None:
        return changelog
    return changelog | {"rows_added": rows, "files_removed": 0, "rows_removed": 0, "bytes_removed": 0}


def _operation_id(user: str, identifier: int) -> str:
    return user if identifier == BATCH_IDENTIFIER else f"{user}/{identifier}"


def parsed_snapshot(reader: Reader, snapshot_id: int, data: bytes) -> dict[str, Any]:
    where = f"{reader.root}/{snapshot_path(snapshot_id)}"
    try:
        document = parse_snapshot(data, where)
    except CorruptFile:
        fence.refuse(data, where)
        raise
    if document["id"] != snapshot_id:
        raise CorruptFile(f"{where}: says that it is snapshot {document['id']}")
    return document
