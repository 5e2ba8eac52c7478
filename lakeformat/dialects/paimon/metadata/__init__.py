"""The root documents: schema and snapshot files, hints and tags; parse, emit, and find an operation in history."""

from __future__ import annotations

import calendar
import datetime
import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import timedelta
from functools import lru_cache
from types import UnionType
from typing import Any

import pyarrow as pa

from lakeformat.codec import murmur, parsing
from lakeformat.codec.arrow import to_arrow
from lakeformat.dialects.paimon import merging, options, types
from lakeformat.dialects.part import Part
from lakeformat.errors import CorruptFile, CorruptTable, InvalidInput, NoSuchFile, NotFound, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Create, Evolve, Operation, OperationKind, Request, Rewrite
from lakeformat.model.partition import identity, require_identity
from lakeformat.model.schema import Field, Kind, MultisetOf, Row, Scalar, Schema, is_plain, scalar, walk
from lakeformat.model.snapshot import Snapshot, stream_numbers, utc
from lakeformat.model.tag_schedule import TagSchedule
from lakeformat.model.work import MergeEngine
from lakeformat.storage import fence
from lakeformat.storage.cache import in_catalog
from lakeformat.storage.head import CreateHead, Head, Newest
from lakeformat.storage.store import Reader, Store
from lakeformat.storage.swapped import Swapped

SCHEMA_FOLDER = "schema"
SNAPSHOT_FOLDER = "snapshot"
MANIFEST_FOLDER = "manifest"
TAG_FOLDER = "tag"
CONSUMER_FOLDER = "consumer"
CHANGELOG_FOLDER = "changelog"
BRANCH_FOLDER = "branch"
INDEX_FOLDER = "index"
STATISTICS_FOLDER = "statistics"

MAIN = "main"
# The folders of each branch.
ROOT_FOLDERS = (
    SCHEMA_FOLDER,
    SNAPSHOT_FOLDER,
    TAG_FOLDER,
    CHANGELOG_FOLDER,
    CONSUMER_FOLDER,
)

