"""Rows as key-value files have them: numbered, merged and sorted by key; and the key ranges of files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.arrow import arrow_schema
from lakeformat.codec.plain_values import row_kinds
from lakeformat.engines.keyed import merge
from lakeformat.errors import InvalidInput
from lakeformat.model.schema import Field, Kind, Scalar
from lakeformat.model.work import (
    BUCKET,
    RETRACTS,
    ROW_KIND,
    SEQUENCE,
    VALUE_KIND,
    KeyRange,
    KeyValues,
    RowKind,
    WriteTask,
)


def input_fields(task: WriteTask) -> tuple[Field, ...]:
    """The columns that rows to be written may have."""
    if task.keyed is None:
        return task.fields
    if task.keyed.is_numbered:
        return (*task.fields, SEQUENCE, VALUE_KIND)
    return (*task.fields, ROW_KIND) if task.keyed.places is None else (*task.fields, ROW_KIND, BUCKET)


def waiting(task: WriteTask) -> tuple[Field, ...]:
    """The columns of rows that wait to be written, as `with_kinds` returns them."""
    if task.keyed is None or task.keyed.is_numbered:
        return input_fields(task)
    return (*task.fields, VALUE_KIND)


def with_kinds(batch: pa.RecordBatch, task: WriteTask) -> pa.RecordBatch:
    """The kind of each row as a number. Raises `InvalidInput` for an invalid kind."""
    if task.keyed is None or task.keyed.is_numbered:
        return batch
    names = batch.column(ROW_KIND.name)
    if names.null_count == len(names) and task.keyed.kind_column is not None:
        names = batch.column(task.keyed.kind_column)
    kinds = pc.index_in(pc.fill_null(names, task.keyed.kind.short), value_set=row_kinds())
    if kinds.null_count:
        strange = pc.unique(names.filter(kinds.is_null())).to_pylist()[:5]
        raise InvalidInput(f"row kinds {strange}: a row's kind is one of {', '.join(row_kinds().to_pylist())}")
    kept = batch.drop_columns([ROW_KIND.name])
    return kept.append_column(pa.field(VALUE_KIND.name, pa.int8(), nullable=False), kinds.cast(pa.int8()))


def without_ignored(batch: pa.RecordBatch, task: WriteTask) -> pa.RecordBatch:
    """The rows, as `with_kinds` returns them, that the table does not ignore (RowKindFilter)."""
    if task.keyed is None or task.keyed.is_numbered or not task.keyed.ignores_update_before:
        return batch
    return batch.filter(pc.not_equal(batch.column(VALUE_KIND.name), int(RowKind.UPDATE_BEFORE)))


def with_names(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace each row's kind number by its name."""
    names = row_kinds().take(batch.column(VALUE_KIND.name))
    return batch.drop_columns([VALUE_KIND.name]).append_column(ROW_KIND.name, names)


def stand(table: pa.Table, keyed: KeyValues, first: int) -> pa.Table:
    """Rows (as in `waiting`) -> the columns of a file. Rows to be numbered get consecutive numbers from `first` on, in
    their order."""
    if keyed.waits:
        merge.require_acceptable(table, keyed.merge)
        return changelog(table, keyed, first)
    if not keyed.is_numbered:
        table = _numbered(table, first)
        merge.require_acceptable(table, keyed.merge)
        table = merge.merge(table, keyed.merge)
    return _columns(table, keyed)


def changelog(table: pa.Table, keyed: KeyValues, first: int) -> pa.Table:
    """All rows to be numbered, as a changelog has them: those of a key in their order."""
    table = _numbered(table, first)
    if keyed.merge.ignore_delete:
        table = table.filter(pa.array(~merge.retracts(table)))
    order = merge.keyed(table, replace(keyed.merge, sequence=())).order
    return _columns(table.take(pa.array(order)), keyed)


def _numbered(table: pa.Table, first: int) -> pa.Table:
    numbers = pa.array(np.arange(first, first + table.num_rows))
    return table.append_column(pa.field(SEQUENCE.name, pa.int64(), nullable=False), numbers)


def _columns(table: pa.Table, keyed: KeyValues) -> pa.Table:
    source = {name: name for name in table.column_names}
    source |= {field.name: name for field, name in zip(keyed.key_fields, keyed.merge.key, strict=True)}
    return pa.Table.from_arrays([table.column(source[f.name]) for f in keyed.fields], schema=arrow_schema(keyed.fields))


def key_range(table: pa.Table, keyed: KeyValues) -> KeyRange:
    """The key range of the rows of a file, at least one."""
    ends = [0, table.num_rows - 1]
    least, greatest = zip(
        *([_value(table.column(f.name)[end], f) for end in ends] for f in keyed.key_fields), strict=True
    )
    numbers = pc.min_max(table.column(SEQUENCE.name)).as_py()
    retracts = pc.is_in(table.column(VALUE_KIND.name), value_set=pa.array(RETRACTS, pa.int8()))
    return KeyRange(least, greatest, numbers["min"], numbers["max"], pc.sum(retracts).as_py(), keyed.level)


def joined(before: KeyRange | None, after: KeyRange) -> KeyRange:
    """The key range of two consecutive parts of one file."""
    if before is None:
        return after
    return replace(
        after,
        minimum=before.minimum,
        first_sequence=min(before.first_sequence, after.first_sequence),
        last_sequence=max(before.last_sequence, after.last_sequence),
        retract_count=before.retract_count + after.retract_count,
    )


def _value(scalar: pa.Scalar, field: Field) -> Any:
    match field.type:
        case Scalar(Kind.TIMESTAMP | Kind.TIMESTAMP_TZ):
            return scalar.value
    return scalar.as_py()
