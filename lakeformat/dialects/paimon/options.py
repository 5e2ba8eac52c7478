"""Paimon's table options as typed values with the defaults of CoreOptions, and which of them are known, refused, or set
once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lakeformat.codec.variant import shredding as variant_shredding
from lakeformat.dialects.dialect import WAITS_MS
from lakeformat.dialects.paimon import types
from lakeformat.errors import InvalidInput, LakeError, UnsupportedFeature
from lakeformat.model import option_keys
from lakeformat.model.dataclass import dataclass
from lakeformat.model.option import Option, Parser, as_text, declared, read_by_key
from lakeformat.model.option_keys import Documented
from lakeformat.model.schema import Schema

Options = Mapping[str, str]

SEQUENCE_GROUP = ".sequence-group"  # fields.<columns>.sequence-group: columns in key and value.
# One option and its older names, for every merge engine; the first that is set counts.
_IGNORE_DELETE = (
    "ignore-delete",
    "first-row.ignore-delete",
    "deduplicate.ignore-delete",
    "partial-update.ignore-delete",
)
_SIZE = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_SIZE_UNITS = {
    "": 1, "b": 1, "bytes": 1, "k": 1 << 10, "kb": 1 << 10, "kibibytes": 1 << 10, "m": 1 << 20, "mb": 1 << 20,
    "mebibytes": 1 << 20, "g": 1 << 30, "gb": 1 << 30, "t": 1 << 40, "tb": 1 << 40,
}  # fmt: skip
_TIME_UNITS = {
    "": 1, "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1, "s": 1000, "sec": 1000, "secs": 1000,
    "second": 1000, "seconds": 1000, "min": 60_000, "m": 60_000, "minute": 60_000, "minutes": 60_000, "h": 3_600_000,
    "hour": 3_600_000, "hours": 3_600_000, "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_AVRO_CODECS = {
    "zstd": "zstandard", "zstandard": "zstandard", "none": "null", "uncompressed": "null", "null": "null",
    "gzip": "deflate", "deflate": "deflate", "snappy": "snappy", "bzip2": "bzip2", "xz": "xz", "lz4": "zstandard",
}  # fmt: skip
_COMPRESSIONS = {
    "parquet": {"none", "uncompressed", "zstd", "snappy", "gzip", "lz4", "brotli"},
    "orc": {"none", "uncompressed", "zstd", "snappy", "zlib", "lz4"},
    "avro": _AVRO_CODECS.keys() - {"lz4"},
}


def integer(key: str, text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"option {key!r} is {text!r}; it must be a whole number") from None


def size(key: str, text: str) -> int:
    """A memory size such as `128 mb`, in bytes."""
    match = _SIZE.fullmatch(text)
    if not match or match[2].lower() not in _SIZE_UNITS:
        raise InvalidInput(f"option {key!r} is {text!r}; it must be a size such as '128 mb'")
    return int(match[1]) * _SIZE_UNITS[match[2].lower()]


def positive(key: str, text: str) -> int:
    """A size above zero."""
    number = size(key, text)
    if number <= 0:
        raise InvalidInput(f"option {key!r} is {text!r}; it must be above zero")
    return number


def share(key: str, text: str) -> float:
    """A number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InvalidInput(f"option {key!r} is {text!r}; it must be a number from 0 to 1")
    return number


def duration(key: str, text: str) -> int:
    """A duration such as `1 h`, in milliseconds."""
    match = _SIZE.fullmatch(text)
    if not match or match[2].lower() not in _TIME_UNITS:
        raise InvalidInput(f"option {key!r} is {text!r}; it must be a duration such as '1 h'")
    return int(match[1]) * _TIME_UNITS[match[2].lower()]


def boolean(key: str, text: str) -> bool:
    """`true` or `false`."""
    if text.strip().lower() not in {"true", "false"}:
        raise InvalidInput(f"option {key!r} is {text!r}; it must be 'true' or 'false'")
    return text.strip().lower() == "true"


def names(key: str, text: str) -> tuple[str, ...]:
    """A list of names with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _word(key: str, text: str) -> str:
    return text.strip().lower()


def _one_of(*choices: str) -> Parser[str]:
    def parse(key: str, text: str) -> str:
        word = _word(key, text)
        if word not in choices:
            known = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
            raise InvalidInput(f"option {key!r} is {word!r}; it must be {known}")
        return word

    return parse


def _file_format(key: str, text: str) -> str:
    name = text.lower()
    if name not in _COMPRESSIONS:
        raise UnsupportedFeature(f"option {key!r} is {name!r}; lakeformat reads and writes parquet, orc and avro")
    return name


def _avro_codec(key: str, text: str) -> str:
    if text.lower() not in _AVRO_CODECS:
        raise InvalidInput(f"option {key!r} is {text.lower()!r}; it must be one of {', '.join(_AVRO_CODECS)}")
    return _AVRO_CODECS[text.lower()]


def _level_count(key: str, text: str) -> int:
    count = integer(key, text)
    if count < 2:
        raise InvalidInput(f"option {key!r} is {count}; it must be at least 2")
    return count


def _count(key: str, text: str) -> int:
    count = integer(key, text)
    if count < 0:
        raise InvalidInput(f"option {key!r} is {count}; it must be 0 or more")
    return count


def _iceberg_storage(key: str, text: str) -> str:
    if _word(key, text) == "hive-catalog":
        raise UnsupportedFeature(
            f"option {key!r} is {text!r}: lakeformat registers Iceberg metadata in no Hive metastore; use "
            "table-location, hadoop-catalog or rest-catalog, and register the table there"
        )
    return _one_of("disabled", "table-location", "hadoop-catalog", "rest-catalog")(key, text)


def _iceberg_version(key: str, text: str) -> int:
    return int(_one_of("2", "3")(key, text))


def _iceberg_codec(key: str, text: str) -> str:
    """The codec's name in Iceberg's own option; Paimon uses Avro's names."""
    iceberg_codecs = {"deflate": "gzip", "snappy": "snappy", "zstandard": "zstd", "null": "none"}
    codec = _avro_codec(key, text)
    if codec not in iceberg_codecs:
        raise InvalidInput(f"option {key!r} is {text!r}; Iceberg's readers know deflate, snappy, zstd and none")
    return iceberg_codecs[codec]


