"""The waist between dialects and engines: what to read, what to write, what was written. All of it can be pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import IntEnum, StrEnum
from typing import Any

from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import PartitionField, Sort
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field, Kind, scalar

# Virtual columns that a task may ask for: the position of a row. No column has their ids.
FILE = Field(-2, "_lakeformat_file", scalar(Kind.STRING), nullable=False)  # As in `ReadTask.paths`.
POSITION = Field(-3, "_lakeformat_pos", scalar(Kind.BIGINT), nullable=False)  # The row's position in the file, from 0.
# Columns that files may hold beside the table's (Iceberg's row lineage), with the ids that they have there.
ROW_ID = Field(2147483540, "_row_id", scalar(Kind.BIGINT))
LAST_UPDATED = Field(2147483539, "_last_updated_sequence_number", scalar(Kind.BIGINT))
# A column of the data, not of the table: the row kind, "+I", "-U", "+U" or "-D"; null is "+I". Keyed tables only.
ROW_KIND = Field(-4, "rowkind", scalar(Kind.STRING))
# A virtual column: a row's bucket (null: any with room). For tables whose keys may change partitions.
BUCKET = Field(-5, "_lakeformat_bucket", scalar(Kind.INT))
# A virtual column of existing rows: whether the row has new values (see `BlobColumns`).
CHANGED = Field(-6, "_lakeformat_changed", scalar(Kind.BOOLEAN), nullable=False)
# Columns of key-value files, with the ids that they have there.
SEQUENCE = Field(2147483646, "_SEQUENCE_NUMBER", scalar(Kind.BIGINT), nullable=False)
VALUE_KIND = Field(2147483645, "_VALUE_KIND", scalar(Kind.TINYINT), nullable=False)  # A `RowKind`.


class RowKind(IntEnum):
    """What a row does to its key."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short(self) -> str:
        return ("+I", "-U", "+U", "-D")[self]


RETRACTS = (RowKind.UPDATE_BEFORE, RowKind.DELETE)  # The kinds that delete a row.


class Content(StrEnum):
    DATA = "data"
    CHANGELOG = "changelog"
    POSITION_DELETES = "position_deletes"
    EQUALITY_DELETES = "equality_deletes"
    DELETION_VECTORS = "deletion_vectors"
    HASH_INDEX = "hash_index"  # The hashes of a bucket's keys, four bytes each.


class StatsMode(StrEnum):
    """How much of a column's bounds a manifest keeps; TRUNCATE has a length."""

    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


class NullKeys(StrEnum):
    """What happens to rows inside a row whose nested key has a null."""

    MERGE = "merge"
    IGNORE = "ignore"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How the values of one column are aggregated."""

    column: str
    function: str
    ignore_retract: bool = False  # Retractions (-U, -D) are ignored.
    distinct: bool = False  # listagg, collect
    delimiter: str = ","  # listagg
    nested_key: tuple[str, ...] = ()  # nested_update, nested_partial_update: columns of the rows inside
    nested_sequence: tuple[str, ...] = ()  # nested_update: what orders the rows of a nested key
    null_keys: NullKeys = NullKeys.MERGE
    limit: int | None = None  # nested_update: how many rows there may be
    time: str | None = None  # merge_map_with_keytime: of the rows that are values, the text that says how new they are


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Columns of a partial update with an order of their own: a row changes them unless it is older by `sequence`."""

    sequence: tuple[str, ...]
    columns: tuple[str, ...]
    removes_record: bool = False  # A -D that is not older removes the whole row.


class MergeEngine(StrEnum):
    """Paimon's `merge-engine`: how rows with the same key are merged."""

    DEDUPLICATE = "deduplicate"  # The newest row is kept.
    PARTIAL_UPDATE = "partial-update"  # Values that are not null replace older ones.
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """How the rows of one key are merged into one. Primary-key tables and key-value files only.

    Rows are ordered by `sequence` (nulls first either way), then by `SEQUENCE`, then in the given order. A column
    without an aggregation has the engine's default.
    """

    key: tuple[str, ...]  # Columns; within one partition.
    engine: MergeEngine = MergeEngine.DEDUPLICATE
    sequence: tuple[str, ...] = ()  # Paimon's `sequence.field`.
    is_ascending: bool = True  # `sequence.field.sort-order`: whether the greatest of `sequence` is the newest.
    ignore_delete: bool = False  # Retractions are ignored.
    remove_on_delete: bool = False  # partial-update, aggregation: a -D removes the whole row.
    aggregations: tuple[Aggregation, ...] = ()
    groups: tuple[SequenceGroup, ...] = ()
    partition: tuple[str, ...] = ()  # Columns in which all merged rows have the same value.

    @property
    def replaces(self) -> bool:
        """Whether a later row replaces the earlier ones, whatever they contain."""
        return self.engine is MergeEngine.DEDUPLICATE and not self.sequence

    def needed(self, columns: Iterable[str]) -> tuple[str, ...]:
        """`columns`, and those that merging needs."""
        names = dict.fromkeys((*columns, *self.sequence))
        for group in self.groups:
            if group.removes_record or names.keys() & {*group.columns, *group.sequence}:
                names |= dict.fromkeys(group.sequence)
        return tuple(names)


