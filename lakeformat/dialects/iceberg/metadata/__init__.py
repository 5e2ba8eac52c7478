"""The root document, table metadata: parse, emit, and find an operation in its history.

In the Hadoop layout versions are numbered files; if a catalog keeps the pointer, files are named by number and uuid.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Any, cast

from lakeformat.codec import document as documents
from lakeformat.codec import parsing
from lakeformat.dialects.iceberg import options, parents, types
from lakeformat.errors import (
    CorruptFile,
    CorruptTable,
    InvalidInput,
    NoSuchFile,
    NotFound,
    UnsupportedFeature,
)
from lakeformat.expression import order
from lakeformat.model import evolution
from lakeformat.model.dataclass import dataclass
from lakeformat.model.operation import Operation, Request, SetTag, WithoutSnapshot
from lakeformat.model.partition import (
    PartitionField,
    Partitioning,
    Sort,
    SortField,
    SortOrder,
    Transform,
    TransformKind,
)
from lakeformat.model.schema import (
    Field,
    Kind,
    Row,
    Scalar,
    Schema,
    Type,
    find_part,
    is_plain,
    result_type,
    walk,
)
from lakeformat.model.snapshot import Snapshot, Stamp, stream_numbers, utc
from lakeformat.model.work import LAST_UPDATED, ROW_ID, in_folder
from lakeformat.storage import fence
from lakeformat.storage.cache import cache_of, in_catalog
from lakeformat.storage.head import CreateHead, Head, Pointer, load_newest
from lakeformat.storage.paths import is_absolute, relative
from lakeformat.storage.store import Reader, Store

METADATA_FOLDER = "metadata"
DATA_FOLDER = "data"
MAIN = "main"
HINT = f"{METADATA_FOLDER}/version-hint.text"

# In a snapshot's summary: the request, and the verb if Iceberg's `operation` is less specific.
OPERATION_ID = "lakeformat.operation-id"
VERB = "lakeformat.verb"
# In the document, for changes without a snapshot. Other readers ignore unknown names.
DOCUMENT_OPERATION = "lakeformat-operation"
OPERATION_PROPERTY = "lakeformat.operation"  # The same if a server writes the document.
FOLLOWS = "lakeformat-follows"  # The operation of the previous document, if it has one: in the Hadoop layout.

_SNAPSHOTS, _IDS = "snapshots", "ids"
_LONG = (_SNAPSHOTS, "snapshot-log")  # The lists that grow with every commit.
_PARSED = 6  # About the memory per byte of their text, with the parsed values.
_PLAIN, _COMPRESSED = ".metadata.json", ".gz.metadata.json"
_SUFFIXES = (_PLAIN, _COMPRESSED, ".metadata.json.gz")  # In the order in which Java looks for a version's document.
_WRITTEN_VERSIONS = (2, 3)  # The first is the default (`format-version`).
FORMAT_VERSION = "format-version"
_FIRST_PARTITION_ID = 1000
# The most of each counter from which a table can still be changed.
_MOST = {"last-sequence-number": 2**63 - 2, "next-row-id": 2**62, "last-column-id": 2**30, "last-partition-id": 2**30}
_COMMENT = "comment"
_METADATA_PATH = "write.metadata.path"
_TAG_NAME = re.compile(r"[^/\\\x00-\x1f]+")
_OF_CATALOG = re.compile(r"(\d+)-.+\.metadata\.json(\.gz)?")
_TRANSFORM = re.compile(r"(?P<kind>[a-z]+)(\[(?P<number>\d+)\])?")
_VERBS = {"replace": "compact"}
_OWN_SUMMARY = re.compile(
    r"operation|(added|deleted|removed|total)-.*|changed-partition-count|partitions\..*|partition-summaries-included|"
    r"manifests-.*|entries-processed|replace-partitions|lakeformat\..*"
)


@dataclass(frozen=True, slots=True)
class Spec:
    """A partition spec: its fields, the id of each field's source column, and the types of their values."""

    id: int
    partitioning: Partitioning
    source_ids: tuple[int, ...]
    types: tuple[Type, ...]

    @property
    def field_ids(self) -> tuple[int, ...]:
        return tuple(f.id for f in self.partitioning.fields)

    @property
    def is_unpartitioned(self) -> bool:
        return all(f.transform.kind is TransformKind.VOID for f in self.partitioning.fields)


@dataclass(frozen=True, slots=True)
class State:
    """An Iceberg table at one version of its metadata, seen from one of its snapshots."""

    version: int
    schema: Schema
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    snapshot_document: Mapping[str, Any] | None = None
    specs: Mapping[int, Spec] = field(default_factory=dict)
    branch: str = MAIN
    location: str = ""  # The document's location.
    # The loaded state, of which this is a branch or an older snapshot.
    whole: State | None = field(default=None, compare=False, repr=False)

    exists: bool = True

    @property
    def snapshot(self) -> Snapshot | None:
        return None if self.snapshot_document is None else to_snapshot(self.snapshot_document)

    @property
    def spec(self) -> Spec:
        """The current spec, with which new files are written."""
        return self.specs[self.document["default-spec-id"]]


