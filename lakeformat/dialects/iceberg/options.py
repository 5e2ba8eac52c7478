"""Iceberg's table properties as typed values with their defaults, and which of them are known, reserved or refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from lakeformat.codec.variant import shredding as variant_shredding
from lakeformat.dialects.dialect import WAITS_MS
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model import option_keys
from lakeformat.model.dataclass import dataclass
from lakeformat.model.option import Option, Parser, declared, read_by_key
from lakeformat.model.option_keys import Documented
from lakeformat.model.work import StatsMode
from lakeformat.storage.paths import is_absolute

Options = Mapping[str, str]

FORMATS = ("parquet", "orc", "avro")  # For data files and for delete files.
_COMPRESSIONS = {"parquet": "zstd", "orc": "zlib", "avro": "gzip"}  # The default.

_MODE = re.compile(r"(none|counts|full)|truncate\(([1-9]\d*)\)")


def _in_range(key: str, text: str, least: int) -> int:
    try:
        if least <= (number := int(text)) < 2**63:
            return number
    except ValueError:
        pass
    raise InvalidInput(f"property {key!r} is {text!r}; it must be a whole number{' above 0' if least == 1 else ''}")


def integer(key: str, text: str) -> int:
    """A whole number of 64 bits."""
    return _in_range(key, text, -(2**63))


def positive(key: str, text: str) -> int:
    """A size, or a count that is divided by."""
    return _in_range(key, text, 1)


def number(key: str, text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"property {key!r} is {text!r}; it must be a number") from None


def boolean(key: str, text: str) -> bool:
    """`true` or `false`."""
    if text.strip().lower() not in {"true", "false"}:
        raise InvalidInput(f"property {key!r} is {text!r}; it must be 'true' or 'false'")
    return text.strip().lower() == "true"


def _word(key: str, text: str) -> str:
    return text.lower()


def _one_of(*words: str) -> Parser[str]:
    def parse(key: str, text: str) -> str:
        if (word := text.strip().lower()) not in words:
            listed = f"{', '.join(words[:-1])} or {words[-1]}"
            raise InvalidInput(f"property {key!r} is {text!r}; it must be {listed}")
        return word

    return parse


def _path(key: str, text: str) -> str:
    if not is_absolute(text):
        raise InvalidInput(f"property {key!r} is {text!r}; it must be an absolute path or a URI")
    return text


def _stats_mode(key: str, text: str) -> tuple[StatsMode, int]:
    if match := _MODE.fullmatch(text.strip().lower()):
        return StatsMode(match[1] or StatsMode.TRUNCATE), int(match[2] or 0)
    raise InvalidInput(f"property {key!r} is {text!r}; it must be none, counts, full or truncate(length)")


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of a table. An attribute raises `InvalidInput` if its text does not parse. Defaults are those of
    TableProperties, unless a comment says otherwise."""

    properties: Options

    commit_manifest_merge_enabled = Option("commit.manifest-merge.enabled", boolean, True)
    commit_manifest_min_count_to_merge = Option("commit.manifest.min-count-to-merge", positive, 100)
    commit_manifest_target_size = Option("commit.manifest.target-size-bytes", positive, 8 << 20)
    # Paimon's defaults; Iceberg's are four retries, after 100 ms and at most a minute.
    commit_retry_num_retries = Option("commit.retry.num-retries", integer, 10)
    commit_retry_min_wait_ms = Option("commit.retry.min-wait-ms", integer, WAITS_MS[0])
    commit_retry_max_wait_ms = Option("commit.retry.max-wait-ms", integer, WAITS_MS[1])
    compact_delete_file_threshold = Option("lakeformat.compact.delete-file-threshold", integer, 2**31 - 1)
    compact_delete_ratio_threshold = Option("lakeformat.compact.delete-ratio-threshold", number, 0.3)
    # By default that of data files.
    delete_format = Option[str | None]("write.delete.format.default", _word, None)
    delete_granularity = Option("write.delete.granularity", _one_of("file", "partition"), "file")  # Spark's default.
    delete_target_file_size = Option("write.delete.target-file-size-bytes", positive, 64 << 20)
    # By default what the table's order and partitions ask for.
    distribution_mode = Option[str | None]("write.distribution-mode", _one_of("none", "hash", "range"), None)
    fanout_enabled = Option("write.spark.fanout.enabled", boolean, False)
    format = Option("write.format.default", _word, "parquet")
    gc_enabled = Option("gc.enabled", boolean, True)
    manifest_codec = Option("write.manifest.compression-codec", _word, "gzip")
    max_ref_age_ms = Option("history.expire.max-ref-age-ms", integer, 2**63 - 1)
    max_snapshot_age_ms = Option("history.expire.max-snapshot-age-ms", integer, 5 * 86_400_000)
    metadata_codec = Option("write.metadata.compression-codec", _word, "none")
    metadata_delete_after_commit = Option("write.metadata.delete-after-commit.enabled", boolean, False)
    metadata_previous_versions_max = Option("write.metadata.previous-versions-max", integer, 100)
    metrics_default = Option[tuple[StatsMode, int] | None]("write.metadata.metrics.default", _stats_mode, None)
    metrics_max_columns = Option("write.metadata.metrics.max-inferred-column-defaults", integer, 100)
    min_snapshots_to_keep = Option("history.expire.min-snapshots-to-keep", integer, 1)
    object_storage_enabled = Option("write.object-storage.enabled", boolean, False)
    object_storage_partitioned = Option("write.object-storage.partitioned-paths", boolean, True)
    shred_variants = Option("write.parquet.shred-variants", boolean, False)
    split_open_file_cost = Option("read.split.open-file-cost", integer, 4 << 20)
    split_target_size = Option("read.split.target-size", positive, 128 << 20)
    summary_partition_limit = Option("write.summary.partition-limit", integer, 0)
    target_file_size = Option("write.target-file-size-bytes", positive, 512 << 20)
    upsert_enabled = Option("write.upsert.enabled", boolean, False)
    variant_inference_rows = Option("write.parquet.variant-inference-buffer-size", integer, 100)


