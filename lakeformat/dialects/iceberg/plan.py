"""operation + state -> the files and the root that make it so."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import plain_values
from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.iceberg import single_value
from lakeformat.dialects.dialect import FOLLOWED, Published
from lakeformat.dialects.iceberg import (
    conflict,
    layout,
    manifest,
    metadata,
    mirror,
    name_mapping,
    options,
    scan,
    statistics,
    types,
)
from lakeformat.dialects.iceberg.manifest import ENTRY, FileContent, ManifestContent, Manifests, Status
from lakeformat.dialects.iceberg.metadata import FORMAT_VERSION, MAIN, OPERATION_ID, VERB, Spec, State
from lakeformat.errors import AlreadyExists, InvalidInput, NotFound
from lakeformat.expression import order
from lakeformat.model import evolution
from lakeformat.model.evolution import SetSortOrder
from lakeformat.model.operation import (
    Adopt,
    Append,
    CherryPick,
    Create,
    CreateBranch,
    DropBranch,
    DropSnapshots,
    DropTag,
    Evolve,
    FastForward,
    Follow,
    MergeBranch,
    Operation,
    OperationKind,
    Overwrite,
    Request,
    Restore,
    Rewrite,
    RewriteManifests,
    RowDelta,
    SetFileIndexes,
    SetGlobalIndexes,
    SetStatistics,
    SetTag,
)
from lakeformat.model.partition import Partitioning
from lakeformat.model.schema import Field, Kind, Scalar, Schema, is_plain, scalar, walk
from lakeformat.model.snapshot import PartitionChange, Plan, Snapshot, Stamp, carried
from lakeformat.model.work import ColumnStats, Content, StatsMode, WrittenFile, in_folder
from lakeformat.storage.cache import remember
from lakeformat.storage.store import Reader

RESTORED_FROM = "lakeformat.restored-from"

# Verb -> Iceberg's operation, whatever files were added and removed; for other verbs these decide.
_OPERATIONS = {OperationKind.APPEND: "append", OperationKind.COMPACT: "replace", OperationKind.RESTORE: "overwrite"}
_TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}
_CONTENTS = {
    Content.DATA: FileContent.DATA,
    Content.POSITION_DELETES: FileContent.POSITION_DELETES,
    Content.DELETION_VECTORS: FileContent.POSITION_DELETES,
    Content.EQUALITY_DELETES: FileContent.EQUALITY_DELETES,
}


def plan(reader: Reader, operation: Operation, base: State, stamp: Stamp) -> Plan:
    """The files to stage and the root to publish so that `operation` becomes the version after `base`."""
    base = metadata.on(reader, base, operation.request.branch)
    match operation:
        case Create(request=request, schema=schema, added=added):
            return _create(reader, request, schema, base, stamp, added)
        case Evolve(request=request, changes=changes):
            return _evolve(reader, request, changes, base, stamp)
        case Append(request=request, added=added) | Adopt(request=request, added=added):
            return _commit(reader, request, OperationKind.APPEND, base, stamp, added)
        case Overwrite(request=request, added=added, scope=scope, kind=kind, is_dynamic=is_dynamic):
            removed = conflict.overwritten(reader, base, scope)
            useless = conflict.useless(reader, base, scope)
            return _commit(reader, request, kind, base, stamp, added, removed, useless, is_dynamic=is_dynamic)
        case Rewrite(request=request, added=added, kind=kind):
            removed = conflict.removed(reader, base, operation)
            return _commit(
                reader, request, kind, base, stamp, added, removed, None, conflict.starting_sequence(base, operation)
            )
        case RowDelta(request=request, added=added, kind=kind):
            useless = conflict.replaced(reader, base, operation)
            return _commit(reader, request, kind, base, stamp, added, None, useless)
        case CherryPick(request=request, snapshot_id=snapshot_id):
            return _pick(reader, request, snapshot_id, base, stamp)
        case Restore():
            return _restore(reader, operation, base, stamp)
        case RewriteManifests(request=request):
            return _rewrite_manifests(reader, request, base, stamp)
        case Follow(request=request, published=published):
            return _follow(reader, request, published, base, stamp)
        case SetTag() | DropTag() | CreateBranch() | DropBranch() | FastForward() | DropSnapshots():
            return _refer(reader, operation, base, stamp)
        case SetStatistics():
            return _set_statistics(reader, operation, base, stamp)
        case MergeBranch() | SetFileIndexes() | SetGlobalIndexes():
            raise AssertionError(f"{operation}: Iceberg's branches are not folders, and its files have no indexes")


def find(reader: Reader, operation: Operation, base: State) -> Snapshot | None:
    """The snapshot that `operation` became, if it has landed."""
    if isinstance(operation, Follow):
        return mirror.find(base, operation.published)
    base = metadata.on(reader, base, operation.request.branch)
    landed = metadata.find(reader, operation, base)
    if landed is None:
        return None
    if isinstance(landed, int):
        return Snapshot(
            metadata.current_id(base) or 0, "evolve", 0, base.schema.id, operation.request.id, partitions=()
        )
    return replace(metadata.to_snapshot(landed), partitions=_changes_of(reader, landed, base))


def changes(reader: Reader, base: State) -> tuple[PartitionChange, ...]:
    """What the base's own snapshot added and removed in each partition."""
    return () if base.snapshot_document is None else _changes_of(reader, base.snapshot_document, base)


# --- private ----------------------------------------------------------------------------------------------------------


def _create(
    reader: Reader, request: Request, schema: Schema, base: State, stamp: Stamp, added: tuple[WrittenFile, ...]
) -> Plan:
    if base.exists:
        raise AlreadyExists(f"{reader.root}: the table exists already; pass if_exists='ignore' to keep it unchanged")
    declared = metadata.declare(schema, reader.root)
    document = metadata.new_document(declared, reader.root, stamp)
    empty = replace(metadata.parse(metadata.emit(document), base.version, reader.root), location="", exists=False)
    layout.layout(empty)  # What the first write would refuse.
    if added:
        return _commit(reader, request, OperationKind.APPEND, empty, stamp, added)
    return _publish(
        reader, request, base, stamp, document, Snapshot(0, "create", stamp.now_ms, 0, request.id, partitions=())
    )


