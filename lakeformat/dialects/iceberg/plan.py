"""operation + state -> the files and the root that make it so."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import single_value, waist
from lakeformat.codec.arrow import to_arrow
from lakeformat.dialects.iceberg import conflict, layout, manifest, metadata, options, types
from lakeformat.dialects.iceberg.manifest import ENTRY, Manifests, Status
from lakeformat.dialects.iceberg.metadata import MAIN, OPERATION_ID, VERB, Spec, State
from lakeformat.errors import AlreadyExists, InvalidInput, NotFound, UnsupportedFeature
from lakeformat.model import evolution
from lakeformat.model.operation import (
    Append,
    Create,
    DropSnapshots,
    DropTag,
    Evolve,
    Operation,
    Overwrite,
    Request,
    Restore,
    Rewrite,
    RowDelta,
    SetTag,
)
from lakeformat.model.schema import Field, Scalar, Schema
from lakeformat.model.snapshot import PartitionChange, Plan, Snapshot, Stamp
from lakeformat.model.work import ColumnStats, StatsMode, WrittenFile
from lakeformat.storage.store import Reader

RESTORED_FROM = "lakeformat.restored-from"

# Verb -> Iceberg's operation, whatever came and went; others go by that.
_OPERATIONS = {"append": "append", "compact": "replace", "restore": "overwrite"}
_TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-delete-files": (),
    "total-position-deletes": (),
    "total-equality-deletes": (),
}


def plan(reader: Reader, operation: Operation, base: State, stamp: Stamp) -> Plan:
    """What to stage and what to publish so that `operation` becomes the version after `base`."""
    match operation:
        case Create(request=request, schema=schema):
            return _create(reader, request, schema, base, stamp)
        case Evolve(request=request, changes=changes):
            return _evolve(reader, request, changes, base, stamp)
        case Append(request=request, added=added):
            return _commit(reader, request, "append", base, stamp, None, added)
        case Overwrite(request=request, added=added, scope=scope, kind=kind):
            gone = conflict.overwritten(reader, base, scope)
            return _commit(reader, request, kind, base, stamp, gone, added)
        case Rewrite(request=request, added=added, kind=kind):
            return _commit(reader, request, kind, base, stamp, conflict.removed(reader, base, operation), added)
        case RowDelta():
            raise UnsupportedFeature(f"{reader.root}: {operation.kind} by files of deletes: not supported yet")
        case Restore():
            return _restore(reader, operation, base, stamp)
        case SetTag() | DropTag() | DropSnapshots():
            return _refer(reader, operation, base, stamp)


def find(reader: Reader, operation: Operation, base: State) -> Snapshot | None:
    """The snapshot that `operation` became, if it has landed."""
    landed = metadata.find(reader, operation, base)
    if landed is None:
        return None
    if isinstance(landed, int):
        return Snapshot(metadata.current_id(base) or 0, "evolve", 0, base.schema.id, operation.request.id)
    return replace(metadata.to_snapshot(landed), partitions=_changes_of(reader, landed, base))


def changes(reader: Reader, base: State) -> tuple[PartitionChange, ...]:
    """What the base's own snapshot added and removed in each partition."""
    return () if base.snapshot_document is None else _changes_of(reader, base.snapshot_document, base)


# --- private ----------------------------------------------------------------------------------------------------------


def _create(reader: Reader, request: Request, schema: Schema, base: State, stamp: Stamp) -> Plan:
    if base.schema.id >= 0:
        raise AlreadyExists(f"{reader.root}: there is a table already; pass if_exists='ignore' to take it as it is")
    declared = metadata.declare(schema, reader.root)
    document = metadata.new_document(declared, reader.root, stamp)
    layout.layout(metadata.parse(metadata.emit(document), 1, reader.root))  # What the first write would refuse.
    return _publish(reader, request, base, stamp, document, Snapshot(0, "create", stamp.now_ms, 0, request.id))


