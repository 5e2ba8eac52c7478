"""state -> WriteTask: where files are written, and how rows are split over partitions and buckets."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow.compute as pc

from lakeformat.codec import document
from lakeformat.codec.paimon import file_index
from lakeformat.dialects.paimon import manifest, merging, metadata, options, tracking, types
from lakeformat.dialects.paimon.metadata import State
from lakeformat.dialects.part import Part
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.exact import EXACT
from lakeformat.model.schema import Field, Kind, Scalar, Schema, Type, walk
from lakeformat.model.work import (
    CHANGED,
    SEQUENCE,
    VALUE_KIND,
    BlobColumns,
    BucketRule,
    ColumnIndex,
    Encoding,
    FileIndexes,
    HashIndex,
    KeyPlaces,
    KeyValues,
    Naming,
    StatsMode,
    WriteTask,
)
from lakeformat.storage.store import Reader

UNAWARE_BUCKET = 0
POSTPONED_BUCKET = -2

# Java's compaction groups files by this name of their writer and orders them by time. All of ours have one writer.
_WRITER = "-u-lakeformat-s-0-w-"

_BUCKET_NAMES: dict[int | None, str | int] = {None: UNAWARE_BUCKET, POSTPONED_BUCKET: "postpone"}

_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
# Character.isWhitespace: unlike Python's, without the spaces that do not break a line, and without U+0085.
_BLANK = re.compile(r"[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]*")
_SHARE = re.compile(r"0?\.0*[1-9]\d*|[1-9](\.\d+)?[eE]-\d+")
_MODE = re.compile(r"(none|counts|full)|truncate\(([1-9]\d*)\)")
_MARK_DONE, _SUCCESS_FILE = "partition.mark-done-action", "success-file"
_COMPRESSIONS = {"none": "uncompressed"}
_BLOCKS = {"parquet": "parquet.block.size", "orc": "orc.stripe.size"}  # What `file.block-size` sets.


@dataclass(frozen=True, slots=True)
class Directory:
    """(partition values, bucket) -> the folder of a data file, as Java names it (FileStorePathFactory)."""

    names: tuple[str, ...]
    kinds: tuple[Type, ...]
    default_name: str
    legacy_names: bool
    parent: str

    def __call__(self, values: tuple[Any, ...], bucket: int | None) -> str:
        folders = [self.parent] if self.parent else []
        folders += self.partition(values)
        folders.append(f"bucket-{_BUCKET_NAMES.get(bucket, bucket)}")
        return "/".join(folders)

    def partition(self, values: tuple[Any, ...]) -> list[str]:
        """`k=v` for each partition column."""
        return [
            f"{_escape(name)}={_escape(self.text(value, kind))}"
            for name, kind, value in zip(self.names, self.kinds, values, strict=True)
        ]

    def text(self, value: Any, kind: Type) -> str:
        """A partition value as in its folder's name; null, empty and blank share the default name."""
        if value is None:
            return self.default_name
        shown = _legacy_text(value, kind) if self.legacy_names else sql_text(value, kind)
        return self.default_name if _BLANK.fullmatch(shown) else shown


@dataclass(frozen=True, slots=True)
class Hints(Part[State]):
    """Files that tell other engines what metadata alone does not."""

    def done_marks(self, partitions: Sequence[tuple[Any, ...]], now_ms: int) -> dict[str, bytes]:
        """A `_SUCCESS` file in the folder of each partition, with the times at which it was first and last marked
        (Java's SuccessFile). Raises `UnsupportedFeature` if `partition.mark-done-action` asks for anything else."""
        actions = self.state.schema.properties.get(_MARK_DONE, _SUCCESS_FILE)
        if others := [action for action in map(str.strip, actions.split(",")) if action != _SUCCESS_FILE]:
            raise UnsupportedFeature(
                f"{self.reader.root}: {_MARK_DONE}={others[0]} needs a catalog of Java's; supported: {_SUCCESS_FILE}"
            )
        folders = directory(self.state.schema)
        # Not below `data-file.path-directory`.
        paths = ["/".join([*folders.partition(partition), "_SUCCESS"]) for partition in partitions]
        marks: dict[str, bytes] = {}
        for path, before in zip(paths, self.reader.read_many(paths), strict=True):
            first = now_ms if before is None else document.parse(before, path).get("creationTime", now_ms)
            marks[path] = document.emit({"creationTime": first, "modificationTime": now_ms})
        return marks

    def earliest(self, snapshot_id: int) -> tuple[int, dict[str, bytes]]:
        """See `metadata.earliest`."""
        return metadata.earliest(self.reader, snapshot_id)