NOTHING = State(0, Schema(fields=(), id=-1), exists=False)


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


def head(store: Store) -> Head:
    catalogued = in_catalog(store)
    return catalogued.head() if catalogued else CreateHead(store, METADATA_FOLDER, "v", _SUFFIXES)


def is_table(reader: Reader) -> bool:
    """Whether there is an Iceberg table of the Hadoop layout at the reader's root, or a catalog's table."""
    if catalogued := in_catalog(reader):
        return catalogued.head().version() > 0
    return bool(numbered(reader))


def documents_of_catalogs(reader: Reader) -> list[str]:
    """The names of metadata files at the reader's root that belong to a catalog, oldest first; only the catalog knows
    the current one."""
    matches = map(_OF_CATALOG.fullmatch, reader.names(METADATA_FOLDER))
    return [match[0] for match in sorted(filter(None, matches), key=lambda match: (int(match[1]), match[0]))]


def others(reader: Reader) -> list[State]:
    """The table as readers see it that look for its newest document elsewhere: in a catalog table's folder the newest
    of the Hadoop layout, and in a Hadoop table's folder all that a catalog may refer to."""
    if in_catalog(reader):
        newest_first = sorted(numbered(reader).items(), reverse=True)[:1]
        return [parse(reader.read(path), version, reader.location(path)) for version, path in newest_first]
    paths = [f"{METADATA_FOLDER}/{name}" for name in documents_of_catalogs(reader)]
    return [parse(reader.read(path), 0, reader.location(path)) for path in paths]


def load(reader: Reader, version: int, earlier: State | None = None) -> State:
    """The table at version `version` of its metadata; `NOTHING` if it does not exist. A version has one document, so
    that of `earlier` is not read again."""
    if version == 0:
        return NOTHING
    if earlier is not None and earlier.version == version:
        return earlier.whole or earlier
    if isinstance(version, Pointer):
        return _parsed(reader, version.location, version)
    first, *others = [f"{METADATA_FOLDER}/v{version}{suffix}" for suffix in _SUFFIXES]
    try:
        return _parsed(reader, first, version)
    except NoSuchFile:
        for path in others:
            with suppress(NoSuchFile):
                return _parsed(reader, path, version)
        raise


def _parsed(reader: Reader, path: str, version: int) -> State:
    cache = cache_of(reader)
    written = dict(cache.written(reader.root)) if cache else {}
    ids = written.pop(_IDS, None)
    return parse(reader.read(path), version, reader.location(path), written, ids)


def data_folder(base: State) -> str:
    """The folder of new data files (`write.data.path`): below the table's location, or absolute."""
    return _folder(base, options.data_path(base.schema.properties), DATA_FOLDER)


def metadata_folder(base: State) -> str:
    """The folder of new metadata files (`write.metadata.path`): below the table's location, or absolute."""
    return _folder(base, base.schema.properties.get(_METADATA_PATH), METADATA_FOLDER)


def outside_folders(base: State) -> tuple[str, ...]:
    """Folders outside the table's location where its properties put files."""
    return tuple(dict.fromkeys(filter(is_absolute, (data_folder(base), metadata_folder(base))))) if base.exists else ()


def _folder(base: State, path: str | None, default: str) -> str:
    if path is None or not base.document:
        return default
    inside = relative(base.document["location"].rstrip("/"), path.rstrip("/"))
    return path.rstrip("/") if inside is None else inside


def next_path(reader: Reader, base: State, properties: Mapping[str, str], nonce: str) -> str:
    """The name of the document after the base's, for a table with these `properties`.

    In the Hadoop layout it follows from the base alone: all writers of the next version must contest one name.
    """
    if in_catalog(reader):
        return in_folder(metadata_folder(base), f"{base.version:05d}-{nonce}{_suffix(properties)}")
    if _METADATA_PATH in properties:
        raise UnsupportedFeature(
            f"{reader.root}: {_METADATA_PATH}={properties[_METADATA_PATH]}: a table without a catalog is found by the "
            "metadata in its own folder; keep it in a catalog, or leave the property out"
        )
    return f"{METADATA_FOLDER}/v{base.version + 1}{_suffix(base.schema.properties if base.exists else {})}"


def hints(reader: Reader, base: State) -> dict[str, bytes]:
    """What readers without a catalog read first, written after the version that follows the base's."""
    return {} if in_catalog(reader) else {HINT: str(base.version + 1).encode()}


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
            raise CorruptTable(f"format-version is {format_version!r}, no whole number: this is no Iceberg metadata")
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
        specs = {s["spec-id"]: _spec(s, types.parse_fields(current), types_by_id) for s in document["partition-specs"]}
        schema = _schema(document, current, specs[document["default-spec-id"]].partitioning)
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
    return documents.emit(document, path.endswith(_COMPRESSED), lists)


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
                ids = (earlier_lists.get(_IDS, ids) if begins else ids).followed(before)
    if lists:
        size_bytes = sum(written.size_bytes for written in lists.values()) * _PARSED
        cache.put_written(reader.root, {**lists, _IDS: ids}, size_bytes)
    return lists


