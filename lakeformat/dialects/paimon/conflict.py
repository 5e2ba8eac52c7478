"""Conflicts: which concurrent changes break an operation. After any other change it is evaluated again on the new base.

    operation         what others did since                                 outcome
    Append            changed the number of buckets of a partition          InvalidInput: overwrite the partition first
                      gave keys of its partitions buckets (bucket=-1)       Conflict
                      added or removed rows in its range of keys, where
                      keys change partitions                                Conflict
                      as the same stream, what it did not come after        Conflict
                      anything else, also rows of the same keys             none: the largest number is the newest
    RowDelta          the first three of Append                             as there
                      added or removed rows in a range of keys it changed   Conflict
                      removed a file that it marks rows of, or marked more  Conflict
                      wrote or rewrote columns of rows that it writes
                      columns of (data evolution)                           Conflict
    RowDelta pinned   added or removed rows in partitions of its condition  Conflict
    Overwrite         outside the scope, the third of Append                as there
                      anything else                                         none: the last writer wins inside the scope
    Overwrite pinned  added or removed rows inside the scope, or wrote some
                      there that wait for compaction to be seen             Conflict
    Rewrite           removed one of the files it read, or marked more      Conflict
                      of its rows as deleted
                      changed the number of buckets of a partition          InvalidInput, unless it is a compaction
                      filled a range of keys on a level it adds to          Conflict
                      upgraded a file that it upgrades                      Conflict
    Rewrite pinned    added or removed rows inside the scope                Conflict
    MergeBranch       changed the schema to another than the branch's       Conflict
                      merged the branch                                     none: its other files are added
    SetFileIndexes    removed all of the files                              Conflict
    SetGlobalIndexes  wrote new values of the indexed rows                  Conflict
    Restore           expired the snapshot                                  NotFound
    SetStatistics     changed the schema                                    Conflict
    Evolve            changed the schema so that a change no longer fits    InvalidInput, NotFound or AlreadyExists

Compaction changes no rows, so it does not conflict with a pinned operation. A rollback may have added and removed any
row. (core/operation/commit/*ConflictDetection.java)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.paimon import vector_file
from lakeformat.dialects.paimon import branch, indexing, manifest, metadata, options, scan, tracking
from lakeformat.dialects.paimon.layout import POSTPONED_BUCKET
from lakeformat.dialects.paimon.metadata import State
from lakeformat.errors import Conflict, InvalidInput, NoSuchFile, NotFound, OutsideScope
from lakeformat.expression import evaluation
from lakeformat.expression.spark_sql import to_sql
from lakeformat.model.operation import (
    Adopt,
    Append,
    MergeBranch,
    Operation,
    OperationKind,
    Overwrite,
    Request,
    Rewrite,
    RewriteManifests,
    RowDelta,
    SetFileIndexes,
    SetGlobalIndexes,
    SetStatistics,
)
from lakeformat.model.predicate import ALWAYS, Expression, columns_of, not_, split
from lakeformat.model.schema import Schema
from lakeformat.model.work import Content, WrittenFile
from lakeformat.storage.store import Reader


def check(reader: Reader, operation: Operation, base: State) -> None:
    """Raise `Conflict` if others changed what `operation` relied on, or another error if it can never be committed."""
    if not base.exists and isinstance(
        operation, Append | MergeBranch | Overwrite | Rewrite | RewriteManifests | RowDelta
    ):
        branch_name = branch.own_name(reader)
        missing = "the table" if branch_name is None else f"branch {branch_name!r}"
        raise NotFound(f"{reader.root}: {missing} no longer exists")
    if isinstance(operation, Overwrite | Rewrite | RowDelta):
        metadata.require_rewritable(base.schema, reader.root)
    has_indexes = bool((base.document or {}).get("indexManifest"))
    if has_indexes and isinstance(operation, RowDelta | Rewrite) and operation.kind != OperationKind.COMPACT:
        indexing.Indexes(reader, base).require_unindexed(operation.added)
    match operation:
        case MergeBranch(source=source):
            branch.Branches(reader, base).require_mergeable(source)
        case SetGlobalIndexes():
            _require_same_values(reader, base, operation)
        case SetFileIndexes(indexes=indexes):
            indexing.Indexes(reader, base).require_some(dict(indexes))
        case Append(request=request, added=added) | Adopt(request=request, added=added):
            _require_order(reader, base, request, added)
            _require_same_buckets(reader, base, request, added)
            _require_same_index(reader, base, request, added)
            _require_same_places(reader, base, request, added)
        case RowDelta():
            _check_row_delta(reader, operation, base)
        case Overwrite(request=request, added=added, scope=scope, pinned_to=pinned_to):
            require_inside(added, base.schema, scope)
            if scope != ALWAYS:
                _require_same_places(reader, base, request, added, not_(scope))
            if pinned_to is not None:
                _require_untouched(reader, base, scope, pinned_to)
                _require_all_seen(reader, base, scope)
        case Rewrite():
            _check_rewrite(reader, operation, base)
        case SetStatistics(request=request) if base.schema.id != request.schema_id:
            raise Conflict(f"{reader.root}: another writer changed the schema: statistics of its columns would be lost")
        case _:
            pass


def _check_row_delta(reader: Reader, operation: RowDelta, base: State) -> None:
    request, added, read_at = operation.request, operation.added, operation.read_at
    _require_same_buckets(reader, base, request, tuple(f for f in added if f.content is Content.DATA))
    _require_same_index(reader, base, request, added)
    _require_same_places(reader, base, request, added)
    if not base.schema.primary_key:
        _require_marked_as_read(reader, base, operation.kind, added, read_at)
        if options.read(base.schema).data_evolution_enabled:
            _require_same_columns(reader, base, operation)
    elif read_at is not None:
        _require_keys_untouched(reader, base, added, read_at)
    if operation.pinned_to is not None:
        scope, _ = split(operation.condition, base.schema.partitioning.names)
        _require_untouched(reader, base, scope, operation.pinned_to)


def _check_rewrite(reader: Reader, operation: Rewrite, base: State) -> None:
    entries = removed(reader, base, operation)
    _require_same_vectors(reader, base, entries["_FILE_NAME"], operation.read_at)
    _require_marked_as_read(reader, base, operation.kind, operation.added, operation.read_at)
    if base.schema.primary_key:
        _require_room(reader, base, operation, entries)
    _require_buckets_as_read(reader, base, operation)
    if operation.kind != OperationKind.COMPACT:  # A compaction keeps the buckets of the files that it reads.
        _require_same_buckets(reader, base, operation.request, operation.added)
    if operation.pinned_to is not None:
        _require_untouched(reader, base, operation.scope, operation.pinned_to)


def removed(reader: Reader, base: State, operation: Rewrite) -> pa.Table:
    """The live entries of the files that a Rewrite removes or upgrades. Raises `Conflict` if one is no longer live."""
    entries = manifest.live_entries(reader, base.document, base.schema, operation.scope)
    paths = scan.paths(entries, base.schema)
    read_paths = pa.array([*operation.removed, *(path for path, _ in operation.upgraded)], pa.string())
    chosen = pc.is_in(paths, value_set=read_paths)
    removed_entries = entries.filter(chosen)
    if options.read(base.schema).data_evolution_enabled and len(removed_entries) == len(read_paths):
        # Column files are removed with the file that they belong to. A compaction keeps blob files, beside the file
        # that then has the other columns of their rows.
        if operation.kind == OperationKind.COMPACT:
            entries = entries.filter(pc.invert(tracking.is_blob(entries)))
        removed_entries = entries.filter(pa.array(tracking.meet(entries, removed_entries)))
        _require_no_newer(reader, base, operation.kind, removed_entries, operation.read_at)
    if len(removed_entries) < len(read_paths):
        missing = pc.filter(read_paths, pc.invert(pc.is_in(read_paths, value_set=paths)))
        raise Conflict(
            f"{reader.root}: {operation.kind} read {len(read_paths)} files, of which {len(missing)} are no longer in "
            f"the table at snapshot {base.version}, e.g. {missing[0].as_py()}; another writer replaced them. "
            "Nothing was changed: run it again"
        )
    return removed_entries


def _require_no_newer(reader: Reader, base: State, kind: OperationKind, entries: pa.Table, read_at: int | None) -> None:
    """Raise `Conflict` if one of these files, whose rows were read at the snapshot `read_at`, is newer."""
    newer = entries.filter(pc.greater(entries["_MAX_SEQUENCE_NUMBER"], base.version if read_at is None else read_at))
    if len(newer) or (read_at or 0) > base.version:
        change = newer["_FILE_NAME"][0].as_py() if len(newer) else "a snapshot that has expired"
        raise Conflict(
            f"{reader.root}: {kind} read rows at snapshot {read_at}, and others wrote new values of their columns "
            f"since: {change}. Nothing was changed: run it again"
        )


def _require_same_columns(reader: Reader, base: State, operation: RowDelta) -> None:
    """Raise `Conflict` if rows that get new values of columns are no longer in a file of the same range, or if others
    wrote newer values of these columns, or of those that were read."""
    added = [f for f in operation.added if f.first_row_id is not None]
    marked = pa.array([path for f in operation.added for path in f.refers_to], pa.string())
    if not added and not len(marked):
        return
    scope = manifest.scope_of(base.schema, {f.partition for f in operation.added})
    live = manifest.live_entries(reader, base.document, base.schema, scope)
    whole = live.filter(pc.invert(tracking.is_blob(live))) if added else live.slice(0, 0)
    there = set(zip(whole["_FIRST_ROW_ID"].to_pylist(), whole["_ROW_COUNT"].to_pylist(), strict=True))
    for file in added:
        if (file.first_row_id, file.row_count) not in there:
            raise Conflict(
                f"{reader.root}: {operation.kind} wrote columns of the {file.row_count} rows from id "
                f"{file.first_row_id} on, which others rewrote or removed since. Nothing was changed: run it again"
            )
    ranges = pa.table(
        {
            "_FIRST_ROW_ID": pa.array([f.first_row_id for f in added], pa.int64()),
            "_ROW_COUNT": pa.array([f.row_count for f in added], pa.int64()),
        }
    )
    read = live.filter(pc.is_in(scan.paths(live, base.schema), value_set=marked)).select(ranges.column_names)
    touched = live.filter(pa.array(tracking.meet(live, pa.concat_tables([ranges, read]))))
    names = {name for f in added for name in f.columns} | operation.reads | columns_of(operation.condition)
    known = set(base.schema.names)
    column_ids = {base.schema.field(name).id for name in names if name in known}
    for schema_id, columns, rows in tracking.column_kinds(touched):
        written = tracking.file_fields(metadata.schema_at(reader, base, schema_id), columns)
        if column_ids & {f.id for f in written}:
            _require_no_newer(reader, base, operation.kind, touched.take(pa.array(rows)), operation.read_at)


def _require_marked_as_read(
    reader: Reader, base: State, kind: OperationKind, added: tuple[WrittenFile, ...], read_at: int | None
) -> None:
    """Raise `Conflict` if a file whose rows `added` deletes was removed, or lost other rows since it was read."""
    marking = [f for f in added if f.content is Content.DELETION_VECTORS]
    if not marking:
        return
    scope = manifest.scope_of(base.schema, {f.partition for f in marking})
    live = manifest.live_entries(reader, base.document, base.schema, scope)
    marked_paths = pa.array([path for f in marking for path in f.refers_to], pa.string())
    live_paths = scan.paths(live, base.schema)
    missing = marked_paths.filter(pc.invert(pc.is_in(marked_paths, value_set=live_paths)))
    if len(missing):
        raise Conflict(
            f"{reader.root}: {kind} marked rows of {len(marked_paths)} files, of which {len(missing)} are no longer in "
            f"the table at snapshot {base.version}, e.g. {missing[0].as_py()}; another writer replaced them. "
            "Nothing was changed: run it again"
        )
    names = live["_FILE_NAME"].filter(pc.is_in(live_paths, value_set=marked_paths))
    _require_same_vectors(reader, base, names, read_at)


def _require_same_vectors(reader: Reader, base: State, names: pa.ChunkedArray, read_at: int | None) -> None:
    """Raise `Conflict` if the data files `names` have other deletion vectors than at the snapshot `read_at`."""
    if read_at is None or read_at == base.version or len(names) == 0:
        return
    now = base.document or {}
    try:
        then = metadata.read_snapshot(reader, read_at) if read_at else {}
        if then.get("indexManifest") == now.get("indexManifest"):
            return
        vectors = [_vectors(reader, document, names) for document in (then, now)]
    except NoSuchFile as error:
        raise Conflict(
            f"{reader.root}: snapshot {read_at} has expired since it was read, so the rows deleted meanwhile "
            f"are unknown. Nothing was changed: run it again"
        ) from error
    if vectors[0] != vectors[1]:
        other = next(name for name in {**vectors[0], **vectors[1]} if vectors[0].get(name) != vectors[1].get(name))
        raise Conflict(
            f"{reader.root}: rows of {other} were deleted after snapshot {read_at}, at which it was read. "
            "Nothing was changed: run it again"
        )


def _vectors(reader: Reader, document: Mapping[str, Any], names: pa.ChunkedArray) -> dict[str, bytes]:
    """The deletion vectors of data files at a snapshot; they may be moved without a change."""
    index = manifest.read_index(reader, document)
    vectors = manifest.vectors(index)
    vectors = vectors.filter(pc.is_in(vectors["of"], value_set=names.combine_chunks()))
    paths = manifest.index_paths(index)
    files = {entry: reader.read(paths[entry]) for entry in set(vectors["entry"].to_pylist())}
    return {
        vector["of"]: vector_file.take(files[vector["entry"]], vector["offset"], vector["length"], reader.root)
        for vector in vectors.to_pylist()
    }


def require_inside(added: tuple[WrittenFile, ...], schema: Schema, scope: Expression) -> None:
    """Raise `OutsideScope` for a file in a partition that the overwrite does not cover."""
    if scope == ALWAYS:
        return
    names = schema.partitioning.names
    if metadata.crosses_partitions(schema):  # Rows outside may be deleted because rows inside have their keys.
        added = tuple(f for f in added if f.keys is None or f.keys.retract_count < f.row_count)
    partitions = sorted({f.partition for f in added}, key=str)
    inside = evaluation.mask(scope, manifest.partition_table(partitions, schema)).to_pylist() if partitions else []
    outside = [p for p, ok in zip(partitions, inside, strict=True) if not ok]
    if outside:
        shown = ", ".join(str(dict(zip(names, p, strict=True))) for p in outside[:10])
        raise OutsideScope(
            f"rows of {len(outside)} partitions lie outside the overwrite's scope: {shown}. Nothing was committed: "
            "leave these rows out, or declare their partitions too"
        )


def _require_same_buckets(reader: Reader, base: State, request: Request, added: tuple[WrittenFile, ...]) -> None:
    """Raise for a partition with another number of buckets: it keeps the number it was written with until it is
    overwritten."""
    schema = metadata.schema_at(reader, base, request.schema_id)
    buckets = options.read(schema).bucket
    if buckets <= 0 or base.schema.id == 0 or not added:
        return
    entries = manifest.live_entries(
        reader, base.document, base.schema, manifest.scope_of(base.schema, {f.partition for f in added})
    )
    different = pc.not_equal(entries["_TOTAL_BUCKETS"], buckets)
    if pc.any(different).as_py():
        old = entries.filter(different)["_TOTAL_BUCKETS"][0].as_py()
        raise InvalidInput(
            f"{reader.root}: a partition has {old} buckets and the table now {buckets}; rows cannot be added to it "
            f"before it is rewritten: overwrite_partitions with its rows gives it {buckets}"
        )


def _require_buckets_as_read(reader: Reader, base: State, operation: Rewrite) -> None:
    """Raise `Conflict` if others wrote to the buckets of partitions in which waiting rows are assigned buckets: these
    rows continue the sequence numbers there."""
    placed = {f.partition for f in operation.added if f.bucket_count is not None}
    if options.read(base.schema).bucket != POSTPONED_BUCKET or not placed or operation.read_at is None:
        return
    scope = manifest.scope_of(base.schema, placed)
    for document, entries in _changed_since(reader, base, scope, operation.read_at):
        if pc.any(pc.greater_equal(entries["_BUCKET"], 0)).as_py():
            raise Conflict(
                f"{reader.root}: snapshot {document['id']} ({document['commitKind']} by {document['commitUser']}) "
                "wrote to partitions whose postponed rows get their buckets here. Nothing was changed: run it again"
            )


def _require_same_index(reader: Reader, base: State, request: Request, added: tuple[WrittenFile, ...]) -> None:
    """Raise `Conflict` if others assigned buckets to keys of the partitions of `added` since these rows were assigned
    theirs."""
    schema, since = base.schema, request.absent_until
    is_dynamic = schema.primary_key and options.read(schema).bucket == -1
    if not is_dynamic or metadata.crosses_partitions(schema) or not added or since == base.version:
        return
    scope = manifest.scope_of(schema, {f.partition for f in added})
    counted = {(request.session[0], number) for number in request.follows} if request.session else set()
    named: set[str] | None = None
    for version in range(since, base.version + 1) if counted else (since, base.version):
        try:
            document = metadata.read_snapshot(reader, version) if version else {}
        except NoSuchFile:
            raise Conflict(
                f"{reader.root}: snapshot {version}, whose buckets these rows were given, has expired. "
                "Nothing was changed: run it again"
            ) from None
        before = named
        named = set(manifest.in_scope(manifest.read_index(reader, document), schema, scope)["_FILE_NAME"].to_pylist())
        by = document.get("commitUser"), document.get("commitIdentifier")
        if before is not None and named != before and by not in counted:
            raise Conflict(
                f"{reader.root}: another writer gave new keys of these partitions buckets after snapshot {since}; "
                "a key must not be in two buckets. Nothing was changed: run it again"
            )


def _require_order(reader: Reader, base: State, request: Request, added: tuple[WrittenFile, ...]) -> None:
    """Raise `Conflict` if a stream committed rows after these were numbered and they do not follow them: for equal keys
    the older row would win."""
    if request.session is None or not added or not base.schema.primary_key:
        return
    user, since = request.session[0], request.absent_until
    for document in metadata.read_snapshots(reader, list(range(since + 1, base.version + 1))):
        number = document["commitIdentifier"]
        is_own = document["commitUser"] == user and document["commitKind"] != "COMPACT"
        if is_own and number != metadata.BATCH_IDENTIFIER and number not in request.follows:
            raise Conflict(
                f"{reader.root}: commit {request.session[1]} of {user!r} was prepared before {number} was known, and "
                "its rows would count as the older ones. Nothing was changed: prepare it again"
            )


def _require_untouched(reader: Reader, base: State, scope: Expression, pinned_to: int) -> None:
    for document, entries in _changed_since(reader, base, scope, pinned_to):
        where = "the table" if scope == ALWAYS else to_sql(scope)
        raise Conflict(
            f"{reader.root}: snapshot {document['id']} ({document['commitKind']} by {document['commitUser']}) changed "
            f"{len(entries)} files in {where[:300]} after snapshot {pinned_to}. Nothing was changed: "
            "read again and pin anew"
        )


def _require_all_seen(reader: Reader, base: State, scope: Expression) -> None:
    """Raise `Conflict` if level 0 has rows that no reader sees yet."""
    table_options = options.read(base.schema)
    if not base.schema.primary_key or not (table_options.hides_level_0 or table_options.bucket == POSTPONED_BUCKET):
        return
    live = manifest.live_entries(reader, base.document, base.schema, scope)
    waits = pc.equal(live["_LEVEL"], 0) if table_options.hides_level_0 else pc.equal(live["_BUCKET"], POSTPONED_BUCKET)
    if waiting := pc.sum(waits).as_py():
        raise Conflict(
            f"{reader.root}: rows of {waiting} files wait for compaction, and earlier reads have not seen them. "
            "Nothing was changed: compact(), read again and pin anew"
        )


def _require_same_places(
    reader: Reader, base: State, request: Request, added: tuple[WrittenFile, ...], scope: Expression = ALWAYS
) -> None:
    """If keys may change partitions, raise `Conflict` if others may have moved keys of `added` since they were looked
    up."""
    if metadata.crosses_partitions(base.schema) and added and request.absent_until != base.version:
        _require_keys_untouched(reader, base, added, request.absent_until, scope)


def _require_keys_untouched(
    reader: Reader, base: State, added: tuple[WrittenFile, ...], read_at: int, scope: Expression | None = None
) -> None:
    """Raise `Conflict` if others changed rows in a key range of `added`: in the same bucket, or with `scope` anywhere
    in it."""
    schema = base.schema
    added_keys = manifest.key_entries([f for f in added if f.content is Content.DATA], schema)
    there = manifest.scope_of(schema, {f.partition for f in added}) if scope is None else scope
    for document, entries in _changed_since(reader, base, there, read_at):
        theirs = entries.select(added_keys.column_names)
        low, high = scan.key_ranks(pa.concat_tables([added_keys, theirs]), schema)
        buckets = manifest.bucket_codes(pa.concat_tables([added_keys, theirs]))
        if _meet(buckets if scope is None else np.zeros_like(buckets), low, high, len(added_keys)):
            raise Conflict(
                f"{reader.root}: snapshot {document['id']} ({document['commitKind']} by {document['commitUser']}) "
                f"changed rows with keys as of those that were read at snapshot {read_at}. Nothing was changed: "
                "run it again"
            )


def upgraded(entries: pa.Table, operation: Rewrite, schema: Schema) -> pa.Table:
    """Those of `entries` that the Rewrite upgrades, on their new level."""
    levels = dict(operation.upgraded)
    known = [levels.get(path) for path in scan.paths(entries, schema).to_pylist()] if levels else [None] * len(entries)
    chosen = pa.array(known, pa.int32())
    position = entries.column_names.index("_LEVEL")
    return entries.set_column(position, manifest.ENTRY.field("_LEVEL"), chosen).filter(chosen.is_valid())


def _require_room(reader: Reader, base: State, operation: Rewrite, removed_entries: pa.Table) -> None:
    """Raise `Conflict` if a file would overlap the keys of a file that others put on the same level (above 0) of its
    bucket, or if others upgraded it."""
    schema, names = base.schema, ["_PARTITION", "_BUCKET", "_MIN_KEY", "_MAX_KEY", "_LEVEL"]
    levels = dict(operation.upgraded)
    old_levels = (
        zip(scan.paths(removed_entries, schema).to_pylist(), removed_entries["_LEVEL"].to_pylist(), strict=True)
        if levels
        else ()
    )
    for path, level in old_levels:
        if level >= levels.get(path, level + 1):
            raise Conflict(
                f"{reader.root}: {operation.kind} upgrades {path} to level {levels[path]}, and another writer has "
                f"put it on level {level} since; nothing was changed: run it again"
            )
    files = [f for f in operation.added if f.content is not Content.DELETION_VECTORS]
    new_levels = pa.array([f.keys.level if f.keys else 0 for f in files], pa.int32())
    added = manifest.key_entries(files, schema).append_column(manifest.ENTRY.field("_LEVEL"), new_levels)
    new = pa.concat_tables([added, upgraded(removed_entries, operation, schema).select(names)])
    live = manifest.live_entries(reader, base.document, schema, operation.scope)
    live = live.filter(
        pc.invert(pc.is_in(manifest.identity(live), value_set=manifest.identity(removed_entries)))
    ).select(names)
    new, live = (table.filter(pc.greater(table["_LEVEL"], 0)) for table in (new, live))
    together = pa.concat_tables([new, live])
    if len(new) == 0 or len(live) == 0:
        return
    places = manifest.bucket_codes(together) * (int(pc.max(together["_LEVEL"]).as_py()) + 1) + np.asarray(
        together["_LEVEL"]
    )
    if _meet(places, *scan.key_ranks(together, schema), len(new)):
        raise Conflict(
            f"{reader.root}: {operation.kind} writes files with keys that another writer has put on the same level "
            "since; nothing was changed: run it again"
        )


def _meet(buckets: np.ndarray, low: np.ndarray, high: np.ndarray, count: int) -> bool:
    """Whether one of the first `count` ranges overlaps one of the others, in the same bucket."""
    step = int(high.max()) + 1
    low, high = low + buckets * step, high + buckets * step
    order = np.argsort(low, kind="stable")
    is_own, low, high = order < count, low[order], high[order]
    reach = {own: np.maximum.accumulate(np.where(is_own == own, high, -1)) for own in (True, False)}
    return bool((low <= np.where(is_own, reach[False], reach[True])).any())


def _require_same_values(reader: Reader, base: State, operation: SetGlobalIndexes) -> None:
    """Raise `Conflict` if others have written new values of rows, or restored older ones, since the columns were
    read."""
    if not operation.added:
        return
    last = max(file.last for file in operation.added)
    for document, entries in _changed_since(reader, base, ALWAYS, operation.read_at):
        first = entries.filter(pc.equal(entries["_KIND"], int(manifest.EntryKind.ADD)))["_FIRST_ROW_ID"]
        if pc.any(pc.less_equal(first, last)).as_py():
            raise Conflict(
                f"{reader.root}: snapshot {document['id']} has new values of rows that were indexed; run it again"
            )


def _changed_since(
    reader: Reader, base: State, scope: Expression, since: int
) -> Iterator[tuple[Mapping[str, Any], pa.Table]]:
    """The snapshots after `since` that changed rows inside the scope, each with its entries there."""
    postpones = options.read(base.schema).bucket == POSTPONED_BUCKET
    documents = metadata.read_snapshots(reader, list(range(since + 1, base.version + 1)))
    if len(documents) < base.version - since or base.version < since:
        raise Conflict(
            f"{reader.root}: pinned to snapshot {since}, but history from there to {base.version} is not complete "
            f"(expired or rolled back), so what changed is unknown. Nothing was changed: read again and pin anew"
        )
    for document in documents:
        # A restore has an empty delta, whatever it changed.
        if (document.get("properties") or {}).get(metadata.RESTORED_FROM):
            raise Conflict(
                f"{reader.root}: the table was rolled back after snapshot {since}, at which it was read. "
                "Nothing was changed: run it again"
            )
        changes_no_row = document["commitKind"] in {"COMPACT", "ANALYZE"}
        if changes_no_row and not postpones:
            continue
        metas = manifest.prune_metas(
            manifest.read_list(reader, document["deltaManifestList"], document), base.schema, scope
        )
        for entries in manifest.read_all(reader, metas):
            inside = manifest.in_scope(entries, base.schema, scope)
            if changes_no_row:  # But it makes rows visible that waited for a bucket.
                inside = inside.filter(pc.equal(inside["_BUCKET"], POSTPONED_BUCKET))
            if len(inside):
                yield document, inside