def _shredding_schema(key: str, text: str) -> Mapping[str, Any]:
    """A row type as schema JSON -> by column name the parts, as in `variant_shredding.Options`."""
    try:
        schema = _parts(json.loads(text))
    except (ValueError, KeyError, TypeError, LakeError) as error:
        raise InvalidInput(
            f"option {key!r} is {text!r}: it must be a row type as Paimon's schema JSON has it: {error}"
        ) from error
    if not isinstance(schema, dict):
        raise InvalidInput(f"option {key!r} is {text!r}; it must be a row type whose fields are columns")
    return schema


def _parts(type: Any) -> Any:
    if isinstance(type, str):
        return str(types.parse_type(type)[0])
    match type["type"].removesuffix(" NOT NULL"):
        case "ROW":
            return {field["name"]: _parts(field["type"]) for field in type["fields"]}
        case "ARRAY":
            return [_parts(type["element"])]
        case other:
            raise ValueError(f"variants have no {other}")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of a table at one schema. An attribute raises `InvalidInput` if its text does not parse; options that
    are not read may have any text."""

    schema: Schema

    @property
    def properties(self) -> Options:
        return self.schema.properties

    blob_as_descriptor = Option("blob-as-descriptor", boolean, False, dynamic=True)
    blob_descriptor_field = Option("blob-descriptor-field", names, ())
    blob_field = Option("blob-field", names, ())
    blob_target_file_size = Option[int | None]("blob.target-file-size", positive, None, dynamic=True)
    branch_merge_enabled = Option("branch-merge.enabled", boolean, False, fixed=True)
    bucket = Option("bucket", integer, -1)
    bucket_function_type = Option("bucket-function.type", as_text, "default", fixed=True)
    bucket_key = Option("bucket-key", names, (), fixed=True, of_columns=True)
    changelog_file_prefix = Option("changelog-file.prefix", as_text, "changelog-")
    changelog_num_retained_max = Option[int | None]("changelog.num-retained.max", integer, None)
    changelog_num_retained_min = Option[int | None]("changelog.num-retained.min", integer, None)
    changelog_producer = Option(
        "changelog-producer", _one_of("none", "input", "lookup", "full-compaction"), "none", fixed=True
    )
    changelog_producer_row_deduplicate = Option("changelog-producer.row-deduplicate", boolean, False)
    changelog_producer_row_deduplicate_ignore_fields = Option[tuple[str, ...]](
        "changelog-producer.row-deduplicate-ignore-fields", names, (), of_columns=True
    )
    changelog_time_retained = Option[int | None]("changelog.time-retained", duration, None)
    commit_force_compact = Option("commit.force-compact", boolean, False, dynamic=True)
    commit_max_retries = Option("commit.max-retries", integer, 10, dynamic=True)
    commit_max_retry_wait = Option("commit.max-retry-wait", duration, WAITS_MS[1], dynamic=True)
    commit_min_retry_wait = Option("commit.min-retry-wait", duration, WAITS_MS[0], dynamic=True)
    compaction_delete_ratio_threshold = Option("compaction.delete-ratio-threshold", share, 0.2, dynamic=True)
    compaction_file_size = Option[int | None]("compaction.file-size", size, None, dynamic=True)
    compaction_incremental_size_threshold = Option[int | None](
        "compaction.incremental-size-threshold", size, None, dynamic=True
    )
    compaction_max_size_amplification_percent = Option(
        "compaction.max-size-amplification-percent", integer, 200, dynamic=True
    )
    compaction_min_file_num = Option("compaction.min.file-num", integer, 5, dynamic=True)
    compaction_offpeak_end_hour = Option("compaction.offpeak.end.hour", integer, -1, dynamic=True)
    compaction_offpeak_ratio = Option("compaction.offpeak-ratio", integer, 0, dynamic=True)
    compaction_offpeak_start_hour = Option("compaction.offpeak.start.hour", integer, -1, dynamic=True)
    compaction_optimization_interval = Option[int | None](
        "compaction.optimization-interval", duration, None, dynamic=True
    )
    compaction_size_ratio = Option("compaction.size-ratio", integer, 1, dynamic=True)
    compaction_total_size_threshold = Option("compaction.total-size-threshold", size, 0, dynamic=True)
    consumer_changelog_only = Option("consumer.changelog-only", boolean, False)
    data_file_path_directory = Option("data-file.path-directory", as_text, "", fixed=True)
    data_file_prefix = Option("data-file.prefix", as_text, "data-", dynamic=True)
    data_file_thin_mode = Option("data-file.thin-mode", boolean, False)
    data_evolution_enabled = Option("data-evolution.enabled", boolean, False, fixed=True)
    deletion_vector_index_file_target_size = Option(
        "deletion-vector.index-file.target-size", positive, 2 << 20, dynamic=True
    )
    deletion_vectors_bitmap64 = Option("deletion-vectors.bitmap64", boolean, False)
    deletion_vectors_enabled = Option("deletion-vectors.enabled", boolean, False)
    deletion_vectors_merge_on_read = Option("deletion-vectors.merge-on-read", boolean, False)
    dynamic_bucket_max_buckets = Option("dynamic-bucket.max-buckets", integer, -1)
    dynamic_bucket_target_row_num = Option("dynamic-bucket.target-row-num", integer, 2_000_000, dynamic=True)
    bloom_filter_columns = Option[tuple[str, ...]]("file-index.bloom-filter.columns", names, (), of_columns=True)
    bitmap_columns = Option[tuple[str, ...]]("file-index.bitmap.columns", names, (), of_columns=True)
    bit_slice_columns = Option[tuple[str, ...]]("file-index.bsi.columns", names, (), of_columns=True)
    file_index_embedded = Option("file-index.in-manifest-threshold", size, 500, dynamic=True)
    file_index_read_enabled = Option("file-index.read.enabled", boolean, True, dynamic=True)
    file_block_size = Option[int | None]("file.block-size", positive, None, dynamic=True)
    file_compression = Option("file.compression", _word, "zstd", dynamic=True)
    file_compression_zstd_level = Option("file.compression.zstd-level", integer, 1, dynamic=True)
    file_format = Option("file.format", _file_format, "parquet", dynamic=True)
    force_lookup = Option("force-lookup", boolean, False)
    full_compaction_delta_commits = Option[int | None]("full-compaction.delta-commits", integer, None, dynamic=True)
    global_index_column_update_action = Option("global-index.column-update-action", _word, "throw_error")
    global_index_enabled = Option("global-index.enabled", boolean, True, dynamic=True)
    ignore_update_before = Option("ignore-update-before", boolean, False)
    index_file_in_data_file_dir = Option("index-file-in-data-file-dir", boolean, False)
    lookup_wait = Option("lookup-wait", boolean, True)
    manifest_codec = Option("manifest.compression", _avro_codec, "zstandard", dynamic=True)
    manifest_full_compaction_threshold_size = Option(
        "manifest.full-compaction-threshold-size", size, 16 << 20, dynamic=True
    )
    manifest_merge_min_count = Option("manifest.merge-min-count", integer, 30, dynamic=True)
    manifest_target_file_size = Option("manifest.target-file-size", positive, 8 << 20, dynamic=True)
    merge_engine = Option("merge-engine", _word, "deduplicate", fixed=True)
    metadata_iceberg_compaction_max_file_num = Option("metadata.iceberg.compaction.max.file-num", integer, 50)
    metadata_iceberg_delete_after_commit = Option("metadata.iceberg.delete-after-commit.enabled", boolean, True)
    metadata_iceberg_format_version = Option("metadata.iceberg.format-version", _iceberg_version, 2)
    # Java's default is snappy, for which pyiceberg needs another library; every reader has deflate.
    metadata_iceberg_manifest_compression = Option("metadata.iceberg.manifest-compression", _iceberg_codec, "gzip")
    metadata_iceberg_previous_versions_max = Option("metadata.iceberg.previous-versions-max", _count, 0)
    metadata_iceberg_storage = Option("metadata.iceberg.storage", _iceberg_storage, "disabled")
    metadata_iceberg_storage_location = Option[str | None](
        "metadata.iceberg.storage-location", _one_of("table-location", "catalog-location"), None
    )
    metadata_stats_dense_store = Option("metadata.stats-dense-store", boolean, True, dynamic=True)
    metadata_stats_mode = Option("metadata.stats-mode", as_text, "truncate(16)", dynamic=True)
    num_levels = Option[int | None]("num-levels", _level_count, None)
    num_sorted_run_compaction_trigger = Option("num-sorted-run.compaction-trigger", integer, 5, dynamic=True)
    num_sorted_run_stop_trigger = Option[int | None]("num-sorted-run.stop-trigger", integer, None, dynamic=True)
    overwrite_upgrade = Option("overwrite-upgrade", boolean, True)
    partial_update_remove_record_on_sequence_group = Option[tuple[str, ...]](
        "partial-update.remove-record-on-sequence-group", names, (), of_columns=True
    )
    partition_default_name = Option("partition.default-name", as_text, "__DEFAULT_PARTITION__", fixed=True)
    partition_expiration_max_num = Option("partition.expiration-max-num", integer, 100)
    partition_expiration_strategy = Option("partition.expiration-strategy", as_text, "values-time")
    partition_expiration_time = Option[int | None]("partition.expiration-time", duration, None)
    partition_legacy_name = Option("partition.legacy-name", boolean, True, fixed=True)
    postpone_default_bucket_num = Option[int | None]("postpone.default-bucket-num", positive, None)
    postpone_max_buckets = Option("postpone.batch-write-fixed-bucket.max-parallelism", positive, 2048)
    postpone_target_row_num = Option[int | None]("postpone.target-row-num-per-bucket", positive, None)
    postpone_target_size = Option("postpone.target-size-per-bucket", positive, 1 << 30)
    record_level_expire_time = Option[int | None]("record-level.expire-time", duration, None)
    record_level_time_field = Option[str | None]("record-level.time-field", as_text, None, of_columns=True)
    row_tracking_enabled = Option("row-tracking.enabled", boolean, False, fixed=True)
    rowkind_field = Option[tuple[str, ...]]("rowkind.field", names, (), fixed=True, of_columns=True)
    scan_fallback_branch = Option("scan.fallback-branch", _word, "")
    sequence_field = Option[tuple[str, ...]]("sequence.field", names, (), fixed=True, of_columns=True)
    sequence_field_sort_order = Option("sequence.field.sort-order", _one_of("ascending", "descending"), "ascending")
    sequence_snapshot_ordering = Option("sequence.snapshot-ordering", boolean, False, fixed=True)
    snapshot_clean_empty_directories = Option("snapshot.clean-empty-directories", boolean, False)
    snapshot_expire_limit = Option("snapshot.expire.limit", integer, 50)
    snapshot_num_retained_max = Option("snapshot.num-retained.max", integer, 2**31 - 1)
    snapshot_num_retained_min = Option("snapshot.num-retained.min", integer, 10)
    snapshot_time_retained = Option("snapshot.time-retained", duration, 3_600_000)
    source_split_open_file_cost = Option("source.split.open-file-cost", size, 4 << 20, dynamic=True)
    source_split_target_size = Option("source.split.target-size", size, 128 << 20, dynamic=True)
    sink_watermark_time_zone = Option("sink.watermark-time-zone", as_text, "UTC")
    tag_automatic_completion = Option("tag.automatic-completion", boolean, False)
    tag_automatic_creation = Option(
        "tag.automatic-creation", _one_of("none", "process-time", "watermark", "batch"), "none"
    )
    tag_batch_customized_name = Option[str | None]("tag.batch.customized-name", as_text, None)
    tag_creation_delay = Option("tag.creation-delay", duration, 0)
    tag_creation_period = Option("tag.creation-period", _one_of("daily", "hourly", "two-hours"), "daily")
    tag_creation_period_duration = Option[int | None]("tag.creation-period-duration", duration, None)
    tag_default_time_retained = Option[int | None]("tag.default-time-retained", duration, None)
    tag_num_retained_max = Option[int | None]("tag.num-retained-max", positive, None)
    tag_period_formatter = Option(
        "tag.period-formatter",
        _one_of("with_dashes", "without_dashes", "without_dashes_and_spaces"),
        "with_dashes",
    )
    target_file_size = Option[int | None]("target-file-size", positive, None, dynamic=True)
    # Java's default is 10, after which all writers spill to disk; here only those without an open file do.
    write_max_writers_to_spill = Option("write-max-writers-to-spill", positive, 64, dynamic=True)
    variant_infer_shredding_schema = Option("variant.inferShreddingSchema", boolean, False, dynamic=True)
    variant_shredding_max_infer_buffer_row = Option("variant.shredding.maxInferBufferRow", positive, 4096, dynamic=True)
    variant_shredding_max_schema_depth = Option("variant.shredding.maxSchemaDepth", integer, 50, dynamic=True)
    variant_shredding_max_schema_width = Option("variant.shredding.maxSchemaWidth", integer, 300, dynamic=True)
    variant_shredding_min_field_cardinality_ratio = Option(
        "variant.shredding.minFieldCardinalityRatio", share, 0.1, dynamic=True
    )
    variant_shredding_schema = Option[Mapping[str, Any]]("variant.shreddingSchema", _shredding_schema, {})
    # Its name before Paimon 1.4.
    parquet_variant_shredding_schema = Option[Mapping[str, Any]](
        "parquet.variant.shreddingSchema", _shredding_schema, {}
    )
    write_only = Option("write-only", boolean, False, dynamic=True)

    @property
    def shredding(self) -> str | None:
        """Which parts of variants are shredded into columns, as in `WriteTask`; None if none are. A given schema is
        used instead of inference."""
        named = self.variant_shredding_schema or self.parquet_variant_shredding_schema
        if not named and not self.variant_infer_shredding_schema:
            return None
        limits = variant_shredding.Limits(
            self.variant_shredding_max_infer_buffer_row,
            self.variant_shredding_max_schema_width,
            self.variant_shredding_max_schema_depth,
            self.variant_shredding_min_field_cardinality_ratio,
        )
        return variant_shredding.Options(None if named else limits, named, all_types=False).emit()

    @property
    def columns_in_blobs(self) -> frozenset[str]:
        """The BLOB columns whose values are in blob files; data files have the others, as descriptors."""
        return frozenset(self.blob_field).difference(self.blob_descriptor_field)

    @property
    def has_vectors(self) -> bool:
        """Whether deletion vectors mark deleted rows of files."""
        return self.deletion_vectors_enabled

    @property
    def shows_vectors(self) -> bool:
        """Whether Iceberg metadata can represent the deletion vectors: from version 3 on, those of 64 bits."""
        return self.has_vectors and self.deletion_vectors_bitmap64 and self.metadata_iceberg_format_version >= 3

    @property
    def indexed_columns(self) -> frozenset[str]:
        """The columns whose file indexes are read."""
        return frozenset((*self.bloom_filter_columns, *self.bitmap_columns, *self.bit_slice_columns))

    @property
    def keeps_first_row(self) -> bool:
        """`merge-engine` = `first-row`: the first row of a key is kept. Then no two levels above 0 have the same key,
        and other engines read these levels without merging (MergeTreeSplitGenerator)."""
        return self.merge_engine == "first-row"

    @property
    def hides_level_0(self) -> bool:
        """Whether rows of level 0 in a table with a primary key are invisible until compaction
        (CoreOptions.batchScanSkipLevel0)."""
        return not self.deletion_vectors_merge_on_read if self.has_vectors else self.keeps_first_row

    @property
    def empties_level_0(self) -> bool:
        """Whether every write compacts its rows out of level 0 (CoreOptions.needLookup): to make them visible, or for
        the changelog."""
        return self.has_vectors or self.keeps_first_row or self.looks_up

    @property
    def looks_up(self) -> bool:
        """Whether rows leave level 0 merged with the rows of their keys on all levels above (CoreOptions.needLookup):
        then the lowest of these levels has the complete row. It makes no difference with deletion vectors, which delete
        the others, or if the first row of a key is kept."""
        return self.changelog_producer == "lookup" or self.force_lookup

    @property
    def snapshots_kept(self) -> tuple[int, int, int]:
        """(at least so many, at most so many, for so many milliseconds)."""
        return self.snapshot_num_retained_min, self.snapshot_num_retained_max, self.snapshot_time_retained

    @property
    def changelogs_kept(self) -> tuple[int, int, int]:
        """As `snapshots_kept`, whose values are the defaults."""
        own = self.changelog_num_retained_min, self.changelog_num_retained_max, self.changelog_time_retained
        least, most, kept_ms = (a if a is not None else b for a, b in zip(own, self.snapshots_kept, strict=True))
        return least, most, kept_ms

    @property
    def expires_with_commits(self) -> bool:
        """Whether commits are followed by expiry: if the table sets a retention and is not `write-only`."""
        asking = ("num-retained.min", "num-retained.max", "time-retained", "expire.limit")
        return any(f"snapshot.{key}" in self.schema.properties for key in asking) and not self.write_only

    @property
    def outlives_snapshots(self) -> bool:
        """Whether changelogs are kept longer than snapshots."""
        return any(own > of for own, of in zip(self.changelogs_kept, self.snapshots_kept, strict=True))

    @property
    def target_file_bytes(self) -> int:
        """`target-file-size`: 128 MiB with a primary key, else 256."""
        return self.target_file_size or (128 if self.schema.primary_key else 256) << 20

    @property
    def small_file_bytes(self) -> int:
        """`compaction.file-size`: smaller files are worth compacting; by default 70 % of the target size."""
        own = self.compaction_file_size
        return self.target_file_bytes // 10 * 7 if own is None else own

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns of which one must differ for an update to be in the changelog
        (`changelog-producer.row-deduplicate`); empty: every update is."""
        if not self.changelog_producer_row_deduplicate:
            return ()
        ignored = self.changelog_producer_row_deduplicate_ignore_fields
        return tuple(name for name in self.schema.names if name not in ignored)

    @property
    def level_count(self) -> int:
        """`num-levels`: by default one more than the number of sorted runs that triggers compaction."""
        return self.num_levels or _level_count("num-levels", str(self.num_sorted_run_compaction_trigger + 1))

    def compression(self) -> str:
        """`file.compression`. Raises `InvalidInput` for a codec that the file format does not have."""
        format, value = self.file_format, self.file_compression
        if value not in _COMPRESSIONS[format]:
            raise InvalidInput(
                f"option 'file.compression' is {value!r}; {format} files know "
                f"{', '.join(sorted(_COMPRESSIONS[format]))}"
            )
        return value

    @property
    def delta_commits(self) -> int:
        """`full-compaction.delta-commits`: by default 0, or 1 with that changelog producer."""
        own = self.full_compaction_delta_commits
        return int(self.changelog_producer == "full-compaction") if own is None else own

    @property
    def stop_trigger(self) -> int:
        """`num-sorted-run.stop-trigger`: by default three more than the number that triggers compaction."""
        own = self.num_sorted_run_stop_trigger
        return self.num_sorted_run_compaction_trigger + 3 if own is None else own

    @property
    def ignore_delete(self) -> bool:
        """Whether retractions are ignored."""
        given = self.schema.properties
        return next((boolean(key, given[key]) for key in _IGNORE_DELETE if key in given), False)


