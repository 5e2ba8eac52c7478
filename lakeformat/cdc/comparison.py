"""Compares rows of a table with those of its source, by key, columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.murmur import murmur3_32
from lakeformat.engines.kernels.rows import key_codes

KEYS_AT_ONCE = 1 << 22  # Keys of a table in memory at a time.


@dataclass(frozen=True, slots=True)
class Difference:
    """How rows of a table differ from those that its source has of some keys."""

    before: pa.Table  # The table's rows that differ.
    after: pa.Table  # The same rows with the source's values.
    new: pa.Table  # The source's rows whose keys the table lacks.
    same_keys: int  # How many of the table's rows the source has, changed or not.


def difference(existing: pa.Table, read: pa.Table, key: Sequence[str]) -> Difference:
    """Compare the table's rows `existing` with the source's rows `read`, in the columns of `read`,
    which may be fewer."""
    keys = list(key)
    codes = _codes(existing, read, keys)
    order = np.argsort(codes[existing.num_rows :], kind="stable")
    sought = codes[existing.num_rows :][order]
    matches = np.minimum(np.searchsorted(sought, codes[: existing.num_rows]), max(0, len(sought) - 1))
    same_keys = np.flatnonzero(sought[matches] == codes[: existing.num_rows]) if len(sought) else np.empty(0, np.int64)
    is_new = np.ones(read.num_rows, bool)
    is_new[order[matches[same_keys]]] = False
    old, now = existing.take(pa.array(same_keys)), read.take(pa.array(order[matches[same_keys]]))
    differs, after = pa.array(np.zeros(old.num_rows, bool)), old
    for name in set(read.schema.names) - set(keys):
        same = pc.fill_null(pc.equal(old[name], now[name]), False)
        both_null = pc.and_(pc.is_null(old[name]), pc.is_null(now[name]))
        differs = pc.or_(differs, pc.invert(pc.or_(same, both_null)))
        after = after.set_column(after.schema.get_field_index(name), name, now[name])
    return Difference(old.filter(differs), after.filter(differs), read.filter(pa.array(is_new)), len(same_keys))


def surplus(
    read_table: Callable[[], Iterator[pa.Table]],
    shown: Callable[[], Iterator[pa.Table]],
    key: Sequence[str],
    count: int,
    keys_at_once: int = KEYS_AT_ONCE,
) -> Iterator[pa.Table]:
    """The keys of the table that its source lacks. `read_table` and `shown` return the keys of both, a batch at a time;
    they are called once for each `keys_at_once` of the table's `count` keys."""
    names, parts = list(key), 1 + count // keys_at_once
    for part in range(parts):
        existing, source = (
            pa.concat_tables(_part(chunk.select(names), part, parts) for chunk in read()).combine_chunks()
            for read in (read_table, shown)
        )
        codes = _codes(existing, source, names)
        yield existing.filter(pa.array(~np.isin(codes[: existing.num_rows], codes[existing.num_rows :])))


def matching(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows with one of these keys."""
    names = keys.schema.names
    codes = _codes(rows, keys, names)
    return rows.filter(pa.array(np.isin(codes[: rows.num_rows], codes[rows.num_rows :])))


def _part(keys: pa.Table, part: int, parts: int) -> pa.Table:
    """The keys that are in one part of all, by the hash of their first column."""
    if parts == 1:
        return keys
    column = keys[keys.schema.names[0]].combine_chunks()
    texts = column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())
    return keys.filter(pa.array(murmur3_32(texts).astype(np.int64) % parts == part))


def _codes(first: pa.Table, second: pa.Table, names: Sequence[str]) -> np.ndarray:
    """A number for each key, of the rows of both tables."""
    both = pa.concat_tables([first.select(names), second.select(names)], promote_options="permissive").combine_chunks()
    return key_codes([both[name].combine_chunks() for name in names])
