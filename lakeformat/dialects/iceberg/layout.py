"""state -> WriteTask: where files are written, and how rows are partitioned."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import murmur
from lakeformat.dialects.iceberg import manifest, metadata, options, scan
from lakeformat.dialects.iceberg.manifest import FileContent
from lakeformat.dialects.iceberg.metadata import Spec, State
from lakeformat.dialects.iceberg.scan import PATH_ID, POSITION_ID, Files
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import OperationKind
from lakeformat.model.partition import TransformKind
from lakeformat.model.predicate import NEVER
from lakeformat.model.schema import Field, Kind, Scalar, Type, scalar
from lakeformat.model.work import (
    LAST_UPDATED,
    ROW_ID,
    Content,
    DeleteFile,
    DeleteTask,
    DeltaLayout,
    Encoding,
    Naming,
    StatsMode,
    Target,
    WriteTask,
    in_folder,
)
from lakeformat.storage.paths import is_absolute
from lakeformat.storage.store import Reader

SMALL, LARGE = 0.75, 1.8  # Relative to the target size: files in between are left alone.
_EPOCH = datetime.datetime(1970, 1, 1)
_WITH_IDS = {
    "orc.field-ids": "true",
    "avro.field-ids": "true",
    "parquet.nanoseconds": "int64",
    "parquet.variants": "annotated",
}
# The columns of a position delete file.
POSITION_FIELDS = (
    Field(PATH_ID, "file_path", scalar(Kind.STRING), nullable=False),
    Field(POSITION_ID, "pos", scalar(Kind.BIGINT), nullable=False),
)


@dataclass(frozen=True, slots=True)
class Directory:
    """(partition values, no bucket) -> the folder of a data file, as Java names it (PartitionSpec.partitionToPath)."""

    names: tuple[str, ...]
    transforms: tuple[TransformKind, ...]
    kinds: tuple[Type, ...]
    above: str = ""

    def __call__(self, values: tuple[Any, ...], bucket: int | None) -> str:
        return "/".join([*([self.above] if self.above else []), *self.partition(values)])

    def partition(self, values: tuple[Any, ...]) -> list[str]:
        """`name=value` for each partition field. Raises `InvalidInput` for a time that Python cannot represent."""
        try:
            return [
                f"{_escape(name)}={_escape(partition_text(value, transform, kind))}"
                for name, transform, kind, value in zip(self.names, self.transforms, self.kinds, values, strict=True)
            ]
        except OverflowError as error:
            partition = dict(zip(self.names, values, strict=True))
            raise InvalidInput(f"partition {partition}: its time must be in the years 1 to 9999") from error


@dataclass(frozen=True, slots=True)
class Scattered:
    """(folder of a partition, name) -> a path that begins with a hash, which spreads the requests to object storage
    (`write.object-storage.enabled`, LocationProviders.ObjectStoreLocationProvider)."""

    above: str
    context: str = ""  # The last two parts of the table's location, for a data folder that several tables may share.
    with_partitions: bool = True

    def __call__(self, folder: str, name: str) -> str:
        inside = f"{folder}/{name}" if folder and self.with_partitions else name
        hashed = int(murmur.murmur3_32(pa.array([inside.encode()]))[0]) & 0xFFFFF
        bits = f"{hashed:020b}"
        entropy = "/".join((bits[:4], bits[4:8], bits[8:12], bits[12:]))
        if not self.context and not self.with_partitions:
            return "/".join(filter(None, (self.above, f"{entropy}-{inside}")))
        return "/".join(filter(None, (self.above, entropy, self.context, inside)))


def layout(base: State, reader: Reader | None = None) -> WriteTask:
    """How rows become files of this table. Raises `UnsupportedFeature` for a table that must not be written."""
    metadata.require_writable(base, f"table {base.document['location']}")
    schema, properties = base.schema, base.schema.properties
    if lost := [field.name for field in schema.partitioning.fields if field.source not in schema.names]:
        raise UnsupportedFeature(
            f"table {base.document['location']}: the source of partition field {lost[0]!r} is a nested field or a "
            f"dropped column: such a table can be read, not written; alter().drop_partition_field({lost[0]!r}) "
            "makes it writable"
        )
    file_format = options.data_format(properties)
    compression, level = options.compression(properties, file_format)
    order = metadata.known_order(base)
    stats = options.stats_modes(properties, schema.names, metadata.sorted_columns(base))
    settings = {
        "parquet.block.size": properties.get("write.parquet.row-group-size-bytes"),
        "parquet.page.size": properties.get("write.parquet.page-size-bytes"),
        "parquet.dictionary.page.size": properties.get("write.parquet.dict-size-bytes"),
        "parquet.shredding": options.shredding(properties),
        "orc.stripe.size": properties.get("write.orc.stripe-size-bytes"),
        **_WITH_IDS,
    }
    return WriteTask(
        fields=schema.fields,
        directory=_folders(base, base.spec),
        partition_by=schema.partitioning.fields,
        encoding=Encoding(
            file_format, compression, level, {key: value for key, value in settings.items() if value is not None}
        ),
        naming=_naming(base),
        target_size_bytes=options.read(properties).target_file_size,
        # Java records only the row count of Avro files (core/AvroMetrics.java).
        stats=stats if file_format != "avro" else ((StatsMode.NONE, 0),) * len(stats),
        sort_by=order.fields,
        sort_order_id=order.id,
        fans_out=options.read(properties).fanout_enabled,
        distribution=options.distribution(properties, "range" if order else "hash" if schema.partitioning else "none"),
    )


def rewriting(base: State, reader: Reader | None = None) -> tuple[tuple[Field, ...], WriteTask]:
    """(the columns to read, how they are written) for existing rows that move: from version 3 on they keep their
    ids."""
    task = layout(base, reader)
    if metadata.format_version(base) < 3:
        return base.schema.fields, task
    fields = (*base.schema.fields, ROW_ID, LAST_UPDATED)
    unbounded = ((StatsMode.NONE, 0),) * 2  # Manifests have no bounds of them.
    return fields, replace(task, fields=(*task.fields, ROW_ID, LAST_UPDATED), stats=(*task.stats, *unbounded))


def delete_layout(reader: Reader, base: State, data_files: Files, verb: OperationKind) -> DeleteTask | None:
    """How the rows of the data files `data_files` that `verb` ("delete", "update", "merge") deletes become delete
    files; None for `write.<verb>.mode=copy-on-write`."""
    given = base.schema.properties
    if options.mode(given, verb) == "copy-on-write":
        return None
    metadata.require_writable(base, f"table {base.document['location']}")
    return beside(reader, base, data_files)


def beside(reader: Reader, base: State, data_files: Files) -> DeleteTask:
    """How deleted rows of the data files `data_files` become delete files,
    which include their earlier position deletes."""
    earlier: Sequence[tuple[DeleteFile, ...]] = ((),) * len(data_files)
    alone: Sequence[tuple[DeleteFile, ...]] = earlier
    if _is_per_file(base) and len(data_files.deletes):
        positions = data_files.deletes.filter(
            pc.equal(data_files.deletes["content"], int(FileContent.POSITION_DELETES))
        )
        own = positions.filter(scan.referenced(positions).is_valid())
        alone = scan.delete_files(reader, base, Files(data_files.entries, own))
        earlier = scan.delete_files(reader, base, Files(data_files.entries, positions)) if _has_vectors(base) else alone
    return _delete_task(base, data_files, earlier, alone)


def rewritten_deletes(reader: Reader, base: State, data_files: Files) -> DeleteTask:
    """How the position deletes `data_files.deletes` are rewritten."""
    earlier = scan.delete_files(reader, base, data_files)
    return _delete_task(base, data_files, earlier, earlier)


def delta_layout(reader: Reader, base: State, key: tuple[str, ...]) -> DeltaLayout:
    """How a changelog by `key` becomes files. Equality deletes apply only within their partition, so the key must
    include the partition's source columns; raises `InvalidInput`, and `UnsupportedFeature` if there are files in
    partitions of an earlier spec."""
    schema = base.schema
    data = replace(layout(base), sort_by=(), sort_order_id=0)  # The writer knows where its own rows are.
    fields = tuple(schema.field(name) for name in key)
    for field in fields:
        if not isinstance(field.type, Scalar) or field.type.kind in (Kind.FLOAT, Kind.DOUBLE):
            raise InvalidInput(
                f"{reader.root}: key {field.name!r} is {field.type}; it must be a plain value that is exact"
            )
    missing = [name for name in schema.partitioning.sources if name not in key]
    if missing or not key:
        raise InvalidInput(
            f"{reader.root}: the key of a changelog must hold the columns that the partitions are made of: add "
            f"{', '.join(missing) or 'a column'} to ({', '.join(key)})"
        )
    specs = np.asarray(manifest.live_entries(reader, base)["_spec"])
    if (specs != base.spec.id).any() and not base.spec.is_unpartitioned:
        raise UnsupportedFeature(
            f"{reader.root}: files under an earlier partition spec, where equality deletes do not reach; "
            "compact the table first"
        )
    delete_format = options.delete_format(schema.properties)
    compression, level = options.compression(schema.properties, delete_format, deletes=True)
    equality_deletes = replace(
        data,
        fields=fields,
        encoding=Encoding(delete_format, compression, level, data.encoding.options),
        naming=_naming(base, "-deletes"),
        content=Content.EQUALITY_DELETES,
        stats=(),
    )
    nothing = scan.files(reader, base, NEVER)
    upserts = options.read(schema.properties).upsert_enabled
    return DeltaLayout(data, equality_deletes, _delete_task(base, nothing, (), ()), upserts)


def _has_vectors(base: State) -> bool:
    return metadata.format_version(base) >= 3


def _is_per_file(base: State) -> bool:
    """Whether a position delete file, or a deletion vector, applies to one data file only."""
    return _has_vectors(base) or options.granularity(base.schema.properties) == "file"


def _delete_task(
    base: State,
    data_files: Files,
    earlier: Sequence[tuple[DeleteFile, ...]],
    replaced: Sequence[tuple[DeleteFile, ...]],
) -> DeleteTask:
    properties = base.schema.properties
    specs = data_files.entries["_spec"].to_pylist()
    file_format = options.delete_format(properties)
    compression, level = options.compression(properties, file_format, deletes=True)
    return DeleteTask(
        targets=tuple(
            Target(path, partition, spec_id, _folders(base, base.specs[spec_id])(partition, None), before, gone)
            for path, partition, spec_id, before, gone in zip(
                data_files.paths.to_pylist(),
                manifest.partition_of_each(data_files.entries, base),
                specs,
                earlier,
                replaced,
                strict=True,
            )
        ),
        content=Content.DELETION_VECTORS if _has_vectors(base) else Content.POSITION_DELETES,
        per_file=_is_per_file(base),
        fields=POSITION_FIELDS,
        encoding=Encoding(file_format, compression, level, _WITH_IDS),
        naming=_naming(base, "-deletes"),
        target_size_bytes=options.read(properties).delete_target_file_size,
    )


def directory(spec: Spec) -> Directory:
    fields = spec.partitioning.fields
    return Directory(tuple(f.name for f in fields), tuple(f.transform.kind for f in fields), spec.types)


def _folders(base: State, spec: Spec) -> Directory:
    """The folders of a spec's data files; `Scattered` adds the data folder before its hash itself."""
    return replace(
        directory(spec), above="" if options.scatters(base.schema.properties) else metadata.data_folder(base)
    )


