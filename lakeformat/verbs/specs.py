"""Partition specs (column -> value), as verbs take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakeformat import arguments
from lakeformat.errors import InvalidInput
from lakeformat.model.predicate import Expression, bind, coerce, in_tuples, or_, partition_equals
from lakeformat.model.schema import Schema, spelled


def declared(name: str, schema: Schema, partitions: Iterable[Mapping[str, Any]]) -> Expression:
    """Partition specs as one condition on partition columns."""
    names = schema.partitioning.columns
    columns = tuple(field for field in schema.fields if field.name in names)
    specs = [
        {spelled(columns, column): value for column, value in spec.items()} for spec in arguments.specs(partitions)
    ]
    if not schema.partitioning:
        raise InvalidInput(f"{name} has no partitions; leave the partition spec out")
    if not names:
        raise InvalidInput(f"{name} has no column whose own values are its partitions; say where= instead")
    for spec in specs:
        for column in spec:
            if column not in names:
                raise InvalidInput(f"{name}: {column!r} is not a partition column; those are {', '.join(names)}")
        if not spec:
            raise InvalidInput(f"{name}: an empty partition spec names no partition; say overwrite(data) for the table")
    if all(len(spec) == len(names) for spec in specs):
        condition = in_tuples(names, [tuple(spec[n] for n in names) for spec in specs])
    else:
        condition = or_(*(partition_equals(spec) for spec in specs))
    return bind(condition, schema.fields)


def whole(name: str, schema: Schema, partitions: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The values of partitions given by full specs."""
    specs = list(arguments.specs(partitions))
    if not specs:
        raise InvalidInput(f"{name}: no partition is named; name one, e.g. [{{'dt': '2023-05-01'}}]")
    declared(name, schema, specs)  # Raises for a spec that names no partition.
    columns, names = {field.name: field for field in schema.fields}, schema.partitioning.columns
    rows = []
    for spec in specs:
        values = {spelled(schema.fields, column): value for column, value in spec.items()}
        if missing := [column for column in names if column not in values]:
            raise InvalidInput(f"{name}: {spec} leaves out {missing[0]}; name whole partitions")
        rows.append(tuple(coerce(values[column], columns[column].type, column) for column in names))
    return rows