def _evolve(reader: Reader, request: Request, asked: tuple[Any, ...], base: State, stamp: Stamp) -> Plan:
    metadata.require_writable(base, reader.root)
    before = base.schema
    after = evolution.apply(before, asked, collections_have_ids=True)
    fields = tuple(replace(f, type=types.iceberg_type(f.type)) for f in after.fields)
    metadata.check_names([f.name for f in fields], reader.root)
    types.check_widened(before.fields, fields)
    types.check_supported(fields)
    options.check_new({k: v for k, v in after.properties.items() if before.properties.get(k) != v}, reader.root)
    options.require_writable(after.properties, reader.root)
    document = metadata.next_document(reader, base, _now(base, stamp))
    document["properties"] = dict(after.properties) | ({"comment": after.comment} if after.comment else {})
    if fields != before.fields:
        _add_schema(reader, document, fields, after.last_field_id)
    made = Snapshot(metadata.current_id(base) or 0, "evolve", stamp.now_ms, document["current-schema-id"], request.id)
    return _publish(reader, request, base, stamp, document, made)


def _add_schema(reader: Reader, document: dict[str, Any], fields: tuple[Field, ...], last_field_id: int) -> None:
    current = next(s for s in document["schemas"] if s["schema-id"] == document["current-schema-id"])
    identifiers = current.get("identifier-field-ids") or []
    there = {f.id for f in fields}
    sorted_by = {
        f["source-id"]
        for order in document["sort-orders"]
        for f in order["fields"]
        if order["order-id"] == document["default-sort-order-id"]
    }
    for role, ids in (("an identifier field", identifiers), ("part of the sort order", sorted_by)):
        if set(ids) - there:
            raise InvalidInput(f"{reader.root}: a column that is {role} cannot be dropped")
    emitted = metadata.emit_schema(fields, 0, identifiers)
    same = [s["schema-id"] for s in document["schemas"] if {**s, "schema-id": 0} == emitted]
    if not same:
        same = [max(s["schema-id"] for s in document["schemas"]) + 1]
        document["schemas"] = [*document["schemas"], {**emitted, "schema-id": same[0]}]
    document["current-schema-id"] = same[0]
    document["last-column-id"] = max(last_field_id, document["last-column-id"])


def _refer(reader: Reader, operation: SetTag | DropTag | DropSnapshots, base: State, stamp: Stamp) -> Plan:
    """Changes of references alone: no row changes."""
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
        case DropTag(name=name):
            refs.pop(name)
        case DropSnapshots(snapshots=dropped):
            gone = set(dropped)
            document["snapshots"] = [s for s in document["snapshots"] if s["snapshot-id"] not in gone]
            log = document.get("snapshot-log", [])
            cut = max((i for i, e in enumerate(log) if e["snapshot-id"] in gone), default=-1)
            document["snapshot-log"] = log[cut + 1 :]
            for key in ("statistics", "partition-statistics"):
                document[key] = [s for s in document.get(key) or () if s["snapshot-id"] not in gone]
    document["refs"] = refs
    made = Snapshot(metadata.current_id(base) or 0, "refer", now_ms, base.schema.id, operation.request.id)
    return _publish(reader, operation.request, base, stamp, document, made)


def _restore(reader: Reader, operation: Restore, base: State, stamp: Stamp) -> Plan:
    """A snapshot that names the old one's manifests and comes from it: nothing is added a second time."""
    metadata.require_writable(base, reader.root)
    target = metadata.snapshots(base).get(operation.snapshot_id)
    if target is None:
        raise NotFound(f"{reader.root}: snapshot {operation.snapshot_id} is not there any more")
    metas = manifest.metas_of(reader, target)
    summary = {k: v for k, v in (target.get("summary") or {}).items() if k in _TOTALS}
    summary |= {RESTORED_FROM: str(operation.snapshot_id), "changed-partition-count": "0"}
    return _snapshot(
        reader, operation.request, "restore", base, stamp, metas, {}, summary, (), operation.snapshot_id, "overwrite"
    )


