"""The fields of manifests and manifest lists, by id, and their Avro schemas, as Java writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lakeformat.codec.avro import fields as avro_fields
from lakeformat.codec.avro import file as avro
from lakeformat.codec.avro.fields import field
from lakeformat.dialects.iceberg.metadata import Spec


def _pairs(value: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([pa.field("key", pa.int32(), False), pa.field("value", value, False)]))


_COUNTS, _BOUNDS = _pairs(pa.int64()), _pairs(pa.binary())
# (field id, name, type) of an entry, and of its file.
OWN = [
    (0, "status", pa.int32()),
    (1, "snapshot_id", pa.int64()),
    (3, "sequence_number", pa.int64()),
    (4, "file_sequence_number", pa.int64()),
]
FILE = [
    (134, "content", pa.int32()),
    (100, "file_path", pa.string()),
    (101, "file_format", pa.string()),
    (103, "record_count", pa.int64()),
    (104, "file_size_in_bytes", pa.int64()),
    (108, "column_sizes", _COUNTS),
    (109, "value_counts", _COUNTS),
    (110, "null_value_counts", _COUNTS),
    (137, "nan_value_counts", _COUNTS),
    (125, "lower_bounds", _BOUNDS),
    (128, "upper_bounds", _BOUNDS),
    (131, "key_metadata", pa.binary()),
    (132, "split_offsets", pa.list_(pa.int64())),
    (135, "equality_ids", pa.list_(pa.int32())),
    (140, "sort_order_id", pa.int32()),
    (142, "first_row_id", pa.int64()),
    (143, "referenced_data_file", pa.string()),
    (144, "content_offset", pa.int64()),
    (145, "content_size_in_bytes", pa.int64()),
]
ONLY_IN_3 = {"first_row_id", "content_offset", "content_size_in_bytes"}
_SUMMARY = pa.struct(
    [
        pa.field("contains_null", pa.bool_(), False),
        pa.field("contains_nan", pa.bool_()),
        pa.field("lower_bound", pa.binary()),
        pa.field("upper_bound", pa.binary()),
    ]
)
META_FIELDS = [
    (500, "manifest_path", pa.string()),
    (501, "manifest_length", pa.int64()),
    (502, "partition_spec_id", pa.int32()),
    (517, "content", pa.int32()),
    (515, "sequence_number", pa.int64()),
    (516, "min_sequence_number", pa.int64()),
    (503, "added_snapshot_id", pa.int64()),
    (504, "added_files_count", pa.int32()),
    (505, "existing_files_count", pa.int32()),
    (506, "deleted_files_count", pa.int32()),
    (512, "added_rows_count", pa.int64()),
    (513, "existing_rows_count", pa.int64()),
    (514, "deleted_rows_count", pa.int64()),
    (507, "partitions", pa.list_(_SUMMARY)),
    (519, "key_metadata", pa.binary()),
    (520, "first_row_id", pa.int64()),
]


def _map(key_id: int, value_id: int, value: str) -> dict[str, Any]:
    name = f"k{key_id}_v{value_id}"
    fields = [field(key_id, "key", "int"), field(value_id, "value", value)]
    return {"type": "array", "items": {"type": "record", "name": name, "fields": fields}, "logicalType": "map"}


def _array(element_id: int, items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "element-id": element_id}


@lru_cache(maxsize=64)
def entry_text(spec: Spec, version: int) -> bytes:
    return avro.spell(_entry_schema(spec, version))


def _entry_schema(spec: Spec, version: int) -> dict[str, Any]:
    defined: set[str] = set()
    partition = [
        field(part.id, part.name, avro_fields.scalar_type(kind, defined), optional=True)
        for part, kind in zip(spec.partitioning.fields, spec.types, strict=True)
    ]
    counts = [
        field(108, "column_sizes", _map(117, 118, "long"), True),
        field(109, "value_counts", _map(119, 120, "long"), True),
        field(110, "null_value_counts", _map(121, 122, "long"), True),
        field(137, "nan_value_counts", _map(138, 139, "long"), True),
        field(125, "lower_bounds", _map(126, 127, "bytes"), True),
        field(128, "upper_bounds", _map(129, 130, "bytes"), True),
    ]
    file = [
        field(134, "content", "int"),
        field(100, "file_path", "string"),
        field(101, "file_format", "string"),
        field(102, "partition", {"type": "record", "name": "r102", "fields": partition}),
        field(103, "record_count", "long"),
        field(104, "file_size_in_bytes", "long"),
        *counts,
        field(131, "key_metadata", "bytes", True),
        field(132, "split_offsets", _array(133, "long"), True),
        field(135, "equality_ids", _array(136, "int"), True),
        field(140, "sort_order_id", "int", True),
        *([field(142, "first_row_id", "long", True)] if version >= 3 else []),
        field(143, "referenced_data_file", "string", True),
    ]
    if version >= 3:
        file += [field(144, "content_offset", "long", True), field(145, "content_size_in_bytes", "long", True)]
    fields = [
        field(0, "status", "int"),
        field(1, "snapshot_id", "long", True),
        field(3, "sequence_number", "long", True),
        field(4, "file_sequence_number", "long", True),
        field(2, "data_file", {"type": "record", "name": "r2", "fields": file}),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


_SUMMARY_SCHEMA = {
    "type": "record",
    "name": "r508",
    "fields": [
        field(509, "contains_null", "boolean"),
        field(518, "contains_nan", "boolean", True),
        field(510, "lower_bound", "bytes", True),
        field(511, "upper_bound", "bytes", True),
    ],
}
_LIST_TYPES: dict[str, Any] = {
    "manifest_path": "string",
    "partitions": _array(508, _SUMMARY_SCHEMA),
    "key_metadata": "bytes",
}
LIST_FIELDS = [
    field(
        id,
        name,
        _LIST_TYPES.get(name) or ("long" if type == pa.int64() else "int"),
        optional=name in ("partitions", "key_metadata", "first_row_id"),
    )
    for id, name, type in META_FIELDS
]


def _list_text(fields: Sequence[Mapping[str, Any]]) -> tuple[list[str], bytes]:
    """(the columns of a manifest list, its schema)."""
    return [f["name"] for f in fields], avro.spell({"type": "record", "name": "manifest_file", "fields": fields})


LIST_TEXTS = (_list_text([f for f in LIST_FIELDS if f["field-id"] != 520]), _list_text(LIST_FIELDS))