def _evolve(reader: Reader, request: Request, changes: tuple[Any, ...], base: State, stamp: Stamp) -> Plan:
    before = base.schema
    after = evolution.apply(before, changes, collections_have_ids=True, fills_old_rows=True, roles_are_by_id=True)
    fields = tuple(replace(f, type=types.iceberg_type(f.type)) for f in after.fields)
    types.check_widened(before.fields, fields)
    properties = dict(after.properties)
    version = metadata.format_version(base)
    if FORMAT_VERSION in properties:
        version = metadata.check_version(properties.pop(FORMAT_VERSION), version, reader.root)
    metadata.require_writable(base, reader.root)
    types.check_supported(fields, version)
    options.check_new({k: v for k, v in properties.items() if before.properties.get(k) != v}, reader.root)
    options.require_writable(properties, reader.root)
    document = metadata.next_document(reader, base, _now(base, stamp))
    if version > metadata.format_version(base):
        document = metadata.upgraded(document, version)
    document["properties"] = properties | ({"comment": after.comment} if after.comment else {})
    if any(isinstance(change, SetSortOrder) for change in changes):
        _set_order(document, metadata.emit_order(after.sort_order, fields))
    if after.primary_key != before.primary_key:
        metadata.check_key(after, reader.root)
    if fields != before.fields or after.primary_key != before.primary_key:
        metadata.check_reserved({field.name for field in fields} - {field.name for field in before.fields}, reader.root)
        if properties.get(name_mapping.PROPERTY, "") == before.properties.get(name_mapping.PROPERTY):
            evolved = name_mapping.evolved(properties[name_mapping.PROPERTY], before.fields, fields)
            document["properties"] |= {name_mapping.PROPERTY: evolved}
        _add_schema(reader, document, fields, after.last_field_id, _identifiers(document, before, after))
    order.check(after.sort_order.fields, fields, reader.root)
    if after.partitioning != before.partitioning or fields != before.fields:
        metadata.check_partitions(after.partitioning.fields, fields, reader.root)
    if after.partitioning != before.partitioning:
        _add_spec(document, after.partitioning, fields)
    current = metadata.current_id(base) or 0
    made = Snapshot(current, "evolve", stamp.now_ms, document["current-schema-id"], request.id, partitions=())
    return _publish(reader, request, base, stamp, document, made)


def _identifiers(document: Mapping[str, Any], before: Schema, after: Schema) -> list[int]:
    """The identifier fields of a new schema: the existing ones, which may be inside columns, unless the key changes."""
    if after.primary_key != before.primary_key:
        return [after.field(name).id for name in after.primary_key]
    current = next(s for s in document["schemas"] if s["schema-id"] == document["current-schema-id"])
    return list(current.get("identifier-field-ids") or ())


def _add_schema(
    reader: Reader, document: dict[str, Any], fields: tuple[Field, ...], last_field_id: int, identifiers: list[int]
) -> None:
    current = next(s for s in document["schemas"] if s["schema-id"] == document["current-schema-id"])
    dropped = {f.id for f in walk(types.parse_fields(current))} - {f.id for f in walk(fields)}
    sorted_by = {
        f["source-id"]
        for entry in document["sort-orders"]
        for f in entry["fields"]
        if entry["order-id"] == document["default-sort-order-id"] and "source-id" in f
    }
    if dropped & set(identifiers):
        raise InvalidInput(f"{reader.root}: a column that is an identifier field cannot be dropped")
    if dropped & sorted_by:
        raise InvalidInput(
            f"{reader.root}: a column that is part of the sort order cannot be dropped; set_sort_order([...]) first"
        )
    emitted = metadata.emit_schema(fields, 0, identifiers)
    same = [s["schema-id"] for s in document["schemas"] if {**s, "schema-id": 0} == emitted]
    if not same:
        same = [max(s["schema-id"] for s in document["schemas"]) + 1]
        document["schemas"] = [*document["schemas"], {**emitted, "schema-id": same[0]}]
    document["current-schema-id"] = same[0]
    document["last-column-id"] = max(last_field_id, document["last-column-id"])


def _set_order(document: dict[str, Any], fields: list[dict[str, Any]]) -> None:
    """Make a sort order the current one, reusing an equal one. The unsorted order has the id 0."""
    orders = document["sort-orders"]
    same = [entry["order-id"] for entry in orders if entry["fields"] == fields]
    if not same:
        same = [max([0, *(entry["order-id"] for entry in orders)]) + 1 if fields else 0]
        document["sort-orders"] = [*orders, {"order-id": same[0], "fields": fields}]
    document["default-sort-order-id"] = same[0]


def _add_spec(document: dict[str, Any], partitioning: Partitioning, fields: tuple[Field, ...]) -> None:
    """Make a partition spec the current one, reusing an equal one. A field of an earlier spec keeps its id."""
    source = {f.name: f.id for f in fields}
    field_ids = {
        (f["source-id"], f["transform"]): f["field-id"] for s in document["partition-specs"] for f in s["fields"]
    }
    spec_fields: list[dict[str, Any]] = []
    for field in partitioning.fields:
        key = (source[field.source], str(field.transform))
        if key not in field_ids:
            document["last-partition-id"] = field_ids[key] = document["last-partition-id"] + 1
        spec_fields.append({"source-id": key[0], "field-id": field_ids[key], "name": field.name, "transform": key[1]})
    same = [s["spec-id"] for s in document["partition-specs"] if s["fields"] == spec_fields]
    if not same:
        same = [max(s["spec-id"] for s in document["partition-specs"]) + 1]
        document["partition-specs"] = [*document["partition-specs"], {"spec-id": same[0], "fields": spec_fields}]
    document["default-spec-id"] = same[0]


