"""Merge kernels over Arrow: which rows match, which clause decides, and what the rows become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import expression
from lakeformat.codec.arrow import arrow_schema, to_arrow
from lakeformat.codec.spark_sql import to_sql
from lakeformat.engines.engine import Spread
from lakeformat.engines.kernels import assign, casts, ranks
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.model.merge import SOURCE, TARGET, Act, Clause, Group, Key, Merge, flat_name, sides_of
from lakeformat.model.predicate import ALWAYS, Expression, and_, columns_of, conjuncts
from lakeformat.model.schema import Field, Kind, find_field, scalar
from lakeformat.model.work import ROW_KIND, RowKind

NONE = -1  # No clause holds for the row.
_PAIRS = 1 << 19  # Matches that are looked at together.
# Keys that are numbers are looked up in a table where there is one in so many numbers, and the table is no longer than this.
_SPREAD, _SPAN = 64, 1 << 25

Clauses = Sequence[tuple[int, Clause]]


def check(merge: Merge) -> None:
    """Raise `InvalidInput` where a condition is none, or values do not fit their columns; no row is looked at."""
    sides = {TARGET: merge.target, SOURCE: merge.source}
    both = beside(*(named(side, arrow_schema(fields).empty_table()) for side, fields in sides.items()))
    expression.mask(merge.condition, both)
    for each in merge.clauses:
        with _naming(each):
            expression.mask(each.condition, both)
            assigned(each, both, merge.target)


def named(side: str, table: pa.Table) -> pa.Table:
    """The columns as expressions of a merge call them."""
    return table.rename_columns([flat_name(side, name) for name in table.column_names])


def beside(left: pa.Table, right: pa.Table) -> pa.Table:
    """The columns of two tables of the same length."""
    return pa.Table.from_arrays([*left.columns, *right.columns], [*left.column_names, *right.column_names])


def spread(merge: Merge, source: pa.Table, limit: int) -> list[Spread]:
    """The values of each key in `source`; only the least and the greatest where there are more than `limit`."""
    found = []
    for key in merge.keys:
        values = casts.flat(expression.evaluate(key.source, source))
        has_null = values.null_count > 0
        distinct = values.unique().drop_null()
        if len(distinct) <= limit:
            found.append(Spread(distinct, True, has_null))
        elif pa.types.is_boolean(values.type) or pa.types.is_floating(values.type):
            found.append(Spread(None))  # NaN is above all, and in no bounds.
        else:
            ends = pc.min_max(distinct)
            found.append(Spread(pa.array([ends["min"].as_py(), ends["max"].as_py()], values.type), False, has_null))
    return found


class Index:
    """The rows of a source by key. Looking up rows of the table also notes which rows of the source were matched."""

    def __init__(self, merge: Merge, source: pa.Table) -> None:
        self.merge, self.source = merge, source
        count = source.num_rows
        self._matched_rows = np.zeros(count, bool)
        parts: dict[frozenset[str], Expression] = {frozenset(sides_of(each)): ALWAYS for each in conjuncts(merge.rest)}
        for each in conjuncts(merge.rest):
            sides = frozenset(sides_of(each))
            parts[sides] = and_(parts[sides], each)
        self._of_target = parts.pop(frozenset({TARGET}), ALWAYS)
        of_source = parts.pop(frozenset({SOURCE}), ALWAYS)
        self._rest = and_(*parts.values())
        alive = np.ones(count, bool) if of_source == ALWAYS else _numpy(expression.mask(of_source, source))
        steps = []
        empty = named(TARGET, arrow_schema(merge.target).empty_table())
        for key in merge.keys:
            values = expression.evaluate(key.source, source)
            type = expression.common_type(expression.evaluate(key.target, empty).type, values.type)
            values = _looked_up(key, key.target, values, type)
            distinct = _Values(casts.flat(values), key.null_safe)
            steps.append((key, type, distinct, distinct.places(values)))
        # The key of most values first: it leaves out most rows of the table, which the others need not look up.
        steps.sort(key=lambda step: -len(step[2]))
        self._steps: list[tuple[Key, pa.DataType, _Values, np.ndarray | None]] = []
        codes = np.zeros(count, np.int64)
        for key, type, distinct, found in steps:
            alive &= found >= 0
            together = None
            if self._steps:
                together, codes = np.unique(codes * (len(distinct) + 1) + found + 1, return_inverse=True)
            else:
                codes = np.maximum(found, 0)
            self._steps.append((key, type, distinct, together))
        rows = np.flatnonzero(alive)
        self._codes = np.where(alive, codes, NONE)
        size = int(codes.max()) + 1 if count else 0
        self._counts = np.bincount(codes[rows], minlength=size)
        self._starts = np.cumsum(self._counts) - self._counts
        self._order = rows[np.argsort(codes[rows], kind="stable")]
        self._matched_codes = np.zeros(size, bool)

    def match(self, target: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """(rows of `target` that match, a row of the source for each). A row that matches several stands once, unless the
        merge wants one match: then `InvalidInput` shows one such row."""
        codes = self._look_up(target)
        rows = np.flatnonzero(codes >= 0)
        rows = rows[self._counts[codes[rows]] > 0]
        codes = codes[rows]
        if self._rest == ALWAYS:
            self._matched_codes[codes] = True
            if self.merge.wants_one_match and (self._counts[codes] > 1).any():
                raise self._several(target, rows[self._counts[codes] > 1])
            return rows, self._order[self._starts[codes]]
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        for some in _slices(self._counts[codes]):
            counts = self._counts[codes[some]]
            left = np.repeat(rows[some], counts)
            nth = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
            right = self._order[np.repeat(self._starts[codes[some]], counts) + nth]
            pairs = beside(target.take(pa.array(left)), self.source.take(pa.array(right)))
            holds = _numpy(expression.mask(self._rest, pairs))
            left, right = left[holds], right[holds]
            self._matched_rows[right] = True
            again = np.flatnonzero(left[1:] == left[:-1]) + 1
            if self.merge.wants_one_match and len(again):
                raise self._several(target, np.unique(left[again]))
            found.append((np.delete(left, again), np.delete(right, again)))
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    def matched(self) -> np.ndarray:
        """The rows of the source that a row looked up so far has matched."""
        matched = self._matched_rows.copy()
        alive = self._codes >= 0
        matched[alive] |= self._matched_codes[self._codes[alive]]
        return np.flatnonzero(matched)

    def _look_up(self, target: pa.Table) -> np.ndarray:
        """For each row of the table, the code of its key among the source's; NONE where it has none."""
        rows, here = np.arange(target.num_rows), target
        alive = (
            np.ones(len(rows), bool) if self._of_target == ALWAYS else _numpy(expression.mask(self._of_target, here))
        )
        codes = np.zeros(len(rows), np.int64)
        for key, type, distinct, together in self._steps:
            if np.count_nonzero(alive) * 2 < len(rows):  # What one key left out need not be looked for by the next.
                kept = np.flatnonzero(alive)
                rows, codes, alive, here = rows[kept], codes[kept], alive[kept], here.take(pa.array(kept))
            found = distinct.places(_looked_up(key, key.source, expression.evaluate(key.target, here), type))
            alive &= found >= 0
            if together is None:
                codes = found
                continue
            wanted = codes * (len(distinct) + 1) + found + 1
            codes = np.minimum(np.searchsorted(together, wanted), max(len(together) - 1, 0))
            alive &= (together[codes] == wanted) if len(together) else False
        result = np.full(target.num_rows, NONE, np.int64)
        result[rows[alive]] = codes[alive]
        return result

    def _several(self, target: pa.Table, rows: np.ndarray) -> InvalidInput:
        names = sorted({name for key in self.merge.keys for name in columns_of(key.target)})
        return several(self.merge, target.select(names).slice(int(rows[0]), 1).to_pylist()[0])


