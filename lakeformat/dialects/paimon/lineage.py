"""Lineage: which snapshots led to the current one, and which are strays.

Snapshot files are numbered, and expiry frees numbers. A writer that is delayed between its listing of the folder and
its `create` can take a number that was used and freed: a stray, below the newest snapshot, on which no other snapshot
builds. The newest is never deleted and names are freed from the oldest on, so a stray is recognised by what is above
it: a gap, or a snapshot that began from other files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dialects.paimon import manifest, metadata
from lakeformat.dialects.paimon.metadata import State
from lakeformat.errors import NoSuchFile, NotFound
from lakeformat.model.operation import Create, Evolve, Operation, new_files
from lakeformat.model.snapshot import Outcome, Plan
from lakeformat.storage.store import Reader


def settle(reader: Reader, operation: Operation, base: State, plan: Plan, since: int) -> Outcome:
    """The outcome of an attempt whose answer left it open; see the protocol."""
    (root,) = reader.read_many([plan.root_path])
    if isinstance(operation, Create | Evolve):  # Schemas never expire.
        return Outcome.PUBLISHED if root == plan.root else Outcome.LOST
    new_names = {path.rpartition("/")[2] for path in (*plan.files, *new_files(operation))}
    after = successor(reader, plan.snapshot.id)
    is_followed, is_ours = None, False
    if root is not None:
        document = metadata.parse_snapshot(root, f"{reader.root}/{plan.root_path}")
        # A catalog's server writes its own bytes, with the same manifest lists.
        is_ours = root == plan.root or metadata.content(document) == metadata.content(
            metadata.parse_snapshot(plan.root, plan.root_path)
        )
        is_followed = leads_to(reader, document, after)
        if is_followed is False and list(reader.read_many([plan.root_path])) != [root]:
            is_followed = None  # It expired after it was read: expiry made the gap above it.
        if is_followed and is_ours:
            if after is None or not _changes_index_alone(reader, plan, document):
                return Outcome.PUBLISHED
            if new_names & _index_names(reader, after):
                return Outcome.PUBLISHED
            is_followed = None  # A change of the index alone looks the same whoever made it.
    live = manifest.fold(manifest.read_all(reader, manifest.read_metas(reader, base.document)))[0]
    if new_names & {*live["_FILE_NAME"].to_pylist(), *_index_names(reader, base.document)}:
        return Outcome.PUBLISHED  # The snapshot has expired; only it can have added these files.
    is_lost = is_followed is (not is_ours) or plan.snapshot.id > base.version
    return Outcome.LOST if is_lost else Outcome.UNKNOWN


def successor(reader: Reader, snapshot_id: int) -> dict[str, Any] | None:
    """The first retained snapshot after that id; None if it is the newest."""
    while later := [i for i in metadata.snapshot_ids(reader) if i > snapshot_id]:
        if documents := metadata.read_snapshots(reader, later[:1]):
            return documents[0]
    return None


def leads_to(reader: Reader, document: Mapping[str, Any], after: Mapping[str, Any] | None) -> bool | None:
    """Whether the snapshot `document` led to `after`, the next retained one; if not, it is a stray. None if that is
    unknown: a restore undid it, or an expiry has begun with it."""
    if after is None:
        return True
    origin = (after.get("properties") or {}).get(metadata.RESTORED_FROM)
    origin = int(origin) if origin is not None and origin.isdecimal() else None
    if origin is not None and origin < document["id"]:
        return None
    try:
        if after["id"] > document["id"] + 1 and origin != document["id"]:  # Snapshots undone by a restore leave a gap.
            return _left_files(reader, document, after)
        return follows(reader, document, after)
    except NoSuchFile:
        return None


def follows(reader: Reader, document: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the snapshot `after` began from the files that `document` left."""
    lists = [document["baseManifestList"], document["deltaManifestList"], after["baseManifestList"]]
    *parts, base_metas = manifest.read_lists(reader, lists)
    left = pa.concat_tables(parts)
    if sorted(left["_FILE_NAME"].to_pylist()) == sorted(base_metas["_FILE_NAME"].to_pylist()):
        return True
    files = [manifest.fold(manifest.read_all(reader, metas))[0] for metas in (left, base_metas)]
    keys = [("_FILE_NAME", "ascending"), ("_LEVEL", "ascending")]
    names = [file.select(["_FILE_NAME", "_LEVEL"]).sort_by(keys) for file in files]
    return names[0].equals(names[1])


def require(reader: Reader, state: State) -> State:
    """The state of a requested snapshot. Raises `NotFound` for a stray."""
    if state.document is not None and leads_to(reader, state.document, successor(reader, state.version)) is False:
        raise NotFound(
            f"{reader.root}: snapshot {state.version} has expired: the file with its number is not part of the history"
        )
    return state


def load_snapshot(reader: Reader, version: int) -> State:
    """As `metadata.load_snapshot`, for a snapshot that led to the newest one."""
    return require(reader, metadata.load_snapshot(reader, version))


def at_time(reader: Reader, epoch_ms: int) -> State:
    """As `metadata.at_time`, for a snapshot that led to the newest one."""
    return require(reader, metadata.at_time(reader, epoch_ms))


# --- private ----------------------------------------------------------------------------------------------------------


def _left_files(reader: Reader, document: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether files added by `document` are live in `after`. Below a gap that is the only proof that a snapshot is no
    stray: expiry leaves no gap, but a file may have been deleted by hand."""
    delta = manifest.read_all(reader, manifest.read_list(reader, document["deltaManifestList"], document))
    live = manifest.fold(manifest.read_all(reader, manifest.read_metas(reader, after)))[0]
    own = manifest.fold(delta)[0]
    return bool(pc.any(pc.is_in(own["_FILE_NAME"], value_set=live["_FILE_NAME"].combine_chunks())).as_py())


def _changes_index_alone(reader: Reader, plan: Plan, document: Mapping[str, Any]) -> bool:
    """Whether a snapshot changed only the index (deletion vectors)."""
    if not any("/index-manifest-" in path for path in plan.files):
        return False
    return len(manifest.read_list(reader, document["deltaManifestList"], document)) == 0


def _index_names(reader: Reader, document: Mapping[str, Any] | None) -> set[str]:
    """The names of the index files of a snapshot."""
    return set(manifest.read_index(reader, document)["_FILE_NAME"].to_pylist())
