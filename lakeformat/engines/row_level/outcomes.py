"""MERGE kernels over Arrow: which rows match, which clause applies, and the resulting rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import layouts, numbers
from lakeformat.codec.arrow import arrow_schema, to_arrow
from lakeformat.engines.engine import Spread
from lakeformat.engines.kernels import assign, casts, gather, ranks
from lakeformat.engines.kernels.gather import Rows
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.expression import evaluation
from lakeformat.expression.spark_sql import to_sql
from lakeformat.model.merge import SOURCE, TARGET, Act, Clause, Group, Key, Merge, flat_name, sides_of
from lakeformat.model.predicate import ALWAYS, Column, Expression, and_, columns_of, conjuncts
from lakeformat.model.schema import Field, Kind, find_field, scalar
from lakeformat.model.work import FILE, POSITION, ROW_KIND, RowKind

NONE = -1  # No clause applies to the row.
_PAIRS = 1 << 19  # Matches that are evaluated together.
# Keys that are numbers are looked up in a table where there is one in so many numbers,
# and the table is no longer than this.
_SPREAD, _SPAN = 64, 1 << 25
# Else, where there are no more than this, a filter of so many bits (bytes of memory)
# for each of them says which cannot be there.
_FILTERED, _BITS_EACH, _LEAST_BITS, _LEAST_FILTERED = 1 << 21, 8, 10, 1 << 12
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # By the golden ratio: near numbers get hashes far apart.
_SAMPLE = (
    4  # So many times the limit of distinct values are looked at first, which shows most often that there are more.
)

Clauses = Sequence[tuple[int, Clause]]
Numbered = tuple[np.ndarray, np.ndarray]  # For each row whether the source has its keys; their code.


def check(merge: Merge) -> None:
    """Raise `InvalidInput` for an invalid condition, or values that do not fit their columns. No row is read."""
    sides = {TARGET: merge.target, SOURCE: merge.source}
    both = beside(*(named(side, arrow_schema(fields).empty_table()) for side, fields in sides.items()))
    evaluation.mask(merge.condition, both)
    for clause in merge.clauses:
        with _naming(clause):
            evaluation.mask(clause.condition, both)
            assigned(clause, both, merge.target)


def named(side: str, table: pa.Table) -> pa.Table:
    """The columns with the names that a merge's expressions use."""
    return table.rename_columns([flat_name(side, name) for name in table.column_names])


def beside(left: pa.Table, right: pa.Table) -> pa.Table:
    """The columns of two tables of equal length."""
    return pa.Table.from_arrays([*left.columns, *right.columns], [*left.column_names, *right.column_names])


def spread(merge: Merge, source: pa.Table, limit: int) -> list[Spread]:
    """The values of each key in `source`; only the smallest and largest if there are more than `limit`."""
    spreads = []
    for key in merge.keys:
        values = layouts.plain(_values_of(key.source, source))
        has_null = values.null_count > 0
        distinct = values.slice(0, _SAMPLE * limit).unique().drop_null()
        if len(distinct) <= limit < len(values):
            distinct = values.unique().drop_null()
        if len(distinct) <= limit:
            spreads.append(Spread(distinct, True, has_null))
        elif pa.types.is_boolean(values.type) or pa.types.is_floating(values.type):
            spreads.append(Spread(None))  # NaN is above all values, and not in bounds.
        else:
            ends = pc.min_max(values)
            spreads.append(Spread(pa.array([ends["min"].as_py(), ends["max"].as_py()], values.type), False, has_null))
    return spreads


