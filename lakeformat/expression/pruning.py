"""Conditions against file statistics: which files may hold a matching row, and which hold only matching rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import arrow
from lakeformat.errors import InvalidInput, LakeError
from lakeformat.expression.evaluation import comparable, compare, evaluate, scalar
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import (
    ANY_TEXT,
    COMPARISONS,
    FLIPPED,
    Call,
    Column,
    Expression,
    Literal,
    and_,
    bind,
    like_parts,
    or_,
    paths_of,
    push_not,
    successor,
)
from lakeformat.model.schema import Field, Kind, Scalar


@dataclass(frozen=True, slots=True)
class Bounds:
    """One column's statistics, one row per file; null if unknown.

    `minimum` and `maximum` bound the values that are neither null nor NaN (they need not occur); `null_count`,
    `row_count` and `nan_count` are int64; without `nan_count` it is unknown for all files. NaN is above all numbers, so
    an upper bound of floats excludes a file only if its `nan_count` is 0.
    """

    minimum: pa.Array
    maximum: pa.Array
    null_count: pa.Array
    row_count: pa.Array
    nan_count: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.row_count)


def may_match(expression: Expression, bounds: Mapping[str, Bounds], files: int | None = None) -> pa.BooleanArray:
    """Per file: may any of its rows satisfy the condition? Never false for a file with such a row.

    `bounds` is by column name, with dots for nested columns; columns missing from it are unknown. `files` is the number
    of files, needed if `bounds` may be empty. Bind the expression first.
    """
    return pa.array(_verdict(expression, bounds, _count(bounds, files)).true)


def must_match(expression: Expression, bounds: Mapping[str, Bounds], files: int | None = None) -> pa.BooleanArray:
    """Per file: does every row satisfy the condition? Never true for a file with a row that does not."""
    verdict = _verdict(expression, bounds, _count(bounds, files))
    return pa.array(~(verdict.false | verdict.null))


def to_dataset_filter(expression: Expression, fields: tuple[Field, ...]) -> pc.Expression | None:
    """A filter for `pyarrow.dataset` that passes every row that satisfies the condition; None if it would filter
    nothing.

    It may pass more rows: it omits the parts that Arrow cannot evaluate or evaluates differently. `fields` are the
    columns with the names and types in the file; columns that the file lacks are not filtered on.
    """
    return _pushed(push_not(expression), fields)


_FEW = 16
_TEXTS = (Kind.CHAR, Kind.VARCHAR, Kind.STRING)
_UNPUSHED = (Kind.UUID, Kind.FIXED, Kind.VARIANT, Kind.GEOMETRY, Kind.GEOGRAPHY, Kind.UNKNOWN)
_FLOATS = (Scalar(Kind.FLOAT), Scalar(Kind.DOUBLE))


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Per file: may a row make the condition true, false, null?"""

    true: np.ndarray
    false: np.ndarray
    null: np.ndarray


@dataclass(frozen=True, slots=True)
class _Side:
    """One column's statistics as numpy: may there be a null, a value, a NaN?"""

    bounds: Bounds
    null: np.ndarray
    value: np.ndarray
    nan: np.ndarray


def _count(bounds: Mapping[str, Bounds], files: int | None) -> int:
    counts = {len(bound) for bound in bounds.values()} | ({files} if files is not None else set())
    if len(counts) != 1:
        reason = f"columns of {sorted(counts)} files" if counts else "no column and no number of files"
        raise InvalidInput(f"bounds: {reason}; every column needs one row per file")
    return counts.pop()


