"""Which columns: those that a reader names, and those that a condition needs besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakeformat.model.predicate import Expression, columns_of
from lakeformat.model.schema import Field, Row, find_field, spelled


def project(fields: tuple[Field, ...], columns: Sequence[str] | None) -> tuple[Field, ...]:
    """The columns asked for (see `spelled`), in the order asked for (None: all); `a.b` keeps only `b` of the row `a`. Raises
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
            chosen[first].append(rest)  # type: ignore[union-attr]
    return tuple(_part(find_field(fields, name), inner) for name, inner in chosen.items())


def with_columns_of(predicate: Expression, fields: tuple[Field, ...], every: tuple[Field, ...]) -> tuple[Field, ...]:
    """`fields`, and whole the columns of `every` that the condition needs."""
    needed = columns_of(predicate)
    chosen = [find_field(every, f.name) if f.name in needed else f for f in fields]
    return (*chosen, *(f for f in every if f.name in needed and f.name not in {c.name for c in chosen}))


def _part(field: Field, inner: list[str] | None) -> Field:
    if inner is None:
        return field
    if not isinstance(field.type, Row):
        return find_field((field,), f"{field.name}.{inner[0]}")
    return replace(field, type=Row(project(field.type.fields, inner)))
