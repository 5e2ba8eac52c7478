"""operation + state -> the files and the root that make it so."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import bitmap, plain_values
from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.paimon import vector_file
from lakeformat.dialects.paimon import (
    branch,
    conflict,
    indexing,
    layout,
    lineage,
    manifest,
    merging,
    metadata,
    options,
    scan,
    tracking,
    types,
)
from lakeformat.dialects.paimon.manifest import EMPTY_ENTRIES, EntryKind, FileSource
from lakeformat.dialects.paimon.metadata import State
from lakeformat.errors import AlreadyExists, CorruptTable, InvalidInput, NoSuchFile, NotFound, UnsupportedFeature
from lakeformat.model import evolution
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import (
    Adopt,
    Append,
    Create,
    Evolve,
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
)
from lakeformat.model.predicate import Expression
from lakeformat.model.schema import Field, Scalar, Schema, Type, is_plain
from lakeformat.model.snapshot import PartitionChange, Plan, Snapshot, Stamp, carried
from lakeformat.model.work import ColumnStats, Content, StatsMode, WrittenFile
from lakeformat.storage.cache import cache_of, remember
from lakeformat.storage.store import Reader

_KEY_STATS_LENGTH = 128  # Characters.

# Operation kind -> (commitKind, operation)
_KINDS = {
    OperationKind.APPEND: ("APPEND", "WRITE"),
    OperationKind.OVERWRITE: ("OVERWRITE", "OVERWRITE"),
    OperationKind.TRUNCATE: ("OVERWRITE", "TRUNCATE"),
    OperationKind.DELETE: ("OVERWRITE", "DELETE"),
    OperationKind.UPDATE: ("OVERWRITE", "UPDATE"),
    OperationKind.MERGE: ("OVERWRITE", "MERGE"),
    OperationKind.REPLACE: ("OVERWRITE", "OVERWRITE"),
    OperationKind.COMPACT: ("COMPACT", None),
    OperationKind.RESTORE: ("OVERWRITE", None),
}
_BY_ROW = {OperationKind.DELETE, OperationKind.UPDATE, OperationKind.MERGE, OperationKind.REPLACE}


def plan(reader: Reader, operation: Operation, base: State, stamp: Stamp) -> Plan:
    """The files to stage and the root to publish so that `operation` becomes the version after `base`."""
    match operation:
        case Create():
            return _create(reader, operation, base, stamp)
        case Evolve(request=request, changes=changes):
            return _evolve(reader, request, changes, base, stamp)
        case Append(request=request, added=added) | Adopt(request=request, added=added):
            return _commit(reader, request, OperationKind.APPEND, base, stamp, EMPTY_ENTRIES, added)
        case Overwrite(request=request, added=added, scope=scope, kind=kind):
            removed = manifest.live_entries(reader, base.document, base.schema, scope)
            index = _index_without(reader, base, scope, stamp)
            return _commit(reader, request, kind, base, stamp, removed, added, index)
        case SetGlobalIndexes():
            return _indexed(reader, operation, base, stamp)
        case SetFileIndexes(request=request, indexes=indexes):
            removed, kept, unused = indexing.Indexes(reader, base).renewed(dict(indexes))
            kind = OperationKind.COMPACT
            return replace(_commit(reader, request, kind, base, stamp, removed, (), kept=kept), unused=unused)
        case MergeBranch():
            return _with_branch(reader, operation, base, stamp)
        case RowDelta(request=request, added=added, kind=kind):
            return _commit(reader, request, kind, base, stamp, EMPTY_ENTRIES, added)
        case Rewrite(request=request, added=added, kind=kind):
            removed = conflict.removed(reader, base, operation)
            return _commit(
                reader,
                request,
                kind,
                base,
                stamp,
                removed,
                added,
                kept=conflict.upgraded(removed, operation, base.schema),
            )
        case RewriteManifests():
            return _merged(reader, operation, base, stamp)
        case SetStatistics(request=request, data=data):
            return _analyzed(reader, request, data, base, stamp)
        case Restore():
            return _restore(reader, operation, base, stamp)
    raise AssertionError(f"{operation}: tags and snapshots are files of their own in Paimon")


def find(reader: Reader, operation: Operation, base: State) -> Snapshot | None:
    """The snapshot that `operation` became, if it has landed."""
    landed = metadata.find(reader, operation, base)
    if landed is None:
        return None
    if isinstance(landed, int):
        return Snapshot(base.version, "evolve", 0, landed, operation.request.id, partitions=())
    if landed["id"] < base.version and not _led_on(reader, landed):
        return None
    return replace(metadata.to_snapshot(landed), partitions=_changes_of(reader, landed, base.schema))


def _led_on(reader: Reader, document: Mapping[str, Any]) -> bool:
    """Whether a snapshot is no stray, as far as is known."""
    return lineage.leads_to(reader, document, lineage.successor(reader, document["id"])) is not False


def changes(reader: Reader, base: State) -> tuple[PartitionChange, ...]:
    """What the base's own snapshot added and removed in each partition."""
    return () if base.document is None else _changes_of(reader, base.document, base.schema)


def _changes_of(reader: Reader, document: Mapping[str, Any], schema: Schema) -> tuple[PartitionChange, ...]:
    metas = manifest.read_list(reader, document["deltaManifestList"], document)
    tables = manifest.read_all(reader, metas)
    before = metadata.read_snapshots(reader, [document["id"] - 1])
    indexes = [manifest.read_index(reader, snapshot) for snapshot in (*before, document)]
    return _changes(pa.concat_tables(tables) if tables else EMPTY_ENTRIES, schema, _marked(indexes[0], indexes[-1]))


# --- private ----------------------------------------------------------------------------------------------------------


def _create(reader: Reader, operation: Create, base: State, stamp: Stamp) -> Plan:
    if base.exists:
        raise AlreadyExists(f"{reader.root}: the table exists already; pass if_exists='ignore' to keep it unchanged")
    declared = metadata.declare(operation.schema, reader.root, operation.keeps_ids)
    layout.layout(State(0, declared))  # Refuse now what the first write would refuse.
    declared = replace(declared, id=len(operation.earlier))
    plan = _schema_plan(declared, operation.request, base, stamp, "create")
    earlier = (
        replace(declared, id=id, fields=types.unnumbered_parts(fields)) for id, fields in enumerate(operation.earlier)
    )
    return replace(
        plan,
        files={
            metadata.schema_path(schema.id): metadata.emit_schema(schema, stamp.now_ms, operation.request.id)
            for schema in earlier
        },
    )


