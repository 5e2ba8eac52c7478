"""Schema changes as values, and the schema that they lead to. Column ids never change, and no value loses its
meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

from lakeformat.errors import AlreadyExists, InvalidInput, NotFound
from lakeformat.model.dataclass import dataclass
from lakeformat.model.partition import PartitionField, Partitioning, SortField, SortOrder
from lakeformat.model.predicate import coerce
from lakeformat.model.schema import (
    NO_ID,
    Field,
    Kind,
    ListOf,
    MapOf,
    MultisetOf,
    Row,
    Scalar,
    Schema,
    Type,
    children,
    rebuild,
    scalar,
    spelled,
    spelled_path,
    walk,
)
from lakeformat.model.type_text import parse_type

# A column by name; a field inside it by dots (`address.city`, `tags.element.id`, `scores.value`) or by its path.
Path = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column, last unless `first` or `after` a sibling. Existing rows have null in it."""

    name: Path
    type: Type | str
    nullable: bool = True
    comment: str | None = None
    default: str | bytes | None = None
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """`to` is the new last part of the path."""

    name: Path
    to: str


@dataclass(frozen=True, slots=True)
class DropColumn:
    name: Path


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Move a column before all its siblings, or right after one of them."""

    name: Path
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeType:
    """Change to a type that holds every value of the old one (see `can_widen`)."""

    name: Path
    type: Type | str


@dataclass(frozen=True, slots=True)
class ChangeComment:
    name: Path
    comment: str | None


@dataclass(frozen=True, slots=True)
class ChangeNullability:
    """Allow nulls. Forbidding them later is refused, as files may have some."""

    name: Path
    nullable: bool


@dataclass(frozen=True, slots=True)
class ChangeDefault:
    """The value that new rows get if the data lacks the column; as text, None for null."""

    name: Path
    default: str | bytes | None


@dataclass(frozen=True, slots=True)
class AddPartitionField:
    """Partition new rows by this field too; existing rows stay where they are."""

    field: PartitionField


@dataclass(frozen=True, slots=True)
class DropPartitionField:
    """Stop partitioning new rows by this field."""

    name: str


@dataclass(frozen=True, slots=True)
class SetSortOrder:
    """Sort the rows of new files; existing files stay unchanged."""

    fields: tuple[SortField, ...]


@dataclass(frozen=True, slots=True)
class SetKey:
    """The primary key (Iceberg's identifier fields): NOT NULL columns, or none for no key. Existing rows are not
    checked."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetProperties:
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoveProperties:
    """A key that is not set is no error."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetTableComment:
    comment: str | None


Change = (
    AddColumn
    | RenameColumn
    | DropColumn
    | MoveColumn
    | ChangeType
    | ChangeComment
    | ChangeNullability
    | ChangeDefault
    | AddPartitionField
    | DropPartitionField
    | SetSortOrder
    | SetKey
    | SetProperties
    | RemoveProperties
    | SetTableComment
)


def apply(
    schema: Schema,
    changes: Iterable[Change],
    collections_have_ids: bool = False,
    fills_old_rows: bool = False,
    roles_are_by_id: bool = False,
) -> Schema:
    """`schema` after all `changes`, in order. Its `id` stays; the format assigns the next one.

    New fields get ids above every id ever used, parents first; fields inside collections too if the format gives them
    ids (`collections_have_ids`). With `fills_old_rows`, existing rows also get the default of a new column.

    Raises `NotFound`, `AlreadyExists` or `InvalidInput` with the column's name for a change that would break the table:
    dropping (or, unless `roles_are_by_id`, renaming or retyping) a partition, primary-key or bucket-key column,
    narrowing a type, forbidding nulls, leaving no column. Which properties may change is decided by the format.
    """
    last = max([schema.last_field_id, *(field.id for field in walk(schema.fields))])
    schema = replace(schema, last_field_id=last)
    for change in changes:
        if not roles_are_by_id and isinstance(change, RenameColumn | ChangeType):
            done = "renamed" if isinstance(change, RenameColumn) else "given another type"
            _require_free(schema, _path(schema.fields, change.name), done)
        schema = _applied(schema, change, collections_have_ids, fills_old_rows)
    return schema


def towards(schema: Schema, fields: Iterable[Field]) -> tuple[Change, ...]:
    """The changes by which the columns of a table become `fields`, in their order. A column whose name exists (whatever
    the case) is kept if its new type holds all values; otherwise a new column replaces it."""
    target, old = tuple(fields), {column.name.casefold(): column for column in schema.fields}
    changes: list[Change] = []
    dropped = [
        column.name for column in schema.fields if column.name.casefold() not in {f.name.casefold() for f in target}
    ]
    order = [column.name for column in schema.fields]
    for column in target:
        before = old.get(column.name.casefold())
        if before is not None and not _can_become(before, column):
            aside = _unused(f"{before.name}_before", [*order, *(f.name for f in target)])
            changes.append(RenameColumn((before.name,), aside))
            order[order.index(before.name)] = aside
            dropped.append(aside)
            before = None
        if before is None:
            changes.append(AddColumn((column.name,), column.type, column.nullable, column.comment, column.default))
            order.append(column.name)
            continue
        if before.name != column.name:
            changes.append(RenameColumn((before.name,), column.name))
            order[order.index(before.name)] = column.name
        if str(before.type) != str(column.type):
            changes.append(ChangeType((column.name,), column.type))
        if before.nullable != column.nullable:
            changes.append(ChangeNullability((column.name,), column.nullable))
        if before.comment != column.comment:
            changes.append(ChangeComment((column.name,), column.comment))
        if before.default != column.default:
            changes.append(ChangeDefault((column.name,), column.default))
    changes += [DropColumn((name,)) for name in dropped]
    names = [column.name for column in target]
    if [name for name in order if name not in dropped] != names:
        changes.append(MoveColumn((names[0],), first=True))
        changes += [MoveColumn((name,), after=previous) for previous, name in pairwise(names)]
    return tuple(changes)


def number(fields: tuple[Field, ...], last: int, collections_have_ids: bool = False) -> tuple[tuple[Field, ...], int]:
    """`fields` with new ids above `last`, each before its parts; and the last id assigned."""

    def visit(field: Field, has_id: bool) -> Field:
        nonlocal last
        last += has_id
        own = last if has_id else NO_ID
        inside = isinstance(field.type, Row) or collections_have_ids
        return replace(field, id=own, type=rebuild(field.type, lambda part: visit(part, inside)))

    return tuple(visit(field, True) for field in fields), last


def can_widen(old: Type, new: Type) -> bool:
    """Whether `new` holds every value of `old` unchanged."""
    if not isinstance(old, Scalar) or not isinstance(new, Scalar):
        return old == new
    if old == new:
        return True
    match old.kind, new.kind:
        case (Kind.UNKNOWN, _):
            return True
        case (a, b) if a in _INTEGERS and b in _INTEGERS:
            return _INTEGERS[a] <= _INTEGERS[b]
        case (a, Kind.DECIMAL) if a in _INTEGERS:
            return _whole_digits(new) >= _INTEGERS[a]
        case (Kind.TINYINT | Kind.SMALLINT, Kind.FLOAT):
            return True
        case (Kind.TINYINT | Kind.SMALLINT | Kind.INT | Kind.FLOAT, Kind.DOUBLE):
            return True
        case (Kind.DECIMAL, Kind.DECIMAL):
            return new.parameters[1] >= old.parameters[1] and _whole_digits(new) >= _whole_digits(old)
        case (Kind.CHAR | Kind.VARCHAR, Kind.STRING) | (Kind.BINARY | Kind.VARBINARY, Kind.BYTES):
            return True
        case (Kind.CHAR, Kind.CHAR | Kind.VARCHAR) | (Kind.VARCHAR, Kind.VARCHAR):
            return new.parameters[0] >= old.parameters[0]
        case (Kind.BINARY | Kind.VARBINARY, Kind.VARBINARY):
            return new.parameters[0] >= old.parameters[0]
        case (Kind.DATE, Kind.TIMESTAMP):
            return new.parameters[0] <= 6  # Nanoseconds in 64 bits do not cover every date.
        case (Kind.TIMESTAMP | Kind.TIMESTAMP_TZ | Kind.TIME as a, b) if a is b:
            reach = a is Kind.TIME or new.parameters[0] <= 6 or old.parameters[0] > 6
            return new.parameters[0] >= old.parameters[0] and reach
    return False


def _can_become(old: Field, new: Field) -> bool:
    is_same = str(old.type) == str(new.type)
    is_wider = isinstance(old.type, Scalar) and isinstance(new.type, Scalar) and can_widen(old.type, new.type)
    return (is_same or is_wider) and (new.nullable or not old.nullable)


def _unused(name: str, names: Iterable[str]) -> str:
    taken = {name.casefold() for name in names}
    while name.casefold() in taken:
        name += "_"
    return name


_INTEGERS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: 19}  # Decimal digits.
_ROLES: dict[type, tuple[str, ...]] = {ListOf: ("element",), MultisetOf: ("element",), MapOf: ("key", "value")}
_Edit = Callable[[tuple[Field, ...], str], tuple[Field, ...]]


def _whole_digits(type: Scalar) -> int:
    precision, scale = type.parameters
    return precision - scale


def _applied(schema: Schema, change: Change, collections_have_ids: bool, fills_old_rows: bool) -> Schema:  # noqa: C901 - a case for each change
    match change:
        case AddColumn():
            return _add(schema, change, collections_have_ids, fills_old_rows)
        case SetProperties(properties):
            return replace(schema, properties={**schema.properties, **_checked(properties)})
        case RemoveProperties(keys):
            kept = {k: v for k, v in schema.properties.items() if k not in keys}
            return replace(schema, properties=kept)
        case AddPartitionField(part):
            return replace(schema, partitioning=Partitioning((*schema.partitioning.fields, part), -1))
        case DropPartitionField(name):
            left = tuple(part for part in schema.partitioning.fields if part.name != name)
            if len(left) == len(schema.partitioning.fields):
                there = ", ".join(schema.partitioning.names) or "none"
                raise NotFound(f"no partition field {name!r}; there are: {there}")
            return replace(schema, partitioning=Partitioning(left, -1))
        case SetSortOrder(fields):
            return replace(schema, sort_order=SortOrder(fields, -1))
        case SetKey(columns):
            return replace(schema, primary_key=_key(schema, columns))
        case SetTableComment(comment):
            return replace(schema, comment=_comment(comment, "the table"))
        case RenameColumn() | DropColumn() | MoveColumn() | ChangeType() | ChangeComment():
            pass
        case ChangeNullability() | ChangeDefault():
            pass
        case _:
            raise InvalidInput(f"not a schema change: {change!r}")
    path = _path(schema.fields, change.name)
    column = ".".join(path)
    match change:
        case RenameColumn(_, to):
            renamed = _edited(schema, path, lambda siblings, name: _rename(siblings, name, to, column))
            renamed = replace(renamed, sort_order=_order_renamed(schema.sort_order, path, to))
            return renamed if len(path) > 1 else _roles_renamed(renamed, path[0], to)
        case DropColumn():
            _require_free(schema, path, "dropped")
            return _edited(schema, path, lambda siblings, name: _drop(siblings, name, column))
        case MoveColumn(_, first, after):
            return _edited(schema, path, lambda siblings, name: _move(siblings, name, first, after, column))
        case ChangeType(_, type):
            new = _type(type, column)
            return _edited(schema, path, _on_one(lambda field: _retype(field, new, column)))
        case ChangeComment(_, comment):
            return _edited(schema, path, _on_one(lambda field: replace(field, comment=_comment(comment, column))))
        case ChangeNullability(_, nullable):
            if nullable and len(path) == 1 and path[0] in schema.primary_key:
                raise InvalidInput(f"column {column} belongs to the primary key: it cannot hold nulls")
            return _edited(schema, path, _on_one(lambda field: _allow_nulls(field, nullable, column)))
        case ChangeDefault(_, default):
            return _edited(schema, path, _on_one(lambda field: _with_default(field, default, column)))
    raise InvalidInput(f"not a schema change: {change!r}")


def _key(schema: Schema, columns: Iterable[str]) -> tuple[str, ...]:
    names = tuple(spelled(schema.fields, name) for name in columns)
    for name in names:
        if schema.field(name).nullable:
            raise InvalidInput(
                f"column {name} may hold nulls; the columns of a key must be NOT NULL when they are made"
            )
    return names


def _add(schema: Schema, change: AddColumn, collections_have_ids: bool, fills_old_rows: bool) -> Schema:
    path = _new_path(schema.fields, change.name)
    column = ".".join(path)
    if not path[-1].strip():
        raise InvalidInput("a column needs a name that is not blank")
    if not change.nullable and not (fills_old_rows and change.default is not None):
        raise InvalidInput(
            f"column {column}: a new column is null in existing rows; leave out NOT NULL"
            + (", or give it a default" if fills_old_rows else "")
        )
    asked = Field(NO_ID, path[-1], _type(change.type, column), change.nullable, _comment(change.comment, column))
    new, last = number((asked,), schema.last_field_id, collections_have_ids)
    added = _with_default(new[0], change.default, column)
    if fills_old_rows:
        added = replace(added, initial=added.default)

    def add(siblings: tuple[Field, ...], name: str) -> tuple[Field, ...]:
        _require_new(siblings, name, column)
        return _placed((*siblings, added), added, change.first, change.after, column, stay=True)

    return replace(_edited(schema, path, add), last_field_id=last)


def _rename(siblings: tuple[Field, ...], name: str, to: str, label: str) -> tuple[Field, ...]:
    column = _sibling(siblings, name, label)
    if not isinstance(to, str) or not to.strip():
        raise InvalidInput(f"column {label}: {to!r} is not a name")
    _require_new(tuple(s for s in siblings if s is not column), to, label)
    return tuple(replace(s, name=to) if s is column else s for s in siblings)


def _roles_renamed(schema: Schema, name: str, to: str) -> Schema:
    """The column's entries in partitioning and key, under its new name."""
    fields = tuple(replace(f, source=to) if f.source == name else f for f in schema.partitioning.fields)
    key = tuple(to if key_name == name else key_name for key_name in schema.primary_key)
    return replace(schema, partitioning=replace(schema.partitioning, fields=fields), primary_key=key)


def _order_renamed(order: SortOrder, path: tuple[str, ...], to: str) -> SortOrder:
    last = len(path) - 1
    fields = tuple(
        replace(sort_field, source=(*path[:-1], to, *sort_field.source[last + 1 :]))
        if sort_field.source[: last + 1] == path
        else sort_field
        for sort_field in order.fields
    )
    return replace(order, fields=fields)


def _drop(siblings: tuple[Field, ...], name: str, label: str) -> tuple[Field, ...]:
    column = _sibling(siblings, name, label)
    if len(siblings) == 1:
        raise InvalidInput(f"column {label} is the last one; something must be left")
    return tuple(s for s in siblings if s is not column)


def _move(siblings: tuple[Field, ...], name: str, first: bool, after: str | None, label: str) -> tuple[Field, ...]:
    return _placed(siblings, _sibling(siblings, name, label), first, after, label, stay=False)


def _placed(
    siblings: tuple[Field, ...], moved: Field, first: bool, after: str | None, label: str, stay: bool
) -> tuple[Field, ...]:
    if (first and after is not None) or not (first or after is not None or stay):
        raise InvalidInput(f"column {label}: say either first=True or after=another column")
    others = tuple(s for s in siblings if s is not moved)
    if first:
        return (moved, *others)
    if after is None:
        return siblings
    if after == moved.name:
        raise InvalidInput(f"column {label} cannot come after itself")
    index = others.index(_sibling(others, spelled(others, after), after)) + 1
    return (*others[:index], moved, *others[index:])


def _retype(field: Field, new: Type, label: str) -> Field:
    if not isinstance(field.type, Scalar) or not isinstance(new, Scalar):
        if field.type == new:
            return field
        parts = children(field.type)
        hint = f"; change one of its parts, e.g. {label}.{_roles(field.type)[0]}" if parts else ""
        raise InvalidInput(f"column {label} is {field.type} and cannot become {new}{hint}")
    if not can_widen(field.type, new):
        raise InvalidInput(
            f"column {label} is {field.type}: {new} does not hold all its values; add a column of that type instead"
        )
    return _with_default(replace(field, type=new), field.default, label)


def _allow_nulls(field: Field, nullable: bool, label: str) -> Field:
    if field.nullable and not nullable:
        raise InvalidInput(f"column {label} may hold nulls already: NOT NULL cannot be added")
    return replace(field, nullable=nullable)


def _with_default(field: Field, default: str | bytes | None, label: str) -> Field:
    if default is not None and not (isinstance(default, bytes) and _takes_bytes(field.type)):
        if not isinstance(default, str):
            raise InvalidInput(f"column {label}: a default is given as text, not {default!r}")
        if isinstance(field.type, Scalar) and field.type.kind not in _UNCHECKED:
            # The format decides what it keeps.
            kind = scalar(Kind.TIME_MICROS) if field.type.kind is Kind.TIME else field.type
            coerce(default, kind, f"the default of column {label}")
    return replace(field, default=default)


_BYTES = (Kind.BYTES, Kind.FIXED, Kind.UUID)
_UNCHECKED = (Kind.BINARY, Kind.VARBINARY, Kind.BYTES, Kind.FIXED, Kind.VARIANT)


def _takes_bytes(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in _BYTES


def _on_one(change: Callable[[Field], Field]) -> _Edit:
    def edit(siblings: tuple[Field, ...], name: str) -> tuple[Field, ...]:
        column = _sibling(siblings, name, name)
        return tuple(change(s) if s is column else s for s in siblings)

    return edit


def _edited(schema: Schema, path: tuple[str, ...], edit: _Edit) -> Schema:
    return replace(schema, fields=_edit(schema.fields, path, edit, path))


def _edit(fields: tuple[Field, ...], path: tuple[str, ...], edit: _Edit, whole: tuple[str, ...]) -> tuple[Field, ...]:
    """Apply `edit` to the siblings of the field that `path` ends in."""
    if len(path) == 1:
        return edit(fields, path[0])
    parent = _sibling(fields, path[0], ".".join(whole))
    inside = _edit_type(parent.type, path[1:], edit, whole)
    return tuple(replace(field, type=inside) if field is parent else field for field in fields)


def _edit_type(type: Type, path: tuple[str, ...], edit: _Edit, whole: tuple[str, ...]) -> Type:
    name = ".".join(whole)
    match type:
        case Row(parts):
            return Row(_edit(parts, path, edit, whole))
        case Scalar():
            raise NotFound(f"no column {name!r}: {'.'.join(whole[: -len(path)])} is {type} and has no parts")
    roles = _roles(type)
    if path[0] not in roles:
        raise NotFound(f"no column {name!r}: the parts of {type} are {' and '.join(roles)}")
    if path[0] == "key":
        raise InvalidInput(f"{name}: the key of a map cannot be changed")
    part = children(type)[roles.index(path[0])]
    if len(path) > 1:
        new = replace(part, type=_edit_type(part.type, path[1:], edit, whole))
    else:
        edited = edit((replace(part, name=path[0]),), path[0])
        if len(edited) != 1 or edited[0].name != path[0]:
            raise InvalidInput(f"{name} is a part of {type}: its type, nulls and comment can change, and nothing else")
        new = replace(edited[0], name=part.name)
    return rebuild(type, lambda inner: new if inner is part else inner)


def _roles(type: Type) -> tuple[str, ...]:
    """The names of the parts of a type, for a path."""
    for kind, names in _ROLES.items():
        if isinstance(type, kind):
            return names
    return tuple(child.name for child in children(type))


def _path(fields: tuple[Field, ...], name: Path) -> tuple[str, ...]:
    """A dotted name is a path, unless a column has exactly that name."""
    if isinstance(name, str):
        path = (name,) if any(field.name == spelled(fields, name) for field in fields) else tuple(name.split("."))
    else:
        path = tuple(name) if isinstance(name, list | tuple) else ()
    if not path or not all(isinstance(part, str) and part for part in path):
        raise InvalidInput(f"{name!r} is not the name of a column")
    return spelled_path(fields, path)


def _new_path(fields: tuple[Field, ...], name: Path) -> tuple[str, ...]:
    """A dotted new name is a path if its parent exists; otherwise a name may not contain a dot."""
    path = _path(fields, name)
    if isinstance(name, str) and len(path) > 1 and not any(field.name == path[0] for field in fields):
        raise NotFound(f"no column {path[0]!r} to add {name!r} in; there are {', '.join(f.name for f in fields)}")
    return path


def _sibling(siblings: tuple[Field, ...], name: str, label: str) -> Field:
    for sibling in siblings:
        if sibling.name == name:
            return sibling
    raise NotFound(f"no column {label!r}; there are {', '.join(sibling.name for sibling in siblings)}")


def _require_new(siblings: tuple[Field, ...], name: str, label: str) -> None:
    """Names that differ only in case are one name to Spark."""
    for sibling in siblings:
        if sibling.name.casefold() == name.casefold():
            raise AlreadyExists(f"column {label}: there is {sibling.name!r} already; choose another name")


def _require_free(schema: Schema, path: tuple[str, ...], done: str) -> None:
    bucket_key = tuple(name.strip() for name in schema.properties.get("bucket-key", "").split(","))
    for role, names in (
        ("a partition column", schema.partitioning.sources),
        ("part of the primary key", schema.primary_key),
        ("part of the bucket key", bucket_key),
    ):
        if path[0] in names:
            raise InvalidInput(f"column {path[0]} is {role} and cannot be {done}; make a new table instead")


def _type(type: str | Type, label: str) -> Type:
    if isinstance(type, str):
        return parse_type(type)
    if not isinstance(type, Scalar | ListOf | MapOf | MultisetOf | Row):
        raise InvalidInput(f"column {label}: {type!r} is not a type; write it as SQL does, e.g. 'decimal(10, 2)'")
    return type


def _comment(comment: str | None, label: str) -> str | None:
    if comment is not None and not isinstance(comment, str):
        raise InvalidInput(f"the comment of {label} is text, not {comment!r}")
    return comment


def _checked(properties: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(properties, Mapping):
        raise InvalidInput(f"properties are a mapping of text to text, not {properties!r}")
    for key, value in properties.items():
        if not isinstance(key, str) or not key:
            raise InvalidInput(f"a property's name is text, not {key!r}")
        if not isinstance(value, str):
            raise InvalidInput(f"property {key!r}: the value is text, not {value!r}; remove_properties takes it away")
    return dict(properties)