def _looked_up(key: Key, other: Expression, values: Any, type: pa.DataType) -> Any:
    """One side of a key as the type in which it is compared with the other."""
    try:
        return expression.lookup(values, type)
    except InvalidInput as error:
        raise InvalidInput(
            f"merge_into on {to_sql(key.target)} = {to_sql(key.source)}: text is compared with {type}, but {error}; compare both "
            f"as text: cast({to_sql(other)} as string)"
        ) from error


def several(merge: Merge, example: Mapping[str, Any]) -> InvalidInput:
    """The error for a row of the table, given by its key columns, that several rows of the source match."""
    by = ", ".join(sorted({name.partition(".")[2] for key in merge.keys for name in columns_of(key.source)}))
    return InvalidInput(
        f"merge_into: more than one row of the source matches the same row of the table, e.g. {dict(example)}; it could be "
        f"changed more than once. Keep one row for each {by} in the source first, e.g. the newest. Nothing was changed"
    )


def choose(clauses: Clauses, rows: pa.Table) -> np.ndarray:
    """For each row, the place of the first clause whose condition is true; NONE where none is."""
    choice = np.full(rows.num_rows, NONE, np.int8)
    left = np.arange(rows.num_rows)
    for place, clause in clauses:
        if not len(left):
            break
        if clause.condition == ALWAYS:
            choice[left] = place
            break
        with _naming(clause):
            here = rows if len(left) == rows.num_rows else rows.take(pa.array(left))
            holds = _numpy(expression.mask(clause.condition, here))
        choice[left[holds]] = place
        left = left[~holds]
    return choice