def _commit(
    reader: Reader,
    request: Request,
    kind: str,
    base: State,
    stamp: Stamp,
    gone: pa.Table | None,
    added: tuple[WrittenFile, ...],
) -> Plan:
    metadata.require_writable(base, reader.root)
    snapshot_id, sequence_number = _snapshot_id(base, stamp), base.document["last-sequence-number"] + 1
    spec = base.spec
    before = manifest.metas_of(reader, base.snapshot_document)
    alive = pc.add(pc.fill_null(before["added_files_count"], 1), pc.fill_null(before["existing_files_count"], 1))
    kept = before.filter(pc.greater(alive, 0))
    name = _derived(stamp, "commit")
    files: dict[str, bytes] = {}
    rewritten: list[pa.Table] = []
    deleted = manifest.read_all(reader, base, manifest.EMPTY_METAS)
    if gone is not None and len(gone):
        paths = gone["file_path"].combine_chunks()
        touched, deleted = _without(reader, base, kept, paths, snapshot_id)
        for number, (place, entries) in enumerate(touched.items()):
            own = base.specs[kept["partition_spec_id"][place].as_py()]
            made = manifest.emit(entries, base, own, f"{name}-d{number}", snapshot_id, sequence_number, reader.root)
            files |= made.files
            rewritten.append(made.metas)
        kept = kept.filter(pa.array([i not in touched for i in range(len(kept))], pa.bool_()))
    fresh = _added(base, spec, added, snapshot_id, reader)
    new = manifest.emit(fresh, base, spec, name, snapshot_id, sequence_number, reader.root)
    files |= new.files
    merged = _merged(
        reader, base, pa.concat_tables([new.metas, *rewritten, kept]), f"{name}-x", snapshot_id, sequence_number
    )
    files |= merged.files
    named = set(merged.metas["manifest_path"].to_pylist())
    files = {path: data for path, data in files.items() if f"{reader.root}/{path}" in named}
    summary = {
        **_summary(base, fresh, deleted),
        "manifests-created": str(len(files)),
        "manifests-kept": str(len(named & set(before["manifest_path"].to_pylist()))),
        "manifests-replaced": str(len(set(before["manifest_path"].to_pylist()) - named)),
    }
    partitions = _changes(pa.concat_tables([fresh, deleted]), base)
    operation = _OPERATIONS.get(kind)
    if operation is None:
        operation = "overwrite" if added and len(deleted) else "append" if added else "delete"
    parent = metadata.current_id(base)
    return _snapshot(reader, request, kind, base, stamp, merged.metas, files, summary, partitions, parent, operation)


def _without(
    reader: Reader, base: State, metas: pa.Table, paths: pa.Array, snapshot_id: int
) -> tuple[dict[int, pa.Table], pa.Table]:
    """({row of `metas`: its entries once the files `paths` are gone}, for those that hold any; the DELETED entries)."""
    raw = manifest.read_raw(reader, metas["manifest_path"].to_pylist())
    hit = [
        place
        for place, table in enumerate(raw)
        if pc.any(
            pc.and_(pc.is_in(table["file_path"], value_set=paths), pc.not_equal(table["status"], int(Status.DELETED)))
        ).as_py()
    ]
    found: dict[int, pa.Table] = {}
    deleted = []
    for place in hit:
        entries = _settled(manifest.read_all(reader, base, metas.slice(place, 1)))
        gone = pc.is_in(entries["file_path"], value_set=paths)
        status = pc.if_else(gone, pa.scalar(int(Status.DELETED), pa.int32()), entries["status"])
        by = pc.if_else(gone, pa.scalar(snapshot_id, pa.int64()), entries["snapshot_id"])
        entries = entries.set_column(0, ENTRY.field("status"), status).set_column(1, ENTRY.field("snapshot_id"), by)
        found[place] = entries
        deleted.append(entries.filter(gone))
    return found, pa.concat_tables([manifest.read_all(reader, base, manifest.EMPTY_METAS), *deleted])


def _settled(entries: pa.Table) -> pa.Table:
    """The live ones among entries of earlier snapshots, as EXISTING with all numbers said."""
    live = entries.filter(pc.not_equal(entries["status"], int(Status.DELETED)))
    status = pa.array(np.full(len(live), int(Status.EXISTING), np.int32))
    return live.set_column(0, ENTRY.field("status"), status)