def new_document(schema: Schema, location: str, stamp: Stamp) -> dict[str, Any]:
    """The first document of a table that was `declare`d."""
    properties = dict(schema.properties) | ({_COMMENT: schema.comment} if schema.comment else {})
    version = int(properties.pop(FORMAT_VERSION, _WRITTEN_VERSIONS[0]))
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
        "last-partition-id": max((f.id for f in schema.partitioning.fields), default=_FIRST_PARTITION_ID - 1),
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


def emit_schema(fields: tuple[Field, ...], schema_id: int, identifiers: list[int]) -> dict[str, Any]:
    """Fields as a schema of the document."""
    return {
        "type": "struct",
        "schema-id": schema_id,
        **({"identifier-field-ids": identifiers} if identifiers else {}),
        "fields": [types.emit_field(f) for f in fields],
    }


def emit_order(order: SortOrder, fields: tuple[Field, ...]) -> list[dict[str, Any]]:
    """The JSON of a sort order."""
    return [
        {
            "transform": str(sort_field.transform),
            "source-id": find_part(fields, sort_field.source).id,
            "direction": "desc" if sort_field.descending else "asc",
            "null-order": "nulls-last" if sort_field.nulls_last else "nulls-first",
        }
        for sort_field in order.fields
    ]


def known_order(base: State) -> SortOrder:
    """The sort order of new files. Raises `UnsupportedFeature` for an order that lakeformat does not know."""
    sort_by = base.schema.sort_order
    if sort_by.unknown is not None:
        raise UnsupportedFeature(
            f"table {base.document['location']}: sort order {sort_by.id} has {sort_by.unknown}, which files cannot be "
            "sorted by; alter().set_sort_order([...]) sets another, or with [] none"
        )
    return sort_by


def order_id(base: State, sort_by: tuple[Sort, ...]) -> int:
    """The table's id of this order; 0 if it has no equal one."""
    fields = tuple(sort_field for sort_field in sort_by if isinstance(sort_field, SortField))
    if len(fields) < len(sort_by):
        return 0
    asked = emit_order(SortOrder(fields), base.schema.fields)
    return next((entry["order-id"] for entry in base.document["sort-orders"] if entry["fields"] == asked), 0)


def sorted_columns(base: State) -> frozenset[str]:
    """The columns of the table's sort order under transforms that preserve order: they have bounds by default
    (SortOrderUtil)."""
    return frozenset(
        sort_field.source[0]
        for sort_field in base.schema.sort_order.fields
        if sort_field.transform.kind is not TransformKind.BUCKET and len(sort_field.source) == 1
    )


def sort_order(document: Mapping[str, Any], order_id: int, schema_fields: tuple[Field, ...]) -> SortOrder:
    """A sort order of the document, with columns called as in `schema_fields`."""
    recorded = next((entry for entry in document.get("sort-orders") or () if entry["order-id"] == order_id), None)
    if recorded is None:
        raise CorruptFile(f"sort order {order_id} is named, and there is none")
    paths = dict(_paths(schema_fields))
    fields = []
    for sort_field in recorded["fields"]:
        path = paths.get(sort_field.get("source-id"))
        if path is None:
            return SortOrder((), order_id, "a field that is no plain column")
        try:
            function = parse_transform(sort_field["transform"])
        except UnsupportedFeature:
            return SortOrder((), order_id, f"transform {sort_field['transform']!r}")
        descending, nulls = sort_field["direction"].lower() == "desc", sort_field["null-order"].lower()
        fields.append(SortField(path, function, descending, nulls == "nulls-last"))
    return SortOrder(tuple(fields), order_id)