read = TableOptions


ACCEPTED = "lakeformat.accepted-options"

# Options that are read by their keys. A `*` stands for a name.
_BY_KEY = (
    *read_by_key(ACCEPTED, *_IGNORE_DELETE),
    *read_by_key(
        "orc.stripe.size", "parquet.block.size", "parquet.dictionary.page.size", "parquet.enable.dictionary",
        "parquet.page.size", dynamic=True,
    ),
    *read_by_key("partition", "primary-key", fixed=True),
    *read_by_key(
        "aggregation.remove-record-on-delete", "dynamic-partition-overwrite", "fields.*.aggregate-function",
        "fields.*.count-limit",
        "fields.*.distinct", "fields.*.ignore-retract", "fields.*.list-agg-delimiter", "fields.*.nested-key",
        "fields.*.nested-key-null-strategy", "fields.*.nested-sequence-field", "fields.*.sequence-group",
        "fields.*.stats-mode", "fields.*.ts-field", "fields.default-aggregate-function",
        "file-index.bitmap.*.index-block-size", "file-index.bitmap.*.version", "file-index.bloom-filter.*.fpp",
        "file-index.bloom-filter.*.items", "format-table.partition-path-only-value", "metadata.iceberg.database",
        "metadata.iceberg.rest.*", "metadata.iceberg.table", "partial-update.remove-record-on-delete",
        "partition.mark-done-action", "partition.timestamp-formatter", "partition.timestamp-pattern",
    ),
)  # fmt: skip