def _merged(
    reader: Reader, base: State, metas: pa.Table, name: str, snapshot_id: int, sequence_number: int
) -> Manifests:
    """Manifests, newest first -> fewer that say the same: runs of one spec that fit into the target size together become
    one; the run with the newest waits until there are enough of them (ManifestMergeManager)."""
    given = base.schema.properties
    if not options.boolean(given, "commit.manifest-merge.enabled", True) or len(metas) < 2:
        return Manifests({}, metas)
    target = options.integer(given, "commit.manifest.target-size-bytes", 8 << 20)
    least = options.integer(given, "commit.manifest.min-count-to-merge", 100)
    sizes, specs = np.asarray(metas["manifest_length"]), np.asarray(metas["partition_spec_id"])
    content, by = np.asarray(metas["content"]), np.asarray(metas["added_snapshot_id"])
    files: dict[str, bytes] = {}
    replaced: dict[int, pa.Table | None] = {}
    for kind in sorted(set(zip(specs.tolist(), content.tolist(), strict=True))):
        rows = np.flatnonzero((specs == kind[0]) & (content == kind[1]))
        for chosen in _runs(rows, sizes, target):
            is_newest = rows[0] in chosen
            # What this attempt made is not stored yet, so it cannot be read again: it waits for the next commit.
            chosen = [i for i in chosen if by[i] != snapshot_id]
            if kind[1] != 0 or len(chosen) < 2 or (is_newest and len(chosen) < least):
                continue
            entries = _settled(manifest.read_all(reader, base, metas.take(pa.array(chosen))))
            made = manifest.emit(
                entries, base, base.specs[kind[0]], f"{name}{len(replaced)}", snapshot_id, sequence_number, reader.root
            )
            files |= made.files
            replaced |= dict.fromkeys(chosen)
            replaced[chosen[0]] = made.metas
    parts = [metas.slice(i, 1) if i not in replaced else replaced[i] for i in range(len(metas))]
    return Manifests(files, pa.concat_tables([p for p in parts if p is not None]))


def _runs(rows: np.ndarray, sizes: np.ndarray, target: int) -> list[list[int]]:
    """`rows`, newest first, in runs of at most `target` bytes; filled from the oldest on, so that the newest is not full."""
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
    kind: str,
    base: State,
    stamp: Stamp,
    metas: pa.Table,
    files: Mapping[str, bytes],
    summary: Mapping[str, str],
    partitions: tuple[PartitionChange, ...],
    parent_id: int | None,
    operation: str,
) -> Plan:
    """The document with one snapshot more, which is the current one."""
    now_ms = _now(base, stamp)
    snapshot_id, sequence_number = _snapshot_id(base, stamp), base.document["last-sequence-number"] + 1
    path = f"{metadata.METADATA_FOLDER}/snap-{snapshot_id}-{stamp.attempt + 1}-{_derived(stamp, 'commit')}.avro"
    own = {OPERATION_ID: request.id} | ({VERB: kind} if kind != operation else {})
    if request.watermark is not None:
        own["lakeformat.watermark"] = str(request.watermark)
    clash = sorted(k for k in request.properties if k == "operation" or k in summary or k in own)
    if clash:
        raise InvalidInput(f"properties: {clash[0]!r} is a name that a snapshot's summary keeps for itself")
    made: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence_number,
        "timestamp-ms": now_ms,
        "manifest-list": reader.location(path),
        "summary": {"operation": operation, **own, **summary, **request.properties},
        "schema-id": base.schema.id,
    }
    if parent_id is not None:
        made["parent-snapshot-id"] = parent_id
    emitted = manifest.emit_list(metas, base, snapshot_id, parent_id, sequence_number)
    document = metadata.next_document(reader, base, now_ms)
    document["last-sequence-number"] = sequence_number
    document["current-snapshot-id"] = snapshot_id
    document["snapshots"] = [*document.get("snapshots", []), made]
    document["snapshot-log"] = [
        *document.get("snapshot-log", []),
        {"timestamp-ms": now_ms, "snapshot-id": snapshot_id},
    ]
    main = {**document["refs"].get(MAIN, {}), "snapshot-id": snapshot_id, "type": "branch"}
    document["refs"] = {**document["refs"], MAIN: main}
    told = replace(metadata.to_snapshot(made), partitions=partitions)
    return _publish(reader, request, base, stamp, document, told, {**files, path: emitted})


