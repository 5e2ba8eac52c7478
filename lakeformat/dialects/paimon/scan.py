"""state + predicate -> ReadTasks: live files, pruned by partition and by bounds, packed into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import bitmap, layouts, murmur, splits
from lakeformat.codec.arrow import rows_where, to_arrow
from lakeformat.codec.paimon import binary_row, file_index, vector_file
from lakeformat.dialects.paimon import global_index, layout, manifest, merging, metadata, options, tracking
from lakeformat.dialects.paimon.layout import POSTPONED_BUCKET, directory
from lakeformat.dialects.paimon.manifest import EntryKind
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.expression import pruning
from lakeformat.model import predicate as conditions
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import OperationKind
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field, Kind, Scalar, Schema, Type, find_field, is_plain, with_columns
from lakeformat.model.schema import project as project_columns
from lakeformat.model.work import (
    FILE,
    LAST_UPDATED,
    POSITION,
    ROW_ID,
    SEQUENCE,
    VALUE_KIND,
    BlobTask,
    Content,
    DeleteFile,
    DeleteTask,
    Delta,
    Encoding,
    FilesTask,
    MergeEngine,
    MergeSpec,
    MergeTask,
    ReadTask,
    RowKind,
    Target,
    WriteTask,
)
from lakeformat.storage.store import Reader

_FLOATS = (Scalar(Kind.FLOAT), Scalar(Kind.DOUBLE))
_TIMES = frozenset({Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ})
_LISTED = 10_000  # Up to so many keys listed by a condition, their buckets are computed.


@dataclass(frozen=True)
class Files:
    """Live files of one snapshot of a table of this schema: rows of `manifest.ENTRY`. Files with only some columns of
    another file's rows are in `beside`."""

    entries: pa.Table
    schema: Schema
    beside: tracking.Beside = tracking.NOTHING_BESIDE

    def __len__(self) -> int:
        return len(self.entries)

    def filter(self, keep: pa.Array) -> Files:
        entries = rows_where(self.entries, keep)
        return self if entries is self.entries else replace(self, entries=entries)

    def take(self, rows: np.ndarray) -> Files:
        return replace(self, entries=self.entries.take(pa.array(rows)))

    def each(self) -> Files:
        """These files, followed by those in `beside`."""
        near = self.beside.entries.filter(pa.array(self.beside.owners(self.entries) >= 0))
        return Files(pa.concat_tables([self.entries, near]), self.schema) if len(near) else self

    @cached_property
    def paths(self) -> pa.Array:
        """The path of each; computed on demand, since for very many files a plan uses only some."""
        return paths(self.entries, self.schema)

    @property
    def row_count(self) -> int:
        return pc.sum(self.entries["_ROW_COUNT"]).as_py() or 0


@dataclass(frozen=True, slots=True)
class Sections:
    """Files of a table with a primary key, in sections without common keys (IntervalPartition).

    `files` are ordered by partition, bucket and section, and within one older before newer; `starts` has the index at
    which each section begins. A section `is_whole` if its rows are the table's as they are: one file above level 0
    without retractions; or several, if deletion vectors delete the older rows of a key.
    """

    files: Files
    starts: np.ndarray
    is_whole: np.ndarray

    @classmethod
    def build(cls, data_files: Files, schema: Schema) -> Sections:
        marked = options.read(schema).has_vectors
        entries = data_files.entries
        count = len(entries)
        if count == 0:
            return cls(data_files, np.zeros(0, np.int64), np.zeros(0, bool))
        levels, buckets = np.asarray(entries["_LEVEL"]), manifest.bucket_codes(entries)
        low, high = key_ranks(entries, schema)
        step = 2 * count + 1  # Above all ranks.
        low, high = low + buckets * step, high + buckets * step
        order = np.argsort(low, kind="stable")
        reach = np.maximum.accumulate(high[order])
        section = np.zeros(count, np.int64)
        section[order[1:]] = np.cumsum(low[order[1:]] > reach[:-1])
        order = np.lexsort((np.arange(count), -levels, section))
        starts = np.concatenate(([0], np.flatnonzero(np.diff(section[order])) + 1))
        retracts = np.asarray(pc.fill_null(entries["_DELETE_ROW_COUNT"], 1))
        alone = np.diff(np.append(starts, count)) == 1
        plain = np.logical_and.reduceat(((levels > 0) & (retracts == 0))[order], starts)
        rows = pa.array(order)
        sorted_files = Files(entries.take(rows), data_files.schema)
        return cls(sorted_files, starts, plain & (alone | marked))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(np.append(self.starts, len(self.files)))

    def filter(self, keep: np.ndarray) -> Sections:
        sizes = self.sizes
        kept = self.files.filter(pa.array(np.repeat(keep, sizes)))
        sizes = sizes[keep]
        return Sections(kept, np.cumsum(sizes) - sizes, self.is_whole[keep])


def scan(
    reader: Reader,
    base: State,
    columns: Sequence[str] | None = None,
    predicate: Expression = ALWAYS,
    by_bucket: bool = False,
) -> Sequence[ReadTask]:
    """The tasks that together read the rows for which `predicate` (bound to the schema) is true. With `by_bucket`, each
    task of a table with a primary key has files of one bucket, and names its partition and bucket."""
    residual = _residual(base.schema, predicate)
    fields = with_columns(conditions.columns_of(residual), project(base, columns), base.schema.fields)
    is_keyed = bool(base.schema.primary_key)
    data_files = files(reader, base, predicate, to_plan=not is_keyed)
    if not is_keyed:
        return tasks(reader, base, data_files, fields, residual)
    sections = Sections.build(data_files.filter(_visible(data_files.entries, base)), base.schema)
    whole, sections = _without_needless(reader, base, sections, predicate)
    if not by_bucket:
        return [*tasks(reader, base, whole, fields, residual), *merges(reader, base, sections, fields, residual)]
    partitions = partitions_of(base, sections.files.entries.take(pa.array(sections.starts)))
    merged = [
        replace(task, partition=partition)
        for task, partition in zip(merges(reader, base, sections, fields, residual), partitions, strict=True)
    ]
    codes = manifest.bucket_codes(whole.entries) if len(whole) else np.zeros(0, np.int64)
    apart = [whole.filter(pa.array(codes == code)) for code in np.unique(codes)]
    return [
        *merged,
        *(
            replace(task, partition=partitions_of(base, part.entries)[0], bucket=part.entries["_BUCKET"][0].as_py())
            for part in apart
            for task in tasks(reader, base, part, fields, residual)
        ),
    ]


def files(reader: Reader, base: State, predicate: Expression = ALWAYS, to_plan: bool = False) -> Files:
    """The live files that may have a row for which `predicate` is true; `to_plan`: with only the columns that tasks
    need, see `manifest.PLANNED`."""
    entries, beside = _entries(reader, base, predicate, to_plan)
    return Files(entries, base.schema, beside)


def manifests(reader: Reader, base: State, predicate: Expression = ALWAYS) -> pa.Table:
    """The manifests that `files` reads, as in the manifest lists."""
    scope, _ = conditions.split(predicate, base.schema.partitioning.names)
    return manifest.prune_metas(manifest.read_metas(reader, base.document), base.schema, scope)