def _verdict(expression: Expression, bounds: Mapping[str, Bounds], count: int) -> _Verdict:
    match expression:
        case Literal(value):
            constant = value if value is None or isinstance(value, bool) else ...
            if constant is ...:
                return _unknown(count)
            return _Verdict(*(np.full(count, constant is outcome) for outcome in (True, False, None)))
        case Call("and", arguments):
            return _all_of([_verdict(argument, bounds, count) for argument in arguments])
        case Call("or", arguments):
            return _opposite(_all_of([_opposite(_verdict(argument, bounds, count)) for argument in arguments]))
        case Call("not", (inner,)):
            return _opposite(_verdict(inner, bounds, count))
        case Column() as column:
            return _compared("eq", _side(column, bounds), Literal(True), count)
        case Call("is_null", (Column() as column,)):
            side = _side(column, bounds)
            return _unknown(count) if side is None else _Verdict(side.null, side.value, np.zeros(count, dtype=bool))
        case Call("is_nan", (Column() as column,)):
            side = _side(column, bounds)
            if side is None:
                return _unknown(count)
            return _Verdict(side.nan, np.ones(count, dtype=bool), np.zeros(count, dtype=bool))
        case Call("eq_null_safe", (left, right)):
            return _equal_null_safe(left, right, bounds, count)
        case Call(name, (Column() as column, right)) if name in COMPARISONS and not paths_of(right):
            return _compared(name, _side(column, bounds), right, count)
        case Call(name, (left, Column() as column)) if name in COMPARISONS and not paths_of(left):
            return _compared(FLIPPED[name], _side(column, bounds), left, count)
        case Call(name, (left, right)) if name in COMPARISONS and not paths_of(expression):
            value = _constant(expression)
            return _unknown(count) if value is None else _verdict(Literal(value.as_py()), bounds, count)
        case Call("in", (Column() as column, Literal(values))):
            return _among(_side(column, bounds), values, count)
        case Call("in_tuples", (*columns, Literal(tuples))):
            return _among_tuples(columns, list(tuples), bounds, count)
        case Call("starts_with", (Column() as column, Literal(str(prefix)))):
            return _prefixed(_side(column, bounds), prefix, count, exact=True)
        case Call("like", (Column() as column, Literal(str(pattern)), Literal(escape))):
            return _alike(_side(column, bounds), like_parts(pattern, escape), count)
    return _unknown(count)


def _unknown(count: int) -> _Verdict:
    everything = np.ones(count, dtype=bool)
    return _Verdict(everything, everything, everything)


def _opposite(verdict: _Verdict) -> _Verdict:
    return _Verdict(verdict.false, verdict.true, verdict.null)


def _all_of(verdicts: list[_Verdict]) -> _Verdict:
    combined = verdicts[0]
    for verdict in verdicts[1:]:
        null = (combined.null & (verdict.true | verdict.null)) | (verdict.null & combined.true)
        combined = _Verdict(combined.true & verdict.true, combined.false | verdict.false, null)
    return combined


def _side(column: Column, bounds: Mapping[str, Bounds]) -> _Side | None:
    of_column = bounds.get(".".join(column.path))
    if of_column is None:
        return None
    rows, nulls = _numbers(of_column.row_count), _numbers(of_column.null_count)
    # An unknown count is NaN here, and compares as false.
    null = ~(nulls == 0) & ~(rows == 0)
    value = ~(nulls >= rows) & ~(rows == 0)
    nan = value & (pa.types.is_floating(of_column.minimum.type) or pa.types.is_null(of_column.minimum.type))
    if of_column.nan_count is not None:
        nan &= ~(_numbers(of_column.nan_count) == 0)
    return _Side(of_column, null, value, nan)


def _numbers(counts: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.cast(_whole(counts), pa.float64()), math.nan))


def _constant(expression: Expression) -> pa.Scalar | None:
    """The value of an expression without columns; None if it has none."""
    if isinstance(expression, Literal):
        return scalar(expression.value)
    try:
        return evaluate(expression, pa.table({"": pa.nulls(1)}))[0]
    except LakeError:
        return None


def _bound_holds(name: str, bound: pa.Array, value: pa.Scalar) -> tuple[np.ndarray, np.ndarray]:
    """(does `bound name value` hold, is the bound known): a NaN bound is unknown."""
    outcome = compare(name, _without_nan(_whole(bound)), value)
    return np.asarray(pc.fill_null(outcome, False)), np.asarray(pc.is_valid(outcome))


def _compared(name: str, side: _Side | None, operand: Expression, count: int) -> _Verdict:
    value = _constant(operand)
    if value is not None and not value.is_valid:
        return _Verdict(np.zeros(count, dtype=bool), np.zeros(count, dtype=bool), np.ones(count, dtype=bool))
    if side is None or value is None:
        return _unknown(count)
    try:
        true, false = _range(name, side, value)
    except InvalidInput:
        return _unknown(count)  # Statistics whose type is not comparable with the value prove nothing.
    return _Verdict(side.value & true, side.value & false, side.null)