def _naming(base: State, ending: str = "") -> Naming:
    return Naming("", "-{:05}" + ending, first_number=1, names_task=True, locate=_locate(base))


def _locate(base: State) -> Callable[[str, str], str]:
    properties = base.schema.properties
    if not options.scatters(properties):
        return in_folder
    above = metadata.data_folder(base)
    context = "/".join(base.document["location"].rstrip("/").split("/")[-2:]) if is_absolute(above) else ""
    return Scattered(above, context, options.read(properties).object_storage_partitioned)


def _escape(text: str) -> str:
    """As Java's `URLEncoder`."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def partition_text(value: Any, transform: TransformKind, kind: Type) -> str:
    """A partition value as its folder shows it."""
    if value is None:
        return "null"
    match transform:
        case TransformKind.YEAR:
            return f"{1970 + value:04}"
        case TransformKind.MONTH:
            return f"{1970 + value // 12:04}-{value % 12 + 1:02}"
        case TransformKind.HOUR:
            return f"{_EPOCH + datetime.timedelta(hours=value):%Y-%m-%d-%H}"
    match kind:
        case Scalar(Kind.BOOLEAN):
            return "true" if value else "false"
        case Scalar(Kind.DATE):
            return str(value.isoformat())
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ as zone, (digits,)):
            return _moment(value, 1 if digits > 6 else 1000) + ("+00:00" if zone is Kind.TIMESTAMP_TZ else "")
        case Scalar(Kind.TIME_MICROS):
            return _shortened(value.isoformat("microseconds"))
        case Scalar(Kind.DECIMAL, (_, scale)):
            return f"{Decimal(value):.{scale}f}"
        case Scalar(Kind.BYTES | Kind.FIXED):
            return base64.b64encode(value).decode()
        case Scalar(Kind.UUID):
            text = value.hex()
            return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return str(value)


def _moment(value: int, nanos: int) -> str:
    """A moment that lies `value` times `nanos` nanoseconds from 1970, as `LocalDateTime.toString`."""
    seconds, rest = divmod(value * nanos, 1_000_000_000)
    return _shortened(f"{(_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()}.{rest:09}")


def _shortened(text: str) -> str:
    """As Java's times: no zero seconds, fractions in groups of three digits."""
    whole, _, fraction = text.partition(".")
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{whole}.{fraction}" if fraction else whole.removesuffix(":00") if whole.count(":") == 2 else whole
