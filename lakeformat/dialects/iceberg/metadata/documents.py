"""The root document, table metadata: parse and emit."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakeformat.codec import document as documents
from lakeformat.codec import parsing
from lakeformat.dialects.iceberg import options, parents, types
from lakeformat.dialects.iceberg.metadata.folders import COMPRESSED, METADATA_FOLDER
from lakeformat.dialects.iceberg.metadata.schemas import (
    COMMENT,
    FIRST_PARTITION_ID,
    FORMAT_VERSION,
    WRITTEN_VERSIONS,
    emit_order,
    emit_schema,
    parse_schema,
    parse_spec,
    upgraded,
)
from lakeformat.dialects.iceberg.metadata.snapshots import DOCUMENT_OPERATION, FOLLOWS
from lakeformat.dialects.iceberg.metadata.state import MAIN, State
from lakeformat.errors import (
    CorruptFile,
    CorruptTable,
    UnsupportedFeature,
)
from lakeformat.model.log import log
from lakeformat.model.schema import (
    Field,
    Schema,
    walk,
)
from lakeformat.model.snapshot import Stamp
from lakeformat.storage import fence
from lakeformat.storage.cache import cache_of, in_catalog
from lakeformat.storage.store import Reader

_SNAPSHOTS, IDS = "snapshots", "ids"
_LONG = (_SNAPSHOTS, "snapshot-log")  # The lists that grow with every commit.
_PARSED = 6  # About the memory per byte of their text, with the parsed values.
_ID_AND_TIME = {"snapshot-id": int, "timestamp-ms": int}
_REF = {
    "snapshot-id": int,
    "type": str,
    "?max-ref-age-ms": int,
    "?min-snapshots-to-keep": int,
    "?max-snapshot-age-ms": int,
}
_SNAPSHOT = {
    **_ID_AND_TIME, "?parent-snapshot-id": int, "?sequence-number": int, "?manifest-list": str, "?manifests": [str],
    "?summary": {str: str}, "?schema-id": int, "?first-row-id": int, "?added-rows": int, "?key-id": str,
}  # fmt: skip
_FIELD = {"?source-id": int, "field-id": int, "name": str, "transform": str}
_ORDER = {"?source-id": int, "transform": str, "direction": str, "null-order": str}
# The keys of a document, after it was completed to version 2.
_SHAPE = {
    "location": str, "?table-uuid": str, "last-updated-ms": int, "last-column-id": int, "last-sequence-number": int,
    "schemas": [{"schema-id": int, "fields": [{"id": int, "name": str, "required": bool}],
                 "?identifier-field-ids": [int]}],
    "current-schema-id": int, "partition-specs": [{"spec-id": int, "fields": [_FIELD]}], "default-spec-id": int,
    "?last-partition-id": int, "sort-orders": [{"order-id": int, "fields": [_ORDER]}], "?default-sort-order-id": int,
    "?properties": {str: str}, "?current-snapshot-id": int, "refs": {str: _REF}, "?snapshots": [_SNAPSHOT],
    "?snapshot-log": [_ID_AND_TIME], "?metadata-log": [{"metadata-file": str, "timestamp-ms": int}],
    "?statistics": [{"snapshot-id": int, "statistics-path": str}],
    "?partition-statistics": [{"snapshot-id": int, "statistics-path": str}], "?next-row-id": int,
    "?encryption-keys": [{"key-id": str, "encrypted-key-metadata": str, "?encrypted-by-id": str,
                          "?properties": {str: str}}],
}  # fmt: skip


def parse(
    data: bytes,
    version: int,
    where: str,
    written: Mapping[str, documents.Written] | None = None,
    ids: parents.Ids | None = None,
) -> State:
    """A metadata file -> State. Of the lists in `written`, only new entries are parsed and checked; `ids` are those of
    its snapshots. Raises `UnsupportedFeature` for format versions other than 1, 2 and 3."""
    with parsing.naming(where):
        try:
            document, rest, written_lists = documents.parse_after(data, where, written or {})
        except CorruptFile:
            fence.refuse(data, where)
            raise
        parsing.check_values(document, rest if rest[:1] == b"{" else None)  # Otherwise it is usually compressed.
        format_version = document.get("format-version")
        if not isinstance(format_version, int):
            raise CorruptTable(
                f"format-version is {format_version!r}, not a whole number: this is not Iceberg metadata"
            )
        if format_version not in (1, 2, 3):
            raise UnsupportedFeature(f"Iceberg format version {format_version}; lakeformat reads 1, 2 and 3")
        document = _normal(document)
        parsing.check(document, _SHAPE)
        document |= {name: [*begun.parts, *document[name]] for name, begun in written_lists.items()}
        parents.check(document, _current_id(document), ids if "snapshots" in written_lists else None)
        schemas = {s["schema-id"]: s for s in document["schemas"]}
        types_by_id: dict[int, Field] = {}
        for schema_document in schemas.values():
            fields = types.parse_fields(schema_document)
            parsing.check_columns(fields)
            types_by_id |= {f.id: f for f in walk(fields)}
        current = schemas[document["current-schema-id"]]
        specs = {
            s["spec-id"]: parse_spec(s, types.parse_fields(current), types_by_id) for s in document["partition-specs"]
        }
        schema = parse_schema(document, current, specs[document["default-spec-id"]].partitioning)
        state = State(version, schema, document, None, specs, location=where)
        current_snapshot = _current_id(document)
        return (
            state
            if current_snapshot is None
            else replace(state, snapshot_document=parents.of_id(document, current_snapshot))
        )


def emit(document: Mapping[str, Any], path: str = "", lists: Mapping[str, documents.Written] | None = None) -> bytes:
    """A document -> a metadata file, compressed if its name says so, since Java and pyiceberg decide by the name.
    `lists`: see `kept_lists`."""
    return documents.emit(document, path.endswith(COMPRESSED), lists)


def kept_lists(reader: Reader, base: State, document: Mapping[str, Any]) -> dict[str, documents.Written]:
    """The long lists of the base's document with their text, if the next document's begin with them. They were parsed
    and checked, and need not be again."""
    cache = cache_of(reader)
    if cache is None:
        return {}
    earlier_lists, lists, ids = cache.written(reader.root), dict[str, documents.Written](), parents.Ids()
    for name in _LONG:
        before, begun = base.document.get(name) or (), earlier_lists.get(name, documents.Written())
        if before and documents.Written(before).begins(document.get(name) or ()):
            begins = begun.begins(before)
            lists[name] = (begun if begins else documents.Written()).followed(before)
            if name == _SNAPSHOTS:
                ids = (earlier_lists.get(IDS, ids) if begins else ids).followed(before)
    if lists:
        size_bytes = sum(written.size_bytes for written in lists.values()) * _PARSED
        cache.put_written(reader.root, {**lists, IDS: ids}, size_bytes)
    return lists


def new_document(schema: Schema, location: str, stamp: Stamp) -> dict[str, Any]:
    """The first document of a table that was `declare`d."""
    properties = dict(schema.properties) | ({COMMENT: schema.comment} if schema.comment else {})
    version = int(properties.pop(FORMAT_VERSION, WRITTEN_VERSIONS[0]))
    fields = [
        {"source-id": schema.field(f.source).id, "field-id": f.id, "name": f.name, "transform": str(f.transform)}
        for f in schema.partitioning.fields
    ]
    return {
        "format-version": version,
        **({"next-row-id": 0} if version >= 3 else {}),
        "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{stamp.nonce}/table")),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": stamp.now_ms,
        "last-column-id": schema.last_field_id,
        "current-schema-id": 0,
        "schemas": [emit_schema(schema.fields, 0, [schema.field(name).id for name in schema.primary_key])],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": fields}],
        "last-partition-id": max((f.id for f in schema.partitioning.fields), default=FIRST_PARTITION_ID - 1),
        "default-sort-order-id": schema.sort_order.id,
        "sort-orders": [{"order-id": schema.sort_order.id, "fields": emit_order(schema.sort_order, schema.fields)}],
        "properties": properties,
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def next_document(reader: Reader, base: State, now_ms: int) -> dict[str, Any]:
    """The base's document, as the start of the next version: the base's file is added to the log."""
    document = {k: v for k, v in base.document.items() if k not in (DOCUMENT_OPERATION, FOLLOWS)}
    if DOCUMENT_OPERATION in base.document and not in_catalog(reader):
        document[FOLLOWS] = base.document[DOCUMENT_OPERATION]
    if base.location:
        previous = {"timestamp-ms": document["last-updated-ms"], "metadata-file": base.location}
        kept = max(options.read(base.schema.properties).metadata_previous_versions_max, 1)
        document["metadata-log"] = [*document.get("metadata-log", []), previous][-kept:]
    document["last-updated-ms"] = now_ms
    if document["format-version"] < WRITTEN_VERSIONS[0]:
        log.warning("%s: a table of format version 1 is now one of version 2", reader.root)
        document = upgraded(document, WRITTEN_VERSIONS[0])
    return document


def obsolete(reader: Reader, base: State, document: Mapping[str, Any]) -> tuple[str, ...]:
    """The documents that the log after the base's no longer lists, if the table deletes these
    (`write.metadata.delete-after-commit.enabled`). Those of a catalog's table are left to the sweep."""
    wanted = options.read(base.schema.properties).metadata_delete_after_commit
    if in_catalog(reader) or not wanted:
        return ()
    named = {entry["metadata-file"] for entry in document["metadata-log"]}
    obsolete_paths = [
        entry["metadata-file"]
        for entry in base.document.get("metadata-log") or ()
        if entry["metadata-file"] not in named
    ]
    folder = f"{reader.root}/{METADATA_FOLDER}/"
    return tuple(path.removeprefix(f"{reader.root}/") for path in obsolete_paths if path.startswith(folder))