def _paths(fields: tuple[Field, ...], above: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(id, path) of columns and of their named parts."""
    for column in fields:
        path = (*above, column.name)
        yield column.id, path
        if isinstance(column.type, Row):
            yield from _paths(column.type.fields, path)


# --- versions ---------------------------------------------------------------------------------------------------------


def load_snapshot(reader: Reader, version: int) -> State:
    """The table at the snapshot `version`, with that snapshot's schema. Raises `NotFound`."""
    base = newest(reader)
    snapshot = snapshots(base).get(version)
    if snapshot is None:
        shown = ", ".join(str(s.id) for s in history(reader, base)[-10:]) or "none"
        raise NotFound(f"{reader.root}: no snapshot {version}; the newest are: {shown}")
    return _seen_from(base, snapshot)


def at_tag(reader: Reader, name: str) -> State:
    """The table at a tag. Raises `NotFound`."""
    base = newest(reader)
    kept = tags(base)
    if name not in kept:
        raise NotFound(f"{reader.root}: no tag {name!r}; there are: {', '.join(sorted(kept)) or 'none'}")
    return _seen_from(base, snapshots(base)[kept[name]["snapshot-id"]])


def at_time(reader: Reader, epoch_ms: int) -> State:
    """The table at a time, by the snapshot log. Raises `NotFound` if all entries are younger."""
    base = newest(reader)
    log = base.document.get("snapshot-log", [])
    by_id = snapshots(base)
    passed = [e["snapshot-id"] for e in log if e["timestamp-ms"] <= epoch_ms and e["snapshot-id"] in by_id]
    if not passed:
        first = next((e for e in log if e["snapshot-id"] in by_id), None)
        oldest = (
            f"the oldest, {first['snapshot-id']}, was made at {utc(first['timestamp-ms'])}"
            if first
            else "there is none"
        )
        raise NotFound(f"{reader.root}: no snapshot as old as {utc(epoch_ms)}; {oldest}")
    return _seen_from(base, by_id[passed[-1]])


def newest(reader: Reader) -> State:
    """The table at its newest version; `NOTHING` if it does not exist."""
    return load_newest(head(cast(Store, reader)), partial(load, reader))


def on(reader: Reader, base: State, branch: str | None) -> State:
    """The table at a branch, with the table's own schema. Raises `NotFound`."""
    if branch in (None, base.branch):
        return base
    refs = branches(base)
    if branch not in refs and branch != MAIN:
        raise NotFound(f"{reader.root}: no branch {branch!r}; there are: {', '.join(sorted({MAIN, *refs}))}")
    snapshot = snapshots(base)[refs[branch]["snapshot-id"]] if branch in refs else None
    return replace(base, snapshot_document=snapshot, branch=branch, whole=base.whole or base)


def branches(base: State) -> dict[str, Mapping[str, Any]]:
    """Branch name -> its reference; includes `main` once there is a snapshot."""
    return {name: ref for name, ref in (base.document.get("refs") or {}).items() if ref["type"] == "branch"}


def snapshots(base: State) -> dict[int, Mapping[str, Any]]:
    """Every snapshot of the document, by id."""
    return _snapshots(base.document)


def snapshot_of(base: State, snapshot_id: int | None) -> Mapping[str, Any] | None:
    """A snapshot of the document; the one that the table is looked at from is at hand."""
    if base.snapshot_document is not None and base.snapshot_document["snapshot-id"] == snapshot_id:
        return base.snapshot_document
    return None if snapshot_id is None else snapshots(base).get(snapshot_id)


def ancestry(base: State, snapshot_id: int | None) -> list[Mapping[str, Any]]:
    """A snapshot and its ancestors, newest first, as far back as history goes."""
    by_id, chain = snapshots(base), []
    while snapshot_id is not None and snapshot_id in by_id:
        chain.append(by_id[snapshot_id])
        snapshot_id = chain[-1].get("parent-snapshot-id")
        assert len(chain) <= len(by_id), "snapshots that come from each other"
    return chain


def partition_fields(base: State) -> dict[int, tuple[str, Type]]:
    """The name and type of the fields of all specs, by id (Partitioning.partitionType). A field has its newest name,
    and its id behind it if a newer field has that name."""
    fields: dict[int, tuple[str, Type]] = {}
    names: set[str] = set()
    for spec in sorted(base.specs.values(), key=lambda spec: (spec.id == base.spec.id, spec.id), reverse=True):
        for part, kind in zip(spec.partitioning.fields, spec.types, strict=True):
            if part.id not in fields and part.transform.kind is not TransformKind.VOID:
                name = part.name if part.name.casefold() not in names else f"{part.name}_{part.id}"
                fields[part.id] = name, kind
                names.add(name.casefold())
    return dict(sorted(fields.items()))


def current_id(base: State) -> int | None:
    """The snapshot from which the table is seen."""
    return None if base.snapshot_document is None else base.snapshot_document["snapshot-id"]


def history(reader: Reader, base: State, after: int = 0) -> list[Snapshot]:
    """The snapshots that led to the current one, or all that there are of a table without a current one, oldest first;
    with `after`, those after it."""
    documents = ancestry(base, current_id(base))
    if base.snapshot_document is None:
        documents = sorted(snapshots(base).values(), key=_age, reverse=True)
    lineage = []
    for document in documents:
        if document["snapshot-id"] == after:
            break
        lineage.append(to_snapshot(document))
    return lineage[::-1]


def committed(reader: Reader, base: State, user: str) -> int | None:
    """The largest number that a stream has committed, from its snapshots and from what later ones carry."""
    prefix, numbers = f"{user}/", list[int]()
    for document in ancestry(base, current_id(base)):
        summary = document.get("summary") or {}
        number = summary.get(OPERATION_ID, "").removeprefix(prefix)
        if summary.get(OPERATION_ID, "").startswith(prefix) and number.isdecimal():
            numbers.append(int(number))
        if user in (known := stream_numbers(summary)):
            numbers.append(known[user])
    return max(numbers, default=None)


def ids_with_changes(reader: Reader, base: State, after: int) -> list[int]:
    """The ids of the snapshots after that one, oldest first."""
    return [snapshot.id for snapshot in history(reader, base, after)] if base.snapshot_document is not None else []


def until(reader: Reader, version: int) -> State:
    """As `at`: changes can be read as long as their snapshots are retained."""
    return load_snapshot(reader, version)


def to_snapshot(document: Mapping[str, Any]) -> Snapshot:
    """A snapshot in the nouns that both formats share."""
    summary = document.get("summary") or {}
    operation = summary.get("operation", "append")
    rows = summary.get("total-records")
    return Snapshot(
        id=document["snapshot-id"],
        kind=summary.get(VERB) or _VERBS.get(operation, operation),
        timestamp_ms=document["timestamp-ms"],
        schema_id=document.get("schema-id", 0),
        operation_id=summary.get(OPERATION_ID),
        parent_id=document.get("parent-snapshot-id"),
        total_rows=None if rows is None else _whole(summary, "total-records"),
        properties={k: v for k, v in summary.items() if not is_own(k)},
        figures=_figures(summary),
    )


def _figures(summary: Mapping[str, str]) -> dict[str, int]:
    """The changes that a snapshot's summary records. Writers leave out zeros (SnapshotSummary.UpdateMetrics), and sizes
    and positions that they do not know."""
    if "changed-partition-count" not in summary and not any(key.startswith("total-") for key in summary):
        return {}

    def sums(*names: str) -> int:
        return sum(_whole(summary, name) for name in names)

    figures = {
        "files_added": sums("added-data-files", "added-delete-files"),
        "files_removed": sums("deleted-data-files", "removed-delete-files"),
        "rows_added": sums("added-records"),
    }
    for verb in ("added", "removed"):
        if f"{verb}-files-size" in summary or not figures[f"files_{verb}"]:
            figures[f"bytes_{verb}"] = sums(f"{verb}-files-size")
    # Rows of removed delete files were removed with data files, or are visible again, or were deleted before.
    if "removed-delete-files" not in summary and ("added-delete-files" not in summary or "bytes_added" in figures):
        figures["rows_removed"] = sums("deleted-records", "added-position-deletes")
    return figures


def _whole(summary: Mapping[str, str], name: str) -> int:
    """A number in a snapshot's summary; 0 if it is missing."""
    with parsing.naming(f"{name} of a snapshot's summary", CorruptTable):
        return int(summary.get(name, 0))


def is_own(key: str) -> bool:
    """Whether a snapshot's summary has this name as a record of lakeformat's, not as a user's property."""
    return _OWN_SUMMARY.fullmatch(key) is not None


def find(reader: Reader, operation: Operation, base: State) -> Mapping[str, Any] | int | None:
    """The snapshot (or, for an operation without one, the version) that `operation` became, if it has landed."""
    request = operation.request
    if _key_of(base.version) == _key_of(request.absent_until):
        return None
    if not isinstance(operation, WithoutSnapshot):
        elsewhere = _of_others(base)
        for document in snapshots(base).values():
            if (document.get("summary") or {}).get(OPERATION_ID) == request.id and document[
                "snapshot-id"
            ] not in elsewhere:
                return document
        return None
    return base.version if any(_is_of(request, d) for d in _documents(reader, base, request.absent_until)) else None


def is_known_since(reader: Reader, base: State, request: Request, since: int) -> bool | None:
    """Whether a change without a snapshot is among the documents after version `since`; None if it is not found and
    some documents are gone."""
    paths = _paths_since(reader, base, since)
    earlier = list(_documents(reader, base, since))
    if any(_is_of(request, document) for document in earlier):
        return True
    if paths is None:  # The log may reach back to the first document.
        return False if since == 0 and earlier and not earlier[-1].get("metadata-log") else None
    return False if len(earlier) == len(paths) else None


def _is_of(request: Request, document: Mapping[str, Any]) -> bool:
    """Whether a document records this request."""
    return request.id in (document.get(DOCUMENT_OPERATION), (document.get("properties") or {}).get(OPERATION_PROPERTY))


def named_documents(base: State) -> list[str]:
    """The locations of the documents that the base's refers to: itself and those in its log, newest first."""
    log = [e["metadata-file"] for e in base.document.get("metadata-log") or ()]
    return [base.location, *log[::-1]]


def _key_of(version: int) -> int | str:
    """What identifies a version: its document's location, or its number."""
    return version.location if isinstance(version, Pointer) else version


def numbered(reader: Reader) -> dict[int, str]:
    """The documents of the Hadoop layout: version -> path."""
    paths: dict[int, str] = {}
    names = reader.names(METADATA_FOLDER)
    for suffix in _SUFFIXES:
        number = re.compile(rf"v([1-9]\d{{0,18}}){re.escape(suffix)}")
        for match in filter(None, map(number.fullmatch, names)):
            paths.setdefault(int(match[1]), f"{METADATA_FOLDER}/{match[0]}")
    return paths


def _suffix(properties: Mapping[str, str]) -> str:
    return _COMPRESSED if options.compresses_metadata(properties) else _PLAIN


def _of_others(base: State) -> set[int]:
    """Snapshots that are ancestors of other branches and not of this one."""
    if branches(base).keys() <= {base.branch}:
        return set()
    main_ids = {s["snapshot-id"] for s in ancestry(base, current_id(base))}
    return {
        s["snapshot-id"]
        for name, ref in branches(base).items()
        if name != base.branch
        for s in ancestry(base, ref["snapshot-id"])
    } - main_ids


def _documents(reader: Reader, base: State, until: int) -> Iterator[Mapping[str, Any]]:
    """The documents after version `until` that led to the base's, newest first, as far as they are retained. In the
    Hadoop layout they are found by number, however short the log is; a stray document with a reused number ends the
    search."""
    paths = _paths_since(reader, base, until)
    newer: Mapping[str, Any] | None = None
    for path in named_documents(base) if paths is None else paths:
        try:
            document = documents.parse(reader.read(path), path)
        except NoSuchFile:
            return  # Older ones were deleted.
        if newer is not None and not isinstance(base.version, Pointer) and not _follows(newer, document):
            return
        yield document
        newer = document


def _paths_since(reader: Reader, base: State, since: int) -> list[str] | None:
    """The locations of the documents after version `since`, newest first; None if some are gone."""
    if isinstance(base.version, Pointer):
        paths = named_documents(base)
        return paths[: paths.index(str(_key_of(since)))] if _key_of(since) in paths else None
    there, versions = numbered(reader), range(base.version, since, -1)
    return [there[version] for version in versions] if there.keys() >= set(versions) else None


def _follows(newer: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Whether a document was made from the one numbered directly before it, as far as its log and our mark record
    it."""
    log = newer.get("metadata-log") or ()
    if log and log[-1].get("timestamp-ms") != document.get("last-updated-ms"):
        return False
    return newer.get(FOLLOWS) in (None, document.get(DOCUMENT_OPERATION))


# --- tags -------------------------------------------------------------------------------------------------------------


def tags(base: State) -> dict[str, Mapping[str, Any]]:
    """Tag name -> its reference."""
    return {name: ref for name, ref in (base.document.get("refs") or {}).items() if ref["type"] == "tag"}


def check_name(base: State, kind: str, name: str) -> None:
    """Raise `InvalidInput` for an invalid name of a tag or branch."""
    if not _TAG_NAME.fullmatch(name) or name in {".", ".."} or not name.strip() or name.isdigit():
        raise InvalidInput(
            f"{kind} {name!r}: a name must not be empty, a number, or hold slashes or control characters"
        )
    other = "branch" if kind == "tag" else "tag"
    if (name == MAIN and kind == "tag") or (base.document.get("refs") or {}).get(name, {}).get("type") == other:
        raise InvalidInput(f"{kind} {name!r}: there is a {other} of that name")


def tag(reader: Reader, base: State, name: str, now_ms: int, retain_ms: int | None) -> SetTag:
    """The operation that tags the snapshot of `base`, for `retain_ms` or for ever."""
    check_name(base, "tag", name)
    if base.snapshot_document is None:
        raise NotFound(f"{reader.root}: the table has no snapshot that tag {name!r} could keep; write something first")
    request = Request(id=str(uuid.uuid4()), absent_until=base.version)
    snapshot_id = base.snapshot_document["snapshot-id"]
    return SetTag(request=request, name=name, snapshot_id=snapshot_id, retain_ms=retain_ms)


def expired_tags(reader: Reader, base: State, now_ms: int) -> list[str]:
    """The expired tags and branches: their snapshot is older than their own `max-ref-age-ms`, or than the table's
    `history.expire.max-ref-age-ms`. `main` never expires."""
    by_id = snapshots(base)
    most = options.read(base.schema.properties).max_ref_age_ms
    return sorted(
        name
        for name, ref in (base.document.get("refs") or {}).items()
        if name != MAIN and now_ms - by_id[ref["snapshot-id"]]["timestamp-ms"] >= ref.get("max-ref-age-ms", most)
    )


# --- what may be read and written -------------------------------------------------------------------------------------


def waits_ms(schema: Schema) -> tuple[int, int]:
    """`commit.retry.min-wait-ms` and `commit.retry.max-wait-ms`."""
    properties = options.read(schema.properties)
    least, most = properties.commit_retry_min_wait_ms, properties.commit_retry_max_wait_ms
    return max(least, 0), most


def attempts(schema: Schema) -> int:
    """`commit.retry.num-retries` plus the first attempt."""
    return max(options.read(schema.properties).commit_retry_num_retries, 0) + 1


def require_writable(base: State, where: str, version: int | None = None) -> None:
    """Refuse, by name, table features that a write would break, for this `version` or the table's own."""
    version = format_version(base) if version is None else version
    if version not in _WRITTEN_VERSIONS:
        raise UnsupportedFeature(
            f"{where}: Iceberg format version {version} is read, not written; "
            f"alter().set_properties({{'{FORMAT_VERSION}': '2'}}) makes it one that is"
        )
    if is_encrypted(base):
        raise UnsupportedFeature(f"{where}: encrypted (encryption.key-id): it is read, not written")
    for key, most in _MOST.items():
        if not -1 <= base.document.get(key, 0) <= most:
            raise CorruptTable(f"{where}: {key} is {base.document[key]}: no number is left for what would be written")
    options.require_writable(base.schema.properties, where)


def is_encrypted(base: State) -> bool:
    return bool(base.document.get("encryption-keys")) or "encryption.key-id" in base.schema.properties


def format_version(base: State) -> int:
    number: int = base.document["format-version"]
    return number


def upgraded(document: Mapping[str, Any], version: int) -> dict[str, Any]:
    """A document in a later format version, with its required keys and without its removed ones."""
    fields = [f["field-id"] for spec in document["partition-specs"] for f in spec["fields"]]
    upgraded_document = {
        "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{document['location']}/table")),
        "last-partition-id": max(fields, default=_FIRST_PARTITION_ID - 1),
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        **document,
        "format-version": version,
    }
    if version >= 3:
        upgraded_document.setdefault("next-row-id", 0)
    return {key: value for key, value in upgraded_document.items() if key not in ("schema", "partition-spec")}