def _evolve(reader: Reader, request: Request, changes: tuple[Any, ...], base: State, stamp: Stamp) -> Plan:
    if not base.exists:
        raise NotFound(f"{reader.root}: the table no longer exists")
    before = base.schema
    if any(isinstance(change, evolution.SetKey) for change in changes):
        raise UnsupportedFeature(
            f"{reader.root}: the primary key of a Paimon table cannot change; write its rows to a new table"
        )
    after, properties = before, before.properties
    for change in changes:
        earlier, after = after, evolution.apply(after, (change,))
        for old, new in _renamed(earlier, after):
            after = replace(after, properties=options.renamed(after.properties, earlier.names, old, new))
            properties = options.renamed(properties, earlier.names, old, new)
    after = _with_blobs_as_before(before, after, reader.root)
    if after.partitioning != before.partitioning:
        raise UnsupportedFeature(
            f"{reader.root}: the partitions of a Paimon table are fixed; write its rows to a new table"
        )
    if after.sort_order:
        raise UnsupportedFeature(f"{reader.root}: {metadata.UNSORTED}")
    after = replace(
        after, id=before.id + 1, fields=tuple(replace(f, type=types.paimon_type(f.type)) for f in after.fields)
    )
    types.check_supported(after.fields)
    metadata.check_names(after.fields, reader.root)
    options.check_alter(properties, after.properties, reader.root)
    if after.primary_key and options.read(before).has_vectors != options.read(after).has_vectors:
        raise InvalidInput(
            f"{reader.root}: option 'deletion-vectors.enabled' of a table with a primary key is set when it is made, "
            "for its files would be read otherwise; make a new table"
        )
    metadata.check_options(after, reader.root)
    layout.layout(replace(base, schema=after))
    if after.primary_key and options.read(before).looks_up != options.read(after).looks_up:
        _require_one_level(reader, base, after)
    return _schema_plan(after, request, base, stamp, "evolve")


def _with_blobs_as_before(before: Schema, after: Schema, where: str) -> Schema:
    """The schema without dropped columns in `blob-field`. Raises for a column that becomes a BLOB, or stops being one:
    its values are in other files; and for a renamed BLOB column, which other engines do not find by its name."""
    was, now = (options.read(schema).blob_field for schema in (before, after))
    if not was and not now:
        return after
    old_names = {field.id: field.name for field in before.fields}
    for field in after.fields:
        old = old_names.get(field.id)
        if old is not None and (old in was) != (field.name in now):
            change = f"rename BLOB column {old!r}" if field.name != old else f"change blob-field={','.join(now)}"
            raise UnsupportedFeature(
                f"{where}: {change}: a column is a BLOB from the start, and keeps its name; add another column, "
                "or make a new table"
            )
    kept = [name for name in now if name in after.names or name not in before.names]
    properties = {**after.properties, "blob-field": ",".join(kept)}
    return replace(after, properties={key: value for key, value in properties.items() if key != "blob-field" or value})


def _renamed(before: Schema, after: Schema) -> list[tuple[str, str]]:
    """The renamed columns: (old name, new name)."""
    names = {field.id: field.name for field in after.fields}
    return [(f.name, names[f.id]) for f in before.fields if f.id in names and names[f.id] != f.name]


def _require_one_level(reader: Reader, base: State, after: Schema) -> None:
    """Refuse an option change that reads the levels above 0 by another rule if a key may be on several of them: with
    look-ups the lowest has the complete row, without them all levels together do."""
    if merging.merging(after, reader.root).replaces:
        return
    live = manifest.live_entries(reader, base.document, base.schema)
    above = live.filter(pc.greater(live["_LEVEL"], 0))
    levels = above.group_by(["_PARTITION", "_BUCKET"]).aggregate([("_LEVEL", "count_distinct")])
    if pc.any(pc.greater(levels["_LEVEL_count_distinct"], 1)).as_py():
        raise InvalidInput(
            f"{reader.root}: option 'force-lookup' says how rows on several levels are read, and there are some; "
            "compact(full=True) first, then change it"
        )


def _schema_plan(schema: Schema, request: Request, base: State, stamp: Stamp, kind: str) -> Plan:
    made = Snapshot(base.version, kind, stamp.now_ms, schema.id, request.id, partitions=())
    return Plan({}, metadata.schema_path(schema.id), metadata.emit_schema(schema, stamp.now_ms, request.id), made)


def _commit(
    reader: Reader,
    request: Request,
    kind: OperationKind,
    base: State,
    stamp: Stamp,
    removed: pa.Table,
    added: tuple[WrittenFile, ...],
    index: tuple[str | None, dict[str, bytes]] | None = None,
    kept: pa.Table = EMPTY_ENTRIES,
    next_row_id: int | None = None,
) -> Plan:
    """`removed`: entries of removed files; `kept`: those among them that are added again, with the changes given here,
    or of a branch."""
    schema = base.schema
    metadata.require_writable(schema, reader.root)
    if index is None:
        index = (base.document or {}).get("indexManifest"), {}
    log, hashes, vectors, added = (
        tuple(file for file in added if file.content is content)
        for content in (Content.CHANGELOG, Content.HASH_INDEX, Content.DELETION_VECTORS, Content.DATA)
    )
    if hashes:
        index = _index_with(reader, base, index, hashes, stamp)
    replaced = removed
    if len(kept):
        replaced = removed.filter(
            pc.invert(pc.is_in(removed["_FILE_NAME"], value_set=kept["_FILE_NAME"].combine_chunks()))
        )
    homes = (
        _homes(removed, added)
        if added and options.read(schema).data_evolution_enabled and kind == OperationKind.COMPACT
        else {}
    )
    index, unused = _with_vectors(reader, base, index, replaced, vectors, stamp, homes)
    document = base.document or {}
    new, following = _numbered(reader, request, kind, base, removed, added)
    delta = pa.concat_tables([_deleted(removed), kept, new]) if len(removed) or len(kept) else new
    before = manifest.read_metas(reader, base.document)
    merged = manifest.merge(reader, before, schema, f"manifest-{_derived(stamp, 'base')}")
    fresh = manifest.remembered(reader, manifest.emit(delta, schema, f"manifest-{_derived(stamp, 'delta')}"))
    changelog = manifest.emit(
        _added(reader, request, kind, base, removed, log), schema, f"manifest-{_derived(stamp, 'changelog')}"
    )
    removed_rows = pc.sum(removed["_ROW_COUNT"]).as_py() or 0
    rows = sum(f.row_count for f in added) + (pc.sum(kept["_ROW_COUNT"]).as_py() or 0) - removed_rows
    commit_kind, operation = _KINDS[kind]
    by_column = options.read(schema).data_evolution_enabled and not vectors
    if (schema.primary_key or by_column) and not len(removed) and commit_kind == "OVERWRITE" and kind in _BY_ROW:
        commit_kind = "APPEND"  # The new rows delete others, or have new values of some columns.
    return _publish(
        reader,
        base,
        stamp,
        request,
        lists=(merged.metas, fresh.metas, *([changelog.metas] if log else [])),
        files={**merged.files, **fresh.files, **changelog.files, **index[1]},
        unused=unused,
        partitions=_changes(
            delta, schema, _marked(manifest.read_index(reader, base.document), _entries_of(reader, base, index))
        ),
        document={
            "indexManifest": index[0],
            "nextRowId": following if next_row_id is None else next_row_id,
            "commitKind": commit_kind,
            "operation": operation,
            "totalRecordCount": (document.get("totalRecordCount") or 0) + rows,
            "deltaRecordCount": rows,
            "changelogRecordCount": sum(file.row_count for file in log) if log else None,
            "statistics": document.get("statistics") if document.get("schemaId") == schema.id else None,
        },
        statistics=partial(_statistics, delta, schema),
        begun=None if merged.files or len(merged.metas) != len(before) else manifest.records_of(reader, base.document),
    )