@dataclass(frozen=True, slots=True)
class HashIndex:
    """The bucket of each key in a table with dynamic buckets: files of hashes of the key `columns`.

    `files`: by partition (`repr` of its values), the bucket and path of each. A hash that none of them has is assigned
    to a bucket with fewer than `target_rows` hashes, or to a new one, up to `max_buckets`. New files are written to
    `folder`.
    """

    columns: tuple[str, ...]
    files: Mapping[str, tuple[tuple[int, str], ...]]
    folder: str
    target_rows: int = 2_000_000
    max_buckets: int | None = None


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Where each key has its row, in a table whose keys may change partitions.

    `tasks` read `key`, the `partition` columns and `BUCKET` of the existing rows. If a new row's key exists elsewhere,
    the merge engine decides: the old row is deleted, the new row goes there, or it is left out. New rows of a partition
    get a bucket with fewer than `target_rows` rows (`rows`: by `repr` of the partition's values, the rows of each
    bucket), or a new one, up to `max_buckets`.
    """

    key: tuple[str, ...]
    partition: tuple[str, ...]
    tasks: tuple[ReadTask, ...] = ()
    rows: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    target_rows: int = 2_000_000
    max_buckets: int | None = None
    is_settled: bool = False  # The data has the delete rows already, with their `BUCKET` if they need one.
    only_removes: bool = False  # Write delete rows only.
    removes_late: bool = False  # Readers see these after the rows of an overwrite; in between a key may have two rows.


@dataclass(frozen=True, slots=True)
class KeyValues:
    """How the rows of a keyed table are stored in its files: sorted by key, each with its sequence number and kind.

    `first` gives the next sequence number of a folder (as `WriteTask.directory` names it); 0 if it is missing. Without
    `is_numbered`, rows are numbered in their order, and rows of one key are merged before they are written. With it,
    they have columns `SEQUENCE` and `VALUE_KIND` and are merged and sorted by key.
    """

    merge: MergeSpec
    fields: tuple[Field, ...]  # All columns of a file, in order.
    key_fields: tuple[Field, ...]  # The key columns, as in `fields`.
    first: Mapping[str, int] | None = None
    # One of these assigns buckets if there is no `WriteTask.bucket`.
    index: HashIndex | None = None
    places: KeyPlaces | None = None
    is_numbered: bool = False
    level: int = 0
    kind: RowKind = RowKind.INSERT  # For rows without a row kind.
    kind_column: str | None = None  # The column with the row kinds: Paimon's `rowkind.field`.
    ignores_update_before: bool = False  # Leave out rows of kind -U.
    # Rows wait for a bucket: files have all of them, those of a key in their order.
    waits: bool = False
    changelog_prefix: str | None = (
        None  # With it, rows to be numbered are also written as they come, to files so named.
    )


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The range of keys in a key-value file, both ends included. Keys are tuples of values as in `ColumnStats`."""

    minimum: tuple[Any, ...]
    maximum: tuple[Any, ...]
    first_sequence: int
    last_sequence: int
    retract_count: int  # Number of rows of a kind in `RETRACTS`.
    level: int = 0