def check_version(requested: str, now: int, where: str) -> int:
    """The requested format version. Raises `InvalidInput`."""
    if requested not in {str(version) for version in _WRITTEN_VERSIONS} or int(requested) < now:
        raise InvalidInput(
            f"{where}: format-version is {requested!r}; it is 2 or 3, and the version of a table never goes back"
        )
    return int(requested)


def declare(schema: Schema, where: str) -> Schema:
    """The requested schema as Iceberg keeps it: with ids, Iceberg types, and checked partitions. A primary key becomes
    the identifier fields, which must be NOT NULL."""
    check_key(schema, where)
    fields = tuple(
        replace(f, type=types.iceberg_type(f.type), nullable=f.nullable and f.name not in schema.primary_key)
        for f in schema.fields
    )
    version = check_version(schema.properties.get(FORMAT_VERSION, str(_WRITTEN_VERSIONS[0])), 0, where)
    types.check_supported(fields, version)
    names = [f.name for f in fields]
    check_names(names, where)
    numbered, last = evolution.number(fields, 0, collections_have_ids=True)
    check_partitions(schema.partitioning.fields, numbered, where)
    partition = [replace(f, id=_FIRST_PARTITION_ID + i) for i, f in enumerate(schema.partitioning.fields)]
    options.check_new({k: v for k, v in schema.properties.items() if k != FORMAT_VERSION}, where)
    options.require_writable(schema.properties, where)
    partitioning = Partitioning(tuple(partition), 0)
    order.check(schema.sort_order.fields, numbered, where)
    sort_order = SortOrder(schema.sort_order.fields, 1 if schema.sort_order else 0)
    return replace(schema, fields=numbered, id=0, last_field_id=last, partitioning=partitioning, sort_order=sort_order)