def _refer(
    reader: Reader,
    operation: SetTag | DropTag | CreateBranch | DropBranch | FastForward | DropSnapshots,
    base: State,
    stamp: Stamp,
) -> Plan:
    """Changes of references alone; no row changes."""
    metadata.require_writable(base, reader.root)
    now_ms = _now(base, stamp)
    document = metadata.next_document(reader, base, now_ms)
    refs = dict(document["refs"])
    match operation:
        case SetTag(name=name, snapshot_id=snapshot_id, retain_ms=retain_ms):
            refs[name] = {"snapshot-id": snapshot_id, "type": "tag"}
            if retain_ms is not None:  # Counted from the snapshot's own time.
                age_ms = max(now_ms - metadata.snapshots(base)[snapshot_id]["timestamp-ms"], 0)
                refs[name]["max-ref-age-ms"] = max(age_ms + retain_ms, 1)
        case DropTag(name=name) | DropBranch(name=name):
            refs.pop(name)
        case CreateBranch(name=name, snapshot_id=snapshot_id):
            retention = {
                "max-ref-age-ms": operation.retain_ms,
                "min-snapshots-to-keep": operation.keep_snapshots,
                "max-snapshot-age-ms": operation.keep_ms,
            }
            refs[name] = {"snapshot-id": snapshot_id, "type": "branch"}
            refs[name] |= {key: value for key, value in retention.items() if value is not None}
        case FastForward(to=to):
            target = to if isinstance(to, int) else refs[to]["snapshot-id"]
            _point(document, refs, base.branch, target, now_ms)
        case DropSnapshots(snapshots=dropped):
            dropped_ids = set(dropped)
            document["snapshots"] = [s for s in document["snapshots"] if s["snapshot-id"] not in dropped_ids]
            log = document.get("snapshot-log", [])
            cut = max((i for i, e in enumerate(log) if e["snapshot-id"] in dropped_ids), default=-1)
            document["snapshot-log"] = log[cut + 1 :]
            for key in ("statistics", "partition-statistics"):
                document[key] = [s for s in document.get(key) or () if s["snapshot-id"] not in dropped_ids]
    document["refs"] = refs
    snapshot = Snapshot(
        metadata.current_id(base) or 0, "refer", now_ms, base.schema.id, operation.request.id, partitions=()
    )
    return _publish(reader, operation.request, base, stamp, document, snapshot)


def _set_statistics(reader: Reader, operation: SetStatistics, base: State, stamp: Stamp) -> Plan:
    metadata.require_writable(base, reader.root)
    now_ms = _now(base, stamp)
    path = in_folder(metadata.metadata_folder(base), statistics.name_of(operation, _derived(stamp, "statistics")))
    document = metadata.next_document(reader, base, now_ms)
    document |= statistics.noted(document, operation, reader.location(path))
    current = metadata.current_id(base) or 0
    made = Snapshot(current, "statistics", now_ms, base.schema.id, operation.request.id, partitions=())
    return _publish(reader, operation.request, base, stamp, document, made, {path: operation.data})


def _restore(reader: Reader, operation: Restore, base: State, stamp: Stamp) -> Plan:
    """A snapshot with the old one's manifests, and the old one as its parent: nothing is added a second time."""
    metadata.require_writable(base, reader.root)
    target = metadata.snapshots(base).get(operation.snapshot_id)
    if target is None:
        raise NotFound(f"{reader.root}: snapshot {operation.snapshot_id} no longer exists")
    metas = manifest.counted(reader, base, manifest.metas_of(reader, target))
    summary = {k: v for k, v in (target.get("summary") or {}).items() if k in _TOTALS}
    summary |= {RESTORED_FROM: str(operation.snapshot_id), "changed-partition-count": "0"}
    return _snapshot(
        reader,
        operation.request,
        OperationKind.RESTORE,
        base,
        stamp,
        _snapshot_id(base, stamp),
        metas,
        {},
        summary,
        (),
        operation.snapshot_id,
        "overwrite",
    )


def _rewrite_manifests(reader: Reader, request: Request, base: State, stamp: Stamp) -> Plan:
    """The same live entries in manifests of about the target size, clustered by partition."""
    metadata.require_writable(base, reader.root)
    snapshot_id, sequence_number = _snapshot_id(base, stamp), base.document["last-sequence-number"] + 1
    before = manifest.metas_of(reader, base.snapshot_document)
    specs, contents = np.asarray(before["partition_spec_id"]), np.asarray(before["content"])
    files: dict[str, bytes] = {}
    metas, count, name = [manifest.EMPTY_METAS], 0, _derived(stamp, "commit")
    for number, (spec_id, content) in enumerate(sorted(set(zip(specs.tolist(), contents.tolist(), strict=True)))):
        chosen = before.filter(pa.array((specs == spec_id) & (contents == content)))
        entries = _settled(manifest.read_all(reader, base, manifest.with_live(chosen)))
        spec = base.specs[spec_id]
        if spec.field_ids:
            entries = entries.sort_by([(f"p{id}", "ascending") for id in spec.field_ids])
        made = manifest.emit(entries, base, spec, f"{name}-r{number}", snapshot_id, sequence_number, reader.root)
        files |= made.files
        metas.append(made.metas)
        count += len(entries)
    old = (base.snapshot_document or {}).get("summary") or {}
    summary = {k: v for k, v in old.items() if k in _TOTALS} | {
        "changed-partition-count": "0",
        "manifests-created": str(len(files)),
        "manifests-kept": "0",
        "manifests-replaced": str(len(before)),
        "entries-processed": str(count),
    }
    parent = metadata.current_id(base)
    table = pa.concat_tables(metas)
    kind = OperationKind.REWRITE_MANIFESTS
    return _snapshot(reader, request, kind, base, stamp, snapshot_id, table, files, summary, (), parent, "replace")


