"""Values of a database that their column of the table cannot hold: what becomes of them, and how many there were."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from lakeformat.cdc.type_option import OnMisfit
from lakeformat.codec.arrow import to_arrow
from lakeformat.errors import InvalidInput
from lakeformat.model.schema import Field

V = TypeVar("V", bound="Values")


class Values(Protocol):
    """An Arrow array, or another column that can be sliced."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice, /) -> Any: ...


class Misfits:
    """Converts the values of columns by a policy, and counts those that became NULL; used by several threads."""

    def __init__(self, policy: OnMisfit | str, text_columns: Collection[str] = ()) -> None:
        """`text_columns`: the columns that are STRING, as "schema.table.column"."""
        if policy not in list(OnMisfit):
            raise InvalidInput(f"on_misfit={policy!r}: it is {' or '.join(repr(choice.value) for choice in OnMisfit)}")
        if wrong := [name for name in text_columns if name.count(".") < 2]:
            raise InvalidInput(f"text_columns: {wrong[0]!r} names no column; give 'schema.table.column'")
        self.become_null = policy == OnMisfit.NULL
        self._text_columns = frozenset(text_columns)
        self._counts: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()

    def is_text(self, table: str, column: str) -> bool:
        return f"{table}.{column}" in self._text_columns

    def counts(self, tables: Collection[str]) -> Mapping[str, int]:
        """How many values of these tables became NULL, by column, since the source was opened."""
        with self._lock:
            return dict(sum((self._counts.get(table, Counter()) for table in tables), Counter()))

    def converted(
        self, table: str, key: Collection[str], field: Field, values: V, convert: Callable[[V], pa.Array]
    ) -> pa.Array:
        """`convert(values)`, an element for each value of a column of `table`, whose key columns are `key`. Where that
        raises `InvalidInput` and the policy allows it, the values that cannot be converted alone are NULL."""
        try:
            return convert(values)
        except InvalidInput:
            if not self.become_null or field.name in key:
                raise
        arrays, misfits = [], 0
        pending = [(0, len(values))]
        while pending:  # By halves: few values are misfits.
            start, end = pending.pop()
            try:
                arrays.append(convert(values[start:end]))
            except InvalidInput:
                if end - start > 1:
                    middle = (start + end) // 2
                    pending += [(middle, end), (start, middle)]
                else:
                    arrays.append(pa.nulls(1, to_arrow(field.type)))
                    misfits += 1
        with self._lock:
            self._counts.setdefault(table, Counter())[field.name] += misfits
        return pa.concat_arrays(arrays)
