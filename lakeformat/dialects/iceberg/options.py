"""Iceberg's table properties as typed values with their defaults, and which of them are known, reserved or refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from lakeformat.codec.variant import shredding as variant_shredding
from lakeformat.dialects.dialect import WAITS_MS
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model import option_keys
from lakeformat.model.option_keys import Documented
from lakeformat.model.work import StatsMode
from lakeformat.storage.paths import is_absolute

Options = Mapping[str, str]

FORMATS = ("parquet", "orc", "avro")  # For data files and for delete files.
_COMPRESSIONS = {"parquet": "zstd", "orc": "zlib", "avro": "gzip"}  # The default.

_MODE = re.compile(r"(none|counts|full)|truncate\(([1-9]\d*)\)")
# The defaults (TableProperties, unless a comment says otherwise).
_DEFAULTS: dict[str, int | float | bool | str] = {
    "commit.manifest-merge.enabled": True,
    "commit.manifest.min-count-to-merge": 100,
    "commit.manifest.target-size-bytes": 8 << 20,
    "commit.retry.num-retries": 10,  # Paimon's default; Iceberg's is four.
    "commit.retry.min-wait-ms": WAITS_MS[0],  # Paimon's defaults; Iceberg's are 100 ms and a minute.
    "commit.retry.max-wait-ms": WAITS_MS[1],
    "gc.enabled": True,
    "history.expire.max-ref-age-ms": 2**63 - 1,
    "history.expire.max-snapshot-age-ms": 5 * 86_400_000,
    "history.expire.min-snapshots-to-keep": 1,
    "lakeformat.compact.delete-file-threshold": 2**31 - 1,
    "lakeformat.compact.delete-ratio-threshold": 0.3,
    "read.split.open-file-cost": 4 << 20,
    "read.split.target-size": 128 << 20,
    "write.delete.target-file-size-bytes": 64 << 20,
    "write.format.default": "parquet",
    "write.manifest.compression-codec": "gzip",
    "write.metadata.delete-after-commit.enabled": False,
    "write.metadata.metrics.max-inferred-column-defaults": 100,
    "write.metadata.previous-versions-max": 100,
    "write.object-storage.enabled": False,
    "write.object-storage.partitioned-paths": True,
    "write.parquet.shred-variants": False,
    "write.parquet.variant-inference-buffer-size": 100,
    "write.spark.fanout.enabled": False,
    "write.summary.partition-limit": 0,
    "write.target-file-size-bytes": 512 << 20,
}
_POSITIVE = {
    "commit.manifest.min-count-to-merge",
    "commit.manifest.target-size-bytes",
    "read.split.target-size",
    "write.delete.target-file-size-bytes",
    "write.target-file-size-bytes",
}


def check_value(key: str, value: str) -> None:
    """Raise `InvalidInput` for a value that does not parse."""
    properties = {key: value}
    if key == "write.distribution-mode":
        distribution(properties, "none")
    if key in _TYPED:
        _TYPED[key](properties, key)
    if key in _PATHS and not is_absolute(value):
        raise InvalidInput(f"property {key!r} is {value!r}; it must be an absolute path or a URI")
    if key in _WORDS:
        one_of(properties, key, _WORDS[key])
    if key == "write.metadata.metrics.default" or key.startswith("write.metadata.metrics.column."):
        _mode(key, value)


def integer(options: Options, key: str) -> int:
    """A whole number of 64 bits, positive for a size or a count that is divided by; raises `InvalidInput`."""
    value = options.get(key)
    if value is None:
        return int(_DEFAULTS[key])
    least = 1 if key in _POSITIVE else -(2**63)
    try:
        if least <= (number := int(value)) < 2**63:
            return number
    except ValueError:
        pass
    raise InvalidInput(f"property {key!r} is {value!r}; it must be a whole number{' above 0' if least == 1 else ''}")


def number(options: Options, key: str) -> float:
    """A number; raises `InvalidInput`."""
    value = options.get(key)
    if value is None:
        return float(_DEFAULTS[key])
    try:
        return float(value)
    except ValueError:
        raise InvalidInput(f"property {key!r} is {value!r}; it must be a number") from None


def boolean(options: Options, key: str) -> bool:
    """`true` or `false`; raises `InvalidInput`."""
    value = options.get(key)
    if value is None:
        return bool(_DEFAULTS[key])
    if value.strip().lower() not in {"true", "false"}:
        raise InvalidInput(f"property {key!r} is {value!r}; it must be 'true' or 'false'")
    return value.strip().lower() == "true"


def text(options: Options, key: str) -> str:
    """The value of a property, or its default."""
    return options.get(key, str(_DEFAULTS[key]))


def distribution(options: Options, default: str) -> str:
    """`write.distribution-mode`: how Spark distributes rows to tasks before a write. Raises `InvalidInput`."""
    value = options.get("write.distribution-mode", default).strip().lower()
    if value not in {"none", "hash", "range"}:
        raise InvalidInput(f"property 'write.distribution-mode' is {value!r}; it must be 'none', 'hash' or 'range'")
    return value


def one_of(options: Options, key: str, allowed: tuple[str, ...]) -> str:
    """One of a few words; the first is the default. Raises `InvalidInput`."""
    value = options.get(key, allowed[0]).strip().lower()
    if value not in allowed:
        raise InvalidInput(f"property {key!r} is {options[key]!r}; it must be {' or '.join(allowed)}")
    return value


def mode(options: Options, verb: str) -> str:
    return one_of(options, f"write.{verb}.mode", ("copy-on-write", "merge-on-read"))


def isolation(options: Options, verb: str) -> str:
    return one_of(options, f"write.{verb}.isolation-level", ("serializable", "snapshot"))


def data_format(options: Options) -> str:
    """`write.format.default`."""
    return text(options, "write.format.default").lower()


def delete_format(options: Options) -> str:
    """`write.delete.format.default`; by default that of data files."""
    return options.get("write.delete.format.default", data_format(options)).lower()


def compression(options: Options, format: str, deletes: bool = False) -> tuple[str, int | None]:
    """(codec, level) of data files or of delete files; by default these have the codec of data files."""
    prefixes = ("write.delete", "write") if deletes else ("write",)
    codec, level = (
        next((key for prefix in prefixes if (key := f"{prefix}.{format}.compression-{what}") in options), None)
        for what in ("codec", "level")
    )
    name = _COMPRESSIONS[format] if codec is None else options[codec].lower()
    return "uncompressed" if name == "none" else name, None if level is None else integer(options, level)


def compresses_metadata(options: Options) -> bool:
    """`write.metadata.compression-codec`: whether metadata files are gzipped."""
    return options.get("write.metadata.compression-codec", "none").lower() == "gzip"


def scatters(options: Options) -> bool:
    """`write.object-storage.enabled`: whether paths of data files begin with a hash."""
    return boolean(options, "write.object-storage.enabled")


def shredding(options: Options) -> str | None:
    """Which parts of variants are shredded into columns, as in `WriteTask`; None if none are
    (`write.parquet.shred-variants`, VariantShreddingAnalyzer)."""
    if not boolean(options, "write.parquet.shred-variants"):
        return None
    rows = integer(options, "write.parquet.variant-inference-buffer-size")
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
    return one_of(options, "write.delete.granularity", ("file", "partition"))


def stats_modes(
    options: Options, columns: tuple[str, ...], sorted_by: frozenset[str] = frozenset()
) -> tuple[tuple[StatsMode, int], ...]:
    """`write.metadata.metrics.*`: (mode, length) for each column; columns beyond the first 100 have none by default.
    Columns of the sort order have bounds by default."""
    default = options.get("write.metadata.metrics.default")
    inferred = integer(options, "write.metadata.metrics.max-inferred-column-defaults")
    modes = []
    for index, name in enumerate(columns):
        general = default or ("truncate(16)" if index < inferred else "none")
        if name in sorted_by and general.strip().lower() in (StatsMode.NONE, StatsMode.COUNTS):
            general = "truncate(16)"
        key = f"write.metadata.metrics.column.{name}"
        modes.append(_mode(key, options.get(key, general)))
    return tuple(modes)


def _mode(key: str, text: str) -> tuple[StatsMode, int]:
    if match := _MODE.fullmatch(text.strip().lower()):
        return StatsMode(match[1] or StatsMode.TRUNCATE), int(match[2] or 0)
    raise InvalidInput(f"property {key!r} is {text!r}; it must be none, counts, full or truncate(length)")


_PATHS = frozenset({"write.data.path", "write.folder-storage.path", "write.metadata.path", "write.object-storage.path"})
_WORDS: dict[str, tuple[str, ...]] = {
    "write.delete.granularity": ("file", "partition"),
    **{f"write.{verb}.mode": ("copy-on-write", "merge-on-read") for verb in ("delete", "update", "merge")},
    **{f"write.{verb}.isolation-level": ("serializable", "snapshot") for verb in ("delete", "update", "merge")},
}
_TYPED: dict[str, Callable[..., object]] = {
    "write.target-file-size-bytes": integer,
    "write.delete.target-file-size-bytes": integer,
    "lakeformat.compact.delete-ratio-threshold": number,
    "lakeformat.compact.delete-file-threshold": integer,
    "write.orc.stripe-size-bytes": integer,
    "write.parquet.row-group-size-bytes": integer,
    "write.parquet.page-size-bytes": integer,
    "write.parquet.dict-size-bytes": integer,
    "write.parquet.compression-level": integer,
    "write.parquet.shred-variants": boolean,
    "write.parquet.variant-inference-buffer-size": integer,
    "write.avro.compression-level": integer,
    "write.delete.parquet.compression-level": integer,
    "write.delete.avro.compression-level": integer,
    "write.spark.fanout.enabled": boolean,
    "commit.manifest.target-size-bytes": integer,
    "commit.manifest.min-count-to-merge": integer,
    "commit.manifest-merge.enabled": boolean,
    "commit.retry.num-retries": integer,
    "commit.retry.min-wait-ms": integer,
    "commit.retry.max-wait-ms": integer,
    "history.expire.max-snapshot-age-ms": integer,
    "history.expire.min-snapshots-to-keep": integer,
    "write.metadata.previous-versions-max": integer,
    "write.metadata.delete-after-commit.enabled": boolean,
    "write.object-storage.enabled": boolean,
    "write.object-storage.partitioned-paths": boolean,
    "history.expire.max-ref-age-ms": integer,
    "write.metadata.metrics.max-inferred-column-defaults": integer,
    "write.summary.partition-limit": integer,
    "read.split.target-size": integer,
    "read.split.open-file-cost": integer,
    "gc.enabled": boolean,
}


# Names reserved by engines; a table cannot have them (TableProperties.RESERVED_PROPERTIES).
_RESERVED = {
    "format-version", "uuid", "snapshot-count", "current-snapshot-id", "current-snapshot-summary",
    "current-snapshot-timestamp-ms", "current-schema", "default-partition-spec", "default-sort-order",
}  # fmt: skip
# The keys of TableProperties, and pyiceberg's own. A `*` stands for a column.
DOCUMENTED = Documented.parse(
    heeded="""
    comment commit.manifest-merge.enabled commit.manifest.min-count-to-merge commit.manifest.target-size-bytes
    commit.retry.max-wait-ms commit.retry.min-wait-ms commit.retry.num-retries encryption.key-id format-version
    gc.enabled history.expire.max-ref-age-ms history.expire.max-snapshot-age-ms history.expire.min-snapshots-to-keep
    lakeformat.compact.delete-file-threshold lakeformat.compact.delete-ratio-threshold read.split.open-file-cost
    read.split.target-size schema.name-mapping.default write.avro.compression-codec write.avro.compression-level
    write.data.path write.delete.avro.compression-codec write.delete.avro.compression-level write.delete.format.default
    write.delete.granularity write.delete.isolation-level write.delete.mode write.delete.orc.compression-codec
    write.delete.parquet.compression-codec write.delete.parquet.compression-level write.delete.target-file-size-bytes
    write.distribution-mode write.folder-storage.path write.format.default write.location-provider.impl
    write.manifest.compression-codec write.merge.isolation-level write.merge.mode write.metadata.compression-codec
    write.metadata.delete-after-commit.enabled write.metadata.metrics.column.* write.metadata.metrics.default
    write.metadata.metrics.max-inferred-column-defaults write.metadata.path write.metadata.previous-versions-max
    write.object-storage.enabled write.object-storage.partitioned-paths write.object-storage.path
    write.orc.compression-codec write.orc.stripe-size-bytes write.parquet.compression-codec
    write.parquet.compression-level write.parquet.dict-size-bytes write.parquet.page-size-bytes
    write.parquet.row-group-size-bytes write.parquet.shred-variants write.parquet.variant-inference-buffer-size
    write.spark.fanout.enabled write.summary.partition-limit write.target-file-size-bytes write.update.isolation-level
    write.update.mode write.wap.enabled
    """,
    ignored="""
    commit.retry.total-timeout-ms commit.status-check.max-wait-ms commit.status-check.min-wait-ms
    commit.status-check.num-retries commit.status-check.total-timeout-ms compatibility.snapshot-id-inheritance.enabled
    encryption.data-key-length engine.hive.enabled engine.hive.lock-enabled flink.max-continuous-empty-commits
    read.data-planning-mode read.delete-planning-mode read.orc.vectorization.batch-size read.orc.vectorization.enabled
    read.parquet.vectorization.batch-size read.parquet.vectorization.enabled read.split.adaptive-size.enabled
    read.split.metadata-target-size read.split.planning-lookback write.delete.distribution-mode
    write.delete.orc.block-size-bytes write.delete.orc.compression-strategy write.delete.orc.stripe-size-bytes
    write.delete.orc.vectorized.batch-size write.delete.parquet.dict-size-bytes write.delete.parquet.page-row-limit
    write.delete.parquet.page-size-bytes write.delete.parquet.page-version
    write.delete.parquet.row-group-check-max-record-count write.delete.parquet.row-group-check-min-record-count
    write.delete.parquet.row-group-size-bytes write.manifest-lists.enabled write.merge.cardinality-check.enabled
    write.merge.distribution-mode write.orc.block-size-bytes write.orc.bloom.filter.columns write.orc.bloom.filter.fpp
    write.orc.compression-strategy write.orc.vectorized.batch-size write.parquet.bloom-filter-adaptive-enabled
    write.parquet.bloom-filter-enabled.column.* write.parquet.bloom-filter-fpp.column.*
    write.parquet.bloom-filter-max-bytes write.parquet.bloom-filter-ndv.column.*
    write.parquet.compression-codec.column.* write.parquet.page-row-limit write.parquet.page-version
    write.parquet.row-group-check-max-record-count write.parquet.row-group-check-min-record-count
    write.parquet.row-group-limit write.parquet.stats-enabled.column.* write.py-location-provider.impl
    write.spark.accept-any-schema write.spark.advisory-partition-size-bytes write.update.distribution-mode
    write.upsert.enabled
    """,
)
# Features that a write does not support: (key, whether the value asks for it, the message).
_REFUSED_ON_WRITE: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("write.format.default", lambda v: v.lower() not in FORMATS, "data files in {value}"),
    ("write.delete.format.default", lambda v: v.lower() not in FORMATS, "delete files in {value}"),
    ("write.location-provider.impl", bool, "location providers"),
    ("write.metadata.compression-codec", lambda v: v.lower() not in ("none", "gzip"), "metadata in {value}"),
    ("encryption.key-id", bool, "encryption"),
)


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
