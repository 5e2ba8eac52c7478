"""Avro records one by one through fastavro: few of them, which up to some kilobytes costs less than the columnar
coders' numpy calls for each field, and those with unions of several types, which the columnar coders do not know.

`read` and `write` accept nothing that the columnar coders refuse. It reads bytes only if writing the result gives the
same bytes, and writes rows only if their types are those of the members and no required value is null. For everything
else, damage included, they return None, and the columnar coders decide.
"""

from __future__ import annotations

import io
import itertools
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lakeformat import lazy
from lakeformat.codec.avro.decode import skipper
from lakeformat.codec.avro.encode import varint
from lakeformat.codec.avro.schema import Array, Choice, Leaf, Map, Node, Record, Union, arrow_type, min_bytes
from lakeformat.errors import CorruptFile, UnsupportedFeature

fastavro = lazy.library("fastavro")

READ_BYTES = 6_000
WRITE_BYTES = 6_000


def read(record: Record, null_at: int | None, data: bytes, count: int, logical: bool) -> pa.RecordBatch | None:
    """The kept columns of the `count` records in `data`; see `avro_decode.columns`."""
    schema = _schema(record, null_at)
    if schema is None or (logical and _has_decimal(record)):
        return None
    framed = varint(count) + data + b"\0"
    try:
        rows = fastavro.schemaless_reader(io.BytesIO(framed), schema, None)
        if _written(schema, rows) != framed or (null_at is not None and None in rows):
            return None
        return pa.RecordBatch.from_struct_array(pa.array(rows, arrow_type(record, logical)))
    except Exception:  # fastavro raises any exception for damaged bytes.
        return None


def read_unions(record: Record, null_at: int | None, data: memoryview, count: int, logical: bool) -> pa.RecordBatch:
    """The kept columns of `count` records with unions of several types: slow, a Python value for each Avro value.

    Raises `CorruptFile` if the bytes do not match the schema, and `UnsupportedFeature` for a schema that fastavro
    refuses.
    """
    node: Node = record if null_at is None else Choice(record, null_at)
    try:
        schema = fastavro.parse_schema(_spelled(node, itertools.count(), logical))
    except Exception as error:  # Names that Avro does not allow.
        raise UnsupportedFeature(f"a schema with unions of several types: {error}") from error
    skip, end, source = skipper(node), 0, io.BytesIO(data)
    try:
        for _ in range(count):
            end = skip(data, end)  # fastavro reads negative branches and symbols from the end.
        rows = [fastavro.schemaless_reader(source, schema, None) for _ in range(count)]
        if end != len(data) or source.tell() != end:
            raise CorruptFile(f"its {count} records end at byte {end} of {len(data)}")
        if None in rows:
            raise CorruptFile("a record is null")
        columns = [_expressed(record, row, logical) for row in rows]
        return pa.RecordBatch.from_struct_array(pa.array(columns, arrow_type(record, logical)))
    except IndexError as error:
        raise CorruptFile(f"its {count} records go on past the end of their block, at byte {len(data)}") from error
    except (pa.ArrowException, ValueError, TypeError, OverflowError, EOFError) as error:
        raise CorruptFile(f"records with unions of several types that do not match their schema: {error}") from error


def _expressed(node: Node, value: Any, logical: bool) -> Any:
    """A value as Arrow takes it for `arrow_type`."""
    if value is None:
        return None
    match node:
        case Record(members):
            return {
                member.name: _expressed(member.node, value[member.name], logical) for member in members if member.keep
            }
        case Array(inner):
            return [_expressed(inner, item, logical) for item in value]
        case Map(pair):
            return [(item["key"], _expressed(pair.members[1].node, item["value"], logical)) for item in value]
        case Choice(inner):
            return _expressed(inner, value, logical)
        case Union(branches):
            kind = arrow_type(node, logical)
            if kind == pa.struct([]):
                return {}
            nested = next((branch for branch in branches if not isinstance(branch, Leaf)), None)
            return value if nested is None else _expressed(nested, value, logical)
    return value


def write(record: Record, null_at: int | None, table: pa.Table) -> bytes | None:
    """The bytes of the rows of `table`, concatenated; see `avro_encode.blocks`."""
    schema = _schema(record, null_at)
    if schema is None or not _fits(record, table.schema):
        return None
    absent = dict.fromkeys(member.name for member in record.members if member.name not in table.column_names)
    rows = [row | absent for row in table.to_pylist()]
    try:
        framed = _written(schema, rows)
        # fastavro refuses a null in a required field, except in a boolean, where it writes false.
        if _has_boolean(record) and fastavro.schemaless_reader(io.BytesIO(framed), schema, None) != rows:
            return None
    except Exception:  # As for `read`; the columnar coder says what does not match.
        return None
    return framed[len(varint(table.num_rows)) : -1]


def _written(schema: Any, rows: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, rows)
    return out.getvalue()