class Index:
    """The rows of a source by key. Looking up rows of the table also records which rows of the source were matched."""

    def __init__(self, merge: Merge, source: Rows) -> None:
        self.merge, self.source = merge, source
        count = source.table.num_rows
        self._matched_rows = np.zeros(count, bool)
        parts: dict[frozenset[str], Expression] = {
            frozenset(sides_of(conjunct)): ALWAYS for conjunct in conjuncts(merge.rest)
        }
        for conjunct in conjuncts(merge.rest):
            sides = frozenset(sides_of(conjunct))
            parts[sides] = and_(parts[sides], conjunct)
        self._of_target = parts.pop(frozenset({TARGET}), ALWAYS)
        of_source = parts.pop(frozenset({SOURCE}), ALWAYS)
        self._rest = and_(*parts.values())
        alive = (
            np.ones(count, bool)
            if of_source == ALWAYS
            else _numpy(gather.by_batches(source.table, partial(evaluation.mask, of_source)))
        )
        steps = []
        empty = named(TARGET, arrow_schema(merge.target).empty_table())
        self._compared: list[tuple[Key, bool]] = []  # And whether it is compared in its own type.
        for key in merge.keys:
            source_values, stored = _values_of(key.source, source.table), evaluation.evaluate(key.target, empty).type
            type = evaluation.common_type(stored, source_values.type)
            self._compared.append((key, type == stored))
            values = layouts.plain(_looked_up(key, key.target, source_values, type))
            distinct = _Values(values, key.null_safe)
            steps.append((key, type, distinct, distinct.places(values)))
        # The key with most values first: it excludes most rows of the table from the other look-ups.
        steps.sort(key=lambda step: -len(step[2]))
        self._steps: list[tuple[Key, pa.DataType, _Values, Callable[[np.ndarray, np.ndarray], Numbered] | None]] = []
        codes = np.zeros(count, np.int64)
        for key, type, distinct, hits in steps:
            alive &= hits >= 0
            together: Callable[[np.ndarray, np.ndarray], Numbered] | None = None
            if not self._steps:
                codes = np.maximum(hits, 0)
            # Of each row the keys so far are its own: others are compared.
            elif (np.bincount(codes[alive]) <= 1).all():
                next_keys = np.full(int(codes.max()) + 1 if count else 0, NONE, np.int64)
                next_keys[codes[alive]] = hits[alive]
                together = partial(_same, next_keys)
            else:
                next_keys, codes = _numbered(codes * (len(distinct) + 1) + hits + 1)
                together = partial(_joint, next_keys, len(distinct))
            self._steps.append((key, type, distinct, together))
        rows = np.flatnonzero(alive)
        self._codes = np.where(alive, codes, NONE)
        size = int(codes.max()) + 1 if count else 0
        self._counts = np.bincount(codes[rows], minlength=size)
        self._starts = np.cumsum(self._counts) - self._counts
        self._order = rows[np.argsort(codes[rows], kind="stable")]
        self._matched_codes = np.zeros(size, bool)

    @property
    def tests_rows_freely(self) -> bool:
        """Whether deleted rows may be looked up with the others: no expression over them could fail."""
        by_column = all(isinstance(key.target, Column) and same for key, same in self._compared)
        return by_column and self._of_target == ALWAYS and not self.merge.clauses_of(Group.NOT_MATCHED_BY_SOURCE)

    def match(self, target: pa.Table, deleted: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(rows of `target` that match, ascending; a row of the source for each). A row with several matches appears
        once, unless the merge wants one match: then `InvalidInput` shows one such row. Rows `deleted` (ascending) match
        nothing."""
        rows, codes = self._look_up(target)
        if deleted is not None and len(deleted):
            is_live = ~numbers.among(rows, deleted)
            rows, codes = rows[is_live], codes[is_live]
        if self._rest == ALWAYS:
            self._matched_codes[codes] = True
            if self.merge.wants_one_match and (self._counts[codes] > 1).any():
                raise self._several(target, rows[self._counts[codes] > 1])
            return rows, self._order[self._starts[codes]]
        matches = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        needed = columns_of(self._rest)
        sides = [side.select(needed) for side in (Rows(target), self.source)]
        for some in _slices(self._counts[codes]):
            counts = self._counts[codes[some]]
            left = np.repeat(rows[some], counts)
            nth = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
            right = self._order[np.repeat(self._starts[codes[some]], counts) + nth]
            holds = _holds(self._rest, sides, left, right)
            left, right = left[holds], right[holds]
            self._matched_rows[right] = True
            again = np.flatnonzero(left[1:] == left[:-1]) + 1
            if self.merge.wants_one_match and len(again):
                raise self._several(target, np.unique(left[again]))
            matches.append((np.delete(left, again), np.delete(right, again)))
        return np.concatenate([f[0] for f in matches]), np.concatenate([f[1] for f in matches])

    def matched(self) -> np.ndarray:
        """The rows of the source matched so far."""
        matched = self._matched_rows.copy()
        alive = self._codes >= 0
        matched[alive] |= self._matched_codes[self._codes[alive]]
        return np.flatnonzero(matched)

    def _look_up(self, target: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """(the rows of the table whose key the source has, ascending; the code of each key in the source)."""
        rows = None if self._of_target == ALWAYS else np.flatnonzero(_numpy(evaluation.mask(self._of_target, target)))
        codes = np.zeros(0, np.int64)
        for key, type, distinct, together in self._steps:
            here = target.select([name for name in target.column_names if name in columns_of(key.target)])
            if rows is not None and len(rows) < target.num_rows:
                here = here.take(pa.array(rows))
            kept, hits = distinct.hits(_looked_up(key, key.source, evaluation.evaluate(key.target, here), type))
            rows = kept if rows is None else rows[kept]
            if together is None:
                codes = hits
                continue
            known, codes = together(codes[kept], hits)
            rows, codes = rows[known], codes[known]
        assert rows is not None, self.merge
        alive = self._counts[codes] > 0
        return rows[alive], codes[alive]

    def _several(self, target: pa.Table, rows: np.ndarray) -> InvalidInput:
        names = sorted({name for key in self.merge.keys for name in columns_of(key.target)})
        return several(self.merge, target.select(names).slice(int(rows[0]), 1).to_pylist()[0])


def _looked_up(key: Key, other: Expression, values: Any, type: pa.DataType) -> Any:
    """One side of a key in the type in which both are compared."""
    try:
        return evaluation.lookup(values, type)
    except InvalidInput as error:
        raise InvalidInput(
            f"merge_into on {to_sql(key.target)} = {to_sql(key.source)}: text is compared with {type}, but {error}; "
            f"compare both as text: cast({to_sql(other)} as string)"
        ) from error


def several(merge: Merge, example: Mapping[str, Any]) -> InvalidInput:
    """The error for a row of the table, given by its key columns, that several rows of the source match."""
    by = ", ".join(sorted({name.partition(".")[2] for key in merge.keys for name in columns_of(key.source)}))
    return InvalidInput(
        f"merge_into: more than one row of the source matches the same row of the table, e.g. {dict(example)}; it "
        f"could be changed more than once. Keep one row for each {by} in the source first, e.g. the newest. "
        "Nothing was changed"
    )


def choose(clauses: Clauses, rows: pa.Table) -> np.ndarray:
    """For each row, the index of the first clause whose condition is true; NONE if there is none."""
    choice = np.full(rows.num_rows, NONE, np.int8)
    left = np.arange(rows.num_rows)
    for index, clause in clauses:
        if not len(left):
            break
        if clause.condition == ALWAYS:
            choice[left] = index
            break
        with _naming(clause):
            here = rows if len(left) == rows.num_rows else rows.take(pa.array(left))
            holds = _numpy(evaluation.mask(clause.condition, here))
        choice[left[holds]] = index
        left = left[~holds]
    return choice


def decide(
    index: Index, target: pa.Table, deleted: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(the rows of `target`, ascending, to which a clause applies; the clause; the row of the source, or NONE). No
    clause applies to rows `deleted`; see `Index.tests_rows_freely`."""
    merge = index.merge
    rows, beside_it = index.match(target, deleted)
    choice = np.full(len(rows), NONE, np.int8)
    if matched := merge.clauses_of(Group.MATCHED):
        named = frozenset().union(*(columns_of(clause.condition) for _, clause in matched))
        if matched[0][1].condition == ALWAYS:
            choice[:] = matched[0][0]
        else:
            left = Rows(
                target.select([name for name in target.column_names if name in named] or target.column_names[:1])
            )
            right = index.source.select(named)
            for some in gather.windows(left.sizes(rows) + right.sizes(beside_it), max(len(rows), 1)):
                choice[some] = choose(matched, beside(left.take(rows[some]), right.take(beside_it[some])))
    if alone := merge.clauses_of(Group.NOT_MATCHED_BY_SOURCE):
        is_matched = np.zeros(target.num_rows, bool)
        is_matched[rows] = True
        others = np.flatnonzero(~is_matched)
        of_others = choose(alone, gather.take(target, others))
        order = np.argsort(np.concatenate([rows, others]), kind="stable")
        rows = np.arange(target.num_rows)
        choice = np.concatenate([choice, of_others])[order]
        beside_it = np.concatenate([beside_it, np.full(len(others), NONE)])[order]
    decided = choice != NONE
    return rows[decided], choice[decided], beside_it[decided]


def changed(
    merge: Merge,
    target: pa.Table,
    choice: np.ndarray,
    source: Callable[[np.ndarray], pa.Table],
    whole: bool,
) -> pa.RecordBatch:
    """The rows of `target` after their clauses: all remaining rows, or (unless `whole`) the updated ones.

    `source(rows)` returns the source's columns for these rows. `target` may lack columns that every update assigns.
    """
    columns = {f.name: _stored(target, f) for f in merge.target}
    pieces: dict[str, list[pa.Array]] = {}
    places: dict[str, np.ndarray] = {}
    updates = []
    for index, clause in enumerate(merge.clauses):
        rows = np.flatnonzero(choice == index) if clause.act is Act.UPDATE else np.zeros(0, np.int64)
        updates.append(rows)
        if not len(rows):
            continue
        here = gather.take(target, rows)
        with _naming(clause):
            new = assigned(clause, beside(here, source(rows)) if clause.group is Group.MATCHED else here, merge.target)
        for updated in new.schema.names:
            parts = pieces.setdefault(updated, [columns[updated]])
            to = places.setdefault(updated, np.arange(target.num_rows))
            to[rows] = sum(map(len, parts)) + np.arange(len(rows))
            parts.append(new.column(updated))
    if whole:
        delete_clauses = [index for index, clause in enumerate(merge.clauses) if clause.act is Act.DELETE]
        kept = np.flatnonzero(~np.isin(choice, delete_clauses))
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
    """(the deleted and updated rows, each with its kind; their rows in `target`)."""
    delete_clauses = [index for index, clause in enumerate(merge.clauses) if clause.act is Act.DELETE]
    deleted = np.flatnonzero(np.isin(choice, delete_clauses))
    updated = np.flatnonzero((choice != NONE) & ~np.isin(choice, delete_clauses))
    columns = [_stored(target, f).take(pa.array(deleted)) for f in merge.target]
    old = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(merge.target))
    new = changed(merge, target, choice, source, whole=False)
    both = pa.concat_batches([of_kind(old, RowKind.DELETE), of_kind(new, RowKind.UPDATE_AFTER)])
    return both, np.concatenate([deleted, updated])