def decide(index: Index, target: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """(the clause that decides for each row of `target`, its row of the source); NONE where there is none."""
    merge = index.merge
    rows, beside_it = index.match(target)
    choice = np.full(target.num_rows, NONE, np.int8)
    source = np.full(target.num_rows, NONE, np.int64)
    source[rows] = beside_it
    if matched := merge.of(Group.MATCHED):
        needed = [flat_name(SOURCE, f.name) for f in merge.deciding(SOURCE)]
        right = index.source.select(needed).take(pa.array(beside_it))
        choice[rows] = choose(matched, beside(target.take(pa.array(rows)), right))
    if alone := merge.of(Group.NOT_MATCHED_BY_SOURCE):
        others = np.flatnonzero(source == NONE)
        choice[others] = choose(alone, target.take(pa.array(others)))
    return choice, source


def changed(
    merge: Merge,
    target: pa.Table,
    choice: np.ndarray,
    source: Callable[[np.ndarray], pa.Table],
    whole: bool,
) -> pa.RecordBatch:
    """The rows of `target` after the clauses chosen for them: all that are left, or (unless `whole`) those updated.

    `source(rows)` gives what stands beside these rows. `target` may lack columns that every update assigns.
    """
    columns = {f.name: _held(target, f) for f in merge.target}
    pieces: dict[str, list[pa.Array]] = {}
    places: dict[str, np.ndarray] = {}
    updates = []
    for place, clause in enumerate(merge.clauses):
        rows = np.flatnonzero(choice == place) if clause.act is Act.UPDATE else np.zeros(0, np.int64)
        updates.append(rows)
        if not len(rows):
            continue
        here = target.take(pa.array(rows))
        with _naming(clause):
            new = assigned(clause, beside(here, source(rows)) if clause.group is Group.MATCHED else here, merge.target)
        for each in new.schema.names:
            parts = pieces.setdefault(each, [columns[each]])
            to = places.setdefault(each, np.arange(target.num_rows))
            to[rows] = sum(map(len, parts)) + np.arange(len(rows))
            parts.append(new.column(each))
    if whole:
        gone = [place for place, clause in enumerate(merge.clauses) if clause.act is Act.DELETE]
        kept = np.flatnonzero(~np.isin(choice, gone))
    else:
        kept = np.sort(np.concatenate(updates))
    every = len(kept) == target.num_rows
    for name, column in columns.items():
        if name in pieces:
            columns[name] = pa.concat_arrays(pieces[name]).take(pa.array(places[name][kept]))
        elif not every:
            columns[name] = column.take(pa.array(kept))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=arrow_schema(merge.target))


def by_key(
    merge: Merge, target: pa.Table, choice: np.ndarray, source: Callable[[np.ndarray], pa.Table]
) -> tuple[pa.RecordBatch, np.ndarray]:
    """(the rows that are deleted and those that are updated, each with its kind; which rows of `target` they are)."""
    gone = [place for place, clause in enumerate(merge.clauses) if clause.act is Act.DELETE]
    deleted = np.flatnonzero(np.isin(choice, gone))
    updated = np.flatnonzero((choice != NONE) & ~np.isin(choice, gone))
    columns = [_held(target, f).take(pa.array(deleted)) for f in merge.target]
    old = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(merge.target))
    new = changed(merge, target, choice, source, whole=False)
    both = pa.concat_batches([of_kind(old, RowKind.DELETE), of_kind(new, RowKind.UPDATE_AFTER)])
    return both, np.concatenate([deleted, updated])


def of_kind(rows: pa.RecordBatch, kind: RowKind) -> pa.RecordBatch:
    return rows.append_column(ROW_KIND.name, pa.repeat(pa.scalar(kind.short), rows.num_rows))


