"""Schemas: logical types, fields with stable ids, and the lookup of columns by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum

from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.model import html
from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import Partitioning, SortOrder, Transform, TransformKind


class Kind(StrEnum):
    """The scalar types of both formats. A format's `types.py` refuses those that it lacks."""

    BOOLEAN = "boolean"
    TINYINT = "tinyint"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"  # parameters: precision, scale
    CHAR = "char"  # length in characters
    VARCHAR = "varchar"  # length in characters
    STRING = "string"
    BINARY = "binary"  # length in bytes, fixed
    VARBINARY = "varbinary"  # length in bytes, at most
    BYTES = "bytes"
    FIXED = "fixed"  # length in bytes, exactly (Iceberg)
    DATE = "date"
    TIME = "time"  # fractional digits; held in milliseconds (Paimon)
    TIME_MICROS = "time_micros"  # Iceberg's time
    TIMESTAMP = "timestamp"  # fractional digits; no time zone
    TIMESTAMP_TZ = "timestamp_tz"  # fractional digits; an instant
    UUID = "uuid"
    VARIANT = "variant"
    GEOMETRY = "geometry"  # WKB (Iceberg); see `Geo`
    GEOGRAPHY = "geography"
    UNKNOWN = "unknown"  # always null (Iceberg)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts, e.g. `Scalar(Kind.DECIMAL, (10, 2))`."""

    kind: Kind
    parameters: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.parameters))})" if self.parameters else str(self.kind)


@dataclass(frozen=True, slots=True)
class Geo(Scalar):
    """A geometry or geography with its reference system in the table's spelling, e.g. `geometry(srid:4326)`."""

    text: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ListOf:
    element: Field

    def __str__(self) -> str:
        return f"array<{self.element.type}>"


@dataclass(frozen=True, slots=True)
class MultisetOf:
    element: Field

    def __str__(self) -> str:
        return f"multiset<{self.element.type}>"


@dataclass(frozen=True, slots=True)
class MapOf:
    key: Field
    value: Field

    def __str__(self) -> str:
        return f"map<{self.key.type}, {self.value.type}>"


@dataclass(frozen=True, slots=True)
class Row:
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"row<{', '.join(f'{f.name}: {f.type}' for f in self.fields)}>"


Type = Scalar | ListOf | MultisetOf | MapOf | Row


def is_plain(type: Type) -> bool:
    """Whether values of the type have an order, and so bounds."""
    return isinstance(type, Scalar) and not isinstance(type, Geo) and type.kind not in (Kind.VARIANT, Kind.UNKNOWN)


NO_ID = -1  # The id of elements, keys and values of collections in a format that gives them none.


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field inside one. Its `id` never changes."""

    id: int
    name: str
    type: Type
    nullable: bool = True
    comment: str | None = None
    default: str | bytes | None = None  # The default of new rows.
    initial: str | bytes | None = None  # The value in rows of files that lack the column (Iceberg); null by default.


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a table, its partitioning, primary key, sort order and properties."""

    fields: tuple[Field, ...]
    partitioning: Partitioning = Partitioning()
    primary_key: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    id: int = 0
    last_field_id: int = -1
    sort_order: SortOrder = SortOrder()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def __repr__(self) -> str:
        columns = ", ".join(f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in self.fields)
        keyed = f", primary key ({', '.join(self.primary_key)})" if self.primary_key else ""
        parts = f", partitioned by ({', '.join(map(str, self.partitioning.fields))})" if self.partitioning else ""
        return f"Schema({columns}{keyed}{parts})"

    def _repr_html_(self) -> str:
        by_source = {f.source: str(f) for f in self.partitioning.fields}
        rows = (
            (f.id, f.name, f.type, "" if f.nullable else "not null", by_source.get(f.name), f.comment)
            for f in self.fields
        )
        key = f", primary key ({', '.join(self.primary_key)})" if self.primary_key else ""
        return html.table(f"schema {self.id}{key}", ("id", "column", "type", "", "partition", "comment"), rows)

    def field(self, name: str) -> Field:
        """The column `name`. Raises `NotFound`, naming the existing columns."""
        return find_field(self.fields, name)


def scalar(kind: Kind, *parameters: int) -> Scalar:
    return Scalar(kind, parameters)