read = TableProperties
_VERBS = ("delete", "update", "merge")
_MODES = {
    verb: Option(f"write.{verb}.mode", _one_of("copy-on-write", "merge-on-read"), "copy-on-write") for verb in _VERBS
}
_ISOLATION_LEVELS = {
    verb: Option(f"write.{verb}.isolation-level", _one_of("serializable", "snapshot"), "serializable")
    for verb in _VERBS
}
_CODECS = {
    prefix: Option[str | None](f"{prefix}.compression-codec", _word, None)
    for format in FORMATS
    for prefix in (f"write.{format}", f"write.delete.{format}")
}
_LEVELS = {
    prefix: Option[int | None](f"{prefix}.compression-level", integer, None)
    for format in ("parquet", "avro")  # ORC has none.
    for prefix in (f"write.{format}", f"write.delete.{format}")
}
_SIZES = tuple(  # Read by their keys.
    Option[int | None](key, integer, None)
    for key in (
        "write.orc.stripe-size-bytes",
        "write.parquet.dict-size-bytes",
        "write.parquet.page-size-bytes",
        "write.parquet.row-group-size-bytes",
    )
)
_PATHS = tuple(  # Read by their keys: tables of other engines may have relative ones.
    Option[str | None](key, _path, None)
    for key in ("write.data.path", "write.folder-storage.path", "write.metadata.path", "write.object-storage.path")
)
_METRICS_OF_COLUMN = Option[tuple[StatsMode, int] | None]("write.metadata.metrics.column.*", _stats_mode, None)


def check_value(key: str, value: str) -> None:
    """Raise `InvalidInput` for a value that does not parse."""
    if key in HEEDED:
        HEEDED[key].parse(key, value)
    elif key.startswith(_METRICS_OF_COLUMN.key.removesuffix("*")):
        _METRICS_OF_COLUMN.parse(key, value)