def _commit(
    reader: Reader,
    request: Request,
    kind: OperationKind,
    base: State,
    stamp: Stamp,
    added: tuple[WrittenFile, ...],
    removed: pa.Table | None = None,
    useless: pa.Table | None = None,
    added_as: int | None = None,
    is_dynamic: bool = False,
) -> Plan:
    """A snapshot without the data files `removed` and the delete files `useless`, and with `added`; new data has the
    sequence number `added_as`, if given. `is_dynamic`: see `Overwrite`."""
    metadata.require_writable(base, reader.root)
    snapshot_id = _snapshot_id(base, stamp)
    fresh = _added(base, added, snapshot_id, reader, added_as)
    taken = pa.concat_tables([t for t in (fresh.slice(0, 0), removed, useless) if t is not None])
    return _changed(reader, request, kind, base, stamp, snapshot_id, fresh, taken, is_dynamic)


def _changed(
    reader: Reader,
    request: Request,
    kind: OperationKind,
    base: State,
    stamp: Stamp,
    snapshot_id: int,
    fresh: pa.Table,
    taken: pa.Table,
    is_dynamic: bool = False,
) -> Plan:
    """A snapshot of this id without the entries `taken` and with `fresh`."""
    sequence_number = base.document["last-sequence-number"] + 1
    before = manifest.counted(reader, base, manifest.metas_of(reader, base.snapshot_document))
    kept = manifest.with_live(before)
    name = _derived(stamp, "commit")
    new = _emitted(reader, base, fresh, name, snapshot_id, sequence_number)
    kept, rewritten, deleted = _without(reader, base, kept, taken, f"{name}-d", snapshot_id, sequence_number)
    metas = pa.concat_tables([new.metas, rewritten.metas, kept])
    files = {**new.files, **rewritten.files}
    if len(deleted) and pc.any(pc.equal(metas["content"], int(ManifestContent.DELETES))).as_py():
        idle = _idle(reader, base, metas, kind, deleted, new, fresh)
        kept, again, more = _without(reader, base, kept, idle, f"{name}-i", snapshot_id, sequence_number)
        if len(more):  # Manifests of this attempt are not stored yet, so only earlier ones are changed.
            metas = pa.concat_tables([new.metas, rewritten.metas, again.metas, kept])
            files |= again.files
            deleted = pa.concat_tables([deleted, more])
    merged = _merged(reader, base, metas, f"{name}-x", snapshot_id, sequence_number)
    files |= merged.files
    named = set(merged.metas["manifest_path"].to_pylist())
    files = {path: data for path, data in files.items() if path in named or f"{reader.root}/{path}" in named}
    summary = {
        **({"replace-partitions": "true"} if is_dynamic else {}),
        **_summary(base, fresh, deleted),
        "manifests-created": str(len(files)),
        "manifests-kept": str(len(named & set(before["manifest_path"].to_pylist()))),
        "manifests-replaced": str(len(set(before["manifest_path"].to_pylist()) - named)),
    }
    partitions = _changes(pa.concat_tables([fresh, deleted]), base)
    operation = "overwrite" if is_dynamic else _OPERATIONS.get(kind)
    by_row = np.asarray(fresh["content"]) != FileContent.DATA
    if by_row.any() and operation != "replace":  # BaseRowDelta.operation
        operation = "delete" if by_row.all() else "overwrite"
    if operation is None:
        operation = "overwrite" if len(fresh) and len(deleted) else "append" if len(fresh) else "delete"
    parent = metadata.current_id(base)
    return _snapshot(
        reader, request, kind, base, stamp, snapshot_id, merged.metas, files, summary, partitions, parent, operation
    )


def _pick(reader: Reader, request: Request, picked: int, base: State, stamp: Stamp) -> Plan:
    """A snapshot that adds the data files of a staged one and removes those that it replaced."""
    metadata.require_writable(base, reader.root)
    snapshot_id = _snapshot_id(base, stamp)
    added, taken = conflict.picked(reader, base, picked)
    picked_columns: dict[str, Any] = {"snapshot_id": pa.array(np.full(len(added), snapshot_id, np.int64))}
    picked_columns["_manifest"] = pa.array(np.full(len(added), -1, np.int32))
    # Sequence numbers of the new snapshot.
    picked_columns |= dict.fromkeys(("sequence_number", "file_sequence_number", "first_row_id"))
    columns = [
        added[f.name]
        if f.name not in picked_columns
        else pa.nulls(len(added), f.type)
        if picked_columns[f.name] is None
        else picked_columns[f.name]
        for f in added.schema
    ]
    fresh = pa.Table.from_arrays(columns, schema=added.schema)
    is_dynamic = conflict.replaces_partitions(metadata.snapshots(base)[picked])
    kind = OperationKind.OVERWRITE if is_dynamic else OperationKind.APPEND
    return _changed(reader, request, kind, base, stamp, snapshot_id, fresh, taken, is_dynamic)


def _follow(reader: Reader, request: Request, published: Published, base: State, stamp: Stamp) -> Plan:
    """The document with the followed snapshot's number: with that snapshot, or, if it has that already, with the
    current schemas, tags and history. Files that no reader needs are removed, but no data file."""
    start = mirror.followed(base, published, stamp)
    unused = mirror.unused(reader, base, start)
    if metadata.current_id(start) == published.snapshot.id:
        assert start.snapshot_document is not None
        made = metadata.to_snapshot(start.snapshot_document)
        return replace(_publish(reader, request, start, stamp, dict(start.document), made), unused=unused)
    fresh, taken = mirror.changes(reader, start, published)
    stamp = replace(stamp, now_ms=published.snapshot.timestamp_ms)
    own = replace(request, properties={**request.properties, FOLLOWED: published.identity})
    kind = published.kind if len(fresh) or len(taken) else OperationKind.APPEND
    plan = _changed(reader, own, kind, start, stamp, published.snapshot.id, fresh, taken)
    return replace(plan, unused=unused)