def spelled(fields: tuple[Field, ...], name: str) -> str:
    """`name` in the spelling of `fields`: an exact match, or else the only match without regard to case; `name` itself
    if there is none. Raises `InvalidInput` if there are several."""
    if not isinstance(name, str) or any(f.name == name for f in fields):
        return name
    matching = [f.name for f in fields if f.name.casefold() == name.casefold()]
    if len(matching) > 1:
        raise InvalidInput(f"column {name!r} could be {' or '.join(matching)}; spell it exactly")
    return matching[0] if matching else name


def spelled_path(fields: tuple[Field, ...], path: tuple[str, ...]) -> tuple[str, ...]:
    """`path` with each part in the spelling of the rows it leads through."""
    spelling: list[str] = []
    for name in path:
        spelling.append(spelled(fields, name))
        inside = next((f.type for f in fields if f.name == spelling[-1]), None)
        fields = inside.fields if isinstance(inside, Row) else ()
    return tuple(spelling)


def find_field(fields: tuple[Field, ...], name: str) -> Field:
    for candidate in fields:
        if candidate.name == name:
            return candidate
    raise NotFound(f"no column {name!r}; there are {', '.join(f.name for f in fields)}")


def find_part(fields: tuple[Field, ...], path: tuple[str, ...]) -> Field:
    """The column, or the field of a row at any depth, that `path` leads to. Raises `NotFound`."""
    part_at = find_field(fields, path[0])
    for depth, name in enumerate(path[1:], 1):
        parts = part_at.type.fields if isinstance(part_at.type, Row) else ()
        exact = [part for part in parts if part.name == name]
        if not exact:
            parts_text = f"its parts are {', '.join(p.name for p in parts)}" if parts else "and has no named parts"
            raise NotFound(f"no column {'.'.join(path)!r}: {'.'.join(path[:depth])} is {part_at.type}, {parts_text}")
        part_at = exact[0]
    return part_at


def children(type: Type) -> tuple[Field, ...]:
    """The fields directly inside a type; none for a scalar."""
    match type:
        case ListOf(element) | MultisetOf(element):
            return (element,)
        case MapOf(key, value):
            return (key, value)
        case Row(fields):
            return fields
        case _:
            return ()


def walk(fields: tuple[Field, ...]) -> Iterator[Field]:
    """Every field at any depth, parents first."""
    for part in fields:
        yield part
        yield from walk(children(part.type))


MOST_LEVELS = 90  # Arrow's Parquet reader has a limit of 100 groups, of which shredded variants may need some.


def require_shallow(fields: tuple[Field, ...]) -> None:
    """Raise `UnsupportedFeature` for a column whose files could be written and not read: of a type nested deeper than
    `MOST_LEVELS`, where a row is one level, and a list or map two."""
    waiting = [(field.name, field.type, 0) for field in fields]
    while waiting:
        name, type, level = waiting.pop()
        if level > MOST_LEVELS:
            raise too_deep(f"column {name}")
        inside = level + (1 if isinstance(type, Row) else 2)
        waiting += [(name, part.type, inside) for part in children(type)]


def require_storable(fields: tuple[Field, ...]) -> None:
    """Raise `InvalidInput` for types that a table's metadata cannot say, or whose files could be written and not read:
    decimals with another scale than 0 to their precision, values of no bytes, rows without fields; and as
    `require_shallow`."""
    require_shallow(fields)
    for column in fields:
        for part in walk((column,)):
            match part.type:
                case Scalar(Kind.DECIMAL, (precision, scale)) if not (1 <= precision <= 38 and 0 <= scale <= precision):
                    raise InvalidInput(
                        f"column {column.name}: {part.type}: precision is 1 to 38, scale 0 to precision; cast it first"
                    )
                case Scalar(Kind.CHAR | Kind.VARCHAR | Kind.BINARY | Kind.VARBINARY | Kind.FIXED, (0,)):
                    raise InvalidInput(
                        f"column {column.name}: {part.type}: the length is 1 or more; use string or bytes"
                    )
                case Row(()):
                    raise InvalidInput(f"column {column.name}: a row inside a table needs a field; leave it out")


