"""Assignments to columns and to fields of structs -> assignments to whole columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakeformat.errors import InvalidInput, NotFound
from lakeformat.model.predicate import Call, Column, Expression, Literal, resolve
from lakeformat.model.schema import Field, Row

Path = tuple[str, ...]  # A column, or a field within one.


def path_of(name: str, fields: tuple[Field, ...], side: str = "") -> Path:
    """The column or field that `name` means, in the table's spelling: a column with dots comes before a field, and
    `side.name` is `name`. Raises `NotFound`."""
    if any(field.name == name for field in fields) or "." not in str(name):
        return resolve((name,), fields)[0]
    parts = tuple(name.split("."))
    parts = parts[1:] if parts[0].casefold() == side else parts
    try:
        return resolve(parts, fields)[0]
    except NotFound as error:
        raise NotFound(f"no column {name!r}: {error}") from error


def whole(
    values: Iterable[tuple[Path, Expression]], fields: tuple[Field, ...], side: Path = ()
) -> dict[str, Expression]:
    """The assigned columns. A struct of which fields are assigned keeps the others, also where it was null. `side`:
    what qualifies the table's columns. Raises `InvalidInput` for what is assigned twice or is not in a struct."""
    assigned: dict[Path, Expression] = {}
    for path, value in values:
        if any(path[: len(other)] == other or other[: len(path)] == path for other in assigned):
            raise InvalidInput(f"column {'.'.join(path)!r} is assigned twice")
        assigned[path] = value
    by_name = {field.name: field for field in fields}
    columns = dict.fromkeys(path[0] for path in assigned)
    return {name: _whole((name,), by_name[name], assigned, side) for name in columns}


# --- private ----------------------------------------------------------------------------------------------------------


def _whole(path: Path, field: Field, assigned: Mapping[Path, Expression], side: Path) -> Expression:
    if path in assigned:
        return assigned[path]
    if all(other[: len(path)] != path for other in assigned):
        return Column((*side, *path))
    assert isinstance(field.type, Row), path
    parts = ((Literal(part.name), _whole((*path, part.name), part, assigned, side)) for part in field.type.fields)
    return Call("named_struct", tuple(expression for pair in parts for expression in pair))