def of_kind(rows: pa.RecordBatch, kind: RowKind) -> pa.RecordBatch:
    return rows.append_column(ROW_KIND.name, pa.repeat(pa.scalar(kind.short), rows.num_rows))


def inserted(merge: Merge, source: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows to insert for rows of the source without a match."""
    clauses = merge.clauses_of(Group.NOT_MATCHED)
    choice = choose(clauses, source)
    for index, clause in clauses:
        rows = np.flatnonzero(choice == index)
        if len(rows):
            with _naming(clause):
                yield assigned(clause, source.take(pa.array(rows)), merge.target)


def assigned(clause: Clause, rows: pa.Table, fields: tuple[Field, ...]) -> pa.RecordBatch:
    """The columns that the clause assigns, with the table's types; for an insert, all columns."""
    if clause.act is Act.UPDATE:
        fields = tuple(find_field(fields, name) for name, _ in clause.assignments)
    elif clause.act is Act.DELETE:
        return pa.RecordBatch.from_arrays([], [])
    columns = [layouts.plain(evaluation.evaluate(value, rows)) for _, value in clause.assignments]
    given = pa.RecordBatch.from_arrays(columns, [name for name, _ in clause.assignments])
    assign.check(given.schema, fields)
    return assign.assign(given, fields)


# --- Over rows that an engine has joined: `t.` and `s.` columns, and the two sides' places. ---

# ROW: of the source; null where there is none.
FILE_NAME, POSITION_NAME, ROW, CHOICE = FILE.name, POSITION.name, "_row", "_choice"
DECISIONS = (
    Field(0, FILE_NAME, scalar(Kind.STRING)),
    Field(1, POSITION_NAME, scalar(Kind.BIGINT)),
    Field(2, ROW, scalar(Kind.BIGINT)),
    Field(3, CHOICE, scalar(Kind.INT)),
)


def decisions(merge: Merge, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joined rows -> DECISIONS: one for each match, and one for each row without a match to which a clause applies."""
    matched, alone = merge.clauses_of(Group.MATCHED), merge.clauses_of(Group.NOT_MATCHED_BY_SOURCE)
    for batch in batches:
        table = pa.Table.from_batches([batch])
        has_source = _numpy(table[ROW].is_valid())
        choice = np.full(table.num_rows, NONE, np.int8)
        for clauses, rows in ((matched, np.flatnonzero(has_source)), (alone, np.flatnonzero(~has_source))):
            choice[rows] = choose(clauses, table.take(pa.array(rows)))
        kept = pa.array(np.flatnonzero(has_source | (choice != NONE)))
        columns = [layouts.plain(table[f.name]).take(kept) for f in DECISIONS[:-1]]
        columns.append(pa.array(choice.astype(np.int32)).take(kept))
        yield pa.RecordBatch.from_arrays(columns, [f.name for f in DECISIONS])


def results_by_key(merge: Merge, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joined rows -> the results for the table's rows: the table's columns, the row's kind (null: unchanged) and ROW;
    every match is included, whether a clause applies or not."""
    matched, alone = merge.clauses_of(Group.MATCHED), merge.clauses_of(Group.NOT_MATCHED_BY_SOURCE)
    names = [f"c{index}" for index in range(len(merge.target) + 1)]
    for batch in batches:
        table = pa.Table.from_batches([batch])
        target, source = _sides(merge, table)
        has_source = _numpy(table[ROW].is_valid())
        choice = np.full(table.num_rows, NONE, np.int8)
        for clauses, rows in ((matched, np.flatnonzero(has_source)), (alone, np.flatnonzero(~has_source))):
            choice[rows] = choose(clauses, table.take(pa.array(rows)))
        results, places = by_key(merge, target, choice, partial(_taken, source))
        kept = np.flatnonzero(has_source & (choice == NONE))
        rest = [_stored(target, f).take(pa.array(kept)) for f in merge.target]
        stands = layouts.plain(table[ROW])
        yield pa.RecordBatch.from_arrays([*results.columns, stands.take(pa.array(places))], [*names, ROW])
        yield pa.RecordBatch.from_arrays(
            [*rest, pa.nulls(len(kept), pa.string()), stands.take(pa.array(kept))], [*names, ROW]
        )


def results(merge: Merge, whole: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of the table with their decisions and the source's columns -> the resulting rows; see `changed`."""
    for batch in batches:
        table = pa.Table.from_batches([batch])
        target, source = _sides(merge, table)
        choice = pc.fill_null(layouts.plain(table[CHOICE]), NONE).to_numpy(zero_copy_only=False)
        yield changed(merge, target, choice, partial(_taken, source), whole)


def _sides(merge: Merge, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The columns of both sides; the table's with its types."""
    fields = tuple(f for f in merge.target if flat_name(TARGET, f.name) in table.column_names)
    columns = [layouts.plain(table[flat_name(TARGET, f.name)]) for f in fields]
    given = assign.assign(pa.RecordBatch.from_arrays(columns, [f.name for f in fields]), fields)
    source = table.select([name for name in table.column_names if name.startswith(f"{SOURCE}.")])
    return named(TARGET, pa.Table.from_batches([given])), source


def _taken(table: pa.Table, rows: np.ndarray) -> pa.Table:
    return table.take(pa.array(rows))


# --- private ----------------------------------------------------------------------------------------------------------


def _values_of(expression: Expression, source: pa.Table) -> pa.Array | pa.ChunkedArray:
    return gather.by_batches(source, partial(evaluation.evaluate, expression))


def _holds(condition: Expression, sides: Sequence[Rows], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Which pairs of rows, one of each side, satisfy the condition."""
    if not columns_of(condition):  # A table without columns would have no rows.
        return np.repeat(_numpy(evaluation.mask(condition, pa.table({"": pa.nulls(1)}))), len(left))
    holds = np.zeros(len(left), bool)
    for some in gather.windows(sides[0].sizes(left) + sides[1].sizes(right), max(len(left), 1)):
        pairs = beside(sides[0].take(left[some]), sides[1].take(right[some]))
        holds[some] = _numpy(evaluation.mask(condition, pairs))
    return holds


def _stored(target: pa.Table, field: Field) -> pa.Array:
    name = flat_name(TARGET, field.name)
    if name in target.column_names:
        return layouts.plain(target[name])
    return casts.nulls(target.num_rows, to_arrow(field.type))


def _numpy(mask: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return np.asarray(layouts.plain(mask).to_numpy(zero_copy_only=False), bool)


class _Values:
    """Distinct values of a key, each with its index; null is included only if it equals null."""

    def __init__(self, values: pa.Array, null_safe: bool) -> None:
        # Numbers are sorted once; other values are hashed for each look-up.
        self._distinct: pa.Array | None = None
        self._numbers: np.ndarray | None = None
        self._table: np.ndarray | None = None
        self._has_number: np.ndarray | None = None
        self._filter: np.ndarray | None = None
        if ranks.are_numbers(values.type):
            ordinals = ranks.ordinals(values.drop_null())
            self._has_number = _flags(ordinals)
            if self._has_number is not None:
                least = int(ordinals.min())
                offsets = np.flatnonzero(self._has_number)
                self._numbers = offsets + least
                self._table = np.empty(len(self._has_number), np.int32)  # Read where a number is known.
                self._table[offsets] = np.arange(len(offsets))
            else:
                self._numbers = numbers.distinct(ordinals)
            if self._has_number is None and len(self._numbers) <= _FILTERED:
                self._bits = max(_LEAST_BITS, (_BITS_EACH * len(self._numbers)).bit_length())
                self._filter = np.zeros(1 << self._bits, bool)
                self._filter[self._hashed(self._numbers)] = True
            self._count = len(self._numbers)
        else:
            self._distinct = values.unique().drop_null()
            self._count = len(self._distinct)
        self._null = self._count if null_safe and values.null_count else NONE

    def __len__(self) -> int:
        return self._count + (self._null != NONE)

    def places(self, values: pa.Array) -> np.ndarray:
        """For each value its index; NONE if it is missing."""
        places = np.full(len(values), NONE, np.int64)
        rows, hits = self.hits(values)
        places[rows] = hits
        return places

    def hits(self, values: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
        """(the rows, ascending, whose value exists; its index)."""
        if self._numbers is not None:
            rows, places = self._number_hits(ranks.ordinals(layouts.plain(values)))
        else:
            assert self._distinct is not None, self
            if values.type in (pa.string(), pa.binary()):
                places = _joined(values, self._distinct)
            else:
                positions = layouts.plain(pc.index_in(values, value_set=self._distinct))
                places = pc.fill_null(positions, NONE).to_numpy(zero_copy_only=False).astype(np.int64)
            rows = np.flatnonzero(places != NONE)
            places = places[rows]
        if not values.null_count:
            return rows, places
        is_valid = _numpy(values.is_valid())
        kept = is_valid[rows]  # Where it is null, a number is anything.
        rows, places = rows[kept], places[kept]
        if self._null == NONE:
            return rows, places
        nulls = np.flatnonzero(~is_valid)
        rows, places = np.append(rows, nulls), np.append(places, np.full(len(nulls), self._null))
        order = np.argsort(rows, kind="stable")
        return rows[order], places[order]

    def _number_hits(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        numbers = self._numbers
        assert numbers is not None, self
        if not len(numbers):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self._table is not None:
            assert self._has_number is not None, self
            # What lies below the least wraps around, and is beyond the greatest.
            offsets = (codes - numbers[0]).view(np.uint64)
            np.minimum(offsets, np.uint64(len(self._table) - 1), out=offsets)
            rows = np.flatnonzero(self._has_number.take(offsets.view(np.int64), mode="clip"))
            return rows, self._table[codes[rows] - numbers[0]].astype(np.int64)
        some: np.ndarray | None = None
        if self._filter is not None and len(codes) > _LEAST_FILTERED:
            some = np.flatnonzero(self._filter.take(self._hashed(codes), mode="clip"))
            codes = codes[some]
        if len(codes) >= len(numbers):
            places = _joined(codes, numbers)
        else:  # A join hashes the numbers anew each time; they are sorted once.
            places = np.minimum(np.searchsorted(numbers, codes), len(numbers) - 1)
            places[numbers[places] != codes] = NONE
        hits = np.flatnonzero(places != NONE)
        return hits if some is None else some[hits], places[hits]

    def _hashed(self, codes: np.ndarray) -> np.ndarray:
        hashed = codes.view(np.uint64) * _MULTIPLIER
        hashed >>= np.uint64(64 - self._bits)
        return hashed.view(np.int64)


def _joined(values: pa.Array | pa.ChunkedArray | np.ndarray, distinct: pa.Array | np.ndarray) -> np.ndarray:
    """The index of each value in `distinct`; NONE if it is missing. Arrow's join hashes three times as fast as its
    `index_in`."""
    left = pa.table({"value": values, "row": np.arange(len(values))})
    right = pa.table({"value": distinct, "position": np.arange(len(distinct))})
    both = left.join(right, "value", join_type="inner", use_threads=False)  # Each thread merges a file of its own.
    positions = np.full(len(values), NONE, np.int64)
    positions[both["row"].to_numpy()] = both["position"].to_numpy()
    return positions


def _flags(values: np.ndarray) -> np.ndarray | None:
    """For each number from the smallest on, whether it is among the values, with False at the end; None if they are too
    far apart."""
    if not len(values):
        return None
    least, greatest = int(values.min()), int(values.max())
    if greatest - least >= min(_SPREAD * len(values), _SPAN):
        return None
    flags = np.zeros(greatest - least + 2, bool)
    flags[values - least] = True
    return flags


def _numbered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct values, ascending; for each value its place among them)."""
    if (values[1:] > values[:-1]).all():
        return values, np.arange(len(values))
    return np.unique(values, return_inverse=True)


def _same(next_keys: np.ndarray, codes: np.ndarray, places: np.ndarray) -> Numbered:
    """Codes of keys that only one row has, whose next key has the index `next_keys`."""
    return next_keys[codes] == places, codes


def _joint(joint_codes: np.ndarray, size: int, codes: np.ndarray, places: np.ndarray) -> Numbered:
    """Codes of keys combined with the index of the next key, of `size` values."""
    wanted = codes * (size + 1) + places + 1
    codes = np.minimum(np.searchsorted(joint_codes, wanted), max(len(joint_codes) - 1, 0))
    return joint_codes[codes] == wanted if len(joint_codes) else np.zeros(len(codes), bool), codes


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