def distribution(options: Options, default: str) -> str:
    """`write.distribution-mode`: how Spark distributes rows to tasks before a write. Raises `InvalidInput`."""
    return read(options).distribution_mode or default


def mode(options: Options, verb: str) -> str:
    return _MODES[verb].read(options)


def isolation(options: Options, verb: str) -> str:
    return _ISOLATION_LEVELS[verb].read(options)


def data_format(options: Options) -> str:
    """`write.format.default`."""
    return read(options).format


def delete_format(options: Options) -> str:
    """`write.delete.format.default`; by default that of data files."""
    return read(options).delete_format or data_format(options)


def compression(options: Options, format: str, deletes: bool = False) -> tuple[str, int | None]:
    """(codec, level) of data files or of delete files; by default these have the codec of data files."""
    prefixes = (f"write.delete.{format}", f"write.{format}") if deletes else (f"write.{format}",)
    codecs = (_CODECS[prefix].read(options) for prefix in prefixes)
    levels = (_LEVELS[prefix].read(options) for prefix in prefixes if prefix in _LEVELS)
    codec = next((codec for codec in codecs if codec is not None), _COMPRESSIONS[format])
    return "uncompressed" if codec == "none" else codec, next((level for level in levels if level is not None), None)


def compresses_metadata(options: Options) -> bool:
    """`write.metadata.compression-codec`: whether metadata files are gzipped."""
    return read(options).metadata_codec == "gzip"


def scatters(options: Options) -> bool:
    """`write.object-storage.enabled`: whether paths of data files begin with a hash."""
    return read(options).object_storage_enabled


def shredding(options: Options) -> str | None:
    """Which parts of variants are shredded into columns, as in `WriteTask`; None if none are
    (`write.parquet.shred-variants`, VariantShreddingAnalyzer)."""
    if not read(options).shred_variants:
        return None
    rows = read(options).variant_inference_rows
    return variant_shredding.Options(variant_shredding.Limits(rows=max(1, rows))).emit()


def data_path(options: Options) -> str | None:
    """The folder for new data files that the table's properties name; None: in the table's own folder."""
    keys = (
        "write.data.path",
        *(("write.object-storage.path",) if scatters(options) else ()),
        "write.folder-storage.path",
    )
    return next((options[key] for key in keys if key in options), None)


def granularity(options: Options) -> str:
    """Whether delete files apply to one data file or to all in a partition. Spark's default is the file."""
    return read(options).delete_granularity


def stats_modes(
    options: Options, columns: tuple[str, ...], sorted_by: frozenset[str] = frozenset()
) -> tuple[tuple[StatsMode, int], ...]:
    """`write.metadata.metrics.*`: (mode, length) for each column; columns beyond the first 100 have none by default.
    Columns of the sort order have bounds by default."""
    properties, cut = read(options), (StatsMode.TRUNCATE, 16)
    default = properties.metrics_default
    prefix = _METRICS_OF_COLUMN.key.removesuffix("*")
    modes = []
    for index, name in enumerate(columns):
        general = default or (cut if index < properties.metrics_max_columns else (StatsMode.NONE, 0))
        if name in sorted_by and general[0] in (StatsMode.NONE, StatsMode.COUNTS):
            general = cut
        own = options.get(f"{prefix}{name}")
        modes.append(general if own is None else _stats_mode(f"{prefix}{name}", own))
    return tuple(modes)