def _normal(document: dict[str, Any]) -> dict[str, Any]:
    """A document of version 1 completed to version 2: what it may lack is as writers of that time meant it."""
    document = dict(document)
    _complete(document)
    document.setdefault("sort-orders", [{"order-id": 0, "fields": []}])
    document.setdefault("last-sequence-number", 0)
    document["refs"] = document.get("refs") or {}
    if (current := _current_id(document)) is not None:
        document["refs"].setdefault(MAIN, {"snapshot-id": current, "type": "branch"})
    return document


def _complete(document: dict[str, Any]) -> None:
    """Fill in the schemas and specs, and which are the current ones: those of the older `schema` and `partition-spec`,
    or else the last."""
    schema = {"schema-id": document.get("current-schema-id", 0), **document.get("schema", {})}
    schemas = document.get("schemas") or [schema]
    if "current-schema-id" not in document:
        alike = (entry["schema-id"] for entry in schemas if entry["fields"] == schema.get("fields"))
        document["current-schema-id"] = document.get("schema", {}).get(
            "schema-id", next(alike, schemas[-1]["schema-id"])
        )
    spec = {"spec-id": document.get("default-spec-id", 0), "fields": _numbered(document.get("partition-spec", ()))}
    specs = [{**entry, "fields": _numbered(entry["fields"])} for entry in document.get("partition-specs") or [spec]]
    if "default-spec-id" not in document:
        alike = (entry["spec-id"] for entry in specs if entry["fields"] == spec["fields"])
        document["default-spec-id"] = next(alike, specs[-1]["spec-id"])
    document |= {"schemas": schemas, "partition-specs": specs}


def _numbered(fields: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The fields of a partition spec; ids that are missing, as in all of a spec of old writers, count from 1000."""
    return [{"field-id": FIRST_PARTITION_ID + index, **part} for index, part in enumerate(fields)]


def snapshots_by_id(document: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    return {s["snapshot-id"]: s for s in document.get("snapshots") or ()}


def age(document: Mapping[str, Any]) -> tuple[int, int]:
    """Orders snapshots by when they were made."""
    return document.get("sequence-number") or 0, document["timestamp-ms"]


def _current_id(document: Mapping[str, Any]) -> int | None:
    snapshot_id = document.get("current-snapshot-id")
    return None if snapshot_id in (None, -1) else snapshot_id
