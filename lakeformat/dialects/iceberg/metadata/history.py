"""The snapshots and root documents that led to a version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lakeformat.codec import document as documents
from lakeformat.dialects.iceberg.metadata.documents import age
from lakeformat.dialects.iceberg.metadata.folders import METADATA_FOLDER, SUFFIXES
from lakeformat.dialects.iceberg.metadata.refs import branches, current_id, snapshots
from lakeformat.dialects.iceberg.metadata.snapshots import (
    DOCUMENT_OPERATION,
    FOLLOWS,
    OPERATION_ID,
    OPERATION_PROPERTY,
    to_snapshot,
)
from lakeformat.dialects.iceberg.metadata.state import State
from lakeformat.errors import (
    NoSuchFile,
)
from lakeformat.model.operation import Operation, Request, WithoutSnapshot
from lakeformat.model.snapshot import Snapshot, stream_numbers
from lakeformat.storage.head import Pointer
from lakeformat.storage.store import Reader


def ancestry(base: State, snapshot_id: int | None) -> list[Mapping[str, Any]]:
    """A snapshot and its ancestors, newest first, as far back as history goes."""
    by_id, chain = snapshots(base), []
    while snapshot_id is not None and snapshot_id in by_id:
        chain.append(by_id[snapshot_id])
        snapshot_id = chain[-1].get("parent-snapshot-id")
        assert len(chain) <= len(by_id), "snapshots that come from each other"
    return chain


def history(reader: Reader, base: State, after: int = 0) -> list[Snapshot]:
    """The snapshots that led to the current one, or all that there are of a table without a current one, oldest first;
    with `after`, those after it."""
    documents = ancestry(base, current_id(base))
    if base.snapshot_document is None:
        documents = sorted(snapshots(base).values(), key=age, reverse=True)
    lineage = []
    for document in documents:
        if document["snapshot-id"] == after:
            break
        lineage.append(to_snapshot(document))
    return lineage[::-1]


def committed(reader: Reader, base: State, user: str) -> int | None:
    """The largest number that a stream has committed, from its snapshots and from what later ones carry."""
    prefix, numbers = f"{user}/", list[int]()
    for document in ancestry(base, current_id(base)):
        summary = document.get("summary") or {}
        number = summary.get(OPERATION_ID, "").removeprefix(prefix)
        if summary.get(OPERATION_ID, "").startswith(prefix) and number.isdecimal():
            numbers.append(int(number))
        if user in (known := stream_numbers(summary)):
            numbers.append(known[user])
    return max(numbers, default=None)


def ids_with_changes(reader: Reader, base: State, after: int) -> list[int]:
    """The ids of the snapshots after that one, oldest first."""
    return [snapshot.id for snapshot in history(reader, base, after)] if base.snapshot_document is not None else []


def find(reader: Reader, operation: Operation, base: State) -> Mapping[str, Any] | int | None:
    """The snapshot (or, for an operation without one, the version) that `operation` became, if it has landed."""
    request = operation.request
    if _key_of(base.version) == _key_of(request.absent_until):
        return None
    if not isinstance(operation, WithoutSnapshot):
        elsewhere = _of_others(base)
        for document in snapshots(base).values():
            if (document.get("summary") or {}).get(OPERATION_ID) == request.id and document[
                "snapshot-id"
            ] not in elsewhere:
                return document
        return None
    return base.version if any(_is_of(request, d) for d in _documents(reader, base, request.absent_until)) else None


def is_known_since(reader: Reader, base: State, request: Request, since: int) -> bool | None:
    """Whether a change without a snapshot is among the documents after version `since`; None if it is not found and
    some documents are gone."""
    paths = _paths_since(reader, base, since)
    earlier = list(_documents(reader, base, since))
    if any(_is_of(request, document) for document in earlier):
        return True
    if paths is None:  # The log may reach back to the first document.
        return False if since == 0 and earlier and not earlier[-1].get("metadata-log") else None
    return False if len(earlier) == len(paths) else None


def _is_of(request: Request, document: Mapping[str, Any]) -> bool:
    """Whether a document records this request."""
    return request.id in (document.get(DOCUMENT_OPERATION), (document.get("properties") or {}).get(OPERATION_PROPERTY))


def named_documents(base: State) -> list[str]:
    """The locations of the documents that the base's refers to: itself and those in its log, newest first."""
    log = [e["metadata-file"] for e in base.document.get("metadata-log") or ()]
    return [base.location, *log[::-1]]


def _key_of(version: int) -> int | str:
    """What identifies a version: its document's location, or its number."""
    return version.location if isinstance(version, Pointer) else version


def numbered(reader: Reader) -> dict[int, str]:
    """The documents of the Hadoop layout: version -> path."""
    paths: dict[int, str] = {}
    names = reader.names(METADATA_FOLDER)
    for suffix in SUFFIXES:
        number = re.compile(rf"v([1-9]\d{{0,18}}){re.escape(suffix)}")
        for match in filter(None, map(number.fullmatch, names)):
            paths.setdefault(int(match[1]), f"{METADATA_FOLDER}/{match[0]}")
    return paths


def _of_others(base: State) -> set[int]:
    """Snapshots that are ancestors of other branches and not of this one."""
    if branches(base).keys() <= {base.branch}:
        return set()
    main_ids = {s["snapshot-id"] for s in ancestry(base, current_id(base))}
    return {
        s["snapshot-id"]
        for name, ref in branches(base).items()
        if name != base.branch
        for s in ancestry(base, ref["snapshot-id"])
    } - main_ids


def _documents(reader: Reader, base: State, until: int) -> Iterator[Mapping[str, Any]]:
    """The documents after version `until` that led to the base's, newest first, as far as they are retained. In the
    Hadoop layout they are found by number, however short the log is; a stray document with a reused number ends the
    search."""
    paths = _paths_since(reader, base, until)
    newer: Mapping[str, Any] | None = None
    for path in named_documents(base) if paths is None else paths:
        try:
            document = documents.parse(reader.read(path), path)
        except NoSuchFile:
            return  # Older ones were deleted.
        if newer is not None and not isinstance(base.version, Pointer) and not _follows(newer, document):
            return
        yield document
        newer = document


def _paths_since(reader: Reader, base: State, since: int) -> list[str] | None:
    """The locations of the documents after version `since`, newest first; None if some are gone."""
    if isinstance(base.version, Pointer):
        paths = named_documents(base)
        return paths[: paths.index(str(_key_of(since)))] if _key_of(since) in paths else None
    there, versions = numbered(reader), range(base.version, since, -1)
    return [there[version] for version in versions] if there.keys() >= set(versions) else None


def _follows(newer: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Whether a document was made from the one numbered directly before it, as far as its log and our mark record
    it."""
    log = newer.get("metadata-log") or ()
    if log and log[-1].get("timestamp-ms") != document.get("last-updated-ms"):
        return False
    return newer.get(FOLLOWS) in (None, document.get(DOCUMENT_OPERATION))