def _range(name: str, side: _Side, value: pa.Scalar) -> tuple[np.ndarray, np.ndarray]:
    """(may a non-null value satisfy `it name value`, may one fail it)."""
    minimum, maximum = side.bounds.minimum, side.bounds.maximum
    if pa.types.is_floating(value.type) and math.isnan(value.as_py()):
        unsure = np.ones(len(side.value), dtype=bool)
        return unsure, unsure
    match name:
        case "ne":
            return _range("eq", side, value)[::-1]
        case "eq":
            low, low_known = _bound_holds("le", minimum, value)
            high, high_known = _bound_holds("ge", maximum, value)
            only = _bound_holds("ge", minimum, value)[0] & _bound_holds("le", maximum, value)[0]
            return (low | ~low_known) & (high | ~high_known), ~only | side.nan
        case "lt" | "le":
            low, low_known = _bound_holds(name, minimum, value)
            return low | ~low_known, ~_bound_holds(name, maximum, value)[0] | side.nan
        case _:
            high, high_known = _bound_holds(name, maximum, value)
            return high | ~high_known | side.nan, ~_bound_holds(name, minimum, value)[0]


def _equal_null_safe(left: Expression, right: Expression, bounds: Mapping[str, Bounds], count: int) -> _Verdict:
    if isinstance(right, Column) and not isinstance(left, Column):
        left, right = right, left
    value = None if paths_of(right) else _constant(right)
    nothing = np.zeros(count, dtype=bool)
    if not isinstance(left, Column) or value is None:
        return _Verdict(~nothing, ~nothing, nothing)
    if not value.is_valid:
        return _verdict(Call("is_null", (left,)), bounds, count)
    values = _compared("eq", _side(left, bounds), right, count)
    return _Verdict(values.true, values.false | values.null, nothing)


def _among(side: _Side | None, values: Iterable[Any], count: int) -> _Verdict:
    """`in`: with a null among the values, every miss is null."""
    listed = list(values)
    present = [member for member in listed if member is not None]
    if side is None:
        return _unknown(count)
    try:
        true, false = _any_within(side, present)
    except InvalidInput:
        return _unknown(count)
    true, false = side.value & true, side.value & false
    if len(present) < len(listed):
        return _Verdict(true, np.zeros(count, dtype=bool), side.null | false)
    return _Verdict(true, false, side.null)


