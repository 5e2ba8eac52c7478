"""Which column is which in files without field ids: the table's name mapping, or what stands for it,
and how it follows the schema."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from lakeformat.codec import parsing
from lakeformat.dialects.iceberg import types
from lakeformat.dialects.iceberg.metadata import State
from lakeformat.errors import CorruptTable, InvalidInput
from lakeformat.model.schema import Field, children, walk
from lakeformat.model.work import Named

PROPERTY = "schema.name-mapping.default"

_ENTRY: dict[str, Any] = {"?field-id": int, "names": [str]}
_ENTRY["?fields"] = [_ENTRY]


def parse(text: str) -> tuple[Named, ...]:
    """A name mapping. Raises `CorruptTable`."""
    return _named(_entries(text))


def for_files(base: State, file_format: str) -> tuple[tuple[Named, ...], tuple[int, ...]]:
    """(the mapping for files without field ids, the positions of its columns if these identify them); see `ReadTask`.

    Without a name mapping the columns of a Parquet file have the ids 1, 2, ..., and those of others the ids of the
    columns with their names (parquet/ParquetSchemaUtil.addFallbackIds, core/mapping/MappingUtil.create). Ids of fields
    inside columns, which some writers assign in between, are left out of the count.
    """
    if PROPERTY in base.schema.properties:
        return parse(base.schema.properties[PROPERTY]), ()
    mapping = _named(default(base.schema.fields))
    if file_format != "parquet":
        return mapping, ()
    nested = [
        column for schema in base.document["schemas"] for column in schema["fields"] if isinstance(column["type"], dict)
    ]
    columns = types.parse_fields({"fields": nested})
    inside = sorted({part.id for column in columns for part in walk(children(column.type))})
    return mapping, tuple(entry.id - 1 - bisect_left(inside, entry.id) for entry in mapping)


def for_adoption(base: State) -> tuple[tuple[Named, ...], Mapping[str, str]]:
    """The name mapping for files that become the table's, and the property that sets it if the table's lacks a column's
    own name. Raises `InvalidInput` for such a name that belongs to a dropped column."""
    text = base.schema.properties.get(PROPERTY, "[]")
    extended = _dumped(_extended(_entries(text), (), base.schema.fields))
    mapping = parse(extended)
    names = {entry.id: entry.names for entry in mapping}
    if clash := [column.name for column in base.schema.fields if column.name not in names.get(column.id, ())]:
        raise InvalidInput(
            f"column {clash[0]!r}: the table's name mapping ({PROPERTY}) has that name for another column, so "
            "that files without field ids cannot hold it; change the mapping"
        )
    return mapping, {} if mapping == parse(text) else {PROPERTY: extended}


def evolved(text: str, before: tuple[Field, ...], after: tuple[Field, ...]) -> str:
    """The name mapping of a table whose columns `before` became `after`: with the names of new and renamed ones, except
    those that it has for another column (core/mapping/MappingUtil.update). One that is damaged stays as it is."""
    try:
        entries = _entries(text)
    except CorruptTable:
        return text
    return _dumped(_extended(entries, before, after))


def default(fields: tuple[Field, ...]) -> list[dict[str, Any]]:
    """The name mapping of the columns' own names, as JSON (core/mapping/MappingUtil.create)."""
    mapping = []
    for column in fields:
        parts = default(children(column.type))
        mapping.append({"field-id": column.id, "names": [column.name], **({"fields": parts} if parts else {})})
    return mapping


def _extended(
    entries: Sequence[Mapping[str, Any]], before: tuple[Field, ...], after: tuple[Field, ...]
) -> list[Mapping[str, Any]]:
    earlier = {column.id: column for column in before}
    taken = {name for entry in entries for name in entry["names"]}
    extended = {column.id: column for column in after}
    extended_entries = [_followed(entry, earlier, extended, taken) for entry in entries]
    known = {entry.get("field-id") for entry in entries}
    new = (c for c in after if c.id not in known and c.id not in earlier and c.name not in taken)
    return [*extended_entries, *default(tuple(new))]


def _followed(
    entry: Mapping[str, Any], before: Mapping[int, Field], after: Mapping[int, Field], taken: set[str]
) -> Mapping[str, Any]:
    """An entry with the name of its column, if that is new and not `taken`, and with the entries of its fields."""
    column, earlier = after.get(entry.get("field-id", -1)), before.get(entry.get("field-id", -1))
    if column is None or column == earlier:
        return entry
    is_new = (earlier is None or earlier.name != column.name) and column.name not in taken
    parts = _extended(entry.get("fields") or (), children(earlier.type) if earlier else (), children(column.type))
    names = [*entry["names"], *([column.name] if is_new else [])]
    return {**entry, "names": names, **({"fields": parts} if parts else {})}


def _entries(text: str) -> list[dict[str, Any]]:
    with parsing.naming(f"property {PROPERTY!r} is not a name mapping", CorruptTable):
        entries: list[dict[str, Any]] = json.loads(text)
        parsing.check_values(entries)
        parsing.check(entries, [_ENTRY])
    return entries


def _dumped(entries: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(entries, separators=(",", ":"))


def _named(entries: Sequence[Mapping[str, Any]]) -> tuple[Named, ...]:
    """The columns of a name mapping; entries without an id are to be ignored."""
    return tuple(
        Named(entry["field-id"], tuple(entry["names"]), _named(entry.get("fields") or ()))
        for entry in entries
        if entry.get("field-id") is not None
    )