# Names reserved by engines; a table cannot have them (TableProperties.RESERVED_PROPERTIES).
_RESERVED = {
    "format-version", "uuid", "snapshot-count", "current-snapshot-id", "current-snapshot-summary",
    "current-snapshot-timestamp-ms", "current-schema", "default-partition-spec", "default-sort-order",
}  # fmt: skip
# The other keys of TableProperties, and pyiceberg's own. A `*` stands for a column.
_IGNORED = """
    commit.retry.total-timeout-ms commit.status-check.max-wait-ms commit.status-check.min-wait-ms
    commit.status-check.num-retries commit.status-check.total-timeout-ms
    compatibility.snapshot-id-inheritance.enabled encryption.data-key-length engine.hive.enabled
    engine.hive.lock-enabled flink.max-continuous-empty-commits read.data-planning-mode read.delete-planning-mode
    read.orc.vectorization.batch-size read.orc.vectorization.enabled read.parquet.vectorization.batch-size
    read.parquet.vectorization.enabled read.split.adaptive-size.enabled read.split.metadata-target-size
    read.split.planning-lookback write.delete.distribution-mode write.delete.orc.block-size-bytes
    write.delete.orc.compression-strategy write.delete.orc.stripe-size-bytes write.delete.orc.vectorized.batch-size
    write.delete.parquet.dict-size-bytes write.delete.parquet.page-row-limit write.delete.parquet.page-size-bytes
    write.delete.parquet.page-version write.delete.parquet.row-group-check-max-record-count
    write.delete.parquet.row-group-check-min-record-count write.delete.parquet.row-group-size-bytes
    write.manifest-lists.enabled write.merge.cardinality-check.enabled write.merge.distribution-mode
    write.orc.block-size-bytes write.orc.bloom.filter.columns write.orc.bloom.filter.fpp
    write.orc.compression-strategy write.orc.vectorized.batch-size write.parquet.bloom-filter-adaptive-enabled
    write.parquet.bloom-filter-enabled.column.* write.parquet.bloom-filter-fpp.column.*
    write.parquet.bloom-filter-max-bytes write.parquet.bloom-filter-ndv.column.*
    write.parquet.compression-codec.column.* write.parquet.page-row-limit write.parquet.page-version
    write.parquet.row-group-check-max-record-count write.parquet.row-group-check-min-record-count
    write.parquet.row-group-limit write.parquet.stats-enabled.column.* write.py-location-provider.impl
    write.spark.accept-any-schema write.spark.advisory-partition-size-bytes write.update.distribution-mode
"""
# Features that a write does not support: (key, whether the value asks for it, the message).
_REFUSED_ON_WRITE: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("write.format.default", lambda v: v.lower() not in FORMATS, "data files in {value}"),
    ("write.delete.format.default", lambda v: v.lower() not in FORMATS, "delete files in {value}"),
    ("write.location-provider.impl", bool, "location providers"),
    ("write.metadata.compression-codec", lambda v: v.lower() not in ("none", "gzip"), "metadata in {value}"),
    ("encryption.key-id", bool, "encryption"),
)

REFUSED = tuple(key for key, _, _ in _REFUSED_ON_WRITE)
HEEDED = declared(
    TableProperties,
    _MODES.values(),
    _ISOLATION_LEVELS.values(),
    _CODECS.values(),
    _LEVELS.values(),
    _SIZES,
    _PATHS,
    read_by_key("comment", "format-version", "schema.name-mapping.default", "write.wap.enabled"),
    read_by_key(*REFUSED),
)
DOCUMENTED = Documented.declared([*HEEDED, _METRICS_OF_COLUMN.key], _IGNORED)


def require_writable(properties: Mapping[str, str], where: str) -> None:
    """Raise `UnsupportedFeature` for a feature that a write would have to implement."""
    for key, asks, feature in _REFUSED_ON_WRITE:
        value = properties.get(key)
        if value is not None and asks(value):
            raise UnsupportedFeature(f"{where}: {feature.format(value=value)} ({key}={value}): not supported yet")


def check_new(properties: Mapping[str, str], where: str) -> None:
    """Raise `InvalidInput` for invalid properties: reserved and misspelt names, values that do not parse. Log those
    without effect."""
    for key, value in properties.items():
        if not isinstance(value, str):
            raise InvalidInput(f"{where}: property {key!r} is {value!r}; properties are text, e.g. {str(value)!r}")
        if key in _RESERVED:
            raise InvalidInput(f"{where}: property {key!r} is reserved: it says what the table is, and is not set")
        check_value(key, value)
    option_keys.check(properties, DOCUMENTED, "property", where)
