"""merge(rows, spec): merge the rows of each key into one, as the table's merge engine defines.

Facts: Paimon's `mergetree/compact/*MergeFunction.java`. A key with a single row keeps it unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts
from lakeformat.engines.kernels import equality, gather, ranks
from lakeformat.engines.keyed.aggregate import FUNCTIONS, Events, Result, aggregate, last, last_non_null
from lakeformat.errors import InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.work import (
    BUCKET,
    RETRACTS,
    SEQUENCE,
    VALUE_KIND,
    Aggregation,
    MergeEngine,
    MergeSpec,
    RowKind,
    SequenceGroup,
)

_MOST_RUNS = 256  # Of rows in order of their keys; of more, all are put in order together.
_Pieces = list[tuple[int, int]]  # Rows from start to stop.
_SAMPLES = 16  # Keys that are looked at for each batch, to tell where it ends.


def merge(rows: pa.Table, spec: MergeSpec) -> pa.Table:
    """One row per key, in key order; same columns.

    `rows` have the key columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND` and values, those of older files first. Results of
    kind -D (or -U) are kept, with their kind. Raises `UnsupportedFeature` for rows that the engine cannot retract.
    """
    if spec.ignore_delete:
        taken_back = retracts(rows)
        if taken_back.any():
            rows = rows.filter(pa.array(~taken_back))
    if rows.num_rows == 0:
        return rows
    if spec.engine in _CHOICES:
        return _take(rows, _CHOICES[spec.engine](rows, keyed(rows, spec)))
    return _ENGINES[spec.engine](rows, keyed(rows, spec), spec)


def merge_in_batches(
    rows: pa.Table,
    spec: MergeSpec,
    batch_rows: int,
    with_retracts: bool,
    unasked: Collection[str] = (),
    window_bytes: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """As `merge`, at most `batch_rows` at a time, and fewer of wide rows; without retractions unless `with_retracts`.
    Columns `unasked` may be left out.

    Rows are merged by ranges of keys of about `window_bytes`: no second copy of all rows is made.
    """
    if rows.num_rows == 0:
        return
    window_bytes = window_bytes or gather.WINDOW_BYTES
    batch_rows = max(1, min(batch_rows, rows.num_rows * window_bytes // max(1, rows.nbytes)))
    keys = ranks.ranks([rows.column(name) for name in spec.key])
    result_names = [name for name in rows.column_names if name not in unasked] or rows.column_names[:1]
    for some, window_keys in _windows(rows, keys, batch_rows, window_bytes):
        if gather.is_small(some):
            some = pa.Table.from_arrays([column.combine_chunks() for column in some.columns], schema=some.schema)
        if spec.engine in _CHOICES and not spec.ignore_delete:
            chosen = _CHOICES[spec.engine](some, keyed(some, spec, window_keys))
            if not with_retracts and VALUE_KIND.name in some.column_names:
                chosen = chosen[~retracts(some)[chosen]]
            result = _take(some.select(result_names), chosen)
        else:
            result = merge(some, spec)
            if not with_retracts:
                result = result.filter(pa.array(~retracts(result)))
        yield from gather.compact(result).to_batches(batch_rows)


def _windows(
    rows: pa.Table, keys: np.ndarray, most_rows: int, most_bytes: int
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """(rows, their keys), so that all rows of a key are together, and in order of the keys: about `most_rows` rows and
    `most_bytes` each."""
    starts = np.concatenate(([0], np.flatnonzero(keys[1:] < keys[:-1]) + 1))
    if len(starts) > _MOST_RUNS:
        yield from _mixed(rows, keys, most_rows, most_bytes)
        return
    stops = np.append(starts[1:], len(keys))
    pieces = list(zip(starts.tolist(), stops.tolist(), strict=True))
    count = len(keys) // max(1, most_rows)
    sample = np.sort(keys[:: max(1, len(keys) // (count * _SAMPLES))]) if count > 1 else keys[:0]
    for window in _cut(keys, pieces, np.unique(sample[_SAMPLES::_SAMPLES])):
        yield from _bounded(rows, keys, window, most_bytes)


def _cut(keys: np.ndarray, pieces: _Pieces, edges: np.ndarray) -> Iterator[_Pieces]:
    """The pieces, which are in order of their keys, below the first edge, from there to the next, ..."""
    cuts = [
        np.concatenate(([start], start + np.searchsorted(keys[start:stop], edges), [stop])) for start, stop in pieces
    ]
    for parts in zip(*(pairwise(cut.tolist()) for cut in cuts), strict=True):
        if window := [(start, stop) for start, stop in parts if start < stop]:
            yield window


def _bounded(
    rows: pa.Table, keys: np.ndarray, pieces: _Pieces, most_bytes: int
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """The rows of the pieces: of all, or of halves of their keys if they have more than twice `most_bytes`."""
    some = pa.concat_tables([rows.slice(start, stop - start) for start, stop in pieces])
    piece_keys = np.concatenate([keys[start:stop] for start, stop in pieces])
    distinct = np.unique(piece_keys) if some.nbytes > 2 * most_bytes else piece_keys[:1]
    if len(distinct) < 2:
        yield some, piece_keys
        return
    del some
    for half in _cut(keys, pieces, distinct[[len(distinct) // 2]]):
        yield from _bounded(rows, keys, half, most_bytes)


def _mixed(rows: pa.Table, keys: np.ndarray, most_rows: int, most_bytes: int) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """As `_windows`, of rows in any order."""
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate(([0], np.flatnonzero(np.diff(keys[order])) + 1))
    sizes = np.add.reduceat(gather.Rows(rows).sizes(order), starts)
    ends = np.append(starts[1:], len(order))
    for window in gather.windows(sizes, most_rows, most_bytes):
        own = np.sort(order[starts[window.start] : ends[window.stop - 1]])  # Files are read in one direction.
        yield gather.take(rows, own), keys[own]


def require_acceptable(rows: pa.Table, spec: MergeSpec) -> None:
    """Raise `InvalidInput` for rows that could not be merged once written, such as retractions that the engine cannot
    apply."""
    kinds = set(pc.unique(rows.column(VALUE_KIND.name)).to_pylist()) & set(RETRACTS)
    if spec.remove_on_delete:
        kinds -= {RowKind.DELETE, *([RowKind.UPDATE_BEFORE] if spec.engine is MergeEngine.PARTIAL_UPDATE else [])}
    if not kinds or spec.ignore_delete:
        return
    fixed = [a for a in spec.aggregations if not (FUNCTIONS[a.function][1] or a.ignore_retract)]
    if spec.engine is MergeEngine.FIRST_ROW or (spec.engine is MergeEngine.PARTIAL_UPDATE and not spec.groups) or fixed:
        shown = ", ".join(RowKind(kind).short for kind in sorted(kinds))
        what = f"the aggregate function {fixed[0].function!r} of column {fixed[0].column!r}" if fixed else "it"
        raise InvalidInput(
            f"rows of kind {shown} for a table with merge engine '{spec.engine}': {what} cannot take rows back. Leave "
            "these rows out, or set the table's 'ignore-delete' to 'true'"
        )


def difference(before: pa.Table, after: pa.Table, spec: MergeSpec, compared: Sequence[str] = ()) -> pa.Table:
    """The changes from the merged rows `before` to those after, by key: +I, -D, or -U and +U.

    Both have at most one row per key; retractions count as none. A row is unchanged if it has the same sequence number
    and is equal (an older row may change one without a newer number); or, with columns `compared`, if it is equal in
    these.
    """
    before, after = (rows.filter(pa.array(~retracts(rows))) for rows in (before, after))
    rows = pa.concat_tables([before, after])
    if rows.num_rows == 0:
        return rows
    is_after = np.arange(rows.num_rows) >= before.num_rows
    keys = ranks.ranks([rows.column(name) for name in spec.key])
    if gather.is_small(rows):
        return _difference(rows, is_after, keys, spec, compared)
    flagged = rows.append_column("", pa.array(is_after))
    return pa.concat_tables(
        _difference(some.drop_columns([""]), np.asarray(some.column("")), own, spec, compared)
        for some, own in _windows(flagged, keys, rows.num_rows, gather.WINDOW_BYTES)
    )


def _difference(
    rows: pa.Table, is_after: np.ndarray, keys: np.ndarray, spec: MergeSpec, compared: Sequence[str]
) -> pa.Table:
    # Rows of a key are in the order of their tables, not of their numbers.
    order = np.argsort(keys, kind="stable")
    pairs = np.append(keys[order][1:] == keys[order][:-1], False)
    has_other = pairs | np.append(False, pairs[:-1])
    maybe = pairs.copy()
    if not compared:
        numbers = rows.column(SEQUENCE.name).to_numpy()[order]
        maybe[:-1] &= numbers[1:] == numbers[:-1]
        compared = [name for name in rows.schema.names if name not in (*spec.key, SEQUENCE.name, VALUE_KIND.name)]
    places = np.flatnonzero(maybe)
    alike = np.ones(len(places), bool)
    for name in compared:
        column = rows.column(name)
        one, other = (layouts.plain(gather.take_column(column, order[places + step])) for step in (0, 1))
        alike &= equality.equal(one, other)
    same = np.zeros(len(order), bool)
    same[places[alike]] = True
    changed = ~(same | np.append(False, same[:-1]))
    alone = np.where(is_after[order], RowKind.INSERT, RowKind.DELETE)
    paired = np.where(is_after[order], RowKind.UPDATE_AFTER, RowKind.UPDATE_BEFORE)
    kinds = np.where(has_other, paired, alone)[changed].astype(np.int8)
    index = rows.schema.get_field_index(VALUE_KIND.name)
    return gather.take(rows, order[changed]).set_column(index, rows.schema.field(index), pa.array(kinds))


def last_of_each(rows: pa.Table, spec: MergeSpec) -> pa.Table:
    """For each key its last row, whatever its sequence number; in the given order."""
    keys = ranks.ranks([rows.column(name) for name in spec.key])
    order = np.argsort(keys, kind="stable")
    is_last = np.append(keys[order][1:] != keys[order][:-1], True)[: len(order)]
    return rows if is_last.all() else gather.take(rows, np.sort(order[is_last]))


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows sorted by key, those of a key the oldest first, at places 0, 1, ..."""

    order: np.ndarray  # The row at each place.
    starts: np.ndarray  # The place of each key's first row.

    @property
    def ends(self) -> np.ndarray:
        """One after the place of each key's last row."""
        return np.append(self.starts[1:], len(self.order))


def keyed(rows: pa.Table, spec: MergeSpec, keys: np.ndarray | None = None) -> Keyed:
    """The order in which `rows` are merged; `keys` are the ranks of their keys, where these are known."""
    if keys is None:
        keys = ranks.ranks([rows.column(name) for name in spec.key])
    order = np.argsort(keys, kind="stable")  # Files are sorted runs, so merging them is close to linear.
    keys = keys[order]
    same = keys[1:] == keys[:-1]
    # Without numbers, rows stand in the order of their ages.
    by_age = [*spec.sequence, *([SEQUENCE.name] if SEQUENCE.name in rows.column_names else [])]
    if by_age and same.any():
        descending = [name in spec.sequence and not spec.is_ascending for name in by_age]
        age = ranks.ranks([rows.column(name) for name in by_age], descending)[order]
        if np.any(same & (age[1:] < age[:-1])):
            order = order[np.lexsort((age, keys))]
    return Keyed(order, np.concatenate(([0], np.flatnonzero(~same) + 1)))


def retracts(rows: pa.Table) -> np.ndarray:
    """For each row, whether it is a retraction: -U or -D. Without a column of kinds none is."""
    if VALUE_KIND.name not in rows.column_names:
        return np.zeros(rows.num_rows, bool)
    return np.isin(rows.column(VALUE_KIND.name).to_numpy(), RETRACTS)


# --- private ----------------------------------------------------------------------------------------------------------


def _deduplicate(rows: pa.Table, keyed: Keyed) -> np.ndarray:
    return keyed.order[keyed.ends - 1]


def _first_row(rows: pa.Table, keyed: Keyed) -> np.ndarray:
    several = keyed.ends - keyed.starts > 1
    taken_back = retracts(rows)[keyed.order]
    if np.any(np.logical_or.reduceat(taken_back, keyed.starts) & several):
        raise UnsupportedFeature(
            "merge engine 'first-row' cannot take rows back (-U, -D); set 'ignore-delete' to 'true' to leave them out"
        )
    return keyed.order[keyed.starts]


def _partial_update(rows: pa.Table, keyed: Keyed, spec: MergeSpec) -> pa.Table:
    several = _several(rows, keyed)
    if len(several.starts) == 0:
        return _take(rows, several.single)
    taken_back, kinds = np.isin(several.kinds, RETRACTS), several.kinds
    if taken_back.any() and not (spec.remove_on_delete or spec.groups):
        raise UnsupportedFeature(
            "merge engine 'partial-update' cannot take rows back (-U, -D) as this table is set up; set 'ignore-delete' "
            "or 'partial-update.remove-record-on-delete' to 'true', or give the columns sequence groups"
        )
    removed = (
        several.last(kinds == RowKind.DELETE) if spec.remove_on_delete else several.last(np.zeros_like(taken_back))
    )
    # The sequence of a group without a requested column is not read (`MergeSpec.needed`).
    columns = set(rows.column_names)
    groups = [_Group.from_rows(group, rows, several) for group in spec.groups if columns.issuperset(group.sequence)]
    removed = _removed_by_groups([g for g in groups if g.group.removes_record], several, removed)
    in_order = [group.in_order(several, removed) for group in groups]
    rules = {aggregation.column: aggregation for aggregation in spec.aggregations}

    def reduce(name: str) -> Result:
        column = rows.column(name)
        nullable = rows.schema.field(name).nullable
        living = several.after(np.ones_like(taken_back), removed)
        for group, ordered in zip(groups, in_order, strict=True):
            counts = living & group.is_given
            if name in group.group.sequence:
                return _filled(several.last(counts & ordered), several, removed, nullable)
            if name in group.group.columns:
                rule = rules.get(name)
                adds, takes = counts & ordered & ~taken_back, counts & taken_back
                if rule is None:
                    chosen = last(several.events(adds, retracts=takes & ordered))
                    return _filled(chosen, several, removed, nullable)
                events = several.events(adds, counts & ~ordered & ~taken_back, takes)
                return aggregate(rule, gather.take_column(column, several.rows), events)
        chosen = last_non_null(_is_valid(column)[several.rows], several.events(living & ~taken_back))
        return _filled(chosen, several, removed, nullable)

    is_deleted = (removed == several.ends - 1) | ~several.any(~taken_back)
    return several.merged(reduce, spec, is_deleted)


def _aggregation(rows: pa.Table, keyed: Keyed, spec: MergeSpec) -> pa.Table:
    several = _several(rows, keyed)
    if len(several.starts) == 0:
        return _take(rows, several.single)
    taken_back = np.isin(several.kinds, RETRACTS)
    deletes = several.kinds == RowKind.DELETE
    removed = several.last(deletes if spec.remove_on_delete else np.zeros_like(deletes))
    living = several.after(np.ones_like(deletes), removed)
    rules = {aggregation.column: aggregation for aggregation in spec.aggregations}
    rules |= {name: Aggregation(name, "last_value") for name in spec.sequence}

    def reduce(name: str) -> Result:
        adds = living & ~taken_back
        # A removed row keeps its NOT NULL values, from which aggregation continues.
        if not rows.schema.field(name).nullable:
            adds[removed[removed >= 0]] = True
        how = rules.get(name, Aggregation(name, "last_non_null_value"))
        values = gather.take_column(rows.column(name), several.rows)
        reduced = aggregate(how, values, several.events(adds, retracts=living & taken_back))
        if rows.schema.field(name).nullable:
            return reduced
        newest = several.ends - 1  # A NOT NULL value cannot be retracted if nothing would be left.
        if isinstance(reduced, np.ndarray):
            return np.where(reduced < 0, newest, reduced)
        return pc.coalesce(reduced, values.take(pa.array(newest)).combine_chunks()) if reduced.null_count else reduced

    return several.merged(reduce, spec, removed == several.ends - 1)


@dataclass(frozen=True, slots=True)
class _Several:
    """The rows of keys with more than one row; all other rows are unchanged."""

    table: pa.Table
    single: np.ndarray  # For each key its only row, or -1.
    rows: np.ndarray  # The row at each place.
    kinds: np.ndarray  # Its kind.
    starts: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        return np.append(self.starts[1:], len(self.rows))

    @property
    def keys(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.starts)), self.ends - self.starts)

    def last(self, mask: np.ndarray) -> np.ndarray:
        return self.events(mask).last(mask)

    def any(self, mask: np.ndarray) -> np.ndarray:
        return self.events(mask).any(mask)

    def after(self, mask: np.ndarray, places: np.ndarray) -> np.ndarray:
        return self.events(mask).after(mask, places)

    def events(self, adds: np.ndarray, older: np.ndarray | None = None, retracts: np.ndarray | None = None) -> Events:
        nothing = np.zeros(len(self.rows), bool)
        return Events(self.starts, adds, nothing if older is None else older, nothing if retracts is None else retracts)

    def merged(self, reduce: Callable[[str], Result], spec: MergeSpec, is_deleted: np.ndarray) -> pa.Table:
        """One row per key: single rows unchanged, others by `reduce`; those of `is_deleted` are -D."""
        newest = self.ends - 1
        from_newest = {SEQUENCE.name, BUCKET.name, *spec.key, *spec.partition}  # Whatever its kind is.
        kinds = pa.array(np.where(is_deleted, RowKind.DELETE, RowKind.INSERT).astype(np.int8))
        columns = []
        for name in self.table.schema.names:
            if name == VALUE_KIND.name:
                columns.append(self._column(name, kinds))
            elif name in from_newest:
                columns.append(self._column(name, newest))
            else:
                columns.append(self._column(name, reduce(name)))
        return pa.Table.from_arrays(columns, schema=self.table.schema)

    def _column(self, name: str, result: Result) -> pa.ChunkedArray:
        column, chosen = self.table.column(name), self.single.copy()
        if isinstance(result, np.ndarray):
            chosen[chosen < 0] = np.where(result < 0, -1, self.rows[result])
        else:
            chosen[chosen < 0] = len(column) + np.arange(len(result))
            column = pa.chunked_array([*column.chunks, result], column.type)
        return gather.take_column(column, chosen)


def _several(rows: pa.Table, keyed: Keyed) -> _Several:
    lengths = keyed.ends - keyed.starts
    several = lengths > 1
    places = np.repeat(several, lengths)
    chosen = keyed.order[places]
    starts = np.cumsum(lengths[several]) - lengths[several]
    single = np.where(several, -1, keyed.order[keyed.starts])
    return _Several(rows, single, chosen, rows.column(VALUE_KIND.name).to_numpy()[chosen], starts)


@dataclass(frozen=True, slots=True)
class _Group:
    """A sequence group over places."""

    group: SequenceGroup
    is_given: np.ndarray  # For each place, whether any of its sequence fields is not null.
    ranks: np.ndarray
    keeps: bool  # A removed row keeps its sequence, since the fields are NOT NULL.

    @classmethod
    def from_rows(cls, group: SequenceGroup, rows: pa.Table, several: _Several) -> _Group:
        fields = [rows.column(name) for name in group.sequence]
        is_given = np.logical_or.reduce([_is_valid(field) for field in fields])[several.rows]
        keeps = not all(rows.schema.field(name).nullable for name in group.sequence)
        return cls(group, is_given, ranks.ranks(fields)[several.rows], keeps)

    def in_order(self, several: _Several, removed: np.ndarray) -> np.ndarray:
        """For each place, whether no row since the last removal is newer by this group's sequence."""
        if len(self.ranks) == 0:
            return self.is_given
        begins = np.zeros(len(self.ranks), bool)
        begins[several.starts] = True
        again = removed[removed >= 0] + (not self.keeps)
        begins[again[again < len(begins)]] = True
        own = np.unique(self.ranks, return_inverse=True)[1]
        heights = np.cumsum(begins) * (len(own) + 1) + own
        highest = np.maximum.accumulate(heights)
        return heights >= np.concatenate(([0], highest[:-1]))


def _removed_by_groups(groups: list[_Group], several: _Several, removed: np.ndarray) -> np.ndarray:
    """The place of the last -D by which one of `groups` removes the row, for each key."""
    deletes = several.kinds == RowKind.DELETE
    while True:  # Once per removal of a key: each restarts the group's sequence.
        hits = np.zeros_like(deletes)
        for group in groups:
            hits |= deletes & group.is_given & group.in_order(several, removed)
        hits = several.after(hits, removed)
        if not hits.any():
            return removed
        firsts = several.events(hits).first(hits)
        removed = np.where(firsts >= 0, firsts, removed)


def _filled(chosen: np.ndarray, several: _Several, removed: np.ndarray, nullable: bool) -> np.ndarray:
    """NOT NULL values are taken from the removed row, or from the first."""
    return chosen if nullable else np.where(chosen >= 0, chosen, np.where(removed >= 0, removed, several.starts))


def _is_valid(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.is_valid()) if column.null_count else np.ones(len(column), bool)


def _take(rows: pa.Table, chosen: np.ndarray) -> pa.Table:
    if len(chosen) == rows.num_rows and np.array_equal(chosen, np.arange(len(chosen))):
        return rows
    return gather.take(rows, chosen)


# Engines that keep one of a key's rows unchanged: which one.
_CHOICES: dict[MergeEngine, Callable[[pa.Table, Keyed], np.ndarray]] = {
    MergeEngine.DEDUPLICATE: _deduplicate,
    MergeEngine.FIRST_ROW: _first_row,
}
_ENGINES: dict[MergeEngine, Callable[[pa.Table, Keyed, MergeSpec], pa.Table]] = {
    MergeEngine.PARTIAL_UPDATE: _partial_update,
    MergeEngine.AGGREGATION: _aggregation,
}