def check_partitions(partition_by: tuple[PartitionField, ...], fields: tuple[Field, ...], where: str) -> None:
    """Raise `InvalidInput` for invalid partition fields: of a missing column, of a nested type, or with a name that is
    taken."""
    by_name = {f.name: f for f in fields}
    seen: list[PartitionField] = []
    for part in partition_by:
        if part.source not in by_name:
            raise InvalidInput(
                f"{where}: partition_by names {part.source!r}, which is no column; there are {', '.join(by_name)}"
            )
        source = by_name[part.source].type
        if not isinstance(source, Scalar):
            raise InvalidInput(
                f"{where}: partition_by names {part.source!r}, of type {source}; it must be a plain value"
            )
        result_type(part.transform, source, part.source)
        is_identity = part.transform.kind is TransformKind.IDENTITY
        if part.name in by_name and not (is_identity and part.name == part.source):
            raise InvalidInput(
                f"{where}: the partition field {part.name!r} has the name of a column; rename the column"
            )
        if any(p.name == part.name or (p.source, p.transform) == (part.source, part.transform) for p in seen):
            raise InvalidInput(f"{where}: partition_by names {part.name!r} twice")
        seen.append(part)


# MetadataColumns of Iceberg's Java library, which has no column of these names beside them.
_RESERVED = frozenset({"_file", "_pos", "_deleted", "_spec_id", "_partition", ROW_ID.name, LAST_UPDATED.name})
_RESERVED |= {"_change_type", "_change_ordinal", "_commit_snapshot_id"}