def _any_within(side: _Side, values: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """(may a non-null value be one of `values`, may it be none of them)."""
    real = [value for value in values if not _is_nan(value)]
    nan = side.nan & (len(real) < len(values))
    if not real:
        return nan, np.ones(len(side.value), dtype=bool)
    if len(real) <= _FEW:
        tested = [_range("eq", side, scalar(member)) for member in real]
        true, false = (np.stack([verdict[i] for verdict in tested]) for i in (0, 1))
        return np.any(true, axis=0) | nan, np.asarray(np.all(false, axis=0))
    low, high, wanted = _ranks(side.bounds, [scalar(member) for member in real])
    within = np.searchsorted(wanted, low, side="left") < np.searchsorted(wanted, high, side="right")
    return within | nan, ~(within & (low == high)) | side.nan


def _ranks(bounds: Bounds, values: list[pa.Scalar]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Minima, maxima and sorted values as ranks in one order; an unknown minimum is below all, an unknown maximum
    above."""
    low, compared = comparable(_whole(bounds.minimum), values)
    high, _ = comparable(_whole(bounds.maximum), values)
    if low.type != high.type:
        raise InvalidInput(f"bounds of different types: {low.type} and {high.type}")
    joined = _without_nan(pa.concat_arrays([low, high, compared]))
    if pa.types.is_boolean(joined.type):
        joined = pc.cast(joined, pa.int8())
    ranks = pc.rank(joined, tiebreaker="dense").to_numpy().astype(np.int64)
    known, n = np.asarray(pc.is_valid(joined)), len(low)
    minima = np.where(known[:n], ranks[:n], -1)
    maxima = np.where(known[n : 2 * n], ranks[n : 2 * n], np.iinfo(np.int64).max)
    return minima, maxima, np.sort(ranks[2 * n :])


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _without_nan(values: pa.Array) -> pa.Array:
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _among_tuples(
    columns: list[Expression], tuples: list[tuple[Any, ...]], bounds: Mapping[str, Bounds], count: int
) -> _Verdict:
    if len(tuples) <= _FEW:
        rows = (
            and_(*(Call("eq_null_safe", (c, Literal(v))) for c, v in zip(columns, tuple_, strict=True)))
            for tuple_ in tuples
        )
        return _verdict(or_(*rows), bounds, count)
    # For many tuples: each column must have one of its values. Whether all rows match is unknown.
    true = np.ones(count, dtype=bool)
    for i, column in enumerate(columns):
        values = frozenset(tuple_[i] for tuple_ in tuples)
        side = _side(column, bounds) if isinstance(column, Column) else None
        if side is not None:
            true &= _among(side, values - {None}, count).true | (side.null & (None in values))
    return _Verdict(true, np.ones(count, dtype=bool), np.zeros(count, dtype=bool))


def _prefixed(side: _Side | None, prefix: str, count: int, exact: bool) -> _Verdict:
    if side is None:
        return _unknown(count)
    after = successor(prefix)
    low = _compared("ge", side, Literal(prefix), count)
    high = low if after is None else _compared("lt", side, Literal(after), count)
    false = low.false | high.false if exact and after is not None else side.value
    return _Verdict(low.true & high.true, false, side.null)


def _alike(side: _Side | None, parts: list[Any], count: int) -> _Verdict:
    if side is None:
        return _unknown(count)
    if all(isinstance(part, str) for part in parts):
        return _compared("eq", side, Literal("".join(parts)), count)
    if isinstance(parts[0], str):
        return _prefixed(side, parts[0], count, exact=parts[1:] == [ANY_TEXT])
    return _Verdict(side.value, side.value, side.null)


# Filters for Arrow's reader.


def _pushed(expression: Expression, fields: tuple[Field, ...]) -> pc.Expression | None:
    match expression:
        case Literal(value):
            return pc.scalar(False) if value is False or value is None else None
        case Call("and", arguments):
            pushed = [f for f in (_pushed(argument, fields) for argument in arguments) if f is not None]
            return reduce(lambda a, b: a & b, pushed) if pushed else None
        case Call("or", arguments):
            pushed = [f for f in (_pushed(argument, fields) for argument in arguments) if f is not None]
            return reduce(lambda a, b: a | b, pushed) if len(pushed) == len(arguments) else None
        case Column():
            return _pushed_comparison("eq", expression, True, fields)
        case Call("not", (Column() as column,)):
            return _pushed_comparison("eq", column, False, fields)
        case Call("is_null", (Column() as column,)) if _field(column, fields):
            return pc.field(column.name).is_null()
        case Call("not", (Call("is_null", (Column() as column,)),)) if _field(column, fields):
            return pc.field(column.name).is_valid()
        case Call("is_nan", _):
            return None  # Bounds exclude NaN, so Arrow would skip a row group of NaN and one number.
        case Call("eq_null_safe", (Column() as column, Literal(None))) if _field(column, fields):
            return pc.field(column.name).is_null()
        case Call("eq_null_safe", (Column() as column, Literal(value))):
            return _pushed_comparison("eq", column, value, fields)
        case Call(name, (Column() as column, Literal(value))) if name in COMPARISONS:
            return _pushed_comparison(name, column, value, fields)
        case Call(name, (Literal(value), Column() as column)) if name in COMPARISONS:
            return _pushed_comparison(FLIPPED[name], column, value, fields)
        case Call("in", (Column() as column, Literal(values))):
            return _pushed_in(column, values, fields)
        case Call("in_tuples", (*columns, Literal(tuples))):
            return _pushed_tuples(columns, list(tuples), fields)
        case Call("starts_with", (Column() as column, Literal(str(prefix)))):
            return _pushed_prefix(column, prefix, fields)
        case Call("like", (Column() as column, Literal(str(pattern)), Literal(escape))):
            parts = like_parts(pattern, escape)
            if all(isinstance(part, str) for part in parts):
                return _pushed_comparison("eq", column, "".join(parts), fields)
            return _pushed_prefix(column, parts[0], fields) if isinstance(parts[0], str) else None
    return None


def _field(column: Column, fields: tuple[Field, ...]) -> Field | None:
    """The top-level scalar column, if Arrow compares its type as SQL does."""
    if len(column.path) > 1:
        return None
    named = next((field for field in fields if field.name == column.name), None)
    if named is None or not isinstance(named.type, Scalar) or named.type.kind in _UNPUSHED:
        return None
    return named


def _pushed_comparison(name: str, column: Column, value: Any, fields: tuple[Field, ...]) -> pc.Expression | None:
    field = _field(column, fields)
    if field is None:
        return None
    # Bound again to the file's type, which may be narrower than the table's.
    bound = _bound(Call(name, (column, Literal(value))), field)
    match bound:
        case Call(name, (Column(), Literal(value))) if name in COMPARISONS:
            pass
        case None:
            return None
        case _:
            return _pushed(bound, fields)
    if _is_nan(value) or (field.type in _FLOATS and name in ("ne", "gt", "ge")):
        return None  # NaN satisfies these, and bounds exclude it.
    if field.type == _FLOATS[0]:
        narrowed = _single(name, value)
        if narrowed is None:
            return None
        name, value = narrowed
    converted = _converted(value, field)
    if converted is None:
        return None
    left = pc.field(column.name)
    match name:
        case "eq":
            return left == converted
        case "ne":
            return left != converted
        case "lt":
            return left < converted
        case "le":
            return left <= converted
    return left > converted if name == "gt" else left >= converted


def _bound(expression: Expression, field: Field) -> Expression | None:
    try:
        return bind(expression, (field,))
    except LakeError:
        return None


def _single(name: str, value: float) -> tuple[str, float] | None:
    """A comparison of 32-bit floats that holds if the comparison with the 64-bit `value` does."""
    with np.errstate(over="ignore"):
        near = float(np.float32(value))
    if near == value:
        return name, near
    match name:
        case "lt" | "le":
            return "le", near if near > value else float(np.nextafter(np.float32(near), np.float32(math.inf)))
        case "gt" | "ge":
            return "ge", near if near < value else float(np.nextafter(np.float32(near), np.float32(-math.inf)))
    return None


def _converted(value: Any, field: Field) -> pa.Scalar | None:
    try:
        return pa.scalar(value, arrow.to_arrow(field.type))
    except (pa.ArrowException, LakeError, ValueError, TypeError, OverflowError):
        return None


def _pushed_in(column: Column, values: Iterable[Any], fields: tuple[Field, ...]) -> pc.Expression | None:
    field = _field(column, fields)
    if field is None:
        return None
    bound = _bound(Call("in", (column, Literal(frozenset(values)))), field)
    match bound:
        case Call("in", (Column(), Literal(fitted))):
            if any(map(_is_nan, fitted)):
                return None
            real = [member for member in fitted if member is not None]
        case None:
            return None
        case _:
            return _pushed(bound, fields)
    if field.type == _FLOATS[0]:
        real = [member for member in real if _single("eq", member) is not None]  # The others equal no 32-bit value.
    if field.type in _FLOATS and 0 in real:
        real += [0.0, -0.0]
    converted = [_converted(member, field) for member in real]
    if any(member is None for member in converted):
        return None
    type = arrow.to_arrow(field.type)
    if not real:
        return pc.scalar(False)
    return pc.field(column.name).isin(pa.array([member.as_py() for member in converted if member is not None], type))


def _pushed_tuples(
    columns: list[Expression], tuples: list[tuple[Any, ...]], fields: tuple[Field, ...]
) -> pc.Expression | None:
    expression: pc.Expression | None = None
    for i, column in enumerate(columns):
        if not isinstance(column, Column):
            continue
        values = frozenset(tuple_[i] for tuple_ in tuples)
        here = _pushed_in(column, values, fields)
        if here is not None and None in values:
            here = here | pc.field(column.name).is_null()
        if here is not None:
            expression = here if expression is None else expression & here
    return expression


def _pushed_prefix(column: Column, prefix: str, fields: tuple[Field, ...]) -> pc.Expression | None:
    """A prefix as a range, which Arrow can compare with the bounds of row groups."""
    field = _field(column, fields)
    if field is None or not isinstance(field.type, Scalar) or field.type.kind not in _TEXTS:
        return None
    after = successor(prefix)
    low = pc.field(column.name) >= pa.scalar(prefix)
    return low if after is None else low & (pc.field(column.name) < pa.scalar(after))
