"""Rows of one key become one row: the merge engines of keyed tables, over Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import UnsupportedFeature
from lakeformat.model.work import SEQUENCE, MergeSpec

ENGINES = ("deduplicate",)


def merge(rows: pa.Table, spec: MergeSpec) -> pa.Table:
    """One row for each key, in key order, with its number and kind; rows that retract are among them.

    `rows` hold the columns of `spec.key`, `SEQUENCE`, `VALUE_KIND` and values, in any order of rows; of two that are
    equal in all that orders them, the later one is newer.
    """
    if spec.engine not in ENGINES:
        raise UnsupportedFeature(f"merge engine {spec.engine!r}: not supported; known are {', '.join(ENGINES)}")
    if rows.num_rows < 2:
        return rows
    directions = [(rows.column(name), "ascending") for name in spec.key]
    for name in spec.sequence:
        directions += [
            (rows.column(name).is_valid(), "ascending"),  # Nulls come first either way.
            (rows.column(name), "ascending" if spec.is_ascending else "descending"),
        ]
    directions.append((rows.column(SEQUENCE.name), "ascending"))
    directions.append((pa.chunked_array([np.arange(rows.num_rows)]), "ascending"))
    names = [str(place) for place in range(len(directions))]
    table = pa.table([column for column, _ in directions], names)
    order = pc.sort_indices(table, sort_keys=[(n, d) for n, (_, d) in zip(names, directions, strict=True)])
    last = np.zeros(rows.num_rows, bool)
    last[-1] = True
    for name in spec.key:
        sorted_key = rows.column(name).take(order)
        last[:-1] |= np.asarray(pc.not_equal(sorted_key.slice(1), sorted_key.slice(0, rows.num_rows - 1)))
    return rows.take(order.filter(pa.array(last)))