def _emitted(
    reader: Reader, base: State, fresh: pa.Table, name: str, snapshot_id: int, sequence_number: int
) -> Manifests:
    """New entries in manifests, each of one spec and of data or deletes only."""
    manifests = manifest.NO_MANIFESTS
    specs, contents = np.asarray(fresh["_spec"]), np.asarray(fresh["content"]) != FileContent.DATA
    for number, (is_delete, spec_id) in enumerate(sorted(set(zip(contents.tolist(), specs.tolist(), strict=True)))):
        part = fresh.filter(pa.array((contents == is_delete) & (specs == spec_id)))
        own = name if number == 0 else f"{name}-n{number}"
        emitted = manifest.emit(part, base, base.specs[spec_id], own, snapshot_id, sequence_number, reader.root)
        emitted = manifest.remembered(reader, emitted)
        manifests = Manifests({**manifests.files, **emitted.files}, pa.concat_tables([manifests.metas, emitted.metas]))
    return manifests


def _idle(
    reader: Reader,
    base: State,
    metas: pa.Table,
    kind: OperationKind,
    deleted: pa.Table,
    new: Manifests,
    fresh: pa.Table,
) -> pa.Table:
    """Delete files that apply to nothing once the entries `deleted` are removed: for a data file among them, or older
    than all data. After a compaction also those older than all data of their partition."""
    deletes = manifest.live_entries(reader, base, content=ManifestContent.DELETES)
    about = scan.referenced(deletes)
    idle = np.asarray(pc.is_in(about, value_set=deleted["file_path"].combine_chunks())) & np.asarray(about.is_valid())
    is_data = pc.equal(metas["content"], int(ManifestContent.DATA))
    oldest = pc.min(manifest.with_live(metas.filter(is_data))["min_sequence_number"]).as_py()
    sequences = np.asarray(deletes["sequence_number"])
    idle |= (sequences > 0) & ((oldest is None) | (sequences < (oldest or 0)))
    if kind == OperationKind.COMPACT:
        data = manifest.live_entries(reader, base)
        data = data.filter(pc.invert(pc.is_in(data["file_path"], value_set=deleted["file_path"].combine_chunks())))
        new_data = fresh.filter(pc.equal(fresh["content"], int(FileContent.DATA)))
        numbers = pc.fill_null(new_data["sequence_number"], base.document["last-sequence-number"] + 1)
        position = new_data.schema.get_field_index("sequence_number")
        new_data = new_data.set_column(position, new_data.schema.field(position), numbers)
        which, used = scan.attached(base, pa.concat_tables([data, new_data]), deletes)
        is_equality = np.asarray(deletes["content"])[used] == FileContent.EQUALITY_DELETES
        used = used[is_equality | (which < len(data))]  # Positions never refer to a later file.
        idle |= ~np.isin(np.arange(len(deletes)), used)
    return deletes.filter(pa.array(idle))


def _without(
    reader: Reader,
    base: State,
    metas: pa.Table,
    taken: pa.Table,
    name: str,
    snapshot_id: int,
    sequence_number: int,
) -> tuple[pa.Table, Manifests, pa.Table]:
    """(the manifests without the files `taken`, rewritten if they had any; the DELETED entries)."""
    none = taken.slice(0, 0)
    if not len(taken):
        return metas, manifest.NO_MANIFESTS, none
    keys = manifest.keys(taken)
    raw = manifest.read_raw(reader, metas["manifest_path"].to_pylist())
    manifests, deleted, touched = manifest.NO_MANIFESTS, [none], np.zeros(len(metas), bool)
    for index, table in enumerate(raw):
        hit = pc.and_(
            pc.is_in(manifest.keys(table), value_set=keys), pc.not_equal(table["status"], int(Status.DELETED))
        )
        if not pc.any(hit, min_count=0).as_py():
            continue
        touched[index] = True
        entries = _settled(manifest.read_all(reader, base, metas.slice(index, 1)))
        is_removed = pc.is_in(manifest.keys(entries), value_set=keys)
        status = pc.if_else(is_removed, pa.scalar(int(Status.DELETED), pa.int32()), entries["status"])
        by = pc.if_else(is_removed, pa.scalar(snapshot_id, pa.int64()), entries["snapshot_id"])
        entries = entries.set_column(0, ENTRY.field("status"), status).set_column(1, ENTRY.field("snapshot_id"), by)
        spec = base.specs[metas["partition_spec_id"][index].as_py()]
        number = len(deleted) - 1
        emitted = manifest.emit(entries, base, spec, f"{name}{number}", snapshot_id, sequence_number, reader.root)
        manifests = Manifests({**manifests.files, **emitted.files}, pa.concat_tables([manifests.metas, emitted.metas]))
        deleted.append(entries.filter(is_removed))
    return metas.filter(pa.array(~touched)), manifests, pa.concat_tables(deleted)


def _settled(entries: pa.Table) -> pa.Table:
    """The live entries of earlier snapshots, as EXISTING and with inherited numbers made explicit."""
    live = entries.filter(pc.not_equal(entries["status"], int(Status.DELETED)))
    status = pa.array(np.full(len(live), int(Status.EXISTING), np.int32))
    return live.set_column(0, ENTRY.field("status"), status)


