"""Conflicts: which concurrent changes break an operation. After any other change it is evaluated again on the new base.

    operation         what others did since                                 outcome
    Append            anything                                              none
    Adopt             added one of its files                                AlreadyExists
    Overwrite         anything                                              none: the last writer wins inside the scope
    Overwrite pinned  added or removed rows inside the scope                Conflict
    Rewrite           removed one of the files it read                      Conflict
    Rewrite pinned    added or removed rows inside the scope                Conflict
    Rewrite, RowDelta what `CHECKED` names                                  Conflict
    Restore           expired the snapshot                                  NotFound
    Follow            followed too                                          Conflict
    Evolve            changed the schema so that a change no longer fits    InvalidInput, NotFound or AlreadyExists
    SetTag            made a tag of that name                               AlreadyExists
    DropSnapshots     made one of them current, or named it                 Conflict
    SetStatistics     expired the snapshot                                  NotFound
    CreateBranch      made a branch of that name, expired the snapshot      AlreadyExists, NotFound
    FastForward       added to the branch that moves                        Conflict

Compaction changes no rows, so it does not conflict with a pinned operation. (core/MergingSnapshotProducer.java,
BaseRowDelta.java, BaseOverwriteFiles.java, BaseRewriteFiles.java; spark/SparkWrite.java, SparkPositionDeltaWrite.java)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dialects.iceberg import manifest, metadata, options, scan
from lakeformat.dialects.iceberg.manifest import FileContent, ManifestContent, Status
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import AlreadyExists, Conflict, InvalidInput, NotFound, OutsideScope, UnsupportedFeature
from lakeformat.expression import evaluation
from lakeformat.expression.spark_sql import to_sql
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import (
    Adopt,
    Append,
    CherryPick,
    Create,
    CreateBranch,
    DropBranch,
    DropSnapshots,
    DropTag,
    FastForward,
    Follow,
    Operation,
    OperationKind,
    Overwrite,
    Request,
    Restore,
    Rewrite,
    RowDelta,
    SetStatistics,
    SetTag,
)
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.work import Content, WrittenFile
from lakeformat.storage.store import Reader


class Check(Enum):
    """What others must not have done since an operation read the table."""

    ADDED_DATA = "added data files in which rows may satisfy the condition"
    ADDED_DELETES = "added delete files that may apply to rows which satisfy the condition"
    DELETES_FOR_REMOVED = "deleted rows of a file that is replaced"
    POSITIONS_FOR_REMOVED = "deleted rows, by position, of a file that is replaced"
    REFERENCED_REPLACED = "replaced a data file whose rows are deleted"
    REFERENCED_REMOVED = "removed a data file whose rows are deleted"
    ADDED_VECTORS = "wrote a deletion vector for the same data file"


# The operations of the snapshots that each check reads.
LOOKS_AT = {
    Check.ADDED_DATA: {"append", "overwrite"},
    Check.ADDED_DELETES: {"overwrite", "delete"},
    Check.DELETES_FOR_REMOVED: {"overwrite", "delete"},
    Check.POSITIONS_FOR_REMOVED: {"overwrite", "delete"},
    Check.REFERENCED_REPLACED: {"overwrite", "replace"},
    Check.REFERENCED_REMOVED: {"overwrite", "replace", "delete"},
    Check.ADDED_VECTORS: {"overwrite", "delete", "replace"},
}
_COPY = (Check.DELETES_FOR_REMOVED,)
_DELETE = (Check.REFERENCED_REPLACED, Check.ADDED_VECTORS)
_CHANGE = (Check.REFERENCED_REMOVED, Check.ADDED_DELETES, Check.ADDED_VECTORS)
_BY_ROW = (OperationKind.DELETE, OperationKind.UPDATE, OperationKind.MERGE, OperationKind.OVERWRITE)
# The checks by operation, kind and isolation. Data that a compaction writes keeps the sequence number of what it read,
# so that equality deletes committed meanwhile still apply to it.
CHECKED: dict[tuple[type, str, str | None], tuple[Check, ...]] = {
    (Rewrite, OperationKind.COMPACT, None): (Check.POSITIONS_FOR_REMOVED,),
    **{(Rewrite, kind, level): _COPY for kind in _BY_ROW for level in (None, "snapshot")},
    **{(Rewrite, kind, "serializable"): (*_COPY, Check.ADDED_DATA) for kind in _BY_ROW},
    (RowDelta, OperationKind.APPEND, None): (),
    (RowDelta, OperationKind.COMPACT, None): _DELETE,
    (RowDelta, OperationKind.CONVERT, None): _DELETE,
    (RowDelta, OperationKind.DELETE, "snapshot"): _DELETE,
    (RowDelta, OperationKind.DELETE, "serializable"): (*_DELETE, Check.ADDED_DATA),
    **{(RowDelta, kind, "snapshot"): _CHANGE for kind in (OperationKind.UPDATE, OperationKind.MERGE)},
    **{
        (RowDelta, kind, "serializable"): (*_CHANGE, Check.ADDED_DATA)
        for kind in (OperationKind.UPDATE, OperationKind.MERGE)
    },
}


def check(reader: Reader, operation: Operation, base: State) -> None:  # noqa: C901 - a case for each operation
    """Raise `Conflict` if others changed what `operation` relied on, or another error if it can never be committed."""
    if not base.exists and not isinstance(operation, Create | Follow):
        raise NotFound(f"{reader.root}: the table no longer exists")
    base = metadata.on(reader, base, operation.request.branch)
    match operation:
        case Append(added=added):
            _require_same_spec(reader, base, operation.request, added)
        case Adopt(added=added, may_repeat=may_repeat):
            _require_same_spec(reader, base, operation.request, added)
            if not may_repeat:
                _require_new(reader, base, added)
        case Overwrite(added=added, scope=scope, pinned_to=pinned_to):
            _require_same_spec(reader, base, operation.request, added)
            require_inside(added, base, scope)
            if pinned_to is not None:
                _require_untouched(reader, base, scope, pinned_to)
        case Rewrite(added=added, scope=scope, pinned_to=pinned_to):
            _require_same_spec(reader, base, operation.request, added)
            removed(reader, base, operation)
            if pinned_to is not None:
                _require_untouched(reader, base, scope, pinned_to)
            _validate(reader, base, operation)
        case RowDelta(added=added):
            _require_same_spec(reader, base, operation.request, tuple(f for f in added if f.spec_id is None))
            replaced(reader, base, operation)
            _validate(reader, base, operation)
        case Follow(request=request) if base.version != request.absent_until:
            raise Conflict(f"{reader.root}: another writer has committed version {base.version} of this metadata")
        case Restore(snapshot_id=snapshot_id):
            if snapshot_id not in metadata.snapshots(base):
                raise NotFound(f"{reader.root}: snapshot {snapshot_id} no longer exists")
        case SetTag(name=name, snapshot_id=snapshot_id):
            metadata.check_name(base, "tag", name)
            if name in metadata.tags(base):
                raise AlreadyExists(f"{reader.root}: there is a tag {name!r}; delete it first")
            if snapshot_id not in metadata.snapshots(base):
                raise NotFound(f"{reader.root}: snapshot {snapshot_id} no longer exists")
        case DropTag(name=name):
            if name not in metadata.tags(base):
                raise NotFound(f"{reader.root}: no tag {name!r} any more")
        case CreateBranch(name=name, snapshot_id=snapshot_id):
            metadata.check_name(base, "branch", name)
            if name == metadata.MAIN or name in metadata.branches(base):
                raise AlreadyExists(f"{reader.root}: there is a branch {name!r}; delete it first")
            if snapshot_id not in metadata.snapshots(base):
                raise NotFound(f"{reader.root}: snapshot {snapshot_id} no longer exists")
        case DropBranch(name=name):
            if name == metadata.MAIN:
                raise InvalidInput(f"{reader.root}: {name!r} is the table itself and cannot be deleted")
            metadata.on(reader, base, name)
        case FastForward(to=int(snapshot_id)):
            if not Staging(reader, base).leads_to(snapshot_id):
                raise Conflict(
                    f"{reader.root}: {metadata.current_id(base)} is current, and no parent of snapshot {snapshot_id}"
                )
            _require_unpublished(reader, base, snapshot_id)
        case CherryPick(snapshot_id=snapshot_id):
            _require_pickable(reader, base, snapshot_id)
        case FastForward(to=str(to)):
            ahead = metadata.on(reader, base, to)
            led = {s["snapshot-id"] for s in metadata.ancestry(ahead, metadata.current_id(ahead))}
            if metadata.current_id(ahead) is None or metadata.current_id(base) not in {None, *led}:
                raise Conflict(
                    f"{reader.root}: branch {base.branch!r} has snapshots that did not lead to {to!r} "
                    f"({metadata.current_id(base)} is not an ancestor of {metadata.current_id(ahead)}), "
                    "so it cannot go forward there"
                )
        case SetStatistics(snapshot_id=snapshot_id):
            if snapshot_id not in metadata.snapshots(base):
                raise NotFound(f"{reader.root}: snapshot {snapshot_id} no longer exists")
        case DropSnapshots(snapshots=snapshots):
            refs = base.document.get("refs") or {}
            named = {ref["snapshot-id"] for ref in refs.values()} & set(snapshots)
            if named:
                raise Conflict(f"{reader.root}: snapshot {min(named)} was to expire and is in use again; run it again")
        case _:
            pass


def isolation(base: State, kind: str) -> str:
    """The isolation level of a row-level change: `write.<kind>.isolation-level`."""
    return options.isolation(base.schema.properties, kind)


def removed(reader: Reader, base: State, operation: Rewrite) -> pa.Table:
    """The live entries of the files that a Rewrite removes; raises `Conflict` if one is no longer live."""
    entries = manifest.live_entries(reader, base, operation.scope)
    read_paths = pa.array(operation.removed, pa.string())
    table = entries.filter(pc.is_in(entries["file_path"], value_set=read_paths))
    if len(table) < len(read_paths):
        missing = pc.filter(
            read_paths, pc.invert(pc.is_in(read_paths, value_set=entries["file_path"].combine_chunks()))
        )
        raise Conflict(
            f"{reader.root}: {operation.kind} read {len(read_paths)} files, of which {len(missing)} are no longer in "
            f"the table at version {base.version}, e.g. {missing[0].as_py()}; another writer replaced them. "
            "Nothing was changed: run it again"
        )
    return table


def overwritten(reader: Reader, base: State, scope: Expression) -> pa.Table:
    """The live entries in the scope of an Overwrite. Raises `UnsupportedFeature` if a partition spec cannot decide."""
    table = manifest.live_entries(reader, base, scope)
    if not manifest.decides(base, table, scope):
        raise UnsupportedFeature(
            f"{reader.root}: the table has files under an earlier partition spec, which cannot decide whether they lie "
            "in what is overwritten: not supported yet; compact the table first"
        )
    return table


def useless(reader: Reader, base: State, scope: Expression) -> pa.Table:
    """The delete files in the scope of an Overwrite, whose data files are removed."""
    table = manifest.live_entries(reader, base, scope, ManifestContent.DELETES)
    return manifest.in_scope(table, base, scope, unknown=False)


def replaced(reader: Reader, base: State, operation: RowDelta) -> pa.Table:
    """The live entries of the delete files that a RowDelta replaces. One that is no longer live is a `Conflict`, unless
    rows are only deleted: the new file includes its positions."""
    replaced_deletes = {(d.path, d.offset) for f in operation.added for d in f.replaces} | {
        (d.path, d.offset) for d in operation.removed
    }
    entries = manifest.live_entries(reader, base, content=ManifestContent.DELETES)
    names = [path if offset is None else f"{path}#{offset}" for path, offset in replaced_deletes]
    table = entries.filter(pc.is_in(manifest.keys(entries), value_set=pa.array(names, pa.string())))
    if len(table) < len(names) and operation.kind != OperationKind.DELETE:
        raise Conflict(
            f"{reader.root}: {operation.kind} read {len(names)} delete files, of which {len(names) - len(table)} are "
            f"no longer in the table at version {base.version}; another writer replaced them. Nothing was changed: "
            "run it again"
        )
    return table


def starting_sequence(base: State, operation: Rewrite) -> int | None:
    """The sequence number of new data: for a compaction that of the data it read."""
    if operation.kind != OperationKind.COMPACT or operation.read_at is None:
        return None
    snapshot = metadata.snapshots(base).get(operation.read_at)
    return None if snapshot is None else snapshot.get("sequence-number", 0)


def require_inside(added: tuple[WrittenFile, ...], base: State, scope: Expression) -> None:
    """Raise `OutsideScope` for a file in a partition that the overwrite does not cover."""
    if scope == ALWAYS:
        return
    names = base.spec.partitioning.names
    partitions = sorted({f.partition for f in added}, key=str)
    inside = evaluation.mask(scope, manifest.partition_table(partitions, base)).to_pylist() if partitions else []
    outside = [p for p, ok in zip(partitions, inside, strict=True) if not ok]
    if outside:
        shown = ", ".join(str(dict(zip(names, p, strict=True))) for p in outside[:10])
        raise OutsideScope(
            f"rows of {len(outside)} partitions lie outside the overwrite's scope: {shown}. Nothing was committed: "
            "leave these rows out, or declare their partitions too"
        )


def _require_same_spec(reader: Reader, base: State, request: Request, added: tuple[WrittenFile, ...]) -> None:
    is_other = request.partitioning_id not in (None, base.spec.id)
    if added and (is_other or len(added[0].partition) != len(base.spec.types)):
        raise Conflict(
            f"{reader.root}: another writer changed the table's partitions. Nothing was changed: run it again"
        )


def _require_new(reader: Reader, base: State, added: tuple[WrittenFile, ...]) -> None:
    there = manifest.live_entries(reader, base)["file_path"]
    locations = pa.array([reader.location(file.path) for file in added], pa.string())
    again = locations.filter(pc.is_in(locations, value_set=there.combine_chunks())).to_pylist()
    if again:
        raise AlreadyExists(
            f"{reader.root}: {len(again)} of {len(added)} files are in the table already, e.g. {again[0]}; "
            "leave them out. Nothing was changed"
        )


def _validate(reader: Reader, base: State, operation: Rewrite | RowDelta) -> None:
    """Run the checks of `CHECKED`. A Rewrite that does not say what it read conflicts with any deletes of what it
    removes."""
    checks = CHECKED.get((type(operation), operation.kind, operation.isolation))
    if checks is None:
        raise UnsupportedFeature(
            f"{reader.root}: {operation.kind} with isolation {operation.isolation!r}: "
            "it is 'serializable' or 'snapshot'"
        )
    read_at = operation.read_at
    if read_at is None:
        if isinstance(operation, Rewrite):
            table = manifest.live_entries(reader, base, content=ManifestContent.DELETES)
            if len(table) and len(scan.attached(base, removed(reader, base, operation), table)[0]):
                raise _broken(reader, operation, Check.DELETES_FOR_REMOVED, None)
        return
    if not checks:
        return
    since = _since(reader, base, read_at)
    for kind in checks:
        for snapshot in since:
            if _operation(snapshot) in {None, *LOOKS_AT[kind]} and _breaks(reader, base, operation, kind, snapshot):
                raise _broken(reader, operation, kind, snapshot)


def _breaks(
    reader: Reader, base: State, operation: Rewrite | RowDelta, check: Check, snapshot: Mapping[str, Any]
) -> bool:
    """Whether a snapshot did what `check` forbids."""
    match check, operation:
        case Check.ADDED_DATA, _:
            entries = manifest.entries_of_snapshot(reader, base, snapshot, ManifestContent.DATA, Status.ADDED)
            return len(scan.may_hold(base, entries, operation.condition)) > 0
        case Check.ADDED_DELETES, _:
            entries = manifest.entries_of_snapshot(reader, base, snapshot, ManifestContent.DELETES, Status.ADDED)
            return len(scan.may_hold(base, entries, operation.condition)) > 0
        case ((Check.DELETES_FOR_REMOVED | Check.POSITIONS_FOR_REMOVED), Rewrite()):
            entries = manifest.entries_of_snapshot(reader, base, snapshot, ManifestContent.DELETES, Status.ADDED)
            if check is Check.POSITIONS_FOR_REMOVED:
                entries = entries.filter(pc.not_equal(entries["content"], int(FileContent.EQUALITY_DELETES)))
            return len(entries) > 0 and len(scan.attached(base, removed(reader, base, operation), entries)[0]) > 0
        case ((Check.REFERENCED_REPLACED | Check.REFERENCED_REMOVED), RowDelta(referenced=referenced)):
            entries = manifest.entries_of_snapshot(reader, base, snapshot, ManifestContent.DATA, Status.DELETED)
            return bool(pc.any(pc.is_in(entries["file_path"], value_set=pa.array(referenced, pa.string()))).as_py())
        case Check.ADDED_VECTORS, RowDelta(added=added):
            about = pa.array(
                [p for f in added if f.content is Content.DELETION_VECTORS for p in f.refers_to], pa.string()
            )
            entries = manifest.entries_of_snapshot(reader, base, snapshot, ManifestContent.DELETES, Status.ADDED)
            return bool(pc.any(pc.is_in(entries["referenced_data_file"], value_set=about)).as_py())
    raise AssertionError((check, operation))


def _broken(
    reader: Reader, operation: Rewrite | RowDelta, check: Check, snapshot: Mapping[str, Any] | None
) -> Conflict:
    who = "another writer" if snapshot is None else f"snapshot {snapshot['snapshot-id']}"
    where = "" if operation.condition == ALWAYS else f" ({to_sql(operation.condition)[:300]})"
    return Conflict(
        f"{reader.root}: {operation.kind}{where}: {who} {check.value} since the table was read. "
        "Nothing was changed: run it again"
    )


def _operation(snapshot: Mapping[str, Any]) -> str | None:
    """The operation that a snapshot records; some writers of version 1 record none."""
    text: str | None = (snapshot.get("summary") or {}).get("operation")
    return text


def _since(
    reader: Reader, base: State, snapshot_id: int, relied: str = "snapshot {} was read", again: str = "run it again"
) -> list[Mapping[str, Any]]:
    """The snapshots after one, newest first. Raises `Conflict` if history does not reach back to it; `relied` and
    `again` are parts of its message."""
    chain = metadata.ancestry(base, metadata.current_id(base))
    ids = [s["snapshot-id"] for s in chain]
    if snapshot_id == 0 and (not chain or "parent-snapshot-id" not in chain[-1]):
        ids.append(0)  # Before the first.
    if snapshot_id not in ids:
        raise Conflict(
            f"{reader.root}: {relied.format(snapshot_id)}, but history from there to {metadata.current_id(base)} is "
            f"not complete (expired or rolled back), so what changed is unknown. Nothing was changed: {again}"
        )
    return chain[: ids.index(snapshot_id)]


@dataclass(frozen=True, slots=True)
class Staging(Part[State]):
    """Snapshots that are made now and published later."""

    def leads_to(self, snapshot_id: int) -> bool:
        """Whether the current snapshot is the parent of that one. Raises `NotFound`."""
        return _picked(self.state, snapshot_id).get("parent-snapshot-id") == metadata.current_id(self.state)

    def staged(self, wap_id: str) -> list[int]:
        """The snapshots staged under a write-audit-publish id, oldest first."""
        documents = metadata.snapshots(self.state).values()
        matching = [s for s in documents if (s.get("summary") or {}).get("wap.id") == wap_id]
        return [s["snapshot-id"] for s in sorted(matching, key=lambda s: s.get("sequence-number", 0))]


def replaces_partitions(snapshot: Mapping[str, Any]) -> bool:
    """Whether a snapshot is a dynamic overwrite."""
    summary = snapshot.get("summary") or {}
    return _operation(snapshot) == "overwrite" and str(summary.get("replace-partitions")).lower() == "true"


def picked(reader: Reader, base: State, snapshot_id: int) -> tuple[pa.Table, pa.Table]:
    """(entries of the data files that a snapshot added, the live entries of `base` that it removed). Raises `Conflict`
    if one of these is no longer live."""
    metas = manifest.metas_of(reader, _picked(base, snapshot_id))
    is_own = pc.and_(
        pc.equal(metas["added_snapshot_id"], snapshot_id), pc.equal(metas["content"], int(ManifestContent.DATA))
    )
    entries = manifest.read_all(reader, base, metas.filter(is_own))
    entries = entries.filter(pc.equal(entries["snapshot_id"], snapshot_id))
    removed_entries = entries.filter(pc.equal(entries["status"], int(Status.DELETED)))
    live = manifest.live_entries(reader, base)
    taken = live.filter(pc.is_in(manifest.keys(live), value_set=manifest.keys(removed_entries)))
    if len(taken) < len(removed_entries):
        raise Conflict(
            f"{reader.root}: of the files that snapshot {snapshot_id} replaces, some no longer exist; write it again"
        )
    return entries.filter(pc.equal(entries["status"], int(Status.ADDED))), taken


def _picked(base: State, snapshot_id: int) -> Mapping[str, Any]:
    snapshot = metadata.snapshots(base).get(snapshot_id)
    if snapshot is None:
        raise NotFound(f"{base.location}: no snapshot {snapshot_id}: it may have expired")
    return snapshot


def _require_unpublished(reader: Reader, base: State, snapshot_id: int) -> None:
    """The rules of CherryPickOperation and WapUtil: a snapshot, and a write-audit-publish id, can be published once."""
    wap_id = (_picked(base, snapshot_id).get("summary") or {}).get("wap.id")
    for snapshot in metadata.ancestry(base, metadata.current_id(base)):
        summary = snapshot.get("summary") or {}
        if snapshot["snapshot-id"] == snapshot_id or summary.get("source-snapshot-id") == str(snapshot_id):
            raise Conflict(f"{reader.root}: snapshot {snapshot_id} is published already, by {snapshot['snapshot-id']}")
        if wap_id and wap_id in (summary.get("wap.id"), summary.get("published-wap-id")):
            raise Conflict(
                f"{reader.root}: changes of the id {wap_id!r} are published already, by {snapshot['snapshot-id']}"
            )


def _require_pickable(reader: Reader, base: State, snapshot_id: int) -> None:
    snapshot = _picked(base, snapshot_id)
    _require_unpublished(reader, base, snapshot_id)
    if _operation(snapshot) == "append":
        return
    if not replaces_partitions(snapshot):
        raise InvalidInput(
            f"{reader.root}: snapshot {snapshot_id} ({_operation(snapshot)}) is neither an append nor a dynamic "
            "overwrite, and others have committed since: it cannot be published any more; write it again"
        )
    added, _ = picked(reader, base, snapshot_id)
    replaced_partitions = _partitions_of(added)
    for since in _since(reader, base, snapshot.get("parent-snapshot-id") or 0, "snapshot {} was overwritten"):
        metas = manifest.metas_of(reader, since)
        entries = manifest.read_all(
            reader, base, metas.filter(pc.equal(metas["added_snapshot_id"], since["snapshot-id"]))
        )
        new = pc.and_(
            pc.equal(entries["snapshot_id"], since["snapshot-id"]), pc.equal(entries["status"], int(Status.ADDED))
        )
        if both := _partitions_of(entries.filter(new)) & replaced_partitions:
            raise Conflict(
                f"{reader.root}: snapshot {since['snapshot-id']} wrote to {len(both)} of the partitions that "
                f"{snapshot_id} replaces; write it again"
            )


def _partitions_of(entries: pa.Table) -> set[tuple[Any, ...]]:
    names = [name for name in entries.column_names if name == "_spec" or re.fullmatch(r"p\d+", name)]
    distinct = entries.select(names).group_by(names).aggregate([])
    return set(zip(*(distinct[name].to_pylist() for name in names), strict=True))


def _require_untouched(reader: Reader, base: State, scope: Expression, pinned_to: int) -> None:
    for snapshot in _since(reader, base, pinned_to, "pinned to snapshot {}", "read again and pin anew"):
        kind = _operation(snapshot)
        if kind == "replace":
            continue
        metas = manifest.metas_of(reader, snapshot)
        own = metas.filter(pc.equal(metas["added_snapshot_id"], snapshot["snapshot-id"]))
        entries = manifest.read_all(reader, base, manifest.prune_metas(own, base, scope))
        changed = pc.and_(
            pc.equal(entries["snapshot_id"], snapshot["snapshot-id"]),
            pc.not_equal(entries["status"], int(Status.EXISTING)),
        )
        inside = manifest.in_scope(entries.filter(changed), base, scope)
        if len(inside):
            where = "the table" if scope == ALWAYS else to_sql(scope)
            raise Conflict(
                f"{reader.root}: snapshot {snapshot['snapshot-id']} ({kind}) changed {len(inside)} files in "
                f"{where[:300]} after snapshot {pinned_to}. Nothing was changed: read again and pin anew"
            )