def _publish(
    reader: Reader,
    request: Request,
    base: State,
    stamp: Stamp,
    document: dict[str, Any],
    made: Snapshot,
    files: Mapping[str, bytes] | None = None,
) -> Plan:
    """`document` as the next version; it says which request it is, whatever it changed."""
    root = metadata.emit({**document, metadata.DOCUMENT_OPERATION: request.id})
    path = metadata.next_path(reader, base, _derived(stamp, "root"))
    return Plan(files or {}, path, root, made, metadata.hints(reader, base))


def _added(base: State, spec: Spec, added: tuple[WrittenFile, ...], snapshot_id: int, reader: Reader) -> pa.Table:
    """New files as rows of entries; they inherit their sequence numbers."""
    empty = manifest.read_all(reader, base, manifest.EMPTY_METAS)
    if not added:
        return empty
    count = len(added)
    columns: dict[str, Any] = {
        "status": np.full(count, int(Status.ADDED), np.int32),
        "snapshot_id": np.full(count, snapshot_id, np.int64),
        "content": np.zeros(count, np.int32),
        "file_path": [reader.location(f.path) for f in added],
        "file_format": [f.file_format.upper() for f in added],
        "record_count": [f.row_count for f in added],
        "file_size_in_bytes": [f.size_bytes for f in added],
        "split_offsets": [list(f.split_offsets) or None for f in added],
        "sort_order_id": np.zeros(count, np.int32),
        "_spec": np.full(count, spec.id, np.int32),
        "_manifest": np.full(count, -1, np.int32),
        **_metrics(base, added),
        **manifest.partition_columns([f.partition for f in added], spec),
    }
    arrays = [
        pa.nulls(count, f.type)
        if f.name not in columns
        else columns[f.name]
        if isinstance(columns[f.name], pa.Array)
        else pa.array(columns[f.name], f.type)
        for f in empty.schema
    ]
    return pa.Table.from_arrays(arrays, schema=empty.schema)


def _metrics(base: State, added: tuple[WrittenFile, ...]) -> dict[str, pa.Array]:
    """Counts, sizes and bounds of the files' columns, as maps by field id."""
    columns: dict[str, list[tuple[int, pa.Array]]] = {
        n: [] for n in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    }  # fmt: skip
    modes = options.stats_modes(base.schema.properties, base.schema.names)
    for field, (mode, length) in zip(base.schema.fields, modes, strict=True):
        if mode is StatsMode.NONE or not isinstance(field.type, Scalar):
            continue
        told = [f.stats.get(field.id, ColumnStats()) for f in added]
        nans = [s.nan_count if pa.types.is_floating(to_arrow(field.type)) else None for s in told]
        for name, values in (
            ("column_sizes", [s.size_bytes for s in told]),
            ("value_counts", [s.value_count for s in told]),
            ("null_value_counts", [s.null_count for s in told]),
            ("nan_value_counts", nans),
        ):
            columns[name].append((field.id, pa.array(values, pa.int64())))
        if mode is StatsMode.COUNTS:
            continue
        low, high = [s.minimum for s in told], [s.maximum for s in told]
        if mode is StatsMode.TRUNCATE:
            high = [_cut_high(v, length) for v in high]
            low = [v[:length] if isinstance(v, str | bytes) else v for v in low]
        for name, values in (("lower_bounds", low), ("upper_bounds", high)):
            columns[name].append((field.id, single_value.encode(waist.column(values, field.type), field.type)))
    return {name: _map_column(parts, len(added), ENTRY.field(name).type) for name, parts in columns.items()}


def _cut_high(value: Any, length: int) -> Any:
    """An upper bound cut short is raised at its end; None where none can be."""
    if isinstance(value, str):
        return waist.cut_high(value, length)
    if isinstance(value, bytes) and len(value) > length:
        kept = value[:length].rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    return value