def _with_branch(reader: Reader, operation: MergeBranch, base: State, stamp: Stamp) -> Plan:
    """The files of a branch that the base lacks are added as they are, but with row ids of their own
    (DefaultBranchMergeHandler)."""
    entries = branch.Branches(reader, base).lacking(operation.source)
    next_row_id = (base.document or {}).get("nextRowId") or 0
    if options.read(base.schema).row_tracking_enabled:
        ends = next_row_id + np.cumsum(np.asarray(entries["_ROW_COUNT"]))
        position = entries.column_names.index("_FIRST_ROW_ID")
        starts = pa.array(ends - np.asarray(entries["_ROW_COUNT"]), pa.int64())
        entries = entries.set_column(position, manifest.ENTRY.field(position), starts)
        next_row_id = int(ends[-1]) if len(ends) else next_row_id
    kind = OperationKind.APPEND
    return _commit(
        reader, operation.request, kind, base, stamp, EMPTY_ENTRIES, (), kept=entries, next_row_id=next_row_id
    )


def _restore(reader: Reader, operation: Restore, base: State, stamp: Stamp) -> Plan:
    """The manifests of the old snapshot as the base list, and an empty delta: nothing is added a second time."""
    metadata.require_writable(base.schema, reader.root)
    snapshot_id, request = operation.snapshot_id, operation.request
    try:
        target = (
            metadata.read_tag(reader, operation.tag) if operation.tag else metadata.read_snapshot(reader, snapshot_id)
        )
    except NoSuchFile:
        raise NotFound(f"{reader.root}: no snapshot {snapshot_id}; it may have expired") from None
    if not operation.tag and snapshot_id < base.version and not _led_on(reader, target):
        raise NotFound(
            f"{reader.root}: snapshot {snapshot_id} has expired: the file with its number is not part of the history"
        )
    total = target.get("totalRecordCount") or 0
    return _publish(
        reader,
        base,
        stamp,
        replace(request, properties={**request.properties, metadata.RESTORED_FROM: str(snapshot_id)}),
        lists=(manifest.read_metas(reader, target), manifest.EMPTY_METAS),
        files={},
        partitions=(),
        document={
            "indexManifest": target.get("indexManifest"),
            "commitKind": "OVERWRITE",
            "operation": None,
            "totalRecordCount": total,
            "deltaRecordCount": total - ((base.document or {}).get("totalRecordCount") or 0),
            "statistics": target.get("statistics") if target["schemaId"] == base.schema.id else None,
        },
        rows_of=target,
        statistics=lambda: _statistics(_replaced(reader, base, target), base.schema),
    )


def _merged(reader: Reader, operation: RewriteManifests, base: State, stamp: Stamp) -> Plan:
    """All manifests of the snapshot merged into the base list."""
    metadata.require_writable(base.schema, reader.root)
    metas, document = manifest.read_metas(reader, base.document), base.document or {}
    name = f"manifest-{_derived(stamp, 'base')}"
    if operation.sort_by and len(metas):
        merged = manifest.sort(reader, metas, base.schema, name, operation)
    else:
        merged = manifest.merge(reader, metas, base.schema, name, full=True)
    kept = document.get("statistics") if document.get("schemaId") == base.schema.id else None
    return _unchanged(reader, operation.request, base, stamp, "COMPACT", merged.metas, dict(merged.files), kept)


def _analyzed(reader: Reader, request: Request, data: bytes, base: State, stamp: Stamp) -> Plan:
    """A snapshot that names a statistics file."""
    metadata.require_writable(base.schema, reader.root)
    name = f"stat-{_derived(stamp, 'statistics')}-0"
    metas = manifest.read_metas(reader, base.document)
    return _unchanged(reader, request, base, stamp, "ANALYZE", metas, {metadata.statistics_path(name): data}, name)


def _indexed(reader: Reader, operation: SetGlobalIndexes, base: State, stamp: Stamp) -> Plan:
    """A snapshot with other global indexes."""
    metadata.require_writable(base.schema, reader.root)
    entries = manifest.read_index(reader, base.document)
    manifest.require_known_indexes(entries, reader.root)
    paths = pa.array(manifest.index_paths(entries), pa.string())
    kept = entries.filter(pc.invert(pc.is_in(paths, value_set=pa.array(operation.removed, pa.string()))))
    every = pa.concat_tables([kept, indexing.entries_of(operation.added, base.schema)])
    name, files = None, dict[str, bytes]()
    if len(every):
        name = f"index-manifest-{_derived(stamp, 'index')}-3"
        files[f"{metadata.MANIFEST_FOLDER}/{name}"] = manifest.emit_index(every, base.schema)
    document = base.document or {}
    statistics = document.get("statistics") if document.get("schemaId") == base.schema.id else None
    metas = manifest.read_metas(reader, base.document)
    return _unchanged(
        reader, operation.request, base, stamp, "COMPACT", metas, files, statistics, {"indexManifest": name}
    )