@lru_cache(maxsize=64)
def _schema(record: Record, null_at: int | None) -> Any:
    """fastavro's parsed schema of an array of such records; None for records that fastavro reads differently."""
    if not _is_plain(record) or not min_bytes(record):
        return None
    item = _spelled(record if null_at is None else Choice(record, null_at), itertools.count())
    try:
        return fastavro.parse_schema({"type": "array", "items": item})
    except Exception:  # Usually names that Avro does not allow.
        return None


def _is_plain(node: Node) -> bool:
    """Whether there are no maps, whose keys may repeat, and no items of zero bytes, of which a few bytes may declare
    billions."""
    match node:
        case Record(members):
            names = {member.name for member in members}
            return len(names) == len(members) and all(_is_plain(member.node) for member in members)
        case Array(item):
            return bool(min_bytes(item)) and _is_plain(item)
        case Choice(inner):
            return not isinstance(inner, Choice) and _is_plain(inner)
    return isinstance(node, Leaf)


def _spelled(node: Node, number: itertools.count[int], decimals: bool = False) -> Any:
    """The schema without defaults, and without logical types except, on request, `decimals`; each type has a name of
    its own, and a map is the array of pairs that it is in bytes."""
    match node:
        case Record(members):
            fields = [{"name": member.name, "type": _spelled(member.node, number, decimals)} for member in members]
            return {"type": "record", "name": f"r{next(number)}", "fields": fields}
        case Array(inner) | Map(inner):
            return {"type": "array", "items": _spelled(inner, number, decimals)}
        case Choice(inner, None):
            return [_spelled(inner, number, decimals)]
        case Choice(inner, null_at):
            branches = ["null", _spelled(inner, number, decimals)]
            return branches if null_at == 0 else branches[::-1]
        case Union(types):
            return [_spelled(branch, number, decimals) for branch in types]
        case Leaf("fixed" | "bytes" as kind, size, _, arrow) if decimals and arrow is not None:
            named = {"name": f"r{next(number)}", "size": size} if kind == "fixed" else {}
            decimal = {"logicalType": "decimal", "precision": arrow.precision, "scale": arrow.scale}
            return {"type": kind, **named, **decimal}
        case Leaf("fixed", size):
            return {"type": "fixed", "name": f"r{next(number)}", "size": size}
        case Leaf("enum", symbols=symbols):
            return {"type": "enum", "name": f"r{next(number)}", "symbols": list(symbols)}
        case Leaf(kind):
            return kind
    raise AssertionError(node)


@lru_cache(maxsize=64)
def _has_decimal(node: Node) -> bool:
    match node:
        case Leaf(_, _, _, arrow):
            return arrow is not None and pa.types.is_decimal(arrow)
        case Record(members):
            return any(member.keep and _has_decimal(member.node) for member in members)
        case Array(inner) | Choice(inner) | Map(inner):
            return _has_decimal(inner)
    raise AssertionError(node)


@lru_cache(maxsize=64)
def _has_boolean(node: Node, may_be_null: bool = False) -> bool:
    """Whether there is a boolean that must not be null."""
    match node:
        case Leaf(kind):
            return kind == "boolean" and not may_be_null
        case Choice(inner):
            return _has_boolean(inner, True)
        case Record(members):
            return any(_has_boolean(member.node) for member in members)
        case Array(inner) | Map(inner):
            return _has_boolean(inner)
    raise AssertionError(node)


_TAKEN = {
    "null": {pa.null()},
    "boolean": {pa.bool_()},
    "int": {pa.int8(), pa.int16(), pa.int32()},
    "long": {pa.int8(), pa.int16(), pa.int32(), pa.int64()},
    "double": {pa.float64()},
    "bytes": {pa.binary(), pa.large_binary()},
    "string": {pa.string(), pa.large_string()},
}


@lru_cache(maxsize=64)
def _fits(record: Record, schema: pa.Schema) -> bool:
    """Whether fastavro takes the Python values of the columns for the members."""
    types = {field.name: field.type for field in schema}
    missing = [member for member in record.members if member.name not in types]
    can_miss = all(isinstance(member.node, Choice) and member.node.null_at is not None for member in missing)
    return can_miss and len(types) == len(schema) and _fit_members(record, types, len(missing))


def _fit_members(record: Record, types: dict[str, pa.DataType], missing: int = 0) -> bool:
    nodes = {member.name: member.node for member in record.members}
    return len(types) + missing == len(nodes) and all(n in nodes and _fit(nodes[n], t) for n, t in types.items())


def _fit(node: Node, type: pa.DataType) -> bool:
    match node:
        case Choice(inner):
            return _fit(inner, type)
        case Record() if pa.types.is_struct(type):
            fields = [type.field(i) for i in range(type.num_fields)]
            return _fit_members(node, {field.name: field.type for field in fields}, 0)
        case Array(item) if pa.types.is_list(type):
            return _fit(item, type.value_type)
        case Leaf(kind):
            return type in _TAKEN.get(kind, ())
    return False
