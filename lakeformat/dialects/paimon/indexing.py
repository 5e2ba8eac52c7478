"""Indexes of existing rows.

File indexes: which files lack those that the table's options ask for, and their entries with new ones. Deleted rows are
indexed too: bitmaps name positions in the file. (FileIndexProcessor) Global indexes with B-trees: which rows of a
column have none, and the files of new ones. (pypaimon's create_global_index)"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.paimon import btree_index, file_index
from lakeformat.dialects.paimon import global_index, layout, manifest, metadata, options, scan, tracking
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import Conflict, InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import Expression
from lakeformat.model.schema import Field, Schema
from lakeformat.model.work import (
    SEQUENCE,
    VALUE_KIND,
    FilesTask,
    GlobalIndexFile,
    IndexRange,
    IndexTask,
    WrittenFile,
)

ENDING = ".index"
_ROWS_PER_FILE = 5_000_000


@dataclass(frozen=True, slots=True)
class Indexes(Part[State]):
    """Indexes of the values in files."""

    def unindexed(self, scope: Expression) -> list[IndexTask]:
        """For each file that lacks an index, what is to be indexed. `scope`: a condition on partition columns."""
        rule = layout.file_indexes(self.state.schema)
        if rule is None:
            return []
        metadata.require_writable(self.state.schema, self.reader.root)
        metadata.require_rewritable(self.state.schema, self.reader.root)
        if options.read(self.state.schema).data_evolution_enabled:
            raise UnsupportedFeature(
                f"{self.reader.root}: file indexes of a table with data evolution, whose columns are in several files, "
                "are not used; create_global_index(column)"
            )
        entries = scan.files(self.reader, self.state, scope).entries
        system = (SEQUENCE, VALUE_KIND) if self.state.schema.primary_key else ()
        rows = zip(
            scan.paths(entries, self.state.schema).to_pylist(),
            scan.index_files(self.reader, entries, self.state.schema),
            *(entries[name].to_pylist() for name in ("_SCHEMA_ID", "_ROW_COUNT", "_FILE_SIZE")),
            scan.file_formats(entries).to_pylist(),
            strict=True,
        )
        result = []
        for path, (index_path, data), schema_id, row_count, size_bytes, file_format in rows:
            kept = {} if data is None else file_index.parse(data, f"{self.reader.root}/{index_path}")
            file_columns = {field.id: field for field in metadata.schema_at(self.reader, self.state, schema_id).fields}
            columns = [(column, file_columns.get(self.state.schema.field(column.column).id)) for column in rule.columns]
            missing = {
                column: field.name
                for column, field in columns
                if field is not None
                and field.type == self.state.schema.field(column.column).type
                and column.kind not in kept.get(field.name, {})
            }
            if missing:
                names = dict.fromkeys(column.column for column in missing)
                read = FilesTask(
                    paths=(path,),
                    row_counts=(row_count,),
                    sizes_bytes=(size_bytes,),
                    file_format=file_format,
                    fields=tuple(self.state.schema.field(name) for name in names),
                    file_fields=(*system, *file_columns.values()),
                )
                result.append(IndexTask(read, tuple(missing.items()), kept, rule.embedded_bytes))
        return result

    def unindexed_rows(self, column: str, kind: str, scope: Expression) -> list[IndexRange]:
        """The runs of row ids, within a partition, that no index of the column covers."""
        metadata.require_writable(self.state.schema, self.reader.root)
        field = self.require_btree(column, kind)
        if not global_index.always_had(self.reader, self.state, field):
            raise UnsupportedFeature(
                f"{self.reader.root}: a global index of column {column!r}, which has had another type"
            )
        data_files = scan.files(self.reader, self.state, scope)
        if not len(data_files):
            return []
        indexes = global_index.read_all(self.reader, self.state.document)
        indexes = indexes.filter(pc.equal(indexes["field_id"], field.id))
        starts, stops = global_index.joined(np.asarray(indexes["first"]), np.asarray(indexes["last"]) + 1)
        entries = data_files.entries
        first, counts = np.asarray(entries["_FIRST_ROW_ID"]), np.asarray(entries["_ROW_COUNT"])
        codes, _ = manifest.partitions(entries, self.state.schema)
        partitions, fields = scan.partitions_of(self.state, entries), (field, tracking.FIELDS[0])
        result = []
        for rows in np.split(order := np.lexsort((first, codes)), _breaks(first[order], counts[order], codes[order])):
            low, high = int(first[rows[0]]), int((first + counts)[rows[-1]])
            for begin, end in _gaps(low, high, starts, stops):
                chosen = rows[(first[rows] < end) & ((first + counts)[rows] > begin)]
                reads = tuple(scan.tasks(self.reader, self.state, data_files.take(chosen), fields, alone=True))
                result.append(IndexRange(partitions[int(rows[0])], begin, end - 1, reads, fields))
        return result

    def index_files(self, part: IndexRange, table: pa.Table) -> Iterator[tuple[bytes, GlobalIndexFile]]:
        """(the bytes of an index, the file) for rows of `part`: the column and the row ids."""
        field = part.fields[0]
        row_ids = np.asarray(table.column(1))
        inside = (row_ids >= part.first) & (row_ids <= part.last)
        values, row_ids = table.column(0).combine_chunks().filter(pa.array(inside)), row_ids[inside] - part.first
        nulls = np.asarray(values.is_null())
        order = np.argsort(row_ids[~nulls], kind="stable")
        key_values, own_ids = values.drop_null().take(pa.array(order)), row_ids[~nulls][order]
        order = np.asarray(pc.sort_indices(key_values))
        key_values, own_ids, null_ids = key_values.take(pa.array(order)), own_ids[order], np.sort(row_ids[nulls])
        for start in range(0, max(len(key_values), 1), _ROWS_PER_FILE):
            some, ids = key_values.slice(start, _ROWS_PER_FILE), own_ids[start : start + _ROWS_PER_FILE]
            begins = (
                np.flatnonzero(np.append(True, np.asarray(pc.not_equal(some[1:], some[:-1])))) if len(some) else ids[:0]
            )
            keys = global_index.stored(some.take(pa.array(begins)), field.type)
            counts = np.diff(np.append(begins, len(some)))
            of_nulls = null_ids if start == 0 else null_ids[:0]
            data = btree_index.emit(keys, counts, ids, of_nulls)
            ends = btree_index.Ends(keys[0].as_py(), keys[-1].as_py()) if len(keys) else btree_index.Ends(None, None)
            path = f"{metadata.INDEX_FOLDER}/{manifest.BTREE_INDEX}-global-index-{uuid.uuid4()}.index"
            yield (
                data,
                GlobalIndexFile(
                    path=path,
                    kind=manifest.BTREE_INDEX,
                    partition=part.partition,
                    field_id=field.id,
                    first=part.first,
                    last=part.last,
                    ends=ends.described(len(of_nulls) > 0),
                    row_count=len(ids) + len(of_nulls),
                    size_bytes=len(data),
                ),
            )

    def global_indexes(self, column: str, kind: str, scope: Expression) -> list[str]:
        """The files of a column's indexes in these partitions."""
        entries = manifest.in_scope(manifest.read_index(self.reader, self.state.document), self.state.schema, scope)
        of = entries["_GLOBAL_INDEX"].combine_chunks()
        extra = pc.fill_null(pc.list_value_length(pc.struct_field(of, "_EXTRA_FIELD_IDS")), 0)
        is_own = pc.and_(
            pc.equal(pc.struct_field(of, "_INDEX_FIELD_ID"), self.state.schema.field(column).id), pc.equal(extra, 0)
        )
        return manifest.index_paths(
            entries.filter(
                pc.fill_null(pc.and_(is_own, pc.equal(entries["_INDEX_TYPE"].combine_chunks(), kind)), False)
            )
        )

    def require_some(self, indexes: Mapping[str, bytes | str]) -> None:
        """Raise `Conflict` if none of the indexed files is live."""
        if not len(self._live(indexes)):
            raise Conflict(f"{self.reader.root}: others have replaced all of the files that were indexed; run it again")

    def renewed(self, indexes: Mapping[str, bytes | str]) -> tuple[pa.Table, pa.Table, tuple[str, ...]]:
        """(the live entries of the indexed files, the same with the new indexes, the files of indexes that none
        has)."""
        entries = self._live(indexes)
        paths = scan.paths(entries, self.state.schema).to_pylist()
        entry_indexes = [indexes[path] for path in paths]
        extra = [
            [
                *(name for name in names or () if not name.endswith(ENDING)),
                *([_name(index)] if isinstance(index, str) else []),
            ]
            for names, index in zip(entries["_EXTRA_FILES"].to_pylist(), entry_indexes, strict=True)
        ]
        columns = {
            "_EXTRA_FILES": extra,
            "_EMBEDDED_FILE_INDEX": [i if isinstance(i, bytes) else None for i in entry_indexes],
        }
        renewed = entries
        for name, values in columns.items():
            field = manifest.ENTRY.field(name)
            renewed = renewed.set_column(renewed.column_names.index(name), field, pa.array(values, field.type))
        gone = {*indexes} - {*paths}
        return entries, renewed, tuple(index for path in gone if isinstance(index := indexes[path], str))

    def require_btree(self, column: str, kind: str) -> Field:
        """The column that is to be indexed. Raises `InvalidInput` and `UnsupportedFeature`."""
        if kind != manifest.BTREE_INDEX:
            raise UnsupportedFeature(
                f"{self.reader.root}: global indexes of type {kind!r} are not written; supported: 'btree'"
            )
        if not options.read(self.state.schema).data_evolution_enabled:
            raise UnsupportedFeature(
                f"{self.reader.root}: a global index needs the options row-tracking.enabled and "
                "data-evolution.enabled, set when the table is made"
            )
        field = self.state.schema.field(column)
        if not global_index.is_known(field.type):
            raise UnsupportedFeature(
                f"{self.reader.root}: a global index of column {column!r} ({field.type}): "
                "supported: whole numbers, dates and texts"
            )
        return field

    def require_unindexed(self, added: Sequence[WrittenFile]) -> None:
        """Raise `InvalidInput` if new files have values of existing rows in columns with a global index: it would have
        the old ones, by which other engines look rows up."""
        files_of_rows = [file for file in added if tracking.changes_rows(file)]
        if not files_of_rows or options.read(self.state.schema).global_index_column_update_action == "ignore":
            return
        is_whole = any(not file.columns or tracking.ROW_ID_NAME in file.columns for file in files_of_rows)
        changed = {*self.state.schema.names} if is_whole else {name for file in files_of_rows for name in file.columns}
        entries = manifest.read_index(self.reader, self.state.document)
        manifest.require_known_indexes(entries, self.reader.root)
        of = entries["_GLOBAL_INDEX"].combine_chunks().drop_null()
        ids = {*pc.struct_field(of, "_INDEX_FIELD_ID").to_pylist()}
        ids |= {*pc.list_flatten(pc.struct_field(of, "_EXTRA_FIELD_IDS")).to_pylist()}
        names = [f.name for f in self.state.schema.fields if f.id in ids and f.name in changed]
        if names:
            raise InvalidInput(
                f"{self.reader.root}: new values of column {names[0]!r}, which has a global index: "
                f"drop_global_index({names[0]!r}) first, and create it again"
            )

    def _live(self, indexes: Mapping[str, bytes | str]) -> pa.Table:
        entries = manifest.live_entries(self.reader, self.state.document, self.state.schema)
        return entries.filter(
            pc.is_in(scan.paths(entries, self.state.schema), value_set=pa.array([*indexes], pa.string()))
        )


