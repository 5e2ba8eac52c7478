"""Partitions as a table of their values and measures: what both formats' `inspect.partitions()` return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.model.partition import Partitioning

PARTITION, SPEC_ID = "partition", "spec_id"
_FIELD = pa.struct([("name", pa.string()), ("source", pa.string()), ("transform", pa.string())])
_SPECS = pa.schema([(SPEC_ID, pa.int32()), ("fields", pa.list_(_FIELD)), ("is_current", pa.bool_())])


def partition_listing(values: Mapping[str, Any], spec_ids: Any, measures: Mapping[str, Any]) -> pa.Table:
    """One row per partition, in the order of the values: a column for each partition field, the measures, `spec_id`,
    and all fields in the struct `partition`.

    A field with the name of a measure, `spec_id` or `partition` is in the struct alone. Without fields there is no
    struct.
    """
    columns = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in values.values()]
    ids = pa.array(spec_ids, pa.int32())
    keys = pa.table([*columns, ids], names=[str(index) for index in range(len(columns) + 1)])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    own = {name.casefold() for name in (*measures, SPEC_ID, PARTITION)}
    shown = {name: column for name, column in zip(values, columns, strict=True) if name.casefold() not in own}
    table = pa.table({**shown, **measures, SPEC_ID: ids})
    if columns:
        table = table.append_column(PARTITION, pa.StructArray.from_arrays(columns, list(values)))
    return table.take(order)


def spec_listing(specs: Mapping[int, Sequence[tuple[str, str, str]]], current: int) -> pa.Table:
    """One row per partition spec, by id; `specs` has the name, source column and transform of its fields."""
    rows = [
        {
            SPEC_ID: id,
            "fields": [dict(zip(_FIELD.names, field, strict=True)) for field in fields],
            "is_current": id == current,
        }
        for id, fields in sorted(specs.items())
    ]
    return pa.Table.from_pylist(rows, _SPECS)


def described(partitioning: Partitioning) -> list[tuple[str, str, str]]:
    """The name, source column and transform of each field."""
    return [(field.name, field.source, str(field.transform)) for field in partitioning.fields]