# The other keys of CoreOptions, of Paimon's Flink and Spark connectors and of its Iceberg compatibility.
_IGNORED = """
    add-column-before-partition alter-column-null-to-not-null.disabled append-compact-remove-dangling-deletes
    async-file-write auto-create avro.* bitmap-index.* blob-compaction.enabled blob-external-storage-path
    blob-view.resolve.enabled blob-write-null-on-missing-file blob.split-by-file-size branch btree-index.*
    bucket-append-only bucket-append-ordered cache-page-size catalog-default-db chain-table.chain-partition-keys
    changelog-file.compression changelog-file.format changelog-file.stats-mode changelog.precommit-compact
    changelog.precommit-compact.thread-num clustering.columns clustering.history-partition.idle-to-full-sort
    clustering.history-partition.limit clustering.incremental.mode clustering.incremental.optimize-write
    clustering.strategy commit.callback.*.param commit.callbacks commit.custom-listeners
    commit.discard-duplicate-files commit.force-create-snapshot commit.strict-mode.last-safe-snapshot commit.timeout
    commit.user-prefix compaction.bucket-distribution-strategy compaction.early-max.file-num
    compaction.file-num-limit compaction.force-rewrite-all-files compaction.force-up-level-0 compaction.max.file-num
    compaction.skip-expired-partitions compaction.small-file-ratio consumer-id consumer.expiration-time
    consumer.ignore-progress consumer.mode continuous.discovery-interval
    cross-partition-upsert.bootstrap-parallelism cross-partition-upsert.index-ttl csv.*
    data-evolution.merge-into.file-pruning data-evolution.merge-into.source-persist
    data-evolution.row-sidecar.enabled data-evolution.row-sidecar.max-selected-rows
    data-evolution.row-sidecar.max-selection-ratio data-file.external-paths.specific-fs
    data-file.external-paths.strategy data-file.external-paths.weights delete.force-produce-changelog
    deletion-vectors.modifiable disable-alter-column-null-to-not-null disable-explicit-type-casting dlf.*
    dynamic-bucket.assigner-parallelism dynamic-bucket.initial-buckets
    end-input.check-partition-expire end-input.watermark fields.*.default-value
    file-index.ngram-bloom-filter.columns file-index.range-bitmap.*.chunk-size file-index.range-bitmap.columns
    file-index.token-bloom-filter.columns file-operation.thread-num file-reader-async-threshold
    file.compression.per.level file.format.per.level file.suffix.include.compression
    filesystem.job-level-settings.enabled flink.* format-table.commit-hive-sync-url format-table.file.compression
    format-table.implementation format-table.repair.collect-statistics format-table.statistics.parallelism
    full-text-index.* global-index.build.max-parallelism global-index.build.max-shard global-index.external-path
    global-index.row-count-per-shard global-index.search-mode global-index.thread-num hive.* image-column
    incremental-between incremental-between-scan-mode incremental-between-tag-to-snapshot
    incremental-between-timestamp incremental-to-auto-tag json.* kafka.* lance.* legacy-timestamp-mapping.enabled
    local-merge-buffer-size local-sort.max-num-file-handles log.changelog-mode log.consistency log.format
    log.key.format log.scan log.scan.remove-normalize log.scan.timestamp-millis log.system log.system.auto-register
    lookup-compact lookup-compact.max-interval lookup.async lookup.async-thread-number lookup.bootstrap-parallelism
    lookup.cache lookup.cache-file-retention lookup.cache-max-disk-size lookup.cache-max-memory-size
    lookup.cache-rows lookup.cache-spill-compression lookup.cache.bloom.filter.enabled lookup.cache.bloom.filter.fpp
    lookup.cache.high-priority-pool-ratio lookup.dynamic-partition.refresh-interval
    lookup.dynamic-partition.refresh.async lookup.hash-load-factor lookup.local-file-type lookup.merge-buffer-size
    lookup.merge-records-threshold lookup.refresh.async lookup.refresh.async.pending-snapshot-count
    lookup.refresh.full-load-threshold lookup.refresh.time-periods-blacklist lookup.remote-file.enabled
    lookup.remote-file.level-threshold manifest-sort.enabled manifest-sort.max-rewrite-size
    manifest-sort.partition-field manifest.delete-file-drop-stats materialized-table.*
    metadata.iceberg.compaction.min.file-num metadata.iceberg.glue.skip-archive metadata.iceberg.hadoop-conf-dir
    metadata.iceberg.hive-client-class metadata.iceberg.hive-conf-dir metadata.iceberg.hive-skip-update-stats
    metadata.iceberg.manifest-legacy-version metadata.iceberg.uri metadata.stats-keep-first-n-columns
    metadata.stats-mode.per.level metastore.partitioned-table metastore.tag-to-partition
    metastore.tag-to-partition.preview mosaic.* need-lookup object-location orc.* page-size parquet.*
    partition.end-input-to-done partition.expiration-batch-size partition.expiration-check-interval
    partition.idle-time-to-done partition.idle-time-to-report-statistic partition.mark-done-action.custom.class
    partition.mark-done-action.http.params partition.mark-done-action.http.url partition.mark-done-action.mode
    partition.mark-done.recover-from-state partition.sink-strategy partition.time-interval
    partition.timestamp-format.strict path postpone.batch-write-fixed-bucket precommit-compact read.allow.fullScan
    read.batch-size read.changelog read.shuffle-bucket-with-partition read.stream.maxBytesPerTrigger
    read.stream.maxFilesPerTrigger read.stream.maxRowsPerTrigger read.stream.maxTriggerDelayMs
    read.stream.minRowsPerTrigger requiredSparkConfsCheck.enabled row-tracking.partition-group-on-commit
    rowkind.field-ignore scalar-index.* scan.bounded scan.bounded.watermark scan.creation-time-millis
    scan.dedicated-split-generation scan.fallback-branch.read-fail-fast scan.fallback-delta-branch
    scan.fallback-snapshot-branch scan.file-creation-time-millis scan.ignore-corrupt-files scan.ignore-lost-files
    scan.infer-parallelism scan.infer-parallelism.max scan.manifest.parallelism scan.max-snapshot.count
    scan.max-splits-per-task scan.mode scan.parallelism scan.partitions scan.plan-auto-tag-for-read.time-retained
    scan.plan-sort-partition scan.preserve-data-grouping scan.primary-branch scan.remove-normalize scan.snapshot-id
    scan.split-enumerator.batch-size scan.split-enumerator.mode scan.tag-name scan.timestamp scan.timestamp-millis
    scan.watermark scan.watermark.alignment.group scan.watermark.alignment.max-drift
    scan.watermark.alignment.update-interval scan.watermark.emit.strategy scan.watermark.idle-timeout
    schema-evolution.enabled sequence.auto-padding sink.clustering.sample-factor sink.clustering.sort-in-cluster
    sink.committer-cpu sink.committer-memory sink.committer-operator-chaining sink.coordinator-commit.enabled
    sink.cross-partition.managed-memory sink.key-only-deletes.enabled sink.managed.writer-buffer-memory
    sink.operator-uid.suffix sink.parallelism sink.process-time-zone sink.savepoint.auto-tag
    sink.use-managed-memory-allocator sink.writer-coordinator.cache-expire-after-access
    sink.writer-coordinator.cache-memory sink.writer-coordinator.cache-soft-values sink.writer-coordinator.enabled
    sink.writer-coordinator.page-size sink.writer-coordinator.prefetch-manifests sink.writer-cpu sink.writer-memory
    sink.writer-refresh-detectors snapshot.expire.execution-mode snapshot.ignore-empty-commit
    snapshot.watermark-idle-timeout sort-compaction.local-sample.magnification sort-compaction.range-strategy
    sort-engine sort-spill-buffer-size sort-spill-threshold sorted-index.* source.checkpoint-align.enabled
    source.checkpoint-align.timeout source.operator-uid.suffix source.split.target-size-with-column-pruning spark.*
    spill-compression spill-compression.zstd-level streaming-read-append-overwrite streaming-read-mode
    streaming-read-overwrite streaming.read.snapshot.delay table-read.sequence-number.enabled
    tag.callback.*.param tag.callbacks tag.create-success-file tag.time-expire-enabled
    unaware-bucket.compaction.parallelism unaware-bucket.no-shuffle upsert-key variant.shredding.inferenceMode
    vector-index.* vector-search.distribute.enabled vector-search.lateral-join.batch-size
    vector-search.lateral-join.parallelism vector.file.format vector.target-file-size
    visibility-callback.check-interval visibility-callback.enabled visibility-callback.timeout
    write-buffer-for-append write-buffer-size write-buffer-spill.max-disk-size write-buffer-spillable
    write-buffer-spillable.max-disk-size write-manifest-cache write-mode write.batch-memory write.batch-size
    write.data-evolution.update-conflict-retry.max-attempts write.data-evolution.update-conflict-retry.wait-ms
    write.hive-style-dynamic-partition.enabled write.merge-schema write.merge-schema.explicit-cast
    write.merge-schema.type-widening write.sequence-number-init-mode write.use-v2-write
    zorder.var-length-contribution
    """

