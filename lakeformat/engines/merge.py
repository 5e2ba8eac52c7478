"""merge(rows, spec): the rows of each key become one, as the table's merge engine says.

Facts: Paimon's `mergetree/compact/*MergeFunction.java`. A key with a single row keeps it as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeformat.engines import ranks
from lakeformat.errors import UnsupportedFeature
from lakeformat.model.work import RETRACTS, SEQUENCE, VALUE_KIND, MergeSpec


def merge(rows: pa.Table, spec: MergeSpec) -> pa.Table:
    """One row per key, in order of the keys; same columns.

    `rows` hold the key's columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND` and values, those of older files first. Survivors
    that are -D (or -U) stay, with their kind. Raises `UnsupportedFeature` for rows that the engine cannot take back.
    """
    if spec.engine not in _ENGINES:
        raise UnsupportedFeature(f"merge engine {spec.engine!r} is not known; known are {', '.join(_ENGINES)}")
    if spec.ignore_delete:
        taken_back = retracts(rows)
        if taken_back.any():
            rows = rows.filter(pa.array(~taken_back))
    if rows.num_rows == 0:
        return rows
    return _ENGINES[spec.engine](rows, keyed(rows, spec), spec)


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows in the order of their keys, and those of a key the oldest first: as places 0, 1, ..."""

    order: np.ndarray  # The row at each place.
    starts: np.ndarray  # The place of each key's first row.

    @property
    def ends(self) -> np.ndarray:
        """One after the place of each key's last row."""
        return np.append(self.starts[1:], len(self.order))


def keyed(rows: pa.Table, spec: MergeSpec) -> Keyed:
    """The order in which `rows` are merged."""
    keys = ranks.ranks([rows.column(name) for name in spec.key])
    order = np.argsort(keys, kind="stable")  # A merge of the runs that files are: close to linear.
    keys = keys[order]
    same = keys[1:] == keys[:-1]
    if same.any():
        fields = [rows.column(name) for name in spec.sequence]
        age = ranks.ranks([*fields, rows.column(SEQUENCE.name)], [*([not spec.is_ascending] * len(fields)), False])[
            order
        ]
        if np.any(same & (age[1:] < age[:-1])):
            order = order[np.lexsort((age, keys))]
    return Keyed(order, np.concatenate(([0], np.flatnonzero(~same) + 1)))


def retracts(rows: pa.Table) -> np.ndarray:
    """For each row, whether it takes back: -U or -D."""
    return np.isin(rows.column(VALUE_KIND.name).to_numpy(), RETRACTS)


# --- private ----------------------------------------------------------------------------------------------------------


def _deduplicate(rows: pa.Table, keyed: Keyed, spec: MergeSpec) -> pa.Table:
    return _take(rows, keyed.order[keyed.ends - 1])


def _first_row(rows: pa.Table, keyed: Keyed, spec: MergeSpec) -> pa.Table:
    several = keyed.ends - keyed.starts > 1
    taken_back = retracts(rows)[keyed.order]
    if np.any(np.logical_or.reduceat(taken_back, keyed.starts) & several):
        raise UnsupportedFeature(
            "merge engine 'first-row' cannot take rows back (-U, -D); set 'ignore-delete' to 'true' to leave them out"
        )
    return _take(rows, keyed.order[keyed.starts])


def _take(rows: pa.Table, chosen: np.ndarray) -> pa.Table:
    if len(chosen) == rows.num_rows and np.array_equal(chosen, np.arange(len(chosen))):
        return rows
    return rows.take(pa.array(chosen))


_ENGINES: dict[str, Callable[[pa.Table, Keyed, MergeSpec], pa.Table]] = {
    "deduplicate": _deduplicate,
    "first-row": _first_row,
}
