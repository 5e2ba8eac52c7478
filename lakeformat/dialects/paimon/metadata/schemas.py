"""Schema files: parse, emit, and which schemas may be declared, read and written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import UnionType
from typing import Any

import pyarrow as pa

from lakeformat.codec import murmur, parsing
from lakeformat.codec.arrow import to_arrow
from lakeformat.dialects.paimon import merging, options, types
from lakeformat.dialects.paimon.metadata.documents import emit, numbers_in, parsed
from lakeformat.dialects.paimon.metadata.folders import SCHEMA_FOLDER, schema_path
from lakeformat.dialects.paimon.metadata.state import State
from lakeformat.errors import CorruptFile, InvalidInput, NoSuchFile, UnsupportedFeature
from lakeformat.model.partition import identity, require_identity
from lakeformat.model.schema import Field, Kind, MultisetOf, Row, Scalar, Schema, is_plain, scalar, walk
from lakeformat.model.work import MergeEngine
from lakeformat.storage.store import Reader

UNSORTED = "Paimon tables have no sort order; compact(sort_by=[...]) sorts existing rows"
_SCHEMA_VERSION = 3
# In a schema file, which has no commit user: the operation that made it. Other readers ignore it.
OPERATION_KEY = "lakeformatOperation"
_SCHEMA_KEYS: dict[str, type | UnionType] = {
    "version": int | None, "id": int, "fields": list, "highestFieldId": int, "partitionKeys": list | None,
    "primaryKeys": list | None, "options": dict, "comment": str | None,
}  # fmt: skip
_RESERVED = {"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID"}
_TEXTS = {scalar(Kind.STRING)}
_BYTES = {Kind.BINARY, Kind.VARBINARY, Kind.BYTES}
AVRO_NAME = re.compile(r"[^\W\d]\w*")


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
    return numbers_in(reader, SCHEMA_FOLDER, "schema-")


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
                raise CorruptFile(f"{where}: {role} names {strange[0]!r}, which is not a column")
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
    document |= {"timeMillis": now_ms, OPERATION_KEY: operation_id}
    return emit(document)


def is_same_schema(one: bytes, other: bytes) -> bool:
    """Whether two schema files are equal apart from who wrote them and when."""
    if one == other:
        return True
    written = ("version", "timeMillis", OPERATION_KEY)
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
                    f"{where}: {role} names {column!r}, which is not a column; there are {', '.join(names)}"
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
                f"{where}: blob-field names {name!r}, which is not a column; there are {', '.join(schema.names)}"
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
            f"{where}: record-level.time-field names {name!r}, which is not a column; there are "
            f"{', '.join(schema.names)}"
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
                f"{where}: bucket-key names {key!r}, which is not a column; there are {', '.join(schema.names)}"
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


def waits_ms(schema: Schema) -> tuple[int, int]:
    """`commit.min-retry-wait` and `commit.max-retry-wait`."""
    return options.read(schema).commit_min_retry_wait, options.read(schema).commit_max_retry_wait


def attempts(schema: Schema) -> int:
    """`commit.max-retries` plus the first attempt."""
    return max(options.read(schema).commit_max_retries, 0) + 1


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
