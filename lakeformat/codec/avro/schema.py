"""Avro schemas as trees: parsing of writer schemas, column selection, Arrow types, and the names that Avro allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lakeformat.errors import UnsupportedFeature
from lakeformat.model.dataclass import dataclass

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_COMPLEX = ("record", "error", "array", "map", "fixed", "enum")
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A type without parts. `size` is for fixed, `symbols` for enum; `arrow` is the type with `logical`."""

    kind: str
    size: int = 0
    symbols: tuple[str, ...] = ()
    arrow: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a record; skipped unless `keep`."""

    name: str
    node: Node
    keep: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    members: tuple[Member, ...]
    # Trees are keys of caches, and computing a hash walks the whole tree.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.members))

    def __hash__(self) -> int:
        return self._hash

    def columns(self) -> list[str]:
        """The names of the members; `a.b` for the members of nested records."""
        return [
            name
            for member in self.members
            for name in (
                [f"{member.name}.{inner.name}" for inner in member.node.members]
                if isinstance(member.node, Record)
                else [member.name]
            )
        ]


@dataclass(frozen=True, slots=True)
class Array:
    item: Node


@dataclass(frozen=True, slots=True)
class Map:
    """A map; encoded as an array of (string, value) pairs."""

    pair: Record


@dataclass(frozen=True, slots=True)
class Choice:
    """A union of `inner` and, at branch `null_at`, null; or of `inner` alone when `null_at` is None."""

    inner: Node
    null_at: int | None


@dataclass(frozen=True, slots=True)
class Union:
    """A union of several types, at `path`. Its Arrow type is the one that holds the values of all branches; without one
    it is a struct without fields, which tells only nulls from values."""

    branches: tuple[Node, ...]
    path: str
    spelled: str

    def refusal(self) -> str:
        return f"{self.path}: Avro union {self.spelled}"


@dataclass(frozen=True, slots=True)
class Place:
    """A skipped value whose position in its batch is kept: see `select`."""

    node: Node


Node = Leaf | Record | Array | Map | Choice | Union | Place


def parse(schema: Any) -> tuple[Record, int | None]:
    """A writer schema of records: (tree, branch of null if the schema is a union of a record with null).

    Raises `UnsupportedFeature` for a schema of anything but records.
    """
    null_at = None
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        if len(others) != 1 or len(schema) != 2:
            raise UnsupportedFeature(f"Avro union of {len(schema)} branches as the top of a file; one record is needed")
        null_at, schema = schema.index("null"), others[0]
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        raise UnsupportedFeature(f"Avro file of {_spell(schema)}; only files of records are read")
    node = _node(schema, _Scope(str(schema.get("name", "record")), {}))
    assert isinstance(node, Record), node
    return node, null_at


@lru_cache(maxsize=64)
def select(record: Record, columns: tuple[str, ...]) -> Record:
    """`record` with only `columns` kept: names, or dotted paths into nested records. For a name that ends in "@" the
    positions of the values are kept, under that name. Unknown names are ignored."""
    heads: dict[str, list[str]] = {}
    for column in columns:
        head, _, rest = column.partition(".")
        heads.setdefault(head, []).append(rest)
    # Avro forbids dots in names, so the first dot is always a separator.
    return Record(
        tuple(
            Member(f"{member.name}@", Place(member.node))
            if f"{member.name}@" in heads
            else _selected(member, heads.get(member.name))
            for member in record.members
        )
    )


def between(record: Record, name: str, names: Sequence[str]) -> Record:
    """What lies in the nested record `name` from its member `names[0]` to `names[-1]`, as a record with only `names`
    kept."""
    inside = next(member.node for member in record.members if member.name == name)
    assert isinstance(inside, Record), name
    order = [member.name for member in inside.members]
    members = inside.members[order.index(names[0]) : order.index(names[-1]) + 1]
    return Record(tuple(replace(member, keep=member.name in names) for member in members))


def unions(node: Node) -> Iterator[Union]:
    """The unions of several types in a type."""
    match node:
        case Union(branches):
            yield node
            for branch in branches:
                yield from unions(branch)
        case Record(members):
            for member in members:
                yield from unions(member.node)
        case Array(inner) | Map(inner) | Choice(inner) | Place(inner):
            yield from unions(inner)


@lru_cache(maxsize=256)
def has_unions(node: Node) -> bool:
    """Whether there are unions of several types, which only `avro_few.read_unions` reads."""
    return any(True for _ in unions(node))


@lru_cache(maxsize=256)
def require_types(node: Node) -> None:
    """Raise `UnsupportedFeature` for a union that no Arrow type expresses."""
    for union in unions(node):
        if common_type(union, True) is None:
            raise UnsupportedFeature(f"{union.refusal()}; no one type holds the values of all its branches")


@lru_cache(maxsize=256)
def min_bytes(node: Node) -> int:
    """The fewest bytes of a value."""
    match node:
        case Leaf(kind, size):
            return {"null": 0, "float": 4, "double": 8, "fixed": size}.get(kind, 1)
        case Record(members):
            return sum(min_bytes(member.node) for member in members)
        case Place(inner):
            return min_bytes(inner)
        case _:
            return 1


def arrow_type(node: Node, logical: bool) -> pa.DataType:
    """The Arrow type of decoded values; without `logical`, dates and decimals stay integers and bytes."""
    match node:
        case Leaf(kind, size, _, arrow):
            if logical and arrow is not None:
                return arrow
            return pa.binary(size) if kind == "fixed" else _RAW[kind]
        case Record():
            return pa.struct(list(arrow_schema(node, logical)))
        case Array(item):
            return pa.list_(_part("element", item, logical))
        case Map(Record((key, value))):
            return pa.map_(arrow_type(key.node, logical), _part("value", value.node, logical))
        case Choice(inner):
            return arrow_type(inner, logical)
        case Union():
            return common_type(node, logical) or pa.struct([])
        case Place():
            return pa.int32()
    raise AssertionError(node)


def common_type(union: Union, logical: bool) -> pa.DataType | None:
    """The Arrow type of all values of a union: the branches' own type, or the number type that holds all of them
    exactly; None if there is no such type."""
    types = {arrow_type(branch, logical) for branch in union.branches if branch != Leaf("null")}
    if any(nested != union and common_type(nested, logical) is None for nested in unions(union)):
        return None
    if len(types) == 1:
        return types.pop()
    for numbers, common in _COMMON:
        if types <= numbers:
            return common
    is_bytes = all(pa.types.is_binary(type) or pa.types.is_fixed_size_binary(type) for type in types)
    return pa.binary() if is_bytes else None


@lru_cache(maxsize=256)
def arrow_schema(record: Record, logical: bool) -> pa.Schema:
    """The columns of the kept members; see `arrow_type`."""
    return pa.schema([_part(member.name, member.node, logical) for member in record.members if member.keep])


_COMMON = [
    ({pa.int32(), pa.int64()}, pa.int64()),
    ({pa.int32(), pa.float32(), pa.float64()}, pa.float64()),
]
_RAW = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}


def nullable(node: Node) -> bool:
    """Whether a value may be null."""
    if isinstance(node, Choice):
        return node.null_at is not None or nullable(node.inner)
    if isinstance(node, Union):
        return any(map(nullable, node.branches))
    return isinstance(node, Leaf) and node.kind == "null"


def _part(name: str, node: Node, logical: bool) -> pa.Field:
    return pa.field(name, arrow_type(node, logical), nullable=nullable(node))


def _selected(member: Member, paths: list[str] | None) -> Member:
    if paths is None:
        return replace(member, keep=False)
    if "" in paths:
        return member
    match member.node:
        case Record() as record:
            return replace(member, node=select(record, tuple(paths)))
        case Choice(Record() as record, null_at):
            return replace(member, node=Choice(select(record, tuple(paths)), null_at))
        case Union():
            return member
    return replace(member, keep=False)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The position of a type in a schema. All scopes share `named`, the definitions that later fields may refer to."""

    path: str
    named: dict[str, Node]
    space: str = ""
    open_names: tuple[str, ...] = ()

    def full(self, name: str) -> str:
        return name if "." in name or not self.space else f"{self.space}.{name}"

    def below(self, path: str) -> _Scope:
        return replace(self, path=self.path + path)


