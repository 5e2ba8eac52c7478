"""Which of Paimon's table options are known, which name a feature that is refused, and which are set once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from lakeformat.dialects.paimon.options import PARSERS, SEQUENCE_GROUP, TableOptions
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model import option_keys
from lakeformat.model.option_keys import Documented

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
    fields.*.sequence-group fields.*.stats-mode fields.*.ts-field fields.default-aggregate-function file-index.bloom-filter.*.fpp
    file-index.bitmap.*.index-block-size file-index.bitmap.*.version file-index.bitmap.columns
    file-index.bloom-filter.*.items file-index.bloom-filter.columns file-index.bsi.columns file-index.in-manifest-threshold file-index.read.enabled
    file.block-size file.compression format-table.partition-path-only-value
    file.compression.zstd-level file.format first-row.ignore-delete force-lookup full-compaction.delta-commits ignore-delete
    ignore-update-before index-file-in-data-file-dir lakeformat.accepted-options lookup-wait manifest.compression manifest.format
    manifest.full-compaction-threshold-size manifest.merge-min-count manifest.target-file-size merge-engine
    metadata.iceberg.compaction.max.file-num metadata.iceberg.delete-after-commit.enabled
    metadata.iceberg.format-version metadata.iceberg.manifest-compression metadata.iceberg.previous-versions-max
    metadata.iceberg.database metadata.iceberg.rest.* metadata.iceberg.storage metadata.iceberg.storage-location
    metadata.iceberg.table metadata.stats-dense-store metadata.stats-mode num-levels num-sorted-run.compaction-trigger num-sorted-run.stop-trigger
    orc.stripe.size overwrite-upgrade parquet.block.size parquet.dictionary.page.size parquet.enable.dictionary
    parquet.page.size partial-update.ignore-delete partial-update.remove-record-on-delete
    partial-update.remove-record-on-sequence-group partition partition.default-name partition.expiration-max-num
    partition.expiration-strategy partition.expiration-time partition.legacy-name partition.mark-done-action partition.timestamp-formatter
    partition.timestamp-pattern postpone.batch-write-fixed-bucket.max-parallelism postpone.default-bucket-num
    postpone.target-row-num-per-bucket postpone.target-size-per-bucket primary-key query-auth.enabled record-level.expire-time record-level.time-field row-tracking.enabled rowkind.field
    scan.fallback-branch sequence.field sequence.field.sort-order sequence.snapshot-ordering snapshot.clean-empty-directories
    snapshot.expire.limit snapshot.num-retained.max snapshot.num-retained.min snapshot.time-retained source.split.open-file-cost
    source.split.target-size target-file-size type parquet.variant.shreddingSchema variant.inferShreddingSchema
    variant.shredding.maxInferBufferRow variant.shredding.maxSchemaDepth variant.shredding.maxSchemaWidth
    variant.shredding.minFieldCardinalityRatio variant.shreddingSchema vector-field write-max-writers-to-spill write-only
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
    file-index.ngram-bloom-filter.columns file-index.range-bitmap.*.chunk-size file-index.range-bitmap.columns
    file-index.token-bloom-filter.columns file-operation.thread-num file-reader-async-threshold
    file.compression.per.level file.format.per.level file.suffix.include.compression filesystem.job-level-settings.enabled
    flink.* format-table.commit-hive-sync-url format-table.file.compression format-table.implementation
    format-table.repair.collect-statistics format-table.statistics.parallelism
    full-text-index.* global-index.build.max-parallelism global-index.build.max-shard global-index.column-update-action
    global-index.enabled global-index.external-path global-index.row-count-per-shard global-index.search-mode
    global-index.thread-num hive.* image-column incremental-between incremental-between-scan-mode
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
    metadata.iceberg.compaction.min.file-num metadata.iceberg.delete-after-commit.enabled
    metadata.iceberg.format-version metadata.iceberg.glue.skip-archive metadata.iceberg.hadoop-conf-dir
    metadata.iceberg.hive-client-class metadata.iceberg.hive-conf-dir metadata.iceberg.hive-skip-update-stats
    metadata.iceberg.manifest-compression metadata.iceberg.manifest-legacy-version metadata.iceberg.previous-versions-max
    metadata.iceberg.storage metadata.iceberg.storage-location metadata.iceberg.uri
    metadata.stats-keep-first-n-columns metadata.stats-mode.per.level metastore.partitioned-table metastore.tag-to-partition
    metastore.tag-to-partition.preview mosaic.* need-lookup object-location orc.* page-size parquet.*
    partition.end-input-to-done partition.expiration-batch-size partition.expiration-check-interval partition.idle-time-to-done
    partition.idle-time-to-report-statistic partition.mark-done-action.custom.class
    partition.mark-done-action.http.params partition.mark-done-action.http.url partition.mark-done-action.mode
    partition.mark-done.recover-from-state partition.sink-strategy partition.time-interval partition.timestamp-format.strict
    path pk-clustering-override postpone.batch-write-fixed-bucket precommit-compact read.allow.fullScan read.batch-size read.changelog
    read.shuffle-bucket-with-partition read.stream.maxBytesPerTrigger read.stream.maxFilesPerTrigger
    read.stream.maxRowsPerTrigger read.stream.maxTriggerDelayMs read.stream.minRowsPerTrigger
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
    unaware-bucket.compaction.parallelism unaware-bucket.no-shuffle upsert-key
    variant.shredding.inferenceMode vector-index.* vector-search.distribute.enabled
    vector-search.lateral-join.batch-size vector-search.lateral-join.parallelism vector.file.format vector.target-file-size
    video-frame-field visibility-callback.check-interval visibility-callback.enabled visibility-callback.timeout
    write-buffer-for-append write-buffer-size write-buffer-spill.max-disk-size write-buffer-spillable
    write-buffer-spillable.max-disk-size write-manifest-cache write-mode write.batch-memory
    write.batch-size write.data-evolution.update-conflict-retry.max-attempts write.data-evolution.update-conflict-retry.wait-ms
    write.hive-style-dynamic-partition.enabled write.merge-schema write.merge-schema.explicit-cast
    write.merge-schema.type-widening write.sequence-number-init-mode write.use-v2-write zorder.var-length-contribution
    """,
)