@dataclass(frozen=True, slots=True)
class FileKey:
    """What opens an encrypted file. No `repr` shows it."""

    key: bytes = field(repr=False)  # AES, of 16, 24 or 32 bytes.
    signed: bytes = field(default=b"", repr=False)  # The prefix of what is authenticated along with the bytes.
    size_bytes: int | None = None  # Of the file, where the table says so.


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Position deletes, equality deletes or a deletion vector: which rows of data files are deleted.

    A deletion vector applies to one data file and is at `offset` of the file `path`, `size_bytes` long; all three
    identify it, since a file may have several. `row_count` is the number of rows it deletes, if known.
    """

    path: str
    content: Content
    offset: int | None = None
    size_bytes: int | None = None
    # Equality deletes: the compared columns, with the table's types; of a row one field.
    fields: tuple[Field, ...] = ()
    file_format: str = "parquet"
    row_count: int | None = None
    key: FileKey | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """The id of a column that files without field ids call by one of `names`, and its parts: a name mapping."""

    id: int
    names: tuple[str, ...]
    parts: tuple[Named, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesTask:
    """Files that one worker reads, whose rows are not merged with each other, and how these become the table's.

    Paths are relative to the table's location, or absolute URIs. All files of a task have the same format and columns.
    `paths`, `row_counts`, `sizes_bytes` and, if there are any, `deletes` and `keys` are parallel. Without `row_counts`
    the files are not the table's own: their row counts are unknown, and they may lack columns.
    """

    paths: tuple[str, ...]
    row_counts: tuple[int, ...]
    sizes_bytes: tuple[int, ...]
    file_format: str  # "parquet", "orc" or "avro"; files that are not the table's own also "csv" or "json"
    fields: tuple[Field, ...]  # The requested columns, with the table's current names and types, in order.
    # The columns with the files' names and types; None: the files have field ids.
    file_fields: tuple[Field, ...] | None = None
    mapping: tuple[Named, ...] = ()  # For files without field ids.
    # For each column of `mapping` its position among a file's columns, where positions instead of names identify them.
    positions: tuple[int, ...] = ()
    predicate: Expression = ALWAYS  # Only rows for which it is true are returned, whatever was pushed down.
    constants: tuple[tuple[int, Any], ...] = ()  # (field id, value) of columns that the files lack.
    # Per file (field id, value) of columns, or fields of rows, that it may lack: their values are the partition's.
    absent: tuple[tuple[tuple[int, Any], ...], ...] = ()
    deletes: tuple[tuple[DeleteFile, ...], ...] = ()
    # Per file: of the rows that `deletes` leaves, read only those that these delete. Without it, read all.
    taken_by: tuple[tuple[DeleteFile, ...], ...] = ()
    # Per file the `ROW_ID` of its first row and the `LAST_UPDATED` of its rows (None: unknown), if they are requested:
    # for rows without values in such columns of the file.
    lineage: tuple[tuple[int | None, int | None], ...] = ()
    # Per file the tasks that read columns of the same rows from other whole files. Their values replace the file's own
    # (Paimon's data evolution).
    beside: tuple[tuple[FilesTask | BlobTask, ...], ...] = ()
    partition: tuple[Any, ...] = ()
    bucket: int | None = None
    # Ids of top-level columns whose timestamps outside the range of nanoseconds are null, not an error.
    far_as_null: frozenset[int] = frozenset()
    text_options: tuple[tuple[str, str], ...] | None = None  # The dialect of CSV and JSON files.
    keys: tuple[FileKey | None, ...] = ()  # Of encrypted files.

    @property
    def row_count(self) -> int:
        return sum(self.row_counts)

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes_bytes)

    @property
    def leaves(self) -> tuple[FilesTask, ...]:
        """The tasks, of unmerged files, that the task consists of."""
        return (self,)

    def of_files(self, indexes: Sequence[int]) -> FilesTask:
        """The task for some of its files."""
        names = [name for name in _BY_FILE if getattr(self, name)]
        chosen: dict[str, Any] = {name: tuple(getattr(self, name)[i] for i in indexes) for name in names}
        return replace(self, **chosen)


# Attributes of a `FilesTask` with one value per file.
_BY_FILE = ("paths", "row_counts", "sizes_bytes", "absent", "deletes", "taken_by", "lineage", "beside", "keys")


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Key-value files that one worker reads together: the rows of one key, over all `parts`, become one by `merge`;
    then `predicate` counts.

    The parts hold older rows first, and give the columns that merging needs: besides those of the table `VALUE_KIND`,
    unless no row retracts, and `SEQUENCE`, unless rows that stand later are newer. Rows that retract are left out,
    unless `fields` asks for `VALUE_KIND`. Results are in key order.
    """

    parts: tuple[FilesTask, ...]
    merge: MergeSpec
    fields: tuple[Field, ...]  # As in `FilesTask`.
    predicate: Expression = ALWAYS
    settled_parts: int = 0  # The first so many parts are merged with all older rows: of a key the last of them counts.
    partition: tuple[Any, ...] = ()
    bucket: int | None = None

    @property
    def leaves(self) -> tuple[FilesTask, ...]:
        return self.parts

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for part in self.parts for path in part.paths)

    @property
    def row_count(self) -> int:
        return sum(part.row_count for part in self.parts)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class BlobTask:
    """The one column `fields` of consecutive rows of a file, read from blob files: `row_count` rows from the row id
    `first_row_id`. A row has the value of the first of the files that has one for it, else null; the newest files are
    first."""

    paths: tuple[str, ...]
    row_counts: tuple[int, ...]  # Of each file.
    first_row_ids: tuple[int, ...]  # Of each file.
    fields: tuple[Field]
    first_row_id: int
    row_count: int
    as_descriptors: bool = False  # Paimon's descriptors (where the bytes are) instead of the bytes.