def _merged(
    reader: Reader, base: State, metas: pa.Table, name: str, snapshot_id: int, sequence_number: int
) -> Manifests:
    """Manifests, newest first -> fewer with the same entries: runs of one spec that fit into the target size are
    merged; the run with the newest is merged once there are enough of them (ManifestMergeManager)."""
    properties = base.schema.properties
    if not options.read(properties).commit_manifest_merge_enabled or len(metas) < 2:
        return Manifests({}, metas)
    target = options.read(properties).commit_manifest_target_size
    least = options.read(properties).commit_manifest_min_count_to_merge
    sizes, specs = np.asarray(metas["manifest_length"]), np.asarray(metas["partition_spec_id"])
    content, by = np.asarray(metas["content"]), np.asarray(metas["added_snapshot_id"])
    files: dict[str, bytes] = {}
    replaced: dict[int, pa.Table | None] = {}
    for kind in sorted(set(zip(specs.tolist(), content.tolist(), strict=True))):
        rows = np.flatnonzero((specs == kind[0]) & (content == kind[1]))
        for chosen in _runs(rows, sizes, target):
            is_newest = rows[0] in chosen
            # Manifests of this attempt are not stored yet and cannot be read: the next commit merges them.
            chosen = [i for i in chosen if by[i] != snapshot_id]
            if len(chosen) < 2 or (is_newest and len(chosen) < least):
                continue
            entries = _settled(manifest.read_all(reader, base, metas.take(pa.array(chosen))))
            merged = manifest.emit(
                entries, base, base.specs[kind[0]], f"{name}{len(replaced)}", snapshot_id, sequence_number, reader.root
            )
            files |= merged.files
            replaced |= dict.fromkeys(chosen)
            replaced[chosen[0]] = merged.metas
    if not replaced:
        return Manifests({}, metas)
    parts = [metas.slice(i, 1) if i not in replaced else replaced[i] for i in range(len(metas))]
    return Manifests(files, pa.concat_tables([p for p in parts if p is not None]))


def _runs(rows: np.ndarray, sizes: np.ndarray, target: int) -> list[list[int]]:
    """`rows`, newest first, in runs of at most `target` bytes; filled from the oldest, so that the newest run is not
    full."""
    runs: list[list[int]] = []
    total = 0
    for row in rows[::-1].tolist():
        if runs and total + int(sizes[row]) <= target:
            runs[-1].insert(0, row)
            total += int(sizes[row])
        else:
            runs.append([row])
            total = int(sizes[row])
    return runs


def _snapshot(
    reader: Reader,
    request: Request,
    kind: OperationKind,
    base: State,
    stamp: Stamp,
    snapshot_id: int,
    metas: pa.Table,
    files: Mapping[str, bytes],
    summary: Mapping[str, str],
    partitions: tuple[PartitionChange, ...],
    parent_id: int | None,
    operation: str,
) -> Plan:
    """The document with one more snapshot, which is the current one."""
    now_ms = _now(base, stamp)
    sequence_number = base.document["last-sequence-number"] + 1
    name = f"snap-{snapshot_id}-{stamp.attempt + 1}-{_derived(stamp, 'commit')}.avro"
    path = in_folder(metadata.metadata_folder(base), name)
    marks = {OPERATION_ID: request.id} | ({VERB: str(kind)} if kind != operation else {})
    if request.watermark is not None:
        marks["lakeformat.watermark"] = str(request.watermark)
    clash = sorted(filter(metadata.is_own, request.properties))
    if clash:
        raise InvalidInput(f"properties: {clash[0]!r} is reserved in snapshot summaries")
    parent = metadata.snapshot_of(base, parent_id) or {}
    properties = carried(request.properties, request.session, parent.get("summary") or {})
    entry: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence_number,
        "timestamp-ms": now_ms,
        "manifest-list": reader.location(path),
        "summary": {"operation": operation, **marks, **summary, **properties},
        "schema-id": base.schema.id,
    }
    if parent_id is not None:
        entry["parent-snapshot-id"] = parent_id
    document = metadata.next_document(reader, base, now_ms)
    first_row_id = document.get("next-row-id") if metadata.format_version(base) >= 3 else None
    if first_row_id is not None:
        metas, rows = manifest.numbered(metas, first_row_id)
        entry |= {"first-row-id": first_row_id, "added-rows": rows}
        document["next-row-id"] = first_row_id + rows
    metas = metas.combine_chunks()
    records = manifest.list_records(reader, base, metas)
    emitted = manifest.emit_list(metas, base, snapshot_id, parent_id, sequence_number, first_row_id, records)
    if first_row_id is not None or metas["first_row_id"].null_count == len(metas):  # A list of version 2 holds none.
        remember(reader, entry["manifest-list"], metas)
        if records is not None:
            manifest.keep_records(reader, base, entry["manifest-list"], records)
    document["last-sequence-number"] = sequence_number
    document["snapshots"] = [*document.get("snapshots", []), entry]
    document["refs"] = dict(document["refs"])
    if not request.stages:
        _point(document, document["refs"], base.branch, snapshot_id, now_ms)
    snapshot = replace(metadata.to_snapshot(entry), partitions=partitions)
    return _publish(reader, request, base, stamp, document, snapshot, {**files, path: emitted})


def _point(document: dict[str, Any], refs: dict[str, Any], branch: str, snapshot_id: int, now_ms: int) -> None:
    """Point a branch at a snapshot. `main`'s snapshot is the current one, and the log records since when."""
    refs[branch] = {**refs.get(branch, {}), "snapshot-id": snapshot_id, "type": "branch"}
    if branch == MAIN:
        document["current-snapshot-id"] = snapshot_id
        entry = {"timestamp-ms": now_ms, "snapshot-id": snapshot_id}
        document["snapshot-log"] = [*document.get("snapshot-log", []), entry]


def _publish(
    reader: Reader,
    request: Request,
    base: State,
    stamp: Stamp,
    document: dict[str, Any],
    snapshot: Snapshot,
    files: Mapping[str, bytes] | None = None,
) -> Plan:
    """`document` as the next version, with a record of the request."""
    path = metadata.next_path(reader, base, document.get("properties") or {}, _derived(stamp, "root"))
    lists = metadata.kept_lists(reader, base, document)
    root = metadata.emit({**document, metadata.DOCUMENT_OPERATION: request.id}, path, lists)
    unused = metadata.obsolete(reader, base, document) if base.document else ()
    return Plan(files or {}, path, root, snapshot, metadata.hints(reader, base), unused)