BATCH_IDENTIFIER = 2**63 - 1
UNSORTED = "Paimon tables have no sort order; compact(sort_by=[...]) sorts the rows that are there"
RESTORED_FROM = "lakeformat.restored-from"  # A snapshot property.
PIN = "lakeformat-keep-"  # Begins the name of a tag that keeps a snapshot while a verb refers to it.
_SNAPSHOT_VERSION = 3
_SCHEMA_VERSION = 3
# In a schema file, which has no commit user: the operation that made it. Other readers ignore it.
_OPERATION_KEY = "lakeformatOperation"
MANIFESTS = "lakeformatManifests"  # In a changelog's file: its manifests. Other readers ignore it.
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
# (period, the name of its tags, for strftime), by period and formatter.
_PERIODS = {
    ("daily", "with_dashes"): (_DAY, "%Y-%m-%d"),
    ("daily", "without_dashes"): (_DAY, "%Y%m%d"),
    ("daily", "without_dashes_and_spaces"): (_DAY, "%Y%m%d"),
    ("hourly", "with_dashes"): (_HOUR, "%Y-%m-%d %H"),
    ("hourly", "without_dashes"): (_HOUR, "%Y%m%d %H"),
    ("hourly", "without_dashes_and_spaces"): (_HOUR, "%Y%m%d%H"),
    ("two-hours", "with_dashes"): (2 * _HOUR, "%Y-%m-%d %H"),
    ("two-hours", "without_dashes"): (2 * _HOUR, "%Y-%m-%d %H"),
    ("two-hours", "without_dashes_and_spaces"): (2 * _HOUR, "%Y-%m-%d %H"),
}
_NO_WATERMARK = -(2**63)
_SCHEMA_KEYS: dict[str, type | UnionType] = {
    "version": int | None, "id": int, "fields": list, "highestFieldId": int, "partitionKeys": list | None,
    "primaryKeys": list | None, "options": dict, "comment": str | None,
}  # fmt: skip
_SNAPSHOT_KEYS: dict[str, type | UnionType] = {
    "version": int | None, "id": int, "schemaId": int, "baseManifestList": str, "deltaManifestList": str,
    "changelogManifestList": str | None, "indexManifest": str | None, "commitUser": str, "commitIdentifier": int,
    "commitKind": str, "operation": str | None, "timeMillis": int, "totalRecordCount": int | None,
    "deltaRecordCount": int | None, "changelogRecordCount": int | None, "watermark": int | None,
    "statistics": str | None, "properties": dict | None, "nextRowId": int | None, "tagCreateTime": list | None,
    "tagTimeRetained": int | float | None,
}  # fmt: skip
# A changelog's file is a copy of its snapshot's; those of Paimon 0.8 have fewer fields.
_CHANGELOG_KEYS: dict[str, type | UnionType] = _SNAPSHOT_KEYS | {
    "baseManifestList": str | None, "deltaManifestList": str | None, "commitUser": str | None,
    "commitIdentifier": int | None, MANIFESTS: list | None,
}  # fmt: skip
_RESERVED = {"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID"}
_TEXTS = {scalar(Kind.STRING)}
_BYTES = {Kind.BINARY, Kind.VARBINARY, Kind.BYTES}
AVRO_NAME = re.compile(r"[^\W\d]\w*")
_TAG_NAME = re.compile(r"[^/\\\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class State:
    """A Paimon table at one version: the snapshot's document, and the schema that a write would use."""

    version: int
    schema: Schema
    document: Mapping[str, Any] | None = None
    schemas: dict[int, Schema] = field(default_factory=dict, compare=False, repr=False)
    # The current options, for a table at an older snapshot.
    newest: Schema | None = field(default=None, compare=False, repr=False)
    is_complete: bool = False  # With rows that readers do not see before compaction.

    exists: bool = True

    @property
    def snapshot(self) -> Snapshot | None:
        return None if self.document is None else to_snapshot(self.document)


NOTHING = State(0, Schema(fields=(), id=-1), exists=False)


def head(store: Store, newest: Newest | None = None) -> Head:
    # A branch has its table's catalog entry.
    catalogued = in_catalog(store.store if isinstance(store, Swapped) else store)
    if catalogued:
        return catalogued.entry.head(store)
    key = f"{store.root}/{store.inner}" if isinstance(store, Swapped) else store.root
    return CreateHead(store, SNAPSHOT_FOLDER, "snapshot-", newest=newest, key=key)


def load(reader: Reader, version: int, earlier: State | None = None) -> State:
    """The table at snapshot `version` (0: before the first), with its newest schema; `NOTHING` if it does not exist.

    The schema of `earlier`, which was loaded before, is used if its snapshot still exists. The snapshot is read again:
    a rollback by another engine frees numbers, and the next commits reuse them.
    """
    if earlier is not None and earlier.newest is None and earlier.version == version > 0:
        path = snapshot_path(version)
        (data, next_schema) = reader.read_many([path, schema_path(earlier.schema.id + 1)])
        if data is None:
            raise NoSuchFile(f"{reader.root}/{path}: no such file")
        if _snapshot(reader, version, data) == earlier.document:
            if next_schema is None:
                return State(version, earlier.schema, earlier.document, earlier.schemas)
            after = newest_schema_after(reader, earlier.schema)
            return State(version, after, earlier.document, {after.id: after})
    document = None if version == 0 else read_snapshot(reader, version)
    newest = newest_schema(reader, 0 if document is None else document["schemaId"])
    if newest is None:
        return NOTHING
    return State(version, newest, document, {newest.id: newest})


def load_snapshot(reader: Reader, version: int) -> State:
    """The table at snapshot `version`, with that snapshot's schema. Raises `NotFound`."""
    try:
        return _historical(reader, read_snapshot(reader, version))
    except NoSuchFile:
        there = snapshot_ids(reader)
        known = f"there are {_spans(there)}" if there else "there is none"
        why = "; it was rolled back" if there and there[0] < version < there[-1] else ""
        raise NotFound(f"{reader.root}: no snapshot {version}{why}; {known}") from None


def _spans(ids: Sequence[int]) -> str:
    """`1, 4 to 7`; of very many spans the last."""
    starts = [at for at in range(len(ids)) if at == 0 or ids[at] != ids[at - 1] + 1]
    ends = [*(at - 1 for at in starts[1:]), len(ids) - 1]
    spans = [
        f"{ids[start]}" if start == end else f"{ids[start]} to {ids[end]}"
        for start, end in zip(starts, ends, strict=True)
    ]
    return ", ".join(["..."] * (len(spans) > 9) + spans[-9:])


def at_tag(reader: Reader, name: str) -> State:
    """The table at a tag. Raises `NotFound`."""
    return _historical(reader, read_tag(reader, name))


def at_time(reader: Reader, epoch_ms: int) -> State:
    """The newest snapshot made at or before a time. Raises `NotFound` if all are younger."""
    ids = snapshot_ids(reader)
    low, high, newest = 0, len(ids) - 1, None
    while low <= high:
        middle = (low + high) // 2
        document = read_snapshot(reader, ids[middle])
        if document["timeMillis"] <= epoch_ms:
            newest, low = document, middle + 1
        else:
            high = middle - 1
    if newest is None:
        made = [read_snapshot(reader, id)["timeMillis"] for id in ids[:1]]
        oldest = f"the oldest, {ids[0]}, was made at {utc(made[0])}" if made else "there is none"
        raise NotFound(f"{reader.root}: no snapshot as old as {utc(epoch_ms)}; {oldest}")
    return _historical(reader, newest)


def earlier(reader: Reader, base: State, snapshot_id: int) -> State:
    """The table at an earlier snapshot, with the schema of `base`. Raises `NotFound`."""
    try:
        return replace(base, version=snapshot_id, document=read_snapshot(reader, snapshot_id))
    except NoSuchFile:
        raise NotFound(f"{reader.root}: snapshot {snapshot_id} is not there: it may have expired") from None


def changed(reader: Reader, base: State, snapshot_id: int) -> tuple[State, bool]:
    """(as `earlier`, whether the snapshot itself is retained); an expired one may have left its changelog. Raises
    `NotFound`."""
    try:
        return earlier(reader, base, snapshot_id), True
    except NotFound:
        left = read_changelogs(reader, [snapshot_id])
        if not left:
            raise
        return replace(base, version=snapshot_id, document=left[0]), False


def ids_with_changes(reader: Reader, base: State, after: int) -> list[int]:
    """The ids of the snapshots after `after` whose changes can be read, rising; also expired ones that left their
    changelog."""
    return sorted(i for i in {*snapshot_ids(reader), *changelog_ids(reader)} if i > after)


def until(reader: Reader, version: int) -> State:
    """As `at`; for an expired snapshot that left its changelog, what that says. Raises `NotFound`."""
    try:
        return load_snapshot(reader, version)
    except NotFound:
        left = read_changelogs(reader, [version])
        if not left:
            raise
        return _historical(reader, left[0])


def schema_at(reader: Reader, state: State, schema_id: int) -> Schema:
    """The schema `schema_id`, with which files were written. Raises `CorruptTable` if it is missing."""
    if schema_id not in state.schemas:
        try:
            state.schemas[schema_id] = read_schema(reader, schema_id)
        except NoSuchFile as error:
            raise CorruptTable(
                f"{reader.root}: {schema_path(schema_id)} is missing, and data files at snapshot {state.version} were "
                "written with it; put it back from a backup. Snapshots without such files can be read"
            ) from error
    return state.schemas[schema_id]


def is_table(reader: Reader) -> bool:
    """Whether there is a Paimon table at the reader's root."""
    names = reader.names(SCHEMA_FOLDER)
    if not any(name.startswith("schema-") and name[7:].isdecimal() for name in names):
        return False
    if fence.MARK.rpartition("/")[2] not in names:
        return True
    under_way = fence.conversion(reader)
    return under_way is None or under_way.is_done(reader) is (under_way.to == "paimon")


# --- schema -----------------------------------------------------------------------------------------------------------


def newest_schema(reader: Reader, at_least: int = 0) -> Schema | None:
    """The schema with the highest id. Probes upward from `at_least`; lists the folder if that does not exist."""
    first, after = read_schemas(reader, [at_least, at_least + 1])
    if first is None:
        ids = schema_ids(reader)
        return read_schema(reader, ids[-1]) if ids else None
    return first if after is None else newest_schema_after(reader, after)


def newest_schema_after(reader: Reader, schema: Schema) -> Schema:
    """The schema with the highest id; `schema` itself if there is no later one."""
    while True:
        try:
            schema = read_schema(reader, schema.id + 1)
        except NoSuchFile:
            return schema


def schema_ids(reader: Reader) -> list[int]:
    return _numbered(reader, SCHEMA_FOLDER, "schema-")


def schema_path(schema_id: int) -> str:
    return f"{SCHEMA_FOLDER}/schema-{schema_id}"


def read_schema(reader: Reader, schema_id: int) -> Schema:
    return _schema(reader, schema_id, reader.read(schema_path(schema_id)))


def read_schemas(reader: Reader, ids: Sequence[int]) -> list[Schema | None]:
    """Schemas in order, read together; None for one that does not exist."""
    contents = zip(ids, reader.read_many([schema_path(i) for i in ids]), strict=True)
    return [None if data is None else _schema(reader, i, data) for i, data in contents]


def _schema(reader: Reader, schema_id: int, data: bytes) -> Schema:
    where = f"{reader.root}/{schema_path(schema_id)}"
    schema = parse_schema(data, where)
    if schema.id != schema_id:
        raise CorruptFile(f"{where}: says that it is schema {schema.id}")
    return schema


@lru_cache(maxsize=64)
def parse_schema(data: bytes, where: str) -> Schema:
    """A schema file -> Schema; the same object for the same bytes, which every view of a table reads. Older versions
    get the options that were implied then (SchemaSerializer)."""
    with parsing.naming(where):
        document = parsed(data, where, _SCHEMA_KEYS)
        properties = dict(document["options"])
        version = document.get("version") or 1
        if version <= 1:
            properties.setdefault("bucket", "1")
        if version <= 2:
            properties.setdefault("file.format", "orc")
        if version > _SCHEMA_VERSION:
            raise UnsupportedFeature(f"{where}: schema version {version}; lakeformat knows up to {_SCHEMA_VERSION}")
        field_documents, blobs = types.without_blobs(document["fields"])
        if blobs:
            properties = _with_blobs(properties, blobs, where)
        fields = tuple(types.parse_field(f) for f in field_documents)
        parsing.check_columns(fields)
        keys = {role: tuple(document.get(role) or ()) for role in ("partitionKeys", "primaryKeys")}
        for role, columns in keys.items():
            if strange := [c for c in columns if c not in {f.name for f in fields}]:
                raise CorruptFile(f"{where}: {role} names {strange[0]!r}, which is no column")
        if not all(isinstance(v, str) for v in properties.values()):
            raise CorruptFile(f"{where}: options that are not text: {properties}")
        return Schema(
            fields=fields,
            partitioning=identity(*keys["partitionKeys"]),
            primary_key=keys["primaryKeys"],
            properties=properties,
            comment=document.get("comment") or None,
            id=document["id"],
            last_field_id=document["highestFieldId"],
        )


def _with_blobs(properties: Mapping[str, Any], blobs: Sequence[str], where: str) -> dict[str, Any]:
    """The options of a table whose BLOB columns are `blobs`, with all of them in `blob-field`."""
    if str(properties.get("data-evolution.enabled")).lower() != "true":
        raise CorruptFile(
            f"{where}: column {blobs[0]!r} is a BLOB, and only tables with data-evolution.enabled have such"
        )
    earlier = properties.get("blob.stored-descriptor-fields")
    named = {"blob-descriptor-field": earlier} if earlier else {}
    return {**named, **properties, "blob-field": ",".join(blobs)}


def emit_schema(schema: Schema, now_ms: int, operation_id: str) -> bytes:
    """Schema -> a schema file."""
    document: dict[str, Any] = {
        "version": _SCHEMA_VERSION,
        "id": schema.id,
        "fields": types.with_blobs([types.emit_field(f) for f in schema.fields], options.read(schema).blob_field),
        "highestFieldId": schema.last_field_id,
        "partitionKeys": list(schema.partitioning.names),
        "primaryKeys": list(schema.primary_key),
        "options": dict(schema.properties),
    }
    if schema.comment:
        document["comment"] = schema.comment
    document |= {"timeMillis": now_ms, _OPERATION_KEY: operation_id}
    return _emit(document)


def is_same_schema(one: bytes, other: bytes) -> bool:
    """Whether two schema files are equal apart from who wrote them and when."""
    if one == other:
        return True
    written = ("version", "timeMillis", _OPERATION_KEY)
    documents = [{k: v for k, v in json.loads(data).items() if k not in written} for data in (one, other)]
    return bool(documents[0] == documents[1])


def declare(schema: Schema, where: str, keeps_ids: bool = False) -> Schema:
    """The requested schema as Paimon keeps it: with ids unless it `keeps_ids`, Paimon types, and checked keys. Raises
    `InvalidInput`."""
    require_identity(schema.partitioning, "paimon")
    if schema.sort_order:
        raise UnsupportedFeature(f"{where}: {UNSORTED}")
    fields = tuple(replace(f, type=types.paimon_type(f.type)) for f in schema.fields)
    types.check_supported(fields)
    names = [f.name for f in fields]
    check_names(fields, where)
    for role, columns in (("partition_by", schema.partitioning.names), ("primary_key", schema.primary_key)):
        for column in columns:
            if column not in names:
                raise InvalidInput(
                    f"{where}: {role} names {column!r}, which is no column; there are {', '.join(names)}"
                )
            kind = next(f.type for f in fields if f.name == column)
            if not isinstance(kind, Scalar) or not is_plain(kind) or (role == "partition_by" and kind.kind in _BYTES):
                raise InvalidInput(
                    f"{where}: {role} names {column!r}, of type {kind}; it must be of a type that has a text"
                )
        if len(set(columns)) < len(columns):
            raise InvalidInput(f"{where}: {role} names a column twice: {', '.join(columns)}")
    fields = tuple(replace(f, nullable=False) if f.name in schema.primary_key else f for f in fields)
    numbered, last = (types.unnumbered_parts(fields), schema.last_field_id) if keeps_ids else types.number(fields)
    declared = replace(schema, fields=numbered, id=0, last_field_id=last, properties=dict(schema.properties))
    options.check_new(declared.properties, where)
    check_options(declared, where)
    return declared


def check_names(fields: tuple[Field, ...], where: str) -> None:
    """Raise `InvalidInput` for invalid column names, at any depth."""
    for column in fields:
        if column.name.startswith("_KEY_") or column.name in _RESERVED:
            raise InvalidInput(f"{where}: column {column.name!r} has a name that Paimon keeps for itself")
    _check_row(fields, where)
    for part in walk(fields):
        if isinstance(part.type, Row):
            _check_row(part.type.fields, f"{where}: {part.name}")


def check_options(schema: Schema, where: str) -> None:
    """Raise for invalid options, and for those that ask for what lakeformat does not write."""
    if set(schema.partitioning.names) == set(schema.names):
        raise InvalidInput(f"{where}: every column is a partition column; a table needs one that is not")
    options.check_values(schema.properties, where)
    require_writable(schema, where)
    table_options, keys = options.read(schema), bucket_key(schema)
    if table_options.data_evolution_enabled and not table_options.row_tracking_enabled:
        raise InvalidInput(f"{where}: data-evolution.enabled needs row-tracking.enabled=true")
    if table_options.row_tracking_enabled and (schema.primary_key or table_options.bucket != -1):
        raise InvalidInput(f"{where}: row-tracking.enabled is for tables without a primary key and with bucket=-1")
    if table_options.bucket == 0 or table_options.bucket < -2:
        raise InvalidInput(f"{where}: bucket={table_options.bucket}; it must be -1 or at least 1")
    if table_options.branch_merge_enabled and (
        schema.primary_key or table_options.data_evolution_enabled or table_options.has_vectors
    ):
        raise InvalidInput(
            f"{where}: branch-merge.enabled is for tables without a primary key, data evolution and deletion vectors"
        )
    if table_options.blob_field:
        _check_blobs(schema, table_options.blob_field, where)
    if table_options.sequence_snapshot_ordering:
        _check_ordering(schema, where)
    if schema.primary_key:
        _check_key(schema, keys, table_options.bucket, where)
        row_expiry(schema, where)
    _check_bucket_key(schema, keys, where)
    if table_options.file_format == "avro":
        for part in walk(schema.fields):
            if not AVRO_NAME.fullmatch(part.name):
                raise InvalidInput(f"{where}: column {part.name!r}: Avro's names are letters, digits and underscores")
    table_options.compression()


def _check_blobs(schema: Schema, names: Sequence[str], where: str) -> None:
    """Raise `InvalidInput` for BLOB columns that a table cannot have."""
    if not options.read(schema).data_evolution_enabled:
        raise InvalidInput(
            f"{where}: blob-field={','.join(names)} needs row-tracking.enabled=true and data-evolution.enabled=true"
        )
    for name in names:
        if name not in schema.names:
            raise InvalidInput(
                f"{where}: blob-field names {name!r}, which is no column; there are {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if kind != scalar(Kind.BYTES):
            raise InvalidInput(f"{where}: blob-field names {name!r}, of type {kind}; a BLOB column is of binary values")
    if set(schema.names) == set(names):
        raise InvalidInput(f"{where}: every column is in blob-field; a table needs one that is not")


def row_expiry(schema: Schema, where: str) -> tuple[Field, int] | None:
    """The column with the age of a row of a table with a primary key, and the seconds after which compaction drops the
    row (RecordLevelExpire); None if rows do not expire. Raises `InvalidInput`."""
    given = options.read(schema)
    expire_ms, name = given.record_level_expire_time, given.record_level_time_field
    if expire_ms is None:
        return None
    if name is None:
        raise InvalidInput(
            f"{where}: record-level.expire-time needs record-level.time-field, the column that says how old a row is"
        )
    if name not in schema.names:
        raise InvalidInput(
            f"{where}: record-level.time-field names {name!r}, which is no column; there are {', '.join(schema.names)}"
        )
    time_field = schema.field(name)
    match time_field.type:
        case Scalar(Kind.INT | Kind.BIGINT | Kind.TIMESTAMP | Kind.TIMESTAMP_TZ):
            return time_field, expire_ms // 1000
    raise InvalidInput(
        f"{where}: record-level.time-field names {name!r}, which is {time_field.type}; it takes INT (seconds), BIGINT "
        "(seconds or milliseconds) or a timestamp"
    )


def bucket_key(schema: Schema) -> tuple[str, ...]:
    """The columns whose hash chooses the bucket: `bucket-key`, or else `key_of`."""
    return options.read(schema).bucket_key or key_of(schema)


def key_of(schema: Schema) -> tuple[str, ...]:
    """The primary key without partition columns: identifies a row in its bucket."""
    return tuple(name for name in schema.primary_key if name not in schema.partitioning.names)


def crosses_partitions(schema: Schema) -> bool:
    """Whether a key may change its partition: a partition column is not in the primary key."""
    return bool(schema.primary_key) and bool(_beside_key(schema))


def _beside_key(schema: Schema) -> list[str]:
    return [name for name in schema.partitioning.names if name not in schema.primary_key]


def _check_bucket_key(schema: Schema, keys: tuple[str, ...], where: str) -> None:
    """Raise for a bucket key that does not fit the number of buckets, and for one of columns that cannot be hashed."""
    table_options = options.read(schema)
    if table_options.bucket == -1 and table_options.bucket_key:
        raise InvalidInput(f"{where}: bucket-key needs a fixed number of buckets: set bucket to 1 or more")
    if table_options.bucket > 0 and not keys:
        raise InvalidInput(
            f"{where}: bucket={table_options.bucket} needs bucket-key, the columns whose hash chooses the bucket"
        )
    for key in keys:
        if key not in schema.names:
            raise InvalidInput(
                f"{where}: bucket-key names {key!r}, which is no column; there are {', '.join(schema.names)}"
            )
        if key in schema.partitioning.names:
            raise InvalidInput(
                f"{where}: bucket-key names the partition column {key!r}; all its rows would share a bucket"
            )
        if not isinstance(schema.field(key).type, Scalar):
            raise InvalidInput(
                f"{where}: bucket-key names {key!r}, a {schema.field(key).type}; it must be a plain value"
            )
    if keys and table_options.bucket != -1:  # The function checks their types without any rows.
        kinds = [schema.field(key).type for key in keys]
        nothing = [pa.nulls(0, to_arrow(kind)) for kind in kinds]
        murmur.buckets(nothing, kinds, max(table_options.bucket, 1), table_options.bucket_function_type)


def _check_key(schema: Schema, bucket_key: tuple[str, ...], buckets: int, where: str) -> None:
    """Raise `InvalidInput` for an invalid primary key (SchemaValidation)."""
    primary = ", ".join(schema.primary_key)
    if not key_of(schema):
        raise InvalidInput(
            f"{where}: primary_key ({primary}) has no column beside partition columns; name one that is not"
        )
    if outside := [name for name in bucket_key if name not in schema.primary_key]:
        raise InvalidInput(f"{where}: bucket-key names {outside[0]!r}, which is not in the primary key ({primary})")
    if buckets != -1 and (lacking := _beside_key(schema)):
        raise InvalidInput(
            f"{where}: with fixed or postponed buckets the primary key ({primary}) must hold all partition columns; "
            f"add {', '.join(lacking)} to primary_key"
        )
    name = merging.kind_column(schema, where)
    if name is not None and schema.field(name).type not in _TEXTS:
        raise InvalidInput(f"{where}: rowkind.field names {name!r}, a {schema.field(name).type}; it must be a string")
    if merging.merging(schema, where).sequence and (lacking := _beside_key(schema)):
        raise InvalidInput(
            f"{where}: keys that change partitions have no sequence.field: a late row could not be distinguished from "
            f"the newest row in another partition; add {', '.join(lacking)} to primary_key, or leave sequence.field out"
        )


def _check_ordering(schema: Schema, where: str) -> None:
    """Raise `InvalidInput` for options that exclude `sequence.snapshot-ordering` (SchemaValidation)."""
    table_options = options.read(schema)
    for is_wrong, why in (
        (not schema.primary_key, "orders rows of one key, and the table has none; give primary_key, or leave it out"),
        (bool(table_options.sequence_field), "and sequence.field are two orders of the rows of a key; set one of them"),
        (
            not table_options.write_only,
            "needs write-only=true: a compaction must find the snapshots of the rows in the table",
        ),
    ):
        if is_wrong:
            raise InvalidInput(f"{where}: sequence.snapshot-ordering {why}")


def require_readable(base: State, where: str) -> None:
    """Refuse, by name, features that would be half-read: by the schema of `base`, or by the current options."""
    _require_known(base.schema, where)
    if base.newest is not None:
        _require_known(base.newest, where)


def require_rewritable(schema: Schema, where: str) -> None:
    """Raise `InvalidInput` for a table whose files must all stay: `merge_branch` tells by a file whether the table has
    its rows."""
    if options.read(schema).branch_merge_enabled:
        raise InvalidInput(
            f"{where}: the files of a table with 'branch-merge.enabled' stay as they are: rows are appended, and not "
            "compacted, overwritten, deleted or updated"
        )


def _require_known(schema: Schema, where: str) -> None:
    options.require_readable(schema.properties, where)
    if schema.primary_key:
        merging.merging(schema, where)


def require_writable(schema: Schema, where: str) -> None:
    """Refuse, by name, features that a write would break."""
    _require_known(schema, where)
    options.require_writable(schema.properties, where)
    _require_shown(schema, where)
    if options.read(schema).bucket == -2 and not schema.primary_key:
        raise UnsupportedFeature(
            f"{where}: bucket=-2 (postpone) without a primary key: set bucket to -1, or primary_key"
        )
    if schema.primary_key:
        spec = merging.merging(schema, where)
        if options.read(schema).sequence_snapshot_ordering and options.read(schema).bucket == -2:
            raise UnsupportedFeature(
                f"{where}: sequence.snapshot-ordering with bucket=-2 (postpone) cannot be written: rows get a bucket "
                "later than the snapshot that orders them; set bucket to -1 or a number above 0"
            )
        if options.read(schema).has_vectors:
            _require_vectors_fit(schema, spec.engine, where)
        if crosses_partitions(schema) and options.read(schema).ignore_update_before:
            raise UnsupportedFeature(
                f"{where}: 'ignore-update-before' on a table whose keys may change partitions cannot be written; set "
                f"it to 'false', or add {', '.join(_beside_key(schema))} to primary_key"
            )
        if crosses_partitions(schema) and spec.ignore_delete and spec.engine is MergeEngine.DEDUPLICATE:
            raise UnsupportedFeature(
                f"{where}: 'ignore-delete' on a table whose keys may change partitions cannot be written: the row in "
                "the old partition could not be taken away; set it to 'false', or add "
                f"{', '.join(_beside_key(schema))} to primary_key"
            )


def _require_shown(schema: Schema, where: str) -> None:
    """Refuse, by name, what Iceberg readers would misread or not read at all."""
    table_options = options.read(schema)
    if table_options.metadata_iceberg_storage == "disabled":
        return
    on = f"{where}: metadata.iceberg.storage={table_options.metadata_iceberg_storage}"
    uri = schema.properties.get("metadata.iceberg.rest.uri", "")
    if table_options.metadata_iceberg_storage == "rest-catalog" and not uri.startswith(("http://", "https://")):
        raise InvalidInput(f"{on} needs metadata.iceberg.rest.uri, the http:// or https:// address of the catalog")
    if table_options.data_evolution_enabled:
        raise UnsupportedFeature(
            f"{on}: a data file of Iceberg holds all columns of its rows, with data evolution some do not"
        )
    if table_options.file_format != "parquet":
        raise UnsupportedFeature(f"{on}: Iceberg reads Parquet files with field ids; set file.format to parquet")
    if table_options.has_vectors and not schema.primary_key and not table_options.shows_vectors:
        raise UnsupportedFeature(
            f"{on}: Iceberg would show deleted rows; set deletion-vectors.bitmap64=true and "
            "metadata.iceberg.format-version=3"
        )
    for column in schema.fields:
        for part in walk((column,)):
            match part.type:
                case MultisetOf():
                    raise UnsupportedFeature(f"{on}: column {column.name}: Iceberg has no multisets; use a map")
                case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ, (digits,)) if not 3 <= digits <= 6:
                    raise UnsupportedFeature(
                        f"{on}: column {column.name}: Iceberg reads Paimon's timestamps of 3 to 6 digits, "
                        f"not of {digits}"
                    )
                case Scalar(Kind.TIME):
                    raise UnsupportedFeature(
                        f"{on}: column {column.name}: Iceberg's times are microseconds, "
                        "and those in Paimon's files milliseconds"
                    )
                case Scalar(Kind.VARIANT):
                    raise UnsupportedFeature(f"{on}: column {column.name}: a variant is not shown in Iceberg")


def _require_vectors_fit(schema: Schema, engine: MergeEngine, where: str) -> None:
    """As Paimon's own writers: deletion vectors delete a key's older rows when level 0 is compacted."""
    producer = options.read(schema).changelog_producer
    if engine is MergeEngine.FIRST_ROW:
        raise InvalidInput(
            f"{where}: deletion vectors with merge engine 'first-row', which deletes no row; leave them out"
        )
    if producer == "full-compaction":
        raise InvalidInput(
            f"{where}: deletion vectors with changelog-producer 'full-compaction'; use none, input or lookup"
        )


# --- snapshots --------------------------------------------------------------------------------------------------------


def snapshot_path(snapshot_id: int) -> str:
    return f"{SNAPSHOT_FOLDER}/snapshot-{snapshot_id}"


def snapshot_ids(reader: Reader) -> list[int]:
    """The ids of the retained snapshots, rising; there may be gaps."""
    return snapshot_ids_among(reader.names(SNAPSHOT_FOLDER))


def snapshot_ids_among(names: Iterable[str]) -> list[int]:
    """The ids of the snapshots whose files are among these names of the snapshot folder, rising."""
    return _numbers(names, "snapshot-")


def earliest(reader: Reader, snapshot_id: int) -> tuple[int, dict[str, bytes]]:
    """(the snapshot that other engines take for the earliest, the hint that makes it `snapshot_id`): they read the hint
    `EARLIEST`, and expect every number from there on (SnapshotManager.repairEarliestSnapshot)."""
    ids, path = snapshot_ids(reader), f"{SNAPSHOT_FOLDER}/EARLIEST"
    if not ids:
        raise NotFound(f"{reader.root}: the table has no snapshot")
    (hint,) = reader.read_many([path])
    hinted = int(hint) if hint is not None and hint.strip().isdigit() else ids[0]
    before = hinted if hinted in ids else ids[0]
    missing = sorted({*range(snapshot_id, ids[-1] + 1)} - {*ids})
    if snapshot_id < before or snapshot_id > ids[-1] or missing:
        said = f"the snapshots {_spans(missing)} after it are missing" if missing else f"it is {before} to {ids[-1]}"
        raise InvalidInput(f"{reader.root}: snapshot {snapshot_id} cannot be the earliest: {said}")
    return before, {path: str(snapshot_id).encode()}


def listed_snapshots(reader: Reader) -> list[tuple[int, int]]:
    """(id, modification time of its file, in milliseconds since 1970) of the retained snapshots, rising."""
    start = f"{SNAPSHOT_FOLDER}/snapshot-"
    named = [(f.path[len(start) :], f.modified_ms) for f in reader.list(SNAPSHOT_FOLDER) if f.path.startswith(start)]
    return sorted((int(name), modified_ms) for name, modified_ms in named if name.isdecimal())


def read_snapshot(reader: Reader, snapshot_id: int) -> dict[str, Any]:
    return _snapshot(reader, snapshot_id, reader.read(snapshot_path(snapshot_id)))


def read_snapshots(reader: Reader, ids: list[int]) -> list[dict[str, Any]]:
    """The documents of those snapshots that still exist, in the order of `ids`."""
    contents = zip(ids, reader.read_many([snapshot_path(i) for i in ids]), strict=True)
    return [_snapshot(reader, i, data) for i, data in contents if data is not None]


def changelog_path(snapshot_id: int) -> str:
    return f"{CHANGELOG_FOLDER}/changelog-{snapshot_id}"


def changelog_ids(reader: Reader) -> list[int]:
    """The ids of the expired snapshots that left their changelog, rising."""
    return _numbered(reader, CHANGELOG_FOLDER, "changelog-")


def read_changelogs(reader: Reader, ids: list[int]) -> list[dict[str, Any]]:
    """The changelogs of those snapshots that have one, in the order of `ids`."""
    paths = [changelog_path(i) for i in ids]
    contents = zip(paths, reader.read_many(paths), strict=True)
    return [parse_changelog(data, f"{reader.root}/{path}") for path, data in contents if data is not None]


def parse_changelog(data: bytes, where: str) -> dict[str, Any]:
    return _checked(data, where, _CHANGELOG_KEYS)


def parse_snapshot(data: bytes, where: str) -> dict[str, Any]:
    """A snapshot or tag file -> its document, checked for what every reader needs."""
    return _checked(data, where, _SNAPSHOT_KEYS)


def _checked(data: bytes, where: str, keys: Mapping[str, type | UnionType]) -> dict[str, Any]:
    with parsing.naming(where):
        document = parsed(data, where, keys)
        if (document.get("version") or 1) > _SNAPSHOT_VERSION:
            raise UnsupportedFeature(
                f"{where}: snapshot version {document['version']}; lakeformat knows up to {_SNAPSHOT_VERSION}"
            )
        if not all(isinstance(v, str) for v in (document.get("properties") or {}).values()):
            raise CorruptFile(f"{where}: properties that are not text: {document['properties']}")
        return document


def emit_snapshot(document: Mapping[str, Any]) -> bytes:
    """A document -> a snapshot file; keys with None are left out, as by Java."""
    return _emit({"version": _SNAPSHOT_VERSION} | {k: v for k, v in document.items() if v is not None})


def content(document: Mapping[str, Any]) -> tuple[str, str]:
    """What differs between any two snapshots of a table, independent of their writer."""
    return document["baseManifestList"], document["deltaManifestList"]


def to_snapshot(document: Mapping[str, Any]) -> Snapshot:
    """A document in the nouns that both formats share."""
    operation = document.get("operation")
    kind = document["commitKind"].lower()
    if kind != "compact" and operation in {"DELETE", "UPDATE", "TRUNCATE", "MERGE", "OVERWRITE"}:
        kind = operation.lower()
    return Snapshot(
        id=document["id"],
        kind=kind,
        timestamp_ms=document["timeMillis"],
        schema_id=document["schemaId"],
        operation_id=_operation_id(document["commitUser"], document["commitIdentifier"]),
        parent_id=document["id"] - 1 or None,
        total_rows=document.get("totalRecordCount"),
        properties=document.get("properties") or {},
        figures=_figures(document),
    )


def watermark(document: Mapping[str, Any] | None, new: int | None) -> int | None:
    """The larger of the last snapshot's watermark and the given one."""
    old = None if document is None else document.get("watermark")
    if old == _NO_WATERMARK:
        old = None
    return max((w for w in (old, new) if w is not None), default=None)


def find(reader: Reader, operation: Operation, base: State) -> dict[str, Any] | int | None:
    """The document (or the schema id) that `operation` became, if it has landed; searched from the newest."""
    request = operation.request
    if isinstance(operation, Create | Evolve):
        for schema_id in reversed(schema_ids(reader)):
            data = parsed(reader.read(schema_path(schema_id)), f"{reader.root}/{schema_path(schema_id)}", {})
            if data.get(_OPERATION_KEY) == request.id:
                return schema_id
        return None
    if base.version <= request.absent_until:
        return None
    user, identifier = commit_identity(request)
    is_compaction = isinstance(operation, Rewrite) and operation.kind == OperationKind.COMPACT
    ids = [i for i in snapshot_ids(reader) if request.absent_until < i <= base.version]
    for document in _backwards(reader, ids):
        # A session may compact under the number of its commit; the kinds then differ.
        is_other = request.session is not None and (document["commitKind"] == "COMPACT") != is_compaction
        if document["commitUser"] == user and not is_other:
            if document["commitIdentifier"] == identifier:
                return document
            if document["commitIdentifier"] < identifier != BATCH_IDENTIFIER:
                return None  # A session's numbers rise.
    return None


def commit_identity(request: Request) -> tuple[str, int]:
    """`commitUser` and `commitIdentifier`: those of a session, or else the operation's id, as a batch."""
    return request.session or (request.id, BATCH_IDENTIFIER)


# --- tags, consumers, branches ----------------------------------------------------------------------------------------


def statistics_path(name: str) -> str:
    return f"{STATISTICS_FOLDER}/{name}"


def check_new_name(kind: str, name: str) -> None:
    """Raise `InvalidInput` for a new tag or branch whose name is a number, as a snapshot's. Automatic tags of a day may
    be called so; they are read and deleted as any."""
    if isinstance(name, str) and name.isdigit():
        raise InvalidInput(f"{kind} {name!r}: a new name must not be a number")


def tag_schedule(schema: Schema) -> TagSchedule | None:
    """The tags that the table makes by itself (`tag.*`). Raises `InvalidInput` for a delay that is too long."""
    table_options = options.read(schema)
    mode = table_options.tag_automatic_creation
    if mode == "none":
        return None
    period, pattern = _PERIODS[table_options.tag_creation_period, table_options.tag_period_formatter]
    if table_options.tag_creation_period_duration is not None:
        period, pattern = timedelta(milliseconds=table_options.tag_creation_period_duration), "%Y%m%d%H%M"
    delay = timedelta(milliseconds=table_options.tag_creation_delay)
    if not delay < period:
        raise InvalidInput(f"option 'tag.creation-delay' is {delay}; it must be shorter than the period, {period}")
    custom = table_options.tag_batch_customized_name
    batch_name = "batch-write-%Y-%m-%d" if custom is None else custom.replace("%", "%%")
    return TagSchedule(
        pattern,
        period,
        delay,
        table_options.sink_watermark_time_zone if mode == "watermark" else None,
        table_options.tag_automatic_completion,
        None if mode == "batch" else table_options.tag_num_retained_max,
        table_options.tag_default_time_retained,
        batch_name if mode == "batch" else None,
    )


def tag_path(name: str) -> str:
    if not isinstance(name, str) or not _TAG_NAME.fullmatch(name) or name in {".", ".."} or not name.strip():
        raise InvalidInput(f"tag {name!r}: a name must not be empty, or hold slashes or control characters")
    return f"{TAG_FOLDER}/tag-{name}"


def read_tag(reader: Reader, name: str) -> dict[str, Any]:
    """A tag's document. Raises `NotFound`."""
    path = tag_path(name)
    try:
        return parse_snapshot(reader.read(path), f"{reader.root}/{path}")
    except NoSuchFile:
        names = ", ".join(sorted(tags(reader))) or "none"
        raise NotFound(f"{reader.root}: no tag {name!r}; there are: {names}") from None


def tags(reader: Reader, branch: str = "", pins: bool = False) -> dict[str, dict[str, Any]]:
    """Tag name -> its document. With `pins` also those that keep a snapshot while a verb refers to it."""
    folder = f"{branch}{TAG_FOLDER}"
    names = [name for name in reader.names(folder) if name.startswith("tag-")]
    paths = [f"{folder}/{name}" for name in names if pins or not name.startswith(f"tag-{PIN}")]
    files = zip(paths, reader.read_many(paths), strict=True)
    prefix = len(f"{folder}/tag-")
    return {path[prefix:]: parse_snapshot(data, f"{reader.root}/{path}") for path, data in files if data is not None}


def emit_tag(document: Mapping[str, Any], now_ms: int, retain_ms: int | None) -> bytes:
    """A snapshot's document -> a tag file, for `retain_ms` or for ever."""
    created = [*time.localtime(now_ms // 1000)[:6], now_ms % 1000 * 1_000_000]
    retained = None if retain_ms is None else retain_ms / 1000
    return emit_snapshot({**document, "tagCreateTime": created, "tagTimeRetained": retained})


def tag(reader: Reader, base: State, name: str, now_ms: int, retain_ms: int | None) -> tuple[str, bytes]:
    """The path and bytes of a tag on the snapshot of `base`, for `retain_ms` or for ever."""
    if base.document is None:
        raise NotFound(f"{reader.root}: the table has no snapshot that tag {name!r} could keep; write something first")
    schedule = tag_schedule(newest_schema_after(reader, base.schema)) if str(name).isdigit() else None
    if schedule is None or schedule.start_of(name) is None:  # Not an automatic one.
        check_new_name("tag", name)
    return tag_path(name), emit_tag(base.document, now_ms, retain_ms)


def pin(base: State, now_ms: int, retain_ms: int) -> tuple[str, bytes] | None:
    """The path and bytes of a tag that keeps the snapshot of `base` while a verb refers to it; None if there is
    none."""
    if base.document is None:
        return None
    return tag_path(f"{PIN}{uuid.uuid4()}"), emit_tag(base.document, now_ms, retain_ms)


def waits_ms(schema: Schema) -> tuple[int, int]:
    """`commit.min-retry-wait` and `commit.max-retry-wait`."""
    return options.read(schema).commit_min_retry_wait, options.read(schema).commit_max_retry_wait


def attempts(schema: Schema) -> int:
    """`commit.max-retries` plus the first attempt."""
    return max(options.read(schema).commit_max_retries, 0) + 1


def history(reader: Reader, base: State, after: int = 0) -> list[Snapshot]:
    """Every retained snapshot with an id above `after`, oldest first."""
    return [to_snapshot(d) for d in read_snapshots(reader, [i for i in snapshot_ids(reader) if i > after])]


def committed(reader: Reader, base: State, user: str) -> int | None:
    """The number of the newest commit of a stream, which is its largest; searched from the newest snapshot."""
    for document in _backwards(reader, [i for i in snapshot_ids(reader) if i <= base.version]):
        if document["commitUser"] == user and document["commitIdentifier"] != BATCH_IDENTIFIER:
            return int(document["commitIdentifier"])
        known = stream_numbers(document.get("properties") or {})
        if user in known:
            return known[user]
    return None


def expired_tags(reader: Reader, base: State, now_ms: int) -> list[str]:
    """The tags whose retention is over."""
    over = []
    for name, document in tags(reader, pins=True).items():
        created, retained = tag_created_ms(reader, name, document), document.get("tagTimeRetained")
        if created is not None and retained is not None and created + retained * 1000 < now_ms:
            over.append(name)
    return sorted(over)


def tag_created_ms(reader: Reader, name: str, document: Mapping[str, Any]) -> int | None:
    """The creation time of a tag, in milliseconds since 1970, rounded to seconds; None if its file does not record
    it."""
    created = document.get("tagCreateTime")
    if created is None:
        return None
    try:
        moment = datetime.datetime(*created[:6], *(n // 1000 for n in created[6:]))
    except (TypeError, ValueError) as error:
        raise CorruptFile(f"{reader.root}/{tag_path(name)}: tagCreateTime is {created!r} ({error})") from error
    return epoch_ms(calendar.timegm(moment.timetuple()) * 1000)


def consumers(reader: Reader) -> dict[str, int]:
    """Consumer -> the next snapshot it will read, which expiry must keep. A half-written file is read again."""
    next_snapshots: dict[str, int] = {}
    for name in reader.names(CONSUMER_FOLDER):
        if not name.startswith("consumer-"):
            continue
        path = f"{CONSUMER_FOLDER}/{name}"
        for attempt in range(10):
            try:
                document = parsed(reader.read(path), f"{reader.root}/{path}", {"nextSnapshot": int})
                next_snapshots[name.removeprefix("consumer-")] = document["nextSnapshot"]
                break
            except NoSuchFile:
                break
            except CorruptFile:
                if attempt == 9:
                    raise
                time.sleep(0.01 * (attempt + 1))
    return next_snapshots


@dataclass(frozen=True, slots=True)
class Consumers(Part[State]):
    """Named readers, whose progress the table keeps."""

    def progress(self, name: str) -> int | None:
        """The next snapshot that a consumer will read; None if it does not exist."""
        self.path(name)
        return consumers(self.reader).get(name)

    def file(self, name: str, next_snapshot: int) -> tuple[str, bytes]:
        """The path and bytes of the file with a consumer's progress."""
        return self.path(name), _emit({"nextSnapshot": next_snapshot})

    def path(self, name: str) -> str:
        """The path of that file. Raises `InvalidInput` for an invalid name."""
        if not isinstance(name, str) or not _TAG_NAME.fullmatch(name) or not name.strip():
            raise InvalidInput(f"consumer {name!r}: a name must not be empty, or hold slashes or control characters")
        return f"{CONSUMER_FOLDER}/consumer-{name}"


def local_ms(epoch_ms: int) -> int:
    """A time as Java's LocalDateTime: the local clock's, in milliseconds as if it were UTC."""
    return epoch_ms + time.localtime(epoch_ms // 1000).tm_gmtoff * 1000


def epoch_ms(local_ms: int) -> int:
    """Such a time in milliseconds since 1970."""
    seconds, rest = divmod(local_ms, 1000)
    return int(time.mktime((*time.gmtime(seconds)[:8], -1))) * 1000 + rest


def branch_folder(name: str) -> str:
    """The folder of a branch's schemas, snapshots and tags; for `main`, its folders as seen from a branch. Raises
    `InvalidInput`."""
    if not isinstance(name, str) or not _TAG_NAME.fullmatch(name) or not name.strip():
        raise InvalidInput(f"branch {name!r}: a name must not be empty, or hold slashes or control characters")
    return f"{BRANCH_FOLDER}/branch-{name}"


def on_branch(store: Store, name: str) -> Store:
    """The table's files as seen from one of its branches: its root documents are its own, all other files are
    shared."""
    return Swapped(store, ROOT_FOLDERS, branch_folder(name), branch_folder(MAIN))


def branches(reader: Reader) -> list[str]:
    """The folders of the other branches, each with a slash at its end; from a branch, also that of `main`."""
    return [f"{BRANCH_FOLDER}/{name}/" for name in reader.folders(BRANCH_FOLDER) if name.startswith("branch-")]


# --- private ----------------------------------------------------------------------------------------------------------


def _backwards(reader: Reader, ids: list[int]) -> Iterator[dict[str, Any]]:
    """The documents of those snapshots that still exist, the newest first, read lazily."""
    end, size = len(ids), 4
    while end > 0:
        yield from reversed(read_snapshots(reader, ids[max(0, end - size) : end]))
        end, size = end - size, min(2 * size, 64)


def _figures(document: Mapping[str, Any]) -> dict[str, int]:
    """The changes that a snapshot records: the sum of rows is known, and for a plain write that is the number of rows
    added. Without an `operation` (before Paimon 2.0), an APPEND may include row-level deletes."""
    if document["commitKind"] == "ANALYZE":
        return dict.fromkeys(
            ("files_added", "files_removed", "rows_added", "rows_removed", "bytes_added", "bytes_removed"), 0
        )
    rows = document.get("deltaRecordCount")
    if document["commitKind"] != "APPEND" or document.get("operation") != "WRITE" or rows is None:
        return {}
    return {"rows_added": rows, "files_removed": 0, "rows_removed": 0, "bytes_removed": 0}


def _operation_id(user: str, identifier: int) -> str:
    return user if identifier == BATCH_IDENTIFIER else f"{user}/{identifier}"


def _historical(reader: Reader, document: dict[str, Any]) -> State:
    id = document["schemaId"]
    schema, after = read_schemas(reader, [id, id + 1])
    if schema is None:
        raise NoSuchFile(f"{reader.root}/{schema_path(id)}: no such file")
    newest = schema if after is None else newest_schema_after(reader, after)
    return State(document["id"], schema, document, {schema.id: schema}, newest)


def _numbered(reader: Reader, folder: str, prefix: str) -> list[int]:
    return _numbers(reader.names(folder), prefix)


def _numbers(names: Iterable[str], prefix: str) -> list[int]:
    numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(number) for number in numbers if number.isdecimal())


def _check_row(fields: tuple[Field, ...], where: str) -> None:
    if not fields:
        raise InvalidInput(f"{where}: a table, and a row inside it, needs a column")
    seen: dict[str, str] = {}
    for column in fields:
        if not column.name:
            raise InvalidInput(f"{where}: a column has no name")
        if (other := seen.get(column.name.casefold())) is not None:
            raise InvalidInput(f"{where}: two columns are called {other!r} and {column.name!r}: one name to Spark")
        seen[column.name.casefold()] = column.name


def _snapshot(reader: Reader, snapshot_id: int, data: bytes) -> dict[str, Any]:
    where = f"{reader.root}/{snapshot_path(snapshot_id)}"
    try:
        document = parse_snapshot(data, where)
    except CorruptFile:
        fence.refuse(data, where)
        raise
    if document["id"] != snapshot_id:
        raise CorruptFile(f"{where}: says that it is snapshot {document['id']}")
    return document


def parsed(data: bytes, where: str, keys: Mapping[str, type | UnionType]) -> dict[str, Any]:
    """A JSON object whose `keys` have these types; other keys are ignored."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{where}: not JSON ({error})") from error
    if not isinstance(document, dict):
        raise CorruptFile(f"{where}: a JSON {type(document).__name__}, not an object")
    for key, kind in keys.items():
        value = document.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise CorruptFile(f"{where}: {key} is {value!r}")
    parsing.check_values(document, data)
    return document


def _emit(document: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(document, indent=2, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{error.object[error.start - 20 : error.end]!r} is no text that a file can hold") from error