# Features that lakeformat would only half understand: (key, whether the value asks for it, the message).
_REFUSED_ALWAYS: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("type", lambda v: v.lower() not in {"table", ""}, "a table of type {value} is not a data table of Paimon"),
    ("blob-view-field", lambda v: bool(v), "blob columns whose values are in other tables"),
    ("video-frame-field", lambda v: bool(v), "video files"),
    ("vector-field", lambda v: bool(v), "vector columns"),
    ("query-auth.enabled", lambda v: _true(v), "query authorization"),
    ("chain-table.enabled", lambda v: _true(v), "chain tables (rows of other branches)"),
    ("fallback-branch", lambda v: bool(v), "a fallback branch {value}"),
    ("pk-clustering-override", lambda v: _true(v), "files with a primary key in the order of other columns"),
)
_REFUSED_ON_WRITE: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    (
        "blob-descriptor-field",
        lambda v: bool(v),
        "blob columns whose values are outside the table; they are read, not written",
    ),
    ("blob-external-storage-field", lambda v: bool(v), "blob columns whose values are copied to another place"),
    ("clustering.incremental", lambda v: _true(v), "incremental clustering"),
    ("data-file.external-paths", lambda v: bool(v), "data files outside the table's folder"),
    ("index-file-in-data-file-dir", lambda v: _true(v), "index files beside data files"),
    ("manifest.format", lambda v: v.lower() != "avro", "manifests in {value}; they are read, not written"),
)