# What a table may be that lakeformat would only half understand: (key, does the value ask for it, what to say).
_REFUSED_ALWAYS: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("type", lambda v: v.lower() not in {"table", ""}, "a table of type {value} is not a data table of Paimon"),
    ("blob-field", lambda v: bool(v), "blob columns"),
    ("vector-field", lambda v: bool(v), "vector columns"),
    ("query-auth.enabled", lambda v: _true(v), "query authorization"),
    ("chain-table.enabled", lambda v: _true(v), "chain tables (rows of other branches)"),
    ("fallback-branch", lambda v: bool(v), "a fallback branch {value}"),
)
_REFUSED_ON_WRITE: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("clustering.incremental", lambda v: _true(v), "incremental clustering"),
    ("data-file.external-paths", lambda v: bool(v), "data files outside the table's folder"),
    ("index-file-in-data-file-dir", lambda v: _true(v), "index files beside data files"),
    ("manifest.format", lambda v: v.lower() != "avro", "manifests in {value}; they are read, not written"),
)
# Set once, when the table is made.
_IMMUTABLE = {
    "bucket-key", "bucket-function.type", "type", "path", "branch", "primary-key", "partition", "merge-engine", "sequence.field",
    "rowkind.field", "row-tracking.enabled", "data-evolution.enabled", "partition.default-name", "partition.legacy-name",
    "data-file.path-directory", "changelog-producer", "sequence.snapshot-ordering",
}  # fmt: skip

# What is an argument of `create_table` here, and an option in Flink's DDL.
_ARGUMENTS = {"primary-key": "primary_key=[...]", "partition": "partition_by=[...]"}

# Options whose value names columns.
_OF_COLUMNS = {
    "bucket-key", "sequence.field", "rowkind.field", "partial-update.remove-record-on-sequence-group",
    "changelog-producer.row-deduplicate-ignore-fields", "record-level.time-field", "file-index.bloom-filter.columns",
    "file-index.bitmap.columns", "file-index.bsi.columns",
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
        if key in PARSERS:
            PARSERS[key](key, value)


def check_alter(before: Options, after: Options, where: str) -> None:
    """Raise `InvalidInput` where options change that are set once, when the table is made."""
    check_new({k: v for k, v in after.items() if before.get(k) != v}, where)
    for key in sorted(_IMMUTABLE):
        if before.get(key) != after.get(key):
            raise InvalidInput(
                f"{where}: option {key!r} is set when a table is made and cannot change; make a new table"
            )
    old, new = TableOptions.bucket.of(before), TableOptions.bucket.of(after)
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
        elif key.startswith("fields.") and key.endswith(SEQUENCE_GROUP):
            key, value = f"fields.{listed(key[len('fields.') : -len(SEQUENCE_GROUP)])}{SEQUENCE_GROUP}", listed(value)
        elif indexed := re.fullmatch(rf"(file-index\.[a-z-]+\.){re.escape(name)}(\.[a-z-]+)", key):
            key = f"{indexed[1]}{to}{indexed[2]}"
        elif _column_of(key, columns) == name:
            key = f"fields.{to}{key[len('fields.') + len(name) :]}"
        found[key] = value
    return found


def _column_of(key: str, columns: Iterable[str]) -> str | None:
    """The column that an option `fields.<column>.<what>` is about."""
    about = [each for each in columns if key.startswith(f"fields.{each}.")]
    return max(about, key=len, default=None)


def _unknown_switch(options: Options) -> str | None:
    """The message for an option that switches on a feature unknown here; an option that is merely unknown does no
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
