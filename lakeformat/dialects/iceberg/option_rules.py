"""Which of Iceberg's table properties are known, reserved, or name a feature that is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakeformat.dialects.iceberg import options
from lakeformat.dialects.iceberg.options import FORMATS
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model import option_keys
from lakeformat.model.option_keys import Documented

# Names that engines give a meaning of their own; a table cannot have them (TableProperties.RESERVED_PROPERTIES).
_RESERVED = {
    "format-version", "uuid", "snapshot-count", "current-snapshot-id", "current-snapshot-summary",
    "current-snapshot-timestamp-ms", "current-schema", "default-partition-spec", "default-sort-order",
}  # fmt: skip
# The keys of TableProperties, and pyiceberg's own. A `*` stands for a column.
DOCUMENTED = Documented.of(
    heeded="""
    comment commit.manifest-merge.enabled commit.manifest.min-count-to-merge commit.manifest.target-size-bytes
    commit.retry.num-retries encryption.key-id format-version gc.enabled history.expire.max-ref-age-ms
    history.expire.max-snapshot-age-ms history.expire.min-snapshots-to-keep lakeformat.compact.delete-file-threshold
    lakeformat.compact.delete-ratio-threshold read.split.open-file-cost read.split.target-size schema.name-mapping.default
    write.avro.compression-codec write.avro.compression-level write.data.path write.delete.avro.compression-codec
    write.delete.avro.compression-level write.delete.format.default write.delete.granularity write.delete.isolation-level
    write.delete.mode write.delete.orc.compression-codec write.delete.parquet.compression-codec
    write.delete.parquet.compression-level write.delete.target-file-size-bytes write.distribution-mode write.folder-storage.path
    write.format.default write.location-provider.impl write.manifest.compression-codec write.merge.isolation-level
    write.merge.mode write.metadata.compression-codec write.metadata.delete-after-commit.enabled write.metadata.metrics.column.*
    write.metadata.metrics.default write.metadata.metrics.max-inferred-column-defaults write.metadata.path
    write.metadata.previous-versions-max write.object-storage.enabled write.object-storage.partitioned-paths
    write.object-storage.path write.orc.compression-codec write.orc.stripe-size-bytes
    write.parquet.compression-codec write.parquet.compression-level write.parquet.dict-size-bytes write.parquet.page-size-bytes
    write.parquet.row-group-size-bytes
    write.parquet.shred-variants write.parquet.variant-inference-buffer-size write.spark.fanout.enabled write.summary.partition-limit write.target-file-size-bytes write.update.isolation-level
    write.update.mode write.wap.enabled
    """,
    ignored="""
    commit.retry.max-wait-ms commit.retry.min-wait-ms commit.retry.total-timeout-ms commit.status-check.max-wait-ms
    commit.status-check.min-wait-ms commit.status-check.num-retries commit.status-check.total-timeout-ms
    compatibility.snapshot-id-inheritance.enabled encryption.data-key-length engine.hive.enabled engine.hive.lock-enabled
    flink.max-continuous-empty-commits read.data-planning-mode read.delete-planning-mode read.orc.vectorization.batch-size
    read.orc.vectorization.enabled read.parquet.vectorization.batch-size read.parquet.vectorization.enabled
    read.split.adaptive-size.enabled read.split.metadata-target-size read.split.planning-lookback write.delete.distribution-mode
    write.delete.orc.block-size-bytes write.delete.orc.compression-strategy write.delete.orc.stripe-size-bytes
    write.delete.orc.vectorized.batch-size write.delete.parquet.dict-size-bytes write.delete.parquet.page-row-limit
    write.delete.parquet.page-size-bytes write.delete.parquet.page-version write.delete.parquet.row-group-check-max-record-count
    write.delete.parquet.row-group-check-min-record-count write.delete.parquet.row-group-size-bytes write.manifest-lists.enabled
    write.merge.cardinality-check.enabled write.merge.distribution-mode write.orc.block-size-bytes write.orc.bloom.filter.columns write.orc.bloom.filter.fpp
    write.orc.compression-strategy write.orc.vectorized.batch-size write.parquet.bloom-filter-adaptive-enabled
    write.parquet.bloom-filter-enabled.column.* write.parquet.bloom-filter-fpp.column.* write.parquet.bloom-filter-max-bytes
    write.parquet.bloom-filter-ndv.column.* write.parquet.compression-codec.column.* write.parquet.page-row-limit
    write.parquet.page-version write.parquet.row-group-check-max-record-count write.parquet.row-group-check-min-record-count
    write.parquet.row-group-limit write.parquet.stats-enabled.column.*
    write.py-location-provider.impl write.spark.accept-any-schema
    write.spark.advisory-partition-size-bytes write.update.distribution-mode write.upsert.enabled
    """,
)
# What a table may ask for that a write would not do: (key, does the value ask for it, what to say).
_REFUSED_ON_WRITE: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("write.format.default", lambda v: v.lower() not in FORMATS, "data files in {value}"),
    ("write.delete.format.default", lambda v: v.lower() not in FORMATS, "delete files in {value}"),
    ("write.location-provider.impl", bool, "location providers"),
    ("write.metadata.compression-codec", lambda v: v.lower() not in ("none", "gzip"), "metadata in {value}"),
    ("encryption.key-id", bool, "encryption"),
)


def require_writable(properties: Mapping[str, str], where: str) -> None:
    """Raise `UnsupportedFeature` for a feature that a write would have to take part in."""
    for key, asks, feature in _REFUSED_ON_WRITE:
        value = properties.get(key)
        if value is not None and asks(value):
            raise UnsupportedFeature(f"{where}: {feature.format(value=value)} ({key}={value}): not supported yet")


def check_new(properties: Mapping[str, str], where: str) -> None:
    """Raise `InvalidInput` for properties that cannot be: reserved and misspelt names, values that do not parse. Log those that
    do nothing."""
    for key, value in properties.items():
        if not isinstance(value, str):
            raise InvalidInput(f"{where}: property {key!r} is {value!r}; properties are text, e.g. {str(value)!r}")
        if key in _RESERVED:
            raise InvalidInput(f"{where}: property {key!r} is reserved: it says what the table is, and is not set")
        options.check_value(key, value)
    option_keys.check(properties, DOCUMENTED, "property", where)