REFUSED = tuple(key for key, _, _ in (*_REFUSED_ALWAYS, *_REFUSED_ON_WRITE))
HEEDED = declared(TableOptions, _BY_KEY, read_by_key(*REFUSED))
DOCUMENTED = Documented.declared(HEEDED, _IGNORED)

# Set once, when the table is created.
_IMMUTABLE = {"path", "branch", "type"} | {key for key, option in HEEDED.items() if option.fixed}

# What readers and writers may do otherwise than the table says: it changes no row and no meaning of one.
_DYNAMIC = frozenset(key for key, option in HEEDED.items() if option.dynamic)

# Arguments of `create_table` here, and options in Flink's DDL.
_ARGUMENTS = {"primary-key": "primary_key=[...]", "partition": "partition_by=[...]"}


def require_readable(options: Options, where: str) -> None:
    """Raise `UnsupportedFeature` for a feature without which the rows would be read wrong."""
    _refuse(options, _REFUSED_ALWAYS, where)
    elsewhere = options.get("blob-descriptor-field")
    if elsewhere and not _true(options.get("blob-as-descriptor") or ""):
        raise UnsupportedFeature(
            f"{where}: blob-descriptor-field={elsewhere}: the values lie outside the table, and lakeformat does not "
            "follow them; set blob-as-descriptor=true (with another engine) to read where they are"
        )