ReadTask = FilesTask | MergeTask


@dataclass(frozen=True, slots=True)
class Delta:
    """The rows that a snapshot added or removed, all of one kind; or, with None, of the kinds in the column
    `VALUE_KIND`."""

    kind: RowKind | None
    tasks: tuple[ReadTask, ...]


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """One column's statistics from a file's footer, as Python values of the logical type; None if unknown.

    Dates are `datetime.date`, times `datetime.time`, timestamps integers in the column's Arrow unit, decimals
    `Decimal`.
    """

    minimum: Any = None
    maximum: Any = None
    null_count: int | None = None
    value_count: int | None = None
    nan_count: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BucketRule:
    """How the rows of a partition are assigned to buckets: `function` of `columns` modulo `count`."""

    columns: tuple[str, ...]
    count: int
    function: str = "default"  # Paimon's `bucket-function.type`: default, mod or hive


def in_folder(folder: str, name: str) -> str:
    """The path of a file in a folder; the folder "" is the table's own."""
    return f"{folder}/{name}" if folder else name


@dataclass(frozen=True, slots=True)
class OneFolder:
    """A `WriteTask.directory`: one folder for all rows."""

    path: str

    def __call__(self, values: tuple[Any, ...], bucket: int | None) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """A file index of one column: its kind, by the name that the table's options use, and its parameters."""

    column: str
    kind: str
    settings: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class FileIndexes:
    """Which columns of each data file are indexed. The indexes of a file are in its manifest entry, or in a file beside
    it if they have more than `embedded_bytes`."""

    columns: tuple[ColumnIndex, ...]
    embedded_bytes: int


@dataclass(frozen=True, slots=True)
class IndexTask:
    """A file that lacks file indexes: `read` gives their columns, rows in the file's order. `missing`: each index, and
    the name of its column in the file. `kept`: the indexes that it has, by column and kind. See
    `FileIndexes.embedded_bytes`."""

    read: FilesTask
    missing: tuple[tuple[ColumnIndex, str], ...]
    kept: Mapping[str, Mapping[str, bytes]]
    embedded_bytes: int


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Rows of a partition whose global index of one column is missing: `reads` gives the `fields`, the column and the
    row's id, of rows from `first` to `last` and maybe others."""

    partition: tuple[Any, ...]
    first: int
    last: int
    reads: tuple[ReadTask, ...]
    fields: tuple[Field, Field]


@dataclass(frozen=True, slots=True)
class GlobalIndexFile:
    """A new file with an index of the column `field_id` for the rows from `first` to `last`; `ends` describes it."""

    path: str
    kind: str
    partition: tuple[Any, ...]
    field_id: int
    first: int
    last: int
    ends: bytes
    row_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BlobColumns:
    """Which columns of a write go to blob files of their own, of about `target_size_bytes` each, beside the data file
    with the other columns of their rows."""

    names: frozenset[str]
    target_size_bytes: int
    as_descriptors: bool = False  # A value may be one of Paimon's descriptors: then the bytes that it names are copied.
    updates: bool = False  # Of existing rows, which have the column `CHANGED`: others keep the value of an older file.


