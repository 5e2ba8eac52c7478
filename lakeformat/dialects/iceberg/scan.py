"""state + predicate -> ReadTasks: live files, pruned by partition and by bounds, packed into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import spans, splits
from lakeformat.codec.arrow import rows_where
from lakeformat.codec.iceberg import single_value
from lakeformat.codec.numbers import distinct
from lakeformat.dialects.iceberg import encryption, manifest, metadata, name_mapping, options, types
from lakeformat.dialects.iceberg.manifest import FileContent, ManifestContent, Status
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import CorruptTable, NotFound, UnsupportedFeature
from lakeformat.expression import pruning
from lakeformat.model import predicate as conditions
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field, Kind, Row, Scalar, find_field, is_plain, with_columns
from lakeformat.model.schema import project as project_columns
from lakeformat.model.work import (
    LAST_UPDATED,
    ROW_ID,
    Content,
    DeleteFile,
    Delta,
    FileKey,
    FilesTask,
    ReadTask,
    RowKind,
)
from lakeformat.storage.cache import LARGE_BYTES
from lakeformat.storage.store import Reader

PATH_ID, POSITION_ID = 2147483546, 2147483545  # The columns of a position delete file.


@dataclass(frozen=True, slots=True)
class Files:
    """Live data files of one snapshot, and the delete files that may apply to them: rows of `manifest.ENTRY` with their
    partition columns."""

    entries: pa.Table
    deletes: pa.Table

    def __len__(self) -> int:
        return len(self.entries)

    def filter(self, keep: pa.Array) -> Files:
        return Files(self.entries.filter(keep), self.deletes)

    @property
    def paths(self) -> pa.Array:
        return self.entries["file_path"].combine_chunks()

    @property
    def row_count(self) -> int:
        return pc.sum(self.entries["record_count"]).as_py() or 0


def scan(
    reader: Reader,
    base: State,
    columns: Sequence[str] | None = None,
    predicate: Expression = ALWAYS,
) -> Sequence[ReadTask]:
    """The tasks that together read the rows for which `predicate` (bound to the schema) is true."""
    data_files = files(reader, base, predicate, to_plan=True)
    residual = _residual(base, data_files, predicate)
    fields = project(base, columns)
    return tasks(
        reader, base, data_files, with_columns(conditions.columns_of(residual), fields, base.schema.fields), residual
    )


def files(
    reader: Reader,
    base: State,
    predicate: Expression = ALWAYS,
    to_plan: bool = False,
    large_bytes: int = LARGE_BYTES,
) -> Files:
    """The live files that may have a row for which `predicate` is true; `to_plan`: with only what tasks need of their
    entries, where manifests have more than `large_bytes` (see `manifest.live_files`)."""
    scope, rest = conditions.split(predicate, base.schema.partitioning.columns)
    asks_bounds = rest != ALWAYS or not manifest.specs_decide(base, base.specs, scope)
    live, deletes = manifest.live_files(reader, base, scope, predicate, to_plan, asks_bounds, large_bytes)
    if isinstance(live, pa.Table):
        return Files(may_hold(base, live, predicate) if asks_bounds else live, deletes)
    pieces = (may_hold(base, piece, predicate) if asks_bounds else piece for piece in live)
    return Files(pa.concat_tables([manifest.planned(piece) for piece in pieces]), deletes)


def manifests(reader: Reader, base: State, predicate: Expression = ALWAYS) -> pa.Table:
    """The manifests that `files` reads, as in the manifest list: of data files, then of delete files."""
    scope, _ = conditions.split(predicate, base.schema.partitioning.columns)
    metas = manifest.with_live(manifest.metas_of(reader, base.snapshot_document))
    is_data = pc.equal(metas["content"], int(ManifestContent.DATA))
    data = manifest.prune_metas(metas.filter(is_data), base, scope, predicate)
    return pa.concat_tables([data, manifest.prune_metas(metas.filter(pc.invert(is_data)), base, scope)])


def may_hold(base: State, entries: pa.Table, predicate: Expression) -> pa.Table:
    """The files, of data or of deletes, that may have, or delete, a row for which `predicate` is true."""
    scope, rest = conditions.split(predicate, base.schema.partitioning.columns)
    entries = manifest.in_scope(entries, base, scope)
    if rest != ALWAYS or not manifest.decides(base, entries, scope):
        bounds = _bounds(base, entries, conditions.columns_of(predicate))
        entries = rows_where(entries, pruning.may_match(predicate, bounds, len(entries)))
    return entries


@dataclass(frozen=True, slots=True)
class Partitions(Part[State]):
    """Partitions, as conditions."""

    def scope_of(self, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        return manifest.scope_of(self.state.schema, partitions)

    def rows_in(self, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        return manifest.rows_in(self.state.schema, partitions)

    def chooses_files(self, scope: Expression) -> bool:
        """Whether every live file is wholly inside or outside `scope`, by its partition spec; not if an earlier spec
        cannot decide."""
        if len(self.state.specs) == 1 or scope == ALWAYS:
            return True
        return manifest.decides(self.state, manifest.live_entries(self.reader, self.state, scope), scope)


def count(reader: Reader, base: State, predicate: Expression = ALWAYS) -> int | None:
    """The number of rows for which `predicate` is true, if metadata alone has it exactly; else None. A deletion vector
    has a cardinality; other delete files may list a row twice, or a missing one."""
    _, rest = conditions.split(predicate, base.schema.partitioning.columns)
    data_files = files(
        reader, base, predicate, to_plan=rest == ALWAYS and manifest.specs_decide(base, base.specs, predicate)
    )
    if _residual(base, data_files, predicate) != ALWAYS and not bool(
        Pruning(reader, base).matching_wholly(data_files, predicate).all()
    ):
        return None
    _, by = attached(base, data_files.entries, data_files.deletes)
    if not is_vector(data_files.deletes)[by].all():
        return None
    return data_files.row_count - int(np.asarray(data_files.deletes["record_count"])[by].sum())


@dataclass(frozen=True, slots=True)
class Pruning(Part[State]):
    """What metadata alone says about the rows in manifests and files."""

    def manifests(self, predicate: Expression = ALWAYS) -> pa.Table:
        metas = manifests(self.reader, self.state, predicate)
        count = pc.add(metas["added_files_count"], metas["existing_files_count"])
        columns = [metas["manifest_path"], metas["manifest_length"].cast(pa.int64()), count.cast(pa.int64())]
        return pa.table(dict(zip(("path", "size_bytes", "file_count"), columns, strict=True)))

    def manifest_bounds(self) -> Iterator[tuple[np.ndarray, Mapping[str, pruning.Bounds]]]:
        for _, rows, bounds in manifest.partition_bounds(manifests(self.reader, self.state), self.state):
            yield rows, bounds

    def bounds(self, files: Any, names: Iterable[str]) -> Iterator[tuple[np.ndarray, Mapping[str, pruning.Bounds]]]:
        """(indices of files, bounds of the columns `names` in their manifest entries)."""
        yield np.arange(len(files)), _bounds(self.state, files.entries, names)

    def matching_wholly(self, files: Any, predicate: Expression) -> np.ndarray:
        """For each file, whether its partition and bounds prove that every row satisfies `predicate`."""
        scope, rest = conditions.split(predicate, self.state.schema.partitioning.columns)
        if rest == ALWAYS and manifest.decides(self.state, files.entries, scope):
            inside = manifest.in_scope(files.entries, self.state, scope)["file_path"].combine_chunks()
            return np.asarray(pc.is_in(files.paths, value_set=inside))
        bounds = _bounds(self.state, files.entries, conditions.columns_of(predicate))
        return np.asarray(pruning.must_match(predicate, bounds, len(files)))

    def has_whole_files(self) -> bool:
        document = self.state.snapshot_document
        return document is None or (document.get("summary") or {}).get("total-delete-files") == "0"


def tasks(
    reader: Reader,
    base: State,
    data_files: Files,
    fields: tuple[Field, ...],
    predicate: Expression = ALWAYS,
    alone: bool = False,
) -> Sequence[FilesTask]:
    """Files -> tasks of about `read.split.target-size`, task lazily. With `alone`, one task per file, in order, with
    the file's partition under its own spec."""
    entries = data_files.entries
    formats = entries["file_format"].combine_chunks().dictionary_encode()
    lowered = [name.lower() for name in formats.dictionary.to_pylist()]
    names = list(dict.fromkeys(lowered))
    for name in names:
        if name not in options.FORMATS:
            raise UnsupportedFeature(
                f"{reader.root}: data files in {name}: lakeformat reads Parquet, ORC and Avro in Iceberg tables"
            )
    format_of = np.array([names.index(name) for name in lowered], np.int8)[np.asarray(formats.indices)]
    row_counts, sizes = (np.asarray(entries[name]) for name in ("record_count", "file_size_in_bytes"))
    cuts = np.arange(len(entries) + 1) if alone else _cuts(base, format_of, sizes)
    paths = entries["file_path"]
    deletes = delete_files(reader, base, data_files)
    mappings = {name: name_mapping.for_files(base, name) for name in names}
    constant_of, constants = manifest.identities(entries, base)
    keys = _keys(base, entries)
    lineage: tuple[tuple[int | None, int | None], ...] = ()
    if ROW_ID in fields or LAST_UPDATED in fields:
        numbers = (entries[n].to_pylist() for n in ("first_row_id", "sequence_number"))
        lineage = tuple((first, None if first is None else number) for first, number in zip(*numbers, strict=True))
    partitions = manifest.partition_of_each(entries, base) if alone else []

    def task(number: int) -> FilesTask:
        start, end = cuts[number : number + 2].tolist()
        own_deletes, file_format = deletes[start:end], names[format_of[start]]
        mapping, positions = mappings[file_format]
        return FilesTask(
            paths=tuple(paths[start:end].to_pylist()),
            row_counts=tuple(row_counts[start:end].tolist()),
            sizes_bytes=tuple(sizes[start:end].tolist()),
            file_format=file_format,
            mapping=mapping,
            positions=positions,
            absent=tuple(constants[index] for index in constant_of[start:end].tolist()) if len(constants) > 1 else (),
            fields=fields,
            predicate=predicate,
            deletes=own_deletes if any(own_deletes) else (),
            lineage=lineage[start:end],
            partition=partitions[start] if alone else (),
            keys=keys[start:end],
        )

    return splits.OnDemand(len(cuts) - 1, task)