def layout(base: State, reader: Reader | None = None) -> WriteTask:
    """How rows become files of this table. Raises `UnsupportedFeature` for a table that must not be written.

    Rows of a table with a primary key continue the sequence numbers of their bucket, which `reader` finds. Rows that
    wait for a bucket (`bucket` = -2) are in files of their own (PostponeBucketFileStoreWrite).
    """
    task = in_buckets(base, reader)
    keyed = task.keyed
    if keyed is None or options.read(base.schema).bucket != POSTPONED_BUCKET:
        return task
    if all(_fits_avro(part) for part in walk(base.schema.fields)):
        unbounded = ((StatsMode.NONE, 0),) * len(task.fields)
        given = {key: value for key, value in base.schema.properties.items() if key.startswith("avro.")}
        task = replace(task, encoding=replace(task.encoding, file_format="avro", options=given), stats=unbounded)
    return replace(
        task,
        default_bucket=POSTPONED_BUCKET,
        naming=replace(task.naming, prefix=f"{task.naming.prefix}{_WRITER}"),
        keyed=replace(keyed, waits=True, changelog_prefix=None),
        file_indexes=None,
    )


def in_buckets(base: State, reader: Reader | None = None) -> WriteTask:
    """As `layout`, for rows that have buckets."""
    schema = base.schema
    metadata.require_writable(schema, f"table at schema {schema.id}")
    table_options = options.read(schema)
    format = table_options.file_format
    buckets, bucket_key = table_options.bucket, metadata.bucket_key(schema)
    if buckets > 1 and not bucket_key:
        raise UnsupportedFeature(
            f"{buckets} buckets without a bucket-key: old engines hashed whole rows; such a table can only be read"
        )
    compression = table_options.compression()
    block_bytes = table_options.file_block_size
    block = {_BLOCKS[format]: str(block_bytes)} if block_bytes and format in _BLOCKS else {}
    if table_options.shredding is not None:
        block["parquet.shredding"] = table_options.shredding
    return WriteTask(
        fields=types.with_file_ids(schema.fields),
        directory=directory(schema),
        partition_by=schema.partitioning.fields,
        bucket=BucketRule(bucket_key, buckets, table_options.bucket_function_type)
        if buckets > 0 and bucket_key  # One bucket needs no key.
        else None,
        default_bucket=UNAWARE_BUCKET,
        encoding=Encoding(
            format,
            _COMPRESSIONS.get(compression, compression),
            table_options.file_compression_zstd_level if compression == "zstd" else None,
            block | {key: value for key, value in schema.properties.items() if key.startswith(f"{format}.")},
        ),
        naming=Naming(table_options.data_file_prefix),
        target_size_bytes=table_options.target_file_bytes,
        stats=stats_modes(schema),
        keyed=_keyed(base, reader) if schema.primary_key else None,
        file_indexes=file_indexes(schema),
        **_blobs(schema),
        open_files=table_options.write_max_writers_to_spill,
    )


def _blobs(schema: Schema) -> dict[str, Any]:
    """Of a table with BLOB columns: these, and the columns that data files have."""
    table_options = options.read(schema)
    if not (names := table_options.columns_in_blobs):
        return {}
    size_bytes = table_options.blob_target_file_size or table_options.target_file_bytes
    return {
        "blobs": BlobColumns(names, size_bytes, table_options.blob_as_descriptor),
        "columns": tuple(name for name in schema.names if name not in names),
    }


def rewriting(base: State, reader: Reader | None = None) -> tuple[tuple[Field, ...], WriteTask]:
    """(the columns to read, how they are written) for existing rows that move: with `row-tracking.enabled` they keep
    their ids. Raises `UnsupportedFeature` for tables with data evolution, whose rows do not move."""
    schema, task = base.schema, layout(base, reader)
    if options.read(schema).data_evolution_enabled:
        raise UnsupportedFeature(
            f"table at schema {schema.id}: with data evolution no row leaves its file; delete rows by delete(), with "
            "deletion-vectors.enabled=true, and append the new ones, or drop or overwrite whole partitions"
        )
    if not options.read(schema).row_tracking_enabled:
        return schema.fields, task
    written = (*task.fields, *(replace(f, id=i) for f, i in zip(tracking.FIELDS, tracking.IDS_IN_FILES, strict=True)))
    unbounded = ((StatsMode.NONE, 0),) * len(tracking.FIELDS)
    columns = tuple(f.name for f in written)
    return (*schema.fields, *tracking.FIELDS), replace(
        task, fields=written, stats=(*task.stats, *unbounded), columns=columns
    )