def _node(schema: Any, scope: _Scope) -> Node:
    match schema:
        case str() if schema in _PRIMITIVES:
            return Leaf(schema)
        case str():
            name = scope.full(schema)
            if name in scope.open_names:
                raise UnsupportedFeature(f"{scope.path}: Avro type {schema} contains itself")
            if name not in scope.named:
                raise UnsupportedFeature(f"{scope.path}: Avro type {schema!r} is not defined in the schema")
            return scope.named[name]
        case list():
            return _union(schema, scope)
        case {"type": "record" | "error", "fields": list(fields)}:
            name = _name(schema, scope)
            inside = replace(scope, space=name.rpartition(".")[0], open_names=(*scope.open_names, name))
            return _define(Record(tuple(_member(field, inside) for field in fields)), name, scope)
        case {"type": "array", "items": items}:
            return Array(_node(items, scope.below("[]")))
        case {"type": "map", "values": values}:
            return Map(Record((Member("key", Leaf("string")), Member("value", _node(values, scope.below("{}"))))))
        case {"type": "fixed", "size": int(size)} if size >= 0:
            return _define(Leaf("fixed", size, arrow=_logical("fixed", schema)), _name(schema, scope), scope)
        case {"type": "enum", "symbols": list(symbols)}:
            return _define(Leaf("enum", symbols=tuple(map(str, symbols))), _name(schema, scope), scope)
        case {"type": str(kind)} if kind in _PRIMITIVES:
            return Leaf(kind, arrow=_logical(kind, schema))
        case {"type": (str() | dict() | list()) as inner} if inner not in _COMPLEX:
            return _node(inner, scope)
    raise UnsupportedFeature(f"{scope.path}: {_spell(schema)} is not an Avro type")


