"""Paimon's table options: which are known, which name a feature that is refused, and their typed values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model import option_keys
from lakeformat.model.option_keys import Documented
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, Row, Scalar, Schema, Type
from lakeformat.model.work import Aggregation, MergeEngine, MergeSpec, NullKeys, SequenceGroup

Options = Mapping[str, str]

ACCEPTED = "lakeformat.accepted-options"

# The keys of CoreOptions, of Paimon's Flink and Spark connectors and of its Iceberg compatibility. A `*` stands for a name.
DOCUMENTED = Documented.of(
    heeded="""
    aggregation.remove-record-on-delete blob-field bucket bucket-function.type bucket-key chain-table.enabled
    changelog-file.prefix changelog-producer changelog-producer.row-deduplicate changelog-producer.row-deduplicate-ignore-fields
    changelog.num-retained.max changelog.num-retained.min changelog.time-retained clustering.incremental commit.force-compact
    commit.max-retries compaction.delete-ratio-threshold compaction.file-size compaction.incremental-size-threshold
    compaction.max-size-amplification-percent compaction.min.file-num compaction.offpeak-ratio compaction.offpeak.end.hour
    compaction.offpeak.start.hour compaction.optimization-interval compaction.size-ratio compaction.total-size-threshold
    consumer.changelog-only data-evolution.enabled data-file.external-paths data-file.path-directory data-file.prefix
    data-file.thin-mode deduplicate.ignore-delete deletion-vector.index-file.target-size deletion-vectors.bitmap64
    deletion-vectors.enabled deletion-vectors.merge-on-read dynamic-bucket.max-buckets dynamic-bucket.target-row-num
    fallback-branch fields.*.aggregate-function fields.*.count-limit fields.*.distinct fields.*.ignore-retract
    fields.*.list-agg-delimiter fields.*.nested-key fields.*.nested-key-null-strategy fields.*.nested-sequence-field
    fields.*.sequence-group fields.*.stats-mode fields.default-aggregate-function file.block-size file.compression
    file.compression.zstd-level file.format first-row.ignore-delete force-lookup full-compaction.delta-commits ignore-delete
    index-file-in-data-file-dir lakeformat.accepted-options lookup-wait manifest.compression manifest.format
    manifest.full-compaction-threshold-size manifest.merge-min-count manifest.target-file-size merge-engine
    metadata.stats-dense-store metadata.stats-mode num-levels num-sorted-run.compaction-trigger num-sorted-run.stop-trigger
    orc.stripe.size overwrite-upgrade parquet.block.size parquet.dictionary.page.size parquet.enable.dictionary
    parquet.page.size partial-update.ignore-delete partial-update.remove-record-on-delete
    partial-update.remove-record-on-sequence-group partition partition.default-name partition.expiration-max-num
    partition.expiration-strategy partition.expiration-time partition.legacy-name partition.timestamp-formatter
    partition.timestamp-pattern primary-key query-auth.enabled record-level.expire-time row-tracking.enabled rowkind.field
    scan.fallback-branch sequence.field sequence.field.sort-order sequence.snapshot-ordering snapshot.clean-empty-directories
    snapshot.expire.limit snapshot.num-retained.max snapshot.num-retained.min snapshot.time-retained source.split.open-file-cost
    source.split.target-size target-file-size type vector-field write-only
    """,
    ignored="""
    add-column-before-partition alter-column-null-to-not-null.disabled append-compact-remove-dangling-deletes async-file-write
    auto-create avro.* bitmap-index.* blob-as-descriptor blob-compaction.enabled blob-descriptor-field
    blob-external-storage-field blob-external-storage-path blob-view-field blob-view.resolve.enabled
    blob-write-null-on-missing-file blob.split-by-file-size blob.target-file-size branch btree-index.* bucket-append-only
    bucket-append-ordered cache-page-size catalog-default-db chain-table.chain-partition-keys changelog-file.compression
    changelog-file.format changelog-file.stats-mode changelog.precommit-compact changelog.precommit-compact.thread-num
    clustering.columns clustering.history-partition.idle-to-full-sort clustering.history-partition.limit
    clustering.incremental.mode clustering.incremental.optimize-write clustering.strategy commit.callback.*.param
    commit.callbacks commit.custom-listeners commit.discard-duplicate-files commit.force-create-snapshot commit.max-retry-wait
    commit.min-retry-wait commit.strict-mode.last-safe-snapshot commit.timeout commit.user-prefix
    compaction.bucket-distribution-strategy compaction.early-max.file-num compaction.file-num-limit
    compaction.force-rewrite-all-files compaction.force-up-level-0 compaction.max.file-num compaction.skip-expired-partitions
    compaction.small-file-ratio consumer-id consumer.expiration-time consumer.ignore-progress consumer.mode
    continuous.discovery-interval cross-partition-upsert.bootstrap-parallelism cross-partition-upsert.index-ttl csv.*
    data-evolution.merge-into.file-pruning data-evolution.merge-into.source-persist data-evolution.row-sidecar.enabled
    data-evolution.row-sidecar.max-selected-rows data-evolution.row-sidecar.max-selection-ratio
    data-file.external-paths.specific-fs data-file.external-paths.strategy data-file.external-paths.weights
    delete.force-produce-changelog deletion-vectors.modifiable disable-alter-column-null-to-not-null
    disable-explicit-type-casting dlf.* dynamic-bucket.assigner-parallelism dynamic-bucket.initial-buckets
    dynamic-partition-overwrite end-input.check-partition-expire end-input.watermark fields.*.default-value
    file-index.bitmap.*.index-block-size file-index.bitmap.*.version file-index.bitmap.columns file-index.bloom-filter.*.fpp
    file-index.bloom-filter.*.items file-index.bloom-filter.columns file-index.bsi.columns file-index.in-manifest-threshold
    file-index.ngram-bloom-filter.columns file-index.range-bitmap.*.chunk-size file-index.range-bitmap.columns
    file-index.read.enabled file-index.token-bloom-filter.columns file-operation.thread-num file-reader-async-threshold
    file.compression.per.level file.format.per.level file.suffix.include.compression filesystem.job-level-settings.enabled
    flink.* format-table.commit-hive-sync-url format-table.file.compression format-table.implementation
    format-table.partition-path-only-value format-table.repair.collect-statistics format-table.statistics.parallelism
    full-text-index.* global-index.build.max-parallelism global-index.build.max-shard global-index.column-update-action
    global-index.enabled global-index.external-path global-index.row-count-per-shard global-index.search-mode
    global-index.thread-num hive.* ignore-update-before image-column incremental-between incremental-between-scan-mode
    incremental-between-tag-to-snapshot incremental-between-timestamp incremental-to-auto-tag json.* kafka.* lance.*
    legacy-timestamp-mapping.enabled local-merge-buffer-size local-sort.max-num-file-handles log.changelog-mode log.consistency
    log.format log.key.format log.scan log.scan.remove-normalize log.scan.timestamp-millis log.system log.system.auto-register
    lookup-compact lookup-compact.max-interval lookup.async lookup.async-thread-number lookup.bootstrap-parallelism lookup.cache
    lookup.cache-file-retention lookup.cache-max-disk-size lookup.cache-max-memory-size lookup.cache-rows
    lookup.cache-spill-compression lookup.cache.bloom.filter.enabled lookup.cache.bloom.filter.fpp
    lookup.cache.high-priority-pool-ratio lookup.dynamic-partition.refresh-interval lookup.dynamic-partition.refresh.async
    lookup.hash-load-factor lookup.local-file-type lookup.merge-buffer-size lookup.merge-records-threshold lookup.refresh.async
    lookup.refresh.async.pending-snapshot-count lookup.refresh.full-load-threshold lookup.refresh.time-periods-blacklist
    lookup.remote-file.enabled lookup.remote-file.level-threshold manifest-sort.enabled manifest-sort.max-rewrite-size
    manifest-sort.partition-field manifest.delete-file-drop-stats materialized-table.* metadata.iceberg.compaction.max.file-num
    metadata.iceberg.compaction.min.file-num metadata.iceberg.database metadata.iceberg.delete-after-commit.enabled
    metadata.iceberg.format-version metadata.iceberg.glue.skip-archive metadata.iceberg.hadoop-conf-dir
    metadata.iceberg.hive-client-class metadata.iceberg.hive-conf-dir metadata.iceberg.hive-skip-update-stats
    metadata.iceberg.manifest-compression metadata.iceberg.manifest-legacy-version metadata.iceberg.previous-versions-max
    metadata.iceberg.storage metadata.iceberg.storage-location metadata.iceberg.table metadata.iceberg.uri
    metadata.stats-keep-first-n-columns metadata.stats-mode.per.level metastore.partitioned-table metastore.tag-to-partition
    metastore.tag-to-partition.preview mosaic.* need-lookup object-location orc.* page-size parquet.*
    partition.end-input-to-done partition.expiration-batch-size partition.expiration-check-interval partition.idle-time-to-done
    partition.idle-time-to-report-statistic partition.mark-done-action partition.mark-done-action.custom.class
    partition.mark-done-action.http.params partition.mark-done-action.http.url partition.mark-done-action.mode
    partition.mark-done.recover-from-state partition.sink-strategy partition.time-interval partition.timestamp-format.strict
    path pk-clustering-override postpone.batch-write-fixed-bucket postpone.batch-write-fixed-bucket.max-parallelism
    postpone.default-bucket-num precommit-compact read.allow.fullScan read.batch-size read.changelog
    read.shuffle-bucket-with-partition read.stream.maxBytesPerTrigger read.stream.maxFilesPerTrigger
    read.stream.maxRowsPerTrigger read.stream.maxTriggerDelayMs read.stream.minRowsPerTrigger record-level.time-field
    requiredSparkConfsCheck.enabled row-tracking.partition-group-on-commit rowkind.field-ignore scalar-index.* scan.bounded
    scan.bounded.watermark scan.creation-time-millis scan.dedicated-split-generation scan.fallback-branch.read-fail-fast
    scan.fallback-delta-branch scan.fallback-snapshot-branch scan.file-creation-time-millis scan.ignore-corrupt-files
    scan.ignore-lost-files scan.infer-parallelism scan.infer-parallelism.max scan.manifest.parallelism scan.max-snapshot.count
    scan.max-splits-per-task scan.mode scan.parallelism scan.partitions scan.plan-auto-tag-for-read.time-retained
    scan.plan-sort-partition scan.preserve-data-grouping scan.primary-branch scan.remove-normalize scan.snapshot-id
    scan.split-enumerator.batch-size scan.split-enumerator.mode scan.tag-name scan.timestamp scan.timestamp-millis
    scan.watermark scan.watermark.alignment.group scan.watermark.alignment.max-drift scan.watermark.alignment.update-interval
    scan.watermark.emit.strategy scan.watermark.idle-timeout schema-evolution.enabled sequence.auto-padding
    sink.clustering.sample-factor sink.clustering.sort-in-cluster sink.committer-cpu sink.committer-memory
    sink.committer-operator-chaining sink.coordinator-commit.enabled sink.cross-partition.managed-memory
    sink.key-only-deletes.enabled sink.managed.writer-buffer-memory sink.operator-uid.suffix sink.parallelism
    sink.process-time-zone sink.savepoint.auto-tag sink.use-managed-memory-allocator sink.watermark-time-zone
    sink.writer-coordinator.cache-expire-after-access sink.writer-coordinator.cache-memory
    sink.writer-coordinator.cache-soft-values sink.writer-coordinator.enabled sink.writer-coordinator.page-size
    sink.writer-coordinator.prefetch-manifests sink.writer-cpu sink.writer-memory sink.writer-refresh-detectors
    snapshot.expire.execution-mode snapshot.ignore-empty-commit snapshot.watermark-idle-timeout
    sort-compaction.local-sample.magnification sort-compaction.range-strategy sort-engine sort-spill-buffer-size
    sort-spill-threshold sorted-index.* source.checkpoint-align.enabled source.checkpoint-align.timeout
    source.operator-uid.suffix source.split.target-size-with-column-pruning spark.* spill-compression
    spill-compression.zstd-level streaming-read-append-overwrite streaming-read-mode streaming-read-overwrite
    streaming.read.snapshot.delay table-read.sequence-number.enabled tag.automatic-completion tag.automatic-creation
    tag.batch.customized-name tag.callback.*.param tag.callbacks tag.create-success-file tag.creation-delay tag.creation-period
    tag.creation-period-duration tag.default-time-retained tag.num-retained-max tag.period-formatter tag.time-expire-enabled
    unaware-bucket.compaction.parallelism unaware-bucket.no-shuffle upsert-key variant.inferShreddingSchema
    variant.shredding.maxInferBufferRow variant.shredding.maxSchemaDepth variant.shredding.maxSchemaWidth
    variant.shredding.minFieldCardinalityRatio variant.shreddingSchema vector-index.* vector-search.distribute.enabled
    vector-search.lateral-join.batch-size vector-search.lateral-join.parallelism vector.file.format vector.target-file-size
    video-frame-field visibility-callback.check-interval visibility-callback.enabled visibility-callback.timeout
    write-buffer-for-append write-buffer-size write-buffer-spill.max-disk-size write-buffer-spillable
    write-buffer-spillable.max-disk-size write-manifest-cache write-max-writers-to-spill write-mode write.batch-memory
    write.batch-size write.data-evolution.update-conflict-retry.max-attempts write.data-evolution.update-conflict-retry.wait-ms
    write.hive-style-dynamic-partition.enabled write.merge-schema write.merge-schema.explicit-cast
    write.merge-schema.type-widening write.sequence-number-init-mode write.use-v2-write zorder.var-length-contribution
    """,
)

# What a table may be that lakeformat would only half understand: (key, does the value ask for it, what to say).
_REFUSED_ALWAYS: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("type", lambda v: v.lower() not in {"table", ""}, "a table of type {value} is not a data table of Paimon"),
    ("data-evolution.enabled", lambda v: _true(v), "data evolution (columns split over files)"),
    ("blob-field", lambda v: bool(v), "blob columns"),
    ("vector-field", lambda v: bool(v), "vector columns"),
    ("query-auth.enabled", lambda v: _true(v), "query authorization"),
    ("chain-table.enabled", lambda v: _true(v), "chain tables (rows of other branches)"),
    ("scan.fallback-branch", lambda v: bool(v), "a fallback branch {value}"),
    ("fallback-branch", lambda v: bool(v), "a fallback branch {value}"),
)
_REFUSED_ON_WRITE: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("row-tracking.enabled", lambda v: _true(v), "row tracking"),
    ("clustering.incremental", lambda v: _true(v), "incremental clustering"),
    ("data-file.external-paths", lambda v: bool(v), "data files outside the table's folder"),
    ("index-file-in-data-file-dir", lambda v: _true(v), "index files beside data files"),
    ("manifest.format", lambda v: v.lower() != "avro", "manifests in {value}; they are read, not written"),
)
# Of tables with a primary key. What decides which row of a key counts must be known to readers too.
_REFUSED_FOR_KEYS: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("sequence.snapshot-ordering", lambda v: _true(v), "rows ordered by snapshot"),
    ("record-level.expire-time", lambda v: bool(v), "rows that expire by themselves"),
)
# What an option is where the table does not say (CoreOptions). Those that are not here depend on others.
_DEFAULTS: dict[str, int | float | bool | str | None] = {
    "bucket": -1,
    "bucket-function.type": "default",
    "changelog-file.prefix": "changelog-",
    "changelog-producer": "none",
    "changelog-producer.row-deduplicate": False,
    "commit.force-compact": False,
    "commit.max-retries": 10,
    "compaction.delete-ratio-threshold": 0.2,
    "compaction.incremental-size-threshold": None,
    "compaction.max-size-amplification-percent": 200,
    "compaction.min.file-num": 5,
    "compaction.offpeak-ratio": 0,
    "compaction.offpeak.end.hour": -1,
    "compaction.offpeak.start.hour": -1,
    "compaction.optimization-interval": None,
    "compaction.size-ratio": 1,
    "compaction.total-size-threshold": 0,
    "consumer.changelog-only": False,
    "data-file.path-directory": "",
    "data-file.prefix": "data-",
    "data-file.thin-mode": False,
    "deletion-vector.index-file.target-size": 2 << 20,
    "deletion-vectors.bitmap64": False,
    "deletion-vectors.enabled": False,
    "deletion-vectors.merge-on-read": False,
    "dynamic-bucket.max-buckets": -1,
    "dynamic-bucket.target-row-num": 2_000_000,
    "file.compression": "zstd",
    "file.compression.zstd-level": 1,
    "file.format": "parquet",
    "force-lookup": False,
    "index-file-in-data-file-dir": False,
    "lookup-wait": True,
    "manifest.compression": "zstd",
    "manifest.full-compaction-threshold-size": 16 << 20,
    "manifest.merge-min-count": 30,
    "manifest.target-file-size": 8 << 20,
    "merge-engine": "deduplicate",
    "metadata.stats-dense-store": True,
    "metadata.stats-mode": "truncate(16)",
    "num-sorted-run.compaction-trigger": 5,
    "overwrite-upgrade": True,
    "partition.default-name": "__DEFAULT_PARTITION__",
    "partition.expiration-max-num": 100,
    "partition.expiration-strategy": "values-time",
    "partition.expiration-time": None,
    "partition.legacy-name": True,
    "sequence.field.sort-order": "ascending",
    "snapshot.clean-empty-directories": False,
    "snapshot.expire.limit": 50,
    "snapshot.num-retained.max": 2**31 - 1,
    "snapshot.num-retained.min": 10,
    "snapshot.time-retained": 3_600_000,
    "source.split.open-file-cost": 4 << 20,
    "source.split.target-size": 128 << 20,
    "write-only": False,
}
# Set once, when the table is made.
_IMMUTABLE = {
    "bucket-key", "bucket-function.type", "type", "path", "branch", "primary-key", "partition", "merge-engine", "sequence.field",
    "rowkind.field", "row-tracking.enabled", "data-evolution.enabled", "partition.default-name", "partition.legacy-name",
    "data-file.path-directory", "changelog-producer",
}  # fmt: skip

# What is an argument of `create_table` here, and an option in Flink's DDL.
_ARGUMENTS = {"primary-key": "primary_key=[...]", "partition": "partition_by=[...]"}

# Options whose value names columns.
_OF_COLUMNS = {
    "bucket-key", "sequence.field", "rowkind.field", "partial-update.remove-record-on-sequence-group",
    "changelog-producer.row-deduplicate-ignore-fields",
}  # fmt: skip
# One option and its older names, whatever the merge engine is; the first that is there counts.
_IGNORE_DELETE = (
    "ignore-delete",
    "first-row.ignore-delete",
    "deduplicate.ignore-delete",
    "partial-update.ignore-delete",
)
_GROUP = ".sequence-group"  # fields.<columns>.sequence-group: columns in key and value.

_SIZE = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "b": 1, "bytes": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "kibibytes": 1 << 10, "mebibytes": 1 << 20}  # fmt: skip
_TIME_UNITS = {
    "": 1, "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1, "s": 1000, "sec": 1000, "secs": 1000,
    "second": 1000, "seconds": 1000, "min": 60_000, "m": 60_000, "minute": 60_000, "minutes": 60_000, "h": 3_600_000,
    "hour": 3_600_000, "hours": 3_600_000, "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip


def require_readable(options: Options, where: str) -> None:
    """Raise `UnsupportedFeature` for a feature without which the rows could not be read right."""
    _refuse(options, _REFUSED_ALWAYS, where)


def require_writable(options: Options, where: str) -> None:
    """Raise `UnsupportedFeature` for a feature that a write would have to take part in, or may have to: one that is switched on
    by an option of which nothing is known."""
    require_readable(options, where)
    _refuse(options, _REFUSED_ON_WRITE, where)
    if switch := _unknown_switch(options):
        raise UnsupportedFeature(f"{where}: {switch}")


def require_mergeable(options: Options, where: str) -> None:
    """Raise `UnsupportedFeature` for a table with a primary key whose rows could not be merged right."""
    _refuse(options, _REFUSED_FOR_KEYS, where)


def check_new(options: Options, where: str) -> None:
    """Raise `InvalidInput` for options that cannot be: misspelt names, values that do not parse. Log those that do nothing."""
    check_values(options, where)
    for key, argument in _ARGUMENTS.items():
        if key in options:
            raise InvalidInput(f"{where}: option {key!r} is not set; give {argument}")
    option_keys.check(options, DOCUMENTED, "option", where)
    if switch := _unknown_switch(options):
        raise InvalidInput(f"{where}: {switch}")


def check_values(options: Options, where: str) -> None:
    """Raise `InvalidInput` for values that do not parse."""
    for key, value in options.items():
        if not isinstance(value, str):
            raise InvalidInput(f"{where}: option {key!r} is {value!r}; options are text, e.g. {str(value)!r}")
        if key in _TYPED:
            _TYPED[key](options, key)


def check_alter(before: Options, after: Options, where: str) -> None:
    """Raise `InvalidInput` where options change that are set once, when the table is made."""
    check_new({k: v for k, v in after.items() if before.get(k) != v}, where)
    for key in sorted(_IMMUTABLE):
        if before.get(key) != after.get(key):
            raise InvalidInput(
                f"{where}: option {key!r} is set when a table is made and cannot change; make a new table"
            )
    old, new = integer(before, "bucket"), integer(after, "bucket")
    if old != new and (old < 0 or new < 0):
        raise InvalidInput(f"{where}: bucket cannot change from {old} to {new}; make a new table")


def renamed(given: Options, columns: Iterable[str], name: str, to: str) -> Options:
    """The options after one of `columns` is called otherwise: they go on speaking of it (SchemaManager)."""

    def listed(text: str) -> str:
        return ",".join(to if each.strip() == name else each.strip() for each in text.split(","))

    found: dict[str, str] = {}
    for key, value in given.items():
        if key in _OF_COLUMNS:
            value = listed(value)
        elif key.startswith("fields.") and key.endswith(_GROUP):
            key, value = f"fields.{listed(key[len('fields.') : -len(_GROUP)])}{_GROUP}", listed(value)
        elif _column_of(key, columns) == name:
            key = f"fields.{to}{key[len('fields.') + len(name) :]}"
        found[key] = value
    return found


def _column_of(key: str, columns: Iterable[str]) -> str | None:
    """The column that an option `fields.<column>.<what>` is about."""
    about = [each for each in columns if key.startswith(f"fields.{each}.")]
    return max(about, key=len, default=None)


def integer(options: Options, key: str, default: int | None = None) -> int:
    """A whole number; raises `InvalidInput`."""
    value = options.get(key)
    if value is None:
        return _DEFAULTS.get(key, default)  # type: ignore[return-value]
    try:
        return int(value)
    except ValueError:
        raise InvalidInput(f"option {key!r} is {value!r}; it must be a whole number") from None


def size(options: Options, key: str, default: int | None = None) -> int:
    """A memory size such as `128 mb`, in bytes; raises `InvalidInput`."""
    value = options.get(key)
    if value is None:
        return _DEFAULTS.get(key, default)  # type: ignore[return-value]
    found = _SIZE.fullmatch(value)
    if not found or found[2].lower() not in _SIZE_UNITS:
        raise InvalidInput(f"option {key!r} is {value!r}; it must be a size such as '128 mb'")
    return int(found[1]) * _SIZE_UNITS[found[2].lower()]


def positive(options: Options, key: str, default: int | None = None) -> int:
    """A size above zero."""
    found = size(options, key, default)
    if found is not None and found <= 0:
        raise InvalidInput(f"option {key!r} is {options[key]!r}; it must be above zero")
    return found


def share(options: Options, key: str, default: float | None = None) -> float:
    """A number from 0 to 1; raises `InvalidInput`."""
    value = options.get(key)
    if value is None:
        return _DEFAULTS.get(key, default)  # type: ignore[return-value]
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise InvalidInput(f"option {key!r} is {value!r}; it must be a number from 0 to 1")
    return found


def duration(options: Options, key: str, default: int | None = None) -> int:
    """A duration such as `1 h`, in milliseconds; raises `InvalidInput`."""
    value = options.get(key)
    if value is None:
        return _DEFAULTS.get(key, default)  # type: ignore[return-value]
    found = _SIZE.fullmatch(value)
    if not found or found[2].lower() not in _TIME_UNITS:
        raise InvalidInput(f"option {key!r} is {value!r}; it must be a duration such as '1 h'")
    return int(found[1]) * _TIME_UNITS[found[2].lower()]


def boolean(options: Options, key: str, default: bool | None = None) -> bool:
    """`true` or `false`; raises `InvalidInput`."""
    value = options.get(key)
    if value is None:
        return _DEFAULTS.get(key, default)  # type: ignore[return-value]
    if value.strip().lower() not in {"true", "false"}:
        raise InvalidInput(f"option {key!r} is {value!r}; it must be 'true' or 'false'")
    return _true(value)


def text(options: Options, key: str) -> str:
    """What the table says of an option with a default, or that."""
    return options.get(key, str(_DEFAULTS[key]))


def names(options: Options, key: str) -> tuple[str, ...]:
    """A list of names with commas."""
    return tuple(name.strip() for name in options.get(key, "").split(",") if name.strip())


def changelog_producer(options: Options) -> str:
    """`changelog-producer`: none (the default), input, lookup or full-compaction; raises `InvalidInput`."""
    value = text(options, "changelog-producer").strip().lower()
    if value not in {"none", "input", "lookup", "full-compaction"}:
        raise InvalidInput(
            f"option 'changelog-producer' is {value!r}; it must be none, input, lookup or full-compaction"
        )
    return value


def has_vectors(options: Options) -> bool:
    """`deletion-vectors.enabled`: whether deletion vectors say which rows of files are gone."""
    return boolean(options, "deletion-vectors.enabled")


def keeps_first_row(options: Options) -> bool:
    """`merge-engine` = `first-row`: of a key the row that came first stays. Then no two levels above 0 have the same key, and
    others read these levels without merging (MergeTreeSplitGenerator)."""
    return text(options, "merge-engine").strip().lower() == "first-row"


def hides_level_0(options: Options) -> bool:
    """Whether a table with a primary key shows no row of level 0 until it is compacted (CoreOptions.batchScanSkipLevel0)."""
    if has_vectors(options):
        return not boolean(options, "deletion-vectors.merge-on-read")
    return keeps_first_row(options)


def lifts_level_0(options: Options) -> bool:
    """Whether rows leave level 0 with the write that brought them (CoreOptions.needLookup): to be seen, or to be told of."""
    return has_vectors(options) or keeps_first_row(options) or looks_up(options)


def looks_up(options: Options) -> bool:
    """Whether rows leave level 0 merged with those of their keys on all levels above (CoreOptions.needLookup): then the lowest
    of these levels says what was there. Where deletion vectors take the rows of the others, or the first row of a key stays
    whatever comes, that makes no difference."""
    return changelog_producer(options) == "lookup" or boolean(options, "force-lookup")


def snapshots_kept(options: Options) -> tuple[int, int, int]:
    """(at least so many, at most so many, for so many milliseconds): `snapshot.num-retained.*`, `snapshot.time-retained`."""
    return (
        integer(options, "snapshot.num-retained.min"),
        integer(options, "snapshot.num-retained.max"),
        duration(options, "snapshot.time-retained"),
    )


def expires_with_commits(options: Options) -> bool:
    """Whether a commit is followed by expiry: where the table says itself what is kept, and is not `write-only`."""
    asking = ("num-retained.min", "num-retained.max", "time-retained", "expire.limit")
    return any(f"snapshot.{key}" in options for key in asking) and not boolean(options, "write-only")


def changelogs_kept(options: Options) -> tuple[int, int, int]:
    """As `snapshots_kept`: `changelog.num-retained.*`, `changelog.time-retained`, by default as snapshots are."""
    least, most, kept_ms = snapshots_kept(options)
    return (
        integer(options, "changelog.num-retained.min", least),
        integer(options, "changelog.num-retained.max", most),
        duration(options, "changelog.time-retained", kept_ms),
    )


def outlives_snapshots(options: Options) -> bool:
    """Whether changelogs are kept longer than snapshots."""
    return any(own > of for own, of in zip(changelogs_kept(options), snapshots_kept(options), strict=True))


def target_file_bytes(schema: Schema) -> int:
    """`target-file-size`: 128 MiB with a primary key, else 256."""
    return size(schema.properties, "target-file-size", (128 if schema.primary_key else 256) << 20)


def small_file_bytes(schema: Schema) -> int:
    """`compaction.file-size`: what is smaller is worth another write; by default 70 % of the target size."""
    return size(schema.properties, "compaction.file-size", target_file_bytes(schema) // 10 * 7)


def compared(schema: Schema) -> tuple[str, ...]:
    """The columns of which one must differ for an update to be told (`changelog-producer.row-deduplicate`); none: every update
    is."""
    if not boolean(schema.properties, "changelog-producer.row-deduplicate"):
        return ()
    ignored = names(schema.properties, "changelog-producer.row-deduplicate-ignore-fields")
    return tuple(name for name in schema.names if name not in ignored)


def level_count(options: Options) -> int:
    """`num-levels`: by default one more than the sorted runs at which compaction begins."""
    found = integer(options, "num-levels", integer(options, "num-sorted-run.compaction-trigger") + 1)
    if found < 2:
        raise InvalidInput(f"option 'num-levels' is {found}; it must be at least 2")
    return found


def file_format(options: Options) -> str:
    """`file.format`: parquet (the default), orc or avro."""
    value = text(options, "file.format").lower()
    if value not in {"parquet", "orc", "avro"}:
        raise UnsupportedFeature(
            f"option 'file.format' is {value!r}; lakeformat reads and writes parquet, orc and avro"
        )
    return value


def compression(options: Options) -> str:
    """`file.compression`: zstd by default; raises `InvalidInput` for one that the file format does not have."""
    format, value = file_format(options), text(options, "file.compression").lower()
    if value not in _COMPRESSIONS[format]:
        raise InvalidInput(
            f"option 'file.compression' is {value!r}; {format} files know {', '.join(sorted(_COMPRESSIONS[format]))}"
        )
    return value


def manifest_codec(options: Options) -> str:
    """`manifest.compression` as Avro calls it; raises `InvalidInput`."""
    value = text(options, "manifest.compression").lower()
    if value not in _AVRO_CODECS:
        raise InvalidInput(f"option 'manifest.compression' is {value!r}; it must be one of {', '.join(_AVRO_CODECS)}")
    return _AVRO_CODECS[value]


def _unknown_switch(options: Options) -> str | None:
    """What to say of an option that switches on a feature that nobody here knows; an option that is merely unknown does no
    harm, for it is a user's own."""
    accepted = {key.strip() for key in options.get(ACCEPTED, "").split(",")}
    for key, value in options.items():
        if not key.endswith(".enabled") or not _true(value) or key in accepted or DOCUMENTED.is_known(key):
            continue
        if option_keys.near(key, DOCUMENTED) is None:
            return (
                f"option {key!r} is not one that lakeformat knows, so it might ask for something a write would break; "
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


_AVRO_CODECS = {
    "zstd": "zstandard", "zstandard": "zstandard", "none": "null", "uncompressed": "null", "null": "null", "gzip": "deflate",
    "deflate": "deflate", "snappy": "snappy", "bzip2": "bzip2", "xz": "xz", "lz4": "zstandard",
}  # fmt: skip
_COMPRESSIONS = {
    "parquet": {"none", "uncompressed", "zstd", "snappy", "gzip", "lz4", "brotli"},
    "orc": {"none", "uncompressed", "zstd", "snappy", "zlib", "lz4"},
    "avro": _AVRO_CODECS.keys() - {"lz4"},
}

_TYPED: dict[str, Callable[..., object]] = {
    "bucket": integer,
    "target-file-size": positive,
    "manifest.target-file-size": positive,
    "manifest.merge-min-count": integer,
    "manifest.full-compaction-threshold-size": size,
    "snapshot.num-retained.min": integer,
    "snapshot.num-retained.max": integer,
    "snapshot.time-retained": duration,
    "snapshot.expire.limit": integer,
    "changelog.num-retained.min": integer,
    "changelog.num-retained.max": integer,
    "changelog.time-retained": duration,
    "consumer.changelog-only": boolean,
    "compaction.min.file-num": integer,
    "commit.max-retries": integer,
    "commit.timeout": duration,
    "commit.min-retry-wait": duration,
    "commit.max-retry-wait": duration,
    "partition.expiration-time": duration,
    "source.split.target-size": size,
    "source.split.open-file-cost": size,
    "dynamic-partition-overwrite": boolean,
    "data-file.thin-mode": boolean,
    "overwrite-upgrade": boolean,
    "dynamic-bucket.target-row-num": integer,
    "dynamic-bucket.max-buckets": integer,
    "num-levels": integer,
    "num-sorted-run.compaction-trigger": integer,
    "compaction.size-ratio": integer,
    "compaction.max-size-amplification-percent": integer,
    "compaction.total-size-threshold": size,
    "compaction.file-size": size,
    "compaction.incremental-size-threshold": size,
    "compaction.optimization-interval": duration,
    "compaction.offpeak.start.hour": integer,
    "compaction.offpeak.end.hour": integer,
    "compaction.offpeak-ratio": integer,
    "num-sorted-run.stop-trigger": integer,
    "full-compaction.delta-commits": integer,
    "changelog-producer.row-deduplicate": boolean,
    "write-only": boolean,
    "commit.force-compact": boolean,
    "lookup-wait": boolean,
    "partition.legacy-name": boolean,
    "metadata.stats-dense-store": boolean,
    "file.block-size": positive,
    "file.compression.zstd-level": integer,
    "deletion-vectors.enabled": boolean,
    "deletion-vectors.merge-on-read": boolean,
    "deletion-vectors.bitmap64": boolean,
    "deletion-vector.index-file.target-size": positive,
    "compaction.delete-ratio-threshold": share,
}


# --- how rows of one key become one -----------------------------------------------------------------------------------


def kind_column(schema: Schema, where: str) -> str | None:
    """`rowkind.field`: the column that tells what a row does to its key; raises `InvalidInput`."""
    found = names(schema.properties, "rowkind.field")
    if len(found) > 1:
        raise InvalidInput(f"{where}: rowkind.field names {', '.join(found)}; one column tells the kind of a row")
    _require_columns(schema, found, "rowkind.field", where)
    return found[0] if found else None


def merging(schema: Schema, where: str) -> MergeSpec:
    """What the options of a table with a primary key say of merging. Raises `InvalidInput` for what cannot be, and
    `UnsupportedFeature` for functions that are not known here (SchemaValidation, *MergeFunction.Factory)."""
    given = schema.properties
    engine = _merge_engine(given, where)
    sequence = names(given, "sequence.field")
    _require_columns(schema, sequence, "sequence.field", where)
    if repeated := [name for name in sequence if sequence.count(name) > 1]:
        raise InvalidInput(f"{where}: sequence.field names {repeated[0]!r} twice")
    order = text(given, "sequence.field.sort-order").strip().lower()
    if order not in {"ascending", "descending"}:
        raise InvalidInput(f"{where}: sequence.field.sort-order is {order!r}; it must be 'ascending' or 'descending'")
    producer = changelog_producer(given)
    if engine is MergeEngine.FIRST_ROW and producer not in {"none", "lookup"}:
        raise InvalidInput(f"{where}: merge engine 'first-row' has changelog-producer none or lookup, not {producer}")
    if engine is MergeEngine.FIRST_ROW and sequence:
        raise InvalidInput(f"{where}: merge engine 'first-row' keeps the first row that came; it has no sequence.field")
    groups = _groups(schema, where) if engine is MergeEngine.PARTIAL_UPDATE else ()
    ignore = next((boolean(given, key) for key in _IGNORE_DELETE if key in given), False)
    removing = f"{engine}.remove-record-on-delete"
    remove = engine in {MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION} and bool(boolean(given, removing))
    aggregations = (
        _aggregations(schema, engine, sequence, groups, where)
        if engine in {MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION}
        else ()
    )
    for clashes, with_what in (
        (ignore and remove, "ignore-delete"),
        (
            remove and any(each.ignore_retract for each in aggregations) and engine is MergeEngine.AGGREGATION,
            "ignore-retract",
        ),
        (remove and groups, "a sequence-group"),
    ):
        if clashes:
            raise InvalidInput(f"{where}: {removing} and {with_what} contradict each other; set one of them only")
    if ignore and any(group.removes_record for group in groups):
        raise InvalidInput(
            f"{where}: ignore-delete and partial-update.remove-record-on-sequence-group contradict each other; set one of them only"
        )
    return MergeSpec(
        key=tuple(name for name in schema.primary_key if name not in schema.partitioning.names),
        engine=engine,
        sequence=sequence,
        is_ascending=order == "ascending",
        ignore_delete=ignore,
        remove_on_delete=remove,
        aggregations=aggregations,
        groups=groups,
        partition=schema.partitioning.names,
    )


def _merge_engine(given: Options, where: str) -> MergeEngine:
    name = text(given, "merge-engine").strip().lower()
    try:
        return MergeEngine(name)
    except ValueError:
        raise UnsupportedFeature(f"{where}: merge engine {name!r}; known are {', '.join(MergeEngine)}") from None


def _groups(schema: Schema, where: str) -> tuple[SequenceGroup, ...]:
    given = schema.properties
    removing = names(given, "partial-update.remove-record-on-sequence-group")
    groups: list[SequenceGroup] = []
    taken: dict[str, str] = {}
    for key in sorted(given):
        if not key.startswith("fields.") or not key.endswith(_GROUP):
            continue
        sequence = tuple(name.strip() for name in key[len("fields.") : -len(_GROUP)].split(","))
        columns = names(given, key)
        for name in (*sequence, *columns):
            _require_columns(schema, (name,), key, where)
            if name in schema.primary_key:
                raise InvalidInput(f"{where}: {key} names {name!r}, which is in the primary key")
            if name in taken:
                raise InvalidInput(f"{where}: column {name!r} is in two sequence groups: {taken[name]} and {key}")
            taken[name] = key
        groups.append(SequenceGroup(sequence, columns, bool({*sequence} & {*removing})))
    if outside := [name for name in removing if all(name not in group.sequence for group in groups)]:
        raise InvalidInput(
            f"{where}: partial-update.remove-record-on-sequence-group names {outside[0]!r}, which orders no sequence-group"
        )
    return tuple(groups)


def _aggregations(
    schema: Schema, engine: str, sequence: tuple[str, ...], groups: tuple[SequenceGroup, ...], where: str
) -> tuple[Aggregation, ...]:
    given, found = schema.properties, []
    grouped = {name for group in groups for name in group.columns}
    ordering = {*(name for group in groups for name in group.sequence)}
    # Where keys change partitions, rows of one partition have the same in its columns. A sequence field may be in a group.
    unordered = {*ordering, *schema.primary_key, *schema.partitioning.names}
    unordered |= {*sequence} if engine is MergeEngine.AGGREGATION else set()
    for key in given:
        column = key[len("fields.") : -len(".aggregate-function")]
        if key.startswith("fields.") and key.endswith(".aggregate-function"):
            _require_columns(schema, (column,), key, where)
            if column in sequence:
                raise InvalidInput(f"{where}: {key}: {column!r} is in sequence.field, which is never aggregated")
            if column in ordering:
                raise InvalidInput(f"{where}: {key}: {column!r} orders a sequence-group, which is never aggregated")
    for field in schema.fields:
        prefix = f"fields.{field.name}"
        own = given.get(f"{prefix}.aggregate-function")
        function = own or given.get("fields.default-aggregate-function")
        if function is None or field.name in unordered:
            continue
        function = _FUNCTION_NAMES.get(function.strip(), function.strip())
        _require_function(function, field, where)
        if engine is MergeEngine.PARTIAL_UPDATE and field.name not in grouped:
            if function != "last_non_null_value":
                raise InvalidInput(
                    f"{where}: column {field.name!r} has the aggregate function {function!r} and no sequence group; with merge "
                    f"engine 'partial-update' name it in a 'fields.<sequence column>.sequence-group'"
                )
            continue
        distinct = bool(boolean(given, f"{prefix}.distinct", False)) and function in {"listagg", "collect"}
        delimiter = given.get(f"{prefix}.list-agg-delimiter", ",")
        if distinct and function == "listagg" and not delimiter:
            raise InvalidInput(f"{where}: {prefix}.list-agg-delimiter is empty; distinct parts need one")
        ignores = bool(boolean(given, f"{prefix}.ignore-retract", False))
        how = Aggregation(field.name, function, ignores, distinct, delimiter)
        found.append(_nested(how, field, given, where) if function in _NESTED else how)
    return tuple(found)


def _nested(how: Aggregation, field: Field, given: Mapping[str, str], where: str) -> Aggregation:
    """`how` with what is said of the rows inside a column."""
    prefix = f"fields.{field.name}"
    key = names(given, f"{prefix}.nested-key")
    null_keys = given.get(f"{prefix}.nested-key-null-strategy")
    sequence: tuple[str, ...] = ()
    limit = None
    if how.function == "nested_update":
        sequence = names(given, f"{prefix}.nested-sequence-field")
        limit = integer(given, f"{prefix}.count-limit", None)
    inner = {each.name: each.type for each in field.type.element.type.fields}  # type: ignore[union-attr]
    for option, columns in (("nested-key", key), ("nested-sequence-field", sequence)):
        for name in columns:
            if name not in inner:
                raise InvalidInput(f"{where}: {prefix}.{option} names {name!r}, which {field.type} does not have")
            if not isinstance(inner[name], Scalar):
                raise InvalidInput(
                    f"{where}: {prefix}.{option} names {name!r}, which is {inner[name]}; it takes plain values"
                )
    asks = [f"{prefix}.nested-sequence-field"] * bool(sequence) + [f"{prefix}.nested-key-null-strategy"] * bool(
        null_keys
    )
    asks += ["nested_partial_update"] * (how.function == "nested_partial_update")
    if asks and not key:
        raise InvalidInput(f"{where}: column {field.name!r}: {asks[0]} needs {prefix}.nested-key")
    if limit is not None and limit < 0:
        raise InvalidInput(f"{where}: {prefix}.count-limit is {limit}; it counts rows from 0")
    try:
        kind = NullKeys((null_keys or "merge").strip().lower())
    except ValueError:
        raise InvalidInput(
            f"{where}: {prefix}.nested-key-null-strategy is {null_keys!r}; it is 'merge', 'ignore' or 'error'"
        ) from None
    return replace(how, nested_key=key, nested_sequence=sequence, null_keys=kind, limit=limit)


def _require_function(function: str, field: Field, where: str) -> None:
    if function in _FUNCTIONS_OF_JAVA:
        raise UnsupportedFeature(
            f"{where}: column {field.name!r}: aggregate function {function!r} ({_FUNCTIONS_OF_JAVA[function]}): not supported"
        )
    if function not in _FUNCTIONS:
        near = difflib.get_close_matches(function, _FUNCTIONS, 1)
        raise InvalidInput(
            f"{where}: column {field.name!r}: unknown aggregate function {function!r}; "
            f"{f'did you mean {near[0]!r}' if near else 'known are ' + ', '.join(_FUNCTIONS)}"
        )
    wanted, fits = _FUNCTIONS[function]
    if not fits(field.type):
        raise InvalidInput(
            f"{where}: column {field.name!r} is {field.type}; aggregate function {function!r} takes {wanted}"
        )
    match field.type:
        case Scalar(Kind.DECIMAL, (digits, _)) if function == "product" and digits > 37:
            raise UnsupportedFeature(
                f"{where}: column {field.name!r}: the product of {field.type}: not supported; at most 37 digits"
            )


def _require_columns(schema: Schema, columns: tuple[str, ...], option: str, where: str) -> None:
    """Raise `InvalidInput` for a name in an option that no column has."""
    for name in columns:
        if name not in schema.names:
            raise InvalidInput(
                f"{where}: {option} names {name!r}, which is no column; there are {', '.join(schema.names)}"
            )


def _is_scalar(*kinds: Kind) -> Callable[[Type], bool]:
    return lambda type: isinstance(type, Scalar) and (not kinds or type.kind in kinds)


def _is_list_of_rows(type: Type) -> bool:
    return isinstance(type, ListOf) and isinstance(type.element.type, Row)


_NESTED = ("nested_update", "nested_partial_update")
_NUMBERS = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)
_FUNCTION_NAMES = {"first_not_null_value": "first_non_null_value"}  # Java's older spelling.
# Function -> (what it takes, whether a type is that).
_FUNCTIONS: dict[str, tuple[str, Callable[[Type], bool]]] = {
    "sum": ("numbers", _is_scalar(*_NUMBERS)),
    "product": ("numbers", _is_scalar(*_NUMBERS)),
    "max": ("plain values", _is_scalar()),
    "min": ("plain values", _is_scalar()),
    "last_value": ("any type", lambda type: True),
    "last_non_null_value": ("any type", lambda type: True),
    "first_value": ("any type", lambda type: True),
    "first_non_null_value": ("any type", lambda type: True),
    "listagg": ("text", _is_scalar(Kind.STRING, Kind.VARCHAR)),
    "bool_and": ("booleans", _is_scalar(Kind.BOOLEAN)),
    "bool_or": ("booleans", _is_scalar(Kind.BOOLEAN)),
    "collect": ("arrays", lambda type: isinstance(type, ListOf)),
    "merge_map": ("maps", lambda type: isinstance(type, MapOf)),
    "nested_update": ("arrays of rows", _is_list_of_rows),
    "nested_partial_update": ("arrays of rows", _is_list_of_rows),
    "rbm32": ("bytes", _is_scalar(Kind.BYTES, Kind.VARBINARY)),
    "rbm64": ("bytes", _is_scalar(Kind.BYTES, Kind.VARBINARY)),
}
# Those of Java that are refused, and why.
_FUNCTIONS_OF_JAVA = {
    "hll_sketch": "a DataSketches sketch",
    "theta_sketch": "a DataSketches sketch",
    "merge_map_with_keytime": "a map with times",
}