def inserted(merge: Merge, source: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows that come of rows of the source without a match."""
    clauses = merge.of(Group.NOT_MATCHED)
    choice = choose(clauses, source)
    for place, clause in clauses:
        rows = np.flatnonzero(choice == place)
        if len(rows):
            with _naming(clause):
                yield assigned(clause, source.take(pa.array(rows)), merge.target)


def assigned(clause: Clause, rows: pa.Table, fields: tuple[Field, ...]) -> pa.RecordBatch:
    """The columns that the clause assigns, as the table types them; for an insert, all columns."""
    if clause.act is Act.UPDATE:
        fields = tuple(find_field(fields, name) for name, _ in clause.assignments)
    elif clause.act is Act.DELETE:
        return pa.RecordBatch.from_arrays([], [])
    columns = [casts.flat(expression.evaluate(value, rows)) for _, value in clause.assignments]
    given = pa.RecordBatch.from_arrays(columns, [name for name, _ in clause.assignments])
    assign.check(given.schema, fields)
    return assign.assign(given, fields)


# --- Over rows that an engine has joined: `t.` and `s.` columns, and the two sides' places. ---

FILE_NAME, POSITION_NAME, ROW, CHOICE = (
    "_file",
    "_pos",
    "_row",
    "_choice",
)  # ROW: of the source; null where there is none.
DECISIONS = (
    Field(0, FILE_NAME, scalar(Kind.STRING)),
    Field(1, POSITION_NAME, scalar(Kind.BIGINT)),
    Field(2, ROW, scalar(Kind.BIGINT)),
    Field(3, CHOICE, scalar(Kind.INT)),
)


def decisions(merge: Merge, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joined rows -> DECISIONS: one for each match, and for each row without one that a clause decides about."""
    matched, alone = merge.of(Group.MATCHED), merge.of(Group.NOT_MATCHED_BY_SOURCE)
    for batch in batches:
        table = pa.Table.from_batches([batch])
        has_source = _numpy(table[ROW].is_valid())
        choice = np.full(table.num_rows, NONE, np.int8)
        for clauses, rows in ((matched, np.flatnonzero(has_source)), (alone, np.flatnonzero(~has_source))):
            choice[rows] = choose(clauses, table.take(pa.array(rows)))
        kept = pa.array(np.flatnonzero(has_source | (choice != NONE)))
        columns = [casts.flat(table[f.name]).take(kept) for f in DECISIONS[:-1]]
        columns.append(pa.array(choice.astype(np.int32)).take(kept))
        yield pa.RecordBatch.from_arrays(columns, [f.name for f in DECISIONS])


def results_by_key(merge: Merge, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joined rows -> what becomes of the table's, by position the table's columns, then the row's kind (null: nothing) and
    ROW; each match is there, whether a clause decides about it or not."""
    matched, alone = merge.of(Group.MATCHED), merge.of(Group.NOT_MATCHED_BY_SOURCE)
    names = [f"c{place}" for place in range(len(merge.target) + 1)]
    for batch in batches:
        table = pa.Table.from_batches([batch])
        target, source = _sides(merge, table)
        has_source = _numpy(table[ROW].is_valid())
        choice = np.full(table.num_rows, NONE, np.int8)
        for clauses, rows in ((matched, np.flatnonzero(has_source)), (alone, np.flatnonzero(~has_source))):
            choice[rows] = choose(clauses, table.take(pa.array(rows)))
        made, places = by_key(merge, target, choice, partial(_taken, source))
        kept = np.flatnonzero(has_source & (choice == NONE))
        rest = [_held(target, f).take(pa.array(kept)) for f in merge.target]
        stands = casts.flat(table[ROW])
        yield pa.RecordBatch.from_arrays([*made.columns, stands.take(pa.array(places))], [*names, ROW])
        yield pa.RecordBatch.from_arrays(
            [*rest, pa.nulls(len(kept), pa.string()), stands.take(pa.array(kept))], [*names, ROW]
        )


def results(merge: Merge, whole: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of the table beside their decisions and the source's columns -> the rows that come of them; see `changed`."""
    for batch in batches:
        table = pa.Table.from_batches([batch])
        target, source = _sides(merge, table)
        choice = pc.fill_null(casts.flat(table[CHOICE]), NONE).to_numpy(zero_copy_only=False)
        yield changed(merge, target, choice, partial(_taken, source), whole)


def _sides(merge: Merge, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The columns of both sides; those of the table as it types them."""
    held = tuple(f for f in merge.target if flat_name(TARGET, f.name) in table.column_names)
    columns = [casts.flat(table[flat_name(TARGET, f.name)]) for f in held]
    given = assign.assign(pa.RecordBatch.from_arrays(columns, [f.name for f in held]), held)
    source = table.select([name for name in table.column_names if name.startswith(f"{SOURCE}.")])
    return named(TARGET, pa.Table.from_batches([given])), source


def _taken(table: pa.Table, rows: np.ndarray) -> pa.Table:
    return table.take(pa.array(rows))


# --- private ----------------------------------------------------------------------------------------------------------


def _held(target: pa.Table, field: Field) -> pa.Array:
    name = flat_name(TARGET, field.name)
    if name in target.column_names:
        return casts.flat(target[name])
    return casts.nulls(target.num_rows, to_arrow(field.type))


def _numpy(mask: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return np.asarray(casts.flat(mask).to_numpy(zero_copy_only=False), bool)


class _Values:
    """Distinct values of a key, each with its place; null is among them only where it equals null."""

    def __init__(self, values: pa.Array, null_safe: bool) -> None:
        distinct = values.unique()
        self._known = distinct.drop_null()
        # Numbers are sorted once; others are hashed anew for each look-up.
        self._numbers = np.sort(ranks.ordinals(self._known)) if ranks.are_numbers(self._known.type) else None
        self._table = None if self._numbers is None else _table(self._numbers)
        self._null = len(self._known) if null_safe and distinct.null_count else NONE

    def __len__(self) -> int:
        return len(self._known) + (self._null != NONE)

    def places(self, values: pa.ChunkedArray) -> np.ndarray:
        """For each value its place; NONE where it is not there."""
        if self._numbers is None and values.type in (pa.string(), pa.binary()):
            places = _joined(values, self._known)
        elif self._numbers is None:
            positions = casts.flat(pc.index_in(values, value_set=self._known))
            places = pc.fill_null(positions, NONE).to_numpy(zero_copy_only=False).astype(np.int64)
        elif self._table is not None:
            low, high = self._numbers[0], self._numbers[-1]
            codes = ranks.ordinals(values)
            inside = (codes >= low) & (codes <= high)
            places = np.where(inside, self._table[np.where(inside, codes - low, 0)], NONE)
        elif len(self._numbers):
            codes = ranks.ordinals(values)
            if len(codes) >= len(self._numbers):
                places = _joined(codes, self._numbers)
            else:  # A join hashes the numbers anew each time; they are sorted once.
                places = np.minimum(np.searchsorted(self._numbers, codes), len(self._numbers) - 1)
                places[self._numbers[places] != codes] = NONE
        else:
            places = np.full(len(values), NONE)
        if values.null_count:
            places[~_numpy(values.is_valid())] = self._null
        return places


def _joined(values: pa.ChunkedArray | np.ndarray, distinct: pa.Array | np.ndarray) -> np.ndarray:
    """The position of each value among `distinct`; NONE where it is not there. Arrow's join hashes three times as fast as its
    `index_in`."""
    left = pa.table({"value": values, "row": np.arange(len(values))})
    right = pa.table({"value": distinct, "position": np.arange(len(distinct))})
    both = left.join(right, "value", join_type="inner", use_threads=False)  # Each thread merges a file of its own.
    positions = np.full(len(values), NONE, np.int64)
    positions[both["row"].to_numpy()] = both["position"].to_numpy()
    return positions


def _table(numbers: np.ndarray) -> np.ndarray | None:
    """By number, from the least on, its place among these sorted ones; None where they lie too far apart for that."""
    if not len(numbers):
        return None
    span = int(numbers[-1]) - int(numbers[0]) + 1
    if span > min(_SPREAD * len(numbers), _SPAN):
        return None
    table = np.full(span, NONE, np.int32)
    table[numbers - numbers[0]] = np.arange(len(numbers))
    return table


def _slices(counts: np.ndarray) -> Iterator[np.ndarray]:
    """Consecutive places whose counts add up to about `_PAIRS`."""
    if not len(counts):
        return
    groups = np.cumsum(counts) // _PAIRS
    yield from np.split(np.arange(len(counts)), np.flatnonzero(groups[1:] != groups[:-1]) + 1)


@contextmanager
def _naming(clause: Clause) -> Iterator[None]:
    """Put the clause into errors raised inside."""
    try:
        yield
    except LakeError as error:
        raise type(error)(f"{clause.group}: {clause.act}: {error}") from error