def _unchanged(
    reader: Reader,
    request: Request,
    base: State,
    stamp: Stamp,
    commit_kind: str,
    metas: pa.Table,
    files: dict[str, bytes],
    statistics_file: str | None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Plan:
    """A snapshot with the same rows: all manifests in the base list, and an empty delta."""
    document = base.document or {}
    return _publish(
        reader,
        base,
        stamp,
        request,
        lists=(metas, manifest.EMPTY_METAS),
        files=files,
        partitions=(),
        document={
            "indexManifest": document.get("indexManifest"),
            "totalRecordCount": document.get("totalRecordCount"),
            "statistics": statistics_file,
            "commitKind": commit_kind,
            "operation": None,
            "deltaRecordCount": 0,
            **more,
        },
    )


def _publish(
    reader: Reader,
    base: State,
    stamp: Stamp,
    request: Request,
    lists: tuple[pa.Table, ...],  # Base, delta and, if any, changelog.
    files: dict[str, bytes],
    partitions: tuple[PartitionChange, ...],
    document: dict[str, Any],
    unused: tuple[str, ...] = (),
    rows_of: Mapping[str, Any] | None = None,  # The snapshot whose rows the new one has, if it is not the base.
    statistics: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
    begun: bytes | None = None,  # The records of the base list, where they are known.
) -> Plan:
    schema, version = base.schema, base.version + 1
    names = [f"manifest-list-{_derived(stamp, 'list')}-{i}" for i in range(len(lists))]
    cache, emitted = cache_of(reader), list[bytes]()
    for index, (list_name, metas) in enumerate(zip(names, lists, strict=True)):
        path = f"{metadata.MANIFEST_FOLDER}/{list_name}"
        files[path], records = manifest.emit_records(metas, schema, begun if index == 0 else None)
        emitted.append(files[path])
        remember(reader, path, metas)
        if cache is not None and records is not None:
            cache.put_records(reader.root, path, records)
    now_ms = max(stamp.now_ms, (base.document or {}).get("timeMillis", 0))  # Time travel needs increasing timestamps.
    user, identifier = metadata.commit_identity(request)
    before = (base.document or {}).get("properties") or {}
    from_rows = before if rows_of is None else rows_of.get("properties") or {}
    properties = carried(request.properties, request.session, from_rows, before)
    full = {
        "id": version,
        "schemaId": schema.id,
        "baseManifestList": names[0],
        "baseManifestListSize": len(emitted[0]),
        "deltaManifestList": names[1],
        "deltaManifestListSize": len(emitted[1]),
        "changelogManifestList": names[2] if len(names) > 2 else None,
        "changelogManifestListSize": len(emitted[2]) if len(names) > 2 else None,
        "commitUser": user,
        "commitIdentifier": identifier,
        "timeMillis": now_ms,
        "watermark": metadata.watermark(base.document, request.watermark),
        "properties": properties or None,
        "nextRowId": (base.document or {}).get("nextRowId") or 0,
        "uuid": _derived(stamp, "snapshot"),
        **document,
    }
    hints = {f"{metadata.SNAPSHOT_FOLDER}/LATEST": str(version).encode()}
    if base.version == 0:
        hints[f"{metadata.SNAPSHOT_FOLDER}/EARLIEST"] = b"1"
    snapshot = replace(metadata.to_snapshot(full), partitions=partitions, parent_id=base.version or None)
    if len(lists) > 2:
        changelog_files = pc.sum(lists[2]["_NUM_ADDED_FILES"]).as_py() or 0
        snapshot = replace(snapshot, figures={**snapshot.figures, "changelog_files": changelog_files})
    return Plan(
        files, metadata.snapshot_path(version), metadata.emit_snapshot(full), snapshot, hints, unused, statistics
    )


def _deleted(entries: pa.Table) -> pa.Table:
    kinds = pa.array(np.full(len(entries), int(EntryKind.DELETE), np.int32))
    return entries.set_column(0, manifest.ENTRY.field("_KIND"), kinds)


def _numbered(
    reader: Reader,
    request: Request,
    kind: OperationKind,
    base: State,
    removed: pa.Table,
    added: tuple[WrittenFile, ...],
) -> tuple[pa.Table, int]:
    """(the entries of new data files with the row ids and sequence numbers that a commit assigns, the table's next row
    id)."""
    added = tuple(sorted(added, key=lambda file: file.columns))  # Files of the same columns are recorded together.
    entries, table_options = _added(reader, request, kind, base, removed, added), options.read(base.schema)
    next_row_id = (base.document or {}).get("nextRowId") or 0
    if table_options.row_tracking_enabled and added:
        entries, next_row_id = tracking.assigned(entries, added, removed, base.version + 1, next_row_id, kind)
    if table_options.sequence_snapshot_ordering and kind != OperationKind.COMPACT:
        entries = _stamped(entries, base.version + 1)
    return entries, next_row_id


def _added(
    reader: Reader,
    request: Request,
    kind: OperationKind,
    base: State,
    removed: pa.Table,
    added: tuple[WrittenFile, ...],
) -> pa.Table:
    """New files as rows of `manifest.ENTRY`. `removed`: the entries that they replace."""
    if not added:
        return EMPTY_ENTRIES
    schema = metadata.schema_at(reader, base, request.schema_id)
    if len({f.columns for f in added}) > 1:  # Their statistics have different columns.
        parts = [tuple(some) for _, some in groupby(added, key=lambda file: file.columns)]
        return pa.concat_tables([_added(reader, request, kind, base, removed, part) for part in parts])
    count = len(added)
    row_counts = np.array([f.row_count for f in added], np.int64)
    partitions = manifest.partition_rows([f.partition for f in added], schema)
    first, totals = _numbers_of(reader, kind, base, schema, removed, added, partitions.to_pylist())
    written = added[0].columns
    counted = replace(schema, fields=tuple(f for f in schema.fields if not written or f.name in written))
    stats, stats_columns = _value_stats(added, counted)
    if written and stats_columns is None:
        stats_columns = list(counted.names)
    no_key = manifest.empty_rows(count)
    # With data evolution Java combines columns only of files with the source APPEND,
    # and gives compacted files that source too.
    compacts = kind == OperationKind.COMPACT and not options.read(schema).data_evolution_enabled
    source = FileSource.COMPACT if compacts else FileSource.APPEND
    columns: dict[str, Any] = {
        "_KIND": np.full(count, int(EntryKind.ADD), np.int32),
        "_PARTITION": partitions,
        "_BUCKET": [f.bucket for f in added],
        "_TOTAL_BUCKETS": totals,
        "_FILE_NAME": [f.path.rsplit("/", 1)[-1] for f in added],
        "_FILE_SIZE": [f.size_bytes for f in added],
        "_ROW_COUNT": row_counts,
        "_MIN_KEY": no_key,
        "_MAX_KEY": no_key,
        "_KEY_STATS": manifest.stats_struct([], [], [], [[]] * count),
        "_VALUE_STATS": stats,
        "_MIN_SEQUENCE_NUMBER": first,
        "_MAX_SEQUENCE_NUMBER": first + row_counts - 1,
        "_SCHEMA_ID": np.full(count, schema.id, np.int64),
        "_LEVEL": np.zeros(count, np.int32),
        "_EXTRA_FILES": [[f.index.rsplit("/", 1)[-1]] if isinstance(f.index, str) else [] for f in added],
        "_EMBEDDED_FILE_INDEX": [f.index if isinstance(f.index, bytes) else None for f in added],
        "_CREATION_TIME": [metadata.local_ms(f.created_ms) for f in added],
        "_DELETE_ROW_COUNT": np.zeros(count, np.int64),
        "_FILE_SOURCE": np.full(count, int(source), np.int32),
        "_VALUE_STATS_COLS": pa.array([stats_columns] * count, pa.list_(pa.string())),
        "_EXTERNAL_PATH": _external(reader, added, schema),
    }
    if schema.primary_key:
        columns |= _key_columns(added, schema)
    arrays = [
        pa.nulls(count, f.type)
        if f.name not in columns
        else columns[f.name]
        if isinstance(columns[f.name], pa.Array)
        else pa.array(columns[f.name], f.type)
        for f in manifest.ENTRY
    ]
    entries = pa.Table.from_arrays(arrays, schema=manifest.ENTRY)
    return _settled(entries, schema) if schema.primary_key and kind == OperationKind.OVERWRITE else entries


def _numbers_of(
    reader: Reader,
    kind: OperationKind,
    base: State,
    schema: Schema,
    removed: pa.Table,
    added: tuple[WrittenFile, ...],
    partitions: list[bytes],
) -> tuple[np.ndarray, np.ndarray]:
    """Of new files: (the sequence number of the first row, the number of buckets of the partition). Files of a table
    with a primary key have the sequence numbers that their writers gave."""
    buckets = options.read(schema).bucket
    first, totals = np.zeros(len(added), np.int64), np.full(len(added), buckets, np.int32)
    if schema.primary_key and kind == OperationKind.COMPACT:
        of_bucket = dict(zip(_buckets_of(removed), removed["_TOTAL_BUCKETS"].to_pylist(), strict=True))
        kept = [f.bucket_count or of_bucket[p, f.bucket] for p, f in zip(partitions, added, strict=True)]
        return first, np.array(kept, np.int32)
    if schema.primary_key or buckets <= 0:
        return first, totals
    if kind == OperationKind.COMPACT:
        lost = scan.deleted_rows(reader, base, scan.Files(removed, base.schema))
        return _in_place_of(removed, lost, added, partitions)
    return _first_sequence_numbers(reader, base, added, partitions), totals


def _stamped(entries: pa.Table, version: int) -> pa.Table:
    """New files whose rows are ordered by the snapshot that adds them, whatever their own sequence numbers
    (`sequence.snapshot-ordering`; FileStoreCommitImpl)."""
    for name in ("_MIN_SEQUENCE_NUMBER", "_MAX_SEQUENCE_NUMBER"):
        position = entries.column_names.index(name)
        ids = pa.array(np.full(len(entries), version, np.int64))
        entries = entries.set_column(position, manifest.ENTRY.field(name), ids)
    return entries


def _external(reader: Reader, added: tuple[WrittenFile, ...], schema: Schema) -> pa.Array:
    """The paths of files that are not in their bucket's folder; null for others."""
    folder = layout.directory(schema)
    paths = [
        None if f.columns or f.path.rpartition("/")[0] == folder(f.partition, f.bucket) else reader.location(f.path)
        for f in added
    ]
    return pa.array(paths, pa.string())


def _settled(entries: pa.Table, schema: Schema) -> pa.Table:
    """New files of buckets that have no others: directly on the highest level if their keys do not overlap
    (`overwrite-upgrade`)."""
    levels = np.asarray(entries["_LEVEL"])
    if not options.read(schema).overwrite_upgrade or levels.any():
        return entries
    buckets = manifest.bucket_codes(entries)
    low, high = scan.key_ranks(entries, schema)
    order = np.lexsort((low, buckets))
    meets = (buckets[order[1:]] == buckets[order[:-1]]) & (low[order[1:]] <= high[order[:-1]])
    retracts = np.asarray(entries["_DELETE_ROW_COUNT"]) > 0
    held_back = np.union1d(buckets[order[1:]][meets], buckets[retracts])
    settled = ~np.isin(buckets, held_back) & (np.asarray(entries["_BUCKET"]) >= 0)
    levels = np.where(settled, options.read(schema).level_count - 1, levels).astype(np.int32)
    return entries.set_column(entries.column_names.index("_LEVEL"), manifest.ENTRY.field("_LEVEL"), pa.array(levels))


def _key_columns(added: tuple[WrittenFile, ...], schema: Schema) -> dict[str, Any]:
    """The key, sequence number and level fields of new files' entries."""
    names = metadata.key_of(schema)
    kinds = [schema.field(name).type for name in names]
    entries = manifest.key_entries(added, schema)
    ranges = [f.keys for f in added if f.keys is not None]
    lows, highs = [], []
    for field in types.key_fields(tuple(schema.field(name) for name in names)):
        stats = [f.stats.get(field.id) or f.stats.get(types.column_id(field.id), ColumnStats()) for f in added]
        low, high = _cut(stats, field.type, _KEY_STATS_LENGTH)
        lows.append(low)
        highs.append(high)
    return {
        "_MIN_KEY": entries["_MIN_KEY"].combine_chunks(),
        "_MAX_KEY": entries["_MAX_KEY"].combine_chunks(),
        "_KEY_STATS": manifest.stats_struct(lows, highs, kinds, [[0] * len(kinds)] * len(added)),
        "_MIN_SEQUENCE_NUMBER": [r.first_sequence for r in ranges],
        "_MAX_SEQUENCE_NUMBER": [r.last_sequence for r in ranges],
        "_LEVEL": [r.level for r in ranges],
        "_DELETE_ROW_COUNT": [r.retract_count for r in ranges],
    }


def _in_place_of(
    removed: pa.Table, lost: np.ndarray, added: tuple[WrittenFile, ...], partitions: list[bytes]
) -> tuple[np.ndarray, np.ndarray]:
    """(first sequence number, number of buckets) of compacted files: those of the rows they contain. A bucket's files
    are in order, and together have as many rows as the removed files without the rows `lost` of each by then."""
    codes = {key: code for code, key in enumerate(dict.fromkeys(_buckets_of(removed)))}
    old = np.array([codes[key] for key in _buckets_of(removed)], np.int64)
    new = np.array([codes[p, f.bucket] for p, f in zip(partitions, added, strict=True)], np.int64)
    lowest, old_rows = np.asarray(removed["_MIN_SEQUENCE_NUMBER"]), np.asarray(removed["_ROW_COUNT"]) - lost
    old_order, new_order = np.lexsort((lowest, old)), np.argsort(new, kind="stable")
    old_ends = np.cumsum(old_rows[old_order])
    new_rows = np.array([f.row_count for f in added], np.int64)[new_order]
    new_starts = np.cumsum(new_rows) - new_rows
    at = np.searchsorted(old_ends, new_starts, side="right")
    replaced, within = old_order[at], new_starts - (old_ends[at] - old_rows[old_order][at])
    assert int(old_ends[-1]) == int(new_rows.sum()), (removed, added)
    first, totals = np.zeros(len(added), np.int64), np.zeros(len(added), np.int32)
    first[new_order] = lowest[replaced] + within
    totals[new_order] = np.asarray(removed["_TOTAL_BUCKETS"])[replaced]
    return first, totals


def _first_sequence_numbers(
    reader: Reader, base: State, added: tuple[WrittenFile, ...], partitions: list[bytes]
) -> np.ndarray:
    """Rows continue the largest sequence number in their bucket."""
    live = manifest.live_entries(
        reader, base.document, base.schema, manifest.scope_of(base.schema, {f.partition for f in added})
    )
    taken = live.group_by(["_PARTITION", "_BUCKET"]).aggregate([("_MAX_SEQUENCE_NUMBER", "max")])
    following = dict(zip(_buckets_of(taken), taken["_MAX_SEQUENCE_NUMBER_max"].to_pylist(), strict=True))
    first = np.zeros(len(added), np.int64)
    for i, (partition, file) in enumerate(zip(partitions, added, strict=True)):
        first[i] = following.get((partition, file.bucket), -1) + 1
        following[partition, file.bucket] = int(first[i]) + file.row_count - 1
    return first


def _buckets_of(entries: pa.Table) -> list[tuple[bytes, int]]:
    return list(zip(entries["_PARTITION"].to_pylist(), entries["_BUCKET"].to_pylist(), strict=True))


def _value_stats(added: tuple[WrittenFile, ...], schema: Schema) -> tuple[pa.StructArray, list[str] | None]:
    """Bounds and null counts of the files' columns, and the columns they are of (None: all of the schema's)."""
    dense = options.read(schema).metadata_stats_dense_store
    kept: list[tuple[Field, StatsMode, int]] = [
        (field, mode, length)
        for field, (mode, length) in zip(schema.fields, layout.stats_modes(schema), strict=True)
        if mode is not StatsMode.NONE or not dense
    ]
    lows, highs, nulls = [], [], []
    kinds: list[Type] = []
    for field, mode, length in kept:
        stats = [f.stats.get(field.id, ColumnStats()) for f in added]
        bounded = mode in (StatsMode.FULL, StatsMode.TRUNCATE) and is_plain(field.type)
        kind = field.type if isinstance(field.type, Scalar) and is_plain(field.type) else types.NESTED_STATS
        low, high = _cut(
            stats if bounded else [ColumnStats()] * len(stats), kind, length if mode is StatsMode.TRUNCATE else None
        )
        kinds.append(kind)
        lows.append(low)
        highs.append(high)
        nulls.append([None if mode is StatsMode.NONE else s.null_count for s in stats])
    columns = None if len(kept) == len(schema.fields) else [f.name for f, _, _ in kept]
    counts = [list(row) for row in zip(*nulls, strict=True)] if nulls else [[] for _ in added]
    return manifest.stats_struct(lows, highs, kinds, counts), columns


def _cut(stats: Sequence[ColumnStats], kind: Type, length: int | None) -> tuple[pa.Array, pa.Array]:
    """Lower and upper bounds of a column, texts truncated to `length`; both or none for each file, and none for bytes,
    as in Java."""
    low, high = [s.minimum for s in stats], [s.maximum for s in stats]
    if length is not None:
        low = [plain_values.cut_low(v, length) if isinstance(v, str) else v for v in low]
        high = [plain_values.cut_high(v, length) if isinstance(v, str) else v for v in high]
    if to_arrow(kind) == pa.binary():
        low = high = [None] * len(stats)
    pairs = list(zip(low, high, strict=True))
    return (
        plain_values.column([None if h is None else v for v, h in pairs], kind),
        plain_values.column([None if v is None else h for v, h in pairs], kind),
    )


def _changes(delta: pa.Table, schema: Schema, marked: pa.Table) -> tuple[PartitionChange, ...]:
    """Entries summed by partition, with the rows that deletion vectors newly delete, or had deleted before their file
    was removed."""
    places = pa.concat_tables([delta.select(["_PARTITION"]), marked.select(["_PARTITION"])])
    if len(places) == 0:
        return ()
    codes, values = manifest.partitions(places, schema)
    more = np.zeros(len(marked), np.int64)
    is_add = np.concatenate([np.asarray(delta["_KIND"]) == int(EntryKind.ADD), more > 0])
    count = len(values)
    pairs = np.unique(np.stack([codes[: len(delta)], np.asarray(delta["_BUCKET"])]), axis=1)
    buckets = np.bincount(pairs[0], minlength=count).tolist()

    def sums(weights: np.ndarray, chosen: np.ndarray) -> list[int]:
        return np.bincount(codes[chosen], weights=weights[chosen], minlength=count).astype(np.int64).tolist()

    ones, sizes = (np.concatenate([part, more]) for part in (np.ones(len(delta)), np.asarray(delta["_FILE_SIZE"])))
    # The rows of blob files are those of their data file.
    row_counts = np.where(np.asarray(tracking.is_blob(delta)), 0, np.asarray(delta["_ROW_COUNT"]))
    rows = np.concatenate([row_counts, np.asarray(marked["rows"])])
    from_scan = zip(
        manifest.partition_values(values, schema),
        *(sums(w, chosen) for w in (ones, rows, sizes) for chosen in (is_add, ~is_add)),
        buckets,
        strict=True,
    )
    return tuple(PartitionChange(*change_of_partition) for change_of_partition in from_scan)


def _replaced(reader: Reader, base: State, target: Mapping[str, Any]) -> pa.Table:
    """The entries that turn the base's files into those of another snapshot."""
    gone, back = (manifest.live_entries(reader, snapshot, base.schema) for snapshot in (base.document, target))
    return pa.concat_tables([_deleted(gone), back])


def _statistics(entries: pa.Table, schema: Schema) -> list[dict[str, Any]]:
    """What entries add to each partition less what they remove, as in Java's PartitionStatistics."""
    if len(entries) == 0:
        return []
    codes, values = manifest.partitions(entries, schema)
    signs = np.where(np.asarray(entries["_KIND"]) == int(EntryKind.ADD), 1, -1)
    rows, sizes, counts, newest = np.zeros((4, len(values)), np.int64)
    for total, weights in ((rows, entries["_ROW_COUNT"]), (sizes, entries["_FILE_SIZE"]), (counts, 1)):
        np.add.at(total, codes, signs * np.asarray(weights))
    np.maximum.at(newest, codes, np.asarray(pc.fill_null(entries["_CREATION_TIME"], 0), np.int64))
    folders = layout.directory(schema)
    return [
        {
            "spec": dict(zip(folders.names, map(folders.text, partition, folders.kinds), strict=True)),
            "recordCount": row_count,
            "fileSizeInBytes": size_bytes,
            "fileCount": file_count,
            "lastFileCreationTime": metadata.epoch_ms(created),
        }
        for partition, row_count, size_bytes, file_count, created in zip(
            manifest.partition_values(values, schema),
            *(column.tolist() for column in (rows, sizes, counts, newest)),
            strict=True,
        )
    ]


def _marked(before: pa.Table, after: pa.Table) -> pa.Table:
    """By `_PARTITION`, how many more `rows` the deletion vectors of one index delete than those of the other."""
    if before is after or not (len(before) or len(after)):
        return _NO_MARKS
    parts = []
    for entries, sign in ((before, -1), (after, 1)):
        vectors = manifest.vectors(entries)
        rows = pc.multiply(pc.fill_null(vectors["cardinality"], 0), sign)
        parts.append(pa.table({"_PARTITION": entries["_PARTITION"].take(vectors["entry"]), "rows": rows}))
    table = (
        pa.concat_tables(parts).group_by("_PARTITION").aggregate([("rows", "sum")]).rename_columns({"rows_sum": "rows"})
    )
    return table.filter(pc.not_equal(table["rows"], 0))


_NO_MARKS = pa.table({"_PARTITION": pa.nulls(0, pa.binary()), "rows": pa.nulls(0, pa.int64())})


def _entries_of(reader: Reader, base: State, index: tuple[str | None, dict[str, bytes]]) -> pa.Table:
    """The entries of an index manifest (its name, and its bytes if it is new)."""
    path = f"{metadata.MANIFEST_FOLDER}/{index[0]}"
    if path in index[1]:
        return manifest.parse_index(index[1][path], path)
    return manifest.read_index(reader, {"indexManifest": index[0]})


def _index_without(reader: Reader, base: State, scope: Expression, stamp: Stamp) -> tuple[str | None, dict[str, bytes]]:
    """The index manifest without the entries of overwritten partitions: (its name, new files)."""
    name = (base.document or {}).get("indexManifest")
    if not name:
        return None, {}
    path = f"{metadata.MANIFEST_FOLDER}/{name}"
    data, where = reader.read(path), f"{reader.root}/{path}"
    entries = manifest.parse_index(data, where)
    removed = manifest.in_scope(entries, base.schema, scope)
    if len(removed) == 0:
        return name, {}
    if len(removed) == len(entries):
        return None, {}
    keep = pc.invert(pc.is_in(entries["_PARTITION"], value_set=removed["_PARTITION"].combine_chunks()))
    renewed = f"index-manifest-{_derived(stamp, 'index')}-0"
    return renewed, {f"{metadata.MANIFEST_FOLDER}/{renewed}": manifest.filter_index(data, keep, base.schema, where)}


def _index_with(
    reader: Reader,
    base: State,
    index: tuple[str | None, dict[str, bytes]],
    added: tuple[WrittenFile, ...],
    stamp: Stamp,
) -> tuple[str, dict[str, bytes]]:
    """The index manifest `index` (its name, and its bytes if it is new) with new files of hashes: (its name, new
    files)."""
    entries = _entries_of(reader, base, index)
    manifest.require_known_indexes(entries, reader.root)
    renewed = f"index-manifest-{_derived(stamp, 'index')}-1"
    return renewed, {f"{metadata.MANIFEST_FOLDER}/{renewed}": manifest.emit_hash_index(entries, added, base.schema)}


def _with_vectors(
    reader: Reader,
    base: State,
    index: tuple[str | None, dict[str, bytes]],
    removed: pa.Table,
    added: tuple[WrittenFile, ...],
    stamp: Stamp,
    homes: Mapping[str, tuple[str, int]],
) -> tuple[tuple[str | None, dict[str, bytes]], tuple[str, ...]]:
    """The index manifest `index` with the deletion vectors `added`, each replacing that of its data file, and without
    those of the files `removed`, except those in `homes`: (the file that their rows move to, the position of the first
    one in it). Returns ((its name, new files), files of `added` that it does not refer to).

    Vectors are copied unchanged: out of a file that loses another one, and into the single file of vectors of a bucket.
    Files of `added` are kept if nothing else belongs into them.
    """
    if not added and not len(removed):
        return index, ()
    schema, (name, files) = base.schema, index
    entries = _entries_of(reader, base, index)
    old_vectors = manifest.vectors(entries)
    new = _staged(added, schema)
    leaving = [*(vector.of for vectors in new.values() for vector in vectors), *removed["_FILE_NAME"].to_pylist()]
    leaves = np.asarray(pc.is_in(old_vectors["of"], value_set=pa.array(leaving, pa.string())), bool)
    if not added and not leaves.any():
        return index, ()
    manifest.require_known_indexes(entries, reader.root)
    one_file = options.read(schema).bucket > 0 or bool(schema.primary_key)
    target = None if one_file else options.read(schema).deletion_vector_index_file_target_size
    places, of_entry = _buckets_of(entries), np.asarray(old_vectors["entry"])
    touched = np.isin(np.arange(len(entries)), of_entry[leaves])
    if one_file:
        kinds = entries["_INDEX_TYPE"].to_pylist()
        own = [p in new and k == manifest.DELETION_VECTORS for p, k in zip(places, kinds, strict=True)]
        touched |= np.array(own, bool)
    moving: dict[tuple[bytes, int], list[_Vector]] = {}
    moves = ~leaves | np.array([of in homes for of in old_vectors["of"].to_pylist()], bool)
    for vector, entry in _vectors_of(entries, old_vectors.filter(pa.array(touched[of_entry] & moves))):
        of, shift = homes.get(vector.of, (vector.of, 0))
        moving.setdefault(places[entry], []).append(replace(vector, of=of, shift=shift))
    tables, unused = [entries.filter(pa.array(~touched))], []
    for bucket in dict.fromkeys((*moving, *new)):
        made, rest = _placed(reader, moving.get(bucket, []), new.get(bucket, []), target)
        placed = []
        for vectors, content in made:
            path = vectors[0].path
            if content is not None:
                path = f"{metadata.INDEX_FOLDER}/index-{_derived(stamp, 'vectors')}-{len(files)}"
                files = {**files, path: content}
            size_bytes = vectors[0].file_bytes if content is None else len(content)
            placed.append((path, size_bytes, len(vectors), [vector.range for vector in vectors]))
        partitions, buckets = [bucket[0]] * len(placed), [bucket[1]] * len(placed)
        tables.append(manifest.index_entries(manifest.DELETION_VECTORS, partitions, buckets, placed))
        unused += rest
    every = pa.concat_tables(tables)
    files = {p: data for p, data in files.items() if p != f"{metadata.MANIFEST_FOLDER}/{name}"}
    if len(every) == 0:
        return (None, files), tuple(unused)
    renewed = f"index-manifest-{_derived(stamp, 'index')}-2"
    return (renewed, {**files, f"{metadata.MANIFEST_FOLDER}/{renewed}": manifest.emit_index(every, schema)}), tuple(
        unused
    )


@dataclass(frozen=True, slots=True)
class _Vector:
    """The deletion vector of a data file and its location; `length` and `cardinality` are those of index manifests."""

    of: str
    path: str
    offset: int
    length: int
    cardinality: int | None
    file_bytes: int = 0  # The size of the whole file.
    shift: int = 0  # The offset added to its positions.

    @property
    def range(self) -> dict[str, Any]:
        return {"f0": self.of, "f1": self.offset, "f2": self.length, "_CARDINALITY": self.cardinality}


def _staged(added: tuple[WrittenFile, ...], schema: Schema) -> dict[tuple[bytes, int], list[_Vector]]:
    """New vectors by partition and bucket; those of a file are consecutive."""
    result: dict[tuple[bytes, int], list[_Vector]] = {}
    for file, partition in zip(
        added, manifest.partition_rows([f.partition for f in added], schema).to_pylist(), strict=True
    ):
        of = file.refers_to[0].rsplit("/", 1)[-1]
        vector = _Vector(of, file.path, file.offset or 0, file.vector_bytes or 0, file.row_count, file.size_bytes)
        result.setdefault((partition, file.bucket), []).append(vector)
    return {bucket: sorted(vectors, key=lambda v: (v.path, v.offset)) for bucket, vectors in result.items()}


def _vectors_of(entries: pa.Table, vectors: pa.Table) -> Iterator[tuple[_Vector, int]]:
    """The `vectors` (rows of `manifest.vectors`), each with the row of its entry."""
    paths = manifest.index_paths(entries)
    for vector in vectors.to_pylist():
        entry = vector.pop("entry")
        yield _Vector(path=paths[entry], **vector), entry


def _placed(
    reader: Reader, moving: list[_Vector], new: list[_Vector], target_bytes: int | None
) -> tuple[list[tuple[list[_Vector], bytes | None]], list[str]]:
    """The files of vectors of a bucket: (the vectors in each, its bytes unless it is one of `new`); and the files of
    `new` that are not used. Without `target_bytes` all vectors go into one file."""
    staged = {path: list(vectors) for path, vectors in groupby(new, key=lambda vector: vector.path)}
    times = Counter(vector.of for vector in new)
    full = [p for p, vectors in staged.items() if target_bytes is not None and vectors[0].file_bytes >= target_bytes]
    stays = list(staged) if not moving and len(staged) == 1 else full
    stays = [path for path in stays if all(times[vector.of] == 1 for vector in staged[path])]
    rest = [*moving, *(vector for path, vectors in staged.items() if path not in stays for vector in vectors)]
    files: list[tuple[list[_Vector], bytes | None]] = [(staged[path], None) for path in stays]
    vectors, frames, size_bytes = [], [], 0
    united = _united(rest, _frames(reader, rest), reader.root)
    for number, (placed, frame) in enumerate(united, 1):
        vectors.append(placed)
        frames.append(frame)
        size_bytes += len(frame)
        if number == len(united) or (target_bytes is not None and size_bytes > target_bytes):
            content, offsets = vector_file.emit(frames)
            files.append(([replace(v, offset=at) for v, at in zip(vectors, offsets, strict=True)], content))
            vectors, frames, size_bytes = [], [], 0
    return files, [path for path in staged if path not in stays]


def _united(vectors: Sequence[_Vector], frames: Iterable[bytes], where: str) -> list[tuple[_Vector, bytes]]:
    """The vectors with their bytes; those of one data file are merged: several tasks of a compaction may delete rows of
    it, and it may have rows of several files."""
    by_file: dict[str, list[tuple[_Vector, bytes]]] = {}
    for vector, frame in zip(vectors, frames, strict=True):
        by_file.setdefault(vector.of, []).append((vector, frame))
    as_it_is = [len(vectors) == 1 and not vectors[0][0].shift for vectors in by_file.values()]
    return [
        vectors[0] if as_is else _one_of(vectors, where)
        for vectors, as_is in zip(by_file.values(), as_it_is, strict=True)
    ]


def _one_of(vectors: list[tuple[_Vector, bytes]], where: str) -> tuple[_Vector, bytes]:
    positions = np.unique(
        np.concatenate([bitmap.decode(frame, f"{where}/{v.path} at {v.offset}") + v.shift for v, frame in vectors])
    )
    frame = bitmap.encode(positions, any(bitmap.is_wide(frame) for _, frame in vectors))
    return replace(vectors[0][0], length=vector_file.length(frame), cardinality=len(positions), shift=0), frame


def _homes(removed: pa.Table, added: tuple[WrittenFile, ...]) -> dict[str, tuple[str, int]]:
    """For the files that a compaction of row ranges replaces: (the file that has their rows, the position of the first
    one)."""
    starts = np.array([f.first_row_id for f in added], np.int64)
    order = np.argsort(starts)
    first = np.asarray(removed["_FIRST_ROW_ID"])
    file_indexes = order[np.searchsorted(starts[order], first, side="right") - 1] if len(added) else first[:0]
    names = [added[i].path.rsplit("/", 1)[-1] for i in file_indexes.tolist()]
    return dict(
        zip(
            removed["_FILE_NAME"].to_pylist(),
            zip(names, (first - starts[file_indexes]).tolist(), strict=True),
            strict=True,
        )
    )


def _frames(reader: Reader, vectors: Sequence[_Vector]) -> Iterator[bytes]:
    """The bytes of each vector; each file is read once."""
    paths = list(dict.fromkeys(vector.path for vector in vectors))
    content = dict(zip(paths, reader.read_many(paths), strict=True))
    for vector in vectors:
        data = content[vector.path]
        if data is None:
            raise CorruptTable(f"{reader.root}: {vector.path}, which holds deletion vectors, is missing")
        yield vector_file.take(data, vector.offset, vector.length, f"{reader.root}/{vector.path}")


def _derived(stamp: Stamp, purpose: str) -> str:
    """A unique name for each kind of file of an attempt."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{stamp.nonce}/{stamp.attempt}/{purpose}"))