def _added(
    base: State, added: tuple[WrittenFile, ...], snapshot_id: int, reader: Reader, added_as: int | None
) -> pa.Table:
    """New files as entries; they inherit their sequence numbers, except data with `added_as`."""
    empty = manifest.read_all(reader, base, manifest.EMPTY_METAS)
    tables = [empty]
    for content, spec_id in sorted({(f.content, base.spec.id if f.spec_id is None else f.spec_id) for f in added}):
        own = [f for f in added if (f.content, base.spec.id if f.spec_id is None else f.spec_id) == (content, spec_id)]
        tables.append(
            _added_to(base, base.specs[spec_id], content, tuple(own), snapshot_id, reader, added_as, empty.schema)
        )
    return pa.concat_tables(tables)


def _added_to(
    base: State,
    spec: Spec,
    content: Content,
    added: tuple[WrittenFile, ...],
    snapshot_id: int,
    reader: Reader,
    added_as: int | None,
    schema: pa.Schema,
) -> pa.Table:
    count = len(added)
    is_data = content is Content.DATA
    about = [f.refers_to[0] if not is_data and len(f.refers_to) == 1 else None for f in added]
    columns: dict[str, Any] = {
        "status": np.full(count, int(Status.ADDED), np.int32),
        "snapshot_id": np.full(count, snapshot_id, np.int64),
        "content": np.full(count, int(_CONTENTS[content]), np.int32),
        "file_path": [reader.location(f.path) for f in added],
        "file_format": [f.file_format.upper() for f in added],
        "record_count": [f.row_count for f in added],
        "file_size_in_bytes": [f.size_bytes for f in added],
        "split_offsets": [list(f.split_offsets) or None for f in added],
        "equality_ids": [list(f.compared) or None for f in added],
        "referenced_data_file": about,
        "content_offset": [f.offset for f in added],
        "content_size_in_bytes": [f.vector_bytes for f in added],
        "_spec": np.full(count, spec.id, np.int32),
        "_manifest": np.full(count, -1, np.int32),
        **_metrics(base, content, added),
        **manifest.partition_columns([f.partition for f in added], spec),
    }
    if content in (Content.DATA, Content.EQUALITY_DELETES):
        columns["sort_order_id"] = [f.sort_order_id for f in added]
    if is_data and added_as is not None:
        columns["sequence_number"] = np.full(count, added_as)
    arrays = [
        pa.nulls(count, f.type)
        if f.name not in columns
        else columns[f.name]
        if isinstance(columns[f.name], pa.Array)
        else pa.array(columns[f.name], f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _metrics(base: State, content: Content, added: tuple[WrittenFile, ...]) -> dict[str, pa.Array]:
    """Counts, sizes and bounds of the files' columns, as maps by field id. Bounds of deleted positions are never
    truncated."""
    columns: dict[str, list[tuple[int, pa.Array]]] = {
        n: []
        for n in (
            "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"
        )
    }  # fmt: skip
    fields = base.schema.fields
    modes = options.stats_modes(base.schema.properties, base.schema.names, metadata.sorted_columns(base))
    if content is Content.POSITION_DELETES:
        fields, modes = layout.POSITION_FIELDS, ((StatsMode.FULL, 0),) * 2
    if content is Content.DELETION_VECTORS:
        fields, modes = (), ()
    for field, (mode, length) in zip(fields, modes, strict=True):
        if mode is StatsMode.NONE or not isinstance(field.type, Scalar) or field.type.kind is Kind.UNKNOWN:
            continue
        stats = [f.stats.get(field.id, ColumnStats()) for f in added]
        nans = [s.nan_count if pa.types.is_floating(to_arrow(field.type)) else None for s in stats]
        for name, values in (
            ("column_sizes", [s.size_bytes for s in stats]),
            ("value_counts", [s.value_count for s in stats]),
            ("null_value_counts", [s.null_count for s in stats]),
            ("nan_value_counts", nans),
        ):
            columns[name].append((field.id, pa.array(values, pa.int64())))
        if mode is StatsMode.COUNTS:
            continue
        low, high = [s.minimum for s in stats], [s.maximum for s in stats]
        if field.type.kind is Kind.GEOMETRY:
            columns["lower_bounds"].append((field.id, single_value.corners(low)))
            columns["upper_bounds"].append((field.id, single_value.corners(high)))
        if not is_plain(field.type):
            continue
        if mode is StatsMode.TRUNCATE and field.type.kind is not Kind.UUID:
            high = [_cut_high(v, length) for v in high]
            low = [v[:length] if isinstance(v, str | bytes) else v for v in low]
        # Truncated bytes of a fixed length are shorter.
        kind = scalar(Kind.BYTES) if field.type.kind is Kind.FIXED else field.type
        ends = single_value.encode(plain_values.column([*low, *high], kind), kind)
        columns["lower_bounds"].append((field.id, ends[: len(added)]))
        columns["upper_bounds"].append((field.id, ends[len(added) :]))
    return {name: manifest.mapped(parts, len(added), ENTRY.field(name).type) for name, parts in columns.items()}


def _cut_high(value: Any, length: int) -> Any:
    """A truncated upper bound is incremented at its end; None if that is impossible."""
    if isinstance(value, str):
        return plain_values.cut_high(value, length)
    if isinstance(value, bytes) and len(value) > length:
        kept = value[:length].rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    return value


def _summary(base: State, added: pa.Table, deleted: pa.Table) -> dict[str, str]:
    """The counts of a snapshot's summary (SnapshotSummary): zeros are left out, totals are continued."""
    counts = _counts(added, "added", "added") | _counts(deleted, "deleted", "removed")
    summary = {name: str(count) for name, count in counts.items() if count}
    changed = pa.concat_tables([added, deleted])
    count = len(np.unique(manifest.partition_codes(changed, base)))
    summary["changed-partition-count"] = str(count)
    if 0 < count <= options.read(base.schema.properties).summary_partition_limit:
        summary |= {"partition-summaries-included": "true", **_by_partition(base, added, deleted)}
    before = None if base.snapshot_document is None else base.snapshot_document.get("summary") or {}
    for name, delta in _TOTALS.items():
        old = "0" if before is None else before.get(name)
        if old is not None:
            summary[name] = str(int(old) + counts[delta[0]] - counts[delta[1]])
    return summary


def _by_partition(base: State, added: pa.Table, deleted: pa.Table) -> dict[str, str]:
    """`partitions.<path>` -> the counts of each changed partition, as one text."""
    parts: dict[str, list[pa.Table]] = {}
    for side, entries in enumerate((added, deleted)):
        for spec_id in np.unique(np.asarray(entries["_spec"])).tolist():
            of_spec = entries.filter(pc.equal(entries["_spec"], spec_id))
            codes, values = manifest.partitions(of_spec, base.specs[spec_id])
            folder = layout.directory(base.specs[spec_id])
            for code, value in enumerate(values):
                both = parts.setdefault("/".join(folder.partition(value)), [added.slice(0, 0), deleted.slice(0, 0)])
                both[side] = of_spec.filter(pa.array(codes == code))
    summary = {}
    for path, (came, went) in parts.items():
        counts = zip(_counts(came, "added", "added").items(), _counts(went, "deleted", "removed").items(), strict=True)
        figures = ",".join(f"{name}={count}" for pair in counts for name, count in pair if count)
        summary[f"partitions.{path}"] = figures
    return summary


def _counts(entries: pa.Table, verb: str, verb_of_deletes: str) -> dict[str, int]:
    """What was added or removed, in Java's order; a deletion vector counts its own bytes, not those of its shared
    file."""
    content = np.asarray(entries["content"])
    rows = np.asarray(entries["record_count"])
    sizes = np.asarray(pc.coalesce(entries["content_size_in_bytes"], entries["file_size_in_bytes"]))
    vectors = scan.is_vector(entries)
    is_data, is_position, is_equality = (content == kind for kind in FileContent)
    return {
        f"{verb}-data-files": int(is_data.sum()),
        f"{verb_of_deletes}-equality-delete-files": int(is_equality.sum()),
        f"{verb_of_deletes}-position-delete-files": int((is_position & ~vectors).sum()),
        f"{verb_of_deletes}-delete-files": int((~is_data).sum()),
        f"{verb_of_deletes}-dvs": int(vectors.sum()),
        f"{verb}-records": int(rows[is_data].sum()),
        f"{verb_of_deletes}-files-size": int(sizes.sum()),
        f"{verb_of_deletes}-position-deletes": int(rows[is_position].sum()),
        f"{verb_of_deletes}-equality-deletes": int(rows[is_equality].sum()),
    }


def _changes_of(reader: Reader, snapshot: Mapping[str, Any], base: State) -> tuple[PartitionChange, ...]:
    metas = manifest.metas_of(reader, snapshot)
    own = metas.filter(pc.equal(metas["added_snapshot_id"], snapshot["snapshot-id"]))
    entries = manifest.read_all(reader, base, own)
    by_it = pc.and_(
        pc.equal(entries["snapshot_id"], snapshot["snapshot-id"]),
        pc.not_equal(entries["status"], int(Status.EXISTING)),
    )
    return _changes(entries.filter(by_it), base)


def _changes(delta: pa.Table, base: State) -> tuple[PartitionChange, ...]:
    """Entries summed by partition. Rows are those of data files; a deleted position is a removed row, and one that is
    no longer deleted because its data file was removed counts as none."""
    changes = []
    ids = np.asarray(delta["_spec"])
    for spec_id in np.unique(ids):
        part = delta.filter(pa.array(ids == spec_id))
        codes, values = manifest.partitions(part, base.specs[int(spec_id)])
        is_add = np.asarray(part["status"]) == int(Status.ADDED)
        content, rows = np.asarray(part["content"]), np.asarray(part["record_count"])
        data, positions = (
            np.where(content == FileContent.DATA, rows, 0),
            np.where(content == FileContent.POSITION_DELETES, rows, 0),
        )
        sizes = np.asarray(pc.coalesce(part["content_size_in_bytes"], part["file_size_in_bytes"]))
        measures = (
            is_add, ~is_add, np.where(is_add, data, 0), np.where(is_add, positions, data - positions),
            np.where(is_add, sizes, 0), np.where(is_add, 0, sizes),
        )  # fmt: skip
        sums = [np.bincount(codes, weights=m, minlength=len(values)).astype(np.int64).tolist() for m in measures]
        changes += [
            PartitionChange(v, fa, fr, ra, max(rr, 0), ba, br)
            for v, fa, fr, ra, rr, ba, br in zip(values, *sums, strict=True)
        ]
    return tuple(changes)


def _now(base: State, stamp: Stamp) -> int:
    """Time travel needs increasing timestamps."""
    return int(max(stamp.now_ms, base.document["last-updated-ms"]))


def _snapshot_id(base: State, stamp: Stamp) -> int:
    """An unused id, not negative."""
    whole = uuid.uuid5(uuid.NAMESPACE_OID, f"{stamp.nonce}/{stamp.attempt}/snapshot").int
    return ((whole >> 64) ^ whole) & (2**63 - 1)


def _derived(stamp: Stamp, purpose: str) -> str:
    """A unique name for each kind of file of an attempt."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{stamp.nonce}/{stamp.attempt}/{purpose}"))