def of_columns(base: State, files: Any, names: Sequence[str], partitions: Sequence[tuple[Any, ...]]) -> list[WriteTask]:
    """How new values of the columns `names` of these files' rows are written beside them. Raises `InvalidInput` for a
    partition column."""
    schema = base.schema
    if fixed := [name for name in names if name in schema.partitioning.names]:
        raise InvalidInput(
            f"table at schema {schema.id}: {fixed[0]!r} is a partition column, and with data evolution rows stay in "
            "their partition; delete these rows and append them again"
        )
    task = layout(base)
    written = [(f, stats) for f, stats in zip(task.fields, task.stats, strict=True) if f.name in names]
    blobs = None
    if task.blobs and (apart := task.blobs.names.intersection(names)):
        blobs = replace(task.blobs, names=apart, target_size_bytes=1 << 62, updates=True)
        written.append((CHANGED, (StatsMode.NONE, 0)))
    return [
        replace(
            task,
            fields=tuple(f for f, _ in written),
            stats=tuple(stats for _, stats in written),
            columns=tuple(f.name for f, _ in written if blobs is None or f.name not in {*blobs.names, CHANGED.name}),
            file_indexes=None,
            blobs=blobs,
            **_in_place(first, partition),
        )
        for first, partition in zip(files.entries["_FIRST_ROW_ID"].to_pylist(), partitions, strict=True)
    ]


def of_range(base: State, first_row_id: int, partition: tuple[Any, ...]) -> WriteTask:
    """How the rows from this row id on, with all columns but those in blob files, become one file."""
    task = layout(base)
    if task.blobs is not None:
        own = [(f, stats) for f, stats in zip(task.fields, task.stats, strict=True) if f.name in task.columns]
        task = replace(task, fields=tuple(f for f, _ in own), stats=tuple(stats for _, stats in own), blobs=None)
    return replace(task, **_in_place(first_row_id, partition))


def _in_place(first_row_id: int, partition: tuple[Any, ...]) -> dict[str, Any]:
    """One file, whatever its size: the rows of a file have consecutive ids."""
    return {
        "first_row_id": first_row_id,
        "partition": partition,
        "partition_by": (),
        "bucket": None,
        "target_size_bytes": 1 << 62,
    }


def directory(schema: Schema) -> Directory:
    table_options = options.read(schema)
    return Directory(
        schema.partitioning.names,
        tuple(schema.field(n).type for n in schema.partitioning.names),
        table_options.partition_default_name,
        table_options.partition_legacy_name,
        table_options.data_file_path_directory.strip("/"),
    )


def stats_modes(schema: Schema) -> tuple[tuple[StatsMode, int], ...]:
    """`metadata.stats-mode`, or a column's own `fields.<name>.stats-mode`: (mode, length) for each column."""
    general = options.read(schema).metadata_stats_mode
    return tuple(_mode(schema.properties.get(f"fields.{f.name}.stats-mode", general)) for f in schema.fields)


def _keyed(base: State, reader: Reader | None) -> KeyValues:
    schema = base.schema
    key_columns = tuple(schema.field(name) for name in metadata.key_of(schema))
    is_thin = options.read(schema).data_file_thin_mode
    repeated = () if is_thin else types.key_fields(key_columns)
    return KeyValues(
        merge=merging.merging(schema, f"table at schema {schema.id}"),
        fields=(*repeated, SEQUENCE, VALUE_KIND, *types.with_file_ids(schema.fields)),
        key_fields=repeated or key_columns,
        first=None if reader is None else _next_numbers(base, reader),
        index=None
        if reader is None or options.read(schema).bucket != -1 or metadata.crosses_partitions(schema)
        else _hash_index(base, reader),
        places=_key_places(base, reader) if reader is not None and metadata.crosses_partitions(schema) else None,
        kind_column=merging.kind_column(schema, f"table at schema {schema.id}"),
        ignores_update_before=options.read(schema).ignore_update_before,
        changelog_prefix=options.read(schema).changelog_file_prefix
        if options.read(schema).changelog_producer == "input"
        else None,
    )