@dataclass(frozen=True, slots=True)
class Encoding:
    """The format of new files, and how they are compressed."""

    file_format: str = "parquet"
    compression: str = "zstd"
    compression_level: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # Format options of the table, e.g. "parquet.block.size".


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of new files, each unique, and their paths."""

    prefix: str = "data-"
    suffix: str = "-{}"  # Names end with the file's number, counted from `first_number`.
    first_number: int = 0
    names_task: bool = False  # Names begin with the engine's task: its partition and attempt.
    locate: Callable[[str, str], str] = in_folder  # (folder, name) -> path; picklable.


@dataclass(frozen=True, slots=True)
class WriteTask:
    """How rows become data files.

    `directory(partition values, bucket)` returns the folder, relative to the table's location or absolute, without a
    trailing slash. It is a picklable callable of the dialect, so that engines need not know paths.
    """

    # The files' columns in order; ids >= 0 are written into the file, also those inside collections.
    fields: tuple[Field, ...]
    directory: Callable[[tuple[Any, ...], int | None], str]
    partition_by: tuple[PartitionField, ...] = ()
    bucket: BucketRule | None = None
    default_bucket: int = 0  # `WrittenFile.bucket` if there is no rule.
    sort_by: tuple[Sort, ...] = ()  # Each file's rows are in this order, and no two files overlap.
    sort_order_id: int = 0  # The table's id of that order.
    content: Content = Content.DATA
    encoding: Encoding = Encoding()
    naming: Naming = Naming()
    target_size_bytes: int = 128 << 20
    stats: tuple[tuple[StatsMode, int], ...] = ()  # One (mode, length) per column of `fields`; empty: all FULL.
    required: Expression = ALWAYS  # A row for which it is false raises `OutsideScope`, and nothing is written.
    unique: tuple[str, ...] = ()  # Of rows that are equal in these columns only the last is written.
    keyed: KeyValues | None = None  # Then the files' columns are `keyed.fields`, and the data may have `ROW_KIND` too.
    # Files with some of the columns: their names; of existing rows also the first row id, and the partition.
    columns: tuple[str, ...] = ()
    first_row_id: int | None = None
    partition: tuple[Any, ...] | None = None
    file_indexes: FileIndexes | None = None
    blobs: BlobColumns | None = None  # `columns` are those of the data files.
    open_files: int = 64  # The most files written at the same time.
    # Rows of partitions that have no open file wait on local disk. Without, that is so once rows are seen to come
    # mixed; for rows that come partition by partition files are ended, for others to be opened.
    fans_out: bool = False
    distribution: str = (
        "auto"  # Spark only: "none", "hash" (by partition and bucket), "range" (these and `sort_by`), "auto".
    )


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a worker has written and no snapshot refers to yet."""

    path: str  # Relative to the table's location, or absolute.
    partition: tuple[Any, ...]
    row_count: int
    size_bytes: int
    bucket: int = 0
    content: Content = Content.DATA
    file_format: str = "parquet"
    stats: Mapping[int, ColumnStats] = field(default_factory=dict)  # By field id, top-level columns.
    split_offsets: tuple[int, ...] = ()
    created_ms: int = 0
    keys: KeyRange | None = None
    # Delete files: the data files that they apply to, by the paths in read tasks; blob files:
    # the data file of their rows.
    refers_to: tuple[str, ...] = ()
    sort_order_id: int = 0  # The table's id of the sort order of its rows; 0: none.
    spec_id: int | None = None  # Delete files: the partition spec of `partition`.
    # Deletion vectors: the vector's offset in `path`; blob files: the position of their first row in the data file.
    offset: int | None = None
    vector_bytes: int | None = None  # The length of a deletion vector as the table records it.
    replaces: tuple[DeleteFile, ...] = ()  # The earlier deletes of the same data files, which this file includes.
    compared: tuple[int, ...] = ()  # Equality deletes: the ids of the compared columns.
    columns: tuple[str, ...] = ()  # As in `WriteTask`.
    first_row_id: int | None = None
    bucket_count: int | None = None  # The bucket count of the rule that assigned `bucket`, if any.
    index: bytes | str | None = None  # The file indexes, or the path of the file with them.