@dataclass(frozen=True, slots=True)
class Partitions(Part[State]):
    """Partitions, as conditions."""

    def scope_of(self, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        return manifest.scope_of(self.state.schema, partitions)

    def rows_in(self, partitions: Iterable[tuple[Any, ...]]) -> Expression:
        return manifest.rows_in(self.state.schema, partitions)

    def chooses_files(self, scope: Expression) -> bool:
        """Whether every live file is wholly inside or outside `scope`: always, since partitions are columns and do not
        change."""
        return True


def count(reader: Reader, base: State, predicate: Expression = ALWAYS) -> int | None:
    """The number of rows for which `predicate` is true, if metadata alone has it exactly; else None."""
    asks_of_rows = _residual(base.schema, predicate) != ALWAYS
    live = files(reader, base, predicate, to_plan=not (base.schema.primary_key or asks_of_rows))
    live = live.filter(_visible(live.entries, base))
    if base.schema.primary_key and not Sections.build(live, base.schema).is_whole.all():
        return None
    if asks_of_rows and not Pruning(reader, base).matching_wholly(live, predicate).all():
        return None
    return live.row_count - int(deleted_rows(reader, base, live).sum())


@dataclass(frozen=True, slots=True)
class Pruning(Part[State]):
    """What metadata alone says about the rows in manifests and files."""

    def manifests(self, predicate: Expression = ALWAYS) -> pa.Table:
        metas = manifests(self.reader, self.state, predicate)
        paths = [f"{metadata.MANIFEST_FOLDER}/{name}" for name in metas["_FILE_NAME"].to_pylist()]
        count = pc.add(metas["_NUM_ADDED_FILES"], metas["_NUM_DELETED_FILES"])
        return pa.table({"path": pa.array(paths, pa.string()), "size_bytes": metas["_FILE_SIZE"], "file_count": count})

    def manifest_bounds(self) -> Iterator[tuple[np.ndarray, Mapping[str, pruning.Bounds]]]:
        metas = manifests(self.reader, self.state)
        if len(metas) and self.state.schema.partitioning:
            yield np.arange(len(metas)), manifest.partition_bounds(metas, self.state.schema)

    def bounds(self, files: Any, names: Iterable[str]) -> Iterator[tuple[np.ndarray, Mapping[str, pruning.Bounds]]]:
        """(indices of files, the bounds of the columns `names` in their manifest entries)."""
        newer = files.beside.replaces(self.reader, self.state, files.entries, columns := frozenset(names))
        if not newer.any():
            return _bounds(self.reader, self.state, files.entries, columns)
        kept = np.flatnonzero(~newer)
        known = _bounds(self.reader, self.state, files.entries.take(pa.array(kept)), columns)
        return chain(((kept[rows], ranges) for rows, ranges in known), [(np.flatnonzero(newer), {})])

    def matching_wholly(self, files: Any, predicate: Expression) -> np.ndarray:
        """For each file, whether bounds prove that every row satisfies `predicate`."""
        known = _must_match(self.reader, self.state, files.entries, predicate)
        return known & ~files.beside.replaces(self.reader, self.state, files.entries, conditions.columns_of(predicate))

    def has_whole_files(self) -> bool:
        has_index = bool((self.state.document or {}).get("indexManifest"))
        has_columns = options.read(self.state.schema).data_evolution_enabled
        return not (has_index or has_columns or self.state.schema.primary_key)


def tasks(
    reader: Reader,
    base: State,
    data_files: Files,
    fields: tuple[Field, ...],
    predicate: Expression = ALWAYS,
    alone: bool = False,
) -> Sequence[FilesTask]:
    """Files -> tasks of about `source.split.target-size`, task lazily. The files of a task have the same format and
    columns, and all or none of them have deleted rows. With `alone`, one task per file, in order, with its partition
    and bucket."""
    table_options = options.read(base.schema)
    target = 0 if alone else table_options.source_split_target_size
    deletes = delete_files(reader, base, data_files)
    places = (
        list(zip(partitions_of(base, data_files.entries), data_files.entries["_BUCKET"].to_pylist(), strict=True))
        if alone
        else []
    )
    beside = _tasks_beside(reader, base, data_files, fields)
    lineage = _lineage(data_files) if {ROW_ID.id, LAST_UPDATED.id} & {f.id for f in fields} else []
    row_counts, sizes = (np.asarray(data_files.entries[name]) for name in ("_ROW_COUNT", "_FILE_SIZE"))
    folder_of, folders = _folders(data_files.entries, base.schema)
    folders_of_all = pa.array(folders, pa.string())
    names, elsewhere = data_files.entries["_FILE_NAME"], data_files.entries["_EXTERNAL_PATH"]
    kinds, cuts = [], []
    for schema_id, format, columns, rows in _kinds(data_files, deletes):
        file_fields = tracking.file_fields(metadata.schema_at(reader, base, schema_id), columns)
        external = _rows(elsewhere, rows) if elsewhere.null_count < len(elsewhere) else None
        own_paths = _Paths(_rows(names, rows), _values_of_rows(folder_of, rows), folders_of_all, external)
        kinds.append(
            (format, file_fields, rows, own_paths, _values_of_rows(row_counts, rows), _values_of_rows(sizes, rows))
        )
        cuts.append(splits.cuts(sizes[rows], target, table_options.source_split_open_file_cost))
    firsts = np.cumsum([0, *(len(cut) - 1 for cut in cuts)])
    if alone:
        order = np.argsort(np.concatenate([np.zeros(0, np.int64), *(kind[2] for kind in kinds)]), kind="stable")
    asks_of_files = bool(alone or deletes or lineage or beside)

    def task(number: int) -> FilesTask:
        number = int(order[number]) if alone else number
        at = int(firsts.searchsorted(number, "right")) - 1 if len(kinds) > 1 else 0
        format, file_fields, rows, own_paths, own_counts, own_sizes = kinds[at]
        start, end = cuts[at][number - firsts[at] :][:2].tolist()
        file_rows: list[int] = rows[start:end].tolist() if asks_of_files else []
        partition, bucket = places[file_rows[0]] if alone else ((), None)
        return FilesTask(
            paths=own_paths.between(start, end),
            row_counts=tuple(own_counts[start:end].tolist()),
            sizes_bytes=tuple(own_sizes[start:end].tolist()),
            file_format=format,
            fields=fields,
            file_fields=file_fields,
            predicate=predicate,
            deletes=tuple(deletes[row] for row in file_rows) if deletes and file_rows[0] in deletes else (),
            lineage=tuple(lineage[row] for row in file_rows) if lineage else (),
            beside=tuple(beside.get(row, ()) for row in file_rows) if beside else (),
            partition=partition,
            bucket=bucket,
        )

    return splits.OnDemand(int(firsts[-1]), task)


def delete_files(reader: Reader, base: State, data_files: Files) -> dict[int, tuple[DeleteFile, ...]]:
    """By the row of a file in `data_files`, its deletion vector; only files with deleted rows."""
    index = manifest.read_index(reader, base.document)
    indexes, vectors = _vectors(data_files.entries, index)
    if not len(indexes):
        return {}
    beside = options.read(base.schema).index_file_in_data_file_dir
    names, elsewhere = index["_FILE_NAME"].to_pylist(), index["_EXTERNAL_PATH"].to_pylist()
    result: dict[int, tuple[DeleteFile, ...]] = {}
    for row, path, entry, offset, length, cardinality in zip(
        indexes.tolist(),
        data_files.paths.take(pa.array(indexes)).to_pylist(),
        *(vectors[name].to_pylist() for name in ("entry", "offset", "length", "cardinality")),
        strict=True,
    ):
        folder = path.rsplit("/", 1)[0] if beside else metadata.INDEX_FOLDER
        # Java's length of 32-bit vectors excludes the eight bytes around them, that of 64-bit vectors includes them.
        result[row] = (
            DeleteFile(
                elsewhere[entry] or f"{folder}/{names[entry]}",
                Content.DELETION_VECTORS,
                offset,
                length + bitmap.FRAME_BYTES,
                row_count=cardinality,
            ),
        )
    return result


def deleted_rows(reader: Reader, base: State, data_files: Files) -> np.ndarray:
    """The number of rows of each file that its deletion vector deletes. Vectors without a recorded cardinality are
    read."""
    indexes, vectors = _vectors(data_files.entries, manifest.read_index(reader, base.document))
    result = np.zeros(len(data_files), np.int64)
    result[indexes] = np.asarray(pc.fill_null(vectors["cardinality"], 0))
    silent = indexes[np.asarray(vectors["cardinality"].is_null())]
    if len(silent):
        vectors_of_file = delete_files(reader, base, data_files.take(silent))
        for row, (vector,) in zip(silent.tolist(), vectors_of_file.values(), strict=True):
            data = reader.read(vector.path)
            frame = vector_file.take(
                data, vector.offset or 0, (vector.size_bytes or 0) - bitmap.FRAME_BYTES, vector.path
            )
            result[row] = len(bitmap.decode(frame, vector.path))
    return result


def with_places(reader: Reader, base: State, data_files: Files, fields: tuple[Field, ...]) -> list[FilesTask]:
    """Tasks that read the rows of key-value files unmerged, each with its position; `fields` as in `merges`."""
    alone = options.read(base.schema).sequence_snapshot_ordering
    return _numbered(
        base, data_files, _of_key_values(tasks(reader, base, data_files, (*fields, FILE, POSITION), alone=alone))
    )


def standing(
    reader: Reader, base: State, data_files: Files, fields: tuple[Field, ...], predicate: Expression = ALWAYS
) -> list[FilesTask]:
    """For each of these key-value files, in order, the task that reads its rows unmerged; `fields` as in `merges`."""
    return _numbered(base, data_files, _of_key_values(tasks(reader, base, data_files, fields, predicate, alone=True)))


def _of_key_values(read_tasks: Sequence[FilesTask]) -> list[FilesTask]:
    """The tasks of files that have `SEQUENCE` and `VALUE_KIND` beside their columns."""
    return [replace(task, file_fields=(SEQUENCE, VALUE_KIND, *(task.file_fields or ()))) for task in read_tasks]


def _numbered(base: State, data_files: Files, read_tasks: list[FilesTask]) -> list[FilesTask]:
    """The tasks, one for each of `data_files`, with the `SEQUENCE` of `_snapshot_ids`."""
    if not options.read(base.schema).sequence_snapshot_ordering:
        return read_tasks
    return [
        _with_number(task, id) for task, id in zip(read_tasks, _snapshot_ids(base, data_files.entries), strict=True)
    ]


def _with_number(task: FilesTask, number: int | None) -> FilesTask:
    if number is None:
        return task
    remaining = tuple(field for field in task.file_fields or () if field != SEQUENCE)
    return replace(task, file_fields=remaining, constants=((SEQUENCE.id, number),))


def _snapshot_ids(base: State, entries: pa.Table) -> list[int | None]:
    """For each file the snapshot that orders its rows, instead of its sequence numbers (`sequence.snapshot-ordering`):
    that of the commit that added it, recorded in its entry. None for compacted files, which have the snapshot of each
    row."""
    if not options.read(base.schema).sequence_snapshot_ordering:
        return [None] * len(entries)
    is_new = pc.fill_null(pc.equal(entries["_FILE_SOURCE"], int(manifest.FileSource.APPEND)), False)
    stamped: list[int | None] = pc.if_else(is_new, entries["_MIN_SEQUENCE_NUMBER"], None).to_pylist()
    return stamped


def delete_layout(reader: Reader, base: State, data_files: Files, verb: OperationKind) -> DeleteTask | None:
    """How deleted rows of the data files `data_files` become deletion vectors; None for copy-on-write."""
    schema = base.schema
    if schema.primary_key or not options.read(schema).has_vectors:
        return None
    metadata.require_writable(schema, reader.root)
    return marking(reader, base, data_files)


def marking(reader: Reader, base: State, data_files: Files) -> DeleteTask:
    """How deleted rows of the data files `data_files` become deletion vectors."""
    schema = base.schema
    codes, values = manifest.partitions(data_files.entries, schema)
    partitions, before = manifest.partition_values(values, schema), delete_files(reader, base, data_files)
    rows = zip(data_files.paths.to_pylist(), codes.tolist(), data_files.entries["_BUCKET"].to_pylist(), strict=True)
    targets = [
        Target(path, partitions[code], None, metadata.INDEX_FOLDER, before.get(i, ()), before.get(i, ()), bucket)
        for i, (path, code, bucket) in enumerate(rows)
    ]
    return DeleteTask(
        tuple(targets),
        Content.DELETION_VECTORS,
        encoding=Encoding("index"),
        target_size_bytes=options.read(schema).deletion_vector_index_file_target_size,
        wide=options.read(schema).deletion_vectors_bitmap64,
    )


def merges(
    reader: Reader, base: State, sections: Sections, fields: tuple[Field, ...], predicate: Expression = ALWAYS
) -> list[MergeTask]:
    """For each section, the task that merges its files. `fields` may include `SEQUENCE` and `VALUE_KIND`.

    The parts of `predicate` on key columns alone are pushed down to the task's parts, since all rows of a key have the
    same values.
    """
    spec = merging.merging(base.schema, reader.root)
    of_key, _ = conditions.split(predicate, spec.key)
    deletes = delete_files(reader, base, sections.files)
    system = (SEQUENCE, VALUE_KIND)
    merged_fields = (*system, *_merged_fields(spec, tuple(f for f in fields if f not in system), base.schema))
    entries = sections.files.entries
    names = sections.files.paths.to_pylist()
    row_counts, sizes = entries["_ROW_COUNT"].to_pylist(), entries["_FILE_SIZE"].to_pylist()
    levels = entries["_LEVEL"].to_pylist()
    settles = options.read(base.schema).looks_up and not spec.replaces
    schema_ids, formats = entries["_SCHEMA_ID"].to_pylist(), file_formats(entries).to_pylist()
    snapshot_ids = _snapshot_ids(base, entries)
    least, greatest = (np.asarray(entries[f"_{end}_SEQUENCE_NUMBER"]) for end in ("MIN", "MAX"))
    never_retracts = np.asarray(pc.fill_null(pc.equal(entries["_DELETE_ROW_COUNT"], 0), False))
    stands_by_place = (
        spec.replaces and SEQUENCE not in fields and not options.read(base.schema).sequence_snapshot_ordering
    )
    result = []
    for start, size in zip(sections.starts.tolist(), sections.sizes.tolist(), strict=True):
        parts, settled, span = [], 0, slice(start, start + size)
        # Rows that stand later are newer, so that their numbers need not be read.
        is_ordered = stands_by_place and in_order(np.array(levels[span]), least[span], greatest[span])
        unread = {SEQUENCE} if is_ordered else set()
        if spec.replaces and VALUE_KIND not in fields and never_retracts[span].all():
            unread.add(VALUE_KIND)
        for (schema_id, format, is_settled, snapshot_id), places in groupby(
            range(start, start + size),
            lambda i: (schema_ids[i], formats[i], settles and levels[i] > 0, snapshot_ids[i]),
        ):
            run = list(places)
            settled += is_settled
            _require_format(format)
            part = FilesTask(
                paths=tuple(names[i] for i in run),
                row_counts=tuple(row_counts[i] for i in run),
                sizes_bytes=tuple(sizes[i] for i in run),
                file_format=format,
                fields=tuple(f for f in merged_fields if f not in unread),
                file_fields=(*system, *metadata.schema_at(reader, base, schema_id).fields),
                predicate=of_key,
                deletes=tuple(deletes.get(i, ()) for i in run) if deletes.keys() & set(run) else (),
            )
            parts.append(_with_number(part, snapshot_id))
        result.append(
            MergeTask(tuple(parts), spec, fields, predicate, settled, bucket=entries["_BUCKET"][start].as_py())
        )
    return result


def in_order(levels: np.ndarray, least: np.ndarray, greatest: np.ndarray) -> bool:
    """Whether the sequence numbers of each file of a section, by the `least` and the `greatest`, are all above those of
    the files before it that may have the same keys: of levels above 0, files of the same level have none in common."""
    begins = np.append(True, (levels[1:] != levels[:-1]) | (levels[1:] == 0))
    first = np.maximum.accumulate(np.where(begins, np.arange(len(levels)), 0))
    before = np.maximum.accumulate(greatest)[first - 1]
    return bool(((first == 0) | (least > before)).all())


def key_ranks(entries: pa.Table, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and largest key of each file, as numbers in key order; equal keys have equal numbers."""
    kinds = [schema.field(name).type for name in metadata.key_of(schema)]
    bounds = pa.concat_arrays([*entries["_MIN_KEY"].chunks, *entries["_MAX_KEY"].chunks])
    columns = [layouts.comparable(column) for column in binary_row.decode(bounds, kinds)]
    names = [str(i) for i in range(len(columns))]
    order = np.asarray(pc.sort_indices(pa.table(columns, names), sort_keys=[(name, "ascending") for name in names]))
    new = np.zeros(len(order), bool)
    for column in columns:
        ordered = column.take(pa.array(order))
        new[1:] |= np.asarray(pc.not_equal(ordered[1:], ordered[:-1]))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(new)
    return ranks[: len(entries)], ranks[len(entries) :]


def paths(entries: pa.Table, schema: Schema) -> pa.Array:
    """The path of each file, relative to the table's location; an external one is absolute."""
    if len(entries) == 0:
        return pa.array([], pa.string())
    codes, folders = _folders(entries, schema)
    inside = pc.binary_join_element_wise(
        pa.array(folders, pa.string()).take(pa.array(codes)), entries["_FILE_NAME"].combine_chunks(), "/"
    )
    elsewhere = entries["_EXTERNAL_PATH"].combine_chunks()
    return inside if elsewhere.null_count == len(elsewhere) else pc.coalesce(elsewhere, inside)


class _Paths:
    """The paths of files, made some hundred at a time: of very many files a plan uses only some."""

    _TOGETHER = 1 << 9

    def __init__(self, names: Any, folder_of: np.ndarray, folders: pa.Array, elsewhere: Any) -> None:
        self._names, self._folder_of, self._folders, self._elsewhere = names, folder_of, folders, elsewhere
        self._made: tuple[int, tuple[str, ...]] = 0, ()  # The place of the first; threads replace both together.

    def between(self, start: int, end: int) -> tuple[str, ...]:
        first, paths = self._made
        if not first <= start <= end <= first + len(paths):
            count = max(end - start, self._TOGETHER)
            folders = self._folders.take(pa.array(self._folder_of[start : start + count]))
            inside = pc.binary_join_element_wise(folders, self._names.slice(start, count), "/")
            if self._elsewhere is not None:
                inside = pc.coalesce(self._elsewhere.slice(start, count), inside)
            first, paths = self._made = start, tuple(inside.to_pylist())
        return paths[start - first : end - first]


def _folders(entries: pa.Table, schema: Schema) -> tuple[np.ndarray, list[str]]:
    """(the index of each file's bucket folder, these folders)."""
    if len(entries) == 0:
        return np.zeros(0, np.int32), []
    codes, values = manifest.partitions(entries, schema)
    buckets = np.asarray(entries["_BUCKET"])
    low = int(buckets.min())
    spread = int(buckets.max()) - low + 1
    pairs = pa.array(codes.astype(np.int64) * spread + (buckets - low)).dictionary_encode()
    folder_of = directory(schema)
    rows = manifest.partition_values(values, schema)
    folders = [folder_of(rows[pair // spread], low + pair % spread) for pair in pairs.dictionary.to_pylist()]
    return np.asarray(pairs.indices), folders


def file_formats(entries: pa.Table) -> pa.Array:
    """The extension of each file's name; null if it has none."""
    names = entries["_FILE_NAME"].combine_chunks()
    for ending in ("parquet", "orc", "avro"):
        if pc.all(pc.ends_with(names, f".{ending}")).as_py():
            return pa.repeat(ending, len(names))
    return pc.struct_field(pc.extract_regex(names, r"\.(?P<ending>[^.]+)$"), "ending")


def project(base: State, columns: Sequence[str] | None) -> tuple[Field, ...]:
    """The requested columns, in that order; `a.b` keeps only `b` of the row `a`. Raises `NotFound`."""
    fields = base.schema.fields
    if columns is not None and options.read(base.schema).row_tracking_enabled:
        asked = {name.casefold() for name in columns}
        fields += tuple(f for f in tracking.FIELDS if f.name.casefold() in asked)
    return project_columns(fields, columns)


def delta(
    reader: Reader,
    base: State,
    since: int,
    snapshot_id: int,
    fields: tuple[Field, ...],
    predicate: Expression = ALWAYS,
) -> list[Delta]:
    """The rows added and removed by a snapshot after `since`, its predecessor, in order; `fields` and `predicate` are
    of the schema of `base`, a later state.

    They are read from the changelog if the table has one; otherwise from the added files, and for an overwrite also
    from the removed ones. The changes of an overwrite of a table with a primary key are computed from its rows before
    and after, those of deletion vectors from all rows of the file before and after, those of an expired snapshot from
    its changelog. Raises `NotFound`.
    """
    (state, is_there), schema = metadata.changed(reader, base, snapshot_id), base.schema
    document = state.document or {}
    restored = metadata.RESTORED_FROM in (document.get("properties") or {})
    if since != snapshot_id - 1 and not restored:  # A rollback leaves a gap.
        raise NotFound(
            f"{reader.root}: snapshot {snapshot_id - 1} does not exist, so the changes of {snapshot_id} are unknown"
        )
    metadata.require_readable(base, reader.root)
    keyed = bool(schema.primary_key)
    scope, residual = conditions.split(predicate, schema.partitioning.names)
    fields = with_columns(conditions.columns_of(residual), fields, schema.fields)
    if document.get("changelogManifestList"):
        entries = _listed(reader, base, document, "changelogManifestList", scope)
        return [Delta(None, tuple(_raw(reader, base, entries, fields, residual)))]
    if document["commitKind"] in {"COMPACT", "ANALYZE"}:
        return []
    if not is_there and (restored or document["commitKind"] != "APPEND"):
        raise NotFound(
            f"{reader.root}: snapshot {snapshot_id} has expired, and its rows were not written to a changelog (an "
            "overwrite): read the table from a later one on"
        )
    entries = _listed(reader, base, document, "deltaManifestList", scope)
    kinds = entries["_KIND"]
    if restored or (keyed and document["commitKind"] == "OVERWRITE"):
        values = manifest.partitions(entries, schema)[1]
        touched = ALWAYS if restored else manifest.scope_of(schema, manifest.partition_values(values, schema))
        return _delta_of_all(
            reader, _before(reader, base, document, since), state, fields, conditions.and_(predicate, touched)
        )
    if keyed:
        if options.read(schema).changelog_producer in {"lookup", "full-compaction"}:
            return []  # A later compaction writes the changelog.
        return [
            Delta(None, tuple(_raw(reader, base, entries.filter(pc.equal(kinds, EntryKind.ADD)), fields, residual)))
        ]
    if options.read(schema).data_evolution_enabled:
        whole = entries if scope == ALWAYS else _listed(reader, base, document, "deltaManifestList", ALWAYS)
        if not needs_before(document) and tracking.are_new(whole, document.get("nextRowId")):
            new = Files(entries, schema)
            return [Delta(RowKind.INSERT, tuple(tasks(reader, state, new, fields, residual)))]
        if not is_there:
            raise NotFound(
                f"{reader.root}: snapshot {snapshot_id} has expired, and the columns that it gave to existing rows "
                "cannot be read without those before; read the table from a later one on"
            )
        return _delta_of_rows(reader, _before(reader, base, document, since), state, entries, fields, residual, scope)
    before, lost = state, manifest.EMPTY_ENTRIES
    if since and needs_before(document):
        before = metadata.earlier(reader, base, since)  # Its files are not kept once it has expired.
        lost = _lost_rows(reader, before, state, scope)
    result = []
    for kind, entry_kind, then in (
        (RowKind.DELETE, EntryKind.DELETE, before),
        (RowKind.INSERT, EntryKind.ADD, state),
    ):
        changed = pa.concat_tables([entries.filter(pc.equal(kinds, int(entry_kind))), lost])
        result.append(Delta(kind, tuple(tasks(reader, then, Files(changed, schema), fields, residual))))
    return result


def needs_before(document: Mapping[str, Any]) -> bool:
    """Whether `delta` of a snapshot reads the one before it, which expiry then keeps for consumers: files and deletion
    vectors that it removed are in no list of its own."""
    if document.get("changelogManifestList"):
        return False
    restored = metadata.RESTORED_FROM in (document.get("properties") or {})
    return restored or document["commitKind"] == "OVERWRITE"


def audit(reader: Reader, base: State, fields: tuple[Field, ...], predicate: Expression = ALWAYS) -> list[Delta]:
    """The rows of `base` with their current kinds; in a table with a primary key also deleted rows that files still
    have."""
    if not base.schema.primary_key:
        return [Delta(RowKind.INSERT, tuple(_whole_scan(reader, base, fields, predicate)))]
    residual = _residual(base.schema, predicate)
    fields = (*with_columns(conditions.columns_of(residual), fields, base.schema.fields), VALUE_KIND)
    sections = Sections.build(files(reader, base, predicate), base.schema)
    whole, sections = _without_needless(reader, base, sections, predicate)
    raw = _of_key_values(tasks(reader, base, whole, fields, residual))
    return [Delta(None, (*raw, *merges(reader, base, sections, fields, residual)))]


# --- private ----------------------------------------------------------------------------------------------------------


def _whole_scan(reader: Reader, state: State, fields: tuple[Field, ...], predicate: Expression) -> Sequence[ReadTask]:
    return scan(reader, replace(state, is_complete=True), [f.name for f in fields], predicate)


def _delta_of_all(
    reader: Reader, before: State | None, after: State, fields: tuple[Field, ...], predicate: Expression
) -> list[Delta]:
    """All rows before as removed, and all rows after as added."""
    states = ((RowKind.DELETE, before), (RowKind.INSERT, after))
    return [
        Delta(kind, tuple(_whole_scan(reader, state, fields, predicate))) for kind, state in states if state is not None
    ]


def _before(reader: Reader, base: State, document: Mapping[str, Any], since: int) -> State | None:
    """The table before a snapshot; if that only added files, by its own base manifest list, since the one before may
    have expired."""
    if not since:
        return None
    if needs_before(document):
        return metadata.earlier(reader, base, since)
    return replace(base, version=since, document={**document, "deltaManifestList": None})


def _delta_of_rows(
    reader: Reader,
    before: State | None,
    state: State,
    entries: pa.Table,
    fields: tuple[Field, ...],
    predicate: Expression,
    scope: Expression,
) -> list[Delta]:
    """The rows before and after the snapshot `state`, of all row ranges of its `entries` or deletion vectors."""
    if before is not None:
        entries = pa.concat_tables([entries, _lost_rows(reader, before, state, scope)])
    result = []
    for kind, then in ((RowKind.DELETE, before), (RowKind.INSERT, state)):
        if then is None:
            continue
        live = files(reader, then, scope)
        live = live.filter(pa.array(tracking.meet(live.entries, entries)))
        result.append(Delta(kind, tuple(tasks(reader, then, live, fields, predicate))))
    return result


def _lost_rows(reader: Reader, before: State, after: State, scope: Expression) -> pa.Table:
    """The entries of files that are live in both and have fewer rows in `after`."""
    if (before.document or {}).get("indexManifest") == (after.document or {}).get("indexManifest"):
        return manifest.EMPTY_ENTRIES
    old, new = (manifest.vectors(manifest.read_index(reader, view.document)) for view in (before, after))
    indices = pc.index_in(new["of"], value_set=old["of"].combine_chunks())
    same = pc.equal(new["cardinality"], old["cardinality"].take(indices))  # A vector only grows.
    changed = new["of"].filter(pc.invert(pc.fill_null(same, False))).combine_chunks()
    if len(changed) == 0:
        return manifest.EMPTY_ENTRIES
    live, known = (manifest.live_entries(reader, view.document, after.schema, scope) for view in (after, before))
    live = live.filter(pc.is_in(live["_FILE_NAME"], value_set=changed))
    return live.filter(pc.is_in(live["_FILE_NAME"], value_set=known["_FILE_NAME"].combine_chunks()))


@dataclass(frozen=True, slots=True)
class ColumnFiles(Part[State]):
    """New values of some columns, in files beside the rows' own."""

    def layouts(self, files: Any, names: Sequence[str]) -> list[WriteTask]:
        """For each of these files, how new values of the columns `names` of all its rows are written beside it."""
        return layout.of_columns(self.state, files, names, partitions_of(self.state, files.entries))


def partitions_of(base: State, entries: pa.Table) -> list[tuple[Any, ...]]:
    """The partition of each file, as `WrittenFile` has it."""
    if len(entries) == 0:
        return []
    codes, values = manifest.partitions(entries, base.schema)
    partitions = manifest.partition_values(values, base.schema)
    return [partitions[code] for code in codes]


def _listed(reader: Reader, base: State, document: Mapping[str, Any], part: str, scope: Expression) -> pa.Table:
    """The entries of a snapshot's manifest list in the partitions of `scope`, without files of rows that wait for a
    bucket."""
    metas = manifest.read_list(reader, document[part], document)
    tables = manifest.read_all(reader, manifest.prune_metas(metas, base.schema, scope))
    entries = manifest.in_scope(pa.concat_tables(tables) if tables else manifest.EMPTY_ENTRIES, base.schema, scope)
    return rows_where(entries, pc.not_equal(entries["_BUCKET"], POSTPONED_BUCKET))


def _raw(
    reader: Reader, base: State, entries: pa.Table, fields: tuple[Field, ...], predicate: Expression
) -> list[FilesTask]:
    """A task for each key-value file that reads its rows unmerged, with their kinds; those of a bucket in order."""
    order = np.lexsort((np.asarray(entries["_MIN_SEQUENCE_NUMBER"]), manifest.bucket_codes(entries)))
    entries = entries.take(pa.array(order))
    data_files = Files(entries, base.schema)
    return standing(reader, base, data_files, (*fields, VALUE_KIND), predicate)


def _residual(schema: Schema, predicate: Expression) -> Expression:
    """The condition that remains to be tested on rows once whole partitions are selected."""
    return conditions.split(predicate, schema.partitioning.names)[1]


def _merged_fields(spec: MergeSpec, fields: tuple[Field, ...], schema: Schema) -> tuple[Field, ...]:
    """The columns to read so that merged rows have `fields`."""
    if spec.aggregations:  # These may need the whole value of a column of which only a field is requested.
        fields = tuple(schema.field(f.name) for f in fields)
    needed = {*spec.key, *spec.needed(f.name for f in fields)}
    chosen = tuple(schema.field(f.name) if f.name in needed else f for f in fields)
    return (*chosen, *(f for f in schema.fields if f.name in needed - {c.name for c in chosen}))


def _without_needless(reader: Reader, base: State, sections: Sections, predicate: Expression) -> tuple[Files, Sections]:
    """(files that can be read unmerged, sections to merge), as far as a row may satisfy `predicate`.

    A file of a section to merge stays even if none of its rows matches: it may have the newest row of a key. If the
    merged row is always one of the rows merged, a section without a matching file is left out.
    """
    whole, rest = sections.filter(sections.is_whole).files, sections.filter(~sections.is_whole)
    if _residual(base.schema, predicate) == ALWAYS:
        return whole, rest
    whole = whole.filter(_may_match(reader, base, whole.entries, predicate))
    if len(rest) and merging.merging(base.schema, reader.root).engine is MergeEngine.DEDUPLICATE:
        may = np.asarray(_may_match(reader, base, rest.files.entries, predicate))
        rest = rest.filter(np.logical_or.reduceat(may, rest.starts))
    return whole, rest


def _visible(entries: pa.Table, base: State) -> pa.Array:
    """Which files have only visible rows."""
    if base.schema.primary_key and base.is_compacted:
        return pc.equal(entries["_LEVEL"], options.read(base.schema).level_count - 1)
    if base.schema.primary_key and not base.is_complete and options.read(base.schema).hides_level_0:
        return pc.greater(entries["_LEVEL"], 0)
    return pa.array(np.ones(len(entries), bool))


def _vectors(entries: pa.Table, index: pa.Table) -> tuple[np.ndarray, pa.Table]:
    """(rows of `entries` with deleted rows, ascending; the deletion vector of each, as in `manifest.vectors`)."""
    vectors = manifest.vectors(index)
    if len(vectors) == 0:
        return np.zeros(0, np.int64), vectors
    indices = pc.index_in(entries["_FILE_NAME"], value_set=vectors["of"].combine_chunks()).combine_chunks()
    at = np.flatnonzero(np.asarray(indices.is_valid()))
    return at, vectors.take(indices.drop_null())


def _entries(
    reader: Reader, base: State, predicate: Expression, to_plan: bool = False
) -> tuple[pa.Table, tracking.Beside]:
    """The live entries of files that may have a row for which `predicate` is true; in a table with a primary key, of
    those that may have a key for which it can be. Column files are in `beside`. With `to_plan` they have at least the
    columns of `manifest.PLANNED`."""
    metadata.require_readable(base, reader.root)
    schema = base.schema
    scope, rest = conditions.split(predicate, schema.partitioning.names)
    evolves = options.read(schema).data_evolution_enabled
    matching = None
    if to_plan and not evolves and rest != ALWAYS:
        matching = partial(_may_match, reader, base, predicate=predicate)
    entries = manifest.live_entries(reader, base.document, schema, scope, to_plan and not evolves, matching)
    beside = tracking.NOTHING_BESIDE
    if evolves:
        entries, beside = tracking.by_row_id(entries, reader.root)
    entries = rows_where(entries, _in_buckets(reader, base, entries, predicate))
    if schema.primary_key:
        entries = rows_where(entries, pc.not_equal(entries["_BUCKET"], POSTPONED_BUCKET))
        predicate, _ = conditions.split(predicate, {*schema.partitioning.names, *schema.primary_key})
        _, rest = conditions.split(predicate, schema.partitioning.names)
    if rest != ALWAYS and len(entries):
        if matching is None:
            newer = beside.replaces(reader, base, entries, conditions.columns_of(predicate))
            may = np.asarray(_may_match(reader, base, entries, predicate))
            if evolves:
                may = may & global_index.may_hold(reader, base, entries, predicate)
            entries = rows_where(entries, pa.array(may | newer))
        if not options.read(schema).data_evolution_enabled:
            entries = _without_indexed(reader, base, entries, rest)
    return entries, beside


def _without_indexed(reader: Reader, base: State, entries: pa.Table, predicate: Expression) -> pa.Table:
    """The entries without those of files whose indexes (`file-index.*.columns`) have none of the values that
    `predicate` lists for a column."""
    values_of = _index_lookups(base.schema, predicate)
    if not values_of:
        return entries
    extra = pc.list_value_length(entries["_EXTRA_FILES"].combine_chunks())
    has_one = pc.or_(entries["_EMBEDDED_FILE_INDEX"].is_valid().combine_chunks(), pc.greater(pc.fill_null(extra, 0), 0))
    indexed_rows = np.flatnonzero(np.asarray(has_one))
    keep = np.ones(len(entries), bool)
    indexed = entries.take(pa.array(indexed_rows))
    schema_ids = indexed["_SCHEMA_ID"].to_pylist()
    for row, schema_id, (path, data) in zip(
        indexed_rows.tolist(), schema_ids, index_files(reader, indexed, base.schema), strict=True
    ):
        if data is None:  # A missing index proves nothing.
            continue
        indexes = file_index.parse(data, f"{reader.root}/{path}")
        for field in metadata.schema_at(reader, base, schema_id).fields:
            values = values_of.get(field.id)
            if values is not None and values.type == field.type and field.name in indexes:
                keep[row] &= file_index.may_hold(indexes[field.name], values, f"{reader.root}/{path}")
    return entries.filter(pa.array(keep))


def _index_lookups(schema: Schema, predicate: Expression) -> dict[int, file_index.Lookup]:
    """The values that `predicate` lists for indexed columns, by column id."""
    given = options.read(schema)
    values_of: dict[int, file_index.Lookup] = {}
    for name in given.indexed_columns if given.file_index_read_enabled else ():
        listed = conditions.listed(predicate, [name], _LISTED) if name in schema.names else None
        if listed is not None:
            field = schema.field(name)
            values = _indexed_values([value for (value,) in listed], field.type)
            if values is not None:
                values_of[field.id] = values
    return values_of


def index_files(reader: Reader, entries: pa.Table, schema: Schema) -> list[tuple[str, bytes | None]]:
    """For each entry: (the path of its file index, its bytes). An embedded index has the path of the data file; the
    bytes are None without an index, and if its file is missing."""
    index_paths: list[str] = []
    contents: list[bytes | None] = entries["_EMBEDDED_FILE_INDEX"].to_pylist()
    for path, names, embedded in zip(
        paths(entries, schema).to_pylist(), entries["_EXTRA_FILES"].to_pylist(), contents, strict=True
    ):
        own = [name for name in names or () if name.endswith(".index")]
        beside = f"{path.rsplit('/', 1)[0]}/{own[0]}" if own else ""
        index_paths.append(beside if embedded is None else path)
    missing = [row for row, data in enumerate(contents) if data is None and index_paths[row]]
    for row, data in zip(missing, reader.read_many([index_paths[row] for row in missing]), strict=True):
        contents[row] = data
    return list(zip(index_paths, contents, strict=True))


def _indexed_values(values: Sequence[Any], type: Type) -> file_index.Lookup | None:
    """These values as file indexes store them; None for values without a known form."""
    # -0.0 is 0.0, and times may be compared in other zones and precisions.
    if not file_index.can_hash(type) or type in _FLOATS or (isinstance(type, Scalar) and type.kind in _TIMES):
        return None
    try:
        array = pa.array(values, to_arrow(type))
    except (pa.ArrowException, OverflowError):
        return None
    return None if array.null_count else file_index.Lookup(array, type)


def _in_buckets(reader: Reader, base: State, entries: pa.Table, predicate: Expression) -> pa.Array:
    """For each file, whether rows for which `predicate` is true may be in its bucket: by the hashes of the bucket keys
    that it lists."""
    schema, keep = base.schema, np.ones(len(entries), bool)
    fields = [schema.field(name) for name in metadata.bucket_key(schema)]
    if options.read(schema).bucket < 1 or any(f.type in _FLOATS for f in fields):  # -0.0 is 0.0.
        return pa.array(keep)
    keys = conditions.listed(predicate, [f.name for f in fields], _LISTED) if fields else None
    if keys is None:
        return pa.array(keep)
    try:
        columns = [pa.array([row[i] for row in keys], to_arrow(f.type)) for i, f in enumerate(fields)]
    except (pa.ArrowException, OverflowError):
        return pa.array(keep)
    types = {f.id: f.type for f in fields}
    counts, buckets = np.asarray(pc.fill_null(entries["_TOTAL_BUCKETS"], 1)), np.asarray(entries["_BUCKET"])
    schemas = np.asarray(entries["_SCHEMA_ID"])
    hashed = np.zeros(len(entries), bool)  # Hash the values with their current types.
    for id in np.unique(schemas):
        then = {f.id: f.type for f in metadata.schema_at(reader, base, int(id)).fields}
        hashed |= (schemas == id) & all(then.get(name) == type for name, type in types.items())
    for count in np.unique(counts[hashed & (counts > 1)]).tolist():
        given = options.read(schema).bucket_function_type
        try:
            possible = murmur.buckets(columns, list(types.values()), count, given) if keys else ()
        except (InvalidInput, UnsupportedFeature):  # Types whose hash is not supported can still be read.
            continue
        keep &= ~hashed | (counts != count) | np.isin(buckets, possible)
    return pa.array(keep)


def _may_match(reader: Reader, base: State, entries: pa.Table, predicate: Expression) -> pa.Array:
    keep = np.ones(len(entries), bool)
    for rows, bounds in _bounds(reader, base, entries, conditions.columns_of(predicate)):
        keep[rows] = np.asarray(pruning.may_match(predicate, bounds, len(rows)))
    return pa.array(keep)


def _must_match(reader: Reader, base: State, entries: pa.Table, predicate: Expression) -> np.ndarray:
    if len(entries) == 0:
        return np.asarray(pruning.must_match(predicate, {}, files=0))
    result = np.zeros(len(entries), bool)
    for rows, bounds in _bounds(reader, base, entries, conditions.columns_of(predicate)):
        result[rows] = np.asarray(pruning.must_match(predicate, bounds, len(rows)))
    return result


def _bounds(
    reader: Reader, base: State, entries: pa.Table, names: Sequence[str] | frozenset[str]
) -> Iterator[tuple[np.ndarray, Mapping[str, pruning.Bounds]]]:
    """(rows of `entries`, bounds of the columns `names` in them), for files that share schema and columns of stats."""
    stats = entries["_VALUE_STATS"].combine_chunks()
    low_rows, high_rows = pc.struct_field(stats, "_MIN_VALUES"), pc.struct_field(stats, "_MAX_VALUES")
    null_counts = pc.struct_field(stats, "_NULL_COUNTS")
    fields = [find_field(base.schema.fields, n) for n in names]
    for schema_id, columns, rows in stat_kinds(entries):
        schema = metadata.schema_at(reader, base, schema_id)
        named = {f.name: f for f in schema.fields}
        if not named.keys() >= set(columns or ()):
            yield rows, {}  # Includes bounds of system columns.
            continue
        present = tracking.file_fields(schema, None) if columns is None else tuple(named[n] for n in columns)
        places = {f.id: i for i, f in enumerate(present)}
        needed = sorted({places[f.id] for f in fields if f.id in places})
        low, high = (
            dict(zip(needed, binary_row.decode(_rows(column, rows), [f.type for f in present], needed), strict=True))
            for column in (low_rows, high_rows)
        )
        counts = _rows(null_counts, rows)
        complete = pc.min(pc.fill_null(pc.list_value_length(counts), 0)).as_py() >= len(present)
        row_count = _rows(entries["_ROW_COUNT"].combine_chunks(), rows)
        bounds = {}
        for field in fields:
            index = places.get(field.id)
            if index is None:
                # A column added after these files were written: all null.
                if all(f.id != field.id for f in schema.fields):
                    nothing = pa.nulls(len(rows), to_arrow(field.type)) if is_plain(field.type) else None
                    if nothing is not None:
                        bounds[field.name] = pruning.Bounds(nothing, nothing, row_count, row_count)
                continue
            if present[index].type != field.type or not is_plain(field.type):
                continue
            nulls = pc.list_element(counts, index) if complete else pa.nulls(len(rows), pa.int64())
            bounds[field.name] = pruning.Bounds(low[index], high[index], nulls, row_count)
        yield rows, {**bounds, **_key_bounds(base.schema, schema, entries, rows, names)}


def _key_bounds(
    now: Schema, then: Schema, entries: pa.Table, rows: np.ndarray, names: Sequence[str] | frozenset[str]
) -> dict[str, pruning.Bounds]:
    """The bounds of key columns in files of the schema `then`, which files of a table with a primary key always
    have."""
    key_fields = {f.id: f for name in metadata.key_of(now) if name in names for f in (now.field(name),)}
    kinds = [then.field(name) for name in metadata.key_of(then)]
    if not key_fields:
        return {}
    stats = entries["_KEY_STATS"].combine_chunks()
    low_rows, high_rows = (_rows(pc.struct_field(stats, name), rows) for name in ("_MIN_VALUES", "_MAX_VALUES"))
    arity = len(kinds).to_bytes(binary_row.ARITY_BYTES, "big")
    if not all(pc.all(pc.fill_null(pc.starts_with(column, arity), False)).as_py() for column in (low_rows, high_rows)):
        return {}
    low, high = (binary_row.decode(column, [f.type for f in kinds]) for column in (low_rows, high_rows))
    row_count = _rows(entries["_ROW_COUNT"].combine_chunks(), rows)
    nothing = pa.array(np.zeros(len(rows), np.int64))
    return {
        key_fields[f.id].name: pruning.Bounds(low[index], high[index], nothing, row_count)
        for index, f in enumerate(kinds)
        if f.id in key_fields and f.type == key_fields[f.id].type
    }


def stat_kinds(entries: pa.Table) -> Iterator[tuple[int, list[str] | None, np.ndarray]]:
    """(schema id, columns that have statistics (None: all of the schema's), rows) of files alike in both."""
    # A file with some of the columns has statistics of these only.
    lists = pc.coalesce(entries["_VALUE_STATS_COLS"].combine_chunks(), entries["_WRITE_COLS"].combine_chunks())
    return tracking.alike(entries, lists)


def _rows(column: Any, rows: np.ndarray) -> pa.Array:
    """The values at `rows`, which are ascending; all of them without a copy."""
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def _values_of_rows(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """As `_rows`."""
    return values if len(rows) == len(values) else values[rows]


def _kinds(data_files: Files, deletes: Mapping[int, Any]) -> Iterator[tuple[int, str, list[str] | None, np.ndarray]]:
    """(schema id, file format, names of the columns (None: all of the schema's), rows) for the files that can share a
    task."""
    if len(data_files) == 0:
        return
    lost = np.zeros(len(data_files), bool)
    lost[list(deletes)] = True
    formats = file_formats(data_files.entries).dictionary_encode(null_encoding="encode")
    codes, names = formats.indices.to_numpy(zero_copy_only=False), formats.dictionary.to_pylist()
    for schema_id, columns, of_columns in tracking.column_kinds(data_files.entries):
        file_codes = codes[of_columns]
        for code in sorted(tracking.distinct(file_codes).tolist(), key=lambda code: str(names[code])):
            _require_format(names[code])
            rows = of_columns[file_codes == code]
            for part in (rows[~lost[rows]], rows[lost[rows]]):
                if len(part):
                    yield schema_id, names[code], columns, part


def _lineage(data_files: Files) -> list[tuple[int | None, int]]:
    """The first row id of each file, and the snapshot that last changed its rows, unless its columns have them."""
    # `np.asarray` of a column shares its memory, and before numpy 2.5 `.at` writes to it although it is read-only.
    newest = np.asarray(data_files.entries["_MAX_SEQUENCE_NUMBER"]).copy()
    indices = data_files.beside.owners(data_files.entries)
    np.maximum.at(
        newest, indices[indices >= 0], np.asarray(data_files.beside.entries["_MAX_SEQUENCE_NUMBER"])[indices >= 0]
    )
    return list(zip(data_files.entries["_FIRST_ROW_ID"].to_pylist(), newest.tolist(), strict=True))


def _tasks_beside(
    reader: Reader, base: State, data_files: Files, fields: tuple[Field, ...]
) -> dict[int, tuple[FilesTask | BlobTask, ...]]:
    """By the row of a file in `data_files`, the tasks that read those of `fields` that newer files have, each from the
    newest."""
    indices = data_files.beside.owners(data_files.entries)
    if not len(indices):
        return {}
    indexes = np.flatnonzero(indices >= 0)
    entries = data_files.beside.entries.take(pa.array(indexes))
    names, formats = paths(entries, base.schema).to_pylist(), file_formats(entries).to_pylist()
    counts, sizes = entries["_ROW_COUNT"].to_pylist(), entries["_FILE_SIZE"].to_pylist()
    stored: dict[int, tuple[Field, ...]] = {}
    for schema_id, columns, rows in tracking.column_kinds(entries):
        known = tracking.file_fields(metadata.schema_at(reader, base, schema_id), columns)
        stored |= dict.fromkeys(rows.tolist(), known)
    result: dict[int, tuple[FilesTask | BlobTask, ...]] = {}
    taken_ids: dict[int, set[int]] = {}
    blobs: dict[tuple[int, int], list[int]] = {}
    for row, of in enumerate(indices[indexes].tolist()):  # For each file the newest first.
        if formats[row] == "blob":
            for field in stored[row]:
                blobs.setdefault((of, field.id), []).append(row)
            continue
        taken = taken_ids.setdefault(of, set())
        own = {field.id for field in stored[row]} - taken
        read_fields = tuple(field for field in fields if field.id in own)
        if not read_fields:
            continue
        _require_format(formats[row])
        taken |= {field.id for field in read_fields}
        task: FilesTask | BlobTask = FilesTask(
            (names[row],), (counts[row],), (sizes[row],), formats[row], read_fields, file_fields=stored[row]
        )
        result[of] = (*result.get(of, ()), task)
    by_id = {field.id: field for field in fields}
    for (of, id), newest_first in blobs.items():
        if id in by_id:
            whole, own_files = data_files.entries.slice(of, 1), entries.take(pa.array(newest_first))
            own_paths = tuple(names[row] for row in newest_first)
            task = tracking.blob_task(base.schema, whole, own_files, own_paths, by_id[id])
            result[of] = (*result.get(of, ()), task)
    return result


def _require_format(name: str | None) -> None:
    if name not in {"parquet", "orc", "avro"}:
        raise UnsupportedFeature(f"data files of format {name!r}: lakeformat reads parquet, orc and avro")