def _hash_index(base: State, reader: Reader) -> HashIndex:
    """The bucket of each hash of a key (`bucket` = -1)."""
    schema = base.schema
    most = options.read(schema).dynamic_bucket_max_buckets
    entries = manifest.read_index(reader, base.document)
    entries = entries.filter(pc.equal(entries["_INDEX_TYPE"], manifest.HASH_INDEX))
    files: dict[str, tuple[tuple[int, str], ...]] = {}
    if len(entries):
        codes, values = manifest.partitions(entries, schema)
        partitions = [repr(tuple(v)) for v in manifest.partition_values(values, schema)]
        for code, bucket, name in zip(
            codes, entries["_BUCKET"].to_pylist(), entries["_FILE_NAME"].to_pylist(), strict=True
        ):
            key = partitions[code]
            files[key] = (*files.get(key, ()), (bucket, f"{metadata.INDEX_FOLDER}/{name}"))
    return HashIndex(
        columns=metadata.key_of(schema),
        files=files,
        folder=metadata.INDEX_FOLDER,
        target_rows=max(options.read(schema).dynamic_bucket_target_row_num, 1),
        max_buckets=most if most > 0 else None,
    )


def _key_places(base: State, reader: Reader) -> KeyPlaces:
    """The existing buckets if keys may change partitions; their keys are read from their rows."""
    schema = base.schema
    most = options.read(schema).dynamic_bucket_max_buckets
    live = manifest.live_entries(reader, base.document, schema)
    counted = live.group_by(["_PARTITION", "_BUCKET"]).aggregate([("_ROW_COUNT", "sum")])
    row_counts: dict[str, dict[int, int]] = {}
    if len(counted):
        codes, values = manifest.partitions(counted, schema)
        partitions = [repr(v) for v in manifest.partition_values(values, schema)]
        for code, bucket, count in zip(
            codes, counted["_BUCKET"].to_pylist(), counted["_ROW_COUNT_sum"].to_pylist(), strict=True
        ):
            row_counts.setdefault(partitions[code], {})[bucket] = count
    return KeyPlaces(
        key=schema.primary_key,
        partition=schema.partitioning.names,
        rows=row_counts,
        target_rows=max(options.read(schema).dynamic_bucket_target_row_num, 1),
        max_buckets=most if most > 0 else None,
        removes_late=options.read(schema).has_vectors and options.read(schema).hides_level_0,
    )


def _next_numbers(base: State, reader: Reader) -> dict[str, int]:
    """The next sequence number by folder. Folders that partitions share (null, empty) continue from the largest."""
    live = manifest.live_entries(reader, base.document, base.schema)
    if len(live) == 0:
        return {}
    taken = live.group_by(["_PARTITION", "_BUCKET"]).aggregate([("_MAX_SEQUENCE_NUMBER", "max")])
    codes, values = manifest.partitions(taken, base.schema)
    partitions, folder_of = manifest.partition_values(values, base.schema), directory(base.schema)
    following: dict[str, int] = {}
    for code, bucket, last in zip(
        codes, taken["_BUCKET"].to_pylist(), taken["_MAX_SEQUENCE_NUMBER_max"].to_pylist(), strict=True
    ):
        folder = folder_of(partitions[code], bucket)
        following[folder] = max(following.get(folder, 0), last + 1)
    return following


def _fits_avro(field: Field) -> bool:
    match field.type:
        case Scalar(Kind.VARIANT):
            return False
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)) if digits > 6:
            return False
    return metadata.AVRO_NAME.fullmatch(field.name) is not None


def file_indexes(schema: Schema) -> FileIndexes | None:
    """The file indexes of columns. Raises `InvalidInput` for columns that cannot have one. Indexes of map keys
    (`column[key]`) are not written."""
    table_options = options.read(schema)
    indexes = []
    for kind, names, settings in (
        (file_index.BLOOM_FILTER, table_options.bloom_filter_columns, _of_bloom_filter),
        ("bitmap", table_options.bitmap_columns, _of_bitmap),
        ("bsi", table_options.bit_slice_columns, None),
    ):
        for name in names:
            if name.endswith("]"):
                continue
            subject = f"table at schema {schema.id}: file-index.{kind}.columns names {name!r}"
            if name not in schema.names:
                raise InvalidInput(f"{subject}, which is not a column; there are {', '.join(schema.names)}")
            if not file_index.is_for(kind, schema.field(name).type):
                raise InvalidInput(
                    f"{subject}, a {schema.field(name).type}, of which there are no such indexes; leave it out"
                )
            indexes.append(ColumnIndex(name, kind, settings(schema, name) if settings else ()))
    return FileIndexes(tuple(indexes), table_options.file_index_embedded) if indexes else None


