"""Schemas, partition specs and sort orders: parse, emit, and which may be declared and written."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from lakeformat.dialects.iceberg import options, types
from lakeformat.dialects.iceberg.metadata.snapshots import OPERATION_PROPERTY
from lakeformat.dialects.iceberg.metadata.state import Spec, State
from lakeformat.errors import (
    CorruptFile,
    CorruptTable,
    InvalidInput,
    UnsupportedFeature,
)
from lakeformat.expression import order
from lakeformat.model import evolution
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
)
from lakeformat.model.work import LAST_UPDATED, ROW_ID

WRITTEN_VERSIONS = (2, 3)  # The first is the default (`format-version`).
FORMAT_VERSION = "format-version"
FIRST_PARTITION_ID = 1000
# The most of each counter from which a table can still be changed.
_MOST = {"last-sequence-number": 2**63 - 2, "next-row-id": 2**62, "last-column-id": 2**30, "last-partition-id": 2**30}
COMMENT = "comment"
_TRANSFORM = re.compile(r"(?P<kind>[a-z]+)(\[(?P<number>\d+)\])?")


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
        raise CorruptFile(f"sort order {order_id} does not exist")
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


def waits_ms(schema: Schema) -> tuple[int, int]:
    """`commit.retry.min-wait-ms` and `commit.retry.max-wait-ms`."""
    properties = options.read(schema.properties)
    least, most = properties.commit_retry_min_wait_ms, properties.commit_retry_max_wait_ms
    return max(least, 0), most


def attempts(schema: Schema) -> int:
    """`commit.retry.num-retries` plus the first attempt."""
    return max(options.read(schema.properties).commit_retry_num_retries, 0) + 1


def require_writable(base: State, where: str) -> None:
    """Refuse, by name, table features that a write would break."""
    if is_encrypted(base):
        raise UnsupportedFeature(f"{where}: encrypted (encryption.key-id): it is read, not written")
    for key, most in _MOST.items():
        if not -1 <= base.document.get(key, 0) <= most:
            raise CorruptTable(
                f"{where}: {key} is {base.document[key]}: the counter is exhausted, so nothing more can be written"
            )
    options.require_writable(base.schema.properties, where)


def is_encrypted(base: State) -> bool:
    return bool(base.document.get("encryption-keys")) or "encryption.key-id" in base.schema.properties


def format_version(base: State) -> int:
    """The format version in which the table is written: a write makes a table of version 1 one of version 2."""
    number: int = base.document["format-version"]
    return max(number, WRITTEN_VERSIONS[0])


def upgraded(document: Mapping[str, Any], version: int) -> dict[str, Any]:
    """A document in a later format version, with its required keys and without its removed ones."""
    fields = [f["field-id"] for spec in document["partition-specs"] for f in spec["fields"]]
    upgraded_document = {
        "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{document['location']}/table")),
        "last-partition-id": max(fields, default=FIRST_PARTITION_ID - 1),
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
    if requested not in {str(version) for version in WRITTEN_VERSIONS} or int(requested) < now:
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
    version = check_version(schema.properties.get(FORMAT_VERSION, str(WRITTEN_VERSIONS[0])), 0, where)
    types.check_supported(fields, version)
    names = [f.name for f in fields]
    check_names(names, where)
    numbered, last = evolution.number(fields, 0, collections_have_ids=True)
    check_partitions(schema.partitioning.fields, numbered, where)
    partition = [replace(f, id=FIRST_PARTITION_ID + i) for i, f in enumerate(schema.partitioning.fields)]
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
                f"{where}: partition_by names {part.source!r}, which is not a column; there are {', '.join(by_name)}"
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
_RESERVED = frozenset({
    "_file", "_pos", "_deleted", "_spec_id", "_partition", ROW_ID.name, LAST_UPDATED.name,
    "_change_type", "_change_ordinal", "_commit_snapshot_id",
})  # fmt: skip


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


def key_columns(schema: Mapping[str, Any], fields: tuple[Field, ...]) -> tuple[str, ...]:
    """The identifier fields by name; none if one of them is inside another column."""
    names = {f.id: f.name for f in fields}
    ids = schema.get("identifier-field-ids") or ()
    return tuple(names[id] for id in ids) if set(ids) <= names.keys() else ()


def check_key(schema: Schema, where: str) -> None:
    """Raise `InvalidInput` for a key with missing columns, or columns that cannot identify rows."""
    for index, name in enumerate(schema.primary_key):
        if name not in schema.names:
            raise InvalidInput(
                f"{where}: primary_key names {name!r}, which is not a column; there are {', '.join(schema.names)}"
            )
        if name in schema.primary_key[:index]:
            raise InvalidInput(f"{where}: primary_key names {name!r} twice")
        kind = schema.field(name).type
        if not isinstance(kind, Scalar) or not is_plain(kind) or kind.kind in (Kind.FLOAT, Kind.DOUBLE):
            raise InvalidInput(f"{where}: primary_key names {name!r}, a {kind}; it must be a plain value that is exact")


def parse_schema(document: Mapping[str, Any], current: Mapping[str, Any], partitioning: Partitioning) -> Schema:
    properties = dict(document.get("properties") or {})
    comment = properties.pop(COMMENT, None)
    properties.pop(OPERATION_PROPERTY, None)
    fields = types.parse_fields(current)
    return Schema(
        fields=fields,
        partitioning=partitioning,
        primary_key=key_columns(current, fields),
        properties=properties,
        comment=comment,
        id=current["schema-id"],
        last_field_id=document["last-column-id"],
        sort_order=sort_order(document, document.get("default-sort-order-id", 0), fields),
    )


def parse_spec(spec: Mapping[str, Any], fields: tuple[Field, ...], earlier_fields: Mapping[int, Field]) -> Spec:
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
