"""Partitions of all specs of a table, by the fields that each spec has. `listed` and `specs` are those of
`Inspect.partitions` and `Inspect.partition_specs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.partition_listing import PARTITION, SPEC_ID

IDENTITY = "identity"


def by_spec(listed: pa.Table, specs: pa.Table) -> Iterator[tuple[list[dict[str, str]], pa.Table]]:
    """(the fields of a spec: name, source column and transform; its partitions, as `Inspect.partitions`) of each spec
    with partitions."""
    for spec in specs.to_pylist():
        own = listed.filter(pc.equal(listed[SPEC_ID], spec[SPEC_ID]))
        if own.num_rows:
            yield spec["fields"], own


def named(listed: pa.Table, specs: pa.Table) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(the values of a partition's own fields by name, its measures) of each partition, in the order of
    `Inspect.partitions`; partitions of several specs with the same fields and values are one. Files of a spec without
    fields are in no partition."""
    names = {spec[SPEC_ID]: [field["name"] for field in spec["fields"]] for spec in specs.to_pylist()}
    merged: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {}
    for row in listed.to_pylist():
        values = tuple((name, row[PARTITION][name]) for name in names[row[SPEC_ID]])
        if values:
            known = merged.setdefault(values, row)
            if known is not row:
                merged[values] = _together(known, row)
    return [(dict(values), row) for values, row in merged.items()]


def by_columns(
    listed: pa.Table, specs: pa.Table, columns: Sequence[str]
) -> dict[tuple[Any, ...], dict[str, Any]] | None:
    """The measures of the rows with each combination of values of these columns. None if that cannot be told from
    partitions: some spec with files does not have the columns' own values."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for fields, partitions in by_spec(listed, specs):
        names = {field["source"]: field["name"] for field in fields if field["transform"] == IDENTITY}
        if not set(columns) <= names.keys():
            return None
        for row in partitions.to_pylist():
            values = tuple(row[PARTITION][names[column]] for column in columns)
            merged[values] = _together(merged[values], row) if values in merged else row
    return merged


def identity_columns(listed: pa.Table, specs: pa.Table) -> list[str]:
    """The columns whose own values all specs with files have."""
    shared: dict[str, None] | None = None
    for fields, _ in by_spec(listed, specs):
        sources = dict.fromkeys(field["source"] for field in fields if field["transform"] == IDENTITY)
        shared = sources if shared is None else {name: None for name in shared if name in sources}
    return list(shared or ())


def largest(listed: pa.Table, specs: pa.Table, source: str, transform: str) -> pa.Scalar | None:
    """The largest value, among partitions with rows, of the field with this source column and transform. None if some
    spec with rows does not have that field."""
    values = []
    for fields, partitions in by_spec(listed, specs):
        filled = partitions.filter(pc.greater(partitions["row_count"], 0))
        name = next((f["name"] for f in fields if (f["source"], f["transform"]) == (source, transform)), None)
        if not filled.num_rows:
            continue
        if name is None:
            return None
        values += pc.struct_field(filled[PARTITION], name).chunks
    return pc.max(pa.chunked_array(values)) if values else pa.scalar(None)


def _together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The measures of two partitions as one; a count that one of them lacks is unknown."""
    counts = ("file_count", "small_file_count", "row_count", "deleted_row_count", "size_bytes")
    sums = {name: None if None in (one[name], other[name]) else one[name] + other[name] for name in counts}
    return {**one, **sums, "last_modified_ms": max(one["last_modified_ms"], other["last_modified_ms"])}