def check_names(names: list[str], where: str) -> None:
    """Raise `InvalidInput` for columns without a name or with a duplicate name."""
    seen: set[str] = set()
    for name in names:
        if not name:
            raise InvalidInput(f"{where}: a column has no name")
        if name in seen:
            raise InvalidInput(f"{where}: two columns are called {name!r}")
        seen.add(name)
    if not names:
        raise InvalidInput(f"{where}: a table needs a column")
    check_reserved(names, where)


def check_reserved(names: Iterable[str], where: str) -> None:
    """Raise `InvalidInput` for new columns with the names of metadata columns."""
    for name in names:
        if name in _RESERVED:
            raise InvalidInput(
                f"{where}: {name!r} is the name of a metadata column of Iceberg; call the column otherwise"
            )


def parse_transform(text: str) -> Transform:
    """`bucket[16]` and the like. Raises `UnsupportedFeature` for an unknown transform."""
    match = _TRANSFORM.fullmatch(text)
    if not match or match["kind"] not in list(TransformKind):
        raise UnsupportedFeature(f"partition transform {text!r}: not known to lakeformat")
    return Transform(TransformKind(match["kind"]), int(match["number"]) if match["number"] else None)


# --- private ----------------------------------------------------------------------------------------------------------


def _seen_from(base: State, snapshot: Mapping[str, Any]) -> State:
    """The table at a snapshot: its schema and its rows."""
    schema_id = snapshot.get("schema-id", base.schema.id)
    schema_json = next((s for s in base.document["schemas"] if s["schema-id"] == schema_id), None)
    if schema_json is None:
        raise CorruptFile(f"snapshot {snapshot['snapshot-id']} names schema {schema_id}, which is not there")
    fields = types.parse_fields(schema_json)
    names = {f.id: f.name for f in fields}
    partitioning = Partitioning(
        tuple(
            replace(f, source=names.get(source, f.source))
            for f, source in zip(base.spec.partitioning.fields, base.spec.source_ids, strict=True)
        ),
        base.spec.id,
    )
    key = _key(schema_json, fields)
    schema = replace(base.schema, fields=fields, id=schema_id, partitioning=partitioning, primary_key=key)
    known = {f.id: f for schema in base.document["schemas"] for f in walk(types.parse_fields(schema))}
    specs = {s["spec-id"]: _spec(s, fields, known) for s in base.document["partition-specs"]}
    return replace(base, schema=schema, snapshot_document=snapshot, specs=specs, whole=base.whole or base)