def too_deep(subject: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{subject}: a type nested deeper than {MOST_LEVELS} levels (a row is one, a list or map two), which readers "
        "of Parquet refuse; keep the inner part as text or as a variant"
    )


def rebuild(type: Type, change: Callable[[Field], Field]) -> Type:
    """`type` with `change` applied to each field directly inside it."""
    match type:
        case ListOf(element):
            return ListOf(change(element))
        case MultisetOf(element):
            return MultisetOf(change(element))
        case MapOf(key, value):
            return MapOf(change(key), change(value))
        case Row(fields):
            return Row(tuple(change(f) for f in fields))
        case _:
            return type


def project(fields: tuple[Field, ...], columns: Sequence[str] | None) -> tuple[Field, ...]:
    """The columns asked for (see `spelled`), in that order (None: all); `a.b` keeps only `b` of the row `a`. Raises
    `NotFound`."""
    if columns is None:
        return fields
    chosen: dict[str, list[str] | None] = {}
    whole = {f.name for f in fields}
    for asked in columns:
        name = spelled(fields, asked)
        first, _, rest = name.partition(".")
        first = spelled(fields, first)
        if name in whole or not rest:
            chosen[name] = None
        elif chosen.setdefault(first, []) is not None:
            chosen[first].append(rest)  # type: ignore[union-attr]  # Not None, by the line above.
    return tuple(_part_of(find_field(fields, name), inner) for name, inner in chosen.items())


def with_columns(needed: Collection[str], fields: tuple[Field, ...], every: tuple[Field, ...]) -> tuple[Field, ...]:
    """`fields`, with those columns of `every` added, or made whole, that are `needed`."""
    chosen = [find_field(every, f.name) if f.name in needed else f for f in fields]
    return (*chosen, *(f for f in every if f.name in needed and f.name not in {c.name for c in chosen}))


_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)
_INTEGERS = (Kind.INT, Kind.BIGINT)
_SOURCES_OF: dict[TransformKind, Collection[Kind]] = {
    TransformKind.BUCKET: (
        *_INTEGERS, Kind.DECIMAL, Kind.DATE, Kind.TIME_MICROS, *_INSTANTS, Kind.STRING, Kind.BYTES, Kind.FIXED,
        Kind.UUID,
    ),
    TransformKind.TRUNCATE: (*_INTEGERS, Kind.DECIMAL, Kind.STRING, Kind.BYTES),
    TransformKind.YEAR: (Kind.DATE, *_INSTANTS),
    TransformKind.MONTH: (Kind.DATE, *_INSTANTS),
    TransformKind.DAY: (Kind.DATE, *_INSTANTS),
    TransformKind.HOUR: _INSTANTS,
}  # fmt: skip
_PARTITIONABLE = frozenset(Kind) - {Kind.UNKNOWN, Kind.VARIANT, Kind.GEOMETRY, Kind.GEOGRAPHY}


def result_type(transform: Transform, source: Type, label: str = "column") -> Type:
    """The type of a transform's values over a column of type `source`. Raises `InvalidInput`, naming the column
    `label`, for a type that the transform does not take."""
    kind = transform.kind
    if not isinstance(source, Scalar) or source.kind not in _SOURCES_OF.get(kind, _PARTITIONABLE):
        raise InvalidInput(f"{transform}({label}): {label} is {source}, which {kind} does not take")
    if kind in (TransformKind.BUCKET, TransformKind.TRUNCATE) and not (transform.parameter or 0) > 0:
        raise InvalidInput(f"{transform}({label}): the number must be at least 1")
    if kind is TransformKind.TRUNCATE and (transform.parameter or 0) >= 2**31:
        raise InvalidInput(f"{transform}({label}): the number must be below 2147483648")
    match kind:
        case TransformKind.BUCKET | TransformKind.YEAR | TransformKind.MONTH | TransformKind.HOUR:
            return scalar(Kind.INT)
        case TransformKind.DAY:
            return scalar(Kind.DATE)
        case _:
            return source


def _part_of(field: Field, inner: list[str] | None) -> Field:
    if inner is None:
        return field
    if not isinstance(field.type, Row):
        return find_field((field,), f"{field.name}.{inner[0]}")
    return replace(field, type=Row(project(field.type.fields, inner)))
