"""Iceberg's changelog of a table: changed rows with change type, ordinal and snapshot id."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.reading.changes import KIND_COLUMN
from lakeformat.table import Table

TYPE, ORDINAL, SNAPSHOT = "_change_type", "_change_ordinal", "_commit_snapshot_id"
_ADDED = ("+I", "+U")


def read(
    table: Table,
    after: int | None = None,
    until: int | None = None,
    *,
    carry_over: bool = False,
    net: bool = False,
    update_keys: Sequence[str] = (),
) -> pa.Table:
    """The changes after snapshot `after` (default: from the first) up to `until` (default: the current one). Columns:
    the table's, `_change_type` (INSERT, DELETE, UPDATE_BEFORE, UPDATE_AFTER), `_change_ordinal` (from 0, one per
    snapshot) and `_commit_snapshot_id`.

    Unless `carry_over`, rows that one snapshot removed and added back unchanged are left out; with `net`, so are rows
    that the whole range removed and added back. With `update_keys`, a removed and an added row of one snapshot with the
    same values in these columns become UPDATE_BEFORE and UPDATE_AFTER.
    """
    for name in {TYPE, ORDINAL, SNAPSHOT}.intersection(field.name for field in table.schema.fields):
        raise InvalidInput(
            f"{table.name}: a column of the table is called {name!r}, as a column of its changelog is; rename it, or "
            "read changes() of other columns"
        )
    ids = [snapshot.id for snapshot in table.snapshots(after or 0)]
    ids = ids if until is None else ids[: ids.index(until) + 1] if until in ids else []
    parts, since = [], after or 0
    for ordinal, snapshot_id in enumerate(ids):
        rows = table.changes(since, snapshot_id).to_arrow()
        added = pc.is_in(rows[KIND_COLUMN], value_set=pa.array(_ADDED))
        rows = rows.drop_columns([KIND_COLUMN])
        rows = rows.append_column(_SIGN, pc.if_else(added, 1, -1))
        rows = rows.append_column(ORDINAL, pa.array(np.full(len(rows), ordinal, np.int32)))
        parts.append(rows.append_column(SNAPSHOT, pa.array(np.full(len(rows), snapshot_id, np.int64))))
        since = snapshot_id
    if not parts:
        empty = table.changes(after or 0, until).schema.empty_table().drop_columns([KIND_COLUMN])
        return _labelled(
            empty.append_column(_SIGN, _NONE).append_column(ORDINAL, _NONE).append_column(SNAPSHOT, _NONE), ()
        )
    if not carry_over:
        parts = [_net(rows) for rows in parts]
    whole = pa.concat_tables(parts)
    return _labelled(_net(whole) if net else whole, update_keys)


# --- private ----------------------------------------------------------------------------------------------------------

_SIGN = "_lakeformat_sign"
_POSITION = "_lakeformat_position"
_NONE = pa.nulls(0, pa.int64())  # pa.array would import pandas.


def _net(rows: pa.Table) -> pa.Table:
    """The rows that remain after equal added and removed rows cancel out; removed rows before added rows."""
    columns = [name for name in rows.column_names if name not in (_SIGN, ORDINAL, SNAPSHOT)]
    if nested := [name for name in columns if pa.types.is_nested(rows[name].type)]:
        raise UnsupportedFeature(
            f"changes of column {nested[0]}, a {rows[nested[0]].type}, cannot be compared; read t.changes"
        )
    grouped = rows.group_by(columns, use_threads=False).aggregate(
        [(_SIGN, "sum"), (ORDINAL, "max"), (SNAPSHOT, "last")]
    )
    sums = np.asarray(grouped[f"{_SIGN}_sum"])
    chosen = np.repeat(np.arange(len(grouped)), np.abs(sums))
    left = grouped.take(pa.array(chosen))
    left = left.select([*columns, f"{_SIGN}_sum", f"{ORDINAL}_max", f"{SNAPSHOT}_last"]).rename_columns(
        [*columns, _SIGN, ORDINAL, SNAPSHOT]
    )
    left = left.set_column(left.column_names.index(_SIGN), _SIGN, pa.array(np.sign(sums)[chosen]))
    return left.sort_by([(ORDINAL, "ascending"), (_SIGN, "ascending")]).select(rows.column_names)


def _labelled(rows: pa.Table, update_keys: Sequence[str]) -> pa.Table:
    came = np.asarray(rows[_SIGN]) > 0
    kinds = np.where(came, "INSERT", "DELETE").astype(object)
    if update_keys and len(rows):
        keys = [*update_keys, ORDINAL]
        positions = pa.array(np.arange(len(rows)))
        numbered = rows.select([*keys, _SIGN]).append_column(_POSITION, positions)
        sides = numbered.group_by(keys).aggregate([(_SIGN, "min"), (_SIGN, "max")])
        both = sides.filter(pc.less(sides[f"{_SIGN}_min"], sides[f"{_SIGN}_max"])).select(keys)
        updated = np.asarray(numbered.join(both, keys, join_type="left semi")[_POSITION])
        kinds[updated] = np.where(came[updated], "UPDATE_AFTER", "UPDATE_BEFORE")
    labelled = rows.drop_columns([_SIGN])
    return labelled.add_column(labelled.column_names.index(ORDINAL), TYPE, pa.array(kinds, pa.string()))