def _key(schema: Mapping[str, Any], fields: tuple[Field, ...]) -> tuple[str, ...]:
    """The identifier fields by name; none if one of them is inside another column."""
    names = {f.id: f.name for f in fields}
    ids = schema.get("identifier-field-ids") or ()
    return tuple(names[id] for id in ids) if set(ids) <= names.keys() else ()


def check_key(schema: Schema, where: str) -> None:
    """Raise `InvalidInput` for a key with missing columns, or columns that cannot identify rows."""
    for index, name in enumerate(schema.primary_key):
        if name not in schema.names:
            raise InvalidInput(
                f"{where}: primary_key names {name!r}, which is no column; there are {', '.join(schema.names)}"
            )
        if name in schema.primary_key[:index]:
            raise InvalidInput(f"{where}: primary_key names {name!r} twice")
        kind = schema.field(name).type
        if not isinstance(kind, Scalar) or not is_plain(kind) or kind.kind in (Kind.FLOAT, Kind.DOUBLE):
            raise InvalidInput(f"{where}: primary_key names {name!r}, a {kind}; it must be a plain value that is exact")


def _schema(document: Mapping[str, Any], current: Mapping[str, Any], partitioning: Partitioning) -> Schema:
    properties = dict(document.get("properties") or {})
    comment = properties.pop(_COMMENT, None)
    properties.pop(OPERATION_PROPERTY, None)
    fields = types.parse_fields(current)
    return Schema(
        fields=fields,
        partitioning=partitioning,
        primary_key=_key(current, fields),
        properties=properties,
        comment=comment,
        id=current["schema-id"],
        last_field_id=document["last-column-id"],
        sort_order=sort_order(document, document.get("default-sort-order-id", 0), fields),
    )


def _spec(spec: Mapping[str, Any], fields: tuple[Field, ...], earlier_fields: Mapping[int, Field]) -> Spec:
    """A spec of the document; its source columns are called as in `fields`."""
    now = {f.id: f for f in fields}
    partition, sources, kinds = [], [], []
    for part in spec["fields"]:
        if "source-id" not in part:
            raise UnsupportedFeature(f"partition field {part['name']!r} of several columns: not supported yet")
        source = now.get(part["source-id"]) or earlier_fields.get(part["source-id"])
        if source is None:
            raise CorruptFile(f"partition field {part['name']!r}: no schema has its column {part['source-id']}")
        # A column that was dropped or is inside another is never looked up by name.
        name = source.name if part["source-id"] in now else f"#{source.id}"
        function = parse_transform(part["transform"])
        partition.append(PartitionField(name, function, part["name"], part["field-id"]))
        sources.append(source.id)
        kinds.append(result_type(function, source.type, source.name))
    for what, given in (("names", [part.name for part in partition]), ("ids", [part.id for part in partition])):
        if len(set(given)) < len(given) or any(isinstance(value, int) and value < 0 for value in given):
            raise CorruptFile(f"partition spec {spec['spec-id']}: its fields have the {what} {given}")
    return Spec(spec["spec-id"], Partitioning(tuple(partition), spec["spec-id"]), tuple(sources), tuple(kinds))


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
    return [{"field-id": _FIRST_PARTITION_ID + index, **part} for index, part in enumerate(fields)]


def _snapshots(document: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    return {s["snapshot-id"]: s for s in document.get("snapshots") or ()}


def _age(document: Mapping[str, Any]) -> tuple[int, int]:
    """Orders snapshots by when they were made."""
    return document.get("sequence-number") or 0, document["timestamp-ms"]


def _current_id(document: Mapping[str, Any]) -> int | None:
    snapshot_id = document.get("current-snapshot-id")
    return None if snapshot_id in (None, -1) else snapshot_id