def _name(schema: dict[str, Any], scope: _Scope) -> str:
    name, space = str(schema.get("name", "")), schema.get("namespace")
    return f"{space}.{name}" if isinstance(space, str) and space and "." not in name else scope.full(name)


def _define(node: Node, name: str, scope: _Scope) -> Node:
    scope.named[name] = node
    return node


def _member(field: Any, scope: _Scope) -> Member:
    if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
        raise UnsupportedFeature(f"{scope.path}: {_spell(field)} is not a field of an Avro record")
    return Member(field["name"], _node(field["type"], scope.below(f".{field['name']}")))


def _union(branches: list[Any], scope: _Scope) -> Choice | Union:
    if len(branches) == 1:
        return Choice(_node(branches[0], scope), None)
    others = [branch for branch in branches if branch != "null"]
    if len(branches) != 2 or len(others) != 1:
        return Union(tuple(_node(branch, scope) for branch in branches), scope.path, _spell(branches))
    return Choice(_node(others[0], scope), branches.index("null"))


def _logical(kind: str, schema: Mapping[str, Any]) -> pa.DataType | None:
    """The Arrow type of a logical type; None if it is unknown or invalid, which Avro says to ignore."""
    name = str(schema.get("logicalType", ""))
    match kind, name:
        case "int", "date":
            return pa.date32()
        case "int", "time-millis":
            return pa.time32("ms")
        case "long", "time-micros":
            return pa.time64("us")
        case (("bytes" | "fixed"), "decimal"):
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if not (isinstance(precision, int) and isinstance(scale, int) and 1 <= precision <= 38):
                return None
            return pa.decimal128(precision, scale)
    what, _, unit = name.rpartition("-")
    if kind == "long" and what in ("timestamp", "local-timestamp") and unit in _UNITS:
        return pa.timestamp(_UNITS[unit], "UTC" if schema.get("adjust-to-utc") is True else None)
    return None


def _spell(schema: Any) -> str:
    text = repr(schema)
    return text if len(text) <= 120 else text[:117] + "..."


def legal(name: str) -> str:
    """A name with the characters that Avro allows (AvroSchemaUtil.sanitize)."""
    plain = [c if c.isascii() and (c.isalnum() or c == "_") else f"_x{ord(c):X}" for c in name]
    return "".join(plain) if plain and not name[:1].isdigit() else "_" + "".join(plain)
