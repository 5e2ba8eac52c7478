"""Row ids (`row-tracking.enabled`), files with only some columns of other files' rows (`data-evolution.enabled`), and
blob files.

Row ids are unique in a table. A file's entry has the id of its first row, and the others are consecutive; a file with
moved rows has a column of ids. With data evolution several files may have one range of row ids: the newest value of
each column counts. A blob file has one column of consecutive rows within such a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.dialects.paimon import manifest, metadata, options
from lakeformat.dialects.paimon.metadata import State
from lakeformat.errors import CorruptTable
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import OperationKind
from lakeformat.model.schema import Field, Kind, Schema, find_field, scalar, walk
from lakeformat.model.work import LAST_UPDATED, ROW_ID, BlobTask, WrittenFile
from lakeformat.storage.store import Reader

ROW_ID_NAME = "_ROW_ID"
# With Paimon's names; the worker knows them by their ids.
FIELDS = (
    Field(ROW_ID.id, ROW_ID_NAME, scalar(Kind.BIGINT)),
    Field(LAST_UPDATED.id, "_SEQUENCE_NUMBER", scalar(Kind.BIGINT)),
)
IDS_IN_FILES = (2147483642, 2147483646)  # Of these.


@dataclass(frozen=True, slots=True)
class Beside:
    """Column files and blob files: rows of `manifest.ENTRY`, the newest first in each row range, but blob files last;
    `of` is the name of the oldest file of the range, to which they belong."""

    entries: pa.Table
    of: pa.Array

    def owners(self, entries: pa.Table) -> np.ndarray:
        """For each of these files the row in `entries` of the file it belongs to; -1 for none."""
        if not len(self.of):
            return np.zeros(0, np.int64)
        indices = pc.index_in(self.of, value_set=entries["_FILE_NAME"].combine_chunks())
        return np.asarray(pc.fill_null(indices, -1)).astype(np.int64)

    def without_blobs(self) -> Beside:
        """The column files."""
        chosen = pc.invert(is_blob(self.entries))
        return Beside(self.entries.filter(chosen), self.of.filter(chosen))

    def replaces(self, reader: Reader, base: State, entries: pa.Table, names: Iterable[str]) -> np.ndarray:
        """For each of `entries`, whether column files have one of the columns `names`: its own bounds are then
        invalid."""
        result = np.zeros(len(entries), bool)
        if not len(self.of):
            return result
        read_ids = {part.id for name in names for part in walk((find_field(base.schema.fields, name),))}
        indices = self.owners(entries)
        for schema_id, columns, rows in column_kinds(self.entries):
            stored = file_fields(metadata.schema_at(reader, base, schema_id), columns)
            if read_ids & {part.id for part in walk(stored)}:
                hit = indices[rows]
                result[hit[hit >= 0]] = True
        return result


BLOB_ENDING = ".blob"
NOTHING_BESIDE = Beside(manifest.EMPTY_ENTRIES, pa.nulls(0, pa.string()))  # `pa.array` of a list loads pandas.


def is_blob(entries: pa.Table) -> pa.Array:
    """Which files are blob files."""
    return pc.ends_with(entries["_FILE_NAME"], BLOB_ENDING).combine_chunks()


def by_row_id(entries: pa.Table, where: str) -> tuple[pa.Table, Beside]:
    """(the oldest file of each row range, in the order of `entries`; the others). Raises `CorruptTable` for files
    without row ids, and for ranges that partly overlap in one partition and bucket: some writers number the rows of
    each partition from 0."""
    if not len(entries):
        return entries, NOTHING_BESIDE
    if entries["_FIRST_ROW_ID"].null_count:
        name = entries["_FILE_NAME"].filter(entries["_FIRST_ROW_ID"].is_null())[0].as_py()
        raise CorruptTable(f"{where}: {name} has no first row id, which every file of a table with data evolution has")
    in_blobs = is_blob(entries)
    if pc.any(in_blobs).as_py():
        whole, columns = by_row_id(entries.filter(pc.invert(in_blobs)), where)
        blobs, of_blobs = _in_ranges(whole, entries.filter(in_blobs), where)
        return whole, Beside(pa.concat_tables([columns.entries, blobs]), pa.concat_arrays([columns.of, of_blobs]))
    first, count = np.asarray(entries["_FIRST_ROW_ID"]), np.asarray(entries["_ROW_COUNT"])
    groups = manifest.bucket_codes(entries)
    order = np.lexsort((_ranks(entries), np.asarray(entries["_MAX_SEQUENCE_NUMBER"]), first, groups))
    is_first = np.ones(len(order), bool)  # Of its partition and bucket.
    is_first[1:] = groups[order][1:] != groups[order][:-1]
    starts = is_first.copy()
    starts[1:] |= first[order][1:] != first[order][:-1]
    ends = (first + count)[order]
    wrong = np.zeros(len(order), bool)
    wrong[1:] = np.where(starts[1:], ~is_first[1:] & (first[order][1:] < ends[:-1]), ends[1:] != ends[:-1])
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        pair = entries["_FILE_NAME"].take(pa.array(order[at - 1 : at + 1])).to_pylist()
        raise CorruptTable(f"{where}: the row ids of {pair[0]} and {pair[1]} overlap, and are not the same")
    if starts.all():
        return entries, NOTHING_BESIDE
    anchors = order[starts]
    rest = np.flatnonzero(~starts)
    of = anchors[np.cumsum(starts)[rest] - 1]
    newest = np.lexsort((-rest, of))
    beside = entries.take(pa.array(order[rest[newest]]))
    names_of = entries["_FILE_NAME"].take(pa.array(of[newest])).combine_chunks()
    return entries.take(pa.array(np.sort(anchors))), Beside(beside, names_of)


def are_new(entries: pa.Table, next_row_id: int | None) -> bool:
    """Whether the files of a commit have the row ids that it assigned, with all columns: the last ones before
    `next_row_id`."""
    if next_row_id is None or not len(entries) or entries["_WRITE_COLS"].null_count < len(entries):
        return False
    first, count = pc.min(entries["_FIRST_ROW_ID"]).as_py(), pc.sum(entries["_ROW_COUNT"]).as_py()
    return bool(first is not None and first + count == next_row_id)


def _in_ranges(whole: pa.Table, blobs: pa.Table, where: str) -> tuple[pa.Table, pa.Array]:
    """(blob files, the newest first for each file of `whole` and column; the name of the file whose rows each has)."""
    first, count = (np.asarray(blobs[name]) for name in ("_FIRST_ROW_ID", "_ROW_COUNT"))
    begins, counts = (np.asarray(whole[name]) for name in ("_FIRST_ROW_ID", "_ROW_COUNT"))
    columns = ["_PARTITION", "_BUCKET"]
    groups = manifest.bucket_codes(pa.concat_tables([whole.select(columns), blobs.select(columns)]))
    ids, ranks = np.unique(np.concatenate([begins, first]), return_inverse=True)
    keys = groups * len(ids) + ranks.reshape(-1)  # Row ids after each other, partition by partition.
    own, keys = keys[: len(whole)], keys[len(whole) :]
    ascending = np.argsort(own)
    range_indexes = own[ascending].searchsorted(keys, "right") - 1
    of = ascending[np.maximum(range_indexes, 0)] if len(whole) else np.zeros(len(blobs), np.int64)
    is_else = groups[: len(whole)][of] != groups[len(whole) :] if len(whole) else np.ones(len(blobs), bool)
    outside = first + count > (begins + counts)[of] if len(whole) else is_else
    wrong = np.flatnonzero((range_indexes < 0) | is_else | outside)
    if len(wrong):
        name = blobs["_FILE_NAME"][int(wrong[0])].as_py()
        raise CorruptTable(f"{where}: {name} has rows that no one data file has")
    single = pc.fill_null(pc.equal(pc.list_value_length(blobs["_WRITE_COLS"]), 1), False)
    if not pc.all(single).as_py():
        name = blobs["_FILE_NAME"].filter(pc.invert(single))[0].as_py()
        raise CorruptTable(f"{where}: {name} has not one column, as a blob file has")
    order = pa.array(np.lexsort((first, -np.asarray(blobs["_MAX_SEQUENCE_NUMBER"]), of)))
    return blobs.take(order), whole["_FILE_NAME"].take(pa.array(of).take(order)).combine_chunks()


def assigned(
    entries: pa.Table,
    added: Sequence[WrittenFile],
    removed: pa.Table,
    version: int,
    next_row_id: int,
    kind: OperationKind,
) -> tuple[pa.Table, int]:
    """New `entries`, those of the files `added`, with row ids from `next_row_id` on and the snapshots of their rows;
    and the next row id (RowTrackingCommitUtils). `removed`: those that they replace."""
    counts = np.array([f.row_count for f in added], np.int64)
    first_row_ids = pa.array([f.first_row_id for f in added], pa.int64())
    moved = np.array([ROW_ID_NAME in f.columns for f in added], bool)
    # Moved rows have ids in their file; rows that a merge inserts beside them have none.
    in_blobs = np.array([f.file_format == "blob" for f in added], bool)
    wants = (
        np.asarray(first_row_ids.is_null()) & ~(moved & (kind != OperationKind.MERGE)) & (kind != OperationKind.COMPACT)
    ) & ~in_blobs
    taken = np.where(wants, counts, 0)
    first = pc.if_else(pa.array(wants), pa.array(next_row_id + np.cumsum(taken) - taken), first_row_ids)
    if in_blobs.any():  # They have rows of their data file.
        of = dict(zip((f.path for f in added), first.to_pylist(), strict=True))
        starts = [
            of[f.refers_to[0]] + (f.offset or 0) if f.file_format == "blob" and f.refers_to else None for f in added
        ]
        first = pc.coalesce(pa.array(starts, pa.int64()), first)
    low, high = np.full(len(added), version), np.full(len(added), version)
    oldest, newest = (pc.min(removed["_MIN_SEQUENCE_NUMBER"]).as_py(), pc.max(removed["_MAX_SEQUENCE_NUMBER"]).as_py())
    if oldest is not None and kind == OperationKind.COMPACT:
        low[:], high[:] = oldest, newest
        begins, ends = (np.asarray(removed["_FIRST_ROW_ID"].fill_null(-1)), np.asarray(removed["_ROW_COUNT"]))
        for i in np.flatnonzero(np.asarray(first_row_ids.is_valid())):
            inside = (begins >= first_row_ids[i].as_py()) & (begins + ends <= first_row_ids[i].as_py() + counts[i])
            low[i] = np.asarray(removed["_MIN_SEQUENCE_NUMBER"])[inside].min()
            high[i] = np.asarray(removed["_MAX_SEQUENCE_NUMBER"])[inside].max()
    elif oldest is not None:
        low[moved] = oldest
    columns = pa.array([list(f.columns) or None for f in added], pa.list_(pa.string()))
    for name, values in (
        ("_FIRST_ROW_ID", first),
        ("_MIN_SEQUENCE_NUMBER", pa.array(low, pa.int64())),
        ("_MAX_SEQUENCE_NUMBER", pa.array(high, pa.int64())),
        ("_WRITE_COLS", columns),
    ):
        position = entries.column_names.index(name)
        entries = entries.set_column(position, manifest.ENTRY.field(name), values)
    return entries, next_row_id + int(taken.sum())


def changes_rows(file: WrittenFile) -> bool:
    """Whether a new file has rows that the table has already, with new values or in another place."""
    return file.first_row_id is not None or ROW_ID_NAME in file.columns


def meet(entries: pa.Table, others: pa.Table) -> np.ndarray:
    """For each of `entries`, whether a file of `others` has rows of its range."""
    others = others.filter(others["_FIRST_ROW_ID"].is_valid())
    if not len(others) or not len(entries):
        return np.zeros(len(entries), bool)
    low, count = (np.asarray(others[name]) for name in ("_FIRST_ROW_ID", "_ROW_COUNT"))
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate((low + count)[order])
    first, own = (np.asarray(entries[name]) for name in ("_FIRST_ROW_ID", "_ROW_COUNT"))
    before = np.searchsorted(low[order], first + own, side="left")  # Those that begin before its end.
    return (before > 0) & (reach[np.maximum(before - 1, 0)] > first)


def file_fields(schema: Schema, columns: Sequence[str] | None) -> tuple[Field, ...]:
    """The columns of a file of this schema written with `columns` (None:
    all of the schema's but those in blob files)."""
    if columns is None:
        apart = options.read(schema).columns_in_blobs if "blob-field" in schema.properties else frozenset()
        return tuple(f for f in schema.fields if f.name not in apart) if apart else schema.fields
    known = {field.name: field for field in (*FIELDS, *schema.fields)}
    return tuple(known[name] for name in columns if name in known)


def blob_task(schema: Schema, whole: pa.Table, blobs: pa.Table, paths: tuple[str, ...], field: Field) -> BlobTask:
    """The task that reads the values of `field` for all rows of the file `whole` from its blob files,
    the newest first."""
    return BlobTask(
        paths=paths,
        row_counts=tuple(blobs["_ROW_COUNT"].to_pylist()),
        first_row_ids=tuple(blobs["_FIRST_ROW_ID"].to_pylist()),
        fields=(field,),
        first_row_id=whole["_FIRST_ROW_ID"][0].as_py(),
        row_count=whole["_ROW_COUNT"][0].as_py(),
        as_descriptors=options.read(schema).blob_as_descriptor,
    )


def column_kinds(entries: pa.Table) -> Iterator[tuple[int, list[str] | None, np.ndarray]]:
    """(schema id, `_WRITE_COLS`, rows) of the files with the same columns."""
    return alike(entries, entries["_WRITE_COLS"].combine_chunks())


def alike(entries: pa.Table, lists: pa.Array) -> Iterator[tuple[int, list[str] | None, np.ndarray]]:
    """(schema id, list, rows) of the files of one schema with equal `lists`."""
    ids, codes = np.asarray(entries["_SCHEMA_ID"]), _codes(lists)
    for schema_id in distinct(ids):
        of_schema = ids == schema_id
        for code in distinct(codes[of_schema]):
            rows = np.flatnonzero(of_schema & (codes == code))
            yield int(schema_id), lists[int(rows[0])].as_py(), rows


def distinct(codes: np.ndarray) -> np.ndarray:
    """The distinct numbers, ascending; fast if they are all equal, as in most tables."""
    return codes[:1] if len(codes) and (codes == codes[0]).all() else np.unique(codes)


def _codes(lists: pa.Array) -> np.ndarray:
    """Numbers that are equal if the lists of texts are."""
    if lists.null_count == len(lists):  # As in most tables.
        return np.zeros(len(lists), np.int32)
    texts = pc.binary_join(lists, "\x00").dictionary_encode(null_encoding="encode")
    codes: np.ndarray = texts.indices.to_numpy(zero_copy_only=False)
    return codes


def _ranks(entries: pa.Table) -> np.ndarray:
    """The rank of each file's name."""
    order = np.asarray(pc.sort_indices(entries["_FILE_NAME"]))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks
