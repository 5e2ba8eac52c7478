"""The waist between dialects and engines: what to read, what to write, what was written. All picklable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, TypeVar, overload

from lakeformat.model.partition import PartitionField, Sort
from lakeformat.model.predicate import ALWAYS, Expression
from lakeformat.model.schema import Field, Kind, scalar

T = TypeVar("T")

# Columns of no file that a task may ask for: where a row lies. Their ids are no column's.
FILE = Field(-2, "_file", scalar(Kind.STRING), nullable=False)  # As in `ReadTask.paths`.
POSITION = Field(-3, "_pos", scalar(Kind.BIGINT), nullable=False)  # Counts all rows of the file, from 0.
# Columns that files may hold beside the table's (Iceberg's row lineage), with the ids that they have there.
ROW_ID = Field(2147483540, "_row_id", scalar(Kind.BIGINT))
LAST_UPDATED = Field(2147483539, "_last_updated_sequence_number", scalar(Kind.BIGINT))
# A column of data, not of the table: what each row does, as "+I", "-U", "+U" or "-D"; null is "+I". Keyed tables only.
ROW_KIND = Field(-4, "rowkind", scalar(Kind.STRING))
# A column of no file: the bucket that a row is in, or goes to (null: to any with room). Where keys may change partitions.
BUCKET = Field(-5, "_lakeformat_bucket", scalar(Kind.INT))
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


RETRACTS = (RowKind.UPDATE_BEFORE, RowKind.DELETE)  # What takes a row away.


class Content(StrEnum):
    DATA = "data"
    CHANGELOG = "changelog"
    POSITION_DELETES = "position_deletes"
    EQUALITY_DELETES = "equality_deletes"
    DELETION_VECTORS = "deletion_vectors"
    HASH_INDEX = "hash_index"  # The hashes of a bucket's keys, four bytes each.


class StatsMode(StrEnum):
    """How much of a column's bounds a manifest keeps; TRUNCATE comes with a length."""

    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


class NullKeys(StrEnum):
    """What becomes of rows inside a row whose nested key has a null."""

    MERGE = "merge"
    IGNORE = "ignore"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How the values of one column become one."""

    column: str
    function: str
    ignore_retract: bool = False  # Rows taken back (-U, -D) change nothing.
    distinct: bool = False  # listagg, collect
    delimiter: str = ","  # listagg
    nested_key: tuple[str, ...] = ()  # nested_update, nested_partial_update: columns of the rows inside
    nested_sequence: tuple[str, ...] = ()  # nested_update: what orders the rows of a nested key
    null_keys: NullKeys = NullKeys.MERGE
    limit: int | None = None  # nested_update: how many rows there may be
    time: str | None = None  # merge_map_with_keytime: of the rows that are values, the text that says how new they are


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Columns of a partial update that have an order of their own: a row changes them unless it is older by `sequence`."""

    sequence: tuple[str, ...]
    columns: tuple[str, ...]
    removes_record: bool = False  # A -D that is not older removes the row as a whole.


class MergeEngine(StrEnum):
    """Paimon's `merge-engine`: what becomes of rows with the same key."""

    DEDUPLICATE = "deduplicate"  # The newest stays.
    PARTIAL_UPDATE = "partial-update"  # Columns that are not null take the place of older ones.
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """How rows of one key become one row. Primary-key tables and key-value files only.

    Rows are ordered by `sequence` (nulls first either way), then by `SEQUENCE`, then as they are given. A column without an
    aggregation has the engine's default.
    """

    key: tuple[str, ...]  # Columns; within one partition.
    engine: MergeEngine = MergeEngine.DEDUPLICATE
    sequence: tuple[str, ...] = ()  # Paimon's `sequence.field`.
    is_ascending: bool = True  # `sequence.field.sort-order`: whether the greatest of `sequence` is the newest.
    ignore_delete: bool = False  # Rows taken back are as if never written.
    remove_on_delete: bool = False  # partial-update, aggregation: a -D removes the row as a whole.
    aggregations: tuple[Aggregation, ...] = ()
    groups: tuple[SequenceGroup, ...] = ()
    partition: tuple[str, ...] = ()  # Columns in which all rows that are merged have the same value.

    @property
    def replaces(self) -> bool:
        """Whether a row that came later takes the place of those before, whatever they hold."""
        return self.engine is MergeEngine.DEDUPLICATE and not self.sequence

    def needed(self, columns: Iterable[str]) -> tuple[str, ...]:
        """`columns`, and those without which they cannot be merged."""
        wanted = dict.fromkeys((*columns, *self.sequence))
        for group in self.groups:
            if group.removes_record or wanted.keys() & {*group.columns, *group.sequence}:
                wanted |= dict.fromkeys(group.sequence)
        return tuple(wanted)


@dataclass(frozen=True, slots=True)
class HashIndex:
    """Which bucket each key is in, where buckets grow with their keys: files of hashes of the key `columns`.

    `files`: by partition (`repr` of its values), the bucket and path of each. A hash that none of them has goes to a bucket
    with fewer than `target_rows` hashes, or to a new one, up to `max_buckets`. New files come into `folder`.
    """

    columns: tuple[str, ...]
    files: Mapping[str, tuple[tuple[int, str], ...]]
    folder: str
    target_rows: int = 2_000_000
    max_buckets: int | None = None


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Where each key has its row, in a table whose keys may change partitions.

    `tasks` read `key`, the `partition` columns and `BUCKET` of the rows there are. A row whose key has one elsewhere takes
    that away, goes there, or is left out, as the merge engine has it. New rows of a partition go to a bucket with fewer than
    `target_rows` rows (`rows`: by `repr` of the partition's values, the rows of each bucket), or to a new one, up to
    `max_buckets`.
    """

    key: tuple[str, ...]
    partition: tuple[str, ...]
    tasks: tuple[ReadTask, ...] = ()
    rows: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    target_rows: int = 2_000_000
    max_buckets: int | None = None
    is_settled: bool = False  # Rows come with those that take others away, and know their `BUCKET` if it has to be one.
    only_removes: bool = False  # Only rows that take others away are written.
    removes_late: bool = False  # Readers see these later than the rows of an overwrite, and a key twice in between.


@dataclass(frozen=True, slots=True)
class KeyValues:
    """How the rows of a keyed table stand in its files: sorted by key, each with its sequence number and kind.

    `first` gives the number of the next row of a folder (as `WriteTask.directory` names it); where it is not in there,
    0. Without `is_numbered`, rows are numbered as they come, and those of one key are merged before they are written.
    With it, they come with columns `SEQUENCE` and `VALUE_KIND`, merged and in the order of their keys.
    """

    merge: MergeSpec
    fields: tuple[Field, ...]  # All columns of a file, in order.
    key_fields: tuple[Field, ...]  # The columns of the key, among `fields`.
    first: Mapping[str, int] | None = None
    # Where no `WriteTask.bucket` says which bucket a row is in: one of these does.
    index: HashIndex | None = None
    places: KeyPlaces | None = None
    is_numbered: bool = False
    level: int = 0
    kind: RowKind = RowKind.INSERT  # Of rows without a row kind.
    kind_column: str | None = None  # The column with the row kinds: Paimon's `rowkind.field`.
    ignores_update_before: bool = False  # Rows of kind -U that are to be numbered are left out.
    # Rows wait for a bucket: files hold all of them, those of a key in the order in which they came.
    waits: bool = False
    changelog_prefix: str | None = (
        None  # With it, rows to be numbered are also written as they come, to files so named.
    )


@dataclass(frozen=True, slots=True)
class KeyRange:
    """What a key-value file holds. Keys are tuples of values as in `ColumnStats`; both ends belong to the range."""

    minimum: tuple[Any, ...]
    maximum: tuple[Any, ...]
    first_sequence: int
    last_sequence: int
    retract_count: int  # Rows of a kind in `RETRACTS`.
    level: int = 0


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Position deletes, equality deletes or a deletion vector: which rows of data files are gone.

    A deletion vector applies to one data file and lies in `path` from `offset` on, for `size_bytes`: it is known by all
    three, for the file may hold others. `row_count` is how many rows it deletes, where that is known.
    """

    path: str
    content: Content
    offset: int | None = None
    size_bytes: int | None = None
    fields: tuple[
        Field, ...
    ] = ()  # Equality deletes: the columns compared, as the table types them; of a row one part.
    file_format: str = "parquet"
    row_count: int | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """The id of a column that files without ids know by one of `names`, and its parts."""

    id: int
    names: tuple[str, ...]
    parts: tuple[Named, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Files that one worker reads in one go, and how their rows become the table's.

    Paths are relative to the table's location, or absolute URIs. All files of a task share format and columns;
    `paths`, `row_counts`, `sizes_bytes` and, where there are any, `deletes` run in parallel. A task that merges has parts.
    Without `row_counts` the files are those of others: nobody has counted their rows, and they may lack columns.
    """

    paths: tuple[str, ...]
    row_counts: tuple[int, ...]
    sizes_bytes: tuple[int, ...]
    file_format: str  # "parquet", "orc" or "avro"; of files of others also "csv" or "json"
    fields: tuple[Field, ...]  # The columns asked for, as the table names and types them now, in order.
    file_fields: tuple[Field, ...] | None = (
        None  # The columns as the files name and type them; None: ids are in the files.
    )
    mapping: tuple[Named, ...] = ()  # Where ids are looked for in files and they hold none.
    predicate: Expression = ALWAYS  # Rows for which it is not true are left out; exact, whatever was pushed down.
    constants: tuple[tuple[int, Any], ...] = ()  # (field id, value) of columns that the files do not hold.
    # For each file (field id, value) of columns, or parts of rows, that it may lack: their values are the partition's.
    absent: tuple[tuple[tuple[int, Any], ...], ...] = ()
    deletes: tuple[tuple[DeleteFile, ...], ...] = ()
    # For each file what only those rows are read of, of all that `deletes` leaves, which these take; without, all are.
    taken_by: tuple[tuple[DeleteFile, ...], ...] = ()
    # For each file the `ROW_ID` of its first row, or None for no ids, and the `LAST_UPDATED` of its rows, where they are asked
    # for: what its own columns do not say.
    lineage: tuple[tuple[int | None, int], ...] = ()
    # For each file the tasks that read columns of the same rows out of other files, each file of them whole: what they give
    # counts, whatever the file itself holds (Paimon's data evolution).
    beside: tuple[tuple[ReadTask, ...], ...] = ()
    # Rows of one key, over all `parts`, become one by `merge`; then `predicate` counts. The parts hold the files of
    # `paths`, older rows first, and give the columns that merging needs: besides those of the table `SEQUENCE` and
    # `VALUE_KIND`. Rows that retract are left out, unless `fields` asks for `VALUE_KIND`. Results are in key order.
    merge: MergeSpec | None = None
    parts: tuple[ReadTask, ...] = ()
    # Of `parts` the first that hold rows merged with all that are older: of a key the last one of these counts.
    settled_parts: int = 0
    partition: tuple[Any, ...] = ()
    bucket: int | None = None
    # Ids of columns, outermost ones, of which timestamps beyond the reach of nanoseconds are null, and no error.
    far_as_null: frozenset[int] = frozenset()
    text_options: tuple[tuple[str, str], ...] | None = None  # How files of CSV and JSON are written.

    @property
    def row_count(self) -> int:
        return sum(self.row_counts)

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes_bytes)


class OnDemand(Sequence[T]):
    """`count` items, of which `make(i)` makes the i-th, anew each time: what is not asked for takes no memory. Equal to any
    sequence of equal items."""

    __slots__ = ("_count", "_make")

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self._make(each) for each in range(self._count)[place]]
        return self._make(range(self._count)[place])

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._count))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Sequence[T]) -> list[T]:
        return [*self, *other]

    def __radd__(self, other: Sequence[T]) -> list[T]:
        return [*other, *self]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def __repr__(self) -> str:
        return repr(list(self))


@dataclass(frozen=True, slots=True)
class Delta:
    """Rows that came or went with a snapshot, all of one kind; or, with None, of the kinds in the column `VALUE_KIND`."""

    kind: RowKind | None
    tasks: tuple[ReadTask, ...]


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """One column's statistics from a file's footer, in Python values of the logical type; None where unknown.

    Dates are `datetime.date`, times `datetime.time`, timestamps integers in the column's Arrow unit, decimals `Decimal`.
    """

    minimum: Any = None
    maximum: Any = None
    null_count: int | None = None
    value_count: int | None = None
    nan_count: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BucketRule:
    """How rows of a partition spread over buckets: `function` of `columns` modulo `count`."""

    columns: tuple[str, ...]
    count: int
    function: str = "default"  # Paimon's `bucket-function.type`: default, mod or hive


def in_folder(folder: str, name: str) -> str:
    """The path of a file in a folder; the folder "" is the table's own."""
    return f"{folder}/{name}" if folder else name


@dataclass(frozen=True, slots=True)
class OneFolder:
    """A `WriteTask.directory`: the same folder for all rows."""

    path: str

    def __call__(self, values: tuple[Any, ...], bucket: int | None) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """An index of a column of each data file: its kind, as the table's options call it, and what it is made with."""

    column: str
    kind: str
    settings: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class FileIndexes:
    """Which columns of each data file get an index. Those of one file lie in its entry, or in a file beside it where they have more
    than `embedded_bytes`."""

    columns: tuple[ColumnIndex, ...]
    embedded_bytes: int


@dataclass(frozen=True, slots=True)
class WriteTask:
    """How rows become data files.

    `directory(partition values, bucket)` gives the folder, relative to the table's location or absolute, without a slash at
    the end; it is a picklable callable that the dialect hands over, so that engines know nothing of paths.
    """

    fields: tuple[
        Field, ...
    ]  # The files' columns in order; ids >= 0 go into the file, also those of collections' parts.
    directory: Callable[[tuple[Any, ...], int | None], str]
    locate: Callable[[str, str], str] = in_folder  # (folder, name of a file) -> its path; picklable too.
    partition_by: tuple[PartitionField, ...] = ()
    bucket: BucketRule | None = None
    default_bucket: int = 0  # What `WrittenFile.bucket` says when there is no rule.
    sort_by: tuple[Sort, ...] = ()  # The rows of each file are in this order; those of no two files overlap.
    sort_order_id: int = 0  # What the table calls that order.
    content: Content = Content.DATA
    file_format: str = "parquet"
    compression: str = "zstd"
    compression_level: int | None = None
    target_size_bytes: int = 128 << 20
    name_prefix: str = "data-"
    name_suffix: str = (
        "-{}"  # With the number of the file, counted from `first_number`, after a name of the write's own.
    )
    first_number: int = 0
    names_task: bool = False  # That name begins with the engine's task: its partition and the number of the attempt.
    stats: tuple[tuple[StatsMode, int], ...] = ()  # One (mode, length) per column of `fields`; empty: all FULL.
    options: Mapping[str, str] = field(default_factory=dict)  # Format options of the table, e.g. "parquet.block.size".
    required: Expression = ALWAYS  # A row for which it is not true raises `OutsideScope`, and nothing is written.
    keyed: KeyValues | None = None  # The columns of a file are then `keyed.fields`; data may have `ROW_KIND` too.
    # Files of some of the columns, of rows that are there: the names of these, the id of the first row, and the partition.
    columns: tuple[str, ...] = ()
    first_row_id: int | None = None
    partition: tuple[Any, ...] | None = None
    file_indexes: FileIndexes | None = None
    open_files: int = 64  # That are written at the same time.
    # Rows of partitions that have no open file wait on local disk. Without, that is so once rows are seen to come mixed; for rows
    # that come partition by partition files are ended, for others to be opened.
    fans_out: bool = False
    distribution: str = (
        "auto"  # Spark only: "none", "hash" (by partition and bucket), "range" (these and `sort_by`), "auto".
    )


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file a worker wrote and no snapshot refers to yet."""

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
    refers_to: tuple[str, ...] = ()  # Delete files: the data files that they apply to, as the read tasks named them.
    sort_order_id: int = 0  # What the table calls the order that its rows are in; 0: none.
    spec_id: int | None = None  # Delete files: the partition spec that `partition` is of.
    offset: int | None = None  # Deletion vectors: where in `path` the vector begins,
    vector_bytes: int | None = None  # and how long the table says that it is.
    replaces: tuple[DeleteFile, ...] = ()  # Earlier deletes of the same data files, which are all in this one.
    compared: tuple[int, ...] = ()  # Equality deletes: the ids of the columns compared.
    columns: tuple[str, ...] = ()  # As in `WriteTask`.
    first_row_id: int | None = None
    bucket_count: int | None = None  # Of the rule that chose `bucket`, where there was one.
    index: bytes | str | None = None  # The indexes of its columns, or the path of the file with them.


def paths_of(files: Iterable[WrittenFile]) -> list[str]:
    """The files, and those that belong to them."""
    return [path for each in files for path in (each.path, each.index) if isinstance(path, str)]


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Read, change, write again: one unit of compaction, of a copy-on-write delete or of an update.

    With `delete_where`, rows for which it is true are left out. With `assignments`, rows for which `update_where` is
    true get the columns named set to the expressions, which see the old row.
    """

    read: tuple[ReadTask, ...]
    write: WriteTask
    delete_where: Expression | None = None
    assignments: tuple[tuple[str, Expression], ...] = ()
    update_where: Expression = ALWAYS
    spreads: bool = False  # On Spark, rows go to tasks by ranges of what `write` sorts by; else one task does all.
    upgraded: tuple[
        tuple[str, int], ...
    ] = ()  # Keyed tables: files that stay as they are, and the level they are then on.
    # Keyed tables: `read` is of one file, which is upgraded to the level of `write`, not rewritten, if its keys rise by row.
    upgrades: bool = False
    # Keyed tables: where the changelog of the rows `before` goes, and what reads those (parallel to `read`;
    # None: there were none).
    changelog: WriteTask | None = None
    before: tuple[ReadTask | None, ...] = ()
    compared: tuple[str, ...] = ()  # With these, updates that leave all of these columns as they were are left out.
    # Keyed tables: for each of `read`, what reads the older rows of higher levels, which stay; those whose keys come again are
    # merged in. With deletion vectors (`marks`) they are marked, by their places. Without, they stand in the order of levels,
    # the highest first, and the last row of a key there counts, where `before` has none.
    older: tuple[tuple[ReadTask, ...], ...] = ()
    marks: DeleteTask | None = None


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The compaction that a writer does after its own commit."""

    full: bool = False  # Each bucket becomes one sorted run; else what is worth it.
    everywhere: bool = False  # In all partitions; else in those that were written to.
    waits: bool = False  # A commit is over when this is; asked for again, it is made up for.
    hides: bool = False  # Readers see no row before this.
    ahead: int = 3  # How many commits a stream may make while it is under way.


@dataclass(frozen=True, slots=True)
class Target:
    """A data file of which rows may go: where delete files about it belong, and what there is of them."""

    path: str  # As in `ReadTask.paths`.
    partition: tuple[Any, ...] = ()
    spec_id: int | None = None
    folder: str = ""
    deletes: tuple[DeleteFile, ...] = ()  # Positions that new delete files take in.
    replaced: tuple[DeleteFile, ...] = ()  # Those of `deletes` for this file alone: new ones take their place.
    bucket: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """How rows, named by `FILE` and `POSITION`, become delete files, each in the folder of its data files.

    Position deletes are sorted by file and position. With `per_file`, a delete file applies to one data file; else to
    all in its partition.
    """

    targets: tuple[Target, ...]
    content: Content = Content.POSITION_DELETES  # or DELETION_VECTORS
    per_file: bool = True
    fields: tuple[Field, ...] = ()  # Of position-delete files: the path and the position, with their ids.
    file_format: str = "parquet"  # Vectors lie in a Puffin file; with "index" in Paimon's, each of one bucket.
    compression: str = "zstd"
    compression_level: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # As in `WriteTask`.
    target_size_bytes: int = 64 << 20
    name_prefix: str = ""
    name_suffix: str = "-{}"
    first_number: int = 0
    names_task: bool = False  # These four as in `WriteTask`,
    locate: Callable[[str, str], str] = in_folder  # and this.
    wide: bool = True  # Vectors of positions of 64 bits, or of 32.


@dataclass(frozen=True, slots=True)
class DeltaLayout:
    """How a changelog becomes files: new rows, keys whose older rows go, and places of rows of its own that go (without
    targets)."""

    data: WriteTask
    by_key: WriteTask
    by_place: DeleteTask


@dataclass(frozen=True, slots=True)
class MarkTask:
    """Find the rows that satisfy the predicate of `read`, and write where they lie: one unit of a merge-on-read change."""

    read: ReadTask
    write: DeleteTask


@dataclass(frozen=True, slots=True)
class AdoptTask:
    """A file that another writer made, to become one of the table as it is: written as `layout` would have."""

    path: str  # Relative to the table's location, or absolute.
    layout: WriteTask
    mapping: tuple[Named, ...]  # How columns are called where the file holds no field ids.
    partition: tuple[
        tuple[str, Any], ...
    ] = ()  # (column, value) of columns that the file lacks, as the user says them.
    # Readers know a file by a schema of its own: `Adopted.fields` are its columns, whatever the table calls them now, and what has
    # no such schema is `Adopted.refused`.
    has_schema: bool = False


@dataclass(frozen=True, slots=True)
class Adopted:
    """What an `AdoptTask` found: the file as the table has it, None for one without rows; and whether it holds field ids."""

    file: WrittenFile | None
    has_ids: bool = False
    fields: tuple[Field, ...] = ()
    refused: str | None = None
