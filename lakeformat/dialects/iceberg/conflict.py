"""Which concurrent changes break an operation. Others are harmless: the operation is evaluated again on the new base.

    operation         what others did since                                 outcome
    Append            anything                                              none
    Overwrite         anything                                              none: the last writer wins inside the scope
    Overwrite pinned  added or removed rows inside the scope                Conflict
    Rewrite           removed one of the files it read                      Conflict
    Rewrite pinned    added or removed rows inside the scope                Conflict
    Restore           expired the snapshot                                  NotFound
    Evolve            changed the schema so that a change no longer fits    InvalidInput, NotFound or AlreadyExists
    SetTag            made a tag of that name                               AlreadyExists
    DropSnapshots     made one of them current, or named it                 Conflict

Compaction changes no rows, so a pinned operation does not mind it. (core/MergingSnapshotProducer.java)
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import expression
from lakeformat.dialects.iceberg import manifest, metadata
from lakeformat.dialects.iceberg.manifest import Status
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.errors import AlreadyExists, Conflict, InvalidInput, NotFound, OutsideScope, UnsupportedFeature
from lakeformat.model.operation import (
    Append,
    Create,
    DropSnapshots,
    DropTag,
    Operation,
    Overwrite,
    Restore,
    Rewrite,
    SetTag,
)
from lakeformat.model.predicate import ALWAYS, Expression, to_sql
from lakeformat.model.work import WrittenFile
from lakeformat.storage.store import Reader


def check(reader: Reader, operation: Operation, base: State) -> None:
    """Raise `Conflict` if others changed what `operation` relied on, or what says that it never could be."""
    if base.schema.id < 0 and not isinstance(operation, Create):
        raise NotFound(f"{reader.root}: the table is gone")
    match operation:
        case Append(added=added):
            _require_same_spec(reader, base, added)
        case Overwrite(added=added, scope=scope, pinned_to=pinned_to):
            _require_same_spec(reader, base, added)
            require_inside(added, base, scope)
            if pinned_to is not None:
                _require_untouched(reader, base, scope, pinned_to)
        case Rewrite(added=added, scope=scope, pinned_to=pinned_to):
            _require_same_spec(reader, base, added)
            removed(reader, base, operation)
            if pinned_to is not None:
                _require_untouched(reader, base, scope, pinned_to)
        case Restore(snapshot_id=snapshot_id):
            if snapshot_id not in metadata.snapshots(base):
                raise NotFound(f"{reader.root}: snapshot {snapshot_id} is not there any more")
        case SetTag(name=name, snapshot_id=snapshot_id):
            metadata.check_tag_name(base, name)
            if name in metadata.tags(base):
                raise AlreadyExists(f"{reader.root}: there is a tag {name!r}; delete it first")
            if snapshot_id not in metadata.snapshots(base):
                raise NotFound(f"{reader.root}: snapshot {snapshot_id} is not there any more")
        case DropTag(name=name):
            if name not in metadata.tags(base):
                raise NotFound(f"{reader.root}: no tag {name!r} any more")
        case DropSnapshots(snapshots=snapshots):
            refs = base.document.get("refs") or {}
            named = {ref["snapshot-id"] for ref in refs.values()} & set(snapshots)
            if named:
                raise Conflict(f"{reader.root}: snapshot {min(named)} was to expire and is in use again; run it again")
        case _:
            pass


def isolation(base: State, kind: str) -> str:
    """What a change by row minds of what others did since it read: `write.<kind>.isolation-level`."""
    key = f"write.{kind}.isolation-level"
    level = base.schema.properties.get(key, "serializable").lower()
    if level not in {"serializable", "snapshot"}:
        raise InvalidInput(f"property {key!r} is {level!r}; it must be 'serializable' or 'snapshot'")
    return level


def removed(reader: Reader, base: State, operation: Rewrite) -> pa.Table:
    """The live entries of the files that a Rewrite removes; raises `Conflict` if one is no longer live."""
    if pc.any(pc.equal(manifest.metas_of(reader, base.snapshot_document)["content"], 1)).as_py():
        raise UnsupportedFeature(
            f"{reader.root}: {operation.kind} by row on a table with files of deletes: not supported yet; let the engine "
            "that wrote them rewrite the data files"
        )
    entries = manifest.live_entries(reader, base, operation.scope)
    wanted = pa.array(operation.removed, pa.string())
    found = entries.filter(pc.is_in(entries["file_path"], value_set=wanted))
    if len(found) < len(wanted):
        gone = pc.filter(wanted, pc.invert(pc.is_in(wanted, value_set=entries["file_path"].combine_chunks())))
        raise Conflict(
            f"{reader.root}: {operation.kind} read {len(wanted)} files, of which {len(gone)} are no longer in the table at "
            f"version {base.version}, e.g. {gone[0].as_py()}; somebody replaced them. Nothing was changed: run it again"
        )
    return found


def overwritten(reader: Reader, base: State, scope: Expression) -> pa.Table:
    """The live entries in the scope of an Overwrite. Raises `UnsupportedFeature` where a partition spec cannot tell."""
    found = manifest.live_entries(reader, base, scope)
    if not manifest.tells(base, found, scope):
        raise UnsupportedFeature(
            f"{reader.root}: the table has files under an earlier partition spec, which does not tell whether they lie in "
            "what is overwritten: not supported yet; compact the table first"
        )
    return found


def require_inside(added: tuple[WrittenFile, ...], base: State, scope: Expression) -> None:
    """Raise `OutsideScope` if a file lies in a partition that the overwrite does not cover."""
    if scope == ALWAYS:
        return
    names = base.spec.partitioning.names
    partitions = sorted({f.partition for f in added}, key=str)
    inside = expression.mask(scope, manifest.partition_table(partitions, base)).to_pylist() if partitions else []
    outside = [p for p, ok in zip(partitions, inside, strict=True) if not ok]
    if outside:
        shown = ", ".join(str(dict(zip(names, p, strict=True))) for p in outside[:10])
        raise OutsideScope(
            f"rows of {len(outside)} partitions lie outside the overwrite's scope: {shown}. Nothing was committed: leave "
            f"these rows out, or declare their partitions too"
        )


def _require_same_spec(reader: Reader, base: State, added: tuple[WrittenFile, ...]) -> None:
    if added and len(added[0].partition) != len(base.spec.types):
        raise Conflict(f"{reader.root}: somebody changed the table's partitions. Nothing was changed: run it again")


def _require_untouched(reader: Reader, base: State, scope: Expression, pinned_to: int) -> None:
    chain = metadata.ancestry(base, metadata.current_id(base))
    ids = [s["snapshot-id"] for s in chain]
    if pinned_to == 0 and (not chain or "parent-snapshot-id" not in chain[-1]):
        ids.append(0)  # Before the first.
    if pinned_to not in ids:
        raise Conflict(
            f"{reader.root}: pinned to snapshot {pinned_to}, but history from there to {metadata.current_id(base)} is not "
            f"complete (expired or rolled back), so nobody can tell what changed. Nothing was changed: read again and pin anew"
        )
    for snapshot in chain[: ids.index(pinned_to)]:
        kind = snapshot["summary"]["operation"]
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
                f"{reader.root}: snapshot {snapshot['snapshot-id']} ({kind}) changed {len(inside)} files in {where[:300]} "
                f"after snapshot {pinned_to}. Nothing was changed: read again and pin anew"
            )