def paths_of(files: Iterable[WrittenFile]) -> list[str]:
    """The paths of the files, and of the files that belong to them."""
    return [path for file in files for path in (file.path, file.index) if isinstance(path, str)]


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Read, change and rewrite: one unit of compaction, of a copy-on-write delete or of an update.

    Rows for which `delete_where` is true are left out. In rows for which `update_where` is true, the columns of
    `assignments` are set to the expressions, which see the old row.
    """

    read: tuple[ReadTask, ...]
    write: WriteTask
    delete_where: Expression | None = None
    assignments: tuple[tuple[str, Expression], ...] = ()
    update_where: Expression = ALWAYS
    spreads: bool = False  # On Spark, rows are range-partitioned by `write.sort_by`; otherwise one task does all.
    upgraded: tuple[tuple[str, int], ...] = ()  # Keyed tables: files that are upgraded, and their new level.
    # Keyed tables: `read` has one file. If its rows are sorted by unique keys, it is upgraded to the level of `write`,
    # not rewritten.
    upgrades: bool = False
    # Keyed tables: where the changelog of the rows `before` goes, and what reads those (parallel to `read`;
    # None: there were none).
    changelog: WriteTask | None = None
    before: tuple[ReadTask | None, ...] = ()
    compared: tuple[str, ...] = ()  # Leave out updates that change none of these columns.
    # Keyed tables: for each of `read`, what reads the older rows of higher levels, which stay; those whose keys come
    # again are merged in. With deletion vectors (`marks`) they are marked, by their places. Without, they stand in the
    # order of levels, the highest first, and the last row of a key there counts, where `before` has none.
    older: tuple[tuple[ReadTask, ...], ...] = ()
    marks: DeleteTask | None = None


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The auto-compaction that a writer does after its own commit."""

    full: bool = False  # Each bucket becomes one sorted run; otherwise what is worth rewriting.
    everywhere: bool = False  # In all partitions; otherwise in those that were written to.
    waits: bool = False  # The commit returns after it; a repeated commit runs it if it is missing.
    hides: bool = False  # Readers see no new row before it.
    ahead: int = 3  # How many commits a stream may make while it runs.


@dataclass(frozen=True, slots=True)
class Target:
    """A data file whose rows may be deleted: where its delete files belong, and its existing deletes."""

    path: str  # As in `ReadTask.paths`.
    partition: tuple[Any, ...] = ()
    spec_id: int | None = None
    folder: str = ""
    deletes: tuple[DeleteFile, ...] = ()  # Positions that new delete files must include.
    replaced: tuple[DeleteFile, ...] = ()  # Those of `deletes` that are for this file alone: new ones replace them.
    bucket: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """How rows, identified by `FILE` and `POSITION`, become delete files in the folder of their data files.

    Position deletes are sorted by file and position. With `per_file`, a delete file applies to one data file; otherwise
    to all data files of its partition.
    """

    targets: tuple[Target, ...]
    content: Content = Content.POSITION_DELETES  # or DELETION_VECTORS
    per_file: bool = True
    fields: tuple[Field, ...] = ()  # The columns of position delete files: path and position, with their ids.
    # Vectors are in a Puffin file; with the format "index" in one of Paimon's index files per bucket.
    encoding: Encoding = Encoding()
    naming: Naming = Naming("")
    target_size_bytes: int = 64 << 20
    wide: bool = True  # Vectors of 64-bit positions, or of 32-bit ones.


@dataclass(frozen=True, slots=True)
class DeltaLayout:
    """How a changelog becomes files: new rows, equality deletes of older rows, and position deletes of its own rows
    (without targets). `upserts`: whether the table says that an inserted row replaces an older one with its key."""

    data: WriteTask
    equality_deletes: WriteTask
    position_deletes: DeleteTask
    upserts: bool = False


@dataclass(frozen=True, slots=True)
class MarkTask:
    """Find the rows that satisfy the predicate of `read` and write their positions: one unit of a merge-on-read
    change."""

    read: FilesTask
    write: DeleteTask


@dataclass(frozen=True, slots=True)
class AdoptTask:
    """An existing file that becomes part of the table unchanged, as if `layout` had written it."""

    path: str  # Relative to the table's location, or absolute.
    layout: WriteTask
    mapping: tuple[Named, ...]  # The name mapping for a file without field ids.
    positions: tuple[int, ...] = ()  # As in `ReadTask`.
    partition: tuple[tuple[str, Any], ...] = ()  # (column, value) of columns that the file lacks, given by the user.
    # Readers know a file by a schema of its own: `Adopted.fields` are its columns, whatever the table calls them now,
    # and what has no such schema is `Adopted.refused`.
    has_schema: bool = False


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result of an `AdoptTask`: the file as the table records it, None for one without rows; and whether it has
    field ids."""

    file: WrittenFile | None
    has_ids: bool = False
    fields: tuple[Field, ...] = ()
    refused: str | None = None
