"""Versions of a table: load one, find one, and the snapshots before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lakeformat.dialects.paimon.metadata.documents import parsed
from lakeformat.dialects.paimon.metadata.folders import SCHEMA_FOLDER, SNAPSHOT_FOLDER, schema_path, snapshot_path
from lakeformat.dialects.paimon.metadata.refs import read_tag
from lakeformat.dialects.paimon.metadata.schemas import (
    OPERATION_KEY,
    newest_schema,
    newest_schema_after,
    read_schema,
    read_schemas,
    schema_ids,
)
from lakeformat.dialects.paimon.metadata.snapshots import (
    BATCH_IDENTIFIER,
    backwards,
    changelog_ids,
    commit_identity,
    parsed_snapshot,
    read_changelogs,
    read_snapshot,
    read_snapshots,
    snapshot_ids,
    spans,
    to_snapshot,
)
from lakeformat.dialects.paimon.metadata.state import NOTHING, State
from lakeformat.errors import CorruptTable, NoSuchFile, NotFound
from lakeformat.model.operation import Create, Evolve, Operation, OperationKind, Rewrite
from lakeformat.model.schema import Schema
from lakeformat.model.snapshot import Snapshot, stream_numbers, utc
from lakeformat.storage import fence
from lakeformat.storage.cache import in_catalog
from lakeformat.storage.head import CreateHead, Head, Newest
from lakeformat.storage.store import Reader, Store
from lakeformat.storage.swapped import Swapped


def head(store: Store, newest: Newest | None = None) -> Head:
    # A branch has its table's catalog entry.
    catalogued = in_catalog(store.store if isinstance(store, Swapped) else store)
    if catalogued:
        return catalogued.entry.head(store)
    key = f"{store.root}/{store.inner}" if isinstance(store, Swapped) else store.root
    return CreateHead(store, SNAPSHOT_FOLDER, "snapshot-", newest=newest, key=key)


def load(reader: Reader, version: int, earlier: State | None = None) -> State:
    """The table at snapshot `version` (0: before the first), with its newest schema; `NOTHING` if it does not exist.

    The schema of `earlier`, which was loaded before, is used if its snapshot still exists. The snapshot is read again:
    a rollback by another engine frees numbers, and the next commits reuse them.
    """
    if earlier is not None and earlier.newest is None and earlier.version == version > 0:
        path = snapshot_path(version)
        (data, next_schema) = reader.read_many([path, schema_path(earlier.schema.id + 1)])
        if data is None:
            raise NoSuchFile(f"{reader.root}/{path}: no such file")
        if parsed_snapshot(reader, version, data) == earlier.document:
            if next_schema is None:
                return State(version, earlier.schema, earlier.document, earlier.schemas)
            after = newest_schema_after(reader, earlier.schema)
            return State(version, after, earlier.document, {after.id: after})
    document = None if version == 0 else read_snapshot(reader, version)
    newest = newest_schema(reader, 0 if document is None else document["schemaId"])
    if newest is None:
        return NOTHING
    return State(version, newest, document, {newest.id: newest})


def load_snapshot(reader: Reader, version: int) -> State:
    """The table at snapshot `version`, with that snapshot's schema. Raises `NotFound`."""
    try:
        return _historical(reader, read_snapshot(reader, version))
    except NoSuchFile:
        there = snapshot_ids(reader)
        known = f"there are {spans(there)}" if there else "there is none"
        why = "; it was rolled back" if there and there[0] < version < there[-1] else ""
        raise NotFound(f"{reader.root}: no snapshot {version}{why}; {known}") from None


def at_tag(reader: Reader, name: str) -> State:
    """The table at a tag. Raises `NotFound`."""
    return _historical(reader, read_tag(reader, name))


def at_time(reader: Reader, epoch_ms: int) -> State:
    """The newest snapshot made at or before a time. Raises `NotFound` if all are younger."""
    ids = snapshot_ids(reader)
    low, high, newest = 0, len(ids) - 1, None
    while low <= high:
        middle = (low + high) // 2
        document = read_snapshot(reader, ids[middle])
        if document["timeMillis"] <= epoch_ms:
            newest, low = document, middle + 1
        else:
            high = middle - 1
    if newest is None:
        made = [read_snapshot(reader, id)["timeMillis"] for id in ids[:1]]
        oldest = f"the oldest, {ids[0]}, was made at {utc(made[0])}" if made else "there is none"
        raise NotFound(f"{reader.root}: no snapshot as old as {utc(epoch_ms)}; {oldest}")
    return _historical(reader, newest)