def _map_column(parts: Sequence[tuple[int, pa.Array]], count: int, kind: pa.ListType) -> pa.Array:
    """Columns by field id -> for each row the pairs that are not null."""
    if not parts:
        return pa.nulls(count, kind)
    keys = np.repeat(np.array([id for id, _ in parts], np.int32), count)
    values = pa.concat_arrays([column for _, column in parts])
    rows = np.tile(np.arange(count), len(parts))
    order = np.argsort(rows, kind="stable")
    order = order[np.asarray(values.is_valid())[order]]
    pairs = pa.StructArray.from_arrays(
        [pa.array(keys[order]), values.take(pa.array(order))], fields=list(kind.value_type)
    )
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[order], minlength=count))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=kind)


def _summary(base: State, added: pa.Table, deleted: pa.Table) -> dict[str, str]:
    """The figures of a snapshot's summary (SnapshotSummary): those that are 0 are left out, totals go on."""
    counts = {
        "added-data-files": len(added),
        "deleted-data-files": len(deleted),
        "added-records": pc.sum(added["record_count"]).as_py() or 0,
        "deleted-records": pc.sum(deleted["record_count"]).as_py() or 0,
        "added-files-size": pc.sum(added["file_size_in_bytes"]).as_py() or 0,
        "removed-files-size": pc.sum(deleted["file_size_in_bytes"]).as_py() or 0,
    }
    found = {name: str(count) for name, count in counts.items() if count}
    found["changed-partition-count"] = str(len(_changes(pa.concat_tables([added, deleted]), base)))
    before = None if base.snapshot_document is None else base.snapshot_document.get("summary") or {}
    for name, delta in _TOTALS.items():
        old = "0" if before is None else before.get(name)
        if old is not None:
            change = counts[delta[0]] - counts[delta[1]] if delta else 0
            found[name] = str(int(old) + change)
    return found


def _changes_of(reader: Reader, snapshot: Mapping[str, Any], base: State) -> tuple[PartitionChange, ...]:
    metas = manifest.metas_of(reader, snapshot)
    own = metas.filter(pc.equal(metas["added_snapshot_id"], snapshot["snapshot-id"]))
    own = own.filter(pc.equal(own["content"], 0))
    entries = manifest.read_all(reader, base, own)
    by_it = pc.and_(
        pc.equal(entries["snapshot_id"], snapshot["snapshot-id"]),
        pc.not_equal(entries["status"], int(Status.EXISTING)),
    )
    return _changes(entries.filter(by_it), base)


def _changes(delta: pa.Table, base: State) -> tuple[PartitionChange, ...]:
    """Entries summed up by partition."""
    found = []
    ids = np.asarray(delta["_spec"])
    for spec_id in np.unique(ids):
        part = delta.filter(pa.array(ids == spec_id))
        codes, values = manifest.partitions(part, base.specs[int(spec_id)])
        is_add = np.asarray(part["status"]) == int(Status.ADDED)
        measures = (np.ones(len(part)), np.asarray(part["record_count"]), np.asarray(part["file_size_in_bytes"]))
        sums = [
            np.bincount(codes[chosen], weights=m[chosen], minlength=len(values)).astype(np.int64).tolist()
            for m in measures
            for chosen in (is_add, ~is_add)
        ]
        found += [
            PartitionChange(v, fa, fr, ra, rr, ba, br) for v, fa, fr, ra, rr, ba, br in zip(values, *sums, strict=True)
        ]
    return tuple(found)


def _now(base: State, stamp: Stamp) -> int:
    """Time travel needs history in order."""
    return int(max(stamp.now_ms, base.document["last-updated-ms"]))


def _snapshot_id(base: State, stamp: Stamp) -> int:
    """An id that no snapshot has; not negative."""
    whole = uuid.uuid5(uuid.NAMESPACE_OID, f"{stamp.nonce}/{stamp.attempt}/snapshot").int
    return ((whole >> 64) ^ whole) & (2**63 - 1)


def _derived(stamp: Stamp, what: str) -> str:
    """A name of its own for each kind of file of an attempt."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{stamp.nonce}/{stamp.attempt}/{what}"))