def entries_of(files: Sequence[GlobalIndexFile], schema: Schema) -> pa.Table:
    """Entries of an index manifest for new global indexes."""
    partitions = manifest.partition_rows([file.partition for file in files], schema).to_pylist()
    of_rows = [
        {"_ROW_RANGE_START": f.first, "_ROW_RANGE_END": f.last, "_INDEX_FIELD_ID": f.field_id, "_INDEX_META": f.ends}
        for f in files
    ]
    parts = [
        manifest.index_entries(
            file.kind, [partition], [0], [(file.path, file.size_bytes, file.row_count, None)], [rows]
        )
        for file, partition, rows in zip(files, partitions, of_rows, strict=True)
    ]
    return pa.concat_tables(parts) if parts else manifest.EMPTY_INDEX


# --- private ----------------------------------------------------------------------------------------------------------


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _breaks(first: np.ndarray, counts: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Where a run of adjacent row ids in one partition ends."""
    return 1 + np.flatnonzero((codes[1:] != codes[:-1]) | (first[1:] != (first + counts)[:-1]))


def _gaps(low: int, high: int, starts: np.ndarray, stops: np.ndarray) -> Iterator[tuple[int, int]]:
    """The parts of a range that are in none of these ranges, which ascend."""
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        if start >= high:
            break
        if low < min(start, high):
            yield low, min(start, high)
        low = max(low, stop)
    if low < high:
        yield low, high