def _cuts(base: State, format_of: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The start of each task, and the end of the last; the files of a task have the same format."""
    given = base.schema.properties
    target = options.read(given).split_target_size
    opening = options.read(given).split_open_file_cost
    starts = [0, *(np.flatnonzero(np.diff(format_of)) + 1).tolist(), len(sizes)]
    pieces = [splits.cuts(sizes[start:end], target, opening)[:-1] + start for start, end in pairwise(starts)]
    return np.append(np.concatenate(pieces), len(sizes))


# --- deletes ----------------------------------------------------------------------------------------------------------


def attached(base: State, entries: pa.Table, deletes: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """(rows of `entries`, rows of `deletes`): each pair of a data file and a delete file that applies to it, in the
    order of the data files (spec, Scan Planning; core/DeleteFileIndex.java).

    Delete files apply within their own spec and partition: position deletes to data that is not newer, equality deletes
    to older data, unless its bounds prove that it has none of their values. Equality deletes of an unpartitioned spec
    apply everywhere. A deletion vector replaces all other position deletes of its data file.
    """
    if not len(entries) or not len(deletes):
        return np.array([], np.int64), np.array([], np.int64)
    columns = manifest.partition_names(entries)
    partitions = manifest.partition_codes(pa.concat_tables([entries.select(columns), deletes.select(columns)]), base)
    data_partitions, others = partitions[: len(entries)], partitions[len(entries) :]
    sequences, theirs = (np.asarray(t["sequence_number"]) for t in (entries, deletes))
    is_equality = np.asarray(deletes["content"]) == FileContent.EQUALITY_DELETES
    specs = np.asarray(deletes["_spec"])
    plain = [id for id in np.unique(specs).tolist() if base.specs[id].is_unpartitioned]
    is_global = is_equality & np.isin(specs, plain)
    about = referenced(deletes)
    data_file = np.asarray(pc.fill_null(pc.index_in(about, entries["file_path"].combine_chunks()), -1))
    # By path: one data file each.
    by_name = np.flatnonzero(~is_equality & np.asarray(about.is_valid()) & (data_file >= 0))
    data_indexes = data_file[by_name]
    fits = (data_partitions[data_indexes] == others[by_name]) & (sequences[data_indexes] <= theirs[by_name])
    by_name, data_indexes = by_name[fits], data_indexes[fits]
    has_vector = np.zeros(len(entries), bool)
    vectors = is_vector(deletes)
    has_vector[data_indexes[vectors[by_name]]] = True
    # By partition: all its data files of the right age.
    wide = np.flatnonzero(~is_equality & ~np.asarray(about.is_valid()))
    equal = np.flatnonzero(is_equality & ~is_global)
    everywhere = np.flatnonzero(is_global)
    everything, nothing = np.zeros(len(entries), np.int64), np.zeros(len(everywhere), np.int64)
    pairs = [
        (data_indexes, by_name),
        _older(data_partitions, sequences, others[wide], theirs[wide], wide, "right"),
        _older(data_partitions, sequences, others[equal], theirs[equal], equal, "left"),
        _older(everything, sequences, nothing, theirs[everywhere], everywhere, "left"),
    ]
    left, right = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    stays = is_equality[right] | vectors[right] | ~has_vector[left]
    left, right = left[stays], right[stays]
    meets = ~_apart(base, entries, deletes, left, right)
    left, right = left[meets], right[meets]
    order = np.lexsort((right, left))
    return left[order], right[order]


def is_vector(deletes: pa.Table) -> np.ndarray:
    """Which delete files are deletion vectors."""
    return np.asarray(pc.equal(pc.utf8_lower(deletes["file_format"]), "puffin"))


def referenced(deletes: pa.Table) -> pa.Array:
    """The only data file that a position delete file refers to; null if there may be several, and for equality deletes.

    By `referenced_data_file`, or by equal bounds of the path. Some writers truncate bounds, which may make them look
    equal: only bounds that end like a file name count (core/ContentFileUtil.java).
    """
    referenced_path = deletes["referenced_data_file"].combine_chunks()
    low, high = (
        manifest.look_up(deletes[name], PATH_ID).cast(pa.string()) for name in ("lower_bounds", "upper_bounds")
    )
    whole = pc.and_kleene(
        pc.equal(low, high), pc.match_substring_regex(low, r"\.(parquet|orc|avro)$", ignore_case=True)
    )
    return pc.coalesce(referenced_path, pc.if_else(pc.fill_null(whole, False), low, pa.scalar(None, pa.string())))


def delete_files(reader: Reader, base: State, data_files: Files) -> tuple[tuple[DeleteFile, ...], ...]:
    """For each data file the delete files that apply to it, as tasks name them."""
    left, right = attached(base, data_files.entries, data_files.deletes)
    if not len(left):
        return ((),) * len(data_files)
    chosen, codes = np.unique(right, return_inverse=True)
    files = all_delete_files(reader, base, data_files.deletes.take(pa.array(chosen)))
    starts = np.searchsorted(left, np.arange(len(data_files) + 1)).tolist()
    places = codes.tolist()
    return tuple(tuple(files[i] for i in places[a:b]) for a, b in pairwise(starts))


def all_delete_files(reader: Reader, base: State, deletes: pa.Table) -> list[DeleteFile]:
    """Delete files as tasks name them, in order."""
    vectors = is_vector(deletes).tolist()
    compared_fields: dict[tuple[int, ...], tuple[Field, ...]] = {}
    names = (
        "file_path",
        "file_format",
        "content",
        "content_offset",
        "content_size_in_bytes",
        "equality_ids",
        "record_count",
    )
    files = []
    keys = _keys(base, deletes) or (None,) * len(deletes)
    columns = (deletes[n].to_pylist() for n in names)
    for vector, opens, *row in zip(vectors, keys, *columns, strict=True):
        path, format, content, offset, size, ids, rows = row
        if vector:
            if offset is None or size is None:
                raise CorruptTable(f"{path}: a deletion vector whose offset the table does not record")
            files.append(
                DeleteFile(
                    path, Content.DELETION_VECTORS, offset, size, row_count=rows, file_format="puffin", key=opens
                )
            )
            continue
        format = format.lower()
        if format not in options.FORMATS:
            raise UnsupportedFeature(
                f"{path}: delete files in {format}: lakeformat reads Parquet, ORC and Avro in Iceberg tables; let the "
                "engine that wrote them rewrite the data files"
            )
        if content == FileContent.POSITION_DELETES:
            files.append(DeleteFile(path, Content.POSITION_DELETES, file_format=format, row_count=rows, key=opens))
            continue
        key = tuple(ids or ())
        if not key:
            raise CorruptTable(f"{path}: equality deletes that name no column")
        if key not in compared_fields:
            compared_fields[key] = tuple(_compared(base, id, path) for id in key)
        files.append(DeleteFile(path, Content.EQUALITY_DELETES, None, None, compared_fields[key], format, rows, opens))
    return files


def _keys(base: State, entries: pa.Table) -> tuple[FileKey | None, ...]:
    """The keys of files; empty where none is encrypted. Without encryption of the table their key metadata says nothing
    (encryption/PlaintextEncryptionManager.java)."""
    is_plain = not metadata.is_encrypted(base) or entries["key_metadata"].null_count == len(entries)
    return () if is_plain else encryption.file_keys(entries)


def delta(
    reader: Reader,
    base: State,
    since: int,
    snapshot_id: int,
    fields: tuple[Field, ...],
    predicate: Expression = ALWAYS,
) -> list[Delta]:
    """The rows removed and added by a snapshot after `since`, its parent; `fields` and `predicate` are of the schema of
    `base`.

    Rows are removed with their files and by new deletes of remaining files, and added with new files. Rows of a
    rewritten file appear twice, as removed and as added. Raises `NotFound` if `since` is not the parent snapshot.
    """
    document = metadata.snapshots(base)[snapshot_id]
    if document.get("parent-snapshot-id", 0) != since:
        raise NotFound(
            f"{reader.root}: snapshot {since} does not exist, or did not lead to {snapshot_id}, "
            "so what changed is unknown"
        )
    if (document.get("summary") or {}).get("operation") == "replace":
        return []
    after = replace(base, snapshot_document=document)
    before = replace(base, snapshot_document=metadata.snapshots(base).get(since))
    came, went = (
        may_hold(base, manifest.entries_of_snapshot(reader, base, document, ManifestContent.DATA, status), predicate)
        for status in (Status.ADDED, Status.DELETED)
    )
    if went["sequence_number"].null_count:  # Some writers left it out.
        live = manifest.live_entries(reader, before)
        went = live.filter(pc.is_in(manifest.keys(live), value_set=manifest.keys(went)))
    fresh = manifest.entries_of_snapshot(reader, base, document, ManifestContent.DELETES, Status.ADDED)
    fields = with_columns(conditions.columns_of(predicate), fields, base.schema.fields)
    deletes_after, were = (
        manifest.live_entries(reader, view, content=ManifestContent.DELETES) for view in (after, before)
    )
    deleted_tasks = [*tasks(reader, base, Files(went, were), fields, predicate)]
    if len(fresh):
        stays = manifest.live_entries(reader, after)
        stays = stays.filter(pc.not_equal(stays["snapshot_id"], snapshot_id))
        stays = stays.take(pa.array(distinct(attached(base, stays, fresh)[0])))
        taken = delete_files(reader, base, Files(stays, fresh))
        alone = tasks(reader, base, Files(stays, were), fields, predicate, alone=True)
        deleted_tasks += [replace(task, taken_by=(by,)) for task, by in zip(alone, taken, strict=True)]
    return [
        Delta(RowKind.DELETE, tuple(deleted_tasks)),
        Delta(RowKind.INSERT, tuple(tasks(reader, base, Files(came, deletes_after), fields, predicate))),
    ]


def project(base: State, columns: Sequence[str] | None) -> tuple[Field, ...]:
    """The requested columns, in that order; `a.b` keeps only `b` of the row `a`. Raises `NotFound`."""
    fields = base.schema.fields
    if columns is not None and metadata.format_version(base) >= 3:
        known = set(base.schema.names)
        asked = {name.casefold() for name in columns}
        fields += tuple(f for f in (ROW_ID, LAST_UPDATED) if f.name in asked and f.name not in known)
    return project_columns(fields, columns)


# --- private ----------------------------------------------------------------------------------------------------------


def _older(
    places: np.ndarray, sequences: np.ndarray, theirs: np.ndarray, until: np.ndarray, rows: np.ndarray, side: str
) -> tuple[np.ndarray, np.ndarray]:
    """(data files, `rows`): for each of `rows` the data files of its partition that are as old as it (`side` "right")
    or older."""
    if not len(rows):
        return np.array([], np.int64), np.array([], np.int64)
    distinct = np.unique(np.concatenate([sequences, until]))
    keys = places * len(distinct) + np.searchsorted(distinct, sequences)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.searchsorted(ordered, theirs * len(distinct))
    last = np.searchsorted(ordered, theirs * len(distinct) + np.searchsorted(distinct, until), side=side)  # type: ignore[call-overload]  # `side` is "left" or "right".
    counts = np.maximum(last - first, 0)
    return order[spans.ranges(first, counts)], np.repeat(rows, counts)


def _apart(base: State, entries: pa.Table, deletes: pa.Table, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Which pairs of a data file and an equality delete file can have no equal row, by a column's bounds in the
    manifests."""
    is_apart = np.zeros(len(left), bool)
    ids = deletes["equality_ids"].combine_chunks()
    for id in pc.unique(ids.flatten()).to_pylist():
        path = _path_to(base, id)
        kind = path[-1].type if path is not None else None
        if not isinstance(kind, Scalar) or not is_plain(kind) or kind.kind in (Kind.FLOAT, Kind.DOUBLE):
            continue
        owners = np.unique(pc.list_parent_indices(ids).filter(pc.equal(ids.flatten(), id)))
        pairs = np.flatnonzero(np.isin(right, owners) & ~is_apart)
        if not len(pairs):
            continue
        sides = []
        for table, rows in ((entries, left), (deletes, right)):
            indexes = pa.array(rows[pairs])
            ends = (manifest.look_up(table[n], id).take(indexes) for n in ("lower_bounds", "upper_bounds"))
            low, high = single_value.decode_bounds(next(ends), next(ends), kind)
            nulls = manifest.look_up(table["null_value_counts"], id).take(indexes)
            values = manifest.look_up(table["value_counts"], id).take(indexes)
            sides.append((low, high, nulls, pc.equal(nulls, values)))
        (low, high, nulls, hollow), (least, most, lacking, nothing) = sides
        outside = pc.or_(pc.less(high, least), pc.greater(low, most))
        never = pc.fill_null(pc.and_(outside, pc.or_(pc.equal(nulls, 0), pc.equal(lacking, 0))), False)
        for one, other in ((hollow, lacking), (nothing, nulls)):  # Only nulls on one side, and none on the other.
            never = pc.or_(never, pc.fill_null(pc.and_(one, pc.equal(other, 0)), False))
        is_apart[pairs] = np.asarray(never)
    return is_apart


def _path_to(base: State, id: int) -> tuple[Field, ...] | None:
    """The column of a field id and the row fields that lead to it, with the current names, or those of the last schema
    that had it; None if it is inside a list or map, or nowhere."""
    schemas = sorted(base.document["schemas"], key=lambda s: s["schema-id"], reverse=True)
    for fields in (base.schema.fields, *(types.parse_fields(s) for s in schemas)):
        if (path := _path_in(fields, id)) is not None:
            return path
    return None


def _path_in(fields: tuple[Field, ...], id: int) -> tuple[Field, ...] | None:
    for field in fields:
        if field.id == id:
            return (field,)
        if isinstance(field.type, Row) and (rest := _path_in(field.type.fields, id)) is not None:
            return (field, *rest)
    return None


def _compared(base: State, id: int, path: str) -> Field:
    """The column of a field id, with only the fields that lead to it."""
    fields = _path_to(base, id)
    if fields is None:
        raise UnsupportedFeature(
            f"{path}: equality deletes by the field of id {id}, which is in a list or a map, or in no schema: not "
            "supported; let the engine that wrote them rewrite the data files"
        )
    column = replace(fields[-1], nullable=True, comment=None)
    for field in reversed(fields[:-1]):
        column = replace(field, type=Row((column,)), nullable=True, comment=None)
    return replace(column, name=f"_compared_{id}")


def _residual(base: State, data_files: Files, predicate: Expression) -> Expression:
    """The condition that remains to be tested on rows once whole partitions are selected."""
    scope, rest = conditions.split(predicate, base.schema.partitioning.columns)
    return rest if manifest.decides(base, data_files.entries, scope) else predicate


def _bounds(base: State, entries: pa.Table, names: Iterable[str]) -> Mapping[str, pruning.Bounds]:
    """The bounds of the columns `names` in the manifests, one row an entry."""
    bounds = {}
    rows = entries["record_count"].combine_chunks()
    for name in names:
        field = find_field(base.schema.fields, name)
        if not isinstance(field.type, Scalar) or not is_plain(field.type):
            continue
        ends = (manifest.look_up(entries[n], field.id) for n in ("lower_bounds", "upper_bounds"))
        low, high = single_value.decode_bounds(next(ends), next(ends), field.type)
        nulls, nans = (manifest.look_up(entries[n], field.id) for n in ("null_value_counts", "nan_value_counts"))
        bounds[name] = pruning.Bounds(low, high, nulls, rows, nans)
    return bounds