def earlier(reader: Reader, base: State, snapshot_id: int) -> State:
    """The table at an earlier snapshot, with the schema of `base`. Raises `NotFound`."""
    try:
        return replace(base, version=snapshot_id, document=read_snapshot(reader, snapshot_id))
    except NoSuchFile:
        raise NotFound(f"{reader.root}: snapshot {snapshot_id} does not exist: it may have expired") from None


def changed(reader: Reader, base: State, snapshot_id: int) -> tuple[State, bool]:
    """(as `earlier`, whether the snapshot itself is retained); an expired one may have left its changelog. Raises
    `NotFound`."""
    try:
        return earlier(reader, base, snapshot_id), True
    except NotFound:
        left = read_changelogs(reader, [snapshot_id])
        if not left:
            raise
        return replace(base, version=snapshot_id, document=left[0]), False


def ids_with_changes(reader: Reader, base: State, after: int) -> list[int]:
    """The ids of the snapshots after `after` whose changes can be read, rising; also expired ones that left their
    changelog."""
    return sorted(i for i in {*snapshot_ids(reader), *changelog_ids(reader)} if i > after)


def until(reader: Reader, version: int) -> State:
    """As `at`; for an expired snapshot that left its changelog, what that says. Raises `NotFound`."""
    try:
        return load_snapshot(reader, version)
    except NotFound:
        left = read_changelogs(reader, [version])
        if not left:
            raise
        return _historical(reader, left[0])


def schema_at(reader: Reader, state: State, schema_id: int) -> Schema:
    """The schema `schema_id`, with which files were written. Raises `CorruptTable` if it is missing."""
    if schema_id not in state.schemas:
        try:
            state.schemas[schema_id] = read_schema(reader, schema_id)
        except NoSuchFile as error:
            raise CorruptTable(
                f"{reader.root}: {schema_path(schema_id)} is missing, and data files at snapshot {state.version} were "
                "written with it; put it back from a backup. Snapshots without such files can be read"
            ) from error
    return state.schemas[schema_id]


def is_table(reader: Reader) -> bool:
    """Whether there is a Paimon table at the reader's root."""
    names = reader.names(SCHEMA_FOLDER)
    if not any(name.startswith("schema-") and name[7:].isdecimal() for name in names):
        return False
    if fence.MARK.rpartition("/")[2] not in names:
        return True
    under_way = fence.conversion(reader)
    return under_way is None or under_way.is_done(reader) is (under_way.to == "paimon")


def find(reader: Reader, operation: Operation, base: State) -> dict[str, Any] | int | None:
    """The document (or the schema id) that `operation` became, if it has landed; searched from the newest."""
    request = operation.request
    if isinstance(operation, Create | Evolve):
        for schema_id in reversed(schema_ids(reader)):
            data = parsed(reader.read(schema_path(schema_id)), f"{reader.root}/{schema_path(schema_id)}", {})
            if data.get(OPERATION_KEY) == request.id:
                return schema_id
        return None
    if base.version <= request.absent_until:
        return None
    user, identifier = commit_identity(request)
    is_compaction = isinstance(operation, Rewrite) and operation.kind == OperationKind.COMPACT
    ids = [i for i in snapshot_ids(reader) if request.absent_until < i <= base.version]
    for document in backwards(reader, ids):
        # A session may compact under the number of its commit; the kinds then differ.
        is_other = request.session is not None and (document["commitKind"] == "COMPACT") != is_compaction
        if document["commitUser"] == user and not is_other:
            if document["commitIdentifier"] == identifier:
                return document
            if document["commitIdentifier"] < identifier != BATCH_IDENTIFIER:
                return None  # A session's numbers rise.
    return None


def history(reader: Reader, base: State, after: int = 0) -> list[Snapshot]:
    """Every retained snapshot with an id above `after`, oldest first."""
    return [to_snapshot(d) for d in read_snapshots(reader, [i for i in snapshot_ids(reader) if i > after])]


def committed(reader: Reader, base: State, user: str) -> int | None:
    """The number of the newest commit of a stream, which is its largest; searched from the newest snapshot."""
    for document in backwards(reader, [i for i in snapshot_ids(reader) if i <= base.version]):
        if document["commitUser"] == user and document["commitIdentifier"] != BATCH_IDENTIFIER:
            return int(document["commitIdentifier"])
        known = stream_numbers(document.get("properties") or {})
        if user in known:
            return known[user]
    return None


def _historical(reader: Reader, document: dict[str, Any]) -> State:
    id = document["schemaId"]
    schema, after = read_schemas(reader, [id, id + 1])
    if schema is None:
        raise NoSuchFile(f"{reader.root}/{schema_path(id)}: no such file")
    newest = schema if after is None else newest_schema_after(reader, after)
    return State(document["id"], schema, document, {schema.id: schema}, newest)