def _of_bloom_filter(schema: Schema, name: str) -> tuple[float, ...]:
    """(the number of distinct values that the filter of a column is sized for, its false positive rate)."""
    items, share = (schema.properties.get(f"file-index.bloom-filter.{name}.{what}") for what in ("items", "fpp"))
    if items is not None and (not items.strip().isdigit() or not int(items)):
        raise InvalidInput(
            f"table at schema {schema.id}: file-index.bloom-filter.{name}.items={items}: it is a number of values"
        )
    if share is not None and not _SHARE.fullmatch(share.strip()):
        raise InvalidInput(
            f"table at schema {schema.id}: file-index.bloom-filter.{name}.fpp={share}: it lies between 0 and 1"
        )
    return int(items or 1_000_000), float(share or 0.1)


def _of_bitmap(schema: Schema, name: str) -> tuple[float, ...]:
    """(the version of a column's bitmap index, the bytes of a block)."""
    version, block = (
        schema.properties.get(f"file-index.bitmap.{name}.{what}") for what in ("version", "index-block-size")
    )
    if version is not None and version.strip() not in ("1", "2"):
        raise InvalidInput(f"table at schema {schema.id}: file-index.bitmap.{name}.version={version}: it is 1 or 2")
    return int(version or 2), options.positive(f"file-index.bitmap.{name}.index-block-size", block or "16 kb")


def _mode(text: str) -> tuple[StatsMode, int]:
    if match := _MODE.fullmatch(text.strip().lower()):
        return StatsMode(match[1] or StatsMode.TRUNCATE), int(match[2] or 0)
    raise InvalidInput(f"stats mode {text!r}: it must be none, counts, full or truncate(length)")


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _legacy_text(value: Any, kind: Type) -> str:
    """Java's `toString` of Paimon's internal value: days for dates, milliseconds for times."""
    match kind:
        case Scalar(Kind.DATE):
            return str((value - datetime.date(1970, 1, 1)).days)
        case Scalar(Kind.TIME):
            return str(_milliseconds(value))
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)):
            return _local_date_time(value, digits)
        case _:
            return sql_text(value, kind)


def sql_text(value: Any, kind: Type) -> str:
    """The value cast to a string, as SQL does it."""
    match kind:
        case Scalar(Kind.BOOLEAN):
            return "true" if value else "false"
        case Scalar(Kind.FLOAT):
            return _java_float(float(np.float32(value)), str(np.float32(value)))
        case Scalar(Kind.DOUBLE):
            return _java_float(value, repr(float(value)))
        case Scalar(Kind.DECIMAL, (_, scale)):
            return f"{Decimal(value):.{scale}f}"
        case Scalar(Kind.DATE):
            return value.isoformat()
        case Scalar(Kind.TIME, (digits,)):
            seconds, fraction = divmod(_milliseconds(value), 1000)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            return f"{clock}.{fraction:03}"[: 9 + digits] if digits else clock
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)):
            whole, nanos = _split(value, digits)
            clock = whole.isoformat(" ", "seconds")
            return f"{clock}.{nanos:09}"[: 20 + digits] if digits else clock
        case Scalar(Kind.BINARY | Kind.VARBINARY | Kind.BYTES):
            return value.decode("utf-8", "replace")
        case _:
            return str(value)


def _milliseconds(value: datetime.time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def _split(value: int, digits: int) -> tuple[datetime.datetime, int]:
    """An Arrow integer of a timestamp -> (its whole second, the remaining nanoseconds)."""
    per_second = 1000 if digits <= 3 else 1_000_000 if digits <= 6 else 1_000_000_000
    seconds, rest = divmod(value, per_second)
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds), rest * (1_000_000_000 // per_second)


def _local_date_time(value: int, digits: int) -> str:
    """As `LocalDateTime.toString`: no zero seconds, fractions in groups of three digits."""
    whole, nanos = _split(value, digits)
    text = whole.isoformat("T", "minutes")
    if whole.second or nanos:
        text += f":{whole:%S}"
    if nanos:
        fraction = f"{nanos:09}"
        text += "." + (fraction[:3] if nanos % 1_000_000 == 0 else fraction[:6] if nanos % 1000 == 0 else fraction)
    return text


def _java_float(value: float, shortest: str) -> str:
    """As `Double.toString`, from the shortest digits that round-trip; at least two."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    sign, digits, exponent = EXACT.normalize(Decimal(shortest)).as_tuple()
    if len(digits) == 1:
        sign, digits, exponent = EXACT.normalize(Decimal(f"{value:.1e}")).as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)  # 0.d1d2... * 10^point
    if -3 < point <= 7:
        text = text.ljust(point, "0") if point > 0 else "0" * (1 - point) + text
        whole = max(point, 1)
        shown = f"{text[:whole]}.{text[whole:] or '0'}"
    else:
        shown = f"{text[0]}.{text[1:] or '0'}E{point - 1}"
    return "-" + shown if sign else shown