def require_writable(options: Options, where: str) -> None:
    """Raise `UnsupportedFeature` for a feature that a write would have to implement, including any that an unknown
    option switches on."""
    require_readable(options, where)
    _refuse(options, _REFUSED_ON_WRITE, where)
    if switch := _unknown_switch(options):
        raise UnsupportedFeature(f"{where}: {switch}")


def check_new(options: Options, where: str) -> None:
    """Raise `InvalidInput` for invalid options: misspelt names, values that do not parse. Log those without effect."""
    check_values(options, where)
    for key, argument in _ARGUMENTS.items():
        if key in options:
            raise InvalidInput(f"{where}: option {key!r} is not set; give {argument}")
    option_keys.check(options, DOCUMENTED, "option", where)
    if switch := _unknown_switch(options):
        raise InvalidInput(f"{where}: {switch}")


def check_dynamic(options: Options, where: str) -> None:
    """Raise `InvalidInput` for values that do not parse and for unknown keys, and `UnsupportedFeature` for options that
    readers and writers take from the table alone."""
    check_values(options, where)
    for key in options.keys() - _DYNAMIC:
        if not DOCUMENTED.is_known(key):
            near = option_keys.near(key, DOCUMENTED)
            raise InvalidInput(f"{where}: unknown option {key!r}{f'; did you mean {near}?' if near else ''}")
        if not DOCUMENTED.is_heeded(key):
            raise UnsupportedFeature(f"{where}: option {key!r}: lakeformat does not act on it")
        raise UnsupportedFeature(
            f"{where}: option {key!r} cannot differ from the table's own; set it on the table (ALTER TABLE ... "
            "SET TBLPROPERTIES)"
        )


def is_documented(key: str) -> bool:
    return DOCUMENTED.is_known(key)


def check_values(options: Options, where: str) -> None:
    """Raise `InvalidInput` for values that do not parse."""
    for key, value in options.items():
        if not isinstance(value, str):
            raise InvalidInput(f"{where}: option {key!r} is {value!r}; options are text, e.g. {str(value)!r}")
        if key in HEEDED:
            HEEDED[key].parse(key, value)


def check_alter(before: Options, after: Options, where: str) -> None:
    """Raise `InvalidInput` for a change of options that are set once, when the table is created."""
    check_new({k: v for k, v in after.items() if before.get(k) != v}, where)
    for key in sorted(_IMMUTABLE):
        if before.get(key) != after.get(key):
            raise InvalidInput(
                f"{where}: option {key!r} is set when a table is made and cannot change; make a new table"
            )
    old, new = TableOptions.bucket.read(before), TableOptions.bucket.read(after)
    if old != new and (old < 0 or new < 0):
        raise InvalidInput(f"{where}: bucket cannot change from {old} to {new}; make a new table")


def renamed(properties: Options, columns: Iterable[str], name: str, to: str) -> Options:
    """The options after one of `columns` was renamed: they follow the new name (SchemaManager)."""

    def listed(text: str) -> str:
        return ",".join(to if column.strip() == name else column.strip() for column in text.split(","))

    after: dict[str, str] = {}
    for key, value in properties.items():
        if key in HEEDED and HEEDED[key].of_columns:
            value = listed(value)
        elif key.startswith("fields.") and key.endswith(SEQUENCE_GROUP):
            key, value = f"fields.{listed(key[len('fields.') : -len(SEQUENCE_GROUP)])}{SEQUENCE_GROUP}", listed(value)
        elif indexed := re.fullmatch(rf"(file-index\.[a-z-]+\.){re.escape(name)}(\.[a-z-]+)", key):
            key = f"{indexed[1]}{to}{indexed[2]}"
        elif _column_of(key, columns) == name:
            key = f"fields.{to}{key[len('fields.') + len(name) :]}"
        after[key] = value
    return after


def _column_of(key: str, columns: Iterable[str]) -> str | None:
    """The column in an option `fields.<column>.<what>`."""
    about = [column for column in columns if key.startswith(f"fields.{column}.")]
    return max(about, key=len, default=None)


def _unknown_switch(options: Options) -> str | None:
    """The error text for an option that switches on an unknown feature. Other unknown options are the user's own."""
    accepted = {key.strip() for key in options.get(ACCEPTED, "").split(",")}
    for key, value in options.items():
        if not key.endswith(".enabled") or not _true(value) or key in accepted or DOCUMENTED.is_known(key):
            continue
        if option_keys.near(key, DOCUMENTED) is None:
            return (
                f"option {key!r} is unknown to lakeformat, so a write might break what it asks for; "
                f"if it is harmless, name it in the option {ACCEPTED!r}"
            )
    return None


def _true(value: str) -> bool:
    return value.strip().lower() == "true"


def _refuse(options: Options, rules: tuple[tuple[str, Callable[[str], bool], str], ...], where: str) -> None:
    for key, asks, feature in rules:
        value = options.get(key)
        if value is not None and asks(value):
            raise UnsupportedFeature(f"{where}: {feature.format(value=value)} ({key}={value}): not supported")
